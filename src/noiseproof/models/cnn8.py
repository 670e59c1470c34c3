"""The paper's 8-layer network for CIFAR-10: six convolutions and two linear layers."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from noiseproof.checks import check_integer
from noiseproof.models.base import Classifier, activated, initialise_published, round_up, shape_text

__all__ = ["CNN8"]

WIDTHS = (64, 128, 196)
SIDE = 32


class CNN8(Classifier):
    """Eight layers for images of 32x32: 3x3 convolutions 64-64-pool-128-128-pool-196-196-pool, linear 256, linear K.

    BatchNorm and ReLU follow every layer but the last; convolutions are padded by 1 and have biases; pooling takes the
    maximum of 2x2. The features are the 256 activations after the last ReLU. Initialised by
    :func:`noiseproof.models.base.initialise_published`.

    >>> sum(parameter.numel() for parameter in CNN8(classes=10).parameters())
    1639794
    """

    def __init__(self, classes: int, *, in_channels: int = 3, widths: Sequence[int] = WIDTHS) -> None:
        super().__init__()
        classes = check_integer("classes", classes, at_least=2)
        self.in_channels = check_integer("in_channels", in_channels, at_least=1)
        self.widths = tuple(check_integer(f"widths[{k}]", width, at_least=1) for k, width in enumerate(widths))
        layers: list[nn.Module] = []
        before = self.in_channels
        for width in self.widths:
            layers += [*_convolution(before, width), *_convolution(width, width)]
            before = width
        self.body = nn.Sequential(*layers)
        pooled = self.widths[-1] * (SIDE // 2 ** len(self.widths)) ** 2
        self.hidden = nn.Sequential(nn.Linear(pooled, 256), nn.BatchNorm1d(256))
        self.fc = nn.Linear(256, classes)
        initialise_published(self)

    def aligned(self, multiple: int) -> CNN8:
        widths = [round_up(width, multiple) for width in self.widths]
        return CNN8(self.classes, in_channels=round_up(self.in_channels, multiple), widths=widths)

    def penultimate(self, x: Tensor) -> Tensor:
        if x.dim() != 4 or x.shape[1:] != (self.in_channels, SIDE, SIDE):
            raise ValueError(f"CNN8 takes images [N, {self.in_channels}, {SIDE}, {SIDE}], got {shape_text(x)}")
        layers = list(self.body)
        for place in range(0, len(layers), 4):
            conv1, norm1, conv2, norm2 = layers[place : place + 4]
            x = activated(norm2, conv2(activated(norm1, conv1(x))), pool=True)
        linear, norm = self.hidden
        return activated(norm, linear(x.flatten(1)))


def _convolution(before: int, after: int) -> list[nn.Module]:
    # The bias is redundant before BatchNorm; the paper's network has it, and its L1 decay acts on it.
    return [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after)]
