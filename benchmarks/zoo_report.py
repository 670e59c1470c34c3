"""What the records of benchmarks/zoo.py say: gains with intervals, regret, lost classes, the audit, estimates, cost.

A cell is a set with a noise and a seed. Methods are compared on the cells that both have. Cells of one set are not independent,
so the 95 % intervals are of a bootstrap that draws sets, with all of their cells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import fmean, median
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from zoo import CHOSEN_BY_CV, recalls_of, unpacked
from zoo_methods import METHODS

__all__ = ["BASELINES", "CANDIDATES", "Zoo", "report"]

Line = dict[str, Any]
Place = tuple[str, str, int, int | None]
"""A cell: set, noise, seed, training rows at most"""
CANDIDATES = ("fit", "fit-quick")
BASELINES = tuple(method for method in METHODS if method not in CANDIDATES)
PLAIN = ("logistic", "boosting", "ce")
"""Doing nothing about wrong labels"""
CLEANLAB = ("cleanlab-logistic", "cleanlab-boosting")
DRAWS = 2000
NO_WORSE, ERRORS = 0.01, 2.0
"""A method is worse in a cell that is more than this below another, and more than so many standard errors"""
RULES_COMPARED = ("accuracy", "balanced_accuracy")


class Zoo:
    """The lines by cell and method; those of methods that failed are left out and counted."""

    def __init__(self, lines: Iterable[Line]) -> None:
        self.cells: dict[Place, dict[str, Line]] = {}
        self.failed: list[Line] = []
        for line in lines:
            if "error" in line:
                self.failed.append(line)
            else:
                self.cells.setdefault((line["set"], line["noise"], line["seed"], line["rows"]), {})[line["method"]] = line

    def methods(self) -> list[str]:
        """Those that have lines, in the order of the benchmark, candidates last."""
        there = {method for lines in self.cells.values() for method in lines}
        return [method for method in (*BASELINES, *CANDIDATES) if method in there]

    def widely_run(self, noisy: bool | None = True) -> list[str]:
        """The methods, without those that were run on less than half as many of the first candidate's cells as another."""
        methods = self.methods()
        shared = self.where(*[method for method in CANDIDATES if method in methods][:1], noisy=noisy).values()
        cells = {method: sum(method in lines for lines in shared) for method in methods}
        return [method for method in cells if 2 * cells[method] >= max(cells.values())]

    def where(self, *methods: str, noisy: bool | None = None) -> dict[Place, dict[str, Line]]:
        """The cells that all of these methods have, with or without wrong labels."""
        return {
            place: lines
            for place, lines in self.cells.items()
            if all(method in lines for method in methods) and noisy in (None, place[1] != "none")
        }


class Metric(NamedTuple):
    """How a baseline and a candidate are measured; a candidate knows which metric it predicts for."""

    title: str
    baseline: Callable[[Line], float]
    candidate: Callable[[Line], float]

    def of(self, line: Line) -> float:
        return 100 * (self.candidate if line["method"] in CANDIDATES else self.baseline)(line)


def by_rule(rule: str, metric: str) -> Callable[[Line], float]:
    return lambda line: float(line[rule][metric])


def better_rule(line: Line) -> float:
    return max(float(line[rule]["balanced_accuracy"]) for rule in RULES_COMPARED)


BALANCED = by_rule("balanced_accuracy", "balanced_accuracy")
ACCURACY = Metric("accuracy", by_rule("accuracy", "accuracy"), by_rule("accuracy", "accuracy"))
METRICS = (
    ACCURACY,
    Metric("balanced accuracy, baselines by argmax p", by_rule("accuracy", "balanced_accuracy"), BALANCED),
    Metric("balanced accuracy, baselines by argmax p / frequency", BALANCED, BALANCED),
    Metric("balanced accuracy, baselines by the better rule of each cell", better_rule, BALANCED),
)


class Gain(NamedTuple):
    """The mean difference over cells in points, its 95 % interval, and both means."""

    cells: int
    sets: int
    mean: float
    low: float
    high: float
    ours: float
    theirs: float

    def text(self) -> str:
        return f"{self.mean:+.1f} [{self.low:+.1f}, {self.high:+.1f}]"


