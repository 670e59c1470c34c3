"""What a run writes about itself: one JSON file that grows with the epochs, with the result and its warnings at the end."""

from __future__ import annotations

import functools
import hashlib
import json
import platform
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from noiseproof.data.table_encoder import ENCODER_VERSION
from noiseproof.io.files import ReadError, write_whole
from noiseproof.io.text import and_more, excerpt, printable, read_by, read_json
from noiseproof.train.network import loss_code_hash, model_code_hash
from noiseproof.train.recipe import Recipe
from noiseproof.train.run import ClassCounts, Epoch, Predictions
from noiseproof.train.training_data import TrainingData
from noiseproof.version import __version__

RECORD_FORMAT = 1
RECORD, WEIGHTS, CONFIDENCE, CHECKPOINT = "record.json", "weights.safetensors", "confidence.npz", "checkpoint.safetensors"
ENCODER = "encoder.safetensors"
"""The files in the folder of a run"""
OPTIONAL_KEYS = ("dead", "warnings", "loss_constant", "notes", "files")
"""Fields that records of before do not have; they are left out where they are empty"""
REQUIRED_KEYS = ("recipe", "task", "result")
Status = Literal["running", "finished", "diverged"]


@dataclass(kw_only=True)
class Record:
    """A run's facts, as ``record.json`` contains them. The result is the last epoch's; no other epoch is ever chosen.

    They are read as they stand: a record outlives the losses, the models and the fields of recipes that it names.

    Args:
        recipe: The fields of the recipe.
        task: What identifies the data, their labels and the code of a model of one's own.
        environment: Versions, the machine, and how the run was computed.
        epochs: The numbers of each epoch.
        seconds: By phase: prepare, train, evaluate, save.
        result: The numbers of the last epoch.
        status: running, finished or diverged.
        message: Why it diverged.
        loss: The loss with all its options: the recipe has only those that were given.
        dead: Why a finished run has learned nothing: one class is predicted, or the loss did not move. Empty for others.
        warnings: What a total hides: a class that is never predicted, a loss that was still falling.
        loss_constant: What the loss of every example contains, AMSE's (a - 1)^q / K say; the epochs' losses are without it.
        notes: Why options have the values that were chosen for them, where ``auto`` was asked for.
        files: The SHA-256 of each further file of a finished run, by name.

    >>> from noiseproof.train import Recipe, train
    >>> record = train(Recipe(dataset="digits", loss="ce")).record
    >>> record.status, sorted(record.result)[:2]
    ('finished', ['accuracy_by_class', 'balanced_accuracy'])
    """

    status: Status = "running"
    message: str = ""
    dead: str = ""
    warnings: list[str] = field(default_factory=list)
    result: dict[str, Any] = field(default_factory=dict)
    recipe: dict[str, Any]
    loss: str = ""
    loss_constant: float = 0.0
    notes: list[str] = field(default_factory=list)
    task: dict[str, Any]
    environment: dict[str, Any]
    seconds: dict[str, float] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    epochs: list[Epoch] = field(default_factory=list)

    @staticmethod
    def of(recipe: Recipe, task: TrainingData, environment: dict[str, Any]) -> Record:
        """The record of a run that has not begun.

        Args:
            recipe: What is trained, without ``auto``.
            task: The data.
            environment: What :func:`environment` returns.

        Returns:
            A record without epochs.
        """
        criterion = recipe.criterion()
        return Record(
            recipe=recipe.as_dict(),
            loss=repr(criterion),
            loss_constant=criterion.constant(len(task.classes)),
            notes=list(recipe.why),
            task=task_facts(recipe, task),
            environment=environment,
        )

    @staticmethod
    def status_in(facts: Mapping[str, Any]) -> Status:
        """The status in the facts of a record; without one it is finished if it has a result.

        Args:
            facts: What ``record.json`` contains.

        Returns:
            running, finished or diverged.
        """
        status: Status = facts.get("status") or ("finished" if facts["result"] else "running")
        return status

    def add_seconds(self, phase: str, seconds: float) -> None:
        """Count time.

        Args:
            phase: What it was spent on.
            seconds: How long that took.
        """
        self.seconds[phase] = self.seconds.get(phase, 0.0) + seconds

    def phases(self) -> dict[str, float]:
        """The seconds of each phase as they are kept and shown, so that a run that is shown again looks the same."""
        return {phase: round(seconds, 3) for phase, seconds in self.seconds.items()}

    def as_dict(self) -> dict[str, Any]:
        """The facts as JSON has them."""
        facts = {"format": RECORD_FORMAT, **asdict(self), "seconds": self.phases()}
        return {key: value for key, value in facts.items() if value or key not in OPTIONAL_KEYS}

    @staticmethod
    def from_dict(facts: Mapping[str, Any]) -> Record:
        """The record of which :meth:`as_dict` was written, also without its epochs.

        Args:
            facts: What ``record.json`` contains.

        Returns:
            The record.

        Raises:
            ValueError: They are not the facts of a record, or of another format.
        """
        check_facts(facts, (*REQUIRED_KEYS, "environment", "seconds"))
        known = {field.name for field in fields(Epoch)}
        epochs = [Epoch(**{key: value for key, value in epoch.items() if key in known}) for epoch in facts.get("epochs", [])]
        told = {field.name: facts[field.name] for field in fields(Record) if field.name in facts}
        return Record(**{**told, "epochs": epochs, "status": Record.status_in(facts)})

    def write(self, folder: Path) -> None:
        """Replace ``record.json`` in a folder: a reader finds the old file or the new one, never a part.

        Args:
            folder: The run's.
        """
        text = json.dumps(self.as_dict(), indent=1)
        write_whole(folder / RECORD, lambda path: path.write_text(text, encoding="utf-8"))

    @staticmethod
    def read(folder: Path) -> Record | None:
        """The record in a folder.

        Args:
            folder: The run's.

        Returns:
            The record, or None if there is none.

        Raises:
            ValueError: It is not readable as one.
        """
        path = folder / RECORD
        if not path.is_file():
            return None
        try:
            return Record.from_dict(read_json(path))
        except ValueError as error:
            raise ValueError(f"{path}: not the record of a run: {fault_of(error)}; move it away to start anew") from error


