"""What the operation can be asked for, as values and as the text its schema carries, and in which dtype it answers."""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor

__all__ = ["FOCAL_KINDS", "Primitive", "accumulation_dtype", "ceiling", "decode", "encode", "focal_term", "key_of", "parse"]

Kind = Literal["nll", "power", "focal", "room", "lead"]
FOCAL_KINDS = ("focal", "room")


class Primitive(NamedTuple):
    """One number per row, besides nll and log_miss, that the operation is asked for."""

    kind: Kind
    exponent: float = 0.0
    """q of power, gamma of focal and room"""
    minimum: float = 0.0
    """room: probabilities are clipped below at this value, and have no gradient there"""
    detach: bool = False
    """focal and room: the weight (1-p)^gamma is a constant to the gradient"""


# Functions, not properties: torch 2.6's compiler does not see the properties of a tuple.


def key_of(primitive: Primitive) -> str:
    """A text that identifies it."""
    kind, exponent, minimum, detach = primitive
    return f"{kind} {exponent!r} {minimum!r} {'detached' if detach else 'whole'}"


def ceiling(primitive: Primitive) -> float:
    """room: C, the largest value of a focal term."""
    return -math.log(primitive.minimum) * float((1.0 - primitive.minimum) ** primitive.exponent)


def encode(primitives: Sequence[Primitive]) -> str:
    """As the one string that an operation's schema can carry.

    Text, because a compiler may make a symbol of a number that differs between two losses, but never of text.
    """
    return ";".join(key_of(primitive) for primitive in primitives)


_decoded: dict[str, tuple[Primitive, ...]] = {}


def decode(request: str) -> tuple[Primitive, ...]:
    """The inverse of :func:`encode`, for backends."""
    known = None if torch.compiler.is_compiling() else _decoded.get(request)
    if known is None:
        known = tuple([_parse(key) for key in request.split(";")]) if request else ()
        if not torch.compiler.is_compiling():
            _decoded[request] = known
    return known


def parse(key: str) -> Primitive:
    """The primitive with this key."""
    return decode(key)[0]


def _parse(key: str) -> Primitive:
    kind, exponent, minimum, detach = key.split(" ")
    return Primitive(kind, float(exponent), float(minimum), detach == "detached")  # type: ignore[arg-type]


def focal_term(primitive: Primitive, nll: Tensor, log_miss: Tensor) -> Tensor:
    """One class's term of a focal primitive, in plain differentiable torch, from its -log p and log(1-p)."""
    # miss**gamma has an infinite slope at 0 for gamma < 1; exp(gamma log miss) has a finite one.
    weight = (
        torch.exp(primitive.exponent * (log_miss.detach() if primitive.detach else log_miss)) if primitive.exponent else 1.0
    )
    term = weight * nll
    return (ceiling(primitive) - term).clamp_min(0.0) if primitive.kind == "room" else term


def accumulation_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which statistics of logits of ``dtype`` are computed and returned."""
    return torch.float64 if dtype == torch.float64 else torch.float32
