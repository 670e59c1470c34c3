"""The step of a device that has kernels for it, as two operations that a compiler leaves as they are.

They are given the program as text, because a compiler keeps its graphs on disk: another process must find in them all it needs.
They have no gradient of their own, which an autograd function gives, and so there is little between call and kernel.
"""

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from noiseproof.core.backends import backend_of_device
from noiseproof.core.row_sums import decode, encode
from noiseproof.program.code import Formula, LossCall, Program, Reduction, decoded, encoded

# A graph on disk has these names, which change when the results' shapes do.
FORWARD, BACKWARD = "noiseproof::step_forward_1", "noiseproof::step_backward_1"


@lru_cache(maxsize=256)
def _formula_key(program: Program, needs_key: str) -> str:
    """All that a formula is made of, except for the dtype."""
    return f"{needs_key}\n{encoded(program)}"


@lru_cache(maxsize=256)
def _formula(formula_key: str, dtype: torch.dtype) -> Formula:
    needs_key, program = formula_key.split("\n")
    return Formula(decoded(program), needs_key, dtype)


def _step_forward(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    formula_key: str,
    ignore_index: int,
    reduction: Reduction,
    dtype: torch.dtype,
    want_grads: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The loss in ``dtype``, statistics, what the first pass has saved, gradients, and what a mean is divided by."""
    backend = backend_of_device(logits.device.type)
    formula = _formula(formula_key, torch.float32)
    if backend.programs is None:
        raise RuntimeError(f"compiled for a backend with kernels, and {backend.name} has none: call torch.compiler.reset()")
    statistics, saved = backend.forward(logits, target, formula.needs, formula.dtype)
    given = (formula, statistics, target, weight, ignore_index, reduction, dtype, want_grads, logits.shape[1])
    value, row_grads, numbers = backend.programs.run(*given)
    return value, statistics, saved, row_grads if want_grads else row_grads.new_empty(0), numbers[:1]


def _step_backward(
    grad: Tensor,
    logits: Tensor,
    target: Tensor,
    statistics: Tensor,
    saved: Tensor,
    row_grads: Tensor,
    numbers: Tensor,
    formula_key: str,
    reduction: Reduction,
) -> Tensor:
    """The gradient of the logits for that of the loss."""
    backend = backend_of_device(logits.device.type)
    if backend.programs is None:
        raise RuntimeError(f"compiled for a backend with kernels, and {backend.name} has none: call torch.compiler.reset()")
    factors = backend.programs.scaled(row_grads, grad, numbers, reduction)
    return backend.backward(factors, logits, target, statistics, saved, decode(formula_key.partition("\n")[0]))


torch.library.define(
    FORWARD,
    "(Tensor logits, Tensor target, Tensor? weight, str formula_key, int ignore_index, str reduction, ScalarType dtype, "
    "bool want_grads) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
)
torch.library.define(
    BACKWARD,
    "(Tensor grad, Tensor logits, Tensor target, Tensor statistics, Tensor saved, Tensor row_grads, Tensor numbers, "
    "str formula_key, str reduction) -> Tensor",
)
torch.library.impl(FORWARD, "default", _step_forward)
torch.library.impl(BACKWARD, "default", _step_backward)
step_forward, step_backward = torch.ops.noiseproof.step_forward_1.default, torch.ops.noiseproof.step_backward_1.default


def _fake_forward(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    formula_key: str,
    ignore_index: int,
    reduction: Reduction,
    dtype: torch.dtype,
    want_grads: bool,
) -> tuple[Tensor, ...]:
    rows, needs = logits.shape[0], len(decode(formula_key.partition("\n")[0]))
    statistics = logits.new_empty((2 + needs, rows), dtype=torch.float32)
    return (
        logits.new_empty((rows,) if reduction == "none" else (), dtype=dtype),
        statistics,
        logits.new_empty((5 + needs, rows), dtype=torch.float32),
        torch.empty_like(statistics) if want_grads else statistics.new_empty(0),
        statistics.new_empty(1),
    )


def _fake_backward(grad: Tensor, logits: Tensor, *_: object) -> Tensor:
    return torch.empty_like(logits, memory_format=torch.contiguous_format)


torch.library.register_fake(FORWARD, _fake_forward)
torch.library.register_fake(BACKWARD, _fake_backward)


def loss_by_kernels(logits: Tensor, target: Tensor, call: LossCall) -> Tensor:
    """The loss of ``logits [N, K]`` for ``target [N]``: a number, or unreduced ``[N]``."""
    result: Tensor = _KernelStep.apply(logits, target, call.weight, call)  # type: ignore[no-untyped-call]  # as torch has it
    return result


class _KernelStep(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, weight: Tensor | None, call: LossCall) -> Tensor:
        formula = call.formula
        ctx.formula_key, ctx.reduction = _formula_key(formula.program, encode(formula.needs)), call.reduction
        given = (ctx.formula_key, call.ignore_index, call.reduction, call.dtype, ctx.needs_input_grad[0])
        value: Tensor
        value, *kept = step_forward(logits, target, weight, *given)
        ctx.save_for_backward(logits, target, *kept)
        return value

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        return step_backward(grads[0], *ctx.saved_tensors, ctx.formula_key, ctx.reduction), None, None, None
