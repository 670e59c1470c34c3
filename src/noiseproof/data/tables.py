"""A data set in one CSV file: columns of numbers, which are the features, and a column of labels.

The label column is the one that is called so (``LABEL_WORDS``), or the last. A column called ``id``, ``index``, ``path`` or the
like (``NAME_WORDS``), or without a name as pandas writes its index, names the rows and is no feature. A first line of numbers,
up to its label, is no header: the columns are then called by their numbers; nor is one of numbers and gaps, which would lose an
example. Labels are numbers from 0, or names on every row.
"""

from __future__ import annotations

import array
import csv
import difflib
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from noiseproof.data.dataset import MAX_CLASSES, DataError, Dataset, Split, as_split
from noiseproof.data.images import IMAGE_EXTENSIONS
from noiseproof.data.lists import LABEL_WORDS, PATH_WORDS, is_name
from noiseproof.io.files import ReadError, checksum
from noiseproof.io.text import csv_rows, excerpt

__all__ = ["NAME_WORDS", "Layout", "NewRows", "cells", "is_header", "is_table", "listed", "load_table", "misplaced"]
__all__ += ["place_of", "read_features", "relabelled", "with_first"]

NAME_WORDS = PATH_WORDS | {"", "id", "index", "unnamed: 0"}
NUMBER_TEXT = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
DECIMAL_COMMA = re.compile(r"[+-]?[\d.]*,\d+", re.ASCII)
WHOLE_NUMBER = re.compile(r"-?\d{1,18}", re.ASCII)
Rows = Iterator[tuple[int, list[str]]]
MAX_COLUMNS_NAMED = 20  # columns that an error names
MISSING_VALUES = frozenset({"", "na", "n/a", "null", "none", "missing", "?", "-"})


@dataclass(frozen=True)
class Layout:
    """What the columns of a table are."""

    columns: list[str]
    label: int
    names: int | None
    """The column that names the rows"""
    header: bool
    chosen: tuple[int, ...] = ()
    """The features, where they are not all other columns in their order"""
    by_place: bool = False
    """Whether the labels are taken from the last column for want of one that is called so"""

    @property
    def features(self) -> list[int]:
        return list(self.chosen) or [k for k in range(len(self.columns)) if k not in (self.label, self.names)]


def load_table(path: str | Path, label_column: str | None = None) -> Dataset:
    """Read a data set from a CSV file of features with a column of labels.

    Args:
        path: The file.
        label_column: Name of the column of labels, or its number from 0 where there is no header; by default a column
            called ``label`` or the like, or the last one.

    Returns:
        The data set.

    Raises:
        DataError: If the file is no such table.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "mine.csv").write_text("width,label\\n1.5,cat\\n2.5,dog\\n")
    ...     load_table(f"{folder}/mine.csv")
    Dataset(mine: 2 classes, train 2, inputs (1,))
    """
    path = Path(path)
    try:
        rows = csv_rows(path)
        number, first = next(rows, (0, []))
        layout = _layout(path, first, label_column)
        split, classes = _read(path, layout, with_first(rows, number, first, layout))
    except ReadError as error:
        raise DataError(str(error)) from error
    columns = tuple(layout.columns[k] for k in layout.features) if layout.header else ()
    return Dataset(path.stem, split, None, classes, {path.name: checksum(path)}, columns=columns)


def is_table(path: Path) -> bool:
    """Whether a CSV file holds features rather than paths of images, by its first two rows.

    A path column does not make it a list where the paths are no images and all other columns are numbers.
    """
    try:
        rows = csv_rows(path)
        (_, first), (_, second) = next(rows, (0, [])), next(rows, (0, []))
    except ReadError:
        return False  # a path may have commas and quotes
    words = [field.lower() for field in first]
    if len(first) < 2 or not (named := [k for k, word in enumerate(words) if word in LABEL_WORDS]):
        # Without a name for the label: mostly numbers before the last field, or no image among them.
        numbers = 2 * sum(map(is_number, second[:-1])) >= len(second) - 1
        image = any(Path(field).suffix.lower() in IMAGE_EXTENSIONS for field in (*first, *second))
        return len(first) > 2 and len(second) > 2 and (numbers or not image)
    paths = [k for k, word in enumerate(words) if word in PATH_WORDS]
    if len(paths) != 1 or len(named) != 1:
        return True
    others = [field for k, field in enumerate(second) if k not in (*paths, *named)]
    image = bool(second) and Path(second[paths[0]]).suffix.lower() in IMAGE_EXTENSIONS
    return bool(others) and all(map(is_number, others)) and not image