def gain(zoo: Zoo, ours: str, theirs: str, metric: Metric, noisy: bool | None = True) -> Gain | None:
    """Of one method over another; None if they share no cell."""
    shared = zoo.where(ours, theirs, noisy=noisy)
    if not shared:
        return None
    pairs = [(metric.of(lines[ours]), metric.of(lines[theirs])) for lines in shared.values()]
    names = [place[0] for place in shared]
    differences = [mine - other for mine, other in pairs]
    low, high = bootstrapped(names, differences)
    mine, other = (fmean(values) for values in zip(*pairs, strict=True))
    return Gain(len(pairs), len({*names}), fmean(differences), low, high, mine, other)


def bootstrapped(groups: Sequence[str], values: Sequence[float]) -> tuple[float, float]:
    """The 95 % interval of the mean when whole groups are drawn with replacement."""
    names, index = np.unique(groups, return_inverse=True)
    sums, counts = np.bincount(index, values), np.bincount(index)
    drawn = np.random.default_rng(0).integers(0, len(names), (DRAWS, len(names)))
    means = sums[drawn].sum(1) / counts[drawn].sum(1)
    low, high = np.quantile(means, (0.025, 0.975)).tolist()
    return low, high


def best_baseline(zoo: Zoo, candidate: str, metric: Metric, among: Sequence[str] = BASELINES) -> tuple[str, Gain] | None:
    """The one that the candidate gains least over."""
    found = [(name, one) for name in among if (one := gain(zoo, candidate, name, metric)) is not None]
    return min(found, key=lambda pair: pair[1].mean, default=None)


# ---- regret, worse cells, lost classes


def regrets(zoo: Zoo, metric: Metric, noisy: bool | None = True) -> dict[str, dict[Place, float]]:
    """By method and cell, how far it is below the best of the baselines and itself, in cells that all these methods have.

    Methods are those of :meth:`Zoo.widely_run`.
    """
    methods = zoo.widely_run(noisy)
    found: dict[str, dict[Place, float]] = {method: {} for method in methods}
    for place, lines in zoo.where(*methods, noisy=noisy).items():
        best = max(metric.of(lines[method]) for method in methods if method not in CANDIDATES)
        for method in methods:
            found[method][place] = max(0.0, best - metric.of(lines[method]))
    return found


class Worse(NamedTuple):
    """A cell in which a method is worse than another."""

    place: Place
    than: str
    difference: float
    error: float


def worse_cells(zoo: Zoo, ours: str, theirs: str, balanced: bool) -> list[Worse]:
    """By the default rule in accuracy, or by the rule for balanced accuracy in it, against the other's plain rule."""
    found = []
    for place, lines in zoo.where(ours, theirs).items():
        rule = "balanced_accuracy" if balanced else "accuracy"
        difference, error = paired(lines[ours], rule, lines[theirs], "accuracy", balanced)
        if difference < -NO_WORSE and difference < -ERRORS * error:
            found.append(Worse(place, theirs, 100 * difference, 100 * error))
    return found


def paired(ours: Line, our_rule: str, theirs: Line, their_rule: str, balanced: bool) -> tuple[float, float]:
    """The difference on the same test rows and its standard error. A class with one test row has the largest variance."""
    counts = np.array(ours["test_counts"])
    total = int(counts.sum())
    signs = unpacked(ours[our_rule]["right"], total).astype(float) - unpacked(theirs[their_rule]["right"], total)
    if not balanced:
        return float(signs.mean()), float(signs.std() / total**0.5)
    parts = [part for part in np.split(signs, np.cumsum(counts)[:-1]) if len(part)]
    variance = sum((float(part.var()) if len(part) > 1 else 1.0) / len(part) for part in parts)
    return fmean(float(part.mean()) for part in parts), float(variance**0.5 / len(parts))


