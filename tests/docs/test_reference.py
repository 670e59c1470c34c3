"""The pages to look things up in: every public name is on the page of the API, every option on that of the command line."""

import importlib
import pkgutil
import re
from pathlib import Path

import pytest
import typer.main

import noiseproof
from noiseproof.cli import app

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def names():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "tools"))
        return importlib.import_module("manual.names")


def sections():
    """The names in the tables of the API's page, by package."""
    text = (ROOT / "docs" / "reference" / "api" / "index.md").read_text(encoding="utf-8")
    for title, table in re.findall(r"^### `([\w.]+)`\n(.*?)(?=^### |^<!-- end)", text, re.DOTALL | re.MULTILINE):
        yield title, re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)


def test_the_page_of_the_api_has_every_name_of_all():
    listed = dict(sections())
    for module, shown in listed.items():
        public = {name for name in importlib.import_module(module).__all__ if not name.startswith("_")}
        if module == "noiseproof":  # the losses and the packages have tables of their own
            elsewhere = {name for others in (listed["noiseproof.losses"], listed) for name in others}
            public = {name for name in public if not {name, f"noiseproof.{name}"} & elsewhere}
        assert sorted(shown) == sorted(set(shown))
        assert set(shown) == public, module


def test_every_package_is_on_the_page_or_internal(names):
    found = {module.name for module in pkgutil.iter_modules(noiseproof.__path__)} - {"integrations"}
    listed = {title.removeprefix("noiseproof.") for title, _ in sections()} - {"noiseproof"}
    others = found - listed - set(names.INTERNAL)
    assert not [name for name in others if getattr(importlib.import_module(f"noiseproof.{name}"), "__all__", ())]


def verbs(command, words=("noiseproof",)):
    inside = getattr(command, "commands", None)
    for name, each in (inside or {}).items():
        yield from verbs(each, (*words, name))
    if inside is None:
        yield words, command


def test_the_page_of_the_command_line_has_every_verb_option_and_default():
    text = (ROOT / "docs" / "reference" / "command_line.md").read_text(encoding="utf-8")
    parts = dict(re.findall(r"^##+ `(noiseproof [\w -]+)`\n(.*?)(?=^##|^<!-- end)", text, re.DOTALL | re.MULTILINE))
    seen = []
    for words, command in verbs(typer.main.get_command(app)):
        if command.hidden:
            continue
        part = parts[" ".join(words)]
        for parameter in command.params:
            if parameter.param_type_name == "option" and not parameter.hidden and "--help" not in parameter.opts:
                assert any(f"`{name}" in part for name in parameter.opts), (words, parameter.name)
                assert " ".join((parameter.help or "").split())[:20].split("|")[0] in part
                if isinstance(parameter.default, int | float | str) and not parameter.is_flag:
                    assert f"| `{parameter.default}` |" in part
        seen.append(" ".join(words))
    assert set(seen) == set(parts)
    assert len(seen) > 12
