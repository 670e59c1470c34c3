"""Whether the paper holds, in a few sentences.

Which part of a loss's lead is the loss and which its regularisation; values of the paper's text against those of its code.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

from noiseproof.comparison.paired import ALPHA, MIN_SEEDS, PairedMean, paired_mean, t_quantile
from noiseproof.paper.agreement import CellResult, MeanDifference, average, holm, join, usual_spread
from noiseproof.paper.groups import PaperGroup
from noiseproof.paper.plan import cell_differences
from noiseproof.paper.published import DATASET_NAMES, Cell
from noiseproof.paper.settings import PROFILES, Difference
from noiseproof.report.page import counted, named_seeds

VERDICTS = {"agrees": ("=", "agree"), "above": ("▲", "above"), "below": ("▼", "below"), "too few": ("?", "not judged")}
"""Verdicts on a cell, each as a mark and in words"""
SEEDS_PER_CELL = 3  # of each published number
PROPOSED_LOSSES = ("JAL-CE", "JAL-FL")
"""The losses that the paper proposes."""


@dataclass(frozen=True)
class Answer:
    """Whether the paper holds, in a few sentences.

    ``counts`` are verdicts on ``different`` results, of which several cells may print the same.
    """

    headline: str
    sentences: list[str]
    counts: dict[str, int]
    different: int
    measured: int
    trained: int


def answer(results: Iterable[CellResult]) -> Answer:
    """Each published result counts once, also where several tables print it and one run repeats it."""
    trained = [result for result in results if result.cell.quoted_from is None]
    measured = [result for result in trained if result.sample is not None]
    distinct = _distinct(measured)
    counts = {verdict: sum(result.agreement.verdict == verdict for result in distinct) for verdict in VERDICTS}
    lost = _diverged(trained)
    if not measured:
        yet = "a run that ended with a result" if lost else "a run yet"
        none = f"None of the {len(trained)} cells that the paper trained has {yet}"
        return Answer(none, list(filter(None, [lost])), counts, 0, 0, len(trained))
    judged = [result for result in distinct if result.agreement.verdict != "too few"]
    off = sum(result.agreement.verdict != "agrees" for result in judged)
    found = average(distinct)
    without = any(result.diverged and result.sample is None for result in trained)
    against = _against(distinct, off > _chance(len(judged)), found, without)
    partly = "" if len(measured) == len(trained) else f" in the {len(measured)} of {len(trained)} cells repeated so far"
    headline = f"The paper's numbers hold{' only in part' if against else ''}{partly}"
    said = (_proposed(distinct), _counted(trained, distinct, judged), against, lost, _seeds(distinct), _claim(measured))
    return Answer(headline, list(filter(None, said)), counts, len(distinct), len(measured), len(trained))


def _counted(trained: list[CellResult], distinct: list[CellResult], judged: list[CellResult]) -> str:
    """How many results agree, of those that are there, and how far off they are."""
    measured = [result for result in trained if result.sample is not None]
    absent = Counter(result.cell.dataset for result in trained)
    for result in measured:
        absent.pop(result.cell.dataset, None)
    nowhere = " or ".join(f"the {count} on {DATASET_NAMES.get(name, name)}" for name, count in absent.items())
    counts = Counter(result.agreement.verdict for result in distinct)
    found, sizes = average(distinct), [abs(result.agreement.difference or 0.0) for result in judged]
    alike = len(distinct) < len(measured)
    asked = " on CIFAR" if all(result.cell.dataset.startswith("cifar") for result in trained) else ""
    of_which = (
        f"Several cells repeat a number, which leaves {len(distinct)} different results. Of these, " if alike else "Of these, "
    )
    return (
        f"{len(measured)} of the {len(trained)} cells that the paper trained{asked} {'has' if len(measured) == 1 else 'have'} "
        f"results{nowhere and f', none of {nowhere}'}. {of_which}{counted(counts['agrees'], 'agrees', 'agree')} "
        f"with the paper, {counted(counts['above'], 'is', 'are')} above it and {counts['below']} below"
        + (f". {counted(counts['too few'], 'has', 'have')} too few runs to be judged" if counts["too few"] else "")
        + f". If all agreed, chance alone would put about {ALPHA * len(judged):.0f} of {len(judged)} off."
        + (f" Half are within {median(sizes):.2f} points of the paper's." if len(sizes) > 1 else "")
        + (f" {_average(found)}." if found else "")
    )


def _distinct(results: Iterable[CellResult]) -> list[CellResult]:
    """One for each set of runs."""
    return list({(*map(id, result.runs), result.cell.dataset): result for result in reversed([*results])}.values())


def _diverged(trained: list[CellResult]) -> str:
    """The runs that have no result: means over the seeds that are left hide them."""
    lost = [result for result in reversed(_distinct(trained)) if result.diverged]
    several = len({result.cell.dataset for result in trained if result.runs}) > 1
    named = [
        f"{result.name} at {_noise_of(result.cell)}{_on(result.cell) if several else ''} ({named_seeds(result.diverged)})"
        for result in lost
    ]
    count = sum(len(result.diverged) for result in lost)
    return f"{counted(count, 'run', 'runs')} diverged, with no result for a mean: {', '.join(named)}." if named else ""


def _against(distinct: list[CellResult], many_off: bool, found: MeanDifference | None, without: bool) -> str:
    """What speaks against the paper's numbers."""
    low, high = (found.interval if found else None) or (-math.inf, math.inf)
    reasons = {
        "more results differ than chance explains": many_off,
        "chance does not explain the mean difference": not low <= 0 <= high,
        "every run of some cells diverged": without,
    }
    said = [" and ".join(reason for reason, holds in reasons.items() if holds)]
    apart = _standing_out(distinct)
    if apart:
        several = len({result.cell.dataset for result in distinct}) > 1
        said.append(f"after Holm's correction for multiple comparisons, these differ: {', '.join(_named(apart, several))}")
    said.append(_one_start(apart))
    first, *more = filter(None, said) if any(said) else ("",)
    return "".join([f"Against it: {first}.", *(f" {one[0].upper()}{one[1:]}." for one in more)]) if first else ""


