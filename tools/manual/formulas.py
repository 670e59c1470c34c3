"""The catalogue's expressions as TeX. They are Python that the tests evaluate, so what is shown is what was tested."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from noiseproof.losses.catalog import parse

__all__ = ["tex"]

GREEK = {"alpha", "beta", "gamma", "delta", "epsilon", "tau", "pi", "mu"}
NAMES = {"lam": r"\lambda", "inf": r"\infty", "p_": "p", "y": "y", "w1": "w_1", "w2": "w_2", "minimum": "m"}
FUNCTIONS = {"log": r"\log", "exp": r"\exp", "arccos": r"\arccos", "max": r"\max", "maximum": r"\max", "minimum": r"\min"}
COMPARED = {ast.Eq: "=", ast.NotEq: r"\ne", ast.Lt: "<", ast.LtE: r"\le", ast.Gt: ">", ast.GtE: r"\ge"}
SUM, PRODUCT, SIGN, POWER, ATOM = range(1, 6)
"""How tightly a term is bound; what binds less than its place needs goes into parentheses."""


def tex(expression: str, options: Mapping[str, Any] | None = None) -> str:
    r"""The formula; of a sufficient condition without its ``if``. A choice by an option that is True or False is made.

    >>> tex("alpha * -log(p[y]) / sum(-log(p))")
    '\\frac{\\alpha \\, \\left(-\\log p_y\\right)}{\\sum_k -\\log p_k}'
    >>> tex("p_ <= 1 or w1 >= w2 * exp(1 / a)")
    'p \\le 1 \\text{ or } w_1 \\ge w_2 \\, \\exp \\frac{1}{a}'
    """
    return _Writer().term(_Chosen(options or {}).visit(parse(expression)).body)


class _Writer:
    """``summed`` is whether the term is under a sum over the classes, where a vector means its entry k."""

    def __init__(self, *, summed: bool = False) -> None:
        self.summed = summed

    def term(self, node: ast.expr, place: int = 0) -> str:
        text, binds = self.written(node)
        return text if binds >= place else rf"\left({text}\right)"

    def written(self, node: ast.expr) -> tuple[str, int]:
        match node:
            case ast.Constant(value=value):
                return f"{value:g}" if isinstance(value, float) else str(value), ATOM
            case ast.Name(id=name):
                return self.name(name), ATOM
            case ast.Subscript(value=of, slice=index):
                return self.entry(of, index), ATOM
            case ast.UnaryOp(operand=operand):
                return f"-{self.term(operand, SIGN)}", SIGN
            case ast.BinOp():
                return self.operation(node)
            case ast.Compare(left=left, ops=[operator], comparators=[right]):
                return f"{self.term(left)} {COMPARED[type(operator)]} {self.term(right)}", 0
            case ast.BoolOp(op=operator, values=values):
                word = r" \text{ or } " if isinstance(operator, ast.Or) else r" \text{ and } "
                return word.join(self.term(value, 0 if isinstance(value, ast.Compare) else ATOM) for value in values), 0
            case ast.IfExp(test=test, body=body, orelse=other):
                return rf"{self.term(body)} \text{{ if }} {self.term(test)}, \text{{ else }} {self.term(other)}", 0
            case ast.Call(func=ast.Name(id=name), args=arguments):
                return self.call(name, arguments)
        raise ValueError(f"no TeX is known for {ast.unparse(node)!r}")

    def name(self, name: str) -> str:
        if name in ("p", "e") and self.summed:
            return f"{name}_k"
        if name in GREEK:
            return "\\" + name
        return NAMES.get(name, name if len(name) == 1 else rf"\text{{{name}}}")

    def entry(self, of: ast.expr, index: ast.expr) -> str:
        at = _Writer().term(index)
        if isinstance(of, ast.Name):
            return f"{_Writer().name(of.id)}_{at}"
        return rf"{_Writer().term(of, ATOM)}_{at}"

    def operation(self, node: ast.BinOp) -> tuple[str, int]:
        left, right = node.left, node.right
        match node.op:
            case ast.Add():
                return f"{self.term(left, SUM)} + {self.term(right, PRODUCT)}", SUM
            case ast.Sub():
                return f"{self.term(left, SUM)} - {self.term(right, PRODUCT)}", SUM
            case ast.Mult():
                between = r"\cdot" if isinstance(right, ast.Constant) else r"\,"
                return f"{self.term(left, PRODUCT)} {between} {self.term(right, POWER)}", PRODUCT
            case ast.Div():
                return rf"\frac{{{self.term(left)}}}{{{self.term(right)}}}", POWER
            case ast.Pow():
                return f"{self.term(left, ATOM)}^{{{self.term(right)}}}", POWER
        raise ValueError(f"no TeX is known for {ast.unparse(node)!r}")

    def call(self, name: str, arguments: list[ast.expr]) -> tuple[str, int]:
        inner = arguments[0]
        if name in ("sum", "mean"):
            whole = self.summation(inner)
            return (whole, PRODUCT) if name == "sum" else (rf"\frac{{1}}{{K}} {whole}", PRODUCT)
        if name == "abs":
            return rf"\left|{self.term(inner)}\right|", ATOM
        if name == "norm":
            return rf"\left\|{self.term(inner)}\right\|", ATOM
        if name == "sqrt":
            return rf"\sqrt{{{self.term(inner)}}}", ATOM
        shown = FUNCTIONS.get(name, name if len(name) == 1 else rf"\operatorname{{{name}}}")
        if len(arguments) == 1 and name in ("log", "exp", "arccos"):
            return f"{shown} {self.term(inner, POWER)}", POWER
        return rf"{shown}\left({', '.join(self.term(one) for one in arguments)}\right)", ATOM

    def summation(self, inner: ast.expr) -> str:
        """Over the classes, or over the terms of a series that counts with ``arange(1, last + 1)``."""
        series = [one for one in ast.walk(inner) if isinstance(one, ast.Call) and getattr(one.func, "id", "") == "arange"]
        if not series:
            return rf"\sum_k {_Writer(summed=True).term(inner, PRODUCT)}"
        end = series[0].args[1]
        last = self.term(end.left if isinstance(end, ast.BinOp) else end)
        counted = _Counted().visit(parse(ast.unparse(inner))).body
        return rf"\sum_{{i=1}}^{{{last}}} {_Writer().term(counted, PRODUCT)}"


class _Counted(ast.NodeTransformer):
    """``arange(...)`` as the index of the series."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if getattr(node.func, "id", "") == "arange":
            return ast.Name("i", ast.Load())
        return self.generic_visit(node)


class _Chosen(ast.NodeTransformer):
    """``x if option else y`` as the one of the two that holds, and nothing less 0."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.options = options

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        chosen = self.options.get(node.test.id) if isinstance(node.test, ast.Name) else None
        return self.generic_visit(node) if chosen is None else self.visit(node.body if chosen else node.orelse)

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        new = ast.BinOp(self.visit(node.left), node.op, self.visit(node.right))
        nothing = isinstance(new.op, ast.Sub) and isinstance(new.right, ast.Constant) and new.right.value == 0
        return new.left if nothing else new
