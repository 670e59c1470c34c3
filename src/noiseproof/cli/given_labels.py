"""Labels from a file, in place of the data's own."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from noiseproof.data import Dataset
from noiseproof.files import exists
from noiseproof.noise import load_labels

__all__ = ["file_and_name", "with_given"]


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


def file_and_name(text: str) -> tuple[Path, str | None]:
    """FILE, or FILE#NAME where that is no file itself."""
    file, mark, name = text.rpartition("#")
    whole = not mark or exists(Path(text).expanduser())
    return Path(text if whole else file).expanduser(), None if whole else name
