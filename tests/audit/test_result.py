"""The files of an audit, safe to open, and the decisions that come back."""

import csv

import numpy as np
import pytest

from noiseproof.audit import Audit, audit_probabilities
from noiseproof.audit.decisions import read_decisions
from noiseproof.audit.result import AUDIT_COLUMNS
from noiseproof.io.text import cell

CLASSES = ("=cat()", "dog", "b\x1b[2J,ird", "'-fish")


def made(posterior, given, classes=CLASSES, **more):
    posterior = np.asarray(posterior, np.float32)
    transition = np.eye(len(classes))
    return Audit(np.asarray(given), posterior, transition, 0.25, (0.1, 0.4), 0.8, classes, "by hand", **more)


@pytest.fixture
def audit():
    posterior = [[0.9, 0.1, 0, 0], [0.2, 0.8, 0, 0], [0.1, 0.2, 0.4, 0.3], [0, 0, 0, 1]]
    return made(posterior, [0, 0, 1, 3], fold=np.array([0, 1, 0, 1]))


def rows_of(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_the_columns_say_what_was_found(audit, tmp_path):
    audit.save(tmp_path, paths=["a.png", "=1+1", "@x\x00y", "-2"])
    rows = rows_of(tmp_path / "audit.csv")
    assert tuple(rows[0]) == AUDIT_COLUMNS
    assert [row["index"] for row in rows] == ["0", "1", "2", "3"]
    assert [row["fold"] for row in rows] == ["0", "1", "0", "1"]
    assert [row["flagged"] for row in rows] == ["0", "1", "1", "0"]
    assert (rows[1]["p_wrong"], rows[1]["p_suggested"]) == ("0.800000", "0.800000")
    assert rows[2]["warning"] == (
        "1 of its 1 labels are flagged: look at them before you remove any or train on soft labels, which would remove them "
        "too; "
        "no label is more likely than not"
    )
    assert rows[0]["warning"] == ""  # half of the class is not most of it


def test_no_cell_is_a_formula_or_has_control_characters(audit, tmp_path):
    audit.save(tmp_path, paths=["a.png", "=1+1", "@x\x00y", "-2"])
    for name in ("audit.csv", "transition.csv"):
        with (tmp_path / name).open(encoding="utf-8", newline="") as file:
            cells = [text for row in csv.reader(file) for text in row]
        assert not [text for text in cells if text[:1] in tuple("=+-@\t\r") and text]
        assert all(text.isprintable() for text in cells)
    assert [row["path"] for row in rows_of(tmp_path / "audit.csv")] == ["a.png", "'=1+1", "'@x\\x00y", "'-2"]


def test_the_columns_of_datalab(audit):
    columns = audit.datalab_columns()
    assert list(columns) == ["is_label_issue", "label_score", "given_label", "predicted_label"]
    assert columns["is_label_issue"].tolist() == [False, True, True, False]
    np.testing.assert_allclose(columns["label_score"], [0.9, 0.2, 0.2, 1.0], atol=1e-6)
    assert columns["given_label"].tolist() == ["=cat()", "=cat()", "dog", "'-fish"]
    assert columns["predicted_label"].tolist() == ["=cat()", "dog", "b\x1b[2J,ird", "'-fish"]


@pytest.mark.filterwarnings("default")  # pandas has words for cleanlab
def test_the_columns_are_those_that_datalab_itself_has():
    pytest.importorskip("datasets")  # without it there is no Datalab
    cleanlab = pytest.importorskip("cleanlab")
    true, names = np.arange(60) % 3, ("ant", "bee", "cat")
    p = np.full((60, 3), 0.1)
    p[np.arange(60), true] = 0.8
    given = np.where(np.arange(60) == 7, (true + 1) % 3, true)
    lab = cleanlab.Datalab({"y": [names[k] for k in given]}, task="classification", label_name="y", verbosity=0)
    lab.find_issues(pred_probs=p, issue_types={"label": {}})
    theirs, ours = lab.get_issues("label"), audit_probabilities(p, given, classes=names).datalab_columns()
    assert list(ours) == list(theirs.columns)
    for name in ("is_label_issue", "given_label", "predicted_label"):
        assert ours[name].tolist() == theirs[name].tolist()
    assert ours["label_score"].argmin() == theirs["label_score"].argmin() == 7


def test_confusions_are_counted_by_the_posterior():
    rows = [[0.3, 0.7, 0], [0.1, 0.9, 0], [0.0, 0.4, 0.6], [0.0, 0.0, 1.0]]
    audit = made(rows, [0, 0, 1, 2], ("a", "b", "c"))  # what is labelled as it is is no confusion
    assert [(c.true, c.given, round(c.expected, 3), c.flagged) for c in audit.confusions] == [(1, 0, 1.6, 2), (2, 1, 0.6, 1)]


def test_most_of_a_class_is_more_than_half(audit):
    assert [each.mostly_flagged for each in audit.per_class] == [False, True, False, False]


def decided(path, *lines):
    path.write_text("\n".join(lines), encoding="utf-8")
    return read_decisions(path, np.array([0, 0, 1, 3]), CLASSES)


def test_decisions_come_back(tmp_path):
    lines = (
        "index,path,given,decision,label",
        "1,x,'=cat(),relabel,'=cat()",
        "2,y,dog,relabel,''-fish",
        "3,z,,,",
        "0,,=cat(),drop,",
    )
    found = decided(tmp_path / "d.csv", *lines)
    assert found.labels.tolist() == [0, 0, 3, 3]
    assert found.kept.tolist() == [False, True, True, True]
    assert found.counts == {"keep": 0, "relabel": 2, "drop": 1}


def test_the_audits_own_file_with_a_column_more_is_decisions(audit, tmp_path):
    audit.save(tmp_path)
    rows = rows_of(tmp_path / "audit.csv")
    with (tmp_path / "d.csv").open("w", encoding="utf-8-sig", newline="") as file:  # as a spreadsheet may save it
        writer = csv.DictWriter(file, [*AUDIT_COLUMNS, "decision"], delimiter=";")
        writer.writeheader()
        for row, decision in zip(rows, ["keep", "Relabel", "", ""], strict=True):
            writer.writerow({**row, "decision": decision})
    found = read_decisions(tmp_path / "d.csv", audit.given, CLASSES)
    assert found.labels.tolist() == [0, 1, 1, 3]
    assert found.counts == {"keep": 1, "relabel": 1, "drop": 0}


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (("index,label", "0,dog"), r"d\.csv: no column 'decision'; decisions have a header"),
        ((), r"no column 'index'"),
        (("index,decision,label", "4,keep,"), r"d\.csv:2: the index must be a number in \[0, 3\], got '4'"),
        (("index,decision,label", "-1,keep,"), "the index must be"),
        (("index,decision,label", "0,delete,"), "the decision must be keep, relabel, drop or nothing, got 'delete'"),
        (("index,decision,label", "0,keep,", "0,drop,"), r"d\.csv:3: a second decision on example 0"),
        (("index,decision,label", "0,relabel,cow"), "no class is called 'cow'"),
        (("index,decision", "0,relabel"), "no column 'label'"),
        (("index,given,decision", "0,dog,drop"), r"example 0 was given 'dog' when it was decided, and now is '=cat\(\)'"),
    ],
)
def test_decisions_that_do_not_fit_are_refused(tmp_path, lines, message):
    with pytest.raises(ValueError, match=message):
        decided(tmp_path / "d.csv", *lines)


def test_no_two_names_become_one_cell():
    names = ["=a", "'=a", "''=a", "a"]
    assert len({cell(name) for name in names}) == len(names)
