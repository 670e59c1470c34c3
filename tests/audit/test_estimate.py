"""Labels that are wrong more often where the example is hard, for people and for networks."""

import numpy as np
import pytest

from noiseproof import audit_probabilities
from noiseproof.audit.estimate import estimate_noise, posterior_and_rates, temperature_scaled
from noiseproof.audit.folds import is_imbalanced
from noiseproof.audit.mixture import Mixture, fit_mixture, log_view, posterior_of
from noiseproof.noise import symmetric

ROWS, CLASSES = 4_000, 5


@pytest.fixture(autouse=True)
def _few_resamples(monkeypatch):
    monkeypatch.setattr("noiseproof.audit.estimate.BOOTSTRAP_SAMPLES", 10)


def picked(p, generator):
    return (p.cumsum(1) < generator.random((len(p), 1))).sum(1).clip(max=p.shape[1] - 1)


def ambiguous(share, flips, unsure=1.0, seed=0):
    """Easy and hard examples: predictions ``p``, true labels drawn from them, and given ones that changed in a share ``flips``,
    whatever the example, and in a share ``share`` were drawn from ``p ** (1 / unsure)``, by somebody who cannot tell either."""
    generator = np.random.default_rng(seed)
    scores = generator.standard_normal((ROWS, CLASSES)) * generator.uniform(0.5, 12, (ROWS, 1))
    p, blunt = (np.exp(s - s.max(1, keepdims=True)) for s in (scores, scores / unsure))
    p, blunt = p / p.sum(1, keepdims=True), blunt / blunt.sum(1, keepdims=True)
    true = picked(p, generator)
    kind = generator.random(ROWS)
    flipped = picked(np.full((ROWS, CLASSES), 1 / CLASSES), generator)
    given = np.where(kind < share, picked(blunt, generator), np.where(kind < share + flips, flipped, true))
    return p, true, given


def test_labels_have_the_same_likelihood_however_many_are_ambiguous():
    """The statement that the interval rests on, by its formula, and the posterior by Bayes' rule from it."""
    generator = np.random.default_rng(0)
    q, transition = generator.dirichlet(np.ones(4), 50), generator.dirichlet(np.ones(4), 4) / 2 + np.eye(4) / 2
    given, one = generator.integers(4, size=50), np.eye(4)
    mixture = np.einsum("nk,kj->nj", q, transition)
    model = Mixture(np.ones(1), np.zeros(4), transition, 0.0)
    plain = posterior_of(model, [log_view(q)], given)
    least = 1 - plain[np.arange(50), given].mean()
    for share in (0.0, least / (1 - least), 1.0):
        led_to = transition + share * transition.diagonal() * (q[:, None, :] - one)
        joint = q[:, :, None] * led_to
        assert joint.min() >= 0
        np.testing.assert_allclose(joint.sum(1), mixture)
        right = (joint[np.arange(50), given, given] / mixture[np.arange(50), given]).mean()
        found, rates = posterior_and_rates(model, [log_view(q)], given, ambiguous=True)
        if share == 0:
            assert rates.class_conditional == pytest.approx(1 - right)
        elif share == 1:
            assert rates.all_ambiguous == pytest.approx(1 - right)
        else:
            assert rates.rate == pytest.approx(1 - right)
            exact = joint[np.arange(50), :, given] / mixture[np.arange(50), given, None]
            np.testing.assert_allclose(found, exact, atol=1e-6)


@pytest.mark.parametrize(("share", "flips"), [(0.2, 0.05), (0.5, 0.1), (0.8, 0.0)])
def test_the_interval_covers_labels_of_ambiguous_examples(share, flips):
    """Easy and hard mistaken alike, which is the least rate, is far from the truth."""
    p, true, given = ambiguous(share, flips)
    found, rate = audit_probabilities(p, given), (true != given).mean()
    assert found.least_rate < rate - 0.03
    assert found.rate_interval[0] <= rate <= found.rate_interval[1]


def test_what_predictions_dispute_beyond_the_wrong_labels_are_their_own_errors():
    """Half of the labels are not what is predicted, and by the posterior two in eight are wrong."""
    q = np.array([[0.6, 0.4]] * 8)
    given = np.array([0, 0, 0, 0, 1, 1, 1, 1])
    model = Mixture(np.ones(1), np.zeros(2), np.array([[14, 2], [7, 9]]) / 16, 0.0)
    posterior, rates = posterior_and_rates(model, [log_view(q)], given)
    np.testing.assert_allclose(posterior, [[0.75, 0.25]] * 4 + [[0.25, 0.75]] * 4, atol=1e-6)
    assert (rates.class_conditional, rates.disputed) == pytest.approx((0.25, 0.25))


