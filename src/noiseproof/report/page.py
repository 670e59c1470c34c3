"""The report as one HTML file: the answer, the tables, the curves and the records, without scripts and without a network."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noiseproof.noise import NoiseSpec
from noiseproof.paper import cells
from noiseproof.report import charts
from noiseproof.report.agreement import ALPHA, Sample, mean_difference
from noiseproof.report.cells import CellResult, join, usual_spread
from noiseproof.report.distributions import t_quantile
from noiseproof.report.page_runs import Group, groups_of, number, seed_of, warnings_of, weakest_class
from noiseproof.report.paired import Comparison, compare_paired
from noiseproof.report.records import merge
from noiseproof.report.tables import View, notes_on, summary, views
from noiseproof.report.templates import environment
from noiseproof.version import __version__

__all__ = ["Answer", "Embedding", "answer", "page"]

TITLES = {
    "sym_asym": "Symmetric and asymmetric noise",
    "agce_mae": "AGCE with MAE",
    "ablation": "The parts of JAL-CE",
    "agce_mae_all": "AGCE with MAE, all weights (supplement)",
    "instance": "Noise that depends on the image",
    "human": "Labels by people",
    "real_world": "Data from the web",
}
DATASETS = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "webvision": "WebVision", "ilsvrc12": "ILSVRC12"}
DATASETS |= {"clothing1m": "Clothing1M", "digits": "Digits"}
VERDICTS = {"agrees": ("=", "agree"), "above": ("▲", "above"), "below": ("▼", "below"), "too few": ("?", "not judged")}
SEEDS = 3  # of each published number
OWN = ("JAL-CE", "JAL-FL")
"""The losses that the paper proposes."""
LARGEST = 100
"""Classes, of a noise matrix that is drawn."""


class Embedding(NamedTuple):
    """Test examples in the plane, by t-SNE of what the network has before its last layer."""

    title: str
    points: NDArray[Any]
    labels: NDArray[Any]


@dataclass(frozen=True)
class Answer:
    """Whether the paper holds, in a few sentences."""

    headline: str
    sentences: list[str]
    counts: dict[str, int]
    measured: int
    trained: int


@dataclass(frozen=True)
class Noise:
    """All groups of one data set and noise, and what is drawn of them."""

    title: str
    groups: list[Group]
    curves: list[tuple[str, charts.Svg]] = field(default_factory=list)

    @property
    def shown(self) -> list[tuple[Group, list[tuple[int, charts.Svg]]]]:
        """The groups with histograms, by epoch."""
        return [(group, _histograms(group, self.title)) for group in self.groups if group.confidence]


def page(
    records: Iterable[dict[str, Any]],
    *,
    made: str,
    sources: Sequence[str] = (),
    precision: str = "bf16",
    embeddings: Sequence[Embedding] = (),
) -> str:
    """The whole file. ``made`` is the date that it shows, ``sources`` the places that the records came from."""
    records = merge(records)
    results = join(cells(), records, precision=precision).results
    groups = groups_of(records, results, precision)
    anchors = {id(record): group for group in groups for record in group.records}
    styles: dict[str, int] = {}
    for group in groups:
        styles.setdefault(group.name, len(styles))
    noises = [_noise(title, found, styles) for title, found in by_noise(groups).items()]
    templates = environment()
    templates.globals |= {"verdicts": VERDICTS, "datasets": DATASETS, "percent": _percent, "spread": _spread}
    templates.globals |= {"seconds": _seconds, "seed_of": seed_of, "environment_of": _environment}
    templates.globals |= {"weakest_class": weakest_class, "warnings_of": warnings_of}
    return templates.get_template("page.html").render(
        answer=answer(results),
        views=[(_title(view), view, notes_on(view), summary(view.cells)) for view in views(results)],
        group_of=lambda result: next((anchors[id(run)] for run in result.runs if _counts(run, precision)), None),
        noises=noises,
        embeddings=[(found.title, charts.scatter(found.points, found.labels, f"t-SNE, {found.title}")) for found in embeddings],
        matrices=_matrices(groups),
        decays=_decays(groups),
        weighed=[
            (group, record) for group in groups for record in group.records[:1] if isinstance(record.get("weights"), dict)
        ],
        groups=groups,
        facts=_facts(records),
        made=made,
        sources=sources,
        precision=precision,
        version=__version__,
    )


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
    where = f"{cell.noise} {cell.rate:g} on {DATASETS.get(cell.dataset, cell.dataset)}"
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


def by_noise(groups: Iterable[Group]) -> dict[str, list[Group]]:
    found: dict[str, list[Group]] = {}
    for group in groups:
        found.setdefault(f"{DATASETS.get(group.dataset, group.dataset)}, {group.noise}", []).append(group)
    return found


def _noise(title: str, groups: list[Group], styles: Mapping[str, int]) -> Noise:
    right = next((share for group in groups if (share := group.share_right) is not None), None)
    reference = None if right is None or right > 99.9 else (right, "share of right labels")
    wanted = [
        ("test_accuracy", "Test accuracy, %", None),
        ("given_accuracy", "Given labels learned in training, %", reference),
    ]
    found = []
    for name, label, level in wanted:
        curves = [charts.Line(group.name, curve, styles[group.name]) for group in groups if (curve := group.curve(name))]
        if curves:
            found.append((label, charts.lines(curves, f"{title}, {label}", level)))
    return Noise(title, groups, found)


def _histograms(group: Group, title: str) -> list[tuple[int, charts.Svg]]:
    return [
        (epoch, charts.histogram(dict(kinds), f"{title}, {group.name}, epoch {epoch}"))
        for epoch, kinds in group.confidence.items()
    ]


def _matrices(groups: Iterable[Group]) -> list[tuple[str, str, charts.Svg | None]]:
    """Of each noise: its matrix where the name gives one, otherwise only the realised rate."""
    found: dict[tuple[Any, ...], tuple[str, str, charts.Svg | None]] = {}
    for group in groups:
        spec = str(group.recipe.get("noise", "none"))
        classes = group.classes
        right = group.share_right
        if (classes, spec) in found or spec == "none":
            continue
        title = f"{DATASETS.get(group.dataset, group.dataset)}, {group.noise}"
        rate = "" if right is None else f"{100 - right:.2f} % of the labels are wrong"
        found[classes, spec] = title, rate, _matrix(spec, classes, title)
    return list(found.values())


def _matrix(spec: str, classes: int, title: str) -> charts.Svg | None:
    try:
        parsed = NoiseSpec.parse(spec)
        if parsed.file or not 2 <= classes <= LARGEST:
            return None
        return charts.matrix(parsed.matrix(classes).matrix, f"Transition matrix of {title}: rows are the clean labels")
    except (ValueError, TypeError):
        return None


def _decays(groups: Iterable[Group]) -> list[tuple[str, Comparison, dict[str, Group]]]:
    """The losses under L1 and under L2, where at least one was trained with another decay than the paper's."""
    kept = [group for group in groups if group.changes is not None and set(group.changes) <= {"l1", "l2", "precision"}]
    found = []
    for title, members in by_noise(kept).items():
        named = {f"{group.loss}, {_decay(group)}": group for group in members if group.accuracies}
        if any({"l1", "l2"} & set(group.changes or ()) for group in named.values()):
            accuracies = {name: group.accuracies for name, group in named.items()}
            found.append((title, compare_paired(accuracies, np.random.default_rng(0)), named))
    return found


