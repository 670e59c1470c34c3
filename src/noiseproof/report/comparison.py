"""A comparison of losses as text, Markdown, JSON or CSV, and as a picture."""

from __future__ import annotations

import csv
import io
import json
import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from noiseproof.report.paired import DRAWS, ENOUGH, LEAST, Comparison, Contender, Sample, compare_paired

__all__ = ["FORMATS", "Compared", "Entrant", "draw"]


@dataclass(frozen=True)
class Entrant:
    """A loss with its decay: the test accuracies of its runs in percent, by seed, and the seeds whose runs have none."""

    loss: str
    decay: str
    accuracies: dict[int, float]
    diverged: tuple[int, ...] = ()
    failed: tuple[int, ...] = ()
    missed: str = ""
    """On which classes its runs are never right, which an accuracy over all hides"""

    @property
    def complete(self) -> bool:
        return not (self.diverged or self.failed)

    @property
    def trouble(self) -> str:
        counts = {"diverged": len(self.diverged), "failed": len(self.failed)}
        total = len(self.accuracies) + sum(counts.values())
        return ", ".join(f"{count} of {total} {what}" for what, count in counts.items() if count)


@dataclass(frozen=True)
class Compared:
    """The entrants, ranked. One with a missing run is not: its other seeds may be the easy ones."""

    setting: dict[str, Any]
    """What all have in common"""
    entrants: Sequence[Entrant]
    of_test: tuple[str, ...] = ()
    """What to know of the labels that they are tested on"""
    ranking: Comparison = field(init=False)

    def __post_init__(self) -> None:
        ranked = {str(k): one.accuracies for k, one in enumerate(self.entrants) if one.complete}
        object.__setattr__(self, "ranking", compare_paired(ranked, np.random.default_rng(0)))

    def rows(self) -> list[tuple[Entrant, Contender | None, str]]:
        """From best to worst, each with the letters of its groups; those not ranked come last."""
        ranked = [(self.entrants[int(one.name)], one, self._letters(one.name)) for one in self.ranking.contenders]
        return ranked + [(one, None, "") for one in self.entrants if not one.complete]

    @property
    def _seeds(self) -> int:
        return min((one.sample.n for one in self.ranking.contenders), default=0)

    def _letters(self, name: str) -> str:
        if self._seeds < LEAST:
            return ""  # a letter would say what is not known
        letters = [*string.ascii_lowercase, *(f"({k})" for k in range(27, 1 + len(self.ranking.groups)))]
        return "".join(letter if name in group else " " for letter, group in zip(letters, self.ranking.groups, strict=False))

    def facts(self) -> list[dict[str, Any]]:
        """A row for each entrant, as JSON and CSV have it."""
        found = []
        for one, contender, letters in self.rows():
            sample = Sample.of(list(one.accuracies.values()))
            found.append(
                {
                    "loss": one.loss,
                    "decay": one.decay,
                    "mean": sample and sample.mean,
                    "std": sample and sample.std,
                    "n": len(one.accuracies),
                    "difference": contender and contender.difference,
                    "interval": contender and contender.interval,
                    "basis": contender and contender.basis,
                    "groups": letters.replace(" ", ""),
                    "accuracies": one.accuracies,
                    "diverged": one.diverged,
                    "failed": one.failed,
                    "missed": one.missed,
                }
            )
        return found

    def verdict(self) -> str:
        """The ranking in a sentence."""
        ranked = [self._name(self.entrants[int(one.name)]) for one in self.ranking.contenders]
        if len(ranked) < 2:
            return "nothing to rank: fewer than two losses finished all their runs"
        if self._seeds < LEAST:
            return f"highest mean: {ranked[0]}; too few seeds to tell any two apart, {LEAST} are the least"
        (best,) = self.ranking.contenders[:1]
        near = {name for group in self.ranking.groups if best.name in group for name in group} - {best.name}
        equal = [self._name(self.entrants[int(one.name)]) for one in self.ranking.contenders if one.name in near]
        return f"best: {ranked[0]}; " + (f"not distinguishable from it: {', '.join(equal)}" if equal else "ahead of all others")

    def _name(self, one: Entrant) -> str:
        several = sum(other.loss == one.loss for other in self.entrants) > 1
        return f"{one.loss} with {one.decay}" if several else one.loss

    def notes(self) -> list[str]:
        """How the numbers were made and what they do not say."""
        n, count = self._seeds, len(self.ranking.contenders)
        notes = [
            "test accuracy in the last epoch, in percent; a seed has the same noise, split, initial weights and order for all",
            *self.of_test,
        ]
        if count > 1 and n >= LEAST:
            corrected = f", corrected for all {count * (count - 1) // 2} pairs by Holm" if count > 2 else ""
            how = (
                f"paired bootstrap, {DRAWS:,} resamples of the {n} seeds"
                if n >= ENOUGH
                else f"paired differences of {n} seeds, Student's t: a bootstrap needs {ENOUGH}"
            )
            notes += [
                f"to the best: mean difference and its 95 % interval, not corrected for the number of losses ({how})",
                f"group: those that share a letter cannot be told apart (paired t tests over the seeds{corrected}, 5 %)",
                "the seeds are the unit: other seeds on these data, not other data",
            ]
        notes += [f"{self._name(one)}: {one.missed}, which its accuracy hides" for one in self.entrants if one.missed]
        for one in self.entrants:
            for what, seeds in (("diverged", one.diverged), ("failed", one.failed)):
                if seeds:
                    rest = "; mean of the others" if one.accuracies else ""
                    notes.append(f"{self._name(one)}: not ranked, {what} with seed {', '.join(map(str, seeds))}{rest}")
        return notes


