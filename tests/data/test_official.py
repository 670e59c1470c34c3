"""Official formats, on small files made here and on the real ones where they are; damaged and hostile files are refused."""

import gzip
import os
import pickle
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from noiseproof.data.examples import DataError
from noiseproof.data.official import load_cifar10, load_cifar100, load_idx, read_idx

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"


def pixels(count, seed):
    return np.random.default_rng(seed).integers(0, 256, (count, 3072), dtype=np.uint8)


def make_cifar10(folder, python):
    """Six files of four images each, in the official layout; returns images [24, 32, 32, 3] and labels."""
    place = folder / ("cifar-10-batches-py" if python else "cifar-10-batches-bin")
    place.mkdir(parents=True, exist_ok=True)
    images, labels = [], []
    for i in range(6):
        x, y = pixels(4, i), np.arange(4) * 2 % 10
        name = "test_batch" if i == 5 else f"data_batch_{i + 1}"
        if python:
            (place / name).write_bytes(pickle.dumps({b"data": x, b"labels": y.tolist(), b"batch_label": b"x"}, protocol=2))
        else:
            (place / f"{name}.bin").write_bytes(np.concatenate([y[:, None].astype(np.uint8), x], 1).tobytes())
        images.append(x.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
        labels.append(y)
    return np.concatenate(images), np.concatenate(labels)


def make_cifar100(folder, python):
    place = folder / ("cifar-100-python" if python else "cifar-100-binary")
    place.mkdir(parents=True, exist_ok=True)
    for name, seed in (("train", 0), ("test", 1)):
        x, fine = pixels(6, seed), np.array([99, 0, 5, 5, 42, 7])
        if python:
            (place / name).write_bytes(pickle.dumps({"data": x, "fine_labels": fine.tolist(), "coarse_labels": [0] * 6}))
        else:
            rows = [np.zeros((6, 1), np.uint8), fine[:, None].astype(np.uint8), x]
            (place / f"{name}.bin").write_bytes(np.concatenate(rows, 1).tobytes())


@pytest.mark.parametrize("python", [False, True])
def test_cifar10_is_read_from_its_folder_or_the_one_above(tmp_path, python):
    images, labels = make_cifar10(tmp_path, python)
    inside = tmp_path / ("cifar-10-batches-py" if python else "cifar-10-batches-bin")
    for place in (tmp_path, inside):
        data = load_cifar10(place, check=False)
        assert np.array_equal(data.train.inputs, images[:20])
        assert np.array_equal(data.test.inputs, images[20:])
        assert np.array_equal(data.train.labels, labels[:20])
        assert data.classes[0] == "airplane"
        assert len(data.sources) == 6


@pytest.mark.parametrize("python", [False, True])
def test_cifar100_is_read_with_its_fine_labels(tmp_path, python):
    make_cifar100(tmp_path, python)
    data = load_cifar100(tmp_path, check=False)
    assert data.train.labels.tolist() == [99, 0, 5, 5, 42, 7]
    assert data.train.inputs.shape == (6, 32, 32, 3)
    assert len(data.classes) == 100


def test_a_wrong_checksum_names_the_file_and_both_sums(tmp_path):
    make_cifar10(tmp_path, python=False)
    with pytest.raises(
        DataError, match=r"data_batch_1\.bin: checksum 5dd7e06a14cb22eb9f671a540d1b7c25 expected, found [0-9a-f]{32}"
    ):
        load_cifar10(tmp_path)


def test_truncated_and_missing_files_are_named(tmp_path):
    make_cifar10(tmp_path, python=False)
    broken = tmp_path / "cifar-10-batches-bin" / "data_batch_3.bin"
    broken.write_bytes(broken.read_bytes()[:-5])
    with pytest.raises(DataError, match=r"data_batch_3\.bin: 12287 bytes are not a whole number of records of 3073"):
        load_cifar10(tmp_path, check=False)
    broken.unlink()
    with pytest.raises(FileNotFoundError, match=r"data_batch_3\.bin: missing; the folder is incomplete"):
        load_cifar10(tmp_path, check=False)
    with pytest.raises(FileNotFoundError, match="no cifar-10-batches-bin or cifar-10-batches-py there"):
        load_cifar10(tmp_path / "nowhere")


def test_a_label_out_of_range_is_named(tmp_path):
    make_cifar10(tmp_path, python=False)
    broken = tmp_path / "cifar-10-batches-bin" / "data_batch_2.bin"
    broken.write_bytes(b"\x0b" + broken.read_bytes()[1:])
    with pytest.raises(DataError, match=r"data_batch_2\.bin: labels must be in \[0, 9\], got 11"):
        load_cifar10(tmp_path, check=False)


class Bomb:
    def __reduce__(self):
        return os.system, (f"touch {os.environ['NOISEPROOF_TEST_BOMB']}",)


@pytest.mark.parametrize("payload", ["bomb", "nested", "builtin"])
def test_a_malicious_pickle_is_refused_and_runs_nothing(tmp_path, monkeypatch, payload):
    marker = tmp_path / "ran"
    monkeypatch.setenv("NOISEPROOF_TEST_BOMB", str(marker))
    make_cifar10(tmp_path, python=True)
    content = {
        "bomb": Bomb(),
        "nested": {b"data": [Bomb()], b"labels": []},
        "builtin": {b"data": eval, b"labels": []},
    }[payload]
    (tmp_path / "cifar-10-batches-py" / "data_batch_1").write_bytes(pickle.dumps(content))
    with pytest.raises(DataError, match=r"data_batch_1: refused: it asks for"):
        load_cifar10(tmp_path, check=False)
    assert not marker.exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({b"data": np.zeros((2, 3072), np.uint8)}, "should hold 'data' and 'labels', found data"),
        ({b"data": np.zeros((2, 10), np.uint8), b"labels": [0, 1]}, r"images should be bytes of shape \[N, 3072\]"),
        ({b"data": np.zeros((2, 3072), np.uint8), b"labels": [0]}, "2 images but labels of shape"),
        ([1, 2], "found list"),
    ],
)
def test_a_pickle_that_holds_something_else_is_refused(tmp_path, content, message):
    make_cifar10(tmp_path, python=True)
    (tmp_path / "cifar-10-batches-py" / "data_batch_1").write_bytes(pickle.dumps(content))
    with pytest.raises(DataError, match=message):
        load_cifar10(tmp_path, check=False)


