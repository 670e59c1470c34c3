"""Many runs in order: what is finished is not run again, several run concurrently, and none starts that would not end in time.

The folders of the runs are the only state: a list that was stopped, killed or divided among machines is resumed by starting it
again.
"""

from __future__ import annotations

import errno
import statistics
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import torch

from noiseproof.io.files import exists, is_file, locked, remove_partial
from noiseproof.io.text import read_json
from noiseproof.train.concurrent import NotStartedError, concurrent_runs, train_concurrently
from noiseproof.train.engine import RunOptions
from noiseproof.train.loop import Callback, Outcome
from noiseproof.train.recipe import Recipe, current_names, default_facts
from noiseproof.train.record import RECORD, environment
from noiseproof.train.record_files import compact, merge, read_records, run_line, write_records
from noiseproof.train.run import DivergenceError
from noiseproof.train.runs import BusyError, RunStore, StoredRun, epochs_kept, identity, recipe_key

__all__ = [
    "ENDED",
    "Job",
    "PlannedRun",
    "RunCosts",
    "RunListOutcome",
    "machine_name",
    "plan_runs",
    "run_batches",
    "shard",
    "train_runs",
]

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
    """A run of a list: what is known of it already, and how long it would keep the device busy."""

    job: J
    facts: Mapping[str, Any]
    """The recipe's fields"""
    stored: StoredRun | None
    seconds: float | None
    """Its share of the device's time; None if no such run has been measured"""
    done: int = 0
    """Epochs that need not be trained again"""

    @property
    def recipe(self) -> Recipe:
        return self.job if isinstance(self.job, Recipe) else self.job.recipe

    @property
    def status(self) -> str:
        """finished, diverged, running (a part is done), or waiting."""
        return "waiting" if self.stored is None else self.stored.status


class RunCost(NamedTuple):
    """Seconds of the device's time that a run took to begin and for an epoch, with so many concurrent runs."""

    begin: float
    epoch: float
    at_once: int

    def of(self, epochs: int) -> float:
        return self.begin + self.epoch * epochs

    def wall(self, epochs: int, width: int) -> float:
        """By the clock, with so many concurrent runs or as many as were measured: fewer do not fill the device."""
        return self.of(epochs) * max(width, self.at_once)


class RunCosts:
    """How long a run keeps the device busy, measured by finished runs of the same network, data and precision.

    ``measured`` are numbers from elsewhere, seconds of an epoch by :meth:`key`, for what no run here has measured.
    """

    def __init__(self, machine: str, measured: Mapping[tuple[str, ...], float] | None = None) -> None:
        self.machine, self._measured, self._lock = machine, dict(measured or {}), threading.Lock()
        self._found: dict[tuple[str, ...], list[RunCost]] = {}
        self._last: dict[tuple[str, ...], RunCost] = {}

    @staticmethod
    def key(machine: str, facts: Mapping[str, Any]) -> tuple[str, ...]:
        return machine, facts["dataset"], facts["model"], facts["precision"]

    def add(self, record: Mapping[str, Any], *, just_now: bool = False) -> None:
        """A finished run's record: its seconds, divided among the runs that shared the device with it."""
        made, seconds = record.get("environment") or {}, record.get("seconds") or {}
        if not (seconds.get("train") and made.get("machine")):
            return
        try:
            at_once = made.get("at_once") or record.get("at_once") or 1
            begin = seconds.get("prepare", 0.0)
            epoch = (sum(seconds.values()) - begin) / record["recipe"]["epochs"]
            key, cost = self.key(made["machine"], record["recipe"]), RunCost(begin / at_once, epoch / at_once, at_once)
            with self._lock:
                self._found.setdefault(key, []).append(cost)
                if just_now:
                    self._last[key] = cost
        except (KeyError, TypeError, ZeroDivisionError):
            return  # a record with odd fields measures nothing

    def seconds(self, facts: Mapping[str, Any], done: int = 0) -> float | None:
        """Of the device's time that a run of such a recipe takes after the epochs that are done, or None."""
        costs = self._costs(facts)
        return statistics.median(cost.of(facts["epochs"] - done) for cost in costs) if costs else None

    def until_end(self, facts: Mapping[str, Any], done: int, width: int) -> float | None:
        """The same by the clock, with so many concurrent runs; at least what the last run took: a device may be slower."""
        if not (costs := self._costs(facts)):
            return None
        last = self._last.get(self.key(self.machine, facts))
        left = facts["epochs"] - done
        usual = statistics.median(cost.wall(left, width) for cost in costs)
        return usual if last is None else max(usual, last.wall(left, width))

    def is_measured(self, facts: Mapping[str, Any]) -> bool:
        """Whether a run on this machine has measured it."""
        return self.key(self.machine, facts) in self._found

    def _costs(self, facts: Mapping[str, Any]) -> list[RunCost]:
        key = self.key(self.machine, facts)
        with self._lock:
            found = list(self._found.get(key, ()))
        if not found and key in self._measured:
            found = [RunCost(0.0, self._measured[key], concurrent_runs(facts["model"], "cuda"))]
        return found


