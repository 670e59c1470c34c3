"""The paper's figures from our runs, as SVG and PNG, and the commands for what is missing."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from noiseproof import paper
from noiseproof.paper.figures import FIGURES, Curve, curve_recipe
from noiseproof.paper.groups import Group, command
from noiseproof.paper.page import Embedding, by_noise
from noiseproof.paper.recipes import HISTOGRAMS
from noiseproof.report.curves import LINE_COLORS, line_style
from noiseproof.report.folders import BINS

__all__ = ["Drawn", "draw_figures", "runs_of"]

(HISTOGRAM_EPOCHS,) = set(HISTOGRAMS.values())


def runs_of(groups: Iterable[Group], curve: Curve, profile: str = paper.PROFILES[0]) -> Group | None:
    """The runs of a curve."""
    facts = curve_recipe(curve, profile=profile)
    known = paper.recipe(f"{curve.dataset}/{curve.loss}", profile=profile).loss_options
    asked = {f"loss.{key}": value for key, value in facts.loss_options.items() if known.get(key) != value}
    for group in groups:
        same = [group.recipe.get(key) == getattr(facts, key) for key in ("dataset", "loss", "noise")]
        others = {key: value for key, value in (group.changes or {}).items() if key != "precision"}
        if all(same) and group.profile == profile and group.changes is not None and others == asked:
            return group
    return None


def _command(curve: Curve, precision: str) -> str:
    changes = {**{f"loss.{key}": value for key, value in curve.options}, "precision": precision}
    facts = {"dataset": curve.dataset, "loss": curve.loss, "noise": curve.noise, "seed": paper.SEEDS[0]}
    return command(facts, changes)


class Drawn(NamedTuple):
    """The files, and what is missing: of which figure, and the command that makes it."""

    files: list[Path]
    missing: list[tuple[str, str]]


def draw_figures(
    groups: Sequence[Group],
    folder: Path,
    precision: str,
    embeddings: Sequence[Embedding] = (),
    *,
    only: Collection[str] | None = None,
    profile: str = paper.PROFILES[0],
) -> Drawn:
    """Draw what the runs allow: curves for every noise, histogram, amse_a, amse_q and tsne; or ``only`` the figures named."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = Drawn([], [])
    for title, members in by_noise(groups).items() if only is None else ():
        curves = {group.name: curve for group in members if (curve := group.curve("test_accuracy"))}
        if curves:
            name = re.sub(r"[^\w.+-]+", "_", f"curves_{title}").lower()
            drawn.files.extend(_panels(folder / name, {title: curves}))
    for figure, wanted in FIGURES.items():
        if only is not None and figure not in only:
            continue
        if figure == "tsne":
            drawn.files.extend(_tsne(folder / figure, embeddings) if embeddings else ())
            drawn.missing.extend(() if embeddings else ((figure, line) for line in _tsne_commands(wanted, precision)))
            continue
        found = {curve: group for curve in wanted if (group := runs_of(groups, curve, profile)) and _has(group, figure)}
        drawn.missing.extend((figure, _command(curve, precision)) for curve in wanted if curve not in found)
        if found:
            drawn.files.extend((_histogram if figure == "histogram" else _curves)(folder / figure, found))
    return drawn


def _tsne_commands(curves: Iterable[Curve], precision: str) -> list[str]:
    return [*(_command(curve, precision) for curve in curves), "noiseproof report RUNS --figures DIR --tsne RUN --data DIR"]


def _has(group: Group, figure: str) -> bool:
    """Whether these runs kept what a figure shows."""
    return set(HISTOGRAM_EPOCHS) <= set(group.confidence) if figure == "histogram" else bool(group.curve("test_accuracy"))


def _curves(path: Path, found: Mapping[Curve, Group]) -> list[Path]:
    panels: dict[str, dict[str, list[float | None]]] = {curve.panel: {} for curve in FIGURES[path.name]}
    for curve, group in found.items():
        panels[curve.panel][curve.name] = group.curve("test_accuracy")
    return _panels(path, panels)


def _histogram(path: Path, found: Mapping[Curve, Group]) -> list[Path]:
    rows = [(curve.name, group.confidence) for curve, group in found.items()]

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

    return _saved(path, (12, 2.6 * len(rows)), draw)


def _panels(path: Path, panels: Mapping[str, Mapping[str, Sequence[float | None]]]) -> list[Path]:
    names = list(dict.fromkeys(name for curves in panels.values() for name in curves))

    def draw(figure: Any) -> None:
        for axis, (title, curves) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True):
            for name, curve in curves.items():
                style = {**line_style(names.index(name)), "linewidth": 1.3}
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
