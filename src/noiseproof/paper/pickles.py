"""Pickles of numbers, text, lists, dictionaries, NumPy arrays and torch tensors, read without running anything.

CIFAR's batches, the labels of CIFAR-N and torchvision's weights are published as such files.

Python's unpickler calls what a file names, and NumPy's ``dtype.__setstate__`` believes any state: an array of objects over a
file's own bytes makes Python follow addresses that the file chose. Here an opcode builds a plain value, or a stand-in whose
parts are checked one by one; arrays are views of bytes that are in the file. What is not admitted is refused.
"""

from __future__ import annotations

import math
import struct
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noiseproof.io.arrays import MAX_DIMENSIONS, NUMBER_DTYPES, ZipMembers
from noiseproof.io.files import ReadError, open_regular
from noiseproof.io.text import excerpt

TORCH_MAGIC, TORCH_PROTOCOL = 0x1950A86A20F9469CFC6C, 1001
"""The first two pickles of the older format. The description of the machine, the content and the storages' keys follow."""
MAX_OPCODES = 2_000_000
"""Opcodes in a pickle: a list of as many numbers takes seconds. More of them belong in an array, which is one value."""
KEY_LIMIT = 2**60
"""Whole numbers that are keys are below it: of larger ones many can have one hash, and each is compared with all others"""
NUMPY_MULTIARRAY = ("numpy.core.multiarray", "numpy._core.multiarray")
NUMPY_NUMERIC = ("numpy.core.numeric", "numpy._core.numeric")
STORAGES = {
    "LongStorage": "i8",
    "IntStorage": "i4",
    "ShortStorage": "i2",
    "CharStorage": "i1",
    "ByteStorage": "u1",
    "DoubleStorage": "f8",
    "FloatStorage": "f4",
    "HalfStorage": "f2",
    "BFloat16Storage": "V2",  # NumPy has no such numbers: two bytes each
}
OTHER_TENSORS = {
    "_rebuild_sparse_tensor": "sparse",
    "_rebuild_qtensor": "quantised",
    "_rebuild_meta_tensor_no_storage": "on the meta device, without numbers",
    "_rebuild_nested_tensor": "nested",
}
"""Functions of torch's that are not called, and what their tensors are."""


class PickleError(ValueError):
    """A pickle that is damaged, or holds what is not admitted."""


@dataclass(frozen=True)
class Name:
    """A class or function that a pickle names. It is never imported."""

    module: str
    name: str

    def __str__(self) -> str:
        return excerpt(f"{self.module}.{self.name}")


@dataclass
class Dtype:
    """A dtype as NumPy pickles it: its name, and then its byte order as a state."""

    name: str
    order: str = "<"

    def build(self, state: Any) -> None:
        if type(state) is not tuple or len(state) != 8 or state[0] != 3 or state[2:] != (None, None, None, -1, -1, 0):
            raise PickleError("refused: a dtype with a state that plain numbers do not have")
        self.order = _ascii(state[1])
        if self.order not in ("<", ">", "|") or (self.order == "|") != self.name.endswith("1"):
            raise PickleError(f"refused: a dtype with the byte order {excerpt(self.order)!r}")

    def numpy(self) -> np.dtype[Any]:
        return np.dtype(self.order + self.name)


@dataclass
class Array:
    """A NumPy array: made empty, and then given its shape, dtype and bytes as a state."""

    value: NDArray[Any] | None = None

    def build(self, state: Any) -> None:
        if self.value is not None or type(state) is not tuple or len(state) != 5 or state[0] != 1:
            raise PickleError("refused: an array with a state that plain arrays do not have")
        self.value = array_of(state[4], state[2], state[1], fortran=bool(_whole(state[3])))


@dataclass(frozen=True)
class Storage:
    """The memory of a torch tensor, which is outside the pickle."""

    key: str
    dtype: np.dtype[Any]
    count: int