def relabelled(path: Path, label_column: str | None, labels: NDArray[np.int64], kept: NDArray[np.bool_], to: Path) -> None:
    """Copy a table with other labels, as text where they are names, without the rows that are not kept."""
    dataset = load_table(path, label_column)
    rows = csv_rows(path)
    _, first = next(rows)
    layout = _layout(path, first, label_column)
    changed = labels != dataset.train.labels
    with to.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if layout.header:
            writer.writerow(first)
        for k, (_, row) in enumerate(with_first(rows, 0, first, layout)):
            if changed[k]:
                row[layout.label] = dataset.classes[labels[k]]
            if kept[k]:
                writer.writerow(row)


def _layout(path: Path, first: list[str], label_column: str | None) -> Layout:
    words = [field.lower() for field in first]
    known = [k for k, word in enumerate(words) if word in LABEL_WORDS]
    header = bool(known) or label_column in first or is_header(first[:-1])
    columns = first if header else [str(k) for k in range(len(first))]
    if not columns:
        raise ReadError(path, "no rows")
    if label_column is not None:
        known = [place_of(path, columns, label_column)]
    elif len(known) > 1:
        several = ", ".join(repr(excerpt(columns[k])) for k in known[:20])
        raise ReadError(path, f"which column has the labels? {several} could; FILE#COLUMN says which")
    label = known[0] if known else len(columns) - 1
    names = [k for k, word in enumerate(words) if word in NAME_WORDS and k != label] if header else []
    layout = Layout(columns, label, names[0] if len(names) == 1 else None, header, by_place=header and not known)
    if not layout.features:
        raise ReadError(path, f"no column of features beside the labels, {excerpt(columns[label])!r}")
    return layout


def place_of(path: Path, columns: list[str], name: str) -> int:
    """Where the one column of this name is."""
    found = [k for k, column in enumerate(columns) if column == name]
    if len(found) != 1:
        near = difflib.get_close_matches(name, columns, n=1)
        hint = f"did you mean {excerpt(near[0])!r}? " if near else ""
        called = f"{len(found) or 'no'} columns are called {excerpt(name)!r}"
        raise ReadError(path, f"{called}; {hint}the columns are {listed(columns)}")
    return found[0]


def with_first(rows: Rows, number: int, first: list[str], layout: Layout) -> Rows:
    if not layout.header:
        yield number, first
    yield from rows


def _read(path: Path, layout: Layout, rows: Rows) -> tuple[Split, tuple[str, ...]]:
    table = cells(path, layout, rows)
    y, classes = _labels(path, layout.columns[layout.label], table.lines, table.labels)
    found = as_split(table.features, y, len(classes), str(path))
    return Split(found.inputs, found.labels, table.names), classes


class TableCells(NamedTuple):
    """The cells of a table: features ``[N, D]``, the labels as text, the names of the rows if it has them, their lines."""

    features: NDArray[np.float64]
    labels: list[str]
    names: tuple[str, ...] | None
    lines: list[int]


def listed(names: Sequence[str]) -> str:
    first = ", ".join(repr(excerpt(name, 40)) for name in names[:MAX_COLUMNS_NAMED])
    return first + (", ..." if len(names) > MAX_COLUMNS_NAMED else "")


def cells(path: Path, layout: Layout, rows: Rows) -> TableCells:
    values, labels, lines = array.array("d"), [], []
    names: list[str] = []
    features = layout.features
    for number, row in rows:
        labels.append(row[layout.label])
        lines.append(number)
        if layout.names is not None:
            names.append(row[layout.names])
        texts = [row[k] for k in features]
        try:
            numbers = list(map(float, texts))
        except ValueError:
            numbers = [math.nan]
        if not math.isfinite(sum(numbers)) or any("_" in cell or not cell.isascii() for cell in texts):
            _check_numbers(path, number, layout, row)
        values.extend(numbers)
    if not labels:
        raise ReadError(path, "a header and no rows")
    return TableCells(np.frombuffer(values).reshape(len(labels), len(features)), labels, tuple(names) or None, lines)


