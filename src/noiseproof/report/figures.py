"""Pictures of runs as files, by Matplotlib: numbers by epoch, and features in the plane. All imports of it are lazy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noiseproof.io.files import is_file, write_whole
from noiseproof.io.text import excerpt
from noiseproof.train.record import RECORD, WEIGHTS
from noiseproof.train.record_files import BINS

CURVES_FILE = "curves.png"
LINE_COLORS = ("#0072b2", "#c65100", "#007a5a", "#a8327f", "#7a5c00", "#4b4b4b", "#5a3fc0")
LINE_DASHES: tuple[Any, ...] = ("-", (0, (6, 2)), (0, (2, 2)), (0, (8, 2, 2, 2)), (0, (3.5, 1.5, 1, 1.5)))
SERIES = {"test_accuracy": "test", "given_accuracy": "given labels", "clean_accuracy": "clean labels"}
EMBEDDED_EXAMPLES = 2000
"""Of the test set in an embedding: all of CIFAR's take minutes and hide each other."""


class Embedding(NamedTuple):
    """Test examples in the plane, by t-SNE of what the network has before its last layer."""

    title: str
    points: NDArray[Any]
    labels: NDArray[Any]


def line_style(k: int) -> dict[str, Any]:
    """Colour and dashes of the k-th line of a picture; 35 lines differ in one of them."""
    return {"color": LINE_COLORS[k % len(LINE_COLORS)], "linestyle": LINE_DASHES[k % len(LINE_DASHES)]}


