"""Pairs of losses that JAL is compared with: active passive losses (APL), and NCE or NFL with an asymmetric loss.

Each is ``alpha * first + beta * second``; defaults are those of the published code for CIFAR-10.
"""

from typing import Unpack

import torch  # noqa: F401 - for the doctests

from noiseproof.losses.asymmetric import AEL, AGCE, AUL
from noiseproof.losses.base import Contract, Sum, pair_terms
from noiseproof.losses.catalog import register_pair
from noiseproof.losses.classic import MAE, RCE
from noiseproof.losses.normalized import NCE, NFL

__all__ = ["NCEandAEL", "NCEandAGCE", "NCEandAUL", "NCEandMAE", "NCEandRCE"]
__all__ += ["AGCEandMAE", "NFLandAEL", "NFLandAGCE", "NFLandAUL", "NFLandMAE", "NFLandRCE"]

_APL = "Ma et al., ICML 2020"
_ALF = "Zhou et al., ICML 2021"


@register_pair("nce+mae", reference=_APL)
class NCEandMAE(Sum):
    r"""Active passive loss: alpha NCE + beta MAE, the mean absolute error with scale 1.

    Symmetric, because both parts are. Range [0, alpha + beta], not reached at both ends at once.

    Use it as the simplest robust pair, with L2 regularisation.

    Args:
        alpha: Weight of the first loss, in [0, inf).
        beta: Weight of the second loss, in [0, inf).
        **contract: The options of :class:`RobustLoss`.

    >>> round(NCEandMAE()(torch.zeros(1, 4), torch.tensor([2])).item(), 4)  # 1/4 + 3/4
    1.0
    """

    def __init__(self, *, alpha: float = 1.0, beta: float = 1.0, **contract: Unpack[Contract]) -> None:
        super().__init__(pair_terms(alpha, NCE(), beta, MAE(scale=1.0)), **contract)
        self.alpha, self.beta = alpha, beta


@register_pair("nce+rce", reference=_APL)
class NCEandRCE(Sum):
    r"""Active passive loss: alpha NCE + beta RCE, the strongest pair of its paper.

    Symmetric, because both parts are.

    Use it as the robust pair to beat, with L2 regularisation.

    Args:
        alpha: Weight of the first loss, in [0, inf).
        beta: Weight of the second loss, in [0, inf).
        clip: What stands for 0 in the logarithm of the label, in (0, 1).
        **contract: The options of :class:`RobustLoss`.

    >>> round(NCEandRCE()(torch.zeros(1, 4), torch.tensor([2])).item(), 4)  # 1/4 + 9.2103 * 3/4
    7.1578
    """

    def __init__(self, *, alpha: float = 1.0, beta: float = 1.0, clip: float = 1e-4, **contract: Unpack[Contract]) -> None:
        super().__init__(pair_terms(alpha, NCE(), beta, RCE(clip=clip)), **contract)
        self.alpha, self.beta, self.clip = alpha, beta, clip


@register_pair("nce+aul", reference=_ALF)
class NCEandAUL(Sum):
    """The pair alpha NCE + beta AUL. Both losses are active, so it is not an active passive loss.

    Use it to compare JAL with an asymmetric loss that is active, with L2 regularisation.

    Args:
        alpha: Weight of the first loss, in [0, inf).
        beta: Weight of the second loss, in [0, inf).
        a: In (1, inf): the larger, the closer to the mean absolute error.
        p: Exponent, in (0, inf); 1 is 1 - p_y.
        **contract: The options of :class:`RobustLoss`.

    >>> round(NCEandAUL()(torch.zeros(1, 4), torch.tensor([2])).item(), 4)
    7.3954
    """

    def __init__(
        self, *, alpha: float = 1.0, beta: float = 4.0, a: float = 6.3, p: float = 1.5, **contract: Unpack[Contract]
    ) -> None:
        super().__init__(pair_terms(alpha, NCE(), beta, AUL(a=a, p=p)), **contract)
        self.alpha, self.beta, self.a, self.p = alpha, beta, a, p


@register_pair("nce+agce", reference=_ALF)
class NCEandAGCE(Sum):
    """The pair alpha NCE + beta AGCE. Both losses are active, so it is not an active passive loss.

    Use it to compare JAL with an asymmetric loss that is active, with L2 regularisation.

    Args:
        alpha: Weight of the first loss, in [0, inf).
        beta: Weight of the second loss, in [0, inf).
        a: Of the asymmetric part, in (0, inf): the larger, the closer to the mean absolute error.
        q: Exponent, in (0, inf).
        **contract: The options of :class:`RobustLoss`.

    >>> round(NCEandAGCE()(torch.zeros(1, 4), torch.tensor([2])).item(), 4)
    7.9707
    """

    def __init__(
        self, *, alpha: float = 1.0, beta: float = 4.0, a: float = 6.0, q: float = 1.5, **contract: Unpack[Contract]
    ) -> None:
        super().__init__(pair_terms(alpha, NCE(), beta, AGCE(a=a, q=q)), **contract)
        self.alpha, self.beta, self.a, self.q = alpha, beta, a, q


