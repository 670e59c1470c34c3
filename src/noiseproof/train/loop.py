"""The loop: epochs, the callbacks that follow them, what is written after them, and how a run is resumed."""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from noiseproof.io.files import checksum, claimed
from noiseproof.train.engine import RunOptions, precision_of
from noiseproof.train.recipe import Recipe
from noiseproof.train.record import (
    CHECKPOINT,
    CONFIDENCE,
    ENCODER,
    RECORD,
    WEIGHTS,
    Record,
    dead_run,
    environment,
    result_of,
    warnings_of,
)
from noiseproof.train.run import INPUT_FACTS, DivergenceError, Epoch, Predictions, Run, advice_on_memory, start_run
from noiseproof.train.runs import (
    RUN_FILES,
    CheckpointError,
    as_tensors,
    identity,
    read_checkpoint,
    read_confidence,
    take_predictions,
    write_checkpoint,
    write_confidence,
    write_tensors,
)
from noiseproof.train.training_data import TrainingData, prepare, resolve_auto

RECORD_SECONDS = 10.0
"""While a run goes on, at least so long lies between two writings of its record: the disk may be slow"""
FACT_NAMES = {
    "name": "data",
    "test_examples": "examples to test on",
    "noise": "labels",
    "sources": "files of data",
    "other_tests": "further examples to test on",
    "model": "model's lines of code",
    "loss": "loss's lines of code",
}
"""The facts of a task in words, where these are not their names"""


class Callback:
    """Follows a run. These methods do nothing; a subclass overrides those that it needs.

    >>> class Losses(Callback):
    ...     def on_epoch_end(self, facts):
    ...         print(f"epoch {facts.epoch}: loss {facts.loss:.1f}")
    >>> from noiseproof.train import Recipe, train
    >>> _ = train(Recipe(dataset="digits", loss="mae", epochs=2), callback=Losses())
    epoch 1: loss 1.8
    epoch 2: loss 1.8
    """

    def on_train_begin(self, record: Record, epochs_done: int) -> None:
        """Called before the first step.

        Args:
            record: what is known of the run so far.
            epochs_done: 0, or how many epochs a resumed run has behind it.
        """

    def on_batch_end(self, epoch: int, done: int, total: int) -> None:
        """Called after a step.

        Args:
            epoch: the epoch, counted from 0.
            done: examples of the epoch that were trained on.
            total: examples in the epoch.
        """

    def on_epoch_end(self, facts: Epoch) -> None:
        """Called after an epoch and its evaluation.

        Args:
            facts: its numbers.
        """

    def on_train_end(self, record: Record) -> None:
        """Called when the run is finished or has diverged.

        Args:
            record: what it wrote, with its result.
        """


@dataclass(frozen=True)
class Outcome:
    """A finished run.

    Args:
        record: What it wrote about itself.
        task: The data that it was trained on.
        predictions: For the training examples, after each of the recipe's confidence epochs and the last.

    >>> outcome = train(Recipe(dataset="digits", loss="ce", noise="symmetric:0.4"))
    >>> len(outcome.predictions[1].probability) == len(outcome.task.train)
    True
    """

    record: Record
    task: TrainingData
    predictions: dict[int, Predictions] = field(default_factory=dict)


def train(
    recipe: Recipe,
    task: TrainingData | None = None,
    *,
    folder: Path | None = None,
    data: str | Path | None = None,
    options: RunOptions | None = None,
    checkpoint_seconds: float = 60.0,
    callback: Callback | None = None,
) -> Outcome:
    """Train as a recipe says.

    With a folder the run writes its record after an epoch, at most once in ten seconds, a checkpoint now and then, and at the
    end its weights and its confidence in the given labels. Stopped or killed at any moment, it is resumed from its last
    checkpoint by the same call, to the same result; a finished run is not run again.

    Args:
        recipe: What to train.
        task: The recipe's data; opened if left out.
        folder: Where to write; nothing is written if left out.
        data: The folder of data sets; by default ``$NOISEPROOF_DATA``.
        options: Where and how to compute.
        checkpoint_seconds: The time between two checkpoints; 0 writes one after each epoch.
        callback: Is called while the run goes on.

    Returns:
        The record, the data and the predictions of the finished run.

    Raises:
        DivergenceError: A loss was not finite.
        CheckpointError: The folder contains another run, or a damaged one.
        OutOfMemoryError: A step did not fit into the memory.

    >>> outcome = train(Recipe(dataset="digits", loss="jal-ce", noise="symmetric:0.4", optimiser="adam", lr=2e-3, epochs=5))
    >>> outcome.record.result["test_accuracy"] > 0.7
    True
    """
    options = options or RunOptions()
    with precision_of(recipe, options.deterministic):
        return Loop(recipe, task, folder, data, options, checkpoint_seconds, callback or Callback()).run()


