"""Who looks on at what is computed, besides autograd: compilers, transforms, dispatch modes.

A compiler does so in two ways: it reads our code line by line, and then checks at every call that nothing which it has read is
different; or it runs a function of ours on tensors without values and records what is done with them.
"""

import threading

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import Parameter

_functorch_is_active = torch._C._are_functorch_transforms_active
_is_included, _VMAP = torch._C._dispatch_tls_is_dispatch_key_included, torch._C._dispatch_key_parse("VmapMode")


class _Here(threading.local):
    recorded = False


_here = _Here()


def is_compiling() -> bool:
    """Whether a compiler does, in one way or the other."""
    return torch.compiler.is_compiling() or _here.recorded


class Recording:
    """In this context operations are recorded: what is to be decided by values is then not."""

    def __enter__(self) -> None:
        self.before, _here.recorded = _here.recorded, True

    def __exit__(self, *_: object) -> None:
        _here.recorded = self.before


def is_transformed() -> bool:
    """Whether a torch.func transform or forward-mode AD is active: they need a Function with ``setup_context`` and ``jvp``."""
    return not torch.compiler.is_compiling() and transforms_active()


def transforms_active() -> bool:
    """:func:`is_transformed`, where nothing is compiled."""
    return _functorch_is_active() or forward_ad._current_level >= 0


def is_mapped() -> bool:
    """Whether autograd maps a backward pass over gradients, ``is_grads_batched``: it has a vmap that is not torch.func's."""
    return _is_included(_VMAP)


def only_autograd() -> bool:
    """Whether nothing but autograd looks at what is computed: no compiler, no torch.func transform, no forward-mode AD."""
    return not is_compiling() and not is_transformed()


def has_dispatch_mode(tensor: Tensor) -> bool:
    """Whether a dispatch mode or the tensor's own type wants to see what is done with it."""
    return type(tensor) not in (Tensor, Parameter) or torch._C._len_torch_dispatch_stack() > 0


def is_eager_cpu(tensor: Tensor) -> bool:
    """Whether reading a value is cheap and possible: an ordinary tensor on the CPU that nobody traces or maps over."""
    return on_cpu(tensor) and not has_dispatch_mode(tensor) and not _functorch_is_active()


def on_cpu(tensor: Tensor) -> bool:
    """Whether a tensor is on the CPU and has values, so that reading one of them stalls nothing."""
    return not is_compiling() and tensor.is_cpu  # torch 2.6's compiler does not know the second