def plan_runs(jobs: Iterable[J], known: Iterable[StoredRun], costs: RunCosts, *, retry: bool = False) -> list[PlannedRun[J]]:
    """The runs in order, with what is known of them. No data are opened: a run is known by its recipe.

    In which epochs its confidence is kept does not count: a run with others is not run again. With ``retry``, those that
    diverged are to be run again.
    """
    stored: dict[str, StoredRun] = {}
    for run in known:
        if run.status == "finished":
            costs.add(run.facts)
        if "recipe" in run.facts and not (retry and run.status == "diverged"):
            key = _key(run.facts["recipe"])
            stored[key] = min(stored.get(key, run), run, key=_rank)
    planned = []
    for one in jobs:
        facts = one.as_dict() if isinstance(one, Recipe) else one.facts
        found = stored.get(_key(facts))
        done = epochs_kept(found.folder) if found and found.folder and found.status == "running" else 0
        planned.append(PlannedRun(one, facts, found, costs.seconds(facts, done), done))
    return planned


def _rank(run: StoredRun) -> int:
    return ENDED.index(run.status) if run.status in ENDED else len(ENDED)


def _key(facts: Mapping[str, Any]) -> str:
    """Fields that this version does not know, and that say nothing, are of a later one."""
    known = {name: value for name, value in current_names(facts).items() if value or name in default_facts()}
    return recipe_key({**default_facts(), **known, "confidence_epochs": None})


T = TypeVar("T")


def shard(runs: Sequence[T], part: int, parts: int) -> list[T]:
    """The runs of one of several machines, counted from 1: every ``parts``-th, so that each has its share of every kind."""
    if not 1 <= part <= parts:
        raise ValueError(f"the part must be in [1, {parts}], got {part}")
    return list(runs[part - 1 :: parts])


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
        if isinstance(outcome, NotStartedError):
            self.not_started.append(run)
        elif isinstance(outcome, BusyError):
            self.busy.append(run)
        elif isinstance(outcome, Exception):
            self.failed.append((run, outcome))
        else:
            self.finished.append(run)

    def note_disk_error(self, outcome: AnyOutcome) -> None:
        """Remember an error that all further runs would end with, each after its whole training."""
        if isinstance(outcome, OSError) and outcome.errno in DISK_ERRORS:
            self.disk_error = outcome


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


def train_runs(
    planned: Sequence[PlannedRun[J]],
    store: RunStore,
    costs: RunCosts,
    *,
    data: str | Path | None = None,
    options: RunOptions | None = None,
    at_once: int | None = None,
    minutes: float | None = None,
    callback: Callable[[PlannedRun[J]], Callback] = lambda run: Callback(),
    on_outcome: Callable[[PlannedRun[J], Outcome | Exception], None] = lambda run, outcome: None,
) -> RunListOutcome[J]:
    """Train the runs that are not over. One that fails or diverges is reported, and the others go on, unless there is no place
    to write them to.

    Runs of one precision and network are trained concurrently, ``at_once`` of them. With ``minutes``, a run only starts if it
    would end in that time, by what such runs have taken; the first of a kind that has not been measured starts.
    """
    options, result = options or RunOptions(), RunListOutcome[J]()
    end = None if minutes is None else time.monotonic() + 60 * minutes
    for part in run_batches(planned, options.device.type, at_once):
        runs = {id(run.recipe): run for run in part}
        width = concurrent_runs(part[0].facts["model"], options.device.type, at_once)

        def in_time(recipe: Recipe, runs: dict[int, PlannedRun[J]] = runs, width: int = min(width, len(part))) -> bool:
            seconds = costs.until_end(recipe.as_dict(), runs[id(recipe)].done, width)
            return result.disk_error is None and (end is None or time.monotonic() + (seconds or 0.0) <= end)

        def heard(recipe: Recipe, outcome: Outcome | Exception, runs: dict[int, PlannedRun[J]] = runs) -> None:
            if isinstance(outcome, Outcome):
                costs.add(outcome.record.as_dict(), just_now=True)
            result.note_disk_error(outcome)
            on_outcome(runs[id(recipe)], outcome)

        try:
            outcomes = train_concurrently(
                [run.recipe for run in part],
                store=store,
                data=data,
                options=options,
                at_once=width,
                callbacks=[callback(run) for run in part],
                may_start=in_time,
                on_outcome=heard,
            )
        except (ValueError, OSError, ImportError) as error:  # the data could not be opened
            outcomes = [error] * len(part)
            on_outcome(part[0], error)
        for run, outcome in zip(part, outcomes, strict=True):
            result.add(run, outcome)
    return result


