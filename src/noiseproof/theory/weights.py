"""From noise to weights: how likely each label is to be given to an example of a class."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from noiseproof.checks import check_integer
from noiseproof.losses import RobustLoss
from noiseproof.noise import LabelNoise, NoisyLabels, from_matrix, from_spec, symmetric

ROUNDING = 1e-12
"""Weights that differ by no more are equal: 1 - 8/9 and (8/9) / 8 differ by 3e-17"""

Weights: TypeAlias = NDArray[np.float64]
Noise: TypeAlias = LabelNoise | NoisyLabels | ArrayLike | str
"""A noise, noisy labels (their realised matrix), a transition matrix, a rate of symmetric noise, or text: ``symmetric:0.8``"""


def label_weights(noise: Noise, classes: int | None = None) -> Weights:
    """Return the transition matrix of a noise: row i has the probabilities of the labels given to examples of class i.

    Args:
        noise: A noise, noisy labels (their realised matrix), a transition matrix, a rate of symmetric noise, or text as
            ``symmetric:0.8``.
        classes: The number of classes; needed for a rate and for text that does not say it.

    Returns:
        The matrix ``[K, K]``.

    Raises:
        ValueError: If the number of classes is missing, or is not that of the noise.

    Example:
        >>> label_weights(0.6, classes=3)
        array([[0.4, 0.3, 0.3],
               [0.3, 0.4, 0.3],
               [0.3, 0.3, 0.4]])
    """
    if isinstance(noise, str):
        made = from_spec(noise, classes)
    elif isinstance(noise, LabelNoise):
        made = noise
    elif isinstance(noise, NoisyLabels):
        made = from_matrix(_with_absent_classes(noise.matrix))
    elif np.ndim(noise) == 0:
        if classes is None:
            raise ValueError("a noise rate needs the number of classes: give classes=")
        made = symmetric(classes, float(np.asarray(noise)))
    else:
        made = from_matrix(noise)
    if classes is not None and made.classes != check_integer("classes", classes, at_least=2):
        raise ValueError(f"the noise is of {made.classes} classes, got classes={classes}; leave it out")
    return np.array(made.matrix)


def _with_absent_classes(matrix: Weights) -> Weights:
    """A class without examples has a row of zeros; it keeps its labels."""
    full = np.array(matrix)
    absent = np.flatnonzero(full.sum(1) == 0)
    full[absent, absent] = 1.0
    return full


def seen_by(loss: RobustLoss, weights: Weights) -> Weights:
    """The weights that a loss with label smoothing or class weights makes of these, each row normalised again."""
    smoothing = loss.label_smoothing
    changed = (1 - smoothing) * weights + smoothing / weights.shape[-1]
    if loss.weight is not None:
        scale = loss.weight.double().cpu().numpy()
        if len(scale) != weights.shape[-1]:
            raise ValueError(f"the loss has class weights for {len(scale)} classes, the noise is of {weights.shape[-1]}")
        changed = changed * scale
    total = changed.sum(-1, keepdims=True)
    if (total == 0).any():
        raise ValueError("the class weights of the loss are 0 for every label of a class; no risk is left there")
    return np.asarray(changed / total)


def two_largest(weights: Weights) -> tuple[Weights, Weights, NDArray[np.intp]]:
    """Of each class: the weight of its own label, the largest other one, and the label that has it."""
    own = np.diagonal(weights)
    others = np.array(weights)
    np.fill_diagonal(others, -1.0)
    rival = others.argmax(1)
    return own, others[np.arange(len(others)), rival], rival
