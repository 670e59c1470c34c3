"""Cross-fitting: folds, stored tasks that resume, learners that are left out."""

import json
from dataclasses import replace

import numpy as np
import pytest

from noiseproof.data import DataError
from noiseproof.io import files as io_files
from noiseproof.io.arrays import read_tensors
from noiseproof.io.files import BusyError, locked
from noiseproof.learners import crossfit as module
from noiseproof.learners.crossfit import assign_folds, crossfit
from noiseproof.learners.store import LearnerTask, TaskStore, load_learner

LEARNERS = ["logistic-0.01", "neighbours-40"]


@pytest.fixture(scope="module")
def data():
    g = np.random.default_rng(0)
    labels = g.integers(3, size=90)
    return (g.normal(size=(90, 4)) + 3 * np.eye(3, 4)[labels]).astype(np.float32), labels


def run(data, folder, learners=LEARNERS, **options):
    x, labels = data
    fold = assign_folds(labels, 3, 0)
    return crossfit(x, labels, 3, fold, learners, folder=folder, **{"jobs": 1, **options})


def test_every_class_is_spread_evenly_over_the_folds():
    labels = np.repeat([0, 1, 2], [50, 7, 1])
    fold = assign_folds(labels, 5, seed=3)
    for k in range(3):
        counts = np.bincount(fold[labels == k], minlength=5)
        assert counts.max() - counts.min() <= 1
    assert np.ptp(np.bincount(fold)) <= 1
    assert (assign_folds(labels, 5, seed=3) == fold).all()
    assert (assign_folds(labels, 5, seed=4) != fold).any()


def test_rows_of_a_group_are_in_one_fold_and_groups_are_spread_by_their_label():
    g = np.random.default_rng(0)
    groups, of_group = np.repeat(np.arange(40), g.integers(1, 9, 40)), np.arange(40) % 2
    labels = of_group[groups]
    fold = assign_folds(labels, 5, seed=0, groups=groups)
    assert all(len(np.unique(fold[groups == one])) == 1 for one in range(40))
    assert np.bincount(fold).min() > len(labels) / 10
    assert all(len(np.unique(labels[fold == one])) == 2 for one in range(5))


def test_too_few_groups_or_groups_for_other_rows_are_errors():
    with pytest.raises(DataError, match="2 groups for 5 folds"):
        assign_folds(np.arange(10), 5, 0, groups=np.arange(10) % 2)
    with pytest.raises(DataError, match="10 rows, 3 groups"):
        assign_folds(np.arange(10), 2, 0, groups=[1, 2, 3])


def test_each_row_is_predicted_by_learners_that_were_not_trained_on_its_label(data, tmp_path):
    x, labels = data
    found = run(data, tmp_path)
    assert list(found.predictions) == LEARNERS
    flipped = labels.copy()
    flipped[7] = (labels[7] + 1) % 3
    other = crossfit(x, flipped, 3, found.fold, LEARNERS, folder=tmp_path / "other", jobs=1)
    for name in LEARNERS:
        assert np.allclose(found.predictions[name].sum(1), 1, atol=1e-5)
        assert (found.predictions[name][7] == other.predictions[name][7]).all()
        rest = found.fold != found.fold[7]
        assert (found.predictions[name][rest] != other.predictions[name][rest]).any()


def test_a_stored_learner_predicts_what_it_predicted(data, tmp_path):
    found = run(data, tmp_path)
    for name in LEARNERS:
        for number, path in enumerate(found.files[name]):
            read, learner = load_learner(path)
            held = found.fold == number
            assert read == name
            assert (learner.predict_proba(data[0][held]) == found.predictions[name][held]).all()


def test_finished_tasks_are_not_computed_again_and_processes_compute_the_same(data, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "PROCESS_SECONDS", 1e-9)
    first = run(data, tmp_path / "processes", jobs=2)
    monkeypatch.undo()
    second = run(data, tmp_path / "here")
    for name in LEARNERS:
        assert (first.predictions[name] == second.predictions[name]).all()
        assert [p.name for p in first.files[name]] == [p.name for p in second.files[name]]
        for one, other in zip(first.files[name], second.files[name], strict=True):
            assert stored_arrays(one) == stored_arrays(other)
    monkeypatch.setattr(module, "_run", None)
    again = run(data, tmp_path / "here")
    assert all((again.predictions[name] == second.predictions[name]).all() for name in LEARNERS)


def test_a_process_is_started_only_for_work_that_is_worth_it(data, tmp_path, monkeypatch):
    found, here = [], module._run_here
    total = sum(3 * module.SPECS[name].seconds(60, 4, 3) for name in LEARNERS)
    monkeypatch.setattr(module, "PROCESS_SECONDS", total / 3.5)
    monkeypatch.setattr(module, "_run_in_processes", lambda queue, threads: [found.append(queue.jobs), here(queue, threads)])
    run(data, tmp_path / "many", jobs=64)
    run(data, tmp_path / "two", jobs=2)
    assert found == [3, 2]
    monkeypatch.setattr(module, "PROCESS_SECONDS", total)
    run(data, tmp_path / "here", jobs=64)
    assert found == [3, 2]


def stored_arrays(path):
    arrays, _ = read_tensors(path)
    return {name: array.tobytes() for name, array in arrays.items()}


def test_what_is_damaged_or_of_another_task_is_computed_again(data, tmp_path):
    whole = run(data, tmp_path)
    files = [path for name in LEARNERS for path in whole.files[name]]
    before = [stored_arrays(path) for path in files]
    content = bytearray(files[0].read_bytes())
    content[-5] ^= 1
    files[0].write_bytes(bytes(content))
    files[1].write_bytes(files[2].read_bytes())
    files[3].write_bytes(b"nothing")
    again = run(data, tmp_path)
    assert all((again.predictions[name] == whole.predictions[name]).all() for name in LEARNERS)
    assert [stored_arrays(path) for path in files] == before


