"""Labels in files: published ones, our own noisy ones with a manifest that can be verified, and class probabilities."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from noiseproof.io.arrays import NpzFile, read_npy, read_table
from noiseproof.io.files import ReadError, checksum, file_and_name, label_hash, save_array, write_whole, wrong_suffix
from noiseproof.io.text import and_more, cell, csv_rows, excerpt, read_by, read_json
from noiseproof.noise.instance import INSTANCE, image_hash, instance_dependent
from noiseproof.noise.matrix import MATRIX_NOISES, RULES, LabelNoise, NoisyLabels, as_labels, rows_of_numbers
from noiseproof.plugins import load_plugins

MANIFEST, LABELS_FILE = "manifest.json", "labels.npy"
MANIFEST_FORMAT = 1
MANIFEST_FIELDS: dict[str, tuple[type, ...]] = {
    "format": (int,),
    "noise": (str,),
    "seed": (int, type(None)),
    "rule": (str, type(None)),
    "examples": (int,),
    "classes": (int,),
    "labels_file": (str,),
    "labels_hash": (str,),
    "source_hash": (str,),
    "matrix_asked": (list,),
    "matrix_realised": (list,),
    "rate_realised": (int, float),
}
"""What a manifest must have, and the types of each in JSON."""
MAX_NAMES_LISTED = 20


def load_labels(path: str | Path, name: str | None = None) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Read labels from a file.

    CIFAR-10N's and CIFAR-100N's ``.pt`` files (dictionaries of arrays) and the published instance-dependent label files load as
    they are. Nothing in the file is executed, and it takes no more memory than its size allows: see :mod:`noiseproof.io`.

    Args:
        path: A ``.npy``, ``.npz``, ``.json``, ``.pt`` or ``.csv`` file.
        name: Which labels, where the file contains several.

    Returns:
        The labels ``[N]`` as int64.

    Raises:
        ValueError: If the file contains no vector of labels.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/labels.npy", [2, 0, 1])
    ...     load_labels(f"{folder}/labels.npy").tolist()
    [2, 0, 1]
    """
    path = Path(path)
    if path.suffix not in LABEL_READERS:
        load_plugins()
    if path.suffix not in LABEL_READERS:
        raise wrong_suffix(path, "labels are", LABEL_READERS)
    try:
        array = _as_array(path, LABEL_READERS[path.suffix](path, name))
    except ReadError as error:
        raise ValueError(f"{path}: no labels could be read: {error.fault}") from error
    if not array.size:
        raise ValueError(f"{path}: there are no labels in it, its shape is {array.shape}")
    if array.ndim == 2 and 1 in array.shape:
        array = array.reshape(-1)
    if array.ndim != 1 or array.dtype.kind not in "iuf" or (array.dtype.kind == "f" and not (array == np.rint(array)).all()):
        raise ValueError(f"{path}: labels must be a vector of whole numbers, got {array.dtype} of shape {array.shape}")
    if array.min() < 0:
        raise ValueError(f"{path}: labels must not be negative, got {array.min()}")
    if array.max().item() >= 2**63:
        raise ValueError(f"{path}: labels must be below 2**63, got {array.max()}")
    return array.astype(np.int64)


