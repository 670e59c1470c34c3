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
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np

from noiseproof.data.dataset import MAX_CLASSES, Dataset, ImageFiles
from noiseproof.data.frames import LABEL_WORDS, PATH_WORDS, is_number
from noiseproof.io import text
from noiseproof.io.files import DataError, ReadError, checksum
from noiseproof.io.text import did_you_mean

LABEL_TEXT = re.compile(r"-?[0-9]{1,18}")
MAX_NAME_EXCERPT = 60  # characters of a class's name that an error repeats

L = TypeVar("L")


class Line(NamedTuple):
    """A line of a list: the path as written there, the label, and the line's number."""

    path: str
    label: int
    number: int


def read_lists(paths: list[Path], names: tuple[str, ...] | None) -> tuple[dict[Path, list[Line]], tuple[str, ...]]:
    """The lines of some lists, the first of which says the classes, and the names of the classes where ``names`` is None."""
    written = {path: _read_fields(path) for path in paths}
    if all(is_name(lines[0].label) for lines in written.values()):
        names = names or tuple(sorted({line.label for line in written[paths[0]]}))
        return {path: _by_name(path, lines, names) for path, lines in written.items()}, names
    found = {path: _by_number(path, lines, len(names) if names else None) for path, lines in written.items()}
    largest = max(line.label for lines in found.values() for line in lines)
    return found, names or tuple(map(str, range(largest + 1)))


def text_lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a text file that are not blank, stripped, with their numbers; in a .txt file # begins a comment."""
    try:
        yield from text.text_lines(path, comments=path.suffix.lower() == ".txt")
    except ReadError as error:
        raise DataError(str(error)) from error


class Fields(NamedTuple):
    """A line of a list as it is written."""

    path: str
    label: str
    number: int


def read_numbered(path: Path, classes: int | None = None) -> list[Line]:
    """The lines "path label" of a list without a header, with labels below ``classes``."""
    return _by_number(path, [_last_field(path, number, text, " \t,") for number, text in text_lines(path)], classes)


def _read_fields(path: Path) -> list[Fields]:
    """The lines of a list, by its header if it has one."""
    lines = list(text_lines(path))
    if not lines:
        raise DataError(f"{path}: nothing in it: no images listed, no table of features")
    header = _header(lines[0][1])
    if header is not None:
        found = [_columns(path, number, text, *header) for number, text in lines[1:]]
    else:
        # A name may have spaces where tabs or commas separate the fields.
        first = _last_field(path, *lines[0], " \t,")
        by = next((mark for mark in "\t," if mark in lines[0][1]), " ") if is_name(first.label) else " \t,"
        found = [_last_field(path, number, text, by) for number, text in lines]
    return not_empty(found, path)


def has_header(text: str) -> bool:
    """Whether the first line of a list names its columns."""
    return _header(text) is not None


def _header(text: str) -> tuple[str, int, int, int] | None:
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


def _columns(path: Path, number: int, text: str, separator: str, at: int, label: int, count: int) -> Fields:
    try:
        fields = [field.strip() for field in next(csv.reader([text], delimiter=separator, strict=True))]
    except csv.Error as error:
        raise DataError(f"{path}:{number}: {error}, in {text[:200]!r}") from error
    if len(fields) != count or not fields[at] or not fields[label]:
        raise DataError(
            f"{path}:{number}: should have {count} fields as the header has, path and label not empty, got {text[:200]!r}"
        )
    return Fields(fields[at], fields[label], number)


def _last_field(path: Path, number: int, text: str, separators: str) -> Fields:
    cut = max(text.rfind(separator) for separator in separators)
    name, label = text[: max(cut, 0)].rstrip(" \t,"), text[cut + 1 :].strip()
    if not name or not label:
        raise _bad_line(path, number, text)
    return Fields(name, label, number)


def is_name(label: str) -> bool:
    """Whether a label is no number, nor looks like one."""
    return not is_number(label)


def _by_number(path: Path, lines: list[Fields], classes: int | None) -> list[Line]:
    most = classes or MAX_CLASSES
    for line in lines:
        if not LABEL_TEXT.fullmatch(line.label):
            raise _bad_line(path, line.number, f"{line.path} {line.label}")
        if not 0 <= int(line.label) < most:
            raise DataError(f"{path}:{line.number}: labels must be in [0, {most - 1}], got {int(line.label)}")
    return not_empty([Line(line.path, int(line.label), line.number) for line in lines], path)


def _by_name(path: Path, lines: list[Fields], names: tuple[str, ...]) -> list[Line]:
    places = {name: k for k, name in enumerate(names)}
    for line in lines:
        if not is_name(line.label):
            raise DataError(
                f"{path}:{line.number}: the first line's label is a name, so all must be, got "
                f"{line.label[:MAX_NAME_EXCERPT]!r}; a header that is known is path,label"
            )
        if line.label not in places:
            known = [name[:MAX_NAME_EXCERPT] for name in names]
            hint = f"{did_you_mean(line.label[:MAX_NAME_EXCERPT], known)}the classes are {', '.join(map(repr, known[:10]))}"
            raise DataError(f"{path}:{line.number}: no class is called {line.label[:200]!r}; {hint}")
    return [Line(line.path, places[line.label], line.number) for line in lines]


