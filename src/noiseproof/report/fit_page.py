"""A fitted model as one HTML file: verdict, leaderboard, gain over plain training, matrix, classes, suspicious labels."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from noiseproof.audit.result import POSTERIOR_FILE, short_name
from noiseproof.data import Dataset
from noiseproof.fitting import FittedModel, Leader
from noiseproof.fitting.verdict import ESTIMATES, SUFFERS
from noiseproof.io.files import write_whole
from noiseproof.report.audit_page import MAX_EXAMPLES, MAX_SOURCES, ON_SOFT_LABELS, audit_context, render
from noiseproof.report.charts import Svg

REPORT = "report.html"
MAX_RECALLS = 100
BAR_HEIGHT, CHART_WIDTH, NAME_WIDTH, NUMBER_WIDTH = 18, 360, 84, 30
"""As wide as a phone, so that it is not scaled down there"""


def fit_page(
    model: FittedModel,
    dataset: Dataset | None = None,
    *,
    facts: Mapping[str, str] | None = None,
    commands: Mapping[str, str] | None = None,
    made: str = "",
    shown: int = MAX_EXAMPLES,
) -> str:
    """The whole file.

    ``dataset`` has the examples that the model was trained on. ``facts`` say how it was made and ``commands`` what to do next,
    by a sentence for each; ``made`` is a date.
    """
    verdict = model.verdict
    counts = np.bincount(model.audit.given, minlength=len(model.classes)).tolist()
    recalls = list(zip(map(short_name, model.classes), counts, verdict.recalls, strict=True))
    if len(recalls) > MAX_RECALLS:
        recalls = sorted(recalls, key=lambda one: 2.0 if one[2] is None else one[2])[:MAX_RECALLS]
    known = [recall for recall in verdict.recalls if recall is not None]
    context = audit_context(model.audit, dataset, None if dataset is None else dataset.train.paths, shown)
    context |= {
        "model": model,
        "verdict": verdict,
        "title": verdict.data,
        "headline": _headline(model),
        "sentences": verdict.sentences,
        "warnings": verdict.notes,
        "estimates": ESTIMATES,
        "gains": accuracies(model.leaderboard, None if verdict.plain is None else verdict.plain.accuracy.value),
        "found": recalls,
        "low_recall": (sum(known) / max(len(known), 1)) - SUFFERS,
        "made": made,
    }
    return render("fit_page.html", context, facts, commands)


def _headline(model: FittedModel) -> str:
    verdict = model.verdict
    if not verdict.noisy:
        return verdict.headline
    gain = f"; the model gains {100 * verdict.gain:.1f} points" if verdict.gains and verdict.gain is not None else ""
    return f"{verdict.headline}{gain}"


def write_fit(
    model: FittedModel,
    dataset: Dataset,
    folder: Path,
    *,
    place: str,
    options: Sequence[str] = (),
    labels: str | None = None,
    own: NDArray[np.int64] | None = None,
    seed: int = 0,
    shown: int = MAX_EXAMPLES,
) -> None:
    """Write the page and the files of the audit beside a model that was saved in ``folder``.

    The data were at ``place`` and were read with these options of the command line; ``labels`` is the file of their labels, if
    these are not the data's ``own``. Up to ``shown`` labels are on the page.
    """
    model.audit.save(folder, paths=dataset.train.paths, own=own)
    data, to = shlex.join([place, *options]), shlex.quote(str(folder))
    given = "" if labels is None else f" --labels {shlex.quote(labels)}"
    commands = {
        "To predict new rows:": f"noiseproof predict {to} --data NEW --out predictions.csv",
        "Decide above, export, and write the data with your decisions:": (
            f"noiseproof audit {data}{given} --decisions decisions.csv --out {to}"
        ),
    }
    if dataset.train.kind != "features":
        soft = shlex.quote(str(folder / POSTERIOR_FILE))
        commands[f"To {ON_SOFT_LABELS}:"] = f"noiseproof train ce --data {data} --labels {soft}"
    facts = {"data": place, "seed": str(seed), "seconds": f"{model.verdict.seconds:.0f}"}
    facts |= {f"SHA-256 of {name}": digest for name, digest in list(dataset.sources.items())[:MAX_SOURCES]}
    text = fit_page(model, dataset, facts=facts, commands=commands, made=time.strftime("%Y-%m-%d"), shown=shown)
    write_whole(folder / REPORT, lambda path: path.write_text(text, encoding="utf-8"))


def accuracies(board: Sequence[Leader], plain: float | None) -> Svg:
    """The estimated accuracies with their intervals, a line for each learner; the accuracy of plain training as a rule."""
    height = BAR_HEIGHT * len(board) + 24
    low = int(100 * min(line.accuracy.low for line in board))
    step = 5 if low >= 75 else 10 if low >= 50 else 20
    start, left, right = low // step * step, NAME_WIDTH, CHART_WIDTH - NUMBER_WIDTH

    def x(value: float) -> float:
        return left + (right - left) * (100 * value - start) / (100 - start)

    parts = [
        f'<path class="grid" d="M{x(tick / 100):.1f} 4V{height - 18}"/>'
        f'<text x="{x(tick / 100):.1f}" y="{height - 6}" text-anchor="middle">{tick}</text>'
        for tick in range(start, 101, step)
    ]
    if plain is not None:
        parts.append(f'<path class="ref" d="M{x(plain):.1f} 4V{height - 18}"/>')
    for number, line in enumerate(board):
        y = 4 + BAR_HEIGHT * (number + 0.5)
        kind, found = ("c1" if line.name == "model" else "c0"), line.accuracy
        parts.append(
            f'<g class="line {kind}"><title>{escape(line.description)}: {escape(str(found))}</title>'
            f'<path d="M{x(found.low):.1f} {y}H{x(found.high):.1f}" stroke-width="3"/>'
            f'<circle cx="{x(found.value):.1f}" cy="{y}" r="4" fill="currentColor"/></g>'
            f'<text x="{left - 6}" y="{y + 3}" text-anchor="end">{escape(short_name(line.name))}</text>'
            f'<text x="{right + 6}" y="{y + 3}">{100 * found.value:.1f}</text>'
        )
    label = "Accuracy on correct labels: " + ", ".join(f"{line.name} {100 * line.accuracy.value:.1f} %" for line in board)
    return Svg(f'<svg viewBox="0 0 {CHART_WIDTH} {height}" role="img" aria-label="{escape(label)}">{"".join(parts)}</svg>')