@dataclass(frozen=True)
class Tensor:
    """A torch tensor: part of a storage."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def numpy(self, memory: memoryview) -> NDArray[Any]:
        """The tensor as a view of the bytes of its storage."""
        dtype = self.storage.dtype
        if len(memory) != self.storage.count * dtype.itemsize:
            raise PickleError(f"a storage of {self.storage.count} {dtype} has {len(memory)} bytes")
        strides = tuple(stride * dtype.itemsize for stride in self.strides)
        return np.ndarray(self.shape, dtype, memory, self.offset * dtype.itemsize, strides)


@dataclass
class Unpickler:
    """Reads one pickle of ``raw``, from ``position`` on and up to its end."""

    raw: bytes
    position: int = 0
    stack: list[Any] = field(default_factory=list)
    marks: list[int] = field(default_factory=list)
    memo: dict[int, Any] = field(default_factory=dict)
    storages: dict[str, Storage] = field(default_factory=dict)
    encoded: int = 0
    """Bytes that were made of text"""

    def load(self) -> Any:
        try:
            for _ in range(MAX_OPCODES):
                code = self.raw[self.position]
                self.position += 1
                if code == STOP:
                    return self.stack.pop()
                if code not in OPCODES:
                    raise PickleError(f"refused: opcode {code:#04x}, which files of numbers and text do not have")
                OPCODES[code](self)
        except PickleError:
            raise
        except (IndexError, KeyError, struct.error, ValueError) as error:  # a ValueError is of text, or of a line without end
            raise PickleError(f"a damaged pickle, at byte {self.position} of {len(self.raw)}") from error
        raise PickleError(f"it holds more than {MAX_OPCODES} values one by one; save an array instead")

    def take(self, count: int) -> bytes:
        if count > len(self.raw) - self.position:
            raise PickleError(
                f"truncated: {count} bytes expected at byte {self.position}, found {len(self.raw) - self.position}"
            )
        self.position += count
        return self.raw[self.position - count : self.position]

    def number(self, kind: str) -> Any:
        return struct.unpack(kind, self.take(struct.calcsize(kind)))[0]

    def sized(self, kind: str) -> bytes:
        """Bytes after their number."""
        return self.take(self.number(kind))

    def line(self) -> str:
        start, end = self.position, self.raw.index(b"\n", self.position, self.position + 200)
        self.position = end + 1
        return self.raw[start:end].decode("ascii")

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def since_mark(self) -> list[Any]:
        start = self.marks.pop()
        items = self.stack[start:]
        del self.stack[start:]
        return items

    def pop_tuple(self, count: int) -> None:
        items = [self.stack.pop() for _ in range(count)]
        self.push(tuple(reversed(items)))

    def extend(self, items: list[Any]) -> None:
        if type(self.stack[-1]) is not list:
            raise PickleError("refused: it appends to what is not a list")
        self.stack[-1].extend(items)

    def update(self, items: list[Any]) -> None:
        if type(self.stack[-1]) is not dict or len(items) % 2:
            raise PickleError("refused: it sets items of what is not a dictionary")
        if not all(type(key) in (str, bytes) or (type(key) is int and abs(key) < KEY_LIMIT) for key in items[::2]):
            raise PickleError("refused: a dictionary with keys that are not text or small whole numbers")
        self.stack[-1].update(zip(items[::2], items[1::2], strict=True))

    def name(self, module: Any, name: Any) -> None:
        found = Name(_ascii(module), _ascii(name))
        if found.module == "torch._utils" and found.name in OTHER_TENSORS:
            raise PickleError(f"refused: a tensor that is {OTHER_TENSORS[found.name]}; save dense ones of plain numbers")
        if (found.module, found.name) not in CALLS and (found.module, found.name) not in ADMITTED:
            raise PickleError(f"refused: it asks for {found}, which files of numbers and text do not need")
        self.push(found)

    def reduce(self) -> None:
        arguments, called = self.stack.pop(), self.stack.pop()
        call = CALLS.get((called.module, called.name)) if type(called) is Name else None
        if call is None or type(arguments) is not tuple:
            raise PickleError("refused: it calls what is not a function")
        self.push(call(self, arguments))

    def build(self) -> None:
        state = self.stack.pop()
        if type(self.stack[-1]) is dict:  # the versions of a network's modules, which torch keeps with their weights
            return
        if type(self.stack[-1]) not in (Dtype, Array):
            raise PickleError("refused: it sets the state of what has none")
        self.stack[-1].build(state)

    def persistent(self) -> None:
        """A storage of torch's: what it says of itself, and its key in the file."""
        given = self.stack.pop()
        if type(given) is not tuple or len(given) not in (5, 6) or given[0] != "storage" or given[5:] not in ((), (None,)):
            raise PickleError("refused: a reference that is not to a storage of torch's")
        kind, count = given[1], _whole(given[4])
        if type(kind) is not Name or kind.module != "torch" or kind.name not in STORAGES:
            raise PickleError("refused: a storage of another type than plain numbers")
        storage = Storage(_ascii(given[2]), np.dtype(STORAGES[kind.name]).newbyteorder("<"), count)
        if self.storages.setdefault(storage.key, storage) != storage:
            raise PickleError("refused: a storage that is declared to be of two kinds")
        self.push(storage)


