"""Data sets in their official formats: CIFAR-10 and CIFAR-100 (binary and Python), MNIST-style idx files.

No code in a file is run: see :mod:`noiseproof.io` for how the pickles of the Python versions are read.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import math
import struct
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from noiseproof.classes import class_names
from noiseproof.data.dataset import Dataset, as_split, assembled
from noiseproof.data.examples import DataError, Split
from noiseproof.io.arrays import check_size, check_unpacked, fill
from noiseproof.io.files import ReadError, checksum, is_file, open_regular
from noiseproof.io.pickles import read_pickle
from noiseproof.io.text import excerpt

__all__ = ["load_cifar10", "load_cifar100", "load_idx", "read_idx"]

CHECKSUMS = {
    "cifar-10-batches-bin": {
        "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
        "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
        "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
        "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
        "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
        "test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
    },
    "cifar-10-batches-py": {
        "data_batch_1": "c99cafc152244af753f735de768cd75f",
        "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
        "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
        "data_batch_4": "634d18415352ddfa80567beed471001a",
        "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
        "test_batch": "40351d587109b95175f43aff81a1287e",
    },
    "cifar-100-binary": {
        "train.bin": "e207cd2e05b73b1393c74c7f5e7bea451d63e08e",
        "test.bin": "8fb6623e830365ff53cf14adec797474f5478006",
    },
    "cifar-100-python": {"train": "16019d7e3df5f24257cddd939b257f8d", "test": "f0ef6b0ae62326f3e7ffdfab6717acfc"},
}
"""As published, MD5 or SHA-1: by folder, then by file, the test split last."""
PIXELS = 32 * 32 * 3
IDX_FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
MOST_DIMENSIONS = 8
IDX_TYPES = {8: "u1", 9: "i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}
Records = tuple[NDArray[np.uint8], NDArray[np.int64]]
Reader = Callable[[Path, bytes], Records]


def load_cifar10(folder: str | Path, *, check: bool = True) -> Dataset:
    """CIFAR-10 from its folder: ``cifar-10-batches-bin``, ``cifar-10-batches-py``, or one that holds either.

    ``check=False`` skips the published checksums, for re-packed copies and subsets; sizes and ranges are checked all the same.
    """
    binary, python = partial(_binary, label_bytes=1, classes=10), partial(_python, key="labels", classes=10)
    return _cifar("cifar10", Path(folder), {"cifar-10-batches-bin": binary, "cifar-10-batches-py": python}, check)


def load_cifar100(folder: str | Path, *, check: bool = True) -> Dataset:
    """CIFAR-100 with its fine labels, from ``cifar-100-binary``, ``cifar-100-python``, or a folder that holds either."""
    binary, python = partial(_binary, label_bytes=2, classes=100), partial(_python, key="fine_labels", classes=100)
    return _cifar("cifar100", Path(folder), {"cifar-100-binary": binary, "cifar-100-python": python}, check)


def load_idx(folder: str | Path, name: str = "mnist") -> Dataset:
    """Four idx files (MNIST, Fashion-MNIST, ...), gzipped or not; classes are 0 to 9, or as published for ``fashion-mnist``."""
    folder = Path(folder)
    classes = class_names("fashion-mnist" if name == "fashion-mnist" else "mnist")
    images, labels, test_images, test_labels = (_idx_path(folder, stem) for stem in IDX_FILES)
    train, test = _idx_split(images, labels, len(classes)), _idx_split(test_images, test_labels, len(classes))
    sources = {path.name: checksum(path) for path in (images, labels, test_images, test_labels)}
    return assembled(name, train, test, classes, sources, test_images)


def _idx_path(folder: Path, stem: str) -> Path:
    for name in (stem, f"{stem}.gz", stem.replace("-idx", ".idx")):
        if is_file(folder / name):
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
    """The array of one idx file, gzipped or not."""
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
    if dimensions > MOST_DIMENSIONS or math.prod(length or 1 for length in shape) >= 2**48:
        raise DataError(
            f"{path}: an array of shape {excerpt(shape)}; at most {MOST_DIMENSIONS} dimensions and 2**48 numbers are read"
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


def _cifar(name: str, folder: Path, readers: dict[str, Reader], check: bool) -> Dataset:
    """From the folder itself or one inside it; a layout is recognised by the file of its test split."""
    tests = {layout: [*CHECKSUMS[layout]][-1] for layout in readers}
    for layout, test in tests.items():
        for place in (folder, folder / layout):
            if is_file(place / test):
                return _read_cifar(name, place, CHECKSUMS[layout], readers[layout], check)
    raise FileNotFoundError(f"{folder}: no {' or '.join(tests)} there (looked for {', '.join(tests.values())})")


def _read_cifar(name: str, folder: Path, sums: dict[str, str], read: Reader, check: bool) -> Dataset:
    parts, sources = [], {}
    for file, expected in sums.items():
        path = folder / file
        if not is_file(path):
            raise FileNotFoundError(f"{path}: missing; the folder is incomplete")
        raw = path.read_bytes()
        if check:
            digest = (hashlib.md5 if len(expected) == 32 else hashlib.sha1)(raw, usedforsecurity=False).hexdigest()
            if digest != expected:
                raise DataError(f"{path}: checksum {expected} expected, found {digest}; download it again, or skip the check")
        parts.append(read(path, raw))
        sources[file] = hashlib.sha256(raw).hexdigest()
    (x_test, y_test), train = parts[-1], parts[:-1]
    x, y = np.concatenate([images for images, _ in train]), np.concatenate([labels for _, labels in train])
    return Dataset(name, Split(x, y), Split(x_test, y_test), class_names(name), sources)


def _binary(path: Path, raw: bytes, *, label_bytes: int, classes: int) -> Records:
    record = label_bytes + PIXELS
    if not raw or len(raw) % record:
        raise DataError(f"{path}: {len(raw)} bytes are not a whole number of records of {record}; is it truncated?")
    rows = np.frombuffer(raw, np.uint8).reshape(-1, record)
    labels = _class_labels(path, rows[:, label_bytes - 1], classes)
    return _as_images(rows[:, label_bytes:]), labels


def _python(path: Path, raw: bytes, *, key: str, classes: int) -> Records:
    try:
        content = read_pickle(raw)
    except ValueError as error:
        raise DataError(f"{path}: {error}") from error
    items = content.items() if isinstance(content, dict) else ()
    found = {name.decode("latin-1") if isinstance(name, bytes) else name: value for name, value in items}
    if "data" not in found or key not in found:
        holds = ", ".join(map(excerpt, [*found][:10])) or type(content).__name__
        raise DataError(f"{path}: should hold 'data' and {key!r}, found {holds}")
    pixels, labels = found["data"], found[key]
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.ndim != 2 or pixels.shape[1] != PIXELS:
        kind = f"{pixels.dtype} of shape {pixels.shape}" if isinstance(pixels, np.ndarray) else type(pixels).__name__
        raise DataError(f"{path}: images should be bytes of shape [N, {PIXELS}], found {kind}")
    if isinstance(labels, list) and all(type(label) is int and abs(label) < 2**63 for label in labels):
        labels = np.array(labels, np.int64)
    if not isinstance(labels, np.ndarray) or labels.shape != (len(pixels),) or labels.dtype.kind not in "iu":
        kind = f"labels of shape {labels.shape}" if isinstance(labels, np.ndarray) else "other than numbers for labels"
        raise DataError(f"{path}: {len(pixels)} images but {kind}")
    if not len(pixels):
        raise DataError(f"{path}: there are no images in it")
    return _as_images(pixels), _class_labels(path, labels, classes)


def _class_labels(path: Path, labels: NDArray[Any], classes: int) -> NDArray[np.int64]:
    if labels.min() < 0 or labels.max() >= classes:
        wrong = labels.min() if labels.min() < 0 else labels.max()
        raise DataError(f"{path}: labels must be in [0, {classes - 1}], got {wrong}")
    return labels.astype(np.int64)


def _as_images(rows: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return np.ascontiguousarray(rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
