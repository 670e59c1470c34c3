"""One network in training, step by step: the plain path, which is the definition of what a run computes."""

from __future__ import annotations

import contextlib
import copy
import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from noiseproof.data import ImageFiles, Split
from noiseproof.models.base import Classifier
from noiseproof.train.bf16_check import check_bf16
from noiseproof.train.distributed import Processes
from noiseproof.train.feed import SINGLE, Batch, Feed, FileFeed, MemoryFeed, Rank, generator_for
from noiseproof.train.network import build_network, logits_of, nothing_drawn
from noiseproof.train.recipe import Recipe
from noiseproof.train.schedule import Schedule
from noiseproof.train.task import Task
from noiseproof.train.transforms import Transforms
from noiseproof.train.update import Weights, update_for

__all__ = ["DivergenceError", "EpochSums", "Predictions", "Run", "RunOptions", "precision_of"]

NETWORK = 3
"""The stream of random numbers that a network itself may use, for dropout say."""
LOOK_STEPS = 100
"""After so many steps the losses are looked at: an epoch can take hours, and one that diverges should not."""


class DivergenceError(RuntimeError):
    """The loss was not finite; the message says when."""


class EpochSums(NamedTuple):
    """What an epoch's steps came to: the mean loss, and the shares of labels predicted while training."""

    loss: float
    given_accuracy: float
    clean_accuracy: float | None


class Predictions(NamedTuple):
    """For each example of a split: the probability of its label, and the class predicted."""

    probability: NDArray[np.float32]
    predicted: NDArray[np.int64]


@dataclass(frozen=True)
class RunOptions:
    """What a run's result does not depend on, or only by rounding: where and how it is computed."""

    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    workers: int = 2
    skip_corrupt: bool = False
    deterministic: bool = False
    fast: bool = True
    """Whether to take the fast path on CUDA where it can be taken"""
    shares_device: bool = False
    """Whether other runs are at work on the device: the fast path then keeps to one stream, so as not to slow them down"""
    process: Rank = SINGLE

    def __post_init__(self) -> None:
        if str(self.device) == "cuda" and torch.cuda.is_available():
            # "The current device" is another one in another thread.
            object.__setattr__(self, "device", torch.device("cuda", torch.cuda.current_device()))


