"""A loss inside a compiled function, as one call that the compiler records instead of reading it.

A compiler that reads our code checks at every call that nothing which it has read is different: for JAL-CE 467 lines of checks,
where a plain formula has 44. So a loss that a text can stand for (``losses/programs.py``) is looked up by that text, which is
all that is read, and so all that is checked.
"""

import copy
from typing import Any

import torch
from torch import Tensor

from noiseproof.losses.programs import signature
from noiseproof.primitives import Recorded

__all__ = ["keep", "loss_in_graph"]

_kept: dict[str, Any] = {}


def keep(loss: Any, text: str) -> bool:
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
        result: Tensor = loss.recorded(logits, target)
    return result
