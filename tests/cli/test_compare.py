"""``noiseproof compare``, as a person types it and sees it."""

import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from noiseproof.cli import app
from noiseproof.comparison.runs import parse_losses, parse_regularisation

SHORT = ("--dataset", "digits", "--noise", "symmetric:0.4", "--set", "epochs=2", "--set", "model.hidden=[16]", "--jobs", "1")


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NOISEPROOF_DATA", raising=False)


def run(*arguments):
    return CliRunner().invoke(app, ["compare", *map(str, arguments)], env={"COLUMNS": "100", "TERM": "dumb"})


def records():
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(Path("runs").glob("*/record.json"))]


def features(name="mine.npz", scale=1.0):
    y = np.arange(60) % 3
    np.savez(name, x=np.random.default_rng(0).normal(size=(60, 4)) + scale * y[:, None], y=y)
    return name


def test_a_seed_has_the_same_labels_and_budget_for_all_losses_and_only_these_differ():
    result = run("ce,gce(q=0.5),jal-ce", *SHORT, "--seeds", "2", "--regularisation", "none,l1:5e-5")
    assert result.exit_code == 0, result.output
    assert "3 losses x 2 regularisations x 2 seeds: 12 runs" in result.output
    found = records()
    assert len(found) == 3 * 2 * 2
    hashes = {
        seed: {facts["task"]["noise"]["hash"] for facts in found if facts["recipe"]["seed"] == seed} for seed in (123, 124)
    }
    assert [len(values) for values in hashes.values()] == [1, 1]
    assert hashes[123] != hashes[124]
    first = found[0]["recipe"]
    for facts in found:
        recipe = facts["recipe"]
        assert {name for name in recipe if recipe[name] != first[name]} <= {"loss", "loss_options", "l1", "seed"}
    crossed = {(facts["recipe"]["loss"], str(facts["recipe"]["loss_options"]), facts["recipe"]["l1"]) for facts in found}
    assert crossed == {
        (loss, options, l1) for loss, options in (("ce", "{}"), ("gce", "{'q': 0.5}"), ("jal-ce", "{}")) for l1 in (0.0, 5e-5)
    }


def test_a_seed_starts_all_losses_from_the_same_weights():
    """Without a step, at learning rate 0, all losses have the same accuracy, and other seeds another one."""
    result = run("ce,gce,mae", *SHORT, "--set", "lr=0", "--format", "json", "--seeds", "3")
    rows = json.loads(result.stdout)["losses"]
    assert rows[0]["accuracies"] == rows[1]["accuracies"] == rows[2]["accuracies"]
    assert len(set(rows[0]["accuracies"].values())) > 1


def test_finished_runs_are_not_run_again_and_new_ones_join_them():
    first = run("ce,gce", *SHORT, "--seeds", "3")
    written = {path: path.stat().st_mtime_ns for path in Path("runs").rglob("*")}
    again = run("ce,gce", *SHORT, "--seeds", "3")
    assert "6 runs, 6 of them done before" in again.output
    assert "6/6" not in again.output
    table = first.output[first.output.index("loss ") :]
    assert again.output.endswith(table)
    more = run("ce,gce,mae", *SHORT, "--seeds", "3")
    assert "9 runs, 6 of them done before" in more.output
    assert {path: path.stat().st_mtime_ns for path in written} == written


def test_runs_on_data_that_have_changed_since_do_not_count():
    arguments = ("ce,gce", "--data", features(), "--test-size", "0.2", "--set", "epochs=1", "--jobs", "1", "--seeds", "1")
    assert run(*arguments).exit_code == 0
    assert "2 of them done before" in run(*arguments).output
    features(scale=2.0)
    result = run(*arguments)
    assert result.exit_code == 2
    assert re.search(r"the data have changed since runs/\S+ was trained: choose another --out", result.output)
    assert run(*arguments, "--out", "new").exit_code == 0


def test_a_run_that_diverges_is_in_the_table_and_the_others_go_on():
    result = run("ce,mae", *SHORT, "--seeds", "1", "--set", "optimiser=sgd", "--set", "lr=1e30", "--set", "epochs=3")
    assert result.exit_code == 0, result.output
    assert "1 of 1 diverged" in result.output
    assert re.search(r"1/2 .*diverged: .*\n2/2", result.output)


def test_a_loss_that_is_never_right_on_a_class_is_said_to_be_below_the_table():
    y = np.repeat([0, 1], [190, 10])
    x = np.random.default_rng(0).normal(size=(200, 4)) + 2.0 * y[:, None]
    np.savez("rare.npz", x=x, y=y, x_test=x, y_test=y)
    words = ("--data", "rare.npz", "--seeds", "1", "--set", "epochs=30", "--jobs", "1")
    result = run("ce,mae", *words, "--class-weight", "none")
    assert result.exit_code == 0, result.output
    assert "mae: never right on class 1, which its accuracy hides" in result.output
    assert "mae: recall in percent: 0 100.0, 1 0.0" in result.output
    assert "mae: dead run with seed 123, every example is predicted as 0" in result.output
    assert re.search(r"^mae \(dead\) +none +95\.00 +- +1 +50\.00 +48\.72 ", result.output, re.M)  # F1 by hand: (38/39 + 0) / 2
    assert "ce: never right" not in result.output
    assert "ce: dead" not in result.output
    mended = run("ce,mae", *words)
    assert "in which this loss may collapse: tempered class weights, and 9 of 30 epochs" in mended.output
    assert "class weights: none for ce, tempered for mae;" in mended.output
    assert "never right" not in mended.output
    assert "dead" not in mended.output


