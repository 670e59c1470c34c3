"""What is made of the sums of a held row: its numbers, what is kept of them, and the factors of its gradient.

Nothing here makes a tensor out of nothing, whose layout :mod:`noiseproof.kernels.single_pass_kernel` would have to know.
"""

from __future__ import annotations

import triton
import triton.language as tl

from noiseproof.kernels.blocks import is_lost, keep, without_largest
from noiseproof.kernels.stream import factors_of
from noiseproof.kernels.terms import FLOOR, SURE_SUM, at_least, exp, log1p, norm_power, power_term, rest_of_largest


@triton.jit
def add_two(a, b, more_a, more_b):
    return a + more_a, b + more_b


@triton.jit
def _add_three(a, b, c, more_a, more_b, more_c):
    return a + more_a, b + more_b, c + more_c


@triton.jit
def lanes_to_row(
    m, d, s, _, a, b, base, lanes, strip, label, classes, ACROSS: tl.constexpr, SUM: tl.constexpr,
    POWER_A: tl.constexpr, Q_A: tl.constexpr, POWER_B: tl.constexpr, Q_B: tl.constexpr,
):  # fmt: skip
    """The largest class but the label; relative to it the sums of e, e^q and e^q of all others; that of z - origin.

    ``strip`` is where the logits of the first lane are.
    """
    largest = tl.max(m, 0)
    factor = exp(m - largest)
    rest, rest_a, rest_b, total = d * factor, 0.0, 0.0, 0.0
    if SUM and POWER_A:
        rest, rest_a, total = tl.reduce((rest, a * power_term(m - largest, factor, Q_A), s), 0, _add_three)
    elif SUM:
        rest, total = tl.reduce((rest, s), 0, add_two)
    elif POWER_A:
        rest, rest_a = tl.reduce((rest, a * power_term(m - largest, factor, Q_A)), 0, add_two)
    else:
        rest = tl.sum(rest, 0)
    rest, rest_a = rest - 1.0, rest_a - 1.0
    if POWER_B:
        rest_b = tl.sum(b * power_term(m - largest, factor, Q_B), 0) - 1.0
    if rest < SURE_SUM - 1.0:
        lane = tl.max(tl.where(m == largest, lanes, 0), 0)
        rest, rest_a, rest_b = without_largest(
            m, d, a, b, lanes, lane, base, lane * ACROSS + strip, largest, label, classes, Q_A, Q_B
        )
    return largest, rest, rest_a, rest_b, total


@triton.jit
def _with_label(largest, rest, rest_a, rest_b, z_y, Q_A: tl.constexpr, Q_B: tl.constexpr):
    """The largest of all, the label's logit below it, whether it is another's; all sums relative to it, without the largest
    where that is one of them; d and D - 1."""
    top = tl.maximum(largest, z_y)
    own, shift = z_y - top, largest - top
    one = tl.where(shift < 0.0, 0.0, 1.0)
    factor = exp(shift)
    rest_a = tl.where(one > 0.0, rest_a, (rest_a + 1.0) * power_term(shift, factor, Q_A))
    rest_b = tl.where(one > 0.0, rest_b, (rest_b + 1.0) * power_term(shift, factor, Q_B))
    rest = tl.where(one > 0.0, rest, (rest + 1.0) * factor)
    d = at_least(rest + one, FLOOR)
    return top, own, one, rest, rest_a, rest_b, d, tl.where(own == 0.0, d, rest + exp(own))


@triton.jit
def _lost(own, rest, rest_q, USED: tl.constexpr, Q: tl.constexpr):
    lost = own > 0.0  # never
    if USED:
        lost = is_lost(own, rest, rest_q - rest, Q)
    return lost


@triton.jit
def _power_value(rest_q, one, inverse, log_sum, USED: tl.constexpr, Q: tl.constexpr):
    value = 0.0
    if USED:
        value = (rest_q + one) * norm_power(inverse, log_sum, Q)
    return value


@triton.jit
def shares_of_one(divisor, MEAN: tl.constexpr):
    """What a weight of 1 is worth: of a mean the inverse of all weights."""
    worth = 1.0
    if MEAN:
        total = tl.load(divisor)
        worth = 1.0 / tl.where(total == 0.0, 1.0, total)  # where all rows are ignored
    return worth


