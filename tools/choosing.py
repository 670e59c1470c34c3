"""docs/benchmarks/selection.md and choice_of_a.md: choosing a loss by noisy labels, and which ``a``, from the records."""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import figures
from figures import Dot, Line
from results import FIGURES, folded, is_finished, read_lines, table, where_measured

sys.path.append(str(Path(__file__).resolve().parent.parent / "benchmarks"))

from auto_a import CIFAR_WAYS, NOISES, OPTIMISERS, WAYS, a_of, cifar_recipes

from noiseproof.comparison.paired import t_quantile
from noiseproof.theory.choice import rounded
from noiseproof.train import Recipe
from noiseproof.train.recipe import current_names

__all__ = ["CHARTS", "a_answer", "a_on_cifar", "choice_of_a", "selection", "selection_answer"]

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


CHOSEN_BY = {
    **RULES,
    **{fixed: fixed for fixed in FIXED},
    "any": "at random",
}
Cells = dict[tuple[str, str], dict[int, Scores]]
"""By data and noise, and by seed"""


def selected() -> Cells:
    """The runs of which every loss is there."""
    lines = read_lines("selection_cpu.jsonl")
    cells: Cells = {}
    for one in lines:
        cells.setdefault((one["data"], one["noise"]), {}).setdefault(one["seed"], {})[one["loss"]] = one["accuracy"]
    losses = {one["loss"] for one in lines}
    whole = {cell: {seed: runs for seed, runs in seeds.items() if runs.keys() == losses} for cell, seeds in cells.items()}
    return {cell: seeds for cell, seeds in whole.items() if seeds}


def selection_answer() -> str:
    """The first paragraph of the page."""
    whole = selected()
    single = [scores for seeds in whole.values() for scores in seeds.values()]
    several = [_mean(list(seeds.values())) for seeds in whole.values()]
    (_, one), (hits, many), (_, fixed), (_, chance) = (
        _judged_by(rule, scores)
        for rule, scores in (("noisy", single), ("noisy", several), ("always jal-ce", several), ("any", several))
    )
    return (
        "**A loss that is chosen by the mean of five seeds on noisy held-out labels, as `compare` ranks, is "
        f"{statistics.fmean(many):.1f} points below the best one.** Always choosing JAL-CE is {statistics.fmean(fixed):.1f} "
        f"points below the best, and a random choice {statistics.fmean(chance):.1f}. A choice by one seed is "
        f"{statistics.fmean(one):.1f} points below it. In {len(hits) - sum(hit == 1 for hit in hits)} of {len(hits)} cases "
        "the choice is not the best of the six losses."
    )


def selection() -> str:
    """How often each rule picks what the clean test set would pick, and what it costs, by data and by noise."""
    whole = selected()
    parts = []
    for title, of in (
        ("By one seed", [(cell, scores) for cell, seeds in whole.items() for scores in seeds.values()]),
        ("By the mean of all seeds, as `compare` does", [(cell, _mean(list(seeds.values()))) for cell, seeds in whole.items()]),
    ):
        groups = {"all": of}
        for data in dict.fromkeys(cell[0] for cell in whole):
            groups[data] = [one for one in of if one[0][0] == data]
        head = ["chosen by", *(f"{name} ({len(chosen)})" for name, chosen in groups.items())]
        rows = [
            [name, *(_judged(rule, [scores for _, scores in chosen]) for chosen in groups.values())]
            for rule, name in CHOSEN_BY.items()
        ]
        parts.append(folded(title.replace("`", ""), table(head, rows)))
    counts = ", ".join(f"{data} {noise} {len(seeds)}" for (data, noise), seeds in whole.items())
    return "\n\n".join([*parts, f"Seeds: {counts}. {where_measured(read_lines('selection_cpu.jsonl'))}"])


def regret_of_choices() -> str:
    """What a choice by the mean of the seeds costs, by rule."""
    several = [_mean(list(seeds.values())) for seeds in selected().values()]
    found = {name: statistics.fmean(_judged_by(rule, several)[1]) for rule, name in CHOSEN_BY.items()}
    rows = [Dot(name, value, color=1) for name, value in sorted(found.items(), key=lambda pair: pair[1])]
    across = "points of clean test accuracy below the best loss, mean"
    return figures.intervals("Regret of a choice by the mean of five seeds", rows, across=across, digits=1)


def _mean(seeds: Sequence[Scores]) -> Scores:
    return {
        loss: {name: statistics.fmean(scores[loss][name] for scores in seeds) for name in seeds[0][loss]} for loss in seeds[0]
    }


