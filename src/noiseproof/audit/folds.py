"""Cross-validation: which examples are held out together, and what a network that was not trained on them predicts for them."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noiseproof.audit.doubt import repeated_to
from noiseproof.data import Examples
from noiseproof.io.arrays import NpzFile
from noiseproof.io.files import ReadError, is_file, write_whole
from noiseproof.noise import label_hash
from noiseproof.train import Recipe, RunOptions, TrainingData
from noiseproof.train.concurrent import concurrent_runs, run_in_threads
from noiseproof.train.engine_choice import fast_path_suits, start_run
from noiseproof.train.options import precision_of
from noiseproof.train.runs import claimed

__all__ = ["HeldOut", "Plan", "Progress", "Store", "cross_validated", "evened", "stratified_folds"]

AVERAGED = 8
"""The predictions of this many last epochs are averaged, at most half of the epochs"""
STORED = 1
"""Of the stored folds; another number when what is stored, or how it is computed, changes"""


State = Literal["training", "trained", "trained before"]
"""Of a network: still in training, finished and kept, or kept by an earlier call"""


class Progress(NamedTuple):
    """How far an audit is."""

    stage: str
    """What is trained on: ``given labels`` or ``soft labels``"""
    fold: int
    """From 1"""
    folds: int
    epoch: int
    """Epochs of this network that are done"""
    epochs: int
    done: int
    """Epochs of all networks of the audit that are done"""
    total: int
    state: State


class HeldOut(NamedTuple):
    """What networks predict for examples: class probabilities ``[N, K]`` and their features ``[N, D]``, D = 0 for none."""

    probabilities: NDArray[np.float32]
    features: NDArray[np.float32]


@dataclass(frozen=True)
class Plan:
    """What is cross-validated: the examples with their given labels, and the fold of each; without folds all are trained on."""

    task: TrainingData
    fold: NDArray[np.int64] | None
    seed: int
    options: RunOptions
    digest: str
    """Of the examples and their labels"""

    @property
    def folds(self) -> int:
        return 1 if self.fold is None else int(self.fold.max()) + 1

    def parts(self, number: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The examples that the network of a fold judges, and those that it is trained on."""
        if self.fold is None:
            return np.arange(len(self.task.train)), np.arange(len(self.task.train))
        return np.flatnonzero(self.fold == number), np.flatnonzero(self.fold != number)


def stratified_folds(labels: NDArray[np.int64], folds: int, seed: int) -> NDArray[np.int64]:
    """The fold of each example, at random; the examples of each class are in as many folds as possible, evenly.

    >>> stratified_folds(np.array([0, 0, 0, 0, 1, 1]), 2, seed=0)[4:].sum().item()
    1
    """
    order = np.random.default_rng(seed).permutation(len(labels))
    by_class = order[np.argsort(labels[order], kind="stable")]
    fold = np.empty(len(labels), dtype=np.int64)
    fold[by_class] = np.arange(len(labels)) % folds
    return fold


def evened(rows: NDArray[np.int64], labels: NDArray[np.int64], seed: int = 0) -> NDArray[np.int64]:
    """The rows, those of rare classes repeated until each has half as many as the most frequent one, or as the mean class.

    Robust losses would never predict the rarer of two classes with less than half the labels of the other (docs/choosing.md),
    and all its labels would look wrong. Of a frequent class with few wrong labels most still count for it, however often those
    among a rare one's are repeated: they become at most half as many. The rows at most double.

    >>> evened(np.arange(9), np.array([0, 0, 0, 0, 0, 0, 0, 0, 1])).tolist()
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 8, 8, 8]
    """
    counts = np.bincount(labels[rows])
    least = repeated_to(counts)
    order = np.random.default_rng(seed).permutation(rows)
    rare = np.flatnonzero((counts > 0) & (counts < least))
    again = [np.resize(order[labels[order] == k], least - counts[k]) for k in rare]
    return np.concatenate([rows, *again])


