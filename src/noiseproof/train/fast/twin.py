"""A result that two layers may read, as two tensors with the same memory: the gradients of both then arrive one by one.

With one tensor autograd adds them up, in a kernel of its own, which reads and writes what the layer's own backward pass
reads anyway (ResNet-34 on an H200: 96 us of a step of 3.6 ms).
"""

from __future__ import annotations

from torch import Tensor

__all__ = ["one_of", "paired"]


def paired(result: Tensor, twin: Tensor) -> Tensor:
    """The result, with its twin for the first layer that asks."""
    result.__dict__["twin"] = twin
    return result


def one_of(x: Tensor) -> Tensor:
    """What a layer should read in the place of ``x``: the first gets the twin if there is one, the next ``x`` itself."""
    twin: Tensor = x.__dict__.pop("twin", x)
    return twin
