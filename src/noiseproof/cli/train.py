"""``noiseproof train``: one run, from a recipe of the paper or on one's own data."""

from __future__ import annotations

import dataclasses
import json
import os
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.markup import escape

from noiseproof.cli.output import console, errors_reported, fail
from noiseproof.cli.plan import Plan, changes_from, device_named, means_gpu, noise_from, plan_run
from noiseproof.cli.progress import Bar, Lines, TensorBoard, duration
from noiseproof.train import DivergenceError, Observer, OutOfMemoryError, Record, RunOptions, Task
from noiseproof.train import train as run_recipe
from noiseproof.train.distributed import process_group
from noiseproof.train.engine_choice import fast_path_suits
from noiseproof.train.observer import Several

__all__ = ["train"]

RECIPES = "DATASET/LOSS of the paper, or a loss with --data. Examples: cifar10/jal-ce, jal-ce."
NOISES = "symmetric:0.8, asymmetric:0.4, pairflip:0.2, instance:0.4, human:worst, labels:FILE#NAME, or a matrix's file."
Name = Annotated[str, typer.Argument(metavar="RECIPE", help=RECIPES)]
Noise = Annotated[str, typer.Option(help=NOISES)]
Seed = Annotated[int, typer.Option(help="Of the noise, the network and the order.", min=0, max=2**32 - 1)]
Data = Annotated[
    str | None, typer.Option(metavar="PLACE", help="Folder of data sets; with a loss alone, an .npz file, a list or a folder.")
]
Labels = Annotated[
    str | None, typer.Option(metavar="FILE", help="Labels to train on; the data's own then count as the clean ones.")
]
Model = Annotated[str | None, typer.Option(help="cnn8, mlp, resnet18, resnet34, resnet50 or package.module:function.")]
Changes = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change the recipe: lr=0.02, loss.a=20.")]
Share = Annotated[float | None, typer.Option(help="Hold out this share to test on, if the data have no test split.")]
Profile = Annotated[str, typer.Option(help="paper-code, or paper-text where the two differ.")]
Out = Annotated[Path, typer.Option(help="Folder of runs; each has its own inside.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:1.")]
Workers = Annotated[int, typer.Option(help="Processes that decode image files, for each split.", min=0)]
SkipCorrupt = Annotated[bool, typer.Option("--skip-corrupt", help="Leave out damaged image files instead of stopping.")]
Fast = Annotated[bool, typer.Option("--fast/--no-fast", help="Steps in CUDA graphs with our own kernels, where possible.")]
Deterministic = Annotated[bool, typer.Option("--deterministic", help="The same bits in every process on a GPU too; slower.")]
Events = Annotated[bool, typer.Option("--tensorboard", help="Also write TensorBoard events.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print the result only.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object only; progress goes to stderr.")]
Dry = Annotated[bool, typer.Option("--dry-run", help="Print the whole recipe and stop.")]
Every = Annotated[float, typer.Option("--checkpoint-every", metavar="SECONDS", help="0 is after each epoch.", min=0.0)]
FIRST_SPEAKS = 3.0
"""Seconds that other processes wait with an error: if rank 0 has it too, it reports it, ends, and torchrun ends the others"""


