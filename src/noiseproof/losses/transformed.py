"""Losses on changed logits: LogitClip, logit bias, sparse regularisation, LDR."""

import math
from typing import Unpack

import torch
import torch.nn.functional as F  # noqa: N812 - the name every PyTorch reader expects
from torch import Tensor

from noiseproof.checks import check_integer, check_range
from noiseproof.core.row_sums import accumulation_dtype
from noiseproof.core.statistics import RowStatistics, Statistic
from noiseproof.losses.base import Contract, RobustLoss, inner_loss
from noiseproof.losses.catalog import register
from noiseproof.losses.classic import CE, MAE

__all__ = ["LDR", "LogitBias", "LogitClip", "PublishedLogitClip", "SparseRegularization"]


def row_norm(vectors: Tensor) -> Tensor:
    """The Euclidean norm of each row ``[N, 1]``, whose squares would overflow beyond 1e19 in float32."""
    largest = vectors.detach().abs().amax(1, keepdim=True).clamp_min(torch.finfo(vectors.dtype).tiny)
    norm: Tensor = largest * torch.linalg.vector_norm(vectors / largest, dim=1, keepdim=True)
    return norm


class _TransformedLoss(RobustLoss):
    """``base`` on changed logits. The change reads whole rows, so the loss is no function of row statistics."""

    def __init__(self, base: RobustLoss | None, **contract: Unpack[Contract]) -> None:
        super().__init__(**contract)
        self.base: RobustLoss = inner_loss(CE() if base is None else base)

    def constant(self, classes: int) -> float:
        return self.base.constant(classes)

    def change(self, logits: Tensor) -> Tensor:
        """What ``base`` sees of the logits; ``logits [N, K]`` come in float32 at least, those of masked classes as 0."""
        raise NotImplementedError

    def changed(self, logits: Tensor) -> Tensor:
        """The logits that ``base`` sees."""
        z, masked = logits.to(accumulation_dtype(logits.dtype)), logits == -math.inf
        return self.change(z.masked_fill(masked, 0.0)).masked_fill(masked, -math.inf)

    def rows(self, logits: Tensor, target: Tensor) -> Tensor:
        return self.base.rows(self.changed(logits), target)

    def every_label(self, logits: Tensor) -> Tensor:
        return self.base.every_label(self.changed(logits))


@register(
    "logitclip",
    title="LogitClip, as its paper defines it",
    formula="-log(softmax(z * minimum(1, tau / norm(z)))[y])",
    kind="active",
    reads="logits",
    shift_invariant=False,
    reference="Wei et al., ICML 2023",
)
class LogitClip(_TransformedLoss):
    r"""A loss of logits whose Euclidean norm is clipped.

    .. math:: L = L_\text{base}\big(z \cdot \min(1, \tau / \|z\|)\big)

    Bounds any loss: with cross entropy it is at most :math:`\log(1 + (K-1) e^{\sqrt2\tau})`. The norm is not a row statistic
    and changes when a constant is added to the logits.

    Use it around a loss without a bound, to give it one.

    Args:
        tau: Largest norm of a row of logits, in (0, inf).
        base: The loss that is changed; None: cross entropy.
        **contract: The options of :class:`RobustLoss`.

    >>> far = torch.tensor([[30.0, 40.0]])  # norm 50, clipped to 5: logits 3 and 4
    >>> round(LogitClip(tau=5.0)(far, torch.tensor([0])).item(), 4)  # log(1 + e)
    1.3133
    """

    def __init__(self, *, tau: float = 1.0, base: RobustLoss | None = None, **contract: Unpack[Contract]) -> None:
        super().__init__(base, **contract)
        self.tau = check_range("tau", tau, above=0)

    def change(self, logits: Tensor) -> Tensor:
        return logits * (self.tau / row_norm(logits).clamp_min(self.tau))


