"""Runs on disk: what each of them is, where it is, a lock so that one process at a time works on it, and its checkpoints.

A run is identified by its recipe and by the content of its data, not by the path that the data were opened by or by the name of
its folder. Folders are found by the records in them, so those of earlier versions, under other names, are found too.
Checkpoints and the probabilities of the training labels are single files, complete or not there.
"""

from __future__ import annotations

import hashlib
import json
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from noiseproof.io.arrays import NpzFile
from noiseproof.io.files import checksum, save_arrays, write_whole
from noiseproof.io.limits import check_file
from noiseproof.io.text import parse_json, read_by, read_json
from noiseproof.train.recipe import RENAMED_FIELDS, Recipe, current_names, default_facts
from noiseproof.train.record import (
    CHECKPOINT,
    CONFIDENCE,
    ENCODER,
    RECORD,
    WEIGHTS,
    Record,
    check_facts,
    content_digest,
    fault_of,
)
from noiseproof.train.run import Predictions
from noiseproof.train.training_data import TrainingData
from noiseproof.version import __version__

RUN_FILES = (RECORD, CHECKPOINT, WEIGHTS, ENCODER, CONFIDENCE, "curves.png")
DATA_FACTS = ("classes", "examples", "test_examples", "other_tests", "encoder", "model", "loss")
"""Those of a task's facts that tell runs apart, beside its labels and its files; further ones are for the reader"""


def identity(recipe: Mapping[str, Any], task: Mapping[str, Any]) -> str:
    """The digest of a run's recipe and data.

    Paths are left out where the files' hashes are known. Fields with their default value are left out too: a record that was
    written before recipes had a field is that of a run with its default.

    Args:
        recipe: The ``recipe`` of its record.
        task: The ``task`` of its record.

    Returns:
        A SHA-256 in hexadecimal digits.

    Raises:
        ValueError: They are not of a record.

    >>> task = {"name": "digits", "noise": {"hash": "0"}, "classes": 10, "examples": 1297, "test_examples": 500}
    >>> recipe = Recipe(dataset="digits", loss="ce")
    >>> identity(recipe.as_dict(), task) == identity({"dataset": "digits", "loss": "ce"}, task)
    True
    """
    try:
        sources = dict(task.get("sources", {}))
        weights = sources.pop(recipe.get("weights"), recipe.get("weights"))
        noise = recipe.get("noise", "none")
        options = {
            name: value for name, value in dict(recipe.get("data_options", {})).items() if not (name == "test" and sources)
        }
        from_file = noise.startswith("labels:") or (":" not in noise and noise != "none")
        facts = {
            **{name: value for name, value in _not_default(recipe).items() if name != "data_options"},
            "dataset": sorted(sources.values()) or [recipe["dataset"], task["name"]],
            **({"data_options": options} if options else {}),
            "noise": ["file" if from_file else noise, task["noise"]["hash"]],
            "weights": weights,
            "task": {key: task[key] for key in DATA_FACTS if key in task},
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"its recipe or task is not that of a run: {type(error).__name__}: {error}") from error
    return _digest(facts)


def recipe_key(recipe: Mapping[str, Any]) -> str:
    """The digest of a recipe alone: what a run is known by where its data are not at hand."""
    return _digest(recipe)


MAX_STEM_BYTES = 100
"""Of the name of the data in that of a folder, which file systems limit to 255 bytes; the digest tells folders apart"""


def folder_name(recipe: Recipe) -> str:
    """The name of a new run's folder: what is trained, and the digest of the whole recipe.

    Args:
        recipe: What is trained.

    Returns:
        A name without characters that a file system may refuse.

    >>> folder_name(Recipe(dataset="digits", loss="jal-ce", noise="symmetric:0.8", seed=123))
    'digits_jal-ce_symmetric-0.8_seed123_4f06ce44'
    """
    digest = _digest(_not_default(recipe.as_dict()))[:8]
    parts = [_stem(recipe.dataset), recipe.loss, _noise_name(recipe.noise), f"seed{recipe.seed}", digest]
    return "_".join(re.sub(r"[^\w.+-]+", "-", part) for part in parts)


def _not_default(recipe: Mapping[str, Any]) -> dict[str, Any]:
    defaults = default_facts()
    return {name: value for name, value in current_names(recipe).items() if name not in defaults or value != defaults[name]}


def _digest(facts: Mapping[str, Any]) -> str:
    """A field counts by its first name, so that runs of before keep their digest."""
    first_names = {new: old for old, new in RENAMED_FIELDS.items()}
    return content_digest({first_names.get(name, name): value for name, value in facts.items()})


def _noise_name(noise: str) -> str:
    kind, _, rest = noise.partition(":")
    if kind == "labels":
        file, _, name = rest.partition("#")
        return f"labels-{_stem(file)}" + (f"-{name}" if name else "")
    return f"{kind}-{rest}" if rest else _stem(kind)


