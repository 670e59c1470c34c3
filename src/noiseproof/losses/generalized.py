"""Losses of the label's probability alone, between cross entropy and mean absolute error: GCE, PHuber-CE, JS, OGC, ..."""

import math
from typing import Unpack

import torch
import torch.nn.functional as F  # noqa: N812 - the name every PyTorch reader expects
from torch import Tensor

from noiseproof.checks import check_integer, check_range
from noiseproof.core.statistics import RowStatistics, Statistic
from noiseproof.losses.base import Contract, RobustLoss
from noiseproof.losses.catalog import register

__all__ = ["DFT", "GCE", "JS", "OGC", "FisherRao", "PHuberCE", "TaylorCE", "TruncatedGCE"]


def _one_minus_power(nll: Tensor, q: float) -> Tensor:
    """``1 - p**q`` from ``-log p``.

    In log space, because p**q has an infinite slope at p = 0, which would turn the gradient into nan. The value is expm1's
    and the slope exp's, for each keeps small ones exact: the slope of expm1 is computed as its value plus one.
    """
    exponent = -q * nll
    power = torch.exp(exponent)
    return (power.detach() - power) - torch.expm1(exponent.detach())


@register(
    "gce",
    title="Generalized cross entropy",
    formula="(1 - p[y]**q) / q",
    kind="active",
    symmetric="q == 1",
    asymmetric="q == 1",
    range=("0", "1 / q"),
    reference="Zhang and Sabuncu, NeurIPS 2018",
)
class GCE(RobustLoss):
    r"""Generalized cross entropy, between cross entropy and mean absolute error.

    .. math:: L = (1 - p_y^q) / q

    Use it when noise is moderate and you want one knob. Limits: q -> 0 is cross entropy, q = 1 is 1 - p_y.
    Range [0, 1/q]. Gradient: cross entropy's times p_y^q, so unlikely labels count less. Symmetric only at q = 1.

    Args:
        q: In (0, 1]: 0 is cross entropy, 1 is 1 - p_y.
        **contract: The options of :class:`RobustLoss`.

    >>> round(GCE(q=1.0)(torch.zeros(1, 4), torch.tensor([2])).item(), 2)
    0.75
    """

    needs = (Statistic.NLL,)

    def __init__(self, *, q: float = 0.7, **contract: Unpack[Contract]) -> None:
        super().__init__(**contract)
        self.q = check_range("q", q, above=0, at_most=1)

    def from_statistics(self, s: RowStatistics) -> Tensor:
        return _one_minus_power(s.nll, self.q) / self.q


@register(
    "truncated-gce",
    title="Truncated generalized cross entropy",
    aliases=("tgce", "Truncated GCE"),
    formula="(1 - maximum(p[y], k)**q) / q",
    kind="active",
    range=("0", "(1 - k**q) / q"),
    reference="Zhang and Sabuncu, NeurIPS 2018",
)
class TruncatedGCE(RobustLoss):
    r"""Generalized cross entropy that gives up on labels the network finds unlikely.

    .. math:: L = (1 - \max(p_y, k)^q) / q

    Below p_y = k the loss is constant and has no gradient: start with GCE and switch once the network has an opinion.
    Range [0, (1 - k^q)/q].

    Use it as the second stage after GCE.

    Args:
        q: In (0, 1]: 0 is cross entropy, 1 is 1 - p_y.
        k: Probabilities below it have no gradient, in (0, 1).
        **contract: The options of :class:`RobustLoss`.

    >>> round(TruncatedGCE(q=1.0, k=0.5)(torch.zeros(1, 4), torch.tensor([2])).item(), 2)  # p_y = 1/4 counts as 1/2
    0.5
    """

    needs = (Statistic.NLL,)

    def __init__(self, *, q: float = 0.7, k: float = 0.5, **contract: Unpack[Contract]) -> None:
        super().__init__(**contract)
        self.q = check_range("q", q, above=0, at_most=1)
        self.k = check_range("k", k, above=0, below=1)

    def from_statistics(self, s: RowStatistics) -> Tensor:
        return _one_minus_power(s.nll.clamp_max(-math.log(self.k)), self.q) / self.q


