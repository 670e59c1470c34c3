"""Examples to predict, with or without labels: arrays, tables of features, and image files in a folder, a list or alone."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from noiseproof.data.dataset import as_split
from noiseproof.data.examples import DataError, Examples, ImageFiles
from noiseproof.data.features import read_features
from noiseproof.data.images import EXTENSIONS, class_files
from noiseproof.data.list_lines import PATH_WORDS, Line, has_header, text_lines
from noiseproof.data.lists import listed_files, load_list
from noiseproof.io.arrays import NpzFile
from noiseproof.io.files import ReadError, exists, file_and_name, is_dir, is_file
from noiseproof.io.text import excerpt

__all__ = ["Unlabelled", "open_unlabelled"]

TEXTS = (".txt", ".csv", ".tsv")


@dataclass(frozen=True)
class Unlabelled:
    """Examples whose own labels, of which there may be none, do not matter; ``labels`` has them as indices of the classes."""

    examples: Examples
    labels: NDArray[np.int64] | None
    names: tuple[str, ...] | None = None
    """Of the examples: paths, or what a column of a table says"""
    note: str = ""
    """Why labels that are there are not used, or how columns differ from those of training"""


def open_unlabelled(place: str | Path, classes: Sequence[str], features: int | None, columns: Sequence[str] = ()) -> Unlabelled:
    """The examples in a place, for a network of these classes that reads so many features, or images if None.

    An .npz file has ``x``, and may have ``y``. A table (.txt, .csv, .tsv) has the features, by the names of ``columns`` or in
    their order, and may have a column of labels, which FILE#COLUMN names.
    Images are a file, a list (.txt, .csv, .tsv) of lines "path" or "path label", or a folder with images in it or in a
    sub-folder for each class. Labels are the numbers of the classes, in tables, lists and folders also their names.
    """
    path, column = file_and_name(str(place))
    suffix = path.suffix.lower()
    if column is not None and (features is None or suffix not in TEXTS):
        raise DataError(f"{place}: FILE#COLUMN says which column of a table of features has the labels; leave #{column} out")
    if is_dir(path):
        return _folder(path, classes)
    if not is_file(path):
        raise FileNotFoundError(f"{path}: {'no regular file' if exists(path) else 'no such file'} or folder")
    if suffix == ".npz":
        return _arrays(path, len(classes))
    if suffix in TEXTS:
        return _list(path, classes) if features is None else _table(path, classes, features, columns, column)
    if suffix in EXTENSIONS:
        return _unlabelled(ImageFiles((os.fspath(path),), np.zeros(1, np.int64)))
    known = ".npz, a table or list (.txt, .csv, .tsv), an image or a folder"
    raise DataError(f"{path}: examples to predict are {known}, got {suffix!r}")


def _arrays(path: Path, classes: int) -> Unlabelled:
    try:
        with NpzFile(path) as archive:
            if "x" not in archive.names:
                has = ", ".join(excerpt(name) for name in sorted(archive.names)[:20]) or "none"
                raise DataError(f"{path}: no array named 'x'; it has {has}")
            inputs, labels = archive.array("x"), archive.array("y") if "y" in archive.names else None
    except ReadError as error:
        raise DataError(f"{path}: not a readable .npz file: {error.fault}") from error
    if labels is None:
        return Unlabelled(as_split(inputs, np.zeros(inputs.shape[:1] or 1, np.int64), None, f"{path}, x"), None)
    split = as_split(inputs, labels, classes, f"{path}, x and y")
    return Unlabelled(split, split.labels)


def _table(path: Path, classes: Sequence[str], features: int, columns: Sequence[str], label: str | None) -> Unlabelled:
    if not features:
        raise DataError(f"{path}: the run did not keep how many features it reads; save them as an .npz file with x")
    inputs, labels, names, taken = read_features(path, features, columns, label)
    split = as_split(inputs, np.zeros(len(inputs), np.int64), None, str(path))
    found, note = (None, "") if labels is None else _indices(labels, classes)
    return Unlabelled(split, found, names, "; ".join(filter(None, (taken, note))))


def _folder(folder: Path, classes: Sequence[str]) -> Unlabelled:
    with os.scandir(folder) as entries:
        found = [entry for entry in entries if not entry.name.startswith(".")]
        folders = sorted(entry.name for entry in found if entry.is_dir())
        images = [entry for entry in found if not entry.is_dir() and Path(entry.name).suffix.lower() in EXTENSIONS]
    if folders and images:
        raise DataError(f"{folder}: has images and folders; give one of the folders, or move the images into one")
    if not folders and not images:
        raise DataError(f"{folder}: no images")
    if images:
        return _unlabelled(class_files(folder, {".": 0}, lambda _: None, root=folder))
    files = class_files(folder, {name: k for k, name in enumerate(folders)}, lambda _: None, root=folder)
    labels, note = _indices([folders[k] for k in files.labels], classes)
    return Unlabelled(files, labels, files.paths, note)


def _list(path: Path, classes: Sequence[str]) -> Unlabelled:
    lines = list(text_lines(path))
    if not lines:
        raise DataError(f"{path}: no images listed")
    column = lines[0][1].lower() in PATH_WORDS
    if column or (not has_header(lines[0][1]) and is_file(path.parent / lines[0][1])):
        return _unlabelled(listed_files(path, [Line(text, 0, number) for number, text in lines[column:]]))
    dataset = load_list(path)
    files = dataset.train
    if files.in_memory:
        raise TypeError(f"{path}: image files expected")
    labels, note = _indices([dataset.classes[k] for k in files.labels], classes)
    return Unlabelled(files, labels, files.paths, note)


def _unlabelled(files: ImageFiles) -> Unlabelled:
    return Unlabelled(files, None, files.paths)


def _indices(labels: Sequence[str], classes: Sequence[str]) -> tuple[NDArray[np.int64] | None, str]:
    """The labels as indices of the classes, by name or by number, or why there are none."""
    places = {name: k for k, name in reversed(list(enumerate(classes)))}
    numbers = {str(k): k for k in range(len(classes))}
    for known in (places, numbers):
        if all(label in known for label in labels):
            return np.array([known[label] for label in labels], np.int64), ""
    strange = next(label for label in labels if label not in places)
    return None, f"the labels are not used: {excerpt(strange)!r} is no class of the run"
