"""Do measured accuracies agree with published ones? One cell at a time, and the questions that only a whole table answers.

Spreads are taken as sample deviations (divided by n - 1); the paper does not say which it prints.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, pstdev
from typing import Any, Literal, NamedTuple

from noiseproof.comparison.paired import ALPHA, Interval, Sample, t_quantile
from noiseproof.paper.plan import NOT_COMPARED, run_facts
from noiseproof.paper.published import Cell, cells
from noiseproof.paper.settings import PROFILES
from noiseproof.report.page import DIVERGED
from noiseproof.train.record_files import EMPTY_VALUES, count_classes, describe_missed_classes, merge, never_right

Verdict = Literal["agrees", "above", "below", "too few"]


@dataclass(frozen=True)
class UsualSpread:
    """The spread that cells of one column usually have, and the degrees of freedom that this is worth for one cell."""

    std: float
    df: float


@dataclass(frozen=True)
class StandardError:
    """Standard error of a difference, if both samples have one spread, and its degrees of freedom."""

    size: float
    df: float

    def tails(self, difference: float) -> float:
        return t_tails(difference / self.size, self.df)


@dataclass(frozen=True)
class Agreement:
    """Of one cell: ours minus the paper's."""

    verdict: Verdict
    difference: float | None = None
    interval: Interval | None = None
    basis: Literal["welch", "column"] | None = None
    """What the interval comes from. welch: the spreads of the two samples; column: one result has no spread, so that of the
    paper's trials is taken, drawn towards what is usual in the column"""
    own: StandardError | None = None
    """From the common spread of the two samples alone"""
    drawn: StandardError | None = None
    """From that spread drawn towards what is usual in the column, as two or three results say little"""

    @property
    def p(self) -> float | None:
        """Of a difference at least this large if both measure the same, by the drawn error."""
        return None if self.difference is None or self.drawn is None else self.drawn.tails(self.difference)


@dataclass(frozen=True)
class MeanDifference:
    """Over the cells of a table, each counted alike."""

    mean: float
    interval: Interval | None
    """None for fewer than two columns"""


@dataclass(frozen=True)
class Spread:
    """Whether the differences scatter around their mean as the seeds' spreads predict."""

    chi_square: float
    df: int
    p: float
    """Of a chi-square at least this large"""

    @property
    def ratio(self) -> float:
        """How many times as wide as predicted."""
        return math.sqrt(self.chi_square / self.df)


@dataclass(frozen=True)
class Ranking:
    """Kendall's tau-b between two rankings: 1 the same order, -1 the reverse."""

    tau: float
    interval: Interval | None
    """None for fewer than five items"""
    items: int
    expected: float
    """What two measurements of the same truth, with these errors, would give on average: close losses swap by chance"""


class Point(NamedTuple):
    """A loss in a column: the paper's mean and ours, with their standard errors."""

    paper: float
    ours: float
    paper_error: float = 0.0
    our_error: float = 0.0


def usual_spreads(columns: Sequence[Sequence[tuple[Sample, ...]]]) -> list[UsualSpread | None]:
    """For each column the usual spread of its cells, each cell being the samples of it.

    Cells differ in their true spread, so a plain average would call the wide ones outliers. The variances are taken as scaled
    inverse chi-squares, whose degrees of freedom follow from how much log variances differ within columns (Smyth 2004), and
    are taken at the lower end of what fits.
    """
    from scipy.special import digamma, polygamma  # takes a quarter of a second to import

    found = [[_own(samples) for samples in cells if any(sample.std is not None for sample in samples)] for cells in columns]
    logs = [[math.log(variance) - digamma(df / 2) + math.log(df / 2) for variance, df in cells] for cells in found]
    count = sum(len(values) - 1 for values in logs if values)
    if not count:
        return [None] * len(columns)
    centers = [fmean(values) if values else 0.0 for values in logs]
    squares = [(value - center) ** 2 for values, center in zip(logs, centers, strict=True) for value in values]
    # One standard error above what is found: too many degrees of freedom make outliers of cells that are wide. Without it, in
    # tables like the paper's where all agree, some cell was an outlier after Holm's correction in 9 to 11 %; with it in 4 to 7.
    scatter = (sum(squares) + pstdev(squares) * math.sqrt(len(squares))) / count
    half = inverse_trigamma(scatter - fmean(polygamma(1, df / 2) for cells in found for _, df in cells))
    shift = digamma(half) - math.log(half)
    worth = [min(2 * half, sum(df for _, df in cells)) for cells in found]  # no more than went into it
    return [UsualSpread(math.exp((center + shift) / 2), df) if df else None for center, df in zip(centers, worth, strict=True)]


