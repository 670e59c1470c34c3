"""Charts as SVG."""

import re

import numpy as np
import pytest

from noiseproof.report import charts


@pytest.mark.parametrize(("values", "ends"), [([100.0, 100.0], ["90", "100"]), ([0.0, 0.0], ["0", "10"])])
def test_an_axis_of_percent_ends_at_100(values, ends):
    drawn = charts.lines([charts.ChartLine("ce", values, 0)], "accuracy")
    assert re.findall(r'text-anchor="end"[^>]*>(\d+)<', drawn) == ends


def test_names_beside_lines_do_not_overlap_and_stay_inside():
    series = [charts.ChartLine(f"loss {k}", [50.0, 60.0 + k / 10], k) for k in range(20)]
    drawn = charts.lines(series, "crowded")
    places = sorted(float(y) for y in re.findall(r'<text x="\d+" y="([\d.]+)">loss', drawn))
    assert len(places) == 20
    assert min(np.diff(places)) > 10
    assert places[0] >= 0
    assert places[-1] <= charts.HEIGHT


def test_a_histogram_says_how_many_labels_are_likely():
    # 3 of 4 right labels lie in the upper ten of twenty steps, and none of the wrong ones.
    drawn = charts.histogram({"right": [1] + [0] * 9 + [1, 1, 1] + [0] * 7, "wrong": [5] + [0] * 19}, "a run")
    assert "right: 75 % above ½" in drawn
    assert "wrong: 0 % above ½" in drawn


def test_styles_of_lines_differ_in_colour_or_dash():
    assert len({(k % charts.COLORS, k % charts.DASHES) for k in range(35)}) == 35