def _check_numbers(path: Path, line: int, layout: Layout, row: list[str]) -> None:
    wrong = [k for k in layout.features if not is_number(row[k])]
    if not wrong:
        return
    what = f"column {excerpt(layout.columns[wrong[0]], 40)!r} should be a number, got {excerpt(row[wrong[0]], 40)!r}"
    more = f" (on this line also {listed([layout.columns[k] for k in wrong[1:]])})" if wrong[1:] else ""
    point = "write decimal points, " if any(DECIMAL_COMMA.fullmatch(row[k]) for k in wrong) else ""
    last = excerpt(layout.columns[layout.label], 40)
    label = f"; the labels are taken from the last column, {last!r}: FILE#COLUMN says another" if layout.by_place else ""
    way = "fill in what is missing, leave out columns that are not numbers; a list of images has columns path,label"
    raise ReadError(f"{path}:{line}", f"{what}{more}; {point}{way}{label}")


def _labels(path: Path, column: str, lines: list[int], labels: list[str]) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    named = is_name(labels[0])
    for line, label in zip(lines, labels, strict=True):
        if not label:
            raise ReadError(f"{path}:{line}", f"no label in column {excerpt(column, 40)!r}; fill it in, or leave the row out")
        if is_name(label) != named or (not named and not WHOLE_NUMBER.fullmatch(label)):
            other = "a name, as on the first row" if named else "a whole number, or a name on every row"
            got = f"got {excerpt(label)!r} in column {excerpt(column, 40)!r}"
            raise ReadError(f"{path}:{line}", f"the label should be {other}, {got}{_way_to_label(label, named)}")
        if not named and not 0 <= int(label) < MAX_CLASSES:
            raise ReadError(f"{path}:{line}", f"labels must be in [0, {MAX_CLASSES - 1}], got {int(label)}")
    if named:
        classes = tuple(sorted(set(labels)))
        places = {name: k for k, name in enumerate(classes)}
        return np.array([places[label] for label in labels]), classes
    y = np.array([int(label) for label in labels])
    return y, tuple(map(str, range(int(y.max()) + 1)))


def _way_to_label(label: str, named: bool) -> str:
    """What to do about a number that is no label."""
    if named or is_name(label):
        return ""
    whole, _, rest = label.partition(".")
    if WHOLE_NUMBER.fullmatch(whole) and not rest.strip("0"):  # as pandas writes whole numbers where some are missing
        return f"; write {whole}"
    return "; FILE#COLUMN takes the labels from another"


def is_header(fields: list[str]) -> bool:
    """Whether these name columns: words, among which may be numbers. Without words, or with gaps, it is an example."""
    words = [field for field in fields if not is_number(field)]
    if len(words) == len(fields):
        return any(is_name(word) and word.lower() not in MISSING_VALUES for word in words)
    if fields[0] == "" and fields[1:] == [str(k) for k in range(len(fields) - 1)]:
        return True  # pandas' index, and columns without names
    return bool(words) and all(
        word.lower() not in MISSING_VALUES and is_name(word) and (word[0].isalpha() or word[0] == "_") for word in words
    )


def is_number(field: str) -> bool:
    return bool(NUMBER_TEXT.fullmatch(field)) and math.isfinite(float(field))


NO_LABEL = -1


class NewRows(NamedTuple):
    """Rows of features ``[N, width]``, their labels as text and their names if there are some."""

    features: NDArray[np.float64]
    labels: list[str] | None
    names: tuple[str, ...] | None
    note: str
    """How the columns differ from those of training"""


