"""Rows longer than a tile, the second pass: one reading and one writing, with the sums that the first pass saved.

The gradient may be written over the logits. Names of the arguments are those of :mod:`noiseproof.kernels.tile`.
"""

from __future__ import annotations

import triton
import triton.language as tl

from noiseproof.kernels.terms import (
    class_terms,
    exp,
    expm1,
    miss_of_largest,
    norm_power,
    power_change,
    power_term,
    row_factors,
    safe_label,
)

__all__ = ["factors_of", "gradient_of", "stream_backward"]


@triton.jit
def _load(rows_of, which, rows, row):
    return tl.load(rows_of + which * rows.to(tl.int64) + row)


@triton.jit
def _upstream(grads, by_row, by_column, row, wanted, WHICH: tl.constexpr):
    """The gradient of a primitive; 0 where the label is masked, since its nll is infinite there and its slopes may be too.

    It is read before that is known: a reading that waits for another takes twice as long.
    """
    return tl.where(wanted, tl.load(grads + WHICH * by_row.to(tl.int64) + row.to(tl.int64) * by_column), 0.0)


@triton.jit
def _asked(grads, by_row, by_column, row, wanted, WHICH: tl.constexpr):
    """That of a primitive that may not be there."""
    factor = 0.0
    if WHICH:
        factor = _upstream(grads, by_row, by_column, row, wanted, WHICH)
    return factor


@triton.jit
def _saved_sum(saved, rows, row, WHICH: tl.constexpr):
    """What the first pass has saved for the gradient of a sum."""
    total = 0.0
    if WHICH:
        total = _load(saved, 3 + WHICH, rows, row)
    return total


@triton.jit
def _read(base, column, end):
    return tl.load(base + column, mask=column < end, other=float("-inf"), eviction_policy="evict_first")


@triton.jit
def _power_factors(
    by, value, total, own, hit, inverse, log_sum, slope, dz_y, WHICH: tl.constexpr, Q: tl.constexpr
):  # fmt: skip
    """The factor of ``e^q - e``, or of ``e^q`` where the label is the largest class; and what it adds to c0 and dz_y."""
    factor = Q * by
    if WHICH:
        dz_y -= factor * value * hit
        factor *= norm_power(inverse, log_sum, Q)
        slope += factor * (tl.where(own < 0.0, hit, 0.0) - total * inverse)
    return factor, slope, dz_y


@triton.jit
def factors_of(
    by_nll, by_log_miss, uniform, by_power_a, by_power_b, by_focal_a, by_focal_b,
    value_a, value_b, power_a, power_b, focal_a, focal_b, own, d, left, log_sum,
    POWER_A: tl.constexpr, Q_A: tl.constexpr, POWER_B: tl.constexpr, Q_B: tl.constexpr,
):  # fmt: skip
    """Of a row: 1/D, c0, dz_y and the factors of the power sums, from the gradients of its primitives, its power sums, and what
    the first pass has saved of each sum."""
    inverse, hit, slope, dz_y = row_factors(by_nll, by_log_miss, own, d)
    slope += uniform * left * inverse
    dz_y += uniform * left * hit
    by_power_a, slope, dz_y = _power_factors(
        by_power_a, value_a, power_a, own, hit, inverse, log_sum, slope, dz_y, POWER_A, Q_A
    )  # fmt: skip
    by_power_b, slope, dz_y = _power_factors(
        by_power_b, value_b, power_b, own, hit, inverse, log_sum, slope, dz_y, POWER_B, Q_B
    )  # fmt: skip
    total = by_focal_a * focal_a + by_focal_b * focal_b
    return inverse, slope + total * inverse, dz_y + total * hit, by_power_a, by_power_b


@triton.jit
def _power(x, e, below, Q: tl.constexpr):
    """``e^q - e``, or ``e^q`` where the label is the largest class."""
    return power_term(x, e, Q) - below * e if Q == 2 else power_change(x, e, below > 0.0, Q)


@triton.jit
def _with_powers(
    x, e, slope, uniform, below, power_a, power_b,
    POWER_A: tl.constexpr, Q_A: tl.constexpr, POWER_B: tl.constexpr, Q_B: tl.constexpr,
):  # fmt: skip
    """All but the focal terms; ``e^q - e`` is 0 where e is 1, and stays so."""
    by_e = slope + power_a * (e - below) if POWER_A and Q_A == 2 else slope
    out = e * by_e - uniform
    if POWER_A and Q_A != 2:
        out += power_a * _power(x, e, below, Q_A)
    if POWER_B:
        out += power_b * _power(x, e, below, Q_B)
    return out


@triton.jit
def _add_focal(
    out, factor, x, e, inverse, log_sum, top_miss, USED: tl.constexpr,
    GAMMA: tl.constexpr, DETACH: tl.constexpr, MINIMUM: tl.constexpr, CEILING: tl.constexpr, HIGHEST: tl.constexpr,
):  # fmt: skip
    if USED:
        _, h = class_terms(x, e, log_sum, inverse, top_miss, GAMMA, DETACH, MINIMUM, CEILING, HIGHEST)
        out -= factor * h
    return out


