"""The first pass over rows of some hundred classes: a warp takes one after the other, and finishes them together.

What follows the sums of a row, logarithms and the like, takes as many instructions as the row itself if one number is computed
at a time; here each lane has a row of its own. ``e`` is relative to the largest class that is not the label, and then to the
largest of all. Names of the arguments are those of :mod:`noiseproof.kernels.tile`; a row is ``[PARTS, UNIT]``.
"""

from __future__ import annotations

import triton
import triton.language as tl

from noiseproof.kernels.terms import FLOOR, LOWEST, exp, log1p, norm_power, power_term, safe_label

__all__ = ["line_forward"]


@triton.jit
def _over(terms):
    return tl.sum(tl.sum(terms, 1), 0)


@triton.jit
def _read(logits, row, rows, units, stride, UNIT: tl.constexpr, PARTS: tl.constexpr):
    part = tl.arange(0, PARTS)[:, None]
    place = logits + row.to(tl.int64) * stride + part * UNIT + tl.arange(0, UNIT)[None, :]
    return tl.load(place, mask=part < tl.where(row < rows, units, 0), other=float("-inf")).to(tl.float32)


@triton.jit
def _is_label(target, row, rows, units, target_stride, UNIT: tl.constexpr, PARTS: tl.constexpr):
    label, _ = safe_label(target, row, row < rows, units * UNIT, target_stride)
    return tl.arange(0, UNIT)[None, :] == label - tl.arange(0, PARTS)[:, None] * UNIT


@triton.jit
def _sum_of_z(z, is_label, units, USED: tl.constexpr, UNIT: tl.constexpr, PARTS: tl.constexpr):
    """An origin, the largest of some logits without the label, and their sum from there; -inf if a class is masked.

    A part past the end is left out as a whole.
    """
    origin, total = 0.0, 0.0
    if USED:
        some = (tl.arange(0, UNIT)[None, :] == 0) & ~is_label
        origin = tl.max(tl.max(tl.where(some, z, LOWEST), 1), 0)
        origin = tl.where(origin > LOWEST, origin, 0.0)
        by_part = tl.sum(tl.where(is_label, 0.0, z - origin), 1)
        total = tl.sum(tl.where(tl.arange(0, PARTS) < units, by_part, 0.0), 0)
    return origin, total


@triton.jit
def _sum_of_powers(x, e, USED: tl.constexpr, Q: tl.constexpr):
    """Without the largest, where e is 0."""
    total = 0.0
    if USED:
        term = power_term(x, e, Q)
        if Q != 1 and Q != 2 and Q != 3:  # not made of e
            term = tl.where(x == 0.0, 0.0, term)
        total = _over(term)
    return total


