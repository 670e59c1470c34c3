"""What a user hands in, checked: options at construction, tensors at the call; one wording for all errors."""

from __future__ import annotations

import math

import torch
from torch import Tensor

__all__ = ["check_integer", "check_range", "check_tensors", "check_weight"]

NUMBER = (int, float)
"""What counts as a number, besides bool. No union: torch 2.6's compiler does not know those."""


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


def check_integer(name: str, value: int, *, at_least: int) -> int:
    """``value`` if it is an integer of at least that; an error that says so if not."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    if value < at_least:
        raise ValueError(f"{name} must be at least {at_least}, got {value}")
    return value


def check_tensors(logits: Tensor, target: Tensor) -> None:
    for name, value in (("logits", logits), ("target", target)):
        if not isinstance(value, Tensor):
            raise TypeError(f"{name} must be a tensor, got {type(value).__name__}")
    if not logits.is_floating_point():
        raise TypeError(f"logits must have a floating dtype, got {logits.dtype}")
    if target.dtype == torch.bool or target.is_complex():
        raise TypeError(f"target must hold class indices or class probabilities, got {target.dtype}")
    if logits.dim() == 0:
        raise ValueError("logits must have shape [K], [N, K] or [N, K, d1, ...], got a scalar")


def check_weight(weight: Tensor | None) -> Tensor | None:
    if weight is None:
        return None
    if not isinstance(weight, Tensor) or not weight.is_floating_point():
        raise TypeError(f"weight must be a floating tensor, got {getattr(weight, 'dtype', type(weight).__name__)}")
    if weight.dim() != 1:
        raise ValueError(f"weight must have shape [K], got {tuple(weight.shape)}")
    # Looking at values elsewhere would stall the device at every call of a function that builds its loss anew.
    if weight.device.type == "cpu" and not bool(((weight >= 0) & torch.isfinite(weight)).all()):
        raise ValueError("weight must be finite and not negative")
    return weight
