"""Residual networks for 32x32 and 224x224, with torchvision's parameter names so that its weights load.

The four stages are the same for both sizes; only the stem differs. Names and their order in the state dict are a promise:
``tests/models/data/torchvision_resnet50.json`` holds them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal, TypedDict, Unpack

from torch import Tensor, nn

from noiseproof.checks import check_integer
from noiseproof.models.base import INITIALISE, Classifier, Initialisation, activated, register_model, round_up, shape_text

Stem = Literal["cifar", "imagenet"]
INITIALISATION_OF: dict[Stem, Initialisation] = {"cifar": "published", "imagenet": "torchvision"}


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and the shortcut: ``relu(bn2(conv2(relu(bn1(conv1(x))))) + shortcut(x))``."""

    expansion: ClassVar[int] = 1

    def __init__(self, before: int, width: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = _convolution(before, width, 3, stride)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = _convolution(width, width, 3)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = _shortcut(before, width * self.expansion, stride)

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        out = activated(self.bn1, self.conv1(x))
        return activated(self.bn2, self.conv2(out), shortcut)


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions and the shortcut; four times as wide outside as inside.

    The stride is in the 3x3 convolution ("v1.5"), as in torchvision; the original paper has it in the first 1x1. No name or
    shape tells the two apart, so weights of the other kind would load and predict badly.
    """

    expansion: ClassVar[int] = 4

    def __init__(self, before: int, width: int, stride: int = 1) -> None:
        super().__init__()
        after = width * self.expansion
        self.conv1 = _convolution(before, width, 1)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = _convolution(width, width, 3, stride)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = _convolution(width, after, 1)
        self.bn3 = nn.BatchNorm2d(after)
        self.downsample = _shortcut(before, after, stride)

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        out = activated(self.bn1, self.conv1(x))
        out = activated(self.bn2, self.conv2(out))
        return activated(self.bn3, self.conv3(out), shortcut)


class Options(TypedDict, total=False):
    """What the builders pass on to :class:`ResNet`."""

    stem: Stem
    in_channels: int
    zero_init_residual: bool
    init: Initialisation | None


class ResNet(Classifier):
    """Four stages of residual blocks, 64, 128, 256 and 512 wide, the mean over positions, and a linear layer.

    Images of other sizes work. The features are the means, [N, 512] or, with bottlenecks, [N, 2048].

    Args:
        block: The kind of block, which :func:`resnet18` and its like choose.
        depths: Numbers of blocks in the four stages.
        classes: Number of classes.
        stem: "cifar": a 3x3 convolution, stride 1, no pooling, for 32x32 (the last stage then sees 4x4); "imagenet": a
            7x7 convolution, stride 2, and 3x3 max-pooling, stride 2, for 224x224 (7x7).
        in_channels: Of the images.
        zero_init_residual: Start the last BatchNorm of every block at 0, so that each block starts as its shortcut.
        init: "published" or "torchvision", see ``models.base``; None takes "published" with the stem "cifar" and
            "torchvision" with "imagenet".

    Raises:
        ValueError: If an option is unknown, or if there are not four depths.

    >>> import torch
    >>> ResNet(BasicBlock, (1, 1, 1, 1), classes=10)(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])

    Reference: He et al., CVPR 2016.
    """

    def __init__(
        self,
        block: type[BasicBlock] | type[Bottleneck],
        depths: Sequence[int],
        classes: int,
        *,
        stem: Stem = "cifar",
        in_channels: int = 3,
        zero_init_residual: bool = False,
        init: Initialisation | None = None,
    ) -> None:
        super().__init__()
        if stem not in INITIALISATION_OF:
            raise ValueError(f"stem must be one of {', '.join(INITIALISATION_OF)}, got {stem!r}")
        if init is not None and init not in INITIALISE:
            raise ValueError(f"init must be one of {', '.join(INITIALISE)} or None, got {init!r}")
        if len(depths) != 4:
            raise ValueError(f"depths must have 4 numbers of blocks, got {list(depths)}")
        classes = check_integer("classes", classes, at_least=2)
        self.in_channels = check_integer("in_channels", in_channels, at_least=1)
        self.block, self.depths, self.stem = block, tuple(depths), stem
        self.initialisation = INITIALISATION_OF[stem] if init is None else init
        # Parameters enter the state dict in the order of assignment, which is torchvision's.
        imagenet = stem == "imagenet"
        self.conv1 = _convolution(self.in_channels, 64, 7, 2) if imagenet else _convolution(self.in_channels, 64, 3)
        self.bn1 = nn.BatchNorm2d(64)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1) if imagenet else nn.Identity()
        stages = []
        before = 64
        for stage, depth in enumerate(depths):
            width = 64 * 2**stage
            blocks = [block(before, width, 1 if stage == 0 else 2)]
            before = width * block.expansion
            blocks += [block(before, width) for _ in range(check_integer(f"depths[{stage}]", depth, at_least=1) - 1)]
            stages.append(nn.Sequential(*blocks))
        self.layer1, self.layer2, self.layer3, self.layer4 = stages
        self.fc = nn.Linear(before, classes)
        INITIALISE[self.initialisation](self)
        if zero_init_residual:
            for layer in self.modules():
                if isinstance(layer, BasicBlock | Bottleneck):
                    last = layer.bn3 if isinstance(layer, Bottleneck) else layer.bn2
                    nn.init.zeros_(last.weight)

    def aligned(self, multiple: int) -> ResNet:
        channels = round_up(self.in_channels, multiple)
        return ResNet(self.block, self.depths, self.classes, stem=self.stem, in_channels=channels, init=self.initialisation)

    def penultimate(self, x: Tensor) -> Tensor:
        if x.dim() != 4 or x.shape[1] != self.in_channels:
            raise ValueError(f"ResNet takes images [N, {self.in_channels}, H, W], got {shape_text(x)}")
        x = self.maxpool(activated(self.bn1, self.conv1(x)))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return x.mean((2, 3))


@register_model("resnet18")
def resnet18(classes: int, **options: Unpack[Options]) -> ResNet:
    """Return a ResNet-18: 11,689,512 parameters for ImageNet's 1000 classes.

    Args:
        classes: Number of classes.
        **options: Those of :class:`ResNet`: ``stem``, ``in_channels``, ``zero_init_residual``, ``init``.

    Returns:
        The network.

    >>> resnet18(10).classes
    10
    """
    return ResNet(BasicBlock, (2, 2, 2, 2), classes, **options)


@register_model("resnet34")
def resnet34(classes: int, **options: Unpack[Options]) -> ResNet:
    """Return a ResNet-34, the paper's network for CIFAR-100: there 21,328,292 parameters.

    Args:
        classes: Number of classes.
        **options: Those of :class:`ResNet`: ``stem``, ``in_channels``, ``zero_init_residual``, ``init``.

    Returns:
        The network.

    >>> sum(parameter.numel() for parameter in resnet34(100).parameters())
    21328292
    """
    return ResNet(BasicBlock, (3, 4, 6, 3), classes, **options)


@register_model("resnet50")
def resnet50(classes: int, **options: Unpack[Options]) -> ResNet:
    """Return a ResNet-50, the paper's network for WebVision and Clothing1M.

    Args:
        classes: Number of classes.
        **options: Those of :class:`ResNet`: ``stem``, ``in_channels``, ``zero_init_residual``, ``init``.

    Returns:
        The network.

    >>> model = resnet50(1000, stem="imagenet", zero_init_residual=True)
    >>> sum(parameter.numel() for parameter in model.parameters())
    25557032
    """
    return ResNet(Bottleneck, (3, 4, 6, 3), classes, **options)


def _convolution(before: int, after: int, size: int, stride: int = 1) -> nn.Conv2d:
    """Padded so that stride 1 keeps the size; without a bias, for BatchNorm follows."""
    return nn.Conv2d(before, after, size, stride=stride, padding=size // 2, bias=False)


def _shortcut(before: int, after: int, stride: int) -> nn.Sequential | None:
    """None where the block changes neither width nor size, and the shortcut is the input itself."""
    if stride == 1 and before == after:
        return None
    return nn.Sequential(_convolution(before, after, 1, stride), nn.BatchNorm2d(after))
