"""Speed of the losses on this machine: ours, the plain formula in eager torch, the same compiled, and F.cross_entropy.

    python benchmarks/losses.py [--losses jal-ce jal-fl nce] [--classes 10 1000 32768] [--rows 128] [--seconds 2] [--no-compile]

Forward plus backward, float32, mean reduction. The contestants take turns within one run. A turn starts with an untimed step,
so that each is timed with the caches and the allocator as its own last step left them, as in a training loop that uses it. Each
number is a median with its quartiles; the last columns are the ratios to read.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F  # noqa: N812 - the name every PyTorch reader expects
from torch import Tensor

import noiseproof

ELEMENTS = (2**18, 2**20, 2**22)
"""Logits per measurement. Each number of classes is measured at a small, a middle and a large batch: a fixed cost of about a
millisecond a step weighs on the small ones, and one size alone would hide it. At least 8 rows, at most 4,096."""

STEPS_PER_TURN = 3

Loss = Callable[[Tensor, Tensor], Tensor]


def _plain_nce(logits: Tensor, target: Tensor) -> Tensor:
    log_p = F.log_softmax(logits, dim=1)
    one_hot = F.one_hot(target, logits.shape[1]).float()
    return -(one_hot * log_p).sum(1) / -log_p.sum(1)


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
    "nce": lambda z, y: _plain_nce(z, y).mean(),
    "nfl": lambda z, y: _plain_nfl(z, y).mean(),
    "amse": lambda z, y: _plain_amse(z, y).mean(),
    "gce": lambda z, y: _plain_gce(z, y).mean(),
    "jal-ce": lambda z, y: (_plain_nce(z, y) + _plain_amse(z, y)).mean(),
    "jal-fl": lambda z, y: (_plain_nfl(z, y) + _plain_amse(z, y)).mean(),
}
"""Each loss as its paper prints it, with one-hot vectors and autograd: how such code is usually written."""


def step(loss: Loss, logits: Tensor, target: Tensor) -> Callable[[], None]:
    """One forward and backward pass."""

    def run() -> None:
        logits.grad = None
        loss(logits, target).backward()

    return run


def interleaved(steps: dict[str, Callable[[], None]], seconds: float) -> dict[str, list[float]]:
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
                start = time.perf_counter()
                run()
                times[name].append(1e3 * (time.perf_counter() - start))
    return {name: sorted(values) for name, values in times.items()}


def batch_sizes(classes: int) -> list[int]:
    """The batches to measure at this number of classes."""
    return sorted({min(4096, max(8, elements // classes)) for elements in ELEMENTS})


def measure(name: str, classes: int, rows: int, seconds: float, compiled: bool) -> dict[str, object]:
    """One loss at one number of classes and one batch size."""
    generator = torch.Generator().manual_seed(0)
    logits = (3 * torch.randn(rows, classes, generator=generator)).requires_grad_()
    target = torch.randint(classes, (rows,), generator=generator)
    steps = {
        "ours": step(noiseproof.create_loss(name), logits, target),
        "plain": step(PLAIN[name], logits, target),
        "cross entropy": step(F.cross_entropy, logits, target),
    }
    if compiled:
        torch.compiler.reset()
        steps["compiled"] = step(torch.compile(PLAIN[name], fullgraph=True), logits, target)
    times = interleaved(steps, seconds)
    middle = {key: statistics.median(values) for key, values in times.items()}
    return {
        "loss": name,
        "classes": classes,
        "rows": rows,
        "milliseconds": {key: round(value, 3) for key, value in middle.items()},
        "quartiles": {key: [round(v[len(v) // 4], 3), round(v[3 * len(v) // 4], 3)] for key, v in times.items()},
        "repeats": len(times["ours"]),
        "ours over cross entropy": round(middle["ours"] / middle["cross entropy"], 2),
        "plain over ours": round(middle["plain"] / middle["ours"], 2),
    }


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
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--losses", nargs="+", default=["jal-ce", "jal-fl", "nce", "amse", "gce"], choices=sorted(PLAIN))
    parser.add_argument("--classes", nargs="+", type=int, default=[10, 100, 1000, 32768])
    parser.add_argument("--rows", nargs="+", type=int, help="batch sizes, instead of a small, a middle and a large one")
    parser.add_argument("--seconds", type=float, default=2.0, help="per loss and number of classes")
    parser.add_argument("--no-compile", action="store_true", help="leave the compiled plain formula out")
    parser.add_argument("--json", type=Path, help="also write the results there, a JSON line each")
    arguments = parser.parse_args()

    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {platform.processor() or platform.machine()}")
    print("milliseconds, forward + backward, median [quartiles]")
    print(
        f"{'loss':8} {'K':>6} {'N':>5} {'ours':>22} {'plain':>9} {'compiled':>9} {'F.ce':>7}  "
        f"{'ours/F.ce':>9} {'plain/ours':>10}"
    )
    results = []
    for name in arguments.losses:
        for classes, rows in [(k, n) for k in arguments.classes for n in arguments.rows or batch_sizes(k)]:
            result = measure(name, classes, rows, arguments.seconds, not arguments.no_compile)
            results.append(result)
            ms: dict[str, float] = result["milliseconds"]  # type: ignore[assignment]
            low, high = result["quartiles"]["ours"]  # type: ignore[index]
            ours = f"{ms['ours']:.3f} [{low:.3f}, {high:.3f}]"
            compiled = f"{ms['compiled']:.3f}" if "compiled" in ms else "-"
            print(
                f"{name:8} {classes:6} {result['rows']:5} {ours:>22} {ms['plain']:9.3f} {compiled:>9} "
                f"{ms['cross entropy']:7.3f}  {result['ours over cross entropy']:9} {result['plain over ours']:10}",
                flush=True,
            )
    if arguments.json:
        lines = [{"machine": machine(), "protocol": (__doc__ or "").split("\n\n")[2]}, *results]
        arguments.json.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


if __name__ == "__main__":
    main()
