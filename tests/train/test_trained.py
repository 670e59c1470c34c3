"""A finished run, loaded without its data, computes what the run did."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import noiseproof
from noiseproof.data import DataError, ImageFiles, Resize, ResizeCenterCrop, ResizeCrop, Split, from_arrays, open_dataset
from noiseproof.train import Recipe, Run, RunOptions, load, train, with_noise
from noiseproof.train.batch_loader import Standardise, Transforms
from noiseproof.train.preprocessing import FRAMINGS, OPERATIONS, Preprocessing, _written

CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

MODULE = """
from pathlib import Path

from torch import nn


def network(classes, channels=3):
    Path(__file__).with_name("called").touch()
    return nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(4 * channels, classes))
"""
OWN = "own_network:network"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a module of the user's own and images in folders of classes, beside which runs are kept."""
    folder = tmp_path_factory.mktemp("trained")
    (folder / "own_network.py").write_text(MODULE, encoding="utf-8")
    generator = np.random.default_rng(0)
    for name, low in (("dark", 0), ("bright", 150)):
        (folder / "colour" / name).mkdir(parents=True)
        (folder / "grey" / name).mkdir(parents=True)
        for k in range(5):
            Image.fromarray(generator.integers(low, low + 100, (40, 30, 3), dtype=np.uint8)).save(
                folder / "colour" / name / f"{k}.png"
            )
            Image.fromarray(generator.integers(low, low + 100, (30, 28), dtype=np.uint8)).save(
                folder / "grey" / name / f"{k}.png"
            )
    sys.path.insert(0, str(folder))
    yield folder
    sys.path.remove(str(folder))
    sys.modules.pop("own_network", None)


def arrays(kind):
    generator = np.random.default_rng(1)
    shape = {"features": (1205, 5), "planes": (12, 2, 6, 5), "grey": (12, 28, 28), "images": (6, 30, 28, 3)}[kind]
    y = np.arange(shape[0]) % 3
    if kind in ("grey", "images"):
        return from_arrays(generator.integers(0, 256, shape, dtype=np.uint8), y, name=kind)
    x = 3 * generator.normal(size=shape) + 7
    x[:, 1] = 2.5  # constant, so that its deviation is 0
    return from_arrays(x, y, name=kind)


MLP = {"model": "mlp", "model_options": {"hidden": [8]}}
CNN = {"model": "cnn8", "model_options": {"widths": [4, 6, 8]}}
KINDS = {
    "features": (lambda place: arrays("features"), {**MLP, "standardise": True}),
    "features as they are": (lambda place: arrays("features"), MLP),
    "planes": (lambda place: arrays("planes"), {"model": OWN, "model_options": {"channels": 2}, "standardise": True}),
    "grey": (lambda place: arrays("grey"), {**CNN, "augment": "crop-flip"}),
    "images": (lambda place: arrays("images"), {**MLP, "augment": "flip"}),
    "arrays cropped to 224": (lambda place: arrays("images"), {"model": OWN, "augment": "webvision"}),
    "small grey files": (lambda place: open_dataset(place / "grey"), {**CNN, "size": (28, 28), "augment": "flip"}),
    "files of a size": (lambda place: open_dataset(place / "colour"), {"model": OWN, "size": (20, 24), "augment": "none"}),
    "files at 224": (lambda place: open_dataset(place / "colour"), {"model": OWN, "augment": "webvision"}),
    "files as Clothing1M's": (lambda place: open_dataset(place / "colour"), {"model": OWN, "augment": "clothing1m"}),
}


class Finished:
    """A run in a folder, its data, and its own evaluation."""

    def __init__(self, place, kind):
        make, facts = KINDS[kind]
        self.folder, self.dataset = place / "runs" / kind, make(place)
        self.recipe = Recipe(dataset=kind, loss="ce", lr=0.05, batch=64, **facts)
        self.task = with_noise(self.dataset, self.recipe)
        self.options = RunOptions(workers=0)
        self.own = {"model": OWN} if self.recipe.model == OWN else {}
        train(self.recipe, self.task, folder=self.folder, options=self.options)

    def load(self, **options):
        return noiseproof.load(self.folder, **self.own, **options)

    def run(self):
        run = Run(self.recipe, self.task, self.options)
        weights = {f"network.{name}": tensor for name, tensor in load_file(self.folder / "weights.safetensors").items()}
        run.load_state(run.state() | weights)
        return run


