"""The public names: a page for each package with a table of them, in whose place the site has their docstrings.

Public is what a package lists in ``__all__``. ``INTERNAL`` are packages that are no interface: their names may change.
"""

from __future__ import annotations

import ast
import functools
import html
import importlib
import importlib.util
import inspect
import pkgutil
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import noiseproof
from manual.catalogue import place
from manual.docstrings import in_a_line
from manual.sources import folded
from noiseproof import integrations as package
from noiseproof.losses import list_losses

__all__ = ["FIRST", "INTERNAL", "names_of", "overview", "pages", "public_packages", "with_docstrings"]

FIRST = (
    "",
    "losses",
    "functional",
    "noise",
    "theory",
    "audit",
    "advice",
    "compare",
    "sklearn",
    "train",
    "data",
    "models",
    "report",
)
"""What readers look for first, in this order; others follow by name"""
INTERNAL = ("__main__", "checks", "cli", "io", "kernels", "keyed_random", "program", "starting", "version")
LONGEST = 300
"""Lines of docstrings that a page shows without a click"""
MORE = {
    "noiseproof": "What every program needs. The losses, exported here too, are in the [catalogue](../losses/index.md).",
    "noiseproof.core": "What a loss of your own reads, and how a backend for another device is registered.",
    "noiseproof.functional": "One function for each loss, under the loss's name: `jal_ce(logits, target, a=30.0)`.",
    "noiseproof.losses": "The classes of the losses are in the [catalogue](../losses/index.md).",
}
"""A sentence on some packages"""


@functools.cache
def public_packages() -> tuple[str, ...]:
    """Full names of the packages and modules with public names, in the order of the page."""
    found = {"", *(module.name for module in pkgutil.iter_modules(noiseproof.__path__))} - set(INTERNAL) - {"integrations"}
    ordered = [*(name for name in FIRST if name in found), *sorted(found - set(FIRST))]
    full = [f"noiseproof.{name}".rstrip(".") for name in ordered]
    return tuple(name for name in full if getattr(importlib.import_module(name), "__all__", ()))


def integration_modules() -> list[str]:
    """The modules for other frameworks, whether or not these are installed."""
    return [f"{package.__name__}.{module.name}" for module in pkgutil.iter_modules(package.__path__)]


@functools.cache
def names_of(module: str) -> dict[str, Any]:
    """What a module lists in ``__all__``, with its value; without the losses that ``noiseproof`` exports from elsewhere."""
    imported = importlib.import_module(module)
    found = {name: getattr(imported, name) for name in getattr(imported, "__all__", ()) if not name.startswith("_")}
    if module == "noiseproof":
        losses = set(importlib.import_module("noiseproof.losses").__all__)
        found = {name: value for name, value in found.items() if name not in losses and not inspect.ismodule(value)}
    return found


def overview() -> str:
    """Markdown: a table of the packages, each with a link to its page."""
    lines = ["| package | contents |", "|---|---|"]
    return "\n".join(lines + [f"| [`{module}`]({module}.md) | {_summary(_docstrings(module)[0])} |" for module in _modules()])


def pages() -> dict[str, Callable[[], str]]:
    """The file of each package's page, in docs/reference/, with what writes it."""
    return {f"api/{module}.md": functools.partial(_page, module) for module in _modules()}


def _modules() -> list[str]:
    return [*public_packages(), *integration_modules()]


def _page(module: str) -> str:
    words, names = _docstrings(module)
    lines = [f"# {module}", "", _summary(words), "", MORE.get(module, ""), "", "| name | meaning |", "|---|---|"]
    lines += [f"| `{name}` | {_summary(text)} |" for name, text in names.items()]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)) + "\n"


def _docstrings(module: str) -> tuple[str, dict[str, str]]:
    """Of a module and of its public names; those of a module for another framework are read without importing it."""
    if module in integration_modules():
        found = importlib.util.find_spec(module)
        tree = ast.parse(Path(str(found and found.origin)).read_text(encoding="utf-8"))
        nodes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
        documented = {name: ast.get_docstring(node) or "" for name, node in nodes.items() if not name.startswith("_")}
        return ast.get_docstring(tree) or "", documented
    names = sorted(names_of(module).items(), key=_by_kind)
    return _docstring(importlib.import_module(module)), {name: _docstring(value) for name, value in names}


def with_docstrings(text: str, module: str) -> str:
    """The page with a docstring that opens when it is clicked in place of each row, where the module can be imported here.

    A name that an earlier page describes refers to it.
    """
    if module == "noiseproof.functional":
        return text  # each says what its loss says
    try:
        found = names_of(module)
    except ImportError:
        if module not in integration_modules():
            raise  # the documentation's environment lacks what the package imports
        return text
    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", text, re.MULTILINE)
    is_short = sum(map(_length, found.values())) < LONGEST
    head, entries = text.partition("| name | meaning |")[0], list[str]()
    for name, words in rows:
        described = ["```{eval-rst}", f".. currentmodule:: {module}", "", *_directive(name, found[name]), "```"]
        other = _elsewhere(module, name)
        content = [f"Described under {other}."] if other else described
        shown = re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(words.replace("\\|", "|"), quote=False))
        entries += folded(name, shown, content, is_open=is_short)
    return "\n".join([head, *entries])


@functools.cache
def _elsewhere(module: str, name: str) -> str:
    """A link to the page that describes this object, if it is another."""
    value = names_of(module)[name]
    if inspect.isclass(value) and (entry := next((one for one in list_losses() if one.cls is value), None)):
        return f"[{entry.name}](../losses/{place(entry)})"
    earlier = public_packages()[: public_packages().index(module)] if module in public_packages() else public_packages()
    first = next((one for one in earlier if callable(value) and any(value is other for other in names_of(one).values())), None)
    return f"[`{first}`]({first}.md)" if first else ""


def _by_kind(item: tuple[str, Any]) -> tuple[bool, str]:
    """Functions and classes before data, each by name."""
    return not callable(item[1]), item[0].lower()


def _length(value: Any) -> int:
    """The number of lines of a docstring and of those of a class's methods."""
    members = vars(value).values() if inspect.isclass(value) else ()
    return sum(len((inspect.getdoc(one) or "").splitlines()) + 4 for one in (value, *filter(callable, members)))


def _docstring(value: Any) -> str:
    """Nothing for data, whose type would describe itself."""
    return inspect.getdoc(value) or "" if callable(value) or inspect.ismodule(value) else ""


def _summary(text: str) -> str:
    """The first paragraph of a docstring as a cell of a table."""
    first = text.split("\n\n")[0]
    return "" if first.startswith("Attributes:") else in_a_line(first).replace("|", "\\|")


def _directive(name: str, value: object) -> list[str]:
    if inspect.isclass(value):
        return [f".. autoclass:: {name}", "   :members:"]
    return [f".. autofunction:: {name}" if callable(value) else f".. py:data:: {name}"]
