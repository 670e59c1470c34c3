"""Noise as text: what is parsed, what is refused, and what a new kind of noise takes."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from noiseproof import noise, paper, theory
from noiseproof.cli import app
from noiseproof.noise import NoiseSpec
from noiseproof.noise.matrix import MATRIX_NOISES, MatrixNoise

CLEAN = np.arange(60) % 3


@pytest.mark.parametrize(
    ("text", "spec", "canonical"),
    [
        ("none", NoiseSpec("none"), "none"),
        ("symmetric:0.80", NoiseSpec("symmetric", rate=0.8), "symmetric:0.8"),
        ("asymmetric:.4", NoiseSpec("asymmetric", rate=0.4), "asymmetric:0.4"),
        ("asymmetric-cifar100-blocks:1", NoiseSpec("asymmetric-cifar100-blocks", rate=1.0), "asymmetric-cifar100-blocks:1.0"),
        ("instance:0", NoiseSpec("instance", rate=0.0), "instance:0.0"),
        ("labels:a/b.npz#worst", NoiseSpec("labels", file="a/b.npz", name="worst"), "labels:a/b.npz#worst"),
        ("labels:C:/b.npy", NoiseSpec("labels", file="C:/b.npy"), "labels:C:/b.npy"),
        ("my/matrix.csv", NoiseSpec("matrix", file="my/matrix.csv"), "my/matrix.csv"),
    ],
)
def test_a_text_is_parsed_and_given_back(text, spec, canonical):
    assert NoiseSpec.parse(text) == spec
    assert str(spec) == canonical
    assert NoiseSpec.parse(canonical) == spec


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("symmetric:", "the rate in 'symmetric:' must be a number, got ''"),
        ("human:worst", "must be a number, got 'worst'; people's labels are labels:FILE#NAME"),
        ("symmetric:-0.1", r"the rate in 'symmetric:-0.1' must be in \[0, 1\], got -0.1"),
        ("pairflip:inf", r"must be in \[0, 1\], got inf"),
        ("instance:1", r"the rate in 'instance:1' must be in \[0, 1\), got 1.0"),
    ],
)
def test_a_rate_that_is_none_is_refused(text, message):
    with pytest.raises(ValueError, match=message):
        NoiseSpec.parse(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("symetric:0.8", "unknown noise 'symetric'; did you mean 'symmetric'[?] there are symmetric, pairflip"),
        ("pair-flip:0.2", "did you mean 'pairflip'[?]"),
        ("asymmetric-cifar:0.2", "did you mean 'asymmetric-cifar10"),
        ("instanse:0.2", "did you mean 'instance'[?]"),
        ("salt:0.2", "unknown noise 'salt'; there are"),
        ("symetric", "unknown noise 'symetric'; did you mean 'symmetric:0.4'[?]"),
        ("symmetric", "symmetric noise needs a rate, such as symmetric:0.4"),
        ("0.4", "noise has a kind and a rate, such as symmetric:0.4, got '0.4'"),
        ("label", "did you mean 'labels:FILE'[?]"),
        ("non", "did you mean 'none'[?]"),
        ("salt", "salt: no such file or folder"),
    ],
)
def test_an_unknown_noise_is_refused_with_a_near_one(text, message):
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        NoiseSpec.parse(text).matrix(3)


def test_a_file_that_is_no_matrix_is_refused_by_its_suffix(tmp_path):
    (tmp_path / "salt").touch()
    with pytest.raises(ValueError, match=r"salt: a transition matrix is read from .npy, .csv, .json, got 'no suffix'"):
        NoiseSpec.parse(str(tmp_path / "salt")).matrix(3)


@pytest.mark.parametrize("seed", [2**64, -(2**63) - 1, 10**30])
def test_a_seed_beyond_64_bits_is_refused(seed):
    images = np.zeros((60, 2), np.uint8)
    for text in ("symmetric:0.5", "instance:0.5"):
        with pytest.raises(ValueError, match=r"seed must be in \[-2\*\*63, 2\*\*64\), got"):
            NoiseSpec.parse(text).apply(CLEAN, seed, images=images)


def test_seeds_of_64_bits_are_all_different():
    seeds = (0, 1, 2**63, 2**64 - 1, -(2**63) + 1)
    assert len({noise.symmetric(3, 0.5).apply(CLEAN, seed).hash for seed in seeds}) == len(seeds)


@pytest.mark.parametrize("text", ["symmetric:0.5", "pairflip:0.5", "instance:0.5"])
def test_noise_by_name_has_a_limit_of_classes(text):
    labels, images = np.array([0, 1024]), np.zeros((2, 3), np.uint8)
    with pytest.raises(ValueError, match="noise by name is for at most 1024 classes, got 1025; labels count from 0"):
        NoiseSpec.parse(text).apply(labels, 0, images=images)
    assert NoiseSpec.parse(text).apply(labels - [0, 1], 0, images=images)[1].classes == 1024


def test_labels_of_many_classes_are_compared_without_a_matrix():
    """Its matrix would take eight terabytes."""
    assert noise.NoisyLabels.compare([0, 10**6 - 1], [1, 10**6 - 1], 10**6).rate == 0.5


def test_noise_is_applied_with_what_a_manifest_states(tmp_path):
    for text, expected in (
        ("symmetric:0.5", noise.symmetric(3, 0.5).apply(CLEAN, 7, "draws")),
        ("pairflip:0.3", noise.pairflip(3, 0.3).apply(CLEAN, 7, "draws")),
    ):
        noisy, made = NoiseSpec.parse(text).apply(CLEAN, 7, "draws")
        assert noisy.hash == expected.hash
        assert noisy.rule == "draws"
        assert f"{made.name}:{made.parameters['rate']}" == text
    images = np.random.default_rng(0).integers(0, 256, (60, 4, 4, 3), dtype=np.uint8)
    noisy, made = NoiseSpec.parse("instance:0.4").apply(CLEAN, 7, images=images)
    assert noisy.hash == noise.instance_dependent(images, CLEAN, 0.4, 7).hash
    manifest = noise.write_noisy_labels(tmp_path, made, CLEAN, noisy, version="test")
    assert noise.verify(manifest, CLEAN, images)["made_anew"]
    assert not noise.verify(manifest, CLEAN)["made_anew"]
    with pytest.raises(ValueError, match="the hash of the images should be"):
        noise.verify(manifest, CLEAN, images[::-1])
    noisy, made = NoiseSpec.parse(f"labels:{tmp_path / 'labels.npy'}").apply(CLEAN, 7)
    assert (noisy.seed, noisy.rule, made) == (None, None, None)


def test_noise_for_another_number_of_classes_is_refused():
    """Its labels would be classes that the data do not have."""
    with pytest.raises(ValueError, match=r"asymmetric-cifar10:0\.4 is of 10 classes, got 8"):
        NoiseSpec.parse("asymmetric-cifar10:0.4").apply(np.arange(80) % 8, 0, classes=8)
    noisy, _ = NoiseSpec.parse("asymmetric-cifar10:0.4").apply(np.arange(80) % 8, 0)
    assert noisy.matrix.shape == (10, 10)


def to_class_zero(classes, rate):
    matrix = (1 - rate) * np.eye(classes)
    matrix[:, 0] += rate
    return noise.LabelNoise(matrix, "sink", {"classes": classes, "rate": rate})


def test_an_entry_in_the_registry_is_all_that_a_new_noise_takes(tmp_path, monkeypatch):
    def run(*words):
        done = CliRunner().invoke(app, list(map(str, words)), env={"COLUMNS": "200", "TERM": "dumb"})
        return done.exit_code, " ".join(done.output.split())

    assert "unknown noise 'sink'" in run("noise", "show", "sink:0.5", "--classes", 3)[1]
    monkeypatch.setitem(MATRIX_NOISES, "sink", MatrixNoise(to_class_zero))
    np.save(tmp_path / "clean.npy", CLEAN)
    code, said = run("noise", "make", "sink:0.5", "--labels", tmp_path / "clean.npy", "--out", tmp_path / "made")
    assert code == 0, said
    assert np.bincount(np.load(tmp_path / "made" / "labels.npy")).tolist() == [40, 10, 10]
    assert "labels, rate, matrix and seed" in run("noise", "verify", tmp_path / "made", "--labels", tmp_path / "clean.npy")[1]
    assert paper.recipe("cifar10/ce", noise="sink:0.50").noise == "sink:0.5"
    with pytest.raises(ValueError, match="did you mean 'sink'"):
        paper.recipe("cifar10/ce", noise="sinc:0.5")
    words = ["--noise", "sink:0.5", "--set", "epochs=1", "--device", "cpu", "--out", tmp_path / "runs"]
    code, said = run("train", "digits/ce", *words)
    assert code == 0, said
    record = json.loads(next((tmp_path / "runs").glob("*/record.json")).read_text())
    assert 0.4 < record["task"]["noise"]["rate"] < 0.5  # nine of ten classes lose half of their labels


def test_none_is_noise_that_changes_nothing_wherever_noise_is_text(tmp_path):
    """As docs/how_to/noise.md has it: in Python, in theory, in the manifest of labels, and on the command line."""
    identity = noise.from_spec("none", classes=3)
    assert identity.matrix.tolist() == np.eye(3).tolist()
    assert theory.required_a("none", classes=3) == 1.0
    assert "labels without noise" in theory.choose_a("none", classes=3).reasons[0]
    clean = np.arange(6) % 3
    noisy, made = NoiseSpec.parse("none").apply(clean, seed=0)
    assert noisy.labels.tolist() == clean.tolist()
    noise.write_noisy_labels(tmp_path, made, clean, noisy, "0")
    assert noise.verify(tmp_path, clean)["made_anew"]
    shown = CliRunner().invoke(app, ["noise", "show", "none"])
    assert shown.exit_code == 0
    assert "none: 10 classes, rate 0.0000" in shown.output


def test_a_file_of_labels_is_said_to_have_no_matrix():
    with pytest.raises(ValueError, match=r"labels:people.npz#worst has no matrix, it is a file of labels"):
        noise.from_spec("labels:people.npz#worst", classes=3)
