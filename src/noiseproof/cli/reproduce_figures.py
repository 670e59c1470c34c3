"""The figures that ``noiseproof reproduce`` was asked for, drawn from the runs that there are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from noiseproof.cli.embedding import embedding_of
from noiseproof.cli.output import fail
from noiseproof.cli.queue_view import say
from noiseproof.paper.drawing import draw_figures
from noiseproof.paper.groups import groups_of
from noiseproof.paper.page import Embedding
from noiseproof.paper.plan import PaperRun
from noiseproof.report import merge
from noiseproof.report.folders import run_line
from noiseproof.train.run_list import PlannedRun

__all__ = ["draw_asked"]


def draw_asked(
    planned: Sequence[PlannedRun[PaperRun]],
    records: Iterable[dict[str, Any]],
    folder: Path,
    data: Path | None,
    precision: str,
    profile: str,
) -> None:
    """Draw them into ``folder`` and say which files there are, and what is missing."""
    names = list(dict.fromkeys(curve.figure for run in planned for curve in run.job.curves))
    if not names:
        return
    folders = [run.stored.folder for run in planned if run.status == "finished" and run.stored and run.stored.folder]
    groups = groups_of(merge(records, map(run_line, folders)), [], precision)
    try:
        embeddings = _embeddings(planned, data) if "tsne" in names else []
        drawn = draw_figures(groups, folder, precision, embeddings, only=names, profile=profile)
    except ImportError as error:
        fail(f"{error}; pip install '.[lab]' in noiseproof's repository brings it")
    except (ValueError, TypeError, OSError) as error:
        fail(error)
    for name in names:
        files = [str(file) for file in drawn.files if file.stem == name]
        count = len({curve for run in planned for curve in run.job.curves if curve.figure == name})
        there = len(embeddings) if name == "tsne" else count - sum(figure == name for figure, _ in drawn.missing)
        without = [f"{count - there} of its {count} runs are missing"] if there < count else []
        say(f"{name}: {', '.join([*files, *without])}")


def _embeddings(planned: Iterable[PlannedRun[PaperRun]], data: Path | None) -> list[Embedding]:
    """Of the runs that t-SNE shows, where both they and the images are here."""
    if data is None:
        return []
    shown = [run for run in planned if run.job.needs_weights and run.status == "finished"]
    return [embedding_of(run.stored.folder, data) for run in shown if run.stored and run.stored.folder]
