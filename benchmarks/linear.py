"""Speed and memory of a loss with its linear head: ours, plain, compiled, torch's, Liger's, and three matrix products alone.

    python benchmarks/linear.py [--shape language-model vocabulary] [--seconds 50] [--json FILE] [--no-compile]

Forward plus backward of hidden states [N, D], a weight [K, D] without bias and labels [N], mean reduction; bfloat16 on a GPU,
else float32. The contestants take turns within one run: each number is a median with its quartiles. ``extra_mib`` is the peak
of memory beyond inputs and their gradients. ``products`` is the floor: the logits, and from them two products of the gradients'
sizes. ``ours`` computes gradients along with the loss, ``recompute`` in the backward pass. ``agreement`` is how far our value
and gradients are from the plain formula's, relative to these. What cannot run is said with the reason. ``--seconds`` is for
each shape.
"""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812 - the name every PyTorch reader expects
from losses import PLAIN, machine
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

import noiseproof

Step = Callable[[], Any]
Loss = Callable[[Tensor, Tensor, Tensor], Tensor]


class Shape(NamedTuple):
    rows: int
    width: int
    classes: int


SHAPES = {
    "language-model": Shape(8192, 4096, 128256),
    "vocabulary": Shape(4096, 1024, 50257),
    "middle": Shape(512, 256, 20000),
    "try": Shape(256, 64, 4000),
}
TURNS = 12


class Inputs(NamedTuple):
    hidden: Tensor
    weight: Tensor
    target: Tensor


def draw(shape: Shape, device: str) -> Inputs:
    """Hidden states and a weight that give logits of standard deviation 2."""
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    generator = torch.Generator(device).manual_seed(0)

    def normal(rows: int, scale: float) -> Tensor:
        values = torch.empty((rows, shape.width), dtype=dtype, device=device)
        return values.normal_(0, scale, generator=generator).requires_grad_()

    target = torch.randint(shape.classes, (shape.rows,), device=device, generator=generator)
    return Inputs(normal(shape.rows, 1.0), normal(shape.classes, 2 / shape.width**0.5), target)


def step_of(loss: Loss, inputs: Inputs) -> Step:
    def run() -> Tensor:
        inputs.hidden.grad = inputs.weight.grad = None
        value = loss(*inputs)
        value.backward()
        return value.detach()

    return run


def products(inputs: Inputs) -> Step:
    """The matrix products that no way of computing can do without."""
    hidden, weight = inputs.hidden.detach(), inputs.weight.detach()

    def run() -> tuple[Tensor, Tensor]:
        inputs.hidden.grad = inputs.weight.grad = None
        logits = hidden @ weight.t()
        return logits @ weight, logits.t() @ hidden

    return run


def ours(name: str, recompute: bool = False) -> Loss:
    criterion = noiseproof.create_loss(name)
    return partial(_ours, criterion, recompute)


def _ours(criterion: noiseproof.RobustLoss, recompute: bool, hidden: Tensor, weight: Tensor, target: Tensor) -> Tensor:
    return noiseproof.linear_loss(hidden, weight, target, criterion, recompute=recompute)


def plain(name: str) -> Loss:
    formula = F.cross_entropy if name == "ce" else PLAIN[name]
    return lambda hidden, weight, target: formula(F.linear(hidden, weight), target)


def torchs() -> Loss:
    """torch's own, from 2.13 on, in chunks."""
    options: Any = torch.nn.LinearCrossEntropyOptions()  # type: ignore[attr-defined, unused-ignore] # since torch 2.13
    function: Any = F.linear_cross_entropy  # type: ignore[attr-defined, unused-ignore]
    return lambda hidden, weight, target: function(hidden, weight, target, options=options)


def ligers() -> Loss:
    function: Any = importlib.import_module("liger_kernel.ops.fused_linear_cross_entropy").LigerFusedLinearCrossEntropyFunction

    def loss(hidden: Tensor, weight: Tensor, target: Tensor) -> Tensor:
        found = function.apply(hidden, weight, target)
        value: Tensor = found[0] if isinstance(found, tuple) else found
        return value

    return loss


def contestants(inputs: Inputs, compiled: bool) -> dict[str, Callable[[], Step]]:
    """Each with what prepares it; what is worth most comes first."""
    found: dict[str, Callable[[], Step]] = {"products": lambda: products(inputs)}
    for name in ("jal-ce", "ce", "jal-fl", "anl-ce"):
        found[f"ours {name}"] = partial(_prepared, ours, inputs, name)
    found["torch ce"] = partial(_prepared, torchs, inputs)
    found["liger ce"] = partial(_prepared, ligers, inputs)
    found["recompute jal-ce"] = partial(_prepared, ours, inputs, "jal-ce", True)
    found["plain ce"] = partial(_prepared, plain, inputs, "ce")
    found["plain jal-ce"] = partial(_prepared, plain, inputs, "jal-ce")
    if compiled:
        found["compiled jal-ce"] = lambda: step_of(torch.compile(plain("jal-ce")), inputs)
        found["compiled ce"] = lambda: step_of(torch.compile(plain("ce")), inputs)
    return found


