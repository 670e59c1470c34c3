"""Whether the commands that noiseproof prints lead to a good model: each is followed literally on ten data sets.

    python benchmarks/next_commands.py --sets DIR --records records/next_commands.jsonl [--only 'wine,sst2*'] [--keep DIR]

A person has a file of features or images with labels of which some are wrong, and runs ``noiseproof advise FILE`` or
``noiseproof audit FILE``. Every command that is printed after *next*, or stands on the page that was written, is run as it
stands, and what it prints is followed too. On the first page with decisions the person drops every flagged label. Each model
that this ends with predicts the test rows, by the command that ``fit`` and ``train`` print for that, and is compared with cross
entropy that is stopped early on a fifth of the given labels: with the package's default network for such data, and of features
also with that network on the columns as they are. The better one of the two, by the test rows, is the rival.

``also`` is a network that is trained on the soft labels of the audit, ``train ce --labels audit/posterior.npz``, where no
command to do so is printed: on features.

``--sets`` is a folder of ``.npz`` files as benchmarks/zoo.py reads them; the other sets are scikit-learn's. Up to 500 rows are
trained on, of images 300. A line is written for each set, and what has a line is not repeated.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import fnmatch
import html
import json
import os
import re
import shlex
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from typer.testing import CliRunner
from zoo import lines_of, noisy, problem_of
from zoo_methods import VALIDATION, Labels, trained_probabilities

from noiseproof.cli import app
from noiseproof.data import Split, from_arrays, held_out
from noiseproof.train import own_recipe
from noiseproof.train.record import environment

ROWS, IMAGES = 500, 300
ROOTS = ("noiseproof advise data.npz", "noiseproof audit data.npz")
NEXT = re.compile(r"^(?:next[^:]*|for new examples): (noiseproof .*)$|<pre><code>(.*?)</code></pre>", re.MULTILINE)
ON_SOFT_LABELS = "noiseproof train ce --data data.npz --labels audit/posterior.npz"
PAGES = {"audit": "audit.html", "fit": "report.html"}
"""By the verb, in the folder that ``--out`` names"""
SETS = {
    "wine": ("small", "sym:0.3"),
    "breast cancer": ("clean", "none"),
    "digits": ("balanced", "sym:0.3"),
    "digits, eight or not": ("1:9", "sym:0.2"),
    "digits, images": ("images on a CPU", "pair:0.3"),
    "sst2": ("embeddings of texts", "sym:0.2"),
    "yelp_weak": ("labels by rules, texts", "given"),
    "labelme_single": ("labels by a person", "given"),
    "cifar10": ("labels by people", "given:worst"),
    "tab_yeast3": ("table, 1:8", "two:0.3:0.12"),
}
"""What each is an example of, and its noise"""


class Data(NamedTuple):
    """What a person has, and what only the benchmark knows."""

    x: NDArray[Any]
    given: Labels
    x_test: NDArray[Any]
    y_test: Labels


class Model(NamedTuple):
    """Where following the commands ended."""

    commands: tuple[str, ...]
    accuracy: float
    balanced_accuracy: float


def main(arguments: Sequence[str] | None = None) -> None:
    """Follow the commands on the data sets that have no line yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=Path, required=True, help="JSON lines; what is there is not repeated")
    parser.add_argument("--sets", type=Path, required=True, help="a folder of .npz files")
    parser.add_argument("--only", default="*", help="sets, with commas between; * matches anything")
    parser.add_argument("--seeds", default="1,2,3", help="of the rows, the noise and the network that is stopped early")
    parser.add_argument("--keep", type=Path, help="where the files of each set are kept, with what was printed")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    done = {(one["set"], one.get("seed", 1)) for one in lines_of(options.records)}
    asked = [name for name in SETS if any(fnmatch.fnmatch(name, pattern) for pattern in options.only.split(","))]
    for seed in map(int, options.seeds.split(",")):
        for name in (name for name in asked if (name, seed) not in done):
            facts = line(options.sets, name, options.keep, seed)
            with options.records.open("a", encoding="utf-8") as file:
                file.write(json.dumps(facts) + "\n")


def line(folder: Path, name: str, keep: Path | None, seed: int) -> dict[str, Any]:
    """What following the commands on a set ends with."""
    kind, noise = SETS[name]
    data, start = data_of(folder, name, noise, seed), time.monotonic()
    rivals = {"default": scores(data, early_stopped(data, seed))}
    if data.x.dtype != np.uint8:
        rivals["as they are"] = scores(data, early_stopped(data, seed, scaled=False))
    baseline = max(rivals.values(), key=lambda found: found["accuracy"])
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch) if keep is None else keep / f"{name}, {seed}".replace(", ", "_").replace(" ", "_")
        place.mkdir(parents=True, exist_ok=True)
        models = followed(data, place)
        printed = any(one.commands[-1] == ON_SOFT_LABELS for one in models)
        also = [] if printed else followed(data, place, (ON_SOFT_LABELS,))
    counts = np.bincount(data.given)
    return {
        "set": name, "seed": seed, "kind": kind, "noise": noise, "rows": len(data.x), "counts": counts.tolist(),
        "early": baseline, "rivals": rivals, "models": [one._asdict() for one in models],
        "also": [one._asdict() for one in also],
        "seconds": round(time.monotonic() - start, 1), "environment": environment(torch.device("cpu")),
    }  # fmt: skip


# ---- data


