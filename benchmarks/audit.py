"""How well wrong labels are found, compared with cleanlab on the same folds with the same network.

    python benchmarks/audit.py --json records/audit_cpu.jsonl [--ways audit,quick] [--noises none,symmetric:0.2] [--seeds 0,1]
    python benchmarks/audit.py --json records/audit_h200.jsonl --dataset cifar10n --data DIR --device cuda --train --seeds 0

Data sets: ``digits``, with noise that is put on them; ``cifar10n`` and ``cifar100n``, images that cnn8 learns from people's
labels alone; for a CPU ``cifar10n-images``, 10,000 of them learnt by cnn5, and ``cifar10n-patches``, ``mnist-patches`` and
``fashion-mnist-patches``, features of 10,000 images that need no training. DIR has the official files and CIFAR-N's labels.
``--rows`` and ``--epochs`` make a run shorter, to try it.

Ways: ``audit`` and ``quick`` are ``audit_labels``; ``cleanlab`` (pip install cleanlab) has the predictions of the same networks
on the same folds trained by cross entropy, ``cleanlab stopped`` those after the epoch with the least loss on a tenth of the
training labels, as they were given, that is held out for it. All are of the last eight epochs' mean, but the stopped ones.
``--train`` also trains networks by CE and JAL-CE on the labels as given, the audit's soft ones and the true ones.

A line is written for each run, and a run that has one is not repeated; the tables in docs/how_to/audit.md are made from them.
The coverage of the interval is that of ``audit`` in all its lines: ``--ways audit --seeds 0,1,2,3,4,5,6,7,8,9`` is 50 trials,
``--noises none`` are clean labels. Seconds are of the processor, on one thread; on a GPU those that pass.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from audit_data import DATA, Examined, opened
from numpy.typing import NDArray

from noiseproof import audit_labels
from noiseproof.audit.folds import (
    PLAIN_LOSS,
    ROBUST_LOSS,
    CrossValidationPlan,
    FoldStore,
    cross_validate,
    plan_cross_validation,
)
from noiseproof.data import Dataset, Examples, held_out
from noiseproof.noise import NoisyLabels
from noiseproof.train import Recipe, RunOptions, TrainingData, override, own_recipe
from noiseproof.train.engine import fast_path_suits, precision_of
from noiseproof.train.executors import concurrent_runs, run_in_threads
from noiseproof.train.record import environment
from noiseproof.train.run import start_run

AUDITS = {"audit": False, "quick": True}
WAYS = (*AUDITS, "cleanlab", "cleanlab stopped")
BINS = 15
VALIDATION = 0.1
T = TypeVar("T")


class Answer(NamedTuple):
    """What a way says of the labels."""

    p_wrong: NDArray[Any]
    flagged: NDArray[np.bool_]
    rate: float
    transition: NDArray[np.float64]
    interval: tuple[float, float] | None = None
    soft: NDArray[np.float32] | None = None


@dataclass(frozen=True)
class Case:
    """Labels to judge, and how to train."""

    data: Examined
    labels: NoisyLabels
    seed: int
    device: torch.device
    epochs: int | None
    true_accuracies: dict[tuple[int, str], float]
    """By seed and loss: the test accuracy after training on the true labels, which are the same whatever the noise"""

    def answer(self, way: str) -> Answer:
        if way in AUDITS:
            return self.audited(AUDITS[way])
        plan, recipe = self.plain_plan()
        p = stopped(plan, recipe) if way == "cleanlab stopped" else cross_validate(plan, recipe, FoldStore(None)).probabilities
        return by_cleanlab(p.astype(np.float64) / p.sum(1, keepdims=True, dtype=np.float64), self.labels.labels)

    def audited(self, quick: bool) -> Answer:
        asked: dict[str, Any] = {"model": self.data.model, "epochs": self.epochs, "seed": self.seed, "device": self.device}
        found = audit_labels(self.data.train.inputs, self.labels.labels, classes=self.data.classes, quick=quick, **asked)
        return Answer(found.p_wrong, found.flagged, found.rate, found.transition, found.rate_interval, found.posterior)

    def planned(self, quick: bool = False) -> tuple[CrossValidationPlan, Recipe]:
        asked: dict[str, Any] = {"model": self.data.model, "epochs": self.epochs, "seed": self.seed, "quick": quick}
        examples = self.data.train.with_labels(self.labels.labels)
        return plan_cross_validation(examples, self.data.classes, options=RunOptions(self.device), **asked)

    def plain_plan(self) -> tuple[CrossValidationPlan, Recipe]:
        """The audit's own folds and network, with cross entropy."""
        plan, recipe = self.planned()
        return plan, self.by(PLAIN_LOSS, recipe)

    def by(self, loss: str, recipe: Recipe) -> Recipe:
        """The audit's recipe; for cross entropy with the decay of its own default."""
        if loss == ROBUST_LOSS:
            return recipe
        dataset = Dataset("audit", self.data.train, None, self.data.classes)
        own = own_recipe(dataset, "audit", loss, model=self.data.model, seed=self.seed)
        decay = {"l1": own.l1, "l2": own.l2} if own.optimiser == recipe.optimiser else {}
        return override(recipe, {"loss": loss, "loss_options": {}, **decay})

    def test_accuracies(self, soft: NDArray[np.float32]) -> dict[str, dict[str, float]]:
        """By loss and by what was trained on: the labels as given, the audit's soft ones, the true ones."""
        plan, recipe = self.planned(quick=True)
        true = self.data.train
        tasks = {
            "given": plan.task,
            "audit": replace(plan.task, soft=soft),
            "true": replace(plan.task, train=plan.task.train.with_labels(true.labels)),
        }
        known = self.true_accuracies
        wanted = [
            (loss, name)
            for loss in (PLAIN_LOSS, ROBUST_LOSS)
            for name in tasks
            if name != "true" or (self.seed, loss) not in known
        ]
        found = run_concurrently(
            plan,
            recipe,
            len(wanted),
            lambda place, options: self.test_accuracy(self.by(wanted[place][0], recipe), tasks[wanted[place][1]], options),
        )
        by_loss: dict[str, dict[str, float]] = {PLAIN_LOSS: {}, ROBUST_LOSS: {}}
        for (loss, name), accuracy in zip(wanted, found, strict=True):
            by_loss[loss][name] = accuracy
        for loss, accuracies in by_loss.items():
            accuracies["true"] = known.setdefault((self.seed, loss), accuracies.get("true", float("nan")))
        return by_loss

    def test_accuracy(self, recipe: Recipe, task: TrainingData, options: RunOptions) -> float:
        test = self.data.test
        if test is None:
            raise ValueError(f"{self.data.name} has no test split to train for")
        run = start_run(recipe, task, options)
        for epoch in range(recipe.epochs):
            run.train_epoch(epoch)
        predicted = run.probabilities(test).argmax(1)
        run.close()
        return float((predicted == test.labels).mean())


