"""Several predictions of the label become one prediction of the true label, under a hypothesis on the transition matrix.

A view ``p_v [N, K]`` is an out-of-fold prediction of the given label. Three steps lead to the true label, for a matrix
``T[k, j] = P(given j | true k)``:

1. Calibration to the given labels, ``softmax(a_v log p_v + b_v)``, by maximum likelihood. It does not depend on T.
2. Unmixing: the q with ``q T`` close to p, by steps of Richardson and Lucy (expectation-maximisation) from p. Powers of p
   cannot undo a mixture of classes, this can; T = I changes nothing.
3. Stacking: ``q = softmax(sum_v w_v log q_v + b)`` with w >= 0, by maximum likelihood of the given labels under ``q T``. A
   ridge draws the weights towards equal shares. Their sum, an inverse temperature, is free.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]
Views = NDArray[np.floating]
AnyFloat = TypeVar("AnyFloat", bound=np.floating)
MIN_PROBABILITY = 1e-5
UNMIXING_STEPS = 10
WEIGHT_RIDGE, BIAS_RIDGE = 0.01, 0.001  # for each row
MIN_SPREAD = 0.1
"""The standard deviation of a calibrated view's logarithms is at least this: where nothing can be learnt out of fold, the
likelihood would shrink views to nothing that still rank well, and the overconfident ones would outweigh the others"""
MAX_MIN_SCALE = 100.0
ITERATIONS = 60
LOG_MARGIN, DOMINANCE = 0.7, 50.0
"""A class's own label is to be twice as likely as any other; falling short by one in the logarithm costs so many nats"""
BLOCK_NUMBERS = 2**20


@dataclass(frozen=True)
class Transition:
    """A transition matrix: a full one, or symmetric noise of one rate, which needs no K x K numbers."""

    classes: int
    rate: float = 0.0
    """Of symmetric noise"""
    matrix: Floats | None = field(default=None, repr=False)

    @staticmethod
    def of(matrix: Floats) -> Transition:
        return Transition(len(matrix), matrix=matrix)

    @property
    def is_identity(self) -> bool:
        return self.matrix is None and self.rate == 0

    @property
    def spread(self) -> float:
        """The probability of each wrong label under symmetric noise."""
        return self.rate / (self.classes - 1)

    def full(self) -> Floats:
        if self.matrix is not None:
            return self.matrix
        return np.full((self.classes,) * 2, self.spread) + (1 - self.rate - self.spread) * np.eye(self.classes)

    def forward(self, q: Views) -> Views:
        """``q T``, the probabilities of the given label."""
        if self.matrix is not None:
            return np.asarray(q @ self.matrix.astype(q.dtype, copy=False))
        return np.asarray((1 - self.rate - self.spread) * q + self.spread * q.sum(-1, keepdims=True))

    def backward(self, ratio: Views) -> Views:
        """``ratio T'``."""
        if self.matrix is not None:
            return np.asarray(ratio @ self.matrix.T.astype(ratio.dtype, copy=False))
        return self.forward(ratio)

    def joint(self, q: Views, given: Labels) -> Views:
        """``q_k T[k, given]``, the probability of true class k and the given label."""
        if self.matrix is not None:
            return np.asarray(q * self.matrix.T[given].astype(q.dtype, copy=False))
        found = q * np.asarray(self.spread, q.dtype)
        rows = np.arange(len(q))
        found[rows, given] = q[rows, given] * (1 - self.rate)
        return found


class Calibration(NamedTuple):
    """Each view's scale ``[V]`` and biases ``[V, K]``, and the deviation of its logarithms once calibrated, ``[V]``."""

    scale: Floats
    bias: Floats
    spread: Floats

    def apply(self, views: Views) -> Views:
        """Calibrated probabilities ``[V, n, K]``, none of which is 0."""
        scores = log_views(views)
        scores *= self.scale[:, None, None].astype(scores.dtype)
        scores += self.bias[:, None].astype(scores.dtype)
        return np.maximum(_softmax(scores), MIN_PROBABILITY)