def _proposed(distinct: list[CellResult]) -> str:
    """How the losses fare that the paper is about."""
    own = [result for result in distinct if result.cell.loss in PROPOSED_LOSSES]
    if not own:
        return ""
    agree = sum(result.agreement.verdict == "agrees" for result in own)
    found = average(own)
    apart = f". {_average(found)}" if found else ""
    share = f"All {agree}" if agree == len(own) > 1 else f"{agree} of the {len(own)}" if len(own) > 1 else "The one"
    agrees = "agree" if len(own) > 1 else "agrees" if agree else "does not agree"
    results = f"result{'s' if len(own) > 1 else ''} of {' and '.join(PROPOSED_LOSSES)}, which the paper proposes,"
    return f"{share} {results} {agrees} with it{apart}."


def _average(found: MeanDifference) -> str:
    interval = "" if found.interval is None else f" (95 % interval {found.interval[0]:+.2f} to {found.interval[1]:+.2f})"
    return f"The mean difference, ours minus the paper's, is {found.mean:+.2f} percentage points{interval}"


def _standing_out(results: list[CellResult]) -> list[CellResult]:
    """The cells that differ once their number is corrected for."""
    known = [result for result in results if result.agreement.p is not None]
    corrected = holm([result.agreement.p or 0.0 for result in known])
    return [result for result, p in zip(known, corrected, strict=True) if p < ALPHA]


def _one_start(apart: list[CellResult]) -> str:
    """That cells which stand out for the same reason may have it from what their runs share."""
    starts = Counter(
        (result.cell.dataset, result.cell.noise, result.cell.rate, seed, *missed)
        for result in apart
        if len(result.accuracies) == 1
        for seed, missed in result.never_right.items()
    )
    most = max(starts.values(), default=0)
    if most < 2:
        return ""
    return (
        f"{most} of them may share one cause: each is a single run, with the same seed and so the same initial weights and "
        "noisy labels, and none is ever right on the same class"
    )


def _named(results: list[CellResult], with_dataset: bool) -> list[str]:
    """Cells in words; those of a loss whose weights a table varies are one where they lack the same classes."""
    alike: dict[tuple[Any, ...], list[CellResult]] = {}
    for result in results:
        cell = result.cell
        alike.setdefault((cell.dataset, cell.loss, cell.noise, cell.rate, result.classes), []).append(result)
    return [_named_as_one(group, with_dataset) for group in alike.values()]


