"""A scikit-learn classifier for labels of which some may be wrong: ``noiseproof.fit``, or a network trained with one loss.

>>> from sklearn.datasets import load_iris
>>> from noiseproof.sklearn import NoiseRobustClassifier
>>> x, y = load_iris(return_X_y=True)
>>> NoiseRobustClassifier(quick=True, random_state=0).fit(x, y).score(x, y) > 0.9
True
"""

from __future__ import annotations

import dataclasses
import inspect
import warnings
from collections.abc import Mapping, Sequence
from operator import index
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import nn

from noiseproof.data import Dataset, from_arrays, open_dataset
from noiseproof.fitting import FittedModel
from noiseproof.fitting.run import fit
from noiseproof.train import Recipe, RunOptions, TrainingData, own_recipe, resolve_auto, with_noise
from noiseproof.train.batch_loader import Standardise
from noiseproof.train.engine import limited_threads, precision_of
from noiseproof.train.run import start_run

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.utils import _safe_indexing, check_consistent_length, check_random_state, column_or_1d
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import _check_sample_weight, _get_feature_names, check_is_fitted, validate_data
except ImportError as error:
    raise ImportError(
        f"noiseproof.sklearn needs scikit-learn 1.6 or newer ({error}): pip install '.[lab]' in noiseproof's repository"
    ) from error

__all__ = ["NoiseRobustClassifier"]

FIT = "auto"
"""The name of a loss that stands for :func:`noiseproof.fit`"""
OPTIONS_OF_FIT = ("metric", "quick", "n_jobs")
OPTIONS_OF_A_NETWORK = ("loss_options", "hidden", "epochs", "batch_size", "learning_rate", "l1", "l2", "standardise", "device")
ROWS_AT_ONCE = 4096
"""Examples that are predicted at a time"""
MAX_CLASSES_NAMED = 5
"""In a warning"""
MAX_REPETITIONS = 10
"""Whole numbers of ``sample_weight`` repeat the examples if all together are at most so many times as many"""


class NoiseRobustClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc] # scikit-learn has no annotations
    """A classifier for labels of which some may be wrong: :func:`noiseproof.fit`, or with a loss's name one network.

    ``loss="auto"``, the default, cross-validates learners of several kinds and combines them by a model of the noise. The
    columns of a data frame may be numbers with gaps, categories, dates and texts. ``print(classifier.model_)`` says how many
    labels are wrong, and ``model_.audit`` which.

    A loss's name trains a multi-layer perceptron with the defaults of ``noiseproof train LOSS --data FEATURES``: Adam under a
    cosine schedule. The order of the training examples does not matter: they are sorted first. Predictions are computed on the
    CPU in float64, so that they do not depend on how many examples are predicted together.

    After :meth:`fit`: ``classes_``, ``n_features_in_``, ``feature_names_in_`` where the columns have names; ``model_``, the
    :class:`noiseproof.FittedModel`, or else ``network_`` and ``loss_curve_``, the mean loss of each epoch.

    Args:
        loss: "auto" for :func:`noiseproof.fit`, or the loss of a network: 'noiseproof losses' lists them.
        loss_options: Its hyperparameters, such as ``{"a": 30.0}``, or ``{"a": "auto:0.3"}`` for about 30 % wrong labels.
        class_weight: How much the examples of each class count: "balanced", the same for every class; a weight for each class;
            None, the same for every example. "auto" does for a network what ``noiseproof train`` does: losses that would
            collapse onto the majority class get tempered weights and start with cross entropy.
        hidden: The widths of the hidden layers; ``()`` is multinomial logistic regression.
        epochs: Passes over the training examples.
        batch_size: Examples in a step.
        learning_rate: Of the first epoch.
        l1: Strength of the L1 penalty on the weights.
        l2: Weight decay.
        standardise: Whether features are standardised by the training examples.
        random_state: Of the folds, the learners, the initial weights and the order of the batches.
        device: Of the training, "cpu" or "cuda".
        threads: Threads of an operation on a CPU; one by default, unless layers are wide.
        metric: With "auto", what predictions are decided for: "accuracy", "balanced_accuracy" or "f1_macro".
        quick: With "auto", fewer learners and folds: about a fifth of the time, less accurate.
        n_jobs: With "auto", learners that are trained concurrently; -1 is one for each core.

    >>> from sklearn.datasets import load_iris
    >>> x, y = load_iris(return_X_y=True)
    >>> NoiseRobustClassifier("gce", epochs=20, random_state=0).fit(x, y).score(x, y) > 0.9
    True
    """

    def __init__(
        self,
        loss: str = FIT,
        *,
        loss_options: Mapping[str, Any] | None = None,
        class_weight: Mapping[Any, float] | str | None = "auto",
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
        metric: str = "accuracy",
        quick: bool = False,
        n_jobs: int | None = None,
    ) -> None:
        self.loss = loss
        self.loss_options = loss_options
        self.class_weight = class_weight
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
        self.metric = metric
        self.quick = quick
        self.n_jobs = n_jobs

    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:  # noqa: N803 - scikit-learn's
        """Train.

        Args:
            X: Features ``[N, D]``; with ``loss="auto"`` also a data frame whose columns may be of any kind.
            y: Labels ``[N]`` of any type. A network also learns soft labels, probabilities ``[N, K]``; the classes are then the
                numbers of the columns, or their names in a data frame.
            sample_weight: How much each example counts. Whole numbers are how often it counts. A network multiplies the losses
                by others, with a mean of 1. ``loss="auto"`` repeats the examples: others are divided by what they are multiples
                of, or rounded to a tenth of their mean, which takes up to ten times as long.

        Returns:
            The classifier itself.

        Raises:
            ValueError: Features, labels or weights cannot be trained on.
        """
        self._check_options()
        seed = int(check_random_state(self.random_state).randint(2**31))
        soft, shape = None, np.asarray(y).shape
        if len(shape) == 2 and shape[1] > 1:
            if self.loss == FIT:
                raise ValueError(f"y must be a 1d array with loss={FIT!r}, got shape {shape}; loss='ce' learns soft labels")
            self.classes_, soft = _soft_labels(y)
            inputs, indices = validate_data(self, X, soft.argmax(1), dtype=np.float32)
        else:
            inputs, labels = self._validated(X, y)
            check_classification_targets(labels)
            self.classes_, indices = np.unique(labels, return_inverse=True)
        weights = None
        if sample_weight is not None:
            weights = _checked_weights(_check_sample_weight(sample_weight, np.zeros((len(indices), 1)), dtype=np.float64))
        if self.loss == FIT:
            self._fit_model(inputs, indices, weights, seed)
        else:
            self._fit_network(inputs, indices, soft, weights, seed)
        return self

    def _check_options(self) -> None:
        """An error for an option that says nothing here."""
        unused = OPTIONS_OF_A_NETWORK if self.loss == FIT else OPTIONS_OF_FIT
        defaults = inspect.signature(type(self).__init__).parameters
        for name in unused:
            if getattr(self, name) != defaults[name].default:
                only = "a network, loss='jal-ce' say" if self.loss == FIT else f"loss={FIT!r}"
                raise ValueError(f"{name} is an option of {only}, and says nothing with loss={self.loss!r}")

    def _validated(self, X: Any, y: ArrayLike) -> tuple[Any, NDArray[Any]]:  # noqa: N803 - scikit-learn's
        """Inputs for what is trained, and one label for each."""
        if self.loss != FIT:
            found: tuple[Any, NDArray[Any]] = validate_data(self, X, y, dtype=np.float32)
            return found
        if _get_feature_names(X) is None:
            return validate_data(self, X, y, ensure_all_finite="allow-nan", ensure_min_samples=2)  # type: ignore[no-any-return]
        frame, labels = validate_data(self, X, y, skip_check_array=True)
        check_consistent_length(frame, labels)
        return frame, column_or_1d(labels, warn=True)

    def _fit_model(self, inputs: Any, indices: NDArray[np.int64], weights: NDArray[np.float64] | None, seed: int) -> None:
        if isinstance(self.class_weight, Mapping) or self.class_weight not in (None, "auto", "balanced"):
            raise ValueError(f"class_weight must be None or 'balanced' with loss={FIT!r}, got {self.class_weight!r}")
        groups: Any = None
        if weights is not None:
            counts = _nearest_repetitions(weights)
            groups = np.arange(len(counts)).repeat(counts)
            inputs, indices = _safe_indexing(inputs, groups), indices[groups]
            there, indices = np.unique(indices, return_inverse=True)
            self.classes_ = self.classes_[there]
        self.model_: FittedModel | None = None
        if len(self.classes_) > 1:  # one class needs no model
            given: Any = indices
            dataset = dataclasses.replace(open_dataset(inputs, label=given), classes=tuple(map(str, self.classes_)))
            jobs = None if self.n_jobs == -1 else self.n_jobs or 1
            balanced: Any = "balanced" if self.class_weight == "balanced" else None
            options: dict[str, Any] = {"metric": self.metric, "quick": self.quick, "threads": self.threads, "jobs": jobs}
            self.model_ = fit(dataset, class_weight=balanced, groups=groups, seed=seed, **options)

    def _fit_network(
        self,
        inputs: NDArray[np.float32],
        indices: NDArray[np.int64],
        soft: NDArray[np.float32] | None,
        weights: NDArray[np.float64] | None,
        seed: int,
    ) -> None:
        self.network_: nn.Module | None = None
        self.loss_curve_: list[float] = []
        self._standardise: Standardise | None = None
        if weights is not None:
            counts = _repetitions(weights)
            rows = np.flatnonzero(weights) if counts is None else np.arange(len(weights)).repeat(counts)
            inputs, indices, soft = inputs[rows], indices[rows], None if soft is None else soft[rows]
            if soft is None:
                there, indices = np.unique(indices, return_inverse=True)
                self.classes_ = self.classes_[there]
            if counts is None:
                soft = np.eye(len(self.classes_), dtype=np.float32)[indices] if soft is None else soft
                soft = soft * (weights[rows] / weights[rows].mean())[:, None].astype(np.float32)
        order = _sorted(inputs, indices)
        names = tuple(map(str, range(len(self.classes_))))
        dataset = from_arrays(inputs[order], indices[order], name="features", classes=names)
        recipe = self._recipe(dataset, seed)
        if len(self.classes_) > 1:  # one class needs no network
            task = with_noise(dataset, recipe)
            task = dataclasses.replace(task, soft=None if soft is None else soft[order])
            self._train(resolve_auto(recipe, task), task)
            self._warn_of_classes_never_predicted(inputs, indices)

    def _recipe(self, dataset: Dataset, seed: int) -> Recipe:
        chosen = own_recipe(dataset, "features", self.loss, seed=seed)
        return dataclasses.replace(
            chosen,
            loss_options=dict(self.loss_options or {}),
            class_weight=self._weights_by_index(),
            model_options={"hidden": self.hidden},
            lr=float(self.learning_rate),
            l1=float(self.l1),
            l2=float(self.l2),
            epochs=index(self.epochs),
            batch=index(self.batch_size),
            standardise=bool(self.standardise),
            global_scaling=bool(self.standardise) and chosen.global_scaling,
        )

    def _weights_by_index(self) -> Any:
        """``class_weight`` with the positions of the classes, which are their names in training."""
        if not isinstance(self.class_weight, Mapping):
            return self.class_weight
        positions = {label: str(position) for position, label in enumerate(self.classes_.tolist())}
        if unknown := [label for label in self.class_weight if label not in positions]:
            raise ValueError(f"class_weight names {unknown[0]!r}, and the labels are {self.classes_.tolist()[:20]}")
        return {positions[label]: weight for label, weight in self.class_weight.items()}

    def _train(self, recipe: Recipe, task: TrainingData) -> None:
        with precision_of(recipe, torch.are_deterministic_algorithms_enabled()):
            run = start_run(recipe, task, RunOptions(torch.device(self.device), threads=self.threads))
            try:
                self.loss_curve_ = [run.train_epoch(epoch).loss for epoch in range(recipe.epochs)]
                self.network_ = run.network.cpu().double().eval()
                self._standardise = run.transforms.standardise
            finally:
                run.close()

    def _warn_of_classes_never_predicted(self, inputs: NDArray[np.float32], indices: NDArray[np.int64]) -> None:
        lost = np.setdiff1d(indices, self._probabilities(inputs).argmax(1))
        if self.loss != "ce" and len(lost):
            never = ", ".join(map(repr, self.classes_[lost[:MAX_CLASSES_NAMED]].tolist()))
            way = "robust losses learn slowly and may collapse onto the majority classes: try more epochs, or loss='ce'"
            warnings.warn(f"never predicted, of the training examples: class {never}; {way}", ConvergenceWarning, stacklevel=4)

    def predict_proba(self, X: Any) -> NDArray[np.float64]:  # noqa: N803 - scikit-learn's
        """The probability of each class.

        Args:
            X: Features ``[N, D]``, or a data frame with the columns of training.

        Returns:
            ``[N, K]``, in the order of ``classes_``.
        """
        check_is_fitted(self)
        if self.loss != FIT:
            return self._probabilities(validate_data(self, X, dtype=np.float32, reset=False))
        named = _get_feature_names(X) is not None and hasattr(self, "feature_names_in_")
        how: dict[str, Any] = {"skip_check_array": True} if named else {"ensure_all_finite": "allow-nan"}
        rows = validate_data(self, X, reset=False, **how)
        if not named and hasattr(self, "feature_names_in_"):
            rows = dict(zip(self.feature_names_in_, rows.T, strict=True))
        return np.ones((len(X), 1)) if self.model_ is None else self.model_.predict_proba(rows).astype(np.float64)

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

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: N803 - scikit-learn's
        """The class of each example: the likeliest; with ``loss="auto"`` what :meth:`noiseproof.FittedModel.decide` chooses.

        Args:
            X: As in :meth:`predict_proba`.

        Returns:
            Labels ``[N]``, as they were given to :meth:`fit`.
        """
        probabilities = self.predict_proba(X)
        model = self.model_ if self.loss == FIT else None
        found: NDArray[Any] = self.classes_[probabilities.argmax(1) if model is None else model.decide(probabilities)]
        return found

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.loss == FIT
        return tags


