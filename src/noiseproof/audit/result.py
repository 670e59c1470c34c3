"""The answer of an audit, and its files."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noiseproof.audit.mixture import expected_counts
from noiseproof.audit.tables import save_audit

__all__ = ["Audit", "ClassAudit", "Confusion"]

MOST_FLAGGED = 0.5
LEAST_AGREEMENT, LEAST_FOUND = 0.4, 0.85
"""Predictions are weak that agree with fewer of the labels than the first, or than the second of those that should be right.
On digits with a few pixels left and no or 20 % noise the latter is 0.75 to 0.83 where the rate is 8 to 37 points too high, 0.93
where it is 2; with all pixels and up to 40 % noise 0.89 or more"""
FEW = 50
"""Labels to a class below which unsure predictions fit those at hand too well: of 10 classes with 5, 10 and 20 labels each,
none wrong, and predictions right in two of three, the interval began above 0 in 58, 51 and 10 of 60 draws, with 50 in none"""
CLEAN = 0.005
"""A rate below this is hardly any; by weak predictions it is no bound"""
PERHAPS_NONE = 0.02
"""A rate from which on it is said that the interval begins at 0: the labels may all be right"""
CLOSE = 0.15
"""By how much the clean label must lead the next one in its row of T for suggestions between the two to be more than guesses"""

PAIRS = 1000


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
    expected: float
    """How many examples are of this class, by the posterior"""
    kept: float
    """``transition[label, label]``: the probability that an example of this class has its own label"""
    mistaken_for: int
    """The label that its examples are given most often besides"""
    warning: str = ""
    mostly_flagged: bool = False
    """Too many are flagged for the flags to be trusted: the class may be rare, and swamped by noise"""

    @property
    def estimated(self) -> bool:
        """Whether there are examples to estimate its row of the matrix by; the row is that of the mean rate if not."""
        return self.expected >= 1


def _warning(found: ClassAudit, close: str | None) -> str:
    """What to beware of in a class; ``close`` is the label that its examples are given almost as often as their own."""
    said = []
    if not found.given:
        said.append("no example has this label")
    elif found.mostly_flagged:
        way = "look at them before any is removed, as training on soft labels does too"
        said.append(f"{found.flagged} of its {found.given} labels are flagged: {way}")
    elif close is not None and found.estimated:
        said.append(f"its examples are called {close} almost as often: suggestions between the two are guesses")
    if not found.estimated:
        learnt = ": perhaps it was not learnt" if found.given else ""
        said.append(f"hardly any example seems to be of it{learnt}; its row of the matrix is the mean rate, not an estimate")
    return "; ".join(said)


class Confusion(NamedTuple):
    """Examples of one class that are labelled as another."""

    true: int
    given: int
    expected: float
    """How many there are, by the posterior"""
    flagged: int
    """How many of them are flagged"""


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
    """From errors of the predictions taken for wrong labels to all labels led by doubt, and 95 % for sampling"""
    agreement: float
    """The share of examples whose given label is the one predicted; low where predictions are weak or the noise is high"""
    classes: tuple[str, ...]
    how: str
    """How it was computed, in a sentence"""
    fold: NDArray[np.int64] | None = None
    """The fold ``[N]`` that each example was held out in; None if the audit did not hold any out"""
    out_of_sample: bool = True
    """Whether the predictions are of networks that were not trained on the example"""
    notes: tuple[str, ...] = ()
    """What to know of how the predictions were made; part of the warnings"""
    least_rate: float | None = None
    """The rate if easy and hard examples of a class are mistaken alike, no label led by doubt; None if that is the rate"""

    @functools.cached_property
    def p_wrong(self) -> NDArray[np.float32]:
        """The probability that each given label is wrong."""
        return np.asarray(1 - self.posterior[np.arange(len(self.given)), self.given])

    @functools.cached_property
    def suggested(self) -> NDArray[np.int64]:
        """The likeliest label of each example."""
        return np.asarray(self.posterior.argmax(1))

    @functools.cached_property
    def flagged(self) -> NDArray[np.bool_]:
        """Labels that are more likely wrong than right."""
        return np.asarray(self.p_wrong > 0.5)

    @functools.cached_property
    def per_class(self) -> tuple[ClassAudit, ...]:
        number = len(self.classes)
        given = np.bincount(self.given, minlength=number).tolist()
        flagged = np.bincount(self.given[self.flagged], minlength=number).tolist()
        wrong = np.bincount(self.given, self.p_wrong, number).tolist()
        expected = self.posterior.sum(0, dtype=np.float64).tolist()
        others = self.transition - 2 * np.eye(number)  # the diagonal is never the largest
        found = []
        for label, name in enumerate(self.classes):
            rival, kept = int(others[label].argmax()), float(self.transition[label, label])
            rate, most = wrong[label] / max(given[label], 1), flagged[label] > MOST_FLAGGED * given[label]
            one = ClassAudit(label, name, given[label], flagged[label], rate, expected[label], kept, rival, "", most)
            close = kept - others[label, rival] < CLOSE
            found.append(replace(one, warning=_warning(one, self.classes[rival] if close else None)))
        return tuple(found)

    @functools.cached_property
    def confusions(self) -> tuple[Confusion, ...]:
        """Pairs of a likely and a given label, the most frequent first, up to ``PAIRS`` of half an example or more."""
        number = len(self.classes)
        expected, flags = expected_counts(self.posterior, self.given).T, np.zeros((number, number), dtype=np.int64)
        np.add.at(flags, (self.given, self.suggested), self.flagged)
        np.fill_diagonal(expected, 0.0)
        order = np.argsort(-expected, axis=None, kind="stable")[: min(PAIRS, int((expected >= 0.5).sum()))]
        pairs = zip(*(axis.tolist() for axis in np.unravel_index(order, expected.shape)), strict=True)
        return tuple(Confusion(true, given, float(expected[given, true]), int(flags[given, true])) for given, true in pairs)

    @property
    def weak(self) -> bool:
        """Whether the predictions are too weak for the rate to be more than a bound: what they cannot tell looks wrong."""
        return self.agreement < max(LEAST_AGREEMENT, LEAST_FOUND * (1 - self._least))

    @property
    def _least(self) -> float:
        return self.rate if self.least_rate is None else self.least_rate

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a reader should know before acting on it; what concerns all labels first, then class by class."""
        found = list(self.notes)
        there = len(np.unique(self.given))
        if len(self.given) < FEW * there:
            said = f"there are {len(self.given)} labels of {there} classes, fewer than {FEW} to a class"
            found.insert(0, f"{said}: unless predictions are sure, the rate is likely too high, and its interval too")
        if self.weak:
            said = (
                f"predictions agree with {self.agreement:.0%} of the labels only, right ones would with {1 - self._least:.0%}"
            )
            follows = (
                "they are weak, and what they cannot tell counts as wrong; the rate is likely too high, unless labels are "
                "wrong mostly where examples are hard: look at those flagged"
            )
            if self.rate < CLEAN:
                follows = "they are so weak that nothing is known of any label"
            found.insert(0, f"{said}: {follows}")
        elif self.rate_interval[0] == 0 and self.rate >= PERHAPS_NONE:
            said = "the interval begins at 0: errors of the predictions would explain all that looks wrong"
            found.insert(0, f"{said}, and every label may be right; look at those flagged before you act on the rate")
        return (*found, *(f"class {each.name}: {each.warning}" for each in self.per_class if each.warning))

    def __str__(self) -> str:
        low, high = self.rate_interval
        share = f"{f'at most {high:.1%}, perhaps ' if self.weak else ''}{self.rate:.1%} of {len(self.given)} labels are wrong"
        share += f" (95 % interval {low:.1%} to {high:.1%})"
        return f"{share}; {int(self.flagged.sum())} are flagged; predictions and given labels agree in {self.agreement:.1%}"

    def save(self, folder: str | Path, *, paths: Sequence[str] | None = None) -> None:
        """Write ``audit.csv``, a line for each label, ``transition.csv`` and ``posterior.npz``; ``paths`` name the examples.

        In ``audit.csv`` text that a spreadsheet would take for a formula has an apostrophe before it. ``posterior.npz`` has
        arrays ``posterior``, ``given`` and ``classes``; 'noiseproof train --labels' takes it as soft labels.
        """
        save_audit(self, Path(folder), paths)

    def datalab_columns(self) -> dict[str, NDArray[Any]]:
        """The columns that cleanlab's ``Datalab.get_issues("label")`` has: whether a label is flagged, its score in [0, 1],
        which is lower the likelier the label is wrong, and the given and the likely label by name."""
        names = np.asarray(self.classes)
        return {
            "is_label_issue": self.flagged,
            "label_score": 1 - self.p_wrong,
            "given_label": names[self.given],
            "predicted_label": names[self.suggested],
        }
