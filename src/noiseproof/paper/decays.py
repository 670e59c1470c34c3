"""The weight decay that the paper trains a loss with, by kind of data."""

from __future__ import annotations

from typing import NamedTuple

from noiseproof.losses import find_loss
from noiseproof.paper.hyperparameters import PARAMETERS
from noiseproof.paper.recipes import recipe

__all__ = ["RecommendedDecay", "recommended_decay"]

KINDS = {
    "cifar10": "small images, 10 classes (CIFAR-10, 8-layer CNN)",
    "cifar100": "small images, 100 classes (CIFAR-100, ResNet-34)",
    "webvision": "photographs, a network from scratch (WebVision, ResNet-50)",
    "clothing1m": "photographs, a pre-trained network (Clothing1M, ResNet-50)",
    "digits": "features (an MLP; not in the paper)",
}


class RecommendedDecay(NamedTuple):
    """For one kind of data: ``l1``, the strength of :class:`noiseproof.L1`, and ``l2``, an optimiser's ``weight_decay``."""

    data: str
    l1: float
    l2: float

    def __str__(self) -> str:
        named = [f"{name} {value:g}" for name, value in (("L1", self.l1), ("L2", self.l2)) if value]
        return f"{' and '.join(named) or 'none'}: {self.data}"


def recommended_decay(loss: str) -> tuple[RecommendedDecay, ...]:
    """What the published numbers of a loss were trained with, by kind of data; nothing for a loss that is not in the paper.

    >>> print(*recommended_decay("jal-ce"), sep="\\n")
    L1 5e-05: small images, 10 classes (CIFAR-10, 8-layer CNN)
    L1 5e-06: small images, 100 classes (CIFAR-100, ResNet-34)
    L2 3e-05: photographs, a network from scratch (WebVision, ResNet-50)
    L2 0.001: photographs, a pre-trained network (Clothing1M, ResNet-50)
    none: features (an MLP; not in the paper)
    """
    name = find_loss(loss).name
    trained = [dataset for dataset, losses in PARAMETERS.items() if name in losses]
    recipes = [recipe(f"{dataset}/{name}") for dataset in (*trained, "digits")] if trained else []
    return tuple(RecommendedDecay(KINDS[found.dataset], found.l1, found.l2) for found in recipes)