def lost_classes(zoo: Zoo, ours: str, theirs: str) -> tuple[int, int]:
    """Over all cells, classes that the other finds by its plain rule and we do not by the rule for balanced accuracy; and those
    that we find and the other does not."""
    lost = found = 0
    for lines in zoo.where(ours, theirs).values():
        mine, other = recalls_of(lines[ours], "balanced_accuracy"), recalls_of(lines[theirs], "accuracy")
        lost, found = lost + int(((mine == 0) & (other > 0)).sum()), found + int(((mine > 0) & (other == 0)).sum())
    return lost, found


def chosen_by_cv(lines: dict[str, Line]) -> Line | None:
    """Of a clean cell, what a person would take: the best of its kind in cross-validation."""
    there = [lines[name] for name in CHOSEN_BY_CV if name in lines and "cv_accuracy" in lines[name]]
    return (
        max(there, key=lambda line: float(line["cv_accuracy"]))
        if {"ce", "boosting"} <= {one["method"] for one in there}
        else None
    )


# ---- the audit and estimates


def rate_of(line: Line) -> tuple[float, float | None, float | None] | None:
    found = line.get("audit", {}).get("rate")
    return None if found is None else tuple(found)


def covers(interval: Sequence[float | None], truth: float) -> bool | None:
    """None if there is no interval."""
    _, low, high = interval
    return None if low is None or high is None else low <= truth <= high


def test_value(line: Line, metric: str) -> float | None:
    """What an estimate of a metric is about: the default rule on the clean test rows."""
    found = line["auc"] if metric == "auc" else line["accuracy"][metric]
    return None if found is None else float(found)


def estimate_errors(lines: Iterable[Line], metric: str) -> NDArray[np.float64]:
    """Rows of estimate minus truth in points, whether the interval covers (nan: none), and its width."""
    rows = []
    for line in lines:
        estimate, truth = line.get("estimates", {}).get(metric), test_value(line, metric)
        if estimate is not None and truth is not None:
            hit = covers(estimate, truth)
            width = np.nan if hit is None else 100 * (estimate[2] - estimate[1])
            rows.append((100 * (estimate[0] - truth), np.nan if hit is None else float(hit), width))
    return np.array(rows).reshape(-1, 3)


# ---- tables


