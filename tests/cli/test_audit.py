"""``noiseproof audit``, as a person types it and sees it."""

import csv
import html
import json
import os
import re
import shlex
import signal
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from typer.testing import CliRunner

from noiseproof.cli import app
from noiseproof.cli.audit import AuditProgress
from noiseproof.data import open_dataset

ROWS = 90
TRUE = np.arange(ROWS) % 3
WRONG = np.arange(ROWS) % 10 == 4
GIVEN = np.where(WRONG, (TRUE + 1) % 3, TRUE)
SHORT = ("--folds", "2", "--epochs", "2")


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NOISEPROOF_DATA", raising=False)


def run(*words):
    return CliRunner().invoke(app, list(map(str, words)), env={"COLUMNS": "300", "TERM": "dumb"})


def audit(*words):
    return run("audit", *words)


def features():
    return np.random.default_rng(0).normal(size=(ROWS, 4)).astype(np.float32) + 4 * np.eye(3, 4, dtype=np.float32)[TRUE]


def arrays(labels=GIVEN):
    """Features and out-of-sample predictions that know the true label."""
    np.savez("mine.npz", x=features(), y=labels)
    p = np.full((ROWS, 3), 0.05)
    p[np.arange(ROWS), TRUE] = 0.9
    np.save("p.npy", p)
    return "mine.npz", "--probabilities", "p.npy"


def table(header="id,a,b,c,d,label", names=("=cat", "dog", "owl")):
    rows = [f"r{k}," + ",".join(f"{v:.4g}" for v in row) + f",{names[GIVEN[k]]}" for k, row in enumerate(features())]
    Path("mine.csv").write_text("\n".join([header, *rows]) + "\n")
    return "mine.csv"


def rows_of(path):
    with Path(path).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("file", ["p.npz", "p.csv", "long.csv"])
def test_columns_that_a_file_names_are_put_in_the_order_of_the_classes(file):
    """As 'noiseproof predict' writes them too."""
    arrays()
    p, order, names = np.load("p.npy"), [2, 0, 1], np.array(["=cat", "dog", "owl"])
    lines = [",".join(map(str, row)) for row in p[:, order]]
    np.savez("p.npz", probabilities=p[:, order], classes=names[order], index=np.arange(ROWS))
    Path("p.csv").write_text("\n".join(["owl,=cat,dog", *lines]))
    Path("long.csv").write_text(
        "\n".join(["index,path,p_owl,p_'=cat,p_dog", *(f"{k},x,{line}" for k, line in enumerate(lines))])
    )
    done = audit(table(), "--probabilities", file, "--out", "out")
    assert done.exit_code == 0, done.output
    assert [row["flagged"] == "1" for row in rows_of("out/audit.csv")] == WRONG.tolist()


@pytest.mark.parametrize(
    ("names", "width", "message"),
    [
        (
            ["=cat", "dog", "emu"],
            3,
            "p.npz: its columns are of other classes than the data: only the file has 'emu', only the data",
        ),
        (None, 4, "p.npz for mine.csv: 4 columns, and the data have 3 classes: =cat, dog, owl; one for each, in this order"),
    ],
)
def test_columns_of_other_classes_are_refused(names, width, message):
    np.savez(
        "p.npz", probabilities=np.full((ROWS, width), 1 / width), **({} if names is None else {"classes": np.array(names)})
    )
    assert message in audit(table(), "--probabilities", "p.npz").stderr


