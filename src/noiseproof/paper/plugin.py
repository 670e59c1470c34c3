"""The plug-in of the experiments: their data sets, augmentations and network by name, files of torch's, addresses, checksums.

Importing it registers them; :mod:`noiseproof.plugins` does that when a name is not known otherwise. MNIST and its like are idx
files: images and labels as bytes, packed by gzip or not.
"""

from __future__ import annotations

import contextlib
import gzip
import math
import struct
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from noiseproof.data.augment import register_augmentation
from noiseproof.data.dataset import Dataset, Split, as_split, assembled
from noiseproof.data.registry import NamedDataset, Progress, register_dataset
from noiseproof.io.arrays import check_size, check_unpacked, fill
from noiseproof.io.files import DataError, ReadError, checksum, open_regular
from noiseproof.io.text import excerpt
from noiseproof.models.weights import WEIGHTS_READERS
from noiseproof.noise.files import LABEL_READERS, labels_in
from noiseproof.paper import datasets
from noiseproof.paper.datasets import DownloadSource, RemoteFile, fetch
from noiseproof.paper.networks import read_weights
from noiseproof.paper.pickles import read_torch

IDX_FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
IDX_MARKERS = ("train-images-idx3-ubyte", "train-images-idx3-ubyte.gz", "train-images.idx3-ubyte")
"""Files of which one is there if a folder has idx files"""
MAX_IDX_DIMENSIONS = 8
IDX_TYPES = {8: "u1", 9: "i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}
DIGITS = tuple("0123456789")


def load_idx(folder: str | Path, name: str = "mnist", classes: tuple[str, ...] = DIGITS) -> Dataset:
    """Read the four idx files of MNIST and its like, packed by gzip or not.

    Args:
        folder: Where the files are.
        name: Of the data set.
        classes: Names of the classes.

    Returns:
        The data set.

    >>> load_idx("no-such-folder")
    Traceback (most recent call last):
    FileNotFoundError: no-such-folder: no train-images-idx3-ubyte or train-images-idx3-ubyte.gz
    """
    folder = Path(folder)
    images, labels, test_images, test_labels = (_idx_path(folder, stem) for stem in IDX_FILES)
    train, test = _idx_split(images, labels, len(classes)), _idx_split(test_images, test_labels, len(classes))
    sources = {path.name: checksum(path) for path in (images, labels, test_images, test_labels)}
    return assembled(name, train, test, classes, sources, test_images)


def _idx_path(folder: Path, stem: str) -> Path:
    for name in (stem, f"{stem}.gz", stem.replace("-idx", ".idx")):
        if (folder / name).is_file():
            return folder / name
    raise FileNotFoundError(f"{folder}: no {stem} or {stem}.gz")


def _idx_split(images: Path, labels: Path, classes: int) -> Split:
    """Images and labels from their two files; an error about both names the labels' file."""
    x, y = read_idx(images), read_idx(labels)
    for path, array, wanted in ((images, x, 3), (labels, y, 1)):
        if array.ndim != wanted or array.dtype != np.uint8:
            raise DataError(f"{path}: should hold bytes in {wanted} dimensions, found {array.dtype} in {array.ndim}")
    if not x.size:
        raise DataError(f"{images}: there are no images in it, its shape is {x.shape}")
    return as_split(x[..., None], y, classes, f"{labels} (images from {images.name})")


def read_idx(path: str | Path) -> NDArray[Any]:
    """Read an idx file of bytes, packed by gzip or not.

    Args:
        path: The file.

    Returns:
        The array.

    Raises:
        DataError: If the file is damaged or of another kind.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "labels-idx1-ubyte").write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 2, 7, 3]))
    ...     read_idx(f"{folder}/labels-idx1-ubyte").tolist()
    [7, 3]
    """
    path = Path(path)
    try:
        with open_regular(path) as file:
            packed = file.read(2) == b"\x1f\x8b"
            size = file.seek(0, 2)
            file.seek(0)
            with gzip.GzipFile(fileobj=file) if packed else contextlib.nullcontext(file) as stream:
                return _read_idx(path, stream, size, packed)
    except ReadError as error:
        raise DataError(str(error)) from error
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{path}: damaged gzip data: {error}") from error


def _read_idx(path: Path, stream: BinaryIO | gzip.GzipFile, size: int, packed: bool) -> NDArray[Any]:
    start = stream.read(4)
    if len(start) < 4 or start[:2] != b"\0\0" or start[2] not in IDX_TYPES:
        raise DataError(f"{path}: not an idx file: it starts with {start.hex() or 'nothing'}")
    dimensions, dtype = start[3], np.dtype(IDX_TYPES[start[2]])
    lengths = stream.read(4 * dimensions)
    if len(lengths) < 4 * dimensions:
        raise DataError(f"{path}: truncated in its header")
    shape = struct.unpack(f">{dimensions}I", lengths)
    if dimensions > MAX_IDX_DIMENSIONS or math.prod(length or 1 for length in shape) >= 2**48:
        raise DataError(
            f"{path}: an array of shape {excerpt(shape)}; at most {MAX_IDX_DIMENSIONS} dimensions and 2**48 numbers are read"
        )
    count, what = math.prod(shape), f"shape {shape}"
    header = 4 + 4 * dimensions
    promised = header + dtype.itemsize * count
    if packed:
        check_unpacked(path, promised, size)
    else:
        check_size(path, what, promised, size)
    array = np.empty(count, dtype)
    check_size(path, what, promised, header + fill(stream, array) + len(stream.read(1)))
    return array.reshape(shape).astype(dtype.newbyteorder("="), copy=False)


CIFAR = "https://www.cs.toronto.edu/~kriz/"
MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist/"
FASHION_MNIST = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"  # which has no https

# The owners publish MD5 or SHA-1, which can be forged, and no SHA-256. Those of the downloads are the ones that TensorFlow
# Datasets (binary CIFAR, MNIST, Fashion-MNIST) and Keras (Python CIFAR) verify for these files; they have not been compared
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


def _cifar(archive: str, folder: str, sha256: str) -> DownloadSource:
    holds = BINARY_CIFAR.get(folder) or datasets.CHECKSUMS[folder]
    return DownloadSource((RemoteFile(CIFAR + archive, sha256),), folder, f"{CIFAR}cifar.html", holds)


def _idx(address: str, folder: str, page: str, *sums: str) -> DownloadSource:
    return DownloadSource(
        tuple(RemoteFile(f"{address}{name}.gz", sha) for name, sha in zip(IDX_FILES, sums, strict=True)), folder, page
    )


SOURCES = {
    "cifar10": _cifar(
        "cifar-10-binary.tar.gz",
        "cifar-10-batches-bin",
        "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
    ),
    "cifar10-python": _cifar(
        "cifar-10-python.tar.gz",
        "cifar-10-batches-py",
        "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
    ),
    "cifar100": _cifar(
        "cifar-100-binary.tar.gz",
        "cifar-100-binary",
        "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
    ),
    "cifar100-python": _cifar(
        "cifar-100-python.tar.gz",
        "cifar-100-python",
        "85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7",
    ),
    "mnist": _idx(
        MNIST,
        "mnist",
        "http://yann.lecun.com/exdb/mnist/",
        "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    ),
    "fashion-mnist": _idx(
        FASHION_MNIST,
        "fashion-mnist",
        "https://github.com/zalandoresearch/fashion-mnist",
        "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
        "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
        "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
        "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
    ),
}
CIFAR_N = (
    "no checksum is published for it; take data/{} from https://github.com/UCSC-REAL/cifar-10-100n and pass it as --labels"
)


def published(folder: Path) -> str | None:
    """Whose idx files a folder has, by the checksum of the training images; None if they are not as published."""
    images = folder / SOURCES["mnist"].files[0].name
    found = checksum(images) if images.is_file() else ""
    return next((name for name in ("mnist", "fashion-mnist") if SOURCES[name].files[0].sha256 == found), None)


def _is(name: str, folder: Path) -> bool:
    return (published(folder) or folder.resolve().name) == name


def _read_fashion_mnist(folder: Path, check: bool) -> Dataset:
    return load_idx(folder, "fashion-mnist", datasets.class_names("fashion-mnist"))


def _fetcher(name: str) -> Callable[[Path, Progress | None], Path] | None:
    return (lambda root, progress: fetch(SOURCES[name], root, progress)) if name in SOURCES else None


CIFAR10_FOLDERS = ("cifar-10-batches-bin", "cifar10/cifar-10-batches-bin", "cifar-10-batches-py", "cifar10/cifar-10-batches-py")
CIFAR100_FOLDERS = ("cifar-100-binary", "cifar100/cifar-100-binary", "cifar-100-python", "cifar100/cifar-100-python")
DATASETS = {
    "cifar10": NamedDataset(
        lambda folder, check: datasets.load_cifar10(folder, check=check),
        (*CIFAR10_FOLDERS, "cifar10"),
        ("test_batch.bin", "test_batch"),
    ),
    "cifar100": NamedDataset(
        lambda folder, check: datasets.load_cifar100(folder, check=check),
        (*CIFAR100_FOLDERS, "cifar100"),
        ("test.bin", "test"),
    ),
    "mnist": NamedDataset(
        lambda folder, check: load_idx(folder), ("mnist", "MNIST/raw"), IDX_MARKERS, matches=partial(_is, "mnist")
    ),
    "fashion-mnist": NamedDataset(
        _read_fashion_mnist, ("fashion-mnist", "FashionMNIST/raw"), IDX_MARKERS, matches=partial(_is, "fashion-mnist")
    ),
    "webvision": NamedDataset(
        lambda folder, check: datasets.load_webvision(folder, imagenet=datasets.imagenet_beside(folder)),
        ("webvision",),
        ("info/train_filelist_google.txt", "train_filelist_google.txt"),
        by_hand="it is too large to fetch like this; see https://data.vision.ee.ethz.ch/cvl/webvision/dataset2017.html",
    ),
    "clothing1m": NamedDataset(
        lambda folder, check: datasets.load_clothing1m(folder),
        ("clothing1m",),
        ("noisy_train_key_list.txt", "annotations/noisy_train_key_list.txt"),
        by_hand="its owners give it on request; see https://github.com/Cysu/noisy_label",
    ),
    "cifar10-python": NamedDataset(folders=("cifar-10-batches-py",), markers=("test_batch",)),
    "cifar100-python": NamedDataset(folders=("cifar-100-python",), markers=("test",)),
    "cifar10n": NamedDataset(by_hand=CIFAR_N.format("CIFAR-10_human.pt")),
    "cifar100n": NamedDataset(by_hand=CIFAR_N.format("CIFAR-100_human.pt")),
}
for _name, _dataset in DATASETS.items():
    register_dataset(_name, _dataset._replace(fetch=_fetcher(_name)))
for _name in ("cifar10", "cifar100", "clothing1m"):
    register_augmentation(_name, getattr(datasets, _name))
LABEL_READERS[".pt"] = lambda path, name: labels_in(path, read_torch(path), name)  # as CIFAR-10N's and CIFAR-100N's
WEIGHTS_READERS |= {".pt": read_weights, ".pth": read_weights}
