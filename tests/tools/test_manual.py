"""What the documentation's pages are made of."""

import doctest
import importlib
import re
from pathlib import Path

import pytest
import torch

import noiseproof

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _tools(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))


@pytest.mark.parametrize("name", ["diagram", "docstrings", "formulas", "sources"])
def test_its_examples_run(name):
    failed, tried = doctest.testmod(importlib.import_module(f"manual.{name}"))
    assert not failed
    assert tried


def test_the_curves_of_cross_entropy_and_mae_are_those_of_their_formulas():
    curves = importlib.import_module("manual.curves")
    p = curves.probabilities()
    torch.testing.assert_close(curves.values(noiseproof.CE(reduction="none"), p), -p.log())
    torch.testing.assert_close(curves.pull(noiseproof.CE(reduction="none"), p), 1 - p)
    torch.testing.assert_close(curves.pull(noiseproof.MAE(reduction="none"), p), 2 * p * (1 - p))


def test_a_curve_stays_in_its_panel_and_its_numbers_are_round():
    curves = importlib.import_module("manual.curves")
    for name in ("jal-ce", "nce", "ece", "negative-ls"):
        figure = curves.drawn(noiseproof.losses.find_loss(name))
        for x, y in re.findall(r"(-?[\d.]+) (-?[\d.]+)(?=L|\")", re.search('class="curve" d="(.*?)"', figure).group(1) + '"'):
            assert curves.LEFT <= float(x) <= curves.WIDTH - curves.RIGHT
            assert curves.TOP - 1 <= float(y) <= curves.HEIGHT - curves.BOTTOM + 1
    assert curves.drawn(noiseproof.losses.find_loss("lt")) == ""
    assert curves._ticks(0.0, 1.5) == [0, 0.5, 1, 1.5]


def test_the_diagram_of_the_imports_has_every_box_once_and_no_two_overlap():
    diagram = importlib.import_module("manual.diagram")
    page = (ROOT / "docs" / "explanation" / "architecture.md").read_text(encoding="utf-8")
    text = re.search(r"```mermaid\n(.*?)```", page, re.DOTALL).group(1)
    nodes, edges = diagram.edges_of(text)
    svg = diagram.drawn(text, "imports")
    boxes = [tuple(map(float, found)) for found in re.findall(r'<rect x="([\d.]+)" y="([\d.]+)"', svg)]
    assert len(boxes) == len(nodes) > 12
    assert svg.count('class="edge"') == len(edges)
    for first in boxes:
        assert sum(abs(first[0] - x) < diagram.WIDE and abs(first[1] - y) < diagram.HIGH for x, y in boxes) == 1
    tops = dict(zip(nodes, (y for _, y in boxes), strict=True))
    assert all(tops[above] < tops[under] for above, under in edges)


def test_a_graph_that_cannot_be_drawn_is_refused():
    diagram = importlib.import_module("manual.diagram")
    with pytest.raises(ValueError, match="a cycle cannot be drawn: a --> b --> a"):
        diagram.drawn("graph TD\na --> b\nb --> a", "")
    with pytest.raises(ValueError, match="only lines"):
        diagram.drawn("graph TD\na ==> b", "")


def test_every_expression_of_the_catalogue_has_tex_with_balanced_braces():
    formulas = importlib.import_module("manual.formulas")
    for entry in noiseproof.list_losses():
        for expression in entry.expressions:
            text = formulas.tex(expression)
            assert text.count("{") == text.count("}")
            assert text.count(r"\left") == text.count(r"\right")
    assert formulas.tex("sum(abs(a * e - p)**q) - (0 if offset else (a - 1)**q)", {"offset": True}).endswith("^{q}")


def test_an_example_that_fails_stops_the_build(monkeypatch):
    catalogue = importlib.import_module("manual.catalogue")
    entry = noiseproof.losses.find_loss("ce")
    monkeypatch.setattr(entry.cls, "__doc__", ">>> 1 + 1\n3\n")
    with pytest.raises(ValueError, match="an example of ce fails"):
        catalogue.section(entry)


def test_a_link_to_a_test_that_is_not_there_is_found(tmp_path, monkeypatch):
    sources = importlib.import_module("manual.sources")
    (tmp_path / "page.md").write_text("[`test_nothing`](../tests/tools/test_manual.py)", encoding="utf-8")
    monkeypatch.setattr(sources, "DOCS", tmp_path)
    assert sources.missing_tests() == ["tests/tools/test_manual.py::test_nothing"]


@pytest.mark.slow
def test_the_public_names_of_every_part_are_described_once():
    names = importlib.import_module("manual.names")
    modules = [module for module in names.public_packages() if module != "noiseproof.functional"]
    pages = {module: names.with_docstrings(names.pages()[f"api/{module}.md"](), module) for module in modules}
    described = {module: re.findall(r"^\.\. auto\w+:: (\w+)$", text, re.MULTILINE) for module, text in pages.items()}
    described["noiseproof.sklearn"] = ["NoiseRobustClassifier"]
    shown = [name for found in described.values() for name in found]
    values = [getattr(importlib.import_module(module), name) for module, found in described.items() for name in found]
    assert {"L1", "audit_labels", "create_loss", "LabelNoise", "required_a", "Recipe", "NoiseRobustClassifier"} <= set(shown)
    assert len(shown) == len(values) == len({id(value) for value in values})
    assert not {entry.cls.__name__ for entry in noiseproof.list_losses()} & set(shown)
