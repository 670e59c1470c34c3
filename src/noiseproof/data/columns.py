"""Columns of a table: what each one is, and its values as people write them, read as texts, numbers, dates or vectors.

A frame is a :class:`pandas.DataFrame` of texts, numbers, booleans and dates, as :mod:`noiseproof.data.frames` reads it.
"""

from __future__ import annotations

import functools
import os
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from noiseproof.io.csv_files import NUMBER_TEXT
from noiseproof.io.files import DataError
from noiseproof.io.text import and_more, excerpt

Frame: TypeAlias = Any
"""A pandas.DataFrame; pandas is imported by the first table, and hints resolve without it"""
Series: TypeAlias = Any
"""A pandas.Series"""

IMAGE_EXTENSIONS = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".webp", ".gif", ".ppm", ".tif", ".tiff"})
TRUE_WORDS, FALSE_WORDS = frozenset({"true", "t", "yes", "y", "on"}), frozenset({"false", "f", "no", "n", "off"})
SPACES = " \N{NO-BREAK SPACE}\N{NARROW NO-BREAK SPACE}"
THOUSANDS_TEXT = re.compile(rf"[+-]?\d{{1,3}}(,\d{{3}})+(\.\d+)?|[+-]?\d{{1,3}}([{SPACES}']\d{{3}})+([.,]\d+)?")
DECIMAL_COMMA_TEXT = re.compile(r"[+-]?(\d{1,3}(\.\d{3})+|\d*),\d+([eE][+-]?\d+)?|[+-]?\d+")
UNITS = "$€£¥₹%"
"""Signs beside a number; that of most values of a column is left out, and only a currency may be missing on some"""
DATE_TEXT = re.compile(
    r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}([T ]\d{1,2}:\d{2}.*)?|\d{8}T\d{6}.*|\d{1,2} \w{3,9}\.? \d{4}|\w{3,9}\.? \d{1,2},? \d{4}"
)
_DAYS = ["%d.%m.%Y", "%d.%m.%y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%d/%m/%y", "%m/%d/%y", "%Y/%m/%d"]
_DAYS += ["%d %b %Y", "%d %B %Y", "%b %d, %Y", "%B %d, %Y"]
DATE_FORMATS = ("ISO8601", *(f"{day}{time}" for time in ("", " %H:%M", " %H:%M:%S") for day in _DAYS))
MAX_NUMBER = 1e150
"""Larger numbers are read as this: their squares are none"""
Kind = Literal["number", "category", "boolean", "date", "text", "image", "embedding", "drop"]
KINDS = get_args(Kind)

IDENTIFIER_NAME = re.compile(r"(^|[_\s.-])(?i:id|uuid|guid|index|key)$|[a-z]I[Dd]$|^(?i:unnamed): ?\d+$|^$")
MIN_PARSED_SHARE = 0.95
"""Texts of which this share are numbers (or dates) are a column of numbers (or dates)"""
MAX_HASH = 2**63 - 1
SAMPLED_ROWS = 1000
"""About so many texts say whether it is worth the time to read the column as numbers or dates, and in which formats"""
MAX_FLAGS = 100
"""A column of more different texts is none of yes and no, however they are spelt"""
MAX_LEVELS, MAX_LEVEL_SHARE = 40, 0.02
"""Texts with at most so many different values, or with at most this share of the rows different, are a category"""
MIN_TEXT_WORDS = 2.5
"""Mean number of words from which on texts of many different values are free text"""
MIN_UNIQUE_ROWS = 20
"""Fewer rows that all differ do not make a column an identifier"""
MIN_COPY_AGREEMENT = 0.99
"""A column whose values determine the label of this share of the rows is reported as a copy of the label"""
IMAGES_LEFT_OUT = "images, which --encoder makes features of"
MAX_COLUMNS_NAMED = 20
MAX_NAMED_ROWS = 3
"""Rows that a message names"""


def as_text(values: Series) -> Series:
    """Values as texts, trimmed; a missing one stays missing."""
    import pandas as pd

    if isinstance(values.dtype, pd.CategoricalDtype):
        values = values.astype(values.cat.categories.dtype)
    return values.astype("str").str.strip()


