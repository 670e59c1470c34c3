"""What torch does with a loss besides calling it: compile it, differentiate it in other ways, run it without values."""

import pytest
import torch
import torch.nn.functional as F
from torch.autograd import forward_ad

import noiseproof
from tests.helpers.cases import DETACHED, DISTINCT, ENTRIES, NAMES, RANDOM, VARIANTS, build, call, draw, gradient

EACH = pytest.mark.parametrize("name", DISTINCT)
EVERY = pytest.mark.parametrize("name", NAMES)
READS = {frozenset(build(name).needs or {name}): name for name in reversed(DISTINCT)}
"""One loss for each set of statistics that some loss reads, and each loss that reads something else."""
WIDEST = {name for read, name in READS.items() if build(name).needs and not any(read < other for other in READS)} | {"lt-apl"}
"""Those of them that read all that some other one reads, and one that reads something else."""


def others_slow(names, quick):
    """A second of compiling for each loss: those of ``quick`` in every run of the tests, the others with the slow ones."""
    return [pytest.param(name, marks=[pytest.mark.slow] * (name not in quick)) for name in names]


@pytest.mark.parametrize("name", others_slow(DISTINCT, READS.values()))
def test_compiled_without_graph_breaks_it_gives_the_same(name):
    compiled_gives_the_same(name)


def compiled_gives_the_same(name):
    logits, target = draw(6, 5, dtype=torch.float32)
    target[1] = -100
    loss = build(name, 5)
    torch.compiler.reset()
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(call(compiled, logits, target), call(loss, logits, target))
    torch.testing.assert_close(gradient(compiled, logits, target), gradient(loss, logits, target))


