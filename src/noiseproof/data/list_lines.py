"""The lines of lists of image files: a path and a label, a number or a name, with or without a header."""

from __future__ import annotations

import csv
import difflib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, TypeVar

from noiseproof.data.dataset import MOST_CLASSES
from noiseproof.data.examples import DataError
from noiseproof.io import text
from noiseproof.io.files import ReadError

__all__ = ["LABEL_WORDS", "PATH_WORDS", "Line", "has_header", "not_empty", "read_lists", "read_numbered", "text_lines"]

LABEL = re.compile(r"-?[0-9]{1,18}")
PATH_WORDS = frozenset({"path", "file", "filename", "filepath", "file_name", "file_path", "image", "image_path", "img", "name"})
LABEL_WORDS = frozenset({"label", "labels", "class", "class_name", "category", "target", "y"})
"""What the columns of a list are called in a header, in lower case"""

SHOWN = 60  # characters of a class's name that an error repeats

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
    """The lines of a text file that are neither blank nor comments, stripped, with their numbers."""
    try:
        yield from text.text_lines(path)
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
    try:
        float(label)
    except ValueError:
        return True
    return False


def _by_number(path: Path, lines: list[Fields], classes: int | None) -> list[Line]:
    most = classes or MOST_CLASSES
    for line in lines:
        if not LABEL.fullmatch(line.label):
            raise _bad_line(path, line.number, f"{line.path} {line.label}")
        if not 0 <= int(line.label) < most:
            raise DataError(f"{path}:{line.number}: labels must be in [0, {most - 1}], got {int(line.label)}")
    return not_empty([Line(line.path, int(line.label), line.number) for line in lines], path)


def _by_name(path: Path, lines: list[Fields], names: tuple[str, ...]) -> list[Line]:
    places = {name: k for k, name in enumerate(names)}
    for line in lines:
        if not is_name(line.label):
            raise DataError(
                f"{path}:{line.number}: the first line's label is a name, so all must be, got {line.label[:SHOWN]!r}; a "
                "header that is known is path,label"
            )
        if line.label not in places:
            known = [name[:SHOWN] for name in names]
            near = difflib.get_close_matches(line.label[:SHOWN], known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; the classes are {', '.join(map(repr, known[:10]))}"
            raise DataError(f"{path}:{line.number}: no class is called {line.label[:200]!r}{hint}")
    return [Line(line.path, places[line.label], line.number) for line in lines]


def _bad_line(path: Path, number: int, text: str) -> DataError:
    return DataError(
        f"{path}:{number}: should be a path and a whole number, got {text[:200]!r}; class names must be on all lines"
    )


def not_empty(lines: list[L], path: Path, which: str = "") -> list[L]:
    if not lines:
        raise DataError(f"{path}: no images{which or ' listed'}")
    return lines
