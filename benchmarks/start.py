"""How long a command takes that computes nothing: its help, the list of losses, a usage error.

    python benchmarks/start.py [--repeats 15] [--json FILE]

Each command is a process of its own, and so is ``python -c pass``, with which it is compared; they take turns, so that other
work on the machine slows all of them. A command that imports a library for numbers is an error.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

COMMANDS = {
    "noiseproof --help": (["--help"], 0),
    "noiseproof audit --help": (["audit", "--help"], 0),
    "noiseproof losses": (["losses"], 0),
    "noiseproof losses jal-ce": (["losses", "jal-ce"], 0),
    "noiseproof trian": (["trian"], 2),
    "noiseproof train --epochs 3": (["train", "digits/ce", "--epochs", "3"], 2),
}
"""Each command with its arguments and its exit status"""
EMPTY_PROGRAM = "python -c pass"
SLOW_IMPORTS = ("torch", "numpy", "scipy", "sklearn", "pandas", "matplotlib")
LIMIT_SECONDS = 0.6
"""On a quiet machine"""


def main() -> None:
    """Measure, print a table, and write the numbers if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=15, help="runs of each command")
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    options = parser.parse_args()
    for name, (arguments, status) in COMMANDS.items():
        if found := slow_imports(arguments, status):
            sys.exit(f"{name} imports {', '.join(found)}")
    facts = measure(options.repeats)
    print(table(facts))
    if options.json is not None:
        options.json.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


def slow_imports(arguments: list[str], status: int) -> list[str]:
    """The libraries for numbers that a command imports."""
    command = [sys.executable, "-X", "importtime", "-m", "noiseproof", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != status:
        sys.exit(f"{' '.join(command)} ended with status {done.returncode}, not {status}: {done.stderr[-500:]}")
    imported = set(re.findall(r"^import time:.*\| +(\w+)$", done.stderr, re.MULTILINE))
    return sorted(imported & set(SLOW_IMPORTS))


def measure(repeats: int) -> dict[str, dict[str, float]]:
    """Of each command the median of its seconds and quartiles, and the median of its ratios to the empty program."""
    commands = {EMPTY_PROGRAM: [sys.executable, "-c", "pass"]}
    commands |= {name: [sys.executable, "-m", "noiseproof", *arguments] for name, (arguments, _) in COMMANDS.items()}
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(repeats):
        for name, command in commands.items():
            start = time.perf_counter()
            subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
            seconds[name].append(time.perf_counter() - start)
    facts = {}
    for name, values in seconds.items():
        low, middle, high = statistics.quantiles(values, n=4)
        ratios = [value / empty for value, empty in zip(values, seconds[EMPTY_PROGRAM], strict=True)]
        facts[name] = {"seconds": middle, "quartile_1": low, "quartile_3": high, "ratio": statistics.median(ratios)}
    return facts


def table(facts: dict[str, dict[str, float]]) -> str:
    """The numbers as text."""
    width = max(map(len, facts))
    lines = [f"{'command':{width}}  seconds  quartiles       times an empty program"]
    for name, one in facts.items():
        spread = f"{one['quartile_1']:.3f} to {one['quartile_3']:.3f}"
        late = f"  over {LIMIT_SECONDS} s" if one["seconds"] > LIMIT_SECONDS else ""
        lines.append(f"{name:{width}}  {one['seconds']:7.3f}  {spread}  {one['ratio']:5.1f}{late}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
