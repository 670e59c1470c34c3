"""``noiseproof reproduce``: on the paper's cells without training, and end to end on cells of the digits."""

import errno
import json
import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from typer.testing import CliRunner

from noiseproof import paper
from noiseproof.cli import app
from noiseproof.io.files import claimed
from noiseproof.paper import agreement, command, groups, plan
from noiseproof.paper.plan import FIGURES, Curve, RunCosts
from noiseproof.paper.reproduction import RecordsFile
from noiseproof.paper.settings import SETTINGS
from noiseproof.report import merge, read_records, write_records
from noiseproof.train import Callback, DivergenceError, RunStore

RECORDS = Path(__file__).parents[2] / "records" / "reproduction.jsonl"
DIGITS = tuple(
    paper.Cell("sym_asym", "digits", noise, rate, loss, 90.0, 0.5, 3)
    for loss in ("CE", "JAL-CE")
    for noise, rate in (("clean", 0.0), ("symmetric", 0.4))
)
SCRIPT = """
import sys
from noiseproof.cli import app
from noiseproof.paper import Cell
from noiseproof.paper.settings import SETTINGS

SETTINGS["digits"] |= {"epochs": int(sys.argv[1]), "confidence_epochs": ()}
cells = tuple(Cell("sym_asym", "digits", "symmetric", rate, "CE", 90.0, 0.5, 3) for rate in (0.2, 0.4))
sys.modules["noiseproof.paper.published"]._all = lambda: cells
app(sys.argv[2:], prog_name="noiseproof")
"""


def run(*words, data=""):
    return CliRunner().invoke(
        app, ["reproduce", *map(str, words)], env={"COLUMNS": "100", "TERM": "dumb", "NOISEPROOF_DATA": str(data)}
    )


@pytest.fixture
def digits(monkeypatch, tmp_path):
    """A paper with two losses on the digits, of which a run takes a quarter of a second; the arguments of a whole call."""
    monkeypatch.setattr(sys.modules["noiseproof.paper.published"], "_all", lambda: DIGITS)
    monkeypatch.setitem(SETTINGS, "digits", {**SETTINGS["digits"], "epochs": 4, "confidence_epochs": ()})
    kept = (plan._facts, plan.run_facts, agreement._usual, groups._paper_facts, groups._paper_noises)
    for of_the_paper in kept:
        of_the_paper.cache_clear()
    yield ["--data", tmp_path, "--out", tmp_path / "runs", "--records", tmp_path / "new" / "records.jsonl"]
    for of_digits in kept:
        of_digits.cache_clear()


def finished(tmp_path):
    return [run.facts["recipe"] for run in RunStore(tmp_path / "runs").runs() if run.status == "finished"]


def test_every_cifar_cell_is_an_object_of_the_same_form_without_data():
    result = run("--records", RECORDS, "--format", "json")
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    expected = [cell for cell in paper.cells() if cell.dataset.startswith("cifar")]
    assert [(o["table"], o["dataset"], o["noise"], o["rate"], o["loss"], o["paper_mean"], o["paper_std"]) for o in found] == [
        (cell.table, cell.dataset, cell.noise, cell.rate, cell.loss, cell.mean, cell.std) for cell in expected
    ]
    kinds = {"mean": float, "std": float, "n": int, "seeds": list, "difference": float, "interval": list, "verdict": str}
    for cell in found:
        assert cell["verdict"] in ("agrees", "above", "below", "too few")
        for name, kind in kinds.items():
            assert isinstance(cell[name], kind) or (cell[name] is None and name not in ("n", "seeds", "verdict")), name
        assert (cell["mean"] is None) == (cell["n"] == 0) == (cell["seeds"] == [])
    assert "runs are missing" in result.stderr
    assert "--data DIR" in result.stderr


