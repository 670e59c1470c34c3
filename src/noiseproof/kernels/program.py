"""A program as a kernel: the values of all rows, their sum or mean, and the gradients, in one launch.

The text of a kernel is made from a closed table of expressions, the numbers of registers and floats, and from nothing else. A
program with an operation that the table lacks has no kernel.

Up to ``MAX_ROWS_ALONE`` rows one program of the GPU goes over all of them, which saves the host a launch. More are shared out,
and so are fewer rows of ``MIN_SHARED_LOGITS`` logits, where the GPU is what takes time: each program leaves its sums, and a
second kernel adds them up, in one order, whatever the GPU does first.
"""

from __future__ import annotations

import hashlib
import linecache
import math
from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from noiseproof.kernels.launch import launch
from noiseproof.kernels.reductions import add_up, exp, finish, logaddexp, scale_of, scaled, softplus
from noiseproof.kernels.terms import expm1, log1p
from noiseproof.program import Formula, Node, Program, Reduction, Value

BLOCK = 512
MAX_ROWS_ALONE = 8192
MIN_SHARED_LOGITS = 2**26
MAX_PROGRAMS = 256
"""Programs among which rows are shared out"""


EXPRESSIONS = {
    **{"add": "{0} + {1}", "sub": "{0} - {1}", "mul": "{0} * {1}", "div": "{0} / {1}", "neg": "-{0}"},
    **{"exp": "exp({0})", "expm1": "expm1({0})", "log": "tl.log({0})", "log1p": "log1p({0})"},
    **{"lt": "{0} < {1}", "le": "{0} <= {1}", "gt": "{0} > {1}", "ge": "{0} >= {1}", "eq": "{0} == {1}"},
    **{"both": "{0} & {1}", "where": "tl.where({0}, {1}, {2})"},
    # Not Triton's own, which drop a NaN: it says that a label is out of range.
    "minimum": "tl.where(({0} > {1}) | ({1} != {1}), {1}, {0})",
    "maximum": "tl.where(({0} < {1}) | ({1} != {1}), {1}, {0})",
    **{"softplus": "softplus({0})", "sigmoid": "1.0 / (1.0 + exp(-{0}))", "logaddexp": "logaddexp({0}, {1})"},
}
"""By the name of an operation; its inputs are names of registers or numbers in brackets."""

HEAD = """def program(
    statistics, target, weight, row_grads, value, numbers, rows, chunk, classes, target_stride, ignore_index,
    BLOCK: tl.constexpr, WEIGHTED: tl.constexpr, MEAN: tl.constexpr, EACH: tl.constexpr, ALONE: tl.constexpr,
    GRADS: tl.constexpr,
):
    total = tl.zeros([BLOCK], tl.float32)
    weights = tl.zeros([BLOCK], tl.float32)
    stride = rows.to(tl.int64)
    for start in range(0, rows, chunk):
        row = start + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        real = row < rows
        label, counted, scale = scale_of(target, weight, row, real, classes, target_stride, ignore_index, WEIGHTED)
"""
ADDED = """        result = tl.where(counted, {value} * scale, 0.0)
        if EACH:
            tl.store(value + row, result.to(value.dtype.element_ty), mask=real)
        total += result
        weights += scale
"""
"""What every such kernel does with the values of its rows"""
TAIL = """    if not EACH:
        finish(value, numbers, tl.sum(total, 0), tl.sum(weights, 0), MEAN, ALONE, True)
"""


def name_of(value: Value) -> str:
    if isinstance(value, int):
        return f"r{value}"
    if not (value == 0 or 2.0**-126 <= abs(value) < 2.0**128) or math.isnan(value):
        raise KeyError(value)  # Triton would compute in float64
    return f"({value!r})"


def _expression(node: Node) -> str:
    if node.name != "pow":
        return EXPRESSIONS[node.name].format(*[name_of(value) for value in node.inputs])
    base, exponent = name_of(node.inputs[0]), node.inputs[1]
    if not isinstance(exponent, float):
        raise KeyError(node.name)
    if exponent in (1, 2, 3, 4, 5):
        return " * ".join([base] * int(exponent))
    return f"tl.sqrt({base})" if exponent == 0.5 else f"tl.exp2({exponent!r} * tl.log2({base}))"


def statements(program: Program) -> list[str]:
    """A line for each operation, from registers to registers; KeyError if one has no expression."""
    return [f"r{i} = {_expression(node)}" for i, node in enumerate(program.nodes, start=program.arity)]


def text_of(program: Program) -> str | None:
    """The text of the kernel; None if it has an operation without an expression."""
    count = program.arity
    try:
        lines = [f"r{i} = tl.load(statistics + {i} * stride + row, mask=counted, other=0.5)" for i in range(count)]
        lines += statements(program)
        lines += ["if GRADS:"]
        for i, slope in enumerate(program.row_grads):
            store = f"tl.store(row_grads + {i} * stride + row, tl.where(counted, {name_of(slope)} * scale, 0.0), mask=real)"
            lines.append(f"    {store}")
        # An ignored label may have made a row NaN, and no multiple of that is 0.
        lines += [
            f"    tl.store(statistics + {i} * stride + row, 0.0, mask=real & (label == ignore_index))" for i in range(count)
        ]
        return HEAD + "".join(f"        {line}\n" for line in lines) + ADDED.format(value=name_of(program.value)) + TAIL
    except KeyError:
        return None


