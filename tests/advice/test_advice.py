"""Advice: fit first, a loss that the records show ahead; what it says rests on theory, the paper or the records."""

import itertools
import json
import shlex
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import noiseproof
from noiseproof import theory
from noiseproof.advice import GAIN
from noiseproof.audit import Audit
from noiseproof.cli import app
from noiseproof.data import open_dataset
from noiseproof.losses import create_loss
from noiseproof.noise import pairflip

RECORDS = Path(__file__).parents[2] / "records"


def part(found, what):
    return next(each for each in found.parts if each.what == what)


def test_a_is_theory_s_and_the_loss_has_it():
    found = noiseproof.advise("symmetric:0.4", classes=10, kind="images")
    assert part(found, "a").value == "18"  # ten times 1 / (0.6 - 0.4 / 9)
    assert part(found, "a").basis == "theory"
    assert found.criterion().a == float(theory.choose_a("symmetric:0.4", classes=10))


@pytest.mark.parametrize(
    ("kind", "classes", "pretrained", "alpha", "strength", "l1", "l2"),
    [  # The paper's: alpha, beta times a, and the decay
        ("images", 10, False, 1.0, 30.0, 5e-5, 0.0),
        ("images", 100, False, 5.0, 20.0, 5e-6, 0.0),
        ("photographs", 50, False, 50.0, 30.0, 0.0, 3e-5),
        ("photographs", 14, True, 5.0, 0.5, 0.0, 1e-3),
    ],
)
def test_weights_and_decay_are_the_paper_s_for_the_kind_of_data(kind, classes, pretrained, alpha, strength, l1, l2):
    found = noiseproof.advise("symmetric:0.4", classes=classes, kind=kind, pretrained=pretrained)
    assert found.options["alpha"] == alpha
    assert found.options["beta"] * found.options["a"] == pytest.approx(strength)
    assert (found.l1, found.l2) == (l1, l2)
    assert {part(found, "alpha and beta").basis, part(found, "regularisation").basis} == {"paper"}


def test_noise_that_is_not_known_is_found_by_a_fit():
    found = noiseproof.advise(classes=10, kind="features", place="my data.npz")
    assert found.commands == (
        "noiseproof fit 'my data.npz' --out model",
        "noiseproof advise 'my data.npz' --noise model",
    )
    assert part(found, "run").value == found.commands[0]
    assert (found.loss, found.early_stopping) == ("ce", True)
    assert "the noise is not known" in part(found, "loss").reason


def test_noise_that_no_loss_tolerates_is_for_a_person_to_decide():
    found = noiseproof.advise(0.9, classes=10, kind="features")
    assert any("no loss can tell which is right" in text for text in found.warnings)
    assert found.commands == ("noiseproof audit PLACE --out audit",)
    some = noiseproof.advise([[0.5, 0.5, 0], [0, 0.8, 0.2], [0, 0.2, 0.8]], kind="photographs")
    assert any(text.startswith("Not for class 0 of 3") for text in some.warnings)


@pytest.mark.parametrize(
    ("noise", "facts", "loss", "why"),
    [
        ("symmetric:0.001", {"kind": "images", "examples": 50_000}, "ce", "the labels may all be right"),
        (None, {"kind": "images", "examples": 50_000}, "ce", "the noise is not known"),
        ("symmetric:0.3", {"kind": "images", "counts": {"a": 900, "b": 4100}}, "ce", "may collapse"),
        ("symmetric:0.3", {"kind": "features", "examples": 50_000}, "ce", "2 points behind it"),
        ("symmetric:0.3", {"kind": "images", "examples": 1000}, "ce", "fewer than 4,000 images"),
        ("symmetric:0.3", {"kind": "images", "counts": {"a": 2300, "b": 2700}}, "jal-ce", "ahead of ce's best epoch"),
    ],
)
def test_a_robust_loss_is_advised_only_where_the_records_show_it_ahead(noise, facts, loss, why):
    found = noiseproof.advise(noise, classes=None if "counts" in facts else 2, **facts)
    assert found.loss == loss
    assert why in part(found, "loss").reason
    assert found.early_stopping == (loss == "ce")
    assert found.criterion() is not None
    assert [one.what for one in found.parts[:3]] == ["run", "expect", "loss"]
    trained = [command for command in found.commands if command.startswith("noiseproof train")]
    assert len(trained) == (loss == "jal-ce")


