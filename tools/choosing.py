"""The tables of docs/how_to/choosing.md: choosing a loss by noisy labels, and which ``a``, from the records."""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from results import RECORDS, _lines, _table, _where, is_finished

sys.path.append(str(Path(__file__).resolve().parent.parent / "benchmarks"))

from auto_a import CIFAR_WAYS, NOISES, OPTIMISERS, WAYS, a_of, cifar_recipes

from noiseproof.comparison.paired import t_quantile
from noiseproof.theory.choice import rounded
from noiseproof.train import Recipe
from noiseproof.train.recipe import current_names

__all__ = ["a_on_cifar", "choice_of_a", "selection"]

RULES = {
    "noisy": "labels as given",
    "corrected": "corrected, true matrix",
    "corrected by audit": "corrected, audit's matrix",
    "posterior of audit": "audit's posterior",
    "training labels": "training labels",
}
FIXED = {"always jal-ce": "jal-ce", "always ce": "ce"}
EQUAL = 1e-9
Scores = dict[str, Mapping[str, float]]
"""By loss, the accuracies of a run, or their means over seeds"""


def selection() -> str:
    """How often each rule picks what the clean test set would pick, and what it costs, by data and by noise."""
    lines = _lines("selection_cpu.jsonl")
    cells: dict[tuple[str, str], dict[int, Scores]] = {}
    for one in lines:
        cells.setdefault((one["data"], one["noise"]), {}).setdefault(one["seed"], {})[one["loss"]] = one["accuracy"]
    losses = {one["loss"] for one in lines}
    whole = {cell: {seed: runs for seed, runs in seeds.items() if runs.keys() == losses} for cell, seeds in cells.items()}
    whole = {cell: seeds for cell, seeds in whole.items() if seeds}
    parts = []
    for title, of in (
        ("by one seed", [(cell, scores) for cell, seeds in whole.items() for scores in seeds.values()]),
        ("by the mean of all seeds, as `compare` does", [(cell, _mean(list(seeds.values()))) for cell, seeds in whole.items()]),
    ):
        groups = {"all": of}
        for data in dict.fromkeys(cell[0] for cell in whole):
            groups[data] = [one for one in of if one[0][0] == data]
        head = [title, *(f"{name} ({len(chosen)})" for name, chosen in groups.items())]
        rows = [
            [name, *(_judged(rule, [scores for _, scores in chosen]) for chosen in groups.values())]
            for rule, name in (*RULES.items(), *((fixed, fixed) for fixed in FIXED), ("any", "at random"))
        ]
        parts.append(_table(head, rows))
    counts = ", ".join(f"{data} {noise} {len(seeds)}" for (data, noise), seeds in whole.items())
    return "\n".join([*parts, f"Seeds: {counts}.\n", _where(lines)])


def _mean(seeds: Sequence[Scores]) -> Scores:
    return {
        loss: {name: statistics.fmean(scores[loss][name] for scores in seeds) for name in seeds[0][loss]} for loss in seeds[0]
    }


def _judged(rule: str, choices: Sequence[Scores]) -> str:
    """The share of choices that are the best, mean and greatest regret. Of losses that a rule cannot distinguish, the mean."""
    hits, regrets = [], []
    for scores in choices:
        best = max(one["test"] for one in scores.values())
        chosen = [scores[loss]["test"] for loss in _chosen(rule, scores)]
        hits.append(statistics.fmean(test >= best - EQUAL for test in chosen))
        regrets.append(100 * (best - statistics.fmean(chosen)))
    return f"{statistics.fmean(hits):.0%}, {statistics.fmean(regrets):.1f} ({max(regrets):.1f})"


def _chosen(rule: str, scores: Scores) -> list[str]:
    if rule in FIXED:
        return [FIXED[rule]]
    if rule == "any":
        return list(scores)
    top = max(one[rule] for one in scores.values())
    return [loss for loss, one in scores.items() if one[rule] >= top - EQUAL]


def choice_of_a() -> str:
    """Mean accuracy on the digits for each way to choose ``a``, and its difference to the paper's 30 on the same seeds."""
    if not (RECORDS / "auto_a_cpu.jsonl").is_file():
        return "Not measured yet: `benchmarks/auto_a.py digits`."
    lines = _lines("auto_a_cpu.jsonl")
    found = {(one["optimiser"], one["noise"], rounded(one["a"]), one["seed"]): 100 * one["test_accuracy"] for one in lines}
    parts = []
    for optimiser in OPTIMISERS:
        rows = []
        for noise in NOISES:
            runs = {way: _by_seed(found, optimiser, noise, a_of(way, noise)) for way in WAYS}
            if runs["30"]:
                rows.append([noise, *(_cell(runs[way], runs["30"], a_of(way, noise)) for way in WAYS)])
        if rows:
            parts.append(_table([optimiser, *WAYS], rows))
    return "\n".join([*parts, _where(lines)])


def a_on_cifar() -> str:
    """Mean accuracy on CIFAR-10 by the paper's recipe, and the difference to its 30 on the same seeds with its interval."""
    lines = [*_lines("auto_a.jsonl"), *_lines("reproduction.jsonl")]
    made, used = {_run(one["recipe"]): one for one in lines if is_finished(one)}, []
    runs: dict[str, dict[str, dict[int, float]]] = {}
    for one in cifar_recipes():
        of_noise = runs.setdefault(one.noise, {way: {} for way in CIFAR_WAYS})
        if (found := made.get(_run(one.as_dict()))) is not None:
            used.append(found)
            for way in CIFAR_WAYS:
                if one.loss_options["a"] == a_of(way, one.noise):
                    of_noise[way][one.seed] = 100 * found["result"]["test_accuracy"]
    rows = [
        [noise, *(_cell(found[way], found["30"], a_of(way, noise), interval=True) for way in CIFAR_WAYS)]
        for noise, found in runs.items()
    ]
    kept = [place for place, way in enumerate(CIFAR_WAYS) if any(row[place + 1] != "-" for row in rows)]
    shown = [[row[0], *(row[place + 1] for place in kept)] for row in rows]
    return "\n".join([_table(["CIFAR-10", *(CIFAR_WAYS[place] for place in kept)], shown), _where(used)])


def _run(recipe: Mapping[str, Any]) -> str:
    """What distinguishes runs; an older record lacks fields or has them under earlier names."""
    return json.dumps(
        {**Recipe(dataset="", loss="ce").as_dict(), **current_names(recipe), "confidence_epochs": None}, sort_keys=True
    )


def _by_seed(found: dict[Any, float], optimiser: str, noise: str, a: float) -> dict[int, float]:
    return {key[3]: value for key, value in found.items() if key[:3] == (optimiser, noise, a)}


def _cell(runs: dict[int, float], reference: dict[int, float], a: float, *, interval: bool = False) -> str:
    if not runs:
        return "-"
    both = [runs[seed] - reference[seed] for seed in runs if seed in reference]
    change = f"{statistics.fmean(both):+.1f}" if both else ""
    if interval and len(both) > 1:
        half = t_quantile(0.05, len(both) - 1) * statistics.stdev(both) / len(both) ** 0.5
        change = f"{statistics.fmean(both):+.2f}, {statistics.fmean(both) - half:+.2f} to {statistics.fmean(both) + half:+.2f}"
    said = "" if runs is reference or not both or a == 30 else f" ({change})"
    return f"{a:g}: {statistics.fmean(runs.values()):.1f}{said}, n {len(runs)}"
