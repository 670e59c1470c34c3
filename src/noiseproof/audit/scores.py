"""What a prediction is worth on correct labels, estimated from the posteriors of the true labels instead of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from noiseproof.audit.result import percent
from noiseproof.audit.stacking import Floats, Labels

Probabilities = NDArray[np.float32]
BOOTSTRAP_SAMPLES = 100
MODEL_ERROR = 0.01
"""Standard deviation of what the model misses, added to that of sampling"""
MIN_LEFT = 0.1


class Estimate(NamedTuple):
    """A number with its 95 % interval.

    >>> print(Estimate(0.912, 0.884, 0.94))
    91.2 % (88.4 % to 94.0 %)
    """

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{percent(self.value)} ({percent(self.low)} to {percent(self.high)})"


class EstimatedScores(NamedTuple):
    """What a prediction is worth on correct labels, estimated without them."""

    accuracy: Estimate
    balanced_accuracy: Estimate
    auc: Estimate | None
    """Area under the ROC curve, of several classes the mean of one against the rest; None without probabilities"""


def estimate_scores(
    weightings: Sequence[Floats],
    posteriors: Probabilities,
    given: Labels,
    left: float,
    chosen: Labels,
    scores: NDArray[np.generic] | None,
    generator: np.random.Generator,
) -> EstimatedScores:
    """Scores as the mean over hypotheses by the first weights ``[H]``, from posteriors ``[H, n, K]`` of the true labels.

    The interval is 95 % of the hypotheses, by whichever weights, and the sampling error: the standard deviation of the score on
    the given labels over resampled rows, divided by ``left``, the share of a score's signal that label noise leaves.
    """
    rows, classes = posteriors[0].shape
    even = np.ones(rows)
    each = np.array([_scores(posterior, even, chosen, scores) for posterior in posteriors])
    as_given = np.eye(classes, dtype=np.float32)[given]
    samples = []
    for _ in range(BOOTSTRAP_SAMPLES):
        count = generator.multinomial(rows, np.full(rows, 1 / rows)).astype(np.float64)
        samples.append(_scores(as_given, count, chosen, scores))
    sampling = np.std(samples, axis=0) / max(left, MIN_LEFT)
    margin = 1.96 * np.sqrt(sampling**2 + MODEL_ERROR**2)
    found = []
    for score in range(each.shape[1]):
        low, high = central(each[:, score], weightings)
        mean = float(weightings[0] @ each[:, score])
        found.append(Estimate(mean, max(0.0, float(low - margin[score])), min(1.0, float(high + margin[score]))))
    return EstimatedScores(found[0], found[1], found[2] if scores is not None else None)


def central(values: Floats, weightings: Sequence[Floats]) -> tuple[float, float]:
    """The ends of what contains 95 % of the values ``[H]`` by each of several weights.

    >>> central(np.array([0.7, 0.8, 0.9]), [np.array([1.0, 0.0, 0.0]), np.array([0.0, 0.5, 0.5])])
    (0.7, 0.9)
    """
    order = np.argsort(values)
    ends = [np.searchsorted(np.cumsum(weights[order]), (0.025, 0.975)) for weights in weightings]
    low, high = np.minimum(np.transpose(ends), len(values) - 1)
    return float(values[order][low.min()]), float(values[order][high.max()])


def _scores(posterior: Probabilities, count: Floats, chosen: Labels, scores: NDArray[np.generic] | None) -> list[float]:
    """Expected accuracy, balanced accuracy and AUC under a posterior of the true labels; rows count so many times."""
    rows, classes = posterior.shape
    weighted = posterior * count[:, None]
    right = np.bincount(chosen, weights=weighted[np.arange(rows), chosen], minlength=classes)
    size = weighted.sum(0)
    present = size > 0.5
    found = [float(right.sum() / size.sum()), float((right[present] / size[present]).mean())]
    if scores is None:
        return [*found, 0.0]
    columns = [1] if classes == 2 else np.flatnonzero(present).tolist()
    return [*found, float(np.mean([_auc(np.asarray(scores)[:, k], weighted[:, k], count - weighted[:, k]) for k in columns]))]


def _auc(score: NDArray[np.generic], positive: Floats, negative: Floats) -> float:
    """The probability that a positive row has the higher score; ties count half."""
    _, place = np.unique(score, return_inverse=True)
    above = np.bincount(place, weights=positive)
    below = np.bincount(place, weights=negative)
    before = np.cumsum(below) - below / 2
    return float((above * before).sum() / max(above.sum() * below.sum(), 1e-12))
