"""What ``noiseproof.L1`` adds to a step of training on this CPU: the digits' network and the paper's CNN for CIFAR-10.

    python benchmarks/decay.py [--networks digits cnn8] [--rounds 300] [--threads 1] [--json FILE]

A step is batch, forward, JAL-CE, backward and the recipe's optimiser:

none      without L1
ours      with ``noiseproof.L1``
formula   with ``strength * sum(w.abs().sum())`` in plain torch
in place  with ``noiseproof.L1(...).add_gradient()`` after backward
floor     with an autograd function of the same gradient that computes no value: what any term of the loss costs at least

In each round every way takes a step between two steps without L1, and its cost is the difference from their mean, in the
thread's own time if there is one thread. Numbers are medians over the rounds, with quartiles.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from losses import machine
from torch import Tensor

import noiseproof
from noiseproof.models import create_model

STRENGTH, BATCH = 5e-5, 128
Step = Callable[[], None]


class Floor(torch.autograd.Function):
    """The gradient of the penalty and 0 for its value."""

    @staticmethod
    def forward(ctx: Any, *weights: Tensor) -> Tensor:
        ctx.weights = weights
        return torch.zeros(())

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, ...]:
        gradients = torch._foreach_sign(ctx.weights)
        torch._foreach_mul_(gradients, STRENGTH * gradient)
        return tuple(gradients)


floor: Callable[..., Tensor] = Floor.apply


def steps(network: str) -> dict[str, Step]:
    """A step of each way, on a network and an optimiser that they share."""
    torch.manual_seed(0)
    if network == "digits":
        model, inputs = create_model("mlp", 10, in_features=64), torch.randn(10 * BATCH, 64)
        optimiser: torch.optim.Optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    else:
        model, inputs = create_model("cnn8", 10), torch.randn(10 * BATCH, 3, 32, 32)
        optimiser = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    labels = torch.randint(10, (len(inputs),))
    criterion = noiseproof.JALCE(alpha=1.0, beta=1.0, a=30.0)
    weights = list(model.parameters())
    decay = noiseproof.L1(model, STRENGTH)
    ways: dict[str, Callable[[], Tensor] | None] = {
        "none": None,
        "ours": decay,
        "formula": lambda: STRENGTH * torch.stack([weight.abs().sum() for weight in weights]).sum(),
        "floor": partial(floor, *weights),
    }

    def step(penalty: Callable[[], Tensor] | None = None, in_place: bool = False) -> None:
        batch = torch.randint(len(inputs), (BATCH,))
        optimiser.zero_grad()
        loss = criterion(model(inputs[batch]), labels[batch])
        if penalty is not None:
            loss = loss + penalty()
        loss.backward()
        if in_place:
            decay.add_gradient()
        optimiser.step()

    return {**{way: partial(step, penalty) for way, penalty in ways.items()}, "in place": partial(step, in_place=True)}


def measure(network: str, rounds: int) -> dict[str, object]:
    """Milliseconds of a step without L1, and what each way adds to it."""
    ways = steps(network)
    clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    none = ways["none"]

    def timed(step: Step) -> float:
        begun = clock()
        step()
        return 1e3 * (clock() - begun)

    for step in [*ways.values()] * 3:
        step()
    base: list[float] = []
    added: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way, step in ways.items():
            before, with_it, after = timed(none), timed(step), timed(none)
            base += [before, after]
            added[way].append(with_it - (before + after) / 2)
    middle = statistics.median(base)
    return {
        "network": network,
        "rounds": rounds,
        "milliseconds": round(middle, 3),
        "added_percent": {way: [round(100 * q / middle, 1) for q in quartiles(values)] for way, values in added.items()},
    }


def quartiles(values: list[float]) -> list[float]:
    low, middle, high = statistics.quantiles(values, n=4)
    return [middle, low, high]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--networks", nargs="+", default=["digits", "cnn8"], choices=["digits", "cnn8"])
    parser.add_argument("--rounds", type=int, default=300, help="for the digits' network; a twentieth of it for the CNN")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path, help="also write the results there, a JSON line each")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    lines: list[dict[str, object]] = [{"machine": machine()}]
    print(f"torch {torch.__version__}, {arguments.threads} threads; per cent of a step: median [quartiles]")
    for network in arguments.networks:
        result = measure(network, arguments.rounds if network == "digits" else max(arguments.rounds // 20, 5))
        lines.append(result)
        added: dict[str, list[float]] = result["added_percent"]  # type: ignore[assignment] # of the values of one dictionary
        shown = ", ".join(f"{way} {m:+.1f} [{low:+.1f}, {high:+.1f}]" for way, (m, low, high) in added.items())
        print(f"{network}: {result['milliseconds']} ms; {shown}", flush=True)
    if arguments.json:
        arguments.json.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


if __name__ == "__main__":
    main()
