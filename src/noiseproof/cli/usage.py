"""What all commands share: usage errors in one sentence, Ctrl-C and SIGTERM, output that cannot be written, local modules.

Typer would draw a box around a usage error, below the usage of the command.
"""

from __future__ import annotations

import difflib
import errno
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup

from noiseproof.cli.output import Console, drop_output, fail

UsageError: type[Exception] = typer.BadParameter.__mro__[1]
"""Of click, or of the copy of it that newer versions of Typer have"""
RECIPE_FIELDS = (
    *("loss_options", "noise_rule", "model_options", "weights", "optimiser", "lr", "momentum", "nesterov", "schedule", "l1"),
    *("l2", "clip", "augment", "epochs", "batch", "precision", "confidence_epochs", "standardise", "global_scaling", "size"),
)
"""What --set changes that has no option of its own, listed so that a mistyped option is answered without importing torch"""


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
        kind = type(error).__name__
        if kind == "NoArgsIsHelpError":  # the help has been printed
            raise
        context = getattr(error, "ctx", None)
        command = "noiseproof" if context is None else context.command_path
        fail(SENTENCES.get(kind, _other)(error, context, command))
    except KeyboardInterrupt:
        Console(stderr=True).print("stopped")
        raise typer.Exit(Stopped.status) from None
    except OSError as error:  # those of files were said by the command: what it prints goes to a full disk
        if error.errno in (None, errno.EPIPE):  # Typer ends quietly where what reads has enough
            raise
        drop_output()
        fail(error if error.filename is not None else f"what is printed cannot be written: {error.strerror}")


def _missing(error: Any, context: Any, command: str) -> str:
    return f"{command!r} needs {_name(error.param)}: {_inside(getattr(error.param, 'help', None) or '')}"


def _wrong_value(error: Any, context: Any, command: str) -> str:
    # Typer asks pydantic, whose messages begin with "Input should", and which keeps the value; click's have the value inside.
    found = error.__cause__.errors() if hasattr(error.__cause__, "errors") else [{}]
    what = error.message.partition(", unable to parse")[0].rstrip(".")
    name = _name(error.param) if error.param is not None else command
    if what.startswith("Input should "):
        what, name = what.replace("Input should ", "must ", 1), f"{name} "
    else:
        name = f"{name}: "
    return f"{name}{_inside(what)}" + (f", got {found[0]['input']!r}" if "input" in found[0] else "")


def _unknown_option(error: Any, context: Any, command: str) -> str:
    typed = error.option_name
    params = context.command.params if context else []
    if arguments := [one for one in params if one.param_type_name == "argument" and one.name == typed.lstrip("-")]:
        return f"{command!r} has no option {typed}; give {_name(arguments[0])} without it: {command} {_name(arguments[0])}"
    options = [name for one in params if one.param_type_name == "option" for name in (*one.opts, *one.secondary_opts)]
    fields = RECIPE_FIELDS if "--set" in options else ()
    field = typed.lstrip("-").replace("-", "_")
    near = [f"--{name}" for name in difflib.get_close_matches(typed.lstrip("-"), [name.lstrip("-") for name in options], n=1)]
    if field in fields or not near:
        near = [f"--set {name}=VALUE" for name in difflib.get_close_matches(field, fields, n=1)]
    hint = f"did you mean {near[0]}? " if near else ""
    return f"{command!r} has no option {typed}; {hint}'{command} --help' lists them"


def _other(error: Any, context: Any, command: str) -> str:
    """Such as a command that does not exist, an argument too many, or an option without its value."""
    text = _inside(error.format_message()).replace(". Did you", "; did you")
    return f"{text}{'' if text.endswith('?') else ';'} '{command} --help' says more"


SENTENCES: dict[str, Callable[[Any, Any, str], str]] = {
    "MissingParameter": _missing,
    "BadParameter": _wrong_value,
    "NoSuchOption": _unknown_option,
}


def _name(parameter: Any) -> str:
    """As it is typed: --out, or the RECIPE of the usage."""
    if parameter.param_type_name == "option":
        return str(max(parameter.opts, key=len))
    return str(parameter.metavar or parameter.name.upper())


def _inside(sentence: str) -> str:
    """A sentence as a part of another one: without its capital, unless a name begins with one, and without its full stop.

    >>> _inside("Folder of runs; each has its own inside."), _inside("DATASET/LOSS of the paper.")
    ('folder of runs; each has its own inside', 'DATASET/LOSS of the paper')
    """
    name = sentence[1:2].isupper()
    return (sentence if name else sentence[:1].lower() + sentence[1:]).rstrip(".")


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
