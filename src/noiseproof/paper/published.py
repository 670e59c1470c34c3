"""The published numbers: 439 cells of seven tables, as data."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from importlib import resources

from noiseproof.losses import find_loss

DATASET_NAMES = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "webvision": "WebVision", "ilsvrc12": "ILSVRC12"}
DATASET_NAMES |= {"clothing1m": "Clothing1M", "digits": "Digits"}
"""Data sets as they are shown"""


@dataclass(frozen=True)
class Cell:
    """One number of one table, and what it was measured on: percent of the test set that is right after the last epoch.

    Attributes:
        table: sym_asym, instance, human, real_world, ablation, agce_mae or, in the supplement, agce_mae_all.
        dataset: Name of the data set.
        noise: clean, symmetric, asymmetric, instance, human or real.
        rate: The rate; for human noise the name of the labels, for real data None.
        loss: As the paper writes it.
        mean: Over the trials, in percent.
        std: Standard deviation, where it is printed.
        trials: Number of runs; None where the paper does not state it.
        quoted_from: The paper that the number was copied from; None where it was measured.
        alpha: The weight that the table itself varies.
        beta: The other weight that it varies.

    >>> cells(table="human", loss="JAL-CE")[0].mean
    89.94
    """

    table: str
    """sym_asym, instance, human, real_world, ablation, agce_mae or, in the supplement, agce_mae_all"""
    dataset: str
    noise: str
    """clean, symmetric, asymmetric, instance, human or real"""
    rate: float | str | None
    """The rate; for human noise the name of the labels, for real data None"""
    loss: str
    """As the paper writes it"""
    mean: float
    std: float | None
    trials: int | None
    """None where the paper does not say"""
    quoted_from: str | None = None
    """The paper that the number was copied from; None where it was measured"""
    alpha: float | None = None
    beta: float | None = None
    """The weights that the table itself varies"""

    @property
    def spec(self) -> str:
        """The noise as :func:`~noiseproof.paper.recipe` accepts it.

        >>> cells(table="human", loss="JAL-CE")[2].spec
        'human:worst'
        """
        return "none" if self.noise in ("clean", "real") else f"{self.noise}:{self.rate}"

    @property
    def remark(self) -> str | None:
        """Why the number should be read with care, where that is known."""
        if self.quoted_from is not None:
            return f"quoted from the {self.quoted_from}"
        if (self.dataset, self.loss) == ("cifar10", "GCE") and self.spec in ("none", "symmetric:0.2"):
            return "89.36 ± 0.19 is printed for clean labels and for 0.2 symmetric noise: likely a copy"
        if (self.dataset, self.loss) == ("cifar100", "NCE+AUL"):
            return "cannot come from the published scripts: they fail on 100 classes"
        return None


def cells(
    *,
    table: str | None = None,
    dataset: str | None = None,
    noise: str | None = None,
    rate: float | str | None = None,
    loss: str | None = None,
) -> tuple[Cell, ...]:
    """The published numbers in the order of the tables; each argument keeps those with that value.

    Args:
        table: ``sym_asym``, ``instance``, ``human``, ``real_world``, ``ablation``, ``agce_mae`` or ``agce_mae_all``.
        dataset: ``cifar10``, ``cifar100``, ``webvision``, ``ilsvrc12`` or ``clothing1m``.
        noise: ``clean``, ``symmetric``, ``asymmetric``, ``instance``, ``human`` or ``real``.
        rate: The rate, or the name of human labels.
        loss: In any spelling.

    Returns:
        The cells.

    Raises:
        ValueError: No cell has such a value.

    >>> len(cells()), [cell.mean for cell in cells(table="ablation", loss="amse")]
    (439, [87.54, 64.97, 83.88, 58.07])
    """
    kept = _all()
    for name, wanted in {"table": table, "dataset": dataset, "noise": noise, "rate": rate}.items():
        if wanted is None:
            continue
        values = {getattr(cell, name): None for cell in _all()}
        if wanted not in values:
            raise ValueError(f"{name} must be one of {', '.join(str(v) for v in values if v is not None)}, got {wanted!r}")
        kept = tuple(cell for cell in kept if getattr(cell, name) == wanted)
    if loss is None:
        return kept
    wanted = find_loss(loss).name
    return tuple(cell for cell in kept if find_loss(cell.loss).name == wanted)


@functools.cache
def _all() -> tuple[Cell, ...]:
    text = resources.files("noiseproof.paper").joinpath("results.jsonl").read_text(encoding="utf-8")
    return tuple(Cell(**json.loads(line)) for line in text.splitlines())
