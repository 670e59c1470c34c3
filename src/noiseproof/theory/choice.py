"""The ``a`` to train with, for a noise: well above the least one that theory requires, and where that has been seen to work.

The bound is of the risk's minimiser, with the noise known exactly and the same for every example of a class. Training is none
of these: on the digits with 20 to 80 % wrong labels JAL-CE at the bound itself lost many points to larger values, at a third
of ``MANY`` times the bound a few, and beyond ``MANY`` times it gained little (benchmarks/auto_a.py, docs/choosing.md). More
than the paper's 30 is only taken where 30 is less than ``FEW`` times the bound, the paper's own ratio for CIFAR-10 with 80 %
noise, 30 to 9: towards an infinite ``a``, where AMSE is the mean absolute error, CIFAR-10 fell back (docs/results.md, NCE+MAE).

AMSE grows with ``a``. What stands beside it in the loss, and the learning rate and the decay, were tuned for one strength, so
``beta`` is changed to keep it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from noiseproof.losses import RobustLoss, create_loss, find_loss
from noiseproof.noise import LabelNoise, NoisyLabels
from noiseproof.theory.bounds import SHOWN, required_a_per_class
from noiseproof.theory.weights import Noise, label_weights

__all__ = ["AUTO", "ChosenA", "choose_a", "chosen_options", "is_auto", "loss_for"]

AUTO = "auto"
MANY, FEW = 10.0, 10 / 3
USUAL = 30.0
"""The paper's, for CIFAR-10"""
MOST = 100.0
"""Beyond it AMSE differs from the mean absolute error by less than 1 % of its slope, so that more changes nothing"""


@dataclass(frozen=True)
class ChosenA:
    """An ``a``, and why."""

    a: float
    required: float
    """The least ``a`` that theory requires, of the classes that have one of at most ``MOST``"""
    without: tuple[int, ...]
    """Classes for which no a is large enough, or none of at most ``MOST``"""
    reasons: tuple[str, ...]
    """Sentences; the second names the classes without, if there are any"""

    def __float__(self) -> float:
        return self.a


def choose_a(noise: Noise, q: float = 2.0, *, classes: int | None = None) -> ChosenA:
    """The ``a`` of AMSE, and with it of the JAL losses, to train with under a noise.

    Ten times the required one, but no more than 30 unless 30 is less than 10/3 times it. Classes for which no a is large enough
    are left out and named; a ValueError if that is all of them.

    >>> [round(float(choose_a(rate, classes=10)), 2) for rate in (0.0, 0.2, 0.4, 0.8, 0.85)]
    [10.0, 12.86, 18.0, 30.0, 60.0]
    >>> print(*choose_a("symmetric:0.4", classes=10).reasons)
    a = 18, 10 times the 1.8 that theory requires for symmetric:0.4 on 10 classes.
    """
    weights = label_weights(noise, classes)
    each = required_a_per_class(weights, q)
    without = np.flatnonzero(each > MOST)
    if len(without) == len(each):
        raise ValueError(
            "no a is large enough for any class: other labels are given as often as the clean one, or nearly; no loss can tell "
            "which is right, labels must be corrected first"
        )
    required = float(np.delete(each, without).max())
    a = rounded(min(max(FEW * required, min(MANY * required, USUAL)), MOST))
    how = f"a = {a:.4g}, {a / required:.3g} times the {required:.4g} that theory requires for {_in_words(noise, len(each))}"
    if a == USUAL:
        how += "; it is the paper's value for CIFAR-10"
    reasons = [how + "."]
    if len(without):
        reasons.append(_without(without.tolist(), len(each)))
    return ChosenA(a, required, tuple(without.tolist()), tuple(reasons))


def rounded(a: float) -> float:
    """To four digits: rounding in the bound is not to make another run of the same ``a``."""
    return float(f"{a:.4g}")


def _without(labels: list[int], classes: int) -> str:
    named = ", ".join(map(str, labels[:SHOWN])) + (f" and {len(labels) - SHOWN} more" if len(labels) > SHOWN else "")
    return (
        f"Not for class{'es' * (len(labels) > 1)} {named} of {classes}: another label is given there as often as the clean "
        "one, or nearly, and no loss can tell which is right."
    )


