"""NumPy's ``.npy`` and ``.npz`` files of plain numbers."""

from __future__ import annotations

import ast
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noiseproof.reading.opening import Readable, ReadError, check_promise, fill, open_regular, shown
from noiseproof.reading.zips import ZipMembers

__all__ = ["DIMENSIONS", "NUMBERS", "NpzFile", "read_npy"]

NUMBERS = frozenset(("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"))
"""The dtypes that are read, by kind and size."""
DIMENSIONS = 32
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
        member = f"{name}.npy" if f"{name}.npy" in self.members else name
        try:
            with self.open(member) as stream:
                return _read_array(self.path, stream, self.sizes[member])
        except ReadError as error:
            raise ReadError(self.path, f"array {shown(name)!r}: {error.fault}") from error


def _read_array(path: str | Path, stream: Readable, size: int) -> NDArray[Any]:
    start = stream.read(len(MAGIC) + 2)
    if len(start) < len(MAGIC) + 2 or not start.startswith(MAGIC) or start[6] not in (1, 2, 3):
        raise ReadError(path, f"not an .npy file: it starts with {start.hex() or 'nothing'}")
    width = 2 if start[6] == 1 else 4
    length = int.from_bytes(stream.read(width), "little")
    if length > HEADER:
        raise ReadError(path, f"its header is of {length} bytes, and may be of {HEADER}")
    dtype, fortran, shape = _header(path, stream.read(length))
    promised, what = dtype.itemsize * math.prod(shape), f"{dtype} of shape {shape}"
    check_promise(path, what, promised, size - len(start) - width - length)
    numbers = np.empty(math.prod(shape), dtype)
    check_promise(path, what, promised, fill(stream, numbers))
    return numbers.reshape(shape, order="F" if fortran else "C")


def _header(path: str | Path, raw: bytes) -> tuple[np.dtype[Any], bool, tuple[int, ...]]:
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
    if math.prod(length or 1 for length in shape) >= 2**48:
        raise ReadError(path, f"its shape is {shown(shape)}")
    if not isinstance(description, str) or description.lstrip("<>|=") not in NUMBERS or len(description) > 3:
        raise ReadError(path, f"it must hold plain numbers, got dtype {shown(description)!r}")
    return np.dtype(description), fortran, shape
