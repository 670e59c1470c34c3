"""Rows for the kernels, what they may be asked for, and how far their answers are from float64's.

The truth is the reference in float64; beside the kernels' error stands that of the reference in float32.
"""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from noiseproof.core import reference
from noiseproof.core.row_sums import RowSum
from noiseproof.kernels import passes as kernels

REQUESTS = {
    "ce": [],
    "jal-ce": [RowSum("nll"), RowSum("power", 2.0)],
    "jal-fl": [RowSum("focal", 0.5), RowSum("power", 2.0)],
    "anl-ce": [RowSum("nll"), RowSum("clipped_focal", 0.0, 1e-8)],
    "anl-fl": [RowSum("focal", 0.5, 0.0, True), RowSum("clipped_focal", 0.5, 1e-3, True)],
    "margin": [RowSum("margin"), RowSum("power", 1.5), RowSum("focal", 1.3)],
    "all": [
        *(RowSum("power", 0.1), RowSum("power", 3.0), RowSum("focal", 2.0)),
        *(RowSum("clipped_focal", 2.0, 1e-3), RowSum("margin"), RowSum("nll")),
    ],
}
"""By the loss that asks for them, where one does."""
KINDS = ("random", "right", "wrong", "far", "ties", "masked", "shifted", "strided")


class Errors(NamedTuple):
    """The largest of any row: of a value relative to it, of a gradient relative to its norm. Ours, then the reference's."""

    value: float
    gradient: float
    plain_value: float
    plain_gradient: float

    def passes(self, dtype: torch.dtype) -> bool:
        """Within 1e-5 or what the reference has, and a few roundings; the gradient is rounded once more to its dtype."""
        rounding = 0.0 if dtype == torch.float32 else torch.finfo(dtype).eps
        value = self.value <= max(1e-5, self.plain_value + 1e-6)
        return value and self.gradient <= max(1e-5, self.plain_gradient + 1e-6) + rounding  # NaN fails either


def drawn(kind: str, rows: int, classes: int, dtype: torch.dtype, device: str, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Logits and labels: sure of the label, sure of another class, the label far away, ties, and so on."""
    generator = torch.Generator().manual_seed(seed + classes)
    z = 3 * torch.randn(rows, classes, generator=generator)
    y = torch.randint(classes, (rows,), generator=generator)
    row = torch.arange(rows)
    sure = z.amax(1) + math.log(classes) + torch.tensor([4.0, 12.0, 30.0])[row % 3]
    if kind == "right":
        z[row, y] = sure
    elif kind == "wrong":
        z[row, (y + 1) % classes] = sure
    elif kind == "far":
        z[row, y] = -60.0
    elif kind == "ties":
        z[:, ::2] = z.amax(1, keepdim=True)
    elif kind == "masked":
        z[:, torch.randperm(classes, generator=generator)[: classes // 3]] = -math.inf
        z[0, : classes // 2] = -math.inf
        z[row[1:], y[1:]] = 1.0  # the first label may be masked, the others are not
    elif kind == "shifted":
        z += 500.0
    z = z.to(dtype).to(device)
    if kind == "strided":
        wide = torch.full((rows, classes + 3), math.nan, dtype=dtype, device=device)
        wide[:, 1 : classes + 1] = z
        z = wide[:, 1 : classes + 1]
    return z, y.to(device)


def errors(logits: Tensor, target: Tensor, needs: list[RowSum], in_place: bool = False, alone: bool = False) -> Errors:
    """Of the kernels and of the reference, both passes. ``alone`` leaves out the gradients of nll and log1m, which hide
    those of the sums where the network is sure."""
    generator = torch.Generator().manual_seed(len(needs))
    grads = torch.rand((2 + len(needs), len(logits)), generator=generator).to(logits.device)
    if alone:
        grads[:2] = 0.0
    exact = both_passes(reference, logits.double(), target, needs, grads.double())
    plain = both_passes(reference, logits.float(), target, needs, grads)
    given = logits.clone() if in_place else logits
    ours = both_passes(kernels, given, target, needs, grads, given if in_place else None)
    return Errors(*distances(ours, exact), *distances(plain, exact))


def both_passes(
    module: Any, logits: Tensor, target: Tensor, needs: list[RowSum], grads: Tensor, out: Tensor | None = None
) -> Any:
    """The statistics and the gradient."""
    values, saved = module.forward(logits, target, needs, grads.dtype)
    return values, module.backward(grads, logits, target, values, saved, needs, out)


def distances(ours: tuple[Tensor, Tensor], exact: tuple[Tensor, Tensor]) -> tuple[float, float]:
    value, truth = ours[0].double(), exact[0]
    off = torch.where(value == truth, 0.0, (value - truth).abs() / truth.abs().clamp_min(1e-30))
    norm = exact[1].norm(dim=1)
    gradient = (ours[1].double() - exact[1]).norm(dim=1) / torch.where(norm == 0, 1.0, norm)
    return tuple(float("nan") if bool(t.isnan().any()) else t.max().item() for t in (off, gradient))  # type: ignore[return-value]
