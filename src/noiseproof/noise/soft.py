"""Class probabilities in files: the soft labels of an audit, predictions, and other matrices that a user brings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noiseproof.io.arrays import NpzFile, read_npy, read_table
from noiseproof.io.files import ReadError, checksum, file_and_name
from noiseproof.io.text import cell, csv_rows, excerpt
from noiseproof.noise.files import load_labels

PREDICTIONS_ARRAY, CLASS_PREFIX = "probabilities", "p_"
"""What 'noiseproof predict' calls its array, and puts before a class's name in the header of a table"""
SOFT_ARRAY, GIVEN_ARRAY, CLASSES_ARRAY = "posterior", "given", "classes"
"""Arrays of the file"""
SUM_TOLERANCE = 1e-3  # by how much the sum of probabilities may differ from 1
MAX_CLASSES_NAMED = 5  # classes that an error names


class SoftLabels(NamedTuple):
    """Class probabilities for examples, and the labels that were given to them.

    Attributes:
        probabilities: ``[N, K]``.
        given: Labels ``[N]``.
        hash: SHA-256 of the file.
        classes: Names of the columns, if the file states them.

    >>> soft = SoftLabels(np.float32([[0.9, 0.1]]), np.array([0]), "", ("no", "yes"))
    >>> soft.of_classes(("yes", "no")).given.tolist()
    [1]
    """

    probabilities: NDArray[np.float32]
    given: NDArray[np.int64]
    hash: str
    classes: tuple[str, ...] | None = None
    """What the file calls the columns, if it says it"""

    def of_classes(self, classes: Sequence[str]) -> SoftLabels:
        """Return the soft labels with the columns in the order of these classes.

        Args:
            classes: Names of the classes.

        Returns:
            The soft labels.

        Raises:
            ValueError: If the file is of other classes.
        """
        if self.classes is None:
            return self
        try:
            order = np.array(column_order(self.classes, classes))
        except ValueError as error:
            raise ValueError(f"{error}; 'noiseproof audit' makes soft labels anew from the data as they are now") from error
        return self._replace(probabilities=self.probabilities[:, order], given=np.argsort(order)[self.given])

    def fit_by_order_alone(self, classes: Sequence[str]) -> bool:
        """Return whether these classes have names and the file has none, so that the columns cannot be checked.

        Args:
            classes: Names of the classes.

        Returns:
            True if nothing but their order says which column is which class.
        """
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
    more = ", ..." if len(names) > MAX_CLASSES_NAMED else ""
    return ", ".join(repr(excerpt(name, 40)) for name in sorted(names)[:MAX_CLASSES_NAMED]) + more or "none of its own"


def read_soft_labels(
    path: str | Path, examples: int, classes: int | Sequence[str], name: str | None = None
) -> SoftLabels | None:
    """Read soft labels from an ``.npz`` file with arrays ``posterior`` and ``given``.

    Args:
        path: The file.
        examples: Number of examples.
        classes: How many classes there are, or their names: if the file names its own in an array ``classes``, the
            columns are put in this order, and other classes are an error.
        name: The array that was asked for, if one was: only ``posterior`` is soft labels.

    Returns:
        The soft labels; None if the file contains no array ``posterior``.

    Raises:
        ValueError: If they are no probabilities of these examples and classes.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/p.npz", posterior=np.float32([[0.9, 0.1], [0.2, 0.8]]), given=[0, 0])
    ...     read_soft_labels(f"{folder}/p.npz", examples=2, classes=2).given.tolist()
    [0, 0]
    """
    path = Path(path)
    if path.suffix != ".npz" or name not in (None, SOFT_ARRAY):
        return None
    count = classes if isinstance(classes, int) else len(classes)
    try:
        with NpzFile(path) as archive:
            if SOFT_ARRAY not in archive.names:
                return None
            found = archive.array(SOFT_ARRAY)
            _check_soft(path, found, (examples, count))
            called = archive.words(CLASSES_ARRAY, count) if CLASSES_ARRAY in archive.names else None
    except ReadError as error:
        raise ValueError(f"{path}: no soft labels could be read: {error.fault}") from error
    given = load_labels(path, GIVEN_ARRAY)
    if given.shape != (examples,) or given.max() >= count:
        raise ValueError(
            f"{path}: {GIVEN_ARRAY!r} must be {examples} labels in [0, {count - 1}], got {len(given)} up to {given.max()}"
        )
    soft = SoftLabels(found.astype(np.float32), given, checksum(path), called)
    try:
        return soft if isinstance(classes, int) else soft.of_classes(classes)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _check_soft(path: Path, found: NDArray[np.float32], shape: tuple[int, int]) -> None:
    if found.shape != shape or found.dtype.kind != "f":
        raise ValueError(
            f"{path}: soft labels must be probabilities {list(shape)}, one row for each example and one column for "
            f"each class, got {found.dtype} of shape {found.shape}; is it the same split, in the same order?"
        )
    wrong = ~(
        (found >= 0).all(1) & (np.abs(found.sum(1, dtype=np.float64) - 1) <= SUM_TOLERANCE)
    )  # a NaN or an infinity is neither
    if wrong.any():
        row = int(wrong.argmax())
        fault = (
            f"row {row} has {excerpt(found[row].min())} as its least and sums to {excerpt(found[row].sum(dtype=np.float64))}"
        )
        raise ValueError(f"{path}: soft labels must be finite, at least 0 and sum to 1 in each row; {fault}")


