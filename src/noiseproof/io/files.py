"""Files: opened only if regular, written whole or not at all, locked, found by name, and their checksums."""

from __future__ import annotations

import contextlib
import errno
import glob
import hashlib
import io
import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


FULL_DISK = re.compile(r"No space left on device|os error 28|\d+ requested and \d+ written")
"""What the system, safetensors and NumPy say of a full disk"""
MAX_NAME_BYTES = 240
"""File systems allow 255, and a partial file has ten more than the file"""
KILLED_SECONDS = 2.0
"""In which the processes that a killed one has started are gone"""


class DataError(ValueError):
    """Data are not what they should be; the message names the file, if they come from one, and the fault."""


class BusyError(ValueError):
    """Another process is at work in a folder."""


class ReadError(DataError):
    """A file cannot be read: the message names it, and ``fault`` is what follows its name."""

    def __init__(self, path: str | Path, fault: str) -> None:
        super().__init__(str(path), fault)
        self.fault = fault

    def __str__(self) -> str:
        return ": ".join(self.args)


@contextlib.contextmanager
def errors_named(path: str | Path) -> Iterator[None]:
    """Give an error of reading or writing the name of the file, which unlike one of opening it does not have."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        raise OSError(error.errno, os.strerror(error.errno), str(path)) from error


class _NamedFile(io.FileIO):
    """A file whose errors name it."""

    def __init__(self, path: str | Path, handle: int | None = None) -> None:
        super().__init__(path if handle is None else handle, "rb")
        self.path = path

    def readinto(self, buffer: Any, /) -> int | None:
        with errors_named(self.path):
            return super().readinto(buffer)

    def readall(self) -> bytes:
        with errors_named(self.path):
            return super().readall()


def open_regular(path: str | Path) -> BinaryIO:
    """A file opened for reading if it is a regular one: a pipe would wait for ever, and a device may never end."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    mode = os.fstat(handle).st_mode
    if stat.S_ISREG(mode):
        return io.BufferedReader(_NamedFile(path, handle))
    os.close(handle)
    raise ReadError(path, f"not a regular file but a {'folder' if stat.S_ISDIR(mode) else 'pipe or a device'}")


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Let ``write`` fill a file beside ``path``, then rename it: readers see the old file or the new one, never a part.

    Also after a power failure: the content is on the disk before the rename, and the rename before this returns. A device or a
    pipe is left alone: in the place of /dev/null a file would be a calamity. What a writer that was killed has left beside
    ``path`` is removed.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        raise OSError(errno.EINVAL, "a device or a pipe, which no file can take the place of", str(path))
    beside = path.parent / f".{_short_name(path.name)}.{secrets.token_hex(4)}"
    try:
        with contextlib.ExitStack() as held:
            handle = os.open(beside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)  # the system takes the umask off
            held.callback(os.close, handle)
            if not _lock_now(handle):
                held.close()  # a file that is open cannot be renamed on Windows
            write(beside)
            flush(beside)
            os.replace(beside, path)
            flush(path.parent)
        _remove_abandoned(path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            beside.unlink()
        if isinstance(error, Exception) and FULL_DISK.search(str(error)):  # without its number where a library wrote
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path)) from error
        if isinstance(error, OSError) and error.errno and error.filename in (None, str(beside)):
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise


def _short_name(name: str) -> str:
    """The name, or its digest where with what is added it would be longer than file systems allow.

    >>> _short_name("a.csv"), len(_short_name("a" * 250))
    ('a.csv', 64)
    """
    whole = os.fsencode(name)
    return name if len(whole) <= MAX_NAME_BYTES else hashlib.sha256(whole).hexdigest()


def _lock_now(handle: int) -> bool:
    """Whether a file could be locked at once; not where the system or file system has no locks."""
    try:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (ImportError, OSError):
        return False
    return True


def _remove_abandoned(path: Path) -> None:
    """Remove the partial files of writers of ``path`` that were killed: those that live have a lock on theirs."""
    with contextlib.suppress(OSError):  # the file itself is there
        for left in path.parent.glob(f".{glob.escape(_short_name(path.name))}.{'[0-9a-f]' * 8}"):
            handle = os.open(left, os.O_RDONLY)
            try:
                if time.time() - os.fstat(handle).st_mtime > 0.1 and _lock_now(handle):
                    left.unlink()
            finally:
                os.close(handle)


def remove_partial(path: Path) -> None:
    """Remove what :func:`write_whole` left beside ``path`` when it was killed, for one who has the lock of all its writers."""
    _remove_partials(path.parent, glob.escape(_short_name(path.name)))


def _remove_partials(folder: Path, pattern: str) -> None:
    for left in folder.glob(f".{pattern}.{'[0-9a-f]' * 8}"):
        with contextlib.suppress(OSError):  # a folder may be read-only
            left.unlink()


def file_and_name(text: str) -> tuple[Path, str | None]:
    """FILE, or FILE#NAME where that is no file itself."""
    file, mark, name = text.rpartition("#")
    whole = not mark or Path(text).expanduser().exists()
    return Path(text if whole else file).expanduser(), None if whole else name


def flush(place: Path) -> None:
    """Wait until a file's content, or a folder's list of names, is on the disk, where the system can say so."""
    if place.is_dir() and (os.name == "nt" or not os.access(place, os.R_OK)):
        return  # it cannot be opened
    handle = os.open(place, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):  # of a file system that does not offer it
            raise
    finally:
        os.close(handle)


