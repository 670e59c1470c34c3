"""Arrays of plain numbers in files: ``.npy``, ``.npz`` and safetensors, tables in CSV, and what ``torch.save`` wrote.

Nothing in a file is executed, and none decides how much memory is taken: what a header claims is compared with the bytes there.
"""

from __future__ import annotations

import ast
import errno
import math
import os
import re
import sys
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from noiseproof.io import limits
from noiseproof.io.files import ReadError, open_regular
from noiseproof.io.text import LINE_TEXT, excerpt, whole_text

CHUNK_BYTES = 2**20
ZIP_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
ZIP_ENCRYPTED = 1
TEXT_DTYPE = re.compile(r"[<>=]U[1-9]\d{0,5}")
"""Text of a fixed width: code points, which are numbers too. What NumPy pickles, text of any width, is of objects."""
MAX_EMPTY_LENGTHS = 2**24
"""The product of the other lengths of an array without numbers: no bytes of a file answer for them"""
NUMBER_DTYPES = frozenset(("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"))
"""The dtypes that are read, by kind and size."""
MAX_DIMENSIONS = 32
NPY_MAGIC = b"\x93NUMPY"
MAX_HEADER_BYTES = 2000
HEADER_TEXT = re.compile(r"\{[\w\s'\"<>|=,:()]*\}\s*")


class Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


def check_size(path: str | Path, what: str, promised: int, found: int) -> None:
    """Compare the bytes that a header promises with those that are there, before memory is taken for them."""
    if promised != found:
        raise ReadError(path, f"{promised} bytes expected for {what}, found {found}")


def check_unpacked(path: str | Path, size: int, packed: int) -> None:
    """Refuse to unpack ``size`` bytes from a file of ``packed`` bytes if a file like that is made to fill the memory."""
    if size > (most := max(limits.MAX_UNPACKED_BYTES, limits.MAX_UNPACK_RATIO * packed)):
        limit = f"{limits.MAX_UNPACKED_BYTES // 2**20} MiB or {limits.MAX_UNPACK_RATIO} times its size"
        raise ReadError(path, f"unpacks to {size} bytes, and may to {most} ({limit}); save it uncompressed if it is meant")


def fill(stream: Readable, array: NDArray[Any]) -> int:
    """Read into a vector until it is full or the stream ends; returns the bytes read."""
    target, done = array.view(np.uint8), 0
    while done < len(target) and (piece := stream.read(min(CHUNK_BYTES, len(target) - done))):
        target[done : done + len(piece)] = np.frombuffer(piece, np.uint8)
        done += len(piece)
    return done


def large_array(shape: tuple[int, int]) -> NDArray[np.float32]:
    """An array of float32 to be filled: in memory, or, where four of them would be more than may be taken, on the disk.

    There it is a file of the folder for temporary ones that has no name, and is gone with the array. What goes over it block by
    block needs no memory for the rest.
    """
    size = 4 * math.prod(shape)
    if 4 * size <= max(limits.UNASKED_BYTES, limits.allowed_memory()):
        return np.empty(shape, np.float32)
    try:
        with tempfile.TemporaryFile(prefix="noiseproof-") as file:
            if hasattr(os, "posix_fallocate"):  # a disk that turns out full later ends the process
                os.posix_fallocate(file.fileno(), 0, size)
            else:
                file.truncate(size)
            return np.memmap(file, np.float32, "r+", shape=shape)
    except OSError as error:
        said = f"{error.strerror}: {limits.in_bytes(size)} for {shape[0]:,} rows of {shape[1]:,} classes"
        raise OSError(error.errno, said, tempfile.gettempdir()) from error