def train(
    name: Name,
    noise: Noise = "none",
    seed: Seed = 123,
    data: Data = None,
    labels: Labels = None,
    model: Model = None,
    changes: Changes = None,
    test_share: Share = None,
    profile: Profile = "paper-code",
    out: Out = Path("runs"),
    device: Device = "auto",
    workers: Workers = 2,
    skip_corrupt: SkipCorrupt = False,
    fast: Fast = True,
    deterministic: Deterministic = False,
    tensorboard: Events = False,
    quiet: Quiet = False,
    as_json: Json = False,
    dry_run: Dry = False,
    checkpoint_every: Every = 60.0,
) -> None:
    """Train one network. Started again, a run that was stopped is resumed, and a finished one shows its result.

    The result is the last epoch's: no epoch is chosen by its test accuracy.

    A loss alone trains on the data of --data, with defaults by their kind: features are standardised and get an MLP and Adam,
    images in memory and small image files of one size a ResNet-18 and SGD, other image files a ResNet-50 at 224x224 and
    WebVision's augmentation. --dry-run shows them all, --set changes any: standardise=false, size=64, epochs=300.

    Data of your own: an .npz file with arrays x and y (x_test and y_test, if you have them), features as floats or images as
    uint8 [N, H, W, C]; a folder with one sub-folder of images per class, or train and test folders of these; a .txt, .csv or
    .tsv file of lines "path label", with or without a header. Labels count from 0, or are names. A model of your own is a
    function that gets the number of classes and returns a torch module from batches [N, C, H, W] or [N, D] to logits.

    Several GPUs: torchrun --standalone --nproc-per-node 8 -m noiseproof train ... divides each batch among them.
    """
    with errors_reported():
        wanted = changes_from(changes or [], model, test_share)
        plan = plan_run(name, noise_from(noise, labels), seed, data, wanted, profile, out, means_gpu(device))
        if dry_run:
            _print_recipe(plan, as_json)
            return
        options = RunOptions(device_named(device), workers, skip_corrupt, deterministic, fast)
        shown = Console(stderr=True) if as_json else console
        observers: list[Observer] = [] if quiet else [Bar(shown) if shown.is_terminal else Lines(shown)]
    with process_group(options.device) as (process, local), _endings(plan, as_json, observers):
        options = dataclasses.replace(options, device=local, process=process)
        task = plan.opened()
        if tensorboard:
            observers.append(TensorBoard(plan.folder))
        observer = Several(*observers) if process.rank == 0 else None
        if observer is not None and not quiet:
            _print_start(plan, task, options, shown)
        record = run_recipe(
            plan.recipe, task, folder=plan.folder, options=options, checkpoint_seconds=checkpoint_every, observer=observer
        ).record
        if observer is not None:
            _print_result(record, plan.folder, quiet, as_json)


@contextmanager
def _endings(plan: Plan, as_json: bool, observers: list[Observer]) -> Iterator[None]:
    """Report an early end of the run, from one of the processes, with its exit status."""
    speaks = os.environ.get("RANK", "0") == "0"
    problem = Console(stderr=True, quiet=not speaks)
    try:
        yield
    except KeyboardInterrupt:
        _close(observers)
        kept = (plan.folder / "checkpoint.safetensors").is_file()
        way = "goes on from the last checkpoint" if kept else "starts anew, there was no checkpoint yet"
        problem.print(f"stopped; the same command {way} in {escape(str(plan.folder))}", highlight=False, soft_wrap=True)
        raise typer.Exit(130) from None
    except DivergenceError as error:
        problem.print(f"[bold red]diverged:[/] {escape(str(error))}", highlight=False, soft_wrap=True)
        record = Record.read(plan.folder)
        if speaks and as_json and record is not None:
            typer.echo(_json(record, plan.folder))
        raise typer.Exit(3) from None
    except (ValueError, TypeError, OSError, ImportError, OutOfMemoryError) as error:
        _close(observers)
        if ":" in plan.recipe.model and _is_foreign(error):
            raise  # from the user's own model: the trace says where
        if not speaks:
            time.sleep(FIRST_SPEAKS)
            fail(f"process {os.environ['RANK']}: {error}")
        fail(error)


def _close(observers: list[Observer]) -> None:
    for observer in observers:
        if isinstance(observer, Bar):
            observer.close()


def _is_foreign(error: BaseException) -> bool:
    """Whether the error was raised outside this package."""
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and not Path(frames[-1].filename).is_relative_to(Path(__file__).parents[1])


