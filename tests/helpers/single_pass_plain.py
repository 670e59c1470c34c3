"""The arithmetic of held rows without holding them: a kernel for Triton's interpreter, in the place of the real one."""

import triton
import triton.language as tl

from noiseproof.kernels.blocks import add_block, changes, focal_block, unmasked
from noiseproof.kernels.single_pass_row import (
    factors_of_row,
    keep_statistics,
    lanes_to_row,
    row_numbers,
    share_of,
    shares_of_one,
)
from noiseproof.kernels.stream import gradient_of
from noiseproof.kernels.terms import MIN_DIVISOR, MIN_FLOAT, safe_label


@triton.jit
def single_pass_rows(
    logits, target, weight, statistics, gradient, divisor,
    rows, units, stride_units, target_stride, out_stride, ignore_index,
    UNIT: tl.constexpr, WARPS: tl.constexpr, ACROSS: tl.constexpr, DEPTH: tl.constexpr, HELD: tl.constexpr, TAIL: tl.constexpr,
    LAG: tl.constexpr, STEPS: tl.constexpr, FORMULA: tl.constexpr, WEIGHTED: tl.constexpr, MEAN: tl.constexpr,
    NLL: tl.constexpr, MARGIN: tl.constexpr,
    POWER_A: tl.constexpr, Q_A: tl.constexpr, POWER_B: tl.constexpr, Q_B: tl.constexpr,
    FOCAL_A: tl.constexpr, GAMMA_A: tl.constexpr, DETACH_A: tl.constexpr,
    MINIMUM_A: tl.constexpr, CEILING_A: tl.constexpr, HIGHEST_A: tl.constexpr,
    FOCAL_B: tl.constexpr, GAMMA_B: tl.constexpr, DETACH_B: tl.constexpr,
    MINIMUM_B: tl.constexpr, CEILING_B: tl.constexpr, HIGHEST_B: tl.constexpr,
):  # fmt: skip
    LANES: tl.constexpr = WARPS * 32
    WIDTH: tl.constexpr = LANES * ACROSS
    BLOCK: tl.constexpr = WIDTH * DEPTH
    SUM: tl.constexpr = NLL + FOCAL_A
    POWERS: tl.constexpr = (POWER_A, Q_A, POWER_B, Q_B)
    FOCALS: tl.constexpr = (FOCAL_A, 0, 0, 0, 0, 0, FOCAL_B)
    lanes = tl.arange(0, LANES)
    place = lanes[:, None, None] * ACROSS + tl.arange(0, DEPTH)[None, :, None] * WIDTH + tl.arange(0, ACROSS)[None, None, :]
    strip = tl.arange(0, STEPS)[:, None] * WIDTH + tl.arange(0, ACROSS)[None, :]
    classes = units * UNIT
    nothing = tl.zeros([LANES], tl.float32)
    row = tl.program_id(0)
    label, valid = safe_label(target, row, row < rows, classes, target_stride)
    base = logits + row.to(tl.int64) * (stride_units.to(tl.int64) * UNIT)
    z_y = tl.load(base + label).to(tl.float32)
    origin = 0.0
    if SUM:
        origin = tl.max(tl.load(base + lanes).to(tl.float32), 0)
        origin = tl.where(origin > float("-inf"), origin, tl.where(z_y > float("-inf"), z_y, 0.0))
    m, d, s, t, a, b = nothing + MIN_FLOAT, nothing, nothing, nothing, nothing, nothing
    for start in range(0, classes, BLOCK):
        z = tl.load(base + start + place, mask=start + place < classes, other=float("-inf")).to(tl.float32)
        m, d, s, t, a, b = add_block(
            z, start, place, label, classes, m, d, s, t, a, b, origin, DEPTH * ACROSS, BLOCK, SUM, False,
            POWER_A, Q_A, POWER_B, Q_B,
        )  # fmt: skip
    sums = lanes_to_row(m, d, s, t, a, b, base, lanes, strip, label, classes, ACROSS, SUM, POWER_A, Q_A, POWER_B, Q_B)
    left, total, masked = classes - 1.0, sums[4], classes < 0
    if SUM:
        masked = total == float("-inf")
        if masked:
            count, logits_left = nothing, nothing
            for start in range(0, classes, BLOCK):
                z = tl.load(base + start + place, mask=start + place < classes, other=float("-inf")).to(tl.float32)
                more, some = unmasked(z, start + place, label, origin)
                count, logits_left = count + more, logits_left + some
            left, total = tl.sum(count, 0), tl.sum(logits_left, 0)
    of_class, numbers, powers, lost = row_numbers(sums, left, total, z_y, origin, POWER_A, Q_A, POWER_B, Q_B)
    top, log_sum, inverse, top_rest = of_class
    power_a, power_b = powers
    spoilt = tl.where(valid, 0.0, float("nan"))
    change_a, change_b = nothing, nothing
    for start in range(0, classes, BLOCK):
        z = tl.load(base + start + place, mask=start + place < classes, other=float("-inf")).to(tl.float32)
        z = tl.where(start + place == label, float("-inf"), z)
        change_a, change_b = change_a + changes(z, top, Q_A), change_b + changes(z, top, Q_B)
    power_a = tl.where(lost[0], tl.sum(change_a, 0), power_a)
    power_b = tl.where(lost[1], tl.sum(change_b, 0), power_b)
    f_a, h_a, f_b, h_b = 0.0, 0.0, 0.0, 0.0
    if FOCAL_A:
        f_a, h_a, f_b, h_b = nothing, nothing, nothing, nothing
        for start in range(0, classes, BLOCK):
            z = tl.load(base + start + place, mask=start + place < classes, other=float("-inf")).to(tl.float32)
            f_a, h_a, f_b, h_b = focal_block(
                z, start, place, label, classes, masked, top, log_sum, inverse, top_rest, f_a, h_a, f_b, h_b, BLOCK,
                FOCAL_A, GAMMA_A, DETACH_A, MINIMUM_A, CEILING_A, HIGHEST_A,
                FOCAL_B, GAMMA_B, DETACH_B, MINIMUM_B, CEILING_B, HIGHEST_B,
            )  # fmt: skip
        f_a, h_a, f_b, h_b = (
            tl.maximum(tl.sum(f_a, 0), MIN_DIVISOR),
            tl.sum(h_a, 0),
            tl.maximum(tl.sum(f_b, 0), MIN_DIVISOR),
            tl.sum(h_b, 0),
        )
    focals = (f_a, h_a, f_b, h_b)
    keep_statistics(statistics, rows, row, log_sum, numbers, focals, spoilt, NLL, MARGIN, POWERS, FOCALS)
    worth = shares_of_one(divisor, MEAN)
    share = share_of(target, weight, row, row < rows, target_stride, label, valid, ignore_index, worth, WEIGHTED)
    factors, dz_y = factors_of_row(log_sum, numbers, (power_a, power_b), focals, share, spoilt, FORMULA, POWERS)
    slope, uniform, below, power_a, power_b, focal_a, focal_b = factors
    to = gradient + row.to(tl.int64) * (out_stride.to(tl.int64) * UNIT)
    for start in range(0, classes, BLOCK):
        column = start + place
        z = tl.load(base + column, mask=column < classes, other=float("-inf")).to(tl.float32)
        out = gradient_of(
            z, top, slope, uniform, below, power_a, power_b, focal_a, focal_b, inverse, log_sum, top_rest,
            POWER_A, Q_A, POWER_B, Q_B, FOCAL_A, GAMMA_A, DETACH_A, MINIMUM_A, CEILING_A, HIGHEST_A,
            FOCAL_B, GAMMA_B, DETACH_B, MINIMUM_B, CEILING_B, HIGHEST_B,
        )  # fmt: skip
        if masked:
            out = tl.where(z > float("-inf"), out, 0.0)
        out = tl.where(column == label, dz_y, out)
        tl.store(to + column, out.to(gradient.dtype.element_ty), mask=column < classes)
