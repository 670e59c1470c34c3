"""Audits that train networks: of points around three centres, whose true labels are known, and of small images."""

import sys
import threading
import time
import types

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import noiseproof
from noiseproof import audit_labels
from noiseproof.audit import folds
from noiseproof.audit.folds import (
    FoldStore,
    HeldOutPredictions,
    cross_validate,
    oversample,
    plan_cross_validation,
    stratified_folds,
)
from noiseproof.audit.labels import _neighbour_views
from noiseproof.data import ImageFiles, Split
from noiseproof.noise import pairflip, symmetric
from noiseproof.train import Run, RunOptions
from noiseproof.train.runs import claimed

SHORT = {"epochs": 8, "folds": 3, "device": "cpu"}


@pytest.fixture(autouse=True)
def _faster(monkeypatch):
    """One thread, on which such small networks are faster, and fewer samples for the interval."""
    monkeypatch.setattr("noiseproof.audit.estimate.BOOTSTRAP_SAMPLES", 10)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def points(rows=300, classes=3, seed=0):
    """Points around the corners of a simplex, and their classes."""
    generator = np.random.default_rng(seed)
    true = np.arange(rows) % classes
    return 4 * np.eye(classes)[true] + generator.standard_normal((rows, classes)), true


@pytest.fixture
def trained(monkeypatch):
    """How many networks are trained: a list with the examples of each."""
    found, start = [], folds.start_run
    monkeypatch.setattr(
        folds, "start_run", lambda recipe, task, options: found.append(task.train) or start(recipe, task, options)
    )
    return found


def test_wrong_labels_are_found_out_of_sample(trained):
    x, true = points()
    given = symmetric(3, 0.2).apply(true, seed=1).labels
    told = []
    found = audit_labels(x, given, progress=told.append, classes=["a", "b", "c"], **SHORT)
    wrong = true != given
    assert (found.flagged == wrong).mean() > 0.95
    assert (found.suggested == true).mean() > 0.95
    assert found.rate_interval[0] <= wrong.mean() <= found.rate_interval[1]
    np.testing.assert_allclose(found.transition, symmetric(3, 0.2).matrix, atol=0.1)
    np.testing.assert_allclose(found.posterior.sum(1), 1, atol=1e-5)
    assert found.warnings == ()
    assert "out of sample" in found.how
    assert found.out_of_sample
    assert found.classes == ("a", "b", "c")
    assert [len(part) for part in trained] == [300 - (found.fold == k).sum() for k in (0, 1, 2)] * 2
    assert [step.done for step in told] == sorted(step.done for step in told)
    assert (told[0].stage, told[0].fold, told[0].epoch, told[0].done) == ("given labels", 1, 1, 1)
    assert told[-2:] == [("soft labels", 3, 3, 4, 4, 36, 36, state) for state in ("training", "trained")]


def test_the_seed_decides_everything():
    x, true = points(120)
    given = symmetric(3, 0.2).apply(true, seed=1).labels
    before = torch.random.get_rng_state()
    first, again, other = (audit_labels(x, given, seed=seed, **SHORT) for seed in (1, 1, 2))
    assert torch.equal(torch.random.get_rng_state(), before)
    np.testing.assert_array_equal(first.posterior, again.posterior)
    assert first.rate_interval == again.rate_interval
    assert not np.array_equal(first.fold, other.fold)
    assert not np.array_equal(first.posterior, other.posterior)


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
    assert folds.EPOCHS_AVERAGED == 8  # as docs/audit.md says
    for most, averaged in ((8, 3), (2, 2)):
        seen.clear()
        monkeypatch.setattr(folds, "EPOCHS_AVERAGED", most)
        found = cross_validate(plan, recipe, FoldStore(None)).probabilities
        assert len(seen) == averaged
        np.testing.assert_allclose(found, np.mean(seen, 0), rtol=1e-6)
        assert not np.allclose(found, seen[-1], rtol=1e-3)


def test_a_quick_audit_trains_one_network(trained):
    x, true = points()
    given = symmetric(3, 0.2).apply(true, seed=1).labels
    found = audit_labels(x, given, quick=True, epochs=12, device="cpu")
    assert [len(part) for part in trained] == [300]
    assert (found.flagged == (true != given)).mean() > 0.95
    assert found.fold is None
    assert not found.out_of_sample
    assert "in sample" in found.how


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


def test_votes_are_those_of_the_same_fold():
    """Examples of a class have one direction, and twelve of them are in each fold: all ten neighbours are of their class."""
    true = np.random.default_rng(0).permutation(np.repeat(np.arange(3), 24))
    plan, _ = plan_cross_validation(Split(np.eye(3)[true], true), ("a", "b", "c"), folds=2, options=RunOptions())
    (votes,) = _neighbour_views(plan, HeldOutPredictions(np.eye(3)[true], np.eye(3, dtype=np.float32)[true]), None)
    np.testing.assert_allclose(np.exp(votes), np.where(np.eye(3)[true] == 1, 10.5, 0.5) / 11.5, rtol=1e-6)


