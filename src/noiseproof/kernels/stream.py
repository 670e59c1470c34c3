"""Rows longer than a tile: a program goes along a row, WIDTH logits side by side and DEPTH of such steps at a time.

Each of the WIDTH lanes keeps its own maximum ``m`` and its own sums relative to it, so the loop has no exchange among threads::

    m' = max(m, z)      d <- d exp(m - m') + sum exp(z - m')      power <- power exp(q (m - m')) + sum exp(q (z - m'))

At the end the lanes are brought to the row's maximum. The lane that has the largest class is added up once more without it:
``1 + what is left`` has rounded away what is left, and nothing else is in the gradient where the network is sure. The label is
in no sum. Logits are summed from an origin, the maximum of the first of them: so both parts of sum (max z - z_k) are positive.

Focal sums and room need log D before they begin, so a request for one reads the row twice; one row for each multiprocessor is
at most the second-level cache, and the second reading comes from there. A row with masked classes is also read again, if
``nll_others`` is asked for. The gradient is one reading and one writing, with the sums that the first pass saved; it may be
written over the logits. Names of the arguments are those of :mod:`noiseproof.kernels.tile`.
"""

from __future__ import annotations

import triton
import triton.language as tl

from noiseproof.kernels.terms import (
    FLOOR,
    LOWEST,
    TINY,
    expm1,
    focal_terms,
    log1p,
    norm_power,
    power_term,
    room_terms,
    row_factors,
    safe_label,
)

__all__ = ["stream_backward", "stream_forward"]


@triton.jit
def _rescaled(total, x, e, change, factor, USED: tl.constexpr, Q: tl.constexpr):
    """A lane's sum of e^q after DEPTH more terms, when its maximum has changed by ``change``."""
    if USED:
        total = total * power_term(change, factor, Q) + tl.sum(power_term(x, e, Q), 0)
    return total


@triton.jit
def _step(
    z, counted, m, d, s, a, b, origin, EDGE: tl.constexpr, NLL: tl.constexpr, DEPTH: tl.constexpr,
    POWER_A: tl.constexpr, Q_A: tl.constexpr, POWER_B: tl.constexpr, Q_B: tl.constexpr,
):  # fmt: skip
    """The lanes after ``z [DEPTH, WIDTH]``; with EDGE only those that are ``counted``, all the others having been made -inf."""
    larger = tl.maximum(m, tl.max(z, 0))
    change = m - larger
    x = z - larger[None, :]
    e = tl.exp(x)
    factor = tl.exp(change)
    d = d * factor + tl.sum(e, 0)
    if NLL:
        if EDGE:
            s += tl.sum(tl.where(counted, z - origin, 0.0), 0)
        else:
            s += tl.sum(x, 0) + DEPTH * (larger - origin)
    a = _rescaled(a, x, e, change, factor, POWER_A, Q_A)
    b = _rescaled(b, x, e, change, factor, POWER_B, Q_B)
    return larger, d, s, a, b


@triton.jit
def _top_lane(base, lane, top, label, classes, WIDTH: tl.constexpr, STEPS: tl.constexpr, Q_A: tl.constexpr, Q_B: tl.constexpr):
    """The sums of e, e^q and e^q over the lane that has the largest class, without that one."""
    column = lane + tl.arange(0, STEPS) * WIDTH
    z = tl.load(base + column, mask=(column < classes) & (column != label), other=float("-inf")).to(tl.float32)
    x = tl.where(z > float("-inf"), z - top, LOWEST)
    less = x < 0.0
    x = tl.where(less, x, 0.0)
    e = tl.exp(x)
    ties = tl.maximum(tl.sum((~less).to(tl.float32), 0) - 1.0, 0.0)
    a = tl.sum(tl.where(less, power_term(x, e, Q_A), 0.0), 0)
    b = tl.sum(tl.where(less, power_term(x, e, Q_B), 0.0), 0)
    return tl.sum(tl.where(less, e, 0.0), 0) + ties, a + ties, b + ties


