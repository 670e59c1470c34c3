"""Tables as people hand them in, as one pandas frame: CSV, TSV, Parquet, Feather, JSON Lines, data frames, lists of texts.

pandas and pyarrow come with the extra ``lab``. polars frames and Hugging Face data sets are taken through Arrow where they are
installed; neither is required.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import math
import os
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from noiseproof.data.embeddings import cache_folder
from noiseproof.data.values import IMAGE_EXTENSIONS, NUMBER_TEXT, Frame, Series, as_text
from noiseproof.io.files import DataError, write_whole
from noiseproof.io.text import excerpt

if TYPE_CHECKING:
    import pyarrow as pa


BINARY_SUFFIXES = (".parquet", ".feather", ".arrow", ".jsonl", ".ndjson")
TABLE_SUFFIXES = (".csv", ".tsv", *BINARY_SUFFIXES)
MISSING_LABELS = ("", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "Null", "null", "?", "#N/A")
"""Cells that mean that there is no value, also where they are labels"""
MISSING_WORDS = (*MISSING_LABELS, "na", "None", "none", "-", "missing")
"""Cells that mean that there is no value, where they are no labels: a class may be called none"""
PATH_WORDS = frozenset({"path", "file", "filename", "filepath", "file_name", "file_path", "image", "image_path", "img", "name"})
LABEL_WORDS = frozenset({"label", "labels", "class", "class_name", "category", "target", "y"})
"""What columns of paths and of labels are called, in lower case"""
SNIFFED_BYTES, SNIFFED_ROWS, MIN_SNIFFED_LINES = 2**18, 50, 3
"""How much of a CSV file says its encoding, its separator and whether it has a header"""
SEPARATORS = ",;\t|"
NAME_TEXT = re.compile(r"[^\W\d]")
"""How a name of a column begins where others are numbers"""
MIN_ROWS_BELOW = 3
"""Rows of numbers below a line of words that make it a second header"""
MAX_CLASS_SHARE = 0.1
"""More classes than this share of the rows is a question whether the label is a regression target"""
MIN_QUESTIONED_CLASSES = 20
MAX_WHOLE_LABEL = 2**53
"""Beyond it not every whole number is a float"""
MAX_COLUMNS = 100_000
MAX_CELLS_UNCHECKED, MAX_CELLS_PER_BYTE = 10**8, 100
"""Of a Parquet file: a constant column of any length takes some bytes"""
MAX_ROW_GROUPS, MIN_GROUP_ROWS = 10_000, 1000
"""Of a Parquet file: so many groups, or larger ones; a group takes as much to read as thousands of rows"""
READ_PARTS = 20
"""In how many parts the columns of a Parquet file are decoded"""
MAX_DEPTH = 100
"""Of brackets in JSON"""
MAX_CATEGORY_CHARACTERS = 2**30
"""Of the texts of a category, one for each row"""
MIN_UNPACKED_BYTES, MAX_UNPACKED_RATIO = 2**26, 100
"""Of a .gz file: text becomes up to about thirty times as much"""
BYTE_ORDER_MARKS = {b"\xef\xbb\xbf": "utf-8-sig", b"\xff\xfe\0\0": "utf-32", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
BLOCK_BYTES = 2**24
"""Of a CSV file that are read at a time; no row may be longer"""


OPENING = np.isin(np.arange(256), list(b"[{")).astype(np.int8) - np.isin(np.arange(256), list(b"]}"))
"""How each byte of JSON changes the depth"""
KEYS_BYTES, KEYS_BLOCKS, KEYS_EVERY = 2**20, 32, 16
"""The keys of JSON are counted in the first blocks of a megabyte, and in every sixteenth after them"""
KEY = re.compile(rb'"([^"\\]{0,200})"\s*:')
QUOTED = re.compile(rb'"(?:[^"\\]|\\.)*"?')


def is_frame(source: Any) -> bool:
    """Whether an object is a table with named columns: a frame, an Arrow table, a Hugging Face data set, a dict of columns."""
    names = getattr(source, "column_names", None) or getattr(source, "columns", None)
    return (names is not None and not callable(names)) or isinstance(source, Mapping)


def read_frame(source: Any) -> Frame:
    """A table as a pandas frame whose columns are numbers, booleans, dates, texts or vectors, with gaps as missing values.

    Args:
        source: The path of a CSV, TSV (both also gzipped), Parquet, Feather or JSON Lines file; a pandas or polars frame; an
            Arrow table; a Hugging Face ``Dataset``; a dict of columns; a list of dicts; a list or series of texts, the column
            ``text``; an array or tensor ``[N, D]``, whose columns are numbered from 0.

    Returns:
        A frame with text names, numbered from 0 where a file has no header.

    Raises:
        DataError: If the file cannot be read; the message names the line and the column where that is known.
        FileNotFoundError: If there is no such file.

    >>> read_frame({"age": [31, None], "plan": ["basic", "?"]}).isna().sum().tolist()
    [1, 1]
    """
    return tidied(raw_frame(source))


def raw_frame(source: Any, names: Sequence[str] = ()) -> Frame:
    """The table before words that mean a missing value are taken for one; a line of all these ``names`` is a header."""
    import pandas as pd

    if isinstance(source, str | os.PathLike):
        return _from_file(Path(source).expanduser(), names)
    if isinstance(source, pd.DataFrame):
        return source
    if isinstance(source, Mapping):
        return pd.DataFrame(dict(source))
    if isinstance(source, list | tuple) and source and all(isinstance(one, str | os.PathLike) for one in source):
        return pd.DataFrame({"text": list(map(os.fspath, source))})
    if isinstance(source, list | tuple) and source and all(isinstance(one, Mapping) for one in source):
        return pd.DataFrame(list(source))
    array = source.detach().cpu() if hasattr(source, "detach") else source
    if hasattr(array, "toarray"):
        raise DataError("a sparse matrix is not read; pass its toarray(), or texts as they are, which are encoded here")
    if not is_frame(source) and (dimensions := np.ndim(array)) in (1, 2):
        return pd.DataFrame(np.asarray(array)) if dimensions == 2 else _texts(list(array))
    return _with_class_names(_from_arrow(_arrow_table(source), own=False), getattr(source, "features", None))


def _texts(values: list[Any]) -> Frame:
    """A series or an array of texts, as the column that a list of texts is."""
    import pandas as pd

    if not values or not all(isinstance(one, str) or pd.isna(one) for one in values):
        raise DataError(
            f"a table of rows and columns was expected, got {len(values)} values in one dimension; array.reshape(-1, 1) has a "
            "row for each"
        )
    return pd.DataFrame({"text": values})


def _with_class_names(frame: Frame, features: Any) -> Frame:
    """The classes of a Hugging Face data set by their names; a number below 0 is a missing label."""
    names = {name: one.names for name, one in (features or {}).items() if getattr(one, "names", None)}
    changed = {name: frame[name].map(dict(enumerate(words))) for name, words in names.items()}
    return frame.assign(**changed)


def _arrow_table(source: Any) -> pa.Table:
    import pyarrow as pa

    if hasattr(source, "with_format") and hasattr(
        source, "column_names"
    ):  # a Hugging Face data set, with its selection of rows
        source = source.with_format("arrow")[:]
    try:
        return pa.table(source)
    except (TypeError, ValueError, pa.ArrowInvalid) as error:
        raise DataError(f"a table was expected, got {type(source).__name__}: {str(error)[:200]}") from error


def _from_file(path: Path, names: Sequence[str]) -> Frame:
    if not path.is_file():
        raise FileNotFoundError(f"{path}: {'no regular file' if path.exists() else 'no such file'}")
    import pyarrow as pa

    suffix = suffix_of(path)
    reader = _from_csv if suffix in (".csv", ".tsv", ".txt", "") else READERS.get(suffix)
    if reader is None:
        raise DataError(f"{path}: a table is one of {', '.join(TABLE_SUFFIXES)}, got {path.suffix!r}")
    try:
        return reader(path, names)
    except DataError as error:
        if str(path) in str(error):
            raise
        raise DataError(f"{path}: {error}") from error
    except (pa.ArrowException, OSError, EOFError, ValueError, zlib.error) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        long = f"a row is longer than {BLOCK_BYTES >> 20} MiB, or a quote is not closed" if "straddling" in str(error) else ""
        raise DataError(f"{path}: {long or excerpt(error, 300)}") from error


def _from_parquet(path: Path, names: Sequence[str]) -> Frame:
    import pyarrow.parquet as parquet

    with parquet.ParquetFile(path) as file:
        facts = file.metadata
        _check_cells(path, facts.num_rows, facts.num_columns)
        if facts.num_row_groups > max(MAX_ROW_GROUPS, facts.num_rows // MIN_GROUP_ROWS):
            raise DataError(f"{facts.num_row_groups} row groups of {facts.num_rows} rows; write it anew with larger ones")
        return _from_arrow(_validated(_decoded(file)))


def _decoded(file: Any) -> pa.Table:
    """The table in a Parquet file, decoded by a few columns at a time: that takes as much memory again as what is decoded."""
    import pyarrow as pa

    names = file.schema_arrow.names
    step = max(1, math.ceil(len(names) / READ_PARTS))
    parts = [file.read(columns=names[k : k + step]) for k in range(0, len(names), step)]
    if [name for part in parts for name in part.column_names] != names:  # two columns of one name
        return file.read()
    return pa.Table.from_arrays([column for part in parts for column in part.columns], schema=file.schema_arrow)


def _from_feather(path: Path, names: Sequence[str]) -> Frame:
    """An Arrow file or stream, batch by batch: a batch of few bytes may unpack to vastly more."""
    import pyarrow as pa

    with pa.OSFile(str(path)) as file:
        start, size = file.read(8), path.stat().st_size
        file.seek(0)
        if start[:6] == b"ARROW1":
            reader = pa.ipc.open_file(file)
        elif start[:4] == b"\xff\xff\xff\xff" and int.from_bytes(start[4:], "little") < size:
            reader = pa.ipc.open_stream(file)
        else:
            raise DataError("no Feather or Arrow file")
        _check_cells(path, 0, len(reader.schema))
        batches, rows = [], 0
        count = getattr(reader, "num_record_batches", None)
        for batch in reader if count is None else map(reader.get_batch, range(count)):
            rows += batch.num_rows
            _check_cells(path, rows, len(reader.schema))
            batches.append(batch)
        return _from_arrow(_validated(pa.Table.from_batches(batches, reader.schema)))


def _validated(table: pa.Table) -> pa.Table:
    """The table, if all its offsets, texts and category numbers are what they should be; otherwise Arrow's error."""
    table.validate(full=True)
    return table


