"""Augmentations of whole batches on the device: their interface, and those that only move pixels: crop and flip.

Random parameters are drawn first, then applied deterministically. Moving pixels is exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the name every PyTorch reader expects
from torch import Tensor

from noiseproof.checks import check_integer, check_range

Size = tuple[int, int]
"""Height and width."""


class Operation:
    """One step of an augmentation, on a whole batch.

    All randomness is in :meth:`draw`, on the generator's device; :meth:`apply` is a function of its arguments. Neither reads
    a tensor's value on the host, so both can be captured in a CUDA graph (register the generator with the graph).
    Images are uint8 in 0..255 or floating point in [0, 1], ``[N, C, H, W]``, all of one size.

    >>> from noiseproof.data import HorizontalFlip
    >>> flip = HorizontalFlip(p=1.0)
    >>> images = torch.arange(3, dtype=torch.uint8).view(1, 1, 1, 3)
    >>> flip.apply(images, flip.draw(1, (1, 3), torch.Generator())).flatten().tolist()
    [2, 1, 0]
    """

    random = True
    """Whether :meth:`draw` needs a generator."""

    def output_size(self, size: Size) -> Size:
        """Return the size of the result; a ValueError if images are too small.

        Args:
            size: Height and width of the images.

        Returns:
            Height and width of the result.
        """
        return size

    def draw(self, n: int, size: Size, generator: torch.Generator) -> Any:
        """Draw parameters: a dataclass of tensors whose first dimension is ``n``.

        Args:
            n: Number of images.
            size: Height and width of the images.
            generator: On the images' device.

        Returns:
            The parameters.
        """
        raise NotImplementedError

    def apply(self, images: Tensor, drawn: Any) -> Tensor:
        """Augment images by parameters that were drawn.

        Args:
            images: uint8 in 0..255 or floating point in [0, 1], ``[N, C, H, W]``.
            drawn: What :meth:`draw` returned.

        Returns:
            The augmented images, a new tensor.
        """
        raise NotImplementedError


def uniform(shape: tuple[int, ...], low: float, high: float, generator: torch.Generator) -> Tensor:
    """Uniform in [low, high), float64 so that a value times any image size still falls below its upper end."""
    return torch.rand(shape, generator=generator, device=generator.device, dtype=torch.float64) * (high - low) + low


def in_unit_range(images: Tensor) -> Tensor:
    """uint8 images as float32 in [0, 1]; others unchanged."""
    return images.float().div_(255) if images.dtype == torch.uint8 else images


def check_images(images: Tensor, channels: int) -> None:
    """An error unless it is a uint8 batch ``[N, channels, H, W]``."""
    if not isinstance(images, Tensor):
        raise TypeError(f"images must be a tensor, got {type(images).__name__}")
    if images.dtype != torch.uint8:
        raise TypeError(f"images must be uint8, got {images.dtype}")
    if images.ndim != 4 or 0 in images.shape[1:]:
        raise ValueError(f"images must be [N, C, H, W], got shape {list(images.shape)}")
    if images.shape[1] != channels:
        raise ValueError(f"images must have {channels} channels, as mean and std do, got {images.shape[1]}")


def take_pixels(images: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """The pixels of each image at ``rows`` and ``columns``, which broadcast to ``[N, H, W]``."""
    n, channels, _, width = images.shape
    index = (rows * width + columns).unsqueeze(1).expand(n, channels, -1, -1)
    return images.flatten(2).gather(2, index.flatten(2)).view(index.shape)


@dataclass(frozen=True)
class Crop:
    """The corner ``[N]`` of each crop in the padded image."""

    top: Tensor
    left: Tensor


@dataclass(frozen=True)
class RandomCrop(Operation):
    """Pad with ``padding`` black pixels on every side, then cut ``size`` x ``size`` (None: the image's own size) anywhere.

    Args:
        padding: Zeros around the image, in pixels.
        size: Side of the crop; that of the image by default.

    >>> RandomCrop(padding=4).output_size((32, 32))
    (32, 32)
    """

    padding: int = 4
    size: int | None = None

    def __post_init__(self) -> None:
        check_integer("padding", self.padding, at_least=0)
        if self.size is not None:
            check_integer("size", self.size, at_least=1)

    def output_size(self, size: Size) -> Size:
        if self.size is None:
            return size
        if self.size > min(size) + 2 * self.padding:
            raise ValueError(f"images with padding {self.padding} must hold a crop of {self.size}, got {size[0]} x {size[1]}")
        return self.size, self.size

    def draw(self, n: int, size: Size, generator: torch.Generator) -> Crop:
        places = [before + 2 * self.padding - after + 1 for before, after in zip(size, self.output_size(size), strict=True)]
        return Crop(*(torch.randint(k, (n,), generator=generator, device=generator.device) for k in places))

    def apply(self, images: Tensor, drawn: Crop) -> Tensor:
        height, width = self.output_size((images.shape[-2], images.shape[-1]))
        padded = F.pad(images, [self.padding] * 4)
        rows = drawn.top.view(-1, 1, 1) + torch.arange(height, device=images.device).view(-1, 1)
        columns = drawn.left.view(-1, 1, 1) + torch.arange(width, device=images.device)
        return take_pixels(padded, rows, columns)


@dataclass(frozen=True)
class Flip:
    """Whether ``[N]`` each image is mirrored."""

    flip: Tensor


@dataclass(frozen=True)
class HorizontalFlip(Operation):
    """Mirror left and right with probability ``p``.

    Args:
        p: Probability.

    >>> HorizontalFlip(p=1.0).draw(2, (4, 4), torch.Generator()).flip.tolist()
    [True, True]
    """

    p: float = 0.5

    def __post_init__(self) -> None:
        check_range("p", self.p, at_least=0, at_most=1)

    def draw(self, n: int, size: Size, generator: torch.Generator) -> Flip:
        return Flip(uniform((n,), 0, 1, generator) < self.p)

    def apply(self, images: Tensor, drawn: Flip) -> Tensor:
        return torch.where(drawn.flip.view(-1, 1, 1, 1), images.flip(-1), images)
