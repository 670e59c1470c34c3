"""Texts and images by a pretrained encoder: in every source, by every verb, and kept with the model without code."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from typer.testing import CliRunner

import noiseproof
from noiseproof.cli import app
from noiseproof.data import DataError, embed_data, embeddings, open_dataset, read_image
from noiseproof.data.images import example_image
from tests.helpers.messy_table import messy_table

FUNCTIONS = """
import numpy as np
from PIL import Image


def lengths(texts):
    return np.array([[len(text), text.count("a"), text.count("o")] for text in texts], np.float32)


def colours(images):
    pixels = [np.asarray(Image.open(one).convert("RGB")) if isinstance(one, str) else one for one in images]
    return np.array([[one.mean(), one[..., 0].mean(), one.std()] for one in pixels])


def wide(texts):
    return np.ones((len(texts), 9))
"""


@pytest.fixture(autouse=True)
def functions(tmp_path, monkeypatch):
    (tmp_path / "own_encoders.py").write_text(FUNCTIONS, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("NOISEPROOF_CACHE", str(tmp_path / "cache.sqlite"))
    monkeypatch.setattr(embeddings, "_asked", {})
    return tmp_path


@pytest.fixture
def folder(functions):
    """Images of two sizes in a folder for each class, which is dark or bright."""
    rng = np.random.default_rng(0)
    for k in range(40):
        path = functions / "images" / ("dark", "bright")[k % 2] / f"{k:02d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = rng.integers(0, 90, (8, 8 + k % 3, 3)) + 150 * (k % 2)
        Image.fromarray(pixels.astype(np.uint8)).save(path)
    return functions / "images"


def call(*words, status=0):
    done = CliRunner().invoke(app, [*map(str, words)], env={"COLUMNS": "100", "TERM": "dumb"})
    assert done.exit_code == status, done.output
    return done


def test_an_encoded_text_is_centred_with_one_scale_and_a_gap_is_marked():
    frame = pd.DataFrame({"note": ["a bad one", None, "ok", "so so"] * 8, "y": [0, 1] * 16})
    dataset = open_dataset(frame, columns={"note": "text"}, encoder="own_encoders:lengths")
    found = dataset.train.inputs
    vectors = np.array([[9, 2, 1], [2, 0, 1], [5, 0, 2]], np.float64)
    spread = np.sqrt(vectors.var(0).mean())
    assert np.allclose(found[[0, 2, 3], :3], (vectors - vectors.mean(0)) / spread, atol=1e-6)
    assert found[:4].tolist()[1] == [0, 0, 0, 1]
    assert found[[0, 2, 3], 3].tolist() == [0, 0, 0]
    assert dataset.table.lines == ["note text, 25 % missing, embedded by own_encoders:lengths"]
    assert dataset.train.scaled


def test_images_of_every_source_have_the_same_features(folder):
    listed = sorted(folder.rglob("*.png"))
    labels = [path.parent.name for path in listed]
    encoder = "own_encoders:colours"
    expected = open_dataset(folder, encoder=encoder)
    frame = pd.DataFrame({"photo": list(map(str, listed)), "label": labels})
    inside = [f"images/{path.relative_to(folder)}" for path in listed]
    pd.DataFrame({"path": inside, "label": labels}).to_csv("list.csv", index=False)
    found = {
        "a list of paths": open_dataset(listed, label=labels, encoder=encoder),
        "a frame": open_dataset(frame, encoder=encoder),
        "a list file": open_dataset("list.csv", encoder=encoder),
    }
    for source, dataset in found.items():
        assert np.array_equal(dataset.train.inputs, expected.train.inputs), source
        assert dataset.classes == ("bright", "dark")
    assert np.array_equal(embed_data("images", encoder), embed_data(listed, encoder))
    pixels = np.random.default_rng(0).integers(0, 256, (12, 4, 4, 3), np.uint8)
    assert open_dataset(pixels, label=[0, 1] * 6, encoder=encoder).train.inputs.shape == (12, 3)
    assert np.allclose(embed_data(pixels, encoder)[:, 0], pixels.mean((1, 2, 3)))


def test_a_frame_of_image_paths_alone_is_a_data_set_of_images_and_one_with_numbers_is_not(folder):
    paths = sorted(map(str, folder.rglob("*.png")))
    frame = pd.DataFrame({"path": paths, "label": ["x", "y"] * 20})
    assert open_dataset(frame).train.paths == tuple(paths)
    encoded = open_dataset(frame, encoder="own_encoders:colours")
    assert np.array_equal(example_image(encoded, encoded.train, 3), read_image(paths[3]))
    both = frame.assign(size=np.arange(40) % 7 * 1.5)
    assert open_dataset(both).columns == ("size",)
    lines = open_dataset(both, encoder="own_encoders:colours").table.lines
    assert lines == ["path image, embedded by own_encoders:colours", "size number"]
    with pytest.raises(FileNotFoundError, match=r"gone\.png: no such file"):
        open_dataset(frame.assign(path=[*paths[1:], "gone.png"]), encoder="own_encoders:colours")


def test_all_damaged_images_that_are_encoded_are_counted_and_three_are_named(folder):
    Path("reading.py").write_text(
        "import numpy as np\nfrom noiseproof.data import read_image\n\n\n"
        "def reading(images):\n    return np.array([read_image(one).mean((0, 1)) for one in images])\n"
    )
    paths = sorted(map(str, folder.rglob("*.png"))) * 3
    spoiled = [paths[k] for k in (4, 9, 17, 30)]
    for path in spoiled:
        Path(path).write_bytes(Path(path).read_bytes()[:60])
    with pytest.raises(DataError, match=r"\(4 of 120 images are damaged\)$") as caught:
        embed_data(paths, "reading:reading")
    assert sum(path in str(caught.value) for path in spoiled) == 3


def test_fit_train_audit_and_predict_take_an_encoder(folder):
    encoder = "own_encoders:colours"
    call("fit", "images", "--encoder", encoder, "--learners", "logistic-0.01,neighbours-40", "--out", "model")
    small = ("--set", "epochs=1", "--set", "model.hidden=[8]", "--test-size", "0.2")
    call("train", "ce", "--data", "images", "--encoder", encoder, *small)
    call("audit", "images", "--encoder", encoder, "--quick", "--epochs", 1)
    assert f"--encoder {encoder}" in Path("audit/audit.html").read_text()
    call("compare", "ce,mae", "--data", "images", "--encoder", encoder, "--seeds", 1, *small)
    assert f"--encoder {encoder}" in call("advise", "images", "--encoder", encoder).stdout
    run = next(path for path in Path("runs").iterdir() if (path / "encoder.safetensors").exists())
    assert json.loads((run / "record.json").read_text())["recipe"]["data_options"] == {"encoder": encoder}
    for place in ("model", run):
        call("predict", place, "--data", "images/dark", "--out", "dark.csv", "--encoder", encoder)
        call("predict", place, "--data", "images", "--out", "all.csv")
        assert pd.read_csv("dark.csv").predicted.to_list() == pd.read_csv("all.csv").predicted[20:].to_list()
    assert noiseproof.load("model").predict("images/dark").tolist() == ["dark"] * 20


def test_a_file_calls_no_function_that_the_user_did_not_ask_for(monkeypatch):
    frame, _ = messy_table(120)
    dataset = open_dataset(frame, label="churn", encoder="own_encoders:lengths")
    dataset.table.write(Path("encoder.safetensors"))
    monkeypatch.setattr(embeddings, "_asked", {})  # as in another process
    table = type(dataset.table).read(Path("encoder.safetensors"))
    with pytest.raises(DataError, match=r"by the function own_encoders:lengths, which no file may call: --encoder"):
        table.encoder.transform(frame)
    embeddings.load_encoder("own_encoders:lengths", "text")
    assert np.array_equal(table.encoder.transform(frame), dataset.train.inputs)
    table.encoder.encoders[-1].model = "own_encoders:wide"
    embeddings.load_encoder("own_encoders:wide", "text")
    with pytest.raises(DataError, match="the encoder returned 9 numbers, and 3 in training"):
        table.encoder.transform(frame)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("modules.json", [{"idx": 0, "name": "0", "path": "", "type": "own_encoders.Payload"}]),
        ("config.json", {"activation_function": "own_encoders.payload"}),
    ],
)
def test_a_crafted_model_imports_nothing(file, content, functions):
    (functions / "own_encoders.py").write_text("from pathlib import Path\nPath('ran').touch()\n")
    (functions / "model").mkdir()
    (functions / "model" / file).write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"names 'own_encoders\..*', and only .* is imported"):
        embeddings.load_encoder("model", "text")
    assert not Path("ran").exists()


@pytest.mark.parametrize(
    ("place", "encoder", "message"),
    [
        ("digits", "own_encoders:lengths", "has features already, no texts and no images"),
        ({"age": [1.5, 2, 3], "y": [0, 1, 0]}, "own_encoders:lengths", "no column of texts or images for the encoder"),
        ({"t": ["x", "y", "z"], "y": [0, 1, 0]}, "own_encoders:gone", "own_encoders has no 'gone'"),
        ({"t": ["x", "y", "z"], "y": [0, 1, 0]}, "nowhere:gone", "cannot import nowhere"),
        ({"t": ["x", "y", "z"], "y": [0, 1, 0]}, "./nowhere", "no such folder, and no such model here"),
    ],
)
def test_an_encoder_that_does_not_fit_is_one_sentence(place, encoder, message, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ValueError, match=message):
        open_dataset(place, columns={"t": "text"} if isinstance(place, dict) and "t" in place else None, encoder=encoder)


def test_the_verb_embed_writes_a_row_for_each_text_and_resumes(monkeypatch):
    texts = ["a cat", "a dog", "", "a cat"]
    pd.DataFrame({"text": texts, "n": range(4)}).to_csv("texts.csv", index=False)
    done = call("embed", "texts.csv", "--encoder", "own_encoders:lengths", "--column", "text", "--out", "f.npy")
    assert done.stdout == "4 embeddings of 3 numbers: f.npy\n"
    expected = [[len(text), text.count("a"), text.count("o")] for text in texts]
    assert np.load("f.npy").tolist() == expected
    assert embed_data(texts, "own_encoders:lengths").tolist() == expected
    pd.DataFrame({"remark": texts}).to_parquet("one.parquet")
    assert embed_data("one.parquet", "own_encoders:lengths").tolist() == expected
    calls = []

    def stopped(texts):
        calls.append(len(texts))
        if len(calls) == 2:
            raise KeyboardInterrupt
        return np.ones((len(texts), 1))

    module = __import__("own_encoders")
    monkeypatch.setattr(module, "stopped", stopped, raising=False)
    pd.DataFrame({"text": [f"text {k}" for k in range(200)]}).to_csv("many.csv", index=False)
    words = ("embed", "many.csv", "--encoder", "own_encoders:stopped", "--out", "g.npy")
    assert "stopped; the same command resumes after the last batch" in call(*words, status=130).stderr
    assert not Path("g.npy").exists()
    call(*words)
    assert calls == [64, 64, 64, 64, 8]


def test_the_verb_embed_says_what_is_wrong(folder):
    pd.DataFrame({"a": ["x y z"] * 3, "b": ["u v w"] * 3, "n": [1, 2, 3]}).to_csv("two.csv", index=False)
    for words, message in (
        (("images", "--out", "f.txt"), "embeddings are written as an .npy file"),
        (("two.csv", "--out", "f.npy"), "--column says which of 'a', 'b', 'n' is embedded"),
        (("two.csv", "--column", "c", "--out", "f.npy"), "no column is called 'c'"),
        (("images", "--column", "c", "--out", "f.npy"), "no table, and column is for tables"),
        (("digits", "--out", "f.npy"), "digits: features, no texts and no images"),
        (("gone", "--out", "f.npy"), "gone: no such file"),
    ):
        assert message in call("embed", *words, "--encoder", "own_encoders:colours", status=2).stderr