def _from_lines(path: Path, names: Sequence[str]) -> Frame:
    import pyarrow.json as json

    _check_lines(path)
    options = json.ReadOptions(block_size=BLOCK_BYTES)
    return _from_arrow(_validated(json.read_json(path, read_options=options)))


def _check_lines(path: Path) -> None:
    """An error for JSON that is deep, since Arrow's parser recurses and would end the process, or of very many keys."""
    keys: set[bytes] = set()
    rows = depth = number = 0
    deep = False
    with path.open("rb") as file:
        while block := file.read(KEYS_BYTES):
            levels = depth + np.cumsum(OPENING[np.frombuffer(block, np.uint8)], dtype=np.int64)
            deep, depth = deep or levels.max() > MAX_DEPTH, max(int(levels[-1]), 0)
            rows += block.count(b"\n")
            if number < KEYS_BLOCKS or not number % KEYS_EVERY:
                keys.update(KEY.findall(block))
                _check_cells(path, rows, len(keys))
            number += 1
    if deep and _is_deep(path):
        raise DataError(f"values are nested more than {MAX_DEPTH} deep; a table has one value in a cell")


def _is_deep(path: Path) -> bool:
    """Whether brackets outside of quotes, which contain no line ends, are nested beyond the limit."""
    depth = 0
    with path.open("rb") as file:
        for line in file:
            levels = depth + np.cumsum(OPENING[np.frombuffer(QUOTED.sub(b"", line), np.uint8)], dtype=np.int64)
            if levels.max(initial=0) > MAX_DEPTH:
                return True
            depth = max(int(levels[-1]), 0) if len(levels) else depth
    return False


