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


def test_the_table_of_early_stopping_has_the_gain_of_class_weights_and_the_worst_run(script, monkeypatch):
    record = script("rare_record")
    gains = {1: (4, 2), 2: (-10, 1)}
    lines = [
        {"data": "two generated classes", "ratio": 0.1, "noise": "none", "loss": "ce", "way": way, "seed": seed}
        | {"balanced_accuracy": 0.8 + points / 100, "environment": FACTS}
        for seed, (balanced, tempered) in gains.items()
        for way, points in (("none", 0), ("balanced", balanced), ("tempered", tempered))
    ]
    monkeypatch.setattr(record, "read_lines", lambda name: lines)
    text = record.imbalance_early()
    assert "| two generated classes, no noise | 2 | 80.0 | -3.0 (-10.0) | +1.5 (+1.0) |" in text
    assert "imbalance 1:10. Seeds 1 to 2. `benchmarks" in text


def option_lines(others):
    """Cross entropy, stopped early or not, and others with their points and seconds; one machine takes 4 times as long."""
    for place, seed in ((f"set {number}", seed) for number in range(5) for seed in (1, 2, 3)):
        for method, (points, cost) in {"ce": (-5, 1.0), "ce-early": (0, 1.0), **others}.items():
            machine = "another" if seed == 3 or (seed == 2 and method == "ce") else "a machine"
            seconds = cost * (4 if machine == "another" else 1)
            scores = {"accuracy": 0.8 + points / 100, "balanced_accuracy": 0.7, "cpu_seconds": seconds}
            cell = {"set": place, "noise": "sym:0.4", "seed": seed, "method": method, "last": scores}
            yield cell | {"environment": {**FACTS, "machine": machine}}


def test_what_is_kept_is_said_by_its_interval_and_costs_are_compared_on_one_machine(script, monkeypatch):
    record = script("options_record")
    lines = list(option_lines({"ce+elr:7:0.7": (3, 1.2), "wce": (-2, 1.0), "dpd:0.5": (-4, 1.5), "ce+agree:5": (0, 2.0)}))
    lines = [one for one in lines if one["method"] != "dpd:0.5" or one["seed"] == 1]
    monkeypatch.setattr(record, "read_lines", lambda name: lines)
    text = record.options_kept()
    assert "- In the package, ahead: CE + ELR 7, 0.7.\n- In the package, behind: weighted CE.\n" in text
    assert (
        "- Not in the package, no difference shown: CE + agreement 5.\n- Not in the package, behind: density power 0.5." in text
    )
    assert "| CE + ELR 7, 0.7 | `ELR` | ahead | +3.0 [+3.0, +3.0] | +0.0 [+0.0, +0.0] | 15 | 1.20 |" in text
    assert "5 data sets with the seeds 1, 2 and 3 make 15 cells; each method was measured in 5 to 15 of them." in text
