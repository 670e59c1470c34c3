"""The noise model over predictions of several learners: what was planted is found, and nothing depends on names or orders."""

import numpy as np
import pytest
from sklearn.metrics import f1_score, roc_auc_score

from noiseproof.audit import noise_model
from noiseproof.audit.hypotheses import FittedHypotheses, fit_hypotheses, symmetric_rates
from noiseproof.audit.noise_model import NoiseModel, fit_noise_model
from noiseproof.audit.stacking import (
    Calibration,
    Stack,
    Transition,
    calibrate,
    expected_counts,
    fit_stack,
    log_views,
    unmix,
)  # fmt: skip
from noiseproof.learners import LEARNERS

PAIR = np.array([[0.7, 0.3, 0.0], [0.0, 0.7, 0.3], [0.3, 0.0, 0.7]])


def softmax(scores):
    scores = np.exp(scores - scores.max(-1, keepdims=True))
    return scores / scores.sum(-1, keepdims=True)


def planted(transition, rows=1500, views=2, sharpness=3.0, seed=0):
    """True labels, given labels, and views that predict the given label as well as can be, up to noise of their own."""
    generator = np.random.default_rng(seed)
    classes = len(transition)
    q = softmax(sharpness * generator.normal(size=(rows, classes)))
    truth = (q.cumsum(1) < generator.random((rows, 1))).sum(1).clip(0, classes - 1)
    given = (transition[truth].cumsum(1) < generator.random((rows, 1))).sum(1).clip(0, classes - 1)
    p = np.log(q @ transition + 1e-4)
    found = softmax(p + 0.3 * generator.normal(size=(views, rows, classes)))
    return found.astype(np.float32), given, truth, np.arange(rows) % 5


def symmetric(classes, rate):
    return Transition(classes, rate).full()


def out_of_fold(x, given, classes, names):
    """What learners predict of each of five folds that they were not trained on."""
    fold = np.arange(len(x)) % 5
    views = np.empty((len(names), len(x), classes), np.float32)
    for view, name in zip(views, names, strict=True):
        for number in range(5):
            rows = fold == number
            view[rows] = LEARNERS[name].make(number).fit(x[~rows], given[~rows], classes).predict_proba(x[rows])
    return views, fold


@pytest.fixture(scope="module")
def pair():
    """Blobs of which three in ten have the next class's label, as logistic regression and a forest predict them out of fold."""
    generator = np.random.default_rng(0)
    truth = generator.integers(3, size=1200)
    x = (2.5 * np.eye(3, 6)[truth] + generator.normal(size=(1200, 6))).astype(np.float32)
    given = np.where(generator.random(1200) < 0.3, (truth + 1) % 3, truth)
    views, fold = out_of_fold(x, given, 3, ("logistic-0.01", "forest-10"))
    return views, given, truth, fold, fit_noise_model(views, given, fold=fold, names=["a", "b"])


def test_a_planted_matrix_is_recovered(pair):
    views, given, truth, _, model = pair
    np.testing.assert_allclose(model.transition, PAIR, atol=0.07)
    wrong = given != truth
    low, high = model.rate_interval
    assert low <= wrong.mean() <= high
    assert abs(model.noise_rate - wrong.mean()) < 0.05
    assert roc_auc_score(wrong, model.p_wrong) > 0.9
    plain = (views.mean(0).argmax(1) == truth).mean()
    assert (model.decide(model.out_of_fold) == truth).mean() >= plain - 0.005
    assert (model.posterior.argmax(1) == truth).mean() > plain


@pytest.mark.parametrize("classes", [3, 5])
@pytest.mark.parametrize("order", [0, 1])
def test_labels_of_the_next_class_are_found_among_few_rows_in_any_order(classes, order):
    """Each label may also be what it should be, drawn at random from two classes: only a full matrix explains them as noise."""
    generator = np.random.default_rng(1)
    truth = np.arange(300) % classes
    x = (6 * np.eye(classes, 8)[truth] + generator.normal(size=(300, 8))).astype(np.float32)
    given = np.where(generator.random(300) < 0.25, (truth + 1) % classes, truth)
    rows = np.random.default_rng(order).permutation(300)
    views, fold = out_of_fold(x[rows], given[rows], classes, ("logistic-0.001", "neighbours-40", "forest-10"))
    model = fit_noise_model(views, given[rows], fold=fold)
    assert model.noise_rate == pytest.approx((given != truth).mean(), abs=0.05)
    assert f1_score((given != truth)[rows], model.p_wrong > 0.5) > 0.9


