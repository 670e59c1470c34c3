"""The plots of docs/zoo.md, as SVG files for light and dark: gain by cell, regret, cost, calibration.

Kinds of noise differ in colour and in shape.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterable, Sequence
from html import escape
from importlib import resources
from pathlib import Path
from statistics import fmean, median
from typing import NamedTuple

import numpy as np

from noiseproof.report.charts import _svg, _text

sys.path.append(str(Path(__file__).resolve().parent.parent / "benchmarks"))

from zoo_report import ACCURACY, Zoo, rate_of, regrets

__all__ = ["calibration", "cost", "gains", "noise_regret"]

WIDTH, ROW, TOP = 640, 22, 34
LEFT, RIGHT, BOTTOM = 150, 20, 44
PANEL = 250
STYLE = """
text { font: 12px system-ui, sans-serif; fill: var(--ink); } .title { font-weight: 600; font-size: 14px; }
.quiet { fill: var(--quiet); } .grid { stroke: var(--rule); fill: none; } .zero { stroke: var(--quiet); fill: none; }
.mark { fill: currentColor; fill-opacity: .75; } .bar { stroke: currentColor; stroke-opacity: .55; fill: none; }
.box { fill: currentColor; fill-opacity: .35; } .whisker { stroke: currentColor; fill: none; stroke-width: 1.5; }
.line { stroke: currentColor; fill: none; stroke-width: 2; } .solid, .heat, .named { fill: currentColor; }
.named { font-weight: 600; }
"""
KINDS = {
    "given": ("labels of people or rules", 1),
    "sym": ("symmetric", 0),
    "pair": ("pairs", 3),
    "two": ("two rates", 4),
    "none": ("no wrong labels", 5),
}
"""Of noise: their names and colours"""
Point = tuple[float, float]


class Axis(NamedTuple):
    """From a value to a place."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return self.start + min(1.0, max(0.0, share)) * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Round numbers, six at most."""
        step = next(one for power in range(-3, 4) for one in (1 * 10**power, 2 * 10**power, 5 * 10**power) if self.fits(one))
        return [step * k for k in range(math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9) + 1)]

    def fits(self, step: float) -> bool:
        return (self.high - self.low) / step <= 6


def gains(zoo: Zoo, method: str, over: str) -> str:
    """By cell: how much better a method is than another on clean test rows, means over the seeds; sets by their mean."""
    cells: dict[tuple[str, str], list[float]] = {}
    for (name, noise, *_), lines in zoo.where(method, over).items():
        cells.setdefault((name, noise), []).append(ACCURACY.of(lines[method]) - ACCURACY.of(lines[over]))
    means = {cell: fmean(values) for cell, values in cells.items()}
    names = sorted({name for name, _ in means}, key=lambda name: -fmean(v for (one, _), v in means.items() if one == name))
    x = Axis(min(0.0, *means.values()), max(1.0, *means.values()), LEFT, WIDTH - RIGHT)
    bottom = TOP + 20 + ROW * len(names)
    parts = [_text(4, 18, f"Accuracy of {method} minus that of {over}, points", "start", "title"), *legend(TOP)]
    parts += axis_below(x, TOP + 18, bottom, "points")
    for row, name in enumerate(names):
        y = TOP + 20 + ROW * (row + 0.5)
        parts.append(_text(LEFT - 8, y + 4, name, "end"))
        for (one, noise), value in means.items():
            if one == name:
                parts.append(mark(x.at(value), y, kind_of(noise), f"{name}, {noise}: {value:+.1f}"))
    return svg(f"Gain of {method} over {over} by data set and noise", parts, bottom + BOTTOM)


def noise_regret(zoo: Zoo) -> str:
    """By method, how far it is below the best of a cell: median, quartiles, and 5 to 95 % of the noisy cells."""
    found = {method: list(cells.values()) for method, cells in regrets(zoo, ACCURACY).items() if cells}
    order = sorted(found, key=lambda method: fmean(found[method]))
    most = max((float(np.quantile(values, 0.95)) for values in found.values()), default=1.0)
    x, bottom = Axis(0, max(1.0, most), LEFT, WIDTH - RIGHT - 46), TOP + ROW * len(order)
    count = len(next(iter(found.values()), []))
    title = f"Points below the best method of a cell, {count} noisy cells"
    parts = [
        _text(4, 18, title, "start", "title"),
        *axis_below(x, TOP - 2, bottom, "box: quartiles; line: 5 to 95 %; number: mean"),
    ]
    for row, method in enumerate(order):
        y = TOP + ROW * (row + 0.5)
        low, first, middle, third, high = (x.at(v) for v in np.quantile(found[method], (0.05, 0.25, 0.5, 0.75, 0.95)))
        color = 1 if method.startswith("fit") else 0
        parts.append(_text(LEFT - 8, y + 4, method, "end"))
        parts.append(
            f'<g class="c{color}"><path class="whisker" d="M{low:.1f} {y:.1f}H{high:.1f}"/>'
            f'<rect class="box" x="{first:.1f}" y="{y - 6:.1f}" width="{max(1.0, third - first):.1f}" height="12"/>'
            f'<path class="whisker" d="M{middle:.1f} {y - 6:.1f}v12"/></g>'
        )
        parts.append(_text(WIDTH - RIGHT, y + 4, f"{fmean(found[method]):.1f}", "end", "quiet"))
    return svg("Regret of each method", parts, bottom + BOTTOM)


