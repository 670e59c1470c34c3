"""CUDA streams that no other run uses."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor

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