def test_class_weights_and_epochs_are_part_of_the_advice():
    found = noiseproof.advise("symmetric:0.3", kind="features", counts={"no": 90, "yes": 10})
    assert (found.class_weight, part(found, "class weights").value) == ("tempered", "tempered")
    assert "(N / (K n_k))^(1 - 1/K) for class k" in part(found, "class weights").reason
    assert "class imbalance 1:9" in str(found)
    even = noiseproof.advise("symmetric:0.3", kind="images", counts={"no": 2600, "yes": 2400})
    assert (even.class_weight, even.epochs, part(even, "epochs").value) == (None, 120, "120")
    assert "with a smaller budget take ce with early stopping" in part(even, "epochs").reason
    assert even.commands[1].endswith("--set epochs=120")
    assert len(noiseproof.advise("symmetric:0.3", kind="images", counts={"no": 2600, "yes": 2400}, gpu=False).commands) == 1


def test_a_matrix_that_is_not_symmetric_is_not_called_so():
    found = noiseproof.advise([[0.83, 0.17], [0.61, 0.39]], kind="features", counts={"stay": 80, "leave": 20})
    assert "61% of class leave labelled stay, 17% of class stay labelled leave" in str(found)
    assert "symmetric" not in str(found)


def test_what_fit_is_said_to_gain_is_what_the_records_say():
    lines = [json.loads(text) for text in (RECORDS / "zoo.jsonl").read_text(encoding="utf-8").splitlines()]
    cells = {(one["set"], one["noise"], one["seed"], one["method"]): one for one in lines if one["noise"] != "none"}

    def gain(first, second):
        both = [key[:3] for key in cells if key[3] == first and (*key[:3], second) in cells]
        return np.mean(
            [100 * (cells[*k, first]["accuracy"]["accuracy"] - cells[*k, second]["accuracy"]["accuracy"]) for k in both]
        )

    assert abs(gain("fit", "ce-early") - GAIN) < 1.5
    assert abs(gain("ce-early", "jal-ce") - 2) < 1.5


def test_an_audit_says_matrix_and_rate(tmp_path):
    matrix = pairflip(10, 0.2).matrix
    facts = np.arange(10), np.full((10, 10), 0.1, np.float32), matrix, 0.2, (0.1, 0.3), 0.8, tuple("abcdefghij"), "by hand"
    audit = Audit(*facts)
    audit.save(tmp_path)
    found, read = (noiseproof.advise(one, kind="photographs") for one in (audit, tmp_path))
    assert found.options == read.options
    assert found.case.rate == 0.2
    assert "the audit's matrix" in part(found, "a").reason
    assert noiseproof.advise(Audit(*facts[:3], 0.004, *facts[4:]), kind="photographs").loss == "ce"
    unsure = Audit(*facts[:4], (0.0, 0.3), *facts[5:])
    unsure.save(tmp_path)
    for one in (unsure, tmp_path):
        found = noiseproof.advise(one, kind="photographs")
        assert (found.loss, found.early_stopping, found.case.rate_interval) == ("ce", True, (0.0, 0.3))
        assert part(noiseproof.advise(one, kind="features"), "expect").value == "about what plain training gives"