@dataclass(frozen=True)
class Stack:
    """A fitted combination of unmixed views."""

    weights: Floats
    bias: Floats
    transition: Transition
    log_likelihood: float = 0.0
    """Of the given labels, without penalties"""
    solution: Floats = field(default_factory=lambda: np.zeros(0), repr=False)
    """Where an optimiser may continue"""

    def predict(self, logs: Views) -> Views:
        """q ``[n, K]`` from logarithms of unmixed views ``[V, n, K]``."""
        scores = np.tensordot(self.weights.astype(logs.dtype), logs, 1)
        return _softmax(scores + self.bias.astype(logs.dtype))

    def likelihoods(self, logs: Views, given: Labels) -> Floats:
        """The log-likelihood of each given label."""
        joint: Floats = self.transition.joint(self.predict(logs), given).sum(1, dtype=np.float64)
        return np.asarray(np.log(np.maximum(joint, 1e-12)))

    def penalised(self, rows: int) -> float:
        """The log-likelihood less the penalties on weights and biases."""
        spread = self.weights - self.weights.mean()
        penalty = WEIGHT_RIDGE * (spread**2).sum() + BIAS_RIDGE * (self.bias**2).sum()
        return self.log_likelihood - rows * float(penalty)


def log_views(views: Views) -> Views:
    """Logarithms of probabilities, less their mean over the classes."""
    logs = np.log(np.maximum(views, MIN_PROBABILITY))
    logs -= logs.mean(-1, keepdims=True)
    return np.asarray(logs)


def calibrate(views: Views, given: Labels) -> Calibration:
    """Fit each view's scale and biases to the given labels."""
    found, spread = [], []
    for view in views:
        logs = np.asarray(log_views(view), np.float64)[None]
        spread.append(max(float(logs.std(1).mean()), MIN_SPREAD / MAX_MIN_SCALE))
        found.append(fit_stack(logs, given, Transition(logs.shape[2]), min_weight=MIN_SPREAD / spread[-1]))
    scale = np.array([each.weights[0] for each in found])
    return Calibration(scale, np.array([each.bias for each in found]), scale * np.array(spread))


def unmix(p: Views, transition: Transition) -> Views:
    """The prediction of the true label that a prediction p of the given one comes from."""
    q = np.maximum(p, 1e-6)
    if transition.is_identity:
        return np.asarray(q / q.sum(-1, keepdims=True))
    for _ in range(UNMIXING_STEPS):
        q *= transition.backward(p / np.maximum(transition.forward(q), 1e-9))
        q /= q.sum(-1, keepdims=True)
    return np.asarray(q)


def fit_stack(
    logs: Views,
    given: Labels,
    transition: Transition,
    *,
    prior: Floats | None = None,
    start: Floats | None = None,
    iterations: int = ITERATIONS,
    min_weight: float = 0.0,
) -> Stack:
    """Fit weights and bias; with a ``prior`` of pseudo-counts ``[K, K]`` also the matrix, beginning with the given one.

    ``logs [V, N, K]`` are logarithms of unmixed views.
    """
    try:
        from scipy.optimize import minimize
    except ImportError as error:
        raise ImportError("a noise model is fitted by scipy: pip install '.[lab]' in noiseproof's repository") from error

    order = np.argsort(given, kind="stable")
    objective = _Objective(np.asarray(logs[:, order], np.float64), given[order], transition, prior)
    v, _, k = logs.shape
    if start is None:
        weights = np.maximum(np.full(v, 1 / v), min_weight)
        begin = np.zeros(0) if prior is None else np.log(np.maximum(transition.full(), MIN_PROBABILITY)).ravel()
        start = np.concatenate([weights, np.zeros(k), begin])
    bounds = [(min_weight, None)] * v + [(None, None)] * (len(start) - v)
    options = {"maxiter": iterations, "maxcor": 20}
    found = minimize(objective, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options).x
    if prior is not None:
        transition = Transition.of(_softmax(found[v + k :].reshape(k, k).copy()))
    stack = Stack(found[:v], found[v : v + k], transition, 0.0, found)
    value = stack.likelihoods(objective.logs, objective.given).sum()
    return Stack(stack.weights, stack.bias, transition, float(value), found)