def content_digest(facts: Any) -> str:
    """The SHA-256 of what JSON can hold, of which numbers count by their value: 20 is 20.0."""
    numbers_by_value = json.loads(json.dumps(facts), parse_int=float)
    return hashlib.sha256(json.dumps(numbers_by_value, sort_keys=True).encode()).hexdigest()


def fault_of(error: Exception) -> str:
    """What is wrong with a file, without its name."""
    return error.fault if isinstance(error, ReadError) else str(error)


TEXT_RULE, NUMBER_RULE, SHARE_RULE = "text", "a number", "a share in [0, 1]"
Rule = str | tuple[Any] | list[Any] | dict[str, Any]
"""What a value of a record must be: of a kind; with a tuple null too; a list of such values; an object with rules by key"""
EPOCH_RULES: dict[str, Rule] = {
    **dict.fromkeys(("epoch", "loss", "given_accuracy", "lr", "seconds"), NUMBER_RULE),
    **dict.fromkeys(("clean_accuracy", "test_accuracy"), (NUMBER_RULE,)),
}
RULES: dict[str, Rule] = {
    "recipe": {**dict.fromkeys(("dataset", "loss", "noise", "precision"), (TEXT_RULE,)), "seed": (NUMBER_RULE,)},
    "task": ({"noise": ({"hash": (TEXT_RULE,), "rate": (SHARE_RULE,)},)},),
    "environment": ({},),
    "seconds": ({"*": NUMBER_RULE},),
    "result": {"*_accuracy": (SHARE_RULE,), "macro_f1": (SHARE_RULE,), "accuracy_by_class": [(SHARE_RULE,)]},
    "curve": ({"*": ([(SHARE_RULE,)],)},),
    "files": {"*": TEXT_RULE},
    "epochs": [EPOCH_RULES],
    **dict.fromkeys(("message", "dead", "loss"), TEXT_RULE),
    "warnings": [TEXT_RULE],
    "notes": [TEXT_RULE],
    "loss_constant": NUMBER_RULE,
}


