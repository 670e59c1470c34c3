"""Whether a loss tolerates a noise, class by class: by its condition in the catalogue, or by solving for the minimiser.

A condition that holds is a proof. Where it fails, or none is known, there is a counterexample or there is none found: a
prediction with a lower risk than certainty of the clean class. Then the answer is ``no``, and the prediction is its proof.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from noiseproof.io.text import and_more
from noiseproof.losses import RobustLoss, Sum
from noiseproof.losses.base import parameters_of
from noiseproof.losses.catalog import create_loss, evaluate, list_losses, values_of
from noiseproof.theory.risk import (
    ROUNDING,
    Noise,
    Weights,
    label_weights,
    risk_of,
    seen_by,
    solve,
    two_largest,
    with_logits,
)

Answer = Literal["yes", "no", "not dominant", "not found"]
"""yes: proved. no: the counterexample is there. not dominant: another label is given as often as the clean one, so that no
loss can tell. not found: nothing is proved, and many starts found nothing better than the clean vertex"""
TOLERANCE = 1e-9  # of the risk's size
AT_VERTEX = 1 - 1e-7  # a prediction that gives the clean class this much is on its way to the vertex
MIN_SHARE_SHOWN, MAX_SHARES_SHOWN = 5e-4, 6
EDGE_SHARES = (0.001, 0.01, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)
"""How far from the clean vertex predictions are tried before the minimiser is solved for"""


@dataclass(frozen=True)
class ClassVerdict:
    """What is known of one class.

    Attributes:
        label: The class.
        answer: ``yes``, ``no``, ``not dominant`` or ``not found``.
        reason: Why, in words or as the condition that holds.
        clean_weight: How often the clean label is given.
        rival: The label that is given most often after the clean one.
        rival_weight: How often it is given.
        better: A prediction with a lower risk than certainty of the clean class.
        gain: How much lower.

    Example:
        >>> print(check("mae", 0.4, classes=3).classes[0])
        class 0: yes, symmetric; its label is given 60.0% of the time, label 1 20.0%
    """

    label: int
    answer: Answer
    reason: str
    clean_weight: float
    rival: int
    rival_weight: float
    better: NDArray[np.float64] | None = None
    gain: float = 0.0

    def __str__(self) -> str:
        text = f"class {self.label}: {self.answer}, {self.reason}"
        if self.better is not None:
            likely = [f"{k}: {share:.3g}" for k, share in enumerate(self.better.tolist()) if share >= MIN_SHARE_SHOWN]
            text += f" ({and_more(likely, MAX_SHARES_SHOWN)}; lower by {self.gain:.2g})"
        return f"{text}; its label is given {self.clean_weight:.1%} of the time, label {self.rival} {self.rival_weight:.1%}"


@dataclass(frozen=True)
class Check:
    """The verdicts of all classes.

    Attributes:
        loss: The loss, as it prints itself.
        classes: A verdict for each class.

    Example:
        >>> print(check("mae", 0.4, classes=3))
        MAE(scale=2.0) on 3 classes: yes 3
    """

    loss: str
    classes: tuple[ClassVerdict, ...]

    @property
    def tolerant(self) -> bool:
        """Whether the loss tolerates the noise for every class, proved."""
        return all(verdict.answer == "yes" for verdict in self.classes)

    def __str__(self) -> str:
        counts = Counter(verdict.answer for verdict in self.classes)
        return f"{self.loss} on {len(self.classes)} classes: {', '.join(f'{answer} {n}' for answer, n in counts.items())}"


def check(loss: RobustLoss | str, noise: Noise, *, classes: int | None = None) -> Check:
    """Check for every class whether the risk is least at the clean vertex.

    Args:
        loss: A loss of the catalogue, by name too, a sum of them, or your own. Its label smoothing and class weights change the
            label weights.
        noise: What :func:`label_weights` accepts.
        classes: The number of classes, if the noise does not say it.

    Returns:
        The verdicts, each with a proof or a counterexample where one is known.

    Example:
        >>> verdict = check("jal-ce", "symmetric:0.8", classes=10)
        >>> verdict.tolerant, verdict.classes[0].reason
        (True, 'q <= 1 or w1 * (a - 1)**(q - 1) >= w2 * a**(q - 1) + (1 - w1)')
    """
    criterion = with_logits(create_loss(loss) if isinstance(loss, str) else loss)
    weights = seen_by(criterion, label_weights(noise, classes))
    own, other, rival = two_largest(weights)
    condition = _condition(criterion)
    verdicts: dict[int, ClassVerdict] = {}
    open_classes = []
    for label, (w1, w2) in enumerate(zip(own.tolist(), other.tolist(), strict=True)):
        known = (w1, int(rival[label]), w2)
        if w1 - w2 <= ROUNDING:
            reason = f"label {rival[label]} is given as often as the clean one"
            verdicts[label] = ClassVerdict(label, "not dominant", reason, *known)
        elif condition is not None and condition.holds(w1, w2):
            verdicts[label] = ClassVerdict(label, "yes", condition.text, *known)
        elif condition is not None and w2 == 0:  # the risk is the loss of one label, least where that is certain
            verdicts[label] = ClassVerdict(label, "yes", "no other label is given", *known)
        else:
            open_classes.append(label)
    found = _counterexamples(criterion, weights, open_classes) if open_classes else ()
    for label, (better, gain) in zip(open_classes, found, strict=True):
        known = (float(own[label]), int(rival[label]), float(other[label]))
        if better is not None:
            reason = "a prediction with a lower risk was found"
            verdicts[label] = ClassVerdict(label, "no", reason, *known, better, gain)
        elif condition is not None and condition.necessary:
            verdicts[label] = ClassVerdict(label, "no", f"not ({condition.text})", *known)
        else:
            reason = "no prediction with a lower risk was found, from many starts"
            verdicts[label] = ClassVerdict(label, "not found", reason, *known)
    return Check(repr(criterion), tuple(verdicts[label] for label in range(len(weights))))


@dataclass(frozen=True)
class _Condition:
    """When a loss tolerates weights w1 > w2 >= ...: all of these conditions, each with the values of its parameters."""

    parts: tuple[tuple[str, dict[str, Any]], ...]
    necessary: bool

    @property
    def text(self) -> str:
        texts = [text.removeprefix("if ") for text, _ in self.parts]
        return " and ".join(text for text in texts if text != "True") or "symmetric"

    def holds(self, w1: float, w2: float) -> bool:
        """Up to rounding, so that it holds at the bound itself: all conditions ask for a large w1 and a small w2."""
        weights = {"w1": w1 + ROUNDING, "w2": max(w2 - ROUNDING, 0.0)}
        with np.errstate(over="ignore", invalid="ignore"):  # exp(1 / a) of a small a is beyond all weights
            return all(evaluate(text, {**values, **weights}) for text, values in self.parts)


def _condition(loss: RobustLoss) -> _Condition | None:
    """What the catalogue knows of a loss; of a sum, that every part tolerates the weights."""
    if isinstance(loss, Sum):
        found = [_condition(part) for coefficient, part in loss.terms if coefficient != 0]
        if not found or any(coefficient < 0 for coefficient, _ in loss.terms) or None in found:
            return None
        parts = tuple(part for condition in found if condition is not None for part in condition.parts)
        return _Condition(parts, necessary=len(found) == 1 and found[0] is not None and found[0].necessary)
    for entry in list_losses():
        if type(loss) is entry.cls and entry.asymmetric is not None and _has_usual_base(loss):
            return _Condition(((entry.asymmetric, values_of(loss)),), necessary=not entry.asymmetric.startswith("if "))
    return None


def _has_usual_base(loss: RobustLoss) -> bool:
    """Whether a loss around another one is around that of which the catalogue speaks, the default."""
    given = {name: getattr(loss, name) for name in parameters_of(type(loss))}
    return "base" not in given or repr(given["base"]) == repr(type(loss)(**{**given, "base": None}).base)


def _counterexamples(loss: RobustLoss, weights: Weights, labels: list[int]) -> Iterator[tuple[Weights | None, float]]:
    """Of each class the best prediction found that is better than the clean vertex, and by how much; None if none was."""
    chosen = weights[labels]
    order, vertices = np.tile(np.arange(len(weights)), (len(labels), 1)), np.asarray(labels)
    if _treats_classes_alike(loss):  # classes with the same weights in another order have the same answer
        order = np.argsort(-chosen, axis=1, kind="stable")
        vertices = np.zeros_like(vertices)
    ordered = np.take_along_axis(chosen, order, 1)
    keys = np.column_stack([vertices, ordered.round(12)])
    _, first, place_of = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    best, gain = _searched(loss, ordered[first], vertices[first])
    for row, place in enumerate(place_of.reshape(-1)):
        point = np.empty(len(weights))
        point[order[row]] = best[place]
        yield (point, float(gain[place])) if gain[place] > 0 else (None, 0.0)


def _searched(loss: RobustLoss, weights: Weights, vertices: NDArray[np.int_]) -> tuple[Weights, NDArray[np.float64]]:
    """The best prediction found for each row of weights, and how much lower its risk is than at the vertex, or 0."""
    rows = np.arange(len(weights))
    certain = risk_of(loss, weights, np.eye(weights.shape[1])[vertices])
    least_gain = TOLERANCE * np.maximum(1.0, np.abs(certain))
    best, least = _on_edges(loss, weights, vertices)
    for row in rows[certain - least <= least_gain]:
        point, value = solve(loss, weights[row : row + 1])
        best[row], least[row] = point[0], value[0]
    found = (certain - least > least_gain) & (best[rows, vertices] < AT_VERTEX)
    return best, np.where(found, certain - least, 0.0)


def _on_edges(loss: RobustLoss, weights: Weights, vertices: NDArray[np.int_]) -> tuple[Weights, NDArray[np.float64]]:
    """The best prediction between the vertex and that of the largest other weight, which is where most fail first."""
    rows = np.arange(len(weights))
    others = np.array(weights)
    others[rows, vertices] = -1.0
    best, least = np.zeros_like(weights), np.full(len(weights), np.inf)
    for share in EDGE_SHARES:
        point = np.zeros_like(weights)
        point[rows, vertices], point[rows, others.argmax(1)] = 1 - share, share
        value = risk_of(loss, weights, point)
        better = value < least
        best[better], least[better] = point[better], value[better]
    return best, least


def _treats_classes_alike(loss: RobustLoss) -> bool:
    """True of the losses of the catalogue and their sums; another loss may not."""
    known = {entry.cls for entry in list_losses()} | {Sum}
    return all(type(part) in known for part in loss.modules() if isinstance(part, RobustLoss))
