"""``noiseproof demo``: what it prints is what it measured, and it is honest about its rivals."""

import numpy as np
import pytest
from typer.testing import CliRunner

from noiseproof.cli import app
from noiseproof.demo import demonstrate
from noiseproof.train import Recipe, prepare

runner = CliRunner()


def run(*arguments):
    return runner.invoke(app, ["demo", *map(str, arguments)], env={"COLUMNS": "100", "TERM": "dumb"})


def test_the_demo_writes_a_model_and_a_picture_and_prints_each_rival(tmp_path):
    result = run("--quick", "--epochs", 3, "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert (tmp_path / "out" / "demo.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "out" / "model" / "model.json").is_file()
    for words in ("fit ", "JAL-CE, last epoch", "cross entropy, stopped early (epoch ", "cross entropy, last epoch"):
        assert words in result.output
    assert "% of the labels are wrong" in result.output


def test_the_demo_says_at_once_that_it_cannot_write(tmp_path):
    (tmp_path / "file").touch()
    result = run("--out", tmp_path / "file" / "out")
    assert result.exit_code == 2
    assert "error:" in result.output
    assert "fold" not in result.output


def test_the_demo_refuses_noise_that_leaves_nothing_to_learn():
    result = run("--noise", 0.95)
    assert result.exit_code == 2
    assert "0.89" in result.output


@pytest.mark.slow
def test_the_model_is_above_every_network_of_the_demo(tmp_path):
    """The claim of the demonstration at its full length, with another seed than its own."""
    shown = demonstrate(tmp_path, seed=1)
    fitted, jal, early, last = shown.accuracies.values()
    assert fitted > max(jal, early) > last + 10
    task = prepare(Recipe("digits", "ce", noise="symmetric:0.6", seed=1))
    assert shown.wrong == pytest.approx(float(np.mean(task.train.labels != task.clean)))
    low, high = shown.model.audit.rate_interval
    assert low <= shown.wrong <= high
