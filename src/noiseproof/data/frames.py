"""Tables as people hand them in, as one pandas frame: CSV, TSV, Parquet, Feather, JSON Lines, data frames, lists of texts.

pandas and pyarrow come with the extra ``lab``. polars frames and Hugging Face data sets are taken through Arrow where they are
installed; neither is required.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from noiseproof.data.encoders import NUMBER_TEXT, Frame, Series, as_text
from noiseproof.io.files import DataError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["TABLE_SUFFIXES", "Labels", "is_frame", "read_frame", "read_labels"]

TABLE_SUFFIXES = (".csv", ".tsv", ".parquet", ".feather", ".arrow", ".jsonl", ".ndjson")
MISSING_WORDS = (
    "",
    "NA",
    "N/A",
    "n/a",
    "na",
    "NaN",
    "nan",
    "NULL",
    "Null",
    "null",
    "None",
    "none",
    "?",
    "-",
    "missing",
    "#N/A",
)
"""Cells that mean that there is no value"""
SNIFFED_BYTES, SNIFFED_ROWS = 2**18, 50
"""How much of a CSV file says its encoding, its separator and whether it has a header"""
SEPARATORS = ",;\t|"
MIN_ROWS_BELOW = 3
"""Rows of numbers below a line of words that make it a second header"""
MAX_CLASS_SHARE = 0.1
"""More classes than this share of the rows is a question whether the label is a regression target"""
MIN_QUESTIONED_CLASSES = 20
MAX_COLUMNS = 100_000


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
    import pandas as pd

    if isinstance(source, str | os.PathLike):
        frame = _from_file(Path(source).expanduser())
    elif isinstance(source, pd.DataFrame):
        frame = source
    elif isinstance(source, Mapping):
        frame = pd.DataFrame(dict(source))
    elif isinstance(source, list | tuple) and source and all(isinstance(one, str) for one in source):
        frame = pd.DataFrame({"text": list(source)})
    elif isinstance(source, list | tuple) and source and all(isinstance(one, Mapping) for one in source):
        frame = pd.DataFrame(list(source))
    elif np.ndim(source if not hasattr(source, "detach") else source.detach()) == 2 and not is_frame(source):
        frame = pd.DataFrame(np.asarray(source.detach().cpu() if hasattr(source, "detach") else source))
    else:
        frame = _from_arrow(_arrow_table(source))
    return _tidied(frame)


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


def _from_file(path: Path) -> Frame:
    if not path.is_file():
        raise FileNotFoundError(f"{path}: {'no regular file' if path.exists() else 'no such file'}")
    suffix = Path(path.stem).suffix.lower() if path.suffix.lower() == ".gz" else path.suffix.lower()
    import pyarrow as pa

    try:
        if suffix == ".parquet":
            import pyarrow.parquet as parquet

            return _from_arrow(parquet.read_table(path))
        if suffix in (".feather", ".arrow"):
            import pyarrow.feather as feather

            return _from_arrow(feather.read_table(path))
        if suffix in (".jsonl", ".ndjson"):
            import pyarrow.json as json

            return _from_arrow(json.read_json(path))
        if suffix in (".csv", ".tsv", ".txt", ""):
            return _from_csv(path)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, UnicodeDecodeError, EOFError) as error:
        raise DataError(f"{path}: {_arrow_fault(error)}") from error
    raise DataError(f"{path}: a table is one of {', '.join(TABLE_SUFFIXES)}, got {path.suffix!r}")


def _arrow_fault(error: Exception) -> str:
    return " ".join(str(error).split())[:300]


@dataclass(frozen=True)
class _Dialect:
    encoding: str
    separator: str
    header: bool
    columns: list[str]


def _from_csv(path: Path) -> Frame:
    import pyarrow as pa
    import pyarrow.csv as arrow_csv

    how = _sniffed(path)
    parse = arrow_csv.ParseOptions(delimiter=how.separator, newlines_in_values=True)
    convert = arrow_csv.ConvertOptions(null_values=list(MISSING_WORDS), strings_can_be_null=True)

    def read(threads: bool) -> pa.Table:
        own = arrow_csv.ReadOptions(
            encoding=how.encoding, column_names=how.columns, skip_rows=int(how.header), use_threads=threads
        )
        return arrow_csv.read_csv(path, read_options=own, parse_options=parse, convert_options=convert)

    try:
        return _from_arrow(read(threads=True))
    except pa.ArrowInvalid:
        return _from_arrow(read(threads=False))  # whose error counts the rows


def _sniffed(path: Path) -> _Dialect:
    """How a CSV file is written, by its beginning."""
    import pyarrow as pa

    with pa.input_stream(str(path)) as stream:  # which unpacks .gz
        start = stream.read(SNIFFED_BYTES)
    if not start.strip():
        raise DataError(f"{path}: the file is empty")
    if b"\0" in start and not start.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise DataError(f"{path}: the file has NUL bytes: it is no text")
    encoding = _encoding_of(start)
    lines = start.decode(encoding, errors="replace")
    whole = len(start) < SNIFFED_BYTES
    counted = {one: _rows(lines, one, whole) for one in SEPARATORS}
    separator = max(SEPARATORS, key=lambda one: _fit(counted[one]))
    rows = counted[separator]
    header = _is_header(rows[0], rows[1:])
    names = [name.strip() for name in rows[0]] if header else [str(k) for k in range(len(rows[0]))]
    if len(names) > MAX_COLUMNS:
        raise DataError(f"{path}: {len(names)} columns, at most {MAX_COLUMNS}")
    if header and _is_second_header(rows[1:]):
        raise DataError(f"{path}:2: a second line of names below the header; leave one of the two out")
    return _Dialect(encoding, separator, header, _distinct(names))


def _encoding_of(start: bytes) -> str:
    for mark, name in ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16")):
        if start.startswith(mark):
            return name
    try:
        start[: start.rfind(b"\n") + 1 or None].decode("utf-8")
    except UnicodeDecodeError:
        return "cp1252"  # Windows' Latin-1, in which every file can be read
    return "utf-8"


def _rows(text: str, separator: str, whole: bool) -> list[list[str]]:
    found = []
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
    """Whether a row names the columns: no cell is a number, and no name is missing where the column below has numbers."""
    cells = [cell.strip() for cell in first]
    if any(NUMBER_TEXT.fullmatch(cell) for cell in cells):
        return cells[0] == "" and cells[1:] == [str(k) for k in range(len(cells) - 1)]  # as pandas writes columns without names
    if not any(cells):
        return False
    body = [row for row in rest if len(row) == len(cells)]
    numbers = [any(NUMBER_TEXT.fullmatch(row[k].strip()) for row in body) for k in range(len(cells))]
    if any(numbers):
        return True
    # A table of words alone: a name stands in no row below it.
    return not any(cell in {row[k].strip() for row in body} for k, cell in enumerate(cells) if cell)


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
    for name, kind in zip(table.column_names, table.schema.types, strict=True):
        if pa.types.is_struct(kind) or pa.types.is_map(kind) or pa.types.is_union(kind):
            raise DataError(f"column {name!r} is nested ({kind}); a table has numbers, texts, dates or vectors in its cells")
    return table.to_pandas(date_as_object=False, split_blocks=True, strings_to_categorical=False)


def _tidied(frame: Frame) -> Frame:
    """Names as texts, and the words that mean a missing value as missing."""
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
            changed[name] = _tidied_texts(values)
    return frame.assign(**changed).reset_index(drop=True)


def _tidied_texts(values: Series) -> Series:
    import pandas as pd

    if values.dtype == object:
        kinds = {type(one) for one in values.array if one is not None and one is not pd.NA and one == one}
        if kinds and kinds <= {bool, np.bool_}:
            return values.astype("boolean")
        if kinds and kinds <= {int, float, np.int64, np.float64, np.float32, np.int32}:
            return values.astype("float64")
        if kinds and not kinds <= {str}:
            return values if any(np.ndim(one) for one in values.array[:100]) else _tidied_texts(values.astype("str"))
    texts = values.astype("str")
    return texts.mask(texts.str.strip().isin(MISSING_WORDS))


@dataclass(frozen=True)
class Labels:
    """The labels of a table as class indices.

    Args:
        codes: The class of each labelled row.
        classes: What each class is called, in the order of the indices.
        labelled: Which rows of the table have a label.
        note: What looks like a slip: classes of nearly one spelling, or too many classes.

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

    texts = _label_texts(values, name)
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
    return Labels(codes, names, labelled, _label_note(texts, names, name) if classes is None else "")


