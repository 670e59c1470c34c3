"""The page of an audit: what it says, that names cannot inject, and that it works in a browser, with and without scripts."""

import dataclasses
import re

import numpy as np
import pytest

from noiseproof.audit import Audit
from noiseproof.audit.decisions import read_decisions
from noiseproof.data import Dataset, Split, from_arrays
from noiseproof.report.audit_page import MAX_THUMBNAIL_BYTES, audit_page

CLASSES = ("cat", "dog", "=cow()")
HOSTILE = "</title></option></script><script>alert(1)</script><img src=x onerror=alert(2)>\" onmouseover='alert(3)' x=\""


def made(rows=60, classes=CLASSES, wrong=0.2, **more):
    """Every fifth label is wrong and known to be: class k is given as the next one."""
    generator = np.random.default_rng(0)
    number = len(classes)
    true = np.arange(rows) % number
    given = np.where(np.arange(rows) % 5 < 5 * wrong, (true + 1) % number, true)
    posterior = np.full((rows, number), 0.1 / (number - 1), np.float32)
    posterior[np.arange(rows), true] = 0.9
    posterior += generator.uniform(0, 0.01, posterior.shape).astype(np.float32)
    posterior /= posterior.sum(1, keepdims=True)
    transition = np.full((number, number), 0.2 / (number - 1))
    np.fill_diagonal(transition, 0.8)
    rate = 1 - float(posterior[np.arange(rows), given].mean())
    return Audit(given, posterior, transition, rate, (rate - 0.05, rate + 0.05), 0.8, tuple(classes), "by hand", **more)


def images(rows=60, side=12, classes=CLASSES):
    pixels = np.random.default_rng(1).integers(0, 256, (rows, side, side, 3), dtype=np.uint8)
    return Dataset("pictures", Split(pixels, np.zeros(rows, np.int64)), None, tuple(classes))


@pytest.fixture(scope="module")
def audit():
    return made()


@pytest.fixture(scope="module")
def text(audit):
    commands = {"Train:": "noiseproof train jal-ce --data my.npz --labels audit/posterior.npz"}
    paths = [f"=folder/{k:03}.png" for k in range(60)]
    return audit_page(audit, images(), paths=paths, title="my data", commands=commands, facts={"data": "my.npz"}, made="today")


def test_the_verdict_says_how_noisy_how_sure_and_where_to_look(audit):
    said = audit.summary()
    assert re.fullmatch(r"About \d\d\.\d % of the 60 labels are wrong", said.headline)
    assert said.sentences[0].endswith("12 labels are flagged, more likely wrong than right.")
    assert "Predictions (out of sample) agree with 80.0 % of the labels, perfect ones would with" in said.sentences[1]
    assert "cat labelled as dog (" in said.sentences[2]
    assert "Look first at the labels" in said.sentences[3]


@pytest.mark.parametrize(("agreement", "rate", "weak"), [(0.742, 0.107, True), (0.555, 0.375, False), (0.35, 0.6, True)])
def test_a_rate_by_weak_predictions_is_called_a_bound(agreement, rate, weak):
    """Of digits: eight pixels of clean ones, all pixels with 40 % of pairs confused; and predictions that miss most."""
    audit = dataclasses.replace(made(), agreement=agreement, rate=rate)
    assert audit.weak is weak
    assert audit.summary().headline.startswith("At most about" if weak else "About")
    assert any("they are weak" in text for text in audit.warnings) is weak
    tile = f"<li><b>{100 * rate:.1f} %</b>{'perhaps ' if weak else ''}wrong, "  # the end of the interval is the bound
    assert tile in audit_page(audit)