@pytest.mark.parametrize("name", others_slow([name for name in DISTINCT if ENTRIES[name].reads != "features"], READS.values()))
def test_compiled_its_function_gives_the_same(name):
    function = getattr(noiseproof.functional, ENTRIES[name].function_name)
    logits, target = draw(6, 5, dtype=torch.float32)
    torch.compiler.reset()
    compiled = torch.compile(lambda z, y: function(z, y), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(call(compiled, logits, target), call(build(name, 5), logits, target))


@pytest.mark.parametrize("dynamic", [pytest.param(None, marks=pytest.mark.slow), True])
@pytest.mark.parametrize("name", others_slow([name for name in DISTINCT if VARIANTS.get(name)], {*WIDEST, "amse", "gce"}))
def test_two_of_a_kind_and_two_batch_sizes_compile_one_after_the_other(name, dynamic):
    """A parameter that differs must not become a symbol that the program cannot handle."""
    torch.compiler.reset()
    for options in [{}, VARIANTS[name][0]]:
        loss = build(name, 5, **options)
        compiled = torch.compile(loss, fullgraph=True, backend="aot_eager", dynamic=dynamic)
        for rows in (6, 9):
            logits, target = draw(rows, 5, dtype=torch.float32)
            torch.testing.assert_close(call(compiled, logits, target), call(loss, logits, target))


@pytest.mark.slow
@EACH
def test_compiled_by_inductor_it_gives_the_same(name):
    logits, target = draw(6, 5, dtype=torch.float32)
    loss = build(name, 5)
    torch.compiler.reset()
    with torch._inductor.config.patch(fallback_random=True):
        compiled = torch.compile(loss, fullgraph=True)
        torch.testing.assert_close(call(compiled, logits, target), call(loss, logits, target))
        torch.testing.assert_close(gradient(compiled, logits, target), gradient(loss, logits, target))


@EACH
def test_per_example_gradients_by_torch_func(name):
    loss = build(name, 5).double()
    logits, target = draw(4, 5)
    torch.manual_seed(2)
    each = torch.func.vmap(torch.func.grad(lambda z, y: loss(z, y)), randomness="same")(logits, target)
    if name in RANDOM:
        assert bool(torch.isfinite(each).all())
        return
    expected = torch.stack([gradient(loss, z, y) for z, y in zip(logits, target, strict=True)])
    torch.testing.assert_close(each, expected)


@EACH
@pytest.mark.parametrize("soft", [False, True])
def test_a_gradient_through_a_vmap_is_that_of_each_example(name, soft):
    loss = build(name, 5).double()
    logits, target = draw(4, 5)
    if soft:
        target = torch.softmax(draw(4, 5, seed=5)[0], 1)
    leaf = logits.clone().requires_grad_()
    torch.func.vmap(loss, randomness="same")(leaf, target).sum().backward()
    assert leaf.grad is not None
    if name in RANDOM:
        assert bool(torch.isfinite(leaf.grad).all())
        return
    torch.testing.assert_close(leaf.grad, torch.stack([gradient(loss, z, y) for z, y in zip(logits, target, strict=True)]))
    mapped = torch.func.grad(lambda z: torch.func.vmap(loss)(z, target).sum())(logits)
    torch.testing.assert_close(mapped, leaf.grad)


@EACH
@pytest.mark.parametrize("classes", [5, 5000])
@pytest.mark.parametrize("soft", [False, True])
def test_several_gradients_of_one_call(name, classes, soft):
    if classes == 5000 and (name.startswith("lt") or (name in RANDOM and soft)):
        pytest.skip("a head of so many features, or draws for so many labels")
    logits, target = draw(4, classes, dtype=torch.float32)
    if soft:
        target = torch.softmax(draw(4, classes, seed=5, dtype=torch.float32)[0], 1)
    leaf = logits.requires_grad_()
    value = build(name, classes, reduction="none")(leaf, target)
    ups = torch.eye(4)
    several = torch.func.vmap(lambda up: torch.autograd.grad(value, leaf, up, retain_graph=True)[0])(ups)
    each = torch.stack([torch.autograd.grad(value, leaf, up, retain_graph=True)[0] for up in ups])
    torch.testing.assert_close(several, each)
    torch.testing.assert_close(torch.autograd.grad(value, leaf, ups, is_grads_batched=True)[0], each)


@EACH
def test_forward_mode_and_hessians(name):
    if name in RANDOM:
        pytest.skip("draws anew at each call")
    loss = build(name, 4).double()
    logits, target = draw(3, 4, scale=1.0)
    direction = torch.randn(3, 4, dtype=torch.float64)
    _, slope = torch.func.jvp(lambda z: loss(z, target), (logits,), (direction,))
    torch.testing.assert_close(slope, (gradient(loss, logits, target) * direction).sum())
    hessian = torch.func.hessian(lambda z: loss(z, target))(logits)
    torch.testing.assert_close(hessian, torch.func.jacrev(torch.func.jacrev(lambda z: loss(z, target)))(logits))
    by_autograd = torch.autograd.functional.hessian(lambda z: loss(z, target), logits, vectorize=True)
    torch.testing.assert_close(hessian, by_autograd)
    if name not in DETACHED:
        torch.testing.assert_close(hessian, torch.func.jacrev(torch.func.jacfwd(lambda z: loss(z, target)))(logits))


@EACH
@pytest.mark.parametrize("soft", [False, True])
def test_forward_mode_over_a_vmap_gives_the_slope_of_each_example(name, soft):
    if name in RANDOM:
        pytest.skip("draws anew at each call")
    loss = build(name, 4).double()
    logits, target = draw(3, 4, scale=1.0)
    if soft:
        target = torch.softmax(draw(3, 4, seed=5)[0], 1)
    direction = torch.randn(3, 4, dtype=torch.float64)

    def each(z):
        return torch.func.vmap(lambda row, label: loss(row[None], label[None]))(z, target)

    values, row_grads = torch.func.jvp(each, (logits,), (direction,))
    rows = range(len(logits))
    torch.testing.assert_close(values, torch.stack([loss(logits[i : i + 1], target[i : i + 1]) for i in rows]))
    torch.testing.assert_close(row_grads, (gradient(lambda z, _: each(z), logits, target) * direction).sum(1))


@EACH
@pytest.mark.parametrize("soft", [False, True])
def test_forward_mode_ad_gives_the_slope_as_it_does_for_cross_entropy(name, soft):
    loss = build(name, 4).double()
    logits, target = draw(3, 4, scale=1.0)
    if soft:
        target = torch.softmax(draw(3, 4, seed=5)[0], 1)
    direction = torch.randn(3, 4, dtype=torch.float64)
    for function in (lambda z, y: call(loss, z, y), F.cross_entropy):
        with forward_ad.dual_level():
            value, slope = forward_ad.unpack_dual(function(forward_ad.make_dual(logits, direction), target))
        leaf = logits.clone().requires_grad_()
        expected = function(leaf, target)
        (by_gradient,) = torch.autograd.grad(expected, leaf)
        torch.testing.assert_close(value, expected.detach())
        torch.testing.assert_close(slope, (by_gradient * direction).sum())


@EACH
def test_forward_over_reverse_gives_the_second_derivative(name):
    if name in RANDOM | DETACHED:
        pytest.skip("draws anew at each call, or has weights that are constants to the gradient")
    loss = build(name, 4).double()
    logits, target = draw(3, 4, scale=1.0)
    direction = torch.randn(3, 4, dtype=torch.float64)
    with forward_ad.dual_level():
        leaf = forward_ad.make_dual(logits.clone().requires_grad_(), direction)
        (row_grads,) = torch.autograd.grad(loss(leaf, target), leaf)
        tangent = forward_ad.unpack_dual(row_grads).tangent
    leaf = logits.clone().requires_grad_()
    (row_grads,) = torch.autograd.grad(loss(leaf, target), leaf, create_graph=True)
    (expected,) = torch.autograd.grad((row_grads * direction).sum(), leaf)
    torch.testing.assert_close(tangent, expected)


@EACH
@pytest.mark.parametrize("options", [{}, {"label_smoothing": 0.1, "reduction": "none"}], ids=str)
def test_meta_tensors_pass_as_they_do_through_cross_entropy(name, options):
    logits, labels = draw(6, 5, dtype=torch.bfloat16)
    for target in (labels, torch.softmax(logits, 1)):
        expected = F.cross_entropy(logits, target, **options)
        leaf = logits.to("meta").requires_grad_()
        value = build(name, 5, weight=torch.rand(5), **options).to("meta")(leaf, target.to("meta"))
        assert (value.device.type, value.dtype, value.shape) == ("meta", expected.dtype, expected.shape)
        value.sum().backward()
        assert (leaf.grad.device.type, leaf.grad.dtype, leaf.grad.shape) == ("meta", leaf.dtype, leaf.shape)


@EVERY
def test_a_loss_can_be_made_on_the_meta_device(name):
    with torch.device("meta"):
        loss = build(name, 5)
        value = loss(torch.zeros(6, 5), torch.zeros(6, dtype=torch.long))
    assert value.device.type == "meta"
    assert all(tensor.device.type == "meta" for tensor in loss.state_dict().values())
