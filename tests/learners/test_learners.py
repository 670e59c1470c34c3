"""Every learner learns, predicts probabilities, and is stored as arrays of numbers that predict the same."""

import numpy as np
import pytest
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

from noiseproof.learners import LEARNERS, linear, neighbours, network, trees
from noiseproof.learners.base import drawn_rows
from noiseproof.learners.catalog import PLAIN


def blobs(rows, classes, columns=5, seed=0):
    generator = np.random.default_rng(seed)
    centres = 3 * generator.normal(size=(classes, columns))
    y = generator.integers(classes, size=rows)
    return (centres[y] + generator.normal(size=(rows, columns))).astype(np.float32), y


@pytest.fixture(autouse=True)
def short_networks(monkeypatch):
    monkeypatch.setattr(network, "BUDGET", network.Budget(4000, 100, 8))
    monkeypatch.setattr(network, "IMAGE_BUDGET", network.Budget(1500, 10, 4))


FOR_FEATURES = [name for name, spec in LEARNERS.items() if spec.reads == "features"]
FOR_IMAGES = [name for name, spec in LEARNERS.items() if spec.reads == "images"]


@pytest.fixture(params=FOR_FEATURES)
def spec(request):
    return LEARNERS[request.param]


def test_names_are_keys_and_descriptions_differ():
    assert all(spec.name == name for name, spec in LEARNERS.items())
    assert len({spec.description for spec in LEARNERS.values()}) == len(LEARNERS)


@pytest.mark.parametrize("class_weight", [None, "balanced"])
def test_a_learner_learns_and_its_stored_arrays_predict_the_same(spec, class_weight):
    x, y = blobs(400, 3)
    learner = spec.make(1, class_weight).fit(x[:300], y[:300], 3)
    p = learner.predict_proba(x[300:])
    assert p.dtype == np.float32
    np.testing.assert_allclose(p.sum(1), 1, atol=1e-4)
    assert (p.argmax(1) == y[300:]).mean() > 0.9
    arrays = learner.arrays()
    assert all(array.dtype.kind in "biuf" for array in arrays.values())
    np.testing.assert_array_equal(spec.load(arrays).predict_proba(x[300:]), p)


