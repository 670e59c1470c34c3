"""``noiseproof demo``."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from noiseproof.cli.output import console, fail

if TYPE_CHECKING:
    from noiseproof.train import Outcome, Recipe


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the figure and the numbers.")] = Path("noiseproof-demo"),
    noise: Annotated[float, typer.Option(help="Share of training labels made wrong, symmetric.", min=0.0, max=0.89)] = 0.6,
    epochs: Annotated[int, typer.Option(help="Passes over the training set.", min=1)] = 100,
    seed: Annotated[int, typer.Option(help="Seed of the noise, the network and the order.", min=0, max=2**32 - 1)] = 0,
) -> None:
    """Train on handwritten digits with wrong labels: cross entropy against the robust losses, in a minute."""
    from noiseproof import demo as demonstration

    try:
        out.mkdir(parents=True, exist_ok=True)  # before the training, not after it
        outcomes = _run(demonstration.recipes(noise, epochs=epochs, seed=seed))
        demonstration.show(outcomes, out, console)
    except OSError as error:
        fail(error)


def _run(chosen: list[Recipe]) -> list[Outcome]:
    """Train as each recipe says; the runs themselves are not kept."""
    from noiseproof.cli.compare import ComparisonDisplay
    from noiseproof.comparison.runs import ComparisonRuns, Competitor
    from noiseproof.train import RunOptions, RunStore, prepare, train

    with TemporaryDirectory() as folder:
        store, field = RunStore(folder), [Competitor(recipe.loss, {recipe.seed: recipe}) for recipe in chosen]
        runs = ComparisonRuns(field, prepare, store, None, RunOptions())
        task = runs.data
        wrong = 0 if task.wrong is None else int(task.wrong.sum())
        test = 0 if task.test is None else len(task.test)
        about = f"{len(task.train)} handwritten digits, {wrong} of them with a wrong label; {test} to test on."
        with ComparisonDisplay(console) as display:
            display.on_begin(about, len(chosen), sum(recipe.epochs for recipe in chosen))
            for error in runs.train(None, display):
                fail(error)
        return [train(recipe, task, folder=store.folder_for(recipe)) for recipe in chosen]  # reads what is finished
