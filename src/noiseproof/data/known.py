"""The data sets that have a name: how each is recognised and read, and where it is fetched from.

A further one takes an entry here and a reader, here or in a module of its own; if its classes have names, also classes.json.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from noiseproof.data import lists, official
from noiseproof.data.dataset import Dataset, load_digits

__all__ = ["ELSEWHERE", "IDX", "NAMES", "SOURCES", "Named", "RemoteFile", "Source"]


class Named(NamedTuple):
    """How a data set with a name is read and recognised."""

    read: Callable[[Path, bool], Dataset]  # from its folder; whether to check published checksums
    folders: tuple[str, ...] = ()  # where it may be, below the root
    witnesses: tuple[str, ...] = ()  # files of which one is there if the data set is


IDX = ("train-images-idx3-ubyte", "train-images-idx3-ubyte.gz", "train-images.idx3-ubyte")
NAMES: Mapping[str, Named] = {
    "digits": Named(lambda folder, check: load_digits()),
    "cifar10": Named(
        lambda folder, check: official.load_cifar10(folder, check=check),
        (
            "cifar-10-batches-bin",
            "cifar10/cifar-10-batches-bin",
            "cifar-10-batches-py",
            "cifar10/cifar-10-batches-py",
            "cifar10",
        ),
        ("test_batch.bin", "test_batch"),
    ),
    "cifar100": Named(
        lambda folder, check: official.load_cifar100(folder, check=check),
        ("cifar-100-binary", "cifar100/cifar-100-binary", "cifar-100-python", "cifar100/cifar-100-python", "cifar100"),
        ("test.bin", "test"),
    ),
    "mnist": Named(lambda folder, check: official.load_idx(folder), ("mnist", "MNIST/raw"), IDX),
    "fashion-mnist": Named(
        lambda folder, check: official.load_idx(folder, "fashion-mnist"), ("fashion-mnist", "FashionMNIST/raw"), IDX
    ),
    "webvision": Named(
        lambda folder, check: lists.load_webvision(folder, imagenet=lists.imagenet_beside(folder)),
        ("webvision",),
        ("info/train_filelist_google.txt", "train_filelist_google.txt"),
    ),
    "clothing1m": Named(
        lambda folder, check: lists.load_clothing1m(folder),
        ("clothing1m",),
        ("noisy_train_key_list.txt", "annotations/noisy_train_key_list.txt"),
    ),
}
"""The data sets that are opened by name. Each may also be in the root itself."""


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
    page: str  # where its owners describe it
    holds: Mapping[str, str] = field(default_factory=dict)  # published checksums of an archive's files, if it is one
    at_most: int = 2**28  # bytes the archive may unpack to

    @property
    def archived(self) -> bool:
        return bool(self.holds)

    def place(self, root: Path) -> Path:
        """Where the downloaded files are put, by hand or by ``fetch``."""
        return root if self.archived else root / self.folder


CIFAR = "https://www.cs.toronto.edu/~kriz/"
MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist/"
FASHION_MNIST = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"


def _cifar(archive: str, md5: str, folder: str) -> Source:
    return Source((RemoteFile(CIFAR + archive, md5),), folder, f"{CIFAR}cifar.html", official.CHECKSUMS[folder])


def _idx(address: str, folder: str, page: str, *sums: str) -> Source:
    files = tuple(RemoteFile(f"{address}{name}.gz", md5) for name, md5 in zip(official.IDX_FILES, sums, strict=True))
    return Source(files, folder, page)


SOURCES: Mapping[str, Source] = {
    "cifar10": _cifar("cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530", "cifar-10-batches-bin"),
    "cifar10-python": _cifar("cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a", "cifar-10-batches-py"),
    "cifar100": _cifar("cifar-100-binary.tar.gz", "03b5dce01913d631647c71ecec9e9cb8", "cifar-100-binary"),
    "cifar100-python": _cifar("cifar-100-python.tar.gz", "eb9058c3a382ffc7106e4002c42a8d85", "cifar-100-python"),
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
