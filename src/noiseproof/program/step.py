"""Value and gradient of a loss in one step of autograd, from a program: in eager mode, and as a compiler records it.

Autograd sees one function of the logits. Its gradient is formed along with the value where the batch is small, and by a second
pass over the logits elsewhere. The gradient of a gradient is left to the loss itself, and so are several gradients together.

A compiler records operations that it can fuse, and reads no value. Where the batch is known to be small, the gradient is all
that its backward pass is given: what is handed over from one compiled graph to the next costs more there than its arithmetic.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from noiseproof.core import reference, small
from noiseproof.core.backends import REFERENCE, Backend, backend_of_device
from noiseproof.core.dispatch_state import Recording, is_mapped, transforms_active
from noiseproof.program import on_cpu
from noiseproof.program.code import LossCall, evaluated

_dispatch_modes = torch._C._len_torch_dispatch_stack


def eager_backend(logits: Tensor, target: Tensor) -> Backend | None:
    """The backend that runs programs for these: None where something else than autograd looks at them, a transform, a dispatch
    mode or a tensor's own type, or where their device has none. Not to be called by a compiler."""
    if type(logits) not in (Tensor, Parameter) or type(target) is not Tensor:
        return None
    if not (logits.is_cpu and target.is_cpu) and logits.device != target.device:
        return None
    if transforms_active() or _dispatch_modes() > 0:
        return None
    backend = backend_of_device("cpu" if logits.is_cpu else logits.device.type)
    runs = logits.is_cpu if backend is REFERENCE else backend.programs is not None
    return backend if runs else None


def fused_step(logits: Tensor, target: Tensor, call: LossCall) -> Tensor:
    """The loss of ``logits [N, K]`` for ``target [N]``: a number, or unreduced ``[N]``."""
    if torch.is_grad_enabled() and logits.requires_grad:
        result: Tensor = _apply(logits, target, call)
        return result
    return _forward(logits, target, call, None)


class _FusedStep(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, call: LossCall) -> Tensor:
        ctx.call, ctx.small = call, None
        return _forward(logits, target, call, ctx)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        (grad,) = grads
        logits, target, _, *saved = ctx.saved_tensors  # the weights too, so that a change of them in place is seen
        call: LossCall = ctx.call
        gradient: Tensor | None
        if torch.is_grad_enabled():  # someone will want the gradient of this one
            gradient = _by_autograd(logits, target, call, grad, create_graph=True)
        elif transforms_active() or is_mapped():  # a vmap over gradients
            value, pull, *_ = torch.func.vjp(lambda z: call.recompute(z, target, call), logits.detach())
            (gradient,) = pull(grad.to(value.dtype))
        elif ctx.small is not None:
            gradient = ctx.small.backward(saved[0], grad)
        elif call.backend.programs is not None:
            statistics, rest, row_grads, numbers = saved
            factors = call.backend.programs.scaled(row_grads, grad, numbers, call.reduction)
            gradient = call.backend.backward(factors, logits, target, statistics, rest, call.formula.needs)
        else:
            gradient = on_cpu.backward(ctx, logits, target, saved, call, grad)
            if gradient is None:
                with torch.enable_grad():
                    gradient = _by_autograd(logits.detach().requires_grad_(), target, call, grad, create_graph=False)
        return gradient, None, None


def _by_autograd(logits: Tensor, target: Tensor, call: LossCall, grad: Tensor, create_graph: bool) -> Tensor:
    value = call.recompute(logits, target, call)
    return torch.autograd.grad(value, logits, grad.to(value.dtype), create_graph=create_graph)[0]


def _forward(logits: Tensor, target: Tensor, call: LossCall, ctx: Any) -> Tensor:
    """The loss; what a gradient needs goes into ``ctx``, if there will be one."""
    formula, programs = call.formula, call.backend.programs
    if programs is None:
        return on_cpu.forward(logits, target, call, ctx)
    step = programs.small(logits, target, call, ctx is not None)
    if step is not None:
        value, kept = step.forward(logits, target, call.weight)
        if ctx is not None:
            ctx.small = step
            ctx.save_for_backward(logits, target, call.weight, kept)
        return value  # type: ignore[no-any-return]  # a backend's own
    statistics, saved = call.backend.forward(logits, target, formula.needs, formula.dtype)
    value, row_grads, numbers = programs.run(
        *(formula, statistics, target, call.weight, call.ignore_index, call.reduction, call.dtype),
        *(ctx is not None, logits.shape[1]),
    )
    if ctx is not None:
        ctx.save_for_backward(logits, target, call.weight, statistics, saved, row_grads, numbers)
    return value


