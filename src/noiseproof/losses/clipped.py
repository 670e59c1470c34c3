"""Cross entropy with a clipped gradient, whose threshold follows the training: OGC."""

import math
from typing import Unpack

import torch
from torch import Tensor

from noiseproof.checks import check_range
from noiseproof.core.statistics import RowStatistics, Statistic
from noiseproof.losses.base import Contract, RobustLoss
from noiseproof.losses.catalog import register

__all__ = ["OGC"]

MIN_PROBABILITY = 1e-7
"""The least probability that is told from 0."""


@register(
    "ogc",
    title="Optimized gradient clipping",
    formula="-log(p[y]) if p[y] > 1 / tau else -tau * p[y] + log(tau) + 1",
    kind="active",
    asymmetric="w1 >= tau * w2",
    range=("0", "log(tau) + 1"),
    reference="Ye et al., AAAI 2025",
)
class OGC(RobustLoss):
    r"""PHuber-CE with a threshold that follows the training: optimised gradient clipping.

    .. math:: L = -\log p_y \text{ if } p_y > 1/\tau, \text{ else } -\tau p_y + \log\tau + 1

    :meth:`update` sets tau from recent cross entropies. Call it from your training loop: until then tau is its initial value,
    and at the default the loss is cross entropy. The published code calls it every 32 steps, on the last 4,096 examples::

        recent = torch.cat([recent, noiseproof.functional.ce(logits.detach(), labels, reduction="none")])[-4096:]
        if step % 32 == 0 and len(recent) == 4096:
            criterion.update(recent, lr=optimizer.param_groups[0]["lr"])

    The threshold is in the state dict. Range [0, log(tau) + 1].

    Use it where the noise is not known and the loop can call :meth:`update`.

    Args:
        tau: The slope in p_y is at most this until the first update, in (1, 1e+07].
        epsilon: How much steeper than on clean labels the gradient on wrong ones may be, per learning rate, in [0, inf).
        **contract: The options of :class:`RobustLoss`.

    >>> round(OGC(tau=2.0)(torch.zeros(1, 4), torch.tensor([2])).item(), 4)  # -1/2 + log 2 + 1
    1.1931
    """

    needs = (Statistic.NLL,)
    follows_training = True
    threshold: Tensor

    def __init__(self, *, tau: float = 1e7, epsilon: float = 20.0, **contract: Unpack[Contract]) -> None:
        super().__init__(**contract)
        self.tau = check_range("tau", tau, above=1, at_most=1 / MIN_PROBABILITY)
        self.epsilon = check_range("epsilon", epsilon, at_least=0)
        # A tensor, so that a compiled or captured step sees a new threshold without being compiled again.
        self.register_buffer("threshold", torch.tensor(self.tau))

    def from_statistics(self, s: RowStatistics) -> Tensor:
        # Bounded, because a loss that was cast to half precision holds 1e7 as infinity.
        bend = torch.log(self.threshold.to(s.nll.dtype)).clamp_max(-math.log(MIN_PROBABILITY))
        return torch.where(s.nll < bend, s.nll, bend + 1 - torch.exp(bend - s.nll))

    def update(self, nll: Tensor, *, lr: float) -> None:
        """Set tau from the cross entropies of recent examples and the learning rate.

        A mixture of two Gaussians is fitted to them; the one with the smaller mean stands for the clean labels. tau becomes the
        largest at which the wrong ones' mean clipped gradient is at most 1 + lr * epsilon times that of the clean ones. (The
        published code stops after ten bisections of p_y, which never reach a tau above 2,048; here they converge.)

        Args:
            nll: The cross entropies of recent examples, ``[N]``.
            lr: The learning rate.
        """
        ratio = 1 + check_range("lr", lr, at_least=0) * self.epsilon
        self.threshold.fill_(clipping_threshold(*two_gaussians(nll), ratio))


def two_gaussians(values: Tensor, steps: int = 10) -> tuple[Tensor, Tensor]:
    """Means and variances ``[2]`` of a mixture of two Gaussians, the smaller mean first, by expectation maximisation.

    >>> means, _ = two_gaussians(torch.tensor([0.0, 0.1, 0.2, 5.0, 5.1, 5.2]))
    >>> [round(mean, 4) for mean in means.tolist()]
    [0.1, 5.1]
    """
    x = values.detach().double().flatten()[:, None].cpu()
    if not bool(torch.isfinite(x).all()) or len(x.unique()) < 2:
        raise ValueError(f"the cross entropies must be finite and at least two of them different, got {len(x)} values")
    above = (x > x.mean()).double()
    share = torch.cat([1 - above, above], 1)
    for _ in range(steps):
        total = share.sum(0)
        means = (share * x).sum(0) / total
        variances = (share * (x - means).square()).sum(0) / total + 1e-3
        share = torch.softmax(torch.log(total) - torch.log(variances) / 2 - (x - means).square() / (2 * variances), 1)
    order = means.argsort()
    return means[order], variances[order]


def clipping_threshold(means: Tensor, variances: Tensor, ratio: float) -> float:
    """The largest tau at which the second Gaussian's mean of ``min(1/p, tau)`` is at most ``ratio`` times the first's.

    Both are Gaussians of ``-log p``, truncated to probabilities between 1e-7 and 1 - 1e-7.
    """
    nll = torch.linspace(-math.log1p(-MIN_PROBABILITY), -math.log(MIN_PROBABILITY), 1000, dtype=torch.float64)[:, None]
    density = torch.softmax(-(nll - means).square() / (2 * variances), 0)
    low, high = (
        MIN_PROBABILITY,
        1 - MIN_PROBABILITY,
    )  # of p, below which the gradient 1/p is clipped: the ratio falls from one to the other
    for _ in range(50):
        middle = (low + high) / 2
        clean, noisy = (density * torch.exp(nll).clamp_max(1 / middle)).sum(0).tolist()
        low, high = (middle, high) if noisy > ratio * clean else (low, middle)
    return 1 / high
