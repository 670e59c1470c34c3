"""The console that commands print to, and how they end with an error."""

from __future__ import annotations

from typing import NoReturn

import typer
from rich.console import Console
from rich.markup import escape

console = Console()


def fail(error: Exception | str) -> NoReturn:
    """End with one line that says what is wrong."""
    Console(stderr=True).print(f"[bold red]error:[/] {escape(str(error))}", highlight=False, soft_wrap=True)
    raise typer.Exit(2)
