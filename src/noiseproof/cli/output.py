"""The console that commands print to, and how commands warn and end with an error."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

import rich.console
import typer
from rich.console import ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from noiseproof.io.text import duration, printable

__all__ = ["Console", "console", "drop_output", "duration", "echo", "errors_reported", "fail", "printable", "warn"]


class Console(rich.console.Console):
    """A console that prints text as it is: no control codes of a file's name reach the terminal, no ``:cat:`` becomes a cat."""

    def __init__(self, **options: Any) -> None:
        super().__init__(emoji=False, highlight=False, **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        # What commands the terminal on purpose (bars, cursor) comes as segments marked as control.
        for segment in super().render(renderable, options):
            clean = segment.text if segment.control else printable(segment.text, lines=True)
            yield segment if clean is segment.text else Segment(clean, segment.style)


console = Console()
LAB = ("sklearn", "matplotlib", "requests", "PIL", "safetensors", "jinja2")
"""Modules that the extra ``lab`` installs, besides those without which there is no command line."""


def echo(text: str) -> None:
    """Print results as they are, for other programs to read, without control codes."""
    typer.echo(printable(text, lines=True))


def fail(error: Exception | str) -> NoReturn:
    """End with one line that says what is wrong."""
    text = str(error)
    if isinstance(error, OSError) and error.strerror and error.filename is not None and error.filename2 is None:
        text = f"{error.filename}: {error.strerror}"  # as all other errors begin, not [Errno 2]
    elif isinstance(error, OSError) and error.strerror and error.filename is None:  # of a stream, such as what is printed to
        text = error.strerror
    message = printable(text or type(error).__name__)
    Console(stderr=True).print(Text.assemble(("error:", "bold red"), f" {message}"), soft_wrap=True)
    raise typer.Exit(2)


def warn(text: str) -> None:
    """On stderr, also where only the result is wanted."""
    Console(stderr=True).print(Text.assemble(("warning:", "bold yellow"), f" {printable(text)}"), soft_wrap=True)


def drop_output() -> None:
    """Let what is still to be printed go nowhere, where it cannot be: or Python complains at its end."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    with suppress(OSError), console.capture():
        pass  # and empties what the console has kept to print


@contextmanager
def errors_reported() -> Iterator[None]:
    """End with an error of the arguments or the data; of several processes, one on each machine says it."""
    try:
        yield
    except BrokenPipeError:  # what reads, head say, has enough
        drop_output()
        raise typer.Exit(141) from None  # 128 and the signal, as a shell has it
    except (ValueError, TypeError, OSError, ImportError) as error:
        if os.environ.get("LOCAL_RANK", "0") != "0":
            raise typer.Exit(2) from None
        if isinstance(error, ModuleNotFoundError) and (error.name or "").split(".")[0] in LAB:
            fail(f"{error}; pip install '.[lab]' in noiseproof's repository brings it")
        fail(error)
