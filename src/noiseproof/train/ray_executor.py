"""A list of runs on the machines of a Ray cluster; the folders of the runs, in shared storage, are the only state."""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from noiseproof.train.concurrent import NotStartedError, concurrent_runs, train_concurrently
from noiseproof.train.engine import RunOptions
from noiseproof.train.loop import Callback, Outcome
from noiseproof.train.recipe import Recipe
from noiseproof.train.run import DivergenceError
from noiseproof.train.run_list import (
    DISK_ERRORS,
    AnyOutcome,
    J,
    PlannedRun,
    RunCosts,
    RunListOutcome,
    machine_name,
    run_batches,
)
from noiseproof.train.runs import BusyError, RunStore

__all__ = ["RayExecutor", "WorkerLostError"]

RETRIES = 5
"""Times that a group of runs is started again after its worker was lost"""
Heard = dict[str, Any] | Exception
"""The record of a finished run, or the error of one that failed"""


class WorkerLostError(Exception):
    """The worker of a run was lost too often."""


class RayExecutor:
    """A Ray cluster: the one at ``address``, the one this process is connected to, or a new one on this machine.

    Every machine must have noiseproof installed and see the runs and the data under the same paths.
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
        found = "cuda" if ray.cluster_resources().get("GPU") else "cpu"
        self.device = found if device == "auto" else torch.device(device).type

    @functools.cached_property
    def machine(self) -> str:
        """The name that records give the device of a worker."""
        return str(self.ray.get(self._remote(_machine).remote(self.device)))

    def close(self) -> None:
        """End the workers, and the cluster if this process started it."""
        if self.started:
            self.ray.shutdown()

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
        checkpoint_seconds: float = 60.0,
    ) -> RunListOutcome[J]:
        """As :func:`~noiseproof.train.run_list.train_runs`, one task for as many runs as a device trains concurrently.

        ``callback`` is not called: the runs are those of other processes. The task of a lost worker is started again: runs that
        are finished stay, others resume from their checkpoints.
        """
        result, end = RunListOutcome[J](), None if minutes is None else time.time() + 60 * minutes
        root, place = store.root.resolve(), None if data is None else Path(data).expanduser().resolve()
        tasks: dict[Any, list[PlannedRun[J]]] = {}
        for part in run_batches(planned, self.device, at_once):
            width = concurrent_runs(part[0].facts["model"], self.device, at_once)
            for first in range(0, len(part), width):
                group = part[first : first + width]
                jobs = [(run.recipe.as_dict(), costs.until_end(run.facts, run.done, len(group))) for run in group]
                tasks[self._remote(_train).remote(jobs, root, place, self.device, checkpoint_seconds, end)] = group
        while tasks:
            with contextlib.redirect_stdout(sys.stderr):  # where Ray tells of lost workers
                (done,), _ = self.ray.wait(list(tasks), num_returns=1)
                group = tasks.pop(done)
                outcomes = self._outcomes(done, len(group))
            for run, outcome in zip(group, outcomes, strict=True):
                if not isinstance(outcome, Exception):
                    costs.add(outcome)
                result.add(run, outcome)
                result.note_disk_error(outcome)
                if not isinstance(outcome, NotStartedError):
                    on_outcome(run, outcome)
            if result.disk_error is not None:
                for task in tasks:
                    self.ray.cancel(task)
        return result

    def _outcomes(self, task: Any, count: int) -> list[Heard]:
        try:
            found: list[Heard] = self.ray.get(task)
        except self.ray.exceptions.TaskCancelledError:
            return [NotStartedError("not started")] * count
        except self.ray.exceptions.RayTaskError as error:  # the same for all: their data could not be opened
            return [error.cause if isinstance(error.cause, Exception) else error] * count
        except self.ray.exceptions.RayError as error:
            return [WorkerLostError(f"its worker was lost {RETRIES + 1} times: {error}")] * count
        return found

    def _remote(self, function: Callable[..., Any]) -> Any:
        needs = {"num_gpus": 1, "num_cpus": 1} if self.device == "cuda" else {"num_cpus": 1}
        return self.ray.remote(function).options(max_retries=RETRIES, **needs)


def _machine(device: str) -> str:
    return machine_name(RunOptions(torch.device(device)))


def _train(
    jobs: list[tuple[dict[str, Any], float | None]],
    root: Path,
    data: Path | None,
    device: str,
    checkpoint_seconds: float,
    end: float | None,
) -> list[Heard]:
    """In a worker: the concurrent runs, each with the seconds until its end."""
    recipes = [Recipe.from_dict(facts) for facts, _ in jobs]
    seconds = {id(recipe): estimate or 0.0 for recipe, (_, estimate) in zip(recipes, jobs, strict=True)}
    outcomes = train_concurrently(
        recipes,
        store=RunStore(root),
        data=data,
        options=RunOptions(torch.device(device)),
        at_once=len(recipes),
        checkpoint_seconds=checkpoint_seconds,
        may_start=lambda recipe: end is None or time.time() + seconds[id(recipe)] <= end,
    )
    return [outcome.record.as_dict() if isinstance(outcome, Outcome) else _plain(outcome) for outcome in outcomes]


def _plain(error: Exception) -> Exception:
    """One that can be sent: other packages' errors may not come through pickle."""
    if isinstance(error, NotStartedError | BusyError | DivergenceError):
        return type(error)(str(error))
    if isinstance(error, OSError) and error.errno in DISK_ERRORS:
        return OSError(error.errno, error.strerror, error.filename)
    return RuntimeError(f"{type(error).__name__}: {error}")
