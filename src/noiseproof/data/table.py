"""A table of mixed columns as a data set: which column has the labels, of any type, and which rows are tested on."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noiseproof.data.columns import (
    Column,
    Frame,
    Kind,
    Series,
    as_flags,
    as_text,
    find_label_copies,
    infer_columns,
    is_image_column,
    listed,
    parse_kinds,
)
from noiseproof.data.dataset import Dataset, Examples, ImageFiles, Split
from noiseproof.data.embeddings import Modality
from noiseproof.data.encoders import PlainEncoder
from noiseproof.data.frames import is_frame, raw_frame, read_frame, tidied, with_columns
from noiseproof.data.images import as_pixels
from noiseproof.data.table_encoder import Table, TableEncoder, fitted_encoder
from noiseproof.io.csv_files import LABEL_WORDS, NUMBER_TEXT, PATH_WORDS, is_number
from noiseproof.io.files import DataError, checksum, checksums
from noiseproof.io.text import did_you_mean, excerpt

MAX_CLASS_SHARE = 0.1
"""More classes than this share of the rows is a question whether the label is a regression target"""
MIN_QUESTIONED_CLASSES = 20
MAX_WHOLE_LABEL = 2**53
"""Beyond it not every whole number is a float"""


@dataclass(frozen=True)
class Labels:
    """The labels of a table as class indices.

    Args:
        codes: The class of each labelled row.
        classes: What each class is called, in the order of the indices.
        labelled: Which rows of the table have a label.
        note: Whether there are so many classes that the labels may be another kind of number.

    >>> import pandas as pd
    >>> read_labels(pd.Series(["spam", "ham", "spam"]), "label").codes.tolist()
    [1, 0, 1]
    """

    codes: NDArray[np.int64]
    classes: tuple[str, ...]
    labelled: NDArray[np.bool_]
    note: str


def read_labels(values: Series, name: str, *, drop_missing: bool = False, classes: Sequence[str] | None = None) -> Labels:
    """The labels of a column of any type: texts, whole numbers, booleans, whole floats, categories.

    Args:
        values: The column.
        name: What it is called, for messages.
        drop_missing: Leave rows without a label out, instead of an error.
        classes: Those of training, if these are labels of other rows.

    Returns:
        Class indices, the names of the classes and which rows have a label.

    Raises:
        DataError: If labels are missing, are numbers with fractions, or are not among ``classes``.

    >>> import pandas as pd
    >>> read_labels(pd.Series([1.0, -1.0, 1.0]), "y").classes
    ('-1', '1')
    """
    import pandas as pd

    texts = label_texts(values, name)
    labelled = texts.notna().to_numpy()
    if not labelled.all() and not drop_missing:
        first = int(np.flatnonzero(~labelled)[0])
        count = int((~labelled).sum())
        raise DataError(
            f"{count} of {len(texts)} rows have no label in column {name!r}, the first is row {first + 1}; "
            "fill them in, or leave them out: --drop-unlabelled"
        )
    texts = texts[labelled]
    if not len(texts):
        raise DataError(f"no row has a label in column {name!r}")
    found = sorted(texts.unique(), key=_class_order)
    if classes is not None and (strange := [one for one in found if one not in classes]):
        raise DataError(f"column {name!r} has a label that training does not have, {strange[0]!r:.60}")
    names = tuple(found if classes is None else classes)
    codes = pd.Categorical(texts, categories=list(names)).codes.astype(np.int64)
    return Labels(codes, names, labelled, _label_note(len(texts), names, name) if classes is None else "")


def label_texts(values: Series, name: str) -> Series:
    """Labels of any type as texts; a DataError for numbers with fractions."""
    import pandas as pd

    if values.dtype == object and any(np.ndim(one) for one in values.array):
        raise DataError(f"labels in column {name!r} are vectors; a label is one class")
    if pd.api.types.is_bool_dtype(values.dtype):
        return values.astype("object").map({True: "True", False: "False"}).astype("str")
    if pd.api.types.is_float_dtype(values.dtype):
        present = values.dropna()
        if len(strange := present[(present % 1 != 0) | (present.abs() > MAX_WHOLE_LABEL)]):
            raise DataError(
                f"labels in column {name!r} must be classes, got the number {strange.iloc[0]}: is this a regression target?"
            )
        return values.astype("Int64").astype("str")
    return as_text(values)


def _class_order(name: str) -> tuple[int, float, str]:
    """Numbers by their size, before words."""
    return (0, float(name), name) if NUMBER_TEXT.fullmatch(name) else (1, 0.0, name)


def _label_note(count: int, classes: Sequence[str], name: str) -> str:
    if len(classes) <= max(MIN_QUESTIONED_CLASSES, MAX_CLASS_SHARE * count):
        return ""
    return f"{len(classes)} classes in {count} rows: is column {name!r} a regression target?"


NAME_WORDS = PATH_WORDS | {"", "id", "index", "unnamed: 0"}
"""What a column is called that names the rows"""
TRAIN_WORDS, TEST_WORDS = frozenset({"train", "training"}), frozenset({"test", "testing"})
MAX_SPLITS = 10
IMAGE = "image"
"""What the column of images is called that are in no table"""


def read_table(
    source: Any,
    label: str | Sequence[Any] | None = None,
    *,
    columns: str | Mapping[str, Kind] | None = None,
    test: Any = None,
    split_column: str | None = None,
    drop_unlabelled: bool = False,
    encoder: str | None = None,
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
        encoder: The name, folder or ``module:function`` of a pretrained encoder of texts or images.
        name: Of the data set.

    Returns:
        The data set; its ``table`` contains the fitted encoder.

    Raises:
        DataError: If the table cannot be read, or has no such column.

    >>> read_table({"age": [31, None, 58], "y": ["a", "b", "a"]})
    Dataset(table: 2 classes, train 3, inputs (2,))
    """
    kinds: dict[str, Kind] = parse_kinds(columns) if isinstance(columns, str) else dict(columns or {})
    path = Path(source).expanduser() if isinstance(source, str | os.PathLike) else None
    try:
        frame = raw_frame(source, [label] if isinstance(label, str) and not is_number(label) else [])
        texts = isinstance(source, list | tuple) and isinstance(source[0], str)
        kinds |= {"text": "text"} if texts else {}
        at, frame = _with_labels(frame, label)
        splits = _splits(_with_image_paths(tidied(frame, at), source), at, split_column, test)
        sources = checksums([Path(one).expanduser() for one in (source, test) if isinstance(one, str | os.PathLike)])
        called = name or (path.stem.partition(".")[0] if path else "table")
        return _assembled(splits, at, kinds, drop_unlabelled, called, sources, encoder)
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
            raise DataError(
                f"no column is called {excerpt(label)!r}; {did_you_mean(label, names)}the columns are {listed(names)}"
            )
        return label
    known = [name for name in names if name.lower() in LABEL_WORDS]
    if len(known) > 1:
        raise DataError(f"which column has the labels? {listed(known)} could; --label says which")
    return known[0] if known else names[-1]


