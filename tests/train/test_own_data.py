"""A user's own data and own model go through the same loop."""

import dataclasses
import importlib
import json
import shutil
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from noiseproof.data import Split, from_arrays, open_dataset
from noiseproof.models import resnet18
from noiseproof.train import (
    CheckpointError,
    Recipe,
    Run,
    RunOptions,
    RunStore,
    own_recipe,
    prepare,
    train,
    with_noise,
)
from noiseproof.train.checkpoint import read_checkpoint, write_checkpoint
from noiseproof.train.engine_choice import pools_evenly
from noiseproof.train.network import build_network, model_code_hash
from noiseproof.train.record import task_facts

TINY = """
import torch
from torch import nn


def network(classes, channels=3):
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))


def wrong_shape(classes):
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(3, classes, 1))


def too_few(classes):
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, classes - 1))


def pair(classes):
    class Pair(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(1))

        def forward(self, x):
            return x, x

    return Pair()


def nothing(classes):
    return None


def no_classes():
    return nn.Linear(2, 2)


thing = 3
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / "my_tiny.py").write_text(TINY, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)


@pytest.fixture
def colours(tmp_path):
    """Images in memory, red or blue by their class, without a test split."""
    generator = np.random.default_rng(0)
    y = np.arange(60) % 2
    x = generator.integers(0, 100, (60, 8, 8, 3), dtype=np.uint8)
    x[y == 0, ..., 0] += 150
    x[y == 1, ..., 2] += 150
    np.savez(tmp_path / "colours.npz", x=x, y=y)
    return str(tmp_path / "colours.npz")


def recipe(dataset, **changes):
    facts = {"loss": "ce", "model": "my_tiny:network", "lr": 0.5, "schedule": "constant", "epochs": 6, "batch": 16}
    return Recipe(dataset=dataset, **(facts | changes))


@pytest.mark.parametrize("augment", ["none", "flip", "crop-flip"])
@pytest.mark.usefixtures("own")
def test_an_npz_of_images_is_learned(colours, augment):
    outcome = train(recipe(colours, augment=augment, test_share=0.2))
    assert outcome.record.result["test_accuracy"] == 1.0
    assert outcome.record.task["test_examples"] == 12


@pytest.mark.parametrize("model", ["cnn8", "resnet18", "mlp"])
def test_the_catalogues_models_train_on_grey_images(tmp_path, model):
    x = np.random.default_rng(0).integers(0, 256, (20, 32, 32), dtype=np.uint8)
    np.savez(tmp_path / "grey.npz", x=x, y=np.arange(20) % 2)
    outcome = train(recipe(str(tmp_path / "grey.npz"), model=model, epochs=1, lr=0.01, augment="crop-flip"))
    assert outcome.record.status == "finished"


def test_a_residual_network_takes_floating_inputs_as_they_are(tmp_path):
    np.savez(tmp_path / "floats.npz", x=np.random.default_rng(0).normal(size=(8, 2, 16, 16)), y=np.arange(8) % 2)
    assert train(recipe(str(tmp_path / "floats.npz"), model="resnet18", epochs=1, lr=0.01)).record.status == "finished"


@pytest.mark.usefixtures("own")
def test_a_folder_of_image_files_is_learned(image_folder):
    outcome = train(recipe(str(image_folder), augment="webvision", noise="symmetric:0.2"), options=RunOptions(workers=0))
    assert outcome.record.result["test_accuracy"] == 1.0
    assert outcome.record.epochs[-1].clean_accuracy is not None
    assert outcome.task.noise["rate"] == 0.2


@pytest.mark.slow
@pytest.mark.usefixtures("own")
def test_image_files_give_the_same_files_for_any_number_of_workers_and_after_an_interruption(
    image_folder, tmp_path, files, interrupted
):
    chosen = recipe(str(image_folder), augment="webvision", epochs=3)
    train(chosen, folder=tmp_path / "whole", options=RunOptions(workers=0))
    interrupted(chosen, tmp_path / "stopped", 2, options=RunOptions(workers=0))
    train(chosen, folder=tmp_path / "stopped", options=RunOptions(workers=2))
    assert files(tmp_path / "whole") == files(tmp_path / "stopped")


@pytest.mark.parametrize("augment", ["webvision", "clothing1m", "none", "flip"])
@pytest.mark.usefixtures("own")
def test_a_list_of_image_files_is_learned(image_folder, tmp_path, augment):
    lines = [f"{path} {int(path.parent.name == 'bright')}" for path in sorted((image_folder / "train").rglob("*.png"))]
    (tmp_path / "all.txt").write_text("\n".join(lines), encoding="utf-8")
    outcome = train(recipe(str(tmp_path / "all.txt"), augment=augment, test_share=0.2), options=RunOptions(workers=0))
    assert outcome.record.result["test_accuracy"] == 1.0


@pytest.mark.usefixtures("own")
def test_a_damaged_image_stops_the_run_or_is_left_out(image_folder):
    damaged = image_folder / "train" / "dark" / "3.png"
    damaged.write_bytes(damaged.read_bytes()[:60])
    chosen = recipe(str(image_folder), augment="webvision", epochs=2)
    with pytest.raises(ValueError, match=r"3\.png: not a readable image"):
        train(chosen, options=RunOptions(workers=0))
    outcome = train(chosen, options=RunOptions(workers=0, skip_corrupt=True))
    assert outcome.record.status == "finished"
    assert outcome.record.result["images_left_out"] == 1
    assert (outcome.predictions[2].predicted == -1).sum() == 1
    assert "test_images_left_out" not in outcome.record.result


@pytest.mark.usefixtures("own")
def test_a_damaged_test_image_left_out_does_not_count_as_wrong(image_folder):
    damaged = sorted((image_folder / "test").rglob("*.png"))[0]
    damaged.write_bytes(damaged.read_bytes()[:60])
    outcome = train(recipe(str(image_folder), augment="webvision"), options=RunOptions(workers=0, skip_corrupt=True))
    assert outcome.record.result["test_accuracy"] == 1.0
    assert outcome.record.result["test_images_left_out"] == 1


def test_a_last_batch_of_one_is_refused_before_training(tmp_path):
    np.savez(tmp_path / "nine.npz", x=np.zeros((9, 32, 32, 3), dtype=np.uint8), y=np.arange(9) % 2)
    with pytest.raises(
        ValueError, match=r"one example, on which BatchNorm cannot train: 9 examples in batches of 8; set batch=7"
    ):
        train(recipe(str(tmp_path / "nine.npz"), model="cnn8", batch=8))
    with pytest.raises(ValueError, match="BatchNorm cannot train on batches of one example; set batch=2 or more"):
        train(recipe(str(tmp_path / "nine.npz"), model="cnn8", batch=1))


def test_a_model_of_ones_own_need_not_be_copied_to_train_on_one(tmp_path, monkeypatch):
    (tmp_path / "my_normed.py").write_text(
        "from torch import nn\n"
        "def net(classes):\n"
        "    return nn.Sequential(nn.utils.weight_norm(nn.Linear(4, 8)), nn.ReLU(), nn.Linear(8, classes))\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    np.savez(tmp_path / "nine.npz", x=np.zeros((9, 4), dtype=np.float32), y=np.arange(9) % 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # there is a newer weight_norm
        assert train(recipe(str(tmp_path / "nine.npz"), model="my_normed:net", batch=8)).record.status == "finished"


def test_a_last_batch_of_one_matters_where_a_norm_sees_one_number_of_each_channel(tmp_path):
    """A ResNet's last ones do for images of 8x8, not for 16x16."""
    for size in (8, 16):
        np.savez(tmp_path / f"{size}.npz", x=np.zeros((3, size, size, 3), dtype=np.uint8), y=np.arange(3) % 2)
    with pytest.raises(ValueError, match="one example, on which BatchNorm cannot train"):
        train(recipe(str(tmp_path / "8.npz"), model="resnet18", batch=2))
    assert train(recipe(str(tmp_path / "16.npz"), model="resnet18", batch=2)).record.status == "finished"


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("my_tiny:wrong_shape", r"the model must return logits \[16, 2\], got \[16, 2, 1, 1\] for inputs \[16, 3, 8, 8\]"),
        ("my_tiny:pair", r"the model must return logits \[16, 2\], got tuple"),
        ("my_tiny:nothing", "must return a torch module, got NoneType"),
        ("my_tiny:thing", "must be a function of the number of classes, got int"),
        ("my_tiny:no_classes", "must be a function of the number of classes and of its options: too many positional arguments"),
        ("my_tiny:gone", "my_tiny has no 'gone'"),
        ("my_gone:network", "cannot import my_gone: No module named 'my_gone'; it must be on the Python path"),
        ("my_tiny:too_few", r"the model must return logits \[16, 2\], got \[16, 1\]"),
        ("resnt18", r"unknown model 'resnt18'; did you mean 'resnet18'\?"),
    ],
)
def test_a_model_that_does_not_fit_is_refused_with_the_reason(colours, model, message):
    with pytest.raises((ValueError, TypeError), match=message):
        train(recipe(colours, model=model))


