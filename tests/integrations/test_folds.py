"""Predictions of a cross-validation, in files: joined they are those of all examples, in order."""

import numpy as np
import pytest
from typer.testing import CliRunner

from noiseproof.cli import app
from noiseproof.integrations.folds import join_folds, write_fold


def predicted(examples=90, classes=3):
    """Labels, one of them wrong, and probabilities that know the right one."""
    right = np.arange(examples) % classes
    p = np.full((examples, classes), 0.1 / (classes - 1), np.float32)
    p[np.arange(examples), right] = 0.9
    given = right.copy()
    given[7] = (given[7] + 1) % classes
    return p, given


def test_joined_folds_are_what_the_audit_reads(tmp_path):
    p, given = predicted()
    order = np.random.default_rng(0).permutation(90)
    for fold in range(3):
        rows = order[fold::3]
        write_fold(tmp_path / f"fold{fold}.npz", p[rows], rows)
    files = [tmp_path / f"fold{fold}.npz" for fold in range(3)]
    np.testing.assert_array_equal(join_folds(files, tmp_path / "all.npz"), p)
    x = np.random.default_rng(1).normal(size=(90, 2)).astype(np.float32)
    np.savez(tmp_path / "data.npz", x=x, y=given)
    command = [
        "audit",
        str(tmp_path / "data.npz"),
        "--probabilities",
        str(tmp_path / "all.npz"),
        "--out",
        str(tmp_path / "audit"),
    ]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    lines = (tmp_path / "audit" / "audit.csv").read_text(encoding="utf-8").splitlines()
    header, *rows = (line.split(",") for line in lines)
    flagged = [int(row[header.index("index")]) for row in rows if row[header.index("flagged")] not in ("0", "no", "False", "")]
    assert flagged == [7]


@pytest.mark.parametrize(
    ("folds", "said"),
    [
        ([], "no fold to join"),
        ([([0, 1], 3), ([3, 4], 3)], "each of the examples 0 to 3 once, got 4 examples from 0 to 4"),
        ([([0, 1], 3), ([1, 2], 3)], "got 3 examples from 0 to 2"),
        ([([0, 1], 3), ([2, 3], 4)], "the same classes, got 3, 4 columns"),
    ],
)
def test_folds_that_do_not_fit_together_are_refused(folds, said, tmp_path):
    files = []
    for number, (rows, classes) in enumerate(folds):
        files.append(tmp_path / f"{number}.npz")
        write_fold(files[-1], np.ones((2, classes)) / classes, rows)
    with pytest.raises(ValueError, match=said):
        join_folds(files, tmp_path / "all.npz")
    assert not (tmp_path / "all.npz").exists()


def test_other_files_are_refused(tmp_path):
    np.savez(tmp_path / "other.npz", x=np.zeros(3))
    with pytest.raises(ValueError, match=r"other\.npz: it has no array 'probabilities'"):
        join_folds([tmp_path / "other.npz"], tmp_path / "all.npz")
    np.savez(tmp_path / "other.npz", probabilities=np.zeros(3), rows=np.arange(3))
    with pytest.raises(ValueError, match="do not go together"):
        join_folds([tmp_path / "other.npz"], tmp_path / "all.npz")
    with pytest.raises(ValueError, match=r"integer rows \[n\], got float64 \[2, 2\] and float64 \[2\]"):
        write_fold(tmp_path / "fold.npz", np.eye(2), [0.0, 1.0])
