"""Weights that are hostile: what torch.save and safetensors write, changed, and tensors that are not what they should be."""

import json
import os
import pickle
import struct
import warnings
import zipfile
from pathlib import Path

import torch

from noiseproof.models import MLP, load_weights
from tests.hostile.harness import ACCEPTED, Case


def network():
    torch.manual_seed(0)
    return MLP(3, 4, hidden=(5,))


def load(path: Path) -> dict[str, torch.Tensor]:
    return load_weights(network(), path).state_dict()


ATTEMPTS = {"weights": load}
WEIGHT = "body.0.weight"  # [5, 4]
REFUSED, OBJECT = "odd.pt refused: ", "odd.pt holds more than tensors; objects are refused, loading them can run code: "


def state(**changes):
    return {name: torch.full_like(value, 2.0) for name, value in network().state_dict().items()} | changes


def saved(change, zipped=True):
    """The state dict with its first weight replaced."""

    def make(folder: Path) -> Path:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's, of sparse and quantised tensors
            torch.save({**state(), WEIGHT: change()}, folder / "odd.pt", _use_new_zipfile_serialization=zipped)
        return folder / "odd.pt"

    return make


def whole(content, zipped=True):
    def make(folder: Path) -> Path:
        torch.save(content(), folder / "odd.pt", _use_new_zipfile_serialization=zipped)
        return folder / "odd.pt"

    return make


def edited(old: bytes, new: bytes, method=zipfile.ZIP_STORED, **members: bytes):
    """The pickle of a file with one tensor of four numbers, changed, and members of the archive replaced."""

    def make(folder: Path) -> Path:
        torch.save({"fc.bias": torch.arange(4.0)}, folder / "plain.pt")
        with zipfile.ZipFile(folder / "plain.pt") as plain, zipfile.ZipFile(folder / "odd.pt", "w", method) as odd:
            for name in plain.namelist():
                raw = members.get(name.removeprefix("plain/").replace("/", "_").replace(".", "_"), plain.read(name))
                if name.endswith("data.pkl") and old:
                    if raw.count(old) != 1:
                        raise ValueError(f"{old!r} is {raw.count(old)} times in {raw!r}")
                    raw = raw.replace(old, new)
                odd.writestr(name, raw, zipfile.ZIP_STORED if name.endswith("data.pkl") else method)
        return folder / "odd.pt"

    return make


def raw(content, name="odd.pt"):
    def make(folder: Path) -> Path:
        (folder / name).write_bytes(content())
        return folder / name

    return make


def legacy(edit):
    def make(folder: Path) -> Path:
        torch.save({"fc.bias": torch.arange(4.0)}, folder / "odd.pt", _use_new_zipfile_serialization=False)
        (folder / "odd.pt").write_bytes(edit((folder / "odd.pt").read_bytes()))
        return folder / "odd.pt"

    return make


