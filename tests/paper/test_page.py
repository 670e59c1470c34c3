"""The HTML report: what it says, that records cannot inject, and that a browser shows it on a phone, a desk and paper."""

import copy
import html
import re
from pathlib import Path

import numpy as np
import pytest

from noiseproof import paper
from noiseproof.paper.agreement import join
from noiseproof.paper.answer import _chance, answer
from noiseproof.paper.groups import paper_groups
from noiseproof.paper.page import Embedding, paper_page
from noiseproof.report import read_records
from tests.helpers.records import of_own_data

RECORDS = Path(__file__).resolve().parents[2] / "records"
HOSTILE = "</title></text></code><script>alert(1)</script><img src=x onerror=alert(2)>\" onmouseover='alert(3)' x=\""


def run(cell_or_recipe, accuracy, seed=123, **changes):
    """A record as a finished run has it."""
    recipe = paper.recipe_of(cell_or_recipe, seed) if isinstance(cell_or_recipe, paper.Cell) else cell_or_recipe
    curve = [0.1 + (accuracy - 0.1) * epoch / 5 for epoch in range(1, 6)]
    return {
        "status": "finished",
        "result": {"test_accuracy": accuracy},
        "recipe": {**recipe.as_dict(), "precision": "bf16", "seed": seed, **changes},
        "task": {"classes": 10, "noise": {"rate": 0.4, "hash": "x"}},
        "environment": {"machine": "a machine", "torch": "2.9.0", "commit": "abc", "date": "2026-01-02"},
        "seconds": {"train": 60.0},
        "curve": {"test_accuracy": curve, "given_accuracy": curve},
        "weights": {"count": 3, "l1": 1.5, "l2": 1.25, "below": {"0.001": 0.5}},
        "confidence": {"5": {"right": [0] * 19 + [6], "wrong": [4] + [0] * 19}},
    }


def table(noise="symmetric", rate=0.4):
    return paper.cells(table="sym_asym", dataset="cifar10", noise=noise, rate=rate)


def of_loss(cells, loss):
    return next(cell for cell in cells if cell.loss == loss)


@pytest.fixture(scope="module")
def records():
    control = run(of_loss(table(), "CE"), 0.6, l1=5e-5, l2=0.0)
    asymmetric = run(of_loss(table("asymmetric"), "CE"), 0.7)
    kept = [RECORDS / "reproduction.jsonl", RECORDS / "faithfulness_h200.jsonl"]
    return [*read_records(*kept), run(of_loss(table(), "CE"), 0.58), control, asymmetric]


@pytest.fixture(scope="module")
def text(records):
    points = np.random.default_rng(0).normal(size=(40, 2))
    return paper_page(records, date="2026-01-02", embeddings=[Embedding("a run", points, np.arange(40) % 10)])


def test_runs_at_the_published_means_hold():
    cells = [cell for cell in table() if cell.quoted_from is None][:6]
    records = [run(cell, cell.mean / 100, seed) for cell in cells for seed in (123, 124, 125)]
    said = answer(join(paper.cells(), records).results)
    assert "hold in the" in said.headline
    assert said.trained == 425
    # Some of these cells are printed again in other tables, so more than six have runs.
    assert said.counts["agrees"] == said.different == 6 < said.measured
    assert "leaves 6 different results. Of these, 6 agree with the paper, 0 are above it and 0 below." in said.sentences[0]
    assert ", none of the 157 on CIFAR-100 or the 9 on WebVision or the 9 on ILSVRC12 or the 9 on" in said.sentences[0]
    assert any(
        "is +0.00 percentage points" in sentence or "is -0.00 percentage points" in sentence for sentence in said.sentences
    )


def test_runs_far_below_the_published_means_do_not_hold():
    cells = [cell for cell in (*table()[:3], *table("asymmetric")[:3]) if cell.quoted_from is None]
    noise = dict(zip((123, 124, 125), (-0.001, 0, 0.001), strict=True))
    records = [run(cell, cell.mean / 100 - 0.1 + noise[seed], seed) for cell in cells for seed in noise]
    said = answer(join(paper.cells(), records).results)
    assert "only in part" in said.headline
    assert said.counts["below"] == said.different
    assert any(
        "more results differ than chance explains and chance does not explain the mean difference" in sentence
        for sentence in said.sentences
    )
    assert any("is -10.00 percentage points" in sentence for sentence in said.sentences)


