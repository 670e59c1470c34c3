"""Hidden states and a linear head as a source of row statistics."""

import torch
from torch import Tensor

from noiseproof.checks import check_integer
from noiseproof.primitives.linear import chunk_budget, linear_primitives
from noiseproof.statistics import RowStatistics, Statistic, keys_of, statistics_of

__all__ = ["Linear"]


class Linear:
    """Hidden states ``[N, D]`` with the ``weight [K, D]`` and ``bias [K]`` of a head: a source that never has all its logits.

    >>> from noiseproof.statistics import Statistic
    >>> s = Linear(torch.zeros(1, 3), torch.zeros(4, 3)).statistics(torch.tensor([2]), (Statistic.SQ_SUM,))
    >>> round(s.sq_others.item(), 4)  # p = 1/4 everywhere
    0.1875
    """

    def __init__(
        self,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        *,
        keep: Tensor | None = None,
        chunk_bytes: int | None = None,
    ) -> None:
        """Rows that are not in ``keep [N]`` are not computed: their statistics are those of equal logits."""
        self.hidden, self.weight, self.bias, self.keep = hidden, weight, bias, keep
        self.classes = weight.shape[0]
        self.dtype = product_dtype(hidden, weight, bias)
        given = chunk_budget(hidden.device) if chunk_bytes is None else chunk_bytes
        self.chunk_bytes = check_integer("chunk_bytes", given, at_least=1)

    @property
    def logits(self) -> Tensor:
        raise TypeError(
            "the logits of a linear loss are never all there; use criterion(F.linear(hidden, weight, bias), target)"
        )

    def statistics(self, target: Tensor, needs: tuple[Statistic, ...]) -> RowStatistics:
        keys = keys_of(needs)
        tensors = (self.hidden, self.weight, self.bias, target, self.keep)
        primitives, _ = linear_primitives(*tensors, ";".join(keys), self.dtype, self.chunk_bytes)
        return statistics_of(primitives, keys, self.classes)

    def every_label(self, needs: tuple[Statistic, ...]) -> RowStatistics:
        raise TypeError("the losses of all labels are as many as the logits; linear_loss computes them chunk by chunk")


def product_dtype(hidden: Tensor, weight: Tensor, bias: Tensor | None) -> torch.dtype:
    """The dtype of ``F.linear(hidden, weight, bias)``."""
    dtypes = {t.dtype for t in (hidden, weight, bias) if t is not None}
    device = hidden.device.type
    if device != "meta" and torch.is_autocast_enabled(device) and torch.float64 not in dtypes:
        return torch.get_autocast_dtype(device)
    if len(dtypes) > 1:
        given = f"{hidden.dtype}, {weight.dtype}" + ("" if bias is None else f", {bias.dtype}")
        raise TypeError(f"hidden, weight and bias must have one dtype, got {given}; convert them or use torch.autocast")
    return hidden.dtype
