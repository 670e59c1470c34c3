"""Cells measured with the values of the paper's text and with those of its code."""

import importlib
import json
import re
from pathlib import Path

import pytest

from noiseproof.paper import PROFILES, cells
from noiseproof.paper.agreement import join
from noiseproof.paper.answer import describe_profiles, text_or_code, text_results, with_text_results
from noiseproof.paper.groups import paper_groups
from noiseproof.paper.page import paper_page, runs_of
from noiseproof.paper.plan import Curve, cell_differences, run_facts
from noiseproof.paper.tables import formatted

TOOLS = Path(__file__).resolve().parents[2] / "tools"
CODE, TEXT = PROFILES


def run(cell, percent, profile=CODE, seed=123, **result):
    recipe = {**run_facts(cell, profile), "seed": seed, "precision": "bf16", "confidence_epochs": []}
    return {"result": {"test_accuracy": percent / 100, **result}, "recipe": recipe, "task": {"noise": {"hash": "x"}}}


def cell(loss="GCE", noise="symmetric", rate=0.8, table="sym_asym", dataset="cifar10"):
    return cells(table=table, dataset=dataset, noise=noise, rate=rate, loss=loss)[0]


def found_in(records):
    code = join(cells(), records).results
    return text_or_code(code, text_results(code, records)), code


def listed(cell):
    return {one.field: (one.code, one.text) for one in cell_differences(cell)}


def test_only_what_differs_in_the_runs_of_a_cell_is_listed():
    decay = {"l1": (0.0, 5e-5), "l2": (1e-4, 0.0)}
    assert listed(cell()) == {"loss.q": (0.7, 0.9), "clip": (5.0, None), "noise_rule": ("published", "exact"), **decay}
    assert "noise_rule" not in listed(cell(noise="human", rate="worst", table="human"))
    assert "noise_rule" not in listed(cell(noise="clean", rate=0.0))
    instance = listed(cell(noise="instance", rate=0.4, table="instance"))
    assert instance["noise instance:RATE"] == ("labels:cifar10_dependent_0.4.json", "instance:0.4")
    blocks = listed(cell("JAL-CE", "asymmetric", 0.4, dataset="cifar100"))
    assert blocks["noise asymmetric:RATE"] == ("asymmetric-cifar100-blocks:0.4", "asymmetric-cifar100:0.4")
    # The weights that a table varies are the same in both.
    weighed = next(c for c in cells(table="agce_mae_all", loss="AGCE+MAE") if (c.alpha, c.beta) == (10.0, 1.0))
    assert set(listed(weighed)) == {"clip", "noise_rule", "l1", "l2"}


def test_a_cell_is_shown_once_and_only_where_it_is_measured_with_both():
    both, code_only, text_only = cell(rate=0.8), cell(rate=0.6), cell(rate=0.4)
    jal = cell("JAL-CE")  # printed in two tables
    records = [run(both, 46.7), run(both, 60.0, TEXT), run(code_only, 50.0), run(text_only, 50.0, TEXT)]
    records += [run(jal, 65.0), run(jal, 66.0, TEXT)]
    found, _ = found_in(records)
    assert [(one.code.cell, one.code.sample.mean, one.text.sample.mean) for one in found] == [
        (both, pytest.approx(46.7), pytest.approx(60.0)),
        (jal, pytest.approx(65.0), pytest.approx(66.0)),
    ]
    assert [(one.code.agreement.verdict, one.text.agreement.verdict) for one in found] == [("agrees", "above"), ("agrees",) * 2]


def test_runs_that_are_the_same_in_both_profiles_are_no_comparison():
    (same,) = [c for c in cells(table="real_world", loss="JAL-CE") if c.dataset == "clothing1m"]
    assert not cell_differences(same)
    assert found_in([run(same, 70.0)])[0] == []


