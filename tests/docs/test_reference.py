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
def tools():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "tools"))
        yield lambda name: importlib.import_module(f"manual.{name}")


def sections():
    """The names in the table of each page of the API, by package."""
    for path in sorted((ROOT / "docs" / "reference" / "api").glob("noiseproof*.md")):
        if ".integrations." not in path.name:
            yield path.stem, re.findall(r"^\| `(\w+)` \|", path.read_text(encoding="utf-8"), re.MULTILINE)


def test_the_pages_of_the_api_have_every_name_of_all():
    listed = dict(sections())
    for module, shown in listed.items():
        public = {name for name in importlib.import_module(module).__all__ if not name.startswith("_")}
        if module == "noiseproof":  # the losses and the packages have tables of their own
            elsewhere = {name for others in (listed["noiseproof.losses"], listed) for name in others}
            public = {name for name in public if not {name, f"noiseproof.{name}"} & elsewhere}
        assert sorted(shown) == sorted(set(shown))
        assert set(shown) == public, module


def test_every_package_is_on_the_page_or_internal(tools):
    found = {module.name for module in pkgutil.iter_modules(noiseproof.__path__)} - {"integrations"}
    listed = {title.removeprefix("noiseproof.") for title, _ in sections()} - {"noiseproof"}
    listed = {name for name in listed if "." not in name}
    others = found - listed - set(tools("names").INTERNAL)
    assert not [name for name in others if getattr(importlib.import_module(f"noiseproof.{name}"), "__all__", ())]


def test_every_page_that_is_written_is_there_and_no_other(tools):
    written = {name for part in ("catalogue", "names", "command_line") for name in tools(part).pages()}
    folders = [ROOT / "docs" / "reference" / name for name in ("api", "command_line", "losses")]
    there = {f"{path.parent.name}/{path.name}" for folder in folders for path in folder.glob("*.md")}
    assert there - written == {"api/index.md", "command_line/index.md", "losses/index.md"}
    assert written <= there


def verbs(command, words=("noiseproof",)):
    inside = getattr(command, "commands", None)
    for name, each in (inside or {}).items():
        yield from verbs(each, (*words, name))
    if inside is None:
        yield words, command


def test_the_pages_of_the_command_line_have_every_verb_option_and_default():
    paths = (ROOT / "docs" / "reference" / "command_line").glob("*.md")
    text = "\n".join(path.read_text(encoding="utf-8") for path in paths if path.stem != "index")
    parts = dict(re.findall(r"^##? (noiseproof [\w -]+)\n(.*?)(?=^##? |\Z)", text, re.DOTALL | re.MULTILINE))
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
    assert {verb for verb in parts if not any(each.startswith(f"{verb} ") for each in seen)} == set(seen)
    assert len(seen) > 12
