"""The Triton kernels under the losses against float64: on a GPU, or else on the CPU by Triton's interpreter."""

import ast
import math
import os
import subprocess
import sys

import pytest
import torch

pytest.importorskip("triton", minversion="3.3", reason="needs Triton 3.3")

import noiseproof
from noiseproof.core import backends, reference
from noiseproof.core.row_sums import RowSum
from noiseproof.kernels import BACKEND, passes
from noiseproof.kernels.launch import IS_TESTED_TRITON
from tests.helpers.cases import tied_rows
from tests.helpers.kernel_cases import KINDS, REQUESTS, both_passes, drawn, errors

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
HALVES = (torch.bfloat16, torch.float16)
# The interpreter computes with NumPy, which warns of what happens in parts of a tile that are not used.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


@pytest.fixture
def short_tiles(monkeypatch):
    """Rows of a few hundred classes are long, so that the interpreter has less to do."""
    monkeypatch.setattr(passes, "TILE", 128)
    for name in ("SHORT_ROWS", "LONG_ROWS", "BACKWARD_ROWS"):
        monkeypatch.setattr(passes, name, passes.StreamShape(1, 2, 2))


def check(kinds, needs, classes, dtypes=(torch.float32,), count=3, **options):
    for kind in kinds:
        for dtype in dtypes:
            found = errors(*drawn(kind, count, classes, dtype, DEVICE), needs, **options)
            assert found.passes(dtype), (kind, dtype, found)


@pytest.mark.parametrize("classes", [2, 10, 65])  # up to 64 the gradient is formed from e - 1, and of two it is one number
@pytest.mark.parametrize("name", ["jal-ce", "all"])
def test_rows_in_a_tile_agree_with_float64(name, classes):
    check([kind for kind in KINDS if (classes, kind) != (2, "masked")], REQUESTS[name], classes)


