"""How a kernel is launched again: with addresses and no hooks, or as Triton does it where that is not possible."""

import pytest
import torch

pytest.importorskip("triton", minversion="3.3", reason="needs Triton 3.3")

import triton
import triton.language as tl

import noiseproof
from noiseproof.core import backends
from noiseproof.kernels import BACKEND
from noiseproof.kernels import launch as launching

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Compiled:
    """What Triton gives back of a launch, with a note of each further one."""

    packed_metadata, function = (4, 1, 0), 77

    def __init__(self):
        self.calls = []

    def __getitem__(self, grid):
        return lambda *args: self.calls.append(("as Triton does", grid, args))

    def run(self, *args):
        self.calls.append(("directly", args[:3], args[3:]))


class Kernel:
    arg_names = ("a", "b", "size", "BLOCK")

    def __init__(self, compiled):
        self.compiled, self.calls = compiled, []

    def __getitem__(self, grid):
        def first(*args, **constants):
            self.calls.append((grid, args, constants))
            return self.compiled

        return first


@pytest.fixture
def a_device(monkeypatch):
    """Tensors on the CPU pass for those of device 3."""
    monkeypatch.setattr(torch.Tensor, "get_device", lambda tensor: 3)
    monkeypatch.setattr(launching, "_device", lambda: 3)
    monkeypatch.setattr(launching, "_stream", lambda device: 1000 + device)
    monkeypatch.setattr(launching, "_compiled", {})


@pytest.fixture
def tensors():
    return torch.zeros(8), torch.zeros(8, dtype=torch.int64)


def test_a_kernel_is_looked_at_once_and_then_launched_by_addresses(a_device, tensors):
    kernel = Kernel(Compiled())
    again = launching.Launch(kernel, 5, (9,), BLOCK=16, num_warps=2)
    for _ in range(3):
        again(*tensors)
    launching.launch(kernel, 6, tensors, (10,), BLOCK=16, num_warps=2)
    assert kernel.calls == [((5,), (*tensors, 9), {"BLOCK": 16, "num_warps": 2})]
    handed = [tensor.data_ptr() for tensor in tensors]
    common = (1003, 77, (4, 1, 0), None, None, None, *handed)
    assert kernel.compiled.calls == [("directly", (5, 1, 1), (*common, 9, 16))] * 2 + [
        ("directly", (6, 1, 1), (*common, 10, 16))
    ]


def test_other_constants_or_dtypes_are_another_kernel(a_device, tensors):
    kernel = Kernel(Compiled())
    for given, block in ((tensors, 16), (tensors, 32), (tensors[::-1], 16)):
        launching.launch(kernel, 1, given, (9,), BLOCK=block)
    assert len(kernel.calls) == 3
    assert not kernel.compiled.calls


def test_tensors_that_begin_between_and_sizes_beyond_a_word_are_for_triton_to_look_at(a_device, tensors):
    kernel = Kernel(Compiled())
    again = launching.Launch(kernel, 1, (9,), BLOCK=16)
    between = (tensors[0][1:], tensors[1])
    for given in (between, tensors, tensors, between, tensors):
        again(*given)
    assert len(kernel.calls) == 3  # two for those between, and the first of the others
    assert len(kernel.compiled.calls) == 2
    for _ in range(2):
        launching.launch(kernel, 1, tensors, (2**31,), BLOCK=16)
    assert len(kernel.calls) == 5


def test_a_tensor_that_is_elsewhere_is_not_handed_over_as_an_address(a_device, tensors, monkeypatch):
    kernel = Kernel(Compiled())
    again = launching.Launch(kernel, 1, (9,), BLOCK=16)
    again(*tensors)
    monkeypatch.setattr(torch.Tensor, "get_device", lambda tensor: -1 if tensor is tensors[1] else 3)
    again(*tensors)
    assert not kernel.compiled.calls
    monkeypatch.undo()
    with pytest.raises(ValueError, match="must be on one device, got cpu and meta; move them"):
        launching.launch(kernel, 1, (tensors[0], tensors[1].to("meta")), (9,), BLOCK=16)


@pytest.mark.parametrize("classes", [10, 300])
def test_a_target_or_a_weight_on_another_device_is_refused(classes, monkeypatch):
    """Of a batch that is one kernel, and of another; a kernel would read there, and the device not recover from it."""
    monkeypatch.setattr(backends, "_registered", {DEVICE: BACKEND})
    monkeypatch.delenv(backends.BACKEND_VARIABLE, raising=False)
    logits, target, elsewhere = torch.zeros((4, classes), device=DEVICE), torch.arange(4, device=DEVICE), "meta"
    for loss, labels in (
        (noiseproof.JALCE(), target.to(elsewhere)),
        (noiseproof.JALCE(weight=torch.ones(classes, device=elsewhere)), target),
    ):
        for criterion in (loss, noiseproof.GradientInForward(loss)):
            with pytest.raises(ValueError, match="must be on one device, got"):
                criterion(logits.clone().requires_grad_(), labels)


def test_a_hook_is_told_of_launches(a_device, tensors, monkeypatch):
    class Runtime:
        launch_enter_hook = launch_exit_hook = None

    kernel = Kernel(Compiled())
    monkeypatch.setattr(launching, "_runtime", Runtime)
    again = launching.Launch(kernel, 1, (9,), BLOCK=16)
    again(*tensors)
    Runtime.launch_exit_hook = print
    again(*tensors)
    assert kernel.compiled.calls == [("as Triton does", (1, 1, 1), (*tensors, 9, 16))]


def test_a_compiled_kernel_of_another_shape_is_launched_as_triton_does(a_device, tensors):
    class Other(Compiled):
        packed_metadata = None

    kernel = Kernel(Other())
    again = launching.Launch(kernel, 1, (9,), BLOCK=16)
    again(*tensors)
    again(*tensors)
    assert [call[0] for call in kernel.compiled.calls] == ["as Triton does"]


@triton.jit(do_not_specialize=["count"])
def _double(values, out, count, BLOCK: tl.constexpr):  # noqa: N803 - Triton's compile-time constants are capitals
    place = tl.arange(0, BLOCK)
    tl.store(out + place, 2.0 * tl.load(values + place, mask=place < count, other=0.0), mask=place < count)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_launch_on_the_gpu_is_direct_and_hooks_hear_of_it():
    from triton import knobs

    values = torch.arange(1.0, 9.0, device="cuda")
    again = launching.Launch(_double, 1, (8,), BLOCK=16)
    heard = []
    hook = knobs.runtime.launch_enter_hook
    for turn in range(4):
        if turn == 3:
            hook.add(heard.append)
        out = torch.zeros_like(values)
        try:
            again(values, out)
        finally:
            if turn == 3:
                hook.remove(heard.append)
        assert torch.equal(out, 2 * values)
    assert again.ready is not None
    assert again.ready.run is not None
    assert len(heard) == 1
    with torch.cuda.stream(torch.cuda.Stream()):
        out = torch.zeros_like(values)
        again(values, out)
        torch.cuda.current_stream().synchronize()
        assert torch.equal(out, 2 * values)


@pytest.mark.parametrize(("version", "there"), [("3.2.0", False), ("3.3.0", True), ("3.10.1+git1", True), ("4.0.0rc1", True)])
def test_kernels_are_offered_with_a_triton_that_they_are_tested_with(version, there, monkeypatch):
    monkeypatch.setattr(triton, "__version__", version)
    assert (backends._load_kernels() is not None) == there