# As ``_FusedStep.apply``, which looks again for transforms that ``eager_backend`` has found inactive (1.7 us of 6.7).
_apply: Any = super(torch.autograd.Function, _FusedStep).apply


def recording_backend(logits: Tensor) -> Backend | None:
    """The backend whose step is recorded; None: the loss is recorded as it is defined, under a transform or for any K."""
    if transforms_active() or type(logits.shape[1]) is not int:
        return None
    backend = backend_of_device(logits.device.type)
    return backend if backend is REFERENCE or backend.programs is not None else None


def recorded_step(logits: Tensor, target: Tensor, call: LossCall) -> Tensor:
    """The loss of ``logits [N, K]`` for ``target [N]``: a number, or unreduced ``[N]``."""
    if call.backend.programs is None:
        result: Tensor = _RecordedStep.apply(logits, target, call.weight, call)  # type: ignore[no-untyped-call]  # as torch has it
        return result
    from noiseproof.program.operation import loss_by_kernels  # here, because torch takes 20 ms to register operations

    return loss_by_kernels(logits, target, call)


class _RecordedStep(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, weight: Tensor | None, call: LossCall) -> Tensor:
        formula = call.formula
        ignored = target == call.ignore_index
        labels = target.masked_fill(ignored, 0)
        passed = reference.first_pass(logits, labels, formula.needs, formula.dtype)
        values, row_grads = evaluated(formula.program, passed.statistics)
        scale = None if weight is None else weight.to(values.dtype)[labels].masked_fill(ignored, 0.0)
        values = (values if scale is None else values * scale).masked_fill(ignored, 0.0)
        total = ((~ignored).sum() if scale is None else scale.sum()) if call.reduction == "mean" else None
        # Of a mean of nothing the gradient is 0.
        share = None if total is None else torch.where(total > 0, 1 / total.to(values.dtype), 0.0)
        factors: list[Tensor | None] = []
        for slope in row_grads:
            if isinstance(slope, float) and slope == 0.0:
                factors.append(None)
                continue
            for factor in (scale, share):
                slope = slope if factor is None else slope * factor
            slope = slope if isinstance(slope, Tensor) else torch.full_like(values, slope)
            factors.append(torch.where(ignored, 0.0, slope))
        ctx.dtype, ctx.needs, ctx.factors, ctx.is_small = logits.dtype, formula.needs, len(factors), _is_small(logits)
        if ctx.is_small:
            z = logits.to(formula.dtype)
            ctx.save_for_backward(reference.second_pass(factors, z, labels, passed, formula.needs))
        else:
            ctx.save_for_backward(logits, labels, *factors, *passed.statistics, *passed.saved)
        result = values if call.reduction == "none" else values.sum()
        return (result if total is None else result / total).to(call.dtype)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        (grad,) = grads
        if ctx.is_small:
            (gradient,) = ctx.saved_tensors
            return _times(gradient, grad.unsqueeze(1) if grad.dim() else grad).to(ctx.dtype), None, None, None
        logits, labels, *rest = ctx.saved_tensors
        count = ctx.factors
        factors = [None if factor is None else _times(factor, grad) for factor in rest[:count]]
        passed = reference.FirstPass(rest[count : 2 * count], rest[2 * count :])
        with Recording():
            return reference.second_pass(factors, logits, labels, passed, ctx.needs), None, None, None


def _times(gradient: Tensor, grad: Tensor) -> Tensor:
    """0 of a row that is ignored, whatever is made of its loss."""
    return torch.where(gradient == 0, 0.0, gradient * grad) if grad.dim() else gradient * grad


def _is_small(logits: Tensor) -> bool:
    """Whether it is known to be: a batch of any size is not."""
    rows, classes = logits.shape
    return type(rows) is int and type(classes) is int and rows * classes <= small.MAX_SMALL_BATCH
