"""A program on vectors: straight-line code of torch's operations, for a CPU.

Numbers are tensors without dimensions, since torch takes twice the time with one of Python's (2.8 us a call instead of 1.2),
and a result that nothing else reads is overwritten (0.7 us).
"""

import operator
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from noiseproof.program.code import Node, Program, Value

__all__ = ["Run", "compiled", "evaluated"]

Run = Callable[..., tuple[Tensor, tuple[Tensor | float, ...]]]
"""From the primitives to the value of each row and its slopes; a slope that is the same for all rows is a number."""

TORCH: dict[str, Callable[..., Tensor]] = {
    **{name: getattr(torch, name) for name in ("add", "sub", "mul", "div", "neg", "exp", "expm1", "log", "log1p", "pow")},
    **{name: getattr(torch, name) for name in ("minimum", "maximum", "lt", "le", "gt", "ge", "eq", "where", "atan2")},
    **{"both": torch.logical_and, "sigmoid": torch.sigmoid, "logaddexp": torch.logaddexp},
    "softplus": lambda a: torch.nn.functional.softplus(a, threshold=80.0),
}
ARITHMETIC: dict[str, Callable[..., Tensor]] = {
    name: getattr(operator, {"div": "truediv"}.get(name, name)) for name in ("add", "sub", "mul", "div", "pow")
}
"""What takes numbers in either place."""
IN_PLACE = ("add", "sub", "mul", "div", "neg", "exp", "expm1", "log", "log1p")
SWAPPED = ("add", "mul")


class _Text:
    """The lines of a function, and the numbers that it uses."""

    def __init__(self, program: Program, dtype: torch.dtype) -> None:
        self.program, self.dtype = program, dtype
        self.names: dict[str, Any] = {f"{name}": function for name, function in TORCH.items()}
        results = {value for value in (program.value, *program.slopes) if isinstance(value, int)}
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
        if node.name in SWAPPED and not self.free(inputs[0], number) and self.free(inputs[1], number):
            inputs.reverse()
        here = f"r{self.program.primitives + number}"
        if node.name == "pow":
            return f"{here} = pow(r{inputs[0]}, {inputs[1]!r})"
        first, *rest = [self.name(value) for value in inputs]
        if node.name in IN_PLACE and self.free(inputs[0], number):
            return f"{here} = {first}.{node.name}_({', '.join(rest)})"
        return f"{here} = {node.name}({', '.join([first, *rest])})"

    def free(self, value: Value, number: int) -> bool:
        """Whether a register is a result of ours that nothing reads after this node."""
        return isinstance(value, int) and value >= self.program.primitives and self.last[value] == number

    def whole(self) -> str:
        slopes = [f"r{slope}" if isinstance(slope, int) else repr(slope) for slope in self.program.slopes]
        lines = [f"def run({', '.join(f'r{i}' for i in range(self.program.primitives))}):"]
        lines += [self.line(number, node) for number, node in enumerate(self.program.nodes)]
        lines += [f"return r{self.program.value}, ({''.join(f'{slope}, ' for slope in slopes)})"]
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


def evaluated(program: Program, primitives: Sequence[Tensor]) -> tuple[Tensor, list[Tensor | float]]:
    """The value and the slopes, one operation after the other, for a compiler that records them: numbers stay numbers."""
    registers = list(primitives)

    def given(value: Value, as_tensor: bool) -> Any:
        if isinstance(value, int):
            return registers[value]
        return torch.full_like(primitives[0], value) if as_tensor else value

    for name, inputs in program.nodes:
        function = ARITHMETIC.get(name)
        if function is None:
            registers.append(TORCH[name](*[given(value, as_tensor=True) for value in inputs]))
        else:
            registers.append(function(*[given(value, as_tensor=False) for value in inputs]))
    slopes = [given(slope, as_tensor=False) for slope in program.slopes]
    return given(program.value, as_tensor=True), slopes
