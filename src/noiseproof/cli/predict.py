"""``noiseproof predict``: the classes and probabilities of new examples, by the network of a finished run."""

from __future__ import annotations

import csv
import json
import os
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple, TextIO

import typer
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from noiseproof.cli.output import Console, console, errors_reported, fail, warn
from noiseproof.cli.stopping import sigterm_as_ctrl_c
from noiseproof.io.text import cell

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from noiseproof.data import Unlabelled
    from noiseproof.train import TrainedClassifier

__all__ = ["predict"]


class Format(StrEnum):
    csv = "csv"
    npz = "npz"
    json = "json"


Run = Annotated[str, typer.Argument(metavar="RUN", help="Folder of a finished run, or its weights.safetensors.")]
Data = Annotated[
    str, typer.Option(metavar="PLACE", help="An .npz file, a CSV of features, a folder or list of images, or an image.")
]
Out = Annotated[str, typer.Option(metavar="FILE", help="Where to write; - is standard output.")]
Written = Annotated[Format | None, typer.Option("--format", help="json has a line for each example; else as FILE is called.")]
Model = Annotated[str | None, typer.Option(help="The package.module:function of a run that was trained with one.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:1.")]
Workers = Annotated[int, typer.Option(help="Processes that decode image files, where there are many.", min=0)]
SkipCorrupt = Annotated[bool, typer.Option("--skip-corrupt", help="Leave out damaged image files instead of stopping.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print nothing but warnings and errors.")]

SUFFIXES = {
    ".csv": Format.csv, ".txt": Format.csv, "": Format.csv, ".npz": Format.npz, ".json": Format.json, ".jsonl": Format.json,
}  # fmt: skip
MANY, TOP = 100, 5
"""From more classes than these, the probabilities of the likeliest few are written"""
FEW = 256
"""Image files for each worker: starting one takes as long as decoding some hundreds"""
DIGITS = 6


