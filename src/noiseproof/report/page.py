"""A report of runs as one HTML file: their results compared, curves, confidence and records; no scripts and no network."""

from __future__ import annotations

import functools
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from noiseproof.comparison.paired import PairedRanking, Sample, rank_paired
from noiseproof.io.files import write_whole
from noiseproof.io.text import printable
from noiseproof.noise import NoiseSpec
from noiseproof.report import charts
from noiseproof.report.groups import (
    DIVERGED,
    G,
    RunGroup,
    by_noise,
    counted,
    group_runs,
    message_of,
    named_seeds,
    seed_of,
    warnings_of,
    weakest_class,
)
from noiseproof.train.record_files import merge, number, read_runs
from noiseproof.version import __version__

MAX_MATRIX_CLASSES = 100
"""Of a noise matrix that is drawn"""
MAX_NAMED_DATASETS = 3
SECTIONS = {
    "own": "Results",
    "curves": "Accuracy by epoch",
    "confidence": "Confidence",
    "features": "Features",
    "noise": "Noise",
    "weights": "Weights",
    "made": "How it was made",
    "records": "Records",
}
"""The sections of the page, by the name of their place"""


@dataclass(frozen=True)
class RunReport:
    """What :func:`report_runs` returns: the runs, grouped by recipe, and their page.

    Attributes:
        records: One for each run.
        sources: The places that the records came from.
        date: That the page shows.

    >>> RunReport([]).groups
    []
    """

    records: list[dict[str, Any]]
    sources: tuple[str, ...] = ()
    """The places that the records came from"""
    date: str = ""

    @functools.cached_property
    def groups(self) -> list[RunGroup]:
        """The runs by recipe; those of a group differ in the seed alone."""
        return group_runs(self.records)

    @functools.cached_property
    def html(self) -> str:
        """The whole file."""
        values = page_values(self.records, self.groups)
        there = {**SECTIONS} if values["matrices"] else {key: name for key, name in SECTIONS.items() if key != "noise"}
        template = charts.template_environment().get_template("page.html")
        text = template.render(
            **values, headline=self.headline, sections=there, date=self.date, sources=self.sources, own=comparisons(self.groups)
        )
        return printable(text, lines=True)  # a name in a record may have half a character, which cannot be written

    @property
    def headline(self) -> str:
        """How many runs, and on what."""
        *names, last = dict.fromkeys(group.dataset for group in self.groups)
        several = f"{len(names) + 1} data sets" if len(names) >= MAX_NAMED_DATASETS else f"{', '.join(names)} and {last}"
        return f"{counted(len(self.records), 'run', 'runs')} on {several if names else last}"

    def save(self, path: str | Path) -> None:
        """Write the page; the file is whole or not there.

        Args:
            path: The HTML file.

        Raises:
            OSError: The file cannot be written.
        """
        write_whole(Path(path), lambda place: place.write_text(self.html, encoding="utf-8"))


def report_runs(*places: str | Path, date: str | None = None) -> RunReport:
    """A report of runs: their test accuracies compared on the seeds that they share, curves, confidence and records.

    Args:
        *places: Folders of runs, at any depth, and ``.jsonl`` files of records.
        date: The date that the page shows; today by default.

    Returns:
        The report: :meth:`RunReport.save` writes its page.

    Raises:
        FileNotFoundError: A place does not exist.
        ValueError: There is no run, or a file is damaged.

    >>> from noiseproof.report import write_records
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "runs.jsonl"
    >>> run = {"recipe": {"dataset": "mine.csv", "loss": "ce", "seed": 1}, "result": {"test_accuracy": 0.9}}
    >>> write_records(file, [run])
    >>> report_runs(file).headline
    '1 run on mine.csv'
    """
    records = merge(read_runs([Path(place) for place in places]))
    return RunReport(records, tuple(map(str, places)), time.strftime("%Y-%m-%d") if date is None else date)


def page_values(records: Sequence[dict[str, Any]], groups: Sequence[RunGroup]) -> dict[str, Any]:
    """What ``page.html`` inserts, but headline, sections, date, sources and comparisons."""
    styles: dict[str, int] = {}
    for group in groups:
        styles.setdefault(group.name, len(styles))
    by_title = by_noise(groups)
    curves = {title: _curves(title, members, styles) for title, members in by_title.items()}
    histograms = {title: _histograms(title, members) for title, members in by_title.items()}
    return {
        "curves": {title: drawn for title, drawn in curves.items() if drawn},
        "histograms": {title: drawn for title, drawn in histograms.items() if drawn},
        "embeddings": [],
        "matrices": _matrices(groups),
        "weighed": [
            (group, record) for group in groups for record in group.finished[:1] if isinstance(record.get("weights"), dict)
        ],
        "groups": groups,
        "facts": _facts(records),
        "version": __version__,
        "percent": _percent,
        "spread": _spread,
        "seconds": _seconds,
        "at_once": _at_once,
        "environment_of": _environment,
        "seed_of": seed_of,
        "named_seeds": named_seeds,
        "weakest_class": weakest_class,
        "message_of": message_of,
        "warnings_of": warnings_of,
    }


