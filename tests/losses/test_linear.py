"""The loss of a linear head is the loss of its logits, which are never all there."""

import copy
import math
import pickle

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.profiler import ProfilerActivity, profile
from torch.utils.checkpoint import checkpoint

import noiseproof
from noiseproof import LinearLoss, linear_loss
from noiseproof.core import backends
from noiseproof.core import linear as operation
from noiseproof.core.backends import Backend
from noiseproof.core.statistics import Statistic
from noiseproof.losses.base import RobustLoss
from noiseproof.losses.linear import EVERY_LABEL_MATRICES
from tests.helpers.cases import DISTINCT, build

NAMES = [name for name in DISTINCT if build(name).needs is not None]
ROWS, WIDTH, CLASSES = 11, 6, 9
FEW = {"chunk_bytes": 4 * CLASSES * 8}
"""Four rows of float64 logits at a time"""
WAYS = pytest.mark.parametrize("recompute", [False, True], ids=["at once", "recomputed"])


def draw(rows=ROWS, width=WIDTH, classes=CLASSES, *, dtype=torch.float64, scale=1.0, seed=0):
    """Hidden states, weight and bias with gradients, and labels, one of them ignored."""
    generator = torch.Generator().manual_seed(seed)
    shapes = ((rows, width), (classes, width), (classes,))
    tensors = [scale * torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]
    target = torch.randint(classes, (rows,), generator=generator)
    target[1:2] = -100
    return [t.to(dtype).requires_grad_() for t in tensors], target


def with_gradients(loss, leaves):
    """A loss and the gradients of its sum, weighted unevenly where it is not reduced."""
    upstream = torch.linspace(0.5, 2.0, loss.numel(), dtype=loss.dtype).reshape(loss.shape)
    return loss.detach(), *torch.autograd.grad(loss, leaves, upstream)


def two_steps(hidden, weight, target, criterion, bias=None):
    return criterion(F.linear(hidden, weight, bias), target)


def assert_same(leaves, target, criterion, **options):
    hidden, weight, *bias = leaves
    ours = with_gradients(linear_loss(hidden, weight, target, criterion, *bias, **{**FEW, **options}), leaves)
    theirs = with_gradients(two_steps(hidden, weight, target, criterion, *bias), leaves)
    torch.testing.assert_close(ours, theirs, equal_nan=True)


@WAYS
@pytest.mark.parametrize("name", NAMES)
def test_it_is_the_loss_of_the_logits(name, recompute):
    leaves, target = draw()
    assert_same(leaves, target, build(name, CLASSES), recompute=recompute)


OPTIONS = [
    {"weight": torch.linspace(0.2, 2.0, CLASSES, dtype=torch.float64)},
    {"reduction": "sum"},
    {"reduction": "none"},
    {"ignore_index": 3},
    {"label_smoothing": 0.2},
    {"label_smoothing": 0.2, "weight": torch.linspace(0.2, 2.0, CLASSES, dtype=torch.float64)},
    {"label_smoothing": 1.0, "reduction": "none"},
]


@WAYS
@pytest.mark.parametrize("options", OPTIONS, ids=", ".join)
def test_every_option_of_the_loss_counts(options, recompute):
    leaves, target = draw()
    target = target.clamp_min(0) if "ignore_index" in options else target
    for loss in (noiseproof.JALFL, noiseproof.ECEandMAE):
        assert_same(leaves, target, loss(**options), recompute=recompute)


@WAYS
@pytest.mark.parametrize("options", [{}, {"reduction": "none"}, {"label_smoothing": 0.1}], ids=str)
def test_targets_may_be_probabilities(options, recompute):
    leaves, _ = draw()
    target = torch.softmax(2 * torch.randn(ROWS, CLASSES, dtype=torch.float64), 1)
    target[0] = F.one_hot(torch.tensor(2), CLASSES)
    assert_same(leaves, target, noiseproof.JALCE(**options), recompute=recompute)


