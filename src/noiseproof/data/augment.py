"""A chain of augmentations on a batch of uint8 images, normalised; changes of colour; augmentations that have a name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypedDict, Unpack

import torch
from torch import Tensor

from noiseproof.checks import check_range
from noiseproof.data.operations import Framing, Operation, ResizeCenterCrop, Size, check_images, in_unit_range, uniform
from noiseproof.plugins import load_plugins

BRIGHTNESS, CONTRAST, SATURATION, HUE = range(4)
AUGMENTATIONS: dict[str, Augmentation] = {}


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

    Args:
        brightness: Half the range of the factor of brightness.
        contrast: Half the range of the factor of contrast.
        saturation: Half the range of the factor of saturation.
        hue: Largest shift of the hue, in turns; at most 0.5.

    >>> jitter = ColorJitter(hue=0.0)
    >>> images = torch.full((1, 3, 2, 2), 128, dtype=torch.uint8)
    >>> jitter.apply(images, jitter.draw(1, (2, 2), torch.Generator().manual_seed(0))).shape
    torch.Size([1, 3, 2, 2])
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

    CPU and CUDA generators draw different numbers from one seed, but :meth:`apply` of the same draw agrees.

    Args:
        operations: Augmentations, in order.
        mean: Of each channel, of images in [0, 1].
        std: Standard deviation of each channel.
        dtype: Of the result.
        memory_format: Of the result: contiguous or channels last.

    Raises:
        TypeError: If an operation is none, or if the dtype is no floating point type.
        ValueError: If mean and std do not fit, or the memory format is another one.

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
        """Return the size before each operation and, last, of the result.

        Args:
            size: Height and width of the images.

        Returns:
            The sizes.
        """
        sizes = [size]
        for operation in self.operations:
            sizes.append(operation.output_size(sizes[-1]))
        return sizes

    def draw(self, n: int, size: Size, generator: torch.Generator | None = None) -> tuple[Any, ...]:
        """Draw the parameters of every operation, on the generator's device.

        Args:
            n: Number of images.
            size: Height and width of the images.
            generator: On the images' device.

        Returns:
            One entry for each operation.

        Raises:
            TypeError: If an operation is random and there is no generator.
        """
        if self.random and generator is None:
            raise TypeError("generator must be a torch.Generator on the images' device, got None")
        return tuple(
            operation.draw(n, before, generator) if operation.random and generator is not None else None
            for operation, before in zip(self.operations, self.sizes(size), strict=False)
        )

    def apply(self, images: Tensor, drawn: Sequence[Any]) -> Tensor:
        """Augment images by parameters that were drawn; nothing random happens here.

        Args:
            images: uint8 ``[N, C, H, W]``.
            drawn: What :meth:`draw` returned.

        Returns:
            The augmented, normalised images.

        Raises:
            ValueError: If there is not one entry for each operation.
        """
        check_images(images, len(self.mean))
        if len(drawn) != len(self.operations):
            raise ValueError(f"drawn must have one entry per operation, {len(self.operations)}, got {len(drawn)}")
        for operation, parameters in zip(self.operations, drawn, strict=True):
            images = operation.apply(images, parameters)
        return self._normalized(images)

    def __call__(self, images: Tensor, generator: torch.Generator | None = None) -> Tensor:
        check_images(images, len(self.mean))
        if generator is not None and not _same_device(generator.device, images.device):
            raise ValueError(f"generator must be on the images' device, {images.device}, got {generator.device}")
        return self.apply(images, self.draw(len(images), (images.shape[-2], images.shape[-1]), generator))

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
    """Return the pipeline for evaluation: normalising, and on request a centre crop before it.

    Args:
        mean: Of each channel, of images in [0, 1].
        std: Standard deviation of each channel.
        resize: Length of the shorter side before the crop; None for no crop.
        size: Side of the crop.
        **output: ``dtype`` and ``memory_format`` of the result.

    Returns:
        The pipeline.

    >>> evaluation(*IMAGENET).operations, evaluation(*IMAGENET, resize=256).operations
    ((), (ResizeCenterCrop(resize=256, size=224),))
    """
    return Augment(() if resize is None else (ResizeCenterCrop(resize, size),), mean, std, **output)


class Pipeline(NamedTuple):
    """What an augmentation does in training and in evaluation: on the device, and before that to image files."""

    train: Augment
    test: Augment
    train_framing: Framing | None = None
    test_framing: Framing | None = None


class Augmentation(Protocol):
    """Makes the pipeline for images in memory or in files; ``size`` is the one that the user asked for."""

    def __call__(self, *, in_files: bool, size: Size | None, output: Output) -> Pipeline: ...


def register_augmentation(name: str, augmentation: Augmentation) -> None:
    """Make an augmentation known by name to recipes and ``--set augment=NAME``.

    Args:
        name: What users write; one that is known already is replaced.
        augmentation: Called with ``in_files``, ``size`` and ``output``; returns the :class:`Pipeline`.

    >>> from noiseproof.data import IMAGENET, evaluation
    >>> def plain(*, in_files, size, output):
    ...     return Pipeline(evaluation(*IMAGENET, **output), evaluation(*IMAGENET, **output))
    >>> register_augmentation("plain", plain)
    >>> find_augmentation("plain") is plain
    True
    >>> del AUGMENTATIONS["plain"]
    """
    AUGMENTATIONS[name] = augmentation


def find_augmentation(name: str) -> Augmentation:
    """The augmentation of this name.

    Args:
        name: As it was registered.

    Returns:
        The augmentation.

    Raises:
        KeyError: No plug-in has it either.
    """
    if name not in AUGMENTATIONS:
        load_plugins()
    return AUGMENTATIONS[name]
