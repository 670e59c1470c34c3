"""Small networks: CNN5 and CNN8 for images, MLP for features."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the name every PyTorch reader expects

from noiseproof.checks import check_integer
from noiseproof.models.base import (
    Classifier,
    activated,
    checked_widths,
    initialise_published,
    register_model,
    round_up,
    shape_text,
)

CNN5_WIDTHS = (32, 64, 128, 128)
CNN5_SIDE = 32


@register_model("cnn5")
class CNN5(Classifier):
    """Five layers for images of any size: a 4x4 convolution, stride 2, 32 wide, then 3x3 ones 64-pool-128-pool-128, the mean
    over positions, and a linear layer.

    BatchNorm and ReLU follow every convolution, pooling takes the maximum of 2x2. Images are first averaged over squares, so
    that their longer side is about 32 pixels: a photograph costs what a thumbnail does. An image of 32x32 takes a fortieth
    of a ResNet-18's multiplications. The features are the 128 means. Initialised by
    :func:`noiseproof.models.base.initialise_published`.

    Args:
        classes: Number of classes.
        in_channels: Of the images.
        widths: Channels of the convolutions.

    >>> sum(parameter.numel() for parameter in CNN5(classes=10).parameters())
    243146
    """

    def __init__(self, classes: int, *, in_channels: int = 3, widths: Sequence[int] = CNN5_WIDTHS) -> None:
        super().__init__()
        self.in_channels = check_integer("in_channels", in_channels, at_least=1)
        self.widths = checked_widths("widths", widths, CNN5_WIDTHS, at_least=1)
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
        if (factor := min(round(max(x.shape[2:]) / CNN5_SIDE), min(x.shape[2:]) // 2)) > 1:
            x = F.avg_pool2d(x, factor, ceil_mode=True)
        layers = list(self.body)
        for place in range(0, len(layers), 2):
            pool = 0 < place < len(layers) - 2 and min(x.shape[2:]) > 1
            x = activated(layers[place + 1], layers[place](x), pool=pool)
        return x.mean((2, 3))


MLP_HIDDEN = (256, 256)


@register_model("mlp")
class MLP(Classifier):
    """Linear layers with ReLU between them; inputs ``[N, ...]`` are flattened to ``[N, in_features]``.

    ``hidden`` lists the widths; with none it is multinomial logistic regression, and the features are the inputs. Weights
    are xavier-uniform.

    Args:
        classes: Number of classes.
        in_features: Features of an example.
        hidden: Widths of the hidden layers.

    >>> MLP(classes=10, in_features=64, hidden=(32,))
    MLP(
      (body): Sequential(
        (0): Linear(in_features=64, out_features=32, bias=True)
        (1): ReLU(inplace=True)
      )
      (fc): Linear(in_features=32, out_features=10, bias=True)
    )
    """

    def __init__(self, classes: int, in_features: int, hidden: Sequence[int] = MLP_HIDDEN) -> None:
        super().__init__()
        classes = check_integer("classes", classes, at_least=2)
        self.in_features = before = check_integer("in_features", in_features, at_least=1)
        layers: list[nn.Module] = []
        for width in checked_widths("hidden", hidden, MLP_HIDDEN):
            layers += [nn.Linear(before, width), nn.ReLU(inplace=True)]
            before = width
        self.body = nn.Sequential(*layers)
        self.fc = nn.Linear(before, classes)
        initialise_published(self)

    def penultimate(self, x: Tensor) -> Tensor:
        flat = x.flatten(1) if x.dim() > 1 else x
        if flat.dim() != 2 or flat.shape[1] != self.in_features:
            raise ValueError(f"MLP takes {self.in_features} features per example, got an input {shape_text(x)}")
        hidden: Tensor = self.body(flat)
        return hidden