def test_the_measured_mean_is_that_of_the_records(tmp_path):
    file = tmp_path / "two.jsonl"
    record = read_records(RECORDS)[0]
    noise, two = record["recipe"]["noise"], json.loads(json.dumps(record))
    assert record["recipe"]["loss"] == "jal-ce"
    assert noise == "symmetric:0.6"
    record["result"]["test_accuracy"], two["result"]["test_accuracy"], two["recipe"]["seed"] = 0.81, 0.83, 124
    write_records(file, [record, two])
    words = ["--dataset", "cifar10", "--loss", "jal-ce", "--noise", noise, "--format", "json"]
    (cell,) = json.loads(run("sym_asym", "--records", file, *words).stdout)
    assert (cell["mean"], cell["std"], cell["seeds"]) == (82.0, pytest.approx(2**0.5, abs=1e-4), [123, 124])


def test_runs_of_the_other_profile_are_named(tmp_path):
    (cell,) = paper.cells(table="sym_asym", dataset="cifar10", noise="symmetric", rate=0.8, loss="GCE")
    runs = {profile: plan.run_facts(cell, profile) for profile in paper.PROFILES}
    recipes = [(60.0, {**runs["paper-text"], "seed": 123}), (61.0, {**runs["paper-text"], "seed": 124})]
    recipes += [(25.0, {**runs["paper-code"], "seed": 123})]
    records = [{"recipe": {**recipe, "precision": "bf16"}, "result": {"test_accuracy": one / 100}} for one, recipe in recipes]
    write_records(tmp_path / "r.jsonl", records)
    words = [
        "sym_asym",
        "--dataset",
        "cifar10",
        "--loss",
        "gce,ce",
        "--noise",
        "symmetric:0.8",
        "--records",
        tmp_path / "r.jsonl",
    ]
    code, text = (run(*words, "--profile", profile) for profile in paper.PROFILES)
    assert "2 more runs of these numbers: --profile paper-text shows them" in code.stderr
    assert "25.00 (1)" in code.stdout
    assert "1 more run of these numbers: --profile paper-code shows them" in text.stderr
    assert "sym_asym, cifar10, paper-text\n" in text.stdout
    assert "60.50±0.71 (2)" in text.stdout