@register(
    "taylor-ce",
    title="Taylor cross entropy",
    formula="sum((1 - p[y])**arange(1, t + 1) / arange(1, t + 1))",
    kind="active",
    symmetric="t == 1",
    asymmetric="w1 >= t * w2",
    range=("0", "sum(1 / arange(1, t + 1))"),
    reference="Feng et al., IJCAI 2020",
)
class TaylorCE(RobustLoss):
    r"""The first t terms of cross entropy's Taylor series around p_y = 1.

    .. math:: L = \sum_{i=1}^t (1 - p_y)^i / i

    t = 1 is half the mean absolute error, t -> infinity is cross entropy. (The series of the logarithm, not Taylor-softmax.)
    Its slope in p_y is t times steeper at 0 than at 1, so it is asymmetric for label weights with :math:`w_1 \ge t w_2`.
    Range [0, 1 + 1/2 + ... + 1/t].

    Use it to trade robustness (few terms) for speed of fitting (many).

    Args:
        t: Number of terms, at least 1; 1 is 1 - p_y.
        **contract: The options of :class:`RobustLoss`.

    >>> round(TaylorCE(t=2)(torch.zeros(1, 2), torch.tensor([0])).item(), 4)  # 1/2 + 1/8
    0.625
    """

    needs = (Statistic.P_OTHERS,)

    def __init__(self, *, t: int = 2, **contract: Unpack[Contract]) -> None:
        super().__init__(**contract)
        self.t = check_integer("t", t, at_least=1)

    def from_statistics(self, s: RowStatistics) -> Tensor:
        p_others = s.p_others
        total = torch.full_like(p_others, 1.0 / self.t)
        for i in range(self.t - 1, 0, -1):  # Horner's rule
            total = total * p_others + 1.0 / i
        return total * p_others


@register(
    "phuber-ce",
    title="Partially Huberised cross entropy",
    aliases=("phuber",),
    formula="-log(p[y]) if p[y] > 1 / tau else -tau * p[y] + log(tau) + 1",
    kind="active",
    asymmetric="w1 >= tau * w2",
    range=("0", "log(tau) + 1"),
    reference="Menon et al., ICLR 2020",
)
class PHuberCE(RobustLoss):
    r"""Cross entropy continued by its tangent below p_y = 1/tau, which bounds its gradient in the probability.

    .. math:: L = -\log p_y \text{ if } p_y > 1/\tau, \text{ else } -\tau p_y + \log\tau + 1

    tau -> 1 is 1 - p_y, tau -> infinity is cross entropy. Asymmetric for label weights with :math:`w_1 \ge \tau w_2`. Range
    [0, log(tau) + 1].

    Use it in place of clipping gradients: it clips by the label's probability, example by example.

    Args:
        tau: The slope in p_y is at most this, in (1, inf): 1 is 1 - p_y, infinity cross entropy.
        **contract: The options of :class:`RobustLoss`.

    >>> round(PHuberCE(tau=2.0)(torch.zeros(1, 4), torch.tensor([2])).item(), 4)  # -1/2 + log 2 + 1
    1.1931
    """

    needs = (Statistic.NLL,)

    def __init__(self, *, tau: float = 10.0, **contract: Unpack[Contract]) -> None:
        super().__init__(**contract)
        self.tau = check_range("tau", tau, above=1)

    def from_statistics(self, s: RowStatistics) -> Tensor:
        bend = math.log(self.tau)
        return torch.where(s.nll < bend, s.nll, -self.tau * s.p_target + bend + 1)


def divergence_from_label(nll: Tensor, log1m: Tensor, pi: float) -> Tensor:
    r"""JS from ``-log p_y`` and ``log(1 - p_y)``.

    With c = pi/(1-pi) its slope in p_y is ``-log(1 + c/p_y) / log(1 + c)``, which integrates to::

        log(1 + c) L = (1 - p_y) log(1 + c) - p_y log(1 + t) + c log(1 + (1 - p_y) / (p_y + c)),    t = pi (1 - p_y) / p_y

    Divided by c no term vanishes as pi does, and at most two thirds of them cancel. With H(m) - (1-pi) H(p) all of it would.
    """
    c = pi / (1 - pi)
    scale = math.log1p(c) / c
    largest = -math.log(torch.finfo(nll.dtype).tiny) - 7  # beyond it p_y is 0
    log_t = (nll + log1m + math.log(pi)).clamp(-40.0, largest)
    ratio = F.softplus(log_t, threshold=80.0) * torch.exp(-log_t)  # log(1 + t) / t
    far = F.softplus(log1m - torch.logaddexp(-nll, torch.full_like(nll, math.log(c))), threshold=80.0)
    return torch.exp(log1m) * (1 - (1 - pi) / scale * ratio) + far / scale


