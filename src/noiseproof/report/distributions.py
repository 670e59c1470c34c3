"""Student's t and the chi-square distribution. SciPy has them, but takes half a second to import and is not required."""

from __future__ import annotations

import math
from statistics import NormalDist

__all__ = ["chi2_tail", "digamma", "inverse_trigamma", "normal_score", "t_quantile", "t_tails", "trigamma"]

TINY = 1e-300
PRECISION = 1e-15


def t_tails(t: float, df: float) -> float:
    """P(|T| >= |t|).

    >>> round(t_tails(1.0, 1.0), 12)  # Cauchy: half of it is within 1
    0.5
    """
    if t == 0:
        return 1.0
    return _incomplete_beta(df / 2, 0.5, df / (df + t * t), t * t / (df + t * t))


def t_quantile(tails: float, df: float) -> float:
    """The t with ``P(|T| >= t) = tails``.

    >>> round(t_quantile(0.05, 4), 3)
    2.776
    """
    # Newton's method on log P against log t, which is concave and nearly straight in the tail, from the normal quantile.
    x, log_scale = math.log(normal_score(tails)), math.lgamma((df + 1) / 2) - math.lgamma(df / 2) - 0.5 * math.log(df * math.pi)
    for _ in range(100):
        t = math.exp(x)
        here = t_tails(t, df)
        slope = -2 * t * math.exp(log_scale - (df + 1) / 2 * math.log1p(t * t / df)) / here
        step = (math.log(tails) - math.log(here)) / slope
        x += step
        if abs(step) < 1e-12:
            break
    return math.exp(x)


def chi2_tail(x: float, df: float) -> float:
    """P(X >= x).

    >>> round(chi2_tail(2.0, 2.0), 12) == round(math.exp(-1), 12)
    True
    """
    a, x = df / 2, x / 2
    if x <= 0:
        return 1.0
    scale = math.exp(a * math.log(x) - x - math.lgamma(a))
    if x < a + 1:  # the series of the lower part
        term = total = 1 / a
        n = a
        while abs(term) > PRECISION * abs(total):
            n += 1
            term *= x / n
            total += term
        return 1 - scale * total
    b, c = x + 1 - a, 1 / TINY  # Lentz's continued fraction of the upper part
    d = 1 / b
    result = d
    for i in range(1, 10_000):
        b += 2
        d = 1 / _not_zero(b - i * (i - a) * d)
        c = _not_zero(b - i * (i - a) / c)
        result *= c * d
        if abs(c * d - 1) < PRECISION:
            break
    return scale * result


def normal_score(tails: float) -> float:
    """The size of a normal deviate whose two tails hold this much.

    >>> round(normal_score(0.05), 2)
    1.96
    """
    return abs(NormalDist().inv_cdf(max(tails, TINY) / 2))


def digamma(x: float) -> float:
    """The slope of log gamma.

    >>> round(digamma(1.0), 6)  # minus Euler's constant
    -0.577216
    """
    below = 0.0
    while x < 10:
        below -= 1 / x
        x += 1
    y = 1 / (x * x)
    return below + math.log(x) - 0.5 / x - y * (1 / 12 - y * (1 / 120 - y * (1 / 252 - y * (1 / 240 - y / 132))))


def trigamma(x: float) -> float:
    """The slope of :func:`digamma`.

    >>> round(trigamma(1.0), 12) == round(math.pi**2 / 6, 12)
    True
    """
    below = 0.0
    while x < 10:
        below += 1 / (x * x)
        x += 1
    y = 1 / (x * x)
    return below + 1 / x + y / 2 + y / x * (1 / 6 - y * (1 / 30 - y * (1 / 42 - y * (1 / 30 - y * 5 / 66))))


def inverse_trigamma(value: float) -> float:
    """The x with this trigamma; at most 1e6, which it is for values down to 0 and below."""
    low, high = math.log(1e-3), math.log(1e6)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if trigamma(math.exp(middle)) > value else (low, middle)
    return math.exp(high)


def _incomplete_beta(a: float, b: float, x: float, upper: float) -> float:
    """I_x(a, b), with ``upper`` = 1 - x, by Lentz's continued fraction on the side where it converges fast."""
    if x <= 0 or upper <= 0:
        return 0.0 if x <= 0 else 1.0
    front = math.exp(a * math.log(x) + b * math.log(upper) - (math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)))
    if x < (a + 1) / (a + b + 2):
        return front * _beta_fraction(a, b, x) / a
    return 1 - front * _beta_fraction(b, a, upper) / b


def _beta_fraction(a: float, b: float, x: float) -> float:
    c, d = 1.0, 1 / _not_zero(1 - (a + b) * x / (a + 1))
    result = d
    for m in range(1, 10_000):
        for factor in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / _not_zero(1 + factor * d)
            c = _not_zero(1 + factor / c)
            result *= c * d
        if abs(c * d - 1) < PRECISION:
            break
    return result


def _not_zero(value: float) -> float:
    return value if abs(value) > TINY else TINY
