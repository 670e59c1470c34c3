"""The templates of our pages, which share a style sheet and macros. Jinja is imported by the first page that is made."""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Environment

__all__ = ["environment"]


def environment() -> Environment:
    """Of the files beside this one. What they insert is escaped, and a name that is not given is an error."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    folder = resources.files("noiseproof.report")
    loader = FunctionLoader(lambda name: folder.joinpath(name).read_text(encoding="utf-8"))
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
