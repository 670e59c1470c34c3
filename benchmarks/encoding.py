"""Encoding a table of mixed columns beside skrub's TableVectorizer alone, and the memory that reading and encoding take.

    python benchmarks/encoding.py                # 100,000 rows of 20 mixed columns
    python benchmarks/encoding.py --parquet 500  # also reads a Parquet file whose table takes 500 MB

Each part runs in a process of its own. Seconds are of the processor, so that other work does not count.
The peak of resident memory is counted beyond that of the imports.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

COLUMNS = {"number": 8, "category": 5, "boolean": 2, "date": 2, "text": 3}
WORDS = np.array(
    ["parcel", "late", "refund", "card", "price", "small", "broken", "great", "colour", "never", "order", "quality"]
)


def mixed(rows: int, seed: int = 0) -> pd.DataFrame:
    """Twenty columns with gaps of 3 %, as pandas reads them from a file."""
    draw = np.random.default_rng(seed)
    found: dict[str, Any] = {}
    for k in range(COLUMNS["number"]):
        found[f"number{k}"] = np.exp(draw.normal(size=rows)) if k % 2 else draw.normal(size=rows)
    for k, levels in enumerate((3, 8, 30, 200, 2000)):
        found[f"category{k}"] = np.array([f"level {j}" for j in range(levels)], object)[draw.integers(0, levels, rows)]
    for k in range(COLUMNS["boolean"]):
        found[f"boolean{k}"] = pd.array(draw.random(rows) < 0.3, dtype="boolean")
    for k in range(COLUMNS["date"]):
        found[f"date{k}"] = pd.Timestamp("2020-01-01") + pd.to_timedelta(draw.integers(0, 1500, rows), unit="D")
    for k in range(COLUMNS["text"]):
        found[f"text{k}"] = [" ".join(line) for line in WORDS[draw.integers(0, len(WORDS), (rows, 8))]]
    frame = pd.DataFrame(found)
    for name in frame.columns:
        frame[name] = frame[name].mask(draw.random(rows) < 0.03)
    return frame


def peak() -> int:
    """Of this process alone: ru_maxrss begins with that of the process that started it."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def measured(what: str, file: str) -> dict[str, float]:
    """Seconds, and bytes beyond those before, of one part."""
    from noiseproof.data import read_frame

    if what == "read":
        import pyarrow.parquet  # noqa: F401 # imports are not counted

        before, start = resident(), time.process_time()
        frame = read_frame(file)
        return {"seconds": time.process_time() - start, "bytes": peak() - before, "table": frame.memory_usage(deep=True).sum()}
    frame = pd.read_parquet(file)
    encode = by_skrub if what == "skrub" else by_noiseproof
    encode(frame.head(500))  # imports
    before, start = resident(), time.process_time()
    features = encode(frame)
    facts = {"seconds": time.process_time() - start, "bytes": peak() - before, "features": features}
    return {**facts, "table": frame.memory_usage(deep=True).sum()}


def by_skrub(frame: pd.DataFrame) -> int:
    """How many features TableVectorizer makes."""
    from skrub import TableVectorizer

    return int(TableVectorizer().fit_transform(frame).shape[1])


def by_noiseproof(frame: pd.DataFrame) -> int:
    """How many features a data set of the frame has."""
    from noiseproof.data import open_dataset

    return len(open_dataset(frame, label=[k % 2 for k in range(len(frame))]).columns)


def in_process(what: str, file: Path) -> dict[str, float]:
    words = [sys.executable, __file__, "--part", what, "--file", str(file)]
    environment = os.environ | {"ARROW_DEFAULT_MEMORY_POOL": "system"}
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=environment)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--parquet", type=int, default=0, metavar="MB", help="also read a table of so many megabytes")
    parser.add_argument("--repeats", type=int, default=3, help="of which the fastest counts")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    parser.add_argument("--file", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.part:
        print(json.dumps(measured(given.part, given.file), default=float))
        return
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "t.parquet")
        frame = mixed(given.rows)
        frame.to_parquet(file)
        found = {}
        print("| encoding | s | features | peak beyond the frame, in frames |\n|---|---|---|---|")
        for what in ("skrub", "noiseproof"):
            runs = [in_process(what, file) for _ in range(given.repeats)]
            best = found[what] = min(runs, key=lambda run: run["seconds"])
            print(
                f"| {what} | {best['seconds']:.1f} | {best['features']:.0f} | {best['bytes'] / best['table']:.1f} |", flush=True
            )
        print(f"\nnoiseproof takes {found['noiseproof']['seconds'] / found['skrub']['seconds']:.2f} times what skrub takes")
        if given.parquet:
            rows = int(given.rows * given.parquet * 1e6 / frame.memory_usage(deep=True).sum())
            mixed(rows).to_parquet(file)
            run = in_process("read", file)
            print(f"a Parquet file of {run['table'] / 1e6:.0f} MB as a table is read in {run['seconds']:.1f} s;", end=" ")
            print(f"the peak is {run['bytes'] / run['table']:.2f} times the table")


if __name__ == "__main__":
    main()
