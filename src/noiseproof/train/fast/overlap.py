"""Layers whose weights' gradients are computed on the side stream, during the rest of the backward pass.

Only the optimiser needs them. They overlap well: they are bound by arithmetic, and BatchNorm, which comes next, by memory.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from noiseproof.train.fast.streams import SideStream


def with_alias(result: Tensor, alias: Tensor) -> Tensor:
    """A result that two layers read, as two tensors on the same memory, so that each has its own gradient.

    With one tensor autograd would add the gradients in a separate kernel, though the layer's backward kernel can read both
    (ResNet-34 on an H200: 96 us of a step of 3.6 ms). The first layer that asks gets the alias.
    """
    result.__dict__["alias"] = alias
    return result


def take_alias(x: Tensor) -> Tensor:
    """What a layer should read in the place of ``x``: the first gets the alias if there is one, the next ``x`` itself."""
    alias: Tensor = x.__dict__.pop("alias", x)
    return alias


class _Conv(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, conv: OverlappedConv) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.conv = conv
        return torch.convolution(x, weight, None, *conv.settings)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        side, given = ctx.conv.side, (gradients[0], x, weight, None, *ctx.conv.settings)
        backward = torch.ops.aten.convolution_backward
        # The gradient of the inputs is launched first, or the device would run it after the other.
        ready = side.mark()
        dx = backward(*given, [True, False, False])[0] if ctx.needs_input_grad[0] else None
        dw = side.launch(ready, lambda: backward(*given, [False, True, False])[1], gradients[0], x)
        return dx, dw, None


class OverlappedConv(nn.Module):
    """A convolution without bias, on its weights."""

    def __init__(self, conv: nn.Conv2d, side: SideStream) -> None:
        super().__init__()
        self.weight, self.side = conv.weight, side
        self.settings: tuple[Any, ...] = (conv.stride, conv.padding, conv.dilation, False, (0, 0), conv.groups)

    def forward(self, x: Tensor) -> Tensor:
        apply: Any = _Conv.apply
        result: Tensor = apply(take_alias(x), self.weight, self)
        return result


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, side: SideStream) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.side = side
        return nn.functional.linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (x, weight), dy, side = ctx.saved_tensors, gradients[0], ctx.side
        ready = side.mark()
        dx = dy @ weight if ctx.needs_input_grad[0] else None
        dw = side.launch(ready, lambda: dy.T @ x, dy, x)
        db = side.launch(ready, lambda: dy.sum(0), dy) if ctx.needs_input_grad[2] else None
        return dx, dw, db, None


class OverlappedLinear(nn.Module):
    """A linear layer on features ``[N, D]``, on its weights."""

    def __init__(self, linear: nn.Linear, side: SideStream) -> None:
        super().__init__()
        self.weight, self.bias, self.side = linear.weight, linear.bias, side

    def forward(self, x: Tensor) -> Tensor:
        apply: Any = _Linear.apply
        result: Tensor = apply(x, self.weight, self.bias, self.side)
        return result
