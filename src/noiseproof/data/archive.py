"""Unpack archives that are not trusted."""

from __future__ import annotations

import contextlib
import errno
import gzip
import io
import os
import reprlib
import stat
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Protocol, Self, TypeVar

from noiseproof.data.download import Progress
from noiseproof.data.examples import DataError
from noiseproof.data.images import open_file
from noiseproof.io.files import exists, is_dir

__all__ = ["unpack"]

AT_MOST = 2**31  # bytes an archive may unpack to, unless said otherwise
RATIO, SMALL = 64, 2**26  # and no more than this many times its own size, unless that is little
MEMBERS = 100_000  # files and folders an archive may hold: empty ones are not bounded by the bytes
DEPTH = 64  # folders inside each other
HEADERS = 2**18  # bytes of one member's headers, which tarfile reads into memory
BLOCK = 512
STEPS = 200  # calls of a progress


T = TypeVar("T")


class _Readable(Protocol):
    def read(self, size: int = ..., /) -> bytes: ...


def unpack(
    archive: Path, into: Path, *, at_most: int = AT_MOST, top: str | None = None, progress: Progress | None = None
) -> list[Path]:
    """Unpack a .tar, .tar.gz, .tgz, .zip or .gz file as the new folder ``into``; returns the files, in the archive's order.

    Only plain files and folders inside ``into`` are made: absolute names, ``..``, links, devices, names given twice, more than
    ``at_most`` bytes or ``RATIO`` times the archive's own, and an archive without files are refused. Everything is unpacked
    beside ``into`` and renamed at the end, so ``into`` is whole or not there, and a refused archive leaves nothing. ``top``
    names the one folder the archive must hold, which becomes ``into``. Modes, owners and times in the archive are ignored.
    ``progress`` is told how much of the archive has been read.
    """
    archive, into = Path(archive), Path(into)
    if exists(into) or into.is_symlink():
        raise DataError(f"{archive}: {into} is already there; remove it to unpack again")
    into.parent.mkdir(parents=True, exist_ok=True)
    with open_file(str(archive)) as raw, tempfile.TemporaryDirectory(dir=into.parent, prefix=f".{into.name}.") as beside:
        content = Path(beside) / "content"
        content.mkdir()
        files = _Members(archive, raw, content, at_most, progress).unpack()
        whole = content if top is None else content / top
        if top is not None and ([path.name for path in content.iterdir()] != [top] or not is_dir(whole)):
            found = ", ".join(sorted(repr(path.name) for path in content.iterdir())[:5])
            raise DataError(f"{archive}: should hold one folder {top!r}, found {found or 'nothing'}")
        os.rename(whole, into)
    return [into / path.relative_to(whole) for path in files]


