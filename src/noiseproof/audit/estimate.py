"""From predictions to an audit: ``audit_probabilities``, and the estimate of the noise that every audit reports.

The mixture is a model of class-conditional noise: a true class k is given the label j with T[k, j], whatever the example.
People err more on ambiguous examples, and so do models: that noise is instance-dependent. If of the labels that T leaves as
they are a share s was drawn from q itself, by somebody as unsure as the models, then

    P(true k, given j | x) = q_k (T[k, j] + s T[j, j] (q_j - [k = j])),

and its sum over k does not depend on s: labels have the same likelihood for every s, and only s determines how many are wrong.
A share s of the belief in the given label goes to the prediction q: a label drawn from q contains no information. P(right) is
that of the mixture times 1 - s (1 - q_given), so the rate is lowest for s = 0 and highest for s = 1, and the two are close
where predictions are confident.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from noiseproof.audit import mixture
from noiseproof.audit.mixture import Floats, Labels, Mixture, View, fit_mixture, fit_views, log_view, posterior_of
from noiseproof.audit.result import Audit
from noiseproof.io.text import excerpt

__all__ = ["NoiseEstimate", "audit_probabilities", "check_features", "column_classes", "estimate_noise"]

BOOTSTRAP_SAMPLES, BOOTSTRAP_ITERATIONS = 40, 15
MAX_RESAMPLED, MIN_ROWS_RESAMPLED = 2**17, 500
"""Numbers in a view that is fitted again for the interval, but at least these rows"""
MAX_LIKELIHOOD_DROP = 1.92
"""By how much less the log-likelihood of what is ruled out at 95 % is: half the quantile of chi-squared"""
PROFILE_ITERATIONS, PROFILE_HALVINGS = 50, 6
MIN_ROWS_PER_CLASS = 10
"""Examples of a class that a row of T needs to be fitted again, and a warning about the order of the columns"""
MAX_SCALE, SCALE_HALVINGS = 64.0, 20
MAX_CALIBRATED = 2**22  # numbers of a view that the confidence of predictions is measured on
SUM_TOLERANCE = 1e-3  # by how much the sum of probabilities may differ from 1
ROUNDED_SUM_TOLERANCE = 0.05  # within which sums look as if they were meant to be 1
MAX_PAIRS_NAMED, MAX_CLASSES_NAMED = 5, 10  # pairs of classes in a warning, classes in an error


def audit_probabilities(
    probabilities: ArrayLike,
    labels: ArrayLike,
    *,
    features: ArrayLike | None = None,
    classes: Sequence[str] | None = None,
    seed: int = 0,
) -> Audit:
    """Find label errors from a model's class probabilities and the given labels.

    Args:
        probabilities: Class probabilities ``[N, K]``. They must be out of sample: predicted, by cross-validation for example,
            by models that were not trained on the example.
        labels: The given labels ``[N]``, integers from 0 to K - 1.
        features: Features ``[N, D]``. The labels of the nearest neighbours become a second view, which helps where the features
            are good.
        classes: The names of the classes; their numbers by default.
        seed: Seed of the bootstrap, and of the rows that the mixture is fitted to where there are many.

    Returns:
        The audit: how likely each label is wrong, the noise rate with an interval, the transition matrix.

    Raises:
        ValueError: If probabilities, labels, features and classes do not fit together.
        TypeError: If the labels are not integers.

    Example:
        >>> p = np.array([[0.9, 0.1], [0.8, 0.2], [0.1, 0.9], [0.2, 0.8]] * 50)
        >>> audit = audit_probabilities(p, [0, 0, 1, 1] * 49 + [1, 0, 1, 1])
        >>> audit.flagged.nonzero()[0].tolist(), audit.suggested[196].item()
        ([196], 0)
    """
    p, given = check_probabilities(probabilities, labels)
    names = tuple(map(str, range(p.shape[1]))) if classes is None else tuple(classes)
    if len(names) != p.shape[1]:
        raise ValueError(f"there must be one class name for each of the {p.shape[1]} columns, got {len(names)}")
    views = [log_view(p)]
    if features is not None:
        views.append(log_view(mixture.neighbour_votes(check_features(features, len(p)), given, p.shape[1])))
    generator = np.random.default_rng(seed)
    part = mixture.rows_to_fit(p, generator)
    model = fit_views([view[part] for view in views], given[part])
    estimate = estimate_noise(model, views, given, generator)
    read = "predictions and the labels of the nearest examples" if features is not None else "predictions"
    how = f"maximum likelihood of a transition matrix and recalibrated {read}, given out of sample"
    agreement, notes = float((p.argmax(1) == given).mean()), _note_on_columns(p, given, names)
    return Audit(given, agreement=agreement, classes=names, how=how, notes=notes, **estimate._asdict())


class NoiseEstimate(NamedTuple):
    """What is estimated of all labels together, by the names of an :class:`Audit`."""

    posterior: NDArray[np.float32]
    transition: Floats
    rate: float
    rate_interval: tuple[float, float]
    least_rate: float


def estimate_noise(
    model: Mixture,
    views: Sequence[View],
    given: Labels,
    generator: np.random.Generator,
    model_agreement: float | None = None,
    oversampled: bool = False,
) -> NoiseEstimate:
    """Estimate the posterior of the true labels, the transition matrix, the noise rate and its interval from a fitted mixture.

    ``model_agreement`` is the share of examples on which two models agree. If the fit to the labels makes predictions less
    confident than that, labels of ambiguous examples are wrong: predictions are scaled by a temperature to that confidence, and
    as many labels are taken to be drawn from the predictions as are wrong by the transition matrix.

    The interval begins below the lowest rate by as many labels as predictions dispute though they look right: those are the
    predictions' own errors, and as many again may have been taken for wrong labels. Confident errors all look like wrong labels
    instead, and the errors of models that were trained on ``oversampled`` classes often are confident: there it begins lower by
    the share of examples on which the two models differ, if that is more.

    The matrix is that of the posteriors, so that it agrees with the rate. The fitted one has labels added to every entry: that
    steadies the fit, but clean labels would look as if some were wrong. Where less than one example is of a class, the rest to
    one example counts as the labels of all classes do: wrong at the rate, and then any other.
    """
    posterior, lowest = posterior_and_rates(model, views, given)
    rates, scaled = lowest, model if model_agreement is None else temperature_scaled(model, views, model_agreement)
    if scaled is not model:
        posterior, rates = posterior_and_rates(scaled, views, given, ambiguous=True)
    counts = mixture.expected_counts(posterior, given)
    there, rate = counts.sum(1, keepdims=True), min(max(rates.rate, 0.0), 1.0)
    usual = np.full(counts.shape, rate / (len(counts) - 1))
    np.fill_diagonal(usual, 1 - rate)
    transition = (counts + np.maximum(1 - there, 0) * usual) / np.maximum(there, 1)
    errors = lowest.disputed if model_agreement is None or not oversampled else max(lowest.disputed, 1 - model_agreement)
    half = _sampling_error(model, views, given, generator)
    low = min(min(lowest.rate, rates.rate) - half, _lowest_supported_rate(model, views, given, generator)) - errors
    interval = max(0.0, low), min(1.0, rates.all_ambiguous + half)
    return NoiseEstimate(posterior, transition, rates.rate, interval, lowest.rate)


class NoiseRates(NamedTuple):
    """The share of wrong labels, by what is assumed of ambiguous examples."""

    class_conditional: float
    """If no label was drawn from the predictions: the lowest rate"""
    rate: float
    """The estimate"""
    all_ambiguous: float
    """If all labels that the transition matrix leaves as they are were drawn from the predictions: the highest rate"""
    disputed: float
    """The share of labels that are not what is predicted, less the lowest rate: the predictions' own errors"""


