"""Speed of training on this GPU: seconds per epoch of the paper's two CIFAR protocols, alone and several runs at once.

    python benchmarks/training.py [--protocols cifar10 cifar100] [--epochs 3] [--json FILE]

eager           the plain path, torch's kernels one by one
graph           the step in a CUDA graph, torch's kernels
compiled graph  the same with torch.compile's kernels
fast path       the same with ours, which is what training uses; several runs at once too

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
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from noiseproof.data import from_arrays
from noiseproof.paper import recipe
from noiseproof.train import Recipe, Run, RunOptions, TrainingData, with_noise
from noiseproof.train.engine import Engine, EngineInputs, PlainEngine, precision_of
from noiseproof.train.fast.graph import GraphEngine, Kernels
from noiseproof.train.recipe import Precision
from noiseproof.train.record import environment

CLASSES = {"cifar10": 10, "cifar100": 100}
PRECISIONS: dict[str, tuple[Precision, ...]] = {"cifar10": ("bf16", "tf32"), "cifar100": ("bf16",)}
TOGETHER = {"cifar10": (1, 2, 4, 8), "cifar100": (1, 2, 3)}
"""Runs at once, on the fast path"""
WAYS: dict[str, Kernels | None] = {"eager": None, "graph": "torch", "compiled graph": "compiled", "fast path": "triton"}
KINDS = {
    "optimiser": ("_step", "_square_sums", "_scale"),
    "norm, relu, pool": ("moments", "forward", "backward_sums", "backward_inputs"),
    "convolution, linear": ("_stem_forward", "_stem_weights"),
    "loss": ("small_step", "scaled", "program", "tile_forward", "tile_backward", "line_forward", "stream_backward"),
}
"""What a kernel belongs to, by its name"""
PARTS = {
    "norm, relu, pool": ("batch_norm", "batchnorm", "bn_", "max_pool", "threshold", "relu", "clamp_scalar"),
    "loss": ("triton_", "log_sigmoid", "logsigmoid", "softplus"),
    "convolution, linear": (
        "fprop",
        "dgrad",
        "wgrad",
        "convolve",
        "cudnn",
        "cutlass",
        "gemm",
        "nvjet",
        "splitKreduce",
        "reduce_kernel",
    ),
    "memory set": ("Memset", "memset"),
}
"""The same by parts of its name; the first that fits, or else data and counting"""


def random_task(name: str, count: int, protocol: Recipe) -> TrainingData:
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


def kind_of(name: str) -> str:
    for kind, names in KINDS.items():
        if name in names:
            return kind
    return next((kind for kind, parts in PARTS.items() if any(part in name for part in parts)), "data, counting")


def profile(engine: GraphEngine, steps: int = 20) -> dict[str, Any]:
    """The kernels of one step by what they belong to, in microseconds, and the longest by name."""
    graph = engine.graphs[engine.recipe.batch]
    engine.rewind()
    steps = min(steps, engine.loader.steps())
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA], acc_events=True) as profiled:
        for _ in range(steps):
            graph.replay()
        torch.cuda.synchronize()
    kernels = [(e.key, e.self_device_time_total / steps, e.count / steps) for e in profiled.key_averages()]
    kernels = [kernel for kernel in kernels if kernel[1] > 0]
    shares: dict[str, float] = {}
    for name, micros, _ in kernels:
        shares[kind_of(name)] = shares.get(kind_of(name), 0.0) + micros
    longest = sorted(kernels, key=lambda k: -k[1])
    return {
        "microseconds": {kind: round(micros, 1) for kind, micros in shares.items()},
        "kernels": round(sum(count for *_, count in kernels)),
        "longest": [[name[:90], round(micros, 1), round(count, 1), kind_of(name)] for name, micros, count in longest[:60]],
    }


def measure(protocol: Recipe, task: TrainingData, way: str, together: int, epochs: int) -> dict[str, Any]:
    kernels, device = WAYS[way], torch.device("cuda")
    options = RunOptions(device=device, at_once=together)
    recipes = [dataclasses.replace(protocol, seed=seed) for seed in range(together)]
    with precision_of(protocol, False):
        begun = time.perf_counter()
        engine: Callable[[EngineInputs], Engine] = PlainEngine if kernels is None else partial(GraphEngine, kernels=kernels)
        runs = [Run(r, task, options, engine) for r in recipes]
        ready = time.perf_counter() - begun
        seconds = epochs_timed(runs, epochs)
        result: dict[str, Any] = {
            "protocol": protocol.dataset,
            "way": way,
            "precision": protocol.precision,
            "together": together,
            "seconds_per_epoch": round(statistics.median(seconds), 4),
            "range": [round(min(seconds), 4), round(max(seconds), 4)],
            "seconds_to_start": round(ready, 1),
            "memory_gib": round(torch.cuda.max_memory_reserved() / 2**30, 2),
        }
        if kernels is not None and together == 1:
            # One kernel at a time, or those at work at once would be counted with each other's time.
            one_at_a_time = Run(protocol, task, dataclasses.replace(options, at_once=2), engine)
            one_at_a_time.train_epoch(0)  # a device draws more power, and slows down, for numbers that are not 0
            result["profile"] = profile(cast(GraphEngine, one_at_a_time.engine))
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--protocols", nargs="+", default=["cifar10", "cifar100"], choices=list(CLASSES))
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=list(WAYS))
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--examples", type=int, default=50_000)
    parser.add_argument("--json", type=Path, help="append the results there, a JSON line each")
    arguments = parser.parse_args()
    facts = environment(torch.device("cuda"))
    print(json.dumps(facts))
    for name in arguments.protocols:
        base = recipe(f"{name}/jal-ce", noise="symmetric:0.8", seed=0)
        task = random_task(name, arguments.examples, base)
        for way in arguments.ways:
            for precision in PRECISIONS[name]:
                for together in TOGETHER[name] if way == "fast path" else [1]:
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
