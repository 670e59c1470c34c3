"""How and where a run computes its epochs. The plain engine, torch's operations one by one, defines what a run computes."""

from __future__ import annotations

import contextlib
import importlib.util
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Protocol

import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor, nn

from noiseproof.data import Examples, Split
from noiseproof.losses import RobustLoss
from noiseproof.models import find_model
from noiseproof.regularisation import ELR, L1
from noiseproof.train.batch_loader import SINGLE, Batch, BatchLoader, MemoryLoader, Rank, generator_for
from noiseproof.train.network import logits_of
from noiseproof.train.recipe import Recipe

NETWORK_STREAM = 3  # of random numbers, for the network itself, for dropout say
CHECK_STEPS = 100
"""The losses are checked every so many steps: a long epoch should not go on for hours after it has diverged"""
SMALL_STEP = 2**25
"""Products of a forward pass, one for each weight and example, up to which a network of features computes with one thread. Two
threads wait for each other after every operation: on a quiet machine such a step is no faster, beside other work far slower"""


@dataclass(frozen=True)
class RunOptions:
    """Where and how a run is computed, which its result does not depend on, or only by rounding.

    Args:
        device: Of the network and of data in memory.
        workers: Processes that decode image files, for each split.
        deterministic: Whether every process on a GPU computes the same bits, which is slower.
        fast: Whether to use the fast engine on CUDA where it can be used.
        at_once: Runs that use the device at the same time: with several, the fast engine keeps to one stream, not to slow
            the others.
        process: This process among those that train one network.
        threads: Threads of an operation on a CPU; by default one for a small network of features, and torch's for others.

    Raises:
        ValueError: ``threads`` is below 1.

    >>> RunOptions(torch.device("cpu"), workers=0).fast
    True
    """

    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    workers: int = 2
    deterministic: bool = False
    fast: bool = True
    at_once: int = 1
    process: Rank = SINGLE
    threads: int | None = None

    def __post_init__(self) -> None:
        if self.threads is not None and self.threads < 1:
            raise ValueError(f"threads must be at least 1, got {self.threads}")
        if str(self.device) == "cuda" and torch.cuda.is_available():
            # Each thread has its own current device.
            object.__setattr__(self, "device", torch.device("cuda", torch.cuda.current_device()))


@contextlib.contextmanager
def torch_threads(count: int | None) -> Iterator[None]:
    """Let torch compute with so many threads, and restore their number afterwards; None changes nothing."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextlib.contextmanager
def limited_threads(count: int | None) -> Iterator[None]:
    """Let torch, BLAS and scikit-learn compute with so many threads in this process; None changes nothing.

    For many small computations: a thread that waits for another one beside other work takes longer than both would in turn.

    >>> with limited_threads(1):
    ...     torch.get_num_threads()
    1
    """
    with contextlib.ExitStack() as held:
        if count is not None and importlib.util.find_spec("threadpoolctl") is not None:  # scikit-learn brings it
            held.enter_context(importlib.import_module("threadpoolctl").threadpool_limits(count))
        held.enter_context(torch_threads(count))
        yield


@contextlib.contextmanager
def precision_of(recipe: Recipe, deterministic: bool) -> Iterator[None]:
    """Set torch's switches for the recipe's precision, and restore them afterwards."""
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = (matmul.allow_tf32, cudnn.allow_tf32, cudnn.benchmark, torch.are_deterministic_algorithms_enabled())
    matmul.allow_tf32 = cudnn.allow_tf32 = recipe.precision != "float32"
    cudnn.benchmark = False  # algorithms chosen by their time would round differently in every process
    if deterministic:  # without it torch refuses matrix products on CUDA; cuBLAS reads it once, so it is not restored
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(deterministic)
    try:
        yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32, cudnn.benchmark = before[:3]
        torch.use_deterministic_algorithms(before[3])


def autocast(recipe: Recipe, device: torch.device) -> torch.autocast:
    """For networks in bf16. A CPU computes in float32 whatever the precision: it is faster there, and some fail in bf16."""
    return torch.autocast(device.type, torch.bfloat16, enabled=recipe.precision == "bf16" and device.type == "cuda")


class Processes:
    """What the processes that train one network do together; a single one does nothing."""

    def __init__(self, world: int, device: torch.device) -> None:
        self.world, self.device = world, device

    def joined(self, network: nn.Module, unused: bool) -> nn.Module:
        """The network with BatchNorm over the whole batch and averaged gradients, of which some parameters may have none."""
        if self.world == 1:
            return network
        from noiseproof.train.distributed import joined

        return joined(network, self.device, unused)

    def weighted(self, loss: Tensor, count: int) -> Tensor:
        """Each process's mean over ``count`` examples, such that their average is the mean over all examples."""
        if self.world == 1:
            return loss
        total = self.total(torch.full((1,), float(count), device=self.device))[0]  # which stays on the device
        return loss * (count * self.world / total)

    def total(self, values: Tensor) -> Tensor:
        """Summed over the processes."""
        if self.world > 1:
            dist.all_reduce(values)
        return values

    def total_of(self, count: int) -> int:
        """A number, summed over the processes."""
        return count if self.world == 1 else int(self.total(torch.tensor([count], device=self.device)))

    def gathered(self, values: NDArray[Any]) -> NDArray[Any]:
        """The whole of an array of which each process has filled its part and left zeros elsewhere."""
        return values if self.world == 1 else self.total(torch.from_numpy(values).to(self.device)).cpu().numpy()


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
        return autocast(self.recipe, self.options.device)

    @property
    def threads(self) -> int:
        """Of an operation on a CPU."""
        weights = sum(parameter.numel() for parameter in self.network.parameters())
        features = isinstance(self.loader, MemoryLoader) and self.loader.split.kind == "features"
        small = features and weights * self.recipe.batch <= SMALL_STEP
        return self.options.threads or (1 if small else torch.get_num_threads())


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
        """The CUDA stream, or the threads, with which the engine works and its results are read."""

    def close(self) -> None:
        """Free what is not memory."""


