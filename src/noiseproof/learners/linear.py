"""Logistic regression on the features, or on RBF features (Nystroem)."""

from __future__ import annotations

import warnings
from typing import Self

import numpy as np
from numpy.typing import NDArray

from noiseproof.learners.base import (
    Arrays,
    ClassWeight,
    Floats,
    Labels,
    checked,
    checked_classes,
    drawn_rows,
    fill_classes,
    row_blocks,
    softmax,
)  # fmt: skip

__all__ = ["LogisticLearner", "RBFLearner", "squared_distances"]

MAX_LOGITS, MAX_INPUTS = 2**25, 2**28
"""Rows times classes, and rows times columns, that a logistic regression is trained on; of more rows a random part"""
MAX_ITERATIONS = 300
MAX_LANDMARKS, MAX_RBF_ROWS = 400, 100_000
RBF_NORM = 10.0
"""The mean squared norm of the RBF features, which gives C its meaning"""
MIN_EIGENVALUE = 1e-4  # relative to the largest, of the kernel between landmarks


class LogisticLearner:
    """Multinomial logistic regression with L2 regularisation."""

    def __init__(self, c: float = 1.0, *, class_weight: ClassWeight = None, seed: int = 0) -> None:
        self.c, self.class_weight, self.seed = c, class_weight, seed

    def fit(self, x: Floats, y: Labels, classes: int) -> Self:
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.linear_model import LogisticRegression

        self.classes = classes
        rows = drawn_rows(y, max(1, min(MAX_LOGITS // classes, MAX_INPUTS // x.shape[1])), self.seed)
        x, y = x[rows], y[rows]
        self.present = np.unique(y)
        if len(self.present) == 1:
            self.coefficients, self.intercept = np.zeros((1, x.shape[1]), np.float32), np.zeros(1, np.float32)
            return self
        model = LogisticRegression(C=self.c, max_iter=MAX_ITERATIONS, class_weight=self.class_weight)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # predictions have long converged when coefficients have not
            model.fit(x, y)
        self.coefficients, self.intercept = model.coef_.astype(np.float32), model.intercept_.astype(np.float32)
        if len(self.present) == 2:  # scikit-learn keeps the second class alone
            self.coefficients = np.concatenate([np.zeros_like(self.coefficients), self.coefficients])
            self.intercept = np.concatenate([np.zeros_like(self.intercept), self.intercept])
        return self

    def predict_proba(self, x: Floats) -> Floats:
        return fill_classes(softmax(x @ self.coefficients.T + self.intercept), self.present, self.classes)

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        return {
            "coefficients": self.coefficients, "intercept": self.intercept, "present": self.present,
            "classes": np.array(self.classes),
        }  # fmt: skip

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Self:
        found = checked(arrays, {"coefficients": ("f", 2), "intercept": ("f", 1), "present": ("iu", 1), "classes": ("iu", 0)})
        learner = cls()
        learner.present, learner.classes = checked_classes(found["present"], found["classes"])
        learner.coefficients, learner.intercept = (
            found["coefficients"].astype(np.float32),
            found["intercept"].astype(np.float32),
        )
        if not len(learner.present) == len(learner.coefficients) == len(learner.intercept):
            raise ValueError("a stored logistic regression must have a row of coefficients for each class")
        return learner


class RBFLearner:
    """Logistic regression on Nystroem features of a Gaussian kernel, whose width is the median distance of landmarks."""

    def __init__(self, c: float = 1.0, *, class_weight: ClassWeight = None, seed: int = 0) -> None:
        self.c, self.class_weight, self.seed = c, class_weight, seed

    def fit(self, x: Floats, y: Labels, classes: int) -> Self:
        rows = drawn_rows(y, MAX_RBF_ROWS, self.seed)
        x, y = x[rows], y[rows]
        chosen = np.random.default_rng(self.seed).choice(len(x), min(MAX_LANDMARKS, len(x)), replace=False)
        self.landmarks = np.ascontiguousarray(x[chosen], np.float32)
        distances = squared_distances(self.landmarks.astype(np.float64), self.landmarks.astype(np.float64))
        apart = distances[distances > 0]
        self.gamma = float(1 / np.median(apart)) if len(apart) else 1.0
        values, vectors = np.linalg.eigh(np.exp(-self.gamma * distances))
        kept = values > MIN_EIGENVALUE * values.max()
        self.projection = (vectors[:, kept] / np.sqrt(values[kept])).astype(np.float32)
        features = self._features(x)
        scale = np.sqrt(RBF_NORM / np.square(features).sum(1).mean())
        self.projection *= scale
        features *= scale
        self.model = LogisticLearner(self.c, class_weight=self.class_weight, seed=self.seed).fit(features, y, classes)
        return self

    def _features(self, x: Floats) -> Floats:
        found = np.empty((len(x), self.projection.shape[1]), np.float32)
        for part in row_blocks(len(x), len(self.landmarks)):
            kernel = squared_distances(x[part], self.landmarks)
            kernel *= -self.gamma
            found[part] = np.exp(kernel, out=kernel) @ self.projection
        return found

    def predict_proba(self, x: Floats) -> Floats:
        found = np.empty((len(x), self.model.classes), np.float32)
        for part in row_blocks(len(x), len(self.landmarks)):
            found[part] = self.model.predict_proba(self._features(x[part]))
        return found

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        more = {"landmarks": self.landmarks, "projection": self.projection, "gamma": np.array(self.gamma)}
        return self.model.arrays() | more

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Self:
        found = checked(arrays, {"landmarks": ("f", 2), "projection": ("f", 2), "gamma": ("f", 0)})
        learner = cls()
        learner.model = LogisticLearner.from_arrays(arrays)
        learner.landmarks, learner.projection = found["landmarks"].astype(np.float32), found["projection"].astype(np.float32)
        learner.gamma = float(found["gamma"])
        if learner.projection.shape != (len(learner.landmarks), learner.model.coefficients.shape[1]):
            raise ValueError("the projection of a stored RBF learner must be [landmarks, features]")
        return learner


def squared_distances(a: NDArray[np.floating], b: NDArray[np.floating]) -> NDArray[np.floating]:
    """Between the rows of two matrices, ``[n, m]``."""
    distances = a @ (-2 * b.T)
    distances += np.einsum("nd,nd->n", a, a)[:, None]
    distances += np.einsum("nd,nd->n", b, b)
    return np.maximum(distances, 0, out=distances)
