"""``audit_probabilities``: an audit from predictions of any models, checks of what it is given, and votes of neighbours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from noiseproof.audit.noise_model import NoiseModel, check_model_fits, fit_noise_model
from noiseproof.audit.result import Audit
from noiseproof.audit.stacking import row_blocks, rows_of
from noiseproof.io.text import and_more, excerpt

if TYPE_CHECKING:
    import torch

Labels = NDArray[np.int64]
FOLDS = 5
"""Parts of the examples that hypotheses are compared on in turn"""
MIN_ROWS_PER_CLASS = 10
"""Examples of a class that a warning about the order of the columns needs"""
SUM_TOLERANCE = 1e-3  # by how much the sum of probabilities may differ from 1
ROUNDED_SUM_TOLERANCE = 0.05  # within which sums look as if they were meant to be 1
NEIGHBOURS = 10
VOTE_SMOOTHING = 0.5  # of a vote for each class, so that none has probability 0
SIMILARITY_BLOCK = 2**24  # similarities at a time
MAX_PAIRS_NAMED, MAX_CLASSES_NAMED = 5, 10  # pairs of classes in a warning, classes in an error


def audit_probabilities(
    probabilities: ArrayLike | Sequence[ArrayLike],
    labels: ArrayLike,
    *,
    features: ArrayLike | None = None,
    classes: Sequence[str] | None = None,
    seed: int = 0,
) -> Audit:
    """Find label errors from class probabilities of one or several models and the given labels.

    Args:
        probabilities: Class probabilities ``[N, K]``, or those of several models, ``[V, N, K]`` or a list. They must be out of
            sample: predicted, by cross-validation for example, by models that were not trained on the example.
        labels: The given labels ``[N]``, integers from 0 to K - 1.
        features: Features ``[N, D]``. The labels of the nearest neighbours become another prediction, which helps where the
            features are good.
        classes: The names of the classes; their numbers by default.
        seed: Seed of the rows that the noise model is fitted to where there are many.

    Returns:
        The audit: how likely each label is wrong, the noise rate with an interval, the transition matrix.

    Raises:
        ValueError: If probabilities, labels, features and classes do not fit together.
        TypeError: If the labels are not integers.

    Example:
        >>> p = np.array([[0.9, 0.1], [0.8, 0.2], [0.1, 0.9], [0.2, 0.8]] * 50)
        >>> audit = audit_probabilities(p, [0, 0, 1, 1] * 45 + [1, 0, 1, 1] * 5)
        >>> audit.flagged.nonzero()[0].tolist(), audit.suggested[196].item()
        ([180, 184, 188, 192, 196], 0)
        >>> audit_probabilities([p, p], audit.given).flagged.sum().item()
        5
    """
    checked = [check_probabilities(each, labels) for each in _separate(probabilities, len(np.atleast_1d(labels)))]
    given = checked[0][1]
    if len({p.shape for p, _ in checked}) > 1:
        raise ValueError(f"all predictions must have one shape, got {', '.join(str(p.shape) for p, _ in checked)}")
    rows, columns = checked[0][0].shape
    names = tuple(map(str, range(columns))) if classes is None else tuple(classes)
    if len(names) != columns:
        raise ValueError(f"there must be one class name for each of the {columns} columns, got {len(names)}")
    views = [p for p, _ in checked]
    if features is not None:
        views.append(neighbour_votes(check_features(features, rows), given, columns))
    model = fit_noise_model(views, given, fold=np.arange(rows) % FOLDS, seed=seed)
    read = "predictions and the labels of the nearest examples" if features is not None else "predictions"
    how = f"a mean over hypotheses on the transition matrix, each with {read} calibrated to it, given out of sample"
    own = views[: len(checked)]
    predicted = np.concatenate([rows_of(own, part).mean(0).argmax(1) for part in row_blocks(rows, len(own) * columns)])
    agreement, notes = float((predicted == given).mean()), _note_on_columns(predicted, given, names)
    return audit_of(model, given, classes=names, agreement=agreement, how=how, notes=notes)


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


def _separate(probabilities: ArrayLike | Sequence[ArrayLike], rows: int) -> list[NDArray[np.generic]]:
    """The predictions of each model; an array of three dimensions that is not ``[V, rows, K]`` is left to be refused."""
    if isinstance(probabilities, list | tuple) and probabilities and np.ndim(probabilities[0]) == 2:
        return [np.asarray(each) for each in probabilities]
    whole = np.asarray(probabilities)
    return list(whole) if whole.ndim == 3 and len(whole) and whole.shape[1] == rows else [whole]


def audit_of(model: NoiseModel, given: Labels, **facts: Any) -> Audit:
    """The audit that a noise model amounts to, for the rows that it was fitted to."""
    if model.posterior is None:
        raise ValueError("an audit needs a noise model that was just fitted")
    return Audit(given, model.posterior, model.transition, model.noise_rate, model.rate_interval, **facts)


def check_probabilities(probabilities: ArrayLike, labels: ArrayLike) -> tuple[NDArray[np.floating], Labels]:
    """Return class probabilities ``[N, K]`` and labels ``[N]``, or raise an error that says what is wrong with them."""
    p, given = np.asarray(probabilities), np.asarray(labels)
    if p.ndim != 2 or p.shape[1] < 2:
        raise ValueError(f"probabilities must be [N, K] for at least 2 classes, got shape {p.shape}")
    check_model_fits(*p.shape)
    if given.ndim != 1 or len(given) != len(p):
        raise ValueError(f"there must be one label for each row of probabilities: {len(p)} rows, labels of shape {given.shape}")
    if given.dtype.kind not in "iu":
        way = "; of names in sorted order they are np.unique(y, return_inverse=True)[1]" if given.dtype.kind in "OUS" else ""
        raise TypeError(f"labels must be integers, the columns of the probabilities, got {given.dtype}{way}")
    if p.dtype.kind not in "fiu":
        raise ValueError(f"probabilities must be numbers, got {p.dtype}")
    finite = np.concatenate([np.isfinite(p[part]).all(1) for part in row_blocks(*p.shape)] or [np.ones(0, bool)])
    if not finite.all():
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
        named = and_more([excerpt(name, 40) for name in classes], MAX_CLASSES_NAMED)
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


def _note_on_columns(predicted: Labels, given: Labels, names: Sequence[str]) -> tuple[str, ...]:
    """A warning if most labels of some classes are predicted as another class each, as if columns were in another order."""
    pairs, counts = np.unique(given * len(names) + predicted, return_counts=True)
    least = np.maximum(np.bincount(given, minlength=len(names)), MIN_ROWS_PER_CLASS)[pairs // len(names)]
    most = [divmod(pair, len(names)) for pair in pairs[2 * counts > least].tolist()]
    moved = [(a, b) for a, b in most if a != b]
    if {a for a, _ in moved} != {b for _, b in moved} or not moved:
        return ()
    listed = and_more([f"{names[a]} as {names[b]}" for a, b in moved], MAX_PAIRS_NAMED)
    return (f"most labels of some classes are predicted as another each, {listed}: are the columns in another order?",)


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
