"""Cross-validation: stratified folds, oversampling, what is stored and found again, folds that are trained concurrently."""

import threading
import time

import numpy as np
import pytest
import torch

from noiseproof import audit_labels
from noiseproof.audit import folds
from noiseproof.audit.folds import (
    FoldStore,
    HeldOutPredictions,
    cross_validate,
    oversample,
    plan_cross_validation,
)
from noiseproof.data import Split
from noiseproof.io.files import claimed
from noiseproof.learners.crossfit import assign_folds
from noiseproof.noise import symmetric
from noiseproof.train import Run, RunOptions
from tests.helpers.audits import SHORT, points

pytestmark = pytest.mark.usefixtures("one_thread")


def test_every_network_has_a_seed_of_its_own(monkeypatch):
    seeds, key = [], folds._key
    monkeypatch.setattr(folds, "_key", lambda plan, recipe, *rest: seeds.append(recipe.seed) or key(plan, recipe, *rest))
    x, true = points(60)
    audit_labels(x, true, folds=3, epochs=1, device="cpu")
    assert len(seeds) == len(set(seeds)) == 6


def test_the_same_bytes_as_images_of_other_sides_are_other_data():
    pixels, labels = np.zeros((60, 8, 8, 3), np.uint8), np.arange(60) % 3
    shapes = ((60, 8, 8, 3), (60, 4, 16, 3))
    plans = [
        plan_cross_validation(Split(pixels.reshape(shape), labels), ("a", "b", "c"), options=RunOptions())[0]
        for shape in shapes
    ]
    assert plans[0].digest != plans[1].digest


def test_predictions_are_the_mean_of_the_last_half_of_the_epochs_or_of_as_many_as_are_averaged(monkeypatch):
    x, true = points(60)
    seen, predict = [], Run.probabilities
    monkeypatch.setattr(Run, "probabilities", lambda run, split: seen.append(predict(run, split)) or seen[-1])
    plan, recipe = plan_cross_validation(Split(x, true), ("a", "b", "c"), quick=True, epochs=7, options=RunOptions())
    assert folds.EPOCHS_AVERAGED == 8  # as docs/how_to/audit.md says
    for most, averaged in ((8, 3), (2, 2)):
        seen.clear()
        monkeypatch.setattr(folds, "EPOCHS_AVERAGED", most)
        found = cross_validate(plan, recipe, FoldStore(None)).probabilities
        assert len(seen) == averaged
        np.testing.assert_allclose(found, np.mean(seen, 0), rtol=1e-6)
        assert not np.allclose(found, seen[-1], rtol=1e-3)


class KilledError(Exception):
    """What stands for the end of the process."""


def test_killed_in_the_middle_no_finished_fold_is_trained_again(tmp_path, trained):
    x, true = points(120)
    given = symmetric(3, 0.2).apply(true, seed=1).labels
    whole = audit_labels(x, given, **SHORT)
    trained.clear()

    def killed(step):
        if step.stage == "soft labels" and step.fold == 2 and step.epoch == 1:
            raise KilledError

    with pytest.raises(KilledError):
        audit_labels(x, given, folder=tmp_path / "kept", progress=killed, **SHORT)
    assert len(trained) == 5
    (tmp_path / "kept" / ".fold-1.npz.0a1b2c3d").write_bytes(b"half")
    found = audit_labels(x, given, folder=tmp_path / "kept", **SHORT)
    assert len(trained) == 5 + 2
    np.testing.assert_array_equal(found.posterior, whole.posterior)
    stored = sorted((tmp_path / "kept").iterdir())
    assert len(stored) == 6, "the partial file is gone"
    told = []
    audit_labels(x, given, folder=tmp_path / "kept", progress=told.append, **SHORT)
    assert len(trained) == 7
    assert [step.state for step in told] == ["trained before"] * 6
    stored[0].write_bytes(stored[0].read_bytes()[:-40])
    found = audit_labels(x, given, folder=tmp_path / "kept", **SHORT)
    assert len(trained) == 8, "the damaged one is trained again"
    np.testing.assert_array_equal(found.posterior, whole.posterior)


