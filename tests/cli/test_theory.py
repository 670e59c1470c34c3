"""``noiseproof theory``: what is printed, as text and as JSON."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from noiseproof import theory
from noiseproof.cli import app


def said(*words, code=0):
    result = CliRunner().invoke(app, ["theory", *map(str, words)])
    assert result.exit_code == code, result.output
    return result.output


def test_the_papers_bound_is_printed():
    assert "a >= 9 is enough for every class (q = 2)" in said("required-a", "--classes", 10, "--noise", "symmetric:0.8")
    facts = json.loads(said("required-a", "--classes", 10, "--noise", "symmetric:0.8", "--q", 3, "--format", "json"))
    assert facts["required_a"] == pytest.approx(4.739, abs=5e-4)
    assert len(facts["per_class"]) == 10
    assert facts["auto"] == 30.0
    assert "a=auto takes 18." in said("required-a", "--classes", 10, "--noise", "symmetric:0.4")
    assert "a >= 250 is enough" in (text := said("required-a", "--classes", 2, "--noise", "symmetric:0.498"))
    assert "auto" not in text


def test_classes_are_told_apart_and_those_without_an_a_are_named(tmp_path):
    file = tmp_path / "T.csv"
    np.savetxt(file, [[0.5, 0.5, 0.0], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6]], delimiter=",")
    text = said("required-a", "--matrix", file)
    assert "no a is enough for 1 of 3 classes: 0" in text
    assert "a >= 2.5 is enough for the others" in text
    assert json.loads(said("required-a", "--matrix", file, "--format", "json"))["per_class"] == [
        None,
        pytest.approx(1 / 0.7),
        pytest.approx(2.5),
    ]
    checked = json.loads(said("check", "jal-ce", "--matrix", file, "--format", "json"))
    assert [verdict["answer"] for verdict in checked["classes"]] == ["not dominant", "yes", "yes"]


def test_a_loss_is_checked_with_its_options():
    text = said("check", "jal-ce(a=3)", "--noise", "asymmetric-cifar10:0.4")
    assert "a=3" in text
    assert "yes 5, no 5" in text
    facts = json.loads(said("check", "jal-ce(a=3)", "--noise", "asymmetric-cifar10:0.4", "--format", "json"))
    assert not facts["tolerant"]
    assert sum(facts["classes"][2]["better"]) == pytest.approx(1)
    assert "the first 20 of 100" in said("check", "mae", "--noise", "symmetric:0.2", "--classes", 100)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["required-a"], "which noise"),
        (["required-a", "--noise", "symmetric:0.2"], "number of classes"),
        (["check", "jall-ce", "--noise", "symmetric:0.2", "--classes", "3"], "jal-ce"),
        (["check", "ce,gce", "--noise", "symmetric:0.2", "--classes", "3"], "one loss at a time"),
        (["check", "ce", "--noise", "symmetric:0.2", "--classes", "3", "--format", "xml"], "table or json"),
        (["check", "gjs", "--noise", "symmetric:0.2", "--classes", "3"], "reads predictions"),
        (["check", "ce", "--matrix", "nowhere.csv"], "nowhere.csv"),
    ],
)
def test_what_is_wrong_is_one_line(words, message):
    text = said(*words, code=2)
    assert message in text
    assert "Traceback" not in text


@pytest.mark.parametrize("noise", ["symmetric:0.35", "symmetric:0.8", "pairflip:0.3", "pairflip:0.45", "symmetric:0.87"])
@pytest.mark.parametrize("q", ["2", "3"])
def test_the_a_that_is_printed_as_enough_is_enough(noise, q):
    """Rounded to the nearest, 1.63636 was printed as 1.636, which is not."""
    facts = ["--noise", noise, "--classes", "10"]
    said = CliRunner().invoke(app, ["theory", "required-a", *facts, "--q", q]).output
    a = said.partition("a >= ")[2].split()[0]
    found = CliRunner().invoke(app, ["theory", "check", f"amse(a={a},q={q})", *facts, "--format", "json"])
    assert json.loads(found.output)["tolerant"], a
    assert float(a) == pytest.approx(theory.required_a(noise, float(q), classes=10), rel=1e-3)
