"""A person's decisions on the labels of an audit, and the data with the decisions applied, written anew."""

from __future__ import annotations

import csv
import gzip
import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noiseproof.data import DataError, Dataset, ImageFiles, Labels, Table, read_labels
from noiseproof.data.columns import Frame
from noiseproof.data.frames import BINARY_SUFFIXES, raw_frame, suffix_of, tidied, with_columns
from noiseproof.data.opening import TEXT_SUFFIXES
from noiseproof.io.csv_files import is_number, sniffed
from noiseproof.io.files import ReadError, file_and_name, label_hash, save_arrays, write_whole
from noiseproof.io.limits import BLOCK_BYTES
from noiseproof.io.text import cell, csv_rows, excerpt

if TYPE_CHECKING:
    from noiseproof.data import Dataset

DECISIONS = ("keep", "relabel", "drop")
OF_COLUMN = "of"
"""The column of an exported decision that says of which labels it is, as :func:`labels_key` has it"""


class Decisions(NamedTuple):
    """The labels after a person's decisions."""

    labels: NDArray[np.int64]
    kept: NDArray[np.bool_]
    """Examples that are not dropped"""
    counts: dict[str, int]
    """How many decisions of each kind there are"""


def labels_key(given: NDArray[np.int64], classes: Sequence[str]) -> str:
    """What labels are known by, with the names of their classes.

    >>> labels_key(np.array([0, 1]), ["no", "yes"])
    '4e3c309197cb9249'
    """
    return hashlib.sha256("\0".join([label_hash(given), *classes]).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def read_decisions(path: str | Path, given: NDArray[np.int64], classes: Sequence[str]) -> Decisions:
    """Apply the decisions in a CSV file, as the page exports it, to the given labels.

    It has a header with ``index``, from 0, and ``decision``: keep, relabel, drop, or nothing. What is relabelled gets the class
    in ``label``, or in ``suggested`` where there is no such column: ``audit.csv`` with a column ``decision`` is one too. A
    ValueError says which line does not fit the labels.
    """
    rows = csv_rows(path, comments=False)
    _, header = next(rows, (0, []))
    words = [name.lower() for name in header]
    columns = {word: k for k, word in enumerate(words)}
    if missing := [name for name in ("index", "decision") if name not in columns]:
        raise ReadError(path, f"no column {missing[0]!r}; decisions have a header with index,decision,label")
    if twice := [name for name in ("index", "decision", "label", "suggested", "given") if words.count(name) > 1]:
        raise ReadError(path, f"two columns are called {twice[0]!r}")
    target = columns.get("label", columns.get("suggested"))
    numbers = {name: k for k, name in enumerate(classes)} | {cell(name): k for k, name in enumerate(classes)}
    labels, kept, counts = given.copy(), np.ones(len(given), bool), dict.fromkeys(DECISIONS, 0)
    seen: set[int] = set()
    of, key = columns.get(OF_COLUMN), labels_key(given, classes)
    for number, row in rows:
        where, decision = f"{path}:{number}", row[columns["decision"]].lower()
        if of is not None and row[of] not in ("", key):  # those of before do not say it
            raise ReadError(where, "a decision on other labels than these; export decisions from the page of these data")
        if not decision and ("given" not in columns or not row[columns["index"]]):
            continue
        index = _index(where, row[columns["index"]], len(given))
        if decision and decision not in DECISIONS:
            raise ReadError(where, f"the decision must be {', '.join(DECISIONS)} or nothing, got {excerpt(decision)!r}")
        if index in seen:
            raise ReadError(where, f"a second decision on example {index}")
        if "given" in columns and (decision or row[columns["given"]]) and numbers.get(row[columns["given"]]) != given[index]:
            said, has = excerpt(row[columns["given"]]), excerpt(classes[given[index]])
            raise ReadError(where, f"example {index} was given {said!r} when it was decided, and now is {has!r}: other data?")
        if not decision:
            continue
        if decision == "relabel":
            if target is None:
                raise ReadError(path, "no column 'label', which says what to relabel as")
            if row[target] not in numbers:
                raise ReadError(where, f"no class is called {excerpt(row[target])!r}")
            labels[index] = numbers[row[target]]
        kept[index] = decision != "drop"
        seen.add(index)
        counts[decision] += 1
    return Decisions(labels, kept, counts)


def apply_decisions(dataset: Dataset, place: str, path: Path, folder: Path) -> tuple[Decisions, Path]:
    """Write the data with decisions applied, as ``cleaned.npz`` or ``cleaned.csv``; return the decisions and the file.

    ``place`` is where the data set was opened.
    """
    found = read_decisions(path, dataset.train.labels, dataset.classes)
    if not found.kept.any():
        raise ReadError(path, "every example is dropped, and no data are left")
    folder.mkdir(parents=True, exist_ok=True)
    return found, write_cleaned(dataset, place, found.labels, found.kept, folder)


def _index(where: str, text: str, count: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 19 and int(text) < count):
        raise ReadError(where, f"the index must be a number in [0, {count - 1}], got {excerpt(text)!r}")
    return int(text)


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
    words = classes if not any(map(is_number, classes)) else tuple(map(str, range(len(classes))))
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
    frame = with_columns(frame, {label: type(values)(changed, index=frame.index, dtype=values.dtype)})
    frame[[rows.get(k, ("", True))[1] for k in range(len(frame))]].to_parquet(to, index=False)


def _first_of_each(labels: Labels) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The position in the table of the first row of each class, and the class."""
    codes, first = np.unique(labels.codes, return_index=True)
    return np.flatnonzero(labels.labelled)[first], codes