def test_rows_one_after_the_other_agree_with_float64():
    """Three programs, the last with a part of its rows; nine parts of eight classes, where there is room for sixteen."""
    powers = [RowSum("power", 0.7), RowSum("margin"), RowSum("nll"), RowSum("power", 2.0)]
    check(["wrong", "masked"], powers, 72, count=9)
    logits, target = drawn("shifted", 8, 72, torch.float32, DEVICE)
    logits[:, ::8] = -math.inf  # all that an origin would be chosen from
    found = errors(logits, target // 8 * 8 + 1, powers)
    assert found.passes(torch.float32), found


@pytest.mark.parametrize("name", ["anl-fl", "all"])
def test_long_rows_agree_with_float64(name, short_tiles):
    """Three blocks and a part of one; in float32 a block is 256 classes."""
    check(KINDS if name == "all" else ["wrong"], REQUESTS[name], 777, count=2)


def test_a_focal_sum_from_moments_agrees_with_float64(short_tiles):
    """With gamma = 1 nothing is neglected, so that they serve however few the classes."""
    focal = RowSum("focal", 1.0)
    assert passes._suffice(focal, 777)
    assert not passes._suffice(RowSum("focal", 0.5), 777)
    check(KINDS, [focal, RowSum("focal", 1.0, 0.0, True)], 777, count=2)


@pytest.mark.slow
def test_focal_sums_of_very_many_classes_come_from_moments():
    classes, focal = 32768, RowSum("focal", 0.5)
    assert passes._suffice(focal, classes)
    check(["random", "wrong", "right", "masked"], REQUESTS["jal-fl"], classes, count=1)
    for few in (2, 3, 5, 9):  # that have all the probability, and would be far from 1 - gamma p
        logits = torch.full((1, classes), -20.0, device=DEVICE)
        logits[0, 7 : 7 + few] = 9.0
        found = errors(logits, torch.tensor([3], device=DEVICE), [focal], alone=True)
        assert found.passes(torch.float32), (few, found)


@pytest.mark.parametrize("classes", [10, 100, 777])
def test_the_gradient_of_a_power_sum_is_right_where_the_network_is_sure_of_another_class(classes, short_tiles):
    """All that is left of it comes from the classes beside the largest, which 1 + their sum would round away."""
    check(["wrong", "right"], [RowSum("power", 2.0)], classes, alone=True)


@pytest.mark.parametrize("classes", [72, 300])
@pytest.mark.parametrize("apart", [0.0, 1e-4])
def test_classes_that_nearly_tie_take_nothing_from_the_gradient_of_a_power_sum(classes, apart, short_tiles):
    """Nearly all probability is theirs, and what is left of the gradient comes from the others; or the label is one of them."""
    logits = torch.randn(8, classes, generator=torch.Generator().manual_seed(classes)) - 12.0
    logits[:6, [7, 38, 69]] = torch.tensor([3.0, 3.0 - apart, 3.0 - 2 * apart])  # the last two rows are sure of nothing
    target = torch.tensor([3, 40, 71, 7, 8, 38, 0, 71])
    found = errors(logits.to(DEVICE), target.to(DEVICE), [RowSum("power", 2.0), RowSum("power", 0.7)], alone=True)
    assert found.passes(torch.float32), found


@pytest.mark.parametrize(
    ("classes", "needs"),
    [
        *((3, [RowSum("power", q)]) for q in (0.5, 1.1, 1.5, 3.0)),
        *((classes, [RowSum("power", 0.9), RowSum("power", 10.0)]) for classes in (10, 72, 140)),
        *((classes, [RowSum("power", 2.5)]) for classes in (64, 72, 140)),
        (72, [RowSum("power", 1.5), RowSum("focal", 0.5), RowSum("clipped_focal", 0.5, 1e-3)]),  # more sums than registers
    ],
)
def test_where_classes_tie_the_gradient_of_a_power_sum_with_another_q_than_2_is_within_1e5(classes, needs, short_tiles):
    """It would be made of differences of equal numbers."""
    logits = tied_rows(classes).to(DEVICE)
    target = torch.zeros(len(logits), dtype=torch.int64, device=DEVICE)
    for which, row_sum in enumerate(needs, start=2):
        if row_sum.kind == "power":
            grads = torch.zeros((2 + len(needs), len(logits)), device=DEVICE)
            grads[which] = 1.0
            exact = both_passes(reference, logits.double(), target, needs, grads.double())[1]
            ours = both_passes(passes, logits, target, needs, grads)[1].double()
            counts = exact.norm(dim=1) > 1e-30
            assert ((ours - exact).norm(dim=1) <= 1e-5 * exact.norm(dim=1))[counts].all(), row_sum


@pytest.mark.parametrize("q", [0.999, 1.001])
def test_a_q_near_1_takes_nothing_from_the_gradient_of_a_power_sum(q, short_tiles):
    """All sums of ``e^q - e`` are small then, not those of ties alone."""
    check(["random", "wrong", "far"], [RowSum("power", q)], 300, alone=True)


@pytest.mark.parametrize("classes", [500, 1025])
def test_equal_logits_take_nothing_from_the_gradient_of_a_focal_sum(classes):
    """As of a head that begins with zeros: what is left is the difference of row_grads, one from each of the passes."""
    for gamma in (2.0, 5.0):
        found = errors(
            torch.zeros((1, classes), device=DEVICE), torch.tensor([3], device=DEVICE), [RowSum("focal", gamma)], alone=True
        )
        assert found.passes(torch.float32), (gamma, found)


@pytest.mark.parametrize("classes", [2, 10, 72, 300])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_row_at_the_lowest_number_of_its_dtype_is_one_of_equal_classes(classes, dtype, short_tiles):
    """Which many put in the place of -inf, of a choice that is not there at all classes."""
    logits, target = drawn("random", 3, classes, dtype, DEVICE)
    logits[1] = torch.finfo(dtype).min
    for name in ("jal-ce", "jal-fl", "all"):
        found = errors(logits, target, REQUESTS[name])
        assert found.passes(dtype), (name, found)
    values, _ = passes.forward(logits, target, [RowSum("power", 2.0)], torch.float32)
    exact = [math.log(classes), math.log1p(-1 / classes), (classes - 1) / classes**2]
    assert values[:, 1].tolist() == pytest.approx(exact, rel=1e-6)


def test_half_precision_is_rounded_once(short_tiles):
    for classes in (10, 777):
        check(["wrong"], REQUESTS["jal-fl"], classes, HALVES, count=2)


def test_the_gradient_may_be_written_over_the_logits(short_tiles):
    for classes in (10, 777):
        check(["random"], REQUESTS["jal-fl"], classes, in_place=True, count=2)


def test_the_gradient_may_be_written_over_logits_whose_classes_lie_apart(on_kernels):
    """As those of one image do, or of a product that was turned."""
    image, labels = torch.randn((1, 10, 3, 2), device=DEVICE), torch.arange(6, device=DEVICE).view(1, 3, 2)
    for given in (image, image.contiguous(memory_format=torch.channels_last)):
        leaf, other = given.clone().requires_grad_(), given.clone().requires_grad_()
        noiseproof.JALCE()(leaf, labels).backward()
        noiseproof.GradientInForward(noiseproof.JALCE(), in_place=True)(other * 1.0, labels).backward()
        torch.testing.assert_close(other.grad, leaf.grad)


def test_a_label_out_of_range_makes_its_row_nan_and_touches_no_other(short_tiles):
    for classes in (10, 300):
        logits, target = drawn("random", 5, classes, torch.float32, DEVICE)
        outside = target.clone()
        outside[1], outside[2], outside[4] = classes, -1, 2**40
        values = passes.forward(logits, target, REQUESTS["all"], torch.float32)[0]
        spoilt = passes.forward(logits, outside, REQUESTS["all"], torch.float32)[0]
        assert spoilt[:, [1, 2, 4]].isnan().all()
        assert torch.equal(spoilt[:, [0, 3]], values[:, [0, 3]])


@pytest.mark.parametrize("classes", [2, 10, 72, 300])
def test_a_nan_among_the_logits_makes_its_row_nan(classes, maximum_of_a_gpu, short_tiles):
    """At the label, everywhere, in place of the largest class, beside it where one thread adds up both; and so does infinity.
    All losses are made of nll or log1m."""
    logits, target = drawn("wrong", 6, classes, torch.float32, DEVICE)
    largest = (target + 1) % classes
    logits[1, largest[1]], logits[2, target[2]], logits[3], logits[4, largest[4]] = math.nan, math.nan, math.nan, math.inf
    target[5], logits[5, -2:] = 0, torch.tensor([60.0, math.nan])
    for name in ("ce", "jal-ce", "all"):
        values, gradient = both_passes(
            passes, logits, target, REQUESTS[name], torch.ones(2 + len(REQUESTS[name]), 6, device=DEVICE)
        )
        for found in (values[:2].t(), gradient):
            assert found.isnan().any(1).tolist() == [False, True, True, True, True, True], name
        assert values[:2, 1:].isnan().all()


def test_labels_and_gradients_may_lie_anywhere():
    """One label for all rows, and one gradient for all statistics, each a tensor without an extent of its own."""
    logits, _ = drawn("random", 4, 10, torch.float32, DEVICE)
    label, grads = torch.tensor([7], device=DEVICE), torch.tensor([[0.5]], device=DEVICE)
    needs = REQUESTS["jal-ce"]
    together = both_passes(passes, logits, label.expand(4), needs, grads.expand(4, 4))
    apart = both_passes(passes, logits, label.repeat(4), needs, grads.repeat(4, 4))
    turned = both_passes(passes, logits.t().contiguous().t(), label.repeat(4), needs, grads.repeat(4, 4))
    for one, other, third in zip(together, apart, turned, strict=True):
        assert torch.equal(one, other)
        assert torch.equal(one, third)


def test_what_the_kernels_have_no_place_for_is_the_references():
    powers = [RowSum("power", q) for q in (0.5, 1.5, 2.0)]
    logits, target = drawn("random", 4, 10, torch.float32, DEVICE)
    assert not passes.suits(logits, powers)
    assert not passes.suits(logits.double(), [])
    assert passes.suits(logits.half(), REQUESTS["all"])
    for z, needs in ((logits, powers), (logits.double(), REQUESTS["all"])):
        grads = torch.ones((2 + len(needs), 4), dtype=z.dtype, device=DEVICE)
        for ours, expected in zip(
            both_passes(passes, z, target, needs, grads), both_passes(reference, z, target, needs, grads), strict=True
        ):
            assert torch.equal(ours, expected)


def test_rows_that_32_bits_cannot_number_are_the_references(monkeypatch):
    """A row past the last one would have a negative number, and pass for one that is there."""
    row = torch.zeros((1, 2), device=DEVICE)
    assert passes.suits(row.expand(2**30 - 1, 2), [])
    assert not passes.suits(row.expand(2**30, 2), [])
    monkeypatch.setattr(passes, "MAX_ROWS", 4)
    monkeypatch.setattr(passes, "launch", None)
    logits, target = drawn("random", 4, 10, torch.float32, DEVICE)
    grads = torch.ones((2, 4), device=DEVICE)
    for ours, theirs in zip(
        both_passes(passes, logits, target, [], grads), both_passes(reference, logits, target, [], grads), strict=True
    ):
        assert torch.equal(ours, theirs)


def test_an_empty_batch_has_no_rows():
    values, gradient = both_passes(
        passes, torch.empty((0, 10), device=DEVICE), torch.empty(0, dtype=torch.int64, device=DEVICE), [], torch.empty((2, 0))
    )
    assert values.shape == (2, 0)
    assert gradient.shape == (0, 10)


@pytest.fixture
def on_kernels(monkeypatch):
    """Losses run on the kernels, wherever the logits are."""
    monkeypatch.setattr(backends, "_registered", {DEVICE: BACKEND})
    monkeypatch.delenv(backends.BACKEND_VARIABLE, raising=False)


@pytest.mark.parametrize("name", ["jal-ce", *(pytest.param(name, marks=pytest.mark.slow) for name in ("jal-fl", "anl-ce"))])
def test_a_loss_on_the_kernels_is_the_loss(name, on_kernels, short_tiles):
    """With ignored rows, all rows ignored, extreme logits, and a mask."""
    loss = noiseproof.create_loss(name).to(DEVICE)
    for classes in (10, 300):
        logits, target = drawn("random", 6, classes, torch.float32, DEVICE)
        target[1] = -100
        leaf, exact = logits.clone().requires_grad_(), logits.double().requires_grad_()
        value, expected = loss(leaf, target), loss(exact, target)
        torch.testing.assert_close(value.double(), expected, rtol=1e-5, atol=0.0)
        (ours,), (theirs,) = torch.autograd.grad(value, leaf), torch.autograd.grad(expected, exact)
        assert (ours - theirs).norm() <= 1e-5 * theirs.norm()
        assert not ours[1].any()
        for extreme in (torch.where(logits > 0, 1e4, -1e4), torch.where(logits > 0, logits, -math.inf)):
            z = extreme.requires_grad_()
            assert torch.autograd.grad(loss(z, extreme.argmax(1)), z)[0].isfinite().all()
        nothing = noiseproof.create_loss(name, reduction="sum").to(DEVICE)(leaf, torch.full_like(target, -100))
        assert not torch.autograd.grad(nothing, leaf)[0].any()


@pytest.mark.parametrize("backend", ["reference", "triton"])
@pytest.mark.parametrize("classes", [2, 10, 100, 300])
def test_a_row_of_which_only_the_label_is_left_has_a_gradient(backend, classes, on_kernels, short_tiles, monkeypatch):
    """Of a share of its focal sum too, which is of nothing, however much that counts."""
    monkeypatch.setenv(backends.BACKEND_VARIABLE, backend)
    logits = torch.full((2, classes), -math.inf, device=DEVICE)
    logits[:, 1], logits[1] = 1.0, torch.linspace(0.0, 1.0, classes)
    for loss in (noiseproof.ANLFL(), noiseproof.ANLFL(alpha=1000.0), noiseproof.create_loss("nfl+agce", alpha=1000.0)):
        leaf = logits.clone().requires_grad_()
        loss.to(DEVICE)(leaf, torch.tensor([1, 0], device=DEVICE)).backward()
        assert leaf.grad.isfinite().all()
        assert leaf.grad[0].norm() <= 1e-6
        assert leaf.grad[1].any()


@pytest.mark.parametrize("backend", ["reference", "triton"])
@pytest.mark.parametrize("name", ["ce", "jal-ce"])
def test_a_row_that_is_ignored_has_no_gradient_whatever_is_made_of_its_loss(name, backend, on_kernels, monkeypatch):
    """As with F.cross_entropy, where a mean over no token of a sequence is left out afterwards; of every size."""
    monkeypatch.setenv(backends.BACKEND_VARIABLE, backend)
    loss = noiseproof.create_loss(name, reduction="none").to(DEVICE)
    for count, classes in ((4, 10), (4, 200), (700, 100)):
        logits, target = drawn("random", count, classes, torch.float32, DEVICE)
        leaf, target[1] = logits.requires_grad_(), -100
        for wild in (math.inf, math.nan):
            up = torch.ones(count, device=DEVICE)
            up[1] = wild
            (gradient,) = torch.autograd.grad(loss(leaf, target), leaf, up)
            assert gradient.isfinite().all()
            assert not gradient[1].any()
            assert gradient[0].any()


def test_a_row_at_the_lowest_number_of_its_dtype_has_no_gradient_if_it_is_ignored(on_kernels):
    for count, classes in ((4, 10), (4, 200)):
        logits, target = drawn("random", count, classes, torch.float32, DEVICE)
        logits[1], target[1] = torch.finfo(torch.float32).min, -100
        leaf = logits.requires_grad_()
        (gradient,) = torch.autograd.grad(noiseproof.JALCE()(leaf, target), leaf)
        assert gradient.isfinite().all()
        assert not gradient[1].any()


def test_the_cpu_never_imports_the_kernels_and_a_first_call_no_part_of_torch():
    """Which would take a second: what records a program must not need torch's compiler."""
    run = (
        "before = set(sys.modules); noiseproof.JALCE()(torch.zeros(2, 3, requires_grad=True), torch.zeros(2).long()).backward()"
    )
    command = [sys.executable, "-c", f"import sys, noiseproof, torch; {run}; print(sorted(set(sys.modules) - before))"]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert not [
        name for name in ast.literal_eval(ended.stdout) if name.startswith(("noiseproof.kernels", "torch._dynamo", "sympy"))
    ]


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("backend", ["reference", "triton"])
def test_the_gradient_in_the_forward_pass_is_the_gradient(backend, in_place, on_kernels, monkeypatch):
    monkeypatch.setenv(backends.BACKEND_VARIABLE, backend)
    criterion = noiseproof.JALCE().to(DEVICE)
    logits, target = drawn("random", 5, 10, torch.float32, DEVICE)
    target[2] = -100
    leaf = logits.clone().requires_grad_()
    (criterion(leaf, target) * 0.5).backward()
    other = logits.clone().requires_grad_()
    rows_given = other * 1.0  # not a leaf, as a network's logits
    value = noiseproof.GradientInForward(criterion, in_place=in_place)(rows_given, target)
    torch.testing.assert_close(value, criterion(logits, target))
    (value * 0.5).backward(retain_graph=True)
    torch.testing.assert_close(other.grad, leaf.grad)
    assert torch.equal(rows_given.detach(), logits) != in_place
    with pytest.raises(RuntimeError, match="computed in the forward pass and is gone"):
        value.backward()


def test_logits_that_are_still_wanted_are_not_overwritten_unseen():
    logits, target = drawn("random", 5, 10, torch.float32, DEVICE)
    used = logits.requires_grad_().exp()  # whose derivative is its value
    value = noiseproof.GradientInForward(noiseproof.CE(), in_place=True)(used, target)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        value.backward()


def test_what_has_no_gradient_in_the_forward_pass_is_refused():
    with pytest.raises(TypeError, match="not a function of row statistics"):
        noiseproof.GradientInForward(noiseproof.LogitClip())
    with pytest.raises(ValueError, match="must reduce to a mean or a sum"):
        noiseproof.GradientInForward(noiseproof.CE(reduction="none"))
    with pytest.raises(TypeError, match="must hold class indices"):
        noiseproof.GradientInForward(noiseproof.CE())(torch.zeros(1, 3, requires_grad=True), torch.full((1, 3), 1 / 3))
    learned = noiseproof.CE(weight=torch.ones(3, requires_grad=True))
    with pytest.raises(TypeError, match="no gradient for class weights"):
        noiseproof.GradientInForward(learned)(torch.zeros(1, 3, requires_grad=True), torch.tensor([0]))
    leaf = torch.zeros(1, 3, requires_grad=True)
    with pytest.raises(ValueError, match="in_place would write over a leaf"):  # as torch says of its own operations
        noiseproof.GradientInForward(noiseproof.CE(), in_place=True)(leaf, torch.tensor([0]))
    assert not leaf.any()


@pytest.mark.parametrize(("option", "value"), [("label_smoothing", 0.1), ("reduction", "none")])
def test_a_criterion_that_was_changed_is_refused_in_the_forward_pass_too(option, value):
    """Its gradient would be that without smoothing, or that of the first row's factor."""
    criterion = noiseproof.JALCE()
    in_forward = noiseproof.GradientInForward(criterion)
    setattr(criterion, option, value)
    with pytest.raises(ValueError, match="must reduce to a mean or a sum without label smoothing, got JALCE"):
        in_forward(torch.zeros(2, 3, requires_grad=True), torch.tensor([0, 1]))


@pytest.mark.parametrize("strides", [(0, 1), (3, 1), (1, 2)])
def test_logits_that_share_memory_are_not_written_over(strides):
    logits = torch.zeros(40, requires_grad=True) * 1.0
    criterion = noiseproof.GradientInForward(noiseproof.JALCE(), in_place=True)
    with pytest.raises(ValueError, match="share memory"):
        criterion(logits.as_strided((4, 5), strides), torch.tensor([0, 1, 2, 3]))
    for apart in [(5, 1), (7, 1), (1, 4)]:
        assert criterion((logits * 1.0).as_strided((4, 5), apart), torch.tensor([0, 1, 2, 3])).isfinite()


def compiled_ahead(tmp_path, *arguments):
    environment = {**os.environ, "TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-m", "tests.helpers.compiled_kernels", *arguments]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-3000:]
    return [line.split() for line in ended.stdout.splitlines()]


