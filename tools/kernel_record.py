"""What docs/speed.md has of the kernels, from records/kernels_h200.jsonl."""

from __future__ import annotations

from typing import Any

from results import _lines, _table

__all__ = ["kernels"]

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


def kernels() -> str:
    """The kernels alone beside the floor, whole steps, and small batches."""
    facts, *lines = _lines("kernels_h200.jsonl")
    where = f"{facts['device']}, torch {facts['torch']}, commit {facts['commit']}, {facts['date']}, `{facts['protocol']}`"
    parts = [
        f"{where}: medians of interleaved turns, in milliseconds. A copy of the logits reads and writes them once; the two "
        "passes read them, then read them again and write the gradient, so that their floor is one and a half copies.\n",
        _table(["kernels alone, bf16", "loss", "forward", "backward", "both, in copies"], _alone(lines)),
        _table(
            ["whole step, bf16, eager unless said", *(f"{rows:,} x {classes:,}" for rows, classes in SHAPES)], _steps(lines)
        ),
        _small(lines),
    ]
    return "\n".join(parts)


def _median(lines: list[dict[str, Any]], **wanted: Any) -> float | None:
    """The first measurement of what is wanted: a later group repeats some of them."""
    found = (line["ms"] for line in lines if all(line.get(key) == value for key, value in wanted.items()))
    return next(found, None)


def _alone(lines: list[dict[str, Any]]) -> list[list[str]]:
    found = []
    for rows, classes in SHAPES:
        copy = _median(lines, way="copy", rows=rows, classes=classes, dtype="bfloat16")
        for loss in ("ce", "gce", "jal-ce", "anl-ce", "jal-fl"):
            shape = {"loss": loss, "rows": rows, "classes": classes}
            first, second = (_median(lines, kernel=kernel, **shape) for kernel in ("forward", "backward"))
            if first is not None and second is not None and copy is not None:
                whole = f"{(first + second) / copy:.2f}"
                found.append([f"{rows:,} x {classes:,}", loss, f"{first:.3f}", f"{second:.3f}", whole])
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
        f"At 128 x 10 launching is all that counts: a step of JAL-CE is {launches['jal-ce', 'ours']} launches and {eager:,.0f} "
        f"microseconds eager (F.cross_entropy {theirs:,.0f}), {graph:.0f} in a CUDA graph, and compiled "
        f"{launches['jal-ce', 'compiled']} launches and {compiled:.0f} microseconds in a CUDA graph. Up to some thousand "
        "classes the eager step of 32,768 rows takes as long as the small one, the host being slower than the device: there "
        "a CUDA graph helps, and without one the plain formula, compiled, is still faster than ours."
    )
