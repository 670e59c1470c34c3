"""The script that runs the tests on a GPU, tried on tests of its own."""

import importlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

SCRIPT = Path(__file__).parents[2] / "tools" / "gpu_tests.py"
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


def opened(folder, wait, minutes, processes=2):
    words = [sys.executable, SCRIPT, "--processes", processes, "--minutes", str(minutes), "--journal", "journal.jsonl"]
    words += ["--record", "record.jsonl", "test_some.py"]
    env = {**os.environ, "WAIT": str(wait), "PYTEST_ADDOPTS": "", "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.Popen(list(map(str, words)), cwd=folder, env=env, stdout=subprocess.PIPE, text=True)


def started(folder, wait, minutes, processes=2):
    process = opened(folder, wait, minutes, processes)
    said, _ = process.communicate(timeout=600)
    return process.returncode, said


def counts(folder):
    (line,) = map(json.loads, (folder / "record.jsonl").read_text().splitlines())
    return [line[key] for key in ("passed", "skipped", "failed", "left")]


def test_what_is_not_finished_in_time_is_left_and_done_by_the_next_start_alone(tmp_path):
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = slow: takes minutes\n")
    (tmp_path / "test_some.py").write_text(TESTS)
    code, said = started(tmp_path, wait=100, minutes=0.1)
    assert code == 1
    assert "8 tests, 0 of them done" in said
    for _ in range(20):  # a busy machine does not reach the other seven in one start
        if counts(tmp_path)[3] > 1:
            code, said = started(tmp_path, wait=100, minutes=0.1)
    assert counts(tmp_path) == [4, 1, 2, 1]
    assert "FAILED test_some.py::test_fails\n" in said
    assert "one is not two" in said
    assert "broken at its end" in said
    journal = tmp_path / "journal.jsonl"
    before = journal.read_text() + '{"test": "test_some.py::test_wa'  # cut off when the machine was taken away
    journal.write_text(before)
    code, said = started(tmp_path, wait=0, minutes=10)
    assert counts(tmp_path) == [5, 1, 2, 0]
    assert "8 tests, 7 of them done" in said
    assert journal.read_text().startswith(before)
    assert journal.read_text().count("\n") == 9


def test_tests_after_one_that_ends_its_process_or_loses_the_device_run_in_another(tmp_path):
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = slow: takes minutes\n")
    (tmp_path / "test_some.py").write_text(LOSING)
    code, said = started(tmp_path, wait=0, minutes=10, processes=1)
    assert code == 1
    assert counts(tmp_path) == [6, 0, 2, 0]
    assert "FAILED test_some.py::test_loses_the_device" in said
    assert "FAILED test_some.py::test_ends_its_process\nits process ended with 9" in said


def test_what_passes_without_a_gpu_is_no_pass(tmp_path):
    (tmp_path / "test_some.py").write_text("def test_passes(): pass")
    code, said = started(tmp_path, wait=0, minutes=10, processes=1)
    assert code == 1
    assert "there is no GPU here" in said
    assert counts(tmp_path) == [1, 0, 0, 0]
    assert json.loads((tmp_path / "record.jsonl").read_text())["tests"] == "test_some.py without a GPU"


def test_a_process_without_the_device_that_there_was_tells_of_no_test(tmp_path):
    (tmp_path / "test_some.py").write_text("import pytest\n@pytest.mark.skip\ndef test_skips(): pass")
    words = [sys.executable, SCRIPT, "--worker", "code", "--on-gpu", "--journal", "journal.jsonl", "test_some.py"]
    found = subprocess.run(words, cwd=tmp_path, env={**os.environ, "CUDA_VISIBLE_DEVICES": ""}, timeout=600, check=False)
    assert found.returncode == 77
    assert not (tmp_path / "journal.jsonl").exists()


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds processes in /proc")
def test_sigterm_ends_its_processes_and_the_record_says_what_is_left(tmp_path):
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = slow: takes minutes\n")
    (tmp_path / "test_some.py").write_text(TESTS)
    process = opened(tmp_path, wait=100, minutes=2)
    journal = tmp_path / "journal.jsonl"
    while not journal.exists() or journal.read_text().count("\n") < 7:
        assert process.poll() is None
        time.sleep(0.05)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert children
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=600)
    assert process.returncode == 1
    assert counts(tmp_path) == [4, 1, 2, 1]
    assert not [child for child in children if Path(f"/proc/{child}").exists()]


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    return importlib.import_module("gpu_tests")


def test_a_test_has_not_failed_because_the_machine_was_taken_away(script, tmp_path):
    journal = tmp_path / "journal.jsonl"
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        script.ended(-number, ["test"], journal, "code")
    assert not journal.exists()
    script.ended(-signal.SIGSEGV, ["test"], journal, "code")
    assert script.outcomes(journal, "code")["test"]["said"] == "its process ended with -11"


def test_a_process_that_nobody_waits_for_ends_with_its_test(script, tmp_path):
    journal = script.Journal(tmp_path / "journal.jsonl", "code", on_gpu=False)
    report = SimpleNamespace(when="teardown", failed=False, skipped=False, nodeid="test", duration=0.0)
    journal.pytest_runtest_logreport(report)
    journal.parent = -1
    with pytest.raises(pytest.exit.Exception, match="nobody waits"):
        journal.pytest_runtest_logreport(report)
    assert journal.path.read_text().count('"passed"') == 2


def test_a_name_that_finds_no_test_is_an_error_that_says_so(tmp_path):
    (tmp_path / "test_some.py").write_text("")
    found = subprocess.run([sys.executable, SCRIPT, "test_some.py"], cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert found.returncode == 1
    assert "pytest finds no tests to run in test_some.py" in found.stderr