@WAYS
@pytest.mark.parametrize("reduction", ["none", "mean"])
@pytest.mark.parametrize("shape", [(), (2, 3), (2, 1, 3)], ids=str)
def test_hidden_states_of_any_leading_shape(shape, reduction, recompute):
    hidden, target = torch.randn(*shape, WIDTH, dtype=torch.float64), torch.randint(CLASSES, shape)
    weight, criterion = torch.randn(CLASSES, WIDTH, dtype=torch.float64), noiseproof.GCE(reduction=reduction)
    flat = two_steps(hidden.reshape(-1, WIDTH), weight, target.reshape(-1), criterion)
    loss = linear_loss(hidden.requires_grad_(), weight, target, criterion, recompute=recompute, **FEW)
    assert loss.shape == (shape if reduction == "none" else ())
    torch.testing.assert_close(loss.reshape(flat.shape), flat)
    soft = F.one_hot(target, CLASSES).double()
    torch.testing.assert_close(linear_loss(hidden, weight, soft, criterion, recompute=recompute, **FEW), loss)


@WAYS
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32], ids=str)
def test_labels_of_every_integer_dtype_are_the_same_labels(dtype, recompute):
    """In uint8 the label 156 equals -100, which is ignored."""
    leaves, _ = draw(4, classes=200)
    target = torch.tensor([156, 0, 155, 199 if dtype is torch.uint8 else -100])
    criterion = noiseproof.JALCE()
    expected = with_gradients(linear_loss(*leaves[:2], target, criterion, leaves[2]), leaves)
    found = with_gradients(linear_loss(*leaves[:2], target.to(dtype), criterion, leaves[2], recompute=recompute), leaves)
    torch.testing.assert_close(found, expected)


@WAYS
def test_two_classes(recompute):
    leaves, target = draw(classes=2)
    assert_same(leaves, target, noiseproof.JALFL(), recompute=recompute)


@WAYS
def test_an_unreduced_loss_may_be_changed_in_place(recompute):
    (hidden, weight, _), target = draw()
    keep = (torch.arange(ROWS) % 2).double()
    losses = [linear_loss(hidden, weight, target, noiseproof.CE(reduction="none"), recompute=recompute) for _ in range(2)]
    losses[1] *= keep
    expected, gradient = (torch.autograd.grad(loss.sum(), (hidden, weight)) for loss in (losses[0] * keep, losses[1]))
    torch.testing.assert_close(gradient, expected)


def test_a_target_or_weights_that_are_changed_in_place_before_the_gradient_is_computed_are_an_error():
    (hidden, weight, _), _ = draw()
    for changed in (0, 1):
        given = torch.full((ROWS, CLASSES), 1 / CLASSES), torch.ones(CLASSES)
        loss = linear_loss(hidden, weight, given[0], noiseproof.CE(weight=given[1]), recompute=True)
        given[changed].zero_()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


@WAYS
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("rows", [0, 3])
def test_an_empty_batch_and_an_ignored_one(rows, reduction, recompute):
    leaves, target = draw(rows)
    assert_same(leaves, target.fill_(-100), noiseproof.JALCE(reduction=reduction), recompute=recompute)
    soft = torch.full((rows, CLASSES), 1 / CLASSES, dtype=torch.float64)
    assert_same(leaves, soft, noiseproof.JALCE(reduction=reduction), recompute=recompute)


@WAYS
@pytest.mark.parametrize("frozen", [(0,), (1,), (2,), (0, 2), (1, 2)], ids=str)
def test_what_is_frozen_gets_no_gradient_and_the_rest_its_own(frozen, recompute):
    leaves, target = draw()
    for place in frozen:
        leaves[place].requires_grad_(False)
    moving = [leaf for leaf in leaves if leaf.requires_grad]
    expected = torch.autograd.grad(two_steps(*leaves[:2], target, noiseproof.JALCE(), leaves[2]), moving)
    linear_loss(*leaves[:2], target, noiseproof.JALCE(), leaves[2], recompute=recompute, **FEW).backward()
    assert [leaf.grad is None for leaf in leaves] == [place in frozen for place in range(3)]
    torch.testing.assert_close(tuple(leaf.grad for leaf in moving), expected)


