"""The report of a person's own runs: what it contains, and that records cannot inject."""

import json
import re

import numpy as np
import pytest

from noiseproof.report import RunReport, merge, read_runs
from noiseproof.report.page import group_runs
from tests.helpers.records import of_own_data

HOSTILE = "</title></text></code><script>alert(1)</script><img src=x onerror=alert(2)>\" onmouseover='alert(3)' x=\""


def page(records):
    return RunReport(records).html


def whole_record(**changes):
    """A record with everything that a page shows."""
    curve = {"test_accuracy": [0.3, 0.4, 0.5], "given_accuracy": [0.2, 0.3, 0.4]}
    return {
        **of_own_data("ce", [0.5], noise="symmetric:0.4")[0],
        "status": "finished",
        "environment": {"machine": "a machine", "torch": "2.9.0", "commit": "abc", "date": "2026-01-02"},
        "seconds": {"train": 60.0},
        "curve": curve,
        "weights": {"count": 3, "l1": 1.5, "l2": 1.25, "below": {"0.001": 0.5}},
        "confidence": {"5": {"right": [0] * 19 + [6], "wrong": [4] + [0] * 19}},
        **changes,
    }


def test_a_run_folder_is_read_with_its_curves_and_its_confidence(tmp_path):
    folder = tmp_path / "runs" / "one"
    folder.mkdir(parents=True)
    record = whole_record()
    del record["curve"], record["confidence"]
    record["epochs"] = [{"epoch": 1, "test_accuracy": 0.4}, {"epoch": 2, "test_accuracy": 0.5}]
    (folder / "record.json").write_text(json.dumps(record))
    probability = np.array([[0.02, 0.99, 0.98, 0.51], [0.5, 1.0, 1.0, 0.0]], np.float32)
    labels = {"given": np.array([0, 1, 2, 3]), "clean": np.array([1, 1, 2, 3])}
    np.savez(folder / "confidence.npz", epochs=[1, 2], probability=probability, **labels)
    (group,) = group_runs(merge(read_runs([tmp_path])))
    assert group.curve("test_accuracy") == [40.0, 50.0]
    assert group.confidence[1]["wrong"] == [1.0] + [0.0] * 19
    assert group.confidence[2]["right"] == [1.0] + [0.0] * 18 + [2.0]


def test_places_without_runs_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere does not exist; give folders of runs"):
        read_runs([tmp_path / "nowhere"])
    with pytest.raises(ValueError, match=r"no runs in .*'noiseproof train' makes them"):
        read_runs([tmp_path])
    record = whole_record()
    (tmp_path / "record.json").write_text(json.dumps({key: value for key, value in record.items() if key != "confidence"}))
    (tmp_path / "confidence.npz").write_bytes(b"PK half of a file")
    with pytest.raises(ValueError, match=r"confidence\.npz: damaged: .*; move it away"):
        read_runs([tmp_path])
    (tmp_path / "record.json").write_text("[]")
    with pytest.raises(ValueError, match=r"record\.json: not the record of a run"):
        read_runs([tmp_path])


@pytest.mark.parametrize(
    ("dataset", "noise", "named"),
    [
        ("cifar10", "none", "clean"),
        ("digits", "none", "clean"),
        ("my/data.csv", "none", "labels as given"),  # of which nobody knows
        ("my/data.csv", "labels:none.npy", "labels none.npy"),
    ],
)
def test_labels_of_data_of_ones_own_are_not_called_clean(dataset, noise, named):
    recipe = {"dataset": dataset, "loss": "ce", "seed": 1, "noise": noise}
    (group,) = group_runs([{"result": {"test_accuracy": 0.5}, "recipe": recipe, "task": {}}])
    assert group.noise == named


def test_a_page_of_data_of_ones_own_leads_with_their_results_and_leaves_the_papers_out():
    runs = [*of_own_data("ce", [0.5, 0.52, 0.54]), *of_own_data("jal-ce", [0.8, 0.81, 0.85])]
    shown = page(runs)
    assert "<h1>6 runs on mine.csv.</h1>" in shown
    section = shown[shown.index('id="own"') : shown.index('id="curves"')]
    rows = [re.sub(r"<[^>]+>", " ", row).split() for row in re.findall(r"<tr><th scope=.row.>.*?</tr>", section)]
    # CE is behind by 30, 29 and 31 points: 30 on average, and t(0.975; 2) * 1 / sqrt(3) = 2.48 to each side.
    assert rows == [
        ["JAL-CE", "82.00", "±", "2.65", "3", "+0.00", "–", "a"],
        ["CE", "52.00", "±", "2.00", "3", "-30.00", "-32.48", "to", "-27.52", "b"],
    ]
    assert not any(f'id="{section}"' in shown for section in ("tables", "noise", "decay", "profiles"))
    assert "425" not in shown
    assert "paper" not in shown
    targets = re.findall(r'href="#([^"]+)"', shown)
    assert targets
    assert all(shown.count(f'id="{target}"') == 1 for target in targets)


