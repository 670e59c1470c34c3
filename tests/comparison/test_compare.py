"""``noiseproof.compare`` as a library function."""

import errno
import json
import multiprocessing
import re
from pathlib import Path

import pytest

import noiseproof
from noiseproof.comparison import Comparison, CompetitorResult
from noiseproof.comparison.runs import _in_words
from noiseproof.train import Record

SMALL = {"epochs": 2, "model.hidden": [16]}


class Follow:
    """Keeps what a comparison tells, and may stop it."""

    def __init__(self, stops=False):
        self.begun, self.ended, self.warned, self.stops = [], [], [], stops

    def on_begin(self, description, runs):
        self.begun.append((description, runs))

    def on_warning(self, text):
        self.warned.append(text)

    def on_run_end(self, text):
        self.ended.append(text)
        if self.stops:
            raise KeyboardInterrupt


def test_the_result_has_the_table_the_intervals_and_the_groups(tmp_path):
    both = ["ce", "gce(q=0.5)"]
    found = noiseproof.compare(both, "digits", noise="symmetric:0.4", seeds=3, settings=SMALL, out=tmp_path, jobs=1)
    rows = found.table()
    assert {row["loss"] for row in rows} == set(both)
    assert [row["n"] for row in rows] == [3, 3]
    assert found.ranking.competitors[1].interval == rows[1]["interval"]
    assert set(found.groups) == set(both)
    assert found.setting["noise"] == "symmetric:0.4"
    assert found.errors == ()
    assert json.loads(found.to_json())["losses"][0]["mean"] == rows[0]["mean"]
    for text in (str(found), found.to_markdown(), found.to_latex()):
        assert "gce(q=0.5)" in text


def test_progress_hears_of_every_run_and_nothing_is_trained_twice(tmp_path):
    first, again = Follow(), Follow()
    for progress in (first, again):
        noiseproof.compare("ce,mae", "digits", seeds=[1, 2], settings=SMALL, out=tmp_path, jobs=1, progress=progress)
    ((description, runs),) = first.begun
    assert "2 losses x 2 seeds: 4 runs" in description
    assert runs == 4
    assert len(first.ended) == 4
    assert first.ended[0].startswith("ce, seed 1: ")
    assert again.begun[0][1] == 0
    assert again.ended == []


def test_an_interruption_in_several_processes_leaves_none_and_keeps_what_is_finished(tmp_path):
    progress, few = Follow(stops=True), {"out": tmp_path, "jobs": 2, "seeds": 1}
    with pytest.raises(KeyboardInterrupt):
        noiseproof.compare("ce,gce,mae,nce+rce", "digits", settings=SMALL, progress=progress, **few)
    assert not multiprocessing.active_children()
    assert "finished" in [Record.read(path.parent).status for path in Path(tmp_path).glob("*/record.json")]
    assert noiseproof.compare("ce,gce,mae,nce+rce", "digits", settings=SMALL, **few).errors == ()


def test_a_loss_of_ones_own_is_compared_in_other_processes_too(tmp_path, monkeypatch):
    code = """
import noiseproof, torch

class Halved(noiseproof.CE):
    def from_statistics(self, s):
        return 0.5 * super().from_statistics(s)

class Plain(torch.nn.Module):
    def forward(self, logits, target):
        return torch.nn.functional.cross_entropy(logits, target)
"""
    (tmp_path / "losses_of_mine.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    losses = "losses_of_mine:Halved,losses_of_mine:Plain"
    found = noiseproof.compare(losses, "digits", seeds=1, settings=SMALL, out=tmp_path / "runs", jobs=2)
    assert found.errors == ()
    assert {row["loss"] for row in found.table()} == set(losses.split(","))


def test_latex_has_a_row_for_each_loss_with_special_characters_escaped():
    results = [
        CompetitorResult("a_b(q=0.5)", "none", {1: 90.0, 2: 91.0, 3: 90.5}),
        CompetitorResult("ce", "l1 5e-05", {1: 80.0}, (2, 3)),
    ]
    text = Comparison({"data": "digits"}, results).to_latex()
    lines = [line for line in text.splitlines() if not line.startswith("%")]
    assert lines[0] == r"\begin{tabular}{llrrrrrll}"
    assert r"a\_b(q=0.5) & none & 90.50 & 0.50 & 3 & - & - & best & a \\" in lines
    assert r"ce & l1 5e-05 & 80.00 & - & 1 & - & - & 2 of 3 diverged &  \\" in lines
    assert lines[-1] == r"\end{tabular}"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"losses": "ce,gec"}, "unknown loss 'gec'; did you mean 'gce'?"),
        ({"losses": ["ce", "CE"]}, "is there twice"),
        ({"regularisation": ["l3:1"]}, "a regularisation is l1:5e-5, l2:1e-4 or none"),
        ({"settings": {"loss.q": 0.5}}, "write a loss's options with its name"),
        ({"losses": "no_such_module:Loss"}, "cannot import no_such_module"),
    ],
)
def test_what_is_wrong_is_an_error_before_anything_is_trained(tmp_path, change, says):
    arguments = {"losses": "ce", "data": "digits", "out": tmp_path / "runs", "settings": SMALL, **change}
    with pytest.raises(ValueError, match=re.escape(says)):
        noiseproof.compare(**arguments)
    assert not (tmp_path / "runs").exists()


def test_a_run_that_a_full_disk_ended_is_said_with_the_file_as_other_errors_are():
    error = OSError(errno.ENOSPC, "No space left on device", "out/weights.safetensors")
    assert _in_words(error) == ("out/weights.safetensors: No space left on device", True)