@register(
    "ce+lc",
    title="LogitClip, as coded for the published numbers",
    aliases=("published-logitclip",),
    formula="-log(softmax(z * delta / norm(z) if norm(z) > 1 / delta else z)[y])",
    kind="active",
    reads="logits",
    shift_invariant=False,
    reference="Wei et al., ICML 2023; the code behind CE+LC in Wang et al., ICCV 2025",
)
class PublishedLogitClip(_TransformedLoss):
    r"""LogitClip as in the code that made the published CE+LC numbers.

    .. math:: L = L_\text{base}(z \delta / \|z\|) \text{ if } \|z\| > 1/\delta, \text{ else } L_\text{base}(z)

    The threshold is 1/delta but the new norm is delta, so for delta > 1 norms between the two are scaled *up*, and the loss
    jumps at the threshold. Only delta = 1 is LogitClip. The published runs use 2.5 on CIFAR-10 and 0.5 on CIFAR-100.

    Use it to repeat the published numbers, and LogitClip otherwise.

    Args:
        delta: Norms above 1/delta become delta, in (0, inf).
        base: The loss that is changed; None: cross entropy.
        **contract: The options of :class:`RobustLoss`.

    >>> near = torch.tensor([[0.6, 0.8]])  # norm 1 is above 1/2 and becomes 2
    >>> round(PublishedLogitClip(delta=2.0)(near, torch.tensor([1])).item(), 4)  # log(1 + exp(-0.4))
    0.513
    """

    def __init__(self, *, delta: float = 2.5, base: RobustLoss | None = None, **contract: Unpack[Contract]) -> None:
        super().__init__(base, **contract)
        self.delta = check_range("delta", delta, above=0)

    def change(self, logits: Tensor) -> Tensor:
        threshold = 1 / self.delta
        norm = row_norm(logits)
        return logits * torch.where(norm > threshold, self.delta / norm.clamp_min(threshold), 1.0)


@register(
    "logit-bias",
    title="Mean absolute error with a logit bias",
    aliases=("mae*",),
    formula="2 * (1 - p[y]) / (1 - p[y] + p[y] * exp(epsilon))",
    kind="passive",
    symmetric="epsilon == 0",
    asymmetric="epsilon <= 0 or w1 >= w2 * exp(2 * epsilon)",
    range=("0", "2"),
    reference="Staats, Thamm and Rosenow, AAAI 2025",
)
class LogitBias(RobustLoss):
    r"""A loss of logits with a constant added to the label's logit.

    .. math:: L = L_\text{base}(z + \epsilon \, e_y), \qquad p_y \text{ becomes }
              \frac{p_y e^\epsilon}{1 - p_y + p_y e^\epsilon}

    With many classes a new network gives every label a probability near 1/K, where a bounded loss has almost no gradient; the
    constant moves it to where it has one. ``base`` is MAE if none is given, and may be any loss of the label's probability
    alone. At :math:`\epsilon = \log(K - 1)` a uniform prediction counts as 1/2, where MAE is steepest: 2.2 for ten classes,
    6.9 for a thousand. (The paper too chooses epsilon by the number of classes; its values are not reproduced here.)

    Use it to train with MAE, or another bounded loss, on many classes.

    Raises:
        ValueError: If ``base`` reads more than the label's probability.

    Args:
        epsilon: What is added to the label's logit.
        base: The loss of the label's probability that is biased; None: mean absolute error.
        **contract: The options of :class:`RobustLoss`.

    >>> round(LogitBias(epsilon=math.log(3))(torch.zeros(1, 4), torch.tensor([2])).item(), 4)  # 2 (1 - 1/2)
    1.0
    """

    needs = (Statistic.NLL, Statistic.P_OTHERS)

    def __init__(self, *, epsilon: float = 1.0, base: RobustLoss | None = None, **contract: Unpack[Contract]) -> None:
        super().__init__(**contract)
        self.epsilon = check_range("epsilon", epsilon)
        self.base = inner_loss(MAE() if base is None else base)
        if self.base.needs is None or any(need.key is not None for need in self.base.needs):
            raise ValueError(f"base must be a loss of the label's probability alone, such as MAE or GCE, got {self.base!r}")

    def from_statistics(self, s: RowStatistics) -> Tensor:
        # log((1 - p) / p) is shifted, and both ends of p follow from it without a difference.
        margin = s.nll + s.log1m_p_target - self.epsilon
        nll, log1m = F.softplus(margin, threshold=80.0), F.logsigmoid(margin)
        return self.base.from_statistics(RowStatistics(nll, log1m, s.classes, {}))


