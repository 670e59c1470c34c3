"""The result of a comparison: a table with paired intervals and groups, as text, Markdown, LaTeX or JSON."""

from __future__ import annotations

import json
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

import numpy as np

from noiseproof.comparison.paired import (
    BOOTSTRAP_DRAWS,
    MIN_BOOTSTRAP_SEEDS,
    MIN_SEEDS,
    PairedRanking,
    RankedCompetitor,
    Sample,
    rank_paired,
)
from noiseproof.io.text import aligned, excerpt

HEADER = ("loss", "regularisation", "mean", "std", "n", "balanced", "macro F1", "difference to the best", "group")
NUMBER_COLUMNS = (2, 3, 4, 5, 6)
MAX_RECALLS_PRINTED = 6
"""Of more classes those with the lowest recall are printed"""
LATEX_SPECIAL = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"} | {
    c: f"\\{c}" for c in "&%$#_{}"
}


@dataclass(frozen=True)
class CompetitorResult:
    """A loss with its regularisation: the test accuracies of its runs in percent, by seed, and the seeds without one.

    Attributes:
        loss: Name of the loss.
        regularisation: In words, ``l1 5e-05`` or ``none``.
        accuracies: Test accuracies in percent, by seed.
        diverged: Seeds whose runs diverged.
        failed: Seeds whose runs failed.
        missed_classes: Classes that its runs never predict correctly, which an accuracy over all classes hides.
        balanced: Balanced accuracies in percent, by seed, where they are known.
        macro_f1: The same of macro F1.
        recalls: The mean recall of each class in percent, by name.
        dead: Why runs have learned nothing, by seed.
        class_weight: What its runs did about class imbalance, in words.

    >>> CompetitorResult("ce", "none", {1: 95.1}, diverged=(2,)).missing
    '1 of 2 diverged'
    """

    loss: str
    regularisation: str
    accuracies: dict[int, float]
    diverged: tuple[int, ...] = ()
    failed: tuple[int, ...] = ()
    missed_classes: str = ""
    """The classes that its runs never predict correctly, which an accuracy over all classes hides"""
    balanced: Mapping[int, float] = field(default_factory=dict)
    macro_f1: Mapping[int, float] = field(default_factory=dict)
    recalls: Mapping[str, float] = field(default_factory=dict)
    dead: Mapping[int, str] = field(default_factory=dict)
    class_weight: str = "none"

    @property
    def shown(self) -> str:
        """The name, and how many of its runs are dead."""
        if not self.dead:
            return self.loss
        return f"{self.loss} ({'dead' if len(self.dead) == len(self.accuracies) else f'{len(self.dead)} dead'})"

    @property
    def recall_text(self) -> str:
        """The recall of each class; of many classes the lowest.

        >>> CompetitorResult("ce", "none", {1: 95.1}, recalls={"cat": 91.26, "dog": 99.0}).recall_text
        'recall in percent: cat 91.3, dog 99.0'
        """
        found, many = list(self.recalls.items()), len(self.recalls) > MAX_RECALLS_PRINTED
        if many:
            found = sorted(found, key=lambda one: one[1])[:MAX_RECALLS_PRINTED]
        what = f"lowest recall in percent, of {len(self.recalls)} classes: " if many else "recall in percent: "
        return what + ", ".join(f"{excerpt(name, 40)} {share:.1f}" for name, share in found) if found else ""

    @property
    def complete(self) -> bool:
        """Whether every run gave an accuracy."""
        return not (self.diverged or self.failed)

    @property
    def missing(self) -> str:
        """How many runs have no accuracy, and why."""
        counts = {"diverged": len(self.diverged), "failed": len(self.failed)}
        total = len(self.accuracies) + sum(counts.values())
        return ", ".join(f"{count} of {total} {what}" for what, count in counts.items() if count)