class ZipMembers:
    """An open zip file; ``sizes`` has the unpacked size of each member, by its name."""

    def __init__(self, path: str | Path) -> None:
        self.path = path
        self.file: BinaryIO = open_regular(path)
        try:
            with self._faults():
                self.archive = zipfile.ZipFile(self.file)
                self.size = self.file.seek(0, 2)
                members = self.archive.infolist()
        except BaseException:
            self.file.close()
            raise
        self.members = {member.filename: member for member in members}
        self.sizes = {name: member.file_size for name, member in self.members.items()}
        self.unpacked = 0
        if len(self.members) != len(members):
            self.file.close()
            raise ReadError(path, "two members of the archive have the same name")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.archive.close()
        self.file.close()

    @contextmanager
    def open(self, name: str) -> Iterator[Readable]:
        """A member as a stream. Only its size is known to be in the limit: read no more than that."""
        member = self.members[name]
        # Python unpacks other methods without a limit, and NumPy and torch write none of them.
        if member.compress_type not in ZIP_METHODS or member.flag_bits & ZIP_ENCRYPTED:
            raise ReadError(self.path, f"{excerpt(name)!r} in it is encrypted or packed by a method that NumPy does not write")
        if member.compress_type == zipfile.ZIP_STORED and member.file_size != member.compress_size:
            raise ReadError(self.path, f"{excerpt(name)!r} in it has two sizes: {member.file_size} and {member.compress_size}")
        self.unpacked += member.file_size
        check_unpacked(self.path, self.unpacked, self.size)
        with self._faults(), self.archive.open(member) as stream:
            yield stream

    @contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            yield
        except (ReadError, MemoryError):
            raise
        except Exception as error:  # zipfile and zlib raise many kinds for a damaged file
            of_disk = error if isinstance(error, OSError) else error.__context__  # zipfile hides one that it meets at the end
            if isinstance(of_disk, OSError) and of_disk.errno == errno.EIO:
                raise of_disk from None
            raise ReadError(self.path, f"a damaged zip file: {excerpt(error, 200) or type(error).__name__}") from error


def read_npy(path: str | Path) -> NDArray[Any]:
    """The array of an ``.npy`` file, which holds nothing after it."""
    with open_regular(path) as file:
        size = file.seek(0, 2)
        file.seek(0)
        return _read_array(path, file, size)


class NpzFile(ZipMembers):
    """An ``.npz`` file; ``names`` are those of its arrays."""

    @property
    def names(self) -> list[str]:
        return [name.removesuffix(".npy") for name in self.members]

    def array(self, name: str) -> NDArray[Any]:
        return self._read(name, None)

    def words(self, name: str, count: int) -> tuple[str, ...]:
        """A vector of so many words, as ``np.array`` makes it of a list of text."""
        return tuple(self._read(name, count).tolist())

    def _read(self, name: str, words: int | None) -> NDArray[Any]:
        member = f"{name}.npy" if f"{name}.npy" in self.members else name
        try:
            with self.open(member) as stream:
                return _read_array(self.path, stream, self.sizes[member], words)
        except ReadError as error:
            raise ReadError(self.path, f"array {excerpt(name)!r}: {error.fault}") from error


def _read_array(path: str | Path, stream: Readable, size: int, words: int | None = None) -> NDArray[Any]:
    """The array in a stream, of plain numbers, or of so many ``words``."""
    start = stream.read(len(NPY_MAGIC) + 2)
    if len(start) < len(NPY_MAGIC) + 2 or not start.startswith(NPY_MAGIC) or start[6] not in (1, 2, 3):
        raise ReadError(path, f"not an .npy file: it starts with {start.hex() or 'nothing'}")
    width = 2 if start[6] == 1 else 4
    length = int.from_bytes(stream.read(width), "little")
    if length > MAX_HEADER_BYTES:
        raise ReadError(path, f"its header is of {length} bytes, and may be of {MAX_HEADER_BYTES}")
    dtype, fortran, shape = _header(path, stream.read(length), words is not None)
    if words is not None and shape != (words,):  # before each becomes an object
        raise ReadError(path, f"it must hold {words} words, got shape {shape}")
    promised, what = dtype.itemsize * math.prod(shape), f"{dtype} of shape {shape}"
    check_size(path, what, promised, size - len(start) - width - length)
    limits.check_memory(f"{path}: {what}", promised, "give a part of it")
    numbers = np.empty(math.prod(shape), dtype)
    check_size(path, what, promised, fill(stream, numbers))
    if words is not None and numbers.view(dtype.str[0] + "u4").max(initial=0) > sys.maxunicode:
        raise ReadError(path, f"what it holds is no text: a code point is beyond {sys.maxunicode}")
    return numbers.reshape(shape, order="F" if fortran else "C")


