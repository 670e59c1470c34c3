"""Rows of a table as a matrix of features: encoders of its columns, fitted on the training rows alone, and how they are stored.

The fitted state is JSON and arrays: loading an encoder from elsewhere runs no code.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noiseproof.data.columns import IMAGES_LEFT_OUT, Column, Frame, Kind, as_numbers, infer_columns, is_image_column, listed
from noiseproof.data.embeddings import Modality
from noiseproof.data.encoders import ENCODERS, Encoder, PretrainedColumn
from noiseproof.io.arrays import read_tensors
from noiseproof.io.files import DataError, write_tensors
from noiseproof.io.limits import check_memory
from noiseproof.io.text import and_more, excerpt, parse_json, printable

MIN_BLOCK_COLUMNS = 16
"""So many columns of numbers called PREFIX0, PREFIX1, ... are one embedding, which keeps its geometry"""
MAX_BLOCK_SPREAD, MAX_BLOCK_RANGE = 10.0, 100.0
"""Ratios of the columns' standard deviations, of nine tenths to a tenth and of the largest to the smallest, in an embedding"""
EMBEDDING_ROWS = 4096
"""Rows of an array whose deviations say whether it is an embedding"""
LEFT_OUT = ("all different", "names the rows", "as asked", IMAGES_LEFT_OUT)
"""Why columns are left out that are no pixels either"""
MAX_PIXEL_VALUES, ROWS_AT_ONCE = 256, 256
"""Different values that columns of one kind have at most, as pixels of eight bits do; and examples to count at a time"""
ENCODER_VERSION = 2
"""Another number when the same rows become other features; what earlier ones fitted is read"""
FORMAT = "noiseproof columns"
"""The key of what a file of an encoder says of its columns"""
MAX_STATE_CHARACTERS = 2**26
"""Of that text: as objects it takes many times more memory"""
MAX_CLASSES_NAMED = 10
"""Classes that a line names"""


