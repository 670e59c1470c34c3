"""A loss of one's own, ``module:Name``, wherever a loss is named."""

import importlib
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits
from typer.testing import CliRunner

from noiseproof.cli import app
from noiseproof.sklearn import NoiseRobustClassifier
from noiseproof.train import Recipe

CODE = '''
"""Losses of my own."""

import noiseproof
import torch


class Scaled(noiseproof.CE):
    """A part of cross entropy."""

    def __init__(self, factor: float = 0.5, **contract):
        super().__init__(**contract)
        self.factor = factor

    def from_statistics(self, s):
        return self.factor * super().from_statistics(s)


class Plain(torch.nn.Module):
    def forward(self, logits, target):
        return torch.nn.functional.cross_entropy(logits, target)
'''
SHORT = ("--data", "digits", "--set", "epochs=2", "--set", "model.hidden=[16]")


@pytest.fixture(autouse=True)
def _a_module_in_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place not in ("", str(tmp_path))])
    Path("losses_of_a_user.py").write_text(CODE, encoding="utf-8")
    yield
    sys.modules.pop("losses_of_a_user", None)


def run(*words):
    return CliRunner().invoke(app, list(words), env={"COLUMNS": "100", "TERM": "dumb"})


def record():
    (path,) = Path("runs").glob("*/record.json")
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", ["losses_of_a_user:Scaled", "losses_of_a_user:Plain"])
def test_it_is_trained_and_its_run_predicts_where_the_module_is_not(name):
    done = run("train", name, *SHORT, "--quiet")
    assert done.exit_code == 0, done.output
    assert record()["recipe"]["loss"] == name
    assert len(record()["task"]["loss"]) == 64
    np.savez("new.npz", x=load_digits().data[:5].astype(np.float32))
    (folder,) = Path("runs").iterdir()
    Path("losses_of_a_user.py").unlink()
    sys.modules.pop("losses_of_a_user")
    predicted = run("predict", str(folder), "--data", "new.npz", "--out", "predicted.csv")
    assert predicted.exit_code == 0, predicted.output
    assert len(Path("predicted.csv").read_text(encoding="utf-8").splitlines()) == 6


def test_its_options_are_set_as_those_of_others():
    assert run("train", "losses_of_a_user:Scaled", *SHORT, "--set", "loss.factor=0.25", "--quiet").exit_code == 0
    assert record()["recipe"]["loss_options"] == {"factor": 0.25}


def test_a_run_of_other_code_is_not_taken_for_it():
    assert run("train", "losses_of_a_user:Scaled", *SHORT, "--quiet").exit_code == 0
    before = record()["task"]["loss"]
    Path("losses_of_a_user.py").write_text(CODE.replace("self.factor * super", "0.9 * self.factor * super"), encoding="utf-8")
    sys.modules.pop("losses_of_a_user")
    importlib.invalidate_caches()
    again = run("train", "losses_of_a_user:Scaled", *SHORT, "--quiet")
    assert again.exit_code == 2
    assert f"its loss's lines of code were {before}" in again.stderr


def test_it_is_compared_shown_and_checked():
    losses = "ce,losses_of_a_user:Scaled(factor=0.2)"
    compared = run("compare", losses, *SHORT, "--seeds", "1", "--jobs", "1", "--format", "json")
    assert compared.exit_code == 0, compared.output
    assert {row["loss"] for row in json.loads(compared.stdout)["losses"]} == set(losses.split(","))
    shown = run("losses", "losses_of_a_user:Scaled").output
    assert "A part of cross entropy." in shown
    assert "criterion = losses_of_a_user.Scaled(factor=0.5)" in shown
    checked = run("theory", "check", "losses_of_a_user:Scaled", "--noise", "symmetric:0.4", "--classes", "3")
    assert checked.exit_code == 0, checked.output
    assert "Scaled(factor=0.5) on 3 classes: no 3" in checked.output


def test_a_recipe_and_the_classifier_take_it(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(tmp_path))
    assert repr(Recipe("digits", "losses_of_a_user:Scaled", loss_options={"factor": 0.3}).criterion()) == "Scaled(factor=0.3)"
    x, y = load_digits(return_X_y=True)
    fitted = NoiseRobustClassifier("losses_of_a_user:Scaled", epochs=5).fit(x[:500], y[:500])
    assert fitted.score(x[500:], y[500:]) > 0.5


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("losses_of_a_user:Scald", "losses_of_a_user has no 'Scald'"),
        ("no_module_of_a_user:Loss", "cannot import no_module_of_a_user"),
        ("json:dumps", "must be a subclass of noiseproof.RobustLoss or torch.nn.Module"),
    ],
)
def test_what_is_no_loss_is_one_sentence(name, says):
    done = run("train", name, *SHORT)
    assert done.exit_code == 2
    assert says in done.stderr
    assert done.stderr.count("\n") == 1
