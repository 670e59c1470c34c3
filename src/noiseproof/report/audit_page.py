"""An audit as one HTML file: the verdict, the matrix, the classes, the suspicious examples, and decisions to export.

It needs no network. Without scripts it shows the first examples; with them all that are flagged, page by page, and takes
decisions. The examples are JSON inside the page, and of pictures and values so many as keep it small. All text from the data is
made printable here and escaped by the template.
"""

from __future__ import annotations

import base64
import hashlib
import io
import shlex
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noiseproof.audit import Audit
from noiseproof.audit.decisions import labels_key
from noiseproof.audit.result import POSTERIOR_FILE, percent, short_name
from noiseproof.data import DataError, Dataset
from noiseproof.data.images import example_image
from noiseproof.io.files import write_whole
from noiseproof.io.text import cell, printable, without_controls
from noiseproof.report import charts
from noiseproof.version import __version__

MAX_EXAMPLES = 10_000
FIRST_PAGE = 24
"""Examples that are also in the page's HTML, for readers without scripts"""
NEARLY_FLAGGED = 10  # examples that are shown where none is flagged
THUMBNAIL_SIDE = 96  # pixels of a thumbnail's longer side
MAX_EXACT_SIDE = 16  # images up to this are kept pixel by pixel
MAX_CONTENT_BYTES = 3 * 2**20
"""Of all pictures and values together; examples after that are shown without"""
MAX_PIXELS_READ = 2 * 10**9  # so many take a minute and a half to decode
MAX_VALUES, MAX_VALUE_LENGTH = 8, 400  # columns of an example that are shown
UNREADABLE = ("drop", "embedding", "image")
"""Kinds of columns without values for people"""
MAX_PATH_LENGTH = 300
MAX_COMPARED, MAX_POOL = 500, 1000
"""Examples whose nearest neighbours are found, and rows of one class among which they are"""
MAX_TABLE_CLASSES, MAX_CHART_CLASSES = 20, 100
"""Classes up to which the matrix is a table, and beyond that a picture"""
MAX_CLASSES_LISTED = 100  # classes in the table of classes
MAX_WARNINGS = 6  # at the top
MAX_SOURCES = 8  # files whose digest is named
MAX_CONFUSIONS, MAX_PAIRS = 12, 500  # in the table of confusions, and to filter by
SHADES = 9
ON_SOFT_LABELS = "train a network on the probability of every class"
"""A purpose of ``noiseproof train ce --labels posterior.npz``, a command to run next"""


def audit_page(
    audit: Audit,
    dataset: Dataset | None = None,
    *,
    paths: Sequence[str] | None = None,
    title: str = "labels",
    facts: Mapping[str, str] | None = None,
    commands: Mapping[str, str] | None = None,
    made: str = "",
    shown: int = MAX_EXAMPLES,
    features: NDArray[np.floating] | None = None,
) -> str:
    """The whole file.

    ``dataset`` has the audited examples as its training split, for pictures or features; ``paths`` name them. ``facts`` say how
    it was made and ``commands`` what to do next, by a sentence for each; ``made`` is a date. Neighbours are the nearest by
    ``features``, by default those of the data set.
    """
    summary, context = audit.summary(), audit_context(audit, dataset, paths, shown, features)
    said = {"headline": summary.headline, "sentences": summary.sentences, "warnings": audit.warnings}
    return render("audit_page.html", {**context, **said, "title": title, "made": made}, facts, commands)


def render(template: str, context: dict[str, Any], facts: Mapping[str, str] | None, commands: Mapping[str, str] | None) -> str:
    """A page of what :func:`audit_context` returns with a title, sentences and warnings, which are made printable here."""
    templates = charts.template_environment()
    templates.globals |= {"percent": percent, "probability": probability, "shade": _shade}
    shown = {
        "title": short_name(context["title"]),
        "sentences": [without_controls(text).replace(" %", "\N{NO-BREAK SPACE}%") for text in context["sentences"]],
        "warnings": [without_controls(text) for text in context["warnings"][:MAX_WARNINGS]],
        "further": len(context["warnings"]) - MAX_WARNINGS,
        "facts": {printable(key): without_controls(value) for key, value in (facts or {}).items()},
        "commands": {text: without_controls(line) for text, line in (commands or {}).items()},
    }
    return templates.get_template(template).render(context | shown)


