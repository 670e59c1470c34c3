"""The required a: the paper's numbers, and brute force over thousands of weights."""

import numpy as np
import pytest

from noiseproof import AMSE, noise
from noiseproof.theory import check, label_weights, required_a, required_a_per_class


@pytest.mark.parametrize(
    ("given", "q", "classes", "expected"),
    [
        ("symmetric:0.4", 2, 10, 1.8),
        ("symmetric:0.6", 2, 10, 3.0),
        ("symmetric:0.8", 2, 10, 9.0),  # the paper's example
        ("symmetric:0.8", 3, 10, 4.739),  # the paper prints 4.73
        (0.8, 2, 100, 99 / (99 - 80)),
        ("symmetric:0.8", 0.7, 10, 1.0),
        ("none-of-it", 2, 10, None),
        (0.0, 2, 10, 1.0),
        ("pairflip:0.45", 2, 10, 1 / (0.55 - 0.45)),
    ],
)
def test_known_bounds(given, q, classes, expected):
    if expected is None:
        with pytest.raises(FileNotFoundError, match="none-of-it: no such file or folder"):
            required_a(given, q, classes=classes)
    else:
        assert required_a(given, q, classes=classes) == pytest.approx(expected, abs=5e-4)


def brute_force(w, a, q, generator):
    """Whether no prediction has a lower risk of sum |a e_k - u|^q than certainty of the first label; rows of weights."""
    count, classes = w.shape
    steps = np.concatenate([np.geomspace(1e-6, 0.5, 30), [0.75, 1.0]])
    vertex = np.eye(classes)[0]

    def risk(u):  # u [C, P, K]
        label = np.abs(a[:, None, None] - u) ** q[:, None, None]
        other = u ** q[:, None, None]
        return ((label + other.sum(-1, keepdims=True) - other) * w[:, None, :]).sum(-1)

    edges = [(1 - s) * vertex + s * np.eye(classes)[k] for s in steps for k in range(1, classes)]
    points = np.broadcast_to(np.stack(edges), (count, len(edges), classes))
    drawn = generator.dirichlet(np.full(classes, 0.5), (count, 40))
    certain = risk(np.broadcast_to(vertex, (count, 1, classes)))
    least = np.concatenate([risk(points), risk(drawn)], 1).min(1)
    return certain[:, 0] <= least + 1e-13 * certain[:, 0]


@pytest.mark.parametrize("classes", [2, 3, 5, 10, 20])
def test_brute_force_agrees(classes):
    """Random weights, powers from 0.5 to 4, and a on both sides of the bound, near to it too."""
    generator = np.random.default_rng(classes)
    count = 2300  # of which most have a leading label: 10,000 and more over the numbers of classes
    w = np.sort(generator.dirichlet(np.full(classes, generator.choice([0.3, 1.0, 5.0])), count), 1)[:, ::-1].copy()
    w = w[w[:, 0] - w[:, 1] > 1e-3]
    q = generator.choice([0.5, 1.0, 1.6, 2.0, 2.5, 3.0, 4.0], len(w))
    bound = np.empty(len(w))
    for power in np.unique(q):
        rows = np.flatnonzero(q == power)
        for row in rows:
            matrix = np.eye(classes)
            matrix[0] = w[row]
            bound[row] = required_a_per_class(matrix, power)[0]
    near = generator.choice([0.7, 0.95, 1.05, 1.5], len(w))
    a = np.maximum(bound * near, 1.0)
    tolerates = a >= bound
    assert tolerates.any()
    assert (~tolerates).any()
    np.testing.assert_array_equal(brute_force(w, a, q, generator), tolerates)


@pytest.mark.parametrize("q", [1.01, 1.5, 2.0, 3.0, 8.0, 60.0])
def test_the_bound_itself_will_do_and_less_will_not(q):
    """The theorem's inequality as the paper prints it, at the bound and just below."""
    w = np.array([0.4, 0.3, 0.2, 0.1])
    bound = required_a_per_class(np.vstack([w, np.eye(4)[1:]]), q)[0]
    right = [(a ** (q - 1) + (1 - w[0]) / w[1]) / (a - 1) ** (q - 1) for a in (bound * (1 + 1e-9), bound * (1 - 1e-9))]
    assert right[0] <= w[0] / w[1] <= right[1]


def test_classes_for_which_no_a_will_do_are_named():
    matrix = [[0.5, 0.5, 0.0], [0.1, 0.8, 0.1], [0.6, 0.0, 0.4]]
    assert np.isinf(required_a_per_class(matrix)).tolist() == [True, False, True]
    with pytest.raises(ValueError, match=r"no a is large enough for classes 0, 2 of 3"):
        required_a(matrix)
    with pytest.raises(ValueError, match=r"0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 10 more of 20"):
        required_a(np.full((20, 20), 1 / 20))


def test_noise_is_given_in_many_ways():
    made = noise.symmetric(4, 0.3)
    labels = np.repeat(np.arange(4), 100)
    realised = made.apply(labels, seed=0)
    for given in (made, made.matrix, made.matrix.tolist(), realised):
        np.testing.assert_allclose(label_weights(given), made.matrix)
    np.testing.assert_allclose(label_weights(0.3, classes=4), made.matrix)
    np.testing.assert_allclose(label_weights("symmetric:0.3", classes=4), made.matrix)


def test_a_class_without_examples_keeps_its_labels():
    noisy = noise.symmetric(3, 0.3).apply(np.array([0] * 10 + [1] * 10), seed=0)
    assert label_weights(noisy)[2].tolist() == [0.0, 0.0, 1.0]


@pytest.mark.parametrize(
    ("given", "options", "message"),
    [
        (0.3, {}, "needs the number of classes"),
        (1.3, {"classes": 3}, r"rate must be in \[0, 1\]"),
        (np.eye(3), {"classes": 4}, "is of 3 classes, got classes=4"),
        ([[0.5, 0.4], [0.0, 1.0]], {}, "sum to 1"),
        ("instance:0.3", {"classes": 3}, "has no matrix"),
        (np.eye(3), {"q": 0.0}, r"q must be in \(0"),
    ],
)
def test_what_is_no_noise_is_refused(given, options, message):
    with pytest.raises(ValueError, match=message):
        required_a(given, **options)


RATES = (0.02, 0.1, 0.3, 0.45)


@pytest.mark.parametrize("q", [1.5, 2, 3])
@pytest.mark.parametrize("kind", ["symmetric", "pairflip"])
def test_a_loss_with_the_required_a_is_found_to_tolerate_the_noise(kind, q):
    """The bound and the check are one theorem: at ten classes and 80 % the check once denied the 9 that the bound asks for."""
    for classes, rates in {2: RATES, 3: RATES, 10: RATES, 100: RATES[2:3]}.items():
        for rate in rates:
            spec = f"{kind}:{rate}"
            a = required_a(spec, q, classes=classes)
            assert check(AMSE(a=a, q=q), spec, classes=classes).tolerant, (spec, classes)
            less = check(AMSE(a=1 + 0.99 * (a - 1), q=q), spec, classes=classes)
            assert {verdict.answer for verdict in less.classes} == {"no"}, (spec, classes)


def test_labels_that_say_nothing_have_no_a_for_any_number_of_classes():
    """With a rate of 1 - 1/K all labels are alike, and which weight is larger by 1e-17 is rounding."""
    for classes in range(2, 101):
        noise_without_use = noise.symmetric(classes, 1 - 1 / classes)
        assert np.isinf(required_a_per_class(noise_without_use)).all(), classes
        assert {verdict.answer for verdict in check("mae", noise_without_use).classes} == {"not dominant"}, classes
