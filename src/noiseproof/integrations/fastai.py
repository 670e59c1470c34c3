"""A robust loss for fastai's Learner: its predictions are probabilities, its decoded ones are classes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from noiseproof.losses import RobustLoss

try:
    from fastai.losses import BaseLoss
except ImportError as error:
    raise ImportError(f"noiseproof.integrations.fastai needs fastai ({error}): pip install fastai") from error

__all__ = ["FlatLoss"]


class FlatLoss(BaseLoss):  # type: ignore[misc] # fastai has no annotations that resolve
    """``BaseLoss(noiseproof.JALCE, a=30.0)`` with what fastai's own ``CrossEntropyLossFlat`` has besides.

    ``BaseLoss`` alone trains, but ``get_preds`` then returns logits. ``axis`` is that of the classes, 1 for segmentation.
    """

    y_int = True  # the losses of mixed examples are mixed, not their labels

    def __init__(self, loss_cls: type[RobustLoss], *args: Any, axis: int = -1, **kwargs: Any) -> None:
        super().__init__(loss_cls, *args, axis=axis, **kwargs)

    def activation(self, x: Tensor) -> Tensor:
        """Probabilities of logits."""
        return torch.softmax(x, dim=self.axis)

    def decodes(self, x: Tensor) -> Tensor:
        """The likeliest class."""
        return x.argmax(dim=self.axis)
