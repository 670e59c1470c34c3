"""What people do with wrong labels, on folders of data sets: which method is better, and how well does it find wrong labels.

    python benchmarks/zoo.py --sets DIR --records records/zoo.jsonl [--seeds 1,2,3] [--rows 2000] [--shard 1/2]
                             [--methods logistic,ce] [--noise none,sym:0.4] [--only 'tab_*,cifar10/given:worst']
    python benchmarks/zoo.py --records records/zoo.jsonl --report

``--sets`` is a folder of ``.npz`` files: features ``x`` and ``x_test`` (embeddings on one scale, or standardised columns; with
``scale`` they are multiplied by it), true labels ``y_clean`` and ``y_test``, given labels ``y``, or several kinds of them,
``y_NAME``. Integers from 0.

Noises: ``none``; ``sym:RATE`` to any other class; ``pair:RATE`` to the next one; ``asym:RATE`` to the paper's class,
of CIFAR's 10 or 100; for two classes ``two:0.3:0.12``, 30 % of the smaller class and 12 % of the larger; ``given`` and
``given:NAME``, the file's own where they differ from the true ones.

The seed draws the rows, the noise and the folds; ``--rows`` limits the training rows, and at most 2,000 test rows are used. A
line is written for each method on each cell, and what has a line is not repeated. Several processes may share a file: each
claims a cell while it is at work on it. Baselines' second rule is argmax of p / frequency of the given labels. Seconds of the
processor include those of child processes. cleanlab is needed for its two methods: pip install cleanlab.
"""

from __future__ import annotations

import argparse
import base64
import fcntl
import fnmatch
import json
import os
import resource
import time
import traceback
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from zoo_methods import (
    JUDGES,
    METHODS,
    PREDICTORS,
    Answer,
    Floats,
    Labels,
    Problem,
    cross_validated,
    is_method,
    predictor_of,
)

from noiseproof.noise import asymmetric
from noiseproof.train.record import environment

MAX_TEST_ROWS = 2000
RULES = ("accuracy", "balanced_accuracy")
SYNTHETIC = ("none", "sym:0.2", "sym:0.4", "pair:0.3")
TWO_CLASSES = ("two:0.3:0.12",)
CHOSEN_BY_CV = ("logistic", "logistic-cv", "forest-1", "forest-10", "boosting", "ce")
"""On clean labels a person would take the best of these by cross-validation"""
APPENDING = 2**40
"""The byte of the lock file that is locked while a line is appended"""


class Key(NamedTuple):
    """What tells a line from the others."""

    set: str
    noise: str
    seed: int
    rows: int | None
    method: str


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what has no line yet, or print the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=Path, required=True, help="JSON lines; what is there is not repeated")
    parser.add_argument("--report", action="store_true", help="print the tables of the records")
    parser.add_argument("--sets", type=Path, help="a folder of .npz files")
    parser.add_argument("--only", default="*", help="sets, or SET/NOISE, with commas between; * matches anything")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--noise", default="*", help="noises, with commas between; * matches what is usual")
    parser.add_argument("--methods", default=",".join(METHODS), help=", ".join(METHODS))
    parser.add_argument("--rows", type=int, help="training rows at most")
    parser.add_argument("--shard", default="1/1", help="I/N: the I-th of N parts of the cells")
    options = parser.parse_args(arguments)
    if options.report:
        from zoo_report import report

        print(report(lines_of(options.records)))
        return
    if options.sets is None:
        parser.error("--sets is needed, but for --report")
    if unknown := [name for name in options.methods.split(",") if not is_method(name)]:
        parser.error(f"no such method: {', '.join(unknown)}; there are {', '.join(METHODS)}, and mlp:LOSS and linear:LOSS")
    torch.set_num_threads(1)
    run(options)


