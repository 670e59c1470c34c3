"""The registered operations: what autograd, torch.func, vmap and compilers see of the two passes."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the name every PyTorch reader expects
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import Parameter

from noiseproof.primitives import reference, small
from noiseproof.primitives.backends import REFERENCE, backend_for, is_traced
from noiseproof.primitives.compiling import Recorded, is_compiling
from noiseproof.primitives.request import decode, focal_term

__all__ = ["accumulation_dtype", "can_look", "is_transformed", "only_autograd", "plain_primitives", "primitives_of"]
__all__ += ["rows_of_labels", "rows_of_primitives", "transforms_active"]
__all__ += ["row_primitives", "row_primitives_backward"]


_functorch_is_active = torch._C._are_functorch_transforms_active


def forward_pass(logits: Tensor, target: Tensor, request: str) -> tuple[Tensor, Tensor]:
    """``logits [N, K]``, ``target [N]`` -> primitives ``[2 + R, N]``, nll and log_miss first; what the backward pass wants.

    Results are float64 for float64 logits and float32 otherwise. A target out of range raises IndexError on the CPU
    (compiled, torch's own RuntimeError); elsewhere its row is NaN, because looking would stall the device.
    """
    return backend_for(logits).forward(logits, target, decode(request), accumulation_dtype(logits.dtype))


def backward_pass(grads: Tensor, logits: Tensor, target: Tensor, primitives: Tensor, saved: Tensor, request: str) -> Tensor:
    """The gradient with respect to the logits, in their dtype, given that of each primitive (``grads [2 + R, N]``)."""
    return backend_for(logits).backward(grads, logits, target, primitives, saved, decode(request))


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
    return values if reference.on_cpu(target) else torch.where(labels == target, values, math.nan)


def accumulation_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which statistics of logits of ``dtype`` are computed and returned."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def plain_primitives(logits: Tensor, target: Tensor, request: str) -> Tensor:
    """The same primitives in plain differentiable torch, for second derivatives and as a definition to test against."""
    z = logits.to(accumulation_dtype(logits.dtype))
    y = target[:, None]
    z = torch.where(z.gather(1, y) == -math.inf, z.detach(), z)  # no gradient where the label is masked
    z_y = z.gather(1, y)
    is_label = torch.zeros_like(z, dtype=torch.bool).scatter(1, y, True)
    others = z.masked_fill(is_label, -math.inf)
    lse = torch.logsumexp(others, 1, keepdim=True)
    margin = lse - z_y
    log_miss = F.logsigmoid(margin)
    left_out = is_label | (z == -math.inf)
    nll_k = ((lse - z) - log_miss).masked_fill(left_out, 1.0)
    rows = [F.softplus(margin, threshold=80.0)[:, 0], log_miss[:, 0]]
    for primitive in decode(request):
        if primitive.kind == "lead":
            rows.append((z_y - others.amax(1, keepdim=True))[:, 0].detach())
            continue
        if primitive.kind == "nll":
            terms = nll_k
        elif primitive.kind == "power":
            terms = torch.exp(-primitive.exponent * nll_k)
        else:
            log_miss_k = torch.log(torch.expm1(-nll_k).neg().clamp_min(torch.finfo(z.dtype).tiny))
            terms = focal_term(primitive, nll_k, log_miss_k)
        rows.append(terms.masked_fill(left_out, 0.0).sum(1))
    return torch.stack(rows)


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


def is_transformed() -> bool:
    """Whether a torch.func transform or forward-mode AD is active: they need a Function with ``setup_context`` and ``jvp``."""
    return not torch.compiler.is_compiling() and transforms_active()


def transforms_active() -> bool:
    """:func:`is_transformed`, where nothing is compiled."""
    return _functorch_is_active() or forward_ad._current_level >= 0


def only_autograd() -> bool:
    """Whether nothing but autograd looks at what is computed: no compiler, no torch.func transform, no forward-mode AD."""
    return not is_compiling() and not is_transformed()


class _Primitives(torch.autograd.Function):
    """The operation with its gradient, under autograd, torch.func and forward-mode AD alike."""

    generate_vmap_rule = True

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
        return _plain_jvp(lambda z: plain_primitives(z, target, ctx.request), (logits,), (tangents[0],)), None


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
        _, pull, *_ = torch.func.vjp(_plain_gradient(target, ctx.request), grads, logits)
        return (*pull(gradients[0]), None, None, None, None)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        grads, logits, target = ctx.saved_tensors
        tangent = tuple(torch.zeros_like(x) if t is None else t for x, t in zip((grads, logits), tangents, strict=False))
        return _plain_jvp(_plain_gradient(target, ctx.request), (grads, logits), tangent)


def _plain_gradient(target: Tensor, request: str) -> Callable[[Tensor, Tensor], Tensor]:
    """The gradient with respect to the logits as a function that can itself be differentiated."""

    def gradient(grads: Tensor, logits: Tensor) -> Tensor:
        _, pull, *_ = torch.func.vjp(lambda z: plain_primitives(z, target, request), logits)
        result: Tensor = pull(grads)[0]
        return result

    return gradient


def _plain_jvp(function: Callable[..., Tensor], values: tuple[Tensor, ...], tangents: tuple[Tensor, ...]) -> Tensor:
    """As the gradient of the gradient, which is linear in what it is given: torch does not nest forward modes."""
    value, pull, *_ = torch.func.vjp(function, *values)
    _, pull_again, *_ = torch.func.vjp(pull, torch.zeros_like(value))
    result: Tensor = pull_again(tangents)[0]
    return result


def _vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[tuple[Tensor, Tensor], tuple[int, int]]:
    flat, rows = _fold_batch(info.batch_size, in_dims, args, row_axes=(0, 0, None))
    primitives, saved = (t.unflatten(1, (info.batch_size, rows)) for t in row_primitives(*flat))
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
    operation: a dispatch mode, a tensor subclass, or the gradient of a gradient.
    """
    if is_compiling():
        return is_traced(logits)
    watched = type(logits) not in (Tensor, Parameter) or torch._C._len_torch_dispatch_stack() > 0
    return not watched and not torch.is_grad_enabled()


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
        if _is_small(logits):
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
        directly = _directly(logits)
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


def _is_small(logits: Tensor) -> bool:
    return not is_compiling() and logits.is_cpu and 0 < logits.numel() <= small.SMALL


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


def primitives_of(logits: Tensor, target: Tensor, keys: Sequence[str]) -> Tensor:
    """The primitives ``[2 + len(keys), N]`` of ``logits [N, K]`` for ``target [N]``: nll, log_miss, then these."""
    return torch.stack(rows_of_primitives(logits, target, ";".join(keys)))


def can_look(tensor: Tensor) -> bool:
    """Whether reading a value is cheap and possible: an ordinary tensor on the CPU that nobody traces or maps over."""
    if is_compiling() or type(tensor) is not Tensor or not tensor.is_cpu:
        return False
    return not (torch._C._len_torch_dispatch_stack() > 0 or torch._C._are_functorch_transforms_active())
