"""skorch's classifier with a robust loss: its predictions are probabilities, and L1 penalty belongs to its steps."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from noiseproof.losses import JALCE
from noiseproof.regularisation import L1

try:
    from skorch import NeuralNetClassifier
except ImportError as error:
    raise ImportError("noiseproof.integrations.skorch needs skorch: pip install skorch") from error

__all__ = ["NoiseRobustNet", "softmax"]


def softmax(logits: Tensor) -> Tensor:
    """Probabilities of logits ``[N, K]`` or ``[N, K, d1, ...]``, a function that can be pickled."""
    return torch.softmax(logits, 1)


class NoiseRobustNet(NeuralNetClassifier):  # type: ignore[misc] # skorch has no annotations
    """``skorch.NeuralNetClassifier`` whose module gives logits and whose criterion is a loss of this package.

    skorch applies a softmax to the predictions of ``torch.nn.CrossEntropyLoss`` alone. Given another loss of logits, its
    ``predict_proba`` returns the logits; here it returns probabilities. ``l1`` is the strength of the L1 penalty, of which the
    training loss that is printed has its share; that of the validation examples has none. Everything else, such as
    ``criterion__a=30.0``, is skorch's.
    """

    def __init__(
        self,
        module: Any,
        *args: Any,
        criterion: Any = JALCE,
        l1: float = 0.0,
        predict_nonlinearity: Any = softmax,
        **kwargs: Any,
    ) -> None:
        self.l1 = l1
        super().__init__(module, *args, criterion=criterion, predict_nonlinearity=predict_nonlinearity, **kwargs)

    def initialize_optimizer(self, *args: Any, **kwargs: Any) -> NoiseRobustNet:
        super().initialize_optimizer(*args, **kwargs)
        self.decay_ = L1(self.module_, self.l1) if self.l1 else None
        return self

    def get_loss(self, y_pred: Tensor, y_true: Tensor, *args: Any, training: bool = False, **kwargs: Any) -> Tensor:
        loss: Tensor = super().get_loss(y_pred, y_true, *args, training=training, **kwargs)
        return loss + self.decay_() if training and self.decay_ is not None else loss
