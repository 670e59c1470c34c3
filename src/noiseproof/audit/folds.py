"""Cross-validation: which examples are held out together, how networks are trained, and what they predict."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from noiseproof.data import Dataset, Examples
from noiseproof.io.arrays import NpzFile
from noiseproof.io.files import ReadError, claimed, label_hash, save_arrays, write_whole
from noiseproof.learners.crossfit import assign_folds
from noiseproof.losses.facts import kind_of_data, recommended_settings
from noiseproof.train import Recipe, RunOptions, TrainingData, override, own_recipe, with_noise
from noiseproof.train.engine import fast_path_suits, precision_of
from noiseproof.train.executors import concurrent_runs, run_in_threads
from noiseproof.train.recipe import RENAMED_FIELDS
from noiseproof.train.run import start_run

ROBUST_LOSS, PLAIN_LOSS = "jal-ce", "ce"
FOLDS = 5
FEATURE_EPOCHS = 40
"""Epochs on features; images keep their recipe's"""
SMALL_IMAGE_LR_MANY_CLASSES = 0.1
EPOCHS_AVERAGED = 8
"""The predictions of this many last epochs are averaged, at most half of the epochs"""
STORE_VERSION = 1
"""Of the stored folds; another number when what is stored, or how it is computed, changes"""


NetworkState = Literal["training", "trained", "trained before"]
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
    state: NetworkState


class HeldOutPredictions(NamedTuple):
    """What networks predict for examples: class probabilities ``[N, K]`` and features ``[N, D]``, D = 0 for none."""

    probabilities: NDArray[np.float32]
    features: NDArray[np.float32]


@dataclass(frozen=True)
class CrossValidationPlan:
    """The examples with their given labels, and the fold of each; without folds one network is trained on all of them."""

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


def target_count(counts: NDArray[np.int64]) -> int:
    """Labels that each class has at least after oversampling: half of the most frequent class's, or the mean of all classes.

    >>> target_count(np.array([90, 10])), target_count(np.array([73, *[3] * 9])), target_count(np.array([20, 10]))
    (45, 10, 10)
    """
    return int(min(counts.max() / 2, counts.sum() / np.count_nonzero(counts)))


def oversample(rows: NDArray[np.int64], labels: NDArray[np.int64], seed: int = 0) -> NDArray[np.int64]:
    """Repeat the rows of minority classes until each class has :func:`target_count` of them.

    Robust losses collapse onto the majority class where the rarer of two classes has less than half the labels of the other
    (docs/how_to/choosing.md), and all its labels would look wrong. Of a frequent class with few wrong labels most still
    count for it, however often the wrong ones among a minority class are repeated: they become at most half as many. The rows
    at most double.

    >>> oversample(np.arange(9), np.array([0, 0, 0, 0, 0, 0, 0, 0, 1])).tolist()
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 8, 8, 8]
    """
    counts = np.bincount(labels[rows])
    target = target_count(counts)
    order = np.random.default_rng(seed).permutation(rows)
    rare = np.flatnonzero((counts > 0) & (counts < target))
    repeated = [np.resize(order[labels[order] == k], target - counts[k]) for k in rare]
    return np.concatenate([rows, *repeated])


def plan_cross_validation(
    examples: Examples,
    names: tuple[str, ...],
    *,
    folds: int = FOLDS,
    quick: bool = False,
    model: str | None = None,
    epochs: int | None = None,
    seed: int = 0,
    options: RunOptions,
) -> tuple[CrossValidationPlan, Recipe]:
    """The folds of the examples, and the recipe of the networks that are trained on the given labels."""
    if not quick and not 2 <= folds <= len(examples):
        raise ValueError(f"folds must be in [2, {len(examples)}], the number of examples, got {folds}")
    dataset = Dataset("audit", examples, None, names)
    recipe = _robust_recipe(dataset, model, seed, options)
    recipe = recipe if epochs is None else override(recipe, {"epochs": epochs})
    task = with_noise(dataset, recipe)
    fold = None if quick else assign_folds(examples.labels, folds, seed)
    plan = CrossValidationPlan(task, fold, seed, options, data_digest(task))
    return plan, override(recipe, {"batch": _batch_size(recipe.batch, plan)})


