"""The members of a zip file as NumPy and torch write them: stored or deflated, each name once, within the limit."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Self

from noiseproof.reading.opening import Readable, ReadError, check_unpacked, open_regular, shown

__all__ = ["ZipMembers"]

METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
ENCRYPTED = 1


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
        if member.compress_type not in METHODS or member.flag_bits & ENCRYPTED:
            raise ReadError(self.path, f"{shown(name)!r} in it is encrypted or packed by a method that NumPy does not write")
        if member.compress_type == zipfile.ZIP_STORED and member.file_size != member.compress_size:
            raise ReadError(self.path, f"{shown(name)!r} in it has two sizes: {member.file_size} and {member.compress_size}")
        self.unpacked += member.file_size
        check_unpacked(self.path, self.unpacked, self.size)
        with self._faults(), self.archive.open(member) as stream:
            yield stream

    def read(self, name: str) -> bytes:
        with self.open(name) as stream:
            return stream.read(self.sizes[name])

    def is_packed(self, name: str) -> bool:
        return self.members[name].compress_type != zipfile.ZIP_STORED

    @contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            yield
        except (ReadError, MemoryError):
            raise
        except Exception as error:  # zipfile and zlib raise many kinds for a damaged file
            raise ReadError(self.path, f"a damaged zip file: {shown(error, 200) or type(error).__name__}") from error