def test_two_processes_do_not_work_in_one_folder(tmp_path):
    x, true = points(60)
    with claimed(tmp_path), pytest.raises(ValueError, match="another process is at work"):
        audit_labels(x, true, folder=tmp_path, **SHORT)


def test_features_of_ones_own_say_which_examples_are_near():
    """Inputs that say little, and features that say all."""
    x, true = points()
    given = symmetric(3, 0.2).apply(true, seed=1).labels
    blurred = x + 2.5 * np.random.default_rng(0).standard_normal(x.shape)
    alone, helped = (audit_labels(blurred, given, features=features, **SHORT) for features in (None, x))
    right = [(found.flagged == (true != given)).mean() for found in (alone, helped)]
    assert right[1] > right[0] + 0.05
    assert "features that were given" in helped.how
    assert "the network's features" in alone.how


def test_inputs_that_say_nothing_are_said():
    generator = np.random.default_rng(0)
    found = audit_labels(generator.standard_normal((240, 6)), generator.integers(6, size=240), **SHORT)
    assert "they are weak, and what they cannot tell counts as wrong; the rate is likely too high" in found.warnings[0]
    assert f"agree in {found.agreement:.1%}" in str(found)


def test_weak_features_inflate_the_rate_which_is_said():
    """The labels are right, but neighbouring classes overlap."""
    x, true = points(360, classes=6)
    found = audit_labels(0.4 * x + np.random.default_rng(1).standard_normal(x.shape), true, **SHORT)
    assert found.rate > 0.1
    assert 0.4 < found.agreement < 0.8
    assert found.weak
    assert "right ones would with" in found.warnings[0]


def test_folds_have_the_classes_of_the_whole_and_rare_ones_are_spread():
    labels = np.array([0] * 50 + [1] * 23 + [2] * 3 + [3])
    found = stratified_folds(labels, 5, seed=1)
    assert np.bincount(found).tolist() == [16, 16, 15, 15, 15]
    for label in (0, 1):
        counts = np.bincount(found[labels == label], minlength=5)
        assert counts.max() - counts.min() <= 1
    assert len(set(found[labels == 2].tolist())) == 3
    assert not np.array_equal(found, stratified_folds(labels, 5, seed=2))


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


def test_classes_that_are_too_rare_are_said():
    x, true = points(120, classes=2)
    x, true = np.vstack([x, [[9.0, 9.0], [-9.0, -9.0], [-9.0, -8.0]]]), np.concatenate([true, [2, 3, 3]])
    found = audit_labels(x, true, classes=["ant", "bee", "cat", "dog"], **SHORT)
    assert np.isfinite(found.posterior).all()
    text = "\n".join(found.warnings)
    assert "classes with one example cannot be held out and learnt: nothing is known of their label: cat" in text
    assert "classes with fewer examples than the 3 folds are in fewer folds: dog" in text


def test_two_classes_and_a_class_without_examples():
    x, true = points(200, classes=2)
    given = symmetric(2, 0.1).apply(true, seed=0).labels
    found = audit_labels(x, given, classes=["no", "yes", "perhaps"], **SHORT)
    assert (found.flagged == (true != given)).mean() > 0.9
    assert found.posterior.shape == (200, 3)
    assert any(text.startswith("class perhaps: no example has this label") for text in found.warnings)


def test_pairs_that_are_confused_almost_as_often_as_not_are_said():
    x, true = points(450)
    given = pairflip(3, 0.45).apply(true, seed=0).labels
    found = audit_labels(x, given, epochs=16, folds=3, device="cpu")
    assert any("almost as often: suggestions between the two are guesses" in text for text in found.warnings)


def tiny(classes):
    return nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.BatchNorm1d(12), nn.Linear(12, classes))


@pytest.fixture
def own_model(monkeypatch):
    module = types.ModuleType("own_network_of_a_test")
    module.tiny = tiny
    monkeypatch.setitem(sys.modules, "own_network_of_a_test", module)
    return "own_network_of_a_test:tiny"


def pictures(rows=161):
    true = np.arange(rows) % 2
    pixels = np.random.default_rng(0).integers(0, 100, (rows, 10, 10, 3)) + 120 * true[:, None, None, None]
    return pixels.astype(np.uint8), true


def test_images_and_a_network_of_ones_own(own_model):
    """129 of 161 images would leave one for the last batch, on which BatchNorm cannot train."""
    pixels, true = pictures()
    given = np.where(np.arange(161) % 13 == 0, 1 - true, true)
    found = audit_labels(Split(pixels, given), model=own_model, epochs=40, folds=5, device="cpu")
    assert (found.flagged == (true != given)).mean() > 0.95
    assert "nearest" not in found.how