def uses_small_network(examples: Examples, model: str | None, device: torch.device) -> bool:
    """Whether examples are learnt by the small network: images, where there is no GPU and no other network is named."""
    return model is None and examples.kind != "features" and device.type == "cpu"


def _robust_recipe(dataset: Dataset, model: str | None, seed: int, options: RunOptions) -> Recipe:
    """The recipe for the given labels, by the kind of the examples."""
    examples, gpu = dataset.train, options.device.type == "cuda"
    recipe = own_recipe(dataset, "audit", ROBUST_LOSS, model=model, seed=seed, gpu=gpu)
    if uses_small_network(examples, model, options.device):
        return recipe
    changes: dict[str, Any] = {"epochs": FEATURE_EPOCHS} if examples.kind == "features" else {}
    if recipe.l2 and recipe.augment == "crop-flip":
        changes |= _small_image_settings(len(dataset.classes))
    if gpu and examples.kind != "features" and torch.cuda.is_bf16_supported(including_emulation=False):
        changes["precision"] = "bf16"  # twice as fast as tf32, and what is published for CIFAR comes out the same in it
    return override(recipe, changes)


def _small_image_settings(classes: int) -> dict[str, Any]:
    """The robust loss's recommended settings for small images; those of few classes are the loss's defaults."""
    kind = kind_of_data("images", classes)
    found = next(settings for settings in recommended_settings(ROBUST_LOSS) if settings.kind == kind)
    regularisation = {"l1": found.l1, "l2": found.l2}
    if kind == "images":
        return regularisation
    return {**regularisation, "lr": SMALL_IMAGE_LR_MANY_CLASSES, "loss_options": dict(found.options)}


def _batch_size(batch: int, plan: CrossValidationPlan) -> int:
    """The recipe's, or one less and so on: no last batch may be one example, on which BatchNorm cannot train."""
    trained = [plan.parts(number)[1] for number in range(plan.folds)]
    sizes = {len(rows) for kept in trained for rows in (kept, oversample(kept, plan.task.train.labels))}
    while batch > 2 and any(size % batch == 1 for size in sizes):
        batch -= 1
    return batch


