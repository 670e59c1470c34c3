"""``noiseproof report``: runs and records as one HTML file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from noiseproof.cli.output import console, errors_reported

Runs = Annotated[list[Path], typer.Argument(metavar="RUNS...", help="Folders of runs, and .jsonl files of records.")]
Out = Annotated[Path, typer.Option(help="The HTML file.")]
Figures = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Also draw the accuracy by epoch, and --tsne, there as SVG and PNG.")
]
Tsne = Annotated[
    list[Path] | None,
    typer.Option(metavar="RUN", help="A run's folder: its features by t-SNE; repeatable."),
]
Data = Annotated[str | None, typer.Option(metavar="PLACE", help="Folder of data sets, for --tsne.")]
Precision = Annotated[str | None, typer.Option(hidden=True, help="Only for the paper's tables: noiseproof reproduce.")]


def report(
    runs: Runs,
    out: Out = Path("report.html"),
    figures: Figures = None,
    tsne: Tsne = None,
    data: Data = None,
    precision: Precision = None,
) -> None:
    """Show runs in one HTML file that needs neither a network nor scripts: test accuracies compared, curves and records.

    Example: noiseproof report runs --figures figures
    """
    with errors_reported():
        from noiseproof.report import report_runs
        from noiseproof.report.groups import counted

        if precision is not None:
            raise ValueError("--precision chooses runs for the paper's tables: noiseproof reproduce --precision does that")
        found = report_runs(*runs, features_of=tsne or (), data=data)
        found.save(out)
        size = len(found.html.encode())
        _print(f"{counted(len(found.records), 'run', 'runs')}, {size} bytes in {out}")
        if figures is not None:
            _print(f"{len(found.draw(figures))} files in {figures}")
        _print_paper_command(found.records, runs)


def _print(line: str) -> None:
    console.print(escape(line), highlight=False, soft_wrap=True)


def _print_paper_command(records: list[dict[str, object]], runs: list[Path]) -> None:
    """How runs of the paper's recipes are compared with its numbers."""
    from noiseproof.paper.measured import count_published

    if count := count_published(records):
        files = " ".join(f"--records {place}" for place in runs if not place.is_dir()) or f"--out {runs[0]}"
        _print(f"{count} of them repeat the paper's numbers: noiseproof reproduce {files} --page paper.html compares them")
