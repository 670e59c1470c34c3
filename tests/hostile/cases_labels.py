"""Hostile pickles: every one in each file that holds a pickle, so that a new reader of pickles is an entry in ``FILES``."""

import io
import pickle
import struct
import zipfile
from pathlib import Path

import numpy as np
import torch

from noiseproof import noise
from noiseproof.paper.datasets import load_cifar10
from tests.hostile.harness import ACCEPTED, Case, command

LABELS = np.array([0, 1, 2, 1])
PIXELS = np.zeros((4, 3072), np.uint8)


def text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value.encode())) + value.encode()


def raw(value: bytes) -> bytes:
    """Bytes as protocol 2 writes them, which torch reads too."""
    if not value:
        return name("__builtin__", "bytes") + b")R"
    return name("_codecs", "encode") + text(value.decode("latin-1")) + text("latin1") + b"\x86R"


def whole(value: int) -> bytes:
    return b"\x8a\x09" + value.to_bytes(9, "little", signed=True)


def name(module: str, item: str) -> bytes:
    return f"c{module}\n{item}\n".encode()


def many(*items: bytes) -> bytes:
    return b"(" + b"".join(items) + b"t"


def state(version=3, order="<", parts=b"NNN", size=-1, alignment=-1, flags=0) -> bytes:
    """The state of a dtype; by default, that of plain numbers."""
    return many(whole(version), text(order), parts, whole(size), whole(alignment), whole(flags))


PLAIN_STATE = state()
EMPTY = name("numpy.core.multiarray", "_reconstruct") + many(name("numpy", "ndarray"), many(whole(0)), raw(b"b")) + b"R"


def dtype(code: str = "i8", state: bytes = PLAIN_STATE) -> bytes:
    return name("numpy", "dtype") + many(text(code), b"\x89", b"\x88") + b"R" + (state + b"b" if state else b"")


def array(
    shape: bytes = many(whole(4)), kind: bytes | None = None, memory: bytes = raw(LABELS.tobytes()), order=b"\x89"
) -> bytes:
    return EMPTY + many(whole(1), shape, kind or dtype(), order, memory) + b"b"


def call(module: str, item: str, *arguments: bytes) -> bytes:
    return name(module, item) + many(*arguments) + b"R"


def shared_lists(levels: int) -> bytes:
    """A list of ten times the same list of ten times the same list ...: 10**levels numbers in a few bytes."""
    made = b"](" + b"K\x01" * 10 + b"eq\x00"
    for level in range(levels):
        made = b"](" + made + (b"h" + bytes([level])) * 9 + b"eq" + bytes([level + 1])
    return made


OBJECTS = name("numpy", "dtype") + many(text("O8"), b"\x89", b"\x88") + b"R"
ADDRESSES = raw(b"\x41" * 32)


def over_own_bytes(kind: bytes) -> bytes:
    """Objects at addresses that the file says. NumPy takes some of these dtypes and follows the addresses (signal 11)."""
    return array(kind=kind, memory=ADDRESSES)