def soft_label_recipe(plan: CrossValidationPlan, recipe: Recipe) -> Recipe:
    """Cross entropy with its own default regularisation, if that is of the same optimiser, for half the epochs."""
    dataset = Dataset("audit", plan.task.train, None, plan.task.classes)
    plain = own_recipe(dataset, "audit", PLAIN_LOSS, model=recipe.model, size=recipe.size or "none", seed=plan.seed)
    decay = {"l1": plain.l1, "l2": plain.l2} if plain.optimiser == recipe.optimiser else {}
    return override(recipe, {"loss": PLAIN_LOSS, "loss_options": {}, **decay, "epochs": max(1, recipe.epochs // 2)})


def cross_validate(
    plan: CrossValidationPlan,
    recipe: Recipe,
    store: FoldStore,
    soft: NDArray[np.float32] | None = None,
    on_epoch: Callable[[int, int, NetworkState], object] = lambda fold, epoch, state: None,
) -> HeldOutPredictions:
    """The predictions for every example by the network that was trained without its fold, on ``soft`` labels if given.

    Without them minority classes are oversampled, see :func:`oversample`: predictions are those of more balanced classes, which
    the biases of the mixture correct.

    A fold that is in the store is not trained again. ``on_epoch`` gets the fold, from 0, the epochs done, and its state; it may
    be called from several threads: on the fast engine the folds are trained concurrently.
    """
    stopping = threading.Event()
    at_once = 1  # plain runs share torch's generator, and are no faster concurrently
    if fast_path_suits(recipe, plan.task.train, plan.options):
        at_once = min(plan.folds, concurrent_runs(recipe.model, plan.options.device.type))
    options = replace(plan.options, at_once=at_once)

    def one(number: int) -> tuple[NDArray[np.int64], HeldOutPredictions]:
        held, kept = plan.parts(number)
        seed = int(np.random.SeedSequence((plan.seed, number, soft is not None)).generate_state(1)[0])
        mine = replace(recipe, seed=seed)
        kept = oversample(kept, plan.task.train.labels) if soft is None else kept
        key = _key(plan, mine, kept, soft)
        found = store.read(key, len(held), len(plan.task.classes))
        state: NetworkState = "trained before" if found is not None else "trained"
        if found is None:
            task = replace(plan.task, train=plan.task.train.take(kept), soft=None if soft is None else soft[kept])
            found = _train_fold(mine, task, plan.task.train.take(held), options, partial(on_epoch, number), stopping)
            store.write(key, found)
        on_epoch(number, recipe.epochs, state)
        return held, found

    with precision_of(recipe, options.deterministic):
        if at_once == 1:  # in this thread, which Ctrl-C stops at once
            parts = [one(number) for number in range(plan.folds)]
        else:
            parts = run_in_threads(one, plan.folds, at_once, stopping)
    return _joined(parts, len(plan.task.train))


def _train_fold(
    recipe: Recipe,
    task: TrainingData,
    held: Examples,
    options: RunOptions,
    on_epoch: Callable[[int, NetworkState], object],
    stopping: threading.Event,
) -> HeldOutPredictions:
    averaged = min(EPOCHS_AVERAGED, max(1, recipe.epochs // 2))

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
    return HeldOutPredictions((total / averaged).astype(np.float32), nothing if features is None else features)


class _StoppedError(Exception):
    """Another fold has failed, or all are to stop."""


def _joined(parts: list[tuple[NDArray[np.int64], HeldOutPredictions]], rows: int) -> HeldOutPredictions:
    whole = [np.empty((rows, array.shape[1]), dtype=np.float32) for array in parts[0][1]]
    for held, found in parts:
        for into, array in zip(whole, found, strict=True):
            into[held] = array
    return HeldOutPredictions(*whole)


def _key(plan: CrossValidationPlan, recipe: Recipe, kept: NDArray[np.int64], soft: NDArray[np.float32] | None) -> str:
    first_names = {new: old for old, new in RENAMED_FIELDS.items()}  # so that folds of before are found
    later = "data_options", "class_weight", "warm_epochs", "elr"  # which the folds of before had not, and an audit does not use
    fields = {name: value for name, value in recipe.as_dict().items() if name not in later}
    facts = {
        "stored": STORE_VERSION,
        "data": plan.digest,
        "kept": label_hash(kept),
        "recipe": {first_names.get(name, name): value for name, value in fields.items()} | {"dataset": ""},
        "soft": None if soft is None else hashlib.sha256(np.ascontiguousarray(soft).data).hexdigest(),
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def data_digest(task: TrainingData) -> str:
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


class FoldStore:
    """Finished folds in a folder, each a file that is named by what it was computed from; without a folder none is kept."""

    def __init__(self, folder: str | Path | None) -> None:
        self.folder = None if folder is None else Path(folder).expanduser()

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Keep other processes out, and remove what a killed one left half written."""
        if self.folder is None:
            yield
            return
        with claimed(self.folder, ["*.npz"]):
            yield

    def read(self, key: str, rows: int, classes: int) -> HeldOutPredictions | None:
        """What is stored; None if nothing is, or it is damaged or another fold's: it is computed again then."""
        if self.folder is None or not (path := self.folder / _name(key)).is_file():
            return None
        try:
            with NpzFile(path) as file:
                arrays = [file.array(name) for name in HeldOutPredictions._fields]
                stored = file.array(DIGEST).tobytes().hex() if DIGEST in file.names else None  # those of before have none
        except (ReadError, KeyError):
            return None
        if stored is not None and stored != _digest(key, arrays):
            return None
        if arrays[0].shape != (rows, classes) or arrays[1].ndim != 2 or len(arrays[1]) != rows:
            return None
        return HeldOutPredictions(*arrays) if all(array.dtype == np.float32 for array in arrays) else None

    def write(self, key: str, found: HeldOutPredictions) -> None:
        if self.folder is not None:
            digest = np.frombuffer(bytes.fromhex(_digest(key, found)), np.uint8)
            write_whole(self.folder / _name(key), lambda path: save_arrays(path, {**found._asdict(), DIGEST: digest}))


DIGEST = "digest"
"""An array of a stored fold: the SHA-256 of what it was computed from, and of its other arrays"""


def _name(key: str) -> str:
    return f"fold-{key[:24]}.npz"


def _digest(key: str, arrays: Iterable[NDArray[np.float32]]) -> str:
    digest = hashlib.sha256(key.encode())
    for array in arrays:
        digest.update(f"{array.dtype} {array.shape}\0".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