READERS = {".parquet": _from_parquet, **dict.fromkeys((".feather", ".arrow"), _from_feather)}
READERS |= dict.fromkeys((".jsonl", ".ndjson"), _from_lines)


def suffix_of(path: Path) -> str:
    """How the name of a file ends, without ``.gz``, in lower case.

    >>> suffix_of(Path("Table.CSV.gz"))
    '.csv'
    """
    return (Path(path.stem) if path.suffix.lower() == ".gz" else path).suffix.lower()


@dataclass(frozen=True)
class Dialect:
    """How a CSV file is written, and its first rows."""

    encoding: str
    separator: str
    header: int
    """Lines up to the end of the one that names the columns; 0 if there is none"""
    columns: list[str]
    first: list[list[str]]


def _from_csv(path: Path, names: Sequence[str]) -> Frame:
    import pyarrow as pa
    import pyarrow.csv as arrow_csv

    how = sniffed(path, names)
    parse = arrow_csv.ParseOptions(delimiter=how.separator, newlines_in_values=True)
    convert = arrow_csv.ConvertOptions(null_values=list(MISSING_LABELS), strings_can_be_null=True)

    def read(encoding: str, threads: bool) -> pa.Table:
        own = arrow_csv.ReadOptions(
            encoding=encoding,
            column_names=how.columns,
            skip_rows=how.header,
            use_threads=threads,
            block_size=BLOCK_BYTES,
        )
        return arrow_csv.read_csv(_unpacked(path), read_options=own, parse_options=parse, convert_options=convert)

    try:
        table = read(how.encoding, threads=True)
    except pa.ArrowInvalid:
        table = read(how.encoding, threads=False)  # whose error counts the rows
    if any(map(pa.types.is_binary, table.schema.types)):  # texts that are no UTF-8 after the rows that were sniffed
        table = read("cp1252", threads=True)
    return _from_arrow(table)


