"""Cells joined with records, and the tables and words made of them."""

import csv
import io
import json
import math
import re

import pytest

from noiseproof.paper import cells
from noiseproof.paper.agreement import join
from noiseproof.paper.answer import answer
from noiseproof.paper.plan import chosen_cells, planned_runs, run_facts
from noiseproof.paper.tables import FORMATS, formatted, summary


def run(cell, seed, percent, *, precision="bf16", **more):
    recipe = {**run_facts(cell), "seed": seed, "precision": precision, "confidence_epochs": []}
    return {"result": {"test_accuracy": percent / 100}, "recipe": recipe, "task": {"noise": {"hash": str(seed)}}, **more}


def cell(loss="JAL-CE", noise="symmetric", rate=0.8, table="sym_asym", dataset="cifar10"):
    return cells(table=table, dataset=dataset, noise=noise, rate=rate, loss=loss)[0]


TABLE = chosen_cells(tables=["sym_asym"], datasets=["cifar10"])
OFFSETS = (-0.3, 0.0, 0.4)
WHOLE = [run(cell, 123 + i, cell.mean + offset) for cell in TABLE if not cell.quoted_from for i, offset in enumerate(OFFSETS)]


def test_a_cell_has_the_runs_of_its_recipe_whatever_their_seed():
    records = [run(cell(), 131, 64.0), run(cell(), 123, 66.0), run(cell("JAL-FL"), 123, 1.0), run(cell(rate=0.6), 123, 2.0)]
    other_decay = run(cell(), 124, 3.0)
    other_decay["recipe"]["l1"] = 0.0
    (found,), unmatched = join([cell()], [*records, other_decay])
    assert list(found.accuracies) == [123, 131]
    assert (found.sample.mean, found.sample.n) == (pytest.approx(65.0), 2)
    assert unmatched == [*records[2:], other_decay]


def test_a_run_counts_for_the_cells_of_several_tables():
    shared = [c for c in cells(loss="JAL-CE", dataset="cifar10", rate=0.8) if c.noise == "symmetric"]
    assert {c.table for c in shared} == {"sym_asym", "ablation"}
    assert [result.sample.mean for result in join(shared, [run(cell(), 123, 64.0)]).results] == pytest.approx([64.0, 64.0])


def test_precisions_are_not_mixed_and_the_runs_left_out_are_named():
    records = [run(cell(), 123, 64.0), run(cell(), 123, 65.0, precision="tf32"), run(cell(), 124, 66.0, precision="tf32")]
    (found,), unmatched = join([cell()], records)
    assert (dict(found.accuracies), found.left_out, unmatched) == ({123: (pytest.approx(64.0),)}, {"tf32": 2}, [])
    assert "runs left out, as only finished ones in bf16 count: 2 tf32" in formatted([found])
    (found,), _ = join([cell()], records, precision="tf32")
    assert (list(found.accuracies), found.left_out) == ([123, 124], {"bf16": 1})


def test_runs_that_diverged_or_still_run_do_not_count():
    records = [run(cell(), 123, 64.0), run(cell(), 124, 9.0, status="diverged"), run(cell(), 125, 9.0, status="running")]
    (found,), _ = join([cell()], records)
    assert (list(found.accuracies), found.left_out) == ([123], {"diverged": 1, "running": 1})


def test_a_cell_says_how_many_of_its_runs_diverged_in_every_format():
    lost = [run(cell(), seed, 9.0, status="diverged") for seed in (124, 125)]
    for some in ([], [run(cell(), 123, 65.0)]):
        found = join([cell()], [*some, *lost, run(cell(), 126, 9.0, precision="tf32", status="diverged")]).results
        assert found[0].diverged == (124, 125)
        for how in ("table", "markdown", "latex"):
            text = formatted(found, how)
            assert ("65.00" in text) == bool(some)
            assert "2 diverged" in text
            assert "JAL-CE, sym 0.8: seeds 124 and 125 diverged, which is no result" in text
            assert "1 diverged" not in text
        assert json.loads(formatted(found, "json"))[0]["diverged"] == [124, 125]
        assert next(csv.DictReader(io.StringIO(formatted(found, "csv"))))["diverged"] == "124 125"


