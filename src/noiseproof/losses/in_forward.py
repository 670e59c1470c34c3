"""A loss that computes its gradient in the forward pass, over the logits if wanted."""

from typing import Any

import torch
from torch import Tensor, nn

from noiseproof.core.backends import backend_for
from noiseproof.core.statistics import StatisticsLeaf
from noiseproof.losses.arguments import as_rows
from noiseproof.losses.base import RobustLoss
from noiseproof.losses.fused import loss_call


class GradientInForward(nn.Module):
    """A loss with the gradient of the logits computed in the forward pass: for large logits that nothing else reads.

    What backward() is given, a gradient scaler's factor say, multiplies the gradient (a pass over it, and none where it is 1).
    backward() runs once, and second derivatives are not supported.

    Args:
        criterion: A loss that is a function of row statistics and reduces to a mean or a sum, over class indices and without
            label smoothing.
        in_place: Whether the gradient is written over the logits, so that a step needs no second tensor of their size. They are
            gone then: backward() fails if an operation before this one wanted them, but what else reads their values, an
            accuracy say, must do so before.

    Example:
        >>> from noiseproof import JALCE
        >>> criterion = GradientInForward(JALCE())
        >>> logits = torch.zeros(2, 4, requires_grad=True)
        >>> criterion(logits, torch.tensor([1, 2])).backward()
        >>> round(logits.grad.sum().item(), 6)
        0.0
    """

    def __init__(self, criterion: RobustLoss, *, in_place: bool = False) -> None:
        super().__init__()
        _check(criterion)
        self.criterion, self.in_place = criterion, in_place

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """Compute the loss, and its gradient if one is wanted.

        Args:
            logits: What the criterion is called on.
            target: Class indices.

        Returns:
            The loss.

        Raises:
            ValueError: If ``in_place`` would write over a leaf of the graph or over overlapping memory.
            TypeError: If the target holds probabilities, or a gradient is wanted for class weights.
        """
        result: Tensor
        if not (torch.is_grad_enabled() and logits.requires_grad):
            result = self.criterion(logits, target)
            return result
        _check(self.criterion)  # which may have been changed since
        rows, target, *_ = as_rows(self.criterion, logits, target)
        if self.in_place and logits.is_leaf:
            raise ValueError("in_place would write over a leaf of the graph; give what a network computes, or in_place=False")
        if self.in_place and _overlap(rows):
            raise ValueError(f"logits of strides {rows.stride()} share memory with each other; clone() them, or in_place=False")
        if target.is_floating_point():
            raise TypeError("the target must hold class indices, got class probabilities")
        if self.criterion.weight is not None and self.criterion.weight.requires_grad:
            raise TypeError("there is no gradient for class weights here; call the criterion as it is")
        result = _GradientStep.apply(rows, target, self.criterion, self.in_place)  # type: ignore[no-untyped-call]
        return result


def _check(criterion: RobustLoss) -> None:
    if criterion.needs is None:
        raise TypeError(f"{type(criterion).__name__} is not a function of row statistics; call it as it is")
    if criterion.reduction == "none" or criterion.label_smoothing > 0:
        raise ValueError(f"the criterion must reduce to a mean or a sum without label smoothing, got {criterion!r}")


def _overlap(rows: Tensor) -> bool:
    """Whether elements may lie at one place, as of an expanded tensor."""
    reach = 0
    for stride, size in sorted(zip(rows.stride(), rows.shape, strict=True)):
        if size > 1 and stride <= reach:
            return True
        reach += stride * (size - 1)
    return False


def _by_program(logits: Tensor, target: Tensor, criterion: RobustLoss, in_place: bool) -> tuple[Tensor, Tensor] | None:
    """Loss and gradient without autograd in between, where a device runs the program of the criterion."""
    call = loss_call(criterion, logits, target)
    if call is None or call.backend.programs is None:
        return None
    formula, programs = call.formula, call.backend.programs
    labels = target.long()
    done = programs.single_pass(formula, logits, labels, call.weight, call.ignore_index, call.reduction, call.dtype, in_place)
    if done is not None:
        return done
    statistics, saved = call.backend.forward(logits, labels, formula.needs, formula.dtype)
    given = (call.weight, call.ignore_index, call.reduction, call.dtype, True, logits.shape[1])
    loss, row_grads, numbers = programs.run(formula, statistics, labels, *given)
    grads = programs.scaled(row_grads, torch.ones_like(loss), numbers, call.reduction)
    return loss, call.backend.backward(grads, logits, labels, statistics, saved, formula.needs, logits if in_place else None)


def _by_autograd(logits: Tensor, target: Tensor, criterion: RobustLoss, in_place: bool) -> tuple[Tensor, Tensor]:
    """The same for any criterion: autograd has the part from the statistics to the loss."""
    source = StatisticsLeaf(logits)
    with torch.enable_grad():
        loss = criterion.from_source(source, target, target.shape)
        (grads,) = torch.autograd.grad(loss, source.leaf)
    return loss.detach(), source.by_logits(grads, in_place=in_place)


class _GradientStep(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, criterion: RobustLoss, in_place: bool) -> Tensor:
        given = (logits.detach(), target, criterion, in_place)
        loss, ctx.gradient = _by_program(*given) or _by_autograd(*given)
        ctx.scale = backend_for(logits).scale
        if in_place:
            torch.autograd.graph.increment_version(logits)
        return loss

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        if ctx.gradient is None:
            raise RuntimeError("the gradient was computed in the forward pass and is gone; call the criterion again")
        gradient, ctx.gradient = ctx.gradient, None
        return ctx.scale(gradient, grads[0]), None, None, None
