"""Many runs in order: what is finished is not run again, several run side by side, and none starts that would not end in time.

The folders of the runs are the only state: a queue that was stopped, killed or divided among machines is resumed by starting it
again.
"""

from __future__ import annotations

import itertools
import statistics
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from noiseproof.train.loop import Outcome
from noiseproof.train.observer import Observer
from noiseproof.train.options import RunOptions
from noiseproof.train.recipe import Recipe
from noiseproof.train.record import environment
from noiseproof.train.runs import RunStore, StoredRun, recipe_key
from noiseproof.train.side_by_side import NotStartedError, train_together

__all__ = ["Planned", "Speeds", "plan_queue", "run_queue", "shard"]

AT_ONCE = {"cnn8": 6, "resnet18": 3, "resnet34": 3}
"""Runs that fill an H200 side by side; one of another network fills it by itself"""
OVER = ("finished", "diverged")


@dataclass(frozen=True)
class Planned:
    """A run of a queue: what the store has of it already, and how long it would keep the device busy."""

    recipe: Recipe
    stored: StoredRun | None
    seconds: float | None
    """Its share of the device's time; None if no such run has been measured"""

    @property
    def status(self) -> str:
        """finished, diverged, running (a part is done), or waiting."""
        return "waiting" if self.stored is None else self.stored.status


class Speeds:
    """How long a run keeps the device busy, measured by finished runs of the same network, data and precision.

    ``measured`` are numbers from elsewhere, seconds by :meth:`key`, for what no run here has measured.
    """

    def __init__(self, machine: str, measured: Mapping[tuple[str, ...], float] | None = None) -> None:
        self.machine, self._measured, self._lock = machine, dict(measured or {}), threading.Lock()
        self._found: dict[tuple[str, ...], list[float]] = {}

    @staticmethod
    def key(machine: str, recipe: Mapping[str, Any]) -> tuple[str, ...]:
        return machine, recipe["dataset"], recipe["model"], recipe["precision"]

    def add(self, facts: Mapping[str, Any]) -> None:
        """A finished run's record: its seconds, divided among the runs that shared the device with it."""
        made = facts["environment"]
        if facts["seconds"].get("train"):
            per_epoch = sum(facts["seconds"].values()) / facts["recipe"]["epochs"] / made.get("at_once", 1)
            with self._lock:
                self._found.setdefault(self.key(made["machine"], facts["recipe"]), []).append(per_epoch)

    def seconds(self, recipe: Recipe) -> float | None:
        """Of the device's time that a whole run takes, or None."""
        key = self.key(self.machine, recipe.as_dict())
        with self._lock:
            found = self._found.get(key)
        per_epoch = statistics.median(found) if found else self._measured.get(key)
        return None if per_epoch is None else per_epoch * recipe.epochs


def plan_queue(recipes: Iterable[Recipe], store: RunStore, speeds: Speeds) -> list[Planned]:
    """The runs in order, with what the store has of them. No data are opened: a run is known by its recipe."""
    stored: dict[str, StoredRun] = {}
    for run in store.runs():
        if run.status == "finished":
            speeds.add(run.facts)
        if "recipe" in run.facts:
            key = recipe_key(run.facts["recipe"])
            if key not in stored or stored[key].status not in OVER:
                stored[key] = run
    return [Planned(recipe, stored.get(recipe_key(recipe.as_dict())), speeds.seconds(recipe)) for recipe in recipes]


def shard(recipes: Sequence[Recipe], part: int, parts: int) -> list[Recipe]:
    """The runs of one of several machines, counted from 1: every ``parts``-th, so that each has its share of every kind."""
    if not 1 <= part <= parts:
        raise ValueError(f"the part must be in [1, {parts}], got {part}")
    return list(recipes[part - 1 :: parts])


@dataclass
class Tally:
    """What came of a queue."""

    finished: list[Recipe] = field(default_factory=list)
    failed: list[tuple[Recipe, Exception]] = field(default_factory=list)
    not_started: list[Recipe] = field(default_factory=list)


def run_queue(
    planned: Sequence[Planned],
    store: RunStore,
    speeds: Speeds,
    *,
    data: str | Path | None = None,
    options: RunOptions | None = None,
    at_once: int | None = None,
    minutes: float | None = None,
    observer: Callable[[Recipe], Observer] = lambda recipe: Observer(),
    on_outcome: Callable[[Recipe, Outcome | Exception], None] = lambda recipe, outcome: None,
) -> Tally:
    """Train the runs that are not over. One that fails or diverges is reported, and the others go on.

    Runs of one precision and network are trained side by side, ``at_once`` of them. With ``minutes``, a run only starts if it
    would end in that time, by what such runs have taken; the first of a kind that has not been measured starts.
    """
    options, tally = options or RunOptions(), Tally()
    end = None if minutes is None else time.monotonic() + 60 * minutes

    def heard(recipe: Recipe, outcome: Outcome | Exception) -> None:
        if isinstance(outcome, Outcome):
            speeds.add(outcome.record.as_dict())
        on_outcome(recipe, outcome)

    todo = [run.recipe for run in planned if run.status not in OVER]
    for (_, model), group in itertools.groupby(todo, key=lambda recipe: (recipe.precision, recipe.model)):
        recipes = list(group)
        width = at_once or (AT_ONCE.get(model, 1) if options.device.type == "cuda" else 1)

        def in_time(recipe: Recipe, width: int = min(width, len(recipes))) -> bool:
            seconds = speeds.seconds(recipe)
            return end is None or time.monotonic() + (seconds or 0.0) * width <= end

        outcomes = train_together(
            recipes,
            store=store,
            data=data,
            options=options,
            at_once=width,
            observers=[observer(recipe) for recipe in recipes],
            may_start=in_time,
            on_outcome=heard,
        )
        for recipe, outcome in zip(recipes, outcomes, strict=True):
            if isinstance(outcome, NotStartedError):
                tally.not_started.append(recipe)
            elif isinstance(outcome, Exception):
                tally.failed.append((recipe, outcome))
            else:
                tally.finished.append(recipe)
    return tally


def machine_of(options: RunOptions) -> str:
    """The name that records give the device."""
    return str(environment(options.device)["machine"])