def table(head: Sequence[Any], rows: Iterable[Sequence[Any]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(map(str, line)) + " |\n" for line in lines)


def number(values: Iterable[float | None], digits: int = 1, scale: float = 1.0) -> str:
    there = [scale * value for value in values if value is not None]
    return f"{fmean(there):.{digits}f}" if there else ""


def methods_table(zoo: Zoo) -> str:
    """Every method over its own cells."""
    regret = {metric.title: regrets(zoo, metric) for metric in (ACCURACY, METRICS[-1])}
    shared = len(next(iter(regret[ACCURACY.title].values()), {}))
    rows = []
    for method in zoo.methods():
        noisy, clean = ([lines[method] for lines in zoo.where(method, noisy=kind).values()] for kind in (True, False))
        rows.append(
            [
                method,
                len(noisy),
                number(map(ACCURACY.of, noisy)),
                *(number(map(metric.of, noisy)) for metric in METRICS[1:3]),
                number((line["accuracy"]["f1_macro"] for line in noisy), scale=100),
                number((line["auc"] for line in noisy), 3),
                *(number(found.get(method, {}).values(), 2) for found in regret.values()),
                sum(line["accuracy"]["lost"] for line in noisy),
                len(clean),
                number(map(ACCURACY.of, clean)),
                f"{median(line['cpu_seconds'] for line in (*noisy, *clean)):.1f}",
            ]
        )
    head = ["method", "noisy cells", "accuracy", "balanced, argmax p", "balanced, p / frequency", "macro F1", "AUC"]
    head += [f"regret ({shared} cells)", "regret, balanced", "classes lost", "clean cells", "accuracy, clean", "CPU seconds"]
    return table(head, rows)


def gains_table(zoo: Zoo, candidate: str) -> str:
    """Over every baseline, on the noisy cells that both have."""
    rows = []
    for name in BASELINES:
        found = [gain(zoo, candidate, name, metric) for metric in METRICS]
        if found[0] is not None:
            rows.append([name, found[0].cells, f"{found[0].theirs:.1f}", *(one.text() for one in found if one is not None)])
    head = [f"{candidate} over", "cells", "its accuracy", "accuracy", "balanced: argmax p", "p / frequency", "the better rule"]
    return table(head, rows)


def worse_table(zoo: Zoo, candidate: str) -> str:
    """Whether it is ever worse than doing nothing."""
    rows = []
    for name in PLAIN:
        both = [worse_cells(zoo, candidate, name, balanced) for balanced in (False, True)]
        rows.append([name, len(zoo.where(candidate, name)), *map(named_cells, both), *lost_classes(zoo, candidate, name)])
    head = ["against", "cells", "worse in accuracy", "worse in balanced accuracy"]
    return table([*head, f"classes that only it finds, not {candidate}", f"classes that only {candidate} finds"], rows)


def named_cells(worse: Sequence[Worse]) -> str:
    names = [f"{one.place[0]} {one.place[1]}, seed {one.place[2]}: {one.difference:+.1f}" for one in worse]
    return f"{len(worse)}" + (f" ({'; '.join(names)})" if names else "")


def audit_table(zoo: Zoo) -> str:
    """How well wrong labels are found, of those that judge labels."""
    judges = [name for name in zoo.methods() if any("audit" in lines.get(name, {}) for lines in zoo.cells.values())]
    rows = []
    for name in judges:
        noisy, clean = ([lines[name] for lines in zoo.where(name, noisy=kind).values()] for kind in (True, False))
        rates = [(line, rate) for line in noisy if (rate := rate_of(line)) is not None]
        hits = [hit for line, rate in rates if (hit := covers(rate, line["true_rate"])) is not None]
        widths = [100 * (high - low) for _, (_, low, high) in rates if low is not None and high is not None]
        zeros = [hit for line in clean if (rate := rate_of(line)) and (hit := covers(rate, 0.0)) is not None]
        rows.append(
            [
                name,
                len(noisy),
                *(number((line["audit"][key] for line in noisy), 3) for key in ("auc", "f1")),
                number((abs(rate[0] - line["true_rate"]) for line, rate in rates), scale=100),
                f"{sum(hits)} of {len(hits)}" if hits else "",
                f"{median(widths):.1f}" if widths else "",
                number((line["audit"]["flagged"] for line in clean), 2, 100),
                f"{sum(zeros)} of {len(zeros)}" if zeros else "",
            ]
        )
    head = [
        "method",
        "noisy cells",
        "AUC",
        "F1",
        "rate, off by",
        "covered",
        "median width",
        "clean: flagged, %",
        "clean: includes 0",
    ]
    return table(head, rows)


def estimates_table(zoo: Zoo, candidate: str) -> str:
    """Its own estimates of its performance on correct labels, against the clean test rows."""
    rows = []
    for title, noisy in (("noisy", True), ("clean", False)):
        lines = [cell[candidate] for cell in zoo.where(candidate, noisy=noisy).values()]
        for metric in ("accuracy", "balanced_accuracy", "auc"):
            found = estimate_errors(lines, metric)
            if len(found):
                hits = found[~np.isnan(found[:, 1])]
                covered = [f"{int(hits[:, 1].sum())} of {len(hits)}", f"{np.median(hits[:, 2]):.1f}"] if len(hits) else ["", ""]
                means = [f"{np.abs(found[:, 0]).mean():.1f}", f"{found[:, 0].mean():+.1f}"]
                rows.append([f"{metric.replace('_', ' ')}, {title}", len(found), *means, *covered])
    return table(["estimate of", "cells", "off by", "mean error", "covered", "median width"], rows) if rows else ""


def targets_table(zoo: Zoo, candidate: str) -> str:
    """What is wanted of it, and what was measured."""
    rows = [*gain_targets(zoo, candidate), *clean_targets(zoo, candidate), *audit_targets(zoo, candidate)]
    worse = {balanced: sum(len(worse_cells(zoo, candidate, name, balanced)) for name in PLAIN) for balanced in (False, True)}
    lost, found = map(sum, zip(*(lost_classes(zoo, candidate, name) for name in PLAIN), strict=True))
    rows.append(
        (
            "never worse than doing nothing: cells by accuracy, by balanced accuracy, classes lost (only fit finds)",
            f"{worse[False]}, {worse[True]}, {lost} ({found})",
        )
    )
    estimates = estimate_errors((lines[candidate] for lines in zoo.where(candidate).values()), "accuracy")
    if len(estimates):
        hits = estimates[:, 1][~np.isnan(estimates[:, 1])]
        said = f"{np.abs(estimates[:, 0]).mean():.1f}, {100 * hits.mean():.0f} %" if len(hits) else ""
        rows.append(("estimated accuracy: off by at most 2 on average, covered in 90 %", said))
    return table(["wanted", "measured"], rows)


def gain_targets(zoo: Zoo, candidate: str) -> list[tuple[str, str]]:
    rows = []
    for metric in (ACCURACY, METRICS[-1]):
        for title, among in (
            ("1.5 above the best single baseline", BASELINES),
            ("3 above cleanlab", CLEANLAB),
            ("6 above CE", ("ce",)),
            ("6 above JAL-CE", ("jal-ce",)),
        ):
            if (best := best_baseline(zoo, candidate, metric, among)) is not None:
                rows.append(
                    (
                        f"noisy, {metric.title}: {title}",
                        f"{best[1].text()} over {best[0]}, {best[1].cells} cells of {best[1].sets} sets",
                    )
                )
        if values := list(regrets(zoo, metric).get(candidate, {}).values()):
            rows.append((f"noisy, {metric.title}: mean regret at most 1", f"{fmean(values):.2f} in {len(values)} cells"))
    return rows


def clean_targets(zoo: Zoo, candidate: str) -> list[tuple[str, str]]:
    found = [
        ACCURACY.of(lines[candidate]) - ACCURACY.of(chosen)
        for lines in zoo.where(candidate, noisy=False).values()
        if (chosen := chosen_by_cv(lines)) is not None
    ]
    if not found:
        return []
    said = f"{fmean(found):+.2f} on average, {min(found):+.1f} at worst, {len(found)} cells"
    return [("clean: at most 0.3 below the best by cross-validation", said)]


def audit_targets(zoo: Zoo, candidate: str) -> list[tuple[str, str]]:
    rows = []
    for name in CLEANLAB:
        shared = zoo.where(candidate, name, noisy=True)
        pairs = {place: [lines[method]["audit"] for method in (candidate, name)] for place, lines in shared.items()}
        if not pairs:
            continue
        both = {key: [number((pair[i][key] for pair in pairs.values()), 3) for i in (0, 1)] for key in ("auc", "f1")}
        least, place = min((mine["auc"] - other["auc"], place) for place, (mine, other) in pairs.items())
        wanted = f"AUC and F1 of finding wrong labels at least those of {name}, {len(pairs)} cells"
        rows.append((wanted, ", ".join(map(" against ".join, both.values()))))
        rows.append((f"in no cell more than .02 AUC below {name}", f"{least:+.3f} at worst: {' '.join(map(str, place[:3]))}"))
    return rows


def report(lines: Iterable[Line]) -> str:
    """All tables as Markdown."""
    zoo = Zoo(lines)
    parts = ["## All methods\n", methods_table(zoo), "## Wrong labels that are found\n", audit_table(zoo)]
    for candidate in (name for name in CANDIDATES if name in zoo.methods()):
        parts += [f"## {candidate}: what is wanted of it\n", targets_table(zoo, candidate)]
        parts += [f"## {candidate}: gains\n", gains_table(zoo, candidate)]
        parts += [f"## {candidate}: worse than doing nothing\n", worse_table(zoo, candidate)]
        parts += [f"## {candidate}: its estimates\n", estimates_table(zoo, candidate)]
    if zoo.failed:
        rows = [[line["method"], line["set"], line["noise"], line["seed"], line["error"]] for line in zoo.failed]
        parts += ["## Failed\n", table(["method", "set", "noise", "seed", "error"], rows)]
    return "\n".join(parts)