def array_of(raw: Any, dtype: Any, shape: Any, *, fortran: bool) -> NDArray[Any]:
    """A view of bytes as an array, if they are as many as its shape and dtype say."""
    if type(raw) is not bytes or type(dtype) is not Dtype:
        raise PickleError("refused: an array that is not made of bytes and a dtype")
    lengths, kind = _lengths(shape), dtype.numpy()
    if (promised := kind.itemsize * math.prod(lengths)) != len(raw):
        raise PickleError(f"{promised} bytes expected for {kind} of shape {lengths}, found {len(raw)}")
    return np.frombuffer(raw, kind).reshape(lengths, order="F" if fortran else "C")


def resolved(value: Any, memory: Callable[[Storage], memoryview]) -> Any:
    """The value with its arrays and tensors as NumPy's: itself, or those of a dictionary."""
    if type(value) is dict:
        return {key: resolved(item, memory) if type(item) is not dict else item for key, item in value.items()}
    if type(value) is Tensor:
        return value.numpy(memory(value.storage))
    if type(value) is Array:
        if value.value is None:
            raise PickleError("an array without its numbers")
        return value.value
    return value


def read_pickle(raw: bytes) -> Any:
    """The value of a pickle: numbers, text as Python 2 wrote it as bytes, lists, tuples, dictionaries, NumPy arrays.

    >>> import pickle
    >>> read_pickle(pickle.dumps({"labels": [3, 1], "data": np.arange(3)}))
    {'labels': [3, 1], 'data': array([0, 1, 2])}
    """
    return resolved(Unpickler(raw).load(), _no_memory)


def _no_memory(storage: Storage) -> memoryview:
    raise PickleError("a tensor in a file that is not torch's")


def _ascii(text: Any) -> str:
    if type(text) is bytes:
        return text.decode("ascii")
    if type(text) is not str:
        raise PickleError("refused: text expected where there is none")
    return text


def _whole(number: Any) -> int:
    if type(number) not in (int, bool) or not 0 <= number < 2**48:
        raise PickleError("refused: a size that is not a whole number, or out of all range")
    return int(number)


def _lengths(shape: Any) -> tuple[int, ...]:
    if type(shape) is not tuple or len(shape) > MAX_DIMENSIONS:
        raise PickleError("refused: a shape that is not one")
    lengths = tuple(_whole(length) for length in shape)
    if math.prod(length or 1 for length in lengths) >= 2**48:
        raise PickleError("refused: a shape out of all range")
    return lengths


def _arguments(given: tuple[Any, ...], *counts: int) -> tuple[Any, ...]:
    if len(given) not in counts:
        raise PickleError(f"refused: a call with {len(given)} arguments")
    return given


def _dtype(unpickler: Unpickler, given: tuple[Any, ...]) -> Dtype:
    name = _ascii(_arguments(given, 3)[0])
    if name not in NUMBER_DTYPES:
        raise PickleError(f"refused: arrays of dtype {excerpt(name)!r}; plain numbers are read")
    return Dtype(name, "|" if name.endswith("1") else "<")


def _reconstruct(unpickler: Unpickler, given: tuple[Any, ...]) -> Array:
    kind, shape, code = _arguments(given, 3)
    if kind != Name("numpy", "ndarray") or shape != (0,) or _ascii(code) != "b":
        raise PickleError("refused: an array that is not made as NumPy makes it")
    return Array()


def _from_buffer(unpickler: Unpickler, given: tuple[Any, ...]) -> Array:
    raw, dtype, shape, order = _arguments(given, 4)
    return Array(array_of(raw, dtype, shape, fortran=_ascii(order) == "F"))


