"""How the inputs of a trained network are prepared, rebuilt from the facts that its run kept."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from noiseproof.data import Augment, DataError, Examples, Framing, ImageFiles, ImageLoader, Split
from noiseproof.data.columns import IMAGE_EXTENSIONS
from noiseproof.data.operations import Resize, ResizeCenterCrop, ResizeCrop
from noiseproof.io.text import excerpt
from noiseproof.train.batch_loader import (
    EVALUATION_BATCH,
    EVALUATION_NUMBERS,
    FILES_BATCH,
    Batch,
    MemoryLoader,
    Standardise,
    Transforms,
)

FRAMINGS: dict[str, type[Framing]] = {
    **{"ResizeCenterCrop": ResizeCenterCrop, "ResizeCrop": ResizeCrop, "Resize": Resize},
    **{"Centre": ResizeCenterCrop, "Cover": ResizeCrop, "Squash": Resize},  # in older records
}
OPERATIONS = {"ResizeCenterCrop": ResizeCenterCrop}
RESIZE_PATTERN = re.compile(r"(\w+)\((\w+)=([0-9]{1,5}), (\w+)=([0-9]{1,5})\)")
MAX_PIXELS = 2**24
"""Of an image that a file of weights may ask for: the file must not decide how much memory is taken"""
MAX_CHANNELS = 4


@dataclass(frozen=True)
class Preprocessing:
    """What evaluation does to an example: standardising of features; resizing and normalising of images."""

    kind: Literal["features", "images"]
    shape: tuple[int, ...] | None
    """Of one example in an array, ``[D]`` or ``[H, W, C]``; None if the run did not keep it"""
    augment: Augment | None = None
    """For images"""
    framing: Framing | None = None
    """For networks that were trained on image files, batch by batch"""
    statistics: tuple[tuple[float, ...], tuple[float, ...]] | None = None
    """Mean and deviation, for features that are standardised"""

    @staticmethod
    def of(facts: Any, shape: Any, memory_format: torch.memory_format = torch.contiguous_format) -> Preprocessing:
        """From what :meth:`Transforms.facts` gave and the shape of an example; a ValueError says what is wrong with them."""
        _check("the preprocessing", isinstance(facts, Mapping), facts)
        known = None if shape is None else _whole_numbers("the inputs' shape", shape)
        if facts.get("kind") == "features":
            features = Preprocessing("features", known, statistics=_statistics(facts.get("standardise")))
            if known is not None:
                features.transforms(known)
            return features
        _check("the kind of inputs", facts.get("kind") == "images", facts.get("kind"))
        mean, std = _numbers("mean", facts.get("mean")), _numbers("std", facts.get("std"))
        _check("the number of channels", len(mean) <= MAX_CHANNELS, len(mean))
        operations = facts.get("operations", [])
        _check("the operations", isinstance(operations, list) and len(operations) <= 1, operations)
        made = [_written(OPERATIONS, text) for text in operations]
        _check("an enlargement", all(one.resize <= 2 * one.size and one.size**2 <= MAX_PIXELS for one in made), operations)
        augment = Augment(made, mean, std, memory_format=memory_format)
        framing: Framing | None = _written(FRAMINGS, facts["framing"]) if "framing" in facts else None
        if framing is not None:
            known = *framing.frame_size, len(mean)
        elif not made:
            known = *_whole_numbers("the images' size", facts.get("size")), len(mean)
        if known is not None:
            _check(
                "the shape of an image", len(known) == 3 and known[2] == len(mean) and math.prod(known[:2]) <= MAX_PIXELS, known
            )
        return Preprocessing("images", known, augment, framing)

    @property
    def network_shape(self) -> tuple[int, ...] | None:
        """Of one example as the network reads it, ``[D]`` or ``[C, H, W]``."""
        if self.shape is None or self.augment is None:
            return self.shape
        return self.shape[2], *self.augment.sizes((self.shape[0], self.shape[1]))[-1]

    def transforms(self, shape: Sequence[int]) -> Transforms:
        """Those of evaluation, for examples of this shape."""
        if self.statistics is None:
            return Transforms(None, self.augment)
        # As Standardise.of: floating images [C, H, W] have the statistics of their channels, others those of each number.
        axes = (shape[0], 1, 1) if len(shape) == 3 else tuple(shape)
        if math.prod(axes) != len(self.statistics[0]):
            raise DataError(f"examples must have {len(self.statistics[0])} features, as in training, got shape {tuple(shape)}")
        return Transforms(None, None, standardise=Standardise(*self.statistics, axes))

    def batches(self, examples: Examples, device: torch.device, *, workers: int = 0) -> Iterator[Batch]:
        """The examples in order, as a run evaluates them, in batches of the same size."""
        if examples.in_memory:
            split = self._checked(examples)
            transforms = self.transforms(split.inputs.shape[1:])
            yield from MemoryLoader(split, transforms, batch=1, seed=0, device=device).eval_batches()
        else:
            yield from self._from_files(examples, device, workers)

    def _checked(self, split: Split) -> Split:
        """The examples, grey images ``[N, H, W]`` with their channel; an error that says what the network reads."""
        got = f"got {split.inputs.dtype} of shape {split.inputs.shape}"
        if self.kind == "features":
            wanted = "floating features" if self.shape is None else f"floating features [N, {_sizes(self.shape)}]"
            if split.kind != "features" or (self.shape is not None and split.inputs.shape[1:] != self.shape):
                raise DataError(f"the network was trained on {wanted}, {got}")
            return split
        if split.kind == "images" and split.inputs.ndim == 3:
            split = Split(split.inputs[..., None], split.labels)
        wanted = f"images uint8 [N, {_sizes(self.shape or ('H', 'W', self._channels))}]"
        fits = split.inputs.shape[1:] == self.shape if self.shape else split.channels == self._channels
        if split.kind != "images" or not fits:
            raise DataError(f"the network was trained on {wanted}, from 0 to 255, {got}")
        return split

    @property
    def _channels(self) -> int:
        return len(self.augment.mean) if self.augment is not None else 0

    def _from_files(self, files: ImageFiles, device: torch.device, workers: int) -> Iterator[Batch]:
        if self.augment is None:
            features = "features" if self.shape is None else f"features [N, {_sizes(self.shape)}]"
            path = files.paths[0]
            if Path(path).suffix.lower() not in IMAGE_EXTENSIONS:
                way = f"'noiseproof predict' reads files, and this takes arrays and data frames, got {excerpt(path)!r}"
                raise DataError(f"the network was trained on {features}: {way}")
            raise DataError(f"the network was trained on {features}, and {excerpt(path)} is an image file")
        if self.shape is None or self._channels not in (1, 3):
            raise DataError(f"the network was trained on images of {self._channels} channels in arrays; give it such an array")
        framing = self.framing or ResizeCrop(*self.shape[:2])
        # Batches as the run's own: one that decoded its files into memory evaluates them as it does arrays.
        one = max(math.prod(self.network_shape or ()), math.prod(self.shape))
        most = (FILES_BATCH, 4 * EVALUATION_NUMBERS // one) if self.framing else (EVALUATION_BATCH, EVALUATION_NUMBERS // one)
        asked: dict[str, Any] = {"seed": 0, "shuffle": False, "workers": workers, "device": device}
        loader = ImageLoader(files, framing, batch_size=max(1, min(most)), **asked)
        try:
            for images, labels, indices in loader.epoch(0):
                taken = self._grey(images, indices, files) if self._channels == 1 else images
                yield Batch(self.augment(taken), labels, indices)
        finally:
            loader.close()

    def _grey(self, images: Tensor, indices: Tensor, files: ImageFiles) -> Tensor:
        grey = (images[:, :1] == images[:, 1:]).flatten(1).all(1)
        if not grey.all():
            path = files.paths[int(indices[~grey][0])]
            raise DataError(f"{path}: in colour, and the network was trained on grey images: convert it to grey")
        # In memory as arrays are: torch chooses a kernel by the strides, also by those of a single channel.
        return images.permute(0, 2, 3, 1)[..., :1].contiguous().permute(0, 3, 1, 2)


def _written(known: Mapping[str, type[Any]], text: Any) -> Any:
    """One of the known classes from its ``repr``, of two whole numbers. Nothing is evaluated."""
    found = RESIZE_PATTERN.fullmatch(text) if isinstance(text, str) else None
    _check("a way to resize images", found is not None and found[1] in known, text)
    name, first, one, second, two = found.groups()  # type: ignore[union-attr] # checked
    try:
        return known[name](**{first: int(one), second: int(two)})
    except TypeError as error:
        raise ValueError(f"{excerpt(text)} is no way to resize images: {error}") from error


def _statistics(facts: Any) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    if facts is None:
        return None
    _check("the statistics of the features", isinstance(facts, Mapping), facts)
    mean, std = _numbers("mean", facts.get("mean")), _numbers("std", facts.get("std"))
    if len(mean) != len(std) or min(std) < 0:
        raise ValueError(f"the {len(mean)} means must have as many deviations of at least 0, found {excerpt(repr(std))}")
    return mean, std


def _numbers(name: str, values: Any) -> tuple[float, ...]:
    sound = isinstance(values, list) and bool(values) and all(type(value) in (int, float) for value in values)
    _check(name, sound and all(abs(value) <= sys.float_info.max for value in values), values)
    return tuple(map(float, values))


def _whole_numbers(name: str, values: Any) -> tuple[int, ...]:
    sound = isinstance(values, list) and bool(values) and all(type(value) is int and 0 < value < 2**31 for value in values)
    _check(name, sound, values)
    return tuple(values)


def _check(name: str, sound: bool, value: Any) -> None:
    if not sound:
        raise ValueError(f"{name} cannot be {excerpt(repr(value))}")


def _sizes(shape: Sequence[object]) -> str:
    return ", ".join(map(str, shape))
