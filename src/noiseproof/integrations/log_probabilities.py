"""A loss from the log-probability of each label alone, where a fused head gives that and never forms the logits.

Most losses of the label's probability work so; a loss with a sum over all classes, such as JAL, cannot.

>>> label_losses()[:5]
['ce', 'fl', 'mae', 'rce', 'sce']
"""

from __future__ import annotations

from typing import NoReturn

import torch
from torch import Tensor

from noiseproof.core.statistics import RowStatistics, Statistic
from noiseproof.losses import RobustLoss, create_loss, list_losses

__all__ = ["LabelLogProbabilities", "label_loss", "label_losses", "reads_label_alone"]

LEAST_LOG1M_P = {torch.float64: -701.0}
"""The least log(1 - p) in a dtype; -80 in others"""


def reads_label_alone(loss: RobustLoss) -> bool:
    """Whether a loss is a function of the label's probability: it needs no sum over the classes."""
    return loss.needs is not None and all(need.key is None for need in loss.needs)


def label_losses() -> list[str]:
    """The names of the losses in the catalogue that are functions of the label's probability."""
    return [entry.name for entry in list_losses() if entry.reads == "statistics" and reads_label_alone(create_loss(entry.name))]


def label_loss(criterion: RobustLoss, log_probabilities: Tensor, target: Tensor) -> Tensor:
    """The loss from ``log_probabilities``, those of the labels in ``target``, which has their shape.

    Class weights, ``ignore_index`` and the reduction are the criterion's. Where the label is ``ignore_index`` the
    log-probability may be anything. Label smoothing asks for all classes, so it is a TypeError, as are losses that need more.

    >>> import noiseproof
    >>> logits, target = torch.randn(8, 5), torch.arange(8) % 5
    >>> log_p = torch.log_softmax(logits, 1).gather(1, target[:, None])[:, 0]
    >>> gce = noiseproof.GCE(q=0.7)
    >>> torch.allclose(label_loss(gce, log_p, target), gce(logits, target))
    True
    """
    if log_probabilities.shape != target.shape:
        raise ValueError(
            f"there must be one log-probability for each label: {list(target.shape)}, got {list(log_probabilities.shape)}"
        )
    if target.is_floating_point():
        raise TypeError(f"labels must have an integer dtype, got {target.dtype}; soft labels need the logits")
    if not reads_label_alone(criterion):
        _refuse(type(criterion).__name__, "sums over all classes" if criterion.needs else "logits")
    if criterion.label_smoothing > 0:
        _refuse("label smoothing", "the probability of every class")
    source = LabelLogProbabilities(log_probabilities.reshape(-1), 0 if criterion.weight is None else len(criterion.weight))
    return criterion.from_source(source, target.reshape(-1), target.shape)


class LabelLogProbabilities:
    """Log-probabilities ``[N]`` of the labels as what a loss is computed from, with the number of classes if that is known."""

    def __init__(self, log_probabilities: Tensor, classes: int = 0) -> None:
        self.log_probabilities = log_probabilities
        self.classes = classes
        self.dtype = log_probabilities.dtype

    @property
    def logits(self) -> Tensor:
        _refuse("a loss that is no function of row statistics", "logits")

    def statistics(self, target: Tensor, needs: tuple[Statistic, ...]) -> RowStatistics:
        dtype = torch.float64 if self.dtype == torch.float64 else torch.float32
        log_p = self.log_probabilities.to(dtype).clamp_max(0.0)  # a fused head may round a sure label above 0
        certain = LEAST_LOG1M_P.get(dtype, -80.0)
        # Where p rounds to 1 the slope of log(1 - p) has no end, while that of every loss in the logits is 0.
        unsure = log_p < -torch.exp(log_p.new_tensor(certain))
        log1m = torch.where(unsure, torch.log(-torch.expm1(log_p.masked_fill(~unsure, -1.0))), certain)
        return RowStatistics(-log_p, log1m, self.classes, {})

    def every_label(self, needs: tuple[Statistic, ...]) -> RowStatistics:
        _refuse("the loss of every label", "logits")


def _refuse(what: str, needed: str) -> NoReturn:
    names = ", ".join(label_losses())
    raise TypeError(f"{what} needs {needed}; functions of the label's probability alone are {names}")
