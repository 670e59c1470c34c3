"""An audit as one HTML file: the verdict, the matrix, the classes, the most suspicious examples, and decisions to export.

It needs no network, and no scripts either: they only filter the examples and collect decisions. All text from the data is made
printable here and escaped by the template.
"""

from __future__ import annotations

import base64
import hashlib
import io
import shlex
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from noiseproof.audit import Audit
from noiseproof.audit.result import POSTERIOR_FILE, AuditSummary, percent, short_name
from noiseproof.data import DataError, Dataset
from noiseproof.data.images import example_image
from noiseproof.io.files import write_whole
from noiseproof.io.text import cell, printable, without_controls
from noiseproof.report import charts
from noiseproof.version import __version__

if TYPE_CHECKING:
    from jinja2 import Environment

MAX_EXAMPLES = 200
THUMBNAIL_SIDE = 96  # pixels of a thumbnail's longer side
MAX_ENLARGED_SIDE = 48  # images up to this are shown pixel by pixel
MAX_THUMBNAIL_BYTES = 3 * 2**20
"""Of all thumbnails together; examples after that are shown without"""
MAX_VALUES = 8  # features of an example that are shown
MAX_PATH_LENGTH = 200
MAX_TABLE_CLASSES, MAX_CHART_CLASSES = 20, 100
"""Classes up to which the matrix is a table, and beyond that a picture"""
MAX_CLASSES_LISTED = 100  # classes in the table of classes
MAX_WARNINGS = 6  # at the top
MAX_SOURCES = 8  # files whose digest is named
MAX_CONFUSIONS = 12
SHADES = 9


@dataclass(frozen=True)
class Suspect:
    """An example that is shown, with text as it may be shown."""

    index: int
    path: str
    path_cell: str
    given: int
    suggested: int
    p_wrong: float
    p_suggested: float
    image: str
    """A data URI, or nothing"""
    small: bool
    values: list[tuple[str, str]]
    careful: bool
    """Whether most of the class is flagged, so that nothing should be removed on our word"""

    @property
    def pair(self) -> tuple[int, int]:
        return self.given, self.suggested


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
) -> str:
    """The whole file.

    ``dataset`` has the audited examples as its training split, for pictures or features; ``paths`` name them. ``facts`` say how
    it was made and ``commands`` what to do next, by a sentence for each; ``made`` is a date.
    """
    listed, summary = audit.warnings, audit.summary()
    context = audit_context(audit, dataset, paths, shown)
    return (
        page_templates()
        .get_template("audit_page.html")
        .render(
            **context,
            summary=AuditSummary(summary.headline, [text.replace(" %", "\N{NO-BREAK SPACE}%") for text in summary.sentences]),
            title=short_name(title),
            warnings=[without_controls(text) for text in listed[:MAX_WARNINGS]],
            further=len(listed) - MAX_WARNINGS,
            facts={printable(key): without_controls(value) for key, value in (facts or {}).items()},
            commands={text: without_controls(line) for text, line in (commands or {}).items()},
            made=made,
        )
    )


def page_templates() -> Environment:
    """The templates, with the functions that those of an audit call."""
    templates = charts.template_environment()
    templates.globals |= {"percent": percent, "probability": probability, "shade": _shade}
    return templates


def audit_context(audit: Audit, dataset: Dataset | None, paths: Sequence[str] | None, shown: int) -> dict[str, Any]:
    """What ``audit_sections.html`` shows of an audit: the matrix, the classes, the suspicious examples."""
    names = [short_name(name) for name in audit.classes]
    found = suspects(audit, dataset, paths, shown)
    script = resources.files("noiseproof.report").joinpath("audit_page.js").read_text(encoding="utf-8")
    classes = sorted(audit.per_class, key=lambda each: -each.rate * each.given)[:MAX_CLASSES_LISTED]
    return {
        "audit": audit,
        "names": names,
        "cells": [cell(name) for name in audit.classes],
        "matrix": audit.transition.tolist() if len(names) <= MAX_TABLE_CLASSES else None,
        "chart": charts.matrix(audit.transition, "Transition matrix")
        if MAX_TABLE_CLASSES < len(names) <= MAX_CHART_CLASSES
        else None,
        "confusions": audit.confusions[:MAX_CONFUSIONS],
        "classes": sorted(classes, key=lambda each: each.label),
        "class_warnings": [without_controls(each.warning) for each in audit.per_class],
        "how": audit.how[:1].upper() + audit.how[1:],
        "suspects": found,
        "pairs": Counter(each.pair for each in found).most_common(),
        "flagged": int(audit.flagged.sum()),
        "script": charts.Svg(script),
        "digest": base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        "key": hashlib.sha256(audit.given.tobytes() + audit.suggested.tobytes()).hexdigest()[:16],
        "version": __version__,
    }


