"""Losses of large logits: of a linear head, a chunk of rows after the other, and with the gradient in the forward pass.

:class:`Linear` is the source of row statistics behind it: so every loss that is a function of these can be computed.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Self

import torch
import torch.nn.functional as F  # noqa: N812 - the name every PyTorch reader expects
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from noiseproof.checks import check_integer
from noiseproof.core.backends import backend_for
from noiseproof.core.dispatch_state import has_dispatch_mode, is_mapped, is_transformed, transforms_active
from noiseproof.core.linear import Gradients, Products, chunk_budget, chunk_rows, linear_statistics, no_second_derivative
from noiseproof.core.row_sums import accumulation_dtype
from noiseproof.core.statistics import Logits, RowStatistics, Statistic, StatisticsLeaf, needs_key_of, statistics_of
from noiseproof.losses.arguments import as_rows, holds_probabilities
from noiseproof.losses.base import RobustLoss
from noiseproof.losses.fused import loss_call

EVERY_LABEL_MATRICES = 16
"""So many matrices of a chunk's size the losses of all its labels take, at least, with what autograd keeps of them."""


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
    losses, total = _weighted_rows(source, labels, criterion, recompute)
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
    given = f"hidden of shape {tuple(hidden.shape)} and {classes} classes"
    if holds_probabilities(target, shape, (*shape, classes), given):
        return rows, target.reshape(-1, classes), shape
    return rows, target.reshape(-1).long(), shape  # in uint8 the label 156 would be -100


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


class Linear(Logits):
    """Hidden states ``[N, D]`` with the ``weight [K, D]`` and ``bias [K]`` of a head, which never have all their logits.

    >>> from noiseproof.core.statistics import Statistic
    >>> s = Linear(torch.zeros(1, 3), torch.zeros(4, 3)).statistics(torch.tensor([2]), (Statistic.SQ_SUM,))
    >>> round(s.sq_others.item(), 4)  # p = 1/4 everywhere
    0.1875
    """

    def __init__(
        self,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        *,
        keep: Tensor | None = None,
        chunk_bytes: int | None = None,
    ) -> None:
        """Rows that are not in ``keep [N]`` are not computed: their statistics are those of equal logits."""
        self.hidden, self.weight, self.bias, self.keep = hidden, weight, bias, keep
        self.classes = weight.shape[0]
        self.dtype = product_dtype(hidden, weight, bias)
        given = chunk_budget(hidden.device) if chunk_bytes is None else chunk_bytes
        self.chunk_bytes = check_integer("chunk_bytes", given, at_least=1)

    def statistics(self, target: Tensor, needs: tuple[Statistic, ...]) -> RowStatistics:
        keys, needs_key = needs_key_of(needs)
        tensors = (self.hidden, self.weight, self.bias, target, self.keep)
        statistics, _ = linear_statistics(*tensors, needs_key, self.dtype, self.chunk_bytes)
        return statistics_of(statistics.unbind(), keys, self.classes)


def product_dtype(hidden: Tensor, weight: Tensor, bias: Tensor | None) -> torch.dtype:
    """The dtype of ``F.linear(hidden, weight, bias)``."""
    dtypes = {t.dtype for t in (hidden, weight, bias) if t is not None}
    device = hidden.device.type
    if device != "meta" and torch.is_autocast_enabled(device) and torch.float64 not in dtypes:
        return torch.get_autocast_dtype(device)
    if len(dtypes) > 1:
        given = f"{hidden.dtype}, {weight.dtype}" + ("" if bias is None else f", {bias.dtype}")
        raise TypeError(f"hidden, weight and bias must have one dtype, got {given}; convert them or use torch.autocast")
    return hidden.dtype


