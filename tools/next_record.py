"""docs/how_to/choosing.md: where the printed commands and a network on soft labels lead, from records/next_commands.jsonl."""

from __future__ import annotations

from statistics import fmean
from typing import Any

from results import read_lines, table, where_measured

__all__ = ["next_table"]

RECORD = "next_commands.jsonl"
ON_SOFT_LABELS = "--labels audit/posterior.npz"
BELOW = 1.0
"""Points of accuracy below the rival that a command is to keep"""


def next_table() -> str:
    """Each data set: cross entropy with early stopping, what advise ends with, and the worst and best of all commands."""
    lines = read_lines(RECORD)
    rows, least = [], []
    for name in dict.fromkeys(one["set"] for one in lines):
        runs = [one for one in lines if one["set"] == name]
        early = fmean(one["early"]["accuracy"] for one in runs)
        means = [fmean(gains) for gains in _gains(runs).values()]
        least.append(min(means))
        counts = f"{runs[0]['rows']:,} rows, {len(runs[0]['counts'])} classes"
        first = fmean(_advised(one) - 100 * one["early"]["accuracy"] for one in runs)
        ends = [f"{value:+.1f}" for value in (first, min(means), max(means), *_on_soft_labels(runs))]
        rows.append([name, runs[0]["kind"], runs[0]["noise"], counts, str(len(runs)), f"{100 * early:.1f}", *ends])
    every = [gain for one in lines for gains in _gains([one]).values() for gain in gains]
    head = ["data", "an example of", "noise", "size", "seeds", "early stopping", "advise", "worst", "best", "soft labels"]
    said = (
        f"On {sum(value >= -BELOW for value in least)} of {len(rows)} data sets no printed command leads to a model more than "
        f"{BELOW:g} point below cross entropy with early stopping; the worst mean is {min(least):+.1f} points. The worst of "
        f"{len(every)} models gains {min(every):+.1f} points, and the mean gain is {fmean(every):+.1f} points. The table "
        "contains the accuracy of cross entropy with early stopping in %: the better of two networks, one with the default "
        "scaling and one with the columns as they are. The other columns contain the points gained over it: by the model that "
        "`advise` recommends, by the worst and the best of all models that the printed commands lead to, and by a network "
        "trained on the soft labels of an audit (means over seeds)."
    )
    return f"{said}\n\n{table(head, rows)}\n{where_measured(lines)}"


def _advised(one: dict[str, Any]) -> float:
    """The accuracy of the model that the first command of advise fits, in %."""
    return 100 * float(next(model["accuracy"] for model in one["models"] if len(model["commands"]) == 2))


def _on_soft_labels(runs: list[dict[str, Any]]) -> list[float]:
    """Points over cross entropy with early stopping of the network on the soft labels of an audit: printed, or trained also."""
    found = [
        100 * (model["accuracy"] - one["early"]["accuracy"])
        for one in runs
        for model in (*one["models"], *one.get("also", ()))
        if model["commands"][-1].endswith(ON_SOFT_LABELS)
    ]
    return [fmean(found)] if found else []


def _gains(runs: list[dict[str, Any]]) -> dict[tuple[str, ...], list[float]]:
    """By the commands that a model ends: points over cross entropy with early stopping on the same seed."""
    found: dict[tuple[str, ...], list[float]] = {}
    for one in runs:
        for model in one["models"]:
            found.setdefault(tuple(model["commands"]), []).append(100 * (model["accuracy"] - one["early"]["accuracy"]))
    return found