def posterior_and_rates(
    model: Mixture, views: Sequence[View], given: Labels, *, ambiguous: bool = False
) -> tuple[NDArray[np.float32], NoiseRates]:
    """The posterior of the true labels and the rates.

    With ``ambiguous`` as many labels are taken to be drawn from the predictions as are wrong by the transition matrix.
    """
    posterior = posterior_of(model, views, given)
    right, right_if_ambiguous, agreed = 0.0, 0.0, 0
    lowest = 1 - float(posterior[np.arange(len(given)), given].mean(dtype=np.float64))
    share = min(1.0, lowest / max(1 - lowest, 1e-9)) if ambiguous else 0.0
    for part in mixture.row_blocks(len(given), posterior.shape[1]):
        q = model.predicted([view[part] for view in views])
        rows, labels = np.arange(len(q)), given[part]
        agreed += int((q.argmax(1) == labels).sum())
        belief = posterior[part][rows, labels].astype(np.float64)
        right_if_ambiguous += float(belief @ q[rows, labels])
        if share:
            q[rows, labels] -= 1
            posterior[part] += (share * belief)[:, None] * q
        right += float(posterior[part][rows, labels].sum(dtype=np.float64))
    rate, highest = 1 - right / len(given), 1 - right_if_ambiguous / len(given)
    return posterior, NoiseRates(lowest, rate, max(rate, highest), max(0.0, 1 - agreed / len(given) - lowest))


