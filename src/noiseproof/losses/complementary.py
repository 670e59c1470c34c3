"""Losses on complementary labels, which say what an example is not: NL (NLNL) and JNPL."""

from __future__ import annotations

from typing import Literal, Unpack

import torch
from torch import Tensor

from noiseproof.checks import check_range
from noiseproof.core.statistics import RowStatistics, Statistic, every_label_statistics, row_statistics
from noiseproof.losses.base import Contract, RobustLoss
from noiseproof.losses.catalog import register

__all__ = ["JNPL", "NL"]

STAGES = ("nl", "selnl", "selpl")


def complementary_labels(target: Tensor, classes: int, generator: torch.Generator | None) -> Tensor:
    """For each label one of the other ``classes - 1``, all equally likely."""
    if generator is None:  # the compiler knows no other way of a batch whose size changes
        offset = torch.randint_like(target, 1, classes)
    else:
        offset = torch.randint(1, classes, target.shape, device=target.device, generator=generator)
    return (target + offset) % classes


def every_complementary_label(logits: Tensor, generator: torch.Generator | None) -> Tensor:
    """For each row of ``logits [N, K]`` and each of its K labels a draw of its own."""
    return complementary_labels(
        torch.arange(logits.shape[1], device=logits.device).expand(logits.shape), logits.shape[1], generator
    )


@register(
    "nl",
    title="Negative learning",
    aliases=("nlnl",),
    formula="-log(1 - p[c])",
    kind="passive",
    reads="logits",
    reference="Kim et al., ICCV 2019",
)
class NL(RobustLoss):
    r"""Negative learning: the example is not of class c, a random class other than its label.

    .. math:: L = -\log(1 - p_c), \qquad c \ne y \text{ drawn uniformly at each call}

    The stages of NLNL: ``"nl"`` trains on all rows; ``"selnl"`` only on rows with p_y > 1/K; ``"selpl"`` switches to cross
    entropy on rows with p_y > ``threshold``. Rows left out count 0, and a mean divides by all rows (the published code divides
    by those kept). The draw comes from ``generator``, or from torch's default generator. With probability targets or smoothing
    each label that counts has a draw of its own.

    Use it for the stages of NLNL, one after the other.

    Raises:
        ValueError: If the stage is not one of these.

    Args:
        stage: nl: all rows; selnl: rows with p_y > 1/K; selpl: cross entropy on rows with p_y > threshold.
        threshold: p_y from which a row is believed in the stage selpl, in [0, 1).
        generator: Where the complementary labels are drawn; None: torch's default generator.
        **contract: The options of :class:`RobustLoss`.

    >>> round(NL()(torch.zeros(1, 4), torch.tensor([2])).item(), 4)  # -log(3/4), whichever class is drawn
    0.2877
    """

    def __init__(
        self,
        *,
        stage: Literal["nl", "selnl", "selpl"] = "nl",
        threshold: float = 0.5,
        generator: torch.Generator | None = None,
        **contract: Unpack[Contract],
    ) -> None:
        super().__init__(**contract)
        if stage not in STAGES:
            raise ValueError(f"stage must be one of {', '.join(STAGES)}, got {stage!r}")
        self.stage = stage
        self.threshold = check_range("threshold", threshold, at_least=0, below=1)
        self.generator = generator

    def rows(self, logits: Tensor, target: Tensor) -> Tensor:
        if self.stage == "selpl":
            return self._positive(row_statistics(logits, target, (Statistic.NLL,)))
        other = complementary_labels(target, logits.shape[1], self.generator)
        loss = -row_statistics(logits, other, (Statistic.P_OTHERS,)).log1m_p_target
        if self.stage == "nl":
            return loss
        return self._selected(loss, row_statistics(logits.detach(), target, (Statistic.NLL,)))

    def every_label(self, logits: Tensor) -> Tensor:
        s = every_label_statistics(logits, (Statistic.NLL, Statistic.P_OTHERS))
        if self.stage == "selpl":
            return self._positive(s)
        loss = -s.log1m_p_target.gather(1, every_complementary_label(logits, self.generator))
        return loss if self.stage == "nl" else self._selected(loss, s)

    def _positive(self, s: RowStatistics) -> Tensor:
        return torch.where(s.p_target > self.threshold, s.nll, 0.0)

    def _selected(self, loss: Tensor, s: RowStatistics) -> Tensor:
        return torch.where(s.p_target.detach() > 1 / s.classes, loss, 0.0)


@register(
    "jnpl",
    title="Joint negative and positive learning",
    formula="(1 - p[c]) * -log(1 - p[c])"
    " + lam * kept * (1 + p[y]) * (1 + p[y]**2) * (1 + p[y]**4) * (1 + p[y]**8) * -log(p[y])",
    kind="active + passive",
    reads="logits",
    reference="Kim et al., CVPR 2021",
)
class JNPL(RobustLoss):
    r"""Joint negative and positive learning: NL+ on a random other class plus, on rows that look clean, PL+ on the label.

    .. math:: L = (1 - p_c)\,(-\log(1 - p_c)) + \lambda \, b \, \Big(\prod_{n=0}^3 (1 + p_y^{2^n})\Big) (-\log p_y)

    The factors in front of the logarithms are constants to the gradient. b is 1 where every other class has a probability
    below 1/K and a coin with probability p_y says so, else 0.

    Written from descriptions of the paper that agree with each other, not from the paper itself: whether PL+ takes the given
    label or the predicted one is left open by them, and here it is the given one, which is the predicted one wherever b = 1.

    Use it in place of the stages of NLNL, in a single one.

    Args:
        lam: Weight of the part that is added, in [0, inf).
        generator: Where the complementary labels are drawn; None: torch's default generator.
        **contract: The options of :class:`RobustLoss`.

    >>> round(JNPL(lam=0.0)(torch.zeros(1, 4), torch.tensor([2])).item(), 4)  # 3/4 * -log(3/4)
    0.2158
    """

    def __init__(self, *, lam: float = 0.01, generator: torch.Generator | None = None, **contract: Unpack[Contract]) -> None:
        super().__init__(**contract)
        self.lam = check_range("lam", lam, at_least=0)
        self.generator = generator

    def rows(self, logits: Tensor, target: Tensor) -> Tensor:
        other = complementary_labels(target, logits.shape[1], self.generator)
        positive = row_statistics(logits, target, (Statistic.NLL, Statistic.MARGIN))
        return self._loss(row_statistics(logits, other, (Statistic.P_OTHERS,)).log1m_p_target, positive)

    def every_label(self, logits: Tensor) -> Tensor:
        s = every_label_statistics(logits, (Statistic.NLL, Statistic.P_OTHERS, Statistic.MARGIN))
        return self._loss(s.log1m_p_target.gather(1, every_complementary_label(logits, self.generator)), s)

    def _loss(self, log1m: Tensor, positive: RowStatistics) -> Tensor:
        """From log(1 - p_c) and the statistics of the label."""
        p_target = positive.p_target.detach()
        largest_other = p_target * torch.exp(-positive.margin)
        coin = torch.empty_like(p_target).uniform_(generator=self.generator)
        kept = (largest_other < 1 / positive.classes) & (coin < p_target)
        boost = (1 + p_target) * (1 + p_target**2) * (1 + p_target**4) * (1 + p_target**8)
        return torch.exp(log1m).detach() * -log1m + self.lam * torch.where(kept, boost * positive.nll, 0.0)
