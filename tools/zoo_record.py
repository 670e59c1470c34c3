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

from zoo_report import ACCURACY, BASELINES, CANDIDATES, Zoo, audit_table, methods_table, report

__all__ = ["PLOTS", "zoo_tables"]

RECORD, CHOOSING = "zoo.jsonl", "zoo_choosing.jsonl"
"""What is reported, and the cells that the defaults of fit are chosen on"""
PLAIN_TRAINING = ("ce", "logistic")
"""What a gain is over: the first of them that was measured"""


@functools.cache
def measured() -> Zoo:
    return Zoo(_lines(RECORD))


def zoo_tables() -> str:
    """Where and how much was measured, and all tables; then of the baselines on the cells for choosing."""
    lines, choosing = _lines(RECORD), _lines(CHOOSING)
    baselines = Zoo(line for line in choosing if line["method"] in BASELINES)
    parts = [extent(lines), report(lines), "## The cells for choosing\n"]
    about = "The defaults of `fit` are chosen on half of the data sets, with other seeds than above. The baselines there:"
    parts += [f"{about} {extent(choosing)}\n"]
    parts += [methods_table(baselines), audit_table(baselines)]
    return "\n".join(parts).rstrip()


def extent(lines: list[dict[str, Any]]) -> str:
    """How much was measured and where."""
    lines = [line for line in lines if "error" not in line]
    seeds, rows = sorted({line["seed"] for line in lines}), sorted({line["train"] for line in lines})
    sets, cells = {line["set"] for line in lines}, {(line["set"], line["noise"], line["seed"]) for line in lines}
    said = f"{len(sets)} data sets, {len(cells)} cells (a set, a noise, a seed), {len(lines)} trainings"
    named = f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"
    return f"{said}; {named}; {rows[0]:,} to {rows[-1]:,} training rows. {_where(lines)}\n"


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
