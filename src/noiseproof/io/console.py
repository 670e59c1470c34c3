"""What all commands share: the console, warnings, errors in one sentence, Ctrl-C and SIGTERM, local modules.

Typer would draw a box around a usage error, below the usage of the command.
"""

from __future__ import annotations

import errno
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn, Self

import rich.console
import typer
from rich.console import ConsoleOptions, RenderableType
from rich.progress import BarColumn, Progress, TextColumn
from rich.segment import Segment
from rich.text import Text
from typer.core import TyperGroup

from noiseproof.io.limits import out_of_memory
from noiseproof.io.text import duration as duration
from noiseproof.io.text import printable as printable
from noiseproof.io.text import without_controls

UsageError: Any = typer.BadParameter.__mro__[1]
"""Of click, or of the copy of it that newer versions of Typer have"""


class Console(rich.console.Console):
    """A console that prints text as it is: no control codes of a file's name reach the terminal, no ``:cat:`` becomes a cat."""

    def __init__(self, **options: Any) -> None:
        super().__init__(emoji=False, highlight=False, **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        # What commands the terminal on purpose (bars, cursor) comes as segments marked as control.
        for segment in super().render(renderable, options):
            clean = segment.text if segment.control else without_controls(segment.text, lines=True)
            yield segment if clean is segment.text else Segment(clean, segment.style)


console = Console()
LAB = ("sklearn", "matplotlib", "requests", "PIL", "safetensors", "jinja2")
"""Modules that the extra ``lab`` installs, besides those without which there is no command line."""


MAX_MESSAGE = 2000
"""Characters of an error: a value of megabytes that someone gave is not repeated whole"""


def say(*lines: str) -> None:
    """Print lines as they are, however long."""
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)


def echo(text: str) -> None:
    """Print results as they are, for other programs to read, without control codes."""
    typer.echo(without_controls(text, lines=True))


def fail(error: Exception | str) -> NoReturn:
    """End with one line that says what is wrong."""
    text = str(error)
    if isinstance(error, OSError) and error.strerror and error.filename is not None and error.filename2 is None:
        text = f"{error.filename}: {error.strerror}"  # as all other errors begin, not [Errno 2]
    elif isinstance(error, OSError) and error.strerror and error.filename is None:  # of a stream, such as what is printed to
        text = error.strerror
    message = without_controls(text or type(error).__name__)
    if len(message) > MAX_MESSAGE:
        message = f"{message[: MAX_MESSAGE // 2]} ... {message[-MAX_MESSAGE // 2 :]}"
    Console(stderr=True).print(Text.assemble(("error:", "bold red"), f" {message}"), soft_wrap=True)
    raise typer.Exit(2)


def warn(text: str) -> None:
    """On stderr, also where only the result is wanted."""
    Console(stderr=True).print(Text.assemble(("warning:", "bold yellow"), f" {without_controls(text)}"), soft_wrap=True)


def drop_output() -> None:
    """Let what is still to be printed go nowhere, where it cannot be: or Python complains at its end."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    with suppress(OSError), console.capture():
        pass  # and empties what the console has kept to print


LINE_SECONDS = 10.0
"""Where there is no terminal a line on unfinished work is printed no more often than this"""


class ProgressBar:
    """How far a command is: a bar on a terminal, else a line from time to time; nothing without a console."""

    def __init__(self, shown: Console | None) -> None:
        self.shown, self.printed = shown, time.monotonic()
        columns = (TextColumn("{task.description}", markup=False), BarColumn(None), TextColumn("{task.fields[note]}"))
        self.bar = Progress(
            *columns, console=shown, expand=True, transient=True, disable=shown is None or not shown.is_terminal
        )
        self.task = self.bar.add_task("", total=None, note="")
        self.begin()

    def __enter__(self) -> Self:
        self.bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Restore the terminal."""
        self.bar.stop()

    def begin(self, done: float = 0) -> None:
        """Measure the pace from here, where so much is done already."""
        self.start, self.first = time.monotonic(), done

    def pace(self, done: float) -> float:
        """What is done in a second; 0 where nothing was since :meth:`begin`."""
        return (done - self.first) / max(time.monotonic() - self.start, 1e-9) if done > self.first else 0.0

    def left(self, done: float, total: float) -> str:
        """How long the rest takes at this pace, in words; nothing where there is none."""
        pace = self.pace(done)
        return f"{duration((total - done) / pace)} left" if pace else ""

    def update(self, description: str, done: float, total: float, note: str = "") -> None:
        """Move the bar."""
        if not self.bar.disable:
            self.bar.update(self.task, description=description, completed=done, total=total, note=note)

    @property
    def is_due(self) -> bool:
        """Whether it is time for another line."""
        return self.bar.disable and time.monotonic() - self.printed >= LINE_SECONDS

    def line(self, text: str) -> None:
        """Print a line, above the bar if there is one."""
        self.printed = time.monotonic()
        if self.shown is not None:
            self.shown.print(text, markup=False, soft_wrap=True)


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
    except (MemoryError, RuntimeError) as error:
        if (text := out_of_memory(error)) is None:
            raise
        fail(text)


