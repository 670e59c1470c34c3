"""Rows longer than a tile. In the first pass a program goes along one, each of its LANES reading ACROSS logits, DEPTH times.

:mod:`noiseproof.kernels.blocks` has what is added up. At the end the lanes are brought to the row's maximum. The lane that has
the largest class is added up once more without it: ``1 + what is left`` has rounded away what is left, and nothing else is in
the gradient where the network is sure. Logits are summed from an origin, the maximum of the first of them: so both parts of
sum (max z - z_k) are positive.

Focal sums of very many classes come from ``sum e x`` of the same reading, see :func:`focal_from_moments` there. Others, and
clipped sums, need log D before they begin, so they read the row again, backwards: what was read last may still be in the
cache. A row with masked classes is also read again, if ``nll_others`` or a focal sum is needed, and so is one whose power sums
are lost to near ties at the top, see :func:`is_lost`. Names of the arguments are those of :mod:`noiseproof.kernels.tile`.

The second pass is one reading and one writing, with the sums that the first pass saved. The gradient may be written over the
logits.
"""

from __future__ import annotations

import triton
import triton.language as tl

from noiseproof.kernels.blocks import (
    add_block,
    changes,
    focal_block,
    focal_from_moments,
    is_lost,
    keep,
    keep_focal,
    keep_power,
    keep_row,
    unmasked,
    without_largest,
)
from noiseproof.kernels.terms import (
    FLOOR,
    MIN_DIVISOR,
    MIN_FLOAT,
    at_least,
    class_terms,
    exp,
    expm1,
    log1p,
    norm_power,
    power_change,
    power_term,
    rest_of_largest,
    row_factors,
    safe_label,
)


@triton.jit
def _unmasked(base, place, label, classes, origin, LANES: tl.constexpr, BLOCK: tl.constexpr):
    """How many classes other than the label are not masked, and the sum of their logits less the origin."""
    count = tl.zeros([LANES], tl.float32)
    total = tl.zeros([LANES], tl.float32)
    for start in range(0, classes, BLOCK):
        column = start + place
        z = tl.load(base + column, mask=column < classes, other=float("-inf")).to(tl.float32)
        more, logits = unmasked(z, column, label, origin)
        count += more
        total += logits
    return tl.sum(count, 0), tl.sum(total, 0)


@triton.jit
def _change(
    base, place, label, classes, top, own, rest, rest_q, LANES: tl.constexpr, BLOCK: tl.constexpr,
    USED: tl.constexpr, Q: tl.constexpr,
):  # fmt: skip
    """The sum of ``e^q - e``; where it is lost the row is read again."""
    change = rest_q - rest
    if USED:
        lost = is_lost(own, rest, change, Q)
        total = tl.zeros([LANES], tl.float32)
        for start in range(0, tl.where(lost, classes, 0), BLOCK):
            column = start + place
            z = tl.load(base + column, mask=(column < classes) & (column != label), other=float("-inf")).to(tl.float32)
            total += changes(z, top, Q)
        change = tl.where(lost, tl.sum(total, 0), change)
    return change


@triton.jit
def _lanes(
    base, place, label, classes, origin, LANES: tl.constexpr, EACH: tl.constexpr, SUM: tl.constexpr, MOMENT: tl.constexpr,
    POWER_A: tl.constexpr, Q_A: tl.constexpr, POWER_B: tl.constexpr, Q_B: tl.constexpr,
):  # fmt: skip
    """Each lane's maximum, and its sums of e, z - origin, e x, e^q and e^q, without the label."""
    m = tl.full([LANES], MIN_FLOAT, tl.float32)
    d, s, t, a, b = tl.zeros_like(m), tl.zeros_like(m), tl.zeros_like(m), tl.zeros_like(m), tl.zeros_like(m)
    for start in range(0, classes, LANES * EACH):
        column = start + place
        z = tl.load(base + column, mask=column < classes, other=float("-inf")).to(tl.float32)
        m, d, s, t, a, b = add_block(
            z, start, place, label, classes, m, d, s, t, a, b, origin, EACH, LANES * EACH, SUM, MOMENT,
            POWER_A, Q_A, POWER_B, Q_B,
        )  # fmt: skip
    return m, d, s, t, a, b


