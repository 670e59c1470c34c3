"""The published cells with the runs that belong to them."""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any, NamedTuple

from noiseproof.comparison.paired import Sample
from noiseproof.paper.agreement import Agreement, MeanDifference, Point, UsualSpread, compare, mean_difference, usual_spreads
from noiseproof.paper.cells import Cell, cells
from noiseproof.paper.plan import NOT_COMPARED, run_facts
from noiseproof.paper.settings import PROFILES
from noiseproof.report.groups import DIVERGED
from noiseproof.train.record_files import EMPTY_VALUES, count_classes, describe_missed_classes, merge, never_right

TEST_ACCURACY = "test_accuracy"
NOT_JUDGED = Agreement("too few")


@dataclass(frozen=True)
class CellResult:
    """One cell, what was measured for it, and whether they agree. Accuracies are percent, as in the paper."""

    cell: Cell
    precision: str
    accuracies: Mapping[int, tuple[float, ...]] = field(default_factory=dict)
    """By seed; more than one where a run was repeated with another result"""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """Runs of the cell that do not count, by the reason: another precision, diverged"""
    agreement: Agreement = NOT_JUDGED
    runs: tuple[dict[str, Any], ...] = ()
    """The records behind it, also those left out"""
    counted: tuple[dict[str, Any], ...] = ()
    """Those of them whose accuracies count"""
    profile: str = PROFILES[0]
    """Whose values the runs have, the code's or the text's"""

    @functools.cached_property
    def sample(self) -> Sample | None:
        """Over the seeds; a repeated run counts once, with its mean."""
        return Sample.of([fmean(values) for values in self.accuracies.values()])

    @property
    def name(self) -> str:
        """The loss, with the weights that its table varies."""
        weights = "" if self.cell.alpha is None else f" {self.cell.alpha:g},{self.cell.beta:g}"
        return self.cell.loss + weights

    @functools.cached_property
    def diverged(self) -> tuple[int, ...]:
        """The seeds of its runs in this precision that diverged, and so have no result."""
        ours = [run for run in self.runs if run["recipe"].get("precision") == self.precision]
        return tuple(sorted({_seed(run) for run in ours if run.get("status") == DIVERGED}))

    @property
    def told_by_class(self) -> bool:
        """Whether its runs say how each class fares, on the images of this cell."""
        return _measure(self.cell) == TEST_ACCURACY and any(map(count_classes, self.counted))

    @property
    def never_right(self) -> dict[int, list[int]]:
        """By seed, the classes of which no test example is right."""
        runs = self.counted if self.told_by_class else ()
        return {_seed(run): missed for run in runs if (missed := never_right(run))}

    @property
    def classes(self) -> str:
        """On which classes its runs are never right, in a few words."""
        return describe_missed_classes(self.counted) if self.told_by_class else ""

    @property
    def published(self) -> Sample:
        return _published(self.cell)

    @property
    def point(self) -> Point | None:
        """Both means with their shares of the error; None without an error."""
        if self.sample is None or self.agreement.drawn is None:
            return None
        std = self.agreement.drawn.size / math.sqrt(1 / self.sample.n + 1 / self.published.n)
        return Point(self.cell.mean, self.sample.mean, std / math.sqrt(self.published.n), std / math.sqrt(self.sample.n))

    def as_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        cell, ours, found = self.cell, self.sample, self.agreement
        varied = {name: value for name in ("alpha", "beta") if (value := getattr(cell, name)) is not None}
        return {
            "table": cell.table,
            "dataset": cell.dataset,
            "noise": cell.noise,
            "rate": cell.rate,
            "loss": cell.loss,
            **varied,
            "paper_mean": cell.mean,
            "paper_std": cell.std,
            "mean": _rounded(ours.mean if ours else None),
            "std": _rounded(ours.std if ours else None),
            "n": len(self.accuracies),
            "seeds": list(self.accuracies),
            "difference": _rounded(found.difference),
            "interval": found.interval and [_rounded(end) for end in found.interval],
            "verdict": found.verdict,
            "basis": found.basis,
            "precision": self.precision,
            "profile": self.profile,
            "accuracies": {str(seed): [_rounded(value) for value in values] for seed, values in self.accuracies.items()},
            "left_out": dict(self.left_out),
            "diverged": list(self.diverged),
            "never_right": {str(seed): missed for seed, missed in self.never_right.items()},
            "remark": cell.remark,
        }


class JoinedRecords(NamedTuple):
    """All cells in their order, and the records that belong to none of them."""

    results: list[CellResult]
    unmatched: list[dict[str, Any]]


