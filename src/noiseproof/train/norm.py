"""BatchNorm with what surrounds it in a network - shortcut, ReLU, pooling - as Triton kernels: two forward, two backward.

Inputs are matrices of positions by channels: images in channels-last order, or features. With ``n`` positions, ``m`` the mean
and ``v`` the variance of a channel over them, ``i = 1 / sqrt(v + eps)``::

    y  = relu(gamma i (x - m) + beta + shortcut)                     dz = dy where y > 0
    dx = gamma i (dz - sum(dz) / n - i (x - m) dgamma / n)           dgamma = i sum(dz (x - m)),  dbeta = sum(dz)

Sums are taken in two stages: every program writes those of its part of the positions, and the one that is done last adds them
up, always in the same order. Moments are those of ``x - o`` with the mean ``o`` of a few positions: a mean far from zero then
costs no digits.

With pooling the activations themselves are never stored: the backward pass finds the maximum of each 2x2 again, the first in
reading order where there are several.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

__all__ = ["FusedNorm"]

CHANNELS = 64
"""Channels that a program works on"""
SAMPLE = 32
"""Positions whose mean the moments are taken around"""
PARTS = 128
"""Programs that sum at the same time; the same on every device, so that all of them round alike"""
FEW = 2**14
"""Positions up to which programs are small, so that there are enough of them"""
MOMENTS: dict[str, Any] = {"ROWS": 128, "AT_ONCE": 4, "num_warps": 8}
SUMS: dict[str, Any] = {"ROWS": 128, "AT_ONCE": 2, "num_warps": 8}
SUMS_OF_FEW: dict[str, Any] = {"ROWS": 64, "AT_ONCE": 2, "num_warps": 4}
POOLED_SUMS: dict[str, Any] = {"ROWS": 64, "AT_ONCE": 1, "num_warps": 8}
EACH: dict[str, Any] = {"ROWS": 32, "num_warps": 4}
"""How much a program of each kind reads at a time: enough that the memory is kept busy, as measured on an H200"""


@triton.jit
def _add_up(parts, count, column, real, channels, CHANNELS: tl.constexpr):
    """The sums over two ``[count, channels]`` matrices of parts, read past the first cache, which may be out of date."""
    first = tl.zeros([128, CHANNELS], tl.float32)
    second = tl.zeros([128, CHANNELS], tl.float32)
    for start in range(0, count, 128):
        part = start + tl.arange(0, 128)
        inside = (part < count)[:, None] & real[None, :]
        here = parts + part[:, None] * channels + column[None, :]
        first += tl.load(here, mask=inside, other=0.0, cache_modifier=".cg")
        second += tl.load(here + count * channels, mask=inside, other=0.0, cache_modifier=".cg")
    return tl.sum(first, 0), tl.sum(second, 0)


@triton.jit
def _moments(
    x,
    parts,
    counter,
    mean,
    inverse,
    running_mean,
    running_var,
    rows,
    units,
    count,
    eps,
    momentum,
    UNIT: tl.constexpr,
    ROWS: tl.constexpr,
    CHANNELS: tl.constexpr,
    AT_ONCE: tl.constexpr,
    SAMPLE: tl.constexpr,
):
    """Mean and 1 / sqrt(variance + eps) of every channel, and the running statistics."""
    part, block, channels = tl.program_id(0), tl.program_id(1), units * UNIT
    column = block * CHANNELS + tl.arange(0, CHANNELS)
    real = column < channels
    sample = tl.arange(0, SAMPLE) * tl.maximum(rows // SAMPLE, 1)
    inside = (sample < rows)[:, None] & real[None, :]
    values = tl.load(x + sample[:, None] * channels + column[None, :], mask=inside, other=0.0).to(tl.float32)
    origin = tl.sum(values, 0) / tl.minimum(rows, SAMPLE)
    first = tl.zeros([ROWS, CHANNELS], tl.float32)
    second = tl.zeros([ROWS, CHANNELS], tl.float32)
    for start in range(part * ROWS, rows, AT_ONCE * count * ROWS):
        for k in tl.static_range(AT_ONCE):
            row = start + k * count * ROWS + tl.arange(0, ROWS)
            inside = (row < rows)[:, None] & real[None, :]
            value = tl.load(x + row[:, None] * channels + column[None, :], mask=inside, other=0.0).to(tl.float32)
            away = tl.where(inside, value - origin[None, :], 0.0)
            first += away
            second += away * away
    here = parts + part * channels + column
    tl.store(here, tl.sum(first, 0), mask=real)
    tl.store(here + count * channels, tl.sum(second, 0), mask=real)
    tl.debug_barrier()
    if tl.atomic_add(counter + block, 1, sem="acq_rel") == count - 1:
        away, square = _add_up(parts, count, column, real, channels, CHANNELS)
        away, square = away / rows, square / rows
        variance = tl.maximum(square - away * away, 0.0)
        m = origin + away
        tl.store(mean + column, m, mask=real)
        tl.store(inverse + column, 1.0 / tl.sqrt(variance + eps), mask=real)
        kept = tl.load(running_mean + column, mask=real)
        tl.store(running_mean + column, kept + momentum * (m - kept), mask=real)
        kept = tl.load(running_var + column, mask=real)
        tl.store(running_var + column, kept + momentum * (variance * (rows / (rows - 1.0)) - kept), mask=real)
        tl.store(counter + block, 0)


@triton.jit
def _corner(row, width):
    """The first position of each 2x2 of an image ``width`` wide, given the position of its maximum in the pooled image."""
    half = width // 2
    return (row // half) * (2 * width) + (row % half) * 2


@triton.jit
def _of_channels(mean, inverse, gamma, beta, column, real):
    """What the channels' activations are made with, m, gamma i and beta, as rows; and i."""
    i = tl.load(inverse + column, mask=real, other=0.0)
    scale = i * tl.load(gamma + column, mask=real, other=0.0)
    m, b = tl.load(mean + column, mask=real, other=0.0), tl.load(beta + column, mask=real, other=0.0)
    return m[None, :], scale[None, :], b[None, :], i


