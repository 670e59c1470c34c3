"""The runs that a page shows: read from folders and files, grouped by recipe, each with its name and its command.

Records are text from elsewhere: a field may be absent or of another type, and is then not shown.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from noiseproof import paper
from noiseproof.comparison.paired import Sample
from noiseproof.data.registry import find_name
from noiseproof.io.files import is_dir, is_file
from noiseproof.losses import find_loss, list_losses
from noiseproof.paper.measured import DIVERGED, CellResult
from noiseproof.paper.plan import NOT_COMPARED, run_facts
from noiseproof.report.folders import BINS, RECORD, run_line
from noiseproof.report.records import number, numbers, read_records, setting

__all__ = ["Found", "Group", "command", "groups_of", "message_of", "read_runs", "warnings_of", "weakest_class"]

EPOCH = re.compile(r"[0-9]{1,9}")
BUILT_IN = ("digits",)
"""Data sets that need no --data."""


class Found(NamedTuple):
    """The records of all places, and the folders of those that are in one, by the position of the record."""

    records: list[dict[str, Any]]
    folders: dict[int, Path]


def read_runs(places: Iterable[Path]) -> Found:
    """From files of records and from folders of runs, at any depth; a ValueError where there is none."""
    records: list[dict[str, Any]] = []
    folders: dict[int, Path] = {}
    for place in places:
        if is_dir(place):
            for path in sorted(path for path in place.rglob(RECORD) if is_file(path)):
                folders[len(records)] = path.parent
                records.append(run_line(path.parent))
        elif is_file(place):
            records += read_records(place)
        else:
            raise FileNotFoundError(f"{place} does not exist; give folders of runs or .jsonl files of records")
    if not records:
        raise ValueError(f"no runs in {', '.join(map(str, places)) or 'nothing'}; 'noiseproof train' makes them")
    return Found(records, folders)


@dataclass(frozen=True)
class Group:
    """The runs of one recipe that differ in the seed alone."""

    records: list[dict[str, Any]]
    results: list[CellResult] = field(default_factory=list)
    """The published cells that they count for"""
    precision: str = "bf16"
    """That of the page, which needs no mention"""
    apart: tuple[str, ...] = ()
    """Fields in which it differs from others of the same loss, data and noise, where the paper has no recipe to differ from"""

    @property
    def recipe(self) -> dict[str, Any]:
        recipe: dict[str, Any] = self.records[0]["recipe"]
        return recipe

    @functools.cached_property
    def anchor(self) -> str:
        return f"run-{hashlib.sha256(_key(self.records[0]).encode()).hexdigest()[:10]}"

    @property
    def dataset(self) -> str:
        return str(self.recipe.get("dataset", "?"))

    @property
    def noise(self) -> str:
        """As the paper names it where its code has that noise, whatever else the recipe has."""
        noise, names = str(self.recipe.get("noise", "none")), _paper_noises(self.dataset)
        named = names.get(noise, noise).replace(":", " ")
        if named == "none":  # of data of one's own nobody knows
            return "clean" if find_name(self.dataset) else "labels as given"
        # Instance noise is a file of labels in the code; that made from the images has the paper's name too.
        return f"{named}, generated" if noise not in names and noise in names.values() else named

    @functools.cached_property
    def profile(self) -> str:
        """That of the cells it counts for; else the text's where the recipe is all the text's, otherwise the code's."""
        for result in self.results:
            return result.profile
        code, text = ({*(self._changes(profile) or {"loss": None})} - {"precision"} for profile in paper.PROFILES)
        return paper.PROFILES[1 if code and not text else 0]

    @functools.cached_property
    def changes(self) -> dict[str, Any] | None:
        """What differs from the profile's recipe, as --set has it; None if the paper has no such recipe."""
        return self._changes(self.profile)

    def _changes(self, profile: str) -> dict[str, Any] | None:
        known = _paper_facts(self.dataset, str(self.recipe.get("loss")), profile)
        return None if known is None else dict(_changes(known, self.recipe))

    @property
    def decay(self) -> str:
        """Kind and strength."""
        used = [f"{name.upper()} {value:g}" for name in ("l1", "l2") if (value := number(self.recipe.get(name)))]
        return " and ".join(used) or "no decay"

    @property
    def has_published_decay(self) -> bool:
        return self.changes is not None and not {"l1", "l2"} & set(self.changes)

    @property
    def loss(self) -> str:
        """As the paper writes it."""
        loss = str(self.recipe.get("loss", "?"))
        return _paper_names().get(loss, loss)

    @property
    def name(self) -> str:
        """The loss, and what differs from its recipe in the paper, or from the other runs of data that are not in it."""
        changes = dict(self.changes or {})
        if self.changes is None:
            fields = _all_fields(self.recipe)
            changes = {key: fields.get(key) for key in self.apart}
        precision = []
        if self.is_published:
            changes.pop("precision", None)
            stated = str(self.recipe.get("precision", self.precision))
            precision = [] if stated == self.precision else [stated]
        profile = [] if self.profile == paper.PROFILES[0] else [self.profile]
        settings = [f"{key.removeprefix('loss.')}={_text(value)}" for key, value in changes.items()]
        return " ".join([self.loss, *profile, *settings, *precision])

    @property
    def is_published(self) -> bool:
        """Whether the paper has numbers of these data."""
        return self.dataset in _paper_datasets()

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
        cells = [result.cell for result in self.results]
        return command(self.recipe, self.changes, noise=cells[0].spec if cells else None, profile=self.profile)

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


