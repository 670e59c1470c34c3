"""How labels are drawn: an explicit generator and the three rules.

The same seed gives the same labels on every machine and with every version of NumPy: the random numbers are SplitMix64's,
written out here, and everything that depends on them is integer arithmetic and sorting.

One key is drawn per example, in the order of the examples, and classes are ranked by the smallest key among their examples.
So nothing depends on how the classes are numbered: renaming them renames the noisy labels, and does no more.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

__all__ = ["RULES", "Rule", "corrupt", "exact_counts", "random_keys", "random_uniform"]

Rule = Literal["exact", "draws", "published"]
RULES: tuple[Rule, ...] = ("exact", "draws", "published")
Labels = NDArray[np.int64]


def random_keys(seed: int, count: int, stream: int = 0) -> NDArray[np.uint64]:
    """``count`` random 64-bit numbers (SplitMix64: Steele, Lea and Flood, OOPSLA 2014); streams of a seed are independent.

    >>> [hex(key) for key in random_keys(0, 2)]
    ['0xe220a8397b1dcdaf', '0x6e789e6aa1b965f4']
    """
    with np.errstate(over="ignore"):
        start = np.uint64(seed % 2**64) + np.uint64(stream) * np.uint64(0xD1342543DE82EF95)
        z = start + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def random_uniform(seed: int, count: int, stream: int = 0) -> NDArray[np.float64]:
    """``count`` random numbers in [0, 1), multiples of 2**-53."""
    return (random_keys(seed, count, stream) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def corrupt(labels: Labels, matrix: NDArray[np.float64], seed: int, rule: Rule) -> Labels:
    """The labels after the noise: label i becomes j with probability ``matrix[i, j]``, by one of the rules."""
    keys = random_keys(seed, len(labels))
    order = np.argsort(keys, kind="stable")
    ranking = _ranking(labels[order], len(matrix))
    noisy = labels.copy()
    for clean in np.unique(labels):
        members = order[labels[order] == clean]
        if rule == "draws":
            noisy[members] = ranking[_draw(matrix[clean][ranking], random_uniform(seed, len(labels), 1)[members])]
            continue
        counts = _counts(matrix[clean][ranking], len(members), int(np.flatnonzero(ranking == clean)[0]), rule)
        noisy[members] = np.repeat(ranking, counts)
    return noisy


def exact_counts(probabilities: NDArray[np.float64], total: int) -> Labels:
    """``total`` items shared out by largest remainder: each count is a share rounded up or down, and they add up.

    >>> exact_counts(np.array([0.5, 0.3, 0.2]), 7).tolist()
    [4, 2, 1]
    """
    shares = probabilities * total
    # A share that is whole in exact arithmetic may be a rounding error below: 0.2 * 15 / 3 must not lose an item for it.
    whole = np.floor(shares + 1e-9)
    remainders = np.round(shares - whole, 9)
    missing = total - int(whole.sum())
    up = np.argsort(-remainders, kind="stable")[:missing]
    counts: Labels = whole.astype(np.int64)
    counts[up] += 1
    return counts


def _counts(probabilities: NDArray[np.float64], total: int, own: int, rule: Rule) -> Labels:
    if rule == "exact":
        return exact_counts(probabilities, total)
    # The published code moves int(T[i, j] * n) labels and leaves the rest, so the realised rate is below the asked one.
    counts: Labels = (probabilities * total).astype(np.int64)
    counts[own] = 0
    counts[own] = total - int(counts.sum())
    return counts


def _draw(probabilities: NDArray[np.float64], uniform: NDArray[np.float64]) -> Labels:
    edges = np.cumsum(probabilities)
    chosen: Labels = np.searchsorted(edges / edges[-1], uniform, side="right")
    return chosen


def _ranking(labels_by_key: Labels, classes: int) -> Labels:
    """Classes by the smallest key among their examples; those without an example last."""
    present, first = np.unique(labels_by_key, return_index=True)
    absent = np.setdiff1d(np.arange(classes), present)
    ranked: Any = np.concatenate([present[np.argsort(first)], absent])
    return ranked.astype(np.int64)  # type: ignore[no-any-return]
