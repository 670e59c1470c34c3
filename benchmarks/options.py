"""What can be trained beside a loss, and losses that the catalogue lacks: which help an MLP on wrong labels, at what cost.

    python benchmarks/options.py --sets DIR --records records/options_cpu.jsonl [--choose] [--methods ce,ce+elr:7:0.7]
    python benchmarks/options.py --records records/options_cpu.jsonl --report [--choose]

Sets, noises and the network are those of benchmarks/zoo.py and zoo_methods.py: at most 1,000 training rows, labels as given
and with 40 % symmetric noise. A method is a loss and, after a ``+``, an option with its numbers:

elr:STRENGTH:MOMENTUM  early-learning regularisation (Liu et al., NeurIPS 2020) adds ``STRENGTH * log(1 - <p, t>)``, where each
                       example's target t is the moving average of its predictions p
agree:WARMUP[:RULE]    after so many epochs only examples count whose given label is predicted: is the argmax of ``p / m``,
                       where m is the mean prediction. Rule ``none`` takes p, ``prior`` p times the share of the label / m
peer:ALPHA             peer loss (Liu and Guo, ICML 2020): minus ALPHA times the loss of random logits and random labels

Losses with numbers: ``dpd:BETA`` density-power divergence (Basu et al., 1998), ``bt:T1:T2`` bi-tempered (Amid et al.,
NeurIPS 2019), ``gla:Q`` GCE of logits to which the log of the given labels' frequencies is added, ``lace`` cross entropy of
these, and ``wce`` cross entropy with tempered class weights. ``ce-early`` is cross entropy stopped by its loss on a held-out
fifth of the given labels.

Each run is also evaluated with exponential moving averages of its weights, whose cost is recorded apart. ``--choose`` runs the
settings to choose among, on seeds 11 and 12 of every second set; the report is of seeds 1, 2 and 3.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from zoo import cells_of, lines_of, matches, problem_of
from zoo_methods import PREDICTORS, Problem, widened
from zoo_report import bootstrapped, table

from noiseproof.data import Split, from_arrays
from noiseproof.losses import create_loss
from noiseproof.train import RunOptions, own_recipe, with_noise
from noiseproof.train.batch_loader import Batch
from noiseproof.train.class_weights import AdjustedLogits, training_loss
from noiseproof.train.engine import EngineInputs, PlainEngine, precision_of
from noiseproof.train.network import logits_of
from noiseproof.train.record import environment
from noiseproof.train.run import Run

ROWS = 1000
NOISES = "given*,sym:0.4"
CHOOSING_SEEDS = (11, 12)
DECAYS = (0.998, 0.999)
"""Of the averages of weights"""
MARGINAL_MOMENTUM = 0.9
LEAST_P = 1e-4
"""Early-learning regularisation clips probabilities below at it, as its authors' code does"""
TO_CHOOSE = ("ce", "ce+elr:3:0.7", "ce+elr:7:0.7", "ce+agree:5", "ce+agree:10", "ce+agree:5:prior")
WEIGHTED = {"wce": "tempered", "lace": "logit-adjustment"}
Loss = Callable[[Tensor, Tensor], Tensor]
Key = tuple[str, str, int, str]
Cells = dict[tuple[str, str, int], dict[str, float]]
"""By set, noise and seed: accuracy, balanced accuracy and CPU seconds"""


def density_power(logits: Tensor, target: Tensor, beta: float) -> Tensor:
    """``sum p**(1 + beta) - (1 + 1/beta) p[y]**beta + 1/beta``; beta -> 0 is cross entropy, beta = 1 mean squared error."""
    log_p = torch.log_softmax(logits, 1)
    of_label = log_p.gather(1, target[:, None])[:, 0]
    return ((log_p * (1 + beta)).exp().sum(1) - (1 + 1 / beta) * (of_label * beta).exp() + 1 / beta).mean()


