"""The catalogue as plain data: current, without torch, and renewed where a file of losses is added."""

import subprocess
import sys

import pytest

import noiseproof
from noiseproof.losses import facts

OWN = '''
import torch
import noiseproof
from noiseproof.statistics import Statistic


class Own(noiseproof.RobustLoss):
    """A loss of one's own."""

    needs = (Statistic.NLL,)

    def from_statistics(self, s):
        return 2 * s.nll


class Plain(torch.nn.Module):
    """Any module."""

    def __init__(self, scale=1.0):
        super().__init__()
        self.scale = scale

    def forward(self, logits, target):
        return self.scale * torch.nn.functional.cross_entropy(logits, target)
'''


@pytest.fixture
def own_module(tmp_path, monkeypatch):
    (tmp_path / "own_losses.py").write_text(OWN, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    yield "own_losses"
    sys.modules.pop("own_losses", None)


def test_the_stored_facts_are_those_of_the_classes():
    assert facts.list_facts() == facts.collect_facts()
    assert [each.name for each in facts.list_facts()] == [entry.name for entry in noiseproof.list_losses()]


def test_the_facts_are_read_without_torch():
    code = "import sys; sys.modules['torch'] = None; from noiseproof.losses import facts; print(facts.find_facts('GCE').title)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "Generalized cross entropy\n", done.stderr


def test_without_its_file_the_facts_are_collected_from_the_classes(monkeypatch, tmp_path):
    monkeypatch.setattr(facts, "CATALOGUE", tmp_path / "catalogue.json")
    facts.list_facts.cache_clear()
    try:
        assert facts.find_facts("JALCE").name == "jal-ce"
    finally:
        facts.list_facts.cache_clear()


def test_a_loss_of_ones_own_is_named_by_its_module(own_module):
    import torch

    logits, target = torch.randn(5, 3), torch.tensor([0, 1, 2, 0, 1])
    expected = torch.nn.functional.cross_entropy(logits, target)
    loss = noiseproof.create_loss(f"{own_module}:Own", reduction="sum")
    torch.testing.assert_close(loss(logits, target), 10 * expected)
    plain = noiseproof.create_loss(f"{own_module}:Plain", scale=3.0)
    torch.testing.assert_close(plain(logits, target), 3 * expected)
    assert noiseproof.find_loss(f"{own_module}:Plain").defaults == {"scale": 1.0}
    assert plain.reduction == "mean"
    entry = noiseproof.find_loss(f"{own_module}:Own")
    assert (entry.name, entry.title, entry.reads) == (f"{own_module}:Own", "A loss of one's own", "statistics")
    assert facts.find_facts(f"{own_module}:Own").title == "A loss of one's own"


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("nowhere:Loss", "loss 'nowhere:Loss': cannot import nowhere: .*; it must be on the Python path"),
        ("own_losses:Other", "loss 'own_losses:Other': own_losses has no 'Other'"),
        ("own_losses:OWN", "loss 'own_losses:OWN': own_losses has no 'OWN'"),
        (":Loss", "a loss of your own is named package.module:Class, got ':Loss'"),
        (
            "own_losses:torch",
            "must be a subclass of noiseproof.RobustLoss or torch.nn.Module, got module",
        ),
    ],
)
def test_what_is_no_loss_is_refused_in_words(name, error, own_module):
    with pytest.raises((ValueError, TypeError), match=error):
        noiseproof.create_loss(name)
