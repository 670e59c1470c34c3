"""How small a minority class may be before a loss no longer predicts it, and what helps.

    python benchmarks/rare_classes.py --json records/rare_cpu.jsonl [--study digits] [--seeds 1,2,3]
    python benchmarks/rare_classes.py --json records/imbalance_cpu.jsonl --study catalogue [--seeds 1,2,3] [--losses ce,gce]
    python benchmarks/rare_classes.py --json records/imbalance_early_cpu.jsonl --study early [--seeds 1,2,3]

``digits`` are the embedded digits, trained on by the recipe of ``own_recipe``, whose classes all count alike: as two classes, 0
to 4 against some of 5 to 9, and as ten, of which one, the eights, is a minority. ``warm`` starts from ten epochs of cross
entropy.

``catalogue`` is every loss that a recipe can train, with class_weight=auto, which is the default of ``noiseproof train``: on
classes that are normal distributions about points at the same distance from the origin in ten dimensions, learnt by one hidden
layer of 64. ``auto`` was chosen on the seeds 11 and 12.

``early`` is cross entropy on the same data that is stopped early on a fifth of the given labels, with class weights of each
kind: what ``noiseproof advise`` recommends for a training loop of one's own, chosen on the seeds 11 to 13.

The ratio is that of the minority class's examples to those of each other class. All are tested on examples of which each class
has as many. A line is written for each run, and a run that has one is not repeated.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from own_defaults import run
from zoo_methods import VALIDATION, trained_probabilities

from noiseproof.data import Dataset, from_arrays, held_out, in_memory, load_digits
from noiseproof.losses import list_losses
from noiseproof.train import Run, override, own_recipe, resolve_auto, with_noise
from noiseproof.train.record import environment

RATIOS = {"two classes": (0.05, 0.1, 0.2, 0.3, 0.5), "ten classes": (0.05, 0.1, 0.3)}
NOISES = ("none", "symmetric:0.1")
WAYS = (
    *((loss, "default") for loss in ("ce", "gce", "nce+rce", "anl-ce", "jal-ce")),
    *((loss, "warm") for loss in ("gce", "jal-ce")),
)
FIRST, EIGHTS = 5, 8
"""The first digit of the minority one of two classes, and the minority one of ten"""
GENERATED = {"two generated classes": (2, 400), "ten generated classes": (10, 60)}
"""How many classes, and examples of each but the last"""
GENERATED_RATIOS, GENERATED_NOISES = (0.1, 0.05, 0.3, 1.0), ("none", "symmetric:0.1", "symmetric:0.2")
EARLY = ("none", "balanced", "tempered")
"""Class weights of cross entropy that is stopped early"""
DIMENSIONS, DISTANCE, GENERATED_TESTS = 10, 3.0, 500


class Key(NamedTuple):
    """What tells a run from the others."""

    data: str
    ratio: float
    noise: str
    loss: str
    way: str
    seed: int


def with_rare_class(data: str, ratio: float, seed: int) -> tuple[Dataset, int]:
    """The digits with a part of one class, which the seed chooses, and that class."""
    digits = load_digits()
    held_out = in_memory(digits.splits["test"])
    rare, train, test = EIGHTS, digits.train.labels, held_out.labels
    if data == "two classes":
        rare, train, test = 1, (train >= FIRST).astype(np.int64), (test >= FIRST).astype(np.int64)
    others = np.bincount(train[train != rare])
    count = round(ratio * others[others > 0].mean())
    chosen = np.random.default_rng(seed).permutation(np.flatnonzero(train == rare))[:count]
    kept = np.sort(np.concatenate([np.flatnonzero(train != rare), chosen]))
    return from_arrays(in_memory(digits.train).inputs[kept], train[kept], held_out.inputs, test, name=f"digits, {data}"), rare


def generated(data: str, ratio: float, seed: int) -> Dataset:
    """Classes that the seed draws, of which the last is the minority one."""
    classes, most = GENERATED[data]
    generator = np.random.default_rng(seed)
    centres = generator.normal(size=(classes, DIMENSIONS))
    centres *= DISTANCE / np.linalg.norm(centres, axis=1, keepdims=True)
    train = generator.permutation(np.repeat(np.arange(classes), [most] * (classes - 1) + [round(ratio * most)]))
    test = np.arange(GENERATED_TESTS) % classes
    drawn = [(centres[y] + generator.normal(size=(len(y), DIMENSIONS))).astype(np.float32) for y in (train, test)]
    return from_arrays(drawn[0], train, drawn[1], test, name=data)


def line(key: Key) -> dict[str, Any]:
    if key.data in GENERATED and key.way in EARLY:
        return {**key._asdict(), **early_result(key), "environment": environment(torch.device("cpu"))}
    if key.data in GENERATED:
        return {**key._asdict(), **generated_result(key), "environment": environment(torch.device("cpu"))}
    dataset, rare = with_rare_class(key.data, key.ratio, key.seed)
    result = run(dataset, key.loss, key.way, key.noise, key.seed).record.result
    return {
        **key._asdict(),
        "rare_examples": int((dataset.train.labels == rare).sum()),
        "rare_accuracy": result["accuracy_by_class"][rare],
        "test_accuracy": result["test_accuracy"],
        "environment": environment(torch.device("cpu")),
    }


def generated_result(key: Key) -> dict[str, Any]:
    """The recall of each class, and the other numbers of a comparison by class."""
    dataset = generated(key.data, key.ratio, key.seed)
    recipe = own_recipe(dataset, dataset.name, key.loss, noise=key.noise, seed=key.seed, gpu=False)
    recipe = override(recipe, {"class_weight": key.way, "model.hidden": [64]})
    task = with_noise(dataset, recipe)
    recipe = resolve_auto(recipe, task)
    trained = Run(recipe, task)
    for epoch in range(recipe.epochs):
        trained.train_epoch(epoch)
    trained.accuracy()
    trained.close()
    if (counts := trained.tested) is None:
        raise ValueError("the data have no test split")
    return {
        "class_weight": recipe.class_weight,
        "warm_epochs": recipe.warm_epochs,
        "balanced_accuracy": round(counts.balanced_accuracy, 5),
        "macro_f1": round(counts.macro_f1, 5),
        "recalls": counts.recalls,
    }


def early_result(key: Key) -> dict[str, Any]:
    """The recall of each class by cross entropy with class weights, stopped early on held-out given labels."""
    dataset = generated(key.data, key.ratio, key.seed)
    recipe = own_recipe(dataset, dataset.name, key.loss, noise=key.noise, seed=key.seed, gpu=False)
    inputs, given, test = (
        in_memory(dataset.train).inputs,
        with_noise(dataset, recipe).train.labels,
        in_memory(dataset.splits["test"]),
    )
    mask = held_out(given, VALIDATION)
    halves = from_arrays(inputs[~mask], given[~mask], inputs[mask], given[mask], name=key.data, classes=dataset.classes)
    recipe = own_recipe(halves, key.data, key.loss, seed=key.seed, gpu=False)
    recipe = override(recipe, {"class_weight": key.way, "model.hidden": [64]})
    p = trained_probabilities(recipe, halves, test, in_memory(halves.splits["test"]))
    recalls = [float((p.argmax(1)[test.labels == k] == k).mean()) for k in range(len(dataset.classes))]
    return {"balanced_accuracy": round(float(np.mean(recalls)), 5), "recalls": recalls}


def wanted(study: str, seeds: list[int]) -> Iterator[Key]:
    """Seed by seed, so that what is there can be compared if the script is stopped."""
    catalogue = [(entry.name, "auto") for entry in list_losses() if entry.needs_own_loop is None]
    for seed in seeds:
        if study == "digits":
            cells = [(data, ratio, noise) for data, ratios in RATIOS.items() for ratio in ratios for noise in NOISES]
        else:
            cells = [(data, ratio, noise) for ratio in GENERATED_RATIOS for data in GENERATED for noise in GENERATED_NOISES]
        if study == "early":
            cells = [cell for cell in cells if cell[1] < 1]
        ways = {"digits": WAYS, "catalogue": catalogue, "early": tuple(("ce", weights) for weights in EARLY)}[study]
        yield from (Key(*cell, loss, way, seed) for cell in cells for loss, way in ways)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--study", choices=("digits", "catalogue", "early"), default="digits")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--losses", default="", help="of the catalogue, instead of all")
    given = parser.parse_args()
    lines = [json.loads(text) for text in given.json.read_text("utf-8").splitlines()] if given.json.is_file() else []
    done = {Key(*(one[name] for name in Key._fields)) for one in lines}
    for key in wanted(given.study, [int(seed) for seed in given.seeds.split(",")]):
        if key not in done and (not given.losses or key.loss in given.losses.split(",")):
            made = line(key)
            with given.json.open("a", encoding="utf-8") as file:
                file.write(json.dumps(made) + "\n")


if __name__ == "__main__":
    main()