def _stem(path: str) -> str:
    """The last part of a path, without the extension of a data format."""
    name = Path(path).expanduser().resolve().name
    stem = re.sub(r"(\.(npz|npy|txt|csv|tsv|parquet|feather|arrow|jsonl|ndjson|json|pt))?(\.gz)?$", "", name)
    return stem.encode(errors="replace")[:MAX_STEM_BYTES].decode(errors="ignore")


@dataclass(frozen=True)
class StoredRun:
    """A run as its record describes it, in a folder or in a line of a file of records.

    Args:
        identity: The digest of its recipe and data.
        status: running, finished, diverged, or unreadable, with the reason in the facts' message.
        facts: The record without its epochs.
        folder: Where it is.

    >>> for run in RunStore("runs").runs():  # doctest: +SKIP
    ...     print(run.status, run.facts["recipe"]["loss"], run.folder)
    """

    identity: str
    status: str
    facts: dict[str, Any]
    folder: Path | None = None

    @staticmethod
    def of(facts: Mapping[str, Any], folder: Path | None = None) -> StoredRun:
        """From a record; nothing is checked against this version's catalogue.

        Args:
            facts: What ``record.json`` contains.
            folder: Where it is.

        Returns:
            The run.
        """
        check_facts(facts)
        summary = {key: value for key, value in facts.items() if key != "epochs"}
        return StoredRun(identity(facts["recipe"], facts["task"]), Record.status_in(facts), summary, folder)


class RunStore:
    """The runs in the sub-folders of a folder. A record is read again only when its file has changed.

    Args:
        root: The folder.

    >>> RunStore("runs").folder_for(Recipe(dataset="digits", loss="ce", seed=3)).name
    'digits_ce_none_seed3_61518125'
    """

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root).expanduser()
        self._read: dict[Path, tuple[tuple[int, ...], StoredRun]] = {}

    def runs(self) -> Iterator[StoredRun]:
        """All runs that have a record, by the names of their folders."""
        for path in sorted(self.root.glob(f"*/{RECORD}")) if self.root.is_dir() else ():
            try:
                facts = path.stat()
            except OSError:  # removed meanwhile
                continue
            if not stat.S_ISREG(facts.st_mode):  # a pipe would be waited for
                continue
            version = facts.st_mtime_ns, facts.st_ino, facts.st_size
            if path not in self._read or self._read[path][0] != version:
                self._read[path] = version, self._stored(path)
            yield self._read[path][1]

    def _stored(self, path: Path) -> StoredRun:
        try:
            return StoredRun.of(read_json(path), path.parent)
        except (OSError, ValueError) as error:
            return StoredRun("", "unreadable", {"message": f"{path}: not the record of a run: {fault_of(error)}"}, path.parent)

    def find(self, wanted: str) -> StoredRun | None:
        """The run with an identity, a finished one if there are several.

        Args:
            wanted: What :func:`identity` returned.

        Returns:
            The run, or None.
        """
        found = [run for run in self.runs() if run.identity == wanted]
        return min(found, key=lambda run: run.status != "finished", default=None)

    def folder_for(self, recipe: Recipe, task: Mapping[str, Any] | None = None) -> Path:
        """Where a run is, or will be.

        Args:
            recipe: What is trained.
            task: What identifies its data; without, a run with the same recipe is taken for it.

        Returns:
            Its folder.
        """
        facts = recipe.as_dict()
        if task is None:
            wanted = _not_default(facts)
            found = next((run for run in self.runs() if _not_default(run.facts.get("recipe", {})) == wanted), None)
        else:
            found = self.find(identity(facts, task))
        return self.root / folder_name(recipe) if found is None or found.folder is None else found.folder


CHECKPOINT_FORMAT = "1"
Checkpoint = tuple[dict[str, Tensor], dict[str, Any]]
"""Tensors by name, and the facts."""


class CheckpointError(ValueError):
    """A checkpoint that this run cannot resume from; the message says why."""


def write_checkpoint(folder: Path, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
    """Replace the checkpoint: a reader finds the old one or the new one, never a part."""
    text = json.dumps(facts)
    digest = _content_digest(tensors, text, __version__)
    about = {"noiseproof": CHECKPOINT_FORMAT, "version": __version__, "facts": text, "sha256": digest}
    write_tensors(folder / CHECKPOINT, tensors, about)


def write_tensors(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str] | None = None) -> str:
    """Write a file of tensors, complete or not at all; returns its SHA-256."""
    from safetensors.torch import save

    # Not save_file: its temporary file would stay if the process is killed, and its error for a full disk is no OSError.
    content = save(tensors, metadata)
    write_whole(path, lambda place: place.write_bytes(content))
    return hashlib.sha256(content).hexdigest()


