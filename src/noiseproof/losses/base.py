"""The contract of every loss: what ``torch.nn.CrossEntropyLoss`` promises, kept in one place.

A loss is one method, :meth:`RobustLoss.from_statistics`, and the set of statistics it reads, ``needs``. Shapes, targets,
weights, ignored rows, smoothing, reduction and dtypes are handled once, for all of them: shapes and options in arguments.py,
the usual call as one step, eager or compiled, in fused.py, and all else here, with the weighted sum of losses.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict, Unpack, cast

import torch
from torch import Tensor, nn
from torch.compiler import is_compiling

from noiseproof.checks import check_range
from noiseproof.core.dispatch_state import is_eager_cpu
from noiseproof.core.operation import rows_of_labels
from noiseproof.core.statistics import Logits, RowStatistics, Statistic, every_label_statistics, row_statistics
from noiseproof.losses.arguments import arguments_of, as_rows, check_weight, raise_unknown, result_dtype
from noiseproof.losses.fused import (
    attribute_key,
    cache_key_of,
    can_have_program,
    fused_loss,
    keep_for_compiler,
    loss_call,
    own_code,
    recorded_call,
)
from noiseproof.program import LossCall, Reduction

REDUCTIONS = ("none", "mean", "sum")


class Contract(TypedDict, total=False):
    """The options every loss shares with ``torch.nn.CrossEntropyLoss``, with the same meaning and the same defaults."""

    # Text, because noiseproof/functional.pyi prints it.
    weight: "Tensor | None"
    ignore_index: "int"
    reduction: "Reduction"
    label_smoothing: "float"


DEFAULTS: dict[str, Any] = {"weight": None, "ignore_index": -100, "reduction": "mean", "label_smoothing": 0.0}
"""Of the options in :class:`Contract`."""


class RobustLoss(nn.Module):
    """Base of all losses: a drop-in for ``torch.nn.CrossEntropyLoss``.

    Logits are ``[N, K]``, ``[K]`` or ``[N, K, d1, ...]``. The target holds class indices (``[N]``, scalar or ``[N, d1, ...]``)
    or class probabilities (the logits' shape; the loss is then the expected one under them). ``weight``, ``ignore_index``,
    ``reduction`` and ``label_smoothing`` mean what they mean there. Statistics are computed in float32 at least, and the
    result has the dtype that ``F.cross_entropy`` would give.

    A class whose logit is -inf is masked: it has probability 0, is in no sum over the classes, gets no gradient and no share of
    the smoothing. Where a formula divides by K that stays the number of columns, so that rows with different masks have one
    scale. A label that is a masked class has the loss at p_y = 0, infinite for cross entropy and finite for a bounded loss,
    and gives no gradient.

    A subclass sets ``needs`` and writes :meth:`from_statistics`. One that cannot be written so sets ``needs = None`` and
    writes :meth:`rows`.

    Args:
        **contract: ``weight`` (a factor for each class's loss, ``[K]``), ``ignore_index`` (the label of rows that count for
            nothing), ``reduction`` (``"none"``, ``"mean"`` or ``"sum"``) and ``label_smoothing`` (the share of the target that
            all classes get alike).

    Raises:
        TypeError: If there is no such option, or an option has the wrong type.
        ValueError: If an option has a value that is not allowed.

    Example:
        >>> from noiseproof.statistics import Statistic
        >>> class Halved(RobustLoss):
        ...     needs = (Statistic.NLL,)
        ...
        ...     def from_statistics(self, s):
        ...         return s.nll / 2
        >>> round(Halved(reduction="sum")(torch.zeros(2, 4), torch.tensor([2, 0])).item(), 4)  # log 4
        1.3863
    """

    needs: tuple[Statistic, ...] | None = None
    """The statistics :meth:`from_statistics` reads, or None if the loss is no function of row statistics."""

    follows_training = False
    """Whether the training loop must also call its method ``update``."""

    weight: Tensor | None
    _has_cache_key = False
    _code_of: Callable[[Any], Any]
    _code: Any
    """The methods of the class as they were written, which a program stands for"""
    _cache_key: str | None = None
    """Class and plain attributes, where they are all that a loss is made of: what programs and compilers know it by"""

    def __init__(self, **contract: Unpack[Contract]) -> None:
        super().__init__()
        unknown = [name for name in contract if name not in DEFAULTS]
        if unknown:
            known = ", ".join([*parameters_of(type(self)), *DEFAULTS])
            raise TypeError(f"{type(self).__name__} has no option {unknown[0]!r}; it takes {known}")
        given: dict[str, Any] = {**DEFAULTS, **contract}
        if given["reduction"] not in REDUCTIONS:
            raise ValueError(f"reduction must be one of {', '.join(REDUCTIONS)}, got {given['reduction']!r}")
        if isinstance(given["ignore_index"], bool) or not isinstance(given["ignore_index"], int):
            raise TypeError(f"ignore_index must be an integer, got {given['ignore_index']!r}")
        self.reduction: Reduction = given["reduction"]
        self.ignore_index: int = given["ignore_index"]
        self.label_smoothing = check_range("label_smoothing", given["label_smoothing"], at_least=0, at_most=1)
        self.register_buffer("weight", check_weight(given["weight"]))

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if isinstance(cls.needs, Statistic):
            raise TypeError(f"`needs` of {cls.__name__} must be a tuple; one of a single statistic ends in a comma")
        cls._has_cache_key = can_have_program(cls)
        cls._code_of = own_code(cls)
        cls._code = cls._code_of(cls)
        cls._is_recordable = RobustLoss._is_recordable  # type: ignore[method-assign]  # found there at once, with nothing to check on the way

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.__dict__ and name in parameters_of(type(self)):
            raise AttributeError(f"{name} of {type(self).__name__} is fixed at construction; make a new loss")
        if name == "weight" and isinstance(value, nn.Parameter):
            raise TypeError("weight is a buffer, not a parameter: assign a tensor; one that requires gradients gets them")
        is_change = name in self.__dict__
        super().__setattr__(name, value)
        if not self._has_cache_key or name == "training" or name not in self.__dict__:
            return
        if is_compiling():
            if self._cache_key is not None:
                self._cache_key = None  # made when it is wanted: a compiler would read all of that here
            return
        key = self._cache_key
        self.__dict__["_cache_key"] = cache_key_of(self) if is_change or key is None else f"{key} {attribute_key(name, value)}"

    def from_statistics(self, s: RowStatistics) -> Tensor:
        """Return the loss of each row, elementwise in the statistics. This is what a loss writes.

        Args:
            s: The statistics that ``needs`` declares, for one label a row or for every label.

        Returns:
            The losses, shaped as the statistics.

        Raises:
            TypeError: If the loss is no function of row statistics.
        """
        raise TypeError(f"{type(self).__name__} is not a function of row statistics; call the loss on logits")

    def rows(self, logits: Tensor, target: Tensor) -> Tensor:
        """Return the loss of each row for its label, before weights and reduction.

        Args:
            logits: ``[N, K]``.
            target: The labels, ``[N]``.

        Returns:
            The losses, ``[N]``.

        Raises:
            TypeError: If the loss declares no ``needs`` and does not implement this.
        """
        if self.needs is None:
            raise TypeError(f"{type(self).__name__} declares no `needs` and does not implement `rows`")
        return self.from_statistics(row_statistics(logits, target, self.needs))

    def every_label(self, logits: Tensor) -> Tensor:
        """Return the loss of each row for each of the K labels.

        Args:
            logits: ``[N, K]``.

        Returns:
            The losses, ``[N, K]``.
        """
        if self.needs is None:
            labels = torch.arange(self.classes_of(logits), device=logits.device)
            return torch.stack([self.rows(logits, label.expand(len(logits))) for label in labels.unbind()], dim=1)
        return self.from_statistics(every_label_statistics(logits, self.needs))

    def classes_of(self, logits: Tensor) -> int:
        """Return the number of classes of what the loss is called on.

        Args:
            logits: ``[N, ...]``.

        Returns:
            The number of classes.
        """
        return logits.shape[1]

    def masked_classes(self, logits: Tensor) -> Tensor:
        """Return which classes are masked.

        Args:
            logits: ``[N, ...]``.

        Returns:
            True for a masked class, ``[N, K]``.
        """
        return logits == -torch.inf

    def constant(self, classes: int) -> float:
        """Return what the loss of an example contains whatever the prediction, AMSE's (a-1)^q/K; 0 for most losses.

        Subtract it from a logged mean: the curve is then that of the loss with ``offset=False``.

        Args:
            classes: The number of classes.

        Returns:
            The constant.
        """
        return 0.0

    def set_epoch(self, epoch: int) -> None:
        """Tell the loss which epoch begins; most losses do not change with it, and tell their parts.

        Args:
            epoch: The epoch, counted from 0.
        """
        for part in self.modules():
            if part is not self and isinstance(part, RobustLoss):
                part.set_epoch(epoch)

    def forward(self, logits: Tensor, target: Tensor, **unknown: Any) -> Tensor:
        """Compute the loss.

        Args:
            logits: ``[N, K]``, ``[K]`` or ``[N, K, d1, ...]``.
            target: Class indices, or class probabilities of the logits' shape.
            **unknown: Refused with an error that names it.

        Returns:
            A number, or with ``reduction="none"`` one loss for each label.
        """
        if unknown:
            raise_unknown(self, unknown)
        if is_compiling():
            cache_key = self._full_cache_key()
            if cache_key is not None and self._is_recordable(cache_key):
                return recorded_call(logits, target, self._buffers["weight"], cache_key)
            logits, target, classes, shape = as_rows(self, logits, target)
            return self.from_source(Logits(logits, classes), target, shape)
        logits, target, classes, shape = as_rows(self, logits, target)
        call = loss_call(self, logits, target)
        if call is None:
            return self.from_source(Logits(logits, classes), target, shape)
        result = fused_loss(self, call, logits, target)
        return result.reshape(shape) if self.reduction == "none" else result

    def _full_cache_key(self) -> str | None:
        """What stands for this loss with its parts; None: nothing does. A compiler reads this, and checks what it reads."""
        return self._cache_key

    def _is_recordable(self, cache_key: str) -> bool:
        return keep_for_compiler(self, cache_key)

    # As torch.compiler.assume_constant_result marks it, without importing the compiler, which calls it and does not read it.
    _is_recordable._dynamo_marked_constant = True  # type: ignore[attr-defined]  # functions have no declared attributes

    def _by_autograd(self, logits: Tensor, target: Tensor) -> Tensor:
        """What one step gives, each operation by itself and in the dtype of the statistics."""
        rows, total = self.weighted_rows(Logits(logits), target)
        return rows if self.reduction == "none" else self._total_of(rows, total)

    def _recompute(self, logits: Tensor, target: Tensor, given: LossCall) -> Tensor:
        """:meth:`_by_autograd` with the options of an earlier call, which may have been changed since."""
        loss = copy.copy(self)
        loss.__dict__ |= {"ignore_index": given.ignore_index, "reduction": given.reduction, "label_smoothing": 0.0}
        loss.__dict__["_buffers"] = {**self._buffers, "weight": given.weight}
        return loss._by_autograd(logits, target)

    def as_it_is(self) -> "RobustLoss":
        """Return what stays as this loss is now, whatever is set in it or in its parts later.

        Returns:
            A copy with the same tensors; a loss of the user's own is returned itself, because it may keep what it likes.
        """
        if not self._has_cache_key:
            return self
        loss = copy.copy(self)
        loss.__dict__ |= {"_buffers": {**self._buffers}, "_programs": None}
        return loss

    def from_source(self, source: Logits, target: Tensor, shape: Sequence[int]) -> Tensor:
        """Compute the loss from a source of row statistics.

        Args:
            source: N rows.
            target: Labels ``[N]`` or class probabilities ``[N, K]``.
            shape: The shape of the result with ``reduction="none"``.

        Returns:
            What a call returns.
        """
        rows, total = self.weighted_rows(source, target)
        return self.reduced(rows, total, source.dtype, shape)

    def weighted_rows(self, source: Logits, target: Tensor) -> tuple[Tensor, Tensor | None]:
        """Compute the weighted loss of each row, before the reduction.

        Args:
            source: N rows.
            target: Labels ``[N]`` or class probabilities ``[N, K]``.

        Returns:
            The losses ``[N]``, 0 where a row is ignored, and what a mean divides their sum by; None: N.
        """
        if target.is_floating_point():
            return self._expected_rows(source, target), None
        return self._labelled_rows(source, target)

    def reads_every_label(self, target: Tensor) -> bool:
        """Return whether the loss of a row is made of the losses for all K labels.

        Args:
            target: Labels or class probabilities.

        Returns:
            True for class probabilities and with label smoothing.
        """
        return target.is_floating_point() or self.label_smoothing > 0

    def reduced(self, rows: Tensor, total: Tensor | None, dtype: torch.dtype, shape: Sequence[int]) -> Tensor:
        """Reduce the losses of the rows.

        Args:
            rows: The weighted losses, ``[N]``.
            total: What a mean divides their sum by; None: N.
            dtype: The dtype of the logits.
            shape: The shape of the result with ``reduction="none"``.

        Returns:
            What a call returns.
        """
        # A copy, to be changed in place as F.cross_entropy's result may: rows may be a statistic, which the gradient needs.
        result = rows.clone().reshape(shape) if self.reduction == "none" else self._total_of(rows, total)
        return result if rows.dtype == dtype else result.to(result_dtype(dtype, rows.dtype, rows))

    def _total_of(self, rows: Tensor, total: Tensor | None) -> Tensor:
        if self.reduction == "sum":
            return rows.sum()
        return rows.mean() if total is None else rows.sum() / total

    def _labelled_rows(self, source: Logits, target: Tensor) -> tuple[Tensor, Tensor | None]:
        target = target.long()
        ignored = self._ignored(target)
        labels = target if ignored is None else target.masked_fill(ignored, 0)
        if self.needs is None:
            rows = rows_of_labels(lambda y: self.rows(source.logits, y), labels, source.classes)
        else:
            rows = self.from_statistics(source.statistics(labels, self.needs))
        total = None if ignored is None else (~ignored).sum()
        if self._buffers["weight"] is not None:
            # Clamped, because on a GPU a label out of range has made its row NaN and raised nothing.
            scale = self._class_weight(source.classes).to(rows.dtype)[labels.clamp(0, source.classes - 1)]
            rows, total = rows * scale, (scale if ignored is None else scale.masked_fill(ignored, 0.0)).sum()
        if self.label_smoothing > 0:
            every, masked = self._every_label_of(source)
            every = every.masked_fill(masked, 0.0)
            smooth = (every if self.weight is None else every * self._class_weight(source.classes).to(every.dtype)).sum(1)
            smooth = self.label_smoothing / source.classes * smooth
            # Of a masked label the loss may be infinite, and infinity times nothing NaN.
            rows = smooth if self.label_smoothing == 1 else (1 - self.label_smoothing) * rows + smooth
        return rows if ignored is None else rows.masked_fill(ignored, 0.0), total

    def _ignored(self, target: Tensor) -> Tensor | None:
        """Which labels are to be ignored; None: a look at the least and the largest has shown that none is."""
        if is_eager_cpu(target):
            if not target.numel():
                return None
            low, high = torch.aminmax(target)
            if not low.item() <= self.ignore_index <= high.item():
                return None
        return target == self.ignore_index

    def _expected_rows(self, source: Logits, target: Tensor) -> Tensor:
        """The expected loss of each row under its distribution over labels."""
        if self.ignore_index >= 0:
            raise ValueError("ignore_index does not apply to probability targets; leave it at its default")
        every, masked = self._every_label_of(source)
        target = target.to(every.dtype)
        if self.label_smoothing > 0:
            share = torch.full_like(every, self.label_smoothing / source.classes).masked_fill(masked, 0.0)
            target = target * (1 - self.label_smoothing) + share
        if self.weight is not None:
            target = target * self._class_weight(source.classes).to(every.dtype)
        # Of a masked class it may be infinite. Else it stays where the target is 0: it is the derivative by the target.
        return (every.masked_fill((target == 0) & ~every.isfinite(), 0.0) * target).sum(1)

    def _every_label_of(self, source: Logits) -> tuple[Tensor, Tensor]:
        """The loss for each label, and which of the labels are masked classes."""
        if self.needs is None:
            return self.every_label(source.logits), self.masked_classes(source.logits)
        s = source.every_label(self.needs)
        return self.from_statistics(s), s.nll == torch.inf

    def _class_weight(self, classes: int) -> Tensor:
        if self.weight is None or len(self.weight) != classes:
            given = None if self.weight is None else len(self.weight)
            raise ValueError(f"weight must have one entry per class: {classes} classes, got {given} entries")
        return self.weight

    def __add__(self, other: "RobustLoss") -> "Sum":
        if not isinstance(other, RobustLoss):
            return NotImplemented
        return Sum([*terms_of(self), *terms_of(other)])

    def __mul__(self, coefficient: float) -> "Sum":
        if isinstance(coefficient, bool) or not isinstance(coefficient, int | float):
            return NotImplemented
        return Sum([(coefficient * c, loss) for c, loss in terms_of(self)])

    __rmul__ = __mul__

    def contract(self) -> Contract:
        """Return the shared options as given to the constructor."""
        return cast(Contract, {name: getattr(self, name) for name in DEFAULTS})

    def __repr__(self) -> str:
        given = {name: getattr(self, name) for name in parameters_of(type(self))}
        given |= {name: value for name, value in changed_options(self).items() if name != "weight"}
        shown = [f"{name}={value!r}" for name, value in given.items()]
        if self.weight is not None:
            shown.append(f"weight={[round(w, 4) for w in self.weight.tolist()]}" if len(self.weight) <= 10 else "weight=...")
        return f"{type(self).__name__}({', '.join(shown)})"


def parameters_of(loss: type[RobustLoss]) -> dict[str, Any]:
    """The loss's own hyper-parameters with their defaults (``inspect.Parameter.empty`` where there is none).

    >>> from noiseproof import GCE
    >>> parameters_of(GCE)
    {'q': 0.7}
    """
    return {p.name: p.default for p in arguments_of(loss.__init__) if p.kind is not p.VAR_KEYWORD}


def changed_options(loss: RobustLoss) -> Mapping[str, Any]:
    """The shared options that are not at their defaults."""
    return {name: value for name, value in loss.contract().items() if value is not DEFAULTS[name] and value != DEFAULTS[name]}


class Sum(RobustLoss):
    """A weighted sum of losses, which still makes one pass over the logits.

    Written ``1.0 * NCE() + 1.0 * AMSE(a=30.0)``. The parts must agree on ``weight``, ``ignore_index``, ``reduction`` and
    ``label_smoothing``, and the sum has theirs.

    Args:
        terms: Pairs of a coefficient and a loss.
        **contract: The options of :class:`RobustLoss`; the parts must then leave theirs at the defaults.

    Raises:
        ValueError: If there is no loss, or the parts differ in their options.
        TypeError: If a loss is no function of row statistics.

    Example:
        >>> from noiseproof import CE, MAE
        >>> loss = CE() + 0.5 * MAE()
        >>> round(loss(torch.zeros(1, 4), torch.tensor([2])).item(), 4)  # log 4 + 3/4
        2.1363
    """

    def __init__(self, terms: list[tuple[float, RobustLoss]], **contract: Unpack[Contract]) -> None:
        losses = [inner_loss(loss) if contract else loss for _, loss in terms]
        if not losses:
            raise ValueError("a sum needs at least one loss")
        for loss in losses:
            if loss.needs is None:
                why = "is no function of row statistics and cannot be part of a sum"
                raise TypeError(f"{type(loss).__name__} {why}; add its value to the other loss's instead")
        super().__init__(**(contract or _shared_contract(losses)))
        self.coefficients = tuple([check_range("a coefficient of a sum", c) for c, _ in terms])
        self.losses = nn.ModuleList(losses)
        self.needs = tuple([statistic for loss in losses for statistic in loss.needs or ()])

    @property
    def terms(self) -> list[tuple[float, RobustLoss]]:
        """The coefficients with their losses."""
        return list(zip(self.coefficients, self.losses, strict=True))  # type: ignore[arg-type]  # a ModuleList of losses gives modules

    def from_statistics(self, s: RowStatistics) -> Tensor:
        total, *rest = [_times(c, loss.from_statistics(s)) for c, loss in self.terms]
        for value in rest:
            total = total + value
        return total

    def as_it_is(self) -> "Sum":
        loss = copy.copy(self)
        parts = nn.ModuleList([part.as_it_is() for _, part in self.terms])
        loss.__dict__ |= {"coefficients": tuple(self.coefficients), "_buffers": {**self._buffers}, "_programs": None}
        loss.__dict__["_modules"] = {**self._modules, "losses": parts}
        return loss

    def constant(self, classes: int) -> float:
        return sum(c * loss.constant(classes) for c, loss in self.terms)

    def _full_cache_key(self) -> str | None:
        cache_key = self._cache_key
        if cache_key is None:
            return None
        for part in self.losses._modules.values():
            inner = part._full_cache_key()  # type: ignore[operator]  # what a sum is made of are losses
            if inner is None:
                return None
            cache_key += f" ({inner})"
        return cache_key

    def __repr__(self) -> str:
        if type(self) is not Sum:
            return super().__repr__()
        return " + ".join(f"{c!r} * {loss!r}" for c, loss in self.terms)


def pair_terms(alpha: float, first: RobustLoss, beta: float, second: RobustLoss) -> list[tuple[float, RobustLoss]]:
    """The terms of ``alpha * first + beta * second``, the form of every published pair."""
    return [(check_range("alpha", alpha, at_least=0), first), (check_range("beta", beta, at_least=0), second)]


def inner_loss(loss: RobustLoss) -> RobustLoss:
    """``loss`` as the part of another one that owns weight, ignore_index, reduction and label_smoothing."""
    if not isinstance(loss, RobustLoss):
        raise TypeError(f"a part of a loss must be a loss of this package, got {type(loss).__name__}")
    if changed := changed_options(loss):
        raise ValueError(f"give {', '.join(changed)} to the outer loss, not to its part")
    return loss


def _times(coefficient: float, value: Tensor) -> Tensor:
    if coefficient == 1:
        return value
    return coefficient * (value if coefficient else value.clamp_max(torch.finfo(value.dtype).max))  # 0 times infinity is NaN


def terms_of(loss: RobustLoss) -> list[tuple[float, RobustLoss]]:
    """What a loss is to a sum: the terms of a sum that was written as one, and one term for any other."""
    return loss.terms if type(loss) is Sum else [(1.0, loss)]


def _shared_contract(losses: list[RobustLoss]) -> Contract:
    first = losses[0].contract()
    for loss in losses[1:]:
        other = loss.contract()
        ours, theirs = first["weight"], other["weight"]
        same_weight = ours is theirs or (ours is not None and theirs is not None and torch.equal(ours, theirs))
        if not same_weight or {**first, "weight": None} != {**other, "weight": None}:
            raise ValueError("the parts of a sum must share weight, ignore_index, reduction and label_smoothing")
    return first
