"""Hostile arrays: every ``.npy`` in each file that holds one, every zip file, idx file and table in each reader of them."""

import bz2
import gzip
import io
import struct
import zipfile
import zlib
from pathlib import Path

import numpy as np

from noiseproof import noise
from noiseproof.data import load_npz, open_dataset
from noiseproof.paper.datasets import load_cifar10
from noiseproof.paper.plugin import load_idx
from tests.hostile.harness import ACCEPTED, Case, command

LABELS = np.array([0, 1, 2, 1])
INPUTS = np.eye(4, 3)
MATRIX = np.full((4, 4), 0.25)


def written(file: str, content: bytes):
    def make(folder: Path) -> Path:
        (folder / file).write_bytes(content)
        return folder / file

    return make


def npy(
    header: object, memory: bytes = LABELS.tobytes(), version: tuple[int, int] = (1, 0), length: int | None = None
) -> bytes:
    text = header if isinstance(header, bytes) else f"{header}\n".encode("latin-1")
    size = (len(text) if length is None else length).to_bytes(2 if version[0] == 1 else 4, "little")
    return b"\x93NUMPY" + bytes(version) + size + text + memory


def header(shape="(4,)", descr="'<i8'", fortran="False") -> bytes:
    return f"{{'descr': {descr}, 'fortran_order': {fortran}, 'shape': {shape}, }}\n".encode()


def saved(array) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=True)
    return buffer.getvalue()


NOT_A_HEADER, NUMBERS = "not a header of an .npy file of numbers", "it must hold plain numbers, got dtype "
NPY: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "not an .npy file: it starts with nothing"),
    "cut-in-the-magic": (b"\x93NUM", "not an .npy file: it starts with 934e554d"),
    "of-zeros": (bytes(200), "not an .npy file: it starts with 0000"),
    "of-version-9": (npy(header(), version=(9, 0)), "not an .npy file"),
    "cut-in-the-header": (npy(header())[:40], NOT_A_HEADER),
    "cut-in-the-numbers": (npy(header())[:-1], "32 bytes expected for .*int64 of shape .4,., found 31"),
    "with-something-after": (npy(header()) + b"\0", "32 bytes expected for .*int64 of shape .4,., found 33"),
    "with-a-long-header": (npy(header(), length=65535), "its header is of 65535 bytes, and may be of 2000"),
    "with-a-header-of-4-gigabytes": (npy(header(), version=(2, 0), length=2**32 - 1), "its header is of 4294967295 bytes"),
    "with-a-header-of-nothing": (npy(b""), NOT_A_HEADER),
    "with-a-header-of-bytes": (npy(b"\xff\x00\x1b[2J"), NOT_A_HEADER),
    "with-code-in-the-header": (npy(header("__import__('os').getcwd()")), NOT_A_HEADER),
    "with-arithmetic-in-the-header": (npy(header("(9**9**9**9,)")), NOT_A_HEADER),
    "with-a-deep-header": (npy(header("(" * 700 + ")" * 700)), NOT_A_HEADER),
    "with-a-header-of-signs": (npy(header("-" * 1500 + "1")), NOT_A_HEADER),
    "with-a-list-for-a-header": (npy(b"(1, 2)"), NOT_A_HEADER),
    "without-a-shape": (npy(b"{'descr': '<i8', 'fortran_order': False}"), NOT_A_HEADER),
    "with-one-key-more": (npy(header("(4,), 'more': 1")), NOT_A_HEADER),
    "with-a-shape-of-16-gibibytes": (npy(header(f"({2**31},)")), "17179869184 bytes expected for .*, found 32"),
    "with-a-shape-of-a-tebibyte": (npy(header(f"({2**37},)")), "1099511627776 bytes expected for .*, found 32"),
    "with-a-shape-that-overflows": (npy(header(f"({2**61 + 4},)")), "its shape is"),
    "with-a-shape-that-wraps-around": (npy(header(f"({2**32}, {2**32}, 4)")), "its shape is"),
    "with-a-shape-beyond-all-numbers": (npy(header(f"({10**300},)")), "its shape is"),
    "with-a-large-shape-of-nothing": (npy(header(f"(0, {2**40}, {2**40})"), b""), "its shape is"),
    "with-a-negative-shape": (npy(header("(-4,)")), NOT_A_HEADER),
    "with-a-shape-of-floats": (npy(header("(4.0,)")), NOT_A_HEADER),
    "with-a-shape-of-truths": (npy(header("(True, 4)")), NOT_A_HEADER),
    "with-a-shape-of-text": (npy(header("'four'")), NOT_A_HEADER),
    "with-a-shape-of-shapes": (npy(header("((4,),)")), NOT_A_HEADER),
    "with-a-shape-that-is-a-number": (npy(header("4")), NOT_A_HEADER),
    "with-40-dimensions": (npy(header("(" + "1," * 40 + ")"), bytes(8)), NOT_A_HEADER),
    "with-an-order-of-text": (npy(header(fortran="'yes'")), NOT_A_HEADER),
    "of-objects": (saved(np.array([print], dtype=object).astype(object)[:0]), NUMBERS + "'|O'".replace("|", r"\|")),
    "of-objects-by-header": (npy(header(descr="'|O'")), NUMBERS),
    "of-text": (npy(header(descr="'<U2'")), NUMBERS),
    "of-records": (saved(np.zeros(4, [("a", "i8")])), NOT_A_HEADER),
    "of-gigabytes-each": (npy(header("(1,)", descr="'|V2147483647'")), NUMBERS),
    "of-arrays": (npy(header(descr="('<i8', (4,))")), NUMBERS),
    "of-dates": (npy(header(descr="'<M8'")), NUMBERS),
    "of-complex-numbers": (npy(header("(2,)", descr="'<c16'")), NUMBERS),
    "of-long-doubles": (npy(header("(2,)", descr="'<f16'")), NUMBERS),
    "of-odd-integers": (npy(header(descr="'<i3'")), NUMBERS),
    "of-a-number-as-dtype": (npy(header(descr="8")), NUMBERS),
    "of-a-comma-dtype": (npy(header(descr="'i8,O'")), NUMBERS),
}
"""The bytes of an array where there should be a sound one, and what the error says, whichever file they are in."""


