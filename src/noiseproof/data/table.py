"""A table of mixed columns as a data set: which column has the labels, and which rows are tested on."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noiseproof.data.columns import Kind, Table, find_label_copies, fitted_encoder, parse_kinds
from noiseproof.data.dataset import DataError, Dataset, Examples, Split
from noiseproof.data.encoders import Frame, Series, as_flags, as_text
from noiseproof.data.frames import Labels, read_frame, read_labels
from noiseproof.io.files import checksum, is_file
from noiseproof.io.text import excerpt

__all__ = ["LABEL_WORDS", "PATH_WORDS", "find_label", "labels_of", "read_table"]

PATH_WORDS = frozenset({"path", "file", "filename", "filepath", "file_name", "file_path", "image", "image_path", "img", "name"})
LABEL_WORDS = frozenset({"label", "labels", "class", "class_name", "category", "target", "y"})
"""What the columns of a list or table are called, in lower case"""
NAME_WORDS = PATH_WORDS | {"", "id", "index", "unnamed: 0"}
"""What a column is called that names the rows"""
TRAIN_WORDS, TEST_WORDS = frozenset({"train", "training"}), frozenset({"test", "testing"})
MAX_SPLITS = 10
MAX_COLUMNS_NAMED = 20


def read_table(
    source: Any,
    label: str | Sequence[Any] | None = None,
    *,
    columns: str | Mapping[str, Kind] | None = None,
    test: Any = None,
    split_column: str | None = None,
    drop_unlabelled: bool = False,
    name: str | None = None,
) -> Dataset:
    """A data set from a table of mixed columns.

    Args:
        source: What :func:`noiseproof.data.read_frame` reads, or an array ``[N, D]``.
        label: The column of labels, or the labels themselves. By default a column called ``label`` or the like, or the last.
        columns: Kinds that are given instead of inferred: ``{"zip": "category"}`` or ``"zip=category,id=drop"``.
        test: The rows to test on, another table with the same columns.
        split_column: Or the column that contains ``train`` or ``test``, or whether a row is tested on.
        drop_unlabelled: Leave out rows without a label, instead of an error.
        name: Of the data set.

    Returns:
        The data set; its ``table`` contains the fitted encoder.

    Raises:
        DataError: If the table cannot be read, or has no such column.

    >>> read_table({"age": [31, None, 58], "y": ["a", "b", "a"]})
    Dataset(table: 2 classes, train 3, inputs (2,))
    """
    kinds: dict[str, Kind] = parse_kinds(columns) if isinstance(columns, str) else dict(columns or {})
    path = Path(source).expanduser() if isinstance(source, str | Path) else None
    try:
        frame = read_frame(source)
        texts = isinstance(source, list | tuple) and isinstance(source[0], str)
        kinds |= {"text": "text"} if texts else {}
        at, frame = _with_labels(frame, label)
        frames = _splits(frame, at, split_column, test)
        return _assembled(frames, at, kinds, drop_unlabelled, name or (path.stem.partition(".")[0] if path else "table"), path)
    except DataError as error:
        if path is None or str(path) in str(error):
            raise
        raise DataError(f"{path}: {error}") from error


def find_label(names: Sequence[str], label: str | None = None) -> str:
    """The column of labels: the one that is named, else the one that is called as labels are, else the last.

    >>> find_label(["age", "target", "zip"])
    'target'
    """
    if label is not None:
        if label not in names:
            raise DataError(f"no column is called {excerpt(label)!r}; {_near(label, names)}the columns are {_listed(names)}")
        return label
    known = [name for name in names if name.lower() in LABEL_WORDS]
    if len(known) > 1:
        raise DataError(f"which column has the labels? {_listed(known)} could; FILE#COLUMN or --label says which")
    return known[0] if known else names[-1]


def labels_of(labels: Any, count: int) -> Labels:
    """Labels that are handed in beside arrays or files, one for each."""
    if labels is None or isinstance(labels, str):
        raise DataError("arrays and files have no labels of their own: label=LABELS gives them, one for each")
    return read_labels(_label_values(labels, count), "label")


def _label_values(labels: Any, count: int) -> Series:
    values = labels.detach().cpu().numpy() if hasattr(labels, "detach") else labels
    values = read_frame({"label": values if hasattr(values, "dtype") else list(values)})["label"]
    if len(values) != count:
        raise DataError(f"{len(values)} labels for {count} examples")
    return values


def _with_labels(frame: Frame, label: str | Sequence[Any] | None) -> tuple[str, Frame]:
    if label is None or isinstance(label, str):
        return find_label(list(frame.columns), label), frame
    values = _label_values(label, len(frame))
    at = next(name for name in ("label", *(f"label.{k}" for k in range(len(frame.columns) + 1))) if name not in frame.columns)
    return at, frame.assign(**{at: values})


def _splits(frame: Frame, label: str, column: str | None, test: Any) -> dict[str, Frame]:
    """The rows of each split, ``train`` first."""
    if column is None:
        if test is None:
            return {"train": frame}
        other = read_frame(test)
        if label not in other.columns:
            raise DataError(f"the rows to test on have no column {label!r} of labels; the columns are {_listed(other.columns)}")
        return {"train": frame, "test": other}
    if test is not None:
        raise DataError("a file to test on and a column that says which rows to test on; give one of the two")
    words = _split_words(frame[find_label(list(frame.columns), column)], column)
    rest = frame.drop(columns=column)
    found = {name: rest[words == name].reset_index(drop=True) for name in ("train", *sorted(set(words) - {"train"}))}
    if not len(found["train"]):
        raise DataError(f"column {column!r} says 'train' of no row")
    return found


def _split_words(values: Series, column: str) -> NDArray[Any]:
    """The split of each row: ``train``, ``test`` or another name."""
    if values.isna().any():
        raise DataError(f"column {column!r} should say which rows to test on; row {int(values.isna().argmax()) + 1} is empty")
    flags = as_flags(values)
    if flags is None and set(values.unique()) <= {0, 1}:
        flags = values
    if flags is not None:
        return np.where(flags.to_numpy() == 1, "test", "train")
    words = as_text(values).str.lower()
    words = words.where(~words.isin(TRAIN_WORDS), "train").where(~words.isin(TEST_WORDS), "test")
    if len(there := sorted(set(words))) > MAX_SPLITS or "train" not in there:
        raise DataError(f"column {column!r} should contain train and test, got {_listed(there)}")
    return np.asarray(words)


def _assembled(
    frames: Mapping[str, Frame], label: str, kinds: Mapping[str, Kind], drop: bool, name: str, path: Path | None
) -> Dataset:
    labels: dict[str, Labels] = {}
    rows: dict[str, Frame] = {}
    for split, frame in frames.items():
        classes = labels["train"].classes if labels else None
        labels[split] = read_labels(frame[label], label, drop_missing=drop, classes=classes)
        rows[split] = frame.drop(columns=label)[labels[split].labelled].reset_index(drop=True)
    names = _names_column(rows["train"], kinds)
    encoder = fitted_encoder(rows["train"], kinds, names)
    copies = [
        f"column {one!r} nearly determines the label: leave it out if it is made from it, --columns {one}=drop"
        for one in find_label_copies(rows["train"], labels["train"].codes, encoder.columns)
    ]
    notes = (*filter(None, (labels["train"].note,)), *copies)
    table = Table(rows, label, kinds, encoder, notes, names)
    splits: dict[str, Examples] = {
        split: Split(encoder.transform(frame), labels[split].codes, _row_names(frame, names)) for split, frame in rows.items()
    }
    train, test = splits.pop("train"), splits.pop("test", None)
    sources = {path.name: checksum(path)} if path is not None and is_file(path) else {"table": _digest(train, test)}
    return Dataset(name, train, test, labels["train"].classes, sources, splits, table=table)


def _names_column(frame: Frame, kinds: Mapping[str, Kind]) -> str | None:
    """The one column that is called as names of rows are, and is another on every row."""
    called = [name for name in frame.columns if name.strip().lower() in NAME_WORDS and name not in kinds]
    return called[0] if len(called) == 1 and len(frame.columns) > 1 and frame[called[0]].is_unique else None


def _row_names(frame: Frame, column: str | None) -> tuple[str, ...] | None:
    if column is None or column not in frame.columns:
        return None
    return tuple(as_text(frame[column]).fillna("").tolist())


def _digest(*splits: Examples | None) -> str:
    """SHA-256 of the features and labels of rows that are in no file."""
    digest = hashlib.sha256()
    for split in splits:
        if split is not None and split.in_memory:
            digest.update(np.ascontiguousarray(split.inputs).data)
            digest.update(split.labels.data)
    return digest.hexdigest()


def _near(name: str, names: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(names), n=1)
    return f"did you mean {excerpt(near[0])!r}? " if near else ""


def _listed(names: Iterable[str]) -> str:
    given = [excerpt(str(name), 40) for name in names]
    return ", ".join(map(repr, given[:MAX_COLUMNS_NAMED])) + (", ..." if len(given) > MAX_COLUMNS_NAMED else "")
