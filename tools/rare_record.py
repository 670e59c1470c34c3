"""docs/benchmarks/class_imbalance.md: the recall of a minority class, from records/rare_cpu.jsonl."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any

import figures
from results import FIGURES, folded, read_lines, table, where_measured

__all__ = ["CHARTS", "imbalance_answer", "imbalance_defaults", "imbalance_early", "imbalance_tables"]

RECORD = "rare_cpu.jsonl"
DEFAULTS_RECORD = "imbalance_cpu.jsonl"
EARLY_RECORD = "imbalance_early_cpu.jsonl"
EARLY = ("none", "balanced", "tempered")
"""Class weights of cross entropy with early stopping"""
BELOW = 2.0
"""Points of balanced accuracy below cross entropy that are counted"""
MOST_NAMED = 5
Line = dict[str, Any]
Beside = tuple[Line, float, list[int]]
"""A run, its balanced accuracy less that of cross entropy in points, and the classes that this alone finds"""


def imbalance_answer() -> str:
    """The first paragraph of the page: how often each loss loses the minority class."""
    lines = read_lines(RECORD)
    said = []
    for data in dict.fromkeys(one["data"] for one in lines):
        of = [one for one in lines if one["data"] == data and one["way"] == "default"]
        lost = {
            loss: sum(one["rare_accuracy"] == 0 for one in of if one["loss"] == loss)
            for loss in dict.fromkeys(one["loss"] for one in of)
        }
        runs = sum(one["loss"] == "ce" for one in of)
        named = [f"{loss.upper()} in {count}" for loss, count in lost.items()]
        said.append(f"With {data}, {', '.join(named)} of {runs} runs.")
    started = [one for one in lines if one["way"] != "default"]
    kept = sum(one["rare_accuracy"] > 0 for one in started)
    return (
        "**Under class imbalance robust losses without class weights may never predict the minority class.** "
        f"{defaults_answer()}\n\nWithout class weights and without a warm start, these losses never predict "
        "the minority class:"
        f"\n\n{chr(10).join(f'- {one}' for one in said)}\n\n"
        f"After ten epochs of cross entropy as a warm start, GCE and JAL-CE predict it in {kept} of {len(started)} runs."
    )


def imbalance_tables() -> str:
    """The share of a minority class's test examples that is predicted right, and how often none is."""
    lines = read_lines(RECORD)
    parts = []
    for (data, noise), mine in _settings(lines):
        ratios = sorted({one["ratio"] for one in mine})
        rows = [[name, *(_cell(mine, loss, way, at) for at in ratios)] for (loss, way), name in _ways(mine)]
        parts.append(folded(_named(data, noise), table([_named(data, noise), *(f"{ratio:.0%}" for ratio in ratios)], rows)))
    seeds = sorted({one["seed"] for one in lines})
    about = (
        f"Seeds {seeds[0]} to {seeds[-1]}. The tables contain the recall of the minority class in % and, in brackets, the "
        f"accuracy on the balanced test set. `benchmarks/rare_classes.py`; {where_measured(lines)}"
    )
    return "\n\n".join([*parts, about])


def recalls(data: str) -> str:
    """The recall of the minority class by loss and size, without noise and with it."""
    rows: list[tuple[str, list[float | None]]] = []
    lines = [one for one in read_lines(RECORD) if one["data"] == data]
    ratios = sorted({one["ratio"] for one in lines})
    for (_, noise), mine in _settings(lines):
        rows.append(("no noise" if noise == "none" else noise.replace(":", " "), []))
        for (loss, way), name in _ways(mine):
            found = [[one for one in mine if (one["loss"], one["way"], one["ratio"]) == (loss, way, at)] for at in ratios]
            rows.append((name, [100 * fmean(one["rare_accuracy"] for one in runs) if runs else None for runs in found]))
    across = "size of the minority class relative to another"
    return figures.heat_map(f"Recall of the minority class, {data}, %", rows, [f"{at:.0%}" for at in ratios], across=across)