def as_numbers(values: Series) -> Series:
    """Values as float64; texts may have thousands separators, decimal commas, a currency or a percent sign.

    All are read in the notation in which most are numbers; those in another one are missing in the result.

    >>> import pandas as pd
    >>> as_numbers(pd.Series(["1,234.5", "12,000"])).tolist(), as_numbers(pd.Series(["3,14", "2"])).tolist()
    ([1234.5, 12000.0], [3.14, 2.0])
    >>> as_numbers(pd.Series(["$1,234.50", "-$2"])).tolist(), as_numbers(pd.Series(["12 %", "7%", "0.5"])).tolist()
    ([1234.5, -2.0], [12.0, 7.0, nan])
    """
    import pandas as pd

    if pd.api.types.is_numeric_dtype(values.dtype):
        return values.astype("float64")
    texts = as_text(values)
    # Arrow's and Python's float both read words such as nan, infinity and 1_000, which are no numbers in a table.
    plain = pd.to_numeric(texts.where(texts.str.fullmatch(NUMBER_TEXT.pattern)), errors="coerce").astype("float64")
    if plain.notna().sum() == texts.notna().sum():
        return plain
    bare = _without_unit(texts)
    points = bare.where(bare.str.fullmatch(f"{NUMBER_TEXT.pattern}|{THOUSANDS_TEXT.pattern}"))
    points = points.str.replace(rf"(?<=\d)[,{SPACES}'](?=\d{{3}}(\D|$))", "", regex=True).str.replace(",", ".")
    commas = bare.where(bare.str.fullmatch(DECIMAL_COMMA_TEXT.pattern)).str.replace(".", "").str.replace(",", ".")
    found = [plain, *(pd.to_numeric(one, errors="coerce").astype("float64") for one in (points, commas))]
    return max(found, key=lambda one: int(one.notna().sum()))


def _without_unit(texts: Series) -> Series:
    """The texts without the unit that most of them have; those with another are missing, and those without a percent sign."""
    units = texts.str.extract(f"([{UNITS}])", expand=False)
    if units.isna().all():
        return texts
    unit = re.escape(units.mode()[0])
    there = units.eq(units.mode()[0]) | (units.isna() & (unit != "%"))
    return texts.where(there).str.replace(rf"^([+-]?)\s*{unit}\s*(?=[\d.])|(?<=[\d.])\s*{unit}$", r"\1", regex=True)


def as_flags(values: Series) -> Series | None:
    """Values as 1.0 and 0.0 where they are booleans, also as the words yes/no, true/false, on/off; None if they are not."""
    import pandas as pd

    if pd.api.types.is_bool_dtype(values.dtype):
        return values.astype("Float64").astype("float64")
    if pd.api.types.is_numeric_dtype(values.dtype) or pd.api.types.is_datetime64_any_dtype(values.dtype):
        return None
    words = as_text(values).str.lower()
    if not set(words.dropna().unique()) <= TRUE_WORDS | FALSE_WORDS:
        return None
    return words.map({**dict.fromkeys(TRUE_WORDS, 1.0), **dict.fromkeys(FALSE_WORDS, 0.0)}).astype("float64")


