"""The paper's figures from our runs, as SVG and PNG, and the commands for what is missing."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from noiseproof import paper
from noiseproof.report.charts import COLORS, DASHES
from noiseproof.report.folders import BINS
from noiseproof.report.page import Embedding, by_noise
from noiseproof.report.page_runs import Group, command

__all__ = ["Drawn", "draw_figures"]

LINE_COLORS = ("#0072b2", "#c65100", "#007a5a", "#a8327f", "#7a5c00", "#4b4b4b", "#5a3fc0")
LINE_DASHES: tuple[Any, ...] = ("-", (0, (6, 2)), (0, (2, 2)), (0, (8, 2, 2, 2)), (0, (3.5, 1.5, 1, 1.5)))
HISTOGRAM_EPOCHS = (30, 60, 90, 120)
AMSE_A = (10.0, 20.0, 30.0, 40.0)
AMSE_Q = (1.0, 2.0, 3.0)
TSNE = ("ce", "jal-ce", "fl", "jal-fl")


class Wanted(NamedTuple):
    """A curve of a figure: a loss on CIFAR-10 with a noise, and its options where they are not those of the tables."""

    name: str
    loss: str
    noise: str
    options: Mapping[str, float] = {}

    def found_in(self, groups: Iterable[Group]) -> Group | None:
        facts = paper.recipe(f"cifar10/{self.loss}", noise=self.noise)
        asked = {f"loss.{key}": value for key, value in self.options.items() if facts.loss_options.get(key) != value}
        for group in groups:
            same = [group.recipe.get(key) == getattr(facts, key) for key in ("dataset", "loss", "noise")]
            others = {key: value for key, value in (group.changes or {}).items() if key != "precision"}
            if all(same) and group.profile == paper.PROFILES[0] and group.changes is not None and others == asked:
                return group
        return None

    def command(self, precision: str) -> str:
        changes = {**{f"loss.{key}": value for key, value in self.options.items()}, "precision": precision}
        return command({"dataset": "cifar10", "loss": self.loss, "noise": self.noise, "seed": paper.SEEDS[0]}, changes)


class Drawn(NamedTuple):
    """The files, and what is missing: of which figure, and the command that makes it."""

    files: list[Path]
    missing: list[tuple[str, str]]


def draw_figures(groups: Sequence[Group], folder: Path, precision: str, embeddings: Sequence[Embedding] = ()) -> Drawn:
    """Draw whatever the runs allow: curves for every noise, histogram, amse_a, amse_q and tsne."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = Drawn([], [])
    for title, members in by_noise(groups).items():
        curves = {group.name: curve for group in members if (curve := group.curve("test_accuracy"))}
        if curves:
            name = re.sub(r"[^\w.+-]+", "_", f"curves_{title}").lower()
            drawn.files.extend(_panels(folder / name, {title: curves}))
    drawn.files.extend(_histogram(groups, folder, precision, drawn.missing))
    for name, panels in (("amse_a", _amse_a()), ("amse_q", _amse_q())):
        drawn.files.extend(_curves(name, panels, groups, folder, precision, drawn.missing))
    if embeddings:
        drawn.files.extend(_tsne(folder / "tsne", embeddings))
    else:
        runs = [Wanted(loss, loss, "symmetric:0.4").command(precision) for loss in TSNE]
        drawn.missing.extend(("tsne", line) for line in [*runs, "noiseproof report RUNS --figures DIR --tsne RUN --data DIR"])
    return drawn


def _amse_a() -> dict[str, list[Wanted]]:
    noises = {"Symmetric 0.8": "symmetric:0.8", "Asymmetric 0.4": "asymmetric:0.4"}
    return {
        title: [*(Wanted(f"AMSE a={a:g}", "amse", noise, {"a": a}) for a in AMSE_A), Wanted("NNCE", "nnce", noise)]
        for title, noise in noises.items()
    }


