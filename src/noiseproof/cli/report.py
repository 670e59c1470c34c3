"""``noiseproof report``: runs and records as one HTML file."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Annotated

import typer

from noiseproof.io.console import errors_reported, say

Runs = Annotated[
    list[Path], typer.Argument(metavar="RUNS...", help="Report these runs: folders of runs, and .jsonl files of records.")
]
Out = Annotated[Path, typer.Option(help="Write the report into this HTML file.")]


def report(
    runs: Runs,
    out: Out = Path("report.html"),
) -> None:
    """Write one offline HTML page about runs: test accuracies on the same seeds, learning curves and records.

    Example: noiseproof report runs --out report.html
    """
    with errors_reported():
        from noiseproof.report import report_runs
        from noiseproof.report.page import counted

        found = report_runs(*runs)
        found.save(out)
        size = len(found.html.encode())
        say(f"{counted(len(found.records), 'run', 'runs')}, {size} bytes in {out}")
        if importlib.util.find_spec("noiseproof.paper") is not None:
            _print_paper_command(found.records, runs)


def _print_paper_command(records: list[dict[str, object]], runs: list[Path]) -> None:
    """How runs of the paper's recipes are compared with its numbers."""
    from noiseproof.paper.agreement import count_published

    if count := count_published(records):
        files = " ".join(f"--records {place}" for place in runs if not place.is_dir()) or f"--out {runs[0]}"
        say(f"{count} of them repeat the paper's numbers: noiseproof reproduce {files} --page paper.html compares them")