def grey_folder(root, count=12, size=(28, 28)):
    """Two classes of grey images, dark and bright."""
    from PIL import Image

    generator = np.random.default_rng(0)
    for name, low in (("bright", 150), ("dark", 0)):
        (root / name).mkdir(parents=True)
        for k in range(count):
            Image.fromarray(generator.integers(low, low + 100, size, dtype=np.uint8)).save(root / name / f"{k:02}.png")
    return str(root)


def test_small_image_files_keep_their_size_and_their_one_channel(tmp_path):
    """And the record and the weights' file say all that is needed to use the network without the data."""
    place = grey_folder(tmp_path / "scans")
    chosen = own_recipe(open_dataset(place), place, "ce", seed=1, model="cnn8", gpu=False)
    assert (chosen.size, chosen.augment, chosen.model_options) == ((28, 28), "crop-flip", {})
    chosen = dataclasses.replace(chosen, epochs=1, batch=12, test_share=0.5)
    outcome = train(chosen, folder=tmp_path / "run")
    assert outcome.task.train.inputs.shape == (12, 28, 28, 1)
    assert outcome.task.inputs_in_words(chosen) == "images of 28x28 pixels, grey"
    told = outcome.record.task
    assert told["class_names"] == ["bright", "dark"]
    assert (told["preprocessing"]["channels"], told["preprocessing"]["size"]) == (1, [28, 28])
    with np.load(tmp_path / "run" / "confidence.npz") as kept:
        assert kept["path"].tolist() == list(outcome.task.train.paths)
    inputs = torch.from_numpy(outcome.task.train.inputs).movedim(-1, 1)
    assert named_by_the_page(tmp_path / "run", inputs) == [told["class_names"][k] for k in outcome.predictions[1].predicted]


