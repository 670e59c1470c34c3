"""The primitives by their definition, in plain differentiable torch, and derivatives of these."""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812 - the name every PyTorch reader expects
from torch import Tensor

from noiseproof.core.request import accumulation_dtype, decode, focal_term

__all__ = ["plain_gradient", "plain_jvp", "plain_primitives"]


def plain_primitives(logits: Tensor, target: Tensor, request: str) -> Tensor:
    """The primitives ``[2 + R, N]``, for second derivatives and as a definition to test against."""
    z = logits.to(accumulation_dtype(logits.dtype))
    y = target[:, None]
    z = torch.where(z.gather(1, y) == -math.inf, z.detach(), z)  # no gradient where the label is masked
    z_y = z.gather(1, y)
    is_label = torch.zeros_like(z, dtype=torch.bool).scatter(1, y, True)
    others = z.masked_fill(is_label, -math.inf)
    lse = torch.logsumexp(others, 1, keepdim=True)
    margin = lse - z_y
    log_miss = F.logsigmoid(margin)
    left_out = is_label | (z == -math.inf)
    nll_k = ((lse - z) - log_miss).masked_fill(left_out, 1.0)
    rows = [F.softplus(margin, threshold=80.0)[:, 0], log_miss[:, 0]]
    for primitive in decode(request):
        if primitive.kind == "lead":
            rows.append((z_y - others.amax(1, keepdim=True))[:, 0].detach())
            continue
        if primitive.kind == "nll":
            terms = nll_k
        elif primitive.kind == "power":
            terms = torch.exp(-primitive.exponent * nll_k)
        else:
            log_miss_k = torch.log(torch.expm1(-nll_k).neg().clamp_min(torch.finfo(z.dtype).tiny))
            terms = focal_term(primitive, nll_k, log_miss_k)
        rows.append(terms.masked_fill(left_out, 0.0).sum(1))
    return torch.stack(rows)


def plain_gradient(target: Tensor, request: str) -> Callable[[Tensor, Tensor], Tensor]:
    """The gradient with respect to the logits as a function that can itself be differentiated."""

    def gradient(grads: Tensor, logits: Tensor) -> Tensor:
        _, pull, *_ = torch.func.vjp(lambda z: plain_primitives(z, target, request), logits)
        result: Tensor = pull(grads)[0]
        return result

    return gradient


def plain_jvp(function: Callable[..., Tensor], values: tuple[Tensor, ...], tangents: tuple[Tensor, ...]) -> Tensor:
    """As the gradient of the gradient, which is linear in what it is given: torch does not nest forward modes."""
    value, pull, *_ = torch.func.vjp(function, *values)
    _, pull_again, *_ = torch.func.vjp(pull, torch.zeros_like(value))
    result: Tensor = pull_again(tangents)[0]
    return result
