"""Row statistics: what a loss reads instead of logits.

Every loss of the family is a function of a few numbers per row: ``nll = -log p_y``, ``1 - p_y`` and sums over the classes.
:func:`row_statistics` computes the ones a loss declares it needs in one pass over the logits (:mod:`noiseproof.core` derives
it), and :class:`RowStatistics` names them. A loss takes them from :class:`Logits`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import torch
import torch.nn.functional as F  # noqa: N812 - the name every PyTorch reader expects
from torch import Tensor

from noiseproof.core.backends import backend_for
from noiseproof.core.operation import statistics_of_rows
from noiseproof.core.row_sums import RowSum, accumulation_dtype, decode, focal_term, key_of, parse, plain_statistics

MAX_CLASSES_ADDED = 64
"""Up to so many classes one term may be most of a sum."""


@dataclass(frozen=True)
class Statistic:
    """A number per row that a loss declares in ``needs``.

    ``Statistic.NLL`` (-log p_y) and ``Statistic.P_OTHERS`` (1 - p_y) come with every pass. ``Statistic.NLL_SUM``,
    ``Statistic.SQ_SUM``, ``Statistic.MARGIN`` and the sums with a parameter each add one sum over the classes. Losses that are
    added together share what they have in common.

    Attributes:
        name: The name for messages.
        key: The row sum that is computed for it; None for what comes with every pass.

    Example:
        >>> Statistic.power_sum(2.0) == Statistic.SQ_SUM
        True
    """

    name: str
    key: str | None = None

    NLL: ClassVar[Self]
    P_OTHERS: ClassVar[Self]
    NLL_SUM: ClassVar[Self]
    SQ_SUM: ClassVar[Self]
    MARGIN: ClassVar[Self]

    def __repr__(self) -> str:
        return f"Statistic({self.key or self.name})"  # what a loss is known by holds several, and is made with it

    def __hash__(self) -> int:
        return hash(self.key or self.name)  # a call of a loss looks its needs up, and this is a quarter of the default's time

    @staticmethod
    def power_sum(q: float) -> "Statistic":
        """Return the statistic ``sum_k p_k^q``; ``SQ_SUM`` is ``power_sum(2)``.

        Args:
            q: The exponent.

        Returns:
            The statistic, to declare in ``needs`` and to read with :meth:`RowStatistics.own` and :meth:`RowStatistics.others`.
        """
        return Statistic(f"power_sum({q:g})", key_of(RowSum("power", float(q))))

    @staticmethod
    def focal_sum(gamma: float, *, detach: bool = False) -> "Statistic":
        """Return the statistic ``sum_k f_k`` with the focal term ``f = (1-p)^gamma (-log p)``.

        Args:
            gamma: The exponent of the focal weight.
            detach: Whether the weight ``(1-p)^gamma`` is a constant to the gradient, as in the code that made the published
                numbers of the focal losses.

        Returns:
            The statistic.
        """
        return Statistic(f"focal_sum({gamma:g})", key_of(RowSum("focal", float(gamma), 0.0, detach)))

    @staticmethod
    def clipped_focal_sum(gamma: float, minimum: float, *, detach: bool = False) -> "Statistic":
        """Return the statistic ``sum_k C - f_k``: how far focal terms stay below C, their value at the probability ``minimum``.

        Probabilities are clipped below at ``minimum``, so no term is negative.

        Args:
            gamma: The exponent of the focal weight; 0 is the sum for clipped ``-log p``.
            minimum: The smallest probability.
            detach: Whether the focal weight is a constant to the gradient.

        Returns:
            The statistic.
        """
        row_sum = RowSum("clipped_focal", float(gamma), minimum, detach)
        return Statistic(f"clipped_focal_sum({gamma:g}, {minimum:g})", key_of(row_sum))


Statistic.NLL = Statistic("nll")
Statistic.P_OTHERS = Statistic("p_others")
Statistic.NLL_SUM = Statistic("nll_sum", key_of(RowSum("nll")))
Statistic.SQ_SUM = Statistic.power_sum(2.0)
Statistic.MARGIN = Statistic("margin", key_of(RowSum("margin")))


@dataclass(frozen=True)
class RowStatistics:
    """The statistics of N rows for one label each (vectors ``[N]``), or for every label together (matrices ``[N, K]``).

    A loss is elementwise in these attributes, so one formula serves both shapes. Sums are offered over the classes other
    than the label (``nll_others``) and over all classes (``nll_sum``): a formula that would subtract the label's own term
    from the second should start from the first.

    Attributes:
        nll: ``-log p_y``.
        log1m_p_target: ``log(1 - p_y)``, for powers of ``1 - p_y`` with an infinite slope at 0; at least -80 (float64: -701).
        classes: The number of classes K.
        sums: The needed sums over the classes other than the label, by the key of their statistic.

    Example:
        >>> s = row_statistics(torch.zeros(1, 4), torch.tensor([2]), (Statistic.NLL_SUM,))
        >>> round(s.p_target.item(), 4), round(s.p_others.item(), 4), round(s.nll_sum.item() / s.nll.item(), 4)
        (0.25, 0.75, 4.0)
    """

    nll: Tensor
    log1m_p_target: Tensor
    classes: int
    sums: dict[str, Tensor]

    @property
    def p_others(self) -> Tensor:
        """``1 - p_y``, small values exact."""
        return torch.exp(self.log1m_p_target)

    @property
    def p_target(self) -> Tensor:
        """``p_y``, small values exact."""
        return torch.exp(-self.nll)

    @property
    def margin(self) -> Tensor:
        """The label's logit minus the largest other one; a constant to the gradient, for comparisons."""
        return self.others(Statistic.MARGIN)

    @property
    def nll_others(self) -> Tensor:
        """``sum_{k != y} -log p_k``."""
        return self.others(Statistic.NLL_SUM)

    @property
    def nll_sum(self) -> Tensor:
        """``sum_k -log p_k``."""
        return self.nll + self.nll_others

    @property
    def sq_others(self) -> Tensor:
        """``sum_{k != y} p_k^2``."""
        return self.others(Statistic.SQ_SUM)

    @property
    def sq_sum(self) -> Tensor:
        """``sum_k p_k^2``."""
        return self.own(Statistic.SQ_SUM) + self.sq_others

    def own(self, statistic: Statistic) -> Tensor:
        """Return the label's own term of a sum: ``p_y^q``, ``f_y``, ``C - f_y``.

        Args:
            statistic: A sum over the classes.

        Returns:
            The term of each row.

        Raises:
            ValueError: If the statistic is no sum.
        """
        if statistic.key is None:
            raise ValueError(f"{statistic.name} is no sum over the classes")
        return own_term(statistic.key, self.nll, self.log1m_p_target)

    def others(self, statistic: Statistic) -> Tensor:
        """Return a sum over the classes other than the label.

        Args:
            statistic: A sum over the classes that the loss declares in ``needs``.

        Returns:
            The sum of each row.

        Raises:
            KeyError: If the loss does not declare it.
        """
        if statistic.key not in self.sums:
            raise KeyError(f"{statistic.name} is read but not declared: add it to the loss's `needs`")
        return self.sums[statistic.key]