def test_predictions_of_ones_own_model_are_enough():
    done = audit(*arrays(), "--out", "out")
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert re.fullmatch(r"mine: about \d+\.\d % of the 90 labels are wrong", lines[0])
    assert re.match(r"95 % interval \d+\.\d % to \d+\.\d %; 9 labels are flagged", lines[1])
    assert lines[2].startswith("Out-of-sample predictions agree with 90.0 % of the labels. Perfect ones would agree with")
    assert re.search(r"ost often: \d labelled as \d \(3\)", lines[3])
    assert lines[4].startswith("Look first at the labels ")
    assert lines[5].startswith("out/audit.html shows those flagged and takes decisions; audit.csv")
    assert lines[6:] == [
        "next, for a model that does not learn the wrong labels: noiseproof fit mine.npz --out model",
        "next, for the loss and settings of a training loop of your own: noiseproof advise mine.npz --noise out",
    ]
    assert sorted(path.name for path in Path("out").iterdir()) == ["audit.csv", "audit.html", "posterior.npz", "transition.csv"]
    flagged = [row for row in rows_of("out/audit.csv") if row["flagged"] == "1"]
    assert [int(row["index"]) for row in flagged] == np.flatnonzero(WRONG).tolist()
    assert [int(row["suggested"]) for row in flagged] == TRUE[WRONG].tolist()


def next_commands(done):
    """By the verb, as words."""
    commands = [shlex.split(line.partition(": noiseproof ")[2]) for line in done.stdout.splitlines() if line.startswith("next")]
    return {words[0]: words for words in commands}


def test_the_commands_that_are_printed_next_fit_and_advise():
    commands = next_commands(audit(*arrays(), "--out", "out dir"))
    assert list(commands) == ["fit", "advise"]
    for words, more in (("fit", ["--learners", "logistic-0.01"]), ("advise", [])):
        done = run(*commands[words], *more)
        assert done.exit_code == 0, done.output
    assert "wrong labels" in done.stdout
    assert "train ce" not in Path("out dir/audit.html").read_text("utf-8") + Path("model/report.html").read_text("utf-8")


def test_of_images_a_network_on_soft_labels_is_among_the_commands_that_are_printed_next():
    _, *p = arrays()
    np.savez("images.npz", x=np.random.default_rng(0).integers(0, 256, (ROWS, 8, 8), dtype=np.uint8), y=GIVEN)
    commands = next_commands(audit("images.npz", *p, "--out", "out dir"))
    assert list(commands) == ["fit", "train", "advise"]
    assert commands["train"][-1] == "out dir/posterior.npz"
    assert run(*commands["train"], "--dry-run").exit_code == 0


def test_labels_of_a_file_are_those_that_the_next_commands_train_on():
    place, *p = arrays(TRUE)
    np.save("peoples labels.npy", GIVEN)
    commands = next_commands(audit(place, *p, "--labels", "peoples labels.npy", "--out", "out"))
    assert commands["advise"] == ["advise", str(place), "--labels", "peoples labels.npy", "--noise", "out"]
    assert commands["fit"] == ["fit", str(place), "--labels", "peoples labels.npy", "--out", "model"]
    said = run(*commands["advise"], "--json")
    assert said.exit_code == 0, said.output
    fit = shlex.split(json.loads(said.stdout)["commands"][0])[1:]
    assert fit == commands["fit"]
    done = run(*fit, "--learners", "logistic-0.01", "--json")
    assert done.exit_code == 0, done.output
    rows = rows_of("model/audit.csv")
    assert [int(row["given"]) for row in rows] == GIVEN.tolist()


def test_a_table_of_features_is_audited_by_name():
    arrays()
    np.savetxt("p.csv", np.load("p.npy"), delimiter=",")
    done = audit(table(), "--probabilities", "p.csv", "--out", "out", "--quiet")
    assert done.exit_code == 0, done.output
    first = rows_of("out/audit.csv")[4]
    assert (first["path"], first["given"], first["suggested"]) == ("r4", "owl", "dog")
    assert rows_of("out/audit.csv")[0]["given"] == "'=cat"
    page = Path("out/audit.html").read_text(encoding="utf-8")
    assert re.search(r"example 4, r4</p>\s*<p class=\"values quiet\"><span>a -?[\d.]+</span>", page)
    said = audit(table("id,a,b,c,species,d"), "--label-column", "d", "--probabilities", "p.csv", "--out", "out2")
    assert said.exit_code == 0, said.output
    assert "noiseproof fit mine.csv --label d --out model" in said.stdout