def named_by_the_page(folder, x):
    """The classes of inputs as the code in docs/own_data.md finds them."""
    page = (Path(__file__).parents[2] / "docs" / "own_data.md").read_text(encoding="utf-8")
    code = page.partition("```python\n")[2].partition("```")[0].replace("runs/NAME", str(folder))
    known = {"x": x}
    exec(code, known)
    return known["named"]


def test_a_size_of_ones_own_is_a_recipe_for_small_images(image_folder, tmp_path):
    data = open_dataset(image_folder)  # 24x20, RGB
    small, large, files = (own_recipe(data, str(image_folder), "ce", seed=1, size=size) for size in (None, "96", "none"))
    assert (small.model, small.size, small.model_options) == ("resnet18", (24, 20), {})
    assert (large.model, large.size, large.model_options) == ("resnet18", (96, 96), {"stem": "imagenet"})
    assert (files.model, files.size, files.augment) == ("resnet50", None, "webvision")
    assert with_noise(data, small).train.inputs.shape == (20, 24, 20, 3)
    assert with_noise(data, files).train.kind == "files"
    grey_folder(tmp_path / "mixed", count=1)
    grey_folder(tmp_path / "mixed" / "more", count=1, size=(30, 28))
    (tmp_path / "mixed" / "more" / "dark").rename(tmp_path / "mixed" / "other")
    (tmp_path / "mixed" / "more" / "bright").rename(tmp_path / "mixed" / "third")
    (tmp_path / "mixed" / "more").rmdir()
    mixed = open_dataset(tmp_path / "mixed")
    assert own_recipe(mixed, "mixed", "ce", seed=1).model == "resnet50"


