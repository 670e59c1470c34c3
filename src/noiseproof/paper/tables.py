"""The comparison with the paper as text, Markdown, LaTeX, JSON or CSV, and each table in words."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from noiseproof.comparison.paired import ALPHA
from noiseproof.io.text import aligned, did_you_mean
from noiseproof.paper import PROFILES
from noiseproof.paper.agreement import CellResult, Point, Ranking, average, holm, ranking, spread
from noiseproof.report.page import DIVERGED, counted, named_seeds
from noiseproof.train.record_files import count_classes, never_right

MARKS = {"agrees": "=", "above": "+", "below": "-", "too few": "?"}
LATEX_MARKS = {"agrees": "=", "above": r"\uparrow", "below": r"\downarrow", "too few": "?"}
LEGEND = (
    "= agrees with the paper, + is above it, - is below it (95 %), ? has too few runs. (n) is the number of seeds where it is "
    "not three. A single seed is judged by the paper's standard deviation, shrunk towards the usual one of the column. "
    "Intervals of averages are over columns, because the cells of a column share their seeds"
)
IDENTITY_COLUMNS = ("table", "dataset", "noise", "rate", "loss", "alpha", "beta")
NOISE_ABBREVIATIONS = {"symmetric": "sym", "asymmetric": "asym", "instance": "inst", "human": "human"}


@dataclass(frozen=True)
class TableView:
    """One table on one data set: losses by noise."""

    title: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    results: dict[tuple[str, str], CellResult]

    @property
    def cells(self) -> list[CellResult]:
        return list(self.results.values())


def formatted(results: Iterable[CellResult], how: str = "table") -> str:
    """The comparison in one of ``FORMATS``."""
    check_format(how)
    return FORMATS[how](list(results))


def check_format(how: str) -> None:
    """A ValueError that names the formats, if it is none of them."""
    if how not in FORMATS:
        raise ValueError(f"unknown format {how!r}; {did_you_mean(how, FORMATS)}the formats are {', '.join(FORMATS)}")


def summary(results: Iterable[CellResult]) -> str:
    """Every table in words, one paragraph each."""
    return "\n\n".join(_summary(view) for view in views(results))


def views(results: Iterable[CellResult]) -> list[TableView]:
    found: dict[str, dict[tuple[str, str], CellResult]] = {}
    for result in results:
        cell = result.cell
        kind = NOISE_ABBREVIATIONS.get(cell.noise)
        column = f"{kind} {cell.rate}" if kind else cell.noise
        profile = "" if result.profile == PROFILES[0] else f", {result.profile}"
        found.setdefault(f"{cell.table}, {cell.dataset}{profile}", {})[result.name, column] = result
    return [
        TableView(
            title, tuple(dict.fromkeys(row for row, _ in cells)), tuple(dict.fromkeys(column for _, column in cells)), cells
        )
        for title, cells in found.items()
    ]


def _ours(result: CellResult | None) -> str:
    if result is None or result.sample is None:
        return ""
    sample = result.sample
    text = f"{sample.mean:.2f}" if sample.std is None else f"{sample.mean:.2f}±{sample.std:.2f}"
    return text if sample.n == 3 else f"{text} ({sample.n})"


def papers(result: CellResult | None) -> str:
    """The paper's number."""
    if result is None:
        return ""
    cell = result.cell
    return f"{cell.mean:.2f}" if cell.std is None else f"{cell.mean:.2f}±{cell.std:.2f}"


def marked(result: CellResult | None) -> str:
    """Ours, with the mark of its verdict, and how many seeds diverged."""
    found = "" if result is None or result.sample is None else f"{_ours(result)} {MARKS[result.agreement.verdict]}"
    return ", ".join(filter(None, (found, _diverged(result))))


def _diverged(result: CellResult | None) -> str:
    return f"{len(result.diverged)} diverged" if result is not None and result.diverged else ""


def _text(results: list[CellResult]) -> str:
    parts = []
    for view in views(results):
        lines = [["", "", *view.columns]]
        for row in view.rows:
            cells = [view.results.get((row, column)) for column in view.columns]
            if any(map(marked, cells)):
                lines += [[row, "ours", *map(marked, cells)], ["", "paper", *map(papers, cells)]]
            else:
                lines.append([row, "paper", *map(papers, cells)])
        parts.append("\n".join([view.title, *aligned(lines), *notes_on(view), "", _summary(view)]))
    return "\n\n".join([*parts, LEGEND])