def _print_recipe(plan: Plan, as_json: bool) -> None:
    facts = plan.recipe.as_dict()
    if as_json:
        typer.echo(json.dumps({"recipe": facts, "folder": str(plan.folder)}))
        return
    for key, value in facts.items():
        text = value if isinstance(value, str) else json.dumps(value)
        console.print(f"{key:18} {escape(text)}", highlight=False, soft_wrap=True)
    for key, text in (("the loss in full", repr(plan.recipe.criterion())), ("folder", str(plan.folder))):
        console.print(f"[dim]{key:18} {escape(text)}[/]", highlight=False, soft_wrap=True)


def _print_start(plan: Plan, task: Task, options: RunOptions, shown: Console) -> None:
    recipe, wrong, before = plan.recipe, task.wrong, Record.read(plan.folder)
    finished = before is not None and before.status == "finished"
    labels = "labels as given" if wrong is None else f"{int(wrong.sum())} labels wrong ({recipe.noise})"
    examples = f"{len(task.train)} examples of {len(task.classes)} classes"
    lines = [f"[bold]{escape(task.name)}, {recipe.loss}[/]: {examples}, {labels}; {task.inputs_in_words(recipe)}"]
    if absent := len(task.classes) - len(np.unique(task.train.labels)):
        lines.append(f"{absent} of the classes have no example to train on (labels count from 0; a gap is a class too)")
    if task.test is None:
        lines.append("no test split, so no test accuracy will be known; --test-share 0.1 holds out a tenth")
    elif recipe.test_share and wrong is None:
        lines.append(f"{len(task.test)} held out to test on, labels as given: where these are wrong, so is the test accuracy")
    else:
        lines.append(f"{len(task.test)} examples to test on")
    if task.name == "webvision" and not task.other_tests:
        lines.append(
            "no ILSVRC12 images to test on as well: they are looked for in and beside WebVision's folder, as "
            "ilsvrc12/val/n01440764/... with a folder for each class"
        )
    if 0 < (rest := len(task.train) % recipe.batch) < options.process.world:
        lines.append(f"the last batch of an epoch, {rest}, is left out: fewer than the {options.process.world} processes")
    way = f"{recipe.model}, {recipe.optimiser} {recipe.lr:g}, {recipe.epochs} epochs, batch {recipe.batch}, on {options.device}"
    lines.append("finished before: nothing is trained now" if finished else way)
    if not finished and fast_path_suits(recipe, task.train, options):
        lines.append("[dim]the step is compiled for this GPU first, which can take a minute[/]")
    for line in lines:
        shown.print(line, highlight=False, soft_wrap=True)


def _print_result(record: Record, folder: Path, quiet: bool, as_json: bool) -> None:
    if as_json:
        typer.echo(_json(record, folder))
        return
    console.print(result_line(record), highlight=False, soft_wrap=True)
    if not quiet:
        times = ", ".join(f"{phase} {duration(seconds)}" for phase, seconds in record.seconds.items())
        console.print(f"[dim]{times}; files in {escape(str(folder))}[/]", highlight=False, soft_wrap=True)


def result_line(record: Record) -> str:
    result = record.result

    def percent(key: str, what: str) -> str:
        value = result.get(key)
        return "" if value is None else f"{100 * value:.2f} % {what}"

    parts = [
        percent("test_accuracy", f"test accuracy in the last epoch, {record.recipe['epochs']}"),
        *(percent(f"{name}_accuracy", f"on {name}") for name in record.epochs[-1].other_accuracies),
        percent("right_labels_learned", "of the right labels learned"),
        percent("wrong_labels_memorised", "of the wrong labels memorised"),
    ]
    if result.get("test_accuracy") is None:
        parts[0] = percent("given_labels_predicted", "of the given labels predicted; no test accuracy is known")
    for key, where in (("images_left_out", "training"), ("test_images_left_out", "test")):
        if left_out := result.get(key):
            parts.append(f"damaged {where} images left out: {left_out}")
    return "; ".join(part for part in parts if part)


def _json(record: Record, folder: Path) -> str:
    facts = record.as_dict()
    kept = {key: facts[key] for key in ("status", "message", "result", "seconds", "recipe")}
    return json.dumps({"folder": str(folder), **kept})
