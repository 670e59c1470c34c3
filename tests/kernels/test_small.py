"""A small batch in one kernel, by Triton's interpreter where there is no GPU."""

import pytest
import torch

pytest.importorskip("triton", minversion="3.3", reason="needs Triton 3.3")

import noiseproof
from noiseproof.core import backends
from noiseproof.kernels import BACKEND, small
from noiseproof.losses import fused
from noiseproof.losses.fused import programs_of
from tests.helpers.kernel_cases import KINDS, drawn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
NAMES = [entry.name for entry in noiseproof.list_losses() if entry.reads == "statistics"]
WITHOUT = {"ogc", "logit-bias", "fisher-rao"}
"""Without a program, or with one of an operation that has no expression in Triton."""
FAST = {"jal-ce", "js", "nfl+agce", "anl-fl"}
"""Together they have every sum."""


@pytest.fixture(autouse=True)
def _on_kernels(monkeypatch):
    monkeypatch.setattr(backends, "_registered", {DEVICE: BACKEND})
    monkeypatch.delenv(backends.BACKEND_VARIABLE, raising=False)


@pytest.fixture
def small_tiles(monkeypatch):
    """Of 16 rows of 10 classes; steps that were found before, which formulas keep, are not used."""
    monkeypatch.setattr(small, "TILE", 256)
    monkeypatch.setattr(small, "MAX_TURNS", 2)
    monkeypatch.setattr(fused, "_known", {})


def steps_of(loss):
    """How many steps were found for the batches that a loss has seen."""
    return sum(
        len(formula.kernels.get("small steps", {})) for formula in programs_of(loss).made.values() if formula is not None
    )


def errors(loss, logits, target):
    """Of the value and of the worst row's gradient, relative to float64's; then those of autograd in float32."""
    leaf, exact, plain = (logits.detach().clone().requires_grad_() for _ in range(3))
    exact, plain = exact.detach().double().requires_grad_(), plain.detach().float().requires_grad_()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(backends.BACKEND_VARIABLE, "reference")
        values = [loss._by_autograd(exact, target), loss._by_autograd(plain, target)]
    values.insert(0, loss(leaf, target))
    up = torch.rand(values[0].shape, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    gradients = [
        torch.autograd.grad(value, z, up.to(value.dtype))[0].double()
        for value, z in zip(values, (leaf, exact, plain), strict=True)
    ]
    norm = gradients[1].norm(dim=1)
    assert gradients[0].shape == gradients[1].shape
    assert not gradients[0][norm == 0].any()
    found = []
    for value, gradient in ((values[0], gradients[0]), (values[2], gradients[2])):
        off = (value.double() - values[1]).abs() / values[1].abs().clamp_min(1e-9)
        found += [off.max().item(), ((gradient - gradients[1]).norm(dim=1) / norm)[norm > 0].max().item()]
    return found


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in FAST else pytest.mark.slow) for n in NAMES])
def test_a_small_batch_agrees_with_float64(name, small_tiles):
    """One program that goes around twice, and three; with ignored rows and weights."""
    for rows, reduction in ((20, "mean"), (40, "sum"), (40, "none")):
        logits, target = drawn("random", rows, 10, torch.float32, DEVICE)
        target[3] = -100
        loss = noiseproof.create_loss(name, reduction=reduction, weight=torch.rand(10) + 0.1).to(DEVICE)
        value, gradient, plain_value, _ = errors(loss, logits, target)
        assert bool(steps_of(loss)) == (name not in WITHOUT)
        assert value <= max(1e-5, 3 * plain_value)  # negative-ls is a difference, and may be near 0
        assert gradient <= 2e-5


@pytest.mark.parametrize(
    ("name", "classes"), [("jal-ce", 10), ("jal-fl", 2), pytest.param("jal-fl", 64, marks=pytest.mark.slow), ("jal-ce", 100)]
)
def test_the_worst_row_of_a_small_batch_is_right_at_every_confidence(name, classes):
    for kind in KINDS:
        if (classes, kind) == (2, "masked"):
            continue
        logits, target = drawn(kind, 6, classes, torch.float32, DEVICE)
        loss = noiseproof.create_loss(name, reduction="none").to(DEVICE)
        value, gradient, plain_value, plain_gradient = errors(loss, logits, target)
        assert value <= max(1e-5, plain_value + 1e-6), kind
        assert gradient <= max(1e-5, plain_gradient + 1e-6), kind


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_rounded_once(dtype):
    logits, target = drawn("wrong", 6, 10, dtype, DEVICE)
    loss = noiseproof.create_loss("jal-fl", reduction="none").to(DEVICE)
    leaf = logits.clone().requires_grad_()
    exact = logits.double().requires_grad_()
    (theirs,) = torch.autograd.grad(loss._by_autograd(exact, target).sum(), exact)
    (ours,) = torch.autograd.grad(loss(leaf, target), leaf, torch.ones(6, dtype=dtype, device=DEVICE))
    assert ours.dtype == dtype
    assert ((ours - theirs).norm(dim=1) <= (1e-5 + torch.finfo(dtype).eps) * theirs.norm(dim=1)).all()


