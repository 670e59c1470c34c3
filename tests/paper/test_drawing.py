"""The paper's figures from records: what is drawn, and the commands for what is not."""

import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from PIL import Image

from noiseproof import paper
from noiseproof.paper.drawing import draw_figures
from noiseproof.paper.figures import A as AMSE_A
from noiseproof.paper.groups import groups_of
from noiseproof.paper.page import Embedding
from noiseproof.train import override

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
    return draw_figures(groups_of(records, [], "bf16"), folder, "bf16", embeddings)


def names(found):
    return {path.stem for path in found.files if not path.stem.startswith("curves_")}


def texts(path):
    return {"".join(node.itertext()).strip() for node in ET.parse(path).iter("{http://www.w3.org/2000/svg}text")}


def test_without_their_runs_every_figure_names_its_commands(tmp_path):
    found = drawn([record("jal-fl", "symmetric:0.2")], tmp_path)
    assert [path.name for path in found.files] == ["curves_cifar-10_symmetric_0.2.svg", "curves_cifar-10_symmetric_0.2.png"]
    missing = {name: [command for other, command in found.missing if other == name] for name, _ in found.missing}
    # The paper: histograms of CE and JAL-CE; AMSE with four a, and NNCE, at two noises; three q with four a; t-SNE of four.
    assert {name: len(commands) for name, commands in missing.items()} == {
        "histogram": 2,
        "amse_a": 2 * 5,
        "amse_q": 3 * 4,
        "tsne": 4 + 1,
    }
    assert (
        "noiseproof train cifar10/amse --noise asymmetric:0.4 --seed 123 --set loss.a=10 --set precision=bf16 --data DIR"
        in missing["amse_a"]
    )


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
    commands = [command for name, command in found.missing if name == "amse_a"]
    assert len(commands) == 1
    assert "cifar10/nnce --noise asymmetric:0.4" in commands[0]
    assert sum(name == "amse_q" for name, _ in found.missing) == 3 + 4


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
    for one, two in zip(first.files, second.files, strict=True):
        if one.suffix == ".svg":
            assert one.read_bytes() == two.read_bytes()
        else:
            assert np.asarray(Image.open(one).convert("L")).std() > 5


@pytest.mark.parametrize("loss", ["../../etc", "$\\frac{", "<script>"])
def test_names_in_records_are_neither_paths_nor_mathematics(tmp_path, loss):
    evil = record("ce", "symmetric:0.4")
    evil["recipe"] |= {"loss": loss, "dataset": loss, "noise": loss}
    found = drawn([evil], tmp_path / "figures")
    assert found.files
    for path in found.files:
        assert path.parent == tmp_path / "figures"
        assert re.fullmatch(r"[\w.+-]+", path.name)
