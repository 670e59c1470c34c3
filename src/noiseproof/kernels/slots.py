"""What is asked of the kernels, as their constants."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

from noiseproof.core import Primitive, ceiling

__all__ = ["moments_suffice", "slots_of"]

NEGLECTED = 2e-6  # of a sum of slopes, where it is made of moments


@lru_cache(maxsize=256)
def slots_of(asked: tuple[Primitive, ...]) -> dict[str, Any] | None:
    """The kernels' constants for a request; None if it is for more sums than they have a place for."""
    powers: list[tuple[int, Primitive]] = []
    focals: list[tuple[int, Primitive]] = []
    slots: dict[str, Any] = {"NLL": 0, "LEAD": 0}
    for row, primitive in enumerate(asked, start=2):
        if primitive.kind in ("nll", "lead"):
            slots[primitive.kind.upper()] = row
        else:
            (powers if primitive.kind == "power" else focals).append((row, primitive))
    if len(powers) > 2 or len(focals) > 2 or len(set(asked)) < len(asked):
        return None
    nothing = (0, Primitive("power", 2.0))
    for slot, (row, primitive) in zip("AB", [*powers, nothing, nothing], strict=False):
        slots |= {f"POWER_{slot}": row, f"Q_{slot}": primitive.exponent}
    for slot, (row, primitive) in zip("AB", [*focals, nothing, nothing], strict=False):
        room = primitive.kind == "room"
        slots |= {f"FOCAL_{slot}": row, f"GAMMA_{slot}": primitive.exponent, f"DETACH_{slot}": primitive.detach}
        slots |= {f"MINIMUM_{slot}": primitive.minimum, f"CEILING_{slot}": ceiling(primitive) if room else 0.0}
        slots |= {f"HIGHEST_{slot}": -math.log(primitive.minimum) if room else 0.0}
    return slots


@lru_cache(maxsize=256)
def _suffice(primitive: Primitive, classes: int) -> bool:
    """Whether ``(1-p)^gamma = 1 - gamma p`` will do for every class but the largest in the sums of f and h.

    With t the largest, the others have p <= p_t and together 1 - p_t, so that a sum of what is neglected, r(p), is at most
    ``(1 - p_t) max r(p)/p``; the sums are (K-1) log(K-1) or more, and about K.
    """
    kind, gamma, _, detach = primitive
    if kind != "focal":
        return False
    worst = bound = 0.0
    for percent in range(1, 51):  # beyond a half there is only the largest
        p, miss, nll = percent / 100, 1.0 - percent / 100, -math.log(percent / 100)
        f = (miss**gamma - 1.0 + gamma * p) * nll
        h = miss**gamma - 1.0 + gamma * p + (0.0 if detach else gamma * p * nll * (miss ** (gamma - 1.0) - 1.0))
        worst = max(worst, abs(f) / p, abs(h) / p)
        bound = max(bound, worst * miss)
    return bound <= NEGLECTED * classes


def moments_suffice(asked: tuple[Primitive, ...], classes: int) -> bool:
    """Whether moments will do for all focal sums, and there is one."""
    focals = [primitive for primitive in asked if primitive.kind in ("focal", "room")]
    return bool(focals) and all(_suffice(primitive, classes) for primitive in focals)