class _Objective:
    """The negative penalised log-likelihood of a stack, a row, with its gradient; rows are in the order of their labels."""

    def __init__(self, logs: Floats, given: Labels, transition: Transition, prior: Floats | None) -> None:
        self.logs, self.given, self.transition, self.prior = logs, given, transition, prior
        self.flat = logs.reshape(len(logs), -1)
        self.there, self.first = np.unique(given, return_index=True)

    def __call__(self, z: Floats) -> tuple[float, Floats]:
        v, n, k = self.logs.shape
        weights, bias = z[:v], z[v : v + k]
        full = None if self.prior is None else _softmax(z[v + k :].reshape(k, k).copy())
        transition = self.transition if full is None else Transition.of(full)
        q = _softmax((weights @ self.flat).reshape(n, k) + bias)
        joint = np.asarray(transition.joint(q, self.given), np.float64)
        total = np.maximum(joint.sum(1), 1e-300)
        joint /= total[:, None]
        slope = np.subtract(joint, q, out=q)
        spread = weights - weights.mean()
        value = np.log(total).sum() - n * (WEIGHT_RIDGE * (spread**2).sum() + BIAS_RIDGE * (bias**2).sum())
        gradients = [
            self.flat @ slope.ravel() - 2 * n * WEIGHT_RIDGE * spread,
            slope.sum(0) - 2 * n * BIAS_RIDGE * bias,
        ]
        if full is not None and self.prior is not None:
            more, gradient = self._matrix(full, z[v + k :].reshape(k, k), joint, self.prior)
            value += more
            gradients.append(gradient)
        return -value / n, -np.concatenate(gradients) / n

    def _matrix(self, full: Floats, logits: Floats, posterior: Floats, prior: Floats) -> tuple[float, Floats]:
        """What the prior of T and the dominance of its diagonal add, and the gradient by the logits of T."""
        counts = prior.copy()
        counts[:, self.there] += np.add.reduceat(posterior, self.first, axis=0).T
        over = np.maximum(logits - np.diag(logits)[:, None] + LOG_MARGIN, 0)
        np.fill_diagonal(over, 0)
        gradient = counts - counts.sum(1, keepdims=True) * full - 2 * DOMINANCE * over
        gradient[np.diag_indices_from(gradient)] += 2 * DOMINANCE * over.sum(1)
        value = (prior * np.log(np.maximum(full, 1e-300))).sum() - DOMINANCE * (over**2).sum()
        return float(value), gradient.ravel()


def held_out_likelihood(logs: Views, given: Labels, fold: Labels, stack: Stack, prior: Floats | None = None) -> float:
    """The log-likelihood of the labels of each fold by a stack that is fitted again to the other folds."""
    value = 0.0
    for number in np.unique(fold):
        rows = fold != number
        one = fit_stack(logs[:, rows], given[rows], stack.transition, prior=prior, start=stack.solution, iterations=40)
        value += float(one.likelihoods(logs[:, ~rows], given[~rows]).sum())
    return value


def expected_by_label(posterior: NDArray[np.floating], given: Labels) -> Iterator[tuple[int, NDArray[np.intp], Floats]]:
    """Each label that is given, its rows, and how many of them are of each class, ``[K]``, as the posteriors have it."""
    order = np.argsort(given, kind="stable")
    there, first = np.unique(given[order], return_index=True)
    for label, rows in zip(there.tolist(), np.split(order, first[1:]), strict=True):
        blocks = row_blocks(len(rows), posterior.shape[1])
        yield label, rows, np.sum([posterior[rows[part]].sum(0, dtype=np.float64) for part in blocks], axis=0)


def expected_counts(posterior: NDArray[np.floating], given: Labels) -> Floats:
    """How many examples of class i are labelled j, ``[K, K]``, as the probabilities ``[N, K]`` of the true class have it."""
    counts = np.zeros((posterior.shape[1],) * 2)
    for label, _, expected in expected_by_label(posterior, given):
        counts[:, label] = expected
    return counts


def rows_of(views: Sequence[Views] | Views, rows: slice | NDArray[np.intp], dtype: type[np.floating] = np.float32) -> Views:
    """Some rows of each view, ``[V, n, K]``."""
    return np.stack([np.asarray(view[rows], dtype) for view in views])


def row_blocks(rows: int, numbers: int) -> Iterator[slice]:
    """Slices that cover all rows, each small enough to compute with ``numbers`` for a row."""
    step = max(1, BLOCK_NUMBERS // max(1, numbers))
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))


def _softmax(scores: NDArray[AnyFloat]) -> NDArray[AnyFloat]:
    """Over the classes, in place."""
    scores -= scores.max(-1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(-1, keepdims=True)
    return scores
