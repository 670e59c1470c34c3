"""Losses on several predictions of the same example: GJS."""

import math
from collections.abc import Sequence
from typing import Any, Unpack

import torch
from torch import Tensor

from noiseproof.checks import check_integer, check_range
from noiseproof.core.statistics import RowStatistics, Statistic, every_label_statistics, row_statistics
from noiseproof.losses.arguments import raise_unknown
from noiseproof.losses.base import Contract, RobustLoss
from noiseproof.losses.catalog import register
from noiseproof.losses.generalized import divergence_from_label

__all__ = ["GJS"]

NEEDS = (Statistic.NLL, Statistic.P_OTHERS)


@register(
    "gjs",
    title="Generalized Jensen-Shannon divergence",
    formula="(H(pi * e + (1 - pi) * p) - (1 - pi) * H(p)) / (-(1 - pi) * log(1 - pi))",
    kind="active",
    reads="predictions",
    reference="Englesson and Azizpour, NeurIPS 2021",
)
class GJS(RobustLoss):
    r"""Generalized Jensen-Shannon divergence between the label and several predictions of the same example.

    .. math:: L = \frac1Z \Big( H\big(\pi e_y + \tfrac{1-\pi}{V} \sum_v p_v\big) - \tfrac{1-\pi}{V} \sum_v H(p_v) \Big),
              \qquad Z = -(1-\pi) \ln(1-\pi)

    It is JS of the mean prediction plus the mean divergence of the predictions from it, over :math:`-\ln(1-\pi)`: it also asks
    the predictions of V differently augmented views to agree. Call it with a sequence of V logits,
    ``loss([logits_a, logits_b], target)``; one tensor stands for V equal predictions, and the loss is then JS. It needs the
    mean of the predictions, so it is no function of row statistics.

    Use it where each example is augmented twice: that the views agree is a second signal.

    Args:
        pi: Weight of the label against the prediction, in (0, 1): 0 is cross entropy, 1 half the mean absolute error.
        views: Number of predictions of each example, at least 1.
        **contract: The options of :class:`RobustLoss`.

    >>> same = torch.tensor([[1.0, 2.0, 0.5]])
    >>> from noiseproof import JS
    >>> bool(torch.isclose(GJS(pi=0.3)(same, torch.tensor([1])), JS(pi=0.3)(same, torch.tensor([1]))))
    True
    """

    def __init__(self, *, pi: float = 0.5, views: int = 2, **contract: Unpack[Contract]) -> None:
        super().__init__(**contract)
        self.pi = check_range("pi", pi, above=0, below=1)
        self.views = check_integer("views", views, at_least=1)

    def classes_of(self, logits: Tensor) -> int:
        return logits.shape[1] // self.views

    def masked_classes(self, logits: Tensor) -> Tensor:
        """Return which classes are masked in all views.

        Args:
            logits: The views, ``[N, V K]``.

        Returns:
            True for a masked class, ``[N, K]``.
        """
        masked: Tensor = (logits.unflatten(1, (self.views, -1)) == -torch.inf).all(1)
        return masked

    def forward(self, logits: Tensor | Sequence[Tensor], target: Tensor, **unknown: Any) -> Tensor:
        if unknown:
            raise_unknown(self, unknown)
        views = [logits] * self.views if isinstance(logits, Tensor) else list(logits)
        if len(views) != self.views:
            raise ValueError(f"GJS was built for {self.views} predictions, got {len(views)}; pass views={len(views)}")
        if any(view.shape != views[0].shape for view in views):
            raise ValueError(f"the predictions must have one shape, got {', '.join(str(tuple(v.shape)) for v in views)}")
        class_dim = 0 if views[0].dim() <= 1 else 1
        return super().forward(torch.cat(views, class_dim) if views[0].dim() else views[0], target)

    def rows(self, logits: Tensor, target: Tensor) -> Tensor:
        return self._loss(logits, [row_statistics(view, target, NEEDS) for view in logits.chunk(self.views, 1)])

    def every_label(self, logits: Tensor) -> Tensor:
        return self._loss(logits, [every_label_statistics(view, NEEDS) for view in logits.chunk(self.views, 1)])

    def _loss(self, logits: Tensor, views: list[RowStatistics]) -> Tensor:
        """JS of the mean prediction, plus how much the predictions differ from it, which no label changes."""
        size = math.log(self.views)
        nll = size - torch.logsumexp(torch.stack([-s.nll for s in views]), 0)
        log1m = torch.logsumexp(torch.stack([s.log1m_p_target for s in views]), 0) - size
        loss = divergence_from_label(nll, log1m, self.pi)
        if self.views == 1:
            return loss
        z = logits.to(loss.dtype).unflatten(1, (self.views, -1))
        log_p = torch.log_softmax(z, 2).clamp_min(-1e3)  # where p is 0, and -inf less -inf would be NaN
        ahead = log_p - log_p[:, :1]  # 0, as is the divergence, where the predictions are equal
        kl = (torch.exp(log_p) * (ahead - torch.logsumexp(ahead, 1, keepdim=True) + size)).sum(2).mean(1)
        return loss - (kl if loss.dim() == 1 else kl[:, None]) / math.log1p(-self.pi)
