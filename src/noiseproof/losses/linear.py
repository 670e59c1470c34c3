"""The loss of a linear head, as a function and as a module that owns the head."""

from typing import Self

import torch
import torch.nn.functional as F  # noqa: N812 - the name every PyTorch reader expects
from torch import Tensor, nn

from noiseproof.checks import check_integer
from noiseproof.core import is_transformed
from noiseproof.core.statistics import Logits
from noiseproof.losses.base import RobustLoss
from noiseproof.losses.linear_chunks import Linear, weighted_rows

__all__ = ["LinearLoss", "linear_loss"]


def linear_loss(
    hidden: Tensor,
    weight: Tensor,
    target: Tensor,
    criterion: RobustLoss,
    bias: Tensor | None = None,
    *,
    chunk_bytes: int | None = None,
    recompute: bool = False,
) -> Tensor:
    """Compute ``criterion(F.linear(hidden, weight, bias), target)`` without all the logits together.

    The logits of a few thousand rows are formed at a time, so that memory does not grow with N x K. Use it where K is large, a
    vocabulary or the articles of a shop; with a thousand classes the two steps are as good. Matrix products run in the dtype of
    the inputs or in autocast's, statistics in float32 at least. The gradient of the weight is added up in float32 where that
    takes no buffer, or none larger than twice ``chunk_bytes``. Arguments are in the order of ``F.linear_cross_entropy``.

    Args:
        hidden: ``[N, D]``, ``[D]``, or with more dimensions before the last, as ``[B, T, D]``.
        weight: The head's, ``[K, D]``; weights of the classes are an option of the criterion.
        target: Class indices, shaped as ``hidden`` without its last dimension, or class probabilities with K in its place.
        criterion: A loss that is a function of row statistics, as most are. Its ``weight``, ``ignore_index``, ``reduction`` and
            ``label_smoothing`` mean what they always do; ignored rows cost nothing.
        bias: The head's, ``[K]``.
        chunk_bytes: Bytes of logits at a time; 448 MiB if not given, on a CPU 128 MiB.
        recompute: False computes gradients along with the loss. True forms the logits again in the backward pass, a third more
            work, and none of it for a loss that is never differentiated. With ``reduction="none"``, in float16 and in compiled
            code that is how it is done anyway, because the gradient of the loss must be known first.

    Returns:
        The loss: a number, or with ``reduction="none"`` one for each label.

    Raises:
        TypeError: If the criterion needs all the logits, an argument has the wrong type or dtype, or a gradient is wanted for
            the target or for class weights.
        ValueError: If shapes do not fit together.

    Example:
        >>> import noiseproof
        >>> hidden, head = torch.zeros(8, 16), torch.nn.Linear(16, 1000, bias=False)
        >>> loss = linear_loss(hidden, head.weight, torch.arange(8), noiseproof.CE())
        >>> loss.backward()
        >>> round(loss.item(), 4)  # log 1000
        6.9078
    """
    check_criterion(criterion)
    rows, labels, shape = _flatten(hidden, weight, target, bias)
    if is_transformed():  # torch.func and forward-mode AD want plain operations
        return criterion.from_source(Logits(F.linear(rows, weight, bias)), labels, shape)
    if criterion.weight is not None and criterion.weight.requires_grad and torch.is_grad_enabled():
        raise TypeError(
            "linear_loss gives no gradient for class weights; use criterion(F.linear(hidden, weight, bias), target)"
        )
    keep = None if labels.is_floating_point() else labels != criterion.ignore_index
    source = Linear(rows, weight, bias, keep=keep, chunk_bytes=chunk_bytes)
    losses, total = weighted_rows(source, labels, criterion, recompute)
    return criterion.reduced(losses, total, source.dtype, shape)


