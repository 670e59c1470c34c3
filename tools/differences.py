"""The table of docs/differences.md: every value on which the paper's text and its code differ, or which the text leaves out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from noiseproof.paper import Difference, differences, list_recipes

__all__ = ["difference_tables"]

DIGITS = "digits"  # which the paper has not


def difference_tables() -> str:
    """Markdown: a table for what they differ in, and one for what only the code says."""
    found = _found()
    differing = [_row(one, where) for one, where in found if one.text is not None]
    silent = [_row(one, where) for one, where in found if one.text is None]
    head = ["data", "losses", "what", "text", "code", "source"]
    return "\n".join(
        [
            "## The text says one thing, the code does another\n",
            _table(head, differing),
            "\n## The text says nothing\n",
            "Both profiles take the code's value.\n",
            _table([name for name in head if name != "text"], [[*row[:3], *row[4:]] for row in silent]),
        ]
    )


def _found() -> list[tuple[Difference, dict[str, list[str]]]]:
    """Each difference once, with the losses it is of by data set."""
    known: list[tuple[Difference, dict[str, list[str]]]] = []
    for name in list_recipes():
        dataset, _, loss = name.partition("/")
        for one in differences(dataset, loss) if dataset != DIGITS else ():
            where = next((where for other, where in known if other == one), None)
            if where is None:
                known.append((one, where := {}))
            where.setdefault(dataset, []).append(loss)
    return known


def _row(one: Difference, where: Mapping[str, list[str]]) -> list[str]:
    of = {dataset: [name for name in list_recipes() if name.startswith(f"{dataset}/")] for dataset in where}
    everywhere = all(len(losses) == len(of[dataset]) for dataset, losses in where.items())
    losses = sorted({loss for named in where.values() for loss in named})
    shown = "all" if everywhere else ", ".join(losses)
    return [", ".join(where), shown, f"`{one.field}`", _value(one.text), _value(one.code), one.source]


def _value(value: Any) -> str:
    if isinstance(value, float):
        value = f"{value:.4g}"
    return "none" if value is None else f"`{value}`"


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
