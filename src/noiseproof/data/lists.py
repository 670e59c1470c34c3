"""Data sets given as lists of image files: lines "path label".

Absolute paths and ``..`` are allowed. Labels count from 0, or are names. Blank lines and lines that start with # are ignored.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from noiseproof.data.dataset import Dataset
from noiseproof.data.examples import ImageFiles
from noiseproof.data.list_lines import PATH_WORDS, Line, not_empty, read_lists, text_lines
from noiseproof.io.files import checksum

__all__ = ["checksums", "image_files", "listed_files", "load_list"]

ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG)
LONG = 500  # characters of a path that an error repeats


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
    splits = [image_files(at, lines, at.parent if root is None else Path(root), check_files) for at, lines in listings.items()]
    known = checksums(sources) | ({"sizes of the images": _digest_of_sizes(splits)} if check_files else {})
    return Dataset(name or path.stem, splits[0], splits[-1] if test is not None else None, names, known)


def listed_files(source: Path, lines: list[Line]) -> ImageFiles:
    """The files that the lines of a list name, which start in its folder and must be there."""
    return image_files(source, not_empty(lines, source), source.parent, check=True)


def image_files(source: Path, lines: list[Line], root: Path, check: bool) -> ImageFiles:
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


def checksums(paths: Sequence[Path]) -> dict[str, str]:
    """SHA-256 by name, or by path where two files have one name."""
    names = [path.name for path in paths]
    return {path.name if names.count(path.name) == 1 else str(path): checksum(path) for path in paths}


def _digest_of_sizes(splits: Sequence[ImageFiles]) -> str:
    digest = hashlib.sha256()
    for files in splits:
        for path in files.paths:
            digest.update(f"{os.stat(path).st_size}\n".encode())
    return digest.hexdigest()