def test_one_cell_far_off_among_many_that_agree_is_named_and_the_paper_holds_only_in_part():
    cells = [cell for cell in table() if cell.quoted_from is None][:6]
    noise = dict(zip((123, 124, 125), (-0.001, 0, 0.001), strict=True))
    away = {cells[3]: 0.2}
    records = [run(cell, cell.mean / 100 - away.get(cell, 0) + noise[seed], seed) for cell in cells for seed in noise]
    said = answer(join(paper.cells(), records).results)
    assert "only in part" in said.headline
    named = next(sentence for sentence in said.sentences if sentence.startswith("Against it: after Holm's correction"))
    assert f"{cells[3].loss} at" in named
    assert "(-20.0)" in named
    assert named.count(" at ") == 1


def test_no_runs_of_the_paper_is_said():
    said = answer(join(paper.cells(), []).results)
    assert "None of the 425 cells" in said.headline
    assert said.measured == 0


def test_whether_jal_is_the_best_is_said_with_the_papers_own_answer():
    better, worse = of_loss(table(), "JAL-CE"), of_loss(table(), "CE")
    said = answer(join(paper.cells(), [run(better, 0.5), run(worse, 0.6)]).results)
    assert (
        "A JAL loss is the best in 0 of them. By the paper's numbers for the same losses, it is the best in 1."
        in said.sentences[-1]
    )


@pytest.mark.parametrize(("lead", "said"), [(0.1, "in 0 and behind it in 0."), (5.0, "in 1 and behind it in 0.")])
def test_a_noise_that_two_tables_have_counts_once_and_a_lead_that_seeds_make_is_not_called_one(lead, said):
    """Symmetric 0.4 is in the ablation, too, with the same runs of JAL; there AMSE, a part of it, is the best."""
    jal, other = of_loss(table(), "JAL-CE"), of_loss(table(), "CE")
    (part,) = paper.cells(table="ablation", noise="symmetric", rate=0.4, loss="AMSE")
    accuracies = {other: 0.8, jal: 0.8 + lead / 100, part: 0.9}
    sentence = answer(join(paper.cells(), [run(cell, value) for cell, value in accuracies.items()]).results).sentences[-1]
    assert sentence.startswith(
        "Noise settings with results of JAL and of other losses, each with its published decay: 1. A JAL loss is the best in 1 "
    )
    assert sentence.endswith(f"ahead of the best other loss by more than seeds explain {said}")


def test_what_three_seeds_cannot_tell_apart_is_said():
    """t(0.975, 4) = 2.776 times the spread times sqrt(2 / 3); the paper's own spreads at symmetric 0.8 are about 1 point."""
    column = [cell for cell in paper.cells() if (cell.dataset, cell.noise, cell.rate) == ("cifar10", "symmetric", 0.8)]
    cell = of_loss(column, "JAL-CE")
    said = answer(join(paper.cells(), [run(cell, cell.mean / 100)]).results)
    (sentence,) = [text for text in said.sentences if "Seeds vary most" in text]
    spread, least = map(float, re.findall(r"(\d+\.\d) points", sentence))
    assert "symmetric 0.8 on CIFAR-10" in sentence
    assert 0.5 < spread < 2
    assert least == pytest.approx(2.776 * spread * (2 / 3) ** 0.5, abs=0.15)


def test_runs_on_peoples_labels_alone_are_told_of_by_the_labels_name():
    cell = of_loss(paper.cells(table="human", dataset="cifar10", rate="worst"), "JAL-CE")
    said = answer(join(paper.cells(), [run(cell, cell.mean / 100)]).results)
    assert any("Seeds vary most at human worst on CIFAR-10" in text for text in said.sentences)


def test_the_number_that_chance_explains_is_the_binomial_quantile():
    # Binomial(20, 0.05): P(X <= 2) = 0.9245, P(X <= 3) = 0.9841
    assert _chance(20) == 3
    assert _chance(0) == 0