def machine_name(options: RunOptions) -> str:
    """The name that records give the device."""
    return str(environment(options.device)["machine"])


class Executor(Protocol):
    """Where lists of runs are trained: :class:`LocalExecutor`, or :class:`~noiseproof.train.ray_executor.RayExecutor`."""

    @property
    def device(self) -> str:
        """cpu or cuda."""

    @property
    def machine(self) -> str:
        """The name that records give the device."""

    def run(
        self,
        planned: Sequence[PlannedRun[J]],
        store: RunStore,
        costs: RunCosts,
        *,
        data: str | Path | None = None,
        at_once: int | None = None,
        minutes: float | None = None,
        callback: Callable[[PlannedRun[J]], Callback] = lambda run: Callback(),
        on_outcome: Callable[[PlannedRun[J], AnyOutcome], None] = lambda run, outcome: None,
    ) -> RunListOutcome[J]:
        """As :func:`train_runs`."""

    def close(self) -> None:
        """End what it has started."""


class LocalExecutor:
    """Lists of runs on a device of this machine.

    Args:
        options: Where and how the runs are computed; by default on a GPU if there is one.
    """

    def __init__(self, options: RunOptions | None = None) -> None:
        self.options = options or RunOptions(torch.device("cuda" if torch.cuda.is_available() else "cpu"))

    @property
    def device(self) -> str:
        """cpu or cuda."""
        return self.options.device.type

    @property
    def machine(self) -> str:
        """The name that records give the device."""
        return machine_name(self.options)

    def run(
        self,
        planned: Sequence[PlannedRun[J]],
        store: RunStore,
        costs: RunCosts,
        *,
        data: str | Path | None = None,
        at_once: int | None = None,
        minutes: float | None = None,
        callback: Callable[[PlannedRun[J]], Callback] = lambda run: Callback(),
        on_outcome: Callable[[PlannedRun[J], AnyOutcome], None] = lambda run, outcome: None,
    ) -> RunListOutcome[J]:
        """As :func:`train_runs`."""
        return train_runs(
            planned, store, costs, data=data, options=self.options, at_once=at_once, minutes=minutes, callback=callback,
            on_outcome=on_outcome,
        )  # fmt: skip

    def close(self) -> None:
        """Nothing was started that must end."""


class RecordsFile:
    """A file of records that grows with every run that ends. Several processes may add to it; no line is ever lost.

    Args:
        path: The file; it need not exist. Of a link, the file that it leads to grows.
        store: The folder of the runs; with it, lines also have what else is kept in a run's folder.
    """

    def __init__(self, path: Path, store: RunStore | None = None) -> None:
        self.path, self.store = path.resolve(), store

    def add(self, records: Iterable[dict[str, Any]]) -> None:
        """Add runs that have ended, by their records; a run with the same result is kept once."""
        lines = [self._line(record) for record in records]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with locked(self.path.parent, wait=True) as held:
            if held:
                remove_partial(self.path)
            before = read_records(self.path) if exists(self.path) else []
            after = merge(before, lines)
            if after != before:
                write_records(self.path, after)

    def add_outcome(self, recipe: Recipe, outcome: AnyOutcome) -> None:
        """Add what came of a run, also if it diverged, so that nobody trains it again unknowingly."""
        if isinstance(outcome, DivergenceError):
            self.add_folders([] if self.store is None else [self.store.folder_for(recipe)])
        elif not isinstance(outcome, Exception):
            self.add([outcome.record.as_dict() if isinstance(outcome, Outcome) else dict(outcome)])

    def add_folders(self, folders: Iterable[Path | None]) -> None:
        """Add runs that have ended, by their folders."""
        files = [folder / RECORD for folder in folders if folder is not None]
        self.add([read_json(file) for file in files if is_file(file)])

    def _line(self, record: dict[str, Any]) -> dict[str, Any]:
        stored = None if self.store is None else self.store.find(identity(record["recipe"], record["task"]))
        return compact(record) if stored is None or stored.folder is None else run_line(stored.folder)
