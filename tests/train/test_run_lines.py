"""The line of a run's folder."""

import json
import os

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from safetensors.torch import save

from noiseproof import paper
from noiseproof.report import read_runs
from noiseproof.train import override, train
from noiseproof.train.record_files import run_line


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("run")
    recipe = override(paper.recipe("digits/jal-ce", noise="symmetric:0.4"), {"epochs": 2, "model.hidden": [8]})
    train(recipe, folder=place)
    return place


def without_digests(folder):
    """Its record, for other files beside it."""
    facts = json.loads((folder / "record.json").read_text(encoding="utf-8"))
    return json.dumps({key: value for key, value in facts.items() if key != "files"})


def test_it_has_the_curves_the_histograms_and_the_size_of_the_weights(folder):
    line = run_line(folder)
    assert "epochs" not in line
    assert len(line["curve"]["test_accuracy"]) == 2
    histograms = line["confidence"]["2"]
    assert sum(histograms["right"]) + sum(histograms["wrong"]) == line["task"]["examples"]
    assert sum(histograms["wrong"]) == round(line["task"]["noise"]["rate"] * line["task"]["examples"])
    assert line["weights"]["count"] == 64 * 8 + 8 * 10


def test_the_size_of_weights_leaves_vectors_out(folder, tmp_path):
    (tmp_path / "record.json").write_text(without_digests(folder), encoding="utf-8")
    matrix = np.array([[3.0, -4.0], [0.0, 5e-4]], dtype=np.float32)
    save_file({"fc.weight": matrix, "fc.bias": np.ones(2, dtype=np.float32)}, tmp_path / "weights.safetensors")
    assert run_line(tmp_path)["weights"] == {
        "count": 4,
        "l1": 7.0,
        "l2": 5.0,
        "below": {"1e-05": 0.25, "0.0001": 0.25, "0.001": 0.5, "0.01": 0.5},
    }
    assert "confidence" not in run_line(tmp_path)


def test_weights_may_be_of_other_dtypes_and_are_left_out_where_they_are_not_finite(folder, tmp_path):
    (tmp_path / "record.json").write_text(without_digests(folder), encoding="utf-8")
    matrix = torch.tensor([[3.0, -4.0]], dtype=torch.bfloat16)
    weights = {"fc.weight": matrix, "mask": torch.ones(2, 2, dtype=torch.bool)}
    (tmp_path / "weights.safetensors").write_bytes(save(weights))
    assert run_line(tmp_path)["weights"]["l2"] == 5.0
    (tmp_path / "weights.safetensors").write_bytes(save({"fc.weight": matrix.to(torch.float8_e4m3fn)}))
    assert run_line(tmp_path)["weights"]["l2"] == 5.0
    (tmp_path / "weights.safetensors").write_bytes(save({"fc.weight": matrix / 0}))
    assert run_line(tmp_path)["weights"] is None  # a line of records has no NaN


def test_epochs_of_confidence_are_a_vector(folder, tmp_path):
    """Others say in no bytes how many lists NumPy makes of them."""
    (tmp_path / "record.json").write_text(without_digests(folder), encoding="utf-8")
    arrays = {"epochs": np.empty((9, 0)), "probability": np.empty((9, 0, 0)), "given": np.empty(0)}
    np.savez(tmp_path / "confidence.npz", **arrays)
    with pytest.raises(ValueError, match=r"confidence\.npz: damaged: its arrays do not belong together"):
        run_line(tmp_path)


@pytest.mark.parametrize("name", ["weights.safetensors", "confidence.npz", "record.json"])
def test_a_damaged_file_is_named(folder, tmp_path, name):
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes() if path.name != name else path.read_bytes()[:40])
    with pytest.raises(ValueError, match=name):
        run_line(tmp_path)


@pytest.mark.parametrize("name", ["weights.safetensors", "confidence.npz"])
def test_a_file_that_is_not_what_the_run_wrote_is_named(folder, tmp_path, name):
    """A flipped bit that no reader would notice."""
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    run_line(tmp_path)
    content = bytearray((folder / name).read_bytes())
    content[-3 if name.startswith("weights") else 11] ^= 1
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=rf"{name}: damaged: its content is not what the run wrote"):
        run_line(tmp_path)
    assert "files" not in run_line(folder)


def test_a_pipe_is_no_record_and_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "record.json")
    with pytest.raises(ValueError, match="no runs in"):
        read_runs([tmp_path])


def test_weights_in_half_precision_are_read(folder, tmp_path):
    from safetensors.torch import save_file as save_tensors

    (tmp_path / "record.json").write_text(without_digests(folder), encoding="utf-8")
    save_tensors({"w": torch.ones(2, 2, dtype=torch.float16)}, tmp_path / "weights.safetensors")
    assert run_line(tmp_path)["weights"]["l2"] == 2.0