class _PowerSum(RobustLoss):
    """``sum_k p_k^q``, whatever the label."""

    def __init__(self, *, q: float) -> None:
        super().__init__()
        self.q = check_range("q", q, above=0)
        self._sum = Statistic.power_sum(self.q)
        self.needs = (self._sum,)

    def from_statistics(self, s: RowStatistics) -> Tensor:
        return s.own(self._sum) + s.others(self._sum)


@register(
    "sr",
    title="Sparse regularisation",
    aliases=("sparse regularization", "ce+sr"),
    formula="-log(softmax(z / temperature)[y]) + lam * sum(softmax(z / temperature)**q)",
    kind="regularised",
    reads="logits",
    reference="Zhou et al., ICCV 2021",
)
class SparseRegularization(_TransformedLoss):
    r"""A loss of temperature-scaled predictions plus a norm that pushes them to one-hot vectors.

    .. math:: L = L_\text{base}(p^\tau) + \lambda \sum_k (p^\tau_k)^q, \qquad p^\tau = \operatorname{softmax}(z / \tau)

    Call :meth:`set_epoch` at the start of every epoch: lambda is multiplied by ``growth`` every ``every`` epochs. The published
    code for CIFAR also scales each row of logits to length 1 first: ``normalize=True``.

    Use it where the loop can tell it the epoch.

    Args:
        temperature: The logits are divided by it, in (0, inf).
        lam: Weight of the part that is added, in [0, inf).
        q: Exponent, in (0, inf).
        growth: Factor of lambda at each of its steps, in (0, inf).
        every: Epochs between two steps of lambda, at least 1.
        normalize: Whether each row of logits is scaled to length 1 first.
        base: The loss that is changed; None: cross entropy.
        **contract: The options of :class:`RobustLoss`.

    >>> loss = SparseRegularization(lam=1.0, growth=2.0, temperature=1.0, q=1.0)  # q = 1 adds the constant lambda
    >>> loss.set_epoch(2)
    >>> round(loss(torch.zeros(1, 4), torch.tensor([2])).item(), 4)  # log 4 + 4
    5.3863
    """

    def __init__(
        self,
        *,
        temperature: float = 0.5,
        lam: float = 1.2,
        q: float = 0.1,
        growth: float = 1.03,
        every: int = 1,
        normalize: bool = False,
        base: RobustLoss | None = None,
        **contract: Unpack[Contract],
    ) -> None:
        super().__init__(base, **contract)
        self.temperature = check_range("temperature", temperature, above=0)
        self.lam = check_range("lam", lam, at_least=0)
        self.growth = check_range("growth", growth, above=0)
        self.every = check_integer("every", every, at_least=1)
        self.q, self.normalize = q, normalize
        self.penalty = _PowerSum(q=q)
        # A tensor, so that a compiled or captured step sees a new value without being compiled again; of an integer dtype, so
        # that lambda has the digits of the logits, whatever the loss is cast to.
        self.steps: Tensor
        self.register_buffer("steps", torch.tensor(0), persistent=False)

    def set_epoch(self, epoch: int) -> None:
        """Set lambda for an epoch.

        Args:
            epoch: The epoch, counted from 0.
        """
        super().set_epoch(epoch)
        self.steps.fill_(epoch // self.every)

    @property
    def strength(self) -> Tensor:
        """Lambda, as it is in this epoch."""
        return self._strength(torch.float64)

    def _strength(self, dtype: torch.dtype) -> Tensor:
        return self.lam * torch.pow(self.growth, self.steps.to(dtype))

    def change(self, logits: Tensor) -> Tensor:
        return (logits / row_norm(logits).clamp_min(1e-12) if self.normalize else logits) / self.temperature

    def rows(self, logits: Tensor, target: Tensor) -> Tensor:
        changed = self.changed(logits)
        return self.base.rows(changed, target) + self._strength(changed.dtype) * self.penalty.rows(changed, target)

    def every_label(self, logits: Tensor) -> Tensor:
        changed = self.changed(logits)
        return self.base.every_label(changed) + self._strength(changed.dtype) * self.penalty.every_label(changed)


@register(
    "ldr",
    title="Label distributionally robust loss (KL)",
    aliases=("ldr-kl",),
    formula="lam * log(mean(exp((c * (1 - e) + s - s[y]) / lam)))",
    kind="passive",
    reads="logits",
    shift_invariant=False,
    reference="Zhu, Ying and Yang, ICML 2023",
)
class LDR(RobustLoss):
    r"""Label distributionally robust loss with a KL regulariser.

    .. math:: L = \lambda \log \frac1K \sum_k \exp\frac{c\,[k \ne y] + s_k - s_y}{\lambda}, \qquad
              s = \frac{\operatorname{softplus}(z)}{\operatorname{mean} \operatorname{softplus}(z)}

    lambda -> 0 is a multi-class hinge loss, lambda -> infinity a symmetric one. The scores are normalised over the row, so it
    is no function of softmax statistics, and adding a constant to the logits changes it. (In the formula s is these scores.)

    Use it where a margin between classes is wanted.

    Args:
        c: Margin of the labels other than the given one, in [0, inf).
        lam: Temperature over the labels, in (0, inf): 0 is a hinge loss, infinity a symmetric loss.
        **contract: The options of :class:`RobustLoss`.

    >>> round(LDR(c=1.0, lam=1.0)(torch.zeros(1, 2), torch.tensor([0])).item(), 4)  # log((1 + e) / 2)
    0.6201
    """

    def __init__(self, *, c: float = 0.1, lam: float = 10.0, **contract: Unpack[Contract]) -> None:
        super().__init__(**contract)
        self.c = check_range("c", c, at_least=0)
        self.lam = check_range("lam", lam, above=0)

    def rows(self, logits: Tensor, target: Tensor) -> Tensor:
        return self.every_label(logits).gather(1, target[:, None])[:, 0]

    def every_label(self, logits: Tensor) -> Tensor:
        z = logits.to(accumulation_dtype(logits.dtype))
        # log softplus(z) -> z for very negative z, where softplus itself underflows and the mean would be 0.
        low = z < (-35 if z.dtype == torch.float64 else -15)
        log_scores = torch.where(low, z, torch.log(F.softplus(z.masked_fill(low, 0.0))))
        s = z.shape[1] / self.lam * torch.softmax(log_scores, 1)
        # log sum_{k != y} exp(s_k) for every y: from the whole sum, except for the largest, which leaves too little of it.
        masked = z == -math.inf
        left = s.masked_fill(masked, -math.inf)
        is_top = s.argmax(1)[:, None] == torch.arange(s.shape[1], device=s.device)
        without_top = torch.logsumexp(left.masked_fill(is_top, -math.inf), 1, keepdim=True)
        whole = torch.logsumexp(left, 1, keepdim=True)
        own = torch.exp((s - whole).masked_fill(is_top, -1.0)).masked_fill(masked, 0.0)
        others = torch.where(is_top, without_top, whole + torch.log1p(-own))
        loss = self.lam * (-F.logsigmoid(s - others - self.c / self.lam) - math.log(s.shape[1]))
        return torch.where(masked, loss.detach(), loss)
