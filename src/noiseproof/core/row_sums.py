"""The row sums that the operation computes besides nll and log1m: as values, as the text of a schema, and by their definition.

:func:`plain_statistics` is the definition in plain differentiable torch, for second derivatives and for tests.
"""

import math
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812 - the name every PyTorch reader expects
from torch import Tensor

Kind = Literal["nll", "power", "focal", "clipped_focal", "margin"]
FOCAL_KINDS = ("focal", "clipped_focal")
FORMER_KINDS = {"room": "clipped_focal", "lead": "margin"}
"""Names in losses that were pickled under them"""


class RowSum(NamedTuple):
    """One number per row, besides nll and log1m, that the operation computes."""

    kind: Kind
    exponent: float = 0.0
    """q of power, gamma of focal and clipped_focal"""
    minimum: float = 0.0
    """clipped_focal: probabilities are clipped below at this value, and have no gradient there"""
    detach: bool = False
    """focal and clipped_focal: the weight (1-p)^gamma is a constant to the gradient"""


# Functions, not properties: torch 2.6's compiler does not see the properties of a tuple.


def key_of(row_sum: RowSum) -> str:
    """A text that identifies it."""
    kind, exponent, minimum, detach = row_sum
    return f"{kind} {exponent!r} {minimum!r} {'detached' if detach else 'whole'}"


def ceiling(row_sum: RowSum) -> float:
    """clipped_focal: C, the largest value of a focal term."""
    return -math.log(row_sum.minimum) * float((1.0 - row_sum.minimum) ** row_sum.exponent)


def encode(row_sums: Sequence[RowSum]) -> str:
    """As the one string that an operation's schema can carry.

    Text, because a compiler may make a symbol of a number that differs between two losses, but never of text.
    """
    return ";".join(key_of(row_sum) for row_sum in row_sums)


_decoded: dict[str, tuple[RowSum, ...]] = {}


def decode(needs_key: str) -> tuple[RowSum, ...]:
    """The inverse of :func:`encode`, for backends."""
    known = None if torch.compiler.is_compiling() else _decoded.get(needs_key)
    if known is None:
        known = tuple([_parse(key) for key in needs_key.split(";")]) if needs_key else ()
        if not torch.compiler.is_compiling():
            _decoded[needs_key] = known
    return known


def parse(key: str) -> RowSum:
    """The row sum with this key."""
    return decode(key)[0]


def _parse(key: str) -> RowSum:
    kind, exponent, minimum, detach = key.split(" ")
    return RowSum(FORMER_KINDS.get(kind, kind), float(exponent), float(minimum), detach == "detached")  # type: ignore[arg-type]


def focal_term(row_sum: RowSum, nll: Tensor, log1m: Tensor) -> Tensor:
    """One class's term of a focal sum, in plain differentiable torch, from its -log p and log(1-p)."""
    # (1-p)**gamma has an infinite slope at 0 for gamma < 1; exp(gamma log(1-p)) has a finite one.
    weight = torch.exp(row_sum.exponent * (log1m.detach() if row_sum.detach else log1m)) if row_sum.exponent else 1.0
    term = weight * nll
    return (ceiling(row_sum) - term).clamp_min(0.0) if row_sum.kind == "clipped_focal" else term


def accumulation_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which statistics of logits of ``dtype`` are computed and returned."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def plain_statistics(logits: Tensor, target: Tensor, needs_key: str) -> Tensor:
    """The statistics ``[2 + R, N]``, for second derivatives and as a definition to test against."""
    z = logits.to(accumulation_dtype(logits.dtype))
    y = target[:, None]
    z = torch.where(z.gather(1, y) == -math.inf, z.detach(), z)  # no gradient where the label is masked
    z_y = z.gather(1, y)
    is_label = torch.zeros_like(z, dtype=torch.bool).scatter(1, y, True)
    others = z.masked_fill(is_label, -math.inf)
    lse = torch.logsumexp(others, 1, keepdim=True)
    behind = lse - z_y
    log1m = F.logsigmoid(behind)
    left_out = is_label | (z == -math.inf)
    nll_k = ((lse - z) - log1m).masked_fill(left_out, 1.0)
    rows = [F.softplus(behind, threshold=80.0)[:, 0], log1m[:, 0]]
    for row_sum in decode(needs_key):
        if row_sum.kind == "margin":
            rows.append((z_y - others.amax(1, keepdim=True))[:, 0].detach())
            continue
        if row_sum.kind == "nll":
            terms = nll_k
        elif row_sum.kind == "power":
            terms = torch.exp(-row_sum.exponent * nll_k)
        else:
            log1m_k = torch.log(torch.expm1(-nll_k).neg().clamp_min(torch.finfo(z.dtype).tiny))
            terms = focal_term(row_sum, nll_k, log1m_k)
        rows.append(terms.masked_fill(left_out, 0.0).sum(1))
    return torch.stack(rows)


def plain_gradient(target: Tensor, needs_key: str) -> Callable[[Tensor, Tensor], Tensor]:
    """The gradient with respect to the logits as a function that can itself be differentiated."""

    def gradient(grads: Tensor, logits: Tensor) -> Tensor:
        _, pull, *_ = torch.func.vjp(lambda z: plain_statistics(z, target, needs_key), logits)
        result: Tensor = pull(grads)[0]
        return result

    return gradient


def plain_jvp(function: Callable[..., Tensor], values: tuple[Tensor, ...], tangents: tuple[Tensor, ...]) -> Tensor:
    """As the gradient of the gradient, which is linear in what it is given: torch does not nest forward modes."""
    value, pull, *_ = torch.func.vjp(function, *values)
    _, pull_again, *_ = torch.func.vjp(pull, torch.zeros_like(value))
    result: Tensor = pull_again(tangents)[0]
    return result