def _bad_line(path: Path, number: int, text: str) -> DataError:
    return DataError(
        f"{path}:{number}: should be a path and a whole number, got {text[:200]!r}; class names must be on all lines"
    )


def not_empty(lines: list[L], path: Path, which: str = "") -> list[L]:
    if not lines:
        raise DataError(f"{path}: no images{which or ' listed'}")
    return lines


ABSENT_ERRORS = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG)
MAX_PATH_EXCERPT = 500  # characters of a path that an error repeats


def load_list(
    path: str | Path,
    root: str | Path | None = None,
    *,
    test: str | Path | None = None,
    name: str | None = None,
    classes: str | Path | Sequence[str] | None = None,
    check_files: bool = True,
) -> Dataset:
    """Read a data set from a list of lines "path label", and a second list for its test split.

    The label is the last field, after a space, a tab or a comma: paths may contain all three. A first line that names the
    columns, such as ``path,label`` (``PATH_WORDS``, ``LABEL_WORDS``), is a header: its separator and its columns are those of
    all lines, others are ignored, and fields may be quoted as in any CSV file. Labels are numbers, or the names of the classes
    on every line; then the classes are in the order of their names.

    ``sources`` has the SHA-256 of the lists and, of files that were looked for, one of their sizes, but not of the pixels: a
    list beside other images is other data.

    Args:
        path: The list of the training split.
        root: Where relative paths start; by default the list's folder.
        test: The list of the test split.
        name: Of the data set; that of the list by default.
        classes: A file with one name per line, or the names, which states their order; without it classes of numbers
            are named by these.
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
    read = [path] if test is None else [path, Path(test)]
    sources = [*read]
    if isinstance(classes, str | Path):
        sources.append(Path(classes))
        classes = [text for _, text in text_lines(Path(classes))]
    listings, names = read_lists(read, None if classes is None else tuple(classes))
    splits = [image_files(at, lines, at.parent if root is None else Path(root), check_files) for at, lines in listings.items()]
    known = checksums(sources) | ({"sizes of the images": _digest_of_sizes(splits)} if check_files else {})
    return Dataset(name or path.stem, splits[0], splits[-1] if test is not None else None, names, known)


def listed_files(source: Path, lines: list[Line]) -> ImageFiles:
    """The files that the lines of a list name, which start in its folder and must be there."""
    return image_files(source, not_empty(lines, source), source.parent, check=True)


def image_files(source: Path, lines: list[Line], root: Path, check: bool) -> ImageFiles:
    paths = [os.path.join(root, line.path) for line in lines]
    if check:
        _check_files(source, lines, paths)
    return ImageFiles(tuple(paths), np.array([line.label for line in lines], np.int64))


def _check_files(source: Path, lines: list[Line], paths: list[str]) -> None:
    """Each folder is listed once: looking for a million files one by one takes minutes on a file server."""
    folders: dict[str, set[str]] = {}
    listed: dict[tuple[int, int], set[str]] = {}  # one folder has any number of names: a, ./a, ././a
    missing = []
    for k, path in enumerate(paths):
        folder, name = os.path.split(path)
        if folder not in folders:
            try:
                found = os.stat(folder)
                if (place := (found.st_dev, found.st_ino)) not in listed:
                    with os.scandir(folder) as entries:
                        listed[place] = {entry.name for entry in entries if entry.is_file()}
                folders[folder] = listed[place]
            except OSError as error:
                if error.errno not in ABSENT_ERRORS:
                    raise
                folders[folder] = set()
        if name not in folders[folder]:
            missing.append(k)
    if missing:
        first, others = lines[missing[0]], f" ({len(missing)} of {len(paths)} are missing)" if len(missing) > 1 else ""
        way = "correct the list or the folder (in Python, check_files=False leaves it to the loader)"
        if first.path.lower() in PATH_WORDS:
            way = "a header names the columns path and label"
        raise FileNotFoundError(f"{source}:{first.number}: no file {paths[missing[0]][:MAX_PATH_EXCERPT]}{others}; {way}")


def checksums(paths: Sequence[Path]) -> dict[str, str]:
    """SHA-256 by name, or by path where two files have one name."""
    names = [path.name for path in paths]
    return {path.name if names.count(path.name) == 1 else str(path): checksum(path) for path in paths}


def _digest_of_sizes(splits: Sequence[ImageFiles]) -> str:
    digest = hashlib.sha256()
    for files in splits:
        for path in files.paths:
            digest.update(f"{os.stat(path).st_size}\n".encode())
    return digest.hexdigest()