REFUSED, OF_OBJECTS = "refused: ", "refused: arrays of dtype 'O8'"
PICKLES: dict[str, tuple[bytes, str]] = {
    # Arrays that lie
    "object-array": (over_own_bytes(dtype("O8", state(order="|", size=8, alignment=8, flags=63))), OF_OBJECTS),
    "objects-without-their-flag": (over_own_bytes(dtype("O8", state(order="|"))), OF_OBJECTS),
    "objects-in-numbers": (over_own_bytes(dtype("i8", state(parts=many(OBJECTS, many(whole(1))) + b"NN"))), OF_OBJECTS),
    "objects-in-a-record": (
        over_own_bytes(
            dtype("V8", state(3, "|", b"N" + many(text("a")) + b"}" + text("a") + many(OBJECTS, whole(0)) + b"s", 8, 1))
        ),
        "refused: arrays of dtype '(V8|O8)'",
    ),
    "object-state-of-numbers": (array(kind=dtype("i8", state(3, "|", b"NNN", 8, 8, 63))), "refused: a dtype with a state"),
    "object-flag": (array(kind=dtype("i8", state(flags=63))), "a dtype with a state"),
    "itemsize": (array(kind=dtype("i8", state(size=2**40))), "a dtype with a state"),
    "subdtype": (array(kind=dtype("i8", state(parts=many(dtype("i8"), whole(2**40)) + b"NN"))), "a dtype with a state"),
    "fields": (array(kind=dtype("i8", state(parts=b"N" + many(text("a")) + b"}"))), "a dtype with a state"),
    "state-of-version-99": (array(kind=dtype("i8", state(99))), "a dtype with a state"),
    "state-that-is-a-list": (array(kind=dtype("i8", b"]")), "a dtype with a state"),
    "state-that-is-short": (array(kind=dtype("i8", many(whole(3), text("<")))), "a dtype with a state"),
    "byte-order": (
        array(kind=dtype("i8", many(whole(3), text("O"), b"NNN", whole(-1), whole(-1), whole(0)))),
        "byte order 'O'",
    ),
    "dtype-of-text": (array(kind=dtype("U4")), "refused: arrays of dtype 'U4'"),
    "dtype-of-records": (array(kind=dtype("V8")), "refused: arrays of dtype 'V8'"),
    "dtype-of-dates": (array(kind=dtype("M8")), "refused: arrays of dtype 'M8'"),
    "dtype-by-comma": (array(kind=dtype("i8,O8")), "refused: arrays of dtype 'i8,O8'"),
    "dtype-with-control-characters": (array(kind=dtype("\x1b[2J")), r"refused: arrays of dtype '\\\\x1b\[2J'"),
    "dtype-that-is-a-list": (array(kind=name("numpy", "dtype") + many(b"]", b"\x89", b"\x88") + b"R"), REFUSED),
    "dtype-without-arguments": (array(kind=call("numpy", "dtype")), "refused: a call with 0 arguments"),
    "no-dtype": (array(kind=b"N"), "refused: an array that is not made of bytes"),
    "shape-of-a-tebibyte": (
        array(many(whole(2**37))),
        "1099511627776 bytes expected for int64 of shape .137438953472,., found 32",
    ),
    "shape-that-overflows": (array(many(whole(2**61 + 4))), "refused: a size"),
    "shape-that-wraps-around": (array(many(whole(2**32), whole(2**32), whole(4))), "refused: a shape out of all range"),
    "shape-with-a-zero": (
        array(many(whole(2**40), whole(2**40), whole(0)), memory=raw(b"")),
        "refused: a shape out of all range",
    ),
    "shape-that-is-negative": (array(many(whole(-4))), "refused: a size"),
    "shape-one-short": (array(many(whole(3))), "24 bytes expected for int64 of shape .3,., found 32"),
    "shape-one-long": (array(many(whole(5))), "40 bytes expected"),
    "shape-of-100-dimensions": (array(many(*[whole(1)] * 100)), "refused: a shape that is not one"),
    "shape-of-floats": (array(many(b"G" + struct.pack(">d", 4.0))), "refused: a size"),
    "shape-of-text": (array(text("four")), "refused: a shape that is not one"),
    "shape-of-shapes": (array(many(many(whole(4)))), "refused: a size"),
    "memory-that-is-text": (array(memory=text("a" * 32)), "refused: an array that is not made of bytes"),
    "memory-that-is-a-list": (array(memory=b"](K\x01K\x02K\x03K\x04e"), "refused: an array that is not made of bytes"),
    "memory-that-is-missing": (array(memory=b"N"), "refused: an array that is not made of bytes"),
    "memory-truncated": (array(memory=b"B" + struct.pack("<I", 2**31) + b"abc"), "truncated: 2147483648 bytes expected"),
    "order-of-the-axes": (array(order=b"]"), "refused: a size"),
    "array-without-a-state": (EMPTY, "an array without its numbers"),
    "array-with-two-states": (
        array() + many(whole(1), many(whole(4)), dtype(), b"\x89", raw(bytes(32))) + b"b",
        "an array with a state",
    ),
    "array-with-a-short-state": (EMPTY + many(whole(1)) + b"b", "an array with a state"),
    "array-of-another-class": (
        name("numpy.core.multiarray", "_reconstruct") + many(name("torch", "LongStorage"), many(whole(0)), raw(b"b")) + b"R",
        "refused: an array that is not made as NumPy makes it",
    ),
    "array-made-large": (
        name("numpy.core.multiarray", "_reconstruct") + many(name("numpy", "ndarray"), many(whole(2**40)), raw(b"b")) + b"R",
        "refused: an array that is not made as NumPy makes it",
    ),
    "array-by-its-constructor": (call("numpy", "ndarray", many(whole(2**40))), "refused: it calls what is not a function"),
    "buffer-that-is-short": (
        call("numpy._core.numeric", "_frombuffer", raw(b"abc"), dtype(), many(whole(4)), text("C")),
        "32 bytes expected for int64 of shape .4,., found 3",
    ),
    "buffer-of-objects": (
        call("numpy.core.numeric", "_frombuffer", raw(bytes(32)), dtype("O8"), many(whole(4)), text("C")),
        "dtype 'O8'",
    ),
    # What would run
    "os-system": (call("os", "system", text("true")), "refused: it asks for os.system"),
    "posix-system": (call("posix", "system", text("true")), "refused: it asks for posix.system"),
    "eval": (call("builtins", "eval", text("1")), "refused: it asks for builtins.eval"),
    "getattr": (call("__builtin__", "getattr", text("a"), text("b")), "refused: it asks for __builtin__.getattr"),
    "numpy-load": (call("numpy", "load", text("/etc/passwd")), "refused: it asks for numpy.load"),
    "numpy-core-scalar": (
        call("numpy.core.multiarray", "scalar", dtype(), raw(bytes(8))),
        "refused: it asks for numpy.core.multiarray.scalar",
    ),
    "fromfile": (call("numpy", "memmap", text("/etc/passwd")), "refused: it asks for numpy.memmap"),
    "torch-load": (call("torch.serialization", "load", text("x")), "refused: it asks for torch.serialization.load"),
    "sparse-tensor": (
        call("torch._utils", "_rebuild_sparse_tensor", whole(0)),
        "refused: a tensor that is sparse",
    ),
    "quantised-tensor": (call("torch._utils", "_rebuild_qtensor", whole(0)), "refused: a tensor that is quantised"),
    "meta-tensor": (
        call("torch._utils", "_rebuild_meta_tensor_no_storage", whole(0)),
        "refused: a tensor that is on the meta device",
    ),
    "dotted-name": (
        text("numpy") + text("core.multiarray.fromfile") + b"\x93",
        "refused: it asks for numpy.core.multiarray.fromfile",
    ),
    "name-with-control-characters": (name("a\x1b[2J", "b"), r"refused: it asks for a\\x1b\[2J.b"),
    "name-that-never-ends": (b"c" + b"a" * 5000, "damaged pickle|refused: it asks for"),
    "name-on-the-stack-that-is-a-list": (b"]]\x93", "refused: text expected"),
    "codec": (call("_codecs", "encode", text("a"), text("zip")), "refused: bytes that are not made of text"),
    "codec-of-a-list": (call("_codecs", "encode", b"]", text("latin1")), "refused: bytes that are not made of text"),
    "codec-beyond-latin": (call("_codecs", "encode", text("\u0394"), text("latin1")), "a damaged pickle"),
    "dictionary-with-arguments": (call("collections", "OrderedDict", b"]"), "refused: a call with 1 arguments"),
    "call-of-a-number": (b"K\x01)R", "refused: it calls what is not a function"),
    "call-with-a-list": (name("numpy", "dtype") + b"]R", "refused: it calls what is not a function"),
    "state-of-a-dictionary": (b"}}b", "numbers"),
    "state-of-a-name": (name("numpy", "ndarray") + b"}b", "refused: it sets the state of what has none"),
    "state-of-a-number": (b"K\x01}b", "refused: it sets the state of what has none"),
    # Opcodes
    "opcode-instance": (b"(ios\nsystem\n", "refused: opcode 0x69"),
    "opcode-object": (b"(" + name("numpy", "ndarray") + b"o", "refused: opcode 0x6f"),
    "opcode-new-object": (name("numpy", "ndarray") + b")\x81", "refused: opcode 0x81"),
    "opcode-new-object-by-keywords": (name("numpy", "ndarray") + b")}\x92", "refused: opcode 0x92"),
    "opcode-extension": (b"\x82\x01", "refused: opcode 0x82"),
    "opcode-text-reference": (b"Pstorage\n", "refused: opcode 0x50"),
    "opcode-of-large-numbers": (b"\x8b" + struct.pack("<I", 30_000) + b"\x7f" * 30_000, "refused: opcode 0x8b"),
    "opcode-out-of-band": (b"\x97", "refused: opcode 0x97"),
    "opcode-twice": (b"]2", "refused: opcode 0x32"),
    "opcode-unknown": (b"\xff", "refused: opcode 0xff"),
    # The machine itself
    "memo-that-is-missing": (b"h\xee", "a damaged pickle"),
    "memo-far-away": (b"]r\xff\xff\xff\xffj\xfe\xff\xff\xff", "a damaged pickle"),
    "stack-that-is-empty": (b"\x87" * 8, "a damaged pickle"),
    "mark-that-is-missing": (b"eeee", "a damaged pickle|refused: it appends"),
    "append-to-a-number": (b"K\x01K\x02a", "refused: it appends to what is not a list"),
    "items-of-a-list": (b"]K\x01K\x02s", "refused: it sets items of what is not a dictionary"),
    "items-that-are-odd": (b"}(K\x01K\x02K\x03u", "refused: it sets items of what is not a dictionary"),
    "key-that-is-a-list": (b"}]K\x02s", "refused: a dictionary with keys"),
    "key-that-is-deep": (b"})" + b"\x85" * 30_000 + b"K\x02s", "refused: a dictionary with keys"),
    "keys-of-one-hash": (
        b"}(" + b"".join(pickle.dumps(k * (2**61 - 1), 2)[2:-1] + b"N" for k in range(1, 40_000)) + b"u",
        "dictionary with keys",
    ),
    "name-that-is-tuples-of-tuples": (b")" + b"q\x00h\x00\x86" * 60 + b"q\x00h\x00\x93", "refused: text expected"),
    "name-that-is-deep": (b")" + b"\x85" * 30_000 + b"q\x00h\x00\x93", "refused: text expected"),
    "name-without-an-end": (b"cnumpy" + bytes(300), "a damaged pickle, at byte [1-9]"),
    "text-that-is-not-text": (b"X\x02\x00\x00\x00\xff\xfe", "a damaged pickle"),
    "text-truncated": (b"X\xff\xff\xff\x7fabc", "truncated: 2147483647 bytes expected"),
    "bytes-of-an-exbibyte": (b"\x8e" + struct.pack("<Q", 2**60) + b"abc", "truncated: 1152921504606846976 bytes expected"),
    "bytearray-of-an-exbibyte": (b"\x96" + struct.pack("<Q", 2**60) + b"abc", "truncated: 1152921504606846976 bytes expected"),
    "bytes-made-again-and-again": (
        text("a" * 2**20)
        + b"q\x00"
        + text("latin1")
        + b"q\x01]("
        + (name("_codecs", "encode") + b"h\x00h\x01\x86R") * 4000
        + b"e",
        "refused: the same text is made bytes again and again",
    ),
    # What is no labels
    "shared-lists": (shared_lists(30), "numbers"),
    "list-in-itself": (b"]q\x00h\x00a", "numbers"),
    "deep-list": (b"]" * 30_000 + b"a" * 29_999, "numbers"),
    "deep-tuple": (b")" + b"\x85" * 30_000, "numbers"),
    "list-of-text": (b"](" + text("a") * 4 + b"e", "numbers"),
    "list-of-arrays": (b"](" + array() * 4 + b"e", "numbers"),
    "list-of-nothing": (b"](NNNNe", "numbers"),
    "nothing": (b"N", "numbers"),
    "a-name": (name("numpy", "ndarray"), "numbers"),
    "a-large-number": (b"](" + (b"\x8a\xff" + b"\x7f" * 255) * 4 + b"e", "numbers"),
}
"""A value where labels should be, and what the error says of it, whichever file it is in."""


