"""Forests and gradient boosting: trained by scikit-learn, kept as arrays of nodes, and predicted with NumPy.

All trees of a model are one list of nodes. A node has the column that it compares, a threshold and the place of its left child;
the right child is the next node. A leaf is its own child, and ``leaf`` gives the row of ``values`` that it predicts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

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
    row_weights,
    softmax,
)  # fmt: skip

__all__ = ["BoostingLearner", "ForestLearner", "Trees"]

TREES = 100
MAX_FOREST_LEAVES, MAX_LEAF_VALUES = 2**19, 2**23
"""Leaves of a forest, and leaves times classes, which limit the rows that each tree is grown on"""
MIN_TREE_ROWS = 500
MAX_BOOSTED = 10**8
"""Rows times columns times classes that boosting is trained on; of more rows a random part"""
BOOSTING_ITERATIONS, FEW_ITERATIONS = 100, 30
"""At most, and without early stopping"""
REGULARISATION: dict[str, Any] = {
    "learning_rate": 0.06, "max_leaf_nodes": 8, "min_samples_leaf": 20, "l2_regularization": 10, "max_features": 0.3,
    "n_iter_no_change": 8,
}  # fmt: skip
VALIDATION_SHARE = 0.1
NEVER_ABOVE = np.finfo(np.float32).max  # the threshold of a leaf, which is its own left child
PAIRS = 2**17
"""Pairs of a row and a tree that are followed at once: what they need stays in the cache"""


@dataclass(frozen=True)
class Trees:
    """The nodes of several trees, one after another."""

    roots: NDArray[np.int32]
    column: NDArray[np.int32]
    threshold: Floats
    left: NDArray[np.int32]
    """The left child; the right one is the next node. A leaf refers to itself."""
    leaf: NDArray[np.int32]
    """The row of the values that a leaf predicts, and -1 for a node that is none"""

    @staticmethod
    def of(parts: list[tuple[NDArray[Any], ...]]) -> Trees:
        """From column, threshold, left and right child (-1 in leaves) of each tree, in any order of nodes."""
        roots, columns, thresholds, lefts, leaves = [], [], [], [], []
        start = leaf_start = 0
        for column, threshold, left, right in parts:
            order, place = _sibling_order(left, right)
            is_leaf = left[order] < 0
            roots.append(start)
            columns.append(np.where(is_leaf, 0, column[order]))
            thresholds.append(np.where(is_leaf, NEVER_ABOVE, _rounded_down(threshold[order])))
            lefts.append(start + np.where(is_leaf, np.arange(len(order)), place[left[order]]))
            number = np.full(len(order), -1)
            number[is_leaf] = leaf_start + _rank(order[is_leaf])
            leaves.append(number)
            start, leaf_start = start + len(order), leaf_start + int(is_leaf.sum())

        def joined(pieces: list[NDArray[Any]], dtype: Any) -> NDArray[Any]:
            return np.concatenate(pieces).astype(dtype)

        return Trees(
            np.array(roots, np.int32), joined(columns, np.int32), joined(thresholds, np.float32), joined(lefts, np.int32),
            joined(leaves, np.int32),
        )  # fmt: skip

    def leaves_of(self, x: Floats) -> Iterator[tuple[slice, slice, NDArray[np.int32]]]:
        """Rows, trees, and the leaf ``[rows, trees]`` that each of these rows reaches in each of these trees."""
        tree_step = min(len(self.roots), 64)
        row_step = max(1, PAIRS // tree_step)
        for start in range(0, len(x), row_step):
            rows = slice(start, min(start + row_step, len(x)))
            flat = np.ascontiguousarray(x[rows]).ravel()
            for first in range(0, len(self.roots), tree_step):
                trees = slice(first, min(first + tree_step, len(self.roots)))
                yield rows, trees, self._follow(flat, rows.stop - rows.start, x.shape[1], self.roots[trees])

    def _follow(self, flat: Floats, rows: int, columns: int, roots: NDArray[np.int32]) -> NDArray[np.int32]:
        node = np.tile(roots, (rows, 1)).ravel()
        offset = np.repeat(np.arange(rows, dtype=np.int64) * columns, len(roots))
        moving = np.flatnonzero(self.leaf[node] < 0)  # a root may be a leaf
        offset, current = offset[moving], node[moving]
        while len(moving):
            child = self.left[current]
            child += flat[offset + self.column[current]] > self.threshold[current]
            node[moving] = child
            inner = self.leaf[child] < 0
            if not inner.all():
                moving, offset, child = moving[inner], offset[inner], child[inner]
            current = child
        return self.leaf[node].reshape(rows, len(roots))

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        return {"roots": self.roots, "column": self.column, "threshold": self.threshold, "left": self.left, "leaf": self.leaf}

    @staticmethod
    def from_arrays(arrays: Arrays, leaves: int) -> Trees:
        """The stored trees, if every path in them ends in one of the ``leaves``."""
        shapes = {"roots": ("iu", 1), "column": ("iu", 1), "threshold": ("f", 1), "left": ("iu", 1), "leaf": ("iu", 1)}
        found = checked(arrays, shapes)
        roots, column, left, leaf = (found[name].astype(np.int32) for name in ("roots", "column", "left", "leaf"))
        nodes, number = len(column), np.arange(len(column))
        inner = leaf < 0
        fits = len(left) == len(leaf) == len(found["threshold"]) == nodes > 0 and len(roots) > 0
        if not (
            fits and roots.min() >= 0 and roots.max() < nodes and column.min() >= 0 and leaf.max() < leaves
            and (left[inner] > number[inner]).all() and (left[inner] < nodes - 1).all()
        ):  # fmt: skip
            raise ValueError("the nodes of stored trees must lead from roots to leaves")
        threshold = np.where(inner, found["threshold"], NEVER_ABOVE).astype(np.float32)
        return Trees(roots, column, threshold, np.where(inner, left, number).astype(np.int32), leaf)


def _sibling_order(left: NDArray[Any], right: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """An order of the nodes in which children come after their parents and siblings are neighbours, and its inverse."""
    levels, level = [np.zeros(1, np.int64)], np.zeros(1, np.int64)
    while True:
        inner = level[left[level] >= 0]
        if not len(inner):
            break
        level = np.stack([left[inner], right[inner]], axis=1).ravel().astype(np.int64)
        levels.append(level)
    order = np.concatenate(levels)
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return order, place


def _rank(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    rank = np.empty(len(numbers), np.int64)
    rank[np.argsort(numbers)] = np.arange(len(numbers))
    return rank


def _rounded_down(threshold: NDArray[np.float64]) -> Floats:
    """The largest numbers of single precision that are not above: comparisons of such numbers stay as they are."""
    found = threshold.astype(np.float32)
    return np.where(found > threshold, np.nextafter(found, np.float32(-np.inf)), found)


def rows_of_a_tree(min_leaf: int, classes: int) -> int:
    """The rows that a tree of a forest is grown on at most, so that all leaves together stay within bounds."""
    return max(MIN_TREE_ROWS, min(MAX_FOREST_LEAVES, MAX_LEAF_VALUES // classes) * min_leaf // TREES)


def rows_of_boosting(columns: int, classes: int) -> int:
    """The rows that boosting is trained on at most."""
    return max(MAX_BOOSTED // (columns * classes), 50 * classes)


class ForestLearner:
    """Extremely randomised trees, of leaves with at least so many rows; the mean of the leaves' class frequencies."""

    def __init__(self, min_leaf: int = 1, *, class_weight: ClassWeight = None, seed: int = 0) -> None:
        self.min_leaf, self.class_weight, self.seed = min_leaf, class_weight, seed

    def fit(self, x: Floats, y: Labels, classes: int) -> Self:
        from sklearn.ensemble import ExtraTreesClassifier

        limit = rows_of_a_tree(self.min_leaf, classes)
        few = {"bootstrap": True, "max_samples": limit} if len(y) > limit else {}
        options: dict[str, Any] = {"min_samples_leaf": self.min_leaf, "class_weight": self.class_weight, **few}
        model = ExtraTreesClassifier(TREES, random_state=self.seed, **options).fit(x, y)
        grown = [each.tree_ for each in model.estimators_]
        self.classes, self.present = classes, model.classes_.astype(np.int64)
        self.trees = Trees.of([(t.feature, t.threshold, t.children_left, t.children_right) for t in grown])
        values = np.concatenate([t.value[t.children_left < 0, 0] for t in grown])
        self.values = (values / values.sum(1, keepdims=True)).astype(np.float16)
        return self

    def predict_proba(self, x: Floats) -> Floats:
        total = np.zeros((len(x), self.values.shape[1]), np.float32)
        for rows, _, leaves in self.trees.leaves_of(x):
            part = total[rows]
            for one in leaves.T:  # a tree at a time: the leaves' values of all trees at once would not fit in the cache
                part += self.values[one]
        total /= total.sum(1, keepdims=True)
        return fill_classes(total, self.present, self.classes)

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        return self.trees.arrays() | {"values": self.values, "present": self.present, "classes": np.array(self.classes)}

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Self:
        found = checked(arrays, {"values": ("f", 2), "present": ("iu", 1), "classes": ("iu", 0)})
        learner = cls()
        learner.present, learner.classes = checked_classes(found["present"], found["classes"])
        learner.values = found["values"].astype(np.float16)
        if learner.values.shape[1] != len(learner.present):
            raise ValueError("the leaves of a stored forest must have a value for each class")
        learner.trees = Trees.from_arrays(arrays, len(learner.values))
        return learner


