"""Records of runs and the pages that show them; reads records, never trains, and does not know the paper.

records        JSON lines of runs: read, write, merge
folders        a run's folder as such a line
audit_page     an audit of labels as one HTML file
charts         charts as SVG
templates      what the pages share
curves         a run's numbers by epoch, as a picture beside its record
"""

from noiseproof.report.records import compact, merge, read_records, write_records

__all__ = ["compact", "merge", "read_records", "write_records"]
