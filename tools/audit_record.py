"""The tables of docs/how_to/audit.md: how accurate an audit is, beside cleanlab, from the records of benchmarks/audit.py."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import fmean
from typing import Any

from results import RECORDS, _lines, _table, _where

__all__ = ["audit_tables"]

RECORD_FILES = ("audit_cpu.jsonl", "audit_h200.jsonl")
CLEAN = "none"
WAYS = ("audit", "quick", "cleanlab", "cleanlab stopped")
TABLE_HEAD = ["", "runs", "AUC", "average precision", "F1", "rate, off by", "matrix, off by", "calibration error"]
TITLES = {
    "digits": "Digits, 1,797 images of 8x8 pixels as features",
    "mnist-patches": "MNIST, the first 10,000 images, 512 features of random patches",
    "fashion-mnist-patches": "Fashion-MNIST, the first 10,000 images, 512 features of random patches",
    "cifar10n-patches": "CIFAR-10N, people's labels of 10,000 images, 512 features of random patches",
    "cifar10n-images": "CIFAR-10N, people's labels of 10,000 images, cnn5, the network of images without a GPU",
    "cifar10n": "CIFAR-10N, people's labels of 50,000 images, cnn8",
    "cifar100n": "CIFAR-100N, people's labels of 50,000 images, cnn8",
}
Line = dict[str, Any]


def audit_tables() -> str:
    """Means over all data sets; then of each the means over all noises, noise by noise, the interval, and clean labels."""
    lines = [line for name in RECORD_FILES if (RECORDS / name).is_file() for line in _lines(name)]
    return "\n\n".join([_all_together(lines), *(_data_set(data, _of(lines, data=data)) for data in _each("data", lines))])


def _all_together(lines: list[Line]) -> str:
    """Means over the noises of every data set that each of the compared ways has met."""
    noisy = [{**line, "noise": f"{line['data']} {line['noise']}"} for line in lines if line["noise"] != CLEAN]
    cells = [cell for cell in _each("noise", noisy) if all(_of(noisy, way=way, noise=cell) for way in WAYS)]
    there = [line for line in noisy if line["noise"] in cells]
    rows = [[way, len(_of(there, way=way)), *_means(there, way, cells)[:-1]] for way in WAYS]
    title = (
        f"**All together**; means over the {len(cells)} noises of the data sets below, each of which counts as much as another"
    )
    return f"{title}\n\n{_table(TABLE_HEAD, rows)}".rstrip()


def _data_set(data: str, lines: list[Line]) -> str:
    noisy = [line for line in lines if line["noise"] != CLEAN]
    ways = [way for way in WAYS if way in _each("way", noisy)]
    noises = _each("noise", noisy)
    parts = [
        f"**{TITLES.get(data, data)}**; means over {', '.join(noises)}",
        _table([*TABLE_HEAD, "seconds"], [[way, len(_of(noisy, way=way)), *_means(noisy, way, noises)] for way in ways]),
        "F1, and the estimated rate:",
        _table(["", *ways, "true rate"], [_by_noise(noisy, noise, ways) for noise in noises]),
    ]
    return "\n\n".join([*map(str.rstrip, parts), *_sentences(lines), *map(str.rstrip, _trained(lines)), _where(lines)])


def _means(lines: list[Line], way: str, noises: list[str]) -> list[str]:
    """Means over noises, each of which counts as much as another; nothing for a way that has not met all of them."""
    chosen = [_of(lines, way=way, noise=noise) for noise in noises]
    if not all(chosen):
        return [""] * 7

    def over(value: Any) -> float:
        return fmean(fmean(map(value, runs)) for runs in chosen)

    names = ("auc", "average_precision", "f1")
    shares = [f"{over(lambda line, name=name: line[name]):.3f}" for name in names]
    off = over(lambda line: abs(line["rate"] - line["true_rate"]))
    errors = [off, over(lambda line: line["matrix_error"]), over(lambda line: line["ece"])]
    return [*shares, *(f"{error:.3f}" for error in errors), f"{over(lambda line: line['seconds']):.0f}"]


def _by_noise(lines: list[Line], noise: str, ways: list[str]) -> list[str]:
    cells = []
    for way in ways:
        chosen = _of(lines, way=way, noise=noise)
        mean = {name: fmean(line[name] for line in chosen) for name in ("f1", "rate")} if chosen else None
        cells.append(f"{mean['f1']:.3f}, {100 * mean['rate']:.1f} %" if mean else "")
    return [noise, *cells, f"{100 * fmean(line['true_rate'] for line in _of(lines, noise=noise)):.1f} %"]


def _sentences(lines: list[Line]) -> list[str]:
    found = []
    for way in ("audit", "quick"):
        noisy = [line for line in _of(lines, way=way) if line["noise"] != CLEAN]
        if noisy:
            missed = [f"{noise} {count}" for noise in _each("noise", noisy) if (count := _missed(noisy, noise))]
            where = f" (missed: {', '.join(missed)})" if missed else ""
            covered = sum(line["covers"] for line in noisy)
            found.append(f"The interval of `{way}` covers the true rate in {covered} of {len(noisy)} runs{where}.")
    for way in ("audit", "quick"):
        if rates := [100 * line["rate"] for line in _of(lines, way=way, noise=CLEAN)]:
            found.append(f"Clean labels: `{way}` says {min(rates):.2f} to {max(rates):.2f} % in {len(rates)} runs.")
    return ["\n".join(found)] if found else []


def _missed(lines: list[Line], noise: str) -> int:
    return sum(not line["covers"] for line in _of(lines, noise=noise))


def _trained(lines: list[Line]) -> list[str]:
    """Test accuracy after training on labels as given, the audit's and the true ones."""
    trained = [line for line in lines if line.get("test_accuracy")]
    if not trained:
        return []
    rows = []
    for noise in _each("noise", trained):
        accuracy = [line["test_accuracy"] for line in _of(trained, noise=noise)]
        for loss in accuracy[0]:
            cells = [f"{100 * fmean(one[loss][labels] for one in accuracy):.1f}" for labels in accuracy[0][loss]]
            rows.append([noise, loss, *cells])
    kinds = list(next(iter(trained[0]["test_accuracy"].values())))
    return ["Test accuracy in % after training on these labels:", _table(["", "loss", *kinds], rows)]


def _of(lines: Iterable[Line], **facts: Any) -> list[Line]:
    return [line for line in lines if all(line[key] == value for key, value in facts.items())]


def _each(key: str, lines: Iterable[Line]) -> list[str]:
    return list(dict.fromkeys(line[key] for line in lines))
