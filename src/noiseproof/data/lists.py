"""Data sets given as lists of image files: lines with a path and a label, a number or a name, with or without a header.

Absolute paths and ``..`` are allowed. Labels count from 0, or are names. Blank lines are ignored; in a .txt file also
lines that start with #.
"""

from __future__ import annotations

import csv
import errno
import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from noiseproof.data.dataset import Dataset, ImageFiles
from noiseproof.io import limits, text
from noiseproof.io.csv_files import LABEL_WORDS, PATH_WORDS, is_number
from noiseproof.io.files import DataError, checksums

LABEL_TEXT = re.compile(r"-?[0-9]{1,18}")
MAX_NAME_EXCERPT = 60  # characters of a class's name that an error repeats
MAX_PATH_EXCERPT = 500  # and of a path
ABSENT_ERRORS = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG)

L = TypeVar("L")


class Line(NamedTuple, Generic[L]):
    """A line of a list: the path as written there, the label, and the line's number."""

    path: str
    label: L
    number: int


def load_list(
    path: str | Path, root: str | Path | None = None, *, name: str | None = None, check_files: bool = True
) -> Dataset:
    """Read a data set from a list of lines "path label".

    The label is the last field, after a space, a tab or a comma: paths may contain all three. A first line that names the
    columns, such as ``path,label`` (``PATH_WORDS``, ``LABEL_WORDS``), is a header: its separator and its columns are those of
    all lines, others are ignored, and fields may be quoted as in any CSV file. Labels are numbers, or the names of the classes
    on every line; then the classes are in the order of their names.

    ``sources`` has the SHA-256 of the list and, of files that were looked for, one of their sizes, but not of the pixels: a
    list beside other images is other data.

    Args:
        path: The list.
        root: Where relative paths start; by default the list's folder.
        name: Of the data set; that of the list by default.
        check_files: Look for every file now (a million take seconds), not when a loader needs it.

    Returns:
        The data set.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "list.txt").write_text("a.png cat\\nb.png dog\\n")
    ...     load_list(f"{folder}/list.txt", check_files=False)
    Dataset(list: 2 classes, train 2, images in files)
    """
    path = Path(path)
    written = _read_lines(path)
    if not is_number(written[0].label):
        classes, lines = _by_name(path, written)
    else:
        lines = by_number(path, written)
        classes = tuple(map(str, range(max(line.label for line in lines) + 1)))
    files = image_files(path, lines, path.parent if root is None else Path(root), check_files)
    sources = checksums([path])
    if check_files:
        sizes = "".join(f"{os.stat(file).st_size}\n" for file in files.paths)
        sources["sizes of the images"] = hashlib.sha256(sizes.encode()).hexdigest()
    return Dataset(name or path.stem, files, None, classes, sources)


def text_lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a text file that are not blank, stripped, with their numbers; in a .txt file # begins a comment."""
    return text.text_lines(path, comments=path.suffix.lower() == ".txt")


def _read_lines(path: Path) -> list[Line[str]]:
    """The lines of a list, by its header if it has one."""
    lines = list(text_lines(path))
    if not lines:
        raise DataError(f"{path}: nothing in it: no images listed, no table of features")
    header = header_of(lines[0][1])
    if header is not None:
        return not_empty([_columns(path, number, text, *header) for number, text in lines[1:]], path)
    # A name may have spaces where tabs or commas separate the fields.
    first = last_field(path, *lines[0])
    by = " \t," if is_number(first.label) else next((mark for mark in "\t," if mark in lines[0][1]), " ")
    return [last_field(path, number, text, by) for number, text in lines]


def header_of(text: str) -> tuple[str, int, int, int] | None:
    """The separator of a line that names the columns, where it has the path and the label, and how many there are."""
    for separator in "\t,; ":
        try:
            words = [word.strip().lower() for word in next(csv.reader([text], delimiter=separator))]
        except csv.Error:  # a field of megabytes, say
            continue
        paths, labels = ([k for k, word in enumerate(words) if word in known] for known in (PATH_WORDS, LABEL_WORDS))
        if len(paths) == len(labels) == 1:
            return separator, paths[0], labels[0], len(words)
    return None


