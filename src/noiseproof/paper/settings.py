"""How each loss is trained on each data set: hyperparameters, network, optimiser, schedule, regularisation, augmentation.

Where the paper's text and its code differ, a value holds both, with the source; a profile chooses. The text's hyperparameters
are those of the supplement's table of parameter settings. Names are the catalogue's and options are its classes'.
"""

from __future__ import annotations

import copy
import difflib
import math
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple, get_args

from noiseproof.train.plan import FEATURE_DEFAULTS

Profile = Literal["paper-code", "paper-text"]
PROFILES: tuple[Profile, ...] = get_args(Profile)
"""``paper-code`` is what made the published numbers; ``paper-text`` is what the paper alone says."""


class Differs(NamedTuple):
    """The text says one thing, the code does another. Where the text leaves a step out, so does ``text``."""

    text: Any
    code: Any
    source: str


class Silent(NamedTuple):
    """The text gives no value where one is needed; both profiles take the code's."""

    code: Any
    source: str


class Difference(NamedTuple):
    """One difference between the paper's text and its code."""

    field: str
    """A field of the recipe, ``loss.OPTION``, or ``noise KIND:RATE``"""
    text: Any
    """None where the text gives no value; its profile then takes the code's, or leaves the step out"""
    code: Any
    source: str


def resolved(values: Mapping[str, Any], profile: Profile) -> dict[str, Any]:
    """The values as the profile has them.

    >>> resolved({"q": Differs(0.9, 0.7, "Table 8"), "a": 6.0}, "paper-text")
    {'q': 0.9, 'a': 6.0}
    """
    chosen = {}
    for name, value in values.items():
        if isinstance(value, Differs):
            value = value.text if profile == "paper-text" else value.code
        chosen[name] = copy.deepcopy(value.code if isinstance(value, Silent) else value)
    return chosen


def listed(values: Mapping[str, Any], prefix: str = "") -> Iterator[Difference]:
    """The values on which the two do not agree, as differences."""
    for name, value in values.items():
        if isinstance(value, Differs) and value.text != value.code:
            yield Difference(prefix + name, value.text, value.code, value.source)
        elif isinstance(value, Silent):
            yield Difference(prefix + name, None, value.code, value.source)


