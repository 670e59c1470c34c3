"""Lightning: a callback that writes what a model predicts for examples it was not trained on, for the audit of their labels."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from noiseproof.integrations.folds import join_folds, write_fold

try:
    # Two packages have the same classes, and neither knows the other's: the one in use is the one already imported.
    if "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules:
        from pytorch_lightning.callbacks import BasePredictionWriter
    else:
        from lightning.pytorch.callbacks import BasePredictionWriter
except ImportError as error:
    raise ImportError("noiseproof.integrations.lightning needs Lightning: pip install lightning") from error

__all__ = ["HeldOutProbabilities", "join_folds"]

SUM_TOLERANCE = 1e-3  # by how much the sum of probabilities may differ from 1


class HeldOutProbabilities(BasePredictionWriter):  # type: ignore[misc] # whichever package it is of
    """Write the class probabilities of a ``trainer.predict`` to an .npz file, for ``noiseproof audit --probabilities``.

    ``predict_step`` returns logits ``[n, K]``, or probabilities if ``logits=False``. The audit wants predictions for examples
    that the model was not trained on, so usually each fold of a cross-validation writes a file and :func:`join_folds` makes one
    of them. The order of the loader does not matter, nor how many processes predict.

    Args:
        file: where to; ``probabilities [n, K]`` and ``rows [n]``.
        rows: which example of the whole data set each of those predicted is; left out: it is the whole.
        logits: whether predictions are logits.
    """

    def __init__(self, file: str | Path, rows: ArrayLike | None = None, *, logits: bool = True) -> None:
        super().__init__(write_interval="batch")
        self.file = Path(file)
        if self.file.suffix != ".npz":
            raise ValueError(f"{self.file}: the file must end in .npz")
        self.rows = None if rows is None else np.asarray(rows)
        self.logits = logits
        self._parts: list[tuple[NDArray[np.int64], NDArray[np.float32]]] = []

    def on_predict_start(self, trainer: Any, pl_module: Any) -> None:
        self._parts = []

    def write_on_batch_end(
        self,
        trainer: Any,
        pl_module: Any,
        prediction: Any,
        batch_indices: Sequence[int] | None,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int,
    ) -> None:
        if dataloader_idx:
            raise ValueError("HeldOutProbabilities writes the predictions of one loader, got several; predict them one by one")
        if not batch_indices:
            raise ValueError(
                "which examples a batch has is not known: the loader must be a DataLoader of a data set with a length"
            )
        self._parts.append((np.asarray(batch_indices), self._probabilities(prediction, len(batch_indices))))

    def on_predict_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        parts = self._parts
        if trainer.world_size > 1:
            gathered: list[list[Any]] = [[] for _ in range(trainer.world_size)]
            torch.distributed.all_gather_object(gathered, parts)
            parts = [part for each in gathered for part in each]
        if trainer.is_global_zero and parts:
            index, p = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
            order = index.argsort()
            self._write(index[order], p[order])
        self._parts = []

    def _probabilities(self, prediction: Any, count: int) -> NDArray[np.float32]:
        if not isinstance(prediction, Tensor) or prediction.dim() != 2 or len(prediction) != count:
            got = list(prediction.shape) if isinstance(prediction, Tensor) else type(prediction).__name__
            raise ValueError(f"predict_step must return a tensor [{count}, K] for a batch of {count} examples, got {got}")
        p = prediction.detach().float().cpu()
        sums_to_one = bool(((p >= 0).all(1) & ((p.sum(1) - 1).abs() < SUM_TOLERANCE)).all())
        if sums_to_one == self.logits:
            said = (
                "look like probabilities: pass logits=False" if self.logits else "are no probabilities: leave logits=False out"
            )
            raise ValueError(f"what predict_step returned {said}")
        return (torch.softmax(p, 1) if self.logits else p).numpy()

    def _write(self, index: NDArray[np.int64], p: NDArray[np.float32]) -> None:
        count = len(index) if self.rows is None else len(self.rows)
        if not np.array_equal(index, np.arange(count)):
            raise ValueError(f"{len(index)} predictions for {count} examples: each must be predicted once")
        write_fold(self.file, p, index if self.rows is None else self.rows)
