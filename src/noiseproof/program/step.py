"""Value and gradient of a loss in one step of autograd, from a program.

Autograd sees one function of the logits. Its gradient is formed along with the value where the batch is small, and by a second
pass over the logits elsewhere. The gradient of a gradient is left to the loss itself, and so are several gradients at once.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from noiseproof.core import REFERENCE, Backend, backend_of_device, is_mapped, transforms_active
from noiseproof.program import on_cpu
from noiseproof.program.rows import Rows

__all__ = ["loss_of_rows", "runner_of"]

_dispatch_modes = torch._C._len_torch_dispatch_stack


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
        result: Tensor = _apply(logits, target, rows)
        return result
    return _forward(logits, target, rows, None)


class _Step(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, rows: Rows) -> Tensor:
        ctx.rows, ctx.small = rows, None
        return _forward(logits, target, rows, ctx)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        (grad,) = grads
        logits, target, _, *saved = ctx.saved_tensors  # the weights too, so that a change of them in place is seen
        rows: Rows = ctx.rows
        gradient: Tensor | None
        if torch.is_grad_enabled():  # someone will want the gradient of this one
            gradient = _by_autograd(logits, target, rows, grad, create_graph=True)
        elif transforms_active() or is_mapped():  # a vmap over gradients
            value, pull, *_ = torch.func.vjp(lambda z: rows.again(z, target, rows), logits.detach())
            (gradient,) = pull(grad.to(value.dtype))
        elif ctx.small is not None:
            gradient = ctx.small.backward(saved[0], grad)
        elif rows.backend.programs is not None:
            primitives, rest, slopes, numbers = saved
            factors = rows.backend.programs.scaled(slopes, grad, numbers, rows.reduction)
            gradient = rows.backend.backward(factors, logits, target, primitives, rest, rows.formula.asked)
        else:
            gradient = on_cpu.backward(ctx, logits, target, saved, rows, grad)
            if gradient is None:
                with torch.enable_grad():
                    gradient = _by_autograd(logits.detach().requires_grad_(), target, rows, grad, create_graph=False)
        return gradient, None, None


def _by_autograd(logits: Tensor, target: Tensor, rows: Rows, grad: Tensor, create_graph: bool) -> Tensor:
    value = rows.again(logits, target, rows)
    return torch.autograd.grad(value, logits, grad.to(value.dtype), create_graph=create_graph)[0]


def _forward(logits: Tensor, target: Tensor, rows: Rows, ctx: Any) -> Tensor:
    """The loss; what a gradient needs goes into ``ctx``, if there will be one."""
    formula, programs = rows.formula, rows.backend.programs
    if programs is None:
        return on_cpu.forward(logits, target, rows, ctx)
    small = programs.small(logits, target, rows, ctx is not None)
    if small is not None:
        value, kept = small.forward(logits, target, rows.weight)
        if ctx is not None:
            ctx.small = small
            ctx.save_for_backward(logits, target, rows.weight, kept)
        return value  # type: ignore[no-any-return]  # a backend's own
    primitives, saved = rows.backend.forward(logits, target, formula.asked, formula.dtype)
    value, slopes, numbers = programs.run(
        *(formula, primitives, target, rows.weight, rows.ignore_index, rows.reduction, rows.dtype),
        *(ctx is not None, logits.shape[1]),
    )
    if ctx is not None:
        ctx.save_for_backward(logits, target, rows.weight, primitives, saved, slopes, numbers)
    return value


# As ``_Step.apply``, which looks again for transforms that ``runner_of`` has found inactive (1.7 us of 6.7).
_apply: Any = super(torch.autograd.Function, _Step).apply
