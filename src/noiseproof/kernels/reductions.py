"""What the kernels of programs call, and the two that come after them: adding up, and the slopes times a gradient."""

from __future__ import annotations

import triton
import triton.language as tl

from noiseproof.kernels.terms import log1p

__all__ = ["add_up", "exp", "finish", "logaddexp", "scaled", "softplus"]


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
def finish(value, numbers, total, weights, MEAN: tl.constexpr, ALONE: tl.constexpr):
    """What the loss is divided by goes in front of what each program leaves to be added up."""
    if ALONE:
        tl.store(value, (total / weights if MEAN else total).to(value.dtype.element_ty))
        tl.store(numbers, weights)
    else:
        tl.store(numbers + 1 + tl.program_id(0), total)
        tl.store(numbers + 1 + tl.num_programs(0) + tl.program_id(0), weights)


@triton.jit(do_not_specialize=["programs"])
def add_up(value, numbers, programs, MOST: tl.constexpr, MEAN: tl.constexpr):
    program = tl.arange(0, MOST)
    total = tl.sum(tl.load(numbers + 1 + program, mask=program < programs, other=0.0), 0)
    weights = tl.sum(tl.load(numbers + 1 + programs + program, mask=program < programs, other=0.0), 0)
    finish(value, numbers, total, weights, MEAN, True)


@triton.jit(do_not_specialize=["count", "rows", "grad_stride"])
def scaled(slopes, grad, numbers, out, count, rows, grad_stride, BLOCK: tl.constexpr, MEAN: tl.constexpr, EACH: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    here = place < count
    by = tl.load(grad + (place % rows) * grad_stride, mask=here, other=0.0) if EACH else tl.load(grad)
    by = by.to(tl.float32)
    if MEAN:
        weights = tl.load(numbers)
        by /= tl.where(weights == 0.0, 1.0, weights)  # where all rows are ignored, and their slopes 0
    tl.store(out + place, tl.load(slopes + place, mask=here, other=0.0) * by, mask=here)
