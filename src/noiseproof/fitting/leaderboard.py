"""The leaderboard: every learner, plain training and the model on given labels, on correct labels, and on a test split."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from noiseproof.audit.noise_model import NoiseModel
from noiseproof.fitting.verdict import Leader, Leaderboard
from noiseproof.learners.catalog import SPECS
from noiseproof.learners.crossfit import CrossFit

MODEL = "model"
MODEL_DESCRIPTION = "the learners as the noise model combines them"
MIN_SIGNAL = 0.1
MIN_EXPECTED = 5
"""Rows of a class, by the posterior, that its recall is estimated from"""


def leaderboard(
    crossed: CrossFit,
    noise: NoiseModel,
    given: NDArray[np.int64],
    decided: NDArray[np.int64],
    tested: Mapping[str, float],
) -> Leaderboard:
    """The lines, the best on correct labels first.

    Args:
        crossed: What the learners predict out of fold, and what they took.
        noise: What is known of the true classes.
        given: The given labels ``[N]``.
        decided: What the model decides out of fold ``[N]``.
        tested: The accuracy on the test split by learner, if there is one.
    """
    weights = noise.weights
    seconds = {MODEL: sum(crossed.seconds[name] for name in weights), **crossed.seconds}
    lines = []
    for name, p in {MODEL: noise.out_of_fold, **crossed.predictions}.items():
        if p is None:
            raise ValueError("the noise model knows no rows")
        predicted = decided if name == MODEL else p.argmax(1)
        scores = noise.estimated_scores(p)
        chosen = noise.estimated_scores(predicted) if name == MODEL else scores
        lines.append(
            Leader(
                name,
                MODEL_DESCRIPTION if name == MODEL else SPECS[name].description,
                float((predicted == given).mean()),
                chosen.accuracy,
                chosen.balanced_accuracy,
                scores.auc,
                weights.get(name),
                seconds[name],
                tested.get(name),
            )
        )
    return Leaderboard(sorted(lines, key=lambda line: (-line.accuracy.value, line.name != MODEL)))


def recalls(posterior: NDArray[np.floating], predicted: NDArray[np.int64]) -> tuple[float | None, ...]:
    """Of each class, the expected share of its rows that is predicted; None of one with hardly a row."""
    classes = posterior.shape[1]
    there = posterior.sum(0, dtype=np.float64)
    right = np.bincount(predicted, posterior[np.arange(len(predicted)), predicted], classes)
    return tuple(float(r / t) if t >= MIN_EXPECTED else None for r, t in zip(right, there, strict=True))


def gain_interval(
    noise: NoiseModel, given: NDArray[np.int64], model: NDArray[np.int64], plain: NDArray[np.int64]
) -> tuple[float, float]:
    """The 95 % interval of the difference of two predictions' accuracies on correct labels.

    It contains 95 % of the hypotheses, and the sampling error of the difference on given labels, which is larger on correct
    ones by the share of a score's signal that label noise takes.

    Args:
        noise: What is known of the true classes.
        given: The given labels ``[N]``.
        model: What the model decides out of fold ``[N]``.
        plain: What plain training does ``[N]``.
    """
    if noise.judged is None or noise.judged_posteriors is None:
        raise ValueError("the noise model knows no rows")
    rows, place = noise.judged, np.arange(len(noise.judged))
    first, second, known = model[rows], plain[rows], noise.judged_posteriors
    each = (known[:, place, first] - known[:, place, second]).mean(1, dtype=np.float64)
    as_given = (first == given[rows]).astype(np.float64) - (second == given[rows])
    left = max(MIN_SIGNAL, 1 - noise.noise_rate - noise.noise_rate / (noise.classes - 1))
    margin = 1.96 * as_given.std() / np.sqrt(len(rows)) / left
    order = np.argsort(each)
    reached = np.cumsum(noise.probabilities[order])
    low, high = each[order][np.minimum(np.searchsorted(reached, (0.025, 0.975)), len(each) - 1)]
    return float(low - margin), float(high + margin)
