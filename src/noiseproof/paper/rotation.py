"""The rotation of the augmentation for CIFAR-100, on a whole batch on the device."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from noiseproof.checks import check_range
from noiseproof.data.operations import Operation, Size, take_pixels, uniform


@dataclass(frozen=True)
class Rotated:
    """The angle ``[N]`` of each image in degrees, counter-clockwise as seen."""

    angle: Tensor


@dataclass(frozen=True)
class Rotation(Operation):
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

    def apply(self, images: Tensor, drawn: Rotated) -> Tensor:
        height, width = images.shape[-2:]
        x, y = torch.arange(width, device=images.device), torch.arange(height, device=images.device).view(-1, 1)
        # With (x, y) to the right and down from the centre, the result's (x, y) shows the input's
        # (cos x - sin y, sin x + cos y): undoing a counter-clockwise turn where y points down.
        radians = drawn.angle.to(torch.float64).view(-1, 1, 1) * (math.pi / 180)
        cosine, sine = radians.cos(), radians.sin()
        left, top = 0.5 - width / 2, 0.5 - height / 2
        first_column = fixed_point(cosine * left - sine * top + width / 2)
        first_row = fixed_point(sine * left + cosine * top + height / 2)
        cosine, sine = fixed_point(cosine), fixed_point(sine)
        columns = (first_column + cosine * x - sine * y) >> 16
        rows = (first_row + sine * x + cosine * y) >> 16
        inside = (rows >= 0) & (rows < height) & (columns >= 0) & (columns < width)
        return take_pixels(images, rows.clamp(0, height - 1), columns.clamp(0, width - 1)) * inside.unsqueeze(1)


def fixed_point(value: Tensor) -> Tensor:
    """``value`` in units of 1/65536, rounded to the nearest."""
    return (value * 65536 + 0.5).floor().to(torch.int64)
