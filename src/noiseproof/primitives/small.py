"""Both passes at once for a small batch on the CPU, where each call of torch costs more than its arithmetic.

The slopes of each primitive are formed in the first pass, while their parts are at hand; the second is then one sum over the
primitives. Formulas are those of the package's derivation, which the differences ``e - 1`` keep
exact for any number of classes.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from noiseproof.primitives.focal import focal_slope_at, focal_slopes, focal_slopes_from_top, focal_terms
from noiseproof.primitives.request import Primitive

__all__ = ["SMALL", "Small", "both_passes", "gradient"]

SMALL = 2**14
"""Logits in the largest batch that counts as small."""


class _Row(NamedTuple):
    """What the slopes need of each row, as columns ``[N, 1]``."""

    label: Tensor
    own: Tensor
    log_sum: Tensor
    inverse_sum: Tensor
    hit: Tensor
    """p_y"""


class Small(NamedTuple):
    """What both passes over a small batch give."""

    primitives: list[Tensor]
    """nll, log_miss, then those asked for, each ``[N]``"""
    slopes: list[Tensor]
    """``p_y / (1 - p_y)``, by which the slope of nll is that of log_miss; d/dz of each of the others, ``[N, K]``"""


def both_passes(z: Tensor, target: Tensor, asked: Sequence[Primitive], least: float, want_slopes: bool) -> Small:
    """The primitives of ``z``, where no class is masked, and their slopes. Exponents below ``least`` count as it."""
    label = target.unsqueeze(1)
    others = z.shape[1] - 1
    shifted = z - z.amax(1, keepdim=True)
    own = shifted.gather(1, label)
    if asked:
        shifted.scatter_(1, label, 0.0)
    e = shifted.clamp_min(least).exp_().scatter_(1, label, 0.0)
    d = e.sum(1, keepdim=True)
    e_y = own.exp()
    # log1p(D - 1), which is d where the label is the largest class; of two classes one has e = 1, the other is D - 1.
    log_sum = (torch.minimum(e_y, d) if others == 1 else own.expm1().add_(d)).log1p_()
    inverse_sum = log_sum.neg().exp_()
    odds = e_y / d
    values = [log_sum - own, odds.log1p().neg_()]
    for primitive in asked:
        if primitive.kind == "nll":
            value = shifted.sum(1, keepdim=True).neg_().add_(log_sum, alpha=others)
        elif primitive.kind == "power" and primitive.exponent == 2:
            value = torch.linalg.vector_norm(e, dim=1, keepdim=True).mul_(inverse_sum).square_()
        elif primitive.kind == "power":
            value = _powers(shifted, primitive.exponent, least, label).sum(1, keepdim=True) * inverse_sum**primitive.exponent
        elif primitive.kind == "lead":
            value = own - e.amax(1, keepdim=True).log_()
        else:
            value = focal_terms(e, shifted, log_sum, primitive).scatter_(1, label, 0.0).sum(1, keepdim=True)
        values.append(value)
    slopes = [odds.squeeze(1)]
    if want_slopes and not asked:
        slopes.append(e.mul_(inverse_sum).scatter_(1, label, d.mul_(inverse_sum).neg_()))
    elif want_slopes:
        row = _Row(label, own, log_sum, inverse_sum, e_y.mul_(inverse_sum))
        miss = d.mul_(inverse_sum)
        slopes += (
            _two_class_slopes(row, miss, values, asked) if others == 1 else _slopes(shifted, e, row, miss, values, asked, least)
        )
    return Small([value.squeeze(1) for value in values], slopes)


def gradient(grads: Sequence[Tensor | None], slopes: Sequence[Tensor]) -> Tensor:
    """The gradient with respect to the logits, given that of each primitive; None: it has none."""
    by_nll, by_log_miss, *others = grads
    odds, *each = slopes
    if by_log_miss is not None:
        by_nll = by_log_miss * odds if by_nll is None else torch.addcmul(by_nll, by_log_miss, odds)
    total: Tensor | None = None
    for grad, slope in zip((by_nll, *others), each, strict=True):
        if grad is not None:
            total = slope * grad.unsqueeze(1) if total is None else total.addcmul_(slope, grad.unsqueeze(1))
    return torch.zeros_like(each[0]) if total is None else total


def _powers(shifted: Tensor, q: float, least: float, label: Tensor) -> Tensor:
    """e^q, 0 at the label."""
    return (q * shifted).clamp_min_(least).exp_().scatter_(1, label, 0.0)


def _two_class_slopes(row: _Row, miss: Tensor, values: list[Tensor], asked: Sequence[Primitive]) -> list[Tensor]:
    """The label's slope is made of products alone, and the two of a row add up to 0."""
    at_label = [miss.neg()]
    for primitive, value in zip(asked, values[2:], strict=True):
        if primitive.kind == "lead":
            slope = torch.zeros_like(miss)
        elif primitive.kind == "nll":
            slope = row.hit
        elif primitive.kind == "power":
            slope = row.hit * value * -primitive.exponent
        else:
            slope = row.hit * focal_slope_at(-values[1], primitive)
        at_label.append(slope)
    return [(-slope).expand(-1, 2).scatter(1, row.label, slope) for slope in at_label]


