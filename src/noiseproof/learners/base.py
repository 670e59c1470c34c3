"""What every learner does, and helpers that several of them share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Protocol, Self

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Arrays",
    "ClassWeight",
    "Floats",
    "Labels",
    "Learner",
    "drawn_rows",
    "fill_classes",
    "row_blocks",
    "row_weights",
    "softmax",
]

Floats = NDArray[np.float32]
Labels = NDArray[np.int64]
Arrays = Mapping[str, NDArray[np.generic]]
ClassWeight = Literal["balanced"] | None
BLOCK_NUMBERS = 2**22
"""Numbers of a temporary array that predictions are computed with"""


class Learner(Protocol):
    """A model that is trained once, predicts class probabilities, and is stored as plain arrays of numbers."""

    def fit(self, x: Floats, y: Labels, classes: int) -> Self:
        """Train.

        Args:
            x: Features ``[n, D]``, finite.
            y: Labels ``[n]`` in ``[0, classes)``, of which some classes may have no row.
            classes: The number of classes.

        Returns:
            The learner itself.
        """
        ...

    def predict_proba(self, x: Floats) -> Floats:
        """Predict class probabilities.

        Args:
            x: Features ``[n, D]``.

        Returns:
            Probabilities ``[n, classes]``; classes without a training row have probability 0.
        """
        ...

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """Return the trained model as arrays of numbers.

        Returns:
            Arrays by name, without objects.
        """
        ...

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Self:
        """Rebuild a trained model from its arrays.

        Args:
            arrays: What :meth:`arrays` returned.

        Returns:
            A learner that predicts; a ValueError says what is wrong with the arrays.
        """
        ...


def softmax(scores: Floats) -> Floats:
    """Of each row, in place."""
    scores -= scores.max(-1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(-1, keepdims=True)
    return scores


def fill_classes(p: NDArray[np.floating], present: Labels, classes: int) -> Floats:
    """Probabilities of the classes that were seen, as columns among all classes."""
    full = np.zeros((len(p), classes), np.float32)
    full[:, present] = p
    return full


def row_blocks(rows: int, columns: int) -> list[slice]:
    """Slices that cover all rows, each of a bounded number of numbers."""
    step = max(1, BLOCK_NUMBERS // max(1, columns))
    return [slice(start, start + step) for start in range(0, rows, step)]


def drawn_rows(y: Labels, limit: int, seed: int) -> NDArray[np.intp] | slice:
    """At most ``limit`` rows at random, but at least one of every class that is there; all rows if they are not more."""
    if len(y) <= limit:
        return slice(None)
    order = np.random.default_rng(seed).permutation(len(y))
    _, first = np.unique(y[order], return_index=True)
    kept = np.zeros(len(y), bool)
    kept[order[:limit]] = True
    kept[order[first]] = True
    return np.flatnonzero(kept)


def row_weights(y: Labels, class_weight: ClassWeight) -> NDArray[np.float64] | None:
    """A weight for each row, so that all classes weigh the same; None if rows weigh the same."""
    if class_weight is None:
        return None
    counts = np.bincount(y)
    return np.asarray(len(y) / ((counts > 0).sum() * counts[y]))


def checked(arrays: Arrays, shapes: Mapping[str, tuple[str, int]]) -> dict[str, NDArray[np.generic]]:
    """The arrays of a stored learner, if each is there with its kind of numbers and its number of dimensions."""
    found = {}
    for name, (kinds, dimensions) in shapes.items():
        if name not in arrays:
            raise ValueError(f"the stored learner lacks the array {name!r}")
        array = np.asarray(arrays[name])
        if array.dtype.kind not in kinds or array.ndim != dimensions:
            raise ValueError(
                f"the array {name!r} must have {dimensions} dimensions of kind {kinds!r}, got {array.dtype} {array.shape}"
            )
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise ValueError(f"the array {name!r} must be finite")
        found[name] = array
    return found


def checked_classes(present: NDArray[np.generic], classes: NDArray[np.generic]) -> tuple[Labels, int]:
    """The classes that a stored learner was trained on, and their number in all."""
    count, there = int(classes), present.astype(np.int64)
    if not len(there) or (np.diff(there) <= 0).any() or there[0] < 0 or there[-1] >= count:
        raise ValueError(f"the classes of a stored learner must be increasing numbers in [0, {count})")
    return there, count