def as_dates(values: Series) -> Series | None:
    """Values as UTC times, read in the first format that fits all of them; None if none fits most."""
    import pandas as pd

    if pd.api.types.is_datetime64_any_dtype(values.dtype):
        return pd.to_datetime(values, utc=True)
    texts = as_text(values)
    sample = texts.dropna().head(SAMPLED_ROWS)
    if not len(sample) or sample.str.fullmatch(DATE_TEXT.pattern).mean() < 0.9:
        return None
    read = functools.partial(pd.to_datetime, errors="coerce", utc=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fits = {pattern: read(sample, format=pattern).notna().sum() for pattern in DATE_FORMATS}
        whole = [read(texts, format=pattern) for pattern, count in fits.items() if count == max(fits.values())]
    return max(whole, key=lambda one: int(one.notna().sum()))


def as_matrix(values: Series, name: str, width: int | None = None) -> NDArray[np.float32]:
    """A column of vectors as ``[N, D]``, NaN where one is missing.

    Raises:
        DataError: If the vectors are of different lengths or not of numbers.
    """
    rows = [None if one is None or np.ndim(one) == 0 else np.asarray(one, np.float32) for one in values.array]
    widths = {len(row) for row in rows if row is not None} | ({width} if width is not None else set())
    if len(widths) != 1:
        raise DataError(f"column {name!r} has vectors of different lengths: {', '.join(map(str, sorted(widths)[:5]))}")
    empty = np.full(widths.pop(), np.nan, np.float32)
    return np.stack([empty if row is None else row for row in rows]) if rows else np.empty((0, len(empty)), np.float32)


def is_image_column(values: Series) -> bool:
    """Whether the values are images: names of image files, or pixels ``[H, W, C]``."""
    there = values.dropna()
    if not len(there) or isinstance(there.iloc[0], str):
        return bool(len(there)) and all(os.path.splitext(str(one))[1].lower() in IMAGE_EXTENSIONS for one in there)
    return isinstance(there.iloc[0], np.ndarray) and there.iloc[0].ndim > 1


def numbers_of(values: Series, name: str) -> NDArray[np.float64]:
    if isinstance(values.dtype, np.dtype) and values.dtype.kind in "iuf":  # of a hundred columns or a hundred thousand
        found = values.to_numpy(np.float64)
    else:
        numbers = as_numbers(values)
        _check_read(values, numbers, name, "number")
        found = numbers.to_numpy(np.float64, na_value=np.nan)
    return np.where(np.isfinite(found), np.clip(found, -MAX_NUMBER, MAX_NUMBER), np.nan)


def flags_of(values: Series, name: str) -> NDArray[np.float64]:
    import pandas as pd

    flags = as_flags(values)
    if flags is None and pd.api.types.is_numeric_dtype(values.dtype) and values.dropna().isin((0, 1)).all():
        flags = values.astype("Float64").astype("float64")  # as a database or a CSV of 0 and 1 has booleans
    if flags is None:
        other = f"{str(values.dropna().iloc[0])!r:.60}"
        raise DataError(f"column {name!r} was of yes and no in training and has other values now, such as {other}")
    found: NDArray[np.float64] = flags.to_numpy(np.float64, na_value=np.nan)
    return found


def seconds_of(values: Series, name: str) -> NDArray[np.float64]:
    there = values.dropna()
    if not len(there):
        return np.full(len(values), np.nan)
    if (dates := as_dates(values)) is None:
        raise DataError(f"column {name!r} should be dates, got {str(there.iloc[0])!r:.60}")
    _check_read(values, dates, name, "date")
    seconds = dates.dt.tz_localize(None).to_numpy("datetime64[s]").astype(np.float64)
    return np.where(dates.isna().to_numpy(), np.nan, seconds)


def _check_read(values: Series, read: Series, name: str, kind: str) -> None:
    strange = np.flatnonzero(values.notna().to_numpy() & read.isna().to_numpy())
    if len(strange):
        first = values.iloc[int(strange[0])]
        raise DataError(f"column {name!r} should be a {kind}, got {first!r:.60} in row {strange[0] + 1} ({len(strange)} such)")


@dataclass(frozen=True)
class Column:
    """What one column of a table was understood as.

    Args:
        name: What it is called.
        kind: number, category, boolean, date, text, image, embedding, or drop if it is left out.
        missing: Share of the training rows without a value.
        levels: Different values of a category.
        reason: Why the column is left out.

    >>> str(Column("age", "number", missing=0.031))
    'age number, 3 % missing'
    >>> str(Column("id", "drop", reason="all different"))
    'id left out: all different'
    """

    name: str
    kind: Kind
    missing: float = 0.0
    levels: int = 0
    reason: str = ""

    def __str__(self) -> str:
        if self.kind == "drop":
            return f"{self.name} left out: {self.reason}"
        levels = f", {self.levels} values" if self.kind == "category" else ""
        percent = max(1, round(100 * self.missing))
        return f"{self.name} {self.kind}{levels}" + (f", {percent} % missing" if self.missing > 0 else "")


def parse_kinds(text: str) -> dict[str, Kind]:
    """The kinds that a user gives for columns.

    Args:
        text: ``age=number,id=drop,comment=text``

    Returns:
        The kind of each named column.

    Raises:
        ValueError: If a part is not NAME=KIND, or the kind does not exist.

    >>> parse_kinds("age=number,id=drop")
    {'age': 'number', 'id': 'drop'}
    """
    found: dict[str, Kind] = {}
    for part in text.split(","):
        name, equals, kind = part.rpartition("=")
        if not equals or kind.strip() not in KINDS:
            raise ValueError(f"columns are given as NAME=KIND with KIND one of {', '.join(KINDS)}, got {part!r}")
        found[name.strip()] = kind.strip()  # type: ignore[assignment] # it is in KINDS
    return found


def infer_columns(frame: Frame, kinds: Mapping[str, Kind] | None = None) -> list[Column]:
    """What each column of a table is, from its training rows.

    Args:
        frame: The training rows, without the label.
        kinds: Columns whose kind the user gives.

    Returns:
        One :class:`Column` for each column of the frame, in its order.

    Raises:
        DataError: If a given kind is of no column, or a column cannot be read as what it is.

    >>> import pandas as pd
    >>> print(*infer_columns(pd.DataFrame({"age": [31, None, 58], "same": "x"})), sep="; ")
    age number, 33 % missing; same left out: constant
    """
    kinds = dict(kinds or {})
    names = [str(name) for name in frame.columns]
    if strange := [name for name in kinds if name not in names]:
        raise DataError(f"no column is called {strange[0]!r}; the columns are {listed(names)}")
    found = [_described(frame[name], str(name), kinds.get(str(name))) for name in frame.columns]
    return _without_copies(frame, found, kinds)


def _described(values: Series, name: str, given: Kind | None) -> Column:
    missing = float(values.isna().mean()) if len(values) else 0.0
    if given == "drop":
        return Column(name, "drop", missing, reason="as asked")
    if given is not None:
        return Column(name, given, missing, int(values.nunique()) if given == "category" else 0)
    if missing == 1:
        return Column(name, "drop", missing, reason="empty")
    if is_embedding(values):
        return Column(name, "embedding", missing)
    if is_image_column(values):
        return Column(name, "image", missing)
    levels = int(values.nunique())
    if levels == 1 and not 0 < missing < 1:
        return Column(name, "drop", missing, reason="constant")
    return replace(_of_values(values, name, levels), missing=missing)


def _of_values(values: Series, name: str, levels: int) -> Column:
    """The kind of a column of at least two values, or of one and gaps."""
    import pandas as pd

    kind = values.dtype
    present = int(values.notna().sum())
    all_different = levels == present >= MIN_UNIQUE_ROWS
    if pd.api.types.is_bool_dtype(kind):
        return Column(name, "boolean")
    if pd.api.types.is_datetime64_any_dtype(kind):
        return Column(name, "date")
    if pd.api.types.is_numeric_dtype(kind):
        whole = pd.api.types.is_integer_dtype(kind) or bool((values.dropna() % 1 == 0).all())
        if all_different and whole and IDENTIFIER_NAME.search(name):
            return Column(name, "drop", reason="all different")
        return Column(name, "number")
    if levels <= MAX_FLAGS and as_flags(values) is not None:
        return Column(name, "boolean")
    some = values.dropna().iloc[:: max(1, present // SAMPLED_ROWS)]
    if 2 * as_numbers(some).notna().sum() >= len(some):
        numbers = as_numbers(values)
        others = as_numbers(values[values.notna() & numbers.isna()])  # in another notation
        if numbers.notna().sum() + others.notna().sum() >= MIN_PARSED_SHARE * present:
            _check_parsed(values, numbers, name, "number")
            return _of_values(numbers, name, int(numbers.nunique()))
    if isinstance(kind, pd.CategoricalDtype):
        return Column(name, "category", levels=levels)
    if (dates := as_dates(values)) is not None and dates.notna().sum() >= MIN_PARSED_SHARE * present:
        _check_parsed(values, dates, name, "date")
        return Column(name, "date")
    return _of_texts(values, name, levels, all_different)


def _of_texts(values: Series, name: str, levels: int, all_different: bool) -> Column:
    texts = as_text(values.dropna())
    if levels <= max(MAX_LEVELS, MAX_LEVEL_SHARE * len(texts)) and not all_different:
        return Column(name, "category", levels=levels)
    words = float(texts.iloc[:: max(1, len(texts) // SAMPLED_ROWS)].str.count(r"\S+").mean())
    if words >= MIN_TEXT_WORDS:
        return Column(name, "text")
    if all_different:
        return Column(name, "drop", reason="all different")
    return Column(name, "category", levels=levels)


def _check_parsed(values: Series, parsed: Series, name: str, kind: str) -> None:
    """Almost all values are of a kind: the few that are not are an error with their places, since they are not missing."""
    strange = np.flatnonzero(values.notna().to_numpy() & parsed.isna().to_numpy())
    if len(strange):
        rows = ", ".join(f"{values.iloc[k]!r:.60} in row {k + 1}" for k in strange[:MAX_NAMED_ROWS])
        more = f" ({len(strange)} in all)" if len(strange) > MAX_NAMED_ROWS else ""
        alike = values[parsed.notna()].iloc[0]
        raise DataError(
            f"column {name!r} is a column of {kind}s, except {rows}{more}; correct these to be like {alike!r:.60}, leave them "
            f"empty, or read the column as another kind: --columns {excerpt(name)}=category"
        )


def is_embedding(values: Series) -> bool:
    """Whether the values are vectors: lists or arrays of numbers, all of one length."""
    if values.dtype != object:
        return False
    first = next((one for one in values.array if one is not None and np.ndim(one) == 1 and not isinstance(one, str)), None)
    return first is not None and np.asarray(first).dtype.kind in "fiu"


def _without_copies(frame: Frame, found: Sequence[Column], kinds: Mapping[str, Kind]) -> list[Column]:
    """Leaves out columns that repeat an earlier one value for value."""
    import pandas as pd

    seen: dict[tuple[Any, ...], list[str]] = {}
    columns = []
    for column in found:
        if column.kind in ("drop", "embedding", "image") or column.name in kinds:
            columns.append(column)
            continue
        values = frame[column.name]
        parts = [values]
        if isinstance(values.dtype, pd.StringDtype):  # each text that is hashed becomes an object: only some are
            parts = [values.str.len(), values.iloc[:: max(1, len(values) // SAMPLED_ROWS)]]
        key = (column.kind, *(int(pd.util.hash_pandas_object(one, index=False).sum() & MAX_HASH) for one in parts))
        same = next((name for name in seen.get(key, ()) if frame[name].equals(values)), None)
        seen.setdefault(key, []).append(column.name)
        columns.append(column if same is None else replace(column, kind="drop", reason=f"the same as {same}"))
    return columns


def find_label_copies(frame: Frame, labels: NDArray[np.int64], columns: Iterable[Column]) -> list[str]:
    """Columns that give the label away: whose value determines it for nearly every row.

    Args:
        frame: The training rows, without the label.
        labels: The class of each row.
        columns: What the columns are.

    Returns:
        The names of such columns. A column of many different values is none: it determines everything.

    >>> import pandas as pd
    >>> frame = pd.DataFrame({"paid": ["no", "yes"] * 10})
    >>> find_label_copies(frame, np.arange(20) % 2, infer_columns(frame))
    ['paid']
    """
    import pandas as pd

    classes = int(labels.max(initial=0)) + 1
    majority = np.bincount(labels, minlength=classes).max(initial=0)
    least = MIN_COPY_AGREEMENT * len(labels)
    found = []
    for column in columns:
        if column.kind in ("drop", "embedding", "text", "image") or majority >= least:
            continue
        codes, levels = pd.factorize(frame[column.name])
        if len(levels) > 2 * classes + 2:
            continue
        counts = np.zeros((len(levels) + 1, classes), np.int64)
        np.add.at(counts, (codes, labels), 1)  # a missing value has the code -1, the last row
        if counts.max(1).sum() >= least:
            found.append(column.name)
    return found


def listed(names: Iterable[str]) -> str:
    """The first names of columns in quotes."""
    return and_more([repr(excerpt(str(name), 40)) for name in names], MAX_COLUMNS_NAMED)
