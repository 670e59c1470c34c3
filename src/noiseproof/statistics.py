"""Row statistics: what a loss reads instead of logits.

Every loss of the family is a function of a few numbers per row: ``nll = -log p_y``, ``miss = 1 - p_y`` and sums over the
classes. :func:`row_statistics` computes the ones a loss declares it needs in one pass over the logits
(:mod:`noiseproof.primitives` is that pass), and :class:`RowStatistics` names them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F  # noqa: N812 - the name every PyTorch reader expects
from torch import Tensor

from noiseproof.primitives import Primitive, focal_term, primitives_of

__all__ = ["RowStatistics", "Statistic", "every_label_statistics", "row_statistics"]


@dataclass(frozen=True)
class Statistic:
    """A number per row that a loss declares it needs.

    ``Statistic.NLL`` and ``Statistic.MISS`` come with every pass. The others each add one sum over the classes, and losses
    that are added together share what they have in common.
    """

    name: str
    primitive: Primitive | None = None

    NLL: ClassVar[Statistic]
    MISS: ClassVar[Statistic]
    NLL_SUM: ClassVar[Statistic]
    SQ_SUM: ClassVar[Statistic]
    LEAD: ClassVar[Statistic]

    @staticmethod
    def power_sum(q: float) -> Statistic:
        """``sum_k p_k^q``; ``SQ_SUM`` is ``power_sum(2)``."""
        return Statistic(f"power_sum({q:g})", Primitive("power", exponent=float(q)))

    @staticmethod
    def focal_sum(gamma: float, *, detach: bool = False) -> Statistic:
        """``sum_k f_k`` with the focal term ``f = (1-p)^gamma (-log p)``.

        With ``detach`` the weight ``(1-p)^gamma`` is a constant to the gradient, as in the code that made the published
        numbers of the focal losses.
        """
        return Statistic(f"focal_sum({gamma:g})", Primitive("focal", float(gamma), 0.0, detach))

    @staticmethod
    def room_sum(gamma: float, minimum: float, *, detach: bool = False) -> Statistic:
        """``sum_k C - f_k``: how far the focal terms stay below C, their value at the probability ``minimum``.

        Probabilities are clipped below at ``minimum``, so no term is negative. ``gamma=0`` is the sum for clipped ``-log p``.
        """
        return Statistic(f"room_sum({gamma:g}, {minimum:g})", Primitive("room", float(gamma), minimum, detach))


Statistic.NLL = Statistic("nll")
Statistic.MISS = Statistic("miss")
Statistic.NLL_SUM = Statistic("nll_sum", Primitive("spread"))
Statistic.SQ_SUM = Statistic.power_sum(2.0)
Statistic.LEAD = Statistic("lead", Primitive("lead"))


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
    others: dict[Primitive, Tensor]
    """The requested sums, over the classes other than the label"""

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
        return self._read(Statistic.LEAD)

    @property
    def nll_others(self) -> Tensor:
        """``sum_{k != y} -log p_k``"""
        return self._read(Statistic.NLL_SUM)

    @property
    def nll_sum(self) -> Tensor:
        """``sum_k -log p_k``"""
        return self.nll + self.nll_others

    @property
    def sq_others(self) -> Tensor:
        """``sum_{k != y} p_k^2``"""
        return self._read(Statistic.SQ_SUM)

    @property
    def sq_sum(self) -> Tensor:
        """``sum_k p_k^2``"""
        return self.power_sum(2.0)

    def power_others(self, q: float) -> Tensor:
        """``sum_{k != y} p_k^q``"""
        return self._read(Statistic.power_sum(q))

    def power_sum(self, q: float) -> Tensor:
        """``sum_k p_k^q``"""
        return torch.exp(-q * self.nll) + self.power_others(q)

    def focal(self, gamma: float, *, detach: bool = False) -> Tensor:
        """``f_y = (1-p_y)^gamma (-log p_y)``"""
        return focal_term(Primitive("focal", gamma, 0.0, detach), self.nll, self.log_miss)

    def focal_others(self, gamma: float, *, detach: bool = False) -> Tensor:
        """``sum_{k != y} f_k``"""
        return self._read(Statistic.focal_sum(gamma, detach=detach))

    def room(self, gamma: float, minimum: float, *, detach: bool = False) -> Tensor:
        """``C - f_y``, as in :meth:`Statistic.room_sum`."""
        return focal_term(Primitive("room", gamma, minimum, detach), self.nll, self.log_miss)

    def room_others(self, gamma: float, minimum: float, *, detach: bool = False) -> Tensor:
        """``sum_{k != y} C - f_k``, as in :meth:`Statistic.room_sum`."""
        return self._read(Statistic.room_sum(gamma, minimum, detach=detach))

    def _read(self, statistic: Statistic) -> Tensor:
        if statistic.primitive not in self.others:
            raise KeyError(f"{statistic.name} is read but not declared: add it to the loss's `needs`")
        return self.others[statistic.primitive]

    @staticmethod
    def from_primitives(values: Tensor, asked: Sequence[Primitive], classes: int) -> RowStatistics:
        """From rows of primitives, margin first, then one for each of ``asked``; any backend's will do."""
        margin, *rest = values.unbind(0)
        # logsigmoid on both sides: each has the other's value as its slope, so neither 1 - p_y nor p_y is ever subtracted.
        nll, log_miss = -F.logsigmoid(-margin), F.logsigmoid(margin)
        others = {}
        for primitive, value in zip(asked, rest, strict=True):
            if primitive.kind == "spread":
                value = value - (classes - 1) * log_miss
            others[primitive] = value
        return RowStatistics(nll, log_miss, classes, others)


