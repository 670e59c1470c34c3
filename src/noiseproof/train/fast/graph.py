"""The fast engine on CUDA: a whole step in a CUDA graph, on examples that are augmented on the device ahead of it.

It computes what :class:`noiseproof.train.engine.PlainEngine` computes, in the same order, up to rounding. The host only
launches: nothing is read back before the epoch's end.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any, ClassVar, Literal, TypeVar

import torch
from torch import Tensor, nn
from torch.func import functional_call

from noiseproof.losses import RobustLoss
from noiseproof.models.base import Classifier
from noiseproof.train.batch_loader import Batch, BatchLoader, MemoryLoader
from noiseproof.train.engine import Engine, EngineInputs, EpochMetrics
from noiseproof.train.fast.first_conv import FirstConv
from noiseproof.train.fast.metrics import StepMetrics
from noiseproof.train.fast.norm import FusedNorm
from noiseproof.train.fast.packed_weights import Norm, PackedWeights
from noiseproof.train.fast.sgd import FusedSgd
from noiseproof.train.fast.staging import Staging
from noiseproof.train.fast.streams import OverlappedConv, OverlappedLinear, RunStreams, SideStream
from noiseproof.train.network import nothing_drawn

WARM_UP = 3
NORM_MOMENTUM = 0.1  # of BatchNorm's running statistics
Kernels = Literal["triton", "compiled", "torch"]
T = TypeVar("T")


class GraphEngine(Engine):
    """An engine whose steps are replays of a CUDA graph.

    ``kernels`` says what computes the network's pass: our Triton kernels beside cuDNN's convolutions, torch.compile's kernels,
    or torch's. The last two are there to compare with.

    In one process the same run gives the same bits, whether or not others share the device. In another process cuDNN may choose
    other algorithms as the fastest, and round differently; the same bits in every process need the plain engine, deterministic.
    """

    name: ClassVar[str] = "fast"

    _builder: ClassVar[ThreadPoolExecutor] = ThreadPoolExecutor(1, "noiseproof-graphs")
    """The one thread that compiles and captures. cuDNN chooses its algorithms by their time, once for each thread and shape:
    in one thread all runs of a process get the same ones, hence round alike."""
    _compiled: ClassVar[dict[Any, Callable[..., Any]]] = {}
    """By structure and loss: runs that differ in neither share their code, hence round alike."""

    def __init__(self, inputs: EngineInputs, *, kernels: Kernels = "triton") -> None:
        if not isinstance(inputs.network, Classifier) or not isinstance(inputs.loader, MemoryLoader):
            raise TypeError("the fast engine needs a network of the catalogue and examples in memory")
        self.inputs, self.kernels = inputs, kernels
        self.recipe, self.network, self.criterion, self.loader = inputs.recipe, inputs.network, inputs.criterion, inputs.loader
        device, half = inputs.options.device, self.recipe.precision == "bf16"
        self.packed = PackedWeights(self.network, multiple=8 if half else 4, half=half)
        self.velocity = torch.zeros_like(self.packed.flat)
        spans = [(span.start, span.stop - span.start) for span in self.packed.spans.values()]
        self.fused = FusedSgd(self.recipe, self.packed.flat, self.velocity, self.packed.copy, spans)
        self.streams = RunStreams(device)
        self.stream = self.streams.take(priority=-1)  # what the network waits for goes first
        self.side = SideStream(self.streams.take() if inputs.options.at_once == 1 else None)
        channels, dtype = next(iter(self.packed.leaves.values())).shape[1], torch.bfloat16 if half else torch.float32
        staged: dict[str, Any] = {"stream": self.streams.take(), "reader": self.stream}
        self.staging = Staging(self.loader, inputs.clean, inputs.soft, channels=channels, dtype=dtype, **staged)
        self.metrics = StepMetrics(self.loader.steps(), device)
        size = next(iter(self.loader.eval_batches())).inputs.shape[2:]
        self.examined = torch.zeros((self.loader.evaluation_batch, *size, channels), dtype=dtype, device=device).movedim(-1, 1)
        if kernels == "triton":
            _use_triton_layers(self.packed.template, self.side, device, self.recipe.precision)
        self._tables: list[Tensor] = []
        self._pool = torch.cuda.graph_pool_handle()
        torch.cuda.current_stream(device).synchronize()
        built = self._builder.submit(self._build)
        try:
            built.result()
        finally:  # after an interruption it goes on, and needs torch's switches as they are
            wait([built])

    def _build(self) -> None:
        batch, rest = self.recipe.batch, len(self.loader) % self.recipe.batch
        cudnn = torch.backends.cudnn
        before = cudnn.benchmark, cudnn.deterministic
        cudnn.benchmark = cudnn.deterministic = True
        try:
            with nothing_drawn(), torch.cuda.device(self.inputs.options.device):
                self.graphs = {size: self._training_graph(size) for size in {batch, rest} - {0}}
                cudnn.benchmark = False  # trying all algorithms on large evaluation batches can take minutes
                self.evaluation, self.logits = self._captured(self._evaluate)
        finally:
            cudnn.benchmark, cudnn.deterministic = before

    def train_epoch(
        self, epoch: int, lr: float, on_batch: Callable[[int], None], check: Callable[[Tensor], object]
    ) -> EpochMetrics:
        batch = self.recipe.batch
        self.fused.lr.fill_(lr)
        self.metrics.restart()
        for start, stop in self.staging.parts(epoch):
            for done in range(start, stop, batch):
                self.graphs[min(batch, stop - done)].replay()
            on_batch(stop)
        if epoch + 1 < self.recipe.epochs:
            self.staging.plan_ahead(epoch + 1)
        given, clean = self.metrics.counts.clone()
        for module in self.network.modules():
            if isinstance(module, Norm) and module.num_batches_tracked is not None:
                module.num_batches_tracked.add_(self.loader.steps())
        return EpochMetrics(self.metrics.losses, given, None if self.inputs.clean is None else clean, len(self.loader))

    def optimiser_state(self) -> dict[str, Tensor]:
        return {f"momentum.{name}": view for name, view in self.packed.views(self.velocity).items()}

    def state_loaded(self) -> None:
        self.packed.refresh()

    def _step(self, size: int, table: Tensor) -> list[Tensor | None]:
        """Train on the next ``size`` staged examples; returns the gradients in the order of the weights."""
        packed, (network, criterion) = self.packed, self._functions(size)
        inputs, labels, target = self.staging.batch(size)
        logits = network(packed.leaves, packed.buffers, inputs)
        loss = criterion(dict(self.criterion.named_buffers()), logits, target)
        ready = self.side.mark()
        self.side.launch(ready, lambda: self._count(logits.detach(), labels, loss.detach()), logits, labels, loss)
        found = torch.autograd.grad(loss, list(packed.leaves.values()))
        # Not earlier: torch's BatchNorm needs its running means until the backward pass.
        self.side.launch(ready, lambda: packed.bias_means.add_(packed.bias, alpha=NORM_MOMENTUM))
        self.side.join()
        gradients = {
            name: gradient if gradient.stride() == leaf.stride() else torch.empty_like(leaf).copy_(gradient)
            for (name, leaf), gradient in zip(packed.leaves.items(), found, strict=True)
        }
        self.fused.step(table)
        return [gradients.get(name) for name in packed.spans]

    def _count(self, logits: Tensor, labels: Tensor, loss: Tensor) -> None:
        """Count the step's loss and predictions, and move on in the staged examples."""
        self.metrics.add(logits, labels, loss)
        self.staging.row.add_(len(logits))

    def _training_graph(self, size: int) -> torch.cuda.CUDAGraph:
        """The step in a graph. The warm-up changes weights and statistics, which are then restored."""
        kept = [self.packed.flat, self.velocity, self.packed.copy, *self.packed.buffers.values()]
        before = [tensor.clone() for tensor in kept]
        table = self.fused.table([None] * len(self.packed.spans))
        graph, gradients = self._captured(lambda: self._step(size, table), self.rewind)
        with self.on_stream():
            table.copy_(self.fused.table(gradients))
            for tensor, value in zip(kept, before, strict=True):
                tensor.copy_(value)
        self._tables.append(table)
        self.stream.synchronize()
        return graph

    def rewind(self) -> None:
        """Make the next step the epoch's first."""
        self.staging.row.zero_()
        self.metrics.restart()

    def _captured(self, work: Callable[[], T], prepare: Callable[[], None] = lambda: None) -> tuple[torch.cuda.CUDAGraph, T]:
        """Some work in a graph, and its result there; it runs a few times before, to compile kernels and choose algorithms."""
        with self.on_stream():
            for _ in range(WARM_UP):
                prepare()
                self._joined(work)
        self.streams.synchronise()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(self.stream):
            # torch.cuda.graph would wait for the whole device, hence for the runs beside this one.
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            try:
                result = self._joined(work)
            finally:
                graph.capture_end()
        return graph, result

    def _joined(self, work: Callable[[], T]) -> T:
        """A step that fails still joins its streams, or the capture would fail with another error that hides the first."""
        try:
            return work()
        finally:
            self.side.join()

    def _evaluate(self) -> Tensor:
        """The logits of :attr:`examined`, by the pass that training takes."""
        packed = self.packed
        packed.template.eval()
        try:
            with torch.no_grad():
                return _pass_of(packed.template)(packed.leaves, packed.evaluation_buffers(), self.examined)
        finally:
            packed.template.train()

    def evaluated(self, loader: BatchLoader) -> Iterator[tuple[Batch, Tensor]]:
        for batch in loader.eval_batches():
            self.examined[: len(batch.labels), : batch.inputs.shape[1]].copy_(batch.inputs)
            self.evaluation.replay()
            yield batch, self.logits[: len(batch.labels)]

    @contextmanager
    def on_stream(self) -> Iterator[None]:
        """The engine's own stream, after the work launched so far on the current one of its device."""
        self.stream.wait_stream(torch.cuda.current_stream(self.inputs.options.device))
        with torch.cuda.stream(self.stream):
            yield

    def close(self) -> None:
        self.streams.close()

    def _functions(self, size: int) -> tuple[Callable[..., Tensor], Callable[..., Tensor]]:
        """The network's pass and the loss, compiled once for all runs with this structure, loss and batch."""
        shapes = tuple((name, tuple(leaf.shape), leaf.dtype) for name, leaf in self.packed.leaves.items())
        inputs = (size, *self.staging.inputs.shape[1:])
        network, criterion = _pass_of(self.packed.template), _loss_of(self.criterion)
        if self.kernels == "compiled":
            network = self._compiled_once((shapes, repr(self.packed.template), inputs), network)
        if self.kernels != "torch" and size == self.recipe.batch:  # compiling is not worth it for one step per epoch
            held = tuple((name, tuple(buffer.shape)) for name, buffer in self.criterion.named_buffers())
            key = repr(self.criterion), held, self.inputs.classes, size, self.inputs.soft is None
            criterion = self._compiled_once(key, criterion)
        return network, criterion

    def _compiled_once(self, key: Any, function: Callable[..., Any]) -> Callable[..., Any]:
        if key not in self._compiled:
            # A code object of its own: the compiler caches only a few entries for each, and all losses would share one.
            name = f"{function.__name__}_{zlib.crc32(repr(key).encode()):08x}"
            function.__code__ = function.__code__.replace(co_name=name)
            self._compiled[key] = torch.compile(function, fullgraph=True, dynamic=False)
        return self._compiled[key]


