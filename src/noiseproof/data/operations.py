"""Operations on images: crop, flip and resize, of whole batches on the device or of decoded files in a worker process.

On the device (:class:`Operation`) random parameters are drawn first, then applied deterministically. Moving pixels is exact.
Resizing is bilinear without antialiasing, in floating point, not rounded, as
``torch.nn.functional.interpolate(..., mode="bilinear", align_corners=False)`` does it: along a side of h input and s output
pixels, output pixel i reads at ``clamp((i + 1/2) h/s - 1/2, 0, h - 1)``, between the two pixels around it.

A :class:`Framing` takes a Pillow image of any size to a fixed one, as torchvision does with Pillow images: bilinear with
antialiasing, rounded to uint8. JPEG's faster decoding at a lower resolution gives other pixels and is not used.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - the name every PyTorch reader expects
from torch import Tensor

from noiseproof.checks import check_integer, check_range
from noiseproof.keyed_random import Word, keyed_uniform

if TYPE_CHECKING:
    import PIL.Image

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


MAX_RESIZED_PIXELS = 2**26  # a line of 1 x 10,000 pixels would become 256 x 2,560,000
CROP_TRIES = 10


class Framing:
    """From an RGB image of any size to one of :attr:`frame_size`. Subclasses are frozen dataclasses.

    >>> import PIL.Image
    >>> Resize(32, 32).frame(PIL.Image.new("RGB", (100, 50)), key=()).size
    (32, 32)
    """

    @property
    def frame_size(self) -> Size:
        """Height and width of every framed image."""
        raise NotImplementedError

    def frame(self, image: PIL.Image.Image, key: tuple[Word, ...]) -> PIL.Image.Image:
        """Resize an image.

        Args:
            image: An RGB image.
            key: Decides what is random, and nothing else does.

        Returns:
            The resized image.

        Raises:
            ValueError: The image is too long and narrow.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class Resize(Framing):
    """Resize to ``height`` x ``width``, whatever the image's shape.

    Args:
        height: Of the result.
        width: Of the result.

    >>> Resize(32, 48).frame_size
    (32, 48)
    """

    height: int = 256
    width: int = 256

    def __post_init__(self) -> None:
        check_integer("height", self.height, at_least=1)
        check_integer("width", self.width, at_least=1)

    @property
    def frame_size(self) -> Size:
        return self.height, self.width

    def frame(self, image: PIL.Image.Image, key: tuple[Word, ...]) -> PIL.Image.Image:
        return _resize(image, self.height, self.width)


@dataclass(frozen=True)
class ResizeCrop(Resize):
    """Resize as little as covers ``height`` x ``width``, and keep the centre; an image of that size stays as it is.

    Args:
        height: Of the result.
        width: Of the result.

    >>> ResizeCrop(32, 32).frame_size
    (32, 32)
    """

    def frame(self, image: PIL.Image.Image, key: tuple[Word, ...]) -> PIL.Image.Image:
        if (image.height, image.width) == self.frame_size:
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
class Window:
    """The rectangle ``[N]`` each image keeps, in whole pixels."""

    top: Tensor
    left: Tensor
    height: Tensor
    width: Tensor


