"""The operation under all losses: against its plain definition, by itself, in chunks, and by what it allocates."""

import math
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.nn.functional as F
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode

import noiseproof
from noiseproof.core import backends, reference, small
from noiseproof.core.backends import Backend, backend_for, register_backend
from noiseproof.core.dispatch_state import is_compiling
from noiseproof.core.operation import row_statistics_backward, row_statistics_op, statistics_of_rows
from noiseproof.core.row_sums import RowSum, encode, key_of, plain_statistics
from noiseproof.core.statistics import Statistic, every_label_statistics, row_statistics

ALL = [
    RowSum("nll"),
    RowSum("power", 2.0),
    RowSum("power", 0.1),
    RowSum("power", 3.0),
    RowSum("focal", 0.5),
    RowSum("focal", 2.0, 0.0, True),
    RowSum("clipped_focal", 0.0, 1e-3),
    RowSum("clipped_focal", 0.5, 1e-3, True),
    RowSum("clipped_focal", 2.0, 1e-3),
    RowSum("margin"),
]

KEYS = [key_of(row_sum) for row_sum in ALL]


def draw(rows, classes, dtype=torch.float64):
    generator = torch.Generator().manual_seed(classes)
    logits = 3 * torch.randn(rows, classes, generator=generator, dtype=torch.float64)
    return logits.to(dtype), torch.randint(classes, (rows,), generator=generator)


def primitives_of(logits, target, keys):
    return torch.stack(statistics_of_rows(logits, target, ";".join(keys)))


@pytest.fixture
def large(monkeypatch):
    """No batch counts as small."""
    monkeypatch.setattr(small, "MAX_SMALL_BATCH", 0)


