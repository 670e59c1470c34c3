"""How a table is read: the options that the verbs share, and what was understood of its columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from noiseproof.cli.output import Console

if TYPE_CHECKING:
    from noiseproof.data import Table


KINDS = "number, category, boolean, date, text, embedding or drop"
Label = Annotated[
    str | None,
    typer.Option("--label", "--label-column", metavar="COLUMN", help="The column of a table that contains the labels."),
]
Columns = Annotated[
    str | None, typer.Option(metavar="NAME=KIND,...", help=f"What columns of a table are, where that is not seen: {KINDS}.")
]
Test = Annotated[str | None, typer.Option(metavar="FILE", help="Another table with the same columns, to test on.")]
SplitColumn = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="The column of a table that contains train or test for each row.")
]
DropUnlabelled = Annotated[bool, typer.Option("--drop-unlabelled", help="Leave out rows of a table that have no label.")]
MAX_LINES = 40
"""Lines that are printed of a table's columns"""


def reading_from(
    label: str | None = None,
    columns: str | None = None,
    test: str | None = None,
    split_column: str | None = None,
    drop_unlabelled: bool = False,
) -> dict[str, Any]:
    """The options that were given, as :func:`noiseproof.data.open_dataset` takes them."""
    from noiseproof.data.columns import parse_kinds

    kinds = None if columns is None else parse_kinds(columns)
    given: dict[str, Any] = {"label": label, "columns": kinds, "test": test, "split_column": split_column}
    given["drop_unlabelled"] = True if drop_unlabelled else None
    return {name: value for name, value in given.items() if value is not None}


def print_columns(table: Table | None, classes: tuple[str, ...], shown: Console | None) -> None:
    """What was understood of each column, a line for each."""
    if table is None or shown is None:
        return
    for line in table.described(classes, MAX_LINES):
        shown.print(f"  {line}", markup=False, highlight=False, soft_wrap=True)