def _judged_by(rule: str, choices: Sequence[Scores]) -> tuple[list[float], list[float]]:
    """Of each choice, whether it is the best, and its regret. Of losses that a rule cannot distinguish, the mean."""
    hits, regrets = [], []
    for scores in choices:
        best = max(one["test"] for one in scores.values())
        chosen = [scores[loss]["test"] for loss in _chosen(rule, scores)]
        hits.append(statistics.fmean(test >= best - EQUAL for test in chosen))
        regrets.append(100 * (best - statistics.fmean(chosen)))
    return hits, regrets


def _judged(rule: str, choices: Sequence[Scores]) -> str:
    """The share of choices that are the best, mean and greatest regret."""
    hits, regrets = _judged_by(rule, choices)
    return f"{statistics.fmean(hits):.0%}, {statistics.fmean(regrets):.1f} ({max(regrets):.1f})"


def _chosen(rule: str, scores: Scores) -> list[str]:
    if rule in FIXED:
        return [FIXED[rule]]
    if rule == "any":
        return list(scores)
    top = max(one[rule] for one in scores.values())
    return [loss for loss, one in scores.items() if one[rule] >= top - EQUAL]


def of_digits() -> dict[tuple[str, str, float], dict[int, float]]:
    """Test accuracy in percent by optimiser, noise and ``a``, and by seed."""
    found: dict[tuple[str, str, float], dict[int, float]] = {}
    for one in read_lines("auto_a_cpu.jsonl"):
        key = one["optimiser"], one["noise"], rounded(one["a"])
        found.setdefault(key, {})[one["seed"]] = 100 * one["test_accuracy"]
    return found


def a_answer() -> str:
    """The first paragraph of the page: what the bound costs, and what the rule does."""
    found = of_digits()

    def against_30(way: str, optimiser: str, noise: str) -> list[float]:
        runs, reference = (found.get((optimiser, noise, a_of(one, noise)), {}) for one in (way, "30"))
        return [runs[seed] - reference[seed] for seed in runs if seed in reference]

    cells = [(optimiser, noise) for optimiser in OPTIMISERS for noise in NOISES]
    bound = [value for cell in cells for value in against_30("x1", *cell)]
    less = [value for cell in cells if a_of("auto", cell[1]) < 30 for value in against_30("auto", *cell)]
    return (
        f"**At the theoretical bound, the accuracy is {-statistics.fmean(bound):.1f} points below that at the paper's a = 30. "
        f"If `auto` chooses an `a` below 30, the accuracy differs by {statistics.fmean(less):+.1f} points.** "
        "These are means over "
        "noises, two optimisers and seeds on the digits."
    )


def choice_of_a() -> str:
    """Mean accuracy on the digits for each way to choose ``a``, and its difference to the paper's 30 on the same seeds."""
    found, parts = of_digits(), []
    for optimiser in OPTIMISERS:
        rows = []
        for noise in NOISES:
            runs = {way: found.get((optimiser, noise, a_of(way, noise)), {}) for way in WAYS}
            if runs["30"]:
                rows.append([noise, *(_cell(runs[way], runs["30"], a_of(way, noise)) for way in WAYS)])
        if rows:
            parts.append(folded(f"Digits, {optimiser}", table([optimiser, *WAYS], rows)))
    return "\n\n".join([*parts, where_measured(read_lines("auto_a_cpu.jsonl"))])


def accuracy_by_a() -> str:
    """On the digits, by noise; the rule's choice is marked."""
    found, series, marks = of_digits(), [], []
    for color, noise in enumerate(NOISES):
        mean = {
            a: statistics.fmean(runs.values()) for (one, of, a), runs in sorted(found.items()) if (one, of) == ("adam", noise)
        }
        series.append(Line(noise.replace(":", " ").replace("pairflip", "pairs"), [*mean], [*mean.values()], color))
        marks.append((a_of("auto", noise), mean[a_of("auto", noise)], color))
    title, across = "Digits, JAL-CE: accuracy by a", "a (logarithmic); each curve begins at the bound; circle: auto"
    return figures.lines(title, series, across=across, up="test accuracy, mean of the seeds, %", marks=marks, log=True)


CHARTS: dict[Path, Callable[[], str]] = {
    FIGURES / "choice_of_a.svg": accuracy_by_a,
    FIGURES / "selection.svg": regret_of_choices,
}


def a_on_cifar() -> str:
    """Mean accuracy on CIFAR-10 by the paper's recipe, and the difference to its 30 on the same seeds with its interval."""
    lines = [*read_lines("auto_a.jsonl"), *read_lines("reproduction.jsonl")]
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
    return "\n".join([table(["CIFAR-10", *(CIFAR_WAYS[place] for place in kept)], shown), where_measured(used)])


def _run(recipe: Mapping[str, Any]) -> str:
    """What distinguishes runs; an older record lacks fields or has them under earlier names."""
    return json.dumps(
        {**Recipe(dataset="", loss="ce").as_dict(), **current_names(recipe), "confidence_epochs": None}, sort_keys=True
    )


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