def join(
    chosen: Iterable[Cell], records: Iterable[dict[str, Any]], *, precision: str = "bf16", profile: str = PROFILES[0]
) -> JoinedRecords:
    """Each cell with its runs: those whose recipe is the cell's in everything but seed, precision and confidence epochs.

    Only runs in ``precision`` count; the others are named in ``left_out``. A run may count for cells of several tables.
    """
    records = merge(records)
    by_run: dict[tuple[Any, ...], list[int]] = {}
    for i, record in enumerate(records):
        by_run.setdefault(_short(record["recipe"]), []).append(i)
    matched: set[int] = set()
    results = []
    for cell in chosen:
        runs = []
        if cell.quoted_from is None:
            facts = run_facts(cell, profile)
            runs = [i for i in by_run.get(_short(facts), []) if _same(facts, records[i]["recipe"])]
        matched.update(runs)
        results.append(replace(_measured(cell, [records[i] for i in runs], precision), profile=profile))
    unmatched = [record for i, record in enumerate(records) if i not in matched]
    return JoinedRecords(results, unmatched)


def count_published(records: Iterable[dict[str, Any]]) -> int:
    """How many of the records are of runs behind a published number, in any precision and profile."""
    unmatched = total = list(records)
    for profile in PROFILES:
        unmatched = join(cells(), unmatched, profile=profile).unmatched
    return len(total) - len(unmatched)


def _measured(cell: Cell, runs: list[dict[str, Any]], precision: str) -> CellResult:
    accuracies: dict[int, tuple[float, ...]] = {}
    left_out: Counter[str] = Counter()
    counted = []
    for run in runs:
        seed, value = _seed(run), run["result"].get(_measure(cell))
        status = run.get("status", "finished")
        if run["recipe"].get("precision") != precision:
            left_out[str(run["recipe"].get("precision"))] += 1
        elif status != "finished" or value is None:
            left_out["not tested" if status == "finished" else status] += 1
        else:
            accuracies[seed] = (*accuracies.get(seed, ()), 100 * value)
            counted.append(run)
    by_seed = dict(sorted(accuracies.items()))
    result = CellResult(cell, precision, by_seed, dict(left_out), runs=tuple(runs), counted=tuple(counted))
    return replace(result, agreement=compare(result.sample, result.published, usual_spread(cell)))


def _seed(run: Mapping[str, Any]) -> Any:
    return run["recipe"].get("seed", 0)


def _measure(cell: Cell) -> str:
    return "ilsvrc12_accuracy" if cell.dataset == "ilsvrc12" else TEST_ACCURACY


def average(results: Iterable[CellResult]) -> MeanDifference | None:
    """Ours minus the paper's; the cells of one noise are a column, also where they are of several tables."""
    columns: dict[tuple[Any, ...], list[Agreement]] = {}
    for result in results:
        columns.setdefault(_column(result.cell), []).append(result.agreement)
    return mean_difference(*columns.values())


def usual_spread(cell: Cell) -> UsualSpread | None:
    """The spread over seeds that is usual at a cell's noise."""
    return _usual().get(_column(cell))


@functools.cache
def _usual() -> dict[tuple[Any, ...], UsualSpread | None]:
    """The usual spread at each noise, from the published deviations alone: a verdict does not change with other cells' runs.

    They are those of the first table with that noise: the small tables repeat its cells and add losses that hardly train.
    """
    tables: dict[tuple[Any, ...], str] = {}
    columns: dict[tuple[Any, ...], list[tuple[Sample]]] = {}
    for cell in cells():
        if cell.quoted_from is None and tables.setdefault(_column(cell), cell.table) == cell.table:
            columns.setdefault(_column(cell), []).append((_published(cell),))
    return dict(zip(columns, usual_spreads(list(columns.values())), strict=True))


def _column(cell: Cell) -> tuple[Any, ...]:
    return cell.dataset, cell.noise, cell.rate


def _published(cell: Cell) -> Sample:
    return Sample(cell.mean, cell.std, cell.trials or 1)


def _short(facts: Mapping[str, Any]) -> tuple[Any, ...]:
    return facts.get("dataset"), facts.get("loss"), facts.get("noise")


def _same(facts: Mapping[str, Any], recipe: Mapping[str, Any]) -> bool:
    """In all fields that both have: a record may be older than a field, or newer if what is unknown here says nothing."""
    unknown = (value for name, value in recipe.items() if name not in facts and name not in NOT_COMPARED)
    same = all(recipe[name] == value for name, value in facts.items() if name in recipe)
    return same and all(value in EMPTY_VALUES for value in unknown)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
