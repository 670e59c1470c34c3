"""An audit as one HTML file: the verdict, the matrix, the classes, the most suspicious examples, and decisions to export.

It needs no network, and no scripts either: they only filter the examples and collect decisions. All text from the data is made
printable here and escaped by the template.
"""

from __future__ import annotations

import base64
import hashlib
import io
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from noiseproof.audit import Audit
from noiseproof.audit.result import CLEAN
from noiseproof.data import DataError, Dataset
from noiseproof.data.images import example_image
from noiseproof.io.text import cell, printable
from noiseproof.report import charts
from noiseproof.report.templates import environment
from noiseproof.version import __version__

__all__ = ["Verdict", "audit_page", "verdict"]

SHOWN = 200  # examples
SIDE = 96  # pixels of a thumbnail's longer side
SMALL = 48  # images up to this are shown pixel by pixel
BYTES = 3 * 2**20
"""Of all thumbnails together; examples after that are shown without"""
VALUES = 8  # features of an example that are shown
WORD = 40  # characters of a name of a class or a column
PATH = 200
TABLE, CHART = 20, 100
"""Classes up to which the matrix is a table, and beyond that a picture"""
ROWS = 100  # classes in the table of classes
WARNED = 6  # warnings at the top
PAIRS = 12
SHADES = 9
STANDS_OUT, BY_CHANCE, MOST = 3, 5, 2 / 3
"""A confusion stands out that has this many times the wrong labels that it would have if all pairs had as many, and so many
more, which of up to 50 classes one has by chance in 2 % of cases or fewer, of 100 in 8 %; or this share of all wrong labels"""


class Verdict(NamedTuple):
    """What an audit says, in a headline and sentences."""

    headline: str
    sentences: list[str]


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


def verdict(audit: Audit) -> Verdict:
    """How noisy, how sure, what is confused with what, and where to look first."""
    count, flagged, (low, high) = len(audit.given), int(audit.flagged.sum()), audit.rate_interval
    if audit.weak and audit.rate < CLEAN:
        headline = f"Predictions are too weak to say which of the {count:,} labels are wrong"
    elif audit.rate < CLEAN:
        headline = f"Hardly any of the {count:,} labels looks wrong: {percent(audit.rate)}"
    elif audit.weak:
        perhaps = f"perhaps {percent(audit.rate)}, by predictions too weak to say more"
        headline = f"At most about {percent(high)} of the {count:,} labels are wrong, {perhaps}"
    else:
        headline = f"About {percent(audit.rate)} of the {count:,} labels are wrong"
    flags = "1 label is flagged" if flagged == 1 else f"{flagged:,} labels are flagged"
    where = "out of sample" if audit.out_of_sample else "in sample"
    sentences = [
        f"95 % interval {percent(low)} to {percent(high)}; {flags}, more likely wrong than right.",
        f"Predictions ({where}) agree with {percent(audit.agreement)} of the labels, perfect ones would with "
        f"{percent(1 - audit.rate)}: the further apart, the weaker the predictions and the less sure the rate.",
    ]
    names = [short(name) for name in audit.classes]
    if pairs := audit.confusions[:3]:
        said = ", ".join(f"{names[each.true]} labelled as {names[each.given]} ({each.expected:.0f})" for each in pairs)
        wrong = count * audit.rate
        most = min(STANDS_OUT * wrong / (len(names) * (len(names) - 1)) + BY_CHANCE, MOST * wrong)
        sentences.append(f"{'Most often' if pairs[0].expected > most else 'No confusion stands out; most often'}: {said}.")
    worst = sorted((each for each in audit.per_class if each.flagged), key=lambda each: -each.rate)[:3]
    if worst:
        said = ", ".join(f"{names[each.label]} ({each.flagged:,} of {each.given:,} flagged)" for each in worst)
        sentences.append(f"Look first at the labels {said}.")
    return Verdict(headline, sentences)


