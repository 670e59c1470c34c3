"""Checks of the options that a user passes to a loss."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, NoReturn

import torch
from torch import Tensor

__all__ = ["arguments_of", "by_name", "by_name_error", "check_weight", "raise_unknown"]


def raise_unknown(loss: object, unknown: dict[str, object]) -> NoReturn:
    """For a call with arguments that a loss does not have; apart from ``forward``, whose every line a compiler reads."""
    text = f"{type(loss).__name__} is called with logits and target, got {next(iter(unknown))!r} as well"
    if "num_items_in_batch" in unknown:
        text += "; for Hugging Face's Trainer wrap it: noiseproof.integrations.transformers.TrainerLoss(loss)"
    raise TypeError(text)


def check_weight(weight: Tensor | None) -> Tensor | None:
    if weight is None:
        return None
    if not isinstance(weight, Tensor) or not weight.is_floating_point():
        found = weight.dtype if isinstance(weight, Tensor) else type(weight).__name__
        raise TypeError(f"weight must be a floating tensor, got {found}")
    if weight.dim() != 1:
        raise ValueError(f"weight must have shape [K], got {tuple(weight.shape)}")
    # Looking at values elsewhere would stall the device at every call of a function that builds its loss anew.
    if weight.device.type == "cpu" and not bool(((weight >= 0) & torch.isfinite(weight)).all()):
        raise ValueError("weight must be finite and not negative")
    return weight


def arguments_of(init: Callable[..., None]) -> list[inspect.Parameter]:
    """Of a constructor, without self."""
    return list(inspect.signature(init).parameters.values())[1:]


def by_name(init: Callable[..., None]) -> Callable[..., None]:
    """A constructor that says what to write when an option is given by its place."""

    @functools.wraps(init)
    def checked(self: Any, *given: Any, **options: Any) -> None:
        if given:
            raise by_name_error(type(self).__name__, arguments_of(type(self).__init__), given[0])
        init(self, **options)

    return checked


def by_name_error(name: str, arguments: list[inspect.Parameter], given: Any) -> TypeError:
    """For an option given by its place, as ``torch.nn.CrossEntropyLoss`` takes ``weight``."""
    own = [argument.name for argument in arguments if argument.kind is argument.KEYWORD_ONLY]
    shown = "weight=..." if isinstance(given, Tensor) or not own else f"{own[0]}={given!r}"
    return TypeError(f"{name} takes its options by name: write {shown}")
