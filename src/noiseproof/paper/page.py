"""The paper's page as one HTML file: the answer, its tables, then what a report of any runs shows; no scripts, no network.

Its figures are drawn as SVG and PNG too: curves by epoch, histograms of confidence, features in the plane.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noiseproof.comparison.paired import PairedRanking, rank_paired
from noiseproof.io.files import write_whole
from noiseproof.io.text import excerpt, without_controls
from noiseproof.paper.agreement import join
from noiseproof.paper.answer import (
    VERDICTS,
    answer,
    describe_profiles,
    leads_among,
    text_or_code,
    text_results,
    with_text_results,
)
from noiseproof.paper.groups import PaperGroup, paper_groups
from noiseproof.paper.plan import FIGURES, Curve, curve_recipe
from noiseproof.paper.published import DATASET_NAMES, cells
from noiseproof.paper.recipes import HISTOGRAMS, recipe
from noiseproof.paper.settings import PROFILES
from noiseproof.paper.tables import TableView, notes_on, summary, views
from noiseproof.report import charts
from noiseproof.report.charts import line_style, template_environment
from noiseproof.report.page import SECTIONS, by_noise, comparisons, page_values, run_facts_line
from noiseproof.train.record import RECORD, WEIGHTS
from noiseproof.train.record_files import BINS, merge

TABLE_TITLES = {
    "sym_asym": "Symmetric and asymmetric noise",
    "agce_mae": "AGCE with MAE",
    "ablation": "The parts of JAL-CE",
    "agce_mae_all": "AGCE with MAE, all weights (supplement)",
    "instance": "Noise that depends on the image",
    "human": "Labels by people",
    "real_world": "Data from the web",
}
"""Of the paper's tables"""


def paper_page(
    records: Iterable[dict[str, Any]],
    *,
    date: str,
    sources: Sequence[str] = (),
    precision: str = "bf16",
    embeddings: Sequence[Embedding] = (),
) -> str:
    """The page as HTML: the published numbers with ours, whether they agree, and the runs behind them.

    Args:
        records: Records of runs, as :func:`~noiseproof.report.read_records` returns them.
        date: The date that the page shows.
        sources: The places that the records came from.
        precision: Only runs in this precision count for the tables.
        embeddings: Features of runs in the plane.

    Returns:
        The whole file.
    """
    records = merge(records)
    results = join(cells(), records, precision=precision).results
    by_text = text_results(results, records, precision=precision)
    groups = paper_groups(records, with_text_results(results, by_text), precision)
    both = text_or_code(results, by_text)
    anchors = {id(record): group for group in groups for record in group.records}
    values = page_values(records, groups)
    values["embeddings"] = [(each.title, scatter(each.points, each.labels, f"t-SNE, {each.title}")) for each in embeddings]
    own = comparisons(group for group in groups if not group.is_published)
    found = answer(results)
    text = template_environment("noiseproof.paper").get_template("paper_page.html").render(
        **{**values, "facts": [("runs", _runs(records, groups)), *values["facts"][1:]]},
        headline=found.headline,
        sections=_sections(bool(own), bool(values["matrices"])),
        own=own,
        date=date,
        sources=sources,
        answer=found,
        verdicts=VERDICTS,
        datasets=DATASET_NAMES,
        views=[(_title(view), view, notes_on(view), summary(view.cells)) for view in views(results)],
        group_of=lambda result: next((anchors[id(run)] for run in (*result.counted, *result.runs)), None),
        decays=_decays(groups),
        both=both,
        profile_sentences=describe_profiles(both, results),
        precision=precision,
    )  # fmt: skip
    return without_controls(text, lines=True)  # a name in a record may have half a character, which cannot be written


def _sections(own: bool, noise: bool) -> dict[str, str]:
    """The sections of the page that are there, in order."""
    further = {"decay": "Loss or decay", "profiles": "Text or code"}
    found = {"tables": "Tables"}
    for key, name in SECTIONS.items():
        if key == "weights":
            found |= further
        if (key != "own" or own) and (key != "noise" or noise):
            found[key] = "Other data" if key == "own" else name
    return found