def audit_context(
    audit: Audit,
    dataset: Dataset | None,
    paths: Sequence[str] | None,
    shown: int,
    features: NDArray[np.floating] | None = None,
) -> dict[str, Any]:
    """What the template shows of an audit: the matrix, the classes, the suspicious examples."""
    from jinja2.utils import htmlsafe_json_dumps

    names, cells = [short_name(name) for name in audit.classes], [cell(name) for name in audit.classes]
    rows, columns, contents = _examples(audit, dataset, paths, shown, features)
    key = hashlib.sha256(audit.given.tobytes() + audit.suggested.tobytes()).hexdigest()[:16]
    data: dict[str, Any] = {
        "key": key,
        "of": labels_key(audit.given, audit.classes),
        "names": names,
        "cells": cells,
        "careful": [each.mostly_flagged for each in audit.per_class],
    }
    data |= {"columns": columns, "contents": contents, "rows": rows}
    script = resources.files("noiseproof.report").joinpath("audit_page.js").read_text(encoding="utf-8")
    classes = sorted(audit.per_class, key=lambda each: -each.rate * each.given)[:MAX_CLASSES_LISTED]
    drawn = MAX_TABLE_CLASSES < len(names) <= MAX_CHART_CLASSES
    return {
        "audit": audit,
        "names": names,
        "matrix": audit.transition.tolist() if len(names) <= MAX_TABLE_CLASSES else None,
        "chart": charts.matrix(audit.transition, "Transition matrix") if drawn else None,
        "confusions": audit.confusions[:MAX_CONFUSIONS],
        "classes": sorted(classes, key=lambda each: each.label),
        "class_warnings": [without_controls(each.warning) for each in audit.per_class],
        "how": audit.how[:1].upper() + audit.how[1:],
        "rows": rows,
        "first": rows[:FIRST_PAGE],
        "columns": columns,
        "contents": contents,
        "pictures": any(found[0] for found in contents.values()),
        "described": sum(row[0] in contents for row in rows) if contents else len(rows),
        "pairs": dict(Counter((row[1], row[2]) for row in rows).most_common(MAX_PAIRS)),
        "flagged": int(audit.flagged.sum()),
        "histogram": charts.distribution(audit.p_wrong),
        "data": charts.Svg(htmlsafe_json_dumps(data, ensure_ascii=False, separators=(",", ":"))),
        "script": charts.Svg(script),
        "digest": base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        "version": __version__,
    }