def test_the_recipes_own_decay_is_said():
    result = run("ce,jal-ce", *SHORT, "--seeds", "1", "--set", "l2=1e-4")
    assert len(re.findall(r"^(?:ce|jal-ce) +l2 0\.0001 ", result.output, re.M)) == 2


def test_the_formats_have_the_same_numbers_and_only_them_on_stdout():
    def answer(how):
        return run("ce,gce", *SHORT, "--seeds", "3", "--format", how).stdout

    facts = json.loads(answer("json"))
    assert facts["setting"]["epochs"] == 2
    assert f"| {facts['losses'][0]['loss']} | none | {facts['losses'][0]['mean']:.2f} |" in answer("markdown")
    assert np.mean(list(facts["losses"][1]["accuracies"].values())) == pytest.approx(facts["losses"][1]["mean"])


def test_options_are_parsed_at_the_commas_outside_brackets():
    assert parse_losses("CE , jal-ce( a=20,q=3),NCE+RCE(clip=[1,2])") == [
        ("ce", "ce", {}),
        ("jal-ce(a=20, q=3)", "jal-ce", {"a": "20", "q": "3"}),
        ("nce+rce(clip=[1,2])", "nce+rce", {"clip": "[1,2]"}),
    ]
    assert parse_regularisation("l2:1e-4") == [{"l1": 0.0, "l2": 1e-4}]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("ce,gec", *SHORT), "unknown loss 'gec'; did you mean 'gce'?"),
        (("ce,,gce", *SHORT), "a name is missing next to a comma in 'ce,,gce'"),
        (("ce,jal-ce(a=20", *SHORT), "a bracket is not closed"),
        (("ce,jal-ce(20)", *SHORT), "the options of jal-ce are OPTION=VALUE"),
        (("ce,jal-ce(aa=20)", *SHORT), "JALCE has no option 'aa'; it takes alpha, beta, a"),
        (("ce,gce(q=3)", *SHORT), "q must be in (0, 1], got 3"),
        (("ce,CE", *SHORT), "ce with regularisation none is there twice"),
        (("ce,gce", *SHORT, "--regularisation", "l3:1"), "a regularisation is l1:5e-5, l2:1e-4 or none, got 'l3:1'"),
        (("ce,gce", *SHORT, "--regularisation", "l1:x"), "a regularisation is l1:5e-5, l2:1e-4 or none, got 'l1:x'"),
        (
            ("ce,gce", *SHORT, "--regularisation", "none", "--set", "l1=1"),
            "the regularisation is given twice, as a list and as l1",
        ),
        (("ce,gce", *SHORT, "--set", "loss.q=0.5"), "write a loss's options with its name: 'jal-ce(q=20)'"),
        (("ce,gce",), "--data PLACE for data of your own, or --dataset digits"),
        (("ce,gce", "--dataset", "digit"), "did you mean 'digits/ce'?"),
        (("ce,gce", *SHORT, "--format", "xml"), "--format must be one of table, markdown, latex, json, got 'xml'"),
        (("ce,gce", *SHORT, "--test-noise", "0.4"), "--test-noise is for labels as given; with --noise or --labels, here"),
        (("jal-ce(a=auto)", "--dataset", "digits"), "the recipe puts no noise on the labels"),
        (("ce,gjs", *SHORT), "gjs is called on predictions, not on logits: train it in a loop of your own"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_trained(arguments, says):
    result = run(*arguments)
    assert result.exit_code == 2
    assert says in result.output
    assert not Path("runs").exists()


def test_data_without_a_test_split_say_the_way_out():
    result = run("ce,gce", "--data", features())
    assert result.exit_code == 2
    assert "--test-size 0.1 holds out a tenth" in result.output
    assert "leave --dataset out for data of your own" in run("ce", "--data", "mine.npz", "--dataset", "digits").output


@pytest.fixture
def wrong_labels():
    """Three classes far apart; of the first, half are called the second."""
    y = np.arange(300) % 3
    given = np.where((y == 0) & (np.arange(300) % 2 == 0), 1, y)
    np.savez("mine.npz", x=np.random.default_rng(0).normal(size=(300, 4)) + 9 * np.eye(3, 4)[y], y=given)
    np.savetxt("T.csv", [[0.5, 0.5, 0], [0, 1, 0], [0, 0, 1]], delimiter=",")
    return "--data", "mine.npz", "--test-size", "0.2", "--seeds", "1", "--jobs", "1", "--set", "epochs=20"


def test_held_out_labels_as_given_are_called_that_and_corrected_for_a_known_noise(wrong_labels):
    plain = run("mae,jal-ce", *wrong_labels)
    assert "tested on 60 held-out labels as given, the same for all seeds" in plain.output
    assert "is up to 6.5 points; docs/how_to/choosing.md says how often that picks the best loss" in plain.output
    corrected = run("mae,jal-ce", *wrong_labels, "--test-noise", "T.csv", "--format", "json")
    answer = json.loads(corrected.stdout)
    assert answer["setting"]["test_noise"] == "T.csv"
    assert any("corrected for T.csv: an estimate of the accuracy on clean labels" in note for note in answer["notes"])
    accuracy = {one["loss"]: one["mean"] for one in answer["losses"]}
    assert set(accuracy) == {"mae", "jal-ce"}
    from noiseproof import load
    from noiseproof.data import held_out

    with np.load("mine.npz") as arrays:
        x, y = arrays["x"], arrays["y"]
    test = held_out(y, 0.2)
    for path in Path("runs").glob("*"):
        loss = json.loads((path / "record.json").read_text())["recipe"]["loss"]
        predicted = load(path).predict(x[test].astype(np.float32))
        # T^-1 is [[2, -1, 0], [0, 1, 0], [0, 0, 1]]: a label 0 counts 2 where 0 is predicted, and -1 where 1 is.
        worth = np.where(y[test] == 0, 2.0 * (predicted == 0) - (predicted == 1), predicted == y[test])
        assert accuracy[loss] == pytest.approx(min(100 * worth.mean(), 100))
        assert worth.mean() > 1 or loss != "mae"  # so that the estimate is one that no accuracy can be


def test_a_is_chosen_for_the_noise_and_the_reason_is_said_and_kept(wrong_labels):
    result = run("jal-ce,jal-ce(a=auto:0.2)", *wrong_labels[:-1], "epochs=1")
    assert result.exit_code == 0, result.output
    # Three classes at 0.2: 1 / (0.8 - 0.1) = 1.429.
    assert "jal-ce(a=auto:0.2): a = 14.29, 10 times the 1.429 that theory requires for symmetric:0.2 on 3" in result.output
    found = [facts for facts in records() if any(note.startswith("a = ") for note in facts.get("notes", ()))]
    assert [facts["recipe"]["loss_options"]["a"] for facts in found] == [14.29]


def test_runs_in_several_processes_give_the_same_comparison():
    one = run("ce,gce", *SHORT, "--seeds", "1", "--format", "json", "--out", "here")
    two = run("ce,gce", *SHORT, "--seeds", "1", "--format", "json", "--out", "there", "--jobs", "2")
    assert two.exit_code == 0, two.output
    here, there = (json.loads(result.stdout)["losses"] for result in (one, two))
    for mine, theirs in zip(here, there, strict=True):
        assert mine["mean"] == pytest.approx(theirs["mean"], abs=1.0)  # other numbers of threads may round differently


@pytest.mark.slow
def test_a_killed_process_is_told_and_the_same_command_goes_on():
    """Of two processes one is killed while they train, as the system does when memory runs out."""

    def kill_one():
        deadline = time.monotonic() + 200
        while not list(Path("runs").glob("*/record.json")) and time.monotonic() < deadline:
            time.sleep(0.01)
        os.kill(multiprocessing.active_children()[0].pid, signal.SIGKILL)

    killer = threading.Thread(target=kill_one)
    killer.start()
    result = run("ce,gce", *SHORT[:-1], "2", "--seeds", "1", "--set", "epochs=300")
    killer.join()
    assert result.exit_code == 2
    assert re.search(r"[12]/2 .*, seed 123: A worker process .* was unexpectedly terminated", result.output)
    assert "which the same command tries again; the first: " in result.output
    assert run("ce,gce", *SHORT[:-1], "2", "--seeds", "1", "--set", "epochs=300").exit_code == 0


@pytest.mark.slow
@pytest.mark.parametrize("jobs", ["1", "2"])
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_it_with_a_sentence(jobs, number, status):
    short = [word for word in SHORT if word not in ("--jobs", "1")]
    words = [
        sys.executable,
        "-m",
        "noiseproof",
        "compare",
        "ce,gce",
        *short,
        "--seeds",
        "1",
        "--set",
        "epochs=2000",
        "--jobs",
        jobs,
    ]
    process = subprocess.Popen(
        words,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background jobs ignore it
    )
    try:
        deadline = time.monotonic() + 100
        while not list(Path("runs").glob("*/record.json")) and time.monotonic() < deadline:
            time.sleep(0.2)
        process.send_signal(number)
        _, errors = process.communicate(timeout=600)
    finally:
        process.kill()
    assert process.returncode == status, errors
    assert errors == "stopped; the same command goes on, and does not repeat finished runs\n"
