"""The two passes on a GPU: which kernel runs, with how many rows or classes to a program."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from noiseproof.core import Primitive, reference
from noiseproof.kernels.launch import blocks, launch, power_of_two
from noiseproof.kernels.line import line_forward
from noiseproof.kernels.long import first_pass, second_pass
from noiseproof.kernels.slots import moments_suffice, slots_of
from noiseproof.kernels.tile import tile_backward, tile_forward

__all__ = ["FEW", "backward", "forward", "suits"]

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
FEW = 64  # classes up to which differences are formed from e - 1, as in the reference
TILE = 1024  # classes of a row that is kept in registers, by one warp: sums across warps would wait for each other
LINES = 4  # rows of such a size to a program, one after the other
ROWS = 2**30  # which are fewer: they are numbered in 32 bits, past the last one too


def suits(logits: Tensor, asked: Sequence[Primitive]) -> bool:
    """Whether the kernels serve: up to two power sums and two focal or room sums, no float64, and not a billion rows."""
    return _constants(logits, asked) is not None


def _constants(logits: Tensor, asked: Sequence[Primitive]) -> dict[str, Any] | None:
    """What the kernels are compiled for; None: they do not serve."""
    return slots_of(tuple(asked)) if logits.dtype in DTYPES and logits.shape[0] < ROWS else None


def _unit(*sizes: int) -> int:
    """The largest power of two, at most 8, that divides them all."""
    return math.gcd(8, *sizes)


def _tile_of(classes: int) -> dict[str, int]:
    columns = max(2, power_of_two(classes))
    return {"ROWS": max(1, 512 // columns), "COLUMNS": columns, "num_warps": 4 if columns <= FEW else 1}


def forward(logits: Tensor, target: Tensor, asked: Sequence[Primitive], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """As :class:`noiseproof.core.Backend` has it."""
    slots = _constants(logits, asked)
    if slots is None:
        return reference.forward(logits, target, asked, dtype)
    logits = _rows_apart(logits)
    rows, classes = logits.shape
    primitives = logits.new_empty((2 + len(asked), rows), dtype=dtype)
    saved = logits.new_empty((5 + len(asked), rows), dtype=dtype)
    if rows == 0:
        return primitives, saved
    unit = _unit(classes, logits.stride(0))
    given: Any = (logits, target, primitives, saved), (rows, classes // unit, logits.stride(0) // unit, target.stride(0))
    if classes > TILE:
        first_pass(logits, target, primitives, saved, slots, unit, moments_suffice(tuple(asked), classes))
    elif classes > FEW and not (slots["FOCAL_B"] and slots["POWER_A"]):  # more sums than registers
        sizes = {"ROWS": LINES, "PARTS": power_of_two(classes // unit), "num_warps": 1}
        launch(line_forward, blocks(rows, LINES), *given, UNIT=unit, **slots, **sizes)
    else:
        sizes = _tile_of(classes)
        launch(tile_forward, blocks(rows, sizes["ROWS"]), *given, UNIT=unit, **slots, **sizes)
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
    """As :class:`noiseproof.core.Backend` has it; ``out`` may be the logits themselves."""
    slots = _constants(logits, asked)
    if slots is None:
        return reference.backward(grads, logits, target, primitives, saved, asked, out)
    z = _rows_apart(logits)
    if out is not None and out.stride(1) != 1:  # as of one image's logits, whose classes lie apart
        return out.copy_(backward(grads, z, target, primitives, saved, asked))
    gradient = torch.empty_like(z, memory_format=torch.contiguous_format) if out is None else out
    if gradient.shape != z.shape:
        raise ValueError(f"the gradient's rows must be {tuple(z.shape)}, got {tuple(gradient.shape)}")
    rows, classes = z.shape
    if rows == 0:
        return gradient
    unit = _unit(classes, z.stride(0), gradient.stride(0))
    primitives, saved = primitives.contiguous(), saved.contiguous()
    if classes > FEW:
        second_pass(grads, z, target, primitives, saved, gradient, slots, unit)
        return gradient
    sizes, tensors = _tile_of(classes), (grads, z, target, primitives, saved, gradient)
    strides = (z.stride(0) // unit, target.stride(0), grads.stride(0), grads.stride(1), gradient.stride(0) // unit)
    given = {"UNIT": unit, "EXACT": classes > 2, **slots, **sizes}
    launch(tile_backward, blocks(rows, sizes["ROWS"]), tensors, (rows, classes // unit, *strides), **given)
    return gradient


def _rows_apart(logits: Tensor) -> Tensor:
    """Rows at any distance, each without gaps."""
    return logits if logits.stride(1) == 1 or logits.shape[1] == 1 else logits.contiguous()