def inverse_trigamma(value: float) -> float:
    """The x with this trigamma; at most 1e6, which it is for values down to 0 and below.

    >>> round(inverse_trigamma(math.pi**2 / 6), 9)
    1.0
    """
    from scipy.optimize import brentq
    from scipy.special import polygamma

    low, high = math.log(1e-3), math.log(1e6)
    if value <= polygamma(1, math.exp(high)):
        return math.exp(high)
    return math.exp(brentq(lambda x: polygamma(1, math.exp(x)) - value, low, high, xtol=1e-14))


def compare(ours: Sample | None, theirs: Sample, usual: UsualSpread | None = None) -> Agreement:
    """Welch's interval, or with the spread of the column where ours is a single result.

    >>> compare(Sample(88.0, 0.3, 3), Sample(87.5, 0.1, 3)).verdict
    'agrees'
    """
    if ours is None:
        return Agreement("too few")
    difference = ours.mean - theirs.mean
    if theirs.std is None:
        return Agreement("too few", difference)
    (variance, own_df), share = _own((ours, theirs)), 1 / ours.n + 1 / theirs.n
    own = drawn = StandardError(math.sqrt(variance * share), own_df)
    if usual is not None:
        df = own_df + usual.df
        drawn = StandardError(math.sqrt((variance * own_df + usual.std**2 * usual.df) / df * share), df)
    width, width_df = drawn.size, drawn.df
    basis: Literal["welch", "column"] = "column"
    if ours.std is not None and ours.std + theirs.std > 0:
        parts = (ours.std**2 / ours.n, theirs.std**2 / theirs.n)
        width, basis = math.sqrt(sum(parts)), "welch"
        width_df = sum(parts) ** 2 / (parts[0] ** 2 / (ours.n - 1) + parts[1] ** 2 / (theirs.n - 1))
    half = t_quantile(ALPHA, width_df) * width
    verdict: Verdict = "above" if difference > half else "below" if difference < -half else "agrees"
    return Agreement(verdict, difference, (difference - half, difference + half), basis, own, drawn)


def _own(samples: Iterable[Sample]) -> tuple[float, int]:
    """The common variance of a cell's samples and its degrees of freedom. A printed 0.00 may be anything below 0.005."""
    known = [(sample.std, sample.n - 1) for sample in samples if sample.std is not None]
    df = sum(weight for _, weight in known)
    return max(0.005**2, sum(std * std * weight for std, weight in known) / df), df


def mean_difference(*columns: Iterable[Agreement]) -> MeanDifference | None:
    """Are we off on average? With the interval of Student's t over the columns.

    The cells of a column are not independent: runs of one seed have the same noisy labels and first weights for all losses, and
    so have the paper's. Over the cells, where a tenth of their variance is shared, the interval would miss the truth in 18 %.
    """
    found = [[cell.difference for cell in column if cell.difference is not None] for column in columns]
    values, count = [value for column in found for value in column], sum(map(bool, found))
    if not values:
        return None
    mean = fmean(values)
    if count < 2:
        return MeanDifference(mean, None)
    # The columns' sums of deviations are the independent ones (Liang and Zeger 1986); with one cell each, this is Student's.
    error = math.sqrt(count / (count - 1) * sum(sum(value - mean for value in column) ** 2 for column in found)) / len(values)
    half = t_quantile(ALPHA, count - 1) * error
    return MeanDifference(mean, (mean - half, mean + half))