def test_the_kernels_compile_for_a_gpu_and_spill_no_register(tmp_path):
    found = compiled_ahead(tmp_path, "90")
    passes = {"tile_forward", "tile_backward", "stream_forward", "stream_backward"}
    held = {"single_pass_rows", "weigh"} if IS_TESTED_TRITON else set()
    assert {line[0] for line in found} == passes | held | {"program", "add_up", "scaled", "small_step"}
    assert all(line[2] == "0" for line in found), found


@pytest.mark.slow
def test_no_request_spills_on_ampere_hopper_or_blackwell(tmp_path):
    found = compiled_ahead(tmp_path, "80,90,100", "--all")
    held = 5 * (1 + 3 * 2) if IS_TESTED_TRITON else 0
    assert len(found) == 3 * (24 + 7 * 9 + 1) + held
    for line in found:
        assert line[2] == "0", line


@pytest.mark.slow
@pytest.mark.parametrize("classes", [2, 10, 100, 1000, 4097, 32768, 128256])
def test_every_size_agrees_with_float64(classes):
    count = 3 if classes <= 4097 or DEVICE == "cuda" else 1
    names = REQUESTS if classes <= 1000 or DEVICE == "cuda" else ("all",)
    kinds = [kind for kind in KINDS if (classes, kind) != (2, "masked")] if classes < 5000 else ("wrong", "strided")
    for name in names:
        check(kinds, REQUESTS[name], classes, count=count)
