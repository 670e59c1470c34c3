"""A small network: two hidden layers, trained by torch with cross entropy, and predicted with NumPy."""

from __future__ import annotations

from itertools import pairwise
from typing import Self

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

__all__ = ["NetworkLearner"]

HIDDEN, BATCH = 256, 128
MAX_ROWS = 50_000
MAX_EXAMPLES, MAX_EPOCHS, MIN_EPOCHS = 400_000, 100, 8
"""Examples that a network sees in all: as many epochs as that allows, within limits"""
LEARNING_RATE, WEIGHT_DECAY = 1e-3, 1e-4
MAX_AVERAGING = 0.98  # of the moving average of weights


class NetworkLearner:
    """A multilayer perceptron: cross entropy, AdamW, a cosine schedule, a moving average of the weights."""

    def __init__(self, *, class_weight: ClassWeight = None, seed: int = 0) -> None:
        self.class_weight, self.seed = class_weight, seed

    def fit(self, x: Floats, y: Labels, classes: int) -> Self:
        import torch

        rows = drawn_rows(y, MAX_ROWS, self.seed)
        x, y = x[rows], y[rows]
        generator = torch.Generator().manual_seed(self.seed)
        weights = row_weights(y, self.class_weight)
        inputs, labels = torch.from_numpy(np.ascontiguousarray(x, np.float32)), torch.from_numpy(y)
        weight = None if weights is None else torch.from_numpy(weights.astype(np.float32))
        sizes = [x.shape[1], HIDDEN, HIDDEN, classes]
        parameters = []
        for before, after in pairwise(sizes):
            gain = 0.5 if after is sizes[-1] else 1.0  # predictions start close to even
            parameters += [torch.randn(before, after, generator=generator) * (gain * (2 / before) ** 0.5), torch.zeros(after)]
        average = [each.clone() for each in parameters]
        for each in parameters:
            each.requires_grad_(True)
        batch = min(BATCH, len(y))
        epochs = int(np.clip(MAX_EXAMPLES // len(y), MIN_EPOCHS, MAX_EPOCHS))
        steps = epochs * max(1, len(y) // batch)
        optimiser = torch.optim.AdamW(parameters, lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY, foreach=True)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
        done = 0
        for _ in range(epochs):
            order = torch.randperm(len(y), generator=generator)[: max(1, len(y) // batch) * batch]
            for part in order.split(batch):
                loss = torch.nn.functional.cross_entropy(_logits(parameters, inputs[part]), labels[part], reduction="none")
                optimiser.zero_grad(set_to_none=True)
                (loss if weight is None else loss * weight[part]).mean().backward()
                optimiser.step()
                schedule.step()
                done += 1
                with torch.no_grad():
                    torch._foreach_lerp_(average, list(parameters), 1 - min(MAX_AVERAGING, (done + 1) / (done + 10)))
        self.parameters = [each.detach().numpy() for each in average]
        self.present = np.isin(np.arange(classes), y)
        return self

    def predict_proba(self, x: Floats) -> Floats:
        w1, b1, w2, b2, w3, b3 = self.parameters
        found = np.empty((len(x), len(b3)), np.float32)
        for part in row_blocks(len(x), max(len(b3), len(b1))):
            hidden = np.maximum(x[part] @ w1 + b1, 0)
            hidden = np.maximum(hidden @ w2 + b2, 0)
            found[part] = softmax(hidden @ w3 + b3)
        found *= self.present
        found /= np.maximum(found.sum(1, keepdims=True), np.finfo(np.float32).tiny)
        return found

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


def _logits(parameters: list, x):  # type: ignore[no-untyped-def, type-arg]  # torch is imported when a network is trained
    w1, b1, w2, b2, w3, b3 = parameters
    hidden = (x @ w1 + b1).relu_()
    hidden = (hidden @ w2 + b2).relu_()
    return hidden @ w3 + b3
