"""Given labels as a mixture over true ones: ``P(given j | x) = sum_k q_k(x) T[k, j]``.

``q = softmax(sum_v w_v log p_v + b)`` recalibrates one or several predictions ``p_v`` of the label (views), and ``T`` is the
transition matrix, with a few labels added to every entry so that none is 0. Both are found by maximum likelihood with
expectation-maximisation: the posterior of the true label, ``q_k T[k, given]`` normalised, gives T in closed form, b by a step
of iterative scaling and every w by one of Newton's method.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Mixture", "fit_mixture", "log_view"]

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]
FLOOR = 1e-6  # a prediction of 0 would rule a class out for good
ADDED, ADDED_SHARE = 1.0, 0.1
"""Labels that are added to each entry of T: one, but in all at most this share of the labels there are"""
ITERATIONS = 500
CONVERGED = 1e-9  # change of the log-likelihood, of its size
LARGEST_WEIGHT = 20.0


@dataclass(frozen=True)
class Mixture:
    """A fitted model."""

    weights: Floats
    """One for each view"""
    bias: Floats
    transition: Floats
    log_likelihood: float

    def predicted(self, views: Sequence[Floats]) -> Floats:
        """q ``[N, K]``, the recalibrated prediction of the true label."""
        return _softmax(_scores(views, self.weights, self.bias))

    def posterior(self, views: Sequence[Floats], given: Labels) -> Floats:
        """The probabilities ``[N, K]`` of the true label, now that the given one is known."""
        joint = self.predicted(views) * self.transition[:, given].T
        return np.asarray(joint / joint.sum(1, keepdims=True))


def log_view(probabilities: Floats) -> Floats:
    """Predictions as the mixture reads them."""
    return np.asarray(np.log(np.maximum(probabilities, FLOOR)))


def fit_mixture(
    views: Sequence[Floats],
    given: Labels,
    *,
    transition: Floats | None = None,
    start: Mixture | None = None,
    iterations: int = ITERATIONS,
) -> Mixture:
    """Fit the model to logarithms of predictions, each ``[N, K]``, and the given labels.

    A ``transition`` matrix is held, and only the predictions recalibrated. ``start`` is a fit to go on from.
    """
    rows, classes = views[0].shape
    added = min(ADDED, ADDED_SHARE * rows / classes**2)
    weights = np.ones(len(views)) if start is None else start.weights.copy()
    bias = np.zeros(classes) if start is None else start.bias.copy()
    held = transition
    if transition is None:
        transition = _counted(_softmax(views[0]), given, added) if start is None else start.transition
    before = -np.inf
    for _ in range(iterations):
        joint = _softmax(_scores(views, weights, bias)) * transition[:, given].T
        total = joint.sum(1, keepdims=True)
        value = float(np.log(total).sum() + (0.0 if held is not None else added * np.log(transition).sum()))
        if value - before <= CONVERGED * abs(value):
            break
        before = value
        posterior = joint / total
        if held is None:
            transition = _counted(posterior, given, added)
        _recalibrate(views, weights, bias, posterior)
    return Mixture(weights, bias, transition, value)


def _recalibrate(views: Sequence[Floats], weights: Floats, bias: Floats, posterior: Floats) -> None:
    """One step of the weights and the bias towards predictions that equal the posterior on average; changes them in place."""
    expected = _softmax(_scores(views, weights, bias)).sum(0)
    bias += np.log((posterior.sum(0) + FLOOR) / (expected + FLOOR))
    bias -= bias.mean()
    for place, view in enumerate(views):
        q = _softmax(_scores(views, weights, bias))
        slope = ((posterior - q) * view).sum()
        mean = (q * view).sum(1, keepdims=True)
        curvature = (q * (view - mean) ** 2).sum() + FLOOR
        most = 0.5 * weights[place] + 0.05  # longer steps may overshoot, since the curvature changes
        weights[place] = np.clip(weights[place] + np.clip(slope / curvature, -most, most), 0.0, LARGEST_WEIGHT)


def _counted(posterior: Floats, given: Labels, added: float) -> Floats:
    """T from the posteriors of the true labels."""
    classes = posterior.shape[1]
    counts = np.zeros((classes, classes))
    np.add.at(counts, given, posterior)
    counts = counts.T + added
    return np.asarray(counts / counts.sum(1, keepdims=True))


def _scores(views: Sequence[Floats], weights: Floats, bias: Floats) -> Floats:
    total = views[0] * weights[0]
    for view, weight in zip(views[1:], weights[1:], strict=True):
        total += view * weight
    total += bias
    return np.asarray(total)


def _softmax(scores: Floats) -> Floats:
    powers = np.exp(scores - scores.max(1, keepdims=True))
    return np.asarray(powers / powers.sum(1, keepdims=True))