def safetensors(header, body=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return raw(lambda: struct.pack("<Q", len(text) if length is None else length) + text + body, "odd.safetensors")


def entry(dtype="F32", shape=(5, 4), start=0, end=80):
    return {WEIGHT: {"dtype": dtype, "shape": list(shape), "data_offsets": [start, end]}}


class Caller:
    def __reduce__(self):
        return os.abort, ()


def quantised():
    return torch.quantize_per_tensor(torch.zeros(5, 4), 0.1, 0, torch.qint8)


def deep_key() -> bytes:
    return b"\x80\x02}" + b")" + b"\x85" * 1_000_000 + b"K\x01s."


def fifo(name):
    def make(folder: Path) -> Path:
        os.mkfifo(folder / name)
        return folder / name

    return make


def folder_named(folder: Path) -> Path:
    (folder / "odd.pt").mkdir()
    return folder / "odd.pt"


def two_storages(folder: Path) -> Path:
    """Two tensors that share a storage, in two shapes: odd, and as torch writes them."""
    shared = torch.arange(20.0)
    torch.save({**state(), WEIGHT: shared.view(5, 4), "body.0.bias": shared[:5]}, folder / "odd.pt")
    return folder / "odd.pt"


NUMEL, SIZE = b"cpuq\x06K\x04t", b"K\x00K\x04\x85q\x08K\x01\x85"
HUGE = b"\x8a\x05\x00\x00\x00\x00\x01"  # 2**32
CASES = [
    *(
        Case(f"{kind}{'' if zipped else '-legacy'}", saved(change, zipped), "weights", message)
        for zipped in (True, False)
        for kind, change, message in (
            ("sparse", lambda: torch.eye(5, 4).to_sparse(), f"{REFUSED}a tensor that is sparse; save dense"),
            ("sparse-csr", lambda: torch.eye(5, 4).to_sparse_csr(), f"{REFUSED}a tensor that is sparse; save dense"),
            ("quantised", quantised, f"{REFUSED}a tensor that is quantised; save dense"),
            ("meta", lambda: torch.empty(5, 4, device="meta"), f"{REFUSED}a tensor that is on the meta device"),
            ("complex", lambda: torch.zeros(5, 4, dtype=torch.complex64), f"{OBJECT}it asks for torch.ComplexFloatStorage"),
            ("bool", lambda: torch.zeros(5, 4, dtype=torch.bool), f"{OBJECT}it asks for torch.BoolStorage"),
            ("object", Caller, f"{OBJECT}it asks for posix.abort"),
        )
    ),
    Case(
        "nested",
        saved(lambda: torch.nested.nested_tensor([torch.zeros(5), torch.zeros(4)])),
        "weights",
        f"{REFUSED}a tensor that is nested",
    ),
    Case("float8", saved(lambda: torch.zeros(5, 4).to(torch.float8_e4m3fn)), "weights", OBJECT),
    Case("int", saved(lambda: torch.zeros(5, 4, dtype=torch.int8)), "weights", f"{WEIGHT}' in int8, the model needs float32"),
    Case(
        "overflow", saved(lambda: torch.full((5, 4), 1e300, dtype=torch.float64)), "weights", "in float64 that overflow float32"
    ),
    Case("half", saved(lambda: torch.full((5, 4), 0.5).half()), "weights", ACCEPTED, lambda s: (s[WEIGHT] == 0.5).all()),
    Case("bf16", saved(lambda: torch.full((5, 4), 0.5).bfloat16()), "weights", ACCEPTED, lambda s: (s[WEIGHT] == 0.5).all()),
    Case(
        "parameter", saved(lambda: torch.nn.Parameter(torch.ones(5, 4))), "weights", ACCEPTED, lambda s: (s[WEIGHT] == 1).all()
    ),
    Case(
        "transposed",
        saved(lambda: torch.arange(20.0).view(4, 5).T),
        "weights",
        ACCEPTED,
        lambda s: torch.equal(s[WEIGHT], torch.arange(20.0).view(4, 5).T),
    ),
    Case(
        "shared",
        two_storages,
        "weights",
        ACCEPTED,
        lambda s: torch.equal(s[WEIGHT].flatten()[:5], s["body.0.bias"]) and s[WEIGHT][4, 3] == 19,
    ),
    Case("expanded", saved(lambda: torch.zeros(1).expand(5, 4)), "weights", "a tensor of shape .* in 1 numbers"),
    Case("expanded-huge", saved(lambda: torch.zeros(1).expand(2**20, 2**20)), "weights", "a tensor of shape .* in 1 numbers"),
    Case("shape", saved(lambda: torch.zeros(5, 9)), "weights", r"of shape \[5, 9\], the model needs \[5, 4\]"),
    Case("count-lies", edited(NUMEL, b"cpuq\x06" + HUGE + b"t"), "weights", "a storage of 4294967296 float32 has 16 bytes"),
    Case("count-negative", edited(NUMEL, b"cpuq\x06J\xff\xff\xff\xfft"), "weights", "a size that is not a whole number"),
    Case("size-lies", edited(SIZE, b"K\x00" + HUGE + b"\x85q\x08K\x01\x85"), "weights", "a tensor of shape .* in 4 numbers"),
    Case("stride-huge", edited(SIZE, b"K\x00K\x04\x85q\x08" + HUGE + b"\x85"), "weights", "a tensor of shape .* in 4 numbers"),
    Case("stride-negative", edited(SIZE, b"K\x03K\x04\x85q\x08J\xff\xff\xff\xff\x85"), "weights", "a size that is not a whole"),
    Case("offset-beyond", edited(SIZE, b"K\x01K\x04\x85q\x08K\x01\x85"), "weights", "offset 1 in 4 numbers"),
    Case("storage-short", edited(b"", b"", data_0=bytes(12)), "weights", "a storage of 4 float32 has 12 bytes"),
    Case(
        "bomb",
        edited(NUMEL, b"cpuq\x06J\x00\x00\x00\x05t", zipfile.ZIP_DEFLATED, data_0=bytes(5 * 2**26)),
        "weights",
        "unpacks to [0-9]+ bytes, and may to",
    ),
    Case("lzma", edited(b"", b"", zipfile.ZIP_LZMA), "weights", "packed by a method"),
    Case("big-endian", edited(b"", b"", byteorder=b"big"), "weights", "another byte order"),
    Case("no-storage", edited(b"X\x01\x00\x00\x000q", b"X\x01\x00\x00\x001q"), "weights", "numbers are not in the file"),
    Case("legacy-count", legacy(lambda content: content.replace(b"K\x04", HUGE)), "weights", "damaged or no state dict"),
    Case("legacy-cut", legacy(lambda content: content[:-1]), "weights", "16 bytes expected for a storage .* found 15"),
    Case("legacy-length", legacy(lambda content: content[:-24] + bytes(8) + content[-16:]), "weights", "bytes expected for a"),
    Case("key-deep", raw(deep_key), "weights", f"{REFUSED}a dictionary with keys that are not text"),
    Case("pickle", raw(lambda: pickle.dumps(Caller())), "weights", "it asks for posix.abort"),
    Case("memo", raw(lambda: b"\x80\x02}r\xff\xff\xff\xff."), "weights", "odd.pt is damaged or no state dict"),
    Case("empty", raw(bytes), "weights", "odd.pt is damaged or no state dict"),
    Case("key-number", whole(lambda: {0: torch.zeros(1)}), "weights", "its 0 is a Tensor"),
    Case(
        "key-escapes", whole(lambda: {**state(), "x\x1b[2J": torch.zeros(1)}), "weights", r"has 'x\\+x1b\[2J', which the model"
    ),
    Case(
        "key-long", whole(lambda: {**state(), "x" * 100_000: torch.zeros(1)}), "weights", r"has 'x{80}\.\.\.', which the model"
    ),
    Case("within", whole(lambda: {"state_dict": state()}), "weights", "its 'state_dict' is a dict"),
    Case("fifo", fifo("odd.pt"), "weights", "there is no file"),
    Case("fifo-safetensors", fifo("odd.safetensors"), "weights", "there is no file"),
    Case("folder", folder_named, "weights", "there is no file"),
    Case("st-length", safetensors(entry(), bytes(80), 2**60), "weights", "damaged or no safetensors file"),
    Case("st-offsets", safetensors(entry(end=2**40), bytes(80)), "weights", "damaged or no safetensors file"),
    Case("st-shape", safetensors(entry(shape=(2**31, 2**31)), bytes(80)), "weights", "damaged or no safetensors file"),
    Case("st-dtype", safetensors(entry("Q7"), bytes(80)), "weights", "damaged or no safetensors file"),
    Case("st-complex", safetensors(entry("C64", end=160), bytes(160)), "weights", "odd.safetensors (has|is damaged)"),
    Case("st-deep", safetensors(b"[" * 100_000, b""), "weights", "damaged or no safetensors file"),
    Case("st-int", safetensors(entry("I32"), bytes(80)), "weights", "in int32, the model needs float32"),
]
