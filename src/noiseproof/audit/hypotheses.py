"""Hypotheses on the transition matrix, each with the stack that fits it best, and how far each is to be believed.

The likelihood of the given labels hardly distinguishes less confident predictions from wrong labels, so no single matrix is
chosen: all answers are means over hypotheses. Two classes: a grid of both rates. More classes: symmetric noise on a grid of
rates, and matrices that maximise the likelihood under Dirichlet priors of several strengths, also moved towards the identity.

How many labels are wrong, if some are, may depend on a prior that prefers predictable true classes. Whether any label is wrong
may not: labels of a table that hardly anything predicts would look wrong. That is decided by a Bayes factor.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from noiseproof.audit.stacking import (
    Floats,
    Labels,
    Stack,
    Transition,
    Views,
    fit_stack,
    held_out_likelihood,
    log_views,
    row_blocks,
    unmix,
)  # fmt: skip

RATE_STEP, COARSE_STEP = 0.04, 0.08
MAX_BINARY_RATE, MAX_BINARY_SUM = 0.52, 0.9
MAX_RATE, MAX_CHANCE_SHARE = 0.8, 0.92
"""Of symmetric noise: at most 0.8, and at most 0.92 of the rate at which labels are drawn at random"""
STRENGTHS = (4.0, 10.0, 50.0)
"""Pseudo-counts of a row of T"""
SHARES = (0.0, 0.3, 0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3)
"""By which a matrix is moved from the identity, as a whole"""
MAX_FULL_CLASSES, FEW_CLASSES = 128, 40
"""Of more classes only symmetric noise is considered; of more than a few, only matrices of one strength"""
ROUNDS = 4
SAME_MAXIMUM = 0.03
"""Matrices that differ by less in every entry are of one maximum of the likelihood"""
MAX_NATS_BEHIND = 12.0
"""A matrix whose held-out likelihood is so far behind the likeliest one is not considered"""
KIND_BINARY, KIND_SYMMETRIC = 0, 1
# Weights of the hypotheses, chosen by benchmarks/zoo.py on half of its sets.
TEMPER = 0.5  # the power of the likelihood
EASE_POWER = 3.0
MIN_ENTROPY = 0.25  # of the true classes, as a share of log K, that the ease is relative to; see _ease
CLEAN_PRIOR = 0.1  # of no wrong label at all
ASYMMETRY = 0.2  # the difference between two classes' rates that is to be expected, as a share of what is left
MATRIX_BONUS = 10.0  # nats for each kind with a full matrix, if there are twice FEW_ROWS of a class
FEW_ROWS = 25.0  # of a class; so few do not tell a matrix from symmetric noise, and have no bonus
NEGLIGIBLE = 1e-3
# Whether labels are wrong at all: chosen on half of the zoo's sets and on tables without wrong labels that are hard to predict.
NOISE_ODDS, SINGLE_ODDS = 5.0, 2.5  # of some wrong labels against none, before the labels are seen; of a single view
HARD_EASE, EASY_EASE = 0.55, 0.7
"""Evidence is asked for where the ease, if labels are wrong, is below the first, and none where it is above the second: true
classes are then as predictable as those of separate groups. It was 0.58 at most on the tables for choosing that are hard to
predict and have no wrong label"""
MATRIX_COST = 1.0
"""Nats that the choice between several matrices is worth"""
MAX_EASY_WEIGHT = 4.0
"""A stack whose weights have a larger sum is surer than its views are, and how sure it is beyond that is no evidence of ease"""


class FittedHypotheses(NamedTuple):
    """Fitted stacks, one for each hypothesis, with their probabilities."""

    stacks: list[Stack]
    kind: Labels
    """0: two rates, 1: symmetric, 2 and more: a full matrix of a prior strength"""
    rates: Floats
    """``[H, 2]``: both rates; the rate, or the share that the matrix was moved by, twice"""
    value: Floats
    """Penalised log-likelihood"""
    ease: Floats
    """How well the true label is predicted: what predictions tell of it, as a share of its entropy"""
    held_out: Floats
    """Held-out log-likelihood of each kind but the first"""
    rows_of_class: float = np.inf
    """On average"""
    clean_held_out: float = np.inf
    """Held-out log-likelihood if no label is wrong"""
    signal: float = np.inf
    """By how much predictions beat the frequencies of the classes in log-likelihood if no label is wrong: held out, or on the
    rows of the fit less one for each parameter, whichever is more"""

    @property
    def clean(self) -> NDArray[np.bool_]:
        """The hypotheses without wrong labels."""
        return np.asarray((self.rates == 0).all(1))

    def probabilities(self) -> Floats:
        """How far each hypothesis is to be believed. Evidence is needed for those with wrong labels."""
        found = self.plausible()
        found[~self.clean] *= self.noise_probability()
        found[self.clean.argmax()] += 1 - found.sum()
        return found

    def noise_probability(self) -> float:
        """The probability that there are wrong labels, by the likelihood of the given labels alone unless the ease is high."""
        weights = np.where(self.clean, 0, self._by_likelihood_and_ease())
        if self.signal <= 0 or not weights.any():
            return NEGLIGIBLE
        odds = NOISE_ODDS if len(self.stacks[0].weights) > 1 else SINGLE_ODDS  # nothing contradicts the errors of one view
        odds *= float(np.exp(np.clip(self.evidence(), -50, 50)))
        easy = (weights @ self.ease / weights.sum() - HARD_EASE) / (EASY_EASE - HARD_EASE)
        return float(np.clip(max(odds / (1 + odds), easy), NEGLIGIBLE, 1))

    def evidence(self) -> float:
        """The logarithm of the Bayes factor of some wrong labels against none.

        Rates have their prior without the ease. Full matrices count by their held-out likelihood.
        """
        kind = self.kind[0]
        first = (self.kind == kind) & ~self.clean
        prior = _asymmetry_prior(self.rates[first]) if kind == KIND_BINARY else np.ones(int(first.sum()))
        gain = np.log(prior / prior.sum()) + self.value[first] - self.value[(self.kind == kind) & self.clean].max()
        found = float(np.logaddexp.reduce(gain))
        matrices = self.held_out[1:] - self.clean_held_out
        return max(found, float(matrices.max()) - MATRIX_COST) if len(matrices) else found

    def plausible(self) -> Floats:
        """How far each hypothesis would be believed if no evidence of wrong labels were needed.

        Where nothing predicts the labels, nothing speaks against wrong ones either, shuffled labels for example.
        """
        found = self._by_likelihood_and_ease()
        if self.signal <= 0 and not self.clean.all():
            found[self.clean] *= NEGLIGIBLE
        return np.asarray(found / found.sum())

    def _by_likelihood_and_ease(self) -> Floats:
        logs = TEMPER * self.value + EASE_POWER * np.log(np.maximum(self.ease, 1e-6))
        clean = self.clean
        if self.kind[0] == KIND_BINARY:
            prior = _asymmetry_prior(self.rates)
            prior[~clean] *= (1 - CLEAN_PRIOR) / prior[~clean].sum()
            prior[clean] = CLEAN_PRIOR
            return _normalised(logs + np.log(prior))
        share = TEMPER * self.held_out
        share[1:] += MATRIX_BONUS * min(1.0, max(0.0, self.rows_of_class / FEW_ROWS - 1))
        share = _normalised(share)
        found = np.zeros(len(logs))
        for number, weight in enumerate(share):
            mine = self.kind == number + KIND_SYMMETRIC
            prior = np.where(clean[mine], CLEAN_PRIOR, (1 - CLEAN_PRIOR) / max(1, int((mine & ~clean).sum())))
            found[mine] = weight * _normalised(logs[mine] + np.log(prior))
        return found


def _asymmetry_prior(rates: Floats) -> Floats:
    """Of both classes' rates ``[H, 2]``; not normalised."""
    left = np.maximum(1 - rates.sum(1), 0.05)
    return np.asarray(np.exp(-np.abs(rates[:, 0] - rates[:, 1]) / (ASYMMETRY * left)))


