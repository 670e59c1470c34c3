"""Whether the paper holds, in a few sentences."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from noiseproof.report.agreement import ALPHA, holm, mean_difference
from noiseproof.report.cells import CellResult, usual_spread
from noiseproof.report.distributions import t_quantile

__all__ = ["DATASETS", "VERDICTS", "Answer", "answer"]

DATASETS = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "webvision": "WebVision", "ilsvrc12": "ILSVRC12"}
DATASETS |= {"clothing1m": "Clothing1M", "digits": "Digits"}
"""Data sets as they are shown"""
VERDICTS = {"agrees": ("=", "agree"), "above": ("▲", "above"), "below": ("▼", "below"), "too few": ("?", "not judged")}
"""Verdicts on a cell, each as a mark and in words"""
SEEDS = 3  # of each published number
OWN = ("JAL-CE", "JAL-FL")
"""The losses that the paper proposes."""


@dataclass(frozen=True)
class Answer:
    """Whether the paper holds, in a few sentences."""

    headline: str
    sentences: list[str]
    counts: dict[str, int]
    measured: int
    trained: int


def answer(results: Iterable[CellResult]) -> Answer:
    """Each published result counts once, also where several tables print it and one run repeats it."""
    trained = [result for result in results if result.cell.quoted_from is None]
    measured = [result for result in trained if result.sample is not None]
    counts = {verdict: sum(result.agreement.verdict == verdict for result in measured) for verdict in VERDICTS}
    if not measured:
        return Answer(f"None of the {len(trained)} cells that the paper trained has a run yet", [], counts, 0, len(trained))
    distinct = list({(*map(id, result.runs), result.cell.dataset): result for result in reversed(measured)}.values())
    judged = [result for result in distinct if result.agreement.verdict != "too few"]
    off = sum(result.agreement.verdict != "agrees" for result in judged)
    found = mean_difference(result.agreement for result in distinct)
    low, high = (found.interval if found else None) or (-math.inf, math.inf)
    reasons = {
        "more cells are off than chance explains": off > _chance(len(judged)),
        "the average difference is more than chance": not low <= 0 <= high,
    }
    apart = _standing_out(distinct)
    if apart:
        reasons[f"these differ by more than chance however many cells there are (Holm's correction): {', '.join(apart)}"] = True
    against = [reason for reason, holds in reasons.items() if holds]
    partly = "" if len(measured) == len(trained) else f" in the {len(measured)} of {len(trained)} cells repeated so far"
    sentences = [
        f"{len(measured)} of the {len(trained)} cells that the paper trained have runs"
        + (f", which are {len(distinct)} different results" if len(distinct) < len(measured) else "")
        + f": {counts['agrees']} agree with the paper; above it: {counts['above']}, below: {counts['below']}"
        + (f", not to be judged: {counts['too few']}" if counts["too few"] else "")
        + f". If all agreed, about {ALPHA * len(judged):.0f} of {len(judged)} would be off by chance."
    ]
    if found:
        shown = f" (95 % interval {low:+.2f} to {high:+.2f})" if found.interval else ""
        sentences.append(f"On average ours minus the paper's is {found.mean:+.2f} percentage points{shown}.")
    single = sum(result.agreement.basis == "column" for result in measured)
    if single:
        sentences.append(f"{single} cells have one seed so far and are judged by the spread that is usual in their column.")
    sentences += _resolution(measured)
    if against:
        sentences.append(f"Against it: {' and '.join(against)}.")
    headline = f"The paper's numbers hold{' only in part' if against else ''}{partly}"
    return Answer(headline, [*sentences, *_claim(measured)], counts, len(measured), len(trained))


def _standing_out(results: list[CellResult]) -> list[str]:
    """The cells that differ once their number is corrected for, each with its difference."""
    known = [result for result in results if result.agreement.p is not None]
    corrected = holm([result.agreement.p or 0.0 for result in known])
    several = len({result.cell.dataset for result in known}) > 1
    return [_named(result, several) for result, p in zip(known, corrected, strict=True) if p < ALPHA]


def _named(result: CellResult, with_dataset: bool) -> str:
    cell = result.cell
    where = f" on {DATASETS.get(cell.dataset, cell.dataset)}" if with_dataset else ""
    noise = f"{cell.noise} {cell.rate or ''}".rstrip()
    apart = "; ".join(filter(None, (f"{result.agreement.difference:+.1f}", result.classes)))
    return f"{result.name} at {noise}{where} ({apart})"


def _chance(judged: int) -> int:
    """How many of the cells may be off before that is more than chance, at 95 %."""
    total, off = 0.0, -1
    while total < 1 - ALPHA and off < judged:
        off += 1
        total += math.comb(judged, off) * ALPHA**off * (1 - ALPHA) ** (judged - off)
    return off


def _resolution(measured: list[CellResult]) -> list[str]:
    """How far apart two losses must be for three seeds of each to tell them apart, where seeds scatter most."""
    spreads = {usual_spread(result.cell): result.cell for result in measured}
    known = [(usual.std, cell) for usual, cell in spreads.items() if usual is not None]
    if not known:
        return []
    std, cell = max(known, key=lambda pair: pair[0])
    least = t_quantile(ALPHA, 2 * (SEEDS - 1)) * std * math.sqrt(2 / SEEDS)
    rate = cell.rate if isinstance(cell.rate, str) else f"{cell.rate:g}"  # people's labels have a name
    where = f"{cell.noise} {rate} on {DATASETS.get(cell.dataset, cell.dataset)}"
    return [
        f"Seeds scatter most at {where}, by {std:.1f} points: there {SEEDS} seeds of each loss tell apart only what differs by "
        f"{least:.1f} points or more."
    ]


def _claim(measured: list[CellResult]) -> list[str]:
    """Are the paper's own losses the best where they and others are measured?"""
    columns: dict[tuple[Any, ...], list[CellResult]] = {}
    for result in measured:
        cell = result.cell
        columns.setdefault((cell.table, cell.dataset, cell.noise, cell.rate), []).append(result)
    kept = [column for column in columns.values() if len({result.cell.loss in OWN for result in column}) == 2]
    if not kept:
        return ["No column has runs of both JAL and another loss yet, so whether JAL is the best is open."]
    ours = sum(max(column, key=lambda r: r.sample.mean if r.sample else 0.0).cell.loss in OWN for column in kept)
    theirs = sum(max(column, key=lambda r: r.cell.mean).cell.loss in OWN for column in kept)
    return [
        f"Columns with runs of JAL and of other losses: {len(kept)}. A JAL loss is the best in {ours} of them; by the paper's "
        f"numbers for the same losses, in {theirs}."
    ]
