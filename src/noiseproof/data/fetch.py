"""Download data sets from their official addresses and check them against the published checksums."""

from __future__ import annotations

import contextlib
import difflib
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from noiseproof.data.archive import unpack
from noiseproof.data.download import Download, Progress, UnreachableError
from noiseproof.data.examples import DataError
from noiseproof.data.known import ELSEWHERE, SOURCES, RemoteFile, Source
from noiseproof.data.places import data_root
from noiseproof.io.files import checksum, exists, is_file, locked

__all__ = ["fetch"]

UNDER_WAY = ".fetching"
"""The folder, beside the files, of what is not unpacked yet. What a killed process left there the next one removes."""


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

    An interrupted download is resumed. Several processes may call it at once: one downloads, the others wait. ``progress`` is
    called for downloads and for the unpacking.
    """
    source = _find(name, sources)
    root = data_root(into)
    folder, place = root / source.folder, source.place(root)
    place.mkdir(parents=True, exist_ok=True)
    with locked(place, wait=True) as held:
        if held:  # else another process may be at work
            _remove(place / UNDER_WAY)
        if source.archived and exists(folder):
            _check_unpacked(folder, source.holds)
            return folder
        for file in source.files:
            path = place / file.name
            download = Download(path.with_name(f"{path.name}.part"), file.fault, progress, pause=pause)
            download.timeout = timeout or download.timeout
            if exists(path):
                _check_there(path, file)
                download.discard()
                continue
            try:
                download(file.url, path)
            except ModuleNotFoundError as error:
                raise DataError(f"downloading needs {error.name}: pip install '.[lab]' in noiseproof's repository") from error
            except UnreachableError as error:
                raise UnreachableError(f"{error}; {_by_hand(source, place)}") from error
        if source.archived:
            with _under_way(place) as room:
                whole = room / source.folder
                unpack(place / source.files[0].name, whole, at_most=source.at_most, top=source.folder, progress=progress)
                os.rename(whole, folder)
    return folder


@contextlib.contextmanager
def _under_way(place: Path) -> Iterator[Path]:
    """A folder for what is not unpacked yet, gone at the end."""
    parent = place / UNDER_WAY
    if parent.is_symlink():
        parent.unlink()
    parent.mkdir(exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(dir=parent) as room:
            yield Path(room)
    finally:
        with contextlib.suppress(OSError):  # another process has it too
            parent.rmdir()


def _remove(folder: Path) -> None:
    if folder.is_symlink():
        folder.unlink()
    shutil.rmtree(folder, ignore_errors=True)


def _find(name: str, sources: Mapping[str, Source]) -> Source:
    if name in sources:
        return sources[name]
    if name in ELSEWHERE:
        raise DataError(f"{name} cannot be fetched: {ELSEWHERE[name]}")
    near = difflib.get_close_matches(name, sources, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise DataError(f"unknown data set {name!r}; {hint}these can be fetched: {', '.join(sources)}")


def _check_there(path: Path, file: RemoteFile) -> None:
    if not is_file(path):
        raise DataError(f"{path}: not a regular file; move it away and run the same command again")
    if fault := file.fault(path):
        aside = path.with_name(f"{path.name}.wrong")
        os.replace(path, aside)
        raise DataError(f"{path}: {fault}; it was set aside as {aside.name}, run the same command again to download it anew")


def _check_unpacked(folder: Path, holds: Mapping[str, str]) -> None:
    for name, expected in holds.items():
        path = folder / name
        algorithm = {32: "md5", 40: "sha1", 64: "sha256"}[len(expected)]
        found = checksum(path, algorithm) if is_file(path) else "no such file"
        if found != expected:
            raise DataError(
                f"{path}: checksum {expected} expected, found {found}; remove {folder} and run the same command again"
            )


def _by_hand(source: Source, place: Path) -> str:
    missing = [file.url for file in source.files if not exists(place / file.name)]
    what = "it" if len(missing) == 1 else "them"
    return (
        f"on another machine, download {' and '.join(missing)} by hand (described at {source.page}), "
        f"put {what} in {place}, then run the same command again"
    )