def cost(zoo: Zoo) -> str:
    """Mean accuracy on noisy cells against the median seconds of the processor."""
    methods = zoo.methods()
    shared = list(zoo.where(*methods, noisy=True).values())
    found = {
        method: (
            median(lines[method]["cpu_seconds"] for lines in shared),
            fmean(ACCURACY.of(lines[method]) for lines in shared),
        )
        for method in methods
        if shared
    }
    values = [accuracy for _, accuracy in found.values()] or [0.0]
    y = Axis(math.floor(min(values)) - 1, math.ceil(max(values)) + 1, TOP + 240, TOP)
    x = Axis(-2, 2.5, 60, WIDTH - 120)
    parts = [_text(4, 18, f"Mean accuracy and cost, {len(shared)} noisy cells", "start", "title")]
    for tick in y.ticks():
        parts.append(
            f'<path class="grid" d="M60 {y.at(tick):.1f}H{WIDTH - 120}"/>'
            + _text(52, y.at(tick) + 4, f"{tick:g}", "end", "quiet")
        )
    for power in (-2, -1, 0, 1, 2):
        parts.append(f'<path class="grid" d="M{x.at(power):.1f} {TOP}v240"/>')
        parts.append(_text(x.at(power), TOP + 258, f"{10.0**power:g}", "middle", "quiet"))
    parts.append(_text((60 + WIDTH - 120) / 2, TOP + 276, "seconds of the processor, median", "middle", "quiet"))
    places = {method: (x.at(math.log10(max(seconds, 0.01))), y.at(accuracy)) for method, (seconds, accuracy) in found.items()}
    for method, at in spread(places).items():
        here = places[method]
        color = 1 if method.startswith("fit") else 0
        parts.append(f'<circle class="mark c{color}" cx="{here[0]:.1f}" cy="{here[1]:.1f}" r="4.5"/>')
        parts.append(_text(here[0] + 8, at + 4, method, "start"))
    return svg("Mean accuracy of each method against its cost", parts, TOP + 286)


def spread(places: dict[str, Point], gap: float = 13.0) -> dict[str, float]:
    """Heights of names, from above to below, moved down so far that no two overlap."""
    found: dict[str, float] = {}
    for name, (x, y) in sorted(places.items(), key=lambda item: item[1][1]):
        near = [at for other, at in found.items() if abs(places[other][0] - x) < 130]
        found[name] = max(y, max((at + gap for at in near if at > y - gap), default=y))
    return found


def calibration(zoo: Zoo, method: str) -> str:
    """Two panels: the rate of wrong labels, and the accuracy on correct labels, as a method says them against the truth."""
    cells = [(place, lines[method]) for place, lines in zoo.where(method).items()]
    rates = [
        (place[1], 100 * line["true_rate"], [percent(v) for v in rate]) for place, line in cells if (rate := rate_of(line))
    ]
    accuracies = [
        (place[1], 100 * line["accuracy"]["accuracy"], [percent(v) for v in line["estimates"]["accuracy"]])
        for place, line in cells
        if "accuracy" in line.get("estimates", {})
    ]
    parts = [_text(4, 18, f"Estimates of {method}, upwards, against the truth", "start", "title"), *legend(TOP)]
    panels = [("wrong labels, %", rates)] + ([("test accuracy, %", accuracies)] if accuracies else [])
    for number, (title, points) in enumerate(panels):
        parts += panel(56 + number * (PANEL + 60), title, points)
    return svg(f"Estimates of {method} against the truth", parts, TOP + 20 + PANEL + BOTTOM)


def percent(value: float | None) -> float | None:
    return None if value is None else 100 * value


