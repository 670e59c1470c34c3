"""``noiseproof data``: fetch data sets, list them, show one."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
from rich.progress import Progress as Bars
from rich.table import Table
from rich.text import Text

from noiseproof.cli.output import console, errors_reported, printable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from noiseproof.data import Dataset, Examples
    from noiseproof.data.registry import NamedDataset, Progress
    from noiseproof.noise import NoisyLabels

app = typer.Typer(help="Fetch data sets, list them, look at one.", no_args_is_help=True)

FOLDER = "Folder of data sets; else $NOISEPROOF_DATA, else ~/.cache/noiseproof."
Root = Annotated[Path | None, typer.Option("--data", help=FOLDER)]
NameOrPath = Annotated[str, typer.Argument(metavar="NAME_OR_PATH", help="A name, a folder, an .npz file or a list.")]
Name = Annotated[str, typer.Argument(help="A data set; 'noiseproof data list' lists them.")]
SHOWN_CLASSES = 20
BAR = 24
CHANNELS_FIRST = "the channels come first; transpose(0, 2, 3, 1) makes images [N, H, W, C]"


class SplitName(StrEnum):
    train = "train"
    test = "test"


@app.command()
def fetch(name: Name, data: Root = None) -> None:
    """Download a data set, verify it and unpack it."""
    from noiseproof.data import fetch as fetch_files

    try:
        with errors_reported(), _progress() as progress:
            folder = fetch_files(name, data, progress=progress)
    except KeyboardInterrupt:
        console.print("stopped; nothing was left behind", highlight=False)
        raise typer.Exit(130) from None
    said = f"{name} is in {folder}, and its checksums are the published ones"
    console.print(said, markup=False, highlight=False, soft_wrap=True)


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
    split: Annotated[SplitName, typer.Option(help="Whose images and labels.")] = SplitName.train,
    labels: Annotated[Path | None, typer.Option(help="Given labels of the same examples, to compare.")] = None,
    name: Annotated[str | None, typer.Option(help="Which labels, if the file holds several.")] = None,
    png: Annotated[Path | None, typer.Option(help="Also write images of each class as a picture.")] = None,
    seed: Annotated[int, typer.Option(help="Chooses the images.", min=0)] = 0,
    check: Annotated[bool, typer.Option(help="Hold CIFAR to its published checksums; a re-packed copy has others.")] = True,
) -> None:
    """Show a data set: sizes, classes, checksums and images."""
    from noiseproof.cli import pictures
    from noiseproof.data import open_dataset

    with errors_reported():
        if name is not None and labels is None:
            raise ValueError(f"--name picks one of several labels in the file of --labels, got {name!r} without --labels")
        opened = open_dataset(dataset, data, check=check)
        summary = describe(opened, split.value, labels, name)
        given = None if summary.given is None else summary.given.labels
        drawn = console.color_system in ("256", "truecolor")
        tiles = pictures.choose_images(opened, split.value, 2, classes=SHOWN_CLASSES, given=given, seed=seed) if drawn else []
        if png is not None:
            _write_picture(opened, split.value, given, seed, png)
    _print_summary(summary)
    if tiles:
        console.print(pictures.half_blocks(tiles))
    if png is not None:
        console.print(f"wrote {png}", markup=False, highlight=False, soft_wrap=True)


class Summary(NamedTuple):
    """What ``show`` prints: size and inputs of every split, and the classes of one."""

    name: str
    classes: tuple[str, ...]
    splits: dict[str, tuple[int, str]]
    split: str
    counts: NDArray[np.int64]
    sources: dict[str, str]
    given: NoisyLabels | None
    channels_first: bool = False

    @property
    def balance(self) -> str:
        """How unequal the classes are, in words."""
        least, most = int(self.counts.min()), int(self.counts.max())
        if least == most:
            return f"every class of the {self.split} split has {most} examples"
        if least == 0:
            return f"classes without an example in the {self.split} split: {int((self.counts == 0).sum())}"
        return f"the largest class of the {self.split} split is {most / least:.3g} times the smallest"


def describe(dataset: Dataset, split: str, labels: Path | None = None, name: str | None = None) -> Summary:
    import numpy as np

    from noiseproof import noise as label_noise

    if split not in dataset.splits:
        raise ValueError(f"{dataset.name} has no {split} split; it has {', '.join(dataset.splits)}")
    clean, count = dataset.splits[split].labels, len(dataset.classes)
    given = None if labels is None else label_noise.read_noisy_labels(labels, clean, count, name)
    splits = {key: (len(part), _inputs(part)) for key, part in dataset.splits.items()}
    counts, first = np.bincount(clean, minlength=count), any(map(_channels_first, dataset.splits.values()))
    return Summary(dataset.name, dataset.classes, splits, split, counts, dataset.sources, given, first)


def _inputs(split: Examples) -> str:
    import numpy as np

    if not split.in_memory:
        return "images in files"
    x = split.inputs
    text = f"{'x'.join(map(str, x.shape[1:]))} {x.dtype}"
    if x.dtype == np.uint8 or not x.size:
        return text
    return f"{text} in [{x.min():.4g}, {x.max():.4g}], mean {x.mean():.4g}, std {x.std():.4g}"


def _channels_first(split: Examples) -> bool:
    return split.in_memory and split.channels_first


def _write_picture(dataset: Dataset, split: str, given: NDArray[np.int64] | None, seed: int, path: Path) -> None:
    from noiseproof.cli import pictures

    per_class = 8 if len(dataset.classes) <= pictures.ROWS else 1
    found = pictures.choose_images(dataset, split, per_class, given=given, seed=seed)
    if not found and _channels_first(dataset.splits[split]):
        raise ValueError(f"{dataset.name}: {CHANNELS_FIRST}")
    if not found:
        raise ValueError(f"{dataset.name}: its inputs are not images, so there is nothing to draw; leave out --png")
    hidden = len(dataset.classes) - len(found)
    more = f", the first {len(found)} of {len(dataset.classes)} classes" if hidden else ""
    note = "" if given is None else ", in red what is labelled otherwise"
    pictures.picture_file(found, f"{dataset.name}, {split} split{more}{note}", path)


def _print_summary(summary: Summary) -> None:
    console.print(f"[bold]{escape(printable(summary.name))}[/]: {len(summary.classes)} classes", highlight=False)
    for name, (size, inputs) in summary.splits.items():
        console.print(f"  {name:5} {size:>7} examples, {inputs}", markup=False, highlight=False)
    if summary.channels_first:
        console.print(f"  {CHANNELS_FIRST}", markup=False, highlight=False)
    console.print(f"  {summary.balance}", highlight=False)
    if summary.given is not None:
        changed = int(summary.given.mask.sum())
        console.print(f"  {changed} of the given labels differ: {summary.given.rate:.4f}", highlight=False)
    console.print(_class_table(summary))
    for name, digest in list(summary.sources.items())[:8]:
        console.print(f"  [dim]sha256 {digest[:12]}  {escape(printable(name))}[/]", highlight=False)


def _class_table(summary: Summary) -> Table:
    import numpy as np

    table = Table.grid(padding=(0, 2, 0, 0))
    given = summary.given
    heads = ["", "class", "examples", ""] if given is None else ["", "class", "examples", "", "given", "kept"]
    table.add_row(*(Text(head, style="dim") for head in heads))
    largest = max(1, int(summary.counts.max()))
    now = np.bincount(given.labels, minlength=len(summary.classes)) if given is not None else None
    for k, name in enumerate(summary.classes[:SHOWN_CLASSES]):
        count = int(summary.counts[k])
        bar = Text("█" * max(round(BAR * count / largest), int(count > 0)), style="blue")
        row = [Text(f"{k:>4}", style="dim"), Text(printable(name)), Text(f"{count:>8}"), bar]
        if given is not None and now is not None:
            row += [Text(f"{now[k]:>6}"), Text(f"{given.matrix[k, k]:>6.1%}" if count else "-")]
        table.add_row(*row)
    if len(summary.classes) > SHOWN_CLASSES:
        table.add_row("", Text(f"and {len(summary.classes) - SHOWN_CLASSES} more", style="dim"))
    return table


def _print_list(found: dict[str, tuple[NamedDataset, str | None]], root: Path, options: str) -> None:
    """``options`` are those of a command that fetches into this root."""
    console.print(f"data sets in {root}", markup=False, highlight=False, soft_wrap=True)
    for name, (known, place) in found.items():
        if place is not None:
            line = f"  [green]here[/]     {name:16} {escape(place)}"
        elif known.fetch:
            line = f"  fetch    {name:16} noiseproof data fetch {name}{escape(options)}"
        else:
            line = f"  [dim]by hand[/]  {name:16} [dim]{escape(known.by_hand)}[/]"
        console.print(line, highlight=False, soft_wrap=True)
    console.print("or give a place: an .npz file, a list of images, a folder of images or of official files", highlight=False)


@contextlib.contextmanager
def _progress() -> Iterator[Progress]:
    """A progress bar for each file on a terminal, else a line for each tenth of it."""
    if not console.is_terminal:
        told: dict[str, int] = {}

        def tell(name: str, have: int, total: int | None) -> None:
            step = 10 * have // total if total else have // 2**26
            if told.get(name) != step:
                told[name] = step
                of = f" of {total / 1e6:.1f}" if total else ""
                console.print(f"{name}: {have / 1e6:.1f}{of} MB", markup=False, highlight=False)

        yield tell
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Bars(*columns, console=console) as bars:
        tasks: dict[str, int] = {}

        def draw(name: str, have: int, total: int | None) -> None:
            if name not in tasks:
                tasks[name] = bars.add_task(name, total=total)
            bars.update(tasks[name], completed=have, total=total)  # type: ignore[arg-type]

        yield draw
