"""The first pass over rows of some hundred classes: a warp takes one after the other, and finishes them together.

What follows the sums of a row, logarithms and the like, takes as many instructions as the row itself if one number is computed
at a time; here each lane has a row of its own. A warp issues an instruction for every logit, so each logit is compared with
nothing but the label. Where one class has most of the others' probability it must be left out of their sum, or 1 + what is left
would round away what is left: only such a row is added up again without it. Focal sums and focals need log D, so they are a
second reading, soon after the first and from the cache. Names of the arguments are those of :mod:`noiseproof.kernels.tile`; a
row is ``[PARTS, UNIT]``.
"""

from __future__ import annotations

import triton
import triton.language as tl

from noiseproof.kernels.terms import (
    FLOOR,
    MIN_DIVISOR,
    MIN_FLOAT,
    SURE_SUM,
    at_least,
    class_terms,
    exp,
    focal_terms,
    log1p,
    norm_power,
    power_change,
    rest_of_largest,
    safe_label,
)


@triton.jit
def _over(terms):
    return tl.sum(tl.sum(terms, 1), 0)


@triton.jit
def _read(logits, row, rows, units, stride, UNIT: tl.constexpr, PARTS: tl.constexpr, begin=0):
    part = begin + tl.arange(0, PARTS)[:, None]
    place = logits + row.to(tl.int64) * stride + part * UNIT + tl.arange(0, UNIT)[None, :]
    return tl.load(place, mask=part < tl.where(row < rows, units, 0), other=float("-inf")).to(tl.float32)


@triton.jit
def _is_label(target, row, rows, units, target_stride, highest, UNIT: tl.constexpr, PARTS: tl.constexpr, begin=0):
    """Not compared before the row is there: the answers would have to be kept meanwhile."""
    label, _ = safe_label(target, row, row < rows, units * UNIT, target_stride)
    label = tl.where(highest < MIN_FLOAT, -1, label)  # it is not
    return tl.arange(0, UNIT)[None, :] == label - (begin + tl.arange(0, PARTS)[:, None]) * UNIT


@triton.jit
def _sum_of_x(x, units, USED: tl.constexpr, PARTS: tl.constexpr):
    """-inf if a class is masked. A part past the end is left out as a whole."""
    total = 0.0
    if USED:
        total = tl.sum(tl.where(tl.arange(0, PARTS) < units, tl.sum(x, 1), 0.0), 0)
    return total


@triton.jit
def _sum_of_powers(x, e, is_label, below, USED: tl.constexpr, Q: tl.constexpr):
    """Of e^q - e, or of e^q where the label is the largest class: the terms that the gradient has, 0 where e is 1."""
    total = 0.0
    if USED:
        if Q == 2:
            term = e * (e - below)
        else:
            term = power_change(x, e, below > 0.0, Q)
            if Q < 1:  # not made of e, which is 0 at the label
                term = tl.where(is_label, 0.0, term)
        total = _over(term)
    return total


@triton.jit
def _sums(
    logits, target, first, z_y, rows, units, stride, target_stride,
    UNIT: tl.constexpr, ROWS: tl.constexpr, PARTS: tl.constexpr, SUM: tl.constexpr, MARGIN: tl.constexpr,
    POWER_A: tl.constexpr, Q_A: tl.constexpr, POWER_B: tl.constexpr, Q_B: tl.constexpr,
):  # fmt: skip
    """Of each row the largest logit, and the largest of the others; of the others the sum of e and those of the powers; and of
    all the sum of x."""
    line = tl.arange(0, ROWS)
    top, largest = tl.zeros([ROWS], tl.float32), tl.zeros([ROWS], tl.float32)
    every, power_a, power_b, total = tl.zeros_like(top), tl.zeros_like(top), tl.zeros_like(top), tl.zeros_like(top)
    for i in range(0, ROWS):
        z = _read(logits, first + i, rows, units, stride, UNIT, PARTS)
        highest = tl.maximum(tl.max(tl.max(z, 1), 0), MIN_FLOAT)
        below = tl.where(tl.sum(tl.where(line == i, z_y, 0.0), 0) < highest, 1.0, 0.0)
        is_label = _is_label(target, first + i, rows, units, target_stride, highest, UNIT, PARTS)
        if MARGIN:
            largest = tl.where(line == i, tl.max(tl.max(tl.where(is_label, float("-inf"), z), 1), 0), largest)
        x = z - highest  # -inf at masked classes and past the end, where e is 0
        e = tl.where(is_label, 0.0, exp(x))
        top, every = tl.where(line == i, highest, top), tl.where(line == i, _over(e), every)
        total = tl.where(line == i, _sum_of_x(x, units, SUM, PARTS), total)
        power_a = tl.where(line == i, _sum_of_powers(x, e, is_label, below, POWER_A, Q_A), power_a)
        power_b = tl.where(line == i, _sum_of_powers(x, e, is_label, below, POWER_B, Q_B), power_b)
    return top, largest, every, power_a, power_b, total


