"""A queue trains what is missing, whatever happens to it on the way."""

import dataclasses
import errno
import itertools
import os
from types import SimpleNamespace

import pytest

from noiseproof import paper
from noiseproof.paper.run_list import ENDED, RunListOutcome, plan_runs
from noiseproof.train import Callback, DivergenceError, Outcome, RunOptions, override
from noiseproof.train.executors import LocalExecutor, RunList
from noiseproof.train.runs import RunStore, StoredRun


@pytest.fixture
def recipes():
    """They take about 40 ms for each of their six epochs."""
    changes = {"epochs": 6, "model.hidden": [32], "confidence_epochs": (2, 4)}
    digits = override(paper.recipe("digits/jal-ce", noise="symmetric:0.4", seed=5), changes)
    return [dataclasses.replace(digits, seed=seed) for seed in range(4)]


def train_runs(planned, store, **more):
    todo = [run for run in planned if run.status not in ENDED]
    wanted = RunList([run.recipe for run in todo], store, **more)
    return RunListOutcome(todo, LocalExecutor(RunOptions()).run(wanted))


def statuses(recipes, store):
    return [run.status for run in plan_runs(recipes, store.runs())]


def test_what_is_finished_is_not_run_again(recipes, tmp_path):
    store = RunStore(tmp_path)
    first = train_runs(plan_runs(recipes[:2], store.runs()), store)
    assert [run.recipe.seed for run in first.finished] == [0, 1]
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    second = train_runs(plan_runs(recipes, store.runs()), store)
    assert [run.recipe.seed for run in second.finished] == [2, 3]
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert statuses(recipes, store) == ["finished"] * 4


def test_a_run_that_fails_or_diverges_is_reported_and_the_others_go_on(recipes, tmp_path):
    wild = dataclasses.replace(recipes[0], optimiser="sgd", lr=1e30, loss="ce", loss_options={})
    gone = dataclasses.replace(recipes[0], noise="labels:gone.npy")
    store, heard = RunStore(tmp_path), []
    tally = train_runs(
        plan_runs([wild, gone, recipes[1]], store.runs()),
        store,
        on_outcome=lambda recipe, outcome: heard.append((recipe, type(outcome))),
    )
    assert [type(error) for _, error in tally.failed] == [DivergenceError, FileNotFoundError]
    assert heard == [(wild, DivergenceError), (gone, FileNotFoundError), (recipes[1], Outcome)]
    assert statuses([wild, gone, recipes[1]], store) == ["diverged", "waiting", "finished"]
    assert not train_runs(plan_runs([wild], store.runs()), store).failed, "it would diverge again"


def test_a_run_that_diverged_and_finished_is_finished_whichever_is_read_first(recipes):
    ends = [StoredRun("", status, {"recipe": recipes[0].as_dict()}) for status in ("running", "diverged", "finished")]
    for known in itertools.permutations(ends):
        assert plan_runs(recipes[:1], known)[0].status == "finished"
    for known in itertools.permutations(ends[:2]):
        assert plan_runs(recipes[:1], known)[0].status == "diverged"
        assert plan_runs(recipes[:1], known, retry=True)[0].status == "running"


def test_fields_that_this_version_does_not_know_make_another_run_if_they_say_something(recipes):
    def status(**unknown):
        known = StoredRun("", "finished", {"recipe": {**recipes[0].as_dict(), **unknown}})
        return plan_runs(recipes[:1], [known])[0].status

    assert status(warmup=0, teacher=None) == "finished"
    assert status(warmup=5) == "waiting"


def test_a_full_disk_ends_the_queue_instead_of_every_run_after_its_training(recipes, tmp_path):
    class Full(Callback):
        def on_epoch_end(self, facts):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "weights")

    store, heard = RunStore(tmp_path), []
    tally = train_runs(
        plan_runs(recipes, store.runs()),
        store,
        callback=lambda recipe: Full() if recipe.seed == 1 else Callback(),
        on_outcome=lambda recipe, outcome: heard.append(recipe.seed),
    )
    assert (heard, [run.recipe.seed for run in tally.not_started]) == ([0, 1], [2, 3])
    assert tally.disk_error.errno == errno.ENOSPC
    assert statuses(recipes, store) == ["finished", "running", "waiting", "waiting"]