@pytest.mark.parametrize("how", ["table", "markdown", "latex", "csv"])
def test_every_format_has_the_papers_numbers(how):
    result = run("human", "--dataset", "cifar10", "--loss", "JAL-CE", "--format", how)
    assert result.exit_code == 0
    for cell in paper.cells(table="human", dataset="cifar10", loss="JAL-CE"):
        assert f"{cell.mean:g}" in result.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["sym_asim"], "did you mean 'sym_asym'?"),
        (["amse"], "did you mean 'amse_"),
        (["--loss", "jal-ec"], "did you mean 'jal-ce'?"),
        (["--noise", "symetric:0.8"], "did you mean 'symmetric:0.8'?"),
        (["--dataset", "cifar11"], "did you mean 'cifar10"),
        (["--format", "tabel"], "did you mean 'table'?"),
        (["human", "--noise", "symmetric:0.8"], "no number with all of these"),
        (["--seeds", "123"], "the seed 123 alone is '123,'"),
        (["--seeds", "123,18446744073709551739", "--plan"], "must be in [0, 2^32), got 18446744073709551739"),
        (["--seeds", "some"], "--seeds is a number of seeds"),
        (["--shard", "9/8"], "--shard is PART/PARTS"),
        (["--precision", "fp8"], "--precision must be one of bf16, tf32, float32"),
        (["--records", "nothing.jsonl"], "nothing.jsonl: no such file"),
        (["--engine", "slurm"], "--engine must be local or ray"),
        (["--data", "nowhere", "--device", "cpu"], "cifar10 is not in nowhere"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(words, message):
    result = run(*words)
    assert result.exit_code == 2
    assert message in result.stderr


def test_the_plan_says_what_is_left_and_how_long_it_takes(tmp_path):
    file, done = tmp_path / "some.jsonl", 7
    write_records(file, read_records(RECORDS)[:done])
    result = run("--plan", "--records", file, "--dataset", "cifar10", "--seeds", "123,124")
    assert result.exit_code == 0
    runs = plan.planned_runs(plan.chosen_cells(datasets=["cifar10"]), seeds=[123, 124]).runs
    together = re.search(r"^together +(\d+) +(\d+) +(\d+) +(\d+) +(.*)$", result.stdout, re.MULTILINE)
    assert [int(number) for number in together.groups()[:4]] == [len(runs), done, len(runs) // 2 - done, len(runs) // 2]
    assert together[5] == f"{(len(runs) - done) * 28 / 3600:.1f} h"
    assert "28 s for a run on cifar10, measured on an NVIDIA H200" in result.stdout


@pytest.fixture
def figures(digits, monkeypatch):
    """Figures of the digits; a run of CE counts for two of them and for a cell."""
    noise = "symmetric:0.4"
    amse = [Curve("amse_a", "One", f"AMSE a={a:g}", "amse", noise, (("a", a),), "digits") for a in (3.0, 30.0)]
    ce = [Curve(figure, "Two", "CE", "ce", noise, dataset="digits") for figure in ("amse_a", "tsne")]
    curves = {"amse_a": (*amse, ce[0]), "tsne": (ce[1],)}
    monkeypatch.setattr("noiseproof.paper.page.EMBEDDED_EXAMPLES", 60)
    for name in FIGURES:
        monkeypatch.setitem(FIGURES, name, curves.get(name, ()))
    return digits


def test_figures_are_run_for_and_drawn_and_a_run_is_made_once_for_all(figures, tmp_path):
    words = ["amse_a,tsne", *figures, "--figures", tmp_path / "figures"]
    plan = run(*words, "--plan", "--seeds", "2")
    assert re.search(r"^amse_a +digits +3 +- +3", plan.stdout, re.MULTILINE)
    assert re.search(r"^together +3 +- +3", plan.stdout, re.MULTILINE)
    result = run(*words)
    assert result.exit_code == 0, result.stderr
    assert result.stdout == ""  # no table was asked for
    assert "AMSE a=3  digits   symmetric:0.4    seed 123" in result.stderr
    assert sorted(path.name for path in (tmp_path / "figures").iterdir()) == [
        *("amse_a.png", "amse_a.svg", "tsne.png", "tsne.svg")
    ]
    assert "runs are missing" not in result.stderr
    drawn = (tmp_path / "figures" / "amse_a.svg").read_text()
    for text in ("One", "Two", "AMSE a=3<", "AMSE a=30<", "CE<"):
        assert text in drawn
    again = run("sym_asym,amse_a,tsne", *words[1:], "--loss", "ce,amse", "--noise", "symmetric:0.4", "--seeds", "1")
    assert "runs to do" not in again.stderr
    assert "1 run to do" not in again.stderr
    assert "sym_asym" in again.stdout
    assert len(finished(tmp_path)) == 3


def test_a_record_is_enough_for_curves_and_not_for_features(figures, tmp_path):
    assert run("amse_a", *figures, "--figures", tmp_path / "figures").exit_code == 0
    records = ["--records", figures[-1], "--out", tmp_path / "elsewhere", "--figures", tmp_path / "others"]
    result = run("amse_a,tsne", *records)
    assert result.exit_code == 0
    assert f"amse_a: {tmp_path / 'others' / 'amse_a.svg'}, {tmp_path / 'others' / 'amse_a.png'}\n" in result.stderr
    assert "tsne: 1 of its 1 runs are missing" in result.stderr
    assert "1 of 3 runs are missing" in result.stderr


def test_without_data_the_records_stay_as_they_are_and_the_page_is_written(digits, tmp_path):
    assert run(*digits, "--seeds", "1", "--loss", "CE").exit_code == 0
    file = tmp_path / "others.jsonl"
    write_records(file, [])
    result = run(*digits[2:4], "--records", file, "--precision", "float32", "--page", tmp_path / "paper.html")
    assert result.exit_code == 0, result.stderr
    assert file.read_text() == ""
    assert f"{(tmp_path / 'paper.html').stat().st_size} bytes in {tmp_path / 'paper.html'}" in result.stderr
    page = (tmp_path / "paper.html").read_text(encoding="utf-8")
    assert "different results, in 2 of 4 cells" in page
    assert "noiseproof train digits/ce --seed 123" in page.replace("<span>", "").replace("</span>", "")


def test_shards_and_seeds_divide_the_list(digits):
    parts = [run(*digits, "--plan", "--seeds", "5", "--shard", f"{part}/3").stdout for part in (1, 2, 3)]
    counts = [int(re.search(r"^together +(\d+)", text, re.MULTILINE)[1]) for text in parts]
    assert counts == [7, 7, 6]


def test_all_runs_are_made_once_and_shown_beside_the_paper(digits, tmp_path):
    result = run(*digits, "--seeds", "2", "--format", "json")
    assert result.exit_code == 0, result.stderr
    assert [(cell["loss"], cell["seeds"], cell["paper_mean"]) for cell in json.loads(result.stdout)] == [
        (cell.loss, [123, 124], 90.0) for cell in DIGITS
    ]
    assert "on a CPU the runs are in float32" in result.stderr
    line = re.search(r"JAL-CE +digits +symmetric:0.4 +seed 124 +(\d\d\.\d\d) %  paper 90.00 ± 0.50 +\d+\.\d s", result.stderr)
    written = read_records(tmp_path / "new" / "records.jsonl")
    assert len(written) == len(finished(tmp_path)) == 8
    assert float(line[1]) in [round(100 * record["result"]["test_accuracy"], 2) for record in written]
    again = run(*digits, "--seeds", "2", "--format", "json")
    assert again.stdout == result.stdout
    assert "seed 12" not in again.stderr
    (tmp_path / "new" / "records.jsonl").unlink()
    assert run(*digits, "--seeds", "2", "--format", "json").stdout == result.stdout
    assert merge(written, read_records(tmp_path / "new" / "records.jsonl")) == written
    shown = run(*digits[2:], "--seeds", "2", "--format", "json")
    assert shown.stdout == result.stdout


def test_data_named_by_the_environment_are_run_on_as_those_of_the_option_are(digits, tmp_path):
    result = run(*digits[2:], "--seeds", "1", "--device", "cpu", data=tmp_path)
    assert result.exit_code == 0, result.stderr
    assert "on a CPU the runs are in float32" in result.stderr
    assert {recipe["precision"] for recipe in finished(tmp_path)} == {"float32"}


def test_what_the_records_have_is_not_run_again_and_stays_in_them(digits, tmp_path):
    assert run(*digits, "--seeds", "1", "--loss", "CE").exit_code == 0
    lines = (tmp_path / "new" / "records.jsonl").read_text(encoding="utf-8").splitlines()
    elsewhere = [*digits[:3], tmp_path / "elsewhere", *digits[4:]]
    result = run(*elsewhere, "--seeds", "1")
    assert len(list((tmp_path / "elsewhere").iterdir())) == 2
    assert "CE        digits" not in result.stderr.replace("JAL-CE", "")
    after = (tmp_path / "new" / "records.jsonl").read_text(encoding="utf-8").splitlines()
    assert after[:2] == lines
    assert len(after) == 4


@pytest.fixture
def jal_diverges(monkeypatch):
    class Diverge(Callback):
        def on_epoch_end(self, facts):
            raise DivergenceError("the loss is not finite")

    def callback(self, run):
        return Diverge() if run.job.cells[0].loss == "JAL-CE" else Callback()

    monkeypatch.setattr(command.Display, "callback", callback)


def test_a_run_that_diverged_is_in_the_records_and_only_run_again_if_asked(digits, jal_diverges, tmp_path, monkeypatch):
    words = ["--seeds", "1", "--noise", "clean"]
    elsewhere = [*digits[:3], tmp_path / "elsewhere", *digits[4:], *words]
    assert run(*digits, *words).exit_code == 1
    (jal, ce) = read_records(tmp_path / "new" / "records.jsonl")
    assert (ce["status"], jal["status"], jal["result"]) == ("finished", "diverged", {})
    assert jal["message"] == "the loss is not finite"
    monkeypatch.setattr(command.Display, "callback", lambda self, run: Callback())
    again = run(*elsewhere)
    assert again.exit_code == 0
    assert "to do" not in again.stderr
    assert re.search(r"^JAL-CE +ours +1 diverged$", again.stdout, re.MULTILINE)
    assert "JAL-CE, clean: seed 123 diverged, which is no result" in again.stdout
    plan = run(*elsewhere, "--plan").stdout
    assert re.search(r"^together +2 +2 +-", plan, re.MULTILINE)
    assert "1 of those done diverged; only --retry-diverged runs them again" in plan
    retried = run(*elsewhere, "--retry-diverged")
    assert retried.exit_code == 0, retried.stderr
    assert "1 run to do" in retried.stderr
    found = read_records(tmp_path / "new" / "records.jsonl")
    assert [(one["recipe"]["loss"], one["status"]) for one in found] == [
        *(("jal-ce", "diverged"), ("jal-ce", "finished"), ("ce", "finished"))
    ]
    assert "to do" not in run(*elsewhere).stderr


def test_runs_that_diverged_when_an_earlier_call_was_killed_reach_the_records(digits, jal_diverges, tmp_path):
    assert run(*digits, "--seeds", "1", "--noise", "clean").exit_code == 1
    (tmp_path / "new" / "records.jsonl").unlink()
    assert run(*digits, "--seeds", "1", "--noise", "clean").exit_code == 0
    assert sorted(one["status"] for one in read_records(tmp_path / "new" / "records.jsonl")) == ["diverged", "finished"]


def test_a_run_that_fails_is_reported_and_the_others_go_on(digits, jal_diverges, tmp_path):
    result = run(*digits, "--seeds", "1")
    assert result.exit_code == 1
    assert "diverged: the loss is not finite" in result.stderr
    assert "diverged: for the same reason" in result.stderr
    assert "2 of 4 runs failed or diverged; 2 of 4 runs finished and are kept; 2 diverged, which" in result.stderr
    assert "the same command" not in result.stderr
    assert [recipe["loss"] for recipe in finished(tmp_path)] == ["ce", "ce"]


def test_a_run_that_another_process_is_at_work_on_is_left_to_it_and_has_not_failed(digits, tmp_path):
    (busy,) = plan.planned_runs(DIGITS[:1], seeds=[123], precision="float32").runs
    with claimed(RunStore(tmp_path / "runs").folder_for(busy.recipe)):
        result = run(*digits, "--seeds", "1", "--device", "cpu")
    assert result.exit_code == 0, result.stderr
    assert "CE        digits   clean            seed 123  another process is at work on it" in result.stderr
    assert "1 of 4 runs are left to other processes; 3 of 4 runs finished and are kept" in result.stderr
    assert "failed" not in result.stderr
    assert len(finished(tmp_path)) == 3


def test_a_full_disk_is_said_once_and_nothing_more_is_started(digits, tmp_path, monkeypatch):
    class Full(Callback):
        def on_epoch_end(self, facts):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "weights")

    monkeypatch.setattr(command.Display, "callback", lambda self, run: Full())
    result = run(*digits, "--seeds", "1")
    assert result.exit_code == 1
    assert result.stderr.count("failed: ") == 1
    assert "3 runs were not started: [Errno 28] No space left on device: 'weights'; free some space" in result.stderr


def test_results_that_are_not_added_to_the_records_are_no_success_and_the_next_call_adds_them(digits, tmp_path, monkeypatch):
    def full(self, recipe, outcome):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "records.jsonl")

    words = [*digits, "--seeds", "1", "--noise", "clean"]
    with monkeypatch.context() as patch:
        patch.setattr(RecordsFile, "add_outcome", full)
        result = run(*words)
    assert result.exit_code == 1
    assert result.stderr.count("not added to the records: [Errno 28] No space left on device: 'records.jsonl'") == 2
    assert f"2 results are in {tmp_path / 'runs'} and not in the records; the same command adds them" in result.stderr
    assert run(*words).exit_code == 0
    assert len(read_records(tmp_path / "new" / "records.jsonl")) == 2