def test_the_answer_names_what_diverged_and_counts_a_cell_without_any_result_against_the_paper():
    lost, some = [run(cell(), seed, 9.0, status="diverged") for seed in (124, 125)], run(cell(), 123, 65.43)
    trained = [one for one in TABLE if not one.quoted_from and one != cell()]
    rest = [run(one, 123 + i, one.mean + (i % 2 - 0.5) / 5 * (-1) ** k) for k, one in enumerate(trained) for i in range(3)]
    partly, wholly, nothing = (answer(join(TABLE, records).results) for records in ([*rest, *lost, some], [*rest, *lost], lost))
    for told in (partly, wholly, nothing):
        assert "2 runs diverged, with no result for a mean: JAL-CE at symmetric 0.8 (seeds 124 and 125)." in told.sentences
    assert partly.headline == "The paper's numbers hold"
    assert wholly.headline.startswith("The paper's numbers hold only in part")
    assert "Against it: every run of some cells diverged." in wholly.sentences
    assert nothing.headline == "None of the 117 cells that the paper trained has a run that ended with a result"


def test_two_results_of_one_seed_are_shown_and_count_once():
    (found,), _ = join([cell()], [run(cell(), 123, 64.0), run(cell(), 123, 65.0), run(cell(), 124, 66.0)])
    assert (found.sample.n, found.sample.mean) == (2, pytest.approx(65.25))
    assert "seed 123 has 2 results, 64.00, 65.00, and counts with their mean" in formatted([found])


def test_a_record_older_than_a_field_of_the_recipe_still_belongs_to_its_cell():
    old = run(cell(), 123, 64.0)
    del old["recipe"]["test_size"]
    assert join([cell()], [old]).results[0].sample.n == 1


def test_a_record_newer_than_this_version_counts_if_what_is_unknown_says_nothing():
    newer, other = run(cell(), 123, 64.0), run(cell(), 124, 65.0)
    newer["recipe"] |= {"warmup": 0, "teacher": None}
    other["recipe"] |= {"warmup": 5}
    (found,), unmatched = join([cell()], [newer, other])
    assert (list(found.accuracies), unmatched) == ([123], [other])


def test_the_verdict_does_not_depend_on_the_table_or_on_other_cells():
    (alone,) = join([cell()], [run(cell(), 123, 64.0)]).results
    others = [record for record in WHOLE if record["recipe"]["loss"] != "jal-ce"]
    among = [
        *join(TABLE, [run(cell(), 123, 64.0), *others]).results,
        *join(cells(table="ablation"), [run(cell(), 123, 64.0)]).results,
    ]
    found = [result.agreement for result in among if (result.cell.loss, result.cell.spec) == ("JAL-CE", "symmetric:0.8")]
    assert found == [alone.agreement] * 2


def test_a_single_run_has_the_larger_share_of_the_error():
    (found,) = join([cell()], [run(cell(), 123, 64.0)]).results
    assert found.point.our_error / found.point.paper_error == pytest.approx(math.sqrt(3))
    assert math.hypot(found.point.our_error, found.point.paper_error) == pytest.approx(found.agreement.drawn.size)


def test_json_has_an_object_for_every_cell():
    chosen = chosen_cells(datasets=["cifar10", "cifar100"])
    found = json.loads(formatted(join(chosen, WHOLE).results, "json"))
    assert len(found) == 439 - 27
    identity, numbers = ("table", "dataset", "noise", "rate", "loss"), ("paper_mean", "paper_std", "mean", "std", "n", "seeds")
    assert all({*identity, *numbers, "difference", "interval", "verdict"} <= set(row) for row in found)
    assert {(row.get("alpha"), row.get("beta")) for row in found if row["table"] == "agce_mae_all"} > {(1.0, 10.0)}
    first = found[0]
    assert (first["loss"], first["n"], first["seeds"], first["verdict"]) == ("CE", 3, [123, 124, 125], "agrees")
    assert (first["mean"], first["paper_mean"]) == (pytest.approx(90.5 + 0.1 / 3, abs=1e-4), 90.5)
    empty = found[-1]
    assert (empty["mean"], empty["n"], empty["seeds"], empty["interval"], empty["verdict"]) == (None, 0, [], None, "too few")


def test_csv_has_the_same_numbers():
    results = join(TABLE, WHOLE).results
    rows = list(csv.DictReader(io.StringIO(formatted(results, "csv"))))
    assert len(rows) == len(TABLE)
    assert rows[0]["seeds"] == "123 124 125"
    assert [rows[0]["low"], rows[0]["high"]] == [str(end) for end in results[0].as_dict()["interval"]]


def test_the_text_table_marks_verdicts_without_colour():
    records = [run(cell("CE"), 123 + i, value) for i, value in enumerate((29.0, 29.1, 28.9))]
    records += [run(cell("FL"), 123 + i, value) for i, value in enumerate((9.0, 9.1, 8.9))]
    records += [run(cell("GCE"), 123 + i, value) for i, value in enumerate((46.5, 46.8, 46.2))]
    text = formatted(join(chosen_cells(tables=["sym_asym"], datasets=["cifar10"], noises=["symmetric:0.8"]), records).results)
    assert "29.00±0.10 +" in text
    assert "9.00±0.10 -" in text
    assert "46.50±0.30 =" in text
    assert "LT-APL    paper  40.87±1.57" in text
    assert "LT-APL, sym 0.8: quoted from the student loss paper" in text


