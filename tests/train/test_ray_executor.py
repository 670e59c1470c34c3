"""A queue on a Ray cluster ends with every run finished, whatever happens to its workers."""

import dataclasses
import errno
import importlib.util
import json
import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from noiseproof.train import RunOptions, RunStore, train
from noiseproof.train.executors import NotStartedError, RayExecutor, _plain, _train_group

QUEUE = """
import json, sys
import ray
from noiseproof.train import Recipe, RunStore
from noiseproof.train.executors import RayExecutor, RunList
from noiseproof.paper.run_list import RunListOutcome, plan_runs

ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=2**27)
store, cluster = RunStore(sys.argv[1]), RayExecutor()
heard = []
planned = plan_runs([Recipe.from_dict(facts) for facts in json.loads(sys.argv[2])], store.runs())
planned = [run for run in planned if run.status != "finished"]
recipes = [run.recipe for run in planned]
wanted = RunList(recipes, store, checkpoint_seconds=0, on_outcome=lambda recipe, outcome: heard.append(recipe.seed))
tally = RunListOutcome(planned, cluster.run(wanted))
print(json.dumps({
    "finished": sorted(run.recipe.seed for run in tally.finished),
    "failed": [[run.recipe.seed, str(error)] for run, error in tally.failed],
    "heard": sorted(heard),
}))
ray.shutdown()
"""


def owner(folder):
    """The process that has the folder open: it holds the lock of the run."""
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if os.readlink(link) == str(folder):
                return int(link.parts[2])
        except OSError:
            continue
    return None


def epochs(folder):
    return [epoch["seconds"] for epoch in json.loads((folder / "record.json").read_text(encoding="utf-8"))["epochs"]]


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="finds the worker in /proc")
def test_a_killed_worker_costs_nothing_that_was_finished(digits, tmp_path):
    recipes = [dataclasses.replace(digits, seed=seed, epochs=40, confidence_epochs=()) for seed in range(4)]
    recipes.append(dataclasses.replace(digits, seed=4, noise="labels:gone.npy"))
    store = RunStore(tmp_path.resolve())
    folders = [store.folder_for(recipe) for recipe in recipes]
    train(recipes[0], folder=folders[0])
    before = (folders[0] / "record.json").stat().st_mtime_ns
    facts = json.dumps([recipe.as_dict() for recipe in recipes])
    process = subprocess.Popen([sys.executable, "-c", QUEUE, str(store.root), facts], stdout=subprocess.PIPE, text=True)
    try:
        end = time.monotonic() + 120
        while not ((folders[1] / "checkpoint.safetensors").exists() and len(epochs(folders[1])) >= 5):
            assert time.monotonic() < end
            time.sleep(0.02)
        os.kill(owner(folders[1]), signal.SIGKILL)
        killed_at = epochs(folders[1])
        output, _ = process.communicate(timeout=200)
    finally:
        process.kill()
    found = json.loads(output)
    assert (found["finished"], found["heard"]) == ([1, 2, 3], [1, 2, 3, 4])
    ((failed, why),) = found["failed"]
    assert failed == 4
    assert why.startswith("FileNotFoundError: ")
    assert "gone.npy" in why
    assert [run.status for run in store.runs()] == ["finished"] * 4
    assert len(killed_at) < 40
    assert epochs(folders[1])[: len(killed_at) - 1] == killed_at[:-1], "the epochs of the last checkpoint are not trained again"
    assert (folders[0] / "record.json").stat().st_mtime_ns == before


FULL = """
import errno, os, sys
import ray
from noiseproof.train import Recipe, RunStore
from noiseproof.train.executors import RayExecutor, RunList
from noiseproof.paper.run_list import RunListOutcome, plan_runs

def setup():
    from noiseproof.train import loop

    def full(record, folder):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder / "record.json"))

    loop.Record.write = full

ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, runtime_env={"worker_process_setup_hook": setup})
store, cluster = RunStore(sys.argv[1]), RayExecutor()
recipes = [Recipe(dataset="digits", loss="ce", model="mlp", epochs=2, seed=seed) for seed in range(6)]
heard = []
wanted = RunList(recipes, store, on_outcome=lambda recipe, outcome: heard.append(outcome))
tally = RunListOutcome(plan_runs(recipes, []), cluster.run(wanted))
print(tally.disk_error.errno, tally.disk_error.filename, len(heard), len(tally.failed), len(tally.not_started))
ray.shutdown()
"""


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")
def test_a_full_disk_ends_the_queue_instead_of_every_run(tmp_path):
    """Six tasks and one processor: at most one more has begun when the first is heard of."""
    process = subprocess.run([sys.executable, "-c", FULL, str(tmp_path)], stdout=subprocess.PIPE, text=True, timeout=200)
    number, file, heard, failed, left = process.stdout.split()
    assert int(number) == errno.ENOSPC
    assert Path(file).name == "record.json"
    assert heard == failed
    assert int(failed) in (1, 2)
    assert int(left) == 6 - int(failed)


def test_a_worker_tells_of_a_full_disk_as_it_is_and_of_other_errors_in_words():
    full, gone = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "weights"), FileNotFoundError("no such file")
    told = pickle.loads(pickle.dumps(_plain(full)))
    assert (told.errno, told.filename) == (errno.ENOSPC, "weights")
    assert isinstance(_plain(gone), RuntimeError)


def test_a_worker_starts_nothing_that_would_not_end_in_time(digits, tmp_path):
    one = [(digits, 100.0)], tmp_path, None, RunOptions(), 60.0
    early, late = (_train_group(*one, time.time() + left) for left in (1000, 1))
    assert early[0]["status"] == "finished"
    assert isinstance(late[0], NotStartedError)


def test_without_ray_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r"pip install '.\[cluster\]' in noiseproof's repository"):
        RayExecutor()
