"""Checks of the numbers that a user passes, with one wording for all errors."""

import math

import numpy as np

__all__ = ["check_integer", "check_range"]

NUMBER_TYPES, INTEGER_TYPES = (int, float), (int, np.integer)
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
    """Return a number as a float if it lies in a range.

    Args:
        name: How the error calls the number.
        value: The number.
        above: It must be greater than this.
        at_least: It must be at least this.
        below: It must be less than this.
        at_most: It must be at most this.

    Returns:
        The number as a float.

    Raises:
        TypeError: If it is no number.
        ValueError: If it is outside of the range or not finite.

    >>> check_range("q", 1.4, above=0, at_most=1)
    Traceback (most recent call last):
    ValueError: q must be in (0, 1], got 1.4
    """
    if isinstance(value, bool) or not isinstance(value, NUMBER_TYPES):
        raise TypeError(f"{name} must be a number, got {value!r}")
    number = float(value)
    if math.isfinite(number) and number > above and number >= at_least and number < below and number <= at_most:
        return number
    low = f"[{at_least:g}" if at_least > -math.inf else f"({above:g}"
    high = f"{at_most:g}]" if at_most < math.inf else f"{below:g})"
    raise ValueError(f"{name} must be in {low}, {high}, got {value}")


def check_integer(name: str, value: int | np.integer, *, at_least: float = -math.inf) -> int:
    """Return an integer, NumPy's included, as an int.

    Args:
        name: How the error calls the integer.
        value: The integer.
        at_least: It must be at least this.

    Returns:
        The integer as an int.

    Raises:
        TypeError: If it is no integer.
        ValueError: If it is less than ``at_least``.

    >>> check_integer("padding", -1, at_least=0)
    Traceback (most recent call last):
    ValueError: padding must be at least 0, got -1
    """
    if isinstance(value, bool) or not isinstance(value, INTEGER_TYPES):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    number = int(value)
    if number < at_least:
        raise ValueError(f"{name} must be at least {at_least}, got {number}")
    return number
