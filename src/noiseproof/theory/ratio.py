"""The asymmetry ratio of active losses.

An active loss reads the label's probability alone, ``L(u, k) = l(u_k)``. Its ratio is the infimum of
``(l(u) - l(u + v)) / (l(0) - l(v))`` over u >= 0, v > 0 with u + v <= 1: what the probability v gains at the clean label, over
what it would gain at another. The loss tolerates every noise with ``w1 * ratio >= w2``.

Reference: Zhou et al., Asymmetric loss functions for learning with noisy labels, ICML 2021.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from noiseproof.losses import RobustLoss
from noiseproof.theory.risk import FLOOR, with_logits

__all__ = ["asymmetry_ratio"]

GRID = 400
NEAR = 1e-12
"""A probability near 0 where a bounded slope has its value at 0, and one without bound has not"""


def asymmetry_ratio(loss: RobustLoss) -> float:
    """The ratio; 0 where the loss has no bounded slope. A ValueError if the loss reads more than the label's probability.

    Between the points of a fine grid the loss is taken to be smooth.

    >>> from noiseproof import AGCE, CE
    >>> round(asymmetry_ratio(AGCE(a=1.0, q=0.5)), 4), asymmetry_ratio(CE())  # the first is (a / (a + 1))^(1 - q)
    (0.7071, 0.0)
    """
    loss = with_logits(loss)
    shares = np.concatenate([[FLOOR, NEAR], np.linspace(0, 1, GRID + 1)[1:-1], [1 - NEAR]])
    values, slopes = _of_label(loss, shares, even=True)
    uneven, _ = _of_label(loss, shares, even=False)
    if not np.allclose(values, uneven, rtol=1e-9, atol=1e-9):
        raise ValueError(f"{type(loss).__name__} reads more than the label's probability, and has no asymmetry ratio")
    if slopes[0] > 1.5 * slopes[1] or slopes[0] == np.inf:
        return 0.0
    least = (slopes[1:] / slopes[0]).min() if slopes[0] > 0 else np.inf
    even_steps = np.concatenate([values[:1], values[2:]])  # l at 0, 1/G, ..., 1
    for step in range(1, GRID + 1):
        gained, at_another = even_steps[:-step] - even_steps[step:], even_steps[0] - even_steps[step]
        if at_another > 0:  # a loss that is flat near 0 gains nothing at another label: there every ratio will do
            least = min(least, (gained / at_another).min())
    return float(max(least, 0.0))


def _of_label(loss: RobustLoss, shares: NDArray[np.float64], *, even: bool) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The loss of the first of three labels where it has these probabilities, and its slope downwards by them."""
    rest = torch.tensor([0.5, 0.5] if even else [0.9, 0.1], dtype=torch.float64)
    p = torch.from_numpy(shares)[:, None]
    z = torch.cat([p.log(), (torch.log1p(-p) + rest.log())], 1).requires_grad_()
    with torch.enable_grad():
        values = loss.rows(z, torch.zeros(len(shares), dtype=torch.int64))
        (by_logits,) = torch.autograd.grad(values.sum(), z)
    slopes = -by_logits[:, 0] / (p * (1 - p))[:, 0]  # dp / dz = p (1 - p)
    return values.detach().numpy(), slopes.numpy()
