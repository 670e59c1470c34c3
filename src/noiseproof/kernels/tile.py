"""Rows that fit into registers, several to a program: their sums and their gradient, and the kernels that read and write them.

``classes = units * UNIT`` and ``stride = stride_units * UNIT`` where UNIT, a power of two, divides both: so the compiler knows
that 16 bytes can be read at a time. ``z`` is ``[ROWS, COLUMNS]``, -inf past the last class; what there is one of for a row is
``[ROWS]``. Capitals say what is needed: NLL, MARGIN, POWER_A, POWER_B, FOCAL_A and FOCAL_B are rows of ``statistics``, or 0.
MINIMUM is 0 for a focal sum; else the sum is clipped at CEILING, reached at a -log p of HIGHEST.
"""

from __future__ import annotations

import triton
import triton.language as tl

from noiseproof.kernels.terms import (
    FLOOR,
    MIN_DIVISOR,
    MIN_FLOAT,
    at_least,
    class_terms,
    exp,
    expm1,
    focal_grads_from_top,
    log1p,
    norm_power,
    power_change,
    power_term,
    rest_of_largest,
    row_factors,
    safe_label,
)


@triton.jit
def _power_sum(x, e_less, tops, rest, own, inverse, log_sum, Q: tl.constexpr):
    """The power sum, and for its gradient the sum of e^q - e, or of e^q where the label is the largest class."""
    term = power_term(x, e_less, Q)
    if Q != 1 and Q != 2 and Q != 3:  # not made of e_less
        term = tl.where(x == 0.0, 0.0, term)
    rest_q = tl.sum(term, 1)
    change = rest_q - rest if Q == 2 else tl.sum(power_change(x, e_less, True, Q), 1)
    return (rest_q + tops) * norm_power(inverse, log_sum, Q), tl.where(own < 0.0, change, rest_q + tops)


@triton.jit
def _focal_sum(
    x, e, alive, log_sum, inverse, top_rest,
    GAMMA: tl.constexpr, DETACH: tl.constexpr, MINIMUM: tl.constexpr, CEILING: tl.constexpr, HIGHEST: tl.constexpr,
):  # fmt: skip
    """The focal or clipped sum, and that of its gradients."""
    f, h = class_terms(
        x, e, log_sum[:, None], inverse[:, None], top_rest[:, None], GAMMA, DETACH, MINIMUM, CEILING, HIGHEST
    )  # fmt: skip
    value = tl.maximum(tl.sum(tl.where(alive, f, 0.0), 1), MIN_DIVISOR)  # or a share of it would be 0/0 where one class is left
    return value, tl.sum(tl.where(alive, h, 0.0), 1)


