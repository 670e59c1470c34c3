"""Download a data set from its official address; it is verified before it is unpacked, and whole before it has its name."""

from __future__ import annotations

import gzip
import os
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from noiseproof.data.registry import Progress
from noiseproof.io.files import DataError, checksum, locked
from noiseproof.io.text import excerpt

RETRIES = 2
TIMEOUT = (15.0, 60.0)
"""Seconds until a connection is there, and without a single byte"""
CHUNK_BYTES = 2**16
TEMPORARY = ".fetching-"


@dataclass(frozen=True)
class RemoteFile:
    """A file at its official address, and its SHA-256."""

    url: str
    sha256: str

    @property
    def name(self) -> str:
        return self.url.rsplit("/", 1)[-1]


@dataclass(frozen=True)
class DownloadSource:
    """What to download for a data set, and the folder it becomes."""

    files: tuple[RemoteFile, ...]
    folder: str
    page: str
    """Where its owners describe it"""
    holds: Mapping[str, str] = field(default_factory=dict)
    """Checksums of the files in the archive, if it is one"""
    max_bytes: int = 2**28
    """Of a download, and of what an archive unpacks to"""

    def place(self, root: Path) -> Path:
        """Where the downloaded files are put, by hand or by :func:`fetch`."""
        return root if self.holds else root / self.folder


def fetch(source: DownloadSource, root: Path, progress: Progress | None = None) -> Path:
    """Download, verify and unpack a data set below a folder; several processes may do so at once.

    Args:
        source: The files, their SHA-256 and, of an archive, those of its content.
        root: The folder of data sets.
        progress: Told how much of each file has come.

    Returns:
        The data set's own folder. What is there already and as published is not downloaded again.

    Raises:
        DataError: A file cannot be downloaded, is not the published one, or does not unpack to what it should hold.
    """
    folder, place = root / source.folder, source.place(root)
    place.mkdir(parents=True, exist_ok=True)
    with locked(place, wait=True) as held:
        for left in place.glob(f"{TEMPORARY}*") if held else ():  # of a process that was killed
            shutil.rmtree(left, ignore_errors=True)
        if source.holds and folder.exists():
            _check_content(folder, source.holds, f"remove {folder} and run the same command again")
            return folder
        with tempfile.TemporaryDirectory(dir=place, prefix=TEMPORARY) as temporary:
            for file in source.files:
                if not _is_there(place / file.name, file.sha256):
                    _download(file, source, Path(temporary), place, progress)
            if source.holds:
                unpack(place / source.files[0].name, Path(temporary), source)
                os.rename(Path(temporary) / source.folder, folder)
    return folder


