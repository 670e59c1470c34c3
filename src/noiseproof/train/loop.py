"""The loop: epochs, what is written after them, and how a run goes on where it was stopped."""

from __future__ import annotations

import time
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from noiseproof.data import data_root, open_dataset
from noiseproof.files import write_whole
from noiseproof.train.checkpoint import CHECKPOINT, CheckpointError, read_checkpoint, write_checkpoint, write_tensors
from noiseproof.train.folder import claimed
from noiseproof.train.memory import advice_on_memory
from noiseproof.train.paths import fast_path_suits, start_run
from noiseproof.train.recipe import Recipe
from noiseproof.train.record import Epoch, Record, environment
from noiseproof.train.run import DivergenceError, Predictions, Run, RunOptions, precision_of
from noiseproof.train.task import Task, prepare, with_noise

__all__ = ["Observer", "Outcome", "train", "train_together"]

CONFIDENCE, WEIGHTS = "confidence.npz", "weights.safetensors"
PART = {
    "name": "data",
    "classes": "classes",
    "examples": "examples",
    "test_examples": "examples to test on",
    "noise": "labels",
    "sources": "files of data",
}
"""What a record says of its task, in words."""


class Observer:
    """Hears how a run gets on. These methods do nothing; a subclass shows what it likes."""

    def started(self, record: Record, epochs_done: int) -> None:
        """Before the first step; after an interruption some epochs are done already."""

    def batch(self, epoch: int, done: int, total: int) -> None:
        """After a batch: examples done of those in the epoch, which is counted from 0."""

    def epoch(self, facts: Epoch) -> None:
        """After an epoch and its evaluation."""

    def ended(self, record: Record) -> None:
        """The run is over, finished or diverged."""


@dataclass(frozen=True)
class Outcome:
    """A finished run: its record, and what it predicted for the training examples after the recipe's chosen epochs."""

    record: Record
    task: Task
    predictions: dict[int, Predictions] = field(default_factory=dict)


def train(
    recipe: Recipe,
    task: Task | None = None,
    *,
    folder: Path | None = None,
    data: str | Path | None = None,
    options: RunOptions | None = None,
    checkpoint_seconds: float = 60.0,
    observer: Observer | None = None,
) -> Outcome:
    """Train as the recipe says, and return what came of it.

    ``task`` is the recipe's data, opened from ``data`` if left out. With a ``folder`` the run writes its record after every
    epoch, a checkpoint every ``checkpoint_seconds``, and at the end its weights and its confidence in the given labels. Called
    again with the same folder it goes on where it was stopped, to the same result; a finished run is not run again.
    """
    options = options or RunOptions()
    with precision_of(recipe, options.deterministic):
        return _Loop(recipe, task, folder, data, options, checkpoint_seconds, observer or Observer()).run()


def train_together(
    recipes: Sequence[Recipe],
    *,
    folders: Sequence[Path] | None = None,
    data: str | Path | None = None,
    options: RunOptions | None = None,
    at_once: int = 4,
    checkpoint_seconds: float = 60.0,
    observer: Observer | None = None,
) -> list[Outcome | Exception]:
    """Several runs in one process, ``at_once`` of them side by side; each gives exactly what it gives alone.

    A data set that several recipes name is opened once and is on the device once. The outcomes are in the order of the recipes;
    a run that failed leaves its error there and does not stop the others. ``folders`` has one for each recipe. All recipes must
    have one precision, since torch's switches for it are the process's. Where the fast path cannot be taken, the runs follow
    one another.
    """
    options = options or RunOptions()
    if len({recipe.precision for recipe in recipes}) > 1:
        raise ValueError("runs side by side must have one precision; train the others after them")
    if folders is not None and len(folders) != len(recipes):
        raise ValueError(f"there must be one folder for each recipe: {len(recipes)} recipes, {len(folders)} folders")
    datasets = {name: open_dataset(name, data) for name in {recipe.dataset for recipe in recipes}}
    tasks = [with_noise(datasets[recipe.dataset], recipe, data_root(data)) for recipe in recipes]
    if not all(fast_path_suits(recipe, task, options) for recipe, task in zip(recipes, tasks, strict=True)):
        at_once = 1  # plain runs share torch's random state, and gain nothing side by side

    def one(place: int) -> Outcome | Exception:
        folder = None if folders is None else folders[place]
        try:
            loop = _Loop(recipes[place], tasks[place], folder, data, options, checkpoint_seconds, observer or Observer())
            return loop.run()
        except Exception as error:
            return error

    with precision_of(recipes[0], options.deterministic), ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(one, range(len(recipes))))


