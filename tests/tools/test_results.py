"""The pages under docs/benchmarks/ as they are written from records, and the plots."""

import importlib
import json
import re
from pathlib import Path

import pytest

from noiseproof.report import write_records

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def tool(monkeypatch):
    """A module of tools/ by its name."""
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    return importlib.import_module


@pytest.fixture
def kernel_record(tool):
    return tool("kernel_record")


def timed(commit, protocol, seconds, way="fast path"):
    environment = {"commit": commit, "machine": "a machine", "torch": "2.9.0", "date": "2026-01-02"}
    facts = {"protocol": protocol, "precision": "bf16", "together": 1, "seconds_per_epoch": seconds}
    return {**facts, "way": way, "environment": environment}


def test_times_of_other_processes_stand_beside_those_above_also_where_these_are_of_several_commits(tool):
    now = [timed("c", "cifar10", 9.0, way="eager"), timed("c", "cifar10", 0.2), timed("d", "cifar100", 1.1)]
    earlier = [timed(commit, *row) for commit in "ab" for row in (("cifar10", 0.25), ("cifar100", 1.0))]
    rows = [line for line in tool("training_record").before(now, earlier).splitlines() if line.startswith("| cifar")]
    assert rows == [
        "| cifar10 | bf16 | 1 | 0.250 | 0.250 | 0.200 | 25.0 % |",
        "| cifar100 | bf16 | 1 | 1.000 | 1.000 | 1.100 | 10.0 % |",
    ]


def test_the_control_says_which_losses_have_not_been_trained_with_both_decays(tool, tmp_path):
    written, control = tool("decay_control").control, tool("control")
    decays = [{"l1": control.L1}, {"l2": control.L2}]
    recipes = [control.control_recipe("ce", "symmetric:0.8", 123, **decay) for decay in decays]
    recipes.append(control.control_recipe("jal-ce", "symmetric:0.8", 123, **decays[0]))
    shares = (0.5, 0.2, 0.6)
    records = [
        {"recipe": one.as_dict(), "result": {"test_accuracy": share}} for one, share in zip(recipes, shares, strict=True)
    ]
    write_records(tmp_path / "r.jsonl", records)
    text = written(tmp_path / "r.jsonl")
    assert "| ce | 50.00 (1) | 20.00 (1) | +30.00 |" in text
    assert "Without results under both decays so far: jal-ce, nce+rce, nce+mae, anl-ce, nce+agce, gce:" in text
    assert "| jal-ce" not in text


def test_the_control_says_which_part_of_a_lead_is_the_decay_and_what_diverged(tool, tmp_path):
    written, control = tool("decay_control").control, tool("control")

    def run(loss, seed, share, status="finished", **decay):
        recipe = control.control_recipe(loss, "symmetric:0.8", seed, **decay).as_dict()
        return {"recipe": recipe, "status": status, "result": {} if status == "diverged" else {"test_accuracy": share}}

    l1, l2 = {"l1": control.L1}, {"l2": control.L2}
    records = [run("jal-ce", 123, share, **l1) for share in (0.63, 0.65)]  # two results of one run count with their mean
    records += [run("jal-ce", 123, 0.56, **l2), run("ce", 123, 0.3, **l1), run("ce", 123, 0.2, **l2)]
    records += [run("gce", 124, 0.0, "diverged", **l1), run("gce", 124, 0.25, **l2), run("ce", 126, 0.9, **l2)]
    records += [run("ce", 124, 0.0, "diverged", **l1), run("ce", 123, 0.28, l1=1e-5)]
    write_records(tmp_path / "r.jsonl", records)
    text = written(tmp_path / "r.jsonl")
    assert "JAL-CE with L1 minus CE with L2: +44.00 points. Of these the decay gives +9.00 and the loss +35.00;" in text
    assert "| ce | L2 | +44.00 | +9.00 | +35.00 | +34.00 | +36.00 | 1 |" in text
    assert "| ce | 30.00 (1), 1 diverged | 20.00 (1) | +10.00 |" in text
    assert "Without results under both decays so far: nce+rce, nce+mae, anl-ce, nce+agce, gce." in text
    assert "Diverged, and so without a result: ce with L1 5e-05 (seed 124), gce with L1 5e-05 (seed 124)." in text
    assert "| ce | 28.00 (1) | - | 30.00 (1), 1 diverged | - | - |" in text
    for line in (rows := [line for line in text.splitlines() if line.startswith("|")]):
        assert any(line.count("|") == other.count("|") for other in rows if "---" in other)


def test_the_page_on_the_paper_is_written_from_another_folder_of_records_too(tool, tmp_path):
    paper = tool("paper_record")
    for name in tool("results").REPEATED:
        lines = (ROOT / "records" / name).read_text(encoding="utf-8").splitlines(keepends=True)
        (tmp_path / name).write_text("".join(lines[:9]), encoding="utf-8")
    assert paper.paper_tables(tmp_path) != paper.paper_tables()
    assert "repeated so far" in paper.paper_answer(tmp_path)


