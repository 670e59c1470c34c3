"""The learners by name, with what they are in words and what they cost."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from noiseproof.learners import linear, neighbours, network, trees
from noiseproof.learners.base import Arrays, ClassWeight, Learner

__all__ = ["LEARNERS", "PLAIN", "QUICK", "SPECS", "LearnerSpec", "default_learners"]


@dataclass(frozen=True)
class LearnerSpec:
    """One entry of the catalogue.

    Attributes:
        name: What options and stored models call it.
        description: What it is, for people.
        build: The class, with its hyperparameters; accepts ``class_weight`` and ``seed``.
        load: Rebuilds a trained learner from its arrays.
        seconds: CPU seconds on one core that it takes to train on so many rows, columns and classes and to predict a fourth as
            many; roughly, to be scaled by what was measured.
        max_classes: It is left out where there are more classes.
        reads: Features ``[n, D]``, or images ``[n, H, W, C]``.
        optional: Whether it is used only where it is named.
    """

    name: str
    description: str
    build: Callable[..., Learner]
    load: Callable[[Arrays], Learner]
    seconds: Callable[[int, int, int], float]
    max_classes: int = 10_000
    reads: Literal["features", "images"] = "features"
    optional: bool = False

    def make(self, seed: int, class_weight: ClassWeight = None) -> Learner:
        """A learner that is not trained yet.

        Args:
            seed: Seed of everything that it draws.
            class_weight: "balanced" gives all classes the same weight, None all rows.

        Returns:
            The learner.

        >>> LEARNERS["logistic-0.01"].make(0).c
        0.01
        """
        return self.build(seed=seed, class_weight=class_weight)

    @property
    def needs_torch(self) -> bool:
        """Whether torch trains it."""
        return self.load.__module__ == network.__name__

    def inputs(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """What it reads: images as they are, or their pixels as features.

        Args:
            x: Features ``[n, D]``, or images ``[n, H, W, C]``.

        Returns:
            The same numbers.
        """
        return x if self.reads == "images" else x.reshape(len(x), -1)


def _logistic_seconds(rows: int, columns: int, classes: int) -> float:
    rows = min(rows, linear.MAX_LOGITS // classes, linear.MAX_INPUTS // columns)
    return 0.01 + 5e-9 * rows * (columns + 8) * (1 + classes / 4)


def _rbf_seconds(rows: int, columns: int, classes: int) -> float:
    trained = min(rows, linear.MAX_RBF_ROWS)
    return 0.1 + 4e-10 * (rows / 4 + trained) * linear.MAX_LANDMARKS * (columns + 40) + _logistic_seconds(trained, 400, classes)


def _neighbours_seconds(rows: int, columns: int, classes: int) -> float:
    searched = min(rows, neighbours.MAX_ROWS, neighbours.MAX_NUMBERS // columns)
    return 0.01 + 1e-8 * rows / 4 * searched * (1 + columns / 500) + 2e-9 * rows * classes


def _forest_seconds(min_leaf: int, rows: int, columns: int, classes: int) -> float:
    grown = min(rows, trees.rows_of_a_tree(min_leaf, classes))
    depth = max(1.0, math.log2(grown / min_leaf))
    return 0.1 + 1.5e-6 * grown * depth * (math.sqrt(columns) + classes / 20) + 3e-5 * rows / 4


def _boosting_seconds(rows: int, columns: int, classes: int) -> float:
    boosted = min(rows, trees.rows_of_boosting(columns, classes))
    scores = 1 if classes == 2 else classes
    return float(scores) * (0.1 + 2.3e-7 * boosted * columns + 2e-5 * rows / 4)


def _network_seconds(rows: int, columns: int, classes: int) -> float:
    trained = max(1, min(rows, network.MAX_ROWS))
    return 0.05 + trained * network.BUDGET.epochs(trained) * (1.6e-5 + 1e-8 * (columns + classes))


def _image_seconds(rows: int, columns: int, classes: int) -> float:
    trained = max(1, min(rows, network.MAX_ROWS))
    seen = trained * network.IMAGE_BUDGET.epochs(trained)
    return 0.1 + (seen + rows / 12) * (3e-5 + 6e-8 * columns)


def _catalog() -> dict[str, LearnerSpec]:
    logistic, rbf, near, forest = linear.LogisticLearner, linear.RBFLearner, neighbours.NeighboursLearner, trees.ForestLearner
    boosting, net = trees.BoostingLearner, network.NetworkLearner
    specs = []
    for c, how in ((1e-4, "very strong"), (1e-3, "strong"), (1e-2, "medium")):
        words = f"logistic regression, {how} L2"
        specs.append(LearnerSpec(f"logistic-{c:g}", words, partial(logistic, c), logistic.from_arrays, _logistic_seconds))
    for c, how in ((1e-2, "strong"), (1e-1, "medium"), (1.0, "weak")):
        words = f"logistic regression on RBF features, {how} L2"
        specs.append(LearnerSpec(f"rbf-{c:g}", words, partial(rbf, c), rbf.from_arrays, _rbf_seconds))
    words = "votes of the 40 nearest neighbours"
    specs.append(LearnerSpec("neighbours-40", words, partial(near, 40), near.from_arrays, _neighbours_seconds))
    for leaf in (1, 3, 10, 30):
        words, cost = f"extremely randomised trees, at least {leaf} rows in a leaf", partial(_forest_seconds, leaf)
        specs.append(LearnerSpec(f"forest-{leaf}", words, partial(forest, leaf), forest.from_arrays, cost, max_classes=1000))
    words = "histogram gradient boosting, early stopping"
    specs.append(LearnerSpec("boosting", words, boosting, boosting.from_arrays, _boosting_seconds, max_classes=200))
    images = network.ImageLearner
    losses: tuple[tuple[str, network.Loss, str], ...] = (
        ("", "ce", "cross entropy"), ("-jal", "jal-ce", "the noise-robust JAL-CE")
    )  # fmt: skip
    for ending, loss, words in losses:
        name, described = f"network{ending}", f"neural network of two hidden layers, {words}"
        specs.append(LearnerSpec(name, described, partial(net, loss), net.from_arrays, _network_seconds, optional=loss != "ce"))
        name, described = f"cnn{ending}", f"convolutional network, {words}"
        specs.append(LearnerSpec(name, described, partial(images, loss), images.from_arrays, _image_seconds, reads="images"))
    return {spec.name: spec for spec in specs}


LEARNERS = _catalog()
"""All learners, from strong to weak regularisation within a kind"""


def _plain() -> dict[str, LearnerSpec]:
    logistic, boosting = linear.LogisticLearner, trees.BoostingLearner
    specs = [
        LearnerSpec("plain-logistic", "logistic regression", partial(logistic, 1.0), logistic.from_arrays, _logistic_seconds),
        LearnerSpec(
            "plain-boosting", "gradient boosting", partial(boosting, plain=True), boosting.from_arrays, _plain_boosting_seconds,
            max_classes=200,
        ),
    ]  # fmt: skip
    return {spec.name: spec for spec in specs}


def _plain_boosting_seconds(rows: int, columns: int, classes: int) -> float:
    return 2 * _boosting_seconds(rows, columns, classes)


PLAIN = _plain()
"""What one would train without a second thought, with scikit-learn's settings: models are compared with it"""
SPECS = {**LEARNERS, **PLAIN}
QUICK = ("logistic-0.001", "logistic-0.01", "rbf-0.1", "neighbours-40", "forest-3", "forest-10", "cnn")
"""The learners that cost least for what they are worth"""


def default_learners(images: bool, quick: bool) -> list[str]:
    """The learners for features or for images, of which some are left out where it is to be quick.

    >>> default_learners(True, quick=False)
    ['cnn', 'cnn-jal']
    """
    suiting = [spec for spec in LEARNERS.values() if (spec.reads == "images") == images and not spec.optional]
    return [spec.name for spec in suiting if not quick or spec.name in QUICK]
