"""The two passes over the logits in plain torch: in chunks of rows, in place where that is possible.

Symbols are those of the package's derivation: ``shifted = z - max z``, ``e = exp(shifted)``, ``e_y`` that of the label,
``d`` its sum over the classes other than the label, ``D`` its sum over all.
"""

import math
import threading
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from noiseproof.primitives.request import FOCAL_KINDS, Primitive, ceiling

__all__ = ["backward", "checked_labels", "forward", "on_cpu", "scale"]

# Rows go in chunks. On the CPU all passes over a chunk then stay in the cache, and temporaries are chunk-sized; elsewhere
# a chunk is large enough that the number of launches does not count.
CPU_CHUNK = 2**19
OTHER_CHUNK = 2**27
# Up to so many classes differences of probabilities are formed from e - 1, which is exact where classes tie: nothing else is
# left of the gradient where the label is far below them. With more classes the other terms outweigh that error.
FEW = 64


class _Kept(threading.local):
    """What each thread keeps to work in."""

    def __init__(self) -> None:
        self.buffers: dict[torch.dtype, Tensor] = {}


_kept = _Kept()


def forward(logits: Tensor, target: Tensor, asked: Sequence[Primitive], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Primitives ``[2 + R, N]``, nll and log_miss first, and ``[4, N]``: ``max z``, ``z_y - max z``, ``d`` and ``log D``.

    Where classes may be masked a fifth row has how many of those other than the label are not, or -1 where the label is. A
    masked class makes a primitive infinite, so on the CPU one look at their sum tells; elsewhere it would stall the device.
    """
    labels, valid = checked_labels(target, logits.shape[1])
    looks = on_cpu(logits)
    primitives, saved = _forward(logits, labels, asked, dtype, masks=not looks)
    if looks and not math.isfinite(primitives.sum().item()):
        primitives, saved = _forward(logits, labels, asked, dtype, masks=True)
    return primitives if valid is None else torch.where(valid, primitives, math.nan), saved


def _forward(
    logits: Tensor, labels: Tensor, asked: Sequence[Primitive], dtype: torch.dtype, masks: bool
) -> tuple[Tensor, Tensor]:
    rows, classes = logits.shape
    primitives = logits.new_empty((2 + len(asked), rows), dtype=dtype)
    saved = logits.new_empty((5 if masks else 4, rows), dtype=dtype)
    label = labels[:, None]
    nll, log_miss, *values = _columns_of(primitives)
    top, own, d, log_sum, *left = _columns_of(saved)
    own.copy_(logits.gather(1, label))
    step = _chunk_rows(logits)
    work = _scratch(logits, min(step, rows), dtype)
    for z, *columns in _split_rows(step, logits, label, top, own, d, log_sum, *values, *left):
        masked = z == -math.inf if masks else None
        _fill_sums(z, columns, asked, work[: z.shape[0]], masked)
        if masked is not None:
            columns[-1].copy_((~masked.scatter_(1, columns[0], True)).sum(1, keepdim=True))
    e_y = own.exp()
    torch.sub(log_sum, own, out=nll)
    torch.div(e_y, d, out=log_miss).log1p_().neg_()
    for primitive, value in zip(asked, values, strict=True):
        if primitive.kind == "nll":
            value.neg_()
            value.addcmul_(log_sum, left[0]) if masks else value.add_(log_sum, alpha=classes - 1)
        elif primitive.kind == "power":
            (value.div_(d + e_y).square_() if primitive.exponent == 2 else value.div_((d + e_y) ** primitive.exponent))
    if masks:
        left[0].masked_fill_(own == -math.inf, -1)
    return primitives, saved


def _fill_sums(z: Tensor, columns: list[Tensor], asked: Sequence[Primitive], work: Tensor, masked: Tensor | None) -> None:
    """The columns of one chunk: the largest logit, ``z_y`` less it, ``d``, ``log D``, and the sums, to be normalised."""
    label, top, own, d, log_sum, *values = columns[: 5 + len(asked)]
    torch.amax(z, 1, keepdim=True, out=top) if z.dtype == top.dtype else top.copy_(z.amax(1, keepdim=True))
    own.sub_(top)
    shifted = torch.sub(z, top, out=work)
    for primitive, value in zip(asked, values, strict=True):
        if primitive.kind == "nll":
            shifted.scatter_(1, label, 0.0)
            torch.sum(shifted if masked is None else shifted.masked_fill(masked, 0.0), 1, keepdim=True, out=value)
    keep_shifted = any(_needs_shifted(p) for p in asked)
    e = _exp_(shifted.clone() if keep_shifted else shifted).scatter_(1, label, 0.0)
    torch.sum(e, 1, keepdim=True, out=d)
    # log1p(D - 1), which is d where the label is the largest class; of two classes one has e = 1, the other is D - 1.
    (torch.minimum(own.exp(), d, out=log_sum) if z.shape[1] == 2 else torch.expm1(own, out=log_sum).add_(d)).log1p_()
    for primitive, value in zip(asked, values, strict=True):
        if primitive.kind == "power" and primitive.exponent == 2:
            torch.linalg.vector_norm(e, dim=1, keepdim=True, out=value)
        elif primitive.kind == "power":
            torch.sum(_exp_(primitive.exponent * shifted).scatter_(1, label, 0.0), 1, keepdim=True, out=value)
        elif primitive.kind == "lead":
            torch.sub(own, e.amax(1, keepdim=True).log_(), out=value)
        elif primitive.kind in FOCAL_KINDS:
            nll = log_sum - shifted
            terms = _focal_weight(nll, primitive.exponent).mul_(nll)
            if primitive.kind == "room":
                terms.neg_().add_(ceiling(primitive)).clamp_min_(0.0)
            torch.sum(_without(masked, terms.scatter_(1, label, 0.0)), 1, keepdim=True, out=value)
            if masked is not None:
                value.clamp_min_(torch.finfo(value.dtype).tiny)  # or a share of it would be 0/0 where one class is left


class _Columns(NamedTuple):
    """What the gradient needs of each row, as columns ``[N, 1]``."""

    label: Tensor
    top: Tensor
    log_sum: Tensor
    inverse_sum: Tensor
    hit: Tensor
    """p_y"""
    below: Tensor
    """-1 where the label is not the largest class, else 0"""
    slope: Tensor
    """Of the factor of e: c0 in the derivation, before the chunk's own sums are added"""
    dz_y: Tensor


def backward(
    grads: Tensor,
    logits: Tensor,
    target: Tensor,
    primitives: Tensor,
    saved: Tensor,
    asked: Sequence[Primitive],
    out: Tensor | None = None,
) -> Tensor:
    """The gradient with respect to the logits, given that of each primitive; in ``out``, if given, which may be the logits."""
    gradient = torch.empty_like(logits, memory_format=torch.contiguous_format) if out is None else out
    masks = saved.shape[0] >= 5 and (not on_cpu(logits) or _any_masked(saved[4], logits.shape[1]))
    if masks:  # no gradient where the label itself is masked: there nll is infinite, and its slopes may be too
        grads = grads.masked_fill(saved[4] < 0, 0.0)
    saved = saved[: 5 if masks else 4]
    columns, factors = _columns(grads, logits.shape[1], target, primitives, saved, asked)
    if logits.shape[1] == 2:
        return gradient.copy_(-columns.dz_y).scatter_(1, columns.label, columns.dz_y.to(gradient.dtype))
    step = _chunk_rows(logits)
    work = _scratch(logits, min(step, logits.shape[0]), grads.dtype)
    left = saved[4:].unsqueeze(2) if masks else ()
    for z, out, *rest in _split_rows(step, logits, gradient, *columns, *factors, *left):
        terms = list(zip(asked, rest[len(columns) :], strict=False))
        masked = (z == -math.inf, rest[-1]) if masks else None
        _fill_gradient(z, out, _Columns(*rest[: len(columns)]), terms, work[: z.shape[0]], masked)
    return gradient


def _any_masked(left: Tensor, classes: int) -> bool:
    return left.numel() > 0 and left.min().item() < classes - 1


def _columns(
    grads: Tensor, classes: int, target: Tensor, primitives: Tensor, saved: Tensor, asked: Sequence[Primitive]
) -> tuple[_Columns, list[Tensor]]:
    """The columns, and for each primitive the factor of its own term."""
    top, own, d, log_sum, *left = _columns_of(saved)
    by_nll, by_log_miss, *weights = _columns_of(grads)
    e_y = own.exp()
    inverse_sum = (d + e_y).reciprocal_()
    hit = e_y.mul_(inverse_sum)
    below = own.sign()
    by_nll, by_log_miss = by_nll * inverse_sum, by_log_miss * hit
    slope = torch.addcdiv(by_nll, by_log_miss, d)
    dz_y = torch.addcmul(by_log_miss, by_nll, d).neg_()
    factors = []
    for row, (primitive, factor) in enumerate(zip(asked, weights, strict=True), start=2):
        if primitive.kind == "nll":
            total, others = (factor * left[0], 1) if left else (factor, classes - 1)
            if classes > FEW:
                slope = torch.addcmul(slope, total, inverse_sum, value=others)
            dz_y = torch.addcmul(dz_y, total, hit, value=others)
        elif primitive.kind == "power":
            factor = primitive.exponent * factor
            dz_y = torch.addcmul(dz_y, factor * primitives[row, :, None], hit, value=-1)
            factor = factor * inverse_sum**primitive.exponent
            slope = torch.addcmul(slope, factor * hit, below, value=-1)
        elif primitive.kind in FOCAL_KINDS and classes == 2:
            h = _focal_slope(-primitives[1][:, None], primitive)
            dz_y = torch.addcmul(dz_y, factor * (h * left[0] if left else h), hit)
        factors.append(factor)
    label = _safe_labels(target, classes)[:, None]
    return _Columns(label, top, log_sum, inverse_sum, hit, below, slope, dz_y), factors


def _fill_gradient(
    z: Tensor,
    out: Tensor,
    row: _Columns,
    terms: list[tuple[Primitive, Tensor]],
    work: Tensor,
    masks: tuple[Tensor, Tensor] | None,
) -> None:
    """``out_j = c0 e_j + c2 (e_j^q - e_j) + u + w h_j``, and what belongs to the label at its place.

    ``masks`` has which classes are masked and how many of the others are not.
    """
    # In float32 the exponentials are formed in the result itself, and become the gradient in place.
    e = torch.sub(z, row.top, out=out) if out.dtype == work.dtype else z.to(work.dtype).sub_(row.top)
    shifted = e.clone() if any(_needs_shifted(primitive) for primitive, _ in terms) else e
    masked, others = (None, e.shape[1] - 1) if masks is None else masks
    exact = e.shape[1] - 1 < FEW and any(primitive.kind in ("nll", "power", "focal") for primitive, _ in terms)
    e_less_1 = _without(masked, torch.expm1(e).scatter_(1, row.label, 0.0)) if exact else None
    _exp_(e).scatter_(1, row.label, 0.0)
    c0, dz_y = row.slope, row.dz_y
    uniform: Tensor | None = None
    extra: Tensor | None = None
    for primitive, factor in terms:
        if primitive.kind == "nll":
            uniform = factor if uniform is None else uniform + factor
        elif primitive.kind == "power":
            # G/D = (e_y - sum of these) / D; where the label is the largest class the sum is that of e^q, and e_y is left out.
            if primitive.exponent == 2 and e_less_1 is not None:
                term = torch.where(row.below.bool(), e_less_1, e).mul_(e)
            else:
                term = _power_term(primitive.exponent, e, shifted, row, work if extra is None else None)
            c0 = torch.addcmul(c0, term.sum(1, keepdim=True).mul_(row.inverse_sum), factor, value=-1)
            extra = _add(extra, term.mul_(factor))
        elif primitive.kind in FOCAL_KINDS:
            if e_less_1 is None or primitive.kind == "room":
                h = _focal_slope(row.log_sum - shifted, primitive)
            else:
                # What all classes have of h acts as nll_others does.
                h_top, h = _focal_slopes_from_top(shifted, row.log_sum, primitive)
                uniform = factor * h_top if uniform is None else torch.addcmul(uniform, factor, h_top)
                dz_y = torch.addcmul(dz_y, factor * h_top, row.hit * others)
            total = factor * _without(masked, h.scatter_(1, row.label, 0.0)).sum(1, keepdim=True)
            c0 = torch.addcmul(c0, total, row.inverse_sum)
            dz_y = torch.addcmul(dz_y, total, row.hit)
            extra = _add(extra, h.mul_(-factor))
    if uniform is not None and e_less_1 is not None:
        extra = _add(extra, e_less_1 * (others * uniform * row.inverse_sum))
        uniform = uniform * torch.addcmul(row.hit, e_less_1.sum(1, keepdim=True), row.inverse_sum)
    if extra is None:
        e.mul_(c0)
    else:
        torch.addcmul(extra, e, c0, out=e)
    if uniform is not None:
        e.sub_(uniform)
    _without(masked, e).scatter_(1, row.label, dz_y)
    if e.dtype != out.dtype:
        out.copy_(e)


def _without(masked: Tensor | None, terms: Tensor) -> Tensor:
    """In place, 0 where a class is masked."""
    return terms if masked is None else terms.masked_fill_(masked, 0.0)


def _power_term(q: float, e: Tensor, shifted: Tensor, row: _Columns, work: Tensor | None) -> Tensor:
    """``e^q - e``, or ``e^q`` where the label is the largest class; 0 at the label."""
    if q == 2:
        return torch.add(e, row.below, out=work).mul_(e)
    return _exp_(q * shifted).addcmul_(e, row.below).scatter_(1, row.label, 0.0)


def _columns_of(rows: Tensor) -> tuple[Tensor, ...]:
    """Each row ``[N]`` as a column ``[N, 1]``."""
    return rows.unsqueeze(2).unbind()


def _split_rows(step: int, *tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    return iter([tensors]) if tensors[0].shape[0] <= step else zip(*(t.split(step) for t in tensors), strict=True)


def scale(gradient: Tensor, factor: Tensor) -> Tensor:
    """In place; a factor of 1 costs nothing on the CPU, where looking at it stalls nothing."""
    return gradient if on_cpu(factor) and factor.item() == 1 else gradient.mul_(factor)


def on_cpu(tensor: Tensor) -> bool:
    """Whether a tensor is on the CPU, where reading one of its values stalls nothing."""
    return tensor.device.type == "cpu"


def _chunk_rows(logits: Tensor) -> int:
    chunk = CPU_CHUNK if on_cpu(logits) else OTHER_CHUNK
    return max(1, chunk // max(1, logits.shape[1]))


def _scratch(logits: Tensor, rows: int, dtype: torch.dtype) -> Tensor:
    """A chunk ``[rows, K]`` to work in. On the CPU it is kept for the next call, 2 MiB for each thread in float32:
    memory fresh from the system costs more at its first touch (0.2 ms a megabyte) than all the arithmetic done in it."""
    classes = logits.shape[1]
    if not on_cpu(logits) or not 2**12 < rows * classes <= CPU_CHUNK:
        return logits.new_empty((rows, classes), dtype=dtype)
    buffer = _kept.buffers.get(dtype)
    if buffer is None or len(buffer) < rows * classes:
        with torch.inference_mode(False):  # or it could not be written to outside of inference mode
            buffer = _kept.buffers[dtype] = torch.empty(CPU_CHUNK, dtype=dtype)
    return buffer[: rows * classes].view(rows, classes)


def checked_labels(target: Tensor, classes: int) -> tuple[Tensor, Tensor | None]:
    """Labels that are safe to index with, and which of them are valid (None: all, their values have been looked at)."""
    if not on_cpu(target):
        return _safe_labels(target, classes), (target >= 0) & (target < classes)
    if target.numel():
        low, high = (bound.item() for bound in torch.aminmax(target))
        if low < 0 or high >= classes:
            raise IndexError(f"target must be in [0, {classes - 1}] for {classes} classes, got {low if low < 0 else high}")
    return target, None


def _safe_labels(target: Tensor, classes: int) -> Tensor:
    return target if on_cpu(target) else target.clamp(0, classes - 1)


def _exp_(x: Tensor) -> Tensor:
    """``exp`` of non-positive numbers, in place, with about 1e-35 (float64: 1e-305) for what would underflow.

    Vector libraries take a slow path for results that underflow (measured on the CPU: 2,100 us instead of 13 for 65,536),
    and a sum of these can be divided by without overflow.
    """
    return x.clamp_min_(math.ceil(math.log(torch.finfo(x.dtype).tiny)) + 7).exp_()


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


def _focal_slopes_from_top(shifted: Tensor, log_sum: Tensor, primitive: Primitive) -> tuple[Tensor, Tensor]:
    """h of the largest class, and how much h of each class differs from it: exact where they nearly tie.

    With a = 1-p and t for the largest class, ``h = a^gamma + gamma p (-log p) a^(gamma-1)`` where ``p = p_t exp(shifted)``,
    ``-log p = -log p_t - shifted`` and ``a = a_t - p_t (e - 1)``: each part is its value at t times an exponential.
    """
    gamma = primitive.exponent
    near = shifted > -1
    z = torch.where(near, shifted, 0.0)
    nll = log_sum.clamp_min(torch.finfo(log_sum.dtype).tiny)  # it may be 0, and is divided by
    hit, miss = torch.exp(-nll), torch.expm1(-nll).neg_()
    log_ratio = torch.log1p(torch.expm1(z) * (-hit / miss))
    top = miss**gamma
    difference = top * torch.expm1(gamma * log_ratio)
    if not primitive.detach and gamma != 0:
        rest = gamma * hit * nll * miss ** (gamma - 1)
        difference += rest * torch.expm1(z + torch.log1p(-z / nll) + (gamma - 1) * log_ratio)
        top = top + rest
    return top, torch.where(near, difference, _focal_slope(log_sum - shifted, primitive) - top)


def _add(total: Tensor | None, term: Tensor) -> Tensor:
    return term if total is None else total.add_(term)
