"""What the first pass over long rows adds up, block by block, and what it keeps of a row.

A block is ``z [LANES, DEPTH, ACROSS]``: the logits at ``start + place``. Each lane keeps its own maximum ``m`` and its own sums
relative to it, so that blocks need no exchange among threads::

    m' = max(m, z)      d <- d exp(m - m') + sum exp(z - m')      power <- power exp(q (m - m')) + sum exp(q (z - m'))

The label is in no sum. Names of the arguments are those of :mod:`noiseproof.kernels.tile`.
"""

from __future__ import annotations

import triton
import triton.language as tl

from noiseproof.kernels.terms import MIN_FLOAT, class_terms, exp, focal_terms, log1p, norm_power, power_change, power_term


@triton.jit
def over(terms):
    """Each lane's sum."""
    return tl.sum(tl.sum(terms, 2), 1)


@triton.jit
def _rescaled(total, x, e, change, factor, USED: tl.constexpr, Q: tl.constexpr):
    """A lane's sum of e^q after more terms, when its maximum has changed by ``change``."""
    if USED:
        total = total * power_term(change, factor, Q) + over(power_term(x, e, Q))
    return total


@triton.jit
def _step(
    z, counted, m, d, s, t, a, b, origin, EDGE: tl.constexpr, SUM: tl.constexpr, MOMENT: tl.constexpr, EACH: tl.constexpr,
    POWER_A: tl.constexpr, Q_A: tl.constexpr, POWER_B: tl.constexpr, Q_B: tl.constexpr,
):  # fmt: skip
    """The lanes after EACH more logits; with EDGE only those that are ``counted``, all the others having been made -inf."""
    larger = tl.maximum(m, tl.max(tl.max(z, 2), 1))
    change = m - larger
    x = z - larger[:, None, None]
    e = exp(x)
    factor = exp(change)
    if MOMENT:
        t = (t + change * d) * factor + over(e * (tl.maximum(x, MIN_FLOAT) if EDGE else x))
    d = d * factor + over(e)
    if SUM:
        if EDGE:
            s += over(tl.where(counted, z - origin, 0.0))
        else:
            s += over(x) + EACH * (larger - origin)
    a = _rescaled(a, x, e, change, factor, POWER_A, Q_A)
    b = _rescaled(b, x, e, change, factor, POWER_B, Q_B)
    return larger, d, s, t, a, b


@triton.jit
def add_block(
    z, start, place, label, classes, m, d, s, t, a, b, origin, EACH: tl.constexpr, BLOCK: tl.constexpr,
    SUM: tl.constexpr, MOMENT: tl.constexpr,
    POWER_A: tl.constexpr, Q_A: tl.constexpr, POWER_B: tl.constexpr, Q_B: tl.constexpr,
):  # fmt: skip
    """Each lane's maximum, and its sums of e, z - origin, e x, e^q and e^q, after one more block."""
    if ((label >= start) & (label < start + BLOCK)) | (start + BLOCK > classes):
        counted = (start + place < classes) & (start + place != label)
        z = tl.where(counted, z, float("-inf"))
        m, d, s, t, a, b = _step(
            z, counted, m, d, s, t, a, b, origin, True, SUM, MOMENT, EACH, POWER_A, Q_A, POWER_B, Q_B
        )  # fmt: skip
    else:
        m, d, s, t, a, b = _step(z, z, m, d, s, t, a, b, origin, False, SUM, MOMENT, EACH, POWER_A, Q_A, POWER_B, Q_B)
    return m, d, s, t, a, b


@triton.jit
def unmasked(z, column, label, origin):
    """Of a block how many classes other than the label are not masked, and the sum of their logits less the origin, by lane."""
    alive = (z > float("-inf")) & (column != label)
    return over(alive.to(tl.float32)), over(tl.where(alive, z - origin, 0.0))


@triton.jit
def changes(z, top, Q: tl.constexpr):
    """Each lane's sum of ``e^q - e`` over a block."""
    x = tl.maximum(z - top, MIN_FLOAT)
    e = exp(x)
    return over(e * (e - 1.0) if Q == 2 else power_change(x, e, True, Q))


