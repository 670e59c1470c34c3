"""An audit from predictions of any model on examples that it was not trained on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from noiseproof.audit.doubt import blocks, led_by_doubt, repeated_to, sharpened
from noiseproof.audit.mixture import ITERATIONS, Floats, Labels, Mixture, View, expected_counts, fit_mixture, log_view
from noiseproof.audit.neighbours import neighbour_votes
from noiseproof.audit.result import Audit
from noiseproof.noise import symmetric

__all__ = ["audit_probabilities"]

FITTED = 2**24
"""Numbers in a view that the mixture is fitted to; of more examples a random part"""
RESAMPLED = 2**17  # numbers in a view that is fitted again for the interval
RESAMPLES, REFITTED = 40, 15  # and iterations for each
RULED_OUT = 1.92  # by how much the log-likelihood of what is ruled out at 95 % is less: half the quantile of chi-squared
PROFILED, HALVINGS = 50, 6  # iterations of each fit for it, and of the search
ROW = 10  # examples that a row of T needs to be fitted again, and those of a class from which a column is doubted
SUM = 1e-3  # by how much the sum of probabilities may differ from 1
CLOSE = 0.05  # within which sums look as if they were meant to be 1
NAMED = 5  # classes that a warning names


def audit_probabilities(
    probabilities: ArrayLike,
    labels: ArrayLike,
    *,
    features: ArrayLike | None = None,
    classes: Sequence[str] | None = None,
    seed: int = 0,
) -> Audit:
    """Which labels look wrong, from class probabilities ``[N, K]`` for the examples and their given labels.

    The probabilities must be out of sample: predicted, by cross-validation say, by models that were not trained on the example.
    With ``features`` ``[N, D]`` the labels of the nearest examples are a second opinion, which helps where features are good.

    >>> p = np.array([[0.9, 0.1], [0.8, 0.2], [0.1, 0.9], [0.2, 0.8]] * 50)
    >>> audit = audit_probabilities(p, [0, 0, 1, 1] * 49 + [1, 0, 1, 1])
    >>> audit.flagged.nonzero()[0].tolist(), audit.suggested[196].item()
    ([196], 0)
    """
    p, given = checked_probabilities(probabilities, labels)
    names = tuple(map(str, range(p.shape[1]))) if classes is None else tuple(classes)
    if len(names) != p.shape[1]:
        raise ValueError(f"there must be one class name for each of the {p.shape[1]} columns, got {len(names)}")
    views = [log_view(p)]
    if features is not None:
        views.append(log_view(neighbour_votes(checked_features(features, len(p)), given, p.shape[1])))
    generator = np.random.default_rng(seed)
    part = part_of(p, generator)
    model = fitted([view[part] for view in views], given[part])
    posterior = posterior_of(model, views, given)
    found = concluded(model, views, posterior, given, generator)
    opinions = "predictions and the labels of the nearest examples" if features is not None else "predictions"
    how = f"maximum likelihood of a transition matrix and recalibrated {opinions}, given out of sample"
    agree, notes = float((p.argmax(1) == given).mean()), _note_on_columns(p, given, names)
    return Audit(given, posterior, agreement=agree, classes=names, how=how, notes=notes, **found._asdict())


def fitted(views: Sequence[View], given: Labels, start: Mixture | None = None, iterations: int = ITERATIONS) -> Mixture:
    """The transition matrix from the first view, then all views recalibrated on it."""
    first = start and Mixture(start.weights[:1], start.bias, start.transition, start.log_likelihood)
    model = fit_mixture(views[:1], given, start=first, iterations=iterations)
    if len(views) == 1:
        return model
    return fit_mixture(views, given, transition=model.transition, start=start, iterations=iterations)


class Conclusion(NamedTuple):
    """What an audit says of all labels together, by the names that it has in an :class:`Audit`."""

    transition: Floats
    rate: float
    rate_interval: tuple[float, float]
    least_rate: float


def concluded(
    model: Mixture,
    views: Sequence[View],
    posterior: NDArray[np.float32],
    given: Labels,
    generator: np.random.Generator,
    mutual: float | None = None,
) -> Conclusion:
    """The transition matrix, the rate and its interval, from the mixture and its posterior.

    ``mutual`` is the agreement of two networks with each other. Where they are surer of each other than the fit to the labels
    lets them be, labels are led by doubt: predictions are made as sure, and the posterior is changed, in place, to as many
    labels that are led as slip.

    The interval begins lower than the least rate by as many labels as predictions dispute though they look right: those are the
    predictions' own errors, and as many again may have been taken for wrong labels. Errors that networks are sure of all look
    like wrong labels instead, and those of networks to which rare labels were repeated often are: there it begins lower by as
    many as two networks differ on, if those are more.

    The matrix is that of the posteriors, so that it and the rate say the same. The fitted one has labels added to every entry:
    that steadies the fit, but clean labels would look as if some were wrong. Where less than one example is of a class, the
    rest to one example counts as the labels of all classes do: wrong at the rate, and then any other.
    """
    least = led_by_doubt(model, views, posterior, given, counted=False)
    rates, sharp = least, model if mutual is None else sharpened(model, views, mutual)
    if sharp is not model:
        posterior[:] = posterior_of(sharp, views, given)
        rates = led_by_doubt(sharp, views, posterior, given, counted=True)
    counts = expected_counts(posterior, given)
    there, usual = counts.sum(1, keepdims=True), symmetric(len(counts), min(max(rates.rate, 0.0), 1.0)).matrix
    transition = (counts + np.maximum(1 - there, 0) * usual) / np.maximum(there, 1)
    labels = np.bincount(given, minlength=len(counts))
    repeated = ((labels > 0) & (labels < repeated_to(labels))).any()
    errors = least.disputed if mutual is None or not repeated else max(least.disputed, 1 - mutual)
    half = _sampling(model, views, given, generator)
    low = min(min(least.rate, rates.rate) - half, _supported(model, views, given, generator)) - errors
    return Conclusion(transition, rates.rate, (max(0.0, low), min(1.0, rates.most + half)), least.rate)


def _sampling(model: Mixture, views: Sequence[View], given: Labels, generator: np.random.Generator) -> float:
    """How far the examples that happened to be drawn move the rate, at 95 %, by the bootstrap: the model is fitted again to
    examples that are drawn anew. Where there are many, fewer are drawn, and the spread is corrected for it."""
    rows = len(given)
    count = min(rows, max(RESAMPLED // model.transition.shape[0], 500))
    rates = []
    for _ in range(RESAMPLES):
        drawn = generator.integers(rows, size=count)
        again = [view[drawn] for view in views]
        refit = _refitted(model, again, given[drawn])
        rates.append(1 - refit.posterior(again, given[drawn])[np.arange(count), given[drawn]].mean())
    return 1.96 * float(np.std(rates, ddof=1) * np.sqrt(count / rows))


def _supported(model: Mixture, views: Sequence[View], given: Labels, generator: np.random.Generator) -> float:
    """The least rate that the labels do not rule out, by the ratio of likelihoods: T is moved towards no wrong label at all,
    and the predictions are recalibrated to it, as long as the labels are about as likely.

    Where predictions are unsure, right labels and less sure predictions are often as likely as the fit. The bootstrap does not
    see that: every sample of it is fitted from the same start. But predictions are not made less sure than they say of
    themselves, or than the fit has them: any wrong labels could be explained so.
    """
    rows, classes = len(given), len(model.transition)
    count = min(rows, max(RESAMPLED // classes, 500))
    if count < ROW * classes:
        return 1.0  # too few for the biases, with which any labels would be likely
    drawn = slice(None) if count == rows else generator.choice(rows, count, replace=False)
    some, labels, least = [view[drawn] for view in views], given[drawn], np.minimum(model.weights, 1.0)

    def moved(share: float) -> Mixture:
        transition = share * model.transition + (1 - share) * np.eye(classes)
        return fit_mixture(some, labels, transition=transition, start=model, iterations=PROFILED, least=least)

    likely = moved(1.0).log_likelihood - RULED_OUT * count / rows
    if moved(0.0).log_likelihood >= likely:
        return 0.0
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if moved(middle).log_likelihood >= likely else (middle, high)
    return 1 - float(moved(high).posterior(some, labels)[np.arange(count), labels].mean())


def _refitted(model: Mixture, views: Sequence[View], given: Labels) -> Mixture:
    """Fitted to other examples; T is held if they are too few for its rows."""
    if len(given) < ROW * len(model.transition):
        return fit_mixture(views, given, transition=model.transition, start=model, iterations=REFITTED)
    return fitted(views, given, start=model, iterations=REFITTED)


def posterior_of(model: Mixture, views: Sequence[View], given: Labels) -> NDArray[np.float32]:
    classes = model.transition.shape[0]
    result = np.empty((len(given), classes), dtype=np.float32)
    for part in blocks(len(given), classes):
        result[part] = model.posterior([view[part] for view in views], given[part])
    return result


def part_of(view: View, generator: np.random.Generator) -> slice | NDArray[np.intp]:
    """The rows that the mixture is fitted to: all, or as many as a fit should take."""
    rows, most = len(view), FITTED // view.shape[1]
    return slice(None) if rows <= most else np.sort(generator.choice(rows, most, replace=False))


def checked_probabilities(probabilities: ArrayLike, labels: ArrayLike) -> tuple[NDArray[np.floating], Labels]:
    """Class probabilities ``[N, K]`` and labels ``[N]``, or an error that says what is wrong with them."""
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
    faulty = (p.min(1) < 0) | (np.abs(p.sum(1, dtype=np.float64) - 1) > SUM)
    if faulty.any():
        row = int(faulty.argmax())
        raise ValueError(
            f"each row of probabilities must be at least 0 and sum to 1, row {row} sums to {p[row].sum():.4g}; {_way_to_sum(p)}"
        )
    if len(np.unique(given)) < 2:
        raise ValueError(f"there must be labels of at least two classes, got {len(np.unique(given))}; nothing can be mistaken")
    return p if p.dtype.kind == "f" else p.astype(np.float64), given.astype(np.int64)


def _way_to_sum(p: NDArray[np.floating]) -> str:
    """How to make probabilities of what these numbers seem to be."""
    low, sums = float(p.min()), p.sum(1, dtype=np.float64)
    if p.max() <= 0:
        return "these look like log-probabilities: take np.exp of them first"
    if low >= 0 and np.abs(sums / 100 - 1).max() <= CLOSE:
        return "these look like percent: divide by 100 first"
    if low >= 0 and np.abs(sums - 1).max() <= CLOSE:
        return "they look rounded: divide each row by its sum first, p / p.sum(1, keepdims=True)"
    return "take the softmax of logits first"


def _note_on_columns(p: NDArray[np.floating], given: Labels, names: Sequence[str]) -> tuple[str, ...]:
    """A warning if most labels of some classes are predicted as another each, as if columns had changed places."""
    counts = np.zeros((p.shape[1],) * 2, np.int64)
    np.add.at(counts, (given, p.argmax(1)), 1)
    most = enumerate(counts.argmax(1).tolist())
    moved = [(a, b) for a, b in most if a != b and 2 * counts[a, b] > max(counts[a].sum(), ROW)]
    if {a for a, _ in moved} != {b for _, b in moved} or not moved:
        return ()
    pairs = ", ".join(f"{names[a]} as {names[b]}" for a, b in moved[:NAMED]) + (", ..." if len(moved) > NAMED else "")
    return (f"most labels of some classes are predicted as another each, {pairs}: are the columns in another order?",)


def checked_features(features: ArrayLike, rows: int) -> NDArray[np.floating]:
    """Features ``[N, D]``."""
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
