"""Opening a file that others wrote, and the limits on the memory that it may ask for."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["ReadError", "check_promise", "check_unpacked", "fill", "open_regular", "shown"]

UNPACKED, RATIO = 2**28, 32
"""A packed file may unpack to this many bytes, or to this many times its size if that is more."""
PIECE = 2**20


class ReadError(ValueError):
    """A file cannot be read: the message names it, and ``fault`` is what follows its name."""

    def __init__(self, path: str | Path, fault: str) -> None:
        super().__init__(str(path), fault)
        self.fault = fault

    def __str__(self) -> str:
        return ": ".join(self.args)


class Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


def open_regular(path: str | Path) -> BinaryIO:
    """A file opened for reading if it is a regular one: a pipe would wait for ever, and a device may never end."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    mode = os.fstat(handle).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(handle, "rb")
    os.close(handle)
    raise ReadError(path, f"not a regular file but a {'folder' if stat.S_ISDIR(mode) else 'pipe or a device'}")


def check_promise(path: str | Path, what: str, promised: int, found: int) -> None:
    """Compare the bytes that a header promises with those that are there, before memory is taken for them."""
    if promised != found:
        raise ReadError(path, f"{promised} bytes expected for {what}, found {found}")


def check_unpacked(path: str | Path, size: int, packed: int) -> None:
    """Refuse to unpack ``size`` bytes from a file of ``packed`` bytes if a file like that is made to fill the memory."""
    if size > (most := max(UNPACKED, RATIO * packed)):
        limit = f"{UNPACKED // 2**20} MiB or {RATIO} times its size"
        raise ReadError(path, f"unpacks to {size} bytes, and may to {most} ({limit}); save it uncompressed if it is meant")


def fill(stream: Readable, array: NDArray[Any]) -> int:
    """Read into a vector until it is full or the stream ends; returns the bytes read."""
    target, done = array.view(np.uint8), 0
    while done < len(target) and (piece := stream.read(min(PIECE, len(target) - done))):
        target[done : done + len(piece)] = np.frombuffer(piece, np.uint8)
        done += len(piece)
    return done


def shown(text: object, most: int = 80) -> str:
    """Text from a file as a message may print it: short, on one line, without control characters.

    >>> shown("label\\x1b[2J"), shown("a" * 100, most=3)
    ('label\\\\x1b[2J', 'aaa...')
    """
    whole = text.decode("latin-1") if isinstance(text, bytes) else str(text)
    start = whole[:most] + ("..." if len(whole) > most else "")
    return start if start.isprintable() else start.encode("unicode_escape").decode("ascii")