@pytest.mark.parametrize("classes", [10, 30, 50])
def test_no_confusion_stands_out_where_wrong_labels_are_spread_evenly(classes):
    """The largest of many counts is several times their mean by chance; below 2 % that one is taken to stand out."""
    generator = np.random.default_rng(classes)
    true = generator.integers(classes, size=40 * classes)
    given = np.where(generator.random(len(true)) < 0.3, (true + generator.integers(1, classes, size=len(true))) % classes, true)
    rate = float((given != true).mean())
    posterior = np.eye(classes, dtype=np.float32)[true]
    names = tuple(map(str, range(classes)))
    audit = Audit(given, posterior, np.eye(classes), rate, (rate, rate), 1 - rate, names, "by hand")
    assert audit.summary().sentences[2].startswith("No confusion stands out; most often: ")


def test_a_row_of_the_matrix_that_is_not_estimated_is_not_shown_as_numbers():
    posterior = np.tile(np.array([[0.9, 0.1, 0], [0.1, 0.9, 0]], np.float32), (50, 1))
    audit = Audit(np.arange(100) % 2, posterior, np.full((3, 3), 1 / 3), 0.1, (0.0, 0.2), 0.9, ("a", "b", "c"), "by hand")
    page = audit_page(audit)
    assert '<th scope="row">c</th><td class="none quiet" colspan="3">not estimated: hardly any example' in page
    assert page.count("33.3</td>") == 6
    assert "⚠ no example has this label; hardly any example seems to be of it; its row of the matrix is the mean rate" in page


def test_weak_predictions_that_find_nothing_do_not_call_labels_clean():
    audit = dataclasses.replace(made(), agreement=0.6, rate=0.001)
    assert audit.summary().headline == "Predictions are too weak to say which of the 60 labels are wrong"
    assert audit.warnings[0].endswith("they are so weak that nothing is known of any label")


def test_of_two_classes_a_confusion_stands_out_if_it_has_most_of_the_wrong_labels():
    """20 of 100 labels are wrong, each surely; of class 0 all or half of them."""
    for flipped, stands in ((range(0, 40, 2), True), (range(20), False)):
        given = np.arange(100) % 2
        posterior = np.eye(2, dtype=np.float32)[np.where(np.isin(np.arange(100), flipped), 1 - given, given)]
        audit = Audit(given, posterior, np.eye(2), 0.2, (0.1, 0.3), 0.8, ("a", "b"), "by hand")
        assert (
            audit.summary().sentences[2].startswith("Most often: b labelled as a (20)" if stands else "No confusion stands out")
        )


def test_clean_labels_are_called_clean():
    posterior = np.tile(np.array([[0.9995, 0.0005], [0.0005, 0.9995]], np.float32), (50, 1))
    audit = Audit(np.arange(100) % 2, posterior, np.eye(2), 0.0005, (0.0, 0.002), 0.99, ("a", "b"), "by hand")
    assert audit.summary().headline == "Hardly any of the 100 labels looks wrong: under 0.1 %"
    assert "No label is more likely wrong than right. These come nearest to it." in audit_page(audit)


def test_most_of_a_class_flagged_is_no_reason_to_remove():
    posterior = np.array([[0.9, 0.1]] * 40 + [[0.8, 0.2]] * 6 + [[0.1, 0.9]] * 4, np.float32)
    audit = Audit(np.array([0] * 40 + [1] * 10), posterior, np.eye(2), 0.1, (0.0, 0.2), 0.9, ("common", "rare"), "by hand")
    page = audit_page(audit)
    assert page.count("most labels rare are flagged: look before you remove") == 6
    assert "6 of its 10 labels are flagged: look at them before any is removed" in page
    assert "A flag is a reason to look, not to delete." in page


def test_the_way_it_was_computed_is_said():
    assert "The predictions are out of sample" in audit_page(made())
    assert "The predictions are in sample" in audit_page(made(out_of_sample=False))


def test_sentences_stand_apart(text):
    """A template engine that drops the line break after a block joins two of them."""
    prose = re.sub(r"<(script|style)\b.*?</\1>", "", text, flags=re.DOTALL)
    assert "mean.</p>" in prose
    assert not re.findall(r"[a-z]\.[A-Z]\w*", prose)


