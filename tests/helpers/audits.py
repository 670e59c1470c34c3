"""Predictions and labels whose truth is known, for tests of audits."""

import numpy as np

SHORT = {"epochs": 8, "folds": 3, "device": "cpu"}
"""Options of an audit that takes a moment"""


def drawn(rows, matrix, seed=0, sharpness=2.5):
    """Predictions that are calibrated for the true label, the true labels drawn from them, and given ones by the matrix."""
    generator = np.random.default_rng(seed)
    classes = len(matrix)
    scores = sharpness * generator.standard_normal((rows, classes))
    p = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    true = (p.cumsum(1) < generator.random((rows, 1))).sum(1).clip(max=classes - 1)
    given = (np.asarray(matrix)[true].cumsum(1) < generator.random((rows, 1))).sum(1).clip(max=classes - 1)
    return p, true, given


def points(rows=300, classes=3, seed=0):
    """Points around the corners of a simplex, and their classes."""
    generator = np.random.default_rng(seed)
    true = np.arange(rows) % classes
    return 4 * np.eye(classes)[true] + generator.standard_normal((rows, classes)), true