@pytest.mark.parametrize(("count", "optimiser", "lr", "l2"), [(3999, "adam", 2e-3, 0.0), (4000, "sgd", 0.01, 5e-4)])
def test_few_images_are_trained_by_adam(count, optimiser, lr, l2):
    """The few steps of SGD leave JAL with classes that it never predicts."""
    data = from_arrays(np.zeros((count, 8, 8), np.uint8), np.arange(count) % 2)
    chosen = own_recipe(data, "mine.npz", "jal-ce", seed=1)
    assert (chosen.optimiser, chosen.lr, chosen.l2, chosen.epochs, chosen.batch) == (optimiser, lr, l2, 100, 128)


@pytest.mark.usefixtures("own")
def test_a_network_of_ones_own_gets_small_files_in_rgb(tmp_path):
    """It is called with the number of classes alone, so it cannot know that there is one channel."""
    place = grey_folder(tmp_path / "scans")
    outcome = train(recipe(place, size=(28, 28), test_share=0.5))
    assert outcome.task.train.inputs.shape == (12, 28, 28, 3)
    assert outcome.record.result["test_accuracy"] == 1.0
    three = recipe(place, size=(28, 28), model="resnet18", model_options={"in_channels": 3})
    assert with_noise(open_dataset(place), three).train.inputs.shape == (24, 28, 28, 3)


def test_weights_of_colour_images_say_how_grey_files_are_read_for_them(tmp_path):
    place = grey_folder(tmp_path / "scans")
    torch.save(resnet18(2).state_dict(), tmp_path / "colour.pt")
    chosen = recipe(place, size=(28, 28), model="resnet18", weights=str(tmp_path / "colour.pt"))
    with pytest.raises(ValueError, match=r"conv1\.weight.*; for weights of colour images set model\.in_channels=3"):
        build_network(chosen, prepare(chosen))
    chosen = dataclasses.replace(chosen, model_options={"in_channels": 3})
    assert build_network(chosen, prepare(chosen)).in_channels == 3


def test_size_is_for_image_files(colours):
    with pytest.raises(ValueError, match=r"colours: size is for image files, not for arrays \(60, 8, 8, 3\): size=none"):
        train(recipe(colours, model="resnet18", size=(8, 8)))


def test_cnn8_says_how_photos_are_made_small_enough(image_folder):
    with pytest.raises(ValueError, match="cnn8 takes images of 28 to 64 pixels, and these are made 224x224: set size=32"):
        train(recipe(str(image_folder), model="cnn8", augment="webvision"))


@pytest.mark.parametrize(("side", "even"), [(28, False), (32, True), (40, True), (44, False), (64, True)])
def test_the_fast_path_takes_the_sizes_of_cnn8_that_its_kernels_can_pool(side, even):
    split = Split(np.zeros((4, side, side, 1), np.uint8), np.arange(4) % 2)
    assert pools_evenly("CNN-8", split) == even
    assert pools_evenly("resnet18", split)
    assert not pools_evenly("cnn8", Split(np.zeros((4, 1, 32, 28), np.float32), np.arange(4) % 2))


def scaled_features(tmp_path):
    """Two classes that one small column tells apart, beside one of large numbers and one that is constant."""
    generator = np.random.default_rng(0)
    y = np.arange(80) % 2
    x = np.stack([generator.normal(5000, 2000, 80), y * 1e-3 + generator.normal(0, 1e-4, 80), np.full(80, 0.1)], 1)
    np.savez(tmp_path / "scaled.npz", x=x, y=y)
    return str(tmp_path / "scaled.npz")


