"""Records of runs and the pages that show them; reads records, never trains, and does not know the paper.

records        JSON lines of runs: read, write, merge
folders        a run's folder as such a line
classes        on which classes a run is never right
paired         losses compared with each other on the same seeds
comparison     that as text, Markdown, JSON or CSV, and as a picture
audit_page     an audit of labels as one HTML file
charts         charts as SVG
templates      what the pages share
curves         a run's numbers by epoch, as a picture beside its record
distributions  Student's t and chi-square, without SciPy
"""

from noiseproof.report.records import compact, merge, read_records, write_records

__all__ = ["compact", "merge", "read_records", "write_records"]