def read_noisy_labels(path: str | Path, clean: ArrayLike, classes: int, name: str | None = None) -> NoisyLabels:
    """Read noisy labels from a file and compare them with the clean ones of the same examples.

    Args:
        path: The file, see :func:`load_labels`.
        clean: Clean labels ``[N]``.
        classes: Number of classes.
        name: Which labels, where the file contains several.

    Returns:
        The labels with mask, realised matrix and rate, and hash.

    Raises:
        ValueError: If the file does not contain one label for each example.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/labels.npy", [0, 1, 1, 1])
    ...     read_noisy_labels(f"{folder}/labels.npy", clean=[0, 0, 1, 1], classes=2).rate
    0.25
    """
    labels = load_labels(path, name)
    if len(labels) != len(np.asarray(clean)):
        raise ValueError(f"{path}: {len(labels)} labels for {len(np.asarray(clean))} examples; is it the same split and order?")
    try:
        return NoisyLabels.compare(clean, labels, classes)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def write_noisy_labels(folder: str | Path, noise: LabelNoise, clean: ArrayLike, noisy: NoisyLabels, version: str) -> Path:
    """Write noisy labels and a manifest that states how they were made.

    Labels that were read from a file have no rule and no seed: give them a noise with a name of its own, such as ``people``.

    Args:
        folder: Where to write; it is made if it is missing.
        noise: The noise.
        clean: Labels before it.
        noisy: Labels after it.
        version: Of noiseproof, for the manifest.

    Returns:
        The path of the manifest.

    >>> import tempfile
    >>> from noiseproof.noise import symmetric
    >>> noise, clean = symmetric(2, 0.5), [0, 0, 1, 1]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = write_noisy_labels(folder, noise, clean, noise.apply(clean, seed=0), "0.1")
    ...     verify(path, clean)["rate_realised"]
    0.5
    """
    folder = Path(folder)
    _check_rule(folder / MANIFEST, noise.name, noisy.seed, noisy.rule)
    folder.mkdir(parents=True, exist_ok=True)
    manifest = {
        "format": MANIFEST_FORMAT,
        "version": version,
        "noise": noise.name,
        "parameters": noise.parameters,
        "seed": noisy.seed,
        "rule": noisy.rule,
        "examples": len(noisy.labels),
        "classes": noise.classes,
        "source_hash": label_hash(clean),
        "labels_hash": noisy.hash,
        "labels_file": LABELS_FILE,
        "rate_asked": noise.noise_rate,
        "rate_realised": noisy.rate,
        "matrix_asked": noise.matrix,
        "matrix_realised": noisy.matrix,
    }
    write_whole(folder / LABELS_FILE, lambda path: save_array(path, noisy.labels))
    write_whole(folder / MANIFEST, lambda path: _save_json(path, manifest))
    return folder / MANIFEST


def verify(manifest: str | Path, clean: ArrayLike | None = None, images: NDArray[Any] | None = None) -> dict[str, Any]:
    """Check a manifest against its labels, and against the clean labels: rate, matrix, and the noise made again.

    The noise cannot be made again for labels that were read from a file, nor for instance noise without the images: the seed is
    then not checked.

    Args:
        manifest: The manifest, or its folder.
        clean: The labels before the noise, if they are at hand.
        images: The images, for instance noise.

    Returns:
        The manifest, and as ``made_anew`` whether the noise was made again and gave these labels.

    Raises:
        ReadError: If the file of the labels is not there.
        ValueError: With the first thing that is not as the manifest states.

    >>> import tempfile
    >>> from noiseproof.noise import pairflip
    >>> noise, clean = pairflip(2, 0.5), [0, 0, 1, 1]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = write_noisy_labels(folder, noise, clean, noise.apply(clean, seed=0), "0.1")
    ...     verify(folder, clean)["made_anew"]
    True
    """
    path = Path(manifest)
    path = path / MANIFEST if path.is_dir() else path
    facts = _read_manifest(path)
    labels_path = path.parent / Path(facts["labels_file"]).name
    if not labels_path.exists():
        raise ReadError(path, f"its labels are in {excerpt(labels_path.name)}, which is not there")
    labels = load_labels(labels_path)
    _expect(path, f"number of labels in {labels_path.name}", facts["examples"], len(labels))
    _expect(path, f"hash of the labels in {labels_path.name}", facts["labels_hash"], label_hash(labels))
    if clean is None:
        return facts | {"made_anew": False}
    try:
        return facts | {"made_anew": _compared(path, facts, labels, clean, images)}
    except (ValueError, TypeError) as error:
        text = str(error)
        raise ValueError(text if text.startswith(f"{path}: ") else f"{path}: {text}") from error