def test_the_same_seed_gives_the_same_model(spec):
    x, y = blobs(200, 3)
    first, second = (spec.make(5).fit(x, y, 3).predict_proba(x) for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_classes_without_a_training_row_have_no_probability(spec):
    x, y = blobs(200, 2)
    x *= 10  # or the strongest regularisation knows the frequencies alone
    p = spec.make(0).fit(x, 2 * y + 1, 5).predict_proba(x)
    assert p.shape == (200, 5)
    assert (p[:, [0, 2, 4]] == 0).all()
    assert (p.argmax(1) == 2 * y + 1).mean() > 0.9


@pytest.mark.parametrize("classes", [2, 3])
def test_a_class_of_one_row_and_a_fold_of_one_class_are_learnt_from(spec, classes):
    x, y = blobs(120, classes)
    x *= 10
    y[:] = np.where(np.arange(120) == 7, classes - 1, y % (classes - 1) if classes > 2 else 0)
    p = spec.make(0).fit(x, y, classes).predict_proba(x)
    assert np.isfinite(p).all()
    assert (p.argmax(1) == y).mean() > 0.8
    one = spec.make(0).fit(x, np.ones(120, np.int64), 2)
    np.testing.assert_array_equal(spec.load(one.arrays()).predict_proba(x).argmax(1), 1)


def test_balanced_weights_find_more_of_a_small_class(spec):
    generator = np.random.default_rng(3)
    y = (generator.random(600) < 0.1).astype(np.int64)
    x = (generator.normal(size=(600, 2)) + 1.3 * y[:, None]).astype(np.float32)
    plain, balanced = (
        spec.make(0, weight).fit(x[:400], y[:400], 2).predict_proba(x[400:])[:, 1].mean() for weight in (None, "balanced")
    )
    if spec.name == "network-jal":  # which balances by itself
        assert balanced == plain > 0.2
        return
    assert balanced > plain + (0.05 if spec.name != "forest-1" else -0.02)  # pure leaves have no other weights


@pytest.mark.parametrize("change", ["missing", "text", "nan"])
def test_broken_arrays_are_refused(spec, change):
    x, y = blobs(100, 3)
    arrays = spec.make(0).fit(x, y, 3).arrays()
    name = next(name for name, array in arrays.items() if array.dtype.kind == "f")
    if change == "missing":
        del arrays[name]
    elif change == "text":
        arrays[name] = np.array(["a"])
    else:
        arrays[name] = np.full_like(arrays[name], np.nan)
    with pytest.raises(ValueError, match=name):
        spec.load(arrays)


def test_costs_grow_with_the_data(spec):
    small, large = spec.seconds(1000, 30, 2), spec.seconds(50_000, 256, 10)
    assert 0 < small < large < 120
    assert spec.seconds(1_000_000, 30, 2) < 240


@pytest.mark.parametrize("min_leaf", [1, 7])
def test_a_forest_predicts_what_scikit_learn_does(min_leaf):
    x, y = blobs(300, 4)
    ours = trees.ForestLearner(min_leaf, seed=3).fit(x, y, 4)
    theirs = ExtraTreesClassifier(trees.TREES, min_samples_leaf=min_leaf, random_state=3).fit(x, y)
    new = blobs(500, 4, seed=1)[0]
    np.testing.assert_allclose(ours.predict_proba(new), theirs.predict_proba(new), atol=2e-4)


@pytest.mark.parametrize("classes", [2, 4])
def test_boosting_predicts_what_scikit_learn_does(classes):
    x, y = blobs(400, classes)
    ours = trees.BoostingLearner(seed=3).fit(x, y, classes)
    theirs = HistGradientBoostingClassifier(
        learning_rate=0.06, max_leaf_nodes=8, min_samples_leaf=20, l2_regularization=10, max_features=0.3, early_stopping=True,
        n_iter_no_change=8, random_state=3,
    ).fit(x, y)  # fmt: skip
    new = blobs(500, classes, seed=1)[0]
    np.testing.assert_allclose(ours.predict_proba(new), theirs.predict_proba(new), atol=1e-5)


@pytest.mark.parametrize("rows", [30, 400])
def test_plain_boosting_predicts_what_scikit_learn_does_by_default(rows):
    x, y = blobs(rows, 3)  # of 30 rows the trees are single leaves
    ours = PLAIN["plain-boosting"].make(3).fit(x, y, 3)
    theirs = HistGradientBoostingClassifier(early_stopping=True, random_state=3).fit(x, y)
    new = blobs(100, 3, seed=1)[0]
    np.testing.assert_allclose(ours.predict_proba(new), theirs.predict_proba(new), atol=1e-5)


def test_numbers_on_a_threshold_go_the_way_that_scikit_learn_sends_them():
    generator = np.random.default_rng(0)
    x = (generator.integers(0, 4, size=(300, 3)) / 3).astype(np.float32)
    y = ((x[:, 0] + x[:, 1]) * 3 % 2).round().astype(np.int64)
    ours, theirs = trees.BoostingLearner(seed=1).fit(x, y, 2), trees.ForestLearner(2, seed=1).fit(x, y, 2)
    reference = ExtraTreesClassifier(trees.TREES, min_samples_leaf=2, random_state=1).fit(x, y)
    np.testing.assert_allclose(theirs.predict_proba(x), reference.predict_proba(x), atol=2e-4)
    thresholds = np.unique(ours.trees.threshold[ours.trees.leaf < 0])
    on = np.repeat(thresholds[:, None], 3, 1)
    above = np.nextafter(on, np.float32(np.inf))
    assert (ours.predict_proba(on) != ours.predict_proba(above)).any()


def test_logistic_regression_predicts_what_scikit_learn_does():
    for classes in (2, 3):
        x, y = blobs(300, classes)
        ours = linear.LogisticLearner(0.1).fit(x, y, classes)
        theirs = LogisticRegression(C=0.1, max_iter=300).fit(x, y)
        np.testing.assert_allclose(ours.predict_proba(x), theirs.predict_proba(x), atol=1e-5)


def test_neighbours_vote_as_those_of_scikit_learn():
    x, y = blobs(300, 3)
    ours = neighbours.NeighboursLearner(10).fit(x, y, 3)
    theirs = KNeighborsClassifier(10).fit(x, y)
    expected = (10 * theirs.predict_proba(x) + np.bincount(y) / 300) / 11
    np.testing.assert_allclose(ours.predict_proba(x), expected, atol=1e-6)


def test_rbf_features_multiply_to_the_kernel_where_every_row_is_a_landmark():
    x, y = blobs(60, 2)
    learner = linear.RBFLearner(1.0).fit(x, y, 2)
    features = learner._features(x)
    product = features @ features.T
    squared = ((x[:, None] - x[None]) ** 2).sum(2)
    gamma = 1 / np.median(squared[squared > 0])
    np.testing.assert_allclose(product / product.diagonal().mean(), np.exp(-gamma * squared), atol=0.02)


def test_stored_trees_that_lead_in_circles_are_refused():
    x, y = blobs(100, 2)
    arrays = trees.ForestLearner().fit(x, y, 2).arrays()
    left = arrays["left"].copy()
    inner = np.flatnonzero(arrays["leaf"] < 0)[3]
    for target in (0, inner, len(left)):
        left[inner] = target
        with pytest.raises(ValueError, match="from roots to leaves"):
            trees.ForestLearner.from_arrays(arrays | {"left": left})


def test_trees_of_many_rows_are_grown_on_a_part_of_them(monkeypatch):
    monkeypatch.setattr(trees, "MAX_FOREST_LEAVES", 100 * trees.TREES)
    monkeypatch.setattr(trees, "MIN_TREE_ROWS", 10)
    x, y = blobs(2000, 2)
    learner = trees.ForestLearner(1).fit(x, y, 2)
    assert len(learner.values) <= 100 * trees.TREES
    assert (learner.predict_proba(x).argmax(1) == y).mean() > 0.9


def test_rows_are_drawn_with_one_of_every_class_at_least():
    y = np.concatenate([np.zeros(1000, np.int64), np.arange(20)])
    rows = drawn_rows(y, 100, 0)
    assert 100 <= len(rows) <= 120
    assert set(y[rows]) == set(range(20))
    assert drawn_rows(y, 2000, 0) == slice(None)


def stripes(rows, seed=0):
    """Images of 12x12 with bright stripes that are upright or level, of two channels."""
    generator = np.random.default_rng(seed)
    y = generator.integers(2, size=rows)
    place = generator.integers(3, 9, size=rows)
    x = 0.3 * generator.normal(size=(rows, 12, 12, 2))
    for k in range(rows):
        x[(k, slice(None), place[k]) if y[k] else (k, place[k])] += 2
    return x.astype(np.float32), y


@pytest.mark.parametrize("name", FOR_IMAGES)
def test_a_learner_of_images_learns_and_its_stored_arrays_predict_the_same(name):
    x, y = stripes(240)
    spec = LEARNERS[name]
    learner = spec.make(1).fit(x[:160], 2 * y[:160], 3)
    p = learner.predict_proba(x[160:])
    assert (p.argmax(1) == 2 * y[160:]).mean() > 0.9
    assert (p[:, 1] == 0).all()
    arrays = learner.arrays()
    assert all(array.dtype.kind in "biuf" for array in arrays.values())
    np.testing.assert_array_equal(spec.load(arrays).predict_proba(x[160:]), p)
    np.testing.assert_array_equal(spec.make(1).fit(x[:160], 2 * y[:160], 3).predict_proba(x[160:]), p)
    with pytest.raises(ValueError, match=r"reads \[n, H, W, 2\]"):
        learner.predict_proba(x[..., :1])


@pytest.mark.parametrize("wrong", ["tensor.body.0.weight", "tensor.body.2.weight", "tensor.fc.weight", "present"])
def test_a_damaged_network_of_images_is_refused(wrong):
    x, y = stripes(20)
    arrays = LEARNERS["cnn"].make(0).fit(x, y, 2).arrays()
    with pytest.raises(ValueError, match=r"stored|lacks|do not fit"):
        LEARNERS["cnn"].load({name: array for name, array in arrays.items() if name != wrong})
    arrays[wrong] = arrays[wrong][:1]
    with pytest.raises(ValueError, match=r"stored|do not fit|at least 2"):
        LEARNERS["cnn"].load(arrays)


def test_the_robust_network_finds_a_minority_class():
    generator = np.random.default_rng(3)
    y = (generator.random(600) < 0.1).astype(np.int64)
    x = (generator.normal(size=(600, 2)) + 2.5 * y[:, None]).astype(np.float32)
    p = LEARNERS["network-jal"].make(0).fit(x, y, 2).predict_proba(x)
    assert (p.argmax(1)[y == 1] == 1).mean() > 0.7
