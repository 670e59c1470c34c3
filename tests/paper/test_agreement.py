"""Agreement with published numbers, on simulated tables whose truth is known. Every draw has its seed."""

import math

import numpy as np
import pytest
from scipy import stats

from noiseproof.comparison.paired import Sample
from noiseproof.paper.agreement import Point, UsualSpread, compare, holm, mean_difference, ranking, spread, usual_spreads

LOSSES, COLUMNS = 13, 9


def simulated(generator, *, n=3, shift=0.0, outlier=0.0, alike=False, shared=0.0):
    """The cells of a table of the paper's size: true spreads differ between columns, and between cells as the paper's do.
    ``shared`` is the part of the variance that all losses of a column have from their seeds."""
    columns = []
    for column in range(COLUMNS):
        cells = []
        seeds = [math.sqrt(shared) * generator.normal(size=size) if shared else 0.0 for size in (3, n)]
        for _ in range(LOSSES):
            wide = 1.0 if alike else math.sqrt(3.3 / generator.chisquare(3.3))
            sigma, truth = (0.2 + 0.1 * column) * wide, generator.uniform(20, 90)
            own = [math.sqrt(1 - shared) * generator.normal(size=size) for size in (3, n)]
            paper, ours = (truth + sigma * (common + values) for common, values in zip(seeds, own, strict=True))
            cells.append((Sample.of(list(paper)), Sample.of(list(ours + shift))))
        columns.append(cells)
    paper, ours = columns[0][0]
    columns[0][0] = (paper, Sample(ours.mean + outlier, ours.std, ours.n))
    usual = usual_spreads(columns)
    return [compare(ours, paper, u) for cells, u in zip(columns, usual, strict=True) for paper, ours in cells]


def by_column(cells):
    return [cells[first : first + LOSSES] for first in range(0, len(cells), LOSSES)]


def holds(cells, truth=0.0):
    """Whether the interval of the mean difference does."""
    low, high = mean_difference(*by_column(cells)).interval
    return low <= truth <= high


@pytest.mark.parametrize(
    ("n", "ours", "theirs"), [(3, (88.0, 0.3), (87.0, 0.1)), (9, (64.15, 0.89), (65.43, 0.99)), (2, (1, 1), (2, 3))]
)
def test_the_interval_is_welchs(n, ours, theirs):
    found = compare(Sample(*ours, n), Sample(*theirs, 3), UsualSpread(0.5, 4))
    # The interval holds zero exactly where SciPy's test would not reject, so its end is where the test says 5 %.
    for end in found.interval:
        tested = stats.ttest_ind_from_stats(ours[0] - end, ours[1], n, theirs[0], theirs[1], 3, equal_var=False)
        assert tested.pvalue == pytest.approx(0.05, rel=1e-6)
    assert found.basis == "welch"


def test_without_the_column_the_error_is_students():
    found = compare(Sample(88.0, 0.3, 3), Sample(87.0, 0.1, 3))
    assert found.p == pytest.approx(stats.ttest_ind_from_stats(88.0, 0.3, 3, 87.0, 0.1, 3).pvalue, rel=1e-9)


@pytest.mark.parametrize(("mean", "verdict"), [(87.0, "below"), (88.0, "agrees"), (89.0, "above")])
def test_one_result_is_judged_by_the_spread_of_its_column(mean, verdict):
    found = compare(Sample(mean, None, 1), Sample(88.0, 0.2, 3), UsualSpread(0.2, 1e6))
    half = stats.norm.isf(0.025) * 0.2 * math.sqrt(4 / 3)
    assert (found.verdict, found.basis) == (verdict, "column")
    assert found.interval == pytest.approx((mean - 88 - half, mean - 88 + half), abs=1e-4)


def test_too_few_is_said_without_runs_and_without_a_published_spread():
    assert compare(None, Sample(88.0, 0.2, 3)).verdict == "too few"
    found = compare(Sample(66.0, 0.1, 3), Sample(66.6, None, 1))
    assert (found.verdict, found.interval, found.p) == ("too few", None, None)
    assert found.difference == pytest.approx(-0.6)


@pytest.mark.parametrize("df", [3.3, 12.0])
def test_the_usual_spread_of_columns_is_recovered(df):
    generator = np.random.default_rng(1)
    columns = [
        [(Sample.of(list(std * math.sqrt(df / generator.chisquare(df)) * generator.normal(size=9))),) for _ in range(400)]
        for std in (0.2, 1.5)
    ]
    small, large = usual_spreads(columns)
    assert (small.std, large.std) == (pytest.approx(0.2, rel=0.1), pytest.approx(1.5, rel=0.1))
    assert small.df == pytest.approx(df, rel=0.3)


