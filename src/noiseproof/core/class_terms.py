"""What each class adds to a row sum, and the gradient of that.

Focal terms are ``f = (1-p)^gamma (-log p)``, their gradients ``h = df/d(-log p)``; a clipped sum adds up ``max(C - f, 0)``.
With t the largest class, ``1-p = (1-p_t) - (e - 1)/D``: at t it is exact, and no other class comes near 1. All powers are
therefore powers of numbers that are good to the last digits, without a logarithm.

The gradient of a power sum is made of ``e^q - e`` of all classes, or of ``e^q`` where the label is the largest class.
"""

import math

import torch
from torch import Tensor

from noiseproof.core.row_sums import RowSum, ceiling


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
