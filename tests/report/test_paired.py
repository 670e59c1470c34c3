"""Losses compared on the same seeds."""

import numpy as np
import pytest
from scipy import stats

from noiseproof.report.paired import Comparison, compare_paired


def drawn(means, seeds, generator, *, shared=2.0, own=0.3):
    """Accuracies with a part that all losses share at a seed, as easy and hard label draws give, and a part of their own."""
    common = shared * generator.normal(size=seeds)
    return {name: dict(enumerate(mean + common + own * generator.normal(size=seeds))) for name, mean in means.items()}


def test_pairing_sees_through_what_the_seeds_share():
    runs = drawn({"ce": 60.0, "jal-ce": 62.0, "gce": 50.0}, 5, np.random.default_rng(0))
    found = compare_paired(runs, np.random.default_rng(0))
    assert [contender.name for contender in found.contenders] == ["jal-ce", "ce", "gce"]
    assert found.groups == (("jal-ce",), ("ce",), ("gce",))
    assert found.contenders[0].difference == 0
    assert found.contenders[0].interval is None


def test_few_seeds_have_the_paired_interval_of_student():
    runs = drawn({"a": 60.0, "b": 61.0}, 3, np.random.default_rng(1))
    second = compare_paired(runs, np.random.default_rng(0)).contenders[1]
    expected = stats.ttest_rel(list(runs["a"].values()), list(runs["b"].values())).confidence_interval(0.95)
    assert second.basis == "t"
    assert second.interval == pytest.approx((expected.low, expected.high))


def test_the_bootstrap_interval_holds_the_truth():
    """Of 200 intervals 190 should hold the true difference of -1; below 178 in 0.1 % of tests."""
    generator = np.random.default_rng(2)
    held = 0
    for _ in range(200):
        _, second = compare_paired(drawn({"a": 70.0, "b": 69.0}, 8, generator), generator).contenders
        assert second.basis == "bootstrap"
        held += second.interval[0] <= -1 <= second.interval[1]
    assert held >= 178


def test_the_bootstrap_interval_is_as_wide_as_students():
    """Which its levels are chosen for; the percentiles of 10,000 draws, out there, are within 3 % of it."""
    differences = stats.norm.ppf((np.arange(10) + 0.5) / 10)
    runs = {"a": dict(enumerate(70 + differences)), "b": dict.fromkeys(range(10), 69.0)}
    low, high = compare_paired(runs, np.random.default_rng(0)).contenders[1].interval
    expected = stats.ttest_1samp(differences, 0).confidence_interval(0.95)
    assert high - low == pytest.approx(expected.high - expected.low, rel=0.03)


def test_losses_that_are_the_same_are_told_apart_in_five_percent_at_most():
    """Of 200 comparisons of five equal losses 10 should tell any pair apart; more than 19 in 0.3 % of tests."""
    generator = np.random.default_rng(3)
    equal = dict.fromkeys("abcde", 70.0)
    groups = [compare_paired(drawn(equal, 4, generator), generator).groups for _ in range(200)]
    assert sum(len(found) > 1 for found in groups) <= 19


def test_a_loss_between_two_may_be_in_both_groups():
    wiggle = np.array([0.5, -0.5, 0.4, -0.4])
    runs = {
        name: dict(enumerate(mean + sign * wiggle)) for name, mean, sign in (("a", 70.0, 1), ("b", 69.3, -1), ("c", 68.6, 1))
    }
    assert compare_paired(runs, np.random.default_rng(0)).groups == (("a", "b"), ("b", "c"))


def test_only_seeds_that_both_have_are_paired():
    runs = {"a": {1: 70.0, 2: 71.0, 3: 90.0}, "b": {1: 69.0, 2: 69.5}}
    assert compare_paired(runs, np.random.default_rng(0)).contenders[1].difference == pytest.approx(-1.25)


def test_one_seed_ranks_but_tells_nothing_apart():
    found = compare_paired({"a": {1: 70.0}, "b": {1: 50.0}, "c": {2: 60.0}}, np.random.default_rng(0))
    assert found.groups == (("a", "c", "b"),)
    assert [contender.interval for contender in found.contenders] == [None] * 3


def test_the_same_generator_gives_the_same_answer():
    runs = drawn({"a": 70.0, "b": 69.0}, 9, np.random.default_rng(4))
    assert compare_paired(runs, np.random.default_rng(5)) == compare_paired(runs, np.random.default_rng(5))
    assert compare_paired({}, np.random.default_rng(0)) == Comparison((), ())