@pytest.mark.parametrize("limit", [small.MAX_SMALL_BATCH, 0], ids=["small", "large"])
@pytest.mark.parametrize("classes", [2, 5, 64, 65, 1000])  # up to 64 a large batch's gradient is formed from e - 1
@pytest.mark.parametrize("row_sum", ALL, ids=str)
def test_values_and_gradients_are_those_of_the_plain_definition(row_sum, classes, limit, monkeypatch):
    monkeypatch.setattr(small, "MAX_SMALL_BATCH", limit)
    logits, target = draw(9, classes)
    logits.requires_grad_()
    ours, plain = primitives_of(logits, target, [key_of(row_sum)]), plain_statistics(logits, target, encode([row_sum]))
    torch.testing.assert_close(ours, plain, rtol=1e-9, atol=1e-11)
    upstream = torch.rand(ours.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    (our_gradient,) = torch.autograd.grad(ours, logits, upstream)
    (plain_gradient,) = torch.autograd.grad(plain, logits, upstream)
    torch.testing.assert_close(our_gradient, plain_gradient, rtol=1e-9, atol=1e-11)


def test_asking_for_all_at_once_is_asking_for_each():
    logits, target = draw(9, 7)
    together = primitives_of(logits, target, KEYS)
    for i, row_sum in enumerate(ALL, start=2):
        torch.testing.assert_close(
            together[[0, 1, i]], primitives_of(logits, target, [key_of(row_sum)]), rtol=1e-12, atol=1e-12
        )
    backwards = ALL[::-1]  # the margin, which is no sum, before the others
    torch.testing.assert_close(plain_statistics(logits, target, encode(backwards))[2:], together[2:].flip(0))


@pytest.mark.parametrize("rows_per_chunk", [1, 2, 4, 9, 100])
@pytest.mark.usefixtures("large")
def test_the_size_of_a_chunk_makes_no_difference(monkeypatch, rows_per_chunk):
    logits, target = draw(9, 7, torch.float32)
    logits.requires_grad_()
    upstream = torch.ones(2 + len(ALL), 9)
    results = []
    for chunk in (10**6, 7 * rows_per_chunk):
        monkeypatch.setattr(reference, "CPU_CHUNK", chunk)
        values = primitives_of(logits, target, KEYS)
        results.append((values.detach(), *torch.autograd.grad(values, logits, upstream)))
    for whole, chunked in zip(*results, strict=True):
        torch.testing.assert_close(chunked, whole, rtol=0, atol=0)


def test_threads_at_work_at_once_do_not_disturb_each_other():
    loss = noiseproof.JALCE()
    cases = [draw(64, 300 + i, torch.float32) for i in range(4)]

    def gradient(logits, target):
        leaf = logits.clone().requires_grad_()
        return torch.autograd.grad(loss(leaf, target), leaf)[0]

    alone = [gradient(*case) for case in cases]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(20):
            for ours, expected in zip(pool.map(lambda case: gradient(*case), cases), alone, strict=True):
                assert torch.equal(ours, expected)


def test_a_first_call_in_inference_mode_leaves_nothing_behind():
    def calls():
        logits, target = draw(9, 7, torch.float32)
        with torch.inference_mode():
            noiseproof.JALCE()(logits, target)
        noiseproof.JALCE()(logits.requires_grad_(), target).backward()

    with ThreadPoolExecutor(1) as pool:  # a new thread has not worked yet
        pool.submit(calls).result()


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # torch 2.15 of its own test
def test_torch_finds_nothing_wrong_with_the_operations():
    logits, target = draw(5, 4)
    needs_key = encode(ALL)
    torch.library.opcheck(row_statistics_op, (logits.requires_grad_(), target, needs_key))
    values, saved = (t.detach() for t in row_statistics_op(logits, target, needs_key))
    grads = torch.rand_like(values)
    checks = ("test_schema", "test_faketensor", "test_autograd_registration")
    torch.library.opcheck(row_statistics_backward, (grads, logits, target, values, saved, needs_key), test_utils=checks)


class Watch(TorchDispatchMode):
    """Notes the names of what is called."""

    def __init__(self):
        super().__init__()
        self.names = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.add(str(function))
        return function(*args, **(kwargs or {}))


def test_who_watches_sees_the_operations_and_not_their_insides():
    logits, target = draw(5, 4)
    logits.requires_grad_()
    expected = torch.autograd.grad(primitives_of(logits, target, KEYS).sum(), logits)[0]
    with Watch() as watch:
        gradient = torch.autograd.grad(primitives_of(logits, target, KEYS).sum(), logits)[0]
    torch.testing.assert_close(gradient, expected)
    assert {"noiseproof.row_statistics_4.default", "noiseproof.row_statistics_backward.default"} <= watch.names
    assert "aten.scatter_.value" not in watch.names


@pytest.fixture
def fake_backend(monkeypatch):
    """A backend for the CPU that is the reference and notes its calls."""
    calls = []

    def forward(*args):
        calls.append("forward")
        return reference.forward(*args)

    def backward(*args):
        calls.append("backward")
        return reference.backward(*args)

    monkeypatch.setattr(backends, "_registered", {})
    monkeypatch.delenv(backends.BACKEND_VARIABLE, raising=False)
    register_backend("cpu", Backend("fake", forward, backward))
    return calls


def operations_of(loss, logits, target):
    """The functions called by the graphs of the loss and its gradient, compiled, which are also run."""
    names = []

    def look(graph, inputs):
        names.extend(str(node.target) for node in graph.graph.nodes if node.op == "call_function")
        return make_boxed_func(graph.forward)

    torch.compiler.reset()
    leaf = logits.clone().requires_grad_()
    torch.compile(loss, fullgraph=True, backend=aot_autograd(fw_compiler=look))(leaf, target).backward()
    torch.testing.assert_close(leaf.grad, gradient_of(loss, logits, target))
    return {name.removesuffix(".default") for name in names}


def gradient_of(loss, logits, target):
    leaf = logits.clone().requires_grad_()
    return torch.autograd.grad(loss(leaf, target), leaf)[0]


PASSES = {"noiseproof.row_statistics_4", "noiseproof.row_statistics_backward"}


def test_a_registered_backend_runs_eager_and_compiled(fake_backend, monkeypatch):
    logits, target = draw(9, 7, torch.float32)
    gradient_of(noiseproof.JALCE(), logits, target)
    assert fake_backend == ["forward", "backward"]
    # Where the reference would be traced, as on a GPU, a kernel must still be an operation in the graph, or it would never run.
    monkeypatch.setattr(reference, "on_cpu", lambda tensor: not is_compiling())
    fake_backend.clear()
    assert operations_of(noiseproof.JALCE(), logits, target) >= PASSES
    assert fake_backend == ["forward", "backward"] * 2  # compiled, and eager to compare
    monkeypatch.setenv("NOISEPROOF_BACKEND", "reference")
    fake_backend.clear()
    assert not operations_of(noiseproof.JALCE(), logits, target) & PASSES
    assert fake_backend == []


def test_a_compiler_sees_through_the_reference():
    assert not operations_of(noiseproof.JALCE(), *draw(9, 7, torch.float32)) & PASSES


def test_compiled_for_the_cpu_a_label_out_of_range_is_refused_too():
    logits, target = draw(9, 7, torch.float32)
    torch.compiler.reset()
    compiled = torch.compile(noiseproof.JALCE(), fullgraph=True, backend="aot_eager")
    compiled(logits, target)
    for wrong in (7, -1):
        with pytest.raises((IndexError, RuntimeError), match="out of bounds"):
            compiled(logits, target.index_fill(0, torch.tensor([3]), wrong))


def test_a_small_batch_can_be_differentiated_again_and_again():
    logits, target = draw(9, 7)
    values = primitives_of(logits.requires_grad_(), target, KEYS)
    first, second = (torch.autograd.grad(values.sum(), logits, retain_graph=True)[0] for _ in range(2))
    assert torch.equal(first, second)
    (graph,) = torch.autograd.grad(values.sum(), logits, create_graph=True)
    torch.testing.assert_close(graph, first)


def test_an_unknown_backend_is_refused(fake_backend, monkeypatch):
    logits, target = draw(9, 7)
    monkeypatch.setenv("NOISEPROOF_BACKEND", "tritton")
    with pytest.raises(ValueError, match="NOISEPROOF_BACKEND must be reference or fake for logits on cpu, got 'tritton'"):
        noiseproof.CE()(logits, target)
    for known in ("fake", "reference", ""):
        monkeypatch.setenv("NOISEPROOF_BACKEND", known)
        assert backend_for(logits).name == (known or "fake")


def test_tensors_without_values_pass_through():
    with FakeTensorMode():
        logits, target = torch.randn(5, 4, requires_grad=True), torch.zeros(5, dtype=torch.long)
        values = primitives_of(logits, target, KEYS)
        values.sum().backward()
    assert values.shape == (2 + len(KEYS), 5)
    assert logits.grad.shape == logits.shape


def test_second_derivatives_under_autograd_and_torch_func():
    logits, target = draw(3, 4)
    needs = ALL[:6]
    assert torch.autograd.gradgradcheck(
        lambda z: primitives_of(z, target, [key_of(p) for p in needs if not p.detach]), logits.requires_grad_()
    )
    twice = torch.func.jacrev(torch.func.jacrev(lambda z: primitives_of(z, target, KEYS[:6]).sum()))(logits.detach())
    expected = torch.func.jacrev(torch.func.jacrev(lambda z: plain_statistics(z, target, encode(needs)).sum()))(logits.detach())
    torch.testing.assert_close(twice, expected)


@pytest.mark.parametrize("in_dims", [(0, 0), (1, 1), (0, None), (None, 0)])
def test_vmap_over_any_axis_is_a_loop(in_dims):
    logits, target = draw(3 * 5, 4)
    logits, target = logits.reshape(3, 5, 4), target.reshape(3, 5)
    args = [t if d == 0 else t.movedim(0, 1) if d == 1 else t[0] for t, d in zip((logits, target), in_dims, strict=True)]
    mapped = torch.func.vmap(lambda z, y: primitives_of(z, y, KEYS), in_dims)(*args)
    rows = [(logits[i if in_dims[0] is not None else 0], target[i if in_dims[1] is not None else 0]) for i in range(3)]
    torch.testing.assert_close(mapped, torch.stack([primitives_of(z, y, KEYS) for z, y in rows]))


@pytest.mark.parametrize("classes", [2, 3, 10])
def test_statistics_of_every_label_are_the_statistics_of_each(classes):
    logits, _ = draw(6, classes)
    focal = Statistic.focal_sum(0.5), Statistic.clipped_focal_sum(0.5, 1e-3)
    needs = (Statistic.NLL, Statistic.NLL_SUM, Statistic.SQ_SUM, Statistic.MARGIN, *focal)
    every = every_label_statistics(logits, needs)
    for label in range(classes):
        one = row_statistics(logits, torch.full((6,), label), needs)
        torch.testing.assert_close(every.nll[:, label], one.nll)
        torch.testing.assert_close(every.log1m_p_target[:, label], one.log1m_p_target)
        for key, value in one.sums.items():
            torch.testing.assert_close(every.sums[key][:, label], value, rtol=1e-7, atol=1e-9)


def test_named_statistics_are_what_their_names_say():
    logits, target = draw(6, 5)
    p = torch.softmax(logits, 1)
    own = p.gather(1, target[:, None])[:, 0]
    s = row_statistics(logits, target, (Statistic.NLL_SUM, Statistic.SQ_SUM, Statistic.MARGIN, Statistic.power_sum(3)))
    torch.testing.assert_close(s.nll, -own.log())
    torch.testing.assert_close(s.p_others, 1 - own)
    torch.testing.assert_close(s.p_target, own)
    torch.testing.assert_close(s.nll_sum, -p.log().sum(1))
    torch.testing.assert_close(s.nll_others, -p.log().sum(1) + own.log())
    torch.testing.assert_close(s.sq_sum, p.square().sum(1))
    torch.testing.assert_close(s.sq_others, p.square().sum(1) - own**2)
    cubes = Statistic.power_sum(3)
    torch.testing.assert_close(s.own(cubes) + s.others(cubes), (p**3).sum(1))
    others = logits.scatter(1, target[:, None], -math.inf)
    torch.testing.assert_close(s.margin, logits.gather(1, target[:, None])[:, 0] - others.amax(1))


def logit_sized_allocations(run, size):
    """The allocations of at least ``size`` bytes while ``run`` runs, and the most that were alive at once."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        run()
    alive = most = count = 0
    for event in profiler.profiler.kineto_results.events():
        if event.name() != "[memory]":
            continue
        change = event.nbytes()
        if abs(change) >= size:
            count += change > 0
            alive += 1 if change > 0 else -1
            most = max(most, alive)
    return count, most


def test_jal_ce_allocates_at_most_two_tensors_of_the_logits_size():
    logits = torch.randn(1024, 1000, generator=torch.Generator().manual_seed(0), requires_grad=True)
    target = torch.randint(1000, (1024,), generator=torch.Generator().manual_seed(1))
    size = logits.numel() * logits.element_size()

    def step(loss):
        logits.grad = None
        loss(logits, target).backward()

    count, most = logit_sized_allocations(lambda: step(noiseproof.JALCE()), size)
    assert count <= 2
    assert most <= 2

    def plain(z, y):
        log_p, one_hot = F.log_softmax(z, 1), F.one_hot(y, 1000)
        return ((one_hot * log_p).sum(1) / log_p.sum(1) + ((30 * one_hot - log_p.exp()) ** 2).mean(1)).mean()

    assert logit_sized_allocations(lambda: step(plain), size)[0] > 10  # the counter counts


@pytest.mark.parametrize("name", ["jal-ce", "jal-fl", "ce", "anl-ce"])
def test_nothing_of_the_logits_size_is_kept_for_the_backward(name):
    """Besides the logits themselves."""
    logits = torch.randn(64, 1000, generator=torch.Generator().manual_seed(0), requires_grad=True)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        noiseproof.create_loss(name)(logits, torch.arange(64))
    large = [t for t in kept if t.numel() >= logits.numel()]
    assert all(t.data_ptr() == logits.data_ptr() for t in large)
    assert len(large) == 1


def test_rows_far_beyond_underflow_stay_fast_and_finite():
    """exp of very negative numbers takes a slow path in vector libraries; the op must not enter it (values, not time, here)."""
    logits = torch.full((4, 100), -1e4)
    logits[:, 0] = 1e4
    for label in (0, 1):
        values = primitives_of(logits, torch.full((4,), label), KEYS)
        assert bool(torch.isfinite(values).all())


def test_a_focal_statistic_is_differentiated_whole_unless_detached():
    assert Statistic.focal_sum(0.5) == Statistic.focal_sum(0.5, detach=False) != Statistic.focal_sum(0.5, detach=True)
    assert Statistic.clipped_focal_sum(0.5, 1e-3) == Statistic.clipped_focal_sum(0.5, 1e-3, detach=False)
    assert Statistic.clipped_focal_sum(0.5, 1e-3) != Statistic.clipped_focal_sum(0.5, 1e-3, detach=True)
