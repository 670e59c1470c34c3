"""A small batch of a few classes: its loss with the gradient of each row in one launch, the gradient of the logits in another.

On such a batch the host is what takes time, not the GPU. So a program of the GPU goes all the way with its rows in registers:
sums, the program of the loss, gradient. The gradient is kept in float32 until it is multiplied by what backward() is given,
behind it what a mean is divided by. One program takes the whole batch if that is small enough; else each leaves its sums, to be
added up.

All that a launch needs is found once for batches of one shape, and kept with the formula.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from noiseproof.kernels.launch import Launch
from noiseproof.kernels.passes import EXACT_CLASSES, slots_of
from noiseproof.kernels.program import ADDED, kernel_of, name_of, statements
from noiseproof.kernels.reductions import add_up, scaled
from noiseproof.kernels.tile import own_logit, row_gradient, row_sums, tile_of, write_rows
from noiseproof.program import Formula, LossCall

MAX_CLASSES = 128
MAX_LOGITS = 2**18
"""Elements of a batch"""
TILE, WARPS = 2048, 16
"""Elements that a program has in registers, with classes up to a power of two, and the warps that share them"""
MAX_TURNS = 4
"""How often one program alone may go around, which takes the GPU less time than a second launch the host"""
BLOCK = 512
MAX_PROGRAMS = 2 * MAX_LOGITS // TILE
MAX_STEPS_KEPT = 256
"""Shapes for which a formula keeps its steps"""

CONSTANTS = ["NLL", "POWER_A", "Q_A", "POWER_B", "Q_B"]
CONSTANTS += [f"{name}_A" for name in ("FOCAL", "GAMMA", "DETACH", "MINIMUM", "CEILING", "HIGHEST")]
CONSTANTS += [f"{name}_B" for name in ("FOCAL", "GAMMA", "DETACH", "MINIMUM", "CEILING", "HIGHEST")]
SIZES = ("rows", "chunk", "units", "stride_units", "target_stride", "ignore_index", "offset")
HEAD = """def small_step(
    logits, target, weight, kept, value, rows, chunk, units, stride_units, target_stride, ignore_index, offset,
    UNIT: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, EXACT: tl.constexpr, WEIGHTED: tl.constexpr,
    MEAN: tl.constexpr, EACH: tl.constexpr, ALONE: tl.constexpr, GRADS: tl.constexpr,
):
    classes = units * UNIT
    stride = stride_units.to(tl.int64) * UNIT
    total = tl.zeros([ROWS], tl.float32)
    weights = tl.zeros([ROWS], tl.float32)
    for start in range(0, rows, chunk):
        first = start + tl.program_id(0) * ROWS
        row, real, safe, valid, is_label, z = tile_of(
            logits, target, first, rows, classes, stride, target_stride, ROWS, COLUMNS
        )
        z_y = own_logit(logits, row, real, safe, stride)
        (
            top, own, d, log_sum, left, nll, log1m, others, margin,
            power_a, rest_a, power_b, rest_b, focal_a, grads_a, focal_b, grads_b,
        ) = row_sums(z, z_y, is_label, classes, {constants})
        label, counted, scale = scale_of(target, weight, row, real, classes, target_stride, ignore_index, WEIGHTED)
"""
TAIL = """        if GRADS:
            wanted = counted & (left >= 0.0)
            out = row_gradient(
                z, is_label, top, own, d, log_sum, left, {row_grads},
                {powers}, COLUMNS, EXACT, {constants}
            )
            write_rows(kept, row, real, classes, classes, out, COLUMNS)
    if not EACH:
        finish(value, kept + offset, tl.sum(total, 0), tl.sum(weights, 0), MEAN, ALONE, GRADS)
