"""How much memory a command may take, and what files may claim: every line of the table in SECURITY.md is refused beyond it."""

import gzip
import io
import re
import zlib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from safetensors.numpy import save_file

from noiseproof.audit.noise_model import check_model_fits
from noiseproof.data import TableEncoder, infer_columns, load_npz, open_dataset, read_frame, read_image
from noiseproof.io import limits
from noiseproof.io.arrays import read_npy
from noiseproof.io.console import errors_reported
from noiseproof.io.files import DataError, checksum
from noiseproof.io.limits import LIMITS, MEMORY, allowed_memory, check_memory, in_bytes, out_of_memory
from noiseproof.io.text import read_json, whole_text
from noiseproof.models.weights import load_weights

SECURITY = Path(__file__).parents[2] / "SECURITY.md"


def png(pixels=(8, 8), chunks=b""):
    file = io.BytesIO()
    Image.fromarray(np.zeros((*pixels, 3), np.uint8)).save(file, "PNG")
    return file.getvalue()[:33] + chunks + file.getvalue()[33:]


def colour_profile():
    content = b"iCCPp\0\0" + zlib.compress(bytes(9))
    return (len(content) - 4).to_bytes(4, "big") + content + zlib.crc32(content).to_bytes(4, "big")


def progressive_jpeg():
    file = io.BytesIO()
    Image.fromarray(np.zeros((32, 32, 3), np.uint8)).save(file, "JPEG", progressive=True)
    return file.getvalue()


def ppm():
    return b"P3 8 8 255 " + b"0 " * 192