@triton.jit
def gradient_of(
    z, top, slope, uniform, below, power_a, power_b, focal_a, focal_b, inverse, log_sum, top_miss,
    POWER_A: tl.constexpr, Q_A: tl.constexpr, POWER_B: tl.constexpr, Q_B: tl.constexpr,
    FOCAL_A: tl.constexpr, GAMMA_A: tl.constexpr, DETACH_A: tl.constexpr,
    MINIMUM_A: tl.constexpr, CEILING_A: tl.constexpr, HIGHEST_A: tl.constexpr,
    FOCAL_B: tl.constexpr, GAMMA_B: tl.constexpr, DETACH_B: tl.constexpr,
    MINIMUM_B: tl.constexpr, CEILING_B: tl.constexpr, HIGHEST_B: tl.constexpr,
):  # fmt: skip
    """``dz_j = c0 e_j + c2 (e_j^q - e_j) + u + w h_j`` of classes that are neither the label nor masked."""
    x = z - top
    e = exp(x)
    out = _with_powers(x, e, slope, uniform, below, power_a, power_b, POWER_A, Q_A, POWER_B, Q_B)
    out = _add_focal(
        out, focal_a, x, e, inverse, log_sum, top_miss, FOCAL_A, GAMMA_A, DETACH_A, MINIMUM_A, CEILING_A, HIGHEST_A
    )  # fmt: skip
    return _add_focal(
        out, focal_b, x, e, inverse, log_sum, top_miss, FOCAL_B, GAMMA_B, DETACH_B, MINIMUM_B, CEILING_B, HIGHEST_B
    )  # fmt: skip


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
    """The gradient of TIMES blocks of WIDTH classes."""
    classes = units * UNIT
    parts = (classes + WIDTH * TIMES - 1) // (WIDTH * TIMES)
    row, start = tl.program_id(0) // parts, (tl.program_id(0) % parts) * (WIDTH * TIMES)
    base = logits + row.to(tl.int64) * (stride_units.to(tl.int64) * UNIT)
    end = tl.minimum(start + WIDTH * TIMES, classes)
    ahead = _read(base, start + tl.arange(0, WIDTH), end)  # a block before it is needed
    label, _ = safe_label(target, row, row < rows, classes, target_stride)
    top, own, d = _load(saved, 0, rows, row), _load(saved, 1, rows, row), _load(saved, 2, rows, row)
    log_sum, left = _load(saved, 3, rows, row), _load(saved, 4, rows, row)
    wanted = left >= 0.0
    uniform = _asked(grads, by_row, by_column, row, wanted, NLL)
    focal_a = _asked(grads, by_row, by_column, row, wanted, FOCAL_A)
    focal_b = _asked(grads, by_row, by_column, row, wanted, FOCAL_B)
    inverse, slope, dz_y, power_a, power_b = factors_of(
        _upstream(grads, by_row, by_column, row, wanted, 0), _upstream(grads, by_row, by_column, row, wanted, 1), uniform,
        _asked(grads, by_row, by_column, row, wanted, POWER_A), _asked(grads, by_row, by_column, row, wanted, POWER_B),
        focal_a, focal_b, _asked(primitives, rows, 1, row, wanted, POWER_A), _asked(primitives, rows, 1, row, wanted, POWER_B),
        _saved_sum(saved, rows, row, POWER_A), _saved_sum(saved, rows, row, POWER_B),
        _saved_sum(saved, rows, row, FOCAL_A), _saved_sum(saved, rows, row, FOCAL_B), own, d, left, log_sum,
        POWER_A, Q_A, POWER_B, Q_B,
    )  # fmt: skip
    top_miss = miss_of_largest(expm1(log_sum), inverse)
    below = tl.where(own < 0.0, 1.0, 0.0)
    place = gradient + row.to(tl.int64) * (out_stride.to(tl.int64) * UNIT)
    for step in range(0, TIMES):
        first = start + step * WIDTH
        column = first + tl.arange(0, WIDTH)
        z = ahead.to(tl.float32)
        if TIMES > 1:
            ahead = _read(base, column + WIDTH, end)
        out = gradient_of(
            z, top, slope, uniform, below, power_a, power_b, focal_a, focal_b, inverse, log_sum, top_miss,
            POWER_A, Q_A, POWER_B, Q_B, FOCAL_A, GAMMA_A, DETACH_A, MINIMUM_A, CEILING_A, HIGHEST_A,
            FOCAL_B, GAMMA_B, DETACH_B, MINIMUM_B, CEILING_B, HIGHEST_B,
        )  # fmt: skip
        if ((label >= first) & (label < first + WIDTH)) | (left < classes - 1):
            out = tl.where(column == label, dz_y, tl.where(z > float("-inf"), out, 0.0))
        tl.store(place + column, out.to(gradient.dtype.element_ty), mask=column < classes)
