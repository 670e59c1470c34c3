"""What the kernels of programs call, and those that come after them: adding up, and what they keep times a gradient.

:func:`scale` multiplies a gradient by a factor that is on the device: nothing is read or written where it is 1.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from noiseproof.kernels.launch import blocks, launch
from noiseproof.kernels.terms import log1p

SCALE_BLOCK = 4096


@triton.jit
def exp(x):
    """With the rounding of ``x log2(e)`` made good, which in a large exponent is most of the error."""
    t = x * 1.4426950408889634
    lost = tl.fma(x, 1.4426950216293335, -t) + x * 1.9259629911266175e-8
    return tl.where(tl.abs(t) < 126.0, tl.exp2(t) * (1.0 + lost * 0.6931471805599453), tl.exp2(t))


@triton.jit
def softplus(x):
    return tl.maximum(x, 0.0) + log1p(exp(-tl.abs(x)))


@triton.jit
def logaddexp(a, b):
    return tl.maximum(a, b) + log1p(exp(-tl.abs(a - b)))


@triton.jit
def scale_of(target, weight, row, real, classes, target_stride, ignore_index, WEIGHTED: tl.constexpr):
    """The labels, which rows count, and with what weight."""
    label = tl.load(target + row.to(tl.int64) * target_stride, mask=real, other=0)
    counted = real & (label != ignore_index)
    scale = counted.to(tl.float32)
    if WEIGHTED:
        valid = (label >= 0) & (label < classes)
        scale = tl.load(weight + tl.where(valid, label, 0), mask=counted, other=0.0).to(tl.float32)
    return label, counted, scale


@triton.jit
def finish(value, numbers, total, weights, MEAN: tl.constexpr, ALONE: tl.constexpr, KEPT: tl.constexpr):
    """What the loss is divided by goes in front of what each program leaves to be added up."""
    if ALONE:
        tl.store(value, (total / weights if MEAN else total).to(value.dtype.element_ty))
        if KEPT:
            tl.store(numbers, weights)
    else:
        tl.store(numbers + 1 + tl.program_id(0), total)
        tl.store(numbers + 1 + tl.num_programs(0) + tl.program_id(0), weights)


@triton.jit(do_not_specialize=["offset", "programs"])
def add_up(value, numbers, offset, programs, MAX_PROGRAMS: tl.constexpr, MEAN: tl.constexpr):
    program, numbers = tl.arange(0, MAX_PROGRAMS), numbers + offset
    total = tl.sum(tl.load(numbers + 1 + program, mask=program < programs, other=0.0), 0)
    weights = tl.sum(tl.load(numbers + 1 + programs + program, mask=program < programs, other=0.0), 0)
    finish(value, numbers, total, weights, MEAN, True, True)


@triton.jit(do_not_specialize=["count", "rows", "across", "grad_stride", "offset"])
def scaled(
    kept, grad, numbers, out, count, rows, across, grad_stride, offset,
    BLOCK: tl.constexpr, MEAN: tl.constexpr, EACH: tl.constexpr,
):  # fmt: skip
    """What is kept of each row times the gradient of the loss: ``[P, rows]``, or ``[rows, across]``."""
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    here = place < count
    by = tl.load(grad + (place // across % rows) * grad_stride, mask=here, other=0.0) if EACH else tl.load(grad)
    by = by.to(tl.float32)
    if MEAN:
        weights = tl.load(numbers + offset)
        by /= tl.where(weights == 0.0, 1.0, weights)  # where all rows are ignored, and what is kept of them 0
    value = tl.load(kept + place, mask=here, other=0.0)
    value = tl.where(value == 0.0, 0.0, value * by)  # of a row that is ignored, whatever is made of its loss
    tl.store(out + place, value.to(out.dtype.element_ty), mask=here)


@triton.jit(do_not_specialize=["rows", "classes", "target_stride", "ignore_index"])
def weigh(target, weight, divisor, rows, classes, target_stride, ignore_index, BLOCK: tl.constexpr, WEIGHTED: tl.constexpr):
    """What a mean is divided by: the weights of all rows that count."""
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, rows, BLOCK):
        row = start + tl.arange(0, BLOCK)
        label = tl.load(target + row.to(tl.int64) * target_stride, mask=row < rows, other=0)
        counted = (row < rows) & (label != ignore_index)
        if WEIGHTED:
            there = counted & (label >= 0) & (label < classes)
            total += tl.load(weight + tl.where(there, label, 0), mask=there, other=0.0).to(tl.float32)
        else:
            total += counted.to(tl.float32)
    tl.store(divisor, tl.sum(total, 0))


@triton.jit(do_not_specialize=["count"])
def _scale(values, factor, count, SIZE: tl.constexpr):
    by = tl.load(factor).to(tl.float32)
    if by != 1.0:
        place = tl.program_id(0).to(tl.int64) * SIZE + tl.arange(0, SIZE)
        here = place < count
        value = tl.load(values + place, mask=here, other=0.0).to(tl.float32) * by
        tl.store(values + place, value.to(values.dtype.element_ty), mask=here)


def scale(gradient: Tensor, factor: Tensor) -> Tensor:
    """In place."""
    if gradient.dtype == torch.float64 or not gradient.is_contiguous():
        return gradient.mul_(factor)
    if gradient.numel():
        count = gradient.numel()
        launch(_scale, blocks(count, SCALE_BLOCK), (gradient, factor), (count,), SIZE=SCALE_BLOCK, num_warps=8)
    return gradient
