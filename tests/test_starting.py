"""Ctrl-C before a command has begun, while torch is imported, and in one that has nothing to put away."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from noiseproof.cli import app

SOURCE = Path(__file__).resolve().parent.parent / "src"
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


@pytest.mark.parametrize("words", [("-m", "noiseproof", "losses"), ("noiseproof", "losses")], ids=["module", "script"])
def test_ctrl_c_while_torch_is_imported_ends_a_command_without_a_trace(tmp_path, words):
    (tmp_path / "noiseproof").write_text(SCRIPT, encoding="utf-8")
    assert interrupted(tmp_path, *words) == (130, "stopped\n")


def test_ctrl_c_in_a_program_of_others_is_as_it_was(tmp_path):
    (tmp_path / "own.py").write_text(
        "try:\n    from noiseproof import JALCE\nexcept KeyboardInterrupt:\n    raise SystemExit(7)\n"
    )
    assert interrupted(tmp_path, "own.py") == (7, "")
    assert interrupted(tmp_path, "-m", "own") == (7, "")


def test_ctrl_c_in_a_command_with_nothing_to_put_away_is_one_word(monkeypatch):
    def stop():
        raise KeyboardInterrupt

    monkeypatch.setattr("noiseproof.losses.catalog.list_losses", stop)
    result = CliRunner().invoke(app, ["losses"])
    assert (result.exit_code, result.stderr) == (130, "stopped\n")
