"""A data set written anew: with other labels, and without the examples that are not kept."""

from __future__ import annotations

import csv
import gzip
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from noiseproof.data import DataError, Dataset, ImageFiles, Labels, Table, read_labels
from noiseproof.data.columns import Frame
from noiseproof.data.frames import BINARY_SUFFIXES, raw_frame, suffix_of, tidied
from noiseproof.data.lists import is_name
from noiseproof.data.opening import TEXT_SUFFIXES
from noiseproof.io.csv_files import sniffed
from noiseproof.io.files import file_and_name, save_arrays, write_whole
from noiseproof.io.limits import BLOCK_BYTES


def write_cleaned(dataset: Dataset, place: str, labels: NDArray[np.int64], kept: NDArray[np.bool_], folder: Path) -> Path:
    """Write the training examples that are kept, with these labels, and return the file's path.

    Tables are copied as ``cleaned.csv`` or ``cleaned.parquet``, with all their columns and the rows that were not trained on;
    image files become a list ``cleaned.csv``, without the test split; other inputs in memory, with their test split,
    ``cleaned.npz``. ``place`` is what the data set was opened by.
    """
    if not kept.any():
        raise DataError(f"{place}: no example is left")
    examples = dataset.train
    if dataset.table is not None:
        path = file_and_name(place)[0]
        to = folder / ("cleaned.csv" if suffix_of(path) in TEXT_SUFFIXES else "cleaned.parquet")
        if to.exists() and to.samefile(path):
            raise DataError(f"{path}: the data would be written over; choose another folder")
        table = dataset.table
        write_whole(to, lambda beside: _relabelled(path, table, [dataset.classes[k] for k in labels], kept, beside))
        return to
    if not examples.in_memory:
        files = examples
        write_whole(folder / "cleaned.csv", lambda beside: _write_list(files, dataset.classes, labels, kept, beside))
        return folder / "cleaned.csv"
    arrays = {"x": examples.inputs[kept], "y": labels[kept]}
    if dataset.test is not None and dataset.test.in_memory:
        arrays |= {"x_test": dataset.test.inputs, "y_test": dataset.test.labels}
    write_whole(folder / "cleaned.npz", lambda beside: save_arrays(beside, arrays))
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


def _relabelled(path: Path, table: Table, labels: Sequence[str], kept: NDArray[np.bool_], to: Path) -> None:
    """Copy the file of a table with other labels of its training rows, and without those that are not kept."""
    if table.positions is None:
        raise DataError(f"{path}: which rows were trained on is not known")
    rows = dict(zip(table.positions.tolist(), zip(labels, kept.tolist(), strict=True), strict=True))
    if suffix_of(path) in BINARY_SUFFIXES:
        _relabelled_frame(raw_frame(path), table.label, rows, to)
        return
    how = sniffed(path)
    at = how.columns.index(table.label)
    csv.field_size_limit(max(csv.field_size_limit(), BLOCK_BYTES))
    opened = gzip.open if path.suffix.lower() == ".gz" else open
    with (
        opened(path, "rt", encoding=how.encoding, newline="") as read,
        to.open("w", encoding="utf-8", newline="") as written,
    ):
        writer = csv.writer(written, delimiter=how.separator, lineterminator="\n")
        lines = (row for row in csv.reader(read, delimiter=how.separator) if row)
        if how.header:
            writer.writerow(next(lines))
        for k, row in enumerate(lines):
            label, keep = rows.get(k, (None, True))
            if label is not None and row[at].strip() != label:
                row[at] = label
            if keep:
                writer.writerow(row)


def _relabelled_frame(frame: Frame, label: str, rows: Mapping[int, tuple[str, bool]], to: Path) -> None:
    """Labels keep their type: each class is written as its first label is."""
    frame = frame.set_axis([str(name) for name in frame.columns], axis=1)
    own = read_labels(tidied(frame, label)[label], label, drop_missing=True)
    values = frame[label]
    first = {own.classes[code]: values.iloc[int(k)] for k, code in zip(*_first_of_each(own), strict=True)}
    changed = [first[rows[k][0]] if k in rows else value for k, value in enumerate(values)]
    frame = frame.assign(**{label: type(values)(changed, index=frame.index, dtype=values.dtype)})
    frame[[rows.get(k, ("", True))[1] for k in range(len(frame))]].to_parquet(to, index=False)


def _first_of_each(labels: Labels) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The position in the table of the first row of each class, and the class."""
    codes, first = np.unique(labels.codes, return_index=True)
    return np.flatnonzero(labels.labelled)[first], codes