def make_folder(folder: Path) -> list[Path]:
    """Make a folder with its parents where they are missing; returns those that were, the deepest first."""
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    if missing:
        folder.mkdir(parents=True, exist_ok=True)
        for place in missing:
            flush(place.parent)
    return missing


@contextlib.contextmanager
def locked(folder: Path, *, wait: bool) -> Iterator[bool]:
    """Keep other processes out of a folder, until this one lets go or ends, however it ends.

    Another one that has it is waited for, or is a BlockingIOError; one that removed it meanwhile is a FileNotFoundError. Gives
    False where the system or file system has no locks.
    """
    try:
        import fcntl
    except ImportError:  # on Windows
        yield False
        return
    handle, held = os.open(folder, os.O_RDONLY), True
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise
        except OSError:
            held = False
        if held and not os.path.samestat(os.fstat(handle), os.stat(folder)):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(folder))
        yield held
    finally:
        os.close(handle)


@contextlib.contextmanager
def claimed(folder: Path, files: Iterable[str] = ()) -> Iterator[None]:
    """Make the folder if need be, keep other processes out, and remove the partial files of writes that were killed.

    ``files`` are names, or patterns such as ``*.npz``.

    Work that fails before it has written anything leaves no folder behind.
    """
    with contextlib.ExitStack() as stack:
        try:
            made, held = _locked_folder(folder, stack)
        except BlockingIOError:
            raise BusyError(f"another process is at work in {folder}; wait for it, or choose another folder") from None
        if held:  # or a partial file might be another process's
            for name in files:
                _remove_partials(folder, name)
        try:
            yield
        except BaseException:
            with contextlib.suppress(OSError):  # not empty
                for place in made:
                    place.rmdir()
            raise


def _locked_folder(folder: Path, stack: contextlib.ExitStack) -> tuple[list[Path], bool]:
    """Which folders were made, and whether there are locks; made again if work that failed removes it meanwhile.

    Another process is waited for as long as those live that a killed one has started, and that hold its lock.
    """
    made, end = make_folder(folder), time.monotonic() + KILLED_SECONDS
    while True:
        try:
            return made, stack.enter_context(locked(folder, wait=False))
        except FileNotFoundError:
            made = make_folder(folder)
        except BlockingIOError:
            if time.monotonic() > end:
                raise
            time.sleep(KILLED_SECONDS / 50)


def wrong_suffix(path: Path, what: str, suffixes: Iterable[str]) -> OSError | ValueError:
    """The error for a file that none of the suffixes fits: first of all that it is not there, where it is not."""
    if not path.exists():
        return FileNotFoundError(f"{path}: no such file or folder")
    return ValueError(f"{path}: {what} read from {', '.join(suffixes)}, got {path.suffix or 'no suffix'!r}")


def find_file(file: str, root: Path | None, what: str, way: str) -> Path:
    """The path of a file; a relative one is looked for in ``root``, then here. The error names ``what`` and the ``way`` out."""
    path = Path(file).expanduser()
    places = [path] if path.is_absolute() or root is None else [root / path, path]
    for place in places:
        if place.is_file():
            return place
    raise FileNotFoundError(f"no {what} {' or '.join(map(str, places))}; {way}")


def checksums(paths: Sequence[Path]) -> dict[str, str]:
    """SHA-256 of files by name, or by path where two files have one name."""
    names = [path.name for path in paths]
    return {path.name if names.count(path.name) == 1 else str(path): checksum(path) for path in paths}


def checksum(path: Path, algorithm: str = "sha256", *, archive: bool = False) -> str:
    """The hash of a file, read in pieces; one that is no archive is read whole afterwards, so it must fit into memory.

    MD5 and SHA-1 are only for published checksums.
    """
    if not archive:
        from noiseproof.io.limits import check_file  # which imports this module

        check_file(path)
    with io.BufferedReader(_NamedFile(path)) as file:
        return hashlib.file_digest(file, lambda: hashlib.new(algorithm, usedforsecurity=False)).hexdigest()


def label_hash(labels: Any) -> str:
    """Return the SHA-256 of labels: the same on every machine, whatever their dtype.

    Args:
        labels: Integers ``[N]``.

    Returns:
        The hash of the labels as 64-bit little-endian numbers, in hexadecimal.

    >>> label_hash([0, 1]) == label_hash(bytearray([0, 1]))
    True
    """
    import numpy as np  # here, since most of what uses files needs no arrays

    return hashlib.sha256(np.ascontiguousarray(labels, dtype="<i8").tobytes()).hexdigest()


def save_array(place: Path, array: ArrayLike) -> None:
    """Write an .npy file of this very name, without pickles."""
    import numpy as np

    with place.open("wb") as file:
        np.save(file, array, allow_pickle=False)


def save_arrays(place: Path, arrays: Mapping[str, ArrayLike], *, compressed: bool = False) -> None:
    """Write an .npz file of this very name, without pickles."""
    import numpy as np

    with place.open("wb") as file:
        (np.savez_compressed if compressed else np.savez)(file, allow_pickle=False, **arrays)


def write_tensors(path: Path, arrays: Mapping[str, ArrayLike], metadata: Mapping[str, str]) -> str:
    """Write arrays as a safetensors file, whole or not at all; returns its SHA-256."""
    import numpy as np
    from safetensors.numpy import save

    content = save({name: np.asarray(array, order="C") for name, array in arrays.items()}, dict(metadata))
    write_whole(path, lambda place: place.write_bytes(content))
    return hashlib.sha256(content).hexdigest()
