"""The benchmark of options beside a loss: what it trains on by hand, its losses by their limits, its lines and its report."""

import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def options(monkeypatch):
    pytest.importorskip("sklearn")
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import options

    yield options
    for name in ("options", "zoo", "zoo_methods", "zoo_report"):
        sys.modules.pop(name, None)


@pytest.fixture
def rows():
    logits = torch.randn(6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return (2 * logits).requires_grad_(), torch.tensor([0, 1, 2, 3, 0, 1])


def test_density_power_lies_between_cross_entropy_and_the_squared_error(options, rows):
    logits, target = rows
    squared = ((logits.softmax(1) - F.one_hot(target, 4)) ** 2).sum(1).mean()
    torch.testing.assert_close(options.density_power(logits, target, 1.0), squared)
    torch.testing.assert_close(options.density_power(logits, target, 1e-6), F.cross_entropy(logits, target), atol=1e-4, rtol=0)


def test_weighted_losses_are_cross_entropy_with_weights_and_of_adjusted_logits(options, rows):
    logits, target = rows
    labels = torch.tensor([0] * 8 + [1] * 4 + [2] * 2 + [3] * 2)
    weights = torch.tensor([1 / 8, 1 / 4, 1 / 2, 1 / 2], dtype=torch.float64) ** 0.75
    expected = F.cross_entropy(logits, target, weight=weights)
    torch.testing.assert_close(options.loss_of("wce", labels, 4)(logits, target).double(), expected, rtol=1e-6, atol=0)
    expected = F.cross_entropy(logits + torch.log(torch.bincount(labels) / 16), target)
    torch.testing.assert_close(options.loss_of("lace", labels, 4)(logits, target).double(), expected, rtol=1e-6, atol=0)


def test_bi_tempered_tends_to_cross_entropy_and_has_the_gradient_of_its_values(options, rows):
    logits, target = rows
    near = options.bi_tempered(logits, target, 1 - 1e-6, 1 + 1e-6, steps=100)
    torch.testing.assert_close(near, F.cross_entropy(logits, target), atol=1e-4, rtol=0)
    assert torch.autograd.gradcheck(lambda z: options.bi_tempered(z, target, 0.5, 2.0, steps=300), logits)


def test_early_learning_regularisation_by_hand(options):
    """Of two classes: the second call's target is 0.7 * the first target + 0.3 * the second prediction."""
    labels = torch.tensor([0, 0, 1])
    batch = SimpleNamespace(labels=labels[1:2], indices=torch.tensor([1]))
    objective = options.objective_of("ce+elr:3:0.7", labels, 2)
    logits = [torch.tensor([[np.log(p / (1 - p)), 0.0]], dtype=torch.float32) for p in (0.8, 0.6)]
    objective(logits[0], batch)
    found = objective(logits[1], batch).item()
    target = 0.7 * 0.3 * np.array([0.8, 0.2]) + 0.3 * np.array([0.6, 0.4])
    assert found == pytest.approx(-np.log(0.6) + 3 * np.log(1 - target @ [0.6, 0.4]), rel=1e-5)


def test_agreement_keeps_the_examples_that_are_predicted_as_labelled_once_it_is_warm(options):
    labels = torch.tensor([0, 1, 1])
    logits = torch.tensor([[3.0, 0.0], [1.0, 0.0], [0.0, 2.0]])
    batch = SimpleNamespace(labels=labels, indices=torch.arange(3))
    objective = options.objective_of("ce+agree:2:none", labels, 2)
    assert objective(logits, batch).item() == pytest.approx(F.cross_entropy(logits, labels).item())
    objective.epoch = 2
    assert objective(logits, batch).item() == pytest.approx(F.cross_entropy(logits[[0, 2]], labels[[0, 2]]).item())
    corrected = options.objective_of("ce+agree:0", labels, 2)
    corrected.marginal = torch.tensor([0.9, 0.1])  # class 0 is predicted too often: the second example is of class 1
    assert corrected(logits, batch).item() == pytest.approx(F.cross_entropy(logits, labels).item())


@pytest.mark.slow
def test_a_line_for_each_method_once_and_the_report_compares_them(options, tmp_path, monkeypatch, capsys):
    random = np.random.default_rng(0)
    y = np.arange(200) % 2
    x = random.normal(size=(200, 3)) + 3 * y[:, None]
    given = np.where(np.arange(140) % 10 == 0, 1 - y[:140], y[:140])
    np.savez(tmp_path / "two.npz", x=x[:140], x_test=x[140:], y=given, y_clean=y[:140], y_test=y[140:])
    words = ["options.py", "--records", str(tmp_path / "lines.jsonl")]
    methods = "ce,ce+elr:3:0.7,ce+agree:5,jal-ce,ce-early,bt:0.8:1.2,gla:0.7,ce+peer:0.2"
    asked = ["--sets", str(tmp_path), "--only", "two/given", "--seeds", "1", "--methods", methods]
    for _ in range(2):
        monkeypatch.setattr(sys, "argv", [*words, *asked])
        options.main()
    lines = options.lines_of(tmp_path / "lines.jsonl")
    assert len(lines) == 8
    assert all(one["last"]["accuracy"] > 0.75 for one in lines)
    monkeypatch.setattr(sys, "argv", [*words, "--report"])
    options.main()
    assert "| ce+elr:3:0.7+ema:0.999 | 1 |" in capsys.readouterr().out
