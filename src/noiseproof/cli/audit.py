"""``noiseproof audit``: which labels of a data set look wrong, as files and a page, and what a person decided on them."""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from noiseproof.cli.output import Console, console, errors_reported, warn
from noiseproof.cli.stopping import sigterm_as_ctrl_c

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from noiseproof.audit import Audit
    from noiseproof.data import Dataset

__all__ = ["audit"]

PLACE = "An .npz file, a CSV of features with labels, an image folder, a list of image files, or a data set's name."
Data = Annotated[str, typer.Argument(metavar="DATA", help=PLACE)]
Labels = Annotated[str | None, typer.Option(metavar="FILE", help="The labels to audit, instead of the data's own.")]
LabelColumn = Annotated[str | None, typer.Option(metavar="NAME", help="Which column of a CSV has the labels.")]
Features = Annotated[
    str | None, typer.Option(metavar="FILE", help="Features [N, D], .npy or .npz: the nearest examples by them are heard too.")
]
Probabilities = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Your model's out-of-sample predictions [N, K], .npy, .npz or .csv: no training."),
]
Quick = Annotated[bool, typer.Option("--quick", help="Train one network on all labels; several times faster, less exact.")]
Folds = Annotated[int | None, typer.Option(help="Of the cross-validation; 5 if not said.", min=2)]
Epochs = Annotated[int | None, typer.Option(help="Of each network; by the kind of data if not said.", min=1)]
Seed = Annotated[int, typer.Option(help="Of the folds and the networks.", min=0, max=2**32 - 1)]
Model = Annotated[str | None, typer.Option(help="cnn5, cnn8, mlp, resnet18, resnet34, resnet50 or package.module:function.")]
Out = Annotated[Path, typer.Option(metavar="DIR", help="Folder for the files.")]
Decisions = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Decisions that the page exported: write the data with them, train nothing.")
]
Shown = Annotated[int, typer.Option("--examples", metavar="N", help="Suspicious examples on the page.", min=1, max=2000)]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:1.")]
Workers = Annotated[int, typer.Option(help="Processes that decode image files.", min=0)]
SkipCorrupt = Annotated[bool, typer.Option("--skip-corrupt", help="Leave out damaged image files instead of stopping.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print the verdict only, and warnings on stderr.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object only; progress goes to stderr.")]
PAGE = "audit.html"
NAMED = 10
"""Classes that an error names"""


