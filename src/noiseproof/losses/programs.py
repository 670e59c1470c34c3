"""Which losses have a program, and the programs they have.

A program stands for a loss as long as that does not change. So only losses of this package have one, made of plain values that
are fixed at construction: none that follows the training or draws at random, none that a user wrote or changed.
"""

from collections.abc import Hashable
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import _disable_current_modes as without_modes

from noiseproof.core import Backend, accumulation_dtype, is_compiling
from noiseproof.core.statistics import Statistic, request_of, statistics_of
from noiseproof.program import Formula, traced

__all__ = ["Programs", "can_have_program", "named", "programs_of", "signature", "text_of"]

PACKAGE = __name__.rpartition(".")[0] + "."
CONTRACT = frozenset({"reduction", "ignore_index", "label_smoothing", "training"})
"""What a program does not depend on, besides the weight."""
PLAIN = (bool, int, float, str, Statistic)
MODULE = frozenset({*vars(nn.Module()), "_programs", "_text"})
MOST = 1024
"""Programs that are kept."""

_known: dict[Hashable, Formula | None] = {}


class Programs:
    """The programs of one loss, by the number of classes, the dtype of the logits and the backend. A copy starts without."""

    def __init__(self) -> None:
        self.kept: tuple[Any, dict[tuple[int, torch.dtype, str], Formula | None]] = (None, {})
        """The state that they are of, and they: one value, so that no thread sees the one without the other"""

    @property
    def made(self) -> dict[tuple[int, torch.dtype, str], Formula | None]:
        return self.kept[1]

    def __reduce__(self) -> Any:
        return Programs, ()

    def get(self, loss: Any, logits: Tensor, backend: Backend) -> Formula | None:
        """The one for these logits; None: the loss has none, or the backend does not run it."""
        state = _state(loss)
        known, made = self.kept
        if state != known:
            made = {}
            self.kept = state, made
        classes = logits.shape[1]
        key = (classes, logits.dtype, backend.name)
        try:
            return made[key]
        except KeyError:
            formula = _formula(loss, classes, accumulation_dtype(logits.dtype))
            runs = formula is not None and (backend.programs is None or backend.programs.suits(formula, logits))
            made[key] = formula if runs else None
            return made[key]


def programs_of(loss: Any) -> Programs:
    """What a loss keeps its programs in."""
    kept: Programs | None = loss.__dict__.get("_programs")
    if kept is None:
        kept = loss.__dict__["_programs"] = Programs()
    return kept


def _state(loss: Any) -> Any:
    """What differs when something has been set in the loss or in a part of it since."""
    text = loss._text
    if text is None and loss._has_text:  # a compiled function has set something
        text = loss.__dict__["_text"] = text_of(loss)
    parts = loss._modules.get("losses")
    if parts is None:
        return text
    return text, [_state(part) for part in parts._modules.values()]


def _formula(loss: Any, classes: int, dtype: torch.dtype) -> Formula | None:
    """Traced once for all losses that are equal."""
    described = signature(loss)
    if described is None:
        return None
    key = (described, classes, dtype)
    try:
        return _known[key]
    except KeyError:
        with without_modes() if is_compiling() else nullcontext():  # a compiler that records has no values
            formula = _traced(loss, classes, dtype)
        if len(_known) >= MOST:
            _known.clear()
        _known[key] = formula
        return formula


def _traced(loss: Any, classes: int, dtype: torch.dtype) -> Formula | None:
    keys, request = request_of(loss.needs)
    program = traced(lambda rows: loss.from_statistics(statistics_of(rows, keys, classes)), 2 + len(keys), dtype)
    return None if program is None else Formula(program, request, dtype)


def signature(loss: Any) -> Hashable | None:
    """All that the values of a loss depend on; None if that is more than a program can stand for."""
    cls = type(loss)
    if not loss._has_text or loss.needs is None:
        return None
    children = [child for child in loss._modules.values() if child is not None]
    tensors = [name for name, value in (*loss._buffers.items(), *loss._parameters.items()) if value is not None]
    if any(name != "weight" for name in tensors):
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


def can_have_program(cls: Any) -> bool:
    """Whether losses of a class are made of nothing but what is set at their construction, as far as a class tells."""
    return cls.__module__.startswith(PACKAGE) and not cls.follows_training and "set_epoch" not in _own_methods(cls)


def text_of(loss: Any) -> str:
    """Its class and its plain attributes."""
    values = [named(name, value) for name, value in vars(loss).items() if name not in MODULE]
    return " ".join([f"{type(loss).__module__}.{type(loss).__qualname__}", *values])


def named(name: str, value: Any) -> str:
    """One of them. What is not plain has no text of its own, and a loss that has it no program."""
    return f"{name}={value!r}" if type(value) in (*PLAIN, tuple) or value is None else f"{name}: {type(value).__name__}"


def _own_methods(cls: type) -> set[str]:
    """Names that a loss defines itself, beyond those of its base."""
    return {name for base in cls.__mro__ if base.__module__ != f"{PACKAGE}base" for name in vars(base)}


def _frozen(value: Any) -> Hashable:
    if value is None or type(value) in PLAIN:
        return value  # type: ignore[no-any-return]
    if type(value) is tuple:  # not a list, which changes without being set
        return tuple([_frozen(item) for item in value])
    raise TypeError("not a plain value")
