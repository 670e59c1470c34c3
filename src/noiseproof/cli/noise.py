"""``noiseproof noise``: make noisy labels with a manifest, check one, look at one."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.style import Style
from rich.table import Table
from rich.text import Text

import noiseproof
from noiseproof import noise as label_noise
from noiseproof.cli.output import console, fail
from noiseproof.data import Split, open_dataset
from noiseproof.noise import LabelNoise, NoisyLabels
from noiseproof.noise.matrix import ASYMMETRIC, INSTANCE
from noiseproof.train.task import ASYMMETRIC as ASYMMETRIC_OF

app = typer.Typer(help="Make noisy labels that say how they were made, and check them.", no_args_is_help=True)

Spec = Annotated[
    str,
    typer.Argument(
        help="symmetric:0.8, pairflip:0.2, asymmetric-cifar10:0.4, asymmetric-cifar100:0.3, instance:0.4, or a matrix's file."
    ),
]
CleanLabels = Annotated[Path | None, typer.Option("--labels", help="The clean labels: .npy, .npz, .json, .pt or .csv.")]
DatasetName = Annotated[
    str | None, typer.Option("--dataset", help="Or a data set, by name or place: its training labels, and its images.")
]
Root = Annotated[Path | None, typer.Option("--data", help="Folder of data sets; else $NOISEPROOF_DATA.")]
Classes = Annotated[int | None, typer.Option(help="Number of classes; read from the labels if left out.", min=2)]
SHOWN_CLASSES = 20


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
    try:
        clean = clean_labels(labels, name, dataset, data)
        count = classes or clean.classes
        if count < 2:
            raise ValueError(f"{labels or dataset}: all its labels are 0; give --classes")
        if spec.startswith("instance:"):
            noise, noisy = instance_noise(spec, clean, count, seed, rule)
        else:
            noise = same_classes(label_noise.from_spec(full_spec(spec, clean.dataset), count), spec, classes)
            noisy = applied(noise, clean.labels, seed, rule or "exact", labels or str(dataset))
        manifest = label_noise.write_noisy_labels(out, noise, clean.labels, noisy, noiseproof.__version__)
    except (ValueError, TypeError, OSError) as error:
        fail(error)
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
    """Check noisy labels against their manifest; given the clean ones, make the noise anew and compare."""
    try:
        nothing = labels is None and dataset is None and name is None
        clean = None if nothing else clean_labels(labels, name, dataset, data)
        facts = label_noise.verify(manifest, None if clean is None else clean.labels)
        if clean is not None and clean.images is not None and facts["noise"] == INSTANCE:
            verify_instance_noise(manifest, facts, clean.labels, clean.images)
            facts["made_anew"] = True
    except (ValueError, TypeError, OSError) as error:
        fail(error)
    checked = what_was_checked(facts, compared=clean is not None)
    console.print(f"[green]fine[/]: {checked} are as the manifest says; rate {facts['rate_realised']:.4f}", highlight=False)


def applied(noise: LabelNoise, labels: NDArray[np.int64], seed: int, rule: str, source: Path | str) -> NoisyLabels:
    """The labels with noise; what is wrong with them is said with the place they came from."""
    try:
        return noise.apply(labels, seed, rule)  # type: ignore[arg-type] # a rule that there is not is refused there
    except ValueError as error:
        raise ValueError(f"{source}: {error}" if "labels must" in str(error) else str(error)) from error


def what_was_checked(facts: dict[str, Any], compared: bool) -> str:
    """What ``verify`` may call fine, and how to check the rest; ``compared`` if the clean labels were given."""
    if facts["made_anew"]:
        return "labels, rate, matrix and seed"
    if facts["noise"] == INSTANCE:
        way = "give --dataset with images in memory to check the noise itself"
    elif facts["rule"] is None:
        way = "not a seed: these are labels from a file" if compared else "give --labels or --dataset to check rate and matrix"
    else:
        way = "give --labels or --dataset to check the noise itself"
    return f"labels, rate and matrix ({way})" if compared else f"labels ({way})"


@dataclass(frozen=True)
class Clean:
    """Clean labels, how many classes they are of, and the images if they came with them."""

    labels: NDArray[np.int64]
    classes: int
    images: NDArray[Any] | None = None
    dataset: str | None = None
    """The data set's name, where they are of one"""


def clean_labels(labels: Path | None, name: str | None, dataset: str | None, root: Path | None) -> Clean:
    """From a file of labels, or the training split of a data set."""
    if name is not None and labels is None:
        raise ValueError(f"--name picks one of several labels in the file of --labels, got {name!r} without --labels")
    if (labels is None) == (dataset is None):
        raise ValueError("the clean labels come from --labels FILE or from --dataset NAME_OR_PATH: give one of the two")
    if labels is not None:
        found = label_noise.load_labels(labels, name)
        return Clean(found, int(found.max(initial=0)) + 1)
    opened = open_dataset(str(dataset), root)
    images = opened.train.inputs if isinstance(opened.train, Split) else None
    return Clean(opened.train.labels, len(opened.classes), images, opened.name)


