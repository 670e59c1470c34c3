"""The experiments' own network, and weights in torch's files, as torchvision publishes them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from noiseproof.checks import check_integer
from noiseproof.io.files import ReadError
from noiseproof.io.text import excerpt
from noiseproof.models.base import (
    Classifier,
    activated,
    checked_widths,
    initialise_published,
    register_model,
    round_up,
    shape_text,
)
from noiseproof.paper.pickles import read_torch

CNN8_WIDTHS = (64, 128, 196)
CNN8_SIDE, CNN8_MIN_SIDE, CNN8_MAX_SIDE = 32, 28, 64


@register_model("cnn8")
class CNN8(Classifier):
    """Eight layers for images of 32x32: 3x3 convolutions 64-64-pool-128-128-pool-196-196-pool, linear 256, linear K.

    ``size``, a side or height and width, builds it for other images of 28 to 64 pixels: only the first linear layer differs.
    Pooling leaves out the last line of an odd number of lines.

    BatchNorm and ReLU follow every layer but the last; convolutions are padded by 1 and have biases; pooling takes the
    maximum of 2x2. The features are the 256 activations after the last ReLU. Initialised by
    :func:`noiseproof.models.base.initialise_published`.

    Args:
        classes: Number of classes.
        in_channels: Of the images.
        widths: Channels of the three pairs of convolutions.
        size: Side, or height and width, of the images: 28 to 64 pixels.

    >>> sum(parameter.numel() for parameter in CNN8(classes=10).parameters())
    1639794
    """

    def __init__(
        self, classes: int, *, in_channels: int = 3, widths: Sequence[int] = CNN8_WIDTHS, size: int | Sequence[int] = CNN8_SIDE
    ) -> None:
        super().__init__()
        classes = check_integer("classes", classes, at_least=2)
        self.in_channels = check_integer("in_channels", in_channels, at_least=1)
        self.widths = checked_widths("widths", widths, CNN8_WIDTHS, at_least=1)
        self.size = _checked_size(size)
        layers: list[nn.Module] = []
        before = self.in_channels
        for width in self.widths:
            layers += [*_convolution(before, width), *_convolution(width, width)]
            before = width
        self.body = nn.Sequential(*layers)
        down = 2 ** len(self.widths)
        pooled = self.widths[-1] * (self.size[0] // down) * (self.size[1] // down)
        self.hidden = nn.Sequential(nn.Linear(pooled, 256), nn.BatchNorm1d(256))
        self.fc = nn.Linear(256, classes)
        initialise_published(self)

    def aligned(self, multiple: int) -> CNN8:
        widths = [round_up(width, multiple) for width in self.widths]
        return CNN8(self.classes, in_channels=round_up(self.in_channels, multiple), widths=widths, size=self.size)

    def penultimate(self, x: Tensor) -> Tensor:
        if x.dim() != 4 or x.shape[1:] != (self.in_channels, *self.size):
            height, width = self.size
            raise ValueError(f"CNN8 takes images [N, {self.in_channels}, {height}, {width}], got {shape_text(x)}")
        layers = list(self.body)
        for place in range(0, len(layers), 4):
            conv1, norm1, conv2, norm2 = layers[place : place + 4]
            x = activated(norm2, conv2(activated(norm1, conv1(x))), pool=True)
        linear, norm = self.hidden
        return activated(norm, linear(x.flatten(1)))


def _checked_size(size: int | Sequence[int]) -> tuple[int, int]:
    sides = list(size) if isinstance(size, Sequence) else [size]
    if len(sides) not in (1, 2):
        raise ValueError(f"size must be a side, or height and width, got {size!r}")
    for side in sides:
        if not CNN8_MIN_SIDE <= check_integer("size", side, at_least=1) <= CNN8_MAX_SIDE:
            raise ValueError(f"size must be in [{CNN8_MIN_SIDE}, {CNN8_MAX_SIDE}] for cnn8, got {side}; a resnet18 takes any")
    return sides[0], sides[-1]


def _convolution(before: int, after: int) -> list[nn.Module]:
    # The bias is redundant before BatchNorm; the paper's network has it, and its L1 regularisation acts on it.
    return [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after)]


def read_weights(file: Path) -> dict[str, Tensor]:
    """The tensors of a ``.pt`` or ``.pth`` file by their names. Objects are refused: loading one can run code."""
    try:
        content = read_torch(file)
    except ReadError as error:
        fault = error.fault
        if fault.startswith("refused: it asks for"):
            fault = fault.replace("refused", "holds more than tensors; objects are refused, loading them can run code", 1)
        elif not fault.startswith("refused: "):
            fault = f"is damaged or no state dict: {fault}"
        raise ValueError(f"{file} {fault}") from error
    if not isinstance(content, dict):
        kind = "Tensor" if isinstance(content, np.ndarray) else type(content).__name__
        raise ValueError(f"{file} must hold a state dict, a mapping of names to tensors; it holds a {kind}")
    for key, value in content.items():
        if not isinstance(key, str) or not isinstance(value, np.ndarray):
            kind = "Tensor" if isinstance(value, np.ndarray) else type(value).__name__
            raise ValueError(f"{file} must hold names and tensors only; its {excerpt(repr(key))} is a {kind}")
    return {key: _as_tensor(value) for key, value in content.items()}


def _as_tensor(array: NDArray[Any]) -> Tensor:
    """The same numbers as a tensor, which is only read."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the array cannot be written to
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16) if array.dtype == "V2" else torch.from_numpy(array)