def audit(
    data: Data,
    labels: Labels = None,
    label_column: LabelColumn = None,
    features: Features = None,
    probabilities: Probabilities = None,
    quick: Quick = False,
    folds: Folds = None,
    epochs: Epochs = None,
    seed: Seed = 0,
    model: Model = None,
    out: Out = Path("audit"),
    decisions: Decisions = None,
    examples: Shown = 200,
    device: Device = "auto",
    workers: Workers = 2,
    skip_corrupt: SkipCorrupt = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Which labels are wrong, how many are, and what they are mistaken for.

    Networks are trained with a noise-robust loss, each without a part of the examples that it then judges; --quick trains one
    on all of them. Without a GPU images are learnt by a small network, cnn5. --probabilities takes the predictions of a model
    of yours instead. Stopped and started again, finished networks are not trained again.

    The folder gets **audit.html**, an offline page with the verdict, the matrix, every class, and the most suspicious examples,
    to keep, relabel or drop; **audit.csv**, a line for every label: index, path, given, suggested, p_wrong, p_suggested,
    flagged, fold, warning; **transition.csv**, how often a class is given each label; and **posterior.npz**, the probability of
    every class for every example, which *noiseproof train --labels* takes as soft labels.

    The page exports decisions as a CSV file. With --decisions and the same DATA they are applied: **cleaned.npz** or
    **cleaned.csv** in the folder is the data with the new labels and without what was dropped, for *noiseproof train --data*.
    audit.csv with a column *decision* added will do as well.

    A CSV of features has a header, or numbers from the first line on. The labels are in the column called label, class, target
    or y, or in the last; --label-column says another. All others are numbers, but for one called id, name or path.
    """
    from noiseproof.cli.audit_view import as_json_text, print_verdict, print_warnings
    from noiseproof.cli.given_labels import with_given
    from noiseproof.data import open_dataset

    place = data if label_column is None else f"{data}#{label_column}"
    training = {"quick": quick, "folds": folds, "epochs": epochs, "model": model}
    with errors_reported():
        dataset = with_given(open_dataset(place), labels)
        if decisions is not None:
            _decided(dataset, place, decisions, out, as_json)
            return
        near = None if features is None else _features(features, len(dataset.train))
        found = None if probabilities is None else _by_probabilities(dataset, probabilities, near, seed, training)
    if found is None:
        how = {**training, "features": near, "seed": seed, "workers": workers, "skip_corrupt": skip_corrupt}
        shown_by = None if quiet else Console(stderr=True) if as_json else console
        found = _trained(dataset, place, how, device, out, shown_by)
    with errors_reported():
        commands = _next(place, labels, out)
        _write(found, dataset, place, labels, commands, seed, out, examples)
    if as_json:
        print_warnings(found)
        typer.echo(as_json_text(found, out))
    else:
        print_verdict(found, dataset.name, out, commands)


def _next(place: str, labels: str | None, out: Path) -> dict[str, str]:
    """What to run after an audit, by what it is for."""
    data, folder, soft = (shlex.quote(word) for word in (place, str(out), str(out / "posterior.npz")))
    return {
        "for the loss and settings that suit such labels": f"noiseproof advise {data}{_given(labels)} --noise {folder}",
        "to train on the probability of every class": f"noiseproof train jal-ce --data {data} --labels {soft}",
    }


def _given(labels: str | None) -> str:
    return "" if labels is None else f" --labels {shlex.quote(labels)}"


def _features(file: str, rows: int) -> NDArray[Any]:
    from noiseproof.audit.estimate import check_features
    from noiseproof.cli.matrices import read_matrix

    found = read_matrix(file, "features")
    with _named(file):
        return check_features(found, rows)


@contextmanager
def _named(file: str) -> Iterator[None]:
    """Say the file of an error."""
    from noiseproof.io.files import file_and_name

    try:
        yield
    except (ValueError, TypeError) as error:
        raise ValueError(f"{file_and_name(file)[0]}: {error}") from error


def _by_probabilities(dataset: Dataset, file: str, features: NDArray[Any] | None, seed: int, training: dict[str, Any]) -> Audit:
    from noiseproof.audit import audit_probabilities
    from noiseproof.cli.matrices import read_predictions
    from noiseproof.io.files import ReadError
    from noiseproof.io.text import excerpt

    if said := [name for name, value in training.items() if value]:
        raise ValueError(f"with --probabilities nothing is trained, so --{said[0]} says nothing; leave one of the two out")
    classes = dataset.classes
    p = read_predictions(file, classes)
    if p.ndim == 2 and p.shape[1] > len(classes) and classes == tuple(map(str, range(len(classes)))):
        classes = tuple(map(str, range(p.shape[1])))  # the last classes have no example
    if p.ndim == 2 and p.shape[1] > 1 and p.shape[1] != len(classes):
        named = ", ".join(excerpt(name, 40) for name in classes[:NAMED]) + (", ..." if len(classes) > NAMED else "")
        raise ReadError(
            file, f"{p.shape[1]} columns, and the data have {len(classes)} classes: {named}; one for each, in this order"
        )
    with _named(file):
        return audit_probabilities(p, dataset.train.labels, features=features, classes=classes, seed=seed)


def _trained(dataset: Dataset, place: str, how: dict[str, Any], device: str, out: Path, shown_by: Console | None) -> Audit:
    from noiseproof.audit import audit_labels
    from noiseproof.audit.folds import SMALL_NETWORK, uses_small_network
    from noiseproof.cli.audit_view import Followed
    from noiseproof.cli.doubts import table_doubts
    from noiseproof.cli.plan import device_named
    from noiseproof.data import check_classes
    from noiseproof.train import OutOfMemoryError

    with sigterm_as_ctrl_c() as stopped, Followed(shown_by) as followed, errors_reported():
        check_classes(dataset, place)
        for text in table_doubts(dataset.columns, dataset.train, dataset.train.labels, dataset.classes):
            warn(text)
        try:
            if ":" in (how["model"] or ""):
                sys.path.insert(0, os.getcwd())  # where a user's own module usually is
            options = {name: value for name, value in how.items() if value is not None}
            options |= {"folder": out / "folds", "device": device_named(device)}
            if shown_by is not None and uses_small_network(dataset.train, how["model"], options["device"]):
                text = f"no GPU: the images are learnt by a small network, {SMALL_NETWORK}; --model names another"
                shown_by.print(text, highlight=False, soft_wrap=True)
            return audit_labels(dataset.train, classes=dataset.classes, progress=followed, **options)
        except KeyboardInterrupt:
            followed.close()
            way = f"goes on after {followed.done} of {followed.networks} networks" if followed.done else "starts anew"
            text = f"stopped; the same command {way} in {escape(str(out))}"
            Console(stderr=True).print(text, highlight=False, soft_wrap=True)
            raise typer.Exit(stopped.status) from None
        except OutOfMemoryError as error:
            raise ValueError(str(error)) from error


def _write(
    found: Audit, dataset: Dataset, place: str, labels: str | None, after: dict[str, str], seed: int, out: Path, examples: int
) -> None:
    from noiseproof.io.files import write_whole
    from noiseproof.report.audit_page import audit_page

    paths = dataset.train.paths
    found.save(out, paths=paths)
    again = f"noiseproof audit {shlex.quote(place)}{_given(labels)} --decisions decisions.csv --out {shlex.quote(str(out))}"
    commands = {f"{purpose[0].upper()}{purpose[1:]}:": command for purpose, command in after.items()}
    commands["Or decide above, export, and write the data with your decisions:"] = again
    facts = {"data": place, "labels": labels or "the data's own", "seed": str(seed)}
    facts |= {} if dataset.test is None else {"not audited": f"the test split, {len(dataset.test):,} examples"}
    facts |= {f"SHA-256 of {name}": digest for name, digest in list(dataset.sources.items())[:8]}
    made = time.strftime("%Y-%m-%d")
    text = audit_page(
        found, dataset, paths=paths, title=dataset.name, facts=facts, commands=commands, made=made, shown=examples
    )
    write_whole(out / PAGE, lambda path: path.write_text(text, encoding="utf-8"))


def _decided(dataset: Dataset, place: str, decisions: Path, out: Path, as_json: bool) -> None:
    """Write the data as the decisions make them."""
    from noiseproof.audit.files import apply_decisions

    found, written = apply_decisions(dataset, place, decisions, out)
    if as_json:
        typer.echo(json.dumps({"file": str(written), **found.counts, "examples": int(found.kept.sum())}))
        return
    counts = ", ".join(
        f"{count} {word}" for word, count in zip(("kept", "relabelled", "dropped"), found.counts.values(), strict=True)
    )
    console.print(f"{counts} by decision; {int(found.kept.sum())} examples in {escape(str(written))}", soft_wrap=True)
    console.print(f"next: noiseproof train jal-ce --data {escape(shlex.quote(str(written)))}", soft_wrap=True)
