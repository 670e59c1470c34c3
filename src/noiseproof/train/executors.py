"""Where runs are trained: concurrently in this process, in processes of this machine, or on the machines of a Ray cluster.

The folders of the runs are the only state: a list of runs that was stopped, or lost a worker, is resumed by starting it again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import os
import re
import signal
import sys
import threading
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from multiprocessing import active_children
from pathlib import Path
from typing import Any, Generic, NoReturn, TypeVar

import torch

from noiseproof.data import Dataset, data_root, open_dataset
from noiseproof.data.registry import name_in_memory
from noiseproof.io.files import BusyError
from noiseproof.train.engine import RunOptions, fast_path_suits, precision_of
from noiseproof.train.loop import Callback, CallbackList, Loop, Outcome
from noiseproof.train.recipe import Recipe
from noiseproof.train.record import Record, environment, task_facts
from noiseproof.train.run import DivergenceError
from noiseproof.train.run_list import (
    AnyOutcome,
    J,
    NotStartedError,
    PlannedRun,
    RunListOutcome,
    concurrent_runs,
    is_disk_error,
    run_batches,
)
from noiseproof.train.runs import RunStore
from noiseproof.train.training_data import resolve_auto, with_noise

T = TypeVar("T")

STOP_SECONDS, PROCESS_STOP_SECONDS = 5.0, 30.0
"""That running runs get to write a checkpoint and end after Ctrl-C: threads, and processes, which are killed afterwards"""
POLL_SECONDS = 0.5
"""How often the records of runs in other processes are read for their epochs"""
RAY_POLL_SECONDS = 5.0
"""The same on a cluster, where the records are in shared storage"""
RAY_RETRIES = 5
"""Times that a group of runs is started again after its worker was lost"""


def train_concurrently(
    recipes: Sequence[Recipe],
    *,
    folders: Sequence[Path] | None = None,
    store: RunStore | None = None,
    data: str | Path | None = None,
    options: RunOptions | None = None,
    at_once: int = 4,
    checkpoint_seconds: float = 60.0,
    callbacks: Sequence[Callback] | None = None,
    may_start: Callable[[Recipe], bool] = lambda recipe: True,
    on_outcome: Callable[[Recipe, Outcome | Exception], None] = lambda recipe, outcome: None,
) -> list[Outcome | Exception]:
    """Train several runs in one process, ``at_once`` of them concurrently; each gives exactly what it would give alone.

    A data set that several recipes name is opened once and is on the device once. Where the fast engine cannot be used, the
    runs follow one another.

    Args:
        recipes: Of one precision, since torch's switches for it are global.
        folders: One for each recipe, or none: then nothing is written.
        store: Finds or names the folders itself.
        data: The folder of data sets.
        options: Where and how the runs are computed.
        at_once: Concurrent runs.
        checkpoint_seconds: The time between two checkpoints of a run.
        callbacks: One for each recipe.
        may_start: Is asked before each run starts; called from several threads.
        on_outcome: Is called when a run ends, from several threads.

    Returns:
        The outcomes in the order of the recipes. For a run that failed its error, and the others continue; for one that may not
        start a NotStartedError.

    Raises:
        ValueError: The recipes have several precisions, or a list has another length.
        OSError: A data set cannot be opened.

    >>> from noiseproof.train import Recipe
    >>> recipes = [Recipe(dataset="digits", loss=loss, epochs=1) for loss in ("ce", "gce")]
    >>> [outcome.record.status for outcome in train_concurrently(recipes)]
    ['finished', 'finished']
    """
    options = options or RunOptions()
    if not recipes:
        return []
    _check(recipes, folders, store, callbacks)
    datasets = {_opened_by(recipe): recipe for recipe in recipes}
    opened = {key: open_dataset(recipe.dataset, data, **recipe.data_options) for key, recipe in datasets.items()}
    if not all(fast_path_suits(recipe, opened[_opened_by(recipe)].train, options) for recipe in recipes):
        at_once = 1  # plain runs share torch's generator, and are no faster concurrently
    options = dataclasses.replace(options, at_once=min(at_once, len(recipes)))

    stopping = threading.Event()

    def one(place: int) -> Outcome | Exception:
        recipe = recipes[place]
        callback = _Stoppable(Callback() if callbacks is None else callbacks[place], stopping)
        outcome: Outcome | Exception
        try:
            if stopping.is_set() or not may_start(recipe):
                return NotStartedError(f"{recipe.loss} on {recipe.dataset}, {recipe.noise}, seed {recipe.seed}: not started")
            task = with_noise(opened[_opened_by(recipe)], recipe, data_root(data))
            chosen = resolve_auto(recipe, task)
            folder = None if folders is None else folders[place]
            if store is not None:
                folder = store.folder_for(chosen, task_facts(chosen, task))
            outcome = Loop(chosen, task, folder, data, options, checkpoint_seconds, callback).run()
        except Exception as error:  # one run's error must not end the others
            traceback.clear_frames(error.__traceback__)  # the frames hold the run, and its memory on the device
            outcome = error
        if not isinstance(outcome, _StoppedError):
            on_outcome(recipe, outcome)
        return outcome

    with precision_of(recipes[0], options.deterministic):
        return run_in_threads(one, len(recipes), at_once, stopping)


def _opened_by(recipe: Recipe) -> tuple[str, str]:
    return recipe.dataset, repr(sorted(recipe.data_options.items()))


def run_in_threads(one: Callable[[int], T], count: int, at_once: int, stopping: threading.Event) -> list[T]:
    """``one(0)``, ``one(1)``, ..., ``at_once`` of them at a time; an error, or Ctrl-C, sets ``stopping`` for the others."""
    pool = ThreadPoolExecutor(at_once)
    futures = [pool.submit(one, place) for place in range(count)]
    try:
        ended, _ = wait(futures, return_when=FIRST_EXCEPTION)
        for future in ended:
            if (error := future.exception()) is not None:
                raise error
        return [future.result() for future in futures]
    except BaseException:  # Ctrl-C, say: running runs stop at their next batch
        stopping.set()
        pool.shutdown(wait=False, cancel_futures=True)
        running = [future for future in futures if not future.cancelled()]  # one that never started would be waited for in vain
        wait(running, timeout=STOP_SECONDS)  # one that compiles or captures a graph takes longer, and is not waited for
        raise
    finally:
        pool.shutdown(wait=False)


def _check(
    recipes: Sequence[Recipe],
    folders: Sequence[Path] | None,
    store: RunStore | None,
    callbacks: Sequence[Callback] | None,
) -> None:
    if len({recipe.precision for recipe in recipes}) > 1:
        raise ValueError("concurrent runs must have one precision; train the others after them")
    for what, given in (("folder", folders), ("callback", callbacks)):
        if given is not None and len(given) != len(recipes):
            raise ValueError(f"there must be one {what} for each recipe: {len(recipes)} recipes, {len(given)} {what}s")
    if folders is not None and store is not None:
        raise ValueError("folders and store both say where the runs are written; give one of them")


class _StoppedError(Exception):
    """All runs are to stop."""


class _Stoppable(CallbackList):
    """Raises at the next batch once the runs are to stop."""

    def __init__(self, callback: Callback, stopping: threading.Event) -> None:
        super().__init__(callback)
        self.stopping = stopping

    def on_batch_end(self, epoch: int, done: int, total: int) -> None:
        if self.stopping.is_set():
            raise _StoppedError
        super().on_batch_end(epoch, done, total)


@dataclass
class RunList(Generic[J]):
    """Runs to train in order, and what follows them.

    Args:
        planned: The runs; those that are over are left out.
        store: Where their folders are.
        data: The folder of data sets.
        at_once: Concurrent runs on a device; by default as many as fill it.
        minutes: Start nothing that would not end in this time.
        seconds: How long a run takes beside so many concurrent ones, by the clock. A run of which that is not known starts.
        callback: Returns what follows a run. Of a run in another process it hears of the start and of each epoch.
        on_outcome: Is called when a run has ended, from several threads.
        checkpoint_seconds: The time between two checkpoints of a run.
    """

    planned: Sequence[PlannedRun[J]]
    store: RunStore
    data: str | Path | None = None
    at_once: int | None = None
    minutes: float | None = None
    seconds: Callable[[PlannedRun[J], int], float | None] = lambda run, width: None
    callback: Callable[[PlannedRun[J]], Callback] = lambda run: Callback()
    on_outcome: Callable[[PlannedRun[J], AnyOutcome], None] = lambda run, outcome: None
    checkpoint_seconds: float = 60.0

    @property
    def end(self) -> float | None:
        """When the last run is to have ended, if the list is trained from now on."""
        return None if self.minutes is None else time.time() + 60 * self.minutes


class Executor(ABC):
    """Trains lists of runs. One that fails or diverges is reported, and the others go on unless there is no place to write to.

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

    @abstractmethod
    def run(self, runs: RunList[J]) -> RunListOutcome[J]:
        """Train the runs that are not over. Those of one precision and network are trained concurrently."""

    def close(self) -> None:  # noqa: B027 - most start nothing
        """End what was started."""


