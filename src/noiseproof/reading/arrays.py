"""NumPy's ``.npy`` and ``.npz`` files of plain numbers, and of words where they are asked for."""

from __future__ import annotations

import ast
import math
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noiseproof.reading.opening import Readable, ReadError, check_promise, fill, open_regular, shown
from noiseproof.reading.zips import ZipMembers

__all__ = ["DIMENSIONS", "NUMBERS", "NpzFile", "read_npy"]

NUMBERS = frozenset(("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"))
"""The dtypes that are read, by kind and size."""
WORDS = re.compile(r"[<>=]U[1-9]\d{0,5}")
"""Text of a fixed width: code points, which are numbers too. What NumPy pickles, text of any width, is of objects."""
DIMENSIONS = 32
NOTHING = 2**24
"""The product of the other lengths of an array without numbers: no bytes of a file answer for them"""
MAGIC = b"\x93NUMPY"
HEADER = 2000
HEADER_TEXT = re.compile(r"\{[\w\s'\"<>|=,:()]*\}\s*")


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
            raise ReadError(self.path, f"array {shown(name)!r}: {error.fault}") from error


def _read_array(path: str | Path, stream: Readable, size: int, words: int | None = None) -> NDArray[Any]:
    """The array in a stream, of plain numbers, or of so many ``words``."""
    start = stream.read(len(MAGIC) + 2)
    if len(start) < len(MAGIC) + 2 or not start.startswith(MAGIC) or start[6] not in (1, 2, 3):
        raise ReadError(path, f"not an .npy file: it starts with {start.hex() or 'nothing'}")
    width = 2 if start[6] == 1 else 4
    length = int.from_bytes(stream.read(width), "little")
    if length > HEADER:
        raise ReadError(path, f"its header is of {length} bytes, and may be of {HEADER}")
    dtype, fortran, shape = _header(path, stream.read(length), words is not None)
    if words is not None and shape != (words,):  # before each becomes an object
        raise ReadError(path, f"it must hold {words} words, got shape {shape}")
    promised, what = dtype.itemsize * math.prod(shape), f"{dtype} of shape {shape}"
    check_promise(path, what, promised, size - len(start) - width - length)
    numbers = np.empty(math.prod(shape), dtype)
    check_promise(path, what, promised, fill(stream, numbers))
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
        if not sound or len(shape) > DIMENSIONS or len(header) != 3:
            raise ValueError(text)
    except (ValueError, SyntaxError, KeyError, TypeError, RecursionError) as error:
        raise ReadError(path, f"not a header of an .npy file of numbers: {shown(raw.strip())}") from error
    if math.prod(length or 1 for length in shape) >= (NOTHING if 0 in shape else 2**48):
        raise ReadError(path, f"its shape is {shown(shape)}")
    plain = isinstance(description, str) and description.lstrip("<>|=") in NUMBERS and len(description) <= 3
    if words and not (isinstance(description, str) and WORDS.fullmatch(description)):
        raise ReadError(path, f"it must hold text of a fixed width, as np.array(names) does, got dtype {shown(description)!r}")
    if not words and not plain:
        raise ReadError(path, f"it must hold plain numbers, got dtype {shown(description)!r}")
    return np.dtype(description), fortran, shape