def draw_curves(record: Mapping[str, Any], folder: Path) -> Path:
    """Draw the accuracies and the loss of a record with its epochs; the same record gives the same bytes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    epochs, recipe = record["epochs"], record["recipe"]
    numbers = [epoch["epoch"] for epoch in epochs]
    curves = {name: [epoch.get(key) for epoch in epochs] for key, name in SERIES.items()}
    others = [epoch.get("other_accuracies", {}) for epoch in epochs]
    curves |= {name: [shares.get(name) for shares in others] for name in others[-1]}
    figure = Figure(figsize=(9, 3.4))
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    figure.subplots_adjust(0.07, 0.15, 0.99, 0.91)  # a constrained layout takes three times as long to draw
    style: dict[str, Any] = {"linewidth": 1.3, "marker": "." if len(epochs) < 20 else ""}
    for k, (name, curve) in enumerate(curves.items()):
        if any(value is not None for value in curve):
            percent = [np.nan if value is None else 100 * value for value in curve]
            left.plot(numbers, percent, label=name, **line_style(k), **style)
    left.set(xlabel="epoch", ylabel="accuracy, %")
    left.legend(fontsize=8)
    constant = record.get("loss_constant")
    right.plot(numbers, [epoch["loss"] for epoch in epochs], color=LINE_COLORS[0], **style)
    right.set(xlabel="epoch" + (f" (loss without its constant, {constant:.4g})" if constant else ""), ylabel="training loss")
    noise = "" if recipe.get("noise", "none") == "none" else f", {recipe['noise']}"
    title = f"{record['task'].get('name', recipe.get('dataset'))}, {recipe.get('loss')}{noise}, seed {recipe.get('seed')}"
    figure.suptitle(excerpt(title, 110), fontsize=10, parse_math=False)
    path = folder / CURVES_FILE
    write_whole(path, lambda place: figure.savefig(place, dpi=120, format="png", metadata={"Software": None}))
    return path


def draw_panels(path: Path, panels: Mapping[str, Mapping[str, Sequence[float | None]]]) -> list[Path]:
    """Draw test accuracies by epoch: a panel for each title, a line for each name; the files."""
    names = list(dict.fromkeys(name for curves in panels.values() for name in curves))

    def draw(figure: Any) -> None:
        for axis, (title, curves) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True):
            for name, curve in curves.items():
                style = {**line_style(names.index(name)), "linewidth": 1.3}
                axis.plot(range(1, len(curve) + 1), [np.nan if v is None else v for v in curve], label=name, **style)
            axis.set(title=title, xlabel="epoch", ylabel="test accuracy, %")
            if curves:
                axis.legend(fontsize=8)

    return save_figure(path, (5 * len(panels), 3.6), draw)


def draw_confidence(path: Path, rows: Mapping[str, Mapping[int, Mapping[str, Sequence[float]]]]) -> list[Path]:
    """Draw how many training examples have their given label with which probability: a row for each name, by epoch.

    ``rows`` has counts in ``BINS`` by name, by epoch and by kind of label, "right" or "wrong".
    """
    epochs = sorted(next(iter(rows.values())))

    def draw(figure: Any) -> None:
        axes = figure.subplots(len(rows), len(epochs), squeeze=False, sharex=True, sharey=True)
        for line, (name, confidence) in zip(axes, rows.items(), strict=True):
            for axis, epoch in zip(line, epochs, strict=True):
                for kind, hatch, color in (("right", None, LINE_COLORS[0]), ("wrong", "////", LINE_COLORS[1])):
                    style = {"facecolor": color, "alpha": 0.75} if hatch is None else {"fill": False, "edgecolor": color}
                    counts = confidence[epoch].get(kind, [0.0] * BINS)
                    axis.bar((np.arange(BINS) + 0.5) / BINS, counts, 1 / BINS, hatch=hatch, label=f"{kind} labels", **style)
                axis.set_title(f"{name} with {epoch} epochs", fontsize=9)
        for axis in axes[-1]:
            axis.set_xlabel("probability of the given label")
        axes[0, 0].legend(fontsize=8)

    return save_figure(path, (3 * len(epochs), 2.6 * len(rows)), draw)


def draw_embeddings(path: Path, embeddings: Sequence[Embedding]) -> list[Path]:
    """Draw test examples in the plane, a panel for each run; the files."""
    columns = min(2, len(embeddings))
    rows = -(-len(embeddings) // columns)

    def draw(figure: Any) -> None:
        axes = list(figure.subplots(rows, columns, squeeze=False).flat)
        for axis in axes:
            axis.set_axis_off()
        for axis, found in zip(axes, embeddings, strict=False):
            axis.scatter(*found.points.T, c=found.labels, cmap="tab10" if found.labels.max() < 10 else "nipy_spectral", s=3)
            for kind in np.unique(found.labels):
                axis.annotate(str(kind), np.median(found.points[found.labels == kind], 0), weight="bold", ha="center")
            axis.set_title(found.title, fontsize=9)

    return save_figure(path, (4 * columns, 4 * rows), draw)


def embed_run(folder: Path, data: str | Path | None) -> Embedding:
    """The test examples of a run in the plane, by t-SNE of the activations before the last layer.

    Args:
        folder: The folder of a finished run.
        data: The folder of data sets.

    Raises:
        FileNotFoundError: It is not the folder of a finished run.
        ValueError: The run has no test split, or its network or recipe is not one of this version.
    """
    import torch
    from sklearn.manifold import TSNE

    from noiseproof.models.base import Classifier
    from noiseproof.train import Recipe, load, prepare

    if not is_file(folder / RECORD) or not is_file(folder / WEIGHTS):
        raise FileNotFoundError(f"{folder} is not the folder of a finished run: it lacks {RECORD} or {WEIGHTS}")
    trained = load(
        folder, "cuda" if torch.cuda.is_available() else "cpu"
    )  # which runs no code that the folder names, and checks what it says
    try:
        recipe = Recipe.from_dict({} if trained.record is None else trained.record.recipe)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{folder / RECORD}: its recipe is not one of this version: {excerpt(error, 200)}") from error
    test, network = prepare(recipe, data).test, trained.network
    if test is None or not isinstance(network, Classifier):
        raise ValueError(f"{folder}: t-SNE needs a test split and a network of the catalogue")
    found = []
    with torch.no_grad():
        for batch in trained.preprocessing.batches(test, trained.device):
            found.append((network.penultimate(batch.inputs).float().cpu().numpy(), batch.labels.cpu().numpy()))
    features, labels = (np.concatenate(parts) for parts in zip(*found, strict=True))
    chosen = np.random.default_rng(0).permutation(len(labels))[:EMBEDDED_EXAMPLES]
    points = TSNE(random_state=0).fit_transform(features[chosen])
    return Embedding(f"{recipe.dataset}, {recipe.noise}, {recipe.loss}", points, labels[chosen])


def save_figure(path: Path, size: tuple[float, float], draw: Callable[[Any], None]) -> list[Path]:
    """As SVG and PNG; the same runs give the same bytes of SVG."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"svg.hashsalt": "noiseproof", "svg.fonttype": "none", "text.parse_math": False}):
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasAgg(figure)
        draw(figure)
        files = [path.parent / f"{path.name}.{kind}" for kind in ("svg", "png")]
        write_whole(files[0], lambda place: figure.savefig(place, format="svg", metadata={"Date": None}))
        write_whole(files[1], lambda place: figure.savefig(place, format="png", dpi=150))
    return files