def zipped(members: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method, compresslevel=1) as archive:
        for member, content in members.items():
            archive.writestr(member, content)
    return buffer.getvalue()


def npz(**arrays: object) -> bytes:
    return zipped({f"{key}.npy": value if isinstance(value, bytes) else saved(value) for key, value in arrays.items()})


FILES = {
    "labels.npy": (lambda value: written("labels.npy", value), "labels", "labels.npy: no labels could be read: "),
    "matrix.npy": (lambda value: written("matrix.npy", value), "matrix", "matrix.npy: no transition matrix: "),
    "labels.npz": (
        lambda value: written("labels.npz", npz(a=value)),
        "labels",
        "labels.npz: no labels could be read: array 'a': ",
    ),
    "dataset-x": (
        lambda value: written("mine.npz", npz(x=value, y=LABELS)),
        "npz",
        "mine.npz: not a readable .npz file: array 'x': ",
    ),
    "dataset-y": (
        lambda value: written("mine.npz", npz(x=INPUTS, y=value)),
        "npz",
        "mine.npz: not a readable .npz file: array 'y': ",
    ),
}


def make_noise(path: Path) -> str:
    return command("noise", "make", "symmetric:0.4", "--dataset", path, "--out", path.parent / "out")


ATTEMPTS = {
    "labels": noise.load_labels,
    "matrix": noise.from_file,
    "npz": load_npz,
    "idx": load_idx,
    "cifar": lambda path: load_cifar10(path, check=False),
    "open": open_dataset,
    "make": make_noise,
    "make instance noise": lambda path: command(
        "noise", "make", "instance:0.4", "--dataset", path, "--out", path.parent / "out"
    ),
    "show": lambda path: command("noise", "show", path),
}
CASES = [
    Case(f"{file}-{fault}", make(content), attempt, named + says)
    for file, (make, attempt, named) in FILES.items()
    for fault, (content, says) in NPY.items()
]