def _check_cells(path: Path, rows: int, columns: int) -> None:
    """An error for a file that would become vastly more cells than it has bytes: it must not decide how much is taken."""
    size = path.stat().st_size
    if columns > MAX_COLUMNS:
        raise DataError(f"{columns} columns, at most {MAX_COLUMNS}")
    if rows * columns > max(MAX_CELLS_UNCHECKED, MAX_CELLS_PER_BYTE * size):
        raise DataError(f"{rows * columns} cells in a file of {size} bytes; a table of real data takes more")


def _unpacked(path: Path) -> Any:
    """What Arrow reads: the path, or the packed file as a stream that ends where it unpacks to too much."""
    return _Bounded(path) if path.suffix.lower() == ".gz" else path


class _Bounded(io.RawIOBase):
    """A gzip file that is an error beyond a limit."""

    def __init__(self, path: Path) -> None:
        self.path, self.file = path, gzip.open(path)  # noqa: SIM115 - closed by close
        self.left = max(MIN_UNPACKED_BYTES, MAX_UNPACKED_RATIO * path.stat().st_size)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self.file.readinto(buffer)
        self.left -= count
        if self.left < 0:
            raise DataError(f"{self.path}: unpacks to more than {MAX_UNPACKED_RATIO} times its size; unpack it to read it")
        return count

    def close(self) -> None:
        self.file.close()
        super().close()


