"""Asymmetric losses: robust whenever the clean label is the likeliest one. AUL, AGCE, AEL, ANorm and the paper's AMSE."""

import math
from typing import Unpack

import torch
from torch import Tensor

from noiseproof.checks import check_range
from noiseproof.core.statistics import RowStatistics, Statistic
from noiseproof.losses.base import Contract, RobustLoss
from noiseproof.losses.catalog import register

__all__ = ["AEL", "AGCE", "AMSE", "AUL", "ANorm"]

POWER_CONDITION = "q <= 1 or w1 * (a - 1)**(q - 1) >= w2 * a**(q - 1) + (1 - w1)"


def growth(start: float, step: Tensor, power: float) -> Tensor:
    """``(start + step)**power - start**power``: small steps and small powers are not lost beside the start."""
    exponent = power * torch.log1p(step / start)
    small = exponent < 0.5
    return torch.where(
        small,
        math.pow(start, power) * torch.expm1(torch.where(small, exponent, 0.0)),
        torch.pow(start + torch.where(small, start, step), power) - math.pow(start, power),
    )


def check_power(text: str, base: float, exponent: float) -> None:
    """That the largest power in a loss, ``text`` in words, stays finite in float32."""
    if exponent * math.log(base) > math.log(1e30):
        raise ValueError(f"{text} must be at most 1e30, or the loss overflows: got {base:g} to the power {exponent:g}")


@register(
    "aul",
    title="Asymmetric unhinged loss",
    formula="((a - p[y])**p_ - (a - 1)**p_) / p_",
    kind="active",
    symmetric="p_ == 1",
    asymmetric="p_ <= 1 or w1 * (a - 1)**(p_ - 1) >= w2 * a**(p_ - 1)",
    range=("0", "(a**p_ - (a - 1)**p_) / p_"),
    reference="Zhou et al., ICML 2021",
)
class AUL(RobustLoss):
    r"""Asymmetric unhinged loss.

    .. math:: L = \frac{(a - p_y)^p - (a - 1)^p}{p}, \qquad a > 1, \; p > 0

    Asymmetric for label weights with :math:`w_1 (a-1)^{p-1} \ge w_2 a^{p-1}`, always if p <= 1; p = 1 is 1 - p_y.

    Use it in a pair with NCE or NFL, which fits better than it does alone.

    Args:
        a: In (1, inf): the larger, the closer to the mean absolute error.
        p: Exponent, in (0, inf); 1 is 1 - p_y.
        **contract: The options of :class:`RobustLoss`.

    >>> round(AUL(a=2.0, p=2.0)(torch.zeros(1, 2), torch.tensor([0])).item(), 4)  # (1.5^2 - 1) / 2
    0.625
    """

    needs = (Statistic.P_OTHERS,)

    def __init__(self, *, a: float = 5.5, p: float = 3.0, **contract: Unpack[Contract]) -> None:
        super().__init__(**contract)
        self.a = check_range("a", a, above=1)
        self.p = check_range("p", p, above=0)
        check_power("a^p", self.a, self.p)

    def from_statistics(self, s: RowStatistics) -> Tensor:
        return growth(self.a - 1, s.p_others, self.p) / self.p