@dataclass(frozen=True)
class Comparison:
    """Losses ranked by mean test accuracy, with paired intervals and groups; ``print`` shows the table.

    A competitor with a missing run is not ranked: its other seeds may be the easy ones.

    Attributes:
        setting: What all runs have in common.
        competitors: The losses with their accuracies.
        test_notes: What to know of the labels that the losses are tested on.
        errors: The runs that failed, and why; the same call tries them again.

    Example:
        >>> few = [CompetitorResult("ce", "none", {1: 95.1, 2: 96.4, 3: 95.0}),
        ...        CompetitorResult("mae", "none", {1: 80.3, 2: 76.2, 3: 77.2})]
        >>> found = Comparison({"data": "digits"}, few)
        >>> found.verdict(), found.groups
        ('best: ce; ahead of all others', {'ce': 'a', 'mae': 'b'})
    """

    setting: dict[str, Any]
    """What all runs have in common"""
    competitors: Sequence[CompetitorResult]
    test_notes: tuple[str, ...] = ()
    """What to know of the labels that the losses are tested on"""
    errors: tuple[str, ...] = ()
    """The runs that failed, and why; the same call tries them again"""
    ranking: PairedRanking = field(init=False)

    def __post_init__(self) -> None:
        ranked = {str(k): one.accuracies for k, one in enumerate(self.competitors) if one.complete}
        object.__setattr__(self, "ranking", rank_paired(ranked, np.random.default_rng(0)))

    def rows(self) -> list[tuple[CompetitorResult, RankedCompetitor | None, str]]:
        """From best to worst, each with the letters of its groups; those not ranked come last."""
        ranked = [(self.competitors[int(one.name)], one, self._letters(one.name)) for one in self.ranking.competitors]
        return ranked + [(one, None, "") for one in self.competitors if not one.complete]

    @property
    def groups(self) -> dict[str, str]:
        """The letters of each competitor; two share a letter if and only if their paired interval includes 0."""
        return {self._name(one): letters.replace(" ", "") for one, _, letters in self.rows()}

    @property
    def _seeds(self) -> int:
        return min((one.sample.n for one in self.ranking.competitors), default=0)

    def _letters(self, name: str) -> str:
        if self._seeds < MIN_SEEDS:
            return ""  # a letter would claim what is not known
        letters = [*string.ascii_lowercase, *(f"({k})" for k in range(27, 1 + len(self.ranking.groups)))]
        return "".join(letter if name in group else " " for letter, group in zip(letters, self.ranking.groups, strict=False))

    def table(self) -> list[dict[str, Any]]:
        """A row for each competitor, as JSON has it."""
        found = []
        for one, ranked, letters in self.rows():
            sample = Sample.of(list(one.accuracies.values()))
            found.append(
                {
                    "loss": one.loss,
                    "decay": one.regularisation,
                    "mean": sample and sample.mean,
                    "std": sample and sample.std,
                    "n": len(one.accuracies),
                    "difference": ranked and ranked.difference,
                    "interval": ranked and ranked.interval,
                    "basis": ranked and ranked.basis,
                    "groups": letters.replace(" ", ""),
                    "accuracies": one.accuracies,
                    "diverged": one.diverged,
                    "failed": one.failed,
                    "missed": one.missed_classes,
                    "balanced": _mean(one.balanced),
                    "macro_f1": _mean(one.macro_f1),
                    "recalls": dict(one.recalls),
                    "dead": dict(one.dead),
                    "class_weight": one.class_weight,
                }
            )
        return found

    def verdict(self) -> str:
        """The ranking in a sentence."""
        ranked = [self._name(self.competitors[int(one.name)]) for one in self.ranking.competitors]
        if len(ranked) < 2:
            return "nothing to rank: fewer than two losses finished all their runs"
        if self._seeds < MIN_SEEDS:
            return f"highest mean: {ranked[0]}; intervals and groups need at least {MIN_SEEDS} seeds"
        best = self.ranking.competitors[0].name
        near = {name for group in self.ranking.groups if best in group for name in group} - {best}
        equal = [self._name(self.competitors[int(one.name)]) for one in self.ranking.competitors if one.name in near]
        rest = f"statistically indistinguishable from it: {', '.join(equal)}" if equal else "ahead of all others"
        return f"best: {ranked[0]}; {rest}"

    def _name(self, one: CompetitorResult) -> str:
        several = sum(other.loss == one.loss for other in self.competitors) > 1
        return f"{one.loss} with {one.regularisation}" if several else one.loss

    def notes(self) -> list[str]:
        """How the numbers were made and what they do not say."""
        n, count = self._seeds, len(self.ranking.competitors)
        notes = [
            "test accuracy in the last epoch, in percent; a seed has the same noise, split, initial weights and order for all",
            *self.test_notes,
        ]
        if count > 1 and n >= MIN_SEEDS:
            how = (
                f"paired bootstrap, {BOOTSTRAP_DRAWS:,} resamples of the {n} seeds"
                if n >= MIN_BOOTSTRAP_SEEDS
                else f"paired differences of {n} seeds, Student's t: a bootstrap needs {MIN_BOOTSTRAP_SEEDS}"
            )
            pairs = count * (count - 1) // 2
            many = f" (of {pairs} pairs of equal losses, {0.05 * pairs:.2g} would be separated by chance)" if pairs > 1 else ""
            notes += [
                f"difference to the best: mean and 95 % interval ({how})",
                "group: two losses share a letter if the interval of their difference includes 0; neither intervals nor groups "
                f"are corrected for the number of pairs{many}",
                "the seeds are the unit: other seeds on these data, not other data",
            ]
        if any(one.balanced for one in self.competitors):
            notes.append("balanced: balanced accuracy, the mean recall of the classes; macro F1: the mean of their F1")
        if any(one.class_weight != "none" for one in self.competitors):
            weights = (f"{one.class_weight} for {self._name(one)}" for one in self.competitors)
            notes.append(f"class weights: {', '.join(weights)}; --class-weight none or balanced is the same for all")
        notes += [f"{self._name(one)}: {one.recall_text}" for one in self.competitors if one.recalls]
        for one in self.competitors:
            for why in dict.fromkeys(one.dead.values()):
                dead = ", ".join(str(seed) for seed, text in one.dead.items() if text == why)
                notes.append(f"{self._name(one)}: dead run with seed {dead}, {why}")
            if one.missed_classes:
                notes.append(f"{self._name(one)}: {one.missed_classes}, which its accuracy hides")
            for what, seeds in (("diverged", one.diverged), ("failed", one.failed)):
                if seeds:
                    rest = "; mean of the others" if one.accuracies else ""
                    notes.append(f"{self._name(one)}: not ranked, {what} with seed {', '.join(map(str, seeds))}{rest}")
        return notes

    def _cells(self) -> list[tuple[str, ...]]:
        """The table as text, without its header."""
        rows: list[tuple[str, ...]] = []
        for place, (one, ranked, letters) in enumerate(self.rows()):
            sample = Sample.of(list(one.accuracies.values()))
            mean = "-" if sample is None else f"{sample.mean:.2f}"
            deviation = "-" if sample is None or sample.std is None else f"{sample.std:.2f}"
            difference = _difference(one, ranked) if place or ranked is None else "best"
            shares = ["-" if (value := _mean(of)) is None else f"{value:.2f}" for of in (one.balanced, one.macro_f1)]
            n = str(len(one.accuracies))
            rows.append((one.shown, one.regularisation, mean, deviation, n, *shares, difference, letters))
        return rows

    def __str__(self) -> str:
        lines = [HEADER, *self._cells()]
        if not any(line[-1] for line in lines[1:]):
            lines = [line[:-1] for line in lines]
        return "\n".join([*aligned(lines, NUMBER_COLUMNS), "", self.verdict(), "", *self.notes()])

    def to_markdown(self) -> str:
        """The setting, the table, the verdict and the notes as Markdown."""
        rows = [HEADER, tuple("---:" if k in NUMBER_COLUMNS else "---" for k in range(len(HEADER))), *self._cells()]
        table = "\n".join(f"| {' | '.join(' '.join(cell.split()) for cell in row)} |" for row in rows)
        setting = ", ".join(f"{key} {value}" for key, value in self.setting.items() if key != "seeds")
        return "\n\n".join([setting, table, f"**{self.verdict()}**", "\n".join(f"- {note}" for note in self.notes())])

    def to_latex(self) -> str:
        """The table as LaTeX, with the rules of the package booktabs; the verdict and the notes are comments."""
        rows = [
            " & ".join("".join(LATEX_SPECIAL.get(c, c) for c in " ".join(cell.split())) for cell in row)
            for row in self._cells()
        ]
        head, body = " & ".join(HEADER), "".join(f"{row} \\\\\n" for row in rows)
        notes = "".join(f"% {' '.join(note.split())}\n" for note in (self.verdict(), *self.notes()))
        rules = f"\\toprule\n{head} \\\\\n\\midrule\n{body}\\bottomrule\n"
        return f"{notes}\\begin{{tabular}}{{llrrrrrll}}\n{rules}\\end{{tabular}}"

    def to_json(self) -> str:
        """The setting, :meth:`table`, the verdict and the notes as one JSON object."""
        facts = {"setting": self.setting, "losses": self.table(), "verdict": self.verdict(), "notes": self.notes()}
        return json.dumps(facts, indent=1)


def _mean(values: Mapping[int, float]) -> float | None:
    return fmean(values.values()) if values else None


def _difference(one: CompetitorResult, ranked: RankedCompetitor | None) -> str:
    if ranked is None:
        return one.missing
    if ranked.interval is None:
        return f"{_signed(ranked.difference):>6}  too few seeds"
    low, high = ranked.interval
    return f"{_signed(ranked.difference):>6}  [{_signed(low)}, {_signed(high)}]"


def _signed(value: float) -> str:
    return f"{round(value, 2) + 0.0:+.2f}"  # adding 0.0 removes the sign of a zero