def sniffed(path: Path, known: Sequence[str] = ()) -> Dialect:
    """How a CSV file is written, by its beginning; a first line of all ``known`` names is a header."""
    import pyarrow as pa

    with pa.input_stream(str(path)) as stream:  # which unpacks .gz
        start = stream.read(SNIFFED_BYTES)
        if start.count(b"\n") < MIN_SNIFFED_LINES:  # of many columns, or of long texts
            start += stream.read(BLOCK_BYTES)
    if not start.strip():
        raise DataError(f"{path}: the file is empty")
    if b"\0" in start and not start.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise DataError(f"{path}: the file has NUL bytes: it is no text")
    whole = len(start) < SNIFFED_BYTES or SNIFFED_BYTES < len(start) < SNIFFED_BYTES + BLOCK_BYTES
    encoding = _encoding_of(start if whole else start[: start.rfind(b"\n") + 1] or start)
    lines = start.decode(encoding, errors="replace")
    counted = {one: _rows(lines, one, whole) for one in SEPARATORS}
    separator = max(SEPARATORS, key=lambda one: _fit(counted[one]))
    if not (rows := counted[separator]):
        raise DataError(f"{path}: no row of cells can be read; is it a table?")
    header = (bool(known) and {*known} <= {cell.strip() for cell in rows[0]}) or _is_header(rows[0], rows[1:])
    names = [name.strip() for name in rows[0]] if header else [str(k) for k in range(len(rows[0]))]
    if len(names) > MAX_COLUMNS:
        raise DataError(f"{path}: {len(names)} columns, at most {MAX_COLUMNS}")
    if header and _is_second_header(rows[1:]):
        raise DataError(f"{path}:2: a second line of names below the header; leave one of the two out")
    if header and rows[1:] and all(row[len(names) :] == [""] for row in rows[1:]):
        names.append("")  # each row ends with a separator, and the header does not
    reader = csv.reader(io.StringIO(lines, newline=None), delimiter=separator)
    next(filter(None, reader))  # with blank lines above it and line ends in quotes
    return Dialect(encoding, separator, reader.line_num if header else 0, _distinct(names), rows)


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
    csv.field_size_limit(max(csv.field_size_limit(), BLOCK_BYTES))
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


def _distinct(names: Sequence[str]) -> list[str]:
    """Names of which none is repeated: a second ``age`` is ``age.1``."""
    seen: dict[str, int] = {}
    found = []
    for name in names:
        count = seen.get(name, 0)
        seen[name] = count + 1
        found.append(name if not count else f"{name}.{count}")
    return found


def _from_arrow(table: pa.Table, *, own: bool = True) -> Frame:
    """The frame of an Arrow table, whose memory is given back column by column if it is the reader's ``own``."""
    import pyarrow as pa

    if len(set(table.column_names)) < table.num_columns:
        table = table.rename_columns(_distinct(table.column_names))
    for k, (name, kind) in enumerate(zip(table.column_names, table.schema.types, strict=True)):
        if pa.types.is_struct(kind) and {field.name for field in kind} == {"bytes", "path"}:
            table = table.set_column(k, name, pa.array(map(_image_file, table.column(k)), pa.string()))
            continue
        if pa.types.is_struct(kind) or pa.types.is_map(kind) or pa.types.is_union(kind):
            raise DataError(f"column {excerpt(name)!r} is nested, {excerpt(kind, 100)}; a table has one value in a cell")
        if (longest := _longest(table.column(k))) > BLOCK_BYTES:
            raise DataError(f"column {excerpt(name)!r} has a cell of {longest} bytes, at most {BLOCK_BYTES}")
    return table.to_pandas(date_as_object=False, split_blocks=True, self_destruct=own)


def _longest(column: pa.ChunkedArray) -> int:
    """Bytes of the longest text of a column; 0 for other columns."""
    import pyarrow as pa
    import pyarrow.compute as compute

    kind = column.type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)) or column.nbytes <= BLOCK_BYTES:
        return 0
    return max((compute.max(compute.binary_length(chunk)).as_py() or 0) for chunk in column.chunks)


