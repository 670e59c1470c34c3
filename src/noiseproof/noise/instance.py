"""Instance-dependent noise: whether a label changes, and to which class, depends on the image."""

import hashlib
import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from noiseproof.checks import check_range
from noiseproof.keyed_random import random_keys, random_uniform
from noiseproof.noise.matrix import LabelNoise, NoisyLabels, as_labels, symmetric

INSTANCE = "instance"

RATE_SPREAD = 0.1
"""Standard deviation of the flip rates around the asked one, as published."""
TAIL_RATE = 0.02
"""Rates nearer to 0 or 1 have a distribution so far in the tail of the normal one that differences of its distribution function
are rounding"""
MAX_CELLS = 2**24
"""Numbers that are in memory at a time for each of the arrays that lead to the new labels."""
_FLIP_RATE, _FLIP, _DESTINATION, _PROJECTION = 10, 11, 12, 13


def instance_dependent(images: ArrayLike, labels: ArrayLike, rate: float, seed: int, classes: int | None = None) -> NoisyLabels:
    """Return part-dependent noise in the sense of Xia et al., NeurIPS 2020: it depends on the image.

    Each image has a flip rate of its own, from a normal distribution truncated to [0, 1] and centred so that its mean is
    ``rate``. If it flips, the new label is drawn from a softmax of a random projection of the image, one projection per clean
    class. As many labels flip as the rates add up to, so the realised rate is the asked one.

    Two choices differ from the usual script: pixels are centred first, and projected on random signs instead of normal
    numbers. For integer images, centred to the nearest whole number, that is exact in floating point, so the same seed gives
    the same labels on every machine.

    Args:
        images: Images or features ``[N, ...]``.
        labels: Clean labels ``[N]``.
        rate: Mean probability that a label changes, in [0, 1).
        seed: Of the noise.
        classes: Number of classes; read from the labels if left out.

    Returns:
        The noisy labels, with their mask, realised matrix and rate.

    Raises:
        ValueError: If images and labels are not as many, if there are fewer than two classes, or if an image is not
            finite.

    >>> import numpy as np
    >>> images = np.arange(4000).reshape(1000, 4) % 256
    >>> round(instance_dependent(images, np.arange(1000) % 2, 0.3, seed=0).rate, 1)
    0.3
    """
    check_range("rate", rate, at_least=0, below=1)
    pixels = np.asarray(images)
    given = np.asarray(labels)
    count = classes if classes is not None else int(given.max(initial=0)) + 1
    clean = as_labels(given, count, "labels")
    if len(pixels) != len(clean):
        raise ValueError(f"images and labels must be as many: {len(pixels)} and {len(clean)}")
    if count < 2:
        raise ValueError(f"classes must be at least 2, got {count}")
    if pixels.dtype.kind == "f" and not np.isfinite(pixels).all():
        raise ValueError("images must be finite")
    rates = _flip_rates(rate, random_uniform(seed, len(clean), _FLIP_RATE))
    flips = np.flatnonzero(_flip(rates, seed))
    noisy = clean.copy()
    noisy[flips] = _destinations(pixels, clean, flips, count, seed)
    return NoisyLabels.compare(clean, noisy, count, seed=int(seed))


def asked_noise(images: NDArray[Any], rate: float, classes: int) -> LabelNoise:
    """Instance noise as a manifest states it: its matrix is symmetric, since the random projections favour no class."""
    facts = {"classes": classes, "rate": rate, "images_hash": image_hash(images)}
    return LabelNoise(symmetric(classes, rate).matrix, INSTANCE, facts)


def image_hash(images: NDArray[Any]) -> str:
    """SHA-256 of an array's shape, dtype and bytes."""
    digest = hashlib.sha256(f"{images.shape} {images.dtype.str}\n".encode())
    digest.update(np.ascontiguousarray(images).data)
    return digest.hexdigest()


def _flip_rates(rate: float, uniform: NDArray[np.float64]) -> NDArray[np.float64]:
    """Quantiles of a normal distribution truncated to [0, 1] whose mean is ``rate``."""
    if rate == 0:
        return np.zeros_like(uniform)
    if not TAIL_RATE <= rate <= 1 - TAIL_RATE:
        return _tail_rates(rate, uniform) if rate < TAIL_RATE else 1 - _tail_rates(1 - rate, 1 - uniform)
    low, high = -3.0, 4.0
    for _ in range(60):  # the mean grows with the location
        middle = (low + high) / 2
        low, high = (middle, high) if _truncated_mean(middle) < rate else (low, middle)
    below, above = _normal_cdf((0 - low) / RATE_SPREAD), _normal_cdf((1 - low) / RATE_SPREAD)
    # Inverting a table of the distribution function is exact to 1e-6, and needs no special functions.
    grid = np.linspace(0, 1, 20001)
    cdf = np.array([_normal_cdf((x - low) / RATE_SPREAD) for x in grid])
    return np.interp(below + uniform * (above - below), cdf, grid)