@triton.jit
def share_of(target, weight, row, there, target_stride, label, valid, ignore_index, worth, WEIGHTED: tl.constexpr):
    """What the gradients of a row are multiplied by: its weight times what one is worth; 0 if it is ignored."""
    counted = there & (tl.load(target + row.to(tl.int64) * target_stride, mask=there, other=0) != ignore_index)
    share = tl.where(counted, worth, 0.0)
    if WEIGHTED:
        share *= tl.load(weight + label, mask=counted & valid, other=1.0).to(tl.float32)  # of a label out of range too
    return share


@triton.jit
def row_numbers(
    sums, left, total, z_y, origin,
    POWER_A: tl.constexpr, Q_A: tl.constexpr, POWER_B: tl.constexpr, Q_B: tl.constexpr,
):  # fmt: skip
    """Of a row: what every term of a class is made with, its other numbers, and which sums of ``e^q - e`` are lost."""
    largest, rest, rest_a, rest_b, _ = sums
    top, own, one, rest, rest_a, rest_b, d, above = _with_label(largest, rest, rest_a, rest_b, z_y, Q_A, Q_B)
    log_sum, inverse = log1p(above), 1.0 / (d + exp(own))
    others = left * log_sum + (left * (top - origin) - total)
    value_a = _power_value(rest_a, one, inverse, log_sum, POWER_A, Q_A)
    value_b = _power_value(rest_b, one, inverse, log_sum, POWER_B, Q_B)
    kept_a, kept_b = tl.where(own < 0.0, rest_a - rest, rest_a + one), tl.where(own < 0.0, rest_b - rest, rest_b + one)
    numbers = (own, d, left, others, z_y - largest, value_a, value_b)
    lost = (_lost(own, rest, rest_a, POWER_A, Q_A), _lost(own, rest, rest_b, POWER_B, Q_B))
    return (top, log_sum, inverse, rest_of_largest(above, inverse)), numbers, (kept_a, kept_b), lost


@triton.jit
def keep_statistics(
    statistics, rows, row, log_sum, numbers, focals, spoilt, NLL: tl.constexpr, MARGIN: tl.constexpr,
    POWERS: tl.constexpr, FOCALS: tl.constexpr,
):  # fmt: skip
    """What the loss is made of."""
    own, d, _, others, margin, value_a, value_b = numbers
    keep(statistics, 0, rows, row, log_sum - own + spoilt)
    keep(statistics, 1, rows, row, spoilt - log1p(exp(own) / d))
    if NLL:
        keep(statistics, NLL, rows, row, others + spoilt)
    if MARGIN:
        keep(statistics, MARGIN, rows, row, margin + spoilt)
    if POWERS[0]:
        keep(statistics, POWERS[0], rows, row, value_a + spoilt)
    if POWERS[2]:
        keep(statistics, POWERS[2], rows, row, value_b + spoilt)
    if FOCALS[0]:
        keep(statistics, FOCALS[0], rows, row, focals[0] + spoilt)
    if FOCALS[6]:
        keep(statistics, FOCALS[6], rows, row, focals[2] + spoilt)


@triton.jit
def factors_of_row(log_sum, numbers, powers, focals, share, spoilt, FORMULA: tl.constexpr, POWERS: tl.constexpr):
    """By what each term of a class is multiplied in the gradient, and the label's own gradient."""
    own, d, left, others, margin, value_a, value_b = numbers
    f_a, h_a, f_b, h_b = focals
    by_nll, by_log1m, uniform, _, power_a, power_b, focal_a, focal_b = FORMULA(
        log_sum - own + spoilt, spoilt - log1p(exp(own) / d), others + spoilt, margin + spoilt,
        value_a + spoilt, value_b + spoilt, f_a + spoilt, f_b + spoilt,
    )  # fmt: skip
    wanted = (share != 0.0) & (own > float("-inf"))  # as in the second pass, a masked label has no gradient
    uniform = tl.where(wanted, uniform * share, 0.0)
    focal_a, focal_b = tl.where(wanted, focal_a * share, 0.0), tl.where(wanted, focal_b * share, 0.0)
    _, slope, dz_y, power_a, power_b = factors_of(
        tl.where(wanted, by_nll * share, 0.0), tl.where(wanted, by_log1m * share, 0.0), uniform,
        tl.where(wanted, power_a * share, 0.0), tl.where(wanted, power_b * share, 0.0), focal_a, focal_b,
        tl.where(wanted, value_a, 0.0), tl.where(wanted, value_b, 0.0), powers[0], powers[1], h_a, h_b,
        own, d, left, log_sum, POWERS[0], POWERS[1], POWERS[2], POWERS[3],
    )  # fmt: skip
    return (slope, uniform, tl.where(own < 0.0, 1.0, 0.0), power_a, power_b, focal_a, focal_b), dz_y
