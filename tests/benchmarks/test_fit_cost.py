"""benchmarks/fit_cost.py: what it measures and what it calls too much."""

import os
import subprocess
import sys

import numpy as np
import pytest

from benchmarks import fit_cost


def record(name, seconds, gigabytes=1.0):
    size = fit_cost.SIZES[name]
    return {
        "rows": size.rows, "cpu_seconds": 2 * seconds, "at_two_cores": seconds, "limit": size.seconds, "gigabytes": gigabytes
    }  # fmt: skip


def test_what_takes_too_long_too_much_or_more_by_row_is_named():
    assert fit_cost.judge({"small": record("small", 14)}) == []
    assert fit_cost.judge({"small": record("small", 16)}) == ["small takes 16 s of 15"]
    assert fit_cost.judge({"small": record("small", 1, 6.5)}) == ["small takes 6.5 GB"]
    pair = {"ten-thousand": record("ten-thousand", 10), "million": record("million", 1600)}
    assert fit_cost.judge(pair) == ["a row of a million takes 1.6 times that of ten thousand"]


def test_data_have_the_size_and_wrong_labels(tmp_path):
    size = fit_cost.Size(50, 4, 3, ".csv", 1)
    lines = fit_cost.write_data(tmp_path / "data.csv", size).read_text(encoding="utf-8").splitlines()
    assert len(lines) == 51
    assert lines[0] == "x0,x1,x2,x3,label"
    with np.load(fit_cost.write_data(tmp_path / "data.npz", size)) as found:
        assert found["x"].shape == (50, 4)
        assert set(found["y"]) == {0, 1, 2}


@pytest.mark.skipif(not os.path.exists("/proc/self/smaps_rollup"), reason="needs Linux's /proc")
def test_the_memory_is_that_of_a_process_and_its_children():
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'x = bytes(1) * 2**27; input()'])"
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE)
    peak = fit_cost.PeakMemory(process.pid)
    while len(fit_cost.family(process.pid)) < 2 or sum(map(fit_cost.kilobytes, fit_cost.family(process.pid))) < 2**17:
        pass
    process.communicate(b"\n", timeout=600)
    assert sorted(fit_cost.family(process.pid)) == [process.pid]
    assert peak.stop() < 4
