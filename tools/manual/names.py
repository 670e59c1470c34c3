"""The public names by package: a table of all of them, and their docstrings for autodoc.

Public is what a package lists in ``__all__``. ``INTERNAL`` are packages that are no interface: their names may change.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterable
from typing import Any

import noiseproof
from noiseproof import integrations as package
from noiseproof.losses import list_losses

__all__ = ["FIRST", "INTERNAL", "names_of", "overview", "public_packages", "reference"]

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
MORE = {
    "noiseproof": "What every program needs. The losses, exported here too, are in the [catalogue](../losses/index.md).",
    "noiseproof.core": "What a loss of your own reads, and how a backend for another device is registered.",
    "noiseproof.functional": "One function for each loss, under the loss's name: `jal_ce(logits, target, a=30.0)`.",
    "noiseproof.losses": "The classes of the losses are in the [catalogue](../losses/index.md).",
}
"""A sentence on some packages"""


def public_packages() -> list[str]:
    """Full names of the packages and modules with public names, in the order of the page."""
    found = {"", *(module.name for module in pkgutil.iter_modules(noiseproof.__path__))} - set(INTERNAL) - {"integrations"}
    ordered = [*(name for name in FIRST if name in found), *sorted(found - set(FIRST))]
    full = [f"noiseproof.{name}".rstrip(".") for name in ordered]
    return [name for name in full if getattr(importlib.import_module(name), "__all__", ())]


def integration_modules() -> Iterable[str]:
    """The modules for other frameworks that can be imported here."""
    for module in pkgutil.iter_modules(package.__path__):
        with contextlib.suppress(ImportError):
            yield importlib.import_module(f"{package.__name__}.{module.name}").__name__


def names_of(module: str) -> dict[str, Any]:
    """What a module lists in ``__all__``, with its value; without the losses that ``noiseproof`` exports from elsewhere."""
    imported = importlib.import_module(module)
    found = {name: getattr(imported, name) for name in getattr(imported, "__all__", ()) if not name.startswith("_")}
    if module == "noiseproof":
        losses = set(importlib.import_module("noiseproof.losses").__all__)
        found = {name: value for name, value in found.items() if name not in losses and not inspect.ismodule(value)}
    return found


def overview() -> str:
    """Markdown with a table for each package: the public names and the first line of their docstrings."""
    parts = []
    for module in public_packages():
        lines = [f"### `{module}`", "", _summary(importlib.import_module(module)), "", "| name | what it is |", "|---|---|"]
        lines += [f"| `{name}` | {_summary(value)} |" for name, value in sorted(names_of(module).items(), key=_by_kind)]
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def _by_kind(item: tuple[str, Any]) -> tuple[bool, str]:
    """Functions and classes before data, each by name."""
    return not callable(item[1]), item[0].lower()


def _summary(value: Any) -> str:
    """The first paragraph of a docstring as a cell of a table; nothing for data, whose type would describe itself."""
    if not callable(value) and not inspect.ismodule(value):
        return ""
    text = " ".join((inspect.getdoc(value) or "").split("\n\n")[0].split())
    return re.sub(r"(?::\w+)?:`~?([^`]+)`|``(.+?)``", lambda found: f"`{found[1] or found[2]}`", text).replace("|", "\\|")


def reference() -> str:
    """Markdown with the full docstrings, by package, for autodoc. A name that an earlier package has shown is left out."""
    shown: set[int] = {id(entry.cls) for entry in list_losses()}
    lines = []
    for module in (*public_packages(), *integration_modules()):
        if module == "noiseproof.functional":
            continue  # each says what its loss says
        found = names_of(module)
        new = {name: value for name, value in found.items() if id(value) not in shown}
        shown |= {id(value) for value in new.values() if callable(value)}
        lines += [f"## `{module}`\n", _words(importlib.import_module(module)), "", MORE.get(module, ""), ""]
        lines += ["```{eval-rst}", f".. currentmodule:: {module}", "", *_directives(new), "```", ""]
    return "\n".join(lines)


def _words(module: object) -> str:
    """The first sentence of a module's docstring."""
    return " ".join((inspect.getdoc(module) or "").split("\n\n")[0].split())


def _directives(found: dict[str, object]) -> Iterable[str]:
    for name, value in found.items():
        if inspect.isclass(value):
            yield from (f".. autoclass:: {name}", "   :members:", "")
        elif callable(value):
            yield from (f".. autofunction:: {name}", "")
        else:
            yield from (f".. py:data:: {name}", "")  # a dictionary would be described as dictionaries are