def test_own_features_are_standardised_and_raw_ones_are_not_learned(tmp_path):
    place = scaled_features(tmp_path)
    chosen = own_recipe(open_dataset(place), place, "jal-ce", seed=1)
    assert chosen.standardise
    chosen = dataclasses.replace(chosen, epochs=20, test_share=0.25)
    outcome = train(chosen, folder=tmp_path / "run")
    assert outcome.record.result["test_accuracy"] == 1.0
    assert outcome.record.recipe["standardise"] is True
    assert outcome.task.inputs_in_words(chosen) == "3 features, standardised by the training examples"
    names = [str(k) for k in outcome.predictions[20].predicted]
    assert named_by_the_page(tmp_path / "run", torch.from_numpy(outcome.task.train.inputs)) == names
    raw = dataclasses.replace(chosen, standardise=False)
    assert train(raw).record.result["test_accuracy"] < 0.8
    assert with_noise(open_dataset(place), raw).inputs_in_words(raw) == "3 features, as they are"


def pixels(generator):
    """As 8-bit pixels are, with a border that is nearly always 0."""
    x = generator.integers(0, 256, (100, 40))
    x[:, 30:36] *= generator.random((100, 6)) < 0.02
    x[:, 36:] = 0
    return x


@pytest.mark.parametrize(
    ("columns", "one"),
    [
        (pixels, True),
        (lambda generator: pixels(generator) / 255, True),
        (lambda generator: generator.integers(1, 6, (100, 12)), True),
        (lambda generator: generator.normal(size=(100, 12)), False),
        (lambda generator: np.c_[pixels(generator), np.arange(100) * 1000], False),
        (lambda generator: np.c_[generator.integers(0, 101, (100, 6)), generator.integers(0, 2, (100, 4))], False),
        (lambda generator: generator.integers(0, 256, (100, 1)), False),
        (lambda generator: np.float32([3e38, -3e38])[generator.integers(0, 2, (100, 3))], True),
        (lambda generator: np.zeros((100, 3)), False),
    ],
    ids=["pixels", "in [0, 1]", "answers 1 to 5", "continuous", "with a number", "percent and yes or no", "one", "far", "none"],
)
def test_columns_of_one_kind_get_one_scale(columns, one):
    data = from_arrays(columns(np.random.default_rng(0)).astype(np.float32), np.arange(100) % 2)
    chosen = own_recipe(data, "mine.npz", "ce", seed=1)
    assert (chosen.standardise, chosen.one_scale) == (True, one)
    words = with_noise(data, chosen).inputs_in_words(chosen)
    assert words.endswith(", all columns by one scale") == one


def test_the_statistics_leave_out_what_is_held_out_and_serve_every_use_of_the_network(tmp_path):
    place = scaled_features(tmp_path)
    chosen = recipe(place, model="mlp", standardise=True, test_share=0.25, epochs=1)
    task = with_noise(open_dataset(place), chosen)
    kept = task.train.inputs.astype(np.float64)
    assert len(kept) == 60
    run = Run(chosen, task)
    facts = run.inputs["preprocessing"]["standardise"]
    np.testing.assert_allclose(facts["mean"], kept.mean(0), rtol=1e-12)
    np.testing.assert_allclose(facts["std"][:2], kept.std(0)[:2], rtol=1e-9)
    assert facts["std"][2] == 0
    by_hand = np.zeros((20, 3), np.float32)
    by_hand[:, :2] = (task.test.inputs - kept.mean(0))[:, :2] / kept.std(0)[:2]
    with torch.no_grad():
        expected = run.network(torch.from_numpy(by_hand))
    np.testing.assert_allclose(run.logits(task.test), expected, rtol=1e-4, atol=1e-5)  # raw inputs in, as everywhere
    np.testing.assert_allclose(next(run.test_feed.in_order()).inputs, by_hand, rtol=1e-4, atol=1e-6)
    fold = dataclasses.replace(task, train=task.train.take(np.arange(0, 60, 2)))
    found = Run(chosen, fold).inputs["preprocessing"]["standardise"]["mean"]
    np.testing.assert_allclose(found, kept[::2].mean(0), rtol=1e-12)


