"""L1 regularisation as a penalty to add to the loss, which the paper trains JAL and ANL with and torch does not have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from noiseproof.checks import check_range

__all__ = ["L1"]

EXPECTED_MODEL = "L1(model, strength) takes a module, or its parameters or named_parameters()"


class L1:
    r"""The penalty :math:`s \sum_i |w_i|` on a model's weights, to be added to the loss.

    >>> model = nn.Linear(2, 1, bias=False)
    >>> _ = model.weight.data.copy_(torch.tensor([[3.0, -1.0]]))
    >>> penalty = L1(model, 0.5)
    >>> penalty().item()  # 0.5 * (3 + 1)
    2.0
    >>> (model(torch.ones(4, 2)).mean() + penalty()).backward()
    >>> model.weight.grad  # 1 + 0.5 sign(w)
    tensor([[1.5000, 0.5000]])

    Args:
        model: a module, its ``parameters()``, or (name, parameter) pairs such as ``named_parameters()``. They are read once, as
            an optimiser does: build it when the model is complete. Lazy parameters need their shape by the first call.
            A list of parameters leaves out the others; the paper leaves out none.
        strength: the factor s. ``noiseproof losses jal-ce`` prints what the paper trains with: 5e-5 on CIFAR-10.

    Raises:
        TypeError: What is given is no model and no parameters, or a parameter is complex.
        ValueError: There is no parameter, or the strength is negative.

    A call gives a scalar: float64 for float64 parameters, float32 for others. Its gradient is ``strength * sign(w)`` to the bit
    in the parameters' dtype, 0 at 0, so it is clipped, scaled, accumulated and averaged like the rest of the loss. Parameters
    that do not require gradients at the call are left out, shared ones count once. Under gradient accumulation add it once per
    step. Nothing is read on the host: a step can be compiled and captured in a CUDA graph. Under ``torch.func`` give it the
    tensors of the transform, all of which count: ``L1(weights, s)()`` inside the function. Sharded parameters (FSDP) are not
    supported, and under DDP with ``find_unused_parameters`` leave out those that a step does not use.
    """

    def __init__(
        self,
        model: nn.Module | Mapping[str, Tensor] | Iterable[Tensor] | Iterable[tuple[str, Tensor]],
        strength: float,
    ) -> None:
        self.weights = list({id(weight): weight for weight in _weights(model)}.values())
        self.strength = check_range("strength", strength, at_least=0)
        for weight in self.weights:
            if weight.is_complex():
                raise TypeError(f"L1 is of real parameters, got {weight.dtype}; leave it out of a list of parameters")
        self._lazy = [weight for weight in self.weights if is_lazy(weight)]

    def __call__(self) -> Tensor:
        self._check_shapes()
        if torch.compiler.is_compiling():
            return self._plain([weight for weight in self.weights if weight.requires_grad])
        if torch._C._are_functorch_transforms_active():
            return self._plain(self.weights)  # under vmap no tensor says that it requires gradients
        groups: dict[tuple[torch.device, torch.dtype], list[Tensor]] = {}
        for weight in self.weights:
            if weight.requires_grad:
                groups.setdefault((weight.device, weight.dtype), []).append(weight)
        values = [_penalty(self.strength, *group) for group in groups.values()]
        return _total(values) if values else self._zero()

    @torch.no_grad()
    def add_gradient(self) -> None:
        """Add ``strength * sign(w)`` to the gradients in place, not the penalty to the loss: the same step for less time.

        Call it once per step, after ``backward`` and a scaler's ``unscale_``, before a clip.
        """
        self._check_shapes()
        weights = [weight for weight in self.weights if weight.requires_grad]
        gradients = []
        for weight in weights:
            if weight.grad is None:
                weight.grad = torch.zeros_like(weight)
            elif weight.grad.is_sparse:  # as autograd has it, too, of a sparse and a dense one
                weight.grad = weight.grad.to_dense()
            gradients.append(weight.grad)
        if weights:
            torch._foreach_add_(gradients, torch._foreach_sign(weights), alpha=self.strength)

    def _check_shapes(self) -> None:
        if any(is_lazy(weight) for weight in self._lazy):
            raise ValueError("a parameter of a lazy module has no shape yet: run a batch through the model before the penalty")

    def _plain(self, weights: list[Tensor]) -> Tensor:
        """The same in operations that compilers and torch.func transform; abs has the derivative sign."""
        return self.strength * _total([_sum(weight) for weight in weights]) if weights else self._zero()

    def _zero(self) -> Tensor:
        return self.weights[0].new_zeros((), dtype=_value_dtype(self.weights[0]))

    def __repr__(self) -> str:
        return f"L1({len(self.weights)} parameters, strength={self.strength:g})"


class _Penalty(torch.autograd.Function):
    """The penalty on weights of one device and dtype, with a gradient that is exactly the coefficient or its negative, or 0.

    ``_foreach`` operations are one kernel for all weights on CUDA, where a launch for each of hundreds would cost more than the
    arithmetic; on the CPU one call instead of many.
    """

    @staticmethod
    def forward(ctx: Any, strength: float, *weights: Tensor) -> Tensor:
        ctx.save_for_backward(*weights)
        ctx.strength = strength
        if weights[0].device.type == "cpu":  # where a norm takes several times as long as a sum
            total = _sum(weights[0])
            for weight in weights[1:]:
                total += _sum(weight)
        else:
            total = torch.stack(torch._foreach_norm(weights, 1, dtype=_value_dtype(weights[0]))).sum()
        return total.mul_(strength)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        weights = ctx.saved_tensors
        gradients = torch._foreach_sign(weights)
        # The coefficient is rounded to the weights' dtype before it is multiplied by -1, 0 or 1, which is exact.
        torch._foreach_mul_(gradients, (gradient * ctx.strength).to(weights[0].dtype))
        return (None, *gradients)


_penalty: Callable[..., Tensor] = _Penalty.apply


def _value_dtype(weight: Tensor) -> torch.dtype:
    return torch.float64 if weight.dtype == torch.float64 else torch.float32


def _total(values: list[Tensor]) -> Tensor:
    """The sum of scalars, on the device of the first."""
    total = values[0]
    for value in values[1:]:
        total = total + value.to(total.device)
    return total


def _sum(weight: Tensor) -> Tensor:
    """Of absolute values. A dtype is given only where it is another one, since naming it slows small sums down."""
    half = weight.dtype in (torch.float16, torch.bfloat16)
    return weight.abs().sum(dtype=torch.float32) if half else weight.abs().sum()


def _weights(model: Any) -> list[Tensor]:
    """The parameters, a shared one as often as it is given."""
    if isinstance(model, nn.Module):
        model = model.parameters()
    if isinstance(model, str | Tensor) or not isinstance(model, Iterable):
        given = model if isinstance(model, str | float) else type(model).__name__
        way = ": put it in a list" if isinstance(model, Tensor) else ""
        raise TypeError(f"{EXPECTED_MODEL}, got {given!r}{way}")
    items: list[Any] = list(model.values() if isinstance(model, Mapping) else model)
    if not items:
        raise ValueError(f"{EXPECTED_MODEL}, got none; a generator is empty once it has been used")
    weights = [item[1] if isinstance(item, tuple) and len(item) == 2 else item for item in items]
    for weight in weights:
        if not isinstance(weight, Tensor):
            raise TypeError(f"{EXPECTED_MODEL}, got {type(weight).__name__} among them")
    return weights
