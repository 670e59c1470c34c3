"""The paper's page as one HTML file: the answer, its tables, then what a report of any runs shows; no scripts, no network."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from noiseproof.comparison.paired import PairedRanking, rank_paired
from noiseproof.io.text import without_controls
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
from noiseproof.paper.figures import Embedding, scatter
from noiseproof.paper.groups import PaperGroup, paper_groups
from noiseproof.paper.published import DATASET_NAMES, cells
from noiseproof.paper.settings import PROFILES
from noiseproof.paper.tables import TableView, notes_on, summary, views
from noiseproof.report.charts import template_environment
from noiseproof.report.page import SECTIONS, by_noise, comparisons, page_values, run_facts_line
from noiseproof.train.record_files import merge

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
