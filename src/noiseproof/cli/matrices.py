"""Matrices that a user brings, of features or of predictions, from .npy, .npz and .csv files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noiseproof.io.arrays import NpzFile, read_npy, read_table
from noiseproof.io.files import ReadError, file_and_name
from noiseproof.io.text import cell, csv_rows, excerpt
from noiseproof.noise.files import column_order

__all__ = ["read_matrix", "read_predictions"]

ARRAY, NAMES = "probabilities", "classes"
"""Arrays that 'noiseproof predict' writes"""
PREFIX = "p_"
"""Before the name of a class in the header that it writes"""


def read_matrix(text: str, what: str, suffixes: tuple[str, ...] = (".npy", ".npz")) -> NDArray[Any]:
    """The numbers in a file: that of an .npz file which is named, or the only one."""
    path, name = file_and_name(text)
    if path.suffix not in suffixes:
        raise ValueError(f"{path}: {what} are read from {', '.join(suffixes)}, got {path.suffix or 'no suffix'!r}")
    if path.suffix == ".csv":
        return read_table(path)
    if path.suffix == ".npy":
        return read_npy(path)
    with NpzFile(path) as archive:
        chosen = name if name is not None else archive.names[0] if len(archive.names) == 1 else None
        if chosen not in archive.names:
            has = ", ".join(excerpt(each) for each in sorted(archive.names)[:20])
            raise ReadError(path, f"which array has the {what}? FILE#NAME says it; it has {has or 'none'}")
        return archive.array(str(chosen))


def read_predictions(text: str, classes: Sequence[str]) -> NDArray[Any]:
    """Class probabilities ``[N, K]``; where the file names its columns, in the order of these classes."""
    path, name = file_and_name(text)
    if path.suffix == ".csv" and (places := _in_header(path, classes)):
        return _columns(path, places)
    if path.suffix != ".npz" or name not in (None, ARRAY):
        return read_matrix(text, ARRAY, (".npy", ".npz", ".csv"))
    with NpzFile(path) as archive:
        if ARRAY not in archive.names:
            return read_matrix(text, ARRAY)
        found = archive.array(ARRAY)
        if found.ndim != 2 or NAMES not in archive.names:
            return found
        try:
            return np.asarray(found[:, column_order(archive.words(NAMES, found.shape[1]), classes)])
        except ReadError:
            raise
        except ValueError as error:
            raise ReadError(path, str(error)) from error


def _in_header(path: Path, classes: Sequence[str]) -> list[int]:
    """Where the columns of these classes are by a CSV file's header; none if it does not name each of them once."""
    try:
        header = next(csv_rows(path), (0, []))[1]
    except ReadError:  # which read_table says in its own words
        return []
    for names in (list(classes), [f"{PREFIX}{cell(name)}" for name in classes]):
        if all(header.count(name) == 1 for name in names) and not all(name.isdigit() for name in header):
            return [header.index(name) for name in names]
    return []


def _columns(path: Path, places: Sequence[int]) -> NDArray[np.float64]:
    rows = csv_rows(path)
    next(rows)
    found = []
    for line, row in rows:
        try:
            found.append([float(row[k]) for k in places])
        except ValueError:
            raise ReadError(f"{path}:{line}", f"numbers expected, found {excerpt([row[k] for k in places])}") from None
    return np.array(found, np.float64).reshape(len(found), len(places))
