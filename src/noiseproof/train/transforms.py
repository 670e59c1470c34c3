"""From the inputs of a data set to those of a network: the named augmentations with their normalisation, and standardising."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from noiseproof.data import (
    IMAGENET,
    Augment,
    ColorJitter,
    DataError,
    Examples,
    Framing,
    Normalize,
    Pipeline,
    RandomResizedCrop,
    ResizeCenterCrop,
    ResizeCrop,
    Split,
    evaluation,
)
from noiseproof.data.augment import Output
from noiseproof.data.operations import HorizontalFlip, Operation, RandomCrop, Size
from noiseproof.data.registry import AUGMENTATIONS, find_augmentation, register_augmentation

__all__ = ["BASIC_AUGMENTATIONS", "Standardise", "Transforms", "check_augmentation", "photograph_augment"]

BASIC_AUGMENTATIONS: dict[str, tuple[Operation, ...]] = {
    "none": (),
    "flip": (HorizontalFlip(),),
    "crop-flip": (RandomCrop(padding=4), HorizontalFlip()),
}
"""Augmentations that normalise by the mean and deviation of the training images, or by ImageNet's where the images are files.
Others are registered by name, with a normalisation of their own."""


def photograph_augment(*, cropped: bool = False, **output: Unpack[Output]) -> Augment:
    """Random resized crop to 224, flip, colour jitter; ``cropped`` leaves out the first, for images already cropped."""
    first = () if cropped else (RandomResizedCrop(size=224),)
    return Augment((*first, HorizontalFlip(), ColorJitter(0.4, 0.4, 0.4, 0.2)), *IMAGENET, **output)


def _photographs(*, in_files: bool, size: Size | None, output: Output) -> Pipeline:
    if not in_files:
        return Pipeline(photograph_augment(**output), evaluation(*IMAGENET, resize=256, **output))
    if size is not None and size[0] != size[1]:
        raise ValueError(f"augment 'webvision' makes squares, size must be one number, got {size[0]}x{size[1]}")
    part = RandomResizedCrop(224 if size is None else size[0])
    centre: Framing = ResizeCenterCrop(256, 224) if size is None else ResizeCrop(*size)
    return Pipeline(photograph_augment(cropped=True, **output), evaluation(*IMAGENET, **output), part, centre)


register_augmentation("webvision", _photographs)  # the default for image files, named after the data set that it was made for


def check_augmentation(name: str) -> None:
    """A ValueError unless an augmentation has this name."""
    try:
        _ = name in BASIC_AUGMENTATIONS or find_augmentation(name)
    except KeyError:
        names = ", ".join((*BASIC_AUGMENTATIONS, *AUGMENTATIONS))
        raise ValueError(f"augment must be one of {names}, got {name!r}") from None


ROWS_AT_ONCE = 4096
"""Examples that are converted to float64 at a time"""


@dataclass(frozen=True)
class Standardise:
    """``(x - mean) / std`` of each column, or of each channel of floating images; 0 where ``std`` is 0, a constant column.

    With one scale, mean and deviation are those of all columns together: their proportions stay, as those of pixels should.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]
    shape: tuple[int, ...]
    """That the statistics are broadcast in, without the first dimension"""

    @staticmethod
    def of(split: Split, global_scaling: bool = False) -> Standardise:
        """The statistics of a split, in float64: of two passes, exact for columns far from zero as well."""
        inputs = split.inputs
        axes = (0, 2, 3) if split.channels is not None else (0,)
        shape = tuple(1 if axis in axes else size for axis, size in enumerate(inputs.shape))[1:]
        mean = inputs.mean(axes, dtype=np.float64, keepdims=True)
        if global_scaling:
            mean[:] = mean.mean()
        square = sum(((part - mean) ** 2).sum(axes, keepdims=True) for part in _parts(inputs))
        std = np.sqrt(square / (inputs.size / mean.size))
        if global_scaling:
            std[:] = np.sqrt((std**2).mean())
        # Rounding of the mean leaves a constant column a deviation that is not quite 0.
        std[inputs.min(axes, keepdims=True) == inputs.max(axes, keepdims=True)] = 0
        return Standardise(tuple(mean.ravel().tolist()), tuple(std.ravel().tolist()), shape)

    def __call__(self, inputs: NDArray[Any]) -> NDArray[np.float32]:
        """Float32. A column that is constant in training is 0 everywhere: nothing was learned of other values."""
        mean, std = (np.array(values).reshape(self.shape) for values in (self.mean, self.std))
        scale = np.divide(1, std, out=np.zeros_like(std), where=std > 0)
        made = np.empty(inputs.shape, np.float32)
        with np.errstate(over="ignore"):
            for start, part in zip(range(0, len(inputs), ROWS_AT_ONCE), _parts(inputs), strict=True):
                made[start : start + ROWS_AT_ONCE] = (part - mean) * scale
        if len(bad := np.flatnonzero(~np.isfinite(made).reshape(len(made), -1).all(1))):
            raise DataError(
                f"example {bad[0]} is too far from the training examples to be standardised in float32; correct it, or set "
                "standardise=false"
            )
        return made