def _beside_cross_entropy() -> list[Beside]:
    """Each run with the defaults beside cross entropy on the same seed."""
    lines = read_lines(DEFAULTS_RECORD)
    names = ("data", "ratio", "noise", "seed")
    of_ce = {tuple(one[name] for name in names): one for one in lines if one["loss"] == "ce"}
    found = []
    for one in lines:
        if one["loss"] != "ce" and (ce := of_ce.get(tuple(one[name] for name in names))):
            pairs = enumerate(zip(one["recalls"], ce["recalls"], strict=True))
            lost = [k for k, (mine, theirs) in pairs if not mine and theirs]
            found.append((one, 100 * (one["balanced_accuracy"] - ce["balanced_accuracy"]), lost))
    return found


def defaults_answer() -> str:
    found = [each for each in _beside_cross_entropy() if each[0]["ratio"] < 1]
    losses = {one["loss"] for one, _, _ in found}
    lost = [one["loss"] for one, _, classes in found if classes]
    most = ", ".join(f"{loss.upper()} {count}" for loss, count in Counter(lost).most_common(MOST_NAMED))
    noisy, clean = ([each for each in found if (each[0]["noise"] != "none") == is_noisy] for is_noisy in (True, False))
    gains = [fmean(difference for _, difference, _ in each) for each in (clean, noisy)]
    of_each = _parts(noisy, "data", "noise", "ratio", "loss").items()
    least, worst = min(means := [(fmean(each[1] for each in runs), key[-1].upper()) for key, runs in of_each])
    above = f"{sum(mean > 0 for mean, _ in means)} of {len(means)} cases"
    return (
        f"The defaults of `noiseproof train` contain class weights and a warm start. With them, {len(losses)} losses were "
        f"compared with cross entropy in {len(found)} runs. In {len(lost) or 'none'} of these runs the loss never predicts a "
        f"class that cross entropy predicts{f' ({most})' if most else ''}. Compared with cross entropy, the balanced accuracy "
        f"changes by {gains[0]:+.1f} points without noise and by {gains[1]:+.1f} points with noise. "
        "Each loss was measured in several settings of imbalance and noise. With noise, its mean is above that of cross "
        f"entropy in {above}. The lowest is {worst} with {least:+.1f} points."
    )


def imbalance_defaults() -> str:
    """Every loss with the defaults beside cross entropy: by the imbalance and the noise, and by loss."""
    found = _beside_cross_entropy()
    uneven, even = ([each for each in found if (each[0]["ratio"] == 1) == is_even] for is_even in (False, True))
    rows = []
    for (data, noise, ratio), mine in _parts(uneven, "data", "noise", "ratio").items():
        means = {loss: fmean(difference for _, difference, _ in part) for (loss,), part in _parts(mine, "loss").items()}
        worst = min(means, key=lambda loss: means[loss])
        rows.append([
            _named(data, noise), f"1:{1 / ratio:.2g}", str(len(mine)), f"{fmean(means.values()):+.1f}",
            f"{sum(value > 0 for value in means.values())} of {len(means)}",
            f"{sum(value < -BELOW for value in means.values())}", f"{worst.upper()} {means[worst]:+.1f}",
            str(sum(bool(classes) for _, _, classes in mine)),
        ])  # fmt: skip
    head = ["", "imbalance", "runs", "mean", "losses ahead", f"more than {BELOW:g} behind", "worst", "runs that lose a class"]
    about = (
        "The tables contain the balanced accuracy minus that of cross entropy on the same seeds, in points. A class is lost if "
        f"cross entropy predicts some of it right and the loss none. {_seeds([one for one, _, _ in found])} "
        f"`benchmarks/rare_classes.py --study catalogue`; {where_measured(read_lines(DEFAULTS_RECORD))}"
    )
    parts = [folded("By loss", _by_loss(uneven)), folded("The same without class imbalance", _by_loss(even))]
    return "\n\n".join([table(head, rows), *parts, about])


