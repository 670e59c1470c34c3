"""Losses on complementary labels, which say what an example is not: NL (NLNL) and JNPL."""

from __future__ import annotations

from typing import Literal, Unpack

import torch
from torch import Tensor

from noiseproof.checks import check_range
from noiseproof.losses.base import Contract, RobustLoss
from noiseproof.losses.catalog import register
from noiseproof.statistics import Statistic, row_statistics

__all__ = ["JNPL", "NL"]

STAGES = ("nl", "selnl", "selpl")


def complementary_labels(target: Tensor, classes: int, generator: torch.Generator | None) -> Tensor:
    """For each label one of the other ``classes - 1``, all equally likely."""
    offset = torch.randint(1, classes, target.shape, device=target.device, generator=generator)
    return (target + offset) % classes


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
    by those kept). The draw comes from ``generator``, or from torch's default generator.

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
        classes = logits.shape[1]
        if self.stage == "selpl":
            s = row_statistics(logits, target, (Statistic.NLL,))
            return torch.where(s.hit > self.threshold, s.nll, 0.0)
        other = complementary_labels(target, classes, self.generator)
        loss = -row_statistics(logits, other, (Statistic.MISS,)).log_miss
        if self.stage == "nl":
            return loss
        hit = row_statistics(logits.detach(), target, (Statistic.NLL,)).hit
        return torch.where(hit > 1 / classes, loss, 0.0)


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
    label or the predicted one is not settled by them, and here it is the given one, which is the predicted one wherever b = 1.

    >>> round(JNPL(lam=0.0)(torch.zeros(1, 4), torch.tensor([2])).item(), 4)  # 3/4 * -log(3/4)
    0.2158
    """

    def __init__(self, *, lam: float = 0.01, generator: torch.Generator | None = None, **contract: Unpack[Contract]) -> None:
        super().__init__(**contract)
        self.lam = check_range("lam", lam, at_least=0)
        self.generator = generator

    def rows(self, logits: Tensor, target: Tensor) -> Tensor:
        classes = logits.shape[1]
        other = complementary_labels(target, classes, self.generator)
        negative = row_statistics(logits, other, (Statistic.MISS,))
        positive = row_statistics(logits, target, (Statistic.NLL, Statistic.LEAD))
        hit = positive.hit.detach()
        largest_other = hit * torch.exp(-positive.lead)
        coin = torch.rand(hit.shape, device=hit.device, dtype=hit.dtype, generator=self.generator)
        kept = (largest_other < 1 / classes) & (coin < hit)
        boost = (1 + hit) * (1 + hit**2) * (1 + hit**4) * (1 + hit**8)
        return negative.miss.detach() * -negative.log_miss + self.lam * torch.where(kept, boost * positive.nll, 0.0)
