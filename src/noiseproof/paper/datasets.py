"""The data sets of the experiments in their official layouts: CIFAR-10 and CIFAR-100, binary and Python, WebVision, Clothing1M;
and the augmentations that go with them, by the name of their data set.

No code in a file is run: see :mod:`noiseproof.io` for how the pickles of CIFAR's Python version are read.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any, Literal, Unpack
from urllib.parse import urljoin, urlsplit

import numpy as np
from numpy.typing import NDArray

from noiseproof.data.augment import Augment, Normalize, Output, Pipeline, evaluation
from noiseproof.data.dataset import Dataset, ImageFiles, Split
from noiseproof.data.images import class_files
from noiseproof.data.lists import Line, by_number, image_files, last_field, not_empty, text_lines
from noiseproof.data.operations import HorizontalFlip, RandomCrop, Resize, Size
from noiseproof.data.registry import Progress
from noiseproof.io.files import DataError, checksum, checksums, locked
from noiseproof.io.text import excerpt
from noiseproof.paper.pickles import read_pickle
from noiseproof.paper.rotation import Rotation

CIFAR10 = Normalize((0.49139968, 0.48215827, 0.44653124), (0.24703233, 0.24348505, 0.26158768))
CIFAR100 = Normalize((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762))
CLOTHING1M = Normalize((0.6959, 0.6537, 0.6371), (0.3113, 0.3192, 0.3214))
CHECKSUMS = {
    "cifar-10-batches-bin": {
        "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
        "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
        "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
        "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
        "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
        "test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
    },
    "cifar-10-batches-py": {
        "data_batch_1": "c99cafc152244af753f735de768cd75f",
        "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
        "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
        "data_batch_4": "634d18415352ddfa80567beed471001a",
        "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
        "test_batch": "40351d587109b95175f43aff81a1287e",
    },
    "cifar-100-binary": {
        "train.bin": "e207cd2e05b73b1393c74c7f5e7bea451d63e08e",
        "test.bin": "8fb6623e830365ff53cf14adec797474f5478006",
    },
    "cifar-100-python": {"train": "16019d7e3df5f24257cddd939b257f8d", "test": "f0ef6b0ae62326f3e7ffdfab6717acfc"},
}
"""As published, MD5 or SHA-1: by folder, then by file, the test split last."""
CIFAR_PIXELS = 32 * 32 * 3
FIRST_IMAGENET_FOLDERS = ("n01440764", "0")  # of the first class, by synset or by number
MAX_PATH_EXCERPT = 500  # characters of a path that an error repeats
KeyList = Literal["noisy_train", "clean_train", "clean_val", "clean_test"]
Records = tuple[NDArray[np.uint8], NDArray[np.int64]]
Reader = Callable[[Path, bytes], Records]


def class_facts(dataset: str) -> dict[str, Any]:
    """What is known of the classes of a data set: names and, of CIFAR-100, super-classes."""
    text = resources.files("noiseproof.paper").joinpath("classes.json").read_text(encoding="utf-8")
    facts: dict[str, Any] = json.loads(text)[dataset]
    return facts


def class_names(dataset: str) -> tuple[str, ...]:
    """The names of the classes, in the order of the labels."""
    return tuple(class_facts(dataset)["classes"])


def load_cifar10(folder: str | Path, *, check: bool = True) -> Dataset:
    """CIFAR-10 from its folder: ``cifar-10-batches-bin``, ``cifar-10-batches-py``, or one that holds either.

    ``check=False`` skips the published checksums, for re-packed copies and subsets; sizes and ranges are checked all the same.
    """
    binary, python = partial(_binary, label_bytes=1, classes=10), partial(_python, key="labels", classes=10)
    return _cifar("cifar10", Path(folder), {"cifar-10-batches-bin": binary, "cifar-10-batches-py": python}, check)


def load_cifar100(folder: str | Path, *, check: bool = True) -> Dataset:
    """CIFAR-100 with its fine labels, from ``cifar-100-binary``, ``cifar-100-python``, or a folder that holds either."""
    binary, python = partial(_binary, label_bytes=2, classes=100), partial(_python, key="fine_labels", classes=100)
    return _cifar("cifar100", Path(folder), {"cifar-100-binary": binary, "cifar-100-python": python}, check)


def load_webvision(
    folder: str | Path, *, classes: int = 50, imagenet: str | Path | None = None, check_files: bool = True
) -> Dataset:
    """The first ``classes`` classes of WebVision 1.0's Google images; 50 make the mini WebVision of the experiments.

    ``folder`` has ``info/train_filelist_google.txt``, ``info/val_filelist.txt`` and ``info/synsets.txt`` as published (the
    three may be in the folder itself), the training images ``google/q0001/...`` there or in ``train``, and the validation
    images in ``val_images_256``, ``val_images`` or ``val``.

    With ``imagenet``, ImageNet's validation images of the same classes are there as well, as ``other_tests["ilsvrc12"]``. It is
    a folder with one sub-folder per class, called by synset (n01440764) or by number, itself or in its ``val``; or a list of
    lines "path label" whose labels follow the sorted synsets, which is the order of WebVision's classes too, its paths
    starting in the list's folder or the ``val`` there.
    """
    folder = Path(folder)
    if not 1 <= classes <= 1000:
        raise ValueError(f"classes must be in [1, 1000], got {classes}")
    info = _place(folder, ("info", ""), "train_filelist_google.txt")
    synsets, names = _synsets(info / "synsets.txt", classes)
    train_list, test_list = info / "train_filelist_google.txt", info / "val_filelist.txt"
    images = _place(folder, ("", "train", "google_resized_256"), "google")
    train = image_files(train_list, _read_first(train_list, classes), images, check_files)
    place = next((p for p in ("val_images_256", "val_images", "val") if (folder / p).is_dir()), "val_images_256")
    test = image_files(test_list, _read_first(test_list, classes), folder / place, check_files)
    sources = checksums([train_list, info / "synsets.txt", test_list])
    if imagenet is None:
        return Dataset("webvision", train, test, names, sources)
    other, more = _ilsvrc12(Path(imagenet), synsets, check_files)
    return Dataset("webvision", train, test, names, sources | more, {"ilsvrc12": other})


def imagenet_beside(folder: Path) -> Path | None:
    """ImageNet's validation images, if they are in or next to WebVision's folder, with one sub-folder per class."""
    places = (place / name for place in (folder, folder.parent) for name in ("ilsvrc12", "imagenet", "ILSVRC2012"))
    firsts = [Path(inside, name) for inside in ("val", "") for name in FIRST_IMAGENET_FOLDERS]
    return next((place for place in places if any((place / first).is_dir() for first in firsts)), None)


def load_clothing1m(
    folder: str | Path, *, train: KeyList = "noisy_train", test: KeyList = "clean_test", check_files: bool = True
) -> Dataset:
    """Clothing1M: a million images with noisy labels for training, and the clean test images.

    ``folder`` has the key lists (``noisy_train_key_list.txt``, ...) and the labels (``noisy_label_kv.txt``,
    ``clean_label_kv.txt``), itself or in ``annotations``, and the images in ``images``, or their folders ``0`` to ``9``
    directly. ``train`` and ``test`` name key lists: also ``clean_train`` and ``clean_val``. The classes are called as in
    ``category_names_eng.txt`` where it is there.
    """
    folder = Path(folder)
    notes = _place(folder, ("", "annotations"), "noisy_train_key_list.txt")
    names, sources = _clothing_names(notes / "category_names_eng.txt")
    # The keys start with images/, a folder that some copies lack.
    prefix = "images/" if not (folder / "images").is_dir() and (folder / "0").is_dir() else ""
    splits, labels = [], {}
    for keys in (train, test):
        values = notes / f"{keys.split('_')[0]}_label_kv.txt"
        if values not in labels:
            labels[values] = {line.path: line.label for line in _read_numbered(values, len(names))}
        listed = notes / f"{keys}_key_list.txt"
        lines = _read_keys(listed, labels[values], values)
        lines = [line._replace(path=line.path.removeprefix(prefix)) for line in lines]
        splits.append(image_files(listed, lines, folder, check_files))
        sources |= checksums([listed, values])
    return Dataset("clothing1m", splits[0], splits[1], names, sources)


def _cifar(name: str, folder: Path, readers: dict[str, Reader], check: bool) -> Dataset:
    """From the folder itself or one inside it; a layout is recognised by the file of its test split."""
    tests = {layout: [*CHECKSUMS[layout]][-1] for layout in readers}
    for layout, test in tests.items():
        for place in (folder, folder / layout):
            if (place / test).is_file():
                return _read_cifar(name, place, CHECKSUMS[layout], readers[layout], check)
    raise FileNotFoundError(f"{folder}: no {' or '.join(tests)} there (looked for {', '.join(tests.values())})")


def _read_cifar(name: str, folder: Path, sums: dict[str, str], read: Reader, check: bool) -> Dataset:
    parts, sources = [], {}
    for file, expected in sums.items():
        path = folder / file
        if not path.is_file():
            raise FileNotFoundError(f"{path}: missing; the folder is incomplete")
        raw = path.read_bytes()
        if check:
            digest = (hashlib.md5 if len(expected) == 32 else hashlib.sha1)(raw, usedforsecurity=False).hexdigest()
            if digest != expected:
                raise DataError(f"{path}: checksum {expected} expected, found {digest}; download it again, or skip the check")
        parts.append(read(path, raw))
        sources[file] = hashlib.sha256(raw).hexdigest()
    (x_test, y_test), train = parts[-1], parts[:-1]
    x, y = np.concatenate([images for images, _ in train]), np.concatenate([labels for _, labels in train])
    return Dataset(name, Split(x, y), Split(x_test, y_test), class_names(name), sources)


def _binary(path: Path, raw: bytes, *, label_bytes: int, classes: int) -> Records:
    record = label_bytes + CIFAR_PIXELS
    if not raw or len(raw) % record:
        raise DataError(f"{path}: {len(raw)} bytes are not a whole number of records of {record}; is it truncated?")
    rows = np.frombuffer(raw, np.uint8).reshape(-1, record)
    labels = _class_labels(path, rows[:, label_bytes - 1], classes)
    return _as_images(rows[:, label_bytes:]), labels


def _python(path: Path, raw: bytes, *, key: str, classes: int) -> Records:
    try:
        content = read_pickle(raw)
    except ValueError as error:
        raise DataError(f"{path}: {error}") from error
    items = content.items() if isinstance(content, dict) else ()
    found = {name.decode("latin-1") if isinstance(name, bytes) else name: value for name, value in items}
    if "data" not in found or key not in found:
        holds = ", ".join(map(excerpt, [*found][:10])) or type(content).__name__
        raise DataError(f"{path}: should hold 'data' and {key!r}, found {holds}")
    pixels, labels = found["data"], found[key]
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.ndim != 2 or pixels.shape[1] != CIFAR_PIXELS:
        kind = f"{pixels.dtype} of shape {pixels.shape}" if isinstance(pixels, np.ndarray) else type(pixels).__name__
        raise DataError(f"{path}: images should be bytes of shape [N, {CIFAR_PIXELS}], found {kind}")
    if isinstance(labels, list) and all(type(label) is int and abs(label) < 2**63 for label in labels):
        labels = np.array(labels, np.int64)
    if not isinstance(labels, np.ndarray) or labels.shape != (len(pixels),) or labels.dtype.kind not in "iu":
        kind = f"labels of shape {labels.shape}" if isinstance(labels, np.ndarray) else "other than numbers for labels"
        raise DataError(f"{path}: {len(pixels)} images but {kind}")
    if not len(pixels):
        raise DataError(f"{path}: there are no images in it")
    return _as_images(pixels), _class_labels(path, labels, classes)


def _class_labels(path: Path, labels: NDArray[Any], classes: int) -> NDArray[np.int64]:
    if labels.min() < 0 or labels.max() >= classes:
        wrong = labels.min() if labels.min() < 0 else labels.max()
        raise DataError(f"{path}: labels must be in [0, {classes - 1}], got {wrong}")
    return labels.astype(np.int64)


def _as_images(rows: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return np.ascontiguousarray(rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))


def _read_numbered(path: Path, classes: int) -> list[Line[int]]:
    """The lines "path label" of a list without a header, with labels below ``classes``."""
    return by_number(path, [last_field(path, number, text) for number, text in text_lines(path)], classes)


def _read_keys(path: Path, labels: dict[str, int], source: Path) -> list[Line[int]]:
    """A list of paths, with their labels from a second file."""
    found = []
    for number, key in text_lines(path):
        if key not in labels:
            raise DataError(f"{path}:{number}: {excerpt(key, MAX_PATH_EXCERPT)!r} has no label in {source.name}")
        found.append(Line(key, labels[key], number))
    return not_empty(found, path)


def _read_first(path: Path, classes: int) -> list[Line[int]]:
    """The lines of a list of ImageNet's classes whose label is below ``classes``."""
    kept = [line for line in _read_numbered(path, 1000) if line.label < classes]
    return not_empty(kept, path, f" of the first {classes} classes")