@triton.jit
def is_lost(own, rest, change, Q: tl.constexpr):
    """Whether ``change``, a sum of ``e^q - e`` formed as the difference of two, has lost what the gradient is made of: nearly
    all of both is of classes that nearly tie with the largest, or q is nearly 1, where it is small beside the errors of both
    for any class. It is to be added up by itself, with :func:`changes`."""
    if Q == 1:
        lost = own > 0.0  # never: it is 0
    elif Q > 0.95 and Q < 1.05:
        lost = own < 0.0
    else:
        lost = (own < 0.0) & (rest > 0.25) & (tl.abs(change) < 0.02 * rest)
    return lost


@triton.jit
def _top_lane(base, column, top, label, classes, Q_A: tl.constexpr, Q_B: tl.constexpr):
    """The sums of e, e^q and e^q over the lane that has the largest class, whose logits are in these columns, without it."""
    z = tl.load(base + column, mask=(column < classes) & (column != label), other=float("-inf")).to(tl.float32)
    x = tl.where(z == float("-inf"), MIN_FLOAT, z - top)
    less = x != 0.0  # a NaN too
    x = tl.where(less, x, 0.0)
    e = exp(x)
    ties = tl.maximum(tl.sum(tl.sum((~less).to(tl.float32), 1), 0) - 1.0, 0.0)
    a = tl.sum(tl.sum(tl.where(less, power_term(x, e, Q_A), 0.0), 1), 0)
    b = tl.sum(tl.sum(tl.where(less, power_term(x, e, Q_B), 0.0), 1), 0)
    return tl.sum(tl.sum(tl.where(less, e, 0.0), 1), 0) + ties, a + ties, b + ties


@triton.jit
def without_largest(
    m, d, a, b, lanes, lane, base, column, top, label, classes, Q_A: tl.constexpr, Q_B: tl.constexpr
):  # fmt: skip
    """The row's sums of e, e^q and e^q, without the largest class, which is in this lane."""
    elsewhere, factor = lanes != lane, exp(m - top)
    rest, rest_a, rest_b = _top_lane(base, column, top, label, classes, Q_A, Q_B)
    rest += tl.sum(tl.where(elsewhere, d * factor, 0.0), 0)
    rest_a += tl.sum(tl.where(elsewhere, a * power_term(m - top, factor, Q_A), 0.0), 0)
    rest_b += tl.sum(tl.where(elsewhere, b * power_term(m - top, factor, Q_B), 0.0), 0)
    return rest, rest_a, rest_b


@triton.jit
def focal_from_moments(nll_others, d, t, one, left, log_sum, inverse, top_rest, GAMMA: tl.constexpr, DETACH: tl.constexpr):
    """The sums of f and h of so many classes that ``(1-p)^gamma = 1 - gamma p`` will do for all but the largest::

        sum f = sum nll - gamma sum p nll        sum h = (K-1) - gamma sum p + gamma sum p nll

    What is neglected is at most a few hundredths, by classes with a p near a half; sum f is at least (K-1) log(K-1), and sum h
    about K-1. :func:`noiseproof.kernels.passes.moments_suffice` has the bound.
    """
    p_nll = (log_sum * d - t) * inverse
    p = d * inverse
    f, h, nll = focal_terms(d * 0.0, d * 0.0 + 1.0, log_sum, inverse, top_rest, GAMMA, DETACH)
    f_top, h_top = f - nll * (1.0 - GAMMA * inverse), h - (1.0 - GAMMA * inverse)
    h_sum = left - GAMMA * p
    if not DETACH:
        h_sum += GAMMA * p_nll
        h_top -= GAMMA * inverse * nll
    return nll_others - GAMMA * p_nll + one * f_top, h_sum + one * h_top


@triton.jit
def _focal_step(
    x, e, alive, log_sum, inverse, top_rest, f_sum, h_sum, EDGE: tl.constexpr, USED: tl.constexpr,
    GAMMA: tl.constexpr, DETACH: tl.constexpr, MINIMUM: tl.constexpr, CEILING: tl.constexpr, HIGHEST: tl.constexpr,
):  # fmt: skip
    """The lanes' sums of f and h after more terms; with EDGE only of those that are ``alive``."""
    if USED and MINIMUM > 0 and GAMMA == 0 and not EDGE:
        left = x + (HIGHEST - log_sum)
        counted = (left > 0.0).to(tl.float32)  # one instruction; a -1 would take three
        f_sum += over(counted * left)
        h_sum -= over(counted)
    elif USED:
        f, h = class_terms(x, e, log_sum, inverse, top_rest, GAMMA, DETACH, MINIMUM, CEILING, HIGHEST)
        if EDGE:
            f, h = tl.where(alive, f, 0.0), tl.where(alive, h, 0.0)
        f_sum += over(f)
        h_sum += over(h)
    return f_sum, h_sum


