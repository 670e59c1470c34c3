"""src/noiseproof/advice/evidence.json: what the records say of losses, for 'noiseproof advise'."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from noiseproof.advice import EVIDENCE_FILE
from noiseproof.data import load_digits
from noiseproof.noise import NoiseSpec

__all__ = ["EVIDENCE", "evidence"]

EVIDENCE = EVIDENCE_FILE
RECORDS = Path(__file__).resolve().parent.parent / "records"
TRAINED = ("reproduction.jsonl", "control.jsonl", "auto_a.jsonl")
"""Records of whole runs, of which only those with the paper's hyper-parameters of the loss are taken"""
PEOPLE, DEPENDENT = "_human", "_dependent"
OWN_DATA = {
    "wine": (3, 178),
    "cancer": (2, 569),
    "fashion-mnist": (10, 1000),
    "fashion-4000": (10, 4000),
    "fashion-pixels": (10, 1000),
}
IMAGES = ("cifar10", "cifar100", "fashion-mnist", "fashion-4000")


class Run(NamedTuple):
    """One run, as all files of records have it."""

    data: str
    classes: int
    examples: int
    noise: str
    rate: float
    record: str
    loss: str
    decay: str
    seed: int
    accuracy: float


def evidence() -> str:
    """The file's text."""
    groups: dict[tuple[str, str, str], list[Run]] = {}
    for run in dict.fromkeys((*_trained(), *_own_defaults(), *_selection())):  # what two files hold is one run
        groups.setdefault((run.data, run.noise, run.record), []).append(run)
    cells = [_cell(runs) for runs in groups.values() if len({run.loss for run in runs}) > 1]
    return json.dumps({"written by": "make generate, from records/", "cells": cells}, indent=1) + "\n"


def _cell(runs: list[Run]) -> dict[str, Any]:
    first = runs[0]
    losses: dict[str, dict[str, Any]] = {}
    for loss, decay in dict.fromkeys((run.loss, run.decay) for run in runs):
        mine = [run for run in runs if (run.loss, run.decay) == (loss, decay)]
        seeds = dict.fromkeys(run.seed for run in mine)  # a repeated seed counts once, with its mean
        values = [100 * statistics.fmean(run.accuracy for run in mine if run.seed == seed) for seed in seeds]
        std = round(statistics.stdev(values), 2) if len(values) > 1 else None
        found = {"loss": loss, "decay": decay, "mean": round(statistics.fmean(values), 2), "std": std, "n": len(values)}
        if loss not in losses or losses[loss]["mean"] < found["mean"]:
            losses[loss] = found
    return {
        **{"data": first.data, "kind": "images" if first.data in IMAGES else "features", "classes": first.classes},
        **{"examples": first.examples, "noise": first.noise, "family": _family(first.noise, first.classes)},
        **{"rate": round(statistics.fmean(run.rate for run in runs), 4), "record": first.record},
        "losses": sorted(losses.values(), key=lambda one: -one["mean"]),
    }


def _family(noise: str, classes: int) -> str:
    if PEOPLE in noise or DEPENDENT in noise:
        return "mixed"
    kind = noise.partition(":")[0]
    if kind == "none":
        return "none"
    return "symmetric" if kind == "symmetric" or classes == 2 else "pair"


def _trained() -> Iterator[Run]:
    from noiseproof.paper import recipe

    for name in TRAINED:
        for facts in _lines(name):
            one, task = facts["recipe"], facts["task"]
            if facts.get("status", "finished") != "finished":
                continue
            try:
                published = recipe(f"{one['dataset']}/{one['loss']}").loss_options
            except ValueError:
                continue  # not a loss of the paper
            if one["loss_options"] == published:
                where = task["name"], task["classes"], task["examples"], one["noise"].removeprefix("labels:")
                accuracy = facts["result"]["test_accuracy"]
                rate = task["noise"].get("rate", 0.0)
                # The two are one study: the same recipes but for the decay.
                yield Run(*where, rate, "records/reproduction.jsonl", one["loss"], _decay(one), one["seed"], accuracy)


def _own_defaults() -> Iterator[Run]:
    for one in _lines("own_defaults_cpu.jsonl"):
        if one["way"] in ("default", "L2 5e-4", "L1 5e-5", "no decay"):
            yield _small(one, "records/own_defaults_cpu.jsonl", _decay(one["recipe"]), one["test_accuracy"])


def _selection() -> Iterator[Run]:
    for one in _lines("selection_cpu.jsonl"):
        yield _small(one, "records/selection_cpu.jsonl", "none", one["accuracy"]["test"])


def _small(one: dict[str, Any], record: str, decay: str, accuracy: float) -> Run:
    classes, examples = OWN_DATA[one["data"]] if one["data"] in OWN_DATA else (10, len(load_digits().train))
    spec = NoiseSpec.parse(one["noise"])
    return Run(one["data"], classes, examples, one["noise"], spec.rate, record, one["loss"], decay, one["seed"], accuracy)


def _decay(recipe: dict[str, Any]) -> str:
    return " + ".join(f"{kind} {recipe[kind]:g}" for kind in ("l1", "l2") if recipe.get(kind)) or "none"


def _lines(name: str) -> list[dict[str, Any]]:
    file = RECORDS / name
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.is_file() else []
