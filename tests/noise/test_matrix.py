"""Noise by matrix: exact counts, the published rule, and properties that hold for any labels."""

import json
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noiseproof import noise
from noiseproof.keyed_random import random_keys, random_uniform
from noiseproof.noise.matrix import CORNER, _counts, _draw, exact_counts, read_matrix_table
from noiseproof.paper.datasets import class_facts

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data" / "cifar_clean_labels.npz"
BALANCED = {10: np.repeat(np.arange(10), 5000), 100: np.repeat(np.arange(100), 500)}
"""CIFAR's training labels, but for their order: every class equally often."""


@st.composite
def noisy_problems(draw):
    """A matrix, labels and a seed."""
    classes = draw(st.integers(2, 6))
    rows = draw(st.lists(st.lists(st.floats(0, 1), min_size=classes, max_size=classes), min_size=classes, max_size=classes))
    matrix = np.array(rows) + 1e-3 * np.eye(classes)
    labels = np.array(draw(st.lists(st.integers(0, classes - 1), max_size=60)), dtype=np.int64)
    return matrix / matrix.sum(1, keepdims=True), labels, draw(st.integers(0, 2**63 - 1))


@given(noisy_problems(), st.sampled_from(noise.matrix.RULES))
def test_the_mask_is_where_labels_differ_and_the_rate_is_its_mean(problem, rule):
    matrix, labels, seed = problem
    noisy = noise.from_matrix(matrix).apply(labels, seed, rule)
    assert np.array_equal(noisy.mask, noisy.labels != labels)
    assert noisy.rate == (noisy.mask.mean() if len(labels) else 0.0)
    for i in np.unique(labels):
        np.testing.assert_allclose(
            noisy.matrix[i], np.bincount(noisy.labels[labels == i], minlength=len(matrix)) / (labels == i).sum()
        )


@given(noisy_problems())
def test_exact_counts_are_the_shares_rounded_up_or_down(problem):
    matrix, labels, seed = problem
    noisy = noise.from_matrix(matrix).apply(labels, seed)
    for i in np.unique(labels):
        counts = np.bincount(noisy.labels[labels == i], minlength=len(matrix))
        shares = matrix[i] * (labels == i).sum()
        assert (np.abs(counts - shares) < 1 + 1e-6).all()
        assert np.array_equal(np.sort(counts), np.sort(exact_counts(matrix[i], int((labels == i).sum()))))


@given(noisy_problems(), st.sampled_from(noise.matrix.RULES), st.randoms(use_true_random=False))
def test_renaming_the_classes_renames_the_noisy_labels(problem, rule, random):
    matrix, labels, seed = problem
    if len(np.unique(labels)) < len(matrix):
        labels = np.concatenate([labels, np.arange(len(matrix))])  # a class without examples has nothing to rank it by
    new_name = np.array(random.sample(range(len(matrix)), len(matrix)))
    renamed = np.empty_like(matrix)
    renamed[np.ix_(new_name, new_name)] = matrix
    before = noise.from_matrix(matrix).apply(labels, seed, rule).labels
    after = noise.from_matrix(renamed).apply(new_name[labels], seed, rule).labels
    assert np.array_equal(after, new_name[before])


@given(st.integers(2, 20), st.floats(0, 1))
def test_constructors_make_probabilities(classes, rate):
    for made in (noise.symmetric(classes, rate), noise.pairflip(classes, rate)):
        np.testing.assert_allclose(made.matrix.sum(1), 1)
        assert made.matrix.min() >= 0
        assert made.noise_rate == pytest.approx(rate)


@pytest.mark.parametrize("kind", ["cifar10", "cifar100", "cifar100-blocks", "mnist"])
def test_asymmetric_noise_leaves_other_classes_alone(kind):
    made = noise.asymmetric(kind, 0.4)
    labels = np.repeat(np.arange(made.classes), 50)
    noisy = made.apply(labels, seed=1)
    moved = np.unique(labels[noisy.mask])
    assert set(moved) == set(np.flatnonzero(np.diag(made.matrix) < 1))
    assert len(moved) == {"cifar10": 5, "mnist": 5}.get(kind, 100)
    for i in moved:
        assert len(np.unique(noisy.labels[labels == i])) == 2
        assert (noisy.labels[labels == i] != i).sum() == 20