def predict(
    run: Run,
    data: Data,
    out: Out,
    written: Written = None,
    model: Model = None,
    device: Device = "auto",
    workers: Workers = 2,
    skip_corrupt: SkipCorrupt = False,
    quiet: Quiet = False,
) -> None:
    """Predict new examples with the network of a finished run; its preprocessing is part of it.

    PLACE has examples of the kind that the run was trained on, with or without labels; with them the share that is predicted is
    said too. An .npz file has an array x, and y if labels are known; a CSV has the columns of features, by the names that they
    had in training or in that order, and a column of labels if they are known (FILE#COLUMN says which); images are one file, a
    folder of images, a folder with one sub-folder per class, or a list of lines "path" or "path label".

    A CSV has the columns index, path, predicted, probability, then p_CLASS for each class; from more than 100 classes the
    five likeliest. JSON has a line with the same for each example. An .npz file has the arrays probabilities [N, K], predicted
    [N], classes [K] (names), index [N] and, for files, path [N].
    """
    import torch

    from noiseproof.cli.plan import device_named
    from noiseproof.data import open_unlabelled
    from noiseproof.train import load

    try:
        with sigterm_as_ctrl_c() as stopped, errors_reported():
            form = _form(out, written, data)
            if model is not None:
                sys.path.insert(0, os.getcwd())  # where a user's own module usually is
            with _warnings_said():
                trained = load(run, device_named(device), model=model)
            found = open_unlabelled(data, trained.classes, trained.features, trained.columns)
            results = Results(trained, found, min(workers, len(found.examples) // FEW), skip_corrupt)
            with _bar(results, quiet), _data_named(data):
                _write(results, form, out)
            if found.note:
                warn(found.note)
            if not quiet:
                _say(results, data, out)
    except torch.OutOfMemoryError:
        fail(f"the memory of {device} is not enough; --device cpu uses the computer's")
    except KeyboardInterrupt:
        Console(stderr=True).print("stopped; nothing was written", highlight=False)
        raise typer.Exit(stopped.status) from None


class Part(NamedTuple):
    """The predictions of a batch."""

    positions: NDArray[np.int64]
    predicted: NDArray[np.int64]
    probabilities: NDArray[np.float32]


@dataclass
class Results:
    """The predictions, computed batch by batch while they are read, once."""

    trained: TrainedClassifier
    found: Unlabelled
    workers: int
    skip_corrupt: bool
    done: int = 0
    right: int = 0
    on_part: Callable[[int], None] = lambda done: None
    """Is told how many examples are done"""

    @property
    def names(self) -> list[str]:
        """Of the classes; two of one name are told apart by their numbers."""
        counts = Counter(self.trained.classes)
        return [name if counts[name] == 1 else f"{name} ({k})" for k, name in enumerate(self.trained.classes)]

    def path(self, index: int) -> str:
        return "" if self.found.names is None else self.found.names[index]

    def __iter__(self) -> Iterator[Part]:
        import torch

        given = self.trained.batches(self.found.examples, workers=self.workers, skip_corrupt=self.skip_corrupt)
        for positions, logits in given:
            part = Part(positions, logits.argmax(1).cpu().numpy(), torch.softmax(logits, 1).cpu().numpy())
            self.done += len(positions)
            if self.found.labels is not None:
                self.right += int((part.predicted == self.found.labels[positions]).sum())
            yield part
            self.on_part(self.done)

    def rows(self) -> Iterator[tuple[int, int, NDArray[np.float32]]]:
        """Of each example the position, the predicted class, and the probabilities."""
        for part in self:
            yield from zip(part.positions.tolist(), part.predicted.tolist(), part.probabilities, strict=True)


def _form(out: str, written: Format | None, data: str) -> Format:
    from noiseproof.io.files import exists, file_and_name, is_dir

    form = written or SUFFIXES.get(suffix := Path(out).suffix.lower())
    if form is None:
        raise ValueError(f"--out {out}: predictions are written as .csv, .npz or .json, got {suffix!r}; --format says which")
    if out == "-" and form is Format.npz:
        raise ValueError("--out - is for csv and json; npz is not text: give --out FILE")
    if out == "-":
        return form
    file, given = Path(out).expanduser(), file_and_name(data)[0]
    if not is_dir(file.parent):
        raise FileNotFoundError(f"--out {out}: no folder {file.parent}")
    if exists(file) and exists(given) and file.samefile(given):
        raise ValueError(f"--out {out}: the data would be written over; choose another file")
    return form


def _write(results: Results, form: Format, out: str) -> None:
    from noiseproof.io.files import write_whole

    write = {Format.csv: _write_csv, Format.json: _write_json}.get(form)
    if write is None:
        write_whole(Path(out).expanduser(), lambda place: _write_npz(results, place))
    elif out == "-":
        write(results, sys.stdout)
    else:

        def save(place: Path) -> None:
            with place.open("w", encoding="utf-8", newline="") as file:
                write(results, file)

        write_whole(Path(out).expanduser(), save)


def _write_csv(results: Results, file: TextIO) -> None:
    writer = csv.writer(file, lineterminator="\n")
    names = [cell(name) for name in results.names]
    many = len(names) > MANY
    columns = [f"{what}_{k}" for k in range(1, TOP + 1) for what in ("class", "p")] if many else [f"p_{name}" for name in names]
    writer.writerow(["index", "path", "predicted", "probability", *columns])
    for index, predicted, shares in results.rows():
        likely = _likeliest(shares) if many else range(len(names))
        rest = [text for k in likely for text in ((names[k], _share(shares[k])) if many else (_share(shares[k]),))]
        writer.writerow([index, cell(results.path(index)), names[predicted], _share(shares[predicted]), *rest])


def _write_json(results: Results, file: TextIO) -> None:
    names = results.names
    for index, predicted, shares in results.rows():
        likely = _likeliest(shares) if len(names) > MANY else range(len(names))
        facts = {
            "index": index,
            "path": results.path(index) or None,
            "predicted": names[predicted],
            "probability": round(float(shares[predicted]), DIGITS),
            "probabilities": {names[k]: round(float(shares[k]), DIGITS) for k in likely},
        }
        file.write(json.dumps(facts) + "\n")


def _write_npz(results: Results, place: Path) -> None:
    import numpy as np

    parts = list(results)
    index, predicted, probabilities = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    arrays = {"probabilities": probabilities, "predicted": predicted, "index": index, "classes": np.array(results.names)}
    if results.found.names is not None:
        arrays["path"] = np.array([results.path(k) for k in index])
    with place.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)


def _likeliest(shares: NDArray[np.float32]) -> list[int]:
    import numpy as np

    return [int(k) for k in np.argsort(-shares, kind="stable")[:TOP]]


def _share(value: np.float32) -> str:
    return f"{value:.{DIGITS}f}"


def _say(results: Results, data: str, out: str) -> None:
    shown = Console(stderr=True) if out == "-" else console
    lines = [f"{results.done} examples predicted" + ("" if out == "-" else f": {out}")]
    if left := len(results.found.examples) - results.done:
        lines.append(f"damaged images left out: {left}")
    if results.found.labels is not None:
        lines.append(f"{100 * results.right / results.done:.2f} % of the labels in {data} are predicted")
    for line in lines:
        shown.print(escape(line), highlight=False, soft_wrap=True)


@contextmanager
def _bar(results: Results, quiet: bool) -> Iterator[None]:
    """A bar on a terminal while the results are read."""
    columns = (TextColumn("predicting"), BarColumn(None), MofNCompleteColumn(), TimeRemainingColumn())
    error = Console(stderr=True)
    with Progress(*columns, console=error, transient=True, disable=quiet or not error.is_terminal) as bar:
        task = bar.add_task("", total=len(results.found.examples))
        results.on_part = lambda done: bar.update(task, completed=done)
        yield


@contextmanager
def _data_named(data: str) -> Iterator[None]:
    """Say which data do not fit the network; an error of a file has its name."""
    from noiseproof.io.files import file_and_name

    try:
        yield
    except (ValueError, TypeError) as error:
        raise error if str(file_and_name(data)[0]) in str(error) else ValueError(f"{data}: {error}") from error


@contextmanager
def _warnings_said() -> Iterator[None]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        yield
    for found in caught:
        warn(str(found.message))