def test_markdown_and_latex_have_a_row_for_every_loss():
    results = join(TABLE, WHOLE).results
    markdown = formatted(results, "markdown").splitlines()
    assert markdown[2] == "| loss | clean | sym 0.2 | sym 0.4 | sym 0.6 | sym 0.8 | asym 0.1 | asym 0.2 | asym 0.3 | asym 0.4 |"
    assert markdown[4].startswith("| CE | 90.53±0.35 =<br>*90.50±0.22* | ")
    assert len([line for line in markdown if line.startswith("| ")]) == 2 + 14
    latex = formatted(results, "latex")
    assert r"CE & ours & $90.53 \pm 0.35^{=}$ & " in latex
    assert r" & paper & $90.50 \pm 0.22$ & " in latex
    assert [latex.count(rule) for rule in (r"\toprule", r"\midrule", r"\bottomrule", r" \\")] == [1, 1, 1, 1 + 2 * 14]


def test_the_words_say_what_the_whole_table_shows():
    text = summary(join(TABLE, WHOLE).results)
    assert "117 of 117 cells are measured." in text
    assert "117 agree with the paper, 0 are above it and 0 below" in text
    assert "ours minus the paper's, is +0.03 points" in text
    assert "After Holm's correction for multiple comparisons no cell differs." in text
    assert "Kendall's tau between our ranking of the losses and the paper's is 1.00 [" in text


def test_the_words_name_what_is_off():
    shifted = [run(c, 123 + i, c.mean + 2.0 + offset) for c in TABLE if not c.quoted_from for i, offset in enumerate(OFFSETS)]
    assert "is +2.03 points [+2.03, +2.03]: chance does not explain it" in summary(join(TABLE, shifted).results)
    one_off = [record for record in WHOLE if record["recipe"]["loss"] != "nce" or record["recipe"]["noise"] != "none"]
    one_off += [run(cell("NCE", "clean", 0.0), 123 + i, 95.0 + offset) for i, offset in enumerate(OFFSETS)]
    text = summary(join(TABLE, one_off).results)
    assert "these differ: NCE at clean (+19.55, p = " in text
    assert summary(join(TABLE, []).results) == "sym_asym, cifar10: none of 117 cells is measured."
    assert "Too few losses are measured at the same noise" in summary(join(TABLE, [run(cell(), 123, 64.0)]).results)


def test_a_network_tested_on_two_sets_counts_for_both():
    (trained,) = {
        run.cells for run in planned_runs(chosen_cells(tables=["real_world"], losses=["CE"])).runs if len(run.cells) == 2
    }
    record = run(trained[0], 123, 66.0)
    record["result"]["ilsvrc12_accuracy"] = 0.6
    found = {result.cell.dataset: result.sample.mean for result in join(trained, [record]).results}
    assert found == {"webvision": pytest.approx(66.0), "ilsvrc12": pytest.approx(60.0)}


@pytest.mark.parametrize("how", FORMATS)
def test_every_format_prints_every_table_with_and_without_runs(how):
    assert formatted(join(cells(), []).results, how)
    assert formatted(join(cells(), WHOLE[:50]).results, how)


def test_an_unknown_format_is_refused():
    with pytest.raises(ValueError, match="unknown format 'latx'; did you mean 'latex'"):
        formatted([], "latx")


CLASSES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]


def by_class(cell, seed, *missing, right=0.9):
    """A run that is never right on some classes, and right on nine of ten images of the others."""
    shares = [0.0 if name in missing else right for name in CLASSES]
    record = run(cell, seed, 10 * sum(shares))
    record["result"]["accuracy_by_class"] = shares
    record["task"]["class_names"] = CLASSES
    return record


