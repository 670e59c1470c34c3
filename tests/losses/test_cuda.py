"""What only a GPU can show: the same numbers there, capture in a CUDA graph, no look at the labels' values on the host."""

import pytest
import torch

from tests.helpers.cases import ENTRIES, NAMES, RANDOM, STATISTIC, build, call, draw, gradient

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
EVERY = pytest.mark.parametrize("name", NAMES)


@EVERY
@pytest.mark.parametrize("classes", [2, 10, 1000])
def test_the_gpu_gives_the_cpus_numbers(name, classes):
    if name in RANDOM:
        pytest.skip("the two devices draw differently")
    if ENTRIES[name].reads == "features" and classes == 1000:
        pytest.skip("heads build one row per class; covered at 10")
    logits, target = draw(16, classes, scale=3.0, dtype=torch.float32)
    target[3] = -100
    loss = build(name, classes, reduction="none")
    on_gpu = build(name, classes, reduction="none").cuda()
    torch.testing.assert_close(
        call(on_gpu, logits.cuda(), target.cuda()).cpu(), call(loss, logits, target), rtol=2e-5, atol=1e-5
    )
    ours = gradient(on_gpu, logits.cuda(), target.cuda()).cpu()
    torch.testing.assert_close(ours, gradient(loss, logits, target), rtol=2e-4, atol=1e-6)


@EVERY
@pytest.mark.parametrize("options", [{}, {"label_smoothing": 0.1}, {"weight": True}], ids=str)
def test_a_step_is_captured_in_a_cuda_graph(name, options):
    if options.get("weight"):
        options = {"weight": torch.rand(10)}
    if name in RANDOM and options.get("label_smoothing"):
        pytest.skip("one draw per label")
    logits, target = (t.cuda() for t in draw(16, 10, dtype=torch.float32))
    loss = build(name, 10, **options).cuda()
    static = logits.clone().requires_grad_()

    def step():
        static.grad = None
        value = loss(static, target)
        value.backward()
        return value

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        value = step()
    fresh, _ = draw(16, 10, dtype=torch.float32, seed=9)
    with torch.no_grad():
        static.copy_(fresh.cuda())
    graph.replay()
    torch.cuda.synchronize()
    if name in RANDOM:
        assert bool(torch.isfinite(value))
        return
    torch.testing.assert_close(value, loss(fresh.cuda(), target))
    assert bool(torch.isfinite(static.grad).all())


@EVERY
def test_a_label_out_of_range_is_nan_and_reads_nothing(name):
    logits, target = (t.cuda() for t in draw(6, 5, dtype=torch.float32))
    target[1], target[4] = 5, -7
    for options in ({}, {"weight": torch.ones(5)}, {"label_smoothing": 0.1}):
        rows = call(build(name, 5, reduction="none", **options).cuda(), logits, target)
        assert torch.isnan(rows).tolist() == [False, True, False, False, True, False]
    torch.cuda.synchronize()


@EVERY
@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
def test_no_step_synchronises_with_the_host(name):
    logits, target = (t.cuda() for t in draw(16, 10, dtype=torch.float32))
    loss = build(name, 10).cuda()
    leaf = logits.requires_grad_()
    loss(leaf, target).backward()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        leaf.grad = None
        loss(leaf, target).backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("name", ["jal-ce", "jal-fl", "ce", "anl-ce", "nce+rce", "logitclip", "ece+mae"])
def test_compiled_for_the_gpu_it_gives_the_same(name):
    logits, target = (t.cuda() for t in draw(16, 10, dtype=torch.float32))
    loss = build(name, 10).cuda()
    torch.compiler.reset()
    compiled = torch.compile(loss, fullgraph=True)
    torch.testing.assert_close(compiled(logits, target), loss(logits, target))
    torch.testing.assert_close(gradient(compiled, logits, target), gradient(loss, logits, target), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@EVERY
def test_half_precision_is_finite_on_the_gpu(name, dtype):
    logits = torch.tensor([[1e4, -1e4, 0.0, 3.0, -1e4], [0.0] * 5, [-1e4] * 4 + [1e4]], dtype=dtype, device="cuda")
    target = torch.tensor([1, 2, 4], device="cuda")
    loss = build(name, 5, reduction="none").cuda()
    assert bool(torch.isfinite(call(loss, logits, target)).all())
    assert bool(torch.isfinite(gradient(loss, logits, target)).all())


@pytest.mark.parametrize("name", STATISTIC)
@pytest.mark.parametrize("rows", [128, 20000, 30000])  # of one program, shared out among several, and no longer small
def test_the_generated_kernel_agrees_with_float64(name, rows):
    logits, target = draw(rows, 10, scale=3.0, dtype=torch.float32)
    target[::5] = -100
    for options in ({}, {"reduction": "sum", "weight": torch.rand(10)}):
        loss = build(name, 10, **options).cuda()
        values, gradients = [], []
        for z in (logits.cuda(), logits.double().cuda()):
            leaf = z.requires_grad_()
            values.append(loss(leaf, target.cuda()))
            gradients += torch.autograd.grad(values[-1], leaf)
        torch.testing.assert_close(values[0].double(), values[1], rtol=1e-5, atol=0.0)
        assert (gradients[0] - gradients[1]).norm() <= 1e-5 * gradients[1].norm()
        assert not gradients[0][::5].any()


@pytest.mark.parametrize("name", ["ce", "jal-ce", "jal-fl", "anl-ce", "gce"])
def test_a_step_of_a_small_batch_is_three_kernels(name):
    """The loss with its gradient, the 1 that backward() starts from, and the gradient times that."""
    from torch.profiler import ProfilerActivity, profile

    logits, target = (t.cuda() for t in draw(128, 10, dtype=torch.float32))
    loss, leaf = build(name, 10).cuda(), logits.requires_grad_()
    for _ in range(3):
        leaf.grad = None
        loss(leaf, target).backward()
    leaf.grad = None
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        loss(leaf, target).backward()
        torch.cuda.synchronize()
    assert sum(str(event.device_type).endswith("CUDA") for event in profiler.events()) == 3


def test_of_no_row_that_counts_the_mean_is_nan_and_the_gradient_0_on_the_gpu():
    logits, target = (t.cuda() for t in draw(16, 10, dtype=torch.float32))
    leaf = logits.requires_grad_()
    value = build("jal-ce", 10).cuda()(leaf, torch.full_like(target, -100))
    assert value.isnan()
    assert not torch.autograd.grad(value, leaf)[0].any()
    empty = logits.detach()[:0].requires_grad_()
    assert build("jal-ce", 10).cuda()(empty, target[:0]).isnan()
    assert torch.autograd.grad(build("jal-ce", 10, reduction="sum").cuda()(empty, target[:0]), empty)[0].shape == (0, 10)
