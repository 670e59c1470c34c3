"""JSON, lines and tables in text."""

from __future__ import annotations

import csv
import json
import math
import os
import re
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noiseproof.reading.opening import ReadError, open_regular, shown

__all__ = ["all_lines", "check_nesting", "csv_rows", "parse_json", "read_json", "read_table", "text_lines"]

LONGEST = 2**24  # bytes of a line
WHOLE, OBJECTS = 2**30, 2**27  # bytes of a text that is read as one, and of one that becomes objects, 25 times larger
LINE = re.compile(r"[^\r\n]+")
SEPARATORS = ",;\t"
DEEPEST = 100  # lists and objects of JSON inside each other: whatever walks what was read then has room on Python's stack
BRACKETS = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)  # and whole strings, whose brackets do not count
FEW_DIGITS = 300  # numbers of so many are within floating point


def read_json(path: str | Path) -> Any:
    """What a JSON file holds, as :func:`parse_json` has it."""
    text = _text(path, OBJECTS)
    try:
        return parse_json(text)
    except json.JSONDecodeError as error:
        raise ReadError(path, f"not JSON: {error}") from error
    except ValueError as error:
        raise ReadError(path, f"not read as JSON: {shown(error, 200)}") from error


def parse_json(text: str) -> Any:
    """What JSON text holds; a ValueError if it is not JSON, or cannot be computed with.

    A key that comes twice in an object is refused, and so are NaN, which JSON does not have, and numbers beyond floating point.
    """
    check_nesting(text)
    try:
        return json.loads(text, object_pairs_hook=_object, parse_constant=_constant, parse_int=_whole, parse_float=_float)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def check_nesting(text: str) -> None:
    """A ValueError if JSON has more than ``DEEPEST`` lists and objects inside each other, which not all code can walk."""
    if text.count("[") + text.count("{") <= DEEPEST:
        return
    depth = 0
    for found in BRACKETS.finditer(text):
        first = found[0][0]
        depth += (first in "[{") - (first in "]}")
        if depth > DEEPEST:
            raise ValueError(f"it is nested too deeply, more than {DEEPEST} lists and objects inside each other")


def read_table(path: str | Path) -> NDArray[Any]:
    """The numbers of a CSV file, [rows, columns]: int64 if all are whole, else float64. Empty for a file without numbers."""
    text = _text(path)

    def lines() -> Iterator[str]:  # never all at once: a line of three bytes takes sixty
        stripped = (found[0].partition("#")[0].strip() for found in LINE.finditer(text))
        return (line for line in stripped if line)

    if any(found.end() - found.start() > LONGEST for found in LINE.finditer(text)):  # its fields take fifty times its size
        raise ReadError(path, f"a line of more than {LONGEST} characters; write a row on each line")
    first = next(lines(), None)
    if first is None:
        return np.empty((0, 0))  # NumPy would warn
    try:
        [float(cell) for cell in first.split(",")]
    except ValueError:
        way = "remove the header line, and every column that is not numbers"
        raise ReadError(path, f"its first line is {shown(first)!r}, not a number: {way}") from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # NumPy truncates 0.5 to a whole number, and warns
            return np.loadtxt(lines(), delimiter=",", dtype=np.int64, ndmin=2)
    except (ValueError, OverflowError, Warning):
        pass
    try:
        return np.loadtxt(lines(), delimiter=",", ndmin=2)
    except ValueError as error:
        raise ReadError(path, f"not a table of numbers: {shown(error, 200)}") from error


def text_lines(path: str | Path) -> Iterator[tuple[int, str]]:
    """The lines of a UTF-8 file that are neither blank nor comments (#), stripped, with their numbers."""
    yield from ((number, line.strip()) for number, line in _lines(path))


def _lines(path: str | Path) -> Iterator[tuple[int, str]]:
    yield from ((n, line) for n, line in all_lines(path) if (text := line.lstrip()) and not text.startswith("#"))


def all_lines(path: str | Path) -> Iterator[tuple[int, str]]:
    """The lines of a UTF-8 file with their numbers; a ReadError names the one that is too long, or is no text."""
    with open_regular(path) as file:
        number = 0
        while raw := file.readline(LONGEST + 1):
            number += 1
            where = f"{path}:{number}"
            if len(raw) > LONGEST:
                raise ReadError(where, f"a line of more than {LONGEST} bytes; is it a text file?")
            try:
                line = raw.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise ReadError(where, f"not UTF-8 text: {error.reason}; save it as UTF-8") from error
            if "\0" in line:
                raise ReadError(where, "a zero byte; is it a text file?")
            yield number, line


def csv_rows(path: str | Path) -> Iterator[tuple[int, list[str]]]:
    """The rows of a CSV file with their line numbers, each with as many fields as the first, which says the separator.

    It is the one of ``, ;`` and tab that divides the first line most. A field may be quoted, and must end on its line.
    """
    separator, count = "", 0
    for number, line in _lines(path):
        text = line.rstrip("\r\n")
        if not count:
            separator = max(SEPARATORS, key=text.count)
        try:
            row = next(csv.reader([text], delimiter=separator, strict=True)) if '"' in text else text.split(separator)
        except csv.Error as error:
            raise ReadError(f"{path}:{number}", f"{error}, in {shown(text, 200)!r}") from error
        count = count or len(row)
        if len(row) != count:
            raise ReadError(f"{path}:{number}", f"{len(row)} fields, and the first line has {count}: {shown(text)!r}")
        yield number, [field.strip() for field in row]


def _text(path: str | Path, most: int = WHOLE) -> str:
    with open_regular(path) as file:
        if (size := os.fstat(file.fileno()).st_size) > most:
            raise ReadError(path, f"{size} bytes of text, and at most {most} are read at once; arrays may be larger as .npy")
        try:
            return file.read().decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise ReadError(path, f"not UTF-8 text: {error.reason} at byte {error.start}; save it as UTF-8") from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"{shown(twice)!r} is there twice in one object")
    return found


def _constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number that JSON has")


def _whole(digits: str) -> int:
    number = int(digits)
    if len(digits) > FEW_DIGITS and abs(number) > sys.float_info.max:
        raise ValueError(f"{shown(digits, 20)} is beyond the largest number, 1.8e308")
    return number


def _float(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"{shown(digits, 20)} is beyond the largest number, 1.8e308")
    return number
