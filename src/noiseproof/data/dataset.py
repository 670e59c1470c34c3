"""A data set as a value: the examples of its splits, the names of its classes, and where it came from.

Examples are inputs in memory (:class:`Split`) or image files (:class:`ImageFiles`), under one interface.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from noiseproof.data.table_encoder import Table
from noiseproof.io import limits
from noiseproof.io.arrays import NpzFile
from noiseproof.io.files import DataError, ReadError, checksum
from noiseproof.io.text import excerpt


@dataclass(frozen=True)
class Split:
    """Attributes:
        inputs: Images ``[N, H, W, C]`` in uint8, or features ``[N, ...]`` in float32.
        labels: int64 ``[N]``.
        paths: Of image files that were decoded; the names of the rows of a table.
        scaled: Whether the features have been scaled by the encoder of a table.

    Examples in memory: images or features, and their labels.

    >>> split = Split(np.zeros((4, 3), np.float32), np.array([0, 1, 1, 0]))
    >>> split.kind, len(split.take([0, 2]))
    ('features', 2)
    """

    inputs: NDArray[Any]
    labels: NDArray[np.int64]
    paths: tuple[str, ...] | None = None
    """Of image files that were decoded; the names of the rows of a table"""
    scaled: bool = False
    """Whether the features have been scaled by the encoder of a table"""
    in_memory: ClassVar[Literal[True]] = True

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def kind(self) -> Literal["images", "features"]:
        """uint8 inputs are images, floating inputs are features."""
        return "images" if self.inputs.dtype == np.uint8 else "features"

    @property
    def channels(self) -> int | None:
        """Of images ``[N, H, W, C]`` or ``[N, H, W]`` and of floating inputs ``[N, C, H, W]``; None for other features."""
        if self.kind == "images" and self.inputs.ndim == 3:
            return 1
        if self.inputs.ndim != 4:
            return None
        return int(self.inputs.shape[-1 if self.kind == "images" else 1])

    @property
    def sides(self) -> tuple[int, int] | None:
        """Height and width, where there are channels."""
        if self.channels is None:
            return None
        first = 1 if self.kind == "images" else 2
        return int(self.inputs.shape[first]), int(self.inputs.shape[first + 1])

    @property
    def channels_first(self) -> bool:
        """Whether images look like ``[N, C, H, W]``, which are not read as such."""
        return self.kind == "images" and self.inputs.ndim == 4 and self.inputs.shape[1] <= 4 < self.inputs.shape[3]

    def take(self, indices: ArrayLike) -> Split:
        """Return some of the examples.

        Args:
            indices: Integer positions, or a boolean mask.

        Returns:
            These examples.
        """
        chosen = _positions(len(self), indices)
        paths = None if self.paths is None else tuple(self.paths[k] for k in chosen)
        return Split(self.inputs[chosen], self.labels[chosen], paths, self.scaled)

    def with_labels(self, labels: ArrayLike) -> Split:
        """Return the same inputs with other labels.

        Args:
            labels: One for each example.

        Returns:
            The new split.
        """
        return dataclasses.replace(self, labels=checked_labels(labels, len(self), "example"))


@dataclass(frozen=True, eq=False)
class ImageFiles:
    """Attributes:
        paths: One for each example.
        labels: int64 ``[N]``.

    Examples that are image files. A million paths take about 120 MB.

    >>> ImageFiles(("cat/1.png", "dog/1.png"), np.array([0, 1])).take([1])
    ImageFiles(1 files, the first 'dog/1.png')
    """

    paths: tuple[str, ...]
    labels: NDArray[np.int64]
    in_memory: ClassVar[Literal[False]] = False
    kind: ClassVar[Literal["files"]] = "files"
    channels: ClassVar[int] = 3
    """Files are decoded to RGB"""

    def __post_init__(self) -> None:
        paths = tuple(map(os.fsdecode, self.paths))
        object.__setattr__(self, "paths", paths)
        object.__setattr__(self, "labels", checked_labels(self.labels, len(paths), "path"))

    def __len__(self) -> int:
        return len(self.paths)

    def __repr__(self) -> str:
        return f"ImageFiles({len(self)} files{f', the first {self.paths[0]!r}' if self.paths else ''})"

    def take(self, indices: ArrayLike) -> ImageFiles:
        """Return some of the examples.

        Args:
            indices: Integer positions, or a boolean mask.

        Returns:
            These examples.
        """
        chosen = _positions(len(self), indices)
        return ImageFiles(tuple(self.paths[k] for k in chosen), self.labels[chosen])

    def with_labels(self, labels: ArrayLike) -> ImageFiles:
        """Return the same files with other labels.

        Args:
            labels: One for each file.

        Returns:
            The new examples.
        """
        return dataclasses.replace(self, labels=np.asarray(labels))


Examples = Split | ImageFiles
"""Both have ``labels``, ``len()``, ``channels``, ``take`` and ``with_labels``; a type checker tells them apart by ``in_memory``
and ``kind``."""


def in_memory(examples: Examples) -> Split:
    """Return examples that are in memory, and refuse files.

    Args:
        examples: Of a data set's split.

    Returns:
        The same examples.

    Raises:
        TypeError: If they are image files.

    >>> split = Split(np.zeros((1, 3), np.float32), np.array([0]))
    >>> in_memory(split) is split
    True
    """
    if not examples.in_memory:
        raise TypeError(f"the inputs must be in memory, got {examples!r}; ImageLoader reads files batch by batch")
    return examples


def held_out(labels: NDArray[np.int64], share: float) -> NDArray[np.bool_]:
    """Return a mask of examples to test on: a share of every class, and the same examples for every seed.

    Args:
        labels: int64 ``[N]``.
        share: Of each class, to within one example.

    Returns:
        A boolean mask ``[N]``.

    >>> held_out(np.array([0, 1] * 10), 0.2).sum()
    np.int64(4)
    """
    count = len(labels)
    order = np.random.default_rng(0).permutation(count)
    by_class = order[np.argsort(labels[order], kind="stable")]
    # Evenly spaced in the order of the classes.
    reached = np.floor(np.arange(count + 1) * share + 1e-9)
    mask = np.zeros(count, bool)
    mask[by_class[np.diff(reached) > 0]] = True
    return mask


def checked_labels(labels: ArrayLike, count: int, each: str) -> NDArray[np.int64]:
    """The labels as int64, one per path or example."""
    given = np.asarray(labels)
    if given.shape != (count,) or given.dtype.kind not in "iu":
        raise DataError(f"labels must be {count} integers, one per {each}, got {given.dtype} of shape {given.shape}")
    if given.size and given.min() < 0:
        raise DataError(f"labels must be in [0, inf), got {given.min()}")
    return given.astype(np.int64)


def _positions(count: int, indices: ArrayLike) -> NDArray[np.int64]:
    given = np.asarray(indices)
    if not given.size:  # an empty list is an array of floats
        given = given.astype(np.int64)
    chosen: NDArray[np.int64] = np.arange(count)[given]
    return chosen


MANY_CLASSES = 1000  # from here on their number is compared with that of the examples
MAX_NAMES_LISTED = 20


@dataclass(frozen=True)
class Dataset:
    """A data set with its splits, in memory or in image files.

    Attributes:
        name: How it is called.
        train: The training split.
        test: The test split, if there is one.
        classes: Names of the classes.
        sources: SHA-256 of every file that was read, by its name.
        other_tests: Further examples to test on, of the same classes, by name.
        columns: Names of the features, where the file states them.
        table: The rows of a table of mixed columns, and the encoder that made features of them.

    >>> from_arrays(np.zeros((4, 3)), [0, 1, 1, 0]).splits.keys()
    dict_keys(['train'])
    """

    name: str
    train: Examples
    test: Examples | None
    classes: tuple[str, ...]
    sources: dict[str, str] = field(default_factory=dict)
    other_tests: dict[str, Examples] = field(default_factory=dict)
    """Further examples to test on, of the same classes, by name"""
    columns: tuple[str, ...] = ()
    """What the features are called, where the file says it"""
    table: Table | None = None
    """The rows of a table, and the encoder that made features of them"""

    @property
    def splits(self) -> dict[str, Examples]:
        """All splits by name: train, test and the further ones."""
        test = {} if self.test is None else {"test": self.test}
        return {"train": self.train, **test, **self.other_tests}

    def with_splits(self, splits: Mapping[str, Examples], **changes: Any) -> Dataset:
        """Return the data set with other examples.

        Args:
            splits: By name, ``train`` among them.
            **changes: Other attributes that change with them.

        Returns:
            The new data set.

        >>> digits = load_digits()
        >>> digits.with_splits({"train": digits.train.take([0, 1])})
        Dataset(digits: 10 classes, train 2, inputs (64,))
        """
        others = {name: examples for name, examples in splits.items() if name not in ("train", "test")}
        return dataclasses.replace(self, train=splits["train"], test=splits.get("test"), other_tests=others, **changes)

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name} {len(split)}" for name, split in self.splits.items())
        inputs = f"inputs {self.train.inputs.shape[1:]}" if self.train.in_memory else "images in files"
        return f"Dataset({self.name}: {len(self.classes)} classes, {sizes}, {inputs})"


def from_arrays(
    inputs: ArrayLike,
    labels: ArrayLike,
    test_inputs: ArrayLike | None = None,
    test_labels: ArrayLike | None = None,
    *,
    name: str = "arrays",
    classes: tuple[str, ...] | None = None,
    sources: dict[str, str] | None = None,
) -> Dataset:
    """Return a data set from arrays.

    Args:
        inputs: Images ``[N, H, W, C]`` in uint8, or floating features ``[N, ...]``.
        labels: Class indices ``[N]``.
        test_inputs: Inputs of the test split.
        test_labels: Labels of the test split.
        name: Of the data set.
        classes: Names of the classes; their numbers by default.
        sources: SHA-256 of files that were read, by name.

    Returns:
        The data set.

    Raises:
        DataError: If arrays do not fit each other.

    >>> from_arrays(np.zeros((4, 3)), [0, 1, 1, 0])
    Dataset(arrays: 2 classes, train 4, inputs (3,))
    """
    if (test_inputs is None) != (test_labels is None):
        raise DataError(f"{name}: test inputs and test labels go together")
    count, test = None if classes is None else len(classes), None
    train = as_split(inputs, labels, count, f"{name}, training split")
    if test_inputs is not None and test_labels is not None:
        test = as_split(test_inputs, test_labels, count, f"{name}, test split")
    return assembled(name, train, test, classes, sources or {}, name)


def assembled(
    name: str, train: Split, test: Split | None, classes: tuple[str, ...] | None, sources: dict[str, str], where: str | Path
) -> Dataset:
    """A data set of splits whose inputs are of one shape; an error starts with ``where``."""
    if test is not None and train.inputs.shape[1:] != test.inputs.shape[1:]:
        shape, test_shape = train.inputs.shape[1:], test.inputs.shape[1:]
        raise DataError(f"{where}: inputs are {shape} in training and {test_shape} in the test split")
    if classes is None:
        largest = max(int(split.labels.max(initial=0)) for split in (train, test) if split is not None)
        classes = tuple(str(k) for k in range(largest + 1))
    return Dataset(name, train, test, classes, sources)


def check_classes(dataset: Dataset, where: str) -> None:
    """Check that there are at least two classes, and not so many that labels seem to be other numbers.

    Args:
        dataset: The data set.
        where: What an error names.

    Raises:
        DataError: If there is one class, or nearly one for each example.

    >>> check_classes(from_arrays(np.zeros((4, 3)), [0, 0, 0, 0]), "mine")
    Traceback (most recent call last):
    noiseproof.data.dataset.DataError: mine: all examples are of one class, '0'; at least two are needed
    """
    count, examples = len(dataset.classes), len(dataset.train)
    if count < 2:
        raise DataError(f"{where}: all examples are of one class, {excerpt(dataset.classes[0])!r}; at least two are needed")
    if count > MANY_CLASSES and 2 * count > examples:
        way = "number them from 0 without gaps; in a table, --label says which column has them"
        raise DataError(f"{where}: {count} classes for {examples} examples: are these the labels? {way}")


def load_npz(path: str | Path) -> Dataset:
    """Read a data set from an ``.npz`` file.

    Args:
        path: A file with arrays ``x`` and ``y``, and ``x_test`` and ``y_test`` if there is a test split.

    Returns:
        The data set.

    Raises:
        DataError: If the file does not contain these arrays.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/mine.npz", x=np.zeros((4, 3)), y=np.array([0, 1, 1, 0]))
    ...     load_npz(f"{folder}/mine.npz")
    Dataset(mine: 2 classes, train 4, inputs (3,))
    """
    path = Path(path)
    arrays = npz_arrays(path, ("x", "y"), ("x_test", "y_test"))
    if len(arrays) == 3:
        raise DataError(f"{path}: x_test and y_test go together, and only {[*arrays][2]} is there")
    train = as_split(arrays.pop("x"), arrays.pop("y"), None, f"{path}, x and y")
    test = as_split(arrays["x_test"], arrays["y_test"], None, f"{path}, x_test and y_test") if arrays else None
    return assembled(path.stem, train, test, None, {path.name: checksum(path)}, path)


def npz_arrays(path: Path, needed: Sequence[str], others: Sequence[str]) -> dict[str, NDArray[Any]]:
    """The arrays of an .npz file that have these names, of which some must be there."""
    try:
        with NpzFile(path) as archive:
            if missing := [key for key in needed if key not in archive.names]:
                has = ", ".join(excerpt(name) for name in sorted(archive.names)[:MAX_NAMES_LISTED]) or "none"
                way = "np.savez(FILE, x=inputs, y=labels) names them"
                raise DataError(f"{path}: no array named {missing[0]!r}; it has {has}; {way}")
            return {key: archive.array(key) for key in (*needed, *others) if key in archive.names}
    except ReadError as error:
        raise DataError(f"{path}: not a readable .npz file: {error.fault}{_way_to_numbers(error.fault)}") from error


def load_digits(test_size: int = 500, seed: int = 0) -> Dataset:
    """Return scikit-learn's 1,797 handwritten digits of 8x8 pixels as 64 features in [0, 1].

    Args:
        test_size: Number of test examples.
        seed: Of the split.

    Returns:
        The data set, which needs no download.

    >>> load_digits()
    Dataset(digits: 10 classes, train 1297, test 500, inputs (64,))
    """
    from sklearn import datasets

    features, labels = datasets.load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(labels))
    features, labels = (features[order] / 16).astype(np.float32), labels[order]
    test, train = slice(None, test_size), slice(test_size, None)
    return from_arrays(features[train], labels[train], features[test], labels[test], name="digits")


def as_split(inputs: ArrayLike, labels: ArrayLike, classes: int | None, where: str) -> Split:
    """Inputs and labels, checked; an error starts with ``where``."""
    x, y = np.asarray(inputs), np.asarray(labels)
    if y.ndim != 1 or y.dtype.kind not in "iu":
        raise DataError(f"{where}: labels must be a vector of integers, got {y.dtype} of shape {y.shape}{_way_to_labels(y)}")
    if x.ndim < 2:
        raise DataError(f"{where}: inputs must be [N, ...], got shape {x.shape}")
    if len(x) != len(y):
        raise DataError(f"{where}: {len(x)} inputs for {len(y)} labels")
    if not len(y):
        raise DataError(f"{where}: no examples")
    if not x.size:
        raise DataError(f"{where}: inputs of shape {x.shape[1:]} have nothing in them")
    most = classes or limits.MAX_CLASSES
    if y.min() < 0 or y.max() >= most:
        found = int(y.min() if y.min() < 0 else y.max())
        way = "; number the classes from 0: np.unique(y, return_inverse=True)[1]" if classes is None else ""
        raise DataError(f"{where}: labels must be in [0, {most - 1}], got {found}{way}")
    if x.dtype.kind == "f":
        return Split(_finite(x, where), y.astype(np.int64))
    if x.dtype != np.uint8:
        raise DataError(f"{where}: inputs must be uint8 images or floating features, got {x.dtype}{_way_to_inputs(x)}")
    return Split(x, y.astype(np.int64))


def _way_to_numbers(fault: str) -> str:
    """What to do about an array of objects, words or the like, by what its reader says."""
    for name in ("x", "x_test"):
        if fault.startswith(f"array '{name}': it must hold plain"):
            return f"; save {name}.astype(np.float32)"
    labels = fault.startswith(("array 'y': it must hold plain", "array 'y_test': it must hold plain"))
    return "; number the classes from 0: np.unique(y, return_inverse=True)[1]" if labels else ""


def _way_to_inputs(x: NDArray[Any]) -> str:
    """How to make inputs of other whole numbers."""
    if x.dtype.kind in "iu" and x.ndim > 2 and x.min() >= 0 and x.max() <= 255:
        return "; x.astype(np.uint8) makes images of them"
    if x.dtype.kind in "OUS":
        return "; make numbers of columns of text, or leave them out"
    return "; x.astype(np.float32) makes features of them" if x.dtype.kind in "iub" else ""


def _way_to_labels(y: NDArray[Any]) -> str:
    """How to make labels of what is often taken for them."""
    if y.ndim == 2 and y.shape[1] == 1:
        return "; y[:, 0] is the vector"
    if y.ndim == 2 and y.dtype.kind in "biuf" and y.size and ((y == 0) | (y == 1)).all() and (y.sum(1) == 1).all():
        return "; y.argmax(1) are the labels of one-hot rows"
    if y.ndim == 1 and y.dtype.kind in "bf" and np.isfinite(y).all() and (y == np.round(y)).all():
        return "; y.astype(np.int64) are the labels"
    return "; number the classes from 0: np.unique(y, return_inverse=True)[1]" if y.ndim == 1 and y.dtype.kind in "OUS" else ""


def _finite(x: NDArray[Any], where: str) -> NDArray[np.float32]:
    """Features as float32, if they fit in it."""
    with np.errstate(over="ignore"):
        single = x.astype(np.float32)
    if len(bad := np.flatnonzero(~np.isfinite(single).reshape(len(single), -1).all(1))):
        fault = "inputs must be finite" if not np.isfinite(x[bad[0]]).all() else "inputs must be within float32 (3.4e38)"
        raise DataError(f"{where}: {fault}; example {bad[0]} is not ({len(bad)} such)")
    return single