def test_the_best_possible_epoch_is_the_maximum_of_a_curve_and_means_are_of_the_seeds_of_both_losses(tool, monkeypatch):
    early = tool("early_record")

    def run(loss, seed, *curve, noise="symmetric:0.4", **changes):
        recipe = early.recipe(f"cifar10/{loss}", noise=noise).as_dict() | {"seed": seed, "precision": "bf16"} | changes
        return {"recipe": recipe, "curve": {"test_accuracy": curve}}

    lines = [run("ce", 123, 0.5, 0.75, 0.25), run("ce", 124, 0.875, 0.5), run("jal-ce", 123, 0.5, 0.8125)]
    lines += [run("jal-ce", 125, 0.1), run("jal-ce", 124, 0.0, l1=0.0), run("ce", 123, 0.625, noise="none")]
    monkeypatch.setattr(early, "read_lines", lambda name: lines if name == "reproduction.jsonl" else [])
    for kept in (early.runs_of, early.rows):
        kept.cache_clear()
    try:
        (row,) = early.rows()
        assert early.epochs_sentence().endswith("records: [reproduction](records/reproduction.jsonl)).")
        assert row == ("symmetric noise", "symmetric 0.4", 25.0, 75.0, 2, 81.25, (123,))
        assert early.early_answer().startswith(
            "**JAL-CE's last epoch is ahead of cross entropy's best possible epoch in 1 of 1"
        )
        assert "| symmetric 0.4 | 25.0 | 75.0 (epoch 2) | 81.2 | +6.2 | 123 |" in early.early_table()
    finally:
        for kept in (early.runs_of, early.rows):
            kept.cache_clear()


def test_what_is_counted_of_the_paper_is_counted_once(tool):
    paper = tool("paper_record")
    text = paper.counted_cells()
    assert text.startswith("The paper's tables print 439 means. Its authors trained 425 of them and quote the other 14.")
    measured = re.search(r"(\d+) of the 398 have runs", text)[1]
    assert f" in the {measured} of 398 cells " in paper.paper_answer()


def test_the_readme_shows_its_record_without_the_column_that_is_too_wide(tool):
    shown = tool("readme_fits").verdict()
    assert "AUC" not in shown
    printed = json.loads((ROOT / "records/readme_fits.jsonl").read_text(encoding="utf-8").splitlines()[1])["verdict"]
    (whole,) = (line for line in printed if line.startswith("  model "))
    assert f"\n{whole.rpartition('  ')[0]}\n" in shown
    assert all(len(line) <= 80 for line in shown.splitlines())
    assert not any(line.startswith("%") for line in shown.splitlines())


def of_kernels(commit, *lines):
    facts = {"device": "a GPU", "torch": "2.11", "date": "2026-01-02", "protocol": "benchmarks/kernels.py"}
    return [{**facts, "commit": commit}, *lines]


def alone(milliseconds, rows=8192, classes=128256):
    times = {"copy": 1.0, "forward": milliseconds, "backward": 1.0, "in-forward": 1.25}
    return [{"kernel": key, "loss": "jal-ce", "rows": rows, "classes": classes, "ms": ms} for key, ms in times.items()]


def step(way, rows, classes, milliseconds):
    about = {"loss": "jal-ce", "way": way, "rows": rows, "classes": classes, "dtype": "bfloat16", "peak_MiB": 2.0}
    return {**about, "ms": milliseconds}


def host(kernel_record, microseconds):
    about = {"host": "both", "rows": 128, "classes": 10, "dtype": "float32", "over_cross_entropy": 1.5}
    return [{**about, "loss": loss, "us": microseconds} for loss in ("F.cross_entropy", *kernel_record.HOST)]


def head(width, milliseconds):
    about = {"rows": 4, "width": width, "classes": 9, "contestant": "products", "over_products": 1.0, "extra_mib": 7.0}
    return {**about, "ms": milliseconds}


def test_kernels_that_were_measured_again_stand_in_the_place_of_those_before_and_the_rest_stays(kernel_record, monkeypatch):
    """Behind the others in the record, the kernels alone and small batches; of two shapes the time was up before one."""
    lines = of_kernels("old", *alone(9.0), *alone(9.0, 32768, 1000), step("ours", 8192, 128256, 2.5))
    lines += of_kernels("old", {"launches": 3, "way": "ours"}, step("graph", 128, 10, 0.012), *host(kernel_record, 300.0))
    lines += of_kernels("heads", head(5, 40.0), head(6, 10.0)) + of_kernels("head", head(6, 20.0))
    monkeypatch.setattr(kernel_record, "read_lines", lambda name: lines)
    assert kernel_record.kernels().count("commit old") == 3
    lines += of_kernels("new", *host(kernel_record, 200.0), *alone(0.5), {"done": True})
    page = kernel_record.kernels()
    assert "torch 2.11, commit new, 2026-01-02" in page
    assert "| 8,192 x 128,256 | jal-ce | 3 | 6.30 | 1.500 | 0.500 | 1.000 | 1.500 | 1.50 | 100% | 1.25 |" in page
    assert "9.000" not in page
    assert "Whole steps in milliseconds at commit old" in page
    assert "| JAL-CE | 2.50 (2 MiB) |" in page
    assert "small batches, of commit new" in page
    assert "3 launches, and takes 12 microseconds in a CUDA graph (of commit old)." in page
    assert "| 128 x 10, float32 | 200 | 200 (1.50) |" in page
    assert "commit heads and head" in kernel_record.linear()
    assert "| the three matrix products alone | 40.0 (1.00) | 7 | 20.0 (1.00) | 7 |" in kernel_record.linear()