def run_concurrently(plan: CrossValidationPlan, recipe: Recipe, count: int, one: Callable[[int, RunOptions], T]) -> list[T]:
    """``one(0, options)``, ``one(1, options)``, ..., concurrently where the fast engine is used."""
    fast = fast_path_suits(recipe, plan.task.train, plan.options)
    at_once = min(count, concurrent_runs(recipe.model, plan.options.device.type)) if fast else 1
    options = replace(plan.options, at_once=at_once)
    with precision_of(recipe, options.deterministic):
        return run_in_threads(lambda place: one(place, options), count, at_once, threading.Event())


def by_cleanlab(p: NDArray[Any], given: NDArray[np.int64]) -> Answer:
    from cleanlab.count import compute_confident_joint, estimate_latent
    from cleanlab.filter import find_label_issues
    from cleanlab.rank import get_label_quality_scores

    joint = compute_confident_joint(given, p)
    _, noise_matrix, _ = estimate_latent(joint, given)
    flagged = find_label_issues(given, p, n_jobs=1)
    return Answer(1 - get_label_quality_scores(given, p), flagged, float(flagged.mean()), noise_matrix.T)


def stopped(plan: CrossValidationPlan, recipe: Recipe) -> NDArray[np.float32]:
    """Out-of-fold probabilities after the epoch with the least loss on given labels that were not trained on."""
    task = plan.task
    if plan.fold is None or not task.train.in_memory:
        raise TypeError("the folds of examples in memory are needed")
    p = np.empty((len(task.train), len(task.classes)), np.float32)

    def one(number: int, options: RunOptions) -> None:
        held, kept = plan.parts(number)
        mask = held_out(task.train.labels[kept], VALIDATION)
        parts = [task.train.take(rows) for rows in (kept[mask], held)]
        p[held] = _stopped_fold(recipe, replace(task, train=task.train.take(kept[~mask])), options, *parts)

    run_concurrently(plan, recipe, plan.folds, one)
    return p


