"""Noisy labels in files: published label files, and our own with a manifest that can be verified."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from noiseproof.files import write_whole
from noiseproof.noise.instance import INSTANCE, image_hash, instance_dependent
from noiseproof.noise.matrix import MATRIX_NOISES, LabelNoise, NoisyLabels, as_labels, label_hash

__all__ = ["load_labels", "read_noisy_labels", "verify", "write_noisy_labels"]

MANIFEST, LABELS = "manifest.json", "labels.npy"
FORMAT = 1


def load_labels(path: str | Path, name: str | None = None) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Labels from a ``.npy``, ``.npz``, ``.json``, ``.pt`` or ``.csv`` file; ``name`` picks one of several.

    CIFAR-10N's and CIFAR-100N's ``.pt`` files (dictionaries of arrays) and the published instance-dependent label files load as
    they are. Nothing in the file is executed: arrays are read without pickle, and ``.pt`` files with a reader that admits only
    tensors and arrays.
    """
    path = Path(path)
    content = _read(path)
    if isinstance(content, dict):
        known = ", ".join(sorted(map(str, content)))
        if name is None and len(content) == 1:
            name = next(iter(content))
        if name is None:
            raise ValueError(f"{path}: holds several sets of labels, choose one: {known}")
        if name not in content:
            raise ValueError(f"{path}: no labels named {name!r}; it has {known}")
        content = content[name]
    array: np.ndarray[Any, Any] = _readable(path, lambda: np.asarray(content))
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
    """Labels from a file beside the clean ones of the same examples: mask, realised matrix and rate, hash."""
    labels = load_labels(path, name)
    if len(labels) != len(np.asarray(clean)):
        raise ValueError(f"{path}: {len(labels)} labels for {len(np.asarray(clean))} examples; is it the same split and order?")
    try:
        return NoisyLabels.compare(clean, labels, classes)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def write_noisy_labels(folder: str | Path, noise: LabelNoise, clean: ArrayLike, noisy: NoisyLabels, version: str) -> Path:
    """Write the labels and a manifest of how they were made; returns the manifest's path.

    Labels that were read from a file have no rule and no seed: give them a noise with a name of its own, such as ``people``.
    """
    folder = Path(folder)
    _check_rule(folder / MANIFEST, noise.name, noisy.seed, noisy.rule)
    folder.mkdir(parents=True, exist_ok=True)
    manifest = {
        "format": FORMAT,
        "version": version,
        "noise": noise.name,
        "parameters": noise.parameters,
        "seed": noisy.seed,
        "rule": noisy.rule,
        "examples": len(noisy.labels),
        "classes": noise.classes,
        "source_hash": label_hash(clean),
        "labels_hash": noisy.hash,
        "labels_file": LABELS,
        "rate_asked": noise.noise_rate,
        "rate_realised": noisy.rate,
        "matrix_asked": noise.matrix.tolist(),
        "matrix_realised": noisy.matrix.tolist(),
    }
    write_whole(folder / LABELS, lambda path: _save_array(path, noisy.labels))
    write_whole(folder / MANIFEST, lambda path: path.write_text(json.dumps(manifest, indent=1), encoding="utf-8"))
    return folder / MANIFEST


