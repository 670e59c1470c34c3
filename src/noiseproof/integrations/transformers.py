"""A loss for Hugging Face's Trainer, in text or token classification and in language models.

The Trainer must be given this rather than the loss itself: it passes the model's whole output, and a step may consist of
several batches, over all of which the mean is to be taken.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from noiseproof.integrations.log_probabilities import label_loss
from noiseproof.losses import RobustLoss
from noiseproof.regularisation import L1

__all__ = ["TrainerLoss"]

IGNORE_INDEX = -100
"""The label that the Trainer leaves out of its count"""


class TrainerLoss:
    """A loss, and decay that belongs to it, as the Trainer's ``compute_loss_func``.

    >>> import noiseproof
    >>> model = nn.Linear(4, 3)
    >>> loss = TrainerLoss(noiseproof.JALCE(a=30), noiseproof.L1(model, 5e-5))
    >>> loss({"logits": model(torch.ones(8, 4))}, torch.arange(8) % 3, num_items_in_batch=16).ndim
    0

    ``Trainer(model, ..., compute_loss_func=loss)`` is all: with gradient accumulation, and in several processes, the step has
    the loss and the gradient of one large batch.

    TRL's fused head gives log-probabilities of the labels and no logits. Losses of the label's probability alone take those
    (``noiseproof.integrations.log_probabilities`` says which), others refuse them.

    Args:
        criterion: a loss of this package, or one of torch with ``reduction`` and ``ignore_index``; the latter must be -100, as
            the Trainer counts labels. Its reduction is not used. Class weights multiply the examples' losses, whose sum is
            divided by their number: not by the sum of the weights, which the Trainer does not know.
        decay: a penalty on the weights, counted once a step however many batches that has. It is left out where no gradient
            is asked for, so the loss of an evaluation is without it.
        shift: whether the logits of a position are for the label of the next. Left out: if the output is that of a causal
            language model of transformers, as its own loss does.
    """

    def __init__(self, criterion: nn.Module, decay: L1 | None = None, *, shift: bool | None = None) -> None:
        if getattr(criterion, "ignore_index", None) != IGNORE_INDEX:
            raise ValueError(f"the Trainer leaves out labels of {IGNORE_INDEX} alone: give ignore_index={IGNORE_INDEX}")
        if getattr(criterion, "follows_training", False):
            raise ValueError(f"{type(criterion).__name__} must be told of the training's progress, which the Trainer does not")
        if decay is not None and not callable(decay):
            raise TypeError(f"decay must be a penalty such as noiseproof.L1(model, 5e-5), got {type(decay).__name__}")
        self.criterion, self.decay, self.shift = copy.deepcopy(criterion), decay, shift
        self.criterion.reduction = "sum"  # type: ignore[assignment]  # of a module anything may be a parameter

    def __call__(self, outputs: Any, labels: Tensor | None, num_items_in_batch: Tensor | int | None = None) -> Tensor:
        if labels is None:
            raise ValueError("the batch has no 'labels'; name the column so, or see the Trainer's label_names")
        if not isinstance(labels, Tensor):
            raise TypeError(f"labels must be a tensor, got {type(labels).__name__}; the data collator makes tensors of lists")
        items: Tensor | float | None = num_items_in_batch
        if isinstance(items, Tensor):
            items = items.sum()  # under DataParallel the number of the whole batch stands there once for each device
        if isinstance(fused := _named(outputs, "log_probs"), Tensor):
            total, rows = self._from_fused(fused, labels)
        else:
            total, rows, counted = self._from_logits(outputs, labels)
            items = None if items is None else items / counted
        items = rows if items is None else items
        share = rows / items  # of the step that this batch is
        loss: Tensor = total / items
        if self.decay is not None and torch.is_grad_enabled():
            loss = loss + share * self.decay()
        return loss

    def _from_logits(self, outputs: Any, labels: Tensor) -> tuple[Tensor, Tensor, int]:
        """The sum of the losses, the number of rows, and how often the Trainer counted each."""
        logits = self._logits(outputs)
        classes = logits.shape[-1]
        if self._shifts(outputs):
            if logits.ndim < 3:
                raise ValueError(f"shift needs logits [N, T, K], a position after the other, got {list(logits.shape)}")
            logits, labels = logits[..., :-1, :], labels[..., 1:]
        if labels.is_floating_point():
            _check_shape(logits, labels, "probabilities of the classes", logits.shape)
            rows, target, counted = labels.new_tensor(labels.numel() // classes), labels.reshape(-1, classes), classes
        else:
            _check_shape(logits, labels, "labels", logits.shape[:-1])
            rows, target, counted = labels.ne(IGNORE_INDEX).sum(), labels.reshape(-1), 1
        total = self.criterion.to(logits.device)(logits.reshape(-1, classes), target.to(logits.device))
        return total, rows, counted

    def _from_fused(self, log_probabilities: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """The sum of the losses, and the number of rows. A head that shifts gives a position less than there are labels."""
        if not isinstance(self.criterion, RobustLoss):
            raise TypeError(f"a fused head gives log-probabilities, which {type(self.criterion).__name__} does not take")
        if labels.shape[-1] == log_probabilities.shape[-1] + 1:
            labels = labels[..., 1:]
        labels = labels.to(log_probabilities.device)
        return label_loss(self.criterion.to(labels.device), log_probabilities, labels), labels.ne(IGNORE_INDEX).sum()

    def _logits(self, outputs: Any) -> Tensor:
        if hasattr(outputs, "get"):
            logits = _named(outputs, "logits")
        else:
            logits = outputs[0] if isinstance(outputs, tuple | list) and outputs else outputs
        if not isinstance(logits, Tensor):
            raise ValueError("the model's output has no logits; a loss on hidden states is another thing")
        return logits

    def _shifts(self, outputs: Any) -> bool:
        return "CausalLM" in type(outputs).__name__ if self.shift is None else self.shift


def _named(outputs: Any, name: str) -> Any:
    return outputs.get(name) if hasattr(outputs, "get") else None


def _check_shape(logits: Tensor, labels: Tensor, what: str, shape: torch.Size) -> None:
    if labels.shape != shape:
        raise ValueError(f"{what} must have the shape {list(shape)} for logits {list(logits.shape)}, got {list(labels.shape)}")
