"""docs/zoo.md and its plots, from records/zoo.jsonl."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any

from results import ROOT, _lines, _where
from zoo_charts import calibration, cost, gains, noise_regret

sys.path.append(str(ROOT / "benchmarks"))

from zoo_report import ACCURACY, CANDIDATES, Zoo, report

__all__ = ["PLOTS", "zoo_tables"]

RECORD = "zoo.jsonl"
PLAIN_TRAINING = ("ce", "logistic")
"""What a gain is over: the first of them that was measured"""


@functools.cache
def measured() -> Zoo:
    return Zoo(_lines(RECORD))


def zoo_tables() -> str:
    """Where and how much was measured, and all tables, a level of headings lower than the page's own."""
    lines = [line for line in _lines(RECORD) if "error" not in line]
    return f"{extent(lines)}\n\n{report(_lines(RECORD)).rstrip()}"


def extent(lines: list[dict[str, Any]]) -> str:
    seeds, rows = sorted({line["seed"] for line in lines}), sorted({line["train"] for line in lines})
    sets, cells = {line["set"] for line in lines}, {(line["set"], line["noise"], line["seed"]) for line in lines}
    said = f"{len(sets)} data sets, {len(cells)} cells (a set, a noise, a seed), {len(lines)} trainings"
    return f"{said}; seeds {', '.join(map(str, seeds))}; {rows[0]:,} to {rows[-1]:,} training rows. {_where(lines)}"


def pictured() -> str:
    """The method that plots are about: fit, or before it has been measured the best baseline."""
    zoo = measured()
    there = [method for method in CANDIDATES if method in zoo.methods()]
    if there:
        return there[0]
    judges = [name for name in zoo.methods() if any("audit" in lines.get(name, {}) for lines in zoo.cells.values())]
    cells = list(zoo.where(*judges, noisy=True).values())
    return max(judges, key=lambda name: fmean(ACCURACY.of(lines[name]) for lines in cells))


def plain_training() -> str:
    return next(method for method in PLAIN_TRAINING if method in measured().methods())


PLOTS: dict[Path, Callable[[], str]] = {
    ROOT / "docs" / "zoo_gain.svg": lambda: gains(measured(), pictured(), plain_training()),
    ROOT / "docs" / "zoo_regret.svg": lambda: noise_regret(measured()),
    ROOT / "docs" / "zoo_cost.svg": lambda: cost(measured()),
    ROOT / "docs" / "zoo_calibration.svg": lambda: calibration(measured(), pictured()),
}