"""


def text_of(formula: Formula) -> str:
    """The text of the kernel, for a formula whose program has one; made of the same parts and numbers."""
    slots, program = slots_of(formula.needs) or {}, formula.program
    constants = ", ".join(repr(slots[name]) for name in CONSTANTS)
    places = {"nll": 0, "log1m": 1, "others": slots["NLL"], "margin": slots["MARGIN"], "power_a": slots["POWER_A"]}
    places |= {"power_b": slots["POWER_B"], "focal_a": slots["FOCAL_A"], "focal_b": slots["FOCAL_B"]}
    needs = {name: place for name, place in places.items() if place or name == "nll"}
    lines = [f"r{place} = tl.where(counted, tl.where(valid, {name}, float('nan')), 0.5)" for name, place in needs.items()]
    lines += statements(program)
    row_grads = [program.row_grads[needs[name]] if name in needs else 0.0 for name in places if name != "margin"]
    powers = [f"tl.where(wanted, r{needs[name]}, 0.0)" if name in needs else name for name in ("power_a", "power_b")]
    added = ADDED.format(value=name_of(program.value))
    tail = TAIL.format(
        row_grads=", ".join(f"tl.where(wanted, {name_of(slope)} * scale, 0.0)" for slope in row_grads),
        powers=", ".join(powers),
        constants=constants,
    )
    return HEAD.format(constants=constants) + "".join(f"        {line}\n" for line in lines) + added + tail


_kernels: dict[str, Any] = {}


def _kernel(formula: Formula) -> Any:
    """The kernel of a formula; made once."""
    if "small step" not in formula.kernels:
        text = text_of(formula)
        if text not in _kernels:
            parts = {part.__name__: part for part in (own_logit, row_gradient, row_sums, tile_of, write_rows)}
            _kernels[text] = kernel_of(text, "small_step", SIZES, parts)
        formula.kernels["small step"] = _kernels[text]
    return formula.kernels["small step"]


class SmallStep:
    """Loss and gradient of batches of one shape."""

    def __init__(self, logits: Tensor, target: Tensor, call: LossCall, want_gradient: bool) -> None:
        (count, classes), stride = logits.shape, logits.stride(0)
        self.shape, self.dtype, self.like = logits.shape, call.dtype, logits.dtype
        self.each, self.mean = call.reduction == "none", call.reduction == "mean"
        columns = 1 << (classes - 1).bit_length()
        programs = max(1, -(-count * columns // TILE))
        alone = programs <= MAX_TURNS and not self.each
        programs = 1 if alone else programs
        self.offset = count * classes if want_gradient else 0
        self.length = self.offset + (0 if self.each or (alone and not want_gradient) else 1 if alone else 1 + 2 * programs)
        unit = math.gcd(8, classes, stride)
        chunk, labels = programs * (TILE // columns), target.stride(0)
        sizes = (count, chunk, classes // unit, stride // unit, labels, call.ignore_index, self.offset)
        self.first = Launch(
            *(_kernel(call.formula), programs, sizes),
            **{"UNIT": unit, "ROWS": TILE // columns, "COLUMNS": columns, "EXACT": 2 < classes <= EXACT_CLASSES},
            **{"WEIGHTED": call.weight is not None, "MEAN": self.mean, "EACH": self.each, "ALONE": alone},
            GRADS=want_gradient,
            num_warps=WARPS,
        )
        self.then = None
        if not (alone or self.each):
            self.then = Launch(add_up, 1, (self.offset, programs), MAX_PROGRAMS=MAX_PROGRAMS, MEAN=self.mean)
        self.back: dict[Any, Launch] = {}

    def forward(self, logits: Tensor, target: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor]:
        """The loss, and what :meth:`backward` wants."""
        value = logits.new_empty(self.shape[:1] if self.each else (), dtype=self.dtype)
        kept = logits.new_empty(self.length, dtype=torch.float32) if self.length else value
        self.first(logits, target, logits if weight is None else weight, kept, value)
        if self.then is not None:
            self.then(value, kept)
        return value, kept

    def backward(self, kept: Tensor, grad: Tensor) -> Tensor:
        """The gradient of the logits for that of the loss."""
        out = kept.new_empty(self.shape, dtype=self.like)
        count, (rows, classes) = self.offset, self.shape
        stride = grad.stride(0) if self.each else 0
        launched = self.back.get((grad.dtype, stride))
        if launched is None:
            sizes = (count, rows, classes, stride, count)
            launched = Launch(scaled, -(-count // BLOCK), sizes, BLOCK=BLOCK, MEAN=self.mean, EACH=self.each)
            self.back[grad.dtype, stride] = launched
        if count:
            launched(kept, grad, kept, out)
        return out


def step_for(logits: Tensor, target: Tensor, call: LossCall, want_gradient: bool) -> SmallStep | None:
    """The step for batches like this one; None if they are not small, or their rows have gaps."""
    shape, strides, weight = logits.shape, logits.stride(), call.weight
    count, classes = shape
    if classes > MAX_CLASSES or count * classes > MAX_LOGITS or strides[1] != 1:
        return None
    key = (
        *(shape, strides, logits.dtype, logits.get_device(), target.stride(), want_gradient),
        *(call.dtype, call.reduction, call.ignore_index, None if weight is None else weight.dtype),
    )
    steps: dict[Any, SmallStep] = call.formula.kernels.setdefault("small steps", {})
    step = steps.get(key)
    if step is None:
        if len(steps) >= MAX_STEPS_KEPT:
            steps.clear()
        step = steps[key] = SmallStep(logits, target, call, want_gradient)
    return step