def _checked_weights(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    if (weights < 0).any():
        raise ValueError(f"sample_weight must not be negative, got {weights.min():g}")
    if not weights.any():
        raise ValueError("sample_weight is 0 for every example: no class is left to learn")
    return weights


def _repetitions(weights: NDArray[np.float64]) -> NDArray[np.int64] | None:
    """How often each example counts; None if some weight is no whole number, or all together are too many."""
    if weights.sum() > MAX_REPETITIONS * len(weights):
        return None
    counts = weights.astype(np.int64)
    return counts if (counts == weights).all() else None


def _nearest_repetitions(weights: NDArray[np.float64]) -> NDArray[np.int64]:
    """How often each example counts: the weights over what they are multiples of, or else rounded to a tenth of their mean."""
    if (counts := _repetitions(weights)) is not None:
        return counts
    shares = weights / weights.max()  # so that sums are finite
    there = shares[shares > 0]
    for least in range(1, MAX_REPETITIONS + 1):
        if (counts := _repetitions((shares * (least / there.min())).round(9))) is not None:
            return counts
    nearest: NDArray[np.int64] = np.rint(MAX_REPETITIONS * shares / shares.mean()).astype(np.int64)
    return np.maximum(nearest, (weights > 0).astype(np.int64))


def _soft_labels(y: Any) -> tuple[NDArray[Any], NDArray[np.float32]]:
    """The classes and the probabilities, checked."""
    names = np.asarray(getattr(y, "columns", np.arange(np.shape(y)[1])))
    found = np.asarray(y, np.float32)
    if not (found >= 0).all() or not np.allclose(found.sum(1), 1, atol=1e-3):
        raise ValueError("soft labels must be probabilities [N, K]: not negative, and 1 in total for each example")
    return names, found


def _sorted(inputs: NDArray[np.float32], indices: NDArray[np.int64]) -> NDArray[np.int64]:
    """An order of the examples that depends on what they are, not on how they came."""
    rows = np.ascontiguousarray(np.column_stack([inputs.view(np.int32), indices.astype(np.int32)]))
    return np.argsort(rows.view(np.dtype((np.void, rows.itemsize * rows.shape[1]))).ravel(), kind="stable")
