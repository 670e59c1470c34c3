"""The benchmark of audits: its measures by hand, its data in small, and the tables that are made from its lines."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from noiseproof.data import Dataset, Split
from noiseproof.noise import NoisyLabels

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def on_path(monkeypatch):
    """Scripts import what is beside them."""
    for folder in ("tools", "benchmarks"):
        monkeypatch.syspath_prepend(str(ROOT / folder))


@pytest.fixture
def bench(on_path):
    pytest.importorskip("sklearn")
    import audit

    before = torch.get_num_threads()
    yield audit
    torch.set_num_threads(before)
    for name in ("audit", "audit_data"):
        sys.modules.pop(name)


@pytest.fixture
def cifar(bench, tmp_path, monkeypatch):
    """Images of CIFAR's shape and people's labels: every fourth of 400 is wrong."""
    generator = np.random.default_rng(0)
    true = np.arange(400) % 10
    images = generator.integers(0, 256, (400, 32, 32, 3), dtype=np.uint8)
    images[..., 0] = 25 * true[:, None, None]
    split = Split(images, true)
    given = np.where(np.arange(400) % 4 == 1, (true + 3) % 10, true)
    torch.save({"clean_label": torch.from_numpy(true), "worse_label": torch.from_numpy(given)}, tmp_path / "CIFAR-10_human.pt")
    data = Dataset("cifar10", split, split.take(np.arange(40)), tuple("abcdefghij"))
    monkeypatch.setattr(sys.modules["audit_data"], "open_dataset", lambda *_: data)
    return ["--data", str(tmp_path), "--json", str(tmp_path / "lines.jsonl"), "--noises", "worst", "--seeds", "0"]


def lines_of(words):
    return [json.loads(text) for text in Path(words[words.index("--json") + 1]).read_text().splitlines()]


def test_the_measures_of_an_answer(bench):
    """Four labels, the last of which is wrong: by hand."""
    labels = NoisyLabels.compare(np.array([0, 1, 0, 1]), np.array([0, 1, 0, 0]), 2)
    answer = bench.Answer(np.array([0.1, 0.1, 0.6, 0.9]), np.array([0, 0, 1, 1], bool), 0.425, np.eye(2), (0.3, 0.5))
    found = bench.measures(answer, labels)
    assert (found["auc"], found["average_precision"], found["f1"]) == (1.0, 1.0, pytest.approx(2 / 3))
    assert (found["rate"], found["true_rate"], found["covers"]) == (0.425, 0.25, False)
    assert found["matrix_error"] == pytest.approx(0.25)  # rows (1, 0) and (0.5, 0.5) against (1, 0) and (0, 1)
    assert found["ece"] == pytest.approx((0.2 + 0.6 + 0.1) / 4)


def test_features_of_patches_tell_images_apart(bench, cifar):
    data = bench.opened("cifar10n-patches", Path(cifar[1]), 60)
    assert data.train.inputs.shape == (60, 512)
    assert data.train.kind == "features"
    assert np.isfinite(data.train.inputs).all()
    assert data.train.inputs.std(0).min() > 0
    labels = data.noisy("worst", 0)
    assert labels.mask.tolist() == [k % 4 == 1 for k in range(60)]
    assert not data.noisy("none", 0).mask.any()


def test_grey_images_get_noise_that_is_put_on_them(bench, tmp_path, monkeypatch):
    true = np.arange(80) % 10
    images = np.random.default_rng(0).integers(0, 256, (80, 28, 28, 1), dtype=np.uint8)
    images[:, :14] = 0  # blank patches are no filters
    data = Dataset("mnist", Split(images, true), Split(images[:20], true[:20]), tuple("0123456789"))
    monkeypatch.setattr(sys.modules["audit_data"], "open_dataset", lambda *_: data)
    found = bench.opened("mnist-patches", tmp_path, 50)
    assert (found.train.inputs.shape, found.train.kind, len(found.test)) == ((50, 512), "features", 20)
    assert np.isfinite(found.train.inputs).all()
    assert found.noisy("symmetric:0.2", 3).mask.mean() == pytest.approx(0.2)
    assert found.noisy("instance:0.3", 3).mask.any()
    with pytest.raises(ValueError, match="needs --data"):
        bench.opened("mnist-patches", None, None)


@pytest.mark.slow
def test_a_run_that_has_a_line_is_not_repeated(bench, tmp_path):
    words = ["--json", str(tmp_path / "lines.jsonl"), "--rows", "150", "--epochs", "2", "--ways", "quick", "--noises"]
    bench.main([*words, "none", "--seeds", "0"])
    bench.main([*words, "none,symmetric:0.2", "--seeds", "0"])
    found = lines_of(words)
    assert [(one["data"], one["way"], one["noise"]) for one in found] == [
        ("digits", "quick", noise) for noise in ("none", "symmetric:0.2")
    ]
    assert (found[0]["auc"], found[0]["true_rate"]) == (None, 0.0)
    assert found[1]["true_rate"] == pytest.approx(0.2, abs=0.01)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "more"), [("cifar10n", ["--rows", "60", "--epochs", "1"]), ("cifar10n-patches", ["--epochs", "4"])]
)
def test_images_with_peoples_labels_and_training_on_what_was_found(bench, cifar, name, more):
    bench.main([*cifar, "--dataset", name, "--ways", "audit,quick", "--train", *more])
    first, second = lines_of(cifar)
    assert (first["way"], second["way"], first["data"]) == ("audit", "quick", name)
    assert first["true_rate"] == 0.25
    assert "test_accuracy" not in second
    assert {loss: sorted(of) for loss, of in first["test_accuracy"].items()} == {
        loss: ["audit", "given", "true"] for loss in ("ce", "jal-ce")
    }
    if name == "cifar10n-patches":
        assert first["test_accuracy"]["ce"]["true"] > 0.5


@pytest.mark.slow
def test_cleanlab_judges_the_same_labels(bench, cifar):
    pytest.importorskip("cleanlab")
    bench.main([*cifar, "--dataset", "cifar10n-patches", "--epochs", "4", "--ways", "cleanlab,cleanlab stopped"])
    assert [one["way"] for one in lines_of(cifar)] == ["cleanlab", "cleanlab stopped"]
    assert all(one["auc"] > 0.6 for one in lines_of(cifar))


def a_line(way, noise, seed, f1=0.5, rate=0.2, covers=True, **more):
    facts = {"data": "digits", "way": way, "noise": noise, "seed": seed, "auc": 0.9, "average_precision": 0.8, "f1": f1}
    facts |= {"rate": rate, "true_rate": 0.25, "matrix_error": 0.1, "ece": 0.05, "covers": covers, "seconds": 7.0}
    return facts | {"environment": {"machine": "m", "torch": "2", "commit": "c", "date": "d"}} | more


def test_tables_are_the_means_of_the_lines(on_path):
    import audit_record

    lines = [a_line("audit", "symmetric:0.2", seed, f1=0.8 + 0.1 * seed, covers=seed != 2) for seed in (0, 1, 2)]
    lines += [a_line("cleanlab", "symmetric:0.2", seed, rate=0.1, covers=None) for seed in (0, 1)]
    lines += [a_line("audit", "none", 0, rate=0.004, auc=None, average_precision=None, f1=None)]
    partly = [*lines, a_line("quick", "symmetric:0.2", 0), a_line("audit", "pairflip:0.2", 0)]
    assert "| quick | 1 |  |  |" in audit_record._data_set("digits", partly), "it has not met all noises"
    accuracy = {"ce": {"given": 0.5, "audit": 0.75, "true": 0.8}}
    lines[0]["test_accuracy"] = accuracy
    text = audit_record._data_set("digits", lines)
    assert "| audit | 3 | 0.900 | 0.800 | 0.900 | 0.050 | 0.100 | 0.050 | 7 |" in text
    assert "| cleanlab | 2 | 0.900 | 0.800 | 0.500 | 0.150 |" in text
    assert "| symmetric:0.2 | 0.900, 20.0 % | 0.500, 10.0 % | 25.0 % |" in text
    assert "`audit` covers the true rate in 2 of 3 runs (missed: symmetric:0.2 1)." in text
    assert "Clean labels: `audit` says 0.40 to 0.40 % in 1 runs." in text
    assert "| symmetric:0.2 | ce | 50.0 | 75.0 | 80.0 |" in text
