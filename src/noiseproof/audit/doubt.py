"""What labels and predictions cannot tell: whether the doubts about an example are the networks' alone, or its labeller's too.

The mixture takes a label for a true class k that slipped to j with T[k, j], whatever the example. People err more where the
example is hard, and so do networks. If of the labels that did not slip a share s was drawn from q itself, by somebody as unsure
as the networks, then

    P(true k, given j | x) = q_k (T[k, j] + s T[j, j] (q_j - [k = j])),

and summed over k it is what it was: labels have the same likelihood for every s. Only s tells how many are wrong. A share s of
the belief in the given label goes to the prediction q: a label that was drawn from the doubts says nothing. P(right) is that of
the mixture times 1 - s (1 - q_given), so the rate is least for s = 0 and greatest for s = 1, and the two are close where the
predictions are sure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from noiseproof.audit.mixture import Labels, Mixture, View

__all__ = ["Rates", "blocks", "led_by_doubt", "repeated_to", "sharpened"]

BLOCK = 2**22  # numbers in a part of the posterior that is computed at once
COMPARED = 2**22  # numbers of a view that the predictions' confidence is measured on
SHARPEST, HALVINGS = 64.0, 20


class Rates(NamedTuple):
    """The share of wrong labels, by what is assumed."""

    least: float
    """If no label was led by doubt"""
    rate: float
    """If as many were as slipped, where they are counted"""
    most: float
    """If all that did not slip were"""
    disputed: float
    """The share of labels that are not what is predicted, less the least of wrong ones: the predictions' own errors"""


def repeated_to(counts: NDArray[np.int64]) -> int:
    """How many labels each class has at least once rare ones are repeated: half as many as the most frequent, or as the mean.

    >>> repeated_to(np.array([90, 10])), repeated_to(np.array([73, *[3] * 9])), repeated_to(np.array([20, 10]))
    (45, 10, 10)
    """
    return int(min(counts.max() / 2, counts.sum() / np.count_nonzero(counts)))


def sharpened(model: Mixture, views: Sequence[View], agreement: float) -> Mixture:
    """The model with predictions as sure, on average, as two networks agree; as it is if it is as sure.

    Networks that were trained apart, and are calibrated as one, differ from each other as often as from the truth (Jiang,
    Nagarajan, Baek and Kolter, ICLR 2022). A fit to the labels makes them less sure than that if labels are led by doubt.
    """
    step = -(-views[0].size // COMPARED)
    some = [view[::step] for view in views]

    def scaled(by: float) -> Mixture:
        return replace(model, weights=model.weights * by, bias=model.bias * by)

    def sure(by: float) -> bool:
        return float(scaled(by).predicted(some).max(1).mean()) >= agreement

    low, high = 1.0, SHARPEST
    if sure(low):
        return model
    for _ in range(HALVINGS):
        middle = (low * high) ** 0.5
        low, high = (low, middle) if sure(middle) else (middle, high)
    return scaled(high)


def led_by_doubt(
    model: Mixture, views: Sequence[View], posterior: NDArray[np.float32], given: Labels, *, counted: bool
) -> Rates:
    """The rates; if led labels are ``counted``, the posterior is changed, in place, to as many of them as slipped."""
    right, agreed = [0.0, 0.0], 0
    least = 1 - float(posterior[np.arange(len(given)), given].mean(dtype=np.float64))
    share = min(1.0, least / max(1 - least, 1e-9)) if counted else 0.0
    for part in blocks(len(given), posterior.shape[1]):
        q = model.predicted([view[part] for view in views])
        rows, mine = np.arange(len(q)), given[part]
        agreed += int((q.argmax(1) == mine).sum())
        belief = posterior[part][rows, mine].astype(np.float64)
        right[1] += float(belief @ q[rows, mine])
        if share:
            q[rows, mine] -= 1
            posterior[part] += (share * belief)[:, None] * q
        right[0] += float(posterior[part][rows, mine].sum(dtype=np.float64))
    rate, most = (1 - each / len(given) for each in right)
    return Rates(least, rate, max(rate, most), max(0.0, 1 - agreed / len(given) - least))


def blocks(rows: int, columns: int) -> Iterator[slice]:
    """All rows, so many at a time that memory holds what is computed from them."""
    step = max(1, BLOCK // columns)
    return (slice(start, start + step) for start in range(0, rows, step))
