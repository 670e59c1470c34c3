"""Open a data set by name or path, and examples to predict."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from noiseproof.data.columns import IMAGE_EXTENSIONS, Kind
from noiseproof.data.dataset import (
    Dataset,
    Examples,
    ImageFiles,
    Split,
    as_split,
    from_arrays,
    load_digits,
    load_npz,
    npz_arrays,
)
from noiseproof.data.embeddings import EmbeddingCache, Modality, OnProgress, embed, load_encoder
from noiseproof.data.frames import BINARY_SUFFIXES, TABLE_SUFFIXES, is_frame, suffix_of
from noiseproof.data.images import class_files, load_image_folder
from noiseproof.data.lists import Line, header_of, image_files, load_list, not_empty, text_lines
from noiseproof.data.registry import NamedDataset, Progress, all_datasets, find_name, register_dataset
from noiseproof.data.table import column_to_embed, encoded_images, image_frame, labels_of, read_images, read_rows, read_table
from noiseproof.data.table_encoder import TableEncoder
from noiseproof.io.csv_files import LABEL_WORDS, PATH_WORDS, is_number, sniffed
from noiseproof.io.files import DataError, file_and_name
from noiseproof.io.text import did_you_mean, excerpt
from noiseproof.noise import CleanLabels, load_labels

TEXT_SUFFIXES = (".txt", ".csv", ".tsv")
READABLE = f"a table ({', '.join(TABLE_SUFFIXES)}), an .npz file, a list of images (.txt, .csv, .tsv)"


def data_root(given: str | Path | None = None) -> Path:
    """The folder that data sets are kept in.

    Args:
        given: The one that the user named.

    Returns:
        The given one, else $NOISEPROOF_DATA, else ~/.cache/noiseproof.

    >>> data_root("my/data").as_posix()
    'my/data'
    """
    if given is None:
        given = os.environ.get("NOISEPROOF_DATA") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "noiseproof")
    return Path(given).expanduser()


class DataOptions(TypedDict, total=False):
    """How a table is read: keyword arguments of :func:`open_dataset`, which explains them."""

    label: str | Sequence[Any] | None
    columns: str | Mapping[str, Kind] | None
    test: Any
    split_column: str | None
    drop_unlabelled: bool
    encoder: str | None


def open_dataset(
    source: Any,
    root: str | Path | None = None,
    *,
    label: str | Sequence[Any] | None = None,
    columns: str | Mapping[str, Kind] | None = None,
    test: Any = None,
    split_column: str | None = None,
    drop_unlabelled: bool = False,
    encoder: str | None = None,
    check: bool = True,
) -> Dataset:
    """Open data by name, by path or as an object in memory: the one reader behind all verbs.

    A name is looked for below :func:`data_root`; write ``./cifar10`` for a folder that is called like a name. A path is that of
    a table (.csv, .tsv, .parquet, .feather, .jsonl), an .npz file, a list of images, or a folder: idx files, a layout that a
    plug-in knows, or images in one folder per class. An object is a data frame, an array or a list of texts or of paths.

    The columns of a table become features by an encoder that is fitted on the training rows; ``table`` of the data set contains
    it, and says what each column was understood as.

    Args:
        source: A name, a path, a pandas or polars frame, an Arrow table, a Hugging Face ``Dataset``, a dict of columns, an
            array or tensor ``[N, D]``, images ``[N, H, W, C]`` in uint8, a list of texts or of image files. ``FILE#COLUMN``
            names the column of labels too.
        root: The folder of data sets that have a name.
        label: The column of labels, or the labels themselves; by default a column called ``label`` or the like, or the last.
        columns: Kinds of columns that are given instead of inferred: ``{"zip": "category"}`` or ``"zip=category,id=drop"``.
        test: The rows of a table to test on: another table with the same columns.
        split_column: Or the column that contains ``train`` or ``test``, or whether a row is tested on.
        drop_unlabelled: Leave out rows without a label, instead of an error.
        encoder: The name or folder of a sentence-transformers model for texts or of a transformers vision model for images, or
            ``module:function``. Its embeddings become features; they are cached.
        check: Whether to verify published checksums.

    Returns:
        The data set.

    Raises:
        FileNotFoundError: It is not there; the message says where it was looked for, and how to get it.
        ValueError: It is something else than a data set, or damaged.

    >>> open_dataset("digits")
    Dataset(digits: 10 classes, train 1297, test 500, inputs (64,))
    >>> open_dataset({"age": [31, None, 58], "plan": ["basic", "pro", "basic"], "churn": ["no", "yes", "no"]}, label="churn")
    Dataset(table: 2 classes, train 3, inputs (4,))
    """
    reading: dict[str, Any] = {"label": label, "columns": columns, "test": test, "split_column": split_column}
    reading |= {"drop_unlabelled": drop_unlabelled, "encoder": encoder}
    if isinstance(source, Dataset):
        return source
    if not isinstance(source, str | os.PathLike):
        return _open_object(source, reading)
    said = any(value is not None and value is not False for name, value in reading.items() if name != "encoder")
    if (table := find_table(str(source), said)) is None:
        found = _open_place(source, root, check, reading)
        return found if encoder is None else encoded_images(found, encoder)
    path, column = table
    return read_table(path, **{**reading, "label": column if label is None else label})


def _open_object(source: Any, reading: Mapping[str, Any]) -> Dataset:
    """Arrays of images and lists of image files as they are, or encoded, and everything else as a table."""
    label, encoder = reading["label"], reading["encoder"]
    values = None if is_frame(source) else getattr(source, "tolist", getattr(source, "to_list", None))
    if values is not None and np.ndim(source) == 1:
        source = values()  # a column of texts or of paths
    if isinstance(source, Mapping) and "train" in source and all(map(is_frame, source.values())):  # a DatasetDict
        return read_table(source["train"], **{**reading, "test": reading["test"] or source.get("test")})
    listed = isinstance(source, list | tuple) and bool(source)
    if listed and all(isinstance(one, os.PathLike) or Path(str(one)).suffix.lower() in IMAGE_EXTENSIONS for one in source):
        labels = labels_of(label, len(source))
        found = Dataset("images", ImageFiles(tuple(map(os.fspath, source)), labels.codes), None, labels.classes)
        return found if encoder is None else encoded_images(found, encoder)
    array = source.detach().cpu().numpy() if hasattr(source, "detach") else source
    if isinstance(array, np.ndarray) and array.ndim > 2:
        labels = labels_of(label, len(array))
        digest = hashlib.sha256(np.ascontiguousarray(array).data).hexdigest()
        found = from_arrays(array, labels.codes, classes=labels.classes, sources={"arrays": digest})
        return found if encoder is None else encoded_images(found, encoder)
    if label is None and ((hasattr(array, "ndim") and not is_frame(array)) or (listed and isinstance(array[0], str))):
        labels_of(label, len(array))  # which says how they are given
    return read_table(array, **reading)


def _open_place(
    name_or_path: str | os.PathLike[str], root: str | Path | None, check: bool, reading: Mapping[str, Any]
) -> Dataset:
    name, path = str(name_or_path), Path(name_or_path).expanduser()
    known = find_name(name)
    given = next((option for option, value in reading.items() if value and option != "encoder"), None)
    if given is not None and (known is not None or path.exists()):
        raise ValueError(f"{name}: no table, and {given.replace('_', '-')} is for tables of columns")
    if known is not None and known.read is not None:
        return known.read(find_dataset(name, root), check)
    if path.is_dir():
        return _open_folder(path, check)
    suffix = path.suffix.lower()
    if path.is_file() and suffix not in (".npz", *TEXT_SUFFIXES):
        raise ValueError(f"{path}: a data set is {READABLE} or a folder, got {path.suffix!r}")
    if path.is_file():
        return load_npz(path) if suffix == ".npz" else load_list(path)
    if len(path.parts) > 1 or path.suffix:
        raise FileNotFoundError(f"{path}: no such file or folder")
    names = [other for other, entry in all_datasets().items() if entry.read]
    hint = did_you_mean(name, names)
    raise FileNotFoundError(f"no data set {name!r}, and no file or folder of that name; {hint}the names are {', '.join(names)}")


def embed_data(
    source: Any,
    encoder: str,
    *,
    column: str | None = None,
    split: str | None = None,
    root: str | Path | None = None,
    cache: EmbeddingCache | None = None,
    on_progress: OnProgress | None = None,
) -> NDArray[np.float32]:
    """Embeddings of the texts or images in a place, as :func:`noiseproof.data.load_encoder`'s model makes them.

    They are computed in batches and cached by content and encoder: an interrupted call resumes.

    Args:
        source: A table with a column of texts or of images, a list of texts or of paths, an image, a folder or list of
            images, an .npz file, the name of a data set, or images ``[N, H, W, C]``. No labels are needed.
        encoder: The name or folder of a sentence-transformers model (texts) or of a transformers vision model (images), or
            ``module:function``.
        column: The column to embed, where a table has several of texts or images.
        split: ``train`` or ``test`` of a data set that has both; the first by default.
        root: The folder of data sets that have a name.
        cache: Where embeddings are kept; the default cache if None.
        on_progress: Called with the number of inputs done and of all.

    Returns:
        ``[N, D]``, a row for each row or image, in their order. A missing text is embedded as an empty one.

    Raises:
        DataError: If there are no texts or images, or the encoder returns something else than a finite vector for each.
        FileNotFoundError: If there is no such place.

    >>> embed_data("reviews.csv", "all-MiniLM-L6-v2", column="review").shape  # doctest: +SKIP
    (5000, 384)
    """
    values, modality = _texts_or_images(source, column, split, root)
    return embed(values, load_encoder(encoder, modality), modality, cache=cache, on_progress=on_progress)


def _texts_or_images(source: Any, column: str | None, split: str | None, root: str | Path | None) -> tuple[Any, Modality]:
    in_place = isinstance(source, str | os.PathLike)
    if not in_place and np.ndim(source) > 2:
        return np.asarray(source), "image"
    path = Path(str(source)).expanduser()
    if not in_place or (path.is_file() and suffix_of(path) in TABLE_SUFFIXES):
        return column_to_embed(source, column)
    if column is not None:
        raise DataError(f"{source}: no table, and column is for tables")
    if split is None and find_name(str(source)) is None:
        examples = open_unlabelled(source, (), None, root=root).examples
    else:
        splits = open_dataset(source, root).splits
        if (split or "train") not in splits:
            raise DataError(f"{source} has no split {split!r}; there are {', '.join(splits)}")
        examples = splits[split or "train"]
    if examples.in_memory and examples.kind != "images":
        raise DataError(f"{source}: features, no texts and no images")
    return (examples.inputs if examples.in_memory else examples.paths), "image"


def find_table(place: str, said: bool = False) -> tuple[Path, str | None] | None:
    """The file and the label column of FILE or FILE#COLUMN, if the file is a table; a text file may be ``said`` to be one."""
    path, column = file_and_name(place)
    if not path.is_file():
        return None
    suffix = suffix_of(path)
    text = suffix in TEXT_SUFFIXES and (said or column is not None or not is_list(path))
    return (path, column) if text or suffix in BINARY_SUFFIXES else None


