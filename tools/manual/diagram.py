"""A Mermaid graph as SVG: layers by the longest way down, edges through places of their own, neighbours near each other."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from html import escape
from statistics import fmean

__all__ = ["drawn", "edges_of"]

WIDE, HIGH, GAP, DEEP = 92, 26, 14, 64
"""Of a box, between two, and from one layer to the next"""
NARROW = 16
"""The place of an edge that passes a layer"""
SWEEPS = 40


def edges_of(text: str) -> tuple[list[str], list[tuple[str, str]]]:
    """The nodes, in their order, and the edges of ``graph TD`` with lines ``a --> b`` or ``a``.

    >>> edges_of("graph TD\\n  a --> b\\n  c")
    (['a', 'b', 'c'], [('a', 'b')])
    """
    first, *lines = [line.strip() for line in text.strip().splitlines()]
    if first != "graph TD":
        raise ValueError(f"only 'graph TD' is drawn, got {first!r}")
    nodes: dict[str, None] = {}
    edges = []
    for line in lines:
        found = re.fullmatch(r"(\w+)(?: --> (\w+))?", line)
        if not found:
            raise ValueError(f"only lines 'a' and 'a --> b' are drawn, got {line!r}")
        names = [name for name in found.groups() if name]
        nodes |= dict.fromkeys(names)
        edges += [(names[0], names[1])] if len(names) == 2 else []
    return list(nodes), edges


def drawn(text: str, label: str) -> str:
    """The picture, in an element that scrolls where it is wider than the page."""
    nodes, edges = edges_of(text)
    depth = _depths(nodes, edges)
    layers, parts = _with_places(nodes, edges, depth)
    _order(layers, parts)
    across = _across(layers, parts)
    width = max(across[one] + _width(one) / 2 for layer in layers for one in layer) + 2
    height = DEEP * (len(layers) - 1) + HIGH + 4

    def y(layer: int) -> float:
        return 2 + HIGH / 2 + DEEP * (len(layers) - 1 - layer)

    shown = []
    for way in parts:
        points = [(across[one], y(depth[one] if isinstance(one, str) else one[2])) for one in way]
        shown.append(f'<path class="edge" d="{_curve(points)}" marker-end="url(#arrow)"/>')
    for node in nodes:
        left, top = across[node] - WIDE / 2, y(depth[node]) - HIGH / 2
        shown.append(f'<rect x="{left:.1f}" y="{top:.1f}" width="{WIDE}" height="{HIGH}" rx="5"/>')
        shown.append(f'<text x="{across[node]:.1f}" y="{top + HIGH / 2 + 4:.1f}" text-anchor="middle">{escape(node)}</text>')
    arrow = '<path d="M0 0L7 3.5L0 7z"/>'
    defined = (
        f'<defs><marker id="arrow" refX="7" refY="3.5" markerWidth="7" markerHeight="7" orient="auto">{arrow}</marker></defs>'
    )
    svg = f'<svg viewBox="0 0 {width:.0f} {height}" width="{width:.0f}" role="img" aria-label="{escape(label)}">'
    return f'<div class="diagram">{svg}{defined}{"".join(shown)}</svg></div>'


Place = str | tuple[str, str, int]
"""A node, or where an edge passes a layer"""


def _width(one: Place) -> int:
    return WIDE if isinstance(one, str) else NARROW


def _depths(nodes: Iterable[str], edges: list[tuple[str, str]]) -> dict[str, int]:
    below: dict[str, list[str]] = {node: [] for node in nodes}
    for above, under in edges:
        below[above].append(under)
    known: dict[str, int] = {}

    def depth(node: str, way: tuple[str, ...] = ()) -> int:
        if node in way:
            raise ValueError(f"a cycle cannot be drawn: {' --> '.join([*way, node])}")
        if node not in known:
            known[node] = 1 + max((depth(under, (*way, node)) for under in below[node]), default=-1)
        return known[node]

    return {node: depth(node) for node in below}


def _with_places(
    nodes: list[str], edges: list[tuple[str, str]], depth: dict[str, int]
) -> tuple[list[list[Place]], list[list[Place]]]:
    """The layers from the lowest up, and each edge as the places that it goes through."""
    layers: list[list[Place]] = [[] for _ in range(1 + max(depth.values()))]
    for node in nodes:
        layers[depth[node]].append(node)
    ways: list[list[Place]] = []
    for above, under in edges:
        passed: list[Place] = []
        for layer in range(depth[above] - 1, depth[under], -1):
            passed.append((above, under, layer))
            layers[layer].append((above, under, layer))
        ways.append([above, *passed, under])
    return layers, ways


def _order(layers: list[list[Place]], ways: list[list[Place]]) -> None:
    """Each layer by the mean place of its neighbours, up and down in turn; the order with the fewest crossings is kept."""
    over: dict[Place, list[Place]] = {}
    under: dict[Place, list[Place]] = {}
    for way in ways:
        for one, other in itertools.pairwise(way):
            under.setdefault(one, []).append(other)
            over.setdefault(other, []).append(one)
    best, fewest = [list(layer) for layer in layers], _crossings(layers, under)
    for sweep in range(SWEEPS):
        upwards = sweep % 2 == 0
        for index in range(1, len(layers)) if upwards else range(len(layers) - 2, -1, -1):
            fixed = {one: at for at, one in enumerate(layers[index - 1 if upwards else index + 1])}
            near = under if upwards else over
            own = {one: at for at, one in enumerate(layers[index])}
            means = {one: fmean(fixed[two] for two in near[one]) if near.get(one) else float(own[one]) for one in own}
            layers[index].sort(key=lambda one, means=means, own=own: (means[one], own[one]))  # type: ignore[misc]
        if (found := _crossings(layers, under)) < fewest:
            best, fewest = [list(layer) for layer in layers], found
    layers[:] = best


def _crossings(layers: list[list[Place]], under: dict[Place, list[Place]]) -> int:
    total = 0
    for lower, upper in itertools.pairwise(layers):
        at = {one: place for place, one in enumerate(lower)}
        ends = [at[other] for one in upper for other in sorted(under.get(one, ()), key=at.__getitem__)]
        total += sum(first > second for k, first in enumerate(ends) for second in ends[k + 1 :])
    return total


def _across(layers: list[list[Place]], ways: list[list[Place]]) -> dict[Place, float]:
    """Positions: as far apart as the boxes need, and as near to the mean of the neighbours as that leaves."""
    near: dict[Place, list[Place]] = {}
    for way in ways:
        for one, other in itertools.pairwise(way):
            near.setdefault(one, []).append(other)
            near.setdefault(other, []).append(one)
    at: dict[Place, float] = {}
    for layer in layers:
        for one, place in zip(layer, _packed(layer, [0.0] * len(layer)), strict=True):
            at[one] = place
    for _ in range(SWEEPS):
        for layer in (*layers, *reversed(layers)):
            wanted = [fmean(at[two] for two in near[one]) if one in near else at[one] for one in layer]
            for one, place in zip(layer, _packed(layer, wanted), strict=True):
                at[one] = place
    left = min(at[one] - _width(one) / 2 for one in at) - 2
    return {one: place - left for one, place in at.items()}


def _packed(layer: list[Place], wanted: list[float]) -> list[float]:
    """The nearest places to those wanted with room between them: by pooling what overlaps (isotonic regression)."""
    room = [0.0]
    for one, other in itertools.pairwise(layer):
        room.append(room[-1] + (_width(one) + _width(other)) / 2 + GAP)
    pools: list[tuple[float, int]] = []
    for want, offset in zip(wanted, room, strict=True):
        pools.append((want - offset, 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (late, many), (early, few) = pools.pop(), pools.pop()
            pools.append(((late * many + early * few) / (many + few), many + few))
    bases = [base for base, count in pools for _ in range(count)]
    return [base + offset for base, offset in zip(bases, room, strict=True)]


def _curve(points: list[tuple[float, float]]) -> str:
    """From the bottom of the first box through the places to the top of the last."""
    places = [(points[0][0], points[0][1] + HIGH / 2), *points[1:-1], (points[-1][0], points[-1][1] - HIGH / 2)]
    text = f"M{places[0][0]:.1f} {places[0][1]:.1f}"
    for (x0, y0), (x1, y1) in itertools.pairwise(places):
        middle = (y0 + y1) / 2
        text += f"C{x0:.1f} {middle:.1f} {x1:.1f} {middle:.1f} {x1:.1f} {y1:.1f}"
    return text
