"""A program, how one is built, and how it is recorded from a function of statistics and its gradient, below autograd.

Equal operations are one, numbers are computed, and what nothing reads is left out.

On a CPU it runs on vectors as a :class:`Formula`, straight-line code of torch's operations. Numbers are tensors without
dimensions there, since torch takes twice the time with one of Python's (2.8 us a call instead of 1.2), and a result that
nothing else reads is overwritten (0.7 us).
"""

import math
import operator
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from noiseproof.core import reference
from noiseproof.core.backends import Backend
from noiseproof.core.row_sums import decode

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


TRACE_ROWS = 3
"""Of the vectors that a function is tried on."""

DIRECT_OPERATIONS = {
    **{name: name for name in ("neg", "exp", "expm1", "log", "log1p", "minimum", "maximum", "logaddexp", "atan2", "sigmoid")},
    **{name: name for name in ("div", "lt", "le", "gt", "ge", "eq", "mul", "pow")},
    **{"clamp_min": "maximum", "clamp_max": "minimum", "logical_and": "both", "bitwise_and": "both", "where": "where"},
}
"""Torch's operations that are one of ours, with the same inputs."""
IDENTITIES = ("detach", "clone", "alias")
IGNORED_OPTIONS = {"dtype", "layout", "device", "pin_memory", "memory_format"}
FILLED_VALUES = {"ones": 1.0, "ones_like": 1.0, "zeros": 0.0, "zeros_like": 0.0}


class UnknownOperation(Exception):  # noqa: N818 - never seen outside
    """An operation that programs do not have."""


class _Recorder(TorchDispatchMode):
    """Registers by where in memory their values are: nothing is freed meanwhile, and there are no views."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # or torch would import its compiler, for more than a second

    def __init__(self, builder: Builder) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.builder = builder
        self.values: dict[int, Value] = {}
        self.kept: list[Tensor] = []

    def put(self, tensor: Tensor, value: Value) -> None:
        self.kept.append(tensor)
        self.values[tensor.data_ptr()] = value

    def of(self, given: Any) -> Value:
        if isinstance(given, Tensor):
            if given.data_ptr() not in self.values:
                raise UnknownOperation("a tensor from elsewhere")
            return self.values[given.data_ptr()]
        if isinstance(given, bool) or not isinstance(given, int | float):
            raise UnknownOperation(repr(given))
        return float(given)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if not isinstance(result, Tensor) or result.shape not in ((), (TRACE_ROWS,)):
            raise UnknownOperation(name)
        value = self.recorded(name.removesuffix("_"), list(args), dict(kwargs or {}))
        self.put(result, value)
        return result

    def recorded(self, name: str, args: list[Any], options: dict[str, Any]) -> Value:
        """The result of one of torch's operations."""
        add = self.builder.add
        if not options.keys() <= {*IGNORED_OPTIONS, "alpha", "value"}:
            raise UnknownOperation(name)
        if name in FILLED_VALUES:
            return FILLED_VALUES[name]
        if name in ("full", "full_like", "scalar_tensor"):
            return self.of(args[0 if name == "scalar_tensor" else 1])
        if name in ("softplus", "softplus_backward"):
            return self._softplus(name, args)
        if name == "expand" and isinstance(number := self.of(args[0]), float):
            return number
        given = [self.of(value) for value in args if value is not None]
        if name in IDENTITIES:
            return given[0]
        if name in DIRECT_OPERATIONS:
            return add(DIRECT_OPERATIONS[name], *given)
        if name in ("add", "sub"):
            return add(name, given[0], add("mul", given[1], float(options.get("alpha", 1))))
        if name == "rsub":
            return add("sub", given[1], add("mul", given[0], float(options.get("alpha", 1))))
        if name == "reciprocal":
            return add("div", 1.0, given[0])
        if name == "addcmul":
            return add("add", given[0], add("mul", add("mul", given[1], given[2]), float(options.get("value", 1))))
        if name == "masked_fill":
            return add("where", given[1], given[2], given[0])
        if name == "clamp" and len(given) == 3:
            return add("minimum", add("maximum", given[0], given[1]), given[2])
        raise UnknownOperation(name)

    def _softplus(self, name: str, args: list[Any]) -> Value:
        """Of beta 1; above the threshold torch has the argument itself, as ours has up to a rounding."""
        options = args[1 if name == "softplus" else 2 :]
        beta, threshold = options + [1, 20][len(options) :]  # torch leaves out what is usual
        if beta != 1 or threshold < 20:
            raise UnknownOperation(name)
        if name == "softplus":
            return self.builder.add("softplus", self.of(args[0]))
        return self.builder.add("mul", self.of(args[0]), self.builder.add("sigmoid", self.of(args[1])))


def traced(function: Callable[[Sequence[Tensor]], Tensor], arity: int, dtype: torch.dtype) -> Program | None:
    """Record a function and its gradient as a program.

    Args:
        function: A function of ``arity`` vectors that is elementwise in them.
        arity: The number of vectors.
        dtype: Their dtype.

    Returns:
        The program; None if the function does what a program cannot.

    Example:
        >>> traced(lambda rows: 2 * rows[0].exp(), 1, torch.float32)
        Program(arity=1, nodes=(Node(name='exp', inputs=(0,)), Node(name='mul', inputs=(1, 2.0))), value=2, row_grads=(2,))
    """
    builder = Builder(arity)
    recorder = _Recorder(builder)
    with torch.inference_mode(False), torch.enable_grad():
        leaves = [torch.full((TRACE_ROWS,), 0.5 + 0.1 * i, dtype=dtype, device="cpu", requires_grad=True) for i in range(arity)]
        for number, leaf in enumerate(leaves):
            recorder.put(leaf, number)
        try:
            with recorder:
                value = function(leaves)
            if value.shape != (TRACE_ROWS,) or value.dtype != dtype or not value.requires_grad:
                return None
            total = value.sum()  # its gradient is ones; torch imports a second's worth of modules for ones that are given
            with recorder:
                row_grads = torch.autograd.grad(total, leaves, allow_unused=True)
            return builder.finished(recorder.of(value), [0.0 if slope is None else recorder.of(slope) for slope in row_grads])
        except UnknownOperation:
            return None


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