def read_matrix(text: str, what: str, suffixes: tuple[str, ...] = (".npy", ".npz")) -> NDArray[Any]:
    """Read the numbers in a file.

    Args:
        text: A file, or FILE#NAME for one array of an ``.npz`` file.
        what: How an error calls the numbers.
        suffixes: Suffixes of files that are accepted.

    Returns:
        The array: the named one, or the only one.

    Raises:
        ValueError: If the suffix is another one.
        ReadError: If the file has several arrays and none is named.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/p.npy", np.eye(2))
    ...     read_matrix(f"{folder}/p.npy", "probabilities").shape
    (2, 2)
    """
    path, name = file_and_name(text)
    if path.suffix not in suffixes:
        raise ValueError(f"{path}: {what} are read from {', '.join(suffixes)}, got {path.suffix or 'no suffix'!r}")
    if path.suffix == ".csv":
        return read_table(path)
    if path.suffix == ".npy":
        return read_npy(path)
    with NpzFile(path) as archive:
        chosen = name if name is not None else archive.names[0] if len(archive.names) == 1 else None
        if chosen not in archive.names:
            has = ", ".join(excerpt(each) for each in sorted(archive.names)[:20])
            raise ReadError(path, f"which array has the {what}? FILE#NAME says it; it has {has or 'none'}")
        return archive.array(str(chosen))


def read_predictions(text: str, classes: Sequence[str]) -> NDArray[Any]:
    """Read class probabilities from a file.

    Args:
        text: An ``.npy``, ``.npz`` or ``.csv`` file, or FILE#NAME.
        classes: Names of the classes: where the file names its columns, these are put in this order.

    Returns:
        Probabilities ``[N, K]``.

    Raises:
        ReadError: If the columns are of other classes.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/p.npy", np.eye(2))
    ...     read_predictions(f"{folder}/p.npy", ["no", "yes"]).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    path, name = file_and_name(text)
    if path.suffix == ".csv" and (places := _in_header(path, classes)):
        return _columns(path, places)
    if path.suffix != ".npz" or name not in (None, PREDICTIONS_ARRAY):
        return read_matrix(text, PREDICTIONS_ARRAY, (".npy", ".npz", ".csv"))
    with NpzFile(path) as archive:
        if PREDICTIONS_ARRAY not in archive.names:
            return read_matrix(text, PREDICTIONS_ARRAY)
        found = archive.array(PREDICTIONS_ARRAY)
        if found.ndim != 2 or CLASSES_ARRAY not in archive.names:
            return found
        try:
            return np.asarray(found[:, column_order(archive.words(CLASSES_ARRAY, found.shape[1]), classes)])
        except ReadError:
            raise
        except ValueError as error:
            raise ReadError(path, str(error)) from error


def _in_header(path: Path, classes: Sequence[str]) -> list[int]:
    """Where the columns of these classes are by a CSV file's header; none if it does not name each of them once."""
    try:
        header = next(csv_rows(path), (0, []))[1]
    except ReadError:  # which read_table says in its own words
        return []
    for names in (list(classes), [f"{CLASS_PREFIX}{cell(name)}" for name in classes]):
        if all(header.count(name) == 1 for name in names) and not all(name.isdigit() for name in header):
            return [header.index(name) for name in names]
    return []


def _columns(path: Path, places: Sequence[int]) -> NDArray[np.float64]:
    rows = csv_rows(path)
    next(rows)
    found = []
    for line, row in rows:
        try:
            found.append([float(row[k]) for k in places])
        except ValueError:
            raise ReadError(f"{path}:{line}", f"numbers expected, found {excerpt([row[k] for k in places])}") from None
    return np.array(found, np.float64).reshape(len(found), len(places))