def row_statistics(logits: Tensor, target: Tensor, needs: frozenset[Statistic]) -> RowStatistics:
    """Statistics of each row of ``logits [N, K]`` for its label in ``target [N]``, in one pass over the logits.

    >>> s = row_statistics(torch.zeros(1, 4), torch.tensor([2]), frozenset({Statistic.MISS, Statistic.SQ_SUM}))
    >>> round(s.miss.item(), 4), round(s.sq_others.item(), 4)  # p = 1/4 everywhere
    (0.75, 0.1875)
    """
    asked = sorted({s.primitive for s in needs if s.primitive is not None})
    if logits.shape[1] == 2:
        return _two_class_statistics(primitives_of(logits, target, ())[0], asked)
    return RowStatistics.from_primitives(primitives_of(logits, target, asked), asked, logits.shape[1])


def _two_class_statistics(margin: Tensor, asked: Sequence[Primitive]) -> RowStatistics:
    """With two classes a sum over the others is the term of the other one, whose -log p is our -log(1-p) and the reverse."""
    nll, log_miss = -F.logsigmoid(-margin), F.logsigmoid(margin)
    others = {p: -margin.detach() if p.kind == "lead" else _own_term(p, -log_miss, -nll) for p in asked}
    return RowStatistics(nll, log_miss, 2, others)


def every_label_statistics(logits: Tensor, needs: frozenset[Statistic]) -> RowStatistics:
    """Statistics of each row of ``logits [N, K]`` for each of its K labels; every attribute is ``[N, K]``.

    Only for the class with the largest logit can ``miss`` be small, so its statistics come from the operation. Those of
    another label follow by moving its own term out of the sum and the largest class's term in.
    """
    top = logits.argmax(1)
    s = row_statistics(logits, top, needs)
    z = logits.to(s.nll.dtype)
    is_top = top[:, None] == torch.arange(s.classes, device=top.device)
    nll = s.nll[:, None] + (z.gather(1, top[:, None]) - z)
    log_miss = torch.where(is_top, s.log_miss[:, None], torch.log1p(-torch.exp(-nll.masked_fill(is_top, 1.0))))
    others = {}
    for primitive, top_others in s.others.items():
        if primitive.kind == "lead":
            others[primitive] = torch.where(is_top, top_others[:, None], z - z.gather(1, top[:, None])).detach()
            continue
        own, top_own = _own_term(primitive, nll, log_miss), _own_term(primitive, s.nll, s.log_miss)
        moved = ((top_others + top_own)[:, None] - own).clamp_min(0.0)
        others[primitive] = torch.where(is_top, top_others[:, None], moved)
    return RowStatistics(nll, log_miss, s.classes, others)


def _own_term(primitive: Primitive, nll: Tensor, log_miss: Tensor) -> Tensor:
    """What the label itself would add to the sum over the other classes."""
    if primitive.kind == "spread":
        return nll
    if primitive.kind == "power":
        return torch.exp(-primitive.exponent * nll)
    return focal_term(primitive, nll, log_miss)