def _markdown(results: list[CellResult]) -> str:
    parts = []
    for view in views(results):
        lines = [["loss", *view.columns], ["---"] * (1 + len(view.columns))]
        for row in view.rows:
            cells = [view.results.get((row, column)) for column in view.columns]
            texts = ["<br>".join(filter(None, (marked(cell), f"*{papers(cell)}*" if cell else ""))) for cell in cells]
            lines.append([row, *texts])
        table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        notes = "\n".join(f"- {note}" for note in notes_on(view))
        parts.append("\n\n".join(filter(None, (f"### {view.title}", table, notes, _summary(view)))))
    return "\n\n".join([*parts, f"A cell contains our accuracy and, in italics below it, the paper's. {LEGEND}."])


def _latex(results: list[CellResult]) -> str:
    parts = []
    for view in views(results):
        lines = [rf"\begin{{tabular}}{{ll{'c' * len(view.columns)}}}", r"\toprule"]
        lines += [rf" & & {' & '.join(view.columns)} \\", r"\midrule"]
        for row in view.rows:
            cells = [view.results.get((row, column)) for column in view.columns]
            ours, published = (" & ".join(map(write, cells)) for write in (_latex_ours, _latex_papers))
            lines += [rf"{row} & ours & {ours} \\", rf" & paper & {published} \\"]
        comments = [f"% {line}" for line in (view.title, LEGEND, *notes_on(view), _summary(view))]
        parts.append("\n".join([*comments, *lines, r"\bottomrule", r"\end{tabular}"]))
    return "\n\n".join(parts)


def _latex_ours(result: CellResult | None) -> str:
    found = ""
    if result is not None and result.sample is not None:
        found = f"${_ours(result)}^{{{LATEX_MARKS[result.agreement.verdict]}}}$".replace("±", r" \pm ")
    return ", ".join(filter(None, (found, _diverged(result)))) or "--"


def _latex_papers(result: CellResult | None) -> str:
    return "--" if result is None else f"${papers(result)}$".replace("±", r" \pm ")


def _json(results: list[CellResult]) -> str:
    return "[\n" + ",\n".join(json.dumps(result.as_dict()) for result in results) + "\n]"


