"""Encoders of one column each, from values as people write them to float32 features. The state of each is JSON and arrays."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from noiseproof.data.embeddings import Modality, PretrainedEncoder, embed, load_encoder, stored_encoder
from noiseproof.io.files import DataError

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

Frame: TypeAlias = Any
"""A pandas.DataFrame; pandas is imported by the first table, and hints resolve without it"""
Series: TypeAlias = Any
"""A pandas.Series"""


IMAGE_EXTENSIONS = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".webp", ".gif", ".ppm", ".tif", ".tiff"})
TRUE_WORDS, FALSE_WORDS = frozenset({"true", "t", "yes", "y", "on"}), frozenset({"false", "f", "no", "n", "off"})
NUMBER_TEXT = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
THOUSANDS_TEXT = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?|[+-]?\d{1,3}([   ']\d{3})+([.,]\d+)?")
DECIMAL_COMMA_TEXT = re.compile(r"[+-]?(\d{1,3}(\.\d{3})+|\d*),\d+([eE][+-]?\d+)?|[+-]?\d+")
DATE_TEXT = re.compile(
    r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}([T ]\d{1,2}:\d{2}.*)?|\d{8}T\d{6}.*|\d{1,2} \w{3,9}\.? \d{4}|\w{3,9}\.? \d{1,2},? \d{4}"
)
DATE_FORMATS: tuple[str, ...] = (
    "ISO8601",
    "%d.%m.%Y",
    "%d.%m.%y",
    "%d/%m/%Y",
    "%m/%d/%Y",
    "%d-%m-%Y",
    "%d/%m/%y",
    "%m/%d/%y",
    "%Y/%m/%d",
)
DATE_FORMATS += ("%d.%m.%Y %H:%M", "%d.%m.%Y %H:%M:%S", "%d/%m/%Y %H:%M", "%m/%d/%Y %H:%M", "%d/%m/%Y %H:%M:%S")
DATE_FORMATS += ("%m/%d/%Y %H:%M:%S", "%Y/%m/%d %H:%M", "%Y/%m/%d %H:%M:%S", "%d %b %Y", "%d %B %Y", "%b %d, %Y", "%B %d, %Y")
MAX_NUMBER = 1e150
"""Larger numbers are read as this: their squares are none"""
SQUASH_AT = 3.0
"""Scaled numbers beyond this are squashed smoothly, so that an outlier is one without drowning the rest"""
MAX_ONE_HOT = 40
"""Values of a category that get a feature each; the rarer ones share one"""
HASHED_WORDS, HASHED_CHARACTERS = 2**14, 2**14
"""Places of the hashed TF-IDF of words and pairs of words, and of three to five characters"""
TEXT_FEATURES, CATEGORY_FEATURES = 64, 16
"""Features of a text, and of a category with more values than are one-hot, after the truncated SVD"""
SVD_ROWS = 10_000
"""Rows that the truncated SVD is fitted to; more do not change it much and take long"""
ENCODED_ROWS = 4096
"""Texts whose hashed words and characters are in memory at a time"""
COUNTS: Mapping[str, Any] = {"alternate_sign": False, "norm": None, "dtype": np.float32}
DAY = 86_400.0


class Encoder(Protocol):
    """One column's encoder."""

    key: ClassVar[str]
    name: str

    @classmethod
    def fit(cls, values: Series, name: str, seed: int) -> Self: ...
    def transform(self, values: Series) -> NDArray[np.float32]: ...
    @property
    def feature_names(self) -> list[str]: ...
    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]: ...
    @classmethod
    def from_state(cls, facts: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self: ...


def as_text(values: Series) -> Series:
    """Values as texts, trimmed; a missing one stays missing."""
    import pandas as pd

    if isinstance(values.dtype, pd.CategoricalDtype):
        values = values.astype(values.cat.categories.dtype)
    return values.astype("str").str.strip()


def as_numbers(values: Series) -> Series:
    """Values as float64; texts with thousands separators or decimal commas are read if the whole column is written so.

    >>> import pandas as pd
    >>> as_numbers(pd.Series(["1,234.5", "12,000"])).tolist(), as_numbers(pd.Series(["3,14", "2"])).tolist()
    ([1234.5, 12000.0], [3.14, 2.0])
    """
    import pandas as pd

    if pd.api.types.is_numeric_dtype(values.dtype):
        return values.astype("float64")
    texts = as_text(values)
    # Arrow's and Python's float both read words such as nan, infinity and 1_000, which are no numbers in a table.
    plain = pd.to_numeric(texts.where(texts.str.fullmatch(NUMBER_TEXT.pattern)), errors="coerce").astype("float64")
    left = texts.notna() & plain.isna()
    if not left.any():
        return plain
    rest = texts[texts.notna()]
    if rest.str.fullmatch(f"{NUMBER_TEXT.pattern}|{THOUSANDS_TEXT.pattern}").all():
        cleaned = texts.str.replace(r"(?<=\d)[,   '](?=\d{3}(\D|$))", "", regex=True).str.replace(",", ".")
    elif rest.str.fullmatch(DECIMAL_COMMA_TEXT.pattern).all():
        cleaned = texts.str.replace(".", "").str.replace(",", ".")
    else:
        return plain
    return pd.to_numeric(cleaned, errors="coerce").astype("float64")


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
    sample = texts.dropna().head(1000)
    if not len(sample) or sample.str.fullmatch(DATE_TEXT.pattern).mean() < 0.9:
        return None
    best = None
    for pattern in DATE_FORMATS:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            parsed = pd.to_datetime(texts, format=pattern, errors="coerce", utc=True)
        if parsed.notna().sum() == texts.notna().sum():
            return parsed
        if best is None or parsed.notna().sum() > best.notna().sum():
            best = parsed
    return best


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


@dataclass
class NumberEncoder:
    """A number, scaled by its interquartile range and squashed beyond three of these, as RealMLP does (Holzmueller, Grinsztajn
    and Steinwart, NeurIPS 2024); the median where it is missing, and a mark for that."""

    key: ClassVar[str] = "number"
    name: str
    centre: float
    scale: float
    marked: bool

    @classmethod
    def fit(cls, values: Series, name: str, seed: int) -> Self:
        numbers = _numbers(values, name)
        return cls(name, *_robust(numbers), bool(np.isnan(numbers).any()))

    def transform(self, values: Series) -> NDArray[np.float32]:
        return self._features(_numbers(values, self.name))

    def _features(self, numbers: NDArray[np.float64]) -> NDArray[np.float32]:
        missing = np.isnan(numbers)
        scaled = np.where(missing, 0.0, (numbers - self.centre) / self.scale)
        scaled /= np.sqrt(1 + (scaled / SQUASH_AT) ** 2)
        return np.stack([scaled, missing] if self.marked else [scaled], 1).astype(np.float32)

    @property
    def feature_names(self) -> list[str]:
        return [self.name, f"{self.name} missing"] if self.marked else [self.name]

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        return {"centre": self.centre, "scale": self.scale, "marked": self.marked}, {}

    @classmethod
    def from_state(cls, facts: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        return cls(str(facts["name"]), _finite(facts["centre"]), _positive(facts["scale"]), bool(facts["marked"]))


class ScaledEncoder(NumberEncoder):
    """A number of an embedding: its mean and the scale that the embedding shares, without squashing."""

    key: ClassVar[str] = "scaled"

    @classmethod
    def fit(cls, values: Series, name: str, seed: int) -> Self:
        numbers = _numbers(values, name)
        return cls(name, float(np.nanmean(numbers)), float(np.nanstd(numbers)) or 1.0, bool(np.isnan(numbers).any()))

    def _features(self, numbers: NDArray[np.float64]) -> NDArray[np.float32]:
        missing = np.isnan(numbers)
        scaled = np.where(missing, 0.0, (numbers - self.centre) / self.scale)
        return np.stack([scaled, missing] if self.marked else [scaled], 1).astype(np.float32)


class PlainEncoder(NumberEncoder):
    """A number as it is, where all columns are of one kind, as pixels are: training gives them one scale together."""

    key: ClassVar[str] = "plain"

    @classmethod
    def fit(cls, values: Series, name: str, seed: int) -> Self:
        return cls(name, float(np.nanmedian(_numbers(values, name))), 1.0, False)

    def _features(self, numbers: NDArray[np.float64]) -> NDArray[np.float32]:
        filled = np.where(np.isnan(numbers), self.centre, numbers)
        if len(far := np.flatnonzero(~(np.abs(filled) <= np.finfo(np.float32).max))):
            found = "no number" if np.isnan(filled[far[0]]) else f"{filled[far[0]]:g}, beyond 3.4e38,"
            raise DataError(f"column {self.name!r} has {found} in row {far[0] + 1} ({len(far)} such)")
        return filled[:, None].astype(np.float32)


class BooleanEncoder(NumberEncoder):
    """0 and 1, the share of 1 where it is missing, and a mark for that."""

    key: ClassVar[str] = "boolean"

    @classmethod
    def fit(cls, values: Series, name: str, seed: int) -> Self:
        flags = _flags(values, name)
        return cls(name, float(np.nanmean(flags)), 1.0, bool(np.isnan(flags).any()))

    def transform(self, values: Series) -> NDArray[np.float32]:
        flags = _flags(values, self.name)
        missing = np.isnan(flags)
        filled = np.where(missing, self.centre, flags)
        return np.stack([filled, missing] if self.marked else [filled], 1).astype(np.float32)


class DateEncoder(NumberEncoder):
    """The time, scaled as a number is, and its place in the year, the week and the day as points on a circle."""

    key: ClassVar[str] = "date"
    CYCLES: ClassVar[tuple[str, ...]] = ("year", "week", "day")

    @classmethod
    def fit(cls, values: Series, name: str, seed: int) -> Self:
        seconds = _seconds(values, name)
        return cls(name, *_robust(seconds), bool(np.isnan(seconds).any()))

    def transform(self, values: Series) -> NDArray[np.float32]:
        seconds = _seconds(values, self.name)
        missing = np.isnan(seconds)
        days = np.where(missing, 0.0, seconds / DAY)
        # The epoch was a Thursday; a year of 365.2425 days is exact enough for the season.
        phases = [days / 365.2425, (days + 3) / 7, days % 1]
        circles = [wave(2 * np.pi * phase) for phase in phases for wave in (np.sin, np.cos)]
        features = np.stack([np.where(missing, 0.0, one) for one in circles], 1).astype(np.float32)
        return np.concatenate([self._features(seconds), features], 1)

    @property
    def feature_names(self) -> list[str]:
        return super().feature_names + [f"{self.name} {cycle} {wave}" for cycle in self.CYCLES for wave in ("sin", "cos")]


class WideEncoder:
    """Makes many features of a column, and writes them where they belong: a matrix of their own would be as large again."""

    def transform(self, values: Series) -> NDArray[np.float32]:
        found = np.empty((len(values), len(self.feature_names)), np.float32)
        self.write(values, found)
        return found

    def write(self, values: Series, to: NDArray[np.float32]) -> None:
        """Write the features into an array ``[N, features]``."""
        raise NotImplementedError

    @property
    def feature_names(self) -> list[str]:
        raise NotImplementedError


@dataclass
class CategoryEncoder(WideEncoder):
    """One-hot for the commonest values; one feature for the rarer and new ones, one for missing ones if training had some.

    A category of more values than are one-hot also has the spelling of its values as features, as :class:`TextEncoder` does.
    """

    key: ClassVar[str] = "category"
    name: str
    levels: list[str]
    rare: bool
    marked: bool
    spelling: TextEncoder | None = None

    @classmethod
    def fit(cls, values: Series, name: str, seed: int) -> Self:
        texts = _level_texts(values)
        counts = texts.value_counts()
        ranked = sorted(counts.index, key=lambda level: (-int(counts[level]), level))
        spelling = TextEncoder.fit(values, name, seed, CATEGORY_FEATURES, words=False) if len(ranked) > MAX_ONE_HOT else None
        return cls(name, sorted(ranked[:MAX_ONE_HOT]), len(ranked) > MAX_ONE_HOT, bool(texts.isna().any()), spelling)

    def write(self, values: Series, to: NDArray[np.float32]) -> None:
        import pandas as pd

        texts = _level_texts(values)
        codes = pd.Index(self.levels, dtype="str").get_indexer(texts)
        missing = texts.isna().to_numpy()
        one_hot = len(self.levels) + self.rare + self.marked
        to[:, :one_hot] = 0
        known = np.flatnonzero(codes >= 0)
        to[known, codes[known]] = 1
        if self.rare:
            to[(codes < 0) & ~missing, len(self.levels)] = 1
        if self.marked:
            to[missing, one_hot - 1] = 1
        if self.spelling is not None:
            self.spelling.write(values, to[:, one_hot:])

    @property
    def feature_names(self) -> list[str]:
        names = [f"{self.name} = {level}" for level in self.levels]
        names += [f"{self.name} rare"] * self.rare + [f"{self.name} missing"] * self.marked
        return names + (self.spelling.feature_names if self.spelling else [])

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        facts: dict[str, Any] = {"levels": self.levels, "rare": self.rare, "marked": self.marked, "spelling": None}
        arrays: dict[str, NDArray[Any]] = {}
        if self.spelling is not None:
            own, arrays = self.spelling.state()
            facts["spelling"] = {"name": self.name, **own}
        return facts, arrays

    @classmethod
    def from_state(cls, facts: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        own = facts["spelling"]
        spelling = None if own is None else TextEncoder.from_state(own, arrays)
        return cls(
            str(facts["name"]), [str(one) for one in facts["levels"]], bool(facts["rare"]), bool(facts["marked"]), spelling
        )


@dataclass
class TextEncoder(WideEncoder):
    """TF-IDF of words and characters by hashing, reduced by a truncated SVD and scaled to unit mean square.

    Hashing needs no vocabulary: what is stored holds none of the texts.
    """

    key: ClassVar[str] = "text"
    name: str
    words: bool
    idf: NDArray[np.float32]
    components: NDArray[np.float32]
    scale: float

    @classmethod
    def fit(cls, values: Series, name: str, seed: int, features: int = TEXT_FEATURES, *, words: bool = True) -> Self:
        from sklearn.utils.extmath import randomized_svd

        texts = _plain_texts(values)
        rows = np.arange(len(texts))
        if len(texts) > SVD_ROWS:
            rows = np.sort(np.random.default_rng(seed).choice(len(texts), SVD_ROWS, replace=False))
        counts = _hashed([texts[k] for k in rows], words)
        idf = (np.log((1 + len(rows)) / (1 + np.diff(counts.tocsc().indptr))) + 1).astype(np.float32)
        weighted = _weighted(counts, idf)
        most = max(1, min(features, len(rows) - 1, int((np.diff(weighted.tocsc().indptr) > 0).sum())))
        left, sizes, components = randomized_svd(weighted, most, n_iter=4, random_state=seed)
        kept = sizes > 1e-6 * max(sizes[0], 1e-12)
        scale = float(np.sqrt(np.mean((left[:, kept] * sizes[kept]) ** 2))) or 1.0
        return cls(name, words, idf, components[kept].astype(np.float32), scale)

    def write(self, values: Series, to: NDArray[np.float32]) -> None:
        """By blocks of rows; where few texts differ, each is encoded once."""
        import pandas as pd

        texts = as_text(values).fillna("")
        codes, different = pd.factorize(texts)
        repeated = 2 * len(different) < len(texts)
        source, encoded = (different, np.empty((len(different), to.shape[1]), np.float32)) if repeated else (texts.array, to)
        for start in range(0, len(source), ENCODED_ROWS):
            block = slice(start, start + ENCODED_ROWS)
            counts = _hashed(source[block].tolist(), self.words)
            encoded[block] = (_weighted(counts, self.idf) @ self.components.T) / self.scale
        if repeated:
            to[:] = encoded[codes]

    @property
    def feature_names(self) -> list[str]:
        return [f"{self.name} text {k}" for k in range(len(self.components))]

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        return {"words": self.words, "scale": self.scale}, {"idf": self.idf, "components": self.components}

    @classmethod
    def from_state(cls, facts: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        words, idf, components = bool(facts["words"]), arrays["idf"], arrays["components"]
        places = HASHED_CHARACTERS + (HASHED_WORDS if words else 0)
        if idf.shape != (places,) or components.ndim != 2 or components.shape[1] != places:
            raise DataError(f"the encoding of column {facts['name']!r} has arrays of wrong shapes")
        return cls(str(facts["name"]), words, idf.astype(np.float32), components.astype(np.float32), _positive(facts["scale"]))


@dataclass
class EmbeddingEncoder:
    """A vector: its mean is subtracted, and all its numbers share one scale, so that distances keep their meaning."""

    key: ClassVar[str] = "embedding"
    name: str
    centre: NDArray[np.float32]
    scale: float
    marked: bool

    @classmethod
    def fit(cls, values: Series, name: str, seed: int) -> Self:
        return cls(name, *_geometry(as_matrix(values, name)))

    def transform(self, values: Series) -> NDArray[np.float32]:
        return self._features(as_matrix(values, self.name, len(self.centre)))

    def _features(self, matrix: NDArray[np.float32]) -> NDArray[np.float32]:
        missing = np.asarray(np.isnan(matrix).any(axis=1))
        scaled = np.nan_to_num((matrix - self.centre) / np.float32(self.scale))
        return np.concatenate([scaled, missing[:, None]], 1, dtype=np.float32) if self.marked else scaled

    @property
    def feature_names(self) -> list[str]:
        return [f"{self.name} {k}" for k in range(len(self.centre))] + [f"{self.name} missing"] * self.marked

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        return {"scale": self.scale, "marked": self.marked}, {"centre": self.centre}

    @classmethod
    def from_state(cls, facts: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        centre = arrays["centre"].astype(np.float32)
        if centre.ndim != 1 or not np.isfinite(centre).all():
            raise DataError(f"the encoding of column {facts['name']!r} has arrays of wrong shapes")
        return cls(str(facts["name"]), centre, _positive(facts["scale"]), bool(facts["marked"]))


@dataclass
class PretrainedColumn(EmbeddingEncoder):
    """The embeddings of texts or images by a pretrained model, which is named by what it is called and by its weights."""

    key: ClassVar[str] = "pretrained"
    model: str = ""
    modality: Modality = "text"
    identity: str = ""

    @classmethod
    def fitted(cls, values: Series, name: str, model: str, modality: Modality) -> Self:
        encoder = load_encoder(model, modality)
        matrix = _embedded(values, encoder, modality)
        return cls(name, *_geometry(matrix), model, modality, encoder.identity)

    def transform(self, values: Series) -> NDArray[np.float32]:
        matrix = _embedded(values, stored_encoder(self.model, self.modality, self.identity), self.modality, len(self.centre))
        return self._features(matrix)

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        facts, arrays = super().state()
        return {**facts, "model": self.model, "modality": self.modality, "identity": self.identity}, arrays

    @classmethod
    def from_state(cls, facts: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        found = super().from_state(facts, arrays)
        found.model, found.modality, found.identity = str(facts["model"]), facts["modality"], str(facts["identity"])
        if found.modality not in get_args(Modality):
            raise DataError(f"the encoding of column {facts['name']!r} is of texts or images")
        return found


def _geometry(matrix: NDArray[np.float32]) -> tuple[NDArray[np.float32], float, bool]:
    """The mean of vectors, the scale that all their numbers share, and whether some are missing."""
    spread = float(np.sqrt(np.nanmean(np.nanvar(matrix, 0, dtype=np.float64))))
    centre: NDArray[np.float64] = np.nanmean(matrix, 0, dtype=np.float64)
    return centre.astype(np.float32), spread or 1.0, bool(np.isnan(matrix).any())


def _embedded(values: Series, encoder: PretrainedEncoder, modality: Modality, width: int | None = None) -> NDArray[np.float32]:
    """The embedding of each value, NaN where it is missing."""
    there = values.notna().to_numpy()
    found = embed(as_text(values[there]).tolist() if modality == "text" else values[there].tolist(), encoder, modality)
    if width not in (None, found.shape[1]) and len(found):
        raise DataError(f"the encoder returned {found.shape[1]} numbers, and {width} in training")
    matrix = np.full((len(values), width or found.shape[1]), np.nan, np.float32)
    matrix[there] = found.reshape(-1, matrix.shape[1])
    return matrix


ENCODERS: Mapping[str, type[Any]] = {
    one.key: one
    for one in (
        NumberEncoder,
        ScaledEncoder,
        PlainEncoder,
        BooleanEncoder,
        DateEncoder,
        CategoryEncoder,
        TextEncoder,
        EmbeddingEncoder,
        PretrainedColumn,
    )
}
"""By the kind of column, or the key in a stored state"""


def _numbers(values: Series, name: str) -> NDArray[np.float64]:
    if isinstance(values.dtype, np.dtype) and values.dtype.kind in "iuf":  # of a hundred columns or a hundred thousand
        found = values.to_numpy(np.float64)
    else:
        numbers = as_numbers(values)
        _check_read(values, numbers, name, "number")
        found = numbers.to_numpy(np.float64, na_value=np.nan)
    return np.where(np.isfinite(found), np.clip(found, -MAX_NUMBER, MAX_NUMBER), np.nan)


def _flags(values: Series, name: str) -> NDArray[np.float64]:
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


def _seconds(values: Series, name: str) -> NDArray[np.float64]:
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


def _level_texts(values: Series) -> Series:
    """The values of a category as texts; whole numbers without the point that gaps give them."""
    import pandas as pd

    if pd.api.types.is_float_dtype(values.dtype) and bool((values.dropna() % 1 == 0).all()):
        values = values.astype("Int64")
    return as_text(values)


def _plain_texts(values: Series) -> list[str]:
    texts: list[str] = as_text(values).fillna("").tolist()
    return texts


def _hashed(texts: Sequence[str], words: bool) -> csr_matrix:
    from scipy.sparse import hstack
    from sklearn.feature_extraction.text import HashingVectorizer

    parts = [_character_counts(texts)]
    if words:
        pattern = r"(?u)\b\w+\b"
        parts.insert(
            0, HashingVectorizer(ngram_range=(1, 2), n_features=HASHED_WORDS, token_pattern=pattern, **COUNTS).transform(texts)
        )
    return hstack(parts, format="csr")


def _character_counts(texts: Sequence[str]) -> csr_matrix:
    """Counts of three to five characters within words: each word is hashed once, and a text's counts are those of its words."""
    from scipy.sparse import csr_matrix
    from sklearn.feature_extraction.text import HashingVectorizer

    place: dict[str, int] = {}
    lines = [text.lower().split() for text in texts]
    indices = [place.setdefault(word, len(place)) for line in lines for word in line]
    if not place:
        return csr_matrix((len(texts), HASHED_CHARACTERS), dtype=np.float32)
    ends = np.cumsum([0, *map(len, lines)])
    used = csr_matrix((np.ones(len(indices), np.float32), indices, ends), shape=(len(texts), len(place)))
    reader = HashingVectorizer(analyzer="char_wb", ngram_range=(3, 5), n_features=HASHED_CHARACTERS, lowercase=False, **COUNTS)
    counts = used @ reader.transform(list(place))
    counts.sort_indices()
    return counts


def _weighted(counts: csr_matrix, idf: NDArray[np.float32]) -> csr_matrix:
    """Sublinear TF-IDF with rows of length one."""
    from sklearn.preprocessing import normalize

    weighted = counts.copy()
    weighted.data = (1 + np.log(weighted.data)) * idf[weighted.indices]
    return normalize(weighted, copy=False)


def _robust(numbers: NDArray[np.float64]) -> tuple[float, float]:
    """The median and the interquartile range; where the latter is 0, half of the whole range."""
    if np.isnan(numbers).all():
        return 0.0, 1.0
    low, centre, high = np.nanquantile(numbers, [0.25, 0.5, 0.75])
    spread = high - low or (np.nanmax(numbers) - np.nanmin(numbers)) / 2
    return float(centre), float(spread) or 1.0


def _finite(value: Any) -> float:
    number = float(value)
    if not np.isfinite(number):
        raise DataError(f"a number of the encoding must be finite, got {number}")
    return number


def _positive(value: Any) -> float:
    if (number := _finite(value)) <= 0:
        raise DataError(f"a scale of the encoding must be above 0, got {number}")
    return number
