"""The pages of class imbalance and of options state what their records contain, for any number of seeds and machines."""

import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FACTS = {"machine": "a machine", "torch": "2", "commit": "c", "date": "2026-01-02"}


@pytest.fixture
def script(monkeypatch):
    """A module of tools/ by its name."""
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    return importlib.import_module


def imbalance_lines(seeds):
    """Over cross entropy gce has +10 points, and mae +5, +5 and, where it loses a class, -20."""
    for noise in ("none", "symmetric:0.2"):
        for loss, seed in ((loss, seed) for loss, of_seeds in seeds.items() for seed in of_seeds):
            recalls = {"ce": [0.9, 0.5], "gce": [0.9, 0.7], "mae": [1.0, 0.5 if seed < 3 else 0.0]}[loss]
            cell = {"data": "two generated classes", "ratio": 0.1, "noise": noise, "loss": loss, "seed": seed}
            yield {**cell, "recalls": recalls, "balanced_accuracy": sum(recalls) / 2, "environment": FACTS}


def test_the_seeds_of_the_losses_are_counted(script, monkeypatch):
    record = script("rare_record")
    seeds = {"ce": range(1, 6), "gce": range(1, 6), "mae": range(1, 4)}
    monkeypatch.setattr(record, "read_lines", lambda name: list(imbalance_lines(seeds)))
    text = record.imbalance_defaults()
    assert "Seeds 1 to 5, all of them in 2 of 4 combinations of a loss and a setting." in text
    assert "| two generated classes, symmetric:0.2 | 1:10 | 8 | +3.3 | 1 of 2 | 1 | MAE -3.3 | 1 |" in text
    whole = {**seeds, "mae": range(1, 6)}
    monkeypatch.setattr(record, "read_lines", lambda name: list(imbalance_lines(whole)))
    assert "Seeds 1 to 5. `benchmarks" in record.imbalance_defaults()


def test_the_answer_counts_the_losses_that_are_above_cross_entropy_under_noise(script, monkeypatch):
    record = script("rare_record")
    seeds = dict.fromkeys(("ce", "gce", "mae"), range(1, 4))
    monkeypatch.setattr(record, "read_lines", lambda name: list(imbalance_lines(seeds)))
    text = record.defaults_answer()
    assert "2 losses were compared with cross entropy in 12 runs. In 2 of these runs" in text
    assert "above that of cross entropy in 1 of 2 cases. The lowest is MAE with -3.3 points." in text
