"""A model of wrong labels over out-of-fold predictions of several learners: the centre of an audit and of ``fit``.

``fit_noise_model`` calibrates the predictions, considers many hypotheses on the transition matrix (:mod:`hypotheses`), stacks
the predictions under each (:mod:`stacking`), and averages over the hypotheses. What comes of it: class probabilities of new
examples, how likely each given label is wrong, the noise rate with an interval, the transition matrix, the learners' weights,
decision rules, and the accuracy of any prediction on correct labels, estimated without them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from noiseproof.audit.hypotheses import NEGLIGIBLE, FittedHypotheses, fit_hypotheses
from noiseproof.audit.scores import EstimatedScores, estimate_scores
from noiseproof.audit.stacking import (
    Calibration,
    Floats,
    Labels,
    Stack,
    Transition,
    Views,
    calibrate,
    expected_counts,
    log_views,
    row_blocks,
    rows_of,
    unmix,
)  # fmt: skip
from noiseproof.io.arrays import large_array
from noiseproof.io.limits import check_memory

Metric = Literal["accuracy", "balanced_accuracy", "f1_macro"]
METRICS: tuple[Metric, ...] = ("accuracy", "balanced_accuracy", "f1_macro")
Probabilities = NDArray[np.float32]
MAX_JUDGED, MAX_JUDGED_NUMBERS, MIN_JUDGED = 4000, 400_000, 500
"""Rows that hypotheses are fitted to: at most so many, rows times classes at most so many, but at least some"""
MAX_KEPT_POSTERIORS = 2**24
"""Numbers of the hypotheses' posteriors that are kept for estimates"""
ACCURACY_POWER = 0.2
"""The rule for accuracy divides probabilities by this power of the class frequencies: stacks favour large classes"""
F1_POWERS = np.linspace(0, 1, 11)
MAX_HYPOTHESES = 40
PAIR_MATRICES = 3
"""Matrices of classes times classes, in float64, that there are at the same time"""
MAX_PAIRED_CLASSES, MIN_AMBIGUITY_CORRELATION = 1000, 0.65
"""Of the rates of pairs of classes and how unsure predictions are between them: 0.70 and 0.80 on CIFAR-10N and LabelMe, below
0.25 with synthetic noise on them"""
RATE_ERROR = 0.012
"""Half the step of the grid of rates, as a standard deviation"""
RATE_TAIL = 0.05
"""What the interval leaves out of the hypotheses' rates at each end: their weights are flatter than they need be, and with less
of it intervals were wider than 95 % of the benchmark's synthetic noise asks for"""


