"""Resize and crop decoded images to a fixed size, in the worker process.

All resize as torchvision does with Pillow images, as the published experiments did: bilinear with antialiasing, rounded to
uint8. JPEG's faster decoding at a lower resolution gives other pixels and is not used. The other augmentations (flip, crop of
equal size, colour, normalisation) are :class:`~noiseproof.data.Augment`'s, on the device:

================  ============================  ==============================================
experiment        framing                       on the device
================  ============================  ==============================================
WebVision         ``RandomPart(224)``           ``webvision_augment(cropped=True)``
   test           ``Centre(256, 224)``          ``evaluation(*IMAGENET)``
Clothing1M        ``Squash(256, 256)``          ``clothing1m_augment()``
   test           ``Squash(256, 256)``          ``evaluation(*CLOTHING1M, resize=256)``
own size          ``Cover(32, 32)``             ``evaluation(mean, std)``
================  ============================  ==============================================
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from noiseproof.checks import check_integer
from noiseproof.data.image_operation import Size
from noiseproof.data.resizing import TRIES, RandomResizedCrop
from noiseproof.keyed_random import Word, keyed_uniform

if TYPE_CHECKING:
    import PIL.Image

__all__ = ["Box", "Centre", "Cover", "Framing", "RandomPart", "Squash"]

LARGEST = 2**26  # most pixels of a resized image: a line of 1 x 10,000 pixels would become 256 x 2,560,000


class Framing:
    """From an RGB image of any size to one of :attr:`output_size`. Subclasses are frozen dataclasses."""

    @property
    def output_size(self) -> Size:
        raise NotImplementedError

    def frame(self, image: PIL.Image.Image, key: tuple[Word, ...]) -> PIL.Image.Image:
        """The resized image; its randomness is a function of ``key``. A ValueError if this image cannot be framed."""
        raise NotImplementedError


@dataclass(frozen=True)
class Squash(Framing):
    """Resize to ``height`` x ``width``, whatever the image's shape."""

    height: int = 256
    width: int = 256

    def __post_init__(self) -> None:
        check_integer("height", self.height, at_least=1)
        check_integer("width", self.width, at_least=1)

    @property
    def output_size(self) -> Size:
        return self.height, self.width

    def frame(self, image: PIL.Image.Image, key: tuple[Word, ...]) -> PIL.Image.Image:
        return _resize(image, self.height, self.width)


@dataclass(frozen=True)
class Centre(Framing):
    """For evaluation: the size and the position of :class:`~noiseproof.data.ResizeCenterCrop`."""

    resize: int = 256
    size: int = 224

    def __post_init__(self) -> None:
        check_integer("size", self.size, at_least=1)
        check_integer("resize", self.resize, at_least=self.size)

    @property
    def output_size(self) -> Size:
        return self.size, self.size

    def frame(self, image: PIL.Image.Image, key: tuple[Word, ...]) -> PIL.Image.Image:
        short = min(image.size)
        height, width = self.resize * image.height // short, self.resize * image.width // short
        _check_resized(image, height, width)
        top, left = round((height - self.size) / 2), round((width - self.size) / 2)
        return _resize(image, height, width).crop((left, top, left + self.size, top + self.size))


@dataclass(frozen=True)
class Cover(Framing):
    """Resize as little as covers ``height`` x ``width``, and keep the centre; an image of that size stays as it is."""

    height: int
    width: int

    def __post_init__(self) -> None:
        check_integer("height", self.height, at_least=1)
        check_integer("width", self.width, at_least=1)

    @property
    def output_size(self) -> Size:
        return self.height, self.width

    def frame(self, image: PIL.Image.Image, key: tuple[Word, ...]) -> PIL.Image.Image:
        if (image.height, image.width) == self.output_size:
            return image
        scale = max(self.height / image.height, self.width / image.width)
        # Rounding must not leave a side short.
        height, width = max(self.height, round(scale * image.height)), max(self.width, round(scale * image.width))
        _check_resized(image, height, width)
        top, left = (height - self.height) // 2, (width - self.width) // 2
        return _resize(image, height, width).crop((left, top, left + self.width, top + self.height))


class Box(NamedTuple):
    """The part of an image that is kept, in whole pixels."""

    top: int
    left: int
    height: int
    width: int


@dataclass(frozen=True)
class RandomPart(Framing):
    """A random part, a function of the key and the image's size, by the rule of :class:`~noiseproof.data.RandomResizedCrop`."""

    size: int = 224
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)

    def __post_init__(self) -> None:
        RandomResizedCrop(self.size, self.scale, self.ratio)  # checks the options

    @property
    def output_size(self) -> Size:
        return self.size, self.size

    def frame(self, image: PIL.Image.Image, key: tuple[Word, ...]) -> PIL.Image.Image:
        box = self.box((image.height, image.width), key)
        part = image.crop((box.left, box.top, box.left + box.width, box.top + box.height))
        return _resize(part, self.size, self.size)

    def box(self, size: Size, key: tuple[Word, ...]) -> Box:
        height, width = size
        low, high = math.log(self.ratio[0]), math.log(self.ratio[1])
        # A position, then for each try a share of the area and a ratio.
        top, left, *tries = map(float, keyed_uniform(*key, np.arange(2 + 2 * TRIES, dtype=np.uint64)))
        for share, shape in zip(tries[::2], tries[1::2], strict=True):
            area = height * width * (self.scale[0] + share * (self.scale[1] - self.scale[0]))
            ratio = math.exp(low + shape * (high - low))
            h, w = round(math.sqrt(area / ratio)), round(math.sqrt(area * ratio))
            if 0 < h <= height and 0 < w <= width:
                return Box(int(top * (height - h + 1)), int(left * (width - w + 1)), h, w)
        h, w = RandomResizedCrop(self.size, self.scale, self.ratio).fallback(size)
        return Box((height - h) // 2, (width - w) // 2, h, w)


def _check_resized(image: PIL.Image.Image, height: int, width: int) -> None:
    if height * width > LARGEST:
        raise ValueError(f"{image.height} x {image.width} pixels would become {height} x {width}; crop it, or leave it out")


def _resize(image: PIL.Image.Image, height: int, width: int) -> PIL.Image.Image:
    import PIL.Image

    return image.resize((width, height), PIL.Image.Resampling.BILINEAR)
