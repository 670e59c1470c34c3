"""Audits that train networks: of points around three centres, whose true labels are known, and of small images."""

import sys
import types

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import noiseproof
from noiseproof import audit_labels
from noiseproof.audit.folds import HeldOutPredictions, plan_cross_validation
from noiseproof.audit.labels import _neighbour_views
from noiseproof.data import ImageFiles, Split
from noiseproof.noise import pairflip, symmetric
from noiseproof.train import RunOptions
from tests.helpers.audits import SHORT, points

pytestmark = pytest.mark.usefixtures("one_thread")


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


def test_a_quick_audit_trains_one_network(trained):
    x, true = points()
    given = symmetric(3, 0.2).apply(true, seed=1).labels
    found = audit_labels(x, given, quick=True, epochs=12, device="cpu")
    assert [len(part) for part in trained] == [300]
    assert (found.flagged == (true != given)).mean() > 0.95
    assert found.fold is None
    assert not found.out_of_sample
    assert "in sample" in found.how


def test_votes_are_those_of_the_same_fold():
    """Examples of a class have one direction, and twelve of them are in each fold: all ten neighbours are of their class."""
    true = np.random.default_rng(0).permutation(np.repeat(np.arange(3), 24))
    plan, _ = plan_cross_validation(Split(np.eye(3)[true], true), ("a", "b", "c"), folds=2, options=RunOptions())
    (votes,) = _neighbour_views(plan, HeldOutPredictions(np.eye(3)[true], np.eye(3, dtype=np.float32)[true]), None)
    np.testing.assert_allclose(votes, np.where(np.eye(3)[true] == 1, 10.5, 0.5) / 11.5, rtol=1e-6)


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
    assert "they cannot tell wrong labels from hard examples" in found.warnings[0]
    assert not found.flagged.any()
    assert f"agree in {found.agreement:.1%}" in str(found)


def test_weak_features_are_said_and_clean_labels_may_all_be_right():
    """The labels are right, but neighbouring classes overlap."""
    x, true = points(360, classes=6)
    found = audit_labels(0.4 * x + np.random.default_rng(1).standard_normal(x.shape), true, **SHORT)
    assert found.rate_interval[0] == 0
    assert 0.4 < found.agreement < 0.8
    assert found.weak
    assert "perfect ones would with" in found.warnings[0]


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
    assert plan_cross_validation(files, ("0", "1"), model="resnet18", **options)[1].model == "resnet18"
    options["options"] = RunOptions(torch.device("cuda"))
    assert plan_cross_validation(Split(pixels, given), ("0", "1"), **options)[1].model == "resnet18"
    assert plan_cross_validation(files, ("0", "1"), **options)[1].model == "resnet50"


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda x, y: {"x": np.where(x == x[7], np.nan, x)}, ValueError, "must be finite; example 7"),
        (lambda x, y: {"y": y[:-1]}, ValueError, "60 inputs for 59 labels"),
        (lambda x, y: {"y": None}, TypeError, "needs the given labels"),
        (lambda x, y: {"y": y + 0.5}, ValueError, "must be classes, got the number 0.5"),
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


def test_features_are_learnt_by_the_learners_of_a_fit_and_the_audit_is_that_of_the_fit():
    x, true = points(240)
    given = symmetric(3, 0.2).apply(true, seed=1).labels
    told = []
    found = audit_labels(x, given, quick=True, progress=told.append)
    model = noiseproof.fit(x, given, quick=True)
    np.testing.assert_array_equal(found.posterior, model.audit.posterior)
    np.testing.assert_array_equal(found.fold, model.audit.fold)
    assert found.rate_interval == model.audit.rate_interval
    assert "3-fold cross-validation of 6 learners" in found.how
    assert (told[-1].name, told[0].total) == ("noise model", 18)
    assert (found.flagged == (true != given)).mean() > 0.9


def test_a_finished_learner_is_not_trained_again(tmp_path, monkeypatch):
    x, true = points(90)
    found = audit_labels(x, true, quick=True, folder=tmp_path)
    monkeypatch.setattr("noiseproof.learners.crossfit._run", None)
    again = audit_labels(x, true, quick=True, folder=tmp_path)
    np.testing.assert_array_equal(again.posterior, found.posterior)


def test_features_that_are_given_are_a_view_of_the_learners_audit():
    x, true = points(120)
    blurred = x + 3 * np.random.default_rng(2).standard_normal(x.shape)
    given = symmetric(3, 0.2).apply(true, seed=1).labels
    alone, helped = (audit_labels(blurred, given, features=features, quick=True) for features in (None, x))
    wrong = true != given
    assert (helped.flagged == wrong).mean() > (alone.flagged == wrong).mean()


def test_twenty_thousand_classes_are_answered_with_a_sentence():
    labels = np.repeat(np.arange(20_000), 2)
    with pytest.raises(ValueError, match="40,000 rows of 20,000 classes; up to 4,000 classes"):
        audit_labels(np.zeros((40_000, 2), np.float32) + labels[:, None], labels)


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
