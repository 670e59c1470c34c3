"""The least ``a`` with which AMSE, and with it the JAL losses, tolerate a noise, and the ``a`` to train with.

With ``w1`` the weight of the clean label and ``w2`` the largest other one, AMSE of the power q > 1 is asymmetric if and only if
``w1 (a - 1)^(q-1) >= w2 a^(q-1) + (1 - w1)``: its risk is convex, and this is the condition of Karush, Kuhn and Tucker at the
clean vertex. The left side less the right is negative at a = 1, and crosses zero once; for q = 2 at ``1 / (w1 - w2)``. For
q <= 1 the risk is concave, and every a >= 1 will do where w1 > w2.

The bound is of the risk's minimiser, with the noise known exactly and the same for every example of a class. Training is none
of these. On the digits with 20 to 80 % wrong labels JAL-CE at the bound itself lost many points to larger values; at a third of
``USUAL_FACTOR`` times the bound it lost a few, and beyond ``USUAL_FACTOR`` times it gained little (benchmarks/auto_a.py,
docs/how_to/choosing.md). A value above the paper's 30 is only chosen where 30 is less than ``MIN_FACTOR`` times the bound, the
paper's own ratio for CIFAR-10 with 80 % noise, 30 to 9: towards an infinite ``a``, where AMSE is the mean absolute error,
CIFAR-10 fell back (docs/benchmarks/loss_or_decay.md, NCE+MAE).

AMSE grows with ``a``. The other part of the loss, the learning rate and the regularisation were tuned for one strength, so
``beta`` is changed to keep it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noiseproof.checks import check_range
from noiseproof.io.text import and_more
from noiseproof.losses import RobustLoss, create_loss, find_loss
from noiseproof.noise import LabelNoise, NoisyLabels
from noiseproof.theory.risk import ROUNDING, Noise, label_weights, two_largest

AUTO = "auto"
USUAL_FACTOR, MIN_FACTOR = 10.0, 10 / 3
PAPER_A = 30.0
"""The paper's, for CIFAR-10"""
MAX_A = 100.0
"""Beyond it AMSE differs from the mean absolute error by less than 1 % of its slope, so that more changes nothing"""
LOSSES_WITH_AUTO = ("amse", "anorm", "jal-ce", "jal-fl")
"""Losses with the bound of the paper's theorem"""
MAX_CLASSES_NAMED = 10


def required_a(noise: Noise, q: float = 2.0, *, classes: int | None = None) -> float:
    """Return the least ``a`` with which AMSE tolerates a noise for every class.

    Args:
        noise: What :func:`label_weights` accepts: a matrix, a rate, ``symmetric:0.8``, noisy labels.
        q: The power of AMSE.
        classes: The number of classes, if the noise does not say it.

    Returns:
        The least ``a``.

    Raises:
        ValueError: If no ``a`` is large enough for a class; the message names the classes.

    Example:
        >>> round(required_a("symmetric:0.8", classes=10), 3), round(required_a(0.8, q=3, classes=10), 3)
        (9.0, 4.739)
    """
    each = required_a_per_class(noise, q, classes=classes)
    none = np.flatnonzero(np.isinf(each)).tolist()
    if none:
        raise ValueError(
            f"no a is large enough for {_named(none)} of {len(each)}: another label is given there as often as the clean one"
        )
    return float(each.max())


def _named(labels: list[int]) -> str:
    return f"class{'es' * (len(labels) > 1)} {and_more(labels, MAX_CLASSES_NAMED)}"


def required_a_per_class(noise: Noise, q: float = 2.0, *, classes: int | None = None) -> NDArray[np.float64]:
    """Return the least ``a`` of each class.

    Args:
        noise: What :func:`label_weights` accepts.
        q: The power of AMSE.
        classes: The number of classes, if the noise does not say it.

    Returns:
        The values ``[K]``; infinite where another label is given as often as the clean one.

    Example:
        >>> required_a_per_class([[0.8, 0.2], [0.5, 0.5]])
        array([1.66666667,        inf])
    """
    q = check_range("q", q, above=0)
    own, other, _ = two_largest(label_weights(noise, classes))
    return np.array([_least_a(w1, w2, q) for w1, w2 in zip(own.tolist(), other.tolist(), strict=True)])


def _least_a(w1: float, w2: float, q: float) -> float:
    if w1 - w2 <= ROUNDING:
        return math.inf
    if q <= 1 or w1 == 1:
        return 1.0
    if q == 2:
        return 1 / (w1 - w2)

    def surplus(a: float) -> float:
        """Over ``a^(q-1)``, which would overflow for a large q."""
        return w1 * math.pow(1 - 1 / a, q - 1) - w2 - (1 - w1) * math.pow(a, 1 - q)

    low, high = 1.0, 2.0
    while surplus(high) < 0:
        low, high = high, 2 * high
        if math.isinf(high):
            return math.inf
    while True:
        middle = low + (high - low) / 2
        if middle in (low, high):
            return high
        low, high = (low, middle) if surplus(middle) >= 0 else (middle, high)


