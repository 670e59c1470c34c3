"""The registered operations: what autograd, torch.func, vmap and compilers see of the two passes."""

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the name every PyTorch reader expects
from torch import Tensor

from noiseproof.core import reference, small
from noiseproof.core.backends import REFERENCE, backend_for, backend_of_device, is_traced
from noiseproof.core.onlookers import Recorded, is_compiling, is_mapped, is_transformed, is_watched, on_cpu
from noiseproof.core.plain import plain_gradient, plain_jvp, plain_primitives
from noiseproof.core.request import accumulation_dtype, decode

__all__ = ["forward_pass", "row_primitives", "row_primitives_backward", "rows_of_labels", "rows_of_primitives"]


def forward_pass(logits: Tensor, target: Tensor, request: str) -> tuple[Tensor, Tensor]:
    """``logits [N, K]``, ``target [N]`` -> primitives ``[2 + R, N]``, nll and log_miss first; what the backward pass wants.

    Results are float64 for float64 logits and float32 otherwise. A target out of range raises IndexError on the CPU
    (compiled, torch's own RuntimeError); elsewhere its row is NaN, because looking would stall the device.
    """
    # The device's also where a compiler looks on: what it records is this operation, whose two passes must be of one backend.
    backend = backend_of_device(logits.device.type)
    return backend.forward(logits, target, decode(request), accumulation_dtype(logits.dtype))


def backward_pass(grads: Tensor, logits: Tensor, target: Tensor, primitives: Tensor, saved: Tensor, request: str) -> Tensor:
    """The gradient with respect to the logits, in their dtype, given that of each primitive (``grads [2 + R, N]``)."""
    backend = backend_of_device(logits.device.type)
    return backend.backward(grads, logits, target, primitives, saved, decode(request))


# Inductor keeps compiled graphs on disk by the names of their operations, so this one changes when its results' shapes do.
@torch.library.custom_op("noiseproof::row_primitives_3", mutates_args=())
def row_primitives(logits: Tensor, target: Tensor, request: str) -> tuple[Tensor, Tensor]:
    """:func:`forward_pass` with results of one shape, whatever the backend: a fifth row says that all classes are left."""
    primitives, saved = forward_pass(logits, target, request)
    missing = _saved_rows(request) - len(saved)
    return primitives, F.pad(saved, (0, 0, 0, missing), value=logits.shape[1] - 1) if missing else saved


def _saved_rows(request: str) -> int:
    """The most that a backend keeps for its backward pass: the reference's five, and a sum for each primitive."""
    return 5 + len(decode(request))


row_primitives_backward = torch.library.custom_op("noiseproof::row_primitives_backward", backward_pass, mutates_args=())


@torch.library.custom_op("noiseproof::checked_labels", mutates_args=())
def checked_labels(target: Tensor, classes: int) -> Tensor:
    """Labels that are safe to index with: IndexError on the CPU if one is out of range, clamped elsewhere."""
    return reference.checked_labels(target, classes)[0].clone()


def rows_of_labels(rows: Callable[[Tensor], Tensor], target: Tensor, classes: int) -> Tensor:
    """``rows(target)`` for a function that indexes with labels: one out of range is treated as in :func:`row_primitives`."""
    labels = checked_labels(target, classes)
    values = rows(labels)
    return values if on_cpu(target) else torch.where(labels == target, values, math.nan)


@row_primitives.register_fake
def _(logits: Tensor, target: Tensor, request: str) -> tuple[Tensor, Tensor]:
    dtype = accumulation_dtype(logits.dtype)
    rows = logits.shape[0]
    return logits.new_empty((2 + len(decode(request)), rows), dtype=dtype), logits.new_empty(
        (_saved_rows(request), rows), dtype=dtype
    )


