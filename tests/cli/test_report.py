"""``noiseproof report``, as a person types it."""

import json
import shlex
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from noiseproof import paper
from noiseproof.cli import app
from noiseproof.paper.agreement import join
from noiseproof.paper.answer import text_results, with_text_results
from noiseproof.paper.groups import paper_groups
from noiseproof.report import read_records, read_runs
from noiseproof.report.page import group_runs
from noiseproof.train import Recipe

RECORDS = Path(__file__).resolve().parents[2] / "records"
SHORT = ("--set", "epochs=2", "--set", "model.hidden=[16]", "--quiet")


def noiseproof(*words):
    return CliRunner(env={"COLUMNS": "300"}).invoke(app, [str(word) for word in words])


def dry_run(command):
    """The recipe that a printed command trains."""
    words = shlex.split(command.removesuffix(" --data DIR"))
    assert words[:2] == ["noiseproof", "train"]
    done = noiseproof(*words[1:], "--dry-run", "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)["recipe"]


def without_observed(recipe):
    return {name: value for name, value in recipe.items() if name != "confidence_epochs"}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    for loss in ("ce", "jal-ce"):
        assert noiseproof("train", f"digits/{loss}", "--noise", "symmetric:0.4", "--out", root, *SHORT).exit_code == 0
    return root


def test_folders_and_records_become_one_page(runs, tmp_path):
    out = tmp_path / "report.html"
    done = noiseproof("report", runs, RECORDS / "reproduction.jsonl", "--out", out)
    assert done.exit_code == 0, done.output
    text = out.read_text(encoding="utf-8")
    count = len((RECORDS / "reproduction.jsonl").read_text(encoding="utf-8").splitlines()) + 2
    assert f"{count} runs, {out.stat().st_size} bytes" in done.stdout
    assert "of 425 cells" not in text
    assert "noiseproof train jal-ce" in text.replace("<span>", "").replace("</span>", "")
    assert "of them repeat the paper's numbers: noiseproof reproduce --records " in done.stdout
    assert list(tmp_path.iterdir()) == [out]


def test_errors_say_what_is_wrong(runs, tmp_path):
    for words, said in (
        (("report", tmp_path / "nothing"), "nothing does not exist; give folders of runs or .jsonl files of records"),
        (("report", runs, "--out", tmp_path / "no" / "r.html"), "No such file or directory"),
    ):
        done = noiseproof(*words)
        assert done.exit_code == 2
        assert said in done.output


def test_printed_commands_train_the_same_recipe_again():
    records = read_records(RECORDS / "reproduction.jsonl", RECORDS / "faithfulness_h200.jsonl")
    changed = json.loads(json.dumps(records[0]))
    changed["recipe"] |= {"l1": 0.0, "l2": 1e-4, "clip": None, "schedule": "step:5:0.1", "batch": 64}
    changed["recipe"]["loss_options"]["a"] = 12.345678901
    records.append(changed)
    results = join(paper.cells(), records).results
    groups = paper_groups(records, with_text_results(results, text_results(results, records)), "bf16")
    assert len(groups) > 30
    special = [group for group in groups if changed in group.records or group.profile == "paper-text"]
    assert len(special) > 1
    for group in groups[:: max(1, len(groups) // 40)] + special:
        recipe = Recipe.from_dict(group.recipe).as_dict()  # a record may be older than a field
        assert without_observed(dry_run(group.command)) == without_observed(recipe)


def test_the_command_of_a_run_on_own_data_trains_the_same_recipe_again(tmp_path):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "my data.npz", x=rng.normal(size=(40, 3)).astype(np.float32), y=np.arange(40) % 2)
    words = ("--data", tmp_path / "my data.npz", "--test-size", 0.25, "--out", tmp_path / "runs", *SHORT)
    assert noiseproof("train", "gce", "--set", "loss.q=0.6", *words).exit_code == 0
    (record,) = read_runs([tmp_path / "runs"])
    (group,) = group_runs([record])
    assert without_observed(dry_run(group.command)) == without_observed(record["recipe"])


def test_the_command_of_a_run_on_a_table_reads_it_in_the_same_way(tmp_path):
    rows = "".join(f"{k % 7},{k % 2},{'ab'[k % 2]},{k}\n" for k in range(40))
    (tmp_path / "data.csv").write_text(f"size,level,kind,given\n{rows}")
    (tmp_path / "test.csv").write_text(f"size,level,kind,given\n{rows}")
    reading = ("--label", "kind", "--columns", "level=category,given=drop", "--test", tmp_path / "test.csv")
    words = ("--data", tmp_path / "data.csv", "--out", tmp_path / "runs", *reading, "--drop-unlabelled", *SHORT)
    assert noiseproof("train", "ce", *words).exit_code == 0
    (record,) = read_runs([tmp_path / "runs"])
    (group,) = group_runs([record])
    again = dry_run(group.command)
    assert again["data_options"]["columns"] == {"level": "category", "given": "drop"}
    assert without_observed(again) == without_observed(record["recipe"])
