"""The console that commands print to, and how they end with an error."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import typer
from rich.console import Console
from rich.markup import escape

console = Console()
LAB = ("sklearn", "matplotlib", "pooch", "PIL", "safetensors", "jinja2")
"""Modules that the extra ``lab`` installs, besides those without which there is no command line."""


def fail(error: Exception | str) -> NoReturn:
    """End with one line that says what is wrong."""
    Console(stderr=True).print(f"[bold red]error:[/] {escape(str(error))}", highlight=False, soft_wrap=True)
    raise typer.Exit(2)


@contextmanager
def errors_reported() -> Iterator[None]:
    """End with an error of the arguments or the data; of several processes, one on each machine says it."""
    try:
        yield
    except (ValueError, TypeError, OSError, ImportError) as error:
        if os.environ.get("LOCAL_RANK", "0") != "0":
            raise typer.Exit(2) from None
        if isinstance(error, ModuleNotFoundError) and (error.name or "").split(".")[0] in LAB:
            fail(f"{error}; pip install '.[lab]' in noiseproof's repository brings it")
        fail(error)