@pytest.mark.parametrize("rate", [0.0, 0.2, 0.4])
@pytest.mark.parametrize("classes", [2, 5])
def test_the_rate_of_symmetric_noise_is_within_its_interval(classes, rate):
    rows = 4000 if (classes, rate) == (2, 0.4) else 1500  # with fewer the labels may as well be hard to predict
    views, given, truth, fold = planted(symmetric(classes, rate), sharpness=5.0, rows=rows)
    model = fit_noise_model(views, given, fold=fold)
    low, high = model.rate_interval
    assert low <= (given != truth).mean() <= high
    assert high - low < 0.2
    if not rate:
        assert low == 0
        assert (model.p_wrong > 0.5).mean() < 0.02


def test_what_nobody_can_predict_is_not_called_wrong():
    views, given, _, fold = planted(np.eye(2), sharpness=0.7)
    assert (views[0].argmax(1) == given).mean() < 0.8
    model = fit_noise_model(views, given, fold=fold)
    assert model.rate_interval[0] == 0
    assert (model.p_wrong > 0.5).mean() < 0.05


def judged(x, given):
    """The noise model of three learners' predictions."""
    views, fold = out_of_fold(x.astype(np.float32), given, 2, ("logistic-0.01", "neighbours-40", "forest-10"))
    return fit_noise_model(views, given, fold=fold)


def test_labels_of_two_clouds_that_overlap_are_not_called_wrong():
    """Nobody can predict more than 69 % of these labels, since the clouds are one deviation apart. All labels are right.

    Without the demand for evidence 15 % of them are flagged, and three of the intervals begin above 0.
    """
    flagged = []
    for seed in range(4):
        generator = np.random.default_rng(seed)
        given = generator.integers(2, size=250)
        model = judged(generator.normal(size=(250, 2)) + np.outer(given, [1.0, 0.0]), given)
        flagged.append((model.p_wrong > 0.5).mean())
        assert model.rate_interval[0] == 0
        accuracy = model.estimated_scores(model.out_of_fold).accuracy
        assert accuracy.low <= 0.69 <= accuracy.high
        assert accuracy.value < 0.8
    assert np.mean(flagged) <= 0.08


def test_without_signal_no_label_is_called_wrong():
    """Labels that are drawn by chance, a fifth of them of one class; more than 80 % cannot be predicted."""
    for seed in range(3):
        generator = np.random.default_rng(seed)
        given = (generator.random(300) < 0.2).astype(np.int64)
        model = judged(generator.normal(size=(300, 3)), given)
        assert model.rate_interval[0] == 0
        assert not (model.p_wrong > 0.5).any()
        assert model.noise_rate < 0.01
        assert model.estimated_scores(model.out_of_fold).accuracy.value < 0.85


def hypotheses(value, ease=0.5, signal=10.0, views=2):
    """No wrong label, and two rates of both classes."""
    rates = np.array([[0.0, 0.0], [0.1, 0.1], [0.2, 0.2]])
    stacks = [Stack(np.ones(views), np.zeros(2), Transition(2))] * 3
    facts = {"clean_held_out": 0.0, "signal": signal}
    return FittedHypotheses(
        stacks, np.zeros(3, np.int64), rates, np.array(value), np.array([0.01, ease, ease]), np.zeros(0), **facts
    )


def test_wrong_labels_need_evidence_that_does_not_depend_on_ease():
    """The Bayes factor of two rates, equally likely beforehand, is the mean of their likelihoods: that of no noise is 1."""
    even = hypotheses([0.0, 0.0, 0.0])
    assert even.evidence() == pytest.approx(0)
    assert even.plausible()[0] < 0.01  # the ease alone would call labels wrong
    assert even.probabilities()[0] > 1 / 6
    known = hypotheses([0.0, 5.0, 3.0])
    assert known.evidence() == pytest.approx(np.log((np.exp(5) + np.exp(3)) / 2))
    odds = 5 * (np.exp(5) + np.exp(3)) / 2
    assert known.noise_probability() == pytest.approx(odds / (1 + odds))
    assert hypotheses([0.0, 0.0, 0.0], views=1).noise_probability() == pytest.approx(5 / 7)
    assert known.probabilities().sum() == pytest.approx(1)
    assert known.probabilities()[1] / known.probabilities()[2] == pytest.approx(np.e)  # the likelihood counts by its root