def _prepared(make: Callable[..., Loss], inputs: Inputs, *arguments: Any) -> Step:
    return step_of(make(*arguments), inputs)


def peak_bytes(run: Step, inputs: Inputs) -> int:
    """The most memory of one step beyond inputs and their gradients, the results of the products among these."""
    inputs.hidden.grad = inputs.weight.grad = None
    gradients = inputs.hidden.nbytes + inputs.weight.nbytes
    if inputs.hidden.is_cuda:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before - gradients
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        run()
    held = most = 0
    for event in profiled.profiler.kineto_results.events():
        if event.name() == "[memory]":
            held += event.nbytes()
            most = max(most, held)
    return most - gradients


def milliseconds(run: Step, on_gpu: bool) -> float:
    if not on_gpu:
        start = time.perf_counter()
        run()
        return 1e3 * (time.perf_counter() - start)
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    first.record()
    run()
    last.record()
    last.synchronize()
    return float(first.elapsed_time(last))


def agreement(inputs: Inputs, name: str) -> dict[str, float]:
    """How far ours is from the plain formula in the same dtype, relative to it."""

    def results(loss: Loss) -> list[Tensor]:
        value = step_of(loss, inputs)()
        return [t.detach().float().cpu() for t in (value, inputs.hidden.grad, inputs.weight.grad) if t is not None]

    pairs = zip(("value", "hidden", "weight"), results(ours(name)), results(plain(name)), strict=True)
    return {what: float(f"{torch.dist(one, other) / other.norm():.2e}") for what, one, other in pairs}


def measure(shape: Shape, device: str, seconds: float, compiled: bool, say: Callable[..., None]) -> None:
    """One shape, all contestants."""
    inputs, start = draw(shape, device), time.perf_counter()
    about = {"rows": shape.rows, "width": shape.width, "classes": shape.classes, "dtype": str(inputs.hidden.dtype)}
    steps: dict[str, Step] = {}
    extra: dict[str, int] = {}
    for name, prepare in contestants(inputs, compiled).items():
        if time.perf_counter() - start > 0.6 * seconds:
            say(**about, skipped=name, reason="no time left")
            continue
        try:
            run = prepare()
            run()
            extra[name] = peak_bytes(run, inputs)
            steps[name] = run
        except Exception as error:  # one that is not installed or does not fit must not end the others
            say(**about, skipped=name, reason=f"{type(error).__name__}: {error}"[:300])
    times: dict[str, list[float]] = {name: [] for name in steps}
    turn = 0
    while turn < TURNS and (turn < 3 or time.perf_counter() - start < 0.9 * seconds):
        for name, run in steps.items():
            times[name].append(milliseconds(run, device == "cuda"))
        turn += 1
    floor = statistics.median(times["products"])
    for name, values in times.items():
        middle = statistics.median(values)
        low, *_, high = statistics.quantiles(values, n=4)
        quartiles = [round(low, 3), round(high, 3)]
        more = {"over_products": round(middle / floor, 3), "extra_mib": round(extra[name] / 2**20, 1), "repeats": len(values)}
        say(**about, contestant=name, ms=round(middle, 3), quartiles=quartiles, **more)
    for name in ("ce", "jal-ce"):
        if time.perf_counter() - start < seconds:
            say(**about, agreement=name, **agreement(inputs, name))


def main() -> None:
    on_gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--shape", nargs="+", choices=sorted(SHAPES), default=["language-model", "vocabulary"] if on_gpu else ["try"]
    )
    parser.add_argument("--seconds", type=float, default=50.0, help="for each shape")
    parser.add_argument("--json", type=Path, help="also append the results there, a JSON line each")
    parser.add_argument("--no-compile", action="store_true")
    arguments = parser.parse_args()

    def say(**line: Any) -> None:
        text = json.dumps(line)
        print(text, flush=True)
        if arguments.json is not None:
            with arguments.json.open("a", encoding="utf-8") as file:
                file.write(text + "\n")

    device = {"gpu": torch.cuda.get_device_name()} if on_gpu else {}
    say(machine={**machine(), **device}, protocol=" ".join((__doc__ or "").split("\n\n")[2].split()))
    for name in arguments.shape:
        measure(SHAPES[name], "cuda" if on_gpu else "cpu", arguments.seconds, not arguments.no_compile, say)
        if on_gpu:
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
