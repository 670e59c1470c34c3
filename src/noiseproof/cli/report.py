"""``noiseproof report``: runs and records as one HTML file, and the paper's figures."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from noiseproof.cli.output import console, fail

__all__ = ["report"]

Runs = Annotated[list[Path], typer.Argument(metavar="RUNS...", help="Folders of runs, and .jsonl files of records.")]
Out = Annotated[Path, typer.Option(help="The HTML file.")]
Figures = Annotated[Path | None, typer.Option(metavar="DIR", help="Also draw the paper's figures there, as SVG and PNG.")]
Tsne = Annotated[
    list[Path] | None,
    typer.Option(metavar="RUN", help="A run's folder: its features by t-SNE; repeatable."),
]
Data = Annotated[str | None, typer.Option(metavar="PLACE", help="Folder of data sets, for --tsne.")]
Precision = Annotated[str, typer.Option(help="Only runs in this precision count for the tables.")]


def report(
    runs: Runs,
    out: Out = Path("report.html"),
    figures: Figures = None,
    tsne: Tsne = None,
    data: Data = None,
    precision: Precision = "bf16",
) -> None:
    """Show runs in one HTML file that needs neither a network nor scripts: those of the paper's recipes beside its numbers,
    those on data of your own beside each other.

    --figures draws what the runs allow and names the commands for the rest. Example: noiseproof report runs --figures figures
    """
    from noiseproof.cli.embedding import embedding_of
    from noiseproof.io.files import write_whole
    from noiseproof.paper import cells
    from noiseproof.paper.drawing import draw_figures
    from noiseproof.paper.groups import groups_of, read_runs
    from noiseproof.paper.measured import join
    from noiseproof.paper.page import page
    from noiseproof.report import merge
    from noiseproof.report.words import counted

    try:
        records = merge(read_runs(runs).records)
        embeddings = [embedding_of(folder, data) for folder in tsne or []]
        text = page(
            records,
            made=time.strftime("%Y-%m-%d"),
            sources=[str(place) for place in runs],
            precision=precision,
            embeddings=embeddings,
        )
        write_whole(out, lambda path: path.write_text(text, encoding="utf-8"))
        console.print(
            f"{counted(len(records), 'run', 'runs')}, {len(text.encode())} bytes in {escape(str(out))}",
            highlight=False,
            soft_wrap=True,
        )
        if figures is not None:
            groups = groups_of(records, join(cells(), records, precision=precision).results, precision)
            drawn = draw_figures(groups, figures, precision, embeddings)
            console.print(f"{len(drawn.files)} files in {escape(str(figures))}", highlight=False, soft_wrap=True)
            for command in dict.fromkeys(command for _, command in drawn.missing):
                names = ", ".join(name for name, other in drawn.missing if other == command)
                console.print(f"[dim]{names} needs[/] {escape(command)}", highlight=False, soft_wrap=True)
    except ImportError as error:
        fail(f"{error}; pip install '.[lab]' in noiseproof's repository brings it")
    except (ValueError, TypeError, OSError) as error:
        fail(error)
