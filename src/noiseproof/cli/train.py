"""``noiseproof train``: one run, from a recipe of the paper or on one's own data."""

from __future__ import annotations

import dataclasses
import os
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
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
    models,
    noises,
    reading_from,
    recipes,
)
from noiseproof.io.console import Console, console, errors_reported, fail, import_local_modules, stoppable

if TYPE_CHECKING:
    from noiseproof.cli.train_view import RunDisplay
    from noiseproof.train import Recipe, Record, RunOptions, RunPlan

RECIPES = "Train a recipe DATASET/LOSS of the paper, or a loss with --data: cifar10/jal-ce, jal-ce."
NOISES = (
    "Add this label noise: symmetric:0.8, asymmetric:0.4, pairflip:0.2, instance:0.4, human:worst, labels:FILE#NAME, or that "
    "of a matrix's file."
)
Name = Annotated[str, typer.Argument(metavar="RECIPE", help=RECIPES, autocompletion=recipes)]
Noise = Annotated[str, typer.Option(help=NOISES, autocompletion=noises)]
Seed = Annotated[int, typer.Option(help="Set the random seed of the noise, the network and the order.", min=0, max=2**32 - 1)]
Data = Annotated[
    str | None,
    typer.Option(
        metavar="PLACE", help="Train on your own data at this place; with a recipe DATASET/LOSS, the folder of data sets."
    ),
]
SOFT = "Train on these labels, or on the posterior.npz of an audit; the data's own, if they differ, count as clean."
Labels = Annotated[str | None, typer.Option(metavar="FILE", help=SOFT)]
MODELS = "Train this network: cnn5, cnn8, mlp, resnet18, resnet34, resnet50 or package.module:function."
Model = Annotated[str | None, typer.Option(help=MODELS, autocompletion=models)]
Changes = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change the recipe: epochs=100, lr=0.02, loss.a=20, loss.a=auto."),
]
TestSize = Annotated[
    float | None,
    typer.Option(help="Hold out this share to test on, if the data contain no test split."),
]
CLASS_WEIGHTS = (
    "Weight classes: none, balanced, tempered, logit-adjustment, yes:5,no:1; auto chooses what loss and labels need."
)
ClassWeight = Annotated[str | None, typer.Option(metavar="WEIGHTS", help=CLASS_WEIGHTS)]
Profile = Annotated[
    str, typer.Option(help="Follow the authors' code (paper-code), or the text where the two differ (paper-text).")
]
Out = Annotated[Path, typer.Option(help="Write each run into a folder of its own inside this folder.")]
Device = Annotated[str, typer.Option(help="Compute on this device: auto, cpu, cuda or cuda:1.")]
Workers = Annotated[int, typer.Option(help="Decode image files in this number of processes for each split.", min=0)]
Threads = Annotated[
    int | None,
    typer.Option(help="Use this number of CPU threads; by default one for a small network, all for others.", min=1),
]
Fast = Annotated[bool, typer.Option("--fast/--no-fast", help="Use CUDA graphs and the package's own kernels where possible.")]
Deterministic = Annotated[
    bool, typer.Option("--deterministic", help="Compute the same bits in every process on a GPU too, more slowly.")
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print the result only, and warnings on stderr.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object only; progress goes to stderr.")]
Dry = Annotated[bool, typer.Option("--dry-run", help="Check and print the whole recipe and stop.")]
Every = Annotated[int, typer.Option("--every", metavar="N", help="Print a line for every N-th epoch and the last.", min=1)]
Checkpoint = Annotated[
    float,
    typer.Option(
        "--checkpoint-every",
        metavar="SECONDS",
        help="Write a checkpoint after this time; 0 writes one after each epoch.",
        min=0.0,
    ),
]
Timeout = Annotated[
    float,
    typer.Option(metavar="SECONDS", help="Wait this long for another of several processes.", min=1),
]
DEFAULT_PROFILE = "paper-code"
FIELDS_WITH_AN_OPTION = {"dataset": "RECIPE or --data says it", "noise": "give --noise", "seed": "give --seed"}
"""Of a recipe; the option does more than set the field"""


def train(
    name: Name,
    noise: Noise = "none",
    seed: Seed = 123,
    data: Data = None,
    labels: Labels = None,
    label: Label = None,
    columns: Columns = None,
    test: Test = None,
    split_column: SplitColumn = None,
    drop_unlabelled: DropUnlabelled = False,
    encoder: Encoder = None,
    model: Model = None,
    changes: Changes = None,
    test_size: TestSize = None,
    class_weight: ClassWeight = None,
    profile: Profile = DEFAULT_PROFILE,
    out: Out = Path("runs"),
    device: Device = "auto",
    workers: Workers = 2,
    threads: Threads = None,
    fast: Fast = True,
    deterministic: Deterministic = False,
    quiet: Quiet = False,
    as_json: Json = False,
    dry_run: Dry = False,
    every: Every = 1,
    checkpoint_every: Checkpoint = 60.0,
    timeout: Timeout = 600.0,
) -> None:
    """Train one network with a robust loss. An interrupted run resumes, and a finished run prints its result.

    The result is that of the last epoch; no epoch is chosen by its test accuracy. The folder contains the record, the
    weights, the probability of each given training label, and the learning curves as a picture.

    Robust losses converge slowly, so train them for enough epochs: --set epochs=100. On images of clothes with 27 % wrong
    labels, jal-ce reached 69 % after 25 epochs and 82 % after 100; ce reached 79 % and 83 %.

    A loss alone trains on the data of --data, with defaults for each kind of data. Features are standardised and train an
    MLP with Adam. Images in memory, and small image files of one size, train a ResNet-18 with SGD. Other image files train
    a ResNet-50 at 224x224 with WebVision's augmentation. Images without a GPU train the small cnn5 with Adam. --dry-run
    prints the recipe, and --set changes any part of it: standardise=false, size=64, epochs=300.

    Your own data can be an .npz file with arrays x and y (and optionally x_test and y_test): features as floats or images
    as uint8 [N, H, W, C]. They can be a folder with one sub-folder of images per class, or train and test folders of that
    form; a .txt, .csv or .tsv file of lines "path label"; or a table (CSV, TSV, Parquet, Feather, JSON Lines) with a column
    of labels (--label). The encoding of a table is stored with the run, so *noiseproof predict* reads such tables.

    A model is a function that accepts the number of classes and returns a torch module from batches [N, C, H, W] or [N, D]
    to logits.

    Class imbalance: on your own data, losses that collapse onto the majority class use a warm start with cross entropy and
    class weights (--class-weight auto). --class-weight none trains as published. Results contain the balanced accuracy,
    macro F1 and the recall of each class beside the accuracy.

    Several GPUs: torchrun --standalone --nproc-per-node 8 -m noiseproof train ... divides each batch among them.
    """
    from noiseproof.cli.train_view import RunDisplay, print_recipe, print_result
    from noiseproof.train import RunOptions, plan_run
    from noiseproof.train.plan import device_named, prefers_gpu

    with errors_reported():
        import_local_modules(name, model, *(changes or []))
        wanted, noise = changes_from(changes or [], model, test_size, class_weight), noise_from(noise, labels)
        chosen = recipe_from(name, noise, seed, data, profile)
        given: dict[str, Any] = {"changes": wanted, "noise": noise, "seed": seed, "runs": out, "gpu": prefers_gpu(device)}
        plan = plan_run(
            chosen, data=data, **given, **reading_from(label, columns, test, split_column, drop_unlabelled, encoder)
        )
        if dry_run:
            print_recipe(plan, as_json)
            return
        options = RunOptions(device_named(device), workers, deterministic, fast, threads=threads)
        shown = None if quiet else Console(stderr=True) if as_json else console
        display = RunDisplay(shown, every)
    with stoppable(lambda: _going_on(plan.folder)), ExitStack() as group:
        options = _joined(group, options, timeout)
        with _endings(plan, as_json):
            plan.training_data()
            record = _trained(plan, options, display, checkpoint_every, timeout)
            if options.process.rank == 0:
                print_result(record, plan.training_data(), plan.folder, quiet, as_json)


def recipe_from(name: str, noise: str, seed: int, data: str | None, profile: str) -> Recipe | str:
    """The paper's recipe that DATASET/LOSS names, or the name of a loss to train on data of one's own."""

    if "/" in name:
        from noiseproof import paper

        recipe = paper.recipe(name, noise=noise, seed=seed, profile=profile)
        if data is not None and Path(data).expanduser().is_file():
            raise ValueError(
                f"{data}: with DATASET/LOSS, --data is the folder of data sets; for data of your own give the loss alone: "
                f"noiseproof train {recipe.loss} --data {data}"
            )
        return recipe
    if data is None:
        raise ValueError(
            f"RECIPE must be DATASET/LOSS, such as cifar10/jal-ce, or a loss together with --data PLACE, got {name!r}"
        )
    if profile != DEFAULT_PROFILE:
        raise ValueError(f"--profile is for the paper's recipes, DATASET/LOSS, got {profile!r} with {name!r}")
    if "," in name:
        raise ValueError(f"one loss is trained, got {name!r}; 'noiseproof compare {name} --data {data}' compares several")
    return name


def noise_from(noise: str, labels: str | None) -> str:
    """What --noise or --labels puts on the labels."""
    if labels is None:
        return noise
    if noise != "none":
        raise ValueError(f"--labels and --noise both say which labels to train on, got {labels!r} and {noise!r}")
    return f"labels:{os.path.abspath(os.path.expanduser(labels))}"


def changes_from(texts: list[str], model: str | None, test_size: float | None, class_weight: str | None) -> dict[str, Any]:
    """What --set, --model, --test-size and --class-weight change in the recipe."""
    changes: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            raise ValueError(f"--set takes KEY=VALUE, such as lr=0.02, got {text!r}")
        key = key.strip()
        if key in FIELDS_WITH_AN_OPTION:
            raise ValueError(f"--set does not take {key}: {FIELDS_WITH_AN_OPTION[key]}")
        changes[key] = value.strip()
    given = {"model": model, "test_size": test_size, "class_weight": class_weight}
    return changes | {key: value for key, value in given.items() if value is not None}


def _joined(group: ExitStack, options: RunOptions, timeout: float) -> RunOptions:
    """The options of this process among those that torchrun started, if it did."""
    if os.environ.get("WORLD_SIZE", "1") == "1":
        return options
    from noiseproof.train.distributed import process_group

    with errors_reported():
        process, local = group.enter_context(process_group(options.device, timeout))
    return dataclasses.replace(options, device=local, process=process)


def _trained(
    plan: RunPlan,
    options: RunOptions,
    display: RunDisplay,
    checkpoint_seconds: float,
    timeout: float,
) -> Record:
    """Train, which rank 0 tells of and draws."""
    from noiseproof.cli.train_view import print_start
    from noiseproof.train import train as run_recipe

    run: dict[str, Any] = {"folder": plan.folder, "options": options, "checkpoint_seconds": checkpoint_seconds}
    if options.process.rank:
        return run_recipe(plan.recipe, plan.training_data(), **run).record
    print_start(plan, options, display.shown, timeout)
    with display:
        record = run_recipe(plan.recipe, plan.training_data(), callback=display, **run).record
    _draw(record, plan.folder)
    return record


def _draw(record: Record, folder: Path) -> None:
    """The curves beside the record, unless they are there and no older."""
    from noiseproof.report.charts import CURVES_FILE, draw_curves
    from noiseproof.train.record import RECORD

    with suppress(OSError, ImportError):  # the folder of a finished run may be read-only
        drawn = folder / CURVES_FILE
        if record.epochs and not (drawn.exists() and drawn.stat().st_mtime_ns >= (folder / RECORD).stat().st_mtime_ns):
            draw_curves(record.as_dict(), folder)


def _going_on(folder: Path) -> str:
    """What the same command does after the run was stopped."""
    kept = (folder / "checkpoint.safetensors").is_file()
    way = "goes on from the last checkpoint" if kept else "starts anew, there was no checkpoint yet"
    return f"the same command {way} in {folder}"


@contextmanager
def _endings(plan: RunPlan, as_json: bool) -> Iterator[None]:
    """Report an early end of the run with its exit status."""
    from noiseproof.cli.train_view import as_json_text
    from noiseproof.plugins import place_in
    from noiseproof.train import DivergenceError, OutOfMemoryError, Record

    speaks = os.environ.get("RANK", "0") == "0"
    try:
        yield
    except DivergenceError as error:
        record = Record.read(plan.folder)
        if speaks and record is not None:
            Console(stderr=True).print(f"[bold red]diverged:[/] {escape(str(error))}", soft_wrap=True)
            _draw(record, plan.folder)
            if as_json:
                typer.echo(as_json_text(record, plan.folder))
        raise typer.Exit(3) from None
    except (ValueError, TypeError, OSError, ImportError, RuntimeError) as error:
        own = ":" in plan.recipe.model and _is_foreign(error)
        if own and isinstance(error, RuntimeError):  # torch's, for shapes that do not fit
            place = place_in(error, plan.recipe.model.partition(":")[0])
            error = ValueError(f"model {plan.recipe.model!r}: {' '.join(str(error).split())}{place}")
        elif own or (isinstance(error, RuntimeError) and not isinstance(error, OutOfMemoryError)):
            raise  # from the user's own code, or a fault of ours: the trace says where
        fail(error if speaks else f"process {os.environ['RANK']}: {error}")


def _is_foreign(error: BaseException) -> bool:
    """Whether the error was raised outside this package."""
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and not Path(frames[-1].filename).is_relative_to(Path(__file__).parents[1])
