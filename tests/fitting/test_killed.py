"""A fit that is killed, meets another one in its folder, or whose disk is full loses nothing: the model is the same."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import noiseproof
from noiseproof.io import files
from noiseproof.io.files import BusyError

KILLER = Path(__file__).resolve().parents[1] / "helpers" / "fit_killer.py"


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork on Windows")
@pytest.mark.parametrize("kills", [4, pytest.param(60, marks=pytest.mark.slow)])
def test_kills_at_random_moments_lose_nothing(kills, tmp_path):
    done = subprocess.run(
        [sys.executable, str(KILLER), str(tmp_path), str(kills)], capture_output=True, text=True, timeout=1500
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["killed"] == kills
    assert found["same"]
    assert found["left"] == []


@pytest.mark.skipif(sys.platform == "win32", reason="a process on Windows keeps the number of its parent")
def test_a_killed_fit_leaves_no_processes_and_no_data(tmp_path):
    code = """
import numpy as np, noiseproof
from noiseproof.learners import crossfit
crossfit.PROCESS_SECONDS = 1e-9
x = np.random.default_rng(0).normal(size=(4000, 20))
told = lambda stage: print(stage.done, flush=True)
noiseproof.fit(x, x[:, 0] > 0, learners=["logistic-0.01", "network"], jobs=2, folder="model", progress=told)
"""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    env = {**os.environ, "TMPDIR": str(temporary)}
    begun = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True)
    assert begun.stdout.readline() == "1\n"
    assert list(temporary.glob("noiseproof-*"))
    begun.kill()
    begun.communicate(timeout=120)  # which ends when the last process that writes there has ended
    assert not list(temporary.glob("noiseproof-*"))


def small():
    g = np.random.default_rng(0)
    y = np.repeat([0, 1], 40)
    return g.normal(size=(80, 3)) + 2 * y[:, None], np.where(g.random(80) < 0.2, 1 - y, y)


def test_two_fits_at_once_in_one_folder_do_not_clash(tmp_path):
    found = []

    def second(stage):
        if not found:
            with pytest.raises(BusyError, match="another process is at work in"):
                noiseproof.fit(*small(), folder=tmp_path, learners=["neighbours-40"])
            found.append(stage)

    first = noiseproof.fit(*small(), folder=tmp_path, learners=["logistic-0.01"], progress=second)
    assert found
    assert (noiseproof.load(tmp_path).predict_proba(small()[0]) == first.predict_proba(small()[0])).all()


@pytest.mark.parametrize("after", [0, 10, 11])
def test_a_full_disk_is_an_error_that_names_the_file_and_a_later_call_ends_with_the_same_model(after, tmp_path, monkeypatch):
    options = {"learners": ["logistic-0.01"], "jobs": 1}
    whole = noiseproof.fit(*small(), folder=tmp_path / "whole", **options)
    written, flush = [], files.flush

    def full(place):
        if place.name.startswith("."):
            written.append(place)
            if len(written) > after:
                raise OSError(errno.ENOSPC, "No space left on device")
        flush(place)

    monkeypatch.setattr(files, "flush", full)
    folder = tmp_path / "full"
    with pytest.raises(OSError, match="No space left on device") as error:
        noiseproof.fit(*small(), folder=folder, **options)
    assert str(folder) in str(error.value.filename)
    assert [path for path in folder.rglob(".*") if path.is_file()] == []
    monkeypatch.undo()
    again = noiseproof.fit(*small(), folder=folder, **options)
    assert (again.predict_proba(small()[0]) == whole.predict_proba(small()[0])).all()
    assert noiseproof.load(folder).key == whole.key
