"""The interface of augmentations: random parameters are drawn first, then applied deterministically."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

__all__ = ["Operation", "Size", "check_images", "in_unit_range", "uniform"]

Size = tuple[int, int]
"""Height and width."""


class Operation:
    """One step of an augmentation, on a whole batch.

    All randomness is in :meth:`draw`, on the generator's device; :meth:`apply` is a function of its arguments. Neither reads
    a tensor's value on the host, so both can be captured in a CUDA graph (register the generator with the graph).
    Images are uint8 in 0..255 or floating point in [0, 1], ``[N, C, H, W]``, all of one size.
    """

    random = True
    """Whether :meth:`draw` needs a generator."""

    def output_size(self, size: Size) -> Size:
        """The size of the result for images of ``size``; a ValueError if such images are too small."""
        return size

    def draw(self, n: int, size: Size, generator: torch.Generator) -> Any:
        """Parameters for ``n`` images of ``size``: a dataclass of tensors whose first dimension is ``n``."""
        raise NotImplementedError

    def apply(self, images: Tensor, drawn: Any) -> Tensor:
        """The augmented images, a new tensor."""
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
