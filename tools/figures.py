"""Kinds of plots for the pages, as SVG files in one style for light and dark: lines, intervals, scatter, heat map, dumbbells.

Series differ in colour and in dash or shape, so that no plot needs colours to be read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple

from zoo_charts import WIDTH, Axis, svg

from noiseproof.report.charts import _path, _text

__all__ = ["Dot", "Line", "Point", "dumbbells", "heat_map", "intervals", "lines", "scatter"]

TOP, BOTTOM, ROW = 58, 44, 24
SHORT_TOP = 40
"""Without a line below the title"""
DASHES = ("", "7 4", "2 3", "9 3 2 3", "4 2")
CHARACTER = 6.7
"""Width of one, about"""


class Line(NamedTuple):
    """A named curve over equally spaced or given places; ``color`` also chooses the dash."""

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
    color: int = 0


class Point(NamedTuple):
    """A point of a scatter plot, its interval upwards, and a label if it is to be named."""

    x: float
    y: float
    low: float
    high: float
    title: str
    color: int = 0
    label: str = ""


def lines(
    title: str,
    series: Sequence[Line],
    *,
    across: str,
    up: str,
    marks: Iterable[tuple[float, float, str, int]] = (),
    level: tuple[float, str, int] | None = None,
    span: tuple[float, float] | None = None,
    height: float = 300,
) -> str:
    """Curves with their names at their ends; ``marks`` are (x, y, text, colour), ``level`` is a dashed line with a text."""
    values = [value for line in series for value in line.values]
    low, high = span or (min(values), max(values))
    places = [place for line in series for place in line.places]
    right = WIDTH - 30 - CHARACTER * max(len(line.name) for line in series)
    x = Axis(min(places), max(places), 44, right)
    y = Axis(low, high, TOP + height, TOP)
    parts = [*_title(title, up), *_grid(x, y, across)]
    if level is not None:
        at, text, color = level
        parts.append(f'<path class="line c{color}" stroke-dasharray="3 4" d="M44 {y.at(at):.1f}H{right:.1f}"/>')
        parts.append(_text(right, y.at(at) - 7, text, "end", f"c{color} named"))
    ordered = sorted(series, key=lambda line: y.at(line.values[-1]))
    for line, place in zip(ordered, _apart([y.at(line.values[-1]) for line in ordered]), strict=True):
        path = _path([(x.at(a), y.at(b)) for a, b in zip(line.places, line.values, strict=True)])
        dash = f' stroke-dasharray="{DASHES[line.color % 5]}"' if line.color % 5 else ""
        full = escape(f"{line.name}: {line.values[-1]:.1f} at the end")
        parts.append(f'<path class="line c{line.color}"{dash} d="{path}"><title>{full}</title></path>')
        parts.append(_text(right + 8, place + 4, line.name, "start", f"c{line.color} named"))
    for at, value, text, color in marks:
        parts.append(f'<circle class="mark c{color}" cx="{x.at(at):.1f}" cy="{y.at(value):.1f}" r="5"/>')
        if text:
            parts.append(_text(x.at(at) + 9, y.at(value) - 9, text, "start", f"c{color} named"))
    return svg(title, parts, TOP + height + BOTTOM)


def intervals(title: str, rows: Sequence[Dot], *, across: str, zero: float | None = 0.0) -> str:
    """A row for each value, with its interval and the number beside it."""
    left = 16 + CHARACTER * max(len(row.name) for row in rows)
    ends = [end for row in rows for end in (row.low, row.high, row.value) if end is not None]
    ends += [] if zero is None else [zero]
    x = Axis(min(ends), max(ends), left, WIDTH - 64)
    bottom = SHORT_TOP + ROW * len(rows)
    parts = [*_title(title), *_below(x, SHORT_TOP - 6, bottom, across)]
    if zero is not None:
        parts.append(f'<path class="zero" d="M{x.at(zero):.1f} {SHORT_TOP - 6}V{bottom}"/>')
    for number, row in enumerate(rows):
        y = SHORT_TOP + ROW * (number + 0.5)
        parts.append(_text(left - 10, y + 4, row.name, "end"))
        if row.low is not None and row.high is not None:
            parts.append(f'<path class="line c{row.color}" d="M{x.at(row.low):.1f} {y:.1f}H{x.at(row.high):.1f}"/>')
        parts.append(f'<circle class="solid c{row.color}" cx="{x.at(row.value):.1f}" cy="{y:.1f}" r="4.5"/>')
        parts.append(_text(WIDTH - 8, y + 4, f"{row.value:+.1f}" if zero == 0 else f"{row.value:.1f}", "end", "quiet"))
    return svg(title, parts, bottom + BOTTOM)


def dumbbells(title: str, rows: Sequence[tuple[str, Sequence[float]]], kinds: Sequence[tuple[str, int]], across: str) -> str:
    """For each row several values on one line, each kind with a colour and a shape of its own."""
    left = 16 + CHARACTER * max(len(name) for name, _ in rows)
    values = [value for _, found in rows for value in found]
    x = Axis(min(values), max(values), left, WIDTH - 20)
    bottom = TOP + ROW * len(rows)
    parts, at = [*_title(title)], 12.0
    for number, (name, color) in enumerate(kinds):
        parts += [_shape(at, 38, number, color, name), _text(at + 10, 42, name, "start", "quiet")]
        at += 34 + CHARACTER * len(name)
    parts += _below(x, TOP - 2, bottom, across)
    for number, (name, found) in enumerate(rows):
        y = TOP + ROW * (number + 0.5)
        parts.append(_text(left - 10, y + 4, name, "end"))
        parts.append(f'<path class="grid" d="M{x.at(min(found)):.1f} {y:.1f}H{x.at(max(found)):.1f}"/>')
        for kind, value in enumerate(found):
            parts.append(_shape(x.at(value), y, kind, kinds[kind][1], f"{name}, {kinds[kind][0]}: {value:.1f}"))
    return svg(title, parts, bottom + BOTTOM)


def scatter(title: str, points: Sequence[Point], *, across: str, up: str, height: float = 380) -> str:
    """Points with intervals upwards, and the diagonal on which both values are equal."""
    ends = [end for point in points for end in (point.x, point.y)]
    low, high = min(ends) - 2, max(ends) + 2
    x, y = Axis(low, high, 44, WIDTH - 20), Axis(low, high, TOP + height, TOP)
    parts = [*_title(title, up), *_grid(x, y, across)]
    parts.append(f'<path class="zero" d="M{x.start:.1f} {y.start:.1f}L{x.end:.1f} {y.end:.1f}"/>')
    for point in points:
        at = x.at(point.x)
        parts.append(f'<path class="bar c{point.color}" d="M{at:.1f} {y.at(point.low):.1f}V{y.at(point.high):.1f}"/>')
        parts.append(_shape(at, y.at(point.y), point.color, point.color, point.title))
    named = sorted((point for point in points if point.label), key=lambda point: -point.y)
    for point, place in zip(named, _apart([y.at(point.y) for point in named]), strict=True):
        end = x.at(point.x) > WIDTH / 2
        parts.append(_text(x.at(point.x) + (-9 if end else 9), place + 4, point.label, "end" if end else "start"))
    return svg(title, parts, TOP + height + BOTTOM)


def heat_map(title: str, rows: Sequence[str], columns: Sequence[str], values: Sequence[Sequence[float | None]]) -> str:
    """Cells from 0 to 100 with their number, darker where it is higher."""
    left = 16 + CHARACTER * max(map(len, rows))
    wide = (WIDTH - 10 - left) / len(columns)
    parts = [*_title(title)]
    parts += [_text(left + wide * (k + 0.5), TOP - 6, name, "middle", "quiet") for k, name in enumerate(columns)]
    for number, (name, found) in enumerate(zip(rows, values, strict=True)):
        y = TOP + ROW * number
        parts.append(_text(left - 10, y + 16, name, "end"))
        for k, value in enumerate(found):
            if value is not None:
                box = f'x="{left + wide * k + 1:.1f}" y="{y + 1}" width="{wide - 2:.1f}" height="{ROW - 2}"'
                parts.append(f'<rect class="heat c0" {box} fill-opacity="{0.04 + 0.006 * value:.2f}"/>')
                parts.append(_text(left + wide * (k + 0.5), y + 16, f"{value:.0f}", "middle"))
    return svg(title, parts, TOP + ROW * len(rows) + 12)


def _title(title: str, up: str = "") -> list[str]:
    return [_text(4, 18, title, "start", "title"), *([_text(4, 42, up, "start", "quiet")] if up else [])]


def _grid(x: Axis, y: Axis, across: str) -> list[str]:
    parts = _below(x, y.end, y.start, across)
    for tick in y.ticks():
        parts.append(f'<path class="grid" d="M{x.start:.1f} {y.at(tick):.1f}H{x.end:.1f}"/>')
        parts.append(_text(x.start - 6, y.at(tick) + 4, f"{tick:g}", "end", "quiet"))
    return parts


def _below(x: Axis, top: float, bottom: float, across: str) -> list[str]:
    parts = [f'<path class="grid" d="M{x.at(tick):.1f} {top}V{bottom}"/>' for tick in x.ticks()]
    parts += [_text(x.at(tick), bottom + 16, f"{tick:g}", "middle", "quiet") for tick in x.ticks()]
    return [*parts, _text((x.start + x.end) / 2, bottom + 34, across, "middle", "quiet")]


def _shape(x: float, y: float, kind: int, color: int, title: str) -> str:
    """Circle, square, triangle, diamond, in turn."""
    path = (
        f"M{x - 4.5:.1f} {y:.1f}a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0z",
        f"M{x - 4:.1f} {y - 4:.1f}h8v8h-8z",
        f"M{x:.1f} {y - 5.5:.1f}l5.5 9.5h-11z",
        f"M{x:.1f} {y - 5.5:.1f}l5.5 5.5l-5.5 5.5l-5.5 -5.5z",
    )[kind % 4]
    return f'<path class="mark c{color}" d="{path}"><title>{escape(title)}</title></path>'


def _apart(places: Sequence[float], gap: float = 15.0) -> list[float]:
    """Ascending places, each at least a gap below the one before."""
    found: list[float] = []
    for place in places:
        found.append(max(place, found[-1] + gap) if found else place)
    return found