@dataclass(frozen=True)
class ChosenA:
    """An ``a``, and why.

    Attributes:
        a: The value.
        required: The least ``a`` that theory requires, of the classes that have one of at most 100.
        without: Classes for which no ``a`` is large enough, or none of at most 100.
        reasons: Sentences; the second names the classes without, if there are any.

    Example:
        >>> choose_a("symmetric:0.4", classes=10).a
        18.0
    """

    a: float
    required: float
    without: tuple[int, ...]
    reasons: tuple[str, ...]

    def __float__(self) -> float:
        return self.a


def choose_a(noise: Noise, q: float = 2.0, *, classes: int | None = None) -> ChosenA:
    """Choose the ``a`` of AMSE, and with it of the JAL losses, to train with under a noise.

    ``a = min(100, max(10/3 a_min, min(10 a_min, 30)))`` with the required ``a_min`` of classes that have one of at most 100.

    Args:
        noise: What :func:`label_weights` accepts.
        q: The power of AMSE.
        classes: The number of classes, if the noise does not say it.

    Returns:
        The value, with its reasons and the classes that are left out.

    Raises:
        ValueError: If no ``a`` is large enough for any class.

    Example:
        >>> [round(float(choose_a(rate, classes=10)), 2) for rate in (0.0, 0.2, 0.4, 0.8, 0.85)]
        [10.0, 12.86, 18.0, 30.0, 60.0]
        >>> print(*choose_a("symmetric:0.4", classes=10).reasons)
        a = 18, 10 times the 1.8 that theory requires for symmetric:0.4 on 10 classes.
    """
    weights = label_weights(noise, classes)
    each = required_a_per_class(weights, q)
    without = np.flatnonzero(each > MAX_A)
    if len(without) == len(each):
        raise ValueError(
            "no a is large enough for any class: other labels are given as often as the clean one, or nearly; no loss can tell "
            "which is right, labels must be corrected first"
        )
    required = float(np.delete(each, without).max())
    a = rounded(min(max(MIN_FACTOR * required, min(USUAL_FACTOR * required, PAPER_A)), MAX_A))
    how = f"a = {a:.4g}, {a / required:.3g} times the {required:.4g} that theory requires for {_in_words(noise, len(each))}"
    if a == PAPER_A:
        how += "; it is the paper's value for CIFAR-10"
    reasons = [how + "."]
    if len(without):
        reasons.append(_without(without.tolist(), len(each)))
    return ChosenA(a, required, tuple(without.tolist()), tuple(reasons))


def rounded(a: float) -> float:
    """To four digits: rounding in the bound is not to make another run of the same ``a``."""
    return float(f"{a:.4g}")


def _without(labels: list[int], classes: int) -> str:
    return (
        f"Not for {_named(labels)} of {classes}: another label is given there as often as the clean "
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
    """The hyperparameters of a loss whose ``a`` can be chosen; a ValueError for another loss."""
    entry = find_loss(loss)
    if entry.name not in LOSSES_WITH_AUTO:
        known = ", ".join(LOSSES_WITH_AUTO)
        why = "its factor above the bound has not been measured" if "a" in entry.defaults else "it has no a"
        raise ValueError(f"{entry.name}: a=auto is for {known}; {why}")
    return entry.defaults


def loss_for(name: str, noise: Noise | Path, *, classes: int | None = None, **options: Any) -> RobustLoss:
    """Create a loss with its ``a`` chosen for a noise; see :func:`choose_a`.

    Args:
        name: ``amse``, ``anorm``, ``jal-ce`` or ``jal-fl``.
        noise: A rate, ``symmetric:0.4``, a matrix or its file, the folder of an audit, or a :class:`LabelNoise`.
        classes: The number of classes, if the noise does not say it.
        **options: Those of :func:`noiseproof.create_loss`. ``beta`` is meant for ``a`` at its default, and changed with it.

    Returns:
        The loss.

    Raises:
        ValueError: If ``a`` is given, the loss has none that can be chosen, or no ``a`` is large enough.

    Example:
        >>> loss_for("jal-ce", "symmetric:0.4", classes=10)
        JALCE(alpha=1.0, beta=1.6666666666666667, a=18.0, q=2.0, offset=True)
    """
    if "a" in options:
        raise ValueError(f"loss_for chooses a, got a={options['a']!r}; give a number to create_loss")
    if isinstance(noise, Path):
        noise = str(noise)
    chosen, _ = chosen_options(name, options, noise, classes=classes)
    return create_loss(name, **chosen)
