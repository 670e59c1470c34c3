"""A user's own data go through the same loop: how they are read and prepared, and with which settings they are learned."""

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from noiseproof.data import from_arrays, open_dataset
from noiseproof.train import (
    CheckpointError,
    Run,
    RunOptions,
    RunStore,
    own_recipe,
    plan_run,
    prepare,
    train,
    with_noise,
)
from noiseproof.train.record import task_facts
from noiseproof.train.runs import read_checkpoint, write_checkpoint
from tests.helpers.own import grey_folder, recipe


@pytest.mark.parametrize("augment", ["none", "flip", "crop-flip"])
@pytest.mark.usefixtures("own")
def test_an_npz_of_images_is_learned(colours, augment):
    outcome = train(recipe(colours, augment=augment, test_size=0.2))
    assert outcome.record.result["test_accuracy"] == 1.0
    assert outcome.record.task["test_examples"] == 12


@pytest.mark.usefixtures("own")
def test_a_folder_of_image_files_is_learned(image_folder):
    outcome = train(recipe(str(image_folder), augment="webvision", noise="symmetric:0.2"), options=RunOptions(workers=0))
    assert outcome.record.result["test_accuracy"] == 1.0
    assert outcome.record.epochs[-1].clean_accuracy is not None
    assert outcome.task.noise["rate"] == 0.2


def test_images_are_learnt_by_a_small_network_where_there_is_no_gpu(image_folder, tmp_path):
    few = from_arrays(np.zeros((60, 48, 48, 3), np.uint8), np.arange(60) % 2)
    names = ("model", "size", "optimiser", "l2", "clip", "epochs")
    for data, size in (
        (few, None),
        (open_dataset(image_folder), own_recipe(open_dataset(image_folder), "", "ce", seed=0).size),
    ):
        chosen = own_recipe(data, "data", "ce", seed=0, gpu=False)
        assert [getattr(chosen, name) for name in names] == ["cnn5", size, "adam", 0.0, None, 100]
        assert own_recipe(data, "data", "ce", seed=0, gpu=False, model="resnet18").model == "resnet18"
        assert own_recipe(data, "data", "ce", seed=0).model.startswith("resnet")
    many = from_arrays(np.zeros((12_000, 2, 2, 1), np.uint8), np.arange(12_000) % 2)
    assert own_recipe(many, "data", "ce", seed=0, gpu=False).epochs == 25
    np.savez(tmp_path / "images.npz", x=few.train.inputs, y=few.train.labels)
    plan = plan_run("ce", data=str(tmp_path / "images.npz"))
    assert "no GPU: the images are learnt by a small network, cnn5" in plan.recipe.why[0]


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
    outcome = train(recipe(str(tmp_path / "all.txt"), augment=augment, test_size=0.2), options=RunOptions(workers=0))
    assert outcome.record.result["test_accuracy"] == 1.0


@pytest.mark.usefixtures("own")
def test_a_damaged_image_stops_the_run(image_folder):
    damaged = image_folder / "train" / "dark" / "3.png"
    damaged.write_bytes(damaged.read_bytes()[:60])
    chosen = recipe(str(image_folder), augment="webvision", epochs=2)
    with pytest.raises(ValueError, match=r"3\.png: not a readable image"):
        train(chosen, options=RunOptions(workers=0))


def test_small_image_files_keep_their_size_and_their_one_channel(tmp_path):
    """And the record and the weights' file say all that is needed to use the network without the data."""
    place = grey_folder(tmp_path / "scans")
    chosen = own_recipe(open_dataset(place), place, "ce", seed=1, model="cnn8", gpu=False)
    assert (chosen.size, chosen.augment, chosen.model_options) == ((28, 28), "crop-flip", {})
    chosen = dataclasses.replace(chosen, epochs=1, batch=12, test_size=0.5)
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
    """The classes of inputs as the code in docs/how_to/own_data.md finds them."""
    page = (Path(__file__).parents[2] / "docs" / "how_to" / "own_data.md").read_text(encoding="utf-8")
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


def test_size_is_for_image_files(colours):
    with pytest.raises(ValueError, match=r"colours: size is for image files, not for arrays \(60, 8, 8, 3\): size=none"):
        train(recipe(colours, model="resnet18", size=(8, 8)))


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
    chosen = dataclasses.replace(chosen, epochs=20, test_size=0.25)
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
        (lambda generator: generator.normal(size=(100, 32)) * np.linspace(1, 5, 32), True),
        (lambda generator: np.c_[generator.normal(size=(100, 31)), np.full(100, 7.0)] + np.arange(32), True),
        (lambda generator: generator.normal(size=(100, 32)) * 10.0 ** np.linspace(0, 3, 32), False),
    ],
    ids=[
        *("pixels", "in [0, 1]", "answers 1 to 5", "continuous", "with a number", "percent and yes or no"),
        *("one", "far", "none", "embedding", "with a constant", "many scales"),
    ],
)
def test_columns_of_one_kind_get_a_global_scale(columns, one):
    data = from_arrays(columns(np.random.default_rng(0)).astype(np.float32), np.arange(100) % 2)
    chosen = own_recipe(data, "mine.npz", "ce", seed=1)
    assert (chosen.standardise, chosen.global_scaling) == (True, one)
    words = with_noise(data, chosen).inputs_in_words(chosen)
    assert words.endswith(", all columns by one global scale") == one


def test_the_statistics_leave_out_what_is_held_out_and_serve_every_use_of_the_network(tmp_path):
    place = scaled_features(tmp_path)
    chosen = recipe(place, model="mlp", standardise=True, test_size=0.25, epochs=1)
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
        expected = torch.softmax(run.network(torch.from_numpy(by_hand)), 1)
    np.testing.assert_allclose(run.probabilities(task.test), expected, rtol=1e-4, atol=1e-5)  # raw inputs in, as everywhere
    np.testing.assert_allclose(next(run.test_loader.eval_batches()).inputs, by_hand, rtol=1e-4, atol=1e-6)
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


@pytest.mark.parametrize(("count", "share", "optimiser"), [(4100, "0.0", "sgd"), (4100, "0.1", "adam"), (3999, "0.0", "adam")])
def test_images_that_are_held_out_do_not_count_for_the_optimiser(tmp_path, count, share, optimiser):
    place = tmp_path / "images.npz"
    np.savez(place, x=np.zeros((count, 8, 8, 3), np.uint8), y=np.arange(count) % 2)
    plan = plan_run("ce", data=str(place), changes={"test_size": share, "model": "resnet18"}, runs=tmp_path)
    assert plan.recipe.optimiser == optimiser
