"""Lists of runs: what is known of each, in which order they are trained, and what came of them.

What is finished is not run again. The folders of the runs are the only state: a list that was stopped, killed or divided among
machines is resumed by starting it again.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeGuard, TypeVar

from noiseproof.io.files import BusyError
from noiseproof.train.loop import Outcome
from noiseproof.train.recipe import Recipe, current_names, default_facts
from noiseproof.train.runs import StoredRun, epochs_kept, recipe_key

RUNS_PER_GPU = {"cnn8": 6, "resnet18": 3, "resnet34": 3}
"""Concurrent runs of a network that fill a large GPU (an H200); a run of any other network fills it alone"""
ENDED = ("finished", "diverged")
"""What a run does not begin again from; the first counts where one run ended in both ways"""
DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
"""Errors of writing that the next run would have too"""


AnyOutcome = Outcome | Mapping[str, Any] | Exception
"""Of a run: of this process, the record of another one's, or its error"""


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
        done = epochs_kept(found.folder) if found and found.folder and found.status == "running" else 0
        planned.append(PlannedRun(one, facts, found, done))
    return planned


def _rank(run: StoredRun) -> int:
    return ENDED.index(run.status) if run.status in ENDED else len(ENDED)


def _key(facts: Mapping[str, Any]) -> str:
    """Fields that this version does not know, and that say nothing, are of a later one."""
    known = {name: value for name, value in current_names(facts).items() if value or name in default_facts()}
    return recipe_key({**default_facts(), **known, "confidence_epochs": None})


@dataclass
class RunListOutcome(Generic[J]):
    """What came of a list of runs."""

    finished: list[PlannedRun[J]] = field(default_factory=list)
    failed: list[tuple[PlannedRun[J], Exception]] = field(default_factory=list)
    not_started: list[PlannedRun[J]] = field(default_factory=list)
    busy: list[PlannedRun[J]] = field(default_factory=list)
    """Another process is at work on them"""
    disk_error: OSError | None = None
    """What no further run can be written for: the disk is full, or may not be written to"""

    def add(self, run: PlannedRun[J], outcome: AnyOutcome) -> None:
        """What came of one of them."""
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


class NotStartedError(Exception):
    """The run was not to start; the same call later starts it."""


def is_disk_error(outcome: object) -> TypeGuard[OSError]:
    """Whether it is an error that all further runs would end with, each after its whole training."""
    return isinstance(outcome, OSError) and outcome.errno in DISK_ERRORS


def concurrent_runs(model: str, device: str, at_once: int | None = None) -> int:
    """How many runs of a network are trained at the same time on a device of this type, unless ``at_once`` says it.

    >>> concurrent_runs("cnn8", "cuda"), concurrent_runs("cnn8", "cpu"), concurrent_runs("cnn8", "cpu", 2)
    (6, 1, 2)
    """
    return at_once or (RUNS_PER_GPU.get(model, 1) if device == "cuda" else 1)


def run_batches(planned: Iterable[PlannedRun[J]], device: str, at_once: int | None = None) -> Iterator[list[PlannedRun[J]]]:
    """What is not over, in parts of one precision, network and data set: those of one seed, if few also of the next.

    A part ends when its last run ends, so a device is idle for a while after each: there should be few of them.
    """
    todo = [run for run in planned if run.status not in ENDED]
    while todo:
        first = todo[0].facts
        width = concurrent_runs(first["model"], device, at_once)
        same = [run for run in todo if all(run.facts[name] == first[name] for name in ("precision", "model", "dataset"))]
        of_seed = [run for run in same if run.facts["seed"] == first["seed"]]
        part = of_seed if len(of_seed) >= 4 * width else same[: 4 * width]
        yield part
        taken = set(map(id, part))
        todo = [run for run in todo if id(run) not in taken]
