"""Lists of runs: what is known of each, and what came of them. What is finished is not run again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from noiseproof.io.files import BusyError
from noiseproof.io.text import parse_json
from noiseproof.train.executors import AnyOutcome, NotStartedError, is_disk_error
from noiseproof.train.recipe import Recipe, current_names, default_facts
from noiseproof.train.record import CHECKPOINT
from noiseproof.train.runs import StoredRun, recipe_key

ENDED = ("finished", "diverged")
"""What a run does not begin again from; the first counts where one run ended in both ways"""


class Job(Protocol):
    """A run that is known by its recipe's fields; the recipe itself is built when it is to be trained."""

    @property
    def facts(self) -> Mapping[str, Any]: ...
    @property
    def recipe(self) -> Recipe: ...


J = TypeVar("J", bound=Job | Recipe)


@dataclass(frozen=True)
class PlannedRun(Generic[J]):
    """A run of a list, and what is known of it already."""

    job: J
    facts: Mapping[str, Any]
    """The recipe's fields"""
    stored: StoredRun | None
    done: int = 0
    """Epochs that need not be trained again"""

    @property
    def recipe(self) -> Recipe:
        return self.job if isinstance(self.job, Recipe) else self.job.recipe

    @property
    def status(self) -> str:
        """finished, diverged, running (a part is done), or waiting."""
        return "waiting" if self.stored is None else self.stored.status


def plan_runs(jobs: Iterable[J], known: Iterable[StoredRun], *, retry: bool = False) -> list[PlannedRun[J]]:
    """The runs in order, with what is known of them. No data are opened: a run is known by its recipe.

    In which epochs its confidence is kept does not count: a run with others is not run again. With ``retry``, those that
    diverged are to be run again.
    """
    stored: dict[str, StoredRun] = {}
    for run in known:
        if "recipe" in run.facts and not (retry and run.status == "diverged"):
            key = _key(run.facts["recipe"])
            stored[key] = min(stored.get(key, run), run, key=_rank)
    planned = []
    for one in jobs:
        facts = one.as_dict() if isinstance(one, Recipe) else one.facts
        found = stored.get(_key(facts))
        done = _epochs_kept(found.folder) if found and found.folder and found.status == "running" else 0
        planned.append(PlannedRun(one, facts, found, done))
    return planned


def _epochs_kept(folder: Path) -> int:
    """How many epochs are behind the checkpoint in a folder, to plan with: no tensor is read, and nothing is checked."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(folder / CHECKPOINT, "pt") as file:
            return len(parse_json(file.metadata()["facts"])["epochs"])
    except (SafetensorError, OSError, ValueError, TypeError, KeyError):
        return 0


def _rank(run: StoredRun) -> int:
    return ENDED.index(run.status) if run.status in ENDED else len(ENDED)


def _key(facts: Mapping[str, Any]) -> str:
    """Fields that this version does not know, and that say nothing, are of a later one."""
    known = {name: value for name, value in current_names(facts).items() if value or name in default_facts()}
    return recipe_key({**default_facts(), **known, "confidence_epochs": None})


class RunListOutcome(Generic[J]):
    """What came of a list of runs.

    Args:
        runs: The runs.
        outcomes: Of each, what an executor returned.
    """

    def __init__(self, runs: Sequence[PlannedRun[J]], outcomes: Sequence[AnyOutcome]) -> None:
        self.finished: list[PlannedRun[J]] = []
        self.failed: list[tuple[PlannedRun[J], Exception]] = []
        self.not_started: list[PlannedRun[J]] = []
        self.busy: list[PlannedRun[J]] = []
        """Another process is at work on them"""
        self.disk_error: OSError | None = None
        """What no further run can be written for: the disk is full, or may not be written to"""
        for run, outcome in zip(runs, outcomes, strict=True):
            if isinstance(outcome, NotStartedError):
                self.not_started.append(run)
            elif isinstance(outcome, BusyError):
                self.busy.append(run)
            elif isinstance(outcome, Exception):
                self.failed.append((run, outcome))
            else:
                self.finished.append(run)
            if is_disk_error(outcome):
                self.disk_error = outcome
