"""Warnings about data before anything is trained: what the user may not have meant."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from noiseproof.data import Examples
from noiseproof.io.text import excerpt
from noiseproof.train.recipe import Recipe
from noiseproof.train.training_data import TrainingData

__all__ = ["WARM_START_HINT", "data_warnings", "rare_class_warnings", "table_warnings"]

IDENTIFIER_NAME = re.compile(r"(?:[_\s.-][iI][dD]|[a-z]I[dD])$")
"""How columns are called that name the rows, if they are not called so alone"""
MIN_ROWS_FOR_A_LABEL_COLUMN = 20
"""Rows from which a column of two values goes with two classes by chance less than once in 500,000 times"""
MAX_CLASSES_NAMED = 10
"""Classes that a warning names"""
RARE_SHARE, MAJORITY_SHARE = 0.1, 0.7
"""A class is rare if it has less than this share of the labels of the most frequent class, or if one class has more than this
share of all labels: docs/choosing.md contains the measurements"""
WARM_START_HINT = "train ce with --set epochs=10 first, then this loss from there, --set weights=RUN/weights.safetensors"


def data_warnings(recipe: Recipe, task: TrainingData) -> Iterator[str]:
    """Labels that count from 1, or are of other examples or perhaps other classes; classes that are not tested; what
    :func:`table_warnings` finds."""
    given = task.train.labels
    own = given if task.clean is None else task.clean  # noise gives labels to a class that has no example
    if len(absent := np.setdiff1d(np.arange(len(task.classes)), own)):
        numbers = task.classes == tuple(map(str, range(len(task.classes))))
        why = " (labels count from 0; a gap is a class too)" if numbers else ""
        yield f"no example to train on is of class {_named(absent, task.classes)}{why}"
    if task.test is not None and len(untested := np.setdiff1d(own, task.test.labels)):
        yield f"no example to test on is of class {_named(untested, task.classes)}: the test accuracy says nothing of it"
    if task.clean is not None and recipe.noise.startswith("labels:"):
        shares = [np.bincount(labels, minlength=len(task.classes)) / len(labels) for labels in (own, given)]
        chance, agree = float(shares[0] @ shares[1]), float((own == given).mean())
        if agree <= chance + 2 * (chance * (1 - chance) / len(own)) ** 0.5:
            yield (
                f"only {agree:.0%} of the labels in {recipe.noise.removeprefix('labels:')} are the data's own, as many as by "
                "chance: are they of the same examples, in the same order?"
            )
    if task.soft_by_order:
        named = ", ".join(task.classes[:MAX_CLASSES_NAMED]) + (", ..." if len(task.classes) > MAX_CLASSES_NAMED else "")
        yield (
            f"{recipe.noise.removeprefix('labels:')} does not name its classes: its columns are taken for {named}, in this "
            "order; an array 'classes' beside 'posterior' names them"
        )
    yield from rare_class_warnings(given, task.classes)
    yield from table_warnings(task.columns, task.train, own, task.classes)


def _named(which: NDArray[np.int64], classes: Sequence[str]) -> str:
    more = f" and {len(which) - MAX_CLASSES_NAMED} more" if len(which) > MAX_CLASSES_NAMED else ""
    return ", ".join(classes[k] for k in which[:MAX_CLASSES_NAMED]) + more


def rare_class_warnings(labels: NDArray[np.int64], classes: Sequence[str]) -> Iterator[str]:
    """Classes so much rarer than another that a robust loss may never predict them."""
    counts = np.bincount(labels, minlength=len(classes))
    largest = int(counts.argmax())
    beside = counts[largest] > MAJORITY_SHARE * len(labels)
    rare = [k for k in np.argsort(counts, kind="stable") if 0 < counts[k] < (1 if beside else RARE_SHARE) * counts[largest]]
    if rare:
        shares = [f"{excerpt(classes[k], 40)} ({counts[k] / len(labels):.1%})" for k in (*rare[:MAX_CLASSES_NAMED], largest)]
        more = f" and {len(rare) - MAX_CLASSES_NAMED} more" if len(rare) > MAX_CLASSES_NAMED else ""
        which, them = ("classes", "them") if rare[1:] else ("class", "it")
        may = f"a robust loss may never predict {them}; docs/choosing.md says what helps"
        yield f"class imbalance: {which} {', '.join(shares[:-1])}{more} beside {shares[-1]}; {may}"


def table_warnings(
    columns: Sequence[str], examples: Examples, labels: NDArray[np.int64], classes: Sequence[str]
) -> Iterator[str]:
    """Features that name the rows or are the label in other words, and classes that differ in capitals alone."""
    spellings = defaultdict(list)
    for name in classes:
        spellings[name.casefold()].append(name)
    if alike := [names for names in spellings.values() if len(set(names)) > 1]:
        more = f" ({len(alike)} such)" if len(alike) > 1 else ""
        yield f"classes {' and '.join(map(repr, alike[0]))} differ in capitals only: are they one?{more}"
    if not examples.in_memory:
        return
    there, first, which = np.unique(labels, return_index=True, return_inverse=True)
    for k, column in enumerate(columns):
        values = examples.inputs[:, k]
        if IDENTIFIER_NAME.search(column) and _all_different(values):
            yield f"column {column!r} has another whole number on every row, and is trained on: call it id if it is no feature"
        of_class = values[first]
        one_to_one = len(np.unique(of_class)) == len(there) > 1 and bool((of_class[which] == values).all())
        if one_to_one and len(labels) >= MIN_ROWS_FOR_A_LABEL_COLUMN:
            yield f"column {column!r} has one value for each class, and is trained on: leave it out if it is the label"


def _all_different(values: NDArray[np.float32]) -> bool:
    """Whether these are whole numbers, each of which comes once."""
    return bool((values == np.round(values)).all()) and len(np.unique(values)) == len(values)
