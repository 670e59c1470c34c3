"""Encoders of one column each, from values as people write them to float32 features. The state of each is JSON and arrays."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self, get_args

import numpy as np
from numpy.typing import NDArray

from noiseproof.data.columns import Series, as_matrix, as_text, flags_of, numbers_of, seconds_of
from noiseproof.data.embeddings import Modality, PretrainedEncoder, embed, load_encoder, stored_encoder
from noiseproof.io.files import DataError

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

SQUASH_AT = 3.0
"""Scaled numbers beyond this are squashed smoothly, so that an outlier is one without drowning the rest"""
MAX_ONE_HOT = 40
"""Values of a category that get a feature each; the rarer ones share one"""
HASHED_WORDS, HASHED_CHARACTERS = 2**14, 2**14
"""Places of the hashed TF-IDF of words and pairs of words, and of three to five characters"""
TEXT_FEATURES, CATEGORY_FEATURES = 64, 16
"""Features of a text, and of a category with more values than are one-hot, after the truncated SVD"""
MIN_VARIANCE = 0.05
"""Features of texts with less than this share of the variance of the second are left out: texts of few phrases need few. The
first is nearly the mean"""
SVD_ROWS = 10_000
"""Rows that the truncated SVD is fitted to; more do not change it much and take long"""
ENCODED_ROWS = 4096
"""Texts whose hashed words and characters are in memory at a time"""
COUNTS: Mapping[str, Any] = {"alternate_sign": False, "norm": None, "dtype": np.float32}
DAY = 86_400.0


ENCODERS: dict[str, type[Any]] = {}
"""By the kind of column, or the key in a stored state"""


class Encoder:
    """One column's encoder, a dataclass: its fields are what it keeps."""

    key: ClassVar[str]
    name: str

    def __init_subclass__(cls) -> None:
        ENCODERS[cls.key] = cls

    @classmethod
    def fit(cls, values: Series, name: str, seed: int) -> Self:
        """Fitted to the values of training rows."""
        raise NotImplementedError

    def write(self, values: Series, to: NDArray[np.float32]) -> None:
        """Write the features of values where they belong, ``[N, features]``: a matrix of their own would be as large again."""
        raise NotImplementedError

    @property
    def feature_names(self) -> list[str]:
        """What each feature is."""
        raise NotImplementedError

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """What JSON can hold, and arrays by name."""
        kept = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}  # type: ignore[arg-type] # it is one
        arrays = {name: value for name, value in kept.items() if isinstance(value, np.ndarray)}
        return {name: value for name, value in kept.items() if name not in arrays}, arrays

    @classmethod
    def from_state(cls, facts: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """From its state, of which each field is checked."""
        found = {}
        for field in dataclasses.fields(cls):  # type: ignore[arg-type] # it is a dataclass
            kept: Mapping[str, Any] = arrays if "NDArray" in str(field.type) else facts
            found[field.name] = READ_FIELDS[field.name](kept[field.name])
        return cls(**found)


@dataclass
class NumberEncoder(Encoder):
    """A number, scaled by its interquartile range and squashed beyond three of these, as RealMLP does (Holzmueller, Grinsztajn
    and Steinwart, NeurIPS 2024); the median where it is missing, and a mark for that."""

    key: ClassVar[str] = "number"
    name: str
    centre: float
    scale: float
    marked: bool

    @staticmethod
    def read(values: Series, name: str) -> NDArray[np.float64]:
        """The values as numbers, NaN where they are missing."""
        return numbers_of(values, name)

    @classmethod
    def fit(cls, values: Series, name: str, seed: int) -> Self:
        numbers = cls.read(values, name)
        return cls(name, *cls._measured(numbers), bool(np.isnan(numbers).any()))

    @staticmethod
    def _measured(numbers: NDArray[np.float64]) -> tuple[float, float]:
        """The median and the interquartile range; where the latter is 0, half of the whole range."""
        if np.isnan(numbers).all():
            return 0.0, 1.0
        low, centre, high = np.nanquantile(numbers, [0.25, 0.5, 0.75])
        spread = high - low or (np.nanmax(numbers) - np.nanmin(numbers)) / 2
        return float(centre), float(spread) or 1.0

    def _scaled(self, numbers: NDArray[np.float64]) -> NDArray[np.float64]:
        scaled = (numbers - self.centre) / self.scale
        return np.asarray(scaled / np.sqrt(1 + (scaled / SQUASH_AT) ** 2))

    def write(self, values: Series, to: NDArray[np.float32]) -> None:
        numbers = self.read(values, self.name)
        missing = np.isnan(numbers)
        to[:, 0] = self._scaled(np.where(missing, self.centre, numbers))
        if self.marked:
            to[:, 1] = missing

    @property
    def feature_names(self) -> list[str]:
        return [self.name, f"{self.name} missing"] if self.marked else [self.name]


class ScaledEncoder(NumberEncoder):
    """A number of an embedding: its mean and the scale that the embedding shares, without squashing."""

    key: ClassVar[str] = "scaled"

    @staticmethod
    def _measured(numbers: NDArray[np.float64]) -> tuple[float, float]:
        return float(np.nanmean(numbers)), float(np.nanstd(numbers)) or 1.0

    def _scaled(self, numbers: NDArray[np.float64]) -> NDArray[np.float64]:
        return (numbers - self.centre) / self.scale


class PlainEncoder(NumberEncoder):
    """A number as it is, where all columns are of one kind, as pixels are: training gives them one scale together."""

    key: ClassVar[str] = "plain"

    @classmethod
    def fit(cls, values: Series, name: str, seed: int) -> Self:
        return cls(name, float(np.nanmedian(cls.read(values, name))), 1.0, False)

    def _scaled(self, numbers: NDArray[np.float64]) -> NDArray[np.float64]:
        if len(far := np.flatnonzero(~(np.abs(numbers) <= np.finfo(np.float32).max))):
            found = "no number" if np.isnan(numbers[far[0]]) else f"{numbers[far[0]]:g}, beyond 3.4e38,"
            raise DataError(f"column {self.name!r} has {found} in row {far[0] + 1} ({len(far)} such)")
        return numbers


class BooleanEncoder(NumberEncoder):
    """0 and 1, the share of 1 where it is missing, and a mark for that."""

    key: ClassVar[str] = "boolean"

    @staticmethod
    def read(values: Series, name: str) -> NDArray[np.float64]:
        return flags_of(values, name)

    @staticmethod
    def _measured(numbers: NDArray[np.float64]) -> tuple[float, float]:
        return float(np.nanmean(numbers)), 1.0

    def _scaled(self, numbers: NDArray[np.float64]) -> NDArray[np.float64]:
        return numbers


class DateEncoder(NumberEncoder):
    """The time, scaled as a number is, and its place in the year, the week and the day as points on a circle."""

    key: ClassVar[str] = "date"

    @staticmethod
    def read(values: Series, name: str) -> NDArray[np.float64]:
        return seconds_of(values, name)

    def write(self, values: Series, to: NDArray[np.float32]) -> None:
        super().write(values, to)
        days = self.read(values, self.name) / DAY
        # The epoch was a Thursday; a year of 365.2425 days is exact enough for the season.
        phases = [days / 365.2425, (days + 3) / 7, days % 1]
        for k, circle in enumerate(wave(2 * np.pi * phase) for phase in phases for wave in (np.sin, np.cos)):
            to[:, k - 6] = np.nan_to_num(circle)

    @property
    def feature_names(self) -> list[str]:
        circles = [f"{self.name} {cycle} {wave}" for cycle in ("year", "week", "day") for wave in ("sin", "cos")]
        return super().feature_names + circles


@dataclass
class CategoryEncoder(Encoder):
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
        facts, arrays = super().state()
        if self.spelling is not None:
            facts["spelling"], arrays = self.spelling.state()
        return facts, arrays

    @classmethod
    def from_state(cls, facts: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        own = facts["spelling"]
        return super().from_state({**facts, "spelling": own and TextEncoder.from_state(own, arrays)}, arrays)


@dataclass
class TextEncoder(Encoder):
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
        from scipy.sparse import csr_matrix
        from sklearn.utils.extmath import randomized_svd

        if len(values) > SVD_ROWS:
            values = values.iloc[np.sort(np.random.default_rng(seed).choice(len(values), SVD_ROWS, replace=False))]
        counts = _hashed(as_text(values).fillna("").tolist(), words)
        seen = np.bincount(counts.indices, minlength=counts.shape[1])
        idf = (np.log((1 + len(values)) / (1 + seen)) + 1).astype(np.float32)
        used = np.flatnonzero(seen)
        place = np.zeros(len(idf), counts.indices.dtype)
        place[used] = np.arange(len(used))  # without a copy
        weighted = csr_matrix((_weighted(counts, idf).data, place[counts.indices], counts.indptr), (len(values), len(used)))
        most = max(1, min(features, len(values) - 1, len(used)))
        left, sizes, components = randomized_svd(weighted, most, n_iter=4, random_state=seed)
        kept = (sizes > 1e-6 * max(sizes[0], 1e-12)) & (sizes**2 >= MIN_VARIANCE * sizes[min(1, most - 1)] ** 2)
        scale = float(np.sqrt(np.mean((left[:, kept] * sizes[kept]) ** 2))) or 1.0
        whole = np.zeros((int(kept.sum()), len(idf)), np.float32)
        whole[:, used] = components[kept]
        return cls(name, words, idf, whole, scale)

    def write(self, values: Series, to: NDArray[np.float32]) -> None:
        """By blocks of rows, of which texts that are the same are encoded once."""
        components = np.ascontiguousarray(self.components.T)
        for start in range(0, len(values), ENCODED_ROWS):
            texts = as_text(values.iloc[start : start + ENCODED_ROWS]).fillna("").tolist()
            place = {text: k for k, text in enumerate(dict.fromkeys(texts))}
            encoded = (_weighted(_hashed(list(place), self.words), self.idf) @ components) / self.scale
            to[start : start + ENCODED_ROWS] = encoded[[place[text] for text in texts]]

    @property
    def feature_names(self) -> list[str]:
        return [f"{self.name} text {k}" for k in range(len(self.components))]

    def __post_init__(self) -> None:
        places = HASHED_CHARACTERS + (HASHED_WORDS if self.words else 0)
        _check_shapes(self.name, self.idf.shape == (places,) and self.components.shape[1:] == (places,))


@dataclass
class EmbeddingEncoder(Encoder):
    """A vector: its mean is subtracted, and all its numbers share one scale, so that distances keep their meaning."""

    key: ClassVar[str] = "embedding"
    name: str
    centre: NDArray[np.float32]
    scale: float
    marked: bool

    @classmethod
    def fit(cls, values: Series, name: str, seed: int) -> Self:
        return cls(name, *_geometry(as_matrix(values, name)))

    def write(self, values: Series, to: NDArray[np.float32]) -> None:
        matrix = self._matrix(values)
        missing = np.isnan(matrix).any(axis=1)
        to[:, : len(self.centre)] = np.nan_to_num((matrix - self.centre) / np.float32(self.scale))
        if self.marked:
            to[:, -1] = missing

    def _matrix(self, values: Series) -> NDArray[np.float32]:
        return as_matrix(values, self.name, len(self.centre))

    @property
    def feature_names(self) -> list[str]:
        return [f"{self.name} {k}" for k in range(len(self.centre))] + [f"{self.name} missing"] * self.marked

    def __post_init__(self) -> None:
        _check_shapes(self.name, self.centre.ndim == 1)


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
        return cls(name, *_geometry(_embedded(values, encoder, modality)), model, modality, encoder.identity)

    def _matrix(self, values: Series) -> NDArray[np.float32]:
        return _embedded(values, stored_encoder(self.model, self.modality, self.identity), self.modality, len(self.centre))


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


def _level_texts(values: Series) -> Series:
    """The values of a category as texts; whole numbers without the point that gaps give them."""
    import pandas as pd

    if pd.api.types.is_float_dtype(values.dtype) and bool((values.dropna() % 1 == 0).all()):
        values = values.astype("Int64")
    return as_text(values)


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
    """The counts, in their place, as sublinear TF-IDF with rows of length one."""
    from sklearn.preprocessing import normalize

    np.log(counts.data, out=counts.data)
    counts.data += 1
    counts.data *= idf[counts.indices]
    return normalize(counts, copy=False)


def _check_shapes(name: str, right: bool) -> None:
    if not right:
        raise DataError(f"the encoding of column {name!r} has arrays of wrong shapes")


def _finite(value: Any) -> float:
    number = float(value)
    if not np.isfinite(number):
        raise DataError(f"a number of the encoding must be finite, got {number}")
    return number


def _positive(value: Any) -> float:
    if (number := _finite(value)) <= 0:
        raise DataError(f"a scale of the encoding must be above 0, got {number}")
    return number


def _centre(value: Any) -> float | NDArray[np.float32]:
    """A number, or a vector of an embedding."""
    if not isinstance(value, np.ndarray):
        return _finite(value)
    if not np.isfinite(value).all():
        raise DataError("the centre of an encoding must be finite")
    return value.astype(np.float32)


def _modality(value: Any) -> Any:
    if value not in get_args(Modality):
        raise DataError(f"an encoding is of texts or images, got {value!r:.60}")
    return value


READ_FIELDS: Mapping[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("name", "model", "identity"), str),
    **dict.fromkeys(("marked", "rare", "words"), bool),
    **dict.fromkeys(("idf", "components"), lambda value: value.astype(np.float32)),
    "levels": lambda value: [str(one) for one in value],
    "spelling": lambda value: value,
    "centre": _centre,
    "scale": _positive,
    "modality": _modality,
}
"""What checks each field of a stored encoder"""
