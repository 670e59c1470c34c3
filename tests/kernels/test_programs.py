"""The program of a loss as a kernel between the two passes, by Triton's interpreter where there is no GPU."""

import pytest
import torch

pytest.importorskip("triton", minversion="3.3", reason="needs Triton 3.3")

import noiseproof
from noiseproof.core import backends
from noiseproof.kernels import BACKEND, program, small
from noiseproof.losses.fused import programs_of
from noiseproof.program import traced
from tests.helpers.kernel_cases import drawn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
WITHOUT = {"ogc", "logit-bias", "fisher-rao"}
"""Without a program, or with one of an operation that has no expression in Triton."""
NAMES = [entry.name for entry in noiseproof.list_losses() if entry.reads == "statistics"]
FAST = {"jal-ce", "js", "nfl+agce", "anl-fl", "efl+mae", "gce", "fisher-rao"}
"""Together they have every operation."""


@pytest.fixture(autouse=True)
def _on_kernels(monkeypatch):
    monkeypatch.setattr(backends, "_registered", {DEVICE: BACKEND})
    monkeypatch.delenv(backends.BACKEND_VARIABLE, raising=False)
    monkeypatch.setattr(program, "BLOCK", 16)
    monkeypatch.setattr(small, "MAX_LOGITS", -1)  # no batch is small


def errors(loss, logits, target):
    """Of the value and of the gradient, relative to float64's."""
    leaf, exact = logits.clone().requires_grad_(), logits.double().requires_grad_()
    value, expected = loss(leaf, target), loss._by_autograd(exact, target)
    up = torch.rand(value.shape, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    (ours,), (theirs,) = torch.autograd.grad(value, leaf, up), torch.autograd.grad(expected, exact, up.double())
    off, norm = (ours - theirs).norm(dim=1), theirs.norm(dim=1)
    assert not ours[norm == 0].any()
    return ((value - expected).abs() / expected.abs().clamp_min(1e-9)).max().item(), (off / norm)[norm > 0].max().item()


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in FAST else pytest.mark.slow) for n in NAMES])
def test_the_kernel_of_a_loss_agrees_with_float64(name):
    for kind, reduction, weight in (("random", "mean", None), ("right", "none", torch.rand(10) + 0.1)):
        logits, target = drawn(kind, 20, 10, torch.float32, DEVICE)
        target[3] = -100
        loss = noiseproof.create_loss(name, reduction=reduction, weight=weight).to(DEVICE)
        value, gradient = errors(loss, logits, target)
        assert any(programs_of(loss).made.values()) == (name not in WITHOUT)
        assert value <= 1e-5
        assert gradient <= 2e-5


def test_rows_that_are_shared_out_add_up(monkeypatch):
    """To two programs, each of which goes around twice."""
    logits, target = drawn("random", 60, 10, torch.float32, DEVICE)
    monkeypatch.setattr(program, "MAX_ROWS_ALONE", 8)
    monkeypatch.setattr(program, "MAX_PROGRAMS", 2)
    for reduction in ("mean", "sum"):
        loss = noiseproof.JALCE(reduction=reduction, weight=torch.rand(10)).to(DEVICE)
        assert max(errors(loss, logits, target)) <= 1e-5


def test_no_row_or_none_that_counts():
    logits, target = drawn("random", 20, 10, torch.float32, DEVICE)
    leaf = logits.requires_grad_()
    value = noiseproof.JALCE()(leaf, torch.full_like(target, -100))
    assert value.isnan()
    assert not torch.autograd.grad(value, leaf)[0].any()
    empty = logits.detach()[:0].requires_grad_()
    assert noiseproof.JALCE()(empty, target[:0]).isnan()
    assert noiseproof.JALCE(reduction="none")(empty, target[:0]).shape == (0,)
    assert torch.autograd.grad(noiseproof.JALCE(reduction="sum")(empty, target[:0]), empty)[0].shape == (0, 10)


def test_a_label_out_of_range_makes_the_loss_nan():
    logits, target = drawn("random", 20, 10, torch.float32, DEVICE)
    target[4] = 10
    for name in ("jal-ce", "anl-ce", "js"):
        assert noiseproof.create_loss(name)(logits, target).isnan()
        each = noiseproof.create_loss(name, reduction="none", weight=torch.ones(10)).to(DEVICE)(logits, target)
        assert each.isnan().nonzero().flatten().tolist() == [4]


def test_half_precision_is_that_of_the_loss():
    logits, target = drawn("random", 20, 10, torch.bfloat16, DEVICE)
    leaf = logits.requires_grad_()
    value = noiseproof.JALCE()(leaf, target)
    expected = noiseproof.JALCE()(logits.detach().float(), target)
    assert value.dtype == torch.bfloat16
    torch.testing.assert_close(value.float(), expected, rtol=2**-7, atol=0.0)  # the interpreter does not round to nearest
    assert torch.autograd.grad(value, leaf)[0].dtype == torch.bfloat16
    with torch.autocast(DEVICE):
        assert noiseproof.JALCE()(leaf, target).dtype == torch.float32


def test_the_text_of_a_kernel_is_made_of_known_expressions_alone():
    assert program.text_of(traced(lambda rows: torch.atan2(rows[0], rows[1]), 2, torch.float32)) is None
    assert program.text_of(traced(lambda rows: rows[0] * 1e-40, 2, torch.float32)) is None  # it would make Triton use float64
    assert "exp(r0)" in program.text_of(traced(lambda rows: rows[0].exp(), 2, torch.float32))


@pytest.mark.parametrize("largest", [-1, small.MAX_LOGITS], ids=["large", "small"])
def test_class_weights_may_lie_apart(largest, monkeypatch):
    """As a column of a table does, and one number for all classes, which a kernel would read as those beside it."""
    monkeypatch.setattr(small, "MAX_LOGITS", largest)
    logits, target = drawn("random", 20, 10, torch.float32, DEVICE)
    table = torch.rand(10, 3, generator=torch.Generator().manual_seed(0)).to(DEVICE) + 0.1
    for weight in (table[:, 1], table[:1, 0].expand(10)):
        for reduction in ("mean", "none"):
            loss = noiseproof.JALCE(weight=weight, reduction=reduction)
            assert not loss.weight.is_contiguous()
            assert max(errors(loss, logits, target)) <= 1e-5
