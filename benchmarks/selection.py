"""Whether a loss can be chosen without clean labels: by a noisy held-out part, against what the clean test set would choose.

    python benchmarks/selection.py --json records/selection_cpu.jsonl [--only wine,cancer] [--seeds 1,2,3,4,5]

Labels of scikit-learn's wine, breast cancer (three tenths held out with clean labels to judge the choice) and digits are
changed; a fifth of them is held out with its wrong labels to choose by, and every loss is trained on the rest with the recipe
of ``own_recipe``. A line is written for each run: its accuracy on the clean test set, on the noisy part, on the noisy part
corrected by the true matrix and by the one that a quick audit of the same noisy labels estimates, the mean probability that
this audit gives its predictions, and its accuracy on its own training labels. A run that has a line is not repeated.
docs/how_to/choosing.md has the table.

Two classes have no symmetric noise of one half or more, and their pair noise is symmetric.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from own_defaults import opened

from noiseproof.audit import audit_labels
from noiseproof.data import Dataset, Examples, held_out
from noiseproof.noise import LabelNoise, clean_accuracy, from_matrix, from_spec
from noiseproof.train import Recipe, RunOptions, TrainingData, override, own_recipe, with_noise
from noiseproof.train.engine import precision_of
from noiseproof.train.record import environment
from noiseproof.train.run import start_run

LOSSES = ("ce", "gce", "nce+rce", "nce+agce", "anl-ce", "jal-ce")
NOISES = ("symmetric:0.2", "symmetric:0.4", "symmetric:0.6", "pairflip:0.2", "pairflip:0.4")
STUDIED = {"wine": NOISES, "cancer": ("symmetric:0.2", "symmetric:0.3", "symmetric:0.4"), "digits": NOISES}
TEST, CHOOSING = 0.3, 0.2
"""Shares held out: of data without a test split to judge by, then to choose by"""


class Choosing(NamedTuple):
    """The noisy part to choose by, and what an audit of all noisy labels says of it."""

    examples: Examples
    matrix: LabelNoise
    posterior: NDArray[np.float32]


def split(dataset: Dataset, recipe: Recipe) -> tuple[TrainingData, Choosing]:
    """What is trained on, and what is chosen by."""
    task = with_noise(dataset, recipe)
    mask = held_out(task.train.labels, CHOOSING)
    clean = None if task.clean is None else task.clean[~mask]
    audit = audit_labels(task.train, classes=task.classes, quick=True, seed=recipe.seed, device="cpu")
    choosing = Choosing(task.train.take(mask), from_matrix(audit.transition), audit.posterior[mask])
    return dataclasses.replace(task, train=task.train.take(~mask), clean=clean), choosing


def measured(recipe: Recipe, task: TrainingData, choosing: Choosing) -> dict[str, float]:
    """The accuracies of one run."""
    with precision_of(recipe, deterministic=False):
        run = start_run(recipe, task, RunOptions(torch.device("cpu")))
        for epoch in range(recipe.epochs):
            run.train_epoch(epoch)
        predicted, fitted = (run.probabilities(part).argmax(1) for part in (choosing.examples, task.train))
        accuracy = run.accuracy()
        run.close()
    given, true = choosing.examples.labels, from_spec(recipe.noise, len(task.classes))
    return {
        "test": float(accuracy or 0.0),
        "noisy": float((predicted == given).mean()),
        "corrected": clean_accuracy(predicted, given, true).value,
        "corrected by audit": clean_accuracy(predicted, given, choosing.matrix).value,
        "posterior of audit": float(choosing.posterior[np.arange(len(given)), predicted].mean()),
        "training labels": float((fitted == task.train.labels).mean()),
    }


def lines(dataset: Dataset, noise: str, seed: int, losses: list[str]) -> Iterator[dict[str, Any]]:
    base = own_recipe(dataset, dataset.name, "ce", noise=noise, seed=seed, gpu=False)
    base = override(base, {"test_size": 0.0 if dataset.test is not None else TEST})
    task, choosing = split(dataset, base)
    true = from_spec(noise, len(task.classes))
    for loss in losses:
        start = time.perf_counter()
        found = measured(override(base, {"loss": loss}), task, choosing)
        yield {
            **{"data": dataset.name, "noise": noise, "loss": loss, "seed": seed},
            **{"examples": len(task.train), "to choose by": len(choosing.examples), "to test on": len(task.test or ())},
            "accuracy": found,
            "matrix_error": float(np.abs(choosing.matrix.matrix - true.matrix).sum(1).mean() / 2),
            "seconds": round(time.perf_counter() - start, 2),
            "environment": environment(torch.device("cpu")),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--only", default=",".join(STUDIED))
    parser.add_argument("--seeds", default="1,2,3,4,5")
    given = parser.parse_args()
    before = [json.loads(text) for text in given.json.read_text("utf-8").splitlines()] if given.json.is_file() else []
    done = {(one["data"], one["noise"], one["loss"], one["seed"]) for one in before}
    datasets = {name: opened(name, None) for name in given.only.split(",")}
    for seed in map(int, given.seeds.split(",")):
        for name, dataset in datasets.items():
            for noise in STUDIED[name]:
                if left := [loss for loss in LOSSES if (name, noise, loss, seed) not in done]:
                    for line in lines(dataset, noise, seed, left):
                        with given.json.open("a", encoding="utf-8") as file:
                            file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
