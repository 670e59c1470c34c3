"""Checks of the tensors that a user passes."""

import torch
from torch import Tensor

__all__ = ["check_tensors", "check_weight"]


def check_tensors(logits: Tensor, target: Tensor) -> None:
    for name, value in (("logits", logits), ("target", target)):
        if not isinstance(value, Tensor):
            raise TypeError(f"{name} must be a tensor, got {type(value).__name__}")
    if not logits.is_floating_point():
        raise TypeError(f"logits must have a floating dtype, got {logits.dtype}")
    if target.dtype == torch.bool or target.is_complex():
        raise TypeError(f"target must hold class indices or class probabilities, got {target.dtype}")
    if logits.dim() == 0:
        raise ValueError("logits must have shape [K], [N, K] or [N, K, d1, ...], got a scalar")


def check_weight(weight: Tensor | None) -> Tensor | None:
    if weight is None:
        return None
    if not isinstance(weight, Tensor) or not weight.is_floating_point():
        raise TypeError(f"weight must be a floating tensor, got {getattr(weight, 'dtype', type(weight).__name__)}")
    if weight.dim() != 1:
        raise ValueError(f"weight must have shape [K], got {tuple(weight.shape)}")
    # Looking at values elsewhere would stall the device at every call of a function that builds its loss anew.
    if weight.device.type == "cpu" and not bool(((weight >= 0) & torch.isfinite(weight)).all()):
        raise ValueError("weight must be finite and not negative")
    return weight
