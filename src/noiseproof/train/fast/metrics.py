"""The losses and correct predictions of an epoch's steps, written by one small kernel in each step."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

TILE = 1024  # logits that one program reads at a time: those of several rows, or a part of one


@triton.jit
def _step_metrics(logits, labels, loss, losses, counts, step, rows, classes, stride, ROWS: tl.constexpr, CLASSES: tl.constexpr):
    row, column = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, CLASSES)
    inside = row < rows
    largest, predicted = tl.full([ROWS], float("-inf"), tl.float32), tl.zeros([ROWS], tl.int32)
    for start in range(0, classes, CLASSES):
        here = inside[:, None] & (start + column < classes)[None, :]
        z = tl.load(logits + row[:, None] * stride + start + column[None, :], mask=here, other=float("-inf")).to(tl.float32)
        top = tl.max(z, 1)
        predicted = tl.where(top > largest, start + tl.argmax(z, 1), predicted)  # the first of equals, as torch has it
        largest = tl.maximum(largest, top)
    for kind in tl.static_range(2):
        label = tl.load(labels + kind * rows + row, mask=inside, other=-1)
        tl.atomic_add(counts + kind, tl.sum((predicted == label).to(tl.int64)))
    if tl.program_id(0) == 0:
        done = tl.load(step)
        tl.store(losses + done, tl.load(loss))
        tl.store(step, done + 1)


class StepMetrics:
    """The loss of each step, and how many predictions so far are the given and how many the clean label (:attr:`counts`)."""

    def __init__(self, steps: int, device: torch.device) -> None:
        self.losses = torch.zeros(steps, device=device)
        self.counts = torch.zeros(2, dtype=torch.int64, device=device)
        self.step = torch.zeros(1, dtype=torch.int64, device=device)

    def restart(self) -> None:
        self.step.zero_()
        self.counts.zero_()

    def add(self, logits: Tensor, labels: Tensor, loss: Tensor) -> None:
        """A step's logits ``[N, K]``, its labels ``[2, N]``, given and clean, and its loss."""
        rows, classes = logits.shape
        width = min(TILE, triton.next_power_of_2(classes))
        height = TILE // width
        grid: Any = (triton.cdiv(rows, height),)
        kept, sizes = (self.losses, self.counts, self.step), (rows, classes, logits.stride(0))
        _step_metrics[grid](logits, labels, loss, *kept, *sizes, ROWS=height, CLASSES=width)
