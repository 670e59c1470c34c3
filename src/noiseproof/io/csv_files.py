"""CSV files as Arrow tables: how one is written, by its beginning, and in which line one is damaged."""

from __future__ import annotations

import csv
import gzip
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from noiseproof.io import limits
from noiseproof.io.files import DataError, errors_named
from noiseproof.io.limits import in_bytes
from noiseproof.io.text import excerpt

if TYPE_CHECKING:
    import pyarrow as pa

MISSING_LABELS = ("", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "Null", "null", "?", "#N/A")
"""Cells that mean that there is no value, also where they are labels"""
MISSING_WORDS = (*MISSING_LABELS, "na", "None", "none", "-", "missing")
"""Cells that mean that there is no value, where they are no labels: a class may be called none"""
PATH_WORDS = frozenset({"path", "file", "filename", "filepath", "file_name", "file_path", "image", "image_path", "img", "name"})
LABEL_WORDS = frozenset({"label", "labels", "class", "class_name", "category", "target", "y"})
"""What columns of paths and of labels are called, in lower case"""
NUMBER_TEXT = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
SNIFFED_BYTES, SNIFFED_ROWS, MIN_SNIFFED_LINES = 2**18, 50, 3
"""How much of a CSV file says its encoding, its separator and whether it has a header"""
SEPARATORS = ",;\t|"
NAME_TEXT = re.compile(r"[^\W\d]")
"""How a name of a column begins where others are numbers"""
MIN_ROWS_BELOW = 3
"""Rows of numbers below a line of words that make it a second header"""
BYTE_ORDER_MARKS = {b"\xef\xbb\xbf": "utf-8-sig", b"\xff\xfe\0\0": "utf-32", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
OTHER_TYPE = re.compile(r"In CSV column #(\d+)")
"""Where a cell is of another type than those in the first block"""


@dataclass(frozen=True)
class Dialect:
    """How a CSV file is written, and its first rows."""

    encoding: str
    separator: str
    header: int
    """Lines up to the end of the one that names the columns; 0 if there is none"""
    columns: list[str]
    first: list[list[str]]


def read_csv(path: Path, names: Sequence[str]) -> pa.Table:
    """The table in a CSV file; a first line of all these ``names`` is a header."""
    import pyarrow as pa
    import pyarrow.csv as arrow_csv

    how = sniffed(path, names)
    own = arrow_csv.ReadOptions(column_names=how.columns, skip_rows=how.header, encoding=how.encoding)
    own.block_size = limits.BLOCK_BYTES
    parse = arrow_csv.ParseOptions(delimiter=how.separator, newlines_in_values=True)
    convert = arrow_csv.ConvertOptions(null_values=list(MISSING_LABELS), strings_can_be_null=True)
    while True:
        try:
            source = _Bounded(path) if path.suffix.lower() == ".gz" else path
            table = arrow_csv.read_csv(source, read_options=own, parse_options=parse, convert_options=convert)
        except pa.ArrowInvalid as error:
            found = OTHER_TYPE.search(str(error))
            if found is None or len(convert.column_types) == len(how.columns):
                raise DataError(_damage(path, how) or f"{path}: {excerpt(error, 300)}") from error
            texts = how.columns if convert.column_types else [how.columns[int(found[1])]]  # then all, not one after the other
            convert.column_types = dict.fromkeys(texts, pa.string())
            continue
        if not any(map(pa.types.is_binary, table.schema.types)) or own.encoding == "cp1252":
            return table
        own.encoding = "cp1252"  # texts that are no UTF-8 after the rows that were sniffed


def _damage(path: Path, how: Dialect) -> str:
    """The first row with more or fewer cells than there are columns, with its line; nothing if there is none."""
    raw = io.BufferedReader(_Bounded(path)) if path.suffix.lower() == ".gz" else path.open("rb")
    with io.TextIOWrapper(raw, encoding=how.encoding, errors="replace", newline="") as file:
        reader, line, count = csv.reader(_lines(file), delimiter=how.separator), 1, len(how.columns)
        try:
            for row in reader:
                if row and len(row) != count:
                    cells = f"{path}:{line}: {len(row)} cell{'s' * (len(row) != 1)}, and there are {count} columns"
                    if len(row) > count:
                        way = f"{excerpt(row[count])!r} is beyond the last; quote cells that contain {how.separator!r}"
                    else:
                        way = f"there is none for column {excerpt(how.columns[len(row)])!r}"
                    return f"{cells}: {way}" + ("; is a quote not closed?" if reader.line_num > line else "")
                line = reader.line_num + 1
        except csv.Error:
            return f"{path}:{line}: a row is longer than {in_bytes(limits.BLOCK_BYTES)}, or a quote is not closed"
    return ""


def _lines(file: io.TextIOWrapper) -> Iterator[str]:
    """The lines of a file; one that is longer than a block is no line."""
    while line := file.readline(limits.BLOCK_BYTES):
        if len(line) == limits.BLOCK_BYTES and not line.endswith("\n"):
            raise csv.Error("the line is too long")
        yield line


class _Bounded(io.RawIOBase):
    """A gzip file that is an error beyond a limit."""

    def __init__(self, path: Path) -> None:
        self.path, self.file = path, gzip.open(path)  # noqa: SIM115 - closed by close
        self.left = max(limits.MIN_GZIP_BYTES, limits.MAX_GZIP_RATIO * path.stat().st_size)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self.file.readinto(buffer)
        self.left -= count
        if self.left < 0:
            raise DataError(f"{self.path}: unpacks to more than {limits.MAX_GZIP_RATIO} times its size; unpack it to read it")
        return count

    def close(self) -> None:
        self.file.close()
        super().close()


def sniffed(path: Path, known: Sequence[str] = ()) -> Dialect:
    """How a CSV file is written, by its beginning; a first line of all ``known`` names is a header."""
    import pyarrow as pa

    with errors_named(path), pa.input_stream(str(path)) as stream:  # which unpacks .gz
        start = stream.read(SNIFFED_BYTES)
        if start.count(b"\n") < MIN_SNIFFED_LINES:  # of many columns, or of long texts
            start += stream.read(limits.BLOCK_BYTES)
    if not start.strip():
        raise DataError(f"{path}: the file is empty")
    if b"\0" in start and not start.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise DataError(f"{path}: the file has NUL bytes: it is no text")
    whole = len(start) < SNIFFED_BYTES or SNIFFED_BYTES < len(start) < SNIFFED_BYTES + limits.BLOCK_BYTES
    encoding = _encoding_of(start if whole else start[: start.rfind(b"\n") + 1] or start)
    lines = start.decode(encoding, errors="replace")
    counted = {one: _rows(lines, one, whole) for one in SEPARATORS}
    separator = max(SEPARATORS, key=lambda one: _fit(counted[one]))
    if not (rows := counted[separator]):
        raise DataError(f"{path}: no row of cells can be read; is it a table?")
    header = (bool(known) and {*known} <= {cell.strip() for cell in rows[0]}) or _is_header(rows[0], rows[1:])
    names = [name.strip() for name in rows[0]] if header else [str(k) for k in range(len(rows[0]))]
    if len(names) > limits.MAX_COLUMNS:
        raise DataError(f"{path}: {len(names)} columns, at most {limits.MAX_COLUMNS}")
    if header and _is_second_header(rows[1:]):
        raise DataError(f"{path}:2: a second line of names below the header; leave one of the two out")
    if header and rows[1:] and all(row[len(names) :] == [""] for row in rows[1:]):
        names.append("")  # each row ends with a separator, and the header does not
    reader = csv.reader(io.StringIO(lines, newline=None), delimiter=separator)
    next(filter(None, reader))  # with blank lines above it and line ends in quotes
    return Dialect(encoding, separator, reader.line_num if header else 0, distinct(names), rows)


def _encoding_of(start: bytes) -> str:
    for mark, name in BYTE_ORDER_MARKS.items():
        if start.startswith(mark):
            return name
    try:
        start.decode("utf-8")
    except UnicodeDecodeError:
        return "cp1252"  # Windows' Latin-1, in which every file can be read
    return "utf-8"


def _rows(text: str, separator: str, whole: bool) -> list[list[str]]:
    found = []
    csv.field_size_limit(max(csv.field_size_limit(), limits.BLOCK_BYTES))
    try:
        for row in csv.reader(io.StringIO(text, newline=None), delimiter=separator):
            if row:
                found.append(row)
            if len(found) > SNIFFED_ROWS:
                break
    except csv.Error:
        return found
    return found if whole or len(found) > SNIFFED_ROWS else found[:-1] or found  # the last may be cut


def _fit(rows: Sequence[Sequence[str]]) -> tuple[float, int]:
    """How well a separator splits the rows: the share with as many fields as the first, and their number."""
    if not rows or len(rows[0]) < 2:
        return 0.0, 0
    return sum(len(row) == len(rows[0]) for row in rows) / len(rows), len(rows[0])


def _is_header(first: Sequence[str], rest: Sequence[Sequence[str]]) -> bool:
    """Whether a row names the columns; a row of numbers, of gaps and numbers, or of what stands below it is an example."""
    cells = [cell.strip() for cell in first]
    if cells[0] == "" and cells[1:] == [str(k) for k in range(len(cells) - 1)]:
        return True  # as pandas writes columns without names
    if any(cell.lower() in LABEL_WORDS for cell in cells):
        return True
    words = [k for k, cell in enumerate(cells) if cell not in MISSING_WORDS and not is_number(cell)]
    body = [row for row in rest if len(row) == len(cells)]
    below = [{cell for row in body if (cell := row[k].strip()) not in MISSING_WORDS} for k in range(len(cells))]
    numeric = [bool(values) and all(map(is_number, values)) for values in below]
    names = sum(numeric[k] for k in words)
    if len(words) + cells.count("") < len(cells):  # a name may be a number, such as a year's
        return names > 0 and all(NAME_TEXT.match(cells[k]) for k in words)
    if names or not words:
        return bool(names)
    return not any(cells[k] in below[k] for k in words)  # a table of words alone


def is_number(cell: str) -> bool:
    """Whether a cell is a number or is read as one: nan, inf, 1e999."""
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _is_second_header(rows: Sequence[Sequence[str]]) -> bool:
    """Whether the row below the header has words in every column whose other cells are numbers."""
    below = [row for row in rows[1:] if len(row) == len(rows[0])]
    numeric = []
    for k in range(len(rows[0]) if len(below) >= MIN_ROWS_BELOW else 0):
        cells = [cell for row in below if (cell := row[k].strip()) not in MISSING_WORDS]
        if cells and all(NUMBER_TEXT.fullmatch(cell) for cell in cells):
            numeric.append(rows[0][k].strip())
    return bool(numeric) and not any(cell in MISSING_WORDS or NUMBER_TEXT.fullmatch(cell) for cell in numeric)


def distinct(names: Sequence[str]) -> list[str]:
    """Names of which none is repeated: a second ``age`` is ``age.1``."""
    seen: dict[str, int] = {}
    found = []
    for name in names:
        count = seen.get(name, 0)
        seen[name] = count + 1
        found.append(name if not count else f"{name}.{count}")
    return found