def imbalance_early() -> str:
    """Cross entropy with early stopping: what class weights add to its balanced accuracy."""
    lines = read_lines(EARLY_RECORD)
    cells: dict[tuple[str, str], dict[tuple[float, int], dict[str, float]]] = {}
    for one in sorted(lines, key=lambda one: (one["data"] == "ten generated classes", one["noise"])):
        of_cell = cells.setdefault((one["data"], one["noise"]), {}).setdefault((one["ratio"], one["seed"]), {})
        of_cell[one["way"]] = 100 * one["balanced_accuracy"]
    rows = []
    for setting, found in cells.items():
        runs = [run for run in found.values() if len(run) == len(EARLY)]
        row = [_named(*setting), str(len(runs)), f"{fmean(run['none'] for run in runs):.1f}"]
        for weights in EARLY[1:]:
            gains = [run[weights] - run["none"] for run in runs]
            row.append(f"{fmean(gains):+.1f} ({min(gains):+.1f})")
        rows.append(row)
    sizes = ", ".join(f"1:{1 / ratio:.2g}" for ratio in sorted({one["ratio"] for one in lines}, reverse=True))
    about = (
        f"The table contains the balanced accuracy without class weights, and the points gained by weights with the least gain "
        f"of a run in brackets; imbalance {sizes}. {_seeds(lines)} `benchmarks/rare_classes.py --study early`; "
        f"{where_measured(lines)}"
    )
    return f"{table(['', 'runs', 'no weights, %', *EARLY[1:]], rows)}\n{about}"


def _seeds(lines: list[Line]) -> str:
    """Which seeds there are, and how many losses in how many settings have all of them."""
    of_each: dict[tuple[Any, ...], set[int]] = {}
    for one in lines:
        of_each.setdefault(tuple(one[name] for name in ("data", "ratio", "noise", "loss")), set()).add(one["seed"])
    every = sorted(set().union(*of_each.values()))
    whole = sum(len(seeds) == len(every) for seeds in of_each.values())
    some = "" if whole == len(of_each) else f", all of them in {whole} of {len(of_each)} combinations of a loss and a setting"
    return f"Seeds {every[0]} to {every[-1]}{some}."


def _by_loss(found: list[Beside]) -> str:
    settings = _parts(found, "data", "noise")
    rows = []
    for (loss,), own in _parts(found, "loss").items():
        parts = _parts(own, "data", "noise")
        means = [f"{fmean(difference for _, difference, _ in parts[at]):+.1f}" if at in parts else "" for at in settings]
        rows.append([loss.upper(), *means, f"{sum(bool(classes) for _, _, classes in own)} of {len(own)}"])
    return table(["", *(_named(*setting) for setting in settings), "runs that lose a class"], rows)


def _parts(found: list[Beside], *names: str) -> dict[tuple[Any, ...], list[Beside]]:
    """Those with the same values of these keys: two classes first, and by noise and imbalance."""
    parts: dict[tuple[Any, ...], list[Beside]] = {}
    in_order = sorted(found, key=lambda each: (each[0]["noise"], -each[0]["ratio"]))
    for each in sorted(in_order, key=lambda each: each[0]["data"], reverse=True):
        parts.setdefault(tuple(each[0][name] for name in names), []).append(each)
    return parts


CHARTS: dict[Path, Callable[[], str]] = {
    FIGURES / "imbalance_two.svg": lambda: recalls("two classes"),
    FIGURES / "imbalance_ten.svg": lambda: recalls("ten classes"),
}


def _settings(lines: list[dict[str, Any]]) -> list[tuple[tuple[str, str], list[dict[str, Any]]]]:
    keys = dict.fromkeys((one["data"], one["noise"]) for one in lines)
    return [(key, [one for one in lines if (one["data"], one["noise"]) == key]) for key in keys]


def _ways(lines: list[dict[str, Any]]) -> list[tuple[tuple[str, str], str]]:
    keys = dict.fromkeys((one["loss"], one["way"]) for one in lines)
    return [((loss, way), loss.upper() if way == "default" else f"{loss.upper()}, warm start") for loss, way in keys]


def _named(data: str, noise: str) -> str:
    return f"{data}, {'no noise' if noise == 'none' else noise}"


def _cell(lines: list[dict[str, Any]], loss: str, way: str, ratio: float) -> str:
    mine = [one for one in lines if (one["loss"], one["way"], one["ratio"]) == (loss, way, ratio)]
    if not mine:
        return ""
    rare, of_all = (100 * fmean(one[name] for one in mine) for name in ("rare_accuracy", "test_accuracy"))
    lost = sum(one["rare_accuracy"] == 0 for one in mine)
    return f"{rare:.0f} ({of_all:.0f})" + (f", lost in {lost} of {len(mine)}" if lost else "")