def test_a_stopped_queue_resumes_and_keeps_what_is_finished(recipes, tmp_path):
    class Stop(Callback):
        def on_epoch_end(self, facts):
            raise KeyboardInterrupt

    def callback(recipe):
        return Stop() if recipe.seed == 2 else Callback()

    store = RunStore(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        train_runs(plan_runs(recipes, store.runs()), store, callback=callback)
    assert statuses(recipes, store) == ["finished", "finished", "running", "waiting"]
    tally = train_runs(plan_runs(recipes, store.runs()), store)
    assert [run.recipe.seed for run in tally.finished] == [2, 3]


def test_nothing_starts_that_would_not_end_in_time(recipes, tmp_path, monkeypatch):
    """A run takes a minute, and the clock moves on by a minute each time it is read: 0, 60, 120 seconds."""
    store = RunStore(tmp_path)
    clock = itertools.count(0, 60)
    monkeypatch.setattr("noiseproof.train.executors.time", SimpleNamespace(time=lambda: next(clock)))
    tally = train_runs(plan_runs(recipes, []), store, minutes=3.5, seconds=lambda recipe, width: 60.0)
    assert [run.recipe.seed for run in tally.finished] == [0, 1]
    assert [run.recipe.seed for run in tally.not_started] == [2, 3]
    assert statuses(recipes, store) == ["finished", "finished", "waiting", "waiting"]


def test_a_run_of_which_the_time_is_not_known_starts(recipes, tmp_path):
    assert len(train_runs(plan_runs(recipes[:1], []), RunStore(tmp_path), minutes=1.0).finished) == 1


def test_of_a_run_that_was_begun_the_epochs_behind_its_checkpoint_are_known(recipes, tmp_path):
    class Stop(Callback):
        def on_epoch_end(self, facts):
            if facts.epoch == 4:
                raise KeyboardInterrupt

    store = RunStore(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        train_runs(plan_runs(recipes[:1], []), store, callback=lambda recipe: Stop(), checkpoint_seconds=0)
    planned = plan_runs([recipes[1], recipes[0]], store.runs())
    assert [run.done for run in planned] == [0, 4]
    tally = train_runs(planned, store, minutes=0.5, seconds=lambda recipe, width: 60.0 * recipe.seed)
    assert [run.recipe.seed for run in tally.finished] == [0]
    assert [run.recipe.seed for run in tally.not_started] == [1]


def test_a_data_set_that_cannot_be_opened_fails_its_runs_only(recipes, tmp_path):
    damaged = tmp_path / "damaged.npz"
    damaged.write_bytes(b"not an archive")
    bad = [dataclasses.replace(recipe, dataset=str(damaged)) for recipe in recipes[:2]]
    store, heard = RunStore(tmp_path / "runs"), []
    tally = train_runs(
        plan_runs([bad[0], recipes[0], bad[1]], store.runs()),
        store,
        on_outcome=lambda recipe, outcome: heard.append(type(outcome)),
    )
    assert [run.recipe for run, _ in tally.failed] == bad
    assert [run.recipe for run in tally.finished] == recipes[:1]
    assert len(heard) == 2, "the error is told once"


def test_the_confidence_epochs_of_a_run_do_not_make_it_another(recipes, tmp_path):
    store = RunStore(tmp_path)
    train_runs(plan_runs(recipes[:1], store.runs()), store)
    assert statuses([dataclasses.replace(recipes[0], confidence_epochs=())], store) == ["finished"]
    assert statuses([dataclasses.replace(recipes[0], batch=64)], store) == ["waiting"]