def is_list(path: Path) -> bool:
    """Whether a text file is a list of images rather than a table of columns, by its first two rows."""
    try:
        first, second = [*sniffed(path).first[:2], []][:2]
    except DataError:
        return False
    words = [cell.strip().lower() for cell in first]
    headed = sum(word in PATH_WORDS for word in words) == sum(word in LABEL_WORDS for word in words) == 1
    if len(words) < 2 or (headed and len(words) == 2):
        return True
    if not any(Path(cell.strip()).suffix.lower() in IMAGE_EXTENSIONS for cell in (*first, *second)):
        return False
    return headed or 2 * sum(map(is_number, second[:-1])) < len(second) - 1


def find_dataset(name: str, root: str | Path | None = None) -> Path:
    """The folder of a named data set; FileNotFoundError says where it was looked for, and how to get it."""
    known, place = find_name(name) or all_datasets()[name], data_root(root)
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

    >>> fetch("digits")
    Traceback (most recent call last):
    noiseproof.data.dataset.DataError: digits cannot be fetched: it comes with scikit-learn, so there is nothing to fetch
    """
    found = find_name(name)
    if found is not None and found.fetch is not None:
        return found.fetch(data_root(root), progress)
    if found is not None:
        raise DataError(f"{name} cannot be fetched: {found.by_hand}")
    names = [other for other, known in all_datasets().items() if known.fetch]
    raise DataError(f"unknown data set {name!r}; {did_you_mean(name, names)}these can be fetched: {', '.join(names) or 'none'}")


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
    """What a plug-in recognises in a folder or where its data sets usually are below it, or a folder of images."""
    found = [
        (name, known, place)
        for name, known in all_datasets().items()
        for place in (folder, *(folder / inside for inside in known.folders))
        if known.read and known.is_in(place)
    ]
    own = [one for one in found if one[2] != folder or one[1].matches is None or one[1].matches(folder)]
    if len(names := sorted({name for name, _, _ in own})) > 1:
        raise ValueError(f"{folder}: holds {' and '.join(names)}; give the name, and this folder as --data (root=)")
    for _, known, place in own or found:
        if known.read is not None:
            dataset = known.read(place, check)
            return dataset if own else replace(dataset, name=folder.resolve().name)
    return load_image_folder(folder)


@dataclass(frozen=True)
class Unlabelled:
    """Examples whose own labels, of which there may be none, do not matter.

    Args:
        examples: The inputs.
        labels: Their labels as indices of the classes, if they have some.
        note: Why labels that are there are not used, or how columns differ from those of training.

    >>> from noiseproof.data import Split
    >>> Unlabelled(Split(np.zeros((1, 2), np.float32), np.zeros(1, np.int64), ("row 1",))).names
    ('row 1',)
    """

    examples: Examples
    labels: NDArray[np.int64] | None = None
    note: str = ""

    @property
    def names(self) -> tuple[str, ...] | None:
        """Of the examples: paths, or what a column of a table says."""
        return self.examples.paths


def open_unlabelled(
    source: Any,
    classes: Sequence[str],
    features: int | None,
    encoder: TableEncoder | None = None,
    *,
    label: str | None = None,
    root: str | Path | None = None,
) -> Unlabelled:
    """Examples for a network that was trained.

    A table has the columns of training, which are found by their names; others are ignored. For a network that was trained on
    an array it has as many columns of numbers, in the same order. Its labels, if there are some, are those of the column
    ``label``, or the one that FILE#COLUMN names. An .npz file has ``x``, and may have ``y``. Images are a file, a list of lines
    "path" or "path label", or a folder with images in it or in a sub-folder for each class. A name is that of a data set, whose
    test split is taken if it has one.

    Args:
        source: The file, the folder, the name, or what :func:`read_frame` reads.
        classes: Those of the network.
        features: How many features it reads; None if it reads images.
        encoder: Makes them of the columns of a table.
        label: What the column of labels was called in training; it may be missing.
        root: The folder of data sets that have a name.

    Returns:
        The examples, and their labels if there are some.

    Raises:
        DataError: The examples do not fit the network, or cannot be read.
        FileNotFoundError: There is no such file or folder.

    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(os.path.join(folder, "new.npz"), x=np.zeros((4, 3)))
    ...     print(len(open_unlabelled(os.path.join(folder, "new.npz"), ("a", "b"), 3).examples))
    4
    """
    if not isinstance(source, str | os.PathLike):
        return _rows(source, classes, features, encoder, label, None)
    path, column = file_and_name(str(source))
    suffix = suffix_of(path)
    images = encoder is not None and encoder.reads_images
    listed = images and path.is_file() and suffix in TEXT_SUFFIXES and is_list(path)
    table = suffix in BINARY_SUFFIXES or (suffix in TEXT_SUFFIXES and features is not None and not listed)
    if column is not None and not table:
        raise DataError(f"{source}: FILE#COLUMN says which column of a table of features has the labels; leave #{column} out")
    if path.is_file() and table:
        return _rows(path, classes, features, encoder, label, column)
    found = _examples(path, classes) if path.exists() else _named(source, classes, root)
    if encoder is None or not images or found.examples.kind == "features":
        return found
    inputs = encoder.transform(image_frame(found.examples, str(encoder.image_column)))
    return replace(found, examples=Split(inputs, found.examples.labels, found.names, scaled=True))


def _named(name: str | os.PathLike[str], classes: Sequence[str], root: str | Path | None) -> Unlabelled:
    known = find_name(str(name))
    if known is None or known.read is None:
        raise FileNotFoundError(f"{name}: no such file or folder")
    dataset = open_dataset(name, root)
    examples = dataset.train if dataset.test is None else dataset.test
    return Unlabelled(examples, examples.labels if dataset.classes == tuple(classes) else None)


def _examples(path: Path, classes: Sequence[str]) -> Unlabelled:
    """The examples in an .npz file, or images in a folder, a list or a file."""
    suffix = path.suffix.lower()
    if path.is_dir():
        return _folder(path, classes)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no regular file or folder")
    if suffix == ".npz":
        arrays = npz_arrays(path, ("x",), ("y",))
        x, y = arrays["x"], arrays.get("y")
        if y is None:
            return Unlabelled(as_split(x, np.zeros(x.shape[:1] or 1, np.int64), None, f"{path}, x"))
        split = as_split(x, y, len(classes), f"{path}, x and y")
        return Unlabelled(split, split.labels)
    if suffix in TEXT_SUFFIXES:
        return _list(path, classes)
    if suffix in IMAGE_EXTENSIONS:
        return Unlabelled(ImageFiles((os.fspath(path),), np.zeros(1, np.int64)))
    raise DataError(f"{path}: examples to predict are {READABLE}, a folder or an image, got {suffix!r}")


def _rows(
    source: Any, classes: Sequence[str], features: int | None, encoder: TableEncoder | None, label: str | None, said: str | None
) -> Unlabelled:
    """The rows of a table; ``said`` names the column of labels, which must then be there."""
    if features is None and (images := read_images(source, said or label)) is not None:
        examples, texts = images
    elif not features:
        what = "images" if features is None else "a number of features that it did not keep"
        raise DataError(f"{source}: a table, and the network was trained on {what}; an .npz file has arrays")
    else:
        examples, texts = read_rows(source, features, encoder, label, said)
    return Unlabelled(examples) if texts is None else Unlabelled(examples, *_indices(texts, classes))


def _folder(folder: Path, classes: Sequence[str]) -> Unlabelled:
    with os.scandir(folder) as entries:
        found = [entry for entry in entries if not entry.name.startswith(".")]
        folders = sorted(entry.name for entry in found if entry.is_dir())
        images = [entry for entry in found if not entry.is_dir() and Path(entry.name).suffix.lower() in IMAGE_EXTENSIONS]
    if folders and images:
        raise DataError(f"{folder}: has images and folders; give one of the folders, or move the images into one")
    if not folders and not images:
        raise DataError(f"{folder}: no images")
    if images:
        return Unlabelled(class_files(folder, {".": 0}, lambda _: None, root=folder))
    files = class_files(folder, {name: k for k, name in enumerate(folders)}, lambda _: None, root=folder)
    return Unlabelled(files, *_indices([folders[k] for k in files.labels], classes))


def _list(path: Path, classes: Sequence[str]) -> Unlabelled:
    lines = list(text_lines(path))
    column = bool(lines) and lines[0][1].lower() in PATH_WORDS
    if not lines or column or (header_of(lines[0][1]) is None and (path.parent / lines[0][1]).is_file()):
        listed = not_empty([Line(text, 0, number) for number, text in lines[column:]], path)
        return Unlabelled(image_files(path, listed, path.parent, check=True))
    dataset = load_list(path)
    return Unlabelled(dataset.train, *_indices([dataset.classes[k] for k in dataset.train.labels], classes))


def _indices(labels: Sequence[str], classes: Sequence[str]) -> tuple[NDArray[np.int64] | None, str]:
    """The labels as indices of the classes, by name or by number, or why there are none."""
    places = {name: k for k, name in reversed(list(enumerate(classes)))}
    numbers = {str(k): k for k in range(len(classes))}
    for known in (places, numbers):
        if all(label in known for label in labels):
            return np.array([known[label] for label in labels], np.int64), ""
    strange = next(label for label in labels if label not in places)
    if not strange:
        return None, "the labels are not used: there is not one in every row"
    return None, f"the labels are not used: {excerpt(strange)!r} is no class of the run"


def with_given_labels(dataset: Dataset, labels: str | None) -> Dataset:
    """The data set with the labels of a file, FILE or FILE#NAME, in place of its own.

    Args:
        dataset: Its training examples are those of the labels, in the same order.
        labels: The file, or None to keep the data's own labels.

    Returns:
        The data set with these labels.

    Raises:
        ValueError: There are more or fewer labels than examples, or one is of no class.
    """
    if labels is None:
        return dataset
    path, name = file_and_name(labels)
    given = load_labels(path, name)
    if len(given) != len(dataset.train):
        raise ValueError(f"{path}: {len(given)} labels for {len(dataset.train)} examples; is it the same split and order?")
    if given.max() >= len(dataset.classes):
        classes = f"[0, {len(dataset.classes) - 1}], the classes of the data"
        raise ValueError(f"{path}: labels must be in {classes}, got {given.max()}")
    return replace(dataset, train=dataset.train.with_labels(given))


def clean_labels(
    labels: str | Path | None = None, name: str | None = None, dataset: str | None = None, root: str | Path | None = None
) -> CleanLabels:
    """Labels to put noise on: those of a file, or of the training split of a data set.

    Args:
        labels: A file of labels.
        name: Which labels, if the file holds several.
        dataset: Or a data set, by name or path.
        root: The folder of data sets that have a name.

    Returns:
        The labels, and what is known of their classes and images.

    Raises:
        ValueError: Neither or both are given, or no labels can be read.
    """
    if name is not None and labels is None:
        raise ValueError(f"--name picks one of several labels in the file of --labels, got {name!r} without --labels")
    if (labels is None) == (dataset is None):
        raise ValueError("the clean labels come from --labels FILE or from --dataset NAME_OR_PATH: give one of the two")
    if labels is None:
        opened = open_dataset(str(dataset), root)
        images = opened.train.inputs if opened.train.in_memory else None
        return CleanLabels(opened.train.labels, str(dataset), len(opened.classes), images, opened.name)
    try:
        return CleanLabels.from_file(labels, name)
    except ValueError as error:
        if find_table(str(labels)) is None:
            raise
        raise ValueError(f"{error}; --dataset {shlex.quote(str(labels))} takes the labels of a table with features") from error


register_dataset(
    "digits",
    NamedDataset(lambda folder, check: load_digits(), by_hand="it comes with scikit-learn, so there is nothing to fetch"),
)
