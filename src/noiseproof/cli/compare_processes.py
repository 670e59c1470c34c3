"""Runs of a comparison in several processes. If one is killed, its run has failed and the others go on."""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NoReturn

import torch

from noiseproof.train import Callback, DivergenceError, Epoch, Outcome, Recipe, Record, RunOptions, RunStore
from noiseproof.train.run_list import PlannedRun, RunCosts, train_runs

__all__ = ["Advance", "in_processes", "in_words"]

STOP_SECONDS = 30.0
"""That processes get to write checkpoints and end"""
Place = tuple[Path, str | None, RunOptions]
"""Where and how runs are trained: the root of their store, the folder of data sets, and the options"""
Reached = Callable[[Recipe, int], object]
"""Hears of each epoch of a run"""
Ended = Callable[[Recipe, str, bool], object]
"""Hears what came of a run, and whether it failed"""


def in_processes(todo: Sequence[PlannedRun[Recipe]], jobs: int, place: Place, reached: Reached, ended: Ended) -> None:
    """Train the runs, ``jobs`` at a time. Ctrl-C or an error ends the processes once their runs have written checkpoints."""
    waiting = deque(todo)
    workers: dict[Connection, _Worker] = {}
    try:
        while waiting or workers:
            while waiting and len(workers) < jobs:
                worker = _Worker(place)
                workers[worker.connection] = worker
                worker.start(waiting.popleft())
            for connection in wait(list(workers)):
                worker = workers[connection]  # type: ignore[index] # only connections were given
                if (heard := worker.heard()) is None:
                    ended(worker.run.recipe, worker.how_it_ended(), True)
                    del workers[worker.connection]
                elif isinstance(heard, int):
                    reached(worker.run.recipe, heard)
                else:
                    ended(worker.run.recipe, *heard)
                    if waiting:
                        worker.start(waiting.popleft())
                    else:
                        del workers[worker.connection]
                        worker.dismiss()
    finally:
        for worker in workers.values():
            worker.process.terminate()
            worker.connection.close()  # one that waits to be heard would wait for ever
        end = time.monotonic() + STOP_SECONDS
        for worker in workers.values():
            worker.process.join(max(0.0, end - time.monotonic()))
            worker.process.kill()  # which does nothing to one that has ended
            worker.process.join()


class _Worker:
    """A process with a connection of its own: one that all share would stay locked if its holder were killed."""

    run: PlannedRun[Recipe]

    def __init__(self, place: Place) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs, *place))
        self.process.start()
        theirs.close()  # so that the connection ends with the process

    def start(self, run: PlannedRun[Recipe]) -> None:
        self.run = run
        self._send(run)

    def heard(self) -> int | tuple[str, bool] | None:
        """The epoch that was reached, or what came of the run; None if the process is gone."""
        try:
            told: int | tuple[str, bool] = self.connection.recv()
        except (EOFError, OSError):
            self.process.join()
            return None
        return told

    def how_it_ended(self) -> str:
        status = self.process.exitcode or 0
        if status >= 0:
            return f"its process ended with status {status}"
        name = signal.Signals(-status).name
        why = ", as the system does when memory runs out" if name == "SIGKILL" else ""
        return f"its process was ended by {name}{why}"

    def dismiss(self) -> None:
        self._send(None)
        self.process.join()

    def _send(self, run: PlannedRun[Recipe] | None) -> None:
        try:
            self.connection.send(run)
        except OSError:
            return  # it is gone, which will be heard


def _work(connection: Connection, root: Path, data: str | None, options: RunOptions) -> None:
    """In a process: train what comes, and tell of it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this process
    signal.signal(signal.SIGTERM, _terminate)
    torch.set_num_threads(1)
    while (run := connection.recv()) is not None:
        ended: list[Outcome | Exception] = []
        train_runs(
            [run],
            RunStore(root),
            RunCosts(""),
            data=data,
            options=options,
            callback=lambda run: Advance(lambda recipe, epoch: connection.send(epoch), run.recipe),
            on_outcome=partial(_keep, ended),
        )
        connection.send(in_words(ended[0]))


def _keep(ended: list[Outcome | Exception], run: PlannedRun[Recipe], outcome: Outcome | Exception) -> None:
    ended.append(outcome)


def _terminate(number: int, frame: Any) -> NoReturn:
    """The run writes a checkpoint on its way out."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise SystemExit(128 + number)


def in_words(outcome: Outcome | Exception) -> tuple[str, bool]:
    """What came of a run, and whether it failed."""
    if isinstance(outcome, Outcome):
        return f"{100 * (outcome.record.result['test_accuracy'] or 0):.2f} %", False
    if isinstance(outcome, DivergenceError):
        return f"diverged: {outcome}", False
    return f"{type(outcome).__name__}: {outcome}", True


class Advance(Callback):
    """Tells how many epochs of a run are done."""

    def __init__(self, reached: Reached, recipe: Recipe) -> None:
        self.reached, self.recipe = reached, recipe

    def on_train_begin(self, record: Record, epochs_done: int) -> None:
        self.reached(self.recipe, epochs_done)

    def on_epoch_end(self, facts: Epoch) -> None:
        self.reached(self.recipe, facts.epoch)