def _stopped_fold(
    recipe: Recipe, task: TrainingData, options: RunOptions, validation: Examples, held: Examples
) -> NDArray[np.float32]:
    least, found = np.inf, np.empty((0, 0), np.float32)
    run = start_run(recipe, task, options)
    for epoch in range(recipe.epochs):
        run.train_epoch(epoch)
        theirs = run.probabilities(validation)[np.arange(len(validation)), validation.labels]
        loss = float(-np.log(np.maximum(theirs, 1e-12)).mean())
        if loss < least:
            least, found = loss, run.probabilities(held)
    run.close()
    return found


def measures(found: Answer, labels: NoisyLabels) -> dict[str, Any]:
    from sklearn.metrics import average_precision_score, f1_score, roc_auc_score

    wrong, there = labels.mask, bool(labels.mask.any())
    bins = np.minimum((found.p_wrong * BINS).astype(int), BINS - 1)
    gaps = [abs(float((found.p_wrong[bins == k] - wrong[bins == k]).sum())) for k in range(BINS)]
    low, high = found.interval or (None, None)
    return {
        "auc": float(roc_auc_score(wrong, found.p_wrong)) if there else None,
        "average_precision": float(average_precision_score(wrong, found.p_wrong)) if there else None,
        "f1": float(f1_score(wrong, found.flagged)) if there else None,
        "flagged": float(found.flagged.mean()),
        "rate": found.rate,
        "true_rate": float(wrong.mean()),
        "matrix_error": float(np.abs(found.transition - labels.matrix).sum(1).mean() / 2),
        "ece": sum(gaps) / len(wrong),
        "interval": None if low is None else [low, high],
        "covers": None if low is None or high is None else bool(low <= wrong.mean() <= high),
    }


def line(case: Case, way: str, noise: str, train: bool) -> dict[str, Any]:
    clock = time.process_time if case.device.type == "cpu" else time.perf_counter
    start = clock()
    found = case.answer(way)
    seconds = round(clock() - start, 2)
    facts = {"data": case.data.name, "way": way, "noise": noise, "seed": case.seed, **measures(found, case.labels)}
    facts |= {"seconds": seconds}
    if train and way == "audit" and found.soft is not None:
        facts["test_accuracy"] = case.test_accuracies(found.soft)
    return facts | {"environment": environment(case.device)}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--dataset", choices=list(DATA), default="digits")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--device", type=torch.device, default=torch.device("cpu"))
    parser.add_argument("--ways", help=f"{', '.join(WAYS)}; all if not said, without cleanlab where it is not installed")
    parser.add_argument("--noises", help="the data set's own if not said; none for clean labels")
    parser.add_argument("--seeds", default="0,1,2,3,4")
    parser.add_argument("--train", action="store_true")
    parser.add_argument("--rows", type=int)
    parser.add_argument("--epochs", type=int)
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    data = opened(given.dataset, given.data, given.rows)
    there = WAYS if importlib.util.find_spec("cleanlab") else tuple(AUDITS)
    ways = there if given.ways is None else given.ways.split(",")
    noises = data.noises if given.noises is None else given.noises.split(",")
    lines = [json.loads(text) for text in given.json.read_text("utf-8").splitlines()] if given.json.is_file() else []
    done = {(one["data"], one["way"], one["noise"], one["seed"]) for one in lines}
    true_accuracies: dict[tuple[int, str], float] = {}
    for seed in map(int, given.seeds.split(",")):
        for noise in noises:
            case = Case(data, data.noisy(noise, seed), seed, given.device, given.epochs, true_accuracies)
            for way in ways:
                if (data.name, way, noise, seed) not in done:
                    made = line(case, way, noise, given.train)
                    with given.json.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(made) + "\n")


if __name__ == "__main__":
    main()
