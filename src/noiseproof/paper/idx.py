"""MNIST-style idx files: images and labels as bytes, packed by gzip or not."""

from __future__ import annotations

import contextlib
import gzip
import math
import struct
import zlib
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from noiseproof.data.dataset import Dataset, Split, as_split, assembled
from noiseproof.io.arrays import check_size, check_unpacked, fill
from noiseproof.io.files import DataError, ReadError, checksum, open_regular
from noiseproof.io.text import excerpt

IDX_FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
IDX_MARKERS = ("train-images-idx3-ubyte", "train-images-idx3-ubyte.gz", "train-images.idx3-ubyte")
"""Files of which one is there if a folder has idx files"""
MAX_IDX_DIMENSIONS = 8
IDX_TYPES = {8: "u1", 9: "i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}
DIGITS = tuple("0123456789")


def load_idx(folder: str | Path, name: str = "mnist", classes: tuple[str, ...] = DIGITS) -> Dataset:
    """Read the four idx files of MNIST and its like, packed by gzip or not.

    Args:
        folder: Where the files are.
        name: Of the data set.
        classes: Names of the classes.

    Returns:
        The data set.

    >>> load_idx("no-such-folder")
    Traceback (most recent call last):
    FileNotFoundError: no-such-folder: no train-images-idx3-ubyte or train-images-idx3-ubyte.gz
    """
    folder = Path(folder)
    images, labels, test_images, test_labels = (_idx_path(folder, stem) for stem in IDX_FILES)
    train, test = _idx_split(images, labels, len(classes)), _idx_split(test_images, test_labels, len(classes))
    sources = {path.name: checksum(path) for path in (images, labels, test_images, test_labels)}
    return assembled(name, train, test, classes, sources, test_images)


def _idx_path(folder: Path, stem: str) -> Path:
    for name in (stem, f"{stem}.gz", stem.replace("-idx", ".idx")):
        if (folder / name).is_file():
            return folder / name
    raise FileNotFoundError(f"{folder}: no {stem} or {stem}.gz")


def _idx_split(images: Path, labels: Path, classes: int) -> Split:
    """Images and labels from their two files; an error about both names the labels' file."""
    x, y = read_idx(images), read_idx(labels)
    for path, array, wanted in ((images, x, 3), (labels, y, 1)):
        if array.ndim != wanted or array.dtype != np.uint8:
            raise DataError(f"{path}: should hold bytes in {wanted} dimensions, found {array.dtype} in {array.ndim}")
    if not x.size:
        raise DataError(f"{images}: there are no images in it, its shape is {x.shape}")
    return as_split(x[..., None], y, classes, f"{labels} (images from {images.name})")


def read_idx(path: str | Path) -> NDArray[Any]:
    """Read an idx file of bytes, packed by gzip or not.

    Args:
        path: The file.

    Returns:
        The array.

    Raises:
        DataError: If the file is damaged or of another kind.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "labels-idx1-ubyte").write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 2, 7, 3]))
    ...     read_idx(f"{folder}/labels-idx1-ubyte").tolist()
    [7, 3]
    """
    path = Path(path)
    try:
        with open_regular(path) as file:
            packed = file.read(2) == b"\x1f\x8b"
            size = file.seek(0, 2)
            file.seek(0)
            with gzip.GzipFile(fileobj=file) if packed else contextlib.nullcontext(file) as stream:
                return _read_idx(path, stream, size, packed)
    except ReadError as error:
        raise DataError(str(error)) from error
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{path}: damaged gzip data: {error}") from error


def _read_idx(path: Path, stream: BinaryIO | gzip.GzipFile, size: int, packed: bool) -> NDArray[Any]:
    start = stream.read(4)
    if len(start) < 4 or start[:2] != b"\0\0" or start[2] not in IDX_TYPES:
        raise DataError(f"{path}: not an idx file: it starts with {start.hex() or 'nothing'}")
    dimensions, dtype = start[3], np.dtype(IDX_TYPES[start[2]])
    lengths = stream.read(4 * dimensions)
    if len(lengths) < 4 * dimensions:
        raise DataError(f"{path}: truncated in its header")
    shape = struct.unpack(f">{dimensions}I", lengths)
    if dimensions > MAX_IDX_DIMENSIONS or math.prod(length or 1 for length in shape) >= 2**48:
        raise DataError(
            f"{path}: an array of shape {excerpt(shape)}; at most {MAX_IDX_DIMENSIONS} dimensions and 2**48 numbers are read"
        )
    count, what = math.prod(shape), f"shape {shape}"
    header = 4 + 4 * dimensions
    promised = header + dtype.itemsize * count
    if packed:
        check_unpacked(path, promised, size)
    else:
        check_size(path, what, promised, size)
    array = np.empty(count, dtype)
    check_size(path, what, promised, header + fill(stream, array) + len(stream.read(1)))
    return array.reshape(shape).astype(dtype.newbyteorder("="), copy=False)
