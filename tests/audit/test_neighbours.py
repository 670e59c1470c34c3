"""The labels of the nearest examples, as a prediction."""

import numpy as np
import pytest

from noiseproof.audit.probabilities import neighbour_votes


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
    monkeypatch.setattr("noiseproof.audit.probabilities.SIMILARITY_BLOCK", 120)
    np.testing.assert_array_equal(neighbour_votes(features, labels, 3), whole)