@row_primitives_backward.register_fake
def _(grads: Tensor, logits: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(logits, memory_format=torch.contiguous_format)


@checked_labels.register_fake
def _(target: Tensor, classes: int) -> Tensor:
    return torch.empty_like(target)


@checked_labels.register_vmap
def _(info: Any, in_dims: tuple[Any, ...], target: Tensor, classes: int) -> tuple[Tensor, Any]:
    return checked_labels(target, classes), in_dims[0]


class _Primitives(torch.autograd.Function):
    """The operation with its gradient, under autograd, torch.func and forward-mode AD alike."""

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[tuple[Tensor, Tensor], tuple[int, int]]:
        # A rule that torch makes fails in forward mode over vmap where a result has no gradient.
        return _vmap(info, in_dims, *args, operation=_Primitives.apply)

    @staticmethod
    def forward(logits: Tensor, target: Tensor, request: str) -> tuple[Tensor, Tensor]:
        primitives, saved = row_primitives(logits, target, request)
        return primitives, saved

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        logits, target, ctx.request = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(logits, target, *output)
        ctx.save_for_forward(logits, target)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        backward: Any = _PrimitivesBackward.apply if is_transformed() else row_primitives_backward
        return backward(grads[0], *ctx.saved_tensors, ctx.request), None, None

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> tuple[Tensor, None]:
        logits, target = ctx.saved_tensors
        return plain_jvp(lambda z: plain_primitives(z, target, ctx.request), (logits,), (tangents[0],)), None


class _PrimitivesBackward(torch.autograd.Function):
    """The gradient, differentiable through plain torch: second derivatives are rare, so they need not be fast."""

    generate_vmap_rule = True

    @staticmethod
    def forward(grads: Tensor, logits: Tensor, target: Tensor, primitives: Tensor, saved: Tensor, request: str) -> Tensor:
        gradient: Tensor = row_primitives_backward(grads, logits, target, primitives, saved, request)
        return gradient

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        grads, logits, target, _, _, ctx.request = inputs
        ctx.save_for_backward(grads, logits, target)
        ctx.save_for_forward(grads, logits, target)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        grads, logits, target = ctx.saved_tensors
        _, pull, *_ = torch.func.vjp(plain_gradient(target, ctx.request), grads, logits)
        return (*pull(gradients[0]), None, None, None, None)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        grads, logits, target = ctx.saved_tensors
        tangent = tuple(torch.zeros_like(x) if t is None else t for x, t in zip((grads, logits), tangents, strict=False))
        return plain_jvp(plain_gradient(target, ctx.request), (grads, logits), tangent)


def _vmap(
    info: Any, in_dims: tuple[Any, ...], *args: Any, operation: Any = row_primitives
) -> tuple[tuple[Tensor, Tensor], tuple[int, int]]:
    flat, rows = _fold_batch(info.batch_size, in_dims, args, row_axes=(0, 0, None))
    primitives, saved = (t.unflatten(1, (info.batch_size, rows)) for t in operation(*flat))
    return (primitives, saved), (1, 1)


def _vmap_backward(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Tensor, int]:
    flat, rows = _fold_batch(info.batch_size, in_dims, args, row_axes=(1, 0, 0, 1, 1, None))
    return row_primitives_backward(*flat).unflatten(0, (info.batch_size, rows)), 0


def _fold_batch(
    batch: int, in_dims: tuple[Any, ...], args: tuple[Any, ...], row_axes: tuple[int | None, ...]
) -> tuple[list[Any], int]:
    """Rows are independent, so a mapped axis becomes more rows."""
    flat, rows = [], 0
    for arg, in_dim, axis in zip(args, in_dims, row_axes, strict=True):
        if axis is None:
            flat.append(arg)
            continue
        mapped = arg.expand(batch, *arg.shape) if in_dim is None else arg.movedim(in_dim, 0)
        moved = mapped.movedim(0, axis)
        rows = moved.shape[axis + 1]
        flat.append(moved.flatten(axis, axis + 1))
    return flat, rows


row_primitives.register_vmap(_vmap)
row_primitives_backward.register_vmap(_vmap_backward)
row_primitives.register_autograd(_Primitives.backward, setup_context=_Primitives.setup_context)
row_primitives_backward.register_autograd(_PrimitivesBackward.backward, setup_context=_PrimitivesBackward.setup_context)


def _directly(logits: Tensor) -> bool:
    """Whether to call the backend itself instead of the operation around it.

    The dispatcher costs a tenth of a millisecond a step, so eager code goes past it, except where something relies on the
    operation: a dispatch mode, a tensor subclass, several gradients at once, or the gradient of a gradient.
    """
    if is_compiling():
        return is_traced(logits)
    return not (is_watched(logits) or torch.is_grad_enabled() or is_mapped())


class _Passes(torch.autograd.Function):
    """The two passes as autograd alone needs them: a result for each primitive, and one without a gradient costs nothing."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, request: str) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        ctx.request, ctx.backend, ctx.is_small, ctx.recorded = request, None, False, is_compiling()
        if not _directly(logits):
            values: tuple[Tensor, Tensor] = row_primitives(logits, target, request)
            ctx.save_for_backward(logits, target, *values)
            return values[0].unbind()
        ctx.backend = backend = backend_for(logits)
        asked, dtype = decode(request), accumulation_dtype(logits.dtype)
        if backend is not REFERENCE:
            primitives, saved = backend.forward(logits, target, asked, dtype)
            ctx.save_for_backward(logits, target, primitives, saved)
            return primitives.unbind()
        if not is_compiling() and logits.is_cpu and 0 < logits.numel() <= small.SMALL:
            done = reference.small_pass(logits, target, asked, dtype)
            if reference.finite_sum(done.values) is not None:
                ctx.is_small = True
                ctx.save_for_backward(logits, target, *small.to_keep(done))
                return tuple([value.squeeze(1) for value in done.values])
        passed = reference.first_pass(logits, target, asked, dtype)
        ctx.save_for_backward(logits, target, *passed.primitives, *passed.saved)
        return tuple(passed.primitives)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor, None, None]:
        if not ctx.recorded or is_compiling():
            return _Passes._backward(ctx, grads), None, None
        with Recorded():
            return _Passes._backward(ctx, grads), None, None

    @staticmethod
    def _backward(ctx: Any, grads: tuple[Tensor | None, ...]) -> Any:
        logits, target, *rest = ctx.saved_tensors
        directly = _directly(logits) and not is_transformed()  # a vmap over gradients wants the operation
        if directly and ctx.is_small:
            done = small.kept(rest)
            if not done.values[2:]:
                done = done._replace(e=done.e.clone())  # the gradient is formed in its place, and may be wanted again
            columns = [None if grad is None else grad.unsqueeze(1) for grad in grads]
            gradient = small.second_pass(columns, done, decode(ctx.request), reference.LEAST[done.d.dtype])
            return gradient if gradient.dtype == logits.dtype else gradient.to(logits.dtype)
        if directly and ctx.backend is REFERENCE:
            passed = reference.Passed(rest[: len(grads)], rest[len(grads) :])
            return reference.second_pass(grads, logits, target, passed, decode(ctx.request))
        if ctx.backend is REFERENCE:
            rest = list(row_primitives(logits.detach(), target, ctx.request))
        stacked = torch.stack([torch.zeros_like(rest[0][0]) if grad is None else grad for grad in grads])
        if directly:
            return ctx.backend.backward(stacked, logits, target, *rest, decode(ctx.request))
        return row_primitives_backward(stacked, logits, target, *rest, ctx.request)


def rows_of_primitives(logits: Tensor, target: Tensor, request: str) -> tuple[Tensor, ...]:
    """The primitives of ``logits [N, K]`` for ``target [N]``, each ``[N]``: nll, log_miss, then those that were requested."""
    rows: tuple[Tensor, ...]
    if is_compiling() and not is_traced(logits):
        rows = row_primitives(logits, target, request)[0].unbind()
    elif is_transformed():
        rows = _Primitives.apply(logits, target, request)[0].unbind()  # type: ignore[no-untyped-call]
    else:
        rows = _Passes.apply(logits, target, request)  # type: ignore[no-untyped-call]
    return rows
