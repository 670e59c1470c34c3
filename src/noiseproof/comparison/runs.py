"""The runs of a comparison: what is planned, what is found in their folders, and training what is missing."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Protocol

import numpy as np
import torch

from noiseproof.comparison.result import CompetitorResult
from noiseproof.data import Dataset
from noiseproof.losses import find_loss
from noiseproof.noise import LabelNoise, clean_accuracy, from_spec
from noiseproof.train import (
    DivergenceError,
    Outcome,
    Recipe,
    RunOptions,
    RunStore,
    StoredRun,
    TrainingData,
    identity,
    load,
)
from noiseproof.train.executors import AnyOutcome, Executor, LocalExecutor, ProcessExecutor, RunList, WorkerError
from noiseproof.train.network import loss_code_hash
from noiseproof.train.record import RECORD, task_facts
from noiseproof.train.record_files import describe_missed_classes

PAGE = "docs/how_to/choosing.md says how often that picks the best loss"
SHARED_FIELDS = ("noise", "model", "optimiser", "lr", "schedule", "epochs", "batch", "augment", "precision")
"""Fields of recipes that all runs of a comparison have in common"""


class ComparisonProgress(Protocol):
    """Is called while a comparison proceeds."""

    def on_begin(self, description: str, runs: int) -> None:
        """Before training: what is compared, and how many runs are to be trained.

        Args:
            description: What is compared.
            runs: How many runs are to be trained.
        """

    def on_warning(self, text: str) -> None:
        """What may be wrong with the data.

        Args:
            text: The warning.
        """

    def on_run_end(self, text: str) -> None:
        """A run has ended: which, and its accuracy or why there is none.

        Args:
            text: The run and its result.
        """


@dataclass(frozen=True)
class Competitor:
    """A loss with its regularisation, and its recipe for each seed."""

    loss: str
    recipes: dict[int, Recipe]

    @property
    def recipe(self) -> Recipe:
        """That of the first seed."""
        return next(iter(self.recipes.values()))

    @property
    def regularisation(self) -> str:
        """In words: ``l1 5e-05``, or ``none``."""
        strengths = (("l1", self.recipe.l1), ("l2", self.recipe.l2))
        return " + ".join(f"{kind} {value:g}" for kind, value in strengths if value) or "none"


class ComparisonRuns:
    """Each competitor with each seed. The data of a seed are the same for all competitors."""

    def __init__(
        self,
        competitors: Sequence[Competitor],
        data_of: Callable[[Recipe], TrainingData],
        store: RunStore,
        folder: str | None,
        options: RunOptions,
        test_noise: str | None = None,
        held: Mapping[str, Dataset] | None = None,
    ) -> None:
        self.held = dict(held or {})
        """Data sets in memory, by the names that recipes have for them"""
        self.competitors, self.store, self.folder, self.options = competitors, store, folder, options
        self.standard_errors: list[float] = []
        """Of corrected accuracies"""
        self.data_facts: dict[int, dict[str, Any]] = {}
        """What identifies the data of each seed"""
        for seed, recipe in competitors[0].recipes.items():
            data = data_of(recipe)
            if not self.data_facts:
                self.data = data
            self.data_facts[seed] = task_facts(recipe, data)
        self.test_noise_text = test_noise or ""
        self.test_noise = _noise_of_test_labels(test_noise, competitors[0].recipe, self.data)

    def setting(self) -> dict[str, Any]:
        """What all runs have in common."""
        recipe = self.competitors[0].recipe.as_dict()
        noise = {"test_noise": self.test_noise_text} if self.test_noise_text else {}
        return {
            "data": self.data.name,
            **{name: recipe[name] for name in SHARED_FIELDS},
            "seeds": list(self.data_facts),
            **noise,
        }

    def describe(self, left: int) -> str:
        """The data, how the networks are trained, how many runs there are, and how many are left to train."""
        data, facts = self.data, self.setting()
        wrong = "labels as given" if data.wrong is None else f"{int(data.wrong.sum())} labels wrong ({facts['noise']})"
        test = 0 if data.test is None else len(data.test)
        total = len(self.competitors) * len(self.data_facts)
        count = len({one.loss for one in self.competitors})
        sizes = ["1 loss" if count == 1 else f"{count} losses", _count(len(self.data_facts), "seed")]
        if count < len(self.competitors):
            sizes.insert(1, _count(len(self.competitors) // count, "regularisation"))
        before = f", {total - left} of them done before" if left < total else ""
        budget = f"{_count(facts['epochs'], 'epoch')}, batch {facts['batch']}"
        reasons: dict[str, list[str]] = {}
        for one in self.competitors:
            reasons.setdefault(" ".join(one.recipe.why), []).append(one.loss)
        table = [] if data.table is None else data.table.described(data.classes)
        lines = [
            *(f"{', '.join(dict.fromkeys(of))}: {why}" for why, of in reasons.items() if why),
            *(f"  {line}" for line in table),
        ]
        lines.append(f"{facts['data']}: {len(data.train)} examples of {len(data.classes)} classes, {wrong}; {test} to test on")
        lines.append(f"{facts['model']}, {facts['optimiser']} {facts['lr']:g}, {budget}, for all")
        return "\n".join([*lines, f"{' x '.join(sizes)}: {_count(total, 'run')}{before}"])

    def stored(self, recipe: Recipe) -> StoredRun | None:
        """The run in the store, which must have been trained on the same content of the data."""
        facts = {key: value for key, value in self.data_facts[recipe.seed].items() if key != "loss"}
        if (code := loss_code_hash(recipe)) is not None:
            facts["loss"] = code  # of one's own loss, which the other competitors do not have
        found = self.store.find(identity(recipe.as_dict(), facts))
        if found is None and ((folder := self.store.folder_for(recipe)) / RECORD).is_file():
            raise ValueError(f"the data have changed since {folder} was trained: choose another --out, or move it away")
        return found

    def missing(self) -> list[Recipe]:
        """What is to be trained, seed by seed."""
        every = (one.recipes[seed] for seed in self.data_facts for one in self.competitors)
        return [recipe for recipe in every if (run := self.stored(recipe)) is None or run.status == "running"]

    def train(self, missing: Sequence[Recipe], jobs: int | None, progress: ComparisonProgress | None) -> list[str]:
        """Train what is missing. Returns the errors of runs that failed; one that diverged has a result."""
        alone = len({one.loss for one in self.competitors}) == len(self.competitors)
        names = {
            id(recipe): one.loss if alone else f"{one.loss}, {one.regularisation}"
            for one in self.competitors
            for recipe in one.recipes.values()
        }
        errors = []

        def ended(recipe: Recipe, outcome: AnyOutcome) -> None:
            result, failed = _in_words(outcome)
            text = f"{names[id(recipe)]}, seed {recipe.seed}: {result}"
            if failed:
                errors.append(text)
            if progress is not None:
                progress.on_run_end(text)

        on_cpu, small = self.options.device.type == "cpu", self.data.train.kind == "features"
        if jobs is None and on_cpu:
            cores = torch.get_num_threads()
            jobs = max(1, cores // (self.options.threads or (1 if small else cores)))  # a small network does not fill two
        processes = min(jobs or 1, len(missing)) if on_cpu else 1
        at_once = None if processes > 1 else jobs
        executor: Executor = LocalExecutor(self.options)
        if processes > 1:
            executor = ProcessExecutor(self.options, processes, self.held)
        with closing(executor):
            executor.run(RunList(missing, self.store, self.folder, at_once, on_outcome=ended))
        return errors

    def result(self, one: Competitor) -> CompetitorResult:
        """What the runs of a competitor gave."""
        found = {seed: self.stored(recipe) for seed, recipe in one.recipes.items()}
        finished = {seed: run for seed, run in found.items() if run and run.status == "finished"}
        diverged = tuple(seed for seed, run in found.items() if run and run.status == "diverged")
        failed = tuple(seed for seed in found if seed not in finished and seed not in diverged)
        accuracies = {}
        for seed, run in finished.items():
            if (share := run.facts["result"].get("test_accuracy")) is None:
                raise ValueError(f"{run.folder}: its record is finished and contains no test accuracy; move it away")
            accuracies[seed] = 100 * (share if self.test_noise is None else self._corrected(run, one.recipes[seed]))
        missed = describe_missed_classes(run.facts for run in finished.values())
        results = {seed: run.facts["result"] for seed, run in finished.items()}
        recalls = {seed: found for seed, result in results.items() if (found := result.get("accuracy_by_class"))}
        if self.test_noise is not None:  # they are by the noisy labels, for which the accuracy alone is corrected
            results, recalls = {}, {}
        by_class = zip(self.data.classes, zip(*recalls.values(), strict=True), strict=True)
        choice = one.recipe.class_weight
        return CompetitorResult(
            *(one.loss, one.regularisation, accuracies, diverged, failed, missed),
            balanced={seed: 100 * fmean(share for share in found if share is not None) for seed, found in recalls.items()},
            macro_f1={seed: 100 * result["macro_f1"] for seed, result in results.items() if "macro_f1" in result},
            recalls={name: 100 * fmean(found) for name, found in by_class if None not in found} if recalls else {},
            dead={seed: run.facts["dead"] for seed, run in finished.items() if run.facts.get("dead")},
            class_weight=choice if isinstance(choice, str) else "by class" if choice else "none",
        )

    def _corrected(self, run: StoredRun, recipe: Recipe) -> float:
        """The accuracy on clean labels of a finished run, from its predictions of the test split and the labels there."""
        test, noise, options = self.data.test, self.test_noise, self.options
        if run.folder is None or test is None or noise is None:
            raise ValueError("a run without a folder, or data without a test split, cannot be corrected")
        trained = load(run.folder, device=options.device, model=recipe.model if ":" in recipe.model else None)
        seen, predicted = [], []
        for indices, logits in trained.batches(test, workers=options.workers):
            seen.append(indices)
            predicted.append(logits.argmax(1).cpu().numpy())
        value, error = clean_accuracy(np.concatenate(predicted), test.labels[np.concatenate(seen)], noise)
        self.standard_errors.append(error)
        return min(max(value, 0.0), 1.0)  # of few labels the estimate can be beyond what an accuracy can be

    def test_notes(self) -> list[str]:
        """What to know of the labels that losses are tested on, once the results are there."""
        recipe, data, errors = self.competitors[0].recipe, self.data, self.standard_errors
        if self.test_noise is not None:
            typical = f"{100 * float(np.median(errors)):.1f} points" if errors else "not known"
            return [
                f"corrected for {self.test_noise_text}: an estimate of the accuracy on clean labels, right on average if the "
                f"noise depends on the class alone; its standard error is {typical} a run, from labels that are the same for "
                f"all losses; no more than 100 is shown; {PAGE}"
            ]
        if not recipe.test_size or data.clean is not None or data.test is None:
            return []
        n = len(data.test)
        return [
            f"tested on {n} held-out labels as given, the same for all seeds: wrong ones count against every loss, so the "
            f"order says more than the numbers; the standard error of an accuracy on {n} labels is up to {50 / n**0.5:.1f} "
            f"points; {PAGE}; where the noise is known, --test-noise corrects for it"
        ]


def _noise_of_test_labels(text: str | None, recipe: Recipe, data: TrainingData) -> LabelNoise | None:
    """The noise of the test labels: a rate, ``kind:rate``, a matrix's file or the folder of an audit."""
    if text is None:
        return None
    if recipe.noise != "none":
        raise ValueError(
            f"--test-noise is for labels as given; with --noise or --labels, here {recipe.noise}, test labels are clean"
        )
    with suppress(ValueError):
        text = f"symmetric:{float(text)}"
    noise = from_spec(text, len(data.classes))
    clean_accuracy(np.zeros(2, np.int64), np.zeros(2, np.int64), noise)  # an error now for a matrix that has no inverse
    return noise


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + "s" * (number != 1)


