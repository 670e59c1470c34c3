"""Losses of epsilon-softmax, which pushes every prediction to within epsilon of one-hot: ECE, EFL, and their pairs with MAE."""

import math
from typing import Unpack

import torch
from torch import Tensor

from noiseproof.checks import check_range
from noiseproof.core.statistics import RowStatistics, Statistic
from noiseproof.losses.base import Contract, RobustLoss, Sum, pair_terms
from noiseproof.losses.catalog import register, register_pair
from noiseproof.losses.classic import MAE

__all__ = ["ECE", "EFL", "ECEandMAE", "EFLandMAE"]


class _EpsilonLoss(RobustLoss):
    """A loss of the label's probability under epsilon-softmax, ``(p + m e_top) / (1 + m)``, top the likeliest class."""

    needs = (Statistic.NLL, Statistic.P_OTHERS, Statistic.MARGIN)

    def __init__(self, m: float, **contract: Unpack[Contract]) -> None:
        super().__init__(**contract)
        self.m = check_range("m", m, at_least=0)

    def _nll(self, s: RowStatistics) -> Tensor:
        is_top = s.margin >= 0
        if_top = -torch.log1p(-torch.where(is_top, s.p_others, 0.0) / (1 + self.m))
        return torch.where(is_top, if_top, s.nll + math.log1p(self.m))


@register(
    "ece",
    title="Cross entropy of epsilon-softmax",
    aliases=("epsilon-softmax",),
    formula="-log((p[y] + m * (p[y] == max(p))) / (1 + m))",
    kind="active",
    range=("0", "inf"),
    reference="Wang et al., NeurIPS 2024",
)
class ECE(_EpsilonLoss):
    r"""Cross entropy of epsilon-softmax, which pushes every prediction to within epsilon of one-hot.

    .. math:: L = -\log \tilde p_y, \qquad \tilde p = \frac{p + m \, e_{\arg\max p}}{1 + m}

    m = 0 is cross entropy. Used as alpha ECE + beta MAE. Classes that tie for the largest logit all count as the top.

    Use it in the pair ECE+MAE.

    Args:
        m: How far epsilon-softmax goes to one-hot, in [0, inf); 0 is softmax.
        **contract: The options of :class:`RobustLoss`.

    >>> round(ECE(m=1.0)(torch.tensor([[0.0, 0.0, -1e4]]), torch.tensor([0])).item(), 4)  # -log((1/2 + 1) / 2)
    0.2877
    """

    def __init__(self, *, m: float = 1e5, **contract: Unpack[Contract]) -> None:
        super().__init__(m, **contract)

    def from_statistics(self, s: RowStatistics) -> Tensor:
        return self._nll(s)


@register(
    "efl",
    title="Focal loss of epsilon-softmax",
    formula="F((p[y] + m * (p[y] == max(p))) / (1 + m))",
    kind="active",
    range=("0", "inf"),
    reference="Wang et al., NeurIPS 2024",
)
class EFL(_EpsilonLoss):
    r"""Focal loss of epsilon-softmax.

    .. math:: L = -(1 - \tilde p_y)^\gamma \log \tilde p_y, \qquad \tilde p = \frac{p + m \, e_{\arg\max p}}{1 + m}

    gamma = 0 is ECE. ``detach_focal`` as in :class:`FL`.

    Use it in the pair EFL+MAE.

    Args:
        m: How far epsilon-softmax goes to one-hot, in [0, inf); 0 is softmax.
        gamma: Exponent of the focal weight (1 - p)^gamma, in [0, inf); 0 is none.
        detach_focal: Whether the focal weight is a constant to the gradient, as in the code behind the published numbers.
        **contract: The options of :class:`RobustLoss`.

    >>> round(EFL(m=1.0, gamma=1.0)(torch.tensor([[0.0, 0.0, -1e4]]), torch.tensor([0])).item(), 4)  # 0.25 * 0.2877
    0.0719
    """

    def __init__(self, *, m: float = 1e5, gamma: float = 0.5, detach_focal: bool = False, **contract: Unpack[Contract]) -> None:
        super().__init__(m, **contract)
        self.gamma = check_range("gamma", gamma, at_least=0)
        self.detach_focal = detach_focal
        self._focal = Statistic.focal_sum(self.gamma, detach=detach_focal)

    def from_statistics(self, s: RowStatistics) -> Tensor:
        not_top = torch.log1p(-s.p_target.clamp_max(0.5) / (1 + self.m))
        log1m = torch.where(s.margin >= 0, s.log1m_p_target - math.log1p(self.m), not_top)
        return RowStatistics(self._nll(s), log1m, s.classes, {}).own(self._focal)


@register_pair("ece+mae", reference="Wang et al., NeurIPS 2024")
class ECEandMAE(Sum):
    """The pair alpha ECE + beta MAE, with the defaults published for CIFAR-10 and symmetric noise.

    Use it with alpha, beta and m chosen together: they trade fitting for robustness.

    Args:
        alpha: Weight of the first loss, in [0, inf).
        beta: Weight of the second loss, in [0, inf).
        m: How far epsilon-softmax goes to one-hot, in [0, inf); 0 is softmax.
        **contract: The options of :class:`RobustLoss`.

    >>> round(ECEandMAE()(torch.zeros(1, 4), torch.tensor([2])).item(), 4)
    7.5
    """

    def __init__(self, *, alpha: float = 0.01, beta: float = 5.0, m: float = 1e5, **contract: Unpack[Contract]) -> None:
        super().__init__(pair_terms(alpha, ECE(m=m), beta, MAE()), **contract)
        self.alpha, self.beta, self.m = alpha, beta, m


@register_pair("efl+mae", reference="Wang et al., NeurIPS 2024")
class EFLandMAE(Sum):
    """The pair alpha EFL + beta MAE, with the defaults published for CIFAR-10 and symmetric noise.

    Use it with alpha, beta and m chosen together: they trade fitting for robustness.

    Args:
        alpha: Weight of the first loss, in [0, inf).
        beta: Weight of the second loss, in [0, inf).
        m: How far epsilon-softmax goes to one-hot, in [0, inf); 0 is softmax.
        gamma: Exponent of the focal weight (1 - p)^gamma, in [0, inf); 0 is none.
        detach_focal: Whether the focal weight is a constant to the gradient, as in the code behind the published numbers.
        **contract: The options of :class:`RobustLoss`.

    >>> round(EFLandMAE()(torch.zeros(1, 4), torch.tensor([2])).item(), 4)
    7.5
    """

    def __init__(
        self,
        *,
        alpha: float = 0.01,
        beta: float = 5.0,
        m: float = 1e5,
        gamma: float = 0.5,
        detach_focal: bool = False,
        **contract: Unpack[Contract],
    ) -> None:
        super().__init__(pair_terms(alpha, EFL(m=m, gamma=gamma, detach_focal=detach_focal), beta, MAE()), **contract)
        self.alpha, self.beta, self.m = alpha, beta, m
        self.gamma, self.detach_focal = gamma, detach_focal
