"""docs/benchmarks/options.md: options beside a loss, and losses that the catalogue lacks, from records/options_cpu.jsonl."""

from __future__ import annotations

import sys
from statistics import fmean

from results import ROOT, folded, read_lines, table, where_measured

sys.path.append(str(ROOT / "benchmarks"))

from options import CHOOSING_SEEDS, Cells, flat, gain, in_words

__all__ = ["options_answer", "options_kept", "options_tables"]

RECORD = "options_cpu.jsonl"
DECAY = ":0.998"
LEAST_CELLS = 5
"""A method on fewer is left out of the report"""
METRICS = ("accuracy", "balanced_accuracy")
SCEPTIC = "ce-early"
RIVALS = ("ce", "gce", "jal-ce")
LOSSES = ("dpd", "bt", "gla", "ce+peer")
WEIGHTED = {"wce": "class weights", "lace": "logit adjustment"}
"""Cross entropy for which something is done about class imbalance"""
IMBALANCED = ("banking77", "products_mv", "tab_adult", "tab_pageblocks5", "tab_shoppers", "tab_yeast3", "trec_weak")
"""Sets whose largest class has more than three times the examples of the smallest"""
ORDER = ("ahead", "no difference shown", "behind")
NAMES = {
    **{"ce": "CE", "jal-ce": "JAL-CE", "gce": "GCE", "ce-early": "CE, early stopping"},
    **{"elr": "ELR", "agree": "agreement", "peer": "peer", "ema": "average", "dpd": "density power", "bt": "bi-tempered"},
    **{"gla": "logit-adjusted GCE", "wce": "weighted CE", "lace": "logit-adjusted CE"},
}
IN_THE_PACKAGE = {
    **{"ce+elr:7:0.7": "`ELR`", "wce+elr:7:0.7": "`ELR`, the default of `--set elr=7` under class imbalance"},
    **{"wce+elr:3:0.7": "`ELR`", "lace+elr:7:0.7": "`ELR`, `class_weight=logit-adjustment`", "wce": "`class_weight=tempered`"},
    **{f"jal-ce+elr:{strength}:0.7": "`ELR`, with a warning" for strength in ("7", "1", "0.3")},
    **{"lace": "`class_weight=logit-adjustment`", "gla:0.7": "`class_weight=logit-adjustment`"},
}
"""What of it can be trained with the package; the rest is left out of it"""


def measured(choosing: bool = False) -> dict[str, Cells]:
    """What is reported, with the decay that was chosen; or the settings that were chosen among."""
    there = flat(one for one in read_lines(RECORD) if (one["seed"] in CHOOSING_SEEDS) == choosing)
    wanted = {name: cells for name, cells in there.items() if choosing or "ema" not in name or name.endswith(DECAY)}
    return wanted if choosing else {name: cells for name, cells in wanted.items() if len(cells) >= LEAST_CELLS}


def named(method: str) -> str:
    """``ce+elr:7:0.7`` as ``CE + ELR 7, 0.7``."""
    parts = [part.partition(":") for part in method.split("+")]
    return " + ".join(f"{NAMES[name]} {numbers.replace(':', ', ')}".strip() for name, _, numbers in parts)


def is_option(method: str) -> bool:
    return "+" in method and not method.startswith(LOSSES)


def is_loss(method: str) -> bool:
    return (method.startswith(LOSSES) or method in WEIGHTED) and "ema" not in method


def loss_of(method: str) -> str:
    """That an option is added to; weights of classes are part of the option."""
    loss = method.partition("+")[0]
    return "ce" if loss in WEIGHTED else loss


def is_ahead(name: str) -> bool:
    """Whether the interval of its gain in accuracy is above 0 against early stopping and against JAL-CE."""
    found = [gain(measured()[name], measured()[rival], "accuracy") for rival in (SCEPTIC, "jal-ce")]
    return all(one is not None and one[1] > 0 for one in found)


def options_answer() -> str:
    """The first paragraph of the page."""
    there = measured()
    single = [name for name in there if is_loss(name) or (is_option(name) and name.count("+") == 1)]
    said = []
    for loss in ("ce", "jal-ce"):
        options = [name for name in single if loss_of(name) == loss and not is_loss(name)]
        said += [[_option(name, loss), NAMES[loss], _gains(there, name, (loss,))[0]] for name in options]
    weighted, plain = (next(name for name in single if name.startswith(start)) for start in ("wce+elr:7", "ce+elr:7"))
    even, uneven = (_beside_early_stopping(there[weighted], wanted) for wanted in (False, True))
    ahead = _list([named(name) for name in single if is_ahead(name)])
    return (
        "**Compared with early stopping, early-learning regularisation (ELR) with class weights changes the accuracy of cross "
        f"entropy by {even[0]} points on balanced classes, and by {uneven[0]} under class imbalance.** The balanced accuracy "
        f"changes by {even[1]} and {uneven[1]}. Without class weights, ELR changes it by "
        f"{_beside_early_stopping(there[plain], True)[1]} under class imbalance. More accurate than both cross entropy with "
        f"early stopping and JAL-CE, over all cells: {ahead}."
        f"\n\n{table(['option', 'added to', 'points of accuracy'], said)}".rstrip()
    )


