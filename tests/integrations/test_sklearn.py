"""The scikit-learn classifier: scikit-learn's own checks, and what they do not look at."""

import importlib.util
import pickle
import sys

import numpy as np
import pytest
import torch
from sklearn import config_context
from sklearn.base import clone
from sklearn.datasets import load_wine, make_blobs
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import noiseproof
from noiseproof.data import from_arrays
from noiseproof.sklearn import NoiseRobustClassifier
from noiseproof.train import override, own_recipe

SMALL = {"loss": "jal-ce", "epochs": 10, "batch_size": 16, "learning_rate": 0.02, "hidden": (16,), "random_state": 0}


def blobs(count=90):
    x, y = make_blobs(count, centers=3, n_features=4, cluster_std=2.0, random_state=0)
    return x, y


@pytest.mark.filterwarnings("ignore:never predicted")  # a few epochs on a few examples
def test_scikit_learns_checks_pass_without_exception():
    found = check_estimator(NoiseRobustClassifier("jal-ce", hidden=(16,), epochs=5, learning_rate=0.05), on_skip=None)
    assert len(found) > 50
    assert {one["check_name"] for one in found if one["status"] == "skipped"} <= {
        "check_sample_weights_pandas_series", "check_classifier_data_not_an_array", "check_array_api_input",
    }  # fmt: skip # these need pandas, and an environment variable of SciPy's


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:never predicted")
def test_scikit_learns_checks_pass_with_the_defaults_of_a_network():
    check_estimator(NoiseRobustClassifier("jal-ce"), on_skip=None)


NOT_BY_FIT = {
    "check_sample_weight_equivalence_on_dense_data": "repetitions of a row share a fold, and of equal rows nothing is known",
    "check_class_weight_classifiers": "fit knows 'balanced', and no weight for each class",
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_scikit_learns_checks_pass_for_fit_with_two_exceptions():
    found = check_estimator(NoiseRobustClassifier(quick=True), expected_failed_checks=NOT_BY_FIT, on_skip=None)
    assert len(found) > 50
    assert {one["check_name"] for one in found if one["status"] == "xfail"} == set(NOT_BY_FIT)


def test_the_defaults_are_those_of_the_command_line():
    for x in (np.random.default_rng(0).normal(size=(300, 2)), np.random.default_rng(0).integers(0, 9, (300, 2)) / 8):
        data = from_arrays(x, np.arange(300) % 2)
        recipe = override(own_recipe(data, "features", "jal-ce", seed=3), {"class_weight": "auto"})
        assert NoiseRobustClassifier("jal-ce")._recipe(data, 3).differences(recipe) == []


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
        (np.full(30, -1), "sample_weight must not be negative, got -1"),
        (
            np.zeros(30),
            "is 0 for every example: no class is left|must contain at least one non-zero",
        ),  # ours, or scikit-learn's,
    ],
)
def test_weights_that_are_no_weights_are_refused(weights, message):
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
    fitted = NoiseRobustClassifier(**SMALL | {"loss": "gce", "loss_options": {"q": 0.5}}).fit(x, y)
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
        NoiseRobustClassifier("jal-ce", class_weight=None, epochs=20, random_state=0).fit(x, y)
    assert NoiseRobustClassifier("jal-ce", epochs=20, random_state=0).fit(x, y).predict(x).sum() > 50
    assert NoiseRobustClassifier("ce", epochs=20, random_state=0).fit(x, y).predict(x).sum() > 50


def test_weights_of_classes_are_by_label_and_a_strange_label_is_refused():
    x, y = blobs(60)
    names = np.array(["a", "b", "c"])[y]
    plain, weighted = (
        NoiseRobustClassifier(**SMALL | {"loss": "ce"}, class_weight=w).fit(x, names) for w in (None, {"b": 50.0})
    )
    assert weighted.predict_proba(x)[:, 1].mean() > plain.predict_proba(x)[:, 1].mean()
    with pytest.raises(ValueError, match="class_weight names 'd', and the labels are"):
        NoiseRobustClassifier(**SMALL, class_weight={"d": 2.0}).fit(x, names)


