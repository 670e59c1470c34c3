"""Speed of the losses on this machine: ours and the plain formula, in eager torch and compiled, and F.cross_entropy.

    python benchmarks/losses.py [--losses jal-ce] [--shapes 128x10 256x1000] [--compiled ce | --no-compile] [--cpu-time]

Forward plus backward, float32, mean reduction, one thread. The contestants take turns within one run. A turn starts with an
untimed step, so that each is timed with the caches and the allocator as its own last step left them, as in a training loop that
uses it. Each number is a median with its quartiles; the last columns are the ratios to read. On a machine that does other work
too, --cpu-time counts the time on the processor instead of the time on the clock.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the name every PyTorch reader expects
from torch import Tensor, nn

import noiseproof

SHAPES = ("128x10", "128x100", "256x1000", "1024x1000", "32x32768")
"""Rows and classes. In the first each call of torch costs more than its arithmetic, in the last memory is what costs."""
COMPILED_SHAPES = ("128x10", "256x1000")

STEPS_PER_TURN = 3

Loss = Callable[[Tensor, Tensor], Tensor]


def _plain_ce(logits: Tensor, target: Tensor) -> Tensor:
    one_hot = F.one_hot(target, logits.shape[1]).float()
    return -(one_hot * F.log_softmax(logits, dim=1)).sum(1)


def _plain_nce(logits: Tensor, target: Tensor) -> Tensor:
    log_p = F.log_softmax(logits, dim=1)
    one_hot = F.one_hot(target, logits.shape[1]).float()
    return -(one_hot * log_p).sum(1) / -log_p.sum(1)


def _plain_nnce(logits: Tensor, target: Tensor, minimum: float = 1e-8) -> Tensor:
    room = F.log_softmax(logits, dim=1).clamp_min(math.log(minimum)) - math.log(minimum)
    one_hot = F.one_hot(target, logits.shape[1]).float()
    return 1 - (one_hot * room).sum(1) / room.sum(1)


def _plain_nfl(logits: Tensor, target: Tensor, gamma: float = 0.5) -> Tensor:
    log_p = F.log_softmax(logits, dim=1)
    focal = -((1 - log_p.exp()) ** gamma) * log_p
    one_hot = F.one_hot(target, logits.shape[1]).float()
    return (one_hot * focal).sum(1) / focal.sum(1)


def _plain_amse(logits: Tensor, target: Tensor, a: float = 30.0) -> Tensor:
    p = F.softmax(logits, dim=1)
    one_hot = F.one_hot(target, logits.shape[1]).float()
    return ((a * one_hot - p) ** 2).mean(1)


def _plain_gce(logits: Tensor, target: Tensor, q: float = 0.7) -> Tensor:
    p = F.softmax(logits, dim=1)
    one_hot = F.one_hot(target, logits.shape[1]).float()
    return (1 - (one_hot * p).sum(1) ** q) / q


PLAIN: dict[str, Loss] = {
    "ce": lambda z, y: _plain_ce(z, y).mean(),
    "nce": lambda z, y: _plain_nce(z, y).mean(),
    "nfl": lambda z, y: _plain_nfl(z, y).mean(),
    "amse": lambda z, y: _plain_amse(z, y).mean(),
    "gce": lambda z, y: _plain_gce(z, y).mean(),
    "jal-ce": lambda z, y: (_plain_nce(z, y) + _plain_amse(z, y)).mean(),
    "jal-fl": lambda z, y: (_plain_nfl(z, y) + _plain_amse(z, y)).mean(),
    "anl-ce": lambda z, y: (5 * _plain_nce(z, y) + 5 * _plain_nnce(z, y)).mean(),
}
"""Each loss as its paper prints it, with one-hot vectors and autograd: how such code is usually written."""


def step(loss: Loss, logits: Tensor, target: Tensor) -> Callable[[], None]:
    """One forward and backward pass."""

    def run() -> None:
        logits.grad = None
        loss(logits, target).backward()

    return run


def interleaved(
    steps: dict[str, Callable[[], None]], seconds: float, clock: Callable[[], float] = time.perf_counter
) -> dict[str, list[float]]:
    """Milliseconds of each, sorted, the contestants taking turns until the time is up."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    for run in steps.values():
        for _ in range(3):
            run()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(next(iter(times.values()))) < 5 * STEPS_PER_TURN:
        for name, run in steps.items():
            run()
            for _ in range(STEPS_PER_TURN):
                start = clock()
                run()
                times[name].append(1e3 * (clock() - start))
    return {name: sorted(values) for name, values in times.items()}


