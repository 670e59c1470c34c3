"""docs/benchmarks/frozen_features.md and its plots: the losses of the paper on frozen features."""

from __future__ import annotations

import functools
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import figures
from figures import Mark
from results import FIGURES, ROOT, folded, read_lines, table

sys.path.append(str(ROOT / "benchmarks"))

from zoo_methods import paper_losses
from zoo_report import bootstrapped

__all__ = ["CHARTS", "frozen_answer", "frozen_tables"]

RECORD = "frozen_features.jsonl"
NETWORKS = {"linear": "linear head", "mlp": "MLP"}
OTHERS = {
    "fit": "fit",
    "logistic-cv": "tuned logistic regression",
    "logistic": "logistic regression",
    "ce-early": "MLP, early stopping",
    "forest-10": "random forest",
    "cleanlab-logistic": "cleanlab",
    "jal-ce": "MLP, JAL-CE, default a",
}
SETS = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}
NOISES = {
    "none": "clean",
    **{f"sym:{rate}": f"symmetric {rate}" for rate in (0.2, 0.4, 0.6, 0.8)},
    "asym:0.4": "asymmetric 0.4",
    "given:aggregate": "people, aggregate",
    "given:worst": "people, worst",
    "given:noisy": "people",
}
CLASSIC, PROPOSED = "ce", "jal-ce"
SHOWN = {
    "linear:ce": ("linear head, cross entropy", 5),
    "linear:jal-ce": ("linear head, JAL-CE", 0),
    "linear:anl-ce": ("linear head, ANL-CE", 3),
    "logistic-cv": ("tuned logistic regression", 2),
    "fit": ("fit", 1),
}
"""Of the plot by noise: their names and colours"""
FEW = 5
"""Settings, below which a gain has no interval"""
Setting = tuple[str, str]
"""A data set and a noise"""


class Gain(NamedTuple):
    """The mean difference over settings in points, with its 95 % interval, and how many settings and runs it rests on."""

    mean: float
    low: float
    high: float
    settings: int
    pairs: int

    def text(self) -> str:
        few = self.settings < FEW
        return f"{self.mean:+.1f} ({self.settings})" if few else f"{self.mean:+.1f} [{self.low:+.1f}, {self.high:+.1f}]"


@functools.cache
def accuracies() -> dict[str, dict[tuple[str, str, int], float]]:
    """By method: the accuracy of each set, noise and seed in percent."""
    found: dict[str, dict[tuple[str, str, int], float]] = {}
    for line in read_lines(RECORD):
        if "error" not in line:
            cell = line["set"], line["noise"], line["seed"]
            found.setdefault(line["method"], {})[cell] = 100 * line["accuracy"]["accuracy"]
    return found


def losses() -> list[str]:
    """Those that both networks were trained with, in the order of the paper."""
    return [loss for loss in paper_losses() if all(f"{network}:{loss}" in accuracies() for network in NETWORKS)]


def settings(clean: bool | None = None) -> list[Setting]:
    there = {cell[:2] for cells in accuracies().values() for cell in cells}
    return [(name, noise) for name in SETS for noise in NOISES if (name, noise) in there and clean in (None, noise == "none")]


def mean_of(method: str, setting: Setting) -> float | None:
    values = [value for cell, value in accuracies().get(method, {}).items() if cell[:2] == setting]
    return fmean(values) if values else None


def gain(ours: str, theirs: str, chosen: Sequence[Setting] | None = None) -> Gain | None:
    """Over the runs that both methods have, noisy ones unless settings are chosen; the interval is a "
    "bootstrap over settings."""
    mine, other = (accuracies().get(method, {}) for method in (ours, theirs))
    wanted = settings(clean=False) if chosen is None else chosen
    pairs = {cell: mine[cell] - other[cell] for cell in mine if cell in other and cell[:2] in wanted}
    by_setting = {one: [value for cell, value in pairs.items() if cell[:2] == one] for one in wanted}
    means = {one: fmean(values) for one, values in by_setting.items() if values}
    if not means:
        return None
    low, high = bootstrapped([" ".join(one) for one in means], [*means.values()])
    return Gain(fmean(means.values()), low, high, len(means), len(pairs))


