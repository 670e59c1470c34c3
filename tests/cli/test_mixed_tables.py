"""One messy table through every verb: from files and from objects in memory, with the same numbers to the bit."""

import contextlib
import json
import shutil
from importlib import import_module
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
from typer.testing import CliRunner

import noiseproof
from noiseproof.cli import app
from noiseproof.data import DataError, open_dataset
from noiseproof.train import RunOptions, plan_run, predict_data, train
from tests.helpers.messy_table import messy_table

SMALL = {"epochs": "2", "model.hidden": "[8]", "test_size": "0.2"}
COLUMNS = ("id", "age", "income", "city", "plan", "member", "signed", "comment")


def call(*words):
    done = CliRunner().invoke(app, [*map(str, words)], env={"COLUMNS": "100", "TERM": "dumb"})
    assert done.exit_code == 0, done.output
    return done


def every_source(rows, folder):
    """The table as files and as objects; what is not installed is left out."""
    frame, _ = messy_table(rows)
    frame.to_csv(folder / "t.csv", index=False)
    frame.to_csv(folder / "t.tsv.gz", index=False, sep="\t")
    frame.to_parquet(folder / "t.parquet")
    frame.to_feather(folder / "t.feather")
    frame.to_json(folder / "t.jsonl", orient="records", lines=True, date_format="iso")
    found = {path.name: str(path) for path in sorted(folder.iterdir())} | {"pandas": frame}
    with contextlib.suppress(ModuleNotFoundError):
        found["polars"] = import_module("polars").from_pandas(frame)
    with contextlib.suppress(ModuleNotFoundError):
        found["hugging face"] = import_module("datasets").Dataset.from_pandas(frame)
    assert len(found) >= 6
    return found


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    return every_source(500, tmp_path_factory.mktemp("messy"))


def assert_the_same_numbers(sources, folder):
    """Every verb reads every source as the first one."""
    expected = None
    new, _ = messy_table(100, seed=1)
    new = new.drop(columns="churn").assign(plan="ultra", city=None, more=1)[["more", *reversed(COLUMNS)]]
    for name, source in sources.items():
        audit = noiseproof.audit_labels(source, label="churn", quick=True, epochs=2)
        plan = plan_run("jal-ce", data=source, label="churn", changes=SMALL, runs=folder / name)
        outcome = train(plan.recipe, plan.training_data(), folder=folder / name / "run", options=RunOptions())
        predicted = noiseproof.load(folder / name / "run").probabilities(new)
        settings = {"epochs": 1, "model.hidden": [8], "test_size": 0.2}
        runs = {"settings": settings, "seeds": 1, "out": folder / name / "compared", "jobs": 1}
        compared = noiseproof.compare("ce,jal-ce", source, label="churn", **runs)
        fitted = noiseproof.fit(source, label="churn", learners=["logistic-0.01"], folds=2, jobs=1)
        advice = noiseproof.advise(audit, classes=2, kind="features", examples=len(audit.given))
        accuracy = outcome.record.result["test_accuracy"]
        means = [row["mean"] for row in compared.table()]
        found = [
            audit.posterior,
            predicted,
            [accuracy],
            means,
            fitted.predict_proba(new),
            [part.value for part in advice.parts],
        ]
        expected = expected or found
        for ours, theirs in zip(found, expected, strict=True):
            assert np.array_equal(ours, theirs), name


def test_every_source_gives_the_same_features_and_every_verb_the_same_numbers(sources, tmp_path):
    expected = open_dataset(sources["pandas"], label="churn")
    for name, source in sources.items():
        found = open_dataset(source, label="churn")
        assert np.array_equal(found.train.inputs, expected.train.inputs), name
        assert np.array_equal(found.train.labels, expected.train.labels), name
        assert (found.train.paths, found.table.lines) == (expected.train.paths, expected.table.lines), name
    assert_the_same_numbers({name: sources[name] for name in ("t.csv", "pandas")}, tmp_path)