def _decays(groups: Iterable[PaperGroup]) -> list[tuple[str, PairedRanking, dict[str, PaperGroup], list[str]]]:
    """The losses under L1 and under L2, where at least one was trained with another decay than the paper's; and in words."""
    coded = [group for group in groups if group.profile == PROFILES[0] and group.changes is not None]
    kept = [group for group in coded if set(group.changes or ()) <= {"l1", "l2", "precision"}]
    found = []
    for title, members in by_noise(kept).items():
        named = {f"{group.loss}, {_decay(group)}": group for group in members if group.accuracies}
        if not all(group.has_published_decay for group in named.values()):
            accuracies = {name: group.accuracies for name, group in named.items()}
            same = [group for group in named.values() if group.recipe.get("precision") == group.precision]
            found.append((title, rank_paired(accuracies, np.random.default_rng(0)), named, leads_among(same)))
    return found


def _decay(group: PaperGroup) -> str:
    own = " (the paper's)" if group.has_published_decay else ""
    precision = "" if group.recipe.get("precision") == group.precision else f", {group.recipe.get('precision')}"
    return group.decay + own + precision


def _runs(records: Sequence[dict[str, Any]], groups: Sequence[PaperGroup]) -> str:
    by_text = sum(len(group.records) for group in groups if group.profile != PROFILES[0])
    other = sum(len(group.records) for group in groups if not group.results)
    return run_facts_line(records, {"with the text's values": by_text, "of no published number": other})


def _title(view: TableView) -> str:
    table, _, dataset = view.title.partition(", ")
    return f"{TABLE_TITLES.get(table, table)}, {DATASET_NAMES.get(dataset, dataset)}"


EMBEDDED_EXAMPLES = 2000
"""Of the test set in an embedding: all of CIFAR's take minutes and hide each other."""
(HISTOGRAM_EPOCHS,) = set(HISTOGRAMS.values())


class Embedding(NamedTuple):
    """Test examples in the plane, by t-SNE of what the network has before its last layer."""

    title: str
    points: NDArray[Any]
    labels: NDArray[Any]


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


def draw_confidence(path: Path, rows: Mapping[str, Mapping[int, Mapping[str, Sequence[float]]]]) -> list[Path]:
    """Draw how many training examples have their given label with which probability: a row for each name, by epoch.

    ``rows`` has counts in ``BINS`` by name, by epoch and by kind of label, "right" or "wrong".
    """
    epochs = sorted(next(iter(rows.values())))

    def draw(figure: Any) -> None:
        axes = figure.subplots(len(rows), len(epochs), squeeze=False, sharex=True, sharey=True)
        for line, (name, confidence) in zip(axes, rows.items(), strict=True):
            for axis, epoch in zip(line, epochs, strict=True):
                for kind, hatch, color in (("right", None, charts.LINE_COLORS[0]), ("wrong", "////", charts.LINE_COLORS[1])):
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

    if not (folder / RECORD).is_file() or not (folder / WEIGHTS).is_file():
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


def scatter(points: NDArray[Any], labels: NDArray[Any], label: str) -> charts.Svg:
    """Points in the plane, one style for each class; the class's number stands at the middle of its points."""
    size = 260
    low, span = points.min(0), max(float(np.ptp(points, 0).max()), 1e-9)
    places = (points - low) / span * (size - 16) + 8
    parts = []
    for kind in np.unique(labels).tolist():
        path = "".join(f"M{x:.0f} {y:.0f}h0" for x, y in places[labels == kind].tolist())
        parts.append(f'<path class="dot c{kind % charts.COLORS}" d="{path}"/>')
    for kind in np.unique(labels).tolist():
        x, y = np.median(places[labels == kind], 0).tolist()
        parts.append(charts._text(x, y + 4, str(kind), "middle", "halo"))
    return charts._svg(label, parts, size, size)