@triton.jit
def _without_largest(
    logits, target, first, sure, top, every, rest, rows, units, stride, target_stride,
    UNIT: tl.constexpr, ROWS: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """The sum of e without the largest classes, of rows that are sure; they are read again."""
    line = tl.arange(0, ROWS)
    for i in range(0, ROWS):
        if tl.max(tl.where(line == i, sure.to(tl.int32), 0), 0) > 0:
            highest = tl.sum(tl.where(line == i, top, 0.0), 0)
            z = _read(logits, first + i, rows, units, stride, UNIT, PARTS)
            is_label = _is_label(target, first + i, rows, units, target_stride, highest, UNIT, PARTS)
            x = tl.where(is_label, MIN_FLOAT, z - highest)
            rest = tl.where(line == i, _over(tl.where(x == 0.0, 0.0, exp(x))), rest)
    return rest, tl.where(sure, tl.floor(every - rest + 0.5), 1.0)


@triton.jit
def _unmasked(
    logits, target, first, tops, rows, units, stride, target_stride,
    UNIT: tl.constexpr, ROWS: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """How many classes other than the label are not masked, and the sum of their x; they are read again, which is rare."""
    line = tl.arange(0, ROWS)
    left, total = tl.zeros([ROWS], tl.float32), tl.zeros([ROWS], tl.float32)
    for i in range(0, ROWS):
        z = _read(logits, first + i, rows, units, stride, UNIT, PARTS)
        is_label = _is_label(target, first + i, rows, units, target_stride, 0.0, UNIT, PARTS)
        alive = (z > float("-inf")) & ~is_label
        top = tl.sum(tl.where(line == i, tops, 0.0), 0)
        left = tl.where(line == i, _over(alive.to(tl.float32)), left)
        total = tl.where(line == i, _over(tl.where(alive, z - top, 0.0)), total)
    return left, total


@triton.jit
def _focal_terms(
    x, e, alive, log_sum, inverse, top_rest,
    GAMMA: tl.constexpr, DETACH: tl.constexpr, MINIMUM: tl.constexpr, CEILING: tl.constexpr, HIGHEST: tl.constexpr,
):  # fmt: skip
    """The terms of a focal or clipped sum. Where a class is not alive x is -inf and e 0, and they are 0, but for h of a focal
    sum, which is 1."""
    if MINIMUM > 0 and GAMMA == 0:
        left = x + (HIGHEST - log_sum)
        f, h = tl.maximum(left, 0.0), 0.0 - (left > 0.0).to(tl.float32)
    elif MINIMUM > 0:
        f, h = class_terms(
            tl.where(alive, x, 0.0), e, log_sum, inverse, top_rest, GAMMA, DETACH, MINIMUM, CEILING, HIGHEST
        )  # fmt: skip
        f, h = tl.where(alive, f, 0.0), tl.where(alive, h, 0.0)
    else:  # a class that is not alive is given a -log p of 0
        f, h, _ = focal_terms(
            tl.where(alive, x, tl.maximum(log_sum, MIN_DIVISOR)), e, log_sum, inverse, top_rest, GAMMA, DETACH
        )
    return f, h


@triton.jit
def _of_line(values, i, ROWS: tl.constexpr):
    return tl.sum(tl.where(tl.arange(0, ROWS) == i, values, 0.0), 0)


@triton.jit
def _focal_sums(
    logits, target, first, tops, log_sums, inverses, top_rests, left, rows, units, stride, target_stride,
    UNIT: tl.constexpr, ROWS: tl.constexpr, PARTS: tl.constexpr,
    FOCAL_A: tl.constexpr, GAMMA_A: tl.constexpr, DETACH_A: tl.constexpr,
    MINIMUM_A: tl.constexpr, CEILING_A: tl.constexpr, HIGHEST_A: tl.constexpr,
    FOCAL_B: tl.constexpr, GAMMA_B: tl.constexpr, DETACH_B: tl.constexpr,
    MINIMUM_B: tl.constexpr, CEILING_B: tl.constexpr, HIGHEST_B: tl.constexpr,
):  # fmt: skip
    """Of each row two focal sums or focals, each with its sum of h; a quarter of a row at a time, for fewer registers."""
    SOME: tl.constexpr = PARTS // 4 if PARTS > 4 else PARTS
    line = tl.arange(0, ROWS)
    focal_a, grads_a = tl.zeros([ROWS], tl.float32), tl.zeros([ROWS], tl.float32)
    focal_b, grads_b = tl.zeros_like(focal_a), tl.zeros_like(focal_a)
    for i in range(0, ROWS):
        top, log_sum = _of_line(tops, i, ROWS), _of_line(log_sums, i, ROWS)
        inverse, top_rest = _of_line(inverses, i, ROWS), _of_line(top_rests, i, ROWS)
        dead = PARTS * UNIT - _of_line(left, i, ROWS)
        f_a, h_a = tl.zeros([SOME, UNIT], tl.float32), tl.zeros([SOME, UNIT], tl.float32)
        f_b, h_b = tl.zeros_like(f_a), tl.zeros_like(f_a)
        for begin in range(0, PARTS, SOME):
            z = _read(logits, first + i, rows, units, stride, UNIT, SOME, begin)
            is_label = _is_label(target, first + i, rows, units, target_stride, top, UNIT, SOME, begin)
            x = tl.where(is_label, float("-inf"), z - top)
            alive, e = x > float("-inf"), exp(x)
            f, h = _focal_terms(x, e, alive, log_sum, inverse, top_rest, GAMMA_A, DETACH_A, MINIMUM_A, CEILING_A, HIGHEST_A)
            f_a, h_a = f_a + f, h_a + h
            if FOCAL_B:
                f, h = _focal_terms(
                    x, e, alive, log_sum, inverse, top_rest, GAMMA_B, DETACH_B, MINIMUM_B, CEILING_B, HIGHEST_B
                )  # fmt: skip
                f_b, h_b = f_b + f, h_b + h
        focal_a = tl.where(line == i, tl.maximum(_over(f_a), MIN_DIVISOR), focal_a)
        grads_a = tl.where(line == i, _over(h_a) - (dead if MINIMUM_A == 0 else 0.0), grads_a)
        if FOCAL_B:
            focal_b = tl.where(line == i, tl.maximum(_over(f_b), MIN_DIVISOR), focal_b)
            grads_b = tl.where(line == i, _over(h_b) - (dead if MINIMUM_B == 0 else 0.0), grads_b)
    return focal_a, grads_a, focal_b, grads_b


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
def _put_power(statistics, saved, rows, row, valid, power, every, own, inverse, log_sum, WHICH: tl.constexpr, Q: tl.constexpr):
    """The power sum, and for its gradient what was added up of it."""
    if WHICH:
        total = tl.where(own < 0.0, power + every, power)
        _put(statistics, WHICH, rows, row, total * norm_power(inverse, log_sum, Q), valid)
        _put(saved, 3 + WHICH, rows, row, power, row < rows)


@triton.jit
def _put_focal(statistics, saved, rows, row, valid, value, row_grads, WHICH: tl.constexpr):
    if WHICH:
        _put(statistics, WHICH, rows, row, value, valid)
        _put(saved, 3 + WHICH, rows, row, row_grads, row < rows)


@triton.jit(do_not_specialize=["rows", "units", "stride_units", "target_stride"])
def line_forward(
    logits, target, statistics, saved, rows, units, stride_units, target_stride,
    UNIT: tl.constexpr, ROWS: tl.constexpr, PARTS: tl.constexpr, NLL: tl.constexpr, MARGIN: tl.constexpr,
    POWER_A: tl.constexpr, Q_A: tl.constexpr, POWER_B: tl.constexpr, Q_B: tl.constexpr,
    FOCAL_A: tl.constexpr, GAMMA_A: tl.constexpr, DETACH_A: tl.constexpr,
    MINIMUM_A: tl.constexpr, CEILING_A: tl.constexpr, HIGHEST_A: tl.constexpr,
    FOCAL_B: tl.constexpr, GAMMA_B: tl.constexpr, DETACH_B: tl.constexpr,
    MINIMUM_B: tl.constexpr, CEILING_B: tl.constexpr, HIGHEST_B: tl.constexpr,
):  # fmt: skip
    """What :func:`noiseproof.kernels.tile.tile_forward` gives."""
    first, stride = tl.program_id(0) * ROWS, stride_units.to(tl.int64) * UNIT
    row = first + tl.arange(0, ROWS)
    label, valid = safe_label(target, row, row < rows, units * UNIT, target_stride)
    z_y = tl.load(logits + row.to(tl.int64) * stride + label, mask=row < rows, other=0.0).to(tl.float32)
    top, largest, every, power_a, power_b, total = _sums(
        logits, target, first, z_y, rows, units, stride, target_stride, UNIT, ROWS, PARTS, NLL + FOCAL_A, MARGIN,
        POWER_A, Q_A, POWER_B, Q_B,
    )  # fmt: skip
    own = z_y - top
    sure = (own < 0.0) & (every < SURE_SUM)
    tops = tl.zeros_like(every) + 1.0
    rest = every - tops
    if tl.max(sure.to(tl.int32), 0) > 0:
        rest, tops = _without_largest(
            logits, target, first, sure, top, every, rest, rows, units, stride, target_stride, UNIT, ROWS, PARTS
        )
    left = tl.zeros_like(rest) + (units * UNIT - 1).to(tl.float32)
    total = tl.where(own > float("-inf"), total - own, total)
    if tl.min(total, 0) == float("-inf"):
        left, total = _unmasked(logits, target, first, top, rows, units, stride, target_stride, UNIT, ROWS, PARTS)
    e_y, d = exp(own), at_least(every, FLOOR)
    above = tl.where(own == 0.0, d, at_least(rest + (tops - 1.0), 0.0) + e_y)  # D - 1
    log_sum, inverse = log1p(above), 1.0 / (d + e_y)
    _put(statistics, 0, rows, row, log_sum - own, valid)
    _put(statistics, 1, rows, row, -log1p(e_y / d), valid)
    if NLL:
        _put(statistics, NLL, rows, row, left * log_sum - total, valid)
    if MARGIN:
        _put(statistics, MARGIN, rows, row, z_y - largest, valid)
    _put_power(statistics, saved, rows, row, valid, power_a, every, own, inverse, log_sum, POWER_A, Q_A)
    _put_power(statistics, saved, rows, row, valid, power_b, every, own, inverse, log_sum, POWER_B, Q_B)
    if FOCAL_A:
        focal_a, grads_a, focal_b, grads_b = _focal_sums(
            logits, target, first, top, log_sum, inverse, rest_of_largest(above, inverse), left,
            rows, units, stride, target_stride, UNIT, ROWS, PARTS,
            FOCAL_A, GAMMA_A, DETACH_A, MINIMUM_A, CEILING_A, HIGHEST_A,
            FOCAL_B, GAMMA_B, DETACH_B, MINIMUM_B, CEILING_B, HIGHEST_B,
        )  # fmt: skip
        _put_focal(statistics, saved, rows, row, valid, focal_a, grads_a, FOCAL_A)
        _put_focal(statistics, saved, rows, row, valid, focal_b, grads_b, FOCAL_B)
    _put_row(saved, rows, row, top, own, d, log_sum, left)