class Optimiser:
    """``torch.optim``'s SGD or Adam for a network, each step in the published order: L1, clip, L2, momentum, step.

    L2 is torch's ``weight_decay``, which it adds after the clip. A parameter without a gradient has one of 0, so that it is
    regularised like the others; a frozen one is left alone.
    """

    KEPT: ClassVar[dict[str, dict[str, str]]] = {
        "sgd": {"momentum": "momentum_buffer"},
        "adam": {"mean": "exp_avg", "square": "exp_avg_sq"},
    }
    """What is kept of each parameter: its name in checkpoints, and torch's"""

    def __init__(self, recipe: Recipe, network: nn.Module) -> None:
        self.named = {name: parameter for name, parameter in network.named_parameters() if parameter.requires_grad}
        if not self.named:
            raise ValueError("the model has no parameters to train")
        self.kept, self.clip = self.KEPT[recipe.optimiser], recipe.clip
        self.penalty = L1(self.named, recipe.l1) if recipe.l1 else None
        parameters = list(self.named.values())
        shared: dict[str, Any] = {"lr": recipe.lr, "weight_decay": recipe.l2}
        self.torchs: torch.optim.Optimizer
        if recipe.optimiser == "adam":
            self.torchs = torch.optim.Adam(parameters, **shared)
        else:
            nesterov = recipe.nesterov and recipe.momentum > 0  # without momentum it is the same, and torch refuses it
            self.torchs = torch.optim.SGD(parameters, momentum=recipe.momentum, nesterov=nesterov, **shared)
        for parameter in parameters:  # torch would make its state in the first step, after a checkpoint is loaded
            state = {name: torch.zeros_like(parameter, requires_grad=False) for name in self.kept.values()}
            if recipe.optimiser == "adam":
                state["step"] = torch.zeros((), dtype=torch.promote_types(parameter.dtype, torch.float32))
            self.torchs.state[parameter] = state

    def zero_grad(self) -> None:
        self.torchs.zero_grad()

    def step(self, lr: float) -> None:
        """Change the weights by their gradients, at this learning rate."""
        parameters = list(self.named.values())
        for parameter in parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        if self.penalty is not None:
            self.penalty.add_gradient()
        if self.clip is not None:
            nn.utils.clip_grad_norm_(parameters, self.clip)
        for group in self.torchs.param_groups:
            group["lr"] = lr
        self.torchs.step()

    def state(self) -> dict[str, Tensor]:
        """What is kept between steps, by its names in checkpoints; the number of steps is the same for all parameters."""
        of = self.torchs.state
        state = {f"{ours}.{name}": of[p][theirs] for ours, theirs in self.kept.items() for name, p in self.named.items()}
        first = of[next(iter(self.named.values()))]
        return state | ({"steps.": first["step"]} if "step" in first else {})

    def state_loaded(self) -> None:
        """Called after the tensors of :meth:`state` were changed."""
        steps = [kept["step"] for kept in self.torchs.state.values() if "step" in kept]
        for step in steps[1:]:
            step.copy_(steps[0])