def cross_validated(
    plan: Plan,
    recipe: Recipe,
    store: Store,
    soft: NDArray[np.float32] | None = None,
    on_epoch: Callable[[int, int, State], object] = lambda fold, epoch, state: None,
) -> HeldOut:
    """The predictions for every example by the network that was trained without its fold, on ``soft`` labels if given.

    Without them the labels of rare classes are repeated, see :func:`evened`: predictions are as of more even classes, for which
    the biases of the mixture make up.

    A fold that is in the store is not trained again. ``on_epoch`` gets the fold, from 0, the epochs done, and its state; it may
    be called from several threads: on the fast engine the folds are trained side by side.
    """
    stopping = threading.Event()
    at_once = min(plan.folds, concurrent_runs(recipe.model, plan.options.device.type))
    if not fast_path_suits(recipe, plan.task.train, plan.options):
        at_once = 1  # plain runs share torch's generator, and are no faster side by side
    options = replace(plan.options, at_once=at_once)

    def one(number: int) -> tuple[NDArray[np.int64], HeldOut]:
        held, kept = plan.parts(number)
        seed = int(np.random.SeedSequence((plan.seed, number, soft is not None)).generate_state(1)[0])
        mine = replace(recipe, seed=seed)
        kept = evened(kept, plan.task.train.labels) if soft is None else kept
        key = _key(plan, mine, kept, soft)
        found = store.read(key, len(held), len(plan.task.classes))
        state: State = "trained before" if found is not None else "trained"
        if found is None:
            task = replace(plan.task, train=plan.task.train.take(kept), soft=None if soft is None else soft[kept])
            found = _trained(mine, task, plan.task.train.take(held), options, partial(on_epoch, number), stopping)
            store.write(key, found)
        on_epoch(number, recipe.epochs, state)
        return held, found

    with precision_of(recipe, options.deterministic):
        if at_once == 1:  # in this thread, which Ctrl-C stops at once
            parts = [one(number) for number in range(plan.folds)]
        else:
            parts = run_in_threads(one, plan.folds, at_once, stopping)
    return _joined(parts, len(plan.task.train))


def _trained(
    recipe: Recipe,
    task: TrainingData,
    held: Examples,
    options: RunOptions,
    on_epoch: Callable[[int, State], object],
    stopping: threading.Event,
) -> HeldOut:
    averaged = min(AVERAGED, max(1, recipe.epochs // 2))

    def on_batch(done: int) -> None:
        if stopping.is_set():
            raise _StoppedError

    on_batch(0)
    run = start_run(recipe, task, options)
    try:
        total = np.zeros((len(held), len(task.classes)))
        for epoch in range(recipe.epochs):
            run.train_epoch(epoch, on_batch)
            if epoch >= recipe.epochs - averaged:
                total += run.probabilities(held)
            on_epoch(epoch + 1, "training")
        features = run.features(held)
    finally:
        run.close()
    nothing = np.zeros((len(held), 0), dtype=np.float32)
    return HeldOut((total / averaged).astype(np.float32), nothing if features is None else features)


class _StoppedError(Exception):
    """Another fold has failed, or all are to stop."""


def _joined(parts: list[tuple[NDArray[np.int64], HeldOut]], rows: int) -> HeldOut:
    whole = [np.empty((rows, array.shape[1]), dtype=np.float32) for array in parts[0][1]]
    for held, found in parts:
        for into, array in zip(whole, found, strict=True):
            into[held] = array
    return HeldOut(*whole)


def _key(plan: Plan, recipe: Recipe, kept: NDArray[np.int64], soft: NDArray[np.float32] | None) -> str:
    facts = {
        "stored": STORED,
        "data": plan.digest,
        "kept": label_hash(kept),
        "recipe": recipe.as_dict() | {"dataset": ""},
        "soft": None if soft is None else hashlib.sha256(np.ascontiguousarray(soft).data).hexdigest(),
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def digest_of(task: TrainingData) -> str:
    """Of the examples and the given labels: files count by path, size and time of change, arrays by their content."""
    digest = hashlib.sha256(f"{label_hash(task.train.labels)} {len(task.classes)}".encode())
    if task.train.in_memory:
        digest.update(f"{task.train.inputs.dtype} {task.train.inputs.shape}".encode())
        digest.update(np.ascontiguousarray(task.train.inputs).data)
    else:
        for path in task.train.paths:
            facts = os.stat(path)
            digest.update(f"{path}\0{facts.st_size} {facts.st_mtime_ns}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()


class Store:
    """Finished folds in a folder, each a file that is named by what it was computed from; without a folder none is kept."""

    def __init__(self, folder: str | Path | None) -> None:
        self.folder = None if folder is None else Path(folder).expanduser()

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Keep other processes out, and remove what a killed one left half written."""
        if self.folder is None:
            yield
            return
        with claimed(self.folder):
            for left in self.folder.glob(".*.npz.*"):
                with suppress(OSError):
                    left.unlink()
            yield

    def read(self, key: str, rows: int, classes: int) -> HeldOut | None:
        """What is stored, None if nothing is or it is damaged: it is computed again then."""
        if self.folder is None or not is_file(path := self.folder / _name(key)):
            return None
        try:
            with NpzFile(path) as file:
                arrays = [file.array(name) for name in HeldOut._fields]
        except (ReadError, KeyError):
            return None
        if arrays[0].shape != (rows, classes) or arrays[1].ndim != 2 or len(arrays[1]) != rows:
            return None
        return HeldOut(*arrays) if all(array.dtype == np.float32 for array in arrays) else None

    def write(self, key: str, found: HeldOut) -> None:
        if self.folder is not None:
            write_whole(self.folder / _name(key), lambda path: _save(path, found._asdict()))


def _name(key: str) -> str:
    return f"fold-{key[:24]}.npz"


def _save(path: Path, arrays: dict[str, Any]) -> None:
    with path.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)
