"""Rows longer than a tile, the second pass: one reading and one writing, with the sums that the first pass saved.

The gradient may be written over the logits. Names of the arguments are those of :mod:`noiseproof.kernels.tile`.
"""

from __future__ import annotations

import triton
import triton.language as tl

from noiseproof.kernels.terms import TINY, exp, expm1, focal_terms, norm_power, power_term, room_terms, row_factors, safe_label

__all__ = ["stream_backward"]


@triton.jit
def _load(rows_of, which, rows, row):
    return tl.load(rows_of + which * rows.to(tl.int64) + row)


@triton.jit
def _upstream(grads, by_row, by_column, row, wanted, WHICH: tl.constexpr):
    """The gradient of a primitive; 0 where the label is masked, since its nll is infinite there and its slopes may be too."""
    return tl.load(grads + WHICH * by_row.to(tl.int64) + row.to(tl.int64) * by_column, mask=wanted, other=0.0)


@triton.jit
def _asked(grads, by_row, by_column, row, wanted, WHICH: tl.constexpr):
    """That of a primitive that may not be there."""
    factor = 0.0
    if WHICH:
        factor = _upstream(grads, by_row, by_column, row, wanted, WHICH)
    return factor


@triton.jit
def _read(base, column, end):
    return tl.load(base + column, mask=column < end, other=float("-inf"), eviction_policy="evict_first")


@triton.jit
def _power_factors(
    grads, by_row, by_column, primitives, saved, rows, row, wanted, own, hit, inverse, log_sum, slope, dz_y,
    WHICH: tl.constexpr, Q: tl.constexpr,
):  # fmt: skip
    """The factor of ``e^q - e``, or of ``e^q`` where the label is the largest class; and what it adds to c0 and dz_y."""
    factor = Q * _asked(grads, by_row, by_column, row, wanted, WHICH)
    if WHICH:
        dz_y -= factor * tl.load(primitives + WHICH * rows.to(tl.int64) + row, mask=wanted, other=0.0) * hit
        factor *= norm_power(inverse, log_sum, Q)
        slope += factor * (tl.where(own < 0.0, hit, 0.0) - _load(saved, 3 + WHICH, rows, row) * inverse)
    return factor, slope, dz_y


@triton.jit
def _focal_factors(grads, by_row, by_column, saved, rows, row, wanted, hit, inverse, slope, dz_y, WHICH: tl.constexpr):
    """The factor of h, and what it adds to c0 and dz_y."""
    factor = _asked(grads, by_row, by_column, row, wanted, WHICH)
    if WHICH:
        total = factor * _load(saved, 3 + WHICH, rows, row)
        slope, dz_y = slope + total * inverse, dz_y + total * hit
    return factor, slope, dz_y


@triton.jit
def _with_powers(
    x, e, slope, uniform, below, power_a, power_b,
    POWER_A: tl.constexpr, Q_A: tl.constexpr, POWER_B: tl.constexpr, Q_B: tl.constexpr,
):  # fmt: skip
    """All but the focal terms; ``e^q - e`` is 0 where e is 1, and stays so."""
    by_e = slope + power_a * (e - below) if POWER_A and Q_A == 2 else slope
    out = e * by_e - uniform
    if POWER_A and Q_A != 2:
        out += power_a * (power_term(x, e, Q_A) - below * e)
    if POWER_B:
        out += power_b * (power_term(x, e, Q_B) - below * e)
    return out


@triton.jit
def _add_focal(
    out, factor, x, e, inverse, log_sum, top_miss, USED: tl.constexpr,
    GAMMA: tl.constexpr, DETACH: tl.constexpr, MINIMUM: tl.constexpr, CEILING: tl.constexpr, HIGHEST: tl.constexpr,
):  # fmt: skip
    if USED:
        f, h, nll = focal_terms(x, e, log_sum, inverse, top_miss, GAMMA, DETACH)
        if MINIMUM > 0:
            f, h = room_terms(f, h, nll, CEILING, HIGHEST)
        out -= factor * h
    return out


