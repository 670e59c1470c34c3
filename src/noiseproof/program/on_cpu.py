"""A step on the CPU.

The gradient is formed along with the value where that costs least: for a small batch, and for a loss of the label's probability
alone, whose gradient is the exponentials times a column. Elsewhere a second pass over the logits follows.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from noiseproof.core import reference, small
from noiseproof.core.reference import split_rows
from noiseproof.program.code import LossCall

BelowAutograd: Any = torch._C._AutoDispatchBelowAutograd
"""Where autograd would not look at operations, they need not go by it: a tenth of the time of a small step."""


class _Done(NamedTuple):
    """What there is of some rows."""

    values: Tensor
    scale: Tensor | None
    """Of each row, shaped as its value is; None: 1"""
    gradient: Tensor | None
    total: Tensor | None = None
    """The sum of the values, where it is known"""


def forward(logits: Tensor, target: Tensor, call: LossCall, ctx: Any) -> Tensor:
    """The loss; what a gradient needs goes into ``ctx``, if there will be one."""
    with BelowAutograd():
        return _forward(logits, target, call, ctx)


def _forward(logits: Tensor, target: Tensor, call: LossCall, ctx: Any) -> Tensor:
    formula, size = call.formula, logits.numel()
    labels = target if call.ignored is None else target.masked_fill(call.ignored, 0)
    want_gradient = ctx is not None
    kept: list[Any] = []
    done, share, total = None, 1.0, None
    if not formula.needs and call.reduction == "mean" and call.weight is None and call.ignored is None and size:
        share = 1 / target.shape[0]
    if 0 < size <= small.MAX_SMALL_BATCH:
        done = _single_pass(logits, labels, call.ignored, call, share, want_gradient, None)
    elif want_gradient and size and not formula.needs and logits.dtype == formula.dtype:
        done = _in_chunks(logits, labels, call, share)
    if done is None:
        share = 1.0
        done, kept = _first_pass(logits, labels, call, want_gradient)
    values, scale, gradient, summed = done
    if call.reduction == "mean":
        total = small.number(target.shape[0], formula.dtype) if scale is None else scale.sum()
    if ctx is not None:
        # Where all rows are ignored all gradients are 0, and a mean of nothing should not make them NaN.
        is_divided = share != 1.0 or total is None or (scale is not None and total.item() == 0)
        ctx.total = None if is_divided else total
        ctx.way = "second pass" if gradient is None else "saved" if size <= small.MAX_SMALL_BATCH else "given"
        if ctx.way == "saved":
            ctx.save_for_backward(logits, target, call.weight, gradient)
        else:
            ctx.given = gradient
            ctx.save_for_backward(logits, target, call.weight, *kept)
    if call.reduction == "none":
        result = values.view(-1).clone()  # or it could not be changed in place, as F.cross_entropy's result may
    else:
        result = values.sum() if summed is None else summed
        result = result if total is None else result / total
    return result if result.dtype == call.dtype else result.to(call.dtype)


def backward(ctx: Any, logits: Tensor, target: Tensor, saved: list[Tensor], call: LossCall, grad: Tensor) -> Tensor | None:
    """The gradient; None: it was given away the first time."""
    if ctx.total is not None:
        grad = grad / ctx.total
    if grad.dim() and call.ignored is not None:  # whatever is made of their losses
        grad = grad.masked_fill(call.ignored, 0.0)
    if ctx.way == "saved":
        gradient = torch.mul(saved[0], grad.unsqueeze(1) if grad.dim() else grad)
        return gradient if gradient.dtype == logits.dtype else gradient.to(logits.dtype)
    if ctx.way == "given":
        given: Tensor | None = ctx.given
        ctx.given = None
        if given is None or (grad.dim() == 0 and grad.item() == 1):
            return given
        return given.mul_(grad.unsqueeze(1) if grad.dim() else grad)
    needs = call.formula.needs
    count = 2 + len(needs)
    factors = [None if slope is None else slope * grad for slope in saved[:count]]
    passed = reference.FirstPass(saved[count : 2 * count], saved[2 * count :])
    labels = target if call.ignored is None else target.masked_fill(call.ignored, 0)
    return reference.second_pass(factors, logits, labels, passed, needs)


def _single_pass(
    logits: Tensor,
    labels: Tensor,
    ignored: Tensor | None,
    call: LossCall,
    share: float,
    want_gradient: bool,
    place: Tensor | None,
) -> _Done | None:
    """Value and gradient, which is formed in ``place``; None where classes are masked."""
    formula = call.formula
    needs = formula.needs
    done = reference.small_pass(logits, labels, needs, formula.dtype, formula.reads_log1m, share, place)
    total = reference.finite_sum(done.values)
    if total is None:
        return None
    values, row_grads = (formula.with_grads if want_gradient else formula.alone)(*done.values)
    total = total if values is done.values[0] and not needs else None
    scale = None
    if call.weight is not None or ignored is not None:
        scale, total = _scale(call, labels, ignored, values), None
        values = _scaled(values, scale, ignored)
        row_grads = tuple([_scaled(slope, scale, ignored) for slope in row_grads])
    gradient = None
    if want_gradient:
        factors = [None if isinstance(slope, float) and slope == 0.0 else slope for slope in row_grads]
        gradient = small.second_pass(factors, done, needs, formula.least)
    return _Done(values, scale, gradient, total)


def _in_chunks(logits: Tensor, labels: Tensor, call: LossCall, share: float) -> _Done | None:
    """As :func:`_single_pass`, for a loss that asks for no row sum: rows that stay in the cache meanwhile."""
    gradient = torch.empty_like(logits, memory_format=torch.contiguous_format)
    ignored = call.ignored
    chunks: list[_Done] = []
    for z, y, place, *left_out in split_rows(logits, labels, gradient, *([] if ignored is None else [ignored])):
        done = _single_pass(z, y, left_out[0] if left_out else None, call, share, True, place)
        if done is None:
            return None
        chunks.append(done)
    values, scale, *_ = chunks[0]
    if len(chunks) > 1:
        values = torch.cat([chunk.values for chunk in chunks])
        scale = None if scale is None else torch.cat([chunk.scale for chunk in chunks if chunk.scale is not None])
    return _Done(values, scale, gradient)


def _first_pass(logits: Tensor, labels: Tensor, call: LossCall, want_grads: bool) -> tuple[_Done, list[Any]]:
    """The values, and what the second pass needs: gradients, statistics, and what the first has saved."""
    formula, ignored = call.formula, call.ignored
    passed = reference.first_pass(logits, labels, formula.needs, formula.dtype)
    values, row_grads = (formula.with_grads if want_grads else formula.alone)(*passed.statistics)
    scale = None
    if call.weight is not None or ignored is not None:
        scale = _scale(call, labels, ignored, values)
        values = _scaled(values, scale, ignored)
        row_grads = tuple([_scaled(slope, scale, ignored) for slope in row_grads])
    if not want_grads:
        return _Done(values, scale, None), []
    vectors = [slope if isinstance(slope, Tensor) else torch.full_like(values, slope) if slope else None for slope in row_grads]
    return _Done(values, scale, None), [*vectors, *passed.statistics, *passed.saved]


def _scale(call: LossCall, labels: Tensor, ignored: Tensor | None, like: Tensor) -> Tensor:
    """The weight of each row, 0 where it is ignored."""
    scale = torch.ones_like(labels, dtype=like.dtype) if call.weight is None else call.weight.to(like.dtype)[labels]
    return (scale if ignored is None else scale.masked_fill_(ignored, 0.0)).view_as(like)


def _scaled(values: Any, scale: Tensor, ignored: Tensor | None) -> Any:
    """A row that is ignored may have an infinite value."""
    scaled = values * scale
    return scaled if ignored is None else scaled.masked_fill_(ignored.view_as(scaled), 0.0)