def labels_of(labels: Any, count: int) -> Labels:
    """Labels that are handed in beside arrays or files, one for each."""
    if labels is None or isinstance(labels, str):
        raise DataError("arrays and files have no labels of their own: label=LABELS gives them, one for each")
    return read_labels(_label_values(labels, count), "label")


def _label_values(labels: Any, count: int) -> Series:
    values = labels.detach().cpu().numpy() if hasattr(labels, "detach") else labels
    if np.ndim(values) > 1:
        values = np.asarray(values)
        if values.shape[1:] != (1,):
            raise DataError(f"there must be one label for each row, got labels of shape {list(values.shape)}")
        values = values[:, 0]
    values = read_frame({"label": values if hasattr(values, "dtype") else list(values)})["label"]
    if len(values) != count:
        raise DataError(f"{len(values)} labels for {count} examples")
    return values


def _with_labels(frame: Frame, label: str | Sequence[Any] | None) -> tuple[str, Frame]:
    if label is None or isinstance(label, str):
        return find_label([str(name) for name in frame.columns], label), frame
    values = _label_values(label, len(frame))
    at = next(name for name in ("label", *(f"label.{k}" for k in range(len(frame.columns) + 1))) if name not in frame.columns)
    return at, frame.assign(**{at: values})


def _splits(frame: Frame, label: str, column: str | None, test: Any) -> dict[str, tuple[Frame, NDArray[np.int64]]]:
    """The rows of each split and their positions in its source, ``train`` first."""
    if column is None:
        splits = {"train": (frame, np.arange(len(frame)))}
        if test is None:
            return splits
        other = _with_image_paths(tidied(raw_frame(test), label), test)
        if label not in other.columns:
            raise DataError(f"the rows to test on have no column {label!r} of labels; the columns are {listed(other.columns)}")
        return {**splits, "test": (other, np.arange(len(other)))}
    if test is not None:
        raise DataError("a file to test on and a column that says which rows to test on; give one of the two")
    words = _split_words(frame[find_label(list(frame.columns), column)], column)
    rest = frame.drop(columns=column)
    places = {name: np.flatnonzero(words == name) for name in ("train", *sorted(set(words) - {"train"}))}
    if not len(places["train"]):
        raise DataError(f"column {column!r} says 'train' of no row")
    return {name: (rest.iloc[rows].reset_index(drop=True), rows) for name, rows in places.items()}


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
        raise DataError(f"column {column!r} should contain train and test, got {listed(there)}")
    return np.asarray(words)


