"""What was measured: a cell for each data set and noise in the records, and which of them is nearest to a user's case.

``evidence.json`` is written from ``records/`` by ``make generate``.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from noiseproof.io.text import read_json
from noiseproof.noise import LabelNoise

__all__ = ["FILE", "Case", "Cell", "Family", "Kind", "Measured", "cells", "family_of", "nearest"]

FILE = Path(__file__).with_name("evidence.json")
Kind = Literal["features", "images", "photographs"]
Family = Literal["none", "symmetric", "pair", "mixed"]
"""How wrong labels are spread over the classes: evenly, to one class each, or in between, as people's are"""
CLEAN = 0.01
"""A rate of wrong labels below which there is no noise to speak of"""
EVEN, ONE = 0.35, 0.9
"""Of the share that the most frequent wrong label has of a class's wrong labels, 0 if even and 1 if it has all: less than the
first is symmetric noise, more than the second pair noise"""
OTHER_FAMILY, PER_TENFOLD, FAR = 0.2, 0.1, 0.3
"""A distance in rates: of another family, of ten times as many classes or examples, and from which on nothing is near"""


class Measured(NamedTuple):
    """A loss in a cell: its mean test accuracy in percent over ``n`` seeds, and their deviation."""

    loss: str
    decay: str
    mean: float
    std: float | None
    n: int


@dataclass(frozen=True)
class Cell:
    """What was measured on one data set with one noise."""

    data: str
    kind: Kind
    classes: int
    examples: int
    noise: str
    family: Family
    rate: float
    """The realised share of wrong labels"""
    record: str
    losses: tuple[Measured, ...]
    """From best to worst, each loss with the better of its decays"""

    def __str__(self) -> str:
        seeds = {one.n for one in self.losses}
        n = f"{min(seeds)}" if len(seeds) == 1 else f"{min(seeds)} to {max(seeds)}"
        noise = "clean labels" if self.noise == "none" else f"{self.noise}, {self.rate:.0%} wrong"
        return f"{self.data} ({self.examples:,} examples, {self.classes} classes, {noise}; {self.record}, seeds: {n})"


@dataclass(frozen=True)
class Case:
    """What a user has; None where it is not known."""

    kind: Kind | None
    classes: int | None
    examples: int | None
    family: Family | None
    rate: float | None

    def __post_init__(self) -> None:
        if self.kind is not None and self.kind not in get_args(Kind):
            raise ValueError(f"kind must be one of {', '.join(get_args(Kind))}, got {self.kind!r}")


@functools.cache
def cells() -> tuple[Cell, ...]:
    """All that was measured."""
    return tuple(_cell(facts) for facts in read_json(FILE)["cells"])


def _cell(facts: dict[str, Any]) -> Cell:
    losses = (Measured(**one) for one in facts["losses"])
    return Cell(**{**facts, "losses": tuple(losses)})


def nearest(case: Case) -> tuple[Cell | None, float]:
    """The nearest cell of the same kind of data, and how far it is; None where there is none, or kind or rate are not known."""
    if case.kind is None or case.rate is None:
        return None, math.inf
    far = {cell: _distance(case, cell) for cell in cells() if cell.kind == case.kind}
    return min(far.items(), key=lambda one: (one[1], -len(one[0].losses)), default=(None, math.inf))


def _distance(case: Case, cell: Cell) -> float:
    distance = abs((case.rate or 0.0) - cell.rate)
    distance += OTHER_FAMILY * (case.family is not None and case.family != cell.family)
    for mine, theirs in ((case.classes, cell.classes), (case.examples, cell.examples)):
        distance += 0.0 if mine is None else PER_TENFOLD * abs(math.log10(mine / theirs))
    return distance


def family_of(noise: LabelNoise, rate: float | None = None) -> Family:
    """How a matrix spreads wrong labels, classes weighted by how often theirs are wrong; ``rate`` is their share, if known.

    >>> from noiseproof.noise import asymmetric, pairflip, symmetric
    >>> [family_of(noise) for noise in (symmetric(10, 0.8), symmetric(2, 0.3), pairflip(10, 0.2), asymmetric("cifar10", 0.4))]
    ['symmetric', 'symmetric', 'pair', 'pair']
    """
    wrong = 1 - np.diagonal(noise.matrix)
    if (wrong.mean() if rate is None else rate) < CLEAN:
        return "none"
    if noise.classes == 2:
        return "symmetric"
    others = noise.matrix - np.diag(np.diagonal(noise.matrix))
    top = float(others.max(1).sum() / wrong.sum())
    even = 1 / (noise.classes - 1)
    above = (top - even) / (1 - even)
    return "symmetric" if above < EVEN else "pair" if above > ONE else "mixed"
