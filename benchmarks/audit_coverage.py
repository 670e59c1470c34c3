"""How often the interval of an audit has the true share of wrong labels inside, where classes are rare or hard to tell.

    python benchmarks/audit_coverage.py --json records/audit_coverage_cpu.jsonl [--draws 10] [--first 20050]

Trained audits of 400 rows of scikit-learn's ``make_classification``: classes of such relative frequency and distance,
with 0, 5 and 20 % of the labels changed to any other. And audits of given predictions, 60 draws each: two normal clouds one
deviation apart, and what is predicted of a point by one who knows them, or whose scores are off by a normal error. A line is
written for each audit, and one that has a line is not repeated. docs/how_to/audit.md has the counts.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.datasets import make_classification

from noiseproof.audit import Audit, audit_labels, audit_probabilities
from noiseproof.train.record import environment

ROWS = 400
TABLES = {
    "1:5": ((5, 1), (0.5, 1.0)),
    "1:9": ((9, 1), (0.8,)),
    "1:20": ((20, 1), (0.8,)),
    "1:5:20": ((20, 5, 1), (0.8,)),
    "1:1": ((1, 1), (0.4,)),
    "1:1:1": ((1, 1, 1), (0.6,)),
    "ten even": ((1,) * 10, (2.0,)),
}
"""By how frequent the classes are: the same as numbers, and how far apart they lie"""
RATES = (0.0, 0.05, 0.2)
GIVEN = ((0.0, 20), (1.5, 5), (0.0, 1))
"""Errors of the scores, and how many times as frequent the first class is"""
GIVEN_DRAWS, GIVEN_RATES = 60, (0.0, 0.1)


class Key(NamedTuple):
    """What tells an audit from the others."""

    kind: str
    apart: float
    """Of a table, how far apart its classes lie; of predictions, the error of their scores"""
    rate: float
    seed: int


def table(key: Key) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    frequent = np.array(TABLES[key.kind][0]) / sum(TABLES[key.kind][0])
    x, y = make_classification(
        n_samples=ROWS,
        n_features=12,
        n_informative=8,
        n_redundant=0,
        n_classes=len(frequent),
        n_clusters_per_class=1,
        weights=frequent.tolist(),
        flip_y=0,
        class_sep=key.apart,
        random_state=key.seed,
    )
    return x.astype(np.float32), y.astype(np.int64)


def trained(key: Key) -> tuple[Audit, float]:
    x, true = table(key)
    generator, classes = np.random.default_rng((key.seed, 1)), len(TABLES[key.kind][0])
    changed = generator.random(ROWS) < key.rate
    given = np.where(changed, (true + generator.integers(1, classes, ROWS)) % classes, true)
    return audit_labels(x, given), float((given != true).mean())


def of_predictions(key: Key) -> tuple[Audit, float]:
    odds = int(key.kind.removeprefix("given 1:"))
    generator = np.random.default_rng((key.seed, 31, odds, round(100 * key.rate)))
    true = (generator.random(ROWS) < 1 / (1 + odds)).astype(np.int64)
    scores = generator.standard_normal((ROWS, 2)) + np.eye(2)[true] + np.log([odds, 1])
    scores += key.apart * generator.standard_normal((ROWS, 2))
    given = np.where(generator.random(ROWS) < key.rate, 1 - true, true)
    return audit_probabilities(np.exp(scores) / np.exp(scores).sum(1, keepdims=True), given), float((given != true).mean())


def wanted(draws: int, first: int) -> Iterator[Key]:
    for seed in range(first, first + draws):
        for kind, (_, places) in TABLES.items():
            yield from (Key(kind, apart, rate, seed) for apart in places for rate in RATES)
    for error, odds in GIVEN:
        yield from (Key(f"given 1:{odds}", error, rate, seed) for rate in GIVEN_RATES for seed in range(GIVEN_DRAWS))


def line(key: Key) -> dict[str, Any]:
    found, true = (of_predictions if key.kind.startswith("given") else trained)(key)
    low, high = found.rate_interval
    return {
        **key._asdict(),
        "true": true,
        "estimate": round(found.rate, 4),
        "interval": [round(low, 4), round(high, 4)],
        "covers": low <= true <= high,
        "environment": environment(torch.device("cpu")),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--first", type=int, default=20050, help="the first seed of a table")
    given = parser.parse_args()
    lines = [json.loads(text) for text in given.json.read_text(encoding="utf-8").splitlines()] if given.json.exists() else []
    done = {Key(*(one[name] for name in Key._fields)) for one in lines}
    for key in wanted(given.draws, given.first):
        if key not in done:
            lines.append(line(key))
            with given.json.open("a", encoding="utf-8") as file:
                file.write(json.dumps(lines[-1]) + "\n")
    number, covered = Counter(map(setting, lines)), Counter(setting(one) for one in lines if one["covers"])
    for each, count in number.items():
        kind, apart, rate = each
        print(f"{kind:12} {apart} apart, {rate:.0%} wrong: covered in {covered[each]} of {count}")


def setting(one: dict[str, Any]) -> tuple[str, float, float]:
    return one["kind"], one["apart"], one["rate"]


if __name__ == "__main__":
    main()