@pytest.mark.parametrize(
    ("shape", "asked"),
    [
        ((6, 3, 32, 32), True),
        ((6, 1, 28, 28), True),
        ((6, 32, 32, 3), True),
        ((6, 28, 28), True),
        ((6, 30, 12), False),
        ((6, 4, 4), False),
        ((6, 3072), False),
        ((6, 20, 7, 7), False),
    ],
)
def test_floats_that_look_like_images_are_asked_about(shape, asked):
    data = from_arrays(np.zeros(shape, np.float32), np.arange(6) % 2, name="mine")
    if asked:
        with pytest.raises(
            ValueError, match=r"mine.npz: floating inputs \[6, .*\] look like images. If they are, save them as uint8"
        ):
            own_recipe(data, "mine.npz", "ce", seed=1)
    else:
        assert own_recipe(data, "mine.npz", "ce", seed=1).model == "mlp"
    assert own_recipe(data, "mine.npz", "ce", seed=1, model="mlp").standardise
    if shape[-1] == 3:
        with pytest.raises(
            ValueError, match=r"and resnet18 reads \[N, C, H, W\]: transpose\(0, 3, 1, 2\) puts the channels first"
        ):
            own_recipe(data, "mine.npz", "ce", seed=1, model="resnet18")


def test_the_same_data_by_another_path_are_the_same_run(tmp_path):
    place = scaled_features(tmp_path)
    (tmp_path / "copies").mkdir()
    copy = str(shutil.copy(place, tmp_path / "copies" / "renamed.npz"))
    chosen = recipe(place, model="mlp", epochs=1)
    folder = tmp_path / "runs" / "first"
    train(chosen, folder=folder)
    by_copy = dataclasses.replace(chosen, dataset=copy)
    assert train(by_copy, folder=folder).record.recipe["dataset"] == place  # finished before
    store = RunStore(tmp_path / "runs")
    assert store.folder_for(by_copy, task_facts(by_copy, prepare(by_copy))) == folder
    np.savez(tmp_path / "copies" / "scaled.npz", x=np.zeros((80, 3)), y=np.arange(80) % 2)
    other = dataclasses.replace(chosen, dataset=str(tmp_path / "copies" / "scaled.npz"))
    assert store.folder_for(other, task_facts(other, prepare(other))) != folder
    with pytest.raises(CheckpointError, match="is of another run"):
        train(other, folder=folder)


def test_a_run_from_before_class_names_were_kept_is_resumed(tmp_path, interrupted, files):
    """Its record and its checkpoint lack the new fields of the recipe and of the task."""
    place = scaled_features(tmp_path)
    chosen = recipe(place, model="mlp", epochs=4)
    train(chosen, folder=tmp_path / "whole")
    interrupted(chosen, tmp_path / "stopped", 2)
    tensors, facts = read_checkpoint(tmp_path / "stopped")
    for name in ("standardise", "size"):
        del facts["recipe"][name]
    for name in ("class_names", "preprocessing"):
        del facts["task"][name]
    write_checkpoint(tmp_path / "stopped", tensors, facts)
    (tmp_path / "stopped" / "record.json").write_text(json.dumps(facts))
    with pytest.raises(CheckpointError, match="is of another run: standardise is False, not True"):
        train(dataclasses.replace(chosen, standardise=True), folder=tmp_path / "stopped")
    train(chosen, folder=tmp_path / "stopped")
    assert files(tmp_path / "stopped")[:4] == files(tmp_path / "whole")[:4]
    assert files(tmp_path / "stopped")[4] == files(tmp_path / "whole")[4]  # with the class names now


def test_images_models_refuse_features(tmp_path):
    np.savez(tmp_path / "features.npz", x=np.zeros((4, 3)), y=np.arange(4) % 2)
    with pytest.raises(ValueError, match=r"resnet18 reads images \[N, C, H, W\]; these inputs are features \(3,\): use mlp"):
        train(recipe(str(tmp_path / "features.npz"), model="resnet18"))
    with pytest.raises(ValueError, match="augment 'flip' is for images; these inputs are features: use none"):
        train(recipe(str(tmp_path / "features.npz"), model="mlp", augment="flip"))


