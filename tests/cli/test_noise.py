"""``noiseproof noise`` as a person uses it."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from noiseproof import noise
from noiseproof.cli import app


def run(*arguments):
    return CliRunner().invoke(app, ["noise", *map(str, arguments)], env={"COLUMNS": "200", "TERM": "dumb"})


@pytest.fixture
def labels(tmp_path):
    np.save(tmp_path / "labels.npy", np.arange(500) % 10)
    return tmp_path / "labels.npy"


def test_making_and_checking_noisy_labels(labels, tmp_path):
    made = run("make", "symmetric:0.8", "--labels", labels, "--out", tmp_path / "noisy", "--seed", 3)
    assert made.exit_code == 0, made.output
    assert "400 of 500 labels changed: 0.8000 (asked 0.8000)" in made.output
    expected = noise.symmetric(10, 0.8).apply(np.arange(500) % 10, seed=3)
    assert np.array_equal(np.load(tmp_path / "noisy" / "labels.npy"), expected.labels)
    assert json.loads((tmp_path / "noisy" / "manifest.json").read_text())["labels_hash"] == expected.hash
    checked = run("verify", tmp_path / "noisy", "--labels", labels)
    assert checked.exit_code == 0
    assert "fine" in checked.output


def test_labels_from_one_are_doubted(labels, tmp_path):
    assert "warning" not in run("make", "symmetric:0.8", "--labels", labels, "--out", tmp_path / "noisy").stderr
    np.save(labels, np.load(labels) + 1)
    made = run("make", "symmetric:0.8", "--labels", labels, "--out", tmp_path / "noisy")
    assert made.exit_code == 0, made.output
    assert "warning: 1 of the 11 classes have no label in" in made.stderr


def test_only_what_was_checked_is_called_fine(labels, tmp_path):
    run("make", "symmetric:0.8", "--labels", labels, "--out", tmp_path / "noisy")
    assert "labels (give --labels or --dataset to check the noise itself) are" in run("verify", tmp_path / "noisy").output
    assert "labels, rate, matrix and seed are" in run("verify", tmp_path / "noisy", "--labels", labels).output
    clean = np.load(labels)
    read = noise.read_noisy_labels(tmp_path / "noisy" / "labels.npy", clean, 10)
    noise.write_noisy_labels(tmp_path / "people", noise.LabelNoise(read.matrix, "people"), clean, read, version="test")
    output = run("verify", tmp_path / "people", "--labels", labels).output
    assert "labels, rate and matrix (not a seed: these are labels from a file) are" in output


def test_a_changed_file_is_reported(labels, tmp_path):
    run("make", "pairflip:0.2", "--labels", labels, "--out", tmp_path / "noisy")
    changed = np.load(tmp_path / "noisy" / "labels.npy")
    changed[0] = (changed[0] + 1) % 10
    np.save(tmp_path / "noisy" / "labels.npy", changed)
    result = run("verify", tmp_path / "noisy")
    assert result.exit_code == 2
    assert "hash of the labels in labels.npy should be" in result.output


def test_the_matrix_is_shown_in_the_terminal_and_as_a_picture(tmp_path):
    result = run("show", "asymmetric-cifar10:0.4", "--png", tmp_path / "T.png")
    assert result.exit_code == 0
    assert "10 classes, rate 0.2000, largest flip 0.4000" in result.output
    assert "0.60" in result.output
    assert (tmp_path / "T.png").read_bytes().startswith(b"\x89PNG")
    assert "the first 20 of 100 classes" in run("show", "asymmetric-cifar100-blocks:0.3").output


def test_a_matrix_is_shown_without_a_number_of_classes():
    """Looking at one needs no data: ten classes, or as many as the noise is defined for."""
    assert "symmetric: 10 classes, rate 0.3000, largest flip 0.0333" in run("show", "symmetric:0.3").output
    assert "pairflip: 10 classes, rate 0.2000, largest flip 0.2000" in run("show", "pairflip:0.2").output
    assert "pairflip: 3 classes, rate 0.2000" in run("show", "pairflip:0.2", "--classes", 3).output
    assert "100 classes" in run("show", "asymmetric-cifar100:0.2").output
    with pytest.raises(ValueError, match="symmetric noise needs the number of classes: give --classes"):
        noise.from_spec("symmetric:0.2")


def test_a_manifest_is_shown_as_what_was_realised(labels, tmp_path):
    run("make", "symmetric:0.5", "--labels", labels, "--out", tmp_path / "noisy", "--rule", "published")
    result = run("show", tmp_path / "noisy")
    assert "symmetric, realised: 10 classes, rate 0.3600" in result.output  # 9 int(50 0.5/9) / 50


def test_a_manifest_of_labels_without_one_of_the_classes_is_shown(tmp_path):
    np.save(tmp_path / "labels.npy", np.repeat([0, 1, 3], 40))
    made = ("--labels", tmp_path / "labels.npy", "--classes", 5, "--out", tmp_path / "noisy")
    assert run("make", "symmetric:0.3", *made).exit_code == 0
    result = run("show", tmp_path / "noisy", "--png", tmp_path / "T.png")
    assert result.exit_code == 0, result.output
    assert "symmetric, realised: 5 classes, rate 0.3000, largest flip 0.0750" in result.output
    assert "no example has the clean label 2, 4: nothing to show in these rows" in result.output
    manifest = tmp_path / "noisy" / "manifest.json"
    facts = json.loads(manifest.read_text(encoding="utf-8"))
    facts["matrix_realised"][2][0] = 0.5
    manifest.write_text(json.dumps(facts), encoding="utf-8")
    assert "'matrix_realised': rows of a transition matrix must sum to 1, row 2 sums to 0.5" in run("show", manifest).output


@pytest.mark.parametrize("folder", ["b[/]n", "b[red]n"])
def test_brackets_in_names_are_printed_as_they_are(labels, tmp_path, folder):
    made = run("make", "symmetric:0.5", "--labels", labels, "--out", tmp_path / folder)
    assert made.exit_code == 0, made.output
    assert f"wrote {tmp_path / folder / 'labels.npy'} and" in made.output
    shown = run("show", "symmetric:0.5", "--classes", 3, "--png", tmp_path / folder / "T.png")
    assert f"wrote {tmp_path / folder / 'T.png'}" in shown.output
    manifest = tmp_path / folder / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"noise": "ours [red]"}))
    assert "ours [red], realised: 10 classes" in run("show", manifest).output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["show", "symmetric"], "symmetric noise needs a rate, such as symmetric:0.4"),
        (["show", "foo:0.2"], "unknown noise 'foo'; there are symmetric, pairflip, asymmetric-cifar10"),
        (["show", "asymmetric-cifar10:0.4", "--classes", "7"], "asymmetric-cifar10:0.4 is of 10 classes, got 7"),
        (["show", "asymmetric:0.4"], "unknown noise 'asymmetric'; there are symmetric, pairflip, asymmetric-cifar10"),
        (["show", "instance:0.4"], "instance:0.4 has no matrix, it depends on the images; 'noiseproof noise make'"),
        (["verify", "gone", "--name", "foo"], "got 'foo' without --labels"),
        (["show", "symmetric:much", "--classes", "10"], "the rate in 'symmetric:much' must be a number, got 'much'"),
        (["show", "gone.npy"], "gone.npy"),
        (["verify", "gone"], "gone"),
    ],
)
def test_mistakes_end_with_one_line(arguments, message):
    result = run(*arguments)
    assert result.exit_code == 2
    assert message in result.output
    assert "Traceback" not in result.output


def test_the_classes_of_a_matrix_are_its_own(labels, tmp_path):
    result = run("make", "asymmetric-cifar10:0.4", "--labels", labels, "--classes", 12, "--out", tmp_path / "noisy")
    assert (
        "asymmetric-cifar10:0.4 is of 10 classes, got 12; take a noise of 12 classes, or leave out --classes" in result.output
    )
    assert not (tmp_path / "noisy").exists()
    run("make", "symmetric:0.5", "--labels", labels, "--out", tmp_path / "noisy")
    assert "is of 10 classes, got 7; leave out --classes" in run("show", tmp_path / "noisy", "--classes", 7).output


def test_the_help_of_show_promises_no_labels():
    assert "read from the labels" in run("make", "--help").output
    shown = run("show", "--help").output
    assert "read from the labels" not in shown
    assert "10 by default" in shown


def test_a_rate_beyond_one_is_refused(labels, tmp_path):
    result = run("make", "symmetric:1.2", "--labels", labels, "--out", tmp_path / "noisy")
    assert "the rate in 'symmetric:1.2' must be in [0, 1], got 1.2" in result.output
    assert not (tmp_path / "noisy").exists()


def test_labels_that_the_noise_cannot_take_are_named_with_their_file(tmp_path):
    for content, message in (
        ("0\n1\n7\n", "labels must be in [0, 2] for 3 classes, got 7"),
        ("0\n0\n", "all its labels are 0"),
    ):
        (tmp_path / "mine.csv").write_text(content)
        classes = ["--classes", "3"] if "7" in content else []
        words = ["noise", "make", "symmetric:0.2", "--labels", tmp_path / "mine.csv", "--out", tmp_path / "noisy", *classes]
        done = CliRunner().invoke(app, [str(word) for word in words])
        assert done.exit_code == 2
        text = " ".join(done.output.split())
        assert "mine.csv" in text
        assert message in text
        assert not (tmp_path / "noisy").exists()
