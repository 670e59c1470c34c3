"""The labels a run trains on: every kind of noise, its truth, and a share held out to test on."""

import dataclasses

import numpy as np
import pytest

from noiseproof import noise
from noiseproof.data import Dataset, ImageFiles, Split, from_arrays, held_out, load_digits
from noiseproof.train import Recipe, own_recipe, prepare, with_noise

DIGITS = Recipe(dataset="digits", loss="ce", seed=3)


def task(spec, dataset=None, **changes):
    recipe = dataclasses.replace(DIGITS, noise=spec, **changes)
    return prepare(recipe) if dataset is None else with_noise(dataset, recipe)


def images(shape=(40, 8, 8, 3), classes=10, name="cifar10"):
    x = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    y = np.arange(len(x)) % classes
    return from_arrays(x, y, x[:10], y[:10], name=name, classes=tuple(map(str, range(classes))))


@pytest.mark.parametrize("spec", ["symmetric:0.4", "pairflip:0.3", "asymmetric-mnist:0.4", "instance:0.4"])
def test_noise_changes_the_training_labels_alone_and_says_how_many(spec):
    made, clean = task(spec), load_digits()
    assert np.array_equal(made.clean, clean.train.labels)
    assert np.array_equal(made.test.labels, clean.test.labels)
    assert made.noise["rate"] == made.wrong.mean()
    assert 0.05 < made.noise["rate"] < 0.5
    assert made.noise["hash"] == noise.label_hash(made.train.labels)
    assert np.array_equal(made.train.labels, task(spec).train.labels)
    assert not np.array_equal(made.train.labels, task(spec, seed=4).train.labels)


def test_no_noise_claims_no_clean_labels():
    made = task("none")
    assert made.clean is None
    assert made.wrong is None
    assert "rate" not in made.noise


@pytest.mark.parametrize(("name", "classes", "rule"), [("cifar10", 10, "cifar10"), ("cifar100", 100, "cifar100")])
def test_asymmetric_noise_is_that_of_the_data_set(name, classes, rule):
    data = images((1000, 4, 4, 3), classes, name)
    expected = noise.from_spec(f"asymmetric-{rule}:0.4", classes).apply(data.train.labels, DIGITS.seed, "exact")
    assert np.array_equal(task("asymmetric:0.4", data).train.labels, expected.labels)


def test_asymmetric_noise_of_data_that_have_none_is_refused_with_a_way_out():
    with pytest.raises(
        ValueError, match=r"scans has no asymmetric noise of its own; there are asymmetric-cifar10, .* pairflip"
    ):
        task("asymmetric:0.4", images(name="scans"))


def test_labels_from_a_file_may_be_one_of_several(tmp_path):
    clean = load_digits().train.labels
    first, second = (clean + 1) % 10, (clean + 2) % 10
    np.savez(tmp_path / "people.npz", first=first, second=second)
    np.save(tmp_path / "one.npy", first)
    assert np.array_equal(task(f"labels:{tmp_path / 'people.npz'}#second").train.labels, second)
    assert np.array_equal(task(f"labels:{tmp_path / 'one.npy'}").train.labels, first)
    with pytest.raises(ValueError, match="several sets of labels, choose one: first, second"):
        task(f"labels:{tmp_path / 'people.npz'}")
    with pytest.raises(ValueError, match="no labels named 'third'"):
        task(f"labels:{tmp_path / 'people.npz'}#third")


def test_a_label_file_is_looked_for_in_the_data_folder_and_then_here(tmp_path, monkeypatch):
    clean = load_digits().train.labels
    monkeypatch.chdir(tmp_path)
    np.save("here.npy", (clean + 1) % 10)
    recipe = dataclasses.replace(DIGITS, noise="labels:here.npy")
    assert np.array_equal(prepare(recipe, tmp_path / "none").train.labels, (clean + 1) % 10)
    (tmp_path / "data").mkdir()
    np.save(tmp_path / "data" / "here.npy", (clean + 2) % 10)
    assert np.array_equal(prepare(recipe, tmp_path / "data").train.labels, (clean + 2) % 10)
    with pytest.raises(FileNotFoundError, match=r"no label file .*data/gone\.npy or gone\.npy"):
        prepare(dataclasses.replace(DIGITS, noise="labels:gone.npy"), tmp_path / "data")


def test_labels_of_another_length_are_refused(tmp_path):
    np.save(tmp_path / "few.npy", np.zeros(5, int))
    with pytest.raises(ValueError, match="5 labels for 1297 examples"):
        task(f"labels:{tmp_path / 'few.npy'}")


