"""Normalised losses: a loss over its sum over all labels, which makes any loss symmetric. NCE, NFL, NNCE, NNFL."""

from typing import Any, Unpack

import torch
from torch import Tensor

from noiseproof.checks import check_range
from noiseproof.core.dispatch_state import only_autograd
from noiseproof.core.statistics import RowStatistics, Statistic
from noiseproof.losses.base import Contract, RobustLoss
from noiseproof.losses.catalog import register

__all__ = ["NCE", "NFL", "NNCE", "NNFL"]


class _Share(torch.autograd.Function):
    """``part / (part + rest)`` with its gradient as products: autograd's, 1/sum - part/sum**2, is a difference of equal
    numbers where the rest is small."""

    @staticmethod
    def forward(ctx: Any, part: Tensor, rest: Tensor) -> Tensor:
        ctx.save_for_backward(part, rest)
        part = _finite(part)
        return part / (part + rest)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        part, rest = ctx.saved_tensors
        part = _finite(part)
        whole = part + rest
        scaled = grads[0] / whole
        return scaled * (rest / whole), -scaled * (part / whole)  # the square of the whole could underflow


def _finite(part: Tensor) -> Tensor:
    """The part of a masked label is infinite, and its share 1."""
    return part.clamp_max(torch.finfo(part.dtype).max / 4)


def share(part: Tensor, rest: Tensor, classes: int) -> Tensor:
    """``part / (part + rest)`` for parts that are not negative, with a gradient that does not cancel."""
    if only_autograd():
        quotient: Tensor = _Share.apply(part, rest)  # type: ignore[no-untyped-call]
        return quotient
    if classes > 64:  # where neither is ever small beside the other
        part = _finite(part)
        return part / (part + rest)
    # What compilers and transforms can see through: the smaller of the two goes on top.
    mostly = part > rest
    smaller = torch.where(mostly, rest, part) / (part + rest)
    return torch.where(mostly, 1 - smaller, smaller)


def _negative(s: RowStatistics, clipped: Statistic, minimum: float) -> Tensor:
    if minimum * s.classes >= 1:
        raise ValueError(
            f"minimum must be below 1/K, or a uniform prediction has no loss: got {minimum} for {s.classes} classes"
        )
    return share(s.others(clipped), s.own(clipped), s.classes)


@register(
    "nce",
    title="Normalized cross entropy",
    formula="-log(p[y]) / sum(-log(p))",
    kind="active",
    symmetric="True",
    asymmetric="if True",
    range=("0", "1"),
    reference="Ma et al., ICML 2020",
)
class NCE(RobustLoss):
    r"""Normalized cross entropy.

    .. math:: L = \frac{-\log p_y}{\sum_k -\log p_k}

    Symmetric, hence robust, and unable to fit hard data alone: use it in a pair with a passive loss. Range [0, 1].

    Args:
        **contract: The options of :class:`RobustLoss`.

    >>> round(NCE()(torch.zeros(1, 4), torch.tensor([2])).item(), 4)
    0.25
    """

    needs = (Statistic.NLL, Statistic.NLL_SUM)

    def from_statistics(self, s: RowStatistics) -> Tensor:
        return share(s.nll, s.nll_others, s.classes)


@register(
    "nfl",
    title="Normalized focal loss",
    formula="F(p[y]) / sum(F(p))",
    kind="active",
    symmetric="True",
    asymmetric="if True",
    range=("0", "1"),
    reference="Ma et al., ICML 2020",
)
class NFL(RobustLoss):
    r"""Normalized focal loss.

    .. math:: L = \frac{(1-p_y)^\gamma \log p_y}{\sum_k (1-p_k)^\gamma \log p_k}

    gamma = 0 is NCE. ``detach_focal`` as in :class:`FL`. Symmetric. Range [0, 1].

    Use it as the active part of a pair, like NCE.

    Args:
        gamma: Exponent of the focal weight (1 - p)^gamma, in [0, inf); 0 is none.
        detach_focal: Whether the focal weight is a constant to the gradient, as in the code behind the published numbers.
        **contract: The options of :class:`RobustLoss`.

    >>> round(NFL()(torch.zeros(1, 4), torch.tensor([2])).item(), 4)
    0.25
    """

    def __init__(self, *, gamma: float = 0.5, detach_focal: bool = False, **contract: Unpack[Contract]) -> None:
        super().__init__(**contract)
        self.gamma = check_range("gamma", gamma, at_least=0)
        self.detach_focal = detach_focal
        self._focal = Statistic.focal_sum(self.gamma, detach=detach_focal)
        self.needs = (Statistic.NLL, self._focal)

    def from_statistics(self, s: RowStatistics) -> Tensor:
        return share(s.own(self._focal), s.others(self._focal), s.classes)