def best_loss(network: str) -> str:
    """That with the greatest mean gain over cross entropy, of those with results in every noisy setting."""
    found = {loss: gain(f"{network}:{loss}", f"{network}:{CLASSIC}") for loss in losses()}
    every = {loss: one.mean for loss, one in found.items() if one is not None and one.settings == len(settings(clean=False))}
    return max(every, key=lambda loss: every[loss])


def title(loss: str) -> str:
    return {"ce": "cross entropy", "fl": "focal loss"}.get(loss, loss.upper())


def frozen_answer() -> str:
    """What a robust loss gives on frozen features, beside cross entropy, logistic regression and fit."""
    linear, mlp = (gain(f"{network}:{PROPOSED}", f"{network}:{CLASSIC}") for network in NETWORKS)
    if linear is None or mlp is None:
        return ""
    best = best_loss("linear")
    compared = {PROPOSED: ("logistic-cv", "ce-early", "fit"), best: ("logistic-cv", "fit")}
    said = [
        f"**On frozen features, JAL-CE gains {linear.text()} points over cross entropy with a linear head, and {mlp.text()} "
        f"points with an MLP** ({linear.settings} noisy settings of CIFAR-10 and CIFAR-100, {_seeds()}).",
        _verdict(PROPOSED, compared[PROPOSED]),
        f"The best loss with a linear head in hindsight is {title(best)}.",
        _verdict(best, compared[best]),
    ]
    rows = [_beside(loss, method) for loss, methods in compared.items() for method in methods]
    head = ["a linear head with", "minus", "under noise", "on clean labels"]
    words = "Differences in points, with 95 % intervals or, where settings are few, with their number in parentheses:"
    return "\n\n".join([" ".join(filter(None, said)), words, table(head, filter(None, rows)).rstrip()])


def _name(method: str) -> str:
    return {"fit": "`fit`", "ce-early": "an MLP with early stopping"}.get(method, OTHERS[method])


def _verdict(loss: str, methods: Sequence[str]) -> str:
    """Whether a linear head with a loss is better or worse than others under noise, where the settings suffice to say."""
    said = []
    for method in methods:
        found = gain(f"linear:{loss}", method)
        if found is not None and found.settings >= FEW:
            word = (
                "better than" if found.low > 0 else "worse than" if found.high < 0 else "statistically indistinguishable from"
            )
            said.append(f"{word} {_name(method)}")
    return f"Under noise, a linear head with {title(loss)} is {' and '.join(said)}." if said else ""


def _beside(loss: str, method: str) -> list[str]:
    """A loss with a linear head against another method, under noise and on clean labels; nothing without results of both."""
    found, plain = gain(f"linear:{loss}", method), gain(f"linear:{loss}", method, settings(clean=True))
    if found is None:
        return []
    return [title(loss), _name(method), found.text(), "" if plain is None else f"{plain.mean:+.1f}"]


def _seeds() -> str:
    """That JAL-CE was run with."""
    found = sorted({cell[2] for cell in accuracies()[f"linear:{PROPOSED}"]})
    return f"seed{'s' * (len(found) > 1)} {', '.join(map(str, found))}"


