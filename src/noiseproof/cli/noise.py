"""``noiseproof noise``: make noisy labels with a manifest, verify one, show a matrix."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from rich.style import Style
from rich.table import Table
from rich.text import Text

from noiseproof.cli.completion import datasets, noises
from noiseproof.cli.output import console, errors_reported, warn
from noiseproof.version import __version__

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from noiseproof.noise import LabelNoise, NoiseSpec, NoisyLabels

app = typer.Typer(help="Make noisy labels that say how they were made, and check them.", no_args_is_help=True)

NOISES = "symmetric:0.8, pairflip:0.2, asymmetric-cifar10:0.4, asymmetric-cifar100:0.3, instance:0.4, or a matrix's file."
Spec = Annotated[str, typer.Argument(help=NOISES, autocompletion=noises)]
CleanLabels = Annotated[Path | None, typer.Option("--labels", help="The clean labels: .npy, .npz, .json, .pt or .csv.")]
DatasetName = Annotated[
    str | None,
    typer.Option(
        "--dataset", help="Or a data set, by name or place: its training labels, and its images.", autocompletion=datasets
    ),
]
Root = Annotated[Path | None, typer.Option("--data", help="Folder of data sets; else $NOISEPROOF_DATA.")]
Classes = Annotated[int | None, typer.Option(help="Number of classes; read from the labels if left out.", min=2)]
SHOWN_CLASSES = 20
DEFAULT_CLASSES = 10
"""Of noise that is defined for any number of classes, where only its matrix is looked at."""


@app.command()
def make(
    spec: Spec,
    out: Annotated[Path, typer.Option(help="Folder for labels.npy and manifest.json.")],
    labels: CleanLabels = None,
    name: Annotated[str | None, typer.Option(help="Which labels, if the file holds several.")] = None,
    dataset: DatasetName = None,
    data: Root = None,
    classes: Classes = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same labels on every machine.")] = 0,
    rule: Annotated[
        str | None, typer.Option(help="exact (if left out), draws, or published (truncated counts, as in the papers' code).")
    ] = None,
) -> None:
    """Write noisy labels and a manifest."""
    import numpy as np

    from noiseproof import noise as label_noise
    from noiseproof.noise import NoiseSpec
    from noiseproof.noise.instance import INSTANCE

    with errors_reported():
        parsed = NoiseSpec.parse(spec)
        if rule is not None and parsed.kind == INSTANCE:
            raise ValueError(f"--rule is for noise that a matrix describes, got {rule!r} for {spec!r}; leave it out")
        clean = clean_labels(labels, name, dataset, data)
        noisy, noise = apply_noise(parsed, clean, classes, seed, rule or "exact")
        manifest = label_noise.write_noisy_labels(out, noise, clean.labels, noisy, __version__)
    if absent := noise.classes - len(np.unique(clean.labels)):
        gaps = "labels count from 0; a gap is a class too"
        warn(f"{absent} of the {noise.classes} classes have no label in {clean.source} ({gaps})")
    changed = f"{int(noisy.mask.sum())} of {len(noisy.labels)} labels changed: {noisy.rate:.4f}"
    console.print(f"{changed} (asked {noise.noise_rate:.4f})", highlight=False)
    written = f"wrote {out / 'labels.npy'} and {manifest}; hash {noisy.hash[:12]}"
    console.print(written, markup=False, highlight=False, soft_wrap=True)


@app.command()
def verify(
    manifest: Annotated[Path, typer.Argument(help="A manifest.json, or its folder.")],
    labels: CleanLabels = None,
    name: Annotated[str | None, typer.Option(help="Which labels, if the file holds several.")] = None,
    dataset: DatasetName = None,
    data: Root = None,
) -> None:
    """Check noisy labels against their manifest; given the clean ones, make the noise again and compare."""
    from noiseproof import noise as label_noise

    with errors_reported():
        nothing = labels is None and dataset is None and name is None
        clean = None if nothing else clean_labels(labels, name, dataset, data)
        facts = label_noise.verify(manifest) if clean is None else label_noise.verify(manifest, clean.labels, clean.images)
    checked = what_was_checked(facts, compared=clean is not None)
    console.print(f"[green]fine[/]: {checked} are as the manifest says; rate {facts['rate_realised']:.4f}", highlight=False)


def apply_noise(spec: NoiseSpec, clean: Clean, classes: int | None, seed: int, rule: str) -> tuple[NoisyLabels, LabelNoise]:
    """The noisy labels, and the noise for the manifest; an error about the labels names their source."""
    from noiseproof.noise.matrix import LabelError

    classes = classes or clean.classes
    if classes is None and not clean.labels.any():
        raise ValueError(f"{clean.source}: all its labels are 0; give --classes")
    facts: dict[str, Any] = {"classes": classes, "images": clean.images, "dataset": clean.dataset}
    try:
        noisy, noise = spec.apply(clean.labels, seed, rule, **facts)  # type: ignore[arg-type] # other rules are refused there
    except LabelError as error:
        raise ValueError(f"{clean.source}: {error}") from error
    if noise is None:
        raise ValueError(f"{spec} is a file of labels already; 'noiseproof data show NAME --labels FILE' compares them")
    return noisy, noise


def what_was_checked(facts: dict[str, Any], compared: bool) -> str:
    """What was verified, and how to verify the rest; ``compared`` if the clean labels were given."""
    from noiseproof.noise.instance import INSTANCE

    if facts["made_anew"]:
        return "labels, rate, matrix and seed"
    if facts["noise"] == INSTANCE:
        way = "give --dataset with images in memory to check the noise itself"
    elif facts["rule"] is None:
        way = "not a seed: these are labels from a file" if compared else "give --labels or --dataset to check rate and matrix"
    else:
        way = "give --labels or --dataset to check the noise itself"
    return f"labels, rate and matrix ({way})" if compared else f"labels ({way})"


class Clean(NamedTuple):
    """Clean labels and where they are from; those of a data set with its name, classes, and images if they are in memory."""

    labels: NDArray[np.int64]
    source: str
    classes: int | None = None
    images: NDArray[Any] | None = None
    dataset: str | None = None


def clean_labels(labels: Path | None, name: str | None, dataset: str | None, root: Path | None) -> Clean:
    """From a file of labels, or the training split of a data set."""
    from noiseproof.data import open_dataset

    if name is not None and labels is None:
        raise ValueError(f"--name picks one of several labels in the file of --labels, got {name!r} without --labels")
    if (labels is None) == (dataset is None):
        raise ValueError("the clean labels come from --labels FILE or from --dataset NAME_OR_PATH: give one of the two")
    if labels is not None:
        return Clean(_labels_in(labels, name), str(labels))
    opened = open_dataset(str(dataset), root)
    images = opened.train.inputs if opened.train.in_memory else None
    return Clean(opened.train.labels, str(dataset), len(opened.classes), images, opened.name)


def _labels_in(file: Path, name: str | None) -> NDArray[np.int64]:
    from noiseproof import noise as label_noise
    from noiseproof.data.opening import find_table

    try:
        return label_noise.load_labels(file, name)
    except ValueError as error:
        if find_table(str(file)) is None:
            raise
        raise ValueError(f"{error}; --dataset {shlex.quote(str(file))} takes the labels of a table with features") from error


@app.command()
def show(
    spec: Annotated[
        str, typer.Argument(help="A noise (symmetric:0.8, ...), a matrix's file, or a manifest.json.", autocompletion=noises)
    ],
    classes: Annotated[
        int | None, typer.Option(help=f"Of symmetric and pairflip noise; {DEFAULT_CLASSES} if left out.", min=2)
    ] = None,
    png: Annotated[Path | None, typer.Option(help="Also write the matrix as a picture.")] = None,
) -> None:
    """Show a transition matrix as a heat map."""
    import numpy as np

    with errors_reported():
        name, matrix, rate = matrix_of(spec, classes)
        if png is not None:
            heat_map_file(matrix, name, png)
    largest = float((matrix - np.diag(np.diag(matrix))).max())
    console.print(f"{name}: {len(matrix)} classes, rate {rate:.4f}, largest flip {largest:.4f}", markup=False, highlight=False)
    console.print(heat_map(matrix))
    if len(absent := np.flatnonzero(~matrix.any(1))):
        some = ", ".join(map(str, absent[:SHOWN_CLASSES])) + (", ..." if len(absent) > SHOWN_CLASSES else "")
        console.print(f"no example has the clean label {some}: nothing to show in these rows", markup=False, highlight=False)
    if png is not None:
        console.print(f"wrote {png}", markup=False, highlight=False, soft_wrap=True)


def matrix_of(spec: str, classes: int | None) -> tuple[str, NDArray[np.float64], float]:
    """The name, the transition matrix and the rate of a noise, or of labels by their manifest: those that were realised.

    A realised matrix has a row of zeros for a class without examples, so it may not be a noise's matrix.
    """
    import numpy as np

    from noiseproof import noise as label_noise
    from noiseproof.io.files import is_dir
    from noiseproof.noise import LabelNoise, NoiseSpec

    if Path(spec).name == "manifest.json" or is_dir(Path(spec)):
        facts = label_noise.verify(spec)
        realised = np.asarray(facts["matrix_realised"], np.float64)
        if classes is not None and len(realised) != classes:
            raise ValueError(f"{spec} is of {len(realised)} classes, got {classes}; leave out --classes")
        try:
            LabelNoise(np.where(realised.any(1, keepdims=True), realised, np.eye(len(realised))))
        except ValueError as error:
            raise ValueError(f"{spec}: 'matrix_realised': {error}") from error
        return f"{facts['noise']}, realised", realised, float(facts["rate_realised"])
    parsed = NoiseSpec.parse(spec)
    noise = parsed.matrix(DEFAULT_CLASSES if classes is None and parsed.of_any_classes else classes)
    return noise.name, noise.matrix, noise.noise_rate


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
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.6, 5), layout="constrained")
    FigureCanvasAgg(figure)
    axis = figure.subplots()
    image = axis.imshow(matrix, cmap="Blues", vmin=0, vmax=1, interpolation="nearest")
    axis.set(xlabel="given label", ylabel="clean label", title=title)
    figure.colorbar(image, ax=axis, label="probability")
    figure.savefig(path, format="png", dpi=130)
