"""Writing files so that a file that exists is whole, and finding those that a recipe names."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Callable
from pathlib import Path

__all__ = ["find_file", "write_whole"]


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Let ``write`` fill a file beside ``path``, then rename it: readers see the old file or the new one, never a part."""
    beside = path.parent / f".{path.name}.{secrets.token_hex(4)}"
    try:
        os.close(os.open(beside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))  # the system takes the umask off
        write(beside)
        os.replace(beside, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            beside.unlink()
        if isinstance(error, OSError) and error.errno and error.filename in (None, str(beside)):  # a full disk says no name
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise


def find_file(file: str, root: Path | None, what: str, way: str) -> Path:
    """A file by its name: a relative path is looked for in ``root``, then here. The error says ``what`` is not there, and the
    ``way`` out."""
    path = Path(file).expanduser()
    places = [path] if path.is_absolute() or root is None else [root / path, path]
    for place in places:
        if place.is_file():
            return place
    raise FileNotFoundError(f"no {what} {' or '.join(map(str, places))}; {way}")
