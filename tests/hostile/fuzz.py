"""Files of the hostile cases, changed at random, for every reader: ``python -m tests.hostile.fuzz SECONDS SEED``.

Hypothesis draws a case, and what is done to the bytes of its file: cut, repeated, exchanged, replaced by others or by those
that mean something somewhere. Whatever comes of it, the reader must accept it or refuse it in one line that names the file,
within the limits of the harness. It prints a JSON object for each fault, shrunk by Hypothesis, and one in the end.
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


def fuzzed(cases, seconds, seed):
    """How many files were read within so many seconds, by how it ended, and the fault if there is one."""
    ended, fault, end = Counter(), [], time.monotonic() + seconds

    changed_cases = st.tuples(st.sampled_from(cases), st.lists(CHANGE, min_size=1, max_size=4))

    @hypothesis.seed(seed)
    @hypothesis.settings(max_examples=10**6, deadline=None, database=None, suppress_health_check=list(hypothesis.HealthCheck))
    @hypothesis.given(st.lists(changed_cases, min_size=1, max_size=harness.BATCH))
    def some(drawn):  # several, which share a fork
        if time.monotonic() > end:
            raise KeyboardInterrupt
        for (case, changes), outcome in zip(drawn, harness.run([with_changes(*each) for each in drawn]), strict=True):
            ended[outcome.kind] += 1
            if not outcome.fine:
                fault[:] = [{"case": case.name, "changes": repr(changes), "kind": outcome.kind, "text": outcome.text[-1500:]}]
                raise AssertionError(outcome.kind)

    try:
        some()
    except KeyboardInterrupt:
        pass
    except AssertionError:
        return ended, fault[0]
    return ended, fault[0] if fault else None


def main():
    seconds, seed = float(sys.argv[1]), int(sys.argv[2])
    harness.import_once()
    readers, total, faults = examples(), Counter(), 0
    for name, cases in readers.items():
        ended, fault = fuzzed(cases, seconds / len(readers), seed)
        total += ended
        if fault is not None:
            faults += 1
            print(json.dumps({"reader": name, **fault}), flush=True)
    print(json.dumps({"readers": len(readers), "faults": faults, **total}))


if __name__ == "__main__":
    main()
