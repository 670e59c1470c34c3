"""The scripts that measure on other machines, tried on stand-ins of their data."""

import argparse
import errno
import importlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from noiseproof import paper
from noiseproof.data import from_arrays
from noiseproof.paper.reproduction import RecordsFile
from noiseproof.train import override


@pytest.fixture
def auto_a(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    return importlib.import_module("auto_a")


def test_the_runs_on_cifar10_differ_in_a_alone_and_auto_is_the_papers_run_where_it_chooses_30(auto_a):
    found = list(auto_a.cifar_recipes())
    assert len(found) == len({repr(one) for one in found}) == 11 * 3  # of 5 ways and 3 noises, 4 are the same a
    for one in found:
        assert one.loss_options["beta"] * one.loss_options["a"] == pytest.approx(30.0)
    auto = {one.noise: one.loss_options["a"] for one in found[:3]}
    assert auto == {"symmetric:0.4": 18.0, "symmetric:0.8": 30.0, "asymmetric-cifar10:0.4": 30.0}
    published = paper.recipe("cifar10/jal-ce", noise="symmetric:0.8")
    assert found[1].loss_options == published.loss_options
    assert {name for name, value in published.as_dict().items() if found[1].as_dict()[name] != value} == {"precision"}


@pytest.mark.slow
def test_the_queue_on_cifar10_runs_what_is_missing_and_nothing_twice(auto_a, tmp_path, monkeypatch, capsys):
    generator = np.random.default_rng(0)
    images, labels = generator.integers(256, size=(40, 32, 32, 3), dtype=np.uint8), np.arange(40) % 10
    small = from_arrays(images, labels, images[:10], labels[:10], name="cifar10")
    monkeypatch.setattr("noiseproof.train.executors.open_dataset", lambda name, data: small)
    monkeypatch.setattr(auto_a, "SEEDS", (123,))
    records = tmp_path / "records.jsonl"
    words = ["auto_a.py", "cifar10", "--data", ".", "--out", tmp_path / "runs", "--records", records, "--epochs", "1"]
    monkeypatch.setattr(sys, "argv", [*map(str, words), "--device", "cpu"])
    auto_a.main()
    assert "11 finished, 0 failed, 0 left" in capsys.readouterr().out
    found = [json.loads(line)["recipe"]["loss_options"]["a"] for line in records.read_text().splitlines()]
    assert sorted(found) == [1.8, 5.0, 6.0, 9.0, 16.67, 18.0, 30.0, 30.0, 30.0, 50.0, 90.0]
    auto_a.main()
    assert "11 of 11 runs are done" in capsys.readouterr().out


def test_the_results_of_a_queue_have_what_diverged_and_what_only_the_folders_have(auto_a, tmp_path, capsys):
    control = importlib.import_module("control")
    fine = override(paper.recipe("digits/ce"), {"epochs": 1})
    wild = override(fine, {"optimiser": "sgd", "lr": 1e30})
    given = argparse.Namespace(
        data=tmp_path, out=tmp_path / "runs", records=tmp_path / "r.jsonl", known=[], minutes=None, epochs=None,
        device="cpu", plan=False, retry_diverged=False,
    )  # fmt: skip

    def called(**changes):
        control.Runner(argparse.Namespace(**{**vars(given), **changes})).run([fine, wild], lambda one: one.loss)
        found = sorted(json.loads(line)["status"] for line in given.records.read_text().splitlines())
        return found, capsys.readouterr().out

    both = ["diverged", "finished"]
    found, said = called()
    assert found == both
    assert "1 finished, 1 failed, 0 left" in said
    given.records.unlink()
    found, said = called()
    assert found == both
    assert "2 of 2 runs are done" in said
    assert "1 of 2 runs are done" in called(retry_diverged=True)[1]


@pytest.fixture
def control(auto_a, tmp_path, capsys):
    """Two runs of the digits, by the words of the command line; returns what it says."""
    script = importlib.import_module("control")

    def called(*words):
        parser = argparse.ArgumentParser()
        script.Runner.add_arguments(parser)
        places = ["--data", tmp_path, "--out", tmp_path / "runs", "--records", tmp_path / "r.jsonl", "--device", "cpu"]
        recipes = [override(paper.recipe("digits/ce", seed=seed), {"epochs": 1}) for seed in (1, 2)]
        script.Runner(parser.parse_args([*map(str, places), *map(str, words)])).run(recipes, lambda one: one.loss)
        return capsys.readouterr().out

    return called


def test_results_that_cannot_be_written_end_no_run_and_are_added_by_the_next_call(control, tmp_path, monkeypatch):
    def full(self, recipe, outcome):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "r.jsonl")

    with monkeypatch.context() as patch:
        patch.setattr(RecordsFile, "add_outcome", full)
        said = control()
    assert said.count("not added to the records: [Errno 28] No space left on device: 'r.jsonl'") == 2
    assert "2 finished, 0 failed, 0 left" in said
    assert "2 of 2 runs are done" in control()
    assert len((tmp_path / "r.jsonl").read_text().splitlines()) == 2


def test_known_results_may_be_of_any_kind_but_must_be_there_and_be_whole(control, tmp_path):
    control()
    known, other = tmp_path / "known.jsonl", tmp_path / "speed.jsonl"
    (tmp_path / "r.jsonl").rename(known)
    (tmp_path / "runs").rename(tmp_path / "elsewhere")
    other.write_text('{"milliseconds": 1.5}\n')
    assert "2 of 2 runs are done" in control("--plan", "--known", known, other)
    with pytest.raises(FileNotFoundError, match="knwon"):
        control("--plan", "--known", tmp_path / "knwon.jsonl")
    known.write_text(known.read_text()[:-100])
    with pytest.raises(ValueError, match=r"known\.jsonl, line 2: not JSON"):
        control("--plan", "--known", known)


STOPPED = """
import sys
sys.path.insert(0, sys.argv.pop(1))
import control
from noiseproof import paper
from noiseproof.train import override

control.control_recipes = lambda: [override(paper.recipe("digits/ce"), {"epochs": 3000})]
control.main()
"""


@pytest.mark.slow
def test_sigterm_ends_it_and_leaves_a_run_to_resume(tmp_path):
    words = ["--data", ".", "--out", "runs", "--records", "r.jsonl", "--device", "cpu"]
    folder = Path(__file__).parents[2] / "benchmarks"
    process = subprocess.Popen([sys.executable, "-c", STOPPED, folder, *words], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    while not list(tmp_path.glob("runs/*/record.json")):
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=600)
    assert process.returncode == 143
    assert "stopped; the same command resumes it" in said
    assert [json.loads(path.read_text())["status"] for path in tmp_path.glob("runs/*/record.json")] == ["running"]
