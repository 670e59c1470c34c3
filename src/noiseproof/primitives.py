r"""The one operation that reads logits: a few numbers per row, with its own gradient.

One row is the logits ``z`` of one example with label ``y`` and ``p = softmax(z)``. Split the softmax at the label: the
other classes have a softmax ``r`` of their own, and one number, the margin, says how the label stands against them::

    margin = logsumexp_{k != y} z_k - z_y        -log p_y = softplus(margin)        1 - p_y = sigmoid(margin)
    r_k    = softmax of z over k != y                 p_k = (1 - p_y) r_k

Every loss of the family is a function of the margin and of a few sums over the *other* classes. These are the primitives::

    primitive                                              d/dz_j, j != y                  d/dz_y
    margin                                                 r_j                             -1
    spread  = sum_{k != y} -log r_k                        (K-1) r_j - 1                    0
    power_q = sum_{k != y} p_k^q                           q (p_j^q - p_j power_q)         -q p_y power_q
    focal   = sum_{k != y} f_k,  f = (1-p)^gamma (-log p)  p_j H - h_j                      p_y H
    room    = sum_{k != y} max(C - f_k, 0)                 h_j - p_j H                     -p_y H
    lead    = z_y - max_{k != y} z_k                       (a constant: for comparisons only)

with h the derivative of a focal term by -log p (in ``room`` only of those below C, the term of a smallest probability
``minimum``) and H its sum. With e_j = exp(z_j - max_k z_k) and d = sum_{j != y} e_j the whole gradient has one form, whatever
the loss: ``dz_j = c0 e_j + c2 (e_j^q - e_j) + u + w h_j``.

Why not softmax and closed forms: where the network is sure, of the label or of another class, ``1 - p_y``, ``p_j - power_2``
and their like are differences of equal numbers, and float32 returns noise. The margin removes the first. For the second,
with D = sum_k e_k,

    p_j^q - p_j power_q = D^-q [ (e_j^q - e_j) + e_j G/D ],        G = e_y + sum_{k != y} (e_k - e_k^q)
                        = D^-q [ e_j^q - e_j (1 - G/D) ],          1 - G/D = power_q D^(q-1)

In the first form the largest class, if it is not the label, has e = 1 and drops out of the round bracket and of the sum
exactly; if it is the label, the second form has nothing to cancel. Measured against 60-digit arithmetic the worst row's
gradient is within 1e-5 at every confidence, right or wrong (tests/test_accuracy.py).

A backend for a device registers its two functions with ``row_primitives.register_kernel(device)`` and
``row_primitives_backward.register_kernel(device)``; what is below is the reference, and runs everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812 - the name every PyTorch reader expects
from torch import Tensor

__all__ = ["Primitive", "primitives_of", "row_primitives", "row_primitives_backward"]

# Rows go in chunks. On the CPU all passes over a chunk then stay in the cache, and temporaries are chunk-sized; elsewhere
# a chunk is large enough that the number of launches does not count.
CPU_CHUNK = 2**19
OTHER_CHUNK = 2**27


Kind = Literal["spread", "power", "focal", "room", "lead"]
FOCAL_KINDS = ("focal", "room")


class Primitive(NamedTuple):
    """One number per row, besides the margin, that the operation is asked for."""

    kind: Kind
    exponent: float = 0.0
    """q of power, gamma of focal and room"""
    minimum: float = 0.0
    """room: probabilities are clipped below at this value, and have no gradient there"""
    detach: bool = False
    """focal and room: the weight (1-p)^gamma is a constant to the gradient"""

    @property
    def key(self) -> str:
        """A text that identifies it."""
        return f"{self.kind} {self.exponent!r} {self.minimum!r} {'detached' if self.detach else 'whole'}"

    @property
    def ceiling(self) -> float:
        """room: C, the largest value of a focal term."""
        return -math.log(self.minimum) * float((1.0 - self.minimum) ** self.exponent)


def encode(primitives: Sequence[Primitive]) -> str:
    """As the one string that an operation's schema can carry.

    Text, because a compiler may make a symbol of a number that differs between two losses, but never of text.
    """
    return ";".join(primitive.key for primitive in primitives)


def decode(request: str) -> tuple[Primitive, ...]:
    """The inverse of :func:`encode`, for backends."""
    return tuple(parse(key) for key in request.split(";")) if request else ()


def parse(key: str) -> Primitive:
    """The primitive with this :attr:`Primitive.key`."""
    kind, exponent, minimum, detach = key.split(" ")
    return Primitive(kind, float(exponent), float(minimum), detach == "detached")  # type: ignore[arg-type]


@torch.library.custom_op("noiseproof::row_primitives", mutates_args=())
def row_primitives(logits: Tensor, target: Tensor, request: str) -> tuple[Tensor, Tensor]:
    """``logits [N, K]``, ``target [N]`` -> primitives ``[1 + R, N]``, margin first, and ``[2, N]`` for the backward pass.

    Results are float64 for float64 logits and float32 otherwise. A target out of range raises IndexError on the CPU;
    elsewhere its row is NaN, because looking would stall the device.
    """
    asked = decode(request)
    rows, classes = logits.shape
    dtype = accumulation_dtype(logits.dtype)
    primitives = logits.new_empty((1 + len(asked), rows), dtype=dtype)
    saved = logits.new_empty((2, rows), dtype=dtype)
    labels, valid = _labels(target, classes)
    z_y = logits.gather(1, labels)[:, 0].to(dtype)
    focal = any(p.kind in FOCAL_KINDS for p in asked)
    step = _chunk_rows(logits)
    work = logits.new_empty((min(step, rows), classes), dtype=dtype)
    for z, y, own, out, top, log_d in _split_rows(step, logits, labels, z_y, primitives.T, *saved):
        top.copy_(z.amax(1))
        shifted = torch.sub(z, top[:, None], out=work[: len(z)])
        for i, primitive in enumerate(asked, start=1):
            if primitive.kind == "spread":
                torch.sum(shifted, 1, out=out[:, i])
        e = _exp_(shifted.clone() if any(_needs_shifted(p) for p in asked) else shifted).scatter_(1, y, 0.0)
        log_d.copy_(_log_sum(e) if focal else e.sum(1).log_())
        for i, primitive in enumerate(asked, start=1):
            if primitive.kind == "power" and primitive.exponent == 2:
                torch.linalg.vector_norm(e, dim=1, out=out[:, i])
            elif primitive.kind == "power":
                out[:, i] = _exp_(primitive.exponent * shifted).scatter_(1, y, 0.0).sum(1)
            elif primitive.kind == "lead":
                torch.sub(own - top, e.amax(1).log_(), out=out[:, i])
            elif primitive.kind in FOCAL_KINDS:
                nll = _nll_others(shifted, log_d, top + log_d - own)
                terms = _focal_weight(nll, primitive.exponent).mul_(nll)
                if primitive.kind == "room":
                    terms.neg_().add_(primitive.ceiling).clamp_min_(0.0)
                out[:, i] = terms.scatter_(1, y, 0.0).sum(1)
    top, log_d = saved
    own = z_y - top
    torch.sub(log_d, own, out=primitives[0])
    for row, primitive in zip(primitives[1:], asked, strict=True):
        if primitive.kind == "spread":
            row.neg_().add_(own).clamp_min_(0.0).add_(log_d, alpha=classes - 1)
        elif primitive.kind == "power":
            inverse = 1 / (torch.exp(log_d) + torch.exp(own))
            (row.mul_(inverse).square_() if primitive.exponent == 2 else row.mul_(inverse**primitive.exponent))
    return primitives if valid is None else torch.where(valid, primitives, math.nan), saved


@torch.library.custom_op("noiseproof::row_primitives_backward", mutates_args=())
def row_primitives_backward(
    grads: Tensor, logits: Tensor, target: Tensor, primitives: Tensor, saved: Tensor, request: str
) -> Tensor:
    """The gradient with respect to the logits, in their dtype, given that of each primitive (``grads [1 + R, N]``)."""
    asked = decode(request)
    classes = logits.shape[1]
    dtype = grads.dtype
    gradient = torch.empty_like(logits, memory_format=torch.contiguous_format)
    labels, _ = _labels(target, classes)
    top, log_d = saved[:, :, None]
    margin, inverse_d, g = primitives[0, :, None], torch.exp(-log_d), grads[:, :, None]
    e_y = torch.exp(log_d - margin)
    label_is_top = e_y >= 1
    not_top = (~label_is_top).to(dtype)
    inverse_sum = 1 / (torch.exp(log_d) + e_y)
    c0, c2, dz_y = g[0], list(g[1:]), -g[0]
    for i, primitive in enumerate(asked):
        if primitive.kind == "spread":
            c0, c2[i] = torch.add(c0, c2[i], alpha=classes - 1), -c2[i]
        elif primitive.kind == "power":
            weight = primitive.exponent * c2[i]
            dz_y = dz_y - weight * e_y * inverse_sum * primitives[1 + i, :, None]
            c2[i] = weight * inverse_sum**primitive.exponent
    columns = (labels, top, margin, inverse_d, inverse_sum, e_y, not_top, c0 * inverse_d, dz_y, *c2, *primitives[1:, :, None])
    step = _chunk_rows(logits)
    work = logits.new_empty((min(step, len(logits)), classes), dtype=dtype)
    for z, out, y, top, margin, inverse_d, inverse_sum, e_y, not_top, c0, dz_y, *rest in _split_rows(
        step, logits, gradient, *columns
    ):
        # In float32 the exponentials are formed in the result itself, and become the gradient in place.
        e = torch.sub(z, top, out=out) if out.dtype == dtype else z.to(dtype).sub_(top)
        shifted = e.clone() if any(_needs_shifted(p) for p in asked) else e
        _exp_(e)
        uniform: Tensor | None = None
        extra: Tensor | None = None
        for primitive, c, value in zip(asked, rest[: len(asked)], rest[len(asked) :], strict=True):
            if primitive.kind == "spread":
                uniform = c
            elif primitive.kind == "power":
                q = primitive.exponent
                if q == 2:
                    difference = torch.sub(e, not_top, out=work[: len(e)] if extra is None else None).mul_(e)
                else:
                    difference = _exp_(q * shifted).sub_(e * not_top)
                g_over_sum = (e_y**q - difference.sum(1, keepdim=True)).mul_(inverse_sum)
                c0 = torch.addcmul(c0, torch.where(not_top > 0, g_over_sum, -value * inverse_sum ** (1 - q)), c)
                extra = _add(extra, difference.mul_(c))
            elif primitive.kind in FOCAL_KINDS:
                log_d = _log_sum(e.scatter(1, y, 0.0))
                h = _focal_slope(_nll_others(shifted, log_d, margin[:, 0]), primitive).scatter_(1, y, 0.0)
                total = c * h.sum(1, keepdim=True)
                c0 = c0 + total * torch.sigmoid(margin) * inverse_d
                dz_y = dz_y + total * torch.sigmoid(-margin)
                extra = _add(extra, h.mul_(-c))
        if extra is None:
            e.mul_(c0)
        else:
            torch.addcmul(extra, e, c0, out=e)
        if uniform is not None:
            e.add_(uniform)
        e.scatter_(1, y, dz_y)
        if e.dtype != out.dtype:
            out.copy_(e)
    return gradient


def _split_rows(step: int, *tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    rows = len(tensors[0])
    if rows <= step:
        return iter([tensors])
    return (tuple(t[start : start + step] for t in tensors) for start in range(0, rows, step))


def _chunk_rows(logits: Tensor) -> int:
    return max(1, (CPU_CHUNK if logits.device.type == "cpu" else OTHER_CHUNK) // max(1, logits.shape[1]))


def _nll_others(shifted: Tensor, log_d: Tensor, margin: Tensor) -> Tensor:
    """``-log p_k = -log(1 - p_y) - log r_k`` of the classes other than the label."""
    return (log_d - F.logsigmoid(margin))[:, None] - shifted


def accumulation_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which statistics of logits of ``dtype`` are computed and returned."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def _labels(target: Tensor, classes: int) -> tuple[Tensor, Tensor | None]:
    """The labels as a column, safe to gather with, and which of them are valid (None: all, and it has been checked)."""
    valid = (target >= 0) & (target < classes)
    if target.device.type != "cpu":
        return target.clamp(0, classes - 1)[:, None], valid
    if not bool(valid.all()):
        wrong = target[~valid][0].item()
        raise IndexError(f"target must be in [0, {classes - 1}] for {classes} classes, got {wrong}")
    return target[:, None], None


def _exp_(x: Tensor) -> Tensor:
    """``exp`` of non-positive numbers, in place, with about 1e-35 (float64: 1e-305) for what would underflow.

    Vector libraries take a slow path for results that underflow (measured on the CPU: 2,100 us instead of 13 for 65,536),
    and a sum of these can be divided by without overflow.
    """
    return x.clamp_min_(math.ceil(math.log(torch.finfo(x.dtype).tiny)) + 7).exp_()


def _log_sum(e: Tensor) -> Tensor:
    """``log sum e`` without losing the small ones beside the largest, which is 1 unless that is the label.

    The margin needs only a small absolute error of it; a focal term of the largest class needs a small relative one.
    """
    largest = e == 1
    ones = largest.sum(1)
    rest = e.masked_fill(largest, 0.0).sum(1)
    return torch.where(ones > 0, torch.log1p(rest + (ones - 1).clamp_min_(0)), torch.log(rest))


def _needs_shifted(primitive: Primitive) -> bool:
    """Whether a primitive wants the shifted logits beside their exponentials."""
    return primitive.kind in FOCAL_KINDS or (primitive.kind == "power" and primitive.exponent != 2)


def _focal_weight(nll: Tensor, gamma: float) -> Tensor:
    miss = torch.expm1(-nll).neg_()
    return miss.sqrt_() if gamma == 0.5 else miss.pow_(gamma)


def _focal_slope(nll: Tensor, primitive: Primitive) -> Tensor:
    """h, the derivative by -log p of a focal term, or of its room.

    ``p (-log p) / (1-p)`` tends to 1 as p does, where plain autograd gives NaN.
    """
    gamma = primitive.exponent
    h = _focal_weight(nll, gamma)
    if not primitive.detach and gamma != 0:
        tiny = torch.finfo(nll.dtype).tiny
        h = h * (1 + gamma * torch.exp(-nll) * nll / torch.expm1(-nll).neg_().clamp_min_(tiny))
    if primitive.kind == "room":
        return h.neg_().masked_fill_(nll >= -math.log(primitive.minimum), 0.0)
    return h


def _add(total: Tensor | None, term: Tensor) -> Tensor:
    return term if total is None else total.add_(term)


def focal_term(primitive: Primitive, nll: Tensor, log_miss: Tensor) -> Tensor:
    """One class's term of a focal primitive, in plain differentiable torch, from its -log p and log(1-p)."""
    # miss**gamma has an infinite slope at 0 for gamma < 1; exp(gamma log miss) has a finite one.
    term = torch.exp(primitive.exponent * (log_miss.detach() if primitive.detach else log_miss)) * nll
    return (primitive.ceiling - term).clamp_min(0.0) if primitive.kind == "room" else term