def unpack(archive: Path, into: Path, source: DownloadSource) -> None:
    """Unpack an archive whose SHA-256 is the published one: plain files and folders, within the limit, and all it should hold.

    Args:
        archive: A ``.tar.gz`` file.
        into: An empty folder.
        source: Says the folder that the archive holds, the checksums of its files, and the limit.

    Raises:
        DataError: A member is no plain file or would lie outside, the limit is reached, or the content is another.
    """
    left = source.max_bytes
    try:
        with tarfile.open(archive, "r:gz") as tar:
            for member in tar:
                if not (member.isreg() or member.isdir()):
                    fault = "is a link or a device; only files and folders are unpacked"
                    raise DataError(f"{archive}: member {excerpt(member.name)!r} {fault}")
                left -= member.size
                if left < 0:
                    raise DataError(f"{archive}: unpacks to more than the {source.max_bytes} bytes it may")
                tar.extract(member, into, filter="data")
    except tarfile.FilterError as error:
        raise DataError(f"{archive}: {excerpt(error, 200)}; it would be written elsewhere") from error
    except (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{archive}: damaged or not an archive: {excerpt(error, 200)}") from error
    # tarfile takes a damaged header for the end: what is missing then shows here.
    _check_content(into / source.folder, source.holds, f"remove {archive} and run the same command again")


def _is_there(path: Path, sha256: str) -> bool:
    if path.exists() and not path.is_file():
        raise DataError(f"{path}: not a regular file; move it away and run the same command again")
    return path.exists() and checksum(path) == sha256


def _check_content(folder: Path, holds: Mapping[str, str], way: str) -> None:
    for name, expected in holds.items():
        algorithm = {32: "md5", 40: "sha1", 64: "sha256"}[len(expected)]
        found = checksum(folder / name, algorithm) if (folder / name).is_file() else "no such file"
        if found != expected:
            raise DataError(f"{folder / name}: checksum {expected} expected, found {found}; {way}")


def _download(file: RemoteFile, source: DownloadSource, temporary: Path, place: Path, progress: Progress | None) -> None:
    """One file, renamed into its place once its SHA-256 is the published one."""
    try:
        import pooch
        import requests
    except ModuleNotFoundError as error:
        raise DataError(f"downloading needs {error.name}: pip install '.[lab]' in noiseproof's repository") from error
    pooch.get_logger().setLevel("WARNING")
    files = pooch.create(
        temporary, "", registry={file.name: f"sha256:{file.sha256}"}, urls={file.name: file.url}, retry_if_failed=RETRIES
    )
    asked: dict[str, Any] = {"headers": {"Accept-Encoding": "identity"}, "hooks": {"response": _check_redirection}}
    bar = _Bar(file.name, source.max_bytes, progress)
    downloader = pooch.HTTPDownloader(progressbar=bar, chunk_size=CHUNK_BYTES, timeout=TIMEOUT, **asked)
    try:
        os.replace(files.fetch(file.name, downloader=downloader), place / file.name)
    except requests.RequestException as error:
        raise DataError(f"{_reason(file.url, error)}; {_by_hand(source, place)}") from error
    except _RefusedError as error:
        raise DataError(f"{file.url}: {error}; {_by_hand(source, place)}") from error
    except ValueError as error:
        fault = f"its SHA-256 is not the published one, {file.sha256}; what came was removed"
        raise DataError(f"{file.url}: {fault}: the server or a proxy sends another file; {_by_hand(source, place)}") from error


class _RefusedError(Exception):
    """What a server sends is not taken. No ValueError: pooch would try again."""


class _Bar:
    """A progress bar as pooch takes it, which also ends a download that never stops."""

    total = 0

    def __init__(self, name: str, max_bytes: int, progress: Progress | None) -> None:
        self.name, self.max_bytes, self.progress, self.done = name, max_bytes, progress, 0

    def update(self, count: int) -> None:
        self.done += count
        if self.done > self.max_bytes + CHUNK_BYTES:
            raise _RefusedError(f"more than {self.max_bytes} bytes; that is not the file")
        if self.progress is not None:
            self.progress(self.name, min(self.done, self.total or self.done), self.total or None)

    def reset(self) -> None:
        self.done = 0

    def close(self) -> None:
        self.done = 0  # a further attempt begins anew


def _check_redirection(response: Any, **_: Any) -> None:
    """Follow redirections, but from https to https alone."""
    target = response.headers.get("location", "") if response.is_redirect else ""
    if urlsplit(response.url).scheme == "https" and urlsplit(target).scheme not in ("", "https"):
        raise _RefusedError(f"redirected to {excerpt(target)!r}, which is not https")


def _reason(url: str, error: Any) -> str:
    """Why a file did not come: the answer, or the innermost cause with a message of the system."""
    host, code = urlsplit(url).netloc, getattr(error.response, "status_code", None)
    if code is not None:
        return f"{url} is gone ({code})" if code in (404, 410) else f"{host} answered {code} for {url}"
    reason, cause = "no answer in time" if "timed out" in str(error) else type(error).__name__, error
    while cause := cause.__cause__ or cause.__context__:
        reason = getattr(cause, "strerror", None) or reason
    return f"could not download {url} from {host} ({reason})"


def _by_hand(source: DownloadSource, place: Path) -> str:
    missing = [file.url for file in source.files if not (place / file.name).exists()]
    what = "it" if len(missing) == 1 else "them"
    return (
        f"on another machine, download {' and '.join(missing)} by hand (described at {source.page}), "
        f"put {what} in {place}, then run the same command again"
    )
