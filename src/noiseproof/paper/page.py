"""The report as one HTML file: the answer, the tables, the curves and the records, without scripts and without a network."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noiseproof.comparison.paired import PairedRanking, Sample, rank_paired
from noiseproof.io.text import printable
from noiseproof.noise import NoiseSpec
from noiseproof.paper import PROFILES, cells
from noiseproof.paper.answer import DATASETS, VERDICTS, answer
from noiseproof.paper.groups import Group, groups_of, message_of, seed_of, warnings_of, weakest_class
from noiseproof.paper.leads import leads_among
from noiseproof.paper.measured import DIVERGED, join
from noiseproof.paper.profiles import beside, said_of_profiles, text_or_code, text_results
from noiseproof.paper.tables import View, notes_on, summary, views
from noiseproof.report import charts
from noiseproof.report.records import merge, number
from noiseproof.report.templates import environment
from noiseproof.report.words import counted, named_seeds
from noiseproof.version import __version__

__all__ = ["Embedding", "by_noise", "page"]

TITLES = {
    "sym_asym": "Symmetric and asymmetric noise",
    "agce_mae": "AGCE with MAE",
    "ablation": "The parts of JAL-CE",
    "agce_mae_all": "AGCE with MAE, all weights (supplement)",
    "instance": "Noise that depends on the image",
    "human": "Labels by people",
    "real_world": "Data from the web",
}
LARGEST = 100
"""Classes, of a noise matrix that is drawn."""
NAMED = 3
"""Data sets that are named at most."""


class Embedding(NamedTuple):
    """Test examples in the plane, by t-SNE of what the network has before its last layer."""

    title: str
    points: NDArray[Any]
    labels: NDArray[Any]


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
    by_text = text_results(results, records, precision=precision)
    groups = groups_of(records, beside(results, by_text), precision)
    both = text_or_code(results, by_text)
    anchors = {id(record): group for group in groups for record in group.records}
    styles: dict[str, int] = {}
    for group in groups:
        styles.setdefault(group.name, len(styles))
    noises = [_noise(title, found, styles) for title, found in by_noise(groups).items()]
    published, found = any(group.is_published for group in groups), answer(results)
    templates = environment("noiseproof.paper")
    templates.globals |= {"verdicts": VERDICTS, "datasets": DATASETS, "percent": _percent, "spread": _spread}
    templates.globals |= {"seconds": _seconds, "seed_of": seed_of, "environment_of": _environment}
    templates.globals |= {"weakest_class": weakest_class, "warnings_of": warnings_of, "at_once": _at_once}
    templates.globals |= {"named_seeds": named_seeds, "message_of": message_of}
    text = templates.get_template("page.html").render(
        answer=found,
        headline=found.headline if published else _headline(records, groups),
        published=published,
        views=[(_title(view), view, notes_on(view), summary(view.cells)) for view in views(results)],
        group_of=lambda result: next((anchors[id(run)] for run in (*result.counted, *result.runs)), None),
        noises=noises,
        embeddings=[(found.title, charts.scatter(found.points, found.labels, f"t-SNE, {found.title}")) for found in embeddings],
        matrices=_matrices(groups),
        own=_own(groups),
        decays=_decays(groups),
        both=both,
        said_of_both=said_of_profiles(both, results),
        weighed=[
            (group, record) for group in groups for record in group.finished[:1] if isinstance(record.get("weights"), dict)
        ],
        groups=groups,
        facts=_facts(records, groups),
        made=made,
        sources=sources,
        precision=precision,
        version=__version__,
    )
    return printable(text, lines=True)  # a name in a record may have half a character, which cannot be written


def _headline(records: Sequence[dict[str, Any]], groups: Iterable[Group]) -> str:
    """Of runs on data that are not the paper's."""
    *names, last = dict.fromkeys(DATASETS.get(group.dataset, group.dataset) for group in groups)
    data = last if not names else f"{', '.join(names)} and {last}" if len(names) < NAMED else f"{len(names) + 1} data sets"
    return f"{counted(len(records), 'run', 'runs')} on {data}"


