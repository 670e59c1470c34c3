"""A loss for Hugging Face's Trainer, in text or token classification and in language models.

The Trainer must be given this rather than the loss itself: it passes the model's whole output, and a step may consist of
several batches, over all of which the mean is to be taken.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from noiseproof.decay import L1

__all__ = ["TrainerLoss"]

IGNORED = -100
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
        if getattr(criterion, "ignore_index", None) != IGNORED:
            raise ValueError(f"the Trainer leaves out labels of {IGNORED} alone: the loss must have ignore_index={IGNORED}")
        if getattr(criterion, "follows_training", False):
            raise ValueError(f"{type(criterion).__name__} must be told of the training's progress, which the Trainer does not")
        self.criterion, self.decay, self.shift = copy.deepcopy(criterion), decay, shift
        vars(self.criterion)["reduction"] = "sum"

    def __call__(self, outputs: Any, labels: Tensor | None, num_items_in_batch: Tensor | int | None = None) -> Tensor:
        if labels is None:
            raise ValueError("the batch has no 'labels'; name the column so, or see the Trainer's label_names")
        logits = self._logits(outputs)
        classes = logits.shape[-1]
        if self._shifts(outputs):
            logits, labels = logits[..., :-1, :], labels[..., 1:]
        items: Tensor | float | None = num_items_in_batch
        if labels.is_floating_point():
            _check_shape(logits, labels, "probabilities of the classes", logits.shape)
            rows, target = labels.new_tensor(labels.numel() // classes), labels.reshape(-1, classes)
            items = None if items is None else items / classes  # each probability was counted
        else:
            _check_shape(logits, labels, "labels", logits.shape[:-1])
            rows, target = labels.ne(IGNORED).sum(), labels.reshape(-1)
        total = self.criterion.to(logits.device)(logits.reshape(-1, classes), target.to(logits.device))
        items = rows if items is None else items
        share = rows / items  # of the step that this batch is
        loss: Tensor = total / items
        if self.decay is not None and torch.is_grad_enabled():
            loss = loss + share * self.decay()
        return loss

    def _logits(self, outputs: Any) -> Tensor:
        logits = outputs.get("logits") if hasattr(outputs, "get") else outputs[0]
        if not isinstance(logits, Tensor):
            raise ValueError("the model's output has no logits; a loss on hidden states is another thing")
        return logits

    def _shifts(self, outputs: Any) -> bool:
        return "CausalLM" in type(outputs).__name__ if self.shift is None else self.shift


def _check_shape(logits: Tensor, labels: Tensor, what: str, shape: torch.Size) -> None:
    if labels.shape != shape:
        raise ValueError(f"{what} must have the shape {list(shape)} for logits {list(logits.shape)}, got {list(labels.shape)}")