def test_cifar10_moves_the_classes_the_paper_names():
    names = class_facts("cifar10")["classes"]
    matrix = noise.asymmetric("cifar10", 0.3).matrix
    moves = {(names[i], names[j]) for i, j in zip(*np.nonzero(matrix), strict=True) if i != j}
    assert moves == {("truck", "automobile"), ("bird", "airplane"), ("deer", "horse"), ("cat", "dog"), ("dog", "cat")}


def test_mnist_moves_the_digits_the_paper_names():
    """2 to 7, 3 to 8, 7 to 1, and 5 and 6 to each other (Patrini et al., CVPR 2017)."""
    matrix = noise.asymmetric("mnist", 0.3).matrix
    moves = {(int(i), int(j)) for i, j in zip(*np.nonzero(matrix), strict=True) if i != j}
    assert moves == {(2, 7), (3, 8), (7, 1), (5, 6), (6, 5)}


def test_cifar100_moves_to_the_next_class_of_the_super_class_and_the_last_to_the_first():
    """As Patrini et al. (CVPR 2017) have it; the aquatic mammals, in the order of their labels."""
    names = class_facts("cifar100")["classes"]
    ring = [names.index(name) for name in ("beaver", "dolphin", "otter", "seal", "whale")]
    matrix = noise.asymmetric("cifar100", 0.3).matrix
    assert matrix[ring, ring[1:] + ring[:1]] == pytest.approx(0.3)
    blocks = noise.asymmetric("cifar100-blocks", 0.3).matrix
    assert blocks[[95, 96, 97, 98, 99], [96, 97, 98, 99, 95]] == pytest.approx(0.3)


def test_cifar100_moves_stay_in_the_super_class_and_blocks_do_not():
    facts = class_facts("cifar100")
    superclass = np.array(facts["superclass_of"])
    assert np.bincount(superclass).tolist() == [5] * 20
    for kind, stays in (("cifar100", True), ("cifar100-blocks", False)):
        matrix = noise.asymmetric(kind, 0.3).matrix
        i, j = np.nonzero(matrix - np.diag(np.diag(matrix)))
        assert bool((superclass[i] == superclass[j]).all()) == stays
        assert sorted(j) == list(range(100))


REALISED = {
    # int(T n) labels moved: 10 classes of 5,000 give 9 int(rate 5000/9)/5000, 100 classes of 500 give 99 int(rate 500/99)/500.
    10: {0.2: 0.1998, 0.4: 0.3996, 0.6: 0.5994, 0.8: 0.7992},
    100: {0.2: 0.198, 0.4: 0.396, 0.6: 0.594, 0.8: 0.792},
}


@pytest.mark.parametrize("classes", [10, 100])
@pytest.mark.parametrize("rate", [0.2, 0.4, 0.6, 0.8])
def test_realised_symmetric_rates_are_as_asked_and_as_published(classes, rate):
    made, labels = noise.symmetric(classes, rate), BALANCED[classes]
    assert made.apply(labels, 123).rate == rate
    assert made.apply(labels, 123, "published").rate == REALISED[classes][rate]


@pytest.mark.parametrize("rate", [0.1, 0.2, 0.3, 0.4])
def test_realised_asymmetric_rates_are_as_asked_under_both_rules(rate):
    for kind, labels, share in (
        ("cifar10", BALANCED[10], 0.5),
        ("cifar100", BALANCED[100], 1),
        ("cifar100-blocks", BALANCED[100], 1),
    ):
        for rule in ("exact", "published"):
            assert noise.asymmetric(kind, rate).apply(labels, 123, rule).rate == pytest.approx(share * rate, abs=1e-12)


def test_the_published_rule_makes_no_noise_at_all_of_ten_percent_on_cifar100():
    assert noise.symmetric(100, 0.1).apply(BALANCED[100], 123, "published").rate == 0.0
    assert noise.symmetric(100, 0.1).apply(BALANCED[100], 123).rate == 0.1


