"""Losses compared on the same seeds."""

import itertools

import numpy as np
import pytest
from scipy import stats

from noiseproof.comparison.paired import PairedRanking, rank_paired


def drawn(means, seeds, generator, *, shared=2.0, own=0.3):
    """Accuracies with a part that all losses share at a seed, as easy and hard label draws give, and a part of their own."""
    common = shared * generator.normal(size=seeds)
    return {name: dict(enumerate(mean + common + own * generator.normal(size=seeds))) for name, mean in means.items()}


def test_pairing_sees_through_what_the_seeds_share():
    runs = drawn({"ce": 60.0, "jal-ce": 62.0, "gce": 50.0}, 5, np.random.default_rng(0))
    found = rank_paired(runs, np.random.default_rng(0))
    assert [one.name for one in found.competitors] == ["jal-ce", "ce", "gce"]
    assert found.groups == (("jal-ce",), ("ce",), ("gce",))
    assert found.competitors[0].difference == 0
    assert found.competitors[0].interval is None


def test_few_seeds_have_the_paired_interval_of_student():
    runs = drawn({"a": 60.0, "b": 61.0}, 3, np.random.default_rng(1))
    second = rank_paired(runs, np.random.default_rng(0)).competitors[1]
    expected = stats.ttest_rel(list(runs["a"].values()), list(runs["b"].values())).confidence_interval(0.95)
    assert second.basis == "t"
    assert second.interval == pytest.approx((expected.low, expected.high))


def test_the_bootstrap_interval_holds_the_truth():
    """Of 200 intervals 190 should hold the true difference of -1; below 178 in 0.1 % of tests."""
    generator = np.random.default_rng(2)
    held = 0
    for _ in range(200):
        _, second = rank_paired(drawn({"a": 70.0, "b": 69.0}, 8, generator), generator).competitors
        assert second.basis == "bootstrap"
        held += second.interval[0] <= -1 <= second.interval[1]
    assert held >= 178


def test_the_bootstrap_interval_is_as_wide_as_students():
    """Which its levels are chosen for; the percentiles of 10,000 draws, out there, are within 3 % of it."""
    differences = stats.norm.ppf((np.arange(10) + 0.5) / 10)
    runs = {"a": dict(enumerate(70 + differences)), "b": dict.fromkeys(range(10), 69.0)}
    low, high = rank_paired(runs, np.random.default_rng(0)).competitors[1].interval
    expected = stats.ttest_1samp(differences, 0).confidence_interval(0.95)
    assert high - low == pytest.approx(expected.high - expected.low, rel=0.03)


def test_two_losses_that_are_the_same_are_separated_in_five_percent():
    """Of 200 comparisons of two equal losses 10 should separate them; more than 19 in 0.3 % of tests, none in 0.004 %."""
    generator = np.random.default_rng(3)
    groups = [rank_paired(drawn(dict.fromkeys("ab", 70.0), 4, generator), generator).groups for _ in range(200)]
    assert 1 <= sum(len(found) > 1 for found in groups) <= 19


@pytest.mark.parametrize("seeds", [3, 5, 8])
def test_two_share_a_letter_exactly_if_their_paired_interval_includes_zero(seeds):
    """Of many comparisons of four losses each, every pair's group follows the interval of that pair alone."""
    generator, separated = np.random.default_rng(seeds), 0
    for _ in range(20):
        runs = drawn({"a": 70.0, "b": 69.8, "c": 69.3, "d": 68.9}, seeds, generator, own=0.4)
        groups = rank_paired(runs, np.random.default_rng(0)).groups
        for one, two in itertools.combinations(runs, 2):
            pair = rank_paired({one: runs[one], two: runs[two]}, np.random.default_rng(0))
            low, high = pair.competitors[1].interval
            if min(abs(low), abs(high)) > 0.06:  # other bootstrap draws move an end a little
                assert (low <= 0 <= high) == any({one, two} <= set(group) for group in groups)
                separated += not low <= 0 <= high
    assert separated >= 10


def test_three_seeds_separate_losses_whose_interval_excludes_zero():
    """95.5 and 77.9 with an interval of [-24.9, -10.4], among others: the letters follow the interval in the table."""
    runs = {
        "ce": {0: 77.9 - 3.3, 1: 77.9 + 0.9, 2: 77.9 + 2.4},
        "gce": {0: 95.2, 1: 95.4, 2: 95.9},
        "jal-ce": {0: 95.6, 1: 95.3, 2: 95.6},
        "mae": {0: 60.0, 1: 70.0, 2: 95.0},
    }
    found = rank_paired(runs, np.random.default_rng(0))
    low, high = next(one.interval for one in found.competitors if one.name == "ce")
    assert -26 < low < high < -10
    assert not any({"ce", "jal-ce"} <= set(group) for group in found.groups)
    assert any({"gce", "jal-ce"} <= set(group) for group in found.groups)


def test_a_loss_between_two_may_be_in_both_groups():
    wiggle = np.array([0.5, -0.5, 0.4, -0.4])
    runs = {
        name: dict(enumerate(mean + sign * wiggle)) for name, mean, sign in (("a", 70.0, 1), ("b", 69.3, -1), ("c", 68.6, 1))
    }
    assert rank_paired(runs, np.random.default_rng(0)).groups == (("a", "b"), ("b", "c"))


def test_only_seeds_that_both_have_are_paired():
    runs = {"a": {1: 70.0, 2: 71.0, 3: 90.0}, "b": {1: 69.0, 2: 69.5}}
    assert rank_paired(runs, np.random.default_rng(0)).competitors[1].difference == pytest.approx(-1.25)


def test_one_seed_ranks_but_tells_nothing_apart():
    found = rank_paired({"a": {1: 70.0}, "b": {1: 50.0}, "c": {2: 60.0}}, np.random.default_rng(0))
    assert found.groups == (("a", "c", "b"),)
    assert [one.interval for one in found.competitors] == [None] * 3


def test_the_same_generator_gives_the_same_answer():
    runs = drawn({"a": 70.0, "b": 69.0}, 9, np.random.default_rng(4))
    assert rank_paired(runs, np.random.default_rng(5)) == rank_paired(runs, np.random.default_rng(5))
    assert rank_paired({}, np.random.default_rng(0)) == PairedRanking((), ())
