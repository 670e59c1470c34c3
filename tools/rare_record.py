"""The table of docs/how_to/choosing.md on class imbalance, from records/rare_cpu.jsonl."""

from __future__ import annotations

from statistics import fmean
from typing import Any

from results import _lines, _table, _where

__all__ = ["rare_classes"]


def rare_classes() -> str:
    """The share of a minority class's test examples that is predicted right, and how often none is."""
    lines = _lines("rare_cpu.jsonl")
    parts = []
    for data, noise in dict.fromkeys((one["data"], one["noise"]) for one in lines):
        mine = [one for one in lines if (one["data"], one["noise"]) == (data, noise)]
        ratios = sorted({one["ratio"] for one in mine})
        rows = [
            [loss if way == "default" else f"{loss}, from cross entropy", *(_cell(mine, loss, way, at) for at in ratios)]
            for loss, way in dict.fromkeys((one["loss"], one["way"]) for one in mine)
        ]
        named = f"{data}, {'no noise' if noise == 'none' else noise}"
        parts.append(_table([named, *(f"{ratio:.0%}" for ratio in ratios)], rows))
    seeds = sorted({one["seed"] for one in lines})
    about = (
        f"Seeds {seeds[0]} to {seeds[-1]}. Accuracy in % on the minority class's test examples, and in "
        "brackets on all test examples, which are balanced; columns by its size relative to another class. "
        "`benchmarks/rare_classes.py`; "
    )
    return "\n".join([*parts, about + _where(lines)])


def _cell(lines: list[dict[str, Any]], loss: str, way: str, ratio: float) -> str:
    mine = [one for one in lines if (one["loss"], one["way"], one["ratio"]) == (loss, way, ratio)]
    if not mine:
        return ""
    rare, of_all = (100 * fmean(one[name] for one in mine) for name in ("rare_accuracy", "test_accuracy"))
    lost = sum(one["rare_accuracy"] == 0 for one in mine)
    return f"{rare:.0f} ({of_all:.0f})" + (f", lost in {lost} of {len(mine)}" if lost else "")