def _amse_q() -> dict[str, list[Wanted]]:
    return {f"AMSE (q={q:g})": [Wanted(f"a={a:g}", "amse", "symmetric:0.8", {"a": a, "q": q}) for a in AMSE_A] for q in AMSE_Q}


def _curves(
    name: str,
    panels: Mapping[str, Sequence[Wanted]],
    groups: Sequence[Group],
    folder: Path,
    precision: str,
    missing: list[tuple[str, str]],
) -> list[Path]:
    found: dict[str, dict[str, list[float | None]]] = {title: {} for title in panels}
    for title, wanted in panels.items():
        for one in wanted:
            group = one.found_in(groups)
            if group is not None and (curve := group.curve("test_accuracy")):
                found[title][one.name] = curve
            else:
                missing.append((name, one.command(precision)))
    return _panels(folder / name, found) if any(found.values()) else []


def _histogram(groups: Sequence[Group], folder: Path, precision: str, missing: list[tuple[str, str]]) -> list[Path]:
    rows = []
    for loss in ("ce", "jal-ce"):
        wanted = Wanted(loss.upper(), loss, "symmetric:0.4")
        group = wanted.found_in(groups)
        if group is not None and set(HISTOGRAM_EPOCHS) <= set(group.confidence):
            rows.append((wanted.name, group.confidence))
        else:
            missing.append(("histogram", wanted.command(precision)))
    if not rows:
        return []

    def draw(figure: Any) -> None:
        axes = figure.subplots(len(rows), len(HISTOGRAM_EPOCHS), squeeze=False, sharex=True, sharey=True)
        for line, (name, confidence) in zip(axes, rows, strict=True):
            for axis, epoch in zip(line, HISTOGRAM_EPOCHS, strict=True):
                for kind, hatch, color in (("right", None, LINE_COLORS[0]), ("wrong", "////", LINE_COLORS[1])):
                    style = {"facecolor": color, "alpha": 0.75} if hatch is None else {"fill": False, "edgecolor": color}
                    counts = confidence[epoch].get(kind, [0.0] * BINS)
                    axis.bar((np.arange(BINS) + 0.5) / BINS, counts, 1 / BINS, hatch=hatch, label=f"{kind} labels", **style)
                axis.set_title(f"{name} with {epoch} epochs", fontsize=9)
        for axis in axes[-1]:
            axis.set_xlabel("probability of the given label")
        axes[0, 0].legend(fontsize=8)

    return _saved(folder / "histogram", (12, 2.6 * len(rows)), draw)


def _panels(path: Path, panels: Mapping[str, Mapping[str, Sequence[float | None]]]) -> list[Path]:
    names = list(dict.fromkeys(name for curves in panels.values() for name in curves))

    def draw(figure: Any) -> None:
        for axis, (title, curves) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True):
            for name, curve in curves.items():
                k = names.index(name)
                style = {"color": LINE_COLORS[k % COLORS], "linestyle": LINE_DASHES[k % DASHES], "linewidth": 1.3}
                axis.plot(range(1, len(curve) + 1), [np.nan if v is None else v for v in curve], label=name, **style)
            axis.set(title=title, xlabel="epoch", ylabel="test accuracy, %")
            if curves:
                axis.legend(fontsize=8)

    return _saved(path, (5 * len(panels), 3.6), draw)


def _tsne(path: Path, embeddings: Sequence[Embedding]) -> list[Path]:
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

    return _saved(path, (4 * columns, 4 * rows), draw)


def _saved(path: Path, size: tuple[float, float], draw: Callable[[Any], None]) -> list[Path]:
    """As SVG and PNG; the same runs give the same bytes of SVG."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"svg.hashsalt": "noiseproof", "svg.fonttype": "none", "text.parse_math": False}):
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasAgg(figure)
        draw(figure)
        figure.savefig(f"{path}.svg", metadata={"Date": None})
        figure.savefig(f"{path}.png", dpi=150)
    return [Path(f"{path}.svg"), Path(f"{path}.png")]