def _place(folder: Path, places: Sequence[str], witness: str) -> Path:
    """The first of some folders that holds a file or folder."""
    for place in places:
        if (folder / place / witness).exists():
            return folder / place
    looked = " or ".join(str(folder / place) for place in places)
    raise FileNotFoundError(f"{looked}: no {witness} there")


def _synsets(path: Path, classes: int) -> tuple[list[str], tuple[str, ...]]:
    """The synsets of the first classes and the first word of each, with the synset where two share a word."""
    rows = [text.partition(" ") for _, text in text_lines(path)][:classes]
    if len(rows) < classes:
        raise DataError(f"{path}: {classes} classes wanted, {len(rows)} listed")
    synsets = [synset for synset, _, _ in rows]
    words = [rest.split(",")[0].strip() or synset for synset, _, rest in rows]
    names = (word if words.count(word) == 1 else f"{word} ({synset})" for word, synset in zip(words, synsets, strict=True))
    return synsets, tuple(names)


def _ilsvrc12(folder: Path, synsets: list[str], check_files: bool) -> tuple[ImageFiles, dict[str, str]]:
    """ImageNet's validation images of ``synsets``, from a list or a folder with one sub-folder per class, and the checksum."""
    if folder.is_file():
        lines = _read_first(folder, len(synsets))
        inside = "val" if (folder.parent / "val" / lines[0].path).is_file() else ""
        return image_files(folder, lines, folder.parent / inside, check_files), checksums([folder])
    for place in (folder / "val", folder):
        for names in (synsets, [str(k) for k in range(len(synsets))]):
            if (place / names[0]).is_dir():
                digest = hashlib.sha256()
                files = class_files(place, {name: k for k, name in enumerate(names)}, digest.update, root=folder)
                return files, {folder.resolve().name: digest.hexdigest()}
    raise FileNotFoundError(f"{folder}: no folder {synsets[0]} or 0 there or in its 'val'; a list file will do as well")