def row_statistics(logits: Tensor, target: Tensor, needs: tuple[Statistic, ...]) -> RowStatistics:
    """Compute the statistics of each row for its label, in one pass over the logits.

    Args:
        logits: ``[N, K]``.
        target: The labels, ``[N]``.
        needs: The statistics to compute.

    Returns:
        The statistics, each ``[N]``.

    Example:
        >>> s = row_statistics(torch.zeros(1, 4), torch.tensor([2]), (Statistic.P_OTHERS, Statistic.SQ_SUM))
        >>> round(s.p_others.item(), 4), round(s.sq_others.item(), 4)  # p = 1/4 everywhere
        (0.75, 0.1875)
    """
    keys, needs_key = needs_key_of(needs)
    return statistics_of(statistics_of_rows(logits, target, needs_key), keys, logits.shape[1])


def statistics_of(statistics: Sequence[Tensor], keys: list[str], classes: int) -> RowStatistics:
    """The statistics of which the operation gave these statistics, each ``[N]``."""
    nll, log1m, *sums = statistics
    return RowStatistics(nll, log1m, classes, dict(zip(keys, sums, strict=True)))


_needs_keys: dict[tuple[Statistic, ...], tuple[list[str], str]] = {}


def needs_key_of(needs: tuple[Statistic, ...]) -> tuple[list[str], str]:
    """The keys of the row sums behind these statistics, each once and in order, and their text."""
    known = None if torch.compiler.is_compiling() else _needs_keys.get(needs)
    if known is None:
        keys = sorted({s.key for s in needs if s.key is not None}, key=_order)
        known = keys, ";".join(keys)
        if not torch.compiler.is_compiling():
            _needs_keys[needs] = known
    return known


def _order(key: str) -> tuple[bool, str]:
    """Clipped sums come last, and the others by their names: gradients are added up in this order."""
    return key.startswith("clipped"), key


