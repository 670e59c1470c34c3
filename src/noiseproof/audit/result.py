"""The answer of an audit, and its files."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from noiseproof.files import write_whole

__all__ = ["Audit", "ClassAudit"]

MOST_FLAGGED, WEAK = 0.5, 0.4
CLOSE = 0.15
"""By how much the clean label must lead the next one in its row of T for suggestions between the two to be more than guesses"""


@dataclass(frozen=True)
class ClassAudit:
    """What was found among the labels of one class."""

    label: int
    name: str
    given: int
    """Examples with this label"""
    flagged: int
    """Those of them that are probably wrong"""
    rate: float
    """The expected share of them that is wrong"""
    kept: float
    """``transition[label, label]``: the probability that an example of this class has its own label"""
    mistaken_for: int
    """The label that its examples are given most often besides"""
    warning: str = ""


@dataclass(frozen=True)
class Audit:
    """For every label how likely it is wrong and what is likely right; how many are wrong; how they came about."""

    given: NDArray[np.int64]
    posterior: NDArray[np.float32]
    """The probability ``[N, K]`` of every class to be the true one"""
    transition: NDArray[np.float64]
    """``transition[i, j]``: the estimated probability that an example of class i is given the label j"""
    rate: float
    """The expected share of wrong labels"""
    rate_interval: tuple[float, float]
    """95 %"""
    agreement: float
    """The share of examples whose given label is the one predicted; low where predictions are weak or the noise is high"""
    classes: tuple[str, ...]
    how: str
    """How it was computed, in a sentence"""

    @property
    def p_wrong(self) -> NDArray[np.float32]:
        """The probability that each given label is wrong."""
        return np.asarray(1 - self.posterior[np.arange(len(self.given)), self.given])

    @property
    def suggested(self) -> NDArray[np.int64]:
        """The likeliest label of each example."""
        return np.asarray(self.posterior.argmax(1))

    @property
    def flagged(self) -> NDArray[np.bool_]:
        """Labels that are more likely wrong than right."""
        return np.asarray(self.p_wrong > 0.5)

    @property
    def per_class(self) -> tuple[ClassAudit, ...]:
        wrong, flagged, found = self.p_wrong, self.flagged, []
        for label, name in enumerate(self.classes):
            mine = self.given == label
            others = np.where(np.arange(len(self.classes)) == label, -1.0, self.transition[label])
            rival, kept = int(others.argmax()), float(self.transition[label, label])
            count, hit = int(mine.sum()), int(flagged[mine].sum())
            warning = ""
            if not count:
                warning = "no example has this label"
            elif hit > MOST_FLAGGED * count:
                warning = f"{hit} of its {count} labels are flagged: look at them before any is removed"
            elif kept - others[rival] < CLOSE:
                warning = (
                    f"its examples are called {self.classes[rival]} almost as often: suggestions between the two are guesses"
                )
            rate = float(wrong[mine].mean()) if count else 0.0
            found.append(ClassAudit(label, name, count, hit, rate, kept, rival, warning))
        return tuple(found)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a reader should know before acting on it."""
        found = [f"class {each.name}: {each.warning}" for each in self.per_class if each.warning]
        if self.agreement < WEAK:
            way = "where predictions are weak the rate comes out too high"
            found.append(f"only {self.agreement:.0%} of the predictions are the given label: {way}")
        return tuple(found)

    def __str__(self) -> str:
        low, high = self.rate_interval
        share = f"{self.rate:.1%} of {len(self.given)} labels are wrong (95 % interval {low:.1%} to {high:.1%})"
        return f"{share}; {int(self.flagged.sum())} are flagged; predictions and given labels agree in {self.agreement:.1%}"

    def save(self, folder: str | Path, *, paths: Sequence[str] | None = None) -> None:
        """Write ``audit.csv``, a line for each label, ``transition.csv`` and ``posterior.npz``; ``paths`` name the examples."""
        place = Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        if paths is not None and len(paths) != len(self.given):
            raise ValueError(f"there must be one path for each label: {len(self.given)} labels, {len(paths)} paths")
        warned = {each.label for each in self.per_class if each.warning}
        suggested, wrong, flagged = self.suggested, self.p_wrong, self.flagged
        header = ("index", "path", "given", "suggested", "p_wrong", "p_suggested", "flagged", "warning")
        rows = (
            (
                index,
                "" if paths is None else paths[index],
                self.classes[label],
                self.classes[suggested[index]],
                f"{wrong[index]:.6f}",
                f"{self.posterior[index, suggested[index]]:.6f}",
                int(flagged[index]),
                "class" if label in warned else "",
            )
            for index, label in enumerate(self.given.tolist())
        )
        matrix = ([name, *(f"{share:.6f}" for share in row)] for name, row in zip(self.classes, self.transition, strict=True))
        _write_csv(place / "audit.csv", [header, *rows])
        _write_csv(place / "transition.csv", [["true \\ given", *self.classes], *matrix])
        write_whole(place / "posterior.npz", self._write_posterior)

    def _write_posterior(self, path: Path) -> None:
        with path.open("wb") as file:
            np.savez_compressed(file, posterior=self.posterior, given=self.given, classes=np.asarray(self.classes))


def _write_csv(path: Path, rows: Iterable[Sequence[object]]) -> None:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    write_whole(path, lambda beside: beside.write_text(text.getvalue(), encoding="utf-8"))
