"""Row statistics: what a loss reads instead of logits.

Every loss of the family is a function of a few numbers per row: ``nll = -log p_y``, ``miss = 1 - p_y`` and sums over the
classes. :func:`row_statistics` computes the ones a loss declares it needs in one pass over the logits
(:mod:`noiseproof.core` is that pass), and :class:`RowStatistics` names them. A loss takes them from a :class:`Source`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, Self

import torch
import torch.nn.functional as F  # noqa: N812 - the name every PyTorch reader expects
from torch import Tensor

from noiseproof.core import Primitive, focal_term, key_of, parse, plain_primitives, rows_of_primitives

FEW = 64
"""Up to so many classes one term may be most of a sum."""

__all__ = ["Logits", "RowStatistics", "Source", "Statistic", "every_label_statistics", "row_statistics"]
__all__ += ["request_of", "statistics_of"]


@dataclass(frozen=True)
class Statistic:
    """A number per row that a loss declares it needs, and by which it reads it.

    ``Statistic.NLL`` and ``Statistic.MISS`` come with every pass. The others each add one sum over the classes, and losses
    that are added together share what they have in common.
    """

    name: str
    key: str | None = None
    """The primitive behind it; None for what comes with every pass."""

    NLL: ClassVar[Self]
    MISS: ClassVar[Self]
    NLL_SUM: ClassVar[Self]
    SQ_SUM: ClassVar[Self]
    LEAD: ClassVar[Self]

    def __repr__(self) -> str:
        return f"Statistic({self.key or self.name})"  # what a loss is known by holds several, and is made with it

    def __hash__(self) -> int:
        return hash(self.key or self.name)  # a call of a loss looks its needs up, and this is a quarter of the default's time

    @staticmethod
    def power_sum(q: float) -> "Statistic":
        """``sum_k p_k^q``; ``SQ_SUM`` is ``power_sum(2)``."""
        return Statistic(f"power_sum({q:g})", key_of(Primitive("power", float(q))))

    @staticmethod
    def focal_sum(gamma: float, *, detach: bool = False) -> "Statistic":
        """``sum_k f_k`` with the focal term ``f = (1-p)^gamma (-log p)``.

        With ``detach`` the weight ``(1-p)^gamma`` is a constant to the gradient, as in the code that made the published
        numbers of the focal losses.
        """
        return Statistic(f"focal_sum({gamma:g})", key_of(Primitive("focal", float(gamma), 0.0, detach)))

    @staticmethod
    def room_sum(gamma: float, minimum: float, *, detach: bool = False) -> "Statistic":
        """``sum_k C - f_k``: how far the focal terms stay below C, their value at the probability ``minimum``.

        Probabilities are clipped below at ``minimum``, so no term is negative. ``gamma=0`` is the sum for clipped ``-log p``.
        """
        return Statistic(f"room_sum({gamma:g}, {minimum:g})", key_of(Primitive("room", float(gamma), minimum, detach)))


Statistic.NLL = Statistic("nll")
Statistic.MISS = Statistic("miss")
Statistic.NLL_SUM = Statistic("nll_sum", key_of(Primitive("nll")))
Statistic.SQ_SUM = Statistic.power_sum(2.0)
Statistic.LEAD = Statistic("lead", key_of(Primitive("lead")))


@dataclass(frozen=True)
class RowStatistics:
    """The statistics of N rows for one label each (vectors ``[N]``), or for every label at once (matrices ``[N, K]``).

    A loss is elementwise in these attributes, so one formula serves both shapes. Sums are offered over the classes other
    than the label (``nll_others``) and over all classes (``nll_sum``): a formula that would subtract the label's own term
    from the second should start from the first.
    """

    nll: Tensor
    """``-log p_y``"""
    log_miss: Tensor
    """``log(1 - p_y)``, for powers of ``miss`` with an infinite slope at 0; not below -80 (float64: -701)"""
    classes: int
    sums: dict[str, Tensor]
    """The requested sums over the classes other than the label, by the key of their statistic"""

    @property
    def miss(self) -> Tensor:
        """``1 - p_y``, small values exact."""
        return torch.exp(self.log_miss)

    @property
    def hit(self) -> Tensor:
        """``p_y``, small values exact."""
        return torch.exp(-self.nll)

    @property
    def lead(self) -> Tensor:
        """The label's logit minus the largest other one; a constant to the gradient, for comparisons."""
        return self.others(Statistic.LEAD)

    @property
    def nll_others(self) -> Tensor:
        """``sum_{k != y} -log p_k``"""
        return self.others(Statistic.NLL_SUM)

    @property
    def nll_sum(self) -> Tensor:
        """``sum_k -log p_k``"""
        return self.nll + self.nll_others

    @property
    def sq_others(self) -> Tensor:
        """``sum_{k != y} p_k^2``"""
        return self.others(Statistic.SQ_SUM)

    @property
    def sq_sum(self) -> Tensor:
        """``sum_k p_k^2``"""
        return self.own(Statistic.SQ_SUM) + self.sq_others

    def own(self, statistic: Statistic) -> Tensor:
        """The label's own term of a sum: ``p_y^q``, ``f_y``, ``C - f_y``."""
        if statistic.key is None:
            raise ValueError(f"{statistic.name} is no sum over the classes")
        return own_term(statistic.key, self.nll, self.log_miss)

    def others(self, statistic: Statistic) -> Tensor:
        """The terms of a sum that belong to the classes other than the label."""
        if statistic.key not in self.sums:
            raise KeyError(f"{statistic.name} is read but not declared: add it to the loss's `needs`")
        return self.sums[statistic.key]


