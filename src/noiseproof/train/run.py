"""One network in training: its data, its loss, and the engine that computes its epochs."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import fmean
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from noiseproof.data import Examples
from noiseproof.models.base import Classifier
from noiseproof.train.batch_loader import Batch, BatchLoader, FileLoader, MemoryLoader, Transforms
from noiseproof.train.class_weights import training_loss
from noiseproof.train.engine import (
    Engine,
    EngineInputs,
    EpochMetrics,
    PlainEngine,
    Processes,
    RunOptions,
    fast_path_suits,
)
from noiseproof.train.network import build_network, model_facts
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
    """

    epoch: int
    loss: float
    given_accuracy: float
    clean_accuracy: float | None
    test_accuracy: float | None
    lr: float
    seconds: float

    def accuracies(self) -> dict[str, float]:
        """The accuracies that are known, by what they are of.

        >>> Epoch(1, loss=0.5, given_accuracy=0.6, clean_accuracy=None, test_accuracy=0.9, lr=0.1, seconds=2.0).accuracies()
        {'given': 0.6, 'test': 0.9}
        """
        shares = {"given": self.given_accuracy, "clean": self.clean_accuracy, "test": self.test_accuracy}
        return {name: share for name, share in shares.items() if share is not None}


class Predictions(NamedTuple):
    """For each example of a split: the probability of its label, and the class predicted."""

    probability: NDArray[np.float32]
    predicted: NDArray[np.int64]