def _header(path: str | Path, raw: bytes, words: bool) -> tuple[np.dtype[Any], bool, tuple[int, ...]]:
    try:
        text = re.sub(r"(\d)L\b", r"\1", raw.decode("latin-1"))  # as Python 2 wrote numbers
        if not HEADER_TEXT.fullmatch(text):
            raise ValueError(text)
        header = ast.literal_eval(text.strip())
        description, fortran, shape = header["descr"], header["fortran_order"], header["shape"]
        sound = type(fortran) is bool and type(shape) is tuple and all(type(length) is int for length in shape)
        if not sound or len(shape) > MAX_DIMENSIONS or len(header) != 3:
            raise ValueError(text)
    except (ValueError, SyntaxError, KeyError, TypeError, RecursionError) as error:
        raise ReadError(path, f"not a header of an .npy file of numbers: {excerpt(raw.strip())}") from error
    if math.prod(length or 1 for length in shape) >= (MAX_EMPTY_LENGTHS if 0 in shape else 2**48):
        raise ReadError(path, f"its shape is {excerpt(shape)}")
    plain = isinstance(description, str) and description.lstrip("<>|=") in NUMBER_DTYPES and len(description) <= 3
    if words and not (isinstance(description, str) and TEXT_DTYPE.fullmatch(description)):
        got = f"got dtype {excerpt(description)!r}"
        raise ReadError(path, f"it must hold text of a fixed width, as np.array(names) does, {got}")
    if not words and not plain:
        raise ReadError(path, f"it must hold plain numbers, got dtype {excerpt(description)!r}")
    return np.dtype(description), fortran, shape


def read_table(path: str | Path) -> NDArray[Any]:
    """The numbers of a CSV file, [rows, columns]: int64 if all are whole, else float64. Empty for a file without numbers."""
    text = whole_text(path)

    def lines() -> Iterator[str]:  # never all at once: a line of three bytes takes sixty
        stripped = (found[0].partition("#")[0].strip() for found in LINE_TEXT.finditer(text))
        return (line for line in stripped if line)

    # The fields of a line take fifty times its size.
    if any(found.end() - found.start() > limits.MAX_LINE_BYTES for found in LINE_TEXT.finditer(text)):
        raise ReadError(path, f"a line of more than {limits.MAX_LINE_BYTES} characters; write a row on each line")
    first = next(lines(), None)
    if first is None:
        return np.empty((0, 0))  # NumPy would warn
    try:
        [float(cell) for cell in first.split(",")]
    except ValueError:
        way = "remove the header line, and every column that is not numbers"
        raise ReadError(path, f"its first line is {excerpt(first)!r}, not a number: {way}") from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # NumPy truncates 0.5 to a whole number, and warns
            return np.loadtxt(lines(), delimiter=",", dtype=np.int64, ndmin=2)
    except (ValueError, OverflowError, Warning):
        pass
    try:
        return np.loadtxt(lines(), delimiter=",", ndmin=2)
    except ValueError as error:
        raise ReadError(path, f"not a table of numbers: {excerpt(error, 200)}") from error


def read_tensors(path: Path, names: Callable[[str], bool] = lambda name: True) -> tuple[dict[str, Any], dict[str, str]] | None:
    """The arrays of a safetensors file whose name is wanted, and its metadata; None if it is not there or damaged."""
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        return None
    limits.check_file(path)
    try:
        with safe_open(path, "np") as file:
            wanted = [name for name in file.keys() if names(name)]  # noqa: SIM118 - it is no dictionary
            return {name: file.get_tensor(name) for name in wanted}, dict(file.metadata() or {})
    except (SafetensorError, OSError, ValueError, TypeError, AttributeError, RuntimeError):  # of dtypes NumPy lacks
        return None