@triton.jit
def row_sums(
    z, z_y, is_label, classes, NLL: tl.constexpr,
    POWER_A: tl.constexpr, Q_A: tl.constexpr, POWER_B: tl.constexpr, Q_B: tl.constexpr,
    FOCAL_A: tl.constexpr, GAMMA_A: tl.constexpr, DETACH_A: tl.constexpr,
    MINIMUM_A: tl.constexpr, CEILING_A: tl.constexpr, HIGHEST_A: tl.constexpr,
    FOCAL_B: tl.constexpr, GAMMA_B: tl.constexpr, DETACH_B: tl.constexpr,
    MINIMUM_B: tl.constexpr, CEILING_B: tl.constexpr, HIGHEST_B: tl.constexpr,
):  # fmt: skip
    """Max z, z_y - max z, d, log D, the number of other classes (-1: the label is masked); nll, log1m, nll_others, margin; and
    of each sum its value and what its gradient needs of it. 0 for what is not needed."""
    z = tl.where(is_label, float("-inf"), z)
    largest = tl.maximum(tl.max(z, 1), MIN_FLOAT)
    top = tl.maximum(largest, z_y)
    own = z_y - top
    x = z - top[:, None]  # -inf at the label, at masked classes and past the end, where e is 0
    e = exp(x)
    e_y = exp(own)
    # The largest classes have e = 1: they are left out, so that what the others add to them is not rounded away, and counted.
    e_less = tl.where(x == 0.0, 0.0, e)
    rest = tl.sum(e_less, 1)
    tops = tl.floor(tl.sum(e, 1) - rest + 0.5)
    left = (classes - 1).to(tl.float32) + tl.zeros_like(rest)
    alive = z > float("-inf")
    if NLL + FOCAL_A:
        left = tl.sum(alive.to(tl.float32), 1)
        x = tl.where(alive, x, 0.0)
    d = at_least(rest + tops, FLOOR)
    above = tl.where(own == 0.0, d, at_least(rest + (tops - 1.0), 0.0) + e_y)  # D - 1
    log_sum = log1p(above)
    inverse = 1.0 / (d + e_y)
    others = left * log_sum - tl.sum(x, 1) if NLL else tl.zeros_like(rest)
    power_a, rest_a, power_b, rest_b = tl.zeros_like(rest), tl.zeros_like(rest), tl.zeros_like(rest), tl.zeros_like(rest)
    focal_a, grads_a, focal_b, grads_b = power_a, power_a, power_a, power_a
    if POWER_A:
        power_a, rest_a = _power_sum(x, e_less, tops, rest, own, inverse, log_sum, Q_A)
    if POWER_B:
        power_b, rest_b = _power_sum(x, e_less, tops, rest, own, inverse, log_sum, Q_B)
    top_rest = rest_of_largest(above, inverse)
    if FOCAL_A:
        focal_a, grads_a = _focal_sum(
            x, e, alive, log_sum, inverse, top_rest, GAMMA_A, DETACH_A, MINIMUM_A, CEILING_A, HIGHEST_A
        )  # fmt: skip
    if FOCAL_B:
        focal_b, grads_b = _focal_sum(
            x, e, alive, log_sum, inverse, top_rest, GAMMA_B, DETACH_B, MINIMUM_B, CEILING_B, HIGHEST_B
        )  # fmt: skip
    left = tl.where(own == float("-inf"), -1.0, left)
    return (
        top, own, d, log_sum, left, log_sum - own, -log1p(e_y / d), others, z_y - largest,
        power_a, rest_a, power_b, rest_b, focal_a, grads_a, focal_b, grads_b,
    )  # fmt: skip


