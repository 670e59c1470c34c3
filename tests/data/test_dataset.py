"""A data set as a value: arrays, .npz files, the embedded digits, and what is refused."""

import numpy as np
import pytest

from noiseproof.data.dataset import DataError, from_arrays, load_digits, load_npz
from noiseproof.io.files import checksum


def test_arrays_become_a_data_set():
    data = from_arrays(np.zeros((4, 8, 8, 3), np.uint8), [0, 2, 1, 0], name="mine")
    assert repr(data) == "Dataset(mine: 3 classes, train 4, inputs (8, 8, 3))"
    assert data.classes == ("0", "1", "2")
    assert data.train.labels.dtype == np.int64
    assert list(data.splits) == ["train"]


def test_an_npz_file_with_a_test_split(tmp_path):
    path = tmp_path / "mine.npz"
    np.savez(path, x=np.random.default_rng(0).normal(size=(6, 3)), y=np.arange(6) % 2, x_test=np.zeros((2, 3)), y_test=[0, 1])
    data = load_npz(path)
    assert (data.name, len(data.train), len(data.test)) == ("mine", 6, 2)
    assert data.train.inputs.dtype == np.float32
    assert data.sources == {"mine.npz": checksum(path)}


def test_the_digits_are_embedded():
    data = load_digits()
    assert (len(data.train), len(data.test), data.train.inputs.shape[1:]) == (1297, 500, (64,))
    assert 0 <= data.train.inputs.min() <= data.train.inputs.max() <= 1


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (([[1.0, np.nan]], [0]), "inputs must be finite; example 0 is not"),
        (([[1.0], [1e39]], [0, 0]), r"inputs must be within float32 \(3.4e38\); example 1 is not"),
        ((np.zeros((2, 0)), [0, 1]), r"inputs of shape \(0,\) have nothing in them"),
        (([[1.0]], [-1]), "got -1"),
        (([[1.0]], [0.0]), r"labels must be a vector of integers, .*; y.astype\(np.int64\) are the labels"),
        (([[1.0]], [0.5]), r"labels must be a vector of integers, got float64 of shape \(1,\)$"),
        (([[1.0]] * 2, [[0], [1]]), r"labels must be a vector of integers, .*; y\[:, 0\] is the vector"),
        (([[1.0]] * 2, [[0, 1], [1, 0]]), r"labels must be a vector of integers, .*; y.argmax\(1\) are the labels"),
        (([[1.0]], ["cat"]), r"labels must be a vector of integers, .*; number the classes from 0: np.unique\(y"),
        (([[1.0]], np.array(["cat"], object)), r"got object of shape \(1,\); number the classes from 0: np.unique\(y"),
        ((np.array([[1.0, "cat"]], object), [0]), "features, got object; make numbers of columns of text, or leave them out"),
        (([[1.0]] * 2, [-1, 1]), r"labels must be in .*, got -1; number the classes from 0: np.unique\(y"),
        (([[1.0], [2.0]], [0]), "2 inputs for 1 labels"),
        (([1.0], [0]), r"inputs must be \[N, ...\], got shape \(1,\)"),
        ((np.zeros((1, 2), np.int32), [0]), r"features, got int32; x.astype\(np.float32\) makes features of them"),
        ((np.full((1, 8, 8, 3), 255), [0]), r"features, got int64; x.astype\(np.uint8\) makes images of them"),
        ((np.full((1, 8, 8, 3), 256), [0]), r"features, got int64; x.astype\(np.float32\) makes features of them"),
    ],
)
def test_bad_arrays_are_refused_with_the_reason(arrays, message):
    with pytest.raises(DataError, match=message):
        from_arrays(*arrays)


def test_splits_must_fit_together():
    with pytest.raises(DataError, match="test inputs and test labels go together"):
        from_arrays([[1.0]], [0], [[1.0]])
    with pytest.raises(DataError, match=r"inputs are \(1,\) in training and \(2,\) in the test split"):
        from_arrays([[1.0]], [0], [[1.0, 2.0]], [0])
    with pytest.raises(DataError, match=r"labels must be in \[0, 1\], got 2"):
        from_arrays([[1.0]], [2], classes=("a", "b"))
    with pytest.raises(DataError, match="training split: no examples"):
        from_arrays(np.zeros((0, 4)), np.zeros(0, np.int64))
    with pytest.raises(DataError, match=r"labels must be in \[0, 1048575\], got 10000002"):
        from_arrays([[1.0]], [10_000_002])  # someone's numbers of products, not classes counted from 0
    with pytest.raises(DataError, match=r"labels must be in \[0, 1048575\], got -7"):
        from_arrays(np.zeros((2, 3)), [0, -7])


def test_bad_files_are_named(tmp_path):
    (tmp_path / "broken.npz").write_bytes(b"PK\x03\x04nonsense")
    with pytest.raises(DataError, match=r"broken\.npz: not a readable \.npz file"):
        load_npz(tmp_path / "broken.npz")
    np.savez(tmp_path / "other.npz", images=np.zeros(3))
    with pytest.raises(DataError, match=r"other\.npz: no array named 'x'; it has images"):
        load_npz(tmp_path / "other.npz")
    np.savez(tmp_path / "objects.npz", x=np.array([object()]), y=[0])
    with pytest.raises(DataError, match=r"objects\.npz: not a readable .* got dtype '\|O'; save x.astype\(np.float32\)$"):
        load_npz(tmp_path / "objects.npz")
    with pytest.raises(FileNotFoundError):
        load_npz(tmp_path / "gone.npz")