def test_the_page_stays_small():
    """Of noise, which cannot be packed: 200 thumbnails of 96 pixels would be 200 times some 7 KB."""
    many = made(6_000, wrong=0.4)
    large = audit_page(many, images(6_000, 64), shown=1000)
    assert large.count("<li data-index") == 1000
    assert 100 < large.count("data:image/jpeg") < 1000
    assert len(large) < MAX_THUMBNAIL_BYTES + 1_500_000
    assert audit_page(many, images(6_000, 12)).count("<li data-index") == 200


def test_features_are_shown_by_name():
    rows = from_arrays(np.arange(240.0).reshape(60, 4), np.zeros(60, int))
    named = Dataset("t", rows.train, None, CLASSES, columns=("age", "<b>", "size", "z"))
    page = audit_page(made(), named)
    assert "<span>age 20</span>, <span>&lt;b&gt; 21</span>" in page
    assert "data:image" not in page


@pytest.mark.parametrize(("classes", "table", "chart"), [(20, True, False), (30, False, True), (150, False, False)])
def test_the_matrix_is_a_table_a_picture_or_a_file(classes, table, chart):
    page = audit_page(made(900, [f"class {k}" for k in range(classes)]))
    assert ('aria-label="Transition matrix" tabindex' in page, "<svg" in page) == (table, chart)
    assert ("is in transition.csv" in page) == (classes > 100)


def test_names_cannot_become_markup():
    classes = (HOSTILE, "b\u202e\x00b", "c")
    audit = made(classes=classes)
    page = audit_page(
        audit, images(classes=classes), paths=[HOSTILE] * 60, title=HOSTILE, facts={HOSTILE: HOSTILE}, commands={"x": HOSTILE}
    )
    assert page.count("<script") == page.count("</script>") == 1
    assert not re.search(r"<img src=x|<[^>]*\sonmouseover=", re.sub(r'"[^"]*"', '""', page))
    assert "\u202e" not in page
    assert "\x00" not in page
    assert "b\\u202e\\x00b" in page


# In a browser


