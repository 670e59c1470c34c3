"""Labels from a file, in place of the data's own."""

from __future__ import annotations

import dataclasses

from noiseproof.data import Dataset
from noiseproof.io.files import file_and_name
from noiseproof.noise import load_labels

__all__ = ["with_given"]


def with_given(dataset: Dataset, labels: str | None) -> Dataset:
    """The data set with the labels of a file, FILE or FILE#NAME, in place of its own."""
    if labels is None:
        return dataset
    path, name = file_and_name(labels)
    given = load_labels(path, name)
    if len(given) != len(dataset.train):
        raise ValueError(f"{path}: {len(given)} labels for {len(dataset.train)} examples; is it the same split and order?")
    if given.max() >= len(dataset.classes):
        raise ValueError(
            f"{path}: labels must be in [0, {len(dataset.classes) - 1}], the classes of the data, got {given.max()}"
        )
    return dataclasses.replace(dataset, train=dataset.train.with_labels(given))
