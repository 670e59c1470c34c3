"""``noiseproof noise`` on the labels and images of a data set."""

import json

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from noiseproof import noise
from noiseproof.cli import app
from noiseproof.data import from_arrays, load_digits


def run(*arguments):
    return CliRunner().invoke(app, ["noise", *map(str, arguments)], env={"COLUMNS": "200", "TERM": "dumb"})


@pytest.fixture
def images(tmp_path):
    draw = np.random.default_rng(0)
    path = tmp_path / "set.npz"
    np.savez(path, x=draw.integers(0, 256, (600, 8, 8, 3), dtype=np.uint8), y=np.arange(600) % 5)
    return path


def test_the_labels_of_a_data_set_are_made_noisy_and_checked(tmp_path):
    made = run("make", "symmetric:0.8", "--dataset", "digits", "--out", tmp_path / "noisy", "--seed", 1)
    assert made.exit_code == 0, made.output
    expected = noise.symmetric(10, 0.8).apply(load_digits().train.labels, seed=1)
    assert np.array_equal(np.load(tmp_path / "noisy" / "labels.npy"), expected.labels)
    assert "labels, rate, matrix and seed" in run("verify", tmp_path / "noisy", "--dataset", "digits").output


def test_instance_noise_is_made_from_the_images_and_checked(images, tmp_path):
    made = run("make", "instance:0.4", "--dataset", images, "--out", tmp_path / "noisy", "--seed", 3)
    assert made.exit_code == 0, made.output
    assert "(asked 0.4000)" in made.output
    with np.load(images) as content:
        expected = noise.instance_dependent(content["x"], content["y"], 0.4, seed=3)
    assert np.array_equal(np.load(tmp_path / "noisy" / "labels.npy"), expected.labels)
    facts = json.loads((tmp_path / "noisy" / "manifest.json").read_text())
    assert (facts["noise"], facts["rate_asked"], facts["parameters"]["rate"]) == ("instance", pytest.approx(0.4), 0.4)
    assert facts["rate_realised"] == expected.rate
    assert "labels, rate, matrix and seed are" in run("verify", tmp_path / "noisy", "--dataset", images).output
    assert "labels (give --dataset with images in memory to check the noise itself)" in run("verify", tmp_path / "noisy").output
    np.save(tmp_path / "clean.npy", np.arange(600) % 5)
    output = run("verify", tmp_path / "noisy", "--labels", tmp_path / "clean.npy").output
    assert "labels, rate and matrix (give --dataset with images in memory to check the noise itself)" in " ".join(
        output.split()
    )


def test_instance_noise_of_other_images_or_another_seed_is_noticed(images, tmp_path):
    run("make", "instance:0.4", "--dataset", images, "--out", tmp_path / "noisy")
    with np.load(images) as content:
        np.savez(tmp_path / "other.npz", x=content["x"] // 2, y=content["y"])
    result = run("verify", tmp_path / "noisy", "--dataset", tmp_path / "other.npz")
    assert result.exit_code == 2
    assert "the hash of the images should be" in result.output
    manifest = tmp_path / "noisy" / "manifest.json"
    facts = json.loads(manifest.read_text())
    manifest.write_text(json.dumps(facts | {"seed": 1}))
    result = run("verify", tmp_path / "noisy", "--dataset", images)
    assert result.exit_code == 2
    assert "the hash of the labels made anew should be" in result.output
    manifest.write_text(json.dumps(facts | {"parameters": {}}))
    assert "'rate' is missing in its parameters" in run("verify", tmp_path / "noisy", "--dataset", images).output


def test_asymmetric_noise_is_that_of_the_data_set(tmp_path, monkeypatch):
    labels = np.arange(100) % 10
    set_of_ten = from_arrays(np.zeros((100, 3), np.float32), labels, name="cifar10")
    monkeypatch.setattr("noiseproof.data.opening.open_dataset", lambda name, root: set_of_ten)
    made = run("make", "asymmetric:0.4", "--dataset", "cifar10", "--out", tmp_path / "noisy")
    assert made.exit_code == 0, made.output
    expected = noise.asymmetric("cifar10", 0.4).apply(labels, seed=0)
    assert np.array_equal(np.load(tmp_path / "noisy" / "labels.npy"), expected.labels)


def test_images_in_files_are_said_to_be_the_reason_against_instance_noise(tmp_path):
    for name in ("cat", "dog"):
        (tmp_path / "set" / name).mkdir(parents=True)
        Image.new("RGB", (4, 4), "red").save(tmp_path / "set" / name / "1.png")
    output = run("make", "instance:0.4", "--dataset", tmp_path / "set", "--out", tmp_path / "noisy").output
    assert "instance:0.4 needs the images in memory, and those of set are in files; give a data set in arrays" in output
    assert "--labels" not in output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["symmetric:0.2"], "the clean labels come from --labels FILE or from --dataset NAME_OR_PATH: give one of the two"),
        (["symmetric:0.2", "--labels", "x.npy", "--dataset", "digits"], "give one of the two"),
        (["instance:0.2", "--labels", "labels.npy"], "instance:0.2 depends on the images: give --dataset"),
        (["instance:much", "--dataset", "digits"], "the rate in 'instance:much' must be a number, got 'much'"),
        (["instance:1.2", "--dataset", "digits"], "the rate in 'instance:1.2' must be in [0, 1), got 1.2"),
        (
            ["instance:0.2", "--dataset", "digits", "--rule", "draws"],
            "--rule is for noise that a matrix describes, got 'draws'",
        ),
        (["symmetric:0.2", "--dataset", "digits", "--name", "foo"], "got 'foo' without --labels"),
        (["asymmetric:0.2", "--dataset", "digits"], "digits has no asymmetric noise of its own; there are asymmetric-cifar10,"),
        (["asymmetric:0.2", "--labels", "labels.npy"], "there are symmetric, pairflip, asymmetric-cifar10"),
        (["symmetric:0.2", "--dataset", "digit"], "did you mean 'digits'?"),
        (["symmetric:0.2", "--labels", "table.csv"], "; --dataset table.csv takes the labels of a table with features"),
        (["symmetric:0.2", "--dataset", "cifar10", "--data", "nowhere"], "data fetch cifar10 --data nowhere' downloads it"),
    ],
)
def test_mistakes_end_with_one_line(tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    np.save(tmp_path / "labels.npy", np.arange(10))
    (tmp_path / "table.csv").write_text("a,label\n1.5,cat\n2.5,dog\n")
    result = run("make", *arguments, "--out", "noisy")
    assert result.exit_code == 2
    assert message in result.output
    assert not (tmp_path / "noisy").exists()
