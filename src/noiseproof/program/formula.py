"""The formula of a loss, ready to run: a program on vectors, straight-line code of torch's operations, for a CPU.

Numbers are tensors without dimensions, since torch takes twice the time with one of Python's (2.8 us a call instead of 1.2),
and a result that nothing else reads is overwritten (0.7 us).
"""

import operator
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from noiseproof.core import reference
from noiseproof.core.backends import Backend
from noiseproof.core.row_sums import decode
from noiseproof.program.code import Node, Program, Value

Run = Callable[..., tuple[Tensor, tuple[Tensor | float, ...]]]
"""From the statistics to the value of each row and its gradients; a slope that is the same for all rows is a number."""

TORCH_FUNCTIONS: dict[str, Callable[..., Tensor]] = {
    **{name: getattr(torch, name) for name in ("add", "sub", "mul", "div", "neg", "exp", "expm1", "log", "log1p", "pow")},
    **{name: getattr(torch, name) for name in ("minimum", "maximum", "lt", "le", "gt", "ge", "eq", "where", "atan2")},
    **{"both": torch.logical_and, "sigmoid": torch.sigmoid, "logaddexp": torch.logaddexp},
    "softplus": lambda a: torch.nn.functional.softplus(a, threshold=80.0),
}
ARITHMETIC: dict[str, Callable[..., Tensor]] = {
    name: getattr(operator, {"div": "truediv"}.get(name, name)) for name in ("add", "sub", "mul", "div", "pow")
}
"""What takes numbers in either place."""
IN_PLACE_OPERATIONS = ("add", "sub", "mul", "div", "neg", "exp", "expm1", "log", "log1p")
COMMUTATIVE = ("add", "mul")


class _Text:
    """The lines of a function, and the numbers that it uses."""

    def __init__(self, program: Program, dtype: torch.dtype) -> None:
        self.program, self.dtype = program, dtype
        self.names: dict[str, Any] = {f"{name}": function for name, function in TORCH_FUNCTIONS.items()}
        results = {value for value in (program.value, *program.row_grads) if isinstance(value, int)}
        reads = [(value, number) for number, node in enumerate(program.nodes) for value in node.inputs]
        self.last = {value: number for value, number in reads if isinstance(value, int)}
        self.last |= dict.fromkeys(results, len(program.nodes))

    def name(self, value: Value) -> str:
        if isinstance(value, int):
            return f"r{value}"
        name = f"c{len(self.names)}"
        self.names[name] = torch.tensor(value, dtype=self.dtype, device="cpu")
        return name

    def line(self, number: int, node: Node) -> str:
        inputs = list(node.inputs)
        if node.name in COMMUTATIVE and not self.free(inputs[0], number) and self.free(inputs[1], number):
            inputs.reverse()
        here = f"r{self.program.arity + number}"
        if node.name == "pow":
            return f"{here} = pow(r{inputs[0]}, {inputs[1]!r})"
        first, *rest = [self.name(value) for value in inputs]
        if node.name in IN_PLACE_OPERATIONS and self.free(inputs[0], number):
            return f"{here} = {first}.{node.name}_({', '.join(rest)})"
        return f"{here} = {node.name}({', '.join([first, *rest])})"

    def free(self, value: Value, number: int) -> bool:
        """Whether a register is a result of ours that nothing reads after this node."""
        return isinstance(value, int) and value >= self.program.arity and self.last[value] == number

    def whole(self) -> str:
        row_grads = [f"r{slope}" if isinstance(slope, int) else repr(slope) for slope in self.program.row_grads]
        lines = [f"def run({', '.join(f'r{i}' for i in range(self.program.arity))}):"]
        lines += [self.line(number, node) for number, node in enumerate(self.program.nodes)]
        lines += [f"return r{self.program.value}, ({''.join(f'{slope}, ' for slope in row_grads)})"]
        return "\n    ".join(lines)


@lru_cache(maxsize=512)
def compiled(program: Program, dtype: torch.dtype) -> Run:
    """The function. Its text has nothing in it but names of operations, registers and numbers."""
    with torch.inference_mode(False):
        text = _Text(program, dtype)
        space: dict[str, Any] = text.names
        exec(text.whole(), space)
    run: Run = space["run"]
    return run


def evaluated(program: Program, statistics: Sequence[Tensor]) -> tuple[Tensor, list[Tensor | float]]:
    """The value and the gradients, one operation after the other, for a compiler that records them: numbers stay numbers."""
    registers = list(statistics)

    def given(value: Value, as_tensor: bool) -> Any:
        if isinstance(value, int):
            return registers[value]
        return torch.full_like(statistics[0], value) if as_tensor else value

    for name, inputs in program.nodes:
        function = ARITHMETIC.get(name)
        if function is None:
            registers.append(TORCH_FUNCTIONS[name](*[given(value, as_tensor=True) for value in inputs]))
        else:
            registers.append(function(*[given(value, as_tensor=False) for value in inputs]))
    row_grads = [given(slope, as_tensor=False) for slope in program.row_grads]
    return given(program.value, as_tensor=True), row_grads


Reduction = Literal["none", "mean", "sum"]


class Formula:
    """A program with the row sums that it reads, ready to run in one dtype."""

    def __init__(self, program: Program, needs_key: str, dtype: torch.dtype) -> None:
        self.program, self.dtype = program, dtype
        self.needs = decode(needs_key)
        self.least = reference.MIN_EXPONENT[dtype]
        self.reads_log1m = program.reads(1)
        self.with_grads, self.alone = compiled(program, dtype), compiled(program.without_grads(), dtype)
        self.kernels: dict[str, Any] = {}
        """What backends have made of it"""
        self.loss: Any = None
        """The loss with this program, which nothing changes"""


class LossCall(NamedTuple):
    """What is to be done with the rows of a batch."""

    formula: Formula
    backend: Backend
    ignored: Tensor | None
    """Which labels are, on a CPU; None: none"""
    ignore_index: int
    weight: Tensor | None
    """Of each class"""
    reduction: Reduction
    dtype: torch.dtype
    """Of the loss"""
    recompute: Callable[[Tensor, Tensor, "LossCall"], Tensor]
    """The loss of logits and labels by autograd, with the weight, ignored label and reduction that these rows have"""
