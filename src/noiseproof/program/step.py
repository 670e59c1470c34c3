"""Value and gradient of a loss in one step of autograd, from a program.

Autograd sees one function of the logits. Its gradient is formed along with the value where the batch is small, and by a second
pass over the logits elsewhere. The gradient of a gradient is left to the loss itself, and so is a batch with masked classes.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import Parameter

from noiseproof.primitives import REFERENCE, Backend, backend_of_device, decode, reference, small, transforms_active
from noiseproof.program.code import Program
from noiseproof.program.vectors import compiled

__all__ = ["Formula", "Reduction", "Rows", "loss_of_rows", "runner_of"]

Reduction = Literal["none", "mean", "sum"]
_dispatch_modes = torch._C._len_torch_dispatch_stack


class Formula:
    """A program with the request for its primitives, ready to run in one dtype."""

    def __init__(self, program: Program, request: str, dtype: torch.dtype) -> None:
        self.program, self.dtype = program, dtype
        self.asked = decode(request)
        self.least = reference.LEAST[dtype]
        self.reads_log_miss = program.reads(1)
        self.with_slopes, self.alone = compiled(program, dtype), compiled(program.without_slopes(), dtype)
        self.kernels: dict[str, Any] = {}
        """What backends have made of it"""


class Rows(NamedTuple):
    """What is to be done with the rows of a batch."""

    formula: Formula
    backend: Backend
    ignored: Tensor | None
    """Which labels are, on a CPU; None: none"""
    ignore_index: int
    weight: Tensor | None
    """Of each class"""
    reduction: Reduction
    dtype: torch.dtype
    """Of the loss"""
    again: Callable[[Tensor, Tensor], Tensor]
    """The loss of logits and labels by autograd"""


def runner_of(logits: Tensor, target: Tensor) -> Backend | None:
    """The backend that runs programs for these: None where something else than autograd looks at them, a transform, a dispatch
    mode or a tensor's own type, or where their device has none. Not to be asked by a compiler."""
    if type(logits) not in (Tensor, Parameter) or type(target) is not Tensor:
        return None
    if not (logits.is_cpu and target.is_cpu) and logits.device != target.device:
        return None
    if transforms_active() or _dispatch_modes() > 0:
        return None
    backend = backend_of_device("cpu" if logits.is_cpu else logits.device.type)
    runs = logits.is_cpu if backend is REFERENCE else backend.programs is not None
    return backend if runs else None


def loss_of_rows(logits: Tensor, target: Tensor, rows: Rows) -> Tensor:
    """The loss of ``logits [N, K]`` for ``target [N]``: a number, or unreduced ``[N]``."""
    if torch.is_grad_enabled() and logits.requires_grad:
        result: Tensor = _Step.apply(logits, target, rows)  # type: ignore[no-untyped-call]
        return result
    return _forward(logits, target, rows, None)


class _Step(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, rows: Rows) -> Tensor:
        ctx.rows, ctx.total, ctx.is_small = rows, None, False
        return _forward(logits, target, rows, ctx)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        (grad,) = grads
        logits, target, *saved = ctx.saved_tensors
        rows: Rows = ctx.rows
        if torch.is_grad_enabled():  # someone will want the gradient of this one
            value = rows.again(logits, target)
            return torch.autograd.grad(value, logits, grad.to(value.dtype), create_graph=True)[0], None, None
        asked = rows.formula.asked
        if rows.backend.programs is not None:
            primitives, rest, slopes, numbers = saved
            factors = rows.backend.programs.scaled(slopes, grad, numbers, rows.reduction)
            return rows.backend.backward(factors, logits, target, primitives, rest, asked), None, None
        if ctx.total is not None:
            grad = grad / ctx.total
        if ctx.is_small:
            gradient = torch.mul(saved[0], grad.unsqueeze(1) if grad.dim() else grad)
            return gradient if gradient.dtype == logits.dtype else gradient.to(logits.dtype), None, None
        count = 2 + len(asked)
        given = [None if slope is None else slope * grad for slope in saved[:count]]
        labels = target if rows.ignored is None else target.masked_fill(rows.ignored, 0)
        passed = reference.Passed(saved[count : 2 * count], saved[2 * count :])
        return reference.second_pass(given, logits, labels, passed, asked), None, None


def _forward(logits: Tensor, target: Tensor, rows: Rows, ctx: Any) -> Tensor:
    """The loss; what a gradient needs goes into ``ctx``, if there will be one."""
    formula, programs = rows.formula, rows.backend.programs
    if programs is None:
        return _on_cpu(logits, target, rows, ctx)
    primitives, saved = rows.backend.forward(logits, target, formula.asked, formula.dtype)
    value, slopes, numbers = programs.run(
        *(formula, primitives, target, rows.weight, rows.ignore_index, rows.reduction, rows.dtype),
        *(ctx is not None, logits.shape[1]),
    )
    if ctx is not None:
        ctx.save_for_backward(logits, target, primitives, saved, slopes, numbers)
    return value


def _on_cpu(logits: Tensor, target: Tensor, rows: Rows, ctx: Any) -> Tensor:
    formula = rows.formula
    labels = target if rows.ignored is None else target.masked_fill(rows.ignored, 0)
    run = formula.alone if ctx is None else formula.with_slopes
    done = passed = scale = total = None
    is_divided = rows.reduction == "mean" and not formula.asked and rows.weight is None and rows.ignored is None
    if 0 < logits.numel() <= small.SMALL:
        share = 1 / target.shape[0] if is_divided else 1.0
        done = reference.small_pass(logits, labels, formula.asked, formula.dtype, formula.reads_log_miss, share)
    if done is not None:
        values, slopes = run(*done.values)
    else:
        passed = reference.first_pass(logits, labels, formula.asked, formula.dtype)
        values, slopes = run(*passed.primitives)
    if rows.weight is not None or rows.ignored is not None:
        scale = _scale(rows, labels, values)
        values = _scaled(values, scale, rows.ignored)
        slopes = tuple([_scaled(slope, scale, rows.ignored) for slope in slopes])
    if rows.reduction == "mean":
        total = small.number(target.shape[0], formula.dtype) if scale is None else scale.sum()
    if ctx is not None:
        is_divided = is_divided and done is not None
        if total is not None and not is_divided and (scale is None or total.item() != 0):  # else all are ignored, all slopes 0
            ctx.total = total
        factors = [None if isinstance(slope, float) and slope == 0.0 else slope for slope in slopes]
        if done is not None:
            ctx.is_small = True
            ctx.save_for_backward(logits, target, small.second_pass(factors, done, formula.asked, formula.least))
        elif passed is not None:
            vectors = [torch.full_like(values, f) if isinstance(f, float) else f for f in factors]
            ctx.save_for_backward(logits, target, *vectors, *passed.primitives, *passed.saved)
    result = values.view(-1) if rows.reduction == "none" else values.sum()
    if total is not None:
        result = result / total
    return result if result.dtype == rows.dtype else result.to(rows.dtype)


def _scale(rows: Rows, labels: Tensor, like: Tensor) -> Tensor:
    """The weight of each row, shaped as its value is; 0 where it is ignored."""
    scale = torch.ones_like(labels, dtype=like.dtype) if rows.weight is None else rows.weight.to(like.dtype)[labels]
    return (scale if rows.ignored is None else scale.masked_fill_(rows.ignored, 0.0)).view_as(like)


def _scaled(values: Tensor | float, scale: Tensor, ignored: Tensor | None) -> Any:
    """A row that is ignored may have an infinite value."""
    scaled = values * scale
    return scaled if ignored is None else scaled.masked_fill_(ignored.view_as(scaled), 0.0)
