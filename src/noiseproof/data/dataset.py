"""A data set as a value: inputs in memory or image files, labels, what the classes are called, and where it came from."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    from noiseproof.data.images import ImageFiles

__all__ = ["DataError", "Dataset", "Split", "class_names", "from_arrays", "in_memory", "load_digits", "load_npz", "sha256"]


MOST_CLASSES = 2**20
"""A label beyond this is a slip: naming so many classes would fill the memory."""


class DataError(ValueError):
    """A file does not hold what it should; the message names the file and the fault."""


@dataclass(frozen=True)
class Split:
    """Examples of one split: images ``[N, H, W, C]`` uint8 or features ``[N, ...]`` float32, and int64 labels ``[N]``."""

    inputs: NDArray[Any]
    labels: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class Dataset:
    """A named data set. ``sources`` has the SHA-256 of every file that was read, by its name.

    A split holds its inputs (:class:`Split`) or the paths of its images (:class:`~noiseproof.data.images.ImageFiles`);
    :func:`in_memory` is for code that needs the inputs.
    """

    name: str
    train: Split | ImageFiles
    test: Split | ImageFiles | None
    classes: tuple[str, ...]
    sources: dict[str, str] = field(default_factory=dict)
    other_tests: dict[str, Split | ImageFiles] = field(default_factory=dict)
    """Further examples to test on, of the same classes, by name"""

    @property
    def splits(self) -> dict[str, Split | ImageFiles]:
        test = {} if self.test is None else {"test": self.test}
        return {"train": self.train, **test, **self.other_tests}

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name} {len(split)}" for name, split in self.splits.items())
        inputs = f"inputs {self.train.inputs.shape[1:]}" if isinstance(self.train, Split) else "images in files"
        return f"Dataset({self.name}: {len(self.classes)} classes, {sizes}, {inputs})"


def in_memory(split: Split | ImageFiles) -> Split:
    """The split itself if it holds its inputs; a TypeError if they are files."""
    if not isinstance(split, Split):
        raise TypeError(f"the inputs must be in memory, got {split!r}; ImageLoader reads files batch by batch")
    return split


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
    """A data set from arrays; labels are class indices, and class names default to their numbers.

    >>> from_arrays(np.zeros((4, 3)), [0, 1, 1, 0])
    Dataset(arrays: 2 classes, train 4, inputs (3,))
    """
    if (test_inputs is None) != (test_labels is None):
        raise DataError(f"{name}: test inputs and test labels go together")
    count = len(classes) if classes is not None else None
    train = _split(inputs, labels, count, f"{name}, training split")
    test = (
        None if test_inputs is None or test_labels is None else _split(test_inputs, test_labels, count, f"{name}, test split")
    )
    if test is not None and test.inputs.shape[1:] != train.inputs.shape[1:]:
        raise DataError(
            f"{name}: inputs are {train.inputs.shape[1:]} in training and {test.inputs.shape[1:]} in the test split"
        )
    if classes is None:
        largest = max(int(split.labels.max(initial=0)) for split in (train, test) if split is not None)
        classes = tuple(str(k) for k in range(largest + 1))
    return Dataset(name, train, test, classes, sources or {})


def load_npz(path: str | Path) -> Dataset:
    """A data set from an ``.npz`` file with ``x`` and ``y``, and ``x_test`` and ``y_test`` if there is a test split."""
    path = Path(path)
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {key: archive[key] for key in archive.files}
    except FileNotFoundError:
        raise
    except Exception as error:  # zipfile, zlib and NumPy raise many kinds for a damaged file
        raise DataError(f"{path}: not a readable .npz file: {error}") from error
    missing = [key for key in ("x", "y") if key not in arrays]
    if missing:
        raise DataError(f"{path}: no array named {missing[0]!r}; it has {', '.join(sorted(arrays)) or 'none'}")
    return from_arrays(
        arrays["x"], arrays["y"], arrays.get("x_test"), arrays.get("y_test"), name=path.stem, sources={path.name: sha256(path)}
    )


def load_digits(test_size: int = 500, seed: int = 0) -> Dataset:
    """Scikit-learn's 1,797 handwritten digits of 8x8 pixels as 64 features in [0, 1]; the embedded data set."""
    from sklearn import datasets

    features, labels = datasets.load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(labels))
    features, labels = (features[order] / 16).astype(np.float32), labels[order]
    test, train = slice(None, test_size), slice(test_size, None)
    return from_arrays(features[train], labels[train], features[test], labels[test], name="digits")


def class_names(name: str) -> tuple[str, ...]:
    """What the classes of a well-known data set are called, in the order of its labels."""
    facts = json.loads(resources.files("noiseproof").joinpath("classes.json").read_text(encoding="utf-8"))
    return tuple(facts[name]["classes"])


def sha256(path: Path) -> str:
    """Of a file, read in pieces."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(2**20):
            digest.update(piece)
    return digest.hexdigest()


def _split(inputs: ArrayLike, labels: ArrayLike, classes: int | None, where: str) -> Split:
    x, y = np.asarray(inputs), np.asarray(labels)
    if y.ndim != 1 or y.dtype.kind not in "iu":
        raise DataError(f"{where}: labels must be a vector of integers, got {y.dtype} of shape {y.shape}")
    if len(x) != len(y):
        raise DataError(f"{where}: {len(x)} inputs for {len(y)} labels")
    if not len(y):
        raise DataError(f"{where}: no examples")
    most = classes or MOST_CLASSES
    if y.min() < 0 or y.max() >= most:
        raise DataError(f"{where}: labels must be in [0, {most - 1}], got {int(y.min() if y.min() < 0 else y.max())}")
    if x.ndim < 2:
        raise DataError(f"{where}: inputs must be [N, ...], got shape {x.shape}")
    if x.dtype.kind == "f":
        bad = np.flatnonzero(~np.isfinite(x).reshape(len(x), -1).all(1))
        if len(bad):
            raise DataError(f"{where}: inputs must be finite; example {bad[0]} is not ({len(bad)} such)")
        x = x.astype(np.float32)
    elif x.dtype != np.uint8:
        raise DataError(f"{where}: inputs must be uint8 images or floating features, got {x.dtype}")
    return Split(x, y.astype(np.int64))