def test_the_degrees_lent_are_seldom_more_than_the_true_ones():
    """One standard error below, so in about 84 % of papers they are fewer; without it in half. Of 100, below 70 in 0.03 %."""
    generator, df = np.random.default_rng(11), 4.4
    fewer = 0
    for _ in range(100):
        sigmas = np.sqrt(df / generator.chisquare(df, size=(28, 12, 1)))
        trials = sigmas * generator.normal(size=(28, 12, 3))
        usual = usual_spreads([[(Sample.of(list(values)),) for values in column] for column in trials])
        fewer += usual[0].df <= df
    assert 70 <= fewer < 100


def test_cells_alike_lend_their_column_all_degrees_that_went_into_it():
    generator = np.random.default_rng(2)
    columns = [[(Sample.of(list(generator.normal(size=9))),) for _ in range(13)] for _ in range(40)]
    assert np.median([usual.df for usual in usual_spreads(columns)]) > 50
    assert max(usual.df for usual in usual_spreads(columns)) <= 13 * 8


def test_a_printed_spread_of_nothing_is_taken_as_rounded():
    assert compare(Sample(88.0, None, 1), Sample(88.0, 0.0, 3)).interval[1] == pytest.approx(
        stats.t.isf(0.025, 2) * 0.005 * math.sqrt(4 / 3)
    )
    both = compare(Sample(88.0, 0.0, 3), Sample(88.0, 0.0, 3))
    assert both.interval[1] == pytest.approx(stats.t.isf(0.025, 4) * 0.005 * math.sqrt(2 / 3))


@pytest.mark.parametrize(("n", "alike"), [(1, True), (1, False), (3, True), (3, False)])
def test_agreeing_tables_raise_the_stated_false_alarms(n, alike):
    """Every alarm is set to 5 %. Of 60 tables 3 are expected; more than 8 would happen in 1 % of all such tests."""
    generator = np.random.default_rng(10 * n + alike)
    cells = [simulated(generator, n=n, alike=alike) for _ in range(60)]
    assert sum(not holds(table) for table in cells) <= 8
    assert sum(spread(table).p < 0.05 for table in cells) <= 8
    assert sum(min(holm([cell.p for cell in table])) < 0.05 for table in cells) <= 8
    verdicts = [cell.verdict for table in cells for cell in table]
    assert 0.02 < sum(verdict != "agrees" for verdict in verdicts) / len(verdicts) < 0.07  # 7020 cells: deviation 0.003


def test_the_mean_difference_of_losses_that_share_their_seeds_is_off_as_rarely_as_stated():
    """Of 60 tables 3 are expected; more than 8 would happen in 1 % of all such tests. Over the cells, it is 16 of these."""
    generator = np.random.default_rng(9)
    tables = [simulated(generator, n=1, shift=0.5, shared=0.2) for _ in range(60)]
    assert sum(not holds(table, 0.5) for table in tables) <= 8


@pytest.mark.parametrize("n", [1, 3])
def test_a_shift_of_one_point_is_seen_in_the_mean_and_not_in_the_spread(n):
    cells = simulated(np.random.default_rng(3), n=n, shift=1.0)
    low, high = mean_difference(*by_column(cells)).interval
    assert 0 < low < 1.0 < high
    assert spread(cells).p > 0.05


@pytest.mark.parametrize("n", [1, 3])
def test_one_outlier_is_found_by_holm_and_is_the_only_one(n):
    cells = simulated(np.random.default_rng(4), n=n, outlier=15.0, alike=True)
    corrected = holm([cell.p for cell in cells])
    assert [i for i, p in enumerate(corrected) if p < 0.05] == [0]


def test_differences_beyond_the_seeds_are_seen_in_the_spread():
    generator = np.random.default_rng(5)
    cells = []
    for _ in range(50):
        paper, ours = generator.normal(size=3), generator.normal(size=3) + 3 * generator.normal()
        cells.append(compare(Sample.of(list(ours)), Sample.of(list(paper))))
    assert spread(cells).p < 1e-4
    assert spread(cells).ratio > 1.3


