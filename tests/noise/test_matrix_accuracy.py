"""The accuracy on clean labels, from noisy ones."""

import numpy as np
import pytest

from noiseproof.noise import clean_accuracy, from_matrix, pairflip, symmetric

UNEVEN = from_matrix([[0.7, 0.3, 0.0], [0.0, 0.9, 0.1], [0.25, 0.15, 0.6]])


def test_under_symmetric_noise_it_is_the_known_line_through_the_noisy_accuracy():
    generator = np.random.default_rng(0)
    predicted, given = generator.integers(10, size=(2, 500))
    noisy = (predicted == given).mean()
    expected = (noisy - 0.6 / 9) / (1 - 0.6 - 0.6 / 9)  # noisy = (1 - r) accuracy + r / (K - 1) (1 - accuracy)
    assert clean_accuracy(predicted, given, symmetric(10, 0.6)).value == pytest.approx(expected)


def test_it_is_right_on_average_for_uneven_noise_where_the_noisy_accuracy_is_not_and_its_error_is_honest():
    # Each mean of 400 trials is within 4 of its standard errors but for one in 15,000.
    generator = np.random.default_rng(1)
    clean = generator.integers(3, size=300)
    predicted = np.where(generator.random(300) < 0.8, clean, (clean + 1) % 3)
    found = [clean_accuracy(predicted, [generator.choice(3, p=UNEVEN.matrix[k]) for k in clean], UNEVEN) for _ in range(400)]
    values = np.array([one.value for one in found])
    assert abs(values.mean() - (predicted == clean).mean()) < 4 * values.std() / 20
    # The error also counts other examples, which stay the same here.
    assert values.std() < np.mean([one.error for one in found]) < 1.5 * values.std()


def test_a_matrix_that_labels_two_classes_alike_is_refused():
    with pytest.raises(ValueError, match="two classes are labelled alike"):
        clean_accuracy([0, 1], [0, 1], pairflip(2, 0.5))


@pytest.mark.parametrize(("predicted", "given"), [([0, 1, 2], [0, 1]), ([0], [0]), ([0, 3], [0, 1])])
def test_what_does_not_fit_is_refused(predicted, given):
    with pytest.raises(ValueError, match="must be"):
        clean_accuracy(predicted, given, UNEVEN)
