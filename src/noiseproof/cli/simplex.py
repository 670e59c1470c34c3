"""The risk over all predictions for three classes, as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from noiseproof.io.files import write_whole
from noiseproof.losses import RobustLoss
from noiseproof.theory import minimiser, risk

__all__ = ["SimplexRisk", "draw_simplex", "simplex_risks"]

GRID = 80  # steps along a side
CORNERS = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, np.sqrt(3) / 2]])


@dataclass(frozen=True)
class SimplexRisk:
    """The risk under some weights at points ``[P, 3]`` of the simplex, and the prediction where it is least."""

    weights: NDArray[np.float64]
    points: NDArray[np.float64]
    values: NDArray[np.float64]
    minimiser: NDArray[np.float64]


def simplex_risks(loss: RobustLoss, weights: Sequence[ArrayLike]) -> list[SimplexRisk]:
    """For each vector of three label weights. The edge is left out by a little: some losses are infinite there."""
    sides = [(i, j, GRID - i - j) for i in range(GRID + 1) for j in range(GRID + 1 - i)]
    points = np.maximum(np.array(sides) / GRID, 1e-3)
    points /= points.sum(1, keepdims=True)
    return [SimplexRisk(np.asarray(w, np.float64), points, risk(loss, w, points), minimiser(loss, w)) for w in weights]


def draw_simplex(found: Sequence[SimplexRisk], titles: Sequence[str], heading: str, file: Path) -> None:
    """A triangle for each: darker is a higher risk, the cross is the minimiser, the corner A the clean class."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    kind = file.suffix.removeprefix(".")
    if kind not in ("png", "svg", "pdf"):
        raise ValueError(f"a picture is a .png, .svg or .pdf file, got {file}")
    figure = Figure(figsize=(3.1 * len(found), 3.3), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(heading)
    for axis, each, title in zip(figure.subplots(1, len(found), squeeze=False)[0], found, titles, strict=True):
        x, y = (each.points @ CORNERS).T
        spread = each.values - each.values.min()
        levels = np.quantile(spread, np.linspace(0, 1, 15))  # each band has as many predictions as any other
        axis.tricontourf(x, y, spread, levels=np.unique(levels), cmap="viridis_r")
        axis.plot(*(each.minimiser @ CORNERS), "X", color="#c1121f", markersize=11, markeredgecolor="white", clip_on=False)
        for name, corner, way in zip("ABC", CORNERS, ("right", "left", "center"), strict=True):
            axis.annotate(name, corner, xytext=(0, -13 if corner[1] == 0 else 5), textcoords="offset points", ha=way)
        axis.set(title=title, aspect="equal", xlim=(-0.06, 1.06), ylim=(-0.12, 0.98))
        axis.axis("off")
    figure.supxlabel("predictions for three classes; clean class A; X where the risk is least; darker is higher", fontsize=9)
    write_whole(file, lambda path: figure.savefig(path, format=kind, dpi=150))
