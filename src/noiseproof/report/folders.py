"""A run's folder as a line of a file of records: its record, histograms of its confidence, and how large its weights are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from noiseproof.io.arrays import NpzFile
from noiseproof.io.files import ReadError, checksum, is_file
from noiseproof.io.text import excerpt, read_json
from noiseproof.report.records import check_record, compact

__all__ = ["BINS", "RECORD", "WEIGHTS", "run_line"]

BINS = 20
RECORD, CONFIDENCE, WEIGHTS = "record.json", "confidence.npz", "weights.safetensors"
SMALL = (1e-5, 1e-4, 1e-3, 1e-2)


def run_line(folder: Path) -> dict[str, Any]:
    """A ValueError names the file that is no such thing, or is damaged."""
    path = folder / RECORD
    try:
        record = read_json(path)
        line, digests = compact(record), record.get("files", {})
    except (ValueError, AttributeError, TypeError) as error:
        fault = error.fault if isinstance(error, ReadError) else error
        raise ValueError(f"{path}: not the record of a run: {fault}; move it away") from error
    check_record(str(path), line)
    for name, file, read in (("confidence", CONFIDENCE, _confidence), ("weights", WEIGHTS, _weights)):
        if name in line or not is_file(folder / file):
            continue
        if isinstance(digests, dict) and file in digests and checksum(folder / file) != digests[file]:
            raise ValueError(f"{folder / file}: damaged: its content is not what the run wrote; move it away to leave it out")
        line[name] = read(folder / file)
    return line


def _confidence(file: Path) -> dict[str, dict[str, list[int]]]:
    """Histograms of the probability of the given label, of right and of wrong ones where it is known which are which."""
    try:
        with NpzFile(file) as opened:
            arrays = {name: opened.array(name) for name in ("epochs", "probability", "given", "clean") if name in opened.names}
        epochs, probability, given = (arrays[name] for name in ("epochs", "probability", "given"))
        shapes = probability.shape, arrays.get("clean", given).shape
        if epochs.ndim != 1 or given.ndim != 1 or shapes != ((*epochs.shape, *given.shape), given.shape):
            raise ValueError("its arrays do not belong together")
    except (OSError, ValueError, KeyError) as error:
        fault = error.fault if isinstance(error, ReadError) else error
        raise ValueError(f"{file}: damaged: {fault}; move it away to leave its histograms out") from error
    right = arrays["clean"] == given if "clean" in arrays else None
    kinds = {"given": slice(None)} if right is None else {"right": right, "wrong": ~right}
    return {
        str(epoch): {kind: np.histogram(row[kept], BINS, (0, 1))[0].tolist() for kind, kept in kinds.items()}
        for epoch, row in zip(epochs.tolist(), probability, strict=True)
    }


def _weights(file: Path) -> dict[str, Any] | None:
    """Of matrices and convolutions: how many numbers, their L1 and L2 norms, and the shares that are nearly zero.

    None where they are not all finite, which JSON has no numbers for.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file  # NumPy has no bfloat16

    try:
        kept = [tensor for tensor in load_file(file).values() if tensor.ndim > 1 and tensor.is_floating_point()]
        sizes = [tensor.double().abs().numpy().ravel() for tensor in kept]
    except (SafetensorError, ValueError, KeyError, AttributeError, RuntimeError) as error:  # the last three of dtypes
        raise ValueError(f"{file}: damaged: {excerpt(error, 200)}; move it away to leave its weights out") from error
    size = np.concatenate(sizes) if sizes else np.zeros(1)
    if not np.isfinite(size).all():
        return None
    shares = {str(bound): round(float((size < bound).mean()), 4) for bound in SMALL}
    norms = {"l1": round(float(size.sum()), 2), "l2": round(float(np.sqrt((size**2).sum())), 4)}
    return {"count": int(size.size), **norms, "below": shares}
