"""The scikit-learn classifier: scikit-learn's own checks, and what they do not look at."""

import importlib.util
import pickle
import sys

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_wine, make_blobs
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures
from sklearn.utils.estimator_checks import check_estimator

import noiseproof
from noiseproof.data import from_arrays
from noiseproof.sklearn import NoiseRobustClassifier
from noiseproof.train import own_recipe

SMALL = {"epochs": 10, "batch_size": 16, "learning_rate": 0.02, "hidden": (16,), "random_state": 0}


def blobs(count=90):
    x, y = make_blobs(count, centers=3, n_features=4, cluster_std=2.0, random_state=0)
    return x, y


@pytest.mark.filterwarnings("ignore:never predicted")  # a few epochs on a few examples
def test_scikit_learns_checks_pass_without_exception():
    found = check_estimator(NoiseRobustClassifier(hidden=(16,), epochs=5, learning_rate=0.05), on_skip=None)
    assert len(found) > 50
    assert {one["check_name"] for one in found if one["status"] == "skipped"} <= {
        "check_sample_weights_pandas_series", "check_classifier_data_not_an_array", "check_array_api_input",
    }  # fmt: skip # these need pandas, and an environment variable of SciPy's


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:never predicted")
def test_scikit_learns_checks_pass_with_the_defaults():
    check_estimator(NoiseRobustClassifier(), on_skip=None)


def test_the_defaults_are_those_of_the_command_line():
    for x in (np.random.default_rng(0).normal(size=(300, 2)), np.random.default_rng(0).integers(0, 9, (300, 2)) / 8):
        data = from_arrays(x, np.arange(300) % 2)
        assert NoiseRobustClassifier()._recipe(data, 3).differences(own_recipe(data, "features", "jal-ce", seed=3)) == []


def test_it_is_found_in_the_package():
    assert noiseproof.sklearn.NoiseRobustClassifier is NoiseRobustClassifier


@pytest.mark.parametrize(
    "names",
    [["cat", "dog", "eel"], [10, -3, 7], [2.0, 0.0, 1.0], np.array(["b", "a", "c"], object)],
    ids=["text", "int", "float", "object"],
)
def test_labels_of_any_type_come_back(names):
    x, y = blobs()
    labels = np.asarray(names)[y]
    fitted = NoiseRobustClassifier(**SMALL).fit(x, labels)
    assert fitted.classes_.tolist() == sorted(names)
    assert (fitted.predict(x) == labels).mean() > 0.9
    assert fitted.predict(x).dtype == labels.dtype
    assert np.array_equal(fitted.classes_[fitted.predict_proba(x).argmax(1)], fitted.predict(x))


def test_it_works_in_a_pipeline_a_search_and_a_cross_validation():
    x, y = blobs()
    pipeline = make_pipeline(PolynomialFeatures(2), NoiseRobustClassifier(**SMALL))
    assert cross_val_predict(pipeline, x, y, cv=3, method="predict_proba").shape == (90, 3)
    grid = {"loss": ["ce", "gce"], "epochs": [8]}
    search = GridSearchCV(NoiseRobustClassifier(**SMALL), grid, cv=2).fit(x, y)
    assert len(search.cv_results_["params"]) == 2
    assert search.best_score_ > 0.8


def test_an_example_of_weight_k_counts_as_k_examples_whatever_their_order():
    x, y = blobs(30)
    generator = np.random.default_rng(0)
    weights, order = generator.integers(0, 4, 30), generator.permutation(30)
    weighted = NoiseRobustClassifier(**SMALL).fit(x[order], y[order], sample_weight=weights[order].astype(float))
    repeated = NoiseRobustClassifier(**SMALL).fit(x.repeat(weights, 0), y.repeat(weights))
    assert np.array_equal(weighted.predict_proba(x), repeated.predict_proba(x))
    assert not np.array_equal(weighted.predict_proba(x), NoiseRobustClassifier(**SMALL).fit(x, y).predict_proba(x))


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.full(30, 0.5), r"whole numbers, how often each example counts, got 0\.5; of others, draw"),
        (np.full(30, -1), "whole numbers, how often each example counts, got -1"),
        (
            np.zeros(30),
            "is 0 for every example: no class is left|must contain at least one non-zero",
        ),  # ours, or scikit-learn's,
    ],
)
def test_weights_that_are_no_counts_are_refused(weights, message):
    x, y = blobs(30)
    with pytest.raises(ValueError, match=message):
        NoiseRobustClassifier(**SMALL).fit(x, y, sample_weight=weights)


