"""Rows that fit into registers, several to a program: the first pass, and the second for a few classes.

``classes = units * UNIT`` and ``stride = stride_units * UNIT`` where UNIT, a power of two, divides both: so the compiler knows
that 16 bytes can be read at a time. Capitals say what is asked for: NLL, LEAD, POWER_A, POWER_B, FOCAL_A and FOCAL_B are rows
of ``primitives``, or 0. MINIMUM is 0 for a focal sum; else it is the room below CEILING, reached at a -log p of HIGHEST.
"""

from __future__ import annotations

import triton
import triton.language as tl

from noiseproof.kernels.terms import (
    FLOOR,
    LOWEST,
    TINY,
    exp,
    expm1,
    focal_slopes_from_top,
    focal_terms,
    log1p,
    norm_power,
    power_term,
    room_terms,
    row_factors,
    safe_label,
)

__all__ = ["tile_backward", "tile_forward"]


@triton.jit
def _tile(logits, target, rows, classes, stride, target_stride, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """A program's rows: their numbers, which there are, their labels, which are valid, where they are, and the logits."""
    row, column = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    real = row < rows
    label, valid = safe_label(target, row, real, classes, target_stride)
    place = logits + row.to(tl.int64)[:, None] * stride + column[None, :]
    z = tl.load(place, mask=real[:, None] & (column < classes)[None, :], other=float("-inf")).to(tl.float32)
    return row, real, label, valid, column[None, :] == label[:, None], z


@triton.jit
def _put(rows_of, which, rows, row, real, value, valid):
    """NaN where the label is not valid."""
    tl.store(rows_of + which * rows.to(tl.int64) + row, tl.where(valid, value, float("nan")), mask=real)


@triton.jit
def _put_row(saved, rows, row, real, top, own, d, log_sum, left):
    _put(saved, 0, rows, row, real, top, real)
    _put(saved, 1, rows, row, real, own, real)
    _put(saved, 2, rows, row, real, d, real)
    _put(saved, 3, rows, row, real, log_sum, real)
    _put(saved, 4, rows, row, real, tl.where(own == float("-inf"), -1.0, left), real)


@triton.jit
def _put_power(primitives, saved, which, rows, row, real, valid, x, e_less, tops, rest, own, inverse, log_sum, Q: tl.constexpr):
    """The power sum, and for its gradient the sum of e^q - e, or of e^q where the label is the largest class."""
    term = power_term(x, e_less, Q)
    if Q != 1 and Q != 2 and Q != 3:  # not made of e_less
        term = tl.where(x == 0.0, 0.0, term)
    rest_q = tl.sum(term, 1)
    _put(primitives, which, rows, row, real, (rest_q + tops) * norm_power(inverse, log_sum, Q), valid)
    _put(saved, 3 + which, rows, row, real, tl.where(own < 0.0, rest_q - rest, rest_q + tops), real)


@triton.jit
def _put_focal(
    primitives, saved, which, rows, row, real, valid, x, e, alive, log_sum, inverse, top_miss,
    GAMMA: tl.constexpr, DETACH: tl.constexpr, MINIMUM: tl.constexpr, CEILING: tl.constexpr, HIGHEST: tl.constexpr,
):  # fmt: skip
    f, h, nll = focal_terms(x, e, log_sum[:, None], inverse[:, None], top_miss[:, None], GAMMA, DETACH)
    if MINIMUM > 0:
        f, h = room_terms(f, h, nll, CEILING, HIGHEST)
    value = tl.maximum(tl.sum(tl.where(alive, f, 0.0), 1), TINY)  # or a share of it would be 0/0 where one class is left
    _put(primitives, which, rows, row, real, value, valid)
    _put(saved, 3 + which, rows, row, real, tl.sum(tl.where(alive, h, 0.0), 1), real)


@triton.jit(do_not_specialize=["rows", "units", "stride_units", "target_stride"])
def tile_forward(
    logits, target, primitives, saved, rows, units, stride_units, target_stride,
    UNIT: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, NLL: tl.constexpr, LEAD: tl.constexpr,
    POWER_A: tl.constexpr, Q_A: tl.constexpr, POWER_B: tl.constexpr, Q_B: tl.constexpr,
    FOCAL_A: tl.constexpr, GAMMA_A: tl.constexpr, DETACH_A: tl.constexpr,
    MINIMUM_A: tl.constexpr, CEILING_A: tl.constexpr, HIGHEST_A: tl.constexpr,
    FOCAL_B: tl.constexpr, GAMMA_B: tl.constexpr, DETACH_B: tl.constexpr,
    MINIMUM_B: tl.constexpr, CEILING_B: tl.constexpr, HIGHEST_B: tl.constexpr,
):  # fmt: skip
    """The primitives; max z, z_y - max z, d, log D, the number of other classes (-1: the label is masked); and, three rows
    after that of each sum's primitive, what the gradient needs of it."""
    stride = stride_units.to(tl.int64) * UNIT
    row, real, label, valid, is_label, z = _tile(logits, target, rows, units * UNIT, stride, target_stride, ROWS, COLUMNS)
    z_y = tl.load(logits + row.to(tl.int64) * stride + label, mask=real, other=0.0).to(tl.float32)
    z = tl.where(is_label, float("-inf"), z)
    largest = tl.maximum(tl.max(z, 1), LOWEST)
    top = tl.maximum(largest, z_y)
    own = z_y - top
    x = z - top[:, None]  # -inf at the label, at masked classes and past the end, where e is 0
    e = exp(x)
    e_y = exp(own)
    # The largest classes have e = 1: they are left out, so that what the others add to them is not rounded away, and counted.
    e_less = tl.where(x == 0.0, 0.0, e)
    rest = tl.sum(e_less, 1)
    tops = tl.floor(tl.sum(e, 1) - rest + 0.5)
    left = (units * UNIT - 1).to(tl.float32) + tl.zeros_like(rest)
    alive = z > float("-inf")
    if NLL + FOCAL_A:
        left = tl.sum(alive.to(tl.float32), 1)
        x = tl.where(alive, x, 0.0)
    d = tl.maximum(rest + tops, FLOOR)
    above = tl.where(own == 0.0, d, tl.maximum(rest + (tops - 1.0), 0.0) + e_y)  # D - 1
    log_sum = log1p(above)
    inverse = 1.0 / (d + e_y)
    _put(primitives, 0, rows, row, real, log_sum - own, valid)
    _put(primitives, 1, rows, row, real, -log1p(e_y / d), valid)
    if NLL:
        _put(primitives, NLL, rows, row, real, left * log_sum - tl.sum(x, 1), valid)
    if LEAD:
        _put(primitives, LEAD, rows, row, real, z_y - largest, valid)
    if POWER_A:
        _put_power(
            primitives, saved, POWER_A, rows, row, real, valid, x, e_less, tops, rest, own, inverse, log_sum, Q_A
        )  # fmt: skip
    if POWER_B:
        _put_power(
            primitives, saved, POWER_B, rows, row, real, valid, x, e_less, tops, rest, own, inverse, log_sum, Q_B
        )  # fmt: skip
    top_miss = tl.maximum(above * inverse, TINY)
    if FOCAL_A:
        _put_focal(
            primitives, saved, FOCAL_A, rows, row, real, valid, x, e, alive, log_sum, inverse, top_miss,
            GAMMA_A, DETACH_A, MINIMUM_A, CEILING_A, HIGHEST_A,
        )  # fmt: skip
    if FOCAL_B:
        _put_focal(
            primitives, saved, FOCAL_B, rows, row, real, valid, x, e, alive, log_sum, inverse, top_miss,
            GAMMA_B, DETACH_B, MINIMUM_B, CEILING_B, HIGHEST_B,
        )  # fmt: skip
    _put_row(saved, rows, row, real, top, own, d, log_sum, left)


@triton.jit
def _get(rows_of, which, rows, row, real):
    return tl.load(rows_of + which * rows.to(tl.int64) + row, mask=real, other=0.0)


@triton.jit
def _upstream(grads, which, by_row, by_column, row, real):
    """The gradient of a primitive; 0 where the label is masked, since its nll is infinite there and its slopes may be too."""
    return tl.load(grads + which * by_row.to(tl.int64) + row.to(tl.int64) * by_column, mask=real, other=0.0)


@triton.jit
def _add_power(
    primitives, which, factor, x, e, e_less_1, alive, own, hit, inverse, log_sum, rows, row, real, slope, dz_y, extra,
    Q: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """G/D = (e_y - sum of these terms) / D; where the label is the largest class the sum is that of e^q, without e_y."""
    factor = Q * factor
    dz_y -= factor * tl.where(real, _get(primitives, which, rows, row, real), 0.0) * hit
    factor *= norm_power(inverse, log_sum, Q)
    below = own < 0.0
    if EXACT and Q == 2:
        term = e * tl.where(below[:, None], e_less_1, e)
    else:
        term = power_term(x, e, Q) - tl.where(below[:, None], e, 0.0)
    term = tl.where(alive, term, 0.0)
    slope += factor * (tl.where(below, hit, 0.0) - tl.sum(term, 1) * inverse)
    return slope, dz_y, extra + factor[:, None] * term


@triton.jit
def _add_focal(
    factor, x, e, alive, left, hit, inverse, log_sum, top_miss, slope, dz_y, uniform, extra, EXACT: tl.constexpr,
    GAMMA: tl.constexpr, DETACH: tl.constexpr, MINIMUM: tl.constexpr, CEILING: tl.constexpr, HIGHEST: tl.constexpr,
):  # fmt: skip
    f, h, nll = focal_terms(x, e, log_sum[:, None], inverse[:, None], top_miss[:, None], GAMMA, DETACH)
    if MINIMUM > 0:
        f, h = room_terms(f, h, nll, CEILING, HIGHEST)
    elif EXACT:
        # What all classes have of h acts as nll_others does.
        h_top, h = focal_slopes_from_top(x, h, log_sum[:, None], GAMMA, DETACH)
        common = factor * tl.max(h_top, 1)
        uniform += common
        dz_y += common * hit * left
    h = tl.where(alive, h, 0.0)
    total = factor * tl.sum(h, 1)
    return slope + total * inverse, dz_y + total * hit, uniform, extra - factor[:, None] * h


@triton.jit
def _write(gradient, row, real, classes, stride, out, COLUMNS: tl.constexpr):
    column = tl.arange(0, COLUMNS)
    place = gradient + row.to(tl.int64)[:, None] * stride + column[None, :]
    tl.store(place, out.to(gradient.dtype.element_ty), mask=real[:, None] & (column < classes)[None, :])


@triton.jit(do_not_specialize=["rows", "units", "stride_units", "target_stride", "by_row", "by_column", "out_stride"])
def tile_backward(
    grads, logits, target, primitives, saved, gradient, rows, units, stride_units, target_stride, by_row, by_column, out_stride,
    UNIT: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, EXACT: tl.constexpr, NLL: tl.constexpr, LEAD: tl.constexpr,
    POWER_A: tl.constexpr, Q_A: tl.constexpr, POWER_B: tl.constexpr, Q_B: tl.constexpr,
    FOCAL_A: tl.constexpr, GAMMA_A: tl.constexpr, DETACH_A: tl.constexpr,
    MINIMUM_A: tl.constexpr, CEILING_A: tl.constexpr, HIGHEST_A: tl.constexpr,
    FOCAL_B: tl.constexpr, GAMMA_B: tl.constexpr, DETACH_B: tl.constexpr,
    MINIMUM_B: tl.constexpr, CEILING_B: tl.constexpr, HIGHEST_B: tl.constexpr,
):  # fmt: skip
    """``dz_j = c0 e_j + c2 (e_j^q - e_j) + u + w h_j``, and what belongs to the label at its place."""
    classes = units * UNIT
    stride = stride_units.to(tl.int64) * UNIT
    row, real, _, _, is_label, z = _tile(logits, target, rows, classes, stride, target_stride, ROWS, COLUMNS)
    top, own, log_sum = _get(saved, 0, rows, row, real), _get(saved, 1, rows, row, real), _get(saved, 3, rows, row, real)
    d, left = tl.maximum(_get(saved, 2, rows, row, real), FLOOR), _get(saved, 4, rows, row, real)
    wanted = real & (left >= 0.0)
    alive = (z > float("-inf")) & ~is_label
    x = tl.where(alive, z - top[:, None], 0.0)
    e = tl.where(alive, exp(x), 0.0)
    by_nll = _upstream(grads, 0, by_row, by_column, row, wanted)
    by_log_miss = _upstream(grads, 1, by_row, by_column, row, wanted)
    inverse, hit, slope, dz_y = row_factors(by_nll, by_log_miss, own, d)
    top_miss = tl.maximum(expm1(log_sum) * inverse, TINY)
    uniform, extra = tl.zeros_like(slope), tl.zeros_like(e)
    e_less_1 = tl.where(alive, expm1(x), 0.0) if EXACT else e
    if NLL:
        uniform += _upstream(grads, NLL, by_row, by_column, row, wanted)
        dz_y += uniform * left * hit
    if POWER_A:
        slope, dz_y, extra = _add_power(
            primitives, POWER_A, _upstream(grads, POWER_A, by_row, by_column, row, wanted), x, e, e_less_1, alive, own, hit,
            inverse, log_sum, rows, row, wanted, slope, dz_y, extra, Q_A, EXACT,
        )  # fmt: skip
    if POWER_B:
        slope, dz_y, extra = _add_power(
            primitives, POWER_B, _upstream(grads, POWER_B, by_row, by_column, row, wanted), x, e, e_less_1, alive, own, hit,
            inverse, log_sum, rows, row, wanted, slope, dz_y, extra, Q_B, EXACT,
        )  # fmt: skip
    if FOCAL_A:
        slope, dz_y, uniform, extra = _add_focal(
            _upstream(grads, FOCAL_A, by_row, by_column, row, wanted), x, e, alive, left, hit, inverse, log_sum, top_miss,
            slope, dz_y, uniform, extra, EXACT, GAMMA_A, DETACH_A, MINIMUM_A, CEILING_A, HIGHEST_A,
        )  # fmt: skip
    if FOCAL_B:
        slope, dz_y, uniform, extra = _add_focal(
            _upstream(grads, FOCAL_B, by_row, by_column, row, wanted), x, e, alive, left, hit, inverse, log_sum, top_miss,
            slope, dz_y, uniform, extra, EXACT, GAMMA_B, DETACH_B, MINIMUM_B, CEILING_B, HIGHEST_B,
        )  # fmt: skip
    if EXACT:
        extra += e_less_1 * (left * uniform * inverse)[:, None]
        uniform *= hit + tl.sum(e_less_1, 1) * inverse
    else:
        slope += uniform * left * inverse
    out = extra + e * slope[:, None] - uniform[:, None]
    if COLUMNS == 2:  # the differences would cancel here, and dz_y is made of products
        out = tl.zeros_like(e) - dz_y[:, None]
    out = tl.where(is_label, dz_y[:, None], tl.where(alive, out, 0.0))
    _write(gradient, row, real, classes, out_stride.to(tl.int64) * UNIT, out, COLUMNS)