def read_features(path: Path, width: int, called: Sequence[str] = (), label_column: str | None = None) -> NewRows:
    """The features of a table, for a network of so many that were ``called`` so in training, if they had names.

    If all these names are there, the columns are taken by them, wherever they stand; otherwise in their order, and then there
    are no more than the features, the names of the rows and the labels. ``label_column`` says where the labels are; without it
    that is the one column more than the features, or the one of several that is called as labels are.
    """
    try:
        rows = csv_rows(path)
        number, first = next(rows, (0, []))
        taken = frozenset(chosen := _by_name(first, called))  # which may be numbers, as pandas calls columns without names
        labelled = [k for k, word in enumerate(first) if word.lower() in LABEL_WORDS]
        header = bool(labelled or chosen) or label_column in first or is_header(first[:-1] or first)
        columns = first if header else [str(k) for k in range(len(first))]
        named = [k for k, word in enumerate(columns) if word.lower() in NAME_WORDS and k not in taken] if header else []
        label = NO_LABEL if label_column is None else place_of(path, columns, label_column)
        layout = Layout(columns, label, named[0] if len(named) == 1 else None, header)
        if label in taken:
            raise ReadError(path, f"column {excerpt(columns[label])!r} is a feature of the network, so it cannot hold labels")
        layout = replace(layout, label=_label(path, layout, width, called, chosen, labelled))
        if header and not chosen and (fault := misplaced([columns[k] for k in layout.features], called)):
            raise ReadError(path, fault)
        note = _note(layout, called, chosen) if header else ""
        table = cells(path, replace(layout, chosen=chosen), with_first(rows, number, first, layout))
    except ReadError as error:
        raise DataError(str(error)) from error
    return NewRows(table.features, None if layout.label == NO_LABEL else table.labels, table.names, note)


def _by_name(columns: list[str], called: Sequence[str]) -> tuple[int, ...]:
    """Where the columns of these names are, if each is there once."""
    places = {name: k for k, name in enumerate(columns)}
    if len(places) < len(columns) or len(set(called)) < len(called) or not all(name in places for name in called):
        return ()
    return tuple(places[name] for name in called)


def _label(path: Path, layout: Layout, width: int, called: Sequence[str], chosen: tuple[int, ...], labelled: list[int]) -> int:
    """The column of the labels, that which was said or the one that is left; an error where the features cannot be told."""
    found, taken = layout.features, frozenset(chosen)
    others = [k for k in found if k not in taken] if chosen else found[width:]
    if not chosen and (len(found) < width or len(others) > (layout.label == NO_LABEL)):
        trained = f"{len(found)} columns, and the network was trained on {width} features, with or without labels"
        raise ReadError(path, trained + (_differing([layout.columns[k] for k in found], called) if layout.header else ""))
    if layout.label != NO_LABEL or not others:
        return layout.label
    words = sorted({*labelled} & {*(others if chosen else found)})
    if len(words) == 1:
        return words[0]
    return others[0] if len(others) == 1 else NO_LABEL


def _note(layout: Layout, called: Sequence[str], chosen: tuple[int, ...]) -> str:
    """How the columns differ from those of training."""
    names = [layout.columns[k] for k in layout.features]
    if taken := frozenset(chosen):
        there = [k for k in layout.features if k in taken]
        left = listed([layout.columns[k] for k in layout.features if k not in taken])
        notes = {
            "the columns are in another order than those of training, and are taken by their names": list(chosen) != there,
            f"columns that are not of training are left out: {left}": bool(left),
        }
        return "; ".join(note for note, said in notes.items() if said)
    known, there_are = frozenset(called), frozenset(names)
    strange = [name for name in names if name not in known] if called else [n for n in names if n.lower() in LABEL_WORDS]
    if not strange:
        return ""
    missing = next((f", and {excerpt(name, 40)!r} of them is not there" for name in called if name not in there_are), "")
    was = f"is none of those of training{missing}" if called else "is called as labels are"
    return f"column {excerpt(strange[0], 40)!r} {was}: it is taken for one of the network's {len(names)} features"


def misplaced(names: Sequence[str], called: Sequence[str]) -> str:
    """Why columns, not all of which have the names of training, cannot be taken in their order, if they cannot.

    Names of which none is of training say nothing against it, and a strange one in a place of training may be that column's new
    name. But where a name of training, or of the labels, stands in the place of another, a column is missing.
    """
    pairs = zip(names, called, strict=False)
    moved = any(name != own and (name in called or name.lower() in LABEL_WORDS) for name, own in pairs)
    if set(names).isdisjoint(called) or not (moved or len(names) != len(called)):
        return ""
    return f"the columns are not those of training in their order{_differing(names, called)}"


def _differing(names: Sequence[str], called: Sequence[str]) -> str:
    """Which columns are missing, and which are not of training, if its columns had names."""
    known, there = frozenset(called), frozenset(names)
    missing = [name for name in called if name not in there]
    strange = [name for name in names if called and name not in known and name.lower() not in LABEL_WORDS]
    faults = {"missing": missing, "not of training": strange}
    return "".join(f"; {what}: {listed(which)}" for what, which in faults.items() if which)
