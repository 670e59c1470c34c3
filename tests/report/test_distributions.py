"""Distributions against SciPy's."""

import pytest
from scipy import special, stats

from noiseproof.report.distributions import chi2_tail, digamma, inverse_trigamma, normal_score, t_quantile, t_tails, trigamma


@pytest.mark.parametrize("df", [1, 2, 2.3, 4, 17.5, 300, 1e6])
@pytest.mark.parametrize("t", [-3.0, 0.0, 1e-4, 0.7, 2.5, 12.0, 200.0])
def test_student_tails(t, df):
    assert t_tails(t, df) == pytest.approx(2 * stats.t.sf(abs(t), df), rel=1e-8, abs=1e-250)


@pytest.mark.parametrize("df", [1, 2, 2.3, 4, 17.5, 300, 1e6])
@pytest.mark.parametrize("tails", [0.9, 0.5, 0.05, 1e-4, 1e-10])
def test_student_quantiles(tails, df):
    assert t_quantile(tails, df) == pytest.approx(stats.t.isf(tails / 2, df), rel=1e-8)


@pytest.mark.parametrize("df", [1, 2, 9, 116, 1000])
@pytest.mark.parametrize("ratio", [0.0, 0.1, 0.9, 1.0, 1.1, 3.0])
def test_chi_square_tails(ratio, df):
    assert chi2_tail(ratio * df, df) == pytest.approx(stats.chi2.sf(ratio * df, df), rel=1e-9, abs=1e-250)


@pytest.mark.parametrize("x", [0.02, 0.5, 1.0, 1.65, 26.0, 1e5])
def test_gamma_functions(x):
    assert digamma(x) == pytest.approx(special.digamma(x), rel=1e-11)
    assert trigamma(x) == pytest.approx(special.polygamma(1, x), rel=1e-11)
    assert inverse_trigamma(trigamma(x)) == pytest.approx(x, rel=1e-9)


def test_the_inverse_of_no_scatter_is_very_many_degrees():
    assert inverse_trigamma(0.0) == inverse_trigamma(-1.0) == pytest.approx(1e6)


@pytest.mark.parametrize("tails", [1.0, 0.3, 0.05, 1e-12, 0.0])
def test_normal_scores(tails):
    assert normal_score(tails) == pytest.approx(stats.norm.isf(max(tails, 1e-300) / 2), rel=1e-8, abs=1e-12)