def test_a_step_is_found_once_for_a_shape_and_keeps_nothing_without_a_gradient():
    loss = noiseproof.GCE(q=0.61).to(DEVICE)
    logits, target = drawn("random", 20, 10, torch.float32, DEVICE)
    leaf = logits.clone().requires_grad_()
    for _ in range(3):
        loss(leaf, target).backward()
        loss(logits, target)
    assert steps_of(loss) == 2
    (formula,) = programs_of(loss).made.values()
    kept = [step.length for step in formula.kernels["small steps"].values()]
    assert kept == [20 * 10 + 1, 0]


def test_steps_are_not_kept_without_end(monkeypatch):
    monkeypatch.setattr(small, "MAX_STEPS_KEPT", 3)
    loss = noiseproof.GCE(q=0.62).to(DEVICE)
    for rows in range(1, 9):
        loss(*drawn("random", rows, 10, torch.float32, DEVICE))
        assert steps_of(loss) <= 3


def test_only_a_small_batch_of_few_classes_whose_rows_have_no_gaps_is_one_kernel(monkeypatch):
    logits, target = drawn("random", 8, 10, torch.float32, DEVICE)
    for other in (drawn("random", 8, 129, torch.float32, DEVICE)[0], logits.t().contiguous().t()):
        loss = noiseproof.GCE(q=0.63).to(DEVICE)
        torch.testing.assert_close(loss(other, target).double(), loss(other.double(), target), rtol=1e-5, atol=0.0)
        assert not steps_of(loss)
    monkeypatch.setattr(small, "MAX_LOGITS", 79)
    loss = noiseproof.GCE(q=0.63).to(DEVICE)
    loss(logits, target)
    assert not steps_of(loss)


def test_a_small_step_can_be_differentiated_again_and_again():
    logits, target = drawn("random", 8, 7, torch.float32, DEVICE)
    loss, leaf = noiseproof.JALCE().to(DEVICE), logits.requires_grad_()
    up = torch.tensor(0.5, device=DEVICE)
    value = loss(leaf, target)
    first, second = (torch.autograd.grad(value, leaf, up, retain_graph=True)[0] for _ in range(2))
    assert torch.equal(first, second)
    (graph,) = torch.autograd.grad(value, leaf, up, create_graph=True)
    torch.testing.assert_close(graph, first, rtol=1e-5, atol=1e-7)
    (theirs,) = torch.autograd.grad(0.5 * loss._by_autograd(leaf, target), leaf, create_graph=True)
    curvature, expected = (torch.autograd.grad(gradient.square().sum(), leaf)[0] for gradient in (graph, theirs))
    torch.testing.assert_close(curvature, expected)


def test_the_gradient_of_unreduced_rows_may_be_one_number_for_all():
    """Which sum() hands on, as a tensor without an extent of its own."""
    logits, target = drawn("random", 8, 7, torch.float32, DEVICE)
    leaf = logits.requires_grad_()
    (each,) = torch.autograd.grad(noiseproof.JALCE(reduction="none").to(DEVICE)(leaf, target).sum(), leaf)
    (whole,) = torch.autograd.grad(noiseproof.JALCE(reduction="sum").to(DEVICE)(leaf, target), leaf)
    assert torch.equal(each, whole)


def test_labels_of_a_small_batch_out_of_range_masked_or_all_ignored():
    logits, target = drawn("random", 20, 10, torch.float32, DEVICE)
    target[4] = 10
    each = noiseproof.JALCE(reduction="none", weight=torch.ones(10)).to(DEVICE)
    assert each(logits, target).isnan().nonzero().flatten().tolist() == [4]
    logits[5, target[5]] = -torch.inf
    leaf = logits.requires_grad_()
    (gradient,) = torch.autograd.grad(each(leaf, target).sum(), leaf)
    assert gradient.isnan().any(1).nonzero().flatten().tolist() == [4]
    assert not gradient[5].any()
    value = noiseproof.JALCE().to(DEVICE)(leaf, torch.full_like(target, -100))
    assert value.isnan()
    assert not torch.autograd.grad(value, leaf)[0].any()
    empty = logits.detach()[:0].requires_grad_()
    assert noiseproof.JALCE().to(DEVICE)(empty, target[:0]).isnan()
    assert noiseproof.JALCE(reduction="none").to(DEVICE)(empty, target[:0]).shape == (0,)
    assert torch.autograd.grad(noiseproof.JALCE(reduction="sum").to(DEVICE)(empty, target[:0]), empty)[0].shape == (0, 10)
