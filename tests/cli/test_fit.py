"""``noiseproof fit`` and ``noiseproof predict`` on its folder, as a person types them and sees them."""

import csv
import json
import re
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

import noiseproof
from noiseproof.cli import app

FEW = ("--learners", "logistic-0.01,neighbours-40,forest-3")


def call(*arguments):
    return CliRunner().invoke(app, [*map(str, arguments)], env={"COLUMNS": "100", "TERM": "dumb"})


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A table with a fifth of its labels wrong, further rows with right labels, and a model."""
    folder = tmp_path_factory.mktemp("fit")
    g = np.random.default_rng(0)
    for name, rows, wrong in (("train.csv", 160, 0.2), ("new.csv", 60, 0.0)):
        right = g.integers(2, size=rows)
        given = np.where(g.random(rows) < wrong, 1 - right, right)
        lines = ["age,plan,ward,outcome"]
        for k in range(rows):
            age, plan = 40 + 9 * right[k] + 3 * g.normal(), ("basic", "pro")[right[k] ^ int(g.random() < 0.2)]
            lines.append(f"{age:.2f},{plan},{k // 4},{('well', 'ill')[given[k]]}")
        (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    done = call("fit", folder / "train.csv", "--label", "outcome", "--groups", "ward", "--out", folder / "model", *FEW)
    assert done.exit_code == 0, done.output
    (folder / "printed.txt").write_text(done.output, encoding="utf-8")
    return folder


def test_the_verdict_is_printed_with_what_to_do_next(place):
    printed = (place / "printed.txt").read_text(encoding="utf-8")
    assert "train: 160 rows, 2 classes" in printed
    assert re.search(r"About \d+\.\d % of the labels are wrong \(95 % interval", printed)
    assert "On correct labels, estimated without them" in printed
    assert "plain training, logistic regression" in printed
    assert "next: noiseproof predict" in printed
    assert "ward left out: as asked" in printed


def test_the_folder_has_the_model_the_audit_and_the_page(place):
    names = {path.name for path in (place / "model").iterdir()}
    assert {"model.json", "learners", "report.html", "audit.csv", "posterior.npz", "transition.csv"} <= names
    page = (place / "model" / "report.html").read_text(encoding="utf-8")
    for text in ("Leaderboard", "Which classes are confused", "Flagged labels", "neighbours-40", "plain-logistic"):
        assert text in page
    assert not re.search(r"(src|href)=\"https?:", page)


def test_the_labels_of_a_file_are_learnt_instead(place, tmp_path):
    """The other way round: then a model that predicts the data's own labels would be wrong nearly everywhere."""
    given = [line.rpartition(",")[2] for line in (place / "train.csv").read_text(encoding="utf-8").splitlines()[1:]]
    np.save(tmp_path / "turned.npy", [int(label == "ill") for label in given])  # of ill, well by their numbers 0, 1
    table, out = place / "train.csv", tmp_path / "model"
    done = call("fit", table, "--label", "outcome", "--labels", tmp_path / "turned.npy", "--out", out, "--groups", "ward", *FEW)
    assert done.exit_code == 0, done.output
    first, turned = (noiseproof.load(model).predict(place / "new.csv") for model in (place / "model", out))
    assert (np.asarray(first) == np.asarray(turned)).mean() < 0.2
    page = re.sub(r"</?span>", "", (out / "report.html").read_text(encoding="utf-8"))
    assert "turned.npy --decisions decisions.csv" in page
    assert "turned.npy --labels" not in page
    done = call("fit", table, "--label", "outcome", "--labels", tmp_path / "gone.npy", "--out", tmp_path / "x", *FEW)
    assert "gone.npy" in done.output
    assert done.exit_code == 2


def test_predict_reads_new_rows_by_the_names_of_their_columns(place, tmp_path):
    done = call("predict", place / "model", "--data", place / "new.csv", "--out", tmp_path / "p.csv")
    assert done.exit_code == 0, done.output
    assert "60 examples predicted" in done.output
    assert re.search(r"\d\d\.\d\d % of the labels in", done.output)
    with (tmp_path / "p.csv").open() as file:
        rows = list(csv.DictReader(file))
    with (place / "new.csv").open() as file:
        right = [row["outcome"] for row in csv.DictReader(file)]
    assert np.mean([row["predicted"] == label for row, label in zip(rows, right, strict=True)]) > 0.85
    assert float(rows[0]["p_ill"]) + float(rows[0]["p_well"]) == pytest.approx(1, abs=1e-5)
    reordered = tmp_path / "reordered.csv"
    table = [line.split(",") for line in (place / "new.csv").read_text(encoding="utf-8").splitlines()]
    reordered.write_text("".join(f"{plan},{age}\n" for age, plan, *_ in table), encoding="utf-8")
    call("predict", place / "model", "--data", reordered, "--out", tmp_path / "q.csv")
    with (tmp_path / "q.csv").open() as file:
        assert [row["p_ill"] for row in csv.DictReader(file)] == [row["p_ill"] for row in rows]


def test_predict_decides_for_another_metric_without_training(place, tmp_path):
    model = noiseproof.load(place / "model")
    for metric in ("accuracy", "balanced_accuracy"):
        file = tmp_path / f"{metric}.npz"
        done = call("predict", place / "model", "--data", place / "new.csv", "--out", file, "--metric", metric)
        assert done.exit_code == 0, done.output
        with np.load(file) as found:
            assert (found["predicted"] == model.decide(found["probabilities"], metric)).all()


def test_the_same_command_again_returns_the_model_at_once(place):
    again = call(
        "fit",
        place / "train.csv",
        "--label",
        "outcome",
        "--groups",
        "ward",
        "--out",
        place / "model",
        *FEW,
        "--json",
        "--quiet",
    )
    assert again.exit_code == 0, again.output
    found = json.loads(again.stdout)
    assert found["rows"] == 160
    assert found["model"]["accuracy"][0] == pytest.approx(noiseproof.load(place / "model").verdict.model.accuracy.value)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--label", "nothing"), "no column is called 'nothing'"),
        (("--label", "outcome", "--learners", "magic"), "unknown learner 'magic'"),
        (("--label", "outcome", "--groups", "street"), "'street'"),
        (("--label", "outcome", "--folds", "400"), "folds must be at most 160"),
        (("--metric", "auc"), "--metric"),
    ],
)
def test_a_slip_is_answered_with_a_sentence(place, tmp_path, arguments, said):
    done = call("fit", place / "train.csv", "--out", tmp_path / "model", *arguments)
    assert done.exit_code == 2
    assert said in done.output
    assert done.output.strip().splitlines()[-1].startswith("error: ")


def test_ctrl_c_says_that_the_same_command_resumes(place, tmp_path, monkeypatch):
    module = sys.modules["noiseproof.cli.fit"]  # its function has the same name in the package

    def stop(self, stage):
        self.done, self.total = stage.done, stage.total
        raise KeyboardInterrupt

    monkeypatch.setattr(module.FitProgress, "__call__", stop)
    arguments = ("fit", place / "train.csv", "--label", "outcome", "--out", tmp_path / "model", *FEW)
    done = call(*arguments)
    assert done.exit_code == 130
    assert "stopped; the same command resumes after 1 of 20 parts" in done.output
    monkeypatch.undo()
    assert call(*arguments).exit_code == 0
