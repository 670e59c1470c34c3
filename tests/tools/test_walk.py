"""What tools/walk.py counts, tried on a package of its own and on a loss."""

import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from tools import walk as tool

SCRIPT = Path(tool.__file__)
OUTER = """
    from noiseproof.inner import Box, at_import

    at_import()

    def start():
        box = Box([value for value in range(3)])
        return box.size() + box.size() + later()

    def later():
        return sum(one for one in (1, 2))
"""
INNER = """
    class Box:
        def __init__(self, values):
            self.values = values

        def size(self):
            return (lambda: len(self.values))()

    def at_import():
        return Box([])

    def in_a_thread():
        return 1
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package of two files, called noiseproof."""
    folder = tmp_path / "noiseproof"
    folder.mkdir()
    for name, text in (("__init__", ""), ("outer", OUTER), ("inner", INNER)):
        (folder / f"{name}.py").write_text(textwrap.dedent(text), encoding="utf-8")
    return folder


def printed(package, *words):
    command = [sys.executable, SCRIPT, "--source", package, *words]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_functions_are_printed_once_in_order_of_first_call_without_what_an_import_runs(package):
    lines = printed(package, "python", "-c", "from noiseproof.outer import start; start()")
    assert lines == [
        "walk:",
        "outer.py: start",
        "  inner.py: Box.__init__, Box.size",
        "  outer.py: later",
        "2 files, 4 functions, 2 changes of module",
    ]


def test_files_alone_are_printed_with_the_counts(package):
    lines = printed(package, "--files", "python", "-c", "from noiseproof.outer import start; start()")
    assert lines == ["2 files, 4 functions, 2 changes of module", "  outer.py", "  inner.py"]


def test_threads_are_followed(package):
    code = "import threading; from noiseproof import inner; t = threading.Thread(target=inner.in_a_thread); t.start(); t.join()"
    assert printed(package, "python", "-c", code)[1] == "inner.py: in_a_thread"


def test_a_call_of_a_loss_begins_at_the_contract_and_ends_in_its_backward_pass():
    walk = tool.walk_loss("jal-ce")
    assert (walk.functions[0].file, walk.functions[0].name) == ("losses/base.py", "RobustLoss.forward")
    assert "backward" in {function.name.rpartition(".")[2] for function in walk.functions}
    assert threading.getprofile() is None
    assert sys.getprofile() is None


def test_a_verb_is_followed_from_its_own_function_on():
    done = subprocess.run([sys.executable, SCRIPT, "noiseproof", "losses"], capture_output=True, text=True, timeout=600)
    lines = done.stdout.splitlines()
    first = next(line for line in lines if line.startswith("cli/"))
    assert first.startswith("cli/losses.py: losses"), done
