"""The first pass over rows longer than a tile: a program goes along one, each of its LANES reading ACROSS logits, DEPTH times.

:mod:`noiseproof.kernels.blocks` has what is added up. At the end the lanes are brought to the row's maximum. The lane that has
the largest class is added up once more without it: ``1 + what is left`` has rounded away what is left, and nothing else is in
the gradient where the network is sure. Logits are summed from an origin, the maximum of the first of them: so both parts of
sum (max z - z_k) are positive.

Focal sums of very many classes come from ``sum e x`` of the same reading, see :func:`focal_from_moments` there. Others, and
room, need log D before they begin, so they read the row again, backwards: what was read last may still be in the cache. A row
with masked classes is also read again, if ``nll_others`` or a focal sum is asked for, and so is one whose power sums are lost
to near ties at the top, see :func:`is_lost`. Names of the arguments are those of :mod:`noiseproof.kernels.tile`.
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
from noiseproof.kernels.terms import FLOOR, LOWEST, TINY, at_least, exp, log1p, miss_of_largest, safe_label

__all__ = ["stream_forward"]


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
    m = tl.full([LANES], LOWEST, tl.float32)
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
    base, place, label, classes, masked, top, log_sum, inverse, top_miss, LANES: tl.constexpr, BLOCK: tl.constexpr,
    FOCAL_A: tl.constexpr, GAMMA_A: tl.constexpr, DETACH_A: tl.constexpr,
    MINIMUM_A: tl.constexpr, CEILING_A: tl.constexpr, HIGHEST_A: tl.constexpr,
    FOCAL_B: tl.constexpr, GAMMA_B: tl.constexpr, DETACH_B: tl.constexpr,
    MINIMUM_B: tl.constexpr, CEILING_B: tl.constexpr, HIGHEST_B: tl.constexpr,
):  # fmt: skip
    """Of each of two focal sums or rooms: its value, and the sum of h."""
    f_a = tl.zeros([LANES], tl.float32)
    h_a, f_b, h_b = tl.zeros_like(f_a), tl.zeros_like(f_a), tl.zeros_like(f_a)
    last = ((classes - 1) // BLOCK) * BLOCK
    for done in range(0, last + 1, BLOCK):
        start = last - done
        column = start + place
        z = tl.load(base + column, mask=column < classes, other=float("-inf"), eviction_policy="evict_first").to(tl.float32)
        f_a, h_a, f_b, h_b = focal_block(
            z, start, place, label, classes, masked, top, log_sum, inverse, top_miss, f_a, h_a, f_b, h_b, BLOCK,
            FOCAL_A, GAMMA_A, DETACH_A, MINIMUM_A, CEILING_A, HIGHEST_A,
            FOCAL_B, GAMMA_B, DETACH_B, MINIMUM_B, CEILING_B, HIGHEST_B,
        )  # fmt: skip
    return tl.maximum(tl.sum(f_a, 0), TINY), tl.sum(h_a, 0), tl.maximum(tl.sum(f_b, 0), TINY), tl.sum(h_b, 0)


@triton.jit
def _focals(
    base, shallow, place, label, classes, masked, nll_others, d, t, one, left, top, log_sum, inverse, top_miss,
    LANES: tl.constexpr, WIDTH: tl.constexpr, DEPTH: tl.constexpr, MOMENT: tl.constexpr,
    FOCAL_A: tl.constexpr, GAMMA_A: tl.constexpr, DETACH_A: tl.constexpr,
    MINIMUM_A: tl.constexpr, CEILING_A: tl.constexpr, HIGHEST_A: tl.constexpr,
    FOCAL_B: tl.constexpr, GAMMA_B: tl.constexpr, DETACH_B: tl.constexpr,
    MINIMUM_B: tl.constexpr, CEILING_B: tl.constexpr, HIGHEST_B: tl.constexpr,
):  # fmt: skip
    """As :func:`_focal_sums`, from moments if they will do."""
    if MOMENT:
        f_a, h_a = focal_from_moments(nll_others, d, t, one, left, log_sum, inverse, top_miss, GAMMA_A, DETACH_A)
        f_b, h_b = focal_from_moments(nll_others, d, t, one, left, log_sum, inverse, top_miss, GAMMA_B, DETACH_B)
        if masked:
            f_a, h_a, f_b, h_b = _focal_sums(
                base, shallow, label, classes, masked, top, log_sum, inverse, top_miss, LANES, WIDTH,
                FOCAL_A, GAMMA_A, DETACH_A, MINIMUM_A, CEILING_A, HIGHEST_A,
                FOCAL_B, GAMMA_B, DETACH_B, MINIMUM_B, CEILING_B, HIGHEST_B,
            )  # fmt: skip
    else:
        f_a, h_a, f_b, h_b = _focal_sums(
            base, place, label, classes, masked, top, log_sum, inverse, top_miss, LANES, WIDTH * DEPTH,
            FOCAL_A, GAMMA_A, DETACH_A, MINIMUM_A, CEILING_A, HIGHEST_A,
            FOCAL_B, GAMMA_B, DETACH_B, MINIMUM_B, CEILING_B, HIGHEST_B,
        )  # fmt: skip
    return f_a, h_a, f_b, h_b


@triton.jit(do_not_specialize=["rows", "units", "stride_units", "target_stride"])
def stream_forward(
    logits, target, primitives, saved, rows, units, stride_units, target_stride,
    UNIT: tl.constexpr, LANES: tl.constexpr, ACROSS: tl.constexpr, DEPTH: tl.constexpr, STEPS: tl.constexpr,
    MOMENT: tl.constexpr, NLL: tl.constexpr, LEAD: tl.constexpr,
    POWER_A: tl.constexpr, Q_A: tl.constexpr, POWER_B: tl.constexpr, Q_B: tl.constexpr,
    FOCAL_A: tl.constexpr, GAMMA_A: tl.constexpr, DETACH_A: tl.constexpr,
    MINIMUM_A: tl.constexpr, CEILING_A: tl.constexpr, HIGHEST_A: tl.constexpr,
    FOCAL_B: tl.constexpr, GAMMA_B: tl.constexpr, DETACH_B: tl.constexpr,
    MINIMUM_B: tl.constexpr, CEILING_B: tl.constexpr, HIGHEST_B: tl.constexpr,
):  # fmt: skip
    """The primitives of one row; what :func:`tile_forward` saves; and, for each sum, what the gradient needs of it."""
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
        keep(primitives, NLL, rows, row, nll_others + spoilt)
    if LEAD:
        keep(primitives, LEAD, rows, row, z_y - largest + spoilt)
    change = _change(base, shallow, label, classes, top, own, rest, rest_a, LANES, WIDTH, POWER_A, Q_A)
    keep_power(primitives, saved, rows, row, change, rest_a, one, own, inverse, log_sum, spoilt, POWER_A, Q_A)
    change = _change(base, shallow, label, classes, top, own, rest, rest_b, LANES, WIDTH, POWER_B, Q_B)
    keep_power(primitives, saved, rows, row, change, rest_b, one, own, inverse, log_sum, spoilt, POWER_B, Q_B)
    if FOCAL_A:
        top_miss = miss_of_largest(above, inverse)
        f_a, h_a, f_b, h_b = _focals(
            base, shallow, place, label, classes, masked, nll_others, d, t, one, left, top, log_sum, inverse, top_miss,
            LANES, WIDTH, DEPTH, MOMENT, FOCAL_A, GAMMA_A, DETACH_A, MINIMUM_A, CEILING_A, HIGHEST_A,
            FOCAL_B, GAMMA_B, DETACH_B, MINIMUM_B, CEILING_B, HIGHEST_B,
        )  # fmt: skip
        keep_focal(primitives, saved, rows, row, f_a, h_a, spoilt, FOCAL_A)
        keep_focal(primitives, saved, rows, row, f_b, h_b, spoilt, FOCAL_B)
    keep_row(primitives, saved, rows, row, top, own, e_y, d, log_sum, left, spoilt)