def test_with_minutes_nothing_starts_that_would_not_end_in_time(digits, tmp_path, monkeypatch):
    monkeypatch.setattr(RunCosts, "until_end", lambda self, run, width: 100.0)
    result = run(*digits, "--seeds", "1", "--minutes", "1")
    assert result.exit_code == 0
    assert "4 runs would not have ended in 1 minutes; 0 of 4 runs finished" in result.stderr
    assert not finished(tmp_path)


def test_several_writers_lose_no_line(tmp_path):
    """The lock is one of the system's, on each opening of the folder: it keeps threads apart as it does processes."""
    records, file = read_records(RECORDS)[:24], tmp_path / "all.jsonl"
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda record: RecordsFile(file).add([record]), records))
    found = read_records(file)
    assert len(found) == 24
    assert merge(found, records) == found
    RecordsFile(file).add(records)
    assert read_records(file) == found
    assert [path.name for path in tmp_path.iterdir()] == ["all.jsonl"]


def test_a_link_to_the_results_stays_one_and_a_killed_writing_leaves_nothing_for_good(tmp_path):
    (first, second), file, link = read_records(RECORDS)[:2], tmp_path / "kept" / "all.jsonl", tmp_path / "link.jsonl"
    link.symlink_to(file)
    for keeper in (RecordsFile(link), RecordsFile(file)):
        keeper.add([first])
    for name in (".all.jsonl.0123abcd", ".all.jsonl.swp", ".all2.jsonl.0123abcd"):
        (file.parent / name).write_text("a part")
    RecordsFile(link).add([second])
    assert link.is_symlink()
    assert read_records(file) == [first, second]
    assert sorted(path.name for path in file.parent.iterdir()) == [".all.jsonl.swp", ".all2.jsonl.0123abcd", "all.jsonl"]


