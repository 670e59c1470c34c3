"""Class imbalance: how much each class counts in training, and which losses collapse onto the majority class without.

None                every example counts alike
"balanced"          an example of class k counts ``N / (K n_k)``, where ``n_k`` of the ``N`` labels are of class k
"tempered"          that to the power of ``1 - 1/K``: the root for two classes, nearly as balanced for many
"logit-adjustment"  ``log(n_k / N)`` is added to logit k in training, and left out in prediction (Menon et al., ICLR 2021)
{class: weight}     factors by the names of the classes; a class that is not named counts 1
"auto"              what the loss and the labels need, see :func:`choose_class_weight`

Counts are those of the labels as given, wrong ones too: the clean ones are not known. With symmetric noise on two classes the
wrong labels of a minority class, weighted to balance, count nearly as much as the correct labels around them, and much of the
majority class is lost. Hence the power: of K classes a label is mistaken for one of K - 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from noiseproof.io.text import and_more, did_you_mean, excerpt
from noiseproof.losses import RobustLoss, create_loss

__all__ = ["ClassWeight", "check_class_weight", "choose_class_weight", "class_weights", "training_loss"]

ClassWeight = str | Mapping[str, float] | None
CHOICES = ("auto", "balanced", "tempered", "logit-adjustment")
IMBALANCE = 1.5
"""Times as many labels of the most frequent class as of the rarest from which on ``auto`` weights classes"""
WITHOUT_COLLAPSE = ("ce", "fl")
"""Losses that predict a minority class without weights: docs/benchmarks/class_imbalance.md contains the measurements"""
WARM_SHARE = 0.3
"""Of the epochs, how many minimise cross entropy first where classes are weighted"""
MEMORISING = ("fl", "ece", "efl", "ce+lc")
"""Losses that memorise wrong labels faster than cross entropy"""
WARM_SHARES = {  # the first learn little from a label that is not predicted yet, and the next has no lower bound
    **dict.fromkeys(("nnce", "nnfl", "anl-ce", "anl-fl"), 0.5),
    **dict.fromkeys(("truncated-gce", "negative-ls"), 0.7),
    **dict.fromkeys(MEMORISING, 0.9),
}
"""The share for losses that need a longer start"""


def check_class_weight(value: Any) -> ClassWeight:
    """The value, if it is one of those above; an error that says what is expected otherwise.

    >>> check_class_weight({"cat": 2})
    {'cat': 2.0}
    """
    if value is None or (isinstance(value, str) and value in CHOICES):
        return value
    if not isinstance(value, Mapping):
        raise ValueError(f"class_weight must be none, {', '.join(CHOICES)} or weights by class, got {excerpt(repr(value))}")
    for name, weight in value.items():
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not (math.isfinite(weight) and weight >= 0):
            raise ValueError(f"the class_weight of {name!r} must be a finite number and not negative, got {weight!r}")
    return {str(name): float(weight) for name, weight in value.items()}


def class_weights(choice: ClassWeight, counts: ArrayLike, classes: Sequence[str] = ()) -> NDArray[np.float64] | None:
    """The factor of each class's loss.

    Args:
        choice: None, "balanced", "tempered", "logit-adjustment" or weights by name.
        counts: How many labels are of each class, ``[K]``.
        classes: Their names, for weights by name.

    Returns:
        ``[K]``; None where all classes count alike. But for weights by name their mean over the labels is 1; a class without
        labels has no part in it.

    Raises:
        ValueError: A class of the weights is none of the data's.

    >>> class_weights("balanced", [90, 10]).round(3), class_weights("tempered", [90, 10]).round(3)
    (array([0.556, 5.   ]), array([0.833, 2.5  ]))
    """
    counts = np.asarray(counts, np.float64)
    if isinstance(choice, Mapping):
        if unknown := [name for name in choice if name not in classes]:
            hint = did_you_mean(unknown[0], list(classes)).rstrip() or f"they are {and_more(list(classes))}"
            raise ValueError(f"class_weight: the data have no class {unknown[0]!r}; {hint}")
        return np.array([choice.get(name, 1.0) for name in classes], np.float64)
    if choice not in ("balanced", "tempered"):
        return None
    present, weights = counts > 0, np.ones(len(counts))
    weights[present] = counts[present] ** (-1.0 if choice == "balanced" else 1 / len(counts) - 1)
    weights[present] *= counts.sum() / (counts @ weights)
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


class WarmStart(RobustLoss):
    """Cross entropy for the first epochs, another loss for the others.

    On a GPU both are computed in every epoch, and one is chosen there, so that it can change in a CUDA graph.
    """

    warm: Tensor

    def __init__(self, start: RobustLoss, loss: RobustLoss, epochs: int) -> None:
        super().__init__()
        self.start, self.loss, self.epochs = start, loss, epochs
        self.register_buffer("warm", torch.tensor(True))

    def set_epoch(self, epoch: int) -> None:
        """Tell both losses which epoch begins, and choose one."""
        super().set_epoch(epoch)
        self.warm.fill_(epoch < self.epochs)

    def forward(self, logits: Tensor, target: Tensor, **unknown: Any) -> Tensor:
        """The loss of this epoch."""
        if self.warm.device.type == "cpu":
            found: Tensor = (self.start if self.warm else self.loss)(logits, target, **unknown)
            return found
        return torch.where(self.warm, self.start(logits, target, **unknown), self.loss(logits, target, **unknown))

    def __repr__(self) -> str:
        return f"{self.loss!r} after {self.epochs} epochs of {self.start!r}"


def training_loss(
    loss: RobustLoss, choice: ClassWeight, counts: ArrayLike, classes: Sequence[str] = (), warm_epochs: int = 0
) -> RobustLoss:
    """The loss to train with: the loss itself where nothing is done about class imbalance.

    Args:
        loss: The loss, whose weights are set.
        choice: None, "balanced", "tempered", "logit-adjustment" or weights by name.
        counts: How many labels are of each class, ``[K]``.
        classes: Their names, for weights by name.
        warm_epochs: How many epochs to start with on cross entropy, with the same weights.

    Returns:
        A loss of logits and target.

    Raises:
        ValueError: The choice is "auto", or a class of the weights is none of the data's.
    """
    if choice == "auto":
        raise ValueError("class_weight is still auto: noiseproof.train.resolve_auto chooses it for the data")
    if warm_epochs:
        start, loss = (training_loss(one, choice, counts, classes) for one in (create_loss("ce"), loss))
        return WarmStart(start, loss, warm_epochs)
    if choice == "logit-adjustment":
        return AdjustedLogits(loss, counts)
    if (weights := class_weights(choice, counts, classes)) is not None:
        loss.weight = torch.from_numpy(weights).float()
    return loss


def choose_class_weight(loss: str, counts: ArrayLike, epochs: int, elr: float = 0.0) -> tuple[ClassWeight, int, str]:
    """What ``auto`` is for a loss and so many labels of each class.

    Args:
        loss: A name of the catalogue; nothing is chosen for a loss of one's own.
        counts: How many labels are of each class, ``[K]``.
        epochs: Of the whole training.
        elr: The strength of early-learning regularisation, with which cross entropy collapses too.

    Returns:
        "tempered", how many epochs to start with on cross entropy, and the reason; or None, 0 and no reason.

    >>> choose_class_weight("jal-ce", [90, 10], 100)[:2], choose_class_weight("jal-ce", [50, 50], 100)[:2]
    (('tempered', 30), (None, 0))
    """
    counts = np.asarray(counts, np.float64)
    present = counts[counts > 0]
    fails = loss not in WITHOUT_COLLAPSE or loss in MEMORISING
    if len(present) < 2 or present.max() < IMBALANCE * present.min() or not (fails or elr) or ":" in loss:
        return None, 0, ""
    warm = round(epochs * WARM_SHARES.get(loss, WARM_SHARE)) if fails else 0
    start = f", and {warm} of {epochs} epochs of cross entropy first" if warm else ""
    fault = "memorises wrong labels" if loss in MEMORISING else "may collapse"
    what = "this loss" if fails else "early-learning regularisation"
    ratio = f"class imbalance of 1:{present.max() / present.min():.3g}, in which {what} {fault}"
    return "tempered", warm, f"{ratio}: tempered class weights{start}."
