"""From the inputs of a data set to those of a network: the named augmentations with their normalisation, and standardising."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from noiseproof.data import (
    Augment,
    Centre,
    Cover,
    DataError,
    Examples,
    Framing,
    Normalize,
    RandomPart,
    Split,
    Squash,
    augment,
    evaluation,
)  # fmt: skip
from noiseproof.data.image_operation import Operation, Size
from noiseproof.data.indexing import HorizontalFlip, RandomCrop

__all__ = ["AUGMENTATIONS", "Standardise", "Transforms", "check_augmentation"]

PRESETS: dict[str, tuple[Callable[..., Augment], Normalize]] = {
    "cifar10": (augment.cifar10_augment, augment.CIFAR10),
    "cifar100": (augment.cifar100_augment, augment.CIFAR100),
    "webvision": (augment.webvision_augment, augment.IMAGENET),
    "clothing1m": (augment.clothing1m_augment, augment.CLOTHING1M),
}
SIMPLE: dict[str, tuple[Operation, ...]] = {
    "none": (),
    "flip": (HorizontalFlip(),),
    "crop-flip": (RandomCrop(padding=4), HorizontalFlip()),
}
AUGMENTATIONS = (*SIMPLE, *PRESETS)
"""The names for recipes. ``none``, ``flip`` and ``crop-flip`` (padding 4) normalise by the mean and deviation of the training
images, or by ImageNet's where the images are files; the others are the paper's."""


def check_augmentation(name: str) -> None:
    if name not in AUGMENTATIONS:
        raise ValueError(f"augment must be one of {', '.join(AUGMENTATIONS)}, got {name!r}")


ROWS = 4096
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
            for start, part in zip(range(0, len(inputs), ROWS), _parts(inputs), strict=True):
                made[start : start + ROWS] = (part - mean) * scale
        if len(bad := np.flatnonzero(~np.isfinite(made).reshape(len(made), -1).all(1))):
            raise DataError(
                f"example {bad[0]} is too far from the training examples to be standardised in float32; correct it, or set "
                "standardise=false"
            )
        return made


def _parts(inputs: NDArray[Any]) -> Iterator[NDArray[np.float64]]:
    for start in range(0, len(inputs), ROWS):
        yield inputs[start : start + ROWS].astype(np.float64)


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
        **output: Any,
    ) -> Transforms:
        """What a recipe's ``augment``, ``standardise``, ``global_scaling`` and ``size`` are for its training examples.

        ``output`` is the dtype and memory format of the result.
        """
        check_augmentation(name)
        if standardise and split.kind != "features":
            raise ValueError("standardise is for features; images are normalised by their augmentation: standardise=false")
        if split.kind == "files":
            return _for_files(name, size, **output)
        if split.kind == "features":
            if name != "none":
                raise ValueError(f"augment {name!r} is for images; these inputs are features: use none")
            return Transforms(None, None, standardise=Standardise.of(split, global_scaling) if standardise else None)
        if name in PRESETS:
            preset, normalize = PRESETS[name]
            resize = 256 if name in ("webvision", "clothing1m") else None
            return Transforms(preset(**output), evaluation(*normalize, resize=resize, **output))
        normalize = _statistics(split)
        return Transforms(Augment(SIMPLE[name], *normalize, **output), evaluation(*normalize, **output))

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
            size = self.test_framing.output_size
        elif split.in_memory:
            size = split.inputs.shape[1], split.inputs.shape[2]
        if operations := self.test.operations:
            found["operations"] = [repr(operation) for operation in operations]
        found["size"] = list(self.test.sizes(size)[-1])
        return {**found, "scale": 1 / 255, "mean": list(self.test.mean), "std": list(self.test.std)}


def _for_files(name: str, size: Size | None, **output: Any) -> Transforms:
    if name in ("cifar10", "cifar100"):
        raise ValueError(
            f"augment {name!r} is for images of 32x32 in memory; for image files use webvision, clothing1m or none"
        )
    if name == "clothing1m":
        if size is not None:
            raise ValueError("augment 'clothing1m' crops to 224x224; with size=none, or use another augment with your size")
        squash, test = Squash(256, 256), evaluation(*augment.CLOTHING1M, resize=256, **output)
        return Transforms(augment.clothing1m_augment(**output), test, squash, squash)
    centre: Framing = Centre(256, 224) if size is None else Cover(*size)
    test = evaluation(*augment.IMAGENET, **output)
    if name == "webvision":
        if size is not None and size[0] != size[1]:
            raise ValueError(f"augment 'webvision' makes squares, size must be one number, got {size[0]}x{size[1]}")
        part = RandomPart(224 if size is None else size[0])
        return Transforms(augment.webvision_augment(cropped=True, **output), test, part, centre)
    return Transforms(Augment(SIMPLE[name], *augment.IMAGENET, **output), test, centre, centre)


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
