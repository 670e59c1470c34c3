"""Which defaults hold up on data of one's own: features and small images, at several noises, on the same seeds.

    python benchmarks/own_defaults.py --json records/own_defaults_cpu.jsonl [--data DIR] [--only wine,cancer] [--seeds 1,2,3]

Every way is the recipe of ``own_recipe`` with a change: ``by columns`` are features standardised each by itself, ``raw`` those
that are not standardised; ``warm`` starts from ten epochs of cross entropy. Features are scikit-learn's wine, breast cancer
(three tenths held out) and digits; images are 1,000 or 4,000 of Fashion-MNIST, which must be in the folder of data sets, at
half size in a small network, ``fashion-wide`` the 4,000 in one of 410,000 weights, all tested on 500 others, and
``fashion-pixels`` are the 1,000 as features. A line is written for
each run, and a run that has one is not repeated. The table in docs/how_to/own_data.md is made from them.

Pair noise stays below one half: above it most labels of a class are those of another, and no loss can tell which is meant.
For the same reason the two classes of breast cancer have no more than 45 %.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from noiseproof.data import Dataset, Split, from_arrays, in_memory, load_digits, open_dataset
from noiseproof.train import Outcome, Recipe, override, own_recipe, train, with_noise
from noiseproof.train.record import environment

NOISES = ("none", "symmetric:0.3", "symmetric:0.6", "pairflip:0.3", "pairflip:0.45")
OF_IMAGES = ("none", "pairflip:0.3", "symmetric:0.6", "symmetric:0.3")
OF_PIXELS = ("none", "symmetric:0.3", "symmetric:0.6", "pairflip:0.3")
OF_MORE = ("none", "symmetric:0.3", "symmetric:0.6")
OF_TWO = ("none", "symmetric:0.3", "symmetric:0.45")
WARM_EPOCHS = 10
SGD = {"optimiser": "sgd", "lr": 0.01, "l2": 5e-4, "clip": 5.0}
WAYS: dict[str, dict[str, Any]] = {
    "default": {},
    "raw": {"standardise": False, "global_scaling": False},
    "by columns": {"global_scaling": False},
    "alpha 5": {"loss.alpha": 5.0},
    "alpha 20": {"loss.alpha": 20.0},
    "warm": {},
    "three times the epochs": {"epochs": 300},
    "SGD 0.01": SGD,
    "SGD 0.1": {**SGD, "lr": 0.1},
    "SGD 0.01, batch 32": {**SGD, "batch": 32},
    "SGD 0.01, alpha 5": {**SGD, "loss.alpha": 5.0},
    "SGD 0.01, warm": SGD,
    "L2 5e-4": {"l1": 0.0, "l2": 5e-4},
    "L1 5e-5": {"l1": 5e-5, "l2": 0.0},
    "no decay": {"l1": 0.0, "l2": 0.0},
}
PIXELS = tuple((loss, way) for loss in ("ce", "jal-ce") for way in ("default", "by columns", "raw"))
DIGITS = (*PIXELS, *(("jal-ce", way) for way in ("alpha 5", "warm")))
FEATURES = (
    *(("ce", way) for way in ("default", "raw", "three times the epochs")),
    *(("jal-ce", way) for way in ("default", "raw", "alpha 5", "alpha 20", "three times the epochs", "warm")),
)
WIDE = (("jal-ce", "default"), ("jal-ce", "L1 5e-5"))
MORE = tuple((loss, way) for loss in ("jal-ce", "ce") for way in ("default", "L1 5e-5", "no decay"))
IMAGES = (
    *((loss, way) for loss in ("jal-ce", "ce") for way in ("default", "SGD 0.01", "SGD 0.1", "SGD 0.01, batch 32")),
    *(("jal-ce", way) for way in ("SGD 0.01, alpha 5", "SGD 0.01, warm", "L1 5e-5")),
)
STUDIED = {
    "wine": (NOISES, FEATURES),
    "cancer": (OF_TWO, FEATURES),
    "digits": (NOISES, DIGITS),
    "fashion-pixels": (OF_PIXELS, PIXELS),
    "fashion-mnist": (OF_IMAGES, IMAGES),
    "fashion-4000": (OF_MORE, MORE),
    "fashion-wide": (OF_MORE[1:], WIDE),
}


def small_cnn(classes: int) -> nn.Module:
    """For grey images of 14x14."""
    return nn.Sequential(
        *(nn.Conv2d(1, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.ReLU()),
        *(nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten()),
        *(nn.Linear(16 * 49, 64), nn.ReLU(), nn.Linear(64, classes)),
    )


def wide_cnn(classes: int) -> nn.Module:
    """For the same images, with eight times the weights."""
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3, stride=2, padding=1), nn.BatchNorm2d(16), nn.ReLU()),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.Flatten()),
        *(nn.Linear(32 * 49, 256), nn.ReLU(), nn.Linear(256, classes)),
    )


def opened(name: str, data: Path | None) -> Dataset:
    if name == "digits":
        return load_digits()
    if name.startswith("fashion-"):
        full, generator = open_dataset("fashion-mnist", data), np.random.default_rng(0)
        train, test = (
            _half_size(in_memory(split).take(generator.permutation(len(split))[:count]))
            for split, count in (
                (full.train, 4000 if name in ("fashion-4000", "fashion-wide") else 1000),
                (full.splits["test"], 500),
            )
        )
        if name == "fashion-pixels":
            train, test = (Split(part.inputs.reshape(len(part), -1).astype(np.float32), part.labels) for part in (train, test))
        return dataclasses.replace(full, name=name, train=train, test=test)
    from sklearn import datasets

    x, y = {"wine": datasets.load_wine, "cancer": datasets.load_breast_cancer}[name](return_X_y=True)
    return from_arrays(x, y, name=name)


def _half_size(split: Split) -> Split:
    """The mean of each 2x2 pixels."""
    n, height, width, _ = split.inputs.shape
    means = split.inputs.reshape(n, height // 2, 2, width // 2, 2, 1).mean((2, 4))
    return Split(means.round().astype(np.uint8), split.labels)


def recipe_of(dataset: Dataset, loss: str, way: str, noise: str, seed: int) -> Recipe:
    images = dataset.train.kind == "images"
    facts = own_recipe(dataset, dataset.name, loss, noise=noise, seed=seed)
    changes = {**WAYS[way], "test_size": 0.0 if dataset.test is not None else 0.3}
    network = "wide_cnn" if dataset.name == "fashion-wide" else "small_cnn"
    return override(facts, changes | ({"model": f"own_defaults:{network}"} if images else {}))


def run(dataset: Dataset, loss: str, way: str, noise: str, seed: int) -> Outcome:
    recipe = recipe_of(dataset, loss, way, noise, seed)
    if not way.endswith("warm"):
        return train(recipe, with_noise(dataset, recipe))
    with tempfile.TemporaryDirectory() as folder:
        first = override(recipe, {"loss": "ce", "epochs": WARM_EPOCHS})
        train(first, with_noise(dataset, first), folder=Path(folder))
        if ":" in recipe.model:
            return _warm_own(recipe, dataset, Path(folder))
        recipe = dataclasses.replace(recipe, weights=str(Path(folder, "weights.safetensors")))
        return train(recipe, with_noise(dataset, recipe))


def _warm_own(recipe: Recipe, dataset: Dataset, folder: Path) -> Outcome:
    """A recipe's weights are for the catalogue's networks; one of one's own loads them itself."""
    recipe = override(recipe, {"model": "own_defaults:warm_cnn", "model.file": str(folder / "weights.safetensors")})
    return train(recipe, with_noise(dataset, recipe))


