"""The page of an audit: what it says, that names cannot inject, and that it works in a browser, with and without scripts."""

import dataclasses
import json
import re

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from noiseproof.audit import Audit
from noiseproof.audit.decisions import read_decisions
from noiseproof.data import Dataset, Split, from_arrays, open_dataset
from noiseproof.report.audit_page import FIRST_PAGE, MAX_COMPARED, MAX_CONTENT_BYTES, audit_page, write_audit

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


def data_of(page):
    """The examples as the page's script reads them."""
    return json.loads(re.search(r'<div id="data" hidden>(.*?)</div>', page)[1])


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
    assert "Out-of-sample predictions agree with 80.0 % of the labels. Perfect ones would agree with" in said.sentences[1]
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
    audit = dataclasses.replace(made(), agreement=0.6, rate=0.001, rate_interval=(0.0, 0.38))
    assert "Perfect ones would agree with 62.0 % to 100.0 %; the wider" in audit.summary().sentences[1]
    assert "perfect ones would with 62% to 100%: " in audit.warnings[0]
    assert audit.summary().headline == "Predictions are too weak to say which of the 60 labels are wrong"
    assert "they cannot tell wrong labels from hard examples, and up to" in audit.warnings[0]


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
    page = audit_page(audit)
    assert "No label is more likely wrong than right. These are closest to it." in page
    assert len(data_of(page)["rows"]) == 10


def test_most_of_a_class_flagged_is_no_reason_to_remove():
    posterior = np.array([[0.9, 0.1]] * 40 + [[0.8, 0.2]] * 6 + [[0.1, 0.9]] * 4, np.float32)
    audit = Audit(np.array([0] * 40 + [1] * 10), posterior, np.eye(2), 0.1, (0.0, 0.2), 0.9, ("common", "rare"), "by hand")
    page = audit_page(audit)
    assert data_of(page)["careful"] == [False, True]
    assert "6 of its 10 labels are flagged: look at them before you remove any" in page
    assert "A flag is a reason to look, not to delete." in page


def test_the_way_it_was_computed_is_said():
    assert "The predictions are out of sample" in audit_page(made())
    assert "The predictions are in sample" in audit_page(made(out_of_sample=False))


def test_sentences_stand_apart(text):
    """A template engine that drops the line break after a block joins two of them."""
    prose = re.sub(r"<(script|style)\b.*?</\1>", "", text, flags=re.DOTALL)
    assert "the mean of P(wrong).</p>" in prose
    assert not re.findall(r"[a-z]\.[A-Z]\w*", prose)


def test_the_page_stays_small():
    """Of noise, which cannot be packed, 64 pixels wide: all 2,400 flagged labels are there, and pictures while they fit."""
    page = audit_page(made(6_000, wrong=0.4), images(6_000, 64))
    data = data_of(page)
    pictures = [found[0] for found in data["contents"].values()]
    assert len(data["rows"]) == 2_400
    assert 100 < len(pictures) < 2_400
    assert sum(map(len, pictures)) < MAX_CONTENT_BYTES + 10_000
    assert len(page) < MAX_CONTENT_BYTES + 1_000_000
    described = sum(str(row[0]) in data["contents"] for row in data["rows"])
    assert f"it contains pictures of only {described:,} of them: the likeliest and the most uncertain." in page
    assert len(data_of(audit_page(made(6_000, wrong=0.4), shown=5))["rows"]) == 5


def test_large_photographs_are_decoded_up_to_a_number_of_pixels(monkeypatch):
    monkeypatch.setattr("noiseproof.report.audit_page.MAX_PIXELS_READ", 10 * 64 * 64)
    data = data_of(audit_page(made(600, wrong=0.4), images(600, 64)))
    assert len(data["contents"]) == 11
    assert len(data["rows"]) == 240


def test_pictures_are_of_the_likeliest_and_of_the_most_uncertain():
    data = data_of(audit_page(made(6_000, wrong=0.4), images(6_000, 64)))
    by_certainty = sorted(data["rows"], key=lambda row: row[4])
    for row in (*data["rows"][:20], *by_certainty[:20]):
        assert str(row[0]) in data["contents"]