@triton.jit
def _activated(x, place, inside, m, scale, beta, TYPE: tl.constexpr):
    """The input and its activation before ReLU, rounded as it is stored."""
    value = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
    return value, ((value - m) * scale + beta).to(TYPE).to(tl.float32)


@triton.jit
def _forward(
    x,
    y,
    shortcut,
    mean,
    inverse,
    gamma,
    beta,
    rows,
    units,
    width,
    RELU: tl.constexpr,
    SHORTCUT: tl.constexpr,
    POOL: tl.constexpr,
    UNIT: tl.constexpr,
    ROWS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """The activations; ``rows`` are those of the result."""
    channels = units * UNIT
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    real = column < channels
    inside = (row < rows)[:, None] & real[None, :]
    place = row[:, None] * channels + column[None, :]
    m, scale, b, _ = _of_channels(mean, inverse, gamma, beta, column, real)
    kind: tl.constexpr = x.dtype.element_ty
    if POOL:
        corner = _corner(row, width)[:, None] * channels + column[None, :]
        _, out = _activated(x, corner, inside, m, scale, b, kind)
        _, other = _activated(x, corner + channels, inside, m, scale, b, kind)
        out = tl.maximum(out, other, propagate_nan=tl.PropagateNan.ALL)
        _, other = _activated(x, corner + width * channels, inside, m, scale, b, kind)
        out = tl.maximum(out, other, propagate_nan=tl.PropagateNan.ALL)
        _, other = _activated(x, corner + (width + 1) * channels, inside, m, scale, b, kind)
        out = tl.maximum(out, other, propagate_nan=tl.PropagateNan.ALL)
    else:
        out = (tl.load(x + place, mask=inside, other=0.0).to(tl.float32) - m) * scale + b
    if SHORTCUT:
        out += tl.load(shortcut + place, mask=inside, other=0.0).to(tl.float32)
    if RELU:
        out = tl.where(out <= 0.0, 0.0, out)
    tl.store(y + place, out.to(kind), mask=inside)


@triton.jit
def _best(x, corner, width, channels, inside, m, scale, beta, TYPE: tl.constexpr):
    """Of each 2x2: the largest activation, the input there, and which of the four it is."""
    value, out = _activated(x, corner, inside, m, scale, beta, TYPE)
    which = tl.zeros_like(corner)
    for k in tl.static_range(1, 4):
        step = (k % 2 + (k // 2) * width) * channels
        other_value, other = _activated(x, corner + step, inside, m, scale, beta, TYPE)
        better = other > out
        value = tl.where(better, other_value, value)
        which = tl.where(better, k, which)
        out = tl.where(better, other, out)
    return value, out, which


@triton.jit
def _backward_sums(
    x,
    y,
    dy,
    dz,
    parts,
    counter,
    mean,
    inverse,
    gamma,
    beta,
    dgamma,
    dbeta,
    rows,
    units,
    width,
    count,
    RELU: tl.constexpr,
    SHORTCUT: tl.constexpr,
    POOL: tl.constexpr,
    UNIT: tl.constexpr,
    ROWS: tl.constexpr,
    CHANNELS: tl.constexpr,
    AT_ONCE: tl.constexpr,
):
    """The gradients of gamma and beta, and with a shortcut its gradient, dz; ``rows`` are those of the result."""
    part, block, channels = tl.program_id(0), tl.program_id(1), units * UNIT
    column = block * CHANNELS + tl.arange(0, CHANNELS)
    real = column < channels
    m, scale, b, i = _of_channels(mean, inverse, gamma, beta, column, real)
    first = tl.zeros([ROWS, CHANNELS], tl.float32)
    second = tl.zeros([ROWS, CHANNELS], tl.float32)
    for start in range(part * ROWS, rows, AT_ONCE * count * ROWS):
        for k in tl.static_range(AT_ONCE):
            row = start + k * count * ROWS + tl.arange(0, ROWS)
            inside = (row < rows)[:, None] & real[None, :]
            place = row[:, None] * channels + column[None, :]
            slope = tl.load(dy + place, mask=inside, other=0.0).to(tl.float32)
            if POOL:
                corner = _corner(row, width)[:, None] * channels + column[None, :]
                value, out, _ = _best(x, corner, width, channels, inside, m, scale, b, x.dtype.element_ty)
            else:
                value = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
                out = (value - m) * scale + b
            if SHORTCUT:
                out = tl.load(y + place, mask=inside, other=0.0).to(tl.float32)
            if RELU:
                slope = tl.where(out <= 0.0, 0.0, slope)
            if SHORTCUT:
                tl.store(dz + place, slope.to(dz.dtype.element_ty), mask=inside)
            first += slope
            second += slope * (value - m)
    here = parts + part * channels + column
    tl.store(here, tl.sum(first, 0), mask=real)
    tl.store(here + count * channels, tl.sum(second, 0), mask=real)
    tl.debug_barrier()
    if tl.atomic_add(counter + block, 1, sem="acq_rel") == count - 1:
        sum_dz, sum_dz_x = _add_up(parts, count, column, real, channels, CHANNELS)
        tl.store(dbeta + column, sum_dz, mask=real)
        tl.store(dgamma + column, sum_dz_x * i, mask=real)
        tl.store(counter + block, 0)


@triton.jit
def _backward_inputs(
    x,
    dy,
    dx,
    mean,
    inverse,
    gamma,
    beta,
    dgamma,
    dbeta,
    rows,
    units,
    width,
    positions,
    RELU: tl.constexpr,
    POOL: tl.constexpr,
    UNIT: tl.constexpr,
    ROWS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """The gradient of the input, given dz or, where there is no shortcut, dy; ``positions`` are those of the input."""
    channels = units * UNIT
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    real = column < channels
    inside = (row < rows)[:, None] & real[None, :]
    place = row[:, None] * channels + column[None, :]
    m, scale, b, i = _of_channels(mean, inverse, gamma, beta, column, real)
    middle = (tl.load(dbeta + column, mask=real, other=0.0) / positions)[None, :]
    tilt = (tl.load(dgamma + column, mask=real, other=0.0) * i / positions)[None, :]
    slope = tl.load(dy + place, mask=inside, other=0.0).to(tl.float32)
    kind: tl.constexpr = x.dtype.element_ty
    if POOL:
        corner = _corner(row, width)[:, None] * channels + column[None, :]
        _, out, which = _best(x, corner, width, channels, inside, m, scale, b, kind)
        slope = tl.where(out <= 0.0, 0.0, slope)
        for k in tl.static_range(4):
            here = corner + (k % 2 + (k // 2) * width) * channels
            value = tl.load(x + here, mask=inside, other=0.0).to(tl.float32)
            change = scale * (tl.where(which == k, slope, 0.0) - middle - (value - m) * tilt)
            tl.store(dx + here, change.to(kind), mask=inside)
    else:
        value = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
        if RELU:
            slope = tl.where((value - m) * scale + b <= 0.0, 0.0, slope)
        tl.store(dx + place, (scale * (slope - middle - (value - m) * tilt)).to(kind), mask=inside)


class _Norm(torch.autograd.Function):
    """The kernels with their gradient. The gradients of gamma and beta are float32, whatever the activations are."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, shortcut: Tensor | None, gamma: Tensor, beta: Tensor, norm: FusedNorm, relu: bool, pool: bool
    ) -> Tensor:
        positions, width = x.numel() // x.shape[1], x.shape[-1]
        units = x.shape[1] // norm.unit
        mean, inverse = torch.empty_like(gamma), torch.empty_like(gamma)
        tile = MOMENTS if positions > FEW else SUMS_OF_FEW
        grid, parts = _parts(positions, x, tile["ROWS"])
        _moments[grid](
            x,
            parts,
            norm.counter,
            mean,
            inverse,
            norm.running_mean,
            norm.running_var,
            positions,
            units,
            grid[0],
            norm.eps,
            norm.momentum,
            UNIT=norm.unit,
            CHANNELS=CHANNELS,
            SAMPLE=SAMPLE,
            **tile,
        )
        rows = positions // 4 if pool else positions
        y = _half_size(x) if pool else torch.empty_like(x)
        flags = {"RELU": relu, "SHORTCUT": shortcut is not None, "POOL": pool, "UNIT": norm.unit, "CHANNELS": CHANNELS}
        grid = (triton.cdiv(rows, EACH["ROWS"]), grid[1])
        _forward[grid](x, y, shortcut, mean, inverse, gamma, beta, rows, units, width, **flags, **EACH)
        ctx.save_for_backward(x, y if shortcut is not None else None, mean, inverse, gamma, beta)
        ctx.counter, ctx.flags, ctx.sizes = norm.counter, flags, (rows, units, width)
        return y

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, y, *known = ctx.saved_tensors
        layout = torch.channels_last if x.dim() == 4 else torch.contiguous_format
        dy = gradients[0].contiguous(memory_format=layout)
        dx, dgamma, dbeta = torch.empty_like(x), torch.empty_like(known[2]), torch.empty_like(known[3])
        known += [dgamma, dbeta, *ctx.sizes]
        flags = dict(ctx.flags)
        pool, rows = flags["POOL"], ctx.sizes[0]
        dz = torch.empty_like(dy) if flags["SHORTCUT"] else None
        tile = POOLED_SUMS if pool else SUMS if rows > FEW else SUMS_OF_FEW
        grid, parts = _parts(rows, x, tile["ROWS"])
        _backward_sums[grid](x, y, dy, dz, parts, ctx.counter, *known, grid[0], **flags, **tile)
        flags.pop("SHORTCUT")
        if dz is not None:
            dy, flags["RELU"] = dz, False
        grid = (triton.cdiv(rows, EACH["ROWS"]), grid[1])
        _backward_inputs[grid](x, dy, dx, *known, x.numel() // x.shape[1], **flags, **EACH)
        return dx, dz, dgamma, dbeta, None, None, None


def _parts(rows: int, x: Tensor, step: int) -> tuple[Any, Tensor]:
    """The grid of programs, parts of the rows by blocks of channels, and the room for two sums of each."""
    blocks = triton.cdiv(x.shape[1], CHANNELS)
    count = min(triton.cdiv(rows, step), max(1, PARTS // blocks))
    return (count, blocks), torch.empty((2, count, x.shape[1]), device=x.device)


def _half_size(x: Tensor) -> Tensor:
    count, channels, height, width = x.shape
    shape = (count, channels, height // 2, width // 2)
    return torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=torch.channels_last)


class FusedNorm(nn.Module):
    """A BatchNorm in training, on its parameters and statistics, that computes with these kernels."""

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, norm: nn.BatchNorm1d | nn.BatchNorm2d, device: torch.device) -> None:
        super().__init__()
        self.eps, self.momentum = norm.eps, norm.momentum
        self.weight, self.bias = norm.weight, norm.bias
        for name in ("running_mean", "running_var"):
            self.register_buffer(name, getattr(norm, name))
        self.unit = math.gcd(norm.num_features, CHANNELS)
        self.counter = torch.zeros(triton.cdiv(norm.num_features, CHANNELS), dtype=torch.int32, device=device)

    def forward(self, x: Tensor) -> Tensor:
        return self._normed(x, None, relu=False, pool=False)

    def activated(self, x: Tensor, shortcut: Tensor | None = None, *, pool: bool = False) -> Tensor:
        """See :func:`noiseproof.models.base.activated`."""
        if pool and (shortcut is not None or x.shape[-1] % 2 or x.shape[-2] % 2):
            raise ValueError("the kernels pool images of even size, without a shortcut")
        return self._normed(x, shortcut, relu=True, pool=pool)

    def _normed(self, x: Tensor, shortcut: Tensor | None, *, relu: bool, pool: bool) -> Tensor:
        if x.numel() >= 2**31:
            raise ValueError(
                f"the kernels take fewer than 2^31 numbers, got {list(x.shape)}; take a smaller batch, or the plain path"
            )
        apply: Any = _Norm.apply
        result: Tensor = apply(x, shortcut, self.weight, self.bias, self, relu, pool)
        return result
