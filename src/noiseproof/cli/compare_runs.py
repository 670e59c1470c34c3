"""The runs of a comparison: which are there, training those that are not, and how that is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from noiseproof.cli.compare_labels import noise_of_test_labels, on_clean_labels, said_of_correction, said_of_labels
from noiseproof.cli.compare_processes import Advance, in_processes, in_words
from noiseproof.comparison.result import CompetitorResult
from noiseproof.io.files import is_file
from noiseproof.noise import LabelNoise
from noiseproof.report.records import describe_missed_classes
from noiseproof.train import Recipe, RunOptions, RunStore, StoredRun, TrainingData, identity
from noiseproof.train.record import RECORD, task_facts
from noiseproof.train.run_list import ENDED, PlannedRun, RunCosts, train_runs
from noiseproof.train.runs import recipe_key

__all__ = ["PLAIN", "Competitor", "Runs"]

PLAIN: dict[str, Any] = {"highlight": False, "soft_wrap": True, "markup": False}
SHARED = ("noise", "model", "optimiser", "lr", "schedule", "epochs", "batch", "augment", "precision")


@dataclass(frozen=True)
class Competitor:
    """A loss with its decay, and its recipe for each seed."""

    loss: str
    recipes: dict[int, Recipe]

    @property
    def decay(self) -> str:
        recipe = next(iter(self.recipes.values()))
        return " + ".join(f"{kind} {value:g}" for kind, value in (("l1", recipe.l1), ("l2", recipe.l2)) if value) or "none"


class Runs:
    """Each competitor with each seed. The data of a seed are the same for all competitors."""

    def __init__(
        self,
        field: Sequence[Competitor],
        task_of: Callable[[Recipe], TrainingData],
        store: RunStore,
        data: str | None,
        options: RunOptions,
        test_noise: str | None = None,
    ) -> None:
        self.field, self.store, self.data, self.options = field, store, data, options
        self.errors: list[float] = []
        """Standard errors of corrected accuracies"""
        self.known: dict[int, dict[str, Any]] = {}
        """What identifies the data of each seed"""
        for seed, recipe in field[0].recipes.items():
            task = task_of(recipe)
            self.known[seed] = task_facts(recipe, task)
            if len(self.known) == 1:
                self.task = task
        self.test_noise = noise_of_test_labels(test_noise, next(iter(field[0].recipes.values())), self.task)
        self.said_noise = test_noise or ""

    def facts(self) -> dict[str, Any]:
        """What all runs have in common."""
        recipe = next(iter(self.field[0].recipes.values())).as_dict()
        return {"data": self.task.name, **{name: recipe[name] for name in SHARED}, "seeds": list(self.known)}

    def planned(self, seed: int, recipe: Recipe) -> PlannedRun[Recipe]:
        """With its run in the store, which must have been trained on the same content of the data."""
        stored = self.store.find(identity(recipe.as_dict(), self.known[seed]))
        if stored is None and is_file((folder := self.store.folder_for(recipe)) / RECORD):
            raise ValueError(f"the data have changed since {folder} was trained: choose another --out, or move it away")
        return PlannedRun(recipe, recipe.as_dict(), stored, None)

    def todo(self) -> list[PlannedRun[Recipe]]:
        """What is to be trained, seed by seed."""
        every = (self.planned(seed, one.recipes[seed]) for seed in self.known for one in self.field)
        return [run for run in every if run.status not in ENDED]

    def train(self, jobs: int | None, shown: Console) -> list[str]:
        """Train what is missing. Returns the errors of runs that failed; one that diverged has a result."""
        todo = self.todo()
        if not todo:
            return []
        on_cpu, small = self.options.device.type == "cpu", self.task.train.kind == "features"
        if jobs is None and on_cpu:
            jobs = torch.get_num_threads() if small else 1  # a small network does not fill two cores
        names = {recipe_key(r.as_dict()): self._name(one) for one in self.field for r in one.recipes.values()}
        display = _Display(shown, todo, names)
        with display.running():
            if on_cpu and jobs is not None and min(jobs, len(todo)) > 1:
                place = (self.store.root, self.data, self.options)
                in_processes(todo, min(jobs, len(todo)), place, display.reached, display.ended)
            else:
                train_runs(
                    todo,
                    self.store,
                    RunCosts(""),
                    data=self.data,
                    options=self.options,
                    at_once=jobs,
                    callback=lambda run: Advance(display.reached, run.recipe),
                    on_outcome=lambda run, outcome: display.ended(run.recipe, *in_words(outcome)),
                )
        return display.errors

    def _name(self, one: Competitor) -> str:
        return one.loss if len({other.loss for other in self.field}) == len(self.field) else f"{one.loss}, decay {one.decay}"

    def entrant(self, one: Competitor) -> CompetitorResult:
        """What its runs gave."""
        found = {seed: self.planned(seed, recipe) for seed, recipe in one.recipes.items()}
        finished = {seed: run.stored.facts for seed, run in found.items() if run.stored and run.status == "finished"}
        diverged = tuple(seed for seed, run in found.items() if run.status == "diverged")
        failed = tuple(seed for seed in found if seed not in finished and seed not in diverged)
        shares = {seed: facts["result"].get("test_accuracy") for seed, facts in finished.items()}
        accuracies = {seed: share for seed, share in shares.items() if share is not None}
        if len(accuracies) < len(finished):
            folder = next(run.stored.folder for seed, run in found.items() if seed not in accuracies and run.stored)
            raise ValueError(f"{folder}: its record says that it is finished and has no test accuracy; move it away")
        if self.test_noise is not None:
            accuracies = {seed: self._corrected(found[seed].stored, one.recipes[seed], self.test_noise) for seed in accuracies}
        percent = {seed: 100 * share for seed, share in accuracies.items()}
        return CompetitorResult(one.loss, one.decay, percent, diverged, failed, describe_missed_classes(finished.values()))

    def _corrected(self, run: StoredRun | None, recipe: Recipe, noise: LabelNoise) -> float:
        if run is None:
            raise ValueError("a run that is not there has no accuracy")
        value, error = on_clean_labels(run, recipe, self.task, noise, self.options)
        self.errors.append(error)
        return value

    def said_of_test(self) -> list[str]:
        """What to know of the labels that losses are tested on, once the entrants are there."""
        if self.test_noise is not None:
            return said_of_correction(self.said_noise, self.errors)
        return said_of_labels(next(iter(self.field[0].recipes.values())), self.task)


class _Display:
    """A bar over the epochs of all runs on a terminal; elsewhere a line for each run that has ended."""

    def __init__(self, shown: Console, todo: Sequence[PlannedRun[Recipe]], names: dict[str, str]) -> None:
        self.shown, self.names, self.runs, self.done = shown, names, len(todo), 0
        self.errors: list[str] = []
        self.bar = Progress(
            TextColumn("{task.description}"), BarColumn(None), TimeRemainingColumn(), console=shown, transient=True, expand=True
        )
        self.epochs = dict.fromkeys((recipe_key(run.recipe.as_dict()) for run in todo), 0)
        self.task = self.bar.add_task(f"0 of {self.runs} runs", total=sum(run.recipe.epochs for run in todo))

    @contextmanager
    def running(self) -> Iterator[None]:
        if not self.shown.is_terminal:
            yield
            return
        with self.bar:
            yield

    def reached(self, recipe: Recipe, epoch: int) -> None:
        self.epochs[recipe_key(recipe.as_dict())] = epoch
        self.bar.update(self.task, completed=sum(self.epochs.values()))

    def ended(self, recipe: Recipe, result: str, failed: bool) -> None:
        self.done += 1
        line = f"{self.names[recipe_key(recipe.as_dict())]}, seed {recipe.seed}: {result}"
        self.errors += [line] if failed else []
        if self.shown.is_terminal:
            self.bar.update(self.task, description=f"{self.done} of {self.runs} runs")
            self.reached(recipe, recipe.epochs)
        else:
            self.shown.print(f"{self.done:>{len(str(self.runs))}}/{self.runs}  {line}", **PLAIN)
