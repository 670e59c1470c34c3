"""``noiseproof audit``: which labels of a data set look wrong, as files and a page, and what a person decided on them."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from noiseproof.cli.fit import FitProgress, Folds, Shown
from noiseproof.cli.options import Columns, DropUnlabelled, Encoder, Label, SplitColumn, datasets, print_columns, reading_from
from noiseproof.cli.train import Device, Json, Model, Workers
from noiseproof.io.console import (
    Console,
    ProgressBar,
    console,
    errors_reported,
    import_local_modules,
    printable,
    say,
    stoppable,
    warn,
)
from noiseproof.io.text import command_options

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from noiseproof.audit import Audit, Progress
    from noiseproof.data import Dataset, Examples

PLACE = "Audit a table with a column of labels, an .npz file, images (a folder or a list) or a data set with a name."
Data = Annotated[str, typer.Argument(metavar="DATA", help=PLACE, autocompletion=datasets)]
Labels = Annotated[str | None, typer.Option(metavar="FILE", help="Audit the labels in this file instead of the data's own.")]
Features = Annotated[
    str | None, typer.Option(metavar="FILE", help="Find nearest neighbours by these features [N, D], .npy or .npz.")
]
Probabilities = Annotated[
    str | None,
    typer.Option(
        metavar="FILE", help="Audit with your model's out-of-sample predictions [N, K], .npy, .npz or .csv, and train nothing."
    ),
]
Quick = Annotated[
    bool,
    typer.Option("--quick", help="Train fewer learners, or one network on all labels: several times faster, less accurate."),
]
Epochs = Annotated[
    int | None,
    typer.Option(help="Train networks for this number of epochs; for images the default depends on their size.", min=1),
]
Seed = Annotated[
    int, typer.Option(help="Set the random seed of the folds, the networks and the bootstrap.", min=0, max=2**32 - 1)
]
Out = Annotated[Path, typer.Option(metavar="DIR", help="Write the results into this folder.")]
Decisions = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Apply the decisions that the audit page exported and write the data, without training."),
]
Threads = Annotated[
    int | None,
    typer.Option(help="Use this number of threads for each task; 1 by default for learners and small networks.", min=1),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print the summary only, and warnings on stderr.")]
MAX_WARNINGS = 8


def audit(
    data: Data,
    labels: Labels = None,
    label: Label = None,
    columns: Columns = None,
    split_column: SplitColumn = None,
    drop_unlabelled: DropUnlabelled = False,
    encoder: Encoder = None,
    features: Features = None,
    probabilities: Probabilities = None,
    quick: Quick = False,
    folds: Folds = None,
    epochs: Epochs = None,
    seed: Seed = 0,
    model: Model = None,
    out: Out = Path("audit"),
    decisions: Decisions = None,
    examples: Shown = 10_000,
    device: Device = "auto",
    workers: Workers = 2,
    threads: Threads = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Find label errors, and estimate the noise rate and which classes are mistaken for which.

    For tables and embeddings, the learners of *noiseproof fit* predict each example out of fold. For images, and for
    features with --model or --epochs, networks with a noise-robust loss do so; without a GPU the network is the small cnn5.
    With --probabilities, the audit uses the predictions of a model of yours. After an interruption, the same command
    resumes.

    The folder contains **audit.html**, an offline page with the verdict, the transition matrix, every class and the flagged
    examples to keep, relabel or drop. **audit.csv** contains a line for every label: index, path, given, suggested,
    p_wrong, p_suggested, flagged, fold, warning. **transition.csv** contains the transition matrix. **posterior.npz**
    contains soft labels for *noiseproof train --labels*: the probability of every class for every example.

    The page exports decisions as a CSV file. With --decisions and the same DATA, they are applied: **cleaned.npz** or
    **cleaned.csv** contains the data with the new labels and without dropped examples, for *noiseproof fit*. You can also
    add a column *decision* to audit.csv and pass that file.

    A table can be CSV, TSV, Parquet, Feather or JSON Lines, with numbers, categories, dates, text and missing values. The
    labels are in the column called label, class, target or y, or in the last column; --label names another one. The
    inferred type of each column is printed, and --columns changes it.
    """
    training = {"quick": quick, "folds": folds, "epochs": epochs, "model": model}
    with errors_reported():
        from noiseproof.data import open_dataset
        from noiseproof.data.opening import with_given_labels

        reading = reading_from(label, columns, None, split_column, drop_unlabelled, encoder)
        opened = open_dataset(data, **reading)
        dataset = with_given_labels(opened, labels)
        if decisions is not None:
            _apply_decisions(dataset, data, {**_label_of(data), **reading}, decisions, out, as_json)
            return
        shown_on = None if quiet else Console(stderr=True) if as_json else console
        print_columns(dataset.table, dataset.classes, shown_on)
        near = None if features is None else _read_features(features, len(dataset.train))
        found = None if probabilities is None else _audit_predictions(dataset, data, probabilities, near, seed, training)
    if found is None:
        options = {**training, "features": near, "seed": seed, "workers": workers}
        options["threads"] = threads
        found = _audit_by_training(dataset, data, options, device, out, shown_on)
    with errors_reported():
        from noiseproof.report.audit_page import write_audit

        page: dict[str, Any] = {"labels": labels, "own": opened.train.labels, "options": command_options(reading)}
        page |= {"shown": examples, "features": near}
        commands = write_audit(found, dataset, out, place=data, seed=seed, **page)
    if as_json:
        _print_warnings(found)
        typer.echo(json.dumps({"folder": str(out), **found.as_dict()}))
    else:
        _print_summary(found, dataset.name, out, commands)


