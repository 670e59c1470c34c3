"""The registered operations: what autograd, torch.func, vmap and compilers see of the two passes."""

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the name every PyTorch reader expects
from torch import Tensor

from noiseproof.core import reference, small
from noiseproof.core.backends import REFERENCE, backend_for, backend_of_device, is_traced
from noiseproof.core.dispatch_state import Recording, has_dispatch_mode, is_compiling, is_mapped, is_transformed, on_cpu
from noiseproof.core.row_sums import accumulation_dtype, decode, plain_gradient, plain_jvp, plain_statistics


def forward_pass(logits: Tensor, target: Tensor, needs_key: str) -> tuple[Tensor, Tensor]:
    """``logits [N, K]``, ``target [N]`` -> statistics ``[2 + R, N]``, nll and log1m first; what the backward pass wants.

    Results are float64 for float64 logits and float32 otherwise. A target out of range raises IndexError on the CPU
    (compiled, torch's own RuntimeError); elsewhere its row is NaN, because looking would stall the device.
    """
    # The device's also where a compiler looks on: what it records is this operation, whose two passes must be of one backend.
    backend = backend_of_device(logits.device.type)
    return backend.forward(logits, target, decode(needs_key), accumulation_dtype(logits.dtype))


def backward_pass(grads: Tensor, logits: Tensor, target: Tensor, statistics: Tensor, saved: Tensor, needs_key: str) -> Tensor:
    """The gradient with respect to the logits, in their dtype, given that of each row sum (``grads [2 + R, N]``)."""
    backend = backend_of_device(logits.device.type)
    return backend.backward(grads, logits, target, statistics, saved, decode(needs_key))


# Inductor keeps compiled graphs on disk by the names of their operations, so this one changes when its results' shapes do.
@torch.library.custom_op("noiseproof::row_statistics_4", mutates_args=())
def row_statistics_op(logits: Tensor, target: Tensor, needs_key: str) -> tuple[Tensor, Tensor]:
    """:func:`forward_pass` with results of one shape, whatever the backend: a fifth row says that all classes are left."""
    statistics, saved = forward_pass(logits, target, needs_key)
    missing = _saved_rows(needs_key) - len(saved)
    return statistics, F.pad(saved, (0, 0, 0, missing), value=logits.shape[1] - 1) if missing else saved


def _saved_rows(needs_key: str) -> int:
    """The most that a backend keeps for its backward pass: the reference's five, and a sum for each row sum."""
    return 5 + len(decode(needs_key))


row_statistics_backward = torch.library.custom_op("noiseproof::row_statistics_backward", backward_pass, mutates_args=())


@torch.library.custom_op("noiseproof::checked_labels", mutates_args=())
def checked_labels(target: Tensor, classes: int) -> Tensor:
    """Labels that are safe to index with: IndexError on the CPU if one is out of range, clamped elsewhere."""
    return reference.checked_labels(target, classes)[0].clone()


def rows_of_labels(rows: Callable[[Tensor], Tensor], target: Tensor, classes: int) -> Tensor:
    """``rows(target)`` for a function that indexes with labels: one out of range is treated as in :func:`row_statistics_op`."""
    labels = checked_labels(target, classes)
    values = rows(labels)
    return values if on_cpu(target) else torch.where(labels == target, values, math.nan)


@row_statistics_op.register_fake
def _(logits: Tensor, target: Tensor, needs_key: str) -> tuple[Tensor, Tensor]:
    dtype = accumulation_dtype(logits.dtype)
    rows = logits.shape[0]
    return logits.new_empty((2 + len(decode(needs_key)), rows), dtype=dtype), logits.new_empty(
        (_saved_rows(needs_key), rows), dtype=dtype
    )


