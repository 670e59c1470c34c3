"""Several concurrent runs in one process, on one device."""

from __future__ import annotations

import dataclasses
import threading
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path
from typing import TypeVar

from noiseproof.data import data_root, open_dataset
from noiseproof.train.engine import RunOptions, fast_path_suits, precision_of
from noiseproof.train.loop import Callback, CallbackList, Loop, Outcome
from noiseproof.train.recipe import Recipe
from noiseproof.train.record import task_facts
from noiseproof.train.runs import RunStore
from noiseproof.train.training_data import resolve_auto, with_noise

__all__ = ["NotStartedError", "concurrent_runs", "run_in_threads", "train_concurrently"]

T = TypeVar("T")

RUNS_PER_GPU = {"cnn8": 6, "resnet18": 3, "resnet34": 3}
"""Concurrent runs of a network that fill a large GPU (an H200); a run of any other network fills it alone"""
STOP_SECONDS = 5.0
"""That running runs get to write a checkpoint and end, after Ctrl-C"""


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
    datasets = {name: open_dataset(name, data) for name in {recipe.dataset for recipe in recipes}}
    if not all(fast_path_suits(recipe, datasets[recipe.dataset].train, options) for recipe in recipes):
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
            task = with_noise(datasets[recipe.dataset], recipe, data_root(data))
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


def concurrent_runs(model: str, device: str, at_once: int | None = None) -> int:
    """How many runs of a network are trained at the same time on a device of this type, unless ``at_once`` says it.

    >>> concurrent_runs("cnn8", "cuda"), concurrent_runs("cnn8", "cpu"), concurrent_runs("cnn8", "cpu", 2)
    (6, 1, 2)
    """
    return at_once or (RUNS_PER_GPU.get(model, 1) if device == "cuda" else 1)


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


class NotStartedError(Exception):
    """The run was not to start; the same call later starts it."""


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