class LinearLoss(nn.Module):
    """A linear head and its loss in one module: called on hidden states, it never has all the logits together.

    It is ``criterion(linear(hidden), target)`` with a ``linear`` of its own, a ``torch.nn.Linear(in_features, num_classes)``,
    which also predicts: ``loss.linear(hidden)`` are logits. Its parameters go to the optimizer as those of any module. The
    arguments are those of ``torch.nn.LinearCrossEntropyLoss`` and of :func:`linear_loss`.

    Args:
        in_features: The width of the hidden states.
        num_classes: The number of classes.
        criterion: A loss that is a function of row statistics.
        bias: Whether the head has a bias.
        device: The device of the head's parameters.
        dtype: Their dtype.
        chunk_bytes: Bytes of logits at a time; see :func:`linear_loss`.
        recompute: Whether logits are formed again in the backward pass; see :func:`linear_loss`.

    Example:
        >>> import noiseproof
        >>> loss = LinearLoss(16, 1000, noiseproof.JALCE(alpha=1.0, beta=1.0, a=30.0))
        >>> loss(torch.zeros(8, 16), torch.arange(8)).backward()
        >>> loss.linear.weight.grad.shape
        torch.Size([1000, 16])
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        criterion: RobustLoss,
        *,
        bias: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        chunk_bytes: int | None = None,
        recompute: bool = False,
    ) -> None:
        super().__init__()
        check_criterion(criterion)
        check_integer("in_features", in_features, at_least=1)
        check_integer("num_classes", num_classes, at_least=2)
        self.linear = nn.Linear(in_features, num_classes, bias, device, dtype)
        self.criterion = criterion
        self.chunk_bytes = None if chunk_bytes is None else check_integer("chunk_bytes", chunk_bytes, at_least=1)
        self.recompute = recompute

    @classmethod
    def from_linear(
        cls, linear: nn.Linear, criterion: RobustLoss, *, chunk_bytes: int | None = None, recompute: bool = False
    ) -> Self:
        """Create the module around an existing head, as ``model.lm_head``: its parameters are shared.

        Args:
            linear: The head.
            criterion: A loss that is a function of row statistics.
            chunk_bytes: Bytes of logits at a time.
            recompute: Whether logits are formed again in the backward pass.

        Returns:
            The module.

        Raises:
            TypeError: If the head is no ``torch.nn.Linear``.

        Example:
            >>> import noiseproof
            >>> head = torch.nn.Linear(16, 1000)
            >>> LinearLoss.from_linear(head, noiseproof.GCE()).linear is head
            True
        """
        if not isinstance(linear, nn.Linear):
            raise TypeError(f"linear must be a torch.nn.Linear, got {type(linear).__name__}")
        loss = cls(1, 2, criterion, device="meta", chunk_bytes=chunk_bytes, recompute=recompute)
        loss.linear = linear
        return loss

    def forward(self, hidden: Tensor, target: Tensor) -> Tensor:
        """Compute the loss.

        Args:
            hidden: Hidden states, ``[..., D]``.
            target: Class indices ``[...]``, or class probabilities ``[..., K]``.

        Returns:
            The loss: a number, or with ``reduction="none"`` one for each label.
        """
        head = self.linear
        return linear_loss(
            hidden, head.weight, target, self.criterion, head.bias, chunk_bytes=self.chunk_bytes, recompute=self.recompute
        )

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={value!r}" for name in ("chunk_bytes", "recompute") if (value := getattr(self, name)))


def check_criterion(criterion: object) -> None:
    if not isinstance(criterion, RobustLoss):
        given = criterion.__name__ if isinstance(criterion, type) else type(criterion).__name__
        raise TypeError(f"criterion must be a loss of this package, such as noiseproof.CE(), got {given}")
    if criterion.needs is None:
        raise TypeError(
            f"{type(criterion).__name__} is no function of row statistics, it needs all the logits: "
            "use criterion(F.linear(hidden, weight, bias), target)"
        )


def _flatten(hidden: Tensor, weight: Tensor, target: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor, tuple[int, ...]]:
    """As rows: ``hidden [N, D]`` with ``target [N]`` or ``[N, K]``, and the shape of the unreduced result."""
    _check_tensors(hidden, weight, target, bias)
    classes, width = weight.shape
    shape = tuple(hidden.shape[:-1])
    rows = hidden.reshape(-1, width)
    if target.shape == shape and not target.is_floating_point():
        return rows, target.reshape(-1).long(), shape  # in uint8 the label 156 would be -100
    if target.shape == (*shape, classes) and target.is_floating_point():
        return rows, target.reshape(-1, classes), shape
    if target.shape == shape:
        raise TypeError(f"class-index targets must have an integer dtype, got {target.dtype}")
    if target.shape == (*shape, classes):
        raise TypeError(f"class-probability targets must have a floating dtype, got {target.dtype}")
    raise ValueError(
        f"for hidden of shape {tuple(hidden.shape)} and {classes} classes the target must have shape {shape} (class indices) "
        f"or {(*shape, classes)} (class probabilities), got {tuple(target.shape)}"
    )


def _check_tensors(hidden: Tensor, weight: Tensor, target: Tensor, bias: Tensor | None) -> None:
    for name, value in (("hidden", hidden), ("weight", weight), ("target", target), ("bias", bias)):
        if value is None and name == "bias":
            continue
        if not isinstance(value, Tensor):
            raise TypeError(f"{name} must be a tensor, got {type(value).__name__}")
        if name != "target" and not value.is_floating_point():
            raise TypeError(f"{name} must have a floating dtype, got {value.dtype}")
        if hasattr(value, "placements"):
            raise TypeError(
                f"{name} is a DTensor, of which each process has a part; wrap the LinearLoss in fully_shard, which gathers the "
                "head for its call, or leave the head out of the sharding"
            )
    if target.dtype == torch.bool or target.is_complex():
        raise TypeError(f"target must hold class indices or class probabilities, got {target.dtype}")
    if target.requires_grad:
        raise TypeError("linear_loss gives no gradient for the target; use criterion(F.linear(hidden, weight, bias), target)")
    if weight.dim() != 2 or weight.shape[0] < 2:
        raise ValueError(f"weight must have shape [K, D] with at least 2 classes, got {tuple(weight.shape)}")
    if hidden.dim() == 0 or hidden.shape[-1] != weight.shape[1]:
        raise ValueError(f"hidden must have shape [..., {weight.shape[1]}] as weight has, got {tuple(hidden.shape)}")
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ValueError(f"bias must have one entry per class: {weight.shape[0]} classes, got shape {tuple(bias.shape)}")
