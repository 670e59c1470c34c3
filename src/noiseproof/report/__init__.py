"""Records of runs, and pages and pictures of them; reads records, never trains, and does not know the paper.

page        report_runs: runs as one HTML file, grouped: those of one recipe that differ in the seed alone
audit_page  an audit of labels as one HTML file
fit_page    a fitted model as one HTML file
charts      what the pages share: templates, and charts as SVG; pictures of runs as files
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from noiseproof.report.page import RunReport, report_runs
    from noiseproof.train.record_files import compact, merge, read_records, read_runs, write_records

__all__ = ["RunReport", "compact", "merge", "read_records", "read_runs", "report_runs", "write_records"]


def __getattr__(name: str) -> Any:
    """Pages and records of runs are imported when they are first used: an audit and a fit need neither."""
    if name in __all__:
        module = "noiseproof.report.page" if name in ("RunReport", "report_runs") else "noiseproof.train.record_files"
        return getattr(importlib.import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
