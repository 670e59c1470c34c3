"""How the catalogue's losses are built and fed in the tests that run over all of them."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor

from noiseproof import LossEntry, RobustLoss, Sum, list_losses
from noiseproof.losses.base import parameters_of
from noiseproof.losses.complementary import complementary_labels

ENTRIES = {entry.name: entry for entry in list_losses()}
NAMES = list(ENTRIES)
PAIRS = [name for name, entry in ENTRIES.items() if issubclass(entry.cls, Sum)]
"""Losses that are ``alpha * first + beta * second`` and nothing else."""
DISTINCT = [name for name in NAMES if name not in PAIRS or name in {"jal-ce", "nfl+rce", "ece+mae"}]
"""All single losses and three pairs: with shared sums, with a focal loss, with what reads the margin. What holds for the parts
of a sum and for one sum holds for the other pairs, which the tests show to be sums of their parts."""
RANDOM = {"nl", "jnpl"}
"""Losses that draw a complementary label at each call."""
DETACHED = {"dft", "jnpl"}
"""Losses with weights that are constants to the gradient, which is then no derivative."""
STATISTIC = [name for name, entry in ENTRIES.items() if entry.reads == "statistics"]
VARIANTS = {
    "fl": [{"gamma": 0.0}, {"gamma": 2.0}],
    "nfl": [{"gamma": 0.0}, {"gamma": 2.0}],
    "nnfl": [{"gamma": 2.0, "minimum": 1e-3}],
    "gce": [{"q": 1.0}, {"q": 0.1}],
    "taylor-ce": [{"t": 1}, {"t": 6}],
    "aul": [{"a": 1.5, "p": 0.5}, {"a": 3.0, "p": 1.0}],
    "agce": [{"a": 6.0, "q": 1.5}, {"a": 1.8, "q": 3.0}, {"a": 1.0, "q": 1.0}],
    "ael": [{"a": 0.5}],
    "anorm": [{"a": 1.0, "q": 0.5}, {"a": 5.0, "q": 3.0}, {"a": 2.0, "q": 1.0}],
    "amse": [
        {"a": 1.0},
        {"a": 9.0},
        {"a": 4.0, "q": 3.0},
        {"a": 2.0, "q": 0.5, "offset": False},
        {"a": 1.0, "q": 0.5},
        {"a": 3.0, "q": 1.0},
    ],
    "jal-ce": [{"alpha": 5.0, "a": 20.0, "offset": False}, {"a": 2.0, "q": 3.0}],
    "js": [{"pi": 0.1}, {"pi": 0.9}],
    "gjs": [{"pi": 0.1, "views": 3}],
    "ldr": [{"c": 2.0, "lam": 1.0}],
    "negative-ls": [{"r": 0.3}],
    "sr": [{"temperature": 1.0, "q": 0.5}],
    "phuber-ce": [{"tau": 2.0}],
    "ogc": [{"tau": 2.0}],
    "logit-bias": [{"epsilon": 0.0}, {"epsilon": -1.0}, {"epsilon": 4.0}],
    "nce+aul": [{"p": 1.0}],
    "nfl+aul": [{"p": 1.0}],
    "nce+agce": [{"q": 1.0}],
    "nfl+agce": [{"q": 1.0}],
    "agce+mae": [{"q": 1.0}],
}
"""Other parameters than the defaults, for the tests that walk through them."""


def all_options(names: list[str] = NAMES) -> list[tuple[str, dict[str, Any]]]:
    """Each entry with its defaults and with each of its variants."""
    return [(name, options) for name in names for options in [{}, *VARIANTS.get(name, [])]]


def required(entry: LossEntry, width: int) -> dict[str, Any]:
    """The options without defaults: heads are built for ``width`` features and as many classes, so that shapes agree."""
    given = {"features": width, "classes": width}
    return {name: given[name] for name, default in entry.defaults.items() if default is inspect.Parameter.empty}


def build(name: str, classes: int = 5, **options: Any) -> RobustLoss:
    """The loss, its random start and its random draws fixed."""
    entry = ENTRIES[name]
    torch.manual_seed(1)
    return entry.cls(**required(entry, classes), **options)


def call(loss: RobustLoss, logits: Tensor, target: Tensor) -> Tensor:
    """The loss with the same random draws at every call."""
    torch.manual_seed(2)
    return loss(logits, target)


def draw(
    rows: int = 6, classes: int = 5, *, scale: float = 2.0, dtype: torch.dtype = torch.float64, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """Random logits and labels."""
    generator = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(rows, classes, generator=generator, dtype=torch.float64)
    return logits.to(dtype), torch.randint(classes, (rows,), generator=generator)


def tied_rows(classes: int) -> Tensor:
    """Classes that tie, and a label, class 0, far below them: all of them, half of them, only two; then the label among or
    above them, or above all but one."""
    generator = torch.Generator().manual_seed(classes)
    label, rows = torch.tensor([0]), []
    for apart in (0.0, 1e-7, 1e-5, 1e-3, 1e-2):
        near = 0.25 - apart * torch.rand(classes, generator=generator)
        near[1] = 0.25
        half = torch.where(near > near.median(), 0.25, near.min())
        two = (near - 15.0).index_copy(0, torch.arange(1, 3), torch.tensor([0.25, 0.25 - apart]))
        rows += [near.index_fill(0, label, z) for z in (-80.0, -20.0, -5.0, 0.25, 3.0)]
        rows += [half.index_fill(0, label, -30.0), two.index_fill(0, label, -20.0), near]
    return torch.stack(rows)


def gradient(loss: RobustLoss, logits: Tensor, target: Tensor) -> Tensor:
    """Of the sum of the losses."""
    leaf = logits.detach().clone().requires_grad_()
    result = call(loss, leaf, target)
    (grad,) = torch.autograd.grad(result.sum(), leaf)
    return grad


def parameters(loss: RobustLoss) -> dict[str, Any]:
    """The loss's hyper-parameters, and for a head its learned ones, as the formulas take them."""
    found = {name: getattr(loss, name) for name in parameters_of(type(loss))}
    if hasattr(loss, "means"):
        found |= {"means": loss.means.detach().numpy(), "root_freedom": loss.root_freedom.detach().numpy()}
        found |= {"training": loss.training, "base": "nce+rce" if "alpha" in found else "ce", "clip": 1e-4}
    if hasattr(loss, "strength"):
        found["lam"] = loss.strength.item()
    found.pop("views", None)  # one tensor stands for equal predictions, as it does in the formula
    return found


def draws(name: str, logits: Tensor, target: Tensor) -> list[dict[str, Any]]:
    """What a random loss draws after ``call`` has set the seed: the same draws, made here once more."""
    torch.manual_seed(2)
    if name not in RANDOM:
        return [{}] * len(target)
    classes = logits.shape[1]
    other = complementary_labels(target, classes, None)
    if name == "nl":
        return [{"complement": int(c)} for c in other]
    coin = torch.rand(len(target), dtype=logits.dtype)
    p = torch.softmax(logits, 1)
    hit = p.gather(1, target[:, None])[:, 0]
    others = p.scatter(1, target[:, None], 0.0).amax(1)
    kept = (others < 1 / classes) & (coin < hit)
    return [{"complement": int(c), "kept": bool(k)} for c, k in zip(other, kept, strict=True)]
