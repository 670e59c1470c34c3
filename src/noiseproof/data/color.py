"""Changes of brightness, contrast, saturation and hue."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from noiseproof.checks import check_range
from noiseproof.data.image_operation import Operation, Size, in_unit_range, uniform

__all__ = ["ColorJitter", "Jitter", "shift_hue", "to_grey"]

BRIGHTNESS, CONTRAST, SATURATION, HUE = range(4)


@dataclass(frozen=True)
class Jitter:
    """Brightness, contrast and saturation ``[N, 3]``, the hue shift ``[N]`` in turns, and the order of the steps ``[N, 4]``."""

    factor: Tensor
    hue: Tensor
    order: Tensor


@dataclass(frozen=True)
class ColorJitter(Operation):
    """Brightness, contrast and saturation by factors uniform in [max(0, 1-b), 1+b], hue by a shift uniform in [-hue, hue).

    A factor f blends, ``f x + (1-f) base``, with base black (brightness), the mean grey of the image (contrast) or the
    pixel's own grey (saturation); grey is 0.299 R + 0.587 G + 0.114 B. The hue is that of HSV; a turn is 1. Values are
    clamped to [0, 1] after each step. Every image has its own order of the four steps. The order is on the device, so hue is
    computed at all four steps and kept at one rather than wait for the device. Images of one channel have no saturation or hue.
    """

    brightness: float = 0.4
    contrast: float = 0.4
    saturation: float = 0.4
    hue: float = 0.2

    def __post_init__(self) -> None:
        for name in ("brightness", "contrast", "saturation"):
            check_range(name, getattr(self, name), at_least=0)
        check_range("hue", self.hue, at_least=0, at_most=0.5)

    def draw(self, n: int, size: Size, generator: torch.Generator) -> Jitter:
        factors = [uniform((n,), max(0.0, 1 - b), 1 + b, generator) for b in (self.brightness, self.contrast, self.saturation)]
        hue = uniform((n,), -self.hue, self.hue, generator)
        order = uniform((n, 4), 0, 1, generator).argsort(dim=1)
        return Jitter(torch.stack(factors, dim=1).float(), hue.float(), order)

    def apply(self, images: Tensor, drawn: Jitter) -> Tensor:
        if images.shape[1] not in (1, 3):
            raise ValueError(f"images must have 1 or 3 channels for a change of colour, got {images.shape[1]}")
        images = in_unit_range(images)
        factors = torch.cat([drawn.factor, torch.ones_like(drawn.hue).unsqueeze(1)], dim=1).to(images.dtype)
        hue = drawn.hue.to(images.dtype).view(-1, 1, 1)
        for step in drawn.order.unbind(1):
            # At the place of hue the factor is 1 and the blend changes nothing.
            factor = factors.gather(1, step.unsqueeze(1)).view(-1, 1, 1, 1)
            step = step.view(-1, 1, 1, 1)
            grey = to_grey(images)
            base = torch.where(step == CONTRAST, grey.mean(dim=(-2, -1), keepdim=True), grey * (step == SATURATION))
            images = torch.lerp(base.expand_as(images), images, factor).clamp_(0, 1)
            if images.shape[1] == 3 and self.hue:
                images = torch.where(step == HUE, shift_hue(images, hue), images)
        return images


def to_grey(images: Tensor) -> Tensor:
    """``[N, 1, H, W]``: 0.299 R + 0.587 G + 0.114 B, or the only channel."""
    if images.shape[1] == 1:
        return images
    red, green, blue = images[:, :1], images[:, 1:2], images[:, 2:]
    return 0.299 * red + 0.587 * green + 0.114 * blue


def shift_hue(images: Tensor, turns: Tensor) -> Tensor:
    """Images in [0, 1] with their HSV hue moved by ``turns [N, 1, 1]``; value and saturation stay.

    >>> red = torch.tensor([1.0, 0.0, 0.0]).view(1, 3, 1, 1)
    >>> shift_hue(red, torch.full((1, 1, 1), 0.5)).flatten().tolist()
    [0.0, 1.0, 1.0]
    """
    red, green, blue = images.unbind(1)
    value = images.amax(dim=1)
    chroma = value - images.amin(dim=1)
    divisor = torch.where(chroma > 0, chroma, 1.0)  # grey has no hue, and any will do: its chroma is 0 below
    sextant = torch.where(value == green, 2 + (blue - red) / divisor, 4 + (red - green) / divisor)
    sextant = torch.where(value == red, (green - blue) / divisor, sextant) + 6 * turns
    # A channel is the value less the chroma times a trapezoid of the hue: 0 where the channel leads, 1 opposite it.
    distance = torch.stack([(sextant + offset).remainder(6) for offset in (5, 3, 1)], dim=1)
    return value.unsqueeze(1) - chroma.unsqueeze(1) * torch.minimum(distance, 4 - distance).clamp_(0, 1)