def machine_name(options: RunOptions) -> str:
    """The name that records give the device."""
    return str(environment(options.device)["machine"])


class LocalExecutor(Executor):
    """Trains lists of runs in this process."""

    def run(self, runs: RunList[J]) -> RunListOutcome[J]:
        result, end = RunListOutcome[J](), runs.end
        for part in run_batches(runs.planned, self.device, runs.at_once):
            self._train(part, runs, end, result)
        return result

    def _train(self, part: list[PlannedRun[J]], runs: RunList[J], end: float | None, result: RunListOutcome[J]) -> None:
        by_recipe = {id(run.recipe): run for run in part}
        width = concurrent_runs(part[0].facts["model"], self.device, runs.at_once)

        def in_time(recipe: Recipe) -> bool:
            seconds = runs.seconds(by_recipe[id(recipe)], min(width, len(part)))
            return result.disk_error is None and (end is None or time.time() + (seconds or 0.0) <= end)

        def heard(recipe: Recipe, outcome: Outcome | Exception) -> None:
            if is_disk_error(outcome):
                result.disk_error = outcome
            runs.on_outcome(by_recipe[id(recipe)], outcome)

        try:
            outcomes = train_concurrently(
                [run.recipe for run in part],
                store=runs.store,
                data=runs.data,
                options=self.options,
                at_once=width,
                checkpoint_seconds=runs.checkpoint_seconds,
                callbacks=[runs.callback(run) for run in part],
                may_start=in_time,
                on_outcome=heard,
            )
        except (ValueError, OSError, ImportError) as error:  # the data could not be opened
            outcomes = [error] * len(part)
            runs.on_outcome(part[0], error)
        for run, outcome in zip(part, outcomes, strict=True):
            result.add(run, outcome)


