"""Runs grouped by recipe and named as the paper names them: noise, loss, profile and what differs from the paper's recipe."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from noiseproof.paper.agreement import CellResult
from noiseproof.paper.plan import NOT_COMPARED, run_facts
from noiseproof.paper.published import DATASET_NAMES, cells
from noiseproof.paper.recipes import recipe
from noiseproof.paper.settings import PROFILES
from noiseproof.report.page import (
    RunGroup,
    group_key,
    records_by_group,
    setting_text,
    train_options,
    with_distinguishing_fields,
)
from noiseproof.train.record_files import number

BUILT_IN_DATASETS = ("digits",)
"""Data sets that need no --data"""


@dataclass(frozen=True)
class PaperGroup(RunGroup):
    """The runs of one recipe that differ in the seed alone, compared with the paper's recipe of their data set and loss."""

    results: list[CellResult] = field(default_factory=list)
    """The published cells that they count for"""
    precision: str = "bf16"
    """That of the page, which needs no mention"""

    @property
    def title(self) -> str:
        return f"{DATASET_NAMES.get(self.dataset, self.dataset)}, {self.noise}"

    @property
    def noise(self) -> str:
        """As the paper names it where its code has that noise, whatever else the recipe has."""
        noise, names = str(self.recipe.get("noise", "none")), _paper_noises(self.dataset)
        if noise in names and names[noise] != "none":
            return names[noise].replace(":", " ")
        # Instance noise is a file of labels in the code; that made from the images has the paper's name too.
        generated = ", generated" if noise != "none" and noise in names.values() else ""
        return super().noise + generated

    @functools.cached_property
    def profile(self) -> str:
        """That of the cells it counts for; else the text's where the recipe is all the text's, otherwise the code's."""
        for result in self.results:
            return result.profile
        code, text = ({*(self._changes(profile) or {"loss": None})} - {"precision"} for profile in PROFILES)
        return PROFILES[1 if code and not text else 0]

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
    def name(self) -> str:
        """The loss, and what differs from its recipe in the paper, or from the other runs of data that are not in it."""
        if self.changes is None:
            return super().name
        changes, precision = dict(self.changes), []
        if self.is_published:
            changes.pop("precision", None)
            stated = str(self.recipe.get("precision", self.precision))
            precision = [] if stated == self.precision else [stated]
        profile = [] if self.profile == PROFILES[0] else [self.profile]
        return " ".join([self.loss, *profile, *(setting_text(key, value) for key, value in changes.items()), *precision])

    @property
    def is_published(self) -> bool:
        """Whether the paper has numbers of these data."""
        return self.dataset in {cell.dataset for cell in cells()}

    @property
    def command(self) -> str:
        """What trains the first of its runs again, by the paper's recipe and what differs from it."""
        if self.changes is None:
            return super().command
        noise = self.results[0].cell.spec if self.results else None
        words = ["noiseproof", "train", f"{self.dataset}/{self.recipe.get('loss')}"]
        options = train_options(self.recipe, self.changes, noise)
        if self.profile != PROFILES[0]:
            after_seed = options.index("--seed") + 2
            options[after_seed:after_seed] = ["--profile", self.profile]
        text = shlex.join([*words, *options])
        return text if self.dataset in BUILT_IN_DATASETS else f"{text} --data DIR"


def paper_groups(records: Sequence[dict[str, Any]], results: Iterable[CellResult], precision: str) -> list[PaperGroup]:
    """By data set, noise and loss, in the paper's order; what is not in the paper comes last."""
    counts_for: dict[str, list[CellResult]] = {}
    order: dict[str, int] = {}
    for position, result in enumerate(results):
        for record in result.runs:
            order.setdefault(group_key(record), position)
            if not any(known is result for known in counts_for.setdefault(group_key(record), [])):
                counts_for[group_key(record)].append(result)
    found = (
        PaperGroup(runs, results=counts_for.get(key, []), precision=precision)
        for key, runs in records_by_group(records).items()
    )
    last = len(order) + 10**6
    return sorted(
        with_distinguishing_fields(found),
        key=lambda group: (order.get(group_key(group.records[0]), last), group.dataset, group.noise),
    )


@functools.cache
def _paper_facts(dataset: str, loss: str, profile: str) -> dict[str, Any] | None:
    try:
        return recipe(f"{dataset}/{loss}", profile=profile).as_dict()
    except (ValueError, TypeError, KeyError):
        return None


@functools.cache
def _paper_noises(dataset: str) -> dict[str, str]:
    """The paper's names of the noises that its code trains with."""
    trained = (cell for cell in cells() if cell.dataset == dataset and cell.quoted_from is None)
    return {run_facts(cell)["noise"]: cell.spec for cell in trained}


def _changes(known: Mapping[str, Any], given: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in given.items():
        if name in ("noise", "dataset", "loss", *(set(NOT_COMPARED) - {"precision"})) or name not in known:
            continue
        if name.endswith("_options") and isinstance(value, dict):
            owner = name.removesuffix("_options")
            yield from ((f"{owner}.{key}", one) for key, one in value.items() if known[name].get(key) != one)
        elif value != known[name]:
            yield name, value
