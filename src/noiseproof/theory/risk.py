"""Label weights of a noise, the risk under them, and what minimises it."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from noiseproof.checks import check_integer
from noiseproof.losses import AMSE, RobustLoss
from noiseproof.losses.base import parameters_of
from noiseproof.losses.catalog import list_losses
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


MIN_PROBABILITY = 1e-300
"""A probability of 0 in the place of which the logarithm is finite"""
FAR_LOGIT, FARTHER_LOGIT = -40.0, -4e9
"""Logits of probabilities near 0, and of one that is much nearer"""
TOP_LABELS = 4  # labels with the largest weights, near whose vertices a minimiser is looked for
RANDOM_STARTS = 24  # random ones, besides those that are made from the weights
MAX_STEPS, PATIENCE = 600, 60  # and how many steps without a lower risk are the last
MIN_STEP_SIZE, MAX_STEP_SIZE = 1e-30, 1e12  # limits of a step's size


def risk(loss: RobustLoss, weights: ArrayLike, predictions: ArrayLike) -> NDArray[np.float64]:
    """Return the risk ``sum_k w[k] L(u, k)`` of predictions under label weights.

    Args:
        loss: The loss.
        weights: Label weights ``[..., K]``, which are normalised.
        predictions: Points u of the simplex, ``[..., K]``.

    Returns:
        The risk of each prediction.

    Raises:
        ValueError: If the predictions are no points of the simplex, or the weights are negative or all 0.

    Example:
        >>> from noiseproof import CE
        >>> risk(CE(), [0.7, 0.2, 0.1], [[0.7, 0.2, 0.1], [0.5, 0.3, 0.2]]).round(4)
        array([0.8018, 0.8869])
    """
    u, w = np.asarray(predictions, np.float64), checked_weights(weights)
    if u.shape[-1] != w.shape[-1] or (u < 0).any() or not np.allclose(u.sum(-1), 1):
        raise ValueError(f"predictions must be [..., {w.shape[-1]}], at least 0 with sum 1, got shape {u.shape}")
    shape = np.broadcast_shapes(u.shape, w.shape)
    flat_u, flat_w = (np.array(np.broadcast_to(part, shape)).reshape(-1, shape[-1]) for part in (u, seen_by(loss, w)))
    return np.asarray(risk_of(with_logits(loss), flat_w, flat_u).reshape(shape[:-1]))


def risk_of(loss: RobustLoss, weights: Weights, predictions: Weights) -> NDArray[np.float64]:
    """Of rows ``[N, K]`` that need no check; the loss's own class weights and smoothing are in the weights.

    A probability of 0 is approached, not reached, on two ways: all such probabilities alike, or that of the least likely label
    much nearer to 0 than the others. Normalised losses, which are undefined at certainty itself, have their least risk there.
    """
    zero = predictions < MIN_PROBABILITY
    logs = np.log(np.where(zero, 1.0, predictions))
    alike = np.where(zero, np.log(MIN_PROBABILITY), logs)
    apart = np.where(zero, FAR_LOGIT, logs)
    rows = np.arange(len(weights))
    last = np.where(zero, weights, np.inf).argmin(1)
    apart[rows, last] = np.where(zero[rows, last], FARTHER_LOGIT, logs[rows, last])
    return np.asarray(np.fmin(_risk_at(loss, weights, alike), _risk_at(loss, weights, apart)))


def _risk_at(loss: RobustLoss, weights: Weights, z: Weights) -> NDArray[np.float64]:
    with torch.no_grad():
        return np.asarray(_risk(loss, torch.from_numpy(np.ascontiguousarray(weights)), torch.from_numpy(z)).numpy())


def minimiser(loss: RobustLoss, weights: ArrayLike) -> Weights:
    """Return the prediction with the least risk under label weights: in closed form for AMSE with q = 2, else solved for.

    Args:
        loss: The loss.
        weights: Label weights ``[K]``.

    Returns:
        The prediction ``[K]``; where the risk is least at several points, one of them.

    Raises:
        ValueError: If the weights are no vector.

    Example:
        >>> minimiser(AMSE(a=1.5), [0.6, 0.3, 0.1]).round(3)  # a is below 1 / (0.6 - 0.3), and the minimiser no vertex
        array([0.725, 0.275, 0.   ])
    """
    w = seen_by(loss, checked_weights(weights))
    if w.ndim != 1:
        raise ValueError(f"weights must be a vector, one for each label, got shape {w.shape}")
    if isinstance(loss, AMSE) and loss.q == 2:
        return sparsemax(loss.a * w)
    # The solver approaches a vertex, and stops before it where the risk is nearly flat or has no limit there.
    vertices = np.arange(len(w)) == np.argsort(-w)[:TOP_LABELS, None]
    points = np.concatenate([solve(loss, w[None])[0], vertices])
    values = risk_of(with_logits(loss), np.tile(w, (len(points), 1)), points)
    return np.asarray(points[np.where(np.isnan(values), np.inf, values).argmin()])


def sparsemax(v: ArrayLike) -> Weights:
    """Return the point of the simplex nearest to a vector.

    AMSE with q = 2 has the risk ``|u - a w|^2 / K`` and a constant, so that ``sparsemax(a w)`` minimises it.

    Args:
        v: The vector ``[K]``.

    Returns:
        The point ``[K]``.

    Example:
        >>> sparsemax([2.0, 1.5, -1.0])
        array([0.75, 0.25, 0.  ])
    """
    vector = np.asarray(v, np.float64)
    ordered = np.sort(vector)[::-1]
    excess = (np.cumsum(ordered) - 1) / np.arange(1, len(vector) + 1)
    kept = np.flatnonzero(ordered > excess)[-1]
    return np.asarray(np.maximum(vector - excess[kept], 0.0))


def checked_weights(weights: ArrayLike) -> Weights:
    """Label weights, each row normalised to sum 1."""
    w = np.asarray(weights, np.float64)
    if w.ndim == 0 or w.shape[-1] < 2 or not np.isfinite(w).all() or (w < 0).any() or (w.sum(-1) == 0).any():
        raise ValueError(f"weights must be at least two numbers for each row, none negative, not all 0, got {weights!r}")
    return np.asarray(w / w.sum(-1, keepdims=True))


def with_logits(loss: RobustLoss) -> RobustLoss:
    """A loss in float64 that is a function of the logits alone, or a TypeError that says why it is none."""
    if not isinstance(loss, RobustLoss):
        raise TypeError(
            f"the theory is of losses of this package and of classes derived from RobustLoss, got {type(loss).__name__}"
        )
    for part in loss.modules():
        for entry in list_losses():
            if type(part) is entry.cls and entry.reads in ("features", "predictions"):
                raise TypeError(f"{type(part).__name__} reads {entry.reads}; the theory is of losses of one prediction alone")
        if isinstance(part, RobustLoss) and "generator" in parameters_of(type(part)):
            raise TypeError(f"{type(part).__name__} draws a class at each call; the theory is of losses without chance")
    return loss


def solve(loss: RobustLoss, weights: Weights, seed: int = 0) -> tuple[Weights, NDArray[np.float64]]:
    """For each row of weights ``[N, K]`` the best prediction found ``[N, K]``, and its risk ``[N]``.

    Exponentiated gradient from many starts: the uniform prediction, the weights and their powers, points near the vertices
    with the largest weights and between them, and random ones. A step that does not lower the risk is taken back and made
    shorter. The risk of a loss that is not convex may have a lower point that was not found.
    """
    loss = with_logits(loss)
    starts = torch.from_numpy(np.stack([_starts(row, seed) for row in weights]))  # [N, S, K]
    count, tries, classes = starts.shape
    w = torch.from_numpy(weights).repeat_interleave(tries, 0)
    z = starts.reshape(-1, classes).clamp_min(MIN_PROBABILITY).log()
    value, gradient = _with_gradient(loss, w, z)
    size = torch.ones(len(z), 1, dtype=torch.float64)
    least = value.reshape(count, tries).min(1).values
    for step in range(1, MAX_STEPS + 1):
        new = torch.log_softmax(z - size * gradient, 1).clamp_min(float(np.log(MIN_PROBABILITY)))
        new_value, new_gradient = _with_gradient(loss, w, new)
        better = (new_value < value)[:, None]
        z, gradient = torch.where(better, new, z), torch.where(better, new_gradient, gradient)
        value = torch.where(better[:, 0], new_value, value)
        size = torch.where(better, size * 1.7, size * 0.4).clamp(MIN_STEP_SIZE, MAX_STEP_SIZE)
        if step % PATIENCE == 0:
            before, least = least, value.reshape(count, tries).min(1).values
            if (before - least <= 1e-13 * least.abs()).all():
                break
    table = value.reshape(count, tries)
    best = table.argmin(1)
    chosen = z.reshape(count, tries, classes)[torch.arange(count), best].softmax(1).numpy()
    chosen[chosen < 10 * MIN_PROBABILITY] = 0.0  # where only the floor kept it from
    return chosen, np.fmin(table.gather(1, best[:, None])[:, 0].numpy(), risk_of(loss, weights, chosen))


def _with_gradient(loss: RobustLoss, weights: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
    """The risk at the logarithms of predictions, and its gradient by the predictions, up to a constant, bounded."""
    with torch.enable_grad():
        leaf = z.detach().requires_grad_()
        value = _risk(loss, weights, leaf)
        (by_logits,) = torch.autograd.grad(value.sum(), leaf)
    gradient = by_logits / z.exp().clamp_min(1e-30)
    gradient = gradient - (gradient * z.exp()).sum(1, keepdim=True)
    return value.detach().nan_to_num(nan=float("inf")), gradient.nan_to_num(0.0).clamp(-1e6, 1e6)


def _risk(loss: RobustLoss, weights: Tensor, z: Tensor) -> Tensor:
    # A label of weight 0 counts for nothing, though its loss be infinite.
    return torch.where(weights > 0, loss.every_label(z) * weights, 0.0).sum(1)


def _starts(w: Weights, seed: int) -> Weights:
    classes = len(w)
    top = np.argsort(-w)[:TOP_LABELS]
    points = [np.full(classes, 1 / classes), w, w**2, w**4]
    for k in top:
        points += [np.where(np.arange(classes) == k, 1 - share, share / (classes - 1)) for share in (1e-3, 0.2)]
    for other in top[1:]:
        for share in (0.05, 0.3, 0.5):
            edge = np.full(classes, 1e-6)
            edge[top[0]], edge[other] = 1 - share, share
            points.append(edge)
    generator = np.random.default_rng([seed, classes])
    for spread in (0.1, 1.0):
        points += list(generator.dirichlet(np.full(classes, spread), RANDOM_STARTS // 2))
    cloud = np.maximum(np.stack(points), 1e-12)
    return np.asarray(cloud / cloud.sum(1, keepdims=True))
