"""Which implementation of the two passes runs: the fastest one registered for the logits' device, or the reference."""

import importlib
import importlib.util
import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from noiseproof.core import reference
from noiseproof.core.dispatch_state import is_compiling
from noiseproof.core.row_sums import RowSum

BACKEND_VARIABLE = "NOISEPROOF_BACKEND"


class ProgramRunner(NamedTuple):
    """How a device runs the program of a loss on the statistics.

    ``suits(formula, logits)`` says whether it can. ``run(formula, statistics, target, weight, ignore_index, reduction, dtype,
    want_grads, classes)`` gives the loss in ``dtype``, its gradients ``[2 + R, N]`` by the statistics, and what
    ``scaled(row_grads, grad, numbers, reduction)`` wants to make their gradients of them.

    ``small(logits, target, rows, want_gradient)`` gives what goes all the way from logits to loss, of a batch that is small;
    None: this one is not. Its ``forward(logits, target, weight)`` gives the loss and what to keep, its ``backward(kept, grad)``
    the gradient of the logits for that of the loss.

    ``single_pass(formula, logits, target, weight, ignore_index, reduction, dtype, in_place)`` gives a sum or mean and its
    gradient by the logits, which may be written over them; None: two passes would be no slower.
    """

    suits: Callable[..., bool]
    run: Callable[..., tuple[Tensor, Tensor, Tensor]]
    scaled: Callable[..., Tensor]
    small: Callable[..., Any] = lambda *_: None
    single_pass: Callable[..., tuple[Tensor, Tensor] | None] = lambda *_: None


class Backend(NamedTuple):
    """The two passes over the logits.

    ``forward(logits, target, needs, dtype)`` gives the statistics ``[2 + R, N]`` in ``dtype`` (nll, log1m, then those needs
    for), and up to ``[5 + R, N]`` of whatever its own backward pass wants. A target out of range makes its row NaN, without
    reading outside of the logits or looking at values on the host. A masked class (one at -inf) is in no sum and gets no
    gradient; neither does a row whose label is one. ``backward(grads, logits, target, statistics, saved, needs, out=None)``
    gives the gradient with respect to the logits, in their dtype, contiguous, or in ``out``, which may be the logits.
    """

    name: str
    forward: Callable[[Tensor, Tensor, Sequence[RowSum], torch.dtype], tuple[Tensor, Tensor]]
    backward: Callable[..., Tensor]
    scale: Callable[[Tensor, Tensor], Tensor] = reference.scale
    """A gradient times a number, in place"""
    programs: ProgramRunner | None = None
    """None: programs are not run on this device, except by the reference on a CPU"""


REFERENCE = Backend("reference", reference.forward, reference.backward)


def _load_kernels() -> Backend | None:
    """The Triton kernels of this package; None without Triton, or with one older than 3.3 (torch 2.7's), which is untested.

    They are imported by name with the first logits on a CUDA device: core depends on no kernel, and Triton is not in every
    build of torch.
    """
    if importlib.util.find_spec("triton") is None:
        return None
    version = importlib.import_module("triton").__version__
    if tuple(map(int, version.split(".")[:2])) < (3, 3):
        return None
    package = __name__.partition(".")[0]
    backend: Backend = importlib.import_module(f"{package}.kernels").BACKEND
    return backend


_registered: dict[str, Backend] = {}
_loaders: dict[str, Callable[[], Backend | None]] = {"cuda": _load_kernels}


def register_backend(device_type: str, backend: Backend) -> None:
    """Use a backend for logits on devices of one type.

    Args:
        device_type: The type, as ``"cuda"``.
        backend: Its two passes over the logits.

    Example:
        >>> register_backend("meta", REFERENCE)
    """
    _registered[device_type] = backend


def backend_for(logits: Tensor) -> Backend:
    """The backend of the logits' device. Where there is a choice, NOISEPROOF_BACKEND in the environment may name one."""
    return REFERENCE if is_compiling() else backend_of_device(logits.device.type)  # no other is ever traced


def backend_of_device(device_type: str) -> Backend:
    """As :func:`backend_for`, where nothing is compiled."""
    backend = _registered.get(device_type) or _load(device_type)
    if backend is REFERENCE:
        return REFERENCE
    wanted = os.environ.get(BACKEND_VARIABLE)
    if not wanted or wanted == backend.name:
        return backend
    if wanted == REFERENCE.name:
        return REFERENCE
    raise ValueError(
        f"{BACKEND_VARIABLE} must be {REFERENCE.name} or {backend.name} for logits on {device_type}, got {wanted!r}"
    )


def _load(device_type: str) -> Backend:
    """The backend of this package for the device, which is then registered, or the reference."""
    load = _loaders.get(device_type)
    if load is None or os.environ.get(BACKEND_VARIABLE) == REFERENCE.name:
        return REFERENCE
    _registered[device_type] = load() or REFERENCE
    return _registered[device_type]


def _is_reference(device_type: str) -> bool:
    return backend_of_device(device_type) is REFERENCE


# As torch.compiler.assume_constant_result marks it, without importing the compiler.
_is_reference._dynamo_marked_constant = True  # type: ignore[attr-defined]  # functions have no declared attributes


def is_traced(logits: Tensor) -> bool:
    """Whether a compiler sees through the passes and fuses them with what is before and after.

    Only through the reference; a kernel stays one operation in the graph.
    """
    return _is_reference(logits.device.type)