@triton.jit
def _unmasked(base, place, label, classes, origin, WIDTH: tl.constexpr, DEPTH: tl.constexpr):
    """How many classes other than the label are not masked, and the sum of their logits less the origin."""
    count = tl.zeros([WIDTH], tl.float32)
    total = tl.zeros([WIDTH], tl.float32)
    for start in range(0, classes, WIDTH * DEPTH):
        column = start + place
        z = tl.load(base + column, mask=column < classes, other=float("-inf")).to(tl.float32)
        alive = (z > float("-inf")) & (column != label)
        count += tl.sum(alive.to(tl.float32), 0)
        total += tl.sum(tl.where(alive, z - origin, 0.0), 0)
    return tl.sum(count, 0), tl.sum(total, 0)


@triton.jit
def _lanes(
    base, place, label, classes, origin, WIDTH: tl.constexpr, DEPTH: tl.constexpr, NLL: tl.constexpr,
    POWER_A: tl.constexpr, Q_A: tl.constexpr, POWER_B: tl.constexpr, Q_B: tl.constexpr,
):  # fmt: skip
    """Each lane's maximum, and its sums of e, z - origin, e^q and e^q, without the label."""
    m = tl.full([WIDTH], LOWEST, tl.float32)
    d, s, a, b = tl.zeros_like(m), tl.zeros_like(m), tl.zeros_like(m), tl.zeros_like(m)
    for start in range(0, classes, WIDTH * DEPTH):
        column = start + place
        z = tl.load(base + column, mask=column < classes, other=float("-inf")).to(tl.float32)
        if ((label >= start) & (label < start + WIDTH * DEPTH)) | (start + WIDTH * DEPTH > classes):
            counted = (column < classes) & (column != label)
            z = tl.where(counted, z, float("-inf"))
            m, d, s, a, b = _step(z, counted, m, d, s, a, b, origin, True, NLL, DEPTH, POWER_A, Q_A, POWER_B, Q_B)
        else:
            m, d, s, a, b = _step(z, z, m, d, s, a, b, origin, False, NLL, DEPTH, POWER_A, Q_A, POWER_B, Q_B)
    return m, d, s, a, b


@triton.jit
def _origin(base, z_y, classes, WIDTH: tl.constexpr, NLL: tl.constexpr):
    """The largest of the first logits, or if they are masked the label's."""
    origin = 0.0
    if NLL:
        column = tl.arange(0, WIDTH)
        origin = tl.max(tl.load(base + column, mask=column < classes, other=float("-inf")).to(tl.float32), 0)
        if origin == float("-inf"):
            origin = tl.where(z_y > float("-inf"), z_y, 0.0)
    return origin


@triton.jit
def _focal_step(
    x, e, alive, log_sum, inverse, top_miss, f_sum, h_sum, USED: tl.constexpr,
    GAMMA: tl.constexpr, DETACH: tl.constexpr, MINIMUM: tl.constexpr, CEILING: tl.constexpr, HIGHEST: tl.constexpr,
):  # fmt: skip
    if USED:
        f, h, nll = focal_terms(x, e, log_sum, inverse, top_miss, GAMMA, DETACH)
        if MINIMUM > 0:
            f, h = room_terms(f, h, nll, CEILING, HIGHEST)
        f_sum += tl.sum(tl.where(alive, f, 0.0), 0)
        h_sum += tl.sum(tl.where(alive, h, 0.0), 0)
    return f_sum, h_sum


@triton.jit
def _focal_sums(
    base, place, label, classes, top, log_sum, inverse, top_miss, WIDTH: tl.constexpr, DEPTH: tl.constexpr,
    FOCAL_A: tl.constexpr, GAMMA_A: tl.constexpr, DETACH_A: tl.constexpr,
    MINIMUM_A: tl.constexpr, CEILING_A: tl.constexpr, HIGHEST_A: tl.constexpr,
    FOCAL_B: tl.constexpr, GAMMA_B: tl.constexpr, DETACH_B: tl.constexpr,
    MINIMUM_B: tl.constexpr, CEILING_B: tl.constexpr, HIGHEST_B: tl.constexpr,
):  # fmt: skip
    """Of each of two focal sums or rooms: its value, and the sum of h."""
    f_a = tl.zeros([WIDTH], tl.float32)
    h_a, f_b, h_b = tl.zeros_like(f_a), tl.zeros_like(f_a), tl.zeros_like(f_a)
    for start in range(0, classes, WIDTH * DEPTH):
        column = start + place
        z = tl.load(base + column, mask=column < classes, other=float("-inf")).to(tl.float32)
        alive = (z > float("-inf")) & (column != label)
        x = tl.where(alive, z - top, 0.0)
        e = tl.exp(x)
        f_a, h_a = _focal_step(
            x, e, alive, log_sum, inverse, top_miss, f_a, h_a, FOCAL_A, GAMMA_A, DETACH_A, MINIMUM_A, CEILING_A, HIGHEST_A
        )
        f_b, h_b = _focal_step(
            x, e, alive, log_sum, inverse, top_miss, f_b, h_b, FOCAL_B, GAMMA_B, DETACH_B, MINIMUM_B, CEILING_B, HIGHEST_B
        )
    return tl.maximum(tl.sum(f_a, 0), TINY), tl.sum(h_a, 0), tl.maximum(tl.sum(f_b, 0), TINY), tl.sum(h_b, 0)


