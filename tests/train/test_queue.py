"""A queue trains what is missing, whatever happens to it on the way."""

import dataclasses
import itertools
import json
from types import SimpleNamespace

import pytest

from noiseproof.train import DivergenceError, Observer, Outcome, RunOptions
from noiseproof.train.queue import Speeds, machine_of, plan_queue, run_queue, shard
from noiseproof.train.runs import RunStore

HERE = machine_of(RunOptions())


@pytest.fixture
def recipes(digits):
    return [dataclasses.replace(digits, seed=seed) for seed in range(4)]


def statuses(recipes, store):
    return [run.status for run in plan_queue(recipes, store.runs(), Speeds(HERE))]


def test_what_is_finished_is_not_run_again(recipes, tmp_path):
    store = RunStore(tmp_path)
    first = run_queue(plan_queue(recipes[:2], store.runs(), Speeds(HERE)), store, Speeds(HERE))
    assert [run.recipe.seed for run in first.finished] == [0, 1]
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    second = run_queue(plan_queue(recipes, store.runs(), Speeds(HERE)), store, Speeds(HERE))
    assert [run.recipe.seed for run in second.finished] == [2, 3]
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert statuses(recipes, store) == ["finished"] * 4


def test_a_run_that_fails_or_diverges_is_reported_and_the_others_go_on(recipes, tmp_path):
    wild = dataclasses.replace(recipes[0], optimiser="sgd", lr=1e30, loss="ce", loss_options={})
    gone = dataclasses.replace(recipes[0], noise="labels:gone.npy")
    store, heard = RunStore(tmp_path), []
    tally = run_queue(
        plan_queue([wild, gone, recipes[1]], store.runs(), Speeds(HERE)),
        store,
        Speeds(HERE),
        on_outcome=lambda run, outcome: heard.append((run.recipe, type(outcome))),
    )
    assert [type(error) for _, error in tally.failed] == [DivergenceError, FileNotFoundError]
    assert heard == [(wild, DivergenceError), (gone, FileNotFoundError), (recipes[1], Outcome)]
    assert statuses([wild, gone, recipes[1]], store) == ["diverged", "waiting", "finished"]
    assert not run_queue(plan_queue([wild], store.runs(), Speeds(HERE)), store, Speeds(HERE)).failed, "it would diverge again"


def test_a_stopped_queue_resumes_and_keeps_what_is_finished(recipes, tmp_path):
    class Stop(Observer):
        def epoch(self, facts):
            raise KeyboardInterrupt

    def observer(run):
        return Stop() if run.recipe.seed == 2 else Observer()

    store = RunStore(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        run_queue(plan_queue(recipes, store.runs(), Speeds(HERE)), store, Speeds(HERE), observer=observer)
    assert statuses(recipes, store) == ["finished", "finished", "running", "waiting"]
    tally = run_queue(plan_queue(recipes, store.runs(), Speeds(HERE)), store, Speeds(HERE))
    assert [run.recipe.seed for run in tally.finished] == [2, 3]


def test_nothing_starts_that_would_not_end_in_time(recipes, tmp_path, monkeypatch):
    """A run takes a minute, and the queue's clock moves on by a minute each time it is read: 0, 60, 120 seconds."""
    store, speeds = RunStore(tmp_path), Speeds(HERE, {Speeds.key(HERE, recipes[0].as_dict()): 10.0})
    monkeypatch.setattr(Speeds, "add", lambda self, facts: None)
    planned = plan_queue(recipes, store.runs(), speeds)
    assert [run.seconds for run in planned] == [60.0] * 4  # six epochs of ten seconds
    clock = itertools.count(0, 60)
    monkeypatch.setattr("noiseproof.train.queue.time", SimpleNamespace(monotonic=lambda: next(clock)))
    tally = run_queue(planned, store, speeds, minutes=3.5)
    assert [run.recipe.seed for run in tally.finished] == [0, 1]
    assert [run.recipe.seed for run in tally.not_started] == [2, 3]
    assert statuses(recipes, store) == ["finished", "finished", "waiting", "waiting"]


def test_a_kind_of_run_that_was_never_measured_starts(recipes, tmp_path):
    store = RunStore(tmp_path)
    tally = run_queue(plan_queue(recipes[:1], store.runs(), Speeds(HERE)), store, Speeds(HERE), minutes=1.0)
    assert len(tally.finished) == 1


def test_speeds_are_learned_from_finished_runs_and_shared_among_those_side_by_side(recipes, tmp_path):
    store, speeds = RunStore(tmp_path), Speeds(HERE)
    run_queue(plan_queue(recipes[:1], store.runs(), speeds), store, speeds)
    (path,) = tmp_path.glob("*/record.json")
    facts = json.loads(path.read_text(encoding="utf-8"))
    facts["seconds"], facts["environment"]["at_once"] = {"prepare": 4.0, "train": 20.0}, 2
    path.write_text(json.dumps(facts), encoding="utf-8")
    (planned,) = plan_queue([dataclasses.replace(recipes[0], epochs=12)], RunStore(tmp_path).runs(), Speeds(HERE))
    assert planned.seconds == pytest.approx((4 + 20) / 6 / 2 * 12)
    (elsewhere,) = plan_queue(recipes[1:2], RunStore(tmp_path).runs(), Speeds("another machine"))
    assert elsewhere.seconds is None


def test_shards_share_out_all_runs(recipes):
    parts = [shard(recipes, part, 3) for part in (1, 2, 3)]
    assert sorted(recipe.seed for part in parts for recipe in part) == [0, 1, 2, 3]
    assert [len(part) for part in parts] == [2, 1, 1]
    with pytest.raises(ValueError, match=r"the part must be in \[1, 3\], got 4"):
        shard(recipes, 4, 3)