def _tail_rates(rate: float, uniform: NDArray[np.float64]) -> NDArray[np.float64]:
    """The same of a rate near 0, by ``exp((location x - x^2 / 2) / RATE_SPREAD^2)``, less than 1e-17 beyond 40 rates."""
    grid = np.linspace(0, 40 * rate, 20001)
    low, high = -(RATE_SPREAD**2) / rate, 0.0  # the first is that of the exponential distribution, whose tail is longer
    for _ in range(60):
        middle = (low + high) / 2
        density = np.exp((middle * grid - grid**2 / 2) / RATE_SPREAD**2)
        mass = density[1:] + density[:-1]
        mean = float(mass @ (grid[1:] + grid[:-1]) / (2 * mass.sum()))
        low, high = (middle, high) if mean < rate else (low, middle)
    cdf = np.concatenate([[0.0], np.cumsum(mass)])
    return np.asarray(np.interp(uniform * cdf[-1], cdf, grid))


def _truncated_mean(location: float) -> float:
    a, b = (0 - location) / RATE_SPREAD, (1 - location) / RATE_SPREAD
    mass = _normal_cdf(b) - _normal_cdf(a)
    if mass < 1e-300:
        return 0.0 if location < 0 else 1.0
    density = (math.exp(-a * a / 2) - math.exp(-b * b / 2)) / math.sqrt(2 * math.pi)
    return location + RATE_SPREAD * density / mass


def _normal_cdf(x: float) -> float:
    return 0.5 * math.erfc(-x / math.sqrt(2))


def _flip(rates: NDArray[np.float64], seed: int) -> NDArray[np.bool_]:
    """Systematic sampling: example i flips with probability ``rates[i]``, and as many flip as the rates add up to."""
    order = np.argsort(random_keys(seed, len(rates), _FLIP), kind="stable")
    steps = np.cumsum(rates[order]) + random_uniform(seed, 1, _FLIP)[0]
    flips = np.zeros(len(rates), dtype=bool)
    flips[order] = np.floor(steps) > np.floor(np.concatenate([steps[:1] - rates[order[:1]], steps[:-1]]))
    return flips


def _destinations(
    pixels: NDArray[Any], clean: NDArray[np.int64], flips: NDArray[np.int64], classes: int, seed: int
) -> NDArray[np.int64]:
    flat = pixels.reshape(len(pixels), -1)
    width = flat.shape[1]
    centre: NDArray[np.floating] = flat.mean(0, dtype=np.float64)
    if flat.dtype.kind != "f":  # whole numbers below 2**24, so that float32 sums of them are exact in any order
        centre = np.rint(centre).astype(np.float32)
    scale = float(flat[:: max(1, len(flat) // 2000)].std(dtype=np.float64)) or 1.0
    uniform = random_uniform(seed, len(clean), _DESTINATION)
    result = clean[flips].copy()
    rows = max(1, MAX_CELLS // max(width, classes))
    for label in np.unique(clean[flips]):
        all_members = np.flatnonzero(clean[flips] == label)
        for first in range(0, len(all_members), rows):
            members = all_members[first : first + rows]
            scores = _projected(flat[flips[members]], centre, int(label), classes, seed).astype(np.float64) / scale
            scores[:, label] = -np.inf
            weights = np.exp(scores - scores.max(1, keepdims=True))
            edges = np.cumsum(weights, 1)
            chosen = (uniform[flips[members], None] * edges[:, -1:] >= edges).sum(1)
            result[members] = np.minimum(chosen, classes - 1)
    return result


def _projected(pixels: NDArray[Any], centre: NDArray[np.floating], label: int, classes: int, seed: int) -> NDArray[np.float32]:
    """Images of one class on its random signs, a number for each class; wide images by parts, for the memory of the signs."""
    scores = np.zeros((len(pixels), classes), np.float32)
    step = max(1, MAX_CELLS // classes)
    for first in range(0, pixels.shape[1], step):
        part = slice(first, first + step)
        centred = (pixels[:, part].astype(centre.dtype) - centre[part]).astype(np.float32)
        width = centred.shape[1]
        keys = random_keys(seed, width * classes, _PROJECTION + 1 + label, first * classes).reshape(width, classes)
        scores += centred @ (2.0 * (keys >> np.uint64(63)).astype(np.float32) - 1.0).astype(np.float32)
    return scores