def _named_as_one(alike: list[CellResult], with_dataset: bool) -> str:
    cell, differences = alike[0].cell, sorted(result.agreement.difference or 0.0 for result in alike)
    where = _on(cell) if with_dataset else ""
    low, high = differences[0], differences[-1]
    apart = f"{low:+.1f}" if len(alike) == 1 else f"{low:+.1f} to {high:+.1f} in {len(alike)} cells"
    name = alike[0].name if len(alike) == 1 else cell.loss
    return f"{name} at {_noise_of(cell)}{where} ({'; '.join(filter(None, (apart, alike[0].classes)))})"


def _on(cell: Cell) -> str:
    return f" on {DATASET_NAMES.get(cell.dataset, cell.dataset)}"


def _noise_of(cell: Cell) -> str:
    return f"{cell.noise} {cell.rate or ''}".rstrip()


def _chance(judged: int) -> int:
    """How many of the cells may be off before that is more than chance, at 95 %."""
    total, off = 0.0, -1
    while total < 1 - ALPHA and off < judged:
        off += 1
        total += math.comb(judged, off) * ALPHA**off * (1 - ALPHA) ** (judged - off)
    return off


def _seeds(distinct: list[CellResult]) -> str:
    """How many seeds there are, and how far apart two losses must be for three of each to tell them apart."""
    single = sum(result.agreement.basis == "column" for result in distinct)
    said = []
    if single:
        said.append(
            f"{single} of the {len(distinct)} results {'has' if single == 1 else 'have'} one seed so far and "
            f"{'is' if single == 1 else 'are'} judged by the paper's standard deviation, shrunk towards the usual "
            "one of the column"
        )
    spreads = {usual_spread(result.cell): result.cell for result in distinct}
    known = [(usual.std, cell) for usual, cell in spreads.items() if usual is not None]
    if known:
        std, cell = max(known, key=lambda pair: pair[0])
        least = t_quantile(ALPHA, 2 * (SEEDS_PER_CELL - 1)) * std * math.sqrt(2 / SEEDS_PER_CELL)
        said.append(
            f"Seeds vary most at {_noise_of(cell)} on {DATASET_NAMES.get(cell.dataset, cell.dataset)}, with a standard "
            f"deviation of {std:.1f} points. {SEEDS_PER_CELL} seeds of each loss detect only differences of {least:.1f} points "
            "or more there"
        )
    return " ".join(f"{sentence}." for sentence in said)


def _claim(measured: list[CellResult]) -> str:
    """Are the paper's own losses the best where they and others are measured?

    Each noise counts once, by the first table that has it: in the small ones that repeat it, the others are parts of JAL.
    """
    columns: dict[tuple[Any, ...], list[CellResult]] = {}
    for result in measured:
        cell = result.cell
        columns.setdefault((cell.table, cell.dataset, cell.noise, cell.rate), []).append(result)
    kept: dict[tuple[Any, ...], list[CellResult]] = {}
    for (_, *noise), column in columns.items():
        if len({result.cell.loss in PROPOSED_LOSSES for result in column}) == 2:
            kept.setdefault(tuple(noise), column)
    if not kept:
        return "Whether JAL is the best is open: no noise setting has runs of both JAL and another loss yet."
    leads = [_lead(column) for column in kept.values()]
    ours = sum(lead > 0 for lead, _ in leads)
    theirs = sum(max(column, key=lambda r: r.cell.mean).cell.loss in PROPOSED_LOSSES for column in kept.values())
    ahead, behind = (sum(sign * lead > chance for lead, chance in leads) for sign in (1, -1))
    return (
        f"Noise settings with results of JAL and of other losses, each with its published decay: {len(kept)}. A JAL loss is "
        f"the best in {ours} of them. By the paper's numbers for the same losses, it is the best in {theirs}. The best JAL "
        f"loss is ahead of the best other loss by more than seeds explain in {ahead} and behind it in {behind}."
    )


def _lead(column: list[CellResult]) -> tuple[float, float]:
    """How far the best JAL loss is ahead of the best other one, and how far seeds alone may put them apart, at 95 %."""
    best = [max((r for r in column if (r.cell.loss in PROPOSED_LOSSES) == own), key=_mean) for own in (True, False)]
    parts = [(one.point.our_error**2, one.agreement.drawn.df) for one in best if one.point and one.agreement.drawn]
    if len(parts) < 2:
        return _mean(best[0]) - _mean(best[1]), math.inf
    error = sum(part for part, _ in parts)
    freedom = error**2 / sum(part**2 / df for part, df in parts)
    return _mean(best[0]) - _mean(best[1]), t_quantile(ALPHA, freedom) * math.sqrt(error)