class _Members:
    """Unpacks one archive into a folder; ``member`` is the current one, for messages."""

    def __init__(self, archive: Path, raw: BinaryIO, folder: Path, at_most: int, progress: Progress | None) -> None:
        self.archive, self.raw, self.folder, self.progress = archive, raw, folder, progress
        self.size = os.fstat(raw.fileno()).st_size
        self.left = self.at_most = min(at_most, max(SMALL, RATIO * self.size))
        self.member, self.count, self.told = "", 0, -1
        self.files: list[Path] = []
        self.folders = {folder}

    def unpack(self) -> list[Path]:
        name = self.archive.name.lower()
        kinds = {(".tar", ".tar.gz", ".tgz"): self._tar, (".zip",): self._zip, (".gz",): self._gzip}
        kind = next((take for endings, take in kinds.items() if name.endswith(endings)), None)
        if kind is None:
            raise DataError(f"{self.archive}: archives end in .tar, .tar.gz, .tgz, .zip or .gz, got {self.archive.suffix!r}")
        try:
            if not self.size:  # which gzip would take for an empty file
                raise EOFError("it is empty")
            kind()
            self._tell(self.size)
        except DataError:
            raise
        except Exception as error:  # the standard library raises many kinds for a damaged archive
            number = error.errno if isinstance(error, OSError) else None
            reason = f"damaged or not an archive: {str(error) or type(error).__name__}"
            if number == errno.ENOSPC:
                reason = f"no space left in {self.folder.parent.parent}"
            elif number == errno.ENAMETOOLONG:
                reason = "its name is too long for this file system"
            elif number is not None:
                raise
            raise DataError(f"{self.archive}: {self._at()}{reason}") from error
        if not self.files:
            raise DataError(f"{self.archive}: holds no files")
        return self.files

    def _tar(self) -> None:
        plain = self.archive.suffix.lower() == ".tar"
        with contextlib.nullcontext(self.raw) if plain else gzip.open(self.raw) as raw:
            blocks = _Blocks(raw, self)
            # Block by block: no more is read than the bound allows, whatever a header claims, and the last block is known.
            with blocks.headers(lambda: tarfile.open(fileobj=blocks, mode="r|", bufsize=BLOCK, tarinfo=_Entry)) as tar:
                self._tar_members(tar, blocks)
            # tarfile takes a damaged header or a missing end for the end, and would silently lose files.
            if blocks.last != bytes(BLOCK):
                raise tarfile.ReadError("no end of archive where one should be")
            while blocks.read(2**20):  # to its end, where gzip keeps its checksum
                pass

    def _tar_members(self, tar: tarfile.TarFile, blocks: _Blocks) -> None:
        while (entry := blocks.headers(tar.next)) is not None:
            self._take(entry.name)
            self._tell(self.raw.tell())
            if entry.isdir():
                self._make_folder(entry.name)
            elif entry.type in (tarfile.REGTYPE, tarfile.AREGTYPE) and not entry.issparse():
                content = tar.extractfile(entry)
                if content is None or self._write(entry.name, content, counted=True) != entry.size:
                    raise self._refusal("is cut short; download the archive again")
            else:
                raise self._refusal(f"is {_kind(entry)}; only files and folders are unpacked")

    def _zip(self) -> None:
        with zipfile.ZipFile(self.raw) as archive:
            for entry in archive.infolist():
                self._take(entry.filename)
                self._tell(min(entry.header_offset, self.size))
                kind = stat.S_IFMT(entry.external_attr >> 16)
                if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                    what = "a symbolic link" if kind == stat.S_IFLNK else "a device or other special file"
                    raise self._refusal(f"is {what}; only files and folders are unpacked")
                if entry.flag_bits & 1:
                    raise self._refusal("is encrypted; unpack the archive by hand")
                if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):  # others unpack without a bound
                    raise self._refusal("is neither stored nor deflated; unpack the archive by hand")
                if entry.is_dir():
                    self._make_folder(entry.filename)
                    continue
                with archive.open(entry) as content:
                    self._write(entry.filename, content)

    def _gzip(self) -> None:
        name = self.archive.name[: -len(".gz")]
        self._take(name)
        with gzip.open(self.raw) as content:
            self._write(name, content)

    def _take(self, name: str) -> None:
        self.member = name
        self._count()

    def _count(self) -> None:
        self.count += 1
        if self.count > MEMBERS:
            raise DataError(f"{self.archive}: holds more than {MEMBERS} files and folders")

    def _tell(self, done: int) -> None:
        step = STEPS * done // self.size
        if self.progress is not None and step > self.told:
            self.told = step
            self.progress(f"unpacking {self.archive.name}", done, self.size)

    def spend(self, count: int) -> None:
        """Count bytes that were unpacked against the bound."""
        self.left -= count
        if self.left < 0:
            raise DataError(f"{self.archive}: {self._at()}unpacks to more than the {self.at_most} bytes it may")

    def _place(self, name: str) -> Path:
        """The path of a member inside the folder; an error if its name leads elsewhere."""
        # On Windows a backslash or a colon would lead out of the folder.
        if name.startswith("/") or "\\" in name or ":" in name or "\0" in name:
            raise self._refusal("must have a relative name of plain parts; it would be written elsewhere")
        parts = [part for part in name.split("/") if part not in ("", ".")]
        if ".." in parts:
            raise self._refusal("must not have '..' in its name; it would be written outside the folder")
        if len(parts) > DEPTH:
            raise self._refusal(f"is more than {DEPTH} folders deep")
        return self.folder.joinpath(*parts)

    def _make_folder(self, name: str) -> None:
        self._make_folders(self._place(name), counted=True)

    def _make_folders(self, path: Path, counted: bool = False) -> None:
        """Make a folder and those above it, which count as members too; ``counted`` if the folder itself is one."""
        if path in self.folders:
            return
        self._make_folders(path.parent)
        if not counted:
            self._count()
        with self._refusing_duplicates():
            path.mkdir()
        self.folders.add(path)

    def _write(self, name: str, content: _Readable, counted: bool = False) -> int:
        path = self._place(name)
        if path == self.folder:
            raise self._refusal("is a file without a name")
        size = 0
        self._make_folders(path.parent)
        with self._refusing_duplicates():
            file = path.open("xb")
        with file:
            while piece := content.read(2**16):
                if not counted:
                    self.spend(len(piece))
                size += file.write(piece)
                self._tell(self.raw.tell())
        self.files.append(path)
        return size

    @contextlib.contextmanager
    def _refusing_duplicates(self) -> Iterator[None]:
        try:
            yield
        except (FileExistsError, NotADirectoryError) as error:
            raise self._refusal("is there twice; the second would overwrite the first") from error

    def _at(self) -> str:
        return f"member {_short(self.member)}: " if self.member else ""

    def _refusal(self, fault: str) -> DataError:
        return DataError(f"{self.archive}: member {_short(self.member)} {fault}")


class _Entry(tarfile.TarInfo):
    """A member whose header is right: tarfile may pass over one that is not, and lose a file silently."""

    @classmethod
    def fromtarfile(cls, tarfile_: tarfile.TarFile) -> Self:
        try:
            return super().fromtarfile(tarfile_)
        except tarfile.InvalidHeaderError as error:  # type: ignore[attr-defined] # typeshed lacks it
            raise tarfile.ReadError(f"no end of archive where one should be, but a damaged header: {error}") from error


class _Blocks(io.RawIOBase):
    """A stream that counts what is read against the bound, and keeps the last block."""

    def __init__(self, raw: _Readable, members: _Members) -> None:
        self.raw, self.members, self.last = raw, members, b""
        self.left: int | None = None  # of what headers may take, while they are read

    def read(self, size: int = -1) -> bytes:
        self.last = self.raw.read(size)
        self.members.spend(len(self.last))
        if self.left is not None:
            self.left -= len(self.last)
            if self.left < 0:
                raise tarfile.ReadError(f"headers of more than {HEADERS} bytes")
        return self.last

    def headers(self, read: Callable[[], T]) -> T:
        """Let tarfile read the headers of a member, but not without end."""
        self.left = HEADERS
        try:
            return read()
        finally:
            self.left = None


def _short(name: str) -> str:
    """A name as Python writes it, its middle left out if it is long."""
    shown = reprlib.Repr()
    shown.maxstring = 100
    return shown.repr(name)


def _kind(entry: tarfile.TarInfo) -> str:
    kinds = {
        "a symbolic link": entry.issym(),
        "a hard link": entry.islnk(),
        "a device": entry.isdev(),
        "a sparse file": entry.issparse(),
    }
    return next((kind for kind, found in kinds.items() if found), f"of the unknown type {entry.type!r}")