def plain_primitives(logits: Tensor, target: Tensor, request: str) -> Tensor:
    """The same primitives in plain differentiable torch, for second derivatives and as a definition to test against."""
    z = logits.to(accumulation_dtype(logits.dtype))
    y = target[:, None]
    z_y = z.gather(1, y)
    is_label = torch.zeros_like(z, dtype=torch.bool).scatter(1, y, True)
    others = z.masked_fill(is_label, -math.inf)
    lse = torch.logsumexp(others, 1, keepdim=True)
    margin = lse - z_y
    log_r = (z - lse).masked_fill(is_label, 0.0)
    rows = [margin[:, 0]]
    for primitive in decode(request):
        if primitive.kind == "spread":
            rows.append(-log_r.sum(1))
        elif primitive.kind == "power":
            log_p = log_r + F.logsigmoid(margin)
            rows.append(torch.exp(primitive.exponent * log_p).masked_fill(is_label, 0.0).sum(1))
        elif primitive.kind in FOCAL_KINDS:
            nll = -log_r - F.logsigmoid(margin)
            log_miss = torch.log(torch.expm1(-nll).neg().clamp_min(torch.finfo(z.dtype).tiny))
            rows.append(focal_term(primitive, nll, log_miss).masked_fill(is_label, 0.0).sum(1))
        else:
            rows.append((z_y - others.amax(1, keepdim=True))[:, 0].detach())
    return torch.stack(rows)