def test_every_number_of_ours_leads_to_its_record(records, text):
    results = join(paper.cells(), records).results
    measured = [result for result in results if result.sample is not None]
    assert measured
    tables = text[text.index('id="tables"') : text.index('id="curves"')]
    links = re.findall(r'<a href="#(run-\w+)">([\d.]+)', tables)
    assert len(links) == len(measured)
    for anchor, mean in links:
        article = text[text.index(f'id="{anchor}"') :].partition("</article>")[0]
        assert mean in html.unescape(article)
        assert "noiseproof train" in article


def test_a_record_is_shown_with_its_seed_machine_and_command(text):
    shown = html.unescape(re.sub(r"</?span>", "", text))
    assert "noiseproof train cifar10/jal-ce --noise symmetric:0.8 --seed 123 --set precision=bf16 --data DIR" in shown
    assert (
        "noiseproof train cifar10/ce --noise symmetric:0.4 --seed 123 --set l1=5e-05 --set l2=0 --set precision=bf16" in shown
    )
    for fact in ("NVIDIA H200", "2.11.0+cu130", "782c5c5de509", "2026-11-16"):
        assert fact in shown


def test_the_accuracy_on_ilsvrc12_is_in_the_record_of_webvisions_run():
    cell = paper.cells(table="real_world", dataset="ilsvrc12", loss="CE")[0]
    record = run(cell, 0.7)
    record["result"]["ilsvrc12_accuracy"] = 0.6125
    shown = paper_page([record], date="")
    assert shown.count(">61.25</a>") == 1
    assert "70.00, ilsvrc12 61.25" in shown


def test_losses_under_another_decay_fill_the_control(text):
    section = text[text.index('id="decay"') : text.index('id="weights"')]
    assert "CE, L1 5e-05<" in section
    assert "CE, L2 0.0001 (the paper&#39;s)<" in section
    empty = paper_page([run(of_loss(table(), "CE"), 0.6)], date="")
    assert "No run has another decay" in empty


def test_a_run_that_diverged_is_shown_with_its_reason_and_changes_no_curve():
    whole = [run(of_loss(table(), "CE"), 0.6, seed) for seed in (124, 125)]
    lost = {**run(of_loss(table(), "CE"), 0.1, 123), "status": "diverged", "message": "the loss is nan", "result": {}}
    lost["curve"] = {"test_accuracy": [0.1]}
    other = {**run(of_loss(table(), "GCE"), 0.1, 123), "status": "diverged", "message": "too large", "result": {}}
    text = paper_page([lost, *whole, other], date="2026-01-02")
    assert text.count("✕</b> 1 diverged") == 2
    assert "60.00 ± 0.00 % over 2 seeds, seed 123 diverged, bf16" in text
    assert "No result, seed 123 diverged, bf16" in text
    assert "Seed 123: the loss is nan." in text
    assert "Seed 123: too large." in text
    assert "<dt>runs</dt><dd>4, 2 diverged</dd>" in text
    assert paper_groups([lost, *whole], [], "bf16")[0].curve("test_accuracy") == pytest.approx([20, 30, 40, 50, 60])


def test_the_time_of_a_device_is_shared_by_the_runs_that_were_on_it_at_once():
    one = run(of_loss(table(), "CE"), 0.6)
    one["seconds"], one["environment"] = {"train": 3600.0}, {**one["environment"], "at_once": 6}
    other = {**run(of_loss(table(), "CE"), 0.6, 124), "seconds": {"train": 3600.0}, "at_once": 2}
    text = paper_page([one, other], date="2026-01-02")
    assert "<dt>device time</dt><dd>0.7 hours</dd>" in text
    assert "3600 (6 at once)" in text