def _clothing_names(path: Path) -> tuple[tuple[str, ...], dict[str, str]]:
    known = class_names("clothing1m")
    if not path.is_file():
        return known, {}
    names = tuple(text for _, text in text_lines(path))
    if len(names) != len(known):
        raise DataError(f"{path}: {len(known)} names expected, found {len(names)}")
    return names, {path.name: checksum(path)}


def cifar10_augment(**output: Unpack[Output]) -> Augment:
    """Crop with padding 4, flip."""
    return Augment((RandomCrop(padding=4), HorizontalFlip()), *CIFAR10, **output)


def cifar100_augment(**output: Unpack[Output]) -> Augment:
    """Crop with padding 4, flip, then turn by up to 20 degrees, which the published code does and its text omits."""
    return Augment((RandomCrop(padding=4), HorizontalFlip(), Rotation(degrees=20)), *CIFAR100, **output)


def clothing1m_augment(**output: Unpack[Output]) -> Augment:
    """A crop of 224 and a flip, of images already resized to 256 x 256."""
    return Augment((RandomCrop(padding=0, size=224), HorizontalFlip()), *CLOTHING1M, **output)


def cifar10(*, in_files: bool, size: Size | None, output: Output) -> Pipeline:
    _check_in_memory("cifar10", in_files)
    return Pipeline(cifar10_augment(**output), evaluation(*CIFAR10, **output))