def bi_tempered(logits: Tensor, target: Tensor, t1: float, t2: float, steps: int = 5) -> Tensor:
    """The Bregman divergence of ``log_t1`` from the one-hot label to the tempered softmax with ``t2 > 1``."""
    with torch.no_grad():  # the fixed point of the normalisation; its gradient is that of the implicit function
        centred = logits - logits.max(1, keepdim=True).values
        scaled = centred
        for _ in range(steps):
            scaled = centred * exp_t(scaled, t2).sum(1, keepdim=True) ** (1 - t2)
        total = exp_t(scaled, t2).sum(1, keepdim=True)
        shift = -log_t(1 / total, t2) + logits.max(1, keepdim=True).values
        p = exp_t(logits - shift, t2)
        escort = p**t2 / (p**t2).sum(1, keepdim=True)
    shift = shift + (escort * (logits - logits.detach())).sum(1, keepdim=True)
    p = exp_t(logits - shift, t2)
    of_label = p.gather(1, target[:, None])[:, 0]
    return (-log_t(of_label, t1) - (1 - (p ** (2 - t1)).sum(1)) / (2 - t1)).mean()


def log_t(x: Tensor, t: float) -> Tensor:
    return (x ** (1 - t) - 1) / (1 - t)


def exp_t(x: Tensor, t: float) -> Tensor:
    return (1 + (1 - t) * x).clamp_min(0) ** (1 / (1 - t))


class Objective:
    """What a step minimises."""

    def __init__(self, loss: Loss, labels: Tensor, classes: int) -> None:
        self.loss, self.labels, self.classes = loss, labels, classes
        self.epoch = 0

    def __call__(self, logits: Tensor, batch: Batch) -> Tensor:
        return self.loss(logits, batch.labels)


class EarlyLearning(Objective):
    """The loss and early-learning regularisation."""

    def __init__(self, *plain: Any, strength: float, momentum: float) -> None:
        super().__init__(*plain)
        self.strength, self.momentum = strength, momentum
        self.targets = torch.zeros(len(self.labels), self.classes)

    def __call__(self, logits: Tensor, batch: Batch) -> Tensor:
        p = logits.softmax(1).clamp(LEAST_P, 1 - LEAST_P)
        now = p.detach() / p.detach().sum(1, keepdim=True)
        target = self.momentum * self.targets[batch.indices] + (1 - self.momentum) * now
        self.targets[batch.indices] = target
        return super().__call__(logits, batch) + self.strength * torch.log(1 - (p * target).sum(1)).mean()


class Agreement(Objective):
    """After the warm-up, the loss of those examples alone whose given label is predicted."""

    def __init__(self, *plain: Any, warm_up: int, rule: str) -> None:
        super().__init__(*plain)
        self.warm_up, self.rule = warm_up, rule
        self.marginal = torch.full((self.classes,), 1 / self.classes)
        self.prior = torch.bincount(self.labels, minlength=self.classes) / len(self.labels)

    def __call__(self, logits: Tensor, batch: Batch) -> Tensor:
        p = logits.detach().softmax(1)
        self.marginal = MARGINAL_MOMENTUM * self.marginal + (1 - MARGINAL_MOMENTUM) * p.mean(0)
        if self.epoch < self.warm_up:
            return super().__call__(logits, batch)
        over = {"marginal": torch.ones(self.classes), "prior": self.prior, "none": self.marginal}[self.rule]
        factor = over / self.marginal.clamp_min(1e-6)
        kept = (p * factor).argmax(1) == batch.labels
        return self.loss(logits[kept], batch.labels[kept]) if kept.any() else 0 * logits.sum()


class Peer(Objective):
    """The loss minus that of random logits and random labels of the batch."""

    def __init__(self, *plain: Any, alpha: float) -> None:
        super().__init__(*plain)
        self.alpha = alpha

    def __call__(self, logits: Tensor, batch: Batch) -> Tensor:
        one, other = torch.randperm(len(logits)), torch.randperm(len(logits))
        p = logits[one].softmax(1).gather(1, batch.labels[other, None])
        return super().__call__(logits, batch) + self.alpha * torch.log(p + 1e-8).mean()


def loss_of(text: str, labels: Tensor, classes: int) -> Loss:
    name, *numbers = text.split(":")
    values = [*map(float, numbers)]
    if name == "dpd":
        return lambda logits, target: density_power(logits, target, values[0])
    if name == "bt":
        return lambda logits, target: bi_tempered(logits, target, values[0], values[1])
    if name == "gla":
        return AdjustedLogits(create_loss("gce", q=values[0]), torch.bincount(labels, minlength=classes))
    if name in WEIGHTED:
        return training_loss(create_loss("ce"), WEIGHTED[name], torch.bincount(labels, minlength=classes))
    return create_loss(name)