@dataclass
class TableEncoder:
    """Rows of mixed columns as a matrix of float32 features, fitted on training rows alone.

    Numbers are scaled robustly and their outliers squashed. Categories are one-hot, with a feature for new values. Booleans and
    dates become numbers. Free text is TF-IDF of words and characters, reduced by a truncated SVD. An embedding is centred and
    keeps one scale for all its columns. A missing value is filled in and marked by a feature of its own.

    Args:
        columns: What the columns are, as :func:`infer_columns` finds it.
        seed: Of the truncated SVD.
        plain: Keep the numbers as they are: all are of one kind, as pixels are, and training gives them one scale.
        pretrained: The name, folder or ``module:function`` of an encoder of the texts or the images.

    >>> import pandas as pd
    >>> frame = pd.DataFrame({"age": [31.0, None, 58.0], "plan": ["basic", "pro", "basic"]})
    >>> encoder = TableEncoder(infer_columns(frame)).fit(frame)
    >>> encoder.transform(frame).shape, encoder.feature_names
    ((3, 4), ['age', 'age missing', 'plan = basic', 'plan = pro'])
    """

    columns: Sequence[Column]
    seed: int = 0
    plain: bool = False
    pretrained: str | None = None
    encoders: list[Encoder] = field(default_factory=list, init=False)

    def fit(self, frame: Frame) -> TableEncoder:
        """Fit every column's encoder.

        Args:
            frame: The training rows; may have further columns.

        Returns:
            The encoder itself.

        Raises:
            DataError: If no column is left to learn from, or one is missing.
        """
        used = [column for column in self.columns if column.kind != "drop"]
        if not used:
            raise DataError("no column is left to learn from: " + "; ".join(map(str, self.columns[:20])))
        self._check_names(frame)
        block = {} if self.plain else _block_columns(frame, used)
        modalities: set[Modality] = {one.kind for one in used if one.kind in ("text", "image")} if self.pretrained else set()
        if self.pretrained and len(modalities) != 1:
            there = "columns of texts and of images" if modalities else "no column of texts or images"
            raise DataError(f"{there} for the encoder {self.pretrained}; --columns NAME=text or NAME=drop says what they are")
        self.encoders = []
        for column in used:
            if self.pretrained and column.kind in modalities:
                encode = PretrainedColumn.fitted(frame[column.name], column.name, self.pretrained, *modalities)
                self.encoders.append(encode)
                continue
            kind = "plain" if self.plain else "scaled" if column.name in block else column.kind
            self.encoders.append(ENCODERS[kind].fit(frame[column.name], column.name, self.seed))
        _share_scale([one for one in self.encoders if one.name in block], block)
        return self

    def transform(self, frame: Frame) -> NDArray[np.float32]:
        """Encode rows.

        Args:
            frame: Rows with the columns of training, found by name; others are ignored.

        Returns:
            Features ``[N, D]``.

        Raises:
            DataError: If a column is missing, or its values are not of its kind.
        """
        self._check_names(frame)
        widths = [len(one.feature_names) for one in self.encoders]
        check_memory(f"{len(frame)} rows of {sum(widths)} features", 4 * len(frame) * sum(widths), "leave out rows or columns")
        found = np.empty((len(frame), sum(widths)), np.float32)  # filled column by column: the parts together are as large
        for one, end, width in zip(self.encoders, np.cumsum(widths).tolist(), widths, strict=True):
            one.write(frame[one.name], found[:, end - width : end])
        return found

    @property
    def image_column(self) -> str | None:
        """The column of images, if there is one."""
        return next((one.name for one in self.encoders if isinstance(one, PretrainedColumn) and one.modality == "image"), None)

    @property
    def reads_images(self) -> bool:
        """Whether images are all that is encoded."""
        return len(self.encoders) == 1 and self.image_column is not None

    @property
    def feature_names(self) -> list[str]:
        """What each feature is."""
        return [name for one in self.encoders for name in one.feature_names]

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """The fitted encoder as JSON and arrays.

        Returns:
            Facts that JSON can hold, and arrays by name.
        """
        facts: list[dict[str, Any]] = []
        arrays: dict[str, NDArray[Any]] = {}
        for k, one in enumerate(self.encoders):
            own, numbers = one.state()
            facts.append({"name": one.name, "encoder": type(one).key, **own})
            arrays |= {f"{k}.{name}": array for name, array in numbers.items()}
        columns = [asdict(column) for column in self.columns]
        return {"version": ENCODER_VERSION, "columns": columns, "plain": self.plain, "encoders": facts}, arrays

    @classmethod
    def from_state(cls, facts: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> TableEncoder:
        """An encoder from its state; runs no code of the file that holds it.

        Args:
            facts: As :meth:`state` returns them.
            arrays: Likewise.

        Returns:
            The fitted encoder.

        Raises:
            DataError: If the state is not one that :meth:`state` returned.
        """
        try:
            if facts["version"] not in range(1, ENCODER_VERSION + 1):
                raise DataError(f"columns were encoded by a later version of noiseproof, format {facts['version']!r}")
            encoder = cls([Column(**column) for column in facts["columns"]], plain=bool(facts["plain"]))
            for k, one in enumerate(facts["encoders"]):
                own = {name.partition(".")[2]: array for name, array in arrays.items() if name.startswith(f"{k}.")}
                encoder.encoders.append(ENCODERS[one["encoder"]].from_state(one, own))
            for names in ([column.name for column in encoder.columns], [one.name for one in encoder.encoders]):
                if len(set(names)) < len(names):
                    raise DataError("the encoding of the columns is damaged: two columns have one name")
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            if isinstance(error, DataError):
                raise
            raise DataError(f"the encoding of the columns is damaged: {type(error).__name__} {str(error)[:200]}") from error
        return encoder

    def _check_names(self, frame: Frame) -> None:
        there = {str(name) for name in frame.columns}
        needed = [one.name for one in self.encoders] or [column.name for column in self.columns if column.kind != "drop"]
        if missing := [name for name in needed if name not in there]:
            which = f"columns {listed(missing)} of training are" if missing[1:] else f"column {missing[0]!r} of training is"
            bare = ": a first line of names is missing" if there == {str(k) for k in range(len(there))} else ""
            raise DataError(f"{which} missing; the columns are {listed(sorted(there))}{bare}")


@dataclass(frozen=True, eq=False)
class Table:
    """The rows that the features of a data set were made of, and the fitted encoder that makes features of new rows.

    Args:
        rows: The columns of each split's rows, without the label: ``train``, and ``test`` if there is one.
        label: What the column of labels is called.
        kinds: Columns whose kind the user gave.
        encoder: Fitted on the training rows alone.
        notes: What looks like a slip: a column that gives the label away, classes of nearly one spelling.
        names: The column that names the rows, if there is one.
        positions: Of the training rows among the rows that were read.

    >>> from noiseproof.data import open_dataset, read_frame
    >>> table = open_dataset({"age": [31, None, 58], "y": ["a", "b", "a"]}, label="y").table
    >>> table.encoder.transform(read_frame({"age": [40]})).shape, table.lines
    ((1, 2), ['age number, 33 % missing'])
    """

    rows: Mapping[str, Frame]
    label: str
    kinds: Mapping[str, Kind]
    encoder: TableEncoder
    notes: tuple[str, ...] = ()
    names: str | None = None
    positions: NDArray[np.int64] | None = None

    def write(self, path: Path) -> str:
        """Write the encoder and the names of labels and rows as one file without code, whole or not at all.

        Args:
            path: Where to, a ``.safetensors`` file.

        Returns:
            Its SHA-256.
        """
        facts, arrays = self.encoder.state()
        described = {"encoder": facts, "label": self.label, "names": self.names, "notes": list(self.notes)}
        return write_tensors(path, arrays, {FORMAT: json.dumps(described)})

    @staticmethod
    def read(path: Path) -> Table:
        """What :meth:`write` wrote, without rows. Nothing in the file is executed.

        Args:
            path: The file.

        Returns:
            A table without rows.

        Raises:
            DataError: If it is another file, or a damaged one.
        """
        try:
            if (found := read_tensors(path)) is None:
                raise DataError("its arrays cannot be read")
            arrays, text = found[0], found[1].get(FORMAT, "")
            if len(text) > MAX_STATE_CHARACTERS:
                raise DataError(f"it describes the columns in {len(text)} characters, at most {MAX_STATE_CHARACTERS}")
            facts = parse_json(text)
            label, names, notes = str(facts["label"]), facts["names"], tuple(map(str, facts["notes"]))
            encoder = TableEncoder.from_state(facts["encoder"], arrays)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise DataError(f"{path}: damaged, or not the encoding of a table: {excerpt(error, 200)}") from error
        return Table({}, label, {}, encoder, notes, None if names is None else str(names))

    @property
    def lines(self) -> list[str]:
        """What each column was understood as."""
        if self.encoder.plain:
            left = [str(column) for column in self.encoder.columns if column.kind == "drop"]
            return [f"{len(self.encoder.encoders)} columns of numbers of one kind", *left]
        models = {one.name: f", embedded by {one.model}" for one in self.encoder.encoders if isinstance(one, PretrainedColumn)}
        return [f"{column}{models.get(column.name, '')}" for column in self.encoder.columns]

    def described(self, classes: Sequence[str], most: int = 40) -> list[str]:
        """What each column was understood as, and which classes the labels are.

        Args:
            classes: The names of the classes, in the order of their numbers.
            most: Lines to return; the last one counts the further columns by their kinds.

        Returns:
            Lines to print.
        """
        lines = self.lines
        if len(lines) >= most:
            kinds = Counter("left out" if one.kind == "drop" else one.kind for one in self.encoder.columns[most - 1 :])
            lines = [*lines[: most - 1], "further columns: " + ", ".join(f"{count} {kind}" for kind, count in kinds.items())]
        named = and_more([excerpt(name, 40) for name in classes], MAX_CLASSES_NAMED)
        return [*(printable(line) for line in lines), f"{printable(self.label)} the label, {len(classes)} classes: {named}"]

    def held_out(self, mask: NDArray[np.bool_]) -> tuple[Table, NDArray[np.float32], NDArray[np.float32]]:
        """Hold out training rows to test on.

        Args:
            mask: Which, ``[N]``.

        Returns:
            The table whose encoder is fitted to the other rows, and the features of the other rows and of these.
        """
        frame = self.rows["train"]
        rows = {**self.rows, "train": frame[~mask], "test": frame[mask]}
        encoder = fitted_encoder(rows["train"], self.kinds, self.names, self.encoder.pretrained, plain=self.encoder.plain)
        positions = None if self.positions is None else self.positions[~mask]
        table = replace(self, rows=rows, encoder=encoder, positions=positions)
        return table, encoder.transform(rows["train"]), encoder.transform(rows["test"])


def fitted_encoder(
    frame: Frame, kinds: Mapping[str, Kind], names: str | None, pretrained: str | None = None, *, plain: bool | None = None
) -> TableEncoder:
    """The encoder of training rows, one column of which may name the rows; ``plain`` is found where it is not said."""
    columns = infer_columns(frame, kinds)
    if pretrained is None:
        columns = [replace(one, kind="drop", reason=IMAGES_LEFT_OUT) if one.kind == "image" else one for one in columns]
    elif names is not None and is_image_column(frame[names]):
        names = None  # the files' names are what is encoded
    if names is not None:
        columns = [replace(one, kind="drop", reason="names the rows") if one.name == names else one for one in columns]
    numbers = [one.name for one in columns if one.reason not in LEFT_OUT]
    if plain is None:
        plain = not kinds and bool(numbers) and of_one_kind(frame[numbers])
    if plain:  # where a column that is constant, or the same as another, is a pixel like all others
        columns = [replace(one, kind="number", reason="") if one.name in numbers else one for one in columns]
    return TableEncoder(columns, plain=plain, pretrained=pretrained).fit(frame)


def of_one_kind(values: Any) -> bool:
    """Whether all columns are of one kind, as pixels are: they share few values, and three quarters span half of the range.

    Then a column that is rarely other than 0 is not to count as much as the others.

    Args:
        values: An array ``[N, D]``, or a frame, which is of no kind where a column is not of numbers or has gaps.

    Returns:
        True if they are.

    >>> of_one_kind(np.arange(200).reshape(50, 4) % 7), of_one_kind(np.random.default_rng(0).normal(size=(200, 4)))
    (True, False)
    """
    if hasattr(values, "dtypes"):
        if any(kind.kind not in "iuf" for kind in values.dtypes) or values.isna().any(axis=None):
            return False
        values = values.to_numpy(np.float64)
    low, high = (edge.astype(np.float64) for edge in (values.min(0), values.max(0)))
    spans = (high / 2 - low / 2)[high > low]  # of halves, since the difference of the largest numbers is none
    if spans.size < 2 or not np.quantile(spans, 0.25) >= (high.max() / 2 - low.min() / 2) / 2:
        return False
    found: set[float] = set()
    for start in range(0, len(values), ROWS_AT_ONCE):
        found.update(np.unique(values[start : start + ROWS_AT_ONCE]).tolist())
        if len(found) > MAX_PIXEL_VALUES:
            return False
    return True


def of_one_embedding(values: NDArray[Any]) -> bool:
    """Whether all columns may be the numbers of one embedding: there are many, on about the same scale.

    Args:
        values: An array ``[N, D]``.

    Returns:
        True if they may; standardising each by itself would then undo their geometry.

    >>> x = np.random.default_rng(0).normal(size=(50, 32))
    >>> of_one_embedding(x * np.linspace(1, 5, 32)), of_one_embedding(x * 10.0 ** np.arange(32)), of_one_embedding(x[:, :8])
    (True, False, False)
    """
    spreads = values[:: -(-len(values) // EMBEDDING_ROWS)].std(0, dtype=np.float64)
    spreads = spreads[spreads > 0]
    return len(spreads) >= MIN_BLOCK_COLUMNS and _has_shared_scale(spreads)


def _block_columns(frame: Frame, columns: Sequence[Column]) -> dict[str, str]:
    """Columns of numbers that are one embedding by their names and scales, and their prefix: ``e0, e1, ...``."""
    blocks: dict[str, list[str]] = {}
    for column in columns:
        if column.kind == "number" and (match := re.fullmatch(r"(.*?)[_ .-]?\d+", column.name)):
            blocks.setdefault(match[1], []).append(column.name)
    found: dict[str, str] = {}
    for prefix, names in blocks.items():
        if len(names) >= MIN_BLOCK_COLUMNS:
            spreads = np.array([float(np.nanstd(as_numbers(frame[name]).to_numpy(np.float64))) for name in names])
            if _has_shared_scale(spreads):
                found |= dict.fromkeys(names, prefix)
    return found


def _share_scale(encoders: Sequence[Encoder], block: Mapping[str, str]) -> None:
    """One scale for all columns of a block: standardising principal components one by one would undo their geometry."""
    for prefix in dict.fromkeys(block[one.name] for one in encoders):
        members = [one for one in encoders if block[one.name] == prefix]
        shared = float(np.sqrt(np.mean([one.scale**2 for one in members])))  # type: ignore[attr-defined] # all are ScaledEncoder
        for one in members:
            one.scale = shared or 1.0  # type: ignore[attr-defined] # likewise


def _has_shared_scale(spreads: NDArray[np.float64]) -> bool:
    """Whether columns may be numbers of one kind: those of embeddings of seven data sets differed by at most 5.6."""
    low, high = np.quantile(spreads, [0.1, 0.9])
    return bool(high <= MAX_BLOCK_SPREAD * low and spreads.max() <= MAX_BLOCK_RANGE * max(spreads.min(), 1e-300))
