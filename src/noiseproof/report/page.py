"""A report of runs as one HTML file: their results compared, curves, confidence and records; no scripts and no network."""

from __future__ import annotations

import functools
import hashlib
import json
import re
import shlex
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any, TypeVar

import numpy as np

from noiseproof.comparison.paired import PairedRanking, Sample, rank_paired
from noiseproof.data.registry import find_name
from noiseproof.io.files import write_whole
from noiseproof.io.text import command_options, without_controls
from noiseproof.losses import list_losses
from noiseproof.noise import NoiseSpec
from noiseproof.report import charts
from noiseproof.train.record_files import BINS, merge, number, numbers, read_runs, setting
from noiseproof.version import __version__

DIVERGED = "diverged"
EPOCH = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True)
class RunGroup:
    """The runs of one recipe that differ in the seed alone."""

    records: list[dict[str, Any]]
    distinguishing: tuple[str, ...] = ()
    """Fields in which it differs from other groups of the same loss, data and noise"""

    @property
    def recipe(self) -> dict[str, Any]:
        recipe: dict[str, Any] = self.records[0]["recipe"]
        return recipe

    @functools.cached_property
    def anchor(self) -> str:
        """The name of its place in a page."""
        return f"run-{hashlib.sha256(group_key(self.records[0]).encode()).hexdigest()[:10]}"

    @property
    def dataset(self) -> str:
        return str(self.recipe.get("dataset", "?"))

    @property
    def title(self) -> str:
        """The data set and the noise."""
        return f"{self.dataset}, {self.noise}"

    @property
    def noise(self) -> str:
        noise = str(self.recipe.get("noise", "none"))
        if noise == "none":  # of data of one's own nobody knows
            return "clean" if find_name(self.dataset) else "labels as given"
        return noise.replace(":", " ")

    @property
    def loss(self) -> str:
        """A loss of the catalogue in capitals, any other as it is."""
        loss = str(self.recipe.get("loss", "?"))
        return loss.upper() if loss in _catalogue() else loss

    @property
    def name(self) -> str:
        """The loss, and in what its runs differ from others of the same loss, data and noise."""
        fields = all_settings(self.recipe) | reading_options(self.recipe)
        return " ".join([self.loss, *(setting_text(key, fields.get(key)) for key in self.distinguishing)])

    @functools.cached_property
    def finished(self) -> list[dict[str, Any]]:
        """Those with a result; the curve of a run that diverged ends early, and is no part of a mean."""
        return [record for record in self.records if record.get("status", "finished") == "finished"]

    @property
    def diverged(self) -> list[int]:
        """The seeds of the runs that diverged."""
        return sorted({seed_of(record) for record in self.records if record.get("status") == DIVERGED})

    @functools.cached_property
    def accuracies(self) -> dict[int, float]:
        """Percent of the test set, by seed; a repeated run with its mean."""
        found: dict[int, list[float]] = {}
        for record in self.finished:
            if (value := number(record["result"].get("test_accuracy"))) is not None:
                found.setdefault(seed_of(record), []).append(100 * value)
        return {seed: fmean(values) for seed, values in sorted(found.items())}

    @property
    def sample(self) -> Sample | None:
        return Sample.of(list(self.accuracies.values()))

    @property
    def command(self) -> str:
        """What trains the first of its runs again; nothing is left to defaults, which depend on the data."""
        words = ["noiseproof", "train", str(self.recipe.get("loss"))]
        words += train_options(self.recipe, all_settings(self.recipe))
        return shlex.join([*words, "--data", self.dataset, *command_options(reading_options(self.recipe))])

    def curve(self, name: str) -> list[float | None]:
        """Percent by epoch, the mean of the runs that have one as long as the first."""
        curves = [numbers(_part(record, "curve").get(name)) for record in self.finished]
        curves = [curve for curve in curves if curve]
        rows = zip(*(curve for curve in curves if len(curve) == len(curves[0])), strict=True)
        return [100 * fmean(known) if (known := [v for v in row if v is not None]) else None for row in rows]

    @functools.cached_property
    def confidence(self) -> dict[int, dict[str, list[float]]]:
        """Counts in ``BINS`` by epoch and by kind of label, of the run that has most epochs."""
        found: dict[int, dict[str, list[float]]] = {}
        for record in self.finished:
            stated = _part(record, "confidence")
            epochs = {int(epoch): _counts(kinds) for epoch, kinds in stated.items() if EPOCH.fullmatch(epoch)}
            if len(epochs) > len(found):
                found = epochs
        return {epoch: found[epoch] for epoch in sorted(found) if found[epoch]}

    @property
    def classes(self) -> int:
        return int(number(_part(self.records[0], "task").get("classes")) or 0)

    @property
    def share_right(self) -> float | None:
        """Percent of the training labels that are right."""
        rate = number(_part(_part(self.records[0], "task"), "noise").get("rate"))
        return None if rate is None else 100 * (1 - rate)


G = TypeVar("G", bound=RunGroup)