@dataclass(frozen=True)
class NoiseModel:
    """A fitted model of wrong labels.

    Attributes:
        names: The names of the views.
        calibration: How each view is calibrated to the given labels.
        stacks: A stack for each hypothesis on the transition matrix that is kept.
        probabilities: How far each hypothesis is believed, ``[H]``.
        frequencies: The estimated frequencies of the true classes, ``[K]``.
        rates: The noise rate by each hypothesis, ``[H]``.
        noise_rate: The estimated share of wrong labels.
        rate_interval: Its 95 % interval.
        transition: ``T[k, j]``, the estimated probability that an example of class k is labelled j.
        f1_power: The power of the frequencies by which the rule for macro-averaged F1 divides.
        out_of_fold: Class probabilities of the true label by the features alone, ``[N, K]``; None in a stored model.
        posterior: Class probabilities of the true label by features and given label, ``[N, K]``; None in a stored model.
        p_wrong: The probability that each given label is wrong, ``[N]``; None in a stored model.
    """

    names: tuple[str, ...]
    calibration: Calibration
    stacks: tuple[Stack, ...]
    probabilities: Floats
    frequencies: Floats
    rates: Floats
    noise_rate: float
    rate_interval: tuple[float, float]
    transition: Floats
    f1_power: float
    out_of_fold: Probabilities | None = None
    posterior: Probabilities | None = None
    p_wrong: Probabilities | None = None
    plausible: Floats | None = None
    """How far each hypothesis would be believed if no evidence of wrong labels were needed, ``[H]``: intervals contain both"""
    judged: NDArray[np.intp] | None = None
    """Rows whose posteriors by each hypothesis are kept"""
    judged_posteriors: Probabilities | None = None
    """``[H, rows, K]``"""
    judged_labels: Labels | None = None

    @property
    def classes(self) -> int:
        return len(self.frequencies)

    @property
    def weights(self) -> dict[str, float]:
        """The share of each view in the stack's scores, averaged over the hypotheses: its weight times its deviation."""
        mean = self.probabilities @ np.array([stack.weights for stack in self.stacks]) * self.calibration.spread
        return dict(zip(self.names, (mean / max(mean.sum(), 1e-12)).tolist(), strict=True))

    def class_probabilities(self, views: Sequence[Views] | Views) -> Probabilities:
        """Predict the true class.

        Args:
            views: Predictions of the given label by the same learners, in the same order, ``[V, n, K]``.

        Returns:
            Probabilities ``[n, K]``.

        Raises:
            ValueError: If the views do not fit the model.
        """
        _check_views(views, len(self.names), self.classes)
        found = np.empty(views[0].shape, np.float32)
        for part in row_blocks(len(found), len(views) * self.classes):
            found[part] = self._averaged(rows_of(views, part), None)[0]
        return found

    def _averaged(self, views: Views, given: Labels | None) -> tuple[Views, Views | None]:
        """Mean prediction and mean posterior over the hypotheses, of rows that fit into memory."""
        calibrated = self.calibration.apply(np.asarray(views, np.float32))
        q = np.zeros(views.shape[1:])
        posterior = None if given is None else np.zeros(views.shape[1:])
        for weight, stack in zip(self.probabilities, self.stacks, strict=True):
            one = stack.predict(log_views(unmix(calibrated, stack.transition)))
            q += weight * one
            if posterior is not None and given is not None:
                posterior += weight * _posterior(one, stack.transition, given)
        return q, posterior

    def decide(self, probabilities: NDArray[np.floating], metric: Metric = "accuracy") -> Labels:
        """Choose a class for each example.

        Args:
            probabilities: Of the true classes, ``[n, K]``, from :meth:`class_probabilities`.
            metric: "accuracy" chooses the likeliest class, with a small correction of the class imbalance; "balanced_accuracy"
                the class that is likeliest relative to its frequency; "f1_macro" is between the two.

        Returns:
            Classes ``[n]``.

        Raises:
            ValueError: If the metric is unknown.
        """
        powers = {"accuracy": ACCURACY_POWER, "balanced_accuracy": 1.0, "f1_macro": self.f1_power}
        if metric not in powers:
            raise ValueError(f"metric must be one of {', '.join(METRICS)}, got {metric!r}")
        return _decide(np.asarray(probabilities), self.frequencies, powers[metric])

    def estimated_scores(self, predicted: NDArray[np.generic], *, seed: int = 0) -> EstimatedScores:
        """Estimate what an out-of-fold prediction is worth on correct labels.

        Args:
            predicted: Classes ``[N]``, or class probabilities ``[N, K]``, whose argmax is taken, of the rows that the model was
                fitted to, by whatever learner, out of fold.
            seed: Seed of the bootstrap over rows and hypotheses.

        Returns:
            Accuracy, balanced accuracy and, from probabilities, AUC, with 95 % intervals.

        Raises:
            ValueError: If the model was stored, and no rows are known, or there is not one prediction for each row.
        """
        if self.judged is None or self.judged_posteriors is None or self.judged_labels is None or self.p_wrong is None:
            raise ValueError("scores are estimated by a model that was just fitted; a stored one knows no rows")
        if len(predicted) != len(self.p_wrong):
            raise ValueError(f"there must be one prediction for each of the {len(self.p_wrong)} rows, got {len(predicted)}")
        rows = np.asarray(predicted)[self.judged]
        scores = rows if rows.ndim == 2 else None
        chosen = (rows if scores is None else scores.argmax(1)).astype(np.int64)
        left = 1 - self.noise_rate - self.noise_rate / (self.classes - 1)
        given, known = self.judged_labels, self.judged_posteriors
        return estimate_scores(self.weightings, known, given, left, chosen, scores, np.random.default_rng(seed))

    @property
    def weightings(self) -> list[Floats]:
        """How far each hypothesis is believed, and how far without asking for evidence: intervals contain both."""
        return [self.probabilities] if self.plausible is None else [self.probabilities, self.plausible]

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """What predicts, as arrays of numbers; the rows of the fit are left out."""
        full = self.stacks[0].transition.matrix is not None or any(s.transition.matrix is not None for s in self.stacks)
        transitions: dict[str, NDArray[np.generic]] = {"symmetric": np.array([s.transition.rate for s in self.stacks])}
        if full:
            transitions["matrices"] = np.array([s.transition.full() for s in self.stacks])
        transitions["transition"] = self.transition
        return {
            "scale": self.calibration.scale, "calibration_bias": self.calibration.bias, "spread": self.calibration.spread,
            "stack_weights": np.array([s.weights for s in self.stacks]), "stack_bias": np.array([s.bias for s in self.stacks]),
            "probabilities": self.probabilities, "frequencies": self.frequencies, "rates": self.rates,
            "noise_rate": np.array([self.noise_rate, *self.rate_interval]), "f1_power": np.array(self.f1_power), **transitions,
        }  # fmt: skip

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[np.generic]], names: Sequence[str]) -> NoiseModel:
        """The model from its arrays.

        Args:
            arrays: What :meth:`arrays` returned.
            names: The names of the views.

        Returns:
            A model that predicts and decides; it knows no rows.

        Raises:
            ValueError: If an array is missing, or their shapes do not fit together.
        """
        found = {name: np.asarray(array, np.float64) for name, array in arrays.items()}
        needed = {
            "scale", "calibration_bias", "spread", "stack_weights", "stack_bias", "probabilities", "frequencies", "rates",
            "noise_rate", "f1_power", "symmetric", "transition",
        }  # fmt: skip
        if missing := sorted(needed - set(found)):
            raise ValueError(f"the stored noise model lacks the array {missing[0]!r}")
        v, h, k = len(names), len(found["probabilities"]), len(found["frequencies"])
        shapes = {
            "scale": (v,), "calibration_bias": (v, k), "spread": (v,), "stack_weights": (h, v), "stack_bias": (h, k),
            "probabilities": (h,), "frequencies": (k,), "rates": (h,), "symmetric": (h,), "noise_rate": (3,),
            "f1_power": (), "matrices": (h, k, k),
            "transition": (k, k),
        }  # fmt: skip
        for name, shape in shapes.items():
            if name in found and (found[name].shape != shape or not np.isfinite(found[name]).all()):
                raise ValueError(f"the array {name!r} of a stored noise model must be finite {shape}, got {found[name].shape}")
        matrices = found.get("matrices", [None] * h)
        stacks = tuple(
            Stack(w, b, Transition(k, float(rate), matrix))
            for w, b, rate, matrix in zip(
                found["stack_weights"], found["stack_bias"], found["symmetric"], matrices, strict=True
            )
        )
        calibration = Calibration(found["scale"], found["calibration_bias"], found["spread"])
        rate, low, high = found["noise_rate"].tolist()
        return cls(
            tuple(names), calibration, stacks, found["probabilities"], found["frequencies"], found["rates"], rate, (low, high),
            found["transition"], float(found["f1_power"]),
        )  # fmt: skip


