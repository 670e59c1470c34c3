"""The paper's figures from our runs, as SVG and PNG."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from noiseproof.paper.groups import PaperGroup
from noiseproof.paper.plan import FIGURES, Curve, curve_recipe
from noiseproof.paper.recipes import HISTOGRAMS, recipe
from noiseproof.paper.settings import PROFILES
from noiseproof.report.figures import Embedding, draw_confidence, draw_embeddings, draw_panels

(HISTOGRAM_EPOCHS,) = set(HISTOGRAMS.values())


def runs_of(groups: Iterable[PaperGroup], curve: Curve, profile: str = PROFILES[0]) -> PaperGroup | None:
    """The runs of a curve."""
    facts = curve_recipe(curve, profile=profile)
    known = recipe(f"{curve.dataset}/{curve.loss}", profile=profile).loss_options
    asked = {f"loss.{key}": value for key, value in facts.loss_options.items() if known.get(key) != value}
    for group in groups:
        same = [group.recipe.get(key) == getattr(facts, key) for key in ("dataset", "loss", "noise")]
        others = {key: value for key, value in (group.changes or {}).items() if key != "precision"}
        if all(same) and group.profile == profile and group.changes is not None and others == asked:
            return group
    return None


class DrawnFigure(NamedTuple):
    """A figure: its files, and the curves that have no runs."""

    name: str
    files: list[Path]
    missing: list[Curve]


def draw_figure(
    name: str,
    groups: Sequence[PaperGroup],
    folder: Path,
    embeddings: Sequence[Embedding] = (),
    profile: str = PROFILES[0],
) -> DrawnFigure:
    """Draw as SVG and PNG what the runs allow of a figure.

    Args:
        name: One of ``FIGURES``.
        groups: The runs, grouped by recipe.
        folder: Where the files go; it is made if it does not exist.
        embeddings: The panels of ``tsne``, which need the weights of runs.
        profile: Of the runs, ``paper-code`` or ``paper-text``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    curves = FIGURES[name]
    if name == "tsne":
        files = draw_embeddings(folder / name, embeddings) if embeddings else []
        return DrawnFigure(name, files, list(curves[len(embeddings) :]))
    found = {curve: group for curve in curves if (group := runs_of(groups, curve, profile)) and _has(group, name)}
    draw = _draw_histogram if name == "histogram" else _draw_curves
    return DrawnFigure(name, draw(folder / name, found) if found else [], [curve for curve in curves if curve not in found])


def _has(group: PaperGroup, figure: str) -> bool:
    """Whether these runs kept what a figure shows."""
    return set(HISTOGRAM_EPOCHS) <= set(group.confidence) if figure == "histogram" else bool(group.curve("test_accuracy"))


def _draw_curves(path: Path, found: Mapping[Curve, PaperGroup]) -> list[Path]:
    panels: dict[str, dict[str, list[float | None]]] = {curve.panel: {} for curve in FIGURES[path.name]}
    for curve, group in found.items():
        panels[curve.panel][curve.name] = group.curve("test_accuracy")
    return draw_panels(path, panels)


def _draw_histogram(path: Path, found: Mapping[Curve, PaperGroup]) -> list[Path]:
    rows = {curve.name: {epoch: group.confidence[epoch] for epoch in HISTOGRAM_EPOCHS} for curve, group in found.items()}
    return draw_confidence(path, rows)
