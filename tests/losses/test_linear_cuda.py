"""The loss of a linear head where only a GPU can show it: the CPU's numbers, capture in a CUDA graph, memory."""

import pytest
import torch
import torch.nn.functional as F

import noiseproof
from noiseproof import linear_loss

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
NAMES = ["ce", "gce", "jal-ce", "jal-fl", "anl-ce"]
WAYS = pytest.mark.parametrize("recompute", [False, True], ids=["at once", "recomputed"])


def draw(rows, width, classes, dtype=torch.float32, device="cuda"):
    generator = torch.Generator().manual_seed(0)
    hidden, weight = (torch.randn(n, width, generator=generator) * s for n, s in ((rows, 1.0), (classes, 2 / width**0.5)))
    target = torch.randint(classes, (rows,), generator=generator)
    target[3] = -100
    return [t.to(device, dtype).requires_grad_() for t in (hidden, weight)], target.to(device)


def with_gradients(loss, leaves):
    return [loss.detach(), *torch.autograd.grad(loss, leaves)]


@WAYS
@pytest.mark.parametrize("options", [{}, {"label_smoothing": 0.1}], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_the_gpu_gives_the_cpus_numbers(name, options, recompute):
    found = []
    for device in ("cpu", "cuda"):
        leaves, target = draw(70, 32, 3000, device=device)
        loss = linear_loss(
            *leaves, target, noiseproof.create_loss(name, **options), recompute=recompute, chunk_bytes=20 * 3000 * 4
        )
        found.append([t.cpu() for t in with_gradients(loss, leaves)])
    torch.testing.assert_close(found[1], found[0], rtol=1e-3, atol=1e-7)


@WAYS
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("way", ["bfloat16", "float16", "autocast"])
def test_half_precision_is_as_exact_as_two_steps(name, way, recompute):
    dtype = {"bfloat16": torch.bfloat16, "float16": torch.float16, "autocast": torch.float32}[way]
    leaves, target = draw(512, 128, 5000, dtype)
    criterion = noiseproof.create_loss(name)
    exact_leaves = [leaf.detach().double().requires_grad_() for leaf in leaves]
    exact = with_gradients(criterion(F.linear(*exact_leaves), target), exact_leaves)
    with torch.autocast("cuda", torch.bfloat16, enabled=way == "autocast"):
        ours = linear_loss(*leaves, target, criterion, recompute=recompute, chunk_bytes=128 * 5000 * 4)
        plain = criterion(F.linear(*leaves), target)
    eps = torch.finfo(torch.bfloat16 if way == "autocast" else dtype).eps
    for one, other, truth in zip(with_gradients(ours, leaves), with_gradients(plain, leaves), exact, strict=True):
        errors = [(torch.dist(t.double(), truth) / truth.norm()).item() for t in (one, other)]
        assert errors[0] <= errors[1] + eps, errors


@WAYS
def test_a_step_is_captured_in_a_cuda_graph(recompute):
    leaves, target = draw(64, 32, 2000)
    criterion = noiseproof.JALCE()

    def step():
        return with_gradients(linear_loss(*leaves, target, criterion, recompute=recompute, chunk_bytes=20 * 2000 * 4), leaves)

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    with torch.no_grad():
        leaves[0].mul_(0.5)
    graph.replay()
    torch.cuda.synchronize()
    torch.testing.assert_close(captured, step(), rtol=1e-4, atol=1e-7)


@WAYS
def test_memory_is_that_of_a_chunk(recompute):
    rows, width, classes = 4096, 64, 32768
    leaves, target = draw(rows, width, classes, torch.bfloat16)
    logits = rows * classes * 2
    linear_loss(*leaves, target, noiseproof.JALCE(), recompute=recompute, chunk_bytes=logits // 8).backward()
    for leaf in leaves:
        leaf.grad = None
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    linear_loss(*leaves, target, noiseproof.JALCE(), recompute=recompute, chunk_bytes=logits // 8).backward()
    extra = torch.cuda.max_memory_allocated() - before - sum(leaf.nbytes for leaf in leaves)
    assert extra < logits / 4, f"{extra / logits:.2f} of the logits"