def test_what_was_understood_is_said_and_columns_that_name_rows_or_give_the_label_away_are_named():
    lines = [f"{k},{k % 7},{'ab'[k // 20]}{k // 20},{k // 20}" for k in range(40)]
    Path("mine.csv").write_text("\n".join(["row_id,size,paid,label", *lines]))
    done = audit("mine.csv", "--quick", "--epochs", "1", "--out", "out")
    for line in (
        "row_id left out: all different",
        "size number",
        "paid category, 2 values",
        "label the label, 2 classes: 0, 1",
    ):
        assert f"  {line}\n" in done.stdout
    assert "warning: column 'paid' nearly determines the label: leave it out if it is made from it" in done.stderr
    again = audit("mine.csv", "--quick", "--epochs", "1", "--out", "out", "--quiet", "--columns", "paid=drop,size=category")
    assert "nearly determines" not in again.stderr
    assert "--columns paid=drop,size=category" in again.stdout


def test_other_labels_can_be_audited():
    place, *p = arrays(TRUE)
    np.save("people.npy", GIVEN)
    found = [json.loads(audit(place, *p, *more, "--json").stdout) for more in ((), ("--labels", "people.npy"))]
    assert [each["flagged"] for each in found] == [0, 9]
    assert found[1]["classes"][0]["name"] == "0"
    assert found[1]["out_of_sample"] is True
    assert {"rate", "rate_interval", "agreement", "warnings", "confusions", "how", "folder", "examples"} <= set(found[1])


def test_networks_are_trained_and_those_of_a_stopped_audit_are_not_trained_again(monkeypatch):
    arrays()
    told = AuditProgress.__call__

    def terminated(self, progress):
        told(self, progress)
        if self.done == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(AuditProgress, "__call__", terminated)
        stopped = audit("mine.npz", *SHORT, "--out", "out")
    assert stopped.exit_code == 143
    assert stopped.stderr == "stopped; the same command resumes after 2 of 4 networks in out\n"
    assert not Path("out/audit.csv").exists()
    done = audit("mine.npz", *SHORT, "--out", "out")
    assert done.exit_code == 0, done.output
    before = [line for line in done.stdout.splitlines() if line.endswith("trained before")]
    assert before == [f"given labels, network {k}/2  trained before" for k in (1, 2)]
    assert re.search(r"^soft labels, network 2/2  epoch 1/1", done.stdout, re.MULTILINE)
    assert {row["fold"] for row in rows_of("out/audit.csv")} == {"0", "1"}
    whole = audit("mine.npz", *SHORT, "--out", "other", "--quiet")
    assert len(whole.stdout.splitlines()) == 8
    assert Path("other/audit.csv").read_text() == Path("out/audit.csv").read_text()


def test_stopped_before_a_network_is_finished_it_starts_anew(monkeypatch):
    arrays()
    monkeypatch.setattr("noiseproof.audit.labels.audit_labels", interrupted)
    done = audit("mine.npz", "--out", "out")
    assert (done.exit_code, done.stderr) == (130, "stopped; the same command starts anew in out\n")


def interrupted(*_, **__):
    raise KeyboardInterrupt