def test_features_are_shown_by_name():
    rows = from_arrays(np.arange(240.0).reshape(60, 4), np.zeros(60, int))
    named = Dataset("t", rows.train, None, CLASSES, columns=("age", "<b>", "size", "z"))
    page = audit_page(made(), named)
    assert "<span>age 20</span>, <span>&lt;b&gt; 21</span>" in page
    assert "data:image" not in page


def test_a_row_of_a_table_is_shown_as_people_read_it():
    frame = pd.DataFrame({"id": [f"c{k}" for k in range(60)], "income": 1000.5 * np.arange(60), "e": np.nan})
    frame["signed"] = (pd.Timestamp("2024-01-31") + pd.to_timedelta(np.arange(60), unit="D")).strftime("%Y-%m-%d")
    frame["comment"] = [f"it\n  broke after {k} days and {'x' * 900}" for k in range(60)]
    frame["e"] = frame["e"].where(np.arange(60) % 2 == 0, 3.0)
    frame["label"] = np.array(CLASSES)[made().given]
    data = data_of(audit_page(made(), open_dataset(frame, label="label")))
    assert data["columns"][0] == "comment"
    assert "id" not in data["columns"]
    index = next(int(index) for index in data["contents"] if int(index) % 2 == 0 and int(index) > 0)
    shown = dict(zip(data["columns"], data["contents"][str(index)][1:], strict=True))
    assert shown["comment"].startswith(f"it broke after {index} days and xxx")
    assert shown["comment"].endswith("x…")
    assert shown["signed"] == frame["signed"][index]
    assert shown["income"] == f"{1000.5 * index:,.6g}"
    assert shown["e"] == "–"


