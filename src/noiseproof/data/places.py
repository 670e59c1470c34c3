"""Where data sets are kept, and opening one by its name or path."""

from __future__ import annotations

import difflib
import os
import shlex
from pathlib import Path

from noiseproof.data.dataset import Dataset, load_npz
from noiseproof.data.images import load_image_folder
from noiseproof.data.known import IDX, NAMES, SOURCES, Named
from noiseproof.data.lists import load_list
from noiseproof.data.official import load_idx
from noiseproof.data.tables import is_table, load_table
from noiseproof.io.files import checksum, file_and_name, is_dir, is_file

__all__ = ["data_root", "find_dataset", "find_table", "open_dataset"]

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
    """A data set by its name (``NAMES``), looked for below :func:`data_root`, or by its path.

    A path is that of an .npz file, a list of images or a table of features (.txt, .csv, .tsv), or a folder: CIFAR's or idx
    files, WebVision's or Clothing1M's layout, or images in one folder per class. ``FILE#COLUMN`` says which column of a table
    has the labels. Names come first: write ``./cifar10`` for a folder of that name. ``check=False`` skips CIFAR's published
    checksums.
    """
    name = str(name_or_path)
    if name in NAMES:
        return NAMES[name].read(find_dataset(name, root), check)
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
    near = difflib.get_close_matches(name, NAMES, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise FileNotFoundError(f"no data set {name!r}, and no file or folder of that name; {hint}the names are {', '.join(NAMES)}")


def find_table(place: str) -> tuple[Path, str | None] | None:
    """The file and the label column that FILE or FILE#COLUMN names, if the file is a table of features."""
    path, column = file_and_name(place)
    named = path.suffix.lower() in LISTS and is_file(path)
    return (path, column) if named and (column is not None or is_table(path)) else None


def find_dataset(name: str, root: str | Path | None = None) -> Path:
    """The folder of a named data set; FileNotFoundError says where it was looked for, and how to get it."""
    known, place = NAMES[name], data_root(root)
    if not known.folders:  # it comes with a library
        return place
    looked = [*(place / folder for folder in known.folders), place]
    for folder in looked[:-1]:
        if _is_there(folder, known):
            return folder
    # idx files in the root itself are known by their checksum; others count as MNIST's.
    owner = (_published(place) or "mnist") if known.witnesses == IDX else name
    if _is_there(place, known) and owner == name:
        return place
    into = "" if root is None else f" --data {shlex.quote(str(root))}"
    ways = [f"'noiseproof data fetch {name}{into}' downloads it"] if name in SOURCES else []
    if _is_there(place, known):
        ways.insert(0, f"the idx files there are taken for {owner}'s; move them to {looked[0]} if they are {name}'s")
    ways.append("--data DIR or $NOISEPROOF_DATA says where it is")
    where = ", ".join(str(folder.relative_to(place)) for folder in looked[:-1])
    raise FileNotFoundError(f"{name} is not in {place} (looked there and in {where}); {'; '.join(ways)}")


def _is_there(folder: Path, known: Named) -> bool:
    return any(is_file(folder / witness) for witness in known.witnesses)


def _published(folder: Path) -> str | None:
    """Whose idx files a folder has, by the checksum of the training images; None if they are not as published."""
    images = folder / SOURCES["mnist"].files[0].name
    found = checksum(images, "md5") if is_file(images) else ""
    return next((name for name in ("mnist", "fashion-mnist") if SOURCES[name].files[0].md5 == found), None)


def _open_folder(folder: Path, check: bool) -> Dataset:
    if _is_there(folder, NAMES["mnist"]):
        return load_idx(folder, _published(folder) or folder.resolve().name)
    found = [
        (name, place)
        for name, known in NAMES.items()
        for place in (folder, *(folder / inside for inside in known.folders))
        if _is_there(place, known)
    ]
    names = sorted({name for name, _ in found})
    if len(names) > 1:
        raise ValueError(f"{folder}: holds {' and '.join(names)}; give the name, and this folder as --data (root=)")
    return NAMES[names[0]].read(found[0][1], check) if found else load_image_folder(folder)
