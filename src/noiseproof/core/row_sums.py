"""The row sums that the operation computes besides nll and log1m: as values, as the text of a schema, and by their definition.

:func:`plain_statistics` is the definition in plain differentiable torch, for second derivatives and for tests. Below it is what
each class adds to a focal or power sum, and the gradient of that, for the passes in reference.py and small.py.
"""

import math
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812 - the name every PyTorch reader expects
from torch import Tensor

Kind = Literal["nll", "power", "focal", "clipped_focal", "margin"]
FOCAL_KINDS = ("focal", "clipped_focal")


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
    return RowSum(kind, float(exponent), float(minimum), detach == "detached")  # type: ignore[arg-type]


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


def focal_terms(
    e: Tensor,
    shifted: Tensor,
    log_sum: Tensor,
    row_sum: RowSum,
    place: Tensor | None = None,
    spare: Tensor | None = None,
) -> Tensor:
    """What each class adds to a focal sum or to its clipped sum, ``[N, K]`` in ``place``."""
    gamma = row_sum.exponent
    nll = torch.sub(log_sum, shifted, out=place)
    terms = nll.mul_(_complements(e, log_sum, spare).pow_(gamma)) if gamma else nll
    return terms.neg_().add_(ceiling(row_sum)).clamp_min_(0.0) if row_sum.kind == "clipped_focal" else terms


def focal_grads(
    e: Tensor,
    shifted: Tensor,
    log_sum: Tensor,
    row_sum: RowSum,
    place: Tensor | None = None,
    spare: Tensor | None = None,
) -> Tensor:
    """h of each class ``[N, K]``, or minus it below the ceiling of a clipped sum, in ``place``."""
    gamma = row_sum.exponent
    if gamma == 0:
        if row_sum.kind == "focal":
            return torch.ones_like(shifted)
        return torch.sub(shifted, log_sum + math.log(row_sum.minimum), out=place).gt_(0.0).neg_()
    h = comp = _complements(e, log_sum, spare)
    if row_sum.detach:
        h = torch.pow(comp, gamma, out=place)
    else:  # a^(gamma-1) (a + gamma p (-log p))
        nll = torch.sub(log_sum, shifted, out=place)
        if row_sum.kind == "clipped_focal":  # what is beyond counts for nothing, and may be infinite
            nll.clamp_max_(-math.log(row_sum.minimum))
        h = nll.mul_(e)
        h = torch.addcmul(comp, h, torch.exp(-log_sum), value=gamma, out=h)
        h.mul_(comp.rsqrt_() if gamma == 0.5 else comp.pow_(gamma - 1))  # compiled, that power takes five times as long
    if row_sum.kind == "clipped_focal":
        inside = torch.sub(shifted, log_sum + math.log(row_sum.minimum), out=spare).gt_(0.0)
        return h.mul_(inside).neg_()
    return h


def _complements(e: Tensor, log_sum: Tensor, out: Tensor | None) -> Tensor:
    """``1-p`` of each class, not 0."""
    top = torch.expm1(-log_sum).neg_().clamp_min_(_min_divisor(log_sum))
    complements = torch.sub(e, 1.0, out=out)
    return torch.addcmul(top, complements, torch.exp(-log_sum), value=-1, out=complements)


def _min_divisor(like: Tensor) -> float:
    """Small, but its inverse times 100 is finite; in float64 times 10,000: above 1e307 torch 2.6 has an infinite log1p."""
    return (1e5 if like.dtype == torch.float64 else 1e3) * torch.finfo(like.dtype).tiny


def focal_grad_at(nll: Tensor, row_sum: RowSum) -> Tensor:
    """h, or minus it below the ceiling of a clipped sum, at these -log p.

    ``p (-log p) / (1-p)`` tends to 1 as p does, where plain autograd gives NaN.
    """
    gamma = row_sum.exponent
    comp = torch.expm1(-nll).neg_()
    h = comp**gamma
    if not row_sum.detach and gamma != 0:
        h = h * (1 + gamma * torch.exp(-nll) * nll / comp.clamp_min_(_min_divisor(nll)))
    return h.neg_().masked_fill_(nll >= -math.log(row_sum.minimum), 0.0) if row_sum.kind == "clipped_focal" else h


def focal_grads_from_top(e_less_1: Tensor, shifted: Tensor, log_sum: Tensor, row_sum: RowSum) -> tuple[Tensor, Tensor]:
    """h of the largest class, and how much h of each class differs from it: exact where they nearly tie.

    With a = 1-p and t for the largest class, ``h = a^gamma + gamma p (-log p) a^(gamma-1)`` where ``p = p_t exp(shifted)``,
    ``-log p = -log p_t - shifted`` and ``a = a_t - p_t (e - 1)``: each part is its value at t times an exponential.
    """
    gamma = row_sum.exponent
    if gamma > 1:  # the exponential of a far class could overflow, and its slope is no difference that matters
        near = shifted > -1
        top, h = _from_top(torch.where(near, e_less_1, 0.0), torch.where(near, shifted, 0.0), log_sum, row_sum)
        return top, torch.where(near, h, focal_grad_at(log_sum - shifted, row_sum) - top)
    return _from_top(e_less_1, shifted, log_sum, row_sum)


def _from_top(e_less_1: Tensor, shifted: Tensor, log_sum: Tensor, row_sum: RowSum) -> tuple[Tensor, Tensor]:
    gamma = row_sum.exponent
    least = _min_divisor(log_sum)
    nll = log_sum.clamp_min(least)  # it may be 0, and is divided by
    p_y, comp = torch.exp(-nll), torch.expm1(-nll).neg_()
    log_ratio = (e_less_1 * (-p_y / comp)).log1p_()
    top = comp.pow(gamma)
    if row_sum.detach or gamma == 0:
        return top, log_ratio.mul_(gamma).expm1_().mul_(top)
    rest = gamma * p_y * nll * comp.pow(gamma - 1)
    z = shifted.clamp_min(math.log(least))
    second = (z / -nll).log1p_().add_(z).add_(log_ratio, alpha=gamma - 1).expm1_().mul_(rest)
    return top + rest, second.addcmul_(log_ratio.mul_(gamma).expm1_(), top)


def power_changes(
    q: float, e: Tensor, powers: Tensor, shifted: Tensor, behind: Tensor, least: float, spare: Tensor | None = None
) -> Tensor:
    """``e^q - e`` in rows where the label is ``behind`` another class, in others ``e^q``; in the place of the ``powers`` e^q.

    Both forms have ``expm1`` of what is not positive, so that a far class overflows for no q.
    """
    change = torch.clamp_min(shifted, least, out=spare)  # q - 1 may be 0, and a class infinitely far
    change = change.mul_(abs(q - 1)).expm1_().mul_(e if q > 1 else powers)
    return torch.where(behind, change if q > 1 else change.neg_(), powers, out=powers)
