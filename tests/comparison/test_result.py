"""Losses compared on the same seeds, with numbers whose answer is known."""

import itertools
import math

import numpy as np
import pytest

from noiseproof.comparison import Comparison, CompetitorResult
from noiseproof.comparison.paired import rank_paired


def generator():
    return np.random.default_rng(0)


def by_seed(*values):
    return dict(enumerate(values))


def share_a_group(found, one, two):
    return any(one in group and two in group for group in found.groups)


def test_differences_are_taken_within_seeds():
    """The seeds differ by 10 points, the losses by 1 on each: unpaired nobody could tell them apart."""
    hard = [50.0, 60.0, 70.0, 80.0]
    better = [value + 1 + small for value, small in zip(hard, (0.1, -0.1, 0.1, -0.1), strict=True)]
    found = rank_paired({"ce": by_seed(*hard), "gce": by_seed(*better)}, generator())
    assert found.groups == (("gce",), ("ce",))
    (_, worse) = found.competitors
    assert worse.difference == pytest.approx(-1.0)
    # Student's t with 3 degrees of freedom, 3.1824, from a printed table
    half = 3.1824 * math.sqrt(4 * 0.1**2 / 3) / 2
    assert worse.interval == pytest.approx((-1 - half, -1 + half), rel=1e-4)
    assert worse.basis == "t"


@pytest.mark.parametrize("n", [1, 2])
def test_one_or_two_seeds_tell_nothing_apart(n):
    found = rank_paired({"a": by_seed(*[90.0, 91.0][:n]), "b": by_seed(*[10.0, 11.5][:n])}, generator())
    assert found.competitors[1].interval is None
    assert found.groups == (("a", "b"),)


def test_the_bootstrap_from_six_seeds_on_holds_the_truth_in_95_of_100():
    """Of 400 comparisons 95 % hold it, standard error 1.1 %: a false alarm at four of them is less than one in 10,000."""
    draw, held = np.random.default_rng(1), 0
    for _ in range(400):
        shared, own = draw.normal(80, 5, 8), draw.normal(-2, 1, 8)
        found = rank_paired({"a": by_seed(*shared), "b": by_seed(*(shared + own))}, draw)
        name = next(one for one in found.competitors if one.interval is not None)
        assert name.basis == "bootstrap"
        truth = -2 if name.name == "b" else 2
        held += name.interval[0] <= truth <= name.interval[1]
    assert 0.905 <= held / 400 <= 0.99


def test_two_share_a_group_if_and_only_if_they_cannot_be_told_apart():
    """b scatters so much that it is distinguishable from none; a, between which and c it lies, is from c."""
    runs = {
        "a": by_seed(80.0, 80.1, 79.9, 80.0, 80.05),
        "b": by_seed(95.0, 63.0, 88.0, 71.0, 80.5),
        "c": by_seed(78.0, 78.1, 77.9, 78.05, 78.0),
        "d": by_seed(60.0, 92.0, 66.0, 85.0, 75.0),
    }
    found = rank_paired(runs, generator())
    assert [one.name for one in found.competitors] == ["a", "b", "c", "d"]
    apart = {pair for pair in itertools.combinations("abcd", 2) if not share_a_group(found, *pair)}
    assert apart == {("a", "c")}
    assert found.groups == (("a", "b", "d"), ("b", "c", "d"))


def test_the_table_says_what_is_not_known():
    few = Comparison(
        {"data": "digits"},
        [CompetitorResult("ce", "none", by_seed(80.0, 81.0)), CompetitorResult("gce", "none", by_seed(85.0, 86.0))],
    )
    text = str(few)
    assert " -5.00  too few seeds" in text
    assert "highest mean: gce; intervals and groups need at least 3 seeds" in text
    assert "resamples" not in text


def test_the_table_names_the_resamples_and_what_cannot_be_told_apart():
    one, two, three = np.random.default_rng(3).normal(size=(3, 8))
    entrants = [
        CompetitorResult("ce", "none", by_seed(*(60 + one))),
        CompetitorResult("gce", "none", by_seed(*(80 + two))),
        CompetitorResult("jal-ce", "l1 5e-05", by_seed(*(80 + three))),
    ]
    compared = Comparison({"data": "digits"}, entrants)
    text = str(compared)
    assert "paired bootstrap, 10,000 resamples of the 8 seeds" in text
    best, other = (row["loss"] for row in compared.table()[:2])
    assert f"best: {best}; statistically indistinguishable from it: {other}" in text
    assert [row["groups"] for row in compared.table()] == ["a", "a", "b"]


def test_a_loss_that_diverged_is_not_ranked_and_said_to_be():
    entrants = [
        CompetitorResult("ce", "none", by_seed(60.0, 61.0, 60.5)),
        CompetitorResult("gce", "none", by_seed(70.0, 71.0, 70.4)),
        CompetitorResult("mae", "none", {0: 99.0}, diverged=(1, 2)),
    ]
    compared = Comparison({"data": "digits"}, entrants)
    assert [row["loss"] for row in compared.table()] == ["gce", "ce", "mae"]
    for text in (str(compared), compared.to_markdown()):
        assert "2 of 3 diverged" in text
        assert "mae: not ranked, diverged with seed 1, 2" in text


def test_a_loss_that_misses_a_class_is_ranked_and_said_to():
    entrants = [
        CompetitorResult("ce", "none", by_seed(60.0, 61.0, 60.5)),
        CompetitorResult("gce", "none", by_seed(70.0, 71.0, 70.4), missed_classes="3 of 3 runs never right on paid"),
    ]
    compared = Comparison({"data": "bank"}, entrants)
    for text in (str(compared), compared.to_markdown(), compared.to_json()):
        assert "gce: 3 of 3 runs never right on paid, which its accuracy hides" in text
    assert [row["missed"] for row in compared.table()] == ["3 of 3 runs never right on paid", ""]
