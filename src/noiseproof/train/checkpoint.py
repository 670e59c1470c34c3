"""The state of a run on disk, to resume from: tensors and facts in one file, which is complete or not there."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from noiseproof.io.files import is_file, write_whole
from noiseproof.io.text import parse_json

__all__ = ["CHECKPOINT", "Checkpoint", "CheckpointError", "epochs_kept", "read_checkpoint", "write_checkpoint", "write_tensors"]

FORMAT = "1"
CHECKPOINT = "checkpoint.safetensors"
Checkpoint = tuple[dict[str, Tensor], dict[str, Any]]
"""Tensors by name, and the facts."""


class CheckpointError(ValueError):
    """A checkpoint that this run cannot resume from; the message says why."""


def write_checkpoint(folder: Path, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
    """Replace the checkpoint: a reader finds the old one or the new one, never a part."""
    text = json.dumps(facts)
    write_tensors(folder / CHECKPOINT, tensors, {"noiseproof": FORMAT, "facts": text, "sha256": _digest(tensors, text)})


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
    if (found := metadata.get("noiseproof")) != FORMAT or "facts" not in metadata:
        raise CheckpointError(
            f"{path}: not a checkpoint of this version of noiseproof, which has format {FORMAT}, not {found}; "
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
