"""The probability that a run gives each training label: in a file of its own at the end, before that in checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from noiseproof.io.arrays import NpzFile
from noiseproof.io.files import checksum, write_whole
from noiseproof.train.checkpoint import CheckpointError
from noiseproof.train.record import fault_of
from noiseproof.train.run import Predictions
from noiseproof.train.training_data import TrainingData

__all__ = ["CONFIDENCE", "as_tensors", "read_confidence", "take_predictions", "write_confidence"]

CONFIDENCE = "confidence.npz"
PREFIX = "predictions."
"""Of their names in a checkpoint"""


def write_confidence(folder: Path, task: TrainingData, predictions: dict[int, Predictions]) -> str:
    """Write what the run predicts for the training examples, of which there are N, after E epochs; returns the file's SHA-256.

    ``epochs [E]``; ``given [N]``, and ``clean [N]`` if known; ``probability [E, N]`` of the given label, and the class
    ``predicted [E, N]``; ``index [N]``, the example's position in the data as they were before a share was held out; and for
    image files their ``path [N]``.
    """
    epochs = sorted(predictions)
    arrays: dict[str, NDArray[Any]] = {
        "epochs": np.asarray(epochs),
        "given": task.train.labels,
        "probability": np.stack([predictions[epoch].probability for epoch in epochs]),
        "predicted": np.stack([predictions[epoch].predicted for epoch in epochs]),
        "index": np.arange(len(task.train)) if task.rows is None else task.rows,
    }
    if task.clean is not None:
        arrays["clean"] = task.clean
    if task.train.paths is not None:
        arrays["path"] = np.asarray(task.train.paths)
    digest = ""

    def save(path: Path) -> None:
        nonlocal digest
        with path.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)
        digest = checksum(path)

    write_whole(folder / CONFIDENCE, save)
    return digest


def read_confidence(folder: Path, epochs: Sequence[int], count: int) -> dict[int, Predictions]:
    """The predictions of a finished run after each of its ``epochs`` for its ``count`` examples."""
    shape = len(epochs), count
    try:
        with NpzFile(folder / CONFIDENCE) as file:
            arrays = {name: file.array(name) for name in ("epochs", "probability", "predicted")}
        found = {name: (array.dtype.kind, array.shape) for name, array in arrays.items()}
        if found != {"epochs": ("i", shape[:1]), "probability": ("f", shape), "predicted": ("i", shape)}:
            raise ValueError(f"it has not what {count} examples need after {len(epochs)} epochs, but {found}")
        if arrays["epochs"].tolist() != list(epochs):
            raise ValueError(f"it is of the epochs {arrays['epochs'].tolist()}, not {list(epochs)}")
    except (OSError, ValueError, KeyError) as error:
        fault = fault_of(error) if isinstance(error, ValueError) else error
        raise CheckpointError(
            f"{folder / CONFIDENCE}: damaged, in a run that is finished: {fault}; move the folder away to run it again"
        ) from error
    return {epoch: Predictions(arrays["probability"][i], arrays["predicted"][i]) for i, epoch in enumerate(epochs)}


def as_tensors(predictions: dict[int, Predictions]) -> dict[str, Tensor]:
    """The predictions after each epoch, by the names that they have in a checkpoint."""
    named = [(epoch, found._asdict()) for epoch, found in predictions.items()]
    return {_name(field, epoch): torch.from_numpy(array) for epoch, found in named for field, array in found.items()}


def take_predictions(tensors: dict[str, Tensor], epochs: Sequence[int], count: int) -> dict[int, Predictions]:
    """Take all predictions out of what was in a checkpoint; returns those after ``epochs``, for ``count`` examples each."""
    taken = {name: tensors.pop(name) for name in list(tensors) if name.startswith(PREFIX)}
    found = {}
    for epoch in epochs:
        both = [taken.get(_name(field, epoch)) for field in Predictions._fields]
        kinds = [None if one is None else (one.dtype, list(one.shape)) for one in both]
        if kinds != [(torch.float32, [count]), (torch.int64, [count])]:
            raise ValueError(f"it has no predictions of {count} examples after epoch {epoch}")
        found[epoch] = Predictions(*(one.numpy() for one in both if one is not None))
    return found


def _name(field: str, epoch: int) -> str:
    return f"{PREFIX}{field}.{epoch}"
