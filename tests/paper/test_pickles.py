"""Pickles of numbers are read as NumPy and torch read them, by every protocol that writes them; damaged ones are refused."""

import io
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from noiseproof.io.files import ReadError
from noiseproof.paper.pickles import read_pickle, read_torch

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"
PROTOCOLS = (2, 3, 4, 5)
GRID = torch.arange(24).reshape(4, 6)
TENSORS = {
    "whole": GRID,
    "transposed": GRID.t(),
    "a column": GRID[1:, 2],
    "every other": GRID[::2, 1::3],
    "empty": GRID[:0],
    "one number": torch.tensor(3),
    **{str(dtype): GRID.to(dtype) for dtype in (torch.int32, torch.int16, torch.int8, torch.uint8)},
    **{str(dtype): GRID.to(dtype) for dtype in (torch.float64, torch.float32, torch.float16)},
}


def same(read, expected):
    if isinstance(expected, dict):
        return read.keys() == expected.keys() and all(same(read[key], expected[key]) for key in expected)
    if isinstance(expected, torch.Tensor):
        expected = expected.numpy()
    if isinstance(expected, np.ndarray):
        return read.dtype == expected.dtype and read.shape == expected.shape and np.array_equal(read, expected)
    return type(read) is type(expected) and read == expected


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("dtype", ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", ">i4", ">f8"])
def test_an_array_is_read_as_numpy_wrote_it(protocol, dtype):
    for shape in ((), (0,), (5,), (3, 4), (2, 3, 4)):
        for order in "CF":
            array = np.asarray(np.arange(np.prod(shape, dtype=int)).reshape(shape), dtype=dtype, order=order)
            assert same(read_pickle(pickle.dumps(array, protocol=protocol)), array)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_plain_values_are_read_as_python_wrote_them(protocol):
    values = [1, -1, 255, 70_000, 2**40, -(2**70), 1.5, "text", "\u0394", b"bytes\xff", b"", None, True, False]
    values += [[1, [2]], (), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4), {"a": [1] * 2000, b"b": {}, 3: "c"}]
    for value in values:
        assert same(read_pickle(pickle.dumps(value, protocol=protocol)), value)


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_torch_saved_is_read_as_it_is(tmp_path, zipped, protocol):
    kept = {**TENSORS, "array": GRID.numpy(), "list": [1, 2], "twice": GRID}
    for content in (kept, GRID, GRID.numpy(), [1, 2, 3]):
        torch.save(content, tmp_path / "x.pt", pickle_protocol=protocol, _use_new_zipfile_serialization=zipped)
        assert same(read_torch(tmp_path / "x.pt"), content)


@pytest.mark.parametrize("kind", ["array", "lists", "torch.zip", "torch"])
def test_a_damaged_pickle_gives_a_value_or_one_kind_of_error(tmp_path, kind):
    buffer = io.BytesIO()
    if kind.startswith("torch"):
        torch.save({"a": GRID, "b": GRID.numpy()}, buffer, _use_new_zipfile_serialization=kind == "torch.zip")
    else:
        pickle.dump({"a": np.arange(8), "b": [1, 2.5, None]} if kind == "array" else [[1, (2, "a")], {"b": b"c"}], buffer)
    whole, draw, refused = buffer.getvalue(), np.random.default_rng(0), 0
    for _ in range(300):
        damaged = bytearray(whole)
        for _ in range(draw.integers(1, 4)):
            damaged[draw.integers(len(whole))] = draw.integers(256)
        try:
            if kind.startswith("torch"):
                (tmp_path / "x.pt").write_bytes(damaged)
                read_torch(tmp_path / "x.pt")
            else:
                read_pickle(bytes(damaged[: draw.integers(1, len(whole) + 1)]))
        except ValueError:
            refused += 1
    assert refused > 30


def test_an_error_survives_the_way_between_processes():
    error = pickle.loads(pickle.dumps(ReadError("labels.pt", "damaged")))
    assert (str(error), error.fault) == ("labels.pt: damaged", "damaged")


@pytest.mark.skipif(not (SHARED / "cifar10n_labels.npz").exists(), reason="the CIFAR-N label files are not here")
@pytest.mark.parametrize("name", ["cifar10n_labels.npz", "cifar100n_labels.npz"])
def test_the_published_human_labels_are_read_as_they_are(tmp_path, name):
    """Published as a dictionary of arrays that torch saved."""
    with np.load(SHARED / name) as people:
        truth = {key: people[key].astype(np.int64) for key in people.files}
    torch.save(truth, tmp_path / "human.pt")
    assert same(read_torch(tmp_path / "human.pt"), truth)
