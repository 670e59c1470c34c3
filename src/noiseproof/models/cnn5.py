"""A small network for images on a processor without a GPU: four convolutions and a linear layer."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the name every PyTorch reader expects

from noiseproof.checks import check_integer
from noiseproof.models.base import Classifier, activated, checked_widths, initialise_published, round_up, shape_text
from noiseproof.models.catalog import register_model

__all__ = ["CNN5"]

WIDTHS = (32, 64, 128, 128)
SIDE = 32


@register_model("cnn5")
class CNN5(Classifier):
    """Five layers for images of any size: a 4x4 convolution, stride 2, 32 wide, then 3x3 ones 64-pool-128-pool-128, the mean
    over positions, and a linear layer.

    BatchNorm and ReLU follow every convolution, pooling takes the maximum of 2x2. Images are first averaged over squares, so
    that their longer side is about 32 pixels: a photograph costs what a thumbnail does. An image of 32x32 takes a fortieth
    of a ResNet-18's multiplications. The features are the 128 means. Initialised by
    :func:`noiseproof.models.base.initialise_published`.

    >>> sum(parameter.numel() for parameter in CNN5(classes=10).parameters())
    243146
    """

    def __init__(self, classes: int, *, in_channels: int = 3, widths: Sequence[int] = WIDTHS) -> None:
        super().__init__()
        self.in_channels = check_integer("in_channels", in_channels, at_least=1)
        self.widths = checked_widths("widths", widths, WIDTHS, at_least=1)
        layers: list[nn.Module] = []
        before = self.in_channels
        for place, width in enumerate(self.widths):
            size, stride = (4, 2) if place == 0 else (3, 1)
            layers += [nn.Conv2d(before, width, size, stride=stride, padding=1, bias=False), nn.BatchNorm2d(width)]
            before = width
        self.body = nn.Sequential(*layers)
        self.fc = nn.Linear(before, check_integer("classes", classes, at_least=2))
        initialise_published(self)

    def aligned(self, multiple: int) -> CNN5:
        widths = [round_up(width, multiple) for width in self.widths]
        return CNN5(self.classes, in_channels=round_up(self.in_channels, multiple), widths=widths)

    def penultimate(self, x: Tensor) -> Tensor:
        if x.dim() != 4 or x.shape[1] != self.in_channels or min(x.shape[2:]) < 2:
            raise ValueError(f"CNN5 takes images [N, {self.in_channels}, H, W] of 2x2 or more, got {shape_text(x)}")
        if (factor := min(round(max(x.shape[2:]) / SIDE), min(x.shape[2:]) // 2)) > 1:
            x = F.avg_pool2d(x, factor, ceil_mode=True)
        layers = list(self.body)
        for place in range(0, len(layers), 2):
            pool = 0 < place < len(layers) - 2 and min(x.shape[2:]) > 1
            x = activated(layers[place + 1], layers[place](x), pool=pool)
        return x.mean((2, 3))