def verify(manifest: str | Path, clean: ArrayLike | None = None, images: NDArray[Any] | None = None) -> dict[str, Any]:
    """Check a manifest against its labels, and against the clean labels if given: rate, matrix, and the noise made again.

    Returns the manifest, and as ``made_anew`` whether the noise was made again and gave these labels. It cannot be for labels
    that were read from a file, nor for instance noise without the ``images``: the seed is then not checked. Raises ValueError
    with the first thing that is not as the manifest says.
    """
    path = Path(manifest)
    path = path / MANIFEST if path.is_dir() else path
    try:
        facts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        wanted = ("format", "noise", "seed", "rule", "examples", "classes", "labels_file", "labels_hash", "source_hash")
        missing = [key for key in (*wanted, "matrix_asked", "matrix_realised", "rate_realised") if key not in facts]
    except (json.JSONDecodeError, UnicodeDecodeError, AttributeError, TypeError) as error:
        raise ValueError(f"{path}: not a manifest: {error}") from error
    if missing:
        raise ValueError(f"{path}: not a manifest: {missing[0]!r} is missing")
    if facts["format"] != FORMAT:
        raise ValueError(f"{path}: format {facts['format']} is not known to this version, which reads {FORMAT}")
    _check_rule(path, facts["noise"], facts["seed"], facts["rule"])
    labels_path = path.parent / Path(str(facts["labels_file"])).name
    labels = load_labels(labels_path)
    _expect(labels_path, "number of labels", facts["examples"], len(labels))
    _expect(labels_path, "hash of the labels", facts["labels_hash"], label_hash(labels))
    if clean is None:
        return facts | {"made_anew": False}
    truth = as_labels(clean, facts["classes"], "clean labels")
    _expect(path, "hash of the clean labels", facts["source_hash"], label_hash(truth))
    found = NoisyLabels.compare(truth, labels, facts["classes"])
    _expect(path, "realised rate", facts["rate_realised"], found.rate)
    if not np.array_equal(found.matrix, np.asarray(facts["matrix_realised"])):
        raise ValueError(f"{path}: the realised matrix is not the one the labels have")
    again = None
    if facts["rule"] is not None:
        again = LabelNoise(np.asarray(facts["matrix_asked"])).apply(truth, facts["seed"], facts["rule"])
    elif facts["noise"] == INSTANCE and images is not None:
        again = _instance_anew(path, facts, truth, images)
    if again is not None:
        _expect(path, "hash of the labels made anew", facts["labels_hash"], again.hash)
    return facts | {"made_anew": again is not None}


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
            f"{path}: {noise} noise with seed {seed} must state its rule, got none; only {INSTANCE} noise, and labels from a "
            "file under a name of their own and without a seed, have none"
        )


def _expect(path: Path, what: str, stated: object, found: object) -> None:
    if stated != found:
        raise ValueError(f"{path}: the {what} should be {stated}, found {found}")


def _read(path: Path) -> Any:
    readers: dict[str, Callable[[], Any]] = {
        ".npy": lambda: np.load(path, allow_pickle=False),
        ".npz": lambda: _read_archive(path),
        ".json": lambda: json.loads(path.read_text(encoding="utf-8")),
        ".pt": lambda: _read_torch(path),
        ".csv": lambda: _read_table(path),
    }
    if path.suffix not in readers:
        raise ValueError(f"{path}: labels are read from {', '.join(readers)}, got {path.suffix or 'no suffix'!r}")
    return _readable(path, readers[path.suffix])


def _readable(path: Path, read: Callable[[], Any]) -> Any:
    try:
        return read()
    except FileNotFoundError:
        raise
    except Exception as error:  # zipfile, zlib, pickle, tokenize, torch and NumPy raise many kinds for a damaged file
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(f"{path}: no labels could be read: {reason}") from error


def _read_table(path: Path) -> Any:
    lines = [line.partition("#")[0].strip() for line in path.read_text(encoding="utf-8-sig").splitlines()]
    lines = [line for line in lines if line]
    if not lines:
        return []  # NumPy would warn
    try:
        [float(cell) for cell in lines[0].split(",")]
    except ValueError:
        way = "remove the header line, and every column but the labels"
        raise ValueError(f"its first line is {lines[0]!r}, not a number: {way}") from None
    return np.loadtxt(lines, delimiter=",", dtype=np.int64, ndmin=1)


def _read_archive(path: Path) -> dict[str, Any]:
    with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
        return dict(archive)


def _read_torch(path: Path) -> Any:
    # NumPy arrays inside need these names and no others; the reader refuses every other one without calling it.
    kinds = [type(np.dtype(kind)) for kind in ("i8", "i4", "i2", "i1", "u1", "f8", "f4")]
    admitted = [np.ndarray, np.dtype, np.empty(0).__reduce__()[0], *kinds]
    aliases = [(admitted[2], "numpy.core.multiarray._reconstruct"), (admitted[2], "numpy._core.multiarray._reconstruct")]
    with torch.serialization.safe_globals([*admitted, *aliases]):  # type: ignore[list-item]
        return torch.load(path, map_location="cpu", weights_only=True)


def _save_array(path: Path, array: Any) -> None:
    with path.open("wb") as file:
        np.save(file, array, allow_pickle=False)
