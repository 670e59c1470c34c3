"""A queue trains what is missing, whatever happens to it on the way."""

import dataclasses
import errno
import itertools
import json
import os
from types import SimpleNamespace

import pytest

from noiseproof.train import Callback, DivergenceError, Outcome, RunOptions
from noiseproof.train.run_list import RunCosts, machine_name, plan_runs, run_batches, shard, train_runs
from noiseproof.train.runs import RunStore, StoredRun

HERE = machine_name(RunOptions())


@pytest.fixture
def recipes(digits):
    return [dataclasses.replace(digits, seed=seed) for seed in range(4)]


def statuses(recipes, store):
    return [run.status for run in plan_runs(recipes, store.runs(), RunCosts(HERE))]


def test_what_is_finished_is_not_run_again(recipes, tmp_path):
    store = RunStore(tmp_path)
    first = train_runs(plan_runs(recipes[:2], store.runs(), RunCosts(HERE)), store, RunCosts(HERE))
    assert [run.recipe.seed for run in first.finished] == [0, 1]
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    second = train_runs(plan_runs(recipes, store.runs(), RunCosts(HERE)), store, RunCosts(HERE))
    assert [run.recipe.seed for run in second.finished] == [2, 3]
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert statuses(recipes, store) == ["finished"] * 4


def test_a_run_that_fails_or_diverges_is_reported_and_the_others_go_on(recipes, tmp_path):
    wild = dataclasses.replace(recipes[0], optimiser="sgd", lr=1e30, loss="ce", loss_options={})
    gone = dataclasses.replace(recipes[0], noise="labels:gone.npy")
    store, heard = RunStore(tmp_path), []
    tally = train_runs(
        plan_runs([wild, gone, recipes[1]], store.runs(), RunCosts(HERE)),
        store,
        RunCosts(HERE),
        on_outcome=lambda run, outcome: heard.append((run.recipe, type(outcome))),
    )
    assert [type(error) for _, error in tally.failed] == [DivergenceError, FileNotFoundError]
    assert heard == [(wild, DivergenceError), (gone, FileNotFoundError), (recipes[1], Outcome)]
    assert statuses([wild, gone, recipes[1]], store) == ["diverged", "waiting", "finished"]
    assert not train_runs(plan_runs([wild], store.runs(), RunCosts(HERE)), store, RunCosts(HERE)).failed, (
        "it would diverge again"
    )


def test_a_run_that_diverged_and_finished_is_finished_whichever_is_read_first(recipes):
    ends = [StoredRun("", status, {"recipe": recipes[0].as_dict()}) for status in ("running", "diverged", "finished")]
    for known in itertools.permutations(ends):
        assert plan_runs(recipes[:1], known, RunCosts(HERE))[0].status == "finished"
    for known in itertools.permutations(ends[:2]):
        assert plan_runs(recipes[:1], known, RunCosts(HERE))[0].status == "diverged"
        assert plan_runs(recipes[:1], known, RunCosts(HERE), retry=True)[0].status == "running"


def test_fields_that_this_version_does_not_know_make_another_run_if_they_say_something(recipes):
    def status(**unknown):
        known = StoredRun("", "finished", {"recipe": {**recipes[0].as_dict(), **unknown}})
        return plan_runs(recipes[:1], [known], RunCosts(HERE))[0].status

    assert status(warmup=0, teacher=None) == "finished"
    assert status(warmup=5) == "waiting"


def test_a_full_disk_ends_the_queue_instead_of_every_run_after_its_training(recipes, tmp_path):
    class Full(Callback):
        def on_epoch_end(self, facts):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "weights")

    store, heard = RunStore(tmp_path), []
    tally = train_runs(
        plan_runs(recipes, store.runs(), RunCosts(HERE)),
        store,
        RunCosts(HERE),
        callback=lambda run: Full() if run.recipe.seed == 1 else Callback(),
        on_outcome=lambda run, outcome: heard.append(run.recipe.seed),
    )
    assert (heard, [run.recipe.seed for run in tally.not_started]) == ([0, 1], [2, 3])
    assert tally.disk_error.errno == errno.ENOSPC
    assert statuses(recipes, store) == ["finished", "running", "waiting", "waiting"]


