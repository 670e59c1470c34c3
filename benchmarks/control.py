"""Which part of a gain is the loss and which the decay: seven losses, each under L1 and under L2, on CIFAR-10.

    python benchmarks/control.py --data DIR --out runs --records records/control.jsonl --known records/reproduction.jsonl

Every loss has its settings of the paper but for the decay. NCE+MAE weighs its MAE by 2a/K of JAL-CE's AMSE: the two have the
same slope in p_y at p = 0, so it is JAL-CE without the asymmetric part. Then, for CE and JAL-CE at 80 % noise, other strengths
of L1. One seed of everything comes first, then the second, then the third. What is finished, in ``--out``, ``--records`` or
``--known``, is not run again; stopped at any time, by SIGTERM say, the same command resumes it. The tables are in
docs/benchmarks/loss_or_decay.md.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from noiseproof.io.console import sigterm_as_ctrl_c
from noiseproof.paper import SEEDS, recipe
from noiseproof.paper.plan import H200_EPOCH_SECONDS, RunCosts
from noiseproof.paper.reproduction import RecordsFile
from noiseproof.paper.run_list import ENDED, RunListOutcome, plan_runs
from noiseproof.report import read_records
from noiseproof.train import Outcome, Recipe, Record, RunOptions, RunStore, StoredRun, override
from noiseproof.train.executors import AnyOutcome, LocalExecutor, RunList
from noiseproof.train.plan import device_named

L1, L2 = 5e-5, 1e-4
LOSSES = ("jal-ce", "ce", "nce+rce", "nce+mae", "anl-ce", "nce+agce", "gce")
NOISES = ("symmetric:0.8", "symmetric:0.4", "asymmetric:0.4", "none")
STRENGTHS = (1e-5, 2e-5, 1e-4, 2e-4)
STRENGTHS_OF, STRENGTHS_AT, STRENGTHS_SEEDS = ("jal-ce", "ce"), "symmetric:0.8", SEEDS[:2]


def control_recipe(loss: str, noise: str, seed: int, **decay: float) -> Recipe:
    """The paper's recipe with this decay and no other."""
    changes: dict[str, Any] = {"precision": "bf16", "l1": 0.0, "l2": 0.0, **decay}
    if loss == "nce+mae":
        jal = recipe("cifar10/jal-ce").loss_options
        changes |= {"loss": loss, "loss_options": {"alpha": jal["alpha"], "beta": jal["beta"] * 2 * jal["a"] / 10}}
    return override(recipe(f"cifar10/{'jal-ce' if loss == 'nce+mae' else loss}", noise=noise, seed=seed), changes)


def control_recipes() -> Iterator[Recipe]:
    for seed in SEEDS:
        for noise in NOISES:
            for loss in LOSSES:
                yield control_recipe(loss, noise, seed, l1=L1)
                yield control_recipe(loss, noise, seed, l2=L2)
    for seed in STRENGTHS_SEEDS:
        for loss in STRENGTHS_OF:
            yield from (control_recipe(loss, STRENGTHS_AT, seed, l1=strength) for strength in STRENGTHS)


def runs_in(file: Path) -> list[dict[str, Any]]:
    """The runs among results; none among those of another kind, as some of the files under records/ hold."""
    return read_records(file) if '"result"' in file.read_text(encoding="utf-8") else []


class Runner:
    """Runs recipes that are not among the results yet, and adds theirs."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.given, self.options, self.store = given, RunOptions(device_named(given.device)), RunStore(given.out)

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--data", type=Path, required=True)
        parser.add_argument("--out", type=Path, required=True)
        parser.add_argument("--records", type=Path, required=True, help="results as JSON lines; new ones are added")
        parser.add_argument("--known", type=Path, nargs="*", default=[], help="more results, which are only read")
        parser.add_argument("--minutes", type=float, help="start nothing that would not end in this time")
        parser.add_argument("--retry-diverged", action="store_true", help="run those again that diverged")
        parser.add_argument("--epochs", type=int, help="fewer than the recipe's, to try the script out")
        parser.add_argument("--device", default="auto")
        parser.add_argument("--plan", action="store_true", help="only say what there is to do")

    def run(self, recipes: Iterable[Recipe], name: Callable[[Recipe], str]) -> None:
        """In this order; ``name`` says of a recipe in what it differs from the others."""
        given, wanted = self.given, list(recipes)
        if given.epochs is not None:
            short = {"epochs": given.epochs, **({} if self.options.device.type == "cuda" else {"precision": "float32"})}
            wanted = [override(one, short) for one in wanted]
        files = [*([given.records] if given.records.exists() else []), *given.known]
        known = [StoredRun("", Record.status_in(facts), facts) for file in files for facts in runs_in(file)]
        executor = LocalExecutor(self.options)
        machine = executor.machine
        speeds = RunCosts(machine, {(machine, *kind, "bf16"): seconds for kind, seconds in H200_EPOCH_SECONDS.items()})
        known += self.store.runs()
        for run in known:
            if run.status == "finished":
                speeds.add(run.facts)
        planned = plan_runs(wanted, known, retry=given.retry_diverged)
        todo = [run for run in planned if run.status not in ENDED]
        minutes = sum(speeds.seconds(run) or 0.0 for run in todo) / 60
        print(f"{len(planned) - len(todo)} of {len(planned)} runs are done, about {minutes:.0f} min left", flush=True)
        if given.plan:
            return
        keeper = RecordsFile(given.records, self.store)
        keeper.add_folders(run.stored.folder for run in planned if run.stored and run.status in ENDED)

        by_recipe = {id(run.recipe): run for run in todo}

        def ended(recipe: Recipe, outcome: AnyOutcome) -> None:
            try:
                keeper.add_outcome(recipe, outcome)
            except (OSError, ValueError) as error:  # the run's folder has it, and the next call adds it
                print(f"not added to the records: {error}", flush=True)
            result = str(outcome)
            if isinstance(outcome, Outcome):
                speeds.add(outcome.record.as_dict(), just_now=True)
                result = f"{100 * outcome.record.result['test_accuracy']:.2f} %"
            print(f"{name(recipe)} seed {recipe.seed}: {result}", flush=True)

        def seconds(recipe: Recipe, width: int) -> float | None:
            return speeds.until_end(by_recipe[id(recipe)], width)

        recipes = [run.recipe for run in todo]
        runs = RunList(recipes, self.store, given.data, minutes=given.minutes, seconds=seconds, on_outcome=ended)
        with sigterm_as_ctrl_c() as stopped:
            try:
                outcomes = RunListOutcome(todo, executor.run(runs))
            except KeyboardInterrupt:
                print("stopped; the same command resumes it", flush=True)
                os._exit(stopped.status)  # a thread that compiles cannot be interrupted
        left = len(outcomes.not_started) + len(outcomes.busy)
        print(f"{len(outcomes.finished)} finished, {len(outcomes.failed)} failed, {left} left for the next call")
        if outcomes.disk_error is not None:
            print(f"no space: {outcomes.disk_error}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    Runner.add_arguments(parser)
    Runner(parser.parse_args()).run(control_recipes(), lambda one: f"{one.loss:8} {one.noise:14} l1 {one.l1:g} l2 {one.l2:g}")


if __name__ == "__main__":
    main()