def symmetric_rates(classes: int) -> Floats:
    """The rates of symmetric noise that are considered."""
    step = RATE_STEP if classes <= MAX_FULL_CLASSES else COARSE_STEP
    return np.arange(0, min(MAX_RATE, MAX_CHANCE_SHARE * (classes - 1) / classes) + 1e-9, step)


def fit_hypotheses(views: Views, given: Labels, fold: Labels) -> FittedHypotheses:
    """Fit a stack of calibrated views ``[V, N, K]`` under each hypothesis."""
    found = list(_binary(views, given)) if views.shape[2] == 2 else list(_symmetric(views, given))
    held_out = np.zeros(0)
    if views.shape[2] > 2:
        best = max(found, key=lambda each: each[2].log_likelihood)[2]
        held_out = np.array([held_out_likelihood(_under(views, best.transition), given, fold, best)])
        if views.shape[2] <= MAX_FULL_CLASSES:
            matrices, more = _matrices(views, given, fold, best)
            found, held_out = found + matrices, np.append(held_out, more)
    stacks = [stack for _, _, stack in found]
    clean = held_out_likelihood(_under(views, stacks[0].transition), given, fold, stacks[0])
    counts = np.bincount(given)
    chance = float((counts[counts > 0] * np.log(counts[counts > 0] / len(given))).sum())
    return FittedHypotheses(
        stacks,
        np.array([kind for kind, _, _ in found]),
        np.array([rates for _, rates, _ in found]),
        np.array([stack.penalised(len(given)) for stack in stacks]),
        np.array([_ease(views, stack) for stack in stacks]),
        held_out,
        len(given) / views.shape[2],
        clean,
        max(clean, stacks[0].log_likelihood - len(views) - views.shape[2] + 1) - chance,
    )


