"""The risk over all predictions for three classes, as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noiseproof.io.files import write_whole
from noiseproof.losses import RobustLoss
from noiseproof.theory.risk import minimiser, risk
from noiseproof.theory.weights import label_weights

__all__ = ["draw_risk"]

GRID_STEPS = 80  # along a side
CORNERS = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, np.sqrt(3) / 2]])
PICTURE_FORMATS = ("png", "svg", "pdf")


def draw_risk(loss: RobustLoss, noises: Sequence[str], path: str | Path, title: str | None = None) -> list[NDArray[np.float64]]:
    """Draw the risk over the predictions for three classes, one triangle for each noise.

    Darker is a higher risk, the cross is the minimiser, the corner A the clean class.

    Args:
        loss: The loss.
        noises: Noises on three classes, such as ``symmetric:0.4``.
        path: The file to write, .png, .svg or .pdf.
        title: The heading; the loss by default.

    Returns:
        For each noise the prediction where the risk is least.

    Raises:
        ValueError: If a noise is unknown or the file has another suffix.

    Example:
        >>> import tempfile
        >>> from noiseproof import MAE
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     [least] = draw_risk(MAE(), ["symmetric:0.4"], f"{folder}/risk.svg")
        >>> least.round(2)
        array([1., 0., 0.])
    """
    path = Path(path)
    if (kind := path.suffix.removeprefix(".")) not in PICTURE_FORMATS:
        raise ValueError(f"a picture is a .png, .svg or .pdf file, got {path}")
    weights = [label_weights(noise, 3)[0] for noise in noises]
    sides = [(i, j, GRID_STEPS - i - j) for i in range(GRID_STEPS + 1) for j in range(GRID_STEPS + 1 - i)]
    points = np.maximum(np.array(sides) / GRID_STEPS, 1e-3)  # some losses are infinite on the edge
    points /= points.sum(1, keepdims=True)
    least = [minimiser(loss, each) for each in weights]
    figure = _figure(points, [risk(loss, each, points) for each in weights], least, noises, title or f"risk of {loss!r}")
    write_whole(path, lambda place: figure.savefig(place, format=kind, dpi=150))
    return least


def _figure(
    points: NDArray[np.float64],
    risks: Sequence[NDArray[np.float64]],
    least: Sequence[NDArray[np.float64]],
    noises: Sequence[str],
    title: str,
) -> Any:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.1 * len(noises), 3.3), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title)
    x, y = (points @ CORNERS).T
    for axis, values, lowest, noise in zip(
        figure.subplots(1, len(noises), squeeze=False)[0], risks, least, noises, strict=True
    ):
        spread = values - values.min()
        levels = np.quantile(spread, np.linspace(0, 1, 15))  # each band has as many predictions as any other
        axis.tricontourf(x, y, spread, levels=np.unique(levels), cmap="viridis_r")
        axis.plot(*(lowest @ CORNERS), "X", color="#c1121f", markersize=11, markeredgecolor="white", clip_on=False)
        for name, corner, way in zip("ABC", CORNERS, ("right", "left", "center"), strict=True):
            axis.annotate(name, corner, xytext=(0, -13 if corner[1] == 0 else 5), textcoords="offset points", ha=way)
        axis.set(title=noise, aspect="equal", xlim=(-0.06, 1.06), ylim=(-0.12, 0.98))
        axis.axis("off")
    figure.supxlabel("predictions for three classes; clean class A; X where the risk is least; darker is higher", fontsize=9)
    return figure
