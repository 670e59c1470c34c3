"""The Triton kernels of the fast path against float64: on a GPU, or else on the CPU by Triton's interpreter."""

import os
import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.func import functional_call

import noiseproof
from noiseproof.models import create_model
from noiseproof.models.base import activated
from noiseproof.train import Recipe
from noiseproof.train.engine import Optimiser

pytest.importorskip("triton", reason="needs Triton")

from noiseproof.train.fast.first_conv import FirstConv
from noiseproof.train.fast.graph import _loss_of, _use_triton_layers
from noiseproof.train.fast.metrics import StepMetrics
from noiseproof.train.fast.norm import FusedNorm
from noiseproof.train.fast.packed_weights import PackedWeights
from noiseproof.train.fast.sgd import BLOCK, FusedSgd
from noiseproof.train.fast.streams import OverlappedConv, OverlappedLinear, SideStream, take_alias

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
ROUNDING = {torch.float32: 1e-6, torch.bfloat16: 6e-3}
HALF = pytest.param(
    torch.bfloat16, marks=pytest.mark.skipif(DEVICE.type == "cpu", reason="the interpreter has no bfloat16 products")
)


def drawn(*shape, dtype=torch.float32, seed=0, centre=0.0):
    """Normal numbers, images in channels-last order."""
    values = (torch.randn(shape, generator=torch.Generator().manual_seed(seed)) + centre).to(DEVICE, dtype)
    return values.contiguous(memory_format=torch.channels_last) if len(shape) == 4 else values


def away(value, expected):
    return ((value.double() - expected).norm() / expected.norm().clamp_min(1e-30)).item()


def norms(channels, dim):
    """A BatchNorm with parameters and statistics that are not those of a new one, and the same in float64."""
    layers = [(nn.BatchNorm2d if dim == 4 else nn.BatchNorm1d)(channels, momentum=0.3).to(DEVICE) for _ in range(2)]
    for tensor in layers[0].state_dict().values():
        if tensor.is_floating_point():
            tensor.copy_(drawn(*tensor.shape, seed=tensor.numel()).abs() + 0.1)
    with torch.no_grad():
        layers[0].weight[::3].neg_()
    layers[1].load_state_dict(layers[0].state_dict())
    return layers[0], layers[1].double()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("shape", "options"),
    [
        ((6, 16, 8, 8), {}),
        ((6, 72, 4, 6), {"shortcut": True}),
        ((6, 100, 4, 6), {"pool": True}),
        ((6, 72, 4, 6), {"relu": False}),
        ((37, 200), {}),
        pytest.param((2, 3, 130, 130), {}, marks=pytest.mark.slow),  # more positions than the programs read at a time
    ],
    ids=["relu", "shortcut", "pool", "alone", "features", "large"],
)
def test_a_norm_is_torchs_own(shape, options, dtype):
    """Values, gradients of everything, and running statistics."""
    relu = options.get("relu", True)
    norm, exact = norms(shape[1], len(shape))
    inputs = [drawn(*shape, dtype=dtype, centre=3.0).requires_grad_()]
    if "shortcut" in options:
        inputs.append(drawn(*shape, dtype=dtype, seed=1).requires_grad_())
    fused = FusedNorm(norm, DEVICE)
    out = fused.activated(*inputs, pool="pool" in options) if relu else fused(*inputs)
    twins = [tensor.detach().double().requires_grad_() for tensor in inputs]
    expected = activated(exact, *twins, pool="pool" in options) if relu else exact(*twins)
    assert out.shape == expected.shape
    assert out.is_contiguous(memory_format=torch.channels_last if len(shape) == 4 else torch.contiguous_format)
    slope = drawn(*out.shape, dtype=dtype, seed=2)
    ours = torch.autograd.grad(out, [*inputs, fused.weight, fused.bias], slope)
    theirs = torch.autograd.grad(expected, [*twins, exact.weight, exact.bias], slope.double())
    assert away(out, expected) < ROUNDING[dtype]
    # Rounded to bfloat16, two of the four under a maximum may be equal, and the first of them is it; float64 tells them apart.
    loose = 10 if "pool" in options and dtype == torch.bfloat16 else 1
    for one, other in zip(ours, theirs, strict=True):
        assert away(one, other) < loose * ROUNDING[dtype]
    assert away(fused.running_mean, exact.running_mean) < 1e-5
    assert away(fused.running_var, exact.running_var) < 1e-5
    assert not fused.counter.any()  # ready for the next step


