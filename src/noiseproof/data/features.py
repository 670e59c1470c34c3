"""From what a person hands in to what learners read: the encoder of a table's columns, small images, one common scale."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from noiseproof.data.dataset import Dataset, Examples
from noiseproof.data.table_encoder import TableEncoder
from noiseproof.io.files import DataError
from noiseproof.io.text import excerpt

MIN_SCALE = 1e-12
IMAGE_SIDE, MAX_FILE_SIDE = 32, 64
"""Larger images are averaged over squares, to about the first. Image files are resized to it, unless all have one size up to
the second"""
BLOCK_NUMBERS = 2**24


@dataclass(frozen=True)
class Features:
    """How inputs become features: columns are centred and divided by one number, so that distances keep their meaning.

    Args:
        centre: The mean ``[D]`` of the training rows; of images that of each channel.
        scale: The root mean square of what is left, over all columns.
        encoder: Makes numbers of a table's columns; None for arrays.
        label: What the column of labels is called in a table.
        shape: Of one input that is an array.
        averaged: The side of the squares of pixels whose mean is one pixel for the learners; None where inputs are no images.

    >>> from noiseproof.data import Split
    >>> features = Features.of(Dataset("xor", Split(np.eye(2, dtype=np.float32), np.array([0, 1])), None, ("a", "b")))
    >>> features.transform_inputs(np.eye(2, dtype=np.float32)).tolist()
    [[1.0, -1.0], [-1.0, 1.0]]
    """

    centre: NDArray[np.float32]
    scale: float
    encoder: TableEncoder | None
    label: str | None
    shape: tuple[int, ...]
    averaged: int | None = None

    @classmethod
    def of(cls, dataset: Dataset) -> Self:
        """Fitted to the training rows of a data set in memory."""
        if not dataset.train.in_memory:
            raise DataError(f"{dataset.name}: images of files must be read first")
        inputs, table = dataset.train.inputs, dataset.table
        images = dataset.train.kind == "images"
        averaged = max(1, round(max(inputs.shape[1:3]) / IMAGE_SIDE)) if images else None
        columns = (inputs.shape[3] if inputs.ndim == 4 else 1) if images else int(np.prod(inputs.shape[1:]))
        found = cls(
            np.zeros(columns, np.float32),
            1.0,
            None if table is None else table.encoder,
            None if table is None else table.label,
            inputs.shape[1:],
            averaged,
        )
        step = max(1, BLOCK_NUMBERS // int(np.prod(inputs.shape[1:])))
        blocks = [slice(start, start + step) for start in range(0, len(inputs), step)]
        total, squares, count = np.zeros(columns), 0.0, 0
        for part in blocks:
            x = found.transform_inputs(inputs[part]).reshape(-1, columns)
            total += x.sum(0, dtype=np.float64)
            count += len(x)
        found = replace(found, centre=(total / count).astype(np.float32))
        for part in blocks:
            squares += float(np.square(found.transform_inputs(inputs[part]), dtype=np.float64).sum())
        return replace(found, scale=max(float(np.sqrt(squares / (count * columns))), MIN_SCALE))

    def transform_inputs(self, inputs: NDArray[Any]) -> NDArray[np.float32]:
        """Features ``[n, D]`` of arrays, or of what the encoder has made of a table; images ``[n, H, W, C]`` of images."""
        if self.averaged is None:
            found = np.array(inputs.reshape(len(inputs), -1), np.float32)
        else:
            pixels = inputs[..., None] if inputs.ndim == 3 else inputs
            side = self.averaged
            height, width = (size // side for size in pixels.shape[1:3])
            squares = pixels[:, : height * side, : width * side].reshape(len(inputs), height, side, width, side, -1)
            found = squares.mean((2, 4), dtype=np.float32)
        if found.shape[-1] != len(self.centre):
            read = "features" if self.averaged is None else "channels"
            raise DataError(f"the model reads {len(self.centre)} {read}, got {found.shape[-1]}")
        found -= self.centre
        found /= np.float32(self.scale)
        return found

    def arrays_of(self, examples: Examples) -> NDArray[Any]:
        """The inputs of examples as arrays of the shape of training: image files are decoded and resized."""
        if examples.in_memory:
            return examples.inputs
        if self.averaged is None:
            raise DataError("the model was trained on features, and these are images; predict their features")
        from noiseproof.data.loader import in_memory_at

        found = in_memory_at(Dataset("new", examples, None, ("a", "b")), (self.shape[0], self.shape[1]), keep_rgb=True).train
        if not found.in_memory:
            raise DataError(f"{len(examples)} images are too many to be in memory at once; predict a part of them at a time")
        return found.inputs[..., : len(self.centre)]

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """As JSON and arrays."""
        facts: dict[str, Any] = {"scale": self.scale, "label": self.label, "shape": list(self.shape), "encoder": None}
        facts["averaged"] = self.averaged
        arrays: dict[str, NDArray[Any]] = {"centre": self.centre}
        if self.encoder is not None:
            facts["encoder"], own = self.encoder.state()
            arrays |= {f"encoder.{name}": array for name, array in own.items()}
        return facts, arrays

    @classmethod
    def from_state(cls, facts: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """From its state; runs no code of the file that contains it."""
        try:
            own = {name.partition(".")[2]: array for name, array in arrays.items() if name.startswith("encoder.")}
            encoder = None if facts["encoder"] is None else TableEncoder.from_state(facts["encoder"], own)
            centre, scale = arrays["centre"], float(facts["scale"])
            label, shape = facts["label"], tuple(int(size) for size in facts["shape"])
            averaged = None if facts.get("averaged") is None else int(facts["averaged"])
            if centre.dtype != np.float32 or centre.ndim != 1 or not np.isfinite(centre).all() or not 0 < scale < np.inf:
                raise ValueError("the scale of the features must be finite numbers")
            columns = int(np.prod(shape)) if averaged is None else 1 if len(shape) == 2 else shape[-1]
            if columns != len(centre) or not (label is None or isinstance(label, str)):
                raise ValueError(f"{len(centre)} features of shape {shape}")
            if averaged is not None and not (len(shape) in (2, 3) and 1 <= averaged <= min(shape[:2])):
                raise ValueError(f"images of shape {shape} averaged over squares of {averaged} pixels")
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise DataError(f"how a model reads its inputs is damaged: {excerpt(error, 200)}") from error
        return cls(centre, scale, encoder, label, shape, averaged)


def small_images(dataset: Dataset) -> Dataset:
    """A data set of image files with the images in memory, resized for small networks; others as they are."""
    if dataset.train.in_memory:
        return dataset
    from noiseproof.data.loader import common_size, in_memory_at

    found = in_memory_at(dataset, common_size(dataset, at_most=MAX_FILE_SIDE) or (IMAGE_SIDE, IMAGE_SIDE))
    if not found.train.in_memory:
        raise DataError(
            f"{dataset.name}: {len(dataset.train):,} images are too many for networks from scratch; fit their features, which "
            "--encoder makes with a pretrained network"
        )
    return found