def test_without_a_gpu_images_are_learnt_by_a_small_network_which_is_said(tmp_path):
    pixels, true = pictures(60)
    given = np.where(np.arange(60) % 13 == 0, 1 - true, true)
    found = audit_labels(pixels, given, quick=True, epochs=4, device="cpu")
    assert (found.flagged == (true != given)).mean() > 0.95
    assert any("learnt by a small network, cnn5, at about 32x32 pixels" in text for text in found.warnings)
    for path in (paths := [tmp_path / f"{k}.png" for k in range(60)]):
        image = Image.fromarray(pixels[int(path.stem)])
        image.resize((90, 80 + int(path.stem))).save(path)
    files = ImageFiles(tuple(map(str, paths)), given)
    options = {"options": RunOptions(torch.device("cpu")), "quick": True}
    plan, recipe = plan_cross_validation(files, ("0", "1"), **options)
    assert (recipe.model, recipe.optimiser, recipe.size) == ("cnn5", "adam", (32, 32))
    assert plan.task.train.inputs.shape == (60, 32, 32, 3), "they are read once"
    options["options"] = RunOptions(torch.device("cpu"), skip_corrupt=True)
    plan, recipe = plan_cross_validation(files, ("0", "1"), **options)
    assert (recipe.model, recipe.size, plan.task.train.in_memory) == ("cnn5", None, False)
    assert plan_cross_validation(files, ("0", "1"), model="resnet18", **options)[1].model == "resnet18"
    options["options"] = RunOptions(torch.device("cuda"))
    assert plan_cross_validation(Split(pixels, given), ("0", "1"), **options)[1].model == "resnet18"
    assert plan_cross_validation(files, ("0", "1"), **options)[1].model == "resnet50"


@pytest.mark.parametrize("sizes", [1, 2])
def test_damaged_image_files_are_left_out_on_request_and_said(tmp_path, own_model, sizes):
    pixels, true = pictures(24)
    paths = [str(tmp_path / f"{k}.png") for k in range(24)]
    for k, path in enumerate(paths):
        Image.fromarray(pixels[k, : 9 + k % sizes]).save(path)  # of one size they would be read into memory
    (tmp_path / "5.png").write_bytes((tmp_path / "5.png").read_bytes()[:-30])  # its header still says the size
    files = ImageFiles(tuple(paths), true)
    options = {"model": own_model, "epochs": 2, "folds": 2, "device": "cpu", "workers": 0}
    found = audit_labels(files, skip_corrupt=True, **options)
    assert np.isfinite(found.posterior).all()
    assert any("1 images could not be read: nothing is known of their labels" in text for text in found.warnings)
    with pytest.raises(ValueError, match=r"5\.png"):
        audit_labels(files, **options)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda x, y: {"x": np.where(x == x[7], np.nan, x)}, ValueError, "must be finite; example 7"),
        (lambda x, y: {"y": y[:-1]}, ValueError, "60 inputs for 59 labels"),
        (lambda x, y: {"y": None}, TypeError, "needs the given labels"),
        (lambda x, y: {"y": y * 1.0}, ValueError, "vector of integers"),
        (lambda x, y: {"y": y - 1}, ValueError, "got -1"),
        (lambda x, y: {"y": y * 0}, ValueError, "at least two classes, got 1"),
        (lambda x, y: {"classes": ["a", "b"]}, ValueError, r"in \[0, 1\], got 2"),
        (lambda x, y: {"folds": 1}, ValueError, r"folds must be in \[2, 60\]"),
        (lambda x, y: {"folds": 61}, ValueError, r"folds must be in \[2, 60\]"),
        (lambda x, y: {"epochs": 0}, ValueError, "epochs must be at least 1"),
        (lambda x, y: {"features": np.ones((59, 2))}, ValueError, "one row for each label"),
        (lambda x, y: {"x": np.zeros((60, 3, 9, 9)), "y": y}, ValueError, "look like images"),
        (lambda x, y: {"x": Split(np.zeros((60, 2), np.float32), y), "y": y[:-1]}, ValueError, "60 integers"),
        (
            lambda x, y: {"x": ImageFiles(("a.png", "b.png"), np.array([0, 5])), "y": None, "classes": ["a"]},
            ValueError,
            "got 5",
        ),
    ],
)
def test_what_cannot_be_audited_is_refused(change, error, message):
    x, true = points(60)
    options = {"x": x, "y": true} | change(x, true)
    with pytest.raises(error, match=message):
        audit_labels(options.pop("x"), options.pop("y"), **(SHORT | options))


def test_whole_numbers_are_features_as_well():
    x, true = points(60)
    found = audit_labels(np.rint(10 * x).astype(np.int64), true, **SHORT)
    assert found.rate < 0.2


def test_it_is_part_of_the_package():
    assert noiseproof.audit_labels is noiseproof.audit.audit_labels


@pytest.mark.slow
@pytest.mark.parametrize(("noise", "least"), [(None, None), (symmetric(10, 0.4), 0.98), (pairflip(10, 0.2), 0.98)])
def test_digits(noise, least):
    """Clean ones come out clean; of noisy ones the wrong labels are ranked first."""
    datasets, metrics = pytest.importorskip("sklearn.datasets"), pytest.importorskip("sklearn.metrics")
    x, true = datasets.load_digits(return_X_y=True)
    given = true if noise is None else noise.apply(true, seed=0).labels
    found = audit_labels(x, given, device="cpu")
    if noise is None:
        assert found.rate < 0.02
        assert found.warnings == ()
    else:
        assert metrics.roc_auc_score(true != given, found.p_wrong) > least
        assert found.rate_interval[0] <= (true != given).mean() <= found.rate_interval[1]


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