def check_model_fits(rows: int, classes: int) -> None:
    """An error if the matrix of all pairs of classes would not fit into memory; what is of rows and classes may be on disk."""
    what = f"how {classes:,} classes of {rows:,} rows are confused, numbers for each pair of them,"
    check_memory(what, PAIR_MATRICES * 8 * classes**2, "merge minority classes")


def fit_noise_model(
    views: Sequence[Views] | Views, given: Labels, *, fold: Labels, seed: int = 0, names: Sequence[str] | None = None
) -> NoiseModel:
    """Fit a model of wrong labels to out-of-fold predictions.

    Args:
        views: Out-of-fold class probabilities of several learners, ``[V, N, K]``, or a list, of which no copy is made.
        given: The given labels ``[N]``, integers from 0 to K - 1.
        fold: The fold in which each row was held out, ``[N]``.
        seed: Seed of the rows that hypotheses are fitted to where there are many.
        names: The names of the learners; their numbers by default.

    Returns:
        The model, with its answers for these rows.

    Raises:
        ValueError: If views, labels and folds do not fit together.

    Example:
        >>> p = np.array([[0.9, 0.1], [0.8, 0.2], [0.1, 0.9], [0.2, 0.8]] * 50)
        >>> given = np.array([0, 0, 1, 1] * 49 + [1, 0, 1, 1])
        >>> model = fit_noise_model(p[None], given, fold=np.arange(200) % 5)
        >>> model.p_wrong.argmax().item(), model.decide(model.class_probabilities(p[None, :2])).tolist()
        (196, [0, 0])
    """
    given, fold = np.asarray(given, np.int64), np.asarray(fold, np.int64)
    _check_views(views, None if names is None else len(names), None)
    v, (n, k) = len(views), views[0].shape
    if given.shape != (n,) or fold.shape != (n,):
        raise ValueError(f"there must be a label and a fold for each of the {n} rows, got {given.shape} and {fold.shape}")
    if not n or given.min() < 0 or given.max() >= k:
        raise ValueError(f"labels must be in [0, {k - 1}], the columns of the views")
    limit = max(MIN_JUDGED, min(MAX_JUDGED, MAX_JUDGED_NUMBERS // k))
    judged = np.arange(n) if n <= limit else np.sort(np.random.default_rng(seed).choice(n, limit, replace=False))
    some, labels = rows_of(views, judged, np.float64), given[judged]
    calibration = calibrate(some, labels)
    fitted = fit_hypotheses(calibration.apply(some), labels, fold[judged])
    kept, probabilities, plausible = _kept(fitted)
    stacks = tuple(fitted.stacks[index] for index in kept)
    model = NoiseModel(
        tuple(map(str, range(v))) if names is None else tuple(names), calibration, stacks, probabilities, np.full(k, 1 / k),
        np.zeros(len(stacks)), 0.0, (0.0, 0.0), np.eye(k), 0.0, plausible=plausible,
    )  # fmt: skip
    return _with_answers(model, views, given, judged)


def _kept(fitted: FittedHypotheses) -> tuple[NDArray[np.intp], Floats, Floats]:
    """The hypotheses that matter, and their probabilities with and without evidence.

    One with wrong labels is kept, so that labels are ranked by any, and one without.
    """
    found, plausible = fitted.probabilities(), fitted.plausible()
    likeliest = np.where(fitted.clean, -1.0, plausible).argmax()
    matter = plausible.copy()
    matter[[likeliest, fitted.clean.argmax()]] = 1.0
    kept = np.argsort(-matter, kind="stable")[:MAX_HYPOTHESES]
    kept = np.sort(kept[matter[kept] >= NEGLIGIBLE])
    found[likeliest] = max(found[likeliest], NEGLIGIBLE)
    return kept, _normalised(found[kept]), _normalised(plausible[kept])


def _normalised(weights: Floats) -> Floats:
    return np.asarray(weights / weights.sum())


def _with_answers(model: NoiseModel, views: Sequence[Views] | Views, given: Labels, judged: NDArray[np.intp]) -> NoiseModel:
    """The model with its answers for the rows that it was fitted to."""
    n, k = views[0].shape
    q, posterior = large_array((n, k)), large_array((n, k))
    plausible = model.weightings[-1]
    wrong, drawn = np.zeros(len(model.stacks)), 0.0  # labels that are wrong; the same if labels were drawn from q
    for part in row_blocks(n, len(views) * k):
        calibrated = model.calibration.apply(rows_of(views, part))
        labels, rows = given[part], np.arange(part.stop - part.start)
        mean, after = np.zeros((len(rows), k)), np.zeros((len(rows), k))
        for number, stack in enumerate(model.stacks):
            weight = model.probabilities[number]
            one = stack.predict(log_views(unmix(calibrated, stack.transition)))
            known = _posterior(one, stack.transition, labels)
            mean += weight * one
            after += weight * known
            right = known[rows, labels]
            wrong[number] += (1 - right).sum(dtype=np.float64)
            drawn += float(plausible[number] * (1 - right * one[rows, labels]).sum(dtype=np.float64))
        q[part], posterior[part] = mean, after
    frequencies = q.mean(0, dtype=np.float64)
    rates = wrong / n
    rate = float(model.probabilities @ rates)
    interval = _rate_interval(model, rates, q, posterior, given, drawn / n)
    p_wrong = 1 - posterior[np.arange(n), given]
    few = judged[: max(1, MAX_KEPT_POSTERIORS // (k * len(model.stacks)))]
    calibrated = model.calibration.apply(rows_of(views, few))
    known = np.array([
        _posterior(s.predict(log_views(unmix(calibrated, s.transition))), s.transition, given[few]) for s in model.stacks
    ], np.float32)  # fmt: skip
    return replace(
        model, frequencies=frequencies, rates=rates, noise_rate=rate,
        rate_interval=interval, transition=_transition(posterior, given, rate),
        f1_power=_f1_power(q, posterior, frequencies), out_of_fold=q, posterior=posterior, p_wrong=np.clip(p_wrong, 0, 1),
        judged=few, judged_posteriors=known, judged_labels=given[few],
    )  # fmt: skip


def _rate_interval(
    model: NoiseModel, rates: Floats, q: Probabilities, posterior: Probabilities, given: Labels, drawn: float
) -> tuple[float, float]:
    """The 95 % interval of the noise rate: quantiles of the hypotheses, and the sampling error.

    Its upper end asks for no evidence of wrong labels: what could be wrong may be.

    The hypotheses are class-conditional. If people err where examples are ambiguous, so that a label is drawn from the
    prediction q itself, labels have the same likelihood, and P(right) is that of the hypothesis times q_given: ``drawn`` is the
    rate if all labels were drawn so. The interval reaches up to it where the wrong labels are those that predictions confuse.
    With a single view it always does, and it begins lower by the share of labels that the view disputes beyond the rate:
    several views contradict each other's errors, and nothing contradicts those of one.
    """
    rate, most = (float(weights @ rates) for weights in (model.probabilities, model.weightings[-1]))
    low, high = (
        _quantiles(rates, model.probabilities, [RATE_TAIL])[0],
        _quantiles(rates, model.weightings[-1], [1 - RATE_TAIL])[0],
    )
    below, above = (1.96 * float(np.sqrt(RATE_ERROR**2 + r * (1 - r) / len(given))) for r in (rate, most))
    single = len(model.names) == 1
    if single:
        low -= max(0.0, 1 - float((q.argmax(1) == given).mean()) - rate)
    if single or _follows_ambiguity(q, posterior, given):
        high = max(high, drawn - above)
    return max(0.0, low - below), min(1.0, high + above)


def _follows_ambiguity(q: Probabilities, posterior: Probabilities, given: Labels) -> bool:
    """Whether wrong labels are of the pairs of classes between which predictions are unsure; unknown of two classes."""
    classes = q.shape[1]
    if not 2 < classes <= MAX_PAIRED_CLASSES:
        return False
    sizes = q.sum(0, dtype=np.float64) + 1e-9
    wrong = expected_counts(posterior, given) / np.outer(sizes, np.bincount(given, minlength=classes) + 1e-9)
    unsure = (q.T @ q) / np.outer(sizes, sizes)
    off = ~np.eye(classes, dtype=bool)
    if min(wrong[off].std(), unsure[off].std()) < 1e-12:
        return False
    return float(np.corrcoef(wrong[off], unsure[off])[0, 1]) > MIN_AMBIGUITY_CORRELATION


def _transition(posterior: Probabilities, given: Labels, rate: float) -> Floats:
    """The matrix of the posteriors, which agrees with the rate.

    Where less than one example is of a class, the rest to one example counts as the labels of all classes do: wrong at the
    rate, and then any other.
    """
    counts = expected_counts(posterior, given)
    there = counts.sum(1)
    usual = Transition(len(counts), min(max(rate, 0.0), 1.0))
    for label in np.flatnonzero(there < 1).tolist():
        row = np.full(len(counts), usual.spread)
        row[label] = 1 - usual.rate
        counts[label] += (1 - there[label]) * row
    counts /= np.maximum(there, 1)[:, None]
    return counts


def _posterior(q: Views, transition: Transition, given: Labels) -> Views:
    joint = transition.joint(q, given)
    joint /= np.maximum(joint.sum(1, keepdims=True), 1e-30)
    return joint


def _decide(probabilities: NDArray[np.floating], frequencies: Floats, power: float) -> Labels:
    scale = np.maximum(frequencies, 1e-9).astype(probabilities.dtype) ** power
    found = np.empty(len(probabilities), np.int64)
    for part in row_blocks(*probabilities.shape):
        found[part] = (probabilities[part] / scale).argmax(1)
    return found


def _f1_power(q: Probabilities, posterior: Probabilities, frequencies: Floats) -> float:
    """The power whose rule has the highest expected macro-averaged F1 on the rows of the fit."""
    found = []
    classes, expected = len(frequencies), posterior.sum(0, dtype=np.float64)
    for power in F1_POWERS:
        chosen = _decide(q, frequencies, power)
        right = np.bincount(chosen, weights=posterior[np.arange(len(q)), chosen], minlength=classes)
        f1 = 2 * right / np.maximum(np.bincount(chosen, minlength=classes) + expected, 1e-9)
        found.append(f1.mean())
    return float(F1_POWERS[int(np.argmax(found))])


def _quantiles(values: Floats, weights: Floats, shares: Sequence[float]) -> list[float]:
    order = np.argsort(values)
    reached = np.cumsum(weights[order])
    places = np.minimum(np.searchsorted(reached, np.asarray(shares)), len(values) - 1)
    return [float(value) for value in values[order][places]]


def _check_views(views: Sequence[Views] | Views, count: int | None, classes: int | None) -> None:
    shapes = sorted({np.shape(view) for view in views})
    if len(shapes) != 1 or len(shapes[0]) != 2 or shapes[0][1] < 2:
        raise ValueError(f"views must be [V, N, K] of at least 2 classes, got {len(views)} of shape {shapes}")
    if count is not None and len(views) != count:
        raise ValueError(f"there must be {count} views, got {len(views)}")
    if classes is not None and shapes[0][1] != classes:
        raise ValueError(f"views must have {classes} classes, got {shapes[0][1]}")