def test_no_evidence_counts_without_signal_and_none_is_needed_where_true_classes_are_predictable():
    assert hypotheses([0.0, 9.0, 9.0], signal=-1.0).probabilities()[0] > 0.99
    assert hypotheses([0.0, -30.0, -30.0], signal=-1.0).plausible()[0] < 0.01  # the labels may be shuffled
    assert hypotheses([0.0, -30.0, -30.0]).plausible()[0] > 0.5
    easy = hypotheses([0.0, -9.0, -9.0], ease=0.8)
    np.testing.assert_allclose(easy.probabilities(), easy.plausible())


def test_a_full_matrix_is_evidence_by_its_held_out_likelihood():
    stacks = [Stack(np.ones(1), np.zeros(3), Transition(3))] * 3
    rates = np.array([[0.0, 0.0], [0.1, 0.1], [1.0, 1.0]])
    facts = {"clean_held_out": -100.0, "signal": 50.0}
    value, held_out = np.array([-90.0, -95.0, -60.0]), np.array([-97.0, -80.0])
    found = FittedHypotheses(stacks, np.array([1, 1, 2]), rates, value, np.full(3, 0.1), held_out, **facts)
    assert found.evidence() == pytest.approx(20 - 1)


def test_other_numbers_of_the_classes_give_the_same_answers(pair):
    views, given, _, fold, model = pair
    order = np.array([2, 0, 1])
    other = fit_noise_model(views[:, :, order], np.argsort(order)[given], fold=fold)
    np.testing.assert_allclose(other.p_wrong, model.p_wrong, atol=0.02)
    np.testing.assert_allclose(other.transition, model.transition[order][:, order], atol=0.02)


def test_the_order_of_the_views_does_not_matter(pair):
    views, given, _, fold, model = pair
    other = fit_noise_model(views[::-1], given, fold=fold, names=["b", "a"])
    np.testing.assert_allclose(other.p_wrong, model.p_wrong, atol=0.02)
    assert other.weights == pytest.approx(model.weights, abs=0.05)


def test_a_view_that_is_there_twice_changes_little(pair):
    views, given, _, fold, model = pair
    other = fit_noise_model(np.concatenate([views, views[:1]]), given, fold=fold)
    np.testing.assert_allclose(other.out_of_fold, model.out_of_fold, atol=0.15)
    assert abs(other.noise_rate - model.noise_rate) < 0.02


def test_a_view_of_chance_gets_little_weight():
    views, given, _, fold = planted(symmetric(3, 0.2), views=1)
    chance = softmax(np.random.default_rng(3).normal(size=views.shape)).astype(np.float32)
    model = fit_noise_model(np.concatenate([views, chance]), given, fold=fold, names=["good", "chance"])
    assert model.weights["good"] > 0.7


def test_new_rows_are_predicted_as_those_of_the_fit_and_the_arrays_are_the_model(pair):
    views, _, _, _, model = pair
    q = model.class_probabilities(views)
    np.testing.assert_allclose(q, model.out_of_fold, atol=1e-5)
    np.testing.assert_allclose(q.sum(1), 1, atol=1e-5)
    arrays = model.arrays()
    assert all(array.dtype.kind == "f" for array in arrays.values())
    stored = NoiseModel.from_arrays(arrays, ["a", "b"])
    np.testing.assert_allclose(stored.class_probabilities(views), q, atol=1e-6)
    assert (stored.noise_rate, stored.rate_interval) == (model.noise_rate, model.rate_interval)
    np.testing.assert_array_equal(stored.decide(q, "f1_macro"), model.decide(q, "f1_macro"))
    with pytest.raises(ValueError, match="knows no rows"):
        stored.estimated_scores(q)


@pytest.mark.parametrize("name", ["scale", "stack_bias", "matrices"])
def test_broken_arrays_are_refused(pair, name):
    arrays = pair[4].arrays()
    with pytest.raises(ValueError, match=name):
        NoiseModel.from_arrays(arrays | {name: arrays[name][..., :-1]}, ["a", "b"])
    if name != "matrices":
        del arrays[name]
        with pytest.raises(ValueError, match=f"lacks the array '{name}'"):
            NoiseModel.from_arrays(arrays, ["a", "b"])


