"""Pictures of runs as files, by Matplotlib, whose imports are all lazy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from noiseproof.io.files import write_whole
from noiseproof.io.text import excerpt
from noiseproof.train.record_files import BINS

CURVES_FILE = "curves.png"
LINE_COLORS = ("#0072b2", "#c65100", "#007a5a", "#a8327f", "#7a5c00", "#4b4b4b", "#5a3fc0")
LINE_DASHES: tuple[Any, ...] = ("-", (0, (6, 2)), (0, (2, 2)), (0, (8, 2, 2, 2)), (0, (3.5, 1.5, 1, 1.5)))
SERIES = {"test_accuracy": "test", "given_accuracy": "given labels", "clean_accuracy": "clean labels"}


def line_style(k: int) -> dict[str, Any]:
    """Colour and dashes of the k-th line of a picture; 35 lines differ in one of them."""
    return {"color": LINE_COLORS[k % len(LINE_COLORS)], "linestyle": LINE_DASHES[k % len(LINE_DASHES)]}


def draw_curves(record: Mapping[str, Any], folder: Path) -> Path:
    """Draw the accuracies and the loss of a record with its epochs; the same record gives the same bytes."""
    from matplotlib.figure import Figure

    epochs, recipe = record["epochs"], record["recipe"]
    numbers = [epoch["epoch"] for epoch in epochs]
    curves = {name: [epoch.get(key) for epoch in epochs] for key, name in SERIES.items()}
    others = [epoch.get("other_accuracies", {}) for epoch in epochs]
    curves |= {name: [shares.get(name) for shares in others] for name in others[-1]}
    figure = Figure(figsize=(9, 3.4))
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


def save_figure(path: Path, size: tuple[float, float], draw: Callable[[Any], None]) -> list[Path]:
    """As SVG and PNG; the same runs give the same bytes of SVG."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"svg.hashsalt": "noiseproof", "svg.fonttype": "none", "text.parse_math": False}):
        figure = Figure(figsize=size, layout="constrained")
        draw(figure)
        files = [path.parent / f"{path.name}.{kind}" for kind in ("svg", "png")]
        write_whole(files[0], lambda place: figure.savefig(place, format="svg", metadata={"Date": None}))
        write_whole(files[1], lambda place: figure.savefig(place, format="png", dpi=150))
    return files