def write_audit(
    audit: Audit,
    dataset: Dataset,
    folder: Path,
    *,
    place: str,
    labels: str | None = None,
    own: NDArray[np.int64] | None = None,
    options: Sequence[str] = (),
    seed: int = 0,
    shown: int = MAX_EXAMPLES,
    features: NDArray[np.floating] | None = None,
) -> dict[str, str]:
    """Write the files of an audit and its page; return the commands to run next, by their purpose.

    ``dataset`` was opened at ``place``, with these options of the command line, and has the audited examples as its training
    split; ``labels`` is the file of their labels, if these are not the data's ``own``. The page shows up to ``shown`` examples,
    with their neighbours by ``features`` or by the data's own.
    """
    paths = dataset.train.paths
    audit.save(folder, paths=paths, own=own)
    data, to, soft = shlex.join([place, *options]), shlex.quote(str(folder)), shlex.quote(str(folder / POSTERIOR_FILE))
    labelled = data if labels is None else f"{data} --labels {shlex.quote(labels)}"
    after = {"for a model that does not learn the wrong labels": f"noiseproof fit {labelled} --out model"}
    if dataset.train.kind != "features":  # on which a network is less reliable than fit: docs/how_to/choosing.md
        after[f"to {ON_SOFT_LABELS}"] = f"noiseproof train ce --data {data} --labels {soft}"
    after["for the loss and settings of a training loop of your own"] = f"noiseproof advise {labelled} --noise {to}"
    commands = {f"{purpose[0].upper()}{purpose[1:]}:": command for purpose, command in after.items()}
    again = f"noiseproof audit {labelled} --decisions decisions.csv --out {to}"
    commands["Or decide above, export, and write the data with your decisions:"] = again
    facts = {"data": place, "labels": labels or "the data's own", "seed": str(seed)}
    facts |= {} if dataset.test is None else {"not audited": f"the test split, {len(dataset.test):,} examples"}
    facts |= {f"SHA-256 of {name}": digest for name, digest in list(dataset.sources.items())[:MAX_SOURCES]}
    about: dict[str, Any] = {"title": dataset.name, "facts": facts, "commands": commands, "made": time.strftime("%Y-%m-%d")}
    text = audit_page(audit, dataset, paths=paths, shown=shown, features=features, **about)
    write_whole(folder / "audit.html", lambda path: path.write_text(text, encoding="utf-8"))
    return after


def _examples(
    audit: Audit,
    dataset: Dataset | None,
    paths: Sequence[str] | None,
    shown: int,
    features: NDArray[np.floating] | None,
) -> tuple[list[list[Any]], list[str], dict[int, list[str]]]:
    """The flagged examples as the page's script reads them, the likeliest wrong first, and :func:`_contents` of them.

    Pictures and values fill their budget from both ends: those of the likeliest and of the most uncertain examples.
    """
    listed = np.argsort(-audit.p_wrong, kind="stable")[: min(shown, int(audit.flagged.sum()) or NEARLY_FLAGGED)]
    likely = audit.posterior[listed, audit.suggested[listed]]
    ends = np.stack([listed, listed[np.argsort(likely, kind="stable")]], 1).ravel()
    order = np.array(list(dict.fromkeys(ends.tolist())))
    if features is None and dataset is not None and dataset.train.in_memory and dataset.train.kind == "features":
        features = dataset.train.inputs.reshape(len(dataset.train), -1)
    beside = dict(zip(order.tolist(), _beside(audit, order, features).tolist(), strict=True))
    rows = []
    for index, sure in zip(listed.tolist(), likely.tolist(), strict=True):
        path = "" if paths is None else cell(paths[index][-MAX_PATH_LENGTH:])
        labels, wrong = (int(audit.given[index]), int(audit.suggested[index])), float(audit.p_wrong[index])
        rows.append([index, *labels, round(wrong, 6), round(sure, 6), path, *beside[index]])
    return rows, *_contents(dataset, [one for index, near in beside.items() for one in (index, *near[:2]) if one >= 0])


