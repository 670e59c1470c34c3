"""The two passes over the logits in plain torch: in chunks of rows, in place where that is possible.

Symbols are those of the package's derivation: ``e = exp(z - max z)``, ``e_y`` that of the label, ``d`` its sum over the classes
other than the label, ``D`` its sum over all, ``shifted = z - max z``.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812 - the name every PyTorch reader expects
from torch import Tensor

from noiseproof.primitives.request import FOCAL_KINDS, Primitive

__all__ = ["backward", "forward", "on_cpu"]

# Rows go in chunks. On the CPU all passes over a chunk then stay in the cache, and temporaries are chunk-sized; elsewhere
# a chunk is large enough that the number of launches does not count.
CPU_CHUNK = 2**19
OTHER_CHUNK = 2**27


class _Kept(threading.local):
    """What each thread keeps to work in."""

    def __init__(self) -> None:
        self.buffers: dict[torch.dtype, Tensor] = {}


_kept = _Kept()


def forward(logits: Tensor, target: Tensor, asked: Sequence[Primitive], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Primitives ``[1 + len(asked), N]``, margin first, and ``[3, N]``: the largest logit, ``d`` and ``e_y`` of each row."""
    rows, classes = logits.shape
    primitives = logits.new_empty((1 + len(asked), rows), dtype=dtype)
    saved = logits.new_empty((3, rows), dtype=dtype)
    labels, valid = _checked_labels(target, classes)
    z_y = logits.gather(1, labels)[:, 0].to(dtype)
    log_d = torch.empty_like(z_y)
    focal = any(p.kind in FOCAL_KINDS for p in asked)
    step = _chunk_rows(logits)
    work = _scratch(logits, min(step, rows), dtype)
    for z, y, own, out, top, d, part_log_d in _split_rows(step, logits, labels, z_y, primitives.T, *saved[:2], log_d):
        top.copy_(z.amax(1))
        shifted = torch.sub(z, top[:, None], out=work[: len(z)])
        for i, primitive in enumerate(asked, start=1):
            if primitive.kind == "spread":
                torch.sum(shifted, 1, out=out[:, i])
        e = _exp_(shifted.clone() if any(_needs_shifted(p) for p in asked) else shifted).scatter_(1, y, 0.0)
        torch.sum(e, 1, out=d)
        part_log_d.copy_(_log_sum(e) if focal else d.log())
        for i, primitive in enumerate(asked, start=1):
            if primitive.kind == "power" and primitive.exponent == 2:
                torch.linalg.vector_norm(e, dim=1, out=out[:, i])
            elif primitive.kind == "power":
                out[:, i] = _exp_(primitive.exponent * shifted).scatter_(1, y, 0.0).sum(1)
            elif primitive.kind == "lead":
                torch.sub(own - top, e.amax(1).log_(), out=out[:, i])
            elif primitive.kind in FOCAL_KINDS:
                nll = _nll_others(shifted, part_log_d, top + part_log_d - own)
                terms = _focal_weight(nll, primitive.exponent).mul_(nll)
                if primitive.kind == "room":
                    terms.neg_().add_(primitive.ceiling).clamp_min_(0.0)
                out[:, i] = terms.scatter_(1, y, 0.0).sum(1)
    top, d, e_y = saved
    own = z_y.sub_(top)
    torch.exp(own, out=e_y)
    torch.sub(log_d, own, out=primitives[0])
    for row, primitive in zip(primitives[1:], asked, strict=True):
        if primitive.kind == "spread":
            row.neg_().add_(own).clamp_min_(0.0).add_(log_d, alpha=classes - 1)
        elif primitive.kind == "power":
            (row.div_(d + e_y).square_() if primitive.exponent == 2 else row.div_((d + e_y) ** primitive.exponent))
    return primitives if valid is None else torch.where(valid, primitives, math.nan), saved


class _Columns(NamedTuple):
    """What the gradient needs of each row, as columns ``[N, 1]``."""

    label: Tensor
    top: Tensor
    margin: Tensor
    inverse_d: Tensor
    inverse_sum: Tensor
    e_y: Tensor
    not_top: Tensor
    """1 where the label is not the largest class"""
    slope: Tensor
    """Of the factor of e: c0 in the derivation, before the chunk's own sums are added"""
    dz_y: Tensor


def backward(
    grads: Tensor, logits: Tensor, target: Tensor, primitives: Tensor, saved: Tensor, asked: Sequence[Primitive]
) -> Tensor:
    """The gradient with respect to the logits, given that of each primitive."""
    gradient = torch.empty_like(logits, memory_format=torch.contiguous_format)
    columns, factors = _columns(grads, logits.shape[1], target, primitives, saved, asked)
    step = _chunk_rows(logits)
    work = _scratch(logits, min(step, len(logits)), grads.dtype)
    tensors = (logits, gradient, *columns, *factors, *primitives[1:, :, None])
    for z, out, *rest in _split_rows(step, *tensors):
        part, rest = _Columns(*rest[: len(columns)]), rest[len(columns) :]
        terms = list(zip(asked, rest[: len(asked)], rest[len(asked) :], strict=True))
        _fill_gradient(z, out, part, terms, work[: len(z)])
    return gradient