def _read_features(file: str, rows: int) -> NDArray[Any]:
    from noiseproof.audit.probabilities import check_features
    from noiseproof.noise.files import read_matrix

    found = read_matrix(file, "features")
    with _file_named(file):
        return check_features(found, rows)


@contextmanager
def _file_named(file: str, data: str = "") -> Iterator[None]:
    """Begin an error with the file that it is about, and the data that it is for, where these may be at fault."""
    from noiseproof.io.files import file_and_name

    try:
        yield
    except (ValueError, TypeError) as error:
        raise ValueError(f"{file_and_name(file)[0]}{f' for {data}' if data else ''}: {error}") from error


def _audit_predictions(
    dataset: Dataset, place: str, file: str, features: NDArray[Any] | None, seed: int, training: dict[str, Any]
) -> Audit:
    from noiseproof.audit.probabilities import audit_probabilities, column_classes
    from noiseproof.noise.files import read_predictions

    if unused := [name for name, value in training.items() if value]:
        raise ValueError(f"with --probabilities nothing is trained, so --{unused[0]} says nothing; leave one of the two out")
    p = read_predictions(file, dataset.classes)
    with _file_named(file, place):
        classes = column_classes(p, dataset.classes)
        return audit_probabilities(p, dataset.train.labels, features=features, classes=classes, seed=seed)


def _audit_by_training(
    dataset: Dataset, place: str, options: dict[str, Any], device: str, out: Path, shown_on: Console | None
) -> Audit:
    from noiseproof.audit.folds import uses_small_network
    from noiseproof.audit.labels import audit_labels
    from noiseproof.data import check_classes
    from noiseproof.train import OutOfMemoryError
    from noiseproof.train.plan import NO_GPU, device_named
    from noiseproof.train.training_data import table_warnings

    progress = progress_of(dataset.train, shown_on, options["model"], options["epochs"])
    with stoppable(lambda: f"the same command {progress.resumes} in {out}"), progress, errors_reported():
        check_classes(dataset, place)
        for text in table_warnings(dataset.classes, dataset.table):
            warn(text)
        try:
            import_local_modules(options["model"])
            given = {name: value for name, value in options.items() if value is not None}
            given |= {"folder": out / "folds", "device": device_named(device)}
            if shown_on is not None and uses_small_network(dataset.train, options["model"], given["device"]):
                shown_on.print(NO_GPU, soft_wrap=True)
            return audit_labels(dataset, progress=progress, **given)
        except OutOfMemoryError as error:
            raise ValueError(str(error)) from error


