"""Labels of any type as class indices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from noiseproof.data.values import Series, as_text
from noiseproof.io.csv_files import NUMBER_TEXT
from noiseproof.io.files import DataError

MAX_CLASS_SHARE = 0.1
"""More classes than this share of the rows is a question whether the label is a regression target"""
MIN_QUESTIONED_CLASSES = 20
MAX_WHOLE_LABEL = 2**53
"""Beyond it not every whole number is a float"""


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
