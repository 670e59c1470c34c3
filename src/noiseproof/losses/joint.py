"""The paper's losses and their nearest relatives: JAL and ANL, an active and a passive loss added.

Each is ``alpha * active + beta * passive``; defaults are those of the published code for CIFAR-10.
"""

from typing import Unpack

import torch  # noqa: F401 - for the doctests

from noiseproof.losses.asymmetric import AMSE
from noiseproof.losses.base import Contract, Sum, pair_terms
from noiseproof.losses.catalog import register_pair
from noiseproof.losses.normalized import NCE, NFL, NNCE, NNFL

__all__ = ["ANLCE", "ANLFL", "JALCE", "JALFL"]


@register_pair("anl-ce", title="Active negative loss on cross entropy", reference="Ye et al., NeurIPS 2023")
class ANLCE(Sum):
    r"""Active negative loss: alpha NCE + beta NNCE.

    Symmetric. Published with L1 on all weights (``noiseproof.L1``): 5e-5 on CIFAR-10, 5e-7 on CIFAR-100; with L2 3e-5 on
    WebVision and 1e-3 on Clothing1M. On CNNs the regularisation is half of the method, see :class:`JALCE`.

    Use it with its regularisation, as the symmetric alternative to JAL-CE.

    Args:
        alpha: Weight of the first loss, in [0, inf).
        beta: Weight of the second loss, in [0, inf).
        minimum: Probabilities are clipped below at it, in (0, 0.5) and below 1/K.
        **contract: The options of :class:`RobustLoss`.

    >>> round(ANLCE(alpha=1.0, beta=1.0)(torch.zeros(1, 4), torch.tensor([2])).item(), 4)  # 1/4 + 3/4
    1.0
    """

    def __init__(self, *, alpha: float = 5.0, beta: float = 5.0, minimum: float = 1e-08, **contract: Unpack[Contract]) -> None:
        super().__init__(pair_terms(alpha, NCE(), beta, NNCE(minimum=minimum)), **contract)
        self.alpha, self.beta, self.minimum = alpha, beta, minimum


@register_pair("anl-fl", title="Active negative loss on the focal loss", reference="Ye et al., NeurIPS 2023")
class ANLFL(Sum):
    r"""Active negative loss: alpha NFL + beta NNFL.

    Symmetric. ``detach_focal`` as in :class:`FL`, for both parts. Decay as for :class:`ANLCE`: L1 5e-5 on CIFAR-10, 5e-7 on
    CIFAR-100.

    Use it with its regularisation, as the symmetric alternative to JAL-FL.

    Args:
        alpha: Weight of the first loss, in [0, inf).
        beta: Weight of the second loss, in [0, inf).
        gamma: Exponent of the focal weight (1 - p)^gamma, in [0, inf); 0 is none.
        minimum: Probabilities are clipped below at it, in (0, 0.5) and below 1/K.
        detach_focal: Whether the focal weight is a constant to the gradient, as in the code behind the published numbers.
        **contract: The options of :class:`RobustLoss`.

    >>> round(ANLFL()(torch.zeros(1, 4), torch.tensor([2])).item(), 4)
    5.0
    """

    def __init__(
        self,
        *,
        alpha: float = 5.0,
        beta: float = 5.0,
        gamma: float = 0.5,
        minimum: float = 1e-08,
        detach_focal: bool = False,
        **contract: Unpack[Contract],
    ) -> None:
        active = NFL(gamma=gamma, detach_focal=detach_focal)
        passive = NNFL(gamma=gamma, minimum=minimum, detach_focal=detach_focal)
        super().__init__(pair_terms(alpha, active, beta, passive), **contract)
        self.alpha, self.beta, self.gamma, self.minimum, self.detach_focal = alpha, beta, gamma, minimum, detach_focal


