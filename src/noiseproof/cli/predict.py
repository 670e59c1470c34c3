"""``noiseproof predict``: the classes and probabilities of new examples, by the network of a finished run."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from noiseproof.cli.fit import Metrics
from noiseproof.cli.options import Label, runs
from noiseproof.cli.train import Device
from noiseproof.io.console import (
    Console,
    ProgressBar,
    console,
    errors_reported,
    fail,
    import_local_modules,
    stoppable,
    warn,
)

if TYPE_CHECKING:
    from noiseproof.train import PredictionTable
    from noiseproof.train.trained import PredictionFormat


class Format(StrEnum):
    csv = "csv"
    npz = "npz"
    json = "json"


HELP = "Predict with this model: the folder of a fit or of a finished run, or its weights.safetensors."
Run = Annotated[str, typer.Argument(metavar="MODEL", help=HELP, autocompletion=runs)]
Data = Annotated[
    str,
    typer.Option(metavar="PLACE", help="Predict these examples: a table, an .npz file, image files or a data set with a name."),
]
Out = Annotated[str, typer.Option(metavar="FILE", help="Write the predictions into this file; - is standard output.")]
Written = Annotated[
    Format | None,
    typer.Option(
        "--format", help="Write this format instead of the one in the file's name; json contains a line for each example."
    ),
]
Model = Annotated[
    str | None, typer.Option(help="Build the network with this package.module:function, if the run was trained with one.")
]
Workers = Annotated[int, typer.Option(help="Decode image files in this number of processes, where there are many.", min=0)]
Function = Annotated[
    str | None,
    typer.Option("--encoder", help="Allow this module:function to embed the model's texts or images; no file may call it."),
]
DECIDED = "Decide for this metric instead of the one the model was fitted for."
Metric = Annotated[Metrics | None, typer.Option(help=DECIDED)]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print nothing but warnings and errors.")]


def predict(
    run: Run,
    data: Data,
    out: Out,
    label: Label = None,
    written: Written = None,
    model: Model = None,
    device: Device = "auto",
    workers: Workers = 2,
    encoder: Function = None,
    metric: Metric = None,
    quiet: Quiet = False,
) -> None:
    """Predict new examples with a fitted model, or with the network of a finished run.

    PLACE contains examples of the kind that the model was trained on. They are preprocessed as in training. If they contain
    labels, the accuracy is reported too.

    A table must contain the columns of training, which are found by name; other columns are ignored. Labels are read from
    the column of the same name as in training, or from the one that --label names. An .npz file contains an array x, and
    optionally y. Images can be one file, a folder of images, a folder with one sub-folder per class, or a list of lines
    "path" or "path label". Of a data set with a name, the test split is predicted.

    A CSV file contains the columns index, path, predicted and probability, then p_CLASS for each class; with more than 100
    classes only the five likeliest. JSON contains a line with the same for each example. An .npz file contains the arrays
    probabilities [N, K], predicted [N], classes [K] (names), index [N] and, for files, path [N].
    """
    import torch

    from noiseproof.fitting import is_model
    from noiseproof.train import load, predict_data
    from noiseproof.train.plan import device_named

    try:
        with stoppable(lambda: "nothing was written"), errors_reported():
            form = _form(out, written, data)
            import_local_modules(model, encoder)
            if encoder is not None:
                _allow(encoder)
            if is_model(run):
                table = _by_fitted_model(run, data, label, metric)
            else:
                with _warnings_printed():
                    trained = load(run, device_named(device), model=model)
                table = predict_data(trained, data, label=label, workers=workers)
            with _bar(table, quiet):
                table.save(sys.stdout if out == "-" else out, form)
            if table.data.note:
                warn(table.data.note)
            if not quiet:
                _print_summary(table, out)
    except torch.OutOfMemoryError:
        fail(f"the memory of {device} is not enough; --device cpu uses the computer's")


def _by_fitted_model(folder: str, data: str, label: str | None, metric: Metrics | None) -> PredictionTable:
    from noiseproof.fitting import FittedModel
    from noiseproof.train.trained import PredictionTable

    model = FittedModel.load(folder)
    decide = partial(model.decide, metric=None if metric is None else metric.value)
    return PredictionTable(model, model.read(data, label), data, decide=decide)


def _allow(encoder: str) -> None:
    """Let the model call a function that embeds texts or images."""
    from noiseproof.data.embeddings import is_function, load_encoder

    if not is_function(encoder):
        raise ValueError(f"--encoder is module:function here, got {encoder!r}; another encoder is part of the model")
    load_encoder(encoder, "text")
    load_encoder(encoder, "image")


def _form(out: str, written: Format | None, data: str) -> PredictionFormat:
    from noiseproof.io.files import file_and_name
    from noiseproof.train.trained import format_of

    try:
        form = format_of(out) if written is None else written.value
    except ValueError as error:
        raise ValueError(f"--out {out}: {error}; --format says which") from None
    if out == "-" and form == "npz":
        raise ValueError("--out - is for csv and json; npz is not text: give --out FILE")
    if out == "-":
        return form
    file, given = Path(out).expanduser(), file_and_name(data)[0]
    if not file.parent.is_dir():
        raise FileNotFoundError(f"--out {out}: no folder {file.parent}")
    if file.exists() and given.exists() and file.samefile(given):
        raise ValueError(f"--out {out}: the data would be written over; choose another file")
    return form


def _print_summary(table: PredictionTable, out: str) -> None:
    lines = [f"{table.done} examples predicted" + ("" if out == "-" else f": {out}")]
    if table.accuracy is not None:
        lines.append(f"{100 * table.accuracy:.2f} % of the labels in {table.place} are predicted")
    for line in lines:
        (Console(stderr=True) if out == "-" else console).print(escape(line), highlight=False, soft_wrap=True)


@contextmanager
def _bar(table: PredictionTable, quiet: bool) -> Iterator[None]:
    """A bar on a terminal while the predictions are computed."""
    error, total = Console(stderr=True), len(table.data.examples)
    with ProgressBar(None if quiet else error) as bar:
        table.on_batch = lambda done: bar.update("predicting", done, total, f"{done}/{total}  {bar.left(done, total)}")
        yield


@contextmanager
def _warnings_printed() -> Iterator[None]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        yield
    for found in caught:
        warn(str(found.message))