def test_the_spread_is_the_sum_of_squared_scores_around_the_weighted_mean():
    ours, theirs = [(88.0, 0.3), (61.0, 0.8), (40.5, 0.2)], [(87.0, 0.1), (61.5, 0.5), (39.0, 0.4)]
    cells = [compare(Sample(*one, 3), Sample(*two, 3)) for one, two in zip(ours, theirs, strict=True)]
    differences, weights = np.array([1.0, -0.5, 1.5]), 1 / np.array([0.3**2 + 0.1**2, 0.8**2 + 0.5**2, 0.2**2 + 0.4**2])
    off = differences - weights @ differences / weights.sum()
    scores = stats.norm.isf(stats.t.sf(np.abs(off) / np.sqrt(1 / weights / 3), 4))
    found = spread(cells)
    assert (found.chi_square, found.df) == (pytest.approx(scores @ scores), 2)
    assert found.p == pytest.approx(stats.chi2.sf(scores @ scores, 2))


def test_nothing_is_said_of_too_few_cells():
    one = compare(Sample(88.0, 0.3, 3), Sample(87.0, 0.1, 3))
    assert mean_difference() is mean_difference([]) is None
    assert mean_difference([one]).interval is None
    assert spread([one]) is None


def test_the_mean_difference_has_students_interval_over_columns():
    """With as many cells in each, it is that of the columns' means."""
    values = [[0.1, -0.5], [-0.2, 0.0], [0.4, 0.6], [0.3, 0.1]]
    columns = [[compare(Sample(value, 0.1, 3), Sample(0.0, 0.1, 3)) for value in column] for column in values]
    found = mean_difference(*columns)
    expected = stats.ttest_1samp([-0.2, -0.1, 0.5, 0.2], 0).confidence_interval(0.95)
    assert (found.mean, *found.interval) == pytest.approx((0.1, expected.low, expected.high))
    assert mean_difference(columns[0]).interval is None


def test_holm_multiplies_the_smallest_by_all_and_stays_in_order():
    assert holm([0.01, 0.02, 0.02, 0.9]) == pytest.approx([0.04, 0.06, 0.06, 0.9])
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([]) == []


@pytest.mark.parametrize("digits", [6, 0])
def test_tau_is_scipys_also_with_ties(digits):
    generator = np.random.default_rng(6)
    x = np.round(generator.normal(size=13), digits)
    y = np.round(x + generator.normal(size=13), digits)
    assert ranking([Point(*pair) for pair in zip(x, y, strict=True)]).tau == pytest.approx(stats.kendalltau(x, y).statistic)


def test_pooled_tau_counts_pairs_within_columns_only():
    up, down = [Point(1, 1), Point(2, 2), Point(3, 3)], [Point(101, 9), Point(102, 8), Point(103, 7)]
    assert ranking(up, down).tau == 0
    assert ranking(up, up, up).tau == 1


def test_the_interval_of_tau_holds_the_truth_nineteen_times_of_twenty():
    """Normal pairs with correlation r have tau 2/pi asin r. Of 300 intervals 285 should hold; below 273 in 0.1 % of tests."""
    generator = np.random.default_rng(7)
    r = 0.5
    held = 0
    for _ in range(300):
        x = generator.normal(size=13)
        y = r * x + math.sqrt(1 - r * r) * generator.normal(size=13)
        low, high = ranking([Point(*pair) for pair in zip(x, y, strict=True)]).interval
        held += low <= 2 / math.pi * math.asin(r) <= high
    assert held >= 273


def test_the_interval_of_tau_is_fieller_hartley_and_pearsons():
    """One of ten pairs the wrong way round: tau is 8/10."""
    found = ranking([Point(i, x) for i, x in enumerate((0, 1, 2, 4, 3))])
    half = stats.t.isf(0.025, 3) * math.sqrt(0.437)
    assert found.tau == pytest.approx(0.8)
    assert found.interval == pytest.approx((math.tanh(math.atanh(0.8) - half), math.tanh(math.atanh(0.8) + half)))


def test_a_perfect_order_has_an_interval_and_four_losses_have_none():
    assert (
        0.8 < ranking([Point(i, i) for i in range(13)]).interval[0] < ranking([Point(i, i) for i in range(13)]).interval[1] == 1
    )
    assert ranking([Point(i, i) for i in range(4)]).interval is None
    assert ranking([Point(0, 1)]) is None
    assert ranking([Point(i, i) for i in range(13)], items=4).interval is None


def test_the_expected_tau_is_what_two_measurements_of_one_truth_give():
    generator = np.random.default_rng(8)
    truth = np.linspace(0, 6, 13)
    errors = (0.5, 0.8)
    taus = [
        stats.kendalltau(truth + errors[0] * generator.normal(size=13), truth + errors[1] * generator.normal(size=13)).statistic
        for _ in range(400)
    ]
    expected = ranking([Point(value, value, *errors) for value in truth]).expected
    assert expected == pytest.approx(np.mean(taus), abs=4 * np.std(taus) / 20)  # false alarm 6e-5