Found = tuple[int, tuple[float, float], Stack]


def _under(views: Views, transition: Transition) -> Views:
    return log_views(unmix(views, transition))


def _binary(views: Views, given: Labels) -> Iterator[Found]:
    grid = np.arange(0, MAX_BINARY_RATE + 1e-9, RATE_STEP)
    for a in grid:
        start = None
        for b in grid[a + grid <= MAX_BINARY_SUM + 1e-9]:
            transition = Transition.of(np.array([[1 - a, a], [b, 1 - b]])) if a or b else Transition(2)
            stack = fit_stack(_under(views, transition), given, transition, start=start)
            start = stack.solution
            yield KIND_BINARY, (float(a), float(b)), stack


def _symmetric(views: Views, given: Labels) -> Iterator[Found]:
    start = None
    for rate in symmetric_rates(views.shape[2]):
        transition = Transition(views.shape[2], float(rate))
        stack = fit_stack(_under(views, transition), given, transition, start=start)
        start = stack.solution
        yield KIND_SYMMETRIC, (float(rate), float(rate)), stack


def _matrices(views: Views, given: Labels, fold: Labels, best: Stack) -> tuple[list[Found], list[float]]:
    """Full matrices of each prior strength, moved by several shares, and the held-out likelihood of each strength."""
    classes = views.shape[2]
    fitted: list[tuple[float, Stack]] = []
    begun: list[Floats] = []
    for begin in (None, _confusion(views, given, best)):  # two starts, since the likelihood has several maxima
        first, rate = _fitted_matrix(views, given, 10.0, max(best.transition.rate, 0.1), best, begin, ROUNDS)
        if any(np.abs(first.transition.full() - other).max() < SAME_MAXIMUM for other in begun):
            continue
        begun.append(first.transition.full())
        for strength in STRENGTHS if classes <= FEW_CLASSES else STRENGTHS[1:2]:
            stack, reached = _fitted_matrix(views, given, strength, max(rate, 0.05), best, first.transition, 2)
            prior = _prior(strength, reached, given, classes)
            fitted.append((held_out_likelihood(_under(views, stack.transition), given, fold, stack, prior), stack))
    likeliest = max(value for value, _ in fitted)
    kept = [(value, stack) for value, stack in fitted if TEMPER * (likeliest - value) < MAX_NATS_BEHIND]
    numbered = enumerate((stack for _, stack in kept), KIND_SYMMETRIC + 1)
    found = [(number, *one) for number, stack in numbered for one in _moved(views, given, stack)]
    return found, [value for value, _ in kept]


