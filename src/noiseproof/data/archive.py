"""Unpack archives that are not trusted."""

from __future__ import annotations

import contextlib
import errno
import gzip
import io
import os
import stat
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from noiseproof.data.examples import DataError

__all__ = ["unpack"]

AT_MOST = 2**31  # bytes an archive may unpack to, unless said otherwise
MEMBERS = 100_000  # files and folders an archive may hold: empty ones are not bounded by the bytes
BLOCK = 512


class _Readable(Protocol):
    def read(self, size: int = ..., /) -> bytes: ...


def unpack(archive: Path, into: Path, *, at_most: int = AT_MOST, top: str | None = None) -> list[Path]:
    """Unpack a .tar, .tar.gz, .tgz, .zip or .gz file as the new folder ``into``; returns the files, in the archive's order.

    Only plain files and folders inside ``into`` are made: absolute names, ``..``, links, devices, names given twice, and more
    than ``at_most`` bytes are refused. Everything is unpacked beside ``into`` and renamed at the end, so ``into`` is whole or
    not there, and a refused archive leaves nothing. ``top`` names the one folder the archive must hold, which becomes ``into``.
    Modes, owners and times in the archive are ignored.
    """
    archive, into = Path(archive), Path(into)
    if into.exists() or into.is_symlink():
        raise DataError(f"{archive}: {into} is already there; remove it to unpack again")
    into.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=into.parent, prefix=f".{into.name}.") as beside:
        content = Path(beside) / "content"
        content.mkdir()
        files = _Members(archive, content, at_most).unpack()
        whole = content if top is None else content / top
        if top is not None and ([path.name for path in content.iterdir()] != [top] or not whole.is_dir()):
            found = ", ".join(sorted(repr(path.name) for path in content.iterdir())[:5])
            raise DataError(f"{archive}: should hold one folder {top!r}, found {found or 'nothing'}")
        os.rename(whole, into)
    return [into / path.relative_to(whole) for path in files]


class _Members:
    """Unpacks one archive into a folder; ``member`` is the current one, for messages."""

    def __init__(self, archive: Path, folder: Path, at_most: int) -> None:
        self.archive, self.folder, self.left, self.at_most = archive, folder, at_most, at_most
        self.member, self.count = "", 0
        self.files: list[Path] = []

    def unpack(self) -> list[Path]:
        name = self.archive.name.lower()
        kinds = {(".tar", ".tar.gz", ".tgz"): self._tar, (".zip",): self._zip, (".gz",): self._gzip}
        kind = next((take for endings, take in kinds.items() if name.endswith(endings)), None)
        if kind is None:
            raise DataError(f"{self.archive}: archives end in .tar, .tar.gz, .tgz, .zip or .gz, got {self.archive.suffix!r}")
        try:
            if self.archive.stat().st_size == 0:  # which gzip would take for an empty file
                raise EOFError("it is empty")
            kind()
        except DataError:
            raise
        except Exception as error:  # the standard library raises many kinds for a damaged archive
            number = error.errno if isinstance(error, OSError) else None
            reason = f"damaged or not an archive: {str(error) or type(error).__name__}"
            if number == errno.ENOSPC:
                reason = f"no space left in {self.folder.parent.parent}"
            elif number is not None:
                raise
            raise DataError(f"{self.archive}: {self._at()}{reason}") from error
        return self.files

    def _tar(self) -> None:
        plain = self.archive.suffix.lower() == ".tar"
        with self.archive.open("rb") if plain else gzip.open(self.archive) as raw:
            blocks = _Blocks(raw, self)
            # Block by block: no more is read than the bound allows, whatever a header claims, and the last block is known.
            with tarfile.open(fileobj=blocks, mode="r|", bufsize=BLOCK) as tar:
                self._tar_members(tar)
            # tarfile takes a damaged header or a missing end for the end, and would silently lose files.
            if blocks.last != bytes(BLOCK):
                raise tarfile.ReadError("no end of archive where one should be")
            while blocks.read(2**20):  # to its end, where gzip keeps its checksum
                pass

    def _tar_members(self, tar: tarfile.TarFile) -> None:
        for entry in tar:
            self._take(entry.name)
            if entry.isdir():
                self._make_folder(entry.name)
            elif entry.type in (tarfile.REGTYPE, tarfile.AREGTYPE) and not entry.issparse():
                content = tar.extractfile(entry)
                if content is None or self._write(entry.name, content, counted=True) != entry.size:
                    raise self._refusal("is cut short; download the archive again")
            else:
                raise self._refusal(f"is {_kind(entry)}; only files and folders are unpacked")

    def _zip(self) -> None:
        with zipfile.ZipFile(self.archive) as archive:
            for entry in archive.infolist():
                self._take(entry.filename)
                kind = stat.S_IFMT(entry.external_attr >> 16)
                if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                    what = "a symbolic link" if kind == stat.S_IFLNK else "a device or other special file"
                    raise self._refusal(f"is {what}; only files and folders are unpacked")
                if entry.flag_bits & 1:
                    raise self._refusal("is encrypted; unpack the archive by hand")
                if entry.is_dir():
                    self._make_folder(entry.filename)
                    continue
                with archive.open(entry) as content:
                    self._write(entry.filename, content)

    def _gzip(self) -> None:
        name = self.archive.name[: -len(".gz")]
        self._take(name)
        with gzip.open(self.archive) as content:
            self._write(name, content)

    def _take(self, name: str) -> None:
        self.member = name
        self.count += 1
        if self.count > MEMBERS:
            raise DataError(f"{self.archive}: holds more than {MEMBERS} files and folders")

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
        return self.folder.joinpath(*parts)

    def _make_folder(self, name: str) -> None:
        with self._refusing_duplicates():
            self._place(name).mkdir(parents=True, exist_ok=True)

    def _write(self, name: str, content: _Readable, counted: bool = False) -> int:
        path = self._place(name)
        if path == self.folder:
            raise self._refusal("is a file without a name")
        size = 0
        with self._refusing_duplicates():
            path.parent.mkdir(parents=True, exist_ok=True)
            file = path.open("xb")
        with file:
            while piece := content.read(2**16):
                if not counted:
                    self.spend(len(piece))
                size += file.write(piece)
        self.files.append(path)
        return size

    @contextlib.contextmanager
    def _refusing_duplicates(self) -> Iterator[None]:
        try:
            yield
        except (FileExistsError, NotADirectoryError) as error:
            raise self._refusal("is there twice; the second would overwrite the first") from error

    def _at(self) -> str:
        return f"member {self.member!r}: " if self.member else ""

    def _refusal(self, fault: str) -> DataError:
        return DataError(f"{self.archive}: member {self.member!r} {fault}")


class _Blocks(io.RawIOBase):
    """A stream that counts what is read against the bound, and keeps the last block."""

    def __init__(self, raw: _Readable, members: _Members) -> None:
        self.raw, self.members, self.last = raw, members, b""

    def read(self, size: int = -1) -> bytes:
        self.last = self.raw.read(size)
        self.members.spend(len(self.last))
        return self.last


def _kind(entry: tarfile.TarInfo) -> str:
    kinds = {
        "a symbolic link": entry.issym(),
        "a hard link": entry.islnk(),
        "a device": entry.isdev(),
        "a sparse file": entry.issparse(),
    }
    return next((kind for kind, found in kinds.items() if found), f"of the unknown type {entry.type!r}")
