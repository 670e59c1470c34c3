"""Predictions of a cross-validation in any framework: a file for each fold, and one of all for the audit."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from noiseproof.io.arrays import NpzFile
from noiseproof.io.files import ReadError, save_arrays, write_whole

__all__ = ["join_folds", "write_fold"]


def write_fold(file: str | Path, probabilities: ArrayLike, rows: ArrayLike) -> None:
    """Write ``probabilities [n, K]``, predicted for the examples ``rows [n]`` by a model that was trained on the others."""
    p, index = np.asarray(probabilities), np.asarray(rows)
    if p.ndim != 2 or p.dtype.kind != "f" or index.shape != p.shape[:1] or index.dtype.kind not in "iu":
        raise ValueError(
            f"there must be floating probabilities [n, K] and integer rows [n], got {p.dtype} {list(p.shape)} and "
            f"{index.dtype} {list(index.shape)}"
        )
    write_whole(Path(file), lambda place: save_arrays(place, {"probabilities": p, "rows": index}))


def join_folds(files: Iterable[str | Path], file: str | Path) -> NDArray[np.float32]:
    """Make one file ``probabilities [N, K]`` of those of the folds, which together have each example once.

    ``noiseproof audit DATA --probabilities FILE`` reads it, or ``noiseproof.audit_probabilities`` what is returned.
    """
    folds = [(Path(each), *_read(Path(each))) for each in files]
    if not folds:
        raise ValueError("there is no fold to join")
    classes = {p.shape[1] for _, p, _ in folds}
    if len(classes) > 1:
        raise ValueError(f"the folds must have the same classes, got {', '.join(map(str, sorted(classes)))} columns")
    rows = np.concatenate([rows for *_, rows in folds])
    order = rows.argsort()
    if not np.array_equal(rows[order], np.arange(len(rows))):
        raise ValueError(
            f"the folds must have each of the examples 0 to {len(rows) - 1} once, got {len(np.unique(rows))} examples from "
            f"{rows.min()} to {rows.max()}; is a fold missing, or from another split?"
        )
    joined = np.concatenate([p for _, p, _ in folds])[order]
    write_whole(Path(file), lambda place: save_arrays(place, {"probabilities": joined}))
    return joined


def _read(path: Path) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    with NpzFile(path) as archive:
        if missing := {"probabilities", "rows"} - set(archive.names):
            raise ReadError(path, f"it has no array {min(missing)!r}; HeldOutProbabilities writes what is joined")
        p, rows = archive.array("probabilities"), archive.array("rows")
    if p.ndim != 2 or p.dtype.kind != "f" or rows.shape != p.shape[:1] or rows.dtype.kind not in "iu" or not len(rows):
        raise ReadError(path, f"probabilities {p.dtype} {p.shape} and rows {rows.dtype} {rows.shape} do not go together")
    return p, rows