@register_pair("nce+ael", reference=_ALF)
class NCEandAEL(Sum):
    """The pair alpha NCE + beta AEL. Both losses are active, so it is not an active passive loss.

    Use it to compare JAL with an asymmetric loss that is active, with L2 regularisation.

    Args:
        alpha: Weight of the first loss, in [0, inf).
        beta: Weight of the second loss, in [0, inf).
        a: Of the asymmetric part, in (0, inf): the larger, the closer to the mean absolute error.
        **contract: The options of :class:`RobustLoss`.

    >>> round(NCEandAEL()(torch.zeros(1, 4), torch.tensor([2])).item(), 4)
    4.0549
    """

    def __init__(self, *, alpha: float = 1.0, beta: float = 4.0, a: float = 5.0, **contract: Unpack[Contract]) -> None:
        super().__init__(pair_terms(alpha, NCE(), beta, AEL(a=a)), **contract)
        self.alpha, self.beta, self.a = alpha, beta, a


@register_pair("nfl+mae", reference=_APL)
class NFLandMAE(Sum):
    r"""Active passive loss: alpha NFL + beta MAE, the mean absolute error with scale 1.

    Symmetric, because both parts are. Range [0, alpha + beta], not reached at both ends at once.

    Use it as NCE+MAE, with hard examples weighted up.

    Args:
        alpha: Weight of the first loss, in [0, inf).
        beta: Weight of the second loss, in [0, inf).
        gamma: Exponent of the focal weight (1 - p)^gamma, in [0, inf); 0 is none.
        detach_focal: Whether the focal weight is a constant to the gradient, as in the code behind the published numbers.
        **contract: The options of :class:`RobustLoss`.

    >>> round(NFLandMAE()(torch.zeros(1, 4), torch.tensor([2])).item(), 4)  # 1/4 + 3/4
    1.0
    """

    def __init__(
        self,
        *,
        alpha: float = 1.0,
        beta: float = 1.0,
        gamma: float = 0.5,
        detach_focal: bool = False,
        **contract: Unpack[Contract],
    ) -> None:
        super().__init__(pair_terms(alpha, NFL(gamma=gamma, detach_focal=detach_focal), beta, MAE(scale=1.0)), **contract)
        self.alpha, self.beta, self.gamma, self.detach_focal = alpha, beta, gamma, detach_focal


@register_pair("nfl+rce", reference=_APL)
class NFLandRCE(Sum):
    r"""Active passive loss: alpha NFL + beta RCE, the strongest pair of its paper.

    Symmetric, because both parts are.

    Use it as NCE+RCE, with hard examples weighted up.

    Args:
        alpha: Weight of the first loss, in [0, inf).
        beta: Weight of the second loss, in [0, inf).
        clip: What stands for 0 in the logarithm of the label, in (0, 1).
        gamma: Exponent of the focal weight (1 - p)^gamma, in [0, inf); 0 is none.
        detach_focal: Whether the focal weight is a constant to the gradient, as in the code behind the published numbers.
        **contract: The options of :class:`RobustLoss`.

    >>> round(NFLandRCE()(torch.zeros(1, 4), torch.tensor([2])).item(), 4)  # 1/4 + 9.2103 * 3/4
    7.1578
    """

    def __init__(
        self,
        *,
        alpha: float = 1.0,
        beta: float = 1.0,
        clip: float = 1e-4,
        gamma: float = 0.5,
        detach_focal: bool = False,
        **contract: Unpack[Contract],
    ) -> None:
        super().__init__(pair_terms(alpha, NFL(gamma=gamma, detach_focal=detach_focal), beta, RCE(clip=clip)), **contract)
        self.alpha, self.beta, self.clip, self.gamma, self.detach_focal = alpha, beta, clip, gamma, detach_focal


