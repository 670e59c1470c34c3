"""Networks on a user's own data, the user's own among them, and weights to start from: what fits, and what is another run."""

import dataclasses
import importlib
import shutil
import sys
import warnings

import numpy as np
import pytest
import torch

from noiseproof.data import Split, open_dataset
from noiseproof.models import resnet18
from noiseproof.train import (
    CheckpointError,
    RunOptions,
    prepare,
    train,
    with_noise,
)
from noiseproof.train.engine import pools_evenly
from noiseproof.train.network import build_network, model_code_hash
from tests.helpers.own import grey_folder, recipe


@pytest.mark.parametrize("model", ["cnn8", "resnet18", "mlp"])
def test_the_catalogues_models_train_on_grey_images(tmp_path, model):
    x = np.random.default_rng(0).integers(0, 256, (20, 32, 32), dtype=np.uint8)
    np.savez(tmp_path / "grey.npz", x=x, y=np.arange(20) % 2)
    outcome = train(recipe(str(tmp_path / "grey.npz"), model=model, epochs=1, lr=0.01, augment="crop-flip"))
    assert outcome.record.status == "finished"


def test_a_residual_network_takes_floating_inputs_as_they_are(tmp_path):
    np.savez(tmp_path / "floats.npz", x=np.random.default_rng(0).normal(size=(8, 2, 16, 16)), y=np.arange(8) % 2)
    assert train(recipe(str(tmp_path / "floats.npz"), model="resnet18", epochs=1, lr=0.01)).record.status == "finished"


def test_a_last_batch_of_one_is_refused_before_training(tmp_path):
    np.savez(tmp_path / "nine.npz", x=np.zeros((9, 32, 32, 3), dtype=np.uint8), y=np.arange(9) % 2)
    for batch in (8, 1):
        says = f"one example, on which BatchNorm cannot train: 9 examples in batches of {batch}; set another batch"
        with pytest.raises(ValueError, match=says):
            train(recipe(str(tmp_path / "nine.npz"), model="cnn8", batch=batch))


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
    with pytest.raises(ValueError, match="Expected more than 1 value per channel when training"):
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


@pytest.mark.usefixtures("own")
def test_a_network_of_ones_own_gets_small_files_in_rgb(tmp_path):
    """It is called with the number of classes alone, so it cannot know that there is one channel."""
    place = grey_folder(tmp_path / "scans")
    outcome = train(recipe(place, size=(28, 28), test_size=0.5))
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


def test_cnn8_says_how_photos_are_made_small_enough(image_folder):
    with pytest.raises(ValueError, match="cnn8 takes images of 28 to 64 pixels, and these are made 224x224: set size=32"):
        train(recipe(str(image_folder), model="cnn8", augment="webvision"))


@pytest.mark.parametrize(("side", "even"), [(28, False), (32, True), (40, True), (44, False), (64, True)])
def test_the_fast_path_takes_the_sizes_of_cnn8_that_its_kernels_can_pool(side, even):
    split = Split(np.zeros((4, side, side, 1), np.uint8), np.arange(4) % 2)
    assert pools_evenly("CNN-8", split) == even
    assert pools_evenly("resnet18", split)
    assert not pools_evenly("cnn8", Split(np.zeros((4, 1, 32, 28), np.float32), np.arange(4) % 2))


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
@pytest.mark.parametrize(
    "device", ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"))]
)
def test_bf16_is_close_to_float32_on_a_gpu_and_float32_on_a_cpu(colours, device):
    """Autocast rounds to eight bits, so accuracies agree and losses do to a percent."""
    options = RunOptions(torch.device(device))
    recipes = [recipe(colours, precision=precision, epochs=3) for precision in ("float32", "bf16")]
    full, half = (train(one, options=options).record.epochs[-1].loss for one in recipes)
    assert half == pytest.approx(full, rel=0.02)
    assert (half == full) == (device == "cpu")


def test_weights_of_one_run_start_another(tmp_path):
    """Without any learning the second run predicts what the first did at its end."""
    np.savez(tmp_path / "x.npz", x=np.random.default_rng(0).normal(size=(40, 5)), y=np.arange(40) % 2)
    chosen = recipe(str(tmp_path / "x.npz"), model="mlp")
    first = train(chosen, folder=tmp_path / "first").predictions[6]
    weights = str(tmp_path / "first" / "weights.safetensors")
    again = train(dataclasses.replace(chosen, weights=weights, lr=0.0, epochs=1)).predictions[1]
    assert np.array_equal(again.probability, first.probability)
