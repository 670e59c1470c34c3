"""The mixture of views: labels drawn from the model itself, and the labels of the nearest neighbours."""

import itertools

import numpy as np
import pytest

from noiseproof import audit
from noiseproof.audit.mixture import expected_counts, fit_mixture, log_view, neighbour_votes, rows_to_fit
from noiseproof.noise import pairflip, symmetric
from tests.helpers.audits import drawn


@pytest.mark.parametrize("noise", [symmetric(5, 0.3), pairflip(5, 0.25)], ids=["symmetric", "pairs"])
def test_the_model_is_recovered(noise):
    """Ten thousand rows of the model itself: weight 1, no bias, the matrix, and posteriors that are what they say."""
    p, true, given = drawn(10_000, noise.matrix)
    model = fit_mixture([log_view(p)], given)
    assert model.weights[0] == pytest.approx(1, abs=0.08)
    np.testing.assert_allclose(model.transition, noise.matrix, atol=0.05)
    joint = p * noise.matrix[:, given].T
    exact = joint / joint.sum(1, keepdims=True)
    assert np.abs(model.posterior([log_view(p)], given) - exact).mean() < 0.01
    found = audit.audit_probabilities(p, given)
    assert found.rate == pytest.approx((true != given).mean(), abs=0.015)
    flagged = found.flagged
    assert (true != given)[flagged].mean() == pytest.approx(found.p_wrong[flagged].mean(), abs=0.02)


def test_predictions_of_another_temperature_are_recalibrated():
    p, _, given = drawn(10_000, symmetric(4, 0.2).matrix, seed=1)
    for power in (0.4, 2.0):
        changed = p**power / (p**power).sum(1, keepdims=True)
        assert fit_mixture([log_view(changed)], given).weights[0] * power == pytest.approx(1, abs=0.1)


def test_the_likelihood_never_falls():
    p, _, given = drawn(3_000, pairflip(4, 0.3).matrix, seed=2)
    values = [fit_mixture([log_view(p)], given, iterations=count).log_likelihood for count in range(1, 25)]
    assert all(after >= before - 1e-9 * abs(before) for before, after in itertools.pairwise(values))


def test_a_fit_goes_on_from_where_another_was_left():
    """Seven iterations and five more are twelve, of one view and of two."""
    p, _, given = drawn(800, pairflip(4, 0.3).matrix, seed=2)
    other, _, _ = drawn(800, np.eye(4), seed=3)
    for views in ([log_view(p)], [log_view(p), log_view(other)]):
        whole, part = (fit_mixture(views, given, iterations=count) for count in (12, 7))
        rest = fit_mixture(views, given, start=part, iterations=5)
        for name in ("weights", "bias", "transition"):
            np.testing.assert_allclose(getattr(rest, name), getattr(whole, name), rtol=1e-9, atol=1e-12)


def test_the_rows_of_a_part_are_different_ones(monkeypatch):
    monkeypatch.setattr("noiseproof.audit.mixture.MAX_FITTED", 3 * 90)
    part = rows_to_fit(np.zeros((100, 3)), np.random.default_rng(0))
    assert len(np.unique(part)) == len(part) == 90


def test_the_labels_added_to_the_matrix_are_at_most_a_tenth_of_those_there_are():
    """With n labels in each of K classes, right and predicted surely: (n + a) / (n + K a) for a = n / (10 K), and not for 1."""
    classes = 40
    given = np.arange(3 * classes) % classes
    transition = fit_mixture([log_view(np.eye(classes)[given])], given).transition
    np.testing.assert_allclose(np.diag(transition), (1 + 0.1 / classes) / 1.1, rtol=1e-3)


def test_expected_counts_are_sums_of_posteriors():
    posterior = np.array([[0.9, 0.1, 0.0], [0.2, 0.5, 0.3], [0.0, 1.0, 0.0]], np.float32)
    found = expected_counts(posterior, np.array([2, 0, 2]))
    np.testing.assert_allclose(found, [[0.2, 0.0, 0.9], [0.5, 0.0, 1.1], [0.3, 0.0, 0.0]], atol=1e-7)


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_the_scale_of_features_does_not_change_votes(scale):
    """Their squares are beyond single precision, and once were infinite or 0: all examples had the votes of the first ones."""
    generator = np.random.default_rng(0)
    labels = generator.integers(3, size=60)
    features = (np.eye(3)[labels] + 0.1 * generator.standard_normal((60, 3))).astype(np.float32)
    votes = neighbour_votes((features.astype(np.float64) * scale).astype(np.float32), labels, 3)
    np.testing.assert_array_equal(votes, neighbour_votes(features, labels, 3))


def test_votes_are_those_of_the_nearest_others():
    features = np.array([[1.0, 0.0], [2.0, 0.1], [1.0, 0.2], [0.0, 1.0], [0.1, 3.0], [0.0, 0.0]])
    votes = neighbour_votes(features, np.array([0, 0, 1, 1, 1, 1]), 2, neighbours=2)
    np.testing.assert_allclose(votes[0], [1.5 / 3, 1.5 / 3])  # neighbours 1 and 2, of labels 0 and 1
    np.testing.assert_allclose(votes[2], [2.5 / 3, 0.5 / 3])  # 1 and 0
    np.testing.assert_allclose(votes[3], [0.5 / 3, 2.5 / 3])  # 4 and 2
    np.testing.assert_allclose(votes[5], [2.5 / 7, 4.5 / 7])  # no direction: as the labels are distributed


def test_votes_do_not_depend_on_the_size_of_a_block(monkeypatch):
    generator = np.random.default_rng(0)
    features, labels = generator.standard_normal((50, 3)), generator.integers(3, size=50)
    whole = neighbour_votes(features, labels, 3)
    monkeypatch.setattr("noiseproof.audit.mixture.SIMILARITY_BLOCK", 120)
    np.testing.assert_array_equal(neighbour_votes(features, labels, 3), whole)
