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
from noiseproof.io.files import checksum

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
    """A file at its official address, the MD5 that is published for it, and its SHA-256."""

    url: str
    md5: str
    sha256: str

    @property
    def name(self) -> str:
        return self.url.rsplit("/", 1)[-1]

    def fault(self, path: Path) -> str | None:
        """In which checksum a file differs, if in any."""
        for name, algorithm, expected in (("MD5", "md5", self.md5), ("SHA-256", "sha256", self.sha256)):
            if (found := checksum(path, algorithm)) != expected:
                return f"{name} {expected} expected, found {found}"
        return None


@dataclass(frozen=True)
class Source:
    """What to download for a data set, and the folder it becomes."""

    files: tuple[RemoteFile, ...]
    folder: str
    page: str  # where its owners describe it
    holds: Mapping[str, str] = field(default_factory=dict)  # checksums of an archive's files, if it is one
    at_most: int = 2**28  # bytes the archive may unpack to

    @property
    def archived(self) -> bool:
        return bool(self.holds)

    def place(self, root: Path) -> Path:
        """Where the downloaded files are put, by hand or by ``fetch``."""
        return root if self.archived else root / self.folder


CIFAR = "https://www.cs.toronto.edu/~kriz/"
MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist/"
FASHION_MNIST = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"  # which has no https

# The owners publish MD5 or SHA-1, which can be forged, and no SHA-256. Those of the downloads are the ones that TensorFlow
# Datasets (binary CIFAR, MNIST, Fashion-MNIST) and Keras (Python CIFAR) check for these very files; they have not been compared
# with a download of ours. Those of the binary CIFAR files were computed from files that have the published checksums. For the
# unpacked Python CIFAR files there is the published MD5 only: the SHA-256 of their archive covers them when they are fetched.
BINARY_CIFAR = {
    "cifar-10-batches-bin": {
        "data_batch_1.bin": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
        "data_batch_2.bin": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
        "data_batch_3.bin": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
        "data_batch_4.bin": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
        "data_batch_5.bin": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
        "test_batch.bin": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
    },
    "cifar-100-binary": {
        "train.bin": "f31298fc616915fa142368359df1c4ca2ae984d6915ca468b998a5ec6aeebf29",
        "test.bin": "d8b1e6b7b3bee4020055f0699b111f60b1af1e262aeb93a0b659061746f8224a",
    },
}


def _cifar(archive: str, folder: str, md5: str, sha256: str) -> Source:
    holds = BINARY_CIFAR.get(folder) or official.CHECKSUMS[folder]
    return Source((RemoteFile(CIFAR + archive, md5, sha256),), folder, f"{CIFAR}cifar.html", holds)


def _idx(address: str, folder: str, page: str, *sums: tuple[str, str]) -> Source:
    files = tuple(RemoteFile(f"{address}{name}.gz", *both) for name, both in zip(official.IDX_FILES, sums, strict=True))
    return Source(files, folder, page)


SOURCES: Mapping[str, Source] = {
    "cifar10": _cifar(
        "cifar-10-binary.tar.gz",
        "cifar-10-batches-bin",
        "c32a1d4ab5d03f1284b67883e8d87530",
        "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
    ),
    "cifar10-python": _cifar(
        "cifar-10-python.tar.gz",
        "cifar-10-batches-py",
        "c58f30108f718f92721af3b95e74349a",
        "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
    ),
    "cifar100": _cifar(
        "cifar-100-binary.tar.gz",
        "cifar-100-binary",
        "03b5dce01913d631647c71ecec9e9cb8",
        "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
    ),
    "cifar100-python": _cifar(
        "cifar-100-python.tar.gz",
        "cifar-100-python",
        "eb9058c3a382ffc7106e4002c42a8d85",
        "85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7",
    ),
    "mnist": _idx(
        MNIST,
        "mnist",
        "http://yann.lecun.com/exdb/mnist/",
        ("f68b3c2dcbeaaa9fbdd348bbdeb94873", "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"),
        ("d53e105ee54ea40749a09fcbcd1e9432", "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
        ("9fb629c4189551a2d022fa330f9573f3", "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
        ("ec29112dd5afa0611ce80d1b7f02629c", "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
    ),
    "fashion-mnist": _idx(
        FASHION_MNIST,
        "fashion-mnist",
        "https://github.com/zalandoresearch/fashion-mnist",
        ("8d4fb7e6c68d591d4c3dfef9ec88bf0d", "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"),
        ("25c81989df183df01b3e8a0aad5dffbe", "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"),
        ("bef4ecab320f06d8554ea6380940ec79", "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"),
        ("bb300cfdad3c16e7a12a480ee83cd310", "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"),
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
