"""docs/benchmarks/fit.md and its plots, from records/zoo.jsonl: fit beside what people do with wrong labels."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import fmean, median
from typing import Any

import figures
import numpy as np
from figures import Dot, Mark, Point
from results import FIGURES, ROOT, folded, read_lines, table, where_measured

sys.path.append(str(ROOT / "benchmarks"))

from zoo_report import (
    ACCURACY,
    BASELINES,
    CANDIDATES,
    CLEANLAB,
    Gain,
    Zoo,
    audit_table,
    best_baseline,
    estimates_table,
    gain,
    gains_table,
    methods_table,
    rate_of,
    regrets,
    targets_table,
    worse_table,
)

__all__ = ["CHARTS", "early_stopping_limits", "fit_answer", "fit_cost", "fit_tables", "measured", "readme_zoo"]

RECORD, CHOOSING, COST = "zoo.jsonl", "zoo_choosing.jsonl", "fit_cost_cpu.jsonl"
"""What is reported, the cells that the defaults of fit are chosen on, and what a fit costs"""
LOADED = 4
"""Of a machine of two cores that does other work too"""
NAMES = {
    "logistic": "logistic regression",
    "boosting": "gradient boosting",
    "forest-10": "random forest",
    "ce-early": "MLP, early stopping",
    "cleanlab-logistic": "cleanlab (logistic)",
    "cleanlab-boosting": "cleanlab (boosting)",
    "logistic-cv": "tuned logistic regression",
    "ce": "MLP, cross entropy",
    "jal-ce": "MLP, JAL-CE",
}
"""Of the baselines in plots"""
KINDS = {"given": ("given by people or rules", 1), "sym": ("symmetric", 0), "pair": ("pairs", 3), "two": ("two rates", 4)}
"""Of noise: their names and colours"""
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
CLEAN = ("no wrong labels", 5)
ANNOTATORS = {"weak": "rules", "mv": "majority vote", "single": "one annotator"}
"""Of the data sets whose names say who labelled them"""


@functools.cache
def measured() -> Zoo:
    return Zoo(read_lines(RECORD))


def best() -> tuple[str, Gain]:
    """The baseline that fit gains least over, and the gain."""
    found = {name: one for name in BASELINES if (one := gain(measured(), "fit", name, ACCURACY)) is not None}
    name = min(found, key=lambda one: found[one].mean)
    return name, found[name]


def fit_answer() -> str:
    """The first paragraph of the page."""
    zoo = measured()
    cells = zoo.where("fit", noisy=True)
    name, most = best()
    covered = [line["fit"] for line in cells.values()]
    hits = sum(low <= line["true_rate"] <= high for line in covered if (rate := rate_of(line)) for low, high in [rate[1:]])
    plain = gain(zoo, "fit", name, ACCURACY, noisy=False)
    said = "" if plain is None else f" On {plain.cells} cells without wrong labels the difference is {plain.text()}."
    return (
        f"**`fit` gains {most.text()} points of accuracy over {NAMES[name]}, the best single baseline, on {most.cells} noisy "
        f"cells of {most.sets} data sets.**{said} The 95 % interval of `fit` covers the true rate of wrong labels in {hits} "
        f"of {len(covered)} noisy cells."
    )


def early_stopping_limits() -> str:
    """Where a robust loss is not needed: an MLP on few rows."""
    found = gain(measured(), "ce-early", "jal-ce", ACCURACY)
    if found is None:
        return ""
    best, plain = best_baseline(measured(), "ce-early", ACCURACY, ("logistic-cv",)), gain(measured(), "jal-ce", "ce", ACCURACY)
    rest = "" if plain is None else f" JAL-CE gains {plain.text()} points over cross entropy at its last epoch."
    also = "" if best is None else f" Tuned logistic regression gains {-best[1].mean:+.1f} over early stopping."
    return (
        f"On {found.sets} small data sets of embeddings and tables, an MLP with cross entropy that is stopped early by its "
        f"loss on *noisy* held-out labels gains {found.text()} points over the same MLP trained with JAL-CE for all its "
        f"epochs ({found.cells} noisy cells).{rest}{also} So on features, with 1,000 to 2,000 rows, early stopping is enough; "
        "[fit](fit.md) gains more."
    )


def readme_zoo() -> str:
    """What the second plot of the README shows, in words."""
    over = [best_baseline(measured(), "fit", ACCURACY, of) for of in (("logistic-cv",), CLEANLAB)]
    said = [
        f"{one.text()} points over {NAMES[method]} ({one.cells} settings of noise on {one.sets} data sets)"
        for method, one in filter(None, over)
    ]
    return (
        "![Points of accuracy that fit gains over other methods, with 95 % intervals](docs/figures/fit_baselines.svg)\n\n"
        "On text, images and tables with wrong labels `fit` gains\n" + " and\n".join(said) + ":\n"
        "[methods and limits](docs/benchmarks/fit.md), [records](records/zoo.jsonl)."
    )


def fit_tables() -> str:
    """Every table behind a fold, and where and how much was measured."""
    zoo, lines, choosing = measured(), read_lines(RECORD), read_lines(CHOOSING)
    before = Zoo(line for line in choosing if line["method"] in BASELINES)
    about = "The defaults of `fit` are chosen on half of the data sets, with other seeds than above. The baselines there:"
    parts = [folded("All methods", methods_table(zoo)), folded("Wrong labels that are found", audit_table(zoo))]
    for name in (name for name in CANDIDATES if name in zoo.methods()):
        code = f"<code>{name}</code>"
        parts += [
            folded(f"Gains of {code} over each baseline", gains_table(zoo, name)),
            *([folded(f"Gains of {code} by data set and noise", gain_table())] if name == "fit" else []),
            folded(f"Targets that were set for {code} beforehand, and what was measured", targets_table(zoo, name)),
            folded(f"Cells in which {code} is worse than doing nothing about wrong labels", worse_table(zoo, name)),
            folded(f"Estimates of {code} against the clean test rows", estimates_table(zoo, name)),
        ]
    if zoo.failed:
        rows = [[line[key] for key in ("method", "set", "noise", "seed", "error")] for line in zoo.failed]
        parts.append(folded("Failed", table(["method", "set", "noise", "seed", "error"], rows)))
    said = f"{about} {extent(choosing)}"
    parts.append(folded("The cells for choosing the defaults", said, methods_table(before), audit_table(before)))
    return "\n\n".join([*parts, extent(lines)])


def extent(lines: list[dict[str, Any]]) -> str:
    """How much was measured and where."""
    lines = [line for line in lines if "error" not in line]
    seeds, rows = sorted({line["seed"] for line in lines}), sorted({line["train"] for line in lines})
    sets, cells = {line["set"] for line in lines}, {(line["set"], line["noise"], line["seed"]) for line in lines}
    said = f"{len(sets)} data sets, {len(cells)} cells (a set, a noise, a seed), {len(lines)} trainings"
    named = f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"
    return f"{said}; {named}; {rows[0]:,} to {rows[-1]:,} training rows. {where_measured(lines)}"


def fit_cost() -> str:
    """What a fit takes of time and memory, by the size of the data; the last measurement of each size on a quiet machine."""
    lines = sorted((line for line in read_lines(COST) if line["load"] < LOADED), key=lambda line: line["rows"])
    found = {(line["size"], line["quick"]): line for line in lines}
    rows = []
    for (size, quick), one in found.items():
        if not quick:
            cells = [f"{one['seconds']:.0f}", f"{one['cpu_seconds']:.0f}", f"{one['gigabytes']:.1f} GB"]
            short = found.get((size, True))
            shape = f"{one['rows']:,} x {one['columns']}, {one['classes']}"
            rows.append([shape, *cells, "" if short is None else f"{short['seconds']:.1f}"])
    head = ["rows x columns, classes", "seconds on two cores", "CPU seconds", "memory", "seconds with `--quick`"]
    return table(head, rows).rstrip()


# ---- plots


def baselines() -> str:
    """How much more accurate fit is than each baseline."""
    found = [(NAMES[name], one) for name in NAMES if (one := gain(measured(), "fit", name, ACCURACY)) is not None]
    rows = [Dot(name, one.mean, one.low, one.high) for name, one in sorted(found, key=lambda pair: -pair[1].mean)]
    title = "Accuracy that fit gains over other methods, noisy labels"
    return figures.intervals(title, rows, across="points on clean test rows; mean, 95 % interval over data sets")


def by_cell() -> dict[tuple[str, str], list[float]]:
    """By data set and noise: how much better fit is than the best single baseline, with each seed; sets by their mean."""
    over, _ = best()
    cells: dict[tuple[str, str], list[float]] = {}
    for (name, noise, *_), lines in measured().where("fit", over).items():
        cells.setdefault((name, noise), []).append(ACCURACY.of(lines["fit"]) - ACCURACY.of(lines[over]))
    of_set: dict[str, list[float]] = {}
    for (name, _), values in cells.items():
        of_set.setdefault(name, []).append(fmean(values))
    return dict(sorted(cells.items(), key=lambda item: (-fmean(of_set[item[0][0]]), item[0])))


def by_set() -> str:
    """The gain by data set and noise, means over the seeds."""
    rows: dict[str, list[Mark]] = {}
    for (name, noise), values in by_cell().items():
        rows.setdefault(set_name(name), []).append(mark(f"{set_name(name)}, {noise}", noise, fmean(values)))
    title = f"Accuracy of fit minus {NAMES[best()[0]]}"
    return figures.rows_of_marks(
        title, [*rows.items()], [*KINDS.values(), CLEAN], across="points on clean test rows", zero=True
    )


def gain_table() -> str:
    rows = [[set_name(name), noise, len(values), f"{fmean(values):+.1f}"] for (name, noise), values in by_cell().items()]
    return table(["data set", "noise", "seeds", f"points over {NAMES[best()[0]]}"], rows)


def set_name(name: str) -> str:
    words, _, kind = name.removeprefix("tab_").partition("_")
    return f"{words}, {ANNOTATORS[kind]}" if kind else words


def mark(name: str, noise: str, value: float) -> Mark:
    return Mark(value, kind_of(noise), f"{name}: {value:+.1f}")


def kind_of(noise: str) -> int:
    """The place among the kinds, that of clean labels the last."""
    kind = noise.partition(":")[0]
    return [*KINDS].index(kind) if kind in KINDS else len(KINDS)


def regret() -> str:
    """By method, how far it is below the best of a cell: median, quartiles, and 5 to 95 % of the noisy cells."""
    found = {method: list(cells.values()) for method, cells in regrets(measured(), ACCURACY).items() if cells}
    rows = [
        (
            NAMES.get(name, name),
            np.quantile(values, (0.05, 0.25, 0.5, 0.75, 0.95)).tolist(),
            fmean(values),
            1 if name in CANDIDATES else 0,
        )
        for name, values in sorted(found.items(), key=lambda pair: fmean(pair[1]))
    ]
    count = len(next(iter(found.values()), []))
    title = f"Points below the best baseline of a cell, {count} noisy cells"
    return figures.boxes(title, rows, across="box: quartiles; line: 5 to 95 %; number: mean")


def cost() -> str:
    """Mean accuracy on noisy cells against the median seconds of the processor."""
    zoo = measured()
    methods = zoo.widely_run()
    shared = list(zoo.where(*methods, noisy=True).values())
    points = [
        Point(
            max(0.01, median(lines[name]["cpu_seconds"] for lines in shared)),
            fmean(ACCURACY.of(lines[name]) for lines in shared),
            name,
            int(name in CANDIDATES),
            label=NAMES.get(name, name),
        )
        for name in methods
    ]
    title = f"Mean accuracy and cost, {len(shared)} noisy cells"
    kinds = [("baseline", 0), ("noiseproof fit", 1)]
    across, up = "CPU seconds, median", "accuracy on clean test rows, %"
    return figures.scatter(title, points, kinds, across=across, up=up, reference=None, log=True, height=240)


def estimates(title: str, up: str, of: Callable[[dict[str, Any]], tuple[float, tuple[float, ...]] | None]) -> str:
    """What fit estimates without clean labels, upwards with its interval, against the truth."""
    points = []
    for (name, noise, seed, _), lines in measured().where("fit").items():
        if (found := of(lines["fit"])) is not None:
            truth, (value, low, high) = 100 * found[0], (100 * one for one in found[1])
            points.append(Point(truth, value, f"{name}, {noise}, seed {seed}: {value:.1f}", kind_of(noise), low, high))
    return figures.scatter(title, points, [*KINDS.values(), CLEAN], across="the truth, %", up=up)


def estimated_rate() -> str:
    def of(line: dict[str, Any]) -> tuple[float, tuple[float, ...]] | None:
        rate = rate_of(line)
        return None if rate is None or None in rate else (line["true_rate"], tuple(float(one or 0) for one in rate))

    return estimates("Estimated rate of wrong labels", "as estimated by fit, with 95 % interval, %", of)


def estimated_accuracy() -> str:
    def of(line: dict[str, Any]) -> tuple[float, tuple[float, ...]] | None:
        found = line.get("estimates", {}).get("accuracy")
        return None if found is None or None in found else (line["accuracy"]["accuracy"], tuple(found))

    return estimates("Estimated accuracy on correct labels", "as estimated by fit, with 95 % interval, %", of)


CHARTS: dict[Path, Callable[[], str]] = {
    FIGURES / "fit_baselines.svg": baselines,
    FIGURES / "fit_gain.svg": by_set,
    FIGURES / "fit_regret.svg": regret,
    FIGURES / "fit_cost.svg": cost,
    FIGURES / "fit_rate.svg": estimated_rate,
    FIGURES / "fit_accuracy.svg": estimated_accuracy,
}