class Commands(TyperGroup):
    """All commands. Their usage errors reach this group, also those of groups inside it."""

    def make_context(self, *given: Any, resilient_parsing: bool = False, **extra: Any) -> Any:
        if resilient_parsing:  # to complete what is being typed
            return super().make_context(*given, resilient_parsing=True, **extra)
        with _errors_in_one_sentence():
            return super().make_context(*given, **extra)

    def invoke(self, ctx: Any) -> Any:
        with _errors_in_one_sentence():
            return super().invoke(ctx)


@contextmanager
def _errors_in_one_sentence() -> Iterator[None]:
    try:
        yield
    except UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # the help has been printed
            raise
        context = getattr(error, "ctx", None)
        command = "noiseproof" if context is None else context.command_path
        text = " ".join(error.format_message().split()).rstrip(".").replace(". Did", "; did")
        for found in error.__cause__.errors() if hasattr(error.__cause__, "errors") else ():  # pydantic's
            text = f"{text}, got {found['input']!r}"
        options = [] if context is None else [name for parameter in context.command.params for name in parameter.opts]
        if type(error).__name__ == "NoSuchOption" and "--set" in options:
            text = f"{text}; '--set KEY=VALUE' changes a recipe"
        fail(f"{text[:1].lower()}{text[1:]}{'' if text.endswith('?') else ';'} '{command} --help' says more")
    except KeyboardInterrupt:
        Console(stderr=True).print("stopped")
        raise typer.Exit(Stopped.status) from None
    except (ImportError, MemoryError) as error:  # of torch, say, whose libraries do not fit into a limit
        if (fault := out_of_memory(error)) is None:
            raise
        fail(fault)
    except OSError as error:  # those of files were said by the command: what it prints goes to a full disk
        if error.errno in (None, errno.EPIPE):  # Typer ends quietly where what reads has enough
            raise
        drop_output()
        fail(error if error.filename is not None else f"what is printed cannot be written: {error.strerror}")


def import_local_modules(*names: str | None) -> None:
    """Make the modules of the working directory importable if a name is ``module:Name``, a loss or network of one's own."""
    here = os.getcwd()
    if here not in sys.path and any(re.search(r"(^|[,\s=])[\w.]+:[A-Za-z_]\w*", name or "") for name in names):
        sys.path.insert(0, here)


class Stopped:
    """How a command that was stopped ends: 130 after Ctrl-C, 143 after SIGTERM."""

    status = 130


@contextmanager
def sigterm_as_ctrl_c() -> Iterator[Stopped]:
    """SIGTERM raises a KeyboardInterrupt here, once: what it leads to, a checkpoint say, is not interrupted by another."""
    stopped = Stopped()

    def terminate(number: int, frame: Any) -> NoReturn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        stopped.status = 143  # kept apart from the exception: Ray turns what is raised here into a plain KeyboardInterrupt
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():  # Python allows handlers in that one only
        yield stopped
        return
    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield stopped
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def stoppable(words: Callable[[], str]) -> Iterator[None]:
    """Ctrl-C and SIGTERM end the command within: ``words`` say what is left, or what the same command does then."""
    with sigterm_as_ctrl_c() as stopped:
        try:
            yield
        except KeyboardInterrupt:
            Console(stderr=True).print(f"stopped; {words()}", markup=False, soft_wrap=True)
            raise typer.Exit(stopped.status) from None