def _columns(path: Path, number: int, text: str, separator: str, at: int, label: int, count: int) -> Line[str]:
    try:
        fields = [field.strip() for field in next(csv.reader([text], delimiter=separator, strict=True))]
    except csv.Error as error:
        raise DataError(f"{path}:{number}: {error}, in {text[:200]!r}") from error
    if len(fields) != count or not fields[at] or not fields[label]:
        raise DataError(
            f"{path}:{number}: should have {count} fields as the header has, path and label not empty, got {text[:200]!r}"
        )
    return Line(fields[at], fields[label], number)


def last_field(path: Path, number: int, text: str, separators: str = " \t,") -> Line[str]:
    """A line without a header, whose last field is the label."""
    cut = max(text.rfind(separator) for separator in separators)
    name, label = text[: max(cut, 0)].rstrip(" \t,"), text[cut + 1 :].strip()
    if not name or not label:
        raise _bad_line(path, number, text)
    return Line(name, label, number)


def by_number(path: Path, lines: Sequence[Line[str]], classes: int = limits.MAX_CLASSES) -> list[Line[int]]:
    """The lines with their labels as numbers below ``classes``."""
    for line in lines:
        if not LABEL_TEXT.fullmatch(line.label):
            raise _bad_line(path, line.number, f"{line.path} {line.label}")
        if not 0 <= int(line.label) < classes:
            raise DataError(f"{path}:{line.number}: labels must be in [0, {classes - 1}], got {int(line.label)}")
    return not_empty([Line(line.path, int(line.label), line.number) for line in lines], path)


def _by_name(path: Path, lines: Sequence[Line[str]]) -> tuple[tuple[str, ...], list[Line[int]]]:
    """The names of the classes in their order, and the lines with the labels as their numbers."""
    for line in lines:
        if is_number(line.label):
            raise DataError(
                f"{path}:{line.number}: the first line's label is a name, so all must be, got "
                f"{line.label[:MAX_NAME_EXCERPT]!r}; a header that is known is path,label"
            )
    names = tuple(sorted({line.label for line in lines}))
    places = {name: k for k, name in enumerate(names)}
    return names, [Line(line.path, places[line.label], line.number) for line in lines]


def _bad_line(path: Path, number: int, text: str) -> DataError:
    return DataError(
        f"{path}:{number}: should be a path and a whole number, got {text[:200]!r}; class names must be on all lines"
    )


def not_empty(lines: list[Line[L]], path: Path, which: str = "") -> list[Line[L]]:
    if not lines:
        raise DataError(f"{path}: no images{which or ' listed'}")
    return lines


def image_files(source: Path, lines: Sequence[Line[int]], root: Path, check: bool) -> ImageFiles:
    """The files that the lines of a list name, from a folder on; each folder is listed once: files on a server take long."""
    paths = [os.path.join(root, line.path) for line in lines]
    if check:
        listing = cache(_files_in)  # by the real path: one folder has any number of names
        folder_of = cache(os.path.realpath)
        missing = [k for k, path in enumerate(paths) if os.path.basename(path) not in listing(folder_of(os.path.dirname(path)))]
        if missing:
            first, others = lines[missing[0]], f" ({len(missing)} of {len(paths)} are missing)" if len(missing) > 1 else ""
            way = "correct the list or the folder (in Python, check_files=False leaves it to the loader)"
            if first.path.lower() in PATH_WORDS:
                way = "a header names the columns path and label"
            raise FileNotFoundError(f"{source}:{first.number}: no file {paths[missing[0]][:MAX_PATH_EXCERPT]}{others}; {way}")
    return ImageFiles(tuple(paths), np.array([line.label for line in lines], np.int64))


def _files_in(folder: str) -> frozenset[str]:
    try:
        with os.scandir(folder) as entries:
            return frozenset(entry.name for entry in entries if entry.is_file())
    except OSError as error:
        if error.errno not in ABSENT_ERRORS:
            raise
        return frozenset()
