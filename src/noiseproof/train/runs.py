"""The runs in a folder: what each of them is, where it is, and a lock so that one process at a time works on it.

A run is identified by its recipe and by the content of its data, not by the path that the data were opened by or by the name of
its folder. Folders are found by the records in them, so those of earlier versions, under other names, are found too.
"""

from __future__ import annotations

import hashlib
import json
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from noiseproof.io.files import is_dir, locked, make_folder, remove_partial
from noiseproof.io.text import read_json
from noiseproof.train.recipe import RENAMED_FIELDS, Recipe, current_names, default_facts
from noiseproof.train.record import RECORD, Record, check_facts, fault_of

__all__ = ["BusyError", "RunStore", "StoredRun", "claimed", "folder_name", "identity", "recipe_key"]

RUN_FILES = (RECORD, "checkpoint.safetensors", "weights.safetensors", "confidence.npz", "curves.png")
DATA_FACTS = ("classes", "examples", "test_examples", "other_tests", "model", "loss")
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
        from_file = noise.startswith("labels:") or (":" not in noise and noise != "none")
        facts = {
            **_not_default(recipe),
            "dataset": sorted(sources.values()) or [recipe["dataset"], task["name"]],
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
    """Numbers count by their value: 20 is 20.0. A field counts by its first name, so that runs of before keep their digest."""
    first_names = {new: old for old, new in RENAMED_FIELDS.items()}
    named = {first_names.get(name, name): value for name, value in facts.items()}
    numbers_by_value = json.loads(json.dumps(named), parse_int=float)
    return hashlib.sha256(json.dumps(numbers_by_value, sort_keys=True).encode()).hexdigest()


def _noise_name(noise: str) -> str:
    kind, _, rest = noise.partition(":")
    if kind == "labels":
        file, _, name = rest.partition("#")
        return f"labels-{_stem(file)}" + (f"-{name}" if name else "")
    return f"{kind}-{rest}" if rest else _stem(kind)


def _stem(path: str) -> str:
    """The last part of a path, without the extension of a data format."""
    name = Path(path).expanduser().resolve().name
    return re.sub(r"\.(npz|npy|txt|csv|tsv|json|pt)$", "", name)


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
        for path in sorted(self.root.glob(f"*/{RECORD}")) if is_dir(self.root) else ():
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
            fault = fault_of(error) if isinstance(error, ValueError) else error
            return StoredRun("", "unreadable", {"message": f"{path}: not the record of a run: {fault}"}, path.parent)

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


class BusyError(ValueError):
    """Another process is at work on the run."""


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Make the folder if need be, keep other processes out, and remove the partial files of a write that was killed.

    A run that fails before it has written anything leaves no folder behind.
    """
    with ExitStack() as stack:
        try:
            made, held = _locked_folder(folder, stack)
        except BlockingIOError:
            raise BusyError(f"another process is at work in {folder}; wait for it, or choose another folder") from None
        if held:  # or a partial file might be another process's
            for name in RUN_FILES:
                remove_partial(folder / name)
        try:
            yield
        except BaseException:
            with suppress(OSError):  # not empty
                for place in made:
                    place.rmdir()
            raise


def _locked_folder(folder: Path, stack: ExitStack) -> tuple[list[Path], bool]:
    """Which folders were made, and whether there are locks; made again if a run that failed removes it meanwhile."""
    made = make_folder(folder)
    for _ in range(100):
        try:
            return made, stack.enter_context(locked(folder, wait=False))
        except FileNotFoundError:
            made = make_folder(folder)
    return made, stack.enter_context(locked(folder, wait=False))