@row_statistics_backward.register_fake
def _(grads: Tensor, logits: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(logits, memory_format=torch.contiguous_format)


@checked_labels.register_fake
def _(target: Tensor, classes: int) -> Tensor:
    return torch.empty_like(target)


@checked_labels.register_vmap
def _(info: Any, in_dims: tuple[Any, ...], target: Tensor, classes: int) -> tuple[Tensor, Any]:
    return checked_labels(target, classes), in_dims[0]


class _Statistics(torch.autograd.Function):
    """The operation with its gradient, under autograd, torch.func and forward-mode AD alike."""

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[tuple[Tensor, Tensor], tuple[int, int]]:
        # A rule that torch makes fails in forward mode over vmap where a result has no gradient.
        return _vmap(info, in_dims, *args, operation=_Statistics.apply)

    @staticmethod
    def forward(logits: Tensor, target: Tensor, needs_key: str) -> tuple[Tensor, Tensor]:
        statistics, saved = row_statistics_op(logits, target, needs_key)
        return statistics, saved

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        logits, target, ctx.needs_key = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(logits, target, *output)
        ctx.save_for_forward(logits, target)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        backward: Any = _StatisticsBackward.apply if is_transformed() else row_statistics_backward
        return backward(grads[0], *ctx.saved_tensors, ctx.needs_key), None, None

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> tuple[Tensor, None]:
        logits, target = ctx.saved_tensors
        return plain_jvp(lambda z: plain_statistics(z, target, ctx.needs_key), (logits,), (tangents[0],)), None


class _StatisticsBackward(torch.autograd.Function):
    """The gradient, differentiable through plain torch: second derivatives are rare, so they need not be fast."""

    generate_vmap_rule = True

    @staticmethod
    def forward(grads: Tensor, logits: Tensor, target: Tensor, statistics: Tensor, saved: Tensor, needs_key: str) -> Tensor:
        gradient: Tensor = row_statistics_backward(grads, logits, target, statistics, saved, needs_key)
        return gradient

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        grads, logits, target, _, _, ctx.needs_key = inputs
        ctx.save_for_backward(grads, logits, target)
        ctx.save_for_forward(grads, logits, target)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        grads, logits, target = ctx.saved_tensors
        _, pull, *_ = torch.func.vjp(plain_gradient(target, ctx.needs_key), grads, logits)
        return (*pull(gradients[0]), None, None, None, None)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        grads, logits, target = ctx.saved_tensors
        tangent = tuple(torch.zeros_like(x) if t is None else t for x, t in zip((grads, logits), tangents, strict=False))
        return plain_jvp(plain_gradient(target, ctx.needs_key), (grads, logits), tangent)


def _vmap(
    info: Any, in_dims: tuple[Any, ...], *args: Any, operation: Any = row_statistics_op
) -> tuple[tuple[Tensor, Tensor], tuple[int, int]]:
    flat, rows = _fold_batch(info.batch_size, in_dims, args, row_axes=(0, 0, None))
    statistics, saved = (t.unflatten(1, (info.batch_size, rows)) for t in operation(*flat))
    return (statistics, saved), (1, 1)


def _vmap_backward(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Tensor, int]:
    flat, rows = _fold_batch(info.batch_size, in_dims, args, row_axes=(1, 0, 0, 1, 1, None))
    return row_statistics_backward(*flat).unflatten(0, (info.batch_size, rows)), 0


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


row_statistics_op.register_vmap(_vmap)
row_statistics_backward.register_vmap(_vmap_backward)
row_statistics_op.register_autograd(_Statistics.backward, setup_context=_Statistics.setup_context)
row_statistics_backward.register_autograd(_StatisticsBackward.backward, setup_context=_StatisticsBackward.setup_context)


def _directly(logits: Tensor) -> bool:
    """Whether to call the backend itself instead of the operation around it.

    The dispatcher costs a tenth of a millisecond a step, so eager code goes past it, except where something relies on the
    operation: a dispatch mode, a tensor subclass, several gradients at once, or the gradient of a gradient.
    """
    if is_compiling():
        return is_traced(logits)
    return not (has_dispatch_mode(logits) or torch.is_grad_enabled() or is_mapped())


class _Passes(torch.autograd.Function):
    """The two passes as autograd alone needs them: a result for each row sum, and one without a gradient costs nothing."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, needs_key: str) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        ctx.needs_key, ctx.backend, ctx.is_small, ctx.recorded = needs_key, None, False, is_compiling()
        if not _directly(logits):
            values: tuple[Tensor, Tensor] = row_statistics_op(logits, target, needs_key)
            ctx.save_for_backward(logits, target, *values)
            return values[0].unbind()
        ctx.backend = backend = backend_for(logits)
        needs, dtype = decode(needs_key), accumulation_dtype(logits.dtype)
        if backend is not REFERENCE:
            statistics, saved = backend.forward(logits, target, needs, dtype)
            ctx.save_for_backward(logits, target, statistics, saved)
            return statistics.unbind()
        if not is_compiling() and logits.is_cpu and 0 < logits.numel() <= small.MAX_SMALL_BATCH:
            done = reference.small_pass(logits, target, needs, dtype)
            if reference.finite_sum(done.values) is not None:
                ctx.is_small = True
                ctx.save_for_backward(logits, target, *small.pack(done))
                return tuple([value.squeeze(1) for value in done.values])
        passed = reference.first_pass(logits, target, needs, dtype)
        ctx.save_for_backward(logits, target, *passed.statistics, *passed.saved)
        return tuple(passed.statistics)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor, None, None]:
        if not ctx.recorded or is_compiling():
            return _Passes._backward(ctx, grads), None, None
        with Recording():
            return _Passes._backward(ctx, grads), None, None

    @staticmethod
    def _backward(ctx: Any, grads: tuple[Tensor | None, ...]) -> Any:
        logits, target, *rest = ctx.saved_tensors
        directly = _directly(logits) and not is_transformed()  # a vmap over gradients wants the operation
        if directly and ctx.is_small:
            done = small.unpack(rest)
            if not done.values[2:]:
                done = done._replace(e=done.e.clone())  # the gradient is formed in its place, and may be wanted again
            columns = [None if grad is None else grad.unsqueeze(1) for grad in grads]
            gradient = small.second_pass(columns, done, decode(ctx.needs_key), reference.MIN_EXPONENT[done.d.dtype])
            return gradient if gradient.dtype == logits.dtype else gradient.to(logits.dtype)
        if directly and ctx.backend is REFERENCE:
            passed = reference.FirstPass(rest[: len(grads)], rest[len(grads) :])
            return reference.second_pass(grads, logits, target, passed, decode(ctx.needs_key))
        if ctx.backend is REFERENCE:
            rest = list(row_statistics_op(logits.detach(), target, ctx.needs_key))
        stacked = torch.stack([torch.zeros_like(rest[0][0]) if grad is None else grad for grad in grads])
        if directly:
            return ctx.backend.backward(stacked, logits, target, *rest, decode(ctx.needs_key))
        return row_statistics_backward(stacked, logits, target, *rest, ctx.needs_key)


def statistics_of_rows(logits: Tensor, target: Tensor, needs_key: str) -> tuple[Tensor, ...]:
    """The statistics of ``logits [N, K]`` for ``target [N]``, each ``[N]``: nll, log1m, then those that were requested."""
    rows: tuple[Tensor, ...]
    if is_compiling() and not is_traced(logits):
        rows = row_statistics_op(logits, target, needs_key)[0].unbind()
    elif is_transformed():
        rows = _Statistics.apply(logits, target, needs_key)[0].unbind()  # type: ignore[no-untyped-call]
    else:
        rows = _Passes.apply(logits, target, needs_key)  # type: ignore[no-untyped-call]
    return rows
