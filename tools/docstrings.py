"""What is missing in the docstrings of public names: summary, ``Args:``, ``Returns:``, ``Raises:``, an example.

``tests/test_docstrings.py`` expects nothing to be missing; ``tools/docstrings.py PACKAGE ...`` prints what is, by package.

Public is what a package lists in ``__all__``, and the public methods that its classes define. The rules:
- everything has a summary: a first paragraph that ends with a full stop;
- ``Args:`` names every parameter of a function, a method or a constructor, and no other. ``*args`` and ``**options``
  may be left out. A dataclass may describe its fields under ``Attributes:``;
- ``Returns:`` (or ``Yields:``) where a function with parameters returns something;
- ``Raises:`` names each exception that the function itself raises;
- a function has an example (``>>>``); a class has one, in its own docstring or in that of a method. Exceptions, enumerations,
  protocols and abstract classes need none.
"""

from __future__ import annotations

import ast
import dataclasses
import enum
import functools
import importlib
import inspect
import pkgutil
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

SECTION = re.compile(r"^(Args|Attributes|Returns|Yields|Raises):[ \t]*(.*\n(?:[ \t]+.*\n|\n(?=[ \t]))*)", re.MULTILINE)
ENTRY = re.compile(r"^ {4}\*{0,2}([\w.]+(?:, \*{0,2}[\w.]+)*)(?: \([^)]*\))?:", re.MULTILINE)
NOT_PUBLIC = ("noiseproof.__main__", "noiseproof.version")


def public_modules() -> list[str]:
    """Every package and every module at the top of the package, by its full name, that lists names in ``__all__``."""
    import noiseproof

    found = ["noiseproof"]
    for module in pkgutil.iter_modules(noiseproof.__path__, "noiseproof."):
        if module.name not in NOT_PUBLIC:
            found.append(module.name)
    return found


def public_names(module: str) -> dict[str, Any]:
    """The functions and classes of ``__all__`` that are defined in the package, with their names.

    Those of ``noiseproof`` itself are without what another module lists.
    """
    imported = importlib.import_module(module)
    values = {name: getattr(imported, name) for name in getattr(imported, "__all__", ())}
    found = {name: value for name, value in values.items() if _is_ours(value)}
    if module == "noiseproof":
        others = {id(value) for other in public_modules()[1:] for value in public_names(other).values()}
        found = {name: value for name, value in found.items() if id(value) not in others}
    return found


def _is_ours(value: Any) -> bool:
    is_described = inspect.isclass(value) or inspect.isfunction(inspect.unwrap(value) if callable(value) else value)
    return is_described and str(getattr(value, "__module__", "")).startswith("noiseproof")


def problems_of(name: str, value: Any) -> Iterator[str]:
    """What the docstring of a public function or class lacks, one sentence each."""
    if not inspect.isclass(value):
        yield from _function_problems(name, value, needs_example=True)
        return
    yield from _class_problems(name, value)
    for attribute, member in _public_members(value):
        if isinstance(member, property | functools.cached_property):
            if not _summary(inspect.getdoc(member)):
                yield f"{name}.{attribute} has no summary"
        else:
            yield from _function_problems(f"{name}.{attribute}", getattr(value, attribute), owner=value)


def _class_problems(name: str, cls: type) -> Iterator[str]:
    text = inspect.cleandoc(cls.__doc__ or "")
    if not _summary(text) or text.startswith(f"{cls.__name__}("):  # which dataclasses write themselves
        yield f"{name} has no summary"
        return
    if issubclass(cls, BaseException | enum.Enum) or getattr(cls, "_is_protocol", False) or issubclass(cls, tuple):
        return
    init = cls.__dict__.get("__init__")
    documented = f"{text}\n\n{inspect.cleandoc(getattr(init, '__doc__', None) or '')}"
    if dataclasses.is_dataclass(cls) and "__dataclass_params__" in cls.__dict__:
        own = {field.name for field in dataclasses.fields(cls) if field.init and not field.name.startswith("_")}
        yield from _argument_problems(name, own, documented)
    elif init is not None:
        yield from _argument_problems(name, _parameters(init), documented)
    for method in (init, cls.__dict__.get("__post_init__")):
        if inspect.isfunction(method) and method.__module__.startswith("noiseproof"):
            yield from _raise_problems(name, method, documented)
    docs = (text, *(inspect.getdoc(getattr(cls, attribute)) or "" for attribute, _ in _public_members(cls)))
    if not inspect.isabstract(cls) and not any(">>>" in doc for doc in docs):
        yield f"{name} has no example"


