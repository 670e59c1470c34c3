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
    assert "Without results under both decays so far: jal-ce, nce+rce, nce+mae, anl-ce, nce+agce, gce:" in text
    assert "| jal-ce" not in text


def test_the_control_says_which_part_of_a_lead_is_the_decay_and_what_diverged(results, tmp_path):
    control = importlib.import_module("control")

    def run(loss, seed, share, status="finished", **decay):
        recipe = control.control_recipe(loss, "symmetric:0.8", seed, **decay).as_dict()
        return {"recipe": recipe, "status": status, "result": {} if status == "diverged" else {"test_accuracy": share}}

    l1, l2 = {"l1": control.L1}, {"l2": control.L2}
    records = [run("jal-ce", 123, share, **l1) for share in (0.63, 0.65)]  # two results of one run count with their mean
    records += [run("jal-ce", 123, 0.56, **l2), run("ce", 123, 0.3, **l1), run("ce", 123, 0.2, **l2)]
    records += [run("gce", 124, 0.0, "diverged", **l1), run("gce", 124, 0.25, **l2), run("ce", 126, 0.9, **l2)]
    records += [run("ce", 124, 0.0, "diverged", **l1), run("ce", 123, 0.28, l1=1e-5)]
    write_records(tmp_path / "r.jsonl", records)
    text = results.control(tmp_path / "r.jsonl")
    assert "JAL-CE with L1 minus CE with L2: +44.00 points. Of these the decay gives +9.00 and the loss +35.00;" in text
    assert "| ce | L2 | +44.00 | +9.00 | +35.00 | +34.00 | +36.00 | 1 |" in text
    assert "| ce | 30.00 (1), 1 diverged | 20.00 (1) | +10.00 |" in text
    assert "Without results under both decays so far: nce+rce, nce+mae, anl-ce, nce+agce, gce.\n" in text
    assert "Diverged, and so without a result: ce with L1 5e-05 (seed 124), gce with L1 5e-05 (seed 124)." in text
    assert "| ce | 28.00 (1) | - | 30.00 (1), 1 diverged | - | - |" in text
    for line in (rows := [line for line in text.splitlines() if line.startswith("|")]):
        assert any(line.count("|") == other.count("|") for other in rows if "---" in other)


def test_the_page_is_written_from_another_folder_of_records_too(results, tmp_path):
    for file in (ROOT / "records").iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    lines = (tmp_path / "reproduction.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    (tmp_path / "reproduction.jsonl").write_text("".join(lines[:9]), encoding="utf-8")
    assert results.results(tmp_path) != results.results()
    assert "repeated so far" in results.results(tmp_path)