ODD_NPY = {
    "in-fortran-order": npy(header("(4, 1)", fortran="True")),
    "in-the-other-byte-order": npy(header(descr="'>i8'"), LABELS.astype(">i8").tobytes()),
    "of-version-2": npy(header(), version=(2, 0)),
    "of-version-3": npy(header(), version=(3, 0)),
    "of-python-2": npy(header("(4L,)")),
    "with-keys-in-another-order": npy(b'{"shape": (4,), "descr": "<i8", "fortran_order": False}'),
    "of-bytes": npy(header(descr="'|u1'"), bytes([0, 1, 2, 1])),
    "of-halves": npy(header(descr="'<f2'"), LABELS.astype("<f2").tobytes()),
}
CASES += [
    Case(f"labels.npy-{oddity}", written("labels.npy", content), "labels", ACCEPTED, lambda read: np.array_equal(read, LABELS))
    for oddity, content in ODD_NPY.items()
]


def damaged(content: bytes, *changes: tuple[bytes, int, bytes]) -> bytes:
    """The bytes after the first or last occurrence of a signature, at an offset, replaced."""
    made = bytearray(content)
    for signature, offset, value in changes:
        at = content.rindex(signature) + offset
        made[at : at + len(value)] = value
    return bytes(made)


LOCAL, CENTRAL, END = b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06"
SOUND = npz(x=INPUTS, y=LABELS)
HUGE = struct.pack("<I", 2**32 - 2)


