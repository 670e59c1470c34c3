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

__all__ = ["Mixture", "View", "expected_counts", "fit_mixture", "log_view"]

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]
View = NDArray[np.floating]
FLOOR = 1e-6  # a prediction of 0 would rule a class out for good
ADDED, ADDED_SHARE = 1.0, 0.1
"""Labels that are added to each entry of T: one, but in all at most this share of the labels there are"""
ITERATIONS, WORK = 500, 2**30
"""Most iterations, and most numbers that they all together compute, for at least ``FEWEST`` of them"""
FEWEST = 30
CONVERGED = 1e-9  # change of the log-likelihood, of its size
LARGEST_WEIGHT = 20.0
SINGLE = 2**24
"""Numbers in a view from which on it is in single precision; the fit is in double precision in any case"""


@dataclass(frozen=True)
class Mixture:
    """A fitted model."""

    weights: Floats
    """One for each view"""
    bias: Floats
    transition: Floats
    log_likelihood: float

    def predicted(self, views: Sequence[View]) -> Floats:
        """q ``[N, K]``, the recalibrated prediction of the true label."""
        return _softmax(_scores(views, self.weights, self.bias))

    def posterior(self, views: Sequence[View], given: Labels) -> Floats:
        """The probabilities ``[N, K]`` of the true label, now that the given one is known."""
        joint = self.predicted(views)
        joint *= np.ascontiguousarray(self.transition.T)[given]
        joint /= joint.sum(1, keepdims=True)
        return joint


def log_view(probabilities: NDArray[np.floating]) -> View:
    """Predictions as the mixture reads them, in single precision where they are many."""
    single = probabilities.size > SINGLE
    floored = np.maximum(probabilities, FLOOR, dtype=np.float32 if single else np.float64)
    return np.asarray(np.log(floored, out=floored))


def fit_mixture(
    views: Sequence[View],
    given: Labels,
    *,
    transition: Floats | None = None,
    start: Mixture | None = None,
    iterations: int = ITERATIONS,
    least: Floats | float = 0.0,
) -> Mixture:
    """Fit the model to logarithms of predictions, each ``[N, K]``, and the given labels.

    A ``transition`` matrix is held, and only the predictions recalibrated, with weights of at ``least`` so much. ``start`` is a
    fit to go on from.
    """
    rows, classes = views[0].shape
    order = np.argsort(given, kind="stable")  # the rows of a label together: they are summed in one go
    logs: list[Floats] = [np.asarray(view[order], np.float64) for view in views]
    given = given[order]
    added = min(ADDED, ADDED_SHARE * rows / classes**2)
    weights = np.ones(len(logs)) if start is None else start.weights.copy()
    bias = np.zeros(classes) if start is None else start.bias.copy()
    held = transition
    if transition is None:
        transition = _counted(_softmax(logs[0].copy()), given, added) if start is None else start.transition
    lows = np.broadcast_to(least, weights.shape)
    before = -np.inf
    for _ in range(min(iterations, max(FEWEST, WORK // logs[0].size))):
        joint = _softmax(_scores(logs, weights, bias))
        expected = joint.sum(0)
        joint *= np.ascontiguousarray(transition.T)[given]
        total = joint.sum(1, keepdims=True)
        value = float(np.log(total).sum() + (0.0 if held is not None else added * np.log(transition).sum()))
        if value - before <= CONVERGED * abs(value):
            break
        before = value
        posterior = np.divide(joint, total, out=joint)
        if held is None:
            transition = _counted(posterior, given, added)
        _recalibrate(logs, weights, bias, posterior, expected, lows)
    return Mixture(weights, bias, transition, value)


def expected_counts(posterior: NDArray[np.floating], given: Labels) -> Floats:
    """How many examples of class i are labelled j, ``[K, K]``, as the probabilities ``[N, K]`` of the true class have it."""
    order = np.argsort(given, kind="stable")
    there, first = np.unique(given[order], return_index=True)
    counts = np.zeros((posterior.shape[1],) * 2)
    for label, rows in zip(there, np.split(order, first[1:]), strict=True):
        counts[:, label] = posterior[rows].sum(0, dtype=np.float64)
    return counts


def _recalibrate(
    views: Sequence[View], weights: Floats, bias: Floats, posterior: Floats, expected: Floats, least: Floats
) -> None:
    """One step of the weights and the bias towards predictions that equal the posterior on average; changes them in place.

    ``expected`` are the predictions' sums ``[K]`` at present.
    """
    bias += np.log((posterior.sum(0) + FLOOR) / (expected + FLOOR))
    bias -= bias.mean()
    for place, view in enumerate(views):
        q = _softmax(_scores(views, weights, bias))
        mean = np.einsum("nk,nk->n", q, view)
        slope = np.einsum("nk,nk->", posterior, view) - mean.sum()
        q *= view
        curvature = np.einsum("nk,nk->", q, view) - (mean**2).sum() + FLOOR
        most = 0.5 * weights[place] + 0.05  # longer steps may overshoot, since the curvature changes
        weights[place] = np.clip(weights[place] + np.clip(slope / curvature, -most, most), least[place], LARGEST_WEIGHT)


def _counted(posterior: Floats, given: Labels, added: float) -> Floats:
    """T from the posteriors of the true labels, whose rows are in the order of the given ones."""
    classes = posterior.shape[1]
    there, first = np.unique(given, return_index=True)
    counts = np.full((classes, classes), added)
    counts[:, there] += np.add.reduceat(posterior, first, axis=0).T
    return np.asarray(counts / counts.sum(1, keepdims=True))


def _scores(views: Sequence[View], weights: Floats, bias: Floats) -> Floats:
    total = np.multiply(views[0], weights[0], dtype=np.float64)
    for view, weight in zip(views[1:], weights[1:], strict=True):
        total += view * weight
    total += bias
    return np.asarray(total)


def _softmax(scores: Floats) -> Floats:
    """Of each row, in place."""
    scores -= scores.max(1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(1, keepdims=True)
    return scores