def _public_members(cls: type) -> Iterator[tuple[str, Any]]:
    """Methods and properties that the class itself defines."""
    for attribute, member in vars(cls).items():
        kinds = (property, functools.cached_property, staticmethod, classmethod)
        if not attribute.startswith("_") and (inspect.isfunction(member) or isinstance(member, kinds)):
            yield attribute, member


def _function_problems(name: str, value: Any, needs_example: bool = False, owner: type | None = None) -> Iterator[str]:
    function = inspect.unwrap(value)
    text = inspect.cleandoc(value.__doc__ or "")
    if not text and owner is not None and inspect.getdoc(value):
        return  # inherited, with its arguments
    if not _summary(text):
        yield f"{name} has no summary"
        return
    parameters = _parameters(value, is_method=owner is not None)
    yield from _argument_problems(name, parameters, text)
    result = inspect.signature(value).return_annotation
    returns = result not in (None, "None", "NoReturn", "Never", inspect.Signature.empty)
    if parameters and returns and not {"Returns", "Yields"} & set(_sections(text)):
        yield f"{name} has no Returns:"
    yield from _raise_problems(name, function, text)
    if needs_example and ">>>" not in text:
        yield f"{name} has no example"


def _parameters(value: Callable[..., Any], is_method: bool = False) -> set[str]:
    kinds = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    found = [parameter.name for parameter in inspect.signature(value).parameters.values() if parameter.kind not in kinds]
    return {name for name in found if name not in ("self", "cls") and not name.startswith("_")}


def _argument_problems(name: str, parameters: set[str], text: str) -> Iterator[str]:
    sections = _sections(text)
    described = _entries(sections.get("Args", "")) | _entries(sections.get("Attributes", ""))
    if missing := sorted(parameters - described):
        yield f"{name} has no Args: for {', '.join(missing)}"
    if "Args" in sections and (extra := sorted(_entries(sections["Args"], plain_only=True) - parameters)):
        yield f"{name} has Args: for {', '.join(extra)}, which it does not accept"


def _raise_problems(name: str, function: Any, text: str) -> Iterator[str]:
    described = _sections(text).get("Raises", "")
    if missing := sorted(error for error in _raised(function) if not re.search(rf"\b{error}\b", described)):
        yield f"{name} has no Raises: for {', '.join(missing)}"


def _raised(function: Any) -> set[str]:
    """The exceptions after ``raise`` in the function's own body, without those of functions inside it."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return set()
    found: set[str] = set()
    waiting: list[ast.AST] = list(getattr(tree.body[0], "body", ()))
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            continue
        if isinstance(node, ast.Raise) and node.exc is not None:
            named = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
            error = named.attr if isinstance(named, ast.Attribute) else getattr(named, "id", "")
            if error[:1].isupper() and error not in ("NotImplementedError", "AttributeError", "StopIteration"):
                found.add(error)
        waiting += ast.iter_child_nodes(node)
    return found


def _summary(text: str | None) -> bool:
    return bool(text) and (text or "").split("\n\n")[0].rstrip().endswith((".", "!", "?", ":", "`"))


def _sections(text: str) -> dict[str, str]:
    return {match[1]: match[2] for match in SECTION.finditer(f"{text}\n")}


def _entries(section: str, plain_only: bool = False) -> set[str]:
    found = {name.strip("* ") for match in ENTRY.finditer(section) for name in match[1].split(",")}
    starred = set(re.findall(r"^ {4}\*{1,2}(\w+):", section, re.MULTILINE))
    return found - starred if plain_only else found


def missing(module: str) -> list[str]:
    """What the docstrings of a module's public names lack, sorted by name."""
    return [problem for name, value in sorted(public_names(module).items()) for problem in problems_of(name, value)]


if __name__ == "__main__":
    for each in sys.argv[1:] or public_modules():
        found = missing(each)
        print(f"{each}: {len(public_names(each))} names, {len(found)} problems")
        if sys.argv[1:]:
            print(*(f"  {line}" for line in found), sep="\n")
