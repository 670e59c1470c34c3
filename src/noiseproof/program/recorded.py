"""A step as a compiler records it: operations that it can fuse, and no look at a value.

Where the batch is known to be small, the gradient is formed along with the value and is all that the backward pass is given:
what is handed over from one compiled graph to the next costs more there than its arithmetic. Elsewhere a second pass follows.
"""

from typing import Any

import torch
from torch import Tensor

from noiseproof.core import REFERENCE, Backend, Recorded, backend_of_device, reference, small, transforms_active
from noiseproof.program.rows import Rows
from noiseproof.program.vectors import evaluated

__all__ = ["recorded_loss", "recorder_of"]


def recorder_of(logits: Tensor) -> Backend | None:
    """The backend whose step is recorded; None: the loss is recorded as it is defined, under a transform or for any K."""
    if transforms_active() or type(logits.shape[1]) is not int:
        return None
    backend = backend_of_device(logits.device.type)
    return backend if backend is REFERENCE or backend.programs is not None else None


def recorded_loss(logits: Tensor, target: Tensor, rows: Rows) -> Tensor:
    """The loss of ``logits [N, K]`` for ``target [N]``: a number, or unreduced ``[N]``."""
    if rows.backend.programs is None:
        result: Tensor = _Step.apply(logits, target, rows.weight, rows)  # type: ignore[no-untyped-call]  # as torch has it
        return result
    from noiseproof.program.operation import loss_by_kernels  # here, because torch takes 20 ms to register operations

    return loss_by_kernels(logits, target, rows)


class _Step(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, weight: Tensor | None, rows: Rows) -> Tensor:
        formula = rows.formula
        ignored = target == rows.ignore_index
        labels = target.masked_fill(ignored, 0)
        passed = reference.first_pass(logits, labels, formula.asked, formula.dtype)
        values, slopes = evaluated(formula.program, passed.primitives)
        scale = None if weight is None else weight.to(values.dtype)[labels].masked_fill(ignored, 0.0)
        values = (values if scale is None else values * scale).masked_fill(ignored, 0.0)
        total = ((~ignored).sum() if scale is None else scale.sum()) if rows.reduction == "mean" else None
        # Of a mean of nothing the gradient is 0.
        share = None if total is None else torch.where(total > 0, 1 / total.to(values.dtype), 0.0)
        factors: list[Tensor | None] = []
        for slope in slopes:
            if isinstance(slope, float) and slope == 0.0:
                factors.append(None)
                continue
            for factor in (scale, share):
                slope = slope if factor is None else slope * factor
            slope = slope if isinstance(slope, Tensor) else torch.full_like(values, slope)
            factors.append(torch.where(ignored, 0.0, slope))
        ctx.dtype, ctx.asked, ctx.factors, ctx.is_small = logits.dtype, formula.asked, len(factors), _is_small(logits)
        if ctx.is_small:
            z = logits.to(formula.dtype)
            ctx.save_for_backward(reference.second_pass(factors, z, labels, passed, formula.asked))
        else:
            ctx.save_for_backward(logits, labels, *factors, *passed.primitives, *passed.saved)
        result = values if rows.reduction == "none" else values.sum()
        return (result if total is None else result / total).to(rows.dtype)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        (grad,) = grads
        if ctx.is_small:
            (gradient,) = ctx.saved_tensors
            return _times(gradient, grad.unsqueeze(1) if grad.dim() else grad).to(ctx.dtype), None, None, None
        logits, labels, *rest = ctx.saved_tensors
        count = ctx.factors
        factors = [None if factor is None else _times(factor, grad) for factor in rest[:count]]
        passed = reference.Passed(rest[count : 2 * count], rest[2 * count :])
        with Recorded():
            return reference.second_pass(factors, logits, labels, passed, ctx.asked), None, None, None


def _times(gradient: Tensor, grad: Tensor) -> Tensor:
    """0 of a row that is ignored, whatever is made of its loss."""
    return torch.where(gradient == 0, 0.0, gradient * grad) if grad.dim() else gradient * grad


def _is_small(logits: Tensor) -> bool:
    """Whether it is known to be: a batch of any size is not."""
    rows, classes = logits.shape
    return type(rows) is int and type(classes) is int and rows * classes <= small.SMALL
