"""Data sets given as lists of image files: lines "path label", WebVision, Clothing1M.

Absolute paths and ``..`` are allowed. Labels count from 0, or are names. Blank lines and lines that start with # are ignored.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from noiseproof.classes import class_names
from noiseproof.data.dataset import Dataset
from noiseproof.data.examples import DataError, ImageFiles
from noiseproof.data.images import class_files
from noiseproof.data.list_lines import PATH_WORDS, Line, not_empty, read_lists, read_numbered, text_lines
from noiseproof.io.files import checksum, exists, is_dir, is_file
from noiseproof.io.text import excerpt

__all__ = ["imagenet_beside", "listed_files", "load_clothing1m", "load_list", "load_webvision"]

GOOGLE = "google"
ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG)
LONG = 500  # characters of a path that an error repeats
FIRST_OF_IMAGENET = ("n01440764", "0")  # the folder of ImageNet's first class, by synset or by number
KeyList = Literal["noisy_train", "clean_train", "clean_val", "clean_test"]


def load_list(
    path: str | Path,
    root: str | Path | None = None,
    *,
    test: str | Path | None = None,
    name: str | None = None,
    classes: str | Path | Sequence[str] | None = None,
    check_files: bool = True,
) -> Dataset:
    """A data set from a list of lines "path label", and a second list for its test split.

    The label is the last field, after a space, a tab or a comma: paths may contain all three. A first line that names the
    columns, such as ``path,label`` (``PATH_WORDS``, ``LABEL_WORDS``), is a header: its separator and its columns are those of
    all lines, others are ignored, and fields may be quoted as in any CSV file. Relative paths start at ``root``, by default
    the list's folder.

    Labels are numbers, or the names of the classes on every line; then the classes are in the order of their names. ``classes``
    is a file with one name per line, or the names, which says their order; without it classes of numbers are named by these.
    ``check_files`` looks for every file now (a million take seconds), not when a loader needs it. ``sources`` has the SHA-256
    of the lists and, of files that were looked for, one of their sizes, but not of the pixels: a list beside other images is
    other data.
    """
    path = Path(path)
    read = [path] if test is None else [path, Path(test)]
    sources = [*read]
    if isinstance(classes, str | Path):
        sources.append(Path(classes))
        classes = [text for _, text in text_lines(Path(classes))]
    listings, names = read_lists(read, None if classes is None else tuple(classes))
    splits = [_files(at, lines, at.parent if root is None else Path(root), check_files) for at, lines in listings.items()]
    known = _sources(sources) | ({"sizes of the images": _digest_of_sizes(splits)} if check_files else {})
    return Dataset(name or path.stem, splits[0], splits[-1] if test is not None else None, names, known)


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
    images = _place(folder, ("", "train", "google_resized_256"), GOOGLE)
    train = _files(train_list, _read_first(train_list, classes), images, check_files)
    place = next((p for p in ("val_images_256", "val_images", "val") if is_dir(folder / p)), "val_images_256")
    test = _files(test_list, _read_first(test_list, classes), folder / place, check_files)
    sources = _sources([train_list, info / "synsets.txt", test_list])
    if imagenet is None:
        return Dataset("webvision", train, test, names, sources)
    other, more = _ilsvrc12(Path(imagenet), synsets, check_files)
    return Dataset("webvision", train, test, names, sources | more, {"ilsvrc12": other})


def imagenet_beside(folder: Path) -> Path | None:
    """ImageNet's validation images, if they are in or next to WebVision's folder, with one sub-folder per class."""
    places = (place / name for place in (folder, folder.parent) for name in ("ilsvrc12", "imagenet", "ILSVRC2012"))
    firsts = [Path(inside, name) for inside in ("val", "") for name in FIRST_OF_IMAGENET]
    return next((place for place in places if any(is_dir(place / first) for first in firsts)), None)


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
    prefix = "images/" if not is_dir(folder / "images") and is_dir(folder / "0") else ""
    splits, labels = [], {}
    for keys in (train, test):
        values = notes / f"{keys.split('_')[0]}_label_kv.txt"
        if values not in labels:
            labels[values] = {line.path: line.label for line in read_numbered(values, len(names))}
        listed = notes / f"{keys}_key_list.txt"
        lines = _read_keys(listed, labels[values], values)
        lines = [line._replace(path=line.path.removeprefix(prefix)) for line in lines]
        splits.append(_files(listed, lines, folder, check_files))
        sources |= _sources([listed, values])
    return Dataset("clothing1m", splits[0], splits[1], names, sources)


def _read_keys(path: Path, labels: dict[str, int], source: Path) -> list[Line]:
    """A list of paths, with their labels from a second file."""
    found = []
    for number, key in text_lines(path):
        if key not in labels:
            raise DataError(f"{path}:{number}: {excerpt(key, LONG)!r} has no label in {source.name}")
        found.append(Line(key, labels[key], number))
    return not_empty(found, path)


def _read_first(path: Path, classes: int) -> list[Line]:
    """The lines of a list of ImageNet's classes whose label is below ``classes``."""
    kept = [line for line in read_numbered(path, 1000) if line.label < classes]
    return not_empty(kept, path, f" of the first {classes} classes")


