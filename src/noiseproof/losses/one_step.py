"""The usual call of a loss, as one step of autograd with its program."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from noiseproof.losses.programs import programs_of
from noiseproof.losses.tensors import result_dtype
from noiseproof.program import Rows, loss_of_rows, recorder_of, runner_of

if TYPE_CHECKING:
    from noiseproof.losses.base import RobustLoss

__all__ = ["in_one_step", "rows_of_program"]


def rows_of_program(loss: "RobustLoss", logits: Tensor, target: Tensor, recorded: bool = False) -> Rows | None:
    """What a step with the program of this loss is given; None if it has none, or the batch is not one for it."""
    if loss.needs is None or loss.label_smoothing > 0 or target.is_floating_point():
        return None
    given = loss._buffers["weight"]
    if given is not None and given.requires_grad and torch.is_grad_enabled():  # a step has no gradient for it
        return None
    backend = recorder_of(logits) if recorded else runner_of(logits, target)
    formula = None if backend is None else programs_of(loss).get(loss, logits, backend)
    if backend is None or formula is None:
        return None
    weight = None if given is None else loss._class_weight(logits.shape[1]).contiguous()  # kernels read one after the other
    dtype = result_dtype(logits.dtype, formula.dtype, logits)
    return Rows(formula, backend, None, loss.ignore_index, weight, loss.reduction, dtype, loss._again)


def in_one_step(loss: "RobustLoss", rows: Rows, logits: Tensor, target: Tensor) -> Tensor:
    """What :meth:`RobustLoss.from_source` gives, before it is shaped."""
    if target.dtype != torch.int64:
        target = target.long()
    if logits.is_cpu and 0 <= loss.ignore_index < logits.shape[1]:
        rows = rows._replace(ignored=loss._ignored(target))
    try:
        return loss_of_rows(logits, target, rows)
    except IndexError:  # an ignored label is out of range as a rule, so that looking for one costs nothing
        return loss_of_rows(logits, target, rows._replace(ignored=loss._ignored(target)))
