"""docs/benchmarks/class_imbalance.md: the recall of a minority class, from records/rare_cpu.jsonl."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any

import figures
from results import FIGURES, folded, read_lines, table, where_measured

__all__ = ["CHARTS", "imbalance_answer", "imbalance_tables"]

RECORD = "rare_cpu.jsonl"


def imbalance_answer() -> str:
    """The first paragraph of the page: how often each loss loses the minority class."""
    lines = read_lines(RECORD)
    said = []
    for data in dict.fromkeys(one["data"] for one in lines):
        of = [one for one in lines if one["data"] == data and one["way"] == "default"]
        lost = {
            loss: sum(one["rare_accuracy"] == 0 for one in of if one["loss"] == loss)
            for loss in dict.fromkeys(one["loss"] for one in of)
        }
        runs = sum(one["loss"] == "ce" for one in of)
        named = [f"{loss.upper()} in {count}" for loss, count in lost.items()]
        said.append(f"With {data}, so many of {runs} runs never predict the minority class: {', '.join(named)}.")
    started = [one for one in lines if one["way"] != "default"]
    kept = sum(one["rare_accuracy"] > 0 for one in started)
    return (
        "**Under class imbalance robust losses may never predict the minority class; cross entropy predicts a part of it.** "
        f"{' '.join(said)} After ten epochs of cross entropy as a warm start, GCE and JAL-CE predict it in {kept} of "
        f"{len(started)} runs."
    )


def imbalance_tables() -> str:
    """The share of a minority class's test examples that is predicted right, and how often none is."""
    lines = read_lines(RECORD)
    parts = []
    for (data, noise), mine in _settings(lines):
        ratios = sorted({one["ratio"] for one in mine})
        rows = [[name, *(_cell(mine, loss, way, at) for at in ratios)] for (loss, way), name in _ways(mine)]
        parts.append(folded(_named(data, noise), table([_named(data, noise), *(f"{ratio:.0%}" for ratio in ratios)], rows)))
    seeds = sorted({one["seed"] for one in lines})
    about = (
        f"Seeds {seeds[0]} to {seeds[-1]}. The tables have the recall of the minority class in % and, in brackets, the "
        "accuracy on "
        f"all test examples, which are balanced. `benchmarks/rare_classes.py`; {where_measured(lines)}"
    )
    return "\n\n".join([*parts, about])


def recalls(data: str) -> str:
    """The recall of the minority class by loss and size, without noise and with it."""
    rows: list[tuple[str, list[float | None]]] = []
    lines = [one for one in read_lines(RECORD) if one["data"] == data]
    ratios = sorted({one["ratio"] for one in lines})
    for (_, noise), mine in _settings(lines):
        rows.append(("no noise" if noise == "none" else noise.replace(":", " "), []))
        for (loss, way), name in _ways(mine):
            found = [[one for one in mine if (one["loss"], one["way"], one["ratio"]) == (loss, way, at)] for at in ratios]
            rows.append((name, [100 * fmean(one["rare_accuracy"] for one in runs) if runs else None for runs in found]))
    across = "size of the minority class relative to another"
    return figures.heat_map(f"Recall of the minority class, {data}, %", rows, [f"{at:.0%}" for at in ratios], across=across)


CHARTS: dict[Path, Callable[[], str]] = {
    FIGURES / "imbalance_two.svg": lambda: recalls("two classes"),
    FIGURES / "imbalance_ten.svg": lambda: recalls("ten classes"),
}


def _settings(lines: list[dict[str, Any]]) -> list[tuple[tuple[str, str], list[dict[str, Any]]]]:
    keys = dict.fromkeys((one["data"], one["noise"]) for one in lines)
    return [(key, [one for one in lines if (one["data"], one["noise"]) == key]) for key in keys]


def _ways(lines: list[dict[str, Any]]) -> list[tuple[tuple[str, str], str]]:
    keys = dict.fromkeys((one["loss"], one["way"]) for one in lines)
    return [((loss, way), loss.upper() if way == "default" else f"{loss.upper()}, warm start") for loss, way in keys]


def _named(data: str, noise: str) -> str:
    return f"{data}, {'no noise' if noise == 'none' else noise}"


def _cell(lines: list[dict[str, Any]], loss: str, way: str, ratio: float) -> str:
    mine = [one for one in lines if (one["loss"], one["way"], one["ratio"]) == (loss, way, ratio)]
    if not mine:
        return ""
    rare, of_all = (100 * fmean(one[name] for one in mine) for name in ("rare_accuracy", "test_accuracy"))
    lost = sum(one["rare_accuracy"] == 0 for one in mine)
    return f"{rare:.0f} ({of_all:.0f})" + (f", lost in {lost} of {len(mine)}" if lost else "")
