"""A scikit-learn classifier of features, trained with a robust loss.

>>> from sklearn.datasets import load_iris
>>> from noiseproof.sklearn import NoiseRobustClassifier
>>> x, y = load_iris(return_X_y=True)
>>> NoiseRobustClassifier("jal-ce", epochs=20, random_state=0).fit(x, y).score(x, y) > 0.9
True
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping, Sequence
from operator import index
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import nn

from noiseproof.data import Dataset, from_arrays
from noiseproof.train import Recipe, RunOptions, TrainingData, own_recipe, resolve_auto, with_noise
from noiseproof.train.batch_loader import Standardise
from noiseproof.train.engine import limited_threads, precision_of
from noiseproof.train.run import start_run

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.utils import check_random_state
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
except ImportError as error:
    raise ImportError(
        f"noiseproof.sklearn needs scikit-learn 1.6 or newer ({error}): pip install '.[lab]' in noiseproof's repository"
    ) from error

__all__ = ["NoiseRobustClassifier"]

ROWS_AT_ONCE = 4096
"""Examples that are predicted at a time"""
MAX_CLASSES_NAMED = 5
"""In a warning"""


class NoiseRobustClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc] # scikit-learn has no annotations
    """A multi-layer perceptron trained with a loss of the catalogue, by default the joint asymmetric loss.

    The defaults are those of ``noiseproof train LOSS --data FEATURES``: Adam under a cosine schedule. The order of the training
    examples does not matter: they are sorted first. Predictions are computed on the CPU in float64, so that they do not depend
    on how many examples are predicted together.

    After :meth:`fit`: ``classes_``, ``n_features_in_``, ``feature_names_in_`` where the columns have names, ``network_``, and
    ``loss_curve_``, the mean loss of each epoch.

    Args:
        loss: A name: 'noiseproof losses' lists them.
        loss_options: Its hyperparameters, such as ``{"a": 30.0}``, or ``{"a": "auto:0.3"}`` for about 30 % wrong labels.
        hidden: The widths of the hidden layers; ``()`` is multinomial logistic regression.
        epochs: Passes over the training examples.
        batch_size: Examples in a step.
        learning_rate: Of the first epoch.
        l1: Strength of the L1 penalty on the weights.
        l2: Weight decay.
        standardise: Whether features are standardised by the training examples.
        random_state: Of the initial weights and of the order of the batches.
        device: Of the training, "cpu" or "cuda".
        threads: Threads of an operation on a CPU; one by default, unless layers are wide.

    >>> from sklearn.datasets import load_iris
    >>> x, y = load_iris(return_X_y=True)
    >>> NoiseRobustClassifier("gce", epochs=20, random_state=0).fit(x, y).score(x, y) > 0.9
    True
    """

    def __init__(
        self,
        loss: str = "jal-ce",
        *,
        loss_options: Mapping[str, Any] | None = None,
        hidden: Sequence[int] = (256, 256),
        epochs: int = 100,
        batch_size: int = 128,
        learning_rate: float = 2e-3,
        l1: float = 0.0,
        l2: float = 0.0,
        standardise: bool = True,
        random_state: int | np.random.RandomState | None = None,
        device: str = "cpu",
        threads: int | None = None,
    ) -> None:
        self.loss = loss
        self.loss_options = loss_options
        self.hidden = hidden
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.l1 = l1
        self.l2 = l2
        self.standardise = standardise
        self.random_state = random_state
        self.device = device
        self.threads = threads

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:  # noqa: N803 - scikit-learn's
        """Train the network.

        Args:
            X: Features ``[N, D]``.
            y: Labels ``[N]`` of any type.
            sample_weight: How often each example counts, in whole numbers. The trainer takes the plain mean of a batch, which
                is what the robust losses are proven and tuned for; to round or to resample would be another training.

        Returns:
            The classifier itself.

        Raises:
            ValueError: Features, labels or weights cannot be trained on.
        """
        inputs, labels = validate_data(self, X, y, dtype=np.float32)
        check_classification_targets(labels)
        if sample_weight is not None:
            counts = _repetitions(_check_sample_weight(sample_weight, inputs, dtype=np.float64))
            inputs, labels = inputs.repeat(counts, axis=0), labels.repeat(counts)
        self.classes_, indices = np.unique(labels, return_inverse=True)
        self.network_: nn.Module | None = None
        self.loss_curve_: list[float] = []
        self._standardise: Standardise | None = None
        order = _sorted(inputs, indices)
        names = tuple(map(str, range(len(self.classes_))))
        dataset = from_arrays(inputs[order], indices[order], name="features", classes=names)
        recipe = self._recipe(dataset, int(check_random_state(self.random_state).randint(2**31)))
        if len(self.classes_) > 1:  # one class needs no network
            task = with_noise(dataset, recipe)
            self._train(resolve_auto(recipe, task), task)
            self._warn_of_classes_never_predicted(inputs)
        return self

    def _recipe(self, dataset: Dataset, seed: int) -> Recipe:
        chosen = own_recipe(dataset, "features", self.loss, seed=seed)
        return dataclasses.replace(
            chosen,
            loss_options=dict(self.loss_options or {}),
            model_options={"hidden": self.hidden},
            lr=float(self.learning_rate),
            l1=float(self.l1),
            l2=float(self.l2),
            epochs=index(self.epochs),
            batch=index(self.batch_size),
            standardise=bool(self.standardise),
            global_scaling=bool(self.standardise) and chosen.global_scaling,
        )

    def _train(self, recipe: Recipe, task: TrainingData) -> None:
        with precision_of(recipe, torch.are_deterministic_algorithms_enabled()):
            run = start_run(recipe, task, RunOptions(torch.device(self.device), threads=self.threads))
            try:
                self.loss_curve_ = [run.train_epoch(epoch).loss for epoch in range(recipe.epochs)]
                self.network_ = run.network.cpu().double().eval()
                self._standardise = run.transforms.standardise
            finally:
                run.close()

    def _warn_of_classes_never_predicted(self, inputs: NDArray[np.float32]) -> None:
        predicted = np.unique(self._probabilities(inputs).argmax(1))
        if self.loss != "ce" and len(predicted) < len(self.classes_):
            never = ", ".join(map(repr, np.delete(self.classes_, predicted)[:MAX_CLASSES_NAMED].tolist()))
            way = "robust losses learn slowly and may collapse onto the majority classes: try more epochs, or loss='ce'"
            warnings.warn(f"never predicted, of the training examples: class {never}; {way}", ConvergenceWarning, stacklevel=3)

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:  # noqa: N803 - scikit-learn's
        """The probability of each class.

        Args:
            X: Features ``[N, D]``.

        Returns:
            ``[N, K]``, in the order of ``classes_``.
        """
        check_is_fitted(self)
        return self._probabilities(validate_data(self, X, dtype=np.float32, reset=False))

    def _probabilities(self, inputs: NDArray[np.float32]) -> NDArray[np.float64]:
        if self.network_ is None:
            return np.ones((len(inputs), 1))
        parts = []
        with torch.no_grad(), limited_threads(self.threads or 1):  # the batches are small: threads would wait for each other
            for start in range(0, len(inputs), ROWS_AT_ONCE):
                part = inputs[start : start + ROWS_AT_ONCE]
                ready = part if self._standardise is None else self._standardise(part)
                parts.append(torch.softmax(self.network_(torch.from_numpy(ready.astype(np.float64))), 1).numpy())
        return np.concatenate(parts)

    def predict(self, X: ArrayLike) -> NDArray[Any]:  # noqa: N803 - scikit-learn's
        """The likeliest class of each example.

        Args:
            X: Features ``[N, D]``.

        Returns:
            Labels ``[N]``, as they were given to :meth:`fit`.
        """
        probabilities = self.predict_proba(X)
        found: NDArray[Any] = self.classes_[probabilities.argmax(1)]
        return found


def _repetitions(weights: NDArray[np.float64]) -> NDArray[np.int64]:
    counts = weights.astype(np.int64)
    if (counts != weights).any() or (counts < 0).any():
        wrong = weights[(counts != weights) | (counts < 0)][0]
        raise ValueError(
            f"sample_weight must be whole numbers, how often each example counts, got {wrong:g}; of others, draw examples in "
            "proportion to their weights"
        )
    if not counts.any():
        raise ValueError("sample_weight is 0 for every example: no class is left to learn")
    return counts


def _sorted(inputs: NDArray[np.float32], indices: NDArray[np.int64]) -> NDArray[np.int64]:
    """An order of the examples that depends on what they are, not on how they came."""
    rows = np.ascontiguousarray(np.column_stack([inputs.view(np.int32), indices.astype(np.int32)]))
    return np.argsort(rows.view(np.dtype((np.void, rows.itemsize * rows.shape[1]))).ravel(), kind="stable")