def test_a_fold_in_the_place_of_another_is_not_taken(tmp_path, trained):
    """Two files that have changed places, of one shape; one of before, without a digest, is read as it is."""
    x, true = points(120)
    given = symmetric(3, 0.2).apply(true, seed=1).labels
    whole = audit_labels(x, given, folder=tmp_path, **SHORT)
    stored, count = sorted(tmp_path.iterdir()), len(trained)
    first, second = [path.read_bytes() for path in stored[:2]]
    stored[0].write_bytes(second)
    stored[1].write_bytes(first)
    found = audit_labels(x, given, folder=tmp_path, **SHORT)
    assert len(trained) == count + 2
    np.testing.assert_array_equal(found.posterior, whole.posterior)
    for path in stored:
        with np.load(path) as file:
            np.savez(path, probabilities=file["probabilities"], features=file["features"])
    found = audit_labels(x, given, folder=tmp_path, **SHORT)
    assert len(trained) == count + 2
    np.testing.assert_array_equal(found.posterior, whole.posterior)


CHANGES = ({"seed": 5}, {"epochs": 3}, {"folds": 2}, {"model": "resnet18"}, {"y": 1}, {"x": 1})


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: next(iter(change)))
def test_a_stored_fold_is_of_the_same_data_labels_and_settings(tmp_path, change, monkeypatch):
    """Whatever differs, nothing that is stored is taken."""
    x, true = points(60)
    audit_labels(x, true, folder=tmp_path, epochs=2, folds=3, device="cpu")
    asked = []
    monkeypatch.setattr(folds.FoldStore, "read", lambda self, key, rows, classes: asked.append(key))
    monkeypatch.setattr(folds, "_train_fold", lambda *_: (_ for _ in ()).throw(KilledError))
    if "y" in change:
        true = np.where(np.arange(60) == 7, (true + 1) % 3, true)
    if "x" in change:
        x = x + 1e-3 * (np.arange(60) == 7)[:, None]
    if "model" in change:
        x = np.zeros((60, 3, 8, 8)) + x[:, :, None, None]
    options = {"epochs": 2, "folds": 3, "device": "cpu"} | {key: value for key, value in change.items() if key not in "xy"}
    with pytest.raises(KilledError):
        audit_labels(x, true, folder=tmp_path, **options)
    assert asked
    assert not any((tmp_path / f"fold-{key[:24]}.npz").exists() for key in asked)


def test_folds_that_were_stored_before_names_changed_are_found(tmp_path):
    """The files of the networks of the given labels, whose names depend on data and recipe alone, as version 0.1 wrote them."""
    x = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
    plan, recipe = plan_cross_validation(Split(x, np.arange(60) % 3), ("0", "1", "2"), folds=2, epochs=1, options=RunOptions())
    cross_validate(plan, recipe, FoldStore(tmp_path))
    kept = [path.name for path in tmp_path.glob("*.npz")]
    assert sorted(kept) == ["fold-849b3e097a7b1a3e0a004f0f.npz", "fold-e1d551fbbb748f231d9c1c91.npz"]


def test_a_fold_of_other_soft_labels_is_trained_anew(tmp_path, trained):
    """As they are where features are given the second time."""
    x, true = points(60)
    plan, recipe = plan_cross_validation(Split(x, true), ("a", "b", "c"), folds=2, epochs=1, options=RunOptions())
    soft = np.eye(3, dtype=np.float32)[true]
    for labels in (soft, soft, soft[:, ::-1]):
        cross_validate(plan, recipe, FoldStore(tmp_path), labels)
    assert len(trained) == 4


def test_two_processes_do_not_work_in_one_folder(tmp_path):
    x, true = points(60)
    with claimed(tmp_path), pytest.raises(ValueError, match="another process is at work"):
        audit_labels(x, true, folder=tmp_path, **SHORT)


def test_folds_have_the_classes_of_the_whole_and_rare_ones_are_spread():
    labels = np.array([0] * 50 + [1] * 23 + [2] * 3 + [3])
    found = assign_folds(labels, 5, seed=1)
    assert np.bincount(found).tolist() == [16, 16, 15, 15, 15]
    for label in (0, 1):
        counts = np.bincount(found[labels == label], minlength=5)
        assert counts.max() - counts.min() <= 1
    assert len(set(found[labels == 2].tolist())) == 3
    assert not np.array_equal(found, assign_folds(labels, 5, seed=2))


