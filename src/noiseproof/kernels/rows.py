"""The two passes on a GPU: which kernel runs, with how many rows or classes to a program."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from noiseproof.kernels.launch import blocks, launch, power_of_two
from noiseproof.kernels.line import line_forward
from noiseproof.kernels.stream import stream_forward
from noiseproof.kernels.stream_back import stream_backward
from noiseproof.kernels.tile import tile_backward, tile_forward
from noiseproof.primitives import Primitive, ceiling, reference

__all__ = ["backward", "forward", "slots_of", "suits"]

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
FEW = 64  # classes up to which differences are formed from e - 1, as in the reference
TILE = 1024  # classes of a row that is kept in registers, by one warp: sums across warps would wait for each other
LINES = 4  # rows of such a size to a program, one after the other
ACROSS = 16  # bytes that a thread reads at a time


class Shape(NamedTuple):
    """How a long row is gone along: ACROSS bytes for each thread of so many warps, ``depth`` times at once; that ``times``."""

    warps: int
    depth: int
    times: int = 1
    """Of the gradient only, which has several programs for a row"""


LONGER = 16384  # classes from which on a row is worth several warps
SHORT, LONG = Shape(warps=1, depth=2), Shape(warps=4, depth=2)
BACK = Shape(warps=4, depth=2, times=4)
NEGLECTED = 2e-6  # of a sum of slopes, where it is made of moments


def suits(logits: Tensor, asked: Sequence[Primitive]) -> bool:
    """Whether the kernels serve: up to two power sums and two focal or room sums, and no float64."""
    return logits.dtype in DTYPES and _slots(tuple(asked)) is not None


@lru_cache(maxsize=256)
def _slots(asked: tuple[Primitive, ...]) -> dict[str, Any] | None:
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


slots_of = _slots


def _unit(*sizes: int) -> int:
    """The largest power of two, at most 8, that divides them all."""
    return math.gcd(8, *sizes)


def _tile_of(classes: int) -> dict[str, int]:
    columns = max(2, power_of_two(classes))
    return {"ROWS": max(1, 512 // columns), "COLUMNS": columns, "num_warps": 4 if columns <= FEW else 1}


@lru_cache(maxsize=256)
def _moments_suffice(primitive: Primitive, classes: int) -> bool:
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


def forward(logits: Tensor, target: Tensor, asked: Sequence[Primitive], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """As :class:`noiseproof.primitives.Backend` has it."""
    slots = _slots(tuple(asked))
    if slots is None or logits.dtype not in DTYPES:
        return reference.forward(logits, target, asked, dtype)
    logits = _rows_apart(logits)
    rows, classes = logits.shape
    primitives = logits.new_empty((2 + len(asked), rows), dtype=dtype)
    saved = logits.new_empty((5 + len(asked), rows), dtype=dtype)
    if rows == 0:
        return primitives, saved
    unit = _unit(classes, logits.stride(0))
    given: Any = (logits, target, primitives, saved), (rows, classes // unit, logits.stride(0) // unit, target.stride(0))
    if FEW < classes <= TILE and not slots["FOCAL_A"]:
        sizes = {"ROWS": LINES, "PARTS": power_of_two(classes // unit), "num_warps": 1}
        launch(line_forward, blocks(rows, LINES), *given, UNIT=unit, **slots, **sizes)
    elif classes <= TILE:
        sizes = _tile_of(classes)
        launch(tile_forward, blocks(rows, sizes["ROWS"]), *given, UNIT=unit, **slots, **sizes)
    else:
        moment = slots["FOCAL_A"] > 0 and all(_moments_suffice(p, classes) for p in asked if p.kind in ("focal", "room"))
        shape = SHORT if classes <= LONGER else LONG
        lanes, across = shape.warps * 32, ACROSS // logits.element_size()
        steps = power_of_two(blocks(classes, lanes * across))
        sizes = {"LANES": lanes, "ACROSS": across, "DEPTH": shape.depth, "STEPS": steps, "num_warps": shape.warps}
        launch(stream_forward, rows, *given, UNIT=unit, MOMENT=moment, **slots, **sizes)
    return primitives, saved


def backward(
    grads: Tensor,
    logits: Tensor,
    target: Tensor,
    primitives: Tensor,
    saved: Tensor,
    asked: Sequence[Primitive],
    out: Tensor | None = None,
) -> Tensor:
    """As :class:`noiseproof.primitives.Backend` has it; ``out`` may be the logits themselves."""
    slots = _slots(tuple(asked))
    if slots is None or logits.dtype not in DTYPES:
        return reference.backward(grads, logits, target, primitives, saved, asked, out)
    z = _rows_apart(logits)
    gradient = torch.empty_like(z, memory_format=torch.contiguous_format) if out is None else out
    if gradient.shape != z.shape or gradient.stride(1) != 1:
        raise ValueError(f"the gradient's rows must be {tuple(z.shape)} without gaps, got {tuple(gradient.shape)}")
    rows, classes = z.shape
    if rows == 0:
        return gradient
    unit = _unit(classes, z.stride(0), gradient.stride(0))
    tensors = (grads, z, target, primitives.contiguous(), saved.contiguous(), gradient)
    strides = (z.stride(0) // unit, target.stride(0), grads.stride(0), grads.stride(1), gradient.stride(0) // unit)
    given: Any = tensors, (rows, classes // unit, *strides)
    if classes <= FEW:
        sizes: dict[str, int] = _tile_of(classes)
        launch(tile_backward, blocks(rows, sizes["ROWS"]), *given, UNIT=unit, EXACT=classes > 2, **slots, **sizes)
    else:
        width = min(BACK.depth * BACK.warps * 32 * ACROSS // logits.element_size(), power_of_two(classes))
        times = min(BACK.times, blocks(classes, width))
        sizes = {"WIDTH": width, "TIMES": times, "num_warps": BACK.warps if width > TILE else 1}
        grid = rows * blocks(classes, width * times)
        launch(stream_backward, grid, *given, UNIT=unit, **slots, **sizes)
    return gradient


def _rows_apart(logits: Tensor) -> Tensor:
    """Rows at any distance, each without gaps."""
    return logits if logits.stride(1) == 1 or logits.shape[1] == 1 else logits.contiguous()
