"""What the kernels share: functions that Triton lacks, and one class's term of each sum.

Symbols are those of :mod:`noiseproof.core`: ``x = z - max z``, ``e = exp(x)``, ``d`` the sum of ``e`` over the classes
other than the label, ``D`` over all, ``log_sum = log D``.
"""

from __future__ import annotations

import triton
import triton.language as tl

MIN_FLOAT = tl.constexpr(
    -3.4028234663852886e38
)  # of float32: no logit is below it but -inf, and it can be subtracted from itself
FLOOR = tl.constexpr(1.8e-35)  # exp(-80), the least d: a label's log1m is not below -80, and d can be divided by
LOG2E = tl.constexpr(1.4426950408889634)
MIN_DIVISOR = tl.constexpr(4.0e-36)  # what is divided by is no less: its inverse times a few hundred is finite
SURE_SUM = tl.constexpr(2.5)  # the sum of e relative to the largest class, below which that one has most of it


@triton.jit
def at_least(x, least):
    """The larger of both, and NaN of a NaN, of which a GPU's own maximum would make ``least``."""
    return tl.maximum(x, least, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def exp(x):
    """One multiplication and one instruction, which takes results below 1e-38 as 0; Triton's own spends three more on these."""
    return tl.exp2(x * LOG2E)


@triton.jit
def expm1(x):
    """``exp(x) - 1``, small values exact."""
    series = 1.0 + x * (1.0 / 7.0) * (1.0 + x * (1.0 / 8.0))
    series = 1.0 + x * 0.25 * (1.0 + x * 0.2 * (1.0 + x * (1.0 / 6.0) * series))
    series = x * (1.0 + x * 0.5 * (1.0 + x * (1.0 / 3.0) * series))
    return tl.where(tl.abs(x) < 0.5, series, exp(x) - 1.0)


@triton.jit
def log1p(x):
    """``log(1 + x)``, small values exact: the rounding of 1 + x is divided out again."""
    u = 1.0 + x
    lost = u == 1.0
    return tl.where(lost, x, tl.log(u) * (x / tl.where(lost, 1.0, u - 1.0)))


@triton.jit
def safe_label(target, row, real, classes, stride):
    """Labels that are safe to index with, and which of them are valid."""
    y = tl.load(target + row.to(tl.int64) * stride, mask=real, other=0)
    valid = (y >= 0) & (y < classes)
    return tl.where(valid, y, 0).to(tl.int32), valid


@triton.jit
def power_term(x, e, Q: tl.constexpr):
    """``e^q``; not of ``e`` for q below 1, which makes something of what has underflowed."""
    if Q == 1:
        term = e
    elif Q == 2:
        term = e * e
    elif Q == 3:
        term = e * e * e
    else:
        term = exp(Q * x)
    return term


@triton.jit
def power_change(x, e, below, Q: tl.constexpr):
    """``e^q - e`` for a q other than 2, or ``e^q`` in rows where the label is not ``below`` another class; 0 at -inf.

    From expm1 of what is not positive: nothing is lost where classes tie, and nothing overflows where they are far.
    """
    if Q == 1:
        term = tl.where(below, 0.0, e)
    elif Q > 1:
        log_ratio = (Q - 1.0) * x
        term = e * tl.where(below, expm1(log_ratio), exp(log_ratio))
    else:
        term = power_term(x, e, Q) * tl.where(below, -expm1((1.0 - Q) * x), 1.0)
    return term


@triton.jit
def norm_power(inverse, log_sum, Q: tl.constexpr):
    """``D^-q``"""
    if Q == 1:
        value = inverse
    elif Q == 2:
        value = inverse * inverse
    elif Q == 3:
        value = inverse * inverse * inverse
    else:
        value = exp(-Q * log_sum)
    return value


@triton.jit
def _less_one(comp, GAMMA: tl.constexpr):
    """``comp^(gamma - 1)``"""
    if GAMMA == 0.5:
        value = tl.rsqrt(comp)
    elif GAMMA == 1:
        value = comp * 0.0 + 1.0
    elif GAMMA == 2:
        value = comp
    else:
        value = tl.exp2((GAMMA - 1.0) * tl.log2(comp))
    return value


@triton.jit
def rest_of_largest(above, inverse):
    """1 - p of the largest class, from D - 1 and 1/D.

    ``1 - 1/D`` wherever it has all its digits: D - 1 is not the same number in both passes, and where many classes tie the
    gradient has the difference of each one's slope and their mean.
    """
    return tl.where(above > 1.0, 1.0 - inverse, tl.maximum(above * inverse, MIN_DIVISOR))


@triton.jit
def focal_terms(x, e, log_sum, inverse, top_rest, GAMMA: tl.constexpr, DETACH: tl.constexpr):
    """``f = (1-p)^gamma (-log p)``, its derivative h by -log p, and -log p.

    Only the largest class can have a probability above a half, and a difference 1 - p that loses digits; the row knows its
    ``top_rest``. With ``root = (1-p)^(gamma-1)`` both are products: ``f = (1-p) root nll``, ``h = root ((1-p) + gamma p nll)``.
    """
    nll = log_sum - x
    if GAMMA == 0:
        f = nll
        h = nll * 0.0 + 1.0
    else:
        p = e * inverse
        comp = tl.where(x == 0.0, top_rest, 1.0 - p)
        root = _less_one(comp, GAMMA)
        f = comp * root * nll
        h = comp * root if DETACH else root * (comp + GAMMA * p * nll)
    return f, h, nll


@triton.jit
def class_terms(
    x, e, log_sum, inverse, top_rest, GAMMA: tl.constexpr, DETACH: tl.constexpr,
    MINIMUM: tl.constexpr, CEILING: tl.constexpr, HIGHEST: tl.constexpr,
):  # fmt: skip
    """A class's term of a focal sum, or with a MINIMUM of a clipped one, ``max(C - f, 0)``, and its derivative by -log p: 0
    where that is at its highest, -log of the smallest probability. With gamma = 0 the ceiling C is that too."""
    if MINIMUM > 0 and GAMMA == 0:
        left = x + (HIGHEST - log_sum)
        slope = log_sum * 0.0 - 1.0  # of a plain -1 the compiler makes an integer, and converts it for every class
        f, h = tl.maximum(left, 0.0), tl.where(left > 0.0, slope, 0.0)
    else:
        f, h, nll = focal_terms(x, e, log_sum, inverse, top_rest, GAMMA, DETACH)
        if MINIMUM > 0:
            f, h = tl.maximum(CEILING - f, 0.0), tl.where(nll < HIGHEST, -h, 0.0)
    return f, h


@triton.jit
def focal_grads_from_top(x, h, log_sum, GAMMA: tl.constexpr, DETACH: tl.constexpr):
    """h of the largest class, and how much h of each class differs from it: exact where they nearly tie.

    With a = 1-p and t for the largest class, ``h = a^gamma + gamma p (-log p) a^(gamma-1)`` where ``p = p_t exp(x)``,
    ``-log p = -log p_t - x`` and ``a = a_t - p_t (e - 1)``: each part is its value at t times an exponential.
    """
    near = x > -1.0
    z = tl.where(near, x, 0.0)
    nll = tl.maximum(log_sum, MIN_DIVISOR)
    p_y, comp = exp(-nll), -expm1(-nll)
    root = _less_one(comp, GAMMA)
    log_ratio = log1p(expm1(z) * (-p_y / comp))
    top = comp * root
    difference = top * expm1(GAMMA * log_ratio)
    if not DETACH and GAMMA != 0:
        rest = GAMMA * p_y * nll * root
        difference += rest * expm1(z + log1p(-z / nll) + (GAMMA - 1.0) * log_ratio)
        top += rest
    return top, tl.where(near, difference, h - top)


@triton.jit
def row_factors(by_nll, by_log1m, own, d):
    """What the gradient of every loss starts with: 1/D, p_y, the factor of e, and dz_y."""
    e_y = exp(own)
    inverse = 1.0 / (d + e_y)
    p_y = e_y * inverse
    by_nll, by_log1m = by_nll * inverse, by_log1m * p_y
    return inverse, p_y, by_nll + by_log1m / d, -(by_log1m + by_nll * d)
