"""Speed of training on this GPU: seconds per epoch of the paper's two CIFAR protocols, alone and several runs at once.

    python benchmarks/training.py [--protocols cifar10 cifar100] [--epochs 3] [--together 1 2 4 8] [--json FILE]

The images are random numbers of CIFAR's shape, since only their shape matters here; labels, augmentation, loss (JAL-CE), decay,
clip and optimiser are the recipe's. An epoch is timed with all that belongs to training it, without evaluation; each number is
the median of the epochs after the first, with the smallest and the largest. The ways of computing are measured in one process,
one after the other.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch

from noiseproof.data import from_arrays
from noiseproof.paper import recipe
from noiseproof.train import Recipe, Run, RunOptions, Task, with_noise
from noiseproof.train.graph import GraphRun
from noiseproof.train.record import environment
from noiseproof.train.run import precision_of

CLASSES = {"cifar10": 10, "cifar100": 100}
KINDS = {
    "convolution": (
        "fprop",
        "dgrad",
        "wgrad",
        "convolve",
        "cask",
        "cudnn",
        "cutlass",
        "implicit_gemm",
        "nhwc",
        "gemm",
        "cublas",
        "nvjet",
    ),
    "optimiser": ("_step", "_square_sums", "_scale", "multi_tensor", "Cat"),
    "norm, relu, pool": ("batch_norm", "max_pool", "threshold", "relu", "native_batch"),
}
"""What a kernel belongs to, by parts of its name; the first that fits."""


def random_task(name: str, count: int, protocol: Recipe) -> Task:
    """Random images and labels of the data set's shape."""
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)
    labels = generator.integers(0, CLASSES[name], count)
    classes = tuple(map(str, range(CLASSES[name])))
    return with_noise(from_arrays(images, labels, name=name, classes=classes), protocol)


def epochs_timed(runs: Sequence[Run], epochs: int) -> list[float]:
    """Seconds of each epoch, divided by the number of runs that ran at once; the first epoch is not counted."""
    seconds = []
    with ThreadPoolExecutor(len(runs)) as pool:
        for epoch in range(epochs + 1):
            torch.cuda.synchronize()
            start = time.perf_counter()
            list(pool.map(lambda run, epoch=epoch: run.train_epoch(epoch), runs))
            torch.cuda.synchronize()
            seconds.append((time.perf_counter() - start) / len(runs))
    return seconds[1:]


def profile(run: GraphRun, steps: int = 20) -> dict[str, Any]:
    """The kernels of one step by what they belong to, in microseconds, and the longest ones by name."""
    graph = run.graphs[run.recipe.batch]
    run.row.zero_()
    run.steps_done.zero_()
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiled:
        for _ in range(steps):
            graph.replay()
        torch.cuda.synchronize()
    kernels = [(e.key, e.self_device_time_total / steps, e.count / steps) for e in profiled.key_averages()]
    shares: dict[str, float] = {}
    for name, micros, _ in kernels:
        kind = next((kind for kind, parts in KINDS.items() if any(part in name for part in parts)), "other")
        shares[kind] = shares.get(kind, 0.0) + micros
    longest = sorted(kernels, key=lambda k: -k[1])
    return {
        "microseconds": {kind: round(micros, 1) for kind, micros in shares.items()},
        "kernels": round(sum(count for *_, count in kernels)),
        "longest": [[name[:90], round(micros, 1), round(count, 1)] for name, micros, count in longest[:60]],
    }


def measure(protocol: Recipe, task: Task, way: str, together: int, epochs: int) -> dict[str, Any]:
    options = RunOptions(device=torch.device("cuda"))
    makers: dict[str, Callable[[Recipe], Run]] = {
        "eager": lambda r: Run(r, task, options),
        "graph": lambda r: GraphRun(r, task, options, compiled=False),
        "compiled graph": lambda r: GraphRun(r, task, options),
    }
    with precision_of(protocol, False):
        start = time.perf_counter()
        runs = [makers[way](dataclasses.replace(protocol, seed=seed)) for seed in range(together)]
        ready = time.perf_counter() - start
        seconds = epochs_timed(runs, epochs)
        result: dict[str, Any] = {
            "protocol": protocol.dataset,
            "way": way,
            "precision": protocol.precision,
            "together": together,
            "seconds_per_epoch": round(statistics.median(seconds), 4),
            "range": [round(min(seconds), 4), round(max(seconds), 4)],
            "seconds_to_start": round(ready, 1),
            "memory_gib": round(torch.cuda.max_memory_allocated() / 2**30, 2),
        }
        if isinstance(runs[0], GraphRun) and together == 1:
            result["profile"] = profile(runs[0])
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--protocols", nargs="+", default=["cifar10", "cifar100"], choices=list(CLASSES))
    parser.add_argument("--ways", nargs="+", default=["eager", "graph", "compiled graph"])
    parser.add_argument("--precisions", nargs="+", default=["tf32", "bf16"])
    parser.add_argument("--together", nargs="+", type=int, default=[1, 2, 4, 8])
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--examples", type=int, default=50_000)
    parser.add_argument("--json", type=Path, help="append the results there, a JSON line each")
    arguments = parser.parse_args()
    facts = {**environment(torch.device("cuda")), "date": time.strftime("%Y-%m-%d")}
    print(json.dumps(facts))
    for name in arguments.protocols:
        base = recipe(f"{name}/jal-ce", noise="symmetric:0.8", seed=0)
        task = random_task(name, arguments.examples, base)
        for way in arguments.ways:
            for precision in arguments.precisions:
                for together in arguments.together if way == "compiled graph" else [1]:
                    torch.cuda.empty_cache()
                    torch.cuda.reset_peak_memory_stats()
                    protocol = dataclasses.replace(base, precision=precision)
                    result = measure(protocol, task, way, together, 1 if way == "eager" else arguments.epochs)
                    shown = {key: value for key, value in result.items() if key != "profile"}
                    if "profile" in result:
                        shown |= {"kernels": result["profile"]["kernels"], **result["profile"]["microseconds"]}
                    print(json.dumps(shown), flush=True)
                    if arguments.json:
                        with arguments.json.open("a", encoding="utf-8") as file:
                            file.write(json.dumps({**result, "environment": facts}) + "\n")


if __name__ == "__main__":
    main()
