"""The two passes over the logits in plain torch: in chunks of rows, in place where that is possible.

Symbols are those of the package's derivation: ``shifted = z - max z``, ``e = exp(shifted)``, ``e_y`` that of the label,
``d`` its sum over the classes other than the label, ``D`` its sum over all. On a small batch each call of torch costs more than
its arithmetic, so what is not needed is not computed and what is a column is written into one table.
"""

import math
import threading
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from noiseproof.core import small
from noiseproof.core.dispatch_state import is_compiling, on_cpu
from noiseproof.core.row_sums import (
    FOCAL_KINDS,
    RowSum,
    focal_grad_at,
    focal_grads,
    focal_grads_from_top,
    focal_terms,
    power_changes,
)

# Logits in a chunk. On the CPU all passes over it stay in the cache, and temporaries are of its size; elsewhere it is so large
# that the number of launches does not count.
CPU_CHUNK = 2**18
DEVICE_CHUNK = 2**27


class Space(NamedTuple):
    """Where the temporaries of a chunk ``[rows, K]`` go; None: into new memory."""

    shifted: Tensor | None = None
    e: Tensor | None = None
    e_less_1: Tensor | None = None
    first: Tensor | None = None
    """The first term of a gradient, to which the others are added"""
    term: Tensor | None = None
    spare: Tensor | None = None


class _Kept(threading.local):
    """What each thread keeps to work in."""

    def __init__(self) -> None:
        self.buffers: dict[torch.dtype, Tensor] = {}
        self.spaces: dict[tuple[torch.dtype, int, int], Space] = {}
        """The latest views of the buffers"""


_kept = _Kept()


def in_chunks(dtype: torch.dtype, *tensors: Tensor) -> list[tuple[Space, tuple[Tensor, ...]]]:
    """As :func:`split_rows`, each chunk with space for what is computed of it in ``dtype``."""
    chunks = split_rows(*tensors)
    space = _scratch(chunks[0][0], dtype)
    return [(_part_of(space, chunk[0].shape[0]), chunk) for chunk in chunks]