def test_the_folder_of_an_audit_has_the_rate_that_the_audit_has(tmp_path):
    """900 labels of a class that is never wrong, 100 of one that is half the time: 5 % are wrong, not the matrix's 25."""
    posterior = np.repeat([[1.0, 0.0], [0.5, 0.5]], [900, 100], axis=0).astype(np.float32)
    matrix, given = np.array([[1.0, 0.0], [0.5, 0.5]]), np.repeat([0, 1], [900, 100])
    audit = Audit(given, posterior, matrix, 0.05, (0.04, 0.06), 0.95, ("a", "b"), "by hand")
    audit.save(tmp_path)
    rates = [noiseproof.advise(one, kind="features").case.rate for one in (audit, tmp_path, str(tmp_path))]
    assert rates == pytest.approx([0.05] * 3)
    (tmp_path / "posterior.npz").unlink()
    assert noiseproof.advise(tmp_path, kind="features").case.rate == pytest.approx(0.25)


@pytest.mark.parametrize("kind", ["images", "photographs"])
def test_the_command_is_of_this_command_line_and_the_loss_in_it_is_the_advised_one(kind):
    found = noiseproof.advise("pairflip:0.3", classes=10, kind=kind, examples=10_000, place="here")
    train = shlex.split(found.commands[1])
    changes = dict(text.split("=") for flag, text in itertools.pairwise(train) if flag == "--set")
    options = {name.removeprefix("loss."): json.loads(value) for name, value in changes.items() if name.startswith("loss.")}
    made, wanted = create_loss(train[2], **options), found.criterion()
    assert type(made) is type(wanted)
    assert all(getattr(made, name) == pytest.approx(getattr(wanted, name), rel=1e-5) for name in options)
    result = CliRunner().invoke(app, train[1:])  # it is understood; only the data are not there
    assert result.exit_code == 2
    assert "no data set 'here'" in result.output


def test_what_is_not_a_kind_of_data_is_refused():
    with pytest.raises(ValueError, match="kind must be one of features, images, photographs, got 'sound'"):
        noiseproof.advise(kind="sound")


def run(*arguments):
    return CliRunner().invoke(app, ["advise", *map(str, arguments)], env={"COLUMNS": "200", "TERM": "dumb"})


def test_the_command_prints_the_parts_with_their_basis_and_json_has_the_same():
    arguments = ("digits", "--noise", "symmetric:0.4")
    text, facts = run(*arguments).output, json.loads(run(*arguments, "--json").stdout)
    assert "found: features, 10 classes, 1,297 examples, 40.0% wrong labels" in text
    for each in facts["parts"]:
        assert each["value"] in text
        assert f"{each['basis']}: {each['reason']}" in text
    counts = np.bincount(open_dataset("digits").train.labels)
    known = {"kind": "features", "counts": dict(zip("0123456789", counts.tolist(), strict=True)), "gpu": False}
    expected = noiseproof.advise("symmetric:0.4", place="digits", **known)
    assert facts == json.loads(json.dumps(expected.as_dict()))
    assert f"next: {facts['commands'][0]}" in text


def test_after_a_fit_the_advice_is_to_predict(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    x, y = np.random.default_rng(0).normal(size=(80, 2)) + 4 * np.arange(80)[:, None] % 8, np.arange(80) % 2
    np.savez("data.npz", x=x, y=y)
    noiseproof.fit("data.npz", learners=["logistic-0.01", "neighbours-40"], folder="model").audit.save("model")
    text = run("data.npz", "--noise", "model").output
    assert "next: noiseproof predict model --data NEW --out predictions.csv" in text
    assert "noiseproof fit" not in text
    assert "the probabilities in model/posterior.npz" in text


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("digits", "--classes", 3), "the data say how it is with --classes; leave it or DATA out"),
        (("--labels", "y.npy", "--noise", "symmetric:0.2"), "--labels needs DATA that the labels are of"),
        (("digits", "--noise", "symmetric:2"), "must be in [0, 1], got 2"),
        (("--noise", "0.2"), "a noise rate needs the number of classes"),
        (("nowhere.npz",), "nowhere.npz"),
    ],
)
def test_the_command_says_what_is_wrong(arguments, says):
    result = run(*arguments)
    assert result.exit_code == 2
    assert says in result.output
