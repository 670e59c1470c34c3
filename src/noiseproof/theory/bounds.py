"""The least ``a`` with which AMSE, and with it the JAL losses, tolerate a noise.

With ``w1`` the weight of the clean label and ``w2`` the largest other one, AMSE of the power q > 1 is asymmetric if and only if
``w1 (a - 1)^(q-1) >= w2 a^(q-1) + (1 - w1)``: its risk is convex, and this is the condition of Karush, Kuhn and Tucker at the
clean vertex. The left side less the right is negative at a = 1, and crosses zero once; for q = 2 at ``1 / (w1 - w2)``. For
q <= 1 the risk is concave, and every a >= 1 will do where w1 > w2.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from noiseproof.checks import check_range
from noiseproof.theory.weights import ROUNDING, Noise, label_weights, two_largest

__all__ = ["required_a", "required_a_per_class"]

SHOWN = 10  # classes that an error names


def required_a(noise: Noise, q: float = 2.0, *, classes: int | None = None) -> float:
    """The least ``a`` that will do for every class; a ValueError names the classes for which none will.

    >>> round(required_a("symmetric:0.8", classes=10), 3), round(required_a(0.8, q=3, classes=10), 3)
    (9.0, 4.739)
    """
    each = required_a_per_class(noise, q, classes=classes)
    none = np.flatnonzero(np.isinf(each))
    if len(none):
        named = ", ".join(map(str, none[:SHOWN])) + (f" and {len(none) - SHOWN} more" if len(none) > SHOWN else "")
        where = f"class{'es' if len(none) > 1 else ''} {named}"
        raise ValueError(
            f"no a is large enough for {where} of {len(each)}: another label is given there as often as the clean one"
        )
    return float(each.max())


def required_a_per_class(noise: Noise, q: float = 2.0, *, classes: int | None = None) -> NDArray[np.float64]:
    """The least ``a`` of each class; infinite where another label is given as often as the clean one.

    >>> required_a_per_class([[0.8, 0.2], [0.5, 0.5]])
    array([1.66666667,        inf])
    """
    q = check_range("q", q, above=0)
    own, other, _ = two_largest(label_weights(noise, classes))
    return np.array([_least(w1, w2, q) for w1, w2 in zip(own.tolist(), other.tolist(), strict=True)])


def _least(w1: float, w2: float, q: float) -> float:
    if w1 - w2 <= ROUNDING:
        return math.inf
    if q <= 1 or w1 == 1:
        return 1.0
    if q == 2:
        return 1 / (w1 - w2)

    def surplus(a: float) -> float:
        """Over ``a^(q-1)``, which would overflow for a large q."""
        return w1 * math.pow(1 - 1 / a, q - 1) - w2 - (1 - w1) * math.pow(a, 1 - q)

    low, high = 1.0, 2.0
    while surplus(high) < 0:
        low, high = high, 2 * high
        if math.isinf(high):
            return math.inf
    while True:
        middle = low + (high - low) / 2
        if middle in (low, high):
            return high
        low, high = (low, middle) if surplus(middle) >= 0 else (middle, high)