def _image_file(cell: pa.StructScalar) -> str | None:
    """The path of an image that a Hugging Face data set or its Parquet file contains; its bytes are kept under their hash."""
    found = cell.as_py()
    if found is None or found["bytes"] is None:
        return None if found is None else found["path"]
    suffix = os.path.splitext(found["path"] or "")[1].lower()
    name = hashlib.sha256(found["bytes"]).hexdigest() + (suffix if suffix in IMAGE_EXTENSIONS else ".png")
    path = cache_folder() / "images" / name[:2] / name
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, lambda beside: beside.write_bytes(found["bytes"]))
    return str(path)


def tidied(frame: Frame, label: str | None = None) -> Frame:
    """Names as texts, and the words that mean a missing value as missing; fewer words do in the column of labels."""
    import pandas as pd

    if isinstance(frame.columns, pd.MultiIndex):
        raise DataError("the columns have names on several levels; join them into one")
    if not len(frame):
        raise DataError("the table has no rows")
    frame = frame.set_axis(_distinct([str(name) for name in frame.columns]), axis=1)
    changed = {}
    for name in frame.columns:
        values = frame[name]
        if pd.api.types.is_string_dtype(values.dtype) or values.dtype == object:
            changed[name] = _tidied_texts(values, MISSING_LABELS if name == label else MISSING_WORDS)
        elif isinstance(values.dtype, pd.CategoricalDtype):
            _check_texts(values, name)
        elif values.dtype.kind == "f" and np.isinf(values.to_numpy(na_value=np.nan)).any():
            changed[name] = values.replace([np.inf, -np.inf], np.nan)
    return frame.assign(**changed).reset_index(drop=True)


def _check_texts(values: Series, name: str) -> None:
    """An error for a category whose texts, each stored once, would fill the memory as the texts of all rows."""
    lengths = values.cat.categories.astype("str").str.len().to_numpy(np.int64)
    total = int(np.bincount(values.cat.codes[values.cat.codes >= 0], minlength=len(lengths)) @ lengths)
    if total > MAX_CATEGORY_CHARACTERS:
        raise DataError(f"column {name!r} has {total} characters in its {len(values)} rows, at most {MAX_CATEGORY_CHARACTERS}")


def _tidied_texts(values: Series, missing: Sequence[str]) -> Series:

    if values.dtype == object:
        kinds = {type(one) for one in values[values.notna()].array}
        if kinds and kinds <= {bool, np.bool_}:
            return values.astype("boolean")
        if kinds and kinds <= {int, float, np.int64, np.float64, np.float32, np.int32}:
            return values.astype("float64")
        if kinds & {list, tuple, np.ndarray}:
            return _vectors(values)
        if strange := kinds & {bytes, dict, set}:
            raise DataError(f"column {excerpt(values.name)!r} contains {strange.pop().__name__}; a table has numbers and texts")
    texts = values.astype("str")
    empty = texts.str.strip().isin(missing)
    return texts.mask(empty) if empty.any() else texts


def _vectors(values: Series) -> Series:
    """Vectors of numbers of one length, or images; a DataError for other lists."""
    there = [np.asarray(one) if np.ndim(one) else None for one in values.array]
    shapes = {None if one is None or one.dtype.kind not in "fiu" else one.shape for one in there if one is not None}
    if None in shapes or len({len(shape) for shape in shapes if shape is not None}) > 1 or (0,) in shapes:
        raise DataError(f"column {excerpt(values.name)!r} contains lists that are no vectors of numbers")
    if len(shapes) > 1 and all(len(shape) == 1 for shape in shapes if shape is not None):
        lengths = sorted(shape[0] for shape in shapes if shape is not None)[:5]
        raise DataError(f"column {excerpt(values.name)!r} has vectors of different lengths: {', '.join(map(str, lengths))}")
    return values


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
