"""``noiseproof data``: fetch data sets, list them, show one."""

from __future__ import annotations

import shlex
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from noiseproof.cli.options import datasets, downloads
from noiseproof.io.console import ProgressBar, console, errors_reported, say, stoppable

if TYPE_CHECKING:
    from noiseproof.data.registry import NamedDataset

app = typer.Typer(help="Download, list and describe data sets.", no_args_is_help=True)

FOLDER = "Keep data sets in this folder; by default $NOISEPROOF_DATA, else ~/.cache/noiseproof."
Root = Annotated[Path | None, typer.Option("--data", help=FOLDER)]
NameOrPath = Annotated[
    str,
    typer.Argument(
        metavar="NAME_OR_PATH", help="Show this data set: a name, a folder, an .npz file or a list.", autocompletion=datasets
    ),
]
Name = Annotated[
    str, typer.Argument(help="Download this data set; 'noiseproof data list' lists them.", autocompletion=downloads)
]


class SplitName(StrEnum):
    train = "train"
    test = "test"


@app.command()
def fetch(name: Name, data: Root = None) -> None:
    """Download a data set, verify it and unpack it."""
    from noiseproof.data import fetch as fetch_files

    with stoppable(lambda: "nothing was left behind"), errors_reported(), FetchProgress(console) as progress:
        folder = fetch_files(name, data, progress=progress)
    say(f"{name} is in {folder}, and its checksums are the published ones")


@app.command("list")
def list_sets(data: Root = None) -> None:
    """List the data sets that can be fetched or opened by name, and those that are there."""
    from noiseproof.data import data_root
    from noiseproof.data.opening import list_datasets

    with errors_reported():
        found = list_datasets(data)
    _print_list(found, data_root(data), "" if data is None else f" --data {shlex.quote(str(data))}")


@app.command()
def show(
    dataset: NameOrPath = "digits",
    data: Root = None,
    split: Annotated[SplitName, typer.Option(help="Show the labels of this split.")] = SplitName.train,
    labels: Annotated[Path | None, typer.Option(help="Compare with these given labels of the same examples.")] = None,
    name: Annotated[str | None, typer.Option(help="Read the labels of this name, if the file contains several.")] = None,
    check: Annotated[
        bool, typer.Option(help="Check CIFAR against its published checksums; a re-packed copy has others.")
    ] = True,
) -> None:
    """Show a data set: sizes, classes and checksums."""
    from noiseproof.data import describe

    with errors_reported():
        summary = describe(dataset, data, split=split.value, labels=labels, name=name, check=check)
    console.print(str(summary), markup=False)


def _print_list(found: dict[str, tuple[NamedDataset, str | None]], root: Path, options: str) -> None:
    """``options`` are those of a command that fetches into this root."""
    say(f"data sets in {root}")
    for name, (known, place) in found.items():
        if place is not None:
            line = f"  [green]here[/]     {name:16} {escape(place)}"
        elif known.fetch:
            line = f"  fetch    {name:16} noiseproof data fetch {name}{escape(options)}"
        else:
            line = f"  [dim]by hand[/]  {name:16} [dim]{escape(known.by_hand)}[/]"
        console.print(line, soft_wrap=True)
    console.print("or give a place: an .npz file, a list of images, a folder of images or of official files")


class FetchProgress(ProgressBar):
    """A bar for the file that is downloaded; where there is no terminal a line for each tenth of it."""

    told = ("", 0)

    def __call__(self, name: str, have: int, total: int | None) -> None:
        size = f"{have / 1e6:.1f}{f' of {total / 1e6:.1f}' if total else ''} MB"
        self.update(name, have, total or have, size)
        step = name, 1 + (10 * have // total if total else have // 2**26)
        if self.bar.disable and self.told != step:
            self.told = step
            self.line(f"{name}: {size}")