def frozen_tables() -> str:
    """Gains of every method, and every accuracy, behind folds."""
    rows = []
    for method in methods():
        network = method.partition(":")[0]
        own = gain(method, f"{network}:{CLASSIC}") if network in NETWORKS and not method.endswith(f":{CLASSIC}") else None
        over = [gain(method, rival) if rival != method else None for rival in ("logistic-cv", "fit")]
        runs = len(accuracies()[method])
        rows.append([name_of(method), runs, *("" if one is None else one.text() for one in (own, *over))])
    head = ["method", "runs", "over cross entropy, same network", "over tuned logistic regression", "over `fit`"]
    parts = [folded("Gains in points over all noisy settings", table(head, rows))]
    for name in SETS:
        columns = [noise for one, noise in settings() if one == name]
        rows = [[name_of(method), *(_cell(mean_of(method, (name, noise))) for noise in columns)] for method in methods()]
        parts.append(folded(f"Accuracy on {SETS[name]} in %", table(["method", *(NOISES[noise] for noise in columns)], rows)))
    return "\n\n".join([*parts, _where()])


def _where() -> str:
    """How much was measured, and on which machines."""
    lines = [line for line in read_lines(RECORD) if "error" not in line]
    facts = [line["environment"] for line in lines]
    made = Counter(f"{one['machine']}, torch {one['torch']}, commit {one['commit']}, {one['date']}" for one in facts)
    rows = ", ".join(f"{count:,}" for count in sorted({line["train"] for line in lines}))
    seeds = Counter(line["seed"] for line in lines)
    by_seed = ", ".join(f"{count} with seed {seed}" for seed, count in sorted(seeds.items()))
    machines = "; ".join(f"{count} on {name}" for name, count in made.items())
    return f"{len(lines)} trainings on {rows} rows: {by_seed}. {machines}."


def methods() -> list[str]:
    return [
        *(method for method in OTHERS if method in accuracies()),
        *(f"{network}:{loss}" for network in NETWORKS for loss in losses()),
    ]


def name_of(method: str) -> str:
    network, _, loss = method.partition(":")
    return f"{NETWORKS[network]}, {title(loss)}" if loss else OTHERS[method]


def _cell(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


# ---- plots


def by_noise() -> str:
    """Five methods by data set and noise, means over the seeds."""
    rows: list[tuple[str, list[Mark]]] = []
    for name, label in SETS.items():
        rows.append((label, []))
        for _, noise in (one for one in settings() if one[0] == name):
            found = [(k, full, mean_of(method, (name, noise))) for k, (method, (full, _)) in enumerate(SHOWN.items())]
            marks = [Mark(value, k, f"{full}, {NOISES[noise]}: {value:.1f} %") for k, full, value in found if value is not None]
            rows.append((NOISES[noise], marks))
    return figures.rows_of_marks(
        "Accuracy on frozen features by noise",
        rows,
        [*SHOWN.values()],
        across="accuracy on clean test rows, %; means over seeds",
    )


def by_loss() -> str:
    """The mean over the noisy settings of each loss with both networks, and of the other methods."""
    kinds = [(NETWORKS["linear"], 0), (NETWORKS["mlp"], 1), ("other methods", 2)]
    found: dict[str, list[Mark]] = {}
    for k, network in enumerate(NETWORKS):
        for loss in losses():
            if (value := _mean(f"{network}:{loss}")) is not None:
                found.setdefault(title(loss), []).append(Mark(value, k, f"{NETWORKS[network]}, {title(loss)}: {value:.1f} %"))
    for method, name in OTHERS.items():
        if (value := _mean(method)) is not None:
            found[name] = [Mark(value, 2, f"{name}: {value:.1f} %")]
    rows = sorted(found.items(), key=lambda item: -max(mark.value for mark in item[1]))
    across = f"accuracy on clean test rows, %; {len(settings(clean=False))} noisy settings"
    return figures.rows_of_marks("Mean accuracy by loss and network", rows, kinds, across=across)


def _mean(method: str) -> float | None:
    """Over the noisy settings; None if one is missing."""
    values = [mean_of(method, setting) for setting in settings(clean=False)]
    return None if None in values else fmean(value for value in values if value is not None)


CHARTS: dict[Path, Callable[[], str]] = {
    FIGURES / "frozen_noise.svg": by_noise,
    FIGURES / "frozen_losses.svg": by_loss,
}
