"""The usual call of a loss as one fused step, in eager mode and in compiled code; which losses have a program for it.

A program stands for a loss as long as that does not change. So only losses of this package have one, made of plain values that
are fixed at construction: none that follows the training or draws at random, none that a user wrote or changed. A loss is known
by its cache key, the text of its class and plain attributes.

A compiler that reads our code checks at every call that nothing which it has read is different: for JAL-CE 467 lines of checks,
where a plain formula has 44. So a loss with a cache key is looked up by that key, which is all that is read and checked.
"""

import copy
import inspect
from collections.abc import Callable, Hashable
from contextlib import nullcontext
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import _disable_current_modes as without_modes

from noiseproof.core.backends import Backend
from noiseproof.core.dispatch_state import Recording, is_compiling, transforms_active
from noiseproof.core.row_sums import accumulation_dtype
from noiseproof.core.statistics import Logits, Statistic, needs_key_of, statistics_of
from noiseproof.losses.arguments import as_rows, result_dtype
from noiseproof.program import Formula, LossCall, eager_backend, fused_step, recorded_step, recording_backend, traced

if TYPE_CHECKING:
    from noiseproof.losses.base import RobustLoss


def loss_call(loss: "RobustLoss", logits: Tensor, target: Tensor, recorded: bool = False) -> LossCall | None:
    """What a step with the program of this loss is given; None if it has none, or the batch is not one for it."""
    if loss.needs is None or loss.label_smoothing > 0 or target.is_floating_point():
        return None
    given = loss._buffers["weight"]
    if given is not None and given.requires_grad and torch.is_grad_enabled():  # a step has no gradient for it
        return None
    backend = recording_backend(logits) if recorded else eager_backend(logits, target)
    formula = None if backend is None else programs_of(loss).get(loss, logits, backend)
    if backend is None or formula is None:
        return None
    weight = None if given is None else loss._class_weight(logits.shape[1]).contiguous()  # kernels read one after the other
    dtype = result_dtype(logits.dtype, formula.dtype, logits)
    return LossCall(formula, backend, None, loss.ignore_index, weight, loss.reduction, dtype, formula.loss._recompute)


def fused_loss(loss: "RobustLoss", call: LossCall, logits: Tensor, target: Tensor) -> Tensor:
    """What :meth:`RobustLoss.from_source` gives, before it is shaped."""
    if target.dtype != torch.int64:
        target = target.long()
    if logits.is_cpu and 0 <= loss.ignore_index < logits.shape[1]:
        call = call._replace(ignored=loss._ignored(target))
    try:
        return fused_step(logits, target, call)
    except IndexError:  # an ignored label is out of range as a rule, so that looking for one costs nothing
        return fused_step(logits, target, call._replace(ignored=loss._ignored(target)))


_recordable: dict[str, "RobustLoss"] = {}


def keep_for_compiler(loss: "RobustLoss", cache_key: str) -> bool:
    """Have this loss ready for :func:`recorded_call`; False: no text can stand for it."""
    if signature(loss) is None:
        return False
    _recordable[cache_key] = copy.deepcopy(loss, {id(loss.weight): None})  # what the loss becomes later has another text
    torch._dynamo.allow_in_graph(recorded_call)  # here, because it imports the compiler
    return True


def recorded_call(logits: Tensor, target: Tensor, weight: Tensor | None, cache_key: str) -> Tensor:
    """The loss with this text, and with these weights."""
    loss = copy.copy(_recordable[cache_key])
    loss.__dict__["_buffers"] = {**loss._buffers, "weight": weight}
    with Recording():
        return recorded(loss, logits, target)


def recorded(loss: "RobustLoss", logits: Tensor, target: Tensor) -> Tensor:
    """What a call gives, while a compiler records it."""
    logits, target, classes, shape = as_rows(loss, logits, target)
    call = loss_call(loss, logits, target, recorded=True)
    if call is None:
        return loss.from_source(Logits(logits, classes, plain=transforms_active()), target, shape)
    result = recorded_step(logits, target.long(), call)
    return result.reshape(shape) if loss.reduction == "none" else result


