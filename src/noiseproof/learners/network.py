"""Networks: two hidden layers for features, convolutions for images; trained by torch with cross entropy or with JAL-CE."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from noiseproof.learners.base import (
    Arrays,
    ClassWeight,
    Floats,
    Labels,
    checked,
    drawn_rows,
    row_blocks,
    row_weights,
    softmax,
)  # fmt: skip

if TYPE_CHECKING:
    from torch import Generator, Tensor

__all__ = ["ImageLearner", "NetworkLearner"]

Loss = Literal["ce", "jal-ce"]
HIDDEN, BATCH = 256, 128
MAX_ROWS = 50_000
LEARNING_RATE, WEIGHT_DECAY = 1e-3, 1e-4
MAX_AVERAGING = 0.98  # of the moving average of weights
IMBALANCED = 2.0
"""Times the rows of the rarest class from which on JAL-CE has class weights: it would not predict a minority class"""
IMAGE_LEARNING_RATE, IMAGE_BATCH = 2e-3, 64
WIDTHS = (16, 32, 64, 128)
"""Of a CNN5 without a GPU: on 600 images of CIFAR-10 as accurate as twice these, in less than half the time"""
SHIFT = 8
"""Images are moved by up to a side's length divided by this"""
PREDICTED_AT_ONCE, MAX_CHANNELS = 256, 16
ARRAY = "tensor."