@register(
    "nnce",
    title="Normalized negative cross entropy",
    formula="1 - (log(maximum(p[y], minimum)) - log(minimum)) / sum(log(maximum(p, minimum)) - log(minimum))",
    kind="passive",
    symmetric="True",
    asymmetric="True",
    range=("0", "1"),
    reference="Ye et al., NeurIPS 2023",
)
class NNCE(RobustLoss):
    r"""Normalized negative cross entropy: the passive part of ANL-CE.

    .. math:: L = 1 - \frac{C - A_y}{\sum_k (C - A_k)}, \qquad A_k = -\log\max(p_k, m), \quad C = -\log m

    Probabilities below m (``minimum``) have no gradient. The paper has m = 1e-7, the code behind the JAL numbers 1e-8.
    Symmetric. Range [0, 1].

    Use it as the passive part of ANL-CE, with L1 regularisation.

    Args:
        minimum: Probabilities are clipped below at it, in (0, 0.5) and below 1/K.
        **contract: The options of :class:`RobustLoss`.

    >>> round(NNCE()(torch.zeros(1, 4), torch.tensor([2])).item(), 4)
    0.75
    """

    def __init__(self, *, minimum: float = 1e-8, **contract: Unpack[Contract]) -> None:
        super().__init__(**contract)
        self.minimum = check_range("minimum", minimum, above=0, below=0.5)
        self._clipped = Statistic.clipped_focal_sum(0.0, self.minimum)
        self.needs = (Statistic.NLL, self._clipped)

    def from_statistics(self, s: RowStatistics) -> Tensor:
        return _negative(s, self._clipped, self.minimum)


@register(
    "nnfl",
    title="Normalized negative focal loss",
    formula="1 - (F(minimum) - F(maximum(p[y], minimum))) / sum(F(minimum) - F(maximum(p, minimum)))",
    kind="passive",
    symmetric="True",
    asymmetric="True",
    range=("0", "1"),
    reference="Ye et al., NeurIPS 2023",
)
class NNFL(RobustLoss):
    r"""Normalized negative focal loss: the passive part of ANL-FL.

    .. math:: L = 1 - \frac{C - f_y}{\sum_k (C - f_k)}, \qquad f_k = -(1-p_k)^\gamma \log p_k, \quad C = -(1-m)^\gamma \log m

    with probabilities clipped below at m (``minimum``). gamma = 0 is NNCE. ``detach_focal`` as in :class:`FL`. Range [0, 1].

    Use it as the passive part of ANL-FL, with L1 regularisation.

    Args:
        gamma: Exponent of the focal weight (1 - p)^gamma, in [0, inf); 0 is none.
        minimum: Probabilities are clipped below at it, in (0, 0.5) and below 1/K.
        detach_focal: Whether the focal weight is a constant to the gradient, as in the code behind the published numbers.
        **contract: The options of :class:`RobustLoss`.

    >>> round(NNFL()(torch.zeros(1, 4), torch.tensor([2])).item(), 4)
    0.75
    """

    def __init__(
        self, *, gamma: float = 0.5, minimum: float = 1e-8, detach_focal: bool = False, **contract: Unpack[Contract]
    ) -> None:
        super().__init__(**contract)
        self.gamma = check_range("gamma", gamma, at_least=0)
        self.minimum = check_range("minimum", minimum, above=0, below=0.5)
        self.detach_focal = detach_focal
        self._clipped = Statistic.clipped_focal_sum(self.gamma, self.minimum, detach=detach_focal)
        self.needs = (Statistic.NLL, self._clipped)

    def from_statistics(self, s: RowStatistics) -> Tensor:
        return _negative(s, self._clipped, self.minimum)
