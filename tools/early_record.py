"""docs/benchmarks/early_stopping.md and the plot of the README: cross entropy at its best epoch against JAL-CE at its last."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import figures
from figures import Line, Mark
from results import FIGURES, REPEATED, folded, read_lines, table

from noiseproof.paper import recipe

__all__ = ["CHARTS", "early_answer", "early_table", "epochs_sentence"]

CLASSIC, PROPOSED = "ce", "jal-ce"
SHOWN_NOISE = "symmetric:0.4"
NOISES = {
    "clean": {"none": "clean labels"},
    "symmetric noise": {f"symmetric:{rate}": f"symmetric {rate}" for rate in (0.2, 0.4, 0.6, 0.8)},
    "asymmetric noise": {f"asymmetric-cifar10:{rate}": f"asymmetric {rate}" for rate in (0.1, 0.2, 0.3, 0.4)},
    "instance-dependent noise": {f"labels:cifar10_dependent_{rate}.json": f"instance {rate}" for rate in (0.2, 0.4, 0.6)},
    "labels that people gave": {
        "labels:CIFAR-10_human.pt#aggre_label": "people, aggregate",
        "labels:CIFAR-10_human.pt#random_label1": "people, random 1",
        "labels:CIFAR-10_human.pt#worse_label": "people, worst",
    },
}
"""Of CIFAR-10 in the paper, by kind, and their names in plots"""
SERIES = (("cross entropy, last epoch", 0), ("cross entropy, best possible epoch", 2), ("JAL-CE, last epoch", 1))


class PaperRun(NamedTuple):
    """The last epoch of a run, and the best epoch that clean test labels could pick; both in percent."""

    seed: int
    last: float
    best: float
    best_epoch: int
    curve: tuple[float, ...]
    file: str
    """Of records/, that contains it"""


class Row(NamedTuple):
    """A noise: means over the seeds that both losses have."""

    kind: str
    name: str
    last: float
    best: float
    best_epoch: float
    proposed: float
    seeds: tuple[int, ...]

    @property
    def lead(self) -> float:
        """Of JAL-CE's last epoch over the best possible of cross entropy."""
        return self.proposed - self.best


@functools.cache
def runs_of(loss: str, noise: str) -> dict[int, PaperRun]:
    """Runs with the paper's recipe that kept their curves, by seed."""
    published = recipe(f"cifar10/{loss}", noise=noise).as_dict()
    found: dict[int, PaperRun] = {}
    lines = ((file, line) for file in REPEATED for line in read_lines(file))
    for file, line in lines:
        if _is_repeat(line, published) and line.get("curve"):
            curve = tuple(100 * value for value in line["curve"]["test_accuracy"])
            best = max(range(len(curve)), key=lambda epoch: curve[epoch])
            seed = line["recipe"]["seed"]
            found.setdefault(seed, PaperRun(seed, curve[-1], curve[best], best + 1, curve, file))
    return dict(sorted(found.items()))


def _is_repeat(line: dict[str, Any], published: dict[str, Any]) -> bool:
    same = ("dataset", "loss", "loss_options", "noise", "l1", "l2", "lr", "epochs", "batch", "optimiser")
    finished = line.get("status", "finished") == "finished" and line["recipe"]["precision"] == "bf16"
    return finished and all(line["recipe"][key] == published[key] for key in same)


def both(noise: str) -> tuple[list[PaperRun], list[PaperRun]]:
    """The runs of the seeds that both losses have."""
    classic, proposed = (runs_of(loss, noise) for loss in (CLASSIC, PROPOSED))
    seeds = sorted(classic.keys() & proposed.keys())
    return [classic[seed] for seed in seeds], [proposed[seed] for seed in seeds]


@functools.cache
def rows() -> list[Row]:
    found = []
    for kind, noises in NOISES.items():
        for noise, name in noises.items():
            classic, proposed = both(noise)
            if classic:
                last, best, epoch = (fmean(getattr(run, key) for run in classic) for key in ("last", "best", "best_epoch"))
                seeds = tuple(run.seed for run in classic)
                found.append(Row(kind, name, last, best, epoch, fmean(run.last for run in proposed), seeds))
    return found