def split_rows(*tensors: Tensor) -> list[tuple[Tensor, ...]]:
    """The rows of all tensors, a chunk at a time; the first is ``[N, K]``."""
    rows, classes = tensors[0].shape
    chunk = CPU_CHUNK if on_cpu(tensors[0]) else DEVICE_CHUNK
    step = max(1, chunk // max(1, classes))
    return [tensors] if rows <= step else list(zip(*(t.split(step) for t in tensors), strict=True))


def _scratch(chunk: Tensor, dtype: torch.dtype) -> Space:
    """Space to work in for chunks like this one. On the CPU it is kept for the next call, up to 6 MiB for each thread in
    float32: memory fresh from the system costs more at its first touch (0.2 ms a megabyte) than all the arithmetic."""
    rows, classes = chunk.shape
    if not on_cpu(chunk) or not 2**12 < rows * classes <= CPU_CHUNK:
        return Space()
    space = _kept.spaces.get((dtype, rows, classes))
    if space is None:
        with torch.inference_mode(False):  # or it could not be written to outside of inference mode
            buffer = _kept.buffers.get(dtype)
            if buffer is None or buffer.shape[1] < rows * classes:
                buffer = _kept.buffers[dtype] = torch.empty((len(Space._fields), CPU_CHUNK), dtype=dtype)
            space = Space(*buffer[:, : rows * classes].view(-1, rows, classes).unbind())
        _kept.spaces = {(dtype, rows, classes): space}
    return space


def _part_of(space: Space, rows: int) -> Space:
    """The space for a last chunk, which may have fewer rows."""
    if space.first is None or len(space.first) == rows:
        return space
    return Space(*[None if place is None else place[:rows] for place in space])


# Up to so many classes differences of probabilities are formed from e - 1, which is exact where classes tie: nothing else is
# left of the gradient where the label is far below them. With more classes the other terms outweigh that error.
MAX_EXACT_CLASSES = 64
MIN_EXPONENT = {dtype: math.ceil(math.log(torch.finfo(dtype).tiny)) + 7 for dtype in (torch.float32, torch.float64)}
"""An exponential with a lower one is 0, as that of a masked class, and ``d`` is not below the exponential of this one."""


class FirstPass(NamedTuple):
    """What the first pass leaves."""

    statistics: list[Tensor]
    """nll, log1m, then the row sums, each ``[N]``"""
    saved: list[Tensor]
    """``max z``, ``z_y - max z``, ``d`` and ``log D``, each ``[N, 1]``. Where classes may be masked, also how many of those
    other than the label are not, or -1 where the label is."""


def forward(logits: Tensor, target: Tensor, needs: Sequence[RowSum], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The statistics ``[2 + R, N]`` and what is saved of each row, ``[4, N]`` or ``[5, N]``."""
    statistics, saved = first_pass(logits, target, needs, dtype)
    return torch.stack(statistics), torch.cat(saved, 1).t().contiguous()


def backward(
    grads: Tensor,
    logits: Tensor,
    target: Tensor,
    statistics: Tensor,
    saved: Tensor,
    needs: Sequence[RowSum],
    out: Tensor | None = None,
) -> Tensor:
    """The gradient with respect to the logits, given that of each row sum; in ``out``, if given, which may be the logits."""
    passed = FirstPass(list(statistics.unbind()), list(saved.unsqueeze(2).unbind()))
    return second_pass(grads.unbind(), logits, target, passed, needs, out)


def first_pass(logits: Tensor, target: Tensor, needs: Sequence[RowSum], dtype: torch.dtype) -> FirstPass:
    """The statistics of each row. A masked class makes one infinite, so on the CPU one look at their sum tells whether there
    are any; elsewhere it would stall the device."""
    if not on_cpu(logits):
        passed = _forward(logits, _safe_labels(target, logits.shape[1]), needs, dtype, masks=True)
        if logits.device.type == "cpu":  # compiled, and a label out of range is refused
            return passed
        valid = (target >= 0) & (target < logits.shape[1])
        return FirstPass([torch.where(valid, values, math.nan) for values in passed.statistics], passed.saved)
    try:
        passed = _forward(logits, target, needs, dtype, masks=False)
    except RuntimeError:
        checked_labels(target, logits.shape[1])  # gather does not read out of bounds; this says it in our words
        raise
    return _forward(logits, target, needs, dtype, masks=True) if finite_sum(passed.statistics) is None else passed


def small_pass(
    logits: Tensor,
    target: Tensor,
    needs: Sequence[RowSum],
    dtype: torch.dtype,
    want_log1m: bool = True,
    share: float = 1.0,
    place: Tensor | None = None,
) -> small.SmallPass:
    """The first pass over a small batch. Where it has masked classes a row sum is not finite, and this not the right way."""
    z = logits if logits.dtype == dtype else logits.to(dtype)
    try:
        return small.first_pass(z, target, needs, MIN_EXPONENT[dtype], want_log1m, share, place)
    except RuntimeError:
        checked_labels(target, logits.shape[1])
        raise


def finite_sum(statistics: list[Tensor]) -> Tensor | None:
    """Their sum, of nll alone where there are no others; None: one of them is not finite."""
    # log1m is infinite only where nll is 0
    total = (statistics[0] if len(statistics) == 2 else torch.cat(statistics)).sum()
    return total if math.isfinite(total.item()) else None


def _forward(logits: Tensor, labels: Tensor, needs: Sequence[RowSum], dtype: torch.dtype, masks: bool) -> FirstPass:
    rows = in_chunks(dtype, logits, labels.unsqueeze(1))
    chunks = [_sums(z, label, needs, dtype, space, masks) for space, (z, label) in rows]
    columns = chunks[0] if len(chunks) == 1 else [torch.cat(parts) for parts in zip(*chunks, strict=True)]
    (top, own, d, log_sum, *left), values = columns[: 5 if masks else 4], columns[5 if masks else 4 :]
    e_y = own.exp()
    nll = log_sum - own
    log1m = (e_y / d).log1p_().neg_()
    for row_sum, value in zip(needs, values, strict=True):
        if row_sum.kind == "nll":
            value.neg_()
            value.addcmul_(log_sum, left[0]) if masks else value.add_(log_sum, alpha=logits.shape[1] - 1)
        elif row_sum.kind == "power":
            (value.div_(e_y + d).square_() if row_sum.exponent == 2 else value.div_((e_y + d) ** row_sum.exponent))
    if masks:
        left[0].masked_fill_(own == -math.inf, -1)
    return FirstPass([value.squeeze(1) for value in (nll, log1m, *values)], [top, own, d, log_sum, *left])


def _sums(z: Tensor, label: Tensor, needs: Sequence[RowSum], dtype: torch.dtype, space: Space, masks: bool) -> list[Tensor]:
    """Of each row of a chunk: the largest logit, ``z_y`` less it, ``d``, ``log D``, how many others are not masked, and the
    sums, to be normalised."""
    masked = z == -math.inf if masks else None
    top = z.amax(1, keepdim=True).to(dtype)
    shifted = torch.sub(z, top, out=space.shifted)
    own = z.gather(1, label) - top  # of what is read, not of what is computed: a compiler then computes nothing twice
    sum_of_logits = None
    if any(row_sum.kind == "nll" for row_sum in needs):
        shifted = _put(shifted, label, 0.0)
        sum_of_logits = (shifted if masked is None else shifted.masked_fill(masked, 0.0)).sum(1, keepdim=True)
    e = _exp(shifted, space.e if _keep_shifted(needs) else shifted)
    e = _put(e, label, 0.0)
    d = e.sum(1, keepdim=True).clamp_min_(small.floor(MIN_EXPONENT[dtype]))
    # log1p(D - 1), which is d where the label is the largest class; of two classes one has e = 1, the other is D - 1.
    log_sum = (torch.minimum(own.exp(), d) if z.shape[1] == 2 else own.expm1().add_(d)).log1p_()
    columns = [top, own, d, log_sum]
    if masked is not None:
        count = masked.sum(1, keepdim=True, dtype=dtype)  # without a look at which is the label: compiled, that costs
        columns.append((own == -math.inf).to(dtype).sub_(count).add_(z.shape[1] - 1))
        masked = _put(masked, label, True)
    for row_sum in needs:
        if row_sum.kind == "nll" and sum_of_logits is not None:
            columns.append(sum_of_logits)
        elif row_sum.kind == "power" and row_sum.exponent == 2:
            columns.append(torch.linalg.vector_norm(e, dim=1, keepdim=True))
        elif row_sum.kind == "power":
            powers = torch.mul(shifted, row_sum.exponent, out=space.term)
            columns.append(_put(_exp(powers, powers), label, 0.0).sum(1, keepdim=True))
        elif row_sum.kind == "margin":
            columns.append(own - e.amax(1, keepdim=True).log_().clamp_min_(MIN_EXPONENT[dtype]))
        else:
            terms = focal_terms(e, shifted, log_sum, row_sum, space.term, space.spare)
            clipped = masked is None or row_sum.kind == "clipped_focal"  # of which a masked class has none
            total = (_put(terms, label, 0.0) if clipped else _without(masked, terms)).sum(1, keepdim=True)
            # or a share of it would be 0/0 where one class is left
            columns.append(total if masked is None else total.clamp_min_(math.exp(MIN_EXPONENT[dtype])))
    return columns


class _Columns(NamedTuple):
    """What the gradient needs of each row, as columns ``[N, 1]``."""

    label: Tensor
    top: Tensor
    log_sum: Tensor
    inverse_sum: Tensor
    p_y: Tensor
    """p_y"""
    own: Tensor
    """z_y less the largest logit"""
    below: Tensor
    """-1 where the label is not the largest class, else 0"""
    slope: Tensor
    """Of the factor of e: c0 in the derivation, before the chunk's own sums are added"""
    dz_y: Tensor


def second_pass(
    grads: Sequence[Tensor | None],
    logits: Tensor,
    target: Tensor,
    passed: FirstPass,
    needs: Sequence[RowSum],
    out: Tensor | None = None,
) -> Tensor:
    """The gradient with respect to the logits, given that of each row sum; None: it has none. In ``out``, if given."""
    classes = logits.shape[1]
    statistics, saved = passed
    masks = len(saved) >= 5 and (not on_cpu(logits) or _any_masked(saved[4], classes))
    if masks:  # no gradient where the label itself is masked: there nll is infinite, and its gradients may be too
        grads = [None if grad is None else grad.masked_fill(saved[4].squeeze(1) < 0, 0.0) for grad in grads]
    saved = saved[: 5 if masks else 4]
    columns, terms = _columns(grads, classes, target, statistics, saved, needs)
    gradient = torch.empty_like(logits, memory_format=torch.contiguous_format) if out is None else out
    if classes == 2:  # a row with one class left is sure of it
        dz_y = torch.where(saved[2] > small.floor(MIN_EXPONENT[saved[2].dtype]), columns.dz_y, 0.0)
        return _put(gradient.copy_(-dz_y), columns.label, dz_y.to(gradient.dtype))
    kinds = [row_sum for row_sum, _ in terms]
    left = saved[4:] if masks else []
    chunks = in_chunks(saved[0].dtype, logits, gradient, *columns, *[factor for _, factor in terms], *left)
    for space, (z, dz, *rest) in chunks:
        row, factors = _Columns(*rest[: len(columns)]), rest[len(columns) : len(columns) + len(kinds)]
        masked = (z == -math.inf, rest[-1]) if masks else None
        _fill_gradient(z, dz, row, list(zip(kinds, factors, strict=True)), space, masked)
    return gradient


def _any_masked(left: Tensor, classes: int) -> bool:
    return left.numel() > 0 and left.min().item() < classes - 1


def _columns(
    grads: Sequence[Tensor | None],
    classes: int,
    target: Tensor,
    statistics: list[Tensor],
    saved: list[Tensor],
    needs: Sequence[RowSum],
) -> tuple[_Columns, list[tuple[RowSum, Tensor]]]:
    """The columns, and for each row sum with a gradient the factor of its own term."""
    top, own, d, log_sum, *left = saved
    by_nll, by_log1m, *weights = [None if grad is None else grad.unsqueeze(1) for grad in grads]
    e_y = own.exp()
    inverse_sum = (e_y + d).reciprocal_()
    if by_log1m is not None:  # its gradients are those of nll times p_y / (1 - p_y)
        by_nll = by_log1m * (e_y / d) if by_nll is None else torch.addcmul(by_nll, by_log1m, e_y / d)
    p_y = e_y.mul_(inverse_sum)
    below = own.sign()
    slope = torch.zeros_like(d) if by_nll is None else by_nll * inverse_sum
    dz_y = torch.mul(slope, d).neg_()
    terms = []
    for row, (row_sum, factor) in enumerate(zip(needs, weights, strict=True), start=2):
        if factor is None or row_sum.kind == "margin":
            continue
        if row_sum.kind == "nll":
            total, others = (factor * left[0], 1) if left else (factor, classes - 1)
            if classes > MAX_EXACT_CLASSES:
                slope.addcmul_(total, inverse_sum, value=others)
            dz_y.addcmul_(total, p_y, value=others)
        elif row_sum.kind == "power":
            q = row_sum.exponent
            dz_y.addcmul_(factor * statistics[row].unsqueeze(1), p_y, value=-q)
            factor = (factor * inverse_sum).mul_(inverse_sum).mul_(2.0) if q == 2 else q * factor * inverse_sum**q
            slope.addcmul_(factor * p_y, below, value=-1)
        elif classes == 2:
            h = focal_grad_at(-statistics[1].unsqueeze(1), row_sum)
            dz_y.addcmul_(factor * (h * left[0] if left else h), p_y)
        terms.append((row_sum, factor))
    label = _safe_labels(target, classes).unsqueeze(1)
    return _Columns(label, top, log_sum, inverse_sum, p_y, own, below, slope, dz_y), terms


def _fill_gradient(
    z: Tensor,
    out: Tensor,
    row: _Columns,
    terms: list[tuple[RowSum, Tensor]],
    space: Space,
    masks: tuple[Tensor, Tensor] | None,
) -> None:
    """``out_j = c0 e_j + c2 (e_j^q - e_j) + u + w h_j``, and what belongs to the label at its place.

    ``masks`` has which classes are masked and how many of the others are not.
    """
    needs = [row_sum for row_sum, _ in terms]
    masked, others = (None, z.shape[1] - 1) if masks is None else masks
    exact = z.shape[1] - 1 < MAX_EXACT_CLASSES and any(kind in ("nll", "power", "focal") for kind, *_ in needs)
    # In float32 the exponentials are formed in the result itself, and become the gradient in place.
    place = out if out.dtype == row.top.dtype else space.e
    apart = _keep_shifted(needs) or place is None
    shifted = torch.sub(z, row.top, out=space.shifted if apart else place)
    e_less_1 = _without(masked, _put(torch.expm1(shifted, out=space.e_less_1), row.label, 0.0)) if exact else None
    e = _put(_exp(shifted, place if apart else shifted), row.label, 0.0)
    c0, dz_y = row.slope, row.dz_y
    uniform: Tensor | None = None
    extra: Tensor | None = None
    for row_sum, factor in terms:
        place = space.first if extra is None else space.term
        if row_sum.kind == "nll":
            uniform = factor if uniform is None else uniform + factor
        elif row_sum.kind == "power":
            # G/D = (e_y - sum of these) / D; where the label is the largest class the sum is that of e^q, and e_y is left out.
            if row_sum.exponent == 2 and e_less_1 is not None:
                term = torch.where(row.below < 0, e_less_1, e, out=place).mul_(e)
            else:
                term = _power_term(row_sum.exponent, e, shifted, row, place, space.spare)
            c0 = torch.addcmul(c0, term.sum(1, keepdim=True).mul_(row.inverse_sum), factor, value=-1)
            extra = term.mul_(factor) if extra is None else extra.addcmul_(term, factor)
        elif row_sum.kind in FOCAL_KINDS:
            if e_less_1 is None or row_sum.kind == "clipped_focal":
                h = focal_grads(e, shifted, row.log_sum, row_sum, place, space.spare)
            else:
                # What all classes have of h acts as nll_others does.
                h_top, h = focal_grads_from_top(e_less_1, shifted, row.log_sum, row_sum)
                uniform = factor * h_top if uniform is None else torch.addcmul(uniform, factor, h_top)
                dz_y = torch.addcmul(dz_y, factor * h_top, row.p_y * others)
            total = _grads_of_others(h, row_sum, row, masked).mul_(factor)
            c0 = torch.addcmul(c0, total, row.inverse_sum)
            dz_y = torch.addcmul(dz_y, total, row.p_y)
            extra = h.mul_(factor).neg_() if extra is None else extra.addcmul_(h, factor, value=-1)
    if uniform is not None and e_less_1 is not None:
        # (K-1) p_j - 1, from e - 1
        share = (uniform * row.inverse_sum).mul_(others)
        uniform = uniform * torch.addcmul(row.p_y, e_less_1.sum(1, keepdim=True), row.inverse_sum)
        extra = e_less_1.mul_(share) if extra is None else extra.addcmul_(e_less_1, share)
    torch.mul(e, c0, out=e) if extra is None else torch.addcmul(extra, e, c0, out=e)
    if uniform is not None:
        e.sub_(uniform)
    gradient = _put(_without(masked, e), row.label, dz_y)
    if gradient is not out:
        out.copy_(gradient)


def _grads_of_others(h: Tensor, row_sum: RowSum, row: _Columns, masked: Tensor | None) -> Tensor:
    """The sum of a focal sum's gradients over the classes other than the label."""
    if row_sum.kind == "clipped_focal" and row_sum.exponent == 0:  # a number of classes, from which the label is taken exactly
        return h.sum(1, keepdim=True).sub_(focal_grads(row.own, row.own, row.log_sum, row_sum))
    return _without(masked, _put(h, row.label, 0.0)).sum(1, keepdim=True)


def _put(terms: Tensor, label: Tensor, value: Tensor | float) -> Tensor:
    """With ``value`` at the label: in place, or so that a compiler can fuse it with what is before and after."""
    if is_compiling():
        return torch.where(torch.arange(terms.shape[1], device=terms.device) == label, value, terms)
    return terms.scatter_(1, label, value)


def _without(masked: Tensor | None, terms: Tensor) -> Tensor:
    """In place, 0 where a class is masked."""
    return terms if masked is None else terms.masked_fill_(masked, 0.0)


def _power_term(q: float, e: Tensor, shifted: Tensor, row: _Columns, place: Tensor | None, spare: Tensor | None) -> Tensor:
    """``e^q - e``, or ``e^q`` where the label is the largest class; 0 at the label."""
    if q == 2:
        return torch.add(e, row.below, out=place).mul_(e)
    powers = torch.mul(shifted, q, out=place)
    powers = _exp(powers, powers)
    return _put(power_changes(q, e, powers, shifted, row.below < 0, MIN_EXPONENT[e.dtype], spare), row.label, 0.0)


def _exp(x: Tensor, out: Tensor | None) -> Tensor:
    """``exp`` of non-positive numbers, 0 below about 1e-35 (float64: 1e-305).

    Vector libraries take a slow path for results that underflow (measured on the CPU: 2,100 us instead of 13 for 65,536).
    """
    x = torch.threshold(x, MIN_EXPONENT[x.dtype], -math.inf, out=out)
    return small.fast_exp_(x) if on_cpu(x) else x.exp_()


def _keep_shifted(needs: Sequence[RowSum]) -> bool:
    """Whether a row sum wants the shifted logits beside their exponentials."""
    return any(kind in FOCAL_KINDS or (kind == "power" and exponent != 2) for kind, exponent, *_ in needs)


def scale(gradient: Tensor, factor: Tensor) -> Tensor:
    """In place; a factor of 1 costs nothing on the CPU, where looking at it stalls nothing."""
    return gradient if on_cpu(factor) and factor.item() == 1 else gradient.mul_(factor)


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
    """Clamped, except on the CPU, where torch and its compiler refuse an index out of range by themselves."""
    return target if target.device.type == "cpu" else target.clamp(0, classes - 1)