def _in_words(outcome: AnyOutcome) -> tuple[str, bool]:
    """What came of a run, and whether it failed."""
    if isinstance(outcome, DivergenceError):
        return f"diverged: {outcome}", False
    if isinstance(outcome, OSError) and outcome.strerror and outcome.filename is not None:
        return f"{outcome.filename}: {outcome.strerror}", True
    if isinstance(outcome, Exception):
        return str(outcome) if isinstance(outcome, WorkerError) else f"{type(outcome).__name__}: {outcome}", True
    facts = outcome.record.result if isinstance(outcome, Outcome) else outcome["result"]
    balanced = f", balanced {100 * facts['balanced_accuracy']:.2f} %" if "balanced_accuracy" in facts else ""
    return f"{100 * (facts['test_accuracy'] or 0):.2f} %{balanced}", False


def parse_losses(text: str) -> list[tuple[str, str, dict[str, str]]]:
    """Split a list of losses with options.

    Args:
        text: Names with commas between, with options in parentheses; a name may be ``module:Name`` for one's own loss.

    Returns:
        For each loss its name with options, the name alone, and the options as text.

    Raises:
        ValueError: If a name is unknown or the text is not such a list.

    Example:
        >>> parse_losses("CE,jal-ce(a=20, q=3)")
        [('ce', 'ce', {}), ('jal-ce(a=20, q=3)', 'jal-ce', {'a': '20', 'q': '3'})]
    """
    found = []
    for part in _split(text):
        name, bracket, rest = part.partition("(")
        if bracket and not rest.endswith(")"):
            raise ValueError(f"a loss is NAME or NAME(OPTION=VALUE, ...), got {part!r}")
        loss, options = find_loss(name.strip()).name, {}
        for option in _split(rest[:-1]) if rest[:-1].strip() else ():
            key, equals, value = (piece.strip() for piece in option.partition("="))
            if not (equals and key.isidentifier() and value):
                raise ValueError(f"the options of {loss} are OPTION=VALUE, such as jal-ce(a=20), got {option!r}")
            options[key] = value
        shown = f"({', '.join(f'{key}={value}' for key, value in options.items())})" if options else ""
        found.append((loss + shown, loss, options))
    return found


def parse_regularisation(text: str | None) -> list[dict[str, float]]:
    """Return the fields of recipes that each regularisation sets; one without fields for the recipe's own.

    Example:
        >>> parse_regularisation("l1:5e-5,none")
        [{'l1': 5e-05, 'l2': 0.0}, {'l1': 0.0, 'l2': 0.0}]
    """
    if text is None:
        return [{}]
    found = []
    for part in _split(text):
        kind, _, value = part.partition(":")
        try:
            amount = {} if part == "none" else {kind: float(value)}
        except ValueError:
            amount = {"": 0.0}
        if not amount.keys() <= {"l1", "l2"}:
            raise ValueError(f"a regularisation is l1:5e-5, l2:1e-4 or none, got {part!r}")
        found.append({"l1": 0.0, "l2": 0.0} | amount)
    return found


def _split(text: str) -> list[str]:
    """At the commas outside brackets."""
    if text.count("(") != text.count(")") or text.count("[") != text.count("]"):
        raise ValueError(f"a bracket is not closed, or not opened, in {text!r}")
    parts = [part.strip() for part in re.split(r",(?![^(\[]*[)\]])", text)]
    if not all(parts):
        raise ValueError(f"a name is missing next to a comma in {text!r}")
    return parts
