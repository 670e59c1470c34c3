"""docs/benchmarks/speed.md on the kernels and on the loss of a linear head, from records/kernels_h200.jsonl."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import figures
from figures import Mark, Point
from results import FIGURES, folded, read_lines, table

__all__ = ["CHARTS", "kernels", "kernels_answer", "linear"]

FLOOR_KINDS = (("floor of two passes", 5), ("measured", 1), ("gradient in the forward pass", 0))
SHOWN = {
    "products": "matrix products alone",
    "ours ce": "CE",
    "ours jal-ce": "JAL-CE",
    "recompute jal-ce": "JAL-CE, recompute",
    "plain ce": "F.cross_entropy",
    "compiled ce": "F.cross_entropy, compiled",
    "plain jal-ce": "JAL-CE, plain",
    "compiled jal-ce": "JAL-CE, compiled",
    "liger ce": "Liger, CE",
}
"""Of the contestants in the plot of a linear head"""

SHAPES = ((8192, 128256), (32768, 1000), (32768, 4096))
WAYS = (
    ("jal-ce", "ours", "JAL-CE"),
    ("jal-ce", "compiled", "JAL-CE, compiled"),
    ("jal-ce", "plain", "JAL-CE, plain formula"),
    ("jal-ce", "plain compiled", "the same, compiled"),
    ("ce", "cross entropy", "F.cross_entropy"),
    ("ce", "cross entropy compiled", "the same, compiled"),
    ("ce", "liger", "Liger's cross entropy"),
)
HOST = ("ce", "gce", "jal-ce", "anl-ce", "jal-fl")
Line = dict[str, Any]
Run = tuple[Line, list[Line]]
"""What was measured together: with what, and the numbers"""
CONTESTANTS = {
    "products": "the three matrix products alone",
    "ours ce": "CE",
    "ours jal-ce": "JAL-CE",
    "ours jal-fl": "JAL-FL",
    "ours anl-ce": "ANL-CE",
    "recompute jal-ce": "JAL-CE, `recompute=True`",
    "plain ce": "F.cross_entropy in two steps",
    "compiled ce": "the same, compiled",
    "plain jal-ce": "JAL-CE, plain formula in two steps",
    "compiled jal-ce": "the same formula, compiled",
    "liger ce": "Liger's cross entropy",
}


def kernels() -> str:
    """The kernels alone and the floor, whole steps, and small batches."""
    runs = _runs()
    facts, alone = _latest(runs, "kernel")
    rows, classes = SHAPES[0]
    then, lines = _latest(runs, "way", rows=rows, classes=classes)
    shapes = [f"{rows:,} x {classes:,}" for rows, classes in SHAPES]
    head = ["kernels alone, bf16", "loss", "passes", "GB", "floor", "forward", "backward", "both", "in copies", "reached"]
    head.append("gradient in the forward pass, in copies")
    about = (
        f"{_where(facts)}: medians in milliseconds of kernels replayed as CUDA graphs.\n\n"
        "- **Floor.** A copy of the logits reads and writes them once. The first pass reads them; the second "
        "reads them again and "
        "writes the gradient. The floor is therefore one and a half copies. *Reached* is the floor divided by the time.\n"
        "- **ANL-CE and JAL-FL** need the normaliser of a row first, so the first pass reads a row of more "
        "than 64 classes twice. "
        "Up to 1,024 classes the second read comes from the cache and is not counted. Beyond, it counts as a fourth pass. From "
        "27,000 classes on, JAL-FL needs one read.\n"
        "- **Gradient in the forward pass** (`GradientInForward`). Rows of 64 to 256 kB are kept in shared memory, so they are "
        "read once and written once: the floor is one copy. Other rows and focal losses need two passes."
    )
    steps = (
        f"Whole steps in milliseconds at commit {then['commit']}, and their peak memory in addition to the inputs (at 1,000 "
        "classes it includes the gradient). Up to a few thousand classes, the host is slower than the device."
    )
    return "\n\n".join(
        [
            folded("The kernels alone", about, table(head, _alone(alone))),
            folded("Whole steps", steps, table(["bf16, eager unless said", *shapes], _steps(lines))),
            folded("Small batches", _small(runs)),
        ]
    )


def kernels_answer() -> str:
    """A step at a language model's vocabulary beside torch's own, and how near the kernels come to the floor."""
    rows, classes = SHAPES[0]
    _, lines = _latest(_runs(), "way", rows=rows, classes=classes)
    wanted = {"rows": rows, "classes": classes, "dtype": "bfloat16"}
    ours, theirs = (_found(lines, loss=loss, way=way, **wanted) for loss, way in (("jal-ce", "ours"), ("ce", "cross entropy")))
    if ours is None or theirs is None:
        return ""
    reached = min(row[9] for row in _alone(_latest(_runs(), "kernel")[1]) if row[:2] == [f"{rows:,} x {classes:,}", "jal-ce"])
    return (
        f"A step of JAL-CE on {rows:,} x {classes:,} logits takes {ours['ms']:.2f} ms and {ours['peak_MiB']:,.0f} MiB, one of "
        f"`F.cross_entropy` {theirs['ms']:.2f} ms and {theirs['peak_MiB']:,.0f} MiB (H200, bf16). Its kernels reach "
        f"{reached[:-1]} % "
        "of what the memory allows."
    )


def floor() -> str:
    """What two passes over the logits cost, measured and at least, in copies of the logits."""
    found: list[tuple[str, list[Mark]]] = []
    before = ""
    for shape, loss, passes, _, _, _, _, _, copies, _, once in _alone(_latest(_runs(), "kernel")[1]):
        if shape != before:
            found.append((f"{shape} logits", []))
        before = shape
        values = (int(passes) / 2, float(copies), float(once))
        named = zip(values, FLOOR_KINDS, strict=True)
        found.append((loss.upper(), [Mark(v, k, f"{loss}, {name}: {v:.2f}") for k, (v, (name, _)) in enumerate(named)]))
    title, across = "Kernels against the memory floor, H200, bf16", "copies of the logits (read once, written once)"
    return figures.rows_of_marks(title, found, FLOOR_KINDS, across=across)


def linear() -> str:
    """Time and memory of the loss of a linear head."""
    runs = _runs()
    every = [line for _, lines in runs for line in lines if "contestant" in line]
    shapes = list(dict.fromkeys((line["rows"], line["width"], line["classes"]) for line in every))
    latest = [_latest(runs, "contestant", rows=n, width=d, classes=k) for n, d, k in shapes]
    rows = []
    for key, name in CONTESTANTS.items():
        cells: list[str] = []
        for (n, d, k), (_, lines) in zip(shapes, latest, strict=True):
            line = _found(lines, contestant=key, rows=n, width=d, classes=k)
            cells += (
                ["", ""] if line is None else [f"{line['ms']:.1f} ({line['over_products']:.2f})", f"{line['extra_mib']:,.0f}"]
            )
        rows.append([name, *cells])
    head = [part for n, d, k in shapes for part in (f"{n:,} x {d:,}, {k:,} classes", "MiB")]
    facts = latest[0][0] | {"commit": " and ".join(dict.fromkeys(facts["commit"] for facts, _ in latest))}
    about = f"{_where(facts)}, bf16: milliseconds of a step (in matrix products), and memory beyond inputs and gradients."
    return folded("Milliseconds and memory", about, table(["", *head], rows))


def linear_plot() -> str:
    """Time against memory of a step with the largest vocabulary."""
    runs = _runs()
    shape = max((line["classes"], line["rows"], line["width"]) for _, lines in runs for line in lines if "contestant" in line)
    wanted = dict(zip(("classes", "rows", "width"), shape, strict=True))
    _, lines = _latest(runs, "contestant", **wanted)
    points = []
    for key, name in CONTESTANTS.items():
        if (line := _found(lines, contestant=key, **wanted)) is not None and key in SHOWN:
            kind = int(key.startswith(("ours", "recompute")))
            points.append(Point(line["extra_mib"], line["ms"], name, kind, label=SHOWN[key]))
    title = f"A step of a linear head, {shape[1]:,} x {shape[2]:,}, {shape[0]:,} classes"
    kinds = [("others", 0), ("noiseproof.linear_loss", 1)]
    across, up = "MiB beyond inputs and gradients", "milliseconds, H200, bf16"
    return figures.scatter(title, points, kinds, across=across, up=up, reference=None, log=True, height=240)


CHARTS: dict[Path, Callable[[], str]] = {FIGURES / "speed_floor.svg": floor, FIGURES / "speed_linear.svg": linear_plot}


def _runs() -> list[Run]:
    """What was measured together, each behind a line that says with what."""
    runs: list[Run] = []
    for line in read_lines("kernels_h200.jsonl"):
        if "device" in line:
            runs.append((line, []))
        else:
            runs[-1][1].append(line)
    return runs


def _latest(runs: list[Run], key: str, **wanted: Any) -> Run:
    """The last run that measured such a thing: what was measured again comes last, and the rest stays."""
    return next(run for run in reversed(runs) if any(key in line for line in run[1] if _found([line], **wanted)))


def _where(facts: dict[str, Any]) -> str:
    return f"{facts['device']}, torch {facts['torch']}, commit {facts['commit']}, {facts['date']}, `{facts['protocol']}`"


def _found(lines: list[Line], **wanted: Any) -> Line | None:
    """The first measurement of what is wanted: a later group repeats some of them."""
    return next((line for line in lines if all(line.get(key) == value for key, value in wanted.items())), None)


def _median(lines: list[Line], **wanted: Any) -> float | None:
    line = _found(lines, **wanted)
    return None if line is None else line["ms"]


def _alone(lines: list[Line]) -> list[list[str]]:
    found = []
    for rows, classes in SHAPES:
        for loss in ("ce", "gce", "jal-ce", "anl-ce", "jal-fl"):
            shape = {"loss": loss, "rows": rows, "classes": classes}
            times = [_median(lines, kernel=kernel, **shape) for kernel in ("copy", "forward", "backward", "in-forward")]
            if None in times:  # the time was up before it
                continue
            copy, first, second, at_once = (time or 0.0 for time in times)
            again = classes > 1024 and (loss == "anl-ce" or (loss == "jal-fl" and classes < 27000))
            passes = 4 if again else 3
            floor, both = passes / 2 * copy, first + second
            moved = f"{passes * 2 * rows * classes / 1e9:.2f}"
            shown = [f"{time:.3f}" for time in (floor, first, second, both)]
            shares = [f"{both / copy:.2f}", f"{floor / both:.0%}", f"{at_once / copy:.2f}"]
            found.append([f"{rows:,} x {classes:,}", loss, str(passes), moved, *shown, *shares])
    return found


def _steps(lines: list[Line]) -> list[list[str]]:
    found = []
    for loss, way, name in WAYS:
        cells = []
        for rows, classes in SHAPES:
            wanted = {"loss": loss, "way": way, "rows": rows, "classes": classes, "dtype": "bfloat16"}
            line = _found(lines, **wanted)
            cells.append("" if line is None else f"{line['ms']:.2f} ({line['peak_MiB']:,.0f} MiB)")
        found.append([name, *cells])
    return found


def _small(runs: list[Run]) -> str:
    """What a batch costs the host, in microseconds."""
    facts, lines = _latest(runs, "host")
    host = [line for line in lines if line.get("host") == "both"]
    shapes = list(dict.fromkeys((line["rows"], line["classes"], line["dtype"]) for line in host))
    rows = []
    for n, k, dtype in shapes:
        times = {line["loss"]: line for line in host if (line["rows"], line["classes"], line["dtype"]) == (n, k, dtype)}
        cells = [f"{times[loss]['us']:.0f} ({times[loss]['over_cross_entropy']:.2f})" for loss in HOST]
        rows.append([f"{n:,} x {k:,}, {dtype}", f"{times['F.cross_entropy']['us']:.0f}", *cells])
    counted, few = _latest(runs, "launches")
    launches = next(line["launches"] for line in few if "launches" in line and line["way"] == "ours")
    step = {"loss": "jal-ce", "way": "graph", "rows": 128, "classes": 10}
    timed, graphs = _latest(runs, "ms", **step)
    graph = 1000 * (_median(graphs, **step) or 0)
    others = [other["commit"] for other in (counted, timed) if other["commit"] != facts["commit"]]
    of = f" (of commit {' and '.join(dict.fromkeys(others))})" if others else ""
    return (
        f"Eager steps of small batches, of commit {facts['commit']}, in microseconds of the host, and how many of "
        f"`F.cross_entropy`'s. A step of 128 x 10 is {launches} launches, and takes {graph:.0f} microseconds in a CUDA "
        f"graph{of}.\n\n" + table(["batch", "F.cross_entropy", *HOST], rows)
    )
