"""Tables as people hand them in, as one pandas frame: CSV, TSV, Parquet, Feather, JSON Lines, data frames, lists of texts.

pandas and pyarrow come with the extra ``lab``. polars frames and Hugging Face data sets are taken through Arrow where they are
installed; neither is required.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from noiseproof.data.embeddings import cache_folder
from noiseproof.data.encoders import IMAGE_EXTENSIONS, NUMBER_TEXT, Frame, Series, as_text
from noiseproof.io.files import DataError, write_whole

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
MAX_CATEGORY_CHARACTERS = 2**30
"""Of the texts of a category, one for each row"""
MIN_UNPACKED_BYTES, MAX_UNPACKED_RATIO = 2**28, 100
"""Of a .gz file: text becomes up to about thirty times as much"""
BLOCK_BYTES = 2**24
"""Of a CSV file that are read at a time; no row may be longer"""


def is_frame(source: Any) -> bool:
    """Whether an object is a table with named columns: a frame, an Arrow table, a Hugging Face data set, a dict of columns."""
    names = getattr(source, "column_names", None) or getattr(source, "columns", None)
    return (names is not None and not callable(names)) or isinstance(source, Mapping)


def read_frame(source: Any) -> Frame:
    """A table as a pandas frame whose columns are numbers, booleans, dates, texts or vectors, with gaps as missing values.

    Args:
        source: The path of a CSV, TSV (both also gzipped), Parquet, Feather or JSON Lines file; a pandas or polars frame; an
            Arrow table; a Hugging Face ``Dataset``; a dict of columns; a list of dicts; a list of texts, the column ``text``;
            an array or tensor ``[N, D]``, whose columns are numbered from 0.

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
    if np.ndim(array) == 2 and not is_frame(source):
        return pd.DataFrame(np.asarray(array))
    return _with_class_names(_from_arrow(_arrow_table(source)), getattr(source, "features", None))


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
    try:
        if suffix == ".parquet":
            import pyarrow.parquet as parquet

            facts = parquet.read_metadata(path)
            _check_size(path, facts.num_rows * facts.num_columns)
            return _from_arrow(parquet.read_table(path))
        if suffix in (".feather", ".arrow"):
            import pyarrow.feather as feather

            return _from_arrow(feather.read_table(path))
        if suffix in (".jsonl", ".ndjson"):
            import pyarrow.json as json

            return _from_arrow(json.read_json(path))
        if suffix in (".csv", ".tsv", ".txt", ""):
            return _from_csv(path, names)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, UnicodeDecodeError, EOFError) as error:
        raise DataError(f"{path}: {_arrow_fault(error)}") from error
    raise DataError(f"{path}: a table is one of {', '.join(TABLE_SUFFIXES)}, got {path.suffix!r}")


def suffix_of(path: Path) -> str:
    """How the name of a file ends, without ``.gz``, in lower case.

    >>> suffix_of(Path("Table.CSV.gz"))
    '.csv'
    """
    return (Path(path.stem) if path.suffix.lower() == ".gz" else path).suffix.lower()


def _arrow_fault(error: Exception) -> str:
    return " ".join(str(error).split())[:300]


@dataclass(frozen=True)
class Dialect:
    """How a CSV file is written, and its first rows."""

    encoding: str
    separator: str
    header: bool
    columns: list[str]
    first: list[list[str]]


def _from_csv(path: Path, names: Sequence[str]) -> Frame:
    import pyarrow as pa
    import pyarrow.csv as arrow_csv

    how = sniffed(path, names)
    parse = arrow_csv.ParseOptions(delimiter=how.separator, newlines_in_values=True)
    convert = arrow_csv.ConvertOptions(null_values=list(MISSING_LABELS), strings_can_be_null=True)

    def read(threads: bool) -> pa.Table:
        own = arrow_csv.ReadOptions(
            encoding=how.encoding,
            column_names=how.columns,
            skip_rows=int(how.header),
            use_threads=threads,
            block_size=BLOCK_BYTES,
        )
        return arrow_csv.read_csv(_unpacked(path), read_options=own, parse_options=parse, convert_options=convert)

    try:
        return _from_arrow(read(threads=True))
    except pa.ArrowInvalid:
        return _from_arrow(read(threads=False))  # whose error counts the rows


def _check_size(path: Path, cells: int) -> None:
    """An error for a file that would become vastly more cells than it has bytes: it must not decide how much is taken."""
    size = path.stat().st_size
    if cells > max(MAX_CELLS_UNCHECKED, MAX_CELLS_PER_BYTE * size):
        raise DataError(f"{path}: {cells} cells in a file of {size} bytes; a table of real data takes more")


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
    return Dialect(encoding, separator, header, _distinct(names), rows)


def _encoding_of(start: bytes) -> str:
    for mark, name in ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16")):
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
        for row in csv.reader(io.StringIO(text), delimiter=separator):
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


def _from_arrow(table: pa.Table) -> Frame:
    import pyarrow as pa

    if len(set(table.column_names)) < table.num_columns:
        table = table.rename_columns(_distinct(table.column_names))
    for k, (name, kind) in enumerate(zip(table.column_names, table.schema.types, strict=True)):
        if pa.types.is_struct(kind) and {field.name for field in kind} == {"bytes", "path"}:
            table = table.set_column(k, name, pa.array(map(_image_file, table.column(k)), pa.string()))
            continue
        if pa.types.is_struct(kind) or pa.types.is_map(kind) or pa.types.is_union(kind):
            raise DataError(f"column {name!r} is nested ({kind}); a table has numbers, texts, dates or vectors in its cells")
    return table.to_pandas(date_as_object=False, split_blocks=True, strings_to_categorical=False)


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
    import pandas as pd

    if values.dtype == object:
        kinds = {type(one) for one in values.array if one is not None and one is not pd.NA and one == one}
        if kinds and kinds <= {bool, np.bool_}:
            return values.astype("boolean")
        if kinds and kinds <= {int, float, np.int64, np.float64, np.float32, np.int32}:
            return values.astype("float64")
        if kinds and not kinds <= {str}:
            return values if any(np.ndim(one) for one in values.array[:100]) else _tidied_texts(values.astype("str"), missing)
    texts = values.astype("str")
    return texts.mask(texts.str.strip().isin(missing))


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