def spread(cells: Iterable[Agreement]) -> Spread | None:
    """Is the scatter of the differences what the seeds predict?

    Each cell is judged by its own spread. Squares of t with so few degrees of freedom would raise false alarms, so each p value
    is turned into a normal score first; the squares of these add up to a chi-square. The mean is taken off: that is
    :func:`mean_difference`'s question.
    """
    from scipy.stats import chi2, norm

    known = [(c.difference, c.own, c.drawn) for c in cells if c.difference is not None and c.own and c.drawn]
    if len(known) < 2:
        return None
    weights = [1 / drawn.size**2 for _, _, drawn in known]
    mean = sum(weight * difference for weight, (difference, _, _) in zip(weights, known, strict=True)) / sum(weights)
    tails = (max(own.tails(difference - mean), 1e-300) for difference, own, _ in known)
    total = sum(float(norm.isf(each / 2)) ** 2 for each in tails)
    return Spread(total, len(known) - 1, float(chi2.sf(total, len(known) - 1)))


def ranking(*columns: Sequence[Point], items: int | None = None) -> Ranking | None:
    """Kendall's tau-b between the paper's order and ours, over pairs of losses within a column.

    The interval is that of Fieller, Hartley and Pearson (1957) on atanh tau, with the number of different losses as ``items``:
    further columns rank the same losses and are not counted as new evidence. It is of the losses, as if they were drawn from
    many; with 13 it holds in 95 % where tau is up to 0.7, in 88 % at 0.85.

    >>> round(ranking([Point(1, 1), Point(2, 3), Point(3, 2)]).tau, 3)
    0.333
    """
    pairs = [(one, two) for column in columns for one, two in itertools.combinations(column, 2)]
    signs = [(_sign(one.paper - two.paper), _sign(one.ours - two.ours)) for one, two in pairs]
    untied = [sum(sign[side] ** 2 for sign in signs) for side in (0, 1)]
    if not all(untied):
        return None
    tau = sum(x * y for x, y in signs) / math.sqrt(untied[0] * untied[1])
    expected = fmean(_expected(one, two) for one, two in pairs)
    items = max(len(column) for column in columns) if items is None else items
    if items < 5:
        return Ranking(tau, None, items, expected)
    most = 1 - 1 / min(untied)  # a perfect order counts as half a pair wrong: atanh 1 is infinite
    center, half = math.atanh(max(-most, min(most, tau))), t_quantile(ALPHA, items - 2) * math.sqrt(0.437 / (items - 4))
    low, high = math.tanh(center - half), math.tanh(center + half)
    return Ranking(tau, (min(low, tau), max(high, tau)), items, expected)


def _expected(one: Point, two: Point) -> float:
    """The mean of +1 (both in the same order) and -1, if the truth is the middle between the paper and us."""
    gap = abs(one.paper - two.paper + one.ours - two.ours) / 2
    errors = (math.hypot(one.paper_error, two.paper_error), math.hypot(one.our_error, two.our_error))
    return math.prod(math.erf(gap / error / math.sqrt(2)) if error else _sign(gap) for error in errors)


def _sign(value: float) -> int:
    return int(value > 0) - int(value < 0)


def t_tails(t: float, df: float) -> float:
    """P(|T| >= |t|) of Student's t.

    >>> round(t_tails(1.0, 1.0), 12)  # Cauchy: half of it is within 1
    0.5
    """
    from scipy.stats import t as student

    return float(2 * student.sf(abs(t), df))


def holm(p_values: Sequence[float]) -> list[float]:
    """The p values corrected for their number: those below 0.05 hold a false one with at most 5 % (Holm 1979).

    >>> [round(p, 3) for p in holm([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    corrected, largest = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[i]))
        corrected[i] = largest
    return corrected


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
