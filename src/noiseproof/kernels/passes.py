"""The two passes on a GPU: which kernel runs, with how many rows or classes to a program, and with which constants."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from noiseproof.core import reference
from noiseproof.core.row_sums import RowSum, ceiling
from noiseproof.kernels.launch import blocks, launch, power_of_two
from noiseproof.kernels.line import line_forward
from noiseproof.kernels.stream import stream_backward, stream_forward
from noiseproof.kernels.tile import tile_backward, tile_forward

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
EXACT_CLASSES = 64  # classes up to which differences are formed from e - 1, as in the reference
TILE = 1024  # classes of a row that is kept in registers, by one warp: sums across warps would wait for each other
LINE_ROWS = 4  # rows of such a size to a program, one after the other
MAX_ROWS = 2**30  # which are fewer: they are numbered in 32 bits, past the last one too
MAX_NEGLECTED = 2e-6  # of a sum of gradients, where it is made of moments
ACROSS = 16  # bytes that a thread reads at a time
ONE_WARP_CLASSES = 1024  # classes up to which the gradient of a row is one warp's


class StreamShape(NamedTuple):
    """How a long row is gone along: ACROSS bytes for each thread of so many warps, ``depth`` times at once; that ``times``."""

    warps: int
    depth: int
    times: int = 1
    """Of the gradient only, which has several programs for a row"""


MIN_LONG_CLASSES = 16384  # classes from which on a row is worth several warps
SHORT_ROWS, LONG_ROWS = StreamShape(warps=1, depth=2), StreamShape(warps=4, depth=2)
REREAD_ROWS = StreamShape(
    warps=8, depth=2
)  # a row that is read again for plain focals: fewer at a time, more of them still in the cache
BACKWARD_ROWS = StreamShape(warps=4, depth=2, times=4)


def suits(logits: Tensor, needs: Sequence[RowSum]) -> bool:
    """Whether the kernels serve: up to two power sums and two focal or clipped sums, no float64, and not a billion rows."""
    return _constants(logits, needs) is not None


def _constants(logits: Tensor, needs: Sequence[RowSum]) -> dict[str, Any] | None:
    """What the kernels are compiled for; None: they do not serve."""
    return slots_of(tuple(needs)) if logits.dtype in DTYPES and logits.shape[0] < MAX_ROWS else None


def _unit(*sizes: int) -> int:
    """The largest power of two, at most 8, that divides them all."""
    return math.gcd(8, *sizes)


def _tile_of(classes: int) -> dict[str, int]:
    columns = max(2, power_of_two(classes))
    return {"ROWS": max(1, 512 // columns), "COLUMNS": columns, "num_warps": 4 if columns <= EXACT_CLASSES else 1}


def forward(logits: Tensor, target: Tensor, needs: Sequence[RowSum], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """As :class:`noiseproof.core.Backend` has it."""
    slots = _constants(logits, needs)
    if slots is None:
        return reference.forward(logits, target, needs, dtype)
    logits = _rows_apart(logits)
    rows, classes = logits.shape
    statistics = logits.new_empty((2 + len(needs), rows), dtype=dtype)
    saved = logits.new_empty((5 + len(needs), rows), dtype=dtype)
    if rows == 0:
        return statistics, saved
    unit = _unit(classes, logits.stride(0))
    given: Any = (logits, target, statistics, saved), (rows, classes // unit, logits.stride(0) // unit, target.stride(0))
    if classes > TILE:
        first_pass(logits, target, statistics, saved, slots, unit, moments_suffice(tuple(needs), classes))
    elif classes > EXACT_CLASSES and not (slots["FOCAL_B"] and slots["POWER_A"]):  # more sums than registers
        sizes = {"ROWS": LINE_ROWS, "PARTS": power_of_two(classes // unit), "num_warps": 1}
        launch(line_forward, blocks(rows, LINE_ROWS), *given, UNIT=unit, **slots, **sizes)
    else:
        sizes = _tile_of(classes)
        launch(tile_forward, blocks(rows, sizes["ROWS"]), *given, UNIT=unit, **slots, **sizes)
    return statistics, saved


def backward(
    grads: Tensor,
    logits: Tensor,
    target: Tensor,
    statistics: Tensor,
    saved: Tensor,
    needs: Sequence[RowSum],
    out: Tensor | None = None,
) -> Tensor:
    """As :class:`noiseproof.core.Backend` has it; ``out`` may be the logits themselves."""
    slots = _constants(logits, needs)
    if slots is None:
        return reference.backward(grads, logits, target, statistics, saved, needs, out)
    z = _rows_apart(logits)
    if out is not None and out.stride(1) != 1:  # as of one image's logits, whose classes lie apart
        return out.copy_(backward(grads, z, target, statistics, saved, needs))
    gradient = torch.empty_like(z, memory_format=torch.contiguous_format) if out is None else out
    if gradient.shape != z.shape:
        raise ValueError(f"the gradient's rows must be {tuple(z.shape)}, got {tuple(gradient.shape)}")
    rows, classes = z.shape
    if rows == 0:
        return gradient
    unit = _unit(classes, z.stride(0), gradient.stride(0))
    statistics, saved = statistics.contiguous(), saved.contiguous()
    if classes > EXACT_CLASSES:
        second_pass(grads, z, target, statistics, saved, gradient, slots, unit)
        return gradient
    sizes, tensors = _tile_of(classes), (grads, z, target, statistics, saved, gradient)
    strides = (z.stride(0) // unit, target.stride(0), grads.stride(0), grads.stride(1), gradient.stride(0) // unit)
    given = {"UNIT": unit, "EXACT": classes > 2, **slots, **sizes}
    launch(tile_backward, blocks(rows, sizes["ROWS"]), tensors, (rows, classes // unit, *strides), **given)
    return gradient


def _rows_apart(logits: Tensor) -> Tensor:
    """Rows at any distance, each without gaps."""
    return logits if logits.stride(1) == 1 or logits.shape[1] == 1 else logits.contiguous()


def _shape_for(classes: int, slots: dict[str, Any]) -> StreamShape:
    """Of the first pass. With a gamma there is so much to do for each class that fewer warps at a time would not be enough."""
    gammas = [slots[f"GAMMA_{slot}"] for slot in "AB" if slots[f"FOCAL_{slot}"]]
    if classes <= MIN_LONG_CLASSES:
        return SHORT_ROWS
    return REREAD_ROWS if gammas and not any(gammas) else LONG_ROWS


def first_pass(
    logits: Tensor,
    target: Tensor,
    statistics: Tensor,
    saved: Tensor,
    slots: dict[str, Any],
    unit: int,
    moment: bool,
) -> None:
    """Fill statistics and saved."""
    rows, classes = logits.shape
    shape = _shape_for(classes, slots)
    lanes, across = shape.warps * 32, ACROSS // logits.element_size()
    sizes = {"LANES": lanes, "ACROSS": across, "DEPTH": shape.depth, "STEPS": power_of_two(blocks(classes, lanes * across))}
    tensors = (logits, target, statistics, saved)
    numbers = (rows, classes // unit, logits.stride(0) // unit, target.stride(0))
    launch(stream_forward, rows, tensors, numbers, UNIT=unit, MOMENT=moment, **slots, **sizes, num_warps=shape.warps)


def second_pass(
    grads: Tensor,
    logits: Tensor,
    target: Tensor,
    statistics: Tensor,
    saved: Tensor,
    gradient: Tensor,
    slots: dict[str, Any],
    unit: int,
) -> None:
    """Fill the gradient."""
    rows, classes = logits.shape
    width = min(BACKWARD_ROWS.depth * BACKWARD_ROWS.warps * 32 * ACROSS // logits.element_size(), power_of_two(classes))
    times = min(BACKWARD_ROWS.times, blocks(classes, width))
    sizes = {"WIDTH": width, "TIMES": times, "num_warps": BACKWARD_ROWS.warps if width > ONE_WARP_CLASSES else 1}
    strides = (logits.stride(0) // unit, target.stride(0), grads.stride(0), grads.stride(1), gradient.stride(0) // unit)
    tensors = (grads, logits, target, statistics, saved, gradient)
    given = {"UNIT": unit, **slots, **sizes}
    launch(stream_backward, rows * blocks(classes, width * times), tensors, (rows, classes // unit, *strides), **given)


@lru_cache(maxsize=256)
def slots_of(needs: tuple[RowSum, ...]) -> dict[str, Any] | None:
    """The kernels' constants for these row sums; None if it is for more sums than they have a place for."""
    powers: list[tuple[int, RowSum]] = []
    focals: list[tuple[int, RowSum]] = []
    slots: dict[str, Any] = {"NLL": 0, "MARGIN": 0}
    for row, row_sum in enumerate(needs, start=2):
        if row_sum.kind in ("nll", "margin"):
            slots[row_sum.kind.upper()] = row
        else:
            (powers if row_sum.kind == "power" else focals).append((row, row_sum))
    if len(powers) > 2 or len(focals) > 2 or len(set(needs)) < len(needs):
        return None
    nothing = (0, RowSum("power", 2.0))
    for slot, (row, row_sum) in zip("AB", [*powers, nothing, nothing], strict=False):
        slots |= {f"POWER_{slot}": row, f"Q_{slot}": row_sum.exponent}
    for slot, (row, row_sum) in zip("AB", [*focals, nothing, nothing], strict=False):
        clipped = row_sum.kind == "clipped_focal"
        slots |= {f"FOCAL_{slot}": row, f"GAMMA_{slot}": row_sum.exponent, f"DETACH_{slot}": row_sum.detach}
        slots |= {f"MINIMUM_{slot}": row_sum.minimum, f"CEILING_{slot}": ceiling(row_sum) if clipped else 0.0}
        slots |= {f"HIGHEST_{slot}": -math.log(row_sum.minimum) if clipped else 0.0}
    return slots


