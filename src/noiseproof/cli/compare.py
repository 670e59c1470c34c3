"""``noiseproof compare``: losses against each other on the same seeds."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from noiseproof.cli.output import Console, console, echo, fail, warn
from noiseproof.cli.stopping import Stopped, sigterm_as_ctrl_c
from noiseproof.cli.train import Device, Labels, Model, Noise, Out, Profile, SkipCorrupt, TestSize, Workers

if TYPE_CHECKING:
    from noiseproof.cli.compare_runs import Competitor, Runs
    from noiseproof.data import Dataset
    from noiseproof.train import Recipe, TrainingData

__all__ = ["compare"]

Losses = Annotated[
    str,
    typer.Argument(metavar="LOSSES", help="Names with commas between, with options in parentheses: ce,gce,'jal-ce(a=20)'."),
]
Data = Annotated[
    str | None,
    typer.Option(metavar="PLACE", help="Your data, as for 'noiseproof train'; with --dataset, the folder of data sets."),
]
Named = Annotated[str | None, typer.Option("--dataset", metavar="NAME", help="digits, cifar10, ...: trained by its recipe.")]
Seeds = Annotated[int, typer.Option(help="Runs of each loss; six or more for bootstrap intervals.", min=1)]
First = Annotated[int, typer.Option("--seed", help="The first seed; the others follow it.", min=0, max=2**32 - 1)]
Decay = Annotated[
    str | None,
    typer.Option(metavar="LIST", help="Each loss with each of these: l1:5e-5,l2:1e-4,none. Left out: the recipe's own."),
]
Changes = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change all recipes: epochs=50, lr=0.02.")
]
Jobs = Annotated[
    int | None,
    typer.Option(help="Runs at the same time. Left out: on a CPU one per core for features, on a GPU what fills it.", min=1),
]
TestNoise = Annotated[
    str | None,
    typer.Option(
        metavar="NOISE", help="How wrong the test labels are: 0.3, symmetric:0.3, a matrix's file, an audit's folder."
    ),
]
Format = Annotated[str, typer.Option("--format", help="table, markdown, latex, json or csv.")]
Png = Annotated[Path | None, typer.Option(metavar="FILE", help="Also draw the accuracies of all seeds.")]


def compare(
    losses: Losses,
    data: Data = None,
    dataset: Named = None,
    noise: Noise = "none",
    labels: Labels = None,
    seeds: Seeds = 5,
    seed: First = 123,
    decay: Decay = None,
    changes: Changes = None,
    model: Model = None,
    test_size: TestSize = None,
    test_noise: TestNoise = None,
    profile: Profile = "paper-code",
    out: Out = Path("runs"),
    device: Device = "auto",
    jobs: Jobs = None,
    workers: Workers = 2,
    skip_corrupt: SkipCorrupt = False,
    how: Format = "table",
    png: Png = None,
) -> None:
    """Compare losses: the same budget for all, the same seeds, and which of them cannot be told apart.

    A seed gives every loss the same noise, initial weights and order of examples, so differences are taken within seeds.
    --data PLACE is your own data, --dataset NAME one that has recipes; a loss without a recipe there is trained like ce.

    Without clean labels to test on, --test-size holds out labels as given, the same for all seeds: their order of losses is
    mostly that of clean ones (docs/choosing.md), and --test-noise corrects the numbers. 'noiseproof audit' estimates the noise.

    The runs are kept like those of 'noiseproof train': stopped, the same command goes on; with more losses or seeds, only
    what is missing is trained.

    Examples:

    noiseproof compare ce,gce,nce+rce,jal-ce --dataset digits --noise symmetric:0.4

    noiseproof compare ce,jal-ce --data my.npz --test-size 0.2 --noise symmetric:0.4 --seeds 10 --set epochs=50

    noiseproof compare 'ce,jal-ce,jal-ce(a=auto:audit)' --data my.npz --test-size 0.2 --test-noise audit

    noiseproof compare 'gce(q=0.5),gce(q=0.9)' --dataset digits --decay none,l1:5e-5,l2:1e-4 --png losses.png
    """
    from noiseproof.cli.compare_runs import Runs
    from noiseproof.cli.loss_lists import parse_decays, parse_losses
    from noiseproof.cli.plan import changes_from, device_named, means_gpu, noise_from
    from noiseproof.comparison.result import FORMATS
    from noiseproof.io.files import is_dir
    from noiseproof.train import RunOptions, RunStore
    from noiseproof.train.network import check_model

    with sigterm_as_ctrl_c() as stopped, _endings(stopped):
        if how not in FORMATS:
            raise ValueError(f"--format must be one of {', '.join(FORMATS)}, got {how!r}")
        if png is not None and not is_dir(png.parent):
            raise FileNotFoundError(f"{png.parent}: no such folder for --png")
        wanted = changes_from(changes or [], model, test_size)
        _check(wanted, decay)
        chosen, decays = parse_losses(losses), parse_decays(decay)
        defining = {name: wanted.get(name) for name in ("model", "size")}
        setting = Setting.of(dataset, data, noise_from(noise, labels), profile, means_gpu(device), defining)
        field = _field(setting, chosen, decays, wanted, range(seed, seed + seeds))
        options = RunOptions(device_named(device), workers, skip_corrupt)
        runs = Runs(field, setting.task, RunStore(out), setting.data, options, test_noise)
        if runs.task.test is None:
            raise ValueError("the data have no test split to compare on: --test-size 0.1 holds out a tenth")
        check_model(next(iter(field[0].recipes.values())), runs.task)
        _run(runs, jobs, how, png)


@contextmanager
def _endings(stopped: Stopped) -> Iterator[None]:
    from noiseproof.cli.compare_runs import PLAIN

    try:
        yield
    except KeyboardInterrupt:
        Console(stderr=True).print("stopped; the same command goes on, and does not repeat finished runs", **PLAIN)
        raise typer.Exit(stopped.status) from None
    except (ValueError, TypeError, OSError, ImportError) as error:
        fail(error)


def _run(runs: Runs, jobs: int | None, how: str, png: Path | None) -> None:
    """Train what is missing, and show the comparison; all but that goes to stderr where a program may read it."""
    from noiseproof.cli.compare_runs import PLAIN
    from noiseproof.comparison.result import FORMATS, Comparison
    from noiseproof.train.data_warnings import data_warnings

    shown = console if how == "table" else Console(stderr=True)
    facts = runs.facts()
    for text in data_warnings(next(iter(runs.field[0].recipes.values())), runs.task):
        warn(text)
    shown.print(_start(facts, runs), **PLAIN)
    errors = runs.train(jobs, shown)
    entrants = [runs.entrant(one) for one in runs.field]
    facts |= {"test_noise": runs.said_noise} if runs.said_noise else {}
    compared = Comparison(facts, entrants, tuple(runs.said_of_test()))
    if how == "table":
        shown.print()
    echo(FORMATS[how](compared))
    if png is not None:
        compared.plot(png)
        shown.print(f"picture in {png}", **PLAIN)
    if errors:
        fail(f"{_count(len(errors), 'run')} failed, which the same command tries again; the first: {errors[0]}")


def _start(facts: dict[str, Any], runs: Runs) -> str:
    task = runs.task
    wrong = "labels as given" if task.wrong is None else f"{int(task.wrong.sum())} labels wrong ({facts['noise']})"
    test = 0 if task.test is None else len(task.test)
    total, left = len(runs.field) * len(runs.known), len(runs.todo())
    losses = len({one.loss for one in runs.field})
    sizes = ["1 loss" if losses == 1 else f"{losses} losses", _count(len(runs.known), "seed")]
    if losses < len(runs.field):
        sizes.insert(1, _count(len(runs.field) // losses, "decay"))
    before = f", {total - left} of them done before" if left < total else ""
    way = f"{facts['model']}, {facts['optimiser']} {facts['lr']:g}, {_count(facts['epochs'], 'epoch')}, batch {facts['batch']}"
    chosen = {one.loss: " ".join(next(iter(one.recipes.values())).why) for one in runs.field}
    return "".join(f"{loss}: {why}\n" for loss, why in chosen.items() if why) + (
        f"{facts['data']}: {len(task.train)} examples of {len(task.classes)} classes, {wrong}; {test} to test on\n"
        f"{way}, for all\n"
        f"{' x '.join(sizes)}: {_count(total, 'run')}{before}"
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + "s" * (number != 1)


def _check(wanted: dict[str, Any], decay: str | None) -> None:
    for key in wanted:
        if key in ("loss", "loss_options") or key.startswith("loss."):
            option = key.partition(".")[2] or "a"
            raise ValueError(
                f"--set does not take {key} here: write the loss's options in LOSSES, such as 'jal-ce({option}=20)'"
            )
        if key in ("l1", "l2") and decay is not None:
            raise ValueError(f"--decay and --set {key} both say the decay; give one of them")


@dataclass(frozen=True)
class Setting:
    """What the losses are compared on."""

    dataset: Dataset
    base: Callable[[str, int], Recipe]
    """The recipe to start from, of a loss and a seed: that of ce where the loss has none"""
    data: str | None
    """The folder of data sets"""

    @staticmethod
    def of(name: str | None, data: str | None, noise: str, profile: str, gpu: bool, defining: Mapping[str, Any]) -> Setting:
        """``defining`` are the model and the size of images, if they were given: other defaults depend on them."""
        from noiseproof import paper
        from noiseproof.data import open_dataset
        from noiseproof.io.files import is_file
        from noiseproof.train import own_recipe

        if name is None and data is None:
            raise ValueError(
                "compare on what? --data PLACE for data of your own, or --dataset digits for a data set with recipes"
            )
        if name is None:
            if profile != paper.PROFILES[0]:
                raise ValueError(f"--profile is for the paper's recipes, --dataset NAME, got {profile!r}")
            own = open_dataset(str(data))
            of_ce = own_recipe(own, str(data), "ce", noise=noise, seed=0, gpu=gpu, **defining)
            return Setting(own, lambda loss, seed: dataclasses.replace(of_ce, seed=seed), None)
        if data is not None and is_file(Path(data).expanduser()):
            raise ValueError(
                f"{data}: with --dataset, --data is the folder of data sets; leave --dataset out for data of your own"
            )
        dataset = paper.recipe(f"{name}/ce", noise=noise, profile=profile).dataset
        known = {recipe.partition("/")[2] for recipe in paper.list_recipes() if recipe.startswith(f"{dataset}/")}

        def published(loss: str, seed: int) -> Recipe:
            return paper.recipe(f"{dataset}/{loss if loss in known else 'ce'}", noise=noise, seed=seed, profile=profile)

        return Setting(open_dataset(dataset, data), published, data)

    def task(self, recipe: Recipe) -> TrainingData:
        from noiseproof.data import data_root
        from noiseproof.train import with_noise

        return with_noise(self.dataset, recipe, data_root(self.data))

    def resolve_auto(self, recipe: Recipe) -> Recipe:
        from noiseproof.train import resolve_auto

        return resolve_auto(recipe, self.task(recipe)) if recipe.has_auto else recipe


def _field(
    setting: Setting,
    losses: list[tuple[str, str, dict[str, str]]],
    decays: list[dict[str, float]],
    wanted: dict[str, Any],
    seeds: Sequence[int],
) -> list[Competitor]:
    """Each loss with each decay."""
    from noiseproof.cli.compare_runs import Competitor
    from noiseproof.train import override
    from noiseproof.train.runs import recipe_key

    if any(":" in str(value) for key, value in wanted.items() if key == "model"):
        sys.path.insert(0, os.getcwd())  # where a user's own module usually is
    field: dict[str, Competitor] = {}
    for shown, loss, options in losses:
        for decay in decays:
            changes = {"loss": loss, **wanted, **decay, **{f"loss.{key}": value for key, value in options.items()}}
            one = Competitor(shown, {seed: setting.resolve_auto(override(setting.base(loss, seed), changes)) for seed in seeds})
            key = recipe_key(next(iter(one.recipes.values())).as_dict())
            if key in field:
                raise ValueError(f"{shown} with decay {one.decay} is there twice")
            field[key] = one
    return list(field.values())
