"""``noiseproof noise``: make noisy labels with a manifest, check one, look at one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray
from rich.style import Style
from rich.table import Table
from rich.text import Text

import noiseproof
from noiseproof import noise as label_noise
from noiseproof.cli.output import console, fail
from noiseproof.noise import LabelNoise

app = typer.Typer(help="Make noisy labels that say how they were made, and check them.", no_args_is_help=True)

Spec = Annotated[
    str,
    typer.Argument(help="symmetric:0.8, pairflip:0.2, asymmetric-cifar10:0.4, asymmetric-cifar100:0.3, or a matrix's file."),
]
Classes = Annotated[int | None, typer.Option(help="Number of classes; read from the labels if left out.", min=2)]
SHOWN_CLASSES = 20


@app.command()
def make(
    spec: Spec,
    labels: Annotated[Path, typer.Option(help="The clean labels: .npy, .npz, .json, .pt or .csv.")],
    out: Annotated[Path, typer.Option(help="Folder for labels.npy and manifest.json.")],
    name: Annotated[str | None, typer.Option(help="Which labels, if the file holds several.")] = None,
    classes: Classes = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same labels on every machine.")] = 0,
    rule: Annotated[str, typer.Option(help="exact, draws, or published (truncated counts, as in the papers' code).")] = "exact",
) -> None:
    """Write noisy labels and a manifest."""
    try:
        clean = label_noise.load_labels(labels, name)
        noise = label_noise.from_spec(spec, classes or int(clean.max(initial=0)) + 1)
        noisy = noise.apply(clean, seed, rule)  # type: ignore[arg-type]
        manifest = label_noise.write_noisy_labels(out, noise, clean, noisy, noiseproof.__version__)
    except (ValueError, TypeError, OSError) as error:
        fail(error)
    changed = int(noisy.mask.sum())
    console.print(f"{changed} of {len(clean)} labels changed: {noisy.rate:.4f} (asked {noise.noise_rate:.4f})", highlight=False)
    console.print(f"wrote {out / 'labels.npy'} and {manifest}; hash {noisy.hash[:12]}", highlight=False, soft_wrap=True)


@app.command()
def verify(
    manifest: Annotated[Path, typer.Argument(help="A manifest.json, or its folder.")],
    labels: Annotated[Path | None, typer.Option(help="The clean labels, to make the noise anew and compare.")] = None,
    name: Annotated[str | None, typer.Option(help="Which labels, if the file holds several.")] = None,
) -> None:
    """Check noisy labels against their manifest."""
    try:
        clean = None if labels is None else label_noise.load_labels(labels, name)
        facts = label_noise.verify(manifest, clean)
    except (ValueError, TypeError, OSError) as error:
        fail(error)
    checked = "labels, rate, matrix and seed" if clean is not None else "labels (give --labels to check the noise itself)"
    console.print(f"[green]fine[/]: {checked} are as the manifest says; rate {facts['rate_realised']:.4f}", highlight=False)


@app.command()
def show(
    spec: Annotated[str, typer.Argument(help="A noise (symmetric:0.8, ...), a matrix's file, or a manifest.json.")],
    classes: Classes = None,
    png: Annotated[Path | None, typer.Option(help="Also write the matrix as a picture.")] = None,
) -> None:
    """Show a transition matrix as a heat map."""
    try:
        if Path(spec).name == "manifest.json" or Path(spec).is_dir():
            facts = label_noise.verify(spec)
            noise = LabelNoise(np.asarray(facts["matrix_realised"]), f"{facts['noise']}, realised")
        else:
            noise = label_noise.from_spec(spec, classes)
        if png is not None:
            heat_map_file(noise.matrix, noise.name, png)
    except (ValueError, TypeError, OSError) as error:
        fail(error)
    largest = float((noise.matrix - np.diag(np.diag(noise.matrix))).max())
    console.print(
        f"{noise.name}: {noise.classes} classes, rate {noise.noise_rate:.4f}, largest flip {largest:.4f}", highlight=False
    )
    console.print(heat_map(noise.matrix))
    if png is not None:
        console.print(f"wrote {png}", highlight=False)


def heat_map(matrix: NDArray[np.float64]) -> Table:
    """The matrix in the terminal: rows are clean labels, columns given ones, darker is likelier."""
    shown = matrix[:SHOWN_CLASSES, :SHOWN_CLASSES]
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
    if len(matrix) > SHOWN_CLASSES:
        table.caption = f"the first {SHOWN_CLASSES} of {len(matrix)} classes; --png draws all"
    return table


def heat_map_file(matrix: NDArray[np.float64], title: str, path: Path) -> None:
    """The whole matrix as a picture."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.6, 5), layout="constrained")
    FigureCanvasAgg(figure)
    axis = figure.subplots()
    image = axis.imshow(matrix, cmap="Blues", vmin=0, vmax=1, interpolation="nearest")
    axis.set(xlabel="given label", ylabel="clean label", title=title)
    figure.colorbar(image, ax=axis, label="probability")
    figure.savefig(path, format="png", dpi=130)