def test_a_table_with_images_shows_both_and_neighbours_by_the_encoder(tmp_path, monkeypatch):
    (tmp_path / "own_encoder.py").write_text(
        "import numpy as np\nfrom PIL import Image\n\n\n"
        "def colours(images):\n    return np.array([np.asarray(Image.open(one)).mean((0, 1)) for one in images])\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    audit, paths = made(60), [str(tmp_path / f"{k}.png") for k in range(60)]
    for path, pixels in zip(paths, images().train.inputs, strict=True):
        Image.fromarray(pixels).save(path)
    frame = pd.DataFrame({"path": paths, "size": np.arange(60) % 7 + 0.5, "label": np.array(CLASSES)[audit.given]})
    data = data_of(audit_page(audit, open_dataset(frame, label="label", encoder="own_encoder:colours")))
    assert data["columns"] == ["size"]
    assert all(row[-1] == 1 for row in data["rows"])
    for index, (picture, size) in data["contents"].items():
        assert picture.startswith("data:image/")
        assert size == f"{frame['size'][int(index)]:.6g}"


def test_coordinates_of_an_embedding_are_not_shown():
    assert data_of(audit_page(made(), from_arrays(np.zeros((60, 64)), np.zeros(60, int))))["contents"] == {}


def test_beside_an_example_are_the_nearest_of_both_classes_that_are_not_flagged():
    audit, x = made(90), np.random.default_rng(2).normal(size=(90, 5)).astype(np.float32)
    rows = data_of(audit_page(audit, from_arrays(x, audit.given)))["rows"]
    assert len(rows) == audit.flagged.sum() > 10
    for index, given, suggested, *_, near_given, near_suggested, nearest in rows:
        distance = np.where(audit.flagged, np.inf, np.square(x - x[index]).sum(1))
        for label, found in ((given, near_given), (suggested, near_suggested)):
            assert found == np.where(audit.given == label, distance, np.inf).argmin()
        assert nearest
    own = data_of(audit_page(audit, images(90), features=x))["rows"]
    assert [row[-3:] for row in own] == [row[-3:] for row in rows]


def test_beside_a_picture_is_a_typical_one_of_both_classes():
    audit = made(90)
    surest = np.where(audit.flagged, 0, audit.posterior[np.arange(90), audit.given])
    for _, given, suggested, *_, typical_given, typical_suggested, nearest in data_of(audit_page(audit, images(90)))["rows"]:
        for label, found in ((given, typical_given), (suggested, typical_suggested)):
            assert found == np.where(audit.given == label, surest, 0).argmax()
        assert not nearest


@pytest.mark.parametrize("most", [MAX_COMPARED, 1])  # one example has two of the three classes
def test_neighbours_are_of_a_bounded_number_of_examples(monkeypatch, most):
    monkeypatch.setattr("noiseproof.report.audit_page.MAX_COMPARED", most)
    audit = made(3_000, wrong=0.4)
    x = from_arrays(np.random.default_rng(0).normal(size=(3_000, 3)), audit.given)
    assert sum(row[-1] for row in data_of(audit_page(audit, x))["rows"]) == most


def test_a_class_of_which_all_labels_are_flagged_has_no_example_beside():
    posterior = np.array([[0.9, 0.1]] * 40 + [[0.8, 0.2]] * 6, np.float32)
    audit = Audit(np.array([0] * 40 + [1] * 6), posterior, np.eye(2), 0.1, (0.0, 0.2), 0.9, ("a", "b"), "by hand")
    x = from_arrays(np.arange(92.0).reshape(46, 2), audit.given)
    assert [row[-3:] for row in data_of(audit_page(audit, x))["rows"]] == [[-1, 39, 1]] * 6


def test_the_histogram_counts_all_labels(text, audit):
    drawn = re.search(r"<figure><figcaption>All 60 labels.*?</figure>", text, re.DOTALL)[0]
    counts = [int(count) for count in re.findall(r"<title>\d+ to \d+ %: (\d+)</title>", drawn)]
    assert counts == np.histogram(audit.p_wrong, 20, (0, 1))[0].tolist()
    assert drawn.count('class="wrong"') == 10
    assert f"{audit.flagged.sum()} of 60 labels above 50 %" in drawn


def test_numbers_of_the_matrix_and_of_confusions_lead_to_the_flagged_examples_of_the_pair(text, audit):
    pairs = {(given, suggested) for given, suggested in zip(audit.given, audit.suggested, strict=True) if given != suggested}
    matrix = text[text.index('class="matrix"') : text.index('id="classes-found"')]
    assert set(re.findall(r'data-pair="(\d)-(\d)"', matrix)) == {(str(given), str(likely)) for given, likely in pairs}


@pytest.mark.parametrize(("classes", "table", "chart"), [(20, True, False), (30, False, True), (150, False, False)])
def test_the_matrix_is_a_table_a_picture_or_a_file(classes, table, chart):
    page = audit_page(made(900, [f"class {k}" for k in range(classes)]))
    section = page[page.index('id="matrix"') : page.index('id="classes-found"')]
    assert ('aria-label="Transition matrix" tabindex' in section, "<svg" in section) == (table, chart)
    assert ("transition.csv contains the matrix of" in page) == (classes > 100)


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
    loaded = shown.evaluate("[...document.images].filter(image => image.complete && image.naturalWidth > 0).length")
    assert loaded == (36 if scripts else 12)  # with a typical one of both classes
    assert cards(shown).count() == 12
    for part in ("#tools", "#pages", ".keys"):
        assert shown.locator(part).is_visible() == scripts
    assert shown.locator("noscript").is_visible() != scripts
    assert shown.asked == [file.as_uri()]
    assert shown.faults == []


def count(shown):
    return shown.locator("#count").inner_text()


def shown_indices(shown):
    return [int(card.get_attribute("data-index")) for card in cards(shown).all()]


def decided(shown, card):
    """The pressed button of a card and the label in its list."""
    pressed = [button.get_attribute("value") for button in card.locator("[aria-pressed=true]").all()]
    return *pressed, int(card.get_by_role("combobox").input_value())


def test_a_filter_shows_one_confusion(opened, audit):
    shown = opened()
    chosen = int(((audit.given == 1) & (audit.suggested == 0)).sum())
    shown.select_option("#pair", "1-0")
    assert cards(shown).count() == chosen
    assert count(shown) == f"1–{chosen} of {chosen}, 0 decided"
    shown.select_option("#pair", "")
    assert cards(shown).count() == 12


def test_a_cell_of_the_matrix_filters(opened, audit):
    shown = opened()
    link = shown.locator(".matrix [data-pair]").first
    given, likely = map(int, link.get_attribute("data-pair").split("-"))
    link.click()
    assert shown.locator("#pair").input_value() == f"{given}-{likely}"
    assert set(shown_indices(shown)) == set(
        np.flatnonzero(audit.flagged & (audit.given == given) & (audit.suggested == likely))
    )
    assert shown.evaluate("document.querySelector('#examples').getBoundingClientRect().top < innerHeight / 2")
    assert shown.faults == []


def test_keys_decide_move_and_undo(opened, audit, tmp_path):
    shown = opened()
    press = shown.keyboard.press
    press("k")  # nothing is decided that was not in view
    assert count(shown) == "1–12 of 12, 0 decided"
    for key in "kdr":
        press(key)
    first = [cards(shown).nth(k) for k in range(5)]
    order = shown_indices(shown)
    assert [decided(shown, card)[0] for card in first[:3]] == ["keep", "drop", "relabel"]
    assert decided(shown, first[2]) == ("relabel", int(audit.suggested[order[2]]))
    focused = "Number(document.activeElement.dataset.index)"
    assert shown.evaluate(focused) == order[3]
    press("u")
    assert count(shown) == "1–12 of 12, 2 decided"
    assert shown.evaluate(focused) == order[2]
    press("ArrowLeft")
    press("k")
    assert decided(shown, first[1])[0] == "keep"
    press("u")
    assert decided(shown, first[1])[0] == "drop"
    press("ArrowRight")
    press("ArrowDown")
    tops = shown.evaluate("[...document.querySelectorAll('#suspects > li')].map(card => card.offsetTop)")
    across = tops.count(tops[0])
    assert across > 1
    assert shown.evaluate(focused) == order[2 + across]
    press("ArrowUp")
    assert shown.evaluate(focused) == order[2]
    press("Control+d")
    assert count(shown) == "1–12 of 12, 2 decided"
    for _ in range(3):
        press("u")
    assert count(shown) == "1–12 of 12, 0 decided"
    assert shown.locator("#undo").is_disabled()
    assert shown.faults == []


def test_keys_in_a_list_of_labels_choose_a_label(opened):
    shown = opened()
    box = cards(shown).first.get_by_role("combobox")
    box.focus()
    assert box.locator("option").count() == 3
    shown.keyboard.press("d")  # dog
    assert "drop" not in decided(shown, cards(shown).first)


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """10,050 of 50,000 labels are flagged, each with another probability, and rows of a table."""
    generator, rows = np.random.default_rng(3), 50_000
    true = generator.integers(3, size=rows)
    wrong = np.arange(rows) < 10_050
    posterior = np.full((rows, 3), 0.0, np.float32)
    sure = generator.uniform(0.51, 0.99, rows)
    posterior[np.arange(rows), true] = sure
    posterior[np.arange(rows), (true + 1) % 3] = 0.8 * (1 - sure)
    posterior[np.arange(rows), (true + 2) % 3] = 0.2 * (1 - sure)
    given = np.where(wrong, (true + 1) % 3, true)
    audit = Audit(given, posterior, np.full((3, 3), 1 / 3), 0.2, (0.1, 0.3), 0.8, ("a", "b", "c"), "by hand")
    dataset = from_arrays(generator.normal(size=(rows, 6)).astype(np.float32), given)
    folder = tmp_path_factory.mktemp("many")
    write_audit(audit, Dataset("many", dataset.train, None, audit.classes, columns=tuple("uvwxyz")), folder, place="many.npz")
    return audit, folder / "audit.html"


def test_ten_thousand_flagged_labels_are_paged_in_a_small_page(opened, many):
    audit, path = many
    assert path.stat().st_size < 4_000_000
    shown = opened(at=path)
    assert audit.flagged.sum() == 10_050
    assert "These are the 10,000 of 10,050 flagged labels that are most likely wrong" in shown.locator("#examples").inner_text()
    assert count(shown) == "1–24 of 10,000, 0 decided"
    assert shown.evaluate("document.querySelectorAll('*').length") < 4_000
    likeliest = np.argsort(-audit.p_wrong, kind="stable")
    assert shown_indices(shown) == likeliest[:24].tolist()
    shown.click("#after")
    assert shown_indices(shown) == likeliest[24:48].tolist()
    shown.select_option("#order", "uncertain")
    likely = audit.posterior.max(1)[likeliest[:10_000]].round(6)
    assert shown_indices(shown) == likeliest[:10_000][np.argsort(likely, kind="stable")[:24]].tolist()
    assert count(shown) == "1–24 of 10,000, 0 decided"
    assert shown.faults == []


def test_all_above_a_threshold_are_accepted_and_undone(opened, many, tmp_path):
    audit, path = many
    shown = opened(at=path)
    cards(shown).first.get_by_role("button", name="keep").click()
    listed = np.argsort(-audit.p_wrong, kind="stable")[:10_000]
    for threshold in (0.95, 0.9):
        shown.locator("#threshold").fill(str(round(100 * threshold)))
        ready = listed[1:][audit.posterior.max(1)[listed[1:]].round(6) >= threshold]
        assert shown.locator("#accept").inner_text() == f"Relabel {len(ready):,} as suggested"
    shown.click("#accept")
    assert count(shown) == f"1–24 of 10,000, {len(ready) + 1:,} decided"
    assert shown.locator("#accept").is_disabled()
    found = read_decisions(exported(shown, tmp_path), audit.given, audit.classes)
    assert found.counts == {"keep": 1, "relabel": len(ready), "drop": 0}
    assert (found.labels[ready] == audit.suggested[ready]).all()
    shown.click("#undo")
    assert count(shown) == "1–24 of 10,000, 1 decided"
    shown.reload()
    assert count(shown) == "1–24 of 10,000, 1 decided"
    assert shown.faults == []


def test_pages_lead_through_all_flagged_labels_also_by_keys(opened, tmp_path):
    audit, path = made(600, wrong=0.2), tmp_path / "audit.html"
    path.write_text(audit_page(audit), encoding="utf-8")
    shown, seen = opened(at=path), []
    while True:
        seen += shown_indices(shown)
        if shown.locator("#after").is_disabled():
            break
        shown.click("#after")
    assert len(seen) == 120
    assert set(seen) == set(np.flatnonzero(audit.flagged))
    shown.reload()
    for _ in range(FIRST_PAGE + 1):  # the first press goes to the first example
        shown.keyboard.press("r")
    assert count(shown) == f"{FIRST_PAGE + 1}–{2 * FIRST_PAGE} of 120, {FIRST_PAGE} decided"
    assert shown.evaluate("Number(document.activeElement.dataset.index)") == seen[FIRST_PAGE]
    shown.keyboard.press("u")
    assert count(shown) == f"1–{FIRST_PAGE} of 120, {FIRST_PAGE - 1} decided"


def test_classes_of_which_most_labels_are_flagged_are_not_relabelled_at_once(opened, tmp_path):
    posterior = np.array([[0.95, 0.05]] * 40 + [[0.95, 0.05]] * 6 + [[0.02, 0.98]] * 4 + [[0.03, 0.97]] * 2, np.float32)
    given = np.array([0] * 40 + [1] * 10 + [0] * 2)
    audit = Audit(given, posterior, np.eye(2), 0.1, (0.0, 0.2), 0.9, ("common", "rare"), "by hand")
    (tmp_path / "audit.html").write_text(audit_page(audit), encoding="utf-8")
    shown = opened(at=tmp_path / "audit.html")
    assert cards(shown).count() == 8
    assert shown.get_by_text("most labels rare are flagged: look before you remove").count() == 6
    assert shown.locator("#accept").inner_text() == "Relabel 2 as suggested"
    assert "Classes of which most labels are flagged are left to you." in shown.locator("#left").inner_text()


def test_texts_are_shown_beside_their_neighbours_and_hostile_ones_do_nothing(opened, tmp_path):
    audit = made(60)
    texts = [f"{HOSTILE} text of row {k} in several different words" for k in range(60)]
    dataset = open_dataset(pd.DataFrame({"review": texts, "label": np.array(CLASSES)[audit.given]}), label="label")
    (tmp_path / "audit.html").write_text(audit_page(audit, dataset), encoding="utf-8")
    shown = opened(390, at=tmp_path / "audit.html")
    index = shown_indices(shown)[0]
    assert cards(shown).first.locator("figure p").first.inner_text() == texts[index]
    assert cards(shown).first.locator("figure").count() == 3
    assert shown.evaluate("document.scripts.length") == 1
    assert shown.evaluate("document.querySelectorAll('[onmouseover], [onerror]').length") == 0
    assert shown.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert shown.faults == []


def exported(shown, tmp_path):
    with shown.expect_download() as download:
        shown.click("#export")
    path = tmp_path / download.value.suggested_filename
    download.value.save_as(path)
    return path


def test_decisions_are_exported_kept_over_a_reload_and_come_back(opened, audit, tmp_path):
    shown = opened(390)
    for place, decision in enumerate(("keep", "drop", "relabel")):
        cards(shown).nth(place).get_by_role("button", name=decision).click()
    other = cards(shown).nth(3)
    other.get_by_role("combobox").focus()
    other.get_by_role("combobox").select_option("=cow()")  # which means relabel
    assert count(shown) == "1–12 of 12, 4 decided"
    shown.reload()
    assert count(shown) == "1–12 of 12, 4 decided"
    order = shown_indices(shown)
    shown.select_option("#state", "undecided")
    assert cards(shown).count() == 8
    path = exported(shown, tmp_path)
    assert path.name == "decisions.csv"
    assert ",'=folder/" in path.read_text(encoding="utf-8")
    found = read_decisions(path, audit.given, CLASSES)
    expected = audit.given.copy()
    expected[order[2]], expected[order[3]] = audit.suggested[order[2]], 2
    assert found.labels.tolist() == expected.tolist()
    assert np.flatnonzero(~found.kept).tolist() == [order[1]]
    assert found.counts == {"keep": 1, "relabel": 2, "drop": 1}
    shown.select_option("#state", "decided")
    assert shown_indices(shown) == order[:4]
    cards(shown).nth(1).get_by_role("button", name="drop").click()  # again: not decided
    assert count(shown) == "1–4 of 4, 3 decided"
    shown.click("#forget")
    assert count(shown) == "1–4 of 4, 0 decided"
    shown.click("#undo")
    assert count(shown) == "1–4 of 4, 3 decided"
    assert shown.faults == []


def test_without_storage_it_works_until_a_reload(opened, audit, tmp_path):
    refuse = "Object.defineProperty(window, 'localStorage', { get() { throw new Error('denied'); } });"
    shown = opened(prepare=refuse)
    cards(shown).first.get_by_role("button", name="drop").click()
    assert not read_decisions(exported(shown, tmp_path), audit.given, CLASSES).kept.all()
    assert shown.faults == []


def test_what_was_stored_is_not_trusted(opened, file):
    shown = opened()
    key = "noiseproof-audit-" + data_of(file.read_text(encoding="utf-8"))["key"]
    index = cards(shown).first.get_attribute("data-index")
    faulty = [
        f'{{"{index}": {{"decision": "{word}", "label": "{label}"}}, "x": null}}'
        for word, label in (("sell", "1"), ("keep", "9"), ("keep", "length"))
    ]
    for stored in ("[", "3", "null", *faulty):
        shown.evaluate("([key, stored]) => localStorage.setItem(key, stored)", [key, stored])
        shown.reload()
        assert count(shown) == "1–12 of 12, 0 decided"
    sound = f'{{"{index}": {{"decision": "relabel", "label": "2"}}}}'
    shown.evaluate("([key, stored]) => localStorage.setItem(key, stored)", [key, sound])
    shown.reload()
    assert decided(shown, cards(shown).first) == ("relabel", 2)
    assert shown.faults == []


def test_on_paper_the_tools_are_gone_and_nothing_is_cut_off(opened):
    shown = opened(703, color_scheme="dark")  # A4 less margins
    shown.emulate_media(media="print")
    assert shown.evaluate("document.documentElement.scrollWidth <= innerWidth")
    for part in ("#tools", "#pages", ".decide"):
        assert not shown.locator(part).first.is_visible()
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
    cards(shown).first.get_by_role("button", name="relabel").click()
    found = read_decisions(exported(shown, tmp_path), made(classes=classes).given, classes)
    assert found.counts["relabel"] == 1
    assert shown.faults == []
