"""The labels of the nearest examples, as a prediction of the label."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch

__all__ = ["neighbour_votes"]

NEIGHBOURS = 10
VOTE_SMOOTHING = 0.5  # of a vote for each class, so that none has probability 0
SIMILARITY_BLOCK = 2**24  # similarities at a time


def neighbour_votes(
    features: NDArray[np.floating],
    given: NDArray[np.int64],
    classes: int,
    *,
    neighbours: int = NEIGHBOURS,
    device: torch.device | None = None,
) -> NDArray[np.float32]:
    """The share ``[N, K]`` of each class among the given labels of the nearest other examples, by the angle between features.

    Examples without a direction, all features 0, have votes as the labels are distributed.
    """
    rows = len(features)
    count = min(neighbours, rows - 1)
    # In double precision, which holds the square of any number of single precision.
    size = np.sqrt(np.einsum("nd,nd->n", features, features, dtype=np.float64))[:, None]
    unit = np.divide(features, size, out=np.zeros_like(features, np.float32), where=size > 0).astype(np.float32, copy=False)
    votes = np.zeros((rows, classes), dtype=np.float32)
    for part, nearest in _nearest(unit, count, device):
        np.add.at(votes, (part[:, None], given[nearest]), 1.0)
    votes += VOTE_SMOOTHING
    votes /= count + VOTE_SMOOTHING * classes
    nowhere = size[:, 0] == 0
    votes[nowhere] = (np.bincount(given, minlength=classes) + VOTE_SMOOTHING) / (rows + VOTE_SMOOTHING * classes)
    return votes


def _nearest(
    unit: NDArray[np.float32], count: int, device: torch.device | None
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Some rows, and for each the most similar other rows, in any order."""
    import torch

    there = torch.from_numpy(unit).to(device)
    step = max(1, SIMILARITY_BLOCK // len(unit))
    for start in range(0, len(unit), step):
        similarity = there[start : start + step] @ there.T
        similarity.diagonal(start).fill_(-torch.inf)
        nearest = similarity.topk(count, sorted=False).indices
        yield np.arange(start, start + len(nearest)), nearest.cpu().numpy()