@triton.jit(do_not_specialize=["rows", "units", "stride_units", "target_stride", "by_row", "by_column", "out_stride"])
def stream_backward(
    grads, logits, target, primitives, saved, gradient, rows, units, stride_units, target_stride, by_row, by_column, out_stride,
    UNIT: tl.constexpr, WIDTH: tl.constexpr, TIMES: tl.constexpr, NLL: tl.constexpr, LEAD: tl.constexpr,
    POWER_A: tl.constexpr, Q_A: tl.constexpr, POWER_B: tl.constexpr, Q_B: tl.constexpr,
    FOCAL_A: tl.constexpr, GAMMA_A: tl.constexpr, DETACH_A: tl.constexpr,
    MINIMUM_A: tl.constexpr, CEILING_A: tl.constexpr, HIGHEST_A: tl.constexpr,
    FOCAL_B: tl.constexpr, GAMMA_B: tl.constexpr, DETACH_B: tl.constexpr,
    MINIMUM_B: tl.constexpr, CEILING_B: tl.constexpr, HIGHEST_B: tl.constexpr,
):  # fmt: skip
    """``dz_j = c0 e_j + c2 (e_j^q - e_j) + u + w h_j`` for TIMES blocks of WIDTH classes, and dz_y at the label's place."""
    classes = units * UNIT
    parts = (classes + WIDTH * TIMES - 1) // (WIDTH * TIMES)
    row, start = tl.program_id(0) // parts, (tl.program_id(0) % parts) * (WIDTH * TIMES)
    base = logits + row.to(tl.int64) * (stride_units.to(tl.int64) * UNIT)
    end = tl.minimum(start + WIDTH * TIMES, classes)
    if TIMES > 1:
        ahead = _read(base, start + tl.arange(0, WIDTH), end)  # a block before it is needed
    label, _ = safe_label(target, row, row < rows, classes, target_stride)
    top, own, d = _load(saved, 0, rows, row), _load(saved, 1, rows, row), _load(saved, 2, rows, row)
    log_sum, left = _load(saved, 3, rows, row), _load(saved, 4, rows, row)
    wanted = left >= 0.0
    by_nll = _upstream(grads, by_row, by_column, row, wanted, 0)
    by_log_miss = _upstream(grads, by_row, by_column, row, wanted, 1)
    uniform = _asked(grads, by_row, by_column, row, wanted, NLL)
    inverse, hit, slope, dz_y = row_factors(by_nll, by_log_miss, own, d)
    slope += uniform * left * inverse
    dz_y += uniform * left * hit
    power_a, slope, dz_y = _power_factors(
        grads, by_row, by_column, primitives, saved, rows, row, wanted, own, hit, inverse, log_sum, slope, dz_y, POWER_A, Q_A
    )
    power_b, slope, dz_y = _power_factors(
        grads, by_row, by_column, primitives, saved, rows, row, wanted, own, hit, inverse, log_sum, slope, dz_y, POWER_B, Q_B
    )
    focal_a, slope, dz_y = _focal_factors(
        grads, by_row, by_column, saved, rows, row, wanted, hit, inverse, slope, dz_y, FOCAL_A
    )
    focal_b, slope, dz_y = _focal_factors(
        grads, by_row, by_column, saved, rows, row, wanted, hit, inverse, slope, dz_y, FOCAL_B
    )
    top_miss = tl.maximum(expm1(log_sum) * inverse, TINY)
    below = tl.where(own < 0.0, 1.0, 0.0)
    place = gradient + row.to(tl.int64) * (out_stride.to(tl.int64) * UNIT)
    for step in range(0, TIMES):
        first = start + step * WIDTH
        column = first + tl.arange(0, WIDTH)
        z = ahead.to(tl.float32) if TIMES > 1 else _read(base, column, end).to(tl.float32)
        if TIMES > 1:
            ahead = _read(base, column + WIDTH, end)
        x = z - top
        e = exp(x)
        out = _with_powers(x, e, slope, uniform, below, power_a, power_b, POWER_A, Q_A, POWER_B, Q_B)
        out = _add_focal(
            out, focal_a, x, e, inverse, log_sum, top_miss, FOCAL_A, GAMMA_A, DETACH_A, MINIMUM_A, CEILING_A, HIGHEST_A
        )  # fmt: skip
        out = _add_focal(
            out, focal_b, x, e, inverse, log_sum, top_miss, FOCAL_B, GAMMA_B, DETACH_B, MINIMUM_B, CEILING_B, HIGHEST_B
        )  # fmt: skip
        if ((label >= first) & (label < first + WIDTH)) | (left < classes - 1):
            out = tl.where(column == label, dz_y, tl.where(z > float("-inf"), out, 0.0))
        tl.store(place + column, out.to(gradient.dtype.element_ty), mask=column < classes)
