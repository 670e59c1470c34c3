"""The plots of the documentation: pictures with colours for light and dark, names that do not overlap, round ticks."""

import importlib
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).resolve().parents[2]
PLOTS = sorted((ROOT / "docs" / "figures").glob("*.svg"))


@pytest.fixture
def figures(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    return importlib.import_module("figures")


@pytest.mark.parametrize("path", PLOTS, ids=lambda path: path.name)
def test_a_plot_is_a_picture_whose_colours_are_known_in_light_and_dark(path):
    text = path.read_text(encoding="utf-8")
    assert ElementTree.fromstring(text).tag == "{http://www.w3.org/2000/svg}svg"
    assert "prefers-color-scheme: dark" in text
    assert not set(re.findall(r"var\((--[a-z0-9-]+)\)", text)) - set(re.findall(r"(--[a-z0-9-]+):", text))


def test_a_dot_stands_above_its_value_on_the_axis(figures):
    rows = [figures.Dot("low", 2.0, 1.0, 3.0), figures.Dot("high", 8.0, 7.0, 9.0)]
    text = figures.intervals("Gains", rows, across="points")
    dots = re.findall(r'<circle class="mark c1" cx="([\d.]+)"', text)
    assert [re.search(rf'<text x="{place}"[^>]*>(\d)</text>', text)[1] for place in dots] == ["2", "8"]


def test_names_beside_lines_do_not_overlap(figures):
    assert figures._apart([100, 101, 300]) == [100, 115, 300]


def test_the_ticks_of_an_axis_are_round_and_few(figures):
    assert figures.Axis(-3.2, 17.0, 0, 100).ticks() == [0, 5, 10, 15]
    assert figures.Axis(0.5, 120, 0, 100, log=True).ticks() == [1, 3, 10, 30, 100]
