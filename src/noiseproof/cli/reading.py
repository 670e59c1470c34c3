"""How a table is read: the options that the verbs share, and what was understood of its columns."""

from __future__ import annotations

import time
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