def _assembled(
    splits: Mapping[str, tuple[Frame, NDArray[np.int64]]],
    label: str,
    kinds: Mapping[str, Kind],
    drop: bool,
    name: str,
    sources: dict[str, str],
    pretrained: str | None,
) -> Dataset:
    labels: dict[str, Labels] = {}
    rows: dict[str, Frame] = {}
    for split, (frame, _) in splits.items():
        classes = labels["train"].classes if labels else None
        labels[split] = read_labels(frame[label], label, drop_missing=drop, classes=classes)
        rows[split] = frame.drop(columns=label)
        if not labels[split].labelled.all():  # a selection is a copy, even of all rows
            rows[split] = rows[split][labels[split].labelled].reset_index(drop=True)
    if len(labels["train"].classes) < 2:
        raise DataError(f"all examples are of one class, {excerpt(labels['train'].classes[0])!r}; at least two are needed")
    if not len(rows["train"].columns):
        raise DataError(f"no column beside the labels, {label!r}")
    if pretrained is None and (images := _images_alone(rows, kinds)) is not None:
        return _images(name, {split: frame[images] for split, frame in rows.items()}, labels, sources)
    names = _names_column(rows["train"], kinds)
    encoder = fitted_encoder(rows["train"], kinds, names, pretrained)
    copies = [
        f"column {one!r} nearly determines the label: leave it out if it is made from it, --columns {one}=drop"
        for one in find_label_copies(rows["train"], labels["train"].codes, encoder.columns)
    ]
    notes = (*filter(None, (labels["train"].note,)), *copies)
    positions = splits["train"][1][labels["train"].labelled]
    table = Table(rows, label, kinds, encoder, notes, names, positions)
    found: dict[str, Examples] = {
        split: Split(encoder.transform(frame), labels[split].codes, row_names(frame, names), not encoder.plain)
        for split, frame in rows.items()
    }
    train, test = found.pop("train"), found.pop("test", None)
    columns = tuple(encoder.feature_names)
    sources = sources or {"table": _digest(train, test)}
    return Dataset(name, train, test, labels["train"].classes, sources, found, columns, table)


def _images_alone(rows: Mapping[str, Frame], kinds: Mapping[str, Kind]) -> str | None:
    """The column of images, if nothing else can be learnt from."""
    if not any(is_image_column(rows["train"][name]) for name in rows["train"].columns):
        return None
    columns = infer_columns(rows["train"], kinds)
    used = [one.name for one in columns if one.kind not in ("drop", "image")]
    images = [one.name for one in columns if one.kind == "image"]
    return images[0] if len(images) == 1 and not used else None