def by_noise(groups: Iterable[Group]) -> dict[str, list[Group]]:
    found: dict[str, list[Group]] = {}
    for group in groups:
        found.setdefault(_noise_title(group), []).append(group)
    return found


def _noise_title(group: Group) -> str:
    return f"{DATASETS.get(group.dataset, group.dataset)}, {group.noise}"


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
        title = _noise_title(group)
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


def _own(groups: Iterable[Group]) -> list[tuple[str, PairedRanking, dict[str, Group]]]:
    """The runs on data that the paper has no numbers of, the losses of each noise compared on the seeds they share."""
    found = []
    for title, members in by_noise(group for group in groups if not group.is_published).items():
        named = {group.name: group for group in members if group.accuracies}
        accuracies = {name: group.accuracies for name, group in named.items()}
        found.append((title, rank_paired(accuracies, np.random.default_rng(0)), named))
    return found


def _decays(groups: Iterable[Group]) -> list[tuple[str, PairedRanking, dict[str, Group], list[str]]]:
    """The losses under L1 and under L2, where at least one was trained with another decay than the paper's; and in words."""
    coded = [group for group in groups if group.profile == PROFILES[0] and group.changes is not None]
    kept = [group for group in coded if set(group.changes or ()) <= {"l1", "l2", "precision"}]
    found = []
    for title, members in by_noise(kept).items():
        named = {f"{group.loss}, {_decay(group)}": group for group in members if group.accuracies}
        if not all(group.has_published_decay for group in named.values()):
            accuracies = {name: group.accuracies for name, group in named.items()}
            same = [group for group in named.values() if group.recipe.get("precision") == group.precision]
            found.append((title, rank_paired(accuracies, np.random.default_rng(0)), named, leads_among(same)))
    return found


def _decay(group: Group) -> str:
    own = " (the paper's)" if group.has_published_decay else ""
    precision = "" if group.recipe.get("precision") == group.precision else f", {group.recipe.get('precision')}"
    return group.decay + own + precision


def _facts(records: Sequence[dict[str, Any]], groups: Sequence[Group]) -> list[tuple[str, str]]:
    """What the runs were made with, each value with the number of runs."""
    counted: dict[str, Counter[str]] = {}
    for record in records:
        known = {**_environment(record), "seed": seed_of(record)}
        for key in ("machine", "torch", "python", "noiseproof", "commit", "date", "seed"):
            counted.setdefault(key, Counter())[str(known.get(key) or "not stated")] += 1
    hours = sum(_seconds(record, share=True) for record in records) / 3600
    lines = [(key, ", ".join(f"{value} ({n})" for value, n in sorted(values.items()))) for key, values in counted.items()]
    by_text = sum(len(group.records) for group in groups if group.profile != PROFILES[0])
    other = sum(len(group.records) for group in groups if not group.results)
    diverged = sum(record.get("status") == DIVERGED for record in records)
    named = {"with the text's values": by_text, "of no published number": other, "diverged": diverged}
    runs = ", ".join([str(len(records)), *(f"{count} {what}" for what, count in named.items() if count)])
    return [("runs", runs), ("device time", f"{hours:.1f} hours"), *lines]


def _environment(record: Mapping[str, Any]) -> dict[str, Any]:
    found = record.get("environment")
    return {"date": record.get("date"), **(found if isinstance(found, dict) else {})}


def _seconds(record: Mapping[str, Any], share: bool = False) -> float:
    """Of all phases; the ``share`` of one run where several were trained at once."""
    phases = record.get("seconds")
    total = sum(number(value) or 0.0 for value in phases.values()) if isinstance(phases, dict) else 0.0
    return total / _at_once(record) if share else total


def _at_once(record: Mapping[str, Any]) -> float:
    """How many runs shared the device; older records have it beside the environment."""
    return number(_environment(record).get("at_once")) or number(record.get("at_once")) or 1.0


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