@pytest.fixture(scope="module")
def finished(place):
    made = {}

    def get(kind):
        made[kind] = made.get(kind) or Finished(place, kind)
        return made[kind]

    return get


@pytest.mark.parametrize("kind", KINDS)
def test_probabilities_equal_those_of_the_run_to_the_bit(finished, kind):
    one = finished(kind)
    run, trained = one.run(), one.load()
    wanted, split = run.probabilities(one.task.train), one.task.train
    run.close()
    assert trained.classes == one.task.classes
    assert np.array_equal(trained.probabilities(split), wanted)
    assert np.array_equal(trained.predict(split), wanted.argmax(1))
    raw = one.dataset.train  # before it was decoded
    given = list(raw.paths) if isinstance(raw, ImageFiles) else raw.inputs
    assert np.array_equal(trained.probabilities(given), wanted)


def test_what_comes_out_agrees_with_itself(finished):
    one = finished("small grey files")
    trained, paths = one.load(), [Path(path) for path in one.dataset.train.paths]
    logits, probabilities = trained.logits(paths), trained.probabilities(paths)
    assert logits.shape == (10, 2)
    assert np.allclose(np.exp(logits) / np.exp(logits).sum(1, keepdims=True), probabilities, atol=1e-6)
    assert trained.predict_names(paths) == [trained.classes[k] for k in trained.predict(paths)]
    assert np.allclose(trained.probabilities(paths[0]), probabilities[:1], atol=1e-6)
    assert np.allclose(trained.probabilities(str(paths[0])), probabilities[:1], atol=1e-6)
    assert trained.record.status == "finished"
    assert repr(trained) == "TrainedClassifier(cnn8: images [28, 28, 1] to 2 classes, on cpu)"
    assert not trained.network.training


def test_arrays_tensors_and_files_are_the_same_examples(finished):
    trained = finished("small grey files").load()
    pixels = np.random.default_rng(3).integers(0, 256, (4, 28, 28), dtype=np.uint8)
    wanted = trained.probabilities(pixels)
    for same in (pixels[..., None], torch.from_numpy(pixels), Split(pixels, np.zeros(4, np.int64))):
        assert np.array_equal(trained.probabilities(same), wanted)


def test_an_array_may_be_mirrored_or_read_only(finished):
    """``images[..., ::-1]`` makes RGB of BGR, and Pillow's pixels cannot be written to."""
    trained = finished("images").load()
    pixels = np.random.default_rng(3).integers(0, 256, (4, 30, 28, 3), dtype=np.uint8)
    fixed = pixels.copy()
    fixed.flags.writeable = False
    for view in (pixels[..., ::-1], pixels[:, ::-1], pixels[::-1], fixed):
        assert np.array_equal(trained.probabilities(view), trained.probabilities(view.copy()))


@pytest.mark.parametrize(
    ("kind", "x", "message"),
    [
        ("features", np.zeros((3, 4)), r"trained on floating features \[N, 5\], got float32 of shape \(3, 4\)"),
        ("features", np.zeros(5), r"x: inputs must be \[N, \.\.\.\], got shape \(5,\)"),
        ("features", np.zeros((3, 5), np.uint8), r"trained on floating features \[N, 5\], got uint8"),
        ("features", np.full((3, 5), np.nan), "x: inputs must be finite"),
        ("features", np.zeros((3, 5), int), "x: inputs must be uint8 images or floating features, got int64"),
        ("features", ["a.png"], r"trained on features \[N, 5\], and a.png is an image file"),
        ("features", "new.csv", r"features \[N, 5\]: 'noiseproof predict' reads files, and this .*, got 'new.csv'"),
        ("grey", np.zeros((3, 28, 27), np.uint8), r"trained on images uint8 \[N, 28, 28, 1\], from 0 to 255, got uint8"),
        ("grey", np.zeros((3, 28, 28)), r"images uint8 \[N, 28, 28, 1\], from 0 to 255, got float32 of shape \(3, 28, 28\)"),
        ("images", np.zeros((3, 30, 28, 4), np.uint8), r"trained on images uint8 \[N, 30, 28, 3\]"),
        ("arrays cropped to 224", np.zeros((3, 30, 28, 1), np.uint8), r"trained on images uint8 \[N, 30, 28, 3\]"),
    ],
)
def test_examples_of_another_kind_get_one_sentence(finished, kind, x, message):
    with pytest.raises(DataError, match=message):
        finished(kind).load().predict(x)