@pytest.mark.parametrize("options", [{}, {"shortcut": True}, {"pool": True}], ids=["relu", "shortcut", "pool"])
def test_two_layers_may_read_a_norm(options):
    """Each has a tensor of its own, and the gradients of both come to the norm."""
    norm, exact = norms(16, 4)
    inputs = [drawn(3, 16, 4, 4, seed=seed).requires_grad_() for seed in range(2 if "shortcut" in options else 1)]
    fused = FusedNorm(norm, DEVICE)
    out = fused.activated(*inputs, pool="pool" in options)
    readers = [take_alias(out), take_alias(out)]
    assert readers[1] is out
    assert readers[0] is not out
    assert readers[0].data_ptr() == out.data_ptr()
    slopes = [drawn(*out.shape, seed=seed) for seed in (2, 3)]
    ours = torch.autograd.grad(readers, [*inputs, fused.weight, fused.bias], slopes)
    twins = [tensor.detach().double().requires_grad_() for tensor in inputs]
    expected = activated(exact, *twins, pool="pool" in options)
    theirs = torch.autograd.grad(expected, [*twins, exact.weight, exact.bias], (slopes[0] + slopes[1]).double())
    for one, other in zip(ours, theirs, strict=True):
        assert away(one, other) < ROUNDING[torch.float32]


@pytest.mark.parametrize("first", [1000.0, 900.0], ids=["typical", "odd"])
def test_a_mean_far_from_zero_costs_no_digits(first):
    """The variance of numbers around 1000 with deviation 1; as a difference of squares in float32 it would be 6 % off."""
    norm, exact = norms(8, 2)
    x = drawn(4096, 8, centre=1000.0)
    x[0] = first
    assert away(FusedNorm(norm, DEVICE)(x), exact(x.double())) < 1e-4
    assert away(norm.running_var, exact.running_var) < 1e-5


def test_nan_goes_through_a_norm():
    """A loss that is not a number must be seen at the end, whatever ReLU and maxima do."""
    for pool in (False, True):
        norm, _ = norms(8, 4)
        x = drawn(2, 8, 4, 4)
        x[0, 3, 1, 1] = torch.nan
        out = FusedNorm(norm, DEVICE).activated(x, pool=pool)
        assert out[:, 3].isnan().all()
        assert not out[:, :3].isnan().any()


