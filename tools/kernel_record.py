"""What docs/speed.md has of the kernels and docs/many_classes.md of the linear head, from records/kernels_h200.jsonl.

Whole steps are from records/kernels_h200_before.jsonl, an earlier state of the kernels.
"""

from __future__ import annotations

from typing import Any

from results import _lines, _table

__all__ = ["kernels", "linear"]

SHAPES = ((8192, 128256), (32768, 1000), (32768, 4096))
WAYS = (
    ("jal-ce", "ours", "JAL-CE"),
    ("jal-ce", "compiled", "JAL-CE, compiled"),
    ("jal-ce", "plain", "JAL-CE, plain formula"),
    ("jal-ce", "plain compiled", "the same, compiled"),
    ("ce", "ours", "CE"),
    ("jal-fl", "ours", "JAL-FL"),
    ("anl-ce", "ours", "ANL-CE"),
    ("gce", "ours", "GCE"),
    ("ce", "cross entropy", "F.cross_entropy"),
    ("ce", "liger", "Liger's cross entropy"),
)
CONTESTANTS = {
    "products": "the three matrix products alone",
    "ours ce": "CE",
    "ours jal-ce": "JAL-CE",
    "ours jal-fl": "JAL-FL",
    "ours anl-ce": "ANL-CE",
    "recompute jal-ce": "JAL-CE, `recompute=True`",
    "plain ce": "F.cross_entropy in two steps",
    "plain jal-ce": "JAL-CE, plain formula in two steps",
    "liger ce": "Liger's cross entropy",
}


def kernels() -> str:
    """The kernels alone beside the floor, whole steps, and small batches."""
    facts, *alone = _lines("kernels_h200.jsonl")
    before, *steps = _lines("kernels_h200_before.jsonl")
    shapes = [f"{rows:,} x {classes:,}" for rows, classes in SHAPES]
    head = ["kernels alone, bf16", "loss", "forward", "backward", "both, in copies", "of the copy's speed"]
    if _has_in_forward(alone):
        head.append("with the gradient in the forward pass, in copies")
    parts = [
        f"{_where(facts)}: medians, in milliseconds, of kernels replayed as CUDA graphs. A copy of the logits reads and writes "
        "them once; the two passes read them, then read them again and write the gradient, so that their floor is one and a "
        "half copies. Where a row is longer than 1,024 classes ANL-CE reads it twice in the first pass, and so does JAL-FL up "
        "to 27,000 classes. With a star: timed in that run's tuning, in the shape that was chosen from it.\n",
        _table(head, _alone(alone)),
        f"Whole steps, {_where(before)}, before the kernels became as above and before a loss's own formula was one kernel:\n",
        _table(["bf16, eager unless said", *shapes], _steps(steps)),
        _small(steps),
    ]
    return "\n".join(parts)


def linear() -> str:
    """Time and memory of the loss of a linear head."""
    facts, *lines = _lines("kernels_h200.jsonl")
    measured = [line for line in lines if "contestant" in line]
    shapes = list(dict.fromkeys((line["rows"], line["width"], line["classes"]) for line in measured))
    rows = []
    for key, name in CONTESTANTS.items():
        cells: list[str] = []
        for shape in shapes:
            found = [line for line in measured if (line["rows"], line["width"], line["classes"]) == shape]
            line = next((line for line in found if line["contestant"] == key), None)
            cells += (
                ["", ""] if line is None else [f"{line['ms']:.1f} ({line['over_products']:.2f})", f"{line['extra_mib']:,.0f}"]
            )
        rows.append([name, *cells])
    head = [part for n, d, k in shapes for part in (f"{n:,} x {d:,}, {k:,} classes", "MiB")]
    return (
        f"{_where(facts | {'protocol': 'benchmarks/linear.py'})}, bf16: milliseconds of a step (in matrix products), and "
        "memory beyond inputs and gradients.\n\n" + _table(["", *head], rows)
    )


def _where(facts: dict[str, Any]) -> str:
    return f"{facts['device']}, torch {facts['torch']}, commit {facts['commit']}, {facts['date']}, `{facts['protocol']}`"


def _median(lines: list[dict[str, Any]], **wanted: Any) -> float | None:
    """The first measurement of what is wanted: a later group repeats some of them."""
    found = (line["ms"] for line in lines if all(line.get(key) == value for key, value in wanted.items()))
    return next(found, None)


def _has_in_forward(lines: list[dict[str, Any]]) -> bool:
    return any(line.get("kernel") == "in-forward" for line in lines)


def _alone(lines: list[dict[str, Any]]) -> list[list[str]]:
    found = []
    for rows, classes in SHAPES:
        for loss in ("ce", "gce", "jal-ce", "anl-ce", "jal-fl"):
            shape = {"loss": loss, "rows": rows, "classes": classes}
            copy, times, shown = _median(lines, kernel="copy", **shape) or 0.0, [], []
            for kernel in ("forward", "backward"):
                tuned = _median(lines, tuned=kernel, **shape)
                times.append(_median(lines, kernel=kernel, **shape) or 0.0 if tuned is None else tuned)
                shown.append(f"{times[-1]:.3f}" + ("" if tuned is None else "*"))
            again = classes > 1024 and (loss == "anl-ce" or (loss == "jal-fl" and classes < 27000))
            copies = sum(times) / copy
            found.append([f"{rows:,} x {classes:,}", loss, *shown, f"{copies:.2f}", f"{(2.0 if again else 1.5) / copies:.0%}"])
            if _has_in_forward(lines):
                at_once = _median(lines, kernel="in-forward", **shape)
                found[-1].append("" if at_once is None else f"{at_once / copy:.2f}")
    return found


def _steps(lines: list[dict[str, Any]]) -> list[list[str]]:
    found = []
    for loss, way, name in WAYS:
        times = [_median(lines, loss=loss, way=way, rows=n, classes=k, dtype="bfloat16") for n, k in SHAPES]
        found.append([name, *("" if time is None else f"{time:.2f}" for time in times)])
    return found


def _small(lines: list[dict[str, Any]]) -> str:
    launches = {(line["loss"], line["way"]): line["launches"] for line in lines if "launches" in line}
    shape = {"rows": 128, "classes": 10}
    ways = ("ours", "graph", "graph compiled")
    eager, graph, compiled = (1000 * (_median(lines, loss="jal-ce", way=way, **shape) or 0) for way in ways)
    theirs = 1000 * (_median(lines, way="cross entropy", **shape) or 0)
    return (
        "At 128 x 10 launching is all that counts: a step of JAL-CE was "
        f"{launches['jal-ce', 'ours']} launches and {eager:,.0f} microseconds eager "
        f"(F.cross_entropy {theirs:,.0f}), {graph:.0f} in a CUDA graph, and compiled "
        f"{launches['jal-ce', 'compiled']} launches and {compiled:.0f} microseconds in a CUDA graph. Up to some thousand "
        "classes the eager step of 32,768 rows took as long as the small one, the host being slower than the device."
    )
