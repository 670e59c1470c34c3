"""Augmentations that resample: random resized crop for training, resize and centre crop for evaluation.

Both are bilinear without antialiasing, in floating point, not rounded to uint8. The convention is that of
``torch.nn.functional.interpolate(..., mode="bilinear", align_corners=False)``: along a side of h input and s output
pixels, output pixel i reads at ``clamp((i + 1/2) h/s - 1/2, 0, h - 1)``, between the two pixels around it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812 - the name every PyTorch reader expects
from torch import Tensor

from noiseproof.checks import check_integer, check_range
from noiseproof.data.image_operation import Operation, Size, in_unit_range, uniform
from noiseproof.data.indexing import Pixels

__all__ = ["RandomResizedCrop", "ResizeCenterCrop", "Window"]

TRIES = 10


@dataclass(frozen=True)
class Window:
    """The rectangle ``[N]`` each image keeps, in whole pixels."""

    top: Tensor
    left: Tensor
    height: Tensor
    width: Tensor


@dataclass(frozen=True)
class RandomResizedCrop(Operation):
    """A random part of the image, resized to ``size`` x ``size``.

    The part's share of the area is uniform in ``scale`` and its width / height log-uniform in ``ratio``; the first of ten
    tries that fits is taken, its position uniform. If none fits: the largest central part whose ratio is allowed. The part is
    cut before it is resized. Sampled in one ``grid_sample``, whose coordinates are off by about 1e-7 of the image's side.
    """

    size: int = 224
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)

    def __post_init__(self) -> None:
        check_integer("size", self.size, at_least=1)
        check_range("scale[1]", self.scale[1], above=0, at_most=1)
        check_range("scale[0]", self.scale[0], above=0, at_most=self.scale[1])
        check_range("ratio[1]", self.ratio[1], above=0)
        check_range("ratio[0]", self.ratio[0], above=0, at_most=self.ratio[1])

    def output_size(self, size: Size) -> Size:
        return self.size, self.size

    def draw(self, n: int, size: Size, generator: torch.Generator) -> Window:
        height, width = size
        area = uniform((n, TRIES), *self.scale, generator) * (height * width)
        ratio = uniform((n, TRIES), math.log(self.ratio[0]), math.log(self.ratio[1]), generator).exp()
        # A last column that always fits, the fallback: the first that fits is then always there.
        fallback_height, fallback_width = self.fallback(size)
        heights = F.pad((area / ratio).sqrt().round().long(), (0, 1), value=fallback_height)
        widths = F.pad((area * ratio).sqrt().round().long(), (0, 1), value=fallback_width)
        fits = (heights > 0) & (heights <= height) & (widths > 0) & (widths <= width)
        first = fits.to(torch.uint8).argmax(dim=1, keepdim=True)
        h, w = heights.gather(1, first).squeeze(1), widths.gather(1, first).squeeze(1)
        central = first.squeeze(1) == TRIES
        top, left = uniform((2, n), 0, 1, generator).unbind()
        return Window(
            top=torch.where(central, (height - h) // 2, (top * (height - h + 1)).long()),
            left=torch.where(central, (width - w) // 2, (left * (width - w + 1)).long()),
            height=h,
            width=w,
        )

    def fallback(self, size: Size) -> Size:
        """The height and width of the largest part of an image of ``size`` whose ratio is allowed."""
        height, width = size
        if width < self.ratio[0] * height:
            return max(1, round(width / self.ratio[0])), width
        if width > self.ratio[1] * height:
            return height, max(1, round(height * self.ratio[1]))
        return size

    def apply(self, images: Tensor, drawn: Window) -> Tensor:
        return self.sample(images, drawn, Pixels.all_of((self.size, self.size), images.device))

    def sample(self, images: Tensor, drawn: Window, pixels: Pixels) -> Tensor:
        """The given ``pixels`` of the result: moving pixels afterwards costs no further pass."""
        n, _, height, width = images.shape
        rows = self._coordinates(pixels.rows, drawn.top, drawn.height, height)
        columns = self._coordinates(pixels.columns, drawn.left, drawn.width, width)
        grid = torch.stack(torch.broadcast_tensors(columns, rows), dim=-1)
        grid = grid.expand(n, *grid.shape[1:])
        taken = F.grid_sample(in_unit_range(images), grid, mode="bilinear", padding_mode="border", align_corners=False)
        return taken if pixels.inside is None else taken * pixels.inside.unsqueeze(1)

    def _coordinates(self, index: Tensor, start: Tensor, length: Tensor, side: int) -> Tensor:
        """grid_sample's coordinate in [-1, 1] along a side, for output ``index`` and a window of ``length`` at ``start``."""
        start, length = start.view(-1, 1, 1), length.view(-1, 1, 1)
        inner = ((index + 0.5) * (length / self.size) - 0.5).clamp(min=0).minimum(length - 1.0)
        return (2 * (inner + start) + 1) / side - 1


@dataclass(frozen=True)
class ResizeCenterCrop(Operation):
    """For evaluation: the shorter side to ``resize``, keeping the shape, then the central ``size`` x ``size``.

    The longer side is rounded down; of an odd margin the even half is cut first. Without resizing, pixels are copied exactly.
    """

    random = False

    resize: int = 256
    size: int = 224

    def __post_init__(self) -> None:
        check_integer("size", self.size, at_least=1)
        check_integer("resize", self.resize, at_least=self.size)

    def output_size(self, size: Size) -> Size:
        return self.size, self.size

    def draw(self, n: int, size: Size, generator: torch.Generator | None = None) -> None:
        pass

    def apply(self, images: Tensor, drawn: None = None) -> Tensor:
        height, width = images.shape[-2:]
        short = min(height, width)
        resized = self.resize * height // short, self.resize * width // short
        images = F.interpolate(in_unit_range(images), resized, mode="bilinear", align_corners=False)
        top, left = (round((side - self.size) / 2) for side in resized)
        return images[..., top : top + self.size, left : left + self.size]
