"""Losses compared on the same seeds: which is best, by how much, and which cannot be told apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean, stdev
from typing import Literal

import numpy as np

from noiseproof.report.distributions import t_quantile, t_tails

__all__ = ["ALPHA", "DRAWS", "ENOUGH", "LEAST", "Comparison", "Contender", "Interval", "Mean", "Sample", "compare_paired"]
__all__ += ["holm", "mean_of"]

ALPHA = 0.05
"""All intervals hold with 95 %, all alarms are false in 5 %."""
Interval = tuple[float, float]

LEAST = 3
"""Seeds from which an interval is given: of two, it is wider than the scale"""
ENOUGH = 6
"""Seeds from which a bootstrap can reach 95 %: all of fewer lie on one side of the truth too often (2 * 0.5^n > 0.05)."""
DRAWS = 10_000


@dataclass(frozen=True)
class Sample:
    """Mean and deviation of n results; the deviation of one result is not known."""

    mean: float
    std: float | None
    n: int

    @staticmethod
    def of(values: Sequence[float]) -> Sample | None:
        if not values:
            return None
        return Sample(fmean(values), stdev(values) if len(values) > 1 else None, len(values))


@dataclass(frozen=True)
class Mean:
    """Of differences within seeds, with Student's interval at 95 % from three seeds on."""

    value: float
    interval: Interval | None
    n: int

    @property
    def text(self) -> str:
        """With its sign."""
        return f"{self.value:+.2f}" + ("" if self.interval is None else f" [{self.interval[0]:+.2f}, {self.interval[1]:+.2f}]")

    @property
    def may_be_zero(self) -> bool:
        return self.interval is None or self.interval[0] <= 0 <= self.interval[1]


def mean_of(differences: Sequence[float]) -> Mean:
    """Of at least one difference.

    >>> mean_of([1.0, 2.0, 3.0]).text
    '+2.00 [-0.48, +4.48]'
    """
    n, mean = len(differences), fmean(differences)
    if n < LEAST:
        return Mean(mean, None, n)
    half = t_quantile(ALPHA, n - 1) * stdev(differences) / n**0.5
    return Mean(mean, (mean - half, mean + half), n)


@dataclass(frozen=True)
class Contender:
    """One loss (with its decay) and its distance to the best."""

    name: str
    sample: Sample
    difference: float
    """Mean over the seeds that both have, minus the best one's: 0 for the best itself"""
    interval: Interval | None
    """Of the difference, at 95 %; None for the best, and where fewer than three seeds are shared"""
    basis: Literal["bootstrap", "t"] | None
    """t for fewer than six seeds, where the bootstrap is too narrow"""


@dataclass(frozen=True)
class Comparison:
    """From best to worst. Two contenders cannot be told apart if and only if they have a group in common."""

    contenders: tuple[Contender, ...]
    groups: tuple[tuple[str, ...], ...]


def holm(p_values: Sequence[float]) -> list[float]:
    """The p values corrected for their number: those below 0.05 hold a false one with at most 5 % (Holm 1979).

    >>> [round(p, 3) for p in holm([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    corrected, largest = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[i]))
        corrected[i] = largest
    return corrected


def compare_paired(accuracies: Mapping[str, Mapping[int, float]], generator: np.random.Generator) -> Comparison:
    """Rank by mean accuracy; ``accuracies`` are by name and seed.

    Two contenders are told apart by the paired t test on the seeds they share, corrected for all pairs (Holm): in at most 5 %
    of comparisons is any pair told apart that is the same.

    >>> runs = {"ce": {1: 60.0, 2: 61.0, 3: 59.5}, "jal-ce": {1: 70.1, 2: 71.0, 3: 69.4}, "gce": {1: 70.0, 2: 70.9, 3: 69.6}}
    >>> compare_paired(runs, np.random.default_rng(0)).groups
    (('jal-ce', 'gce'), ('ce',))
    """
    samples = {name: sample for name, values in accuracies.items() if (sample := Sample.of(list(values.values())))}
    order = sorted(samples, key=lambda name: -samples[name].mean)
    pairs = [(i, j) for j in range(len(order)) for i in range(j)]
    differences = {pair: _differences(*(accuracies[order[k]] for k in pair)) for pair in pairs}
    corrected = dict(zip(pairs, holm([_p_value(differences[pair]) for pair in pairs]), strict=True))
    contenders = []
    for i, name in enumerate(order):
        difference, interval, basis = _to_best([-d for d in differences[0, i]], generator) if i else (0.0, None, None)
        contenders.append(Contender(name, samples[name], difference, interval, basis))
    return Comparison(tuple(contenders), _groups(order, {pair for pair, p in corrected.items() if p < ALPHA}))


def _differences(one: Mapping[int, float], two: Mapping[int, float]) -> list[float]:
    return [one[seed] - two[seed] for seed in one if seed in two]


def _p_value(differences: Sequence[float]) -> float:
    if len(differences) < LEAST:
        return 1.0
    mean, error = fmean(differences), stdev(differences) / len(differences) ** 0.5
    return (1.0 if mean == 0 else 0.0) if error == 0 else t_tails(mean / error, len(differences) - 1)


def _to_best(
    differences: list[float], generator: np.random.Generator
) -> tuple[float, Interval | None, Literal["bootstrap", "t"] | None]:
    n = len(differences)
    if not n:
        return float("nan"), None, None
    found = mean_of(differences)
    if n < ENOUGH:
        return found.value, found.interval, "t" if found.interval else None
    # The plain percentiles are too narrow for few seeds; these levels make them as wide as Student's t (Hesterberg 2015).
    level = NormalDist().cdf(-((n / (n - 1)) ** 0.5) * t_quantile(ALPHA, n - 1))
    means = np.asarray(differences)[generator.integers(n, size=(DRAWS, n))].mean(axis=1)
    low, high = np.quantile(means, [level, 1 - level])
    return found.value, (float(low), float(high)), "bootstrap"


def _groups(order: list[str], apart: set[tuple[int, int]]) -> tuple[tuple[str, ...], ...]:
    """The largest sets in which nobody is told apart from anybody (Piepho 2004: split at each pair, drop what is contained)."""
    groups = {frozenset(range(len(order)))}
    for pair in sorted(apart):
        split = {group - {k} for group in groups if group >= set(pair) for k in pair}
        groups = {group for group in groups if not group >= set(pair)} | split
        groups = {group for group in groups if not any(group < other for other in groups)}
    return tuple(tuple(order[k] for k in group) for group in sorted(map(sorted, groups)) if group)
