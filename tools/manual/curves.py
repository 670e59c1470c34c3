"""A loss and its gradient by the label's probability, as inline SVG that takes its colours from the page."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from noiseproof.losses import CE, LossEntry, RobustLoss

__all__ = ["CLASSES", "drawn", "pull", "values"]

CLASSES = 10
POINTS = 200
DRAWS = 500
"""Of losses with chance, whose mean is drawn"""
WIDTH, HEIGHT = 320, 190
LEFT, RIGHT, TOP, BOTTOM = 44, 10, 12, 34


def probabilities() -> Tensor:
    """Of the label, from near 0 to near 1; an even number of steps, so that 1 / CLASSES is none of them."""
    return (torch.arange(POINTS, dtype=torch.float64) + 0.5) / POINTS


def _logits(p: Tensor) -> Tensor:
    """The other classes share what is left alike: their logits are 0, and the label's is the only one that is not."""
    z = torch.zeros(len(p), CLASSES, dtype=torch.float64)
    z[:, 0] = p.log() - ((1 - p) / (CLASSES - 1)).log()
    return z


def values(loss: RobustLoss, p: Tensor) -> Tensor:
    """The loss of the first class where its probability is ``p``."""
    return _mean(loss, _logits(p))


def pull(loss: RobustLoss, p: Tensor) -> Tensor:
    """By how much a step raises the label's logit: less the derivative by it."""
    z = _logits(p).requires_grad_()
    (slope,) = torch.autograd.grad(_mean(loss, z).sum(), z)
    return -slope[:, 0]


def _mean(loss: RobustLoss, z: Tensor) -> Tensor:
    draws = DRAWS if "generator" in type(loss).__init__.__annotations__ else 1
    rows = z.repeat(draws, 1)
    result: Tensor = loss(rows, torch.zeros(len(rows), dtype=torch.int64))
    return result.reshape(draws, -1).mean(0)


def drawn(entry: LossEntry) -> str:
    """Both panels as a figure; nothing for a loss that is no function of one prediction's logits."""
    if entry.reads == "features":
        return ""
    torch.manual_seed(0)
    loss = entry.cls(reduction="none").double()
    p = probabilities()
    ours, steps, usual = values(loss, p), pull(loss, p), pull(CE(reduction="none").double(), p)
    scale = (steps.max() / usual.max()).item()
    return (
        '<div class="curves">'
        + _panel("loss", p, ours.tolist(), None, f"{entry.title}: the loss by the probability of the label")
        + _panel("pull on the label", p, steps.tolist(), (usual * scale).tolist(), f"{entry.title}: the gradient by it")
        + "</div>"
    )


def _panel(title: str, p: Tensor, line: Sequence[float], reference: Sequence[float] | None, label: str) -> str:
    low, high = min([0.0, *line]), max([*line, *(reference or ())])
    low = min(line) if min(line) > 0.5 * high else low  # a constant such as AMSE's would flatten the curve
    ticks = _ticks(low, high)
    low, high = min(low, ticks[0]), max(high, ticks[-1])
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM

    def x(at: float) -> float:
        return LEFT + (right - LEFT) * at

    def y(at: float) -> float:
        return bottom - (bottom - TOP) * (at - low) / (high - low)

    def path(points: Sequence[float]) -> str:
        return "M" + "L".join(f"{x(at):.1f} {y(value):.1f}" for at, value in zip(p.tolist(), points, strict=True))

    parts = [f'<path class="grid" d="M{LEFT} {y(tick):.1f}H{right}"/>' for tick in ticks]
    parts += [f'<text x="{LEFT - 6}" y="{y(tick) + 4:.1f}" text-anchor="end">{tick:g}</text>' for tick in ticks]
    parts += [f'<text x="{x(at):.1f}" y="{bottom + 14}" text-anchor="middle">{at:g}</text>' for at in (0, 0.5, 1)]
    parts.append(f'<text x="{x(0.5):.1f}" y="{HEIGHT - 5}" text-anchor="middle">probability of the label</text>')
    if reference is not None:
        parts.append(f'<path class="reference" d="{path(reference)}"/>')
    parts.append(f'<path class="curve" d="{path(line)}"/>')
    named = f'<figcaption>{title}</figcaption><svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">'
    return f"<figure>{named}{''.join(parts)}</svg></figure>"


def _ticks(low: float, high: float) -> list[float]:
    """Three to six round numbers that span the interval from inside."""
    span = max(high - low, 1e-9)
    step = 10.0 ** math.floor(math.log10(span / 2))
    step *= next(factor for factor in (1, 2, 2.5, 5, 10) if span / (step * factor) <= 5)
    first = math.ceil(low / step - 1e-9)
    return [round(step * k, 10) for k in range(first, math.floor(high / step + 1e-9) + 1)]
