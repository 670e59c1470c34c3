"""One network in training: its data, its loss, the engine that computes its epochs, and which batch fits into the memory."""

from __future__ import annotations

import copy
import gc
import itertools
import math
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from noiseproof.data import Examples
from noiseproof.models.base import Classifier
from noiseproof.train.batch_loader import Batch, BatchLoader, FileLoader, MemoryLoader, Transforms
from noiseproof.train.engine import (
    Engine,
    EngineInputs,
    EpochMetrics,
    PlainEngine,
    Processes,
    RunOptions,
    check_bf16,
    fast_path_suits,
)
from noiseproof.train.network import build_network, model_facts, nothing_drawn
from noiseproof.train.recipe import Recipe, lr_factor
from noiseproof.train.training_data import TrainingData

INPUT_FACTS = ("class_names", "preprocessing")
"""The facts of the data that a run adds once it has its transforms; they do not identify a run"""


class DivergenceError(RuntimeError):
    """The loss was not finite; the message says when."""


@dataclass(frozen=True)
class Epoch:
    """The numbers of an epoch. Accuracies are shares of 1; those on given and clean labels were counted while training.

    Args:
        epoch: Its number, counted from 1.
        loss: The mean over its steps.
        given_accuracy: Of the given labels, the share that was predicted.
        clean_accuracy: The same of the clean labels, where they are known.
        test_accuracy: After the epoch, if there are examples to test on.
        lr: The learning rate.
        seconds: Its duration.
        other_accuracies: On further examples to test on, by name.
    """

    epoch: int
    loss: float
    given_accuracy: float
    clean_accuracy: float | None
    test_accuracy: float | None
    lr: float
    seconds: float
    other_accuracies: dict[str, float] = field(default_factory=dict)

    def accuracies(self) -> dict[str, float]:
        """The accuracies that are known, by what they are of.

        >>> Epoch(1, loss=0.5, given_accuracy=0.6, clean_accuracy=None, test_accuracy=0.9, lr=0.1, seconds=2.0).accuracies()
        {'given': 0.6, 'test': 0.9}
        """
        shares = {"given": self.given_accuracy, "clean": self.clean_accuracy, "test": self.test_accuracy}
        return {name: share for name, share in shares.items() if share is not None} | self.other_accuracies


class Predictions(NamedTuple):
    """For each example of a split: the probability of its label, and the class predicted."""

    probability: NDArray[np.float32]
    predicted: NDArray[np.int64]


class ClassCounts(NamedTuple):
    """Of each class ``[K]`` in a split: examples that were read, those of them predicted right, and all predictions of it."""

    seen: NDArray[np.int64]
    right: NDArray[np.int64]
    predicted: NDArray[np.int64]