def check_facts(facts: Any, needed: Iterable[str] = REQUIRED_KEYS) -> None:
    """A ValueError that says in which field they are not the facts of a run: records come from other machines and editors."""
    _check("", facts, {})
    if (found := facts.get("format", RECORD_FORMAT)) != RECORD_FORMAT:
        made = facts.get("environment")
        wrote = made.get("noiseproof") if isinstance(made, dict) else None
        raise ValueError(f"format {RECORD_FORMAT} expected, found {_short(found)}{read_by(found, RECORD_FORMAT, wrote)}")
    for key in needed:
        if key not in facts:
            raise ValueError(f"it has no {key!r}")
        _check(key, facts[key], {})
    _check("", facts, RULES)
    if facts.get("status") not in (None, "", *get_args(Status)):
        raise ValueError(f"'status' must be one of {', '.join(get_args(Status))}, found {_short(facts['status'])}")
    for number, epoch in enumerate(facts.get("epochs", []), 1):
        if missing := [key for key in EPOCH_RULES if key not in epoch]:
            raise ValueError(f"epoch {number} has no {missing[0]!r}")
        if epoch["epoch"] != number:
            raise ValueError(f"epoch {number} says that it is epoch {_short(epoch['epoch'])}")


def _check(where: str, value: Any, rule: Rule) -> None:
    if isinstance(rule, tuple):
        if value is None:
            return
        (rule,) = rule
    if isinstance(rule, str):
        number = isinstance(value, int | float) and not isinstance(value, bool)
        fits = isinstance(value, str) if rule == TEXT_RULE else number and (rule == NUMBER_RULE or 0 <= value <= 1)
    else:
        fits = isinstance(value, type(rule))
    if not fits:
        kind = rule if isinstance(rule, str) else "a list" if isinstance(rule, list) else "an object"
        raise ValueError(f"{repr(where) if where else 'a record'} must be {kind}, found {_short(value)}")
    if isinstance(rule, list):
        for place, one in enumerate(value, 1):
            _check(f"{where} {place}", one, rule[0])
    elif isinstance(rule, dict):
        for key, one in value.items():
            wanted = rule.get(key, rule.get("*", rule.get("*_accuracy") if key.endswith("_accuracy") else None))
            if wanted is not None:
                _check(f"{where}.{excerpt(key)}" if where else excerpt(key), one, wanted)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:56]} ..."


def task_facts(recipe: Recipe, task: TrainingData) -> dict[str, Any]:
    """What identifies the data that a recipe is trained on, and the code of a user's own model and loss."""
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
    if task.table is not None and task.train.in_memory and task.train.scaled:
        facts["encoder"] = ENCODER_VERSION  # another one makes other features of the same rows
    codes = {"model": model_code_hash(recipe), "loss": loss_code_hash(recipe)}
    return facts | {name: code for name, code in codes.items() if code is not None}


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


STEEP_LATE_FALL = 0.045
"""A late fall above this is steep. On the digits with 27 % pair noise, ce and jal-ce after 5 to 300 epochs, with SGD and with
Adam, it tells the runs to which more epochs gave several points from those to which they did not."""


