"""The lists of docs/explanation/differences.md: values on which the paper's text and its code differ or that it omits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from noiseproof.paper import Difference, differences, list_recipes, recipe

__all__ = ["difference_lists"]

DIGITS = "digits"  # which the paper has not


def difference_lists() -> str:
    """Markdown: what they differ in, and what only the code says. Lists, because a table of this is too wide for a phone."""
    found = _found()
    return "\n".join(
        [
            "## The text says one thing, the code does another\n",
            *(
                _line(one, where, f"text {_value(one.text)}, code {_value(one.code)}")
                for one, where in found
                if not _silent(one, where)
            ),
            "\n## The text says nothing\n",
            "Both profiles take the code's value.\n",
            *(_line(one, where, f"code {_value(one.code)}") for one, where in found if _silent(one, where)),
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


def _silent(one: Difference, where: Mapping[str, list[str]]) -> bool:
    """Whether the text's profile takes the code's value too; where the text leaves a step out, so does its profile."""
    dataset, losses = next(iter(where.items()))
    facts = recipe(f"{dataset}/{losses[0]}", profile="paper-text").as_dict()
    options = {f"loss.{name}": value for name, value in facts["loss_options"].items()}
    return one.text is None and {**facts, **options}[one.field] == one.code


def _line(one: Difference, where: Mapping[str, list[str]], values: str) -> str:
    of = {dataset: [name for name in list_recipes() if name.startswith(f"{dataset}/")] for dataset in where}
    everywhere = all(len(losses) == len(of[dataset]) for dataset, losses in where.items())
    losses = sorted({loss for named in where.values() for loss in named})
    whom = f"{', '.join(where)}; {'all losses' if everywhere else ', '.join(losses)}"
    return f"- **`{one.field}`** ({whom}): {values}. {one.source[0].upper()}{one.source[1:]}."


def _value(value: Any) -> str:
    if isinstance(value, float):
        value = f"{value:.4g}"
    return "none" if value is None else f"`{value}`"
