"""Files of the hostile cases, changed at random, for every reader: ``python -m tests.hostile.fuzz SECONDS SEED [FILES]``.

The seconds are divided among the readers; each goes on until it had its share of the files as well.

Hypothesis draws a case, and what is done to the bytes of its file: cut, repeated, exchanged, replaced by others or by those
that mean something somewhere. Whatever comes of it, the reader must accept it or refuse it in one line that names the file,
within the limits of the harness. It prints a JSON object for each fault, shrunk by Hypothesis, and one in the end: how many
were read and refused, the most processor time and the most resident memory beyond that of before, in MiB, that one took.
"""

import importlib
import json
import sys
import tempfile
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import hypothesis
from hypothesis import strategies as st

from tests.hostile import harness

AREAS = ("arrays", "audit", "images", "json", "labels", "predict", "records", "tables", "weights")
MAX_BYTES = 2**16
"""Of the files that are changed: larger ones are hostile by their size"""
WORDS = [b"", b"\0", b"\n", b",", b'"', b"-1", b"nan", b"1e999", b"9" * 40, b"{", b"]", b"\xff\xfe", b"\xef\xbb\xbf", b"PK\3\4"]
WORDS += [
    b"\x93NUMPY",
    b"\x80\4",
    b"(1,)",
    b"true",
    b"null",
    b"\x7f\xff\xff\xff",
    b"\xff" * 8,
    b"\r\n" * 9,
    b"../x",
    "é".encode(),
]
PLACE = st.integers(0, 2**16)
CHANGE = st.one_of(
    st.tuples(st.just("cut"), PLACE, PLACE),
    st.tuples(st.just("repeat"), PLACE, st.integers(1, 300)),
    st.tuples(st.just("put"), PLACE, st.sampled_from(WORDS) | st.binary(max_size=12)),
    st.tuples(st.just("over"), PLACE, st.sampled_from(WORDS) | st.binary(min_size=1, max_size=4)),
    st.tuples(st.just("flip"), PLACE, st.integers(0, 7)),
)


def changed(content, changes):
    """The bytes after some changes."""
    for kind, place, how in changes:
        at = place % (len(content) + 1)
        before, after = content[:at], content[at:]
        if kind == "cut":
            content = before + after[how % (len(after) + 1) :]
        elif kind == "repeat":
            content = before + after[:how] * 2 + after[how:]
        elif kind == "put":
            content = before + how + after
        elif kind == "over":
            content = before + how + after[len(how) :]
        elif after:
            content = before + bytes([after[0] ^ 1 << how]) + after[1:]
    return content[: 4 * MAX_BYTES]


def examples():
    """Cases whose file is a small regular one, by the reader."""
    found = {}
    for area in AREAS:
        module = importlib.import_module(f"tests.hostile.cases_{area}")
        for case in module.CASES:
            if case.slow:
                continue
            with tempfile.TemporaryDirectory() as folder:
                try:
                    path = case.make(Path(folder))
                    fits = path.is_file() and not path.is_symlink() and path.stat().st_size <= MAX_BYTES
                except OSError:
                    fits = False
            if fits:
                known = replace(case, attempt=module.ATTEMPTS[case.attempt], expected="", holds=None, either=True)
                found.setdefault(f"{area} {case.attempt}", []).append(known)
    return found


def with_changes(case, changes):
    """The case of the changed file."""

    def make(folder):
        path = case.make(folder)
        path.write_bytes(changed(path.read_bytes(), changes))
        return path

    return replace(case, make=make)


class Tally:
    """How many files were read, by how it ended, and which were the slowest and the largest."""

    def __init__(self):
        self.ended = Counter()
        self.slowest, self.largest = (0.0, ""), (0, "")

    def add(self, outcome, name):
        """Count the outcome of a file."""
        self.ended[outcome.kind] += 1
        self.slowest = max(self.slowest, (outcome.seconds, name))
        self.largest = max(self.largest, (outcome.peak, name))

    def as_dict(self):
        """What is printed."""
        (seconds, slow), (peak, large) = self.slowest, self.largest
        return {
            "files": self.ended.total(), **self.ended,
            "slowest_seconds": round(seconds, 3), "slowest": slow, "peak_mib": round(peak / 2**20, 1), "largest": large,
        }  # fmt: skip


def fuzzed(reader, cases, seconds, seed, files, tally):
    """Read changed files for so many seconds, and at least so many; the fault if there is one."""
    fault, end, before = [], time.monotonic() + seconds, tally.ended.total()

    changed_cases = st.tuples(st.sampled_from(cases), st.lists(CHANGE, min_size=1, max_size=4))

    @hypothesis.seed(seed)
    @hypothesis.settings(max_examples=10**6, deadline=None, database=None, suppress_health_check=list(hypothesis.HealthCheck))
    @hypothesis.given(st.lists(changed_cases, min_size=harness.BATCH // 2, max_size=harness.BATCH))
    def some(drawn):  # many, which share a fork: that takes longer than most of them
        if time.monotonic() > end and tally.ended.total() - before >= files:
            raise KeyboardInterrupt
        for (case, changes), outcome in zip(drawn, harness.run([with_changes(*each) for each in drawn]), strict=True):
            tally.add(outcome, f"{reader}: {case.name}")
            if not outcome.fine:
                fault[:] = [{"case": case.name, "changes": repr(changes), "kind": outcome.kind, "text": outcome.text[-1500:]}]
                raise AssertionError(outcome.kind)

    try:
        some()
    except KeyboardInterrupt:
        pass
    except AssertionError:
        return fault[0]
    return fault[0] if fault else None


def main():
    seconds, seed, files = float(sys.argv[1]), int(sys.argv[2]), int((*sys.argv, 0)[3])
    harness.import_once()
    readers, tally, faults = examples(), Tally(), 0
    for name, cases in readers.items():
        fault = fuzzed(name, cases, seconds / len(readers), seed, -(-files // len(readers)), tally)
        if fault is not None:
            faults += 1
            print(json.dumps({"reader": name, **fault}), flush=True)
    print(json.dumps({"readers": len(readers), "faults": faults, **tally.as_dict()}))


if __name__ == "__main__":
    main()
