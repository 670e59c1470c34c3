"""Launching a kernel with little of Python in between.

A kernel is looked up by the dtypes of its tensors and its constants once; after that its compiled form is launched directly, as
Triton's tutorials do. Triton's own way looks at every argument each time, which on a small batch costs more than the kernel.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
import triton
from torch import Tensor

__all__ = ["launch", "on"]

SUPPORTED = tuple(int(part) for part in triton.__version__.split(".")[:2]) >= (3, 3)
"""Compiled kernels take all arguments, constants too, since then."""
WORD = 2**31

_compiled: dict[Any, tuple[Any, list[Any]]] = {}


def launch(kernel: Any, programs: int, tensors: tuple[Tensor, ...], sizes: tuple[int, ...], /, **constants: Any) -> None:
    """Run ``kernel(*tensors, *sizes, **constants)`` in so many programs, on the device of the first tensor.

    The kernel must not be specialised on its sizes. A constant that it does not name is an option of Triton's.
    """
    first = tensors[0]
    with on(first):
        key = None
        if SUPPORTED and max(map(abs, sizes)) < WORD and all([tensor.data_ptr() % 16 == 0 for tensor in tensors]):
            key = (id(kernel), first.device, *constants.values(), *[tensor.dtype for tensor in tensors])
            ready = _compiled.get(key)
            if ready is not None:
                ready[0][(programs, 1, 1)](*tensors, *sizes, *ready[1])
                return
        made = kernel[(programs,)](*tensors, *sizes, **constants)
        if key is not None and made is not None:  # the interpreter makes nothing
            named = kernel.arg_names[len(tensors) + len(sizes) :]
            _compiled[key] = made, [constants[name] for name in named]


def on(tensor: Tensor) -> Any:
    """Triton launches on the current device, which need not be the tensor's."""
    elsewhere = tensor.is_cuda and tensor.device.index != torch.cuda.current_device()
    return torch.cuda.device(tensor.device) if elsewhere else nullcontext()