def test_colour_is_not_dropped_for_a_network_of_grey_images(finished, place):
    path = place / "colour" / "dark" / "0.png"
    with pytest.raises(DataError, match=r"0\.png: in colour, and the network was trained on grey images"):
        finished("small grey files").load().predict(path)


def rewritten(one, folder, change):
    """A copy of the run's folder whose weights have other metadata, its digest right."""
    folder.mkdir()
    with safe_open(one.folder / "weights.safetensors", "pt") as file:
        facts = json.loads(file.metadata()["noiseproof"])
    change(facts)
    save_file(load_file(one.folder / "weights.safetensors"), folder / "weights.safetensors", {"noiseproof": json.dumps(facts)})
    record = json.loads((one.folder / "record.json").read_text(encoding="utf-8"))
    record["files"]["weights.safetensors"] = noiseproof.io.files.checksum(folder / "weights.safetensors")
    (folder / "record.json").write_text(json.dumps(record), encoding="utf-8")
    return folder


@pytest.mark.parametrize("kind", ["features", "features as they are", "planes", "grey", "files as Clothing1M's"])
def test_runs_from_before_the_shape_and_precision_were_kept_still_load(finished, kind, tmp_path):
    one = finished(kind)
    folder = rewritten(one, tmp_path / "old", lambda facts: [facts.pop(key) for key in ("input_shape", "precision")])
    old = load(folder, **one.own)
    assert np.array_equal(old.probabilities(one.task.train), one.load().probabilities(one.task.train))
    with pytest.raises((DataError, ValueError), match=r"features|images"):
        old.predict(np.zeros((2, 3, 4)))


def test_the_weights_alone_are_enough(finished):
    one = finished("features")
    alone = load(one.folder / "weights.safetensors")
    assert alone.record is None
    assert np.array_equal(alone.probabilities(one.task.train), one.load().probabilities(one.task.train))


@pytest.mark.parametrize(
    "device", ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"))]
)
def test_the_precision_of_the_run_is_that_of_its_predictions_on_a_gpu(finished, tmp_path, device):
    """A CPU computes in float32."""
    one = finished("features")
    folder = rewritten(one, tmp_path / "bf16", lambda facts: facts.update(precision="bf16"))
    found, exact = (load(place, device).logits(one.task.train) for place in (folder, one.folder))
    assert np.array_equal(found, exact) == (device == "cpu")
    assert np.array_equal(found, torch.from_numpy(found).bfloat16().float().numpy()) == (device == "cuda")


def broken(change):
    def make(one, folder):
        rewritten(one, folder, lambda facts: None)
        change(folder)
        return folder

    return make


def in_record(**changes):
    def change(folder):
        facts = json.loads((folder / "record.json").read_text(encoding="utf-8"))
        (folder / "record.json").write_text(json.dumps(facts | changes), encoding="utf-8")

    return broken(change)