def parquet(folder, groups=1):
    frame = pd.DataFrame({"a": np.arange(200.0), "y": np.arange(200) % 2})
    frame.to_parquet(folder / "t.parquet", row_group_size=200 // groups)
    return folder / "t.parquet"


def written(folder, name, content):
    (folder / name).write_bytes(content)
    return folder / name


def npz(folder):
    np.savez_compressed(folder / "x.npz", x=np.zeros((500, 4)), y=np.arange(500) % 2)
    return folder / "x.npz"


def category(folder):
    frame = pd.DataFrame({"a": pd.Categorical(["x" * 30, "y" * 30] * 9), "y": [0, 1] * 9})
    frame.to_parquet(folder / "c.parquet")
    return folder / "c.parquet"


CROSSED = {
    # The line of the table: what reads a file that is fine, the limits that are set below it, and the error.
    "what one array, table, model or image takes in memory": (npz, load_npz, {}, r"x\.npz: .*would take 15\.6 KiB of memory"),
    "columns of a table": (parquet, open_dataset, {"MAX_COLUMNS": 1}, "2 columns, at most 1"),
    "cells of a table for each byte of its file": (
        parquet,
        open_dataset,
        {"MAX_CELLS_UNCHECKED": 9, "MAX_CELLS_PER_BYTE": 0},
        "400 cells in a file of",
    ),
    "row groups of a Parquet file": (
        lambda folder: parquet(folder, 4),
        open_dataset,
        {"MAX_ROW_GROUPS": 3},
        "4 row groups of 200 rows",
    ),
    "characters of all cells of a category": (
        category,
        open_dataset,
        {"MAX_CATEGORY_CHARACTERS": 500},
        "540 characters in its 18 rows, at most 500",
    ),
    "a row of a table, a cell or a line of text": (
        lambda folder: written(folder, "t.jsonl", b'{"a": "x x x x x x x x x x x x x", "y": 0}\n{"a": "x", "y": 1}\n'),
        open_dataset,
        {"MAX_LINE_BYTES": 30},
        r"t\.jsonl:1: a line of more than 30 bytes",
    ),
    "what a .gz file unpacks to": (
        lambda folder: written(folder, "t.csv.gz", gzip.compress(b"a,y\n" + b"1.5,0\n2.5,1\n" * 999)),
        open_dataset,
        {"MIN_GZIP_BYTES": 99, "MAX_GZIP_RATIO": 2},
        "unpacks to more than 2 times its size",
    ),
    "what an .npz file or another zip file unpacks to": (
        npz,
        load_npz,
        {"MAX_UNPACKED_BYTES": 999, "MAX_UNPACK_RATIO": 1},
        "unpacks to 1.* bytes, and may to",
    ),
    "a text file that is read at once": (
        lambda folder: written(folder, "t.txt", b"1,2\n" * 99),
        whole_text,
        {"MAX_TEXT_BYTES": 99},
        "396 bytes of text, and at most 99",
    ),
    "a JSON file": (
        lambda folder: written(folder, "t.json", b"[1, 2]"),
        read_json,
        {"MAX_JSON_BYTES": 5},
        "6 bytes of text, and at most 5",
    ),
    "values in JSON": (
        lambda folder: written(folder, "t.json", b"[" + b"[],"*50 + b"[]]"),
        read_json,
        {"MAX_JSON_VALUES": 50},
        "more than 50 values",
    ),
    "lists and objects of JSON inside each other": (
        lambda folder: written(folder, "t.json", b"[" * 9 + b"]" * 9),
        read_json,
        {"MAX_NESTING": 8},
        "nested too deeply, more than 8",
    ),
    "classes": (npz, load_npz, {"MAX_CLASSES": 1}, r"labels must be in \[0, 0\], got 1"),
    "an image file": (
        lambda folder: written(folder, "a.png", png()),
        read_image,
        {"MAX_IMAGE_BYTES": 60},
        "an image may be of 60",
    ),
    "pixels of an image": (lambda folder: written(folder, "a.png", png()), read_image, {"MAX_PIXELS": 63}, r"in \[1, 63\]"),
    "pixels of a JPEG times its scans": (
        lambda folder: written(folder, "a.jpg", progressive_jpeg()),
        read_image,
        {"MAX_SCANNED_PIXELS": 2000},
        "scans of 32 x 32 pixels are too many",
    ),
    "colour profiles of a PNG": (
        lambda folder: written(folder, "a.png", png(chunks=colour_profile() * 2)),
        read_image,
        {"MAX_COLOR_PROFILES": 1},
        "2 colour profiles",
    ),
    "an image as text, runs or odd depths (PPM, BMP)": (
        lambda folder: written(folder, "a.ppm", ppm()),
        read_image,
        {"MAX_SLOW_BYTES": 99},
        "at most 99; save it as PNG",
    ),
}  # fmt: skip


def test_the_table_of_limits_is_that_of_the_module_and_every_line_is_tested():
    head, *lines = re.findall(r"^\| (.*) \| (.*) \|$", SECURITY.read_text(encoding="utf-8"), re.MULTILINE)
    assert head == ("what", "at most")
    assert dict(lines) == LIMITS
    assert set(CROSSED) == set(LIMITS)


@pytest.mark.parametrize("line", LIMITS)
def test_what_is_beyond_a_line_of_the_table_is_refused_and_what_is_within_is_read(line, tmp_path, monkeypatch):
    make, read, lowered, message = CROSSED[line]
    path = make(tmp_path)
    read(path)
    for name, value in lowered.items():
        monkeypatch.setattr(limits, name, value)
    if not lowered:
        monkeypatch.setenv(MEMORY, "9K")
    with pytest.raises(DataError, match=message) as error:
        read(path)
    assert path.name in str(error.value)


@pytest.mark.parametrize(("given", "size"), [("500", 500), ("2K", 2048), ("1.5M", 3 * 2**19), ("8G", 2**33), ("8 GiB", 2**33)])
def test_the_memory_is_given_in_bytes_or_in_units(given, size, monkeypatch):
    monkeypatch.setenv(MEMORY, given)
    assert allowed_memory() == size


@pytest.mark.parametrize("given", ["much", "-1", "0", "1e9", "8X", "9" * 99])
def test_a_memory_that_is_no_size_is_an_error(given, monkeypatch):
    monkeypatch.setenv(MEMORY, given)
    with pytest.raises(ValueError, match=r"NOISEPROOF_MEMORY must be a number of bytes, such as 500M or 8G, got"):
        check_memory("it", 1)


def test_without_a_limit_three_quarters_of_what_is_free_may_be_taken(monkeypatch):
    monkeypatch.delenv(MEMORY, raising=False)
    monkeypatch.setattr(limits, "_free_memory", lambda: 2**30)
    check_memory("it", 3 * 2**28)
    with pytest.raises(DataError, match=r"^it would take 1\.0 GiB of memory, and 768\.0 MiB may be taken \(NOISEPROOF_MEMORY"):
        check_memory("it", 2**30)
    monkeypatch.undo()
    assert 2**20 < limits._free_memory() < 2**45


def sparse(path, size=50 * 2**30):
    with path.open("wb") as file:
        file.truncate(size)
    return path


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("t.csv", open_dataset),
        ("t.parquet", open_dataset),
        ("x.npy", read_npy),
        ("w.safetensors", lambda path: load_weights(torch.nn.Linear(99, 99, bias=False), path)),
        ("w.safetensors", checksum),
        ("a.png", read_image),
        ("t.json", read_json),
    ],
)
def test_a_sparse_file_is_refused_by_its_size_before_it_is_read_or_hashed(name, read, tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "_free_memory", lambda: 2**34)
    path = sparse(tmp_path / name)
    if name == "x.npy":
        header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (%d,), }" % ((50 * 2**30 - 128) // 4)
        with path.open("r+b") as file:
            file.write(b"\x93NUMPY\1\0" + (118).to_bytes(2, "little") + header.ljust(117) + b"\n")
    with pytest.raises(DataError, match=r"50\.0 GiB of memory|53687091200 bytes") as error:
        read(path)
    assert name in str(error.value)