def _columns(
    grads: Tensor, classes: int, target: Tensor, primitives: Tensor, saved: Tensor, asked: Sequence[Primitive]
) -> tuple[_Columns, list[Tensor]]:
    """The columns, and for each primitive the factor of its own term."""
    top, d, e_y = saved[:, :, None]
    inverse_d, inverse_sum = 1 / d, 1 / (d + e_y)
    slope, *upstream = grads[:, :, None]
    dz_y = -slope
    factors = []
    for i, (primitive, factor) in enumerate(zip(asked, upstream, strict=True), start=1):
        if primitive.kind == "spread":
            slope, factor = torch.add(slope, factor, alpha=classes - 1), -factor
        elif primitive.kind == "power":
            weight = primitive.exponent * factor
            dz_y = dz_y - weight * e_y * inverse_sum * primitives[i, :, None]
            factor = weight * inverse_sum**primitive.exponent
        factors.append(factor)
    labels = _safe_labels(target, classes)
    not_top = (e_y < 1).to(grads.dtype)
    return _Columns(labels, top, primitives[0, :, None], inverse_d, inverse_sum, e_y, not_top, slope * inverse_d, dz_y), factors


def _fill_gradient(z: Tensor, out: Tensor, row: _Columns, terms: list[tuple[Primitive, Tensor, Tensor]], work: Tensor) -> None:
    """``out_j = c0 e_j + c2 (e_j^q - e_j) + u + w h_j``, and what belongs to the label at its place."""
    # In float32 the exponentials are formed in the result itself, and become the gradient in place.
    e = torch.sub(z, row.top, out=out) if out.dtype == work.dtype else z.to(work.dtype).sub_(row.top)
    shifted = e.clone() if any(_needs_shifted(primitive) for primitive, _, _ in terms) else e
    _exp_(e)
    c0, dz_y = row.slope, row.dz_y
    uniform: Tensor | None = None
    extra: Tensor | None = None
    for primitive, factor, value in terms:
        if primitive.kind == "spread":
            uniform = factor
        elif primitive.kind == "power":
            term, slope = _power_gradient(primitive.exponent, e, shifted, row, value, work if extra is None else None)
            c0 = torch.addcmul(c0, slope, factor)
            extra = _add(extra, term.mul_(factor))
        elif primitive.kind in FOCAL_KINDS:
            log_d = _log_sum(e.scatter(1, row.label, 0.0))
            h = _focal_slope(_nll_others(shifted, log_d, row.margin[:, 0]), primitive).scatter_(1, row.label, 0.0)
            total = factor * h.sum(1, keepdim=True)
            c0 = c0 + total * torch.sigmoid(row.margin) * row.inverse_d
            dz_y = dz_y + total * torch.sigmoid(-row.margin)
            extra = _add(extra, h.mul_(-factor))
    if extra is None:
        e.mul_(c0)
    else:
        torch.addcmul(extra, e, c0, out=e)
    if uniform is not None:
        e.add_(uniform)
    e.scatter_(1, row.label, dz_y)
    if e.dtype != out.dtype:
        out.copy_(e)


def _power_gradient(
    q: float, e: Tensor, shifted: Tensor, row: _Columns, value: Tensor, work: Tensor | None
) -> tuple[Tensor, Tensor]:
    """``e^q - e`` and the factor of e beside it, G/D; where the label is the largest class, ``e^q`` and ``G/D - 1``."""
    term = torch.sub(e, row.not_top, out=work).mul_(e) if q == 2 else _exp_(q * shifted).sub_(e * row.not_top)
    g_over_sum = (row.e_y**q - term.sum(1, keepdim=True)).mul_(row.inverse_sum)
    return term, torch.where(row.not_top > 0, g_over_sum, -value * row.inverse_sum ** (1 - q))


def _split_rows(step: int, *tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    rows = len(tensors[0])
    if rows <= step:
        return iter([tensors])
    return (tuple(t[start : start + step] for t in tensors) for start in range(0, rows, step))


def on_cpu(tensor: Tensor) -> bool:
    """Where values may be looked at, and memory fresh from the system is dear."""
    return tensor.device.type == "cpu"


def _chunk_rows(logits: Tensor) -> int:
    chunk = CPU_CHUNK if on_cpu(logits) else OTHER_CHUNK
    return max(1, chunk // max(1, logits.shape[1]))


def _scratch(logits: Tensor, rows: int, dtype: torch.dtype) -> Tensor:
    """A chunk ``[rows, K]`` to work in. On the CPU it is kept for the next call, 2 MiB for each thread in float32:
    memory fresh from the system costs more at its first touch (0.2 ms a megabyte) than all the arithmetic done in it."""
    classes = logits.shape[1]
    if not on_cpu(logits) or rows * classes > CPU_CHUNK:
        return logits.new_empty((rows, classes), dtype=dtype)
    buffer = _kept.buffers.get(dtype)
    if buffer is None or len(buffer) < rows * classes:
        with torch.inference_mode(False):  # or it could not be written to outside of inference mode
            buffer = _kept.buffers[dtype] = torch.empty(CPU_CHUNK, dtype=dtype)
    return buffer[: rows * classes].view(rows, classes)


def _nll_others(shifted: Tensor, log_d: Tensor, margin: Tensor) -> Tensor:
    """``-log p_k = -log(1 - p_y) - log r_k`` of the classes other than the label."""
    return (log_d - F.logsigmoid(margin))[:, None] - shifted


def _checked_labels(target: Tensor, classes: int) -> tuple[Tensor, Tensor | None]:
    """The labels as a column, safe to gather with, and which of them are valid (None: all, and it has been checked)."""
    if not on_cpu(target):
        return _safe_labels(target, classes), (target >= 0) & (target < classes)
    if len(target):
        low, high = (bound.item() for bound in torch.aminmax(target))
        if low < 0 or high >= classes:
            raise IndexError(f"target must be in [0, {classes - 1}] for {classes} classes, got {low if low < 0 else high}")
    return _safe_labels(target, classes), None


def _safe_labels(target: Tensor, classes: int) -> Tensor:
    """The labels as a column. Elsewhere than on the CPU, where they have been checked, they are clamped."""
    return (target if on_cpu(target) else target.clamp(0, classes - 1))[:, None]


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