def _slopes(
    shifted: Tensor, e: Tensor, row: _Row, miss: Tensor, values: list[Tensor], asked: Sequence[Primitive], least: float
) -> list[Tensor]:
    """d/dz of nll and of what is asked for: those of the derivation's table."""
    others = e.shape[1] - 1
    p = e * row.inverse_sum
    slopes: list[Tensor] = []
    e_less_1 = shifted.expm1()
    nll_others: Tensor | None = None
    for primitive, value in zip(asked, values[2:], strict=True):
        if primitive.kind == "lead":
            slopes.append(torch.zeros_like(p))
        elif primitive.kind == "power":
            slope = _power_slope(primitive.exponent, shifted, e, e_less_1, row, least)
            slopes.append(slope.scatter_(1, row.label, torch.mul(row.hit, value).mul_(-primitive.exponent)))
        else:
            if primitive.kind != "room" and nll_others is None:  # (K-1) p_j - 1
                uniform = torch.addcmul(row.hit, e_less_1.sum(1, keepdim=True), row.inverse_sum)
                nll_others = torch.mul(e_less_1, row.inverse_sum * others).sub_(uniform)
            if primitive.kind == "nll" and nll_others is not None:
                slopes.append(nll_others.scatter(1, row.label, row.hit * others))
            else:
                slope, total = _focal_slope(primitive, shifted, e, e_less_1, row, nll_others, p)
                slopes.append(slope.scatter_(1, row.label, total.mul_(row.hit)))
    return [p.scatter_(1, row.label, miss.neg_()), *slopes]


def _power_slope(q: float, shifted: Tensor, e: Tensor, e_less_1: Tensor, row: _Row, least: float) -> Tensor:
    """``q (p_j^q - p_j power_q)``, from ``e^q - e``, or from ``e^q`` where the label is the largest class."""
    behind = row.own < 0
    if q == 2:
        slope = torch.where(behind, e_less_1, e).mul_(e)
        factor = row.inverse_sum.square()
        factor += factor
    else:
        powers = _powers(shifted, q, least, row.label)
        slope = torch.where(behind, powers - e, powers)
        factor = q * row.inverse_sum**q
    rest = torch.addcmul(row.hit * behind, slope.sum(1, keepdim=True), row.inverse_sum, value=-1)
    return slope.addcmul_(e, rest).mul_(factor)


def _focal_slope(
    primitive: Primitive, shifted: Tensor, e: Tensor, e_less_1: Tensor, row: _Row, nll_others: Tensor | None, p: Tensor
) -> tuple[Tensor, Tensor]:
    """``p_j H - h_j``, and H."""
    if primitive.kind == "room" or nll_others is None:
        h = focal_slopes(e, shifted, row.log_sum, primitive).scatter_(1, row.label, 0.0)
        total = h.sum(1, keepdim=True)
        return torch.addcmul(h.neg_(), p, total), total
    # What all classes have of h acts as nll_others does.
    top, h = focal_slopes_from_top(e_less_1, shifted, row.log_sum, primitive)
    total = h.sum(1, keepdim=True)
    slope = torch.addcmul(h.neg_(), p, total).addcmul_(nll_others, top)
    return slope, total.add_(top, alpha=e.shape[1] - 1)