class PlainEngine(Engine):
    """Torch's operations one by one, on any device and in several processes."""

    name: ClassVar[str] = "plain"

    def __init__(self, inputs: EngineInputs) -> None:
        self.inputs, self.threads = inputs, inputs.threads
        self.optimiser = Optimiser(inputs.recipe, inputs.network)
        self.elr: ELR | None = None
        if inputs.recipe.elr:
            if inputs.processes.world > 1:
                raise ValueError("elr keeps predictions of every example in one process; start one, or set elr=0")
            examples, strength = len(inputs.loader), inputs.recipe.elr
            self.elr = ELR(examples, inputs.classes, strength=strength).to(inputs.options.device)
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
        self.optimiser.zero_grad()
        with self.inputs.autocast():
            logits = logits_of(self.joined, batch.inputs, self.inputs.classes)
        target = batch.labels if self.inputs.soft is None else self.inputs.soft[batch.indices]
        loss = self.inputs.criterion(logits.float(), target)
        if self.elr is not None:
            loss = loss + self.elr(logits.float(), batch.indices)
        loss = self.inputs.processes.weighted(loss, len(batch.labels))
        loss.backward()
        self.optimiser.step(lr)
        return loss.detach(), logits.detach().argmax(1)

    def evaluated(self, loader: BatchLoader) -> Iterator[tuple[Batch, Tensor]]:
        self.inputs.network.eval()
        for batch in loader.eval_batches():
            with torch.no_grad(), self.inputs.autocast():
                logits = logits_of(self.inputs.network, batch.inputs, self.inputs.classes)
            yield batch, logits  # outside: between two batches the modes would be the caller's, too

    def optimiser_state(self) -> dict[str, Tensor]:
        return self.optimiser.state() | ({} if self.elr is None else self.elr.state_dict(prefix="elr."))

    def state_loaded(self) -> None:
        self.optimiser.state_loaded()

    def on_stream(self) -> AbstractContextManager[None]:
        return torch_threads(self.threads)

    @contextlib.contextmanager
    def randomness(self, epoch: int) -> Iterator[None]:
        """Seed torch's generators for the epoch: a network with dropout draws the same numbers after an interruption."""
        options = self.inputs.options
        with torch.random.fork_rng(devices=[options.device] if options.device.type == "cuda" else []):
            rank = (options.process.rank,) if options.process.rank else ()
            torch.manual_seed(generator_for(self.inputs.recipe.seed, epoch, NETWORK_STREAM, *rank).initial_seed())
            yield


DRAWING_LOSSES = ("nl", "jnpl")
"""Losses that draw classes at random in every step: only the plain engine seeds their draws for each epoch."""


def fast_path_suits(recipe: Recipe, train: Examples, options: RunOptions) -> bool:
    """Whether it is SGD on images in memory with a network of the catalogue, in one process on CUDA, and wanted."""
    return (
        options.fast
        and options.device.type == "cuda"
        and options.process.world == 1
        and not options.deterministic
        and recipe.optimiser == "sgd"
        and not recipe.elr
        and recipe.loss not in DRAWING_LOSSES
        and ":" not in recipe.model
        and recipe.model != "mlp"
        and train.in_memory
        and pools_evenly(recipe.model, train)
        and len(train) >= recipe.batch
        and importlib.util.find_spec("triton") is not None
    )


def pools_evenly(model: str, train: Split) -> bool:
    """Whether cnn8's three poolings halve every side, as the kernels need: 32, 40, ... 64 pixels, but not 28."""
    sides = train.sides
    return find_model(model) != "cnn8" or sides is None or not any(side % 8 for side in sides)