def run(options: argparse.Namespace) -> None:
    """Seed by seed and method by method, small sets first, so that what is there can be compared if the script is stopped."""
    part, parts = map(int, options.shard.split("/"))
    ledger = Ledger(options.records)
    cells = [cell for cell in cells_of(options.sets, options.noise) if matches(cell, options.only, options.noise)]
    for seed in map(int, options.seeds.split(",")):
        for method in options.methods.split(","):
            for number, (name, noise) in enumerate(cells):
                key = Key(name, noise, seed, options.rows, method)
                if number % parts == part - 1:
                    with ledger.claimed(key) as mine:
                        if mine:
                            ledger.append(line(options.sets, key))


def line(folder: Path, key: Key) -> dict[str, Any]:
    """What a method makes of a cell, or its error."""
    problem = problem_of(folder / f"{key.set}.npz", key.noise, key.seed, key.rows)
    facts = {**key._asdict(), **facts_of(problem)}
    start, cpu = time.perf_counter(), cpu_seconds()
    try:
        answer = answered(key.method, problem)
    except Exception as error:  # a method that fails on a cell is a line of the record, and the others go on
        traceback.print_exc()
        return {**facts, "error": f"{type(error).__name__}: {error}"[:300]}
    took = {"seconds": round(time.perf_counter() - start, 2), "cpu_seconds": round(cpu_seconds() - cpu, 2)}
    found = {**facts, **measures(answer, problem), **took}
    if key.noise == "none" and key.method in CHOSEN_BY_CV:
        p = cross_validated(PREDICTORS[key.method], problem.x, problem.given, problem.classes, key.seed)
        found["cv_accuracy"] = round(float((p.argmax(1) == problem.given).mean()), 5)
    return found | {"environment": environment(torch.device("cpu"))}


def answered(method: str, problem: Problem) -> Answer:
    if method in JUDGES:
        return JUDGES[method](problem)
    return Answer(predictor_of(method)(problem.x, problem.given, problem.x_test, problem.classes, problem.seed))