def test_networks_that_agree_show_that_examples_are_ambiguous():
    """Labels by somebody less sure than the networks make a fit less sure than they are; their agreement corrects it. Of
    the labels a fifth is drawn from the predictions, and four in five of a quarter change to another class."""
    p, true, given = ambiguous(0.2, 0.25, unsure=3.0)
    views, rows = [log_view(p)], np.arange(ROWS)
    model = fit_mixture(views, given)
    before, wrong = 1 - posterior_of(model, views, given)[rows, given], true != given
    agreement = (p.argmax(1) == true).mean()
    found = estimate_noise(model, views, given, np.random.default_rng(0), agreement)
    posterior = found.posterior
    after = 1 - posterior[rows, given]
    assert before.mean() < wrong.mean() - 0.03
    assert found.rate == pytest.approx(wrong.mean(), abs=0.03)
    assert found.rate == pytest.approx(after.mean(), abs=1e-5)
    assert found.least_rate == pytest.approx(before.mean(), abs=1e-5)
    assert found.rate_interval[0] <= wrong.mean() <= found.rate_interval[1]
    np.testing.assert_allclose(posterior.sum(1), 1, atol=1e-5)
    assert posterior.min() > -1e-6


def test_networks_that_differ_change_nothing():
    """They are no surer than the fit: nothing shows that examples are ambiguous."""
    p, _, given = ambiguous(0.0, 0.2)
    views = [log_view(p)]
    model = fit_mixture(views, given)
    found = estimate_noise(model, views, given, np.random.default_rng(0), 0.6)
    np.testing.assert_array_equal(found.posterior, posterior_of(model, views, given))
    assert found.rate == found.least_rate


@pytest.mark.parametrize("rare", [True, False])
def test_where_a_class_is_rare_the_interval_begins_lower_by_as_many_as_two_networks_differ_on(rare):
    """Clean labels, and predictions that are sure, also of their errors, one in ten: each looks like a wrong label, and nothing
    but another network that differs shows that it is not."""
    generator = np.random.default_rng(0)
    true = generator.integers(CLASSES, size=ROWS)
    if rare:
        true[(true == 0) & (generator.random(ROWS) < 0.7)] = 1
    off = (true + (generator.random(ROWS) < 0.1)) % CLASSES
    views = [log_view(np.full((ROWS, CLASSES), 0.001) + 0.995 * np.eye(CLASSES)[off])]
    model = fit_mixture(views, true)
    begins = {}
    assert is_imbalanced(true) is rare
    for agreement in (None, 0.99, 0.9):
        found = estimate_noise(model, views, true, np.random.default_rng(0), agreement, oversampled=is_imbalanced(true))
        begins[agreement] = found.rate_interval[0]
    assert begins[None] > 0.07
    assert begins[0.99] == pytest.approx(begins[None] - 0.01 * rare, abs=0.005)
    assert begins[0.9] == 0 if rare else begins[0.9] > 0.07


@pytest.mark.parametrize("agreement", [0.9, 0.97])
def test_predictions_are_made_as_sure_as_networks_agree(agreement):
    p, _, given = ambiguous(0.3, 0.2)
    views = [log_view(p)]
    model = fit_mixture(views, given)
    assert model.predicted(views).max(1).mean() < agreement
    scaled = temperature_scaled(model, views, agreement)
    assert scaled.predicted(views).max(1).mean() == pytest.approx(agreement, abs=1e-4)
    np.testing.assert_array_equal(scaled.predicted(views).argmax(1), model.predicted(views).argmax(1))


def test_the_interval_is_narrow_where_predictions_are_sure():
    generator = np.random.default_rng(0)
    true = generator.integers(CLASSES, size=ROWS)
    p = np.full((ROWS, CLASSES), 0.001) + 0.995 * np.eye(CLASSES)[true]
    given = picked(symmetric(CLASSES, 0.2).matrix[true], generator)
    low, high = audit_probabilities(p, given).rate_interval
    assert low <= (true != given).mean() <= high
    assert high - low < 0.05


def test_the_interval_begins_where_errors_of_the_predictions_are_no_wrong_labels():
    """Clean labels, and predictions that are sure and wrong for one in ten examples: the fit takes them for wrong labels."""
    generator = np.random.default_rng(0)
    scores = generator.standard_normal((ROWS, CLASSES)) * 2
    p = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    true = picked(p, generator)
    off = generator.random(ROWS) < 0.1
    p[off] = np.roll(np.eye(CLASSES)[true[off]] * 0.95 + 0.01, 1, axis=1)
    found = audit_probabilities(p, true)
    assert found.rate > 0.05
    assert found.rate_interval[0] == 0