class WorkerError(RuntimeError):
    """What a run in another process ended with, in words."""


class _Follower:
    """Tells a callback of a run in another process, from its record."""

    def __init__(self, callback: Callback, folder: Path) -> None:
        self.callback, self.folder, self.told = callback, folder, -1

    def look(self) -> None:
        record = None
        with contextlib.suppress(OSError, ValueError):  # not there yet, or no record of this version
            record = Record.read(self.folder)
        if record is None:
            return
        if self.told < 0:
            self.told = len(record.epochs)
            self.callback.on_train_begin(record, self.told)
        for facts in record.epochs[self.told :]:
            self.callback.on_epoch_end(facts)
        self.told = max(self.told, len(record.epochs))


class WorkerExecutor(Executor):
    """Trains lists of runs in other processes, a task for as many runs as a device trains concurrently."""

    at_once: int
    """Tasks that can be at work"""
    most_waiting: int | None = None
    """Further ones that are submitted; None for all"""

    @abstractmethod
    def submit(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Begin a task."""

    @abstractmethod
    def ended(self, tasks: list[Any]) -> Iterable[Any]:
        """Wait for a while, and return tasks that have ended."""

    @abstractmethod
    def outcomes(self, task: Any, count: int) -> list[AnyOutcome]:
        """What a task that has ended returned, or the same error for each of its runs."""

    def cancel(self, tasks: Iterable[Any]) -> None:
        """Let tasks that have not begun end at once."""

    def run(self, runs: RunList[J]) -> RunListOutcome[J]:
        result, end = RunListOutcome[J](), runs.end
        waiting = self._groups(runs)
        tasks: dict[Any, tuple[list[PlannedRun[J]], list[_Follower]]] = {}
        while waiting or tasks:
            while waiting and (self.most_waiting is None or len(tasks) < self.at_once + self.most_waiting):
                group = waiting.pop(0)
                jobs = [(run.recipe, runs.seconds(run, len(group))) for run in group]
                root, data = runs.store.root.resolve(), None if runs.data is None else Path(runs.data).expanduser().resolve()
                task = self.submit(_train_group, jobs, root, data, self.options, runs.checkpoint_seconds, end)
                tasks[task] = group, [_Follower(runs.callback(run), runs.store.folder_for(run.recipe)) for run in group]
            for task in self.ended(list(tasks)):
                group, _ = tasks.pop(task)
                for run, outcome in zip(group, self.outcomes(task, len(group)), strict=True):
                    result.add(run, outcome)
                    if not isinstance(outcome, NotStartedError):
                        runs.on_outcome(run, outcome)
            for _, followers in list(tasks.values())[: self.at_once]:
                for follower in followers:
                    follower.look()
            if result.disk_error is not None:
                result.not_started += [run for group in waiting for run in group]
                waiting = []
                self.cancel(tasks)
        return result

    def _groups(self, runs: RunList[J]) -> list[list[PlannedRun[J]]]:
        found = []
        for part in run_batches(runs.planned, self.device, runs.at_once):
            width = concurrent_runs(part[0].facts["model"], self.device, runs.at_once)
            found += [part[first : first + width] for first in range(0, len(part), width)]
        return found


def _train_group(
    jobs: Sequence[tuple[Recipe, float | None]],
    root: Path,
    data: Path | None,
    options: RunOptions,
    checkpoint_seconds: float,
    end: float | None,
) -> list[dict[str, Any] | Exception]:
    """In a worker: concurrent runs, each with the seconds until its end. Returns the record or the error of each."""
    seconds = {id(recipe): estimate or 0.0 for recipe, estimate in jobs}
    outcomes = train_concurrently(
        [recipe for recipe, _ in jobs],
        store=RunStore(root),
        data=data,
        options=dataclasses.replace(options),  # which asks for this process's current device
        at_once=len(jobs),
        checkpoint_seconds=checkpoint_seconds,
        may_start=lambda recipe: end is None or time.time() + seconds[id(recipe)] <= end,
    )
    return [outcome.record.as_dict() if isinstance(outcome, Outcome) else _plain(outcome) for outcome in outcomes]


def _plain(error: Exception) -> Exception:
    """One that can be sent: other packages' errors may not come through pickle."""
    if isinstance(error, NotStartedError | BusyError | DivergenceError):
        return type(error)(str(error))
    if is_disk_error(error):
        return OSError(error.errno, error.strerror, error.filename)
    return WorkerError(f"{type(error).__name__}: {error}")


class ProcessExecutor(WorkerExecutor):
    """Trains lists of runs in processes of this machine, each with one thread unless the options say more.

    Each process is a loky pool of its own: one that is killed fails its run, and the others go on.

    Args:
        options: Where and how the runs are computed.
        at_once: The number of processes.
        held: Data sets in memory, by the names that recipes have for them.
    """

    most_waiting = 0

    def __init__(self, options: RunOptions, at_once: int, held: Mapping[str, Dataset] | None = None) -> None:
        super().__init__(options)
        self.at_once, self.before, self.held = at_once, set(active_children()), dict(held or {})
        self.idle, self.busy = list[Any](), dict[Future[Any], Any]()

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        pool = self.idle.pop() if self.idle else _pool(self.options.threads or 1, self.held)
        task: Future[Any] = pool.submit(function, *arguments)
        self.busy[task] = pool
        return task

    def ended(self, tasks: list[Future[Any]]) -> Iterable[Future[Any]]:
        return wait(tasks, POLL_SECONDS, FIRST_COMPLETED).done

    def outcomes(self, task: Future[Any], count: int) -> list[AnyOutcome]:
        pool = self.busy.pop(task)
        if (error := task.exception()) is None:
            self.idle.append(pool)
            return list(task.result())
        pool.shutdown(kill_workers=True)
        from_loky = type(error).__module__.startswith("joblib")
        return [error if isinstance(error, Exception) and not from_loky else WorkerError(_killed(error))] * count

    def close(self) -> None:
        """End the processes; a run that is interrupted writes a checkpoint first."""
        if self.busy:
            for process in set(active_children()) - self.before:
                process.terminate()
            wait(self.busy, PROCESS_STOP_SECONDS)
        for pool in (*self.idle, *self.busy.values()):
            pool.shutdown(kill_workers=bool(self.busy))


def _pool(threads: int, held: Mapping[str, Dataset]) -> Any:
    from joblib.externals.loky import ProcessPoolExecutor  # unlike the standard library's, it does not run the caller's script

    begins: dict[str, Any] = {"initializer": _begin_process, "initargs": (threads, held)}
    return ProcessPoolExecutor(1, env={"OMP_NUM_THREADS": str(threads)}, **begins)


def _begin_process(threads: int, held: Mapping[str, Dataset]) -> None:
    name_in_memory(held)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this process
    signal.signal(signal.SIGTERM, _terminate)
    torch.set_num_threads(threads)


def _terminate(number: int, frame: Any) -> NoReturn:
    """The run writes a checkpoint on its way out."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise SystemExit(128 + number)


def _killed(error: BaseException) -> str:
    """How a process ended that returned nothing; loky names the signal in its message."""
    if (found := re.search(r"\{(SIG\w+)\(", str(error))) is None:
        return f"{type(error).__name__}: {error}"
    why = ", as the system does when memory runs out" if found[1] == "SIGKILL" else ""
    return f"its process was ended by {found[1]}{why}"


class RayExecutor(WorkerExecutor):
    """Trains lists of runs on the machines of a Ray cluster.

    Every machine must have noiseproof installed and see the runs and the data under the same paths. The task of a lost worker
    is started again: runs that are finished stay, others resume from their checkpoints.

    Args:
        address: Of the cluster; by default the one this process is connected to, or a new one on this machine.
        device: auto, cpu or cuda.

    Raises:
        ImportError: Ray is not installed.
    """

    def __init__(self, address: str | None = None, device: str = "auto") -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # the behaviour to come; saves a warning
        try:
            ray: Any = importlib.import_module("ray")
        except ImportError as error:
            raise ImportError("--engine ray needs Ray: pip install '.[cluster]' in noiseproof's repository") from error
        self.ray = ray
        self.started = not ray.is_initialized()
        if self.started:
            before = signal.getsignal(signal.SIGTERM)
            local: dict[str, Any] = {} if address else {"include_dashboard": False, "object_store_memory": 2**27}
            ray.init(address=address, log_to_driver=False, logging_level="error", **local)
            signal.signal(signal.SIGTERM, before)  # Ray's own would not stop the runs
        resources = ray.cluster_resources()
        found = "cuda" if resources.get("GPU") else "cpu"
        super().__init__(RunOptions(torch.device(found if device == "auto" else torch.device(device).type)))
        self.at_once = int(resources.get("GPU" if self.device == "cuda" else "CPU", 1))

    @functools.cached_property
    def machine(self) -> str:
        """The name that records give the device of a worker."""
        return str(self.ray.get(self.submit(machine_name, self.options)))

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Any:
        needs = {"num_gpus": 1, "num_cpus": 1} if self.device == "cuda" else {"num_cpus": 1}
        return self.ray.remote(function).options(max_retries=RAY_RETRIES, **needs).remote(*arguments)

    def ended(self, tasks: list[Any]) -> Iterable[Any]:
        with contextlib.redirect_stdout(sys.stderr):  # where Ray tells of lost workers
            return list(self.ray.wait(tasks, num_returns=1, timeout=RAY_POLL_SECONDS)[0])

    def outcomes(self, task: Any, count: int) -> list[AnyOutcome]:
        try:
            with contextlib.redirect_stdout(sys.stderr):
                return list(self.ray.get(task))
        except self.ray.exceptions.TaskCancelledError:
            return [NotStartedError("not started")] * count
        except self.ray.exceptions.RayTaskError as error:  # the same for all: their data could not be opened
            return [error.cause if isinstance(error.cause, Exception) else error] * count
        except self.ray.exceptions.RayError as error:
            return [WorkerError(f"its worker was lost {RAY_RETRIES + 1} times: {error}")] * count

    def cancel(self, tasks: Iterable[Any]) -> None:
        for task in tasks:
            self.ray.cancel(task)

    def close(self) -> None:
        """End the workers, and the cluster if this process started it."""
        if self.started:
            self.ray.shutdown()