@pytest.mark.parametrize(
    ("model", "options"),
    [("cnn8", {"widths": (8, 16, 24)}), pytest.param("cnn8", {"widths": (8, 5, 8)}, marks=pytest.mark.slow), ("resnet18", {})],
    ids=["narrow", "narrower", "residual"],
)
def test_a_network_of_our_kernels_is_the_networks_own(model, options, monkeypatch):
    """In float32: the logits, and the gradient of every weight."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    if model == "resnet18" and DEVICE.type == "cpu":
        pytest.skip("too slow in the interpreter")
    plain, network = (create_model(model, 10, **options).to(DEVICE) for _ in range(2))
    network.load_state_dict(plain.state_dict())
    packed = PackedWeights(network, multiple=4, half=False)
    _use_triton_layers(packed.template, SideStream(None), DEVICE, "float32")
    kinds = [type(module) for module in packed.template.modules()]
    assert kinds.count(FirstConv) == 1
    assert OverlappedConv in kinds
    assert kinds.count(OverlappedLinear) == (2 if model == "cnn8" else 1)
    assert FusedNorm in kinds
    inputs, target = drawn(3, 3, 32, 32), torch.arange(3, device=DEVICE)
    padded = torch.zeros((3, 4, 32, 32), device=DEVICE).to(memory_format=torch.channels_last)
    padded[:, :3] = inputs
    logits = functional_call(packed.template, {**packed.leaves, **packed.buffers}, (padded,))
    expected = plain.double()(inputs.double())
    assert away(logits, expected) < 1e-4
    gradients = torch.autograd.grad(nn.functional.cross_entropy(logits, target), list(packed.leaves.values()))
    nn.functional.cross_entropy(expected, target).backward()
    largest = max(parameter.grad.abs().max() for parameter in plain.parameters())
    for name, gradient in zip(packed.leaves, gradients, strict=True):
        theirs = plain.get_parameter(name).grad
        own = gradient[tuple(slice(size) for size in theirs.shape)]
        torch.testing.assert_close(own.double(), theirs, rtol=1e-3, atol=1e-4 * largest.item())


def test_runs_share_the_code_of_a_loss_but_not_its_tensors():
    """What is compiled for one run is used by another whose class weights print alike."""
    weights = [torch.rand(20, generator=torch.Generator().manual_seed(seed)) + 0.5 for seed in (0, 1)]
    first, second = (noiseproof.create_loss("ce", weight=weight) for weight in weights)
    assert repr(first) == repr(second)
    logits, target = torch.randn(6, 20), torch.arange(6)
    assert torch.equal(_loss_of(first)(dict(second.named_buffers()), logits, target), second(logits, target))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("classes", [3, 10, 100, 1000, 1100])
def test_the_tally_counts_what_is_predicted(classes, dtype):
    """Two batches, the second smaller; some predictions are equal to others, and the logits are part of a wider tensor."""
    metrics, losses, counts = StepMetrics(5, DEVICE), [0.25, 1.5], torch.zeros(2, dtype=torch.int64)
    several_programs = 1000 if classes <= 100 else 40
    for seed, (rows, loss) in enumerate(zip((several_programs, 30), losses, strict=True)):
        logits = drawn(rows, classes + 6, seed=seed).mul(3).round().to(dtype)[:, :classes]
        labels = torch.randint(classes, (2, rows), generator=torch.Generator().manual_seed(seed))
        first_of_equals = (logits == logits.amax(1, keepdim=True)).int().argmax(1).cpu()
        for kind, every in enumerate((5, 2)):
            labels[kind, ::every] = first_of_equals[::every]
        metrics.add(logits, labels.to(DEVICE), torch.tensor(loss, device=DEVICE))
        counts += (labels == first_of_equals).sum(1)
    assert metrics.counts.tolist() == counts.tolist()
    assert counts[1] > counts[0] > 0
    assert metrics.losses.tolist() == [*losses, 0.0, 0.0, 0.0]
    assert metrics.step.item() == 2
    metrics.restart()
    metrics.add(logits, labels.to(DEVICE), torch.tensor(4.0, device=DEVICE))
    assert metrics.losses.tolist()[:2] == [4.0, 1.5]
    assert metrics.counts.tolist() == (labels == first_of_equals).sum(1).tolist()


@pytest.mark.parametrize(
    ("model", "precision"),
    [("cnn8", "bf16"), *(pytest.param("resnet18", kind, marks=pytest.mark.slow) for kind in ("bf16", "tf32"))],
)
def test_the_kernels_compile_for_a_gpu(model, precision, tmp_path):
    pytest.importorskip("triton", minversion="3.3", reason="compiling ahead has another interface there")
    environment = {**os.environ, "TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-m", "tests.helpers.compiled_ahead", model, precision]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-3000:]
    kernels = {"moments", "forward", "backward_sums", "backward_inputs", "_conv_forward", "_conv_weights"}
    assert set(ended.stdout.split()) == kernels | {"_square_sums", "_scale", "_step", "_step_metrics"}


def test_what_the_kernels_do_not_pool_is_refused():
    norm, _ = norms(8, 4)
    with pytest.raises(ValueError, match="even size, without a shortcut"):
        FusedNorm(norm, DEVICE).activated(drawn(2, 8, 5, 4), pool=True)


@pytest.mark.parametrize("dtype", [torch.float32, HALF])
@pytest.mark.parametrize(("inner", "outer"), [(4, 64), (8, 72)])
def test_a_first_convolution_is_torchs_own(inner, outer, dtype):
    conv = nn.Conv2d(inner, outer, 3, padding=1, bias=False).to(DEVICE, dtype).to(memory_format=torch.channels_last)
    assert FirstConv.suits(conv)
    x = drawn(3, inner, 8, 6, dtype=dtype)
    weight = conv.weight.detach().double().requires_grad_()
    out, expected = FirstConv(conv, "ieee")(x), nn.functional.conv2d(x.double(), weight, padding=1)
    slope = drawn(*out.shape, dtype=dtype, seed=2)
    (ours,), (theirs,) = torch.autograd.grad(out, [conv.weight], slope), torch.autograd.grad(expected, [weight], slope.double())
    assert out.is_contiguous(memory_format=torch.channels_last)
    assert ours.stride() == conv.weight.stride()
    assert away(out, expected) < ROUNDING[dtype]
    assert away(ours, theirs) < ROUNDING[dtype]


def test_a_first_convolution_that_is_not_the_first_is_refused():
    conv = nn.Conv2d(4, 8, 3, padding=1, bias=False).to(DEVICE)
    with pytest.raises(ValueError, match="no gradient goes to the inputs"):
        FirstConv(conv, "ieee")(drawn(2, 4, 4, 4).requires_grad_())


def test_other_convolutions_are_not_taken_for_a_first_one():
    for options in ({"stride": 2}, {"padding": 0}, {"bias": True}, {"dilation": 2}, {"groups": 4}):
        assert not FirstConv.suits(nn.Conv2d(8, 64, 3, **{"padding": 1, "bias": False, **options}))
    assert not FirstConv.suits(nn.Conv2d(16, 64, 3, padding=1, bias=False))
    assert not FirstConv.suits(nn.Conv2d(8, 64, 1, bias=False))


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("clip", [0.5, None])
def test_the_optimiser_is_the_plain_one(clip, nesterov):
    """Gradients in three pieces, one of them absent, one longer than a block; three steps."""
    changes = {"l1": 1e-3, "l2": 1e-2, "clip": clip, "nesterov": nesterov, "lr": 0.1}
    recipe = Recipe(dataset="digits", loss="ce", model="mlp", **changes)
    lengths, places = (BLOCK + 5, 3, 64), [(0, BLOCK + 5), (BLOCK + 64, 3), (BLOCK + 128, 64)]
    flat = torch.zeros(BLOCK + 192, device=DEVICE)
    for k, (start, length) in enumerate(places):
        flat[start : start + length] = drawn(length, seed=k)
    exact, copy = flat.clone(), flat[: BLOCK + 5].bfloat16()
    fused = FusedSgd(recipe, flat, torch.zeros_like(flat), copy, places)
    exact = nn.Parameter(exact)
    plain = Optimiser(recipe, nn.ParameterList([exact]))
    fused.lr.fill_(recipe.lr)
    for step in range(3):
        pieces = [drawn(length, seed=10 * step + k) for k, length in enumerate(lengths)]
        fused.step(fused.table([pieces[0], None, pieces[2]]))
        whole = torch.zeros_like(exact)
        for (start, length), piece in zip((places[0], places[2]), (pieces[0], pieces[2]), strict=True):
            whole[start : start + length] = piece
        exact.grad = whole
        plain.step(recipe.lr)
    torch.testing.assert_close(flat, exact.detach(), rtol=1e-5, atol=1e-6)
    rounding = 0.0 if DEVICE.type == "cuda" else 2**-7  # the interpreter cuts digits off
    torch.testing.assert_close(copy, flat[: BLOCK + 5].bfloat16(), rtol=rounding, atol=0.0)
