"""The examples of one split, inputs in memory or image files, under one interface."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["DataError", "Examples", "ImageFiles", "Split", "held_out", "in_memory"]


class DataError(ValueError):
    """A file does not hold what it should; the message names the file and the fault."""


@dataclass(frozen=True)
class Split:
    """Examples in memory: images ``[N, H, W, C]`` uint8 or features ``[N, ...]`` float32, and int64 labels ``[N]``."""

    inputs: NDArray[Any]
    labels: NDArray[np.int64]
    paths: tuple[str, ...] | None = None
    """Of image files that were decoded"""
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
        """The examples at these integer indices, or where a boolean mask is true."""
        chosen = _positions(len(self), indices)
        paths = None if self.paths is None else tuple(self.paths[k] for k in chosen)
        return Split(self.inputs[chosen], self.labels[chosen], paths)

    def with_labels(self, labels: ArrayLike) -> Split:
        """The same inputs with other labels, one for each."""
        return Split(self.inputs, checked_labels(labels, len(self), "example"), self.paths)


@dataclass(frozen=True, eq=False)
class ImageFiles:
    """Examples that are image files: a path for each, as text, and int64 labels ``[N]``. A million paths take about 120 MB."""

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
        chosen = _positions(len(self), indices)
        return ImageFiles(tuple(self.paths[k] for k in chosen), self.labels[chosen])

    def with_labels(self, labels: ArrayLike) -> ImageFiles:
        return dataclasses.replace(self, labels=np.asarray(labels))


Examples = Split | ImageFiles
"""Both have ``labels``, ``len()``, ``channels``, ``take`` and ``with_labels``; a type checker tells them apart by ``in_memory``
and ``kind``."""


def in_memory(examples: Examples) -> Split:
    """The examples if they hold their inputs; a TypeError if they are files."""
    if not examples.in_memory:
        raise TypeError(f"the inputs must be in memory, got {examples!r}; ImageLoader reads files batch by batch")
    return examples


def held_out(labels: NDArray[np.int64], share: float) -> NDArray[np.bool_]:
    """A mask of examples to test on: the share of every class, to within one example, and the same ones for every seed.

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
