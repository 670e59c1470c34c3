"""Finished tasks of cross-fitting as files: the predictions of a learner for a fold, and the trained learner, without objects.

A file is named by a digest of all that its task depends on, so that what was interrupted resumes to the same numbers.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noiseproof.io.arrays import read_tensors
from noiseproof.io.files import DataError, claimed, write_tensors
from noiseproof.io.text import excerpt
from noiseproof.learners.base import ClassWeight, Learner
from noiseproof.learners.catalog import SPECS
from noiseproof.version import __version__

STORE_VERSION = 1
"""Of stored tasks; another number when what is stored, or how it is computed, changes"""
PREDICTIONS = "predictions"
PARTIAL = ("*.safetensors", "*.json")
"""Files of which a killed process may have left a part"""
MODEL = "model."


class LearnerTask(NamedTuple):
    """One learner and the fold that it holds out."""

    learner: str
    fold: int


class Computed(NamedTuple):
    """What a task computes."""

    predictions: NDArray[np.float32]
    arrays: Mapping[str, NDArray[Any]]
    """Of the trained learner"""
    seconds: float


def task_key(digest: str, classes: int, task: LearnerTask, seed: int, class_weight: ClassWeight) -> str:
    """The digest of all that a task's result depends on."""
    import sklearn

    facts = {
        "stored": STORE_VERSION,
        "data": digest,
        "classes": classes,
        "learner": task.learner,
        "class_weight": class_weight,
        "fold": task.fold,
        "seed": seed,
        "versions": [__version__, sklearn.__version__],
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class TaskStore:
    """Finished tasks in a folder. One process at a time writes into it."""

    folder: Path

    @contextlib.contextmanager
    def claimed(self) -> Iterator[None]:
        """Keep other processes out, and remove what a killed one left half written."""
        with claimed(self.folder, PARTIAL):
            yield

    def path(self, task: LearnerTask, key: str) -> Path:
        return self.folder / f"{task.learner}-{task.fold}-{key[:16]}.safetensors"

    def write(
        self, task: LearnerTask, key: str, predictions: NDArray[np.float32], arrays: Mapping[str, NDArray[Any]], seconds: float
    ) -> None:
        """A task's predictions and its trained learner, whole or not at all."""
        tensors = {PREDICTIONS: np.asarray(predictions, order="C")}
        tensors |= {MODEL + name: np.asarray(array, order="C") for name, array in arrays.items()}
        facts = {"key": key, "learner": task.learner, "fold": str(task.fold), "seconds": f"{seconds:.3f}"}
        write_tensors(self.path(task, key), tensors, {**facts, "sha256": digest_of(tensors)})

    def read(self, task: LearnerTask, key: str, shape: tuple[int, int]) -> tuple[NDArray[np.float32], float] | None:
        """The predictions and the seconds of a finished task; None if there is none, or it is damaged or another task's."""
        found = read_tensors(self.path(task, key))
        if found is None:
            return None
        tensors, facts = found
        predictions = tensors.get(PREDICTIONS)
        if facts.get("key") != key or predictions is None or predictions.shape != shape or predictions.dtype != np.float32:
            return None
        if facts.get("sha256") != digest_of(tensors):
            return None
        try:
            return predictions, float(facts["seconds"])
        except (KeyError, ValueError):
            return None


def load_learner(path: Path) -> tuple[str, Learner]:
    """The name of the learner in a file of a task, and the trained learner. Nothing in the file is executed.

    Raises:
        DataError: The file is damaged, or of no learner that is known.
    """
    found = read_tensors(path, lambda name: name.startswith(MODEL))
    if found is None or (spec := SPECS.get(found[1].get("learner", ""))) is None:
        raise DataError(f"{path}: no trained learner of this version of noiseproof, or damaged")
    try:
        return spec.name, spec.load({key.removeprefix(MODEL): array for key, array in found[0].items()})
    except (KeyError, ValueError, TypeError, IndexError, OverflowError) as error:
        raise DataError(f"{path}: the trained learner in it is damaged: {excerpt(error, 200)}") from error


def digest_of(tensors: Mapping[str, NDArray[Any]]) -> str:
    digest = hashlib.sha256()
    for name in sorted(tensors):
        array = tensors[name]
        digest.update(f"{name} {array.dtype} {array.shape}\0".encode())
        digest.update(array.data)
    return digest.hexdigest()