def audit_page(
    audit: Audit,
    dataset: Dataset | None = None,
    *,
    paths: Sequence[str] | None = None,
    title: str = "labels",
    facts: Mapping[str, str] | None = None,
    commands: Mapping[str, str] | None = None,
    made: str = "",
    shown: int = SHOWN,
) -> str:
    """The whole file.

    ``dataset`` has the audited examples as its training split, for pictures or features; ``paths`` name them. ``facts`` say how
    it was made and ``commands`` what to do next, by a sentence for each; ``made`` is a date.
    """
    names = [short(name) for name in audit.classes]
    found = suspects(audit, dataset, paths, shown)
    pairs = Counter(each.pair for each in found)
    script = resources.files("noiseproof.report").joinpath("audit_page.js").read_text(encoding="utf-8")
    templates = environment()
    templates.globals |= {"percent": percent, "probability": probability, "shade": _shade}
    classes = sorted(audit.per_class, key=lambda each: -each.rate * each.given)[:ROWS]
    listed, said = audit.warnings, verdict(audit)
    return templates.get_template("audit_page.html").render(
        audit=audit,
        verdict=Verdict(said.headline, [text.replace(" %", "\N{NO-BREAK SPACE}%") for text in said.sentences]),
        title=short(title),
        names=names,
        cells=[cell(name) for name in audit.classes],
        warnings=[printable(text) for text in listed[:WARNED]],
        further=len(listed) - WARNED,
        matrix=audit.transition.tolist() if len(names) <= TABLE else None,
        chart=charts.matrix(audit.transition, "Transition matrix") if TABLE < len(names) <= CHART else None,
        confusions=audit.confusions[:PAIRS],
        classes=sorted(classes, key=lambda each: each.label),
        class_warnings=[printable(each.warning) for each in audit.per_class],
        how=audit.how[:1].upper() + audit.how[1:],
        suspects=found,
        pairs=pairs.most_common(),
        flagged=int(audit.flagged.sum()),
        facts={printable(key): printable(value) for key, value in (facts or {}).items()},
        commands={text: printable(line) for text, line in (commands or {}).items()},
        script=charts.Svg(script),
        digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        key=hashlib.sha256(audit.given.tobytes() + audit.suggested.tobytes()).hexdigest()[:16],
        made=made,
        version=__version__,
    )


def suspects(audit: Audit, dataset: Dataset | None, paths: Sequence[str] | None, most: int) -> list[Suspect]:
    """The flagged examples that are most likely wrong; without any, a few that are nearest to it."""
    most = min(most, int(audit.flagged.sum()) or 10)
    order = np.argsort(-audit.p_wrong, kind="stable")[:most]
    careful = [each.mostly_flagged for each in audit.per_class]
    left, found = BYTES, []
    for index in order.tolist():
        given, suggested = int(audit.given[index]), int(audit.suggested[index])
        path = "" if paths is None else paths[index]
        picture, small = "", False
        if dataset is not None and left > 0:
            picture, small = thumbnail(dataset, index)
            left -= len(picture)
        values = [] if dataset is None or picture else _values(dataset, index)
        sure = float(audit.p_wrong[index]), float(audit.posterior[index, suggested])
        named = printable(path)[-PATH:], cell(path)
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
    if small := max(image.size) <= SMALL:
        image.save(file, "PNG")
    else:
        image.thumbnail((SIDE, SIDE))
        image.save(file, "JPEG", quality=75)
    return f"data:image/{'png' if small else 'jpeg'};base64,{base64.b64encode(file.getvalue()).decode()}", small


def _values(dataset: Dataset, index: int) -> list[tuple[str, str]]:
    """The first features of an example."""
    if not dataset.train.in_memory:
        return []
    row: NDArray[np.floating] = dataset.train.inputs[index].reshape(-1)
    names = dataset.columns or [str(k) for k in range(min(len(row), VALUES))]
    return [(short(name), f"{value:.4g}") for name, value in zip(names, row[:VALUES].tolist(), strict=False)]


def short(name: str) -> str:
    shown = printable(name)
    return shown if len(shown) <= WORD else shown[: WORD - 1] + "…"


def percent(share: float) -> str:
    """A share that is not said to be 0 or 1 where it is not quite.

    >>> percent(0.1234), percent(0.9999), percent(0.0), percent(0.00004)
    ('12.3 %', 'over 99.9 %', '0.0 %', 'under 0.1 %')
    """
    if 0 < share < 0.001:
        return "under 0.1 %"
    return "over 99.9 %" if 0.999 < share < 1 else f"{100 * share:.1f} %"


def probability(p: float) -> str:
    """One of a model, which is never 1, but may be rounded to it."""
    return percent(min(p, 0.99999))


def _shade(share: float) -> int:
    """Which of the shades a share has, by its square root: small shares are what matters here."""
    return round(SHADES * float(np.sqrt(min(max(share, 0.0), 1.0))))
