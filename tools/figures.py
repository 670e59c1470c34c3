"""Kinds of plots for the pages, as SVG files in one style for light and dark: curves, rows of values, scatter, boxes, heat map.

Series differ in colour and in dash or shape, so that no plot needs colours to be read. Numbers are rounded to a tenth of a
pixel and nothing depends on a drawing library, so that the same records give the same bytes everywhere.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from html import escape
from typing import Literal, NamedTuple

__all__ = ["Dot", "Line", "Mark", "Point", "badge", "boxes", "heat_map", "intervals", "lines", "rows_of_marks", "scatter"]

WIDTH, ROW, TOP, BOTTOM = 560, 24, 36, 46
RIGHT = WIDTH - 14
DASHES = ("", "7 4", "2 3", "9 3 2 3", "4 2")
STYLE = """
:root { --page: #fff; --ink: #1c1f23; --quiet: #5b6470; --rule: #d9dee4; --box: #eef1f4;
  --c0: #0072b2; --c1: #c65100; --c2: #007a5a; --c3: #a8327f; --c4: #7a5c00; --c5: #4b4b4b; }
@media (prefers-color-scheme: dark) { :root {
  --page: #14171a; --ink: #e6e9ec; --quiet: #a0a9b4; --rule: #343b43; --box: #232a31;
  --c0: #56b4e9; --c1: #ff9a4d; --c2: #3ecfa0; --c3: #f29ccf; --c4: #e6c84f; --c5: #c9c9c9; } }
svg { color: var(--ink); } .c0 { color: var(--c0); } .c1 { color: var(--c1); } .c2 { color: var(--c2); }
.c3 { color: var(--c3); } .c4 { color: var(--c4); } .c5 { color: var(--c5); }
text { font: 13px system-ui, sans-serif; fill: var(--ink); } .title { font-weight: 600; font-size: 15px; }
.quiet { fill: var(--quiet); } .grid { stroke: var(--rule); fill: none; } .zero { stroke: var(--quiet); fill: none; }
.mark { fill: currentColor; fill-opacity: .8; } .bar { stroke: currentColor; stroke-opacity: .6; fill: none; }
.box { fill: currentColor; fill-opacity: .35; } .line { stroke: currentColor; fill: none; stroke-width: 2; }
.heat, .named { fill: currentColor; } .named { font-weight: 600; }
"""
"""The colours are Okabe and Ito's, darkened on white so that thin lines and words are readable"""
Kind = tuple[str, int]
"""A name and a colour; its place among the kinds gives the shape"""


class Line(NamedTuple):
    """A named curve; ``color`` also chooses the dash."""

    name: str
    places: Sequence[float]
    values: Sequence[float]
    color: int = 0


class Dot(NamedTuple):
    """A named value with an interval, if it has one."""

    name: str
    value: float
    low: float | None = None
    high: float | None = None
    color: int = 1


class Mark(NamedTuple):
    """A value in a row, of one of the kinds; ``title`` is shown where a pointer rests."""

    value: float
    kind: int
    title: str


class Point(NamedTuple):
    """A point of a scatter plot, its interval upwards, and a label if it is to be named."""

    x: float
    y: float
    title: str
    kind: int = 0
    low: float | None = None
    high: float | None = None
    label: str = ""


class Axis(NamedTuple):
    """From a value to a place, by its logarithm if it says so."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def at(self, value: float) -> float:
        low, high, value = (math.log(one) for one in (self.low, self.high, value)) if self.log else (self.low, self.high, value)
        share = (value - low) / (high - low)
        return self.start + min(1.0, max(0.0, share)) * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Round numbers, six at most."""
        if self.log:
            steps = [(1, 3), (1,)]
            found = [[k * 10.0**power for power in range(-3, 5) for k in step] for step in steps]
            inside = [[one for one in each if self.low <= one <= self.high * 1.001] for each in found]
            return next((each for each in inside if len(each) <= 6), inside[-1])
        step = next(one for power in range(-3, 4) for one in (1 * 10**power, 2 * 10**power, 5 * 10**power) if self._fits(one))
        return [step * k for k in range(math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9) + 1)]

    def _fits(self, step: float) -> bool:
        return (self.high - self.low) / step <= 6


def lines(
    title: str,
    series: Sequence[Line],
    *,
    across: str,
    up: str,
    marks: Iterable[tuple[float, float, int]] = (),
    level: tuple[float, str, int] | None = None,
    span: tuple[float, float] | None = None,
    height: float = 260,
    log: bool = False,
) -> str:
    """Curves with their names at their ends; ``marks`` are (x, y, colour), ``level`` is a dashed line with a text."""
    values = [value for line in series for value in line.values]
    low, high = span or (min(values), max(values))
    places = [place for line in series for place in line.places]
    right = WIDTH - 14 - max(_width(line.name, bold=True) for line in series)
    top = TOP + 22
    x, y = Axis(min(places), max(places), 38, right, log), Axis(low, high, top + height, top)
    parts = [_text(4, TOP + 8, up, "start", "quiet"), *_grid(x, y, across)]
    if level is not None:
        at, text, color = level
        parts.append(f'<path class="line c{color}" stroke-dasharray="3 4" d="M38 {y.at(at):.1f}H{right:.1f}"/>')
        parts.append(_text(right, y.at(at) + 18, text, "end", f"c{color} named"))
    ordered = sorted(series, key=lambda line: y.at(line.values[-1]))
    for line, place in zip(ordered, _apart([y.at(line.values[-1]) for line in ordered]), strict=True):
        path = "L".join(f"{x.at(a):.1f} {y.at(b):.1f}" for a, b in zip(line.places, line.values, strict=True))
        dash = f' stroke-dasharray="{DASHES[line.color % 5]}"' if line.color % 5 else ""
        full = escape(f"{line.name}: {line.values[-1]:.1f} at the end")
        parts.append(f'<path class="line c{line.color}"{dash} d="M{path}"><title>{full}</title></path>')
        parts.append(_text(right + 8, place + 4, line.name, "start", f"c{line.color} named"))
    parts += [f'<circle class="mark c{color}" cx="{x.at(a):.1f}" cy="{y.at(b):.1f}" r="5"/>' for a, b, color in marks]
    return _file(title, parts, top + height + BOTTOM)


def intervals(title: str, rows: Sequence[Dot], *, across: str, digits: int | None = None) -> str:
    """A row for each value, with its interval and the number beside it, with a sign unless digits are asked for."""
    left = 16 + max(_width(row.name) for row in rows)
    ends = [end for row in rows for end in (row.low, row.high, row.value) if end is not None]
    x = Axis(min(0.0, *ends), max(ends), left, RIGHT - 48)
    bottom = TOP + ROW * len(rows)
    parts = [*_below(x, TOP - 6, bottom, across), f'<path class="zero" d="M{x.at(0):.1f} {TOP - 6}V{bottom}"/>']
    for number, row in enumerate(rows):
        y = TOP + ROW * (number + 0.5)
        parts.append(_text(left - 10, y + 4, row.name, "end"))
        if row.low is not None and row.high is not None:
            parts.append(f'<path class="line c{row.color}" d="M{x.at(row.low):.1f} {y:.1f}H{x.at(row.high):.1f}"/>')
        parts.append(f'<circle class="mark c{row.color}" cx="{x.at(row.value):.1f}" cy="{y:.1f}" r="4.5"/>')
        parts.append(_text(RIGHT, y + 4, f"{row.value:+.1f}" if digits is None else f"{row.value:.{digits}f}", "end", "quiet"))
    return _file(title, parts, bottom + BOTTOM)


def rows_of_marks(
    title: str,
    rows: Sequence[tuple[str, Sequence[Mark]]],
    kinds: Sequence[Kind],
    *,
    across: str,
    zero: bool = False,
) -> str:
    """For each row its values on one line, each kind with a colour and a shape; a row without values is a heading."""
    left = 16 + max(_width(name) for name, marks in rows if marks)
    values = [mark.value for _, marks in rows for mark in marks]
    x = Axis(min([0.0, *values] if zero else values), max(values), left, RIGHT - 6)
    legend, top = _legend(kinds)
    bottom = top + ROW * len(rows)
    parts = [*legend, *_below(x, top - 2, bottom, across)]
    if zero:
        parts.append(f'<path class="zero" d="M{x.at(0):.1f} {top - 2}V{bottom}"/>')
    for number, (name, marks) in enumerate(rows):
        y = top + ROW * (number + 0.5)
        if not marks:
            parts.append(f'<rect y="{y - ROW / 2 + 1:.1f}" width="{WIDTH}" height="{ROW - 2}" style="fill: var(--page)"/>')
            parts.append(_text(4, y + 5, name, "start", "named"))
            continue
        parts.append(_text(left - 10, y + 4, name, "end"))
        ends = [x.at(mark.value) for mark in marks]
        parts.append(f'<path class="zero" d="M{min(ends):.1f} {y:.1f}H{max(ends):.1f}"/>')
        parts += [_shape(x.at(mark.value), y, mark.kind, kinds[mark.kind][1], mark.title) for mark in marks]
    return _file(title, parts, bottom + BOTTOM)


def scatter(
    title: str,
    points: Sequence[Point],
    kinds: Sequence[Kind],
    *,
    across: str,
    up: str,
    reference: Literal["diagonal", "zero"] | None = "diagonal",
    log: bool = False,
    height: float = 340,
) -> str:
    """Points with intervals upwards, cut off at the edges, and a line where both values are equal or where one is zero."""
    legend, top = _legend(kinds) if len(kinds) > 1 else ([], TOP - 14.0)
    top += 22
    acrosses, ups = [point.x for point in points], [point.y for point in points]
    low, high = _widened(min(ups), max(ups), 0.12)
    x = Axis(*_widened(min(acrosses), max(acrosses), 0.03), 38, RIGHT)
    if reference == "diagonal":
        low, high = _widened(min(acrosses + ups), max(acrosses + ups), 0.03)
        x = Axis(low, high, 38, RIGHT)
    elif log:
        x = Axis(min(acrosses) / 1.5, max(acrosses) * 1.5, 38, RIGHT - 90, log)
    y = Axis(low, high, top + height, top)
    parts = [*legend, _text(4, top - 10, up, "start", "quiet"), *_grid(x, y, across)]
    if reference is not None:
        ends = (y.start, y.end) if reference == "diagonal" else (y.at(0), y.at(0))
        parts.append(f'<path class="zero" d="M{x.start:.1f} {ends[0]:.1f}L{x.end:.1f} {ends[1]:.1f}"/>')
    for point in points:
        at, color = x.at(point.x), kinds[point.kind][1]
        if point.low is not None and point.high is not None:
            parts.append(f'<path class="bar c{color}" d="M{at:.1f} {y.at(point.low):.1f}V{y.at(point.high):.1f}"/>')
        parts.append(_shape(at, y.at(point.y), point.kind, color, point.title))
    named = sorted((point for point in points if point.label), key=lambda point: -point.y)
    taken = [(x.at(point.x) - 5, x.at(point.x) + 5, y.at(point.y)) for point in named]
    for point in named:
        at, wide = x.at(point.x), _width(point.label)
        for shift, before in itertools.product(range(0, 100, 4), (False, True)):
            left, place = at - 9 - wide if before else at + 9, y.at(point.y) + shift
            free = not any(start < left + wide and left < end and abs(one - place) < 13 for start, end, one in taken)
            if free and left > 0 and left + wide < WIDTH:
                break
        taken.append((left, left + wide, place))
        parts.append(_text(at - 9 if before else at + 9, place + 4, point.label, "end" if before else "start"))
    return _file(title, parts, top + height + BOTTOM)


def _widened(low: float, high: float, share: float) -> tuple[float, float]:
    return low - share * (high - low), high + share * (high - low)


def boxes(title: str, rows: Sequence[tuple[str, Sequence[float], float, int]], *, across: str) -> str:
    """For each row five quantiles as whisker, box, median, box and whisker, and a number beside it."""
    left = 16 + max(_width(name) for name, *_ in rows)
    x = Axis(0, max(1.0, *(places[-1] for _, places, *_ in rows)), left, RIGHT - 48)
    bottom = TOP + ROW * len(rows)
    parts = _below(x, TOP - 2, bottom, across)
    for number, (name, places, value, color) in enumerate(rows):
        y = TOP + ROW * (number + 0.5)
        low, first, middle, third, high = map(x.at, places)
        parts.append(_text(left - 10, y + 4, name, "end"))
        parts.append(
            f'<g class="c{color}"><path class="line" d="M{low:.1f} {y:.1f}H{high:.1f}"/>'
            f'<rect class="box" x="{first:.1f}" y="{y - 6:.1f}" width="{max(1.0, third - first):.1f}" height="12"/>'
            f'<path class="line" d="M{middle:.1f} {y - 6:.1f}v12"/></g>'
        )
        parts.append(_text(RIGHT, y + 4, f"{value:.1f}", "end", "quiet"))
    return _file(title, parts, bottom + BOTTOM)


def heat_map(title: str, rows: Sequence[tuple[str, Sequence[float | None]]], columns: Sequence[str], *, across: str) -> str:
    """Cells from 0 to 100 with their number, darker where it is higher; a row without values is a heading."""
    left = 16 + max(_width(name) for name, found in rows if found)
    wide = (RIGHT - left) / len(columns)
    parts = [_text((left + RIGHT) / 2, TOP + 6, across, "middle", "quiet")]
    parts += [_text(left + wide * (k + 0.5), TOP + 26, name, "middle", "quiet") for k, name in enumerate(columns)]
    top = TOP + 34
    for number, (name, found) in enumerate(rows):
        y = top + ROW * number
        parts.append(_text(left - 10, y + 17, name, "end") if found else _text(4, y + 17, name, "start", "named"))
        for k, value in enumerate(found):
            if value is not None:
                place = f'x="{left + wide * k + 1:.1f}" y="{y + 1}" width="{wide - 2:.1f}" height="{ROW - 2}"'
                parts.append(f'<rect class="heat c0" {place} fill-opacity="{0.03 + 0.0055 * value:.2f}"/>')
                parts.append(_text(left + wide * (k + 0.5), y + 17, f"{value:.0f}", "middle"))
    return _file(title, parts, top + ROW * len(rows) + 12)


def badge(name: str, value: str) -> str:
    """A name and a value side by side, for the head of the README."""
    left, right = (14 + _width(text) for text in (name, value))
    parts = [
        f'<rect width="{left + right:.0f}" height="22" rx="3" style="fill: var(--box)"/>',
        _text(left / 2, 15.5, name, "middle", "quiet"),
        _text(left + right / 2, 15.5, value, "middle"),
    ]
    return _svg(f"{name}: {value}", parts, round(left + right), 22)


def _legend(kinds: Sequence[Kind]) -> tuple[list[str], float]:
    """Shapes and names below the title, in as many lines as they need, and where the plot begins."""
    parts, at, y = [], 12.0, TOP
    for number, (name, color) in enumerate(kinds):
        wide = 32 + _width(name)
        if at + wide > WIDTH + 10:
            at, y = 12.0, y + 20
        parts += [_shape(at, y, number, color, name), _text(at + 10, y + 4, name, "start", "quiet")]
        at += wide
    return parts, y + 16.0


def _grid(x: Axis, y: Axis, across: str) -> list[str]:
    parts = _below(x, y.end, y.start, across)
    for tick in y.ticks():
        parts.append(f'<path class="grid" d="M{x.start:.1f} {y.at(tick):.1f}H{x.end:.1f}"/>')
        parts.append(_text(x.start - 6, y.at(tick) + 4, f"{tick:g}", "end", "quiet"))
    return parts


def _below(x: Axis, top: float, bottom: float, across: str) -> list[str]:
    parts = [f'<path class="grid" d="M{x.at(tick):.1f} {top:g}V{bottom:g}"/>' for tick in x.ticks()]
    parts += [_text(x.at(tick), bottom + 17, f"{tick:g}", "middle", "quiet") for tick in x.ticks()]
    return [*parts, _text((x.start + x.end) / 2, bottom + 36, across, "middle", "quiet")]


def _shape(x: float, y: float, kind: int, color: int, title: str) -> str:
    """Circle, square, triangle, diamond, cross, in turn."""
    path = (
        f"M{x - 4.5:.1f} {y:.1f}a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0z",
        f"M{x - 4:.1f} {y - 4:.1f}h8v8h-8z",
        f"M{x:.1f} {y - 5.5:.1f}l5.5 9.5h-11z",
        f"M{x:.1f} {y - 5.5:.1f}l5.5 5.5l-5.5 5.5l-5.5 -5.5z",
        f"M{x - 1.2:.1f} {y - 5:.1f}h2.4v3.8h3.8v2.4h-3.8v3.8h-2.4v-3.8h-3.8v-2.4h3.8z",
    )[kind % 5]
    return f'<path class="mark c{color}" d="{path}"><title>{escape(title)}</title></path>'


def _apart(places: Sequence[float], gap: float = 15.0) -> list[float]:
    """Ascending places, each at least a gap below the one before."""
    found: list[float] = []
    for place in places:
        found.append(max(place, found[-1] + gap) if found else place)
    return found


def _width(text: str, *, bold: bool = False) -> float:
    """Of a text, about, in a wide font."""
    return (1.1 if bold else 1.0) * sum(9.4 if one.isupper() or one == "+" else 7.4 for one in text)


def _text(x: float, y: float, text: str, anchor: str, kind: str = "") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{named}>{escape(text)}</text>'


def _file(title: str, parts: Iterable[str], height: float) -> str:
    page = f'<rect width="{WIDTH}" height="{math.ceil(height)}" style="fill: var(--page)"/>'
    return _svg(title, [page, _text(4, 18, title, "start", "title"), *parts], WIDTH, math.ceil(height))


def _svg(label: str, parts: Iterable[str], width: int, height: int) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" viewBox="0 0 {width} {height}" role="img"'
    return "\n".join([f'{head} aria-label="{escape(label)}">', f"<style>{STYLE}</style>", *parts, "</svg>", ""])
