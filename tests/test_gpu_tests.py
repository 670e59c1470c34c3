"""The script that runs the tests on a GPU, tried on tests of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[1] / "tools" / "gpu_tests.py"
TESTS = """
import os, time, pytest

@pytest.mark.parametrize("i", range(4))
def test_passes(i): pass

def test_fails(): assert 1 == 2, "one is not two"

@pytest.fixture
def broken():
    yield
    raise RuntimeError("broken at its end")

def test_fails_at_its_end(broken): pass

@pytest.mark.skip
def test_skips(): pass

def test_waits(): time.sleep(float(os.environ["WAIT"]))

@pytest.mark.slow
def test_of_minutes(): raise SystemError
"""


LOSING = """
import os, pytest, torch

@pytest.mark.parametrize("i", range(3))
def test_before(i): pass

def test_ends_its_process(): os._exit(9)

def test_loses_the_device(monkeypatch):
    def fails(): raise RuntimeError("CUDA error: an illegal memory access was encountered")
    torch.cuda.is_initialized, torch.cuda.synchronize = lambda: True, fails
    fails()

@pytest.mark.parametrize("i", range(3))
def test_after(i): assert not torch.cuda.is_initialized()
"""


def started(folder, wait, minutes, processes=2):
    words = [sys.executable, SCRIPT, "--processes", processes, "--minutes", str(minutes), "--journal", "journal.jsonl"]
    words += ["--record", "record.jsonl", "test_some.py"]
    found = subprocess.run(
        list(map(str, words)),
        cwd=folder,
        env={**os.environ, "WAIT": str(wait), "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        timeout=120,
    )
    return found.returncode, found.stdout


def counts(folder):
    (line,) = map(json.loads, (folder / "record.jsonl").read_text().splitlines())
    return [line[key] for key in ("passed", "skipped", "failed", "left")]


def test_what_is_not_finished_in_time_is_left_and_done_by_the_next_start_alone(tmp_path):
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = slow: takes minutes\n")
    (tmp_path / "test_some.py").write_text(TESTS)
    code, said = started(tmp_path, wait=100, minutes=0.1)
    assert code == 1
    assert "8 tests, 0 of them done" in said
    assert counts(tmp_path) == [4, 1, 2, 1]
    assert "FAILED test_some.py::test_fails\n" in said
    assert "one is not two" in said
    assert "broken at its end" in said
    journal = tmp_path / "journal.jsonl"
    before = journal.read_text()
    code, said = started(tmp_path, wait=0, minutes=1)
    assert counts(tmp_path) == [5, 1, 2, 0]
    assert "8 tests, 7 of them done" in said
    assert journal.read_text().startswith(before)
    assert journal.read_text().count("\n") == 8


def test_tests_after_one_that_ends_its_process_or_loses_the_device_run_in_another(tmp_path):
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = slow: takes minutes\n")
    (tmp_path / "test_some.py").write_text(LOSING)
    code, said = started(tmp_path, wait=0, minutes=1, processes=1)
    assert code == 1
    assert counts(tmp_path) == [6, 0, 2, 0]
    assert "FAILED test_some.py::test_loses_the_device" in said
    assert "FAILED test_some.py::test_ends_its_process\nits process ended with 9" in said


def test_a_name_that_finds_no_test_is_an_error_that_says_so(tmp_path):
    (tmp_path / "test_some.py").write_text("")
    found = subprocess.run([sys.executable, SCRIPT, "test_some.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert found.returncode == 1
    assert "pytest finds no tests to run in test_some.py" in found.stderr
