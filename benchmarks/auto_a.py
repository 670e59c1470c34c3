"""Which ``a`` of JAL-CE to train with: multiples of the bound that theory gives, ``auto``, and the paper's 30.

    python benchmarks/auto_a.py digits --json records/auto_a_cpu.jsonl [--seeds 1,2,3,4,5]
    python benchmarks/auto_a.py cifar10 --data DIR --out runs --records records/auto_a.jsonl --known records/reproduction.jsonl

In all of them ``beta`` keeps the strength of AMSE, so that only its asymmetry changes; 300 is nearly the mean absolute error.
On the digits, an MLP with the recipe of ``own_recipe`` (Adam), and with SGD at 0.05, gradients clipped at 5 and L1 5e-5. On
CIFAR-10 the paper's recipe, three seeds, one seed of everything first; where ``auto`` is the paper's 30 it is the same run,
and ``--known`` has it. A run that has a line, or is in ``--out``, ``--records`` or ``--known``, is not repeated.
docs/how_to/choosing.md has the tables.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from control import Runner

from noiseproof import theory
from noiseproof.data import Dataset, load_digits
from noiseproof.paper import SEEDS, recipe
from noiseproof.theory.choice import rounded, with_a
from noiseproof.train import Recipe, override, own_recipe, train, with_noise
from noiseproof.train.record import environment

LOSS, CLASSES = "jal-ce", 10
WAYS = ("x1", "x3.3", "x10", "auto", "30", "300")
NOISES = ("symmetric:0.2", "symmetric:0.4", "symmetric:0.6", "symmetric:0.8", "pairflip:0.3", "pairflip:0.4")
OPTIMISERS: dict[str, dict[str, Any]] = {
    "adam": {},
    "sgd": {"optimiser": "sgd", "lr": 0.05, "clip": 5.0, "l1": 5e-5},
}
CIFAR_NOISES = ("symmetric:0.4", "symmetric:0.8", "asymmetric:0.4")
CIFAR_WAYS = ("auto", "30", "x1", "x3.3", "x10")


def a_of(way: str, noise: str) -> float:
    """
    >>> a_of("x10", "symmetric:0.4"), a_of("auto", "symmetric:0.8"), a_of("30", "symmetric:0.4")
    (18.0, 30.0, 30.0)
    """
    if way == "auto":
        return float(theory.choose_a(noise, classes=CLASSES))
    if way.startswith("x"):
        return rounded({"x1": 1.0, "x3.3": 10 / 3, "x10": 10.0}[way] * theory.required_a(noise, classes=CLASSES))
    return float(way)


def with_way(plain: Recipe, way: str) -> Recipe:
    """The recipe with this ``a``, and as strong as it was."""
    return override(plain, {"loss_options": with_a(LOSS, plain.loss_options, a_of(way, plain.noise))})


def digits_recipe(dataset: Dataset, optimiser: str, noise: str, way: str, seed: int) -> Recipe:
    plain = own_recipe(dataset, "digits", LOSS, noise=noise, seed=seed, gpu=False)
    return with_way(override(plain, OPTIMISERS[optimiser]), way)


def cifar_recipes(ways: Sequence[str] = CIFAR_WAYS) -> Iterator[Recipe]:
    """Those that are compared first, each run once."""
    seen: list[Recipe] = []
    for seed in SEEDS:
        for way in ways:
            for noise in CIFAR_NOISES:
                plain = override(recipe(f"cifar10/{LOSS}", noise=noise, seed=seed), {"precision": "bf16"})
                if (one := with_way(plain, way)) not in seen:
                    seen.append(one)
                    yield one


def measure_digits(file: Path, seeds: list[int]) -> None:
    lines = [json.loads(text) for text in file.read_text("utf-8").splitlines()] if file.is_file() else []
    done = {(one["optimiser"], one["noise"], rounded(one["a"]), one["seed"]) for one in lines}
    dataset = load_digits()
    for seed in seeds:
        for noise in NOISES:
            for optimiser in OPTIMISERS:
                for way in WAYS:
                    one = digits_recipe(dataset, optimiser, noise, way, seed)
                    key = (optimiser, noise, one.loss_options["a"], seed)
                    if key in done:
                        continue
                    done.add(key)
                    record = train(one, with_noise(dataset, one)).record
                    facts = dict(zip(("optimiser", "noise", "a", "seed"), key, strict=True))
                    facts |= {"beta": record.recipe["loss_options"].get("beta", 1.0), "data": "digits", "loss": LOSS}
                    facts |= {"test_accuracy": record.result["test_accuracy"], "environment": environment(torch.device("cpu"))}
                    with file.open("a", encoding="utf-8") as out:
                        out.write(json.dumps(facts) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parts = parser.add_subparsers(dest="data_set", required=True)
    small = parts.add_parser("digits")
    small.add_argument("--json", type=Path, required=True)
    small.add_argument("--seeds", default="1,2,3,4,5")
    large = parts.add_parser("cifar10")
    large.add_argument("--ways", default=",".join(CIFAR_WAYS), help="auto,30 is the comparison that matters most")
    Runner.add_arguments(large)
    given = parser.parse_args()
    if given.data_set == "digits":
        measure_digits(given.json, [int(seed) for seed in given.seeds.split(",")])
    else:
        Runner(given).run(cifar_recipes(given.ways.split(",")), lambda one: f"a {one.loss_options['a']:<6.4g} {one.noise:22}")


if __name__ == "__main__":
    main()