@triton.jit
def _origin(base, z_y, classes, LANES: tl.constexpr, SUM: tl.constexpr):
    """The largest of the first logits, or if they are masked the label's."""
    origin = 0.0
    if SUM:
        column = tl.arange(0, LANES)
        origin = tl.max(tl.load(base + column, mask=column < classes, other=float("-inf")).to(tl.float32), 0)
        if origin == float("-inf"):
            origin = tl.where(z_y > float("-inf"), z_y, 0.0)
    return origin


@triton.jit
def _focal_sums(
    base, place, label, classes, masked, top, log_sum, inverse, top_rest, LANES: tl.constexpr, BLOCK: tl.constexpr,
    FOCAL_A: tl.constexpr, GAMMA_A: tl.constexpr, DETACH_A: tl.constexpr,
    MINIMUM_A: tl.constexpr, CEILING_A: tl.constexpr, HIGHEST_A: tl.constexpr,
    FOCAL_B: tl.constexpr, GAMMA_B: tl.constexpr, DETACH_B: tl.constexpr,
    MINIMUM_B: tl.constexpr, CEILING_B: tl.constexpr, HIGHEST_B: tl.constexpr,
):  # fmt: skip
    """Of each of two focal sums or focals: its value, and the sum of h."""
    f_a = tl.zeros([LANES], tl.float32)
    h_a, f_b, h_b = tl.zeros_like(f_a), tl.zeros_like(f_a), tl.zeros_like(f_a)
    last = ((classes - 1) // BLOCK) * BLOCK
    for done in range(0, last + 1, BLOCK):
        start = last - done
        column = start + place
        z = tl.load(base + column, mask=column < classes, other=float("-inf"), eviction_policy="evict_first").to(tl.float32)
        f_a, h_a, f_b, h_b = focal_block(
            z, start, place, label, classes, masked, top, log_sum, inverse, top_rest, f_a, h_a, f_b, h_b, BLOCK,
            FOCAL_A, GAMMA_A, DETACH_A, MINIMUM_A, CEILING_A, HIGHEST_A,
            FOCAL_B, GAMMA_B, DETACH_B, MINIMUM_B, CEILING_B, HIGHEST_B,
        )  # fmt: skip
    return tl.maximum(tl.sum(f_a, 0), MIN_DIVISOR), tl.sum(h_a, 0), tl.maximum(tl.sum(f_b, 0), MIN_DIVISOR), tl.sum(h_b, 0)


@triton.jit
def _focals(
    base, shallow, place, label, classes, masked, nll_others, d, t, one, left, top, log_sum, inverse, top_rest,
    LANES: tl.constexpr, WIDTH: tl.constexpr, DEPTH: tl.constexpr, MOMENT: tl.constexpr,
    FOCAL_A: tl.constexpr, GAMMA_A: tl.constexpr, DETACH_A: tl.constexpr,
    MINIMUM_A: tl.constexpr, CEILING_A: tl.constexpr, HIGHEST_A: tl.constexpr,
    FOCAL_B: tl.constexpr, GAMMA_B: tl.constexpr, DETACH_B: tl.constexpr,
    MINIMUM_B: tl.constexpr, CEILING_B: tl.constexpr, HIGHEST_B: tl.constexpr,
):  # fmt: skip
    """As :func:`_focal_sums`, from moments if they will do."""
    if MOMENT:
        f_a, h_a = focal_from_moments(nll_others, d, t, one, left, log_sum, inverse, top_rest, GAMMA_A, DETACH_A)
        f_b, h_b = focal_from_moments(nll_others, d, t, one, left, log_sum, inverse, top_rest, GAMMA_B, DETACH_B)
        if masked:
            f_a, h_a, f_b, h_b = _focal_sums(
                base, shallow, label, classes, masked, top, log_sum, inverse, top_rest, LANES, WIDTH,
                FOCAL_A, GAMMA_A, DETACH_A, MINIMUM_A, CEILING_A, HIGHEST_A,
                FOCAL_B, GAMMA_B, DETACH_B, MINIMUM_B, CEILING_B, HIGHEST_B,
            )  # fmt: skip
    else:
        f_a, h_a, f_b, h_b = _focal_sums(
            base, place, label, classes, masked, top, log_sum, inverse, top_rest, LANES, WIDTH * DEPTH,
            FOCAL_A, GAMMA_A, DETACH_A, MINIMUM_A, CEILING_A, HIGHEST_A,
            FOCAL_B, GAMMA_B, DETACH_B, MINIMUM_B, CEILING_B, HIGHEST_B,
        )  # fmt: skip
    return f_a, h_a, f_b, h_b


@triton.jit(do_not_specialize=["rows", "units", "stride_units", "target_stride"])
def stream_forward(
    logits, target, statistics, saved, rows, units, stride_units, target_stride,
    UNIT: tl.constexpr, LANES: tl.constexpr, ACROSS: tl.constexpr, DEPTH: tl.constexpr, STEPS: tl.constexpr,
    MOMENT: tl.constexpr, NLL: tl.constexpr, MARGIN: tl.constexpr,
    POWER_A: tl.constexpr, Q_A: tl.constexpr, POWER_B: tl.constexpr, Q_B: tl.constexpr,
    FOCAL_A: tl.constexpr, GAMMA_A: tl.constexpr, DETACH_A: tl.constexpr,
    MINIMUM_A: tl.constexpr, CEILING_A: tl.constexpr, HIGHEST_A: tl.constexpr,
    FOCAL_B: tl.constexpr, GAMMA_B: tl.constexpr, DETACH_B: tl.constexpr,
    MINIMUM_B: tl.constexpr, CEILING_B: tl.constexpr, HIGHEST_B: tl.constexpr,
):  # fmt: skip
    """The statistics of one row; what :func:`tile_forward` saves; and, for each sum, what the gradient needs of it."""
    row, classes = tl.program_id(0), units * UNIT
    WIDTH: tl.constexpr = LANES * ACROSS
    EACH: tl.constexpr = DEPTH * ACROSS
    SUM: tl.constexpr = NLL + FOCAL_A
    base = logits + row.to(tl.int64) * (stride_units.to(tl.int64) * UNIT)
    # In this order of axes the compiler gives each thread a lane of its own.
    shallow = tl.arange(0, LANES)[:, None, None] * ACROSS + tl.arange(0, ACROSS)[None, None, :]
    place = shallow + tl.arange(0, DEPTH)[None, :, None] * WIDTH
    label, valid = safe_label(target, row, row < rows, classes, target_stride)
    spoilt = tl.where(valid, 0.0, float("nan"))
    z_y = tl.load(base + label).to(tl.float32)
    origin = _origin(base, z_y, classes, LANES, SUM)
    m, d, s, t, a, b = _lanes(base, place, label, classes, origin, LANES, EACH, SUM, MOMENT, POWER_A, Q_A, POWER_B, Q_B)
    largest, lane = tl.max(m, 0, return_indices=True)
    top = tl.maximum(largest, z_y)
    own = z_y - top
    e_y = exp(own)
    column = lane * ACROSS + tl.arange(0, STEPS)[:, None] * WIDTH + tl.arange(0, ACROSS)[None, :]
    rest, rest_a, rest_b = without_largest(m, d, a, b, tl.arange(0, LANES), lane, base, column, top, label, classes, Q_A, Q_B)
    t = tl.sum((t + (m - top) * d) * exp(m - top), 0)
    one = tl.where(largest < z_y, 0.0, 1.0)  # the largest class, where it is not the label
    d = at_least(rest + one, FLOOR)
    above = tl.where(own == 0.0, d, rest + e_y)  # D - 1
    log_sum, inverse, left, total = log1p(above), 1.0 / (d + e_y), classes - 1.0, tl.sum(s, 0)
    masked = total == float("-inf")  # which no other sum shows
    if masked:
        left, total = _unmasked(base, shallow, label, classes, origin, LANES, WIDTH)
    nll_others = left * log_sum + (left * (top - origin) - total)
    if NLL:
        keep(statistics, NLL, rows, row, nll_others + spoilt)
    if MARGIN:
        keep(statistics, MARGIN, rows, row, z_y - largest + spoilt)
    change = _change(base, shallow, label, classes, top, own, rest, rest_a, LANES, WIDTH, POWER_A, Q_A)
    keep_power(statistics, saved, rows, row, change, rest_a, one, own, inverse, log_sum, spoilt, POWER_A, Q_A)
    change = _change(base, shallow, label, classes, top, own, rest, rest_b, LANES, WIDTH, POWER_B, Q_B)
    keep_power(statistics, saved, rows, row, change, rest_b, one, own, inverse, log_sum, spoilt, POWER_B, Q_B)
    if FOCAL_A:
        top_rest = rest_of_largest(above, inverse)
        f_a, h_a, f_b, h_b = _focals(
            base, shallow, place, label, classes, masked, nll_others, d, t, one, left, top, log_sum, inverse, top_rest,
            LANES, WIDTH, DEPTH, MOMENT, FOCAL_A, GAMMA_A, DETACH_A, MINIMUM_A, CEILING_A, HIGHEST_A,
            FOCAL_B, GAMMA_B, DETACH_B, MINIMUM_B, CEILING_B, HIGHEST_B,
        )  # fmt: skip
        keep_focal(statistics, saved, rows, row, f_a, h_a, spoilt, FOCAL_A)
        keep_focal(statistics, saved, rows, row, f_b, h_b, spoilt, FOCAL_B)
    keep_row(statistics, saved, rows, row, top, own, e_y, d, log_sum, left, spoilt)


@triton.jit
def _load(rows_of, which, rows, row):
    return tl.load(rows_of + which * rows.to(tl.int64) + row)


@triton.jit
def _upstream(grads, by_row, by_column, row, wanted, WHICH: tl.constexpr):
    """The gradient of a row sum; 0 where the label is masked, since its nll is infinite there and its gradients may be too.

    It is read before that is known: a reading that waits for another takes twice as long.
    """
    return tl.where(wanted, tl.load(grads + WHICH * by_row.to(tl.int64) + row.to(tl.int64) * by_column), 0.0)


@triton.jit
def _needed(grads, by_row, by_column, row, wanted, WHICH: tl.constexpr):
    """That of a row sum that may not be there."""
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
    by, value, total, own, p_y, inverse, log_sum, slope, dz_y, WHICH: tl.constexpr, Q: tl.constexpr
):  # fmt: skip
    """The factor of ``e^q - e``, or of ``e^q`` where the label is the largest class; and what it adds to c0 and dz_y."""
    factor = Q * by
    if WHICH:
        dz_y -= factor * value * p_y
        factor *= norm_power(inverse, log_sum, Q)
        slope += factor * (tl.where(own < 0.0, p_y, 0.0) - total * inverse)
    return factor, slope, dz_y


