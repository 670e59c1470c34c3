"""Given labels as a mixture over true labels: ``P(given j | x) = sum_k q_k(x) T[k, j]``.

A view is the logarithm of one prediction of the label, ``[N, K]``: class probabilities of a model, or the labels of the nearest
neighbours. ``q = softmax(sum_v w_v log p_v + b)`` recalibrates one or several views, and ``T`` is the transition matrix, with a
few labels added to every entry so that none is 0. Both are found by maximum likelihood with expectation-maximisation: the
posterior of the true label, ``q_k T[k, given]`` normalised, gives T in closed form, b by a step of iterative scaling and every
w by one of Newton's method.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch

__all__ = [
    "Mixture", "View", "expected_counts", "fit_mixture", "fit_views", "log_view", "neighbour_votes", "posterior_of",
    "row_blocks", "rows_to_fit",
]  # fmt: skip

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]
View = NDArray[np.floating]
MIN_PROBABILITY = 1e-6  # a prediction of 0 would rule a class out for good
PSEUDO_COUNT, MAX_PSEUDO_SHARE = 1.0, 0.1
"""Labels that are added to each entry of T: one, but in all at most this share of the labels there are"""
MAX_ITERATIONS, MIN_ITERATIONS = 500, 30
MAX_COMPUTED = 2**30
"""Numbers that all iterations together compute, which limits them to no fewer than ``MIN_ITERATIONS``"""
CONVERGED = 1e-9  # change of the log-likelihood, relative to it
MAX_WEIGHT = 20.0
MAX_DOUBLE_PRECISION = 2**24
"""Numbers in a view beyond which it is kept in single precision; the fit is in double precision in any case"""
MAX_FITTED = 2**24
"""Numbers in a view that the mixture is fitted to; of more examples a random part"""
BLOCK_SIZE = 2**22  # numbers of a posterior that are computed at once
NEIGHBOURS = 10
VOTE_SMOOTHING = 0.5  # of a vote for each class, so that none has probability 0
SIMILARITY_BLOCK = 2**24  # similarities at a time


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
    single = probabilities.size > MAX_DOUBLE_PRECISION
    floored = np.maximum(probabilities, MIN_PROBABILITY, dtype=np.float32 if single else np.float64)
    return np.asarray(np.log(floored, out=floored))


def fit_mixture(
    views: Sequence[View],
    given: Labels,
    *,
    transition: Floats | None = None,
    start: Mixture | None = None,
    iterations: int = MAX_ITERATIONS,
    min_weights: Floats | float = 0.0,
) -> Mixture:
    """Fit the model to logarithms of predictions, each ``[N, K]``, and the given labels.

    A ``transition`` matrix is held fixed, and only the predictions are recalibrated, with weights of at least ``min_weights``.
    ``start`` is a fit to continue from (a warm start).
    """
    rows, classes = views[0].shape
    order = np.argsort(given, kind="stable")  # the rows of a label together: they are summed in one go
    logs: list[Floats] = [np.asarray(view[order], np.float64) for view in views]
    given = given[order]
    added = min(PSEUDO_COUNT, MAX_PSEUDO_SHARE * rows / classes**2)
    weights = np.ones(len(logs)) if start is None else start.weights.copy()
    bias = np.zeros(classes) if start is None else start.bias.copy()
    held = transition
    if transition is None:
        transition = _counted(_softmax(logs[0].copy()), given, added) if start is None else start.transition
    lowest = np.broadcast_to(min_weights, weights.shape)
    before = -np.inf
    for _ in range(min(iterations, max(MIN_ITERATIONS, MAX_COMPUTED // logs[0].size))):
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
        _recalibrate(logs, weights, bias, posterior, expected, lowest)
    return Mixture(weights, bias, transition, value)


def fit_views(views: Sequence[View], given: Labels, start: Mixture | None = None, iterations: int = MAX_ITERATIONS) -> Mixture:
    """Fit the transition matrix to the first view, then recalibrate all views with the matrix held fixed."""
    first = start and Mixture(start.weights[:1], start.bias, start.transition, start.log_likelihood)
    model = fit_mixture(views[:1], given, start=first, iterations=iterations)
    if len(views) == 1:
        return model
    return fit_mixture(views, given, transition=model.transition, start=start, iterations=iterations)


def rows_to_fit(view: View, generator: np.random.Generator) -> slice | NDArray[np.intp]:
    """The rows that the mixture is fitted to: all, or a random part of so many that a fit would be slow."""
    rows, most = len(view), MAX_FITTED // view.shape[1]
    return slice(None) if rows <= most else np.sort(generator.choice(rows, most, replace=False))


def posterior_of(model: Mixture, views: Sequence[View], given: Labels) -> NDArray[np.float32]:
    """The probabilities ``[N, K]`` of the true labels in single precision, computed block by block."""
    classes = model.transition.shape[0]
    result = np.empty((len(given), classes), dtype=np.float32)
    for part in row_blocks(len(given), classes):
        result[part] = model.posterior([view[part] for view in views], given[part])
    return result


def row_blocks(rows: int, columns: int) -> Iterator[slice]:
    """Slices that cover all rows, each small enough to compute with in memory."""
    step = max(1, BLOCK_SIZE // columns)
    return (slice(start, start + step) for start in range(0, rows, step))


def expected_counts(posterior: NDArray[np.floating], given: Labels) -> Floats:
    """How many examples of class i are labelled j, ``[K, K]``, as the probabilities ``[N, K]`` of the true class have it."""
    order = np.argsort(given, kind="stable")
    there, first = np.unique(given[order], return_index=True)
    counts = np.zeros((posterior.shape[1],) * 2)
    for label, rows in zip(there, np.split(order, first[1:]), strict=True):
        counts[:, label] = posterior[rows].sum(0, dtype=np.float64)
    return counts


def _recalibrate(
    views: Sequence[View], weights: Floats, bias: Floats, posterior: Floats, expected: Floats, lowest: Floats
) -> None:
    """One step of the weights and the bias towards predictions that equal the posterior on average; changes them in place.

    ``expected`` are the predictions' sums ``[K]`` at present.
    """
    bias += np.log((posterior.sum(0) + MIN_PROBABILITY) / (expected + MIN_PROBABILITY))
    bias -= bias.mean()
    for place, view in enumerate(views):
        q = _softmax(_scores(views, weights, bias))
        mean = np.einsum("nk,nk->n", q, view)
        slope = np.einsum("nk,nk->", posterior, view) - mean.sum()
        q *= view
        curvature = np.einsum("nk,nk->", q, view) - (mean**2).sum() + MIN_PROBABILITY
        most = 0.5 * weights[place] + 0.05  # longer steps may overshoot, since the curvature changes
        weights[place] = np.clip(weights[place] + np.clip(slope / curvature, -most, most), lowest[place], MAX_WEIGHT)


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


def neighbour_votes(
    features: NDArray[np.floating],
    given: NDArray[np.int64],
    classes: int,
    *,
    neighbours: int = NEIGHBOURS,
    device: torch.device | None = None,
) -> NDArray[np.float32]:
    """The share ``[N, K]`` of each class among the given labels of the nearest other examples, by the angle between features.

    Examples without a direction, all features 0, have votes as the labels are distributed.
    """
    rows = len(features)
    count = min(neighbours, rows - 1)
    # In double precision, which holds the square of any number of single precision.
    size = np.sqrt(np.einsum("nd,nd->n", features, features, dtype=np.float64))[:, None]
    unit = np.divide(features, size, out=np.zeros_like(features, np.float32), where=size > 0).astype(np.float32, copy=False)
    votes = np.zeros((rows, classes), dtype=np.float32)
    for part, nearest in _nearest(unit, count, device):
        np.add.at(votes, (part[:, None], given[nearest]), 1.0)
    votes += VOTE_SMOOTHING
    votes /= count + VOTE_SMOOTHING * classes
    nowhere = size[:, 0] == 0
    votes[nowhere] = (np.bincount(given, minlength=classes) + VOTE_SMOOTHING) / (rows + VOTE_SMOOTHING * classes)
    return votes


def _nearest(
    unit: NDArray[np.float32], count: int, device: torch.device | None
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Some rows, and for each the most similar other rows, in any order."""
    import torch

    there = torch.from_numpy(unit).to(device)
    step = max(1, SIMILARITY_BLOCK // len(unit))
    for start in range(0, len(unit), step):
        similarity = there[start : start + step] @ there.T
        similarity.diagonal(start).fill_(-torch.inf)
        nearest = similarity.topk(count, sorted=False).indices
        yield np.arange(start, start + len(nearest)), nearest.cpu().numpy()
