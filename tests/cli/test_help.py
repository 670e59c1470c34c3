"""Every help text is a sentence that can be read alone."""

import re
import typing

import pytest
import typer.main
import typer.models

from noiseproof.cli import app

SHOWN = re.compile(r"^[A-Z][a-z-]+ .*\.(\.\.)?$", re.DOTALL)


def options(command, words=("noiseproof",)):
    for name, each in getattr(command, "commands", {}).items():
        yield from options(each, (*words, name))
    for parameter in command.params:
        if parameter.param_type_name in ("option", "argument") and parameter.help and not getattr(parameter, "hidden", False):
            yield " ".join([*words, parameter.name]), parameter.help


@pytest.mark.parametrize(
    ("place", "text"), list(options(typer.main.get_command(app))), ids=lambda value: value.replace(" ", "-")[:60]
)
def test_a_help_text_begins_with_a_verb_and_ends_with_a_full_stop(place, text):
    if place.split()[-1] in ("install_completion", "show_completion", "help"):
        return  # Typer's own
    assert SHOWN.match(text), f"{place}: {text}"
    assert text.split()[0] not in {
        "The",
        "Folder",
        "Number",
        "Name",
        "Names",
        "Where",
        "How",
        "What",
        "Which",
        "Only",
        "Of",
        "Or",
    }, text


def test_an_option_whose_placeholder_is_its_name_is_named_in_full():
    """Typer 0.27 called ``noise: Option(metavar="NOISE")`` --NOISE."""
    for command in app.registered_commands:
        for name, hint in typing.get_type_hints(command.callback, include_extras=True).items():
            for found in getattr(hint, "__metadata__", ()):
                if isinstance(found, typer.models.OptionInfo):
                    named = any(str(each).startswith("--") for each in (found.default, *found.param_decls))
                    assert named or (found.metavar or "").lower() != name, (command.callback, name)
