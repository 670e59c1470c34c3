"""The paper is a plug-in: its names work everywhere, and the product works without it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from noiseproof.data import ImageFiles, Pipeline, register_augmentation
from noiseproof.data.augment import find_augmentation
from noiseproof.data.registry import all_datasets, find_name
from noiseproof.train.batch_loader import Transforms

SOURCE = Path(__file__).resolve().parents[2] / "src" / "noiseproof"


@pytest.fixture(scope="module")
def without_paper(tmp_path_factory):
    """A copy of the package without paper/, and a table of two classes; returns what runs Python on them."""
    folder = tmp_path_factory.mktemp("product")
    shutil.copytree(SOURCE, folder / "src" / "noiseproof", ignore=shutil.ignore_patterns("__pycache__", "paper"))
    draw = np.random.default_rng(0)
    labels = np.arange(120) % 2
    points = draw.normal(size=(120, 2)) + 3 * labels[:, None]
    rows = [f"{x:.4f},{y:.4f},{'no' if label else 'yes'}" for (x, y), label in zip(points, labels, strict=True)]
    (folder / "table.csv").write_text("\n".join(["a,b,label", *rows]) + "\n", encoding="utf-8")

    def run(*arguments):
        env = {"PYTHONPATH": str(folder / "src"), "PATH": os.environ["PATH"], "HOME": str(folder), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, *arguments]
        return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=180, check=False)

    return run


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("train jal-ce --data table.csv --set epochs=2 --test-size 0.2", "test accuracy"),
        ("audit table.csv --out audit", "look"),
        ("compare ce,jal-ce --data table.csv --set epochs=2 --test-size 0.2 --seeds 2 --jobs 1", "jal-ce"),
        ("advise table.csv", "loss"),
    ],
    ids=lambda text: text.split()[0],
)
def test_the_product_works_without_the_paper(without_paper, command, expected):
    done = without_paper("-m", "noiseproof", *command.split())
    assert done.returncode == 0, done.stdout + done.stderr
    assert expected in done.stdout + done.stderr


def test_without_the_paper_its_names_are_unknown(without_paper):
    done = without_paper("-c", "import noiseproof\nnoiseproof.data.open_dataset('cifar10')")
    unknown = "FileNotFoundError: no data set 'cifar10', and no file or folder of that name; the names are digits\n"
    assert done.stderr.endswith(unknown)
    code = "from noiseproof.train import Recipe\nRecipe(dataset='digits', loss='ce', augment='cifar10')"
    assert "augment must be one of none, flip, crop-flip, webvision, got 'cifar10'" in without_paper("-c", code).stderr
    code = "from noiseproof.train import Recipe\nRecipe(dataset='mine', loss='ce', model='resnet50', augment='webvision')"
    assert without_paper("-c", code).returncode == 0  # the default for image files is the product's
    code = "from noiseproof.models import create_model\ncreate_model('cnn8', 10)"
    assert "unknown model 'cnn8'; did you mean 'cnn5'?" in without_paper("-c", code).stderr
    code = "from noiseproof.noise import load_labels\nopen('human.pt', 'wb').close()\nload_labels('human.pt')"
    assert "labels are read from .npy, .npz, .json, .csv, got '.pt'" in without_paper("-c", code).stderr
    code = "from noiseproof.models import MLP, load_weights\nload_weights(MLP(2, 2), 'weights.pt')"
    assert "weights must be a .safetensors file, got weights.pt" in without_paper("-c", code).stderr
    done = without_paper("-m", "noiseproof", "data", "fetch", "cifar10")
    assert "unknown data set 'cifar10'; these can be fetched: none" in done.stderr


def test_names_of_the_paper_are_found_when_they_are_asked_for():
    code = """
import sys
from noiseproof.data import open_dataset
open_dataset("digits")
assert "noiseproof.paper" not in sys.modules
from noiseproof.data.registry import find_name
assert find_name("cifar10").fetch
assert "noiseproof.paper.plugin" in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=600)


def test_an_augmentation_of_ones_own_is_used_by_its_name(monkeypatch):
    monkeypatch.setattr("noiseproof.data.augment.AUGMENTATIONS", {})
    register_augmentation("mine", lambda *, in_files, size, output: Pipeline("train", "test", (in_files, size)))
    found = Transforms.named("mine", ImageFiles(("a.png",), [0]), size=(8, 8))
    assert (found.train, found.test, found.train_framing) == ("train", "test", (True, (8, 8)))


def test_what_is_not_there_is_unknown():
    assert find_name("nothing") is None
    with pytest.raises(KeyError):
        find_augmentation("nothing")
    assert {"digits", "cifar10", "webvision"} <= set(all_datasets())
