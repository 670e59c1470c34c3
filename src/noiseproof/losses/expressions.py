"""The catalogue's expressions: formulas, ranges and conditions are Python text, parsed and evaluated here.

Only arithmetic, comparisons, choices, ``x[i]`` and calls of named functions are allowed, so the text of a loss that somebody
registers can do nothing else.
"""

import ast
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from noiseproof.losses.base import RobustLoss, parameters_of

ALLOWED_NODES = (
    *(ast.Expression, ast.Constant, ast.Name, ast.Load, ast.Subscript, ast.Call, ast.IfExp),
    *(ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow, ast.UnaryOp, ast.USub, ast.Not),
    *(ast.BoolOp, ast.And, ast.Or, ast.Compare, ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE),
)


def _entropy(p: ArrayLike) -> float:
    p = np.asarray(p)
    return float(-np.sum(np.where(p > 0, p * np.log(np.maximum(p, 1e-300)), 0.0)))


def _softmax(z: NDArray[np.float64]) -> NDArray[np.float64]:
    shares: NDArray[np.float64] = np.exp(z - np.max(z))
    shares /= shares.sum()
    return shares


KNOWN_NAMES: dict[str, Any] = {
    **{name: getattr(np, name) for name in ("abs", "arange", "arccos", "exp", "log", "max", "maximum", "mean", "minimum")},
    **{"sqrt": np.sqrt, "sum": np.sum, "norm": np.linalg.norm, "softmax": _softmax, "H": _entropy, "inf": math.inf},
}
"""What every expression may use without being given it."""


def parse(expression: str) -> ast.Expression:
    """The tree of an expression, without the ``if`` of a sufficient condition; a ValueError that says what is not allowed.

    >>> parse("__import__('os').system('true')")
    Traceback (most recent call last):
    ValueError: "__import__('os').system('true')" must be made of numbers, names, ... got Attribute in "__import__('os').system"
    """
    try:
        tree = ast.parse(expression.removeprefix("if ").strip(), mode="eval")
    except SyntaxError as error:
        raise ValueError(f"{expression!r} must be a Python expression: {error.msg}") from None
    nodes = list(ast.walk(tree))
    wrong = [node for node in nodes if not isinstance(node, ALLOWED_NODES)]
    wrong += [node for node in nodes if isinstance(node, ast.Call) and not isinstance(node.func, ast.Name)]
    wrong += [node for node in nodes if isinstance(node, ast.Constant) and not isinstance(node.value, int | float)]
    if wrong:
        found = f"{type(wrong[0]).__name__} in {ast.unparse(wrong[0])!r}"
        raise ValueError(f"{expression!r} must be made of numbers, names, arithmetic, comparisons and calls, got {found}")
    return tree


def names_in(*expressions: str) -> set[str]:
    """The names that expressions use, of functions too.

    >>> sorted(names_in("q == 1 or False", "F(p[y])"))
    ['F', 'p', 'q', 'y']
    """
    return {node.id for text in expressions for node in ast.walk(parse(text)) if isinstance(node, ast.Name)}


def evaluate(expression: str, values: Mapping[str, Any]) -> Any:
    """The value of an expression where its names have ``values``.

    >>> evaluate("if q <= 1 or w1 >= 2 * w2", {"q": 3.0, "w1": 0.6, "w2": 0.1})
    True
    """
    known = {**KNOWN_NAMES, **values}
    unknown = sorted(names_in(expression) - set(known))
    if unknown:
        raise ValueError(f"{expression!r} uses {', '.join(unknown)}, and no value was given")
    return eval(compile(parse(expression), "<catalogue>", "eval"), {"__builtins__": {}}, known)


def values_of(loss: RobustLoss) -> dict[str, Any]:
    """A loss's parameters under the names that expressions give them: a parameter p is ``p_``, and gamma defines ``F``."""
    values = {"p_" if name == "p" else name: getattr(loss, name) for name in parameters_of(type(loss))}
    if "gamma" in values:
        gamma = values["gamma"]
        values["F"] = lambda p: np.where(np.asarray(p) < 1, (1 - p) ** gamma * -np.log(p), 0.0)
    return values


def times(factor: str, expression: str) -> str:
    """The product as text: parentheses only where they are needed, and nothing times 0, 1 or infinity.

    >>> times("beta", "1 - p[y]"), times("beta", "-log(p[y]) / K"), times("beta", "1")
    ('beta * (1 - p[y])', 'beta * -log(p[y]) / K', 'beta')
    """
    if expression in {"0", "inf"}:
        return expression
    if expression == "1":
        return factor
    tree = parse(expression).body
    loose = isinstance(tree, ast.IfExp | ast.Compare | ast.BoolOp)
    loose |= isinstance(tree, ast.BinOp) and isinstance(tree.op, ast.Add | ast.Sub)
    return f"{factor} * ({expression})" if loose else f"{factor} * {expression}"


def plus(first: str, second: str) -> str:
    """The sum of two products as text, without zeros; infinity if one of them is."""
    if "inf" in {first, second}:
        return "inf"
    return " + ".join(text for text in (first, second) if text != "0") or "0"


def both(first: str, second: str) -> str:
    """The condition that two conditions hold.

    >>> both("if True", "q <= 1 or a > 2"), both("q == 1", "p_ < 1 or a > 2"), both("q == 1", "False")
    ('q <= 1 or a > 2', 'q == 1 and (p_ < 1 or a > 2)', 'False')
    """
    texts = [text.removeprefix("if ") for text in (first, second)]
    if "False" in texts:
        return "False"
    texts = [text for text in dict.fromkeys(texts) if text != "True"]
    if len(texts) == 2:
        texts = [f"({text})" if isinstance(parse(text).body, ast.BoolOp | ast.IfExp) else text for text in texts]
    return " and ".join(texts) or "True"


def with_constants(expression: str, constants: Mapping[str, float]) -> str:
    """The text with numbers in place of names.

    >>> with_constants("scale * (1 - p[y])", {"scale": 2.0}), with_constants("scale * (1 - p[y])", {"scale": 1.0})
    ('2 * (1 - p[y])', '1 - p[y]')
    """
    if not names_in(expression) & set(constants):
        return expression
    prefix = "if " if expression.startswith("if ") else ""
    return prefix + ast.unparse(_Constants(constants).visit(parse(expression))).replace(" ** ", "**")


class _Constants(ast.NodeTransformer):
    def __init__(self, constants: Mapping[str, float]) -> None:
        self.constants = constants

    def visit_Name(self, node: ast.Name) -> ast.expr:
        value = self.constants.get(node.id)
        return node if value is None else ast.Constant(int(value) if value == int(value) else value)

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        node = ast.BinOp(self.visit(node.left), node.op, self.visit(node.right))
        one = isinstance(node.op, ast.Mult) and isinstance(node.left, ast.Constant) and node.left.value == 1
        return node.right if one else node
