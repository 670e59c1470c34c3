"""What a run keeps on disk beside its record: checkpoints to resume from, and the probability of each training label.

Both are single files, complete or not there. While the run goes on, its predictions are in the checkpoints.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from noiseproof.io.arrays import NpzFile
from noiseproof.io.files import checksum, is_file, write_whole
from noiseproof.io.text import parse_json
from noiseproof.train.record import fault_of
from noiseproof.train.run import Predictions
from noiseproof.train.training_data import TrainingData

__all__ = [
    "CHECKPOINT", "CONFIDENCE", "Checkpoint", "CheckpointError", "as_tensors", "epochs_kept", "read_checkpoint",
    "read_confidence", "take_predictions", "write_checkpoint", "write_confidence", "write_tensors",
]  # fmt: skip

CHECKPOINT_FORMAT = "1"
CHECKPOINT = "checkpoint.safetensors"
Checkpoint = tuple[dict[str, Tensor], dict[str, Any]]
"""Tensors by name, and the facts."""


class CheckpointError(ValueError):
    """A checkpoint that this run cannot resume from; the message says why."""


def write_checkpoint(folder: Path, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
    """Replace the checkpoint: a reader finds the old one or the new one, never a part."""
    text = json.dumps(facts)
    write_tensors(
        folder / CHECKPOINT, tensors, {"noiseproof": CHECKPOINT_FORMAT, "facts": text, "sha256": _digest(tensors, text)}
    )


def write_tensors(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str] | None = None) -> str:
    """Write a file of tensors, complete or not at all; returns its SHA-256."""
    from safetensors.torch import save

    # Not save_file: its temporary file would stay if the process is killed, and its error for a full disk is no OSError.
    content = save(tensors, metadata)
    write_whole(path, lambda place: place.write_bytes(content))
    return hashlib.sha256(content).hexdigest()


def read_checkpoint(folder: Path) -> Checkpoint | None:
    """What was last written, or None if nothing was."""
    from safetensors import SafetensorError, safe_open

    path = folder / CHECKPOINT
    if not is_file(path):
        return None
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no dictionary
    except (SafetensorError, OSError, ValueError, TypeError, AttributeError, RuntimeError) as error:  # of dtypes torch lacks
        raise CheckpointError(f"{path}: damaged, or no checkpoint: {error}; move it away to start anew") from error
    if (found := metadata.get("noiseproof")) != CHECKPOINT_FORMAT or "facts" not in metadata:
        raise CheckpointError(
            f"{path}: not a checkpoint of this version of noiseproof, which has format {CHECKPOINT_FORMAT}, not {found}; "
            "move it away to start anew"
        )
    if _digest(tensors, metadata["facts"]) != metadata.get("sha256"):
        raise CheckpointError(f"{path}: damaged, its content is not what was written; move it away to start anew")
    try:
        return tensors, parse_json(metadata["facts"])
    except ValueError as error:
        raise CheckpointError(f"{path}: its facts are not JSON: {error}; move it away to start anew") from error


def epochs_kept(folder: Path) -> int:
    """How many epochs are behind the checkpoint in a folder, to plan with: no tensor is read, and nothing is checked."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(folder / CHECKPOINT, "pt") as file:
            return len(parse_json(file.metadata()["facts"])["epochs"])
    except (SafetensorError, OSError, ValueError, TypeError, KeyError):
        return 0


def _digest(tensors: dict[str, Tensor], facts: str) -> str:
    digest = hashlib.sha256(facts.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        digest.update(tensor.contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


CONFIDENCE = "confidence.npz"
PREDICTIONS_PREFIX = "predictions."
"""Of the names of predictions in a checkpoint"""


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
    taken = {name: tensors.pop(name) for name in list(tensors) if name.startswith(PREDICTIONS_PREFIX)}
    found = {}
    for epoch in epochs:
        both = [taken.get(_name(field, epoch)) for field in Predictions._fields]
        kinds = [None if one is None else (one.dtype, list(one.shape)) for one in both]
        if kinds != [(torch.float32, [count]), (torch.int64, [count])]:
            raise ValueError(f"it has no predictions of {count} examples after epoch {epoch}")
        found[epoch] = Predictions(*(one.numpy() for one in both if one is not None))
    return found


def _name(field: str, epoch: int) -> str:
    return f"{PREDICTIONS_PREFIX}{field}.{epoch}"