def cifar100(*, in_files: bool, size: Size | None, output: Output) -> Pipeline:
    _check_in_memory("cifar100", in_files)
    return Pipeline(cifar100_augment(**output), evaluation(*CIFAR100, **output))


def clothing1m(*, in_files: bool, size: Size | None, output: Output) -> Pipeline:
    train, test = clothing1m_augment(**output), evaluation(*CLOTHING1M, resize=256, **output)
    if not in_files:
        return Pipeline(train, test)
    if size is not None:
        raise ValueError("augment 'clothing1m' crops to 224x224; with size=none, or use another augment with your size")
    return Pipeline(train, test, Resize(256, 256), Resize(256, 256))


def _check_in_memory(name: str, in_files: bool) -> None:
    if in_files:
        way = "for image files use webvision, clothing1m or none"
        raise ValueError(f"augment {name!r} is for images of 32x32 in memory; {way}")


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
    return path.exists() and checksum(path, archive=True) == sha256


def _check_content(folder: Path, holds: Mapping[str, str], way: str) -> None:
    for name, expected in holds.items():
        algorithm = {32: "md5", 40: "sha1", 64: "sha256"}[len(expected)]
        found = checksum(folder / name, algorithm, archive=True) if (folder / name).is_file() else "no such file"
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
    """Follow redirections to addresses, but from https to https alone."""
    from requests import PreparedRequest

    if not response.is_redirect:
        return
    target = response.headers.get("location", "")
    try:
        PreparedRequest().prepare_url(address := urljoin(response.url, target), None)
    except ValueError as error:
        raise _RefusedError(f"redirected to {excerpt(target)!r}, which is no address") from error
    if urlsplit(response.url).scheme == "https" and urlsplit(address).scheme != "https":
        raise _RefusedError(f"redirected to {excerpt(target)!r}, which is not https")


def _reason(url: str, error: Any) -> str:
    """Why a file did not come: the answer, or the innermost cause with a message of the system."""
    asked = getattr(error.request, "url", None) or url
    host, code = urlsplit(asked).netloc, getattr(error.response, "status_code", None)
    if code is not None:
        return f"{url} is gone ({code})" if code in (404, 410) else f"{host} answered {code} for {url}"
    reason, cause = "no answer in time" if "timed out" in str(error) else type(error).__name__, error
    while cause := cause.__cause__ or cause.__context__:
        reason = getattr(cause, "strerror", None) or reason
    where = host if host == urlsplit(url).netloc else f"{excerpt(asked)}, where it redirects"
    return f"could not download {url} from {where} ({reason})"


def _by_hand(source: DownloadSource, place: Path) -> str:
    missing = [file.url for file in source.files if not (place / file.name).exists()]
    what = "it" if len(missing) == 1 else "them"
    return (
        f"on another machine, download {' and '.join(missing)} by hand (described at {source.page}), "
        f"put {what} in {place}, then run the same command again"
    )