HEADER = ("loss", "decay", "mean", "dev.", "n", "to the best", "group")


def _cells(compared: Compared) -> list[tuple[str, ...]]:
    rows = []
    for one, contender, letters in compared.rows():
        sample = Sample.of(list(one.accuracies.values()))
        mean = "-" if sample is None else f"{sample.mean:.2f}"
        deviation = "-" if sample is None or sample.std is None else f"{sample.std:.2f}"
        rows.append((one.loss, one.decay, mean, deviation, str(len(one.accuracies)), _difference(one, contender), letters))
    best = compared.ranking.contenders[:1]
    return [(*row[:5], "best", row[6]) if best and k == 0 else row for k, row in enumerate(rows)]


def _difference(one: Entrant, contender: Contender | None) -> str:
    if contender is None:
        return one.trouble
    if contender.interval is None:
        return f"{_signed(contender.difference):>6}  too few seeds"
    low, high = contender.interval
    return f"{_signed(contender.difference):>6}  [{_signed(low)}, {_signed(high)}]"


def _signed(value: float) -> str:
    return f"{round(value, 2) + 0.0:+.2f}"  # 0.0 takes the sign off a zero


def _text(compared: Compared) -> str:
    lines = [HEADER, *_cells(compared)]
    if not any(line[-1] for line in lines[1:]):
        lines = [line[:-1] for line in lines]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    right = (2, 3, 4)
    table = [
        "  ".join(
            text.rjust(width) if k in right else text.ljust(width)
            for k, (text, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    ]
    return "\n".join([*(line.rstrip() for line in table), "", compared.verdict(), "", *compared.notes()])


def _markdown(compared: Compared) -> str:
    rows = [HEADER, ("---", "---", "---:", "---:", "---:", "---", "---"), *_cells(compared)]
    table = "\n".join(f"| {' | '.join(' '.join(cell.split()) for cell in row)} |" for row in rows)
    return "\n\n".join(
        [_setting(compared), table, f"**{compared.verdict()}**", "\n".join(f"- {note}" for note in compared.notes())]
    )


def _setting(compared: Compared) -> str:
    return ", ".join(f"{key} {value}" for key, value in compared.setting.items() if key != "seeds")


def _json(compared: Compared) -> str:
    return json.dumps(
        {"setting": compared.setting, "losses": compared.facts(), "verdict": compared.verdict(), "notes": compared.notes()},
        indent=1,
    )


def _csv(compared: Compared) -> str:
    names = (
        "loss",
        "decay",
        "mean",
        "std",
        "n",
        "difference",
        "low",
        "high",
        "basis",
        "groups",
        "diverged",
        "failed",
        "missed",
        "accuracies",
    )
    out = io.StringIO()
    writer = csv.DictWriter(out, names, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for row in compared.facts():
        low, high = row["interval"] or (None, None)
        lists = {key: " ".join(map(str, row[key])) for key in ("diverged", "failed")}
        shown = " ".join(f"{seed}:{value:g}" for seed, value in row["accuracies"].items())
        writer.writerow({**row, **lists, "low": low, "high": high, "accuracies": shown})
    return out.getvalue().rstrip("\n")


FORMATS: dict[str, Callable[[Compared], str]] = {"table": _text, "markdown": _markdown, "json": _json, "csv": _csv}


def draw(compared: Compared, path: Path) -> None:
    """A dot for each seed and a bar for the mean; beside the others the interval of their difference, from the best's mean."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows = compared.rows()
    figure = Figure(figsize=(7, 1.3 + 0.45 * len(rows)), layout="constrained")
    FigureCanvasAgg(figure)
    axis = figure.subplots()
    for place, (one, contender, _) in enumerate(rows):
        values = list(one.accuracies.values())
        axis.plot(values, [place] * len(values), "o", color="#2b6cb0", alpha=0.6, markersize=5, mew=0)
        if values:
            axis.plot([sum(values) / len(values)], [place], "|", color="black", markersize=16, mew=1.5)
        if contender is not None and contender.interval is not None:
            best = compared.ranking.contenders[0].sample.mean
            axis.plot([best + end for end in contender.interval], [place + 0.25] * 2, "-", color="#dd6b20", linewidth=2)
        if contender is None:
            axis.annotate(
                one.trouble, (0.01, place), xycoords=("axes fraction", "data"), va="center", fontsize=8, color="#c1121f"
            )
    if compared.ranking.contenders:
        axis.axvline(compared.ranking.contenders[0].sample.mean, color="0.7", linewidth=1, zorder=0)
    decays = len({one.decay for one in compared.entrants}) > 1
    names = [f"{one.loss}, {one.decay}" if decays else one.loss for one, _, _ in rows]
    axis.set_yticks(
        range(len(rows)), [f"{name}  {''.join(letters.split())}" for name, (_, _, letters) in zip(names, rows, strict=True)]
    )
    axis.set_ylim(len(rows) - 0.4, -0.6)
    axis.set_xlabel(
        "test accuracy, %: dots are seeds, | their mean; orange: 95 % interval of the\n"
        "difference to the best, drawn from the best's mean",
        fontsize=9,
    )
    axis.spines[["top", "right"]].set_visible(False)
    axis.set_title(f"{compared.setting.get('data', '')}, {compared.setting.get('noise', '')}", fontsize=10)
    figure.savefig(path, format="png", dpi=130)