@triton.jit
def _add_power(
    power, factor, x, e, e_less_1, alive, own, p_y, inverse, log_sum, slope, dz_y, extra,
    Q: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """G/D = (e_y - sum of these terms) / D; where the label is the largest class the sum is that of e^q, without e_y."""
    factor = Q * factor
    dz_y -= factor * power * p_y
    factor *= norm_power(inverse, log_sum, Q)
    below = own < 0.0
    if EXACT and Q == 2:
        term = e * tl.where(below[:, None], e_less_1, e)
    elif Q == 2:
        term = power_term(x, e, Q) - tl.where(below[:, None], e, 0.0)
    else:
        term = power_change(x, e, below[:, None], Q)
    term = tl.where(alive, term, 0.0)
    slope += factor * (tl.where(below, p_y, 0.0) - tl.sum(term, 1) * inverse)
    return slope, dz_y, extra + factor[:, None] * term


@triton.jit
def _add_focal(
    factor, x, e, alive, left, p_y, inverse, log_sum, top_rest, slope, dz_y, uniform, extra, EXACT: tl.constexpr,
    GAMMA: tl.constexpr, DETACH: tl.constexpr, MINIMUM: tl.constexpr, CEILING: tl.constexpr, HIGHEST: tl.constexpr,
):  # fmt: skip
    _, h = class_terms(
        x, e, log_sum[:, None], inverse[:, None], top_rest[:, None], GAMMA, DETACH, MINIMUM, CEILING, HIGHEST
    )  # fmt: skip
    if EXACT and MINIMUM == 0:
        # What all classes have of h acts as nll_others does.
        h_top, h = focal_grads_from_top(x, h, log_sum[:, None], GAMMA, DETACH)
        common = factor * tl.max(h_top, 1)
        uniform += common
        dz_y += common * p_y * left
    h = tl.where(alive, h, 0.0)
    total = factor * tl.sum(h, 1)
    return slope + total * inverse, dz_y + total * p_y, uniform, extra - factor[:, None] * h


@triton.jit
def row_gradient(
    z, is_label, top, own, d, log_sum, left, by_nll, by_log1m, by_others, by_power_a, by_power_b, by_focal_a, by_focal_b,
    power_a, power_b, COLUMNS: tl.constexpr, EXACT: tl.constexpr, NLL: tl.constexpr,
    POWER_A: tl.constexpr, Q_A: tl.constexpr, POWER_B: tl.constexpr, Q_B: tl.constexpr,
    FOCAL_A: tl.constexpr, GAMMA_A: tl.constexpr, DETACH_A: tl.constexpr,
    MINIMUM_A: tl.constexpr, CEILING_A: tl.constexpr, HIGHEST_A: tl.constexpr,
    FOCAL_B: tl.constexpr, GAMMA_B: tl.constexpr, DETACH_B: tl.constexpr,
    MINIMUM_B: tl.constexpr, CEILING_B: tl.constexpr, HIGHEST_B: tl.constexpr,
):  # fmt: skip
    """``dz_j = c0 e_j + c2 (e_j^q - e_j) + u + w h_j``, and what belongs to the label at its place."""
    d = at_least(d, FLOOR)
    alive = (z > float("-inf")) & ~is_label
    x = tl.where(alive, z - top[:, None], 0.0)
    e = tl.where(alive, exp(x), 0.0)
    inverse, p_y, slope, dz_y = row_factors(by_nll, by_log1m, own, d)
    top_rest = rest_of_largest(expm1(log_sum), inverse)
    uniform, extra = tl.zeros_like(slope), tl.zeros_like(e)
    e_less_1 = tl.where(alive, expm1(x), 0.0) if EXACT else e
    if NLL:
        uniform += by_others
        dz_y += uniform * left * p_y
    if POWER_A:
        slope, dz_y, extra = _add_power(
            power_a, by_power_a, x, e, e_less_1, alive, own, p_y, inverse, log_sum, slope, dz_y, extra, Q_A, EXACT
        )  # fmt: skip
    if POWER_B:
        slope, dz_y, extra = _add_power(
            power_b, by_power_b, x, e, e_less_1, alive, own, p_y, inverse, log_sum, slope, dz_y, extra, Q_B, EXACT
        )  # fmt: skip
    if FOCAL_A:
        slope, dz_y, uniform, extra = _add_focal(
            by_focal_a, x, e, alive, left, p_y, inverse, log_sum, top_rest, slope, dz_y, uniform, extra, EXACT,
            GAMMA_A, DETACH_A, MINIMUM_A, CEILING_A, HIGHEST_A,
        )  # fmt: skip
    if FOCAL_B:
        slope, dz_y, uniform, extra = _add_focal(
            by_focal_b, x, e, alive, left, p_y, inverse, log_sum, top_rest, slope, dz_y, uniform, extra, EXACT,
            GAMMA_B, DETACH_B, MINIMUM_B, CEILING_B, HIGHEST_B,
        )  # fmt: skip
    if EXACT:
        extra += e_less_1 * (left * uniform * inverse)[:, None]
        uniform *= p_y + tl.sum(e_less_1, 1) * inverse
    else:
        slope += uniform * left * inverse
    out = extra + e * slope[:, None] - uniform[:, None]
    if COLUMNS == 2:  # the differences would cancel here, and dz_y is made of products
        out = tl.zeros_like(e) - dz_y[:, None]
    return tl.where(is_label, dz_y[:, None], tl.where(alive, out, 0.0))


@triton.jit
def tile_of(logits, target, first, rows, classes, stride, target_stride, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Rows from the first on: their numbers, which there are, their labels, which are valid, where they are, and the logits."""
    row, column = first + tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    real = row < rows
    label, valid = safe_label(target, row, real, classes, target_stride)
    place = logits + row.to(tl.int64)[:, None] * stride + column[None, :]
    z = tl.load(place, mask=real[:, None] & (column < classes)[None, :], other=float("-inf")).to(tl.float32)
    return row, real, label, valid, column[None, :] == label[:, None], z


@triton.jit
def own_logit(logits, row, real, label, stride):
    return tl.load(logits + row.to(tl.int64) * stride + label, mask=real, other=0.0).to(tl.float32)


@triton.jit
def _put(rows_of, which, rows, row, real, value, valid):
    """NaN where the label is not valid."""
    tl.store(rows_of + which * rows.to(tl.int64) + row, tl.where(valid, value, float("nan")), mask=real)


@triton.jit
def _put_sum(statistics, saved, which, rows, row, real, valid, value, rest):
    _put(statistics, which, rows, row, real, value, valid)
    _put(saved, 3 + which, rows, row, real, rest, real)


@triton.jit(do_not_specialize=["rows", "units", "stride_units", "target_stride"])
def tile_forward(
    logits, target, statistics, saved, rows, units, stride_units, target_stride,
    UNIT: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, NLL: tl.constexpr, MARGIN: tl.constexpr,
    POWER_A: tl.constexpr, Q_A: tl.constexpr, POWER_B: tl.constexpr, Q_B: tl.constexpr,
    FOCAL_A: tl.constexpr, GAMMA_A: tl.constexpr, DETACH_A: tl.constexpr,
    MINIMUM_A: tl.constexpr, CEILING_A: tl.constexpr, HIGHEST_A: tl.constexpr,
    FOCAL_B: tl.constexpr, GAMMA_B: tl.constexpr, DETACH_B: tl.constexpr,
    MINIMUM_B: tl.constexpr, CEILING_B: tl.constexpr, HIGHEST_B: tl.constexpr,
):  # fmt: skip
    """The statistics; what :func:`row_sums` begins with; and, three rows after that of each sum's row sum, what the gradient
    needs of it."""
    stride = stride_units.to(tl.int64) * UNIT
    first, classes = tl.program_id(0) * ROWS, units * UNIT
    row, real, label, valid, is_label, z = tile_of(logits, target, first, rows, classes, stride, target_stride, ROWS, COLUMNS)
    z_y = own_logit(logits, row, real, label, stride)
    (
        top, own, d, log_sum, left, nll, log1m, others, margin,
        power_a, rest_a, power_b, rest_b, focal_a, grads_a, focal_b, grads_b,
    ) = row_sums(
        z, z_y, is_label, classes, NLL, POWER_A, Q_A, POWER_B, Q_B,
        FOCAL_A, GAMMA_A, DETACH_A, MINIMUM_A, CEILING_A, HIGHEST_A,
        FOCAL_B, GAMMA_B, DETACH_B, MINIMUM_B, CEILING_B, HIGHEST_B,
    )  # fmt: skip
    _put(statistics, 0, rows, row, real, nll, valid)
    _put(statistics, 1, rows, row, real, log1m, valid)
    if NLL:
        _put(statistics, NLL, rows, row, real, others, valid)
    if MARGIN:
        _put(statistics, MARGIN, rows, row, real, margin, valid)
    if POWER_A:
        _put_sum(statistics, saved, POWER_A, rows, row, real, valid, power_a, rest_a)
    if POWER_B:
        _put_sum(statistics, saved, POWER_B, rows, row, real, valid, power_b, rest_b)
    if FOCAL_A:
        _put_sum(statistics, saved, FOCAL_A, rows, row, real, valid, focal_a, grads_a)
    if FOCAL_B:
        _put_sum(statistics, saved, FOCAL_B, rows, row, real, valid, focal_b, grads_b)
    _put(saved, 0, rows, row, real, top, real)
    _put(saved, 1, rows, row, real, own, real)
    _put(saved, 2, rows, row, real, d, real)
    _put(saved, 3, rows, row, real, log_sum, real)
    _put(saved, 4, rows, row, real, left, real)


@triton.jit
def write_rows(gradient, row, real, classes, stride, out, COLUMNS: tl.constexpr):
    column = tl.arange(0, COLUMNS)
    place = gradient + row.to(tl.int64)[:, None] * stride + column[None, :]
    tl.store(place, out.to(gradient.dtype.element_ty), mask=real[:, None] & (column < classes)[None, :])


@triton.jit
def _get(rows_of, which, rows, row, real):
    return tl.load(rows_of + which * rows.to(tl.int64) + row, mask=real, other=0.0)


@triton.jit
def _upstream(grads, which, by_row, by_column, row, real):
    """The gradient of a row sum; 0 where the label is masked, since its nll is infinite there and its gradients may be too."""
    return tl.load(grads + which * by_row.to(tl.int64) + row.to(tl.int64) * by_column, mask=real, other=0.0)


@triton.jit(do_not_specialize=["rows", "units", "stride_units", "target_stride", "by_row", "by_column", "out_stride"])
def tile_backward(
    grads, logits, target, statistics, saved, gradient, rows, units, stride_units, target_stride, by_row, by_column, out_stride,
    UNIT: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, EXACT: tl.constexpr, NLL: tl.constexpr, MARGIN: tl.constexpr,
    POWER_A: tl.constexpr, Q_A: tl.constexpr, POWER_B: tl.constexpr, Q_B: tl.constexpr,
    FOCAL_A: tl.constexpr, GAMMA_A: tl.constexpr, DETACH_A: tl.constexpr,
    MINIMUM_A: tl.constexpr, CEILING_A: tl.constexpr, HIGHEST_A: tl.constexpr,
    FOCAL_B: tl.constexpr, GAMMA_B: tl.constexpr, DETACH_B: tl.constexpr,
    MINIMUM_B: tl.constexpr, CEILING_B: tl.constexpr, HIGHEST_B: tl.constexpr,
):  # fmt: skip
    """The gradient of the logits; that of a row sum that is not needed is read as another's, and not used."""
    first, classes = tl.program_id(0) * ROWS, units * UNIT
    stride = stride_units.to(tl.int64) * UNIT
    row, real, _, _, is_label, z = tile_of(logits, target, first, rows, classes, stride, target_stride, ROWS, COLUMNS)
    top, own, d = _get(saved, 0, rows, row, real), _get(saved, 1, rows, row, real), _get(saved, 2, rows, row, real)
    log_sum, left = _get(saved, 3, rows, row, real), _get(saved, 4, rows, row, real)
    wanted = real & (left >= 0.0)
    out = row_gradient(
        z, is_label, top, own, d, log_sum, left,
        _upstream(grads, 0, by_row, by_column, row, wanted), _upstream(grads, 1, by_row, by_column, row, wanted),
        _upstream(grads, NLL, by_row, by_column, row, wanted),
        _upstream(grads, POWER_A, by_row, by_column, row, wanted), _upstream(grads, POWER_B, by_row, by_column, row, wanted),
        _upstream(grads, FOCAL_A, by_row, by_column, row, wanted), _upstream(grads, FOCAL_B, by_row, by_column, row, wanted),
        _get(statistics, POWER_A, rows, row, wanted), _get(statistics, POWER_B, rows, row, wanted),
        COLUMNS, EXACT, NLL, POWER_A, Q_A, POWER_B, Q_B,
        FOCAL_A, GAMMA_A, DETACH_A, MINIMUM_A, CEILING_A, HIGHEST_A,
        FOCAL_B, GAMMA_B, DETACH_B, MINIMUM_B, CEILING_B, HIGHEST_B,
    )  # fmt: skip
    write_rows(gradient, row, real, classes, out_stride.to(tl.int64) * UNIT, out, COLUMNS)
