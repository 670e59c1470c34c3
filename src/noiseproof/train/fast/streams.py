"""CUDA streams that a run has to itself."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor

__all__ = ["RunStreams", "SideStream"]

T = TypeVar("T")

POOL = 32
"""Streams of a priority that torch has for a device; it hands them out in turn, whether or not they are in use."""
_taken: set[int] = set()
_lock = threading.RLock()


class RunStreams:
    """A run's streams, each of which no other run has: what one run launches must not get into a graph another one captures."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._streams: list[torch.cuda.Stream] = []

    def take(self, priority: int = 0) -> torch.cuda.Stream:
        with _lock:
            stream = self._free(priority)
            if stream is None:
                gc.collect()  # runs that are over give theirs back
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
        """Wait until the device has done all that was launched."""
        for stream in self._streams:
            stream.synchronize()

    def close(self) -> None:
        """Give the streams back, when nothing is at work on them any more."""
        with contextlib.suppress(RuntimeError):  # the device has failed, which has been or will be said elsewhere
            self.synchronise()
        with _lock:
            _taken.difference_update(stream.cuda_stream for stream in self._streams)
            self._streams.clear()

    def __del__(self) -> None:
        self.close()


class SideStream:
    """A second stream, joined with the first at the end of each step; without one, all is done on the first."""

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
        """Do this on the side. What it reads is kept until :meth:`join`: the first stream may not write there before."""
        if self.stream is None or after is None:
            return work()
        self._kept += read
        with torch.cuda.stream(self.stream):
            self.stream.wait_event(after)
            return work()

    def join(self) -> None:
        """The first stream waits for the second; only then may it use what was computed there."""
        if self.stream is not None and self._kept:  # one that did nothing is not part of a graph that is being captured
            torch.cuda.current_stream().wait_stream(self.stream)
        self._kept.clear()
