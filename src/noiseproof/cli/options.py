"""What the verbs share: options that say how a table is read, its columns as printed, and what the TAB key offers."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from noiseproof.io.console import LINE_SECONDS, Console, import_local_modules

if TYPE_CHECKING:
    from noiseproof.data import Table

KINDS = "number, category, boolean, date, text, image, embedding or drop"
Label = Annotated[
    str | None,
    typer.Option("--label", "--label-column", metavar="COLUMN", help="Read the labels from this column of a table."),
]
Columns = Annotated[
    str | None,
    typer.Option(
        metavar="NAME=KIND,...", help=f"Read columns of a table as these kinds, instead of the inferred ones: {KINDS}."
    ),
]
Test = Annotated[str | None, typer.Option(metavar="FILE", help="Test on this other table with the same columns.")]
SplitColumn = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="Split the rows by this column of a table, which contains train or test.")
]
DropUnlabelled = Annotated[bool, typer.Option("--drop-unlabelled", help="Leave out rows of a table that have no label.")]
Encoder = Annotated[
    str | None,
    typer.Option(metavar="MODEL", help="Embed texts or images by a pretrained model: its name or folder, or module:function."),
]
MAX_LINES = 40
"""Lines that are printed of a table's columns"""
BAR_WIDTH = 40


def reading_from(
    label: str | None = None,
    columns: str | None = None,
    test: str | None = None,
    split_column: str | None = None,
    drop_unlabelled: bool = False,
    encoder: str | None = None,
) -> dict[str, Any]:
    """The options that were given, as :func:`noiseproof.data.open_dataset` takes them."""
    from noiseproof.data.columns import parse_kinds
    from noiseproof.data.embeddings import report_progress

    if encoder is not None:
        import_local_modules(encoder)
        report_progress(EmbeddingProgress())
    kinds = None if columns is None else parse_kinds(columns)
    given: dict[str, Any] = {"label": label, "columns": kinds, "test": test, "split_column": split_column}
    given |= {"drop_unlabelled": True if drop_unlabelled else None, "encoder": encoder}
    return {name: value for name, value in given.items() if value is not None}


class EmbeddingProgress:
    """Shows on stderr how many texts or images are embedded: a bar on a terminal, else a line from time to time."""

    def __init__(self) -> None:
        self.printed = time.monotonic()

    def __call__(self, done: int, of: int) -> None:
        shown = Console(stderr=True)
        text = f"embedding {done:,} of {of:,}"
        if shown.is_terminal:
            bar = "\N{BOX DRAWINGS HEAVY HORIZONTAL}" * (BAR_WIDTH * done // of)
            shown.print(f"{bar:{BAR_WIDTH}} {text}", end="\r" if done < of else "\n", highlight=False)
        elif time.monotonic() - self.printed >= LINE_SECONDS:
            self.printed = time.monotonic()
            shown.print(text, highlight=False)


def print_columns(table: Table | None, classes: tuple[str, ...], shown: Console | None) -> None:
    """What was understood of each column, a line for each."""
    if table is None or shown is None:
        return
    for line in table.described(classes, MAX_LINES):
        shown.print(f"  {line}", markup=False, soft_wrap=True)


def losses(incomplete: str) -> list[str]:
    from noiseproof.losses.facts import list_facts

    return _starting(incomplete, (facts.name for facts in list_facts()))


def several_losses(incomplete: str) -> list[str]:
    """Names with commas between: the last one is completed."""
    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in losses(last)]


def recipes(incomplete: str) -> list[str]:
    """DATASET/LOSS, or a loss alone."""
    from noiseproof.paper import list_recipes

    return losses(incomplete) + _starting(incomplete, list_recipes())


def noises(incomplete: str) -> list[str]:
    """A kind with a rate to change; once the kind is typed, the usual rates."""
    from noiseproof.noise.instance import INSTANCE
    from noiseproof.noise.matrix import MATRIX_NOISES

    kinds = [*MATRIX_NOISES, INSTANCE]
    rates = (0.2, 0.4, 0.6, 0.8) if ":" in incomplete else (0.4,)
    return _starting(incomplete, (f"{kind}:{rate}" for kind in kinds for rate in rates))


def datasets(incomplete: str) -> list[str]:
    from noiseproof.data.registry import all_datasets

    return _starting(incomplete, (name for name, known in all_datasets().items() if known.read))


def downloads(incomplete: str) -> list[str]:
    """What 'noiseproof data fetch' downloads."""
    from noiseproof.data.registry import all_datasets

    return _starting(incomplete, (name for name, known in all_datasets().items() if known.fetch))


def models(incomplete: str) -> list[str]:
    from noiseproof.models import list_models

    return _starting(incomplete, list_models())


def runs(incomplete: str) -> list[str]:
    """The folders of runs, in the folder typed so far or in ``runs``."""
    from noiseproof.train.record import RECORD

    folder = Path(incomplete.rpartition("/")[0] or "runs")
    found = sorted(str(record.parent) for record in folder.glob(f"*/{RECORD}"))
    return [name for name in found if name.startswith(incomplete)]


def _starting(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete.lower())]
