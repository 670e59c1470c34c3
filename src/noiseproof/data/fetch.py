"""Download data sets from their official addresses and check them against the published checksums."""

from __future__ import annotations

import contextlib
import difflib
import logging
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from noiseproof.data.archive import unpack
from noiseproof.data.download import Download, Progress, UnreachableError
from noiseproof.data.examples import DataError
from noiseproof.data.known import ELSEWHERE, SOURCES, RemoteFile, Source
from noiseproof.data.places import data_root
from noiseproof.files import checksum

__all__ = ["fetch"]


def fetch(
    name: str,
    into: str | Path | None = None,
    *,
    sources: Mapping[str, Source] = SOURCES,
    progress: Progress | None = None,
    timeout: tuple[float, float] | None = None,
    pause: float = 1.0,
) -> Path:
    """Download a data set below ``into`` (or :func:`data_root`), check it and unpack it; returns its folder.

    An interrupted download is resumed. Several processes may call it at once: one downloads, the others wait.
    """
    source = _find(name, sources)
    root = data_root(into)
    folder, place = root / source.folder, source.place(root)
    place.mkdir(parents=True, exist_ok=True)
    with _alone(place):
        if source.archived and folder.exists():
            _check_unpacked(folder, source.holds)
            return folder
        for file in source.files:
            path = place / file.name
            if path.exists():
                _check_there(path, file)
                continue
            download = Download(path.with_name(f"{path.name}.part"), file.md5, progress, pause=pause)
            download.timeout = timeout or download.timeout
            try:
                _retrieve(file, place, download)
            except UnreachableError as error:
                raise UnreachableError(f"{error}; {_by_hand(source, place)}") from error
        if source.archived:
            unpack(place / source.files[0].name, folder, at_most=source.at_most, top=source.folder)
    return folder


def _find(name: str, sources: Mapping[str, Source]) -> Source:
    if name in sources:
        return sources[name]
    if name in ELSEWHERE:
        raise DataError(f"{name} cannot be fetched: {ELSEWHERE[name]}")
    near = difflib.get_close_matches(name, sources, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise DataError(f"unknown data set {name!r}; {hint}these can be fetched: {', '.join(sources)}")


def _retrieve(file: RemoteFile, place: Path, download: Download) -> None:
    try:
        import pooch
    except ModuleNotFoundError as missing:
        raise DataError(f"downloading needs {missing.name}: pip install '.[lab]' in noiseproof's repository") from missing
    log = pooch.get_logger()
    level = log.level
    log.setLevel(logging.WARNING)  # it would log each file to stderr, across the progress bar
    try:
        pooch.retrieve(file.url, f"md5:{file.md5}", fname=file.name, path=place, downloader=download)
    finally:
        log.setLevel(level)


def _check_there(path: Path, file: RemoteFile) -> None:
    if (found := checksum(path, "md5")) != file.md5:
        aside = path.with_name(f"{path.name}.wrong")
        os.replace(path, aside)
        raise DataError(
            f"{path}: MD5 {file.md5} expected, found {found}; it was set aside as {aside.name}, "
            "run the same command again to download it anew"
        )


def _check_unpacked(folder: Path, holds: Mapping[str, str]) -> None:
    for name, expected in holds.items():
        path = folder / name
        found = checksum(path, "md5" if len(expected) == 32 else "sha1") if path.is_file() else "no such file"
        if found != expected:
            raise DataError(
                f"{path}: checksum {expected} expected, found {found}; remove {folder} and run the same command again"
            )


def _by_hand(source: Source, place: Path) -> str:
    missing = [file.url for file in source.files if not (place / file.name).exists()]
    what = "it" if len(missing) == 1 else "them"
    return (
        f"on another machine, download {' and '.join(missing)} by hand (described at {source.page}), "
        f"put {what} in {place}, then run the same command again"
    )


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Lock the folder, where the system has locks; the lock ends with the process."""
    try:
        import fcntl
    except ModuleNotFoundError:  # Windows: two at once would fail the checksum
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # some network file systems have no locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