def started(tmp_path, epochs, *words):
    command = [sys.executable, "-c", SCRIPT, str(epochs), "reproduce", "--data", ".", *words]
    return subprocess.Popen(
        command,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background jobs ignore it
    )


def test_killed_in_the_middle_it_goes_on_and_repeats_nothing(tmp_path):
    """Killed as soon as the second run has begun."""
    words = ["--seeds", "2", "--records", "records.jsonl", "--format", "json"]
    process = started(tmp_path, 30, *words)
    while "symmetric:0.2" not in process.stderr.readline():
        pass
    while len(list(tmp_path.glob("runs/*/record.json"))) < 2:
        time.sleep(0.01)
    process.kill()
    process.communicate()
    kept = {run.folder: (run.folder / "record.json").stat().st_mtime_ns for run in RunStore(tmp_path / "runs").runs()
            if run.status == "finished"}  # fmt: skip
    assert 1 <= len(kept) < 4
    again = started(tmp_path, 30, *words)
    output, errors = again.communicate(timeout=300)
    assert again.returncode == 0, errors
    assert [cell["n"] for cell in json.loads(output)] == [2, 2]
    assert {folder: (folder / "record.json").stat().st_mtime_ns for folder in kept} == kept
    assert len(read_records(tmp_path / "records.jsonl")) == 4
    assert errors.count("seed 12") == 4 - len(kept)


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow)]
)
def test_a_signal_stops_it_soon_and_it_says_what_comes_next(tmp_path, number, status):
    process = started(tmp_path, 3000, "--seeds", "1")
    while not list(tmp_path.glob("runs/*/record.json")):
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(number)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == status, errors
    assert "stopped: 0 of 2 runs finished and are kept; the same command runs the others" in errors
