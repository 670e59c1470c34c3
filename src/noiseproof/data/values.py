"""The values of one column as people write them, read as texts, numbers, yes and no, dates or vectors."""

from __future__ import annotations

import functools
import os
import re
import warnings
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from noiseproof.io.csv_files import NUMBER_TEXT
from noiseproof.io.files import DataError

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
SAMPLED_TEXTS = 1000
"""So many texts say whether a column is worth the time of reading all as dates, and in which formats"""
MAX_NUMBER = 1e150
"""Larger numbers are read as this: their squares are none"""


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
    sample = texts.dropna().head(SAMPLED_TEXTS)
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
        raise DataError(
            f"column {name!r} was of yes and no in training and has other values now, such as {str(_first(values))!r:.60}"
        )
    found: NDArray[np.float64] = flags.to_numpy(np.float64, na_value=np.nan)
    return found


def seconds_of(values: Series, name: str) -> NDArray[np.float64]:
    dates = as_dates(values) if values.notna().any() else None
    if dates is None:
        if values.notna().any():
            raise DataError(f"column {name!r} should be dates, got {str(_first(values))!r:.60}")
        return np.full(len(values), np.nan)
    _check_read(values, dates, name, "date")
    seconds = dates.dt.tz_localize(None).to_numpy("datetime64[s]").astype(np.float64)
    return np.where(dates.isna().to_numpy(), np.nan, seconds)


def _check_read(values: Series, read: Series, name: str, kind: str) -> None:
    strange = np.flatnonzero(values.notna().to_numpy() & read.isna().to_numpy())
    if len(strange):
        first = values.iloc[int(strange[0])]
        raise DataError(f"column {name!r} should be a {kind}, got {first!r:.60} in row {strange[0] + 1} ({len(strange)} such)")


def _first(values: Series) -> Any:
    return values.dropna().iloc[0]