def _label_of(place: str) -> dict[str, str]:
    """The column that FILE#COLUMN names."""
    from noiseproof.io.files import file_and_name

    column = file_and_name(place)[1]
    return {} if column is None else {"label": column}


def _apply_decisions(dataset: Dataset, place: str, reading: dict[str, Any], decisions: Path, out: Path, as_json: bool) -> None:
    """Write the data with the decisions applied, and print how many there are."""
    from noiseproof.audit.decisions import apply_decisions

    found, written = apply_decisions(dataset, place, decisions, out)
    if as_json:
        typer.echo(json.dumps({"file": str(written), **found.counts, "examples": int(found.kept.sum())}))
        return
    counts = ", ".join(
        f"{count} {word}" for word, count in zip(("kept", "relabelled", "dropped"), found.counts.values(), strict=True)
    )
    say(f"{counts} by decision; {int(found.kept.sum())} examples in {written}")
    say(f"next: noiseproof fit {shlex.join([str(written), *command_options(reading), '--out', str(out / 'model')])}")


def _print_summary(audit: Audit, name: str, out: Path, commands: dict[str, str]) -> None:
    """The summary in a few lines, warnings, where its files are, and what to run next."""
    headline, sentences = audit.summary()
    console.print(f"[bold]{escape(printable(name))}: {escape(headline[0].lower() + headline[1:])}[/]", soft_wrap=True)
    say(*sentences)
    _print_warnings(audit)
    say(f"{out / 'audit.html'} shows those flagged and takes decisions; audit.csv lists all labels")
    say(*(f"next, {purpose}: {command}" for purpose, command in commands.items()))


def _print_warnings(audit: Audit) -> None:
    """The first ones, on stderr."""
    for text in audit.warnings[:MAX_WARNINGS]:
        warn(text)
    if (further := len(audit.warnings) - MAX_WARNINGS) > 0:
        warn(f"and {further} more, in audit.html with the classes")


def progress_of(
    examples: Examples, shown: Console | None, model: str | None = None, epochs: int | None = None
) -> FitProgress | AuditProgress:
    """What shows how far the training of an audit of these examples is."""
    from noiseproof.audit.labels import learnt_by_learners

    return FitProgress(shown) if learnt_by_learners(examples, model, epochs) else AuditProgress(shown)


class AuditProgress(ProgressBar):
    """Shows how far the training of an audit is: a bar on a terminal, else lines, one for each network at least."""

    def __init__(self, shown: Console | None) -> None:
        super().__init__(shown)
        self.done = self.networks = 0

    def __call__(self, progress: Progress) -> None:
        stored, ended = progress.state == "trained before", progress.state != "training"
        if stored:  # which does not measure the pace
            self.begin(progress.done)
        one_stage = progress.total == progress.folds * progress.epochs and progress.stage == "given labels"
        self.networks = progress.folds * (1 if one_stage else 2)
        self.done += ended
        label, left = f"{progress.stage}, network {progress.fold}/{progress.folds}", self.left(progress.done, progress.total)
        self.update(label, progress.done, progress.total, left)
        if self.bar.disable and (ended or (progress.epoch < progress.epochs and self.is_due)):
            self.line(f"{label}  " + ("trained before" if stored else f"epoch {progress.epoch}/{progress.epochs}  {left}"))

    @property
    def resumes(self) -> str:
        """What the same command does after this one was stopped."""
        return f"resumes after {self.done} of {self.networks} networks" if self.done else "starts anew"