def write_audit(
    audit: Audit,
    dataset: Dataset,
    folder: Path,
    *,
    place: str,
    labels: str | None = None,
    options: Sequence[str] = (),
    seed: int = 0,
    shown: int = MAX_EXAMPLES,
) -> dict[str, str]:
    """Write the files of an audit and its page; return the commands to run next, by their purpose.

    ``dataset`` was opened at ``place``, with these options of the command line, and has the audited examples as its training
    split; ``labels`` is the file of their labels, if these are not the data's own. The page shows up to ``shown`` examples.
    """
    paths = dataset.train.paths
    audit.save(folder, paths=paths)
    more = [*options, *([] if labels is None else ["--labels", labels])]
    data, own, to = shlex.quote(place), "".join(f" {shlex.quote(word)}" for word in more), shlex.quote(str(folder))
    reading = "".join(f" {shlex.quote(word)}" for word in options)
    soft = shlex.quote(str(folder / POSTERIOR_FILE))
    after = {
        "for the loss and settings that suit such labels": f"noiseproof advise {data}{own} --noise {to}",
        "to train on the probability of every class": f"noiseproof train jal-ce --data {data}{reading} --labels {soft}",
    }
    commands = {f"{purpose[0].upper()}{purpose[1:]}:": command for purpose, command in after.items()}
    again = f"noiseproof audit {data}{own} --decisions decisions.csv --out {to}"
    commands["Or decide above, export, and write the data with your decisions:"] = again
    facts = {"data": place, "labels": labels or "the data's own", "seed": str(seed)}
    facts |= {} if dataset.test is None else {"not audited": f"the test split, {len(dataset.test):,} examples"}
    facts |= {f"SHA-256 of {name}": digest for name, digest in list(dataset.sources.items())[:MAX_SOURCES]}
    about: dict[str, Any] = {"title": dataset.name, "facts": facts, "commands": commands, "made": time.strftime("%Y-%m-%d")}
    text = audit_page(audit, dataset, paths=paths, shown=shown, **about)
    write_whole(folder / "audit.html", lambda path: path.write_text(text, encoding="utf-8"))
    return after


def suspects(audit: Audit, dataset: Dataset | None, paths: Sequence[str] | None, most: int) -> list[Suspect]:
    """The flagged examples that are most likely wrong; without any, a few that are nearest to it."""
    most = min(most, int(audit.flagged.sum()) or 10)
    order = np.argsort(-audit.p_wrong, kind="stable")[:most]
    careful = [each.mostly_flagged for each in audit.per_class]
    left, found = MAX_THUMBNAIL_BYTES, []
    for index in order.tolist():
        given, suggested = int(audit.given[index]), int(audit.suggested[index])
        path = "" if paths is None else paths[index]
        picture, small = "", False
        if dataset is not None and dataset.table is None and left > 0:  # a row of a table is no picture
            picture, small = thumbnail(dataset, index)
            left -= len(picture)
        values = [] if dataset is None or picture else _values(dataset, index)
        sure = float(audit.p_wrong[index]), float(audit.posterior[index, suggested])
        named = printable(path)[-MAX_PATH_LENGTH:], cell(path)
        found.append(Suspect(index, *named, given, suggested, *sure, picture, small, values, careful[given]))
    return found


def thumbnail(dataset: Dataset, index: int) -> tuple[str, bool]:
    """A training example as a data URI, and whether it is to be enlarged pixel by pixel; nothing if it is no readable image."""
    try:
        pixels = example_image(dataset, dataset.train, index)
    except (DataError, OSError):
        return "", False
    if pixels is None:
        return "", False
    import PIL.Image

    image, file = PIL.Image.fromarray(pixels), io.BytesIO()
    if small := max(image.size) <= MAX_ENLARGED_SIDE:
        image.save(file, "PNG")
    else:
        image.thumbnail((THUMBNAIL_SIDE, THUMBNAIL_SIDE))
        image.save(file, "JPEG", quality=75)
    return f"data:image/{'png' if small else 'jpeg'};base64,{base64.b64encode(file.getvalue()).decode()}", small


def _values(dataset: Dataset, index: int) -> list[tuple[str, str]]:
    """The first features of an example."""
    if not dataset.train.in_memory:
        return []
    if dataset.table is not None:
        cells = dataset.table.rows["train"].iloc[index]
        cells = cells[[name for name in cells.index if name != dataset.table.names]]
        texts = [f"{value:.4g}" if isinstance(value, float) else short_name(str(value)) for value in cells[:MAX_VALUES]]
        return list(zip((short_name(str(name)) for name in cells.index), texts, strict=False))
    row: NDArray[np.floating] = dataset.train.inputs[index].reshape(-1)
    names = dataset.columns or [str(k) for k in range(min(len(row), MAX_VALUES))]
    return [(short_name(name), f"{value:.4g}") for name, value in zip(names, row[:MAX_VALUES].tolist(), strict=False)]


def probability(p: float) -> str:
    """One of a model, which is never 1, but may be rounded to it."""
    return percent(min(p, 0.99999))


def _shade(share: float) -> int:
    """Which of the shades a share has, by its square root: small shares are what matters here."""
    return round(SHADES * float(np.sqrt(min(max(share, 0.0), 1.0))))