@lru_cache(maxsize=256)
def _suffice(row_sum: RowSum, classes: int) -> bool:
    """Whether ``(1-p)^gamma = 1 - gamma p`` will do for every class but the largest in the sums of f and h.

    With t the largest, the others have p <= p_t and together 1 - p_t, so that a sum of what is neglected, r(p), is at most
    ``(1 - p_t) max r(p)/p``; the sums are (K-1) log(K-1) or more, and about K.
    """
    kind, gamma, _, detach = row_sum
    if kind != "focal":
        return False
    worst = bound = 0.0
    for percent in range(1, 51):  # beyond a half there is only the largest
        p, comp, nll = percent / 100, 1.0 - percent / 100, -math.log(percent / 100)
        f = (comp**gamma - 1.0 + gamma * p) * nll
        h = comp**gamma - 1.0 + gamma * p + (0.0 if detach else gamma * p * nll * (comp ** (gamma - 1.0) - 1.0))
        worst = max(worst, abs(f) / p, abs(h) / p)
        bound = max(bound, worst * comp)
    return bound <= MAX_NEGLECTED * classes


def moments_suffice(needs: tuple[RowSum, ...], classes: int) -> bool:
    """Whether moments will do for all focal sums, and there is one."""
    focals = [row_sum for row_sum in needs if row_sum.kind in ("focal", "clipped_focal")]
    return bool(focals) and all(_suffice(row_sum, classes) for row_sum in focals)