def test_the_words_count_what_agrees_with_either_and_name_what_agrees_with_neither():
    low, high, third = cell(rate=0.2), cell(rate=0.8), cell(rate=0.4)
    records = [run(low, 80.0), run(low, low.mean, TEXT), run(high, 25.0), run(high, 62.0, TEXT), run(third, third.mean)]
    counted, context, which = describe_profiles(*found_in(records))
    assert counted == (
        "Cells measured with the values of both: 2. With the code's values, 0 agree. With the text's values, 1 agrees: "
        "GCE at symmetric 0.2. 1 agrees with neither: GCE at symmetric 0.8 (46.61 printed, 25.00 with the code's, 62.00 with "
        "the text's)."
    )
    assert context == "Of all 3 cells of GCE measured with the code's values, 1 agree with the paper, all but these."
    assert "more than one value" in which
    _, context, _ = describe_profiles(*found_in([*records, run(cell(rate=0.6), 10.0)]))
    assert context == "Of all 4 cells of GCE measured with the code's values, 1 agree with the paper."
    assert describe_profiles([], []) == []


@pytest.fixture
def section(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(TOOLS))
    text_or_code = importlib.import_module("text_or_code")

    def written(*records):
        text_or_code.joined.cache_clear()
        for name in text_or_code.REPEATED:
            (tmp_path / name).write_text("")
        (tmp_path / text_or_code.REPEATED[0]).write_text("".join(json.dumps(record) + "\n" for record in records))
        return text_or_code.where_they_differ(tmp_path)

    return written


def test_the_numbers_of_the_section_are_those_of_the_records(section):
    asymmetric = cell(noise="asymmetric", rate=0.4)
    lost = {"accuracy_by_class": [0.8] * 9 + [0.0]}
    seeds = [run(cell(), value, TEXT, seed) for value, seed in ((61.11, 123), (62.22, 124), (63.33, 125))]
    text = section(run(cell(), 12.34), *seeds, run(asymmetric, 43.21), run(asymmetric, asymmetric.mean, TEXT, **lost))
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| GCE")]
    changes = "q 0.7 → 0.9, clip 5 → none, noise_rule published → exact, l1 0 → 5e-05, l2 0.0001 → 0"
    assert rows == [
        ["| GCE, cifar10", "symmetric 0.8", changes, "46.61±0.39", "12.34 (1) -", "62.22±1.11 + |"],
        ["| GCE, cifar10", "asymmetric 0.4", changes, "73.36±0.53", "43.21 (1) -", "73.36 (1) =<br>never right on class 9 |"],
    ]
    assert "GCE at symmetric 0.8 (46.61 printed, 12.34 with the code's, 62.22 with the text's)" in text
    assert "- GCE, " not in text
    copied = cell(rate=0.2)
    assert "likely a copy" in section(run(copied, 87.0), run(copied, 89.0, TEXT))


def test_without_runs_of_both_there_is_no_section(section):
    assert section(run(cell(), 25.0)) == ""
    assert section(run(cell(), 25.0), run(cell(rate=0.4), 80.0, TEXT)) == ""


def groups_in(records):
    code = join(cells(), records).results
    return {group.name: group for group in paper_groups(records, with_text_results(code, text_results(code, records)), "bf16")}


def test_runs_with_the_texts_values_are_named_so_and_stand_beside_the_codes():
    human = cell(noise="human", rate="worst", table="human")
    found = groups_in([run(human, 74.0), run(cell("CE"), 19.0), run(human, 82.0, TEXT), run(human, 70.0, TEXT, 124)])
    assert list(found) == ["CE", "GCE", "GCE paper-text"]
    text = found["GCE paper-text"]
    assert (text.noise, text.changes, len(text.records)) == ("human worst", {"precision": "bf16"}, 2)
    assert [result.published.mean for result in text.results] == [human.mean]
    assert text.command == (
        "noiseproof train cifar10/gce --noise human:worst --seed 123 --profile paper-text --set precision=bf16 --data DIR"
    )


def test_a_recipe_that_is_only_partly_the_texts_is_the_codes_with_changes():
    partly = run(cell(), 50.0)
    partly["recipe"]["loss_options"] = {"q": 0.9}
    assert list(groups_in([partly])) == ["GCE q=0.9"]
    (wholly,) = paper_groups([run(cell(), 50.0, TEXT)], [], "bf16")
    assert (wholly.name, wholly.profile, wholly.noise) == ("GCE paper-text", TEXT, "symmetric 0.8")
    weighed = next(c for c in cells(table="agce_mae_all", loss="AGCE+MAE") if (c.alpha, c.beta) == (1.0, 10.0))
    (group,) = groups_in([run(weighed, 80.0, TEXT)]).values()
    assert (group.name, group.profile) == ("AGCE+MAE paper-text beta=10", TEXT)
    assert "--profile paper-text --set loss.beta=10 " in group.command


