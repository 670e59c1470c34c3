"""A step on the CPU.

The gradient is formed along with the value where that costs least: for a small batch, and for a loss of the label's probability
alone, whose gradient is the exponentials times a column. Elsewhere a second pass over the logits follows.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from noiseproof.core import reference, small
from noiseproof.core.chunks import split_rows
from noiseproof.program.rows import Rows

__all__ = ["backward", "forward"]

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


def forward(logits: Tensor, target: Tensor, rows: Rows, ctx: Any) -> Tensor:
    """The loss; what a gradient needs goes into ``ctx``, if there will be one."""
    with BelowAutograd():
        return _forward(logits, target, rows, ctx)


def _forward(logits: Tensor, target: Tensor, rows: Rows, ctx: Any) -> Tensor:
    formula, size = rows.formula, logits.numel()
    labels = target if rows.ignored is None else target.masked_fill(rows.ignored, 0)
    want_gradient = ctx is not None
    kept: list[Any] = []
    done, share, total = None, 1.0, None
    if not formula.asked and rows.reduction == "mean" and rows.weight is None and rows.ignored is None and size:
        share = 1 / target.shape[0]
    if 0 < size <= small.SMALL:
        done = _at_once(logits, labels, rows.ignored, rows, share, want_gradient, None)
    elif want_gradient and size and not formula.asked and logits.dtype == formula.dtype:
        done = _in_chunks(logits, labels, rows, share)
    if done is None:
        share = 1.0
        done, kept = _first_pass(logits, labels, rows, want_gradient)
    values, scale, gradient, summed = done
    if rows.reduction == "mean":
        total = small.number(target.shape[0], formula.dtype) if scale is None else scale.sum()
    if ctx is not None:
        # Where all rows are ignored all slopes are 0, and a mean of nothing should not make them NaN.
        is_divided = share != 1.0 or total is None or (scale is not None and total.item() == 0)
        ctx.total = None if is_divided else total
        ctx.way = "second pass" if gradient is None else "saved" if size <= small.SMALL else "given"
        if ctx.way == "saved":
            ctx.save_for_backward(logits, target, rows.weight, gradient)
        else:
            ctx.given = gradient
            ctx.save_for_backward(logits, target, rows.weight, *kept)
    if rows.reduction == "none":
        result = values.view(-1).clone()  # or it could not be changed in place, as F.cross_entropy's result may
    else:
        result = values.sum() if summed is None else summed
        result = result if total is None else result / total
    return result if result.dtype == rows.dtype else result.to(rows.dtype)


def backward(ctx: Any, logits: Tensor, target: Tensor, saved: list[Tensor], rows: Rows, grad: Tensor) -> Tensor | None:
    """The gradient; None: it was given away the first time."""
    if ctx.total is not None:
        grad = grad / ctx.total
    if grad.dim() and rows.ignored is not None:  # whatever is made of their losses
        grad = grad.masked_fill(rows.ignored, 0.0)
    if ctx.way == "saved":
        gradient = torch.mul(saved[0], grad.unsqueeze(1) if grad.dim() else grad)
        return gradient if gradient.dtype == logits.dtype else gradient.to(logits.dtype)
    if ctx.way == "given":
        given: Tensor | None = ctx.given
        ctx.given = None
        if given is None or (grad.dim() == 0 and grad.item() == 1):
            return given
        return given.mul_(grad.unsqueeze(1) if grad.dim() else grad)
    asked = rows.formula.asked
    count = 2 + len(asked)
    factors = [None if slope is None else slope * grad for slope in saved[:count]]
    passed = reference.Passed(saved[count : 2 * count], saved[2 * count :])
    labels = target if rows.ignored is None else target.masked_fill(rows.ignored, 0)
    return reference.second_pass(factors, logits, labels, passed, asked)


def _at_once(
    logits: Tensor,
    labels: Tensor,
    ignored: Tensor | None,
    rows: Rows,
    share: float,
    want_gradient: bool,
    place: Tensor | None,
) -> _Done | None:
    """Value and gradient, which is formed in ``place``; None where classes are masked."""
    formula = rows.formula
    asked = formula.asked
    done = reference.small_pass(logits, labels, asked, formula.dtype, formula.reads_log_miss, share, place)
    total = reference.finite_sum(done.values)
    if total is None:
        return None
    values, slopes = (formula.with_slopes if want_gradient else formula.alone)(*done.values)
    total = total if values is done.values[0] and not asked else None
    scale = None
    if rows.weight is not None or ignored is not None:
        scale, total = _scale(rows, labels, ignored, values), None
        values = _scaled(values, scale, ignored)
        slopes = tuple([_scaled(slope, scale, ignored) for slope in slopes])
    gradient = None
    if want_gradient:
        factors = [None if isinstance(slope, float) and slope == 0.0 else slope for slope in slopes]
        gradient = small.second_pass(factors, done, asked, formula.least)
    return _Done(values, scale, gradient, total)


def _in_chunks(logits: Tensor, labels: Tensor, rows: Rows, share: float) -> _Done | None:
    """As :func:`_at_once`, for a loss that asks for no primitive: rows that stay in the cache meanwhile."""
    gradient = torch.empty_like(logits, memory_format=torch.contiguous_format)
    ignored = rows.ignored
    chunks: list[_Done] = []
    for z, y, place, *left_out in split_rows(logits, labels, gradient, *([] if ignored is None else [ignored])):
        done = _at_once(z, y, left_out[0] if left_out else None, rows, share, True, place)
        if done is None:
            return None
        chunks.append(done)
    values, scale, *_ = chunks[0]
    if len(chunks) > 1:
        values = torch.cat([chunk.values for chunk in chunks])
        scale = None if scale is None else torch.cat([chunk.scale for chunk in chunks if chunk.scale is not None])
    return _Done(values, scale, gradient)


def _first_pass(logits: Tensor, labels: Tensor, rows: Rows, want_slopes: bool) -> tuple[_Done, list[Any]]:
    """The values, and what the second pass needs: slopes, primitives, and what the first has saved."""
    formula, ignored = rows.formula, rows.ignored
    passed = reference.first_pass(logits, labels, formula.asked, formula.dtype)
    values, slopes = (formula.with_slopes if want_slopes else formula.alone)(*passed.primitives)
    scale = None
    if rows.weight is not None or ignored is not None:
        scale = _scale(rows, labels, ignored, values)
        values = _scaled(values, scale, ignored)
        slopes = tuple([_scaled(slope, scale, ignored) for slope in slopes])
    if not want_slopes:
        return _Done(values, scale, None), []
    vectors = [slope if isinstance(slope, Tensor) else torch.full_like(values, slope) if slope else None for slope in slopes]
    return _Done(values, scale, None), [*vectors, *passed.primitives, *passed.saved]


def _scale(rows: Rows, labels: Tensor, ignored: Tensor | None, like: Tensor) -> Tensor:
    """The weight of each row, 0 where it is ignored."""
    scale = torch.ones_like(labels, dtype=like.dtype) if rows.weight is None else rows.weight.to(like.dtype)[labels]
    return (scale if ignored is None else scale.masked_fill_(ignored, 0.0)).view_as(like)


def _scaled(values: Any, scale: Tensor, ignored: Tensor | None) -> Any:
    """A row that is ignored may have an infinite value."""
    scaled = values * scale
    return scaled if ignored is None else scaled.masked_fill_(ignored.view_as(scaled), 0.0)