def data_of(folder: Path, name: str, noise: str, seed: int) -> Data:
    """Features or images with noisy labels, and test rows with correct ones."""
    if (folder / f"{name}.npz").is_file():
        problem = problem_of(folder / f"{name}.npz", noise, seed, ROWS)
        return Data(problem.x, problem.given, problem.x_test, problem.y_test)
    from sklearn.datasets import load_breast_cancer, load_digits, load_wine
    from sklearn.model_selection import train_test_split

    load = {"wine": load_wine, "breast cancer": load_breast_cancer}.get(name, load_digits)
    x, y = load(return_X_y=True)
    if name.endswith("images"):
        x = np.repeat(np.repeat((x.reshape(-1, 8, 8) * 15.9).astype(np.uint8), 2, 1), 2, 2)
    y = (y == 8).astype(np.int64) if name.endswith("not") else y.astype(np.int64)
    x, x_test, y, y_test = train_test_split(x, y, test_size=0.4, stratify=y, random_state=seed)
    rows = IMAGES if name.endswith("images") else ROWS  # at random: the split has shuffled them
    return Data(x[:rows], noisy(y[:rows], int(y.max()) + 1, noise, seed), x_test, y_test)


def early_stopped(data: Data, seed: int, scaled: bool = True) -> Labels:
    """What cross entropy predicts, stopped early on given labels, of features scaled by default or as they are."""
    inputs = data.x if data.x.dtype == np.uint8 else data.x.astype(np.float32)
    mask = held_out(data.given, VALIDATION)
    dataset = from_arrays(inputs[~mask], data.given[~mask], inputs[mask], data.given[mask], name="data")
    wanted: Any = from_arrays(data.x_test.astype(inputs.dtype), np.zeros(len(data.x_test), np.int64)).train
    recipe = own_recipe(dataset, "data", "ce", seed=seed, gpu=False)
    if not scaled:
        recipe = dataclasses.replace(recipe, standardise=False, global_scaling=False)
    validation: Any = dataset.test
    if inputs.dtype == np.uint8:  # with their one channel
        validation, wanted = (Split(one.inputs[..., None], one.labels) for one in (validation, wanted))
    p = trained_probabilities(recipe, dataset, wanted, validation)
    return np.asarray(p.argmax(1), np.int64)


def scores(data: Data, predicted: Labels) -> dict[str, float]:
    right = predicted == data.y_test
    recalls = [float(right[data.y_test == k].mean()) for k in np.unique(data.y_test)]
    return {"accuracy": round(float(right.mean()), 5), "balanced_accuracy": round(float(np.mean(recalls)), 5)}


# ---- commands


def followed(data: Data, place: Path, roots: Sequence[str] = ROOTS) -> list[Model]:
    """Every command from the roots on, each once; and what the models predict."""
    inputs = "x" if data.x.dtype == np.uint8 else "f4"
    np.savez(place / "data.npz", x=data.x if inputs == "x" else data.x.astype(inputs), y=data.given)
    np.savez(place / "new.npz", x=data.x_test if inputs == "x" else data.x_test.astype(inputs))
    models: dict[tuple[str, ...], Model] = {}
    queue: list[tuple[str, ...]] = [(root,) for root in roots]
    seen = set(roots)
    while queue:
        chain = queue.pop(0)
        for found in commands_of(output_of(chain[-1], place)):
            if found.startswith("noiseproof predict"):
                if chain not in models:
                    output_of(re.sub(r"--data \S+", "--data new.npz", found), place)
                    models[chain] = Model(chain, **scores(data, predictions(place)))
            elif found not in seen and not ("--decisions" in found and any("--decisions" in one for one in seen)):
                seen.add(found)
                queue.append((*chain, found))
    return [*models.values()]


def commands_of(text: str) -> list[str]:
    """The commands in what was printed, or in a page."""
    plain = (html.unescape(re.sub("<.*?>", "", "".join(found))) for found in NEXT.findall(text))
    return list(dict.fromkeys(plain))


def decide(place: Path, folder: str) -> None:
    """What a person might decide on a page: drop every flagged label."""
    with (place / folder / "audit.csv").open(newline="", encoding="utf-8") as file:
        flagged = [row["index"] for row in csv.DictReader(file) if row["flagged"] == "1"]
    text = "index,decision\n" + "".join(f"{index},drop\n" for index in flagged)
    (place / "decisions.csv").write_text(text, encoding="utf-8")


def predictions(place: Path) -> Labels:
    with (place / "predictions.csv").open(newline="", encoding="utf-8") as file:
        return np.array([int(row["predicted"]) for row in csv.DictReader(file)])


def output_of(command: str, place: Path) -> str:
    """What a command prints, and the page that it writes; it must succeed."""
    words = shlex.split(command)
    folder = words[words.index("--out") + 1] if "--out" in words else "audit"
    if "--decisions" in words:
        decide(place, folder)
    before = Path.cwd()
    os.chdir(place)
    try:
        done = CliRunner().invoke(app, words[1:], env={"COLUMNS": "400", "NO_COLOR": "1", "TERM": "dumb"})
    finally:
        os.chdir(before)
    with (place / "printed.txt").open("a", encoding="utf-8") as file:
        file.write(f"$ {command}\n{done.output}\n")
    if done.exit_code:
        raise SystemExit(f"{command} in {place}: {done.output[-2000:]}")
    page = place / folder / PAGES.get(words[1], "")
    return done.stdout + (page.read_text(encoding="utf-8") if words[1] in PAGES and "--decisions" not in words else "")


if __name__ == "__main__":
    main()
