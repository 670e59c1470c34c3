"""The ``a`` to train with, and the loss that has it."""

import numpy as np
import pytest

import noiseproof
from noiseproof import theory
from noiseproof.noise import from_matrix, pairflip, symmetric
from noiseproof.theory.choice import MAX_A


@pytest.mark.parametrize(
    ("noise", "q", "required", "a"),
    [
        # The bound by hand: for q = 2 it is 1 / (w1 - w2), with w1 = 1 - rate and w2 = rate / 9.
        ("symmetric:0.8", 2, 1 / (0.2 - 0.8 / 9), 30.0),  # 9: ten times it is more than the paper's 30, 10/3 times is not
        ("symmetric:0.8", 3, 4.739, 30.0),
        ("symmetric:0.4", 2, 1.8, 18.0),
        ("symmetric:0.0", 2, 1.0, 10.0),
        ("pairflip:0.4", 2, 5.0, 30.0),
        ("pairflip:0.45", 2, 10.0, 100 / 3),  # 30 would be less than 10/3 times the bound
        ("symmetric:0.8", 0.5, 1.0, 10.0),
    ],
)
def test_it_is_ten_times_the_bound_up_to_30_and_never_less_than_ten_thirds_of_it(noise, q, required, a):
    found = theory.choose_a(noise, q, classes=10)
    assert (found.required, found.a) == (pytest.approx(required, abs=5e-4), pytest.approx(a, rel=1e-3))
    assert float(found) == found.a
    assert theory.check(noiseproof.AMSE(a=found.a, q=q), noise, classes=10).tolerant
    assert f"the {required:.4g} that theory requires for {noise} on 10 classes" in found.reasons[0]


def test_noise_that_no_a_tolerates_for_some_classes_is_chosen_for_the_others_and_they_are_named():
    matrix = np.array([[0.8, 0.2, 0], [0.5, 0.5, 0], [0, 0.4975, 0.5025]])  # class 2 needs 200
    found = theory.choose_a(matrix)
    assert (found.without, found.required) == ((1, 2), pytest.approx(1 / 0.6))
    assert found.reasons[1].startswith("Not for classes 1, 2 of 3: another label is given there as often as the clean one")


def test_noise_that_no_a_tolerates_for_any_class_is_an_error():
    with pytest.raises(ValueError, match="no a is large enough for any class"):
        theory.choose_a(0.9, classes=10)


def test_rounding_in_the_bound_does_not_make_another_run_of_the_paper_s_a():
    assert theory.choose_a("symmetric:0.8", classes=10).a == 30.0  # the bound is 9.000000000000004


def test_more_than_the_most_is_never_chosen():
    assert theory.choose_a([[0.52, 0.48], [0.48, 0.52]]).a == 83.33
    assert theory.choose_a([[0.51, 0.49], [0.49, 0.51]]).a == MAX_A


@pytest.mark.parametrize(
    ("noise", "words"),
    [
        (0.4, "symmetric:0.4 on 10 classes"),
        (symmetric(10, 0.4), "symmetric:0.4 on 10 classes"),
        (from_matrix(symmetric(10, 0.4).matrix), "matrix on 10 classes"),
        (symmetric(10, 0.4).matrix, "the matrix of 10 classes"),
        (symmetric(10, 0.4).apply(np.arange(1800) % 10, seed=0), "the realised noise, 40.0% of the labels, on 10 classes"),
    ],
)
def test_every_way_to_say_a_noise_gives_the_same_a_and_says_where_it_comes_from(noise, words):
    found = theory.choose_a(noise, classes=10)
    assert found.a == pytest.approx(18.0)
    assert found.reasons[0].endswith(f"requires for {words}.")


@pytest.mark.parametrize("name", ["jal-ce", "jal-fl"])
@pytest.mark.parametrize("q", [2.0, 3.0])
def test_a_joint_loss_keeps_the_strength_of_its_amse(name, q):
    loss = noiseproof.loss_for(name, "pairflip:0.1", classes=5, q=q, beta=2.0, alpha=3.0)
    assert loss.a < 30
    assert loss.alpha == 3.0
    # The slope of AMSE in p_y at p_y = 0 is -q a^(q-1) / K.
    assert loss.beta * loss.a ** (q - 1) == pytest.approx(2.0 * 30 ** (q - 1))


def test_amse_alone_gets_the_a_and_nothing_else():
    loss = noiseproof.loss_for("amse", pairflip(10, 0.1), offset=False)
    assert (loss.a, loss.offset) == (pytest.approx(10 / 0.8), False)


@pytest.mark.parametrize("name", ["amse", "anorm", "jal-ce", "jal-fl"])
def test_the_word_auto_alone_is_refused_with_the_way_out(name):
    with pytest.raises(TypeError, match=r"a='auto' needs to know the noise: noiseproof\.loss_for"):
        noiseproof.create_loss(name, a="auto")


@pytest.mark.parametrize(
    ("name", "options", "fault"),
    [
        ("ce", {}, "ce: a=auto is for amse, anorm, jal-ce, jal-fl; it has no a"),
        ("nce+agce", {}, "its factor above the bound has not been measured"),
        ("jal-ce", {"a": 20.0}, r"loss_for chooses a, got a=20\.0"),
        ("jal-ce", {"b": 1.0}, "JALCE has no option 'b'"),
    ],
)
def test_what_cannot_be_chosen_is_refused(name, options, fault):
    with pytest.raises((ValueError, TypeError), match=fault):
        noiseproof.loss_for(name, 0.4, classes=10, **options)
