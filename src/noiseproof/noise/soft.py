"""Soft labels in files: the probability of every class, as an audit writes them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from noiseproof.io.arrays import NpzFile
from noiseproof.io.files import ReadError, checksum
from noiseproof.io.text import excerpt
from noiseproof.noise.files import load_labels

__all__ = ["SoftLabels", "column_order", "read_soft_labels"]

SOFT, GIVEN, NAMES = "posterior", "given", "classes"
"""Arrays of the file"""
SUM = 1e-3  # by how much the sum of probabilities may differ from 1
NAMED = 5  # classes that an error names


class SoftLabels(NamedTuple):
    """Class probabilities ``[N, K]`` for examples, the labels ``[N]`` that were given to them, and the file's SHA-256."""

    probabilities: NDArray[np.float32]
    given: NDArray[np.int64]
    hash: str
    classes: tuple[str, ...] | None = None
    """What the file calls the columns, if it says it"""

    def of_classes(self, classes: Sequence[str]) -> SoftLabels:
        """With the columns in the order of these classes; a ValueError if they are of others."""
        if self.classes is None:
            return self
        try:
            order = np.array(column_order(self.classes, classes))
        except ValueError as error:
            raise ValueError(f"{error}; 'noiseproof audit' makes soft labels anew from the data as they are now") from error
        return self._replace(probabilities=self.probabilities[:, order], given=np.argsort(order)[self.given])

    def fit_by_order_alone(self, classes: Sequence[str]) -> bool:
        """Whether these classes have names and the file has none, so that nothing shows that they are the columns."""
        return self.classes is None and not _are_numbers(classes)


def column_order(own: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """Which columns, of classes that are called so, are those that are wanted; a ValueError if they are of other classes.

    Classes that have no names are called by their numbers: then the columns are taken as they stand.

    >>> column_order(["no", "yes", "perhaps"], ["perhaps", "no", "yes"])
    [2, 0, 1]
    """
    if tuple(own) == tuple(wanted) or _are_numbers(own) or _are_numbers(wanted):
        return list(range(len(own)))
    if set(own) != set(wanted) or len(set(own)) < len(own):
        file, data = (_listed(set(one) - set(other)) for one, other in ((own, wanted), (wanted, own)))
        raise ValueError(f"its columns are of other classes than the data: only the file has {file}, only the data {data}")
    return [list(own).index(name) for name in wanted]


def _are_numbers(classes: Sequence[str]) -> bool:
    return all(name == str(k) for k, name in enumerate(classes))


def _listed(names: set[str]) -> str:
    more = ", ..." if len(names) > NAMED else ""
    return ", ".join(repr(excerpt(name, 40)) for name in sorted(names)[:NAMED]) + more or "none of its own"


def read_soft_labels(
    path: str | Path, examples: int, classes: int | Sequence[str], name: str | None = None
) -> SoftLabels | None:
    """The soft labels in an ``.npz`` file with arrays ``posterior`` and ``given``; None if that is not what it holds.

    ``classes`` are how many there are, or their names: if the file names its own in an array ``classes``, the columns are put
    in this order, and other classes are an error. ``name`` is that of the array which was asked for, if one was: only
    ``posterior`` is soft labels.
    """
    path = Path(path)
    if path.suffix != ".npz" or name not in (None, SOFT):
        return None
    count = classes if isinstance(classes, int) else len(classes)
    try:
        with NpzFile(path) as archive:
            if SOFT not in archive.names:
                return None
            found = archive.array(SOFT)
            _check(path, found, (examples, count))
            called = archive.words(NAMES, count) if NAMES in archive.names else None
    except ReadError as error:
        raise ValueError(f"{path}: no soft labels could be read: {error.fault}") from error
    given = load_labels(path, GIVEN)
    if given.shape != (examples,) or given.max() >= count:
        raise ValueError(
            f"{path}: {GIVEN!r} must be {examples} labels in [0, {count - 1}], got {len(given)} up to {given.max()}"
        )
    soft = SoftLabels(found.astype(np.float32), given, checksum(path), called)
    try:
        return soft if isinstance(classes, int) else soft.of_classes(classes)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _check(path: Path, found: NDArray[np.float32], shape: tuple[int, int]) -> None:
    if found.shape != shape or found.dtype.kind != "f":
        raise ValueError(
            f"{path}: soft labels must be probabilities {list(shape)}, one row for each example and one column for "
            f"each class, got {found.dtype} of shape {found.shape}; is it the same split, in the same order?"
        )
    wrong = ~((found >= 0).all(1) & (np.abs(found.sum(1, dtype=np.float64) - 1) <= SUM))  # a NaN or an infinity is neither
    if wrong.any():
        row = int(wrong.argmax())
        fault = (
            f"row {row} has {excerpt(found[row].min())} as its least and sums to {excerpt(found[row].sum(dtype=np.float64))}"
        )
        raise ValueError(f"{path}: soft labels must be finite, at least 0 and sum to 1 in each row; {fault}")
