"""What a small batch costs the host, beside ``F.cross_entropy``: ``benchmarks/kernels.py --host``.

On such a batch the host is slower than the GPU. A turn is many steps and one wait for the device; the contestants take turns.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the name every PyTorch reader expects
from torch import Tensor

import noiseproof

DEVICE = "cuda"
SHAPES = ((128, 10), (128, 64), (128, 100), (4096, 10))
STEPS = 30
"""Of a turn"""

Step = Callable[[], Any]


def host_times(clock: Any, losses: Sequence[str], seconds: float = 4.0) -> None:
    """Both passes, the first alone, and that without a gradient to come: microseconds, and how many of ``F.cross_entropy``."""
    for rows, classes in SHAPES:
        if clock.left < seconds + 2:
            clock.say(left_out=f"host {rows} {classes}")
            continue
        for (loss, way), turns in _in_turns(_steps(losses, rows, classes), seconds).items():
            first, _, third = statistics.quantiles(turns["us"], n=4)
            clock.say(
                **{"host": way, "loss": loss, "rows": rows, "classes": classes, "dtype": "float32"},
                **{"us": round(statistics.median(turns["us"]), 1), "quartiles": [round(first, 1), round(third, 1)]},
                **{"over_cross_entropy": round(statistics.median(turns["ratio"]), 3), "n": len(turns["us"]), "steps": STEPS},
            )


def _steps(losses: Sequence[str], rows: int, classes: int) -> dict[tuple[str, str], Step]:
    generator = torch.Generator(DEVICE).manual_seed(0)
    leaf = torch.randn((rows, classes), device=DEVICE, generator=generator).mul_(2).requires_grad_()
    target = torch.randint(classes, (rows,), device=DEVICE, generator=generator)
    steps: dict[tuple[str, str], Step] = {}
    named: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"F.cross_entropy": F.cross_entropy}
    for name, loss in (named | {name: noiseproof.create_loss(name).to(DEVICE) for name in losses}).items():
        steps[name, "both"] = partial(_both, loss, leaf, target)
        steps[name, "forward"] = partial(loss, leaf, target)
        steps[name, "no gradient"] = partial(loss, leaf.detach(), target)
    with ThreadPoolExecutor(12) as pool:  # which compile at once
        list(pool.map(lambda step: step(), steps.values()))
    return steps


def _both(loss: Callable[[Tensor, Tensor], Tensor], leaf: Tensor, target: Tensor) -> None:
    leaf.grad = None
    loss(leaf, target).backward()


def _in_turns(steps: dict[tuple[str, str], Step], seconds: float) -> dict[tuple[str, str], dict[str, list[float]]]:
    """Microseconds of a step in each turn, and their ratio to ``F.cross_entropy``'s in the same turn."""
    found: dict[tuple[str, str], dict[str, list[float]]] = {key: {"us": [], "ratio": []} for key in steps}
    for step in steps.values():
        _microseconds(step)
    end, turns = time.perf_counter() + seconds, 0
    while turns < 5 or time.perf_counter() < end:
        turns += 1
        for (name, way), step in steps.items():
            found[name, way]["us"].append(_microseconds(step))
            found[name, way]["ratio"].append(found[name, way]["us"][-1] / found["F.cross_entropy", way]["us"][-1])
    return found


def _microseconds(step: Step) -> float:
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(STEPS):
        step()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / STEPS * 1e6
