"""Statistics of losses trained with the same seeds: which is best, by how much, and which are indistinguishable.

A seed gives every loss the same label noise, initial weights and order of examples, so differences are taken within seeds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean, stdev
from typing import Literal

import numpy as np

ALPHA = 0.05
"""All intervals hold with 95 %, all alarms are false in 5 %."""
Interval = tuple[float, float]
Basis = Literal["bootstrap", "t"]
MIN_SEEDS = 3
"""Seeds from which an interval is given: of two, it is wider than the scale"""
MIN_BOOTSTRAP_SEEDS = 6
"""Seeds from which a bootstrap can reach 95 %: all of fewer lie on one side of the truth too often (2 * 0.5^n > 0.05)."""
BOOTSTRAP_DRAWS = 10_000


def t_quantile(tails: float, df: float) -> float:
    """The t with ``P(|T| >= t) = tails``.

    >>> round(t_quantile(0.05, 4), 3)
    2.776
    """
    from scipy.stats import t as student  # takes half a second to import

    return float(student.isf(tails / 2, df))


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
class PairedMean:
    """The mean of differences within seeds, with Student's interval at 95 % from three seeds on."""

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


def paired_mean(differences: Sequence[float]) -> PairedMean:
    """Of at least one difference.

    >>> paired_mean([1.0, 2.0, 3.0]).text
    '+2.00 [-0.48, +4.48]'
    """
    n, mean = len(differences), fmean(differences)
    if n < MIN_SEEDS:
        return PairedMean(mean, None, n)
    half = t_quantile(ALPHA, n - 1) * stdev(differences) / n**0.5
    return PairedMean(mean, (mean - half, mean + half), n)


@dataclass(frozen=True)
class RankedCompetitor:
    """One loss (with its regularisation) and its difference to the best one."""

    name: str
    sample: Sample
    difference: float
    """Mean over the seeds that both have, minus the best one's: 0 for the best itself"""
    interval: Interval | None
    """Of the difference, at 95 %; None for the best, and where fewer than three seeds are shared"""
    basis: Basis | None
    """t for fewer than six seeds, where the bootstrap is too narrow"""


@dataclass(frozen=True)
class PairedRanking:
    """Competitors from best to worst. Two of them share a group if and only if their paired interval includes 0."""

    competitors: tuple[RankedCompetitor, ...]
    groups: tuple[tuple[str, ...], ...]


def rank_paired(accuracies: Mapping[str, Mapping[int, float]], generator: np.random.Generator) -> PairedRanking:
    """Rank by mean accuracy, and group what the paired intervals do not separate.

    Every pair has a 95 % interval of its mean difference over the seeds that both have: Student's t below six seeds, the
    bootstrap from six on. The groups are the compact letter display (Piepho 2004) of the pairs whose interval includes 0.
    Neither intervals nor groups are corrected for the number of pairs: of equal losses, 5 % of the pairs are separated.

    Args:
        accuracies: By name and seed.
        generator: Draws the bootstrap.

    Returns:
        The ranking and its groups.

    Example:
        >>> runs = {"ce": {1: 60.0, 2: 61.0, 3: 59.5}, "gce": {1: 70.0, 2: 70.9, 3: 69.6}, "mae": {1: 70.1, 2: 71.0, 3: 69.4}}
        >>> rank_paired(runs, np.random.default_rng(0)).groups
        (('gce', 'mae'), ('ce',))
    """
    samples = {name: sample for name, values in accuracies.items() if (sample := Sample.of(list(values.values())))}
    order = sorted(samples, key=lambda name: -samples[name].mean)
    # Those with the best first: what is printed of them does not depend on how many others there are.
    pairs = sorted((i, j) for j in range(len(order)) for i in range(j))
    found = {(i, j): _difference(accuracies[order[j]], accuracies[order[i]], generator) for i, j in pairs}
    differences = [(0.0, None, None), *(found[0, j] for j in range(1, len(order)))]
    competitors = (RankedCompetitor(name, samples[name], *facts) for name, facts in zip(order, differences, strict=False))
    separated = {pair for pair, (_, interval, _) in found.items() if interval and not interval[0] <= 0 <= interval[1]}
    return PairedRanking(tuple(competitors), _groups(order, separated))


def _difference(
    one: Mapping[int, float], two: Mapping[int, float], generator: np.random.Generator
) -> tuple[float, Interval | None, Basis | None]:
    """The mean of one minus two over the seeds that both have, its interval, and what the interval rests on."""
    differences = [one[seed] - two[seed] for seed in two if seed in one]
    n = len(differences)
    if not n:
        return float("nan"), None, None
    found = paired_mean(differences)
    if n < MIN_BOOTSTRAP_SEEDS:
        return found.value, found.interval, "t" if found.interval else None
    # The plain percentiles are too narrow for few seeds; these levels make them as wide as Student's t (Hesterberg 2015).
    level = NormalDist().cdf(-((n / (n - 1)) ** 0.5) * t_quantile(ALPHA, n - 1))
    means = np.asarray(differences)[generator.integers(n, size=(BOOTSTRAP_DRAWS, n))].mean(axis=1)
    low, high = np.quantile(means, [level, 1 - level])
    return found.value, (float(low), float(high)), "bootstrap"


def _groups(order: list[str], separated: set[tuple[int, int]]) -> tuple[tuple[str, ...], ...]:
    """The largest sets without a separated pair (Piepho 2004: split at each pair, drop what is contained)."""
    groups = {frozenset(range(len(order)))}
    for pair in sorted(separated):
        split = {group - {k} for group in groups if group >= set(pair) for k in pair}
        groups = {group for group in groups if not group >= set(pair)} | split
        groups = {group for group in groups if not any(group < other for other in groups)}
    return tuple(tuple(order[k] for k in group) for group in sorted(map(sorted, groups)) if group)