def row_statistics(logits: Tensor, target: Tensor, needs: tuple[Statistic, ...]) -> RowStatistics:
    """Statistics of each row of ``logits [N, K]`` for its label in ``target [N]``, in one pass over the logits.

    >>> s = row_statistics(torch.zeros(1, 4), torch.tensor([2]), (Statistic.MISS, Statistic.SQ_SUM))
    >>> round(s.miss.item(), 4), round(s.sq_others.item(), 4)  # p = 1/4 everywhere
    (0.75, 0.1875)
    """
    keys, request = request_of(needs)
    return statistics_of(rows_of_primitives(logits, target, request), keys, logits.shape[1])


def statistics_of(primitives: Sequence[Tensor], keys: list[str], classes: int) -> RowStatistics:
    """The statistics of which the operation gave these primitives, each ``[N]``."""
    nll, log_miss, *sums = primitives
    return RowStatistics(nll, log_miss, classes, dict(zip(keys, sums, strict=True)))


_requests: dict[tuple[Statistic, ...], tuple[list[str], str]] = {}


def request_of(needs: tuple[Statistic, ...]) -> tuple[list[str], str]:
    """The keys of the primitives behind these statistics, each once and in order, and the request for them."""
    known = None if torch.compiler.is_compiling() else _requests.get(needs)
    if known is None:
        keys = sorted({s.key for s in needs if s.key is not None})
        known = keys, ";".join(keys)
        if not torch.compiler.is_compiling():
            _requests[needs] = known
    return known


def every_label_statistics(logits: Tensor, needs: tuple[Statistic, ...]) -> RowStatistics:
    """Statistics of each row of ``logits [N, K]`` for each of its K labels; every attribute is ``[N, K]``.

    Only for the class with the largest logit can ``miss`` be small, so its statistics come from the operation. Those of
    another label follow from the terms of the other classes: of a few by adding them up, of many by taking the label's own
    term, a small part of it, out of the whole sum.
    """
    top = logits.argmax(1)
    s = row_statistics(logits, top, needs)
    z = logits.to(s.nll.dtype)
    is_top = top[:, None] == torch.arange(s.classes, device=top.device)
    masked = z == -torch.inf  # their statistics are constants: an infinite slope times nothing would be NaN
    behind = torch.where(is_top, 0.0, z.gather(1, top[:, None]) - z)  # a zero without a gradient that would have to cancel
    nll = torch.where(masked, torch.inf, s.nll[:, None] + behind)
    log_miss = torch.where(is_top, s.log_miss[:, None], torch.log1p(-torch.exp(-nll.masked_fill(is_top, 1.0))))
    sums = {}
    for key, top_others in s.sums.items():
        if key == Statistic.LEAD.key:
            sums[key] = torch.where(is_top, top_others[:, None], z - z.gather(1, top[:, None])).detach()
            continue
        own = own_term(key, nll, log_miss).masked_fill(masked, 0.0)
        if s.classes <= FEW:
            others = sum_of_others(own)
        else:
            others = ((top_others + own_term(key, s.nll, s.log_miss))[:, None] - own).clamp_min(0.0)
        sums[key] = torch.where(is_top, top_others[:, None], others)
    return RowStatistics(nll, log_miss, s.classes, sums)


def sum_of_others(terms: Tensor) -> Tensor:
    """For each column of ``terms [N, K]`` the sum of the other columns, without a difference.

    >>> sum_of_others(torch.tensor([[1.0, 1e9, 2.0]])).tolist()
    [[1000000000.0, 3.0, 1000000000.0]]
    """
    before = F.pad(terms[:, :-1].cumsum(1), (1, 0))
    after = F.pad(terms[:, 1:].flip(1).cumsum(1), (1, 0)).flip(1)
    return before + after


def own_term(key: str, nll: Tensor, log_miss: Tensor) -> Tensor:
    """The term of one class in a sum, from its -log p and log(1-p)."""
    primitive = parse(key)
    if primitive.kind == "nll":
        return nll
    if primitive.kind == "power":
        return torch.exp(-primitive.exponent * nll)
    return focal_term(primitive, nll, log_miss)


class Source(Protocol):
    """What a loss is computed from: N rows that can give their statistics."""

    classes: int
    dtype: torch.dtype
    """Of the result, where autocast does not ask for another"""

    @property
    def logits(self) -> Tensor:
        """For a loss that is no function of statistics; a TypeError from a source that never forms them."""

    def statistics(self, target: Tensor, needs: tuple[Statistic, ...]) -> RowStatistics:
        """For the labels in ``target [N]``."""

    def every_label(self, needs: tuple[Statistic, ...]) -> RowStatistics:
        """For each of the K labels."""


class Logits:
    """Logits ``[N, K]`` as a source."""

    def __init__(self, logits: Tensor, classes: int | None = None, plain: bool = False) -> None:
        """``classes`` where it is not the number of columns: of features, or of several predictions side by side.

        ``plain``: the gradient is left to autograd, for what takes no function with a gradient of its own.
        """
        self.logits = logits
        self.classes = logits.shape[1] if classes is None else classes
        self.dtype, self.plain = logits.dtype, plain

    def statistics(self, target: Tensor, needs: tuple[Statistic, ...]) -> RowStatistics:
        if not self.plain:
            return row_statistics(self.logits, target, needs)
        keys, request = request_of(needs)
        return statistics_of(plain_primitives(self.logits, target, request).unbind(), keys, self.logits.shape[1])

    def every_label(self, needs: tuple[Statistic, ...]) -> RowStatistics:
        return every_label_statistics(self.logits, needs)
