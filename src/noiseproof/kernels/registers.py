"""What is computed of rows that are in registers: their sums, and their gradient. Kernels read and write.

``z`` is ``[ROWS, COLUMNS]``, -inf past the last class; what there is one of for a row is ``[ROWS]``. Capitals say what is asked
for: NLL, POWER_A, POWER_B, FOCAL_A and FOCAL_B are rows of ``primitives``, or 0. MINIMUM is 0 for a focal sum; else it is the
room below CEILING, reached at a -log p of HIGHEST.
"""

from __future__ import annotations

import triton
import triton.language as tl

from noiseproof.kernels.terms import (
    FLOOR,
    LOWEST,
    TINY,
    at_least,
    class_terms,
    exp,
    expm1,
    focal_slopes_from_top,
    log1p,
    miss_of_largest,
    norm_power,
    power_change,
    power_term,
    row_factors,
)

__all__ = ["row_gradient", "row_sums"]


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
    x, e, alive, log_sum, inverse, top_miss,
    GAMMA: tl.constexpr, DETACH: tl.constexpr, MINIMUM: tl.constexpr, CEILING: tl.constexpr, HIGHEST: tl.constexpr,
):  # fmt: skip
    """The focal or room sum, and that of its slopes."""
    f, h = class_terms(
        x, e, log_sum[:, None], inverse[:, None], top_miss[:, None], GAMMA, DETACH, MINIMUM, CEILING, HIGHEST
    )  # fmt: skip
    value = tl.maximum(tl.sum(tl.where(alive, f, 0.0), 1), TINY)  # or a share of it would be 0/0 where one class is left
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
    """Max z, z_y - max z, d, log D, the number of other classes (-1: the label is masked); nll, log_miss, nll_others, lead; and
    of each sum its value and what its gradient needs of it. 0 for what is not asked for."""
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
    focal_a, slopes_a, focal_b, slopes_b = power_a, power_a, power_a, power_a
    if POWER_A:
        power_a, rest_a = _power_sum(x, e_less, tops, rest, own, inverse, log_sum, Q_A)
    if POWER_B:
        power_b, rest_b = _power_sum(x, e_less, tops, rest, own, inverse, log_sum, Q_B)
    top_miss = miss_of_largest(above, inverse)
    if FOCAL_A:
        focal_a, slopes_a = _focal_sum(
            x, e, alive, log_sum, inverse, top_miss, GAMMA_A, DETACH_A, MINIMUM_A, CEILING_A, HIGHEST_A
        )  # fmt: skip
    if FOCAL_B:
        focal_b, slopes_b = _focal_sum(
            x, e, alive, log_sum, inverse, top_miss, GAMMA_B, DETACH_B, MINIMUM_B, CEILING_B, HIGHEST_B
        )  # fmt: skip
    left = tl.where(own == float("-inf"), -1.0, left)
    return (
        top, own, d, log_sum, left, log_sum - own, -log1p(e_y / d), others, z_y - largest,
        power_a, rest_a, power_b, rest_b, focal_a, slopes_a, focal_b, slopes_b,
    )  # fmt: skip


@triton.jit
def _add_power(
    power, factor, x, e, e_less_1, alive, own, hit, inverse, log_sum, slope, dz_y, extra,
    Q: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """G/D = (e_y - sum of these terms) / D; where the label is the largest class the sum is that of e^q, without e_y."""
    factor = Q * factor
    dz_y -= factor * power * hit
    factor *= norm_power(inverse, log_sum, Q)
    below = own < 0.0
    if EXACT and Q == 2:
        term = e * tl.where(below[:, None], e_less_1, e)
    elif Q == 2:
        term = power_term(x, e, Q) - tl.where(below[:, None], e, 0.0)
    else:
        term = power_change(x, e, below[:, None], Q)
    term = tl.where(alive, term, 0.0)
    slope += factor * (tl.where(below, hit, 0.0) - tl.sum(term, 1) * inverse)
    return slope, dz_y, extra + factor[:, None] * term


@triton.jit
def _add_focal(
    factor, x, e, alive, left, hit, inverse, log_sum, top_miss, slope, dz_y, uniform, extra, EXACT: tl.constexpr,
    GAMMA: tl.constexpr, DETACH: tl.constexpr, MINIMUM: tl.constexpr, CEILING: tl.constexpr, HIGHEST: tl.constexpr,
):  # fmt: skip
    _, h = class_terms(
        x, e, log_sum[:, None], inverse[:, None], top_miss[:, None], GAMMA, DETACH, MINIMUM, CEILING, HIGHEST
    )  # fmt: skip
    if EXACT and MINIMUM == 0:
        # What all classes have of h acts as nll_others does.
        h_top, h = focal_slopes_from_top(x, h, log_sum[:, None], GAMMA, DETACH)
        common = factor * tl.max(h_top, 1)
        uniform += common
        dz_y += common * hit * left
    h = tl.where(alive, h, 0.0)
    total = factor * tl.sum(h, 1)
    return slope + total * inverse, dz_y + total * hit, uniform, extra - factor[:, None] * h


@triton.jit
def row_gradient(
    z, is_label, top, own, d, log_sum, left, by_nll, by_log_miss, by_others, by_power_a, by_power_b, by_focal_a, by_focal_b,
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
    inverse, hit, slope, dz_y = row_factors(by_nll, by_log_miss, own, d)
    top_miss = miss_of_largest(expm1(log_sum), inverse)
    uniform, extra = tl.zeros_like(slope), tl.zeros_like(e)
    e_less_1 = tl.where(alive, expm1(x), 0.0) if EXACT else e
    if NLL:
        uniform += by_others
        dz_y += uniform * left * hit
    if POWER_A:
        slope, dz_y, extra = _add_power(
            power_a, by_power_a, x, e, e_less_1, alive, own, hit, inverse, log_sum, slope, dz_y, extra, Q_A, EXACT
        )  # fmt: skip
    if POWER_B:
        slope, dz_y, extra = _add_power(
            power_b, by_power_b, x, e, e_less_1, alive, own, hit, inverse, log_sum, slope, dz_y, extra, Q_B, EXACT
        )  # fmt: skip
    if FOCAL_A:
        slope, dz_y, uniform, extra = _add_focal(
            by_focal_a, x, e, alive, left, hit, inverse, log_sum, top_miss, slope, dz_y, uniform, extra, EXACT,
            GAMMA_A, DETACH_A, MINIMUM_A, CEILING_A, HIGHEST_A,
        )  # fmt: skip
    if FOCAL_B:
        slope, dz_y, uniform, extra = _add_focal(
            by_focal_b, x, e, alive, left, hit, inverse, log_sum, top_miss, slope, dz_y, uniform, extra, EXACT,
            GAMMA_B, DETACH_B, MINIMUM_B, CEILING_B, HIGHEST_B,
        )  # fmt: skip
    if EXACT:
        extra += e_less_1 * (left * uniform * inverse)[:, None]
        uniform *= hit + tl.sum(e_less_1, 1) * inverse
    else:
        slope += uniform * left * inverse
    out = extra + e * slope[:, None] - uniform[:, None]
    if COLUMNS == 2:  # the differences would cancel here, and dz_y is made of products
        out = tl.zeros_like(e) - dz_y[:, None]
    return tl.where(is_label, dz_y[:, None], tl.where(alive, out, 0.0))
