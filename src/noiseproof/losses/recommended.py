"""Hyperparameters and regularisation that suit a loss, by the kind of data: published settings as a table.

The values are those of the code behind Wang et al., *Joint Asymmetric Loss for Learning with Noisy Labels*, ICCV 2025. The
table is plain data, and this module does not import torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

DataKind = Literal["images", "images-many-classes", "photographs", "photographs-pretrained", "features"]
MANY_CLASSES = 50
"""Classes from which on small images count as ``images-many-classes``."""


class KindOfData(NamedTuple):
    """A kind of data: what it is, the data set whose published settings stand for it, and its regularisation."""

    description: str
    data_set: str
    joint_l1: float
    """L1 regularisation of JAL and AMSE"""
    negative_l1: float
    """L1 regularisation of ANL and NNCE"""
    l2: float
    """L2 regularisation of all other losses; of all losses where there is no L1"""


KINDS_OF_DATA: dict[DataKind, KindOfData] = {
    "images": KindOfData("small images, 10 classes (CIFAR-10, 8-layer CNN)", "cifar10", 5e-5, 5e-5, 1e-4),
    "images-many-classes": KindOfData("small images, 100 classes (CIFAR-100, ResNet-34)", "cifar100", 5e-6, 5e-7, 1e-5),
    "photographs": KindOfData("photographs, a network from scratch (WebVision, ResNet-50)", "webvision", 0.0, 0.0, 3e-5),
    "photographs-pretrained": KindOfData(
        "photographs, a pre-trained network (Clothing1M, ResNet-50)", "clothing1m", 0.0, 0.0, 1e-3
    ),
    "features": KindOfData("features (an MLP; not in the paper)", "digits", 0.0, 0.0, 0.0),
}
JOINT_LOSSES = ("jal-ce", "jal-fl", "amse")
NEGATIVE_LOSSES = ("anl-ce", "anl-fl", "nnce")
FOCAL: dict[str, Any] = {"gamma": 0.5, "detach_focal": True}
CLIP, MINIMUM = {"clip": 1e-4}, {"minimum": 1e-8}
OPTIONS: dict[DataKind, dict[str, dict[str, Any]]] = {
    "images": {
        "ce": {},
        "fl": FOCAL,
        "gce": {"q": 0.7},
        "sce": {"alpha": 0.1, "beta": 1.0, **CLIP},
        "nce": {},
        "nce+rce": {"alpha": 1.0, "beta": 1.0, **CLIP},
        "nce+aul": {"alpha": 1.0, "beta": 4.0, "a": 6.3, "p": 1.5},
        "nce+agce": {"alpha": 1.0, "beta": 4.0, "a": 6.0, "q": 1.5},
        "ce+lc": {"delta": 2.5},
        "anl-ce": {"alpha": 5.0, "beta": 5.0, **MINIMUM},
        "anl-fl": {"alpha": 5.0, "beta": 5.0, **MINIMUM, **FOCAL},
        "jal-ce": {"alpha": 1.0, "beta": 1.0, "a": 30.0},
        "jal-fl": {"alpha": 1.0, "beta": 1.0, "a": 30.0, **FOCAL},
        "mae": {"scale": 2.0},
        "agce": {"a": 0.6, "q": 0.6},
        "agce+mae": {"alpha": 1.0, "beta": 1.0, "a": 6.0, "q": 1.5},
        "amse": {"a": 30.0, "q": 2.0},
        "nnce": MINIMUM,
    },
    "images-many-classes": {
        "ce": {},
        "fl": FOCAL,
        "gce": {"q": 0.7},
        "sce": {"alpha": 6.0, "beta": 0.1, **CLIP},
        "nce": {},
        "nce+rce": {"alpha": 10.0, "beta": 0.1, **CLIP},
        "nce+aul": {"alpha": 10.0, "beta": 0.015, "a": 6.0, "p": 3.0},
        "nce+agce": {"alpha": 10.0, "beta": 0.1, "a": 1.8, "q": 3.0},
        "ce+lc": {"delta": 0.5},
        "anl-ce": {"alpha": 10.0, "beta": 1.0, **MINIMUM},
        "anl-fl": {"alpha": 10.0, "beta": 1.0, **MINIMUM, **FOCAL},
        "jal-ce": {"alpha": 5.0, "beta": 1.0, "a": 20.0},
        "jal-fl": {"alpha": 5.0, "beta": 1.0, "a": 20.0, **FOCAL},
    },
    "photographs": {
        "ce": {},
        "gce": {"q": 0.6},
        "sce": {"alpha": 10.0, "beta": 1.0, **CLIP},
        "nce+rce": {"alpha": 50.0, "beta": 0.1, **CLIP},
        "nce+agce": {"alpha": 50.0, "beta": 0.1, "a": 2.5, "q": 3.0},
        "anl-ce": {"alpha": 20.0, "beta": 1.0, **MINIMUM},
        "anl-fl": {"alpha": 20.0, "beta": 1.0, **MINIMUM, **FOCAL},
        "jal-ce": {"alpha": 50.0, "beta": 1.0, "a": 30.0},
        "jal-fl": {"alpha": 50.0, "beta": 1.0, "a": 30.0, **FOCAL},
    },
    "photographs-pretrained": {
        "ce": {},
        "gce": {"q": 0.6},
        "sce": {"alpha": 10.0, "beta": 1.0, **CLIP},
        "nce+rce": {"alpha": 10.0, "beta": 1.0, **CLIP},
        "nce+agce": {"alpha": 50.0, "beta": 0.1, "a": 2.5, "q": 3.0},
        "anl-ce": {"alpha": 5.0, "beta": 0.1, **MINIMUM},
        "anl-fl": {"alpha": 5.0, "beta": 0.1, **MINIMUM, **FOCAL},
        "jal-ce": {"alpha": 5.0, "beta": 0.1, "a": 5.0},
        "jal-fl": {"alpha": 5.0, "beta": 0.1, "a": 5.0, **FOCAL},
    },
}
"""The hyperparameters of each loss by kind of data; features use the defaults of the losses."""


class RecommendedSettings(NamedTuple):
    """The settings of one loss for one kind of data."""

    kind: DataKind
    data: str
    """The kind of data in words"""
    options: Mapping[str, Any]
    """Hyperparameters that differ from, or repeat, the defaults of the loss"""
    l1: float
    """Strength of :class:`noiseproof.L1`"""
    l2: float
    """The optimiser's ``weight_decay``"""

    def __str__(self) -> str:
        terms = [f"{name} {value:g}" for name, value in (("L1", self.l1), ("L2", self.l2)) if value]
        return f"{' and '.join(terms) or 'none'}: {self.data}"


