"""Which losses have a program, and the programs they have.

A program stands for a loss as long as that does not change. So only losses of this package have one, made of plain values that
are fixed at construction: none that follows the training or draws at random, none that a user wrote or changed.
"""

from collections.abc import Hashable
from typing import Any

import torch
from torch import Tensor, nn

from noiseproof.primitives import Backend, accumulation_dtype
from noiseproof.program import Formula, traced
from noiseproof.statistics import Statistic, request_of, statistics_of

__all__ = ["CONTRACT", "Programs", "programs_of", "signature"]

PACKAGE = __name__.rpartition(".")[0] + "."
CONTRACT = frozenset({"reduction", "ignore_index", "label_smoothing", "training"})
"""What a program does not depend on, besides the weight."""
PLAIN = (bool, int, float, str, Statistic)
MODULE = frozenset({*vars(nn.Module()), "_programs", "_changes"})
MOST = 1024
"""Programs that are kept."""

_known: dict[Hashable, Formula | None] = {}


class Programs:
    """The programs of one loss, by the number of classes, the dtype of the logits and the backend. A copy starts without."""

    def __init__(self) -> None:
        self.made: dict[tuple[int, torch.dtype, str], Formula | None] = {}
        self.state: Any = None

    def __reduce__(self) -> Any:
        return Programs, ()

    def get(self, loss: Any, logits: Tensor, backend: Backend) -> Formula | None:
        """The one for these logits; None: the loss has none, or the backend does not run it."""
        state = _state(loss)
        if state != self.state:
            self.made, self.state = {}, state
        classes = logits.shape[1]
        key = (classes, logits.dtype, backend.name)
        if key not in self.made:
            formula = _formula(loss, classes, accumulation_dtype(logits.dtype))
            runs = formula is not None and (backend.programs is None or backend.programs.suits(formula, logits))
            self.made[key] = formula if runs else None
        return self.made[key]


def programs_of(loss: Any) -> Programs:
    """What a loss keeps its programs in."""
    kept: Programs | None = loss.__dict__.get("_programs")
    if kept is None:
        kept = loss.__dict__["_programs"] = Programs()
    return kept


def _state(loss: Any) -> Any:
    """What differs when something has been set in the loss or in a part of it since."""
    parts = loss._modules.get("losses")
    changes = loss._changes
    if parts is None:
        return changes
    return changes, tuple(loss.coefficients), [(part, _state(part)) for part in parts._modules.values()]


def _formula(loss: Any, classes: int, dtype: torch.dtype) -> Formula | None:
    """Traced once for all losses that are equal."""
    described = signature(loss)
    if described is None:
        return None
    key = (described, classes, dtype)
    if key not in _known:
        keys, request = request_of(loss.needs)
        program = traced(lambda rows: loss.from_statistics(statistics_of(rows, keys, classes)), 2 + len(keys), dtype)
        if len(_known) >= MOST:
            _known.clear()
        _known[key] = None if program is None else Formula(program, request, dtype)
    return _known[key]


def signature(loss: Any) -> Hashable | None:
    """All that the values of a loss depend on; None if that is more than a program can stand for."""
    cls = type(loss)
    if not cls.__module__.startswith(PACKAGE) or loss.needs is None or cls.follows_training:
        return None
    children = [child for child in loss._modules.values() if child is not None]
    tensors = [name for name, value in (*loss._buffers.items(), *loss._parameters.items()) if value is not None]
    if "set_epoch" in _own_methods(cls) or any(name != "weight" for name in tensors):
        return None
    try:
        values = tuple([(name, _frozen(v)) for name, v in vars(loss).items() if name not in MODULE and name not in CONTRACT])
    except TypeError:
        return None
    if not children:
        return cls, values
    if len(children) > 1 or not isinstance(children[0], nn.ModuleList):
        return None
    parts = tuple([signature(part) for part in children[0]])
    return None if None in parts else (cls, values, parts)


def _own_methods(cls: type) -> set[str]:
    """Names that a loss defines itself, beyond those of its base."""
    return {name for base in cls.__mro__ if base.__module__ != f"{PACKAGE}base" for name in vars(base)}


def _frozen(value: Any) -> Hashable:
    if value is None or type(value) in PLAIN:
        return value  # type: ignore[no-any-return]
    if type(value) in (list, tuple):
        return tuple([_frozen(item) for item in value])
    raise TypeError("not a plain value")
