"""Focal terms ``f = (1-p)^gamma (-log p)`` of all classes and their slopes ``h = df/d(-log p)``, and those of their room.

With t the largest class, ``1-p = (1-p_t) - (e - 1)/D``: at t it is exact, and no class beside it comes near 1. All powers are
therefore powers of numbers that are good to the last digits, without a logarithm.
"""

import math

import torch
from torch import Tensor

from noiseproof.core.request import Primitive, ceiling

__all__ = ["focal_slope_at", "focal_slopes", "focal_slopes_from_top", "focal_terms"]


def focal_terms(
    e: Tensor,
    shifted: Tensor,
    log_sum: Tensor,
    primitive: Primitive,
    place: Tensor | None = None,
    spare: Tensor | None = None,
) -> Tensor:
    """What each class adds to a focal sum or to its room, ``[N, K]`` in ``place``."""
    gamma = primitive.exponent
    nll = torch.sub(log_sum, shifted, out=place)
    terms = nll.mul_(_misses(e, log_sum, spare).pow_(gamma)) if gamma else nll
    return terms.neg_().add_(ceiling(primitive)).clamp_min_(0.0) if primitive.kind == "room" else terms


def focal_slopes(
    e: Tensor,
    shifted: Tensor,
    log_sum: Tensor,
    primitive: Primitive,
    place: Tensor | None = None,
    spare: Tensor | None = None,
) -> Tensor:
    """h of each class ``[N, K]``, or minus it below the ceiling of a room, in ``place``."""
    gamma = primitive.exponent
    if gamma == 0:
        if primitive.kind == "focal":
            return torch.ones_like(shifted)
        return torch.sub(shifted, log_sum + math.log(primitive.minimum), out=place).gt_(0.0).neg_()
    h = miss = _misses(e, log_sum, spare)
    if primitive.detach:
        h = torch.pow(miss, gamma, out=place)
    else:  # a^(gamma-1) (a + gamma p (-log p))
        nll = torch.sub(log_sum, shifted, out=place)
        if primitive.kind == "room":  # what is beyond counts for nothing, and may be infinite
            nll.clamp_max_(-math.log(primitive.minimum))
        h = nll.mul_(e)
        h = torch.addcmul(miss, h, torch.exp(-log_sum), value=gamma, out=h)
        h.mul_(miss.rsqrt_() if gamma == 0.5 else miss.pow_(gamma - 1))  # compiled, that power takes five times as long
    if primitive.kind == "room":
        inside = torch.sub(shifted, log_sum + math.log(primitive.minimum), out=spare).gt_(0.0)
        return h.mul_(inside).neg_()
    return h


def _misses(e: Tensor, log_sum: Tensor, out: Tensor | None) -> Tensor:
    """``1-p`` of each class, not 0."""
    top = torch.expm1(-log_sum).neg_().clamp_min_(_least(log_sum))
    misses = torch.sub(e, 1.0, out=out)
    return torch.addcmul(top, misses, torch.exp(-log_sum), value=-1, out=misses)


def _least(like: Tensor) -> float:
    """Small, but its inverse times 100 is finite; in float64 times 10,000: above 1e307 torch 2.6 has an infinite log1p."""
    return (1e5 if like.dtype == torch.float64 else 1e3) * torch.finfo(like.dtype).tiny


def focal_slope_at(nll: Tensor, primitive: Primitive) -> Tensor:
    """h, or minus it below the ceiling of a room, at these -log p.

    ``p (-log p) / (1-p)`` tends to 1 as p does, where plain autograd gives NaN.
    """
    gamma = primitive.exponent
    miss = torch.expm1(-nll).neg_()
    h = miss**gamma
    if not primitive.detach and gamma != 0:
        h = h * (1 + gamma * torch.exp(-nll) * nll / miss.clamp_min_(_least(nll)))
    return h.neg_().masked_fill_(nll >= -math.log(primitive.minimum), 0.0) if primitive.kind == "room" else h


def focal_slopes_from_top(e_less_1: Tensor, shifted: Tensor, log_sum: Tensor, primitive: Primitive) -> tuple[Tensor, Tensor]:
    """h of the largest class, and how much h of each class differs from it: exact where they nearly tie.

    With a = 1-p and t for the largest class, ``h = a^gamma + gamma p (-log p) a^(gamma-1)`` where ``p = p_t exp(shifted)``,
    ``-log p = -log p_t - shifted`` and ``a = a_t - p_t (e - 1)``: each part is its value at t times an exponential.
    """
    gamma = primitive.exponent
    if gamma > 1:  # the exponential of a far class could overflow, and its slope is no difference that matters
        near = shifted > -1
        top, h = _from_top(torch.where(near, e_less_1, 0.0), torch.where(near, shifted, 0.0), log_sum, primitive)
        return top, torch.where(near, h, focal_slope_at(log_sum - shifted, primitive) - top)
    return _from_top(e_less_1, shifted, log_sum, primitive)


def _from_top(e_less_1: Tensor, shifted: Tensor, log_sum: Tensor, primitive: Primitive) -> tuple[Tensor, Tensor]:
    gamma = primitive.exponent
    least = _least(log_sum)
    nll = log_sum.clamp_min(least)  # it may be 0, and is divided by
    hit, miss = torch.exp(-nll), torch.expm1(-nll).neg_()
    log_ratio = (e_less_1 * (-hit / miss)).log1p_()
    top = miss.pow(gamma)
    if primitive.detach or gamma == 0:
        return top, log_ratio.mul_(gamma).expm1_().mul_(top)
    rest = gamma * hit * nll * miss.pow(gamma - 1)
    z = shifted.clamp_min(math.log(least))
    second = (z / -nll).log1p_().add_(z).add_(log_ratio, alpha=gamma - 1).expm1_().mul_(rest)
    return top + rest, second.addcmul_(log_ratio.mul_(gamma).expm1_(), top)
