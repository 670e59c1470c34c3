"""What ``noiseproof fit`` costs: seconds, CPU seconds and memory, from 1,000 to 1,000,000 rows.

    python benchmarks/fit_cost.py [--only small,middle] [--quick] [--json records/fit_cost_cpu.jsonl]

Each size is one command on data that this script makes: a table as CSV, embeddings as .npz. ``seconds`` is what the command
took, ``cpu`` the CPU seconds of all of its processes, and ``at 2 cores`` half of these: what it would take on a quiet machine
with two cores, which counts where other work shares the machine. Memory is the peak of the resident pages of all processes
together, pages that they share counted once. The script ends with status 1 if a size takes longer at two cores, or more
memory, than it may, or if a row of a million costs more than 1.5 times what a row of ten thousand does.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np


class Size(NamedTuple):
    """One size of data, and what a fit of it may take."""

    rows: int
    columns: int
    classes: int
    suffix: str
    seconds: float
    """With two cores"""
    gigabytes: float = 6.0


SIZES = {
    "small": Size(1_000, 30, 3, ".csv", 15),
    "middle": Size(5_000, 100, 3, ".csv", 60),
    "ten-thousand": Size(10_000, 30, 3, ".csv", 60),
    "embeddings": Size(50_000, 256, 10, ".npz", 360),
    "million": Size(1_000_000, 30, 3, ".csv", 2400),
}
QUICK_SHARE = 0.2
"""Of the time of a fit that ``--quick`` may take"""
MAX_RATIO = 1.5
"""The time of a row of a million by that of a row of ten thousand"""
WRONG = 0.2
POLL_SECONDS = 1.0
CORES = 2


def main() -> None:
    """Measure, print a line for each size, and append the records if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="sizes to measure, with commas between")
    parser.add_argument("--quick", action="store_true", help="noiseproof fit --quick, which may take a fifth")
    parser.add_argument("--json", type=Path, help="append a line for each size to this file")
    options = parser.parse_args()
    print(
        f"{'size':13} {'rows':>9} {'columns':>7} {'seconds':>8} {'cpu':>8} {'at 2 cores':>10} {'may take':>8} {'GB':>5}",
        flush=True,
    )
    found = {}
    for name in SIZES if options.only is None else options.only.split(","):
        found[name] = measure(name, SIZES[name], options.quick)
        one = found[name]
        print(
            f"{name:13} {one['rows']:9,} {one['columns']:7} {one['seconds']:8.1f} {one['cpu_seconds']:8.1f} "
            f"{one['at_two_cores']:10.1f} {one['limit']:8.0f} {one['gigabytes']:5.2f}",
            flush=True,
        )
        if options.json is not None:
            with options.json.open("a", encoding="utf-8") as file:
                file.write(json.dumps(one) + "\n")
    if faults := judge(found):
        sys.exit("; ".join(faults))


def judge(found: dict[str, dict[str, Any]]) -> list[str]:
    """What took more than it may."""
    faults = [
        f"{name} takes {one['at_two_cores']:.0f} s of {one['limit']:.0f}"
        for name, one in found.items()
        if one["at_two_cores"] > one["limit"]
    ]
    faults += [
        f"{name} takes {one['gigabytes']:.1f} GB" for name, one in found.items() if one["gigabytes"] > SIZES[name].gigabytes
    ]
    if {"ten-thousand", "million"} <= found.keys():
        by_row = [found[name]["cpu_seconds"] / found[name]["rows"] for name in ("ten-thousand", "million")]
        if by_row[1] > MAX_RATIO * by_row[0]:
            faults.append(f"a row of a million takes {by_row[1] / by_row[0]:.1f} times that of ten thousand")
    return faults


def measure(name: str, size: Size, quick: bool) -> dict[str, Any]:
    """The record of one command."""
    with tempfile.TemporaryDirectory() as folder:
        path = write_data(Path(folder) / f"data{size.suffix}", size)
        command = [sys.executable, "-m", "noiseproof", "fit", str(path), "--out", str(Path(folder) / "model"), "--quiet"]
        before, start = children_seconds(), time.perf_counter()
        process = subprocess.Popen([*command, *(["--quick"] if quick else [])], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        peak = PeakMemory(process.pid)
        output, errors = process.communicate()
        seconds, gigabytes = time.perf_counter() - start, peak.stop()
    if process.returncode:
        sys.exit(f"{' '.join(command)} ended with status {process.returncode}: {errors.decode()[-500:]}")
    cpu = children_seconds() - before
    return {
        "size": name,
        "rows": size.rows,
        "columns": size.columns,
        "classes": size.classes,
        "quick": quick,
        "seconds": round(seconds, 2),
        "cpu_seconds": round(cpu, 2),
        "at_two_cores": round(cpu / CORES, 2),
        "limit": size.seconds * (QUICK_SHARE if quick else 1),
        "gigabytes": round(gigabytes, 3),
        "load": round(os.getloadavg()[0], 1),
        "verdict": output.decode().splitlines()[:3],
        "date": time.strftime("%Y-%m-%d"),
    }


def write_data(path: Path, size: Size) -> Path:
    """Rows of overlapping classes, a fifth of the labels wrong."""
    random = np.random.default_rng(0)
    labels = random.integers(size.classes, size=size.rows)
    centres = random.normal(size=(size.classes, size.columns)) * 2 / np.sqrt(size.columns)
    x = (random.normal(size=(size.rows, size.columns)) + centres[labels]).astype(np.float32)
    x[:, 0] += np.where(labels == 0, x[:, 1] ** 2, 0)  # more than a linear model can tell
    given = np.where(random.random(size.rows) < WRONG, random.integers(size.classes, size=size.rows), labels)
    if path.suffix == ".npz":
        np.savez(path, x=x, y=given)
        return path
    import pandas as pd

    frame = pd.DataFrame(x, columns=[f"x{k}" for k in range(size.columns)])
    frame["label"] = given
    frame.to_csv(path, index=False, float_format="%.5g")
    return path


def children_seconds() -> float:
    """CPU seconds of all processes that have ended."""
    found = os.times()
    return found.children_user + found.children_system


class PeakMemory:
    """The most memory that a process and its children have used together, in gigabytes."""

    def __init__(self, pid: int) -> None:
        self.pid, self.most, self.ended = pid, 0, threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)
        self.thread.start()

    def stop(self) -> float:
        self.ended.set()
        self.thread.join()
        return self.most / 2**20

    def _watch(self) -> None:
        while not self.ended.wait(POLL_SECONDS):
            self.most = max(self.most, sum(map(kilobytes, family(self.pid))))


def family(pid: int) -> list[int]:
    """A process and all that descend from it."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:  # it has ended
            continue
    found = [pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found


def kilobytes(pid: int) -> int:
    """The resident pages of a process, a page that several processes share counted in parts."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)


if __name__ == "__main__":
    main()