def objective_of(method: str, labels: Tensor, classes: int) -> Objective:
    loss, _, option = method.partition("+")
    plain = loss_of(loss, labels, classes), labels, classes
    name, *values = option.split(":")
    if name == "elr":
        return EarlyLearning(*plain, strength=float(values[0]), momentum=float(values[1]))
    if name == "agree":
        return Agreement(*plain, warm_up=int(values[0]), rule=values[1] if values[1:] else "marginal")
    if name == "peer":
        return Peer(*plain, alpha=float(values[0]))
    if name:
        raise ValueError(f"no such option: {option}")
    return Objective(*plain)


class OptionEngine(PlainEngine):
    """The plain engine with another objective, and averages of the weights."""

    def __init__(self, inputs: EngineInputs, method: str, labels: Tensor) -> None:
        super().__init__(inputs)
        for group in self.optimiser.torchs.param_groups:
            group["fused"] = True  # the same numbers but for rounding, in less time
        self.objective = objective_of(method, labels, inputs.classes)
        self.averages = {decay: AveragedModel(inputs.network, multi_avg_fn=get_ema_multi_avg_fn(decay)) for decay in DECAYS}
        self.seconds = dict.fromkeys(DECAYS, 0.0)

    def close(self) -> None:
        """Nothing to free."""

    def train_epoch(self, epoch: int, *rest: Any) -> Any:
        self.objective.epoch = epoch
        return super().train_epoch(epoch, *rest)

    def step(self, batch: Batch, lr: float) -> tuple[Tensor, Tensor]:
        self.optimiser.zero_grad()
        logits = logits_of(self.joined, batch.inputs, self.inputs.classes)
        loss = self.objective(logits, batch)
        loss.backward()
        self.optimiser.step(lr)
        for decay, average in self.averages.items():
            start = time.process_time()
            average.update_parameters(self.inputs.network)
            self.seconds[decay] += time.process_time() - start
        return loss.detach(), logits.detach().argmax(1)


def predictions(method: str, problem: Problem) -> dict[str, tuple[Any, float]]:
    """Probabilities on the test rows and CPU seconds, of the last weights and of each average."""
    start = time.process_time()
    if method == "ce-early":
        p = PREDICTORS[method](problem.x, problem.given, problem.x_test, problem.classes, problem.seed)
        return {"last": (p, time.process_time() - start)}
    there, y = np.unique(problem.given, return_inverse=True)
    dataset = from_arrays(problem.x, y, name="features", classes=tuple(map(str, there)))
    recipe = own_recipe(dataset, "features", "ce", seed=problem.seed, gpu=False)
    recipe = dataclasses.replace(recipe, standardise=False, global_scaling=False)
    wanted = Split(problem.x_test.astype(np.float32), np.zeros(len(problem.x_test), np.int64))
    made: list[OptionEngine] = []

    def engine(inputs: EngineInputs) -> OptionEngine:
        made.append(OptionEngine(inputs, method, torch.from_numpy(y)))
        return made[0]

    with precision_of(recipe, False):
        run = Run(recipe, with_noise(dataset, recipe), RunOptions(torch.device("cpu")), engine)
        for epoch in range(recipe.epochs):
            run.train_epoch(epoch)
        found = {"last": run.probabilities(wanted)}
        for decay, average in made[0].averages.items():
            with torch.no_grad():
                found[f"ema:{decay}"] = average(torch.from_numpy(wanted.inputs)).softmax(1).numpy()
        run.close()
    averaging = {f"ema:{decay}": seconds for decay, seconds in made[0].seconds.items()}
    plain = time.process_time() - start - sum(averaging.values())
    return {name: (widened(p, there, problem.classes), plain + averaging.get(name, 0.0)) for name, p in found.items()}


def line(folder: Path, key: Key) -> dict[str, Any]:
    """What a method makes of a cell, or its error."""
    name, noise, seed, method = key
    problem = problem_of(folder / f"{name}.npz", noise, seed, ROWS)
    facts: dict[str, Any] = {"set": name, "noise": noise, "seed": seed, "method": method, "rows": len(problem.x)}
    try:
        found = predictions(method, problem)
    except Exception as error:  # a cell that fails is a line of the record, and the others go on
        return facts | {"error": f"{type(error).__name__}: {error}"[:200]}
    for of, (p, seconds) in found.items():
        right = p.argmax(1) == problem.y_test
        recalls = [right[problem.y_test == k].mean() for k in np.unique(problem.y_test)]
        facts[of] = {
            "accuracy": round(float(right.mean()), 5),
            "balanced_accuracy": round(float(np.mean(recalls)), 5),
            "cpu_seconds": round(seconds, 2),
        }
    return facts | {"environment": environment(torch.device("cpu"))}


