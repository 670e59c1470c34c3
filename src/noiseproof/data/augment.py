"""A chain of augmentations on a batch of uint8 images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypedDict, Unpack

import torch
from torch import Tensor

from noiseproof.checks import check_range
from noiseproof.data.image_operation import Operation, Size, check_images
from noiseproof.data.indexing import IndexOperation, source_pixels
from noiseproof.data.resizing import RandomResizedCrop, ResizeCenterCrop

__all__ = ["IMAGENET", "Augment", "Normalize", "Output", "evaluation"]

BEGINNINGS = (IndexOperation, RandomResizedCrop)
"""Operations that following ones can be fused into, if these only move pixels."""


class Normalize(NamedTuple):
    """The mean and standard deviation of each channel, of images in [0, 1]."""

    mean: tuple[float, ...]
    std: tuple[float, ...]


IMAGENET = Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


class Output(TypedDict, total=False):
    """How the result is stored: the last two options of :class:`Augment`."""

    dtype: torch.dtype
    memory_format: torch.memory_format


@dataclass(frozen=True)
class Augment:
    """``operations`` one after another, then ``(x - mean) / std``: uint8 ``[N, C, H, W]`` in, normalised ``dtype`` out.

    Consecutive operations that only move pixels are one gather; after a random resized crop they are part of its sampling.
    CPU and CUDA generators draw different numbers from one seed, but :meth:`apply` of the same draw agrees.

    >>> from noiseproof.data import HorizontalFlip, RandomCrop
    >>> augment = Augment((RandomCrop(padding=4), HorizontalFlip()), *IMAGENET)
    >>> images = torch.zeros(2, 3, 32, 32, dtype=torch.uint8)
    >>> augment(images, torch.Generator().manual_seed(0))[0, :, 0, 0]
    tensor([-2.1179, -2.0357, -1.8044])
    """

    operations: Sequence[Operation]
    mean: Sequence[float]
    std: Sequence[float]
    dtype: torch.dtype = torch.float32
    memory_format: torch.memory_format = torch.contiguous_format

    def __post_init__(self) -> None:
        for operation in self.operations:
            if not isinstance(operation, Operation):
                raise TypeError(f"operations must be augmentations, got {operation!r}")
        if len(self.mean) != len(self.std) or not self.mean:
            raise ValueError(f"mean and std must be of one length, at least 1, got {len(self.mean)} and {len(self.std)}")
        mean = tuple(check_range("mean", value, at_least=0, at_most=1) for value in self.mean)
        std = tuple(check_range("std", value, above=0) for value in self.std)
        if not self.dtype.is_floating_point:
            raise TypeError(f"dtype must be a floating point type, got {self.dtype}")
        if self.memory_format not in (torch.contiguous_format, torch.channels_last):
            raise ValueError(f"memory_format must be contiguous_format or channels_last, got {self.memory_format}")
        for name, value in (("operations", tuple(self.operations)), ("mean", mean), ("std", std)):
            object.__setattr__(self, name, value)

    @property
    def random(self) -> bool:
        """Whether a call needs a generator."""
        return any(operation.random for operation in self.operations)

    def sizes(self, size: Size) -> list[Size]:
        """The size before each operation and, last, of the result, for images of ``size``."""
        sizes = [size]
        for operation in self.operations:
            sizes.append(operation.output_size(sizes[-1]))
        return sizes

    def draw(self, n: int, size: Size, generator: torch.Generator | None = None) -> tuple[Any, ...]:
        """The parameters of every operation for ``n`` images of ``size``, on the generator's device."""
        if self.random and generator is None:
            raise TypeError("generator must be a torch.Generator on the images' device, got None")
        return tuple(
            operation.draw(n, before, generator) if operation.random and generator is not None else None
            for operation, before in zip(self.operations, self.sizes(size), strict=False)
        )

    def apply(self, images: Tensor, drawn: Sequence[Any]) -> Tensor:
        """The augmented images; nothing random happens here."""
        check_images(images, len(self.mean))
        if len(drawn) != len(self.operations):
            raise ValueError(f"drawn must have one entry per operation, {len(self.operations)}, got {len(drawn)}")
        sizes = self.sizes((images.shape[-2], images.shape[-1]))
        for start, stop in self._passes():
            first = self.operations[start]
            steps = zip(self.operations[start:stop], drawn[start:stop], strict=True)
            moves = [(move, parameters) for move, parameters in steps if isinstance(move, IndexOperation)]
            if isinstance(first, IndexOperation):
                images = source_pixels(moves, sizes[start : stop + 1], images.device).gather(images)
            elif isinstance(first, RandomResizedCrop):
                pixels = source_pixels(moves, sizes[start + 1 : stop + 1], images.device)
                images = first.sample(images, drawn[start], pixels)
            else:
                images = first.apply(images, drawn[start])
        return self._normalized(images)

    def __call__(self, images: Tensor, generator: torch.Generator | None = None) -> Tensor:
        check_images(images, len(self.mean))
        if generator is not None and not _same_device(generator.device, images.device):
            raise ValueError(f"generator must be on the images' device, {images.device}, got {generator.device}")
        return self.apply(images, self.draw(len(images), (images.shape[-2], images.shape[-1]), generator))

    def _passes(self) -> list[tuple[int, int]]:
        """The ranges of operations that are done in one pass over the images."""
        passes: list[tuple[int, int]] = []
        for k, operation in enumerate(self.operations):
            start = passes[-1][0] if passes else k
            if passes and isinstance(operation, IndexOperation) and isinstance(self.operations[start], BEGINNINGS):
                passes[-1] = (start, k + 1)
            else:
                passes.append((k, k + 1))
        return passes

    def _normalized(self, images: Tensor) -> Tensor:
        unit = 255 if images.dtype == torch.uint8 else 1
        scale = _channels([1 / (unit * std) for std in self.std], images.device)
        shift = _channels([-mean / std for mean, std in zip(self.mean, self.std, strict=True)], images.device)
        # The memory format is changed while the images are uint8: fewer bytes to move.
        images = images.contiguous(memory_format=self.memory_format)
        return images.float().mul_(scale).add_(shift).to(self.dtype)


def _channels(values: list[float], device: torch.device) -> Tensor:
    """``values`` as ``[C, 1, 1]``, filled on the device: a copy from the host would wait for it."""
    return torch.cat([torch.full((1,), value, device=device) for value in values]).view(-1, 1, 1)


def _same_device(one: torch.device, other: torch.device) -> bool:
    return one.type == other.type and (one.index or 0) == (other.index or 0)


def evaluation(
    mean: Sequence[float], std: Sequence[float], *, resize: int | None = None, size: int = 224, **output: Unpack[Output]
) -> Augment:
    """Normalising only, or with ``resize`` the centre crop ``size`` before it.

    >>> evaluation(*IMAGENET).operations, evaluation(*IMAGENET, resize=256).operations
    ((), (ResizeCenterCrop(resize=256, size=224),))
    """
    return Augment(() if resize is None else (ResizeCenterCrop(resize, size),), mean, std, **output)
