"""The losses everything else is built from or compared with: CE, FL, MAE, MSE, RCE, SCE, negative label smoothing."""

import math
from typing import Unpack

import torch  # noqa: F401 - for the doctests
from torch import Tensor

from noiseproof.checks import check_range
from noiseproof.core.statistics import RowStatistics, Statistic
from noiseproof.losses.base import Contract, RobustLoss, Sum, pair_terms
from noiseproof.losses.catalog import register, register_pair

__all__ = ["CE", "FL", "MAE", "MSE", "RCE", "SCE", "NegativeLS"]


@register(
    "ce",
    title="Cross entropy",
    aliases=("cross-entropy",),
    formula="-log(p[y])",
    kind="active",
    asymmetric="False",
    range=("0", "inf"),
    reference="the baseline; equal to torch.nn.functional.cross_entropy",
)
class CE(RobustLoss):
    r"""Cross entropy, the loss that fits wrong labels best.

    .. math:: L = -\log p_y

    The baseline. Range [0, inf). Its gradient never fades on a label the network does not believe, so it memorises noise.

    Use it where labels are clean, and as the baseline.

    Args:
        **contract: The options of :class:`RobustLoss`.

    >>> round(CE()(torch.zeros(1, 4), torch.tensor([2])).item(), 4)  # log 4
    1.3863
    """

    needs = (Statistic.NLL,)

    def from_statistics(self, s: RowStatistics) -> Tensor:
        return s.nll


@register(
    "fl",
    title="Focal loss",
    aliases=("focal",),
    formula="F(p[y])",
    kind="active",
    asymmetric="False",
    range=("0", "inf"),
    reference="Lin et al., ICCV 2017",
)
class FL(RobustLoss):
    r"""Focal loss: cross entropy with less weight on examples that are already right.

    .. math:: L = -(1 - p_y)^\gamma \log p_y

    Range [0, inf). gamma = 0 is cross entropy. ``detach_focal=True`` treats the weight :math:`(1-p_y)^\gamma` as a constant
    in the gradient, as the code behind the published numbers of this family does.

    Use it for clean labels with hard examples; against noise it serves as a part of NFL.

    Args:
        gamma: Exponent of the focal weight (1 - p)^gamma, in [0, inf); 0 is none.
        detach_focal: Whether the focal weight is a constant to the gradient, as in the code behind the published numbers.
        **contract: The options of :class:`RobustLoss`.

    >>> round(FL(gamma=2.0)(torch.zeros(1, 2), torch.tensor([0])).item(), 4)  # log(2) / 4
    0.1733
    """

    needs = (Statistic.NLL, Statistic.P_OTHERS)

    def __init__(self, *, gamma: float = 0.5, detach_focal: bool = False, **contract: Unpack[Contract]) -> None:
        super().__init__(**contract)
        self.gamma = check_range("gamma", gamma, at_least=0)
        self.detach_focal = detach_focal
        self._focal = Statistic.focal_sum(self.gamma, detach=detach_focal)

    def from_statistics(self, s: RowStatistics) -> Tensor:
        return s.own(self._focal)


@register(
    "mae",
    title="Mean absolute error",
    formula="scale * (1 - p[y])",
    kind="passive",
    symmetric="True",
    asymmetric="True",
    range=("0", "scale"),
    reference="Ghosh, Kumar and Sastry, AAAI 2017",
)
class MAE(RobustLoss):
    r"""Mean absolute error between the prediction and the one-hot label.

    .. math:: L = s (1 - p_y), \qquad s = 2

    Symmetric, hence robust, and slow to fit: the gradient fades on everything the network does not believe yet. Range [0, s].
    With s = 2 it is :math:`\sum_k |e_k - p_k|`; published pairs such as NCE+MAE use s = 1.

    Use it as the passive part of a pair; alone only where classes are few and training may be long.

    Args:
        scale: Factor, in (0, inf).
        **contract: The options of :class:`RobustLoss`.

    >>> round(MAE()(torch.zeros(1, 4), torch.tensor([2])).item(), 4)
    1.5
    """

    needs = (Statistic.P_OTHERS,)

    def __init__(self, *, scale: float = 2.0, **contract: Unpack[Contract]) -> None:
        super().__init__(**contract)
        self.scale = check_range("scale", scale, above=0)

    def from_statistics(self, s: RowStatistics) -> Tensor:
        return self.scale * s.p_others


