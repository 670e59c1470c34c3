"""How much longer a command takes beside other work: as many busy loops as there are cores.

    python benchmarks/loaded.py [--repeats 1] [--only train,audit] [--json FILE]

Each command is a process of its own on small data that this script makes. A computation whose threads wait for each other takes
many times as long where others use the cores too; one that has a thread of its own takes about twice as long. The script ends
with status 1 if a command takes more than three times as long. CPU seconds are those of the command and its processes: more of
them beside other work are threads that wait busily, and on a machine that is not quiet they say more than the ratio.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

LIMIT = 3.0
"""Times as long as on a quiet machine"""
CLASSIFIER = """
import numpy as np
from noiseproof.sklearn import NoiseRobustClassifier
table = np.loadtxt("table.csv", delimiter=",", skiprows=1)
NoiseRobustClassifier("jal-ce", epochs=60, random_state=0).fit(table[:, :-1], table[:, -1]).predict(table[:, :-1])
"""
NOISEPROOF = ["-m", "noiseproof"]
COMMANDS = {
    "train": [*NOISEPROOF, "train", "jal-ce", "--data", "table.csv", "--set", "epochs=60", "--quiet", "--out", "OUT"],
    "train, images": [
        *NOISEPROOF, "train", "ce", "--data", "images.npz", "--model", "cnn5", "--set", "epochs=2", "--quiet", "--out", "OUT",
    ],
    "compare": [
        *NOISEPROOF, "compare", "ce,jal-ce", "--data", "table.csv", "--test-size", "0.2", "--seeds", "2", "--set", "epochs=30",
        "--out", "OUT",
    ],
    "audit": [*NOISEPROOF, "audit", "table.csv", "--quiet", "--out", "OUT"],
    "fit": [*NOISEPROOF, "fit", "table.csv", "--label", "label", "--quiet", "--out", "OUT"],
    "NoiseRobustClassifier": ["-c", CLASSIFIER],
}  # fmt: skip
"""What Python runs, in a folder with the data; OUT is a new folder for each"""


def main() -> None:
    """Measure, print a table, and write the numbers if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=1, help="runs of each command, quiet and loaded in turn")
    parser.add_argument("--only", help="commands to measure, with commas between")
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    options = parser.parse_args()
    chosen = COMMANDS if options.only is None else {name: COMMANDS[name] for name in options.only.split(",")}
    cores = len(os.sched_getaffinity(0))
    head = f"{'command':24} {'quiet, s':>9} {'loaded, s':>9} {'ratio':>6} {'CPU, s':>7} {'loaded':>7}"
    print(f"{head}   beside {cores} busy loops on {cores} cores")
    facts = {}
    with tempfile.TemporaryDirectory() as folder:
        write_data(Path(folder))
        for name, command in chosen.items():
            facts[name] = measure(command, Path(folder), options.repeats, cores)
            found = facts[name]
            line = f"{name:24} {found['quiet']:9.1f} {found['loaded']:9.1f} {found['ratio']:6.2f}"
            print(f"{line} {found['quiet CPU']:7.1f} {found['loaded CPU']:7.1f}", flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    if slow := [name for name, found in facts.items() if found["ratio"] > LIMIT]:
        sys.exit(f"more than {LIMIT:g} times as long: {', '.join(slow)}")


def write_data(folder: Path) -> None:
    """A table of 600 rows and 18 columns, and 600 small images, of three classes each, a fifth of the labels wrong."""
    random = np.random.default_rng(0)
    labels = np.arange(600) % 3
    given = np.where(random.random(600) < 0.2, random.integers(0, 3, 600), labels)
    features = random.normal(size=(600, 18)) + 0.8 * np.eye(3, 18)[labels] * 3
    header = ",".join([*(f"x{k}" for k in range(18)), "label"])
    np.savetxt(folder / "table.csv", np.column_stack([features, given]), delimiter=",", header=header, comments="", fmt="%.6g")
    images = random.integers(0, 160, (600, 28, 28, 1)) + 30 * labels[:, None, None, None]
    np.savez(folder / "images.npz", x=images.astype(np.uint8), y=given)


def measure(command: list[str], folder: Path, repeats: int, cores: int) -> dict[str, float]:
    """The median seconds of a command alone and beside busy loops, and their ratio; CPU seconds likewise."""
    quiet, loaded = [], []
    for _ in range(repeats):
        quiet.append(seconds(command, folder))
        with busy_loops(cores):
            loaded.append(seconds(command, folder))
    found = {}
    for title, runs in (("quiet", quiet), ("loaded", loaded)):
        found[title], found[f"{title} CPU"] = (statistics.median(each) for each in zip(*runs, strict=True))
    return {**found, "ratio": found["loaded"] / found["quiet"]}


def seconds(command: list[str], folder: Path) -> tuple[float, float]:
    """That a command takes, and CPU seconds; an error if it fails."""
    with tempfile.TemporaryDirectory(dir=folder) as out:
        words = [sys.executable, *(str(Path(out) / "made") if word == "OUT" else word for word in command)]
        start, computed = time.perf_counter(), cpu_seconds()
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
        taken = time.perf_counter() - start, cpu_seconds() - computed
    if done.returncode:
        sys.exit(f"{' '.join(words)} ended with status {done.returncode}: {done.stderr[-500:]}")
    return taken


def cpu_seconds() -> float:
    """Of all processes that this one started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@contextmanager
def busy_loops(count: int) -> Iterator[None]:
    """Processes that do nothing but compute."""
    running = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


if __name__ == "__main__":
    main()
