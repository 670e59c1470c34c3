"""Tables as people hand them in, as one pandas frame: CSV, TSV, Parquet, Feather, JSON Lines, data frames, lists of texts.

pandas and pyarrow come with the extra ``lab``. polars frames and Hugging Face data sets are taken through Arrow where they are
installed; neither is required.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from noiseproof.data.columns import IMAGE_EXTENSIONS, Frame, Series
from noiseproof.data.embeddings import cache_folder
from noiseproof.io import limits
from noiseproof.io.csv_files import MISSING_LABELS, MISSING_WORDS, distinct, read_csv
from noiseproof.io.files import DataError, errors_named, write_whole
from noiseproof.io.limits import in_bytes
from noiseproof.io.text import all_lines, check_nesting, excerpt

if TYPE_CHECKING:
    import pyarrow as pa


BINARY_SUFFIXES = (".parquet", ".feather", ".arrow", ".jsonl", ".ndjson")
TABLE_SUFFIXES = (".csv", ".tsv", *BINARY_SUFFIXES)
READ_PARTS = 20
"""In how many parts the columns of a Parquet file are decoded"""
FEATURE_BYTES = 4
"""What a cell takes at least when it is encoded"""
KEYS_ROWS, KEYS_EVERY = 10_000, 16
"""The keys of JSON are counted in the first rows, and in every sixteenth after them"""
KEY = re.compile(r'"([^"\\]{0,200})"\s*:')


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
    return with_columns(frame, changed)


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
    reader = READERS.get(suffix)
    if reader is None:
        raise DataError(f"{path}: a table is one of {', '.join(TABLE_SUFFIXES)}, got {path.suffix!r}")
    limits.check_file(path)
    try:
        with errors_named(path):
            return reader(path, names)
    except DataError as error:
        if str(path) in str(error):
            raise
        raise DataError(f"{path}: {error}") from error
    except (pa.ArrowException, OSError, EOFError, ValueError, zlib.error) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        long = "straddling" in str(error)
        fault = f"a row is longer than {in_bytes(limits.BLOCK_BYTES)}" if long else excerpt(error, 300)
        raise DataError(f"{path}: {fault}") from error


def _from_parquet(path: Path, names: Sequence[str]) -> Frame:
    import pyarrow.parquet as parquet

    with parquet.ParquetFile(path) as file:
        facts = file.metadata
        _check_cells(path, facts.num_rows, facts.num_columns)
        if facts.num_row_groups > max(limits.MAX_ROW_GROUPS, facts.num_rows // limits.MIN_GROUP_ROWS):
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
    options = json.ReadOptions(block_size=limits.BLOCK_BYTES)
    return _from_arrow(_validated(json.read_json(path, read_options=options)))


def _check_lines(path: Path) -> None:
    """An error for JSON that is deep, since Arrow's parser recurses and would end the process, or of very many keys."""
    keys: set[str] = set()
    for number, line in all_lines(path):
        try:
            check_nesting(line)
        except ValueError as error:
            raise DataError(f"{path}:{number}: {error}; a table has one value in a cell") from error
        if number < KEYS_ROWS or not number % KEYS_EVERY:
            keys.update(KEY.findall(line))
            _check_cells(path, number, len(keys))


READERS = {".parquet": _from_parquet, **dict.fromkeys((".feather", ".arrow"), _from_feather)}
READERS |= dict.fromkeys((".jsonl", ".ndjson"), _from_lines)
READERS |= dict.fromkeys((".csv", ".tsv", ".txt", ""), lambda path, names: _from_arrow(read_csv(path, names)))


def suffix_of(path: Path) -> str:
    """How the name of a file ends, without ``.gz``, in lower case.

    >>> suffix_of(Path("Table.CSV.gz"))
    '.csv'
    """
    return (Path(path.stem) if path.suffix.lower() == ".gz" else path).suffix.lower()


def _check_cells(path: Path, rows: int, columns: int) -> None:
    """An error for a file that would become vastly more cells than it has bytes: it must not decide how much is taken."""
    size = path.stat().st_size
    if columns > limits.MAX_COLUMNS:
        raise DataError(f"{columns} columns, at most {limits.MAX_COLUMNS}")
    if rows * columns > max(limits.MAX_CELLS_UNCHECKED, limits.MAX_CELLS_PER_BYTE * size):
        raise DataError(f"{rows * columns} cells in a file of {size} bytes; a table of real data takes more")
    limits.check_memory(f"{path}: a table of {rows} rows and {columns} columns", FEATURE_BYTES * rows * columns)


def _from_arrow(table: pa.Table, *, own: bool = True) -> Frame:
    """The frame of an Arrow table, whose memory is given back column by column if it is the reader's ``own``."""
    import pyarrow as pa

    if len(set(table.column_names)) < table.num_columns:
        table = table.rename_columns(distinct(table.column_names))
    for k, (name, kind) in enumerate(zip(table.column_names, table.schema.types, strict=True)):
        if pa.types.is_struct(kind) and {field.name for field in kind} == {"bytes", "path"}:
            table = table.set_column(k, name, pa.array(map(_image_file, table.column(k)), pa.string()))
            continue
        if pa.types.is_struct(kind) or pa.types.is_map(kind) or pa.types.is_union(kind):
            raise DataError(f"column {excerpt(name)!r} is nested, {excerpt(kind, 100)}; a table has one value in a cell")
        if (longest := _longest(table.column(k))) > limits.BLOCK_BYTES:
            raise DataError(f"column {excerpt(name)!r} has a cell of {longest} bytes, at most {limits.BLOCK_BYTES}")
    return table.to_pandas(date_as_object=False, split_blocks=True, self_destruct=own)


def _longest(column: pa.ChunkedArray) -> int:
    """Bytes of the longest text of a column; 0 for other columns."""
    import pyarrow as pa
    import pyarrow.compute as compute

    kind = column.type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)) or column.nbytes <= limits.BLOCK_BYTES:
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
    frame = frame.set_axis(distinct([str(name) for name in frame.columns]), axis=1)
    changed = {}
    for name in frame.columns:
        values = frame[name]
        if pd.api.types.is_string_dtype(values.dtype) or values.dtype == object:
            changed[name] = _tidied_texts(values, MISSING_LABELS if name == label else MISSING_WORDS)
        elif isinstance(values.dtype, pd.CategoricalDtype):
            _check_texts(values, name)
        elif values.dtype.kind == "f" and np.isinf(values.to_numpy(na_value=np.nan)).any():
            changed[name] = values.replace([np.inf, -np.inf], np.nan)
    return with_columns(frame, changed).reset_index(drop=True)


def with_columns(frame: Frame, columns: Mapping[str, Any]) -> Frame:
    """A table with some columns replaced; :meth:`pandas.DataFrame.assign` has no way for one that is called ``self``."""
    found = frame.copy(deep=False)
    for name, values in columns.items():
        found[name] = values
    return found


def _check_texts(values: Series, name: str) -> None:
    """An error for a category whose texts, each stored once, would fill the memory as the texts of all rows."""
    lengths = values.cat.categories.astype("str").str.len().to_numpy(np.int64)
    total = int(np.bincount(values.cat.codes[values.cat.codes >= 0], minlength=len(lengths)) @ lengths)
    if total > (most := limits.MAX_CATEGORY_CHARACTERS):
        raise DataError(f"column {name!r} has {total} characters in its {len(values)} rows, at most {most}")


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