def group_runs(records: Iterable[dict[str, Any]]) -> list[RunGroup]:
    """The runs by recipe, in the order of data set and noise.

    Args:
        records: Records of runs, as :func:`~noiseproof.report.read_runs` returns them.

    >>> runs = [{"recipe": {"loss": "ce", "seed": k}, "result": {"test_accuracy": 0.9}} for k in (1, 2)]
    >>> [(group.name, group.accuracies) for group in group_runs(runs)]
    [('CE', {1: 90.0, 2: 90.0})]
    """
    groups = with_distinguishing_fields(RunGroup(runs) for runs in records_by_group(records).values())
    return sorted(groups, key=lambda group: (group.dataset, group.noise))


def records_by_group(records: Iterable[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The records of each group in the order of their seeds, by :func:`group_key`."""
    found: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        found.setdefault(group_key(record), []).append(record)
    return {key: sorted(runs, key=seed_of) for key, runs in found.items()}


def group_key(record: Mapping[str, Any]) -> str:
    """The same for runs that differ in the seed alone."""
    facts = setting(record, ("seed", "confidence_epochs"))
    return json.dumps(json.loads(json.dumps(facts), parse_int=float), sort_keys=True)


def with_distinguishing_fields(groups: Iterable[G]) -> Iterator[G]:
    """With the fields that distinguish groups of one data set, noise and loss."""
    alike: dict[tuple[str, ...], list[G]] = {}
    for group in groups:
        alike.setdefault((group.dataset, group.noise, group.loss), []).append(group)
    for members in alike.values():
        fields = [all_settings(group.recipe) | reading_options(group.recipe) for group in members]
        names = dict.fromkeys(name for each in fields for name in each)
        apart = tuple(name for name in names if len({_text(each.get(name)) for each in fields}) > 1)
        yield from (replace(group, distinguishing=apart) for group in members)


def by_noise(groups: Iterable[G]) -> dict[str, list[G]]:
    """The groups by the title of their data set and noise."""
    found: dict[str, list[G]] = {}
    for group in groups:
        found.setdefault(group.title, []).append(group)
    return found


def train_options(recipe: Mapping[str, Any], settings: Mapping[str, Any], noise: str | None = None) -> list[str]:
    """The options of ``noiseproof train`` for a noise, a seed and settings."""
    words = []
    if (noise := noise or str(recipe.get("noise", "none"))) != "none":
        words += ["--noise", noise]
    words += ["--seed", str(recipe.get("seed", 123))]
    for key, value in settings.items():
        words += ["--set", f"{key}={_text(value)}"]
    return words


def all_settings(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a recipe but its names, as ``--set`` takes them."""
    named = ("dataset", "loss", "noise", "seed", "confidence_epochs", "loss_options", "model_options", "data_options")
    fields = {name: value for name, value in recipe.items() if name not in named}
    for owner in ("loss", "model"):
        options = recipe.get(f"{owner}_options")
        fields |= {f"{owner}.{key}": value for key, value in options.items()} if isinstance(options, dict) else {}
    return fields


def reading_options(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """How its table is read, which options of their own say."""
    options = recipe.get("data_options")
    return options if isinstance(options, dict) else {}


def setting_text(key: str, value: Any) -> str:
    """One setting, as a name of runs has it."""
    return f"{key.removeprefix('loss.')}={_text(value)}"


def seed_of(record: Mapping[str, Any]) -> int:
    return int(number(record["recipe"].get("seed")) or 0)


def weakest_class(record: Mapping[str, Any]) -> tuple[int, float] | None:
    """The class of which the smallest share is right, and that share in percent; None where classes were not counted apart."""
    shares = enumerate(numbers(record["result"].get("accuracy_by_class")))
    known = [(share, k) for k, share in shares if share is not None]
    return (min(known)[1], 100 * min(known)[0]) if known else None


def counted(count: int, one: str, many: str) -> str:
    """A number with the words that agree with it.

    >>> counted(1, "agrees", "agree"), counted(0, "agrees", "agree")
    ('1 agrees', '0 agree')
    """
    return f"{count} {one if count == 1 else many}"


def named_seeds(seeds: Sequence[int]) -> str:
    """In words.

    >>> named_seeds([123, 125])
    'seeds 123 and 125'
    """
    *first, last = map(str, seeds)
    return f"seeds {', '.join(first)} and {last}" if first else f"seed {last}"


@functools.cache
def _catalogue() -> frozenset[str]:
    return frozenset(entry.name for entry in list_losses())


def _part(record: Mapping[str, Any], key: str) -> dict[str, Any]:
    found = record.get(key)
    return found if isinstance(found, dict) else {}


def _counts(kinds: Any) -> dict[str, list[float]]:
    found = {kind: numbers(kinds.get(kind)) for kind in ("right", "wrong", "given")} if isinstance(kinds, dict) else {}
    return {kind: [value or 0.0 for value in counts] for kind, counts in found.items() if len(counts) == BINS}


def _text(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, float):
        return repr(value).removesuffix(".0")
    return value if isinstance(value, str) else json.dumps(value)


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
        return without_controls(text, lines=True)  # a name in a record may have half a character, which cannot be written

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
    highlighted = [group.name for group in groups if group.loss == "CE" or group.loss.startswith("JAL") or ":" in group.loss]
    names = sorted(highlighted, key=len) or [group.name for group in groups]
    styles = {name: k for k, name in enumerate(dict.fromkeys(names))}
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
        curves = [
            charts.ChartLine(group.name, curve, styles.get(group.name)) for group in groups if (curve := group.curve(name))
        ]
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