class Budget(NamedTuple):
    """Examples that a network sees in all: as many epochs as that allows, within limits."""

    examples: int
    most_epochs: int
    least_epochs: int

    def epochs(self, rows: int) -> int:
        return int(np.clip(self.examples // rows, self.least_epochs, self.most_epochs))


BUDGET = Budget(400_000, 100, 8)
IMAGE_BUDGET = Budget(60_000, 60, 8)


class NetworkLearner:
    """A multilayer perceptron: AdamW, a cosine schedule, a moving average of the weights.

    ``jal-ce`` is trained with class weights where classes are imbalanced.
    """

    def __init__(self, loss: Loss = "ce", *, class_weight: ClassWeight = None, seed: int = 0) -> None:
        self.loss, self.class_weight, self.seed = loss, class_weight, seed

    def fit(self, x: Floats, y: Labels, classes: int) -> Self:
        import torch

        rows = drawn_rows(y, MAX_ROWS, self.seed)
        x, y = x[rows], y[rows]
        generator = torch.Generator().manual_seed(self.seed)
        sizes = [x.shape[1], HIDDEN, HIDDEN, classes]
        parameters = []
        for before, after in pairwise(sizes):
            gain = 0.5 if after is sizes[-1] else 1.0  # predictions start close to even
            parameters += [torch.randn(before, after, generator=generator) * (gain * (2 / before) ** 0.5), torch.zeros(after)]
        for each in parameters:
            each.requires_grad_(True)
        inputs = torch.from_numpy(np.ascontiguousarray(x, np.float32))
        job = _Training(self.loss, BUDGET, BATCH, LEARNING_RATE, self.class_weight)
        average = job.run(lambda part: _logits(parameters, inputs[part]), parameters, [], y, generator)
        self.parameters = [each.numpy() for each in average]
        self.present = np.isin(np.arange(classes), y)
        return self

    def predict_proba(self, x: Floats) -> Floats:
        w1, b1, w2, b2, w3, b3 = self.parameters
        found = np.empty((len(x), len(b3)), np.float32)
        for part in row_blocks(len(x), max(len(b3), len(b1))):
            hidden = np.maximum(x[part] @ w1 + b1, 0)
            hidden = np.maximum(hidden @ w2 + b2, 0)
            found[part] = softmax(hidden @ w3 + b3)
        return _of_present(found, self.present)

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        return {f"parameter_{k}": each for k, each in enumerate(self.parameters)} | {"present": self.present}

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Self:
        found = checked(arrays, {f"parameter_{k}": ("f", 2 - k % 2) for k in range(6)} | {"present": ("b", 1)})
        learner = cls()
        learner.parameters = [found[f"parameter_{k}"].astype(np.float32) for k in range(6)]
        learner.present = found["present"].astype(bool)
        widths = [len(bias) for bias in learner.parameters[1::2]]
        fit = [matrix.shape[1] for matrix in learner.parameters[::2]] == widths
        fit = fit and [len(matrix) for matrix in learner.parameters[2::2]] == widths[:2] and len(learner.present) == widths[2]
        if not fit:
            raise ValueError("the layers of a stored network do not fit together")
        return learner


class ImageLearner:
    """A CNN5 on images ``[n, H, W, C]``, which are moved at random in training; otherwise as :class:`NetworkLearner`."""

    def __init__(self, loss: Loss = "ce", *, class_weight: ClassWeight = None, seed: int = 0) -> None:
        self.loss, self.class_weight, self.seed = loss, class_weight, seed

    def fit(self, x: Floats, y: Labels, classes: int) -> Self:
        import torch

        from noiseproof.models.base import CNN5, CNN5_WIDTHS

        rows = drawn_rows(y, MAX_ROWS, self.seed)
        x, y = x[rows], y[rows]
        generator = torch.Generator().manual_seed(self.seed)
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            net = CNN5(classes, in_channels=x.shape[3], widths=WIDTHS if device.type == "cpu" else CNN5_WIDTHS)
        net = net.to(device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch's stub lacks it
        parameters = list(net.parameters())
        buffers = [each for each in net.buffers() if each.is_floating_point()]

        def logits(part: Tensor) -> Tensor:
            images = _moved(torch.from_numpy(x[part.numpy()]).permute(0, 3, 1, 2), generator)
            found: Tensor = net(images.to(device, memory_format=torch.channels_last))
            return found

        job = _Training(self.loss, IMAGE_BUDGET, IMAGE_BATCH, IMAGE_LEARNING_RATE, self.class_weight)
        average = job.run(logits, parameters, buffers, y, generator)
        with torch.no_grad():
            for each, mean in zip([*parameters, *buffers], average, strict=True):
                each.copy_(mean)
        self.net, self.present = net.eval(), np.isin(np.arange(classes), y)
        return self

    def predict_proba(self, x: Floats) -> Floats:
        import torch

        found, device = np.empty((len(x), self.net.classes), np.float32), next(self.net.parameters()).device
        if x.ndim != 4 or x.shape[3] != self.net.in_channels:
            raise ValueError(f"a network for images reads [n, H, W, {self.net.in_channels}], got {list(x.shape)}")
        with torch.no_grad():
            for start in range(0, len(x), PREDICTED_AT_ONCE):
                part = slice(start, start + PREDICTED_AT_ONCE)
                images = torch.from_numpy(np.ascontiguousarray(x[part], np.float32)).permute(0, 3, 1, 2).to(device)
                found[part] = torch.softmax(self.net(images), 1).cpu().numpy()
        return _of_present(found, self.present)

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        state = {ARRAY + name: each.cpu().contiguous().numpy() for name, each in self.net.state_dict().items()}
        return state | {"present": self.present}

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Self:
        import torch

        from noiseproof.models.base import CNN5

        state = {name.removeprefix(ARRAY): array for name, array in arrays.items() if name.startswith(ARRAY)}
        state_shapes = {ARRAY + name: ("fi", array.ndim) for name, array in state.items()}
        found = checked(arrays, {**state_shapes, "present": ("b", 1)})
        learner = cls()
        learner.present = found["present"].astype(bool)
        convolutions = [array for name, array in sorted(state.items()) if array.ndim == 4]
        widths = [len(array) for array in convolutions]
        if (
            [array.shape[1] for array in convolutions[1:]] != widths[:-1]
            or not widths
            or convolutions[0].shape[1] > MAX_CHANNELS
        ):
            raise ValueError("the convolutions of a stored network do not fit together")
        learner.net = CNN5(len(learner.present), in_channels=convolutions[0].shape[1], widths=widths).eval()
        try:
            learner.net.load_state_dict({name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in state.items()})
        except RuntimeError as error:
            raise ValueError("the layers of a stored network do not fit together") from error
        return learner


class _Training(NamedTuple):
    """How a network is trained."""

    loss: Loss
    budget: Budget
    batch: int
    learning_rate: float
    class_weight: ClassWeight

    def run(
        self,
        logits: Callable[[Tensor], Tensor],
        parameters: list[Tensor],
        buffers: list[Tensor],
        y: Labels,
        generator: Generator,
    ) -> list[Tensor]:
        """Train on the rows whose logits a function computes; returns the moving average of parameters and buffers."""
        import torch

        labels = torch.from_numpy(y)
        weights = row_weights(y, "balanced" if self._weighted(y) else self.class_weight)
        weight = None if weights is None else torch.from_numpy(weights.astype(np.float32))
        average = [each.detach().clone() for each in (*parameters, *buffers)]
        batch, epochs = min(self.batch, len(y)), self.budget.epochs(len(y))
        optimiser = torch.optim.AdamW(parameters, lr=self.learning_rate, weight_decay=WEIGHT_DECAY, foreach=True)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, epochs * max(1, len(y) // batch))
        criterion, done = self._criterion(), 0
        for _ in range(epochs):
            order = torch.randperm(len(y), generator=generator)[: max(1, len(y) // batch) * batch]
            for part in order.split(batch):
                found = logits(part)
                loss = criterion(found, labels[part].to(found.device))
                optimiser.zero_grad(set_to_none=True)
                (loss if weight is None else loss * weight[part].to(found.device)).mean().backward()
                optimiser.step()
                schedule.step()
                done += 1
                with torch.no_grad():
                    now = [*parameters, *buffers]
                    torch._foreach_lerp_(average, now, 1 - min(MAX_AVERAGING, (done + 1) / (done + 10)))
        return average

    def _weighted(self, y: Labels) -> bool:
        counts = np.bincount(y)
        return self.loss != "ce" and counts.max() > IMBALANCED * counts[counts > 0].min()

    def _criterion(self) -> Callable[[Tensor, Tensor], Tensor]:
        if self.loss == "ce":
            from torch.nn import CrossEntropyLoss

            return CrossEntropyLoss(reduction="none")
        from noiseproof.losses.catalog import create_loss

        return create_loss(self.loss, reduction="none")


def _of_present(p: Floats, present: NDArray[np.bool_]) -> Floats:
    """Probabilities without those of classes that had no training row."""
    p *= present
    p /= np.maximum(p.sum(1, keepdims=True), np.finfo(np.float32).tiny)
    return p


def _logits(parameters: list[Tensor], x: Tensor) -> Tensor:
    w1, b1, w2, b2, w3, b3 = parameters
    hidden = (x @ w1 + b1).relu_()
    hidden = (hidden @ w2 + b2).relu_()
    return hidden @ w3 + b3


def _moved(images: Tensor, generator: Generator) -> Tensor:
    """Images ``[n, C, H, W]``, each moved by a random number of pixels up or down and left or right; edges are repeated."""
    import torch

    n, _, height, width = images.shape
    reach = [size // SHIFT for size in (height, width)]
    padded = torch.nn.functional.pad(images, (reach[1], reach[1], reach[0], reach[0]), mode="replicate")
    windows = padded.unfold(2, height, 1).unfold(3, width, 1)
    down, right = (torch.randint(2 * size + 1, (n,), generator=generator) for size in reach)
    return windows[torch.arange(n), :, down, right]