def test_runs_of_one_loss_on_data_of_ones_own_are_named_by_what_tells_them_apart():
    runs = [*of_own_data("ce", [0.5], l1=5e-5), *of_own_data("ce", [0.6], l2=1e-4), *of_own_data("gce", [0.7], epochs=9)]
    assert {group.name for group in group_runs(runs)} == {"CE l1=5e-05 l2=0", "CE l1=0 l2=0.0001", "GCE"}
    shown = page(runs)
    section = shown[shown.index('id="own"') : shown.index('id="curves"')]
    assert section.count('<tr><th scope="row">') == 3


def test_seeds_that_are_not_shared_and_runs_without_a_test_have_no_difference():
    apart = [*of_own_data("ce", [0.5]), *of_own_data("gce", [None, 0.7]), *of_own_data("mae", [None], noise="symmetric:0.2")]
    shown = page(apart)
    section = shown[shown.index('id="own"') : shown.index('id="curves"')]
    assert "nan" not in section
    assert "<td>50.00</td><td>1</td><td>–</td><td>–</td>" in section
    assert "No run has a test accuracy." in section


def test_text_in_records_cannot_become_markup():
    evil = whole_record(status=HOSTILE, loss=HOSTILE, at_once=HOSTILE, message=HOSTILE, warnings=[HOSTILE])
    evil["recipe"] |= {"loss": HOSTILE, "dataset": HOSTILE, "noise": HOSTILE, "precision": HOSTILE}
    evil["environment"] = dict.fromkeys(("machine", "torch", "commit", "date"), HOSTILE)
    evil["weights"] = {"count": HOSTILE, "l1": HOSTILE, "below": {HOSTILE: HOSTILE}}
    shown = RunReport([whole_record(), evil], (HOSTILE,), date=HOSTILE).html
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
    assert 'id="run-' in page([whole_record(**broken)])


def test_a_run_of_a_loss_of_ones_own_keeps_its_name():
    (group,) = group_runs(of_own_data("mine:MyLoss", [0.5]))
    assert group.name == "mine:MyLoss"


def test_ce_and_jal_stand_out_from_other_losses_in_curves():
    runs = [
        whole_record(recipe={**whole_record()["recipe"], "loss": loss})
        for loss in ("gce", "jal-ce", "ce", "nce", "mine:MyLoss")
    ]
    shown = page(runs)
    section = shown[shown.index('id="curves"') : shown.index('id="confidence"')]
    drawn = re.findall(r'<g class="line ([^"]+)"><title>([^:]+):', section.partition("</svg>")[0])
    found = {name: style for style, name in drawn}
    assert found == {"CE": "c0 d0", "JAL-CE": "c1 d1", "mine": "c2 d2", "GCE": "rest", "NCE": "rest"}
    assert [style for style, _ in drawn[:2]] == ["rest", "rest"]  # behind the others
    alone = page([runs[0], runs[3]])
    assert 'class="line rest"' not in alone
    assert 'class="line c1 d1"' in alone


def test_records_are_folded_and_a_number_that_leads_to_one_unfolds_it(browser, tmp_path):
    (tmp_path / "report.html").write_text(page([*of_own_data("ce", [0.5, 0.6]), *of_own_data("gce", [0.7])]), encoding="utf-8")
    context = browser.new_context(viewport={"width": 390, "height": 844}, java_script_enabled=False)
    shown = context.new_page()
    shown.goto((tmp_path / "report.html").as_uri())
    record = shown.locator("#records article").first
    assert shown.locator("#records summary").inner_text() == "mine.csv, labels as given: 3 runs"
    assert not record.is_visible()
    shown.locator("#own tbody a").first.click()
    shown.wait_for_timeout(200)
    assert record.is_visible()
    context.close()
