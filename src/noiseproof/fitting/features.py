"""From what a person hands in to the features that learners read: the encoder of a table's columns, then one common scale."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from noiseproof.data import DataError, Dataset, Split
from noiseproof.data.columns import TableEncoder
from noiseproof.io.text import excerpt

MIN_SCALE = 1e-12


@dataclass(frozen=True)
class Features:
    """How inputs become features: columns are centred and divided by one number, so that distances keep their meaning.

    Args:
        centre: The mean ``[D]`` of the training rows.
        scale: The root mean square of what is left, over all columns.
        encoder: Makes numbers of a table's columns; None for arrays.
        label: What the column of labels is called in a table.
        shape: Of one input that is an array.

    >>> features = Features.of(Dataset("xor", Split(np.eye(2, dtype=np.float32), np.array([0, 1])), None, ("a", "b")))
    >>> features.transform_inputs(np.eye(2, dtype=np.float32)).tolist()
    [[1.0, -1.0], [-1.0, 1.0]]
    """

    centre: NDArray[np.float32]
    scale: float
    encoder: TableEncoder | None
    label: str | None
    shape: tuple[int, ...]

    @classmethod
    def of(cls, dataset: Dataset) -> Self:
        """Fitted to the training rows of a data set."""
        inputs = _inputs(dataset.train)
        flat = inputs.reshape(len(inputs), -1)
        centre = flat.mean(0, dtype=np.float64).astype(np.float32)
        squares = sum(float(np.square(flat[k : k + 4096] - centre, dtype=np.float64).sum()) for k in range(0, len(flat), 4096))
        table = dataset.table
        return cls(
            centre,
            max(float(np.sqrt(squares / flat.size)), MIN_SCALE),
            None if table is None else table.encoder,
            None if table is None else table.label,
            inputs.shape[1:],
        )

    def transform_inputs(self, inputs: NDArray[Any]) -> NDArray[np.float32]:
        """Features of arrays that the encoder, if there is one, has made of a table."""
        flat = np.array(inputs.reshape(len(inputs), -1), np.float32)
        if flat.shape[1] != len(self.centre):
            raise DataError(f"the model reads {len(self.centre)} features, got {flat.shape[1]}")
        flat -= self.centre
        flat /= np.float32(self.scale)
        return flat

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """As JSON and arrays."""
        facts: dict[str, Any] = {"scale": self.scale, "label": self.label, "shape": list(self.shape), "encoder": None}
        arrays: dict[str, NDArray[Any]] = {"centre": self.centre}
        if self.encoder is not None:
            facts["encoder"], own = self.encoder.state()
            arrays |= {f"encoder.{name}": array for name, array in own.items()}
        return facts, arrays

    @classmethod
    def from_state(cls, facts: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """From its state; runs no code of the file that contains it."""
        try:
            own = {name.partition(".")[2]: array for name, array in arrays.items() if name.startswith("encoder.")}
            encoder = None if facts["encoder"] is None else TableEncoder.from_state(facts["encoder"], own)
            centre, scale = arrays["centre"], float(facts["scale"])
            label, shape = facts["label"], tuple(int(size) for size in facts["shape"])
            if centre.dtype != np.float32 or centre.ndim != 1 or not np.isfinite(centre).all() or not 0 < scale < np.inf:
                raise ValueError("the scale of the features must be finite numbers")
            if int(np.prod(shape)) != len(centre) or not (label is None or isinstance(label, str)):
                raise ValueError(f"{len(centre)} features of shape {shape}")
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise DataError(f"how a model reads its inputs is damaged: {excerpt(error, 200)}") from error
        return cls(centre, scale, encoder, label, shape)


def _inputs(examples: Any) -> NDArray[Any]:
    if not isinstance(examples, Split):
        way = "noiseproof.data.embed makes them with a pretrained network; 'noiseproof audit' trains networks on the images"
        raise DataError(f"fit reads features, and these are image files: {way}")
    return examples.inputs
