"""The runs that a page shows, grouped: those of one recipe that differ in the seed alone, with their name and their command.

Records are text from elsewhere: a field may be absent or of another type, and is then not shown.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, TypeVar

from noiseproof.comparison.paired import Sample
from noiseproof.data.registry import find_name
from noiseproof.io.text import command_options
from noiseproof.losses import list_losses
from noiseproof.train.record_files import BINS, number, numbers, setting

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


def message_of(record: Mapping[str, Any]) -> str:
    """Why a run has no result."""
    found = record.get("message")
    return found if isinstance(found, str) else ""


def warnings_of(record: Mapping[str, Any]) -> list[str]:
    found = record.get("warnings")
    return [text for text in found if isinstance(text, str)] if isinstance(found, list) else []


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
