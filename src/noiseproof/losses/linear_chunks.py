"""Losses of a linear head, a chunk of rows after the other, each with autograd of its own.

:class:`Linear` is the source of row statistics behind them: so every loss that is a function of these can be computed.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812 - the name every PyTorch reader expects
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from noiseproof.checks import check_integer
from noiseproof.core import accumulation_dtype, backend_for, has_dispatch_mode
from noiseproof.core.linear import (
    Gradients,
    Products,
    chunk_budget,
    chunk_rows,
    forward_pass,
    linear_statistics,
    no_second_derivative,
    write_gradient,
)
from noiseproof.core.statistics import Logits, RowStatistics, Statistic, needs_key_of, statistics_of
from noiseproof.losses.base import RobustLoss

__all__ = ["Linear", "weighted_rows"]

EVERY_LABEL_MATRICES = 16
"""So many matrices of a chunk's size the losses of all its labels take, at least, with what autograd keeps of them."""


class Linear:
    """Hidden states ``[N, D]`` with the ``weight [K, D]`` and ``bias [K]`` of a head: a source that never has all its logits.

    >>> from noiseproof.core.statistics import Statistic
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
        keys, needs_key = needs_key_of(needs)
        tensors = (self.hidden, self.weight, self.bias, target, self.keep)
        statistics, _ = linear_statistics(*tensors, needs_key, self.dtype, self.chunk_bytes)
        return statistics_of(statistics.unbind(), keys, self.classes)

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


def weighted_rows(source: Linear, target: Tensor, criterion: RobustLoss, recompute: bool) -> tuple[Tensor, Tensor | None]:
    """The weighted losses of all rows, or their sum, and what a mean divides it by."""
    every = criterion.reads_every_label(target)
    if (
        torch.compiler.is_compiling() or has_dispatch_mode(source.hidden) or source.hidden.is_meta
    ):  # whole passes, as operations
        return _checkpointed_rows(source, target, criterion) if every else criterion.weighted_rows(source, target)
    parameters = [p for p in criterion.parameters() if p.requires_grad]
    inputs = (source.hidden, source.weight, source.bias, *parameters)
    wanted = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in inputs)
    # Not in float16: the gradient of a sum may overflow, that of a mean vanish, unless the scale of the loss is known.
    grads_in_forward = wanted and criterion.reduction != "none" and not recompute and source.dtype != torch.float16
    if not every and not grads_in_forward:
        return criterion.weighted_rows(source, target)
    chunk_bytes = max(1, source.chunk_bytes // EVERY_LABEL_MATRICES) if every else source.chunk_bytes
    task = _ChunkedLoss(target, source.keep, criterion, source.dtype, chunk_bytes, grads_in_forward)
    rows, total = _ChunkedRows.apply(task, *inputs)  # type: ignore[no-untyped-call]
    return rows, total


class _ChunkedLoss(NamedTuple):
    """What is computed, besides the tensors with gradients."""

    target: Tensor
    keep: Tensor | None
    criterion: RobustLoss
    dtype: torch.dtype
    chunk_bytes: int
    grads_in_forward: bool
    """The sum of the losses, with its gradients, instead of the losses"""


class _LabelChunk(Logits):
    """Logits whose losses are differentiated down to the statistics; the operation's own backward pass does the rest."""

    def statistics(self, target: Tensor, needs: tuple[Statistic, ...]) -> RowStatistics:
        keys, needs_key = needs_key_of(needs)
        statistics, saved = forward_pass(self.logits, target, needs_key)
        self.leaf = statistics.requires_grad_(torch.is_grad_enabled())
        self._rest = (target, statistics.detach(), saved, needs_key)
        return statistics_of(self.leaf.unbind(), keys, self.classes)

    def by_logits(self, grads: Tensor) -> Tensor:
        return write_gradient(grads, self.logits, *self._rest)


class _EveryLabelChunk(Logits):
    """Logits whose losses for all labels are differentiated by autograd."""

    def __init__(self, logits: Tensor) -> None:
        super().__init__(logits.detach().requires_grad_(torch.is_grad_enabled()))
        self.leaf = self.logits

    def by_logits(self, grads: Tensor) -> Tensor:
        return grads


