"""Class imbalance: how much each class counts in training, and which losses collapse onto the majority class without.

None                every example counts alike
"balanced"          an example of class k counts ``N / (K n_k)``, where ``n_k`` of the ``N`` labels are of class k
"logit-adjustment"  ``log(n_k / N)`` is added to logit k in training, and left out in prediction (Menon et al., ICLR 2021)
{class: weight}     factors by the names of the classes; a class that is not named counts 1
"auto"              the first of these that the loss and the labels need, see :func:`choose_class_weight`

Counts are those of the labels as given, wrong ones too: the clean ones are not known. With two classes the balanced error of
noisy labels has the same minimiser as that of clean ones (Menon et al., ICML 2015), so balanced weights by noisy counts are
right. With more classes they count a minority class for less than its clean labels would ask, as wrong labels swell it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from noiseproof.io.text import and_more, did_you_mean
from noiseproof.losses import RobustLoss

__all__ = ["ClassWeight", "check_class_weight", "choose_class_weight", "class_weights", "with_class_weight"]

ClassWeight = str | Mapping[str, float] | None
CHOICES = ("auto", "balanced", "logit-adjustment")
IMBALANCE = 1.5
"""Times as many labels of the most frequent class as of the rarest from which on ``auto`` weights classes"""
WITHOUT_COLLAPSE = ("ce", "fl")
"""Losses that predict a minority class without weights: docs/train.md contains the measurements"""


def check_class_weight(value: Any) -> ClassWeight:
    """The value, if it is one of those above; an error that says what is expected otherwise.

    >>> check_class_weight({"cat": 2})
    {'cat': 2.0}
    """
    if value is None or (isinstance(value, str) and value in CHOICES):
        return value
    if not isinstance(value, Mapping):
        raise ValueError(f"class_weight must be none, {', '.join(CHOICES)} or weights by class, got {value!r}")
    for name, weight in value.items():
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not (math.isfinite(weight) and weight >= 0):
            raise ValueError(f"the class_weight of {name!r} must be a finite number and not negative, got {weight!r}")
    return {str(name): float(weight) for name, weight in value.items()}


def class_weights(choice: ClassWeight, counts: ArrayLike, classes: Sequence[str] = ()) -> NDArray[np.float64] | None:
    """The factor of each class's loss.

    Args:
        choice: None, "balanced", "logit-adjustment" or weights by name.
        counts: How many labels are of each class, ``[K]``.
        classes: Their names, for weights by name.

    Returns:
        ``[K]``; None where all classes count alike. A class without labels has the weight 1.

    Raises:
        ValueError: A class of the weights is none of the data's.

    >>> class_weights("balanced", [90, 10]).round(3)
    array([0.556, 5.   ])
    """
    counts = np.asarray(counts, np.float64)
    if isinstance(choice, Mapping):
        if unknown := [name for name in choice if name not in classes]:
            hint = did_you_mean(unknown[0], list(classes)).rstrip() or f"they are {and_more(list(classes))}"
            raise ValueError(f"class_weight: the data have no class {unknown[0]!r}; {hint}")
        return np.array([choice.get(name, 1.0) for name in classes], np.float64)
    if choice != "balanced":
        return None
    present = counts > 0
    weights = np.ones(len(counts))
    weights[present] = counts.sum() / (present.sum() * counts[present])
    return weights


class AdjustedLogits(RobustLoss):
    """A loss of logits to which the logarithms of the classes' frequencies are added."""

    log_prior: Tensor

    def __init__(self, loss: RobustLoss, counts: ArrayLike) -> None:
        super().__init__()
        self.loss = loss
        frequencies = np.maximum(np.asarray(counts, np.float64), 1.0)  # of a class without labels, as if there were one
        self.register_buffer("log_prior", torch.from_numpy(np.log(frequencies / frequencies.sum())).float())

    def forward(self, logits: Tensor, target: Tensor, **unknown: Any) -> Tensor:
        """The loss of the adjusted logits."""
        found: Tensor = self.loss(logits + self.log_prior, target, **unknown)
        return found

    def __repr__(self) -> str:
        return f"{self.loss!r} of adjusted logits"


def with_class_weight(loss: RobustLoss, choice: ClassWeight, counts: ArrayLike, classes: Sequence[str] = ()) -> RobustLoss:
    """The loss to train with: the loss itself, with its weights set, or on adjusted logits."""
    if choice == "auto":
        raise ValueError("class_weight is still auto: noiseproof.train.resolve_auto chooses it for the data")
    if choice == "logit-adjustment":
        return AdjustedLogits(loss, counts)
    if (weights := class_weights(choice, counts, classes)) is not None:
        loss.weight = torch.from_numpy(weights).float()
    return loss


def choose_class_weight(loss: str, counts: ArrayLike) -> tuple[ClassWeight, str]:
    """What ``auto`` is for a loss and so many labels of each class.

    Args:
        loss: A name of the catalogue; nothing is chosen for a loss of one's own.
        counts: How many labels are of each class, ``[K]``.

    Returns:
        "balanced" or None, and the reason; no reason where nothing changes.

    >>> choose_class_weight("jal-ce", [90, 10])[0], choose_class_weight("jal-ce", [50, 50])[0]
    ('balanced', None)
    """
    counts = np.asarray(counts, np.float64)
    present = counts[counts > 0]
    if len(present) < 2 or present.max() < IMBALANCE * present.min() or loss in WITHOUT_COLLAPSE or ":" in loss:
        return None, ""
    ratio = f"1:{present.max() / present.min():.3g}"
    return "balanced", f"class_weight=balanced: {loss} may collapse onto the majority class where labels are {ratio}."