def test_quick_is_in_sample_and_says_so():
    arrays()
    done = audit("mine.npz", "--quick", "--epochs", "2", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["out_of_sample"] is False
    assert "given labels, network 1/1  epoch 2/2" in done.stderr


def test_images_are_on_the_page_and_warnings_on_stderr():
    for k in range(ROWS):
        Path(f"images/{'abc'[GIVEN[k]]}").mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (80, 60), (k, 0, 0)).save(f"images/{'abc'[GIVEN[k]]}/{k:03}.png")
    order = np.argsort(GIVEN, kind="stable")
    p = np.full((ROWS, 3), 0.3)
    p[:, 0] = 0.4
    np.save("p.npy", p[order])
    done = audit("images", "--probabilities", "p.npy", "--examples", "5")
    assert done.exit_code == 0, done.output
    assert "warning: predictions agree with only 33% of the labels, perfect ones would with" in done.stderr
    page = Path("audit/audit.html").read_text(encoding="utf-8")
    assert 1 <= len(re.findall(r"<li>\s*<img src=.data:image/webp", page)) <= 5
    assert rows_of("audit/audit.csv")[0]["path"] == "images/a/000.png"


def test_decisions_keep_how_the_table_is_read_and_rows_that_begin_with_a_number_sign(tmp_path):
    lines = ["colour,size,label,a"] + [f"{('#1', 'b')[k % 2]},{k % 9},x,{('cat', 'dog')[k % 2]}" for k in range(30)]
    Path("mine.csv").write_text("\n".join(lines))
    Path("d.csv").write_text('label,index,decision,given\n#none,3,keep,\ndog,0,relabel,cat\n"#none",1,drop,dog\n')
    done = audit("mine.csv#a", "--columns", "size=category", "--decisions", "d.csv", "--out", "out")
    assert done.exit_code == 2  # the given label of example 3 is empty
    Path("d.csv").write_text('label,index,decision\n#none,3,keep\ndog,0,relabel\n"#none",1,drop\n')
    done = audit("mine.csv#a", "--columns", "size=category", "--decisions", "d.csv", "--out", "out")
    assert "1 kept, 1 relabelled, 1 dropped by decision; 29 examples in out/cleaned.csv" in done.stdout
    assert "next: noiseproof fit out/cleaned.csv --label a --columns size=category --out out/model\n" in done.stdout


def test_posteriors_and_decisions_of_other_data_are_refused():
    """Of as many examples of the same classes. What was written before, without what it is of, is taken."""
    words = arrays()
    assert audit(*words, "--out", "ours").exit_code == 0
    x, other = features(), np.roll(GIVEN, 1)
    np.savez("other.npz", x=x, y=other)
    train = ("train", "jal-ce", "--set", "epochs=1", "--quiet", "--labels", "ours/posterior.npz", "--data")
    assert run(*train, "mine.npz", "--out", "a").exit_code == 0
    refused = run(*train, "other.npz", "--out", "b")
    assert refused.exit_code == 2
    assert "ours/posterior.npz is of other examples than other: it was computed from data with other labels" in refused.output
    with np.load("ours/posterior.npz") as file:
        np.savez("ours/posterior.npz", **{name: file[name] for name in ("posterior", "given", "classes")})
    assert run(*train, "other.npz", "--out", "b").exit_code == 0

    key = re.search(r'"of": ?"(\w+)"', html.unescape(Path("ours/audit.html").read_text()))[1]
    same = int(np.flatnonzero(other == GIVEN)[0])
    Path("d.csv").write_text(f"index,given,decision,of\n{same},{GIVEN[same]},drop,{key}\n")
    assert audit("mine.npz", "--decisions", "d.csv", "--out", "out").exit_code == 0
    refused = audit("other.npz", "--decisions", "d.csv", "--out", "out")
    assert refused.exit_code == 2
    assert "d.csv:2: a decision on other labels than these" in refused.output
    Path("d.csv").write_text(f"index,given,decision\n{same},{GIVEN[same]},drop\n")
    assert audit("other.npz", "--decisions", "d.csv", "--out", "out").exit_code == 0
    lines = Path("ours/audit.csv").read_text().splitlines()
    Path("d.csv").write_text("\n".join([f"{lines[0]},decision", *(f"{line}," for line in lines[1:])]) + "\n")
    assert audit("mine.npz", "--decisions", "d.csv", "--out", "out").exit_code == 0
    refused = audit("other.npz", "--decisions", "d.csv", "--out", "out")
    assert "other data?" in refused.output