def _images(name: str, cells: Mapping[str, Series], labels: Mapping[str, Labels], sources: dict[str, str]) -> Dataset:
    """Images in files, or in memory where the cells are pixels of one size."""
    found = {split: _image_examples(values, labels[split].codes) for split, values in cells.items()}
    train, test = found.pop("train"), found.pop("test", None)
    return Dataset(name, train, test, labels["train"].classes, sources or {"images": _digest(train, test)}, found)


def _check_none_missing(images: Series) -> None:
    if images.isna().any():
        raise DataError(f"column {images.name!r} has no image in row {int(images.isna().argmax()) + 1}")


def _image_examples(values: Series, labels: NDArray[np.int64]) -> Examples:
    _check_none_missing(values)
    if isinstance(values.iloc[0], str):
        return ImageFiles(tuple(values), labels)
    pixels = [as_pixels(one) for one in values]
    if len({one.shape for one in pixels}) > 1:
        raise DataError(f"column {values.name!r} has images of several sizes; --encoder makes features of them")
    return Split(np.stack(pixels), labels)


def read_images(source: Any, label: str | None) -> tuple[Examples, list[str] | None] | None:
    """The images of a table and their labels as texts if there are some; None if no column, or several, are of images."""
    frame = _with_image_paths(tidied(raw_frame(source), label), source)
    columns = [name for name in frame.columns if is_image_column(frame[name])]
    if len(columns) != 1:
        return None
    named = label if label in frame.columns else next((name for name in frame.columns if name.lower() in LABEL_WORDS), None)
    texts = None if named in (None, *columns) else label_texts(frame[named], str(named)).fillna("").tolist()
    return _image_examples(frame[columns[0]], np.zeros(len(frame), np.int64)), texts


def encoded_images(dataset: Dataset, encoder: str) -> Dataset:
    """The data set of images with the features that a pretrained encoder makes of them."""
    if any(examples.in_memory and examples.kind != "images" for examples in dataset.splits.values()):
        raise DataError(f"--encoder {encoder}: {dataset.name} has features already, no texts and no images")
    rows = {split: image_frame(examples) for split, examples in dataset.splits.items()}
    table = Table(rows, "label", {}, TableEncoder([Column(IMAGE, "image")], pretrained=encoder).fit(rows["train"]))
    found = {
        split: Split(table.encoder.transform(rows[split]), examples.labels, examples.paths, scaled=True)
        for split, examples in dataset.splits.items()
    }
    return dataset.with_splits(found, columns=tuple(table.encoder.feature_names), table=table)


def image_frame(images: Any, column: str = IMAGE) -> Frame:
    """Images as a table of one column: of a data set's examples, a list of paths, or an array."""
    import pandas as pd

    if isinstance(images, Split | ImageFiles):
        images = images.inputs if images.in_memory else images.paths
    return pd.DataFrame({column: pd.Series([one if hasattr(one, "shape") else os.fspath(one) for one in images], dtype=object)})


def column_to_embed(source: Any, column: str | None) -> tuple[list[Any], Modality]:
    """The values of the one column of a table that has texts or images, or of the one that is named."""
    frame = _with_image_paths(tidied(raw_frame(source, [] if column is None else [column])), source)
    if column is None:
        found = [one.name for one in infer_columns(frame) if one.kind in ("text", "image")]
        found = found or [name for name in frame.columns if len(frame.columns) == 1]
        if len(found) != 1:
            there = f"{len(found)} columns of texts or images, {listed(found)}" if found else "no column of texts or images"
            raise DataError(f"{there}: --column says which of {listed(frame.columns)} is embedded")
        column = found[0]
    values = frame[find_label(list(frame.columns), column)]
    if is_image_column(values):
        _check_none_missing(values)
        return values.tolist(), "image"
    return as_text(values).fillna("").tolist(), "text"


def frame_for(encoder: TableEncoder, x: Any) -> Frame:
    """Rows in the columns of an encoder; for one of images also files and arrays of images."""
    if encoder.reads_images and not is_frame(x):
        array = x.detach().cpu().numpy() if hasattr(x, "detach") else x
        return image_frame([x] if isinstance(x, str | os.PathLike) else array, str(encoder.image_column))
    return _with_image_paths(tidied(raw_frame(x)), x)


