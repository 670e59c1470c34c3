"""How rare a class may be before a loss no longer predicts it, and whether a start from cross entropy helps.

    python benchmarks/rare_classes.py --json records/rare_cpu.jsonl [--seeds 1,2,3]

The embedded digits, trained on by the defaults of ``own_recipe``: as two classes, 0 to 4 against some of 5 to 9, and as ten, of
which one, the eights, is rare. The ratio is that of the rare class's examples to those of each other class. All are tested on
the same 500 digits, in which no class is rare. ``warm`` starts from ten epochs of cross entropy. A line is written for each
run, and a run that has one is not repeated. The table in docs/how_to/choosing.md is made from them.
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

from noiseproof.data import Dataset, from_arrays, in_memory, load_digits
from noiseproof.train.record import environment

RATIOS = {"two classes": (0.05, 0.1, 0.2, 0.3, 0.5), "ten classes": (0.05, 0.1, 0.3)}
NOISES = ("none", "symmetric:0.1")
WAYS = (
    *((loss, "default") for loss in ("ce", "gce", "nce+rce", "anl-ce", "jal-ce")),
    *((loss, "warm") for loss in ("gce", "jal-ce")),
)
FIRST, EIGHTS = 5, 8
"""The first digit of the rare one of two classes, and the rare one of ten"""


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


def line(key: Key) -> dict[str, Any]:
    dataset, rare = with_rare_class(key.data, key.ratio, key.seed)
    result = run(dataset, key.loss, key.way, key.noise, key.seed).record.result
    return {
        **key._asdict(),
        "rare_examples": int((dataset.train.labels == rare).sum()),
        "rare_accuracy": result["accuracy_by_class"][rare],
        "test_accuracy": result["test_accuracy"],
        "environment": environment(torch.device("cpu")),
    }


def wanted(seeds: list[int]) -> Iterator[Key]:
    """Seed by seed, so that what is there can be compared if the script is stopped."""
    for seed in seeds:
        for data, ratios in RATIOS.items():
            for ratio in ratios:
                for noise in NOISES:
                    yield from (Key(data, ratio, noise, loss, way, seed) for loss, way in WAYS)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--seeds", default="1,2,3")
    given = parser.parse_args()
    lines = [json.loads(text) for text in given.json.read_text("utf-8").splitlines()] if given.json.is_file() else []
    done = {Key(*(one[name] for name in Key._fields)) for one in lines}
    for key in wanted([int(seed) for seed in given.seeds.split(",")]):
        if key not in done:
            made = line(key)
            with given.json.open("a", encoding="utf-8") as file:
                file.write(json.dumps(made) + "\n")


if __name__ == "__main__":
    main()