class Run:
    """A recipe's network, its data on the device, and its optimiser."""

    path: ClassVar[str] = "plain"
    """How it is computed, for the record"""

    def __init__(self, recipe: Recipe, task: Task, options: RunOptions | None = None) -> None:
        options = options or RunOptions()
        self.recipe, self.task, self.options = recipe, task, options
        if recipe.precision == "bf16" and options.device.type == "cpu":
            check_bf16()
        self.schedule = Schedule.parse(recipe.schedule)
        self.criterion = recipe.criterion().to(options.device)
        network = build_network(recipe, task).to(options.device)
        images = isinstance(task.train, ImageFiles) or task.train.inputs.ndim == 4
        layout = torch.channels_last if images and options.device.type == "cuda" else torch.contiguous_format
        self.network: nn.Module = network.to(memory_format=layout)  # type: ignore[call-overload]
        self.weights = Weights(self.network.named_parameters())
        self.update = update_for(recipe, self.weights.flat)
        transforms = Transforms.named(recipe.augment, task.train, memory_format=layout)
        self.processes = Processes(options.process, options.device)
        self.joined = self.processes.joined(self.network, unused=":" in recipe.model)
        self.feed = self._feed(task.train, transforms)
        self.test_feed = None if task.test is None else self._feed(task.test, transforms)
        self.other_feeds = {name: self._feed(split, transforms) for name, split in task.other_tests.items()}
        self.test_images_left_out = 0
        self._check_last_batch()
        self.clean = None if task.clean is None else torch.from_numpy(task.clean).to(options.device)

    def _feed(self, split: Split | ImageFiles, transforms: Transforms) -> Feed:
        recipe, options = self.recipe, self.options
        shared: dict[str, Any] = {
            "batch": recipe.batch,
            "seed": recipe.seed,
            "device": options.device,
            "process": options.process,
        }
        if isinstance(split, Split):
            return MemoryFeed(split, transforms, **shared)
        return FileFeed(split, transforms, workers=options.workers, skip_corrupt=options.skip_corrupt, **shared)

    def _check_last_batch(self) -> None:
        rest = len(self.task.train) % self.recipe.batch
        if 1 not in (self.recipe.batch, rest) or self._trains_on_one():
            return
        if self.recipe.batch == 1:
            raise ValueError("BatchNorm cannot train on batches of one example; set batch=2 or more")
        raise ValueError(
            f"the last batch would be one example, on which BatchNorm cannot train: {len(self.task.train)} examples in "
            f"batches of {self.recipe.batch}; set batch={self.recipe.batch - 1}, say"
        )

    def _trains_on_one(self) -> bool:
        """Whether a batch may be one example: a BatchNorm needs several numbers of each channel."""
        if not isinstance(self.network, Classifier) or isinstance(self.feed, FileFeed) or not self.processes.single:
            # What cannot be tried. A BatchNorm of features has one number of each for sure.
            return not any(isinstance(module, nn.BatchNorm1d) for module in self.network.modules())
        example = next(iter(self.feed.in_order())).inputs[:1]
        with nothing_drawn(), torch.no_grad(), self.autocast():
            try:
                copy.deepcopy(self.network).train()(example)
            except ValueError as error:
                return "more than 1 value per channel" not in str(error)
        return True

    def lr(self, epoch: int) -> float:
        """The learning rate of an epoch, counted from 0."""
        return self.recipe.lr * self.schedule.factor(epoch, self.recipe.epochs)

    def train_epoch(self, epoch: int, on_batch: Callable[[int], None] = lambda done: None) -> EpochSums:
        """One pass over the training examples. ``on_batch`` hears how many are done."""
        self.criterion.set_epoch(epoch)
        self.network.train()
        losses, given, clean, done = [], [], [], 0
        with self.randomness(epoch):
            for batch in self.feed.epoch(epoch):
                loss, predicted = self.step(batch, self.lr(epoch))
                losses.append(loss)
                given.append((predicted == batch.labels).sum())
                if self.clean is not None:
                    clean.append((predicted == self.clean[batch.indices]).sum())
                done += len(batch.labels)
                on_batch(done)
                if len(losses) % LOOK_STEPS == 0:
                    self._finite(epoch, torch.stack(losses))
        return self.sums(epoch, torch.stack(losses), given, clean, done)

    def step(self, batch: Batch, lr: float) -> tuple[Tensor, Tensor]:
        """One step; the loss before it, and the classes predicted."""
        self.weights.clear()
        with self.autocast():
            logits = logits_of(self.joined, batch.inputs, len(self.task.classes))
        loss = self.criterion(logits.float(), batch.labels)
        if not self.processes.single:
            loss = loss * self.processes.weight(len(batch.labels))
        loss.backward()
        self.update(self.weights.flat, self.weights.gradient(), lr)
        return loss.detach(), logits.detach().argmax(1)

    def sums(self, epoch: int, losses: Tensor, given: list[Tensor], clean: list[Tensor], done: int) -> EpochSums:
        """Read the epoch's numbers, at its end: reading means waiting for the device."""
        values = self._finite(epoch, losses)
        whole = self.processes.total_of(done)
        right = [self.processes.total_of(sum(int(count) for count in counts)) for counts in (given, clean)]
        return EpochSums(sum(values) / len(values), right[0] / whole, right[1] / whole if clean else None)

    def _finite(self, epoch: int, losses: Tensor) -> list[float]:
        """The losses of an epoch's first steps as numbers; an error if one is not finite."""
        values: list[float] = self.processes.mean(losses).tolist()
        for step, value in enumerate(values):
            if not math.isfinite(value):
                raise DivergenceError(
                    f"the loss is {value} in epoch {epoch + 1}, step {step + 1} of {self.feed.steps()}, "
                    f"at learning rate {self.lr(epoch):.3g}; try a lower one, or a clip"
                )
        return values

    def accuracy(self) -> float | None:
        """On the test split, if there is one."""
        self.test_images_left_out = 0
        return None if self.test_feed is None else self._accuracy_on(self.test_feed)

    def other_accuracies(self) -> dict[str, float]:
        """On the further examples to test on."""
        return {name: self._accuracy_on(feed) for name, feed in self.other_feeds.items()}

    def _accuracy_on(self, feed: Feed) -> float:
        """Of the examples that could be read: damaged images are left out on request."""
        right, seen = [], 0
        for batch, logits in self._evaluated(feed):
            right.append((logits.argmax(1) == batch.labels).sum())
            seen += len(batch.labels)
        seen = self.processes.total_of(seen)
        self.test_images_left_out += len(feed) - seen
        return self.processes.total_of(sum(int(count) for count in right)) / seen

    def predictions(self) -> Predictions:
        """Of the training examples as they are, without augmentation."""
        probability = np.zeros(len(self.feed), dtype=np.float32)
        predicted = np.zeros(len(self.feed), dtype=np.int64)
        for batch, logits in self._evaluated(self.feed):
            indices = batch.indices.cpu().numpy()
            given = torch.softmax(logits.float(), 1).gather(1, batch.labels[:, None])[:, 0]
            probability[indices] = given.cpu().numpy()
            predicted[indices] = logits.argmax(1).cpu().numpy() + 1  # 0 is for damaged images, which have no prediction
        return Predictions(self.processes.gathered(probability), self.processes.gathered(predicted) - 1)

    def _evaluated(self, feed: Feed) -> Iterator[tuple[Batch, Tensor]]:
        self.network.eval()
        with torch.no_grad():
            for batch in feed.in_order():
                with self.autocast():
                    yield batch, logits_of(self.network, batch.inputs, len(self.task.classes))

    def close(self) -> None:
        """Let go of what outlives the last epoch: the processes that decode images."""
        for feed in (self.feed, self.test_feed, *self.other_feeds.values()):
            if feed is not None:
                feed.close()

    def release(self) -> None:
        """Let go of the memory on the device; the run can only be closed then."""
        kept = {name: getattr(self, name) for name in ("feed", "test_feed", "other_feeds")}
        self.__dict__.clear()
        self.__dict__.update(kept)

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        return torch.autocast(self.options.device.type, torch.bfloat16, enabled=self.recipe.precision == "bf16")

    @contextlib.contextmanager
    def randomness(self, epoch: int) -> Iterator[None]:
        """Torch's own generators, set for the epoch: a network with dropout draws the same after an interruption."""
        devices = [self.options.device] if self.options.device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices):
            rank = (self.options.process.rank,) if self.options.process.rank else ()
            torch.manual_seed(generator_for(self.recipe.seed, epoch, NETWORK, *rank).initial_seed())
            yield

    def state(self) -> dict[str, Tensor]:
        """All that the next epoch depends on, by name, on the CPU."""
        return {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in self._named_state().items()}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """What :meth:`state` gave; a ValueError if it is another network's."""
        own = self._named_state()
        for name, tensor in own.items():
            if name not in state or state[name].shape != tensor.shape or state[name].dtype != tensor.dtype:
                raise ValueError(f"it has no {name!r} of shape {list(tensor.shape)}")
        with torch.no_grad():
            for name, tensor in own.items():
                tensor.copy_(state[name])

    def _named_state(self) -> dict[str, Tensor]:
        """Views of the state. What the optimiser keeps for each weight has that weight's name and shape, so that a run begun in
        one way of computing can go on in another."""
        tensors = {f"network.{name}": tensor for name, tensor in self.network.state_dict().items()}
        for key, kept in self.update.state.items():
            views = self.weights.views(kept) if kept.dim() else {"": kept}
            tensors |= {f"update.{key}.{name}": view for name, view in views.items()}
        return tensors


@contextlib.contextmanager
def precision_of(recipe: Recipe, deterministic: bool) -> Iterator[None]:
    """The switches of torch that a recipe's precision stands for, put back afterwards."""
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = (matmul.allow_tf32, cudnn.allow_tf32, cudnn.benchmark, torch.are_deterministic_algorithms_enabled())
    matmul.allow_tf32 = cudnn.allow_tf32 = recipe.precision != "float32"
    cudnn.benchmark = False  # choosing algorithms by their time would round differently from one process to the next
    if deterministic:  # or torch refuses matrix products on CUDA; cuBLAS reads it once, so it stays
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(deterministic)
    try:
        yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32, cudnn.benchmark = before[:3]
        torch.use_deterministic_algorithms(before[3])
