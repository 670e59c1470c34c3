"""Augmentations of whole batches on the device: their interface, and those that only move pixels: crop, flip, rotation.

Random parameters are drawn first, then applied deterministically. An operation that only moves pixels maps those of its result
to pixels of its input, by integer indices: a chain of them is one gather, and exact.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
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


@dataclass(frozen=True)
class Pixels:
    """Where the pixels of a result come from. All three broadcast to ``[N, H, W]``; None is inside everywhere."""

    rows: Tensor
    columns: Tensor
    inside: Tensor | None = None

    @classmethod
    def all_of(cls, size: Size, device: torch.device) -> Pixels:
        rows, columns = (torch.arange(length, device=device) for length in size)
        return cls(rows.view(1, -1, 1), columns.view(1, 1, -1))

    def within(self, rows: Tensor, columns: Tensor, size: Size) -> Pixels:
        """Moved to ``rows`` and ``columns``; pixels that have ever left an image of ``size`` stay outside."""
        inside = (rows >= 0) & (rows < size[0]) & ((columns >= 0) & (columns < size[1]))
        return Pixels(rows, columns, inside if self.inside is None else inside & self.inside)

    def gather(self, images: Tensor) -> Tensor:
        """The pixels of ``images``, zero outside."""
        n, channels, height, width = images.shape
        rows, columns = self.rows.clamp(0, height - 1), self.columns.clamp(0, width - 1)
        index = (rows * width + columns).unsqueeze(1).expand(n, channels, -1, -1)
        taken = images.flatten(2).gather(2, index.flatten(2)).view(index.shape)
        return taken if self.inside is None else taken * self.inside.unsqueeze(1)


class IndexOperation(Operation):
    """An operation that only moves pixels, with zeros where there is none."""

    def source(self, pixels: Pixels, drawn: Any, size: Size) -> Pixels:
        """For ``pixels`` of the result, the pixels of the input, whose size is ``size``."""
        raise NotImplementedError

    def apply(self, images: Tensor, drawn: Any) -> Tensor:
        size = images.shape[-2], images.shape[-1]
        return source_pixels([(self, drawn)], [size, self.output_size(size)], images.device).gather(images)


def source_pixels(steps: Sequence[tuple[IndexOperation, Any]], sizes: Sequence[Size], device: torch.device) -> Pixels:
    """The map of a chain: ``steps[i]``, an operation and its parameters, takes images of ``sizes[i]`` to ``sizes[i + 1]``."""
    pixels = Pixels.all_of(sizes[-1], device)
    for (operation, drawn), size in zip(reversed(steps), reversed(sizes[:-1]), strict=True):
        pixels = operation.source(pixels, drawn, size)
    return pixels


@dataclass(frozen=True)
class Crop:
    """The corner ``[N]`` of each crop in the padded image."""

    top: Tensor
    left: Tensor


@dataclass(frozen=True)
class RandomCrop(IndexOperation):
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

    def source(self, pixels: Pixels, drawn: Crop, size: Size) -> Pixels:
        rows = pixels.rows + (drawn.top.view(-1, 1, 1) - self.padding)
        columns = pixels.columns + (drawn.left.view(-1, 1, 1) - self.padding)
        return pixels.within(rows, columns, size) if self.padding else Pixels(rows, columns, pixels.inside)


@dataclass(frozen=True)
class Flip:
    """Whether ``[N]`` each image is mirrored."""

    flip: Tensor


@dataclass(frozen=True)
class HorizontalFlip(IndexOperation):
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

    def source(self, pixels: Pixels, drawn: Flip, size: Size) -> Pixels:
        columns = torch.where(drawn.flip.view(-1, 1, 1), size[1] - 1 - pixels.columns, pixels.columns)
        return Pixels(pixels.rows, columns, pixels.inside)


@dataclass(frozen=True)
class Rotated:
    """The angle ``[N]`` of each image in degrees, counter-clockwise as seen."""

    angle: Tensor


@dataclass(frozen=True)
class Rotation(IndexOperation):
    """Turn about the centre by an angle uniform in [-degrees, degrees); nearest neighbour, same size, zeros around.

    Pixel for pixel what Pillow's ``Image.rotate`` gives, which torchvision's ``RandomRotation`` calls: pixel (r, c) has its
    centre at (r + 1/2, c + 1/2), and coordinates are multiples of 1/65536 pixel. Integer arithmetic from there on, so devices
    agree. Correct below 16,384 pixels a side.

    Args:
        degrees: Largest angle, at most 180.

    >>> Rotation(degrees=0.0).draw(1, (4, 4), torch.Generator()).angle.tolist()
    [0.0]
    """

    degrees: float = 20.0

    def __post_init__(self) -> None:
        check_range("degrees", self.degrees, at_least=0, at_most=180)

    def draw(self, n: int, size: Size, generator: torch.Generator) -> Rotated:
        return Rotated(uniform((n,), -self.degrees, self.degrees, generator))

    def source(self, pixels: Pixels, drawn: Rotated, size: Size) -> Pixels:
        # With (x, y) to the right and down from the centre, the result's (x, y) shows the input's
        # (cos x - sin y, sin x + cos y): undoing a counter-clockwise turn where y points down.
        radians = drawn.angle.to(torch.float64).view(-1, 1, 1) * (math.pi / 180)
        cosine, sine = radians.cos(), radians.sin()
        x, y = 0.5 - size[1] / 2, 0.5 - size[0] / 2
        first_column = fixed_point(cosine * x - sine * y + size[1] / 2)
        first_row = fixed_point(sine * x + cosine * y + size[0] / 2)
        cosine, sine = fixed_point(cosine), fixed_point(sine)
        columns = (first_column + cosine * pixels.columns - sine * pixels.rows) >> 16
        rows = (first_row + sine * pixels.columns + cosine * pixels.rows) >> 16
        return pixels.within(rows, columns, size)


def fixed_point(value: Tensor) -> Tensor:
    """``value`` in units of 1/65536, rounded to the nearest."""
    return (value * 65536 + 0.5).floor().to(torch.int64)
