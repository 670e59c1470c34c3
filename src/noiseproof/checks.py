"""Checks of the numbers that a user passes, with one wording for all errors."""

import math

import numpy as np

__all__ = ["check_integer", "check_range"]

NUMBER, INTEGER = (int, float), (int, np.integer)
"""What counts as a number, besides bool. No unions: torch 2.6's compiler cannot trace them."""


def check_range(
    name: str,
    value: float,
    *,
    above: float = -math.inf,
    at_least: float = -math.inf,
    below: float = math.inf,
    at_most: float = math.inf,
) -> float:
    """``value`` as a float if it lies in the range; a ValueError that says the range if not.

    >>> check_range("q", 1.4, above=0, at_most=1)
    Traceback (most recent call last):
    ValueError: q must be in (0, 1], got 1.4
    """
    if isinstance(value, bool) or not isinstance(value, NUMBER):
        raise TypeError(f"{name} must be a number, got {value!r}")
    number = float(value)
    if math.isfinite(number) and number > above and number >= at_least and number < below and number <= at_most:
        return number
    low = f"[{at_least:g}" if at_least > -math.inf else f"({above:g}"
    high = f"{at_most:g}]" if at_most < math.inf else f"{below:g})"
    raise ValueError(f"{name} must be in {low}, {high}, got {value}")


def check_integer(name: str, value: int | np.integer, *, at_least: float = -math.inf) -> int:
    """``value`` as an int if it is an integer, NumPy's included, of at least that.

    >>> check_integer("padding", -1, at_least=0)
    Traceback (most recent call last):
    ValueError: padding must be at least 0, got -1
    """
    if isinstance(value, bool) or not isinstance(value, INTEGER):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    number = int(value)
    if number < at_least:
        raise ValueError(f"{name} must be at least {at_least}, got {number}")
    return number