def in_dictionary(value: bytes) -> bytes:
    return b"\x80\x02}" + text("labels") + value + b"s."


def torch_zip(path: Path, value: bytes) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", in_dictionary(value))
        archive.writestr("archive/version", "3\n")
    return path


def torch_older(path: Path, value: bytes) -> Path:
    magic, version, machine = (
        pickle.dumps(part, protocol=2) for part in (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True})
    )
    path.write_bytes(magic + version + machine + in_dictionary(value) + pickle.dumps([], protocol=2))
    return path


def cifar_batch(folder: Path, value: bytes) -> Path:
    place = folder / "cifar-10-batches-py"
    place.mkdir()
    sound = b"\x80\x02}(" + text("data") + pickle.dumps(PIXELS, protocol=2)[2:-1] + text("labels") + b"%su."
    for k in range(6):
        labels = value if k == 1 else pickle.dumps(LABELS.tolist(), protocol=2)[2:-1].replace(b"q\x00", b"")
        (place / ("test_batch" if k == 5 else f"data_batch_{k + 1}")).write_bytes(sound.replace(b"%s", labels))
    return place


FILES = {
    "torch-zip": (
        lambda folder, value: torch_zip(folder / "labels.pt", value),
        "labels",
        "labels.pt: .*",
    ),
    "torch-older": (
        lambda folder, value: torch_older(folder / "labels.pt", value),
        "labels",
        "labels.pt: .*",
    ),
    "cifar": (cifar_batch, "cifar", "data_batch_2: .*"),
}
ATTEMPTS = {
    "labels": noise.load_labels,
    "cifar": lambda path: load_cifar10(path, check=False),
    "make": lambda path: command("noise", "make", "symmetric:0.4", "--labels", path, "--out", path.parent / "out"),
}
CASES = [
    Case(f"{file}-{fault}", lambda folder, make=make, value=value: make(folder, value), attempt, named + says)
    for file, (make, attempt, named) in FILES.items()
    for fault, (value, says) in PICKLES.items()
]
CASES += [
    Case(
        f"{file}-sound",
        lambda folder, make=make: make(folder, array()),
        attempt,
        ACCEPTED,
        lambda read: np.array_equal(read if isinstance(read, np.ndarray) else read.train.labels[4:8], LABELS),
    )
    for file, (make, attempt, _) in FILES.items()
]