def groups_of(records: Sequence[dict[str, Any]], results: Iterable[CellResult], precision: str) -> list[Group]:
    """By data set, noise and loss, in the paper's order; what is not in the paper comes last."""
    cells: dict[str, list[CellResult]] = {}
    order: dict[str, int] = {}
    for position, result in enumerate(results):
        for record in result.runs:
            order.setdefault(_key(record), position)
            if not any(known is result for known in cells.setdefault(_key(record), [])):
                cells[_key(record)].append(result)
    found: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        found.setdefault(_key(record), []).append(record)
    groups = _told_apart(Group(sorted(runs, key=seed_of), cells.get(key, []), precision) for key, runs in found.items())
    return sorted(groups, key=lambda group: (order.get(_key(group.records[0]), len(order) + 10**6), group.dataset, group.noise))


def _told_apart(groups: Iterable[Group]) -> Iterator[Group]:
    """With the fields that tell groups of one loss apart, where the paper has no recipe."""
    alike: dict[tuple[Any, ...], list[Group]] = {}
    for group in groups:
        alike.setdefault((group.dataset, group.noise, group.loss, group.changes is None), []).append(group)
    for (*_, own), members in alike.items():
        fields = [_all_fields(group.recipe) if own else {} for group in members]
        names = dict.fromkeys(name for each in fields for name in each)
        apart = tuple(name for name in names if len({_text(each.get(name)) for each in fields}) > 1)
        yield from (replace(group, apart=apart) for group in members)


def command(
    recipe: Mapping[str, Any],
    changes: Mapping[str, Any] | None,
    *,
    noise: str | None = None,
    profile: str = paper.PROFILES[0],
) -> str:
    """What trains this recipe again."""
    dataset, loss = str(recipe.get("dataset")), str(recipe.get("loss"))
    words = ["noiseproof", "train", loss if changes is None else f"{dataset}/{loss}"]
    if (noise := noise or str(recipe.get("noise", "none"))) != "none":
        words += ["--noise", noise]
    words += ["--seed", str(recipe.get("seed", 123))]
    if profile != paper.PROFILES[0]:
        words += ["--profile", profile]
    for key, value in (_all_fields(recipe) if changes is None else changes).items():
        words += ["--set", f"{key}={_text(value)}"]
    text = shlex.join(words)
    if changes is None:
        return f"{text} --data {shlex.quote(dataset)}"
    return text if dataset in BUILT_IN else f"{text} --data DIR"


def seed_of(record: Mapping[str, Any]) -> int:
    return int(number(record["recipe"].get("seed")) or 0)


def weakest_class(record: Mapping[str, Any]) -> tuple[int, float] | None:
    """The class of which the smallest share is right, and that share in percent; None where classes were not counted apart."""
    shares = enumerate(numbers(record["result"].get("accuracy_by_class")))
    known = [(share, k) for k, share in shares if share is not None]
    return (min(known)[1], 100 * min(known)[0]) if known else None


def message_of(record: Mapping[str, Any]) -> str:
    """Why a run has no result."""
    found = record.get("message")
    return found if isinstance(found, str) else ""


def warnings_of(record: Mapping[str, Any]) -> list[str]:
    found = record.get("warnings")
    return [text for text in found if isinstance(text, str)] if isinstance(found, list) else []


def _part(record: Mapping[str, Any], key: str) -> dict[str, Any]:
    found = record.get(key)
    return found if isinstance(found, dict) else {}


def _counts(kinds: Any) -> dict[str, list[float]]:
    found = {kind: numbers(kinds.get(kind)) for kind in ("right", "wrong", "given")} if isinstance(kinds, dict) else {}
    return {kind: [value or 0.0 for value in counts] for kind, counts in found.items() if len(counts) == BINS}


def _key(record: Mapping[str, Any]) -> str:
    facts = setting(record, ("seed", "confidence_epochs"))
    return json.dumps(json.loads(json.dumps(facts), parse_int=float), sort_keys=True)


@functools.cache
def _paper_facts(dataset: str, loss: str, profile: str) -> dict[str, Any] | None:
    try:
        return paper.recipe(f"{dataset}/{loss}", profile=profile).as_dict()
    except (ValueError, TypeError, KeyError):
        return None


@functools.cache
def _paper_datasets() -> frozenset[str]:
    return frozenset(cell.dataset for cell in paper.cells())


@functools.cache
def _paper_noises(dataset: str) -> dict[str, str]:
    """The paper's names of the noises that its code trains with."""
    trained = (cell for cell in paper.cells() if cell.dataset == dataset and cell.quoted_from is None)
    return {run_facts(cell)["noise"]: cell.spec for cell in trained}


@functools.cache
def _paper_names() -> dict[str, str]:
    printed = {find_loss(name).name: name for name in dict.fromkeys(cell.loss for cell in paper.cells())}
    return {entry.name: entry.name.upper() for entry in list_losses()} | printed


def _changes(known: Mapping[str, Any], recipe: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in recipe.items():
        if name in ("noise", "dataset", "loss", *(set(NOT_COMPARED) - {"precision"})) or name not in known:
            continue
        if name.endswith("_options") and isinstance(value, dict):
            owner = name.removesuffix("_options")
            yield from ((f"{owner}.{key}", one) for key, one in value.items() if known[name].get(key) != one)
        elif value != known[name]:
            yield name, value


def _all_fields(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """For data that the paper has no recipe for: nothing is left to defaults, which depend on the data."""
    named = ("dataset", "loss", "noise", "seed", "confidence_epochs", "loss_options", "model_options")
    fields = {name: value for name, value in recipe.items() if name not in named}
    for owner in ("loss", "model"):
        options = recipe.get(f"{owner}_options")
        fields |= {f"{owner}.{key}": value for key, value in options.items()} if isinstance(options, dict) else {}
    return fields


def _text(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, float):
        return repr(value).removesuffix(".0")
    return value if isinstance(value, str) else json.dumps(value)