def _beside(audit: Audit, order: NDArray[np.int64], x: NDArray[np.floating] | None) -> NDArray[np.int64]:
    """For each example one with its given and one with its likely label, -1 where there is none, and 1 if they are the nearest.

    None of them is flagged. They are the nearest by features ``x`` for the first ``MAX_COMPARED`` examples, and for the others
    the surest of their class.
    """
    free = ~audit.flagged
    free[order] = False
    wanted = np.stack([audit.given[order], audit.suggested[order]], 1)
    found = np.full((len(order), 3), -1)
    found[:, 2] = (np.arange(len(order)) < MAX_COMPARED) & (x is not None)
    for label in np.unique(wanted).tolist():
        pool = np.flatnonzero(free & (audit.given == label))
        pool = pool[:: -(-len(pool) // MAX_POOL) or 1]
        if not len(pool):
            continue
        found[:, :2][wanted == label] = pool[audit.posterior[pool, label].argmax()]
        if x is not None:
            row, side = np.nonzero(wanted[:MAX_COMPARED] == label)
            ours, theirs = (np.asarray(x[rows], np.float64) for rows in (order[row], pool))
            found[row, side] = pool[(np.square(theirs).sum(1) - 2 * ours @ theirs.T).argmin(1)]
    return found


def _contents(dataset: Dataset | None, wanted: Iterable[int]) -> tuple[list[str], dict[int, list[str]]]:
    """The columns that are shown, and of each example a picture, or nothing, and its values, until the page is large enough."""
    if dataset is None:
        return [], {}
    indices = list(dict.fromkeys(wanted))
    columns, values = _values(dataset, indices)
    pictures = dataset.table is None or dataset.table.encoder.image_column is not None  # no other row of a table is one
    contents, size, pixels = {}, 0, 0
    for index, row in zip(indices, values, strict=True):
        picture, read = thumbnail(dataset, index) if pictures else ("", 0)
        contents[index] = [picture, *map(_value, row)]
        size, pixels = size + sum(len(text.encode()) for text in contents[index]), pixels + read
        if size > MAX_CONTENT_BYTES or pixels > MAX_PIXELS_READ:
            break
    return [short_name(name) for name in columns], {index: found for index, found in contents.items() if any(found)}


def thumbnail(dataset: Dataset, index: int) -> tuple[str, int]:
    """A training example as a data URI, and how many pixels were read for it; nothing if it is no readable image."""
    try:
        pixels = example_image(dataset, dataset.train, index)
    except (DataError, OSError):
        return "", 0
    if pixels is None:
        return "", 0
    import PIL.features
    import PIL.Image

    image, file = PIL.Image.fromarray(pixels), io.BytesIO()
    image.thumbnail((THUMBNAIL_SIDE, THUMBNAIL_SIDE))
    kind = "webp" if PIL.features.check("webp") else "png"  # which is four times as large
    image.save(file, kind, quality=80, lossless=max(image.size) <= MAX_EXACT_SIDE)
    return f"data:image/{kind};base64,{base64.b64encode(file.getvalue()).decode()}", pixels.size // 3


def _values(dataset: Dataset, indices: Sequence[int]) -> tuple[list[str], Iterable[Sequence[object]]]:
    """The columns of the examples that a person can read, texts first, and their values."""
    if dataset.table is not None:
        kinds = {column.name: column.kind for column in dataset.table.encoder.columns if column.kind not in UNREADABLE}
        columns = sorted(kinds, key=lambda name: kinds[name] != "text")[:MAX_VALUES]
        frame = dataset.table.rows["train"][columns].iloc[indices]
        return columns, frame.astype(object).where(frame.notna(), "–").itertuples(index=False, name=None)
    if not dataset.train.in_memory or dataset.train.kind == "images":
        return [], ([] for _ in indices)
    inputs = dataset.train.inputs.reshape(len(dataset.train), -1)
    numbered = [str(number) for number in range(inputs.shape[1])] if inputs.shape[1] <= MAX_VALUES else []
    columns = list(dataset.columns[:MAX_VALUES]) or numbered  # coordinates of an embedding say nothing
    return columns, (inputs[index, : len(columns)].tolist() for index in indices)


def _value(value: object) -> str:
    text = f"{value:,.6g}" if isinstance(value, float) else str(value)[: 4 * MAX_VALUE_LENGTH].removesuffix(" 00:00:00")
    text = without_controls(" ".join(text.split()))
    return text if len(text) <= MAX_VALUE_LENGTH else text[: MAX_VALUE_LENGTH - 1] + "…"


def probability(p: float) -> str:
    """One of a model, which is never 1, but may be rounded to it."""
    return percent(min(p, 0.99999))


def _shade(share: float) -> int:
    """Which of the shades a share has, by its square root: small shares are what matters here."""
    return round(SHADES * float(np.sqrt(min(max(share, 0.0), 1.0))))
