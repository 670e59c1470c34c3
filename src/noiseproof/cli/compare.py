"""``noiseproof compare``: losses against each other on the same seeds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from noiseproof.cli.options import (
    Columns,
    DropUnlabelled,
    Encoder,
    Label,
    SplitColumn,
    Test,
    datasets,
    reading_from,
    several_losses,
)
from noiseproof.cli.train import ClassWeight, Device, Labels, Model, Noise, Out, TestSize, Threads, Workers
from noiseproof.io.console import (
    Console,
    ProgressBar,
    console,
    echo,
    errors_reported,
    fail,
    import_local_modules,
    stoppable,
    warn,
)

if TYPE_CHECKING:
    from noiseproof.train import Recipe

__all__ = ["compare"]

Losses = Annotated[
    str,
    typer.Argument(
        metavar="LOSSES",
        help="Compare these losses, separated by commas, with options in parentheses: ce,gce,'jal-ce(a=20)'.",
        autocompletion=several_losses,
    ),
]
Data = Annotated[
    str | None,
    typer.Option(
        metavar="PLACE",
        help="Train on your own data at this place, as 'noiseproof train' does; with --dataset, the folder of data sets.",
    ),
]
Named = Annotated[
    str | None,
    typer.Option(
        "--dataset", metavar="NAME", help="Train on this data set by its recipe: digits, cifar10, ...", autocompletion=datasets
    ),
]
Seeds = Annotated[
    int, typer.Option(help="Train each loss with this number of seeds; six or more for bootstrap intervals.", min=1)
]
First = Annotated[int, typer.Option("--seed", help="Start with this seed; the others follow it.", min=0, max=2**32 - 1)]
REGULARISATIONS = "Train each loss with each of these: l1:5e-5,l2:1e-4,none; by default with the recipe's own."
Regularisation = Annotated[str | None, typer.Option(metavar="LIST", help=REGULARISATIONS)]
Changes = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change all recipes: epochs=50, lr=0.02.")
]
Jobs = Annotated[
    int | None,
    typer.Option(
        help="Train this number of runs at the same time; by default one per core for features, on a GPU what fills it.", min=1
    ),
]
TestNoise = Annotated[
    str | None,
    typer.Option(
        metavar="NOISE",
        help="Correct for test labels that are wrong: 0.3, symmetric:0.3, a matrix's file or an audit's folder.",
    ),
]
Format = Annotated[str, typer.Option("--format", help="Print a table, markdown, latex or json.")]
FORMATS = ("table", "markdown", "latex", "json")


def compare(
    losses: Losses,
    data: Data = None,
    dataset: Named = None,
    noise: Noise = "none",
    labels: Labels = None,
    label: Label = None,
    columns: Columns = None,
    test: Test = None,
    split_column: SplitColumn = None,
    drop_unlabelled: DropUnlabelled = False,
    encoder: Encoder = None,
    seeds: Seeds = 5,
    seed: First = 123,
    regularisation: Regularisation = None,
    changes: Changes = None,
    model: Model = None,
    test_size: TestSize = None,
    class_weight: ClassWeight = None,
    test_noise: TestNoise = None,
    out: Out = Path("runs"),
    device: Device = "auto",
    jobs: Jobs = None,
    workers: Workers = 2,
    threads: Threads = None,
    how: Format = "table",
) -> None:
    """Compare losses on the same seeds, and report which are statistically indistinguishable.

    A seed determines the noise, the initial weights and the order of the examples for every loss, so differences are paired
    by seed. --data PLACE is your own data. --dataset NAME is a data set with recipes; a loss without a recipe there is
    trained like ce. module:Name in LOSSES is a loss of your own, a class of a module in this folder.

    Without clean test labels, --test-size holds out noisy labels, the same for all seeds. They rank losses mostly like
    clean ones (docs/how_to/choosing.md), and --test-noise corrects the accuracies. 'noiseproof audit' estimates the noise.

    Runs are stored like those of 'noiseproof train'. After an interruption, the same command resumes. With more losses or
    seeds, only the missing runs are trained.

    Examples:

    noiseproof compare ce,gce,nce+rce,jal-ce --dataset digits --noise symmetric:0.4

    noiseproof compare ce,jal-ce --data my.npz --test-size 0.2 --noise symmetric:0.4 --seeds 10 --set epochs=50

    noiseproof compare 'ce,jal-ce,jal-ce(a=auto:audit)' --data my.npz --test-size 0.2 --test-noise audit

    noiseproof compare 'gce(q=0.5),gce(q=0.9)' --dataset digits --regularisation none,l1:5e-5,l2:1e-4
    """
    with stoppable(lambda: "the same command goes on, and does not repeat finished runs"), errors_reported():
        from noiseproof.cli.train import changes_from, noise_from
        from noiseproof.comparison import compare as compare_losses
        from noiseproof.train import RunOptions
        from noiseproof.train.plan import device_named

        if how not in FORMATS:
            raise ValueError(f"--format must be one of {', '.join(FORMATS)}, got {how!r}")
        import_local_modules(losses, model, *(changes or []))
        shown = console if how == "table" else Console(stderr=True)
        given = noise_from(noise, labels)
        place, recipe_for = _setting(dataset, data, given)
        settings, options = (
            changes_from(changes or [], model, test_size, class_weight),
            RunOptions(device_named(device), workers, threads=threads),
        )
        with ComparisonDisplay(shown) as progress:
            found = compare_losses(
                losses, place, noise=given, seeds=range(seed, seed + seeds), regularisation=regularisation, settings=settings,
                test_noise=test_noise, out=out, jobs=jobs, options=options, recipe_for=recipe_for,
                data_folder=None if dataset is None else data, progress=progress,
                **reading_from(label, columns, test, split_column, drop_unlabelled, encoder),
            )  # fmt: skip
        if how == "table":
            shown.print()
        echo(str(found) if how == "table" else getattr(found, f"to_{how}")())
        if found.errors:
            runs = "1 run" if len(found.errors) == 1 else f"{len(found.errors)} runs"
            fail(f"{runs} failed, which the same command tries again; the first: {found.errors[0]}")


def _setting(name: str | None, data: str | None, noise: str) -> tuple[str, Callable[[str, int], Recipe] | None]:
    """What is compared on, and the paper's recipes if it has some for a data set."""
    if name is None and data is None:
        raise ValueError("compare on what? --data PLACE for data of your own, or --dataset digits for a data set with recipes")
    if name is None:
        return str(data), None
    if data is not None and Path(data).expanduser().is_file():
        raise ValueError(f"{data}: with --dataset, --data is the folder of data sets; leave --dataset out for data of your own")
    from noiseproof import paper

    dataset = paper.recipe(f"{name}/ce", noise=noise).dataset
    known = {recipe.partition("/")[2] for recipe in paper.list_recipes() if recipe.startswith(f"{dataset}/")}

    def published(loss: str, seed: int) -> Recipe:
        return paper.recipe(f"{dataset}/{loss if loss in known else 'ce'}", noise=noise, seed=seed)

    return dataset, published


class ComparisonDisplay(ProgressBar):
    """A bar over all runs on a terminal; elsewhere a line for each run that has ended."""

    def on_begin(self, description: str, runs: int) -> None:
        self.line(description)
        self.runs, self.done = runs, 0
        self.begin()
        self._move()

    def on_warning(self, text: str) -> None:
        warn(text)

    def _move(self) -> None:
        self.update(f"{self.done} of {self.runs} runs", self.done, self.runs, self.left(self.done, self.runs))

    def on_run_end(self, text: str) -> None:
        self.done += 1
        self._move()
        if self.bar.disable:
            self.line(f"{self.done:>{len(str(self.runs))}}/{self.runs}  {text}")