def flip_last_byte(folder):
    raw = bytearray((folder / "weights.safetensors").read_bytes())
    raw[-1] ^= 1
    (folder / "weights.safetensors").write_bytes(raw)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda one, folder: folder, "no run, and no file of weights"),
        (
            broken(lambda folder: (folder / "record.json").unlink()),
            r"not the folder of a run, it has no record\.json; 'noiseproof",
        ),
        (lambda one, folder: one.folder.parent, r"not the folder of a run.*give a run in it, such as .*runs/\w"),
        (broken(lambda folder: (folder / "weights.safetensors").unlink()), "weights of this finished run are gone; train it"),
        (broken(flip_last_byte), "damaged, it is not what the run wrote; copy it again, or train again"),
        (in_record(status="running"), "not finished, and has no weights yet; the command that began it goes on"),
        (in_record(status="diverged", message="the loss is nan"), "not finished.* diverged: the loss is nan"),
        (in_record(format=2), "not the record of a run: format 1 expected, found 2; noiseproof .* wrote and reads it"),
        (broken(lambda folder: (folder / "record.json").write_text("{")), "not the record of a run: not JSON"),
    ],
)
def test_a_folder_without_a_finished_run_gets_one_sentence(finished, make, message, tmp_path):
    with pytest.raises((ValueError, OSError), match=message) as caught:
        load(make(finished("features"), tmp_path / "run"))
    assert "\n" not in str(caught.value)


def test_weights_of_others_are_told_from_a_runs(tmp_path):
    save_file({"weight": torch.zeros(2, 2)}, tmp_path / "theirs.safetensors")
    with pytest.raises(ValueError, match=r"theirs\.safetensors: not the weights of a run: it does not say its network"):
        load(tmp_path / "theirs.safetensors")


def test_a_network_of_ones_own_is_run_only_when_it_is_named(finished, place):
    one = finished("files of a size")
    (place / "called").unlink(missing_ok=True)
    with pytest.raises(ValueError, match=rf"whose code is not in the file and is not run unasked; .* model='{OWN}'"):
        load(one.folder)
    assert not (place / "called").exists()
    one.load()
    assert (place / "called").exists()
    with pytest.raises(ValueError, match="the network is mlp; model is for runs of a network of your own"):
        load(finished("features").folder, model=OWN)


def test_changed_code_of_ones_own_network_is_a_warning_and_other_weights_an_error(finished, place):
    one = finished("files of a size")
    (place / "own_network.py").write_text(MODULE + "\nmore = 1\n", encoding="utf-8")
    (place / "other_network.py").write_text(MODULE.replace("Pool2d(2)", "Pool2d(1)").replace("4 *", "1 *"), encoding="utf-8")
    try:
        with pytest.warns(UserWarning, match=rf"the code of {OWN} is not that of the run"):
            one.load()
        with pytest.raises(ValueError, match=r"needs '2\.weight' \[2, 3\], which is \[2, 12\] in the file"):
            load(one.folder, model="other_network:network")
    finally:
        (place / "own_network.py").write_text(MODULE, encoding="utf-8")


@pytest.mark.parametrize("framing", [ResizeCenterCrop(256, 224), ResizeCrop(28, 20), Resize(256, 300)], ids=repr)
def test_a_framing_is_read_from_what_a_record_has_of_it(framing):
    assert _written(FRAMINGS, repr(framing)) == framing


@pytest.mark.parametrize(
    "text",
    ["ResizeCrop(height=1, width=1) ", "ResizeCrop(1, 2)", "ResizeCrop(height=1, wide=2)", "RandomPart(a=1, b=2)", 3],
)
def test_other_text_is_no_framing(text):
    with pytest.raises(ValueError, match="way to resize images"):
        _written(FRAMINGS, text)
    assert set(OPERATIONS) == {"ResizeCenterCrop"}


def test_every_fact_of_an_evaluation_is_read(finished):
    """What the transforms say of themselves is what is rebuilt, so that a new fact is not overlooked."""
    known = {"kind", "channels", "framing", "operations", "size", "scale", "mean", "std", "standardise"}
    for kind in KINDS:
        one = finished(kind)
        facts = one.run().transforms.facts(one.task.train)
        assert set(facts) <= known
        how = Preprocessing.of(facts, None)
        again = Transforms(None, how.augment, None, how.framing)
        if "standardise" in facts:
            again = Transforms(None, None, standardise=Standardise(*how.statistics, ()))
        if "size" in facts and how.shape is None:
            continue  # only the size after an operation was kept
        assert again.facts(one.task.train) == facts