def read_checkpoint(folder: Path) -> Checkpoint | None:
    """What was last written, or None if nothing was."""
    from safetensors import SafetensorError, safe_open

    path = folder / CHECKPOINT
    if not path.is_file():
        return None
    check_file(path)
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no dictionary
    except (SafetensorError, OSError, ValueError, TypeError, AttributeError, RuntimeError) as error:  # of dtypes torch lacks
        raise CheckpointError(f"{path}: damaged, or no checkpoint: {error}; move it away to start anew") from error
    if (found := metadata.get("noiseproof")) != CHECKPOINT_FORMAT or "facts" not in metadata:
        raise CheckpointError(
            f"{path}: not a checkpoint of this version of noiseproof, which has format {CHECKPOINT_FORMAT}, not {found}"
            f"{read_by(found, int(CHECKPOINT_FORMAT), metadata.get('version'))}; move it away to start anew"
        )
    if _content_digest(tensors, metadata["facts"], metadata.get("version", "")) != metadata.get("sha256"):
        raise CheckpointError(f"{path}: damaged, its content is not what was written; move it away to start anew")
    try:
        return tensors, parse_json(metadata["facts"])
    except ValueError as error:
        raise CheckpointError(f"{path}: its facts are not JSON: {error}; move it away to start anew") from error


def _content_digest(tensors: dict[str, Tensor], facts: str, version: str) -> str:
    """Of all that a checkpoint contains; those of before do not have a version."""
    digest = hashlib.sha256((facts + version).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        digest.update(tensor.contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


PREDICTIONS_PREFIX = "predictions."
"""Of the names of predictions in a checkpoint"""


def write_confidence(folder: Path, task: TrainingData, predictions: dict[int, Predictions]) -> str:
    """Write what the run predicts for the training examples, of which there are N, after E epochs; returns the file's SHA-256.

    ``epochs [E]``; ``given [N]``, and ``clean [N]`` if known; ``probability [E, N]`` of the given label, and the class
    ``predicted [E, N]``; ``index [N]``, the example's position in the data as they were before a share was held out; and for
    image files their ``path [N]``.
    """
    epochs = sorted(predictions)
    arrays: dict[str, NDArray[Any]] = {
        "epochs": np.asarray(epochs),
        "given": task.train.labels,
        "probability": np.stack([predictions[epoch].probability for epoch in epochs]),
        "predicted": np.stack([predictions[epoch].predicted for epoch in epochs]),
        "index": np.arange(len(task.train)) if task.rows is None else task.rows,
    }
    if task.clean is not None:
        arrays["clean"] = task.clean
    if task.train.paths is not None:
        arrays["path"] = np.asarray(task.train.paths)
    write_whole(folder / CONFIDENCE, lambda path: save_arrays(path, arrays, compressed=True))
    return checksum(folder / CONFIDENCE)


def read_confidence(folder: Path, epochs: Sequence[int], count: int) -> dict[int, Predictions]:
    """The predictions of a finished run after each of its ``epochs`` for its ``count`` examples."""
    shape = len(epochs), count
    try:
        with NpzFile(folder / CONFIDENCE) as file:
            arrays = {name: file.array(name) for name in ("epochs", "probability", "predicted")}
        found = {name: (array.dtype.kind, array.shape) for name, array in arrays.items()}
        if found != {"epochs": ("i", shape[:1]), "probability": ("f", shape), "predicted": ("i", shape)}:
            raise ValueError(f"it has not what {count} examples need after {len(epochs)} epochs, but {found}")
        if arrays["epochs"].tolist() != list(epochs):
            raise ValueError(f"it is of the epochs {arrays['epochs'].tolist()}, not {list(epochs)}")
    except (OSError, ValueError, KeyError) as error:
        raise CheckpointError(
            f"{folder / CONFIDENCE}: damaged, in a run that is finished: {fault_of(error)}; "
            "move the folder away to run it again"
        ) from error
    return {epoch: Predictions(arrays["probability"][i], arrays["predicted"][i]) for i, epoch in enumerate(epochs)}


def as_tensors(predictions: dict[int, Predictions]) -> dict[str, Tensor]:
    """The predictions after each epoch, by the names that they have in a checkpoint."""
    named = [(epoch, found._asdict()) for epoch, found in predictions.items()]
    return {_prediction_name(field, epoch): torch.from_numpy(array) for epoch, found in named for field, array in found.items()}


def take_predictions(tensors: dict[str, Tensor], epochs: Sequence[int], count: int) -> dict[int, Predictions]:
    """Take all predictions out of what was in a checkpoint; returns those after ``epochs``, for ``count`` examples each."""
    taken = {name: tensors.pop(name) for name in list(tensors) if name.startswith(PREDICTIONS_PREFIX)}
    found = {}
    for epoch in epochs:
        both = [taken.get(_prediction_name(field, epoch)) for field in Predictions._fields]
        kinds = [None if one is None else (one.dtype, list(one.shape)) for one in both]
        if kinds != [(torch.float32, [count]), (torch.int64, [count])]:
            raise ValueError(f"it has no predictions of {count} examples after epoch {epoch}")
        found[epoch] = Predictions(*(one.numpy() for one in both if one is not None))
    return found


def _prediction_name(field: str, epoch: int) -> str:
    return f"{PREDICTIONS_PREFIX}{field}.{epoch}"
