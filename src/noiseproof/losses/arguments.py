"""What a loss is given, checked: its options, and logits and target of every shape as rows; the dtype of the result."""

import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NoReturn

import torch
from torch import Tensor

from noiseproof.core.row_sums import accumulation_dtype

if TYPE_CHECKING:
    from noiseproof.losses.base import RobustLoss


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


def as_rows(loss: "RobustLoss", logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor, int, Sequence[int]]:
    """As rows: ``logits [N, K]`` with ``target [N]`` or ``[N, K]``; the number of classes; the unreduced result's shape."""
    _check(logits, target)
    size = logits.shape
    if target.dtype == torch.int64 and len(size) == 2 and target.shape == size[:1]:  # the usual case, where time counts
        classes = loss.classes_of(logits)
        if classes >= 2:
            return logits, target, classes, target.shape
    class_dim = 0 if logits.dim() == 1 else 1
    per_label = logits.shape[:class_dim] + logits.shape[class_dim + 1 :]
    rows = logits if logits.dim() == 2 else logits.movedim(class_dim, -1).reshape(-1, logits.shape[class_dim])
    classes = loss.classes_of(rows)
    if classes < 2:
        two = "; of one logit z, as of a sigmoid, the two are torch.cat([torch.zeros_like(z), z], 1)"
        raise ValueError(f"logits must have at least 2 classes, got shape {tuple(logits.shape)}{two if class_dim else ''}")
    per_class = (*logits.shape[:class_dim], classes, *logits.shape[class_dim + 1 :])
    given = f"logits of shape {tuple(logits.shape)}"
    if holds_probabilities(target, per_label, per_class, given, _way_to_shape(logits, target)):
        return rows, target.movedim(class_dim, -1).reshape(-1, classes), classes, per_label
    return rows, target if target.dim() == 1 else target.reshape(-1), classes, per_label


def holds_probabilities(target: Tensor, per_label: Sequence[int], per_class: Sequence[int], given: str, way: str = "") -> bool:
    """Whether a target of these shapes is class probabilities, not class indices; an error says what it should be."""
    shape, floating = tuple(target.shape), target.is_floating_point()
    if shape == tuple(per_class if floating else per_label):
        return floating
    if shape == tuple(per_label):
        raise TypeError(f"class-index targets must have an integer dtype, got {target.dtype}; of whole numbers, target.long()")
    if shape == tuple(per_class):
        one, rows = "logits [K] are those of one example", "of one-hot rows target.argmax(1) are the class indices"
        hint = rows if len(shape) > 1 else one
        raise TypeError(f"class-probability targets must have a floating dtype, got {target.dtype}; {hint}")
    raise ValueError(
        f"for {given} the target must have shape {tuple(per_label)} (class indices) "
        f"or {tuple(per_class)} (class probabilities), got {shape}{way}"
    )


def _way_to_shape(logits: Tensor, target: Tensor) -> str:
    """What to do about labels with a dimension of their own, or about classes that come last."""
    if target.dim() > 1 and target.shape == (*logits.shape[:1], 1, *logits.shape[2:]):
        return "; target.squeeze(1) has it"
    return "; the classes come second: logits.movedim(-1, 1)" if target.shape == logits.shape[:-1] else ""


def _check(logits: Tensor, target: Tensor) -> None:
    if not isinstance(logits, Tensor):
        raise TypeError(f"logits must be a tensor, got {_named(logits)}")
    if not isinstance(target, Tensor):
        raise TypeError(f"target must be a tensor, got {_named(target)}")
    if not logits.is_floating_point():
        raise TypeError(f"logits must have a floating dtype, got {logits.dtype}")
    if target.dtype == torch.bool or target.is_complex():
        raise TypeError(f"target must hold class indices or class probabilities, got {target.dtype}")
    if logits.dim() == 0:
        raise ValueError("logits must have shape [K], [N, K] or [N, K, d1, ...], got a scalar")


def _named(value: object) -> str:
    return type(value).__name__ + ("; pass its logits" if hasattr(value, "logits") else "")


def result_dtype(logits: torch.dtype, rows: torch.dtype, like: Tensor) -> torch.dtype:
    """What F.cross_entropy would return for logits of this dtype: under autocast that runs in float32."""
    if rows == logits:
        return logits
    autocast = like.device.type != "meta" and torch.is_autocast_enabled(like.device.type)
    return accumulation_dtype(logits) if autocast else logits