PACKAGE = __name__.rpartition(".")[0] + "."
CONTRACT_ATTRIBUTES = frozenset({"reduction", "ignore_index", "label_smoothing", "training"})
"""What a program does not depend on, besides the weight."""
PLAIN_TYPES = (bool, int, float, str, Statistic)
MODULE_ATTRIBUTES = frozenset({*vars(nn.Module()), "_programs", "_cache_key"})
MAX_PROGRAMS_KEPT = 1024
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
    """What differs when something has been set in the loss, in its class or in a part of it since."""
    if is_patched(type(loss)):
        return None
    cache_key = loss._cache_key
    if cache_key is None and loss._has_cache_key:  # a compiled function has set something
        cache_key = loss.__dict__["_cache_key"] = cache_key_of(loss)
    parts = loss._modules.get("losses")
    if parts is None:
        return cache_key
    return cache_key, [_state(part) for part in parts._modules.values()]


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
        if len(_known) >= MAX_PROGRAMS_KEPT:
            _known.clear()
        _known[key] = formula
        return formula


def _traced(loss: Any, classes: int, dtype: torch.dtype) -> Formula | None:
    keys, needs_key = needs_key_of(loss.needs)
    program = traced(lambda rows: loss.from_statistics(statistics_of(rows, keys, classes)), 2 + len(keys), dtype)
    if program is None:
        return None
    formula = Formula(program, needs_key, dtype)
    formula.loss = loss.as_it_is()
    return formula


def signature(loss: Any) -> Hashable | None:
    """All that the values of a loss depend on; None if that is more than a program can stand for."""
    cls = type(loss)
    if not loss._has_cache_key or loss.needs is None or is_patched(cls):
        return None
    children = [child for child in loss._modules.values() if child is not None]
    tensors = [name for name, value in (*loss._buffers.items(), *loss._parameters.items()) if value is not None]
    if any(name != "weight" for name in tensors):
        return None
    try:
        values = tuple(
            [
                (name, _frozen(v))
                for name, v in vars(loss).items()
                if name not in MODULE_ATTRIBUTES and name not in CONTRACT_ATTRIBUTES
            ]
        )
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


def own_code(cls: Any) -> Callable[[Any], Any]:
    """What looks up the methods that this package has written for a class, besides those of every loss."""
    written = [base for base in cls.__mro__ if base.__module__.startswith(PACKAGE) and base.__module__ != f"{PACKAGE}base"]
    names = {name for base in written for name, value in vars(base).items() if inspect.isfunction(value)}
    return attrgetter(*sorted(names - {"__init__", "_is_recordable"} | {"from_statistics"}))


def is_patched(cls: Any) -> bool:
    """Whether a method of a class has been set since it was made: a program stands for the one that was."""
    return cls._code_of(cls) != cls._code  # type: ignore[no-any-return]


def cache_key_of(loss: Any) -> str:
    """Its class and its plain attributes."""
    values = [attribute_key(name, value) for name, value in vars(loss).items() if name not in MODULE_ATTRIBUTES]
    return " ".join([f"{type(loss).__module__}.{type(loss).__qualname__}", *values])


def attribute_key(name: str, value: Any) -> str:
    """One of them. What is not plain has no text of its own, and a loss that has it no program."""
    return f"{name}={value!r}" if type(value) in (*PLAIN_TYPES, tuple) or value is None else f"{name}: {type(value).__name__}"


def _own_methods(cls: type) -> set[str]:
    """Names that a loss defines itself, beyond those of its base."""
    return {name for base in cls.__mro__ if base.__module__ != f"{PACKAGE}base" for name in vars(base)}


def _frozen(value: Any) -> Hashable:
    if value is None or type(value) in PLAIN_TYPES:
        return value  # type: ignore[no-any-return]
    if type(value) is tuple:  # not a list, which changes without being set
        return tuple([_frozen(item) for item in value])
    raise TypeError("not a plain value")