def run(options: argparse.Namespace) -> None:
    """Every cell with one of the seeds, then with the next: what is there can be compared if the script is stopped."""
    cells = cells_of(options.sets)
    names = sorted({name for name, _ in cells})[:: 2 if options.choose else 1]
    cells = [cell for cell in cells if cell[0] in names and matches(cell, options.only, NOISES)]
    done = {key_of(one) for one in lines_of(options.records)}
    cells, seeds = np.random.default_rng(0).permutation(cells).tolist(), [*map(int, options.seeds.split(","))]
    for turn in range(len(seeds)):
        for number, (name, noise) in enumerate(cells):
            seed = seeds[(number + turn) % len(seeds)]
            for method in options.methods.split(","):
                if (key := (name, noise, seed, method)) not in done:
                    with options.records.open("a") as file:
                        file.write(json.dumps(line(options.sets, key)) + "\n")


def key_of(one: dict[str, Any]) -> Key:
    return one["set"], one["noise"], one["seed"], one["method"]


# ---- the report


def flat(lines: Iterable[dict[str, Any]]) -> dict[str, Cells]:
    """By method, also with an average of weights, and cell."""
    found: dict[str, Cells] = {}
    for one in lines:
        for of in ("last", *(f"ema:{decay}" for decay in DECAYS)):
            if of in one:
                name = one["method"] if of == "last" else f"{one['method']}+{of}"
                found.setdefault(name, {})[key_of(one)[:3]] = one[of]
    return found


def gain(ours: Cells, theirs: Cells, metric: str) -> tuple[float, float, float] | None:
    """The mean difference in points over the cells that both have, and its 95 % interval over sets."""
    shared = [cell for cell in ours if cell in theirs]
    if not shared:
        return None
    values = [100 * (ours[cell][metric] - theirs[cell][metric]) for cell in shared]
    return fmean(values), *bootstrapped([cell[0] for cell in shared], values)


def in_words(found: tuple[float, float, float] | None) -> str:
    return "" if found is None else f"{found[0]:+.1f} [{found[1]:+.1f}, {found[2]:+.1f}]"


def report(lines: Iterable[dict[str, Any]], choosing: bool) -> str:
    """Every method against its loss alone, and against the others that a person might take."""
    there = flat(one for one in lines if (one["seed"] in CHOOSING_SEEDS) == choosing)
    rows = []
    for name, cells in there.items():
        loss = name.partition("+")[0]
        both = [f"{100 * fmean(one[metric] for one in cells.values()):.1f}" for metric in ("accuracy", "balanced_accuracy")]
        gains = [
            in_words(gain(cells, there.get(other, {}), metric)) if other != name else ""
            for other in (loss, "ce", "jal-ce", "ce-early")
            for metric in ("accuracy", "balanced_accuracy")
        ]
        seconds = fmean(one["cpu_seconds"] for one in cells.values())
        rows.append([name, len(cells), *both, *gains, f"{seconds:.1f}"])
    head = ["method", "cells", "accuracy", "balanced"]
    head += [f"over {other}, {metric}" for other in ("its loss", "ce", "jal-ce", "ce-early") for metric in ("acc", "bal")]
    return table([*head, "CPU s"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=Path, required=True, help="JSON lines; what is there is not repeated")
    parser.add_argument("--report", action="store_true", help="print the tables of the records")
    parser.add_argument("--sets", type=Path, help="a folder of .npz files")
    parser.add_argument("--only", default="*", help="sets, or SET/NOISE, with commas between; * matches anything")
    parser.add_argument("--choose", action="store_true", help="run the settings to choose among")
    parser.add_argument("--seeds", default=None)
    parser.add_argument("--methods", default=",".join(TO_CHOOSE))
    options = parser.parse_args()
    if options.report:
        print(report(lines_of(options.records), choosing=options.choose))
        return
    if options.sets is None:
        parser.error("--sets is needed, but for --report")
    options.seeds = options.seeds or ",".join(map(str, CHOOSING_SEEDS if options.choose else (1, 2, 3)))
    torch.set_num_threads(1)
    run(options)


if __name__ == "__main__":
    main()