def test_a_stopped_queue_resumes_and_keeps_what_is_finished(recipes, tmp_path):
    class Stop(Callback):
        def on_epoch_end(self, facts):
            raise KeyboardInterrupt

    def callback(run):
        return Stop() if run.recipe.seed == 2 else Callback()

    store = RunStore(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        train_runs(plan_runs(recipes, store.runs(), RunCosts(HERE)), store, RunCosts(HERE), callback=callback)
    assert statuses(recipes, store) == ["finished", "finished", "running", "waiting"]
    tally = train_runs(plan_runs(recipes, store.runs(), RunCosts(HERE)), store, RunCosts(HERE))
    assert [run.recipe.seed for run in tally.finished] == [2, 3]


def test_nothing_starts_that_would_not_end_in_time(recipes, tmp_path, monkeypatch):
    """A run takes a minute, and the queue's clock moves on by a minute each time it is read: 0, 60, 120 seconds."""
    store, speeds = RunStore(tmp_path), RunCosts(HERE, {RunCosts.key(HERE, recipes[0].as_dict()): 10.0})
    monkeypatch.setattr(RunCosts, "add", lambda self, facts, just_now=False: None)
    planned = plan_runs(recipes, store.runs(), speeds)
    assert [run.seconds for run in planned] == [60.0] * 4  # six epochs of ten seconds
    clock = itertools.count(0, 60)
    monkeypatch.setattr("noiseproof.train.run_list.time", SimpleNamespace(monotonic=lambda: next(clock)))
    tally = train_runs(planned, store, speeds, minutes=3.5)
    assert [run.recipe.seed for run in tally.finished] == [0, 1]
    assert [run.recipe.seed for run in tally.not_started] == [2, 3]
    assert statuses(recipes, store) == ["finished", "finished", "waiting", "waiting"]


def test_a_kind_of_run_that_was_never_measured_starts(recipes, tmp_path):
    store = RunStore(tmp_path)
    tally = train_runs(plan_runs(recipes[:1], store.runs(), RunCosts(HERE)), store, RunCosts(HERE), minutes=1.0)
    assert len(tally.finished) == 1


def test_speeds_are_learned_from_finished_runs_and_shared_among_those_side_by_side(recipes, tmp_path):
    store, speeds = RunStore(tmp_path), RunCosts(HERE)
    train_runs(plan_runs(recipes[:1], store.runs(), speeds), store, speeds)
    (path,) = tmp_path.glob("*/record.json")
    facts = json.loads(path.read_text(encoding="utf-8"))
    facts["seconds"], facts["environment"]["at_once"] = {"prepare": 4.0, "train": 20.0}, 2
    path.write_text(json.dumps(facts), encoding="utf-8")
    (planned,) = plan_runs([dataclasses.replace(recipes[0], epochs=12)], RunStore(tmp_path).runs(), RunCosts(HERE))
    assert planned.seconds == pytest.approx((4 + 20 / 6 * 12) / 2), "twice the epochs begin once"
    (elsewhere,) = plan_runs(recipes[1:2], RunStore(tmp_path).runs(), RunCosts("another machine"))
    assert elsewhere.seconds is None


def measured(recipe, seconds, at_once):
    made = {"machine": HERE, "at_once": at_once}
    return {"recipe": recipe.as_dict(), "environment": made, "seconds": {"train": seconds}, "result": {"test_accuracy": 0.5}}


def test_a_few_runs_side_by_side_are_not_taken_to_be_faster_than_many_were(recipes):
    """Of six concurrent runs each took 60 seconds: 10 of the device's time. One alone does not end in 10 seconds."""
    speeds, facts = RunCosts(HERE), recipes[0].as_dict()
    assert speeds.until_end(facts, 0, 6) is None
    speeds.add(measured(recipes[0], 60.0, 6))
    assert speeds.seconds(facts) == pytest.approx(10)
    assert [speeds.until_end(facts, 0, width) for width in (1, 6, 12)] == pytest.approx([60, 60, 120])


def test_a_device_that_is_slower_than_it_was_is_believed(recipes):
    speeds, facts = RunCosts(HERE), recipes[0].as_dict()
    for _ in range(9):
        speeds.add(measured(recipes[0], 60.0, 6))
    speeds.add(measured(recipes[0], 150.0, 6), just_now=True)
    assert speeds.until_end(facts, 0, 6) == pytest.approx(150)
    speeds.add(measured(recipes[0], 20.0, 6), just_now=True)  # the last of its part, with the device to itself
    assert speeds.until_end(facts, 0, 6) == pytest.approx(60)


def test_of_a_run_that_was_begun_only_the_rest_must_end_in_time(recipes, tmp_path):
    """Six epochs of ten seconds: four are done, so that 20 seconds are left of one run and 60 of another."""

    class Stop(Callback):
        def on_epoch_end(self, facts):
            if facts.epoch == 4:
                raise KeyboardInterrupt

    store = RunStore(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        train_runs(plan_runs(recipes[:1], [], RunCosts(HERE)), store, RunCosts(HERE), callback=lambda run: Stop())
    speeds = RunCosts(HERE, {RunCosts.key(HERE, recipes[0].as_dict()): 10.0})
    planned = plan_runs([recipes[1], recipes[0]], store.runs(), speeds)
    assert [(run.done, run.seconds) for run in planned] == [(0, 60.0), (4, 20.0)]
    tally = train_runs(planned, store, speeds, minutes=0.5)
    assert [run.recipe.seed for run in tally.finished] == [0]
    assert [run.recipe.seed for run in tally.not_started] == [1]


def test_a_data_set_that_cannot_be_opened_fails_its_runs_only(recipes, tmp_path):
    damaged = tmp_path / "damaged.npz"
    damaged.write_bytes(b"not an archive")
    bad = [dataclasses.replace(recipe, dataset=str(damaged)) for recipe in recipes[:2]]
    store, heard = RunStore(tmp_path / "runs"), []
    tally = train_runs(
        plan_runs([bad[0], recipes[0], bad[1]], store.runs(), RunCosts(HERE)),
        store,
        RunCosts(HERE),
        on_outcome=lambda run, outcome: heard.append(type(outcome)),
    )
    assert [run.recipe for run, _ in tally.failed] == bad
    assert [run.recipe for run in tally.finished] == recipes[:1]
    assert len(heard) == 2, "the error is told once"


def test_parts_hold_one_network_and_enough_runs_to_fill_the_device(recipes):
    """Of each network three runs a seed: two concurrently, four times over, are eight."""
    wanted = [dataclasses.replace(recipe, model=model, model_options={}) for recipe in recipes for model in ("mlp", "cnn8") * 3]
    planned = plan_runs(wanted, [], RunCosts(HERE))
    kinds = [[(run.recipe.model, run.recipe.seed) for run in part] for part in run_batches(planned, "cuda", at_once=2)]
    assert sorted(kind for part in kinds for kind in part) == sorted((recipe.model, recipe.seed) for recipe in wanted)
    assert all(len({model for model, _ in part}) == 1 for part in kinds)
    assert [len(part) for part in kinds] == [8, 8, 4, 4]
    assert [seed for _, seed in kinds[0]] == [0, 0, 0, 1, 1, 1, 2, 2]


def test_a_seed_with_enough_runs_comes_before_the_next(recipes):
    wanted = [dataclasses.replace(recipe, batch=batch) for recipe in recipes[:2] for batch in (16, 32, 64, 128)]
    parts = list(run_batches(plan_runs(wanted, [], RunCosts(HERE)), "cpu"))
    assert [{run.recipe.seed for run in part} for part in parts] == [{0}, {1}]


def test_the_confidence_epochs_of_a_run_do_not_make_it_another(recipes, tmp_path):
    store = RunStore(tmp_path)
    train_runs(plan_runs(recipes[:1], store.runs(), RunCosts(HERE)), store, RunCosts(HERE))
    assert statuses([dataclasses.replace(recipes[0], confidence_epochs=())], store) == ["finished"]
    assert statuses([dataclasses.replace(recipes[0], batch=64)], store) == ["waiting"]


def test_shards_share_out_all_runs(recipes):
    parts = [shard(recipes, part, 3) for part in (1, 2, 3)]
    assert sorted(recipe.seed for part in parts for recipe in part) == [0, 1, 2, 3]
    assert [len(part) for part in parts] == [2, 1, 1]
    with pytest.raises(ValueError, match=r"the part must be in \[1, 3\], got 4"):
        shard(recipes, 4, 3)
