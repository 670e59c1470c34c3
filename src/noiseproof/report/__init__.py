"""Records of runs, and pages and pictures of them; reads records, never trains, and does not know the paper.

page        report_runs: runs as one HTML file, grouped: those of one recipe that differ in the seed alone
audit_page  an audit of labels as one HTML file
charts      what the pages share: templates, and charts as SVG; pictures of runs as files
"""

import importlib
from typing import TYPE_CHECKING, Any

from noiseproof.train.record_files import compact, merge, read_records, read_runs, write_records

if TYPE_CHECKING:
    from noiseproof.report.page import RunReport, report_runs

__all__ = ["RunReport", "compact", "merge", "read_records", "read_runs", "report_runs", "write_records"]


def __getattr__(name: str) -> Any:
    """The page is imported when it is first used: an audit and a run need records and pictures alone."""
    if name in ("RunReport", "report_runs"):
        return getattr(importlib.import_module("noiseproof.report.page"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
