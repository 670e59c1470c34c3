"""Long rows that a multiprocessor holds, against float64 and against the two passes.

The interpreter has no shared memory: there :mod:`single_pass_plain` stands in, which calls the same functions for all but
the holding. On a GPU it is the real one.
"""

import importlib

import pytest
import torch

pytest.importorskip("triton", minversion="3.3", reason="needs Triton 3.3")

import noiseproof
from noiseproof.core import backends
from noiseproof.kernels import BACKEND, passes, single_pass
from tests.helpers import single_pass_plain
from tests.helpers.cases import tied_rows
from tests.helpers.kernel_cases import KINDS, drawn

FEW = 520
NAMES = ("ce", "gce", "jal-ce", "anl-ce", "js")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
SHAPES = [(torch.bfloat16, 128256), (torch.bfloat16, 50264), (torch.float16, 32768), (torch.float32, 50264)]


@pytest.fixture
def plainly(monkeypatch):
    """Rows of a few hundred classes are held."""
    sizes = {"WARPS": 1, "ACROSS": 4, "DEPTH": 1, "HELD": 4, "TAIL": 1, "LAG": 1, "STEPS": 8, "num_warps": 1}
    monkeypatch.setattr(passes, "TILE", 128)
    for name in ("SHORT_ROWS", "LONG_ROWS", "BACKWARD_ROWS"):
        monkeypatch.setattr(passes, name, passes.StreamShape(1, 2, 2))
    monkeypatch.setattr(single_pass, "single_pass_rows", single_pass_plain.single_pass_rows)
    monkeypatch.setattr(single_pass, "_placement", lambda logits, unit: (len(logits), sizes))
    monkeypatch.setattr(backends, "_registered", {"cpu": BACKEND})
    monkeypatch.delenv(backends.BACKEND_VARIABLE, raising=False)


@pytest.fixture
def launched(monkeypatch):
    """The names of the kernels that go over long rows, as they are launched."""
    names = []
    for module in (single_pass, passes):

        def named(kernel, *args, launch=module.launch, **options):
            names.append(kernel.__name__)
            launch(kernel, *args, **options)

        monkeypatch.setattr(module, "launch", named)
    return names


def check_gradients(one, two):
    """Two that were rounded to their dtype, one of them perhaps before it was doubled; the smallest numbers are absolute."""
    facts = torch.finfo(one.dtype)
    close = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1e-2}[one.dtype]
    lost = 2.0 * facts.smallest_normal * facts.eps * one.shape[1] ** 0.5
    assert ((one.float() - two.float()).norm(dim=1) <= close * two.float().norm(dim=1) + lost).all()


without_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="is for the interpreter")
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


@without_gpu
@pytest.mark.parametrize(
    ("kinds", "name"),
    [(["ties", "wrong"], "jal-ce"), (["right"], "anl-ce"), *(pytest.param(KINDS, n, marks=pytest.mark.slow) for n in NAMES)],
)
def test_rows_of_every_kind_as_if_held_agree_with_float64(kinds, name, plainly):
    for kind in kinds:
        logits, target = drawn(kind, 3, FEW, torch.float32, "cpu")
        logits = logits.contiguous()
        exact, leaf = logits.double().requires_grad_(), logits.clone().requires_grad_()
        expected = noiseproof.create_loss(name, reduction="sum")(exact, target)
        expected.backward()
        value = noiseproof.GradientInForward(noiseproof.create_loss(name, reduction="sum"))(leaf, target)
        value.backward()
        torch.testing.assert_close(value.double(), expected.detach(), rtol=1e-5, atol=0.0)
        far = (leaf.grad - exact.grad).norm(dim=1)
        assert (far <= 1e-5 * exact.grad.norm(dim=1)).all(), (kind, far)