def test_many_rows_are_answered_in_blocks_by_hypotheses_on_a_part(pair, monkeypatch):
    views, given, truth, fold, model = pair
    monkeypatch.setattr(noise_model, "MAX_JUDGED", 1000)
    part = fit_noise_model(views, given, fold=fold, names=["a", "b"])
    assert len(part.p_wrong) == len(given)
    assert len(part.judged) <= 1000
    assert roc_auc_score(given != truth, part.p_wrong) > roc_auc_score(given != truth, model.p_wrong) - 0.02


def test_scores_on_correct_labels_are_estimated_without_them():
    views, given, truth, fold = planted(symmetric(2, 0.2), rows=3000)
    model = fit_noise_model(views, given, fold=fold)
    for prediction in (views[0], model.out_of_fold):
        chosen = prediction.argmax(1)
        estimate = model.estimated_scores(prediction)
        expected = (
            (chosen == truth).mean(),
            np.mean([(chosen == truth)[truth == k].mean() for k in (0, 1)]),
            roc_auc_score(truth, prediction[:, 1]),
        )
        for found, value in zip(estimate, expected, strict=True):
            assert found.low - 0.02 <= value <= found.high + 0.02
            assert found.value == pytest.approx(value, abs=0.03)
    assert model.estimated_scores(chosen).auc is None
    with pytest.raises(ValueError, match="one prediction for each of the 3000"):
        model.estimated_scores(chosen[:10])


def test_each_metric_has_its_rule():
    generator = np.random.default_rng(0)
    truth = (generator.random(4000) < 0.1).astype(np.int64)
    x = generator.normal(size=4000) + 1.5 * truth
    odds = np.log(1 / 9) + 1.5 * x - 1.5**2 / 2
    p = np.stack([1 / (1 + np.exp(odds)), 1 / (1 + np.exp(-odds))], axis=1)
    model = fit_noise_model(p[None], truth, fold=np.arange(4000) % 5)
    q = model.out_of_fold
    plain = model.decide(q)
    balanced, f1 = (model.decide(q, metric) for metric in ("balanced_accuracy", "f1_macro"))

    def recall(chosen):
        return np.mean([(chosen == truth)[truth == k].mean() for k in (0, 1)])

    assert recall(balanced) > recall(plain) + 0.05
    assert (plain == truth).mean() > (balanced == truth).mean()
    assert f1_score(truth, f1, average="macro") >= max(f1_score(truth, c, average="macro") for c in (plain, balanced)) - 0.01
    with pytest.raises(ValueError, match="metric must be one of accuracy, balanced_accuracy, f1_macro, got 'auc'"):
        model.decide(q, "auc")


def test_unmixing_undoes_a_mixture():
    q = softmax(3 * np.random.default_rng(0).normal(size=(200, 3)))
    found = unmix(q @ PAIR, Transition.of(PAIR))
    assert np.abs(found - q).mean() < 0.25 * np.abs(q @ PAIR - q).mean()
    np.testing.assert_allclose(unmix(q, Transition(3)), q, atol=1e-5)


def test_symmetric_noise_without_its_matrix_computes_what_the_matrix_does():
    q = softmax(np.random.default_rng(0).normal(size=(50, 4)))
    given = np.arange(50) % 4
    short, full = Transition(4, 0.3), Transition.of(Transition(4, 0.3).full())
    for name in ("forward", "backward"):
        np.testing.assert_allclose(getattr(short, name)(q), getattr(full, name)(q), atol=1e-12)
    np.testing.assert_allclose(short.joint(q, given), full.joint(q, given), atol=1e-12)
    np.testing.assert_allclose(full.full().sum(1), 1)


def test_the_gradient_of_a_stack_is_that_of_its_value():
    from noiseproof.audit.stacking import _Objective

    views, given, _, _ = planted(PAIR, rows=200)
    order = np.argsort(given)
    prior = 4 * symmetric(3, 0.2)
    objective = _Objective(log_views(views[:, order].astype(np.float64)), given[order], Transition(3), prior)
    z = 0.3 * np.random.default_rng(1).normal(size=2 + 3 + 9)
    _, gradient = objective(z)
    for k in range(len(z)):
        step = np.zeros(len(z))
        step[k] = 1e-5
        assert (objective(z + step)[0] - objective(z - step)[0]) / 2e-5 == pytest.approx(gradient[k], abs=1e-6)