@register(
    "js",
    title="Jensen-Shannon divergence",
    formula="(H(pi * e + (1 - pi) * p) - (1 - pi) * H(p)) / (-(1 - pi) * log(1 - pi))",
    kind="active",
    range=("0", "-(pi * log(pi) + (1 - pi) * log(1 - pi)) / (-(1 - pi) * log(1 - pi))"),
    reference="Englesson and Azizpour, NeurIPS 2021",
)
class JS(RobustLoss):
    r"""Weighted Jensen-Shannon divergence between the label and the prediction.

    .. math:: L = \frac{H(m) - (1-\pi) H(p)}{-(1-\pi)\ln(1-\pi)}, \qquad m = \pi e_y + (1-\pi) p

    pi -> 0 is cross entropy, pi -> 1 half the mean absolute error. Despite the entropies it depends on p_y alone: with
    :math:`\mu = \pi + (1-\pi) p_y` the other classes' terms add up to :math:`-(1-\pi)(1-p_y)\ln(1-\pi)`.

    Use it as one knob between cross entropy and mean absolute error, and GJS where two views of each example are at hand.

    Args:
        pi: Weight of the label against the prediction, in (0, 1): 0 is cross entropy, 1 half the mean absolute error.
        **contract: The options of :class:`RobustLoss`.

    >>> round(JS(pi=0.5)(torch.tensor([[0.0, 100.0]]), torch.tensor([0])).item(), 4)  # the bound at pi = 1/2
    2.0
    """

    needs = (Statistic.NLL, Statistic.P_OTHERS)

    def __init__(self, *, pi: float = 0.5, **contract: Unpack[Contract]) -> None:
        super().__init__(**contract)
        self.pi = check_range("pi", pi, above=0, below=1)

    def from_statistics(self, s: RowStatistics) -> Tensor:
        return divergence_from_label(s.nll, s.log1m_p_target, self.pi)


@register(
    "fisher-rao",
    title="Fisher-Rao loss",
    formula="arccos(sqrt(p[y]))**2",
    kind="active",
    asymmetric="w2 == 0",
    range=("0", "arccos(0)**2"),
    reference="Miyamoto, Meneghetti and Costa, arXiv 2210.16401, 2022",
)
class FisherRao(RobustLoss):
    r"""A quarter of the squared Fisher-Rao distance between the prediction and the one-hot label.

    .. math:: L = \arccos^2 \sqrt{p_y}

    The angle between the square roots of the two distributions, squared. It has no parameter and lies between mean absolute
    error and cross entropy: :math:`1 - p_y \le L \le -\log p_y`. Its gradient on a label that the network finds unlikely fades
    as :math:`\sqrt{p_y}`. Range [0, 2.4674].

    Use it where nothing can be tuned; under noise it has no guarantee.

    Args:
        **contract: The options of :class:`RobustLoss`.

    >>> round(FisherRao()(torch.zeros(1, 4), torch.tensor([2])).item(), 4)  # the angle is a third of pi
    1.0966
    """

    needs = (Statistic.NLL, Statistic.P_OTHERS)

    def from_statistics(self, s: RowStatistics) -> Tensor:
        # arccos has an infinite slope at 1; the angle of the two square roots has a finite one everywhere.
        return torch.atan2(torch.exp(0.5 * s.log1m_p_target), torch.exp(-0.5 * s.nll)).square()


@register(
    "dft",
    title="Likelihood weighted by its probability",
    aliases=("dynamic fine-tuning",),
    formula="p[y] * -log(p[y])",
    kind="active",
    range=("0", "exp(-1)"),
    reference="Wu et al., arXiv 2508.05629, 2025",
)
class DFT(RobustLoss):
    r"""Cross entropy weighted by the label's probability, a constant to the gradient (dynamic fine-tuning).

    .. math:: L = \operatorname{sg}(p_y) \, (-\log p_y)

    Proposed for the fine-tuning of language models. Its gradient is exactly that of :math:`1 - p_y`, so training with it is
    training with the mean absolute error at scale 1, as robust and as slow; only the value that is shown differs. The value is
    0 at both p_y = 1 and p_y = 0, and 0.3679 at most, so a smaller one need not be a better fit.

    Use it to fine-tune a network that agrees with most labels already.

    Args:
        **contract: The options of :class:`RobustLoss`.

    >>> round(DFT()(torch.zeros(1, 4), torch.tensor([2])).item(), 4)  # log(4) / 4
    0.3466
    """

    needs = (Statistic.NLL,)

    def from_statistics(self, s: RowStatistics) -> Tensor:
        return s.p_target.detach() * s.nll.clamp_max(torch.finfo(s.nll.dtype).max)  # which is 0 at p_y = 0, not NaN


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

    The threshold is in the state dict, in float32. Range [0, log(tau) + 1].

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