def check_profile(profile: str) -> Profile:
    """The profile, or an error that names the two."""
    for known in PROFILES:
        if profile == known:
            return known
    near = difflib.get_close_matches(str(profile), PROFILES, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise ValueError(f"profile must be one of {', '.join(PROFILES)}, got {profile!r}{hint}")


TABLE_SOURCE = "the supplement's table of parameter settings prints {}; the code has {}"
CLIPPED_LOG = Differs(
    math.exp(-4), 1e-4, "the supplement's table prints A = -4 for the logarithm of zero; the code takes ln 1e-4 = -9.2103"
)
DETACHED_FOCAL = Differs(
    False,
    True,
    "the text's loss has a focal factor like any other; the code takes the factor (1 - p)^gamma out of the derivative",
)
MINIMUM_PROBABILITY = Differs(
    1e-7,
    1e-8,
    "the text takes the settings of ANL, whose code clips probabilities at 1e-7; this paper's code clips them at 1e-8",
)
DELTA_SOURCE = (
    "the text gives neither delta nor formula; the code rescales any norm of the logits above 1/delta to delta, "
    "where the LogitClip paper clips at tau"
)
AGCE_ALONE = "the supplement says 'we use the same a=6, q=1.5' of its AGCE+MAE; the code trains AGCE alone with {} = 0.6"
FOCAL_OPTIONS: dict[str, Any] = {"gamma": 0.5, "detach_focal": DETACHED_FOCAL}

PARAMETERS: dict[str, dict[str, dict[str, Any]]] = {
    "cifar10": {
        "ce": {},
        "fl": FOCAL_OPTIONS,
        "gce": {"q": Differs(0.9, 0.7, TABLE_SOURCE.format("q = 0.9", "0.7"))},
        "sce": {"alpha": 0.1, "beta": 1.0, "clip": CLIPPED_LOG},
        "nce": {},
        "nce+rce": {"alpha": 1.0, "beta": 1.0, "clip": CLIPPED_LOG},
        "nce+aul": {"alpha": 1.0, "beta": Differs(3.0, 4.0, TABLE_SOURCE.format("beta = 3", "4")), "a": 6.3, "p": 1.5},
        "nce+agce": {"alpha": Differs(10.0, 1.0, TABLE_SOURCE.format("alpha = 10", "1")), "beta": 4.0, "a": 6.0, "q": 1.5},
        "ce+lc": {"delta": Silent(2.5, DELTA_SOURCE)},
        "anl-ce": {"alpha": 5.0, "beta": 5.0, "minimum": MINIMUM_PROBABILITY},
        "anl-fl": {"alpha": 5.0, "beta": 5.0, "minimum": MINIMUM_PROBABILITY, **FOCAL_OPTIONS},
        "jal-ce": {"alpha": 1.0, "beta": 1.0, "a": 30.0},
        "jal-fl": {"alpha": 1.0, "beta": 1.0, "a": 30.0, **FOCAL_OPTIONS},
        # Only in the ablations and their figures.
        "mae": {"scale": 2.0},
        "agce": {"a": Differs(6.0, 0.6, AGCE_ALONE.format("a")), "q": Differs(1.5, 0.6, AGCE_ALONE.format("q"))},
        "agce+mae": {"alpha": 1.0, "beta": 1.0, "a": 6.0, "q": 1.5},
        "amse": {"a": 30.0, "q": 2.0},
        "nnce": {"minimum": MINIMUM_PROBABILITY},
    },
    "cifar100": {
        "ce": {},
        "fl": FOCAL_OPTIONS,
        "gce": {"q": 0.7},
        "sce": {"alpha": 6.0, "beta": Differs(1.0, 0.1, TABLE_SOURCE.format("beta = 1", "0.1")), "clip": CLIPPED_LOG},
        "nce": {},
        "nce+rce": {"alpha": 10.0, "beta": 0.1, "clip": CLIPPED_LOG},
        "nce+aul": {"alpha": 10.0, "beta": 0.015, "a": 6.0, "p": 3.0},
        "nce+agce": {"alpha": 10.0, "beta": 0.1, "a": 1.8, "q": 3.0},
        "ce+lc": {"delta": Silent(0.5, DELTA_SOURCE)},
        "anl-ce": {"alpha": 10.0, "beta": 1.0, "minimum": MINIMUM_PROBABILITY},
        "anl-fl": {"alpha": 10.0, "beta": 1.0, "minimum": MINIMUM_PROBABILITY, **FOCAL_OPTIONS},
        "jal-ce": {"alpha": 5.0, "beta": 1.0, "a": 20.0},
        "jal-fl": {"alpha": 5.0, "beta": 1.0, "a": 20.0, **FOCAL_OPTIONS},
    },
    "webvision": {
        "ce": {},
        "gce": {"q": Differs(0.7, 0.6, TABLE_SOURCE.format("q = 0.7", "0.6"))},
        "sce": {"alpha": 10.0, "beta": 1.0, "clip": CLIPPED_LOG},
        "nce+rce": {"alpha": 50.0, "beta": 0.1, "clip": CLIPPED_LOG},
        "nce+agce": {"alpha": 50.0, "beta": 0.1, "a": 2.5, "q": 3.0},
        "anl-ce": {"alpha": 20.0, "beta": 1.0, "minimum": MINIMUM_PROBABILITY},
        "anl-fl": {"alpha": 20.0, "beta": 1.0, "minimum": MINIMUM_PROBABILITY, **FOCAL_OPTIONS},
        "jal-ce": {"alpha": 50.0, "beta": 1.0, "a": 30.0},
        "jal-fl": {"alpha": 50.0, "beta": 1.0, "a": 30.0, **FOCAL_OPTIONS},
    },
    "clothing1m": {
        "ce": {},
        "gce": {"q": 0.6},
        "sce": {"alpha": 10.0, "beta": 1.0, "clip": CLIPPED_LOG},
        "nce+rce": {"alpha": 10.0, "beta": 1.0, "clip": CLIPPED_LOG},
        "nce+agce": {"alpha": 50.0, "beta": 0.1, "a": 2.5, "q": 3.0},
        "anl-ce": {"alpha": 5.0, "beta": 0.1, "minimum": MINIMUM_PROBABILITY},
        "anl-fl": {"alpha": 5.0, "beta": 0.1, "minimum": MINIMUM_PROBABILITY, **FOCAL_OPTIONS},
        "jal-ce": {"alpha": 5.0, "beta": 0.1, "a": 5.0},
        "jal-fl": {"alpha": 5.0, "beta": 0.1, "a": 5.0, **FOCAL_OPTIONS},
    },
}
"""The losses in the order of the tables; an option that is not named keeps the catalogue's default, which is the code's."""

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
LABEL_COUNTS = Differs(
    "exact",
    "published",
    "the text gives a rate; the code truncates the number of labels that each class gives to each other class, "
    "so that 0.8 symmetric noise is 0.792 on CIFAR-100",
)

CIFAR_SETTINGS: dict[str, Any] = {
    "optimiser": "sgd",
    "momentum": 0.9,
    "schedule": "cosine",
    "batch": 128,
    "clip": Differs(None, 5.0, NOT_CLIPPED),
    "precision": Silent("tf32", NO_PRECISION.format("leaves PyTorch's default, which is TF32 for convolutions since Ampere")),
    "noise_rule": LABEL_COUNTS,
}
REAL_IMAGE_SETTINGS: dict[str, Any] = {"model": "resnet50", "optimiser": "sgd", "momentum": 0.9, "batch": 256}

SETTINGS: dict[str, dict[str, Any]] = {
    "cifar10": {
        **CIFAR_SETTINGS,
        "model": "cnn8",
        "lr": 0.01,
        "epochs": 120,
        "augment": Silent("cifar10", NO_AMOUNT.format("crops with a padding of 4")),
    },
    "cifar100": {
        **CIFAR_SETTINGS,
        "model": "resnet34",
        "lr": 0.1,
        "epochs": 200,
        "augment": Differs("crop-flip", "cifar100", NOT_TURNED),
    },
    "webvision": {
        **REAL_IMAGE_SETTINGS,
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
        **REAL_IMAGE_SETTINGS,
        "model_options": {"stem": "imagenet"},
        "weights": Silent("resnet50-11ad3fa6.pth", WHICH_WEIGHTS),
        "lr": 5e-3,
        "schedule": "step:5:0.1",
        "epochs": 10,
        "augment": Silent("clothing1m", NO_AMOUNT.format("resizes to 256 x 256 and crops 224")),
        "precision": Silent("bf16", NO_PRECISION.format("has bf16 mixed precision")),
    },
    # Not in the paper: the default settings for features, the same for every loss.
    "digits": {**FEATURE_DEFAULTS, "confidence_epochs": (25, 50, 75, 100)},
}
"""Fields of :class:`~noiseproof.train.Recipe`, without those that depend on the loss or on the noise."""


class Regularisation(NamedTuple):
    """The coefficients of one data set: the text's L1 for all, and the code's by the kind of the loss."""

    text_l1: float
    joint_l1: float
    negative_l1: float
    other_l2: float


CIFAR_REGULARISATION = {"cifar10": Regularisation(5e-5, 5e-5, 5e-5, 1e-4), "cifar100": Regularisation(5e-6, 5e-6, 5e-7, 1e-5)}
REAL_L2 = {"webvision": 3e-5, "clothing1m": 1e-3}
JOINT_LOSSES = {"jal-ce", "jal-fl", "amse"}
NEGATIVE_LOSSES = {"anl-ce", "anl-fl", "nnce"}
REGULARISATION_SOURCE = (
    "the text says 'L1 weight decay 5e-5 and 5e-6 for CIFAR-10 and CIFAR-100' and excepts no loss; "
    "the code has these for JAL and AMSE, 5e-5 and 5e-7 for ANL, and L2 1e-4 and 1e-5 for all others"
)


def regularisation(dataset: str, loss: str) -> dict[str, Any]:
    """The fields ``l1`` and ``l2``."""
    if dataset in REAL_L2:
        return {"l2": REAL_L2[dataset]}
    if dataset not in CIFAR_REGULARISATION:
        return {}
    known = CIFAR_REGULARISATION[dataset]
    l1 = known.joint_l1 if loss in JOINT_LOSSES else known.negative_l1 if loss in NEGATIVE_LOSSES else 0.0
    l2 = 0.0 if loss in JOINT_LOSSES | NEGATIVE_LOSSES else known.other_l2
    return {"l1": Differs(known.text_l1, l1, REGULARISATION_SOURCE), "l2": Differs(0.0, l2, REGULARISATION_SOURCE)}