@pytest.fixture(scope="module")
def file(text, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "audit.html"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture
def opened(browser, file):
    """Open a page as a reader has it; what it asks for beyond the file, and its errors, are collected."""
    contexts = []

    def open_page(width=1280, scripts=True, at=file, prepare="", **options):
        context = browser.new_context(viewport={"width": width, "height": 844}, java_script_enabled=scripts, **options)
        contexts.append(context)
        shown = context.new_page()
        shown.asked, shown.faults = [], []
        shown.on("request", lambda request: request.url.startswith("data:") or shown.asked.append(request.url))
        shown.on("pageerror", lambda error: shown.faults.append(str(error)))
        shown.on("console", lambda message: message.type == "error" and shown.faults.append(message.text))
        shown.on("dialog", lambda dialog: dialog.accept())
        if prepare:
            shown.add_init_script(prepare)
        shown.goto(at.as_uri())
        return shown

    yield open_page
    for context in contexts:
        context.close()


def cards(shown):
    return shown.locator("#suspects > li:visible")


@pytest.mark.parametrize(("width", "scripts"), [(390, True), (390, False), (1280, True), (1280, False)])
def test_it_fits_shows_its_pictures_and_asks_for_nothing(opened, file, width, scripts):
    shown = opened(width, scripts)
    assert shown.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert shown.evaluate("[...document.images].filter(image => image.complete && image.naturalWidth > 0).length") == 12
    assert cards(shown).count() == 12
    assert shown.locator("#tools").is_visible() == scripts
    assert shown.locator("fieldset").first.is_visible() == scripts
    assert shown.locator("noscript").is_visible() != scripts
    assert shown.asked == [file.as_uri()]
    assert shown.faults == []


def test_a_filter_shows_one_confusion(opened, audit):
    shown = opened()
    chosen = int(((audit.given == 1) & (audit.suggested == 0)).sum())
    shown.select_option("#pair", "1-0")
    assert cards(shown).count() == chosen
    assert shown.locator("#count").inner_text() == f"{chosen} shown, 0 decided"
    shown.select_option("#pair", "")
    assert cards(shown).count() == 12


def exported(shown, tmp_path):
    with shown.expect_download() as download:
        shown.click("#export")
    path = tmp_path / download.value.suggested_filename
    download.value.save_as(path)
    return path


def test_decisions_are_exported_kept_over_a_reload_and_come_back(opened, audit, tmp_path):
    shown = opened(390)
    for place, decision in enumerate(("keep", "drop", "relabel")):
        cards(shown).nth(place).get_by_label(decision).check()
    other = cards(shown).nth(3)
    other.get_by_role("combobox").focus()
    other.get_by_role("combobox").select_option("=cow()")  # which means relabel
    assert shown.locator("#count").inner_text() == "12 shown, 4 decided"
    shown.reload()
    assert shown.locator("#count").inner_text() == "12 shown, 4 decided"
    shown.select_option("#state", "undecided")
    assert cards(shown).count() == 8
    path = exported(shown, tmp_path)
    assert path.name == "decisions.csv"
    assert ",'=folder/" in path.read_text(encoding="utf-8")
    found = read_decisions(path, audit.given, CLASSES)
    order = [int(card.get_attribute("data-index")) for card in shown.locator("#suspects > li").all()]
    expected = audit.given.copy()
    expected[order[2]], expected[order[3]] = audit.suggested[order[2]], 2
    assert found.labels.tolist() == expected.tolist()
    assert np.flatnonzero(~found.kept).tolist() == [order[1]]
    assert found.counts == {"keep": 1, "relabel": 2, "drop": 1}
    shown.click("#forget")
    assert shown.locator("#count").inner_text() == "12 shown, 0 decided"
    assert shown.faults == []


def test_without_storage_it_works_until_a_reload(opened, audit, tmp_path):
    refuse = "Object.defineProperty(window, 'localStorage', { get() { throw new Error('denied'); } });"
    shown = opened(prepare=refuse)
    cards(shown).first.get_by_label("drop").check()
    assert not read_decisions(exported(shown, tmp_path), audit.given, CLASSES).kept.all()
    assert shown.faults == []


def test_what_was_stored_is_not_trusted(opened, file):
    shown = opened()
    key = "noiseproof-audit-" + shown.locator("#suspects").get_attribute("data-key")
    index = cards(shown).first.get_attribute("data-index")
    for stored in ("[", "3", "null", f'{{"{index}": {{"decision": "sell", "label": "9"}}, "x": null}}'):
        shown.evaluate("([key, stored]) => localStorage.setItem(key, stored)", [key, stored])
        shown.reload()
        assert shown.locator("#count").inner_text() == "12 shown, 0 decided"
    assert shown.faults == []


def test_on_paper_the_tools_are_gone_and_nothing_is_cut_off(opened):
    shown = opened(703, color_scheme="dark")  # A4 less margins
    shown.emulate_media(media="print")
    assert shown.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert not shown.locator("#tools").is_visible()
    assert not shown.locator("fieldset").first.is_visible()
    assert cards(shown).count() == 12
    assert shown.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


def test_hostile_names_do_nothing_in_a_browser(opened, tmp_path):
    classes = (HOSTILE, "x" * 3000, "c")
    path = tmp_path / "evil.html"
    path.write_text(
        audit_page(made(classes=classes), images(classes=classes), paths=[HOSTILE + "y" * 900] * 60, title=HOSTILE),
        encoding="utf-8",
    )
    shown = opened(390, at=path)
    assert shown.evaluate("document.scripts.length") == 1
    assert shown.evaluate("document.querySelectorAll('[onmouseover], [onerror]').length") == 0
    assert shown.evaluate("document.documentElement.scrollWidth <= innerWidth")
    cards(shown).first.get_by_label("relabel").check()
    found = read_decisions(exported(shown, tmp_path), made(classes=classes).given, classes)
    assert found.counts["relabel"] == 1
    assert shown.faults == []
