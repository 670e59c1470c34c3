"""The step of a device that has kernels for it, as two operations that a compiler leaves as they are.

They are given the program as text, because a compiler keeps its graphs on disk: another process must find in them all it needs.
They have no gradient of their own, which an autograd function gives, and so there is little between call and kernel.
"""

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from noiseproof.core import backend_of_device, decode, encode
from noiseproof.program.code import Program, decoded, encoded
from noiseproof.program.rows import Formula, Reduction, Rows

__all__ = ["loss_by_kernels"]

# A graph on disk has these names, which change when the results' shapes do.
FORWARD, BACKWARD = "noiseproof::step_forward_1", "noiseproof::step_backward_1"


@lru_cache(maxsize=256)
def _text_of(program: Program, request: str) -> str:
    """All that a formula is made of, except for the dtype."""
    return f"{request}\n{encoded(program)}"


@lru_cache(maxsize=256)
def _formula(text: str, dtype: torch.dtype) -> Formula:
    request, program = text.split("\n")
    return Formula(decoded(program), request, dtype)


def _step_forward(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    text: str,
    ignore_index: int,
    reduction: Reduction,
    dtype: torch.dtype,
    want_slopes: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The loss in ``dtype``, primitives, what the first pass has saved, slopes, and what a mean is divided by."""
    backend = backend_of_device(logits.device.type)
    formula = _formula(text, torch.float32)
    if backend.programs is None:
        raise RuntimeError(f"compiled for a backend with kernels, and {backend.name} has none: call torch.compiler.reset()")
    primitives, saved = backend.forward(logits, target, formula.asked, formula.dtype)
    given = (formula, primitives, target, weight, ignore_index, reduction, dtype, want_slopes, logits.shape[1])
    value, slopes, numbers = backend.programs.run(*given)
    return value, primitives, saved, slopes if want_slopes else slopes.new_empty(0), numbers[:1]


def _step_backward(
    grad: Tensor,
    logits: Tensor,
    target: Tensor,
    primitives: Tensor,
    saved: Tensor,
    slopes: Tensor,
    numbers: Tensor,
    text: str,
    reduction: Reduction,
) -> Tensor:
    """The gradient of the logits for that of the loss."""
    backend = backend_of_device(logits.device.type)
    if backend.programs is None:
        raise RuntimeError(f"compiled for a backend with kernels, and {backend.name} has none: call torch.compiler.reset()")
    factors = backend.programs.scaled(slopes, grad, numbers, reduction)
    return backend.backward(factors, logits, target, primitives, saved, decode(text.partition("\n")[0]))


torch.library.define(
    FORWARD,
    "(Tensor logits, Tensor target, Tensor? weight, str text, int ignore_index, str reduction, ScalarType dtype, "
    "bool want_slopes) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
)
torch.library.define(
    BACKWARD,
    "(Tensor grad, Tensor logits, Tensor target, Tensor primitives, Tensor saved, Tensor slopes, Tensor numbers, str text, "
    "str reduction) -> Tensor",
)
torch.library.impl(FORWARD, "default", _step_forward)
torch.library.impl(BACKWARD, "default", _step_backward)
step_forward, step_backward = torch.ops.noiseproof.step_forward_1.default, torch.ops.noiseproof.step_backward_1.default


def _fake_forward(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    text: str,
    ignore_index: int,
    reduction: Reduction,
    dtype: torch.dtype,
    want_slopes: bool,
) -> tuple[Tensor, ...]:
    rows, asked = logits.shape[0], len(decode(text.partition("\n")[0]))
    primitives = logits.new_empty((2 + asked, rows), dtype=torch.float32)
    return (
        logits.new_empty((rows,) if reduction == "none" else (), dtype=dtype),
        primitives,
        logits.new_empty((5 + asked, rows), dtype=torch.float32),
        torch.empty_like(primitives) if want_slopes else primitives.new_empty(0),
        primitives.new_empty(1),
    )


def _fake_backward(grad: Tensor, logits: Tensor, *_: object) -> Tensor:
    return torch.empty_like(logits, memory_format=torch.contiguous_format)


torch.library.register_fake(FORWARD, _fake_forward)
torch.library.register_fake(BACKWARD, _fake_backward)


def loss_by_kernels(logits: Tensor, target: Tensor, rows: Rows) -> Tensor:
    """The loss of ``logits [N, K]`` for ``target [N]``: a number, or unreduced ``[N]``."""
    result: Tensor = _Step.apply(logits, target, rows.weight, rows)  # type: ignore[no-untyped-call]  # as torch has it
    return result


class _Step(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, weight: Tensor | None, rows: Rows) -> Tensor:
        formula = rows.formula
        ctx.text, ctx.reduction = _text_of(formula.program, encode(formula.asked)), rows.reduction
        given = (ctx.text, rows.ignore_index, rows.reduction, rows.dtype, ctx.needs_input_grad[0])
        value: Tensor
        value, *kept = step_forward(logits, target, weight, *given)
        ctx.save_for_backward(logits, target, *kept)
        return value

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        return step_backward(grads[0], *ctx.saved_tensors, ctx.text, ctx.reduction), None, None, None