def test_a_perceptron_refuses_image_files(image_folder):
    with pytest.raises(ValueError, match="mlp reads features; these inputs are image files: use resnet18"):
        train(recipe(str(image_folder), model="mlp", augment="webvision"))


def test_weights_that_are_not_there_are_named_with_the_way_out(colours):
    with pytest.raises(
        FileNotFoundError, match=r"no file of weights /.*gone\.pth; say where it is, weights=PATH, or start without"
    ):
        train(recipe(colours, model="resnet18", weights="gone.pth"))


def test_another_file_of_weights_is_another_run(tmp_path):
    np.savez(tmp_path / "x.npz", x=np.random.default_rng(0).normal(size=(40, 5)), y=np.arange(40) % 2)
    weights = tmp_path / "weights.safetensors"
    chosen = recipe(str(tmp_path / "x.npz"), model="mlp", weights=str(weights), epochs=1)
    for seed in (1, 2):
        train(dataclasses.replace(chosen, weights=None, seed=seed), folder=tmp_path / str(seed))
    shutil.copy(tmp_path / "1" / weights.name, weights)
    train(chosen, folder=tmp_path / "run")
    shutil.copy(tmp_path / "2" / weights.name, weights)
    with pytest.raises(CheckpointError, match="is of another run: its files of data were"):
        train(chosen, folder=tmp_path / "run")


@pytest.mark.parametrize("finished", [False, True])
def test_a_model_of_ones_own_whose_code_has_changed_is_another_run(tmp_path, monkeypatch, interrupted, finished):
    """Its comments may change."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(code):
        (tmp_path / "edited.py").write_text(code)
        for name in ("edited", "named"):
            sys.modules.pop(name, None)
        importlib.invalidate_caches()

    code = "from torch import nn\n\n\ndef network(classes):\n    return nn.Sequential(nn.Linear(5, classes), nn.{}())\n"
    np.savez(tmp_path / "x.npz", x=np.random.default_rng(0).normal(size=(40, 5)), y=np.arange(40) % 2)
    chosen = recipe(str(tmp_path / "x.npz"), model="edited:network", epochs=3)
    write(code.format("ReLU"))
    if finished:
        train(chosen, folder=tmp_path / "run")
    else:
        interrupted(chosen, tmp_path / "run", 2)
    write(code.format("Tanh"))
    with pytest.raises(CheckpointError, match="is of another run: its model's lines of code were"):
        train(chosen, folder=tmp_path / "run")
    # Named where it is imported, it is the same code.
    (tmp_path / "named.py").write_text("from functools import partial\nfrom edited import network\nother = partial(network)\n")
    named, other = (model_code_hash(dataclasses.replace(chosen, model=f"named:{name}")) for name in ("network", "other"))
    assert named == model_code_hash(chosen) != other
    write("# The best of all networks.\n" + code.format("ReLU"))
    assert train(chosen, folder=tmp_path / "run").record.status == "finished"


@pytest.mark.usefixtures("own")
def test_bf16_is_close_to_float32(colours):
    """Autocast rounds to eight bits, so accuracies agree and losses do to a percent."""
    full, half = (train(recipe(colours, precision=precision, epochs=3)).record for precision in ("float32", "bf16"))
    assert half.epochs[-1].loss == pytest.approx(full.epochs[-1].loss, rel=0.02)
    assert half.epochs[-1].loss != full.epochs[-1].loss


def test_weights_of_one_run_start_another(tmp_path):
    """Without any learning the second run predicts what the first did at its end."""
    np.savez(tmp_path / "x.npz", x=np.random.default_rng(0).normal(size=(40, 5)), y=np.arange(40) % 2)
    chosen = recipe(str(tmp_path / "x.npz"), model="mlp")
    first = train(chosen, folder=tmp_path / "first").predictions[6]
    weights = str(tmp_path / "first" / "weights.safetensors")
    again = train(dataclasses.replace(chosen, weights=weights, lr=0.0, epochs=1)).predictions[1]
    assert np.array_equal(again.probability, first.probability)