def _mean(result: CellResult) -> float:
    return result.sample.mean if result.sample else 0.0


TEXT_PROFILE = PROFILES[1]
Accuracies = Mapping[int, float]
"""By seed, in percent"""


@dataclass(frozen=True)
class Lead:
    """Of one loss over another, in points, within the seeds that all four kinds of runs have."""

    lead: PairedMean
    decay: PairedMean
    loss: PairedMean
    first: PairedMean
    """Of the loss over the other where both have the first decay, the one's own"""
    second: PairedMean
    """Where both have the second, the other's own"""


def lead_of(one: tuple[Accuracies, Accuracies], other: tuple[Accuracies, Accuracies]) -> Lead | None:
    """Each loss under the first decay, which is that of ``one``, and under the second; None where they share no seed.

    >>> found = lead_of(({1: 64.0}, {1: 56.0}), ({1: 30.0}, {1: 20.0}))
    >>> found.lead.value, found.decay.value, found.loss.value
    (44.0, 9.0, 35.0)
    """
    seeds = sorted(set.intersection(*(set(runs) for runs in (*one, *other))))
    if not seeds:
        return None
    rows = [tuple(runs[seed] for runs in (*one, *other)) for seed in seeds]
    return Lead(
        lead=paired_mean([a - d for a, _, _, d in rows]),
        decay=paired_mean([(a - b + c - d) / 2 for a, b, c, d in rows]),
        loss=paired_mean([(a - c + b - d) / 2 for a, b, c, d in rows]),
        first=paired_mean([a - c for a, _, c, _ in rows]),
        second=paired_mean([b - d for _, b, _, d in rows]),
    )


def describe_lead(found: Lead, losses: tuple[str, str], decays: tuple[str, str]) -> str:
    """In words, and no more than the seeds show.

    >>> found = lead_of(({1: 64.0}, {1: 56.0}), ({1: 30.0}, {1: 20.0}))
    >>> print(describe_lead(found, ("JAL-CE", "CE"), ("L1", "L2")))  # doctest: +NORMALIZE_WHITESPACE
    JAL-CE with L1 minus CE with L2: +44.00 points. Of these the decay gives +9.00 and the loss +35.00; with the same decay
    JAL-CE minus CE is +34.00 (L1) and +36.00 (L2). Seeds: 1, too few for intervals.
    """
    (one, other), (first, second) = losses, decays
    text = (
        f"{one} with {first} minus {other} with {second}: {found.lead.text} points. Of these the decay gives "
        f"{found.decay.text} and the loss {found.loss.text}; with the same decay {one} minus {other} is "
        f"{found.first.text} ({first}) and {found.second.text} ({second})."
    )
    if found.lead.n < MIN_SEEDS:
        return f"{text} Seeds: {found.lead.n}, too few for intervals."
    if found.lead.may_be_zero:
        return f"{text} The difference is no more than seeds explain."
    shown = [f"the {name}'s" for name, part in (("decay", found.decay), ("loss", found.loss)) if not part.may_be_zero]
    text += f" More than seeds explain: {' and '.join(shown) or 'neither'} part{'s' if len(shown) > 1 else ''}."
    alone = [decay for decay, part in ((first, found.first), (second, found.second)) if part.may_be_zero]
    return f"{text} With {' or '.join(alone)} for both, no difference is shown." if alone else text


def leads_among(groups: Iterable[PaperGroup]) -> list[str]:
    """In words, of the paper's own losses over each other loss at one noise, where both are trained with the decays of both."""
    runs: dict[str, dict[str, PaperGroup]] = {}
    published: dict[str, str] = {}
    for group in groups:
        runs.setdefault(group.loss, {})[group.decay] = group
        if group.has_published_decay:
            published[group.loss] = group.decay
    sentences = []
    for one, other in itertools.product(PROPOSED_LOSSES, published):
        if other in PROPOSED_LOSSES or one not in published or published[one] == published[other]:
            continue
        decays = published[one], published[other]
        if not all(decay in runs[loss] for loss in (one, other) for decay in decays):
            continue
        first, second = ((runs[loss][decays[0]].accuracies, runs[loss][decays[1]].accuracies) for loss in (one, other))
        if (found := lead_of(first, second)) is not None:
            sentences.append(describe_lead(found, (one, other), decays))
    return sentences


