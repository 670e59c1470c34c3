"""The start of a command: what is not imported, and Ctrl-C while something is."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import noiseproof
from benchmarks.start import COMMANDS, slow_imports
from noiseproof.cli import app

SOURCE = Path(__file__).resolve().parents[2] / "src"
SLOW = "import time\nprint('importing', flush=True)\ntime.sleep(60)\n"
SCRIPT = "from noiseproof.__main__ import main\nmain()\n"


def interrupted(tmp_path, *words):
    """How Python ends that is interrupted while it imports a torch that takes a minute: its status and what it said."""
    (tmp_path / "torch.py").write_text(SLOW, encoding="utf-8")
    process = subprocess.Popen(
        [sys.executable, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(SOURCE)])},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background jobs ignore it
    )
    assert process.stdout.readline() == "importing\n"
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=30)
    return process.returncode, stderr


@pytest.mark.parametrize("words", [("-m", "noiseproof"), ("noiseproof",)], ids=["module", "script"])
def test_ctrl_c_while_torch_is_imported_ends_a_command_without_a_trace(tmp_path, words):
    (tmp_path / "noiseproof").write_text(SCRIPT, encoding="utf-8")
    assert interrupted(tmp_path, *words, "train", "digits/ce") == (130, "stopped\n")


def test_a_warning_of_another_package_is_one_line(tmp_path):
    """torch's, where a limit of addresses keeps it from the GPU, has several, and Python adds the line of code."""
    said = "CUDA initialization: Error 2: out of memory\n (Triggered internally at CUDAFunctions.cpp:109.)"
    code = f"""
import sys, warnings
from noiseproof.__main__ import main
from noiseproof.losses import facts
of_all = facts.list_facts
facts.list_facts = lambda: warnings.warn({said!r}) or of_all()
sys.argv = ["noiseproof", "losses"]
main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=100, cwd=tmp_path)
    assert done.returncode == 0
    assert done.stderr == f"warning: {said.replace(chr(10), '')}\n"


@pytest.mark.parametrize("limited", [True, False])
def test_a_library_that_does_not_fit_into_the_memory_is_one_sentence(limited, monkeypatch):
    """Another library that cannot be imported is a fault of the installation, which the trace shows."""
    fault = "failed to map segment from shared object" if limited else "undefined symbol: x"

    def fail():
        raise ImportError(f"libtorch_python.so: {fault}")

    monkeypatch.setattr("noiseproof.losses.facts.list_facts", fail)
    result = CliRunner().invoke(app, ["losses"])
    assert (result.exit_code == 2) == limited
    assert ("the memory is not enough" in result.stderr) == limited
    assert isinstance(result.exception, SystemExit if limited else ImportError)


def test_ctrl_c_in_a_program_of_others_is_as_it_was(tmp_path):
    (tmp_path / "own.py").write_text(
        "try:\n    from noiseproof import JALCE\nexcept KeyboardInterrupt:\n    raise SystemExit(7)\n"
    )
    assert interrupted(tmp_path, "own.py") == (7, "")
    assert interrupted(tmp_path, "-m", "own") == (7, "")


def test_ctrl_c_in_a_command_with_nothing_to_put_away_is_one_word(monkeypatch):
    def stop():
        raise KeyboardInterrupt

    monkeypatch.setattr("noiseproof.losses.facts.list_facts", stop)
    result = CliRunner().invoke(app, ["losses"])
    assert (result.exit_code, result.stderr) == (130, "stopped\n")


@pytest.mark.parametrize("name", COMMANDS)
def test_what_computes_nothing_imports_nothing_that_computes(name):
    assert slow_imports(*COMMANDS[name]) == []


def test_a_command_that_computes_is_seen_to_import_torch():
    """Or the test above would prove nothing."""
    assert "torch" in slow_imports(["theory", "check", "ce"], 2)


def test_the_package_itself_imports_nothing_that_computes():
    code = "import noiseproof, sys; print(noiseproof.__version__, sorted({'torch', 'numpy', 'scipy'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"{noiseproof.__version__} []\n"


def test_names_are_there_when_they_are_used():
    code = """
from noiseproof import *
import noiseproof
assert JALCE is noiseproof.JALCE is noiseproof.losses.JALCE and L1 is noiseproof.L1
assert {"JALCE", "train", "functional", "create_loss", "L1"} <= set(dir(noiseproof))
assert noiseproof.functional.jal_ce and noiseproof.theory.check
try:
    noiseproof.JALCEE
except AttributeError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "module 'noiseproof' has no attribute 'JALCEE'\n", done.stderr


def test_the_help_groups_the_verbs():
    text = CliRunner().invoke(app, ["--help"]).output
    places = [
        text.index(word) for word in ("For your data", "audit  ", "For training", "train  ", "For the paper", "reproduce  ")
    ]
    assert places == sorted(places)