def measure(
    name: str, rows: int, classes: int, seconds: float, compiled: bool, clock: Callable[[], float]
) -> dict[str, object]:
    """One loss at one shape."""
    generator = torch.Generator().manual_seed(0)
    logits = (3 * torch.randn(rows, classes, generator=generator)).requires_grad_()
    target = torch.randint(classes, (rows,), generator=generator)
    loss = noiseproof.create_loss(name)
    steps = {
        "ours": step(loss, logits, target),
        "plain": step(PLAIN[name], logits, target),
        "cross entropy": step(F.cross_entropy, logits, target),
    }
    if compiled:
        torch.compiler.reset()
        steps["ours compiled"] = step(torch.compile(loss, fullgraph=True), logits, target)
        steps["compiled"] = step(torch.compile(PLAIN[name], fullgraph=True), logits, target)
    times = interleaved(steps, seconds, clock)
    middle = {key: statistics.median(values) for key, values in times.items()}
    ratios = {
        "ours over cross entropy": round(middle["ours"] / middle["cross entropy"], 2),
        "ours over plain": round(middle["ours"] / middle["plain"], 2),
    }
    if compiled:
        ratios["ours over plain, compiled"] = round(middle["ours compiled"] / middle["compiled"], 2)
        ratios["in functions, compiled"] = in_functions(name, loss, logits, target, seconds, clock)
    return {
        "loss": name,
        "classes": classes,
        "rows": rows,
        "milliseconds": {key: round(value, 3) for key, value in middle.items()},
        "quartiles": {key: [round(v[len(v) // 4], 3), round(v[3 * len(v) // 4], 3)] for key, v in times.items()},
        "repeats": len(times["ours"]),
        **ratios,
    }


def in_functions(
    name: str, loss: nn.Module, logits: Tensor, target: Tensor, seconds: float, clock: Callable[[], float]
) -> float:
    """Ours over plain, where both are called in a compiled function: a module costs some ten microseconds more a call.

    Apart from the rest, which another compiled form of the same loss would slow down.
    """
    torch.compiler.reset()
    steps = {
        "ours": step(torch.compile(lambda logits, target: loss(logits, target), fullgraph=True), logits, target),
        "plain": step(torch.compile(PLAIN[name], fullgraph=True), logits, target),
    }
    times = interleaved(steps, seconds, clock)
    return round(statistics.median(times["ours"]) / statistics.median(times["plain"]), 2)


def machine() -> dict[str, str]:
    """Where and when, and with which code."""
    model = [line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line]
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    return {
        "processor": model[0] if model else platform.machine(),
        "threads": str(torch.get_num_threads()),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "commit": commit,
        "date": time.strftime("%Y-%m-%d"),
        "load": " ".join(f"{value:.1f}" for value in os.getloadavg()),
    }


RATIOS = ("ours over cross entropy", "ours over plain", "ours over plain, compiled", "in functions, compiled")


def show(result: dict[str, Any]) -> None:
    """One line of the table."""
    ms, (low, high) = result["milliseconds"], result["quartiles"]["ours"]
    both = [f"{ms[key]:.3f}" if key in ms else "-" for key in ("plain", "ours compiled", "compiled", "cross entropy")]
    ratios = [str(result.get(key, "-")) for key in RATIOS]
    shape, ours = f"{result['rows']}x{result['classes']}", f"{ms['ours']:.3f} [{low:.3f}, {high:.3f}]"
    print(f"{result['loss']:7} {shape:>9} {ours:>24}", *(f"{x:>9}" for x in both), *(f"{x:>8}" for x in ratios), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--losses", nargs="+", default=["ce", "gce", "jal-ce", "jal-fl", "anl-ce"], choices=sorted(PLAIN))
    parser.add_argument("--shapes", nargs="+", default=list(SHAPES), help="rows and classes, such as 128x10")
    parser.add_argument("--compiled", nargs="+", default=["ce", "jal-ce", "jal-fl"], help="the losses to compile too")
    parser.add_argument("--no-compile", dest="compiled", action="store_const", const=[], help="compile none")
    parser.add_argument("--seconds", type=float, default=1.0, help="per loss and shape")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--cpu-time", action="store_true", help="time on the processor, with one thread")
    parser.add_argument("--json", type=Path, help="also write the results there, a JSON line each")
    arguments = parser.parse_args()

    torch.set_num_threads(arguments.threads)
    clock = time.thread_time if arguments.cpu_time else time.perf_counter
    start: dict[str, Any] = {"machine": machine(), "clock": "processor" if arguments.cpu_time else "wall"}
    print(f"torch {torch.__version__}, {arguments.threads} threads, load {start['machine']['load']}, {start['clock']} time")
    print(
        "milliseconds, forward + backward, median [quartiles]; then ours / F.ce, ours / plain, ours / plain both compiled, and"
    )
    print("the same where ours too is called in a compiled function")
    print(f"{'loss':7} {'shape':>9} {'ours':>24} {'plain':>9} {'ours c.':>9} {'plain c.':>9} {'F.ce':>9}")
    results = []
    for shape in arguments.shapes:
        rows, classes = map(int, shape.split("x"))
        for name in arguments.losses:
            compiled = name in arguments.compiled and shape in COMPILED_SHAPES
            results.append(measure(name, rows, classes, arguments.seconds, compiled, clock))
            show(results[-1])
    if arguments.json:
        lines = [{**start, "protocol": (__doc__ or "").split("\n\n")[2]}, *results]
        arguments.json.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


if __name__ == "__main__":
    main()