def _label_texts(values: Series, name: str) -> Series:
    import pandas as pd

    if pd.api.types.is_bool_dtype(values.dtype):
        return values.astype("object").map({True: "True", False: "False"}).astype("str")
    if pd.api.types.is_float_dtype(values.dtype):
        present = values.dropna()
        if len(strange := present[present % 1 != 0]):
            raise DataError(
                f"labels in column {name!r} must be classes, got the number {strange.iloc[0]}: is this a regression target?"
            )
        return values.astype("Int64").astype("str")
    return as_text(values)


def _class_order(name: str) -> tuple[int, float, str]:
    """Numbers by their size, before words."""
    return (0, float(name), name) if NUMBER_TEXT.fullmatch(name) else (1, 0.0, name)


def _label_note(texts: Series, classes: Sequence[str], name: str) -> str:
    notes = []
    if len(classes) > max(MIN_QUESTIONED_CLASSES, MAX_CLASS_SHARE * len(texts)):
        notes.append(f"{len(classes)} classes in {len(texts)} rows: is column {name!r} a regression target?")
    alike: dict[str, list[str]] = {}
    for one in classes:
        alike.setdefault(" ".join(one.lower().split()), []).append(one)
    for group in alike.values():
        if len(group) > 1:
            notes.append(f"classes that differ in case or blanks alone: {', '.join(map(repr, group[:4]))}")
    return "; ".join(notes)
