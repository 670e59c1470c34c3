"""One function per loss of the catalogue: ``noiseproof.functional.jal_ce(logits, target, alpha=1.0, beta=1.0, a=30.0)``.

The functions are made from the catalogue, so that each loss has one signature in the whole package. ``functional.pyi`` is
written from them, for editors and type checkers.
"""

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from noiseproof.losses.base import DEFAULTS
from noiseproof.losses.catalog import CONTRACT_MEANINGS, LossEntry, describe_parameters, list_losses

TENSORS = {
    "logits": "[N, K], [K] or [N, K, d1, ...]",
    "features": "[N, D]",
    "target": "labels, [N] for logits [N, K], or class probabilities of the logits' shape",
    "means": "the mean of each class, [K, D]",
    "root_freedom": "the root of each class's degrees of freedom less 0.1, [K]",
}


def _function(entry: LossEntry) -> Callable[..., Tensor]:
    def loss(logits: Any, target: Tensor, **options: Any) -> Tensor:
        return entry.cls(**options)(logits, target)  # type: ignore[no-any-return]

    return _describe(loss, entry)


def _head_function(entry: LossEntry) -> Callable[..., Tensor]:
    """A loss with parameters of its own: they are arguments here, and their shape gives the features and classes."""

    def loss(features: Tensor, target: Tensor, means: Tensor, root_freedom: Tensor, **options: Any) -> Tensor:
        module = entry.cls(classes=means.shape[0], features=means.shape[1], **options)
        given = {"means": means, "root_freedom": root_freedom}
        return torch.func.functional_call(module, given, (features, target))  # type: ignore[no-any-return]

    return _describe(loss, entry, without=("features", "classes"))


def _describe(loss: Callable[..., Tensor], entry: LossEntry, without: tuple[str, ...] = ()) -> Callable[..., Tensor]:
    """``loss`` with its name, its docstring and the signature that the class has, less some parameters."""
    declared = inspect.signature(entry.cls.__init__).parameters
    options = {name: default for name, default in entry.defaults.items() if name not in without}
    positional = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter(name, positional, annotation="Tensor") for name in entry.arguments]
    if entry.reads == "predictions":
        parameters[0] = parameters[0].replace(annotation="Tensor | list[Tensor] | tuple[Tensor, ...]")
    for name, default in {**options, **DEFAULTS}.items():
        annotation = declared[name].annotation if name in declared else inspect.Parameter.empty
        parameters.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation))
    loss.__signature__ = inspect.Signature(parameters, return_annotation="Tensor")  # type: ignore[attr-defined]
    loss.__name__ = loss.__qualname__ = entry.function_name
    loss.__module__ = __name__
    loss.__doc__ = _documentation(entry, list(options))
    return loss


def _documentation(entry: LossEntry, options: list[str]) -> str:
    meanings = {**TENSORS, **describe_parameters(entry), **CONTRACT_MEANINGS}
    if entry.reads == "predictions":
        meanings["logits"] = "those of each prediction, in a list, or one tensor for equal predictions"
    lines = [f"    {name}: {meanings[name]}" for name in (*entry.arguments, *options, *CONTRACT_MEANINGS)]
    head = f"{entry.title}: the function of :class:`noiseproof.{entry.cls.__name__}`."
    result = '    The loss: a number, or with reduction="none" one for each label.'
    return "\n".join([head, "", "Args:", *lines, "", "Returns:", result, "", "Example:", *_example(entry)])


def _example(entry: LossEntry) -> list[str]:
    values = ["torch.zeros(2, 4)", "torch.tensor([2, 0])", "torch.eye(4)", "torch.ones(4)"][: len(entry.arguments)]
    names = ", ".join(entry.arguments)
    call = f'noiseproof.functional.{entry.function_name}({names}, reduction="none").shape'
    return ["    >>> import noiseproof", f"    >>> {names} = {', '.join(values)}", f"    >>> {call}", "    torch.Size([2])"]


for _entry in list_losses():
    globals()[_entry.function_name] = (_head_function if _entry.reads == "features" else _function)(_entry)

__all__ = [entry.function_name for entry in list_losses()]
