"""A loss inside a compiled function, as one call that the compiler records instead of reading it.

A compiler that reads our code checks at every call that nothing which it has read is different: for JAL-CE 467 lines of checks,
where a plain formula has 44. So a loss that a text can stand for (``losses/programs.py``) is looked up by that text, which is
all that is read, and so all that is checked.
"""

import copy
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from noiseproof.core import Recorded, transforms_active
from noiseproof.core.statistics import Logits
from noiseproof.losses.one_step import rows_of_program
from noiseproof.losses.programs import signature
from noiseproof.losses.tensors import as_rows
from noiseproof.program import recorded_loss

if TYPE_CHECKING:
    from noiseproof.losses.base import RobustLoss

__all__ = ["keep", "loss_in_graph", "recorded"]

_kept: dict[str, "RobustLoss"] = {}


def keep(loss: "RobustLoss", text: str) -> bool:
    """Have this loss ready for :func:`loss_in_graph`; False: no text can stand for it."""
    if signature(loss) is None:
        return False
    _kept[text] = copy.deepcopy(loss, {id(loss.weight): None})  # what the loss becomes later has another text
    torch._dynamo.allow_in_graph(loss_in_graph)  # here, because it imports the compiler
    return True


def loss_in_graph(logits: Tensor, target: Tensor, weight: Tensor | None, text: str) -> Tensor:
    """The loss with this text, and with these weights."""
    loss = copy.copy(_kept[text])
    loss.__dict__["_buffers"] = {**loss._buffers, "weight": weight}
    with Recorded():
        return recorded(loss, logits, target)


def recorded(loss: "RobustLoss", logits: Tensor, target: Tensor) -> Tensor:
    """What a call gives, while a compiler records it."""
    logits, target, classes, shape = as_rows(loss, logits, target)
    rows = rows_of_program(loss, logits, target, recorded=True)
    if rows is None:
        return loss.from_source(Logits(logits, classes, plain=transforms_active()), target, shape)
    result = recorded_loss(logits, target.long(), rows)
    return result.reshape(shape) if loss.reduction == "none" else result
