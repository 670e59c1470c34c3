"""Where lists of runs are trained: in this process, in processes of this machine, or on the machines of a Ray cluster.

What is finished is not run again. The folders of the runs are the only state: a list that was stopped, killed, lost a worker or
is divided among machines is resumed by starting it again.
"""

from __future__ import annotations

import dataclasses
import errno
import functools
import threading
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, as_completed, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard, TypeVar

import torch

from noiseproof.data import Dataset, data_root, open_dataset
from noiseproof.data.registry import name_in_memory
from noiseproof.io.files import BusyError
from noiseproof.io.processes import Cluster, WorkerLostError, process_pool
from noiseproof.train.engine import RunOptions, fast_path_suits, precision_of
from noiseproof.train.loop import Callback, Loop, Outcome, StoppedError
from noiseproof.train.recipe import Recipe
from noiseproof.train.record import environment, task_facts
from noiseproof.train.run import DivergenceError
from noiseproof.train.runs import RunStore
from noiseproof.train.training_data import resolve_auto, with_noise

T = TypeVar("T")
AnyOutcome = Outcome | Mapping[str, Any] | Exception
"""Of a run: of this process, the record of another one's, or its error"""
RUNS_PER_GPU = {"cnn8": 6, "resnet18": 3, "resnet34": 3}
"""Concurrent runs of a network that fill a large GPU (an H200); a run of any other network fills it alone"""
DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
"""Errors of writing that the next run would have too"""


class NotStartedError(Exception):
    """The run was not to start; the same call later starts it."""


class WorkerError(RuntimeError):
    """What a run in another process ended with, in words."""


def is_disk_error(outcome: object) -> TypeGuard[OSError]:
    """Whether it is an error that all further runs would end with, each after its whole training."""
    return isinstance(outcome, OSError) and outcome.errno in DISK_ERRORS


def concurrent_runs(model: str, device: str, at_once: int | None = None) -> int:
    """How many runs of a network are trained at the same time on a device of this type, unless ``at_once`` says it.

    >>> concurrent_runs("cnn8", "cuda"), concurrent_runs("cnn8", "cpu"), concurrent_runs("cnn8", "cpu", 2)
    (6, 1, 2)
    """
    return at_once or (RUNS_PER_GPU.get(model, 1) if device == "cuda" else 1)


def run_batches(recipes: Iterable[Recipe], device: str, at_once: int | None = None) -> Iterator[list[Recipe]]:
    """The runs in parts of one precision, network and data set: those of one seed, if few also of the next.

    A part ends when its last run ends, so a device is idle for a while after each: there should be few of them.
    """
    todo = list(recipes)
    while todo:
        first = todo[0]
        width = concurrent_runs(first.model, device, at_once)
        kind = first.precision, first.model, first.dataset
        same = [one for one in todo if (one.precision, one.model, one.dataset) == kind]
        of_seed = [one for one in same if one.seed == first.seed]
        part = of_seed if len(of_seed) >= 4 * width else same[: 4 * width]
        yield part
        taken = set(map(id, part))
        todo = [one for one in todo if id(one) not in taken]