@register_pair("nfl+aul", reference=_ALF)
class NFLandAUL(Sum):
    """The pair alpha NFL + beta AUL. Both losses are active, so it is not an active passive loss.

    Use it as the pair with NCE, with hard examples weighted up.

    Args:
        alpha: Weight of the first loss, in [0, inf).
        beta: Weight of the second loss, in [0, inf).
        a: In (1, inf): the larger, the closer to the mean absolute error.
        p: Exponent, in (0, inf); 1 is 1 - p_y.
        gamma: Exponent of the focal weight (1 - p)^gamma, in [0, inf); 0 is none.
        detach_focal: Whether the focal weight is a constant to the gradient, as in the code behind the published numbers.
        **contract: The options of :class:`RobustLoss`.

    >>> round(NFLandAUL()(torch.zeros(1, 4), torch.tensor([2])).item(), 4)
    7.3954
    """

    def __init__(
        self,
        *,
        alpha: float = 1.0,
        beta: float = 4.0,
        a: float = 6.3,
        p: float = 1.5,
        gamma: float = 0.5,
        detach_focal: bool = False,
        **contract: Unpack[Contract],
    ) -> None:
        super().__init__(pair_terms(alpha, NFL(gamma=gamma, detach_focal=detach_focal), beta, AUL(a=a, p=p)), **contract)
        self.alpha, self.beta, self.a, self.p, self.gamma, self.detach_focal = alpha, beta, a, p, gamma, detach_focal


@register_pair("nfl+agce", reference=_ALF)
class NFLandAGCE(Sum):
    """The pair alpha NFL + beta AGCE. Both losses are active, so it is not an active passive loss.

    Use it as the pair with NCE, with hard examples weighted up.

    Args:
        alpha: Weight of the first loss, in [0, inf).
        beta: Weight of the second loss, in [0, inf).
        a: Of the asymmetric part, in (0, inf): the larger, the closer to the mean absolute error.
        q: Exponent, in (0, inf).
        gamma: Exponent of the focal weight (1 - p)^gamma, in [0, inf); 0 is none.
        detach_focal: Whether the focal weight is a constant to the gradient, as in the code behind the published numbers.
        **contract: The options of :class:`RobustLoss`.

    >>> round(NFLandAGCE()(torch.zeros(1, 4), torch.tensor([2])).item(), 4)
    7.9707
    """

    def __init__(
        self,
        *,
        alpha: float = 1.0,
        beta: float = 4.0,
        a: float = 6.0,
        q: float = 1.5,
        gamma: float = 0.5,
        detach_focal: bool = False,
        **contract: Unpack[Contract],
    ) -> None:
        super().__init__(pair_terms(alpha, NFL(gamma=gamma, detach_focal=detach_focal), beta, AGCE(a=a, q=q)), **contract)
        self.alpha, self.beta, self.a, self.q, self.gamma, self.detach_focal = alpha, beta, a, q, gamma, detach_focal


@register_pair("nfl+ael", reference=_ALF)
class NFLandAEL(Sum):
    """The pair alpha NFL + beta AEL. Both losses are active, so it is not an active passive loss.

    Use it as the pair with NCE, with hard examples weighted up.

    Args:
        alpha: Weight of the first loss, in [0, inf).
        beta: Weight of the second loss, in [0, inf).
        a: Of the asymmetric part, in (0, inf): the larger, the closer to the mean absolute error.
        gamma: Exponent of the focal weight (1 - p)^gamma, in [0, inf); 0 is none.
        detach_focal: Whether the focal weight is a constant to the gradient, as in the code behind the published numbers.
        **contract: The options of :class:`RobustLoss`.

    >>> round(NFLandAEL()(torch.zeros(1, 4), torch.tensor([2])).item(), 4)
    4.0549
    """

    def __init__(
        self,
        *,
        alpha: float = 1.0,
        beta: float = 4.0,
        a: float = 5.0,
        gamma: float = 0.5,
        detach_focal: bool = False,
        **contract: Unpack[Contract],
    ) -> None:
        super().__init__(pair_terms(alpha, NFL(gamma=gamma, detach_focal=detach_focal), beta, AEL(a=a)), **contract)
        self.alpha, self.beta, self.a, self.gamma, self.detach_focal = alpha, beta, a, gamma, detach_focal


@register_pair("agce+mae", reference="Wang et al., ICCV 2025")
class AGCEandMAE(Sum):
    """The pair alpha AGCE + beta MAE, which shows that NCE cannot be replaced by an asymmetric loss (Table 1).

    Use it to repeat that table.

    Args:
        alpha: Weight of the first loss, in [0, inf).
        beta: Weight of the second loss, in [0, inf).
        a: Of the asymmetric part, in (0, inf): the larger, the closer to the mean absolute error.
        q: Exponent, in (0, inf).
        **contract: The options of :class:`RobustLoss`.

    >>> round(AGCEandMAE()(torch.zeros(1, 4), torch.tensor([2])).item(), 4)
    2.6802
    """

    def __init__(
        self, *, alpha: float = 1.0, beta: float = 1.0, a: float = 6.0, q: float = 1.5, **contract: Unpack[Contract]
    ) -> None:
        super().__init__(pair_terms(alpha, AGCE(a=a, q=q), beta, MAE(scale=1.0)), **contract)
        self.alpha, self.beta, self.a, self.q = alpha, beta, a, q