def _parts(inputs: NDArray[Any]) -> Iterator[NDArray[np.float64]]:
    for start in range(0, len(inputs), ROWS_AT_ONCE):
        yield inputs[start : start + ROWS_AT_ONCE].astype(np.float64)


@dataclass(frozen=True)
class Transforms:
    """How inputs are prepared for training and for evaluation."""

    train: Augment | None
    test: Augment | None
    train_framing: Framing | None = None
    test_framing: Framing | None = None
    standardise: Standardise | None = None
    """Of features, which are otherwise not changed"""

    @staticmethod
    def named(
        name: str,
        split: Examples,
        *,
        standardise: bool = False,
        global_scaling: bool = False,
        size: Size | None = None,
        **output: Unpack[Output],
    ) -> Transforms:
        """What a recipe's ``augment``, ``standardise``, ``global_scaling`` and ``size`` are for its training examples.

        ``output`` is the dtype and memory format of the result.
        """
        check_augmentation(name)
        if standardise and split.kind != "features":
            raise ValueError("standardise is for features; images are normalised by their augmentation: standardise=false")
        if split.kind == "features":
            if name != "none":
                raise ValueError(f"augment {name!r} is for images; these inputs are features: use none")
            return Transforms(None, None, standardise=Standardise.of(split, global_scaling) if standardise else None)
        if name not in BASIC_AUGMENTATIONS:
            return Transforms(*find_augmentation(name)(in_files=split.kind == "files", size=size, output=output))
        if split.kind == "files":
            centre: Framing = ResizeCenterCrop(256, 224) if size is None else ResizeCrop(*size)
            train = Augment(BASIC_AUGMENTATIONS[name], *IMAGENET, **output)
            return Transforms(train, evaluation(*IMAGENET, **output), centre, centre)
        normalize = _statistics(split)
        return Transforms(Augment(BASIC_AUGMENTATIONS[name], *normalize, **output), evaluation(*normalize, **output))

    def facts(self, split: Examples) -> dict[str, Any]:
        """What evaluation does to an input, in words and numbers that a record keeps."""
        if self.standardise is not None:
            facts = self.standardise
            return {"kind": "features", "standardise": {"mean": list(facts.mean), "std": list(facts.std)}}
        if self.test is None:
            return {"kind": "features"}
        found: dict[str, Any] = {"kind": "images", "channels": len(self.test.mean)}
        if self.test_framing is not None:
            found["framing"] = repr(self.test_framing)
            size = self.test_framing.frame_size
        elif split.in_memory:
            size = split.inputs.shape[1], split.inputs.shape[2]
        if operations := self.test.operations:
            found["operations"] = [repr(operation) for operation in operations]
        found["size"] = list(self.test.sizes(size)[-1])
        return {**found, "scale": 1 / 255, "mean": list(self.test.mean), "std": list(self.test.std)}


def _statistics(split: Split) -> Normalize:
    """Mean and deviation of each channel, exact: from the counts of the 256 values."""
    values = np.arange(256) / 255
    mean, std = [], []
    for channel in np.moveaxis(split.inputs, -1, 0):
        share = np.bincount(channel.reshape(-1), minlength=256) / channel.size
        mean.append(float(share @ values))
        std.append(float(np.sqrt(share @ (values - mean[-1]) ** 2)) or 1.0)
    return Normalize(tuple(mean), tuple(std))


def as_tensor(split: Split) -> Tensor:
    """Inputs as a network takes them: images ``[N, C, H, W]`` uint8, features float32."""
    # A copy where torch takes no view: of an array that is mirrored, or BGR turned to RGB by [..., ::-1], or read-only.
    inputs = torch.from_numpy(np.require(split.inputs, requirements=("C", "W")))
    return inputs.permute(0, 3, 1, 2).contiguous() if inputs.dtype == torch.uint8 and inputs.ndim == 4 else inputs
