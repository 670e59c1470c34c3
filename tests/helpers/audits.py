"""Predictions and labels whose truth is known, for tests of audits."""

import numpy as np


def drawn(rows, matrix, seed=0, sharpness=2.5):
    """Predictions that are calibrated for the true label, the true labels drawn from them, and given ones by the matrix."""
    generator = np.random.default_rng(seed)
    classes = len(matrix)
    scores = sharpness * generator.standard_normal((rows, classes))
    p = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    true = (p.cumsum(1) < generator.random((rows, 1))).sum(1).clip(max=classes - 1)
    given = (np.asarray(matrix)[true].cumsum(1) < generator.random((rows, 1))).sum(1).clip(max=classes - 1)
    return p, true, given