def storage(kind: str = "LongStorage", key: str = "0", count: int = 4, view: bytes = b"", module: str = "torch") -> bytes:
    return many(text("storage"), name(module, kind), text(key), text("cpu"), whole(count), view) + b"Q"


def tensor(memory: bytes, offset: int = 0, shape: bytes = many(whole(4)), strides: bytes = many(whole(1))) -> bytes:
    hooks = call("collections", "OrderedDict")
    return call("torch._utils", "_rebuild_tensor_v2", memory, whole(offset), shape, strides, b"\x89", hooks)


def with_storage(value: bytes, members: dict[str, bytes], method: int = zipfile.ZIP_STORED):
    def make(folder: Path) -> Path:
        path = torch_zip(folder / "labels.pt", value)
        with zipfile.ZipFile(path, "a", method, compresslevel=1) as archive:
            for member, content in members.items():
                archive.writestr(member, content)
        return path

    return make


SOUND = {"archive/data/0": LABELS.tobytes()}
NO_STORAGE = "a tensor's numbers are not in the file"
ODD = "a tensor of shape"
TENSORS = {
    "storage-that-is-missing": (with_storage(tensor(storage()), {}), NO_STORAGE),
    "storage-elsewhere": (with_storage(tensor(storage(key="../../../etc/passwd")), SOUND), NO_STORAGE),
    "storage-that-is-short": (with_storage(tensor(storage()), {"archive/data/0": b"abc"}), "a storage of 4 int64 has 3 bytes"),
    "storage-that-is-long": (
        with_storage(tensor(storage()), {"archive/data/0": bytes(40)}),
        "a storage of 4 int64 has 40 bytes",
    ),
    "storage-of-a-tebibyte": (with_storage(tensor(storage(count=2**40), shape=many(whole(2**37))), SOUND), "has 32 bytes"),
    "storage-of-negative-size": (with_storage(tensor(storage(count=-4)), SOUND), "refused: a size"),
    "storage-of-quantised-numbers": (
        with_storage(tensor(storage("QInt8Storage")), SOUND),
        "refused: it asks for torch.QInt8Storage",
    ),
    "storage-untyped": (
        with_storage(tensor(storage("UntypedStorage", module="torch.storage")), SOUND),
        "refused: it asks for torch.storage",
    ),
    "storage-with-a-view": (
        with_storage(tensor(storage(view=text("view"))), SOUND),
        "refused: a reference that is not to a storage",
    ),
    "storage-that-is-something-else": (with_storage(tensor(many(text("module"), b"N") + b"Q"), SOUND), "refused: a reference"),
    "storage-of-two-kinds": (
        with_storage(b"](" + tensor(storage()) + tensor(storage("ByteStorage", count=32)) + b"e", SOUND),
        "refused: a storage that is declared to be of two kinds",
    ),
    "tensor-expanded": (with_storage(tensor(storage(), shape=many(whole(2**36)), strides=many(whole(0))), SOUND), ODD),
    "tensor-beyond-its-storage": (with_storage(tensor(storage(), offset=1), SOUND), ODD),
    "tensor-before-its-storage": (with_storage(tensor(storage(), offset=-1), SOUND), "refused: a size"),
    "tensor-with-large-steps": (with_storage(tensor(storage(), strides=many(whole(2**40))), SOUND), ODD),
    "tensor-with-negative-steps": (with_storage(tensor(storage(), strides=many(whole(-1))), SOUND), "refused: a size"),
    "tensor-with-too-few-steps": (with_storage(tensor(storage(), shape=many(whole(2), whole(2))), SOUND), ODD),
    "tensor-overlapping": (
        with_storage(tensor(storage(), shape=many(whole(3), whole(2)), strides=many(whole(1), whole(1))), SOUND),
        ODD,
    ),
    "tensor-without-a-storage": (with_storage(tensor(b"N"), SOUND), "refused: a tensor without a storage"),
    "tensor-of-large-values": (
        with_storage(tensor(storage("DoubleStorage")), {"archive/data/0": np.full(4, 1e300).tobytes()}),
        r"labels must be below 2\*\*63",
    ),
    "big-endian": (with_storage(tensor(storage()), SOUND | {"archive/byteorder": b"big"}), "another byte order"),
    "lists-without-end": (with_storage(b"](" + b"]" * 3_000_000 + b"e", {}), "more than 2000000 values one by one"),
    "dictionaries-without-end": (with_storage(b"](" + b"}" * 3_000_000 + b"e", {}), "more than 2000000 values one by one"),
    "two-pickles": (with_storage(array(), {"other/data.pkl": b"N."}), "it has 2 members 'data.pkl'"),
    "packed-by-bz2": (
        with_storage(tensor(storage()), SOUND, zipfile.ZIP_BZIP2),
        "packed by a method that NumPy does not write",
    ),
    "bomb": (
        with_storage(
            tensor(storage("ByteStorage", count=2**28), shape=many(whole(2**28))), {"archive/data/0": bytes(2**28)}, 8
        ),
        r"unpacks to 268435\d{3} bytes, and may to 268435456 \(256 MiB or 32 times its size\)",
    ),
}
CASES += [Case(f"torch-zip-{fault}", make, "labels", f"labels.pt.*{says}") for fault, (make, says) in TENSORS.items()]


