"""MNIST-style idx files, on small files made here; damaged ones are refused."""

import gzip
import struct

import numpy as np
import pytest

from noiseproof.data import DataError
from noiseproof.paper.plugin import load_idx, read_idx


def idx_bytes(array, code):
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, code, array.ndim, *array.shape) + array.tobytes()


@pytest.mark.parametrize("zipped", [False, True])
def test_idx_files_are_read_gzipped_or_not(tmp_path, zipped):
    images, labels = np.random.default_rng(0).integers(0, 256, (5, 28, 28), dtype=np.uint8), np.arange(5, dtype=np.uint8)
    for stem, array in (("images-idx3", images), ("labels-idx1", labels)):
        for split in ("train", "t10k"):
            raw = idx_bytes(array, 8)
            (tmp_path / f"{split}-{stem}-ubyte{'.gz' if zipped else ''}").write_bytes(gzip.compress(raw) if zipped else raw)
    data = load_idx(tmp_path)
    assert np.array_equal(data.train.inputs[..., 0], images)
    assert data.test.labels.tolist() == [0, 1, 2, 3, 4]


def test_other_idx_types_keep_their_numbers(tmp_path):
    for code, dtype in ((9, "i1"), (11, ">i2"), (12, ">i4"), (13, ">f4"), (14, ">f8")):
        array = np.array([[1, -2, 3]], dtype=dtype)
        (tmp_path / "array").write_bytes(idx_bytes(array, code))
        assert np.array_equal(read_idx(tmp_path / "array"), array)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "not an idx file: it starts with nothing"),
        (b"\x89PNG....", "not an idx file: it starts with 89504e47"),
        (b"\x00\x00\x08\x03\x00", "truncated in its header"),
        (idx_bytes(np.zeros((2, 3), np.uint8), 8)[:-1], r"18 bytes expected for shape \(2, 3\), found 17"),
        (
            struct.pack(">BBBB2I", 0, 0, 8, 2, 2**31, 2**31),
            r"an array of shape \(2147483648, 2147483648\); at most 8 dimensions and 2\*\*48 numbers",
        ),
        (gzip.compress(b"\x00\x00\x08\x01", mtime=0)[:-6], "damaged gzip data"),
    ],
)
def test_what_is_no_idx_file_is_refused(tmp_path, raw, message):
    (tmp_path / "array").write_bytes(raw)
    with pytest.raises(DataError, match=message):
        read_idx(tmp_path / "array")


def test_missing_idx_files_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no train-images-idx3-ubyte or train-images-idx3-ubyte\.gz"):
        load_idx(tmp_path)
