"""What a step is given beside the logits: the formula of a loss, and what is to be done with its rows."""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from noiseproof.core import Backend, decode, reference
from noiseproof.program.code import Program
from noiseproof.program.vectors import compiled

__all__ = ["Formula", "Reduction", "Rows"]

Reduction = Literal["none", "mean", "sum"]


class Formula:
    """A program with the request for its primitives, ready to run in one dtype."""

    def __init__(self, program: Program, request: str, dtype: torch.dtype) -> None:
        self.program, self.dtype = program, dtype
        self.asked = decode(request)
        self.least = reference.LEAST[dtype]
        self.reads_log_miss = program.reads(1)
        self.with_slopes, self.alone = compiled(program, dtype), compiled(program.without_slopes(), dtype)
        self.kernels: dict[str, Any] = {}
        """What backends have made of it"""


class Rows(NamedTuple):
    """What is to be done with the rows of a batch."""

    formula: Formula
    backend: Backend
    ignored: Tensor | None
    """Which labels are, on a CPU; None: none"""
    ignore_index: int
    weight: Tensor | None
    """Of each class"""
    reduction: Reduction
    dtype: torch.dtype
    """Of the loss"""
    again: Callable[[Tensor, Tensor, "Rows"], Tensor]
    """The loss of logits and labels by autograd, with the weight, ignored label and reduction that these rows have"""
