"""The paper's figures from records: what is drawn, and which runs are missing."""

import json
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from PIL import Image

from noiseproof import paper
from noiseproof.paper.groups import paper_groups
from noiseproof.paper.page import Embedding, draw_figure, embed_run
from noiseproof.paper.plan import AMSE_A, FIGURES, curve_recipe
from noiseproof.train import Recipe, override, train

EPOCHS = ("30", "60", "90", "120")


def record(loss, noise, **options):
    recipe = paper.recipe(f"cifar10/{loss}", noise=noise)
    recipe = override(recipe, {f"loss.{name}": value for name, value in options.items()})
    return {
        "result": {"test_accuracy": 0.5},
        "recipe": {**recipe.as_dict(), "precision": "bf16"},
        "curve": {"test_accuracy": [0.3, 0.4, 0.5]},
        "confidence": {epoch: {"right": [1] * 20, "wrong": [2] * 20} for epoch in EPOCHS},
    }


def drawn(records, folder, embeddings=()):
    """All figures, by name."""
    groups = paper_groups(records, [], "bf16")
    return {name: draw_figure(name, groups, folder, embeddings) for name in FIGURES}


def names(found):
    return {path.stem for figure in found.values() for path in figure.files}


def texts(path):
    return {"".join(node.itertext()).strip() for node in ET.parse(path).iter("{http://www.w3.org/2000/svg}text")}


def test_without_their_runs_no_figure_is_drawn_and_each_names_what_is_missing(tmp_path):
    found = drawn([record("jal-fl", "symmetric:0.2")], tmp_path)
    assert not names(found)
    # The paper: histograms of CE and JAL-CE; AMSE with four a, and NNCE, at two noises; three q with four a; t-SNE of four.
    counts = {"histogram": 2, "tsne": 4, "amse_a": 2 * 5, "amse_q": 3 * 4}
    assert {name: len(figure.missing) for name, figure in found.items()} == counts
    assert curve_recipe(found["amse_a"].missing[5]).noise == "asymmetric-cifar10:0.4"


def test_the_histogram_has_the_papers_panels(tmp_path):
    found = drawn([record(loss, "symmetric:0.4") for loss in ("ce", "jal-ce")], tmp_path)
    assert names(found) == {"histogram"}
    shown = texts(tmp_path / "histogram.svg")
    assert {f"{loss} with {epoch} epochs" for loss in ("CE", "JAL-CE") for epoch in EPOCHS} <= shown
    assert {"right labels", "wrong labels"} <= shown


def test_a_histogram_of_other_epochs_does_not_count(tmp_path):
    early = record("ce", "symmetric:0.4")
    del early["confidence"]["120"]
    assert "histogram" not in names(drawn([early], tmp_path))


def test_the_amse_figures_take_runs_with_their_a_and_q(tmp_path):
    records = [record("amse", noise, a=a) for noise in ("symmetric:0.8", "asymmetric:0.4") for a in AMSE_A]
    records += [record("amse", "symmetric:0.8", a=10.0, q=1.0), record("nnce", "symmetric:0.8")]
    found = drawn(records, tmp_path)
    assert names(found) == {"amse_a", "amse_q"}
    assert {"Symmetric 0.8", "Asymmetric 0.4", "NNCE", *(f"AMSE a={a:g}" for a in AMSE_A)} <= texts(tmp_path / "amse_a.svg")
    assert {"AMSE (q=1)", "AMSE (q=2)", "AMSE (q=3)", "a=40"} <= texts(tmp_path / "amse_q.svg")
    assert [(curve.loss, curve.noise) for curve in found["amse_a"].missing] == [("nnce", "asymmetric:0.4")]
    assert len(found["amse_q"].missing) == 3 + 4


def test_a_run_with_another_decay_is_not_the_papers(tmp_path):
    other = record("amse", "symmetric:0.8", a=10.0)
    other["recipe"]["l1"] = 0.0
    assert "amse_a" not in names(drawn([other], tmp_path))


def test_svg_is_the_same_each_time_and_png_is_a_picture(tmp_path):
    points = np.random.default_rng(0).normal(size=(30, 2))
    shown = [Embedding("a < b", points, np.arange(30) % 3)] * 3
    records = [record("ce", "symmetric:0.4"), record("gce", "symmetric:0.4")]
    first, second = (drawn(records, tmp_path / name, shown) for name in "ab")
    assert "tsne" in names(first)
    files = [[file for figure in found.values() for file in figure.files] for found in (first, second)]
    for one, two in zip(*files, strict=True):
        if one.suffix == ".svg":
            assert one.read_bytes() == two.read_bytes()
        else:
            assert np.asarray(Image.open(one).convert("L")).std() > 5


def test_features_of_a_run_are_computed_without_the_code_that_its_record_names(tmp_path, monkeypatch):
    (tmp_path / "hostile_network.py").write_text("raise SystemExit('it was run')", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("sklearn.manifold.TSNE.fit_transform", lambda self, features: features[:, :2])
    folder = tmp_path / "run"
    with pytest.raises(FileNotFoundError, match="is not the folder of a finished run"):
        embed_run(folder, None)
    recipe = Recipe(dataset="digits", loss="ce", noise="symmetric:0.4", epochs=1, model_options={"hidden": [16]})
    train(recipe, folder=folder)
    assert embed_run(folder, None).title == "digits, symmetric:0.4, ce"
    record = json.loads((folder / "record.json").read_text(encoding="utf-8"))
    record["recipe"] |= {"model": "hostile_network:network", "model_options": {}}
    (folder / "record.json").write_text(json.dumps(record), encoding="utf-8")
    assert len(embed_run(folder, None).points) == 500
    del record["recipe"]["dataset"]
    (folder / "record.json").write_text(json.dumps(record), encoding="utf-8")
    with pytest.raises(ValueError, match=r"record.json: its recipe is not one of this version: "):
        embed_run(folder, None)
