"""Small runs that end in a second."""

import dataclasses

import numpy as np
import pytest

from noiseproof import paper
from noiseproof.train import override
from tests.helpers.own import TINY
from tests.helpers.stopping import StopIn, StoppedError


@pytest.fixture
def interrupted():
    """Trains up to the middle of an epoch, with a checkpoint after each one before it."""
    from noiseproof.train import train

    def run(recipe, folder, epoch, **options):
        with pytest.raises(StoppedError):
            train(recipe, folder=folder, checkpoint_seconds=0, callback=StopIn(epoch), **options)

    return run


@pytest.fixture(scope="session")
def digits():
    """A recipe that takes about 40 ms for each of its six epochs."""
    changes = {"epochs": 6, "model.hidden": [32], "confidence_epochs": (2, 4)}
    return override(paper.recipe("digits/jal-ce", noise="symmetric:0.4", seed=5), changes)


@pytest.fixture(scope="session")
def files():
    """What a run has written, less what depends on the clock and the machine."""
    from noiseproof.train import Record

    def read(folder):
        names = sorted(path.name for path in folder.iterdir())
        record = Record.read(folder)
        epochs = [dataclasses.replace(epoch, seconds=0.0) for epoch in record.epochs]
        content = {name: (folder / name).read_bytes() for name in names if name != "record.json"}
        return names, content, epochs, record.result, record.task, record.status

    return read


@pytest.fixture
def image_folder(tmp_path):
    """Two classes of small images, dark and bright, as files in train and test folders."""
    from PIL import Image

    generator = np.random.default_rng(0)
    for split, count in (("train", 10), ("test", 3)):
        for name, low in (("dark", 0), ("bright", 150)):
            place = tmp_path / "images" / split / name
            place.mkdir(parents=True)
            for k in range(count):
                Image.fromarray(generator.integers(low, low + 100, (24, 20, 3), dtype=np.uint8)).save(place / f"{k}.png")
    return tmp_path / "images"


@pytest.fixture
def own(tmp_path, monkeypatch):
    """Its module ``my_tiny`` can be imported."""
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
