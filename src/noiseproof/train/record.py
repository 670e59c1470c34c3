"""What a run writes about itself: one JSON file that grows with the epochs."""

from __future__ import annotations

import functools
import json
import platform
import subprocess
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from noiseproof.files import write_whole
from noiseproof.train.network import model_code_hash
from noiseproof.train.recipe import Recipe
from noiseproof.train.task import Task
from noiseproof.version import __version__

__all__ = ["RECORD", "Epoch", "Record", "environment", "task_facts"]

FORMAT = 1
RECORD = "record.json"
KEYS = ("format", "status", "message", "result", "recipe", "loss", "task", "environment", "seconds", "epochs")
Status = Literal["running", "finished", "diverged"]


@dataclass(frozen=True)
class Epoch:
    """One epoch. Accuracies are shares of 1; those on given and clean labels were counted while training."""

    epoch: int
    loss: float
    given_accuracy: float
    clean_accuracy: float | None
    test_accuracy: float | None
    lr: float
    seconds: float
    other_accuracies: dict[str, float] = field(default_factory=dict)
    """On further examples to test on, by name"""


@dataclass
class Record:
    """A run's facts, as ``record.json`` holds them. The result is the last epoch's; no other epoch is ever chosen.

    They are read as they stand: a record outlives the losses, the models and the fields of recipes that it names.
    """

    recipe: dict[str, Any]
    task: dict[str, Any]
    environment: dict[str, Any]
    epochs: list[Epoch] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    """By phase: prepare, train, evaluate, save"""
    result: dict[str, float | int | None] = field(default_factory=dict)
    status: Status = "running"
    message: str = ""
    loss: str = ""
    """With all its options: the recipe has only those that were given"""

    @staticmethod
    def of(recipe: Recipe, task: Task, environment: dict[str, Any]) -> Record:
        return Record(recipe.as_dict(), task_facts(recipe, task), environment, loss=repr(recipe.criterion()))

    @staticmethod
    def status_in(facts: Mapping[str, Any]) -> Status:
        """The status; facts that were kept without one are of a finished run if they have a result."""
        status: Status = facts.get("status") or ("finished" if facts["result"] else "running")
        return status

    def add_seconds(self, phase: str, seconds: float) -> None:
        self.seconds[phase] = self.seconds.get(phase, 0.0) + seconds

    def as_dict(self) -> dict[str, Any]:
        seconds = {phase: round(seconds, 3) for phase, seconds in self.seconds.items()}
        facts = asdict(self) | {"format": FORMAT, "seconds": seconds}
        return {key: facts[key] for key in KEYS}

    @staticmethod
    def from_dict(facts: Mapping[str, Any]) -> Record:
        """What :meth:`as_dict` gave, also without its epochs; a ValueError if it has another format."""
        if (found := facts.get("format", FORMAT)) != FORMAT:
            raise ValueError(f"format {FORMAT} expected, found {found}")
        known = {field.name for field in fields(Epoch)}
        epochs = [Epoch(**{key: value for key, value in epoch.items() if key in known}) for epoch in facts.get("epochs", [])]
        needed = {key: facts[key] for key in ("recipe", "task", "environment", "seconds", "result")}
        told = {key: facts.get(key, "") for key in ("message", "loss")}
        return Record(**needed, **told, epochs=epochs, status=Record.status_in(facts))

    def write(self, folder: Path) -> None:
        text = json.dumps(self.as_dict(), indent=1)
        write_whole(folder / RECORD, lambda path: path.write_text(text, encoding="utf-8"))

    @staticmethod
    def read(folder: Path) -> Record | None:
        """The record in a folder, if there is one; a ValueError if it is not readable as one."""
        path = folder / RECORD
        if not path.is_file():
            return None
        try:
            return Record.from_dict(json.loads(path.read_text(encoding="utf-8")))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{path}: not the record of a run: {error}; move it away to start anew") from error


def task_facts(recipe: Recipe, task: Task) -> dict[str, Any]:
    """What identifies the data that a recipe is trained on, and the code of a user's own model."""
    facts: dict[str, Any] = {
        "name": task.name,
        "classes": len(task.classes),
        "examples": len(task.train),
        "test_examples": 0 if task.test is None else len(task.test),
        "noise": task.noise,
        "sources": task.sources,
    }
    if task.other_tests:
        facts["other_tests"] = {name: len(split) for name, split in task.other_tests.items()}
    if (code := model_code_hash(recipe)) is not None:
        facts["model"] = code
    return facts


def environment(device: torch.device) -> dict[str, Any]:
    """Versions, the commit of the code if it runs from its repository, the machine, and today's date."""
    return {**_code_and_machine(device), "date": time.strftime("%Y-%m-%d")}


@functools.cache
def _code_and_machine(device: torch.device) -> dict[str, Any]:
    return {
        "noiseproof": __version__,
        "commit": _commit(Path(__file__)),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "machine": torch.cuda.get_device_name(device) if device.type == "cuda" else _processor(),
        "threads": torch.get_num_threads(),
    }


def _commit(file: Path) -> str | None:
    """Of the repository that tracks the file; a user's repository around an installed copy does not count."""

    def git(*words: str) -> str:
        command = ["git", "-C", str(file.parent), *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", file.name)
        return git("describe", "--always", "--dirty", "--abbrev=12", "--exclude=*") or None
    except (OSError, subprocess.SubprocessError):
        return None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.processor() or platform.machine()