def _in_words(noise: Noise, classes: int) -> str:
    if isinstance(noise, str) and noise == "none":
        return f"labels without noise on {classes} classes"
    if isinstance(noise, str):
        return f"{noise if ':' in noise else f'the matrix in {noise}'} on {classes} classes"
    if isinstance(noise, NoisyLabels):
        return f"the realised noise, {noise.rate:.1%} of the labels, on {classes} classes"
    if isinstance(noise, LabelNoise):
        rate, file = noise.parameters.get("rate"), noise.parameters.get("file")
        what = noise.name if rate is None else f"{noise.name}:{rate:g}"
        return f"{f'the matrix in {file}' if file else what} on {classes} classes"
    if np.ndim(noise) == 0:
        return f"symmetric:{float(np.asarray(noise)):g} on {classes} classes"
    return f"the matrix of {classes} classes"


def is_auto(value: Any) -> bool:
    """Whether an option says ``auto`` or ``auto:SOURCE``."""
    return isinstance(value, str) and (value == AUTO or value.startswith(f"{AUTO}:"))


def chosen_options(
    loss: str, options: Mapping[str, Any], noise: Noise, *, classes: int | None = None
) -> tuple[dict[str, Any], ChosenA]:
    """The options of a loss with its ``a`` chosen for a noise, and the choice; its reasons also say what else was changed.

    Where AMSE has a weight ``beta``, ``beta a^(q-1)`` stays what the options have, with ``a`` at its default if they have none.
    """
    values = {**check_has_auto(loss), **options}
    found = choose_a(noise, values["q"], classes=classes)
    chosen, reasons = with_a(loss, options, found.a), list(found.reasons)
    if chosen.get("beta", values.get("beta")) != values.get("beta"):
        strength = "beta * a" if values["q"] == 2 else "beta * a^(q-1)"
        kept = values["beta"] * values["a"] ** (values["q"] - 1)
        reasons.append(f"beta = {chosen['beta']:.4g} keeps {strength}, the strength of AMSE, at {kept:.4g}.")
    return chosen, ChosenA(found.a, found.required, found.without, tuple(reasons))


def with_a(loss: str, options: Mapping[str, Any], a: float) -> dict[str, Any]:
    """The options of a loss with another ``a``, and with the ``beta`` that keeps the strength of AMSE, where it has one."""
    values = {**check_has_auto(loss), **options}
    changed = {**options, "a": a}
    if "beta" in values and a != values["a"]:
        changed["beta"] = values["beta"] * (values["a"] / a) ** (values["q"] - 1)
    return changed


def check_has_auto(loss: str) -> dict[str, Any]:
    """The hyper-parameters of a loss whose ``a`` can be chosen; a ValueError for another loss."""
    entry = find_loss(loss)
    if entry.name not in CHOOSES:
        known = ", ".join(CHOOSES)
        why = "its factor above the bound has not been measured" if "a" in entry.defaults else "it has no a"
        raise ValueError(f"{entry.name}: a=auto is for {known}; {why}")
    return entry.defaults


CHOOSES = ("amse", "anorm", "jal-ce", "jal-fl")
"""Losses with the bound of the paper's theorem"""


def loss_for(name: str, noise: Noise | Path, *, classes: int | None = None, **options: Any) -> RobustLoss:
    """The loss with this name and its ``a`` chosen for a noise, see :func:`choose_a`.

    ``noise`` is a rate, ``symmetric:0.4``, a matrix or its file, the folder of an audit, or a :class:`LabelNoise`. ``options``
    are those of :func:`noiseproof.create_loss`; ``beta`` is meant for ``a`` at its default, and changed with it.

    >>> loss_for("jal-ce", "symmetric:0.4", classes=10)
    JALCE(alpha=1.0, beta=1.6666666666666667, a=18.0, q=2.0, offset=True)
    """
    if "a" in options:
        raise ValueError(f"loss_for chooses a, got a={options['a']!r}; give a number to create_loss")
    if isinstance(noise, Path):
        noise = str(noise)
    chosen, _ = chosen_options(name, options, noise, classes=classes)
    return create_loss(name, **chosen)