class ClassCounts(NamedTuple):
    """Of each class ``[K]`` in a split: examples that were read, those of them predicted right, and all predictions of it."""

    seen: NDArray[np.int64]
    right: NDArray[np.int64]
    predicted: NDArray[np.int64]

    @property
    def recalls(self) -> list[float | None]:
        """Of each class the share of its examples that was predicted right; None of a class without examples."""
        counts = zip(self.right.tolist(), self.seen.tolist(), strict=True)
        return [right / count if count else None for right, count in counts]

    @property
    def balanced_accuracy(self) -> float:
        """The mean recall of the classes that have examples."""
        return fmean(share for share in self.recalls if share is not None)

    @property
    def macro_f1(self) -> float:
        """The mean of the classes' F1, twice the right predictions by the examples and predictions together.

        >>> round(ClassCounts(np.array([9, 1, 0]), np.array([9, 0, 0]), np.array([10, 0, 0])).macro_f1, 4)
        0.4737
        """
        both = self.seen + self.predicted  # a class that is neither there nor predicted has none
        return float((2 * self.right[both > 0] / both[both > 0]).mean())


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
        weights = recipe.class_weight, task.class_counts, task.classes, recipe.warm_epochs
        self.criterion = training_loss(recipe.criterion(), *weights).to(options.device)
        network = build_network(recipe, task).to(options.device)
        images = task.train.channels is not None
        layout = torch.channels_last if images and options.device.type == "cuda" else torch.contiguous_format
        self.network: nn.Module = network.to(memory_format=layout)  # type: ignore[call-overload]
        asked: dict[str, Any] = {name: getattr(recipe, name) for name in ("standardise", "global_scaling", "size")}
        self.transforms = Transforms.named(recipe.augment, task.train, memory_format=layout, **asked)
        self.processes = Processes(options.process.world, options.device)
        self.loader = self._loader(task.train)
        self.test_loader = None if task.test is None else self._loader(task.test)
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
        return FileLoader(split, self.transforms, workers=options.workers, **shared)

    def _check_batches(self) -> None:
        """An error if processes would have no step, or BatchNorm a batch of one example, which several processes leave out."""
        batch, count, world = self.recipe.batch, len(self.task.train), self.options.process.world
        if (most := min(batch, count)) < world:
            raise ValueError(
                f"a batch must have an example for each of the {world} processes, got batch={batch} of {count} examples; "
                f"start at most {most} processes" + (f", or set batch={world} or more" if count >= world else "")
            )
        norms = any(isinstance(module, nn.BatchNorm1d) for module in self.network.modules())
        if norms and world == 1 and 1 in (batch, count % batch):  # norms of images have many numbers in one example
            raise ValueError(
                f"the last batch would be one example, on which BatchNorm cannot train: {count} examples in batches of {batch}"
                "; set another batch"
            )

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
        if self.test_loader is None:
            return None
        self.tested = self._counts_on(self.test_loader)
        return int(self.tested.right.sum()) / int(self.tested.seen.sum())

    def accuracy_on(self, split: Examples) -> float:
        """The same of other examples.

        Args:
            split: Examples to evaluate.

        Returns:
            The share that is predicted right.
        """
        loader = self._loader(split)
        counts = self._counts_on(loader)
        loader.close()
        return int(counts.right.sum()) / int(counts.seen.sum())

    def _counts_on(self, loader: BatchLoader) -> ClassCounts:
        with self.engine.on_stream():
            counts = torch.zeros(3, len(self.task.classes), dtype=torch.int64, device=self.options.device)
            for batch, logits in self.engine.evaluated(loader):
                predicted = logits.argmax(1)
                one = torch.ones_like(predicted)
                counts[0].index_add_(0, batch.labels, one)
                counts[1].index_add_(0, batch.labels, (predicted == batch.labels).long())
                counts[2].index_add_(0, predicted, one)
            return ClassCounts(*self.processes.total(counts).cpu().numpy())

    def predictions(self) -> Predictions:
        """The predictions for the training examples as they are, without augmentation."""
        probability = np.zeros(len(self.loader), dtype=np.float32)
        predicted = np.zeros(len(self.loader), dtype=np.int64)
        with self.engine.on_stream():
            for batch, logits in self.engine.evaluated(self.loader):
                indices = batch.indices.cpu().numpy()
                given = torch.softmax(logits.float(), 1).gather(1, batch.labels[:, None])[:, 0]
                probability[indices] = given.cpu().numpy()
                predicted[indices] = logits.argmax(1).cpu().numpy()
            return Predictions(self.processes.gathered(probability), self.processes.gathered(predicted))

    def probabilities(self, split: Examples) -> NDArray[np.float32]:
        """The probabilities of all classes.

        Args:
            split: Examples to evaluate.

        Returns:
            ``[N, K]``.
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
        with self.engine.on_stream():
            for batch, values in computed(loader):
                outputs[batch.indices.cpu().numpy()] = values.cpu().numpy()
            outputs = self.processes.gathered(outputs)
        if loader is not self.loader:
            loader.close()
        return outputs

    def close(self) -> None:
        """Free what outlives the last epoch: the processes that decode images, and what the engine holds."""
        for loader in (self.loader, self.test_loader):
            if loader is not None:
                loader.close()
        self.engine.close()

    def state(self) -> dict[str, Tensor]:
        """All that the next epoch depends on, by name, on the CPU."""
        with torch.no_grad(), self.engine.on_stream():
            return {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in self._named_state().items()}

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
    """A step did not fit into the memory; the message says what to do."""


@contextmanager
def advice_on_memory(recipe: Recipe, options: RunOptions) -> Iterator[None]:
    """Turn torch's error into one that says what to do."""
    try:
        yield
    except RuntimeError as error:  # torch.OutOfMemoryError is one too, and the CPU's allocator raises a plain one
        if not isinstance(error, torch.OutOfMemoryError) and "DefaultCPUAllocator" not in str(error):
            raise
        where = f"out of memory on {options.device} with batch {recipe.batch}"
        others = f" in {options.at_once} concurrent runs: train fewer at once, or" if options.at_once > 1 else ":"
        lr = " and, with it, a smaller lr" if recipe.optimiser == "sgd" else ""
        reason = str(error).splitlines()[0]
        raise OutOfMemoryError(f"{where}{others} set a smaller batch{lr}, or a smaller model ({reason})") from error