class StoppedError(Exception):
    """All concurrent runs are to stop."""


class Loop:
    """One run from start to end; see :func:`train`."""

    def __init__(
        self,
        recipe: Recipe,
        task: TrainingData | None,
        folder: Path | None,
        data: str | Path | None,
        options: RunOptions,
        checkpoint_seconds: float,
        callback: Callback,
        stopping: threading.Event | None = None,
    ) -> None:
        self.folder, self.options, self.callback, self.stopping = folder, options, callback, stopping
        self.output = folder if options.process.rank == 0 else None  # rank 0 writes
        self.checkpoint_seconds, self.saved_at, self.recorded_at = checkpoint_seconds, time.monotonic(), -math.inf
        start = time.perf_counter()
        self.task = prepare(recipe, data) if task is None else task
        self.recipe = resolve_auto(recipe, self.task)
        self.record = Record.of(self.recipe, self.task, environment(options.device))
        self.predictions: dict[int, Predictions] = {}
        self.record.add_seconds("prepare", time.perf_counter() - start)

    def run(self) -> Outcome:
        with ExitStack() as held:
            if self.options.process.world > 1:
                from noiseproof.train.distributed import answering

                held.enter_context(answering(self.options.process.world))
            if self.options.device.type == "cuda":  # CUDA calls that name no device use the thread's current one
                held.enter_context(torch.cuda.device(self.options.device))
            if self.output is not None:
                held.enter_context(claimed(self.output, RUN_FILES))
            return self._run()

    def _run(self) -> Outcome:
        if self.folder is not None and (finished := self._finished(self.folder)) is not None:
            return finished
        with self._timed("prepare"), advice_on_memory(self.recipe, self.options):
            run = start_run(self.recipe, self.task, self.options)
        self.record.environment |= {
            "path": run.engine.name,
            "deterministic": self.options.deterministic,
            "processes": self.options.process.world,
            "at_once": self.options.at_once,
            "threads": run.engine_inputs.threads,
        }
        try:
            self._train(run)
        finally:
            run.close()
        return Outcome(self.record, self.task, self.predictions)

    def _train(self, run: Run) -> None:
        first = self._resume(run)
        if run.processes.total_of(first) != first * run.processes.world:
            raise ValueError(
                f"the epochs that are done differ between the processes, here {first}: they must see the same folder"
            )
        self.record.task |= run.inputs
        self.callback.on_train_begin(self.record, first)
        try:
            for epoch in range(first, self.recipe.epochs):
                self._epoch(run, epoch)
            self._finish(run)
        except DivergenceError as error:
            self.record.status, self.record.message = "diverged", str(error)
            self._write_record()
            self.callback.on_train_end(self.record)
            raise

    def _epoch(self, run: Run, epoch: int) -> None:
        start = time.perf_counter()
        total, world = len(run.loader), self.options.process.world

        def on_batch(done: int) -> None:
            if self.stopping is not None and self.stopping.is_set():
                raise StoppedError
            self.callback.on_batch_end(epoch, min(total, done * world), total)

        with self._timed("train"), advice_on_memory(self.recipe, self.options):
            facts = run.train_epoch(epoch, on_batch)
        with self._timed("evaluate"):
            accuracy = run.accuracy()
            if epoch + 1 in (*self.recipe.confidence_epochs, self.recipe.epochs):
                self.predictions[epoch + 1] = run.predictions()
                if not np.isfinite(self.predictions[epoch + 1].probability).all():
                    raise DivergenceError(
                        f"the network's output is not finite after epoch {epoch + 1}, though every loss was, "
                        f"at learning rate {run.lr(epoch):.3g}; try a lower one, or a clip"
                    )
        constant = 0.0 if epoch < self.recipe.warm_epochs else self.record.loss_constant
        loss, seconds = facts.loss - constant, round(time.perf_counter() - start, 4)
        facts = replace(facts, loss=loss, test_accuracy=accuracy, seconds=seconds)
        self.record.epochs.append(facts)
        if epoch + 1 < self.recipe.epochs:
            with self._timed("save"):
                self._save(run)
        self.callback.on_epoch_end(facts)

    def _finish(self, run: Run) -> None:
        last = self.predictions[self.recipe.epochs]
        self.record.result = result_of(self.task, self.record.epochs[-1], last, run.tested)
        self.record.result |= {f"{name}_accuracy": run.accuracy_on(split) for name, split in self.task.other_tests.items()}
        seen = self.task, self.record.epochs[self.recipe.warm_epochs :], last, run.tested
        self.record.dead, self.record.warnings = dead_run(*seen), warnings_of(self.recipe.loss, *seen)
        if self.output is not None:
            self._write_results(run, self.output)
        self.record.status = "finished"
        self.callback.on_train_end(self.record)

    def _write_results(self, run: Run, folder: Path) -> None:
        """The record comes last: it says that the run is finished, so everything else must be there."""
        with self._timed("save"):
            weights = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in run.network.state_dict().items()}
            encoder = {} if self.task.table is None else {ENCODER: self.task.table.write(folder / ENCODER)}
            described = run.described() | ({"encoder": encoder[ENCODER]} if encoder else {})
            self.record.files = {
                WEIGHTS: write_tensors(folder / WEIGHTS, weights, {"noiseproof": json.dumps(described)}),
                CONFIDENCE: write_confidence(folder, self.task, self.predictions),
                **encoder,
            }
        self.record.status = "finished"
        self._write_record()
        (folder / CHECKPOINT).unlink(missing_ok=True)

    def _finished(self, folder: Path) -> Outcome | None:
        """The outcome in the folder, if this run is finished; an error if it has another run, or a file is gone or damaged."""
        if (record := Record.read(folder)) is None:
            return None
        self._check_same(record, str(folder / RECORD))
        if record.status != "finished":
            return None
        _check_files(folder, record.files)
        epochs = sorted({*self.recipe.confidence_epochs, self.recipe.epochs})
        predictions = read_confidence(folder, epochs, len(self.task.train))
        if self.output is not None:
            with suppress(OSError):  # a run that was killed after its record left a checkpoint; or the disk is read-only
                (self.output / CHECKPOINT).unlink(missing_ok=True)
        return Outcome(record, self.task, predictions)

    def _resume(self, run: Run) -> int:
        """Load the checkpoint if there is one; returns how many epochs are done."""
        if self.folder is None or (found := read_checkpoint(self.folder)) is None:
            return 0
        (tensors, facts), where = found, f"the checkpoint {self.folder / CHECKPOINT}"
        try:
            record = Record.from_dict(facts)
        except ValueError as error:
            raise CheckpointError(
                f"{where} is of another version of noiseproof: {error}; move it away to start anew"
            ) from error
        self._check_same(record, where)
        done = len(record.epochs)
        try:
            if done >= self.recipe.epochs:
                raise ValueError(f"it has {done} epochs of {self.recipe.epochs} behind it")
            wanted = [epoch for epoch in self.recipe.confidence_epochs if epoch <= done]
            predictions = take_predictions(tensors, wanted, len(self.task.train))
            run.load_state(tensors)
        except ValueError as error:
            raise CheckpointError(f"{where} does not fit: {error}; move it away to start anew") from error
        self.predictions = predictions
        record.environment = self.record.environment | _earlier(record.environment, self.record.environment)
        self.record = record
        return done

    def _check_same(self, record: Record, where: str) -> None:
        ours, theirs = self.record.task, record.task
        if identity(record.recipe, theirs) == identity(self.record.recipe, ours):
            return
        changed = [key for key in ours | theirs if key not in INPUT_FACTS and theirs.get(key) != ours.get(key)]
        differences = self.recipe.differences(record.recipe) or [
            f"its {FACT_NAMES.get(key, key)} were {theirs.get(key)}, not {ours.get(key)}" for key in changed
        ]
        raise CheckpointError(f"{where} is of another run: {'; '.join(differences)}. Choose another folder, or move it away")

    def _save(self, run: Run) -> None:
        """Write the record and a checkpoint where it is time."""
        if self.output is None:
            return
        if time.monotonic() - self.saved_at >= self.checkpoint_seconds:
            self._write_record()
            write_checkpoint(self.output, run.state() | as_tensors(self.predictions), self.record.as_dict())
            self.saved_at = time.monotonic()
        elif time.monotonic() - self.recorded_at >= RECORD_SECONDS:
            self._write_record()

    def _write_record(self) -> None:
        if self.output is not None:
            self.record.write(self.output)
            self.recorded_at = time.monotonic()

    @contextmanager
    def _timed(self, phase: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.record.add_seconds(phase, time.perf_counter() - start)


def _earlier(before: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """The environments of earlier epochs, where they differ from now: other machines, versions or commits."""
    known: list[dict[str, Any]] = before.get("earlier", [])
    last = {key: value for key, value in before.items() if key != "earlier"}
    if last | {"date": None} != now | {"date": None}:
        known = [*known, last]
    return {"earlier": known} if known else {}


def _check_files(folder: Path, digests: dict[str, str]) -> None:
    """An error if a file of a finished run is gone, or not what was written."""
    for name, digest in digests.items():
        path = folder / name
        fault = "gone" if not path.is_file() else "damaged" if checksum(path) != digest else None
        if fault is not None:
            raise CheckpointError(f"{path}: {fault}, in a run that is finished; move the folder away to run it again")