def test_threads_are_one_unless_more_are_asked_for(monkeypatch):
    x, y = np.random.default_rng(0).normal(size=(60, 3)), np.arange(60) % 2
    seen = []
    step = torch.optim.Adam.step
    monkeypatch.setattr(torch.optim.Adam, "step", lambda *a, **k: (seen.append(torch.get_num_threads()), step(*a, **k))[1])
    for threads in (None, 2):
        NoiseRobustClassifier("ce", epochs=1, threads=threads, random_state=0).fit(x, y)
    assert set(seen[: len(seen) // 2]) == {1}
    assert set(seen[len(seen) // 2 :]) == {2}
    with pytest.raises(ValueError, match="threads must be at least 1"):
        NoiseRobustClassifier("ce", threads=0).fit(x, y)


# ---- loss="auto", which is noiseproof.fit

QUICK = {"quick": True, "random_state": 0}


def noisy_wine():
    x, y = load_wine(return_X_y=True)
    return x, y, noiseproof.noise.symmetric(3, 0.3).apply(y, seed=0).labels


def test_by_default_it_is_fit_which_sees_through_wrong_labels():
    x, y, given = noisy_wine()
    fitted = NoiseRobustClassifier(**QUICK).fit(x, given)
    assert fitted.score(x, y) > 0.9 > fitted.score(x, given)
    seed = int(np.random.RandomState(0).randint(2**31))
    assert np.array_equal(fitted.predict(x), noiseproof.fit(x, given, quick=True, seed=seed, jobs=1).predict(x))
    assert fitted.model_.audit.flagged[given != y].mean() > 0.7


def test_fit_works_in_a_pipeline_a_search_and_a_cross_validation_and_its_copies_predict_the_same():
    x, _, given = noisy_wine()
    pipeline = make_pipeline(StandardScaler(), NoiseRobustClassifier(**QUICK)).set_output(transform="pandas")
    assert cross_val_score(pipeline, x, given, cv=2).mean() > 0.5
    grid = [{"loss": ["auto"], "metric": ["accuracy", "f1_macro"]}, {"loss": ["ce"], "quick": [False], "epochs": [5]}]
    search = GridSearchCV(NoiseRobustClassifier(**QUICK), grid, cv=2).fit(x, given)
    assert search.best_params_["loss"] == "auto"
    best = search.best_estimator_
    assert np.array_equal(pickle.loads(pickle.dumps(best)).predict_proba(x), best.predict_proba(x))
    again = clone(best)
    assert again.get_params() == best.get_params()
    assert not hasattr(again, "model_")


def test_fit_reads_data_frames_of_mixed_columns_with_gaps():
    pandas, generator = pytest.importorskip("pandas"), np.random.default_rng(0)
    city = generator.choice(np.array(["Rome", "Paris", None], object), 90)
    frame = pandas.DataFrame({"city": city, "size": np.where(generator.random(90) < 0.1, np.nan, generator.random(90))})
    y = np.where(frame["city"] == "Rome", "south", "north")
    fitted = NoiseRobustClassifier(**QUICK).fit(frame[:60], y[:60])
    assert fitted.score(frame[60:], y[60:]) > 0.9
    assert fitted.feature_names_in_.tolist() == ["city", "size"]
    assert fitted.classes_.tolist() == ["north", "south"]
    with pytest.raises(ValueError, match="feature names"):
        fitted.predict(frame[["size"]])


@pytest.mark.parametrize("loss", [{"quick": True}, {"loss": "jal-ce", "epochs": 20}], ids=["auto", "jal-ce"])
def test_skrub_makes_a_pipeline_of_it(loss):
    skrub, pandas = pytest.importorskip("skrub"), pytest.importorskip("pandas")
    generator = np.random.default_rng(0)
    frame = pandas.DataFrame({"city": generator.choice(["Rome", "Paris", "Oslo"], 120), "size": generator.random(120)})
    y = np.where(frame["city"] == "Rome", "south", "north")
    pipeline = skrub.tabular_pipeline(NoiseRobustClassifier(random_state=0, **loss)).fit(frame[:90], y[:90])
    assert pipeline.score(frame[90:], y[90:]) > 0.9


def test_weights_are_routed_to_fit_and_say_how_often_a_row_counts():
    x, y, given = noisy_wine()
    weights = (y < 2).astype(float)
    with config_context(enable_metadata_routing=True):
        scaler = StandardScaler().set_fit_request(sample_weight=False)
        pipeline = make_pipeline(scaler, NoiseRobustClassifier(**QUICK).set_fit_request(sample_weight=True))
        assert pipeline.fit(x, given, sample_weight=weights)[-1].model_.audit.given.shape == (weights.sum(),)


@pytest.mark.parametrize(
    ("weights", "counts"),
    [
        ([2, 1, 0], [2, 1, 0]),
        ([100, 200, 300], [1, 2, 3]),
        ([0.5, 1.5, 1.0], [1, 3, 2]),
        ([0.2, 0.3, 0.0], [2, 3, 0]),
        ([1e300, 1e300, 5e299], [2, 2, 1]),
        ([1e-300, 3e-300, 1e-300], [1, 3, 1]),
        ([0.1234, 1.0, 1.8766], [1, 10, 19]),  # the mean is 1, and a tenth of it is the unit
        ([1e-9, 1.0, 1.0], [1, 15, 15]),  # no example is left out but for a weight of 0
    ],
)
def test_weights_of_any_size_are_repetitions_where_fit_learns(weights, counts, monkeypatch):
    seen = []
    monkeypatch.setattr("noiseproof.sklearn.fit", lambda dataset, **options: seen.append((dataset, options)))
    x = np.arange(3.0)[:, None]
    NoiseRobustClassifier().fit(x, ["a", "b", "c"], sample_weight=weights)
    dataset, options = seen[0]
    assert np.bincount(options["groups"], minlength=3).tolist() == counts
    assert len(dataset.train) == sum(counts)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epochs": 300}, "epochs is an option of a network, loss='jal-ce' say, and says nothing with loss='auto'"),
        ({"loss": "ce", "quick": True}, "quick is an option of loss='auto', and says nothing with loss='ce'"),
        ({"class_weight": {0: 2.0}}, "class_weight must be None or 'balanced' with loss='auto'"),
    ],
)
def test_an_option_that_says_nothing_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        NoiseRobustClassifier(**options).fit(*blobs(30))


def test_a_network_learns_soft_labels_and_weights_of_any_size():
    pandas = pytest.importorskip("pandas")
    x, y = blobs(60)
    soft = np.eye(3)[y] * 0.8 + 0.2 / 3
    fitted = NoiseRobustClassifier(**SMALL).fit(x, soft)
    assert (fitted.predict(x) == y).mean() > 0.9
    named = NoiseRobustClassifier(**SMALL).fit(x, pandas.DataFrame(soft, columns=["a", "b", "c"]))
    assert named.predict(x).tolist() == np.array(["a", "b", "c"])[fitted.predict(x)].tolist()
    ce = SMALL | {"loss": "ce"}
    many, few, none = (NoiseRobustClassifier(**ce).fit(x, y, np.where(y == 0, w, 1.5)).predict_proba(x) for w in (9.5, 0.05, 0))
    assert many[:, 0].mean() > few[:, 0].mean() + 0.05
    assert none.shape == (60, 2)
    for wrong in (soft * 2, soft - 0.5):
        with pytest.raises(ValueError, match="soft labels must be probabilities"):
            NoiseRobustClassifier(**SMALL).fit(x, wrong)
    with pytest.raises(ValueError, match="loss='ce' learns soft labels"):
        NoiseRobustClassifier().fit(x, soft)