@register(
    "agce",
    title="Asymmetric generalized cross entropy",
    formula="((a + 1)**q - (a + p[y])**q) / q",
    kind="active",
    symmetric="q == 1",
    asymmetric="q >= 1 or w1 * (a + 1)**(q - 1) >= w2 * a**(q - 1)",
    range=("0", "((a + 1)**q - a**q) / q"),
    reference="Zhou et al., ICML 2021",
)
class AGCE(RobustLoss):
    r"""Asymmetric generalized cross entropy.

    .. math:: L = \frac{(a + 1)^q - (a + p_y)^q}{q}, \qquad a > 0, \; q > 0

    Asymmetric for label weights with :math:`w_1 (a+1)^{q-1} \ge w_2 a^{q-1}`, always if q >= 1. a -> 0 is GCE.

    Use it in a pair with NCE or NFL, which fits better than it does alone.

    Args:
        a: Of the asymmetric part, in (0, inf): the larger, the closer to the mean absolute error.
        q: Exponent, in (0, inf).
        **contract: The options of :class:`RobustLoss`.

    >>> round(AGCE(a=1.0, q=2.0)(torch.zeros(1, 2), torch.tensor([0])).item(), 4)  # (4 - 2.25) / 2
    0.875
    """

    needs = (Statistic.P_OTHERS,)

    def __init__(self, *, a: float = 0.6, q: float = 0.6, **contract: Unpack[Contract]) -> None:
        super().__init__(**contract)
        self.a = check_range("a", a, above=0)
        self.q = check_range("q", q, above=0)
        check_power("(a + 1)^q", self.a + 1, self.q)

    def from_statistics(self, s: RowStatistics) -> Tensor:
        # From 1 - p_y where the two powers are close, at p_y = 1 or for a small q; elsewhere from p_y, which a tiny a needs.
        reached = self.a + s.p_target
        rise = self.q * torch.log1p(s.p_others / reached)
        close = rise < 0.5
        small = torch.pow(reached, self.q) * torch.expm1(torch.where(close, rise, 0.0))
        large = math.pow(self.a + 1, self.q) - torch.pow(torch.where(close, 1.0, reached), self.q)
        return torch.where(close, small, large) / self.q


@register(
    "ael",
    title="Asymmetric exponential loss",
    formula="exp(-p[y] / a)",
    kind="active",
    asymmetric="w1 >= w2 * exp(1 / a)",
    range=("exp(-1 / a)", "1"),
    reference="Zhou et al., ICML 2021",
)
class AEL(RobustLoss):
    r"""Asymmetric exponential loss.

    .. math:: L = e^{-p_y / a}, \qquad a > 0

    Asymmetric for label weights with :math:`w_1 \ge w_2 e^{1/a}`. Range [exp(-1/a), 1].

    Use it in a pair with NCE or NFL, which fits better than it does alone.

    Args:
        a: Of the asymmetric part, in (0, inf): the larger, the closer to the mean absolute error.
        **contract: The options of :class:`RobustLoss`.

    >>> round(AEL(a=0.5)(torch.zeros(1, 2), torch.tensor([0])).item(), 4)  # exp(-1)
    0.3679
    """

    needs = (Statistic.NLL,)

    def __init__(self, *, a: float = 2.5, **contract: Unpack[Contract]) -> None:
        super().__init__(**contract)
        self.a = check_range("a", a, above=0)

    def from_statistics(self, s: RowStatistics) -> Tensor:
        return torch.exp(-s.p_target / self.a)


class _PowerLoss(RobustLoss):
    """A distance between ``a`` times the one-hot label and the prediction, in the q-th power."""

    def __init__(self, a: float, q: float, **contract: Unpack[Contract]) -> None:
        super().__init__(**contract)
        if str(a).startswith("auto"):
            way = "noiseproof.loss_for('jal-ce', noise, classes=K) chooses it, and so do recipes, loss.a=auto"
            raise TypeError(f"a={a!r} needs to know the noise: {way}")
        self.a = check_range("a", a, at_least=1)
        self.q = check_range("q", q, above=0)
        check_power("a^q", self.a, self.q)
        self._sum = Statistic.power_sum(self.q)
        self.needs = (Statistic.P_OTHERS, self._sum)

    def _power(self, s: RowStatistics) -> Tensor:
        r"""``sum_k |a e_k - p_k|^q - (a-1)^q``, the label's part without cancellation at p_y = 1."""
        if self.q == 2:
            p_others = s.p_others
            return torch.addcmul(s.others(self._sum), p_others, p_others + 2 * (self.a - 1))
        if self.a == 1:
            # In log space: p_others**q has an infinite slope at 0 for q < 1.
            return torch.exp(self.q * s.log1m_p_target) + s.others(self._sum)
        return growth(self.a - 1, s.p_others, self.q) + s.others(self._sum)


