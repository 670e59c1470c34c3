"""Where data sets are kept, and opening one by its name or path."""

from __future__ import annotations

import contextlib
import difflib
import os
import shlex
from pathlib import Path

from noiseproof.data.dataset import Dataset, load_digits, load_npz
from noiseproof.data.examples import DataError
from noiseproof.data.idx import IDX_MARKERS, load_idx
from noiseproof.data.images import load_image_folder
from noiseproof.data.lists import load_list
from noiseproof.data.registry import NamedDataset, Progress, all_datasets, find_name, register_dataset
from noiseproof.data.tables import is_table, load_table
from noiseproof.io.files import file_and_name, is_dir, is_file

__all__ = ["data_root", "fetch", "find_dataset", "find_table", "list_datasets", "open_dataset"]

LISTS = (".txt", ".csv", ".tsv")


def data_root(given: str | Path | None = None) -> Path:
    """The folder that data sets are kept in: the given one, else $NOISEPROOF_DATA, else ~/.cache/noiseproof.

    >>> data_root("my/data").as_posix()
    'my/data'
    """
    if given is None:
        given = os.environ.get("NOISEPROOF_DATA") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "noiseproof")
    return Path(given).expanduser()


def open_dataset(name_or_path: str | Path, root: str | Path | None = None, *, check: bool = True) -> Dataset:
    """A data set by its name, looked for below :func:`data_root`, or by its path.

    A path is that of an .npz file, a list of images or a table of features (.txt, .csv, .tsv), or a folder: CIFAR's or idx
    files, WebVision's or Clothing1M's layout, or images in one folder per class. ``FILE#COLUMN`` says which column of a table
    has the labels. Names come first: write ``./cifar10`` for a folder of that name. ``check=False`` skips CIFAR's published
    checksums.
    """
    name = str(name_or_path)
    known = find_name(name)
    if known is not None and known.read is not None:
        return known.read(find_dataset(name, root), check)
    path = Path(name_or_path).expanduser()
    if is_dir(path):
        return _open_folder(path, check)
    if (table := find_table(name)) is not None:
        return load_table(*table)
    suffix = path.suffix.lower()
    if is_file(path) and suffix not in (".npz", *LISTS):
        raise ValueError(
            f"{path}: a data set is an .npz file, a list or a table ({', '.join(LISTS)}) or a folder, got {path.suffix!r}"
        )
    if is_file(path):
        return load_npz(path) if suffix == ".npz" else load_list(path)
    if len(path.parts) > 1 or path.suffix:
        raise FileNotFoundError(f"{path}: no such file or folder")
    names = [other for other, entry in all_datasets().items() if entry.read]
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise FileNotFoundError(f"no data set {name!r}, and no file or folder of that name; {hint}the names are {', '.join(names)}")


def find_table(place: str) -> tuple[Path, str | None] | None:
    """The file and the label column that FILE or FILE#COLUMN names, if the file is a table of features."""
    path, column = file_and_name(place)
    named = path.suffix.lower() in LISTS and is_file(path)
    return (path, column) if named and (column is not None or is_table(path)) else None


def find_dataset(name: str, root: str | Path | None = None) -> Path:
    """The folder of a named data set; FileNotFoundError says where it was looked for, and how to get it."""
    known, place = all_datasets()[name], data_root(root)
    if not known.folders:  # it comes with a library
        return place
    for folder in known.folders:
        if known.is_in(place / folder):
            return place / folder
    owner = _owner(name, place)
    if known.is_in(place) and owner == name:
        return place
    into = "" if root is None else f" --data {shlex.quote(str(root))}"
    ways = [f"'noiseproof data fetch {name}{into}' downloads it"] if known.fetch else []
    if known.is_in(place):
        ways.insert(
            0, f"the idx files there are taken for {owner}'s; move them to {place / known.folders[0]} if they are {name}'s"
        )
    ways.append("--data DIR or $NOISEPROOF_DATA says where it is")
    raise FileNotFoundError(f"{name} is not in {place} (looked there and in {', '.join(known.folders)}); {'; '.join(ways)}")


def fetch(name: str, root: str | Path | None = None, *, progress: Progress | None = None) -> Path:
    """Download a data set that has a name, verify it and unpack it.

    Args:
        name: One of those that ``noiseproof data list`` says to fetch.
        root: The folder of data sets; by default :func:`data_root`.
        progress: Called with a file's name, the bytes that have come, and the total if it is known.

    Returns:
        The data set's folder.

    Raises:
        DataError: It cannot be fetched, does not come, or is not what was published.
    """
    found = find_name(name)
    if found is not None and found.fetch is not None:
        return found.fetch(data_root(root), progress)
    if found is not None:
        raise DataError(f"{name} cannot be fetched: {found.by_hand}")
    names = [other for other, known in all_datasets().items() if known.fetch]
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise DataError(f"unknown data set {name!r}; {hint}these can be fetched: {', '.join(names) or 'none'}")


def list_datasets(root: str | Path | None = None) -> dict[str, tuple[NamedDataset, str | None]]:
    """The data sets that have a name, and where each is.

    Args:
        root: The folder of data sets; by default :func:`data_root`.

    Returns:
        By name, the data set and its place, None where it is not there.
    """
    found: dict[str, tuple[NamedDataset, str | None]] = {}
    for name, known in all_datasets().items():
        place = None
        if name == "digits":
            place = "comes with scikit-learn"
        elif known.folders:
            with contextlib.suppress(FileNotFoundError):
                place = str(find_dataset(name, root))
        found[name] = known, place
    return found


def _owner(name: str, place: Path) -> str:
    """Which of the data sets with the same markers is in a folder: the one that matches, else the first."""
    named = all_datasets()
    rivals = [other for other, known in named.items() if known.markers == named[name].markers]
    return next((other for other in rivals if (matches := named[other].matches) and matches(place)), rivals[0])


def _open_folder(folder: Path, check: bool) -> Dataset:
    if any(is_file(folder / marker) for marker in IDX_MARKERS):
        owner = next(
            (known for known in all_datasets().values() if known.read and known.matches and known.matches(folder)), None
        )
        return owner.read(folder, check) if owner and owner.read else load_idx(folder, folder.resolve().name)
    found = [
        (name, known.read, place)
        for name, known in all_datasets().items()
        for place in (folder, *(folder / inside for inside in known.folders))
        if known.read and known.is_in(place)
    ]
    names = sorted({name for name, _, _ in found})
    if len(names) > 1:
        raise ValueError(f"{folder}: holds {' and '.join(names)}; give the name, and this folder as --data (root=)")
    if not found:
        return load_image_folder(folder)
    _, read, place = found[0]
    return read(place, check)


register_dataset(
    "digits",
    NamedDataset(lambda folder, check: load_digits(), by_hand="it comes with scikit-learn, so there is nothing to fetch"),
)
