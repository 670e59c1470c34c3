"""What was measured, compared with what was published, and pages that show it; reads records, never trains.

records        JSON lines of runs: read, write, merge
folders        a run's folder as such a line
cells          the published cells with the runs that belong to them
classes        on which classes a run is never right
agreement      do a cell and a whole table agree with the paper
profiles       cells measured with the values of the paper's text and of its code
tables         the comparison as text, Markdown, LaTeX, JSON or CSV, and in words
paired         losses compared with each other on the same seeds
comparison     that as text, Markdown, JSON or CSV, and as a picture
answer         does the paper hold, in a few sentences
page           all of it as one HTML file; page_runs has the runs it shows, charts its SVG
audit_page     an audit of labels as one HTML file
templates      what the pages share
figures        the paper's figures as files
curves         a run's numbers by epoch, as a picture beside its record
distributions  Student's t and chi-square, without SciPy
"""

from noiseproof.report.cells import CellResult, Joined, join
from noiseproof.report.records import compact, merge, read_records, write_records
from noiseproof.report.tables import FORMATS, formatted, summary

__all__ = [
    "FORMATS",
    "CellResult",
    "Joined",
    "compact",
    "formatted",
    "join",
    "merge",
    "read_records",
    "summary",
    "write_records",
]