def test_a_cell_that_stands_out_says_on_which_classes_its_runs_are_never_right():
    column = chosen_cells(tables=["agce_mae_all"], noises=["symmetric:0.4"])
    at = {(c.loss, c.alpha, c.beta): c for c in column}
    one, some, all_right = at["AGCE+MAE", 1.0, 10.0], at["AGCE+MAE", 1.0, 1.0], at["MAE", None, None]
    records = [by_class(one, 123, "dog", right=0.8), by_class(some, 123, "dog", "cat", "deer"), by_class(all_right, 123)]
    results = join(column, records).results
    found = {result.name: result for result in results if result.sample}
    assert found["AGCE+MAE 1,10"].classes == "never right on dog"
    assert found["AGCE+MAE 1,1"].classes == "never right on 3 of 10 classes"
    assert found["MAE"].classes == ""
    text = summary(results)
    assert re.search(r"AGCE\+MAE 1,10 at sym 0.4 \(-13.86, p = [\d.e-]+; never right on dog\)", text)
    assert re.search(r"AGCE\+MAE 1,1 at sym 0.4 \(-22.25, p = [\d.e-]+; never right on 3 of 10 classes\)", text)
    assert "In 2 of the 3 cells with accuracies by class, runs of ours are never right on some classes" in text
    assert "up to 10 points each" in text
    against = answer(results).sentences
    assert any("AGCE+MAE 1,10 at symmetric 0.4 (-13.9; never right on dog)" in sentence for sentence in against)


@pytest.mark.parametrize(
    ("second", "seeds", "said"),
    [(["dog"], [123], True), (["cat"], [123], False), (["dog"], [124], False), (["dog"], [123, 124], False)],
)
def test_cells_with_one_run_each_of_one_seed_that_lack_the_same_class_may_be_one_accident(second, seeds, said):
    column = chosen_cells(tables=["agce_mae_all"], noises=["symmetric:0.4"])
    at = {(c.alpha, c.beta): c for c in column if c.loss == "AGCE+MAE"}
    records = [by_class(at[1.0, 10.0], 123, "dog")] + [by_class(at[1.0, 1.0], seed, *second) for seed in seeds]
    sentences = answer(join(column, records).results).sentences
    assert any("2 of them may share one cause: each is a single run, with the same seed" in s for s in sentences) == said


@pytest.mark.parametrize(
    ("missed", "said"),
    [
        ([["dog"], [], []], "1 of 3 runs never right on dog"),
        ([["dog", "truck"], ["dog", "truck"]], "2 of 2 runs never right on dog or truck"),
        ([["dog"], ["truck"]], "2 of 2 runs never right on 1 of 10 classes"),
        ([["dog"], ["cat", "dog", "truck"], []], "2 of 3 runs never right on up to 3 of 10 classes"),
        ([[], []], ""),
    ],
)
def test_runs_that_differ_in_the_classes_they_miss_are_counted(missed, said):
    (found,) = join([cell()], [by_class(cell(), 123 + i, *names) for i, names in enumerate(missed)]).results
    assert found.classes == said


def test_classes_are_told_by_the_runs_that_count_and_by_those_alone():
    """Neither a run in another precision nor the tested images of another set count; old records say nothing."""
    records = [by_class(cell(), 123, "dog"), by_class(cell(), 124)]
    records[0]["recipe"]["precision"] = "tf32"
    (found,) = join([cell()], records).results
    assert (found.told_by_class, found.classes, found.as_dict()["never_right"]) == (True, "", {})
    assert "accuracies by class" not in summary([found])
    (old,) = join([cell()], [run(cell(), 123, 64.0)]).results
    assert (old.told_by_class, old.classes) == (False, "")
    trained = next(c for c in cells(table="real_world", loss="CE") if c.dataset == "ilsvrc12")
    web = by_class(trained, 123, "dog")
    web["result"]["ilsvrc12_accuracy"] = 0.6
    assert [r.classes for r in join([trained], [web]).results] == [""]


def test_json_has_the_classes_by_seed_and_names_are_not_trusted():
    record = by_class(cell(), 125, "dog")
    (found,) = join([cell()], [record]).results
    assert found.as_dict()["never_right"] == {"125": [5]}
    foreign = [*"01234", "\x1b[31m"]
    for names, said in (("odd", "class 5"), (CLASSES[:2], "class 5"), (foreign, r"\x1b[31m"), (list("012345"), "class 5")):
        record["task"]["class_names"] = names
        assert found.classes == f"never right on {said}"
    record["result"]["accuracy_by_class"] = {"dog": 0.0}
    assert found.classes == ""


def test_the_answer_begins_with_the_losses_that_the_paper_proposes():
    own, rest = (
        [cell for cell in chosen_cells(tables=["human"]) if (cell.loss in ("JAL-CE", "JAL-FL")) == whether]
        for whether in (True, False)
    )
    records = [run(cell, 123, cell.mean - 1.0) for cell in own] + [run(cell, 123, cell.mean + 5.0) for cell in rest]
    first = answer(join([*own, *rest], records).results).sentences[0]
    assert f"of the {len(own)} results of JAL-CE and JAL-FL, which the paper proposes, agree with it" in first
    assert "The mean difference, ours minus the paper's, is -1.00 percentage points (95 % interval -1.00 to -1.00)" in first
