"""The templates of our pages, which share a style sheet and macros. Jinja is imported by the first page that is made."""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Environment

__all__ = ["environment"]


def environment(package: str = "noiseproof.report") -> Environment:
    """Of the files in a package's folder and in this one. What they insert is escaped, a name that is not given is an error."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    folders = [resources.files(name) for name in (package, "noiseproof.report")]

    def read(name: str) -> str | None:
        found = next((folder.joinpath(name) for folder in folders if folder.joinpath(name).is_file()), None)
        return None if found is None else found.read_text(encoding="utf-8")

    return Environment(
        loader=FunctionLoader(read), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
