"""Penalties to add to a loss: L1, which the paper trains JAL and ANL with, and early-learning regularisation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from noiseproof.checks import check_integer, check_range

__all__ = ["ELR", "L1"]

LEAST_P = 1e-4
"""Early-learning regularisation clips probabilities to [this, 1 - this], as its authors' code does"""
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
        TypeError: What is given is no model and no parameters.
        ValueError: There is no parameter, or the strength is negative.

    A call gives a scalar: float64 for float64 parameters, float32 for others. Its gradient is ``strength * sign(w)`` to the bit
    in the parameters' dtype, 0 at 0, so it is clipped, scaled, accumulated and averaged like the rest of the loss. Parameters
    that do not require gradients at the call are left out, shared ones count once. Under gradient accumulation add it once per
    step. Nothing is read on the host: a step can be compiled and captured in a CUDA graph. Under ``torch.func`` give it the
    tensors of the transform, all of which count: ``L1(weights, s)()`` inside the function. Sharded parameters (FSDP) are not
    supported, and under DDP with ``find_unused_parameters`` give the parameters that every step uses.
    """

    def __init__(
        self,
        model: nn.Module | Mapping[str, Tensor] | Iterable[Tensor] | Iterable[tuple[str, Tensor]],
        strength: float,
    ) -> None:
        self.weights = _weights(model)
        self.strength = check_range("strength", strength, at_least=0)

    def __call__(self) -> Tensor:
        # Under torch.func's vmap no tensor says that it requires gradients.
        every = not torch.compiler.is_compiling() and torch._C._are_functorch_transforms_active()
        values = [_sum(weight) for weight in self.weights if every or weight.requires_grad]
        if not values:
            first = self.weights[0]
            return first.new_zeros((), dtype=torch.float64 if first.dtype == torch.float64 else torch.float32)
        total = values[0]
        for value in values[1:]:
            total = total + value.to(total.device)
        return self.strength * total

    @torch.no_grad()
    def add_gradient(self) -> None:
        """Add ``strength * sign(w)`` to the gradients in place, not the penalty to the loss: the same step for less time.

        A few kernels for all weights. Call it once per step, after ``backward`` and a scaler's ``unscale_``, before a clip.
        """
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

    def __repr__(self) -> str:
        return f"L1({len(self.weights)} parameters, strength={self.strength:g})"


class ELR(nn.Module):
    r"""Early-learning regularisation: :math:`s \log(1 - \langle p, t \rangle)`, the mean over a batch, to be added to a loss.

    The target t of an example is the moving average of its predictions, :math:`t \leftarrow m t + (1 - m) p`. A network learns
    right labels first; the penalty holds it to what it predicted then while it would memorise wrong ones. Each example needs
    its own index, the same in every epoch. The targets are a buffer: ``state_dict`` contains them, and ``to`` moves them.

    Use it with cross entropy, and under class imbalance with class weights: without them training collapses onto the majority
    class. docs/benchmarks/options.md contains the measurements.

    Args:
        examples: How many training examples there are.
        classes: How many classes there are.
        strength: The factor s.
        momentum: The share m of a target that a new prediction leaves, in [0, 1).

    Raises:
        ValueError: A value is outside its range.

    >>> penalty = ELR(examples=50, classes=2, strength=3.0)
    >>> logits, labels, indices = torch.zeros(8, 2), torch.zeros(8, dtype=torch.long), torch.arange(8)
    >>> round((nn.functional.cross_entropy(logits, labels) + penalty(logits, indices)).item(), 3)  # log 2 + 3 log(1 - 0.3 / 2)
    0.206

    Reference: Liu et al., NeurIPS 2020.
    """

    targets: Tensor

    def __init__(self, examples: int, classes: int, *, strength: float = 7.0, momentum: float = 0.7) -> None:
        super().__init__()
        shape = check_integer("examples", examples, at_least=1), check_integer("classes", classes, at_least=2)
        self.strength = check_range("strength", strength, at_least=0)
        self.momentum = check_range("momentum", momentum, at_least=0, below=1)
        self.register_buffer("targets", torch.zeros(shape))

    def forward(self, logits: Tensor, indices: Tensor) -> Tensor:
        """Update the targets of a batch and compute its penalty.

        Args:
            logits: ``[N, K]``.
            indices: Which examples they are of, ``[N]``; each at most once.

        Returns:
            The mean of the penalty, a number of at most 0.
        """
        p = logits.to(self.targets.dtype).softmax(1).clamp(LEAST_P, 1 - LEAST_P)
        now = p.detach() / p.detach().sum(1, keepdim=True)
        target = torch.lerp(now, self.targets[indices], self.momentum)
        self.targets[indices] = target
        return self.strength * torch.log1p(-(p * target).sum(1)).mean()

    def extra_repr(self) -> str:
        return f"examples={len(self.targets)}, strength={self.strength:g}, momentum={self.momentum:g}"


def _sum(weight: Tensor) -> Tensor:
    """Of absolute values, whose derivative is the sign. A dtype is named only where it is another: it slows small sums down."""
    half = weight.dtype in (torch.float16, torch.bfloat16)
    return weight.abs().sum(dtype=torch.float32) if half else weight.abs().sum()


def _weights(model: Any) -> list[Tensor]:
    """The parameters, a shared one once."""
    if isinstance(model, nn.Module):
        model = model.parameters()
    if isinstance(model, str | Tensor) or not isinstance(model, Iterable):
        given = model if isinstance(model, str | float) else type(model).__name__
        way = ": put it in a list" if isinstance(model, Tensor) else ""
        raise TypeError(f"{EXPECTED_MODEL}, got {given!r}{way}")
    items = list(model.values() if isinstance(model, Mapping) else model)
    weights = [item[1] if isinstance(item, tuple) and len(item) == 2 else item for item in items]
    if not weights:
        raise ValueError(f"{EXPECTED_MODEL}, got none; a generator is empty once it has been used")
    for weight in weights:
        if not isinstance(weight, Tensor):
            raise TypeError(f"{EXPECTED_MODEL}, got {type(weight).__name__} among them")
    return list({id(weight): weight for weight in weights}.values())
