"""How a run computes its epochs. The plain engine, torch's operations one by one, defines what a run computes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from noiseproof.losses import RobustLoss
from noiseproof.train.batch_loader import Batch, BatchLoader, generator_for
from noiseproof.train.distributed import Processes
from noiseproof.train.network import logits_of
from noiseproof.train.options import RunOptions
from noiseproof.train.recipe import Recipe
from noiseproof.train.update import Weights, update_for

__all__ = ["Engine", "EngineInputs", "EpochMetrics", "PlainEngine"]

NETWORK = 3  # the stream of random numbers for the network itself, for dropout say
CHECK_STEPS = 100
"""The losses are checked every so many steps: a long epoch should not go on for hours after it has diverged"""


@dataclass(frozen=True)
class EngineInputs:
    """What a run gives its engine."""

    recipe: Recipe
    options: RunOptions
    network: nn.Module
    criterion: RobustLoss
    loader: BatchLoader
    clean: Tensor | None  # the clean labels on the device
    soft: Tensor | None  # what is trained on in place of the labels: class probabilities [N, K], on the device
    classes: int
    processes: Processes

    def autocast(self) -> AbstractContextManager[Any]:
        return torch.autocast(self.options.device.type, torch.bfloat16, enabled=self.recipe.precision == "bf16")


class EpochMetrics(NamedTuple):
    """An epoch's steps, still on the device: the loss of each, and how many predictions were the given and the clean label."""

    losses: Tensor
    given: Tensor
    clean: Tensor | None
    examples: int


class Engine(Protocol):
    """A way to compute a run's steps and evaluations."""

    name: ClassVar[str]

    def train_epoch(
        self, epoch: int, lr: float, on_batch: Callable[[int], None], check: Callable[[Tensor], object]
    ) -> EpochMetrics:
        """One pass over the training examples. ``on_batch`` gets how many are done, ``check`` the losses so far."""

    def evaluated(self, loader: BatchLoader) -> Iterator[tuple[Batch, Tensor]]:
        """The batches of a loader in order, each with its logits, which are valid until the next one."""

    def optimiser_state(self) -> dict[str, Tensor]:
        """Views of what the optimiser keeps, under the names and in the shapes of the weights: every engine can load them."""

    def state_loaded(self) -> None:
        """Called after the weights and the optimiser's state were replaced."""

    def on_stream(self) -> AbstractContextManager[None]:
        """The CUDA stream on which the engine works and its results are read."""
        return contextlib.nullcontext()

    def close(self) -> None:
        """Free what is not memory."""


class PlainEngine(Engine):
    """Torch's operations one by one, on any device and in several processes."""

    name: ClassVar[str] = "plain"

    def __init__(self, inputs: EngineInputs) -> None:
        self.inputs = inputs
        self.weights = Weights(inputs.network.named_parameters())
        self.update = update_for(inputs.recipe, self.weights.flat)
        self.joined = inputs.processes.joined(inputs.network, unused=":" in inputs.recipe.model)

    def train_epoch(
        self, epoch: int, lr: float, on_batch: Callable[[int], None], check: Callable[[Tensor], object]
    ) -> EpochMetrics:
        clean_labels = self.inputs.clean
        self.inputs.network.train()
        losses, given, clean, done = [], [], [], 0
        with self.randomness(epoch):
            for batch in self.inputs.loader.epoch(epoch):
                loss, predicted = self.step(batch, lr)
                losses.append(loss)
                given.append((predicted == batch.labels).sum())
                if clean_labels is not None:
                    clean.append((predicted == clean_labels[batch.indices]).sum())
                done += len(batch.labels)
                on_batch(done)
                if len(losses) % CHECK_STEPS == 0:
                    check(torch.stack(losses))
        return EpochMetrics(torch.stack(losses), torch.stack(given).sum(), torch.stack(clean).sum() if clean else None, done)

    def step(self, batch: Batch, lr: float) -> tuple[Tensor, Tensor]:
        """One step; the loss before it, and the classes predicted."""
        self.weights.clear()
        with self.inputs.autocast():
            logits = logits_of(self.joined, batch.inputs, self.inputs.classes)
        target = batch.labels if self.inputs.soft is None else self.inputs.soft[batch.indices]
        loss = self.inputs.criterion(logits.float(), target)
        if not self.inputs.processes.single:
            loss = loss * self.inputs.processes.weight(len(batch.labels))
        loss.backward()
        self.update(self.weights.flat, self.weights.gradient(), lr)
        return loss.detach(), logits.detach().argmax(1)

    def evaluated(self, loader: BatchLoader) -> Iterator[tuple[Batch, Tensor]]:
        self.inputs.network.eval()
        for batch in loader.eval_batches():
            with torch.no_grad(), self.inputs.autocast():
                logits = logits_of(self.inputs.network, batch.inputs, self.inputs.classes)
            yield batch, logits  # outside: between two batches the modes would be the caller's, too

    def optimiser_state(self) -> dict[str, Tensor]:
        state: dict[str, Tensor] = {}
        for key, kept in self.update.state.items():
            views = self.weights.views(kept) if kept.dim() else {"": kept}
            state |= {f"{key}.{name}": view for name, view in views.items()}
        return state

    @contextlib.contextmanager
    def randomness(self, epoch: int) -> Iterator[None]:
        """Seed torch's generators for the epoch: a network with dropout draws the same numbers after an interruption."""
        options = self.inputs.options
        with torch.random.fork_rng(devices=[options.device] if options.device.type == "cuda" else []):
            rank = (options.process.rank,) if options.process.rank else ()
            torch.manual_seed(generator_for(self.inputs.recipe.seed, epoch, NETWORK, *rank).initial_seed())
            yield