def deflated(start: bytes, zeros: int) -> bytes:
    """A deflate stream of some bytes and many zeros, made without them: a piece that is repeated."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    begin = packer.compress(start) + packer.flush(zlib.Z_FULL_FLUSH)
    piece = packer.compress(bytes(2**20)) + packer.flush(zlib.Z_FULL_FLUSH)
    return begin + piece * (zeros // 2**20) + packer.flush()


def bomb() -> bytes:
    """An array of half a gibibyte in half a megabyte, its sizes as they are."""
    start = npy(header(f"({2**29},)", descr="'|u1'"), b"")
    packed = deflated(start, 2**29)
    size = struct.pack("<I", len(start) + 2**29)
    return damaged(zipped({"x.npy": saved(INPUTS), "y.npy": packed}), (CENTRAL, 10, b"\x08"), (CENTRAL, 24, size))


def at_the_limit() -> bytes:
    """Features of 254 MiB in a quarter of a megabyte: nearly the most that is unpacked."""
    start = npy(header(f"(127, {2**18})", descr="'<f8'"), b"")
    whole = zlib.crc32(bytes(254 * 2**20), zlib.crc32(start))
    archive = zipped({"y.npy": saved(np.zeros(127, np.uint8)), "x.npy": deflated(start, 254 * 2**20)})
    facts = (10, b"\x08"), (16, struct.pack("<I", whole)), (24, struct.pack("<I", len(start) + 254 * 2**20))
    return damaged(archive, *((CENTRAL, offset, value) for offset, value in facts))


def twice() -> bytes:
    return damaged(zipped({"y.npy": saved(LABELS), "x.npy": saved(INPUTS), "z.npy": saved(LABELS)}), (b"z.npy", 0, b"y.npy"))


def crowd() -> bytes:
    return zipped({f"{k}.npy": b"" for k in range(20_000)})


def many_bombs() -> bytes:
    """Arrays that are each within the limit, and together are not."""
    content = npy(header(f"({2**27 + 2**20}, 1)", descr="'|u1'"), bytes(2**27 + 2**20))
    return zipped({"x.npy": content, "y.npy": saved(LABELS), "x_test.npy": content, "y_test.npy": saved(LABELS)}, 8)


METHOD = "encrypted or packed by a method that NumPy does not write"
ZIPS = {
    "empty": (lambda: b"", "a damaged zip file"),
    "of-text": (lambda: b"x,y\n1,2\n" * 100, "a damaged zip file: File is not a zip file"),
    "cut": (lambda: SOUND[: len(SOUND) // 2], "a damaged zip file: File is not a zip file"),
    "cut-at-the-end": (lambda: SOUND[:-3], "a damaged zip file"),
    "encrypted": (lambda: damaged(SOUND, (CENTRAL, 8, b"\x01\x00")), METHOD),
    "packed-by-bz2": (lambda: zipped({"y.npy": saved(LABELS), "x.npy": saved(INPUTS)}, zipfile.ZIP_BZIP2), METHOD),
    "packed-by-lzma": (lambda: zipped({"y.npy": saved(LABELS), "x.npy": saved(INPUTS)}, zipfile.ZIP_LZMA), METHOD),
    "packed-by-something": (lambda: damaged(SOUND, (CENTRAL, 10, b"\x63\x00")), METHOD),
    "with-a-name-twice": (twice, "two members of the archive have the same name"),
    "with-two-sizes": (lambda: damaged(SOUND, (CENTRAL, 24, HUGE)), "has two sizes: 4294967294 and"),
    "with-a-size-of-4-gigabytes": (
        lambda: damaged(SOUND, (CENTRAL, 20, HUGE * 2)),
        "unpacks to 4294967\\d{3} bytes, and may to 268435456",
    ),
    "with-a-size-that-is-short": (
        lambda: damaged(SOUND, (CENTRAL, 20, struct.pack("<I", 140) * 2)),
        "bytes expected for|damaged zip",
    ),
    "with-a-wrong-checksum": (lambda: damaged(SOUND, (CENTRAL, 16, b"abcd")), "a damaged zip file: Bad CRC-32"),
    "with-a-member-beyond-the-end": (lambda: damaged(SOUND, (CENTRAL, 42, HUGE)), "a damaged zip file"),
    "with-a-member-that-is-none": (lambda: damaged(SOUND, (CENTRAL, 42, struct.pack("<I", 7))), "a damaged zip file"),
    "with-a-directory-beyond-the-end": (lambda: damaged(SOUND, (END, 16, HUGE)), "a damaged zip file"),
    "with-a-directory-of-4-gigabytes": (lambda: damaged(SOUND, (END, 12, HUGE)), "a damaged zip file"),
    "with-another-version": (lambda: damaged(SOUND, (CENTRAL, 6, b"\xff\x00")), "a damaged zip file: zip file version 25.5"),
    "deflated-bomb": (
        bomb,
        r"unpacks to 5368\d{5} bytes, and may to 268435456 \(256 MiB or 32 times",
    ),
    "bz2-bomb": (lambda: zipped({"x.npy": saved(INPUTS), "y.npy": bytes(2**24)}, zipfile.ZIP_BZIP2), METHOD),
}
ZIP_READERS = {
    "labels": ("labels.npz", lambda path: noise.load_labels(path, "y"), "labels.npz: no labels could be read: .*"),
    "dataset": ("mine.npz", load_npz, "mine.npz: not a readable .npz file: .*"),
}
ATTEMPTS |= {f"zip for {reader}": attempt for reader, (_, attempt, _) in ZIP_READERS.items()}


def late(file: str, content):
    return lambda folder: written(file, content())(folder)


CASES += [
    Case(f"{reader}-zip-{fault}", late(file, content), f"zip for {reader}", named + says)
    for reader, (file, _, named) in ZIP_READERS.items()
    for fault, (content, says) in ZIPS.items()
]


def pipe(path: Path) -> Path:
    import os

    os.mkfifo(path)
    return path


def shifted(content: bytes) -> bytes:
    return b"#!/bin/sh\n" + content


CASES += [
    Case(
        "dataset-zip-many-bombs",
        late("mine.npz", many_bombs),
        "npz",
        "mine.npz: .*unpacks to 27\\d{7} bytes, and may to 268435456",
    ),
    Case(
        "dataset-zip-of-20000-members", late("mine.npz", crowd), "npz", "mine.npz: no array named 'x'; it has 0, 1, 10, 100, .*"
    ),
    Case(
        "labels-zip-of-20000-members",
        late("labels.npz", crowd),
        "labels",
        r"labels.npz: holds several sets of labels.* and \d+ more$",
    ),
    Case("labels-zip-of-none", late("labels.npz", lambda: zipped({})), "labels", "labels.npz: .*choose one: but it has none"),
    Case(
        "labels-zip-with-control-characters",
        late("labels.npz", lambda: zipped({"a\x1b[2J.npy": b"", "b.npy": b""})),
        "labels",
        r"choose one: a\\x1b\[2J, b",
    ),
    Case(
        "labels-zip-with-absolute-paths", late("labels.npz", lambda: zipped({"/etc/passwd": b""})), "labels", "not an .npy file"
    ),
    Case(
        "labels-zip-after-a-script",
        written("labels.npz", shifted(npz(a=LABELS))),
        "labels",
        ACCEPTED,
        lambda y: y.tolist() == [0, 1, 2, 1],
    ),
    Case("labels.npy-pipe", lambda folder: pipe(folder / "labels.npy"), "labels", "labels.npy: .*not a regular file"),
    Case("labels.npz-pipe", lambda folder: pipe(folder / "labels.npz"), "labels", "labels.npz: .*not a regular file"),
    Case("matrix.npy-pipe", lambda folder: pipe(folder / "m.npy"), "matrix", "m.npy: .*not a regular file"),
    Case("matrix.csv-pipe", lambda folder: pipe(folder / "m.csv"), "matrix", "m.csv: .*not a regular file"),
    Case("matrix.json-pipe", lambda folder: pipe(folder / "m.json"), "matrix", "m.json: .*not a regular file"),
    Case(
        "matrix.npy-folder",
        lambda folder: (folder / "m.npy").mkdir() or folder / "m.npy",
        "matrix",
        "m.npy: .*not a regular file but a folder",
    ),
    Case("a-name-too-long", lambda folder: folder / ("a" * 300 + ".npz"), "open", "File name too long"),
    Case("labels-with-a-name-too-long", lambda folder: folder / ("a" * 300 + ".npy"), "labels", "File name too long"),
]

CASES += [
    Case("dataset-zip-at-the-limit", late("mine.npz", at_the_limit), "npz", ACCEPTED, lambda data: len(data.train) == 127)
]

NAMED = r"mine.npz, x and y: "
DATASETS = {
    "labels-of-floats": (npz(x=INPUTS, y=LABELS / 1.0), NAMED + "labels must be a vector of integers, got float64"),
    "labels-of-nan": (npz(x=INPUTS, y=np.full(4, np.nan)), NAMED + "labels must be a vector of integers"),
    "labels-that-are-negative": (npz(x=INPUTS, y=LABELS - 1), NAMED + r"labels must be in \[0, 1048575\], got -1"),
    "labels-that-are-large": (npz(x=INPUTS, y=LABELS + 2**40), NAMED + r"labels must be in \[0, 1048575\], got 1099511627778"),
    "labels-in-a-matrix": (npz(x=INPUTS, y=LABELS.reshape(2, 2)), NAMED + "labels must be a vector of integers"),
    "too-few-labels": (npz(x=INPUTS, y=LABELS[:3]), NAMED + "4 inputs for 3 labels"),
    "no-examples": (npz(x=INPUTS[:0], y=LABELS[:0]), NAMED + "no examples"),
    "inputs-in-a-vector": (npz(x=INPUTS[:, 0], y=LABELS), NAMED + r"inputs must be \[N, ...\], got shape \(4,\)"),
    "inputs-of-one-number": (npz(x=np.float64(3), y=LABELS), NAMED + r"inputs must be \[N, ...\], got shape \(\)"),
    "inputs-of-width-0": (npz(x=INPUTS[:, :0], y=LABELS), NAMED + r"inputs of shape \(0,\) have nothing in them"),
    "images-of-width-0": (npz(x=np.zeros((4, 0, 9, 3), np.uint8), y=LABELS), NAMED + r"inputs of shape \(0, 9, 3\)"),
    "inputs-of-nan": (npz(x=INPUTS * np.nan, y=LABELS), NAMED + "inputs must be finite; example 0 is not .4 such."),
    "inputs-beyond-float32": (npz(x=INPUTS * 1e39, y=LABELS), NAMED + r"inputs must be within float32 \(3.4e38\); example 0"),
    "inputs-of-integers": (npz(x=INPUTS.astype(np.int32), y=LABELS), NAMED + "inputs must be uint8 images or floating"),
    "no-labels": (npz(x=INPUTS), "mine.npz: no array named 'y'; it has x"),
    "test-inputs-alone": (npz(x=INPUTS, y=LABELS, x_test=INPUTS), "mine.npz: x_test and y_test go together, and only x_test"),
    "test-labels-alone": (npz(x=INPUTS, y=LABELS, y_test=LABELS), "mine.npz: x_test and y_test go together, and only y_test"),
    "test-of-another-shape": (npz(x=INPUTS, y=LABELS, x_test=INPUTS[:, :2], y_test=LABELS), r"mine.npz: inputs are \(3,\) in"),
    "test-labels-of-floats": (
        npz(x=INPUTS, y=LABELS, x_test=INPUTS, y_test=LABELS / 1.0),
        "mine.npz, x_test and y_test: labels",
    ),
}
CASES += [Case(f"dataset-{fault}", written("mine.npz", content), "npz", says) for fault, (content, says) in DATASETS.items()]
LARGE = npz(x=np.zeros((4, 2), np.uint8), y=np.array([0, 1, 2, 2**20 - 1]))
CASES += [
    Case("dataset-of-many-classes", written("mine.npz", LARGE), "npz", ACCEPTED, lambda data: len(data.classes) == 2**20),
    Case(
        "noise-on-many-classes",
        written("mine.npz", LARGE),
        "make",
        "mine.npz: symmetric noise by name is for at most 1024 classes",
    ),
    Case(
        "instance-noise-on-many-classes",
        written("mine.npz", LARGE),
        "make instance noise",
        "mine.npz: instance noise by name is for",
    ),
]


def idx(array, code: int = 8) -> bytes:
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, code, array.ndim, *array.shape) + array.tobytes()


PICTURES, DIGITS = np.zeros((4, 5, 5), np.uint8), LABELS.astype(np.uint8)
PARTS = {"train-images-idx3-ubyte": idx(PICTURES), "train-labels-idx1-ubyte": idx(DIGITS)}
PARTS |= {"t10k-images-idx3-ubyte": idx(PICTURES), "t10k-labels-idx1-ubyte": idx(DIGITS)}


def idx_folder(**changed: bytes):
    """The four files, some changed, gzipped ones under their name."""

    def make(folder: Path) -> Path:
        for part, content in PARTS.items():
            content = changed.get(part.partition("-idx")[0].replace("-", "_"), content)
            content = content() if callable(content) else content
            (folder / (part + (".gz" if content[:2] == b"\x1f\x8b" else ""))).write_bytes(content)
        return folder

    return make


def shape_of(*lengths: int, code: int = 8) -> bytes:
    return struct.pack(f">BBBB{len(lengths)}I", 0, 0, code, len(lengths), *lengths)


def gzipped(start: bytes, zeros: int) -> bytes:
    return b"\x1f\x8b\x08\0\0\0\0\0\x02\xff" + deflated(start, zeros) + struct.pack("<II", 0, (len(start) + zeros) % 2**32)


def gzip_bomb() -> bytes:
    return gzipped(shape_of(2**9, 2**10, 2**10), 2**29)


def long_gzip() -> bytes:
    """More than its header promises: two gibibytes of zeros after a sound array."""
    return gzipped(idx(PICTURES), 2**31)


IMAGES, TAGS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"
IDX = {
    "empty": ({"train_images": b""}, f"{IMAGES}: not an idx file: it starts with nothing"),
    "of-another-type": ({"train_images": b"\0\0\x07\x03" + bytes(12)}, f"{IMAGES}: not an idx file: it starts with 00000703"),
    "of-bz2": ({"train_images": bz2.compress(idx(PICTURES))}, f"{IMAGES}: not an idx file"),
    "cut-in-the-header": ({"train_images": idx(PICTURES)[:9]}, f"{IMAGES}: truncated in its header"),
    "cut": ({"train_images": idx(PICTURES)[:-1]}, f"{IMAGES}: 116 bytes expected for shape .4, 5, 5., found 115"),
    "with-something-after": ({"train_images": idx(PICTURES) + b"\0"}, f"{IMAGES}: 116 bytes expected"),
    "with-a-shape-of-exbibytes": (
        {"train_images": shape_of(2**32 - 1, 2**32 - 1, 2**32 - 1)},
        f"{IMAGES}: an array of shape",
    ),
    "with-255-dimensions": ({"train_images": b"\0\0\x08\xff" + bytes(4 * 255)}, f"{IMAGES}: an array of shape"),
    "with-no-dimensions": (
        {"train_images": b"\0\0\x08\x00\x01"},
        f"{IMAGES}: should hold bytes in 3 dimensions, found uint8 in 0",
    ),
    "of-integers": (
        {"train_images": idx(PICTURES.astype(">i4"), 12)},
        f"{IMAGES}: should hold bytes in 3 dimensions, found int32",
    ),
    "of-flat-images": ({"train_images": idx(PICTURES.reshape(4, 25))}, f"{IMAGES}: should hold bytes in 3 dimensions"),
    "of-width-0": ({"train_images": shape_of(4, 5, 0)}, rf"{IMAGES}: there are no images in it, its shape is \(4, 5, 0\)"),
    "of-no-images": ({"train_images": shape_of(0, 5, 5), "train_labels": shape_of(0)}, f"{IMAGES}: there are no images in it"),
    "of-a-large-shape-of-nothing": ({"train_images": shape_of(2**32 - 1, 2**32 - 1, 0)}, f"{IMAGES}: an array of shape"),
    "with-too-few-labels": ({"train_labels": idx(DIGITS[:3])}, f"{TAGS} .images from {IMAGES}.: 4 inputs for 3 labels"),
    "with-a-label-out-of-range": ({"train_labels": idx(DIGITS + 9)}, rf"{TAGS} .*: labels must be in \[0, 9\], got 11"),
    "with-images-for-labels": ({"train_labels": idx(PICTURES)}, f"{TAGS}: should hold bytes in 1 dimensions, found uint8 in 3"),
    "with-test-images-of-another-size": (
        {"t10k_images": idx(PICTURES[:, :4])},
        r"t10k-images-idx3-ubyte: inputs are \(5, 5, 1\)",
    ),
    "gzip-cut": ({"train_images": gzip.compress(idx(PICTURES), mtime=0)[:-9]}, f"{IMAGES}.gz: damaged gzip data"),
    "gzip-of-nothing": ({"train_images": gzip.compress(b"", mtime=0)}, f"{IMAGES}.gz: not an idx file: it starts with nothing"),
    "gzip-of-junk": ({"train_images": b"\x1f\x8b\x08\x00" + b"junk" * 9}, f"{IMAGES}.gz: damaged gzip data"),
    "gzip-with-a-wrong-checksum": (
        {"train_images": gzip.compress(idx(PICTURES), mtime=0)[:-8] + b"abcd" + struct.pack("<I", 116)},
        f"{IMAGES}.gz: damaged gzip data: CRC check failed",
    ),
    "gzip-of-two": ({"train_images": gzip.compress(idx(PICTURES)) * 2}, f"{IMAGES}.gz: 116 bytes expected"),
    "gzip-with-a-large-shape": (
        {"train_images": gzip.compress(shape_of(2**10, 2**10, 2**10))},
        rf"{IMAGES}.gz: unpacks to 1073741840 bytes, and may to 268435456 \(256 MiB or 32 times its size\)",
    ),
    "gzip-with-a-shape-that-lies": ({"train_images": gzip.compress(shape_of(2**8, 2**9, 2**9))}, "67108880 bytes expected"),
    "gzip-bomb": ({"train_images": gzip_bomb}, f"{IMAGES}.gz: unpacks to 536870928 bytes, and may to 268435456"),
    "gzip-bomb-after-the-array": (
        {"train_images": long_gzip},
        f"{IMAGES}.gz: 116 bytes expected for shape .4, 5, 5., found 117",
    ),
}
CASES += [Case(f"idx-{fault}", idx_folder(**changed), "idx", says) for fault, (changed, says) in IDX.items()]
CASES += [
    Case("idx-sound", idx_folder(), "idx", ACCEPTED, lambda data: data.test.labels.tolist() == [0, 1, 2, 1]),
    Case(
        "idx-sound-gzip",
        idx_folder(train_images=gzip.compress(idx(PICTURES))),
        "idx",
        ACCEPTED,
        lambda data: len(data.train) == 4,
    ),
]


def cifar_binary(changed: bytes):
    def make(folder: Path) -> Path:
        place = folder / "cifar-10-batches-bin"
        place.mkdir()
        for k in range(6):
            content = changed if k == 2 else bytes(3073)
            (place / ("test_batch.bin" if k == 5 else f"data_batch_{k + 1}.bin")).write_bytes(content)
        return place

    return make


CIFAR = {
    "empty": (b"", "data_batch_3.bin: 0 bytes are not a whole number of records"),
    "cut": (bytes(3072), "data_batch_3.bin: 3072 bytes are not a whole number of records"),
    "with-a-label-out-of-range": (b"\x0a" + bytes(3072), r"data_batch_3.bin: labels must be in \[0, 9\], got 10"),
    "with-a-label-of-255": (bytes(3073) + b"\xff" + bytes(3072), r"data_batch_3.bin: labels must be in \[0, 9\], got 255"),
}
CASES += [Case(f"cifar-{fault}", cifar_binary(content), "cifar", says) for fault, (content, says) in CIFAR.items()]

TABLES = {
    "of-one-half": (b"0\n0.5\n", "labels must be a vector of whole numbers"),
    "of-nan": (b"0\nnan\n", "labels must be a vector of whole numbers"),
    "of-infinity": (b"0\n1e400\n", r"labels must be below 2\*\*63, got inf"),
    "of-large-numbers": (b"0\n" + b"9" * 40 + b"\n", r"labels must be below 2\*\*63"),
    "of-negative-numbers": (b"0\n-1\n", "labels must not be negative, got -1"),
    "of-hexadecimal-numbers": (b"0\n0x10\n", "not a table of numbers"),
    "of-two-columns": (b"0,1\n1,0\n", "labels must be a vector of whole numbers, got int64 of shape .2, 2."),
    "with-unequal-rows": (b"0\n1,2\n", "not a table of numbers"),
    "with-a-header": (b"label\n0\n", "its first line is 'label', not a number: remove the header line"),
    "with-control-characters": (b"\x1b[2J\n0\n", r"its first line is '\\\\x1b\[2J', not a number"),
    "of-bytes": (b"\xff\xfe\x00\n", "not UTF-8 text: invalid start byte at byte 0"),
    "of-zeros": (bytes(1000), "its first line is"),
    "of-utf-16": ("0\n1\n".encode("utf-16"), "not UTF-8 text"),
    "of-nothing": (b"\n\n# nothing\n", "there are no labels in it"),
    "of-quoted-numbers": (b'"0"\n"1"\n', "its first line is"),
    "of-a-long-line": (b"1" * 100_000, r"labels must be below 2\*\*63"),
    "of-a-long-word": (b"a" * 5_000_000, r"its first line is 'a{80}\.\.\.', not a number"),
    "of-one-row": (b"12," * 8_000_000 + b"0", "a line of more than 16777216 characters"),
}
CASES += [
    Case(f"labels.csv-{fault}", written("labels.csv", content), "labels", f"labels.csv: .*{says}")
    for fault, (content, says) in TABLES.items()
]
MATRICES = {
    "empty.csv": (b"", r"no transition matrix: a transition matrix must be square with at least 2 classes, got shape \(0, 0\)"),
    "too-many-columns.csv": (b"0," * 500_000 + b"0", r"must be square with at least 2 classes, got shape \(1, 500001\)"),
    "too-many-rows.csv": (b"0\n" * 500_000, r"must be square with at least 2 classes, got shape \(500000, 1\)"),
    "unequal-rows.csv": (b"1,0\n0\n", "not a table of numbers"),
    "words.csv": (b"a,b\nc,d\n", "its first line is 'a,b', not a number"),
    "nan.csv": (b"nan,0\n0,1\n", "must hold probabilities, got a negative or non-finite entry"),
    "infinity.csv": (b"1e400,0\n0,1\n", "must hold probabilities"),
    "negative.csv": (b"2,-1\n0,1\n", "must hold probabilities"),
    "sum.csv": (b"0.5,0.4\n0,1\n", "row 0 sums to 0.9"),
    "large.csv": (b"9" * 60 + b",0\n0,1\n", "rows of a transition matrix must sum to 1"),
    "empty.npy": (b"", "not an .npy file: it starts with nothing"),
    "vector.npy": (saved(LABELS), "must be square"),
    "of-one-class.npy": (saved(np.ones((1, 1))), "must be square with at least 2 classes"),
    "nan.npy": (saved(MATRIX * np.nan), "must hold probabilities"),
    "three-dimensions.npy": (saved(np.ones((2, 2, 2)) / 2), "must be square"),
}
CASES += [
    Case(f"{attempt}-matrix-{file}", written(file, content), attempt, f"{file}: .*{says}")
    for file, (content, says) in MATRICES.items()
    for attempt in ("matrix", "show")
]
CASES += [
    Case("matrix-sound", written("m.npy", saved(MATRIX)), "show", ACCEPTED, lambda text: "4 classes, rate 0.7500" in text)
]