def warm_cnn(classes: int, file: str) -> nn.Module:
    from safetensors.torch import load_file

    network = small_cnn(classes)
    network.load_state_dict(load_file(file))
    return network


def line(dataset: Dataset, loss: str, way: str, noise: str, seed: int) -> dict[str, Any]:
    outcome = run(dataset, loss, way, noise, seed)
    predicted = outcome.predictions[outcome.record.recipe["epochs"]].predicted
    return {
        **{"data": dataset.name, "noise": noise, "loss": loss, "way": way, "seed": seed},
        "test_accuracy": outcome.record.result["test_accuracy"],
        "classes_never_predicted": sorted({*range(len(dataset.classes))} - {*predicted.tolist()}),
        "seconds": round(sum(outcome.record.seconds.values()), 2),
        "recipe": {k: v for k, v in outcome.record.recipe.items() if k not in ("dataset", "noise", "loss", "seed", "weights")},
        "environment": environment(torch.device("cpu")),
    }


def wanted(names: list[str], seeds: list[int]) -> Iterator[tuple[str, str, str, str, int]]:
    """Seed by seed, so that what is there can be compared if the script is stopped."""
    for seed in seeds:
        for name in names:
            noises, ways = STUDIED[name]
            for noise in noises:
                for loss, way in ways:
                    yield name, loss, way, noise, seed


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--only", default=",".join(STUDIED))
    parser.add_argument("--seeds", default="1,2,3")
    given = parser.parse_args()
    lines = [json.loads(text) for text in given.json.read_text("utf-8").splitlines()] if given.json.is_file() else []
    done = {(one["data"], one["loss"], one["way"], one["noise"], one["seed"]) for one in lines}
    names = given.only.split(",")
    datasets = {name: opened(name, given.data) for name in names}
    for key in wanted(names, [int(seed) for seed in given.seeds.split(",")]):
        if key not in done:
            made = line(datasets[key[0]], *key[1:])
            with given.json.open("a", encoding="utf-8") as file:
                file.write(json.dumps(made) + "\n")


if __name__ == "__main__":
    main()