def options_kept() -> str:
    """What is in the package and what is not, each beside cross entropy with early stopping, and how much that rests on."""
    there = measured()
    single = [name for name in there if is_loss(name) or (is_option(name) and name.count("+") == 1)]
    rows, found = [], dict[tuple[bool, str], list[str]]()
    for name in single:
        accuracy, balanced = (gain(there[name], there[SCEPTIC], metric) for metric in METRICS)
        kept, where = name in IN_THE_PACKAGE, _beside(accuracy)
        found.setdefault((kept, where), []).append(named(name))
        numbers = [in_words(accuracy), in_words(balanced), str(len(there[name])), _cost(there, name)]
        rows.append([named(name), IN_THE_PACKAGE.get(name, "no"), where, *numbers])
    said = [
        f"- {'In' if kept else 'Not in'} the package, {where}: {'; '.join(names)}."
        for (kept, where), names in sorted(found.items(), key=lambda item: (not item[0][0], ORDER.index(item[0][1])))
    ]
    head = ["method", "in the package", "accuracy", *(f"points of {metric}" for metric in ("accuracy", "balanced accuracy"))]
    return (
        "Accuracy compared with cross entropy with early stopping, by the 95 % interval over data sets:\n\n"
        f"{chr(10).join(said)}\n\n{table([*head, 'cells', 'cost'], rows)}\n{_certainty(there)}"
    )


def _beside(found: tuple[float, float, float] | None) -> str:
    """Whether the interval of a gain is above 0, below it, or contains it."""
    return ORDER[0 if found is not None and found[1] > 0 else 2 if found is not None and found[2] < 0 else 1]


def _certainty(there: dict[str, Cells]) -> str:
    """How many cells, sets and seeds the methods were measured on."""
    cells = {name: set(of) for name, of in there.items() if "ema" not in name}
    every = set().union(*cells.values())
    seeds = sorted({seed for _, _, seed in every})
    whole = [name for name in cells if cells[name] == every]
    counts = sorted({len(of) for of in cells.values()})
    span = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    some = "" if len(whole) == len(cells) else f" In all of them: {'; '.join(map(named, whole))}."
    return (
        f"A cell is a data set with a noise and a seed. {len({name for name, _, _ in every})} data sets with the seeds "
        f"{_list([str(seed) for seed in seeds])} make {len(every)} cells; each method was measured in {span} of them.{some} "
        "Differences are between the cells that both methods have. Cost is the CPU time of a run relative to cross entropy on "
        "the same machine."
    )


def _option(name: str, loss: str) -> str:
    """What is added to a loss: ``wce+elr:7:0.7`` is added to cross entropy, with weights."""
    text = named(name).partition(" + ")[2]
    return text if name.startswith(f"{loss}+") else f"{WEIGHTED[name.partition('+')[0]]} and {text}"


def _beside_early_stopping(cells: Cells, imbalanced: bool) -> list[str]:
    """The gain in accuracy and in balanced accuracy, on the sets with class imbalance or on the others."""
    chosen = {cell: one for cell, one in cells.items() if (cell[0] in IMBALANCED) == imbalanced}
    return [in_words(gain(chosen, measured()[SCEPTIC], metric)) for metric in METRICS]


def options_tables() -> str:
    """What each option adds to its loss, what each loss adds to others, and the settings that were chosen among."""
    lines = read_lines(RECORD)
    there, chosen = measured(), measured(choosing=True)
    metrics = ("accuracy", "balanced")
    options = [
        [named(name), *_gains(there, name, (loss_of(name), SCEPTIC)), _cost(there, name)] for name in there if is_option(name)
    ]
    head = ["method", *(f"{metric} over {rival}" for rival in ("its loss", "early stopping") for metric in metrics), "cost"]
    losses = [[named(name), *_gains(there, name, RIVALS), _cost(there, name)] for name in there if is_loss(name)]
    rivals = ["loss", *(f"{metric} over {NAMES[rival]}" for rival in RIVALS for metric in metrics), "cost"]
    means = [
        [named(name), len(cells), *(f"{100 * fmean(one[metric] for one in cells.values()):.1f}" for metric in METRICS)]
        for name, cells in there.items()
    ]
    settings = [[named(name), len(chosen[name]), *_gains(chosen, name, ("ce",))] for name in chosen if name != "ce"]
    return "\n\n".join(
        [
            table(head, options).strip(),
            table(rivals, losses).strip(),
            "Differences in points, with 95 % intervals over data sets. Cost is the CPU time of a run relative "
            "to cross entropy on the same machine.",
            folded("Means", table(["method", "cells", "accuracy", "balanced accuracy"], means)),
            folded("The settings that were chosen among", table(["method", "cells", "accuracy over CE", "balanced"], settings)),
            f"`benchmarks/options.py`; {where_measured(lines)}",
        ]
    )


def _gains(there: dict[str, Cells], name: str, rivals: tuple[str, ...]) -> list[str]:
    return [in_words(gain(there[name], there[rival], metric)) for rival in rivals for metric in METRICS]


def _cost(there: dict[str, Cells], name: str) -> str:
    """The CPU time relative to cross entropy, over the cells that one machine measured both on."""
    machines = {
        (one["method"], one["set"], one["noise"], one["seed"]): one["environment"]["machine"] for one in read_lines(RECORD)
    }
    method = name.partition("+ema")[0]
    shared = [cell for cell in there[name] if cell in there["ce"] and machines[method, *cell] == machines["ce", *cell]]
    ours, plain = (sum(there[one][cell]["cpu_seconds"] for cell in shared) for one in (name, "ce"))
    return f"{ours / plain:.2f}" if shared else ""


def _list(names: list[str]) -> str:
    return ", ".join(names[:-1]) + f" and {names[-1]}" if len(names) > 1 else "".join(names) or "none"