def cpu_seconds() -> float:
    """Of this process with all its threads, and of child processes that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


# ---- cells


def cells_of(folder: Path, asked: str = "*") -> list[tuple[str, str]]:
    """Each set with each noise, the usual ones and those asked for, sets with few classes first."""
    found = []
    further = [noise for noise in asked.split(",") if noise.partition(":")[0] in ("sym", "pair", "asym") and "*" not in noise]
    for path in sorted(folder.glob("*.npz")):
        with np.load(path, allow_pickle=False) as file:
            clean, names = file["y_clean"], sorted(name for name in file.files if name == "y" or name.startswith("y_"))
            kinds = [name for name in names if name not in ("y_clean", "y_test") and (file[name] != clean).any()]
            classes = int(max(clean.max(), file["y_test"].max())) + 1
        noises = (
            *dict.fromkeys((*SYNTHETIC, *further)),
            *(TWO_CLASSES if classes == 2 else ()),
            *(f"given{kind[1:]}".replace("_", ":", 1) for kind in kinds),
        )
        found += [(classes, path.stem, noise) for noise in noises]
    if not found:
        raise SystemExit(f"{folder} contains no .npz file")
    return [(name, noise) for _, name, noise in sorted(found, key=lambda one: one[0])]


def matches(cell: tuple[str, str], only: str, noises: str) -> bool:
    name, noise = cell
    chosen = (pattern.partition("/") for pattern in only.split(","))
    return any(fnmatch.fnmatch(name, left) and fnmatch.fnmatch(noise, right or "*") for left, _, right in chosen) and any(
        fnmatch.fnmatch(noise, pattern) for pattern in noises.split(",")
    )


def problem_of(path: Path, noise: str, seed: int, rows: int | None) -> Problem:
    """The rows and the given labels of a cell."""
    with np.load(path, allow_pickle=False) as file:
        scale = file["scale"] if "scale" in file.files else np.float32(1)
        clean, y_test = file["y_clean"].astype(np.int64), file["y_test"].astype(np.int64)
        classes = int(max(clean.max(), y_test.max())) + 1
        random = np.random.default_rng([seed, 1])  # another stream than that of the noise
        train = random.permutation(len(clean))[:rows]
        test = random.permutation(len(y_test))[:MAX_TEST_ROWS]
        kind, _, name = noise.partition(":")
        given = file[f"y_{name}" if name else "y"].astype(np.int64) if kind == "given" else clean
        x, x_test = ((file[key][chosen] * scale).astype(np.float32) for key, chosen in (("x", train), ("x_test", test)))
    given = given[train] if kind == "given" else noisy(clean[train], classes, noise, seed)
    return Problem(x, given, clean[train], x_test, y_test[test], classes, seed)


def noisy(y: Labels, classes: int, noise: str, seed: int) -> Labels:
    """Labels with noise put on them."""
    kind, *rates = noise.split(":")
    random = np.random.default_rng(seed)
    chance = random.random(len(y))
    if kind == "none":
        return y.copy()
    if kind == "two":
        smaller = np.bincount(y, minlength=2).argmin()
        return np.where(chance < np.where(y == smaller, float(rates[0]), float(rates[1])), 1 - y, y)
    if kind == "asym":
        to = asymmetric(f"cifar{classes}", 0.4).matrix.copy()
        np.fill_diagonal(to, 0)  # classes that keep their labels have nothing left
        moves: NDArray[np.bool_] = to.sum(1) > 0
        return np.where((chance < float(rates[0])) & moves[y], to.argmax(1)[y], y)
    if kind not in ("sym", "pair"):
        raise ValueError(f"unknown noise {noise!r}: none, sym:, pair: or asym:RATE, two:SMALLER:LARGER, given or given:NAME")
    step = random.integers(1, classes, len(y)) if kind == "sym" else np.ones(len(y), np.int64)
    return np.where(chance < float(rates[0]), (y + step) % classes, y)


# ---- measures


def facts_of(problem: Problem) -> dict[str, Any]:
    return {
        "train": len(problem.x),
        "columns": problem.x.shape[1],
        "classes": problem.classes,
        "true_rate": round(float((problem.given != problem.clean).mean()), 5),
        "test_counts": np.bincount(problem.y_test, minlength=problem.classes).tolist(),
    }


def measures(answer: Answer, problem: Problem) -> dict[str, Any]:
    """Of the model on clean test labels, and of what was said of the given labels."""
    found: dict[str, Any] = {}
    for rule, predicted in (answer.predicted or ruled(answer.p, problem)).items():
        found[rule] = scores(predicted, problem.y_test)
    found["auc"] = auc(answer.p, problem.y_test)
    if answer.p_wrong is not None and answer.flagged is not None:
        found["audit"] = judged(answer.p_wrong, answer.flagged, problem.given != problem.clean)
        found["audit"]["rate"] = None if answer.rate is None else [*map(rounded, answer.rate)]
    if answer.estimates:
        found["estimates"] = {metric: [*map(rounded, estimate)] for metric, estimate in answer.estimates.items()}
    return found


def ruled(p: Floats, problem: Problem) -> dict[str, Labels]:
    """Argmax, and argmax of p / frequency of the given labels."""
    counts = np.bincount(problem.given, minlength=problem.classes)
    return {"accuracy": p.argmax(1), "balanced_accuracy": (p / np.maximum(counts, 1)).argmax(1)}


def scores(predicted: Labels, y: Labels) -> dict[str, Any]:
    """Accuracy, the mean recall of the classes that are there, macro F1; and which rows are right, packed, sorted by class."""
    from sklearn.metrics import f1_score

    right = predicted == y
    recalls = [float(right[y == k].mean()) for k in np.unique(y)]
    return {
        "accuracy": round(float(right.mean()), 5),
        "balanced_accuracy": round(float(np.mean(recalls)), 5),
        "f1_macro": round(float(f1_score(y, predicted, average="macro", labels=np.unique(y), zero_division=0)), 5),
        "lost": sum(recall == 0 for recall in recalls),
        "right": packed(right[np.argsort(y, kind="stable")]),
    }


def packed(bits: NDArray[np.bool_]) -> str:
    return base64.b85encode(np.packbits(bits).tobytes()).decode()


def unpacked(text: str, length: int) -> NDArray[np.bool_]:
    return np.unpackbits(np.frombuffer(base64.b85decode(text), np.uint8), count=length).astype(bool)


def recalls_of(line: dict[str, Any], rule: str) -> NDArray[np.float64]:
    """By class; nan where a class has no test row."""
    counts = np.array(line["test_counts"])
    right = unpacked(line[rule]["right"], int(counts.sum()))
    sums = np.bincount(np.repeat(np.arange(len(counts)), counts), right, len(counts))
    recalls: NDArray[np.float64] = np.divide(sums, counts, out=np.full(len(counts), np.nan), where=counts > 0)
    return recalls


def auc(p: Floats, y: Labels) -> float | None:
    """Of each class against the others, the mean over the classes that are there."""
    from sklearn.metrics import roc_auc_score

    there = np.unique(y)
    if len(there) < 2:
        return None
    chosen = there[1:] if p.shape[1] == 2 else there
    return round(float(np.mean([roc_auc_score(y == k, p[:, k]) for k in chosen])), 5)


def judged(p_wrong: Floats, flagged: NDArray[np.bool_], wrong: NDArray[np.bool_]) -> dict[str, Any]:
    """How well wrong labels are found; AUC and F1 are None where no label is wrong."""
    from sklearn.metrics import f1_score, roc_auc_score

    there = bool(wrong.any())
    return {
        "auc": round(float(roc_auc_score(wrong, p_wrong)), 5) if there else None,
        "f1": round(float(f1_score(wrong, flagged, zero_division=0)), 5) if there else None,
        "flagged": round(float(flagged.mean()), 5),
    }


def rounded(value: float | None) -> float | None:
    return None if value is None else round(float(value), 5)


# ---- records


def lines_of(path: Path) -> list[dict[str, Any]]:
    """The lines of a file; a last one that was not written to its end is none."""
    if not path.is_file():
        return []
    whole = path.read_bytes().rpartition(b"\n")[0]
    return [json.loads(text) for text in whole.splitlines()]


class Ledger:
    """A file of JSON lines that several processes append to, each of which claims what it is at work on.

    A claim is a lock of one byte of the file ``.lock`` beside it, so that it ends with its process.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self.locks = os.open(path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT, 0o644)
        self.done: set[Key] = set()
        self.read = 0

    @contextmanager
    def claimed(self, key: Key) -> Iterator[bool]:
        """Whether it is ours to do: it has no line, and no other process is at work on it."""
        place = zlib.crc32(json.dumps(key).encode())
        try:
            fcntl.lockf(self.locks, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
        except OSError:
            yield False
            return
        try:
            yield key not in self.keys()  # read after the lock: who had it before has written its line
        finally:
            fcntl.lockf(self.locks, fcntl.LOCK_UN, 1, place)

    def keys(self) -> set[Key]:
        size = self.path.stat().st_size if self.path.is_file() else 0
        if size != self.read:
            self.done = {Key(*(one[name] for name in Key._fields)) for one in lines_of(self.path)}
            self.read = size
        return self.done

    def append(self, facts: dict[str, Any]) -> None:
        """Add a line; what a process that was killed left of one is removed."""
        fcntl.lockf(self.locks, fcntl.LOCK_EX, 1, APPENDING)
        try:
            with self.path.open("a+b") as file:
                file.seek(0)
                file.truncate(file.read().rfind(b"\n") + 1)
                file.write(json.dumps(facts).encode() + b"\n")
        finally:
            fcntl.lockf(self.locks, fcntl.LOCK_UN, 1, APPENDING)


if __name__ == "__main__":
    main()
