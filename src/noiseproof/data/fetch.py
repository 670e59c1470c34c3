"""Data sets from their official addresses, checked against the published checksums."""

from __future__ import annotations

import contextlib
import difflib
import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from noiseproof.data.archive import unpack
from noiseproof.data.download import Download, Progress, UnreachableError, checksum
from noiseproof.data.examples import DataError
from noiseproof.data.official import CIFAR10_BINARY, CIFAR10_PYTHON, CIFAR100_BINARY, CIFAR100_PYTHON
from noiseproof.data.places import data_root

__all__ = ["SOURCES", "RemoteFile", "Source", "fetch"]


@dataclass(frozen=True)
class RemoteFile:
    """A file at its official address, and the MD5 that is published for it."""

    url: str
    md5: str

    @property
    def name(self) -> str:
        return self.url.rsplit("/", 1)[-1]


@dataclass(frozen=True)
class Source:
    """What to download for a data set, and the folder it becomes."""

    files: tuple[RemoteFile, ...]
    folder: str
    page: str
    """Where its owners describe it"""
    holds: Mapping[str, str] = field(default_factory=dict)
    """Published checksums of what is in the archive; none if the files are read as they are"""
    at_most: int = 2**28
    """Bytes the archive may unpack to"""

    @property
    def archived(self) -> bool:
        return bool(self.holds)

    def place(self, root: Path) -> Path:
        """Where the downloaded files are put, by hand or by :func:`fetch`."""
        return root if self.archived else root / self.folder


CIFAR = "https://www.cs.toronto.edu/~kriz/"
MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist/"
FASHION_MNIST = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
IDX = ("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz", "t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz")


def _cifar(archive: str, md5: str, folder: str, holds: Mapping[str, str]) -> Source:
    return Source((RemoteFile(CIFAR + archive, md5),), folder, f"{CIFAR}cifar.html", holds)


def _idx(address: str, folder: str, page: str, *sums: str) -> Source:
    return Source(tuple(RemoteFile(address + name, md5) for name, md5 in zip(IDX, sums, strict=True)), folder, page)


SOURCES: Mapping[str, Source] = {
    "cifar10": _cifar("cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530", "cifar-10-batches-bin", CIFAR10_BINARY),
    "cifar10-python": _cifar(
        "cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a", "cifar-10-batches-py", CIFAR10_PYTHON
    ),
    "cifar100": _cifar("cifar-100-binary.tar.gz", "03b5dce01913d631647c71ecec9e9cb8", "cifar-100-binary", CIFAR100_BINARY),
    "cifar100-python": _cifar(
        "cifar-100-python.tar.gz", "eb9058c3a382ffc7106e4002c42a8d85", "cifar-100-python", CIFAR100_PYTHON
    ),
    "mnist": _idx(
        MNIST,
        "mnist",
        "http://yann.lecun.com/exdb/mnist/",
        "f68b3c2dcbeaaa9fbdd348bbdeb94873",
        "d53e105ee54ea40749a09fcbcd1e9432",
        "9fb629c4189551a2d022fa330f9573f3",
        "ec29112dd5afa0611ce80d1b7f02629c",
    ),
    "fashion-mnist": _idx(
        FASHION_MNIST,
        "fashion-mnist",
        "https://github.com/zalandoresearch/fashion-mnist",
        "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        "25c81989df183df01b3e8a0aad5dffbe",
        "bef4ecab320f06d8554ea6380940ec79",
        "bb300cfdad3c16e7a12a480ee83cd310",
    ),
}
_CIFAR_N = (
    "no checksum is published for it; take data/{} from https://github.com/UCSC-REAL/cifar-10-100n and pass it as --labels"
)
ELSEWHERE = {
    "cifar10n": _CIFAR_N.format("CIFAR-10_human.pt"),
    "cifar100n": _CIFAR_N.format("CIFAR-100_human.pt"),
    "digits": "it comes with scikit-learn, so there is nothing to fetch",
    "webvision": "it is too large to fetch like this; see https://data.vision.ee.ethz.ch/cvl/webvision/dataset2017.html",
    "clothing1m": "its owners give it on request; see https://github.com/Cysu/noisy_label",
}
"""Data sets that are opened but not fetched, and why."""


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

    What is there already is checked and not downloaded again, however it got there. An interrupted download is continued.
    Several processes may ask at once: one downloads, the others wait for it.
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
        raise DataError(f"downloading needs {missing.name}: pip install 'noiseproof[lab]'") from missing
    log = pooch.get_logger()
    level = log.level
    log.setLevel(logging.WARNING)  # it would announce each file on stderr, across the progress bar
    try:
        pooch.retrieve(file.url, f"md5:{file.md5}", fname=file.name, path=place, downloader=download)
    finally:
        log.setLevel(level)


def _check_there(path: Path, file: RemoteFile) -> None:
    found = checksum(path)
    if found != file.md5:
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
    """One process at a time, where the system can say so; a process that dies lets the others go on."""
    try:
        import fcntl
    except ModuleNotFoundError:  # Windows: two at once would spoil each other's download, and the checksum would tell
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # some network file systems have no locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