class BoostingLearner:
    """Histogram gradient boosting with early stopping on a part of the rows: small trees, strong regularisation.

    ``plain`` is with the settings that scikit-learn has by default.
    """

    def __init__(self, *, plain: bool = False, class_weight: ClassWeight = None, seed: int = 0) -> None:
        self.plain, self.class_weight, self.seed = plain, class_weight, seed

    def fit(self, x: Floats, y: Labels, classes: int) -> Self:
        from sklearn.ensemble import HistGradientBoostingClassifier

        rows = drawn_rows(y, rows_of_boosting(x.shape[1], classes), self.seed)
        x, y = x[rows], y[rows]
        there, counts = np.unique(y, return_counts=True)
        if len(there) > 2 or counts.min() > 1:  # a class of one row cannot be in both parts of early stopping
            kept = np.isin(y, there[counts > 1])
            x, y = (x[kept], y[kept]) if len(np.unique(y[kept])) > 1 else (x, y)
        self.classes, self.present = classes, np.unique(y)
        if len(self.present) == 1:
            self._alone()
            return self
        held = int(np.ceil(VALIDATION_SHARE * len(y)))
        stops = bool(np.bincount(y)[self.present].min() > 1 and held >= len(self.present))
        own = {} if self.plain else REGULARISATION
        model = HistGradientBoostingClassifier(
            max_iter=BOOSTING_ITERATIONS if stops else FEW_ITERATIONS, early_stopping=stops,
            validation_fraction=VALIDATION_SHARE, random_state=self.seed, **own,
        ).fit(x, y, sample_weight=row_weights(y, self.class_weight))  # fmt: skip
        grown = [tree.nodes for step in model._predictors for tree in step]
        leaf = [nodes["is_leaf"].astype(bool) for nodes in grown]
        sides = [
            [np.where(ends, -1, nodes[side].astype(np.int64)) for side in ("left", "right")]
            for nodes, ends in zip(grown, leaf, strict=True)
        ]
        self.trees = Trees.of([(n["feature_idx"], n["num_threshold"], *side) for n, side in zip(grown, sides, strict=True)])
        self.values = np.concatenate([n["value"][ends] for n, ends in zip(grown, leaf, strict=True)]).astype(np.float32)
        self.baseline = model._baseline_prediction.ravel().astype(np.float32)
        return self

    def _alone(self) -> None:
        """What predicts a single class."""
        nothing = np.zeros(1, np.int32)
        self.trees = Trees(nothing, nothing, np.full(1, NEVER_ABOVE), nothing, nothing)
        self.values, self.baseline = np.zeros(1, np.float32), np.zeros(1, np.float32)

    def predict_proba(self, x: Floats) -> Floats:
        scores = len(self.baseline)
        total = np.tile(self.baseline, (len(x), 1))
        for rows, trees, leaves in self.trees.leaves_of(x):
            for number, one in enumerate(leaves.T, trees.start):
                total[rows, number % scores] += self.values[one]
        if len(self.present) == 2:
            total = np.concatenate([np.zeros_like(total), total], axis=1)
        return fill_classes(softmax(total), self.present, self.classes)

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        more = {"values": self.values, "baseline": self.baseline, "present": self.present, "classes": np.array(self.classes)}
        return self.trees.arrays() | more

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Self:
        shapes = {"values": ("f", 1), "baseline": ("f", 1), "present": ("iu", 1), "classes": ("iu", 0)}
        found = checked(arrays, shapes)
        learner = cls()
        learner.present, learner.classes = checked_classes(found["present"], found["classes"])
        learner.values, learner.baseline = found["values"].astype(np.float32), found["baseline"].astype(np.float32)
        if len(learner.baseline) != (1 if len(learner.present) <= 2 else len(learner.present)):
            raise ValueError("a stored boosting model must have a baseline for each class")
        learner.trees = Trees.from_arrays(arrays, len(learner.values))
        return learner
