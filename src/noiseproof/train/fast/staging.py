"""The examples of an epoch, augmented on the device ahead of the steps that read them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from noiseproof.train.batch_loader import EpochPlan, MemoryLoader

STAGED = 64  # batches that are augmented at once


class Staged(NamedTuple):
    """The examples of a step."""

    inputs: Tensor
    labels: Tensor
    """``[2, N]``, given and clean"""
    target: Tensor
    """What the loss is of: the given labels ``[N]``, or class probabilities ``[N, K]``"""


class Staging:
    """Two buffers, each for a part of an epoch: while the steps read one, the other is filled on another stream.

    Channels are last, and rounded up to ``channels``; the added ones stay zero. ``reader`` is the stream of the steps.
    """

    def __init__(
        self,
        loader: MemoryLoader,
        clean: Tensor | None,
        soft: Tensor | None,
        *,
        channels: int,
        dtype: torch.dtype,
        stream: torch.cuda.Stream,
        reader: torch.cuda.Stream,
    ) -> None:
        self.loader, self.clean, self.soft, self.stream, self.reader = loader, clean, soft, stream, reader
        self.planned: dict[int, EpochPlan] = {0: self._plan(0)}
        with torch.cuda.stream(stream):
            _, self.channels, height, width = loader.examples(self.planned[0].part(0, 1)).shape
        self.capacity = min(STAGED * loader.batch, len(loader))
        device = loader.device
        self.inputs = torch.zeros((2 * self.capacity, height, width, channels), dtype=dtype, device=device)
        self.labels = torch.zeros((2, 2 * self.capacity), dtype=torch.int64, device=device)
        self.probabilities = None if soft is None else soft.new_zeros((2 * self.capacity, soft.shape[1]))
        self.row = torch.zeros(1, dtype=torch.int64, device=device)
        self.offsets = torch.arange(loader.batch, device=device)

    def parts(self, epoch: int) -> Iterator[tuple[int, int]]:
        """The start and end of each part of the epoch, once the steps that read it can be launched."""
        plan = self.planned.pop(epoch, None) or self._plan(epoch)
        self.stream.wait_stream(self.reader)
        starts = range(0, len(self.loader), self.capacity)
        free = [torch.cuda.Event(), torch.cuda.Event()]
        ready = [self._fill(plan, 0, 0, None)]
        for place, start in enumerate(starts):
            if place + 1 < len(starts):
                side = (place + 1) % 2
                ready.append(self._fill(plan, starts[place + 1], side, free[side] if place else None))
            self.reader.wait_event(ready[place])
            self.row.fill_(place % 2 * self.capacity)
            yield start, min(start + self.capacity, len(self.loader))
            free[place % 2].record(self.reader)

    def plan_ahead(self, epoch: int) -> None:
        """Draw the plan of an epoch while the device is busy."""
        self.planned = {epoch: self._plan(epoch)}

    def batch(self, size: int) -> Staged:
        """The next ``size`` examples."""
        rows = self.row + self.offsets[:size]
        labels = self.labels.index_select(1, rows)
        target = labels[0] if self.probabilities is None else self.probabilities.index_select(0, rows)
        return Staged(self.inputs.index_select(0, rows).movedim(-1, 1), labels, target)

    def _plan(self, epoch: int) -> EpochPlan:
        with torch.cuda.stream(self.stream):
            return self.loader.plan(epoch)

    def _fill(self, plan: EpochPlan, start: int, side: int, free: torch.cuda.Event | None) -> torch.cuda.Event:
        """Augment a part of the epoch into one buffer, once that is free; the event marks when it is done."""
        part = plan.part(start, min(start + self.capacity, len(self.loader)))
        rows = slice(side * self.capacity, side * self.capacity + len(part.order))
        with torch.cuda.stream(self.stream):
            if free is not None:
                self.stream.wait_event(free)
            self.inputs[rows, ..., : self.channels].copy_(self.loader.examples(part).movedim(1, -1))
            self.labels[0, rows].copy_(self.loader.labels[part.order])
            if self.clean is not None:
                self.labels[1, rows].copy_(self.clean[part.order])
            if self.soft is not None and self.probabilities is not None:
                self.probabilities[rows].copy_(self.soft[part.order])
            ready = torch.cuda.Event()
            ready.record(self.stream)
        return ready