@triton.jit
def factors_of(
    by_nll, by_log1m, uniform, by_power_a, by_power_b, by_focal_a, by_focal_b,
    value_a, value_b, power_a, power_b, focal_a, focal_b, own, d, left, log_sum,
    POWER_A: tl.constexpr, Q_A: tl.constexpr, POWER_B: tl.constexpr, Q_B: tl.constexpr,
):  # fmt: skip
    """Of a row: 1/D, c0, dz_y and the factors of the power sums, from the gradients of its statistics, its power sums, and what
    the first pass has saved of each sum."""
    inverse, p_y, slope, dz_y = row_factors(by_nll, by_log1m, own, d)
    slope += uniform * left * inverse
    dz_y += uniform * left * p_y
    by_power_a, slope, dz_y = _power_factors(
        by_power_a, value_a, power_a, own, p_y, inverse, log_sum, slope, dz_y, POWER_A, Q_A
    )  # fmt: skip
    by_power_b, slope, dz_y = _power_factors(
        by_power_b, value_b, power_b, own, p_y, inverse, log_sum, slope, dz_y, POWER_B, Q_B
    )  # fmt: skip
    total = by_focal_a * focal_a + by_focal_b * focal_b
    return inverse, slope + total * inverse, dz_y + total * p_y, by_power_a, by_power_b


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
    out, factor, x, e, inverse, log_sum, top_rest, USED: tl.constexpr,
    GAMMA: tl.constexpr, DETACH: tl.constexpr, MINIMUM: tl.constexpr, CEILING: tl.constexpr, HIGHEST: tl.constexpr,
):  # fmt: skip
    if USED:
        _, h = class_terms(x, e, log_sum, inverse, top_rest, GAMMA, DETACH, MINIMUM, CEILING, HIGHEST)
        out -= factor * h
    return out


