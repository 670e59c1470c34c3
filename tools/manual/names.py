"""The public names by part, for autodoc: what each part lists in ``__all__``, once, where a reader looks for it."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import pkgutil
from collections.abc import Iterable

from noiseproof import integrations as package
from noiseproof.losses import list_losses

__all__ = ["PARTS", "names_of", "reference"]

PARTS = {
    "noiseproof": "The losses are in the [catalogue](losses.md).",
    "noiseproof.noise": "",
    "noiseproof.theory": "",
    "noiseproof.audit": "",
    "noiseproof.sklearn": "",
    "noiseproof.train": "",
    "noiseproof.data": "",
    "noiseproof.models": "",
    "noiseproof.paper": "",
    "noiseproof.report": "",
    "noiseproof.statistics": "What a loss of your own reads.",
    "noiseproof.losses.expressions": "What the catalogue's formulas are made of.",
}
"""Each with a line on it"""
FIRST = ("L1", "audit_labels", "audit_probabilities", "load", "create_loss", "find_loss", "list_losses")
MORE = ("LossEntry", "RobustLoss", "Sum", "register", "register_pair")
"""What the package itself shows, beside the losses"""


def integrations() -> Iterable[str]:
    """The modules for other frameworks that can be imported here."""
    for module in pkgutil.iter_modules(package.__path__):
        with contextlib.suppress(ImportError):
            yield importlib.import_module(f"{package.__name__}.{module.name}").__name__


def names_of(part: str) -> list[str]:
    if part == "noiseproof":
        return [*FIRST, *MORE]
    return [name for name in getattr(importlib.import_module(part), "__all__", ()) if not name.startswith("_")]


def reference() -> str:
    """Markdown with a section for each part. A name that an earlier part has shown is left out."""
    shown: set[int] = {id(entry.cls) for entry in list_losses()}
    lines = []
    for part, words in {**PARTS, **dict.fromkeys(integrations(), "")}.items():
        module = importlib.import_module(part)
        found = {name: getattr(module, name) for name in names_of(part)}
        new = {name: value for name, value in found.items() if id(value) not in shown}
        shown |= {id(value) for value in new.values() if callable(value)}
        lines += [f"## `{part}`\n", _words(module), "", words, "", "```{eval-rst}", f".. currentmodule:: {part}", ""]
        lines += [*_directives(new), "```", ""]
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