def test_calibration_finds_the_scale_of_an_overconfident_view():
    views, given, _, _ = planted(np.eye(3), views=1, rows=4000, sharpness=1.0)
    sharp = softmax(3 * np.log(views))
    found = calibrate(np.concatenate([views, sharp]), given)
    assert found.scale[0] / found.scale[1] == pytest.approx(3, rel=0.1)
    assert isinstance(found, Calibration)


def test_many_classes_need_no_matrix(monkeypatch):
    classes = 300
    views, given, truth, fold = planted(symmetric(classes, 0.3), rows=900, views=1, sharpness=8.0)
    monkeypatch.setattr(Transition, "of", None)
    fitted = fit_hypotheses(views.astype(np.float64), given, fold)
    assert len(fitted.stacks) == len(symmetric_rates(classes))
    model = fit_noise_model(views, given, fold=fold)
    assert roc_auc_score(given != truth, model.p_wrong) > 0.9


def test_a_fit_continues_from_a_solution():
    views, given, _, _ = planted(PAIR)
    logs = log_views(views.astype(np.float64))
    first = fit_stack(logs, given, Transition(3))
    again = fit_stack(logs, given, Transition(3), start=first.solution)
    assert again.log_likelihood == pytest.approx(first.log_likelihood, abs=0.01)
    np.testing.assert_allclose(again.weights, first.weights, atol=0.01)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda v, g, f: (v[0], g, f), "views must be"),
        (lambda v, g, f: (v, g[:-1], f), "a label and a fold for each"),
        (lambda v, g, f: (v, g + 1, f), "labels must be in"),
        (lambda v, g, f: (v[:, :, :1], g, f), "views must be"),
    ],
)
def test_views_labels_and_folds_must_fit(change, message):
    views, given, _, fold = planted(symmetric(3, 0.1), rows=60)
    views, given, fold = change(views, given, fold)
    with pytest.raises(ValueError, match=message):
        fit_noise_model(views, given, fold=fold)


def test_new_views_must_fit_the_model(pair):
    views, model = pair[0], pair[4]
    with pytest.raises(ValueError, match="2 views, got 1"):
        model.class_probabilities(views[:1])
    with pytest.raises(ValueError, match="3 classes, got 2"):
        model.class_probabilities(views[:, :, :2])


def test_expected_counts_are_sums_of_posteriors():
    posterior = np.array([[0.9, 0.1, 0.0], [0.2, 0.5, 0.3], [0.0, 1.0, 0.0]], np.float32)
    found = expected_counts(posterior, np.array([2, 0, 2]))
    np.testing.assert_allclose(found, [[0.2, 0.0, 0.9], [0.5, 0.0, 1.1], [0.3, 0.0, 0.0]], atol=1e-7)


@pytest.mark.parametrize(("noise", "most"), [(0.0, 0.02), (0.2, 0.06)])
def test_ten_labels_to_each_of_twenty_classes_do_not_look_more_often_wrong_than_they_are(noise, most):
    """So few do not tell a matrix of twenty classes from symmetric noise."""
    off = []
    for seed in range(3):
        generator = np.random.default_rng(seed)
        true = np.repeat(np.arange(20), 10)
        score = generator.standard_normal((200, 20)) + 2.2 * np.eye(20)[true]
        p = np.exp(2.2 * (score + 0.5 * generator.standard_normal((2, 200, 20))))
        given = np.where(generator.random(200) < noise, (true + generator.integers(1, 20, 200)) % 20, true)
        found = fit_noise_model(p / p.sum(-1, keepdims=True), given, fold=np.arange(200) % 5)
        off.append(found.noise_rate - (given != true).mean())
    assert abs(np.mean(off)) < most


def test_labels_are_ranked_by_a_hypothesis_with_wrong_ones_where_only_that_of_none_is_likely():
    rates, stacks = np.array([[0.0, 0.0], [0.04, 0.04], [0.08, 0.08]]), [Stack(np.ones(1), np.zeros(3), Transition(3))] * 3
    fitted = FittedHypotheses(stacks, np.ones(3, np.int64), rates, np.array([0.0, -100, -200]), np.ones(3), np.zeros(1))
    kept, probabilities, _ = noise_model._kept(fitted)
    assert kept.tolist() == [0, 1]
    assert probabilities[1] == pytest.approx(0.001, rel=0.01)