@pytest.mark.skipif(not SHARED.exists(), reason="the CIFAR label files are not here")
def test_the_realised_tables_hold_on_the_real_labels():
    files = np.load(SHARED)
    for classes in (10, 100):
        labels = files[f"cifar{classes}_train"]
        for rate, published in REALISED[classes].items():
            assert noise.symmetric(classes, rate).apply(labels, 123).rate == rate
            assert noise.symmetric(classes, rate).apply(labels, 123, "published").rate == published
    assert np.array_equal(files["cifar100_fine_to_coarse"], class_facts("cifar100")["superclass_of"])


@pytest.mark.parametrize("parts", [(35, 15, 50), (1, 1, 1), (0, 3, 7), (2, 18, 80), (5, 7, 9, 11, 13)], ids=str)
def test_exact_counts_are_those_of_exact_arithmetic(parts):
    """By largest remainder, ties in order: a share of 24.5 does not lose its turn to rounding (0.35 * 70 is below it)."""
    for total in range(300):
        shares = [Fraction(part, sum(parts)) * total for part in parts]
        expected = [math.floor(share) for share in shares]
        by_remainder = sorted(range(len(parts)), key=lambda k: expected[k] - shares[k])
        for k in by_remainder[: total - sum(expected)]:
            expected[k] += 1
        assert exact_counts(np.array(parts) / sum(parts), total).tolist() == expected


@pytest.mark.parametrize("rule", ["exact", "published"])
@pytest.mark.parametrize("row", [[0.5 + 9e-7, 0.5], [0.5 - 9e-7, 0.5], [0.0, 1 + 9e-7], [0.3333333] * 3], ids=str)
def test_millions_of_labels_are_shared_out_by_rows_that_sum_to_one_up_to_decimals(row, rule):
    total = 30_000_000
    matrix = np.array([row] * len(row))
    probabilities = noise.from_matrix(matrix).matrix[0]  # which takes it
    counts = _counts(probabilities, total, 0, rule)
    assert counts.sum() == total
    assert counts.min() >= 0
    np.testing.assert_allclose(counts / total, probabilities / probabilities.sum(), atol=1 / total)


def test_a_table_of_decimals_is_a_matrix_whose_rows_sum_to_one(tmp_path):
    """As an audit writes it: six decimals each, whose sum may be off by one of them for every class."""
    row = ["0.333333"] * 3
    lines = [[CORNER, "a", "b", "c"], ["a", *row], ["b", *row], ["c", *row]]
    (tmp_path / "t.csv").write_text("\n".join(map(",".join, lines)), encoding="utf-8")
    np.testing.assert_allclose(read_matrix_table(tmp_path / "t.csv"), np.full((3, 3), 1 / 3), rtol=1e-15)


def test_a_class_of_probability_zero_is_never_drawn():
    assert _draw(np.array([0.0, 0.5, 0.0, 0.5, 0.0]), np.array([0.0, 0.5, np.nextafter(1, 0)])).tolist() == [1, 3, 3]


def test_draws_have_the_asked_probabilities():
    """Each realised entry is within 5 standard errors of the asked one: a false alarm in 1 of 6,000 runs for 30 entries."""
    matrix = np.array([[0.5, 0.3, 0.2], [0.0, 0.9, 0.1], [0.25, 0.25, 0.5]])
    labels = np.repeat(np.arange(3), 20000)
    realised = noise.from_matrix(matrix).apply(labels, 7, "draws").matrix
    assert (np.abs(realised - matrix) <= 5 * np.sqrt(matrix * (1 - matrix) / 20000)).all()
    assert realised[1, 0] == 0


def test_the_random_numbers_are_splitmix64():
    """First outputs for seed 1234567, from the algorithm's published test vector."""
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821]
    assert random_keys(1234567, 5).tolist() == expected


def test_uniform_numbers_are_uniform():
    """Kolmogorov's distance below 1.95 / sqrt(n): a false alarm in 1 of 1,000 runs, and the seeds are fixed."""
    for stream in range(3):
        numbers = np.sort(random_uniform(5, 20000, stream))
        distance = np.abs(numbers - (np.arange(20000) + 0.5) / 20000).max()
        assert distance < 1.95 / np.sqrt(20000)
        assert 0 <= numbers[0] <= numbers[-1] < 1