@dataclass(frozen=True)
class RandomResizedCrop(Operation, Framing):
    """A random part of the image, resized to ``size`` x ``size``.

    The part's share of the area is uniform in ``scale`` and its width / height log-uniform in ``ratio``; the first of ten
    tries that fits is taken, its position uniform. If none fits: the largest central part whose ratio is allowed. The part is
    cut before it is resized. Sampled in one ``grid_sample``, whose coordinates are off by about 1e-7 of the image's side.

    Args:
        size: Side of the result.
        scale: Least and greatest share of the area.
        ratio: Least and greatest width / height.

    >>> RandomResizedCrop(size=32).fallback((100, 100))
    (100, 100)
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
        area = uniform((n, CROP_TRIES), *self.scale, generator) * (height * width)
        ratio = uniform((n, CROP_TRIES), math.log(self.ratio[0]), math.log(self.ratio[1]), generator).exp()
        # A last column that always fits, the fallback: the first that fits is then always there.
        fallback_height, fallback_width = self.fallback(size)
        heights = F.pad((area / ratio).sqrt().round().long(), (0, 1), value=fallback_height)
        widths = F.pad((area * ratio).sqrt().round().long(), (0, 1), value=fallback_width)
        fits = (heights > 0) & (heights <= height) & (widths > 0) & (widths <= width)
        first = fits.to(torch.uint8).argmax(dim=1, keepdim=True)
        h, w = heights.gather(1, first).squeeze(1), widths.gather(1, first).squeeze(1)
        central = first.squeeze(1) == CROP_TRIES
        top, left = uniform((2, n), 0, 1, generator).unbind()
        return Window(
            top=torch.where(central, (height - h) // 2, (top * (height - h + 1)).long()),
            left=torch.where(central, (width - w) // 2, (left * (width - w + 1)).long()),
            height=h,
            width=w,
        )

    def fallback(self, size: Size) -> Size:
        """Return the size of the largest part whose ratio is allowed.

        Args:
            size: Height and width of the images.

        Returns:
            Its height and width.
        """
        height, width = size
        if width < self.ratio[0] * height:
            return max(1, round(width / self.ratio[0])), width
        if width > self.ratio[1] * height:
            return height, max(1, round(height * self.ratio[1]))
        return size

    def apply(self, images: Tensor, drawn: Window) -> Tensor:
        n, _, height, width = images.shape
        place = torch.arange(self.size, device=images.device)
        rows = self._coordinates(place.view(-1, 1), drawn.top, drawn.height, height)
        columns = self._coordinates(place, drawn.left, drawn.width, width)
        grid = torch.stack(torch.broadcast_tensors(columns, rows), dim=-1)
        grid = grid.expand(n, *grid.shape[1:])
        return F.grid_sample(in_unit_range(images), grid, mode="bilinear", padding_mode="border", align_corners=False)

    def _coordinates(self, index: Tensor, start: Tensor, length: Tensor, side: int) -> Tensor:
        """grid_sample's coordinate in [-1, 1] along a side, for output ``index`` and a window of ``length`` at ``start``."""
        start, length = start.view(-1, 1, 1), length.view(-1, 1, 1)
        inner = ((index + 0.5) * (length / self.size) - 0.5).clamp(min=0).minimum(length - 1.0)
        return (2 * (inner + start) + 1) / side - 1

    @property
    def frame_size(self) -> Size:
        return self.size, self.size

    def frame(self, image: PIL.Image.Image, key: tuple[Word, ...]) -> PIL.Image.Image:
        box = self.box((image.height, image.width), key)
        part = image.crop((box.left, box.top, box.left + box.width, box.top + box.height))
        return _resize(part, self.size, self.size)

    def box(self, size: Size, key: tuple[Word, ...]) -> Box:
        """Return the part of an image that is kept, a function of both arguments.

        Args:
            size: Height and width of the images.
            key: Decides what is random.

        Returns:
            The part.
        """
        height, width = size
        low, high = math.log(self.ratio[0]), math.log(self.ratio[1])
        # A position, then for each try a share of the area and a ratio.
        top, left, *tries = map(float, keyed_uniform(*key, np.arange(2 + 2 * CROP_TRIES, dtype=np.uint64)))
        for share, shape in zip(tries[::2], tries[1::2], strict=True):
            area = height * width * (self.scale[0] + share * (self.scale[1] - self.scale[0]))
            ratio = math.exp(low + shape * (high - low))
            h, w = round(math.sqrt(area / ratio)), round(math.sqrt(area * ratio))
            if 0 < h <= height and 0 < w <= width:
                return Box(int(top * (height - h + 1)), int(left * (width - w + 1)), h, w)
        h, w = self.fallback(size)
        return Box((height - h) // 2, (width - w) // 2, h, w)


@dataclass(frozen=True)
class ResizeCenterCrop(Operation, Framing):
    """For evaluation: the shorter side to ``resize``, keeping the shape, then the central ``size`` x ``size``.

    The longer side is rounded down; of an odd margin the even half is cut first. Without resizing, pixels are copied exactly.

    Args:
        resize: Length of the shorter side before the crop.
        size: Side of the crop.

    >>> ResizeCenterCrop(resize=256, size=224).output_size((300, 400))
    (224, 224)
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

    @property
    def frame_size(self) -> Size:
        return self.size, self.size

    def frame(self, image: PIL.Image.Image, key: tuple[Word, ...]) -> PIL.Image.Image:
        short = min(image.size)
        height, width = self.resize * image.height // short, self.resize * image.width // short
        _check_resized(image, height, width)
        top, left = round((height - self.size) / 2), round((width - self.size) / 2)
        return _resize(image, height, width).crop((left, top, left + self.size, top + self.size))


def _check_resized(image: PIL.Image.Image, height: int, width: int) -> None:
    if height * width > MAX_RESIZED_PIXELS:
        raise ValueError(f"{image.height} x {image.width} pixels would become {height} x {width}; crop it, or leave it out")


def _resize(image: PIL.Image.Image, height: int, width: int) -> PIL.Image.Image:
    import PIL.Image

    return image.resize((width, height), PIL.Image.Resampling.BILINEAR)