def kernel_of(text: str, name: str, sizes: Sequence[str], functions: dict[str, Any]) -> Any:
    """The kernel of this name and text, which Triton reads back from where Python keeps the lines of sources."""
    place = f"<noiseproof {name} {hashlib.sha256(text.encode()).hexdigest()[:16]}>"
    linecache.cache[place] = (len(text), None, text.splitlines(keepends=True), place)
    space: dict[str, Any] = {"tl": tl, "exp": exp, "expm1": expm1, "log1p": log1p, "softplus": softplus}
    space |= {"logaddexp": logaddexp, "finish": finish, "scale_of": scale_of, "__name__": __name__, **functions}
    exec(compile(text, place, "exec"), space)
    return triton.jit(do_not_specialize=sizes)(space[name])


SIZES = ("rows", "chunk", "classes", "target_stride", "ignore_index")

FUNCTION = "def {name}({arguments}):\n{lines}    return {results}\n"


def grads_function(formula: Formula, places: Sequence[int]) -> Any:
    """What a kernel calls with the statistics of one row, which are in these places, 0 for one that is not there, after nll and
    log1m: it gets back the slope by each."""
    key = f"triton, row_grads, places {places}"
    if key not in formula.kernels:
        program = formula.program
        there = [place if i < 2 or place else None for i, place in enumerate(places)]
        arguments = ", ".join(f"absent{i}" if place is None else f"r{place}" for i, place in enumerate(there))
        lines = "".join(f"    {line}\n" for line in statements(program))
        results = ", ".join("0.0" if place is None else name_of(program.row_grads[place]) for place in there)
        name = "grads_" + hashlib.sha256(f"{arguments} {lines} {results}".encode()).hexdigest()[:16]
        text = FUNCTION.format(name=name, arguments=arguments, lines=lines, results=results)
        if text not in _kernels:
            _kernels[text] = kernel_of(text, name, (), {})
        formula.kernels[key] = _kernels[text]
    return formula.kernels[key]


_kernels: dict[str, Any] = {}


def _kernel(formula: Formula) -> Any:
    """The kernel of a formula, or None; looked for once."""
    if "triton" not in formula.kernels:
        text = text_of(formula.program)
        if text is not None and text not in _kernels:
            _kernels[text] = kernel_of(text, "program", SIZES, {})
        formula.kernels["triton"] = None if text is None else _kernels[text]
    return formula.kernels["triton"]


def has_kernel(formula: Formula) -> bool:
    """Whether a formula can run here: in float32, with operations that there are expressions for."""
    return formula.dtype == torch.float32 and _kernel(formula) is not None


def run_program(
    formula: Formula,
    statistics: Tensor,
    target: Tensor,
    weight: Tensor | None,
    ignore_index: int,
    reduction: Reduction,
    dtype: torch.dtype,
    want_grads: bool,
    classes: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """The loss in ``dtype``, the gradients ``[P, N]`` before a mean is divided, and in front of the third by what it is."""
    rows = statistics.shape[1]
    each, mean = reduction == "none", reduction == "mean"
    programs = 1 if rows <= MAX_ROWS_ALONE and rows * classes < MIN_SHARED_LOGITS else min(MAX_PROGRAMS, -(-rows // BLOCK))
    if each:
        programs = max(1, min(MAX_PROGRAMS, -(-rows // BLOCK)))
    value = statistics.new_empty((rows,) if each else (), dtype=dtype)
    row_grads = torch.empty_like(statistics) if want_grads else statistics
    numbers = statistics.new_empty(1 + 2 * programs)
    tensors = (statistics, target, statistics if weight is None else weight, row_grads, value, numbers)
    sizes = (rows, programs * BLOCK, classes, target.stride(0), ignore_index)
    alone = programs == 1 and not each
    constants = {
        "BLOCK": BLOCK,
        "WEIGHTED": weight is not None,
        "MEAN": mean,
        "EACH": each,
        "ALONE": alone,
        "GRADS": want_grads,
    }
    launch(_kernel(formula), programs, tensors, sizes, **constants)
    if not (each or alone):
        launch(add_up, 1, (value, numbers), (0, programs), MAX_PROGRAMS=MAX_PROGRAMS, MEAN=mean)
    return value, row_grads, numbers


def scaled_grads(row_grads: Tensor, grad: Tensor, numbers: Tensor, reduction: Reduction) -> Tensor:
    """The gradients times the gradient of the loss, and of a mean divided by what that is divided by."""
    out = torch.empty_like(row_grads)
    each = reduction == "none"
    sizes = (row_grads.numel(), row_grads.shape[1], 1, grad.stride(0) if each else 0, 0)
    blocks = -(-row_grads.numel() // BLOCK)
    if blocks:
        launch(scaled, blocks, (row_grads, grad, numbers, out), sizes, BLOCK=BLOCK, MEAN=reduction == "mean", EACH=each)
    return out