def test_a_seed_gives_the_same_network_and_leaves_the_generators_alone():
    x, y = blobs(30)
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()
    first, same = (NoiseRobustClassifier(**SMALL).fit(x, y) for _ in range(2))
    other = NoiseRobustClassifier(**SMALL | {"random_state": 1}).fit(x, y)
    assert np.array_equal(first.predict_proba(x), same.predict_proba(x))
    assert not np.array_equal(first.predict_proba(x), other.predict_proba(x))
    assert torch.equal(torch_state, torch.get_rng_state())
    assert np.array_equal(numpy_state, np.random.get_state()[1])
    assert len(first.loss_curve_) == 10
    assert first.loss_curve_[-1] < first.loss_curve_[0]


def test_copies_predict_the_same():
    x, y = blobs(30)
    fitted = NoiseRobustClassifier("gce", loss_options={"q": 0.5}, **SMALL).fit(x, y)
    assert np.array_equal(pickle.loads(pickle.dumps(fitted)).predict_proba(x), fitted.predict_proba(x))
    again = clone(fitted)
    assert again.get_params() == fitted.get_params()
    assert not hasattr(again, "network_")


def test_a_prediction_does_not_depend_on_what_is_predicted_beside_it():
    x, y = blobs()
    fitted = NoiseRobustClassifier(**SMALL).fit(x, y)
    alone = np.concatenate([fitted.predict_proba(x[k : k + 1]) for k in range(len(x))])
    assert np.allclose(alone, fitted.predict_proba(x), rtol=0, atol=1e-13)


def test_a_memory_map_that_cannot_be_written_to_is_read(tmp_path):
    x, y = load_wine(return_X_y=True)
    np.save(tmp_path / "x.npy", x.astype(np.float32))
    np.save(tmp_path / "y.npy", y)
    read_only = [np.load(tmp_path / name, mmap_mode="r") for name in ("x.npy", "y.npy")]
    assert NoiseRobustClassifier(**SMALL).fit(*read_only).score(*read_only) > 0.9


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"loss": "gec"}, ValueError, "unknown loss 'gec'; did you mean 'gce'"),
        ({"loss_options": {"q": -3.0}, "loss": "gce"}, ValueError, "q must be in"),
        ({"hidden": 8}, TypeError, "hidden must be a list of widths"),
        ({"epochs": 2.5}, TypeError, "integer"),
        ({"epochs": 0}, ValueError, "epochs must be at least 1"),
        ({"learning_rate": -1.0}, ValueError, "lr must be finite and not negative"),
    ],
)
def test_what_cannot_be_trained_is_said_when_it_is_fitted(options, error, message):
    with pytest.raises(error, match=message):
        NoiseRobustClassifier(**SMALL | options).fit(*blobs(30))


def test_without_scikit_learn_the_import_says_what_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.base", None)
    spec = importlib.util.find_spec("noiseproof.sklearn")
    with pytest.raises(ImportError, match=r"needs scikit-learn 1\.6 or newer .*: pip install '\.\[lab\]'"):
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


def test_a_class_that_is_never_predicted_is_said():
    """Eight in a hundred, which cross entropy finds."""
    generator = np.random.default_rng(0)
    y = generator.permutation(np.arange(1000) < 80)
    x = generator.normal(size=(1000, 8)) + 1.5 * y[:, None]
    with pytest.warns(ConvergenceWarning, match="never predicted, of the training examples: class True; robust losses"):
        NoiseRobustClassifier(epochs=20, random_state=0).fit(x, y)
    assert NoiseRobustClassifier("ce", epochs=20, random_state=0).fit(x, y).predict(x).sum() > 50


def test_threads_are_one_unless_more_are_asked_for(monkeypatch):
    x, y = np.random.default_rng(0).normal(size=(60, 3)), np.arange(60) % 2
    seen = []
    step = torch.optim.Adam.step
    monkeypatch.setattr(torch.optim.Adam, "step", lambda *a, **k: (seen.append(torch.get_num_threads()), step(*a, **k))[1])
    for threads in (None, 2):
        NoiseRobustClassifier(epochs=1, threads=threads, random_state=0).fit(x, y)
    assert set(seen[: len(seen) // 2]) == {1}
    assert set(seen[len(seen) // 2 :]) == {2}
    with pytest.raises(ValueError, match="threads must be at least 1"):
        NoiseRobustClassifier(threads=0).fit(x, y)