class Run:
    """A recipe's network, its data on the device, and the engine that trains it.

    :func:`noiseproof.train.train` runs one to its end; by itself it trains and evaluates epoch by epoch.

    Args:
        recipe: What is trained, without ``auto``.
        task: Its data.
        options: Where and how it is computed.
        engine: What computes its epochs; the plain engine is the definition.

    >>> from noiseproof.train import Recipe, prepare
    >>> recipe = Recipe(dataset="digits", loss="ce", epochs=2)
    >>> run = Run(recipe, prepare(recipe))
    >>> run.train_epoch(0).loss > run.train_epoch(1).loss
    True
    >>> run.close()
    """

    def __init__(
        self,
        recipe: Recipe,
        task: TrainingData,
        options: RunOptions | None = None,
        engine: Callable[[EngineInputs], Engine] = PlainEngine,
    ) -> None:
        options = options or RunOptions()
        self.recipe, self.task, self.options = recipe, task, options
        if recipe.precision == "bf16" and options.device.type == "cpu":
            check_bf16()
        self.criterion = recipe.criterion().to(options.device)
        network = build_network(recipe, task).to(options.device)
        images = task.train.channels is not None
        layout = torch.channels_last if images and options.device.type == "cuda" else torch.contiguous_format
        self.network: nn.Module = network.to(memory_format=layout)  # type: ignore[call-overload]
        asked: dict[str, Any] = {name: getattr(recipe, name) for name in ("standardise", "global_scaling", "size")}
        self.transforms = Transforms.named(recipe.augment, task.train, memory_format=layout, **asked)
        self.processes = Processes(options.process.world, options.device)
        self.loader = self._loader(task.train)
        self.test_loader = None if task.test is None else self._loader(task.test)
        self.other_loaders = {name: self._loader(split) for name, split in task.other_tests.items()}
        self.test_images_left_out = 0
        self.tested: ClassCounts | None = None
        """Of the test split, at its last evaluation"""
        clean = None if task.clean is None else torch.from_numpy(task.clean).to(options.device)
        soft = None if task.soft is None else torch.from_numpy(task.soft).to(options.device)
        model = self.network, self.criterion
        self.engine_inputs = EngineInputs(recipe, options, *model, self.loader, clean, soft, len(task.classes), self.processes)
        self._check_batches()
        self.engine = engine(self.engine_inputs)

    def _loader(self, split: Examples) -> BatchLoader:
        batch, seed, options = self.recipe.batch, self.recipe.seed, self.options
        shared: dict[str, Any] = {"batch": batch, "seed": seed, "device": options.device, "process": options.process}
        if split.in_memory:
            return MemoryLoader(split, self.transforms, **shared)
        return FileLoader(split, self.transforms, workers=options.workers, skip_corrupt=options.skip_corrupt, **shared)

    def _check_batches(self) -> None:
        """An error if processes would have no step, or BatchNorm a batch of one example, which several processes leave out."""
        batch, count, world = self.recipe.batch, len(self.task.train), self.options.process.world
        if (most := min(batch, count)) < world:
            raise ValueError(
                f"a batch must have an example for each of the {world} processes, got batch={batch} of {count} examples; "
                f"start at most {most} processes" + (f", or set batch={world} or more" if count >= world else "")
            )
        if world > 1 or 1 not in (batch, count % batch) or self._trains_on_one():
            return
        if batch == 1:
            raise ValueError("BatchNorm cannot train on batches of one example; set batch=2 or more")
        sizes = itertools.chain(range(batch - 1, 1, -1), range(batch + 1, count + 1))
        way = next((f"; set batch={size}, say" for size in sizes if count % size != 1), "")
        raise ValueError(
            f"the last batch would be one example, on which BatchNorm cannot train: {count} examples in batches of {batch}{way}"
        )

    def _trains_on_one(self) -> bool:
        """Whether a batch may be one example: BatchNorm needs several numbers of each channel."""
        if not isinstance(self.network, Classifier) or not self.task.train.in_memory:
            # A user's network is not called just to try, and a file is not read. BatchNorm of features has one number of each.
            return not any(isinstance(module, nn.BatchNorm1d) for module in self.network.modules())
        example = next(iter(self.loader.eval_batches())).inputs[:1]
        with nothing_drawn(), torch.no_grad(), self.engine_inputs.autocast():
            try:
                copy.deepcopy(self.network).train()(example)
            except ValueError as error:
                return "more than 1 value per channel" not in str(error)
        return True

    @property
    def inputs(self) -> dict[str, Any]:
        """What a network is used with: ``INPUT_FACTS``."""
        return {"class_names": list(self.task.classes), "preprocessing": self.transforms.facts(self.task.train)}

    def described(self) -> dict[str, Any]:
        """The network, its classes and its inputs, to use the weights without the data: they travel in the weights' file."""
        split = self.task.train
        shape = list(split.inputs.shape[1:]) if split.in_memory else None
        facts = {"input_shape": shape, "precision": self.recipe.precision, "columns": list(self.task.columns)}
        return {**model_facts(self.recipe, self.task), **self.inputs, **facts}

    def lr(self, epoch: int) -> float:
        """The learning rate of an epoch.

        Args:
            epoch: Its number, counted from 0.

        Returns:
            The recipe's, times the factor of its schedule.
        """
        return self.recipe.lr * lr_factor(self.recipe.schedule, epoch, self.recipe.epochs)

    def train_epoch(self, epoch: int, on_batch: Callable[[int], None] = lambda done: None) -> Epoch:
        """One pass over the training examples.

        Args:
            epoch: Its number, counted from 0.
            on_batch: Is called after each step with how many examples are done.

        Returns:
            Its numbers, without those of an evaluation.

        Raises:
            DivergenceError: A loss was not finite.
        """
        start = time.perf_counter()
        self.criterion.set_epoch(epoch)
        with self.engine.on_stream():
            steps = self.engine.train_epoch(epoch, self.lr(epoch), on_batch, lambda losses: self._finite(epoch, losses))
            loss, given, clean = self.read_metrics(epoch, steps)
        return Epoch(epoch + 1, loss, given, clean, None, self.lr(epoch), time.perf_counter() - start)

    def read_metrics(self, epoch: int, steps: EpochMetrics) -> tuple[float, float, float | None]:
        """Read an epoch's numbers from the device, which waits for it.

        Args:
            epoch: Its number, counted from 0.
            steps: What the engine counted.

        Returns:
            The mean loss, and the shares of the given and of the clean labels that were predicted.
        """
        values = self._finite(epoch, steps.losses)
        examples = self.processes.total_of(steps.examples)
        given = self.processes.total_of(int(steps.given)) / examples
        clean = None if steps.clean is None else self.processes.total_of(int(steps.clean)) / examples
        return sum(values) / len(values), given, clean

    def _finite(self, epoch: int, losses: Tensor) -> list[float]:
        """The losses of an epoch's first steps as numbers; an error if one is not finite."""
        values: list[float] = (self.processes.total(losses) / self.processes.world).tolist()
        for step, value in enumerate(values):
            if not math.isfinite(value):
                raise DivergenceError(
                    f"the loss is {value} in epoch {epoch + 1}, step {step + 1} of {self.loader.steps()}, "
                    f"at learning rate {self.lr(epoch):.3g}; try a lower one, or a clip"
                )
        return values

    def accuracy(self) -> float | None:
        """The share of the test examples that is predicted right; None if there are none."""
        self.test_images_left_out = 0
        if self.test_loader is None:
            return None
        self.tested = self._counts_on(self.test_loader)
        return int(self.tested.right.sum()) / int(self.tested.seen.sum())

    def other_accuracies(self) -> dict[str, float]:
        """The same of each further set of examples to test on, by name."""
        counts = {name: self._counts_on(loader) for name, loader in self.other_loaders.items()}
        return {name: int(found.right.sum()) / int(found.seen.sum()) for name, found in counts.items()}

    def _counts_on(self, loader: BatchLoader) -> ClassCounts:
        """Of the examples that could be read: damaged images are left out on request."""
        with self.engine.on_stream():
            counts = torch.zeros(3, len(self.task.classes), dtype=torch.int64, device=self.options.device)
            for batch, logits in self.engine.evaluated(loader):
                predicted = logits.argmax(1)
                one = torch.ones_like(predicted)
                counts[0].index_add_(0, batch.labels, one)
                counts[1].index_add_(0, batch.labels, (predicted == batch.labels).long())
                counts[2].index_add_(0, predicted, one)
            found = ClassCounts(*self.processes.total(counts).cpu().numpy())
        seen = int(found.seen.sum())
        if not seen:
            raise ValueError(f"none of the {len(loader)} images to test on could be read")
        self.test_images_left_out += len(loader) - seen
        return found

    def predictions(self) -> Predictions:
        """The predictions for the training examples as they are, without augmentation."""
        probability = np.zeros(len(self.loader), dtype=np.float32)
        predicted = np.zeros(len(self.loader), dtype=np.int64)
        with self.engine.on_stream():
            for batch, logits in self.engine.evaluated(self.loader):
                indices = batch.indices.cpu().numpy()
                given = torch.softmax(logits.float(), 1).gather(1, batch.labels[:, None])[:, 0]
                probability[indices] = given.cpu().numpy()
                predicted[indices] = logits.argmax(1).cpu().numpy() + 1  # 0 is for damaged images, which have no prediction
            return Predictions(self.processes.gathered(probability), self.processes.gathered(predicted) - 1)

    def probabilities(self, split: Examples) -> NDArray[np.float32]:
        """The probabilities of all classes.

        Args:
            split: Examples to evaluate.

        Returns:
            ``[N, K]``; nan for damaged images, where they are left out.
        """
        return self._outputs(split, len(self.task.classes), self._probabilities)

    def _probabilities(self, loader: BatchLoader) -> Iterator[tuple[Batch, Tensor]]:
        for batch, logits in self.engine.evaluated(loader):
            yield batch, torch.softmax(logits.float(), 1)

    def features(self, split: Examples) -> NDArray[np.float32] | None:
        """The activations before the last layer.

        Args:
            split: Examples to evaluate.

        Returns:
            ``[N, D]``, as :meth:`probabilities`; None for a network of the user's own.
        """
        if not isinstance(self.network, Classifier):
            return None
        return self._outputs(split, self.network.classifier.in_features, self._activations)

    def _activations(self, loader: BatchLoader) -> Iterator[tuple[Batch, Tensor]]:
        network = cast(Classifier, self.network).eval()
        with torch.no_grad(), self.engine_inputs.autocast():
            for batch in loader.eval_batches():
                yield batch, network.penultimate(batch.inputs).float()

    def _outputs(
        self, split: Examples, width: int, computed: Callable[[BatchLoader], Iterator[tuple[Batch, Tensor]]]
    ) -> NDArray[np.float32]:
        loader = self.loader if split is self.task.train else self._loader(split)
        outputs = np.zeros((len(loader), width), dtype=np.float32)
        seen = np.zeros(len(loader), dtype=np.int64)
        with self.engine.on_stream():
            for batch, values in computed(loader):
                indices = batch.indices.cpu().numpy()
                outputs[indices], seen[indices] = values.cpu().numpy(), 1
            outputs, seen = self.processes.gathered(outputs), self.processes.gathered(seen)
        if loader is not self.loader:
            loader.close()
        outputs[seen == 0] = np.nan
        return outputs

    def close(self) -> None:
        """Free what outlives the last epoch: the processes that decode images, and what the engine holds."""
        for loader in (self.loader, self.test_loader, *self.other_loaders.values()):
            if loader is not None:
                loader.close()
        if "engine" in self.__dict__:  # not after release()
            self.engine.close()

    def release(self) -> None:
        """Free the memory on the device. Afterwards the run can only be closed."""
        self.engine.close()
        kept = {name: getattr(self, name) for name in ("loader", "test_loader", "other_loaders")}
        self.__dict__.clear()
        self.__dict__.update(kept)

    def state(self) -> dict[str, Tensor]:
        """All that the next epoch depends on, by name, on the CPU."""
        return {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in self._named_state().items()}

    def copy_of_state(self, into: dict[str, Tensor] | None = None) -> dict[str, Tensor]:
        """The same on the device, which takes no time to speak of, or on the CPU if the device is full.

        Args:
            into: An earlier copy, whose memory is used.

        Returns:
            Tensors by name.
        """
        with torch.no_grad(), self.engine.on_stream():
            named = self._named_state()
            if into is not None:
                torch._foreach_copy_([into[name] for name in named], [tensor.detach() for tensor in named.values()])
                return into
            try:
                return {name: tensor.detach().clone() for name, tensor in named.items()}
            except torch.OutOfMemoryError:
                return {name: tensor.detach().to("cpu", copy=True) for name, tensor in named.items()}

    def on_cpu(self, copy: dict[str, Tensor]) -> dict[str, Tensor]:
        """A copy of the state, moved to the CPU.

        Args:
            copy: What :meth:`copy_of_state` returned.

        Returns:
            What :meth:`state` would have returned then.
        """
        with self.engine.on_stream():
            return {name: tensor.cpu().contiguous() for name, tensor in copy.items()}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Load a state, of this engine or another.

        Args:
            state: What :meth:`state` returned.

        Raises:
            ValueError: It is another network's.
        """
        ours = self._named_state()
        for name, tensor in ours.items():
            if name not in state or state[name].shape != tensor.shape or state[name].dtype != tensor.dtype:
                raise ValueError(f"it has no {name!r} of shape {list(tensor.shape)}")
        with torch.no_grad():
            for name, tensor in ours.items():
                tensor.copy_(state[name])
        self.engine.state_loaded()

    def _named_state(self) -> dict[str, Tensor]:
        tensors = {f"network.{name}": tensor for name, tensor in self.network.state_dict().items()}
        return tensors | {f"update.{name}": tensor for name, tensor in self.engine.optimiser_state().items()}


def start_run(recipe: Recipe, task: TrainingData, options: RunOptions) -> Run:
    """A run ready for its first epoch, on the fast engine where that can be used."""
    if fast_path_suits(recipe, task.train, options):
        from noiseproof.train.fast.graph import GraphEngine  # needs Triton, which only CUDA builds of torch bring

        return Run(recipe, task, options, GraphEngine)
    return Run(recipe, task, options)


class OutOfMemoryError(RuntimeError):
    """A step did not fit into the memory; the message says which batch would."""


@contextmanager
def advice_on_memory(recipe: Recipe, task: TrainingData, options: RunOptions, run: Run | None = None) -> Iterator[None]:
    """Turn torch's error into one that says what to do. The ``run`` is over then: its memory on the device is released."""
    try:
        yield
    except RuntimeError as error:  # torch.OutOfMemoryError is one too
        if not _is_out_of_memory(error):
            raise
        # The frames of the failed step hold its activations, which are most of the memory.
        traceback.clear_frames(error.__traceback__)
        reason = str(error).splitlines()[0]
    else:
        return
    if run is not None:
        run.release()
    raise OutOfMemoryError(f"{_advice(recipe, task, options)} ({reason})")