@triton.jit
def gradient_of(
    z, top, slope, uniform, below, power_a, power_b, focal_a, focal_b, inverse, log_sum, top_rest,
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
        out, focal_a, x, e, inverse, log_sum, top_rest, FOCAL_A, GAMMA_A, DETACH_A, MINIMUM_A, CEILING_A, HIGHEST_A
    )  # fmt: skip
    return _add_focal(
        out, focal_b, x, e, inverse, log_sum, top_rest, FOCAL_B, GAMMA_B, DETACH_B, MINIMUM_B, CEILING_B, HIGHEST_B
    )  # fmt: skip


@triton.jit(do_not_specialize=["rows", "units", "stride_units", "target_stride", "by_row", "by_column", "out_stride"])
def stream_backward(
    grads, logits, target, statistics, saved, gradient, rows, units, stride_units, target_stride, by_row, by_column, out_stride,
    UNIT: tl.constexpr, WIDTH: tl.constexpr, TIMES: tl.constexpr, NLL: tl.constexpr, MARGIN: tl.constexpr,
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
    uniform = _needed(grads, by_row, by_column, row, wanted, NLL)
    focal_a = _needed(grads, by_row, by_column, row, wanted, FOCAL_A)
    focal_b = _needed(grads, by_row, by_column, row, wanted, FOCAL_B)
    inverse, slope, dz_y, power_a, power_b = factors_of(
        _upstream(grads, by_row, by_column, row, wanted, 0), _upstream(grads, by_row, by_column, row, wanted, 1), uniform,
        _needed(grads, by_row, by_column, row, wanted, POWER_A), _needed(grads, by_row, by_column, row, wanted, POWER_B),
        focal_a, focal_b,
        _needed(statistics, rows, 1, row, wanted, POWER_A), _needed(statistics, rows, 1, row, wanted, POWER_B),
        _saved_sum(saved, rows, row, POWER_A), _saved_sum(saved, rows, row, POWER_B),
        _saved_sum(saved, rows, row, FOCAL_A), _saved_sum(saved, rows, row, FOCAL_B), own, d, left, log_sum,
        POWER_A, Q_A, POWER_B, Q_B,
    )  # fmt: skip
    top_rest = rest_of_largest(expm1(log_sum), inverse)
    below = tl.where(own < 0.0, 1.0, 0.0)
    place = gradient + row.to(tl.int64) * (out_stride.to(tl.int64) * UNIT)
    for step in range(0, TIMES):
        first = start + step * WIDTH
        column = first + tl.arange(0, WIDTH)
        z = ahead.to(tl.float32)
        if TIMES > 1:
            ahead = _read(base, column + WIDTH, end)
        out = gradient_of(
            z, top, slope, uniform, below, power_a, power_b, focal_a, focal_b, inverse, log_sum, top_rest,
            POWER_A, Q_A, POWER_B, Q_B, FOCAL_A, GAMMA_A, DETACH_A, MINIMUM_A, CEILING_A, HIGHEST_A,
            FOCAL_B, GAMMA_B, DETACH_B, MINIMUM_B, CEILING_B, HIGHEST_B,
        )  # fmt: skip
        if ((label >= first) & (label < first + WIDTH)) | (left < classes - 1):
            out = tl.where(column == label, dz_y, tl.where(z > float("-inf"), out, 0.0))
        tl.store(place + column, out.to(gradient.dtype.element_ty), mask=column < classes)