def test_rare_classes_are_repeated_to_half_of_the_most_frequent_one_or_the_mean_and_rows_at_most_double():
    """By hand: of 90 and 10 the rare one becomes 45; of 73 and nine times 3 each becomes 10, the mean; 20 and 10 stay."""
    for counts, wanted in (
        ((90, 10), [90, 45]),
        ((73, *[3] * 9), [73, *[10] * 9]),
        ((20, 10), [20, 10]),
        ((5, 0, 1), [5, 0, 2]),
    ):
        labels = np.repeat(np.arange(len(counts)), counts)
        rows = np.random.default_rng(0).permutation(len(labels))
        found = oversample(rows, labels)
        assert np.bincount(labels[found]).tolist() == wanted
        np.testing.assert_array_equal(found[: len(rows)], rows)
        assert len(found) <= 2 * len(rows)
        again = np.bincount(found, minlength=len(labels))
        for label in np.unique(labels):  # each example of a class as often as another, but for one
            assert np.ptp(again[labels == label]) <= 1


def test_a_rare_class_is_learnt_and_its_labels_do_not_look_wrong():
    """Of clean labels of two classes, one in ten of the rarer. Never predicted, it had an estimate of its own of 0.5 for how
    often it keeps its label, whatever the labels; the classes lie four deviations apart, so that 2 in 100 examples are on the
    wrong side."""
    generator = np.random.default_rng(0)
    true = (np.arange(400) % 10 == 0).astype(np.int64)
    x = 4 * np.eye(2)[true] / 2**0.5 + generator.standard_normal((400, 2))
    plan, recipe = plan_cross_validation(
        Split(x.astype(np.float32), true), ("a", "b"), epochs=16, folds=3, options=RunOptions(torch.device("cpu"))
    )
    predicted = cross_validate(plan, recipe, FoldStore(None)).probabilities.argmax(1)
    assert (predicted == 1)[true == 1].mean() > 0.7


@pytest.fixture
def concurrently(monkeypatch):
    """Folds are trained three at a time, as on a GPU."""
    monkeypatch.setattr(folds, "fast_path_suits", lambda *_: True)
    monkeypatch.setattr(folds, "concurrent_runs", lambda *_: 3)


def test_folds_trained_concurrently_are_put_together_as_folds_in_turn_are(concurrently, monkeypatch):
    """The three are in training at the same time, and end in another order than they began."""
    x, true = points(rows=30)
    plan, recipe = plan_cross_validation(Split(x, true), ("a", "b", "c"), folds=3, epochs=1, options=RunOptions())
    together = threading.Barrier(3, timeout=20)
    turns, told = [threading.Event() for _ in range(4)], []
    turns[3].set()

    def trained(recipe, task, held, options, on_epoch, stopping):
        together.wait()
        number = int(plan.fold[np.flatnonzero((x == held.inputs[0]).all(1))[0]])
        assert turns[number + 1].wait(20)  # the last ends first
        turns[number].set()
        assert options.at_once == 3
        return HeldOutPredictions(np.full((len(held), 3), number, np.float32), held.inputs.astype(np.float32))

    monkeypatch.setattr(folds, "_train_fold", trained)
    found = cross_validate(plan, recipe, FoldStore(None), on_epoch=lambda *facts: told.append(facts))
    np.testing.assert_array_equal(found.probabilities[:, 0], plan.fold)
    np.testing.assert_array_equal(found.features, x.astype(np.float32))
    assert sorted(told) == [(number, 1, "trained") for number in range(3)]


def test_a_fold_that_fails_stops_those_beside_it(concurrently, monkeypatch):
    x, true = points(rows=30)
    plan, recipe = plan_cross_validation(Split(x, true), ("a", "b", "c"), folds=3, epochs=10**6, options=RunOptions())
    started, stopped = threading.Barrier(3, timeout=20), []

    class Run:
        """The last of the three fails in its first epoch, the others would go on for long."""

        def __init__(self, recipe, task, options):
            self.fails = (task.train.inputs[:, None] != x[plan.fold == 2]).any(2).all()
            started.wait()

        def train_epoch(self, epoch, on_batch):
            if self.fails:
                raise ValueError("no more")
            time.sleep(0.001)
            on_batch(1)

        def close(self):
            stopped.append(self.fails)

    monkeypatch.setattr(folds, "start_run", Run)
    with pytest.raises(ValueError, match="no more"):
        cross_validate(plan, recipe, FoldStore(None))
    assert sorted(stopped) == [False, False, True]
