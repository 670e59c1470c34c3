"""A data set written anew with other labels and without some examples, as a file that is opened like any other."""

from __future__ import annotations

import csv
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noiseproof.data.dataset import Dataset
from noiseproof.data.examples import DataError, ImageFiles
from noiseproof.data.list_lines import is_name
from noiseproof.data.opening import find_table
from noiseproof.data.tables import relabelled
from noiseproof.io.files import exists, write_whole

__all__ = ["write_cleaned"]


def write_cleaned(dataset: Dataset, place: str, labels: NDArray[np.int64], kept: NDArray[np.bool_], folder: Path) -> Path:
    """Write the training examples that are kept, with these labels, and return the file's path.

    Tables are copied as ``cleaned.csv``, with all their columns; image files become a list of that name, without the test
    split; other inputs in memory, with their test split, ``cleaned.npz``. ``place`` is what the data set was opened by.
    """
    if not kept.any():
        raise DataError(f"{place}: no example is left")
    examples, table = dataset.train, find_table(place)
    if table is not None:
        path, column = table
        to = folder / "cleaned.csv"
        if exists(to) and to.samefile(path):
            raise DataError(f"{path}: the data would be written over; choose another folder")
        write_whole(to, lambda beside: relabelled(path, column, labels, kept, beside))
        return to
    if not examples.in_memory:
        files = examples
        write_whole(folder / "cleaned.csv", lambda beside: _write_list(files, dataset.classes, labels, kept, beside))
        return folder / "cleaned.csv"
    arrays = {"x": examples.inputs[kept], "y": labels[kept]}
    if dataset.test is not None and dataset.test.in_memory:
        arrays |= {"x_test": dataset.test.inputs, "y_test": dataset.test.labels}
    write_whole(folder / "cleaned.npz", lambda beside: _write_arrays(beside, arrays))
    return folder / "cleaned.npz"


def _write_list(
    files: ImageFiles, classes: tuple[str, ...], labels: NDArray[np.int64], kept: NDArray[np.bool_], to: Path
) -> None:
    # A list of names may have no number among them.
    words = classes if all(map(is_name, classes)) else tuple(map(str, range(len(classes))))
    with to.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("path", "label"))
        for k in np.flatnonzero(kept).tolist():
            if not (path := os.path.abspath(files.paths[k])).isprintable():
                raise DataError(f"{path!r}: a list cannot have this path; rename the file")
            writer.writerow((path, words[labels[k]]))


def _write_arrays(path: Path, arrays: dict[str, Any]) -> None:
    with path.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)