def test_the_same_seed_gives_the_same_labels_everywhere():
    """Hashes written down once: another machine, another NumPy, another order of operations must reproduce them."""
    labels = np.arange(1000) % 10
    hashes = json.loads((Path(__file__).parent / "hashes.json").read_text(encoding="utf-8"))
    for rule, expected in hashes.items():
        assert noise.symmetric(10, 0.6).apply(labels, 42, rule).hash == expected
    assert noise.symmetric(10, 0.6).apply(labels.astype(np.uint8), 42).hash == hashes["exact"]
    assert noise.symmetric(10, 0.6).apply(labels, 43).hash != hashes["exact"]


def test_one_hash_by_hand():
    """SHA-256 of the 64-bit numbers 1, 2, 3."""
    import hashlib

    raw = b"".join(k.to_bytes(8, "little") for k in (1, 2, 3))
    assert (
        noise.label_hash([1, 2, 3]) == noise.label_hash(np.array([1, 2, 3], dtype=np.uint8)) == hashlib.sha256(raw).hexdigest()
    )


def test_clean_labels_are_left_alone():
    labels = np.arange(100) % 10
    before = labels.copy()
    noise.symmetric(10, 0.5).apply(labels, 0)
    assert np.array_equal(labels, before)
    with pytest.raises(ValueError, match="read-only"):
        noise.symmetric(10, 0.5).matrix[0, 0] = 1.0


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: noise.symmetric(10, 1.2), ValueError, r"rate must be in \[0, 1\], got 1.2"),
        (lambda: noise.symmetric(1, 0.2), ValueError, "classes must be at least 2, got 1"),
        (lambda: noise.symmetric(2.5, 0.2), TypeError, "classes must be an integer, got 2.5"),
        (lambda: noise.symmetric(10, "a"), TypeError, "rate must be a number, got 'a'"),
        (lambda: noise.asymmetric("imagenet", 0.2), ValueError, "asymmetric noise is defined for cifar10, cifar100,"),
        (lambda: noise.from_matrix([[1, 0]]), ValueError, r"must be square with at least 2 classes, got shape \(1, 2\)"),
        (lambda: noise.from_matrix([[0.5, 0.4], [0, 1]]), ValueError, "must sum to 1, row 0 sums to 0.9"),
        (lambda: noise.from_matrix([[1, 0], [0.6, 0.9]]), ValueError, "must sum to 1, row 1 sums to 1.5"),
        (lambda: noise.from_matrix([[1.5, -0.5], [0, 1]]), ValueError, "got a negative or non-finite entry"),
        (lambda: noise.from_matrix([[np.nan, 1], [0, 1]]), ValueError, "got a negative or non-finite entry"),
        (lambda: noise.symmetric(3, 0.2).apply([0, 3], 0), ValueError, r"labels must be in \[0, 2\] for 3 classes, got 3"),
        (lambda: noise.symmetric(3, 0.2).apply([0.5, 1.0], 0), TypeError, "labels must be a vector of integers"),
        (lambda: noise.symmetric(3, 0.2).apply([0, 1], 1.5), TypeError, "seed must be an integer, got 1.5"),
        (lambda: noise.symmetric(3, 0.2).apply([0, 1], 0, "random"), ValueError, "rule must be one of exact, draws, published"),
    ],
)
def test_bad_input_is_refused_with_the_reason(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_a_share_of_less_than_one_label_is_rounded_to_the_largest_remainder_of_its_class():
    """As docs/how_to/noise.md says: 0.8 of 20 labels to 99 classes are none, since the rest of the own label's 19.2 is larger.

    By draws they are 4 % of 2,000, 80 with a deviation of sqrt(80 * 0.96): 45 is five of them, and the seed is fixed.
    """
    clean = np.repeat(np.arange(100), 20)
    assert noise.symmetric(100, 0.04).apply(clean, seed=0).mask.sum() == 0
    assert abs(int(noise.symmetric(100, 0.04).apply(clean, seed=0, rule="draws").mask.sum()) - 80) < 45