def temperature_scaled(model: Mixture, views: Sequence[View], agreement: float) -> Mixture:
    """Raise the confidence of predictions to ``agreement`` by temperature scaling; return the same model if it is as high.

    Two calibrated networks that were trained apart differ from each other as often as from the truth (Jiang, Nagarajan, Baek
    and Kolter, ICLR 2022). A fit to labels that are wrong on ambiguous examples makes predictions less confident than that.
    """
    step = -(-views[0].size // MAX_CALIBRATED)
    some = [view[::step] for view in views]

    def scaled(by: float) -> Mixture:
        return replace(model, weights=model.weights * by, bias=model.bias * by)

    def is_confident(by: float) -> bool:
        return float(scaled(by).predicted(some).max(1).mean()) >= agreement

    low, high = 1.0, MAX_SCALE
    if is_confident(low):
        return model
    for _ in range(SCALE_HALVINGS):
        middle = (low * high) ** 0.5
        low, high = (low, middle) if is_confident(middle) else (middle, high)
    return scaled(high)


def _sampling_error(model: Mixture, views: Sequence[View], given: Labels, generator: np.random.Generator) -> float:
    """Half the width of the rate's 95 % confidence interval, by the bootstrap: the model is fitted again to resampled examples.

    Where there are many examples, fewer are resampled, and the standard deviation is corrected for it.
    """
    rows = len(given)
    count = min(rows, max(MAX_RESAMPLED // model.transition.shape[0], MIN_ROWS_RESAMPLED))
    rates = []
    for _ in range(BOOTSTRAP_SAMPLES):
        drawn = generator.integers(rows, size=count)
        again = [view[drawn] for view in views]
        refit = _refit(model, again, given[drawn])
        rates.append(1 - refit.posterior(again, given[drawn])[np.arange(count), given[drawn]].mean())
    return 1.96 * float(np.std(rates, ddof=1) * np.sqrt(count / rows))


def _lowest_supported_rate(model: Mixture, views: Sequence[View], given: Labels, generator: np.random.Generator) -> float:
    """The lowest rate that the labels do not rule out, by a likelihood-ratio test along a profile.

    T is moved towards the identity, and the predictions are recalibrated to it, as long as the labels are about as likely.
    Where predictions are unsure, right labels and less confident predictions are often as likely as the fit. The bootstrap
    does not see that: every sample of it is fitted from the same start. But predictions are not made less confident than they
    are, or than the fit makes them: any wrong labels could be explained so.
    """
    rows, classes = len(given), len(model.transition)
    count = min(rows, max(MAX_RESAMPLED // classes, MIN_ROWS_RESAMPLED))
    if count < MIN_ROWS_PER_CLASS * classes:
        return 1.0  # too few for the biases, with which any labels would be likely
    drawn = slice(None) if count == rows else generator.choice(rows, count, replace=False)
    some, labels, lowest = [view[drawn] for view in views], given[drawn], np.minimum(model.weights, 1.0)

    def moved(share: float) -> Mixture:
        transition = share * model.transition + (1 - share) * np.eye(classes)
        return fit_mixture(some, labels, transition=transition, start=model, iterations=PROFILE_ITERATIONS, min_weights=lowest)

    likely = moved(1.0).log_likelihood - MAX_LIKELIHOOD_DROP * count / rows
    if moved(0.0).log_likelihood >= likely:
        return 0.0
    low, high = 0.0, 1.0
    for _ in range(PROFILE_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if moved(middle).log_likelihood >= likely else (middle, high)
    return 1 - float(moved(high).posterior(some, labels)[np.arange(count), labels].mean())


def _refit(model: Mixture, views: Sequence[View], given: Labels) -> Mixture:
    """Fit the model to other examples, with T held fixed if they are too few for its rows."""
    if len(given) < MIN_ROWS_PER_CLASS * len(model.transition):
        return fit_mixture(views, given, transition=model.transition, start=model, iterations=BOOTSTRAP_ITERATIONS)
    return fit_views(views, given, start=model, iterations=BOOTSTRAP_ITERATIONS)


def check_probabilities(probabilities: ArrayLike, labels: ArrayLike) -> tuple[NDArray[np.floating], Labels]:
    """Return class probabilities ``[N, K]`` and labels ``[N]``, or raise an error that says what is wrong with them."""
    p, given = np.asarray(probabilities), np.asarray(labels)
    if p.ndim != 2 or p.shape[1] < 2:
        raise ValueError(f"probabilities must be [N, K] for at least 2 classes, got shape {p.shape}")
    if given.ndim != 1 or len(given) != len(p):
        raise ValueError(f"there must be one label for each row of probabilities: {len(p)} rows, labels of shape {given.shape}")
    if given.dtype.kind not in "iu":
        way = "; of names in sorted order they are np.unique(y, return_inverse=True)[1]" if given.dtype.kind in "OUS" else ""
        raise TypeError(f"labels must be integers, the columns of the probabilities, got {given.dtype}{way}")
    if p.dtype.kind not in "fiu":
        raise ValueError(f"probabilities must be numbers, got {p.dtype}")
    if not (finite := np.isfinite(p).all(1)).all():
        first = f"row {int(finite.argmin())} is the first of {int((~finite).sum())} that are not"
        raise ValueError(
            f"probabilities must be finite numbers, {first}; predict these again, or leave them and their labels out"
        )
    if len(p) and (given.min() < 0 or given.max() >= p.shape[1]):
        wrong = given[(given < 0) | (given >= p.shape[1])][0]
        raise ValueError(f"labels must be in [0, {p.shape[1] - 1}], the columns of the probabilities, got {wrong}")
    faulty = (p.min(1) < 0) | (np.abs(p.sum(1, dtype=np.float64) - 1) > SUM_TOLERANCE)
    if faulty.any():
        row = int(faulty.argmax())
        raise ValueError(
            f"each row of probabilities must be at least 0 and sum to 1, row {row} sums to {p[row].sum():.4g}; {_hint_for(p)}"
        )
    if len(np.unique(given)) < 2:
        raise ValueError(f"there must be labels of at least two classes, got {len(np.unique(given))}; nothing can be mistaken")
    return p if p.dtype.kind == "f" else p.astype(np.float64), given.astype(np.int64)


def column_classes(probabilities: NDArray[np.floating], classes: Sequence[str]) -> tuple[str, ...]:
    """The names of the columns of predictions, by the classes of the data.

    Classes that are numbered may have more columns than the data have classes: the last ones have no example.
    """
    columns = probabilities.shape[1] if probabilities.ndim == 2 else 0
    if columns > len(classes) and tuple(classes) == tuple(map(str, range(len(classes)))):
        return tuple(map(str, range(columns)))
    if columns > 1 and columns != len(classes):
        more = ", ..." if len(classes) > MAX_CLASSES_NAMED else ""
        named = ", ".join(excerpt(name, 40) for name in classes[:MAX_CLASSES_NAMED]) + more
        raise ValueError(f"{columns} columns, and the data have {len(classes)} classes: {named}; one for each, in this order")
    return tuple(classes)


def _hint_for(p: NDArray[np.floating]) -> str:
    """How to turn what these numbers seem to be into probabilities."""
    low, sums = float(p.min()), p.sum(1, dtype=np.float64)
    if p.max() <= 0:
        return "these look like log-probabilities: take np.exp of them first"
    if low >= 0 and np.abs(sums / 100 - 1).max() <= ROUNDED_SUM_TOLERANCE:
        return "these look like percent: divide by 100 first"
    if low >= 0 and np.abs(sums - 1).max() <= ROUNDED_SUM_TOLERANCE:
        return "they look rounded: divide each row by its sum first, p / p.sum(1, keepdims=True)"
    return "take the softmax of logits first"


def _note_on_columns(p: NDArray[np.floating], given: Labels, names: Sequence[str]) -> tuple[str, ...]:
    """A warning if most labels of some classes are predicted as another class each, as if columns were in another order."""
    counts = np.zeros((p.shape[1],) * 2, np.int64)
    np.add.at(counts, (given, p.argmax(1)), 1)
    most = enumerate(counts.argmax(1).tolist())
    moved = [(a, b) for a, b in most if a != b and 2 * counts[a, b] > max(counts[a].sum(), MIN_ROWS_PER_CLASS)]
    if {a for a, _ in moved} != {b for _, b in moved} or not moved:
        return ()
    pairs = ", ".join(f"{names[a]} as {names[b]}" for a, b in moved[:MAX_PAIRS_NAMED]) + (
        ", ..." if len(moved) > MAX_PAIRS_NAMED else ""
    )
    return (f"most labels of some classes are predicted as another each, {pairs}: are the columns in another order?",)


def check_features(features: ArrayLike, rows: int) -> NDArray[np.floating]:
    """Return features ``[N, D]`` in single precision, or raise a ValueError that says what is wrong with them."""
    found = np.asarray(features)
    if found.ndim != 2 or len(found) != rows or not found.shape[1] or found.dtype.kind not in "fiu":
        raise ValueError(
            f"features must be numbers [{rows}, D], one row for each label, got {found.dtype} of shape {found.shape}"
        )
    if not np.isfinite(found).all():
        raise ValueError("features must be finite, got a NaN or an infinity")
    if np.abs(found).max() > np.finfo(np.float32).max:
        raise ValueError("features must be within float32 (3.4e38)")
    return found.astype(np.float32, copy=False)