def _csv(results: list[CellResult]) -> str:
    names = [
        *IDENTITY_COLUMNS,
        "paper_mean",
        "paper_std",
        "mean",
        "std",
        "n",
        "seeds",
        "difference",
        "low",
        "high",
        "verdict",
        "basis",
    ]
    names.append("diverged")
    out = io.StringIO()
    writer = csv.DictWriter(out, names, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for result in results:
        row = result.as_dict()
        low, high = row["interval"] or (None, None)
        lists = {name: " ".join(map(str, row[name])) for name in ("seeds", "diverged")}
        writer.writerow({**row, **lists, "low": low, "high": high})
    return out.getvalue()


FORMATS: dict[str, Callable[[list[CellResult]], str]] = {
    "table": _text,
    "markdown": _markdown,
    "latex": _latex,
    "json": _json,
    "csv": _csv,
}


def notes_on(view: TableView) -> list[str]:
    """What the numbers alone do not say."""
    notes = []
    for (row, column), result in view.results.items():
        for seed, values in result.accuracies.items():
            if len(values) > 1:
                shown = ", ".join(f"{value:.2f}" for value in values)
                notes.append(f"{row}, {column}: seed {seed} has {len(values)} results, {shown}, and counts with their mean")
        if result.diverged:
            notes.append(f"{row}, {column}: {named_seeds(result.diverged)} diverged, which is no result")
        others = {reason: count for reason, count in result.left_out.items() if reason != DIVERGED}
        if others:
            reasons = ", ".join(f"{count} {reason}" for reason, count in others.items())
            notes.append(f"{row}, {column}: runs left out, as only finished ones in {result.precision} count: {reasons}")
    remarks: dict[tuple[str, str], list[str]] = {}
    for (row, column), result in view.results.items():
        if result.cell.remark:
            remarks.setdefault((row, result.cell.remark), []).append(column)
    return notes + [f"{row}, {', '.join(columns)}: {remark}" for (row, remark), columns in remarks.items()]


def _summary(view: TableView) -> str:
    measured = [result for result in view.cells if result.sample is not None]
    trained = [result for result in view.cells if result.cell.quoted_from is None]
    if not measured:
        return f"{view.title}: none of {len(trained)} cells is measured."
    judged = [result for result in measured if result.agreement.p is not None]
    count = {mark: sum(result.agreement.verdict == mark for result in judged) for mark in ("agrees", "above", "below")}
    single = sum(result.agreement.basis == "column" for result in judged)
    sentences = [
        f"{view.title}: {len(measured)} of {len(trained)} cells {'is' if len(measured) == 1 else 'are'} measured"
        + (f", {single} of them with one seed" if single else "")
        + f". {counted(count['agrees'], 'agrees', 'agree')} with the paper, {counted(count['above'], 'is', 'are')} above it "
        f"and {count['below']} below. If all agreed, chance alone would put {ALPHA * len(judged):.1f} off.",
        _off(measured),
        _scatter(judged),
        _standing_out(view, judged),
        _classes(measured),
        _ranks(view),
    ]
    return " ".join(filter(None, sentences))


def _off(measured: list[CellResult]) -> str:
    found = average(measured)
    if found is None:
        return ""
    if found.interval is None:
        return f"The mean difference, ours minus the paper's, is {found.mean:+.2f} points. One column gives no interval."
    low, high = found.interval
    verdict = "chance explains it" if low <= 0 <= high else "chance does not explain it"
    return f"The mean difference, ours minus the paper's, is {found.mean:+.2f} points [{low:+.2f}, {high:+.2f}]: {verdict}."


def _scatter(judged: list[CellResult]) -> str:
    found = spread(result.agreement for result in judged)
    if found is None:
        return ""
    verdict = "more than the seeds explain" if found.p < ALPHA else "no more than the seeds explain"
    return (
        f"The differences vary {found.ratio:.2f} times as much as the seeds' standard deviations predict "
        f"(chi-square {found.chi_square:.1f} on {found.df}, p = {found.p:.2g}): {verdict}."
    )


def _standing_out(view: TableView, judged: list[CellResult]) -> str:
    names = [key for key, result in view.results.items() if result.agreement.p is not None]
    corrected = holm([result.agreement.p or 0.0 for result in judged])
    found = [
        f"{row} at {column} ({_apart(view.results[row, column], p)})"
        for (row, column), p in zip(names, corrected, strict=True)
        if p < ALPHA
    ]
    if not found:
        return "After Holm's correction for multiple comparisons no cell differs."
    return f"After Holm's correction for multiple comparisons these differ: {', '.join(found)}."


def _apart(result: CellResult, p: float) -> str:
    return "; ".join(filter(None, (f"{result.agreement.difference:+.2f}, p = {p:.2g}", result.classes)))


def _classes(measured: list[CellResult]) -> str:
    """What a class that is never right means for judging its cell."""
    told = [result for result in measured if result.told_by_class]
    missing = [result for result in told if result.classes]
    if not missing:
        return ""
    most = max(100 / count_classes(run) for result in missing for run in result.counted if never_right(run))
    points = f"{most:g} point{'s' if most != 1 else ''}"
    return (
        f"In {len(missing)} of the {len(told)} cells with accuracies by class, runs of ours are never right on some classes. "
        f"Such a cell changes by a whole class at a time, up to {points} each, which the usual standard deviation of its "
        "column understates."
    )


def _ranks(view: TableView) -> str:
    points: dict[str, dict[str, Point]] = {column: {} for column in view.columns}
    for (row, column), result in view.results.items():
        if result.point is not None:
            points[column][row] = result.point
    points = {column: found for column, found in points.items() if len(found) >= 3}
    rows = {row for found in points.values() for row in found}
    pooled = ranking(*(list(found.values()) for found in points.values()), items=len(rows)) if points else None
    if pooled is None:
        return "Too few losses are measured at the same noise to compare their ranking."
    taus = {column: ranking(list(found.values())) for column, found in points.items()}
    columns = "; ".join(f"{column} {_tau(tau)}" for column, tau in taus.items() if tau is not None)
    return (
        f"Kendall's tau between our ranking of the losses and the paper's is {_tau(pooled)} within columns. The seeds' "
        f"standard deviations alone would give about {pooled.expected:.2f}. By column: {columns}."
    )


def _tau(found: Ranking) -> str:
    return f"{found.tau:.2f}" + ("" if found.interval is None else f" [{found.interval[0]:.2f}, {found.interval[1]:.2f}]")
