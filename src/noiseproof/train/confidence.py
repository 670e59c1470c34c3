"""The probability that a run gives each training label, as a file."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noiseproof.files import write_whole
from noiseproof.train.checkpoint import CheckpointError
from noiseproof.train.run import Predictions
from noiseproof.train.task import Task

__all__ = ["CONFIDENCE", "read_confidence", "write_confidence"]

CONFIDENCE = "confidence.npz"


def write_confidence(folder: Path, task: Task, predictions: dict[int, Predictions]) -> None:
    """Write ``epochs [E]``, ``given [N]``, ``clean [N]`` if known, ``probability [E, N]`` of the given label, ``predicted``."""
    epochs = sorted(predictions)
    arrays: dict[str, NDArray[Any]] = {
        "epochs": np.asarray(epochs),
        "given": task.train.labels,
        "probability": np.stack([predictions[epoch].probability for epoch in epochs]),
        "predicted": np.stack([predictions[epoch].predicted for epoch in epochs]),
    }
    if task.clean is not None:
        arrays["clean"] = task.clean
    write_whole(folder / CONFIDENCE, lambda path: _save(path, arrays))


def read_confidence(folder: Path) -> dict[int, Predictions]:
    """The predictions by epoch, of a run that is finished."""
    try:
        with (folder / CONFIDENCE).open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            found = zip(arrays["epochs"].tolist(), arrays["probability"], arrays["predicted"], strict=True)
            return {epoch: Predictions(probability, predicted) for epoch, probability, predicted in found}
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise CheckpointError(
            f"{folder / CONFIDENCE}: damaged, in a run that is finished: {error}; move the folder away to run it again"
        ) from error


def _save(path: Path, arrays: dict[str, NDArray[Any]]) -> None:
    with path.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)
