"""Nearest neighbours: votes of the closest training rows."""

from __future__ import annotations

from typing import Self

import numpy as np
from numpy.typing import NDArray

from noiseproof.learners.base import Arrays, ClassWeight, Floats, Labels, checked, drawn_rows, row_blocks
from noiseproof.learners.linear import squared_distances

__all__ = ["NeighboursLearner"]

MAX_ROWS, MAX_NUMBERS = 20_000, 2**22
"""Training rows, and rows times columns, that are searched and stored; of more a random part"""
PRIOR_VOTES = 1.0  # distributed as the classes are


class NeighboursLearner:
    """The share of each class among the nearest training rows, with one vote for the class frequencies."""

    def __init__(self, neighbours: int = 40, *, class_weight: ClassWeight = None, seed: int = 0) -> None:
        self.neighbours, self.class_weight, self.seed = neighbours, class_weight, seed

    def fit(self, x: Floats, y: Labels, classes: int) -> Self:
        rows = drawn_rows(y, min(MAX_ROWS, max(1, MAX_NUMBERS // x.shape[1])), self.seed)
        counts = np.bincount(y, minlength=classes).astype(np.float64)
        present = counts > 0
        balanced = self.class_weight is not None
        weights = np.divide(len(y) / present.sum(), counts, out=np.zeros(classes), where=present) if balanced else present * 1.0
        frequencies = weights * counts
        self.weights = weights.astype(np.float32)
        self.prior = (PRIOR_VOTES * frequencies / frequencies.sum()).astype(np.float32)
        self.x, self.y = np.ascontiguousarray(x[rows], np.float32), y[rows]
        return self

    def predict_proba(self, x: Floats) -> Floats:
        classes, count = len(self.prior), min(self.neighbours, len(self.x))
        found = np.empty((len(x), classes), np.float32)
        for part in row_blocks(len(x), len(self.x)):
            distances = squared_distances(x[part], self.x)
            nearest = self.y[np.argpartition(distances, count - 1, axis=1)[:, :count]]
            rows = np.arange(len(nearest))[:, None] * classes
            votes = np.bincount((rows + nearest).ravel(), minlength=len(nearest) * classes).reshape(-1, classes)
            found[part] = votes * self.weights + self.prior
        found /= found.sum(1, keepdims=True)
        return found

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        return {
            "x": self.x, "y": self.y.astype(np.int32), "weights": self.weights, "prior": self.prior,
            "neighbours": np.array(self.neighbours),
        }  # fmt: skip

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Self:
        shapes = {"x": ("f", 2), "y": ("iu", 1), "weights": ("f", 1), "prior": ("f", 1), "neighbours": ("iu", 0)}
        found = checked(arrays, shapes)
        learner = cls(max(1, int(found["neighbours"])))
        learner.x, learner.y = found["x"].astype(np.float32), found["y"].astype(np.int64)
        learner.weights, learner.prior = found["weights"].astype(np.float32), found["prior"].astype(np.float32)
        if not len(learner.x) or len(learner.x) != len(learner.y) or len(learner.weights) != len(learner.prior):
            raise ValueError("stored neighbours must have a label for each row and a weight for each class")
        if learner.y.min() < 0 or learner.y.max() >= len(learner.prior):
            raise ValueError(f"the labels of stored neighbours must be in [0, {len(learner.prior)})")
        return learner
