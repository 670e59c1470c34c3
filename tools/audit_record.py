"""docs/benchmarks/audit.md: how accurate an audit is, compared with cleanlab, from the records of benchmarks/audit.py."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import fmean
from typing import Any

import figures
from figures import Mark
from results import FIGURES, RECORDS, folded, read_lines, table, where_measured

__all__ = ["CHARTS", "audit_answer", "audit_tables"]

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


SHORT = {
    "digits": "digits",
    "mnist-patches": "MNIST",
    "fashion-mnist-patches": "Fashion-MNIST",
    "cifar10n-patches": "CIFAR-10N, 10,000 images, patches",
    "cifar10n-images": "CIFAR-10N, 10,000 images, cnn5",
    "cifar10n": "CIFAR-10N, 50,000 images, cnn8",
    "cifar100n": "CIFAR-100N, cnn8",
}
WAY_KINDS = (("audit", 1), ("audit --quick", 3), ("cleanlab", 0), ("cleanlab, early stopping", 2))


def audit_tables() -> str:
    """Means over all data sets; then of each the means over all noises, noise by noise, the interval, and clean labels."""
    lines = _measured()
    return "\n\n".join([_all_together(lines), *(_data_set(data, _of(lines, data=data)) for data in _each("data", lines))])


def audit_answer() -> str:
    """The first paragraph of the page."""
    there, cells = _shared(_measured())
    auc = {way: float(_means(there, way, cells)[0]) for way in WAYS}
    off = {way: 100 * float(_means(there, way, cells)[3]) for way in WAYS}
    better = max(("cleanlab", "cleanlab stopped"), key=lambda way: auc[way])
    noisy = [line for line in _of(_measured(), way="audit") if line["noise"] != CLEAN]
    covered = sum(line["covers"] for line in noisy)
    return (
        f"**The AUC of finding wrong labels is {auc['audit']:.3f} with `audit` and {auc[better]:.3f} with cleanlab, mean of "
        f"{len(cells)} noise settings**, on the same folds and with the same network. The estimated rate of wrong labels is "
        f"off by {off['audit']:.1f} points with `audit` and by {off[better]:.1f} with cleanlab. The 95 % interval of `audit` "
        f"covers the true rate in {covered} of {len(noisy)} runs."
    )


def against_cleanlab() -> str:
    """The AUC of each way by data set and noise."""
    rows: list[tuple[str, list[Mark]]] = []
    there, _ = _shared(_measured())
    for data in _each("data", there):
        rows.append((SHORT.get(data, data), []))
        for noise in _each("noise", of := _of(there, data=data)):
            values = [fmean(line["auc"] for line in _of(of, way=way, noise=noise)) for way in WAYS]
            name = noise.removeprefix(f"{data} ").replace(":", " ").replace("pairflip", "pairs")
            rows.append((name, [Mark(v, k, f"{noise}, {WAY_KINDS[k][0]}: {v:.3f}") for k, v in enumerate(values)]))
    return figures.rows_of_marks("Finding wrong labels", rows, WAY_KINDS, across="AUC; 0.5 is a guess, 1 is perfect")


CHARTS: dict[Path, Callable[[], str]] = {FIGURES / "audit.svg": against_cleanlab}


def _measured() -> list[Line]:
    return [line for name in RECORD_FILES if (RECORDS / name).is_file() for line in read_lines(name)]


def _shared(lines: list[Line]) -> tuple[list[Line], list[str]]:
    """The noises of every data set that each of the compared ways has met."""
    noisy = [{**line, "noise": f"{line['data']} {line['noise']}"} for line in lines if line["noise"] != CLEAN]
    cells = [cell for cell in _each("noise", noisy) if all(_of(noisy, way=way, noise=cell) for way in WAYS)]
    return [line for line in noisy if line["noise"] in cells], cells


def _all_together(lines: list[Line]) -> str:
    there, cells = _shared(lines)
    rows = [[way, len(_of(there, way=way)), *_means(there, way, cells)[:-1]] for way in WAYS]
    about = f"Means over the {len(cells)} noises of the data sets below, each of which counts as much as another."
    return folded("All data sets together", about, table(TABLE_HEAD, rows))


def _data_set(data: str, lines: list[Line]) -> str:
    noisy = [line for line in lines if line["noise"] != CLEAN]
    ways = [way for way in WAYS if way in _each("way", noisy)]
    noises = _each("noise", noisy)
    parts = [
        f"Means over {', '.join(noises)}.",
        table([*TABLE_HEAD, "seconds"], [[way, len(_of(noisy, way=way)), *_means(noisy, way, noises)] for way in ways]),
        "F1, and the estimated rate:",
        table(["", *ways, "true rate"], [_by_noise(noisy, noise, ways) for noise in noises]),
    ]
    return folded(TITLES.get(data, data), *parts, *_sentences(lines), *_trained(lines), where_measured(lines))


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
    return ["Test accuracy in % after training on these labels:", table(["", "loss", *kinds], rows)]


def _of(lines: Iterable[Line], **facts: Any) -> list[Line]:
    return [line for line in lines if all(line[key] == value for key, value in facts.items())]


def _each(key: str, lines: Iterable[Line]) -> list[str]:
    return list(dict.fromkeys(line[key] for line in lines))
