"""What a person types and sees."""

import pytest
import torch
from typer.testing import CliRunner

import noiseproof
from noiseproof.cli import app
from noiseproof.losses.facts import find_facts
from noiseproof.train import Recipe, train
from noiseproof.train.plan import FEATURE_DEFAULTS

runner = CliRunner()


def run(*arguments, columns=100):
    return runner.invoke(app, list(arguments), env={"COLUMNS": str(columns), "TERM": "dumb"})


def test_the_catalogue_is_a_table_with_every_loss():
    result = run("losses")
    assert result.exit_code == 0
    for entry in noiseproof.list_losses():
        assert entry.name in result.output


def test_the_table_fits_eighty_columns():
    assert max(len(line.rstrip()) for line in run("losses", columns=80).output.splitlines()) <= 80


@pytest.mark.parametrize("entry", noiseproof.list_losses(), ids=lambda entry: entry.name)
def test_every_loss_has_a_page_without_markup(entry):
    result = run("losses", entry.name)
    assert result.exit_code == 0
    assert entry.title in result.output
    assert entry.cls.__name__ in result.output
    for markup in (":math:", ":class:", ":meth:", "``", "\\", ".. math"):
        assert markup not in result.output


@pytest.mark.parametrize("entry", noiseproof.list_losses(), ids=lambda entry: entry.name)
def test_the_code_on_a_page_runs(entry):
    width = 512 if entry.reads == "features" else 10
    given = {"logits": torch.randn(4, width), "features": torch.randn(4, width), "target": torch.arange(4)}
    given |= {"means": torch.randn(10, 512), "root_freedom": torch.ones(10), "noiseproof": noiseproof}
    given |= {"model": torch.nn.Linear(2, 2)}
    for line in find_facts(entry.name).usage:
        assert line in run("losses", entry.name).output
        exec(line, given)
        if line.startswith("criterion"):
            given["criterion"](given["logits"], given["target"])


def test_a_page_explains_the_symbols_it_uses_and_no_others():
    plain, focal = run("losses", "ce").output, run("losses", "nfl").output
    assert "p: the softmax" in plain
    assert "the focal term" not in plain
    assert "the entropy" not in plain
    assert "F(p): (1 - p)**gamma * -log(p), the focal term" in focal
    assert "w1, w2: the two largest label weights" in run("losses", "amse").output


def test_a_page_shows_the_regularisation_that_is_recommended_for_the_loss():
    """The strengths of the paper, where a user looks."""
    page = " ".join(run("losses", "jal-ce").output.split())
    assert "L1 5e-05: small images, 10 classes" in page
    assert "L1 5e-06: small images, 100 classes" in page
    assert "L2 0.001: photographs, a pre-trained network" in page
    assert "decay = noiseproof.L1(model, 5e-05) loss = criterion(logits, target) + decay()" in page
    assert "L1 5e-07: small images, 100 classes" in " ".join(run("losses", "anl-fl").output.split())
    assert "L1" not in run("losses", "gce").output
    assert "regularisation not in the paper" in " ".join(run("losses", "dft").output.split())
    assert "with its recommended regularisation" in run("losses").output


def test_a_wrong_name_ends_with_a_hint():
    result = run("losses", "gec")
    assert result.exit_code == 2
    assert "did you mean 'gce'?" in result.output