def recommended_settings(loss: str) -> tuple[RecommendedSettings, ...]:
    """Return the published hyperparameters and regularisation of a loss, one entry for each kind of data.

    Args:
        loss: A loss's name, as :func:`noiseproof.create_loss` accepts it.

    Returns:
        The settings, features last; nothing for a loss without published settings.

    Raises:
        ValueError: If no loss has this name.

    Example:
        >>> print(*recommended_settings("jal-ce"), sep="\\n")
        L1 5e-05: small images, 10 classes (CIFAR-10, 8-layer CNN)
        L1 5e-06: small images, 100 classes (CIFAR-100, ResNet-34)
        L2 3e-05: photographs, a network from scratch (WebVision, ResNet-50)
        L2 0.001: photographs, a pre-trained network (Clothing1M, ResNet-50)
        none: features (an MLP; not in the paper)
        >>> recommended_settings("jal-ce")[1].options
        {'alpha': 5.0, 'beta': 1.0, 'a': 20.0}
    """
    if loss not in OPTIONS["images"]:
        from noiseproof.losses.facts import find_facts

        loss = find_facts(loss).name
    published = {kind: losses[loss] for kind, losses in OPTIONS.items() if loss in losses}
    if not published:
        return ()
    return tuple(_settings(loss, kind, options) for kind, options in {**published, "features": {}}.items())


def _settings(loss: str, kind: DataKind, options: Mapping[str, Any]) -> RecommendedSettings:
    known = KINDS_OF_DATA[kind]
    l1 = known.joint_l1 if loss in JOINT_LOSSES else known.negative_l1 if loss in NEGATIVE_LOSSES else 0.0
    return RecommendedSettings(kind, known.description, dict(options), l1, 0.0 if l1 else known.l2)


def kind_of_data(kind: str | None, classes: int | None = None, pretrained: bool = False) -> DataKind:
    """Return the row of the table that suits a data set.

    Args:
        kind: ``features``, ``images`` (small ones) or ``photographs``; None counts as features.
        classes: The number of classes, if it is known.
        pretrained: Whether the network for photographs starts from pre-trained weights.

    Returns:
        The kind of data.

    Example:
        >>> kind_of_data("images", classes=10), kind_of_data("images", classes=100)
        ('images', 'images-many-classes')
    """
    if kind == "photographs":
        return "photographs-pretrained" if pretrained else "photographs"
    if kind == "images":
        return "images-many-classes" if (classes or 0) >= MANY_CLASSES else "images"
    return "features"