@dataclass(frozen=True)
class ProfileComparison:
    """A cell with runs of the code's values and of the text's."""

    code: CellResult
    text: CellResult
    differences: tuple[Difference, ...]

    @property
    def noise(self) -> str:
        return f"{self.code.cell.noise} {self.code.cell.rate or ''}".rstrip()

    @property
    def changes(self) -> str:
        """What differs, from the code's value to the text's."""
        return ", ".join(
            f"{one.field.removeprefix('loss.')} {value_text(one.code)} → {value_text(one.text)}" for one in self.differences
        )


def text_results(
    results: Iterable[CellResult], records: Iterable[dict[str, Any]], *, precision: str = "bf16"
) -> list[CellResult]:
    """Of the cells of ``results``, those that have runs with the text's values, where these differ from the code's."""
    trained = [result.cell for result in results if result.cell.quoted_from is None]
    found = join(trained, records, precision=precision, profile=TEXT_PROFILE).results
    return [result for result in found if result.runs and cell_differences(result.cell)]


def text_or_code(code: Iterable[CellResult], text: Iterable[CellResult]) -> list[ProfileComparison]:
    """The cells that are measured with both, each once also where several tables print it."""
    by_cell = {result.cell: result for result in text if result.sample is not None}
    both = [result for result in distinct(code) if result.cell in by_cell]
    return [ProfileComparison(result, by_cell[result.cell], tuple(cell_differences(result.cell))) for result in both]


def with_text_results(code: Iterable[CellResult], text: Iterable[CellResult]) -> list[CellResult]:
    """Each cell with the code's values, and after it the same with the text's if there is one."""
    by_cell = {result.cell: result for result in text}
    return [one for result in code for one in (result, by_cell.get(result.cell)) if one is not None]


def distinct(results: Iterable[CellResult]) -> list[CellResult]:
    """The measured cells; a number that several tables print, and the same runs repeat, once."""
    measured = (result for result in results if result.sample is not None)
    found: dict[tuple[Any, ...], CellResult] = {}
    for result in measured:
        found.setdefault((*map(id, result.counted), result.cell.dataset, result.cell.mean), result)
    return list(found.values())


def describe_profiles(found: Sequence[ProfileComparison], code: Iterable[CellResult]) -> list[str]:
    """How many agree with the paper by either, and what that leaves open. ``code`` are all cells with the code's values."""
    if not found:
        return []
    with_code = [one for one in found if one.code.agreement.verdict == "agrees"]
    with_text = [one for one in found if one.text.agreement.verdict == "agrees"]
    neither = [one for one in found if one not in with_code and one not in with_text]
    apart = "; ".join(_listed_cells(one, _means(one)) for one in neither)
    sentences = [
        f"Cells measured with the values of both: {len(found)}. With the code's values, {_agree(with_code, 'code')}. "
        f"With the text's values, {_agree(with_text, 'text')}. {counted(len(neither), 'agrees', 'agree')} with neither"
        f"{apart and f': {apart}'}."
    ]
    losses = list(dict.fromkeys(one.code.cell.loss for one in found))
    measured = [result for result in distinct(code) if result.cell.loss in losses and cell_differences(result.cell)]
    off = [result.cell for result in measured if result.agreement.verdict != "agrees"]
    others = ", all but these" if off == [one.code.cell for one in found] else ""
    sentences.append(
        f"Of all {len(measured)} cells of {', '.join(losses)} measured with the code's values, {len(measured) - len(off)} "
        f"agree with the paper{others}."
    )
    if any(len(one.differences) > 1 for one in found):
        sentences.append("Text and code differ in more than one value, so these runs do not show which value matters.")
    return sentences


def _agree(found: Sequence[ProfileComparison], side: Literal["code", "text"]) -> str:
    named = [_listed_cells(one, getattr(one, side).classes) for one in found]
    return f"{len(found)} agree{'s' if len(found) == 1 else ''}" + (f": {', '.join(named)}" if named else "")


def _listed_cells(one: ProfileComparison, words: str) -> str:
    return f"{one.code.name} at {one.noise}" + (f" ({words})" if words else "")


def _means(one: ProfileComparison) -> str:
    code, text = (0.0 if result.sample is None else result.sample.mean for result in (one.code, one.text))
    return f"{one.code.cell.mean:.2f} printed, {code:.2f} with the code's, {text:.2f} with the text's"


def value_text(value: Any) -> str:
    """A value of a recipe, short."""
    return "none" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