@register(
    "mse",
    title="Mean squared error",
    aliases=("brier",),
    formula="sum((e - p)**2) / K",
    kind="passive",
    asymmetric="w2 == 0",
    range=("0", "2 / K"),
    reference="Ghosh, Kumar and Sastry, AAAI 2017",
)
class MSE(RobustLoss):
    r"""Mean squared error between the prediction and the one-hot label (the Brier score).

    .. math:: L = \frac1K \sum_k (e_k - p_k)^2

    The same as AMSE at a = 1. Proper: its risk is least at the true label distribution, so noise goes into the prediction.

    Use it where probabilities must be calibrated, not where labels are wrong.

    Args:
        **contract: The options of :class:`RobustLoss`.

    >>> round(MSE()(torch.zeros(1, 2), torch.tensor([0])).item(), 4)  # (1/4 + 1/4) / 2
    0.25
    """

    needs = (Statistic.P_OTHERS, Statistic.SQ_SUM)

    def from_statistics(self, s: RowStatistics) -> Tensor:
        return (s.p_others.square() + s.sq_others) / s.classes


@register(
    "rce",
    title="Reverse cross entropy",
    formula="-log(clip) * (1 - p[y])",
    kind="passive",
    symmetric="True",
    asymmetric="True",
    range=("0", "-log(clip)"),
    reference="Wang et al., ICCV 2019",
)
class RCE(RobustLoss):
    r"""Reverse cross entropy: the roles of label and prediction exchanged, log 0 replaced by the log of ``clip``.

    .. math:: L = -\ln(\text{clip}) \, (1 - p_y)

    A scaled mean absolute error: 9.2103 (1 - p_y) at the default. Papers print the constant as A = -4, the exponent of ten.

    Use it as the passive part of SCE or NCE+RCE.

    Args:
        clip: What stands for 0 in the logarithm of the label, in (0, 1).
        **contract: The options of :class:`RobustLoss`.

    >>> round(RCE()(torch.zeros(1, 4), torch.tensor([2])).item(), 4)
    6.9078
    """

    needs = (Statistic.P_OTHERS,)

    def __init__(self, *, clip: float = 1e-4, **contract: Unpack[Contract]) -> None:
        super().__init__(**contract)
        self.clip = check_range("clip", clip, above=0, below=1)

    def from_statistics(self, s: RowStatistics) -> Tensor:
        return -math.log(self.clip) * s.p_others


@register_pair("sce", title="Symmetric cross entropy", asymmetric="False", reference="Wang et al., ICCV 2019")
class SCE(Sum):
    r"""Symmetric cross entropy: cross entropy plus reverse cross entropy.

    .. math:: L = \alpha \, \text{CE} + \beta \, \text{RCE}

    Not symmetric in the sense of the robustness condition, in spite of its name. Range [0, inf).

    Use it under light noise, where fitting counts as much as robustness.

    Args:
        alpha: Weight of the first loss, in [0, inf).
        beta: Weight of the second loss, in [0, inf).
        clip: What stands for 0 in the logarithm of the label, in (0, 1).
        **contract: The options of :class:`RobustLoss`.

    >>> loss = SCE(alpha=1.0, beta=0.0)(torch.zeros(1, 4), torch.tensor([2]))  # beta = 0 is cross entropy
    >>> round(loss.item(), 4)
    1.3863
    """

    def __init__(self, *, alpha: float = 0.1, beta: float = 1.0, clip: float = 1e-4, **contract: Unpack[Contract]) -> None:
        super().__init__(pair_terms(alpha, CE(), beta, RCE(clip=clip)), **contract)
        self.alpha, self.beta, self.clip = alpha, beta, clip


@register(
    "negative-ls",
    title="Negative label smoothing",
    aliases=("nls", "negative label smoothing"),
    formula="(1 - r) * -log(p[y]) + r / K * sum(-log(p))",
    kind="passive",
    reference="Wei et al., ICML 2022",
)
class NegativeLS(RobustLoss):
    r"""Label smoothing with a rate that may be negative: away from the other classes instead of towards them.

    .. math:: L = (1 - r)(-\log p_y) + \frac rK \sum_k -\log p_k, \qquad r < 1

    r > 0 is ordinary label smoothing, r = 0 cross entropy. Below 0 the loss has no lower bound: keep the learning rate low,
    or train with r = 0 first, as the paper does.

    Use it after a start with r = 0, where a search over r can be afforded.

    Args:
        r: Rate of the smoothing, in (-inf, 1); 0 is cross entropy.
        **contract: The options of :class:`RobustLoss`.

    >>> round(NegativeLS(r=-1.0)(torch.zeros(1, 4), torch.tensor([2])).item(), 4)  # 2 log 4 - log 4
    1.3863
    """

    needs = (Statistic.NLL, Statistic.NLL_SUM)

    def __init__(self, *, r: float = -1.0, **contract: Unpack[Contract]) -> None:
        super().__init__(**contract)
        self.r = check_range("r", r, below=1)

    def from_statistics(self, s: RowStatistics) -> Tensor:
        each = self.r / s.classes
        return (1 - self.r + each) * s.nll + each * s.nll_others