def _read_manifest(path: Path) -> dict[str, Any]:
    """The facts of a manifest, each of its type, and matrices of as many classes as it says."""
    try:
        facts = read_json(path)
    except ReadError as error:
        raise ValueError(f"{path}: not a manifest: {error.fault}") from error
    if type(facts) is not dict:
        raise ValueError(f"{path}: not a manifest: it holds no object")
    for key, kinds in MANIFEST_FIELDS.items():
        if key not in facts:
            raise ValueError(f"{path}: not a manifest: {key!r} is missing")
        if type(facts[key]) not in kinds:
            words = " or ".join("null" if kind is type(None) else kind.__name__ for kind in kinds)
            raise ValueError(f"{path}: not a manifest: {key!r} must be {words}, got {type(facts[key]).__name__}")
    if facts["format"] != MANIFEST_FORMAT:
        raise ValueError(
            f"{path}: format {excerpt(facts['format'])} is not known to this version, which reads {MANIFEST_FORMAT}"
            + read_by(facts["format"], MANIFEST_FORMAT, facts.get("version"))
        )
    if facts["rule"] not in (None, *RULES):
        raise ValueError(f"{path}: rule must be one of {', '.join(RULES)}, got {excerpt(facts['rule'])!r}")
    if type(facts.get("parameters", {})) is not dict:
        raise ValueError(f"{path}: not a manifest: 'parameters' must be an object, got {type(facts['parameters']).__name__}")
    if "\0" in (file := Path(facts["labels_file"]).name) or file in ("", "..") or len(file.encode()) > 255:
        raise ValueError(f"{path}: not a manifest: 'labels_file' must be the name of a file, got {excerpt(file)!r}")
    _check_rule(path, facts["noise"], facts["seed"], facts["rule"])
    for key in ("matrix_asked", "matrix_realised"):
        try:
            shape = rows_of_numbers(facts[key]).shape
        except ValueError as error:
            raise ValueError(f"{path}: not a manifest: {key!r} is no matrix: {error}") from error
        if shape != (facts["classes"], facts["classes"]):
            raise ValueError(f"{path}: {key!r} is of shape {shape} for {excerpt(facts['classes'])} classes")
    return facts


def _compared(path: Path, facts: dict[str, Any], labels: ArrayLike, clean: ArrayLike, images: NDArray[Any] | None) -> bool:
    """Compare with the clean labels, and with the noise made again where it can be; returns whether it was."""
    truth = as_labels(clean, facts["classes"], "clean labels")
    _expect(path, "hash of the clean labels", facts["source_hash"], label_hash(truth))
    found = NoisyLabels.compare(truth, labels, facts["classes"])
    _expect(path, "realised rate", facts["rate_realised"], found.rate)
    if not np.array_equal(found.matrix, rows_of_numbers(facts["matrix_realised"])):
        raise ValueError(f"{path}: the realised matrix is not the one the labels have")
    again = None
    if facts["rule"] is not None:
        again = LabelNoise(rows_of_numbers(facts["matrix_asked"])).apply(truth, facts["seed"], facts["rule"])
    elif facts["noise"] == INSTANCE and images is not None:
        again = _instance_anew(path, facts, truth, images)
    if again is not None:
        _expect(path, "hash of the labels made anew", facts["labels_hash"], again.hash)
    return again is not None


def _instance_anew(path: Path, facts: dict[str, Any], clean: ArrayLike, images: NDArray[Any]) -> NoisyLabels:
    stated = facts.get("parameters", {})
    missing = [key for key in ("rate", "images_hash") if key not in stated]
    if missing:
        raise ValueError(f"{path}: not a manifest of {INSTANCE} noise: {missing[0]!r} is missing in its parameters")
    _expect(path, "hash of the images", stated["images_hash"], image_hash(images))
    return instance_dependent(images, clean, stated["rate"], facts["seed"], facts["classes"])


def _check_rule(path: Path, noise: str, seed: int | None, rule: str | None) -> None:
    """Noise by a matrix must state its rule: without it the labels cannot be made again and compared."""
    if rule is None and noise != INSTANCE and (noise in (*MATRIX_NOISES, "matrix", "file") or seed is not None):
        raise ValueError(
            f"{path}: {excerpt(noise)} noise with seed {seed} must state its rule, got none; only {INSTANCE} noise, and labels "
            "from a file under a name of their own and without a seed, have none"
        )


def _expect(path: Path, what: str, stated: object, found: object) -> None:
    if stated != found:
        raise ValueError(f"{path}: the {what} should be {excerpt(stated)}, found {found}")


