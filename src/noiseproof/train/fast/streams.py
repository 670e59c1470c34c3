"""CUDA streams that no other run uses, and layers whose weights' gradients are computed on a second one.

Only the optimiser needs these gradients. They overlap well with the rest of the backward pass: they are bound by arithmetic,
and BatchNorm, which comes next, by memory.
"""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

T = TypeVar("T")

POOL = 32  # streams that torch has for each device and priority; it hands them out in turn, in use or not
_taken: set[int] = set()
_lock = threading.RLock()


class RunStreams:
    """A run's streams, which no other run has: what one run launches must not get into a graph that another one captures."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._streams: list[torch.cuda.Stream] = []

    def take(self, priority: int = 0) -> torch.cuda.Stream:
        with _lock:
            stream = self._free(priority)
            if stream is None:
                gc.collect()  # runs that are over release theirs
                stream = self._free(priority)
            if stream is None:
                raise RuntimeError(f"no stream is free: a device has {POOL} for runs at once, of which each takes one or two")
            _taken.add(stream.cuda_stream)
            self._streams.append(stream)
            return stream

    def _free(self, priority: int) -> torch.cuda.Stream | None:
        streams = (torch.cuda.Stream(self.device, priority=priority) for _ in range(POOL))
        return next((stream for stream in streams if stream.cuda_stream not in _taken), None)

    def synchronise(self) -> None:
        for stream in self._streams:
            stream.synchronize()

    def close(self) -> None:
        """Release the streams, after waiting for the work on them."""
        with contextlib.suppress(RuntimeError):  # the device has failed, which is reported elsewhere
            self.synchronise()
        with _lock:
            _taken.difference_update(stream.cuda_stream for stream in self._streams)
            self._streams.clear()

    def __del__(self) -> None:
        self.close()


class SideStream:
    """A second stream, joined with the first at the end of each step; without one, all work is on the first."""

    def __init__(self, stream: torch.cuda.Stream | None) -> None:
        self.stream = stream
        self._kept: list[Any] = []

    def mark(self) -> torch.cuda.Event | None:
        """The work so far, for :meth:`launch` to come after."""
        if self.stream is None:
            return None
        event = torch.cuda.Event()
        event.record()
        return event

    def launch(self, after: torch.cuda.Event | None, work: Callable[[], T], *read: Tensor) -> T:
        """Run this on the side stream. What it reads is kept until :meth:`join`: the first stream must not reuse its memory."""
        if self.stream is None or after is None:
            return work()
        self._kept += read
        with torch.cuda.stream(self.stream):
            self.stream.wait_event(after)
            return work()

    def join(self) -> None:
        """Make the first stream wait for the second, before it uses what was computed there."""
        if self.stream is not None and self._kept:  # a stream without work is not part of the capture
            torch.cuda.current_stream().wait_stream(self.stream)
        self._kept.clear()


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
