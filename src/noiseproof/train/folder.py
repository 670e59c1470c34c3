"""The folder of a run: what it is called, and that one process at a time works in it."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from noiseproof.train.recipe import Recipe

__all__ = ["claimed", "folder_name"]

WRITTEN = ("record.json", "checkpoint.safetensors", "weights.safetensors", "confidence.npz")


def folder_name(recipe: Recipe, changes: Mapping[str, Any] | None = None) -> str:
    """A name that says what is trained; ``changes`` are what was changed in a recipe that has a name.

    >>> recipe = Recipe(dataset="digits", loss="jal-ce", noise="symmetric:0.8", seed=123)
    >>> folder_name(recipe)
    'digits_jal-ce_symmetric-0.8_seed123'
    >>> folder_name(recipe, {"lr": 0.02})
    'digits_jal-ce_symmetric-0.8_seed123_a36fb820'
    """
    parts = [_of_file(recipe.dataset), recipe.loss, _of_noise(recipe.noise), f"seed{recipe.seed}"]
    if changes:
        text = json.dumps(changes, sort_keys=True)
        parts.append(hashlib.sha256(text.encode()).hexdigest()[:8])
    return "_".join(re.sub(r"[^\w.+-]+", "-", part) for part in parts)


def _of_noise(noise: str) -> str:
    kind, _, rest = noise.partition(":")
    if kind == "labels":
        file, _, name = rest.partition("#")
        return f"labels-{_of_file(file)}" + (f"-{name}" if name else "")
    return f"{kind}-{rest}" if rest else _of_file(kind)


def _of_file(path: str) -> str:
    """The last part of a path, less an ending that only says how it is written."""
    name = Path(path).expanduser().resolve().name
    return re.sub(r"\.(npz|npy|txt|csv|tsv|json|pt)$", "", name)


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Keep other processes out of the folder, and remove what a write that was killed left there.

    The claim ends with the process, however it ends. Where the system has no such locks, nothing is claimed.
    """
    try:
        import fcntl
    except ImportError:  # not on Windows
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(f"another process is at work in {folder}; wait for it, or choose another folder") from None
        except OSError:  # a file system without locks: to sweep might take another process's file from it
            yield
            return
        for name in WRITTEN:
            for left in folder.glob(f".{name}.*"):
                left.unlink(missing_ok=True)
        yield
    finally:
        os.close(handle)