def _with_image_paths(frame: Frame, source: Any) -> Frame:
    """Names of image files as paths: in a file they begin in its folder."""
    if not isinstance(source, str | os.PathLike):
        return frame
    folder, changed = Path(source).expanduser().parent, {}
    for name in frame.columns:
        first = frame[name].dropna().head(1)
        if len(first) and isinstance(first.iloc[0], str) and is_image_column(first) and (folder / first.iloc[0]).is_file():
            changed[name] = frame[name].map(lambda one: os.path.join(folder, one), na_action="ignore")
    return with_columns(frame, changed)


def _names_column(frame: Frame, kinds: Mapping[str, Kind]) -> str | None:
    """The one column that is called as names of rows are, and is another on every row."""
    called = [name for name in frame.columns if name.strip().lower() in NAME_WORDS and name not in kinds]
    return called[0] if len(called) == 1 and len(frame.columns) > 1 and frame[called[0]].is_unique else None


def row_names(frame: Frame, column: str | None) -> tuple[str, ...] | None:
    if column is None or column not in frame.columns:
        return None
    return tuple(as_text(frame[column]).fillna("").tolist())


def _digest(*splits: Examples | None) -> str:
    """SHA-256 of the inputs, or of the files' content, and the labels of rows that are in no table file."""
    digest = hashlib.sha256()
    for split in splits:
        if split is not None:
            if split.in_memory:
                digest.update(np.ascontiguousarray(split.inputs).data)
            else:
                digest.update("".join(checksum(Path(path)) for path in split.paths).encode())
            digest.update(split.labels.data)
    return digest.hexdigest()


def read_rows(
    source: Any, features: int, encoder: TableEncoder | None, label: str | None, said: str | None
) -> tuple[Split, list[str] | None]:
    """The rows of a table for a network of so many features, by the columns of training or else in their order, and the labels.

    ``label`` is the column of labels of training, which may be missing, and ``said`` one that may not.
    """
    where = f"{source}: " if isinstance(source, str | os.PathLike) else ""
    try:
        scaled, known = encoder is not None, {} if encoder is None else dict.fromkeys(one.name for one in encoder.encoders)
        raw = frame_for(encoder, source) if encoder is not None and encoder.reads_images else raw_frame(source, list(known))
        others = [name for name in map(str, raw.columns) if name not in known]
        if said is not None and find_label(list(map(str, raw.columns)), said) in known:
            raise DataError(f"column {excerpt(said)!r} is a feature of the network, so it cannot hold labels")
        named = [name for name in others if name.lower() in LABEL_WORDS]
        at = said or (label if label in others else named[0] if len(named) == 1 else None)
        frame = _with_image_paths(tidied(raw, at), source)
        ids = [name for name in others if name.strip().lower() in NAME_WORDS and name != at]
        called = ids[0] if len(ids) == 1 and (encoder is not None or len(others) > features) else None
        if encoder is None:
            columns = [name for name in frame.columns if name not in (at, called)]
            at = columns[-1] if at is None and len(columns) == features + 1 else at
            encoder, columns = plain_encoder(columns[:features]), [name for name in columns if name != at]
            if len(columns) != features:
                trained = f"the network was trained on {features} features, with or without labels"
                raise DataError(f"{len(frame.columns)} columns, and {trained}")
        texts = None if at is None else label_texts(frame[at], at).fillna("").tolist()
        return Split(encoder.transform(frame), np.zeros(len(frame), np.int64), row_names(frame, called), scaled), texts
    except DataError as error:
        if not where or str(error).startswith(where[:-2]):
            raise
        raise DataError(f"{where}{error}") from error


def plain_encoder(names: Sequence[str]) -> TableEncoder:
    """The encoder of a network that was trained on numbers as they are: nothing is known to fill gaps in with."""
    encoder = TableEncoder([Column(name, "number") for name in names], plain=True)
    encoder.encoders = [PlainEncoder(name, math.nan, 1.0, False) for name in names]
    return encoder
