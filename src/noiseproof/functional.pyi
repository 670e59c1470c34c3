"""One function per loss. Written from the catalogue by `make generate`; do not edit."""

from typing import Literal

import torch
from torch import Tensor

from noiseproof.losses.base import RobustLoss
from noiseproof.program import Reduction

def ce(
    logits: Tensor,
    target: Tensor,
    *,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Cross entropy: the function of :class:`noiseproof.CE`.

    Args:
        logits: [N, K], [K] or [N, K, d1, ...]
        target: labels, [N] for logits [N, K], or class probabilities of the logits' shape
        weight: factor of each class's loss, [K]
        ignore_index: the label of rows that count for nothing
        reduction: none, mean (by the weights of the labels) or sum
        label_smoothing: share of the target that goes to all classes alike, in [0, 1]

    Returns:
        The loss: a number, or with reduction="none" one for each label.

    Example:
        >>> import noiseproof
        >>> logits, target = torch.zeros(2, 4), torch.tensor([2, 0])
        >>> noiseproof.functional.ce(logits, target, reduction="none").shape
        torch.Size([2])
    """

def fl(
    logits: Tensor,
    target: Tensor,
    *,
    gamma: float = 0.5,
    detach_focal: bool = False,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Focal loss: the function of :class:`noiseproof.FL`.

    Args:
        logits: [N, K], [K] or [N, K, d1, ...]
        target: labels, [N] for logits [N, K], or class probabilities of the logits' shape
        gamma: exponent of the focal weight (1 - p)^gamma, in [0, inf); 0 is none
        detach_focal: whether the focal weight is a constant to the gradient, as in the code behind the published numbers
        weight: factor of each class's loss, [K]
        ignore_index: the label of rows that count for nothing
        reduction: none, mean (by the weights of the labels) or sum
        label_smoothing: share of the target that goes to all classes alike, in [0, 1]

    Returns:
        The loss: a number, or with reduction="none" one for each label.

    Example:
        >>> import noiseproof
        >>> logits, target = torch.zeros(2, 4), torch.tensor([2, 0])
        >>> noiseproof.functional.fl(logits, target, reduction="none").shape
        torch.Size([2])
    """

def mae(
    logits: Tensor,
    target: Tensor,
    *,
    scale: float = 2.0,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Mean absolute error: the function of :class:`noiseproof.MAE`.

    Args:
        logits: [N, K], [K] or [N, K, d1, ...]
        target: labels, [N] for logits [N, K], or class probabilities of the logits' shape
        scale: factor, in (0, inf)
        weight: factor of each class's loss, [K]
        ignore_index: the label of rows that count for nothing
        reduction: none, mean (by the weights of the labels) or sum
        label_smoothing: share of the target that goes to all classes alike, in [0, 1]

    Returns:
        The loss: a number, or with reduction="none" one for each label.

    Example:
        >>> import noiseproof
        >>> logits, target = torch.zeros(2, 4), torch.tensor([2, 0])
        >>> noiseproof.functional.mae(logits, target, reduction="none").shape
        torch.Size([2])
    """

def mse(
    logits: Tensor,
    target: Tensor,
    *,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Mean squared error: the function of :class:`noiseproof.MSE`.

    Args:
        logits: [N, K], [K] or [N, K, d1, ...]
        target: labels, [N] for logits [N, K], or class probabilities of the logits' shape
        weight: factor of each class's loss, [K]
        ignore_index: the label of rows that count for nothing
        reduction: none, mean (by the weights of the labels) or sum
        label_smoothing: share of the target that goes to all classes alike, in [0, 1]

    Returns:
        The loss: a number, or with reduction="none" one for each label.

    Example:
        >>> import noiseproof
        >>> logits, target = torch.zeros(2, 4), torch.tensor([2, 0])
        >>> noiseproof.functional.mse(logits, target, reduction="none").shape
        torch.Size([2])
    """

def rce(
    logits: Tensor,
    target: Tensor,
    *,
    clip: float = 0.0001,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Reverse cross entropy: the function of :class:`noiseproof.RCE`.

    Args:
        logits: [N, K], [K] or [N, K, d1, ...]
        target: labels, [N] for logits [N, K], or class probabilities of the logits' shape
        clip: what stands for 0 in the logarithm of the label, in (0, 1)
        weight: factor of each class's loss, [K]
        ignore_index: the label of rows that count for nothing
        reduction: none, mean (by the weights of the labels) or sum
        label_smoothing: share of the target that goes to all classes alike, in [0, 1]

    Returns:
        The loss: a number, or with reduction="none" one for each label.

    Example:
        >>> import noiseproof
        >>> logits, target = torch.zeros(2, 4), torch.tensor([2, 0])
        >>> noiseproof.functional.rce(logits, target, reduction="none").shape
        torch.Size([2])
    """

def sce(
    logits: Tensor,
    target: Tensor,
    *,
    alpha: float = 0.1,
    beta: float = 1.0,
    clip: float = 0.0001,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Symmetric cross entropy: the function of :class:`noiseproof.SCE`.

    Args:
        logits: [N, K], [K] or [N, K, d1, ...]
        target: labels, [N] for logits [N, K], or class probabilities of the logits' shape
        alpha: weight of the first loss, in [0, inf)
        beta: weight of the second loss, in [0, inf)
        clip: what stands for 0 in the logarithm of the label, in (0, 1)
        weight: factor of each class's loss, [K]
        ignore_index: the label of rows that count for nothing
        reduction: none, mean (by the weights of the labels) or sum
        label_smoothing: share of the target that goes to all classes alike, in [0, 1]

    Returns:
        The loss: a number, or with reduction="none" one for each label.

    Example:
        >>> import noiseproof
        >>> logits, target = torch.zeros(2, 4), torch.tensor([2, 0])
        >>> noiseproof.functional.sce(logits, target, reduction="none").shape
        torch.Size([2])
    """

def negative_ls(
    logits: Tensor,
    target: Tensor,
    *,
    r: float = -1.0,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Negative label smoothing: the function of :class:`noiseproof.NegativeLS`.

    Args:
        logits: [N, K], [K] or [N, K, d1, ...]
        target: labels, [N] for logits [N, K], or class probabilities of the logits' shape
        r: rate of the smoothing, in (-inf, 1); 0 is cross entropy
        weight: factor of each class's loss, [K]
        ignore_index: the label of rows that count for nothing
        reduction: none, mean (by the weights of the labels) or sum
        label_smoothing: share of the target that goes to all classes alike, in [0, 1]

    Returns:
        The loss: a number, or with reduction="none" one for each label.

    Example:
        >>> import noiseproof
        >>> logits, target = torch.zeros(2, 4), torch.tensor([2, 0])
        >>> noiseproof.functional.negative_ls(logits, target, reduction="none").shape
        torch.Size([2])
    """

def gce(
    logits: Tensor,
    target: Tensor,
    *,
    q: float = 0.7,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Generalized cross entropy: the function of :class:`noiseproof.GCE`.

    Args:
        logits: [N, K], [K] or [N, K, d1, ...]
        target: labels, [N] for logits [N, K], or class probabilities of the logits' shape
        q: in (0, 1]: 0 is cross entropy, 1 is 1 - p_y
        weight: factor of each class's loss, [K]
        ignore_index: the label of rows that count for nothing
        reduction: none, mean (by the weights of the labels) or sum
        label_smoothing: share of the target that goes to all classes alike, in [0, 1]

    Returns:
        The loss: a number, or with reduction="none" one for each label.

    Example:
        >>> import noiseproof
        >>> logits, target = torch.zeros(2, 4), torch.tensor([2, 0])
        >>> noiseproof.functional.gce(logits, target, reduction="none").shape
        torch.Size([2])
    """

def truncated_gce(
    logits: Tensor,
    target: Tensor,
    *,
    q: float = 0.7,
    k: float = 0.5,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Truncated generalized cross entropy: the function of :class:`noiseproof.TruncatedGCE`.

    Args:
        logits: [N, K], [K] or [N, K, d1, ...]
        target: labels, [N] for logits [N, K], or class probabilities of the logits' shape
        q: in (0, 1]: 0 is cross entropy, 1 is 1 - p_y
        k: probabilities below it have no gradient, in (0, 1)
        weight: factor of each class's loss, [K]
        ignore_index: the label of rows that count for nothing
        reduction: none, mean (by the weights of the labels) or sum
        label_smoothing: share of the target that goes to all classes alike, in [0, 1]

    Returns:
        The loss: a number, or with reduction="none" one for each label.

    Example:
        >>> import noiseproof
        >>> logits, target = torch.zeros(2, 4), torch.tensor([2, 0])
        >>> noiseproof.functional.truncated_gce(logits, target, reduction="none").shape
        torch.Size([2])
    """

def taylor_ce(
    logits: Tensor,
    target: Tensor,
    *,
    t: int = 2,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Taylor cross entropy: the function of :class:`noiseproof.TaylorCE`.

    Args:
        logits: [N, K], [K] or [N, K, d1, ...]
        target: labels, [N] for logits [N, K], or class probabilities of the logits' shape
        t: number of terms, at least 1; 1 is 1 - p_y
        weight: factor of each class's loss, [K]
        ignore_index: the label of rows that count for nothing
        reduction: none, mean (by the weights of the labels) or sum
        label_smoothing: share of the target that goes to all classes alike, in [0, 1]

    Returns:
        The loss: a number, or with reduction="none" one for each label.

    Example:
        >>> import noiseproof
        >>> logits, target = torch.zeros(2, 4), torch.tensor([2, 0])
        >>> noiseproof.functional.taylor_ce(logits, target, reduction="none").shape
        torch.Size([2])
    """

def phuber_ce(
    logits: Tensor,
    target: Tensor,
    *,
    tau: float = 10.0,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Partially Huberised cross entropy: the function of :class:`noiseproof.PHuberCE`.

    Args:
        logits: [N, K], [K] or [N, K, d1, ...]
        target: labels, [N] for logits [N, K], or class probabilities of the logits' shape
        tau: the slope in p_y is at most this, in (1, inf): 1 is 1 - p_y, infinity cross entropy
        weight: factor of each class's loss, [K]
        ignore_index: the label of rows that count for nothing
        reduction: none, mean (by the weights of the labels) or sum
        label_smoothing: share of the target that goes to all classes alike, in [0, 1]

    Returns:
        The loss: a number, or with reduction="none" one for each label.

    Example:
        >>> import noiseproof
        >>> logits, target = torch.zeros(2, 4), torch.tensor([2, 0])
        >>> noiseproof.functional.phuber_ce(logits, target, reduction="none").shape
        torch.Size([2])
    """

def js(
    logits: Tensor,
    target: Tensor,
    *,
    pi: float = 0.5,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Jensen-Shannon divergence: the function of :class:`noiseproof.JS`.

    Args:
        logits: [N, K], [K] or [N, K, d1, ...]
        target: labels, [N] for logits [N, K], or class probabilities of the logits' shape
        pi: weight of the label against the prediction, in (0, 1): 0 is cross entropy, 1 half the mean absolute error
        weight: factor of each class's loss, [K]
        ignore_index: the label of rows that count for nothing
        reduction: none, mean (by the weights of the labels) or sum
        label_smoothing: share of the target that goes to all classes alike, in [0, 1]

    Returns:
        The loss: a number, or with reduction="none" one for each label.

    Example:
        >>> import noiseproof
        >>> logits, target = torch.zeros(2, 4), torch.tensor([2, 0])
        >>> noiseproof.functional.js(logits, target, reduction="none").shape
        torch.Size([2])
    """

def fisher_rao(
    logits: Tensor,
    target: Tensor,
    *,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Fisher-Rao loss: the function of :class:`noiseproof.FisherRao`.

    Args:
        logits: [N, K], [K] or [N, K, d1, ...]
        target: labels, [N] for logits [N, K], or class probabilities of the logits' shape
        weight: factor of each class's loss, [K]
        ignore_index: the label of rows that count for nothing
        reduction: none, mean (by the weights of the labels) or sum
        label_smoothing: share of the target that goes to all classes alike, in [0, 1]

    Returns:
        The loss: a number, or with reduction="none" one for each label.

    Example:
        >>> import noiseproof
        >>> logits, target = torch.zeros(2, 4), torch.tensor([2, 0])
        >>> noiseproof.functional.fisher_rao(logits, target, reduction="none").shape
        torch.Size([2])
    """

def dft(
    logits: Tensor,
    target: Tensor,
    *,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Likelihood weighted by its probability: the function of :class:`noiseproof.DFT`.

    Args:
        logits: [N, K], [K] or [N, K, d1, ...]
        target: labels, [N] for logits [N, K], or class probabilities of the logits' shape
        weight: factor of each class's loss, [K]
        ignore_index: the label of rows that count for nothing
        reduction: none, mean (by the weights of the labels) or sum
        label_smoothing: share of the target that goes to all classes alike, in [0, 1]

    Returns:
        The loss: a number, or with reduction="none" one for each label.

    Example:
        >>> import noiseproof
        >>> logits, target = torch.zeros(2, 4), torch.tensor([2, 0])
        >>> noiseproof.functional.dft(logits, target, reduction="none").shape
        torch.Size([2])
    """

def ogc(
    logits: Tensor,
    target: Tensor,
    *,
    tau: float = 10000000.0,
    epsilon: float = 20.0,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Optimized gradient clipping: the function of :class:`noiseproof.OGC`.

    Args:
        logits: [N, K], [K] or [N, K, d1, ...]
        target: labels, [N] for logits [N, K], or class probabilities of the logits' shape
        tau: the slope in p_y is at most this until the first update, in (1, 1e+07]
        epsilon: how much steeper than on clean labels the gradient on wrong ones may be, per learning rate, in [0, inf)
        weight: factor of each class's loss, [K]
        ignore_index: the label of rows that count for nothing
        reduction: none, mean (by the weights of the labels) or sum
        label_smoothing: share of the target that goes to all classes alike, in [0, 1]

    Returns:
        The loss: a number, or with reduction="none" one for each label.

    Example:
        >>> import noiseproof
        >>> logits, target = torch.zeros(2, 4), torch.tensor([2, 0])
        >>> noiseproof.functional.ogc(logits, target, reduction="none").shape
        torch.Size([2])
    """

def nce(
    logits: Tensor,
    target: Tensor,
    *,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Normalized cross entropy: the function of :class:`noiseproof.NCE`.

    Args:
        logits: [N, K], [K] or [N, K, d1, ...]
        target: labels, [N] for logits [N, K], or class probabilities of the logits' shape
        weight: factor of each class's loss, [K]
        ignore_index: the label of rows that count for nothing
        reduction: none, mean (by the weights of the labels) or sum
        label_smoothing: share of the target that goes to all classes alike, in [0, 1]

    Returns:
        The loss: a number, or with reduction="none" one for each label.

    Example:
        >>> import noiseproof
        >>> logits, target = torch.zeros(2, 4), torch.tensor([2, 0])
        >>> noiseproof.functional.nce(logits, target, reduction="none").shape
        torch.Size([2])
    """

def nfl(
    logits: Tensor,
    target: Tensor,
    *,
    gamma: float = 0.5,
    detach_focal: bool = False,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Normalized focal loss: the function of :class:`noiseproof.NFL`.

    Args:
        logits: [N, K], [K] or [N, K, d1, ...]
        target: labels, [N] for logits [N, K], or class probabilities of the logits' shape
        gamma: exponent of the focal weight (1 - p)^gamma, in [0, inf); 0 is none
        detach_focal: whether the focal weight is a constant to the gradient, as in the code behind the published numbers
        weight: factor of each class's loss, [K]
        ignore_index: the label of rows that count for nothing
        reduction: none, mean (by the weights of the labels) or sum
        label_smoothing: share of the target that goes to all classes alike, in [0, 1]

    Returns:
        The loss: a number, or with reduction="none" one for each label.

    Example:
        >>> import noiseproof
        >>> logits, target = torch.zeros(2, 4), torch.tensor([2, 0])
        >>> noiseproof.functional.nfl(logits, target, reduction="none").shape
        torch.Size([2])
    """

def nnce(
    logits: Tensor,
    target: Tensor,
    *,
    minimum: float = 1e-08,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Normalized negative cross entropy: the function of :class:`noiseproof.NNCE`.

    Args:
        logits: [N, K], [K] or [N, K, d1, ...]
        target: labels, [N] for logits [N, K], or class probabilities of the logits' shape
        minimum: probabilities are clipped below at it, in (0, 0.5) and below 1/K
        weight: factor of each class's loss, [K]
        ignore_index: the label of rows that count for nothing
        reduction: none, mean (by the weights of the labels) or sum
        label_smoothing: share of the target that goes to all classes alike, in [0, 1]

    Returns:
        The loss: a number, or with reduction="none" one for each label.

    Example:
        >>> import noiseproof
        >>> logits, target = torch.zeros(2, 4), torch.tensor([2, 0])
        >>> noiseproof.functional.nnce(logits, target, reduction="none").shape
        torch.Size([2])
    """

def nnfl(
    logits: Tensor,
    target: Tensor,
    *,
    gamma: float = 0.5,
    minimum: float = 1e-08,
    detach_focal: bool = False,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Normalized negative focal loss: the function of :class:`noiseproof.NNFL`.

    Args:
        logits: [N, K], [K] or [N, K, d1, ...]
        target: labels, [N] for logits [N, K], or class probabilities of the logits' shape
        gamma: exponent of the focal weight (1 - p)^gamma, in [0, inf); 0 is none
        minimum: probabilities are clipped below at it, in (0, 0.5) and below 1/K
        detach_focal: whether the focal weight is a constant to the gradient, as in the code behind the published numbers
        weight: factor of each class's loss, [K]
        ignore_index: the label of rows that count for nothing
        reduction: none, mean (by the weights of the labels) or sum
        label_smoothing: share of the target that goes to all classes alike, in [0, 1]

    Returns:
        The loss: a number, or with reduction="none" one for each label.

    Example:
        >>> import noiseproof
        >>> logits, target = torch.zeros(2, 4), torch.tensor([2, 0])
        >>> noiseproof.functional.nnfl(logits, target, reduction="none").shape
        torch.Size([2])
    """

def aul(
    logits: Tensor,
    target: Tensor,
    *,
    a: float = 5.5,
    p: float = 3.0,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Asymmetric unhinged loss: the function of :class:`noiseproof.AUL`.

    Args:
        logits: [N, K], [K] or [N, K, d1, ...]
        target: labels, [N] for logits [N, K], or class probabilities of the logits' shape
        a: in (1, inf): the larger, the closer to the mean absolute error
        p: exponent, in (0, inf); 1 is 1 - p_y
        weight: factor of each class's loss, [K]
        ignore_index: the label of rows that count for nothing
        reduction: none, mean (by the weights of the labels) or sum
        label_smoothing: share of the target that goes to all classes alike, in [0, 1]

    Returns:
        The loss: a number, or with reduction="none" one for each label.

    Example:
        >>> import noiseproof
        >>> logits, target = torch.zeros(2, 4), torch.tensor([2, 0])
        >>> noiseproof.functional.aul(logits, target, reduction="none").shape
        torch.Size([2])
    """

def agce(
    logits: Tensor,
    target: Tensor,
    *,
    a: float = 0.6,
    q: float = 0.6,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Asymmetric generalized cross entropy: the function of :class:`noiseproof.AGCE`.

    Args:
        logits: [N, K], [K] or [N, K, d1, ...]
        target: labels, [N] for logits [N, K], or class probabilities of the logits' shape
        a: of the asymmetric part, in (0, inf): the larger, the closer to the mean absolute error
        q: exponent, in (0, inf)
        weight: factor of each class's loss, [K]
        ignore_index: the label of rows that count for nothing
        reduction: none, mean (by the weights of the labels) or sum
        label_smoothing: share of the target that goes to all classes alike, in [0, 1]

    Returns:
        The loss: a number, or with reduction="none" one for each label.

    Example:
        >>> import noiseproof
        >>> logits, target = torch.zeros(2, 4), torch.tensor([2, 0])
        >>> noiseproof.functional.agce(logits, target, reduction="none").shape
        torch.Size([2])
    """

def ael(
    logits: Tensor,
    target: Tensor,
    *,
    a: float = 2.5,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Asymmetric exponential loss: the function of :class:`noiseproof.AEL`.

    Args:
        logits: [N, K], [K] or [N, K, d1, ...]
        target: labels, [N] for logits [N, K], or class probabilities of the logits' shape
        a: of the asymmetric part, in (0, inf): the larger, the closer to the mean absolute error
        weight: factor of each class's loss, [K]
        ignore_index: the label of rows that count for nothing
        reduction: none, mean (by the weights of the labels) or sum
        label_smoothing: share of the target that goes to all classes alike, in [0, 1]

    Returns:
        The loss: a number, or with reduction="none" one for each label.

    Example:
        >>> import noiseproof
        >>> logits, target = torch.zeros(2, 4), torch.tensor([2, 0])
        >>> noiseproof.functional.ael(logits, target, reduction="none").shape
        torch.Size([2])
    """

def anorm(
    logits: Tensor,
    target: Tensor,
    *,
    a: float = 2.0,
    q: float = 2.0,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Asymmetric norm loss: the function of :class:`noiseproof.ANorm`.

    Args:
        logits: [N, K], [K] or [N, K, d1, ...]
        target: labels, [N] for logits [N, K], or class probabilities of the logits' shape
        a: what p_y is pulled towards, in [1, inf): the larger, the more robust and the slower to fit
        q: exponent, in (0, inf)
        weight: factor of each class's loss, [K]
        ignore_index: the label of rows that count for nothing
        reduction: none, mean (by the weights of the labels) or sum
        label_smoothing: share of the target that goes to all classes alike, in [0, 1]

    Returns:
        The loss: a number, or with reduction="none" one for each label.

    Example:
        >>> import noiseproof
        >>> logits, target = torch.zeros(2, 4), torch.tensor([2, 0])
        >>> noiseproof.functional.anorm(logits, target, reduction="none").shape
        torch.Size([2])
    """

def amse(
    logits: Tensor,
    target: Tensor,
    *,
    a: float = 30.0,
    q: float = 2.0,
    offset: bool = True,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Asymmetric mean squared error: the function of :class:`noiseproof.AMSE`.

    Args:
        logits: [N, K], [K] or [N, K, d1, ...]
        target: labels, [N] for logits [N, K], or class probabilities of the logits' shape
        a: what p_y is pulled towards, in [1, inf): the larger, the more robust and the slower to fit
        q: exponent, in (0, inf)
        offset: whether the value holds AMSE's constant (a-1)^q / K; the gradient is the same
        weight: factor of each class's loss, [K]
        ignore_index: the label of rows that count for nothing
        reduction: none, mean (by the weights of the labels) or sum
        label_smoothing: share of the target that goes to all classes alike, in [0, 1]

    Returns:
        The loss: a number, or with reduction="none" one for each label.

    Example:
        >>> import noiseproof
        >>> logits, target = torch.zeros(2, 4), torch.tensor([2, 0])
        >>> noiseproof.functional.amse(logits, target, reduction="none").shape
        torch.Size([2])
    """

def anl_ce(
    logits: Tensor,
    target: Tensor,
    *,
    alpha: float = 5.0,
    beta: float = 5.0,
    minimum: float = 1e-08,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Active negative loss on cross entropy: the function of :class:`noiseproof.ANLCE`.

    Args:
        logits: [N, K], [K] or [N, K, d1, ...]
        target: labels, [N] for logits [N, K], or class probabilities of the logits' shape
        alpha: weight of the first loss, in [0, inf)
        beta: weight of the second loss, in [0, inf)
        minimum: probabilities are clipped below at it, in (0, 0.5) and below 1/K
        weight: factor of each class's loss, [K]
        ignore_index: the label of rows that count for nothing
        reduction: none, mean (by the weights of the labels) or sum
        label_smoothing: share of the target that goes to all classes alike, in [0, 1]

    Returns:
        The loss: a number, or with reduction="none" one for each label.

    Example:
        >>> import noiseproof
        >>> logits, target = torch.zeros(2, 4), torch.tensor([2, 0])
        >>> noiseproof.functional.anl_ce(logits, target, reduction="none").shape
        torch.Size([2])
    """

def anl_fl(
    logits: Tensor,
    target: Tensor,
    *,
    alpha: float = 5.0,
    beta: float = 5.0,
    gamma: float = 0.5,
    minimum: float = 1e-08,
    detach_focal: bool = False,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Active negative loss on the focal loss: the function of :class:`noiseproof.ANLFL`.

    Args:
        logits: [N, K], [K] or [N, K, d1, ...]
        target: labels, [N] for logits [N, K], or class probabilities of the logits' shape
        alpha: weight of the first loss, in [0, inf)
        beta: weight of the second loss, in [0, inf)
        gamma: exponent of the focal weight (1 - p)^gamma, in [0, inf); 0 is none
        minimum: probabilities are clipped below at it, in (0, 0.5) and below 1/K
        detach_focal: whether the focal weight is a constant to the gradient, as in the code behind the published numbers
        weight: factor of each class's loss, [K]
        ignore_index: the label of rows that count for nothing
        reduction: none, mean (by the weights of the labels) or sum
        label_smoothing: share of the target that goes to all classes alike, in [0, 1]

    Returns:
        The loss: a number, or with reduction="none" one for each label.

    Example:
        >>> import noiseproof
        >>> logits, target = torch.zeros(2, 4), torch.tensor([2, 0])
        >>> noiseproof.functional.anl_fl(logits, target, reduction="none").shape
        torch.Size([2])
    """

def jal_ce(
    logits: Tensor,
    target: Tensor,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    a: float = 30.0,
    q: float = 2.0,
    offset: bool = True,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Joint asymmetric loss on cross entropy: the function of :class:`noiseproof.JALCE`.

    Args:
        logits: [N, K], [K] or [N, K, d1, ...]
        target: labels, [N] for logits [N, K], or class probabilities of the logits' shape
        alpha: weight of the first loss, in [0, inf)
        beta: weight of the second loss, in [0, inf)
        a: what p_y is pulled towards, in [1, inf): the larger, the more robust and the slower to fit
        q: exponent, in (0, inf)
        offset: whether the value holds AMSE's constant (a-1)^q / K; the gradient is the same
        weight: factor of each class's loss, [K]
        ignore_index: the label of rows that count for nothing
        reduction: none, mean (by the weights of the labels) or sum
        label_smoothing: share of the target that goes to all classes alike, in [0, 1]

    Returns:
        The loss: a number, or with reduction="none" one for each label.

    Example:
        >>> import noiseproof
        >>> logits, target = torch.zeros(2, 4), torch.tensor([2, 0])
        >>> noiseproof.functional.jal_ce(logits, target, reduction="none").shape
        torch.Size([2])
    """

def jal_fl(
    logits: Tensor,
    target: Tensor,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    a: float = 30.0,
    gamma: float = 0.5,
    q: float = 2.0,
    offset: bool = True,
    detach_focal: bool = False,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Joint asymmetric loss on the focal loss: the function of :class:`noiseproof.JALFL`.

    Args:
        logits: [N, K], [K] or [N, K, d1, ...]
        target: labels, [N] for logits [N, K], or class probabilities of the logits' shape
        alpha: weight of the first loss, in [0, inf)
        beta: weight of the second loss, in [0, inf)
        a: what p_y is pulled towards, in [1, inf): the larger, the more robust and the slower to fit
        gamma: exponent of the focal weight (1 - p)^gamma, in [0, inf); 0 is none
        q: exponent, in (0, inf)
        offset: whether the value holds AMSE's constant (a-1)^q / K; the gradient is the same
        detach_focal: whether the focal weight is a constant to the gradient, as in the code behind the published numbers
        weight: factor of each class's loss, [K]
        ignore_index: the label of rows that count for nothing
        reduction: none, mean (by the weights of the labels) or sum
        label_smoothing: share of the target that goes to all classes alike, in [0, 1]

    Returns:
        The loss: a number, or with reduction="none" one for each label.

    Example:
        >>> import noiseproof
        >>> logits, target = torch.zeros(2, 4), torch.tensor([2, 0])
        >>> noiseproof.functional.jal_fl(logits, target, reduction="none").shape
        torch.Size([2])
    """

def nce_mae(
    logits: Tensor,
    target: Tensor,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Normalized cross entropy and mean absolute error: the function of :class:`noiseproof.NCEandMAE`.

    Args:
        logits: [N, K], [K] or [N, K, d1, ...]
        target: labels, [N] for logits [N, K], or class probabilities of the logits' shape
        alpha: weight of the first loss, in [0, inf)
        beta: weight of the second loss, in [0, inf)
        weight: factor of each class's loss, [K]
        ignore_index: the label of rows that count for nothing
        reduction: none, mean (by the weights of the labels) or sum
        label_smoothing: share of the target that goes to all classes alike, in [0, 1]

    Returns:
        The loss: a number, or with reduction="none" one for each label.

    Example:
        >>> import noiseproof
        >>> logits, target = torch.zeros(2, 4), torch.tensor([2, 0])
        >>> noiseproof.functional.nce_mae(logits, target, reduction="none").shape
        torch.Size([2])
    """

def nce_rce(
    logits: Tensor,
    target: Tensor,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    clip: float = 0.0001,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Normalized cross entropy and reverse cross entropy: the function of :class:`noiseproof.NCEandRCE`.

    Args:
        logits: [N, K], [K] or [N, K, d1, ...]
        target: labels, [N] for logits [N, K], or class probabilities of the logits' shape
        alpha: weight of the first loss, in [0, inf)
        beta: weight of the second loss, in [0, inf)
        clip: what stands for 0 in the logarithm of the label, in (0, 1)
        weight: factor of each class's loss, [K]
        ignore_index: the label of rows that count for nothing
        reduction: none, mean (by the weights of the labels) or sum
        label_smoothing: share of the target that goes to all classes alike, in [0, 1]

    Returns:
        The loss: a number, or with reduction="none" one for each label.

    Example:
        >>> import noiseproof
        >>> logits, target = torch.zeros(2, 4), torch.tensor([2, 0])
        >>> noiseproof.functional.nce_rce(logits, target, reduction="none").shape
        torch.Size([2])
    """

def nce_aul(
    logits: Tensor,
    target: Tensor,
    *,
    alpha: float = 1.0,
    beta: float = 4.0,
    a: float = 6.3,
    p: float = 1.5,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Normalized cross entropy and asymmetric unhinged loss: the function of :class:`noiseproof.NCEandAUL`.

    Args:
        logits: [N, K], [K] or [N, K, d1, ...]
        target: labels, [N] for logits [N, K], or class probabilities of the logits' shape
        alpha: weight of the first loss, in [0, inf)
        beta: weight of the second loss, in [0, inf)
        a: in (1, inf): the larger, the closer to the mean absolute error
        p: exponent, in (0, inf); 1 is 1 - p_y
        weight: factor of each class's loss, [K]
        ignore_index: the label of rows that count for nothing
        reduction: none, mean (by the weights of the labels) or sum
        label_smoothing: share of the target that goes to all classes alike, in [0, 1]

    Returns:
        The loss: a number, or with reduction="none" one for each label.

    Example:
        >>> import noiseproof
        >>> logits, target = torch.zeros(2, 4), torch.tensor([2, 0])
        >>> noiseproof.functional.nce_aul(logits, target, reduction="none").shape
        torch.Size([2])
    """

def nce_agce(
    logits: Tensor,
    target: Tensor,
    *,
    alpha: float = 1.0,
    beta: float = 4.0,
    a: float = 6.0,
    q: float = 1.5,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Normalized cross entropy and asymmetric generalized cross entropy: the function of :class:`noiseproof.NCEandAGCE`.

    Args:
        logits: [N, K], [K] or [N, K, d1, ...]
        target: labels, [N] for logits [N, K], or class probabilities of the logits' shape
        alpha: weight of the first loss, in [0, inf)
        beta: weight of the second loss, in [0, inf)
        a: of the asymmetric part, in (0, inf): the larger, the closer to the mean absolute error
        q: exponent, in (0, inf)
        weight: factor of each class's loss, [K]
        ignore_index: the label of rows that count for nothing
        reduction: none, mean (by the weights of the labels) or sum
        label_smoothing: share of the target that goes to all classes alike, in [0, 1]

    Returns:
        The loss: a number, or with reduction="none" one for each label.

    Example:
        >>> import noiseproof
        >>> logits, target = torch.zeros(2, 4), torch.tensor([2, 0])
        >>> noiseproof.functional.nce_agce(logits, target, reduction="none").shape
        torch.Size([2])
    """

def nce_ael(
    logits: Tensor,
    target: Tensor,
    *,
    alpha: float = 1.0,
    beta: float = 4.0,
    a: float = 5.0,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Normalized cross entropy and asymmetric exponential loss: the function of :class:`noiseproof.NCEandAEL`.

    Args:
        logits: [N, K], [K] or [N, K, d1, ...]
        target: labels, [N] for logits [N, K], or class probabilities of the logits' shape
        alpha: weight of the first loss, in [0, inf)
        beta: weight of the second loss, in [0, inf)
        a: of the asymmetric part, in (0, inf): the larger, the closer to the mean absolute error
        weight: factor of each class's loss, [K]
        ignore_index: the label of rows that count for nothing
        reduction: none, mean (by the weights of the labels) or sum
        label_smoothing: share of the target that goes to all classes alike, in [0, 1]

    Returns:
        The loss: a number, or with reduction="none" one for each label.

    Example:
        >>> import noiseproof
        >>> logits, target = torch.zeros(2, 4), torch.tensor([2, 0])
        >>> noiseproof.functional.nce_ael(logits, target, reduction="none").shape
        torch.Size([2])
    """

def nfl_mae(
    logits: Tensor,
    target: Tensor,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    gamma: float = 0.5,
    detach_focal: bool = False,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Normalized focal loss and mean absolute error: the function of :class:`noiseproof.NFLandMAE`.

    Args:
        logits: [N, K], [K] or [N, K, d1, ...]
        target: labels, [N] for logits [N, K], or class probabilities of the logits' shape
        alpha: weight of the first loss, in [0, inf)
        beta: weight of the second loss, in [0, inf)
        gamma: exponent of the focal weight (1 - p)^gamma, in [0, inf); 0 is none
        detach_focal: whether the focal weight is a constant to the gradient, as in the code behind the published numbers
        weight: factor of each class's loss, [K]
        ignore_index: the label of rows that count for nothing
        reduction: none, mean (by the weights of the labels) or sum
        label_smoothing: share of the target that goes to all classes alike, in [0, 1]

    Returns:
        The loss: a number, or with reduction="none" one for each label.

    Example:
        >>> import noiseproof
        >>> logits, target = torch.zeros(2, 4), torch.tensor([2, 0])
        >>> noiseproof.functional.nfl_mae(logits, target, reduction="none").shape
        torch.Size([2])
    """

def nfl_rce(
    logits: Tensor,
    target: Tensor,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    clip: float = 0.0001,
    gamma: float = 0.5,
    detach_focal: bool = False,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Normalized focal loss and reverse cross entropy: the function of :class:`noiseproof.NFLandRCE`.

    Args:
        logits: [N, K], [K] or [N, K, d1, ...]
        target: labels, [N] for logits [N, K], or class probabilities of the logits' shape
        alpha: weight of the first loss, in [0, inf)
        beta: weight of the second loss, in [0, inf)
        clip: what stands for 0 in the logarithm of the label, in (0, 1)
        gamma: exponent of the focal weight (1 - p)^gamma, in [0, inf); 0 is none
        detach_focal: whether the focal weight is a constant to the gradient, as in the code behind the published numbers
        weight: factor of each class's loss, [K]
        ignore_index: the label of rows that count for nothing
        reduction: none, mean (by the weights of the labels) or sum
        label_smoothing: share of the target that goes to all classes alike, in [0, 1]

    Returns:
        The loss: a number, or with reduction="none" one for each label.

    Example:
        >>> import noiseproof
        >>> logits, target = torch.zeros(2, 4), torch.tensor([2, 0])
        >>> noiseproof.functional.nfl_rce(logits, target, reduction="none").shape
        torch.Size([2])
    """

def nfl_aul(
    logits: Tensor,
    target: Tensor,
    *,
    alpha: float = 1.0,
    beta: float = 4.0,
    a: float = 6.3,
    p: float = 1.5,
    gamma: float = 0.5,
    detach_focal: bool = False,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Normalized focal loss and asymmetric unhinged loss: the function of :class:`noiseproof.NFLandAUL`.

    Args:
        logits: [N, K], [K] or [N, K, d1, ...]
        target: labels, [N] for logits [N, K], or class probabilities of the logits' shape
        alpha: weight of the first loss, in [0, inf)
        beta: weight of the second loss, in [0, inf)
        a: in (1, inf): the larger, the closer to the mean absolute error
        p: exponent, in (0, inf); 1 is 1 - p_y
        gamma: exponent of the focal weight (1 - p)^gamma, in [0, inf); 0 is none
        detach_focal: whether the focal weight is a constant to the gradient, as in the code behind the published numbers
        weight: factor of each class's loss, [K]
        ignore_index: the label of rows that count for nothing
        reduction: none, mean (by the weights of the labels) or sum
        label_smoothing: share of the target that goes to all classes alike, in [0, 1]

    Returns:
        The loss: a number, or with reduction="none" one for each label.

    Example:
        >>> import noiseproof
        >>> logits, target = torch.zeros(2, 4), torch.tensor([2, 0])
        >>> noiseproof.functional.nfl_aul(logits, target, reduction="none").shape
        torch.Size([2])
    """

def nfl_agce(
    logits: Tensor,
    target: Tensor,
    *,
    alpha: float = 1.0,
    beta: float = 4.0,
    a: float = 6.0,
    q: float = 1.5,
    gamma: float = 0.5,
    detach_focal: bool = False,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Normalized focal loss and asymmetric generalized cross entropy: the function of :class:`noiseproof.NFLandAGCE`.

    Args:
        logits: [N, K], [K] or [N, K, d1, ...]
        target: labels, [N] for logits [N, K], or class probabilities of the logits' shape
        alpha: weight of the first loss, in [0, inf)
        beta: weight of the second loss, in [0, inf)
        a: of the asymmetric part, in (0, inf): the larger, the closer to the mean absolute error
        q: exponent, in (0, inf)
        gamma: exponent of the focal weight (1 - p)^gamma, in [0, inf); 0 is none
        detach_focal: whether the focal weight is a constant to the gradient, as in the code behind the published numbers
        weight: factor of each class's loss, [K]
        ignore_index: the label of rows that count for nothing
        reduction: none, mean (by the weights of the labels) or sum
        label_smoothing: share of the target that goes to all classes alike, in [0, 1]

    Returns:
        The loss: a number, or with reduction="none" one for each label.

    Example:
        >>> import noiseproof
        >>> logits, target = torch.zeros(2, 4), torch.tensor([2, 0])
        >>> noiseproof.functional.nfl_agce(logits, target, reduction="none").shape
        torch.Size([2])
    """

def nfl_ael(
    logits: Tensor,
    target: Tensor,
    *,
    alpha: float = 1.0,
    beta: float = 4.0,
    a: float = 5.0,
    gamma: float = 0.5,
    detach_focal: bool = False,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Normalized focal loss and asymmetric exponential loss: the function of :class:`noiseproof.NFLandAEL`.

    Args:
        logits: [N, K], [K] or [N, K, d1, ...]
        target: labels, [N] for logits [N, K], or class probabilities of the logits' shape
        alpha: weight of the first loss, in [0, inf)
        beta: weight of the second loss, in [0, inf)
        a: of the asymmetric part, in (0, inf): the larger, the closer to the mean absolute error
        gamma: exponent of the focal weight (1 - p)^gamma, in [0, inf); 0 is none
        detach_focal: whether the focal weight is a constant to the gradient, as in the code behind the published numbers
        weight: factor of each class's loss, [K]
        ignore_index: the label of rows that count for nothing
        reduction: none, mean (by the weights of the labels) or sum
        label_smoothing: share of the target that goes to all classes alike, in [0, 1]

    Returns:
        The loss: a number, or with reduction="none" one for each label.

    Example:
        >>> import noiseproof
        >>> logits, target = torch.zeros(2, 4), torch.tensor([2, 0])
        >>> noiseproof.functional.nfl_ael(logits, target, reduction="none").shape
        torch.Size([2])
    """

def agce_mae(
    logits: Tensor,
    target: Tensor,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    a: float = 6.0,
    q: float = 1.5,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Asymmetric generalized cross entropy and mean absolute error: the function of :class:`noiseproof.AGCEandMAE`.

    Args:
        logits: [N, K], [K] or [N, K, d1, ...]
        target: labels, [N] for logits [N, K], or class probabilities of the logits' shape
        alpha: weight of the first loss, in [0, inf)
        beta: weight of the second loss, in [0, inf)
        a: of the asymmetric part, in (0, inf): the larger, the closer to the mean absolute error
        q: exponent, in (0, inf)
        weight: factor of each class's loss, [K]
        ignore_index: the label of rows that count for nothing
        reduction: none, mean (by the weights of the labels) or sum
        label_smoothing: share of the target that goes to all classes alike, in [0, 1]

    Returns:
        The loss: a number, or with reduction="none" one for each label.

    Example:
        >>> import noiseproof
        >>> logits, target = torch.zeros(2, 4), torch.tensor([2, 0])
        >>> noiseproof.functional.agce_mae(logits, target, reduction="none").shape
        torch.Size([2])
    """

def ece(
    logits: Tensor,
    target: Tensor,
    *,
    m: float = 100000.0,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Cross entropy of epsilon-softmax: the function of :class:`noiseproof.ECE`.

    Args:
        logits: [N, K], [K] or [N, K, d1, ...]
        target: labels, [N] for logits [N, K], or class probabilities of the logits' shape
        m: how far epsilon-softmax goes to one-hot, in [0, inf); 0 is softmax
        weight: factor of each class's loss, [K]
        ignore_index: the label of rows that count for nothing
        reduction: none, mean (by the weights of the labels) or sum
        label_smoothing: share of the target that goes to all classes alike, in [0, 1]

    Returns:
        The loss: a number, or with reduction="none" one for each label.

    Example:
        >>> import noiseproof
        >>> logits, target = torch.zeros(2, 4), torch.tensor([2, 0])
        >>> noiseproof.functional.ece(logits, target, reduction="none").shape
        torch.Size([2])
    """

def efl(
    logits: Tensor,
    target: Tensor,
    *,
    m: float = 100000.0,
    gamma: float = 0.5,
    detach_focal: bool = False,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Focal loss of epsilon-softmax: the function of :class:`noiseproof.EFL`.

    Args:
        logits: [N, K], [K] or [N, K, d1, ...]
        target: labels, [N] for logits [N, K], or class probabilities of the logits' shape
        m: how far epsilon-softmax goes to one-hot, in [0, inf); 0 is softmax
        gamma: exponent of the focal weight (1 - p)^gamma, in [0, inf); 0 is none
        detach_focal: whether the focal weight is a constant to the gradient, as in the code behind the published numbers
        weight: factor of each class's loss, [K]
        ignore_index: the label of rows that count for nothing
        reduction: none, mean (by the weights of the labels) or sum
        label_smoothing: share of the target that goes to all classes alike, in [0, 1]

    Returns:
        The loss: a number, or with reduction="none" one for each label.

    Example:
        >>> import noiseproof
        >>> logits, target = torch.zeros(2, 4), torch.tensor([2, 0])
        >>> noiseproof.functional.efl(logits, target, reduction="none").shape
        torch.Size([2])
    """

def ece_mae(
    logits: Tensor,
    target: Tensor,
    *,
    alpha: float = 0.01,
    beta: float = 5.0,
    m: float = 100000.0,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Cross entropy of epsilon-softmax and mean absolute error: the function of :class:`noiseproof.ECEandMAE`.

    Args:
        logits: [N, K], [K] or [N, K, d1, ...]
        target: labels, [N] for logits [N, K], or class probabilities of the logits' shape
        alpha: weight of the first loss, in [0, inf)
        beta: weight of the second loss, in [0, inf)
        m: how far epsilon-softmax goes to one-hot, in [0, inf); 0 is softmax
        weight: factor of each class's loss, [K]
        ignore_index: the label of rows that count for nothing
        reduction: none, mean (by the weights of the labels) or sum
        label_smoothing: share of the target that goes to all classes alike, in [0, 1]

    Returns:
        The loss: a number, or with reduction="none" one for each label.

    Example:
        >>> import noiseproof
        >>> logits, target = torch.zeros(2, 4), torch.tensor([2, 0])
        >>> noiseproof.functional.ece_mae(logits, target, reduction="none").shape
        torch.Size([2])
    """

def efl_mae(
    logits: Tensor,
    target: Tensor,
    *,
    alpha: float = 0.01,
    beta: float = 5.0,
    m: float = 100000.0,
    gamma: float = 0.5,
    detach_focal: bool = False,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Focal loss of epsilon-softmax and mean absolute error: the function of :class:`noiseproof.EFLandMAE`.

    Args:
        logits: [N, K], [K] or [N, K, d1, ...]
        target: labels, [N] for logits [N, K], or class probabilities of the logits' shape
        alpha: weight of the first loss, in [0, inf)
        beta: weight of the second loss, in [0, inf)
        m: how far epsilon-softmax goes to one-hot, in [0, inf); 0 is softmax
        gamma: exponent of the focal weight (1 - p)^gamma, in [0, inf); 0 is none
        detach_focal: whether the focal weight is a constant to the gradient, as in the code behind the published numbers
        weight: factor of each class's loss, [K]
        ignore_index: the label of rows that count for nothing
        reduction: none, mean (by the weights of the labels) or sum
        label_smoothing: share of the target that goes to all classes alike, in [0, 1]

    Returns:
        The loss: a number, or with reduction="none" one for each label.

    Example:
        >>> import noiseproof
        >>> logits, target = torch.zeros(2, 4), torch.tensor([2, 0])
        >>> noiseproof.functional.efl_mae(logits, target, reduction="none").shape
        torch.Size([2])
    """

def logitclip(
    logits: Tensor,
    target: Tensor,
    *,
    tau: float = 1.0,
    base: RobustLoss | None = None,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """LogitClip, as its paper defines it: the function of :class:`noiseproof.LogitClip`.

    Args:
        logits: [N, K], [K] or [N, K, d1, ...]
        target: labels, [N] for logits [N, K], or class probabilities of the logits' shape
        tau: largest norm of a row of logits, in (0, inf)
        base: the loss that is changed; None: cross entropy
        weight: factor of each class's loss, [K]
        ignore_index: the label of rows that count for nothing
        reduction: none, mean (by the weights of the labels) or sum
        label_smoothing: share of the target that goes to all classes alike, in [0, 1]

    Returns:
        The loss: a number, or with reduction="none" one for each label.

    Example:
        >>> import noiseproof
        >>> logits, target = torch.zeros(2, 4), torch.tensor([2, 0])
        >>> noiseproof.functional.logitclip(logits, target, reduction="none").shape
        torch.Size([2])
    """

def ce_lc(
    logits: Tensor,
    target: Tensor,
    *,
    delta: float = 2.5,
    base: RobustLoss | None = None,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """LogitClip, as coded for the published numbers: the function of :class:`noiseproof.PublishedLogitClip`.

    Args:
        logits: [N, K], [K] or [N, K, d1, ...]
        target: labels, [N] for logits [N, K], or class probabilities of the logits' shape
        delta: norms above 1/delta become delta, in (0, inf)
        base: the loss that is changed; None: cross entropy
        weight: factor of each class's loss, [K]
        ignore_index: the label of rows that count for nothing
        reduction: none, mean (by the weights of the labels) or sum
        label_smoothing: share of the target that goes to all classes alike, in [0, 1]

    Returns:
        The loss: a number, or with reduction="none" one for each label.

    Example:
        >>> import noiseproof
        >>> logits, target = torch.zeros(2, 4), torch.tensor([2, 0])
        >>> noiseproof.functional.ce_lc(logits, target, reduction="none").shape
        torch.Size([2])
    """

def logit_bias(
    logits: Tensor,
    target: Tensor,
    *,
    epsilon: float = 1.0,
    base: RobustLoss | None = None,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Mean absolute error with a logit bias: the function of :class:`noiseproof.LogitBias`.

    Args:
        logits: [N, K], [K] or [N, K, d1, ...]
        target: labels, [N] for logits [N, K], or class probabilities of the logits' shape
        epsilon: what is added to the label's logit
        base: the loss of the label's probability that is biased; None: mean absolute error
        weight: factor of each class's loss, [K]
        ignore_index: the label of rows that count for nothing
        reduction: none, mean (by the weights of the labels) or sum
        label_smoothing: share of the target that goes to all classes alike, in [0, 1]

    Returns:
        The loss: a number, or with reduction="none" one for each label.

    Example:
        >>> import noiseproof
        >>> logits, target = torch.zeros(2, 4), torch.tensor([2, 0])
        >>> noiseproof.functional.logit_bias(logits, target, reduction="none").shape
        torch.Size([2])
    """

def sr(
    logits: Tensor,
    target: Tensor,
    *,
    temperature: float = 0.5,
    lam: float = 1.2,
    q: float = 0.1,
    growth: float = 1.03,
    every: int = 1,
    normalize: bool = False,
    base: RobustLoss | None = None,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Sparse regularisation: the function of :class:`noiseproof.SparseRegularization`.

    Args:
        logits: [N, K], [K] or [N, K, d1, ...]
        target: labels, [N] for logits [N, K], or class probabilities of the logits' shape
        temperature: the logits are divided by it, in (0, inf)
        lam: weight of the part that is added, in [0, inf)
        q: exponent, in (0, inf)
        growth: factor of lambda at each of its steps, in (0, inf)
        every: epochs between two steps of lambda, at least 1
        normalize: whether each row of logits is scaled to length 1 first
        base: the loss that is changed; None: cross entropy
        weight: factor of each class's loss, [K]
        ignore_index: the label of rows that count for nothing
        reduction: none, mean (by the weights of the labels) or sum
        label_smoothing: share of the target that goes to all classes alike, in [0, 1]

    Returns:
        The loss: a number, or with reduction="none" one for each label.

    Example:
        >>> import noiseproof
        >>> logits, target = torch.zeros(2, 4), torch.tensor([2, 0])
        >>> noiseproof.functional.sr(logits, target, reduction="none").shape
        torch.Size([2])
    """

def ldr(
    logits: Tensor,
    target: Tensor,
    *,
    c: float = 0.1,
    lam: float = 10.0,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Label distributionally robust loss (KL): the function of :class:`noiseproof.LDR`.

    Args:
        logits: [N, K], [K] or [N, K, d1, ...]
        target: labels, [N] for logits [N, K], or class probabilities of the logits' shape
        c: margin of the labels other than the given one, in [0, inf)
        lam: temperature over the labels, in (0, inf): 0 is a hinge loss, infinity a symmetric loss
        weight: factor of each class's loss, [K]
        ignore_index: the label of rows that count for nothing
        reduction: none, mean (by the weights of the labels) or sum
        label_smoothing: share of the target that goes to all classes alike, in [0, 1]

    Returns:
        The loss: a number, or with reduction="none" one for each label.

    Example:
        >>> import noiseproof
        >>> logits, target = torch.zeros(2, 4), torch.tensor([2, 0])
        >>> noiseproof.functional.ldr(logits, target, reduction="none").shape
        torch.Size([2])
    """

def nl(
    logits: Tensor,
    target: Tensor,
    *,
    stage: Literal["nl", "selnl", "selpl"] = "nl",
    threshold: float = 0.5,
    generator: torch.Generator | None = None,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Negative learning: the function of :class:`noiseproof.NL`.

    Args:
        logits: [N, K], [K] or [N, K, d1, ...]
        target: labels, [N] for logits [N, K], or class probabilities of the logits' shape
        stage: nl: all rows; selnl: rows with p_y > 1/K; selpl: cross entropy on rows with p_y > threshold
        threshold: p_y from which a row is believed in the stage selpl, in [0, 1)
        generator: where the complementary labels are drawn; None: torch's default generator
        weight: factor of each class's loss, [K]
        ignore_index: the label of rows that count for nothing
        reduction: none, mean (by the weights of the labels) or sum
        label_smoothing: share of the target that goes to all classes alike, in [0, 1]

    Returns:
        The loss: a number, or with reduction="none" one for each label.

    Example:
        >>> import noiseproof
        >>> logits, target = torch.zeros(2, 4), torch.tensor([2, 0])
        >>> noiseproof.functional.nl(logits, target, reduction="none").shape
        torch.Size([2])
    """

def jnpl(
    logits: Tensor,
    target: Tensor,
    *,
    lam: float = 0.01,
    generator: torch.Generator | None = None,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Joint negative and positive learning: the function of :class:`noiseproof.JNPL`.

    Args:
        logits: [N, K], [K] or [N, K, d1, ...]
        target: labels, [N] for logits [N, K], or class probabilities of the logits' shape
        lam: weight of the part that is added, in [0, inf)
        generator: where the complementary labels are drawn; None: torch's default generator
        weight: factor of each class's loss, [K]
        ignore_index: the label of rows that count for nothing
        reduction: none, mean (by the weights of the labels) or sum
        label_smoothing: share of the target that goes to all classes alike, in [0, 1]

    Returns:
        The loss: a number, or with reduction="none" one for each label.

    Example:
        >>> import noiseproof
        >>> logits, target = torch.zeros(2, 4), torch.tensor([2, 0])
        >>> noiseproof.functional.jnpl(logits, target, reduction="none").shape
        torch.Size([2])
    """

def gjs(
    logits: Tensor | list[Tensor] | tuple[Tensor, ...],
    target: Tensor,
    *,
    pi: float = 0.5,
    views: int = 2,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Generalized Jensen-Shannon divergence: the function of :class:`noiseproof.GJS`.

    Args:
        logits: those of each prediction, in a list, or one tensor for equal predictions
        target: labels, [N] for logits [N, K], or class probabilities of the logits' shape
        pi: weight of the label against the prediction, in (0, 1): 0 is cross entropy, 1 half the mean absolute error
        views: number of predictions of each example, at least 1
        weight: factor of each class's loss, [K]
        ignore_index: the label of rows that count for nothing
        reduction: none, mean (by the weights of the labels) or sum
        label_smoothing: share of the target that goes to all classes alike, in [0, 1]

    Returns:
        The loss: a number, or with reduction="none" one for each label.

    Example:
        >>> import noiseproof
        >>> logits, target = torch.zeros(2, 4), torch.tensor([2, 0])
        >>> noiseproof.functional.gjs(logits, target, reduction="none").shape
        torch.Size([2])
    """

def lt(
    features: Tensor,
    target: Tensor,
    means: Tensor,
    root_freedom: Tensor,
    *,
    margin: float = 0.1,
    lam: float = 0.01,
    base: RobustLoss | None = None,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Student loss: the function of :class:`noiseproof.Student`.

    Args:
        features: width of the features, at least 1
        target: labels, [N] for logits [N, K], or class probabilities of the logits' shape
        means: the mean of each class, [K, D]
        root_freedom: the root of each class's degrees of freedom less 0.1, [K]
        margin: how much further away the label's mean counts in training, in [0, inf)
        lam: weight of the part that is added, in [0, inf)
        base: the loss that is changed; None: cross entropy
        weight: factor of each class's loss, [K]
        ignore_index: the label of rows that count for nothing
        reduction: none, mean (by the weights of the labels) or sum
        label_smoothing: share of the target that goes to all classes alike, in [0, 1]

    Returns:
        The loss: a number, or with reduction="none" one for each label.

    Example:
        >>> import noiseproof
        >>> features, target, means, root_freedom = torch.zeros(2, 4), torch.tensor([2, 0]), torch.eye(4), torch.ones(4)
        >>> noiseproof.functional.lt(features, target, means, root_freedom, reduction="none").shape
        torch.Size([2])
    """

def lt_apl(
    features: Tensor,
    target: Tensor,
    means: Tensor,
    root_freedom: Tensor,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    margin: float = 0.1,
    lam: float = 0.01,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Student loss on NCE+RCE: the function of :class:`noiseproof.StudentAPL`.

    Args:
        features: width of the features, at least 1
        target: labels, [N] for logits [N, K], or class probabilities of the logits' shape
        means: the mean of each class, [K, D]
        root_freedom: the root of each class's degrees of freedom less 0.1, [K]
        alpha: weight of the first loss, in [0, inf)
        beta: weight of the second loss, in [0, inf)
        margin: how much further away the label's mean counts in training, in [0, inf)
        lam: weight of the part that is added, in [0, inf)
        weight: factor of each class's loss, [K]
        ignore_index: the label of rows that count for nothing
        reduction: none, mean (by the weights of the labels) or sum
        label_smoothing: share of the target that goes to all classes alike, in [0, 1]

    Returns:
        The loss: a number, or with reduction="none" one for each label.

    Example:
        >>> import noiseproof
        >>> features, target, means, root_freedom = torch.zeros(2, 4), torch.tensor([2, 0]), torch.eye(4), torch.ones(4)
        >>> noiseproof.functional.lt_apl(features, target, means, root_freedom, reduction="none").shape
        torch.Size([2])
    """