def panel(left: float, title: str, points: Sequence[tuple[str, float, Sequence[float | None]]]) -> list[str]:
    """Estimates upwards, the truth to the right; on the diagonal they are equal."""
    top, bottom = TOP + 20, TOP + 20 + PANEL
    values = [value for _, truth, estimate in points for value in (truth, *estimate) if value is not None] or [0.0, 1.0]
    low, high = min(values), max(*values, min(values) + 1)
    x, y = Axis(low, high, left, left + PANEL), Axis(low, high, bottom, top)
    parts = [f'<path class="zero" d="M{left} {bottom}L{left + PANEL} {top}"/>']
    for tick in x.ticks():
        parts.append(f'<path class="grid" d="M{x.at(tick):.1f} {top}V{bottom}M{left} {y.at(tick):.1f}H{left + PANEL}"/>')
        parts.append(
            _text(x.at(tick), bottom + 16, f"{tick:g}", "middle", "quiet")
            + _text(left - 6, y.at(tick) + 4, f"{tick:g}", "end", "quiet")
        )
    parts.append(_text(left + PANEL / 2, bottom + 34, f"true {title}", "middle", "quiet"))
    for noise, truth, (value, *interval) in points:
        kind = kind_of(noise)
        if value is None:
            continue
        if None not in interval:
            ends = [y.at(end) for end in interval if end is not None]
            parts.append(f'<path class="bar c{KINDS[kind][1]}" d="M{x.at(truth):.1f} {ends[0]:.1f}V{ends[1]:.1f}"/>')
        parts.append(mark(x.at(truth), y.at(value), kind, f"{noise}: {value:.1f}, truth {truth:.1f}"))
    return parts


# ---- parts


def kind_of(noise: str) -> str:
    return noise.partition(":")[0]


def shape(x: float, y: float, kind: str) -> str:
    """A path: circle, square, triangle, diamond, cross."""
    r = 4.0
    return {
        "sym": f"M{x - r:.1f} {y:.1f}a{r} {r} 0 1 0 {2 * r} 0a{r} {r} 0 1 0 {-2 * r} 0z",
        "given": f"M{x:.1f} {y - 5:.1f}l5 5l-5 5l-5 -5z",
        "pair": f"M{x:.1f} {y - 5:.1f}l5 9h-10z",
        "two": f"M{x - 3.5:.1f} {y - 3.5:.1f}h7v7h-7z",
        "none": f"M{x - 1.2:.1f} {y - 5:.1f}h2.4v3.8h3.8v2.4h-3.8v3.8h-2.4v-3.8h-3.8v-2.4h3.8z",
    }[kind]


def mark(x: float, y: float, kind: str, title: str) -> str:
    return f'<path class="mark c{KINDS[kind][1]}" d="{shape(x, y, kind)}"><title>{escape(title)}</title></path>'


def legend(y: float) -> list[str]:
    parts, at = [], 12.0
    for kind, (name, _) in KINDS.items():
        parts += [mark(at, y, kind, name), _text(at + 9, y + 4, name, "start", "quiet")]
        at += 28 + 6.4 * len(name)
    return parts


def axis_below(x: Axis, top: float, bottom: float, label: str) -> list[str]:
    parts = [f'<path class="grid" d="M{x.at(tick):.1f} {top}V{bottom}"/>' for tick in x.ticks()]
    parts += [_text(x.at(tick), bottom + 16, f"{tick:g}", "middle", "quiet") for tick in x.ticks()]
    parts.append(f'<path class="zero" d="M{x.at(0):.1f} {top}V{bottom}"/>')
    return [*parts, _text((x.start + x.end) / 2, bottom + 34, label, "middle", "quiet")]


def svg(label: str, parts: Iterable[str], height: float) -> str:
    """A file of its own, with the colours of the package's pages."""
    css = resources.files("noiseproof.report").joinpath("style.css").read_text(encoding="utf-8")
    light = re.search(r":root \{.*?\}", css, re.DOTALL)
    dark = re.search(r"@media \(prefers-color-scheme: dark\) \{ :root \{.*?\} \}", css, re.DOTALL)
    if light is None or dark is None:
        raise ValueError("style.css must define its colours for light and dark")
    colors = " ".join(f".c{k} {{ color: var(--c{k}); }}" for k in range(7))
    style = f"<style>{light[0]}\n{dark[0]}{STYLE}{colors}</style>"
    background = f'<rect width="{WIDTH}" height="{height:g}" style="fill: var(--page)"/>'
    text = _svg(label, [style, background, *parts], WIDTH, math.ceil(height))
    return text.replace("<svg ", f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" ', 1).replace("><", ">\n<") + "\n"