def full_spec(spec: str, dataset: str | None) -> str:
    """``asymmetric:RATE`` is the data set's own asymmetric noise, as in ``noiseproof train``; others stay as they are."""
    kind, _, rate = spec.partition(":")
    if kind != "asymmetric" or dataset is None:
        return spec
    own = ASYMMETRIC_OF.get(dataset)
    if own is None:
        known = ", ".join(f"asymmetric-{kind}" for kind in ASYMMETRIC)
        raise ValueError(f"{dataset} has no asymmetric noise of its own; there are {known}, pairflip, or a matrix's file")
    return f"asymmetric-{own}:{rate}"


def same_classes(noise: LabelNoise, spec: str, classes: int | None) -> LabelNoise:
    """The noise, if it is of as many classes as --classes says or nothing is said."""
    if classes is not None and noise.classes != classes:
        raise ValueError(f"{spec} is of {noise.classes} classes, got --classes {classes}; leave it out")
    return noise


def instance_noise(spec: str, clean: Clean, classes: int, seed: int, rule: str | None) -> tuple[LabelNoise, NoisyLabels]:
    """Noise that depends on the images, and what is written about it."""
    if rule is not None:
        raise ValueError(f"--rule is for noise that a matrix describes, got {rule!r} for {spec!r}; leave it out")
    if clean.images is None and clean.dataset is not None:
        raise ValueError(
            f"{spec} needs the images in memory, and those of {clean.dataset} are in files; give a data set in arrays, "
            "such as an .npz file"
        )
    if clean.images is None:
        raise ValueError(f"{spec} depends on the images: give --dataset NAME_OR_PATH with images in memory instead of --labels")
    number = spec.partition(":")[2]
    try:
        rate = float(number)
    except ValueError:
        raise ValueError(f"the rate in {spec!r} must be a number, got {number!r}") from None
    noisy = label_noise.instance_dependent(clean.images, clean.labels, rate, seed, classes)
    # What was asked, as a matrix: every image's expected rate is the rate, and the random projections favour no class. What
    # one seed's projections made of it is the realised matrix.
    asked = label_noise.symmetric(classes, rate).matrix
    facts = {"classes": classes, "rate": rate, "images_hash": image_hash(clean.images)}
    return LabelNoise(asked, INSTANCE, facts), noisy


def verify_instance_noise(manifest: Path, facts: dict[str, Any], clean: NDArray[np.int64], images: NDArray[Any]) -> None:
    """Make the noise anew from the images; ValueError says what is not as the manifest says."""
    stated = facts.get("parameters", {})
    missing = [key for key in ("rate", "images_hash") if key not in stated]
    if missing:
        raise ValueError(f"{manifest}: not a manifest of {INSTANCE} noise: {missing[0]!r} is missing in its parameters")
    found = image_hash(images)
    if found != stated["images_hash"]:
        raise ValueError(f"{manifest}: the hash of the images should be {stated['images_hash']}, found {found}")
    again = label_noise.instance_dependent(images, clean, stated["rate"], facts["seed"], facts["classes"])
    if again.hash != facts["labels_hash"]:
        raise ValueError(f"{manifest}: the hash of the labels made anew should be {facts['labels_hash']}, found {again.hash}")


def image_hash(images: NDArray[Any]) -> str:
    """SHA-256 of the shape, the kind and the bytes of an array of images."""
    digest = hashlib.sha256(f"{images.shape} {images.dtype.str}\n".encode())
    digest.update(np.ascontiguousarray(images).data)
    return digest.hexdigest()


@app.command()
def show(
    spec: Annotated[str, typer.Argument(help="A noise (symmetric:0.8, ...), a matrix's file, or a manifest.json.")],
    classes: Annotated[int | None, typer.Option(help="Number of classes; symmetric and pairflip noise need it.", min=2)] = None,
    png: Annotated[Path | None, typer.Option(help="Also write the matrix as a picture.")] = None,
) -> None:
    """Show a transition matrix as a heat map."""
    try:
        if Path(spec).name == "manifest.json" or Path(spec).is_dir():
            facts = label_noise.verify(spec)
            noise = LabelNoise(np.asarray(facts["matrix_realised"]), f"{facts['noise']}, realised")
        elif spec.partition(":")[0] == INSTANCE:
            way = "'noiseproof noise make' makes it, and its manifest shows the realised matrix"
            raise ValueError(f"{spec} has no matrix, it depends on the images; {way}")
        else:
            noise = label_noise.from_spec(spec, classes)
        same_classes(noise, spec, classes)
        if png is not None:
            heat_map_file(noise.matrix, noise.name, png)
    except (ValueError, TypeError, OSError) as error:
        fail(error)
    largest = float((noise.matrix - np.diag(np.diag(noise.matrix))).max())
    summary = f"{noise.name}: {noise.classes} classes, rate {noise.noise_rate:.4f}, largest flip {largest:.4f}"
    console.print(summary, markup=False, highlight=False)
    console.print(heat_map(noise.matrix))
    if png is not None:
        console.print(f"wrote {png}", markup=False, highlight=False, soft_wrap=True)


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
