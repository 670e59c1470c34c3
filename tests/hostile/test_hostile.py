"""Every hostile file gets one sentence or is read rightly: no crash, no hang, no trace, no gigabyte. The cases are tables."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.hostile.harness import BYTES, SECONDS, Bench, cases


@pytest.fixture(scope="module")
def bench():
    with Bench() as ready:
        yield ready


@pytest.mark.parametrize(
    "key", [pytest.param(key, marks=pytest.mark.slow) if case.slow else key for key, case in cases().items()]
)
def test_a_hostile_file_gets_one_sentence_or_is_read_rightly(bench, key):
    outcome = bench.run(key)
    assert outcome.fine, f"{outcome.kind} after {outcome.seconds:.2f} s: {outcome.text}"


@pytest.mark.parametrize("key", cases("faults.py"))
def test_the_harness_notices(bench, key):
    assert bench.run(key).kind == re.split(" at | with ", key.removeprefix("faults-"))[0]


@pytest.mark.slow
def test_random_changes_of_files_are_read_or_refused_in_one_line_within_the_limits():
    """A minute, divided among all readers, and 3,000 files at least."""
    command = [sys.executable, "-m", "tests.hostile.fuzz", "60", "0", "3000"]
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(command, capture_output=True, text=True, cwd=root, timeout=900, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    *faults, total = map(json.loads, done.stdout.splitlines())
    assert not faults
    assert total["readers"] >= 20
    assert total["files"] == total["refused"] + total["accepted"] >= 3000
    assert total["refused"] > 100
    assert 0 < total["slowest_seconds"] <= SECONDS
    assert 0 < total["peak_mib"] <= BYTES / 2**20