def listed_files(source: Path, lines: list[Line]) -> ImageFiles:
    """The files that the lines of a list name, which start in its folder and must be there."""
    return _files(source, not_empty(lines, source), source.parent, check=True)


def _files(source: Path, lines: list[Line], root: Path, check: bool) -> ImageFiles:
    paths = [os.path.join(root, line.path) for line in lines]
    if check:
        _check_files(source, lines, paths)
    return ImageFiles(tuple(paths), np.array([line.label for line in lines], np.int64))


def _check_files(source: Path, lines: list[Line], paths: list[str]) -> None:
    """Each folder is listed once: looking for a million files one by one takes minutes on a file server."""
    folders: dict[str, set[str]] = {}
    listed: dict[tuple[int, int], set[str]] = {}  # one folder has any number of names: a, ./a, ././a
    missing = []
    for k, path in enumerate(paths):
        folder, name = os.path.split(path)
        if folder not in folders:
            try:
                found = os.stat(folder)
                if (place := (found.st_dev, found.st_ino)) not in listed:
                    with os.scandir(folder) as entries:
                        listed[place] = {entry.name for entry in entries if entry.is_file()}
                folders[folder] = listed[place]
            except OSError as error:
                if error.errno not in ABSENT:
                    raise
                folders[folder] = set()
        if name not in folders[folder]:
            missing.append(k)
    if missing:
        first, others = lines[missing[0]], f" ({len(missing)} of {len(paths)} are missing)" if len(missing) > 1 else ""
        way = "correct the list or the folder (in Python, check_files=False leaves it to the loader)"
        if first.path.lower() in PATH_WORDS:
            way = "a header names the columns path and label"
        raise FileNotFoundError(f"{source}:{first.number}: no file {paths[missing[0]][:LONG]}{others}; {way}")


def _sources(paths: Sequence[Path]) -> dict[str, str]:
    """SHA-256 by name, or by path where two files have one name."""
    names = [path.name for path in paths]
    return {path.name if names.count(path.name) == 1 else str(path): checksum(path) for path in paths}


def _digest_of_sizes(splits: Sequence[ImageFiles]) -> str:
    digest = hashlib.sha256()
    for files in splits:
        for path in files.paths:
            digest.update(f"{os.stat(path).st_size}\n".encode())
    return digest.hexdigest()


def _place(folder: Path, places: Sequence[str], witness: str) -> Path:
    """The first of some folders that holds a file or folder."""
    for place in places:
        if exists(folder / place / witness):
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
    if is_file(folder):
        lines = _read_first(folder, len(synsets))
        inside = "val" if is_file(folder.parent / "val" / lines[0].path) else ""
        return _files(folder, lines, folder.parent / inside, check_files), _sources([folder])
    for place in (folder / "val", folder):
        for names in (synsets, [str(k) for k in range(len(synsets))]):
            if is_dir(place / names[0]):
                digest = hashlib.sha256()
                files = class_files(place, {name: k for k, name in enumerate(names)}, digest.update, root=folder)
                return files, {folder.resolve().name: digest.hexdigest()}
    raise FileNotFoundError(f"{folder}: no folder {synsets[0]} or 0 there or in its 'val'; a list file will do as well")


def _clothing_names(path: Path) -> tuple[tuple[str, ...], dict[str, str]]:
    known = class_names("clothing1m")
    if not is_file(path):
        return known, {}
    names = tuple(text for _, text in text_lines(path))
    if len(names) != len(known):
        raise DataError(f"{path}: {len(known)} names expected, found {len(names)}")
    return names, {path.name: checksum(path)}
