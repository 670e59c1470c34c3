"""The named augmentations, each with its normalisation: from the inputs of a data set to those of a network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from noiseproof.data import Augment, Centre, Examples, Framing, Normalize, RandomPart, Split, Squash, augment, evaluation
from noiseproof.data.image_operation import Operation
from noiseproof.data.indexing import HorizontalFlip, RandomCrop

__all__ = ["AUGMENTATIONS", "Transforms", "check_augmentation"]

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


@dataclass(frozen=True)
class Transforms:
    """How inputs are prepared for training and for evaluation. Features are not changed."""

    train: Augment | None
    test: Augment | None
    train_framing: Framing | None = None
    test_framing: Framing | None = None

    @staticmethod
    def named(name: str, split: Examples, **output: Any) -> Transforms:
        """A recipe's ``augment`` for a split; ``output`` is the dtype and memory format of the result."""
        check_augmentation(name)
        if split.kind == "files":
            return _for_files(name, **output)
        if split.kind == "features":
            if name != "none":
                raise ValueError(f"augment {name!r} is for images; these inputs are features: use none")
            return Transforms(None, None)
        if name in PRESETS:
            preset, normalize = PRESETS[name]
            resize = 256 if name in ("webvision", "clothing1m") else None
            return Transforms(preset(**output), evaluation(*normalize, resize=resize, **output))
        normalize = _statistics(split)
        return Transforms(Augment(SIMPLE[name], *normalize, **output), evaluation(*normalize, **output))


def _for_files(name: str, **output: Any) -> Transforms:
    if name == "clothing1m":
        squash, test = Squash(256, 256), evaluation(*augment.CLOTHING1M, resize=256, **output)
        return Transforms(augment.clothing1m_augment(**output), test, squash, squash)
    if name in ("cifar10", "cifar100"):
        raise ValueError(
            f"augment {name!r} is for images of 32x32 in memory; for image files use webvision, clothing1m or none"
        )
    centre, test = Centre(256, 224), evaluation(*augment.IMAGENET, **output)
    if name == "webvision":
        return Transforms(augment.webvision_augment(cropped=True, **output), test, RandomPart(224), centre)
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
    inputs = torch.from_numpy(split.inputs)
    return inputs.permute(0, 3, 1, 2).contiguous() if inputs.dtype == torch.uint8 and inputs.ndim == 4 else inputs
