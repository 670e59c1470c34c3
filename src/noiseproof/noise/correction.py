"""What accuracy on noisy labels says of the accuracy on clean ones."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from noiseproof.noise.matrix import LabelNoise, as_labels

__all__ = ["CleanAccuracy", "clean_accuracy"]

MOST = 1e6
"""Condition of a matrix above which its inverse is rounding"""


class CleanAccuracy(NamedTuple):
    """An estimate, which may lie outside of [0, 1], and its standard error over the examples."""

    value: float
    error: float


def clean_accuracy(predicted: ArrayLike, given: ArrayLike, noise: LabelNoise) -> CleanAccuracy:
    """The accuracy on clean labels, from predictions and given labels whose noise is known or was estimated.

    An example counts by the entry ``[given, predicted]`` of the inverse of the transition matrix. Over the given labels of an
    example of class i that is in the mean row i of ``T T^-1``: 1 where class i is predicted, else 0. So the mean over examples
    is right on average, where labels depend on the class alone and the examples were not trained on. The more noise, the larger
    the entries, and the error.

    >>> from noiseproof.noise import from_matrix
    >>> clean_accuracy([0, 0, 1, 1], [0, 0, 1, 1], from_matrix([[0.9, 0.1], [0.1, 0.9]])).value.__round__(4)
    1.125

    Reference: Natarajan et al., NeurIPS 2013, the method of unbiased estimators, with the error rate as the loss.
    """
    counted, labels = (as_labels(each, noise.classes, what) for each, what in ((predicted, "predictions"), (given, "labels")))
    if counted.shape != labels.shape or len(labels) < 2:
        raise ValueError(f"there must be one label for each of two predictions or more: {len(labels)} and {len(counted)}")
    if np.linalg.cond(noise.matrix) > MOST:
        raise ValueError("the transition matrix has no inverse: two classes are labelled alike, and cannot be told apart")
    worth = np.linalg.inv(noise.matrix)[labels, counted]
    return CleanAccuracy(float(worth.mean()), float(worth.std(ddof=1) / len(worth) ** 0.5))
