"""The gradient times a factor that is on the device: nothing is read or written where it is 1."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from noiseproof.kernels.launch import blocks, launch

__all__ = ["scale"]

BLOCK = 4096


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
        launch(_scale, blocks(count, BLOCK), (gradient, factor), (count,), SIZE=BLOCK, num_warps=8)
    return gradient
