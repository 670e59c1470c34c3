"""Random calls of the catalogue's losses, eager and compiled, against formulas that were written without them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.helpers import loss_fuzz, tensor_formulas
from tests.helpers.cases import ENTRIES, build

HELPER = Path(__file__).resolve().parents[1] / "helpers" / "loss_fuzz.py"


def test_every_loss_has_a_formula():
    assert set(ENTRIES) == set(loss_fuzz.LOSSES)


@pytest.mark.parametrize("number", range(0, 200, 25))
def test_random_calls_are_right(number):
    faults = [fault for one in range(number, number + 25) for fault in loss_fuzz.one(one)[0]]
    assert faults == []


def test_a_wrong_formula_is_noticed(monkeypatch):
    """One of logits, and one of features and what is learned."""
    monkeypatch.setitem(tensor_formulas.SINGLE, "mae", lambda r, scale: 1.001 * scale * (1 - r.at(r.p)))
    monkeypatch.setattr(loss_fuzz, "LOSSES", ["mae"])
    assert sum(bool(loss_fuzz.one(number)[0]) for number in range(40)) > 10
    right = tensor_formulas.student
    for wrong in ({"lam": 0.011}, {"margin": 0.12}):
        monkeypatch.setattr(
            tensor_formulas, "student", lambda *given, wrong=wrong, **named: right(*given, **{**named, **wrong})
        )
        monkeypatch.setattr(loss_fuzz, "LOSSES", ["lt"])
        assert sum(bool(loss_fuzz.one(number)[0]) for number in range(40)) > 10
    z = torch.zeros(1, 4, dtype=torch.float64)
    assert build("ce", 4)(z, torch.tensor([0])) == tensor_formulas.rows("ce", z, torch.tensor([0]))


@pytest.mark.slow
def test_thousands_of_random_calls_are_right():
    done = subprocess.run([sys.executable, str(HELPER), "5000", "1", "200"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    *lines, total = map(json.loads, done.stdout.splitlines())
    assert [line for line in lines if "fault" in line] == []
    assert total["calls"] >= 5000
    assert total["compiled"] >= 100