def test_a_damaged_pickle_is_refused(tmp_path):
    make_cifar10(tmp_path, python=True)
    path = tmp_path / "cifar-10-batches-py" / "data_batch_1"
    for damaged in (path.read_bytes()[:100], b"", b"\x80\x02junk"):
        path.write_bytes(damaged)
        with pytest.raises(DataError, match="data_batch_1"):
            load_cifar10(tmp_path, check=False)


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


@pytest.mark.slow
@pytest.mark.skipif(not (SHARED / "unpack.py").exists(), reason="the real CIFAR files are not here")
@pytest.mark.parametrize(("name", "load"), [("cifar10", load_cifar10), ("cifar100", load_cifar100)])
def test_the_real_sets_are_the_same_from_binary_and_python_files(tmp_path, name, load):
    subprocess.run([sys.executable, SHARED / "unpack.py", tmp_path, name, "--pickle"], check=True, timeout=600)
    folders = sorted(path for path in tmp_path.iterdir() if path.is_dir())
    assert len(folders) == 2
    binary, python = sorted(
        (load(folder, check="bin" in folder.name) for folder in folders), key=lambda d: "data_batch_1" in d.sources
    )
    for split in ("train", "test"):
        assert np.array_equal(binary.splits[split].inputs, python.splits[split].inputs)
        assert np.array_equal(binary.splits[split].labels, python.splits[split].labels)
    truth = np.load(SHARED / "cifar_clean_labels.npz")
    assert np.array_equal(binary.train.labels, truth[f"{name}_train"])
    assert (len(binary.train), len(binary.test)) == (50000, 10000)