def _weighted_rows(source: Linear, target: Tensor, criterion: RobustLoss, recompute: bool) -> tuple[Tensor, Tensor | None]:
    """The weighted losses of all rows, or their sum, and what a mean divides it by."""
    every = criterion.reads_every_label(target)
    if (
        torch.compiler.is_compiling() or has_dispatch_mode(source.hidden) or source.hidden.is_meta
    ):  # whole passes, as operations
        return _checkpointed_rows(source, target, criterion) if every else criterion.weighted_rows(source, target)
    parameters = [p for p in criterion.parameters() if p.requires_grad]
    inputs = (source.hidden, source.weight, source.bias, *parameters)
    wanted = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in inputs)
    # Not in float16: the gradient of a sum may overflow, that of a mean vanish, unless the scale of the loss is known.
    grads_in_forward = wanted and criterion.reduction != "none" and not recompute and source.dtype != torch.float16
    if not every and not grads_in_forward:
        return criterion.weighted_rows(source, target)
    chunk_bytes = max(1, source.chunk_bytes // EVERY_LABEL_MATRICES) if every else source.chunk_bytes
    task = _ChunkedLoss(target, source.keep, criterion.as_it_is(), source.dtype, chunk_bytes, grads_in_forward)
    rows, total = _ChunkedRows.apply(task, *inputs)  # type: ignore[no-untyped-call]
    return rows, total


class _ChunkedLoss(NamedTuple):
    """What is computed, besides the tensors with gradients."""

    target: Tensor
    keep: Tensor | None
    criterion: RobustLoss
    dtype: torch.dtype
    chunk_bytes: int
    grads_in_forward: bool
    """The sum of the losses, with its gradients, instead of the losses"""


class _EveryLabelChunk(Logits):
    """Logits whose losses for all labels are differentiated by autograd."""

    def __init__(self, logits: Tensor) -> None:
        super().__init__(logits.detach().requires_grad_(torch.is_grad_enabled()))
        self.leaf = self.logits

    def by_logits(self, grads: Tensor, *, in_place: bool) -> Tensor:
        return grads


def _run(
    task: _ChunkedLoss, inputs: Sequence[Any], wanted: Sequence[bool], upstream: Tensor | None
) -> tuple[Tensor, Tensor | int, tuple[Tensor | None, ...]]:
    """Losses, their total weight and, given the gradient of each loss, those of the inputs."""
    hidden, weight, bias, *parameters = inputs
    leaves = [p for p, w in zip(parameters, wanted[3:], strict=True) if w]
    chunk_type: Callable[[Tensor], StatisticsLeaf | _EveryLabelChunk]
    chunk_type = _EveryLabelChunk if task.criterion.reads_every_label(task.target) else StatisticsLeaf
    with torch.autocast(hidden.device.type, enabled=False), torch.no_grad():
        products = Products(hidden, weight, bias, task.keep, task.dtype, task.chunk_bytes)
        gradients = Gradients(products, weight, bias, wanted[:3]) if upstream is not None else None
        losses = hidden.new_zeros(len(hidden), dtype=accumulation_dtype(task.dtype))
        by_parameters = [torch.zeros_like(leaf) for leaf in leaves]
        total: Tensor | int = 0
        for rows, x, z in products.chunks():
            # Hooks of the caller's, of a checkpoint around this say, are for what outlives this function.
            with torch.set_grad_enabled(gradients is not None), saved_tensors_hooks(Tensor.detach, lambda kept: kept):
                chunk = chunk_type(z)
                found, count = task.criterion.weighted_rows(chunk, task.target[rows])
            losses[rows] = found.detach()
            total = total + (len(found) if count is None else count)
            if gradients is not None and upstream is not None:
                first, *rest = torch.autograd.grad(found, [chunk.leaf, *leaves], upstream[rows], materialize_grads=True)
                gradients.add(rows, x, chunk.by_logits(first, in_place=True))
                for sum_, part in zip(by_parameters, rest, strict=True):
                    sum_.add_(part)
    own = (None, None, None) if gradients is None else gradients.results()
    others = iter(by_parameters)
    return losses, total, (*own, *(next(others) if w else None for w in wanted[3:]))


class _ChunkedRows(torch.autograd.Function):
    """The losses of all rows, which the backward pass computes again; or their sum, with gradients that wait to be scaled.

    Those are scaled where they are, and handed over: a copy of the weight's would be larger than a chunk. A second backward
    pass, of a graph that was retained, computes them again.
    """

    @staticmethod
    def forward(ctx: Any, task: _ChunkedLoss, *inputs: Any) -> tuple[Tensor, Tensor]:
        ctx.task, wanted = task, ctx.needs_input_grad[1:]
        ctx.share = _share(task) if task.grads_in_forward else None
        upstream = None if ctx.share is None else ctx.share.expand(len(task.target))
        losses, total, gradients = _run(task, inputs, wanted, upstream)
        ctx.gradients = gradients if task.grads_in_forward else None
        ctx.save_for_backward(task.target, task.criterion.weight, *inputs)
        count = total if isinstance(total, Tensor) else losses.new_full((), total)
        ctx.mark_non_differentiable(count)
        return losses.sum() if task.grads_in_forward else losses, count

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        if is_mapped() or transforms_active():  # several gradients at once
            return None, *_mapped_gradients(ctx.task, ctx.saved_tensors[2:], ctx.needs_input_grad[1:], grads[0])
        found, ctx.gradients, create_graph = ctx.gradients, None, torch.is_grad_enabled()
        with torch.no_grad():
            if found is not None:
                scale = _finite_scale(grads[0] / ctx.share, ctx.task)
                found = tuple([g if g is None else backend_for(g).scale(g, scale) for g in found])
            else:
                upstream = _finite_scale(grads[0], ctx.task).expand(len(ctx.task.target))
                _, _, *inputs = ctx.saved_tensors  # target and weights, so that a change of them in place is seen
                _, _, found = _run(ctx.task, inputs, ctx.needs_input_grad[1:], upstream)
        # Without this a derivative of them would be zero, and wrong.
        return None, *(_FirstGradient.apply(g.requires_grad_()) if create_graph and g is not None else g for g in found)  # type: ignore[no-untyped-call]


def _mapped_gradients(
    task: _ChunkedLoss, inputs: Sequence[Any], wanted: Sequence[bool], upstream: Tensor
) -> tuple[Tensor | None, ...]:
    """The gradients of the inputs under a vmap over ``upstream``, by operations that it maps, with all logits together."""
    if len(inputs) > 3:
        way = "use criterion(F.linear(hidden, weight, bias), target)"
        raise TypeError(f"linear_loss gives no several gradients at once (is_grads_batched) to a loss with parameters; {way}")

    def losses(*given: Tensor) -> Tensor:
        rows, _ = task.criterion.weighted_rows(Logits(F.linear(*[t.to(task.dtype) for t in given])), task.target)
        return rows.sum() if task.grads_in_forward else rows

    with torch.autocast(inputs[0].device.type, enabled=False):
        _, pull, *_ = torch.func.vjp(losses, *[t.detach() for t in inputs if t is not None])
        found = iter(pull(_finite_scale(upstream, task)))
    gradients = [None if t is None else next(found) for t in inputs]
    return tuple([g if w else None for g, w in zip(gradients, wanted, strict=True)])


def _share(task: _ChunkedLoss) -> Tensor:
    """Of each loss in the reduced one if classes have no weights: gradients need no other factor then, and are rounded once."""
    dtype, like = accumulation_dtype(task.dtype), task.target
    if task.criterion.reduction == "sum":
        return like.new_ones((), dtype=dtype)
    count = like.new_full((), len(like), dtype=dtype) if task.keep is None else task.keep.sum().to(dtype)
    return count.clamp_min(1.0).reciprocal()


def _finite_scale(grad: Tensor, task: _ChunkedLoss) -> Tensor:
    """0 where no row counts: a mean is then 0/0, but the gradient of nothing is nothing."""
    if not len(task.target):
        return torch.zeros_like(grad)
    return grad if task.keep is None else grad.masked_fill(~task.keep.any(), 0.0)


class _FirstGradient(torch.autograd.Function):
    """A gradient that cannot be differentiated once more."""

    @staticmethod
    def forward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient.view_as(gradient)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        no_second_derivative()


def _checkpointed_rows(source: Linear, target: Tensor, criterion: RobustLoss) -> tuple[Tensor, Tensor]:
    """The same in operations that a compiler can trace: each chunk is a checkpoint."""
    from torch.utils.checkpoint import checkpoint  # here: with torch 2.6 it imports sympy, a third of a second

    def rows_of(x: Tensor, labels: Tensor) -> "tuple[Tensor, Tensor]":  # in quotes: torch 2.6's compiler cannot trace it
        logits = F.linear(x, source.weight, source.bias)
        rows, count = criterion.weighted_rows(Logits(logits), labels)
        return rows, rows.new_full((), len(rows)) if count is None else count

    rows = len(source.hidden)
    step = max(1, chunk_rows(rows, source.classes, source.dtype, max(1, source.chunk_bytes // EVERY_LABEL_MATRICES)))
    parts = zip(source.hidden.split(step), target.split(step), strict=True)
    found = [checkpoint(rows_of, x, labels, use_reentrant=False) for x, labels in parts]
    return torch.cat([rows for rows, _ in found]), torch.stack([count for _, count in found]).sum()


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
