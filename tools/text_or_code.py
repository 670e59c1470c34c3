"""docs/benchmarks/paper.md on the values on which the paper's text and its code differ, from the records."""

from __future__ import annotations

from pathlib import Path

from paper_record import joined
from results import RECORDS, REPEATED, folded, table

from noiseproof.paper.agreement import CellResult
from noiseproof.paper.answer import describe_profiles, text_or_code, text_results
from noiseproof.paper.tables import marked, papers
from noiseproof.report import read_records

__all__ = ["where_they_differ"]

HEAD = ("loss", "noise", "code → text", "paper", "ours, the code's values", "ours, the text's values")


def where_they_differ(folder: Path = RECORDS) -> str:
    """Each cell that is measured with both, and what that shows; nothing where there is none."""
    code = joined(folder)
    found = text_or_code(code, text_results(code, read_records(*(folder / name for name in REPEATED))))
    if not found:
        return ""
    rows = [
        [
            f"{one.code.name}, {one.code.cell.dataset}",
            one.noise,
            one.changes,
            papers(one.code),
            _ours(one.code),
            _ours(one.text),
        ]
        for one in found
    ]
    remarks = {f"- {one.code.name}, {one.noise}: {remark}" for one in found if (remark := one.code.cell.remark)}
    shown = folded("The cells with the values of both", table(HEAD, rows), *sorted(remarks))
    return "\n\n".join([" ".join(describe_profiles(found, code)), shown])


def _ours(result: CellResult) -> str:
    return "<br>".join(filter(None, (marked(result), result.classes)))
