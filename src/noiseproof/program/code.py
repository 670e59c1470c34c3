"""A program, and how one is built: equal operations are one, numbers are computed, and what nothing reads is left out."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

Value = int | float
"""The number of a register, or a number: the first is always an ``int``, the second always a ``float``.

To Python register 2 and the number 2.0 are equal, so what holds them is compared and looked up as text, in which they differ.
"""


class Node(NamedTuple):
    """One operation, whose result is a register."""

    name: str
    inputs: tuple[Value, ...]


class Program(NamedTuple):
    """A list of operations that gives the loss of a row and its gradient by the statistics.

    The statistics of a row are in the registers below ``arity``; the node of number i is in register ``arity + i``.
    """

    arity: int
    nodes: tuple[Node, ...]
    value: Value
    row_grads: tuple[Value, ...]
    """The derivative of the value by each statistic"""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Program) and encoded(self) == encoded(other)

    def __ne__(self, other: object) -> bool:
        return not self == other  # a tuple has one of its own

    def __hash__(self) -> int:
        return hash(encoded(self))

    def reads(self, statistic: int) -> bool:
        """Return whether the value or a gradient depends on a statistic.

        Args:
            statistic: Its register.

        Returns:
            Whether it does.
        """
        results = Node("", (self.value, *self.row_grads))
        return any(statistic in _registers(node) for node in (results, *self.nodes))

    def without_grads(self) -> "Program":
        """Return the program of the value alone."""
        return pruned(Program(self.arity, self.nodes, self.value, ()))


OPERATIONS: dict[str, Callable[..., float]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "neg": lambda a: -a,
    "exp": math.exp,
    "expm1": math.expm1,
    "log": math.log,
    "log1p": math.log1p,
    "pow": math.pow,
    "minimum": min,
    "maximum": max,
    "lt": lambda a, b: float(a < b),
    "le": lambda a, b: float(a <= b),
    "gt": lambda a, b: float(a > b),
    "ge": lambda a, b: float(a >= b),
    "eq": lambda a, b: float(a == b),
    "both": lambda a, b: float(bool(a) and bool(b)),
    "where": lambda condition, a, b: a if condition else b,
    "softplus": lambda a: max(a, 0.0) + math.log1p(math.exp(-abs(a))),
    "sigmoid": lambda a: 1 / (1 + math.exp(-a)),
    "logaddexp": lambda a, b: max(a, b) + math.log1p(math.exp(-abs(a - b))),
    "atan2": math.atan2,
}
"""All there are, as they are on numbers. ``lt`` to ``both`` give conditions, which only ``both`` and ``where`` take."""


class Builder:
    """Adds operations one by one."""

    def __init__(self, arity: int) -> None:
        self.arity = arity
        self.nodes: list[Node] = []
        self._numbers: dict[str, int] = {}
        """The registers of the nodes, by their text"""

    def add(self, name: str, *inputs: Value) -> Value:
        """The result of an operation: a register, or a number where it can be computed now."""
        simpler = self._simpler(name, inputs)
        if simpler is not None:
            return simpler
        if all(isinstance(value, float) for value in inputs):
            try:
                return float(OPERATIONS[name](*inputs))
            except (ArithmeticError, ValueError):
                pass  # of what torch says is infinite or NaN
        node = Node(name, tuple(sorted(inputs, key=_order)) if name in ("add", "mul") else inputs)
        text = repr(node)
        if text not in self._numbers:
            self._numbers[text] = self.arity + len(self.nodes)
            self.nodes.append(node)
        return self._numbers[text]

    def finished(self, value: Value, row_grads: Sequence[Value]) -> Program:
        return pruned(Program(self.arity, tuple(self.nodes), value, tuple(row_grads)))

    def _node(self, value: Value, name: str) -> Node | None:
        """The operation behind a register, if it has this name."""
        if isinstance(value, float) or value < self.arity:
            return None
        node = self.nodes[value - self.arity]
        return node if node.name == name else None

    def _simpler(self, name: str, inputs: tuple[Value, ...]) -> Value | None:
        if name in ("add", "sub"):
            return self._simpler_sum(name, *inputs)
        if name == "mul":
            return self._simpler_product(*sorted(inputs, key=_order))
        if name == "div":
            a, b = inputs
            if b == 1.0 and isinstance(b, float):
                return a
            inner = self._node(a, "neg")
            return None if inner is None else self.add("neg", self.add("div", *inner.inputs, b))
        if name == "neg":
            return self._simpler_negative(inputs[0])
        return None

    def _simpler_sum(self, name: str, a: Value, b: Value) -> Value | None:
        if b == 0.0 and isinstance(b, float):
            return a
        if a == 0.0 and isinstance(a, float):
            return b if name == "add" else self.add("neg", b)
        if name == "sub" and a == b and type(a) is type(b):
            return 0.0
        other = "sub" if name == "add" else "add"
        inner = self._node(b, "neg")
        if inner is not None:
            return self.add(other, a, *inner.inputs)
        inner = self._node(a, "neg") if name == "add" else None
        return None if inner is None else self.add("sub", b, *inner.inputs)

    def _simpler_product(self, a: Value, b: Value) -> Value | None:
        """Of a register and, in the second place, a number, or of two registers."""
        for one, other in ((a, b), (b, a)):
            inner = self._node(one, "neg")
            if inner is not None:
                return self.add("neg", self.add("mul", *inner.inputs, other))
        if isinstance(b, int) or isinstance(a, float):
            return None
        if b == 1.0:
            return a
        if b == -1.0:
            return self.add("neg", a)
        inner = self._node(a, "mul")
        if inner is not None and isinstance(inner.inputs[1], float):
            return self.add("mul", inner.inputs[0], inner.inputs[1] * b)
        return None

    def _simpler_negative(self, a: Value) -> Value | None:
        inner = self._node(a, "neg")
        if inner is not None:
            return inner.inputs[0]
        inner = self._node(a, "mul")
        if inner is not None and isinstance(inner.inputs[1], float):
            return self.add("mul", inner.inputs[0], -inner.inputs[1])
        return None


def _order(value: Value) -> tuple[bool, Value]:
    """Registers, then numbers."""
    return isinstance(value, float), value


def _registers(node: Node) -> Iterator[int]:
    return (value for value in node.inputs if isinstance(value, int))


def pruned(program: Program) -> Program:
    """Only the nodes that the value and the gradients depend on, numbered anew."""
    results = (program.value, *program.row_grads)
    wanted = {value for value in results if isinstance(value, int)}
    for number in range(program.arity + len(program.nodes) - 1, program.arity - 1, -1):
        if number in wanted:
            wanted.update(_registers(program.nodes[number - program.arity]))
    numbers: dict[Value, int] = {number: number for number in range(program.arity)}
    nodes: list[Node] = []
    for number, node in enumerate(program.nodes, start=program.arity):
        if number in wanted:
            numbers[number] = program.arity + len(nodes)
            nodes.append(Node(node.name, tuple([_renumbered(value, numbers) for value in node.inputs])))
    value, *row_grads = [_renumbered(result, numbers) for result in results]
    return Program(program.arity, tuple(nodes), value, tuple(row_grads))


def _renumbered(value: Value, numbers: dict[Value, int]) -> Value:
    return value if isinstance(value, float) else numbers[value]


def encoded(program: Program) -> str:
    """As text."""
    nodes = [" ".join([name, *map(repr, inputs)]) for name, inputs in program.nodes]
    return "|".join([str(program.arity), ";".join(nodes), repr(program.value), " ".join(map(repr, program.row_grads))])


def decoded(text: str) -> Program:
    """The inverse of :func:`encoded`."""
    arity, nodes, value, row_grads = text.split("|")
    lines = [line.split(" ") for line in nodes.split(";")] if nodes else []
    steps = tuple([Node(name, tuple(map(_value, inputs))) for name, *inputs in lines])
    return Program(int(arity), steps, _value(value), tuple(map(_value, row_grads.split())))


def _value(text: str) -> Value:
    return int(text) if text.isdecimal() else float(text)