@without_gpu
@pytest.mark.parametrize("name", ["jal-ce", "anl-ce", *(pytest.param(n, marks=pytest.mark.slow) for n in ("ce", "gce", "js"))])
@pytest.mark.parametrize("in_place", [pytest.param(False, marks=pytest.mark.slow), True])
def test_the_gradient_of_rows_as_if_held_agrees_with_float64(name, in_place, plainly):
    """Weighted, with a row that is ignored, one that is sure of another class, one masked, and one nearly tied at the top."""
    weight = torch.rand(FEW, generator=torch.Generator().manual_seed(1)) + 0.5
    logits, target = drawn("random", 5, FEW, torch.float32, "cpu")
    target[1] = -100
    logits[2, (target[2] + 300) % FEW] = 40.0
    logits[3, : FEW // 2] = -torch.inf
    logits[3, target[3]] = 1.0
    logits[4, 40:90] = logits[4].max() + 5.0 + torch.linspace(0.0, 1e-3, 50)
    reduction = "sum" if in_place else "mean"
    exact = logits.double().requires_grad_()
    expected = noiseproof.create_loss(name, reduction=reduction, weight=weight.double())(exact, target)
    (2.0 * expected).backward()
    leaf = logits.clone().requires_grad_()
    given = leaf * 1.0
    value = noiseproof.GradientInForward(noiseproof.create_loss(name, reduction=reduction, weight=weight), in_place=in_place)(
        given, target
    )
    (2.0 * value).backward()
    torch.testing.assert_close(value.double(), expected.detach(), rtol=1e-5, atol=0.0)
    assert ((leaf.grad - exact.grad).norm(dim=1) <= 1e-5 * exact.grad.norm(dim=1)).all()
    assert not leaf.grad[1].any()
    assert torch.equal(given.detach(), logits) != in_place


@without_gpu
@pytest.mark.parametrize("q", [0.5, 1.5])
def test_where_classes_tie_the_gradient_of_rows_as_if_held_is_within_1e5(q, plainly):
    logits, loss = tied_rows(FEW), noiseproof.ANorm(q=q, reduction="sum")
    target = torch.zeros(len(logits), dtype=torch.int64)
    exact, leaf = logits.double().requires_grad_(), logits.clone().requires_grad_()
    loss(exact, target).backward()
    noiseproof.GradientInForward(loss)(leaf, target).backward()
    counts = exact.grad.norm(dim=1) > 1e-30
    assert ((leaf.grad - exact.grad).norm(dim=1) <= 1e-5 * exact.grad.norm(dim=1))[counts].all()


@without_gpu
def test_a_nan_among_the_logits_makes_its_row_nan_as_if_held(plainly, maximum_of_a_gpu):
    logits, target = drawn("wrong", 3, FEW, torch.float32, "cpu")
    for name, aside in (("ce", -1), ("mae", -1), ("anl-ce", 0)):
        leaf = logits.index_put((torch.tensor(1), target[1] + aside), torch.tensor(torch.nan)).requires_grad_()
        value = noiseproof.GradientInForward(noiseproof.create_loss(name))(leaf, target)
        value.backward()
        assert value.isnan()
        assert leaf.grad.isnan().any(1).tolist() == [False, True, False]


@without_gpu
@pytest.mark.parametrize("name", ["jal-ce", "anl-ce"])
def test_a_row_at_the_lowest_number_is_one_of_equal_classes_as_if_held(name, plainly):
    logits, target = drawn("random", 3, FEW, torch.float32, "cpu")
    logits[:2], target[0] = torch.finfo(torch.float32).min, -100
    exact, leaf = logits.double().requires_grad_(), logits.requires_grad_()
    expected = noiseproof.create_loss(name)(exact, target)
    expected.backward()
    value = noiseproof.GradientInForward(noiseproof.create_loss(name))(leaf, target)
    value.backward()
    torch.testing.assert_close(value.double(), expected.detach(), rtol=1e-5, atol=0.0)
    assert ((leaf.grad - exact.grad).norm(dim=1) <= 1e-5 * exact.grad.norm(dim=1)).all()
    assert not leaf.grad[0].any()


@without_gpu
@pytest.mark.parametrize("weight", [None, torch.ones(FEW), torch.zeros(FEW)], ids=["none", "ones", "zeros"])
def test_a_label_out_of_range_makes_the_gradient_of_its_row_nan_as_if_held(weight, plainly):
    logits, target = drawn("random", 3, FEW, torch.float32, "cpu")
    leaf, target[1] = logits.requires_grad_(), FEW
    value = noiseproof.GradientInForward(noiseproof.JALCE(reduction="sum", weight=weight))(leaf, target)
    value.backward()
    assert value.isnan()
    assert leaf.grad.isnan().any(1).tolist() == [False, True, False]


def test_no_row_is_held_by_a_triton_that_was_not_looked_at(monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr("noiseproof.kernels.launch.IS_TESTED_TRITON", False)
        importlib.reload(single_pass)
        assert single_pass.single_pass_rows is None
        assert single_pass._placement(torch.zeros(2, 65536), 8) is None
    importlib.reload(single_pass)


@needs_gpu
@pytest.mark.parametrize(("dtype", "classes"), SHAPES)
@pytest.mark.parametrize("name", NAMES)
def test_single_pass_rows_of_every_kind_agree_with_the_two_passes(name, dtype, classes, launched):
    """More rows than there are multiprocessors, so that one follows another."""
    criterion = noiseproof.create_loss(name, reduction="sum").to("cuda")
    for kind in KINDS:
        logits, target = drawn(kind, 300, classes, dtype, "cuda")
        two, one = logits.contiguous().clone().requires_grad_(), logits.contiguous().clone().requires_grad_()
        expected, value = criterion(two, target), noiseproof.GradientInForward(criterion)(one, target)
        expected.backward()
        value.backward()
        torch.testing.assert_close(value, expected, rtol=1e-5, atol=0.0)
        check_gradients(one.grad, two.grad)
    assert "single_pass_rows" in launched


@needs_gpu
@pytest.mark.parametrize(("dtype", "classes"), SHAPES)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("in_place", [False, True])
def test_the_gradient_of_single_pass_rows_is_that_of_the_two_passes(name, dtype, classes, in_place, launched):
    """Weighted, with rows that are ignored, sure of the label, sure of another class, masked, and nearly tied at the top."""
    logits, target = drawn("random", 400, classes, dtype, "cuda")
    target[3::7] = -100
    rows = torch.arange(400, device="cuda")
    logits[1::11, 17] = 40.0
    logits[rows[2::11], target[2::11].clamp_min(0)] = 40.0
    logits[4::13, : classes // 2] = -torch.inf
    logits[5::13, 100:140] = 20.0
    weight = torch.rand(classes, device="cuda", generator=torch.Generator("cuda").manual_seed(1)) + 0.5
    for reduction in ("mean", "sum"):
        criterion = noiseproof.create_loss(name, reduction=reduction, weight=weight).to("cuda")
        two = logits.clone().requires_grad_()
        expected = criterion(two, target)
        (2.0 * expected).backward()
        one = logits.clone().requires_grad_()
        given = one * 1.0
        value = noiseproof.GradientInForward(criterion, in_place=in_place)(given, target)
        (2.0 * value).backward()
        torch.testing.assert_close(value, expected, rtol=1e-5, atol=0.0)
        check_gradients(one.grad, two.grad)
        assert not one.grad[3::7].any()
    assert "single_pass_rows" in launched


@needs_gpu
def test_the_gradient_of_single_pass_rows_agrees_with_float64():
    logits, target = drawn("random", 140, 50264, torch.float32, "cuda")
    logits[7, 11] = 30.0
    for name in ("jal-ce", "anl-ce", "gce"):
        exact = logits.double().requires_grad_()
        noiseproof.create_loss(name).to("cuda")(exact, target).backward()
        leaf = logits.clone().requires_grad_()
        noiseproof.GradientInForward(noiseproof.create_loss(name).to("cuda"))(leaf, target).backward()
        assert ((leaf.grad - exact.grad).norm(dim=1) <= 1e-5 * exact.grad.norm(dim=1)).all(), name


@needs_gpu
def test_a_label_out_of_range_spoils_the_loss_and_reads_nothing():
    logits, target = drawn("random", 5, 50264, torch.bfloat16, "cuda")
    target[2] = 50264
    criterion = noiseproof.GradientInForward(noiseproof.JALCE().to("cuda"))
    assert criterion(logits.requires_grad_(), target).isnan()
    (grad,) = torch.autograd.grad(criterion(logits, torch.full_like(target, -100)), logits)
    assert not grad.any()


@needs_gpu
def test_a_held_row_at_the_lowest_number_is_one_of_equal_classes():
    logits, target = drawn("random", 5, 128256, torch.bfloat16, "cuda")
    logits[:2], target[0] = torch.finfo(torch.bfloat16).min, -100
    criterion, leaf = noiseproof.JALCE().to("cuda"), logits.requires_grad_()
    value = noiseproof.GradientInForward(criterion)(leaf, target)
    torch.testing.assert_close(value, criterion(logits.detach(), target), rtol=torch.finfo(torch.bfloat16).eps, atol=0.0)
    (gradient,) = torch.autograd.grad(value, leaf)
    assert gradient.isfinite().all()
    assert not gradient[0].any()
    assert gradient[1].any()


@needs_gpu
def test_single_pass_rows_are_captured_in_a_graph():
    logits, target = drawn("random", 300, 128256, torch.bfloat16, "cuda")
    criterion = noiseproof.GradientInForward(noiseproof.ANLCE().to("cuda"))
    leaf = logits.clone().requires_grad_()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        criterion(leaf, target)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        value = criterion(leaf, target)
    for seed in range(3):
        with torch.no_grad():
            leaf.copy_(drawn("wrong", 300, 128256, torch.bfloat16, "cuda", seed)[0])
        graph.replay()
        torch.testing.assert_close(value.detach(), noiseproof.ANLCE().to("cuda")(leaf.detach(), target), rtol=1e-5, atol=0.0)


@needs_gpu
def test_focal_losses_and_empty_batches_take_two_passes(launched):
    logits, target = drawn("random", 4, 50264, torch.bfloat16, "cuda")
    assert noiseproof.GradientInForward(noiseproof.JALFL().to("cuda"))(logits.requires_grad_(), target).isfinite()
    noiseproof.GradientInForward(noiseproof.JALCE(reduction="sum").to("cuda"))(logits[:0].detach().requires_grad_(), target[:0])
    assert "single_pass_rows" not in launched


@needs_gpu
@pytest.mark.parametrize(
    ("classes", "stride", "offset"),
    [(50257, 50257, 0), (50264, 50271, 0), (50264, 50264, 1), (4096, 4096, 0), (200000, 200000, 0)],
)
def test_rows_that_cannot_be_held_take_two_passes(classes, stride, offset, launched):
    """With an odd number of classes, at an odd distance, at an odd address, short, and too long."""
    room = torch.randn(4 * stride + offset, device="cuda").to(torch.bfloat16)
    logits = room[offset:].as_strided((4, classes), (stride, 1), offset)
    target = torch.arange(4, device="cuda")
    value = noiseproof.GradientInForward(noiseproof.ANLCE().to("cuda"))(logits.requires_grad_(), target)
    assert value.isfinite()
    assert "single_pass_rows" not in launched
