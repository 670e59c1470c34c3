"""The page of a fitted model: what it says, that names cannot inject, and that it fits a phone."""

import json
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import noiseproof
from noiseproof.audit.scores import Estimate
from noiseproof.fitting.run import training_data
from noiseproof.report.fit_page import accuracies, fit_page, write_fit

HOSTILE = "</title></option></script><script>alert(1)</script><img src=x onerror=alert(2)>\" onmouseover='alert(3)' x=\""


def fitted(names=("no", "yes"), wrong=0.2):
    g = np.random.default_rng(0)
    right = g.integers(2, size=120)
    given = np.where(g.random(120) < wrong, 1 - right, right)
    columns = {"age": 40 + 9 * right + 3 * g.normal(size=120), HOSTILE: g.normal(size=120), "y": np.array(names)[given]}
    dataset = training_data(pd.DataFrame(columns), label="y")
    return noiseproof.fit(dataset, learners=["logistic-0.01", "neighbours-40"]), dataset


@pytest.fixture(scope="module")
def made():
    return fitted()


@pytest.fixture(scope="module")
def text(made):
    return fit_page(*made, commands={"To predict:": "noiseproof predict model --data NEW --out p.csv"}, made="today")


def test_the_page_has_the_verdict_the_leaderboard_and_the_suspicious_labels(made, text):
    model, _ = made
    for line in model.leaderboard:
        assert f'<th scope="row">{line.name}</th>' in text
        assert f"{100 * line.accuracy.value:.1f}" in text
    assert f"{100 * model.verdict.rate.value:.1f} %" in text
    assert ("the model gains" in text) == model.verdict.gains
    rows = json.loads(re.search(r'<div id="data" hidden>(.*?)</div>', text)[1])["rows"]
    assert len(rows) == model.verdict.flagged
    assert rows[0][0] == model.verdict.first[0]


def test_the_page_needs_no_network(text):
    assert not re.search(r"(src|href)=.(https?:)?//", text)
    assert "default-src 'none'" in text


def test_clean_labels_get_a_page_that_says_so():
    model, dataset = fitted(wrong=0.0)
    page = fit_page(model, dataset)
    assert not model.verdict.noisy
    assert f"<h1>{model.verdict.headline}.</h1>" in page
    assert "of the labels are wrong" not in page
    none = replace(model, verdict=replace(model.verdict, rate=Estimate(0.0, 0.0, 0.02), flagged=0))
    assert "<h1>Nothing speaks for wrong labels.</h1>" in fit_page(none, dataset)


def test_with_a_test_split_both_numbers_at_the_top_are_measured(made):
    model, dataset = made
    verdict = model.verdict
    lines = [replace(line, test_accuracy=share) for line, share in ((verdict.model, 0.913), (verdict.plain, 0.847))]
    page = fit_page(replace(model, verdict=replace(verdict, model=lines[0], plain=lines[1])), dataset)
    assert "<b>91.3 %</b>accuracy on the test set" in page
    assert "<b>84.7 %</b>plain training on the test set" in page


def test_names_cannot_inject():
    page = fit_page(*fitted((HOSTILE, "=cow()")))
    assert "<script>alert" not in page
    assert "<img src=x" not in page
    assert page.count("<script>") == 1


def test_the_chart_draws_a_line_for_each_learner(made):
    model, _ = made
    chart = accuracies(model.leaderboard, 0.9)
    assert chart.count("<circle") == len(model.leaderboard)
    assert 'class="ref"' in chart
    assert 'class="ref"' not in accuracies(model.leaderboard, None)


def test_the_files_of_the_audit_are_written_beside_the_model(made, tmp_path):
    model, dataset = made
    model.save(tmp_path)
    write_fit(model, dataset, tmp_path, place="my data.csv")
    assert "noiseproof predict" in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert (tmp_path / "audit.csv").read_text(encoding="utf-8").count("\n") == 121


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_screen_and_a_phone(browser, text, tmp_path, width, scheme):
    (tmp_path / "report.html").write_text(text, encoding="utf-8")
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page, said = context.new_page(), []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(f"file://{tmp_path}/report.html")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator(".decide").first.is_visible()
    assert said == []
    context.close()
