"""BatchNorm with what surrounds it in a network - shortcut, ReLU, pooling - as Triton kernels: two forward, two backward.
In evaluation mean and variance are the running ones, and the second forward kernel is all there is.

Inputs are matrices of positions by channels: images in channels-last order, or features. With ``n`` positions, ``m`` the mean
and ``v`` the variance of a channel over them, ``i = 1 / sqrt(v + eps)``::

    y  = relu(gamma i (x - m) + beta + shortcut)                     dz = dy where y > 0
    dx = gamma i (dz - sum(dz) / n - i (x - m) dgamma / n)           dgamma = i sum(dz (x - m)),  dbeta = sum(dz)

Sums are taken in two stages: every program writes those of its part of the positions, and the one that is done last adds them
up, always in the same order. Moments are those of ``x - o`` with the mean ``o`` of a few positions: a mean far from zero then
costs no digits.

With pooling the activations themselves are never stored: the backward pass finds the maximum of each 2x2 again, the first in
reading order where there are several. Where two layers read the result, the gradients of both are read here.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
from torch import Tensor, nn

from noiseproof.train.fast import norm_kernels as kernels
from noiseproof.train.fast.streams import with_alias

CHANNELS = 64  # channels that a program works on
SAMPLE = 32  # positions whose mean the moments are taken around
PARTS = 128  # programs that sum at the same time; the same on every device, so that all of them round alike
FEW_POSITIONS = 2**14  # positions up to which programs are small, so that there are enough of them
MOMENTS: dict[str, Any] = {"ROWS": 128, "AT_ONCE": 4, "num_warps": 8}
SUMS: dict[str, Any] = {"ROWS": 128, "AT_ONCE": 2, "num_warps": 8}
SUMS_OF_FEW: dict[str, Any] = {"ROWS": 64, "AT_ONCE": 2, "num_warps": 4}
POOLED_SUMS: dict[str, Any] = {"ROWS": 64, "AT_ONCE": 1, "num_warps": 8}
ELEMENTWISE_TILE: dict[str, Any] = {"ROWS": 32, "num_warps": 4}
"""How much a program of each kind reads at a time: enough that the memory is kept busy, as measured on an H200"""


class _Norm(torch.autograd.Function):
    """The kernels with their gradient. The gradients of gamma and beta are float32, whatever the activations are."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, shortcut: Tensor | None, gamma: Tensor, beta: Tensor, norm: FusedNorm, relu: bool, pool: bool
    ) -> tuple[Tensor, Tensor]:
        positions, units = x.numel() // x.shape[1], x.shape[1] // norm.unit
        mean, inverse = torch.empty_like(gamma), torch.empty_like(gamma)
        tile = MOMENTS if positions > FEW_POSITIONS else SUMS_OF_FEW
        grid, parts = _parts(positions, x, tile["ROWS"])
        moments = (mean, inverse, norm.running_mean, norm.running_var)
        sizes = (positions, units, grid[0], norm.eps, norm.momentum)
        constants = {"UNIT": norm.unit, "CHANNELS": CHANNELS, "SAMPLE": SAMPLE, **tile}
        kernels.moments[grid](x, parts, norm.counter, *moments, *sizes, **constants)
        y, ctx.sizes, ctx.flags = _activations(x, shortcut, mean, inverse, gamma, beta, norm.unit, relu, pool)
        ctx.save_for_backward(x, y if shortcut is not None else None, mean, inverse, gamma, beta)
        ctx.counter = norm.counter
        ctx.set_materialize_grads(False)
        return y, y.view_as(y)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        x, y, *known = ctx.saved_tensors
        layout = torch.channels_last if x.dim() == 4 else torch.contiguous_format
        dy, *more = (gradient.contiguous(memory_format=layout) for gradient in gradients if gradient is not None)
        dy_too = more[0] if more else None
        dx, dgamma, dbeta = torch.empty_like(x), torch.empty_like(known[2]), torch.empty_like(known[3])
        known += [dgamma, dbeta, *ctx.sizes]
        flags, rows = dict(ctx.flags), ctx.sizes[0]
        pool, shortcut = flags["POOL"], flags["SHORTCUT"]
        dz = torch.empty_like(dy) if shortcut or more else None
        tile = POOLED_SUMS if pool else SUMS if rows > FEW_POSITIONS else SUMS_OF_FEW
        grid, parts = _parts(rows, x, tile["ROWS"])
        kernels.backward_sums[grid](x, y, dy, dy_too, dz, parts, ctx.counter, *known, grid[0], **flags, **tile)
        flags.pop("SHORTCUT")
        if dz is not None:
            dy, flags["RELU"] = dz, False
        grid = (triton.cdiv(rows, ELEMENTWISE_TILE["ROWS"]), grid[1])
        kernels.backward_inputs[grid](x, dy, dx, *known, x.numel() // x.shape[1], **flags, **ELEMENTWISE_TILE)
        return dx, dz if shortcut else None, dgamma, dbeta, None, None, None


def _activations(
    x: Tensor,
    shortcut: Tensor | None,
    mean: Tensor,
    inverse: Tensor,
    gamma: Tensor,
    beta: Tensor,
    unit: int,
    relu: bool,
    pool: bool,
) -> tuple[Tensor, tuple[int, int, int], dict[str, Any]]:
    """The result of the second forward kernel, and the sizes and flags it was launched with."""
    rows = x.numel() // x.shape[1] // (4 if pool else 1)
    y = _half_size(x) if pool else torch.empty_like(x)
    sizes = rows, x.shape[1] // unit, x.shape[-1]
    flags = {"RELU": relu, "SHORTCUT": shortcut is not None, "POOL": pool, "UNIT": unit, "CHANNELS": CHANNELS}
    grid: Any = (triton.cdiv(rows, ELEMENTWISE_TILE["ROWS"]), triton.cdiv(x.shape[1], CHANNELS))
    kernels.forward[grid](x, y, shortcut, mean, inverse, gamma, beta, *sizes, **flags, **ELEMENTWISE_TILE)
    return y, sizes, flags


def _parts(rows: int, x: Tensor, step: int) -> tuple[Any, Tensor]:
    """The grid of programs, parts of the rows by blocks of channels, and the memory for two sums of each."""
    blocks = triton.cdiv(x.shape[1], CHANNELS)
    count = min(triton.cdiv(rows, step), max(1, PARTS // blocks))
    return (count, blocks), torch.empty((2, count, x.shape[1]), device=x.device)


def _half_size(x: Tensor) -> Tensor:
    return torch.empty_like(x[:, :, ::2, ::2], memory_format=torch.channels_last)


class FusedNorm(nn.Module):
    """A BatchNorm, on its parameters and statistics, that computes with these kernels; no gradient is kept in evaluation."""

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
        if not self.training:
            inverse = (self.running_var + self.eps).rsqrt()
            known = (self.running_mean, inverse, self.weight.detach(), self.bias.detach())
            return _activations(x, shortcut, *known, self.unit, relu, pool)[0]
        apply: Any = _Norm.apply
        return with_alias(*apply(x, shortcut, self.weight, self.bias, self, relu, pool))