def test_the_same_noise_has_one_name_and_another_noise_another():
    asymmetric, instance = cell("CE", "asymmetric", 0.4), cell("CE", "instance", 0.4, "instance")
    decayed = run(asymmetric, 70.0)
    decayed["recipe"] |= {"l1": 5e-5, "l2": 0.0}
    found = groups_in([run(asymmetric, 73.0), decayed, run(instance, 57.0), run(instance, 56.0, TEXT)])
    titles = {(group.name, group.noise) for group in found.values()}
    assert {("CE l1=5e-05 l2=0", "asymmetric 0.4"), ("CE paper-text", "instance 0.4, generated")} < titles
    records = [run(asymmetric, 73.0), decayed]
    assert {group.noise for group in groups_in(records).values()} == {"asymmetric 0.4"}
    # Beside each other, so that the page can compare the decays.
    text = paper_page(records, date="2026-01-02")
    assert "Loss or decay, CIFAR-10, asymmetric 0.4" in text


def test_the_page_compares_text_and_code_and_takes_neither_for_the_other():
    records = [run(cell(), 25.29), run(cell(), 62.07, TEXT), run(cell("CE"), 19.0), run(cell(rate=0.4), 80.0, seed=7)]
    records[-1]["recipe"]["epochs"] = 3
    text = paper_page(records, date="2026-01-02")
    section = text[text.index('id="profiles"') : text.index('id="weights"')]
    anchors = re.findall(r'href="#(run-\w+)">([\d.]+)', section)
    assert [mean for _, mean in anchors] == ["25.29", "62.07"]
    for (anchor, mean), name in zip(anchors, ("GCE", "GCE paper-text"), strict=True):
        assert f"<h3>CIFAR-10, symmetric 0.8: {name}</h3>\n<p>{mean} %" in text[text.index(f'id="{anchor}"') :][:200]
    assert "1 agrees with neither: GCE at symmetric 0.8 (46.61 printed" in section
    assert "<dd>4, 1 with the text&#39;s values, 1 of no published number</dd>" in text
    assert "Loss or decay, " not in text
    tables = text[text.index('id="tables"') : text.index('id="curves"')]
    assert "62.07" not in tables
    decayed = run(cell(), 30.0)
    decayed["recipe"] |= {"l1": 5e-5, "l2": 0.0}
    decays = paper_page([*records, decayed], date="2026-01-02").partition('id="decay"')[2].partition('id="profiles"')[0]
    assert len(re.findall('<th scope="row">', decays)) == 3  # CE, GCE, GCE under L1
    assert "62.07" not in decays
    alone = paper_page(records[:1], date="2026-01-02")
    assert "No cell has runs of both yet" in alone


def test_a_figure_is_not_drawn_from_runs_with_the_texts_values():
    amse = next(c for c in cells(table="ablation", loss="AMSE") if c.spec == "symmetric:0.8")
    wanted = Curve("amse_a", "", "AMSE", "amse", "symmetric:0.8")
    code, text = run(amse, 60.0), run(amse, 61.0, TEXT)
    assert runs_of(groups_in([text]).values(), wanted) is None
    assert runs_of(groups_in([text, code]).values(), wanted).records == [code]
    assert runs_of(groups_in([text, code]).values(), wanted, TEXT).records == [text]


def test_tables_say_that_they_have_the_texts_values():
    records = [run(cell(), 25.29), run(cell(), 62.07, TEXT)]
    for profile, title, mean in ((CODE, "sym_asym, cifar10", 25.29), (TEXT, "sym_asym, cifar10, paper-text", 62.07)):
        results = join([cell()], records, profile=profile).results
        assert formatted(results).splitlines()[0] == title
        assert (results[0].as_dict()["profile"], results[0].as_dict()["mean"]) == (profile, mean)
