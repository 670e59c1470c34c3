"""A robust loss for Keras 3 on its torch backend."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor

from noiseproof.losses import RobustLoss, create_loss, list_losses

try:
    import keras
except ImportError as error:
    raise ImportError("noiseproof.integrations.keras needs Keras 3: pip install keras") from error

__all__ = ["KerasLoss"]


@keras.saving.register_keras_serializable("noiseproof")
class KerasLoss(keras.losses.Loss):  # type: ignore[misc] # Keras has no annotations
    """A loss of this package as one of Keras, for a model whose last layer gives logits.

    Keras hands labels over as float32, puts the classes last and takes the mean itself. Labels are ``[N, ...]`` or
    ``[N, ..., 1]`` for logits ``[N, ..., K]``, or class probabilities of the logits' shape. The mean is over the labels that
    are not ``ignore_index``; class weights multiply and do not divide, as Keras' own do.

    A model with this loss can be saved and loaded, if the loss is one of the catalogue's.
    """

    def __init__(self, criterion: RobustLoss, name: str = "noiseproof", reduction: str = "sum_over_batch_size") -> None:
        if (backend := keras.backend.backend()) != "torch":
            raise ValueError(f"the losses are torch's: set KERAS_BACKEND=torch before keras is imported, it is {backend!r}")
        if not isinstance(criterion, RobustLoss):
            raise TypeError(f"criterion must be a loss of this package, got {type(criterion).__name__}")
        super().__init__(name=name, reduction=reduction)
        self.criterion = copy.deepcopy(criterion)
        self.criterion.reduction = "none"

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        criterion, logits = self._on(y_pred.device), y_pred.movedim(-1, 1)
        loss: Tensor
        if y_true.shape == y_pred.shape:
            loss = criterion(logits, y_true.movedim(-1, 1))
            return loss
        target = y_true.long()
        loss = criterion(logits, target.squeeze(-1) if target.dim() == y_pred.dim() else target)
        if self.reduction in ("mean", "sum_over_batch_size"):
            # Keras divides by the number of all labels, of which some may have been ignored.
            loss = loss * (loss.numel() / (target != criterion.ignore_index).sum().clamp_min(1))
        return loss

    def _on(self, device: torch.device) -> RobustLoss:
        # Keras first asks for shapes alone, of tensors without values, from which there is no way back.
        return copy.deepcopy(self.criterion).to(device) if device.type == "meta" else self.criterion.to(device)

    def get_config(self) -> dict[str, Any]:
        """For saving: the loss by its name and parameters."""
        loss = self.criterion
        entry = next((entry for entry in list_losses() if entry.cls is type(loss)), None)
        options = {} if entry is None else {name: getattr(loss, name) for name in entry.defaults}
        if entry is None or not all(isinstance(value, int | float | str | None) for value in options.values()):
            raise ValueError(f"{loss!r} cannot be saved by its name in the catalogue; save the weights alone")
        options |= {"ignore_index": loss.ignore_index, "label_smoothing": loss.label_smoothing}
        weight = None if loss.weight is None else loss.weight.tolist()
        return {**super().get_config(), "loss": entry.name, "options": options, "weight": weight}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> KerasLoss:
        weight = None if config["weight"] is None else torch.tensor(config["weight"])
        criterion = create_loss(config["loss"], weight=weight, **config["options"])
        return cls(criterion, config["name"], config["reduction"])
