"""The two passes over long rows: how many threads go along one, and how."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor

from noiseproof.kernels.launch import blocks, launch, power_of_two
from noiseproof.kernels.stream import stream_forward
from noiseproof.kernels.stream_back import stream_backward

__all__ = ["ACROSS", "first_pass", "second_pass"]

ACROSS = 16  # bytes that a thread reads at a time
WARP = 1024  # classes up to which the gradient of a row is one warp's


class Shape(NamedTuple):
    """How a long row is gone along: ACROSS bytes for each thread of so many warps, ``depth`` times at once; that ``times``."""

    warps: int
    depth: int
    times: int = 1
    """Of the gradient only, which has several programs for a row"""


LONGER = 16384  # classes from which on a row is worth several warps
SHORT, LONG = Shape(warps=1, depth=2), Shape(warps=4, depth=2)
TWICE = Shape(warps=8, depth=2)  # a row that is read again for plain rooms: fewer at a time, more of them still in the cache
BACK = Shape(warps=4, depth=2, times=4)


def _shape_for(classes: int, slots: dict[str, Any]) -> Shape:
    """Of the first pass. With a gamma there is so much to do for each class that fewer warps at a time would not be enough."""
    gammas = [slots[f"GAMMA_{slot}"] for slot in "AB" if slots[f"FOCAL_{slot}"]]
    if classes <= LONGER:
        return SHORT
    return TWICE if gammas and not any(gammas) else LONG


def first_pass(
    logits: Tensor,
    target: Tensor,
    primitives: Tensor,
    saved: Tensor,
    slots: dict[str, Any],
    unit: int,
    moment: bool,
) -> None:
    """Fill primitives and saved."""
    rows, classes = logits.shape
    shape = _shape_for(classes, slots)
    lanes, across = shape.warps * 32, ACROSS // logits.element_size()
    sizes = {"LANES": lanes, "ACROSS": across, "DEPTH": shape.depth, "STEPS": power_of_two(blocks(classes, lanes * across))}
    tensors = (logits, target, primitives, saved)
    numbers = (rows, classes // unit, logits.stride(0) // unit, target.stride(0))
    launch(stream_forward, rows, tensors, numbers, UNIT=unit, MOMENT=moment, **slots, **sizes, num_warps=shape.warps)


def second_pass(
    grads: Tensor,
    logits: Tensor,
    target: Tensor,
    primitives: Tensor,
    saved: Tensor,
    gradient: Tensor,
    slots: dict[str, Any],
    unit: int,
) -> None:
    """Fill the gradient."""
    rows, classes = logits.shape
    width = min(BACK.depth * BACK.warps * 32 * ACROSS // logits.element_size(), power_of_two(classes))
    times = min(BACK.times, blocks(classes, width))
    sizes = {"WIDTH": width, "TIMES": times, "num_warps": BACK.warps if width > WARP else 1}
    strides = (logits.stride(0) // unit, target.stride(0), grads.stride(0), grads.stride(1), gradient.stride(0) // unit)
    tensors = (grads, logits, target, primitives, saved, gradient)
    given = {"UNIT": unit, **slots, **sizes}
    launch(stream_backward, rows * blocks(classes, width * times), tensors, (rows, classes // unit, *strides), **given)