def _chosen(path: Path, names: Iterable[object], name: str | None) -> Any:
    """Which of several sets of labels to take: the one of this name, or the only one."""
    known = {str(key): key for key in names}
    listed = and_more([excerpt(key) for key in sorted(known)], MAX_NAMES_LISTED)
    if name is None and len(known) != 1:
        raise ValueError(f"{path}: holds several sets of labels, choose one: {listed or 'but it has none'}")
    if name is not None and name not in known:
        raise ValueError(f"{path}: no labels named {name!r}; it has {listed or 'none'}")
    return next(iter(known.values())) if name is None else known[name]


def labels_in(path: Path, content: Any, name: str | None) -> Any:
    """The labels of this name, where a file holds a dictionary of them."""
    return content[_chosen(path, content, name)] if isinstance(content, dict) else content


def _from_archive(path: Path, name: str | None) -> NDArray[Any]:
    with NpzFile(path) as archive:
        return archive.array(_chosen(path, archive.names, name))


LABEL_READERS: dict[str, Callable[[Path, str | None], Any]] = {
    ".npy": lambda path, name: read_npy(path),
    ".npz": _from_archive,
    ".json": lambda path, name: labels_in(path, read_json(path), name),
    ".csv": lambda path, name: read_table(path),
}
"""What reads labels, by a file's suffix, and by the name of one of several; plug-ins add further kinds of files."""


def _as_array(path: Path, content: Any) -> NDArray[Any]:
    """Labels as an array. Lists must hold numbers, or lists of one: in a pickle they can stand for more than the file has."""
    if isinstance(content, np.ndarray):
        return content
    if isinstance(content, (list, tuple)):
        if len(content) == 1 and isinstance(content[0], (list, tuple)):
            content = content[0]
        elif content and all(isinstance(label, (list, tuple)) and len(label) == 1 for label in content):
            content = [label[0] for label in content]
        if all(type(label) in (int, float) for label in content):
            return np.asarray(content)
    raise ReadError(path, "it should hold numbers, one for each example")


def _save_json(path: Path, facts: dict[str, Any]) -> None:
    """A line for each fact, and for each row of a matrix, so that the text of a large one is never in memory as a whole."""
    with path.open("w", encoding="utf-8") as file:
        for number, (key, value) in enumerate(facts.items()):
            file.write(f"{',' if number else '{'}\n {json.dumps(key)}: ")
            if isinstance(value, np.ndarray):
                file.writelines(f"{',' if k else '['}\n  {json.dumps(row.tolist())}" for k, row in enumerate(value))
                file.write("\n ]")
            else:
                file.write(json.dumps(value))
        file.write("\n}\n")


PREDICTIONS_ARRAY, CLASS_PREFIX = "probabilities", "p_"
"""What 'noiseproof predict' calls its array, and puts before a class's name in the header of a table"""
SOFT_ARRAY, GIVEN_ARRAY, CLASSES_ARRAY, OWN_ARRAY = "posterior", "given", "classes", "own"
"""Arrays of the file"""
SUM_TOLERANCE = 1e-3  # by how much the sum of probabilities may differ from 1
MAX_CLASSES_NAMED = 5  # classes that an error names


class SoftLabels(NamedTuple):
    """Class probabilities for examples, and the labels that were given to them.

    Attributes:
        probabilities: ``[N, K]``.
        given: Labels ``[N]``.
        hash: SHA-256 of the file.
        classes: Names of the columns, if the file states them.
        own: The labels that the data of these examples have themselves, ``[N]``, if the file contains them.

    >>> soft = SoftLabels(np.float32([[0.9, 0.1]]), np.array([0]), "", ("no", "yes"))
    >>> soft.of_classes(("yes", "no")).given.tolist()
    [1]
    """

    probabilities: NDArray[np.float32]
    given: NDArray[np.int64]
    hash: str
    classes: tuple[str, ...] | None = None
    """What the file calls the columns, if it says it"""
    own: NDArray[np.int64] | None = None

    def of_classes(self, classes: Sequence[str]) -> SoftLabels:
        """Return the soft labels with the columns in the order of these classes.

        Args:
            classes: Names of the classes.

        Returns:
            The soft labels.

        Raises:
            ValueError: If the file is of other classes.
        """
        if self.classes is None:
            return self
        try:
            order = np.array(column_order(self.classes, classes))
        except ValueError as error:
            raise ValueError(f"{error}; 'noiseproof audit' makes soft labels anew from the data as they are now") from error
        place = np.argsort(order)
        own = None if self.own is None else place[self.own]
        return self._replace(probabilities=self.probabilities[:, order], given=place[self.given], own=own)

    def fit_by_order_alone(self, classes: Sequence[str]) -> bool:
        """Return whether these classes have names and the file has none, so that the columns cannot be checked.

        Args:
            classes: Names of the classes.

        Returns:
            True if nothing but their order says which column is which class.
        """
        return self.classes is None and not _are_numbers(classes)