@pytest.mark.parametrize("change", [{"seed": 1}, {"class_weight": "balanced"}])
def test_another_setting_is_another_task(data, tmp_path, change):
    before = run(data, tmp_path, ["logistic-0.01"])
    after = run(data, tmp_path, ["logistic-0.01"], **change)
    assert not {path.name for path in before.files["logistic-0.01"]} & {path.name for path in after.files["logistic-0.01"]}


def test_two_at_once_in_one_folder_do_not_clash(data, tmp_path):
    with locked(tmp_path, wait=False) as held:
        if not held:
            pytest.skip("this file system has no locks")
        with pytest.raises(BusyError, match="another process is at work"):
            run(data, tmp_path)


def test_a_learner_that_fails_is_left_out_and_named(data, tmp_path, monkeypatch):
    def fails(self, x, y, classes):
        raise ValueError("no luck")

    monkeypatch.setattr("noiseproof.learners.neighbours.NeighboursLearner.fit", fails)
    found = run(data, tmp_path)
    assert list(found.predictions) == ["logistic-0.01"]
    assert "no luck" in found.dropped["neighbours-40"]
    with pytest.raises(ValueError, match=r"no learner could be trained.*no luck"):
        run(data, tmp_path, ["neighbours-40"])


def test_a_budget_leaves_out_what_costs_most_says_so_and_stays_with_it(data, tmp_path, monkeypatch):
    asked = ["logistic-0.01", "neighbours-40", "network"]
    monkeypatch.setitem(module.SPECS, "network", replace(module.SPECS["network"], seconds=lambda *shape: 1e9))
    found = run(data, tmp_path, asked, minutes=60)
    assert list(found.predictions) == ["logistic-0.01", "neighbours-40"]
    assert "within 60 minutes" in found.dropped["network"]
    monkeypatch.setattr(module, "_run", None)  # nothing is computed now
    again = run(data, tmp_path, asked, minutes=60)
    assert again.dropped == found.dropped


def test_one_learner_is_kept_whatever_the_budget(data, tmp_path):
    found = run(data, tmp_path, minutes=1e-9)
    assert len(found.predictions) == 1
    assert len(found.dropped) == 1


def test_progress_counts_the_tasks(data, tmp_path):
    seen = []
    run(data, tmp_path, progress=seen.append)
    assert [stage.done for stage in seen] == [1, 2, 3, 4, 5, 6]
    assert {stage.total for stage in seen} == {6}
    assert seen[-1].seconds_left == 0


def test_a_full_disk_loses_nothing(data, tmp_path, monkeypatch):
    whole = run(data, tmp_path / "whole")
    write, left = io_files.write_whole, [3]

    def full(path, content):
        left[0] -= 1
        if left[0] < 0:
            raise OSError(28, "No space left on device", str(path))
        write(path, content)

    monkeypatch.setattr(io_files, "write_whole", full)
    with pytest.raises(OSError, match="No space left"):
        run(data, tmp_path / "other")
    monkeypatch.undo()
    again = run(data, tmp_path / "other")
    assert all((again.predictions[name] == whole.predictions[name]).all() for name in LEARNERS)


def test_a_learner_is_left_out_where_there_are_too_many_classes(data, tmp_path, monkeypatch):
    spec = module.SPECS["neighbours-40"]
    monkeypatch.setitem(module.SPECS, "neighbours-40", type(spec)(**{**vars(spec), "max_classes": 2}))
    assert "too slow for 3 classes" in run(data, tmp_path).dropped["neighbours-40"]


def test_a_crafted_file_of_a_learner_is_refused(data, tmp_path):
    from safetensors.numpy import save_file

    path = tmp_path / "logistic-0.01-0-x.safetensors"
    for facts, arrays in (
        ({"learner": "os.system"}, {"model.a": np.zeros(1)}),
        ({"learner": "forest-3"}, {"model.roots": np.array([0], np.int32)}),
        ({}, {"model.a": np.zeros(1)}),
    ):
        save_file(arrays, path, facts)
        with pytest.raises(DataError, match="damaged"):
            load_learner(path)
    path.write_bytes(json.dumps({"a": 1}).encode())
    with pytest.raises(DataError, match="damaged"):
        load_learner(path)
    assert TaskStore(tmp_path).read(LearnerTask("logistic-0.01", 0), "x" * 64, (1, 1)) is None


def test_a_short_first_task_says_little_of_the_machine(data, tmp_path):
    x, labels = data
    queue = module._Queue(
        module._Data(x, labels, assign_folds(labels, 3, 0), 3), TaskStore(tmp_path), ["logistic-0.01", "network"], 1.0, None, 1
    )
    queue.seconds[LearnerTask("logistic-0.01", 0)] = 20 * queue.cost["logistic-0.01"]
    assert queue._expected(LearnerTask("network", 0)) < 2 * queue.cost["network"]
    queue.seconds[LearnerTask("logistic-0.01", 1)] = 100.0
    assert queue._expected(LearnerTask("network", 0)) > 50 * queue.cost["network"]


def test_plain_training_is_left_out_last(data, tmp_path):
    found = run(data, tmp_path, [*LEARNERS, "plain-boosting"], minutes=1e-9)
    assert list(found.predictions) == ["logistic-0.01"]
    found = run(data, tmp_path / "other", [*LEARNERS, "plain-logistic"], minutes=60)
    assert set(found.predictions) == {*LEARNERS, "plain-logistic"}