@row_primitives.register_fake
def _(logits: Tensor, target: Tensor, request: str) -> tuple[Tensor, Tensor]:
    dtype = accumulation_dtype(logits.dtype)
    rows = logits.shape[0]
    return logits.new_empty((1 + len(decode(request)), rows), dtype=dtype), logits.new_empty((2, rows), dtype=dtype)


@row_primitives_backward.register_fake
def _(grads: Tensor, logits: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(logits, memory_format=torch.contiguous_format)


def _under_torch_func() -> bool:
    """Whether a torch.func transform is at work: it differentiates Functions but not registered operations, which in turn
    cost a third of a millisecond a step less."""
    return not torch.compiler.is_compiling() and torch._C._are_functorch_transforms_active()


class _Primitives(torch.autograd.Function):
    """The operation with its gradient, under autograd and under torch.func alike."""

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
        backward: Any = _PrimitivesBackward.apply if _under_torch_func() else row_primitives_backward
        return backward(grads[0], *ctx.saved_tensors, ctx.request), None, None

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> tuple[Tensor, None]:
        logits, target = ctx.saved_tensors
        return _plain_jvp(lambda z: plain_primitives(z, target, ctx.request), (logits,), (tangents[0],)), None


class _PrimitivesBackward(torch.autograd.Function):
    """The gradient, with its own gradient through plain torch: second derivatives are rare, so right comes before fast."""

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
    _, tangent, *_ = torch.func.jvp(function, values, tangents)
    result: Tensor = tangent
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
        moved = (
            arg.unsqueeze(axis).expand(*arg.shape[:axis], batch, *arg.shape[axis:])
            if in_dim is None
            else arg.movedim(in_dim, axis)
        )
        rows = moved.shape[axis + 1]
        flat.append(moved.flatten(axis, axis + 1))
    return flat, rows


row_primitives.register_vmap(_vmap)
row_primitives_backward.register_vmap(_vmap_backward)
row_primitives.register_autograd(_Primitives.backward, setup_context=_Primitives.setup_context)
row_primitives_backward.register_autograd(_PrimitivesBackward.backward, setup_context=_PrimitivesBackward.setup_context)


def primitives_of(logits: Tensor, target: Tensor, keys: Sequence[str]) -> Tensor:
    """The primitives ``[1 + len(keys), N]`` of ``logits [N, K]`` for ``target [N]``: the margin, then those with these keys."""
    operation: Any = _Primitives.apply if _under_torch_func() else row_primitives
    values: Tensor = operation(logits, target, ";".join(keys))[0]
    return values