def _use_triton_layers(template: nn.Module, side: SideStream, device: torch.device, precision: str) -> None:
    """Replace each BatchNorm, convolution and linear layer by ours, under its name."""
    first = next(module for module in template.modules() if isinstance(module, nn.Conv2d))
    for parent in list(template.modules()):
        for name, child in parent.named_children():
            if isinstance(child, Norm):
                setattr(parent, name, FusedNorm(child, device))
            elif child is first and FirstConv.suits(first):
                setattr(parent, name, FirstConv(first, "ieee" if precision == "float32" else "tf32"))
            elif isinstance(child, nn.Conv2d) and child.bias is None:
                setattr(parent, name, OverlappedConv(child, side))
            elif isinstance(child, nn.Linear):
                setattr(parent, name, OverlappedLinear(child, side))


def _pass_of(template: Classifier) -> Callable[..., Tensor]:
    def network(leaves: dict[str, Tensor], buffers: dict[str, Tensor], inputs: Tensor) -> Tensor:
        logits: Tensor = functional_call(template, {**leaves, **buffers}, (inputs,))
        return logits

    return network


def _loss_of(criterion: RobustLoss) -> Callable[..., Tensor]:
    """The loss with its tensors, class weights say, as an argument: runs share the code but not the tensors."""

    def loss(held: dict[str, Tensor], logits: Tensor, target: Tensor) -> Tensor:
        value: Tensor = functional_call(criterion, held, (logits.float(), target))
        return value

    return loss
