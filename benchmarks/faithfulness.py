"""Whether the fast path trains what the paper trained: full runs on the real data, in TF32 and in bf16, several seeds.

    python benchmarks/faithfulness.py --data DIR --out runs [--json FILE] [--losses jal-ce --seeds 126 127] [--seconds 600]

Each cell is run for three seeds in each precision, or for the seeds named, the runs of a precision concurrently. A finished
run is not run again, so the script can be stopped and started; with ``--seconds`` it starts no further group after that
time. The paper's numbers beside these, and how far the precisions are apart, are in docs/benchmarks/paper.md,
which is written from the record.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import time
from pathlib import Path
from typing import Any

import torch

from noiseproof.paper import SEEDS, recipe
from noiseproof.train import Callback, Outcome, Record, RunOptions, RunStore, train_concurrently

CELLS = (("jal-ce", "symmetric:0.8"), ("ce", "none"))


class Lines(Callback):
    """A line for each run that is over."""

    def on_train_end(self, record: Record) -> None:
        run = record.recipe
        print(f"{run['loss']:8} {run['noise']:14} {run['precision']} seed {run['seed']}: {record.result}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--json", type=Path, help="write the runs there, a JSON line each")
    parser.add_argument("--losses", nargs="+", default=[loss for loss, _ in CELLS], choices=[loss for loss, _ in CELLS])
    parser.add_argument("--seeds", nargs="+", type=int, default=SEEDS)
    parser.add_argument("--precisions", nargs="+", default=["bf16", "tf32"])
    parser.add_argument("--epochs", type=int, help="fewer than the recipe's, to try the script out")
    parser.add_argument("--at-once", type=int, default=6)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    arguments = parser.parse_args()
    start = time.monotonic()
    lines: list[dict[str, Any]] = []
    results: dict[tuple[str, str], dict[str, list[float]]] = {
        (loss, noise): {} for loss, noise in CELLS if loss in arguments.losses
    }
    for precision in arguments.precisions:
        if time.monotonic() - start > arguments.seconds:
            break
        changes = {"precision": precision} | ({"epochs": arguments.epochs} if arguments.epochs else {})
        recipes = [
            dataclasses.replace(recipe(f"cifar10/{loss}", noise=noise, seed=seed), **changes)
            for loss, noise in results
            for seed in arguments.seeds
        ]
        begun = time.monotonic()
        options = RunOptions(device=torch.device(arguments.device))
        outcomes = train_concurrently(
            recipes,
            store=RunStore(arguments.out),
            data=arguments.data,
            options=options,
            at_once=arguments.at_once,
            callbacks=[Lines() for _ in recipes],
        )
        print(f"{precision}: {len(recipes)} runs in {time.monotonic() - begun:.0f} s", flush=True)
        for run, outcome in zip(recipes, outcomes, strict=True):
            if not isinstance(outcome, Outcome):
                raise outcome
            facts = outcome.record.as_dict()
            accuracy = 100 * float(facts["result"]["test_accuracy"])
            results[run.loss, run.noise].setdefault(precision, []).append(accuracy)
            kept = {key: facts[key] for key in ("result", "recipe", "task", "environment", "seconds")}
            at_once = min(arguments.at_once, len(recipes))
            lines.append(kept | {"at_once": at_once})
        if arguments.json:
            arguments.json.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    for (loss, noise), found in results.items():
        for precision, values in found.items():
            spread = f" +- {statistics.stdev(values):.2f}" if len(values) > 1 else ""
            print(f"{loss:8} {noise:14} {precision}: {statistics.mean(values):.2f}{spread}, n = {len(values)}")


if __name__ == "__main__":
    main()