class _Loop:
    """The course of one run; see :func:`train`."""

    def __init__(
        self,
        recipe: Recipe,
        task: Task | None,
        folder: Path | None,
        data: str | Path | None,
        options: RunOptions,
        checkpoint_seconds: float,
        observer: Observer,
    ) -> None:
        self.recipe, self.folder, self.options, self.observer = recipe, folder, options, observer
        self.checkpoint_seconds, self.saved_at = checkpoint_seconds, time.monotonic()
        start = time.perf_counter()
        self.task = prepare(recipe, data) if task is None else task
        self.record = Record.of(recipe, self.task, environment(options.device))
        self.predictions: dict[int, Predictions] = {}
        self.record.add_seconds("prepare", time.perf_counter() - start)

    def run(self) -> Outcome:
        if self.folder is None or self.options.place.rank != 0:
            return self._run()
        self.folder.mkdir(parents=True, exist_ok=True)
        with claimed(self.folder):
            return self._run()

    def _run(self) -> Outcome:
        finished = None if self.folder is None else self._finished(self.folder)
        if finished is not None:
            return finished
        with self._timed("prepare"):
            run = start_run(self.recipe, self.task, self.options)
        first = self._resume(run)
        self.observer.started(self.record, first)
        try:
            for epoch in range(first, self.recipe.epochs):
                self._epoch(run, epoch)
        except DivergenceError as error:
            self.record.status, self.record.message = "diverged", str(error)
            self._write_record()
            self.observer.ended(self.record)
            raise
        self._finish(run)
        return Outcome(self.record, self.task, self.predictions)

    def _epoch(self, run: Run, epoch: int) -> None:
        start = time.perf_counter()
        with self._timed("train"), advice_on_memory(run):
            sums = run.train_epoch(epoch, lambda done: self.observer.batch(epoch, done, len(run.feed)))
        with self._timed("evaluate"):
            accuracy = run.accuracy()
            if epoch + 1 in (*self.recipe.confidence_epochs, self.recipe.epochs):
                self.predictions[epoch + 1] = run.predictions()
                if not np.isfinite(self.predictions[epoch + 1].probability).all():
                    raise DivergenceError(
                        f"the network's output is not finite after epoch {epoch + 1}, though every loss was, "
                        f"at learning rate {run.lr(epoch):.3g}; try a lower one, or a clip"
                    )
        facts = Epoch(epoch + 1, *sums, accuracy, run.lr(epoch), round(time.perf_counter() - start, 4))
        self.record.epochs.append(facts)
        if epoch + 1 < self.recipe.epochs:
            with self._timed("save"):
                self._save(run)
        self.observer.epoch(facts)

    def _finish(self, run: Run) -> None:
        last = self.predictions[self.recipe.epochs]
        seen = last.predicted >= 0
        agrees = last.predicted == self.task.train.labels
        self.record.result = {
            "epoch": self.recipe.epochs,
            "test_accuracy": self.record.epochs[-1].test_accuracy,
            "given_labels_predicted": _share(agrees[seen]),
        }
        wrong = self.task.wrong
        if wrong is not None:
            self.record.result |= {
                "right_labels_learned": _share(agrees[seen & ~wrong]),
                "wrong_labels_memorised": _share(agrees[seen & wrong]),
            }
        if not seen.all():
            self.record.result["images_left_out"] = int((~seen).sum())
        self.record.status = "finished"
        if self.folder is not None and self.options.place.rank == 0:
            self._write_results(run, self.folder)
        self.observer.ended(self.record)

    def _write_results(self, run: Run, folder: Path) -> None:
        """The record comes last: it says that the run is finished, so all else must be there."""
        weights = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in run.network.state_dict().items()}
        write_tensors(folder / WEIGHTS, weights)
        epochs = sorted(self.predictions)
        arrays: dict[str, NDArray[Any]] = {
            "epochs": np.asarray(epochs),
            "given": self.task.train.labels,
            "probability": np.stack([self.predictions[epoch].probability for epoch in epochs]),
            "predicted": np.stack([self.predictions[epoch].predicted for epoch in epochs]),
        }
        if self.task.clean is not None:
            arrays["clean"] = self.task.clean
        write_whole(folder / CONFIDENCE, lambda path: _save_arrays(path, arrays))
        self._write_record()
        (folder / CHECKPOINT).unlink(missing_ok=True)

    def _finished(self, folder: Path) -> Outcome | None:
        """What is in the folder already, if it is this run and finished; an error if it is another run."""
        record = Record.read(folder)
        if record is None:
            return None
        self._check_same(record, str(folder))
        if record.status != "finished":
            return None
        try:
            with (folder / CONFIDENCE).open("rb") as file, np.load(file, allow_pickle=False) as arrays:
                found = zip(arrays["epochs"].tolist(), arrays["probability"], arrays["predicted"], strict=True)
                predictions = {epoch: Predictions(probability, predicted) for epoch, probability, predicted in found}
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            raise CheckpointError(
                f"{folder / CONFIDENCE}: damaged, in a run that is finished: {error}; move the folder away to run it again"
            ) from error
        (folder / CHECKPOINT).unlink(missing_ok=True)  # if the run was killed between its record and this
        return Outcome(record, self.task, predictions)

    def _resume(self, run: Run) -> int:
        """Take up a checkpoint; returns how many epochs are done."""
        found = None if self.folder is None else read_checkpoint(self.folder)
        if found is None:
            return 0
        tensors, facts = found
        record = Record.from_dict(facts)
        self._check_same(record, f"the checkpoint in {self.folder}")
        try:
            run.load_state({name: tensor for name, tensor in tensors.items() if not name.startswith("predictions.")})
        except ValueError as error:
            raise CheckpointError(f"the checkpoint in {self.folder} does not fit: {error}") from error
        for name, tensor in tensors.items():
            if name.startswith("predictions.probability."):
                epoch = int(name.rpartition(".")[2])
                self.predictions[epoch] = Predictions(tensor.numpy(), tensors[f"predictions.predicted.{epoch}"].numpy())
        record.environment = self.record.environment
        self.record = record
        return len(record.epochs)

    def _check_same(self, record: Record, where: str) -> None:
        differences = self.recipe.differences(record.recipe)
        if not differences:
            ours, theirs = self.record.task, record.task
            differences = [
                f"its {PART[key]} were {theirs.get(key)}, not {ours[key]}" for key in ours if theirs.get(key) != ours[key]
            ]
        if differences:
            raise CheckpointError(
                f"{where} is of another run: {'; '.join(differences)}. Choose another folder, or move it away"
            )

    def _save(self, run: Run) -> None:
        if self.folder is None or self.options.place.rank != 0:
            return
        self._write_record()
        if time.monotonic() - self.saved_at < self.checkpoint_seconds:
            return
        tensors: dict[str, Tensor] = run.state()
        for epoch, (probability, predicted) in self.predictions.items():
            tensors[f"predictions.probability.{epoch}"] = torch.from_numpy(probability)
            tensors[f"predictions.predicted.{epoch}"] = torch.from_numpy(predicted)
        write_checkpoint(self.folder, tensors, self.record.as_dict())
        self.saved_at = time.monotonic()

    def _write_record(self) -> None:
        if self.folder is not None and self.options.place.rank == 0:
            self.record.write(self.folder)

    @contextmanager
    def _timed(self, phase: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.record.add_seconds(phase, time.perf_counter() - start)


def _share(agrees: NDArray[np.bool_]) -> float | None:
    return float(agrees.mean()) if len(agrees) else None


def _save_arrays(path: Path, arrays: dict[str, NDArray[Any]]) -> None:
    with path.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)
