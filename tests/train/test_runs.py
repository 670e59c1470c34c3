"""Runs are known by what they are: found under any folder's name, with data under any path, and readable in later versions."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import noiseproof
from noiseproof import paper
from noiseproof.cli import app
from noiseproof.cli.train_view import result_line
from noiseproof.train import (
    CheckpointError,
    Outcome,
    Recipe,
    Record,
    RunStore,
    StoredRun,
    folder_name,
    identity,
    override,
    prepare,
    train,
    train_concurrently,
)
from noiseproof.train import runs as checkpoints
from noiseproof.train.record import task_facts
from noiseproof.train.runs import recipe_key

ROOT = Path(__file__).resolve().parents[2]
EARLIER = Path(__file__).parent / "data" / "record_of_an_earlier_version.json"
"""Of 'noiseproof train digits/jal-ce --noise symmetric:0.4 --set epochs=2 --set model.hidden=[16]'"""
EARLIER_NAME = "digits_jal-ce_symmetric-0.4_seed123_e5e0306a"
"""The folder that the version which wrote it gave that run: the digest was of the changes alone"""
WORDS = ["train", "digits/jal-ce", "--noise", "symmetric:0.4", "--set", "epochs=2", "--set", "model.hidden=[16]"]


def earlier_recipe():
    return override(paper.recipe("digits/jal-ce", noise="symmetric:0.4", seed=123), {"epochs": 2, "model.hidden": [16]})


def facts_of(recipe):
    return recipe.as_dict(), task_facts(recipe, prepare(recipe))


def features(path, seed=0):
    y = np.arange(60) % 3
    np.savez(path, x=np.random.default_rng(seed).normal(size=(60, 4)) + y[:, None], y=y)
    return str(path)


def command(out, *more):
    return CliRunner().invoke(app, [*WORDS, "--out", str(out), *more], env={"COLUMNS": "100", "TERM": "dumb"})


def test_noise_from_a_file_is_known_by_its_labels_and_other_noise_by_its_name_too():
    """A path alone is that of a matrix."""
    recipe, task = facts_of(earlier_recipe())

    def known(noise):
        return identity({**recipe, "noise": noise}, task)

    assert known("labels:a.npy") == known("labels:elsewhere/b.npy#x") == known("elsewhere/b.npy")
    assert len({known(noise) for noise in ("labels:a.npy", "none", "symmetric:0.2", "symmetric:0.4")}) == 4


def test_a_run_is_the_same_wherever_its_files_are(tmp_path):
    (tmp_path / "moved").mkdir()
    np.save(tmp_path / "given.npy", np.arange(60) % 3)
    np.save(tmp_path / "moved" / "labels.npy", np.arange(60) % 3)
    recipes = [
        Recipe(dataset=features(tmp_path / "mine.npz"), loss="ce", noise=f"labels:{tmp_path / 'given.npy'}"),
        Recipe(dataset=str(tmp_path / "moved" / "renamed.npz"), loss="ce", noise=f"labels:{tmp_path / 'moved' / 'labels.npy'}"),
    ]
    shutil.copy(recipes[0].dataset, recipes[1].dataset)
    assert len({identity(*facts_of(recipe)) for recipe in recipes}) == 1
    store = RunStore(tmp_path / "runs")
    train(recipes[0], folder=store.folder_for(recipes[0], facts_of(recipes[0])[1]))
    folder = store.folder_for(recipes[1], facts_of(recipes[1])[1])
    assert folder == tmp_path / "runs" / folder_name(recipes[0])
    assert train(recipes[1], folder=folder).record.recipe == recipes[0].as_dict()


@pytest.mark.parametrize("change", ["data", "labels", "lr", "seed", "weights", "option"])
def test_another_run_is_another_one(tmp_path, change):
    np.save(tmp_path / "given.npy", np.arange(60) % 3)
    first = Recipe(dataset=features(tmp_path / "mine.npz"), loss="gce", noise=f"labels:{tmp_path / 'given.npy'}")
    before, second = facts_of(first), first
    if change == "data":
        features(tmp_path / "mine.npz", seed=1)
    elif change == "labels":
        np.save(tmp_path / "given.npy", np.arange(1, 61) % 3)
    elif change == "weights":
        (tmp_path / "weights.pt").write_bytes(b"some")
        second = override(first, {"weights": str(tmp_path / "weights.pt")})
    else:
        second = override(first, {"loss.q": 0.5} if change == "option" else {change: 1})
    assert identity(*before) != identity(*facts_of(second))


def test_weights_count_by_their_content(tmp_path):
    found = []
    for name, content in (("a.pt", b"some"), ("b.pt", b"some"), ("b.pt", b"other")):
        (tmp_path / name).write_bytes(content)
        found.append(identity(*facts_of(override(earlier_recipe(), {"weights": str(tmp_path / name)}))))
    assert found[0] == found[1] != found[2]


def test_numbers_count_by_value_and_missing_fields_by_their_default():
    recipe, task = facts_of(override(earlier_recipe(), {"loss.a": 20}))
    expected = identity(recipe, task)
    assert identity({**recipe, "loss_options": {"a": 20.0}}, task) == expected
    assert identity({name: value for name, value in recipe.items() if name != "test_size"}, task) == expected
    assert identity({**recipe, "field_of_a_later_version": 1}, task) != expected


def test_a_record_of_an_earlier_version_reads_as_it_is():
    facts = json.loads(EARLIER.read_text(encoding="utf-8"))
    for epoch in facts["epochs"]:
        assert epoch.pop("other_accuracies") == {}, "which is no longer kept of each epoch"
    assert Record.from_dict(json.loads(EARLIER.read_text(encoding="utf-8"))).as_dict() == facts
    assert identity(facts["recipe"], facts["task"]) == identity(*facts_of(earlier_recipe()))


def test_a_finished_run_of_an_earlier_version_is_shown(tmp_path):
    train(earlier_recipe(), folder=tmp_path / EARLIER_NAME)
    shutil.copy(EARLIER, tmp_path / EARLIER_NAME / "record.json")
    result = command(tmp_path)
    assert result.exit_code == 0, result.output
    assert "finished before: nothing is trained now" in result.output
    assert "18.40 % test accuracy in the last epoch, 2" in result.output
    assert [path.name for path in tmp_path.iterdir()] == [EARLIER_NAME]
    assert json.loads(command(tmp_path, "--dry-run", "--json").stdout)["folder"] == str(tmp_path / EARLIER_NAME)


@pytest.mark.parametrize("name", [EARLIER_NAME, "jal-ce_symmetric-0.4_float32_seed123"])
def test_an_unfinished_run_under_another_name_is_resumed(tmp_path, interrupted, files, name):
    interrupted(earlier_recipe(), tmp_path / "runs" / name, 2)
    result = command(tmp_path / "runs")
    assert "resumes after epoch 1" in result.output
    train(earlier_recipe(), folder=tmp_path / "whole")
    assert [path.name for path in (tmp_path / "runs").iterdir()] == [name]
    (tmp_path / "runs" / name / "curves.png").unlink()  # the command's
    assert files(tmp_path / "runs" / name) == files(tmp_path / "whole")


def test_a_record_outlives_its_loss_and_its_recipes_fields(tmp_path):
    facts = json.loads(EARLIER.read_text(encoding="utf-8"))
    facts["recipe"] |= {"loss": "gone-loss", "gone_field": 3, "model": "gone-model"}
    facts["loss"] = "GoneLoss(a=1)"
    facts["epochs"][0]["gone_number"] = 1
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "record.json").write_text(json.dumps(facts), encoding="utf-8")
    record = Record.read(tmp_path / "run")
    assert record.as_dict()["recipe"] == facts["recipe"]
    assert record.as_dict()["loss"] == "GoneLoss(a=1)"
    assert result_line(record).startswith("18.40 % test accuracy in the last epoch, 2")
    (run,) = RunStore(tmp_path).runs()
    assert (run.status, run.folder, run.facts["recipe"]["loss"]) == ("finished", tmp_path / "run", "gone-loss")
    with pytest.raises(
        CheckpointError, match=r"is of another run: loss is 'gone-loss', not 'jal-ce'.*gone_field is 3, not None"
    ):
        train(earlier_recipe(), folder=tmp_path / "run")


def test_lines_of_records_read_unchanged_and_are_runs_too():
    lines = [json.loads(line) for line in (ROOT / "records" / "faithfulness_h200.jsonl").read_text().splitlines()]
    for line in lines:
        read = Record.from_dict(line).as_dict()
        assert all(read[key] == line[key] for key in ("result", "recipe", "task", "environment", "seconds"))
    runs = [StoredRun.of(line) for line in lines]
    assert {run.status for run in runs} == {"finished"}
    assert len({run.identity for run in runs}) == len(lines)


def test_a_store_lists_every_run_and_says_what_it_cannot_read(tmp_path, digits):
    short = override(digits, {"epochs": 1})
    train(short, folder=tmp_path / "a")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "record.json").write_text("{", encoding="utf-8")
    (tmp_path / "no run").mkdir()
    store = RunStore(tmp_path)
    first, second = store.runs()
    assert (first.status, first.folder, first.identity) == ("finished", tmp_path / "a", identity(*facts_of(short)))
    assert "epochs" not in first.facts
    assert second.status == "unreadable"
    assert "b/record.json: not the record of a run" in second.facts["message"]
    assert store.find(first.identity) == first
    assert store.find("0" * 64) is None
    facts = json.loads((tmp_path / "a" / "record.json").read_text(encoding="utf-8"))
    (tmp_path / "a" / "record.json").unlink()
    (tmp_path / "b" / "record.json").write_text(json.dumps({**facts, "status": "running"}), encoding="utf-8")
    assert [(run.status, run.folder.name) for run in store.runs()] == [("running", "b")]
    assert list(RunStore(tmp_path / "nowhere").runs()) == []


def test_of_two_folders_the_finished_run_is_found(tmp_path, digits, interrupted):
    interrupted(digits, tmp_path / "a", 3)
    train(digits, folder=tmp_path / "b")
    assert RunStore(tmp_path).folder_for(digits, facts_of(digits)[1]) == tmp_path / "b"


def test_runs_side_by_side_are_written_to_a_store(tmp_path, digits):
    recipes = [override(digits, {"epochs": 1, "seed": seed}) for seed in (1, 2)]
    train(recipes[0], folder=tmp_path / "by another name")
    outcomes = train_concurrently(recipes, store=RunStore(tmp_path))
    assert all(isinstance(outcome, Outcome) for outcome in outcomes)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["by another name", folder_name(recipes[1])]


@pytest.mark.parametrize("number", [0, 2])
@pytest.mark.parametrize("where", ["facts", "file"])
def test_a_checkpoint_of_another_format_is_refused_with_the_reason(tmp_path, digits, interrupted, monkeypatch, where, number):
    interrupted(digits, tmp_path, 3)
    tensors, facts = checkpoints.read_checkpoint(tmp_path)
    if where == "file":
        monkeypatch.setattr(checkpoints, "CHECKPOINT_FORMAT", str(number))
    checkpoints.write_checkpoint(tmp_path, tensors, {**facts, "format": number} if where == "facts" else facts)
    monkeypatch.undo()
    reason = f"of another version of noiseproof: format 1 expected, found {number}" if where == "facts" else f"not {number}"
    reason += f"; noiseproof {noiseproof.__version__} wrote and reads it; move" if number > 1 else "; move"
    with pytest.raises(CheckpointError, match=reason):
        train(digits, folder=tmp_path)


def test_a_checkpoint_with_a_field_that_is_gone_is_refused_with_its_name(tmp_path, digits, interrupted):
    interrupted(digits, tmp_path, 3)
    tensors, facts = checkpoints.read_checkpoint(tmp_path)
    facts["recipe"]["gone_field"] = 3
    checkpoints.write_checkpoint(tmp_path, tensors, facts)
    (tmp_path / "record.json").unlink()
    with pytest.raises(CheckpointError, match="is of another run: gone_field is 3, not None"):
        train(digits, folder=tmp_path)


def test_the_loss_is_written_once_and_kept(tmp_path, digits, interrupted):
    """Its words may change with the version that resumes the run."""
    interrupted(digits, tmp_path, 3)
    tensors, facts = checkpoints.read_checkpoint(tmp_path)
    checkpoints.write_checkpoint(tmp_path, tensors, {**facts, "loss": "as it was said then"})
    assert train(digits, folder=tmp_path).record.loss == "as it was said then"
    assert Record.read(tmp_path).loss == "as it was said then"


def test_a_renamed_field_keeps_the_digest_of_its_run():
    recipe = Recipe(dataset="mine.npz", loss="ce", standardise=True, global_scaling=True, test_size=0.25)
    assert folder_name(recipe) == "mine_ce_none_seed0_fc72d100"
    former = {{"test_size": "test_share", "global_scaling": "one_scale"}.get(k, k): v for k, v in recipe.as_dict().items()}
    facts = {"name": "mine", "noise": {"hash": "0"}, "sources": {}, "classes": 2, "examples": 8, "test_examples": 2}
    assert identity(recipe.as_dict(), facts) == identity(former, facts)
    assert recipe_key(recipe.as_dict()) == recipe_key(former)


def test_data_of_a_long_name_have_a_folder_with_a_name_that_file_systems_allow():
    names = [folder_name(Recipe(dataset=f"{letter * 250}.csv", loss="ce")) for letter in ("x", "ü", "\u6f22")]
    assert all(len(name.encode()) < 200 for name in names)
    assert folder_name(Recipe(dataset="x" * 250, loss="ce")) != folder_name(Recipe(dataset="x" * 251, loss="ce"))