@register(
    "anorm",
    title="Asymmetric norm loss",
    formula="(sum(abs(a * e - p)**q) - (a - 1)**q) / q",
    kind="passive",
    symmetric="q == 1",
    asymmetric=POWER_CONDITION,
    range=("0", "(a**q + 1 - (a - 1)**q) / q if q >= 1 else (a**q + (K - 1)**(1 - q) - (a - 1)**q) / q"),
    reference="Wang et al., ICCV 2025 (AMSE without the mean)",
)
class ANorm(_PowerLoss):
    r"""The distance of AMSE, summed over classes instead of averaged, and 0 at p_y = 1.

    .. math:: L = \frac1q \Big( \sum_k |a e_k - p_k|^q - (a - 1)^q \Big), \qquad a \ge 1, \; q > 0

    K/q times AMSE without its constant; the gradient does not shrink as the number of classes grows.

    Use it in place of AMSE where the number of classes is large or changes.

    Args:
        a: What p_y is pulled towards, in [1, inf): the larger, the more robust and the slower to fit.
        q: Exponent, in (0, inf).
        **contract: The options of :class:`RobustLoss`.

    >>> round(ANorm(a=2.0, q=2.0)(torch.zeros(1, 2), torch.tensor([0])).item(), 4)  # (1.5^2 + 0.5^2 - 1) / 2
    0.75
    """

    def __init__(self, *, a: float = 2.0, q: float = 2.0, **contract: Unpack[Contract]) -> None:
        super().__init__(a, q, **contract)

    def from_statistics(self, s: RowStatistics) -> Tensor:
        return self._power(s) / self.q


@register(
    "amse",
    title="Asymmetric mean squared error",
    formula="(sum(abs(a * e - p)**q) - (0 if offset else (a - 1)**q)) / K",
    kind="passive",
    symmetric="q == 1",
    asymmetric=POWER_CONDITION,
    range=(
        "((a - 1)**q if offset else 0) / K",
        "((a**q + 1 if q >= 1 else a**q + (K - 1)**(1 - q)) - (0 if offset else (a - 1)**q)) / K",
    ),
    reference="Wang et al., ICCV 2025",
)
class AMSE(_PowerLoss):
    r"""Asymmetric mean squared error, the paper's passive and asymmetric loss.

    .. math:: L = \frac1K \sum_k |a e_k - p_k|^q, \qquad a \ge 1, \; q > 0 \text{ (2 in the paper)}

    Robust to label weights :math:`w_1 > w_2 \ge \dots` whenever :math:`w_1 (a-1)^{q-1} \ge w_2 a^{q-1} + 1 - w_1`; for q = 2
    that is :math:`a \ge 1/(w_1 - w_2)`, 9 at ten classes with 80 % symmetric noise. a = 1 is MSE. A larger a is more robust
    and fits less. The value contains the constant :math:`(a-1)^q / K` (84.1 at a = 30, K = 10), which hides the loss curve:
    :meth:`constant` gives it, ``offset=False`` drops it, and the gradient is the same.

    Use it as the passive part of JAL.

    Args:
        a: What p_y is pulled towards, in [1, inf): the larger, the more robust and the slower to fit.
        q: Exponent, in (0, inf).
        offset: Whether the value holds AMSE's constant (a-1)^q / K; the gradient is the same.
        **contract: The options of :class:`RobustLoss`.

    >>> round(AMSE(a=3.0)(torch.zeros(1, 2), torch.tensor([0])).item(), 4)  # (2.5^2 + 0.5^2) / 2
    3.25
    >>> round(AMSE(a=3.0, offset=False)(torch.zeros(1, 2), torch.tensor([0])).item(), 4)  # 3.25 - 2^2/2
    1.25
    """

    def __init__(self, *, a: float = 30.0, q: float = 2.0, offset: bool = True, **contract: Unpack[Contract]) -> None:
        super().__init__(a, q, **contract)
        self.offset = offset

    def constant(self, classes: int) -> float:
        return math.pow(self.a - 1, self.q) / classes if self.offset else 0.0

    def from_statistics(self, s: RowStatistics) -> Tensor:
        return self._power(s) / s.classes + self.constant(s.classes)