def _encode(unpickler: Unpickler, given: tuple[Any, ...]) -> bytes:
    """Bytes, which protocol 2 writes as text. All of them together are no more than the file."""
    text, encoding = _arguments(given, 2)
    if type(text) is not str or _ascii(encoding) not in ("latin1", "latin-1"):
        raise PickleError("refused: bytes that are not made of text")
    unpickler.encoded += len(text)
    if unpickler.encoded > len(unpickler.raw):
        raise PickleError("refused: the same text is made bytes again and again")
    return text.encode("latin-1")


def _dictionary(unpickler: Unpickler, given: tuple[Any, ...]) -> dict[Any, Any]:
    _arguments(given, 0)
    return {}


def _empty_bytes(unpickler: Unpickler, given: tuple[Any, ...]) -> bytes:
    _arguments(given, 0)
    return b""


def _tensor(unpickler: Unpickler, given: tuple[Any, ...]) -> Tensor:
    storage, offset, shape, strides = _arguments(given, 6, 7)[:4]
    if type(storage) is not Storage:
        raise PickleError("refused: a tensor without a storage")
    if type(strides) is not tuple:
        raise PickleError("refused: strides that are none")
    lengths, steps, first = _lengths(shape), tuple(_whole(step) for step in strides), _whole(offset)
    last = first + sum((length - 1) * step for length, step in zip(lengths, steps, strict=False))
    if len(lengths) != len(steps) or math.prod(lengths) > storage.count or (all(lengths) and last >= storage.count):
        raise PickleError(f"a tensor of shape {lengths}, strides {steps} and offset {first} in {storage.count} numbers")
    return Tensor(storage, first if all(lengths) else 0, lengths, steps)


def _parameter(unpickler: Unpickler, given: tuple[Any, ...]) -> Tensor:
    tensor = _arguments(given, 3)[0]
    if type(tensor) is not Tensor:
        raise PickleError("refused: a parameter that is not a tensor")
    return tensor


Call = Callable[[Unpickler, tuple[Any, ...]], Any]
CALLS: dict[tuple[str, str], Call] = {
    ("numpy", "dtype"): _dtype,
    ("_codecs", "encode"): _encode,
    ("__builtin__", "bytes"): _empty_bytes,
    ("collections", "OrderedDict"): _dictionary,
    ("torch._utils", "_rebuild_tensor_v2"): _tensor,
    ("torch._utils", "_rebuild_parameter"): _parameter,
    **{(module, "_reconstruct"): _reconstruct for module in NUMPY_MULTIARRAY},
    **{(module, "_frombuffer"): _from_buffer for module in NUMPY_NUMERIC},
}
ADMITTED = {("numpy", "ndarray"), *(("torch", name) for name in STORAGES)}

STOP = ord(".")
OPCODES: dict[int, Callable[[Unpickler], Any]] = {
    0x80: lambda u: u.take(1),  # PROTO
    0x95: lambda u: u.take(8),  # FRAME
    ord("("): lambda u: u.marks.append(len(u.stack)),
    ord("N"): lambda u: u.push(None),
    0x88: lambda u: u.push(True),
    0x89: lambda u: u.push(False),
    ord("J"): lambda u: u.push(u.number("<i")),
    ord("K"): lambda u: u.push(u.number("<B")),
    ord("M"): lambda u: u.push(u.number("<H")),
    0x8A: lambda u: u.push(int.from_bytes(u.sized("<B"), "little", signed=True)),  # LONG1
    ord("G"): lambda u: u.push(u.number(">d")),
    ord("U"): lambda u: u.push(u.sized("<B")),  # text as Python 2 wrote it
    ord("T"): lambda u: u.push(u.sized("<I")),
    ord("C"): lambda u: u.push(u.sized("<B")),  # bytes
    ord("B"): lambda u: u.push(u.sized("<I")),
    0x8E: lambda u: u.push(u.sized("<Q")),
    0x96: lambda u: u.push(u.sized("<Q")),  # bytearray
    ord("X"): lambda u: u.push(u.sized("<I").decode()),
    0x8C: lambda u: u.push(u.sized("<B").decode()),
    0x8D: lambda u: u.push(u.sized("<Q").decode()),
    ord("]"): lambda u: u.push([]),
    ord("a"): lambda u: u.extend([u.stack.pop()]),
    ord("e"): lambda u: u.extend(u.since_mark()),
    ord("}"): lambda u: u.push({}),
    ord("s"): lambda u: u.update([u.stack.pop(-2), u.stack.pop()]),
    ord("u"): lambda u: u.update(u.since_mark()),
    ord(")"): lambda u: u.push(()),
    ord("t"): lambda u: u.push(tuple(u.since_mark())),
    0x85: lambda u: u.pop_tuple(1),
    0x86: lambda u: u.pop_tuple(2),
    0x87: lambda u: u.pop_tuple(3),
    ord("q"): lambda u: u.memo.update({u.number("<B"): u.stack[-1]}),
    ord("r"): lambda u: u.memo.update({u.number("<I"): u.stack[-1]}),
    0x94: lambda u: u.memo.update({len(u.memo): u.stack[-1]}),  # MEMOIZE
    ord("h"): lambda u: u.push(u.memo[u.number("<B")]),
    ord("j"): lambda u: u.push(u.memo[u.number("<I")]),
    ord("c"): lambda u: u.name(u.line(), u.line()),
    0x93: lambda u: u.name(*(u.stack.pop(-2), u.stack.pop())),  # STACK_GLOBAL
    ord("R"): lambda u: u.reduce(),
    ord("b"): lambda u: u.build(),
    ord("Q"): lambda u: u.persistent(),
}
"""What NumPy and torch write with protocols 2 to 5, by its byte. There is none to make an instance of a class."""


