"""How each data set is trained: network, optimiser, schedule, decay, augmentation; in the text and in the code."""

from __future__ import annotations

from typing import Any, NamedTuple

from noiseproof.paper.fidelity import Differs, Silent
from noiseproof.train.plan import FEATURE_DEFAULTS

__all__ = ["SETTINGS", "decay"]

NOT_CLIPPED = "the text does not mention it; the code clips the norm of the gradient at 5"
NO_AMOUNT = "the text says 'random shift and horizontal flip' and gives no amounts; the code {}"
JITTER = (
    "the text says 'random shift, color jittering, and horizontal flip' and gives no amounts; "
    "the code takes random resized crops and jitters by 0.4, 0.4, 0.4 and 0.2"
)
NO_PRECISION = "the text does not give it; the code {}"
NOT_TURNED = "the text says 'random shift and horizontal flip'; the code then turns the image by up to 20 degrees"
NOT_ZEROED = "the text says 'a ResNet-50'; the code starts the last BatchNorm of every block at zero"
WHICH_WEIGHTS = "the text says 'pre-trained on ImageNet'; the code takes torchvision's default, the file of this name"
COUNTS = Differs(
    "exact",
    "published",
    "the text gives a rate; the code truncates the number of labels that each class gives to each other class, "
    "so that 0.8 symmetric noise is 0.792 on CIFAR-100",
)

CIFAR: dict[str, Any] = {
    "optimiser": "sgd",
    "momentum": 0.9,
    "schedule": "cosine",
    "batch": 128,
    "clip": Differs(None, 5.0, NOT_CLIPPED),
    "precision": Silent("tf32", NO_PRECISION.format("leaves PyTorch's default, which is TF32 for convolutions since Ampere")),
    "noise_rule": COUNTS,
}
REAL: dict[str, Any] = {"model": "resnet50", "optimiser": "sgd", "momentum": 0.9, "batch": 256}

SETTINGS: dict[str, dict[str, Any]] = {
    "cifar10": {
        **CIFAR,
        "model": "cnn8",
        "lr": 0.01,
        "epochs": 120,
        "augment": Silent("cifar10", NO_AMOUNT.format("crops with a padding of 4")),
    },
    "cifar100": {
        **CIFAR,
        "model": "resnet34",
        "lr": 0.1,
        "epochs": 200,
        "augment": Differs("crop-flip", "cifar100", NOT_TURNED),
    },
    "webvision": {
        **REAL,
        "model_options": Differs({"stem": "imagenet"}, {"stem": "imagenet", "zero_init_residual": True}, NOT_ZEROED),
        "lr": 0.4,
        "nesterov": True,
        "schedule": "exponential:0.97",
        "epochs": 250,
        "clip": Differs(None, 5.0, NOT_CLIPPED),
        "augment": Silent("webvision", JITTER),
        "precision": Silent("bf16", NO_PRECISION.format("has bf16 mixed precision")),
    },
    "clothing1m": {
        **REAL,
        "model_options": {"stem": "imagenet"},
        "weights": Silent("resnet50-11ad3fa6.pth", WHICH_WEIGHTS),
        "lr": 5e-3,
        "schedule": "step:5:0.1",
        "epochs": 10,
        "augment": Silent("clothing1m", NO_AMOUNT.format("resizes to 256 x 256 and crops 224")),
        "precision": Silent("bf16", NO_PRECISION.format("has bf16 mixed precision")),
    },
    # Not in the paper: the setting of 'noiseproof demo', the same for every loss.
    "digits": {**FEATURE_DEFAULTS, "confidence_epochs": (25, 50, 75, 100)},
}
"""Fields of :class:`~noiseproof.train.Recipe`, without those that depend on the loss or on the noise."""


class Decay(NamedTuple):
    """The coefficients of one data set: the text's L1 for all, and the code's by the kind of the loss."""

    text_l1: float
    joint_l1: float
    negative_l1: float
    other_l2: float


CIFAR_DECAY = {"cifar10": Decay(5e-5, 5e-5, 5e-5, 1e-4), "cifar100": Decay(5e-6, 5e-6, 5e-7, 1e-5)}
REAL_DECAY = {"webvision": 3e-5, "clothing1m": 1e-3}
JOINT = {"jal-ce", "jal-fl", "amse"}
NEGATIVE = {"anl-ce", "anl-fl", "nnce"}
SENTENCE = (
    "the text says 'L1 weight decay 5e-5 and 5e-6 for CIFAR-10 and CIFAR-100' and excepts no loss; "
    "the code has these for JAL and AMSE, 5e-5 and 5e-7 for ANL, and L2 1e-4 and 1e-5 for all others"
)


def decay(dataset: str, loss: str) -> dict[str, Any]:
    """The fields ``l1`` and ``l2``."""
    if dataset in REAL_DECAY:
        return {"l2": REAL_DECAY[dataset]}
    if dataset not in CIFAR_DECAY:
        return {}
    known = CIFAR_DECAY[dataset]
    l1 = known.joint_l1 if loss in JOINT else known.negative_l1 if loss in NEGATIVE else 0.0
    l2 = 0.0 if loss in JOINT | NEGATIVE else known.other_l2
    return {"l1": Differs(known.text_l1, l1, SENTENCE), "l2": Differs(0.0, l2, SENTENCE)}