def train_concurrently(
    recipes: Sequence[Recipe],
    *,
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
        store: Finds or names the folders of the runs; without it nothing is written.
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
        ValueError: The recipes have several precisions.
        OSError: A data set cannot be opened.

    >>> from noiseproof.train import Recipe
    >>> recipes = [Recipe(dataset="digits", loss=loss, epochs=1) for loss in ("ce", "gce")]
    >>> [outcome.record.status for outcome in train_concurrently(recipes)]
    ['finished', 'finished']
    """
    options = options or RunOptions()
    if not recipes:
        return []
    if len({recipe.precision for recipe in recipes}) > 1:
        raise ValueError("concurrent runs must have one precision; train the others after them")
    datasets = {_opened_by(recipe): recipe for recipe in recipes}
    opened = {key: open_dataset(recipe.dataset, data, **recipe.data_options) for key, recipe in datasets.items()}
    if not all(fast_path_suits(recipe, opened[_opened_by(recipe)].train, options) for recipe in recipes):
        at_once = 1  # plain runs share torch's generator, and are no faster concurrently
    options = dataclasses.replace(options, at_once=min(at_once, len(recipes)))
    stopping = threading.Event()

    def one(place: int) -> Outcome | Exception:
        recipe = recipes[place]
        callback = Callback() if callbacks is None else callbacks[place]
        outcome: Outcome | Exception
        try:
            if stopping.is_set() or not may_start(recipe):
                return NotStartedError(f"{recipe.loss} on {recipe.dataset}, {recipe.noise}, seed {recipe.seed}: not started")
            task = with_noise(opened[_opened_by(recipe)], recipe, data_root(data))
            chosen = resolve_auto(recipe, task)
            folder = None if store is None else store.folder_for(chosen, task_facts(chosen, task))
            outcome = Loop(chosen, task, folder, data, options, checkpoint_seconds, callback, stopping).run()
        except Exception as error:  # one run's error must not end the others
            traceback.clear_frames(error.__traceback__)  # the frames hold the run, and its memory on the device
            outcome = error
        if not isinstance(outcome, StoppedError):
            on_outcome(recipe, outcome)
        return outcome

    with precision_of(recipes[0], options.deterministic):
        return run_in_threads(one, len(recipes), at_once, stopping)


def _opened_by(recipe: Recipe) -> tuple[str, str]:
    return recipe.dataset, repr(sorted(recipe.data_options.items()))


def run_in_threads(one: Callable[[int], T], count: int, at_once: int, stopping: threading.Event) -> list[T]:
    """``one(0)``, ``one(1)``, ..., ``at_once`` of them at a time; an error, or Ctrl-C, sets ``stopping`` for the others."""
    with ThreadPoolExecutor(at_once) as pool:
        futures = [pool.submit(one, place) for place in range(count)]
        try:
            for future in as_completed(futures):
                future.result()
        except BaseException:  # Ctrl-C, say: running runs stop at their next batch
            stopping.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        return [future.result() for future in futures]


@dataclass(frozen=True)
class RunList:
    """Runs to train in order, and what follows them.

    Args:
        recipes: The runs.
        store: Where their folders are.
        data: The folder of data sets.
        at_once: Concurrent runs on a device; by default as many as fill it.
        minutes: Start nothing that would not end in this time.
        seconds: How long a run takes beside so many concurrent ones, by the clock. A run of which that is not known starts.
        callback: Returns what follows a run of this process.
        on_outcome: Is called when a run has ended, from several threads.
        checkpoint_seconds: The time between two checkpoints of a run.
    """

    recipes: Sequence[Recipe]
    store: RunStore
    data: str | Path | None = None
    at_once: int | None = None
    minutes: float | None = None
    seconds: Callable[[Recipe, int], float | None] = lambda recipe, width: None
    callback: Callable[[Recipe], Callback] = lambda recipe: Callback()
    on_outcome: Callable[[Recipe, AnyOutcome], None] = lambda recipe, outcome: None
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
    def run(self, runs: RunList) -> list[AnyOutcome]:
        """Train the runs, those of one precision and network concurrently; returns what came of each, in their order."""

    def close(self) -> None:  # noqa: B027 - most start nothing
        """End what was started."""


def machine_name(options: RunOptions) -> str:
    """The name that records give the device."""
    return str(environment(options.device)["machine"])


class LocalExecutor(Executor):
    """Trains lists of runs in this process."""

    def run(self, runs: RunList) -> list[AnyOutcome]:
        end, disk_full, outcomes = runs.end, threading.Event(), dict[int, AnyOutcome]()

        def ended(recipe: Recipe, outcome: Outcome | Exception) -> None:
            if is_disk_error(outcome):
                disk_full.set()
            runs.on_outcome(recipe, outcome)

        for part in run_batches(runs.recipes, self.device, runs.at_once):
            width = concurrent_runs(part[0].model, self.device, runs.at_once)

            def may_start(recipe: Recipe, beside: int = min(width, len(part))) -> bool:
                seconds = runs.seconds(recipe, beside) or 0.0
                return not disk_full.is_set() and (end is None or time.time() + seconds <= end)

            found: Sequence[AnyOutcome]
            try:
                found = train_concurrently(
                    part,
                    store=runs.store,
                    data=runs.data,
                    options=self.options,
                    at_once=width,
                    checkpoint_seconds=runs.checkpoint_seconds,
                    callbacks=[runs.callback(recipe) for recipe in part],
                    may_start=may_start,
                    on_outcome=ended,
                )
            except (ValueError, OSError, ImportError) as error:  # the data could not be opened
                found = [error] * len(part)
                runs.on_outcome(part[0], error)
            outcomes |= zip(map(id, part), found, strict=True)
        return [outcomes[id(recipe)] for recipe in runs.recipes]


class WorkerExecutor(Executor):
    """Trains lists of runs in other processes, a task for as many runs as a device trains concurrently."""

    @abstractmethod
    def submit(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Begin a task."""

    @abstractmethod
    def ended(self, tasks: list[Any]) -> Iterable[Any]:
        """Wait until a task has ended, and return those that have."""

    @abstractmethod
    def outcomes(self, task: Any, count: int) -> list[AnyOutcome]:
        """What a task that has ended returned, or the same error for each of its runs."""

    @abstractmethod
    def cancel(self, tasks: Iterable[Any]) -> None:
        """Let tasks that have not begun end at once."""

    def run(self, runs: RunList) -> list[AnyOutcome]:
        root, data = runs.store.root.resolve(), None if runs.data is None else Path(runs.data).expanduser().resolve()
        end, tasks, outcomes = runs.end, dict[Any, list[Recipe]](), dict[int, AnyOutcome]()
        for part in run_batches(runs.recipes, self.device, runs.at_once):
            width = concurrent_runs(part[0].model, self.device, runs.at_once)
            for group in (part[first : first + width] for first in range(0, len(part), width)):
                jobs = [(recipe, runs.seconds(recipe, len(group)) or 0.0) for recipe in group]
                tasks[self.submit(_train_group, jobs, root, data, self.options, runs.checkpoint_seconds, end)] = group
        while tasks:
            for task in self.ended(list(tasks)):
                group = tasks.pop(task)
                for recipe, outcome in zip(group, self.outcomes(task, len(group)), strict=True):
                    outcomes[id(recipe)] = outcome
                    if not isinstance(outcome, NotStartedError):
                        runs.on_outcome(recipe, outcome)
            if any(map(is_disk_error, outcomes.values())):
                self.cancel(tasks)
        return [outcomes[id(recipe)] for recipe in runs.recipes]


def _train_group(
    jobs: Sequence[tuple[Recipe, float]],
    root: Path,
    data: Path | None,
    options: RunOptions,
    checkpoint_seconds: float,
    end: float | None,
) -> list[dict[str, Any] | Exception]:
    """In a worker: concurrent runs, each with the seconds until its end. Returns the record or the error of each."""
    seconds = {id(recipe): estimate for recipe, estimate in jobs}
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

    If the system ends a process, for want of memory say, the runs that are not finished fail; the same call resumes them.

    Args:
        options: Where and how the runs are computed.
        at_once: The number of processes.
        held: Data sets in memory, by the names that recipes have for them.
    """

    def __init__(self, options: RunOptions, at_once: int, held: Mapping[str, Dataset] | None = None) -> None:
        super().__init__(options)
        threads = options.threads or 1
        self.pool = process_pool(at_once, _begin_process, (threads, dict(held or {})), {"OMP_NUM_THREADS": str(threads)})

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return self.pool.submit(function, *arguments)

    def ended(self, tasks: list[Future[Any]]) -> Iterable[Future[Any]]:
        return wait(tasks, return_when=FIRST_COMPLETED).done

    def outcomes(self, task: Future[Any], count: int) -> list[AnyOutcome]:
        if task.cancelled():
            return [NotStartedError("not started")] * count
        if (error := task.exception()) is None:
            return list(task.result())
        own = isinstance(error, Exception) and not type(error).__module__.startswith("joblib")
        return [error if own else WorkerError(" ".join(str(error).split()))] * count  # type: ignore[list-item]

    def cancel(self, tasks: Iterable[Future[Any]]) -> None:
        for task in tasks:
            task.cancel()

    def close(self) -> None:
        """End the processes, also those at work: their runs are resumed from their last checkpoints."""
        self.pool.shutdown(kill_workers=True)


def _begin_process(threads: int, held: Mapping[str, Dataset]) -> None:
    name_in_memory(held)
    torch.set_num_threads(threads)


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
        self.cluster = Cluster(address)
        found = "cuda" if self.cluster.resource("GPU") else "cpu"
        super().__init__(RunOptions(torch.device(found if device == "auto" else torch.device(device).type)))

    @functools.cached_property
    def machine(self) -> str:
        """The name that records give the device of a worker."""
        return str(self.cluster.result(self.submit(machine_name, self.options)))

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return self.cluster.submit(function, *arguments, gpu=self.device == "cuda")

    def ended(self, tasks: list[Any]) -> Iterable[Any]:
        return self.cluster.ended(tasks)

    def outcomes(self, task: Any, count: int) -> list[AnyOutcome]:
        try:
            return list(self.cluster.result(task))
        except Exception as error:  # the same for all: their data could not be opened, say
            if self.cluster.is_cancelled(error):
                return [NotStartedError("not started")] * count
            return [WorkerError(str(error)) if isinstance(error, WorkerLostError) else error] * count

    def cancel(self, tasks: Iterable[Any]) -> None:
        self.cluster.cancel(list(tasks))

    def close(self) -> None:
        """End the workers, and the cluster if this process started it."""
        self.cluster.close()
