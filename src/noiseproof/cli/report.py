"""``noiseproof report``: runs and records as one HTML file, and the paper's figures."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer
from rich.markup import escape

from noiseproof.cli.output import console, fail
from noiseproof.cli.plan import device_named
from noiseproof.files import is_file, write_whole
from noiseproof.models.base import Classifier
from noiseproof.paper import cells
from noiseproof.reading import shown
from noiseproof.report import join, merge
from noiseproof.report.figures import draw_figures
from noiseproof.report.folders import RECORD, WEIGHTS
from noiseproof.report.page import Embedding, page
from noiseproof.report.page_runs import groups_of, read_runs
from noiseproof.train import Recipe, load, prepare

__all__ = ["report"]

SHOWN = 2000
"""Test examples in a t-SNE: all of CIFAR's take minutes and hide each other."""

Runs = Annotated[list[Path], typer.Argument(metavar="RUNS...", help="Folders of runs, and .jsonl files of records.")]
Out = Annotated[Path, typer.Option(help="The HTML file.")]
Figures = Annotated[Path | None, typer.Option(metavar="DIR", help="Also draw the paper's figures there, as SVG and PNG.")]
Tsne = Annotated[
    list[Path] | None,
    typer.Option(metavar="RUN", help="A run's folder: its features by t-SNE; repeatable."),
]
Data = Annotated[str | None, typer.Option(metavar="PLACE", help="Folder of data sets, for --tsne.")]
Precision = Annotated[str, typer.Option(help="Only runs in this precision count for the tables.")]


def report(
    runs: Runs,
    out: Out = Path("report.html"),
    figures: Figures = None,
    tsne: Tsne = None,
    data: Data = None,
    precision: Precision = "bf16",
) -> None:
    """Compare runs with the paper, in one HTML file that needs neither a network nor scripts.

    --figures draws what the runs allow and names the commands for the rest. Example: noiseproof report runs --figures figures
    """
    try:
        records = merge(read_runs(runs).records)
        embeddings = [_embedding(folder, data) for folder in tsne or []]
        text = page(
            records,
            made=time.strftime("%Y-%m-%d"),
            sources=[str(place) for place in runs],
            precision=precision,
            embeddings=embeddings,
        )
        write_whole(out, lambda path: path.write_text(text, encoding="utf-8"))
        console.print(f"{len(records)} runs, {len(text.encode())} bytes in {escape(str(out))}", highlight=False, soft_wrap=True)
        if figures is not None:
            groups = groups_of(records, join(cells(), records, precision=precision).results, precision)
            drawn = draw_figures(groups, figures, precision, embeddings)
            console.print(f"{len(drawn.files)} files in {escape(str(figures))}", highlight=False, soft_wrap=True)
            for command in dict.fromkeys(command for _, command in drawn.missing):
                names = ", ".join(name for name, other in drawn.missing if other == command)
                console.print(f"[dim]{names} needs[/] {escape(command)}", highlight=False, soft_wrap=True)
    except ImportError as error:
        fail(f"{error}; pip install '.[lab]' in noiseproof's repository brings it")
    except (ValueError, TypeError, OSError) as error:
        fail(error)


def _embedding(folder: Path, data: str | None) -> Embedding:
    """The test examples of a run in the plane, from what its network has before the last layer."""
    from sklearn.manifold import TSNE

    if not is_file(folder / RECORD) or not is_file(folder / WEIGHTS):
        raise FileNotFoundError(f"{folder} is not the folder of a finished run: it lacks {RECORD} or {WEIGHTS}")
    trained = load(folder, device_named("auto"))  # which runs no code that the folder names, and checks what it says
    try:
        recipe = Recipe.from_dict({} if trained.record is None else trained.record.recipe)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{folder / RECORD}: its recipe is not one of this version: {shown(error, 200)}") from error
    test, network = prepare(recipe, data).test, trained.network
    if test is None or not isinstance(network, Classifier):
        raise ValueError(f"{folder}: t-SNE needs a test split and a network of the catalogue")
    found = []
    with torch.no_grad():
        for batch in trained.preprocessing.batches(test, trained.device):
            found.append((network.penultimate(batch.inputs).float().cpu().numpy(), batch.labels.cpu().numpy()))
    features, labels = (np.concatenate(parts) for parts in zip(*found, strict=True))
    chosen = np.random.default_rng(0).permutation(len(labels))[:SHOWN]
    points = TSNE(random_state=0).fit_transform(features[chosen])
    return Embedding(f"{recipe.dataset}, {recipe.noise}, {recipe.loss}", points, labels[chosen])