@triton.jit
def _keep(rows_of, which, rows, row, value):
    tl.store(rows_of + which * rows.to(tl.int64) + row, value)


@triton.jit
def _keep_row(saved, rows, row, top, own, d, log_sum, left):
    _keep(saved, 0, rows, row, top)
    _keep(saved, 1, rows, row, own)
    _keep(saved, 2, rows, row, d)
    _keep(saved, 3, rows, row, log_sum)
    _keep(saved, 4, rows, row, tl.where(own == float("-inf"), -1.0, left))


@triton.jit
def _keep_power(primitives, saved, which, rows, row, rest, rest_q, one, own, inverse, log_sum, spoilt, Q: tl.constexpr):
    """The power sum, and for its gradient the sum of e^q - e, or of e^q where the label is the largest class."""
    _keep(primitives, which, rows, row, (rest_q + one) * norm_power(inverse, log_sum, Q) + spoilt)
    _keep(saved, 3 + which, rows, row, tl.where(own < 0.0, rest_q - rest, rest_q + one))


@triton.jit(do_not_specialize=["rows", "units", "stride_units", "target_stride"])
def stream_forward(
    logits, target, primitives, saved, rows, units, stride_units, target_stride,
    UNIT: tl.constexpr, WIDTH: tl.constexpr, DEPTH: tl.constexpr, STEPS: tl.constexpr, NLL: tl.constexpr, LEAD: tl.constexpr,
    POWER_A: tl.constexpr, Q_A: tl.constexpr, POWER_B: tl.constexpr, Q_B: tl.constexpr,
    FOCAL_A: tl.constexpr, GAMMA_A: tl.constexpr, DETACH_A: tl.constexpr,
    MINIMUM_A: tl.constexpr, CEILING_A: tl.constexpr, HIGHEST_A: tl.constexpr,
    FOCAL_B: tl.constexpr, GAMMA_B: tl.constexpr, DETACH_B: tl.constexpr,
    MINIMUM_B: tl.constexpr, CEILING_B: tl.constexpr, HIGHEST_B: tl.constexpr,
):  # fmt: skip
    """The primitives of one row; what :func:`tile_forward` saves; and, for each sum, what the gradient needs of it."""
    row, classes = tl.program_id(0), units * UNIT
    label, valid = safe_label(target, row, row < rows, classes, target_stride)
    spoilt = tl.where(valid, 0.0, float("nan"))
    base = logits + row.to(tl.int64) * (stride_units.to(tl.int64) * UNIT)
    place = tl.arange(0, DEPTH)[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
    z_y = tl.load(base + label).to(tl.float32)
    origin = _origin(base, z_y, classes, WIDTH, NLL)
    m, d, s, a, b = _lanes(base, place, label, classes, origin, WIDTH, DEPTH, NLL, POWER_A, Q_A, POWER_B, Q_B)
    largest, lane = tl.max(m, 0), tl.argmax(m, 0)
    top = tl.maximum(largest, z_y)
    own = z_y - top
    e_y, factor = tl.exp(own), tl.exp(m - top)
    elsewhere = tl.arange(0, WIDTH) != lane
    rest, rest_a, rest_b = _top_lane(base, lane, top, label, classes, WIDTH, STEPS, Q_A, Q_B)
    rest += tl.sum(tl.where(elsewhere, d * factor, 0.0), 0)
    rest_a += tl.sum(tl.where(elsewhere, a * power_term(m - top, factor, Q_A), 0.0), 0)
    rest_b += tl.sum(tl.where(elsewhere, b * power_term(m - top, factor, Q_B), 0.0), 0)
    one = tl.where(largest < z_y, 0.0, 1.0)  # the largest class, where it is not the label
    d = tl.maximum(rest + one, FLOOR)
    above = tl.where(own == 0.0, d, rest + e_y)  # D - 1
    log_sum, inverse = log1p(above), 1.0 / (d + e_y)
    left = classes - 1.0
    if NLL:
        total = tl.sum(s, 0)
        if total == float("-inf"):
            left, total = _unmasked(base, place, label, classes, origin, WIDTH, DEPTH)
        _keep(primitives, NLL, rows, row, left * log_sum + (left * (top - origin) - total) + spoilt)
    _keep(primitives, 0, rows, row, log_sum - own + spoilt)
    _keep(primitives, 1, rows, row, -log1p(e_y / d) + spoilt)
    if LEAD:
        _keep(primitives, LEAD, rows, row, z_y - largest + spoilt)
    if POWER_A:
        _keep_power(primitives, saved, POWER_A, rows, row, rest, rest_a, one, own, inverse, log_sum, spoilt, Q_A)
    if POWER_B:
        _keep_power(primitives, saved, POWER_B, rows, row, rest, rest_b, one, own, inverse, log_sum, spoilt, Q_B)
    if FOCAL_A:
        f_a, h_a, f_b, h_b = _focal_sums(
            base, place, label, classes, top, log_sum, inverse, tl.maximum(above * inverse, TINY), WIDTH, DEPTH,
            FOCAL_A, GAMMA_A, DETACH_A, MINIMUM_A, CEILING_A, HIGHEST_A,
            FOCAL_B, GAMMA_B, DETACH_B, MINIMUM_B, CEILING_B, HIGHEST_B,
        )  # fmt: skip
        _keep(primitives, FOCAL_A, rows, row, f_a + spoilt)
        _keep(saved, 3 + FOCAL_A, rows, row, h_a)
        if FOCAL_B:
            _keep(primitives, FOCAL_B, rows, row, f_b + spoilt)
            _keep(saved, 3 + FOCAL_B, rows, row, h_b)
    _keep_row(saved, rows, row, top, own, d, log_sum, left)


@triton.jit
def _load(rows_of, which, rows, row):
    return tl.load(rows_of + which * rows.to(tl.int64) + row)


@triton.jit
def _upstream(grads, which, by_row, by_column, row, wanted):
    """The gradient of a primitive; 0 where the label is masked, since its nll is infinite there and its slopes may be too."""
    return tl.load(grads + which * by_row.to(tl.int64) + row.to(tl.int64) * by_column, mask=wanted, other=0.0)


@triton.jit
def _add_power(
    factor, primitives, saved, which, rows, row, wanted, x, e, own, hit, inverse, log_sum, slope, dz_y, out, Q: tl.constexpr
):
    factor = Q * factor
    dz_y -= factor * tl.load(primitives + which * rows.to(tl.int64) + row, mask=wanted, other=0.0) * hit
    factor *= norm_power(inverse, log_sum, Q)
    slope += factor * (tl.where(own < 0.0, hit, 0.0) - _load(saved, 3 + which, rows, row) * inverse)
    return slope, dz_y, out + factor * (power_term(x, e, Q) - tl.where(own < 0.0, e, 0.0))


@triton.jit
def _add_focal(
    factor, saved, which, rows, row, x, e, hit, inverse, log_sum, slope, dz_y, out,
    GAMMA: tl.constexpr, DETACH: tl.constexpr, MINIMUM: tl.constexpr, CEILING: tl.constexpr, HIGHEST: tl.constexpr,
):  # fmt: skip
    f, h, nll = focal_terms(x, e, log_sum, inverse, tl.maximum(expm1(log_sum) * inverse, TINY), GAMMA, DETACH)
    if MINIMUM > 0:
        f, h = room_terms(f, h, nll, CEILING, HIGHEST)
    total = factor * _load(saved, 3 + which, rows, row)
    return slope + total * inverse, dz_y + total * hit, out - factor * h


@triton.jit(do_not_specialize=["rows", "units", "stride_units", "target_stride", "by_row", "by_column", "out_stride"])
def stream_backward(
    grads, logits, target, primitives, saved, gradient, rows, units, stride_units, target_stride, by_row, by_column, out_stride,
    UNIT: tl.constexpr, WIDTH: tl.constexpr, NLL: tl.constexpr, LEAD: tl.constexpr,
    POWER_A: tl.constexpr, Q_A: tl.constexpr, POWER_B: tl.constexpr, Q_B: tl.constexpr,
    FOCAL_A: tl.constexpr, GAMMA_A: tl.constexpr, DETACH_A: tl.constexpr,
    MINIMUM_A: tl.constexpr, CEILING_A: tl.constexpr, HIGHEST_A: tl.constexpr,
    FOCAL_B: tl.constexpr, GAMMA_B: tl.constexpr, DETACH_B: tl.constexpr,
    MINIMUM_B: tl.constexpr, CEILING_B: tl.constexpr, HIGHEST_B: tl.constexpr,
):  # fmt: skip
    """``dz_j = c0 e_j + c2 (e_j^q - e_j) + u + w h_j`` for WIDTH classes of a row, and dz_y at the label's place."""
    classes = units * UNIT
    blocks = (classes + WIDTH - 1) // WIDTH
    row, start = tl.program_id(0) // blocks, (tl.program_id(0) % blocks) * WIDTH
    label, _ = safe_label(target, row, row < rows, classes, target_stride)
    column = start + tl.arange(0, WIDTH)
    base = logits + row.to(tl.int64) * (stride_units.to(tl.int64) * UNIT)
    z = tl.load(base + column, mask=column < classes, other=float("-inf")).to(tl.float32)
    top, own, d = _load(saved, 0, rows, row), _load(saved, 1, rows, row), _load(saved, 2, rows, row)
    log_sum, left = _load(saved, 3, rows, row), _load(saved, 4, rows, row)
    wanted = left >= 0.0
    by_nll = _upstream(grads, 0, by_row, by_column, row, wanted)
    by_log_miss = _upstream(grads, 1, by_row, by_column, row, wanted)
    inverse, hit, slope, dz_y = row_factors(by_nll, by_log_miss, own, d)
    x = z - top
    if FOCAL_A:
        x = tl.where(z > float("-inf"), x, 0.0)
    e = tl.exp(x)
    out = tl.zeros_like(e)
    if NLL:
        uniform = _upstream(grads, NLL, by_row, by_column, row, wanted)
        slope += uniform * left * inverse
        dz_y += uniform * left * hit
        out -= uniform
    if POWER_A:
        slope, dz_y, out = _add_power(
            _upstream(grads, POWER_A, by_row, by_column, row, wanted), primitives, saved, POWER_A, rows, row, wanted,
            x, e, own, hit, inverse, log_sum, slope, dz_y, out, Q_A,
        )  # fmt: skip
    if POWER_B:
        slope, dz_y, out = _add_power(
            _upstream(grads, POWER_B, by_row, by_column, row, wanted), primitives, saved, POWER_B, rows, row, wanted,
            x, e, own, hit, inverse, log_sum, slope, dz_y, out, Q_B,
        )  # fmt: skip
    if FOCAL_A:
        slope, dz_y, out = _add_focal(
            _upstream(grads, FOCAL_A, by_row, by_column, row, wanted), saved, FOCAL_A, rows, row, x, e, hit, inverse, log_sum,
            slope, dz_y, out, GAMMA_A, DETACH_A, MINIMUM_A, CEILING_A, HIGHEST_A,
        )  # fmt: skip
    if FOCAL_B:
        slope, dz_y, out = _add_focal(
            _upstream(grads, FOCAL_B, by_row, by_column, row, wanted), saved, FOCAL_B, rows, row, x, e, hit, inverse, log_sum,
            slope, dz_y, out, GAMMA_B, DETACH_B, MINIMUM_B, CEILING_B, HIGHEST_B,
        )  # fmt: skip
    out = tl.where(z > float("-inf"), out + e * slope, 0.0)
    if (label >= start) & (label < start + WIDTH):
        out = tl.where(column == label, dz_y, out)
    place = gradient + row.to(tl.int64) * (out_stride.to(tl.int64) * UNIT) + column
    tl.store(place, out.to(gradient.dtype.element_ty), mask=column < classes)