def result_of(task: TrainingData, epoch: Epoch, last: Predictions, tested: ClassCounts | None) -> dict[str, Any]:
    """The last epoch's numbers, from its predictions of the training examples and its counts on the test split."""
    agrees = last.predicted == task.train.labels
    result: dict[str, Any] = {
        "epoch": epoch.epoch,
        "test_accuracy": epoch.test_accuracy,
        "given_labels_predicted": _share(agrees),
    }
    if (wrong := task.wrong) is not None:
        result |= {
            "right_labels_learned": _share(agrees[~wrong]),
            "wrong_labels_memorised": _share(agrees[wrong]),
        }
    if tested is not None:
        result |= {"balanced_accuracy": tested.balanced_accuracy, "macro_f1": tested.macro_f1}
        result["accuracy_by_class"] = tested.recalls
    return result


STILL_LOSS = 1e-3
"""A loss whose epochs differ by less than this share of the largest did not move"""


def dead_run(task: TrainingData, epochs: Sequence[Epoch], last: Predictions, tested: ClassCounts | None) -> str:
    """Why a run that ended has learned nothing; nothing if it has learned something.

    Args:
        task: Its data.
        epochs: Its epochs.
        last: Its predictions of the training examples.
        tested: Its counts on the test split, if there is one.

    Returns:
        That one class is predicted for every example, or that the loss did not move.
    """
    predicted = np.flatnonzero(np.bincount(last.predicted) if tested is None else tested.predicted)
    if len(predicted) == 1 and len(np.unique(task.train.labels)) > 1:
        return f"every example is predicted as {_class_in_words(task, int(predicted[0]))}"
    losses = [epoch.loss for epoch in epochs]
    if len(losses) > 2 and max(losses) - min(losses) <= STILL_LOSS * max(map(abs, losses)):
        return f"the loss did not move from {losses[0]:.4g}"
    return ""


def warnings_of(
    loss: str, task: TrainingData, epochs: Sequence[Epoch], last: Predictions, tested: ClassCounts | None
) -> list[str]:
    """Sentences for the user, none if all is well."""
    if dead := dead_run(task, epochs, last, tested):
        return [f"dead run: {dead}"]
    found = []
    if never := _never_predicted(task, last, tested):
        found.append(f"never predicted: class{'es' * (len(never) > 1)} {and_more(never)}")
    warm = bool(epochs) and epochs[0].epoch > 1  # from a warm start there is little left to fall
    if not warm and late_fall(epochs) > STEEP_LATE_FALL:
        more = f"more epochs may give more, --set epochs={4 * len(epochs)}"
        way = f"{more}, or memorise wrong labels" if loss == "ce" else f"robust losses learn slowly, {more}"
        found.append(f"the training loss was still falling steeply at the end: {way}")
    return found


def _never_predicted(task: TrainingData, last: Predictions, tested: ClassCounts | None) -> list[str]:
    """The classes that were there to learn and, on the test split if there is one, to find."""
    classes = len(task.classes)
    there = np.bincount(task.train.labels, minlength=classes) > 0
    if tested is None:
        predicted = np.bincount(last.predicted, minlength=classes)
    else:
        there, predicted = there & (tested.seen > 0), tested.predicted
    return [_class_in_words(task, int(k)) for k in np.flatnonzero(there & (predicted == 0))]


def _class_in_words(task: TrainingData, k: int) -> str:
    return str(k) if (name := task.classes[k]) == str(k) else f"{k} ({printable(name)})"


def late_fall(epochs: Sequence[Epoch]) -> float:
    """The share of the loss's fall since the first epoch that the last tenth of the way brought; 0.1 if it falls steadily.

    The way is the sum of the learning rates: under a schedule that ends near zero every loss is flat in the last epochs.
    """
    losses, rates = (np.asarray([getattr(epoch, name) for epoch in epochs], dtype=np.float64) for name in ("loss", "lr"))
    if len(losses) < 2 or not rates.sum():
        return 0.0
    last = losses[-max(1, len(losses) // 20) :].mean()
    late = np.interp(0.9, np.cumsum(rates) / rates.sum(), losses)
    whole = losses[0] - last
    return max(0.0, float((late - last) / whole)) if whole > 0 else 0.0


def _share(agrees: NDArray[np.bool_]) -> float | None:
    return float(agrees.mean()) if len(agrees) else None