def column_order(own: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """Which columns, of classes that are called so, are those that are wanted; a ValueError if they are of other classes.

    Classes that have no names are called by their numbers: then the columns are taken as they stand.

    >>> column_order(["no", "yes", "perhaps"], ["perhaps", "no", "yes"])
    [2, 0, 1]
    """
    if tuple(own) == tuple(wanted) or _are_numbers(own) or _are_numbers(wanted):
        return list(range(len(own)))
    if set(own) != set(wanted) or len(set(own)) < len(own):
        alone = (sorted({*own} - {*wanted}), sorted({*wanted} - {*own}))
        quoted = ([repr(excerpt(name, 40)) for name in names] for names in alone)
        file, data = (and_more(names, MAX_CLASSES_NAMED) or "none of its own" for names in quoted)
        raise ValueError(f"its columns are of other classes than the data: only the file has {file}, only the data {data}")
    return [list(own).index(name) for name in wanted]


def _are_numbers(classes: Sequence[str]) -> bool:
    return all(name == str(k) for k, name in enumerate(classes))


def read_soft_labels(
    path: str | Path, examples: int, classes: int | Sequence[str], name: str | None = None
) -> SoftLabels | None:
    """Read soft labels from an ``.npz`` file with arrays ``posterior`` and ``given``.

    Args:
        path: The file.
        examples: Number of examples.
        classes: How many classes there are, or their names: if the file names its own in an array ``classes``, the
            columns are put in this order, and other classes are an error.
        name: The array that was asked for, if one was: only ``posterior`` is soft labels.

    Returns:
        The soft labels; None if the file contains no array ``posterior``.

    Raises:
        ValueError: If they are no probabilities of these examples and classes.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/p.npz", posterior=np.float32([[0.9, 0.1], [0.2, 0.8]]), given=[0, 0])
    ...     read_soft_labels(f"{folder}/p.npz", examples=2, classes=2).given.tolist()
    [0, 0]
    """
    path = Path(path)
    if path.suffix != ".npz" or name not in (None, SOFT_ARRAY):
        return None
    count = classes if isinstance(classes, int) else len(classes)
    try:
        with NpzFile(path) as archive:
            if SOFT_ARRAY not in archive.names:
                return None
            found = archive.array(SOFT_ARRAY)
            _check_soft(path, found, (examples, count))
            called = archive.words(CLASSES_ARRAY, count) if CLASSES_ARRAY in archive.names else None
            has_own = OWN_ARRAY in archive.names  # those of before have none
    except ReadError as error:
        raise ValueError(f"{path}: no soft labels could be read: {error.fault}") from error
    labels = {name: load_labels(path, name) for name in (GIVEN_ARRAY, *([OWN_ARRAY] if has_own else []))}
    for name, each in labels.items():
        if each.shape != (examples,) or each.max() >= count:
            raise ValueError(
                f"{path}: {name!r} must be {examples} labels in [0, {count - 1}], got {len(each)} up to {each.max()}"
            )
    soft = SoftLabels(found.astype(np.float32), labels[GIVEN_ARRAY], checksum(path), called, labels.get(OWN_ARRAY))
    try:
        return soft if isinstance(classes, int) else soft.of_classes(classes)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _check_soft(path: Path, found: NDArray[np.float32], shape: tuple[int, int]) -> None:
    if found.shape != shape or found.dtype.kind != "f":
        raise ValueError(
            f"{path}: soft labels must be probabilities {list(shape)}, one row for each example and one column for "
            f"each class, got {found.dtype} of shape {found.shape}; is it the same split, in the same order?"
        )
    wrong = ~(
        (found >= 0).all(1) & (np.abs(found.sum(1, dtype=np.float64) - 1) <= SUM_TOLERANCE)
    )  # a NaN or an infinity is neither
    if wrong.any():
        row = int(wrong.argmax())
        fault = (
            f"row {row} has {excerpt(found[row].min())} as its least and sums to {excerpt(found[row].sum(dtype=np.float64))}"
        )
        raise ValueError(f"{path}: soft labels must be finite, at least 0 and sum to 1 in each row; {fault}")


def read_matrix(text: str, what: str, suffixes: tuple[str, ...] = (".npy", ".npz")) -> NDArray[Any]:
    """Read the numbers in a file.

    Args:
        text: A file, or FILE#NAME for one array of an ``.npz`` file.
        what: How an error calls the numbers.
        suffixes: Suffixes of files that are accepted.

    Returns:
        The array: the named one, or the only one.

    Raises:
        ValueError: If the suffix is another one.
        ReadError: If the file has several arrays and none is named.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/p.npy", np.eye(2))
    ...     read_matrix(f"{folder}/p.npy", "probabilities").shape
    (2, 2)
    """
    path, name = file_and_name(text)
    if path.suffix not in suffixes:
        raise wrong_suffix(path, f"{what} are", suffixes)
    if path.suffix == ".csv":
        return read_table(path)
    if path.suffix == ".npy":
        return read_npy(path)
    with NpzFile(path) as archive:
        chosen = name if name is not None else archive.names[0] if len(archive.names) == 1 else None
        if chosen not in archive.names:
            has = ", ".join(excerpt(each) for each in sorted(archive.names)[:20])
            raise ReadError(path, f"which array has the {what}? FILE#NAME says it; it has {has or 'none'}")
        return archive.array(str(chosen))


def read_predictions(text: str, classes: Sequence[str]) -> NDArray[Any]:
    """Read class probabilities from a file.

    Args:
        text: An ``.npy``, ``.npz`` or ``.csv`` file, or FILE#NAME.
        classes: Names of the classes: where the file names its columns, these are put in this order.

    Returns:
        Probabilities ``[N, K]``.

    Raises:
        ReadError: If the columns are of other classes.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/p.npy", np.eye(2))
    ...     read_predictions(f"{folder}/p.npy", ["no", "yes"]).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    path, name = file_and_name(text)
    if path.suffix == ".csv" and (places := _in_header(path, classes)):
        return _columns(path, places)
    if path.suffix != ".npz" or name not in (None, PREDICTIONS_ARRAY):
        return read_matrix(text, PREDICTIONS_ARRAY, (".npy", ".npz", ".csv"))
    with NpzFile(path) as archive:
        if PREDICTIONS_ARRAY not in archive.names:
            return read_matrix(text, PREDICTIONS_ARRAY)
        found = archive.array(PREDICTIONS_ARRAY)
        if found.ndim != 2 or CLASSES_ARRAY not in archive.names:
            return found
        try:
            return np.asarray(found[:, column_order(archive.words(CLASSES_ARRAY, found.shape[1]), classes)])
        except ReadError:
            raise
        except ValueError as error:
            raise ReadError(path, str(error)) from error


def _in_header(path: Path, classes: Sequence[str]) -> list[int]:
    """Where the columns of these classes are by a CSV file's header; none if it does not name each of them once."""
    try:
        header = next(csv_rows(path), (0, []))[1]
    except ReadError:  # which read_table says in its own words
        return []
    for names in (list(classes), [f"{CLASS_PREFIX}{cell(name)}" for name in classes]):
        if all(header.count(name) == 1 for name in names) and not all(name.isdigit() for name in header):
            return [header.index(name) for name in names]
    return []


def _columns(path: Path, places: Sequence[int]) -> NDArray[np.float64]:
    rows = csv_rows(path)
    next(rows)
    found = []
    for line, row in rows:
        try:
            found.append([float(row[k]) for k in places])
        except ValueError:
            raise ReadError(f"{path}:{line}", f"numbers expected, found {excerpt([row[k] for k in places])}") from None
    return np.array(found, np.float64).reshape(len(found), len(places))