def test_features_and_probabilities_are_counted_before_they_are_allocated(monkeypatch):
    frame = read_frame({"a": [1.5, 2, 3] * 400, "b": ["x", "y", "z"] * 400})
    encoder = TableEncoder(infer_columns(frame)).fit(frame)
    monkeypatch.setenv(MEMORY, "10K")
    with pytest.raises(DataError, match=r"1200 rows of 4 features would take 18\.8 KiB of memory"):
        encoder.transform(frame)
    with pytest.raises(
        DataError, match=r"how 1,000 classes of 2,000 rows are confused.* would take 22\.9 MiB .* merge minority"
    ):
        check_model_fits(2000, 1000)


def test_saved_arrays_beyond_the_memory_are_refused(tmp_path, monkeypatch):
    save_file({"weight": np.zeros((99, 99), np.float32)}, tmp_path / "w.safetensors")
    network = torch.nn.Linear(99, 99, bias=False)
    load_weights(network, tmp_path / "w.safetensors")
    monkeypatch.setenv(MEMORY, "9K")
    with pytest.raises(DataError, match=r"w\.safetensors: its content would take 38\.4 KiB"):
        load_weights(network, tmp_path / "w.safetensors")


@pytest.mark.parametrize(
    ("allocate", "size"),
    [
        (lambda: np.zeros(2**55), r"256\.? ?PiB"),
        (lambda: torch.zeros(2**55), r"128\.0 PiB"),
        (lambda: bytes(2**62), "what is needed"),
    ],
)
def test_an_allocator_that_fails_is_one_sentence_with_the_size(allocate, size, capsys):
    import typer

    with pytest.raises(typer.Exit), errors_reported():
        allocate()
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert re.search(rf"^error: the memory is not enough for (another )?({size}); take fewer rows", said), said


def test_other_errors_are_no_allocators():
    assert out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied")) is None
    with pytest.raises(RuntimeError, match="mat1"), errors_reported():
        raise RuntimeError("mat1")
    assert out_of_memory(RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0")).startswith(
        "the memory is not enough for another 2.00 GiB; "
    )
    assert in_bytes(0) == "0 bytes"
    assert in_bytes(2**60) == "1024.0 PiB"