def _moved(views: Views, given: Labels, fitted: Stack) -> Iterator[tuple[tuple[float, float], Stack]]:
    """The stacks under a fitted matrix that is moved towards the identity, or away from it, by several shares."""
    identity, start = np.eye(fitted.transition.classes), None
    for share in SHARES:
        moved = identity + share * (fitted.transition.full() - identity)
        others = moved - np.diag(np.diag(moved))
        if moved.min() < 0 or (share > 1 and (np.diag(moved) < 1.1 * others.max(1)).any()):
            continue
        transition = Transition.of(moved) if share else Transition(len(identity))
        one = fit_stack(_under(views, transition), given, transition, start=start)
        start = one.solution
        yield (share, share), one


def _fitted_matrix(
    views: Views, given: Labels, strength: float, rate: float, best: Stack, begin: Transition | None, rounds: int
) -> tuple[Stack, float]:
    """A matrix under a Dirichlet prior around symmetric noise; each round unmixes the views by the matrix of the one before."""
    classes = views.shape[2]
    under, weights = begin or Transition(classes), best.solution
    stack = best
    for number in range(rounds):
        logs = _under(views, under)
        first = Transition(classes, rate) if number == 0 and begin is None else under
        start = np.concatenate([weights, np.log(np.maximum(first.full(), 1e-5)).ravel()])
        stack = fit_stack(logs, given, first, prior=_prior(strength, rate, given, classes), start=start)
        under, weights = stack.transition, stack.solution[: -(classes**2)]
        wrong = stack.predict(logs).mean(0) @ (1 - np.diag(stack.transition.full()))
        rate = float(np.clip(wrong, 0.02, 0.7))
    return stack, rate


def _prior(strength: float, rate: float, given: Labels, classes: int) -> Floats:
    """Pseudo-counts of T. Classes with fewer labels than the mean class have as many times more: their rows are held firmly."""
    counts = np.maximum(np.bincount(given, minlength=classes), 1)
    return np.asarray(strength * np.maximum(1, counts.mean() / counts)[:, None] * Transition(classes, rate).full())


def _confusion(views: Views, given: Labels, best: Stack) -> Transition:
    """The matrix as if the likeliest class by the best symmetric fit were the true one."""
    classes = views.shape[2]
    guess = best.predict(_under(views, best.transition)).argmax(1)
    counts = np.full((classes, classes), 0.2) + 2 * np.eye(classes)
    np.add.at(counts, (guess, given), 1)
    matrix = counts / counts.sum(1, keepdims=True)
    others = (matrix - np.diag(np.diag(matrix))).max(1)
    matrix += np.diag(np.maximum(1.5 * others - np.diag(matrix), 0))
    return Transition.of(matrix / matrix.sum(1, keepdims=True))


def _ease(views: Views, stack: Stack) -> float:
    """The entropy of the mean prediction less the mean entropy of predictions, as a share of the former.

    Hardly any entropy is left where a hypothesis makes nearly all examples one class; then a share of so little is no evidence,
    and it is taken of ``MIN_ENTROPY``. Weights without bound would make any prediction sure; they count to ``MAX_EASY_WEIGHT``.
    """
    share = min(1.0, MAX_EASY_WEIGHT / max(float(stack.weights.sum()), 1e-9))
    stack = Stack(share * stack.weights, share * stack.bias, stack.transition)
    total, mean = 0.0, np.zeros(views.shape[2])
    rows = views.shape[1]
    for part in row_blocks(rows, len(views) * views.shape[2]):
        q = stack.predict(_under(views[:, part], stack.transition))
        total -= float((q * np.log(np.maximum(q, 1e-12))).sum())
        mean += q.sum(0)
    mean /= rows
    whole = -float((mean * np.log(np.maximum(mean, 1e-12))).sum())
    return float((whole - total / rows) / max(whole, MIN_ENTROPY * np.log(len(mean))))


def _normalised(logs: Floats) -> Floats:
    weights = np.exp(logs - logs.max())
    return np.asarray(weights / weights.sum())