def tab(line):
    """What the TAB key offers at the end of a line in bash."""
    words = {"COMP_WORDS": line, "COMP_CWORD": str(line.count(" ")), "_NOISEPROOF_COMPLETE": "complete_bash"}
    return runner.invoke(app, [], prog_name="noiseproof", env=words).output.split()


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("trian digits/ce", "no such command 'trian'; did you mean 'train'? 'noiseproof --help' says more"),
        ("noise shw", "no such command 'shw'; did you mean 'show'? 'noiseproof noise --help' says more"),
        ("--vresion", "no such option: --vresion"),
        ("train x --tset-size=1", "no such option: --tset-size"),
        ("train digits/ce --epochs 3", "no such option: --epochs; '--set KEY=VALUE' changes a recipe; 'noiseproof train"),
        ("report --epochs 3", "no such option: --epochs; 'noiseproof report --help' says more"),
        ("train --bogus", "no such option: --bogus"),
        ("compare", "missing argument 'LOSSES'; "),
        ("noise make symmetric:0.3", "missing option '--out'"),
        ("train digits/ce --seed abc", "invalid value for '--seed'"),
        ("train digits/ce --seed 18446744073709551616", "invalid value for '--seed'"),
        ("train digits/ce twice", "got unexpected extra argument"),
        ("train digits/ce --seed", "option '--seed' requires an argument; "),
        ("data fetch a\x1b[31m\n b c", r"got unexpected extra argument"),
    ],
)
def test_wrong_usage_is_one_sentence_with_status_2(typed, said):
    result = runner.invoke(app, typed.split(" "), env={"TERM": "dumb"}, prog_name="noiseproof")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith(f"error: {said}")
    assert result.stderr.count("\n") == 1
    assert "\x1b" not in result.stderr


def test_a_wrong_value_is_said_with_its_option_and_the_value():
    for value in ("abc", "4294967296"):
        said = run("train", "digits/ce", "--seed", value).stderr
        assert "--seed" in said
        assert value in said


def test_no_arguments_are_answered_by_the_help():
    for arguments in ((), ("noise",)):
        assert "Usage: " in run(*arguments).output


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("noiseproof lo", ["losses"]),
        ("noiseproof losses jal", ["jal-ce", "jal-fl"]),
        ("noiseproof noise show sym", ["symmetric:0.4"]),
        ("noiseproof noise make pairflip:", ["pairflip:0.2", "pairflip:0.4", "pairflip:0.6", "pairflip:0.8"]),
        ("noiseproof noise make pairflip:0.2 --dataset cif", ["cifar10", "cifar100"]),
        ("noiseproof train jal", ["jal-ce", "jal-fl"]),
        ("noiseproof train cifar10/jal", ["cifar10/jal-ce", "cifar10/jal-fl"]),
        ("noiseproof train ce --noise inst", ["instance:0.4"]),
        ("noiseproof train ce --model resnet3", ["resnet34"]),
        ("noiseproof compare ce,jal-c", ["ce,jal-ce"]),
        ("noiseproof compare ce --dataset dig", ["digits"]),
        ("noiseproof theory check anl", ["anl-ce", "anl-fl"]),
        ("noiseproof data show dig", ["digits"]),
        ("noiseproof data fetch cifar100", ["cifar100", "cifar100-python"]),
        ("noiseproof losses zzz", []),
    ],
)
def test_names_are_completed(line, offered):
    assert tab(line) == offered


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_completion_script_of_a_shell_is_given(shell):
    result = runner.invoke(app, [], prog_name="noiseproof", env={"_NOISEPROOF_COMPLETE": f"source_{shell}"})
    assert result.exit_code == 0
    assert f"_NOISEPROOF_COMPLETE=complete_{shell}" in result.output
    assert "--install-completion" in run("--help").output


def test_the_version_is_shown():
    assert run("--version").output.strip() == f"noiseproof {noiseproof.__version__}"


def test_jal_beats_cross_entropy_on_wrong_labels():
    """What docs/tutorials/get_started.md compares, one seed: far apart (37 points measured), so one seed is enough."""
    facts = {"dataset": "digits", "noise": "symmetric:0.6", "seed": 0, **FEATURE_DEFAULTS}
    results = {loss: train(Recipe(loss=loss, **facts)).record.result for loss in ("ce", "jal-ce")}
    assert results["jal-ce"]["test_accuracy"] > results["ce"]["test_accuracy"] + 0.1
    assert results["jal-ce"]["wrong_labels_memorised"] < 0.15 < 0.4 < results["ce"]["wrong_labels_memorised"]
