"""The fast path without a device: streams that do nothing, and graphs that do the captured work again.

With Triton's interpreter this runs all of its code but the capturing itself, on the CPU and slowly.
"""

import contextlib
import itertools
from types import SimpleNamespace

import torch

from noiseproof.train import batch_loader
from noiseproof.train.fast import first_conv, graph, norm

_numbers = itertools.count()


class Nothing:
    """A stream or an event: every method does nothing."""

    def __init__(self, *_, **__):
        self.cuda_stream = next(_numbers)

    def __getattr__(self, name):
        return lambda *_, **__: None


def _captured(self, work, prepare=lambda: None):
    prepare()
    result = self._joined(work)
    return SimpleNamespace(replay=work), result


def _step_with_fresh_addresses(step):
    """In a graph the gradients stay where they are; here they are elsewhere each time, so the optimiser comes after."""

    def wrapped(self, size, table):
        optimise, self.fused.step = self.fused.step, lambda table: None
        gradients = step(self, size, table)
        self.fused.step = optimise
        table.copy_(self.fused.table(gradients))
        optimise(table)
        return gradients

    return wrapped


def evaluated(self, source):
    """As it is, but for the place where the logits are."""
    for batch in source.eval_batches():
        self.examined[: len(batch.labels), : batch.inputs.shape[1]].copy_(batch.inputs)
        yield batch, self.evaluation.replay()[: len(batch.labels)]


def take_away(monkeypatch):
    """Make the fast path run on the CPU."""
    for name in ("Stream", "Event"):
        monkeypatch.setattr(torch.cuda, name, Nothing)
    for name in ("stream", "device"):
        monkeypatch.setattr(torch.cuda, name, lambda _: contextlib.nullcontext())
    for name in ("current_stream", "synchronize", "graph_pool_handle"):
        monkeypatch.setattr(torch.cuda, name, Nothing)
    engine = graph.GraphEngine
    monkeypatch.setattr(engine, "_captured", _captured)
    monkeypatch.setattr(engine, "_step", _step_with_fresh_addresses(engine._step))
    monkeypatch.setattr(engine, "evaluated", evaluated)
    monkeypatch.setattr(engine, "_compiled_once", lambda self, key, function: function)
    # The interpreter takes as long for a program that reads much as for one that reads little.
    for tile in (norm.MOMENTS, norm.SUMS, norm.SUMS_OF_FEW, norm.POOLED_SUMS, norm.ELEMENTWISE_TILE):
        monkeypatch.setitem(tile, "ROWS", 4096)
    for name, value in (("POSITIONS", 4096), ("SPAN", 4096), ("PARTS", 2)):
        monkeypatch.setattr(first_conv, name, value)
    monkeypatch.setattr(batch_loader, "EVALUATION_BATCH", 50)
