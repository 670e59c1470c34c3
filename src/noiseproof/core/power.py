"""What the gradient of a power sum is made of: ``e^q - e`` of all classes, or ``e^q`` where the label is the largest class."""

import torch
from torch import Tensor

__all__ = ["power_changes"]


def power_changes(
    q: float, e: Tensor, powers: Tensor, shifted: Tensor, behind: Tensor, least: float, spare: Tensor | None = None
) -> Tensor:
    """``e^q - e`` in rows where the label is ``behind`` another class, in others ``e^q``; in the place of the ``powers`` e^q.

    Both forms have ``expm1`` of what is not positive, so that a far class overflows for no q.
    """
    change = torch.clamp_min(shifted, least, out=spare)  # q - 1 may be 0, and a class infinitely far
    change = change.mul_(abs(q - 1)).expm1_().mul_(e if q > 1 else powers)
    return torch.where(behind, change if q > 1 else change.neg_(), powers, out=powers)
