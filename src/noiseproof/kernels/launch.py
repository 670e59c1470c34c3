"""Launching a kernel with little of Python in between.

A kernel is looked up by the dtypes of its tensors and its constants once; after that its compiled form is launched directly, as
torch's own compiler does it. Triton's way looks at every argument each time, which on a small batch costs more than the kernel:
here tensors are handed over as addresses, and hooks, which profilers set, are looked for and else left out. Where Triton is of
another shape than is known here, or has a hook, its own way is gone.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

VERSION = tuple(int(part) for part in triton.__version__.split(".")[:2])
IS_TESTED_TRITON = (3, 6) <= VERSION <= (3, 7)
"""What launches a compiled kernel was looked at in these; its arguments are no promise of Triton's."""
MAX_SIZE = 2**31
ALIGNMENT_MASK = 15  # the bits of an address that are 0: kernels are compiled for tensors that begin at multiples of 16 bytes

_runtime: Any = getattr(getattr(triton, "knobs", None), "runtime", None)
_stream: Any = getattr(torch._C, "_cuda_getCurrentRawStream", None)
_device: Any = getattr(torch._C, "_cuda_getDevice", torch.cuda.current_device)


class Ready(NamedTuple):
    """A compiled kernel on one device, and its constants."""

    kernel: Any
    device: int
    constants: tuple[Any, ...]
    run: Any
    """What launches it, or None: as Triton does"""
    function: Any
    metadata: Any


_compiled: dict[Any, Ready] = {}


class Launch:
    """A kernel with its sizes and constants, launched again and again on tensors of the same dtypes on one device."""

    __slots__ = ("constants", "kernel", "programs", "ready", "sizes")

    def __init__(self, kernel: Any, programs: int, sizes: tuple[int, ...], /, **constants: Any) -> None:
        self.kernel, self.programs, self.sizes, self.constants = kernel, programs, sizes, constants
        self.ready: Ready | None = None

    def __call__(self, *tensors: Tensor) -> None:
        if self.ready is None or not _started(self.ready, self.programs, tensors, self.sizes):
            self.ready = launch(self.kernel, self.programs, tensors, self.sizes, **self.constants) or self.ready


def launch(
    kernel: Any, programs: int, tensors: tuple[Tensor, ...], sizes: tuple[int, ...], /, **constants: Any
) -> Ready | None:
    """Run ``kernel(*tensors, *sizes, **constants)`` in so many programs, on the device of the first tensor.

    The kernel must not be specialised on its sizes. A constant that it does not name is an option of Triton's. What is given
    back launches it again on other tensors, if there is something to launch.
    """
    device = tensors[0].get_device()
    key = None
    if device >= 0 and max(map(abs, sizes)) < MAX_SIZE:
        key = (id(kernel), device, *constants.values(), *[tensor.dtype for tensor in tensors])
        ready = _compiled.get(key)
        if ready is not None and _started(ready, programs, tensors, sizes):
            return ready
    _check_together(tensors)
    with on(tensors[0]):
        made = kernel[(programs,)](*tensors, *sizes, **constants)
    if key is None or made is None or not _aligned(tensors):  # the interpreter makes nothing
        return None
    named = kernel.arg_names[len(tensors) + len(sizes) :]
    ready = _compiled[key] = _ready(made, device, tuple([constants[name] for name in named]))
    return ready


def _ready(made: Any, device: int, constants: tuple[Any, ...]) -> Ready:
    run, function, metadata = (getattr(made, name, None) for name in ("run", "function", "packed_metadata"))
    looked_at = IS_TESTED_TRITON and None not in (_runtime, _stream)
    known = looked_at and callable(run) and isinstance(function, int) and isinstance(metadata, tuple)
    return Ready(made, device, constants, run if known else None, function, metadata)


def _started(ready: Ready, programs: int, tensors: tuple[Tensor, ...], sizes: tuple[int, ...]) -> bool:
    """Launch it, if the tensors are aligned as those that it was compiled for, and where it is: an address says neither."""
    kernel, device, constants, run, function, metadata = ready
    if device != _device():
        with torch.cuda.device(device):
            return _started(ready, programs, tensors, sizes)
    places = [tensor.data_ptr() for tensor in tensors]
    for place, tensor in zip(places, tensors, strict=True):
        if place & ALIGNMENT_MASK or tensor.get_device() != device:
            return False
    if run is None or _has_launch_hook():
        kernel[(programs, 1, 1)](*tensors, *sizes, *constants)
    else:
        run(programs, 1, 1, _stream(device), function, metadata, None, None, None, *places, *sizes, *constants)
    return True


def _check_together(tensors: tuple[Tensor, ...]) -> None:
    devices = {tensor.device: None for tensor in tensors}  # in their order
    if len(devices) > 1:
        found = " and ".join(map(str, devices))
        raise ValueError(f"logits, target and class weights must be on one device, got {found}; move them with .to(device)")


def _aligned(tensors: tuple[Tensor, ...]) -> bool:
    return not any(tensor.data_ptr() & ALIGNMENT_MASK for tensor in tensors)


def _has_launch_hook() -> bool:
    """Whether there is a hook that wants to know of launches."""
    enter, leave = _runtime.launch_enter_hook, _runtime.launch_exit_hook
    return bool(getattr(enter, "calls", enter) or getattr(leave, "calls", leave))


def on(tensor: Tensor) -> Any:
    """Triton launches on the current device, which need not be the tensor's."""
    elsewhere = tensor.is_cuda and tensor.get_device() != _device()
    return torch.cuda.device(tensor.device) if elsewhere else nullcontext()


def blocks(count: int, size: int) -> int:
    """How many blocks of a size there are; Triton's ``cdiv`` is for kernels too, and takes the host microseconds."""
    return -(-count // size)


def power_of_two(count: int) -> int:
    """The least that is no smaller, as Triton's ``next_power_of_2``."""
    return 1 << max(count - 1, 0).bit_length()