def comparisons(groups: Iterable[G]) -> list[tuple[str, PairedRanking, dict[str, G]]]:
    """For each data set and noise its title, the losses compared on the seeds that they share, and the groups by name."""
    found = []
    for title, members in by_noise(groups).items():
        named = {group.name: group for group in members if group.accuracies}
        accuracies = {name: group.accuracies for name, group in named.items()}
        found.append((title, rank_paired(accuracies, np.random.default_rng(0)), named))
    return found


def _curves(title: str, groups: Sequence[RunGroup], styles: Mapping[str, int]) -> list[tuple[str, charts.Svg]]:
    right = next((share for group in groups if (share := group.share_right) is not None), None)
    reference = None if right is None or right > 99.9 else (right, "share of right labels")
    wanted = [
        ("test_accuracy", "Test accuracy, %", None),
        ("given_accuracy", "Given labels learned in training, %", reference),
    ]
    found = []
    for name, label, level in wanted:
        curves = [charts.ChartLine(group.name, curve, styles[group.name]) for group in groups if (curve := group.curve(name))]
        if curves:
            found.append((label, charts.lines(curves, f"{title}, {label}", level)))
    return found


def _histograms(title: str, groups: Sequence[RunGroup]) -> list[tuple[str, int, charts.Svg]]:
    """By group and epoch."""
    return [
        (group.name, epoch, charts.histogram(dict(kinds), f"{title}, {group.name}, epoch {epoch}"))
        for group in groups
        for epoch, kinds in group.confidence.items()
    ]


def _matrices(groups: Iterable[RunGroup]) -> list[tuple[str, str, charts.Svg | None]]:
    """Of each noise: its matrix where the name gives one, otherwise only the realised rate."""
    found: dict[tuple[Any, ...], tuple[str, str, charts.Svg | None]] = {}
    for group in groups:
        spec = str(group.recipe.get("noise", "none"))
        classes, right = group.classes, group.share_right
        if (classes, spec) in found or spec == "none":
            continue
        rate = "" if right is None else f"{100 - right:.2f} % of the labels are wrong"
        found[classes, spec] = group.title, rate, _matrix(spec, classes, group.title)
    return list(found.values())


def _matrix(spec: str, classes: int, title: str) -> charts.Svg | None:
    try:
        parsed = NoiseSpec.parse(spec)
        if parsed.file or not 2 <= classes <= MAX_MATRIX_CLASSES:
            return None
        return charts.matrix(parsed.matrix(classes).matrix, f"Transition matrix of {title}: rows are the clean labels")
    except (ValueError, TypeError):
        return None


def _facts(records: Sequence[dict[str, Any]]) -> list[tuple[str, str]]:
    """What the runs were made with, each value with the number of runs."""
    counts: dict[str, Counter[str]] = {}
    for record in records:
        known = {**_environment(record), "seed": seed_of(record)}
        for key in ("machine", "torch", "python", "noiseproof", "commit", "date", "seed"):
            counts.setdefault(key, Counter())[str(known.get(key) or "not stated")] += 1
    hours = sum(_seconds(record) / _at_once(record) for record in records) / 3600
    lines = [(key, ", ".join(f"{value} ({n})" for value, n in sorted(values.items()))) for key, values in counts.items()]
    return [("runs", run_facts_line(records, {})), ("device time", f"{hours:.1f} hours"), *lines]


def run_facts_line(records: Sequence[dict[str, Any]], kinds: Mapping[str, int]) -> str:
    """How many runs there are, how many of them are of each kind, and how many diverged."""
    kinds = {**kinds, "diverged": sum(record.get("status") == DIVERGED for record in records)}
    return ", ".join([str(len(records)), *(f"{count} {what}" for what, count in kinds.items() if count)])


def _environment(record: Mapping[str, Any]) -> dict[str, Any]:
    found = record.get("environment")
    return {"date": record.get("date"), **(found if isinstance(found, dict) else {})}


def _seconds(record: Mapping[str, Any]) -> float:
    """Of all phases."""
    phases = record.get("seconds")
    return sum(number(value) or 0.0 for value in phases.values()) if isinstance(phases, dict) else 0.0


def _at_once(record: Mapping[str, Any]) -> float:
    """How many runs shared the device; older records have it next to the environment."""
    return number(_environment(record).get("at_once")) or number(record.get("at_once")) or 1.0


def _percent(value: Any) -> str:
    found = number(value)
    return "–" if found is None else f"{100 * found:.2f}"


def _spread(sample: Sample | None) -> str:
    if sample is None:
        return "–"
    return f"{sample.mean:.2f}" if sample.std is None else f"{sample.mean:.2f} ± {sample.std:.2f}"
