"""Plots of the pages, from the records: what each shows is computed here, how it looks is in ``figures``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import figures
from results import REPEATED, ROOT, _lines
from zoo_record import measured

from noiseproof.paper import recipe

__all__ = ["CHARTS", "PaperRun", "answer_rows", "epochs_sentence", "noise_name", "runs_of", "zoo_sentence"]

CLASSIC, PROPOSED = "ce", "jal-ce"
SHOWN_NOISE = "symmetric:0.4"
NOISES = (
    *(("none", "clean"), *((f"symmetric:{rate}", f"symmetric {rate}") for rate in (0.2, 0.4, 0.6, 0.8))),
    *((f"asymmetric-cifar10:{rate}", f"asymmetric {rate}") for rate in (0.1, 0.2, 0.3, 0.4)),
    *((f"labels:cifar10_dependent_{rate}.json", f"instance-dependent {rate}") for rate in (0.2, 0.4, 0.6)),
    ("labels:CIFAR-10_human.pt#aggre_label", "people, aggregate"),
    ("labels:CIFAR-10_human.pt#random_label1", "people, random 1"),
    ("labels:CIFAR-10_human.pt#worse_label", "people, worst"),
)
"""Of CIFAR-10 in the paper, and their names in plots"""
BASELINES = {
    "logistic": "logistic regression",
    "boosting": "gradient boosting",
    "forest-10": "random forest",
    "ce-early": "MLP, early stopping",
    "cleanlab-logistic": "cleanlab with logistic regression",
    "logistic-cv": "tuned logistic regression",
}


class PaperRun(NamedTuple):
    """The last epoch of a run, and the best epoch that clean test labels could pick; both in percent."""

    seed: int
    last: float
    best: float
    best_epoch: int
    curve: tuple[float, ...]


@functools.cache
def runs_of(loss: str, noise: str) -> tuple[PaperRun, ...]:
    """Runs with the paper's recipe that kept their curves, one for each seed."""
    published = recipe(f"cifar10/{loss}", noise=noise)
    found: dict[int, PaperRun] = {}
    for line in (line for name in REPEATED for line in _lines(name)):
        if _is_repeat(line, published.as_dict()) and line.get("curve"):
            curve = tuple(100 * value for value in line["curve"]["test_accuracy"])
            best = max(range(len(curve)), key=lambda epoch: curve[epoch])
            seed = line["recipe"]["seed"]
            found.setdefault(seed, PaperRun(seed, curve[-1], curve[best], best + 1, curve))
    return tuple(found[seed] for seed in sorted(found))


def _is_repeat(line: dict[str, Any], published: dict[str, Any]) -> bool:
    same = ("dataset", "loss", "loss_options", "noise", "l1", "l2", "lr", "epochs", "batch", "optimiser")
    finished = line.get("status", "finished") == "finished" and line["recipe"]["precision"] == "bf16"
    return finished and all(line["recipe"][key] == published[key] for key in same)


def answer_rows() -> list[tuple[str, tuple[float, float, float], tuple[int, ...]]]:
    """For each noise: CE's last epoch, its best possible, JAL-CE's last, means over the seeds that both have."""
    rows = []
    for noise, name in NOISES:
        classic, proposed = ({run.seed: run for run in runs_of(loss, noise)} for loss in (CLASSIC, PROPOSED))
        if seeds := sorted(classic.keys() & proposed.keys()):
            last, best = (fmean(getattr(classic[seed], field) for seed in seeds) for field in ("last", "best"))
            rows.append((name, (last, best, fmean(proposed[seed].last for seed in seeds)), tuple(seeds)))
    return rows


def noise_name(noise: str) -> str:
    return dict(NOISES)[noise]


def _shown() -> tuple[list[PaperRun], list[PaperRun], list[int]]:
    classic, proposed = ({run.seed: run for run in runs_of(loss, SHOWN_NOISE)} for loss in (CLASSIC, PROPOSED))
    seeds = sorted(classic.keys() & proposed.keys())
    return [classic[seed] for seed in seeds], [proposed[seed] for seed in seeds], seeds


def epochs() -> str:
    """Test accuracy by epoch of CE and JAL-CE, with the best epoch of CE that test labels could pick."""
    classic, proposed, seeds = _shown()
    series = []
    for name, runs, color in (("JAL-CE", proposed, 1), ("cross entropy", classic, 0)):
        mean = [fmean(values) for values in zip(*(run.curve for run in runs), strict=True)]
        series.append(figures.Line(name, range(1, len(mean) + 1), mean, color))
    best = fmean(run.best for run in classic)
    marks = [(run.best_epoch, run.best, "", 0) for run in classic]
    return figures.lines(
        "CIFAR-10, 40 % of the training labels wrong (symmetric)",
        series,
        across=f"epoch; mean of seeds {' and '.join(map(str, seeds))}",
        up="accuracy on 10,000 clean test images, %",
        marks=marks,
        level=(best, f"best possible epoch of cross entropy: {best:.1f}", 0),
        span=(40, 90),
        height=260,
    )


def epochs_sentence() -> str:
    """What the plot of the README shows, in words."""
    classic, proposed, seeds = _shown()
    last, best, ours = (
        fmean(run.last for run in classic),
        fmean(run.best for run in classic),
        fmean(run.last for run in proposed),
    )
    behind = [row for row in answer_rows() if row[0] != "clean" and row[1][2] <= row[1][1]]
    noisy = sum(name != "clean" for name, *_ in answer_rows())
    picture = "![Test accuracy by epoch: cross entropy rises, then falls as it memorises wrong labels; JAL-CE keeps rising]"
    return (
        f"{picture}(docs/figures/epochs.svg)\n\n"
        f"Cross entropy ends at {last:.1f} %. Its best epoch, which only clean test labels could pick, reaches {best:.1f} %;\n"
        f"JAL-CE's last epoch reaches {ours:.1f} %. It is ahead of that best epoch in {noisy - len(behind)} of {noisy} noises\n"
        f"([results](docs/results.md), [records](records/reproduction.jsonl); {len(seeds)} seeds here, one or two elsewhere)."
    )


def baselines() -> str:
    """How much more accurate fit is than each baseline."""
    from zoo_report import ACCURACY, gain

    rows = []
    for method, name in BASELINES.items():
        if (found := gain(measured(), "fit", method, ACCURACY)) is not None:
            rows.append(figures.Dot(f"{name}", found.mean, found.low, found.high, 1))
    rows.sort(key=lambda row: -row.value)
    return figures.intervals(
        "Accuracy that fit gains over other methods", rows, across="points on clean test rows, mean and 95 % interval"
    )


def zoo_sentence() -> str:
    """What the second plot of the README shows, in words."""
    from zoo_report import ACCURACY, gain

    over = {method: gain(measured(), "fit", method, ACCURACY) for method in ("logistic-cv", "cleanlab-logistic")}
    cells = measured().where("fit", noisy=True)
    sets = len({place[0] for place in cells})
    said = [f"{one.text()} points over {BASELINES[method]}" for method, one in over.items() if one is not None]
    lines = ",\n".join(said)
    return (
        "![Points of accuracy that fit gains over six baselines, with 95 % intervals](docs/figures/baselines.svg)\n\n"
        f"{len(cells)} noisy cells of {sets} data sets, text, images and tables: {lines}\n"
        "([methods and limits](docs/zoo.md), [records](records/zoo.jsonl))."
    )


FIGURES = ROOT / "docs" / "figures"
CHARTS: dict[Path, Callable[[], str]] = {FIGURES / "epochs.svg": epochs, FIGURES / "baselines.svg": baselines}