@WAYS
def test_a_masked_class_is_left_out(recompute):
    """One with a bias of -inf."""
    leaves, target = draw()
    with torch.no_grad():
        leaves[2][4] = -math.inf
    target[target == 4] = 5
    assert_same(leaves, target, noiseproof.JALCE(), recompute=recompute)


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_a_class_may_be_masked_in_some_chunks_and_not_in_others(reduction):
    """By a product beyond floating point in the later rows, of a class that is as the others in the first."""
    leaves, target = draw()
    with torch.no_grad():
        leaves[1][:, 0] = 0.0
        leaves[1][4, 0] = -1e308
        leaves[0][:, 0] = 3e-308
        leaves[0][len(target) // 2 :, 0] = 1e2
    target[target == 4] = 5
    logits = leaves[0] @ leaves[1].t()
    assert logits[:, 4].isinf().tolist() == [row >= len(target) // 2 for row in range(len(target))]
    assert_same(leaves, target, noiseproof.JALCE(reduction=reduction))


@WAYS
def test_ignored_rows_are_not_computed(recompute):
    """Or what they hold, not a number here, would be in the gradient of the weight."""
    (hidden, weight, _), target = draw()
    target[[0, 5, 10]] = -100
    clean = with_gradients(linear_loss(hidden, weight, target, noiseproof.JALCE(), recompute=recompute, **FEW), [weight])
    with torch.no_grad():
        hidden[target == -100] = math.nan
    loss = linear_loss(hidden, weight, target, noiseproof.JALCE(), recompute=recompute, **FEW)
    value, by_weight, by_hidden = with_gradients(loss, [weight, hidden])
    torch.testing.assert_close((value, by_weight), clean)
    assert not by_hidden[target == -100].any()


@pytest.mark.parametrize(("options", "passes"), [({}, 1), ({"recompute": True}, 2), ({"reduction": "none"}, 2)], ids=str)
def test_the_logits_are_formed_once_where_the_gradient_comes_with_the_loss(options, passes, monkeypatch):
    formed = []
    own = operation.Products.chunks
    monkeypatch.setattr(operation.Products, "chunks", lambda self: formed.append(self) or own(self))
    leaves, target = draw()
    loss = noiseproof.JALCE(reduction=options.get("reduction", "mean"))
    options = {"recompute": options.get("recompute", False), **FEW}
    with_gradients(linear_loss(*leaves[:2], target, loss, **options), leaves[:2])
    assert len(formed) == passes
    with torch.no_grad():
        linear_loss(*leaves[:2], target, loss, **options)
    assert len(formed) == passes + 1
    formed.clear()
    LinearLoss(WIDTH, CLASSES, loss, dtype=torch.float64, **options)(leaves[0], target).sum().backward()
    assert len(formed) == passes


def test_so_many_bytes_of_logits_are_there_at_a_time_as_is_said():
    assert operation.chunk_budget(torch.device("cpu")) == 128 * 2**20
    assert operation.chunk_budget(torch.device("cuda")) == 448 * 2**20


@WAYS
def test_a_graph_that_is_kept_gives_its_gradient_again(recompute):
    leaves, target = draw()
    loss = linear_loss(*leaves[:2], target, noiseproof.JALCE(), recompute=recompute, **FEW)
    first = torch.autograd.grad(loss, leaves[:2], retain_graph=True)
    second = torch.autograd.grad(3 * loss, leaves[:2])
    torch.testing.assert_close([3 * grad for grad in first], list(second))


@WAYS
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_a_second_derivative_is_refused_in_words(smoothing, recompute):
    leaves, target = draw()
    criterion = noiseproof.CE(label_smoothing=smoothing)
    loss = linear_loss(*leaves[:2], target, criterion, recompute=recompute, **FEW)
    grads = torch.autograd.grad(loss, leaves[:2], create_graph=True)
    torch.testing.assert_close(grads, torch.autograd.grad(two_steps(*leaves[:2], target, criterion), leaves[:2]))
    with pytest.raises(RuntimeError, match=r"no second derivative.*F\.linear"):
        grads[0].sum().backward()


def test_torch_func_and_forward_mode_work_in_two_steps():
    (hidden, weight, bias), target = draw()
    slope = torch.func.grad(lambda h: linear_loss(h, weight, target, noiseproof.CE(), bias))(hidden)
    leaf = hidden.detach().requires_grad_()
    torch.testing.assert_close(slope, torch.autograd.grad(two_steps(leaf, weight, target, noiseproof.CE(), bias), leaf)[0])
    each = torch.func.vmap(lambda h, y: linear_loss(h, weight, y, noiseproof.CE(), bias))(hidden, target.clamp_min(0))
    assert each.shape == (ROWS,)


@WAYS
@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_inside_a_checkpoint(smoothing, reentrant, recompute):
    leaves, target = draw()
    criterion = noiseproof.JALCE(label_smoothing=smoothing)

    def loss(hidden, weight, bias):
        return linear_loss(hidden.tanh(), weight, target, criterion, bias, recompute=recompute, **FEW)

    def gradients(value):
        return torch.autograd.grad(value, leaves) if not reentrant else (value.backward(), *(leaf.grad for leaf in leaves))[1:]

    inside = gradients(checkpoint(loss, *leaves, use_reentrant=reentrant))
    torch.testing.assert_close(inside, torch.autograd.grad(loss(*leaves), leaves))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_hooks_around_it_see_what_is_kept_and_not_what_a_chunk_is_made_of(smoothing):
    """A checkpoint's hooks would compute all again for each chunk, those that save to the host would save the logits."""
    leaves, target = draw()
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(tuple(t.shape)) or t, lambda t: t):
        linear_loss(*leaves[:2], target, noiseproof.JALCE(label_smoothing=smoothing), **FEW).backward()
    inputs = {tuple(tensor.shape) for tensor in (*leaves[:2], target)}
    assert inputs <= set(kept) <= inputs | {()}


@pytest.mark.parametrize(
    "options", [{}, {"reduction": "none"}, pytest.param({"label_smoothing": 0.1}, marks=pytest.mark.slow)], ids=str
)
def test_compiled_without_a_graph_break_it_gives_the_same(options):
    leaves, target = draw(dtype=torch.float32)
    criterion = noiseproof.JALFL(**options)
    torch.compiler.reset()
    # Two chunks for soft targets, which take more memory a row: FEW would be a checkpoint for each row, and tracing is slow.
    chunk_bytes = FEW["chunk_bytes"] * (EVERY_LABEL_MATRICES if criterion.label_smoothing else 1)
    compiled = torch.compile(
        lambda h, w, b: linear_loss(h, w, target, criterion, b, chunk_bytes=chunk_bytes), fullgraph=True, backend="aot_eager"
    )
    theirs = with_gradients(two_steps(*leaves[:2], target, criterion, leaves[2]), leaves)
    torch.testing.assert_close(with_gradients(compiled(*leaves), leaves), theirs)


def test_the_operation_is_one_that_torch_accepts():
    (hidden, weight, bias), target = draw()
    needs_key = f"{Statistic.NLL_SUM.key};{Statistic.SQ_SUM.key}"
    arguments = (hidden, weight, bias, target.clamp_min(0), target >= 0, needs_key, torch.float64, FEW["chunk_bytes"])
    torch.library.opcheck(operation.linear_statistics, arguments)


def test_without_values_it_has_a_shape():
    hidden, weight = torch.empty(4, WIDTH, device="meta", requires_grad=True), torch.empty(CLASSES, WIDTH, device="meta")
    loss = linear_loss(hidden, weight, torch.empty(4, dtype=torch.long, device="meta"), noiseproof.JALCE())
    loss.backward()
    assert (loss.shape, hidden.grad.shape) == ((), hidden.shape)


@WAYS
def test_parameters_of_the_loss_itself_get_their_gradient(recompute):
    class Learned(RobustLoss):
        needs = (Statistic.NLL,)

        def __init__(self, **contract):
            super().__init__(**contract)
            self.power = nn.Parameter(torch.tensor(1.5, dtype=torch.float64))

        def from_statistics(self, s):
            return s.nll**self.power

    for options in ({}, {"label_smoothing": 0.1}):
        criterion = Learned(**options)
        leaves, target = draw()
        loss = linear_loss(*leaves[:2], target, criterion, recompute=recompute, **FEW)
        expected = torch.autograd.grad(two_steps(*leaves[:2], target, criterion), criterion.power)
        torch.testing.assert_close(torch.autograd.grad(loss, criterion.power), expected)


# Precision


def errors(dtype, criterion, ways, *, confident=False):
    """The relative errors of each way of computing, of value and gradients, against float64 from the same inputs."""
    leaves, target = draw(96, 64, 200, dtype=dtype, scale=0.3, seed=3)
    target[1] = 0
    if confident:  # the label's logit is far above, or far below, all others
        with torch.no_grad():
            leaves[0].copy_(leaves[1][target] * torch.linspace(-8, 8, 96, dtype=dtype)[:, None])
    exact_leaves = [leaf.detach().double().requires_grad_() for leaf in leaves]
    exact = with_gradients(two_steps(*exact_leaves[:2], target, criterion, exact_leaves[2]), exact_leaves)
    found = []
    for way in ways:
        ours = with_gradients(way(*leaves[:2], target, criterion, leaves[2]), leaves)
        found.append([(torch.dist(one.double(), truth) / truth.norm()).item() for one, truth in zip(ours, exact, strict=True)])
    return found


@pytest.mark.parametrize("confident", [False, True], ids=["random", "confident"])
@pytest.mark.parametrize(("dtype", "slack"), [(torch.float32, 1e-6), (torch.bfloat16, 2**-8), (torch.float16, 2**-10)], ids=str)
@pytest.mark.parametrize("name", ["ce", "jal-ce", "jal-fl", "anl-ce"])
def test_it_is_as_exact_as_two_steps(name, dtype, slack, confident, monkeypatch):
    monkeypatch.setattr(operation, "chunk_rows", lambda rows, *_: 40)
    ways = [lambda *a, r=recompute: linear_loss(*a, recompute=r) for recompute in (False, True)]
    *ours, plain = errors(dtype, build(name), [*ways, two_steps], confident=confident)
    for found in ours:
        assert all(one <= theirs + slack for one, theirs in zip(found, plain, strict=True)), (found, plain)


def test_the_weights_gradient_is_added_up_in_float32(monkeypatch):
    """Of a bfloat16 head as of one product, over 48 chunks too; without room for the buffer it has several times the error."""

    def way(chunk_bytes):
        return lambda *arguments: linear_loss(*arguments, chunk_bytes=chunk_bytes)

    (whole,) = errors(torch.bfloat16, noiseproof.CE(), [way(2**20)])
    monkeypatch.setattr(operation, "chunk_rows", lambda rows, *_: 2)
    in_float32, rounded = errors(torch.bfloat16, noiseproof.CE(), [way(200 * 64 * 2), way(200 * 64 * 2 - 1)])
    assert in_float32[2] < 1.05 * whole[2]
    assert rounded[2] > 1.5 * whole[2]


def test_a_gradient_that_comes_with_the_loss_is_rounded_once():
    """Of a mean over a number of rows that is no power of two; a factor put in later would round it again."""
    leaves, target = draw(96, 64, 200, dtype=torch.bfloat16, scale=0.3)
    at_once, again = (
        torch.autograd.grad(linear_loss(*leaves[:2], target, noiseproof.JALCE(), recompute=recompute), leaves[:2])
        for recompute in (False, True)
    )
    assert torch.equal(at_once[0], again[0])
    assert torch.equal(at_once[1], again[1])


@WAYS
def test_autocast_multiplies_in_half_precision_and_returns_float32(recompute):
    leaves, target = draw(96, 64, 200, dtype=torch.float32, scale=0.3)
    criterion = noiseproof.JALCE()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = linear_loss(*leaves[:2], target, criterion, leaves[2], recompute=recompute, chunk_bytes=40 * 200 * 2)
        plain = two_steps(*leaves[:2], target, criterion, leaves[2])
    ours, theirs = with_gradients(loss, leaves), with_gradients(plain, leaves)
    assert {one.dtype for one in (*ours, *theirs)} == {torch.float32}
    assert ours[0] == theirs[0]  # from the same rounded logits, which those of float32 are not
    assert ours[0] != two_steps(*leaves[:2], target, criterion, leaves[2])
    for one, other in zip(ours, theirs, strict=True):
        assert torch.dist(one, other) < 0.01 * other.norm()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_the_result_has_the_dtype_of_the_two_steps(dtype):
    leaves, target = draw(dtype=dtype)
    assert linear_loss(*leaves[:2], target, noiseproof.JALCE()).dtype == dtype


def test_a_scaled_loss_in_float16_keeps_small_gradients():
    """What is below the least number of float16 until a gradient scaler's factor is in."""
    leaves, target = draw(64, 32, 500, dtype=torch.float16, scale=0.1)
    criterion, scale = noiseproof.JALCE(alpha=0.01, beta=0.01), 2.0**14
    loss = scale * linear_loss(*leaves[:2], target, criterion, chunk_bytes=16 * 500 * 2)
    exact = [leaf.detach().double().requires_grad_() for leaf in leaves]
    (theirs,) = torch.autograd.grad(scale * two_steps(*exact[:2], target, criterion), exact[0])
    (ours,) = torch.autograd.grad(loss, leaves[0])
    assert torch.dist(ours.double(), theirs) < 0.01 * theirs.norm()


# Memory


def peak(function):
    """The most bytes that a function has allocated at once, as torch's profiler sees them, in whatever thread."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        function()
    held = most = 0
    for event in profiled.profiler.kineto_results.events():
        if event.name() == "[memory]":
            held += event.nbytes()
            most = max(most, held)
    return most


@WAYS
@pytest.mark.parametrize(("options", "chunk_rows"), [({}, 32), ({"label_smoothing": 0.1}, 1024)], ids=str)
def test_memory_is_that_of_a_chunk_however_many_rows_there_are(options, chunk_rows, recompute):
    """Losses of all labels take many matrices of the logits' size, so their chunks have fewer rows."""
    classes, width, rows = 500, 4, 512
    logits = rows * classes * 4

    def used(rows, loss=linear_loss, **extra):
        (hidden, weight, _), target = draw(rows, width, classes, dtype=torch.float32)
        return peak(lambda: loss(hidden, weight, target, noiseproof.JALCE(**options), **extra).backward())

    ours = {"recompute": recompute, "chunk_bytes": chunk_rows * classes * 4}
    used(64, **ours)  # what is kept between calls is there then
    most = used(rows, **ours)
    assert most < 5 * ours["chunk_bytes"]
    assert used(2 * rows, **ours) - most < 0.1 * logits  # a few numbers a row
    assert used(rows, two_steps) > 3 * most


@WAYS
def test_a_weight_larger_than_a_chunk_has_one_gradient_in_memory(recompute):
    (hidden, weight, _), target = draw(64, 256, 2000, dtype=torch.float32)
    gradients, chunk_bytes = hidden.nbytes + weight.nbytes, 16 * 2000 * 4

    def step():
        hidden.grad = weight.grad = None
        linear_loss(hidden, weight, target, noiseproof.JALCE(), recompute=recompute, chunk_bytes=chunk_bytes).backward()

    step()
    hidden.grad = weight.grad = None
    assert peak(step) - gradients < 5 * chunk_bytes < weight.nbytes / 2


# What it stands on


def test_a_backend_that_can_writes_the_gradient_over_the_logits(monkeypatch):
    written = []

    def forward(logits, target, needs, dtype):
        """What the reference keeps, and a row for each row sum, as a backend may."""
        statistics, saved = backends.REFERENCE.forward(logits, target, needs, dtype)
        return statistics, torch.cat([saved, torch.full((1, len(target)), logits.shape[1] - 1.0), *[saved[:1]] * len(needs)])

    def backward(grads, logits, target, statistics, saved, needs, out=None):
        gradient = backends.REFERENCE.backward(grads, logits, target, statistics, saved[:5], needs)
        if out is None:  # the two steps
            return gradient
        assert len(saved) == 5 + len(needs)
        assert out is logits
        written.append(logits.data_ptr())
        return logits.copy_(gradient)

    own = Backend("own", forward, backward)
    monkeypatch.setitem(backends._registered, "cpu", own)
    leaves, target = draw()
    for recompute in (False, True):
        assert_same(leaves, target, noiseproof.JALFL(), recompute=recompute)
    assert len(written) == 2 * 3
    assert len(set(written[:3])) == 1


@WAYS
@pytest.mark.filterwarnings("ignore:(overflow|invalid value) encountered")  # Triton's interpreter, of lanes that are masked
def test_the_kernels_serve_a_chunk(recompute, monkeypatch):
    pytest.importorskip("triton", minversion="3.3", reason="needs the interpreter of Triton 3.3")
    from noiseproof.kernels import BACKEND

    leaves, target = draw(6, classes=300, dtype=torch.float32)
    criterion = noiseproof.JALFL()
    expected = with_gradients(two_steps(*leaves[:2], target, criterion, leaves[2]), leaves)
    monkeypatch.setitem(backends._registered, "cpu", BACKEND)
    loss = linear_loss(*leaves[:2], target, criterion, leaves[2], recompute=recompute, chunk_bytes=3 * 300 * 4)
    torch.testing.assert_close(with_gradients(loss, leaves), expected)


def test_the_module_owns_its_head():
    loss = LinearLoss(WIDTH, CLASSES, noiseproof.JALCE(), bias=True, dtype=torch.float64, **FEW)
    (hidden, _, _), target = draw()
    torch.testing.assert_close(loss(hidden, target), noiseproof.JALCE()(loss.linear(hidden), target))
    assert sorted(loss.state_dict()) == ["linear.bias", "linear.weight"]
    for again in (copy.deepcopy(loss), pickle.loads(pickle.dumps(loss))):
        torch.testing.assert_close(again(hidden, target), loss(hidden, target))
    assert "chunk_bytes=288" in repr(loss)
    shared = LinearLoss.from_linear(loss.linear, noiseproof.CE())
    assert shared.linear.weight is loss.linear.weight
    assert LinearLoss(WIDTH, CLASSES, noiseproof.CE()).linear.bias is None


ZEROS, HEAD, LABELS = torch.zeros(2, 3), torch.zeros(4, 3), torch.zeros(2, dtype=torch.long)
CE = noiseproof.CE()
WRONG = [
    ((ZEROS, HEAD, LABELS, nn.CrossEntropyLoss()), TypeError, "loss of this package.*got CrossEntropyLoss"),
    ((ZEROS, HEAD, LABELS, noiseproof.CE), TypeError, "got CE"),
    ((ZEROS, HEAD, LABELS, noiseproof.LogitClip()), TypeError, r"LogitClip is no function.*F\.linear"),
    ((ZEROS, torch.zeros(4, 5), LABELS, CE), ValueError, r"hidden must have shape \[\.\.\., 5\]"),
    ((ZEROS, torch.zeros(3), LABELS, CE), ValueError, r"weight must have shape \[K, D\]"),
    ((ZEROS, torch.zeros(1, 3), LABELS, CE), ValueError, "at least 2 classes"),
    ((ZEROS, HEAD, LABELS, CE, torch.zeros(3)), ValueError, "bias must have one entry per class: 4"),
    ((ZEROS, HEAD, LABELS[:1], CE), ValueError, r"shape \(2,\) \(class indices\) or \(2, 4\)"),
    ((ZEROS, HEAD, torch.zeros(2), CE), TypeError, "integer dtype"),
    ((ZEROS, HEAD, torch.zeros(2, 4, dtype=torch.long), CE), TypeError, "floating dtype"),
    ((ZEROS, HEAD, LABELS.bool(), CE), TypeError, "class indices or class prob"),
    ((ZEROS, HEAD, LABELS + 4, CE), IndexError, r"target must be in \[0, 3\]"),
    ((ZEROS, HEAD.double(), LABELS, CE), TypeError, "one dtype.*autocast"),
    ((ZEROS.long(), HEAD, LABELS, CE), TypeError, "hidden must have a floating dtype"),
    ((ZEROS, [[1.0]], LABELS, CE), TypeError, "weight must be a tensor, got list"),
    ((ZEROS, HEAD, torch.zeros(2, 4, requires_grad=True), CE), TypeError, "no gradient for the target"),
    (
        (ZEROS, HEAD, LABELS, noiseproof.CE(weight=torch.ones(4, requires_grad=True))),
        TypeError,
        "no gradient for class weights",
    ),
]


@pytest.mark.parametrize(("arguments", "kind", "words"), WRONG, ids=[words for _, _, words in WRONG])
def test_what_is_wrong_is_said(arguments, kind, words):
    with pytest.raises(kind, match=words):
        linear_loss(*arguments)


def test_options_are_checked_when_the_module_is_built():
    for options, words in (({"chunk_bytes": 0}, "at least 1, got 0"), ({"chunk_bytes": 1.5}, "integer, got 1.5")):
        with pytest.raises((ValueError, TypeError), match=words):
            LinearLoss(3, 4, noiseproof.CE(), **options)
    with pytest.raises(TypeError, match="LDR is no function"):
        LinearLoss(3, 4, noiseproof.LDR())
    with pytest.raises(TypeError, match=r"torch\.nn\.Linear, got Conv2d"):
        LinearLoss.from_linear(nn.Conv2d(1, 1, 1), noiseproof.CE())
