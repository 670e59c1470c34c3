"""``noiseproof noise``: make noisy labels with a manifest, verify one, show a matrix."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.style import Style
from rich.table import Table
from rich.text import Text

from noiseproof.cli.options import datasets, noises
from noiseproof.io.console import console, errors_reported, say, warn

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

app = typer.Typer(help="Generate label noise, and verify noisy labels.", no_args_is_help=True)

NOISES = "Make this noise: symmetric:0.8, pairflip:0.2, asymmetric-cifar10:0.4, instance:0.4, or that of a matrix's file."
Spec = Annotated[str, typer.Argument(help=NOISES, autocompletion=noises)]
LabelsFile = Annotated[
    Path | None, typer.Option("--labels", help="Read the clean labels from this file: .npy, .npz, .json, .pt or .csv.")
]
LabelsName = Annotated[str | None, typer.Option(help="Read the labels of this name, if the file contains several.")]
DatasetName = Annotated[
    str | None,
    typer.Option(
        "--dataset",
        help="Use the training labels, and the images, of this data set: a name or a place.",
        autocompletion=datasets,
    ),
]
Root = Annotated[Path | None, typer.Option("--data", help="Look for data sets in this folder; by default $NOISEPROOF_DATA.")]
Classes = Annotated[int | None, typer.Option(help="Set the number of classes; by default it is read from the labels.", min=2)]
MAX_CLASSES_SHOWN = 20


@app.command()
def make(
    spec: Spec,
    out: Annotated[Path, typer.Option(help="Write labels.npy and manifest.json into this folder.")],
    labels: LabelsFile = None,
    name: LabelsName = None,
    dataset: DatasetName = None,
    data: Root = None,
    classes: Classes = None,
    seed: Annotated[int, typer.Option(help="Set the random seed: the same seed gives the same labels on every machine.")] = 0,
    rule: Annotated[
        str | None,
        typer.Option(
            help="Draw labels by this rule: exact (default), draws, or published (truncated counts, as in the papers' code)."
        ),
    ] = None,
) -> None:
    """Write noisy labels and a manifest."""
    from noiseproof.data.opening import clean_labels
    from noiseproof.noise import make_noisy_labels

    with errors_reported():
        made = make_noisy_labels(spec, clean_labels(labels, name, dataset, data), out, classes=classes, seed=seed, rule=rule)
    if made.warning:
        warn(made.warning)
    say(str(made))


@app.command()
def verify(
    manifest: Annotated[Path, typer.Argument(help="Check against this manifest.json, or the one in this folder.")],
    labels: LabelsFile = None,
    name: LabelsName = None,
    dataset: DatasetName = None,
    data: Root = None,
) -> None:
    """Check noisy labels against their manifest; given the clean ones, make the noise again and compare."""
    from noiseproof.data.opening import clean_labels
    from noiseproof.noise import verify_noisy_labels

    with errors_reported():
        nothing = labels is None and dataset is None and name is None
        verified = verify_noisy_labels(manifest, None if nothing else clean_labels(labels, name, dataset, data))
    console.print(f"[green]fine[/]: {verified}")


@app.command()
def show(
    spec: Annotated[
        str,
        typer.Argument(
            help="Show this noise: symmetric:0.8 and the like, a matrix's file, or a manifest.json.", autocompletion=noises
        ),
    ],
    classes: Annotated[
        int | None, typer.Option(help="Set the number of classes of symmetric and pairflip noise; 10 by default.", min=2)
    ] = None,
    png: Annotated[Path | None, typer.Option(help="Write the matrix as a picture into this file, too.")] = None,
) -> None:
    """Show a transition matrix as a heat map."""
    from noiseproof.noise import noise_matrix

    with errors_reported():
        found = noise_matrix(spec, classes)
        if png is not None:
            found.plot(png)
    console.print(str(found), markup=False)
    console.print(heat_map(found.matrix))
    for line in filter(None, (found.note, "" if png is None else f"wrote {png}")):
        say(line)


def heat_map(matrix: NDArray[np.float64]) -> Table:
    """The matrix in the terminal: rows are clean labels, columns given ones, darker is likelier."""
    shown = matrix[:MAX_CLASSES_SHOWN, :MAX_CLASSES_SHOWN]
    table = Table.grid(padding=0)
    wide = len(shown) <= 10
    table.add_row("", *(Text(f"{j:^5}" if wide else f"{j:>2} ", style="dim") for j in range(len(shown))))
    for i, row in enumerate(shown):
        cells = []
        for value in row:
            level = round(255 - 200 * min(1.0, float(value)) ** 0.5)
            style = Style(color="black" if level > 140 else "white", bgcolor=f"rgb({level},{level},255)")
            text = (f"{value:^5.2f}" if wide else f"{100 * value:>2.0f} ") if value else ("  .  " if wide else " . ")
            cells.append(Text(text, style=style if value else "dim"))
        table.add_row(Text(f"{i:>3} ", style="dim"), *cells)
    if len(matrix) > MAX_CLASSES_SHOWN:
        table.caption = f"the first {MAX_CLASSES_SHOWN} of {len(matrix)} classes; --png draws all"
    return table