def early_answer() -> str:
    """The first paragraph of the page: by how much, for every kind of noise."""
    noisy = [row for row in rows() if row.kind != "clean"]
    ahead = [row for row in noisy if row.lead > 0]
    said = []
    for kind in dict.fromkeys(row.kind for row in noisy):
        leads = [row.lead for row in noisy if row.kind == kind]
        said.append(f"by {min(leads):.0f} to {max(leads):.0f} points under {kind}")
    clean = [f" On clean labels the difference is {row.lead:+.1f}." for row in rows() if row.kind == "clean"]
    return (
        f"**JAL-CE's last epoch is ahead of cross entropy's best possible epoch in {len(ahead)} of {len(noisy)} noise "
        f"settings**: {', '.join(said[:-1])}, and {said[-1]}.{''.join(clean)}"
    )


def early_table() -> str:
    cells = [
        [
            row.name,
            f"{row.last:.1f}",
            f"{row.best:.1f} (epoch {row.best_epoch:.0f})",
            f"{row.proposed:.1f}",
            f"{row.lead:+.1f}",
            ", ".join(map(str, row.seeds)),
        ]
        for row in rows()
    ]
    head = ["noise", "cross entropy, last", "cross entropy, best possible", "JAL-CE, last", "JAL-CE minus best", "seeds"]
    return folded("The numbers of the plot", table(head, cells))


def early() -> str:
    found: list[tuple[str, list[Mark]]] = []
    for row in rows():
        values = zip((row.last, row.best, row.proposed), SERIES, strict=True)
        found.append((row.name, [Mark(v, k, f"{row.name}, {name}: {v:.1f}") for k, (v, (name, _)) in enumerate(values)]))
    return figures.rows_of_marks("CIFAR-10 by noise", found, SERIES, across="accuracy on 10,000 clean test images, %")


def epochs() -> str:
    """Test accuracy by epoch of CE and JAL-CE, with the best epoch of CE that test labels could pick."""
    classic, proposed = both(SHOWN_NOISE)
    series = []
    for name, runs, color in (("JAL-CE", proposed, 1), ("cross entropy", classic, 0)):
        mean = [fmean(values) for values in zip(*(run.curve for run in runs), strict=True)]
        series.append(Line(name, range(1, len(mean) + 1), mean, color))
    best = fmean(run.best for run in classic)
    return figures.lines(
        "CIFAR-10, 40 % of the training labels wrong (symmetric)",
        series,
        across=f"epoch; mean of seeds {', '.join(str(run.seed) for run in classic)}",
        up="accuracy on 10,000 clean test images, %",
        marks=[(run.best_epoch, run.best, 0) for run in classic],
        level=(best, f"best possible epoch: {best:.1f}", 0),
        span=(40, 90),
    )


def epochs_sentence() -> str:
    """What the plot of the README shows, in words."""
    classic, proposed = both(SHOWN_NOISE)
    last, best = (fmean(getattr(run, key) for run in classic) for key in ("last", "best"))
    noisy = [row for row in rows() if row.kind != "clean"]
    counts = sorted({len(row.seeds) for row in noisy})
    runs = (run for noise in itertools.chain(*NOISES.values()) for run in itertools.chain(*both(noise)))
    files = sorted({run.file for run in runs}, reverse=True)
    records = " and ".join(f"[{name.partition('.')[0]}](records/{name})" for name in files)
    picture = "![Test accuracy by epoch: cross entropy rises, then falls as it memorises wrong labels; JAL-CE keeps rising]"
    return (
        f"{picture}(docs/figures/epochs.svg)\n\n"
        f"Cross entropy ends at {last:.1f} %. Its best epoch, which only clean test labels could pick, reaches {best:.1f} %;\n"
        f"JAL-CE's last epoch reaches {fmean(run.last for run in proposed):.1f} %. It is ahead of that best epoch in "
        f"{sum(row.lead > 0 for row in noisy)} of {len(noisy)} noise settings\n"
        f"([by noise](docs/benchmarks/early_stopping.md); {len(classic)} seeds here, {counts[0]} to {counts[-1]} elsewhere;\n"
        f"records: {records})."
    )


CHARTS: dict[Path, Callable[[], str]] = {FIGURES / "epochs.svg": epochs, FIGURES / "early_stopping.svg": early}