@triton.jit
def focal_block(
    z, start, place, label, classes, masked, top, log_sum, inverse, top_rest, f_a, h_a, f_b, h_b, BLOCK: tl.constexpr,
    FOCAL_A: tl.constexpr, GAMMA_A: tl.constexpr, DETACH_A: tl.constexpr,
    MINIMUM_A: tl.constexpr, CEILING_A: tl.constexpr, HIGHEST_A: tl.constexpr,
    FOCAL_B: tl.constexpr, GAMMA_B: tl.constexpr, DETACH_B: tl.constexpr,
    MINIMUM_B: tl.constexpr, CEILING_B: tl.constexpr, HIGHEST_B: tl.constexpr,
):  # fmt: skip
    """Each lane's sums of the values and of h of two focal sums or focals, after one more block."""
    if masked | ((label >= start) & (label < start + BLOCK)) | (start + BLOCK > classes):
        alive = (z > float("-inf")) & (start + place != label)  # -inf past the end too
        x = tl.where(alive, z - top, 0.0)
        e = exp(x)
        f_a, h_a = _focal_step(
            x, e, alive, log_sum, inverse, top_rest, f_a, h_a, True, FOCAL_A,
            GAMMA_A, DETACH_A, MINIMUM_A, CEILING_A, HIGHEST_A,
        )  # fmt: skip
        f_b, h_b = _focal_step(
            x, e, alive, log_sum, inverse, top_rest, f_b, h_b, True, FOCAL_B,
            GAMMA_B, DETACH_B, MINIMUM_B, CEILING_B, HIGHEST_B,
        )  # fmt: skip
    else:
        x = z - top
        e = exp(x)
        f_a, h_a = _focal_step(
            x, e, e, log_sum, inverse, top_rest, f_a, h_a, False, FOCAL_A,
            GAMMA_A, DETACH_A, MINIMUM_A, CEILING_A, HIGHEST_A,
        )  # fmt: skip
        f_b, h_b = _focal_step(
            x, e, e, log_sum, inverse, top_rest, f_b, h_b, False, FOCAL_B,
            GAMMA_B, DETACH_B, MINIMUM_B, CEILING_B, HIGHEST_B,
        )  # fmt: skip
    return f_a, h_a, f_b, h_b


@triton.jit
def keep(rows_of, which, rows, row, value):
    tl.store(rows_of + which * rows.to(tl.int64) + row, value)


@triton.jit
def keep_row(statistics, saved, rows, row, top, own, e_y, d, log_sum, left, spoilt):
    keep(statistics, 0, rows, row, log_sum - own + spoilt)
    keep(statistics, 1, rows, row, -log1p(e_y / d) + spoilt)
    keep(saved, 0, rows, row, top)
    keep(saved, 1, rows, row, own)
    keep(saved, 2, rows, row, d)
    keep(saved, 3, rows, row, log_sum)
    keep(saved, 4, rows, row, tl.where(own == float("-inf"), -1.0, left))


@triton.jit
def keep_power(
    statistics, saved, rows, row, change, rest_q, one, own, inverse, log_sum, spoilt, WHICH: tl.constexpr, Q: tl.constexpr
):
    """The power sum, and for its gradient the sum of e^q - e, or of e^q where the label is the largest class."""
    if WHICH:
        keep(statistics, WHICH, rows, row, (rest_q + one) * norm_power(inverse, log_sum, Q) + spoilt)
        keep(saved, 3 + WHICH, rows, row, tl.where(own < 0.0, change, rest_q + one))


@triton.jit
def keep_focal(statistics, saved, rows, row, f, h, spoilt, WHICH: tl.constexpr):
    if WHICH:
        keep(statistics, WHICH, rows, row, f + spoilt)
        keep(saved, 3 + WHICH, rows, row, h)
