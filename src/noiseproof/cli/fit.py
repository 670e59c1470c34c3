"""``noiseproof fit``: a model from partly wrong labels, with a verdict on the labels and on the model."""

from __future__ import annotations

import json
import shlex
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from noiseproof.cli.options import (
    Columns,
    DropUnlabelled,
    Encoder,
    Label,
    SplitColumn,
    Test,
    datasets,
    print_columns,
    reading_from,
)
from noiseproof.cli.train import Json
from noiseproof.io.console import (
    Console,
    ProgressBar,
    console,
    duration,
    errors_reported,
    fail,
    stoppable,
    warn,
)
from noiseproof.io.text import command_options

if TYPE_CHECKING:
    from noiseproof.data import Dataset
    from noiseproof.fitting import FittedModel
    from noiseproof.learners.crossfit import Stage


class Metrics(StrEnum):
    accuracy = "accuracy"
    balanced_accuracy = "balanced_accuracy"
    f1_macro = "f1_macro"


class ClassWeights(StrEnum):
    balanced = "balanced"


PLACE = "Learn from a table (.csv, .tsv, .parquet, .jsonl), an .npz file, images or a data set with a name."
Data = Annotated[str, typer.Argument(metavar="DATA", help=PLACE, autocompletion=datasets)]
Labels = Annotated[str | None, typer.Option(metavar="FILE", help="Learn the labels in this file instead of the data's own.")]
Out = Annotated[Path, typer.Option(metavar="DIR", help="Write the model and its report into this folder.")]
Groups = Annotated[str | None, typer.Option(metavar="COLUMN", help="Keep rows with the same value in this column in one fold.")]
Metric = Annotated[Metrics, typer.Option(help="Choose the metric that predictions are decided for.")]
ClassWeight = Annotated[ClassWeights | None, typer.Option(help="Give every class the same weight in training (balanced).")]
Quick = Annotated[
    bool, typer.Option("--quick", help="Train fewer learners in fewer folds: a fifth of the time, less accurate.")
]
Minutes = Annotated[
    float | None, typer.Option(help="Leave out the costliest learners to end within this number of minutes.", min=0.01)
]
Learners = Annotated[
    str | None, typer.Option(metavar="NAMES", help="Train these learners, separated by commas; all by default.")
]
Folds = Annotated[int | None, typer.Option(help="Cross-validate with this number of folds; 5 by default.", min=2)]
Seed = Annotated[int, typer.Option(help="Set the random seed of the folds and the learners.", min=0, max=2**32 - 1)]
Threads = Annotated[
    int | None, typer.Option(help="Use this number of threads for each task; 1 by default, with a task on each core.", min=1)
]
Shown = Annotated[
    int,
    typer.Option(
        "--examples", metavar="N", help="Show at most this number of flagged examples on the page.", min=1, max=20_000
    ),
]
Engine = Annotated[str, typer.Option(help="Train the learners here (local), or on the machines of a Ray cluster (ray).")]
Address = Annotated[
    str | None, typer.Option(help="Connect to the Ray cluster at this address; by default a new one starts on this machine.")
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print the verdict only, and warnings on stderr.")]
MAX_WARNINGS = 6


def fit(
    data: Data,
    label: Label = None,
    labels: Labels = None,
    out: Out = Path("model"),
    columns: Columns = None,
    test: Test = None,
    split_column: SplitColumn = None,
    groups: Groups = None,
    metric: Metric = Metrics.accuracy,
    class_weight: ClassWeight = None,
    quick: Quick = False,
    minutes: Minutes = None,
    learners: Learners = None,
    folds: Folds = None,
    seed: Seed = 0,
    threads: Threads = None,
    engine: Engine = "local",
    address: Address = None,
    drop_unlabelled: DropUnlabelled = False,
    encoder: Encoder = None,
    examples: Shown = 10_000,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Fit a classifier to noisy labels, and estimate how many labels are wrong and how accurate the model is.

    Learners of several kinds (logistic regression, forests, boosting, neighbours, networks) are cross-validated. From their
    predictions, a noise model estimates the transition matrix and the weight of each learner, and combines them. After an
    interruption, the same command resumes. The same seed gives the same model.

    The folder contains the model, for *noiseproof predict* and *noiseproof.load*. **report.html** is an offline page with
    the verdict, the leaderboard, the transition matrix and the flagged labels. **audit.csv** contains a line for every
    label.
    """
    shown_on = None if quiet else Console(stderr=True) if as_json else console
    options: dict[str, Any] = {
        "metric": metric.value,
        "class_weight": None if class_weight is None else class_weight.value,
        "quick": quick,
    }
    options |= {"minutes": minutes, "learners": learners, "folds": folds, "seed": seed, "threads": threads, "groups": groups}
    options |= {"engine": engine, "address": address}
    with errors_reported():
        from noiseproof.data.opening import with_given_labels
        from noiseproof.fitting.run import training_data

        reading = reading_from(label, columns, test, split_column, drop_unlabelled, encoder)
        opened = training_data(data, groups=groups, **reading)
        dataset = with_given_labels(opened, labels)
        print_columns(dataset.table, dataset.classes, shown_on)
        model = _fitted(dataset, out, options, shown_on)
        from noiseproof.report.fit_page import write_fit

        asked = command_options({name: value for name, value in reading.items() if name != "test"})
        given: dict[str, Any] = {"labels": labels, "own": opened.train.labels, "options": asked}
        write_fit(model, dataset, out, place=data, seed=seed, shown=examples, **given)
    if as_json:
        for text in model.verdict.notes[:MAX_WARNINGS]:
            warn(text)
        typer.echo(json.dumps({"folder": str(out), **model.verdict.as_dict()}))
    else:
        _print_verdict(model, dataset, data, out)


def _fitted(dataset: Dataset, out: Path, options: dict[str, Any], shown_on: Console | None) -> FittedModel:
    from noiseproof.fitting.run import fit as fit_model

    progress = FitProgress(shown_on)
    with stoppable(lambda: f"the same command {progress.resumes} in {out}"), progress:
        try:
            return fit_model(dataset, folder=out, progress=progress, **options)
        except MemoryError as error:
            fail(f"{str(error) or 'the memory is not enough'}; --quick needs less, and --learners names some")


def _print_verdict(model: FittedModel, dataset: Dataset, data: str, out: Path) -> None:
    first, *rest = model.verdict.lines
    console.print(f"[bold]{escape(first)}[/]", soft_wrap=True)
    for line in rest:
        console.print(escape(line), soft_wrap=True)
    notes = [*model.verdict.left_out, *model.verdict.notes]
    for text in notes[:MAX_WARNINGS]:
        warn(text)
    if (more := len(notes) - MAX_WARNINGS) > 0:
        warn(f"and {more} more, in report.html")
    page, place = escape(str(out / "report.html")), escape(shlex.quote(str(out)))
    console.print(f"{page} shows the leaderboard and the flagged labels; audit.csv lists all labels", soft_wrap=True)
    console.print(f"next: noiseproof predict {place} --data NEW --out predictions.csv", soft_wrap=True)


class FitProgress(ProgressBar):
    """Shows which part of a fit or of an audit is computed and how long it takes."""

    def __init__(self, shown: Console | None) -> None:
        super().__init__(shown)
        self.done = self.total = 0

    def __call__(self, stage: Stage) -> None:
        if stage.total > 1:
            self.done, self.total = stage.done, stage.total
        left = "" if stage.seconds_left is None else f"{duration(stage.seconds_left)} left"
        self.update(stage.name, self.done, self.total, left)
        if self.is_due:
            self.line(f"{stage.name}  {self.done}/{self.total}  {left}".rstrip())

    @property
    def resumes(self) -> str:
        """What the same command does after this one was stopped."""
        return f"resumes after {self.done} of {self.total} parts" if self.done else "starts anew"