@register_pair("jal-ce", title="Joint asymmetric loss on cross entropy", reference="Wang et al., ICCV 2025")
class JALCE(Sum):
    r"""Joint asymmetric loss: alpha NCE + beta AMSE, the paper's loss.

    Robust where AMSE is: choose ``a`` of at least :math:`1/(w_1 - w_2)` for the two largest label weights, 9 at ten classes
    with 80 % symmetric noise. The paper uses (alpha, beta, a) = (1, 1, 30) on CIFAR-10, (5, 1, 20) on CIFAR-100, (50, 1, 30) on
    WebVision and (5, 0.1, 5) on Clothing1M. ``offset=False`` drops AMSE's constant from the value.

    The paper trains it with L1 penalty on all weights (``noiseproof.L1``): 5e-5 on CIFAR-10, 5e-6 on CIFAR-100; with L2 3e-5 on
    WebVision and 1e-3 on Clothing1M. The regularisation is part of the method on CNNs: in a first look JAL-CE and ANL-CE
    lost more than ten points on CIFAR-10 at 80 % symmetric noise with L2 1e-4 instead. On an MLP trained with SGD
    no difference was seen.

    Use it first where labels are noisy, with the regularisation that belongs to the data.

    Args:
        alpha: Weight of the first loss, in [0, inf).
        beta: Weight of the second loss, in [0, inf).
        a: What p_y is pulled towards, in [1, inf): the larger, the more robust and the slower to fit.
        q: Exponent, in (0, inf).
        offset: Whether the value holds AMSE's constant (a-1)^q / K; the gradient is the same.
        **contract: The options of :class:`RobustLoss`.

    >>> round(JALCE(a=3.0)(torch.zeros(1, 2), torch.tensor([0])).item(), 4)  # 1/2 + (2.5^2 + 0.5^2)/2
    3.75
    """

    def __init__(
        self,
        *,
        alpha: float = 1.0,
        beta: float = 1.0,
        a: float = 30.0,
        q: float = 2.0,
        offset: bool = True,
        **contract: Unpack[Contract],
    ) -> None:
        super().__init__(pair_terms(alpha, NCE(), beta, AMSE(a=a, q=q, offset=offset)), **contract)
        self.alpha, self.beta, self.a, self.q, self.offset = alpha, beta, a, q, offset


@register_pair("jal-fl", title="Joint asymmetric loss on the focal loss", reference="Wang et al., ICCV 2025")
class JALFL(Sum):
    r"""Joint asymmetric loss: alpha NFL + beta AMSE.

    As :class:`JALCE`, with the focal loss and the same regularisation: L1 5e-5 on CIFAR-10, 5e-6 on CIFAR-100. ``detach_focal``
    as in :class:`FL`: the paper's numbers were made with it.

    Use it as a second try beside JAL-CE: in the 31 settings of the paper that have both they are within 0.7 points.

    Args:
        alpha: Weight of the first loss, in [0, inf).
        beta: Weight of the second loss, in [0, inf).
        a: What p_y is pulled towards, in [1, inf): the larger, the more robust and the slower to fit.
        gamma: Exponent of the focal weight (1 - p)^gamma, in [0, inf); 0 is none.
        q: Exponent, in (0, inf).
        offset: Whether the value holds AMSE's constant (a-1)^q / K; the gradient is the same.
        detach_focal: Whether the focal weight is a constant to the gradient, as in the code behind the published numbers.
        **contract: The options of :class:`RobustLoss`.

    >>> round(JALFL(a=3.0)(torch.zeros(1, 2), torch.tensor([0])).item(), 4)
    3.75
    """

    def __init__(
        self,
        *,
        alpha: float = 1.0,
        beta: float = 1.0,
        a: float = 30.0,
        gamma: float = 0.5,
        q: float = 2.0,
        offset: bool = True,
        detach_focal: bool = False,
        **contract: Unpack[Contract],
    ) -> None:
        active = NFL(gamma=gamma, detach_focal=detach_focal)
        super().__init__(pair_terms(alpha, active, beta, AMSE(a=a, q=q, offset=offset)), **contract)
        self.alpha, self.beta, self.a, self.gamma = alpha, beta, a, gamma
        self.q, self.offset, self.detach_focal = q, offset, detach_focal
