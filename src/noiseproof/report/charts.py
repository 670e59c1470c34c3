"""What the HTML pages share, their templates and charts as inline SVG, and pictures of runs as files, by Matplotlib.

Charts of pages have no scripts, take colours and dashes from the classes of the page's style sheet, and are sized for a phone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from importlib import resources
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from jinja2 import Environment
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from noiseproof.io.files import write_whole
from noiseproof.io.text import excerpt

WIDTH, HEIGHT = 360, 250
LEFT, TOP, BOTTOM, LABELS = 30, 8, 30, 124
"""Margins; LABELS is the space for the names at the ends of the lines."""
COLORS, DASHES = 7, 5
"""No common divisor: 35 lines differ in colour or dash, neighbours in both."""
GAP = 10.5
"""Between two names, at least."""
MAX_NAME_LENGTH = 16
"""Of a line"""


class Svg(str):
    """Markup that Jinja does not escape again."""

    __slots__ = ()

    def __html__(self) -> str:
        return self


class ChartLine(NamedTuple):
    """A named curve in percent by epoch, and which of the styles it has; None for a grey one, behind the others."""

    name: str
    values: Sequence[float | None]
    style: int | None


def lines(series: Sequence[ChartLine], label: str, reference: tuple[float, str] | None = None) -> Svg:
    """Curves by epoch, each with its name at its end; ``reference`` is a level with a name."""
    known = [value for line in series for value in line.values if value is not None]
    known += [reference[0]] if reference else []
    low, high = min(math.floor(min(known, default=0) / 10) * 10, 90), math.ceil(max(known, default=100) / 10) * 10
    high = max(high, low + 10)
    epochs = max((len(line.values) for line in series), default=1)
    right, bottom = WIDTH - LABELS, HEIGHT - BOTTOM

    def x(epoch: float) -> float:
        return LEFT + (right - LEFT) * (epoch - 1) / max(1, epochs - 1)

    def y(value: float) -> float:
        return bottom - (bottom - TOP) * (value - low) / (high - low)

    step = 10 if high - low <= 60 else 20
    parts = [_text(LEFT - 4, y(tick) + 3, f"{tick}", "end") + _rule(y(tick), right) for tick in range(low, high + 1, step)]
    parts += [_text(x(epoch), bottom + 12, f"{epoch:g}", "middle") for epoch in (1, *_ticks(epochs))]
    parts.append(_text((LEFT + right) / 2, HEIGHT - 4, "epoch", "middle"))
    if reference:
        level, name = reference
        parts.append(f'<path class="ref" d="M{LEFT} {y(level):.1f}H{right}"/>')
        parts.append(_text(LEFT + 3, y(level) - 3, name, "start", "small"))
    ends = [(y(last), line) for line in series if (last := _last(line.values)) is not None]
    placed = zip(sorted(ends, key=lambda end: end[0]), _apart([end for end, _ in ends]), strict=True)
    for (at, line), place in sorted(placed, key=lambda one: one[0][1].style is not None):
        style = "rest" if line.style is None else f"c{line.style % COLORS} d{line.style % DASHES}"
        full = f"{line.name}: {_last(line.values):.2f} % after {len(line.values)} epochs"
        path = _path([None if v is None else (x(i), y(v)) for i, v in enumerate(line.values, 1)])
        parts.append(f'<g class="line {style}"><title>{escape(full)}</title><path d="{path}"/>')
        parts.append(f'<path d="M{right} {at:.1f}L{right + 5} {place:.1f}H{right + 21}"/>')
        parts.append(f'<text x="{right + 24}" y="{place + 3:.1f}">{escape(_cut(line.name))}</text></g>')
    return _svg(f"{label}: {', '.join(line.name for line in series)}", parts)


def histogram(kinds: dict[str, Sequence[float]], label: str) -> Svg:
    """Shares by probability: right labels upwards and wrong ones downwards, or all upwards where these are not known."""
    width, height = 176, 120
    left, right, top, bottom = 26, width - 4, 14, height - 20
    below = kinds.get("wrong")
    above = kinds.get("right", kinds.get("given", [0.0]))
    middle = (top + bottom) / 2 if below is not None else bottom
    parts = []
    for counts, sign, kind in ((above, -1, "right"), (below, 1, "wrong")):
        if counts is None or not sum(counts):
            continue
        unit = (middle - top if sign < 0 else bottom - middle) / sum(counts)
        bar = (right - left) / len(counts)
        path = [
            f"M{left + i * bar + 0.4:.1f} {middle:.1f}v{sign * max(0.4, count * unit):.1f}h{bar - 0.8:.1f}V{middle:.1f}z"
            for i, count in enumerate(counts)
            if count
        ]
        parts.append(f'<path class="{kind}" d="{"".join(path)}"/>')
    labels = [f"{name}: {100 * sum(c[len(c) // 2 :]) / sum(c):.0f} % above ½" for name, c in kinds.items() if sum(c)]
    places = (top + 3, bottom)
    parts += [_text((left + right) / 2, at, text, "middle") for at, text in zip(places, labels, strict=False)]
    parts.append(f'<path class="axis" d="M{left} {middle:.1f}H{right}M{left} {top}V{bottom}"/>')
    ends = ((left, "0", "start"), (right, "1", "end"))
    parts += [_text(at, height - 9, text, anchor) for at, text, anchor in ends]
    parts.append(_text((left + right) / 2, height - 9, "probability", "middle"))
    return _svg(f"{label}: {', '.join(labels)}", parts, width, height)


def distribution(probabilities: NDArray[np.floating]) -> Svg:
    """How many labels have each probability to be wrong, in twenty steps, by the logarithm; those above one half stand out."""
    counts = np.histogram(probabilities, 20, (0, 1))[0].tolist()
    most = max(*counts, 10)
    height, left, right, top, bottom = 150, 10 + 6 * len(f"{most:,}"), WIDTH - 18, 8, 118

    def y(count: int) -> float:
        return bottom - (bottom - top) * math.log1p(count) / math.log1p(most)

    parts = []
    for tick in (10**power for power in range(math.floor(math.log10(most)) + 1)):
        parts.append(
            _text(left - 4, y(tick) + 3, f"{tick:,}", "end") + f'<path class="grid" d="M{left} {y(tick):.1f}H{right}"/>'
        )
    width = (right - left) / 20
    for number, count in enumerate(counts):
        bar = f"M{left + width * number + 0.5:.1f} {bottom}V{y(count):.1f}h{width - 1:.1f}V{bottom}z"
        kind, said = "wrong" if number >= 10 else "other", f"{5 * number} to {5 * number + 5} %: {count:,}"
        parts.append(f'<path class="{kind}" d="{bar}"><title>{said}</title></path>')
    for percent in (0, 25, 50, 75, 100):
        parts.append(_text(left + (right - left) * percent / 100, bottom + 13, f"{percent} %", "middle"))
    parts.append(_text((left + right) / 2, height - 4, "probability to be wrong; above 50 % flagged", "middle"))
    return _svg(f"Probability to be wrong: {sum(counts[10:]):,} of {sum(counts):,} labels above 50 %", parts, WIDTH, height)


def matrix(values: NDArray[np.float64], label: str) -> Svg:
    """A transition matrix, the stronger the more likely. Only entries that differ from the commonest are drawn."""
    classes, size = len(values), 150
    unit = size / classes
    rounded = np.round(values, 4)
    kinds, counts = np.unique(rounded, return_counts=True)
    common = float(kinds[counts.argmax()])
    parts = [f'<rect class="ink" width="{size}" height="{size}" fill-opacity="{math.sqrt(common):.3f}"/>']
    for value in (float(kind) for kind in kinds if kind != common):
        found = np.argwhere(rounded == value)
        path = "".join(f"M{j * unit:.2f} {i * unit:.2f}h{unit:.2f}v{unit:.2f}h-{unit:.2f}z" for i, j in found.tolist())
        parts.append(f'<path class="page" d="{path}"/><path class="ink" fill-opacity="{math.sqrt(value):.3f}" d="{path}"/>')
    parts.append(f'<rect class="frame" width="{size}" height="{size}"/>')
    return _svg(label, [f'<g transform="translate(2 2)">{"".join(parts)}</g>'], size + 4, size + 4)


def _svg(label: str, parts: Sequence[str], width: int = WIDTH, height: int = HEIGHT) -> Svg:
    return Svg(f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(label)}">{"".join(parts)}</svg>')


def _text(x: float, y: float, text: str, anchor: str, kind: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{f" class={kind!r}" if kind else ""}>{escape(text)}</text>'


def _rule(y: float, right: float) -> str:
    return f'<path class="grid" d="M{LEFT} {y:.1f}H{right}"/>'


def _ticks(epochs: int) -> list[int]:
    step = next((step for step in (1, 2, 5, 10, 20, 30, 50, 100) if epochs / step <= 5), 200)
    return list(range(step, epochs + 1, step)) if epochs > 1 else []


def _path(points: Sequence[tuple[float, float] | None]) -> str:
    """Absolute where the line starts, relative after it: rounded positions, so that no error adds up."""
    words, before = [], None
    for point in points:
        if point is None:
            before = None
            continue
        at = round(point[0], 1), round(point[1], 1)
        words.append(f"M{at[0]:g} {at[1]:g}" if before is None else f"l{at[0] - before[0]:.3g} {at[1] - before[1]:.3g}")
        before = at
    return "".join(words)


def _last(values: Sequence[float | None]) -> float | None:
    return next((value for value in reversed(values) if value is not None), None)


def _apart(places: Sequence[float]) -> list[float]:
    """The places in order, moved as little as keeps ``GAP`` between two and all inside: isotonic regression of place - i GAP.

    >>> [float(place) for place in _apart([100, 100])]
    [94.75, 105.25]
    """
    if not places:
        return []
    from sklearn.isotonic import isotonic_regression

    steps = GAP * np.arange(len(places))
    moved: NDArray[np.float64] = isotonic_regression(np.sort(places) - steps)
    return list(np.maximum(TOP, np.minimum(moved, HEIGHT - BOTTOM - steps[-1])) + steps)


def _cut(name: str) -> str:
    return name if len(name) <= MAX_NAME_LENGTH else name[: MAX_NAME_LENGTH - 1] + "…"


def template_environment(package: str = "noiseproof.report") -> Environment:
    """The templates in a package's folder and in this one; Jinja is imported by the first page that is made.

    What they insert is escaped, and a name that is not given is an error.
    """
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    folders = [resources.files(name) for name in (package, "noiseproof.report")]

    def read(name: str) -> str | None:
        found = next((folder.joinpath(name) for folder in folders if folder.joinpath(name).is_file()), None)
        return None if found is None else found.read_text(encoding="utf-8")

    return Environment(
        loader=FunctionLoader(read), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )


CURVES_FILE = "curves.png"
LINE_COLORS = ("#0072b2", "#c65100", "#007a5a", "#a8327f", "#7a5c00", "#4b4b4b", "#5a3fc0")
LINE_DASHES: tuple[Any, ...] = ("-", (0, (6, 2)), (0, (2, 2)), (0, (8, 2, 2, 2)), (0, (3.5, 1.5, 1, 1.5)))
SERIES = {"test_accuracy": "test", "given_accuracy": "given labels", "clean_accuracy": "clean labels"}


def line_style(k: int) -> dict[str, Any]:
    """Colour and dashes of the k-th line of a picture; 35 lines differ in one of them."""
    return {"color": LINE_COLORS[k % len(LINE_COLORS)], "linestyle": LINE_DASHES[k % len(LINE_DASHES)]}


def draw_curves(record: Mapping[str, Any], folder: Path) -> Path:
    """Draw the accuracies and the loss of a record with its epochs; the same record gives the same bytes."""
    from matplotlib.figure import Figure

    epochs, recipe = record["epochs"], record["recipe"]
    numbers = [epoch["epoch"] for epoch in epochs]
    curves = {name: [epoch.get(key) for epoch in epochs] for key, name in SERIES.items()}
    figure = Figure(figsize=(9, 3.4))
    left, right = figure.subplots(1, 2)
    figure.subplots_adjust(0.07, 0.15, 0.99, 0.91)  # a constrained layout takes three times as long to draw
    style: dict[str, Any] = {"linewidth": 1.3, "marker": "." if len(epochs) < 20 else ""}
    for k, (name, curve) in enumerate(curves.items()):
        if any(value is not None for value in curve):
            percent = [np.nan if value is None else 100 * value for value in curve]
            left.plot(numbers, percent, label=name, **line_style(k), **style)
    left.set(xlabel="epoch", ylabel="accuracy, %")
    left.legend(fontsize=8)
    constant = record.get("loss_constant")
    right.plot(numbers, [epoch["loss"] for epoch in epochs], color=LINE_COLORS[0], **style)
    right.set(xlabel="epoch" + (f" (loss without its constant, {constant:.4g})" if constant else ""), ylabel="training loss")
    noise = "" if recipe.get("noise", "none") == "none" else f", {recipe['noise']}"
    title = f"{record['task'].get('name', recipe.get('dataset'))}, {recipe.get('loss')}{noise}, seed {recipe.get('seed')}"
    figure.suptitle(excerpt(title, 110), fontsize=10, parse_math=False)
    path = folder / CURVES_FILE
    write_whole(path, lambda place: figure.savefig(place, dpi=120, format="png", metadata={"Software": None}))
    return path
