"""The kernels of :mod:`noiseproof.train.fast.norm`, where the formulas are.

``rows`` are positions of the result; there are ``units * UNIT`` channels, of which each program has ``CHANNELS``;
``parts`` are the sums of the ``count`` programs that divide the rows among them.
"""

from __future__ import annotations

import triton
import triton.language as tl


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
def moments(
    x, parts, counter, mean, inverse, running_mean, running_var, rows, units, count, eps, momentum,
    UNIT: tl.constexpr, ROWS: tl.constexpr, CHANNELS: tl.constexpr, AT_ONCE: tl.constexpr, SAMPLE: tl.constexpr,
):  # fmt: skip
    """Mean and 1 / sqrt(variance + eps) of every channel, and the running statistics."""
    part, block, channels = tl.program_id(0), tl.program_id(1), units * UNIT
    column = block * CHANNELS + tl.arange(0, CHANNELS)
    real = column < channels
    sample = tl.arange(0, SAMPLE) * tl.maximum(rows // SAMPLE, 1)
    sampled = (sample < rows)[:, None] & real[None, :]
    values = tl.load(x + sample[:, None] * channels + column[None, :], mask=sampled, other=0.0).to(tl.float32)
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
def _tile(rows, channels, ROWS: tl.constexpr, CHANNELS: tl.constexpr):
    """The rows and the channels of a program that has one tile: their numbers, which of them there are, and their places."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    real = column < channels
    return row, column, real, (row < rows)[:, None] & real[None, :], row[:, None] * channels + column[None, :]


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
def forward(
    x, y, shortcut, mean, inverse, gamma, beta, rows, units, width,
    RELU: tl.constexpr, SHORTCUT: tl.constexpr, POOL: tl.constexpr, UNIT: tl.constexpr, ROWS: tl.constexpr,
    CHANNELS: tl.constexpr,
):  # fmt: skip
    """The activations; ``rows`` are those of the result."""
    channels = units * UNIT
    row, column, real, inside, place = _tile(rows, channels, ROWS, CHANNELS)
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
def backward_sums(
    x, y, dy, dy_too, dz, parts, counter, mean, inverse, gamma, beta, dgamma, dbeta, rows, units, width, count,
    RELU: tl.constexpr, SHORTCUT: tl.constexpr, POOL: tl.constexpr, UNIT: tl.constexpr, ROWS: tl.constexpr,
    CHANNELS: tl.constexpr, AT_ONCE: tl.constexpr,
):  # fmt: skip
    """The gradients of gamma and beta, and where it is asked for dz; ``rows`` are those of the result."""
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
            if dy_too is not None:
                slope += tl.load(dy_too + place, mask=inside, other=0.0).to(tl.float32)
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
            if dz is not None:
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
def backward_inputs(
    x, dy, dx, mean, inverse, gamma, beta, dgamma, dbeta, rows, units, width, positions,
    RELU: tl.constexpr, POOL: tl.constexpr, UNIT: tl.constexpr, ROWS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """The gradient of the input, given dz or, where that was not asked for, dy; ``positions`` are those of the input."""
    channels = units * UNIT
    row, column, real, inside, place = _tile(rows, channels, ROWS, CHANNELS)
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
