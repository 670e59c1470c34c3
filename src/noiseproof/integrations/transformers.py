"""A loss for Hugging Face's Trainer, in text or token classification and in language models.

The Trainer must be given this rather than the loss itself: it passes the model's whole output, and a step may consist of
several batches, over all of which the mean is to be taken.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

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
        logits, labels = self._rows(outputs, labels)
        classes = logits.shape[-1]
        soft = labels.is_floating_point()
        rows = labels.new_tensor(labels.numel() // classes) if soft else labels.ne(IGNORE_INDEX).sum()
        target = labels.reshape(-1, classes) if soft else labels.reshape(-1)
        total = self.criterion.to(logits.device)(logits.reshape(-1, classes), target.to(logits.device))
        if num_items_in_batch is None:
            items: Tensor | float = rows
        else:
            count = num_items_in_batch
            if isinstance(count, Tensor):
                count = count.sum()  # under DataParallel the number of the whole batch stands there once for each device
            items = count / (classes if soft else 1)  # the Trainer counts every number of soft labels
        loss: Tensor = total / items
        if self.decay is not None and torch.is_grad_enabled():
            loss = loss + rows / items * self.decay()  # the share of the step that this batch is
        return loss

    def _rows(self, outputs: Any, labels: Tensor) -> tuple[Tensor, Tensor]:
        """The logits and the labels that belong together, shifted if they are for the next position."""
        if hasattr(outputs, "get"):
            logits = outputs.get("logits")
        else:
            logits = outputs[0] if isinstance(outputs, tuple | list) and outputs else outputs
        if not isinstance(logits, Tensor):
            raise ValueError("the model's output has no logits; a loss on hidden states is another thing")
        if self._shifts(outputs):
            if logits.ndim < 3:
                raise ValueError(f"shift needs logits [N, T, K], a position after the other, got {list(logits.shape)}")
            logits, labels = logits[..., :-1, :], labels[..., 1:]
        soft = labels.is_floating_point()
        what, shape = ("probabilities of the classes", logits.shape) if soft else ("labels", logits.shape[:-1])
        if labels.shape != shape:
            raise ValueError(
                f"{what} must have the shape {list(shape)} for logits {list(logits.shape)}, got {list(labels.shape)}"
            )
        return logits, labels

    def _shifts(self, outputs: Any) -> bool:
        return "CausalLM" in type(outputs).__name__ if self.shift is None else self.shift