def test_text_in_records_cannot_become_markup(records):
    evil = run(of_loss(table(), "CE"), 0.5)
    evil["recipe"] |= {"loss": HOSTILE, "dataset": HOSTILE, "noise": HOSTILE, "precision": HOSTILE}
    evil["environment"] = dict.fromkeys(("machine", "torch", "commit", "date"), HOSTILE)
    evil |= {"status": HOSTILE, "loss": HOSTILE, "at_once": HOSTILE}
    evil["weights"] = {"count": HOSTILE, "l1": HOSTILE, "below": {HOSTILE: HOSTILE}}
    shown = paper_page([*records, evil], date=HOSTILE, sources=[HOSTILE])
    assert "<script" not in shown
    assert "<img" not in shown
    assert not re.search(r"<[^>]*\sonmouseover=", re.sub(r'"[^"]*"', '""', shown))


@pytest.mark.parametrize(
    "broken",
    [
        {"environment": None, "task": None, "seconds": 3, "weights": [], "confidence": 7},
        {"curve": {"test_accuracy": "abc", "given_accuracy": [None, "x", 0.5]}},
        {"confidence": {"5": {"right": [1, 2]}, "x": 3, "6": 4}},
        {"recipe": {"loss": 3, "noise": None, "seed": "a"}, "result": {}},
        {"weights": {"below": 3}, "at_once": None},
    ],
)
def test_a_record_with_other_fields_than_ours_is_shown_as_far_as_it_goes(broken):
    record = {**run(of_loss(table(), "CE"), 0.5), **broken}
    assert 'id="run-' in paper_page([record], date="")


def test_the_same_records_give_the_same_page(records, text):
    points = np.random.default_rng(0).normal(size=(40, 2))
    assert paper_page(records, date="2026-01-02", embeddings=[Embedding("a run", points, np.arange(40) % 10)]) == text


def test_the_weakest_class_and_the_warnings_of_a_run_are_shown():
    record = run(of_loss(table(), "CE"), 0.5)
    record["result"]["accuracy_by_class"] = [0.9, None, 0.25]
    record["warnings"] = ["never predicted: class 5", 3]
    text = paper_page([record], date="2026-01-02")
    assert "<small>class 2: 25.00</small>" in text
    assert "never predicted: class 5.</p>" in text
    record["result"]["accuracy_by_class"] = record["warnings"] = "odd"
    assert "<small>class" not in paper_page([record], date="2026-01-02")


def test_seeds_are_averaged_and_settings_are_kept_apart():
    cell = of_loss(table(), "JAL-CE")
    records = [run(cell, 0.5, 1), run(cell, 0.7, 2), run(cell, 0.4, 1, l1=0.0), run(cell, 0.3, 1, precision="tf32")]
    groups = paper_groups(records, join(paper.cells(), records).results, "bf16")
    assert sorted((group.name, len(group.records)) for group in groups) == [
        ("JAL-CE", 2),
        ("JAL-CE l1=0", 1),
        ("JAL-CE tf32", 1),
    ]
    two = next(group for group in groups if len(group.records) == 2)
    assert two.curve("test_accuracy")[-1] == pytest.approx(60)


def test_beside_runs_of_the_paper_other_data_have_a_section_of_their_own():
    other = [*of_own_data("ce", [0.5]), *of_own_data("ce", [0.5], dataset="digits")]
    shown = paper_page([run(of_loss(table(), "CE"), 0.6), *other], date="")
    assert "The paper&#39;s numbers hold" in shown
    assert shown.index('id="tables"') < shown.index('id="own"')
    section = shown[shown.index('id="own"') : shown.index('id="curves"')]
    assert "<h3>mine.csv, labels as given</h3>" in section
    assert "<h3>Digits, clean</h3>" in section


# In a browser


