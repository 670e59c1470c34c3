"""A program from a function of statistics: its operations and those of its gradient are recorded, below autograd."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from noiseproof.program.code import Builder, Program, Value

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
