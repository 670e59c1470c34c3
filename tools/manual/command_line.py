"""A page for each verb with its arguments, options, defaults and help, from the application itself."""

from __future__ import annotations

import functools
import inspect
import re
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import typer.main

__all__ = ["commands", "overview", "pages"]

HIDDEN = {"--install-completion", "--show-completion"}
"""Options that Typer adds, which are the same in every application"""


def overview() -> str:
    """Markdown: tables of the commands, as the help groups them, each with a link to its page."""
    root = _application()
    panels: dict[str, list[str]] = {}
    for words, command in commands(root, ("noiseproof",)):
        anchor = f"#{'-'.join(words)}" if len(words) > 2 else ""
        row = f"| [`{' '.join(words)}`]({words[1]}.md{anchor}) | {_help(command.help or '')[0]} |"
        panels.setdefault(_panel(root, words[1]), []).append(row)
    head = ["", "| command | meaning |", "|---|---|"]
    return "\n\n".join("\n".join([f"## {panel}", *head, *rows]) for panel, rows in panels.items())


def pages() -> dict[str, Callable[[], str]]:
    """The file of each verb's page, in docs/reference/, with what writes it."""
    verbs = dict.fromkeys(words[1] for words, _ in commands(_application(), ("noiseproof",)))
    return {f"command_line/{verb}.md": functools.partial(_page, verb) for verb in verbs}


def _page(verb: str) -> str:
    """One section for a verb, or one for each verb of a group."""
    command = _application().commands[verb]
    parts = [f"# noiseproof {verb}"]
    if hasattr(command, "commands"):
        parts += [_cell(command.help)] if command.help else []
    parts += [_section(words, one) for words, one in commands(command, ("noiseproof", verb))]
    return "\n\n".join(parts) + "\n"


def _application() -> Any:
    from noiseproof.cli import app

    return typer.main.get_command(app)


def commands(command: Any, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command that is not a group, with the words that call it, in the order of the help."""
    inside = getattr(command, "commands", None)
    if inside is None:
        yield words, command
        return
    for name, each in inside.items():
        if not each.hidden:
            yield from commands(each, (*words, name))


def _panel(root: Any, verb: str) -> str:
    """The heading that the help prints above a verb."""
    panel = getattr(root.commands[verb], "rich_help_panel", None)
    return panel if isinstance(panel, str) else ""


def _section(words: tuple[str, ...], command: Any) -> str:
    heading = [f"## {' '.join(words)}", ""] if len(words) > 2 else []
    lines = [*heading, f"    {_usage(words, command)}", "", *_help(command.help or "")]
    arguments = [parameter for parameter in command.params if parameter.param_type_name == "argument"]
    options = [parameter for parameter in command.params if parameter.param_type_name == "option" and _is_shown(parameter)]
    if arguments:
        lines += ["", "| argument | meaning |", "|---|---|"]
        lines += [f"| `{_metavar(one)}` | {_cell(one.help)} |" for one in arguments]
    if options:
        hints = typing.get_type_hints(inspect.unwrap(command.callback))
        lines += ["", "| option | default | meaning |", "|---|---|---|"]
        lines += [f"| {_names(one, hints)} | {_default(one)} | {_cell(one.help)} |" for one in options]
    return "\n".join(lines)


def _is_shown(parameter: Any) -> bool:
    return not parameter.hidden and not HIDDEN & set(parameter.opts) and "--help" not in parameter.opts


def _usage(words: tuple[str, ...], command: Any) -> str:
    arguments = [parameter for parameter in command.params if parameter.param_type_name == "argument"]
    shown = [_metavar(one) if one.required else f"[{_metavar(one)}]" for one in arguments]
    return " ".join([*words, *shown, "[OPTIONS]"])


def _metavar(argument: Any) -> str:
    name = argument.metavar or str(argument.name).upper()
    return f"{name}..." if argument.nargs == -1 and not name.endswith("...") else name


def _help(text: str) -> list[str]:
    """The docstring of a verb, without what Click cuts off, one line a paragraph."""
    paragraphs = inspect.cleandoc(text).split("\f")[0].split("\n\n")
    joined = (" ".join(part.split()) for part in paragraphs if part.strip() != "\b")
    return "\n\n".join(f"    {part}" if part.startswith("noiseproof ") else _cell(part) for part in joined).splitlines()


def _names(option: Any, hints: dict[str, Any]) -> str:
    value = "" if option.is_flag else f" {option.metavar or _kind(hints.get(option.name))}"
    shown = [name for name in option.opts if name.startswith("--")] or option.opts
    others = [name for name in option.secondary_opts if name.startswith("--")]
    return ", ".join(f"`{name}{value}`" for name in (*shown, *others))


def _kind(hint: Any) -> str:
    """What a value is, from the type of the verb's parameter: ``int | None`` is a number."""
    kinds = {int: "N", float: "X", Path: "PATH"}
    return next((kinds[one] for one in (hint, *typing.get_args(hint)) if one in kinds), "TEXT")


def _default(option: Any) -> str:
    value = option.default() if callable(option.default) else option.default
    if option.is_flag:
        return f"`{option.opts[0]}`" if value and option.secondary_opts else ""
    if value is None or value in ((), [], ""):
        return "required" if option.required else ""
    return f"`{value.as_posix() if isinstance(value, Path) else getattr(value, 'value', value)}`"


def _cell(text: str | None) -> str:
    """Help as a cell of a table: one line, with bars and angle brackets that Markdown leaves alone."""
    return re.sub(r"([|<>])", r"\\\1", " ".join((text or "").split()))
