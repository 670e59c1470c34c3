"""docs/results.md as it is written from records."""

import importlib
from pathlib import Path

import pytest

from noiseproof.report import write_records

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def results(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    return importlib.import_module("results")


def timed(commit, protocol, seconds, way="fast path"):
    environment = {"commit": commit, "machine": "a machine", "torch": "2.9.0", "date": "2026-01-02"}
    facts = {"protocol": protocol, "precision": "bf16", "together": 1, "seconds_per_epoch": seconds}
    return {**facts, "way": way, "environment": environment}


def test_times_of_other_processes_stand_beside_those_above_also_where_these_are_of_several_commits(results):
    now = [timed("c", "cifar10", 9.0, way="eager"), timed("c", "cifar10", 0.2), timed("d", "cifar100", 1.1)]
    earlier = [timed(commit, *row) for commit in "ab" for row in (("cifar10", 0.25), ("cifar100", 1.0))]
    rows = [line for line in results.before(now, earlier).splitlines() if line.startswith("| cifar")]
    assert rows == [
        "| cifar10 | bf16 | 1 | 0.250 | 0.250 | 0.200 | 25.0 % |",
        "| cifar100 | bf16 | 1 | 1.000 | 1.000 | 1.100 | 10.0 % |",
    ]


def test_the_control_says_which_losses_have_not_been_trained_with_both_decays(results, tmp_path):
    control = importlib.import_module("control")
    decays = [{"l1": control.L1}, {"l2": control.L2}]
    recipes = [control.control_recipe("ce", "symmetric:0.8", 123, **decay) for decay in decays]
    recipes.append(control.control_recipe("jal-ce", "symmetric:0.8", 123, **decays[0]))
    shares = (0.5, 0.2, 0.6)
    records = [
        {"recipe": one.as_dict(), "result": {"test_accuracy": share}} for one, share in zip(recipes, shares, strict=True)
    ]
    write_records(tmp_path / "r.jsonl", records)
    text = results.control(tmp_path / "r.jsonl")
    assert "| ce | 50.00 (1) | 20.00 (1) | +30.00 |" in text
    assert "Not trained with both decays so far: jal-ce, nce+rce, nce+mae, anl-ce, nce+agce, gce:" in text
    assert "| jal-ce" not in text