def _is_out_of_memory(error: RuntimeError) -> bool:
    # The CPU's allocator raises a plain RuntimeError.
    return isinstance(error, torch.OutOfMemoryError) or "DefaultCPUAllocator" in str(error)


def _advice(recipe: Recipe, task: TrainingData, options: RunOptions) -> str:
    where = f"out of memory on {options.device} with batch {recipe.batch}"
    if options.process.world > 1:
        return f"{where} divided among {options.process.world} processes: set a smaller one"
    if options.at_once > 1:  # the others take and give back memory meanwhile: nothing is tried, and the run stays what it is
        fewer = options.at_once // 2
        way = f"at_once={fewer}, in a terminal --at-once {fewer} of reproduce, --jobs {fewer} of compare"
        return f"{where} in {options.at_once} concurrent runs: train {fewer} at once ({way}), or set a smaller batch"
    fits = largest_batch(recipe, task, options)
    if fits is None:
        return f"{where}, and no smaller one fits: take a smaller model or smaller inputs, or another device"
    lr = f", and lr={recipe.lr * fits / recipe.batch:.3g} with it" if recipe.optimiser == "sgd" else ""
    return f"{where}; a plain step with batch {fits} was tried and fits: set batch={fits}{lr}"


def largest_batch(recipe: Recipe, task: TrainingData, options: RunOptions) -> int | None:
    """The largest half, quarter, eighth, ... of the recipe's batch with which a step fits; None if two examples do not."""
    size = recipe.batch // 2
    while size > 1:  # BatchNorm cannot train on one example
        try:
            _step(Run(recipe, task, options), size)
            return size
        except RuntimeError as error:
            if not _is_out_of_memory(error):
                raise
            traceback.clear_frames(error.__traceback__)
        size //= 2
    return None


def _step(run: Run, size: int) -> None:
    """One whole step on ``size`` examples, at learning rate 0."""
    gc.collect()
    if run.options.device.type == "cuda":
        torch.cuda.empty_cache()
    run.network.train()
    # Examples as in evaluation: they have the same shape, and come a few at a time.
    some = next(iter(run.loader.eval_batches()))
    again = torch.arange(size, device=some.labels.device) % len(some.labels)
    cast(PlainEngine, run.engine).step(Batch(*(tensor[again] for tensor in some)), 0.0)