def every_label_statistics(logits: Tensor, needs: tuple[Statistic, ...]) -> RowStatistics:
    """Compute the statistics of each row for each of its K labels.

    Only for the class with the largest logit can ``1 - p_y`` be small, so its statistics come from the operation. Those of
    another label follow from the terms of the other classes: of a few by adding them up, of many by taking the label's own
    term, a small part of it, out of the whole sum.

    Args:
        logits: ``[N, K]``.
        needs: The statistics to compute.

    Returns:
        The statistics, each ``[N, K]``.

    Example:
        >>> s = every_label_statistics(torch.tensor([[0.0, 0.0, -torch.inf]]), (Statistic.P_OTHERS,))
        >>> [round(p, 4) for p in s.p_others[0].tolist()]
        [0.5, 0.5, 1.0]
    """
    top = logits.argmax(1)
    z = logits.to(accumulation_dtype(logits.dtype))  # first, so that its gradient is added up before it is rounded
    s = row_statistics(z, top, needs)
    is_top = top[:, None] == torch.arange(s.classes, device=top.device)
    masked = z == -torch.inf  # their statistics are constants: an infinite slope times nothing would be NaN
    behind = torch.where(is_top, 0.0, z.gather(1, top[:, None]) - z)  # a zero without a gradient that would have to cancel
    nll = torch.where(masked, torch.inf, s.nll[:, None] + behind)
    log1m = torch.where(is_top, s.log1m_p_target[:, None], torch.log1p(-torch.exp(-nll.masked_fill(is_top, 1.0))))
    sums = {}
    for key, top_others in s.sums.items():
        if key == Statistic.MARGIN.key:
            sums[key] = torch.where(is_top, top_others[:, None], z - z.gather(1, top[:, None])).detach()
            continue
        own = own_term(key, nll, log1m).masked_fill(masked, 0.0)
        if s.classes <= MAX_CLASSES_ADDED:
            others = sum_of_others(own)
        else:
            others = ((top_others + own_term(key, s.nll, s.log1m_p_target))[:, None] - own).clamp_min(0.0)
        sums[key] = torch.where(is_top, top_others[:, None], others)
    return RowStatistics(nll, log1m, s.classes, sums)


def sum_of_others(terms: Tensor) -> Tensor:
    """For each column of ``terms [N, K]`` the sum of the other columns, without a difference.

    >>> sum_of_others(torch.tensor([[1.0, 1e9, 2.0]])).tolist()
    [[1000000000.0, 3.0, 1000000000.0]]
    """
    before = F.pad(terms[:, :-1].cumsum(1), (1, 0))
    after = F.pad(terms[:, 1:].flip(1).cumsum(1), (1, 0)).flip(1)
    return before + after


def own_term(key: str, nll: Tensor, log1m: Tensor) -> Tensor:
    """The term of one class in a sum, from its -log p and log(1-p)."""
    row_sum = parse(key)
    if row_sum.kind == "nll":
        return nll
    if row_sum.kind == "power":
        return torch.exp(-row_sum.exponent * nll)
    return focal_term(row_sum, nll, log1m)


class Logits:
    """What a loss is computed from: N rows of logits that give their statistics. A subclass may have them from elsewhere.

    Args:
        logits: ``[N, K]``, or what a loss reads in their place.
        classes: The number of classes, if it is not the number of columns: for features, or for several predictions.
        plain: Whether the gradient is left to autograd, for what accepts no function with a gradient of its own.

    Example:
        >>> Logits(torch.zeros(1, 4)).statistics(torch.tensor([2]), (Statistic.NLL,)).nll
        tensor([1.3863])
    """

    def __init__(self, logits: Tensor, classes: int | None = None, plain: bool = False) -> None:
        self.logits = logits
        self.classes = logits.shape[1] if classes is None else classes
        self.dtype, self.plain = logits.dtype, plain

    def statistics(self, target: Tensor, needs: tuple[Statistic, ...]) -> RowStatistics:
        """Return the statistics for one label a row.

        Args:
            target: The labels, ``[N]``.
            needs: The statistics to compute.

        Returns:
            The statistics, each ``[N]``.
        """
        if not self.plain:
            return row_statistics(self.logits, target, needs)
        keys, needs_key = needs_key_of(needs)
        return statistics_of(plain_statistics(self.logits, target, needs_key).unbind(), keys, self.logits.shape[1])

    def every_label(self, needs: tuple[Statistic, ...]) -> RowStatistics:
        """Return the statistics for each of the K labels.

        Args:
            needs: The statistics to compute.

        Returns:
            The statistics, each ``[N, K]``.
        """
        return every_label_statistics(self.logits, needs)


class StatisticsLeaf(Logits):
    """Logits whose loss is differentiated down to the statistics, the leaves; the backend's backward pass does the rest."""

    def statistics(self, target: Tensor, needs: tuple[Statistic, ...]) -> RowStatistics:
        """Return the statistics for the labels in ``target``, the leaves of a graph of their own.

        Args:
            target: The labels, ``[N]``.
            needs: The statistics to compute.

        Returns:
            The statistics, each ``[N]``.
        """
        keys, needs_key = needs_key_of(needs)
        row_sums = decode(needs_key)
        with torch.no_grad():
            passed = backend_for(self.logits).forward(self.logits, target, row_sums, accumulation_dtype(self.logits.dtype))
        statistics, saved = passed
        self.leaf = statistics.requires_grad_(torch.is_grad_enabled())
        self._given = (target, statistics.detach(), saved, row_sums)
        return statistics_of(self.leaf.unbind(), keys, self.classes)

    def by_logits(self, grads: Tensor, *, in_place: bool) -> Tensor:
        """Return the gradient by the logits.

        Args:
            grads: The gradient by ``leaf``.
            in_place: Whether it may be written over the logits.

        Returns:
            The gradient, in the dtype of the logits.
        """
        return backend_for(self.logits).backward(grads, self.logits, *self._given, self.logits if in_place else None)