@triton.jit
def _unmasked(
    logits, target, first, origins, rows, units, stride, target_stride,
    UNIT: tl.constexpr, ROWS: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """How many classes other than the label are not masked, and the sum of their logits; they are read again, which is rare."""
    line = tl.arange(0, ROWS)
    left, total = tl.zeros([ROWS], tl.float32), tl.zeros([ROWS], tl.float32)
    for i in range(0, ROWS):
        z = _read(logits, first + i, rows, units, stride, UNIT, PARTS)
        is_label = _is_label(target, first + i, rows, units, target_stride, UNIT, PARTS)
        alive = (z > float("-inf")) & ~is_label
        origin = tl.sum(tl.where(line == i, origins, 0.0), 0)
        left = tl.where(line == i, _over(alive.to(tl.float32)), left)
        total = tl.where(line == i, _over(tl.where(alive, z - origin, 0.0)), total)
    return left, total


@triton.jit
def _put(rows_of, which, rows, row, value, valid):
    """NaN where the label is not valid."""
    tl.store(rows_of + which * rows.to(tl.int64) + row, tl.where(valid, value, float("nan")), mask=row < rows)


@triton.jit
def _put_row(saved, rows, row, top, own, d, log_sum, left):
    _put(saved, 0, rows, row, top, row < rows)
    _put(saved, 1, rows, row, own, row < rows)
    _put(saved, 2, rows, row, d, row < rows)
    _put(saved, 3, rows, row, log_sum, row < rows)
    _put(saved, 4, rows, row, tl.where(own == float("-inf"), -1.0, left), row < rows)


@triton.jit
def _put_power(
    primitives, saved, rows, row, valid, rest, rest_q, tops, shift, factor, own, inverse, log_sum,
    WHICH: tl.constexpr, Q: tl.constexpr,
):  # fmt: skip
    """The power sum, and for its gradient the sum of e^q - e, or of e^q where the label is the largest class."""
    if WHICH:
        total = (rest_q + tops) * power_term(shift, factor, Q)
        _put(primitives, WHICH, rows, row, total * norm_power(inverse, log_sum, Q), valid)
        _put(saved, 3 + WHICH, rows, row, tl.where(own < 0.0, rest_q - rest, total), row < rows)


@triton.jit(do_not_specialize=["rows", "units", "stride_units", "target_stride"])
def line_forward(
    logits, target, primitives, saved, rows, units, stride_units, target_stride,
    UNIT: tl.constexpr, ROWS: tl.constexpr, PARTS: tl.constexpr, NLL: tl.constexpr, LEAD: tl.constexpr,
    POWER_A: tl.constexpr, Q_A: tl.constexpr, POWER_B: tl.constexpr, Q_B: tl.constexpr,
    FOCAL_A: tl.constexpr, GAMMA_A: tl.constexpr, DETACH_A: tl.constexpr,
    MINIMUM_A: tl.constexpr, CEILING_A: tl.constexpr, HIGHEST_A: tl.constexpr,
    FOCAL_B: tl.constexpr, GAMMA_B: tl.constexpr, DETACH_B: tl.constexpr,
    MINIMUM_B: tl.constexpr, CEILING_B: tl.constexpr, HIGHEST_B: tl.constexpr,
):  # fmt: skip
    """What :func:`noiseproof.kernels.tile.tile_forward` gives, for requests without a focal sum or room."""
    first, stride = tl.program_id(0) * ROWS, stride_units.to(tl.int64) * UNIT
    line = tl.arange(0, ROWS)
    row = first + line
    label, valid = safe_label(target, row, row < rows, units * UNIT, target_stride)
    z_y = tl.load(logits + row.to(tl.int64) * stride + label, mask=row < rows, other=0.0).to(tl.float32)
    largest = tl.zeros([ROWS], tl.float32)
    rest, every, total = tl.zeros_like(largest), tl.zeros_like(largest), tl.zeros_like(largest)
    rest_a, rest_b, origins = tl.zeros_like(largest), tl.zeros_like(largest), tl.zeros_like(largest)
    for i in range(0, ROWS):
        is_label = _is_label(target, first + i, rows, units, target_stride, UNIT, PARTS)
        z = _read(logits, first + i, rows, units, stride, UNIT, PARTS)
        origin, sum_of_z = _sum_of_z(z, is_label, units, NLL, UNIT, PARTS)
        z = tl.where(is_label, float("-inf"), z)
        top = tl.maximum(tl.max(tl.max(z, 1), 0), LOWEST)
        x = z - top  # -inf at the label, at masked classes and past the end, where e is 0
        e = exp(x)
        # The largest classes have e = 1: they are left out, so that what the others add to them is not rounded away.
        e_less = tl.where(x == 0.0, 0.0, e)
        largest, rest = tl.where(line == i, top, largest), tl.where(line == i, _over(e_less), rest)
        every = tl.where(line == i, _over(e), every)
        total = tl.where(line == i, sum_of_z, total)
        origins = tl.where(line == i, origin, origins)
        rest_a = tl.where(line == i, _sum_of_powers(x, e_less, POWER_A, Q_A), rest_a)
        rest_b = tl.where(line == i, _sum_of_powers(x, e_less, POWER_B, Q_B), rest_b)
    tops = tl.floor(every - rest + 0.5)  # how many they are
    left = tl.zeros_like(rest) + (units * UNIT - 1).to(tl.float32)
    if tl.min(total, 0) == float("-inf"):
        origins = largest
        left, total = _unmasked(logits, target, first, origins, rows, units, stride, target_stride, UNIT, ROWS, PARTS)
    top = tl.maximum(largest, z_y)
    own, shift = z_y - top, largest - top
    e_y, factor = exp(own), exp(shift)
    d = tl.maximum((rest + tops) * factor, FLOOR)
    above = tl.where(own == 0.0, d, tl.maximum(rest + (tops - 1.0), 0.0) + e_y)  # D - 1
    log_sum, inverse = log1p(above), 1.0 / (d + e_y)
    _put(primitives, 0, rows, row, log_sum - own, valid)
    _put(primitives, 1, rows, row, -log1p(e_y / d), valid)
    if NLL:
        _put(primitives, NLL, rows, row, left * log_sum + (left * (top - origins) - total), valid)
    if LEAD:
        _put(primitives, LEAD, rows, row, z_y - largest, valid)
    _put_power(primitives, saved, rows, row, valid, rest, rest_a, tops, shift, factor, own, inverse, log_sum, POWER_A, Q_A)
    _put_power(primitives, saved, rows, row, valid, rest, rest_b, tops, shift, factor, own, inverse, log_sum, POWER_B, Q_B)
    _put_row(saved, rows, row, top, own, d, log_sum, left)
