"""The base of every model: logits from a last linear layer, the features before it, and the initialisation."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Literal, TypeVar

import torch.nn.functional as F  # noqa: N812 - the name every PyTorch reader expects
from torch import Tensor, nn

from noiseproof.checks import check_integer

__all__ = ["INITIALISE", "Classifier", "Initialisation", "activated", "initialise_published", "replace_head"]

Initialisation = Literal["published", "torchvision"]
HEAD = "fc"
"""The name of the last layer in every model's state dict."""

M = TypeVar("M", bound="Classifier")


class Classifier(nn.Module):
    """A network that ends in one linear layer, ``fc``.

    A subclass sets ``fc`` and writes :meth:`penultimate`. ``initialisation`` is that of a new last layer.
    """

    fc: nn.Linear
    initialisation: Initialisation = "published"

    @property
    def classifier(self) -> nn.Linear:
        """The last layer: the logits are this layer of the features."""
        return self.fc

    @property
    def classes(self) -> int:
        return self.fc.out_features

    def aligned(self, multiple: int) -> Classifier:
        """A newly initialised network like this one, with its numbers of channels rounded up to a multiple.

        Its tensors have the same names and are at least as large. With this network's values first and zeros after them it
        computes the same, on inputs padded with zero channels, and training keeps the zeros: an added channel is 0 before
        and after BatchNorm (whose weight there is 0), so it contributes nothing and gets no gradient.
        """
        return copy.deepcopy(self)

    def penultimate(self, x: Tensor) -> Tensor:
        """The activations ``[N, D]`` before the last layer."""
        raise NotImplementedError(f"{type(self).__name__} does not implement `penultimate`")

    def forward(self, x: Tensor, features: bool = False) -> Tensor | tuple[Tensor, Tensor]:
        """Logits ``[N, K]``; with ``features``, the pair of logits and the activations ``[N, D]`` before the last layer."""
        hidden = self.penultimate(x)
        logits: Tensor = self.fc(hidden)
        return (logits, hidden) if features else logits


def replace_head(model: M, classes: int) -> M:
    """Give the model a new last layer for this many classes, initialised as the model initialises its own.

    Changes the model and returns it. The new layer has the device and dtype of the old one. Create optimisers afterwards.

    >>> from noiseproof.models import CNN8
    >>> replace_head(CNN8(10), 14).classifier
    Linear(in_features=256, out_features=14, bias=True)
    """
    old = model.classifier
    new = nn.Linear(
        old.in_features,
        check_integer("classes", classes, at_least=2),
        bias=old.bias is not None,
        device=old.weight.device,
        dtype=old.weight.dtype,
    )
    INITIALISE[model.initialisation](new)
    model.fc = new.train(old.training)
    return model


def activated(norm: nn.Module, x: Tensor, shortcut: Tensor | None = None, *, pool: bool = False) -> Tensor:
    """``relu(norm(x) + shortcut)``, and with ``pool`` the maximum of each 2x2 of it.

    A norm layer with a method ``activated``, such as a fused kernel, does all of this at once.
    """
    at_once: Callable[..., Tensor] | None = getattr(norm, "activated", None)
    if at_once is not None:
        return at_once(x, shortcut, pool=pool)
    out = norm(x) if shortcut is None else norm(x) + shortcut
    out = F.relu(out, inplace=True)
    return F.max_pool2d(out, 2) if pool else out


def initialise_published(module: nn.Module) -> None:
    """The initialisation behind the paper's CIFAR results.

    Convolutions: U(-b, b) with b = sqrt(6 / fan_in), kaiming-uniform for ReLU. Linear layers: b = sqrt(6 / (in + out)),
    xavier-uniform. Biases and BatchNorm keep torch's defaults: U(-1/sqrt(fan_in), 1/sqrt(fan_in)), and 1 and 0.
    """
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_uniform_(layer.weight, mode="fan_in", nonlinearity="relu")
        elif isinstance(layer, nn.Linear):
            nn.init.xavier_uniform_(layer.weight)


def initialise_torchvision(module: nn.Module) -> None:
    """torchvision's: convolutions N(0, 2 / fan_out), kaiming-normal for ReLU; the rest keeps torch's defaults."""
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")


INITIALISE = {"published": initialise_published, "torchvision": initialise_torchvision}


def checked_widths(name: str, widths: Sequence[int], default: Sequence[int], *, at_least: int = 0) -> tuple[int, ...]:
    """The widths of that many layers at least; ``default`` is the example in the error."""
    try:
        found = tuple(widths)
    except TypeError as error:
        raise TypeError(f"{name} must be a list of widths, such as {list(default)}, got {widths!r}") from error
    if len(found) < at_least:
        raise ValueError(f"{name} must have at least {at_least} number, such as {list(default)}, got {len(found)}")
    return tuple(check_integer(f"{name}[{place}]", width, at_least=1) for place, width in enumerate(found))


def round_up(value: int, multiple: int) -> int:
    """The next multiple, or the value if it is one.

    >>> round_up(196, 8)
    200
    """
    return -(-value // multiple) * multiple


def shape_text(x: Tensor) -> str:
    """The shape as error messages print it, such as ``[2, 3, 32, 32]``."""
    return str([int(size) for size in x.shape])