def test_a_posterior_of_labels_from_a_file_is_one_of_the_data_with_these_and_with_their_own():
    arrays(TRUE)
    np.save("given.npy", GIVEN)
    assert audit("mine.npz", "--labels", "given.npy", "--probabilities", "p.npy", "--out", "ours").exit_code == 0
    train = ("train", "jal-ce", "--set", "epochs=1", "--quiet", "--labels", "ours/posterior.npz", "--data", "mine.npz")
    assert run(*train, "--out", "a").exit_code == 0


@pytest.mark.parametrize("kind", ["npz", "csv", "files"])
def test_decisions_make_data_to_train_on(kind):
    arrays()
    names = ("ant", "bee", "cat")
    if kind == "files":
        Path("images").mkdir()
        for k in range(ROWS):
            Image.new("RGB", (8, 8), (k, 0, 0)).save(f"images/{k}.png")
        Path("list.txt").write_text("".join(f"images/{k}.png {names[GIVEN[k]]}\n" for k in range(ROWS)))
    place = {"npz": "mine.npz", "csv": "mine.csv", "files": "list.txt"}[kind]
    table(names=names)
    labels = "012" if kind == "npz" else names
    Path("d.csv").write_text(f"index,decision,label\n4,relabel,{labels[TRUE[4]]}\n14,drop,\n0,keep,\n")
    done = audit(place, "--decisions", "d.csv", "--out", "out")
    assert done.exit_code == 0, done.output
    to = "out/cleaned.npz" if kind == "npz" else "out/cleaned.csv"
    assert done.stdout == (
        f"1 kept, 1 relabelled, 1 dropped by decision; 89 examples in {to}\nnext: noiseproof fit {to} --out out/model\n"
    )
    before, after = open_dataset(place), open_dataset(to)
    expected = GIVEN.copy()
    expected[4] = TRUE[4]
    kept = np.arange(ROWS) != 14
    assert after.train.labels.tolist() == expected[kept].tolist()
    assert after.classes == before.classes
    if kind == "csv":
        pd.testing.assert_frame_equal(after.table.rows["train"], before.table.rows["train"][kept].reset_index(drop=True))
    elif after.train.in_memory:
        np.testing.assert_array_equal(after.train.inputs, before.train.inputs[kept])
    else:
        assert [Path(path).name for path in after.train.paths] == [f"{k}.png" for k in np.flatnonzero(kept)]
    counted = json.loads(audit(place, "--decisions", "d.csv", "--out", "out", "--json").stdout)
    assert counted == {"file": to, "keep": 1, "relabel": 1, "drop": 1, "examples": 89}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("mine.npz", "--probabilities", "p.npy", "--quick"),
            "with --probabilities nothing is trained, so --quick says nothing",
        ),
        (
            ("mine.npz", "--probabilities", "short.npy"),
            "short.npy for mine.npz: there must be one label for each row of probabilities",
        ),
        (
            ("mine.npz", "--probabilities", "logits.npy"),
            "logits.npy for mine.npz: each row of probabilities must be at least 0 and sum to 1",
        ),
        (("mine.npz", "--probabilities", "mine.txt"), "mine.txt: probabilities are read from .npy, .npz, .csv, got '.txt'"),
        (("mine.npz", "--probabilities", "none"), "error: none: no such file or folder"),
        (("mine.npz", "--labels", "none"), "error: none: no such file or folder"),
        (
            ("mine.npz", "--probabilities", "two.npz"),
            "two.npz: which array has the probabilities? FILE#NAME says it; it has a, b",
        ),
        (("mine.npz", "--probabilities", "two.npz#c"), "two.npz: which array has the probabilities?"),
        (("mine.npz", "--probabilities", "none.npy"), "error: none.npy: No such file or directory"),
        (("mine.npz", "--features", "short.npy"), "features must be numbers [90, D]"),
        (("mine.npz", "--labels", "few.npy"), "few.npy: 3 labels for 90 examples"),
        (("mine.npz", "--labels", "high.npy"), "high.npy: labels must be in [0, 2], the classes of the data, got 7"),
        (("mine.npz", "--probabilities", "nan.npy"), "nan.npy for mine.npz: probabilities must be finite numbers"),
        (
            ("mine.npz", "--probabilities", "half.npy"),
            "half.npy for mine.npz: 2 columns, and the data have 3 classes: 0, 1, 2; one for each, in this order",
        ),
        (("nan.npz",), "nan.npz, x and y: inputs must be finite; example 0 is not"),
        (("one.npz",), "one.npz: all examples are of one class, '0'; at least two are needed"),
        (("lengths.npz",), "lengths.npz, x and y: 90 inputs for 89 labels"),
        (("mine.npz", "--folds", "91"), "folds must be in [2, 90]"),
        (("mine.npz", "--device", "tpu9"), "--device must be auto, cpu, cuda or cuda:NUMBER"),
        (("mine.csv", "--label-column", "z"), "mine.csv: no column is called 'z'"),
        (("mine.npz", "--decisions", "p.txt"), "p.txt"),
        (("nowhere.npz",), "nowhere.npz"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(words, message):
    arrays()
    table()
    np.save("short.npy", np.full((5, 3), 1 / 3))
    np.save("logits.npy", np.ones((ROWS, 3)))
    np.savez("two.npz", a=np.ones(3), b=np.ones(3))
    np.save("few.npy", np.arange(3))
    np.save("high.npy", np.full(ROWS, 7))
    np.save("nan.npy", np.full((ROWS, 3), np.nan))
    np.save("half.npy", np.full((ROWS, 2), 0.5))
    np.savez("nan.npz", x=np.full((ROWS, 2), np.nan), y=GIVEN)
    np.savez("one.npz", x=features(), y=np.zeros(ROWS, int))
    np.savez("lengths.npz", x=features(), y=GIVEN[:-1])
    Path("mine.txt").touch()
    done = audit(*words)
    assert done.exit_code == 2, done.output
    assert done.stderr.startswith("error: ")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert not Path("audit/audit.csv").exists()


def test_a_class_that_is_never_predicted_and_one_with_fewer_examples_than_folds_are_said():
    arrays()
    p = np.load("p.npy")
    p[:, 2] = 0
    np.save("never.npy", p / p.sum(1, keepdims=True))
    done = audit("mine.npz", "--probabilities", "never.npy", "--quiet")
    assert done.exit_code == 0, done.output
    assert "predictions agree with only 63% of the labels" in done.stderr
    np.savez("few.npz", x=features()[:40], y=np.array([0, 1] * 18 + [2, 2, 2, 3]))
    done = audit("few.npz", "--epochs", "1", "--out", "few", "--quiet")
    assert done.exit_code == 0, done.output
    assert "classes with one example cannot be held out and learnt: nothing is known of their label: 3" in done.stderr
    assert "classes with fewer examples than the 5 folds are in fewer folds: 2" in done.stderr


def test_one_array_of_several_can_be_named():
    arrays()
    np.savez("two.npz", a=np.ones(3), p=np.load("p.npy"))
    assert audit("mine.npz", "--probabilities", "two.npz#p", "--quiet").exit_code == 0


def test_names_of_classes_and_files_cannot_command_the_terminal():
    arrays()
    Path("mine.csv").write_text(
        "\n".join(["id,a,label", *(f"r\x1b[2J{k},{k},{'xyz'[GIVEN[k]]}\x1b[31m" for k in range(ROWS))]) + "\n"
    )
    done = audit("mine.csv", "--probabilities", "p.npy")
    assert done.exit_code == 0, done.output
    assert "\x1b" not in done.output + Path("audit/audit.csv").read_text() + Path("audit/audit.html").read_text()
