"""The real-data recipes on small folders in the official layouts, through the command line."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import save_file
from typer.testing import CliRunner

from noiseproof.cli import app
from noiseproof.models import create_model

SYNSETS = [f"n{1440764 + k:08d} thing {k}" for k in range(50)]
SMALL = ["--set", "model=resnet18", "--set", "model.stem=imagenet", "--set", "epochs=1", "--set", "batch=4", "--workers", "0"]


def picture(path, seed):
    image = pytest.importorskip("PIL.Image")
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (30, 40, 3), dtype=np.uint8)
    image.fromarray(pixels).save(path, format="PNG")


def write(path, *lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines))


def trained(*words):
    done = CliRunner().invoke(app, ["train", *words, *SMALL, "--set", "precision=float32", "--device", "cpu", "--json"])
    assert done.exit_code == 0, done.output
    facts = json.loads(done.stdout)
    return facts, json.loads((Path(facts["folder"]) / "record.json").read_text()), done.stderr


@pytest.mark.slow
def test_webvision_is_tested_on_its_own_and_on_imagenets_images(tmp_path):
    root = tmp_path / "data"
    web = root / "webvision"
    write(web / "info" / "synsets.txt", *SYNSETS)
    write(web / "info" / "train_filelist_google.txt", *(f"google/q0001/{k}.jpg {k}" for k in range(9)), "google/q0999/x.jpg 70")
    write(web / "info" / "val_filelist.txt", "v0.jpg 3", "v1.jpg 4", "v2.jpg 999")
    for k in range(9):
        picture(web / "google" / "q0001" / f"{k}.jpg", k)
    for k in range(2):
        picture(web / "val_images_256" / f"v{k}.jpg", k)
    for k, line in enumerate(SYNSETS):
        picture(root / "imagenet" / "val" / line.split()[0] / "one.JPEG", 100 + k)
    facts, record, shown = trained("webvision/jal-ce", "--data", str(root), "--out", str(tmp_path / "runs"))
    assert record["recipe"]["loss_options"] == {"alpha": 50.0, "beta": 1.0, "a": 30.0}
    assert (record["task"]["examples"], record["task"]["test_examples"]) == (9, 2)
    assert record["task"]["other_tests"] == {"ilsvrc12": 50}
    assert facts["result"]["ilsvrc12_accuracy"] == pytest.approx(0.5, abs=0.5)
    assert facts["result"]["test_accuracy"] in (0.0, 0.5, 1.0)
    assert "no ILSVRC12 images" not in shown
    (root / "imagenet").rename(root / "elsewhere")
    facts, _, shown = trained("webvision/jal-ce", "--data", str(root), "--out", str(tmp_path / "without"))
    assert "no ILSVRC12 images to test on as well: they are looked for in and beside WebVision's folder" in shown
    assert "ilsvrc12_accuracy" not in facts["result"]


def test_clothing1m_starts_from_the_weights_in_the_data_folder(tmp_path):
    root = tmp_path / "data"
    keys = [f"images/0/{k}.jpg" for k in range(6)]
    for k, key in enumerate(keys):
        picture(root / "clothing1m" / key, k)
    notes = root / "clothing1m" / "annotations"
    write(notes / "noisy_train_key_list.txt", *keys[:4])
    write(notes / "clean_test_key_list.txt", *keys[4:])
    write(notes / "noisy_label_kv.txt", *(f"{key} {k}" for k, key in enumerate(keys[:4])))
    write(notes / "clean_label_kv.txt", *(f"{key} 13" for key in keys[4:]))
    words = ("clothing1m/jal-ce", "--data", str(root), "--out", str(tmp_path / "runs"), "--set", "weights=start.safetensors")
    refused = CliRunner().invoke(app, ["train", *words, *SMALL, "--set", "precision=float32", "--device", "cpu"])
    assert refused.exit_code == 2
    assert "no file of weights" in " ".join(refused.output.split())
    save_file(create_model("resnet18", 1000, stem="imagenet").state_dict(), root / "start.safetensors")
    facts, record, _ = trained(*words)
    assert record["recipe"]["loss_options"] == {"alpha": 5.0, "beta": 0.1, "a": 5.0}
    assert (record["task"]["examples"], record["task"]["test_examples"], record["task"]["classes"]) == (4, 2, 14)
    assert facts["status"] == "finished"
