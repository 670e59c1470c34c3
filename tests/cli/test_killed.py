"""Commands that are killed or get Ctrl-C, at any moment: nothing is lost, nothing is different, and nothing is left running."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from noiseproof.__main__ import handle_sigint
from noiseproof.io import files
from noiseproof.io.files import BusyError, claimed, locked
from tests.helpers.ctrl_c import is_right, left_after, processes_of

HELPERS = Path(__file__).resolve().parents[1] / "helpers"
pytestmark = pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")


def played(helper, *words):
    """The lines of a helper, as JSON."""
    done = subprocess.run(
        [sys.executable, str(HELPERS / helper), *map(str, words)], capture_output=True, text=True, timeout=3000, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.slow
def test_kills_of_every_verb_lose_nothing(tmp_path):
    """At random moments, at file-system events, and of one of two at once."""
    *kills, total = played("kill_game.py", tmp_path, 72, 1)
    wrong = [found for found in kills if found["lost"] or found["different"] or found["left"]]
    assert not wrong
    assert total == {"kills": 72, "lost": 0, "different": 0, "left": 0}


@pytest.mark.slow
def test_ctrl_c_at_any_moment_is_one_line_and_130(tmp_path):
    found = played("ctrl_c.py", tmp_path, 36, 1)
    assert len(found) == 36
    assert [one for one in found if not is_right(one)] == []


PARENT = """
import os, sys
from noiseproof.io.processes import process_pool, removed_with_this_process

def begin():
    import ctypes, os, time
    os.write(1, b"begun\\n")
    CALL

if __name__ == "__main__":
    import tempfile
    place = tempfile.mkdtemp()
    with removed_with_this_process(place):
        pool = process_pool(2, begin, (), {"PYTHONPATH": os.pathsep.join([*sys.argv[1:], os.environ["PYTHONPATH"]])})
        task = pool.submit(print, "done")
        os.write(1, f"{place}\\n".encode())
        task.result()
"""
HOLDS_THE_LOCK = "ctypes.PyDLL(None).sleep(60)"
"""Of Python: no thread of its own can see to anything then"""


@pytest.mark.parametrize("where", ["in Python", "in a call that holds Python's lock", "while joblib is imported"])
def test_processes_of_a_killed_parent_end_within_a_second_and_say_nothing(where, tmp_path):
    call, paths = HOLDS_THE_LOCK, []
    if where == "in Python":
        call = "time.sleep(60)"
    elif where == "while joblib is imported":  # by the new process, before anything of it is called
        paths = [tmp_path / "slow"]
        (tmp_path / "slow" / "joblib").mkdir(parents=True)
        text = f'import ctypes, os\nos.write(1, b"begun\\n")\n{HOLDS_THE_LOCK}\n'
        (tmp_path / "slow" / "joblib" / "__init__.py").write_text(text, encoding="utf-8")
    script = tmp_path / "parent.py"
    script.write_text(PARENT.replace("CALL", call), encoding="utf-8")
    begin = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "start_new_session": True}
    with subprocess.Popen([sys.executable, str(script), *map(str, paths)], cwd=tmp_path, **begin) as parent:
        lines = [parent.stdout.readline() for _ in range(3)]  # the folder, and two processes
        place = Path(next(line for line in lines if line != "begun\n").strip())
        assert lines.count("begun\n") == 2
        assert place.is_dir()
        assert len(processes_of(parent.pid)) >= 3
        parent.kill()
        parent.wait()
        assert [words for words in left_after(parent.pid, 1.0) if "tracker" not in words] == []
        assert left_after(parent.pid, 10.0) == []
        assert parent.stdout.read() == ""
    assert not place.exists()


@pytest.mark.parametrize("where", ["while commands are built", "at the end"])
def test_ctrl_c_outside_of_a_command_is_one_word_without_a_trace(where, tmp_path):
    """Nobody would catch what is raised there."""
    code = {
        "while commands are built": """
            import typer.main
            typer.main.get_command = lambda app: os.kill(os.getpid(), signal.SIGINT)
            """,
        "at the end": """
            import atexit
            atexit.register(lambda: os.kill(os.getpid(), signal.SIGINT))
            sys.argv = ["noiseproof", "losses"]
            """,
    }[where]
    (tmp_path / "own.py").write_text(
        "import os, signal, sys\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
        + textwrap.dedent(code)
        + "from noiseproof.__main__ import main\nmain()\n",
        encoding="utf-8",
    )
    done = subprocess.run([sys.executable, str(tmp_path / "own.py")], capture_output=True, text=True, check=False, timeout=100)
    assert (done.returncode, done.stderr) == (130, "stopped\n")


def test_ctrl_c_in_a_command_is_a_keyboard_interrupt(monkeypatch):
    from typer.testing import CliRunner

    from noiseproof.cli import app

    before = signal.signal(signal.SIGINT, handle_sigint)
    try:
        monkeypatch.setattr("noiseproof.losses.facts.list_facts", lambda: os.kill(os.getpid(), signal.SIGINT))
        result = CliRunner().invoke(app, ["losses"])
    finally:
        signal.signal(signal.SIGINT, before)
    assert (result.exit_code, result.stderr) == (130, "stopped\n")


def test_a_folder_whose_process_was_killed_is_not_busy_while_those_it_started_end(tmp_path, monkeypatch):
    """They may have inherited its lock; that of a process that lives is an error in the end."""
    code = f"""
import os, time
from pathlib import Path
from noiseproof.io.files import locked
with locked(Path({str(tmp_path)!r}), wait=False):
    if not os.fork():
        print("held", flush=True)
        time.sleep(1)
        os._exit(0)
    time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "held\n"
        holder.kill()
        holder.wait()
        with pytest.raises(BlockingIOError), locked(tmp_path, wait=False):
            pass
        with claimed(tmp_path):
            pass
    monkeypatch.setattr(files, "KILLED_SECONDS", 0.1)
    start = time.monotonic()
    with locked(tmp_path, wait=False), pytest.raises(BusyError), claimed(tmp_path):
        pass
    assert time.monotonic() - start < 60
