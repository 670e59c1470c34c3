"""docs/benchmarks/defaults.md: which defaults hold up, from records/own_defaults_cpu.jsonl."""

from __future__ import annotations

from statistics import fmean
from typing import Any

from results import folded, read_lines, table, where_measured

__all__ = ["own_defaults"]

RECORD = "own_defaults_cpu.jsonl"
NAMES = {
    **{"fashion-mnist": "1,000 images", "fashion-4000": "4,000 images", "fashion-wide": "4,000 images, a wider network"},
    "cancer": "breast cancer",
}


def own_defaults() -> str:
    """Means over the seeds; for other ways than the default, how far they are from it on the same seeds."""
    lines = read_lines(RECORD)
    runs = {(one["data"], one["loss"], one["way"], one["noise"], one["seed"]): one for one in lines}
    parts = []
    for data in dict.fromkeys(one["data"] for one in lines):
        noises = sorted({one["noise"] for one in lines if one["data"] == data}, key=_noise_order)
        ways = list(dict.fromkeys((one["loss"], one["way"]) for one in lines if one["data"] == data))
        rows = [
            [loss, way, *(_cell(runs, data, loss, way, noise) for noise in noises)] for loss, way in sorted(ways, key=_order)
        ]
        title = f"{NAMES.get(data, data)}, {_seeds(lines, data)} seeds"
        parts.append(folded(title[0].upper() + title[1:], table(["loss", "way", *noises], rows)))
    return "\n\n".join([*parts, where_measured(lines)])


def _noise_order(noise: str) -> tuple[bool, bool, str]:
    """None, symmetric, others, each by its rate."""
    return noise != "none", not noise.startswith("symmetric"), noise


def _order(way: tuple[str, str]) -> tuple[str, bool, str]:
    """By loss, the default first."""
    return way[0], way[1] != "default", way[1]


def _seeds(lines: list[dict[str, Any]], data: str) -> str:
    """As many as there are, from the noise with fewest to the one with most."""
    counts: dict[tuple[str, ...], set[int]] = {}
    for one in lines:
        if one["data"] == data:
            counts.setdefault((one["loss"], one["way"], one["noise"]), set()).add(one["seed"])
    least, most = min(map(len, counts.values())), max(map(len, counts.values()))
    return f"{most}" if least == most else f"{least} to {most}"


def _cell(runs: dict[tuple[Any, ...], dict[str, Any]], data: str, loss: str, way: str, noise: str) -> str:
    mine = {key[-1]: one for key, one in runs.items() if key[:-1] == (data, loss, way, noise)}
    if not mine:
        return ""
    notes = []
    if way != "default":
        both = [(one, base) for seed, one in mine.items() if (base := runs.get((data, loss, "default", noise, seed)))]
        if both:
            notes.append(f"{100 * fmean(one['test_accuracy'] - base['test_accuracy'] for one, base in both):+.1f}")
    if lost := sum(bool(one["classes_never_predicted"]) for one in mine.values()):
        notes.append(f"lost a class in {lost} of {len(mine)}")
    mean = f"{100 * fmean(one['test_accuracy'] for one in mine.values()):.1f}"
    return f"{mean} ({'; '.join(notes)})" if notes else mean
