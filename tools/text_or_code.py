"""The section of docs/results.md on the values on which the paper's text and its code differ, from the records."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from noiseproof.paper import PROFILES
from noiseproof.paper.agreement import CellResult, join
from noiseproof.paper.answer import describe_profiles, text_or_code, text_results
from noiseproof.paper.plan import chosen_cells
from noiseproof.paper.tables import marked, papers
from noiseproof.report import read_records

__all__ = ["where_they_differ"]

HEAD = ("loss", "noise", "code → text", "paper", "ours, the code's values", "ours, the text's values")


def where_they_differ(files: Sequence[Path]) -> str:
    """Each cell that is measured with both, and what that shows; nothing where there is none."""
    records = read_records(*files)
    code = join(chosen_cells(datasets=["cifar10", "cifar100"]), records).results
    found = text_or_code(code, text_results(code, records))
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
    again = " ".join(f"--records records/{file.name}" for file in files)
    return "\n".join(
        [
            "\n## Where text and code differ\n",
            " ".join(describe_profiles(found, code)) + "\n",
            "".join("| " + " | ".join(line) + " |\n" for line in [HEAD, ["---"] * len(HEAD), *rows]),
            *(f"{remark}\n" for remark in sorted(remarks)),
            "Marks and (n) as above. [Differences](explanation/differences.md) has the sources; `noiseproof reproduce "
            f"--profile {PROFILES[1]} {again}` prints all tables with the text's values.",
        ]
    )


def _ours(result: CellResult) -> str:
    return "<br>".join(filter(None, (marked(result), result.classes)))