def _decay(group: Group) -> str:
    used = [f"{name.upper()} {value:g}" for name in ("l1", "l2") if (value := number(group.recipe.get(name)))]
    own = "" if {"l1", "l2"} & set(group.changes or ()) else " (the paper's)"
    precision = "" if group.recipe.get("precision") == group.precision else f", {group.recipe.get('precision')}"
    return (" and ".join(used) or "no decay") + own + precision


def _facts(records: Sequence[dict[str, Any]]) -> list[tuple[str, str]]:
    """What the runs were made with, each value with the number of runs."""
    counted: dict[str, Counter[str]] = {}
    for record in records:
        known = {**_environment(record), "seed": seed_of(record)}
        for key in ("machine", "torch", "python", "noiseproof", "commit", "date", "seed"):
            counted.setdefault(key, Counter())[str(known.get(key) or "not stated")] += 1
    hours = sum(_seconds(record, share=True) for record in records) / 3600
    lines = [(key, ", ".join(f"{value} ({n})" for value, n in sorted(values.items()))) for key, values in counted.items()]
    return [("runs", str(len(records))), ("device time", f"{hours:.1f} hours"), *lines]


def _environment(record: Mapping[str, Any]) -> dict[str, Any]:
    found = record.get("environment")
    return {"date": record.get("date"), **(found if isinstance(found, dict) else {})}


def _seconds(record: Mapping[str, Any], share: bool = False) -> float:
    """Of all phases; the ``share`` of one run where several were trained at once."""
    phases = record.get("seconds")
    total = sum(number(value) or 0.0 for value in phases.values()) if isinstance(phases, dict) else 0.0
    return total / (number(record.get("at_once")) or 1) if share else total


def _counts(run: Mapping[str, Any], precision: str) -> bool:
    return bool(run["recipe"].get("precision") == precision and run.get("status", "finished") == "finished")


def _title(view: View) -> str:
    table, _, dataset = view.title.partition(", ")
    return f"{TITLES.get(table, table)}, {DATASETS.get(dataset, dataset)}"


def _percent(value: Any) -> str:
    found = number(value)
    return "–" if found is None else f"{100 * found:.2f}"


def _spread(sample: Sample | None) -> str:
    if sample is None:
        return "–"
    return f"{sample.mean:.2f}" if sample.std is None else f"{sample.mean:.2f} ± {sample.std:.2f}"
