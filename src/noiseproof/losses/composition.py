"""Losses made of losses: weighted sums, and what the parts of a loss may be."""

from typing import Unpack

import torch
from torch import Tensor, nn

from noiseproof.checks import check_range
from noiseproof.core.statistics import RowStatistics, row_statistics
from noiseproof.losses.base import Contract, RobustLoss, changed_options


class Sum(RobustLoss):
    """A weighted sum of losses, which still makes one pass over the logits.

    Written ``1.0 * NCE() + 1.0 * AMSE(a=30.0)``. The parts must agree on ``weight``, ``ignore_index``, ``reduction`` and
    ``label_smoothing``, and the sum has theirs.

    Args:
        terms: Pairs of a coefficient and a loss.
        **contract: The options of :class:`RobustLoss`; the parts must then leave theirs at the defaults.

    Raises:
        ValueError: If there is no loss, or the parts differ in their options.
        TypeError: If a loss cannot be part of a sum.

    Example:
        >>> from noiseproof import CE, MAE
        >>> loss = CE() + 0.5 * MAE()
        >>> round(loss(torch.zeros(1, 4), torch.tensor([2])).item(), 4)  # log 4 + 3/4
        2.1363
    """

    def __init__(self, terms: list[tuple[float, RobustLoss]], **contract: Unpack[Contract]) -> None:
        losses = [inner_loss(loss) if contract else loss for _, loss in terms]
        if not losses:
            raise ValueError("a sum needs at least one loss")
        for loss in losses:
            if not loss.composable:
                raise TypeError(f"{type(loss).__name__} cannot be part of a sum; add its value to the other loss's instead")
        super().__init__(**(contract or _shared_contract(losses)))
        self.coefficients = tuple([check_range("a coefficient of a sum", c) for c, _ in terms])
        self.losses = nn.ModuleList(losses)
        read = [loss.needs for loss in losses if loss.needs is not None]
        self._shared_needs = tuple([statistic for needs in read for statistic in needs])
        self.needs = self._shared_needs if len(read) == len(terms) else None

    @property
    def terms(self) -> list[tuple[float, RobustLoss]]:
        """The coefficients with their losses."""
        return list(zip(self.coefficients, self.losses, strict=True))  # type: ignore[arg-type]  # a ModuleList of losses gives modules

    def from_statistics(self, s: RowStatistics) -> Tensor:
        return self._total([loss.from_statistics(s) for _, loss in self.terms])

    def rows(self, logits: Tensor, target: Tensor) -> Tensor:
        s = row_statistics(logits, target, self._shared_needs) if self._shared_needs else None
        values = []
        for _, loss in self.terms:
            values.append(loss.rows(logits, target) if loss.needs is None or s is None else loss.from_statistics(s))
        return self._total(values)

    def every_label(self, logits: Tensor) -> Tensor:
        if self.needs is not None:
            return super().every_label(logits)
        return self._total([loss.every_label(logits) for _, loss in self.terms])

    def _total(self, values: list[Tensor]) -> Tensor:
        total, *rest = [_times(c, value) for c, value in zip(self.coefficients, values, strict=True)]
        for value in rest:
            total = total + value
        return total

    def constant(self, classes: int) -> float:
        return sum(c * loss.constant(classes) for c, loss in self.terms)

    def classes_of(self, logits: Tensor) -> int:
        if self.needs is not None:
            return super().classes_of(logits)
        counts = {loss.classes_of(logits) for _, loss in self.terms}
        if len(counts) > 1:
            raise ValueError("a sum cannot mix losses on logits with losses on features or on several predictions")
        return counts.pop()

    def masked_classes(self, logits: Tensor) -> Tensor:
        return self.terms[0][1].masked_classes(logits)

    def _full_cache_key(self) -> str | None:
        cache_key = self._cache_key
        if cache_key is None:
            return None
        for part in self.losses._modules.values():
            inner = part._full_cache_key()  # type: ignore[operator]  # what a sum is made of are losses
            if inner is None:
                return None
            cache_key += f" ({inner})"
        return cache_key

    def __repr__(self) -> str:
        if type(self) is not Sum:
            return super().__repr__()
        return " + ".join(f"{c!r} * {loss!r}" for c, loss in self.terms)


def pair_terms(alpha: float, first: RobustLoss, beta: float, second: RobustLoss) -> list[tuple[float, RobustLoss]]:
    """The terms of ``alpha * first + beta * second``, the form of every published pair."""
    return [(check_range("alpha", alpha, at_least=0), first), (check_range("beta", beta, at_least=0), second)]


def inner_loss(loss: RobustLoss) -> RobustLoss:
    """``loss`` as the part of another one that owns weight, ignore_index, reduction and label_smoothing."""
    if not isinstance(loss, RobustLoss):
        raise TypeError(f"a part of a loss must be a loss of this package, got {type(loss).__name__}")
    if changed := changed_options(loss):
        raise ValueError(f"give {', '.join(changed)} to the outer loss, not to its part")
    return loss


def _times(coefficient: float, value: Tensor) -> Tensor:
    if coefficient == 1:
        return value
    return coefficient * (value if coefficient else value.clamp_max(torch.finfo(value.dtype).max))  # 0 times infinity is NaN


def terms_of(loss: RobustLoss) -> list[tuple[float, RobustLoss]]:
    """What a loss is to a sum: the terms of a sum that was written as one, and one term for any other."""
    return loss.terms if type(loss) is Sum else [(1.0, loss)]


def _shared_contract(losses: list[RobustLoss]) -> Contract:
    first = losses[0].contract()
    for loss in losses[1:]:
        other = loss.contract()
        ours, theirs = first["weight"], other["weight"]
        same_weight = ours is theirs or (ours is not None and theirs is not None and torch.equal(ours, theirs))
        if not same_weight or {**first, "weight": None} != {**other, "weight": None}:
            raise ValueError("the parts of a sum must share weight, ignore_index, reduction and label_smoothing")
    return first