@pytest.fixture(scope="module")
def file(text, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture
def opened(browser, file):
    """Open the page as a reader has it; requests beyond the file are aborted and collected."""
    contexts = []

    def open_page(width, scripts=False, **options):
        context = browser.new_context(viewport={"width": width, "height": 844}, java_script_enabled=scripts, **options)
        contexts.append(context)
        shown = context.new_page()
        shown.asked = []
        shown.route("**/*", lambda route: route.continue_() if route.request.url == file.as_uri() else route.abort())
        shown.on("request", lambda request: shown.asked.append(request.url))
        shown.goto(file.as_uri())
        return shown

    yield open_page
    for context in contexts:
        context.close()


def fits(shown):
    return shown.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("scripts", [False, True])
@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_fits_and_asks_for_nothing(opened, file, width, scripts):
    shown = opened(width, scripts)
    assert fits(shown)
    assert shown.asked == [file.as_uri()]
    assert shown.locator("h1").is_visible()


def test_every_table_chart_and_link_target_is_there(opened, records):
    shown = opened(1280)
    views = {(result.cell.table, result.cell.dataset) for result in join(paper.cells(), records).results}
    assert shown.locator("#tables table").count() == len(views)
    for section in ("curves", "confidence", "features", "noise"):
        figures = shown.locator(f"#{section} figure")
        assert figures.count() > 0, section
        for i in range(figures.count()):
            box = figures.nth(i).locator("svg").bounding_box()
            assert box["width"] > 100, section
            assert box["height"] > 60, section
    dead = "[...document.querySelectorAll('a')].filter(a => !document.getElementById(a.getAttribute('href').slice(1))).length"
    assert shown.evaluate(dead) == 0
    twice = "(ids => ids.length - new Set(ids).size)([...document.querySelectorAll('[id]')].map(e => e.id))"
    assert shown.evaluate(twice) == 0


def test_a_number_leads_to_its_record_without_scripts(opened):
    shown = opened(390)
    link = shown.locator("#tables td a").first
    anchor = link.get_attribute("href")
    link.click()
    shown.wait_for_timeout(200)
    top = shown.locator(anchor).bounding_box()["y"]
    assert -10 <= top <= 844


def test_wide_tables_scroll_in_their_own_box(opened):
    shown = opened(390)
    inside = "(box => box.scrollWidth > box.clientWidth && box.clientWidth <= innerWidth)(document.querySelector('.scroll'))"
    assert shown.evaluate(inside)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_is_readable_in_light_and_dark(opened, scheme):
    shown = opened(390, color_scheme=scheme)
    color, ground = (
        [int(part) for part in re.findall(r"\d+", shown.evaluate(f"getComputedStyle(document.body).{name}"))[:3]]
        for name in ("color", "backgroundColor")
    )
    assert (sum(ground) > sum(color)) == (scheme == "light")
    assert contrast(color, ground) > 7
    for kind in ("agrees", "above", "below", "quiet"):
        found = shown.locator(f".{kind}" if kind == "quiet" else f"td.{kind} a").first
        ink = [int(p) for p in re.findall(r"\d+", found.evaluate("e => getComputedStyle(e).color"))[:3]]
        under = found.evaluate("e => getComputedStyle(e.closest('td.above, td.below') || document.body).backgroundColor")
        assert contrast(ink, [int(p) for p in re.findall(r"\d+", under)[:3]]) > 4.5, kind


def contrast(one, two):
    """As WCAG defines it."""

    def luminance(color):
        parts = [c / 255 / 12.92 if c / 255 <= 0.03928 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in color]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    high, low = sorted((luminance(one), luminance(two)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_on_paper_nothing_is_cut_off_and_the_ground_is_white(opened):
    shown = opened(703, color_scheme="dark")  # A4 less margins
    shown.emulate_media(media="print")
    assert fits(shown)
    assert shown.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    cut = "[...document.querySelectorAll('.scroll')].filter(box => box.offsetParent && box.scrollWidth > innerWidth).length"
    assert shown.evaluate(cut) == 0
    assert shown.locator("#tables table").first.is_visible()


def test_hostile_records_do_nothing_in_a_browser(browser, tmp_path):
    evil = copy.deepcopy(run(of_loss(table(), "CE"), 0.5))
    evil["recipe"] |= {"loss": HOSTILE, "dataset": HOSTILE, "noise": HOSTILE}
    file = tmp_path / "evil.html"
    file.write_text(paper_page([evil], date=HOSTILE), encoding="utf-8")
    context = browser.new_context(viewport={"width": 390, "height": 844})
    shown = context.new_page()
    alarms = []
    shown.on("dialog", lambda dialog: (alarms.append(dialog.message), dialog.dismiss()))
    shown.goto(file.as_uri())
    assert shown.evaluate("document.scripts.length + document.images.length") == 0
    assert fits(shown)
    assert alarms == []
    context.close()
