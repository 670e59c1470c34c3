"""The augmentations of the experiments, by the name of their data set."""

from __future__ import annotations

from typing import Unpack

from noiseproof.data.augment import Augment, Normalize, Output, evaluation
from noiseproof.data.operations import HorizontalFlip, RandomCrop, Rotation, Size
from noiseproof.data.registry import Pipeline
from noiseproof.data.resizing import Resize

__all__ = [
    "CIFAR10",
    "CIFAR100",
    "CLOTHING1M",
    "cifar10_augment",
    "cifar100_augment",
    "clothing1m_augment",
]

CIFAR10 = Normalize((0.49139968, 0.48215827, 0.44653124), (0.24703233, 0.24348505, 0.26158768))
CIFAR100 = Normalize((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762))
CLOTHING1M = Normalize((0.6959, 0.6537, 0.6371), (0.3113, 0.3192, 0.3214))


def cifar10_augment(**output: Unpack[Output]) -> Augment:
    """Crop with padding 4, flip."""
    return Augment((RandomCrop(padding=4), HorizontalFlip()), *CIFAR10, **output)


def cifar100_augment(**output: Unpack[Output]) -> Augment:
    """Crop with padding 4, flip, then turn by up to 20 degrees, which the published code does and its text omits."""
    return Augment((RandomCrop(padding=4), HorizontalFlip(), Rotation(degrees=20)), *CIFAR100, **output)


def clothing1m_augment(**output: Unpack[Output]) -> Augment:
    """A crop of 224 and a flip, of images already resized to 256 x 256."""
    return Augment((RandomCrop(padding=0, size=224), HorizontalFlip()), *CLOTHING1M, **output)


def cifar10(*, in_files: bool, size: Size | None, output: Output) -> Pipeline:
    _check_in_memory("cifar10", in_files)
    return Pipeline(cifar10_augment(**output), evaluation(*CIFAR10, **output))


def cifar100(*, in_files: bool, size: Size | None, output: Output) -> Pipeline:
    _check_in_memory("cifar100", in_files)
    return Pipeline(cifar100_augment(**output), evaluation(*CIFAR100, **output))


def clothing1m(*, in_files: bool, size: Size | None, output: Output) -> Pipeline:
    train, test = clothing1m_augment(**output), evaluation(*CLOTHING1M, resize=256, **output)
    if not in_files:
        return Pipeline(train, test)
    if size is not None:
        raise ValueError("augment 'clothing1m' crops to 224x224; with size=none, or use another augment with your size")
    return Pipeline(train, test, Resize(256, 256), Resize(256, 256))


def _check_in_memory(name: str, in_files: bool) -> None:
    if in_files:
        way = "for image files use webvision, clothing1m or none"
        raise ValueError(f"augment {name!r} is for images of 32x32 in memory; {way}")