def _run(
    task: _ChunkedLoss, inputs: Sequence[Any], wanted: Sequence[bool], upstream: Tensor | None
) -> tuple[Tensor, Tensor | int, tuple[Tensor | None, ...]]:
    """Losses, their total weight and, given the gradient of each loss, those of the inputs."""
    hidden, weight, bias, *parameters = inputs
    leaves = [p for p, w in zip(parameters, wanted[3:], strict=True) if w]
    chunk_type: Callable[[Tensor], _LabelChunk | _EveryLabelChunk]
    chunk_type = _EveryLabelChunk if task.criterion.reads_every_label(task.target) else _LabelChunk
    with torch.autocast(hidden.device.type, enabled=False), torch.no_grad():
        products = Products(hidden, weight, bias, task.keep, task.dtype, task.chunk_bytes)
        gradients = Gradients(products, weight, bias, wanted[:3]) if upstream is not None else None
        losses = hidden.new_zeros(len(hidden), dtype=accumulation_dtype(task.dtype))
        by_parameters = [torch.zeros_like(leaf) for leaf in leaves]
        total: Tensor | int = 0
        for rows, x, z in products.chunks():
            # Hooks of the caller's, of a checkpoint around this say, are for what outlives this function.
            with torch.set_grad_enabled(gradients is not None), saved_tensors_hooks(Tensor.detach, lambda kept: kept):
                chunk = chunk_type(z)
                found, count = task.criterion.weighted_rows(chunk, task.target[rows])
            losses[rows] = found.detach()
            total = total + (len(found) if count is None else count)
            if gradients is not None and upstream is not None:
                first, *rest = torch.autograd.grad(found, [chunk.leaf, *leaves], upstream[rows], materialize_grads=True)
                gradients.add(rows, x, chunk.by_logits(first))
                for sum_, part in zip(by_parameters, rest, strict=True):
                    sum_.add_(part)
    own = (None, None, None) if gradients is None else gradients.results()
    others = iter(by_parameters)
    return losses, total, (*own, *(next(others) if w else None for w in wanted[3:]))


class _ChunkedRows(torch.autograd.Function):
    """The losses of all rows, which the backward pass computes again; or their sum, with gradients that wait to be scaled.

    Those are scaled where they are, and handed over: a copy of the weight's would be larger than a chunk. A second backward
    pass, of a graph that was retained, computes them again.
    """

    @staticmethod
    def forward(ctx: Any, task: _ChunkedLoss, *inputs: Any) -> tuple[Tensor, Tensor]:
        ctx.task, wanted = task, ctx.needs_input_grad[1:]
        ctx.share = _share(task) if task.grads_in_forward else None
        upstream = None if ctx.share is None else ctx.share.expand(len(task.target))
        losses, total, gradients = _run(task, inputs, wanted, upstream)
        ctx.gradients = gradients if task.grads_in_forward else None
        ctx.save_for_backward(task.target, task.criterion.weight, *inputs)
        count = total if isinstance(total, Tensor) else losses.new_full((), total)
        ctx.mark_non_differentiable(count)
        return losses.sum() if task.grads_in_forward else losses, count

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        found, ctx.gradients, create_graph = ctx.gradients, None, torch.is_grad_enabled()
        with torch.no_grad():
            if found is not None:
                scale = _finite_scale(grads[0] / ctx.share, ctx.task)
                found = tuple([g if g is None else backend_for(g).scale(g, scale) for g in found])
            else:
                upstream = _finite_scale(grads[0], ctx.task).expand(len(ctx.task.target))
                _, _, *inputs = ctx.saved_tensors  # target and weights, so that a change of them in place is seen
                _, _, found = _run(ctx.task, inputs, ctx.needs_input_grad[1:], upstream)
        # Without this a derivative of them would be zero, and wrong.
        return None, *(_FirstGradient.apply(g.requires_grad_()) if create_graph and g is not None else g for g in found)  # type: ignore[no-untyped-call]


def _share(task: _ChunkedLoss) -> Tensor:
    """Of each loss in the reduced one if classes have no weights: gradients need no other factor then, and are rounded once."""
    dtype, like = accumulation_dtype(task.dtype), task.target
    if task.criterion.reduction == "sum":
        return like.new_ones((), dtype=dtype)
    count = like.new_full((), len(like), dtype=dtype) if task.keep is None else task.keep.sum().to(dtype)
    return count.clamp_min(1.0).reciprocal()


def _finite_scale(grad: Tensor, task: _ChunkedLoss) -> Tensor:
    """0 where no row counts: a mean is then 0/0, but the gradient of nothing is nothing."""
    if not len(task.target):
        return torch.zeros_like(grad)
    return grad if task.keep is None else grad.masked_fill(~task.keep.any(), 0.0)


class _FirstGradient(torch.autograd.Function):
    """A gradient that cannot be differentiated once more."""

    @staticmethod
    def forward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient.view_as(gradient)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        no_second_derivative()


def _checkpointed_rows(source: Linear, target: Tensor, criterion: RobustLoss) -> tuple[Tensor, Tensor]:
    """The same in operations that a compiler can trace: each chunk is a checkpoint."""
    from torch.utils.checkpoint import checkpoint  # here: with torch 2.6 it imports sympy, a third of a second

    def rows_of(x: Tensor, labels: Tensor) -> "tuple[Tensor, Tensor]":  # in quotes: torch 2.6's compiler cannot trace it
        logits = F.linear(x, source.weight, source.bias)
        rows, count = criterion.weighted_rows(Logits(logits), labels)
        return rows, rows.new_full((), len(rows)) if count is None else count

    rows = len(source.hidden)
    step = max(1, chunk_rows(rows, source.classes, source.dtype, max(1, source.chunk_bytes // EVERY_LABEL_MATRICES)))
    parts = zip(source.hidden.split(step), target.split(step), strict=True)
    found = [checkpoint(rows_of, x, labels, use_reentrant=False) for x, labels in parts]
    return torch.cat([rows for rows, _ in found]), torch.stack([count for _, count in found]).sum()
