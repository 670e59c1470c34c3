"""How labels are drawn from a transition matrix: the three rules.

The same seed gives the same labels on every machine: beyond the random numbers there are only integers and sorting.

One key is drawn per example, in the order of the examples, and classes are ranked by the smallest key among their examples.
So nothing depends on how the classes are numbered: renaming them renames the noisy labels, and does no more. Only classes
without an example have no key, and are ranked last by their numbers.
"""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from noiseproof.keyed_random import random_keys, random_uniform

__all__ = ["RULES", "Rule", "corrupt", "exact_counts"]

Rule = Literal["exact", "draws", "published"]
RULES: tuple[Rule, ...] = ("exact", "draws", "published")
Labels = NDArray[np.int64]


def corrupt(labels: Labels, matrix: NDArray[np.float64], seed: int, rule: Rule) -> Labels:
    """The labels after the noise: label i becomes j with probability ``matrix[i, j]``, by one of the rules."""
    keys = random_keys(seed, len(labels))
    order = np.argsort(keys, kind="stable")
    ranking = _ranking(labels[order], len(matrix))
    noisy = labels.copy()
    uniform = random_uniform(seed, len(labels), 1) if rule == "draws" else None
    by_class = order[np.argsort(labels[order], kind="stable")]
    present, starts = np.unique(labels[by_class], return_index=True)
    # Of no labels, the split is one empty part.
    for clean, members in zip(present, np.split(by_class, starts[1:]), strict=False):
        if uniform is not None:
            noisy[members] = ranking[_draw(matrix[clean][ranking], uniform[members])]
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


def _counts(probabilities: NDArray[np.float64], total: int, clean: int, rule: Rule) -> Labels:
    whole = probabilities.sum()
    if abs(whole - 1) > 1e-9:  # as decimals in a file may; of a million labels that would be one too many
        probabilities = probabilities / whole
    if rule == "exact":
        return exact_counts(probabilities, total)
    # The published code moves int(T[i, j] * n) labels and leaves the rest, so the realised rate is below the asked one.
    counts: Labels = (probabilities * total).astype(np.int64)
    counts[clean] = 0
    counts[clean] = total - int(counts.sum())
    return counts


def _draw(probabilities: NDArray[np.float64], uniform: NDArray[np.float64]) -> Labels:
    edges = np.cumsum(probabilities)
    chosen: Labels = np.searchsorted(edges / edges[-1], uniform, side="right")
    return chosen


def _ranking(labels_by_key: Labels, classes: int) -> Labels:
    """Classes by the smallest key among their examples; those without an example last."""
    present, first = np.unique(labels_by_key, return_index=True)
    absent = np.setdiff1d(np.arange(classes), present)
    ranked: Labels = np.concatenate([present[np.argsort(first)], absent])
    return ranked