def written(content: bytes, file: str = "labels.pt"):
    def make(folder: Path) -> Path:
        (folder / file).write_bytes(content)
        return folder / file

    return make


def saved(zipped: bool, cut: float) -> bytes:
    buffer = io.BytesIO()
    torch.save({"labels": torch.from_numpy(LABELS)}, buffer, _use_new_zipfile_serialization=zipped)
    return buffer.getvalue()[: int(cut * len(buffer.getvalue()))]


class Late:
    """Content of a file that is made in the child and not when the tests are collected."""

    def __init__(self, *arguments):
        self.arguments = arguments

    def __call__(self, folder: Path) -> Path:
        return written(saved(*self.arguments))(folder)


CASES += [
    Case(
        f"torch-{'zip' if zipped else 'older'}-cut-at-{cut}", Late(zipped, cut), "labels", "labels.pt: no labels could be read"
    )
    for zipped in (True, False)
    for cut in (0.02, 0.3, 0.6, 0.9, 0.99)
]
CASES += [
    Case("torch-whole-" + kind, Late(zipped, 1.0), "labels", ACCEPTED, lambda labels: np.array_equal(labels, LABELS))
    for kind, zipped in (("zip", True), ("older", False))
]
CASES += [
    Case("empty.pt", written(b""), "labels", "labels.pt: no labels could be read"),
    Case("zeros.pt", written(bytes(5000)), "labels", "labels.pt: no labels could be read: refused: opcode 0x00"),
    Case("a-plain-pickle.pt", written(pickle.dumps([1, 2])), "labels", "not a file that torch.save wrote"),
    Case("a-plain-zip.pt", lambda folder: torch_zip(folder / "x.zip", b"N").rename(folder / "labels.pt"), "labels", "numbers"),
    Case(
        "make-from-objects",
        lambda folder: torch_zip(folder / "labels.pt", PICKLES["objects-in-numbers"][0]),
        "make",
        "refused: arrays of",
    ),
    Case("make-from-a-pipe", lambda folder: pipe(folder / "labels.pt"), "labels", "labels.pt: .*not a regular file"),
]


def pipe(path: Path) -> Path:
    import os

    os.mkfifo(path)
    return path


def packed_pickle(folder: Path) -> Path:
    """Text of 128 MiB that is four times as large in memory, for its first letter."""
    with zipfile.ZipFile(folder / "labels.pt", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("archive/data.pkl", in_dictionary(text("\U0001f600" + "a" * 2**27)))
    return folder / "labels.pt"


CASES += [Case("torch-zip-packed-pickle", packed_pickle, "labels", "labels.pt: .*its pickle is packed")]


def label_value(value: int):
    def make(folder: Path) -> Path:
        torch.save({"labels": np.array([0, value])}, folder / "labels.pt")
        return folder / "labels.pt"

    return make


CASES += [
    Case(
        f"make-with-a-label-of-{value}",
        label_value(value),
        "make",
        "labels.pt: symmetric noise by name is for at most 1024 classes",
    )
    for value in (1024, 2**20, 2**40, 2**63 - 1)
]
CASES += [Case("make-with-a-label-of-1023", label_value(1023), "make", ACCEPTED)]
