"""The first convolution as Triton kernels: 3x3 over few channels, where cuDNN's kernels use little of the device.

It is a matrix product, of the ``9 C`` numbers around each position by the weights, bound by memory. The patches are assembled
while they are read and never stored. The gradient of the weights is summed in parts, always in the same order.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

POSITIONS = 128  # positions that a program of the forward pass computes
SPAN = 64  # positions that a program of the backward pass reads at a time
PARTS = 264  # programs of the backward pass for each block of channels
OUT = 64  # output channels that a program computes


@triton.jit
def _patches(x, row, tap_column, rows, height, width, C: tl.constexpr):
    """The numbers of columns ``tap_column`` of the 3x3 around each position, ordered by line, place and channel; 0 outside."""
    tap, channel = tap_column // C, tap_column % C
    down, right = tap // 3 - 1, tap % 3 - 1
    line = (row // width % height)[:, None] + down[None, :]
    place = (row % width)[:, None] + right[None, :]
    inside = (row < rows)[:, None] & (tap < 9)[None, :] & (line >= 0) & (line < height) & (place >= 0) & (place < width)
    offset = (row[:, None] + (down * width + right)[None, :]) * C + channel[None, :]
    return tl.load(x + offset, mask=inside, other=0.0)


@triton.jit
def _conv_forward(
    x, w, y, rows, height, width, units,
    UNIT: tl.constexpr, C: tl.constexpr, PRECISION: tl.constexpr, ROWS: tl.constexpr, OUT: tl.constexpr,
):  # fmt: skip
    channels = units * UNIT
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    out = tl.program_id(1) * OUT + tl.arange(0, OUT)
    total = tl.zeros([ROWS, OUT], tl.float32)
    for start in tl.static_range(0, 9 * C, 16):
        column = start + tl.arange(0, 16)
        patch = _patches(x, row, column, rows, height, width, C)
        inside = (column < 9 * C)[:, None] & (out < channels)[None, :]
        weights = tl.load(w + out[None, :] * (9 * C) + column[:, None], mask=inside, other=0.0)
        total = tl.dot(patch, weights, total, input_precision=PRECISION)
    inside = (row < rows)[:, None] & (out < channels)[None, :]
    tl.store(y + row[:, None] * channels + out[None, :], total.to(y.dtype.element_ty), mask=inside)


@triton.jit
def _conv_weights(
    x, dy, parts, rows, height, width, units, count,
    UNIT: tl.constexpr, C: tl.constexpr, COLUMNS: tl.constexpr, PRECISION: tl.constexpr, ROWS: tl.constexpr,
    OUT: tl.constexpr,
):  # fmt: skip
    """Each program's part of the gradient, ``[channels, 9 C]``."""
    channels = units * UNIT
    part = tl.program_id(0)
    out = tl.program_id(1) * OUT + tl.arange(0, OUT)
    column = tl.arange(0, COLUMNS)
    total = tl.zeros([OUT, COLUMNS], tl.float32)
    for start in range(part * ROWS, rows, count * ROWS):
        row = start + tl.arange(0, ROWS)
        patch = _patches(x, row, column, rows, height, width, C)
        inside = (row < rows)[:, None] & (out < channels)[None, :]
        slope = tl.load(dy + row[:, None] * channels + out[None, :], mask=inside, other=0.0)
        total = tl.dot(tl.trans(slope), patch, total, input_precision=PRECISION)
    here = parts + part * channels * (9 * C) + out[:, None] * (9 * C) + column[None, :]
    tl.store(here, total, mask=(out < channels)[:, None] & (column < 9 * C)[None, :])


class _FirstConv(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, precision: str) -> Tensor:
        if ctx.needs_input_grad[0]:
            raise ValueError("no gradient goes to the inputs of a first convolution")
        if x.numel() // x.shape[1] * len(weight) >= 2**31:
            raise ValueError(f"the kernels take fewer than 2^31 numbers, got {list(x.shape)}; take a smaller batch")
        count, inner, height, width = x.shape
        shape = (count, len(weight), height, width)
        y = torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=torch.channels_last)
        rows, units = count * height * width, len(weight) // 8
        grid: Any = (triton.cdiv(rows, POSITIONS), triton.cdiv(len(weight), OUT))
        shared = {"UNIT": 8, "C": inner, "PRECISION": precision, "OUT": OUT, "num_warps": 4}
        _conv_forward[grid](x, weight, y, rows, height, width, units, ROWS=POSITIONS, **shared)
        ctx.save_for_backward(x, weight)
        ctx.sizes, ctx.shared = (rows, height, width, units), shared
        return y

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor, None]:
        (x, weight), dy = ctx.saved_tensors, gradients[0].contiguous(memory_format=torch.channels_last)
        outer, inner = weight.shape[:2]
        parts = torch.empty((PARTS, outer, 3, 3, inner), device=x.device)
        grid: Any = (PARTS, triton.cdiv(outer, OUT))
        columns = triton.next_power_of_2(9 * inner)
        _conv_weights[grid](x, dy, parts, *ctx.sizes, PARTS, COLUMNS=columns, ROWS=SPAN, **ctx.shared)
        return None, parts.sum(0).to(weight.dtype).permute(0, 3, 1, 2), None


class FirstConv(nn.Module):
    """A convolution on a network's inputs, to which no gradient goes, on its weights."""

    def __init__(self, conv: nn.Conv2d, precision: str) -> None:
        super().__init__()
        self.weight, self.precision = conv.weight, precision

    @staticmethod
    def suits(conv: nn.Conv2d) -> bool:
        """3x3 over at most 8 channels, padded by 1, without steps or bias, to a multiple of 8 channels."""
        shape = (conv.kernel_size, conv.stride, conv.padding, conv.dilation, conv.groups)
        few = conv.in_channels in (4, 8) and conv.out_channels % 8 == 0
        return few and conv.bias is None and shape == ((3, 3), (1, 1), (1, 1), (1, 1), 1)

    def forward(self, x: Tensor) -> Tensor:
        apply: Any = _FirstConv.apply
        result: Tensor = apply(x, self.weight, self.precision)
        return result