@pytest.mark.parametrize("spec", ["symmetric:x", "instance:x", "instance:2", "symetric:0.4", "symmetric:1.4"])
def test_noise_that_is_none_is_refused(spec):
    with pytest.raises((ValueError, FileNotFoundError)):
        task(spec)


def test_instance_noise_needs_the_images(tmp_path):
    files = ImageFiles((str(tmp_path / "a.png"),) * 4, np.array([0, 1, 0, 1]))
    with pytest.raises(ValueError, match="needs the images in memory"):
        task("instance:0.4", Dataset("files", files, None, ("a", "b")))


@pytest.mark.parametrize("share", [0.1, 0.25, 0.5])
def test_a_share_is_held_out_of_every_class(share):
    labels = np.random.default_rng(0).integers(0, 7, 1000)
    mask = held_out(labels, share)
    assert mask.sum() == round(1000 * share)
    for k in range(7):
        assert abs(mask[labels == k].sum() - share * (labels == k).sum()) <= 1
    assert np.array_equal(mask, held_out(labels, share))


def test_a_share_held_out_is_tested_with_clean_labels_where_they_are_known():
    data = images()
    data = dataclasses.replace(data, test=None)
    made = task("symmetric:0.5", data, test_size=0.2)
    assert (len(made.train), len(made.test)) == (32, 8)
    mask = held_out(data.train.labels, 0.2)
    assert np.array_equal(made.test.labels, data.train.labels[mask])
    assert np.array_equal(made.test.inputs, data.train.inputs[mask])
    assert np.array_equal(made.clean, data.train.labels[~mask])
    assert made.noise["rate"] == made.wrong.mean()
    assert made.noise["hash"] == noise.label_hash(made.train.labels)


def test_what_is_held_out_does_not_depend_on_the_seed_or_the_noise():
    data = dataclasses.replace(images(), test=None)
    first, second = task("none", data, test_size=0.2), task("symmetric:0.5", data, test_size=0.2, seed=9)
    assert np.array_equal(first.test.inputs, second.test.inputs)


def test_a_share_of_data_with_a_test_split_is_refused():
    with pytest.raises(ValueError, match="for data without a test split; digits has one of 500 examples"):
        task("none", test_size=0.1)


def test_a_share_that_leaves_nothing_is_refused():
    with pytest.raises(ValueError, match=r"test_size 0\.01 of 40 examples leaves none to test on"):
        task("none", dataclasses.replace(images(), test=None), test_size=0.01)


def test_grey_images_get_their_channel():
    made = task("none", images((40, 8, 8)))
    assert made.train.inputs.shape == (40, 8, 8, 1)
    assert made.test.inputs.shape == (10, 8, 8, 1)


def test_channels_first_are_refused_with_the_way_out():
    with pytest.raises(ValueError, match=r"got \(40, 3, 8, 8\); transpose\(0, 2, 3, 1\) puts the channels last"):
        task("none", images((40, 3, 8, 8)))


def test_whole_numbers_that_are_no_images_are_refused():
    with pytest.raises(ValueError, match=r"got \(40, 8\); features must be floating"):
        task("none", images((40, 8)))


@pytest.mark.parametrize(
    ("split", "model", "augment", "stem"),
    [
        (Split(np.zeros((4, 3), np.float32), np.arange(4)), "mlp", "none", None),
        (Split(np.zeros((4, 32, 32, 3), np.uint8), np.arange(4)), "resnet18", "crop-flip", None),
        (Split(np.zeros((4, 96, 96, 3), np.uint8), np.arange(4)), "resnet18", "crop-flip", "imagenet"),
        (ImageFiles(("a.png",) * 4, np.arange(4)), "resnet50", "webvision", "imagenet"),
    ],
    ids=["features", "images", "large images", "files"],
)
def test_ones_own_data_get_a_recipe_that_suits_them(split, model, augment, stem):
    data = Dataset("mine", split, None, tuple("abcd"))
    recipe = own_recipe(data, "mine.npz", "jal-ce", seed=1)
    assert (recipe.model, recipe.augment, recipe.model_options.get("stem")) == (model, augment, stem)
    assert own_recipe(data, "mine.npz", "jal-ce", seed=1, model="resnet34").model_options.get("stem") == stem
    assert own_recipe(data, "mine.npz", "jal-ce", seed=1, model="my:own").model_options == {}
    assert own_recipe(data, "mine.npz", "jal-ce", seed=1, gpu=False).precision != "bf16"
