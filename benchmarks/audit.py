"""How well wrong labels are found, beside cleanlab on the same folds with the same network: digits with noise that is known.

    python benchmarks/audit.py --json records/audit_cpu.jsonl [--ways audit,quick,...] [--noises ...] [--seeds 0,1,2,3,4]

Ways: ``audit`` and ``quick`` are ``audit_labels``; ``cleanlab`` (pip install cleanlab) has the predictions of the same networks
on the same folds trained by cross entropy, ``cleanlab stopped`` those after the epoch with the least loss on a tenth of the
training labels, as they were given, that is held out for it. All are of the last eight epochs' mean, but the stopped ones.

A line is written for each run, and a run that has one is not repeated; the table in docs/audit.md is made from them. The
coverage of the interval is that of ``audit`` in all its lines: ``--ways audit --seeds 0,1,2,3,4,5,6,7,8,9`` makes 50 trials,
``--noises none`` are clean labels. Seconds are of the processor, on one thread.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from noiseproof import audit_labels
from noiseproof.audit.folds import Plan, Store, cross_validated
from noiseproof.audit.labels import planned
from noiseproof.data import Split, held_out, load_digits
from noiseproof.noise import NoiseSpec, NoisyLabels
from noiseproof.train import Recipe, Run, RunOptions, override
from noiseproof.train.record import environment

NOISES = ("symmetric:0.2", "symmetric:0.4", "pairflip:0.2", "pairflip:0.4", "instance:0.3")
WAYS = ("audit", "quick", "cleanlab", "cleanlab stopped")
BINS = 15
VALIDATION = 0.1


class Answer(NamedTuple):
    """What a way says of the labels."""

    p_wrong: NDArray[Any]
    flagged: NDArray[np.bool_]
    rate: float
    transition: NDArray[np.float64]
    interval: tuple[float, float] | None = None


def digits() -> Split:
    data = load_digits()
    parts = [split for split in (data.train, data.test) if split is not None and split.in_memory]
    return Split(np.concatenate([part.inputs for part in parts]), np.concatenate([part.labels for part in parts]))


def noisy(split: Split, noise: str, seed: int) -> NoisyLabels:
    if noise == "none":
        return NoisyLabels.compare(split.labels, split.labels, 10)
    return NoiseSpec.parse(noise).apply(split.labels, seed, classes=10, images=split.inputs, dataset="digits")[0]


def audited(split: Split, given: NDArray[np.int64], seed: int, quick: bool) -> Answer:
    found = audit_labels(split.inputs, given, seed=seed, quick=quick, device="cpu")
    return Answer(found.p_wrong, found.flagged, found.rate, found.transition, found.rate_interval)


def by_cleanlab(p: NDArray[Any], given: NDArray[np.int64]) -> Answer:
    from cleanlab.count import compute_confident_joint, estimate_latent
    from cleanlab.filter import find_label_issues
    from cleanlab.rank import get_label_quality_scores

    joint = compute_confident_joint(given, p)
    _, noise_matrix, _ = estimate_latent(joint, given)
    flagged = find_label_issues(given, p, n_jobs=1)
    return Answer(1 - get_label_quality_scores(given, p), flagged, float(flagged.mean()), noise_matrix.T)


def plain_plan(split: Split, given: NDArray[np.int64], seed: int) -> tuple[Plan, Recipe]:
    """The audit's own folds and network, with cross entropy."""
    plan, recipe = planned(split.with_labels(given), tuple("0123456789"), seed=seed, options=RunOptions())
    return plan, override(recipe, {"loss": "ce"})


def stopped(plan: Plan, recipe: Recipe) -> NDArray[np.float32]:
    """Out-of-fold probabilities after the epoch with the least loss on given labels that were not trained on."""
    fold, task = plan.fold, plan.task
    if fold is None or not task.train.in_memory:
        raise TypeError("the folds of examples in memory are needed")
    p = np.empty((len(task.train), len(task.classes)), np.float32)
    for number in range(plan.folds):
        kept, held = np.flatnonzero(fold != number), np.flatnonzero(fold == number)
        mask = held_out(task.train.labels[kept], VALIDATION)
        validation = task.train.take(kept[mask])
        run = Run(recipe, replace(task, train=task.train.take(kept[~mask])), plan.options)
        least = np.inf
        for epoch in range(recipe.epochs):
            run.train_epoch(epoch)
            theirs = run.probabilities(validation)[np.arange(len(validation)), validation.labels]
            loss = float(-np.log(np.maximum(theirs, 1e-12)).mean())
            if loss < least:
                least, p[held] = loss, run.probabilities(task.train.take(held))
        run.close()
    return p


def answer(way: str, split: Split, given: NDArray[np.int64], seed: int) -> Answer:
    if way in ("audit", "quick"):
        return audited(split, given, seed, way == "quick")
    plan, recipe = plain_plan(split, given, seed)
    p = stopped(plan, recipe) if way == "cleanlab stopped" else cross_validated(plan, recipe, Store(None)).probabilities
    return by_cleanlab(p.astype(np.float64) / p.sum(1, keepdims=True, dtype=np.float64), given)


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


def line(split: Split, way: str, noise: str, seed: int) -> dict[str, Any]:
    labels = noisy(split, noise, seed)
    start = time.process_time()
    found = answer(way, split, labels.labels, seed)
    seconds = round(time.process_time() - start, 2)
    facts = {"data": "digits", "way": way, "noise": noise, "seed": seed, **measures(found, labels), "seconds": seconds}
    return facts | {"environment": environment(torch.device("cpu"))}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--noises", default=",".join(NOISES))
    parser.add_argument("--seeds", default="0,1,2,3,4")
    given = parser.parse_args()
    torch.set_num_threads(1)
    lines = [json.loads(text) for text in given.json.read_text("utf-8").splitlines()] if given.json.is_file() else []
    done = {(one["way"], one["noise"], one["seed"]) for one in lines}
    split = digits()
    for seed in map(int, given.seeds.split(",")):
        for noise in given.noises.split(","):
            for way in given.ways.split(","):
                if (way, noise, seed) not in done:
                    made = line(split, way, noise, seed)
                    with given.json.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(made) + "\n")


if __name__ == "__main__":
    main()