@pytest.mark.slow
def test_every_source_of_five_thousand_rows_gives_every_verb_the_same_numbers(tmp_path):
    (tmp_path / "files").mkdir()
    assert_the_same_numbers(every_source(5000, tmp_path / "files"), tmp_path)


def test_the_commands_say_what_was_understood_and_predict_the_raw_table(sources, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    more = ("--set", "epochs=1", "--set", "model.hidden=[8]", "--test-size", "0.2")
    done = call("train", "ce", "--data", sources["t.csv"], "--label", "churn", "--columns", "city=drop", *more)
    for line in ("id left out: names the rows", "city left out: as asked", "plan category, 3 values", "comment text"):
        assert f"  {line}" in done.stdout
    assert "  churn the label, 2 classes: no, yes\n" in done.stdout
    (run,) = Path("runs").iterdir()
    assert json.loads((run / "record.json").read_text())["recipe"]["data_options"] == {
        "label": "churn",
        "columns": {"city": "drop"},
    }
    again = call("train", "ce", "--data", sources["t.csv"], "--label", "churn", "--columns", "city=drop", *more)
    assert "finished before" in again.stdout
    frame = pd.read_csv(sources["t.csv"])
    frame.drop(columns="city").to_parquet("new.parquet")
    done = call("predict", run, "--data", "new.parquet", "--out", "p.csv")
    assert "% of the labels in new.parquet are predicted" in done.stdout
    table = predict_data(noiseproof.load(run), frame)
    table.save("q.csv")
    assert Path("p.csv").read_text() == Path("q.csv").read_text()
    frame.drop(columns=["age", "plan"]).to_csv("less.csv", index=False)
    done = CliRunner().invoke(app, ["predict", str(run), "--data", "less.csv", "--out", "p.csv"])
    assert done.exit_code == 2
    assert "error: less.csv: columns 'age', 'plan' of training are missing" in done.stderr
    done = call("advise", sources["t.csv"], "--label", "churn", "--columns", "id=drop")
    assert "--label churn --columns id=drop" in done.stdout


def test_an_encoder_is_fitted_without_what_is_held_out_and_is_kept_with_the_run(tmp_path):
    frame, _ = messy_table(300)
    plan = plan_run("ce", data=frame, label="churn", changes=SMALL)
    task = plan.training_data()
    rows = np.setdiff1d(np.arange(300), task.rows)
    changed = frame.copy()
    changed.loc[rows, ["age", "income"]] = 1e6
    again = plan_run("ce", data=changed, label="churn", changes=SMALL).training_data()
    assert np.array_equal(task.train.inputs, again.train.inputs)
    assert not np.array_equal(task.test.inputs, again.test.inputs)
    train(plan.recipe, task, folder=tmp_path / "run")
    trained = noiseproof.load(tmp_path / "run")
    assert np.array_equal(trained.encoder.transform(task.table.rows["test"]), task.test.inputs)
    assert trained.table.label == "churn"


@pytest.fixture(scope="module")
def trained_once(tmp_path_factory):
    frame, _ = messy_table(200)
    plan = plan_run("ce", data=frame, label="churn", changes=SMALL)
    folder = tmp_path_factory.mktemp("trained") / "run"
    train(plan.recipe, plan.training_data(), folder=folder)
    return folder


@pytest.fixture
def kept_run(trained_once, tmp_path, monkeypatch):
    """A run to spoil, ``run`` in the current folder."""
    monkeypatch.chdir(tmp_path)
    return shutil.copytree(trained_once, tmp_path / "run")


def crafted(path, change):
    """The file of an encoder with something else in its description."""
    with safe_open(path, "np") as file:
        facts = json.loads(file.metadata()["noiseproof columns"])
    change(facts)
    save_file(load_file(path), path, {"noiseproof columns": json.dumps(facts)})
    record = json.loads((path.parent / "record.json").read_text())
    del record["files"]["encoder.safetensors"]
    (path.parent / "record.json").write_text(json.dumps(record))


PAYLOAD = "__import__('pathlib').Path('ran').touch()"
ATTACKS = {
    "an encoder that is code": lambda facts: facts["encoder"]["encoders"][0].update(encoder=PAYLOAD),
    "an encoder of a module": lambda facts: facts["encoder"]["encoders"][0].update(encoder="os:system"),
    "a number that is code": lambda facts: facts["encoder"]["encoders"][0].update(centre=PAYLOAD),
    "an object": lambda facts: facts["encoder"]["encoders"][0].update(centre={"__reduce__": ["os.system", "touch ran"]}),
    "a scale of nothing": lambda facts: facts["encoder"]["encoders"][0].update(scale=0),
    "columns with fields": lambda facts: facts["encoder"]["columns"][0].update(__class__=PAYLOAD),
    "a later version": lambda facts: facts["encoder"].update(version=99),
    "no encoders": lambda facts: facts["encoder"].update(encoders=[]),
    "no list": lambda facts: facts["encoder"].update(encoders=7),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_crafted_run_runs_no_code(attack, kept_run):
    crafted(kept_run / "encoder.safetensors", ATTACKS[attack])
    with pytest.raises(ValueError, match=r"run/encoder\.safetensors: (damaged|not the encoding)"):
        noiseproof.load("run")
    assert not Path("ran").exists()


def test_a_pickle_in_the_place_of_the_encoder_is_not_loaded(kept_run):
    import pickle

    class Payload:
        def __reduce__(self):
            return exec, (PAYLOAD,)

    (kept_run / "encoder.safetensors").write_bytes(pickle.dumps(Payload()))
    with pytest.raises(ValueError, match="it is not what the run wrote"):
        noiseproof.load("run")
    with pytest.raises(DataError, match="damaged, or not the encoding of a table"):
        noiseproof.load("run/weights.safetensors")
    assert not Path("ran").exists()


def test_the_encoder_of_another_run_is_refused(kept_run):
    """Also where only the weights are given, and its columns have the same names; weights of before name no encoder."""
    path = kept_run / "encoder.safetensors"
    with safe_open(path, "np") as file:
        facts = file.metadata()
    save_file({name: array * 2 if array.dtype.kind == "f" else array for name, array in load_file(path).items()}, path, facts)
    with pytest.raises(ValueError, match="it is not what the run wrote"):
        noiseproof.load("run")
    with pytest.raises(ValueError, match="not the encoding of the network beside it, but another run's; copy both"):
        noiseproof.load("run/weights.safetensors")
    weights = kept_run / "weights.safetensors"
    with safe_open(weights, "np") as file:
        about = json.loads(file.metadata()["noiseproof"])
    del about["encoder"]
    save_file(load_file(weights), weights, {"noiseproof": json.dumps(about)})
    assert noiseproof.load("run/weights.safetensors").table is not None


def test_a_run_whose_encoder_is_gone_is_an_error(kept_run):
    (kept_run / "encoder.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match="the encoding of the columns of this run is gone"):
        noiseproof.load(kept_run)


def test_a_file_to_test_on_and_a_column_that_says_it_are_read_by_the_verbs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    frame, _ = messy_table(300)
    frame[:200].to_csv("train.csv", index=False)
    frame[200:].to_csv("test.csv", index=False)
    frame.assign(part=["train"] * 200 + ["test"] * 100).to_csv("both.csv", index=False)
    small = ("--set", "epochs=1", "--set", "model.hidden=[8]", "--json")
    found = [
        json.loads(call("train", "ce", "--data", *words, "--label", "churn", *small).stdout)
        for words in (("train.csv", "--test", "test.csv"), ("both.csv", "--split-column", "part"))
    ]
    assert found[0]["result"] == found[1]["result"]
    record = json.loads((Path(found[0]["folder"]) / "record.json").read_text())
    assert record["task"]["sources"].keys() == {"train.csv", "test.csv"}
    with pytest.raises(ValueError, match="no table, and label is for tables"):
        open_dataset("digits", label="churn")
    with pytest.raises(FileNotFoundError, match=r"^train\.csb: no such file or folder$"):
        open_dataset("train.csb", label="churn")
    with pytest.raises(FileNotFoundError, match=r"^nothere\.csv: no such file or folder$"):
        open_dataset("nothere.csv", label="churn")