def read_torch(path: str | Path) -> Any:
    """What ``torch.save`` wrote, its tensors as NumPy arrays: numbers, text, lists, or a dictionary of these and of arrays."""
    with open_regular(path) as file:
        start = file.read(4)
        raw = b"" if start == b"PK\x03\x04" else start + file.read()
    try:
        return _from_zip(path) if not raw and start else _from_pickles(raw)
    except PickleError as error:
        raise ReadError(path, str(error)) from error


def _from_zip(path: str | Path) -> Any:
    with ZipMembers(path) as members:
        found = [name for name in members.sizes if name.endswith("/data.pkl")]
        if len(found) != 1:
            raise ReadError(path, f"not a file of torch's: it has {len(found)} members 'data.pkl', and should have one")
        folder, kept = found[0].removesuffix("data.pkl"), {}

        def whole(member: str) -> bytes:
            with members.open(member) as stream:
                return stream.read(members.sizes[member])

        if folder + "byteorder" in members.sizes and whole(folder + "byteorder") != b"little":
            raise ReadError(path, "its numbers are in another byte order than little-endian")

        def memory(storage: Storage) -> memoryview:
            member = f"{folder}data/{storage.key}"
            if member not in members.sizes:
                raise PickleError("a tensor's numbers are not in the file")
            if member not in kept:
                kept[member] = whole(member)
            return memoryview(kept[member])

        if (
            members.members[found[0]].compress_type != zipfile.ZIP_STORED
        ):  # its text and lists take several times its size in memory
            raise ReadError(path, "not a file of torch's: its pickle is packed")
        return resolved(Unpickler(whole(found[0])).load(), memory)


def _from_pickles(raw: bytes) -> Any:
    parts: list[Any] = []
    storages: dict[str, Storage] = {}
    position = 0
    for _ in range(5):
        unpickler = Unpickler(raw, position)
        parts.append(unpickler.load())
        position = unpickler.position
        storages |= unpickler.storages
        if parts[:2] != [TORCH_MAGIC, TORCH_PROTOCOL][: len(parts)]:
            raise PickleError("not a file that torch.save wrote")
    content, keys = parts[3:]
    if type(keys) is not list or not all(type(key) is str for key in keys) or set(keys) != set(storages):
        raise PickleError("its list of storages is not that of its tensors")
    begins = {}
    for key in keys:
        count = storages[key].count
        size, left = count * storages[key].dtype.itemsize, len(raw) - position - 8
        if raw[position : position + 8] != count.to_bytes(8, "little") or left < size:
            raise PickleError(f"{size} bytes expected for a storage at byte {position}, found {max(0, left)}")
        begins[key] = position + 8
        position += 8 + size

    def memory(storage: Storage) -> memoryview:
        begin = begins[storage.key]
        return memoryview(raw)[begin : begin + storage.count * storage.dtype.itemsize]

    return resolved(content, memory)
